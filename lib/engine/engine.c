/* Opening and closing an engine, and what it says of itself. */
#include "state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/minmax.h"
#include "forward/recurrent.h"
#include "model/model.h"
#include "runtime/fit.h"
#include "runtime/memory.h"
#include "runtime/options.h"
#include "weights/expert_load.h"
#include "weights/types.h"

#define CONTRAST_PART 32 /* of a limit on memory: contrastive search gets no more */

static void lay_out_contrast(struct wefti_eng_contrast *c, const struct weft_eng_info *info,
                             struct wefti_memory_layout *layout) {
    size_t n = WEFTI_KV_SPARE, table_cap = wefti_slots_table_cap(info);
    c->n_most = weft_min_u32(WEFTI_KV_SPARE, info->max_batched_tokens);
    c->slots = wefti_memory_reserve(layout, n, sizeof *c->slots);
    c->candidates = wefti_memory_reserve(layout, n, sizeof *c->candidates);
    c->spans = wefti_memory_reserve(layout, n, sizeof *c->spans);
    c->copies = wefti_memory_reserve(layout, n * WEFT_KV_KINDS, sizeof *c->copies);
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++)
        c->tables[kind] = wefti_memory_reserve(layout, n * table_cap, sizeof **c->tables);
}

static void lay_out(weft_eng *eng, struct wefti_memory_layout *layout) {
    size_t n_tokens = eng->info.max_batched_tokens, n_seqs = eng->info.max_seqs;
    size_t n_vocab = eng->info.n_vocab, n_threads = eng->info.n_threads;
    eng->tokens = wefti_memory_reserve(layout, n_tokens, sizeof *eng->tokens);
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++)
        eng->rows[kind] = wefti_memory_reserve(layout, n_tokens, sizeof *eng->rows[kind]);
    eng->is_long = wefti_memory_reserve(layout, n_tokens, sizeof *eng->is_long);
    eng->is_second = wefti_memory_reserve(layout, n_tokens, sizeof *eng->is_second);
    eng->is_written = wefti_memory_reserve(layout, n_tokens, sizeof *eng->is_written);
    eng->head_rows = wefti_memory_reserve(layout, 2 * (size_t)eng->info.n_hidden, sizeof(float));
    eng->last_rows = wefti_memory_reserve(layout, n_tokens, sizeof *eng->last_rows);
    eng->sets = wefti_memory_reserve(layout, n_seqs + 1, sizeof *eng->sets);
    eng->row_sets = wefti_memory_reserve(layout, n_tokens, sizeof(struct wefti_lora_set *));
    eng->logit_rows = wefti_memory_reserve(layout, n_tokens, sizeof *eng->logit_rows);
    eng->is_chained = wefti_memory_reserve(layout, n_tokens, sizeof *eng->is_chained);
    eng->jobs = wefti_memory_reserve(layout, n_tokens, sizeof *eng->jobs);
    eng->prompt_logprobs = wefti_memory_reserve(layout, n_tokens, sizeof *eng->prompt_logprobs);
    size_t n_spans = n_seqs + (eng->mtp ? n_tokens : 0);
    eng->spans = wefti_memory_reserve(layout, n_spans, sizeof *eng->spans);
    eng->span_slots = wefti_memory_reserve(layout, n_seqs, sizeof *eng->span_slots);
    eng->guess_lines = wefti_memory_reserve(layout, n_seqs, sizeof *eng->guess_lines);
    eng->outs = wefti_memory_reserve(layout, n_seqs, sizeof *eng->outs);
    eng->seqs = wefti_memory_reserve(layout, n_seqs, sizeof *eng->seqs);
    if (eng->info.has_contrast) lay_out_contrast(&eng->contrast, &eng->info, layout);
    /* This is address space: resident only as far as requests ever needed it. */
    uint32_t n_values = weft_max_u32(eng->info.n_hidden, eng->info.n_labels);
    size_t values_bytes = weft_max_u32(n_values, WEFT_POOLING_IDS_MAX) * sizeof(float);
    size_t token_bytes = n_vocab * WEFT_LOGPROB_TOP_BYTES;
    size_t top_bytes_max = n_tokens * (token_bytes > values_bytes ? token_bytes : values_bytes);
    eng->top_bytes =
        top_bytes_max < WEFT_STEP_LOGPROB_BYTES_MAX ? top_bytes_max : WEFT_STEP_LOGPROB_BYTES_MAX;
    eng->top = wefti_memory_reserve(layout, eng->top_bytes, 1);
    eng->samplers = wefti_memory_reserve(layout, n_threads, sizeof *eng->samplers);
    struct wefti_chain_scratch *chains = wefti_memory_reserve(layout, n_threads, sizeof *chains);
    for (size_t t = 0; t < n_threads; t++) {
        struct wefti_sampler_scratch s = wefti_sampler_scratch_reserve(layout, eng->info.n_vocab);
        struct wefti_chain_scratch chain =
            wefti_chain_scratch_reserve(layout, eng->info.n_vocab, eng->info.max_model_len);
        if (!layout->base) continue;
        chains[t] = chain;
        s.chain = &chains[t];
        eng->samplers[t] = s;
    }
}

static weft_err open_step_memory(weft_eng *eng, struct weft_errmsg *why) {
    struct wefti_memory_layout layout = {0};
    lay_out(eng, &layout);
    eng->map_bytes = layout.used;
    eng->map = wefti_memory_map_near(eng->map_bytes, eng->info.home);
    if (!eng->map)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %zu bytes of step state",
                            eng->map_bytes);
    layout = (struct wefti_memory_layout){.base = eng->map};
    lay_out(eng, &layout);
    return WEFT_OK;
}

/* Raised by every commit that changes a bit of what some kernel or layer computes: programs of
 * before and after are not taken for equal then. */
enum { ARITHMETIC_VERSION = 5 };

/* Equal where the same request yields the same bits: content, stored types (both in the layout),
 * cache type, ISA, and how it is computed. */
static void set_fingerprint(weft_eng *eng) {
    uint64_t facts[4] = {eng->weights.model_hash, eng->weights.layout_hash, (uint64_t)eng->kv_dtype,
                         ARITHMETIC_VERSION};
    uint64_t hash = XXH64(facts, sizeof facts, 0);
    hash = XXH64(eng->kern->bits, strlen(eng->kern->bits), hash);
    (void)snprintf(eng->info.fingerprint, sizeof eng->info.fingerprint, "fp_%016" PRIx64, hash);
}

/* A text is computed in one step: a step has room for the longest. */
static void fit_texts(struct weft_eng_info *info) {
    info->max_model_len = weft_min_u32(info->max_model_len, WEFT_BATCHED_TOKENS_MAX);
    info->max_batched_tokens = weft_max_u32(info->max_batched_tokens, info->max_model_len);
}

static bool may_contrast(const struct weft_model_params *p, bool is_recurrent,
                         const struct weft_eng_options *options) {
    return !p->encoder.is_on && !is_recurrent && options->n_ranks <= 1;
}

/* Contrastive search needs blocks of its own; of a narrow limit they would take too much from everybody else. */
static uint64_t contrast_from(const struct weft_model_params *p,
                              const struct weft_eng_options *options) {
    return CONTRAST_PART * WEFTI_KV_SPARE * wefti_kv_cache_block_bytes(p, options);
}

static void set_info(weft_eng *eng, const struct weft_model_params *p,
                     const struct weft_eng_options *options) {
    struct weft_eng_info *info = &eng->info;
    (void)snprintf(info->model_name, sizeof info->model_name, "%s", p->name);
    (void)snprintf(info->arch, sizeof info->arch, "%s", p->arch);
    (void)snprintf(info->isa, sizeof info->isa, "%s", eng->kern->name);
    info->n_vocab = p->n_vocab;
    info->n_hidden = p->n_hidden;
    info->n_layers = p->n_layers;
    info->n_experts = p->moe.n_experts;
    info->n_experts_used = p->moe.n_used;
    info->home = options->home;
    info->block_size = options->block_size;
    info->max_model_len = options->max_model_len ? options->max_model_len : p->n_context;
    info->max_seqs = options->max_seqs;
    info->max_batched_tokens = options->max_batched_tokens;
    info->is_encoder = p->encoder.is_on;
    info->is_recurrent = weft_model_has_recurrent(p);
    info->n_labels = p->encoder.n_labels;
    info->has_contrast =
        may_contrast(p, info->is_recurrent, options) &&
        (options->limit.bytes == 0 || options->limit.bytes >= contrast_from(p, options));
    if (info->is_encoder) fit_texts(info);
    info->n_threads =
        options->n_threads ? options->n_threads : wefti_pool_n_usable_cpus(options->n_sharers);
}

/* Only the experts that one token takes count. */
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
        const struct wefti_weights_matrix *matrices[] = {&l->q_a,        &l->q,
                                                         &l->k,          &l->v,
                                                         &l->o,          &l->gate,
                                                         &l->up,         &l->down,
                                                         &l->router,     &l->attn_gate,
                                                         &l->rec_out,    &l->index_q,
                                                         &l->index_k,    &l->index_weights,
                                                         &l->latent_in,  &l->latent_out,
                                                         &l->input_gate, &l->input_proj};
        for (size_t m = 0; m < sizeof matrices / sizeof matrices[0]; m++)
            n[weft_kern_peak_of(weft_kern_act_of(matrices[m]->kind))] +=
                (uint64_t)matrices[m]->n * matrices[m]->k;
        for (size_t m = 0; m < WEFT_MODEL_RECURRENT_PARTS; m++)
            n[weft_kern_peak_of(weft_kern_act_of(l->rec_in[m].kind))] +=
                (uint64_t)l->rec_in[m].n * l->rec_in[m].k;
        const struct wefti_weights_matrix *of_head[] = {&l->up_k.first, &l->up_v.first};
        for (size_t m = 0; l->latent_norm && m < sizeof of_head / sizeof of_head[0]; m++)
            n[weft_kern_peak_of(weft_kern_act_of(of_head[m]->kind))] +=
                (uint64_t)of_head[m]->n * of_head[m]->k * l->n_heads;
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
    info->n_own_experts = weights->n_own_experts;
    info->weights_inherited = weights->inherited;
}

static struct wefti_forward_config forward_config(const weft_eng *eng, const weft_model *model) {
    return (struct wefti_forward_config){.kern = eng->kern,
                                         .pool = eng->pool,
                                         .weights = &eng->weights,
                                         .kv = &eng->kv,
                                         .profile = eng->profile,
                                         .model = model,
                                         .coll = eng->coll,
                                         .max_batched_tokens = eng->info.max_batched_tokens,
                                         .max_model_len = eng->info.max_model_len,
                                         .home = eng->info.home,
                                         .lora_rank_max = eng->lora_rank_max,
                                         .exact = eng->exact,
                                         .states = &eng->states};
}

/* What an engine takes beside its weights and cache. */
struct needs {
    uint64_t scratch_bytes, state_bytes;
    uint64_t lora_bytes, vocab_bytes; /* only where there is a limit */
    struct weft_eng_follows follows;
    struct wefti_beside_needs draft;
};

/* What a full step uses. Log-probabilities, shared spans of long sequences and the sequences' tokens take more,
 * but rarely all that they may: they count where there is a limit, which is to be kept. */
static weft_err measure_scratch(const weft_eng *eng, const weft_model *model,
                                const struct weft_eng_options *options, uint64_t *bytes_out,
                                struct weft_errmsg *why) {
    const struct wefti_forward_config config = forward_config(eng, model);
    const struct weft_eng_info *info = &eng->info;
    size_t of_pass = 0;
    bool is_most = options->limit.bytes > 0;
    weft_err err = wefti_forward_measure(&config, is_most, &of_pass, why);
    *bytes_out = of_pass + eng->map_bytes - eng->top_bytes;
    if (err || !is_most) return err;
    struct weft_eng_info full = *info;
    full.window = weft_model_params(model)->window; /* of which the cache has not yet been asked */
    uint64_t of_requests = options->request_bytes ? options->request_bytes : eng->top_bytes;
    *bytes_out += weft_min_u64(eng->top_bytes, of_requests) + wefti_slots_bytes(&full) +
                  wefti_ngram_bytes(options->ngram_max, info->max_seqs, info->max_model_len) +
                  (uint64_t)info->max_seqs * info->n_vocab * sizeof(float); /* see hold, step.c */
    if (info->has_contrast)
        *bytes_out +=
            WEFTI_KV_SPARE * wefti_kv_cache_block_bytes(weft_model_params(model), options);
    return WEFT_OK;
}

/* What of it would be otherwise under another limit. */
static struct weft_eng_follows what_follows(const weft_eng *eng, const weft_model *model,
                                            const struct weft_eng_options *options,
                                            uint64_t scratch_bytes) {
    const struct weft_model_params *p = weft_model_params(model);
    struct weft_eng_follows follows = {.scratch_bytes = scratch_bytes,
                                       .has_loras = eng->loras && options->lora_memory_bytes == 0};
    if (may_contrast(p, eng->info.is_recurrent, options)) {
        struct wefti_memory_layout layout = {0};
        struct wefti_eng_contrast contrast;
        lay_out_contrast(&contrast, &eng->info, &layout);
        follows.contrast_from_bytes = contrast_from(p, options);
        follows.contrast_bytes =
            layout.used + WEFTI_KV_SPARE * wefti_kv_cache_block_bytes(p, options);
    }
    uint64_t of_requests = wefti_fit_requests(&options->limit);
    if (of_requests > 0) follows.answer_bytes = eng->top_bytes;
    follows.scratch_bytes -= weft_min_u64(follows.answer_bytes, of_requests) +
                             (eng->info.has_contrast ? follows.contrast_bytes : 0);
    return follows;
}

/* 0: what the machine leaves beside the model. */
static uint64_t most_of_loras(const struct weft_eng_options *options) {
    if (options->lora_memory_bytes > 0) return options->lora_memory_bytes;
    return wefti_fit_lora_bytes_within(options->limit.bytes);
}

#define CHECKPOINT_BYTES (1ull << 30) /* of all, where nobody says how many */
#define CHECKPOINTS_LEAST 4u

static uint32_t n_checkpoints(const weft_eng *eng, const struct weft_eng_options *options,
                              uint64_t state_bytes) {
    if (!eng->info.is_recurrent) return 0;
    if (options->n_checkpoints != WEFT_ENG_CHECKPOINTS_AUTO) return options->n_checkpoints;
    uint64_t fit = CHECKPOINT_BYTES / weft_max_u64(state_bytes, 1);
    return weft_max_u32((uint32_t)weft_min_u64(eng->info.max_seqs, fit), CHECKPOINTS_LEAST);
}

/* What recurrent layers of a sequence carry. */
static uint64_t seq_state_bytes(const weft_eng *eng, const struct weft_model_params *p) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const struct wefti_state_shape shape = wefti_forward_state_shape(&eng->weights, p, i);
        sum += wefti_states_place_bytes(&shape, 1);
    }
    return sum;
}

static weft_err measure_needs(weft_eng *eng, const weft_model *model,
                              const struct weft_eng_options *options, struct needs *needs,
                              struct weft_errmsg *why) {
    eng->info.seq_state_bytes = seq_state_bytes(eng, weft_model_params(model));
    eng->info.n_checkpoints = n_checkpoints(eng, options, eng->info.seq_state_bytes);
    *needs =
        (struct needs){.state_bytes = eng->info.seq_state_bytes *
                                      ((uint64_t)eng->info.max_seqs + eng->info.n_checkpoints)};
    weft_err err = open_step_memory(eng, why);
    if (!err) err = measure_scratch(eng, model, options, &needs->scratch_bytes, why);
    if (!err && eng->draft)
        err = wefti_beside_measure(wefti_draft_beside(eng->draft), &needs->draft, why);
    if (!err && eng->mtp) err = wefti_mtp_measure(eng->mtp, &needs->draft, why);
    needs->scratch_bytes += needs->draft.scratch_bytes;
    if (options->limit.bytes == 0) return err;
    if (eng->loras) needs->lora_bytes = wefti_fit_lora_need(most_of_loras(options));
    needs->vocab_bytes = wefti_fit_vocab_bytes(eng->info.n_vocab);
    if (!err) needs->follows = what_follows(eng, model, options, needs->scratch_bytes);
    return err;
}

/* What all engines and others take beside the caches: of what is free now, or of the limit. */
static uint64_t taken_beside(const weft_eng *eng, const struct weft_eng_options *options,
                             uint64_t to_come, const struct needs *needs) {
    if (options->limit.bytes == 0)
        return to_come + options->n_sharers * (needs->scratch_bytes + needs->state_bytes +
                                               needs->draft.to_come_bytes);
    uint64_t of_each = needs->scratch_bytes + needs->state_bytes + needs->draft.weight_bytes +
                       needs->lora_bytes + needs->vocab_bytes;
    return wefti_fit_beside(&options->limit) + options->n_copies * eng->weights.bytes +
           options->n_sharers * of_each;
}

static weft_err open_states(weft_eng *eng, const struct weft_model_params *p,
                            struct weft_errmsg *why) {
    if (!weft_model_has_recurrent(p)) return WEFT_OK;
    struct wefti_state_shape *shapes = calloc(p->n_layers, sizeof *shapes);
    if (!shapes) return weft_err_set(why, WEFT_E_NOMEM, "no memory for recurrent states");
    for (uint32_t i = 0; i < p->n_layers; i++)
        shapes[i] = wefti_forward_state_shape(&eng->weights, p, i);
    weft_err err =
        wefti_states_open(&eng->states, shapes, p->n_layers,
                          eng->info.max_seqs + eng->info.n_checkpoints, eng->info.home, why);
    free(shapes);
    return err;
}

/* The cache, and what follows from its size. */
static weft_err open_cache(weft_eng *eng, const weft_model *model,
                           const struct weft_eng_options *options, uint64_t taken_bytes,
                           const struct needs *needs, struct weft_errmsg *why) {
    struct weft_eng_info *info = &eng->info;
    struct weft_model_params own = *weft_model_params(model);
    own.n_kv_heads = weft_max_u32(wefti_weights_kv_heads(&eng->weights, &own, false), 1);
    own.unlike.local_kv_heads = weft_max_u32(wefti_weights_kv_heads(&eng->weights, &own, true), 1);
    if (own.encoder.is_on) own.window = 0; /* no block is let go of before a text is done */
    weft_err err = wefti_kv_cache_open(&eng->kv, &own, options, taken_bytes,
                                       needs->draft.block_bytes, info, why);
    if (!err && eng->draft) err = wefti_draft_open(eng->draft, info, why);
    if (!err && eng->mtp) err = wefti_mtp_open(eng->mtp, info, why);
    struct weft_eng_options spilling = *options;
    if (info->is_recurrent) spilling.spill_bytes = 0; /* blocks without the state are of no use */
    if (!err) err = open_states(eng, weft_model_params(model), why);
    if (!err) err = wefti_spill_open(&eng->spill, &spilling, &eng->kv, why);
    if (!err) err = wefti_slots_init(&eng->slots, info, why);
    if (!err)
        err = wefti_ngram_init(&eng->ngram, options->ngram_max, info->max_seqs, info->max_model_len,
                               info->home, why);
    if (!err && options->profile) err = wefti_profile_new(info->n_threads, &eng->profile, why);
    if (err) return err;
    const struct wefti_forward_config config = forward_config(eng, model);
    return wefti_forward_new(&config, &eng->forward, why);
}

static void limit_loras(weft_eng *eng, const struct weft_eng_options *options,
                        const struct weft_eng_loading *loading) {
    uint64_t most = most_of_loras(options);
    if (most == 0) most = wefti_fit_lora_bytes(loading);
    if (eng->loras) wefti_loras_limit(eng->loras, most);
}

/* Everything but the weights, which have their layout: mappings that take no memory before they are
 * used. Then all sizes are known. */
static weft_err size_up(weft_eng *eng, const weft_model *model,
                        const struct weft_eng_options *options, uint64_t to_come,
                        const struct weft_mem_room *room, struct weft_eng_loading *loading,
                        struct weft_errmsg *why) {
    struct weft_eng_info *info = &eng->info;
    struct needs needs;
    weft_err err = measure_needs(eng, model, options, &needs, why);
    if (err) return err;
    info->draft_bytes = needs.draft.weight_bytes;
    err = open_cache(eng, model, options, taken_beside(eng, options, to_come, &needs), &needs, why);
    if (err) return err;
    *loading = (struct weft_eng_loading){
        .model_name = info->model_name,
        .weight_bytes = eng->weights.bytes,
        .is_page_cache = wefti_weights_are_mapped(model, options),
        .n_copies = options->n_copies,
        .n_sharers = options->n_sharers,
        .draft_bytes =
            options->limit.bytes > 0 ? needs.draft.weight_bytes : needs.draft.to_come_bytes,
        .kv_bytes = info->kv_bytes,
        .scratch_bytes = needs.scratch_bytes,
        .state_bytes = needs.state_bytes,
        .lora_bytes = needs.lora_bytes,
        .vocab_bytes = needs.vocab_bytes,
        .limit = options->limit,
        .follows = needs.follows,
        .fewer_bits = wefti_weights_fewer_bits(model, options),
        .is_kv_given = options->kv_memory_bytes > 0,
        .is_kv_least = wefti_kv_cache_dtype(options) == WEFT_KV_INT8,
        .has_many_checkpoints = options->n_checkpoints != WEFT_ENG_CHECKPOINTS_AUTO &&
                                info->n_checkpoints > info->max_seqs,
        .limit_bytes = room->limit_bytes,
    };
    return WEFT_OK;
}

/* NOMEM: more than there is, or than a limit that was set. */
static weft_err check_fit(const struct weft_eng_loading *loading, uint64_t to_come,
                          const struct weft_mem_room *room, struct weft_errmsg *why) {
    weft_err err = wefti_fit_check_limit(loading, why);
    return err ? err : wefti_fit_check(loading, to_come, room, why);
}

/* All of these together: whether they fit is known before any weight is read. */
static weft_err reserve(weft_eng *eng, const weft_model *model,
                        const struct weft_eng_options *options,
                        const struct wefti_weights_plan *plan, struct weft_eng_loading *loading,
                        struct weft_errmsg *why) {
    struct weft_eng_info *info = &eng->info;
    uint32_t len = info->max_model_len;
    uint64_t to_come = wefti_weights_bytes_to_come(&eng->weights, plan) * options->n_copies;
    struct weft_mem_room room = weft_mem_room();
    weft_err err = size_up(eng, model, options, to_come, &room, loading, why);
    if (!err) err = check_fit(loading, to_come, &room, why);
    if (err) return err;
    limit_loras(eng, options, loading);
    if (loading->is_page_cache && room.limit_bytes > 0 &&
        loading->weight_bytes + info->kv_bytes + loading->scratch_bytes > room.most_bytes)
        weft_warn("the packed file does not fit into memory beside cache and scratch: its pages "
                  "will be read again and again");
    if (info->max_model_len < len)
        weft_warn("model length lowered from %u to %u tokens: %" PRIu64
                  " bytes of KV memory hold no longer sequence",
                  len, info->max_model_len, info->kv_bytes);
    if (options->on_loading) options->on_loading(options->loading_ctx, loading);
    return WEFT_OK;
}

static weft_err open_loras(weft_eng *eng, const char *path, const weft_model *model,
                           const struct weft_eng_options *options, struct weft_errmsg *why) {
    struct weft_model_place place;
    if (options->max_loras == 0 || eng->coll) return WEFT_OK;
    weft_err err = weft_model_locate(path, &place, why);
    if (err) return err;
    const struct wefti_loras_config config = {
        .params = weft_model_params(model),
        .format = place.format,
        .n_max = options->max_loras,
        .rank_max = options->max_lora_rank,
        /* Half of the bytes to read, and to keep. Their rounding is as fine as that of the activations
         * which W is multiplied by there, or finer; x and t are not rounded for them. */
        .dtype = eng->exact ? WEFT_DT_F32 : WEFT_DT_BF16,
        .home = options->home,
    };
    weft_model_place_fini(&place);
    eng->lora_rank_max = options->max_lora_rank;
    err = wefti_loras_new(&config, &eng->loras);
    return err ? weft_err_set(why, err, "no memory for adapters") : WEFT_OK;
}

/* Everything up to the layout of the weights. */
static weft_err lay_out_model(weft_eng *eng, const char *path, const weft_model *model,
                              const struct weft_eng_options *options,
                              struct wefti_weights_plan **plan_out, struct weft_errmsg *why) {
    const struct weft_model_params *p = weft_model_params(model);
    *plan_out = NULL;
    weft_err err = wefti_options_check(options, p, why);
    if (err) return err;
    if (weft_model_has_recurrent(p) && (options->draft_path || options->mtp))
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s has recurrent layers, whose states cannot go back where a guess "
                            "does not come true: it takes no %s",
                            path, options->mtp ? "--speculative-mtp" : "--speculative-model");
    eng->kv_dtype = wefti_kv_cache_dtype(options);
    eng->coll = options->n_ranks > 1 ? options->coll : NULL;
    eng->exact = options->activations == WEFT_ENG_ACT_F32;
    eng->info.long_prompt = eng->long_prompt = weft_model_long_prompt(model);
    set_info(eng, p, options);
    err = options->rank == 0
              ? wefti_guides_new(path, eng->info.n_vocab, options->request_bytes, &eng->guides)
              : WEFT_OK;
    if (err) return weft_err_set(why, err, "no memory for grammars");
    err = open_loras(eng, path, model, options, why);
    if (err) return err;
    err = wefti_pool_new(eng->info.n_threads, &eng->pool, why);
    const struct wefti_beside_host host = {path, options, &eng->info, eng->kern, eng->pool};
    if (!err && options->draft_path) err = wefti_draft_new(&host, &eng->draft, why);
    if (!err && options->mtp) err = wefti_mtp_new(&host, &eng->mtp, why);
    return err ? err : wefti_weights_lay_out(&eng->weights, model, options, plan_out, why);
}

static weft_err open_model(weft_eng *eng, const char *path, weft_model *model,
                           const struct weft_eng_options *options, struct weft_errmsg *why) {
    struct wefti_weights_plan *plan = NULL;
    struct weft_eng_loading loading;
    weft_err err = lay_out_model(eng, path, model, options, &plan, why);
    if (!err) err = reserve(eng, model, options, plan, &loading, why);
    if (!err) err = wefti_weights_load(&eng->weights, plan, path, model, eng->pool, &loading, why);
    wefti_weights_plan_free(plan);
    if (!err && eng->draft) err = wefti_beside_load(wefti_draft_beside(eng->draft), why);
    if (!err && eng->mtp) err = wefti_beside_load(wefti_mtp_beside(eng->mtp), why);
    if (err) return err;
    set_weight_info(eng, weft_model_params(model));
    set_fingerprint(eng);
    wefti_pool_unpin_caller(eng->pool); /* the thread that opens need not be the one that steps */
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
    weft_model_free(model); /* all that the engine needs of it is packed */
    weft_eng_free(eng);
    return err;
}

/* --------------------------------------------------------------------------------- foreseeing --- */

static void add_context(const weft_eng *eng, uint32_t n_tokens, struct weft_eng_plan *plan) {
    struct weft_eng_plan_context *at = &plan->contexts[plan->n_contexts++];
    WEFT_ASSERT(plan->n_contexts <= WEFT_ENG_PLAN_CONTEXTS_MAX);
    at->n_tokens = n_tokens;
    at->kv_bytes = wefti_kv_cache_seq_bytes(&eng->kv, &eng->info, n_tokens, &at->read_bytes);
}

/* Lengths that people compare models by, and the one that was asked for. */
static void add_contexts(const weft_eng *eng, struct weft_eng_plan *plan) {
    static const uint32_t lengths[] = {4096, 8192, 32768, 131072};
    bool is_asked = false;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        if (!is_asked && plan->model_len <= lengths[i]) {
            add_context(eng, plan->model_len, plan);
            is_asked = true;
            if (plan->model_len == lengths[i]) continue;
        }
        if (lengths[i] <= plan->n_context) add_context(eng, lengths[i], plan);
    }
    if (!is_asked) add_context(eng, plan->model_len, plan);
}

static weft_err foresee(weft_eng *eng, const char *path, const weft_model *model,
                        const struct weft_eng_options *options, struct weft_eng_plan *plan,
                        struct weft_errmsg *why) {
    static const char *const kv_types[] = {[WEFT_KV_F32] = "f32",
                                           [WEFT_KV_BF16] = "bf16",
                                           [WEFT_KV_F16] = "f16",
                                           [WEFT_KV_INT8] = "int8"};
    const struct weft_model_params *p = weft_model_params(model);
    struct wefti_weights_plan *weights = NULL;
    struct weft_mem_room room = {options->room_bytes, options->room_bytes, false};
    if (options->room_bytes == 0) room = weft_mem_room();
    weft_err err = lay_out_model(eng, path, model, options, &weights, why);
    if (err) return err;
    wefti_pool_unpin_caller(eng->pool);
    uint64_t to_come = wefti_weights_bytes_to_come(&eng->weights, weights) * options->n_copies;
    plan->is_bare = weft_model_is_bare(model);
    plan->n_context = p->n_context;
    plan->model_len = eng->info.max_model_len;
    err = size_up(eng, model, options, to_come, &room, &plan->loading, why);
    memcpy(plan->bytes_of_type, wefti_weights_bytes_of_type(weights), sizeof plan->bytes_of_type);
    wefti_weights_plan_free(weights);
    if (err) return err;
    /* Both say so in words; the plan has them for its own. */
    weft_err fit = check_fit(&plan->loading, to_come, &room, &plan->refusal);
    WEFT_ASSERT(!fit == !plan->refusal.text[0]);
    plan->room_bytes = room.most_bytes;
    plan->is_cgroup = room.is_cgroup;
    set_weight_info(eng, p);
    plan->kv_type = kv_types[eng->kv_dtype];
    memcpy(plan->kv_block_bytes, eng->kv.block_bytes, sizeof plan->kv_block_bytes);
    add_contexts(eng, plan);
    plan->n_full_seqs = wefti_kv_cache_n_seqs(&eng->kv, &eng->info);
    plan->info = eng->info;
    plan->loading.model_name = plan->info.model_name;
    return WEFT_OK;
}

weft_err weft_eng_foresee(const char *path, const struct weft_eng_options *options,
                          struct weft_eng_plan *plan_out, struct weft_errmsg *why) {
    *plan_out = (struct weft_eng_plan){.is_bare = false};
    weft_model *model = NULL;
    weft_err err = WEFT_E_NOMEM;
    weft_eng *eng = calloc(1, sizeof *eng);
    if (!eng) {
        err = weft_err_set(why, err, "no memory for the engine");
        goto cleanup;
    }
    err = weft_kern_select(&eng->kern, why);
    if (!err) err = weft_model_open_shapes(path, &model, why);
    if (!err) err = foresee(eng, path, model, options, plan_out, why);
cleanup:
    weft_model_free(model);
    weft_eng_free(eng);
    return err;
}

void weft_eng_free(weft_eng *eng) {
    if (!eng) return;
    wefti_pool_free(eng->pool);
    wefti_guides_free(eng->guides);
    wefti_draft_free(eng->draft);
    wefti_mtp_free(eng->mtp);
    wefti_forward_free(eng->forward);
    wefti_loras_free(eng->loras);
    wefti_profile_free(eng->profile);
    wefti_ngram_fini(&eng->ngram);
    wefti_slots_fini(&eng->slots);
    wefti_weights_close(&eng->weights);
    wefti_spill_close(&eng->spill);
    wefti_kv_cache_close(&eng->kv);
    wefti_states_close(&eng->states);
    wefti_memory_unmap(eng->map, eng->map_bytes);
    free(eng);
}

const struct weft_eng_info *weft_eng_info(const weft_eng *eng) {
    return &eng->info;
}

weft_err weft_eng_check_predicts(const weft_eng *eng, struct weft_errmsg *why) {
    if (!eng->info.is_encoder) return WEFT_OK;
    return weft_err_set(why, WEFT_E_UNSUPPORTED,
                        "%s reads texts whole and predicts no tokens: it is for vectors and scores "
                        "(weft serve)",
                        eng->info.model_name);
}

void weft_eng_lower(weft_eng *eng, const struct weft_eng_info *room) {
    struct weft_eng_info *info = &eng->info;
    WEFT_ASSERT(room->max_model_len > 0 && room->max_model_len <= info->max_model_len);
    WEFT_ASSERT(room->n_blocks <= info->n_blocks);
    WEFT_ASSERT(room->n_window_blocks <= info->n_window_blocks);
    WEFT_ASSERT(room->n_checkpoints <= info->n_checkpoints);
    info->max_model_len = room->max_model_len;
    info->n_blocks = room->n_blocks;
    info->n_window_blocks = room->n_window_blocks;
    info->n_checkpoints = room->n_checkpoints;
    info->kv_bytes = wefti_kv_cache_bytes(&eng->kv, info->n_blocks, info->n_window_blocks);
    wefti_slots_lower(&eng->slots, info);
}

weft_err weft_eng_fill_cache(weft_eng *eng, uint64_t n_blocks) {
    return wefti_kv_cache_fill(&eng->kv, eng->kern, n_blocks);
}

uint32_t weft_eng_n_spill_blocks(const weft_eng *eng) {
    return wefti_spill_n_slots(&eng->spill);
}

uint32_t weft_eng_regions(const weft_eng *eng, struct weft_eng_region out[WEFT_ENG_REGIONS]) {
    size_t scratch_bytes = 0;
    const void *scratch = wefti_forward_memory(eng->forward, &scratch_bytes);
    out[0] = (struct weft_eng_region){eng->weights.base, eng->weights.bytes};
    out[1] = (struct weft_eng_region){eng->kv.map, eng->kv.map_bytes};
    out[2] = (struct weft_eng_region){scratch, scratch_bytes};
    out[3] = (struct weft_eng_region){eng->slots.map, eng->slots.map_bytes};
    out[4] = (struct weft_eng_region){eng->map, eng->map_bytes};
    return WEFT_ENG_REGIONS;
}

uint64_t weft_eng_meeting_ns(const weft_eng *eng) {
    return wefti_forward_meeting_ns(eng->forward);
}

uint64_t weft_eng_progress(const weft_eng *eng) {
    return wefti_pool_progress_sum(eng->pool);
}

void weft_eng_reset(weft_eng *eng, uint64_t epoch) {
    for (uint32_t i = 0; i < eng->slots.n_slots; i++) {
        if (eng->guides) wefti_guides_end(eng->guides, eng->slots.slots[i].guide);
        eng->slots.slots[i].guide = NULL;
        wefti_loras_drop(eng->loras, &eng->sets[i]);
    }
    wefti_slots_clear(&eng->slots);
    eng->epoch = epoch;
    eng->next_step = 0;
    eng->has_failed = false;
}

bool weft_eng_prepare_grammar(weft_eng *eng, const struct weft_eng_ticket *ticket,
                              const struct weft_grammar *grammar) {
    return eng->guides && wefti_guides_prepare(eng->guides, ticket, grammar);
}

bool weft_eng_next_prepared(weft_eng *eng, struct weft_eng_ticket *ticket_out) {
    return eng->guides && wefti_guides_next_prepared(eng->guides, ticket_out);
}

weft_err weft_eng_add_lora(weft_eng *eng, uint64_t id, const char *path,
                           struct weft_eng_lora *info_out, struct weft_errmsg *why) {
    *info_out = (struct weft_eng_lora){0};
    if (!eng->loras && eng->coll)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "adapters are not supported where workers divide a model");
    if (!eng->loras)
        return weft_err_set(why, WEFT_E_FULL, "adapters are switched off (--max-loras 0)");
    return wefti_loras_add(eng->loras, id, path, info_out, why);
}

void weft_eng_remove_lora(weft_eng *eng, uint64_t id) {
    if (eng->loras) wefti_loras_remove(eng->loras, id);
}

weft_err weft_eng_use_loras(weft_eng *eng, const struct weft_step_adapter *list, uint32_t n,
                            struct weft_errmsg *why) {
    struct wefti_lora_set *set = &eng->sets[eng->info.max_seqs];
    weft_err err = wefti_eng_check_loras(eng, list, n, why);
    if (err) return err;
    wefti_loras_drop(eng->loras, set);
    wefti_loras_take(eng->loras, list, n, set);
    return WEFT_OK;
}

weft_err wefti_eng_check_loras(weft_eng *eng, const struct weft_step_adapter *list, uint32_t n,
                               struct weft_errmsg *why) {
    if (n == 0) return WEFT_OK;
    if (eng->loras) return wefti_loras_check(eng->loras, list, n, why);
    return weft_err_set(why, WEFT_E_PROTO, "a start names adapters, and there are none");
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

void weft_eng_watch_routes(weft_eng *eng, weft_eng_routes_fn *fn, void *ctx) {
    wefti_forward_watch_routes(eng->forward, fn, ctx);
}

const uint64_t *weft_eng_expert_tokens(const weft_eng *eng) {
    return wefti_forward_expert_tokens(eng->forward);
}

weft_err weft_eng_write_expert_profile(const weft_eng *eng, FILE *out, struct weft_errmsg *why) {
    const struct weft_eng_info *info = &eng->info;
    const struct wefti_expert_load load = {.model = info->model_name,
                                           .arch = info->arch,
                                           .n_layers = info->n_layers,
                                           .n_experts = info->n_experts,
                                           .n_hidden = eng->weights.n_hidden,
                                           .tokens = weft_eng_expert_tokens(eng)};
    if (!load.tokens)
        return weft_err_set(why, WEFT_E_INVAL, "the model has no experts to be profiled");
    return wefti_expert_load_write(out, &load, why);
}

bool weft_eng_has_experts(const weft_eng *eng, uint32_t layer) {
    WEFT_ASSERT(layer < eng->weights.n_layers);
    return eng->weights.layers[layer].experts != NULL;
}
