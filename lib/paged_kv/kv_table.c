/* Block tables: the blocks of one sequence. Each function takes all it needs or changes nothing. */
#include "paged_kv/paged_kv.h"

#include "base/check.h"

void weft_kv_table_init(struct weft_kv_table *table, weft_kv_block *storage, uint32_t cap) {
    table->blocks = storage;
    table->n = 0;
    table->cap = cap;
}

weft_err weft_kv_table_grow(weft_kv_pool *pool, struct weft_kv_table *table, uint32_t n_wanted) {
    WEFT_ASSERT(n_wanted <= table->cap);
    if (n_wanted <= table->n) return WEFT_OK;
    if (weft_kv_n_free(pool) < n_wanted - table->n) return WEFT_E_FULL;
    while (table->n < n_wanted) {
        weft_err err = weft_kv_take(pool, &table->blocks[table->n]);
        WEFT_ASSERT(!err); /* counted above */
        table->n++;
    }
    return WEFT_OK;
}

weft_err weft_kv_table_fork(weft_kv_pool *pool, const struct weft_kv_table *parent, uint32_t n,
                            struct weft_kv_table *child) {
    WEFT_ASSERT(child->n == 0);
    WEFT_ASSERT(n <= parent->n && n <= child->cap);
    for (uint32_t i = 0; i < n; i++) {
        if (weft_kv_holders(pool, parent->blocks[i]) == WEFT_KV_HOLDERS_MAX) return WEFT_E_FULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        weft_err err = weft_kv_share(pool, parent->blocks[i]);
        WEFT_ASSERT(!err); /* looked at above; a table names a block once */
        child->blocks[i] = parent->blocks[i];
    }
    child->n = n;
    return WEFT_OK;
}

weft_err weft_kv_table_own(weft_kv_pool *pool, struct weft_kv_table *table, uint32_t idx,
                           struct weft_kv_copy *copy_out) {
    WEFT_ASSERT(idx < table->n);
    copy_out->from = copy_out->to = WEFT_KV_NONE;
    weft_kv_block shared = table->blocks[idx];
    WEFT_ASSERT(weft_kv_holders(pool, shared) > 0);
    if (weft_kv_holders(pool, shared) == 1) return WEFT_OK;
    weft_kv_block own;
    weft_err err = weft_kv_take(pool, &own);
    if (err) return err;
    weft_kv_drop(pool, shared);
    table->blocks[idx] = own;
    copy_out->from = shared;
    copy_out->to = own;
    return WEFT_OK;
}

/* From the end: the sequence's first blocks lie on top of the free list afterwards, so the next
 * one gets them in the order in which they lie in memory. */
void weft_kv_table_release(weft_kv_pool *pool, struct weft_kv_table *table) {
    while (table->n > 0)
        weft_kv_drop(pool, table->blocks[--table->n]);
}
