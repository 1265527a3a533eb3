/* Models with recurrent layers: siblings and beams share a state as long as it is there, and what would need an earlier
 * one is refused. The simulated worker knows of which tokens each state is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "scheduler/sessions.h"
#include "unit/sched_bench.h"

static struct weft_sched_options recurrent_options(void) {
    struct weft_sched_options options = bench_options();
    options.is_recurrent = true;
    options.prefix_cache = false;
    options.session_ttl_us = 1000000;
    options.max_sessions = 4;
    options.max_session_blocks = 32;
    return options;
}

static int make_bench(void **state) {
    struct weft_sched_options options = recurrent_options();
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

/* Runs until idle in lockstep; returns how many tokens were computed. */
static uint32_t run(struct bench *bench) {
    uint32_t n_tokens = 0;
    for (const struct weft_step_plan *plan = bench_step(bench); plan; plan = bench_step(bench)) {
        assert_int_equal(plan->n_spills + plan->n_restores, 0);
        n_tokens += bench_plan_tokens(plan);
    }
    return n_tokens;
}

static void assert_nothing_is_kept(const struct bench *bench) {
    struct weft_sched_stats stats = bench_stats(bench);
    assert_int_equal(stats.n_blocks_free, stats.n_blocks);
    assert_int_equal(stats.n_blocks_published + stats.n_sessions, 0);
}

static void the_same_prompt_is_computed_again(void **state) {
    struct bench *bench = *state;
    for (uint64_t id = 1; id <= 2; id++) {
        struct weft_submit submit = bench_request(bench, id, 40, 8);
        submit.session_id = (struct weft_str){"talk", 4};
        bench_take(bench, &submit);
        assert_int_equal(run(bench), 40 + 7);
        assert_nothing_is_kept(bench);
    }
}

/* The chunk ends before the prompt's last token, and there they begin. */
static void choices_copy_the_state_before_the_last_token(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 15, 10);
    submit.n_choices = 3;
    bench_take(bench, &submit);
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_int_equal(plan->n_starts, 1);
    assert_int_equal(plan->rows[0].n_tokens, 14);
    uint32_t source = plan->rows[0].slot;
    plan = bench_plan(bench);
    assert_int_equal(plan->n_starts, 2);
    assert_int_equal(plan->n_states, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(plan->starts[i].n_cached, 14);
        assert_int_equal(plan->states[i].op, WEFT_STATE_FORK);
        assert_int_equal(plan->states[i].slot, plan->starts[i].slot);
        assert_int_equal(plan->states[i].other, source);
    }
    bench_run(bench);
    bench_run(bench);
    (void)run(bench);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(bench->n_output[1][i], 10);
        assert_int_equal(bench_end(bench, 1, i), WEFT_END_LENGTH);
    }
    assert_nothing_is_kept(bench);
}

/* Those that find no place then compute the prompt alone. */
static void who_comes_too_late_computes_the_prompt(void **state) {
    bench_free(*state);
    struct weft_sched_options options = recurrent_options();
    options.max_seqs = 2;
    struct bench *bench = *state = bench_new(&options);
    struct weft_submit submit = bench_request(bench, 1, 15, 4);
    submit.n_choices = 3;
    bench_take(bench, &submit);
    assert_int_equal(run(bench), (15 + 3) + (1 + 3) + (15 + 3));
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(bench->n_output[1][i], 4);
}

static void one_choice_tells_what_the_prompt_was_like(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 40, 3);
    submit.n_choices = 3;
    submit.sampling.n_prompt_logprobs = 2;
    bench_take(bench, &submit);
    assert_int_equal(run(bench), (40 + 2) + 2 * (1 + 2));
    assert_int_equal(bench->n_logprobs_done[1], 40);
}

/* The oldest plan, without a look at what it tells: tokens of beams are of no stream. */
static void run_unseen(struct bench *bench, uint32_t *n_told) {
    struct weft_errmsg why = {""};
    size_t n = 0;
    const struct weft_step_result *result = sim_worker_run(bench->worker);
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, result, &why), WEFT_OK);
    (void)weft_sched_events(bench->sched, &n);
    *n_told += (uint32_t)n;
    weft_sched_events_clear(bench->sched);
    weft_sched_check(bench->sched);
}

/* Of the others' state each copies that of the beam it continues. */
static void beams_copy_states(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 10, 4);
    submit.sampling.beam_width = 3;
    submit.sampling.length_penalty = 2.0f; /* that of a beam, for the simulated worker */
    bench_take(bench, &submit);
    uint32_t n_tokens = 0, n_told = 0;
    for (const struct weft_step_plan *plan = bench_plan(bench); plan; plan = bench_plan(bench)) {
        n_tokens += bench_plan_tokens(plan);
        run_unseen(bench, &n_told);
    }
    assert_int_equal(n_tokens, 10 + 3 * 3);
    assert_int_equal(n_told, 4);
    assert_nothing_is_kept(bench);
}

/* Three beams have more tokens than one plan starts anew. Who comes in the next one finds that the beam it continues has
 * gone on, and computes: no session goes for that. */
static void beams_whose_source_has_gone_on_cost_no_session(void **state) {
    enum { LONG_PROMPT = 360000, LONG_BLOCK = 256 };
    static uint32_t prompt[LONG_PROMPT];
    bench_free(*state);
    struct weft_sched_options options = recurrent_options();
    options.prefix_cache = true;
    options.n_checkpoints = 16;
    options.checkpoint_tokens = 64;
    options.block_size = LONG_BLOCK;
    options.n_blocks = 3 * LONG_PROMPT / LONG_BLOCK;
    options.max_model_len = 400000;
    options.max_batched_tokens = WEFT_BATCHED_TOKENS_MAX;
    options.session_ttl_us = 1000000000000;
    struct bench *bench = *state = bench_new(&options);
    struct weft_submit talk = bench_request(bench, 1, 600, 2);
    talk.session_id = (struct weft_str){"talk", 4};
    bench_take(bench, &talk);
    (void)run(bench);
    assert_true(weft_sched_session_has(bench->sched, 0, talk.session_id));
    for (uint32_t i = 0; i < LONG_PROMPT; i++)
        prompt[i] = i * 13 % options.n_vocab;
    struct weft_submit submit = bench_request(bench, 2, 10, 8);
    submit.prompt = prompt;
    submit.n_prompt = LONG_PROMPT;
    submit.sampling.beam_width = 3;
    submit.sampling.length_penalty = 2.0f;
    bench_take(bench, &submit);
    uint32_t n_told = 0;
    while (bench_plan(bench))
        run_unseen(bench, &n_told);
    assert_int_equal(n_told, 8);
    assert_true(bench_stats(bench).n_preemptions > 0);
    assert_true(weft_sched_session_has(bench->sched, 0, talk.session_id));
}

static void whoever_was_preempted_computes_all_again(void **state) {
    bench_free(*state);
    struct weft_sched_options options = recurrent_options();
    options.n_blocks = 40;
    struct bench *bench = *state = bench_new(&options);
    bench_submit(bench, 1, 60, 60);
    bench_submit(bench, 2, 60, 60);
    (void)run(bench);
    assert_true(bench_stats(bench).n_preemptions > 0);
    for (uint64_t id = 1; id <= 2; id++)
        assert_int_equal(bench_n_tokens(bench, id), 60);
}

static void assert_refused(struct bench *bench, const struct weft_submit *submit,
                           const char *word) {
    struct weft_errmsg why = {""};
    uint32_t retry_ms = 1;
    assert_int_equal(weft_sched_submit(bench->sched, bench->now_us, 0, submit, &retry_ms, &why),
                     WEFT_REJECT_INVALID);
    assert_int_equal(retry_ms, 0);
    if (!strstr(why.text, word) || !strstr(why.text, "recurrent")) fail_msg("%s", why.text);
}

static void what_needs_another_state_is_refused_by_name(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 20, 20);
    submit.shifts = true;
    assert_refused(bench, &submit, "context_shift");
    submit = bench_request(bench, 1, 20, 20);
    submit.sampling.penalty_alpha = 0.6f;
    submit.sampling.top_k = 4;
    assert_refused(bench, &submit, "penalty_alpha");
}

/* There is no prefix cache. */
static void sessions_are_neither_saved_nor_restored(void **state) {
    struct bench *bench = *state;
    for (int i = 0; i < 2; i++) {
        struct weft_session_wish wish = {.op = i ? WEFT_SESSION_RESTORE : WEFT_SESSION_SAVE,
                                         .session_id = {"talk", 4},
                                         .file = {"file", 4}};
        struct weft_errmsg why = {""};
        assert_int_equal(weft_sched_session_ask(bench->sched, bench->now_us, 0, &wish, &why),
                         WEFT_E_UNSUPPORTED);
        assert_non_null(strstr(why.text, "no sessions"));
    }
}

static void options_that_do_not_go_together_are_refused(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct weft_sched_options options = recurrent_options();
        struct weft_errmsg why = {""};
        weft_sched *sched;
        if (i == 0) options.prefix_cache = true; /* without checkpoints */
        if (i == 1) options.n_spill_blocks = 8;
        if (i == 2) options.n_spec_tokens = WEFT_SCHED_SPEC_AUTO;
        if (i == 3) options.has_contrast = true;
        assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_E_INVAL);
        assert_non_null(strstr(why.text, "recurrent"));
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)
    const struct CMUnitTest tests[] = {
        TEST(the_same_prompt_is_computed_again),
        TEST(choices_copy_the_state_before_the_last_token),
        TEST(who_comes_too_late_computes_the_prompt),
        TEST(one_choice_tells_what_the_prompt_was_like),
        TEST(beams_copy_states),
        TEST(beams_whose_source_has_gone_on_cost_no_session),
        TEST(whoever_was_preempted_computes_all_again),
        TEST(what_needs_another_state_is_refused_by_name),
        TEST(sessions_are_neither_saved_nor_restored),
        cmocka_unit_test(options_that_do_not_go_together_are_refused),
    };
#undef TEST
    return cmocka_run_group_tests_name("scheduler_recurrent", tests, NULL, NULL);
}
