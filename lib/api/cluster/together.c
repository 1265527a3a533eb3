/* What several schedulers are as one: sums of those that are there. While none is, the last that was
 * known. */
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "base/log.h"
#include "base/minmax.h"
#include "cluster/placing.h"

static bool is_there(const struct weft_api_scheduler *s, uint64_t now_ms) {
    return s->is_up && s->has_snapshot && !s->is_stranger &&
           now_ms <= s->snapshot_at_ms + WEFT_API_SNAPSHOT_AGE_MS_MAX;
}

static uint32_t sum_u32(uint32_t a, uint32_t b) {
    return b <= UINT32_MAX - a ? a + b : UINT32_MAX;
}

/* The first one's model, as far as all allow: what routers let in must fit every one. */
static void add_model(struct weft_msg_snapshot *sum, const struct weft_msg_snapshot *s) {
    if (!s->has_model) return;
    if (!sum->has_model) sum->model = s->model;
    sum->has_model = true;
    sum->model.max_model_len = weft_min_u32(sum->model.max_model_len, s->model.max_model_len);
    sum->model.max_seqs = weft_min_u32(sum->model.max_seqs, s->model.max_seqs);
    sum->model.max_batched_tokens =
        weft_min_u32(sum->model.max_batched_tokens, s->model.max_batched_tokens);
}

static void add_snapshot(struct weft_msg_snapshot *sum, const struct weft_msg_snapshot *s) {
    sum->serving = sum->serving || s->serving;
    sum->advancing = sum->advancing || (s->serving && s->advancing);
    sum->draining = sum->draining && s->draining;
    add_model(sum, s);
    sum->n_waiting = sum_u32(sum->n_waiting, s->n_waiting);
    sum->n_running = sum_u32(sum->n_running, s->n_running);
    sum->n_blocks = sum_u32(sum->n_blocks, s->n_blocks);
    sum->n_blocks_free = sum_u32(sum->n_blocks_free, s->n_blocks_free);
    sum->n_blocks_cached = sum_u32(sum->n_blocks_cached, s->n_blocks_cached);
    sum->n_window_blocks = sum_u32(sum->n_window_blocks, s->n_window_blocks);
    sum->n_window_blocks_free = sum_u32(sum->n_window_blocks_free, s->n_window_blocks_free);
    sum->max_queue = sum_u32(sum->max_queue, s->max_queue);
    sum->spill_bytes += s->spill_bytes;
    sum->n_sessions = sum_u32(sum->n_sessions, s->n_sessions);
    sum->n_session_blocks = sum_u32(sum->n_session_blocks, s->n_session_blocks);
    sum->n_checkpoints_held = sum_u32(sum->n_checkpoints_held, s->n_checkpoints_held);
#define ADD(name, ...) sum->name += s->name;
    WEFT_COUNTER_LIST(ADD, ADD)
#undef ADD
    for (uint32_t i = 0; i < WEFT_ITER_BUCKETS; i++)
        sum->iter_tokens[i] += s->iter_tokens[i];
    sum->sched_resident_bytes += s->sched_resident_bytes;
    sum->worker_resident_bytes += s->worker_resident_bytes;
    if (!sum->sched_pid) sum->sched_pid = s->sched_pid;
    sum->n_workers = sum_u32(sum->n_workers, s->n_workers);
    sum->n_workers_serving = sum_u32(sum->n_workers_serving, s->n_workers_serving);
}

/* --------------------------------------------------------------------------------------- activity --- */

/* The newest steps of each, in order of age; groups are numbered through. */
static void add_steps(struct weft_api_upstream *upstream, const struct weft_activity *of,
                      uint32_t n_most, uint32_t first_group, uint64_t since_us) {
    uint32_t n = weft_min_u32(of->n_steps, n_most), *n_all = &upstream->snapshot.activity.n_steps;
    for (uint32_t i = of->n_steps - n; i < of->n_steps; i++) {
        struct weft_activity_step step = of->steps[i];
        step.age_us += since_us;
        step.group = sum_u32(step.group, first_group);
        WEFT_ASSERT(*n_all < WEFT_ACTIVITY_STEPS_MAX);
        uint32_t at = (*n_all)++;
        for (; at > 0 && upstream->steps[at - 1].age_us < step.age_us; at--)
            upstream->steps[at] = upstream->steps[at - 1];
        upstream->steps[at] = step;
    }
}

/* Each scheduler has numbers of its own for routers. Ours is 0 here. */
static void add_seqs(struct weft_api_upstream *upstream, uint32_t scheduler, uint32_t n_most,
                     uint32_t first_group, uint64_t since_us) {
    const struct weft_activity *of = &upstream->schedulers[scheduler].snapshot.activity;
    struct weft_activity *all = &upstream->snapshot.activity;
    uint32_t n = weft_min_u32(of->n_seqs, n_most);
    for (uint32_t i = 0; i < n; i++) {
        struct weft_activity_seq seq = of->seqs[i];
        bool is_ours = seq.router == of->router;
        seq.router = is_ours ? 0 : (scheduler << 16) + (seq.router & 0x7fff) + 1;
        seq.age_us += since_us;
        seq.group = sum_u32(seq.group, first_group);
        WEFT_ASSERT(all->n_seqs < WEFT_ACTIVITY_SEQS_MAX);
        upstream->seqs[all->n_seqs++] = seq;
    }
    all->n_seqs_omitted = sum_u32(all->n_seqs_omitted, sum_u32(of->n_seqs_omitted, of->n_seqs - n));
}

/* -------------------------------------------------------------------------------------- together --- */

static void copy_only(struct weft_api_upstream *upstream) {
    const struct weft_api_scheduler *s = &upstream->schedulers[0];
    upstream->is_up = s->is_up;
    upstream->has_snapshot = s->has_snapshot;
    upstream->snapshot_at_ms = s->snapshot_at_ms;
    upstream->served_at_ms = s->served_at_ms;
    upstream->snapshot = s->snapshot;
    memcpy(upstream->steps, s->steps, s->snapshot.activity.n_steps * sizeof s->steps[0]);
    memcpy(upstream->seqs, s->seqs, s->snapshot.activity.n_seqs * sizeof s->seqs[0]);
}

static void add_all(struct weft_api_upstream *upstream, uint32_t which, uint32_t n) {
    uint32_t first_group = 0;
    for (uint32_t i = 0; i < upstream->n_schedulers; i++) {
        const struct weft_api_scheduler *s = &upstream->schedulers[i];
        if (!(which & 1u << i)) continue;
        upstream->snapshot_at_ms = weft_max_u64(upstream->snapshot_at_ms, s->snapshot_at_ms);
        add_snapshot(&upstream->snapshot, &s->snapshot);
    }
    for (uint32_t i = 0; i < upstream->n_schedulers; i++) {
        const struct weft_api_scheduler *s = &upstream->schedulers[i];
        if (!(which & 1u << i)) continue;
        uint64_t since_us = (upstream->snapshot_at_ms - s->snapshot_at_ms) * 1000;
        add_steps(upstream, &s->snapshot.activity, WEFT_ACTIVITY_STEPS_MAX / n, first_group,
                  since_us);
        add_seqs(upstream, i, WEFT_ACTIVITY_SEQS_MAX / n, first_group, since_us);
        first_group = sum_u32(first_group, s->snapshot.n_workers);
    }
}

void wefti_api_see_together(struct weft_api_upstream *upstream, uint64_t now_ms) {
    uint32_t there = 0, known = 0, n_there = 0, n_known = 0;
    if (!upstream->cluster) {
        copy_only(upstream);
    } else {
        upstream->is_up = false;
        for (uint32_t i = 0; i < upstream->n_schedulers; i++) {
            const struct weft_api_scheduler *s = &upstream->schedulers[i];
            bool is_here = is_there(s, now_ms), is_known = s->has_snapshot && !s->is_stranger;
            there |= is_here ? 1u << i : 0;
            known |= is_known ? 1u << i : 0;
            n_there += is_here;
            n_known += is_known;
            upstream->is_up = upstream->is_up || (s->is_up && !s->is_stranger);
            upstream->served_at_ms = weft_max_u64(upstream->served_at_ms, s->served_at_ms);
        }
        upstream->has_snapshot = n_known > 0;
        upstream->snapshot = (struct weft_msg_snapshot){.draining = n_known > 0};
        upstream->snapshot_at_ms = 0;
        if (n_known > 0) add_all(upstream, n_there ? there : known, n_there ? n_there : n_known);
    }
    upstream->snapshot.activity.steps = upstream->steps;
    upstream->snapshot.activity.seqs = upstream->seqs;
}

void wefti_api_sum_experts(const struct weft_api_upstream *upstream,
                           struct weft_expert_rows *rows_out) {
    struct weft_errmsg why;
    weft_expert_rows_fini(rows_out);
    for (uint32_t i = 0; i < upstream->n_schedulers; i++) {
        const struct weft_expert_rows *of = &upstream->schedulers[i].experts;
        if (of->n_layers == 0) continue;
        const struct weft_msg_experts told = {of->n_layers, of->n_experts, of->layers, of->sums};
        weft_err err = weft_expert_rows_add(rows_out, &told, &why);
        if (err) weft_warn("counts of experts are left out: %s", why.text);
    }
}

uint32_t weft_api_upstream_list(const struct weft_api_upstream *upstream, uint64_t now_ms,
                                struct weft_api_metrics_scheduler out[WEFT_API_SCHEDULERS_MAX]) {
    const struct wefti_api_cluster *cluster = upstream->cluster;
    for (uint32_t i = 0; cluster && i < cluster->n; i++)
        out[i] = (struct weft_api_metrics_scheduler){
            .name = upstream->schedulers[i].link.name,
            .is_serving = wefti_api_cluster_can_take(cluster, i, NULL, now_ms),
            .n_open = cluster->nodes[i].n_open,
            .n_placed = cluster->nodes[i].n_placed,
        };
    return cluster ? cluster->n : 0;
}
