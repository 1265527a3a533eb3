/* The prefix cache as the scheduler uses it: who finds what, who waits for whom, who makes room. The
 * simulated worker compares each block with the history that its reader expects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/sched_bench.h"

#define NONE UINT32_MAX

static int make_bench(void **state) {
    struct weft_sched_options options = bench_options();
    options.prefix_cache = true;
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

static struct bench *remake(void **state, struct weft_sched_options options) {
    bench_free(*state);
    *state = bench_new(&options);
    return *state;
}

static struct weft_sched_options with_blocks(uint32_t n_blocks) {
    struct weft_sched_options options = bench_options();
    options.prefix_cache = true;
    options.n_blocks = n_blocks;
    return options;
}

/* `n` tokens that begin as the bench's prompt does, and differ from it, and from those of another
 * `kind`, after n_alike. */
static const uint32_t *prompt_like(const struct bench *bench, uint32_t *storage, uint32_t n_alike,
                                   uint32_t n, uint32_t kind) {
    for (uint32_t i = 0; i < n; i++)
        storage[i] = i < n_alike ? bench->prompt[i] : (bench->prompt[i] + kind) % 1000;
    return storage;
}

static void submit_prompt(struct bench *bench, uint64_t id, const uint32_t *prompt,
                          uint32_t n_prompt, uint32_t max_tokens) {
    struct weft_submit submit = bench_request(bench, id, n_prompt, max_tokens);
    submit.prompt = prompt;
    bench_take(bench, &submit);
}

static const struct weft_step_start *find_start(const struct weft_step_plan *plan, uint64_t id) {
    for (uint32_t i = 0; plan && i < plan->n_starts; i++) {
        if (plan->starts[i].sampling.seed == id) return &plan->starts[i];
    }
    return NULL;
}

/* Of the next plan, in which it must start. */
static uint32_t n_cached_at_start(struct bench *bench, uint64_t id) {
    const struct weft_step_start *start = find_start(bench_step(bench), id);
    assert_non_null(start);
    return start->n_cached;
}

static uint32_t n_cached_told(const struct bench *bench, uint64_t id) {
    uint32_t first = bench_first_event(bench, id);
    assert_int_not_equal(first, NONE);
    return bench->events[first].n_prompt_cached;
}

/* Steps on until it starts: how many plans there were before. */
static uint32_t plans_before_start(struct bench *bench, uint64_t id, uint32_t *n_cached_out) {
    for (uint32_t n = 0; n < 200; n++) {
        const struct weft_step_plan *plan = bench_step(bench);
        assert_non_null(plan);
        const struct weft_step_start *start = find_start(plan, id);
        if (!start) continue;
        *n_cached_out = start->n_cached;
        return n;
    }
    fail();
    return 0;
}

/* --------------------------------------------------------------------------------- finding --- */

static void the_same_prompt_is_found_but_for_its_last_token(void **state) {
    struct bench *bench = *state;
    for (uint32_t n_prompt = 17; n_prompt <= 24; n_prompt++) {
        weft_sched_reset_cache(bench->sched);
        uint64_t id = 2 * (uint64_t)(n_prompt - 16);
        bench_submit(bench, id, n_prompt, 6);
        bench_run_until_idle(bench, true);
        bench_submit(bench, id + 1, n_prompt, 6);
        const struct weft_step_plan *plan = bench_step(bench);
        assert_int_equal(plan->n_starts, 1);
        assert_int_equal(plan->starts[0].n_cached, n_prompt - 1);
        assert_int_equal(plan->n_copies, (n_prompt - 1) % 4 > 0);
        assert_int_equal(bench_plan_tokens(plan), 1);
        bench_run_until_idle(bench, true);
        assert_int_equal(n_cached_told(bench, id), 0);
        assert_int_equal(n_cached_told(bench, id + 1), n_prompt - 1);
        assert_int_equal(bench_n_tokens(bench, id + 1), 6);
    }
    assert_int_equal(bench_stats(bench).n_recomputed_tokens, 0);
}

static void the_next_turn_finds_prompt_and_answer(void **state) {
    struct bench *bench = *state;
    uint32_t prompt[25];
    bench_submit(bench, 1, 10, 10);
    bench_run_until_idle(bench, true);
    for (uint32_t i = 0; i < 25; i++)
        prompt[i] = i < 10 || i >= 20 ? bench->prompt[i] : bench_token(bench, 1, i - 10);
    submit_prompt(bench, 2, prompt, 25, 3);
    /* The last token of the answer was never computed: 19 of 20 were, 4 blocks of 4. */
    assert_int_equal(n_cached_at_start(bench, 2), 16);
    bench_run_until_idle(bench, true);
    assert_int_equal(n_cached_told(bench, 2), 16);
}

static void an_answer_ends_the_same_with_two_plans_out(void **state) {
    struct bench *bench = *state;
    uint32_t prompt[24], stop = 0;
    struct weft_submit submit = bench_request(bench, 1, 10, 40);
    uint64_t hash = sim_prompt_hash(bench->prompt, 10, 1);
    stop = sim_token(hash, 0, 9, bench->options.n_vocab); /* of token 20, as a plan is out */
    submit.sampling.stop_tokens = &stop;
    submit.sampling.n_stop_tokens = 1;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 10);
    for (uint32_t i = 0; i < 24; i++)
        prompt[i] = i < 10 || i >= 20 ? bench->prompt[i] : bench_token(bench, 1, i - 10);
    submit_prompt(bench, 2, prompt, 24, 3);
    assert_int_equal(n_cached_at_start(bench, 2), 16);
    bench_run_until_idle(bench, true);
}

static void a_prompt_without_an_answer_is_there_to_its_end(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 16, 0);
    bench_run_until_idle(bench, false);
    bench_submit(bench, 2, 17, 3);
    assert_int_equal(n_cached_at_start(bench, 2), 16);
    bench_run_until_idle(bench, true);
}

static void one_that_still_runs_is_shared_with(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 17, 50);
    assert_int_equal(bench_plan_tokens(bench_plan(bench)), 16);
    bench_submit(bench, 2, 17, 50);
    const struct weft_step_plan *plan = bench_plan(bench); /* the first step is not done yet */
    assert_int_equal(find_start(plan, 2)->n_cached, 16);
    bench_run(bench);
    uint32_t prompt[19]; /* its answer as well, as far as it is known */
    for (uint32_t n = 0; n < 8; n++)
        bench_step(bench);
    assert_true(bench_n_tokens(bench, 1) > 4 && bench_end(bench, 1, 0) == WEFT_END_NONE);
    for (uint32_t i = 0; i < 19; i++)
        prompt[i] = i < 17 ? bench->prompt[i] : bench_token(bench, 1, i - 17);
    submit_prompt(bench, 3, prompt, 19, 5);
    bench_run(bench);
    assert_int_equal(n_cached_at_start(bench, 3), 18);
    bench_run_until_idle(bench, true);
}

/* With two plans out, the later one computes a token that nobody knows yet. */
static void a_block_is_not_published_before_its_tokens_are_known(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 4, 20);
    assert_non_null(bench_plan(bench));
    for (uint32_t i = 0; i < 3; i++) {
        assert_non_null(bench_plan(bench));
        bench_run(bench);
    }
    assert_non_null(bench_plan(bench)); /* of 8 tokens planned, 7 are known */
    assert_int_equal(bench_n_tokens(bench, 1), 3);
    bench_cancel(bench, 1);
    assert_int_equal(bench_stats(bench).n_blocks_published, 1);
    bench_run_until_idle(bench, true);
}

static void a_block_that_begins_alike_is_copied(void **state) {
    struct bench *bench = *state;
    uint32_t prompt[16];
    bench_submit(bench, 1, 16, 2);
    bench_run_until_idle(bench, true);
    submit_prompt(bench, 2, prompt_like(bench, prompt, 10, 16, 1), 16, 30);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(find_start(plan, 2)->n_cached, 10);
    assert_int_equal(plan->n_copies, 1);
    assert_int_equal(plan->n_grants, 1);
    assert_int_equal(plan->grants[0].blocks[2], plan->copies[0].to);
    assert_int_not_equal(plan->copies[0].from, plan->copies[0].to);
    assert_int_equal(bench_plan_tokens(plan), 6);
    bench_submit(bench, 3, 16, 2); /* the one copied from is as it was */
    assert_int_equal(n_cached_at_start(bench, 3), 15);
    bench_run_until_idle(bench, true);
}

/* ------------------------------------------------------------------------------- following --- */

static void two_that_come_together_compute_the_prompt_once(void **state) {
    struct bench *bench = *state;
    uint32_t prompt[4], n_cached = 0;
    bench_submit(bench, 1, 41, 5);
    bench_submit(bench, 2, 41, 5);
    submit_prompt(bench, 3, prompt_like(bench, prompt, 0, 4, 1), 4, 5);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_non_null(find_start(plan, 1));
    assert_null(find_start(plan, 2));
    assert_non_null(find_start(plan, 3)); /* nobody is held up */
    assert_int_equal(bench_stats(bench).n_waiting, 1);
    (void)plans_before_start(bench, 2, &n_cached);
    assert_int_equal(n_cached, 40);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 5);
    assert_int_equal(bench_stats(bench).n_prompt_tokens, 41 + 1 + 4);
    assert_int_equal(bench_stats(bench).n_recomputed_tokens, 0);
}

static void a_follower_starts_once_the_leader_has_what_they_share(void **state) {
    struct bench *bench = *state;
    uint32_t prompt[30], n_cached = 0;
    bench_submit(bench, 1, 100, 5);
    submit_prompt(bench, 2, prompt_like(bench, prompt, 19, 30, 1), 30, 5);
    assert_int_equal(plans_before_start(bench, 2, &n_cached), 1); /* of 16 tokens */
    assert_int_equal(n_cached, 16);                               /* whole blocks count */
    bench_run_until_idle(bench, true);
}

static void a_cancelled_leader_lets_its_followers_go(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 100, 5);
    bench_submit(bench, 2, 100, 5);
    bench_submit(bench, 3, 100, 5);
    bench_step(bench);
    bench_cancel(bench, 1);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(find_start(plan, 2)->n_cached, 16); /* which the leader had */
    assert_null(find_start(plan, 3));                    /* it follows this one now */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 5);
    assert_int_equal(n_cached_told(bench, 3), 96);
}

static void a_cancelled_follower_is_gone(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 100, 5);
    bench_submit(bench, 2, 100, 5);
    bench_step(bench);
    bench_cancel(bench, 2);
    assert_int_equal(bench_stats(bench).n_waiting, 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 0);
}

static void a_preempted_leader_lets_its_followers_go(void **state) {
    struct weft_sched_options options = with_blocks(13);
    options.max_batched_tokens = 4;
    struct bench *bench = remake(state, options);
    uint32_t prompt[4];
    submit_prompt(bench, 1, prompt_like(bench, prompt, 0, 4, 1), 4, 20);
    bench_step(bench);
    bench_submit(bench, 2, 40, 2); /* 10 blocks, computed by 3 tokens a step */
    bench_submit(bench, 3, 40, 2);
    while (bench_stats(bench).n_preemptions == 0)
        assert_non_null(bench_step(bench));
    assert_int_equal(bench_n_tokens(bench, 2), 0); /* it was the leader, within its prompt */
    bench_cancel(bench, 2);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 20);
    assert_int_equal(bench_n_tokens(bench, 3), 2);
}

static void followers_outlive_a_lost_worker(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 100, 5);
    bench_submit(bench, 2, 100, 5);
    bench_step(bench);
    bench_lose_worker(bench);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 5);
    /* It waits no longer for that: 16 of the 96 tokens were lost. */
    assert_int_equal(n_cached_told(bench, 2), 80);
}

/* The leader gets nothing: half of each step is an older prompt's, the rest shorter ones'. */
static void nobody_follows_longer_than_computing_it_would_take(void **state) {
    struct bench *bench = *state;
    uint32_t old[100], brief[4][8], n_cached = 0;
    submit_prompt(bench, 1, prompt_like(bench, old, 0, 100, 1), 100, 5);
    bench_submit(bench, 2, 60, 5); /* the leader */
    bench_submit(bench, 3, 21, 5); /* 20 tokens are shared */
    for (uint32_t i = 0; i < 4; i++)
        submit_prompt(bench, 4 + i, prompt_like(bench, brief[i], 0, 8, 2 + i), 8, 1);
    assert_int_equal(plans_before_start(bench, 3, &n_cached), 2); /* two steps have 32 tokens */
    assert_int_equal(n_cached, 0);
    bench_run_until_idle(bench, true);
}

static void the_bound_of_following_counts_single_tokens_too(void **state) {
    struct weft_sched_options options = with_blocks(64);
    options.max_batched_tokens = 3; /* two for the oldest prompt, one for the leader */
    struct bench *bench = remake(state, options);
    uint32_t old[100], n_cached = 0;
    submit_prompt(bench, 1, prompt_like(bench, old, 0, 100, 1), 100, 5);
    bench_submit(bench, 2, 60, 5);
    bench_submit(bench, 3, 9, 5); /* 8 tokens are shared */
    assert_int_equal(plans_before_start(bench, 3, &n_cached), 3);
    bench_run_until_idle(bench, true);
}

/* ---------------------------------------------------------------------------- kept apart --- */

static void submit_salted(struct bench *bench, uint64_t id, uint64_t salt) {
    struct weft_submit submit = bench_request(bench, id, 21, 2);
    submit.cache_salt = (struct weft_digest){.hi = salt, .lo = salt << 8};
    bench_take(bench, &submit);
}

static void salts_keep_apart(void **state) {
    struct bench *bench = *state;
    const uint64_t salts[] = {0, 1, 2, 1, 2, 0};
    for (uint32_t i = 0; i < 6; i++) {
        submit_salted(bench, i + 1, salts[i]);
        assert_int_equal(n_cached_at_start(bench, i + 1), i < 3 ? 0 : 20);
        bench_run_until_idle(bench, true);
    }
    weft_sched_reset_cache(bench->sched);
    submit_salted(bench, 7, 1);
    submit_salted(bench, 8, 2);
    assert_int_equal(bench_step(bench)->n_starts, 2); /* neither follows the other */
    bench_run_until_idle(bench, true);
}

static void long_prompts_and_short_ones_share_nothing(void **state) {
    struct weft_sched_options options = with_blocks(64);
    options.long_prompt = 20;
    struct bench *bench = remake(state, options);
    bench_submit(bench, 1, 20, 20); /* short, and stays so, however long the answer */
    bench_run_until_idle(bench, true);
    bench_submit(bench, 2, 21, 5);
    assert_int_equal(n_cached_at_start(bench, 2), 0);
    bench_run_until_idle(bench, true);
    bench_submit(bench, 3, 20, 5);
    assert_int_equal(n_cached_at_start(bench, 3), 19);
    bench_submit(bench, 4, 28, 5);
    assert_int_equal(n_cached_at_start(bench, 4), 21); /* of the second */
    bench_run_until_idle(bench, true);
}

static void prompt_logprobs_read_nothing_but_are_read_from(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 21, 2);
    bench_run_until_idle(bench, true);
    struct weft_submit submit = bench_request(bench, 2, 21, 2);
    submit.sampling.n_prompt_logprobs = 0;
    bench_take(bench, &submit);
    assert_int_equal(n_cached_at_start(bench, 2), 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_logprobs_done[2], 21);
    weft_sched_reset_cache(bench->sched);
    submit.request_id = submit.sampling.seed = 3;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    bench_submit(bench, 4, 21, 2);
    assert_int_equal(n_cached_at_start(bench, 4), 20);
    bench_run_until_idle(bench, true);
}

static void prompt_logprobs_follow_nobody(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 41, 2);
    struct weft_submit submit = bench_request(bench, 2, 41, 2);
    submit.sampling.n_prompt_logprobs = 0;
    bench_take(bench, &submit);
    assert_int_equal(bench_step(bench)->n_starts, 2);
    bench_run_until_idle(bench, true);
}

/* ------------------------------------------------------------------------------ forgetting --- */

static void a_reset_forgets_and_those_that_run_go_on(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 21, 2);
    bench_run_until_idle(bench, true);
    bench_submit(bench, 2, 21, 30); /* it shares with the first */
    bench_step(bench);
    uint64_t n_resets = bench_stats(bench).n_cache_resets;
    weft_sched_reset_cache(bench->sched);
    weft_sched_check(bench->sched);
    assert_int_equal(bench_stats(bench).n_cache_resets, n_resets + 1);
    assert_int_equal(bench_stats(bench).n_blocks_published, 0);
    bench_submit(bench, 3, 21, 2);
    assert_int_equal(n_cached_at_start(bench, 3), 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 30);
    assert_int_equal(bench_n_tokens(bench, 3), 2);
    bench_submit(bench, 4, 21, 2);
    assert_int_equal(n_cached_at_start(bench, 4), 20); /* of the third */
    bench_run_until_idle(bench, true);
}

static void a_reset_lets_followers_go(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 100, 5);
    bench_submit(bench, 2, 100, 5);
    bench_step(bench);
    weft_sched_reset_cache(bench->sched);
    assert_int_equal(n_cached_at_start(bench, 2), 0);
    bench_run_until_idle(bench, true);
}

static void without_the_cache_nothing_is_shared(void **state) {
    struct weft_sched_options options = bench_options();
    struct bench *bench = remake(state, options);
    bench_submit(bench, 1, 21, 5);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_blocks_published, 0);
    bench_submit(bench, 2, 21, 5);
    bench_submit(bench, 3, 21, 5);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->n_starts, 2);
    assert_int_equal(plan->starts[0].n_cached + plan->starts[1].n_cached, 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_cache_hit_tokens, 0);
}

static void a_new_epoch_begins_with_nothing(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 21, 5);
    bench_run_until_idle(bench, true);
    assert_true(bench_stats(bench).n_blocks_published > 0);
    bench_lose_worker(bench);
    assert_int_equal(bench_stats(bench).n_blocks_published, 0);
    bench_submit(bench, 2, 21, 5);
    assert_int_equal(n_cached_at_start(bench, 2), 0);
    bench_run_until_idle(bench, true);
}

/* ------------------------------------------------------------------------------------ room --- */

static void a_preempted_sequence_finds_what_is_left_of_it(void **state) {
    struct bench *bench = remake(state, with_blocks(16));
    uint32_t prompt[4], n_cached = 0;
    bench_submit(bench, 1, 4, 36);
    submit_prompt(bench, 2, prompt_like(bench, prompt, 0, 4, 1), 4, 36);
    while (bench_stats(bench).n_preemptions == 0)
        assert_non_null(bench_step(bench));
    uint32_t n_had = 4 + bench_n_tokens(bench, 2);
    (void)plans_before_start(bench, 2, &n_cached);
    assert_int_equal(bench_end(bench, 1, 0),
                     WEFT_END_LENGTH); /* after it had taken 2 more blocks */
    assert_in_range(n_cached, n_had - 12, n_had - 8);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 36);
    assert_int_equal(n_cached_told(bench, 2), 0); /* by the time it first started */
}

static void idle_blocks_go_before_anybody_is_preempted(void **state) {
    struct bench *bench = remake(state, with_blocks(16));
    uint32_t prompt[3][30];
    bench_submit(bench, 1, 40, 8);
    bench_run_until_idle(bench, true);
    assert_true(bench_stats(bench).n_blocks_published > 10);
    for (uint32_t i = 0; i < 3; i++) {
        submit_prompt(bench, 2 + i, prompt_like(bench, prompt[i], 0, 30, 1 + i), 30, 30);
        bench_run_until_idle(bench, true);
    }
    assert_int_equal(bench_stats(bench).n_preemptions, 0);
    assert_true(bench_stats(bench).n_cache_evictions > 30);
}

/* Of the bench's prompt: what a request for the beginning of it would find. */
static uint32_t n_left(struct bench *bench, uint64_t id, uint32_t n_prompt) {
    bench_submit(bench, id, n_prompt, 0);
    uint32_t n_cached = n_cached_at_start(bench, id);
    bench_run_until_idle(bench, true);
    return n_cached;
}

static void the_prompt_that_was_idle_longest_is_evicted_first(void **state) {
    struct bench *bench = remake(state, with_blocks(10));
    uint32_t old[13], want[28];
    submit_prompt(bench, 1, prompt_like(bench, old, 0, 13, 1), 13, 1);
    bench_run_until_idle(bench, true);
    bench_submit(bench, 2, 13, 1);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_blocks_published, 6);
    submit_prompt(bench, 3, prompt_like(bench, want, 0, 28, 2), 28,
                  0); /* 4 are free: 3 are missing */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_cache_evictions, 3);
    assert_int_equal(n_left(bench, 4, 13), 12);
}

static void a_beginning_is_as_young_as_its_last_use(void **state) {
    struct bench *bench = remake(state, with_blocks(9));
    uint32_t other[9], want[32];
    bench_submit(bench, 1, 13, 1); /* three blocks */
    bench_run_until_idle(bench, true);
    submit_prompt(bench, 2, prompt_like(bench, other, 0, 9, 1), 9, 1); /* two */
    bench_run_until_idle(bench, true);
    assert_int_equal(n_left(bench, 3, 5), 4); /* uses the first of the three */
    assert_int_equal(bench_stats(bench).n_blocks_published, 5);
    submit_prompt(bench, 4, prompt_like(bench, want, 0, 29, 2), 29,
                  3); /* 4 are free: 4 are missing */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_cache_evictions, 4);
    assert_int_equal(n_left(bench, 5, 5), 4);
}

static void what_a_newcomer_uses_is_not_evicted_for_it(void **state) {
    struct bench *bench = remake(state, with_blocks(6));
    uint32_t prompt[13];
    bench_submit(bench, 1, 13, 2);
    bench_run_until_idle(bench, true);
    submit_prompt(bench, 2, prompt_like(bench, prompt, 0, 9, 1), 9, 1); /* two more idle blocks */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_blocks_published, 5);
    bench_submit(bench, 3, 20, 4); /* all six: three of the first's, the older, are found */
    assert_int_equal(n_cached_at_start(bench, 3), 12);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 3), 4);
}

static void a_source_may_be_granted_in_the_plan_that_copies_it(void **state) {
    struct bench *bench = remake(state, with_blocks(4));
    uint32_t prompt[13];
    bench_submit(bench, 1, 13, 2);
    bench_run_until_idle(bench, true);
    submit_prompt(bench, 2, prompt_like(bench, prompt, 10, 13, 1), 13, 2);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(find_start(plan, 2)->n_cached, 10);
    assert_int_equal(plan->n_copies, 1);
    assert_int_equal(plan->grants[0].n_blocks, 4);
    assert_int_equal(plan->grants[0].blocks[3], plan->copies[0].from);
    bench_run_until_idle(bench, true);
}

static void a_copy_is_given_up_where_its_source_is_the_only_room(void **state) {
    struct bench *bench = remake(state, with_blocks(2));
    uint32_t prompt[7];
    bench_submit(bench, 1, 8, 0);
    bench_run_until_idle(bench, false);
    assert_int_equal(bench_stats(bench).n_blocks_published, 2);
    submit_prompt(bench, 2, prompt_like(bench, prompt, 6, 7, 1), 7, 1);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(find_start(plan, 2)->n_cached, 4);
    assert_int_equal(plan->n_copies, 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(the_same_prompt_is_found_but_for_its_last_token),
        CASE(the_next_turn_finds_prompt_and_answer),
        CASE(an_answer_ends_the_same_with_two_plans_out),
        CASE(a_prompt_without_an_answer_is_there_to_its_end),
        CASE(one_that_still_runs_is_shared_with),
        CASE(a_block_is_not_published_before_its_tokens_are_known),
        CASE(a_block_that_begins_alike_is_copied),
        CASE(two_that_come_together_compute_the_prompt_once),
        CASE(a_follower_starts_once_the_leader_has_what_they_share),
        CASE(a_cancelled_leader_lets_its_followers_go),
        CASE(a_cancelled_follower_is_gone),
        CASE(a_preempted_leader_lets_its_followers_go),
        CASE(followers_outlive_a_lost_worker),
        CASE(nobody_follows_longer_than_computing_it_would_take),
        CASE(the_bound_of_following_counts_single_tokens_too),
        CASE(salts_keep_apart),
        CASE(long_prompts_and_short_ones_share_nothing),
        CASE(prompt_logprobs_read_nothing_but_are_read_from),
        CASE(prompt_logprobs_follow_nobody),
        CASE(a_reset_forgets_and_those_that_run_go_on),
        CASE(a_reset_lets_followers_go),
        CASE(without_the_cache_nothing_is_shared),
        CASE(a_new_epoch_begins_with_nothing),
        CASE(a_preempted_sequence_finds_what_is_left_of_it),
        CASE(idle_blocks_go_before_anybody_is_preempted),
        CASE(the_prompt_that_was_idle_longest_is_evicted_first),
        CASE(a_beginning_is_as_young_as_its_last_use),
        CASE(what_a_newcomer_uses_is_not_evicted_for_it),
        CASE(a_source_may_be_granted_in_the_plan_that_copies_it),
        CASE(a_copy_is_given_up_where_its_source_is_the_only_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
