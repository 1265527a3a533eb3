#include "unit/sched_bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

struct weft_sched_options bench_options(void) {
    return (struct weft_sched_options){
        .n_blocks = 64,
        .block_size = 4,
        .max_seqs = 8,
        .max_batched_tokens = 16,
        .max_model_len = 128,
        .n_vocab = 1000,
        .max_queue = 32,
    };
}

struct bench *bench_new(const struct weft_sched_options *options) {
    struct bench *bench = calloc(1, sizeof *bench);
    struct weft_errmsg why;
    WEFT_ASSERT(bench != NULL);
    bench->options = *options;
    bench->now_us = 1000000;
    bench->epoch = 1;
    WEFT_ASSERT(!weft_sched_new(options, &bench->sched, &why));
    bench->worker = sim_worker_new(options);
    weft_sched_new_epoch(bench->sched, bench->now_us, bench->epoch);
    sim_worker_reset(bench->worker, bench->epoch);
    for (uint32_t i = 0; i < BENCH_REQUESTS_MAX; i++)
        bench->prompts[i] = bench->prompt;
    for (uint32_t i = 0; i < BENCH_PROMPT_MAX; i++)
        bench->prompt[i] = (i * 7 + 3) % options->n_vocab;
    return bench;
}

void bench_free(struct bench *bench) {
    weft_sched_check(bench->sched);
    weft_sched_free(bench->sched);
    sim_worker_free(bench->worker);
    free(bench);
}

struct weft_submit bench_request(struct bench *bench, uint64_t id, uint32_t n_prompt,
                                 uint32_t max_tokens) {
    WEFT_ASSERT(id < BENCH_REQUESTS_MAX && n_prompt <= BENCH_PROMPT_MAX);
    struct weft_submit submit = {
        .request_id = id,
        .prompt = bench->prompt,
        .n_prompt = n_prompt,
        .n_choices = 1,
    };
    weft_sampling_init(&submit.sampling);
    submit.sampling.seed = id;
    submit.sampling.max_tokens = max_tokens;
    return submit;
}

enum weft_reject bench_try(struct bench *bench, const struct weft_submit *submit) {
    struct weft_errmsg why;
    uint32_t retry_after_ms;
    bench->prompts[submit->request_id] = submit->prompt;
    bench->n_prompt[submit->request_id] = submit->n_prompt;
    return weft_sched_submit(bench->sched, bench->now_us, bench->router, submit, &retry_after_ms,
                             &why);
}

void bench_take(struct bench *bench, const struct weft_submit *submit) {
    WEFT_ASSERT(bench_try(bench, submit) == WEFT_REJECT_NONE);
}

void bench_submit(struct bench *bench, uint64_t id, uint32_t n_prompt, uint32_t max_tokens) {
    struct weft_submit submit = bench_request(bench, id, n_prompt, max_tokens);
    bench_take(bench, &submit);
}

void bench_cancel(struct bench *bench, uint64_t id) {
    struct weft_sched_key key = {.request_id = id};
    weft_sched_cancel(bench->sched, bench->now_us, &key, UINT32_MAX);
}

static void check_token(struct bench *bench, uint64_t id, uint32_t choice,
                        const struct weft_event *out) {
    uint64_t hash = sim_prompt_hash(bench->prompts[id], bench->n_prompt[id], id);
    uint32_t idx = bench->n_output[id][choice]++;
    WEFT_ASSERT(out->output_idx == idx);
    WEFT_ASSERT(out->token == sim_token(hash, choice, idx, bench->options.n_vocab));
}

static void check_logprobs(struct bench *bench, uint64_t id, const struct weft_event *out) {
    uint32_t *done = &bench->n_logprobs_done[id];
    WEFT_ASSERT(out->prompt_pos == (*done ? *done : 1));
    *done = out->prompt_pos + out->n_prompt_logprobs;
}

static void log_event(struct bench *bench, const struct weft_event *event) {
    WEFT_ASSERT(bench->n_events < BENCH_EVENTS_MAX);
    uint64_t id = event->request_id;
    struct bench_event *entry = &bench->events[bench->n_events++];
    *entry = (struct bench_event){.request_id = id, .choice = event->choice, .end = event->end};
    entry->sampled = event->sampled;
    entry->output_idx = event->output_idx;
    entry->n_prompt_logprobs = event->n_prompt_logprobs;
    entry->n_prompt_cached = event->n_prompt_cached;
    entry->n_values = event->n_values;
    for (uint32_t i = 0; i < event->n_values; i++)
        WEFT_ASSERT(event->values[i] ==
                    sim_value(sim_prompt_hash(bench->prompts[id], bench->n_prompt[id], id), i));
    if (event->n_prompt_logprobs) check_logprobs(bench, id, event);
    if (event->sampled) check_token(bench, id, event->choice, event);
}

void bench_collect(struct bench *bench) {
    size_t n;
    const struct weft_sched_event *events = weft_sched_events(bench->sched, &n);
    for (size_t i = 0; i < n; i++)
        log_event(bench, &events[i].event);
    weft_sched_events_clear(bench->sched);
}

const struct weft_step_plan *bench_plan(struct bench *bench) {
    const struct weft_step_plan *plan;
    weft_sched_tick(bench->sched, bench->now_us);
    bench_collect(bench);
    if (!weft_sched_plan(bench->sched, bench->now_us, &plan)) return NULL;
    sim_worker_send(bench->worker, plan);
    return sim_worker_last(bench->worker);
}

void bench_run(struct bench *bench) {
    struct weft_errmsg why = {""};
    struct weft_step_result *result = sim_worker_run(bench->worker);
    bench->now_us += result->busy_us;
    weft_err err = weft_sched_result(bench->sched, bench->now_us, result, &why);
    if (err) (void)fprintf(stderr, "%s\n", why.text);
    WEFT_ASSERT(!err);
    bench_collect(bench);
    weft_sched_check(bench->sched);
}

const struct weft_step_plan *bench_step(struct bench *bench) {
    const struct weft_step_plan *plan = bench_plan(bench);
    if (plan) bench_run(bench);
    return plan;
}

void bench_run_until_idle(struct bench *bench, bool two_plans) {
    for (uint32_t n_steps = 0; n_steps < 20000; n_steps++) {
        while (sim_worker_n_queued(bench->worker) < (two_plans ? 2u : 1u) && bench_plan(bench)) {
        }
        if (sim_worker_n_queued(bench->worker) == 0) break;
        bench_run(bench);
    }
    WEFT_ASSERT(weft_sched_idle(bench->sched));
    struct weft_sched_stats stats = bench_stats(bench);
    uint32_t n_used = stats.n_blocks - stats.n_blocks_free; /* sessions may share theirs */
    WEFT_ASSERT(n_used <= stats.n_session_blocks && (n_used > 0) == (stats.n_sessions > 0));
    WEFT_ASSERT(sim_worker_n_slots_used(bench->worker) == 0);
}

void bench_lose_worker(struct bench *bench) {
    weft_sched_new_epoch(bench->sched, bench->now_us, ++bench->epoch);
    sim_worker_reset(bench->worker, bench->epoch);
}

uint32_t bench_token(const struct bench *bench, uint64_t id, uint32_t idx) {
    uint64_t hash = sim_prompt_hash(bench->prompts[id], bench->n_prompt[id], id);
    return sim_token(hash, 0, idx, bench->options.n_vocab);
}

uint32_t bench_n_tokens(const struct bench *bench, uint64_t id) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < bench->n_events; i++)
        n += bench->events[i].request_id == id && bench->events[i].sampled;
    return n;
}

uint32_t bench_first_event(const struct bench *bench, uint64_t id) {
    for (uint32_t i = 0; i < bench->n_events; i++) {
        if (bench->events[i].request_id == id) return i;
    }
    return UINT32_MAX;
}

uint32_t bench_end_event(const struct bench *bench, uint64_t id) {
    for (uint32_t i = 0; i < bench->n_events; i++) {
        if (bench->events[i].request_id == id && bench->events[i].end) return i;
    }
    return UINT32_MAX;
}

enum weft_end bench_end(const struct bench *bench, uint64_t id, uint32_t choice) {
    for (uint32_t i = 0; i < bench->n_events; i++) {
        const struct bench_event *event = &bench->events[i];
        if (event->request_id == id && event->choice == choice && event->end) return event->end;
    }
    return WEFT_END_NONE;
}

struct weft_sched_stats bench_stats(const struct bench *bench) {
    struct weft_sched_stats stats;
    weft_sched_stats(bench->sched, &stats);
    return stats;
}

uint32_t bench_plan_tokens(const struct weft_step_plan *plan) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        n += plan->rows[i].n_tokens;
    return n;
}
