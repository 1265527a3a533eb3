/* The block pool and the tables on it, case by case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "paged_kv/paged_kv.h"

#define N_BLOCKS 8u

static weft_kv_pool *new_pool(uint32_t n_blocks) {
    size_t n_bytes = (weft_kv_pool_bytes(n_blocks) + 63) / 64 * 64;
    void *mem = aligned_alloc(64, n_bytes);
    weft_kv_pool *pool = NULL;
    assert_non_null(mem);
    assert_int_equal(weft_kv_pool_init(mem, n_bytes, n_blocks, &pool), WEFT_OK);
    assert_ptr_equal((void *)pool, mem);
    return pool;
}

static int make_pool(void **state) {
    *state = new_pool(N_BLOCKS);
    return 0;
}

static int check_and_free_pool(void **state) {
    weft_kv_pool_check(*state);
    free(*state);
    return 0;
}

static weft_kv_block take(weft_kv_pool *pool) {
    weft_kv_block block = WEFT_KV_NONE;
    assert_int_equal(weft_kv_take(pool, &block), WEFT_OK);
    return block;
}

static void drop_all(weft_kv_pool *pool, struct weft_kv_table *table) {
    while (table->n > 0)
        weft_kv_drop(pool, table->blocks[--table->n]);
}

static void sizes_out_of_range_are_refused(void **state) {
    weft_kv_pool *pool = *state;
    _Alignas(64) unsigned char mem[64];
    assert_int_equal(weft_kv_pool_bytes(0), 0);
    assert_int_equal(weft_kv_pool_bytes(WEFT_KV_BLOCKS_MAX + 1), 0);
    assert_int_equal(weft_kv_pool_init(mem, sizeof mem, 0, &pool), WEFT_E_INVAL);
    assert_int_equal(weft_kv_pool_init(mem, sizeof mem, 100, &pool), WEFT_E_INVAL);
    assert_null(pool);
}

static void a_new_pool_is_all_free(void **state) {
    weft_kv_pool *pool = *state;
    assert_int_equal(weft_kv_n_blocks(pool), N_BLOCKS);
    assert_int_equal(weft_kv_n_free(pool), N_BLOCKS);
    assert_int_equal(weft_kv_holders(pool, 0), 0);
}

static void take_from_empty_pool_reports_full(void **state) {
    weft_kv_pool *pool = *state;
    bool seen[N_BLOCKS] = {false};
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        weft_kv_block block = take(pool);
        assert_true(block < N_BLOCKS && !seen[block]);
        seen[block] = true;
    }
    weft_kv_block block = 3;
    assert_int_equal(weft_kv_take(pool, &block), WEFT_E_FULL);
    assert_int_equal(block, WEFT_KV_NONE);
}

static void the_block_freed_last_is_taken_first(void **state) {
    weft_kv_pool *pool = *state;
    weft_kv_block a = take(pool), b = take(pool);
    weft_kv_drop(pool, a);
    weft_kv_drop(pool, b);
    assert_int_equal(take(pool), b);
    assert_int_equal(take(pool), a);
}

static void the_last_holder_frees_the_block(void **state) {
    weft_kv_pool *pool = *state;
    weft_kv_block block = take(pool);
    assert_int_equal(weft_kv_share(pool, block), WEFT_OK);
    assert_int_equal(weft_kv_holders(pool, block), 2);
    weft_kv_drop(pool, block);
    assert_int_equal(weft_kv_n_free(pool), N_BLOCKS - 1);
    weft_kv_drop(pool, block);
    assert_int_equal(weft_kv_n_free(pool), N_BLOCKS);
}

static void share_beyond_the_holder_limit_reports_full(void **state) {
    weft_kv_pool *pool = *state;
    weft_kv_block block = take(pool);
    for (uint32_t i = 1; i < WEFT_KV_HOLDERS_MAX; i++)
        assert_int_equal(weft_kv_share(pool, block), WEFT_OK);
    assert_int_equal(weft_kv_share(pool, block), WEFT_E_FULL);
    assert_int_equal(weft_kv_holders(pool, block), WEFT_KV_HOLDERS_MAX);

    weft_kv_block child_blocks[1];
    struct weft_kv_table parent = {.blocks = &block, .n = 1, .cap = 1}, child;
    weft_kv_table_init(&child, child_blocks, 1);
    assert_int_equal(weft_kv_table_fork(pool, &parent, 1, &child), WEFT_E_FULL);
    assert_int_equal(child.n, 0);
}

static void a_table_grows_by_all_or_nothing(void **state) {
    weft_kv_pool *pool = *state;
    weft_kv_block storage[N_BLOCKS + 1];
    struct weft_kv_table table;
    weft_kv_table_init(&table, storage, N_BLOCKS + 1);
    assert_int_equal(weft_kv_table_grow(pool, &table, 5), WEFT_OK);
    assert_int_equal(table.n, 5);
    assert_int_equal(weft_kv_table_grow(pool, &table, 3), WEFT_OK);
    assert_int_equal(table.n, 5);
    assert_int_equal(weft_kv_table_grow(pool, &table, N_BLOCKS + 1), WEFT_E_FULL);
    assert_int_equal(table.n, 5);
    assert_int_equal(weft_kv_n_free(pool), N_BLOCKS - 5);
    drop_all(pool, &table);
    assert_int_equal(weft_kv_n_free(pool), N_BLOCKS);
}

static void a_fork_shares_the_first_blocks(void **state) {
    weft_kv_pool *pool = *state;
    weft_kv_block parent_blocks[N_BLOCKS], child_blocks[N_BLOCKS];
    struct weft_kv_table parent, child;
    weft_kv_table_init(&parent, parent_blocks, N_BLOCKS);
    weft_kv_table_init(&child, child_blocks, N_BLOCKS);
    assert_int_equal(weft_kv_table_grow(pool, &parent, 3), WEFT_OK);
    assert_int_equal(weft_kv_table_fork(pool, &parent, 2, &child), WEFT_OK);
    assert_int_equal(weft_kv_n_free(pool), N_BLOCKS - 3);
    assert_memory_equal(child.blocks, parent.blocks, 2 * sizeof *child.blocks);
    assert_int_equal(weft_kv_holders(pool, parent.blocks[1]), 2);
    assert_int_equal(weft_kv_holders(pool, parent.blocks[2]), 1);
    drop_all(pool, &parent);
    assert_int_equal(weft_kv_n_free(pool), N_BLOCKS - 2);
    drop_all(pool, &child);
    assert_int_equal(weft_kv_n_free(pool), N_BLOCKS);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_pool, check_and_free_pool)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(sizes_out_of_range_are_refused),    CASE(a_new_pool_is_all_free),
        CASE(take_from_empty_pool_reports_full), CASE(the_block_freed_last_is_taken_first),
        CASE(the_last_holder_frees_the_block),   CASE(share_beyond_the_holder_limit_reports_full),
        CASE(a_table_grows_by_all_or_nothing),   CASE(a_fork_shares_the_first_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
