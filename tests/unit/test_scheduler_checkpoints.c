/* Prefixes of models with recurrent layers: found as far as a state was kept, computed again from there, and kept where
 * others begin. The simulated worker knows of which tokens each state is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "unit/sched_bench.h"

enum { BLOCK = 16, GAIN = 32 };

static struct weft_sched_options checkpoint_options(void) {
    struct weft_sched_options options = bench_options();
    options.block_size = BLOCK;
    options.n_blocks = 64;
    options.max_model_len = 600;
    options.max_batched_tokens = 1000;
    options.is_recurrent = true;
    options.prefix_cache = true;
    options.n_checkpoints = 8;
    options.checkpoint_tokens = GAIN;
    return options;
}

static int make_bench(void **state) {
    struct weft_sched_options options = checkpoint_options();
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

/* What a run did: chunks of prompts in order, and states. */
struct seen {
    uint32_t chunks[16], n_chunks, n_loads, n_keeps, n_cached, n_written, n_tokens;
};

static struct seen run(struct bench *bench) {
    struct seen seen = {.n_chunks = 0};
    for (const struct weft_step_plan *plan = bench_step(bench); plan; plan = bench_step(bench)) {
        for (uint32_t i = 0; i < plan->n_states; i++) {
            seen.n_loads += plan->states[i].op == WEFT_STATE_LOAD;
            seen.n_keeps += plan->states[i].op == WEFT_STATE_KEEP;
        }
        for (uint32_t i = 0; i < plan->n_starts; i++) {
            seen.n_cached += plan->starts[i].n_cached;
            seen.n_written += plan->starts[i].n_written;
        }
        for (uint32_t i = 0; i < plan->n_rows; i++) {
            if (plan->rows[i].n_tokens > 1 && seen.n_chunks < 16)
                seen.chunks[seen.n_chunks++] = plan->rows[i].n_tokens;
        }
        seen.n_tokens += bench_plan_tokens(plan);
    }
    return seen;
}

/* The prompt's first n_alike tokens are those of all others, the rest those of its kind. */
static struct seen ask(struct bench *bench, uint32_t kind, uint32_t n_alike, uint32_t n_prompt,
                       uint32_t n_output) {
    static uint64_t id = 0;
    uint32_t prompt[600];
    struct weft_submit submit = bench_request(bench, id++ % BENCH_REQUESTS_MAX, 1, n_output);
    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = (i < n_alike ? i * 3 : i * 5 + kind * 11) % bench_options().n_vocab;
    submit.prompt = prompt;
    submit.n_prompt = n_prompt;
    bench_take(bench, &submit);
    return run(bench);
}

static void the_last_border_of_a_prompt_is_kept(void **state) {
    struct bench *bench = *state;
    struct seen first = ask(bench, 1, 100, 100, 4), again = ask(bench, 2, 100, 100, 4);
    assert_int_equal(first.n_keeps, 1);
    assert_int_equal(first.chunks[0], 96);
    assert_int_equal(first.chunks[1], 4);
    assert_int_equal(again.n_cached, 96);
    assert_int_equal(again.n_written, 96);
    assert_int_equal(again.n_loads, 1);
    assert_int_equal(again.n_keeps, 0);
    assert_int_equal(again.n_tokens, 4 + 3);
    assert_int_equal(bench_stats(bench).n_checkpoints_held, 1);
}

/* Below that nothing is cut into two. */
static void what_spares_too_little_is_not_kept(void **state) {
    struct bench *bench = *state;
    struct seen seen = ask(bench, 1, 40, 32, 4);
    assert_int_equal(seen.n_keeps, 0);
    assert_int_equal(seen.n_chunks, 1);
    seen = ask(bench, 2, 40, 33, 4);
    assert_int_equal(seen.n_keeps, 1);
}

/* The second one finds its blocks, shares and computes them again, which the worker does not write, and leaves the state
 * where they end. */
static void where_prompts_part_the_second_keeps_a_state(void **state) {
    struct bench *bench = *state;
    (void)ask(bench, 1, 70, 130, 2);
    uint32_t n_before = bench_stats(bench).n_blocks_published;
    struct seen second = ask(bench, 2, 70, 130, 2);
    assert_int_equal(second.n_cached, 0);
    assert_int_equal(second.n_written, 64);
    assert_int_equal(second.n_keeps, 2);
    assert_int_equal(second.chunks[0], 64);
    assert_int_equal(second.chunks[1], 64);
    assert_int_equal(bench_stats(bench).n_blocks_published - n_before, 4); /* four are shared */
    struct seen third = ask(bench, 3, 70, 130, 2);
    assert_int_equal(third.n_cached, 64);
    assert_int_equal(third.n_written, 64);
    assert_int_equal(third.n_keeps, 1);
}

/* The state of the whole prompt's blocks is not there yet, but a shorter one is: then more is written than cached. */
static void what_is_found_beyond_a_state_is_not_written(void **state) {
    struct bench *bench = *state;
    (void)ask(bench, 1, 70, 130, 2);
    (void)ask(bench, 2, 70, 130, 2); /* it leaves the state at 64 */
    struct seen again = ask(bench, 1, 70, 120, 2);
    assert_int_equal(again.n_cached, 64);
    assert_int_equal(again.n_written, 112);
    assert_int_equal(again.n_tokens, 120 - 64 + 1);
    weft_sched_check(bench->sched);
}

/* Two of them in one plan: the simulated worker would see who writes there. */
static void nobody_writes_what_several_compute_again(void **state) {
    struct bench *bench = *state;
    uint32_t prompts[2][130], n_starts = 0;
    (void)ask(bench, 1, 130, 130, 2);
    for (uint32_t k = 0; k < 2; k++) {
        struct weft_submit submit = bench_request(bench, 20 + k, 1, 2);
        for (uint32_t i = 0; i < 130; i++)
            prompts[k][i] = (i < 70 ? i * 3 : i * 5 + k * 11) % bench_options().n_vocab;
        submit.prompt = prompts[k];
        submit.n_prompt = 130;
        bench_take(bench, &submit);
    }
    for (const struct weft_step_plan *plan = bench_step(bench); plan; plan = bench_step(bench)) {
        for (uint32_t i = 0; i < plan->n_starts; i++)
            assert_int_equal(plan->starts[i].n_written, 64);
        n_starts += plan->n_starts;
    }
    assert_int_equal(n_starts, 2);
}

/* Eight times as far apart as one has to spare, also in what is generated. */
static void long_prompts_and_outputs_have_more_of_them(void **state) {
    struct bench *bench = *state;
    struct seen seen = ask(bench, 1, 600, 450, 90);
    assert_int_equal(seen.chunks[0], 8 * GAIN);
    assert_int_equal(seen.chunks[1], 448 - 8 * GAIN);
    assert_int_equal(seen.n_keeps, 3);                          /* the last at 512 */
    assert_int_equal(ask(bench, 1, 600, 560, 1).n_cached, 448); /* what follows is another's */
}

static void there_are_no_more_than_places(void **state) {
    struct bench *bench = *state;
    for (uint32_t kind = 1; kind <= 12; kind++)
        (void)ask(bench, kind, 0, 50, 2);
    struct weft_sched_stats stats = bench_stats(bench);
    assert_int_equal(stats.n_checkpoints_held, 8);
    assert_int_equal(stats.n_checkpoints_taken, 12);
    assert_int_equal(stats.n_checkpoints_evicted, 4);
    assert_int_equal(ask(bench, 12, 0, 50, 2).n_cached, 48); /* the newest are there */
    assert_int_equal(ask(bench, 1, 0, 50, 2).n_cached, 0);
    weft_sched_reset_cache(bench->sched);
    assert_int_equal(bench_stats(bench).n_checkpoints_held, 0);
    weft_sched_check(bench->sched);
}

/* Blocks go, and their states with them. */
static void a_state_goes_with_its_block(void **state) {
    bench_free(*state);
    struct weft_sched_options options = checkpoint_options();
    options.n_blocks = 12;
    options.max_model_len = 190;
    struct bench *bench = *state = bench_new(&options);
    (void)ask(bench, 1, 0, 100, 2);
    assert_int_equal(bench_stats(bench).n_checkpoints_held, 1);
    (void)ask(bench, 2, 0, 180, 2);
    assert_int_equal(bench_stats(bench).n_checkpoints_held, 1);
    assert_int_equal(bench_stats(bench).n_checkpoints_evicted, 0);
    assert_int_equal(ask(bench, 1, 0, 100, 2).n_cached, 0);
}

static void a_new_worker_has_none(void **state) {
    struct bench *bench = *state;
    (void)ask(bench, 1, 0, 100, 2);
    weft_sched_new_epoch(bench->sched, bench->now_us, 2);
    sim_worker_reset(bench->worker, 2);
    assert_int_equal(bench_stats(bench).n_checkpoints_held, 0);
    assert_int_equal(ask(bench, 1, 0, 100, 2).n_cached, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)
    const struct CMUnitTest tests[] = {
        TEST(the_last_border_of_a_prompt_is_kept),
        TEST(what_spares_too_little_is_not_kept),
        TEST(where_prompts_part_the_second_keeps_a_state),
        TEST(what_is_found_beyond_a_state_is_not_written),
        TEST(nobody_writes_what_several_compute_again),
        TEST(long_prompts_and_outputs_have_more_of_them),
        TEST(there_are_no_more_than_places),
        TEST(a_state_goes_with_its_block),
        TEST(a_new_worker_has_none),
    };
#undef TEST
    return cmocka_run_group_tests_name("scheduler_checkpoints", tests, NULL, NULL);
}
