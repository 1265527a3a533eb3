/* Opening an engine, and one step end to end: check, commit, compute, report. */
#include "engine/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/minmax.h"
#include "forward/forward.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "runtime/kv_cache.h"
#include "runtime/memory.h"
#include "runtime/options.h"
#include "runtime/plan_check.h"
#include "runtime/pool.h"
#include "runtime/profile.h"
#include "runtime/slots.h"
#include "sampler/sampler.h"
#include "weights/calibrate.h"
#include "weights/weights.h"

/* What happens to the logits of one row. */
struct job {
    uint32_t out_idx;
    bool samples;                   /* else: the log-probability of the prompt's next token */
    uint32_t target;                /* that token */
    struct weft_logprobs *logprobs; /* NULL: none wanted */
    struct wefti_sampler_top top;
    bool is_broken; /* its logits are not numbers */
};

struct weft_eng {
    const struct weft_kern_table *kern;
    struct wefti_pool *pool;
    struct wefti_weights weights;
    struct wefti_kv_cache kv;
    struct wefti_slots slots;
    struct wefti_forward *forward;
    struct wefti_profile *profile; /* NULL: off */
    struct weft_eng_info info;
    enum weft_kv_dtype kv_dtype;
    bool exact;           /* f32 activations all over */
    uint32_t long_prompt; /* prompts longer than this are long ones */

    uint64_t epoch, next_step;
    uint64_t last_end_us; /* 0: nothing ran yet */
    bool has_warned;      /* of logits that are not numbers */
    struct weft_step_result result;

    /* Of one step, sized by the limits. */
    uint32_t *tokens;                       /* [max_batched_tokens] */
    struct weft_attn_row *rows;             /* [max_batched_tokens] */
    bool *is_long;                          /* [max_batched_tokens] */
    uint32_t *logit_rows;                   /* [max_batched_tokens] */
    struct job *jobs;                       /* [max_batched_tokens], one per logit row */
    struct weft_logprobs *prompt_logprobs;  /* [max_batched_tokens] */
    struct weft_step_out *outs;             /* [max_seqs] */
    struct wefti_sampler_scratch *samplers; /* [n_threads] */
    uint8_t *top;                           /* best tokens: ids, then values, row by row */
    size_t top_bytes, top_used;             /* as much as a step may yield at most */
    void *map;
    size_t map_bytes;
};

/* ---------------------------------------------------------------------------------- opening --- */

static void lay_out(weft_eng *eng, struct wefti_memory_layout *layout) {
    size_t n_tokens = eng->info.max_batched_tokens, n_seqs = eng->info.max_seqs;
    size_t n_vocab = eng->info.n_vocab, n_threads = eng->info.n_threads;
    eng->tokens = wefti_memory_reserve(layout, n_tokens, sizeof *eng->tokens);
    eng->rows = wefti_memory_reserve(layout, n_tokens, sizeof *eng->rows);
    eng->is_long = wefti_memory_reserve(layout, n_tokens, sizeof *eng->is_long);
    eng->logit_rows = wefti_memory_reserve(layout, n_tokens, sizeof *eng->logit_rows);
    eng->jobs = wefti_memory_reserve(layout, n_tokens, sizeof *eng->jobs);
    eng->prompt_logprobs = wefti_memory_reserve(layout, n_tokens, sizeof *eng->prompt_logprobs);
    eng->outs = wefti_memory_reserve(layout, n_seqs, sizeof *eng->outs);
    /* Address space, resident only where somebody ever asked for so much. */
    size_t top_bytes_max = n_tokens * n_vocab * WEFT_LOGPROB_TOP_BYTES;
    eng->top_bytes =
        top_bytes_max < WEFT_STEP_LOGPROB_BYTES_MAX ? top_bytes_max : WEFT_STEP_LOGPROB_BYTES_MAX;
    eng->top = wefti_memory_reserve(layout, eng->top_bytes, 1);
    eng->samplers = wefti_memory_reserve(layout, n_threads, sizeof *eng->samplers);
    for (size_t t = 0; t < n_threads; t++) {
        struct wefti_sampler_scratch s = wefti_sampler_scratch_reserve(layout, eng->info.n_vocab);
        if (layout->base) eng->samplers[t] = s;
    }
}

static weft_err open_step_memory(weft_eng *eng, struct weft_errmsg *why) {
    struct wefti_memory_layout layout = {0};
    lay_out(eng, &layout);
    eng->map_bytes = layout.used;
    eng->map = wefti_memory_map(eng->map_bytes);
    if (!eng->map)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %zu bytes of step state",
                            eng->map_bytes);
    layout = (struct wefti_memory_layout){.base = eng->map};
    lay_out(eng, &layout);
    return WEFT_OK;
}

/* Equal where the same request yields the same bits: content, stored types (both in the layout),
 * cache type, ISA. */
static void set_fingerprint(weft_eng *eng) {
    uint64_t facts[3] = {eng->weights.model_hash, eng->weights.layout_hash,
                         (uint64_t)eng->kv_dtype};
    uint64_t hash = XXH64(facts, sizeof facts, 0);
    hash = XXH64(eng->kern->name, strlen(eng->kern->name), hash);
    (void)snprintf(eng->info.fingerprint, sizeof eng->info.fingerprint, "fp_%016" PRIx64, hash);
}

static void set_info(weft_eng *eng, const struct weft_model_params *p,
                     const struct weft_eng_options *options) {
    struct weft_eng_info *info = &eng->info;
    (void)snprintf(info->model_name, sizeof info->model_name, "%s", p->name);
    (void)snprintf(info->arch, sizeof info->arch, "%s", p->arch);
    (void)snprintf(info->isa, sizeof info->isa, "%s", eng->kern->name);
    info->n_vocab = p->n_vocab;
    info->n_layers = p->n_layers;
    info->n_experts = p->moe.n_experts;
    info->n_experts_used = p->moe.n_used;
    info->block_size = options->block_size;
    info->max_model_len = options->max_model_len ? options->max_model_len : p->n_context;
    info->max_seqs = options->max_seqs;
    info->max_batched_tokens = options->max_batched_tokens;
    info->n_threads =
        options->n_threads ? options->n_threads : wefti_pool_n_usable_cpus(options->n_sharers);
}

/* Of experts those that a token takes. */
static void set_weight_info(weft_eng *eng, const struct weft_model_params *p) {
    static const enum weft_eng_act acts[WEFT_PEAK_COUNT] = {
        [WEFT_PEAK_F32] = WEFT_ENG_ACT_F32,
        [WEFT_PEAK_BF16] = WEFT_ENG_ACT_BF16,
        [WEFT_PEAK_INT8] = WEFT_ENG_ACT_INT8,
    };
    struct weft_eng_info *info = &eng->info;
    const struct wefti_weights *weights = &eng->weights;
    uint64_t n[WEFT_PEAK_COUNT] = {0};
    for (uint32_t i = 0; i < weights->n_layers; i++) {
        const struct wefti_weights_layer *l = &weights->layers[i];
        const struct wefti_weights_matrix *matrices[] = {&l->q_a, &l->q,    &l->k,  &l->v,
                                                         &l->o,   &l->gate, &l->up, &l->down};
        for (size_t m = 0; m < sizeof matrices / sizeof matrices[0]; m++)
            n[weft_kern_peak_of(weft_kern_act_of(matrices[m]->kind))] +=
                (uint64_t)matrices[m]->n * matrices[m]->k;
        const struct wefti_weights_matrix *of_head[] = {&l->up_k.first, &l->up_v.first};
        for (size_t m = 0; l->latent_norm && m < sizeof of_head / sizeof of_head[0]; m++)
            n[weft_kern_peak_of(weft_kern_act_of(of_head[m]->kind))] +=
                (uint64_t)of_head[m]->n * of_head[m]->k * p->n_heads;
        const struct wefti_weights_expert *e = l->experts;
        if (!e) continue;
        const struct wefti_weights_matrix *of_expert[] = {&e->gate, &e->up, &e->down};
        for (size_t m = 0; m < sizeof of_expert / sizeof of_expert[0]; m++)
            n[weft_kern_peak_of(weft_kern_act_of(of_expert[m]->kind))] +=
                (uint64_t)of_expert[m]->n * of_expert[m]->k * p->moe.n_used;
    }
    uint32_t most = 0;
    for (uint32_t peak = 0; peak < WEFT_PEAK_COUNT; peak++) {
        info->n_layer_weights += n[peak];
        if (n[peak] > n[most]) most = peak;
    }
    info->activations = acts[most];
    info->n_head_weights = (uint64_t)weights->head.n * weights->head.k;
    info->weight_bytes = weights->bytes;
    info->step_weight_bytes = weights->step_bytes;
    info->weights_inherited = weights->inherited;
}

static weft_err open_model(weft_eng *eng, const char *path, weft_model *model,
                           const struct weft_eng_options *options, struct weft_errmsg *why) {
    const struct weft_model_params *p = weft_model_params(model);
    weft_err err = wefti_options_check(options, p, why);
    if (err) return err;
    eng->kv_dtype = wefti_kv_cache_dtype(options);
    eng->exact = options->activations == WEFT_ENG_ACT_F32;
    eng->long_prompt = weft_model_long_prompt(model);
    set_info(eng, p, options);
    err = wefti_pool_new(eng->info.n_threads, &eng->pool, why);
    if (!err) err = wefti_weights_open(&eng->weights, path, model, options, eng->pool, why);
    if (!err) err = wefti_kv_cache_open(&eng->kv, p, options, &eng->info, why);
    if (!err) err = wefti_slots_init(&eng->slots, &eng->info, why);
    if (!err) err = open_step_memory(eng, why);
    if (!err && options->profile) err = wefti_profile_new(eng->info.n_threads, &eng->profile, why);
    if (err) return err;
    const struct wefti_forward_config config = {.kern = eng->kern,
                                                .pool = eng->pool,
                                                .weights = &eng->weights,
                                                .kv = &eng->kv,
                                                .profile = eng->profile,
                                                .model = model,
                                                .max_batched_tokens = eng->info.max_batched_tokens};
    err = wefti_forward_new(&config, &eng->forward, why);
    if (err) return err;
    set_weight_info(eng, weft_model_params(model));
    set_fingerprint(eng);
    wefti_pool_unpin_caller(
        eng->pool); /* who opens need not be who steps, and may start more threads */
    return WEFT_OK;
}

weft_err weft_eng_open(const char *path, const struct weft_eng_options *options, weft_eng **eng_out,
                       struct weft_errmsg *why) {
    *eng_out = NULL;
    weft_model *model = NULL;
    weft_err err = WEFT_E_NOMEM;
    weft_eng *eng = calloc(1, sizeof *eng);
    if (!eng) {
        err = weft_err_set(why, err, "no memory for the engine");
        goto cleanup;
    }
    err = weft_kern_select(&eng->kern, why);
    if (err) goto cleanup;
    err = weft_model_open(path, &model, why);
    if (err) goto cleanup;
    err = open_model(eng, path, model, options, why);
    if (err) goto cleanup;
    *eng_out = eng;
    eng = NULL;
cleanup:
    weft_model_free(model); /* all that is needed of it has been packed */
    weft_eng_free(eng);
    return err;
}

void weft_eng_free(weft_eng *eng) {
    if (!eng) return;
    wefti_pool_free(eng->pool);
    wefti_forward_free(eng->forward);
    wefti_profile_free(eng->profile);
    wefti_slots_fini(&eng->slots);
    wefti_weights_close(&eng->weights);
    wefti_kv_cache_close(&eng->kv);
    wefti_memory_unmap(eng->map, eng->map_bytes);
    free(eng);
}

const struct weft_eng_info *weft_eng_info(const weft_eng *eng) {
    return &eng->info;
}

uint64_t weft_eng_progress(const weft_eng *eng) {
    return wefti_pool_progress_sum(eng->pool);
}

void weft_eng_reset(weft_eng *eng, uint64_t epoch) {
    wefti_slots_clear(&eng->slots);
    eng->epoch = epoch;
    eng->next_step = 0;
}

void weft_eng_profile(const weft_eng *eng, struct weft_eng_profile *out) {
    *out = (struct weft_eng_profile){0};
    if (eng->profile) wefti_profile_read(eng->profile, out);
}

void weft_eng_profile_reset(weft_eng *eng) {
    if (eng->profile) wefti_profile_reset(eng->profile);
}

uint32_t weft_eng_profile_spans(const weft_eng *eng, uint32_t thread_idx, struct weft_eng_span *out,
                                uint32_t max) {
    return eng->profile ? wefti_profile_spans(eng->profile, thread_idx, out, max) : 0;
}

/* ------------------------------------------------------------------------------- log-probs --- */

static uint32_t n_top_of(const weft_eng *eng, int32_t n_asked) {
    return n_asked <= 0 ? 0 : weft_min_u32((uint32_t)n_asked, eng->info.n_vocab);
}

static void give_top(weft_eng *eng, struct job *job, struct weft_logprobs *logprobs,
                     uint32_t n_top) {
    job->logprobs = logprobs;
    job->top.n = n_top;
    job->top.ids = (uint32_t *)(void *)(eng->top + eng->top_used);
    job->top.logprobs = (float *)(void *)(job->top.ids + n_top);
    eng->top_used += (size_t)n_top * WEFT_LOGPROB_TOP_BYTES;
    WEFT_ASSERT(eng->top_used <= eng->top_bytes); /* plan.c counted */
}

/* ------------------------------------------------------------------------------------- step --- */

/* What a step has gathered so far. */
struct step {
    const struct weft_step_plan *plan;
    uint32_t n_tokens, n_jobs, n_prompt_logprobs;
};

static weft_err check_step_plan(weft_eng *eng, const struct weft_step_plan *plan,
                                struct weft_errmsg *why) {
    if (plan->epoch < eng->epoch)
        return weft_err_set(why, WEFT_E_STATE, "a plan of epoch %" PRIu64 ", we are in %" PRIu64,
                            plan->epoch, eng->epoch);
    bool is_new_epoch = plan->epoch > eng->epoch;
    uint64_t wanted = is_new_epoch ? 0 : eng->next_step;
    if (plan->step != wanted)
        return weft_err_set(why, WEFT_E_PROTO, "a plan of step %" PRIu64 ", wanted %" PRIu64,
                            plan->step, wanted);
    return wefti_plan_check(&eng->slots, plan, is_new_epoch, why);
}

static void commit_plan(weft_eng *eng, const struct weft_step_plan *plan) {
    if (plan->epoch > eng->epoch) weft_eng_reset(eng, plan->epoch);
    eng->next_step++;
    for (uint32_t i = 0; i < plan->n_releases; i++) {
        wefti_slot_release(&eng->slots, &plan->releases[i]);
    }
    for (uint32_t i = 0; i < plan->n_starts; i++) {
        wefti_slot_start(&eng->slots, &plan->starts[i]);
    }
    for (uint32_t i = 0; i < plan->n_grants; i++) {
        wefti_slot_grant(&eng->slots, &plan->grants[i]);
    }
}

static struct job *add_job(weft_eng *eng, struct step *step, uint32_t flat_row, uint32_t out_idx) {
    eng->logit_rows[step->n_jobs] = flat_row;
    struct job *job = &eng->jobs[step->n_jobs++];
    *job = (struct job){.out_idx = out_idx};
    return job;
}

/* Puts the tokens of a row into the batch, and notes which of them need logits for what. */
static void gather_row(weft_eng *eng, struct step *step, const struct weft_step_row *row,
                       uint32_t out_idx) {
    struct wefti_slot *slot = &eng->slots.slots[row->slot];
    struct weft_step_out *out = &eng->outs[out_idx];
    struct weft_step_seq seq = wefti_slot_seq(&eng->slots, slot);
    struct weft_step_span span = weft_step_prompt_span(&seq, row->n_tokens);
    uint32_t first = slot->n_computed, end = first + row->n_tokens, flat = step->n_tokens;
    out->ran = true;
    out->prompt_pos = span.begin;
    out->n_prompt_logprobs = span.end - span.begin;
    out->prompt_logprobs = eng->prompt_logprobs + step->n_prompt_logprobs;
    for (uint32_t pos = first; pos < end; pos++, flat++) {
        eng->tokens[flat] = slot->tokens[pos];
        eng->rows[flat] = (struct weft_attn_row){.block_table = slot->table, .pos = pos};
        eng->is_long[flat] = slot->n_prompt > eng->long_prompt;
        if (pos + 1 < span.begin || pos + 1 >= span.end) continue;
        struct job *job = add_job(eng, step, flat, out_idx);
        job->target = slot->tokens[pos + 1];
        give_top(eng, job, &eng->prompt_logprobs[step->n_prompt_logprobs++],
                 n_top_of(eng, slot->sampling.n_prompt_logprobs));
    }
    step->n_tokens = flat;
    slot->n_computed = end;
    if (span.end > span.begin) slot->n_prompt_logprobs_done = span.end;
    if (end < slot->n_known || !wefti_slot_may_sample(&eng->slots, slot)) return;
    struct job *job = add_job(eng, step, flat - 1, out_idx);
    job->samples = true;
    if (slot->sampling.n_logprobs < 0) return;
    out->has_logprobs = true;
    give_top(eng, job, &out->logprobs, n_top_of(eng, slot->sampling.n_logprobs));
}

static void gather(weft_eng *eng, struct step *step) {
    eng->top_used = 0;
    for (uint32_t i = 0; i < step->plan->n_rows; i++) {
        const struct weft_step_row *row = &step->plan->rows[i];
        const struct wefti_slot *slot = &eng->slots.slots[row->slot];
        eng->outs[i] =
            (struct weft_step_out){.slot = row->slot, .gen = row->gen, .finish = slot->finish};
        if (slot->finish == WEFT_FINISH_NONE) gather_row(eng, step, row, i);
    }
}

/* Runs on any compute thread; everything it writes belongs to this row. */
static void on_logits(void *ctx, uint32_t i, float *logits, uint32_t thread_idx) {
    weft_eng *eng = ctx;
    const struct job *job = &eng->jobs[i];
    struct weft_step_out *out = &eng->outs[job->out_idx];
    const struct wefti_slot *slot = &eng->slots.slots[out->slot];
    struct wefti_sampler_scratch *scratch = &eng->samplers[thread_idx];
    uint32_t n_vocab = eng->info.n_vocab, token = job->target;
    eng->jobs[i].is_broken = !isfinite(logits[0]);
    if (job->samples) {
        struct wefti_sampler_input sample = {
            .sampling = &slot->sampling,
            .choice = slot->choice,
            .tokens = slot->tokens,
            .n_prompt = slot->n_prompt,
            .n_known = slot->n_known,
        };
        float *work = logits; /* the raw ones are wanted afterwards only for log-probabilities */
        if (job->logprobs && !wefti_sampler_is_plain(&sample)) {
            work = scratch->work;
            memcpy(work, logits, n_vocab * sizeof *work);
        }
        token = wefti_sampler_choose(eng->kern, &sample, work, n_vocab, scratch);
        out->sampled = true;
        out->token = token;
    }
    if (job->logprobs)
        wefti_sampler_logprobs(eng->kern, logits, n_vocab, token, &job->top, job->logprobs);
}

static void compute(weft_eng *eng, const struct step *step) {
    struct wefti_forward_batch batch = {
        .n_tokens = step->n_tokens,
        .tokens = eng->tokens,
        .rows = eng->rows,
        .is_long = eng->is_long,
        .n_logit_rows = step->n_jobs,
        .logit_rows = eng->logit_rows,
        .on_logits = on_logits,
        .on_logits_ctx = eng,
        .n_copies = step->plan->n_copies,
        .copies = step->plan->copies,
    };
    if (batch.n_tokens > 0 || batch.n_copies > 0) wefti_forward_run(eng->forward, &batch);
    for (uint32_t i = 0; i < step->n_jobs && !eng->has_warned; i++) {
        if (!eng->jobs[i].is_broken) continue;
        weft_warn("logits are not numbers: weights are damaged, or activations overflow; what is "
                  "sampled of them means nothing");
        eng->has_warned = true;
    }
}

/* Sampled tokens join their sequences; those that reached their end say so. */
static void settle(weft_eng *eng, const struct step *step) {
    for (uint32_t i = 0; i < step->plan->n_rows; i++) {
        struct weft_step_out *out = &eng->outs[i];
        struct wefti_slot *slot = &eng->slots.slots[out->slot];
        if (!out->ran) continue;
        if (out->sampled) {
            out->output_idx = slot->n_known - slot->n_prompt;
            wefti_slot_append(&eng->slots, slot, out->token);
        } else if (slot->n_computed == slot->n_known) {
            slot->finish = WEFT_FINISH_LENGTH; /* nothing may be appended */
        }
        out->finish = slot->finish;
    }
}

static uint32_t clamp_us(uint64_t us) {
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

weft_err weft_eng_step(weft_eng *eng, const struct weft_step_plan *plan,
                       const struct weft_step_result **result_out, struct weft_errmsg *why) {
    *result_out = NULL;
    uint64_t begin_ns = weft_now_ns(), begin_us = begin_ns / 1000;
    weft_err err = check_step_plan(eng, plan, why);
    if (err) return err;
    struct step step = {.plan = plan};
    commit_plan(eng, plan);
    gather(eng, &step);
    compute(eng, &step);
    settle(eng, &step);
    uint64_t end_ns = weft_now_ns(), end_us = end_ns / 1000;
    if (eng->profile) wefti_profile_step(eng->profile, begin_ns, end_ns, step.n_tokens);
    eng->result = (struct weft_step_result){
        .epoch = plan->epoch,
        .step = plan->step,
        .busy_us = clamp_us(end_us - begin_us),
        .idle_us = eng->last_end_us ? clamp_us(begin_us - eng->last_end_us) : 0,
        .n_tokens = step.n_tokens,
        .n_outs = plan->n_rows,
        .outs = eng->outs,
    };
    eng->last_end_us = end_us;
    *result_out = &eng->result;
    return WEFT_OK;
}

/* ----------------------------------------------------------------------------------- logits --- */

struct logits_run {
    void (*on_row)(void *ctx, uint32_t pos, const float *logits);
    void *ctx;
    uint32_t first;
};

static void forward_logits(void *ctx, uint32_t i, float *logits, uint32_t thread_idx) {
    const struct logits_run *run = ctx;
    (void)thread_idx;
    run->on_row(run->ctx, run->first + i, logits);
}

static weft_err check_logits(const weft_eng *eng, const uint32_t *tokens, uint32_t n_tokens,
                             struct weft_errmsg *why) {
    if (n_tokens > eng->info.max_model_len)
        return weft_err_set(why, WEFT_E_TOOBIG, "%u tokens, at most %u fit", n_tokens,
                            eng->info.max_model_len);
    for (uint32_t i = 0; i < n_tokens; i++) {
        if (tokens[i] >= eng->info.n_vocab)
            return weft_err_set(why, WEFT_E_INVAL, "token %u is outside the vocabulary of %u",
                                tokens[i], eng->info.n_vocab);
    }
    for (uint32_t i = 0; i < eng->slots.n_slots; i++) {
        if (eng->slots.slots[i].used)
            return weft_err_set(why, WEFT_E_STATE, "slot %u holds a sequence", i);
    }
    return WEFT_OK;
}

weft_err weft_eng_logits(weft_eng *eng, const uint32_t *tokens, uint32_t n_tokens,
                         void (*on_row)(void *ctx, uint32_t pos, const float *logits), void *ctx,
                         struct weft_errmsg *why) {
    weft_err err = check_logits(eng, tokens, n_tokens, why);
    if (err) return err;
    /* Nobody is in slot 0, so its table is free for the blocks from the top of the pool. */
    uint32_t *table = eng->slots.slots[0].table;
    for (uint32_t i = 0; i * eng->info.block_size < n_tokens; i++) {
        table[i] = eng->info.n_blocks - 1 - i;
    }
    struct logits_run run = {.on_row = on_row, .ctx = ctx};
    while (run.first < n_tokens) {
        uint32_t n = weft_min_u32(eng->info.max_batched_tokens, n_tokens - run.first);
        for (uint32_t i = 0; i < n; i++) {
            eng->tokens[i] = tokens[run.first + i];
            eng->rows[i] = (struct weft_attn_row){.block_table = table, .pos = run.first + i};
            eng->is_long[i] = n_tokens > eng->long_prompt;
            eng->logit_rows[i] = i;
        }
        struct wefti_forward_batch batch = {
            .n_tokens = n,
            .tokens = eng->tokens,
            .rows = eng->rows,
            .is_long = eng->is_long,
            .n_logit_rows = n,
            .logit_rows = eng->logit_rows,
            .on_logits = forward_logits,
            .on_logits_ctx = &run,
            .in_order = true,
        };
        uint64_t begin_ns = eng->profile ? weft_now_ns() : 0;
        wefti_forward_run(eng->forward, &batch);
        if (eng->profile) wefti_profile_step(eng->profile, begin_ns, weft_now_ns(), n);
        run.first += n;
    }
    return WEFT_OK;
}

void weft_eng_watch_routes(weft_eng *eng, weft_eng_routes_fn *fn, void *ctx) {
    wefti_forward_watch_routes(eng->forward, fn, ctx);
}

const uint64_t *weft_eng_expert_tokens(const weft_eng *eng) {
    return wefti_forward_expert_tokens(eng->forward);
}

bool weft_eng_has_experts(const weft_eng *eng, uint32_t layer) {
    WEFT_ASSERT(layer < eng->weights.n_layers);
    return eng->weights.layers[layer].experts != NULL;
}

weft_err weft_eng_calibrate(weft_eng *eng, weft_eng_calib **calib_out, struct weft_errmsg *why) {
    const struct wefti_weights_layer *layer = &eng->weights.layers[0];
    *calib_out = NULL;
    if (!eng->exact) return weft_err_set(why, WEFT_E_INVAL, "a calibration needs f32 activations");
    if (layer->latent_norm > 0)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "a model with latent attention cannot be calibrated");
    for (uint32_t i = 0; i < eng->weights.n_layers; i++) {
        if (eng->weights.layers[i].experts)
            return weft_err_set(why, WEFT_E_INVAL,
                                "a model with experts cannot be calibrated: few rows meet each");
    }
    weft_err err = wefti_calib_new(eng->weights.n_layers, eng->weights.n_hidden, layer->o.k,
                                   layer->down.k, calib_out, why);
    if (!err) wefti_forward_observe(eng->forward, *calib_out);
    return err;
}
