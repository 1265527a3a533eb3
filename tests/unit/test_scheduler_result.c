/* Results from a worker that lies: each lie comes alone, is refused, and the truth follows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "unit/sched_bench.h"

#define OUTS_MAX 8u

static int make_bench(void **state) {
    struct weft_sched_options options = bench_options();
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

struct truth { /* the worker's result, and a copy to spoil */
    struct weft_step_result *result;
    struct weft_step_result lie;
    struct weft_step_out outs[OUTS_MAX];
    struct weft_logprobs prompt_logprobs[32];
};

static void make_step(struct bench *bench, struct truth *truth) {
    assert_non_null(bench_plan(bench));
    truth->result = sim_worker_run(bench->worker);
}

static void begin_lie(struct truth *truth) {
    truth->lie = *truth->result;
    assert_true(truth->result->n_outs <= OUTS_MAX);
    memcpy(truth->outs, truth->result->outs, truth->result->n_outs * sizeof *truth->outs);
    truth->lie.outs = truth->outs;
}

static void assert_refused(struct bench *bench, const struct truth *truth, const char *words) {
    struct weft_errmsg why = {""};
    struct weft_sched_stats before = bench_stats(bench), after;
    size_t n_events;
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &truth->lie, &why),
                     WEFT_E_PROTO);
    if (!strstr(why.text, words)) fail_msg("%s", why.text);
    after = bench_stats(bench);
    assert_int_equal(after.n_plans_out, before.n_plans_out);
    assert_int_equal(after.n_output_tokens, before.n_output_tokens);
    assert_int_equal(after.n_blocks_free, before.n_blocks_free);
    (void)weft_sched_events(bench->sched, &n_events);
    assert_int_equal(n_events, 0);
    weft_sched_check(bench->sched);
}

static void tell_truth(struct bench *bench, const struct truth *truth) {
    struct weft_errmsg why = {""};
    if (weft_sched_result(bench->sched, bench->now_us, truth->result, &why))
        fail_msg("%s", why.text);
    bench_collect(bench);
}

/* Two streams, the second with log-probabilities; the step samples one token of each. */
static void make_decode_step(struct bench *bench, struct truth *truth) {
    static const uint32_t stops[] = {999};
    bench_submit(bench, 1, 4, 10);
    struct weft_submit submit = bench_request(bench, 2, 5, 10);
    submit.sampling.n_logprobs = 2;
    submit.sampling.stop_tokens = stops;
    submit.sampling.n_stop_tokens = 1;
    bench_take(bench, &submit);
    bench_step(bench);
    make_step(bench, truth);
    assert_int_equal(truth->result->n_outs, 2);
    begin_lie(truth);
}

/* A stream with a grammar, whose row has sampled and nothing more; 10 tokens at most, 999 ends it. */
static void make_guided_step(struct bench *bench, struct truth *truth) {
    static const uint32_t stops[] = {999};
    struct weft_submit submit = bench_request(bench, 1, 4, 10);
    submit.sampling.stop_tokens = stops;
    submit.sampling.n_stop_tokens = 1;
    submit.sampling.grammar.kind = WEFT_GRAMMAR_JSON_OBJECT;
    bench_take(bench, &submit);
    assert_null(bench_plan(bench));
    const struct weft_grammar *grammar = NULL;
    uint64_t id = 0;
    assert_true(weft_sched_next_grammar(bench->sched, bench->now_us, &id, &grammar));
    weft_sched_compiled(bench->sched, bench->now_us, id);
    make_step(bench, truth);
    begin_lie(truth);
    truth->outs[0].is_late = false;
    truth->outs[0].sampled = true;
    truth->outs[0].n_more = 0;
    truth->outs[0].output_idx = 0;
    truth->outs[0].token = bench_token(bench, 1, 0);
    truth->outs[0].finish = WEFT_END_NONE;
}

static void forced_tokens_are_checked(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    uint32_t forced[WEFT_FORCED_MAX + 1] = {0};
    make_guided_step(bench, &truth);
    truth.outs[0].more = forced;
    truth.outs[0].n_more = WEFT_FORCED_MAX + 1;
    assert_refused(bench, &truth, "nothing brings 33 tokens more");
    truth.outs[0].n_more = 10;
    assert_refused(bench, &truth, "cannot finish that way");
    truth.outs[0].n_more = 9;
    assert_refused(bench, &truth, "cannot finish that way"); /* it is at its length */
    truth.outs[0].n_more = 3;
    forced[1] = 999;
    assert_refused(bench, &truth, "cannot finish that way"); /* nothing follows an end */
    truth.outs[0].n_more = 2;
    assert_refused(bench, &truth, "cannot finish that way"); /* it must be told */
    forced[1] = bench->options.n_vocab;
    assert_refused(bench, &truth, "of a vocabulary of");
    truth.outs[0].n_more = 1;
    truth.outs[0].sampled = false;
    truth.outs[0].finish = WEFT_END_COMPLETE;
    assert_refused(bench, &truth, "nothing brings 1 tokens more");
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
}

static void only_a_grammar_forces_or_is_late(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    static const uint32_t forced[] = {0};
    make_decode_step(bench, &truth);
    truth.outs[0].more = forced;
    truth.outs[0].n_more = 1;
    assert_refused(bench, &truth, "nothing brings 1 tokens more");
    begin_lie(&truth);
    truth.outs[0].is_late = true;
    assert_refused(bench, &truth, "cannot be late");
    truth.outs[0].sampled = false;
    assert_refused(bench, &truth, "cannot be late");
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
}

/* What the plan that is out, and the next one, have of it: one token, and the rest at once. */
static void forced_tokens_come_as_a_chunk(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    uint32_t forced[6];
    struct weft_errmsg why = {""};
    make_guided_step(bench, &truth);
    for (uint32_t i = 0; i < 6; i++)
        forced[i] = bench_token(bench, 1, i + 1);
    truth.outs[0].more = forced;
    truth.outs[0].n_more = 6;
    const struct weft_step_plan *plan = NULL;
    assert_true(weft_sched_plan(bench->sched, bench->now_us, &plan));
    assert_int_equal(plan->n_rows, 1);
    assert_int_equal(plan->rows[0].n_tokens, 1);
    struct weft_step_out next = {.slot = plan->rows[0].slot, .gen = plan->rows[0].gen, .ran = true};
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &truth.lie, &why), WEFT_OK);
    bench_collect(bench);
    assert_int_equal(bench_n_tokens(bench, 1), 7);
    assert_int_equal(bench_stats(bench).n_forced_tokens, 6);
    assert_true(weft_sched_plan(bench->sched, bench->now_us, &plan));
    assert_int_equal(plan->rows[0].n_tokens, 6);
    assert_int_equal(plan->n_grants, 1); /* 4 + 1 tokens had their blocks, 11 want one more */
    struct weft_step_result result = truth.lie;
    result.step++;
    result.outs = &next;
    next.sampled = true;
    next.token = next.output_idx = 7;
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &result, &why), WEFT_E_PROTO);
    next.sampled = false;
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &result, &why), WEFT_OK);
    weft_sched_check(bench->sched);
}

/* No token is spare: each stream still has its one, whatever prompts come before it. */
static void forced_tokens_wait_for_no_prompt(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    options.max_seqs = options.max_batched_tokens = 8;
    options.policy = WEFT_SCHED_PRIORITY;
    struct bench *bench = bench_new(&options);
    struct truth truth;
    uint32_t forced[6];
    struct weft_errmsg why = {""};
    make_guided_step(bench, &truth);
    for (uint32_t i = 0; i < 6; i++)
        forced[i] = bench_token(bench, 1, i + 1);
    truth.outs[0].more = forced;
    truth.outs[0].n_more = 6;
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &truth.lie, &why), WEFT_OK);
    bench_collect(bench);
    struct weft_submit rival = bench_request(bench, 2, 100, 2);
    rival.priority = -1;
    bench_take(bench, &rival);
    for (uint64_t step = 1; step < 7; step++) {
        const struct weft_step_plan *plan = NULL;
        assert_true(weft_sched_plan(bench->sched, bench->now_us, &plan));
        assert_int_equal(plan->n_rows, 2);
        struct weft_step_out outs[2];
        bool has_one = false;
        for (uint32_t i = 0; i < 2; i++) {
            outs[i] = (struct weft_step_out){
                .slot = plan->rows[i].slot, .gen = plan->rows[i].gen, .ran = true};
            has_one =
                has_one || (outs[i].slot == truth.outs[0].slot && plan->rows[i].n_tokens == 1);
        }
        assert_true(has_one);
        struct weft_step_result result = truth.lie;
        result.step = step;
        result.n_outs = 2;
        result.outs = outs;
        assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &result, &why), WEFT_OK);
        weft_sched_check(bench->sched);
    }
    bench_free(bench);
}

static void a_late_row_is_made_good_by_the_next(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    struct weft_errmsg why = {""};
    make_guided_step(bench, &truth);
    truth.outs[0] = (struct weft_step_out){
        .slot = truth.outs[0].slot, .gen = truth.outs[0].gen, .ran = true, .is_late = true};
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &truth.lie, &why), WEFT_OK);
    weft_sched_check(bench->sched);
    for (uint64_t i = 1; i < 4; i++) { /* again and again, whether the next plan is out or not */
        const struct weft_step_plan *plan = NULL;
        assert_true(weft_sched_plan(bench->sched, bench->now_us, &plan));
        assert_int_equal(plan->rows[0].n_tokens, 1);
        if (i > 1) assert_true(weft_sched_plan(bench->sched, bench->now_us, &plan));
        weft_sched_check(bench->sched);
        truth.lie.step++;
        assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &truth.lie, &why), WEFT_OK);
        weft_sched_check(bench->sched);
        if (i == 1) continue;
        truth.lie.step++;
        assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &truth.lie, &why), WEFT_OK);
        weft_sched_check(bench->sched);
    }
    bench_lose_worker(bench);
    assert_int_equal(bench_n_tokens(bench, 1), 0);
}

static void a_result_must_be_of_the_oldest_plan(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    struct weft_step_result nothing = {.epoch = bench->epoch};
    assert_int_equal(weft_sched_result(bench->sched, 0, &nothing, NULL), WEFT_E_PROTO);
    make_decode_step(bench, &truth);
    truth.lie.step++;
    assert_refused(bench, &truth, "step 2, expected was 1");
    truth.lie.step = 0;
    assert_refused(bench, &truth, "step 0, expected was 1");
    begin_lie(&truth);
    truth.lie.epoch++;
    assert_refused(bench, &truth, "epoch 2");
    begin_lie(&truth);
    truth.lie.n_outs = 1;
    assert_refused(bench, &truth, "1 rows, not 2");
    truth.lie.n_outs = 3;
    assert_refused(bench, &truth, "3 rows, not 2");
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
}

static void a_result_of_an_older_epoch_is_ignored(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    make_decode_step(bench, &truth);
    weft_sched_new_epoch(bench->sched, bench->now_us, ++bench->epoch);
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, truth.result, NULL), WEFT_OK);
    sim_worker_reset(bench->worker, bench->epoch);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 10);
}

static void outs_must_match_rows_one_by_one(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    make_decode_step(bench, &truth);
    truth.outs[0] = truth.result->outs[1];
    truth.outs[1] = truth.result->outs[0];
    assert_refused(bench, &truth, "in place of slot 0");
    begin_lie(&truth);
    truth.outs[1].gen++;
    assert_refused(bench, &truth, "generation 2 in place of slot 1, 1");
    begin_lie(&truth);
    truth.outs[1].ran = false;
    assert_refused(bench, &truth, "slot 1 did not run");
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
}

static void a_sample_must_be_the_next_token_of_the_vocabulary(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    make_decode_step(bench, &truth);
    truth.outs[0].token = 1000;
    assert_refused(bench, &truth, "token 1000 of a vocabulary of 1000");
    begin_lie(&truth);
    truth.outs[0].output_idx++;
    assert_refused(bench, &truth, "output token 2, expected was 1");
    begin_lie(&truth);
    truth.outs[0].sampled = false;
    assert_refused(bench, &truth, "with a token");
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
}

static void a_finish_must_have_a_reason(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    make_decode_step(bench, &truth);
    for (int finish = WEFT_END_STOP; finish <= WEFT_END_COUNT; finish++) {
        truth.outs[0].finish = (enum weft_end)finish;
        assert_refused(bench, &truth, "cannot finish");
    }
    begin_lie(&truth);
    truth.outs[1].token = 999; /* its stop token, and yet it goes on */
    assert_refused(bench, &truth, "cannot finish");
    begin_lie(&truth);
    tell_truth(bench, &truth);
    for (uint32_t i = 0; i < 8; i++) {
        if (i < 7) bench_step(bench);
    }
    make_step(bench, &truth); /* the tenth token of both */
    begin_lie(&truth);
    truth.outs[0].finish = WEFT_END_NONE;
    assert_refused(bench, &truth, "cannot finish");
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 10);
}

static void logprobs_must_be_those_asked_for(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    const uint32_t wild_ids[] = {5, 1000};
    make_decode_step(bench, &truth);
    truth.outs[0].has_logprobs = true;
    assert_refused(bench, &truth, "nobody asked for");
    begin_lie(&truth);
    truth.outs[1].has_logprobs = false;
    assert_refused(bench, &truth, "are missing");
    begin_lie(&truth);
    truth.outs[1].logprobs.n_top = 3;
    assert_refused(bench, &truth, "3 log-probabilities, asked were 2");
    begin_lie(&truth);
    truth.outs[1].logprobs.top_ids = wild_ids;
    assert_refused(bench, &truth, "token 1000");
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
}

static void nothing_is_sampled_within_a_prompt(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    bench_submit(bench, 1, 40, 5);
    make_step(bench, &truth);
    begin_lie(&truth);
    truth.outs[0].sampled = true;
    assert_refused(bench, &truth, "before its last token");
    begin_lie(&truth);
    truth.outs[0].finish = WEFT_END_LENGTH;
    assert_refused(bench, &truth, "before its last token");
    begin_lie(&truth);
    truth.outs[0].n_prompt_logprobs = 1;
    assert_refused(bench, &truth, "1 prompt log-probabilities, expected were 0");
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
}

static void prompt_logprobs_must_continue_where_they_were(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    struct weft_submit submit = bench_request(bench, 1, 40, 5);
    submit.sampling.n_prompt_logprobs = 1;
    bench_take(bench, &submit);
    bench_step(bench);
    make_step(bench, &truth);
    begin_lie(&truth);
    truth.outs[0].prompt_pos--;
    assert_refused(bench, &truth, "from 16 on, expected was 17");
    begin_lie(&truth);
    truth.outs[0].n_prompt_logprobs--;
    assert_refused(bench, &truth, "15 prompt log-probabilities, expected were 16");
    begin_lie(&truth);
    memcpy(truth.prompt_logprobs, truth.outs[0].prompt_logprobs,
           truth.outs[0].n_prompt_logprobs * sizeof *truth.prompt_logprobs);
    truth.outs[0].prompt_logprobs = truth.prompt_logprobs;
    truth.prompt_logprobs[9].n_top = 2;
    assert_refused(bench, &truth, "2 log-probabilities, asked were 1");
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
}

static void nobody_goes_on_after_the_end(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    struct weft_submit submit = bench_request(bench, 1, 8, 20);
    uint32_t stop = sim_token(sim_prompt_hash(bench->prompt, 8, 1), 0, 0, bench->options.n_vocab);
    submit.sampling.stop_tokens = &stop;
    submit.sampling.n_stop_tokens = 1;
    bench_take(bench, &submit);
    bench_plan(bench);
    bench_plan(bench);
    bench_run(bench);
    truth.result = sim_worker_run(bench->worker);
    begin_lie(&truth);
    truth.outs[0].ran = true;
    assert_refused(bench, &truth, "went on after its end");
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
}

static void what_a_cancelled_row_yields_is_dropped(void **state) {
    struct bench *bench = *state;
    struct truth truth;
    make_decode_step(bench, &truth);
    bench_cancel(bench, 1);
    truth.outs[0].token = 123456; /* nobody looks */
    truth.result = &truth.lie;
    tell_truth(bench, &truth);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 1);
    assert_int_equal(bench_n_tokens(bench, 2), 10);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_result_must_be_of_the_oldest_plan),
        CASE(a_result_of_an_older_epoch_is_ignored),
        CASE(outs_must_match_rows_one_by_one),
        CASE(a_sample_must_be_the_next_token_of_the_vocabulary),
        CASE(a_finish_must_have_a_reason),
        CASE(logprobs_must_be_those_asked_for),
        CASE(nothing_is_sampled_within_a_prompt),
        CASE(prompt_logprobs_must_continue_where_they_were),
        CASE(nobody_goes_on_after_the_end),
        CASE(what_a_cancelled_row_yields_is_dropped),
        CASE(forced_tokens_are_checked),
        CASE(only_a_grammar_forces_or_is_late),
        CASE(forced_tokens_come_as_a_chunk),
        cmocka_unit_test(forced_tokens_wait_for_no_prompt),
        CASE(a_late_row_is_made_good_by_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
