/* The figures of /stats and of MessagePack-RPC's "stats": one object, of bounded size, made from what
 * the router knows. What only the scheduler knows is as of its last snapshot; when that is old, or
 * the scheduler is away, nothing serves, and nobody can say which sequences there are. */
#include <stdio.h>

#include "answers/answers.h"
#include "api/api.h"

static void write_number(struct weft_writer *w, const char *key, uint64_t value) {
    weft_write_key(w, key);
    weft_write_uint(w, value);
}

static void write_flag(struct weft_writer *w, const char *key, bool value) {
    weft_write_key(w, key);
    weft_write_bool(w, value);
}

static void write_seconds(struct weft_writer *w, const char *key, uint64_t us) {
    weft_write_key(w, key);
    weft_write_double(w, (double)us * 1e-6);
}

static void write_number_or_null(struct weft_writer *w, const char *key, double value,
                                 bool is_there) {
    weft_write_key(w, key);
    if (is_there)
        weft_write_double(w, value);
    else
        weft_write_null(w);
}

/* -------------------------------------------------------------------------------- the parts --- */

static bool is_known(const struct weft_api_state *api, uint64_t now_ms) {
    const struct weft_api_upstream *upstream = &api->upstream;
    return upstream->has_snapshot && upstream->is_up &&
           now_ms <= upstream->snapshot_at_ms + WEFT_API_SNAPSHOT_AGE_MS_MAX;
}

static void write_state(const struct weft_api_state *api, uint64_t now_ms, struct weft_writer *w) {
    const struct weft_msg_snapshot *s = &api->upstream.snapshot;
    const char *why = weft_api_why_ill(api, now_ms);
    write_flag(w, "serving", is_known(api, now_ms) && s->serving);
    write_flag(w, "advancing", is_known(api, now_ms) && s->advancing);
    write_flag(w, "draining", api->draining || api->is_leaving || s->draining);
    weft_write_key(w, "reason");
    if (why)
        weft_write_str(w, why);
    else
        weft_write_null(w);
}

static void write_model(const struct weft_api_state *api, struct weft_writer *w) {
    const struct weft_msg_snapshot *s = &api->upstream.snapshot;
    weft_write_key(w, "model");
    weft_write_str(w, api->limits.model_name);
    write_number(w, "max_model_len", s->model.max_model_len);
    write_number(w, "max_num_seqs", s->model.max_seqs);
    write_number(w, "max_num_batched_tokens", s->model.max_batched_tokens);
    write_number(w, "max_queue", s->max_queue);
    write_number(w, "block_size", s->model.block_size);
}

static void write_counts(const struct weft_api_state *api, struct weft_writer *w) {
    const struct weft_msg_snapshot *s = &api->upstream.snapshot;
    const struct weft_api_metrics *m = &api->metrics;
    write_number(w, "num_requests_running", s->n_running);
    write_number(w, "num_requests_waiting", s->n_waiting);
    write_number(w, "connections", m->n_open_connections);
    write_number(w, "kv_blocks", s->n_blocks);
    write_number(w, "kv_blocks_used", s->n_blocks - s->n_blocks_free);
    write_number(w, "kv_blocks_cached", s->n_blocks_cached);
    write_number(w, "kv_blocks_free", s->n_blocks_free);
    if (s->n_window_blocks > 0) {
        write_number(w, "kv_window_blocks", s->n_window_blocks);
        write_number(w, "kv_window_blocks_free", s->n_window_blocks_free);
    }
    write_number(w, "num_preemptions", m->carried.n_preemptions);
    write_number(w, "steps", m->carried.n_steps);
    write_number(w, "prompt_tokens", m->n_prompt_tokens);
    write_number(w, "generation_tokens", m->n_generation_tokens);
}

static void write_rates(const struct weft_api_state *api, uint64_t now_ms, struct weft_writer *w) {
    double prompt, output;
    weft_api_rates_read(&api->metrics.rates, now_ms, &prompt, &output);
    weft_write_key(w, "tokens_per_second");
    weft_write_map(w);
    weft_write_key(w, "prompt");
    weft_write_double(w, prompt);
    weft_write_key(w, "generation");
    weft_write_double(w, output);
    weft_write_end(w);
}

static void write_percentiles(struct weft_writer *w, const char *key,
                              const struct weft_api_recent *recent, uint64_t now_ms) {
    struct weft_api_percentiles p;
    weft_api_recent_percentiles(recent, now_ms, &p);
    weft_write_key(w, key);
    weft_write_map(w);
    write_number_or_null(w, "p50", p.p50, p.n > 0);
    write_number_or_null(w, "p95", p.p95, p.n > 0);
    write_number_or_null(w, "p99", p.p99, p.n > 0);
    write_number(w, "count", p.n);
    weft_write_end(w);
}

static void write_steps(const struct weft_msg_snapshot *s, uint64_t since_us,
                        struct weft_writer *w) {
    weft_write_key(w, "last_steps");
    weft_write_list(w);
    for (uint32_t i = 0; i < s->activity.n_steps; i++) {
        const struct weft_activity_step *step = &s->activity.steps[i];
        weft_write_map(w);
        write_number(w, "step", step->step);
        write_seconds(w, "age_seconds", step->age_us + since_us);
        write_seconds(w, "seconds", step->busy_us);
        write_number(w, "prompt_tokens", step->n_prompt_tokens);
        write_number(w, "decode_tokens", step->n_decode_tokens);
        write_number(w, "sequences", step->n_seqs);
        if (s->n_workers > 1) write_number(w, "group", step->group);
        weft_write_end(w);
    }
    weft_write_end(w);
}

/* Requests of this router go by the id of their answers; those of others, or just ended, by a text
 * made of numbers. */
static void write_who(const struct weft_api_upstream *upstream, const struct weft_activity_seq *seq,
                      struct weft_writer *w) {
    uint32_t choice = seq->choice;
    bool is_ours = seq->router == upstream->snapshot.activity.router;
    const char *id =
        is_ours ? weft_api_upstream_public_id(upstream, seq->request_id, &choice) : NULL;
    char text[48];
    (void)snprintf(text, sizeof text, "%u-%llx", seq->router, (unsigned long long)seq->request_id);
    weft_write_key(w, "request_id");
    weft_write_str(w, id ? id : text);
    write_number(w, "choice", choice);
}

static void write_sequence(const struct weft_api_upstream *upstream,
                           const struct weft_activity_seq *seq, uint64_t since_us,
                           struct weft_writer *w) {
    static const char *const phases[WEFT_ACTIVITY_PHASE_COUNT] = {
        [WEFT_ACTIVITY_WAITING] = "waiting",
        [WEFT_ACTIVITY_PROMPT] = "prompt",
        [WEFT_ACTIVITY_DECODE] = "decode",
    };
    weft_write_map(w);
    write_who(upstream, seq, w);
    weft_write_key(w, "phase");
    weft_write_str(w, phases[seq->phase]);
    write_number(w, "prompt_tokens", seq->n_prompt);
    write_number(w, "prompt_tokens_done", seq->n_prompt_done);
    write_number(w, "output_tokens", seq->n_output);
    write_number(w, "max_tokens", seq->max_tokens);
    write_number(w, "kv_blocks", seq->n_blocks);
    write_seconds(w, "age_seconds", seq->age_us + since_us);
    if (upstream->snapshot.n_workers > 1) write_number(w, "group", seq->group);
    weft_write_end(w);
}

static void write_sequences(const struct weft_api_state *api, uint64_t now_ms, uint64_t since_us,
                            struct weft_writer *w) {
    const struct weft_activity *activity = &api->upstream.snapshot.activity;
    bool shows = is_known(api, now_ms);
    weft_write_key(w, "sequences");
    weft_write_list(w);
    for (uint32_t i = 0; shows && i < activity->n_seqs; i++)
        write_sequence(&api->upstream, &activity->seqs[i], since_us, w);
    weft_write_end(w);
    write_number(w, "sequences_omitted", shows ? activity->n_seqs_omitted : 0);
}

static void write_experts(const struct weft_expert_rows *rows, struct weft_writer *w) {
    weft_write_key(w, "experts");
    if (rows->n_layers == 0) {
        weft_write_null(w);
        return;
    }
    weft_write_map(w);
    write_number(w, "n_experts", rows->n_experts);
    weft_write_key(w, "tokens");
    weft_write_list(w);
    for (uint32_t e = 0; e < rows->n_experts; e++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < rows->n_layers; i++)
            sum += rows->sums[(size_t)i * rows->n_experts + e];
        weft_write_uint(w, sum);
    }
    weft_write_end(w);
    weft_write_end(w);
}

static void write_processes(const struct weft_msg_snapshot *s, const struct weft_api_moment *moment,
                            struct weft_writer *w) {
    weft_write_key(w, "workers");
    weft_write_map(w);
    write_number(w, "known", s->n_workers);
    write_number(w, "serving", s->n_workers_serving);
    weft_write_end(w);
    weft_write_key(w, "resident_bytes");
    weft_write_map(w);
    write_number(w, "router", moment->resident_bytes);
    write_number(w, "scheduler", s->sched_resident_bytes);
    write_number(w, "worker", s->worker_resident_bytes);
    weft_write_end(w);
}

/* Only of several. */
static void write_schedulers(const struct weft_api_upstream *upstream, uint64_t now_ms,
                             struct weft_writer *w) {
    struct weft_api_metrics_scheduler schedulers[WEFT_API_SCHEDULERS_MAX];
    uint32_t n = weft_api_upstream_list(upstream, now_ms, schedulers);
    if (n == 0) return;
    weft_write_key(w, "schedulers");
    weft_write_list(w);
    for (uint32_t i = 0; i < n; i++) {
        weft_write_map(w);
        weft_write_key(w, "url");
        weft_write_str(w, schedulers[i].name);
        write_flag(w, "serving", schedulers[i].is_serving);
        write_number(w, "open_requests", schedulers[i].n_open);
        write_number(w, "placed_requests", schedulers[i].n_placed);
        weft_write_end(w);
    }
    weft_write_end(w);
}

/* ------------------------------------------------------------------------------- the object --- */

void wefti_api_write_stats(const struct weft_api_state *api, const struct weft_api_moment *moment,
                           struct weft_writer *w) {
    const struct weft_api_upstream *upstream = &api->upstream;
    const struct weft_api_metrics *m = &api->metrics;
    uint64_t now_ms = moment->now_ms, at_ms = upstream->snapshot_at_ms;
    uint64_t since_us = now_ms > at_ms ? (now_ms - at_ms) * 1000 : 0;
    weft_write_map(w);
    write_state(api, now_ms, w);
    write_model(api, w);
    write_counts(api, w);
    write_rates(api, now_ms, w);
    write_percentiles(w, "time_to_first_token_seconds", &m->recent_ttft, now_ms);
    write_percentiles(w, "inter_token_latency_seconds", &m->recent_inter_token, now_ms);
    write_steps(&upstream->snapshot, since_us, w);
    write_sequences(api, now_ms, since_us, w);
    write_experts(&m->experts, w);
    write_processes(&upstream->snapshot, moment, w);
    write_schedulers(upstream, now_ms, w);
    weft_write_end(w);
}
