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
