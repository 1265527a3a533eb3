/* Sessions as the scheduler keeps them: what they hold, and when they go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/sched_bench.h"

#define TTL_US 60000000u

static struct weft_sched_options options_of(uint32_t n_blocks) {
    struct weft_sched_options options = bench_options();
    options.prefix_cache = true;
    options.n_blocks = n_blocks;
    options.session_ttl_us = TTL_US;
    options.max_sessions = 4;
    options.max_session_blocks = n_blocks / 2;
    return options;
}

static int make_bench(void **state) {
    struct weft_sched_options options = options_of(64);
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    weft_sched_check(((struct bench *)*state)->sched);
    bench_free(*state);
    return 0;
}

static struct bench *remake(void **state, const struct weft_sched_options *options) {
    bench_free(*state);
    *state = bench_new(options);
    return *state;
}

/* Prompts of each kind differ from the first token on. */
static struct weft_submit request(struct bench *bench, uint64_t id, uint32_t kind,
                                  uint32_t n_prompt, const char *session) {
    static uint32_t prompts[BENCH_REQUESTS_MAX][BENCH_PROMPT_MAX];
    for (uint32_t i = 0; i < n_prompt; i++)
        prompts[id][i] = (bench->prompt[i] + kind) % 1000;
    struct weft_submit submit = bench_request(bench, id, n_prompt, 4);
    submit.prompt = prompts[id];
    if (session) submit.session_id = (struct weft_str){session, strlen(session)};
    return submit;
}

static void run(struct bench *bench, uint64_t id, uint32_t kind, uint32_t n_prompt,
                const char *session) {
    struct weft_submit submit = request(bench, id, kind, n_prompt, session);
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    weft_sched_check(bench->sched);
}

static uint32_t n_cached(const struct bench *bench, uint64_t id) {
    return bench->events[bench_first_event(bench, id)].n_prompt_cached;
}

static void it_holds_whole_blocks_of_prompt_and_answer(void **state) {
    struct bench *bench = *state;
    run(bench, 1, 0, 21, "talk"); /* 24 of 25 tokens are computed: six blocks */
    assert_int_equal(bench_stats(bench).n_sessions, 1);
    assert_int_equal(bench_stats(bench).n_session_blocks, 6);
    assert_int_equal(bench_stats(bench).n_sessions_kept, 1);
    assert_int_equal(bench_stats(bench).n_blocks_free, 58);
}

static void what_it_holds_is_not_evicted(void **state) {
    struct weft_sched_options options = options_of(32);
    struct bench *bench = remake(state, &options);
    run(bench, 1, 0, 21, "talk");
    run(bench, 2, 1, 21, NULL);
    run(bench, 3, 2, 90, NULL); /* evicts the second one's blocks alone */
    assert_true(bench_stats(bench).n_cache_evictions > 0);
    run(bench, 4, 0, 21, NULL);
    assert_int_equal(n_cached(bench, 4), 20);
    run(bench, 5, 1, 21, NULL);
    assert_true(n_cached(bench, 5) < 20);
}

static void the_next_turn_replaces_it(void **state) {
    struct bench *bench = *state;
    run(bench, 1, 0, 21, "talk");
    run(bench, 2, 0, 41, "talk");
    assert_int_equal(bench_stats(bench).n_sessions, 1);
    assert_int_equal(bench_stats(bench).n_session_blocks, 11);
    run(bench, 3, 0, 41, "other"); /* holds the same blocks */
    assert_int_equal(bench_stats(bench).n_sessions, 2);
    assert_int_equal(bench_stats(bench).n_blocks_free, 64 - 12); /* its answer differs: one more */
}

static void it_goes_before_anybody_who_runs_is_preempted(void **state) {
    struct weft_sched_options options = options_of(16);
    struct bench *bench = remake(state, &options);
    run(bench, 1, 0, 21, "talk");
    struct weft_submit submit = request(bench, 2, 1, 30, NULL);
    submit.sampling.max_tokens = 30;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 30);
    assert_int_equal(bench_stats(bench).n_preemptions, 0);
    assert_int_equal(bench_stats(bench).n_sessions_evicted, 1);
    assert_int_equal(bench_stats(bench).n_sessions, 0);
}

static void it_goes_before_a_newcomer_waits(void **state) {
    struct weft_sched_options options = options_of(16);
    struct bench *bench = remake(state, &options);
    run(bench, 1, 0, 25, "talk");
    struct weft_submit submit = request(bench, 2, 1, 56, NULL);
    bench_take(bench, &submit);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->n_starts, 1);
    assert_int_equal(bench_stats(bench).n_sessions, 0);
    bench_run_until_idle(bench, true);
}

/* Somebody's prompt has all of the steps, and its blocks leave too few for what waits in the background. */
static void it_stays_for_a_request_that_may_not_start_yet(void **state) {
    struct weft_sched_options options = options_of(32);
    struct bench *bench = remake(state, &options);
    run(bench, 1, 0, 21, "talk");
    struct weft_submit first = request(bench, 2, 1, 60, NULL);
    struct weft_submit behind = request(bench, 3, 2, 60, NULL);
    behind.priority = WEFT_PRIORITY_BACKGROUND;
    bench_take(bench, &first);
    (void)bench_step(bench);
    bench_take(bench, &behind);
    for (uint32_t i = 0; i < 2; i++) {
        (void)bench_step(bench);
        assert_int_equal(bench_stats(bench).n_sessions, 1);
    }
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 3), 4);
}

/* In the order of deadlines; four prompts are before it. */
static void it_stays_for_a_request_whose_start_would_be_premature(void **state) {
    struct weft_sched_options options = options_of(44);
    options.policy = WEFT_SCHED_EDF;
    struct bench *bench = remake(state, &options);
    run(bench, 1, 0, 21, "talk");
    for (uint32_t id = 2; id <= 6; id++) {
        struct weft_submit submit = request(bench, id, id, 28, NULL);
        bench_take(bench, &submit);
    }
    (void)bench_step(bench);
    assert_int_equal(bench_stats(bench).n_running, 4);
    assert_int_equal(bench_stats(bench).n_sessions, 1);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 6), 4);
}

static void it_goes_when_its_time_is_over(void **state) {
    struct bench *bench = *state;
    run(bench, 1, 0, 21, "talk");
    bench->now_us += TTL_US / 2;
    run(bench, 2, 1, 21, "other");
    bench->now_us += TTL_US / 2;
    weft_sched_tick(bench->sched, bench->now_us);
    assert_int_equal(bench_stats(bench).n_sessions, 1);
    assert_int_equal(bench_stats(bench).n_sessions_expired, 1);
    run(bench, 3, 0, 21, NULL); /* still in the cache */
    assert_int_equal(n_cached(bench, 3), 20);
}

static void a_turn_that_begins_prolongs_it(void **state) {
    struct bench *bench = *state;
    run(bench, 1, 0, 21, "talk");
    bench->now_us += TTL_US - 1;
    struct weft_submit submit = request(bench, 2, 0, 41, "talk");
    bench_take(bench, &submit);
    bench->now_us += 2;
    weft_sched_tick(bench->sched, bench->now_us);
    assert_int_equal(bench_stats(bench).n_sessions, 1);
    bench_run_until_idle(bench, true);
}

static void the_least_recently_used_of_too_many_goes(void **state) {
    static const char *const names[] = {"a", "b", "c", "d", "a", "e"};
    struct bench *bench = *state;
    for (uint32_t i = 0; i < 6; i++)
        run(bench, i + 1, i == 4 ? 0 : i, 21, names[i]);
    assert_int_equal(bench_stats(bench).n_sessions, 4);
    assert_int_equal(bench_stats(bench).n_sessions_evicted, 1); /* b */
}

static void together_they_hold_no_more_blocks_than_told(void **state) {
    struct bench *bench = *state;
    run(bench, 1, 0, 61, "a");
    run(bench, 2, 1, 61, "b"); /* 16 and 16 blocks of 32 */
    assert_int_equal(bench_stats(bench).n_sessions, 2);
    run(bench, 3, 2, 21, "c");
    assert_int_equal(bench_stats(bench).n_sessions, 2);
    run(bench, 4, 3, 124, "d");
    assert_int_equal(bench_stats(bench).n_session_blocks, 31);
    assert_int_equal(bench_stats(bench).n_sessions, 1);
}

static void tenants_have_names_of_their_own(void **state) {
    struct bench *bench = *state;
    run(bench, 1, 0, 21, "talk");
    struct weft_submit submit = request(bench, 2, 1, 21, "talk");
    submit.tenant = 7;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_sessions, 2);
}

static void a_request_that_is_cancelled_leaves_what_it_had(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = request(bench, 1, 0, 21, "talk");
    submit.sampling.max_tokens = 40;
    bench_take(bench, &submit);
    for (uint32_t i = 0; i < 6; i++)
        (void)bench_step(bench);
    bench_cancel(bench, 1);
    assert_int_equal(bench_stats(bench).n_sessions, 1);
    bench_run_until_idle(bench, true);
    run(bench, 2, 0, 21, NULL);
    assert_int_equal(n_cached(bench, 2), 20);
}

static void a_cache_that_forgets_has_no_sessions(void **state) {
    struct bench *bench = *state;
    run(bench, 1, 0, 21, "talk");
    weft_sched_reset_cache(bench->sched);
    assert_int_equal(bench_stats(bench).n_sessions, 0);
    assert_int_equal(bench_stats(bench).n_blocks_free, 64);
    run(bench, 2, 0, 21, "talk");
    bench_lose_worker(bench);
    assert_int_equal(bench_stats(bench).n_sessions, 0);
    assert_int_equal(bench_stats(bench).n_blocks_free, 64);
}

static void without_a_time_to_live_there_are_none(void **state) {
    struct weft_sched_options options = options_of(64);
    options.session_ttl_us = 0;
    struct bench *bench = remake(state, &options);
    run(bench, 1, 0, 21, "talk");
    assert_int_equal(bench_stats(bench).n_sessions, 0);
}

static void where_layers_have_windows_it_holds_their_last_blocks(void **state) {
    struct weft_sched_options options = options_of(64);
    options.window = 9;
    options.n_window_blocks = 32;
    struct bench *bench = remake(state, &options);
    run(bench, 1, 0, 41, "talk");
    assert_int_equal(bench_stats(bench).n_session_blocks, 11);
    assert_true(bench_stats(bench).n_window_blocks_free < 32);
    for (uint32_t i = 2; i < 6; i++)
        run(bench, i, i, 41, NULL); /* their twins are evicted, not the session's */
    struct weft_submit next = request(bench, 6, 0, 49, "talk");
    uint32_t prompt[49];
    for (uint32_t i = 0; i < 49; i++)
        prompt[i] = i >= 41 && i < 45 ? bench_token(bench, 1, i - 41) : next.prompt[i];
    next.prompt = prompt;
    bench_take(bench, &next);
    bench_run_until_idle(bench, true);
    assert_int_equal(n_cached(bench, 6), 44);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)
    const struct CMUnitTest tests[] = {
        CASE(it_holds_whole_blocks_of_prompt_and_answer),
        CASE(what_it_holds_is_not_evicted),
        CASE(the_next_turn_replaces_it),
        CASE(it_goes_before_anybody_who_runs_is_preempted),
        CASE(it_goes_before_a_newcomer_waits),
        CASE(it_stays_for_a_request_that_may_not_start_yet),
        CASE(it_stays_for_a_request_whose_start_would_be_premature),
        CASE(it_goes_when_its_time_is_over),
        CASE(a_turn_that_begins_prolongs_it),
        CASE(the_least_recently_used_of_too_many_goes),
        CASE(together_they_hold_no_more_blocks_than_told),
        CASE(tenants_have_names_of_their_own),
        CASE(a_request_that_is_cancelled_leaves_what_it_had),
        CASE(a_cache_that_forgets_has_no_sessions),
        CASE(without_a_time_to_live_there_are_none),
        CASE(where_layers_have_windows_it_holds_their_last_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
