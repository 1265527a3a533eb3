/* How the attention of a step is cut into tasks: each position of each row once, sums of spans in places of their own,
 * and no thread without work for long. Kernels have the same bits however it is done, so results don't show it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "inside/engine/forward/attention/attention.h"

enum { ROWS_MAX = 600, THREADS = 4, ROOM = 64 };

struct plan {
    struct wefti_forward f;
    uint32_t tables[ROWS_MAX]; /* of sequences: their addresses alone count */
    struct weft_attn_row rows[ROWS_MAX];
    uint32_t n_rows, n_sequences;
    struct wefti_forward_attn_tile tiles[ROWS_MAX];
    struct wefti_forward_attn_work work;
};

static struct plan *new_plan(uint32_t n_threads, uint32_t n_heads, uint32_t n_kv_heads) {
    struct plan *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->f.n_threads = n_threads;
    p->f.n_heads = n_heads;
    p->f.parts_max = n_threads > 1 ? ROOM : 0;
    p->f.of_kind[0].n_kv_heads = n_kv_heads;
    return p;
}

/* The next sequence, of which so many rows end at position `last`. */
static void add_rows(struct plan *p, uint32_t n, uint32_t last) {
    for (uint32_t i = 0; i < n; i++) {
        p->rows[p->n_rows++] =
            (struct weft_attn_row){&p->tables[p->n_sequences], last + 1 - n + i, 0};
    }
    p->n_sequences++;
}

/* What holds of every plan. Returns the number of tasks. */
static uint32_t make_plan(struct plan *p) {
    bool is_taken[ROOM] = {false};
    uint32_t n_seen = 0, n_tasks = 0, n_kv_heads = p->f.of_kind[0].n_kv_heads;
    bool has_parts = false;
    p->work = wefti_forward_attn_plan(&p->f, 0, p->rows, p->n_rows, p->tiles);
    for (uint32_t i = 0; i < p->work.n_tiles; i++) {
        const struct wefti_forward_attn_tile *tile = &p->tiles[i];
        n_seen += tile->end - tile->begin;
        assert_true(tile->n_shares >= 1 && tile->n_shares <= n_kv_heads);
        assert_int_equal(n_kv_heads % tile->n_shares, 0);
        n_tasks += tile->n_shares * (tile->by_spans ? tile->n_spans : 1);
        if (!tile->by_spans) continue;
        has_parts = true;
        assert_true(tile->n_spans > 1);
        for (size_t k = 0; k < (size_t)(tile->end - tile->begin) * tile->n_spans; k++) {
            assert_true(tile->part + k < p->f.parts_max && !is_taken[tile->part + k]);
            is_taken[tile->part + k] = true;
        }
    }
    assert_int_equal(n_seen, p->n_rows);
    assert_int_equal(p->work.has_parts, has_parts);
    return n_tasks;
}

static void many_short_sequences_keep_their_kv_heads_together(void **state) {
    (void)state;
    struct plan *p = new_plan(THREADS, 32, 8);
    for (uint32_t i = 0; i < 40; i++)
        add_rows(p, 1, 100 + i);
    assert_int_equal(make_plan(p), 40);
    free(p);
}

static void a_sequence_alone_gives_every_thread_something(void **state) {
    (void)state;
    static const uint32_t kv_heads[] = {1, 5, 7, 8};
    for (uint32_t i = 0; i < 4; i++) {
        struct plan *p = new_plan(THREADS, kv_heads[i], kv_heads[i]);
        add_rows(p, 1, 20 * WEFT_ATTN_SPAN - 1);
        assert_int_equal(make_plan(p), 20); /* spans are enough */
        assert_int_equal(p->tiles[0].n_shares, 1);
        free(p);
        p = new_plan(THREADS, kv_heads[i], kv_heads[i]);
        add_rows(p, 1, WEFT_ATTN_SPAN - 1);
        assert_int_equal(make_plan(p), kv_heads[i]); /* there is one */
        free(p);
    }
}

static void few_spans_are_divided_by_kv_heads_too(void **state) {
    (void)state;
    struct plan *p = new_plan(THREADS, 32, 8);
    add_rows(p, 1, 4 * WEFT_ATTN_SPAN - 1);
    assert_int_equal(make_plan(p), 16);
    assert_true(p->tiles[0].by_spans);
    assert_int_equal(p->tiles[0].n_shares, 4);
    free(p);
}

static void a_long_sequence_among_short_ones_is_shared_alone(void **state) {
    (void)state;
    struct plan *p = new_plan(THREADS, 32, 8);
    add_rows(p, 1, 30 * WEFT_ATTN_SPAN - 1);
    for (uint32_t i = 0; i < 30; i++)
        add_rows(p, 1, 100);
    (void)make_plan(p);
    for (uint32_t i = 0; i < p->work.n_tiles; i++)
        assert_int_equal(p->tiles[i].by_spans, p->tiles[i].begin == 0);
    free(p);
}

static void rows_of_a_prompt_leave_kv_heads_to_themselves(void **state) {
    (void)state;
    for (uint32_t n = 4; n <= 5; n++) { /* 128 queries and more */
        struct plan *p = new_plan(THREADS, 32, 8);
        for (uint32_t i = 0; i < 16; i++)
            add_rows(p, n, 500);
        assert_int_equal(make_plan(p), 16 * (n == 4 ? 1 : 8));
        free(p);
    }
}

static void who_finds_no_room_for_sums_is_not_shared_by_spans(void **state) {
    (void)state;
    struct plan *p = new_plan(THREADS, 32, 4);
    add_rows(p, 1, 40 * WEFT_ATTN_SPAN - 1);
    add_rows(p, 1, 39 * WEFT_ATTN_SPAN - 1);
    (void)make_plan(p);
    assert_true(p->tiles[0].by_spans);
    assert_false(p->tiles[1].by_spans);
    assert_int_equal(p->tiles[1].n_shares, 4);
    free(p);
}

static void one_thread_and_no_rows_need_nothing(void **state) {
    (void)state;
    struct plan *p = new_plan(1, 32, 8);
    assert_int_equal(make_plan(p), 0);
    add_rows(p, 1, 8 * WEFT_ATTN_SPAN);
    assert_int_equal(make_plan(p), 1);
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_short_sequences_keep_their_kv_heads_together),
        cmocka_unit_test(a_sequence_alone_gives_every_thread_something),
        cmocka_unit_test(few_spans_are_divided_by_kv_heads_too),
        cmocka_unit_test(a_long_sequence_among_short_ones_is_shared_alone),
        cmocka_unit_test(rows_of_a_prompt_leave_kv_heads_to_themselves),
        cmocka_unit_test(who_finds_no_room_for_sums_is_not_shared_by_spans),
        cmocka_unit_test(one_thread_and_no_rows_need_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
