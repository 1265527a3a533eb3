/* kv_windows — the blocks of windowed layers: those that sequences see, and those kept beside the
 * nodes of the prefix cache.
 *
 * Model    A pool of its own. A sequence's table has entries first..n of the same index space as the
 *          table of its other blocks: those below `first` were given up, since no later position
 *          sees them. A node of the prefix cache may have a twin: the windowed block of the same
 *          tokens. A prefix can be used if the twins of its last window are there.
 * Holding  As in the prefix cache, which is one holder of a twin, each sequence another. A twin that
 *          nobody else holds is idle, and can be evicted without its node: those that windows have
 *          moved on from and no hit ever used go first, then the rest; the one that became idle
 *          first before others.
 * Cost     O(1) for each block; no allocation.
 * Threads  One owner, that of the pool. Memory: in the storage given to init.
 * Checked  in tests/property/sim_scheduler.c. */
#ifndef WEFT_PAGED_KV_WINDOWS_H
#define WEFT_PAGED_KV_WINDOWS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "paged_kv/paged_kv.h"

typedef struct weft_kv_windows weft_kv_windows;

struct weft_kv_window_table {
    weft_kv_block *blocks; /* storage of `cap` entries, the caller's */
    uint32_t first, n, cap;
};

/* Storage in bytes; 0: out of range. `n_nodes`: ids of nodes are below that. */
size_t weft_kv_windows_bytes(uint32_t n_nodes, uint32_t n_blocks);
/* No twins yet, inside `mem` (64-byte aligned). WEFT_E_INVAL: `mem` is short. */
WEFT_MUST_CHECK weft_err weft_kv_windows_init(void *mem, size_t mem_bytes, weft_kv_pool *pool,
                                              uint32_t n_nodes, weft_kv_windows **windows_out);

/* ----------------------------------------------------------------------------------- twins --- */

weft_kv_block weft_kv_windows_twin(const weft_kv_windows *windows, weft_kv_block node);
/* Makes `block`, which is held, the node's twin, unless it has one. */
void weft_kv_windows_keep(weft_kv_windows *windows, weft_kv_block node, weft_kv_block block);
void weft_kv_windows_forget(weft_kv_windows *windows, weft_kv_block node); /* it is none any more */

/* Twins that nobody else holds: they are evicted when a table wants their blocks. */
uint32_t weft_kv_windows_n_idle(const weft_kv_windows *windows);
uint32_t weft_kv_windows_n_twins(const weft_kv_windows *windows);

/* ---------------------------------------------------------------------------------- tables --- */

/* An empty table whose first entry will be `first`. */
void weft_kv_window_table_init(struct weft_kv_window_table *table, weft_kv_block *storage,
                               uint32_t cap, uint32_t first);
/* Appends a block that others hold, too: a sibling's, or a twin. WEFT_E_FULL: too many holders. */
WEFT_MUST_CHECK weft_err weft_kv_windows_share(weft_kv_windows *windows, weft_kv_block block,
                                               struct weft_kv_window_table *table);
/* Appends a block of its own, into which those of `from` are to be copied. WEFT_E_FULL. */
WEFT_MUST_CHECK weft_err weft_kv_windows_append_copy(weft_kv_windows *windows, weft_kv_block from,
                                                     struct weft_kv_window_table *table,
                                                     struct weft_kv_copy *copy_out);
/* Grows it to entries first..n_wanted, and evicts for it if need be. WEFT_E_FULL: no change. */
WEFT_MUST_CHECK weft_err weft_kv_windows_grow(weft_kv_windows *windows,
                                              struct weft_kv_window_table *table,
                                              uint32_t n_wanted);
/* Gives up the entries below `first`, as far as there are any. */
void weft_kv_windows_move(weft_kv_windows *windows, struct weft_kv_window_table *table,
                          uint32_t first);
/* Gives up all. */
void weft_kv_windows_release(weft_kv_windows *windows, struct weft_kv_window_table *table);

/* Walks everything and asserts: twins, lists of idle ones and holders agree. */
void weft_kv_windows_check(const weft_kv_windows *windows);

#endif
