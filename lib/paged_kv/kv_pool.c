/* The pool: one array of holder counts, and the free blocks as a list threaded through it. */
#include "paged_kv/paged_kv.h"

#include "base/check.h"

struct slot {
    uint32_t n_holders;
    weft_kv_block next_free; /* meaningful only while n_holders == 0 */
};

/* Free ids form a stack, not a queue: the block freed last is the likeliest to be cached still,
 * and a half-full pool keeps reusing the same pages instead of walking through all of them. */
struct weft_kv_pool {
    uint32_t n_blocks, n_free;
    weft_kv_block head;                                /* WEFT_KV_NONE exactly when n_free == 0 */
    _Alignas(sizeof(struct slot)) struct slot slots[]; /* none straddles a line */
};
_Static_assert(WEFT_KV_BLOCKS_MAX < WEFT_KV_NONE, "no id is taken for none");

#define POOL_ALIGN 64

size_t weft_kv_pool_bytes(uint32_t n_blocks) {
    if (n_blocks == 0 || n_blocks > WEFT_KV_BLOCKS_MAX) return 0;
    return sizeof(weft_kv_pool) + n_blocks * sizeof(struct slot);
}

weft_err weft_kv_pool_init(void *mem, size_t mem_bytes, uint32_t n_blocks,
                           weft_kv_pool **pool_out) {
    *pool_out = NULL;
    size_t wanted = weft_kv_pool_bytes(n_blocks);
    if (wanted == 0 || mem_bytes < wanted) return WEFT_E_INVAL;
    WEFT_ASSERT((uintptr_t)mem % POOL_ALIGN == 0);
    weft_kv_pool *pool = mem;
    pool->n_blocks = pool->n_free = n_blocks;
    pool->head = 0;
    /* Low ids first: a lightly used pool touches the low pages of the cache only. */
    for (uint32_t i = 0; i < n_blocks; i++) {
        pool->slots[i].n_holders = 0;
        pool->slots[i].next_free = i + 1 < n_blocks ? i + 1 : WEFT_KV_NONE;
    }
    *pool_out = pool;
    return WEFT_OK;
}

weft_err weft_kv_take(weft_kv_pool *pool, weft_kv_block *block_out) {
    WEFT_ASSERT((pool->head == WEFT_KV_NONE) == (pool->n_free == 0));
    *block_out = WEFT_KV_NONE;
    if (pool->n_free == 0) return WEFT_E_FULL;
    struct slot *slot = &pool->slots[pool->head];
    WEFT_ASSERT(slot->n_holders == 0);
    *block_out = pool->head;
    pool->head = slot->next_free;
    slot->n_holders = 1;
    pool->n_free--;
    return WEFT_OK;
}

weft_err weft_kv_share(weft_kv_pool *pool, weft_kv_block block) {
    WEFT_ASSERT(block < pool->n_blocks);
    WEFT_ASSERT(pool->slots[block].n_holders > 0); /* a free block has nothing to share */
    if (pool->slots[block].n_holders == WEFT_KV_HOLDERS_MAX) return WEFT_E_FULL;
    pool->slots[block].n_holders++;
    return WEFT_OK;
}

void weft_kv_drop(weft_kv_pool *pool, weft_kv_block block) {
    WEFT_ASSERT(block < pool->n_blocks);
    WEFT_ASSERT(pool->slots[block].n_holders > 0); /* a double drop stops here */
    if (--pool->slots[block].n_holders > 0) return;
    pool->slots[block].next_free = pool->head;
    pool->head = block;
    pool->n_free++;
}

uint32_t weft_kv_n_blocks(const weft_kv_pool *pool) {
    return pool->n_blocks;
}

uint32_t weft_kv_n_free(const weft_kv_pool *pool) {
    return pool->n_free;
}

uint32_t weft_kv_holders(const weft_kv_pool *pool, weft_kv_block block) {
    WEFT_ASSERT(block < pool->n_blocks);
    return pool->slots[block].n_holders;
}

void weft_kv_pool_check(const weft_kv_pool *pool) {
    uint32_t n_held = 0, n_listed = 0;
    for (uint32_t i = 0; i < pool->n_blocks; i++) {
        WEFT_ASSERT(pool->slots[i].n_holders <= WEFT_KV_HOLDERS_MAX);
        n_held += pool->slots[i].n_holders > 0;
    }
    for (weft_kv_block b = pool->head; b != WEFT_KV_NONE; b = pool->slots[b].next_free) {
        WEFT_ASSERT(b < pool->n_blocks);
        WEFT_ASSERT(pool->slots[b].n_holders == 0);
        n_listed++;
        WEFT_ASSERT(n_listed <= pool->n_blocks); /* a cycle ends here */
    }
    WEFT_ASSERT(n_listed == pool->n_free);
    WEFT_ASSERT(n_listed + n_held == pool->n_blocks);
}
