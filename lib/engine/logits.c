/* Raw logits of a text, for tests, perplexity and calibrations. */
#include "state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/minmax.h"
#include "weights/calibrate.h"

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
    weft_err err = weft_eng_check_predicts(eng, why);
    if (err) return err;
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
    /* Nobody is in slot 0, so its tables are free for the blocks from the top of the pools. */
    uint32_t *const *tables = eng->slots.slots[0].table, n_kinds = eng->slots.n_kinds;
    for (uint32_t kind = 0; kind < n_kinds; kind++) {
        uint32_t n_blocks = eng->slots.n_blocks[kind];
        for (uint32_t i = 0; i * eng->info.block_size < n_tokens; i++) {
            tables[kind][i] = n_blocks - 1 - i % n_blocks; /* round where a window moves on */
        }
    }
    const struct wefti_lora_set *set = &eng->sets[eng->info.max_seqs];
    struct logits_run run = {.on_row = on_row, .ctx = ctx};
    while (run.first < n_tokens) {
        uint32_t n = weft_min_u32(eng->info.max_batched_tokens, n_tokens - run.first);
        for (uint32_t i = 0; i < n; i++) {
            eng->tokens[i] = tokens[run.first + i];
            for (uint32_t kind = 0; kind < n_kinds; kind++)
                eng->rows[kind][i] = (struct weft_attn_row){tables[kind], run.first + i, 0};
            eng->is_long[i] = n_tokens > eng->long_prompt;
            eng->logit_rows[i] = i;
            eng->row_sets[i] = set;
        }
        const struct wefti_mixer_seq seq = {0, n, 0, run.first == 0};
        struct wefti_forward_batch batch = {
            .n_tokens = n,
            .tokens = eng->tokens,
            .rows = {eng->rows[WEFT_KV_FULL], eng->rows[WEFT_KV_WINDOWED]},
            .is_long = eng->is_long,
            .n_last_rows = n,
            .last_rows = eng->logit_rows,
            .adapters = set->n > 0 ? eng->row_sets : NULL,
            .n_logit_rows = n,
            .logit_rows = eng->logit_rows,
            .n_seqs = 1,
            .seqs = &seq,
            .on_logits = forward_logits,
            .in_order = true,
            .ctx = &run,
        };
        uint64_t begin_ns = eng->profile ? weft_now_ns() : 0;
        err = wefti_forward_run(eng->forward, &batch, why);
        if (err) return err;
        if (eng->profile) wefti_profile_step(eng->profile, begin_ns, weft_now_ns(), n);
        run.first += n;
    }
    return WEFT_OK;
}

/* As wefti_calib_sizes_of the model, which is gone. */
static struct wefti_calib_sizes sizes_of(const weft_eng *eng) {
    const struct wefti_weights_layer *layers = eng->weights.layers;
    struct wefti_calib_sizes sizes = {.n_layers = eng->weights.n_layers,
                                      .n_hidden = eng->weights.n_hidden};
    for (uint32_t i = 0; i < sizes.n_layers; i++) {
        sizes.o_dim = weft_max_u32(sizes.o_dim, layers[i].o.k);
        sizes.q_rank = weft_max_u32(sizes.q_rank, layers[i].q_a.n);
        if (layers[i].gate.n > 0) sizes.n_ffn = weft_max_u32(sizes.n_ffn, layers[i].down.k);
        if (!layers[i].experts) continue;
        sizes.n_experts = eng->info.n_experts;
        sizes.n_ffn_expert = layers[i].experts->down.k;
    }
    return sizes;
}

weft_err weft_eng_calibrate(weft_eng *eng, weft_eng_calib **calib_out, struct weft_errmsg *why) {
    *calib_out = NULL;
    if (eng->coll)
        return weft_err_set(why, WEFT_E_INVAL, "a rank's share of a model cannot be calibrated");
    if (!eng->exact) return weft_err_set(why, WEFT_E_INVAL, "a calibration needs f32 activations");
    if (eng->states.n_layers > 0)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "a model with recurrent layers cannot be calibrated");
    for (uint32_t i = 0; i < eng->weights.n_layers; i++) {
        if (eng->weights.layers[i].latent_in.n > 0)
            return weft_err_set(why, WEFT_E_UNSUPPORTED,
                                "a model whose experts read another width cannot be calibrated");
    }
    const struct wefti_calib_sizes sizes = sizes_of(eng);
    weft_err err = wefti_calib_new(&sizes, calib_out, why);
    if (!err) wefti_forward_observe(eng->forward, *calib_out);
    return err;
}
