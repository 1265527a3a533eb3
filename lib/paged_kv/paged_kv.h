/* paged_kv — hands out fixed-size KV-cache blocks by index and counts their holders.
 *
 * Model    Ids 0..n_blocks-1. A block is free (0 holders) or held (1..WEFT_KV_HOLDERS_MAX; more
 *          than one when sequences share a prefix). A table is the list of blocks of one sequence,
 *          in the order of its tokens. The bytes belong to the engine, which maps id -> address;
 *          this module never touches them.
 * Threads  One owner, the scheduler actor. No locks inside; do not share a pool.
 * Memory   Lives in the storage given to init, which outlives it. Allocates nothing, ever.
 * Errors   WEFT_E_FULL is ordinary: the caller waits or preempts. Misuse is a bug and asserts.
 * Source   Block-granular KV cache: Kwon et al., SOSP 2023, section 4.
 */
#ifndef WEFT_PAGED_KV_H
#define WEFT_PAGED_KV_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"

#define WEFT_KV_NONE UINT32_MAX /* no block; never a valid id */
#define WEFT_KV_HOLDERS_MAX (1u << 20)

typedef uint32_t weft_kv_block; /* an index, not a pointer: ids cross process boundaries */
typedef struct weft_kv_pool weft_kv_pool;

/* Storage in bytes for `n_blocks` (1..WEFT_KV_BLOCKS_MAX); 0 if out of range. */
size_t weft_kv_pool_bytes(uint32_t n_blocks);

/* Builds an all-free pool inside `mem` (`mem_bytes` long, 64-byte aligned). Nothing to free later:
 * the pool ends when the caller releases `mem`. WEFT_E_INVAL: count out of range or `mem` short. */
WEFT_MUST_CHECK weft_err weft_kv_pool_init(void *mem, size_t mem_bytes, uint32_t n_blocks,
                                           weft_kv_pool **pool_out);

/* Takes a free block, with one holder. O(1). WEFT_E_FULL: none left, *block_out = WEFT_KV_NONE. */
WEFT_MUST_CHECK weft_err weft_kv_take(weft_kv_pool *pool, weft_kv_block *block_out);

/* Adds a holder to a held block. O(1). WEFT_E_FULL: already at WEFT_KV_HOLDERS_MAX. */
WEFT_MUST_CHECK weft_err weft_kv_share(weft_kv_pool *pool, weft_kv_block block);

/* Removes one holder; the last one frees the block. O(1), cannot fail. */
void weft_kv_drop(weft_kv_pool *pool, weft_kv_block block);

uint32_t weft_kv_n_blocks(const weft_kv_pool *pool);
uint32_t weft_kv_n_free(const weft_kv_pool *pool);
uint32_t weft_kv_holders(const weft_kv_pool *pool, weft_kv_block block); /* 0: free */

/* Walks everything: free list and holder counts agree. For tests and WEFT_DCHECK. */
void weft_kv_pool_check(const weft_kv_pool *pool);

/* ----------------------------------------------------------------------------- block table --- */

struct weft_kv_table {
    weft_kv_block *blocks; /* storage of `cap` entries, the caller's */
    uint32_t n, cap;
};

void weft_kv_table_init(struct weft_kv_table *table, weft_kv_block *storage, uint32_t cap);

/* Grows the table to `n_wanted` blocks (no change if it has as many; n_wanted <= cap): all of them
 * or WEFT_E_FULL and no change. */
WEFT_MUST_CHECK weft_err weft_kv_table_grow(weft_kv_pool *pool, struct weft_kv_table *table,
                                            uint32_t n_wanted);

/* Makes an empty table share the first `n` blocks of another. WEFT_E_FULL: no change. */
WEFT_MUST_CHECK weft_err weft_kv_table_fork(weft_kv_pool *pool, const struct weft_kv_table *parent,
                                            uint32_t n, struct weft_kv_table *child);

struct weft_kv_copy {
    weft_kv_block from, to;
};

#endif
