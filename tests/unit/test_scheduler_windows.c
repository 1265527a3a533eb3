/* Blocks of windowed layers: given up as windows move on, and kept beside cached prefixes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/sched_bench.h"

enum { WINDOW = 16, CHUNK = 16, BLOCK = 4 };
enum { MOST = (WINDOW + CHUNK) / BLOCK + 1 }; /* a window, one chunk and one block */

static struct weft_sched_options windowed_options(uint32_t n_window_blocks) {
    struct weft_sched_options options = bench_options();
    options.window = WINDOW;
    options.n_window_blocks = n_window_blocks;
    options.n_blocks = 600;
    options.max_model_len = 512;
    options.prefix_cache = true;
    options.cache_seed = 1;
    return options;
}

static int make_bench(void **state) {
    struct weft_sched_options options = windowed_options(64);
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

static struct bench *remake(void **state, const struct weft_sched_options *options) {
    bench_free(*state);
    *state = bench_new(options);
    return *state;
}

static uint32_t n_window_used(const struct bench *bench) {
    struct weft_sched_stats stats = bench_stats(bench);
    return stats.n_window_blocks - stats.n_window_blocks_free;
}

static const struct weft_step_grant *grant_of(const struct weft_step_plan *plan,
                                              enum weft_kv_kind kind) {
    for (uint32_t i = 0; i < plan->n_grants; i++) {
        if (plan->grants[i].kind == kind) return &plan->grants[i];
    }
    return NULL;
}

/* Two plans are out at a time; the sequence is 16 windows and some output long. */
static void a_long_sequence_holds_its_window_one_chunk_and_one_block(void **state) {
    static const uint32_t pools[] = {64, MOST, (WINDOW + BLOCK) / BLOCK + 1};
    for (uint32_t i = 0; i < 3; i++) {
        struct weft_sched_options options = windowed_options(pools[i]);
        struct bench *bench = remake(state, &options);
        uint32_t most = 0;
        bench_submit(bench, 1, 16 * WINDOW, 40);
        do {
            while (sim_worker_n_queued(bench->worker) < 2 && bench_plan(bench)) {
                uint32_t n = n_window_used(bench);
                most = n > most ? n : most;
            }
            bench_run(bench);
        } while (!weft_sched_idle(bench->sched));
        assert_int_equal(bench_n_tokens(bench, 1), 40);
        assert_true(most <= MOST && most >= WINDOW / BLOCK);
        assert_true(sim_worker_n_window_held_max(bench->worker) <= MOST);
    }
}

static void what_a_window_moved_on_from_is_granted_in_the_same_plan(void **state) {
    struct weft_sched_options options = windowed_options(MOST);
    options.prefix_cache = false;
    struct bench *bench = remake(state, &options);
    bench_submit(bench, 1, 16 * WINDOW, 1);
    for (uint32_t i = 0; i < 4; i++)
        bench_step(bench);
    const struct weft_step_grant *grant = grant_of(bench_step(bench), WEFT_KV_WINDOWED);
    assert_non_null(grant);
    assert_int_equal(grant->n_blocks, CHUNK / BLOCK);
    bench_run_until_idle(bench, true);
}

static void a_cached_prefix_comes_with_its_last_window(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 100, 8);
    bench_run_until_idle(bench, true);
    bench_submit(bench, 2, 100, 8); /* the last token is computed: 99 are 24 blocks and 3 tokens */
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_int_equal(plan->n_starts, 1);
    assert_int_equal(plan->starts[0].n_cached, 99);
    assert_int_equal(plan->starts[0].n_window_skipped, (96 - WINDOW + 1) / BLOCK);
    assert_int_equal(plan->n_copies, 2);
    assert_int_equal(plan->copies[0].kind + plan->copies[1].kind, WEFT_KV_WINDOWED);
    assert_int_equal(grant_of(plan, WEFT_KV_FULL)->n_blocks, 25);
    assert_int_equal(grant_of(plan, WEFT_KV_WINDOWED)->n_blocks, 25 - (96 - WINDOW + 1) / BLOCK);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 8);
}

/* Others' windows take the blocks of the first one's, but not its nodes. It is computed again then,
 * and its windowed blocks go to the nodes that are there. */
static void a_prefix_whose_window_is_gone_is_computed_again_and_kept(void **state) {
    struct weft_sched_options options = windowed_options(2 * MOST);
    struct bench *bench = remake(state, &options);
    bench_submit(bench, 1, 100, 8);
    bench_run_until_idle(bench, true);
    struct weft_submit other = bench_request(bench, 2, 200, 8);
    other.cache_salt.hi = 7;
    bench_take(bench, &other);
    other = bench_request(bench, 3, 200, 8);
    other.cache_salt.hi = 8;
    bench_take(bench, &other);
    bench_run_until_idle(bench, true);
    uint32_t n_nodes = bench_stats(bench).n_blocks_published;
    bench_submit(bench, 4, 100, 8);
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_true(plan->starts[0].n_cached < 20);
    bench_run_until_idle(bench, true);
    assert_in_range(bench_stats(bench).n_blocks_published, n_nodes, n_nodes + 2); /* new output */
    bench_submit(bench, 5, 100, 8);
    plan = bench_plan(bench);
    assert_int_equal(plan->starts[0].n_cached, 99);
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 5; id++)
        assert_int_equal(bench_n_tokens(bench, id), 8);
}

/* A conversation goes on where it ended, though a long prompt of another one went by meanwhile. */
static void the_middle_of_a_prompt_is_evicted_before_the_end_of_another(void **state) {
    struct weft_sched_options options = windowed_options(MOST + 6);
    struct bench *bench = remake(state, &options);
    bench_submit(bench, 1, 100, 1);
    bench_run_until_idle(bench, true);
    struct weft_submit other = bench_request(bench, 2, 300, 1);
    other.cache_salt.hi = 7;
    bench_take(bench, &other);
    bench_run_until_idle(bench, true);
    bench_submit(bench, 3, 140, 1); /* begins with the same 100 tokens */
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_int_equal(plan->starts[0].n_cached, 100);
    assert_int_equal(plan->starts[0].n_window_skipped, (100 - WINDOW + 1) / BLOCK);
    bench_run_until_idle(bench, true);
}

static void choices_share_their_prompt_s_window(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 90, 40);
    submit.n_choices = 3;
    bench_take(bench, &submit);
    uint32_t n_computed = 0;
    while (bench_end(bench, 1, 0) == WEFT_END_NONE) {
        const struct weft_step_plan *plan = bench_step(bench);
        if (plan) n_computed += bench_plan_tokens(plan);
    }
    bench_run_until_idle(bench, true);
    assert_true(n_computed <= 90 + 3 * 41);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(bench->n_output[1][i], 40);
}

/* One slot is taken, so that the third choice starts when the first has left the prompt behind. */
static void a_choice_that_comes_too_late_for_the_window_computes_by_itself(void **state) {
    struct weft_sched_options options = windowed_options(64);
    options.max_seqs = 2;
    options.prefix_cache = false;
    struct bench *bench = remake(state, &options);
    bench_submit(bench, 1, 10, 60);
    struct weft_submit submit = bench_request(bench, 2, 40, 200);
    submit.n_choices = 2;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_output[2][0], 200);
    assert_int_equal(bench->n_output[2][1], 200);
    /* It did not wait for the first to end. */
    uint32_t first_end = 0, second_begin = UINT32_MAX;
    for (uint32_t i = 0; i < bench->n_events; i++) {
        const struct bench_event *event = &bench->events[i];
        if (event->request_id != 2) continue;
        if (event->choice == 0 && event->end) first_end = i;
        if (event->choice == 1 && event->output_idx == 0 && event->sampled) second_begin = i;
    }
    assert_true(second_begin < first_end);
}

static void when_windowed_blocks_run_out_everybody_finishes_with_the_same_tokens(void **state) {
    static const bool caches[] = {false, true};
    for (uint32_t i = 0; i < 2; i++) {
        struct weft_sched_options options = windowed_options(MOST + 3);
        options.prefix_cache = caches[i];
        struct bench *bench = remake(state, &options);
        for (uint64_t id = 1; id <= 8; id++)
            bench_submit(bench, id, (uint32_t)id * 2, 60);
        bench_run_until_idle(bench, true);
        for (uint64_t id = 1; id <= 8; id++)
            assert_int_equal(bench_n_tokens(bench, id), 60);
        assert_true(bench_stats(bench).n_preemptions > 0);
        assert_int_equal(n_window_used(bench), 0);
    }
}

static void too_few_windowed_blocks_for_one_sequence_are_refused(void **state) {
    (void)state;
    struct weft_sched_options options = windowed_options((WINDOW + BLOCK) / BLOCK);
    struct weft_errmsg why;
    weft_sched *sched;
    assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_E_INVAL);
    options.window = 0;
    assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_E_INVAL);
    options = windowed_options(1);
    options.max_model_len = BLOCK; /* no sequence is longer */
    assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_OK);
    weft_sched_free(sched);
}

/* A window, one token and one block: enough for any length, wherever windows and blocks begin. */
static void the_least_pool_is_enough_for_one_sequence(void **state) {
    for (uint32_t window = 1; window <= 13; window++) {
        for (uint32_t block = 1; block <= 6; block++) {
            uint32_t n_least = (window + 1 + block - 1) / block + 1;
            struct weft_sched_options options = windowed_options(n_least - 1);
            struct weft_errmsg why;
            weft_sched *sched;
            options.window = window;
            options.block_size = block;
            options.max_model_len = 96;
            assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_E_INVAL);
            options.n_window_blocks = n_least;
            struct bench *bench = remake(state, &options);
            bench_submit(bench, 1, 50, 30);
            bench_run_until_idle(bench, block % 2 > 0);
            assert_int_equal(bench_n_tokens(bench, 1), 30);
        }
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_long_sequence_holds_its_window_one_chunk_and_one_block),
        CASE(what_a_window_moved_on_from_is_granted_in_the_same_plan),
        CASE(a_cached_prefix_comes_with_its_last_window),
        CASE(a_prefix_whose_window_is_gone_is_computed_again_and_kept),
        CASE(the_middle_of_a_prompt_is_evicted_before_the_end_of_another),
        CASE(choices_share_their_prompt_s_window),
        CASE(a_choice_that_comes_too_late_for_the_window_computes_by_itself),
        CASE(when_windowed_blocks_run_out_everybody_finishes_with_the_same_tokens),
        CASE(too_few_windowed_blocks_for_one_sequence_are_refused),
        CASE(the_least_pool_is_enough_for_one_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
