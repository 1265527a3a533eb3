/* Notes which thread was busy with what, and when.
 *
 * A compute thread is in one operator at a time, so one clock reading per change is enough: it ends
 * a span and begins the next. Sums run on for as long as nobody resets them; spans go round in a
 * ring. A thread writes its own log alone, during a pass, and whoever steps reads them between
 * passes. The forward room books what an operator has to read and compute, once per pass. */
#include "runtime/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "runtime/memory.h"

struct wefti_profile {
    uint32_t n_threads;
    uint64_t n_steps, step_ns, gap_ns, last_end_ns; /* last_end_ns 0: no step since the reset */
    struct wefti_profile_counts counts[WEFT_ENG_OP_COUNT];
    struct wefti_profile_log *logs; /* [n_threads + 1], the last one the steps' */
    void *map;
    size_t map_bytes;
};

static const char *const op_names[WEFT_ENG_OP_COUNT + 1] = {
    [WEFT_ENG_OP_EMBED] = "embed",
    [WEFT_ENG_OP_ATTN_NORM] = "attn_norm",
    [WEFT_ENG_OP_QKV] = "qkv",
    [WEFT_ENG_OP_ROPE_KV] = "rope_kv",
    [WEFT_ENG_OP_INDEX] = "index",
    [WEFT_ENG_OP_ATTENTION] = "attention",
    [WEFT_ENG_OP_SCAN] = "scan",
    [WEFT_ENG_OP_O_CONVERT] = "o_convert",
    [WEFT_ENG_OP_O] = "o",
    [WEFT_ENG_OP_FFN_NORM] = "ffn_norm",
    [WEFT_ENG_OP_GATE_UP] = "gate_up",
    [WEFT_ENG_OP_SILU_MUL] = "silu_mul",
    [WEFT_ENG_OP_DOWN_CONVERT] = "down_convert",
    [WEFT_ENG_OP_DOWN] = "down",
    [WEFT_ENG_OP_ROUTE] = "route",
    [WEFT_ENG_OP_COMBINE] = "combine",
    [WEFT_ENG_OP_HEAD_NORM] = "head_norm",
    [WEFT_ENG_OP_HEAD] = "head",
    [WEFT_ENG_OP_SAMPLE] = "sample",
    [WEFT_ENG_OP_WAIT] = "wait",
    [WEFT_ENG_OP_COUNT] = "step",
};

const char *weft_eng_op_name(enum weft_eng_op op) {
    WEFT_ASSERT(op <= WEFT_ENG_OP_COUNT);
    return op_names[op];
}

/* ----------------------------------------------------------------------------------- memory --- */

static void lay_out(struct wefti_profile *profile, struct wefti_memory_layout *layout) {
    uint32_t n_logs = profile->n_threads + 1;
    profile->logs = wefti_memory_reserve(layout, n_logs, sizeof *profile->logs);
    for (uint32_t i = 0; i < n_logs; i++) {
        struct weft_eng_span *ring = wefti_memory_reserve(layout, WEFT_ENG_SPANS_MAX, sizeof *ring);
        if (layout->base) profile->logs[i].ring = ring;
    }
}

weft_err wefti_profile_new(uint32_t n_threads, struct wefti_profile **profile_out,
                           struct weft_errmsg *why) {
    *profile_out = NULL;
    struct wefti_profile *profile = calloc(1, sizeof *profile);
    if (!profile) return weft_err_set(why, WEFT_E_NOMEM, "no memory for the profile");
    profile->n_threads = n_threads;
    struct wefti_memory_layout layout = {0};
    lay_out(profile, &layout);
    profile->map_bytes = layout.used;
    profile->map = wefti_memory_map(profile->map_bytes);
    if (!profile->map) {
        weft_err err = weft_err_set(why, WEFT_E_NOMEM, "no memory for a profile of %zu bytes",
                                    profile->map_bytes);
        free(profile);
        return err;
    }
    layout = (struct wefti_memory_layout){.base = profile->map};
    lay_out(profile, &layout);
    wefti_profile_reset(profile);
    *profile_out = profile;
    return WEFT_OK;
}

void wefti_profile_free(struct wefti_profile *profile) {
    if (!profile) return;
    wefti_memory_unmap(profile->map, profile->map_bytes);
    free(profile);
}

void wefti_profile_reset(struct wefti_profile *profile) {
    profile->n_steps = profile->step_ns = profile->gap_ns = profile->last_end_ns = 0;
    memset(profile->counts, 0, sizeof profile->counts);
    for (uint32_t i = 0; i <= profile->n_threads; i++) {
        struct weft_eng_span *ring = profile->logs[i].ring;
        profile->logs[i] = (struct wefti_profile_log){
            .op = WEFT_ENG_OP_COUNT,
            .layer = UINT32_MAX,
            .ring = ring,
        };
    }
}

/* ------------------------------------------------------------------------------------- logs --- */

struct wefti_profile_log *wefti_profile_thread_log(struct wefti_profile *profile,
                                                   uint32_t thread_idx) {
    WEFT_ASSERT(thread_idx < profile->n_threads);
    return &profile->logs[thread_idx];
}

static void add_span(struct wefti_profile_log *log, const struct weft_eng_span *span) {
    log->ring[log->n_spans++ % WEFT_ENG_SPANS_MAX] = *span;
}

void wefti_profile_mark(struct wefti_profile_log *log, enum weft_eng_op op) {
    uint64_t now = weft_now_ns();
    if (log->op != WEFT_ENG_OP_COUNT) {
        struct weft_eng_span span = {log->since_ns, now, log->op, log->open_layer};
        add_span(log, &span);
        log->busy_ns[log->op] += now - log->since_ns - log->aside_ns;
    }
    log->since_ns = now;
    log->aside_ns = 0;
    log->op = op;
    log->open_layer = log->layer;
}

void wefti_profile_mark_aside(struct wefti_profile_log *log, enum weft_eng_op op,
                              uint64_t begin_ns) {
    WEFT_ASSERT(log->op != WEFT_ENG_OP_COUNT && begin_ns >= log->since_ns);
    uint64_t ns = weft_now_ns() - begin_ns;
    log->busy_ns[op] += ns;
    log->aside_ns += ns;
}

/* ---------------------------------------------------------------------------------- booking --- */

void wefti_profile_step(struct wefti_profile *profile, uint64_t begin_ns, uint64_t end_ns,
                        uint32_t n_tokens) {
    struct weft_eng_span span = {begin_ns, end_ns, WEFT_ENG_OP_COUNT, n_tokens};
    add_span(&profile->logs[profile->n_threads], &span);
    if (profile->last_end_ns) profile->gap_ns += begin_ns - profile->last_end_ns;
    profile->last_end_ns = end_ns;
    profile->n_steps++;
    profile->step_ns += end_ns - begin_ns;
}

struct wefti_profile_counts *wefti_profile_counts_of(struct wefti_profile *profile,
                                                     enum weft_eng_op op) {
    WEFT_ASSERT(op < WEFT_ENG_OP_COUNT);
    return &profile->counts[op];
}

/* ---------------------------------------------------------------------------------- reading --- */

void wefti_profile_read(const struct wefti_profile *profile, struct weft_eng_profile *out) {
    static const enum weft_eng_act acts[WEFT_PEAK_COUNT] = {
        [WEFT_PEAK_F32] = WEFT_ENG_ACT_F32,
        [WEFT_PEAK_BF16] = WEFT_ENG_ACT_BF16,
        [WEFT_PEAK_INT8] = WEFT_ENG_ACT_INT8,
    };
    *out = (struct weft_eng_profile){
        .n_threads = profile->n_threads,
        .n_steps = profile->n_steps,
        .step_ns = profile->step_ns,
        .gap_ns = profile->gap_ns,
    };
    for (uint32_t op = 0; op < WEFT_ENG_OP_COUNT; op++) {
        const struct wefti_profile_counts *counts = &profile->counts[op];
        out->ops[op] = (struct weft_eng_op_totals){.n_calls = counts->n_calls,
                                                   .bytes = counts->bytes,
                                                   .ops = counts->ops,
                                                   .activations = acts[counts->peak]};
        for (uint32_t t = 0; t < profile->n_threads; t++) {
            out->ops[op].busy_ns += profile->logs[t].busy_ns[op];
        }
    }
}

uint32_t wefti_profile_spans(const struct wefti_profile *profile, uint32_t track,
                             struct weft_eng_span *out, uint32_t max) {
    WEFT_ASSERT(track <= profile->n_threads);
    const struct wefti_profile_log *log = &profile->logs[track];
    uint64_t n = log->n_spans < WEFT_ENG_SPANS_MAX ? log->n_spans : WEFT_ENG_SPANS_MAX;
    if (n > max) n = max;
    for (uint64_t i = 0; i < n; i++) {
        out[i] = log->ring[(log->n_spans - n + i) % WEFT_ENG_SPANS_MAX];
    }
    return (uint32_t)n;
}
