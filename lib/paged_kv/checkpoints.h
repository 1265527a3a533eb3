/* kv_checkpoints — which nodes of the prefix cache have a state beside them: that of recurrent layers
 * as it was after the node's last token.
 *
 * Model    Ids 0..n-1 of places that a worker has for states. An id is free; or taken by somebody who
 *          has a state put there, of a block that is not a node yet; or hung on a node, which has one
 *          at most. It goes with the node. When none is free, taking one gives up that of the nodes
 *          which was used last the longest time ago.
 * Cost     O(1); no allocation.
 * Threads  One owner, that of the prefix cache. Memory: in the storage given to init.
 * Checked  in tests/property/prop_checkpoints.c, and by sim_scheduler. */
#ifndef WEFT_PAGED_KV_CHECKPOINTS_H
#define WEFT_PAGED_KV_CHECKPOINTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "paged_kv/paged_kv.h"

typedef struct weft_kv_checkpoints weft_kv_checkpoints;

/* Storage in bytes, of n checkpoints (1..WEFT_STATE_CHECKPOINTS_MAX) and nodes below n_nodes; 0: out of range. */
size_t weft_kv_checkpoints_bytes(uint32_t n, uint32_t n_nodes);
/* All free, inside `mem` (64-byte aligned). WEFT_E_INVAL: `mem` is short. */
WEFT_MUST_CHECK weft_err weft_kv_checkpoints_init(void *mem, size_t mem_bytes, uint32_t n,
                                                  uint32_t n_nodes,
                                                  weft_kv_checkpoints **checkpoints_out);

/* WEFT_KV_NONE: all are taken. */
uint32_t weft_kv_checkpoints_take(weft_kv_checkpoints *checkpoints);
/* The node's is taken from it. WEFT_KV_NONE: it has none. */
uint32_t weft_kv_checkpoints_lift(weft_kv_checkpoints *checkpoints, weft_kv_block node);
/* One that was taken becomes free, */
void weft_kv_checkpoints_drop(weft_kv_checkpoints *checkpoints, uint32_t id);
/* or the node's; free, if the node has one. */
void weft_kv_checkpoints_hang(weft_kv_checkpoints *checkpoints, uint32_t id, weft_kv_block node);

/* The node's; WEFT_KV_NONE: it has none. */
uint32_t weft_kv_checkpoints_of(const weft_kv_checkpoints *checkpoints, weft_kv_block node);
void weft_kv_checkpoints_use(weft_kv_checkpoints *checkpoints, uint32_t id); /* a node's */
void weft_kv_checkpoints_forget(weft_kv_checkpoints *checkpoints,
                                weft_kv_block node); /* it is none any more */

uint32_t weft_kv_checkpoints_n_hung(const weft_kv_checkpoints *checkpoints);
uint32_t weft_kv_checkpoints_n_taken(const weft_kv_checkpoints *checkpoints); /* and not hung */
uint64_t
weft_kv_checkpoints_n_evicted(const weft_kv_checkpoints *checkpoints); /* ever, for others */

/* Walks everything and asserts: ids are free, taken or a node's, and all are there. */
void weft_kv_checkpoints_check(const weft_kv_checkpoints *checkpoints);

#endif
