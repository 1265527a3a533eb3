/* A pass takes rows of several sequences, each a state and the token after it, and runs when it is full
 * or when what it yields is wanted. */
#include "guess/mtp.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "model/model.h"
#include "runtime/memory.h"

/* Kept of a sequence: what a step leaves in which all guesses came true. */
#define KEPT_MAX (WEFT_SPEC_TOKENS_MAX + 1u)

struct state {       /* of a slot's sequence */
    uint32_t n_kept; /* states of its last computed tokens that have not gone in */
    uint32_t pos;    /* in this step: its first token, */
    uint32_t row;    /* and where in the batch */
};

struct answer { /* of a logit row */
    uint32_t *token;
    float *state;
};

struct wefti_mtp {
    struct wefti_beside beside;
    uint32_t n_hidden, n_vocab, long_prompt, max_rows, max_seqs;
    size_t stride; /* of states */

    float *of_batch; /* [max_rows][stride] */
    float *kept;     /* [max_seqs][KEPT_MAX][stride] */
    float *own;      /* [max_seqs][stride] the layer's, of its last guess */
    struct state *states;
    uint32_t *of_step; /* [max_seqs] slots that are in the batch */
    uint32_t n_of_step;
    /* Of a pass: */
    uint32_t *tokens; /* [max_rows] */
    struct weft_attn_row *rows;
    const float **inputs;
    bool *is_long;
    uint32_t *last_rows;  /* [max_rows] those whose logits are wanted */
    uint32_t *logit_rows; /* [max_rows] 0, 1, 2, ...: all of these */
    struct wefti_forward_span *spans;
    struct answer *answers;
    uint32_t n_rows, n_answers;
    void *map;
    size_t map_bytes;
};

/* ----------------------------------------------------------------------------------- opening --- */

weft_err wefti_mtp_new(const struct wefti_beside_host *host, struct wefti_mtp **mtp_out,
                       struct weft_errmsg *why) {
    const struct weft_eng_info *info = host->info;
    weft_model *model;
    *mtp_out = NULL;
    weft_err err = weft_model_open_predictor(host->path, &model, why);
    if (err) return err;
    struct wefti_mtp *mtp = calloc(1, sizeof *mtp);
    if (!mtp) {
        weft_model_free(model);
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for multi-token prediction");
    }
    mtp->n_hidden = info->n_hidden;
    mtp->n_vocab = info->n_vocab;
    mtp->long_prompt = weft_model_long_prompt(model);
    mtp->max_rows = info->max_batched_tokens;
    mtp->max_seqs = info->max_seqs;
    mtp->stride = wefti_memory_stride(info->n_hidden);
    err = wefti_beside_init(&mtp->beside, host->path, model, host, why);
    if (err) {
        wefti_mtp_free(mtp);
        return err;
    }
    *mtp_out = mtp;
    return WEFT_OK;
}

void wefti_mtp_free(struct wefti_mtp *mtp) {
    if (!mtp) return;
    wefti_beside_close(&mtp->beside);
    wefti_memory_unmap(mtp->map, mtp->map_bytes);
    free(mtp);
}

struct wefti_beside *wefti_mtp_beside(struct wefti_mtp *mtp) {
    return &mtp->beside;
}

static void lay_out(struct wefti_mtp *m, struct wefti_memory_layout *layout) {
    size_t n_rows = m->max_rows, n_seqs = m->max_seqs, bytes = m->stride * sizeof(float);
    m->of_batch = wefti_memory_reserve(layout, n_rows, bytes);
    m->kept = wefti_memory_reserve(layout, n_seqs * KEPT_MAX, bytes);
    m->own = wefti_memory_reserve(layout, n_seqs, bytes);
    m->states = wefti_memory_reserve(layout, n_seqs, sizeof *m->states);
    m->of_step = wefti_memory_reserve(layout, n_seqs, sizeof *m->of_step);
    m->tokens = wefti_memory_reserve(layout, n_rows, sizeof *m->tokens);
    m->rows = wefti_memory_reserve(layout, n_rows, sizeof *m->rows);
    m->inputs = wefti_memory_reserve(layout, n_rows, sizeof(float *));
    m->is_long = wefti_memory_reserve(layout, n_rows, sizeof *m->is_long);
    m->last_rows = wefti_memory_reserve(layout, n_rows, sizeof *m->last_rows);
    m->logit_rows = wefti_memory_reserve(layout, n_rows, sizeof *m->logit_rows);
    m->spans = wefti_memory_reserve(layout, n_rows, sizeof *m->spans);
    m->answers = wefti_memory_reserve(layout, n_rows, sizeof *m->answers);
}

weft_err wefti_mtp_measure(const struct wefti_mtp *mtp, struct wefti_beside_needs *needs_out,
                           struct weft_errmsg *why) {
    struct wefti_mtp shape = *mtp;
    struct wefti_memory_layout layout = {0};
    weft_err err = wefti_beside_measure(&mtp->beside, needs_out, why);
    lay_out(&shape, &layout);
    needs_out->scratch_bytes += layout.used;
    return err;
}

weft_err wefti_mtp_open(struct wefti_mtp *mtp, const struct weft_eng_info *info,
                        struct weft_errmsg *why) {
    struct wefti_memory_layout layout = {0};
    lay_out(mtp, &layout);
    mtp->map_bytes = layout.used;
    mtp->map = wefti_memory_map_near(mtp->map_bytes, info->home);
    if (!mtp->map)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %zu bytes of states", layout.used);
    layout = (struct wefti_memory_layout){.base = mtp->map};
    lay_out(mtp, &layout);
    for (uint32_t i = 0; i < mtp->max_rows; i++) {
        mtp->logit_rows[i] = i;
        mtp->spans[i] = (struct wefti_forward_span){i, 1};
    }
    return wefti_beside_open(&mtp->beside, info, why);
}

/* ------------------------------------------------------------------------------------ passes --- */

static void on_logits(void *ctx, uint32_t i, float *logits, uint32_t thread_idx) {
    const struct wefti_mtp *mtp = ctx;
    (void)thread_idx;
    *mtp->answers[i].token = mtp->beside.kern->argmax(logits, mtp->n_vocab);
}

static void on_hidden(void *ctx, uint32_t i, const float *hidden, uint32_t thread_idx) {
    const struct wefti_mtp *mtp = ctx;
    (void)thread_idx;
    memcpy(mtp->answers[i].state, hidden, mtp->n_hidden * sizeof *hidden);
}

static weft_err run_pass(struct wefti_mtp *mtp, struct weft_errmsg *why) {
    const struct wefti_forward_batch batch = {
        .n_tokens = mtp->n_rows,
        .tokens = mtp->tokens,
        .states = mtp->inputs,
        .rows = {mtp->rows, mtp->rows},
        .is_long = mtp->is_long,
        .n_last_rows = mtp->n_answers,
        .last_rows = mtp->last_rows,
        .n_logit_rows = mtp->n_answers,
        .logit_rows = mtp->logit_rows,
        .on_logits = on_logits,
        .n_spans = mtp->n_answers,
        .spans = mtp->spans,
        .on_hidden = on_hidden,
        .ctx = mtp,
    };
    weft_err err = mtp->n_rows > 0 ? wefti_forward_run(mtp->beside.forward, &batch, why) : WEFT_OK;
    mtp->n_rows = mtp->n_answers = 0;
    return err;
}

/* The state of a position, and the token after it. */
static weft_err add_row(struct wefti_mtp *mtp, const struct wefti_slot *slot, uint32_t pos,
                        const float *state, struct weft_errmsg *why) {
    weft_err err = mtp->n_rows == mtp->max_rows ? run_pass(mtp, why) : WEFT_OK;
    if (err) return err;
    uint32_t row = mtp->n_rows++;
    WEFT_ASSERT(pos / mtp->beside.options.block_size < slot->n_table[WEFT_KV_FULL]);
    mtp->tokens[row] = slot->tokens[pos + 1];
    mtp->rows[row] = (struct weft_attn_row){slot->table[WEFT_KV_FULL], pos, 0};
    mtp->inputs[row] = state;
    mtp->is_long[row] = slot->n_prompt > mtp->long_prompt;
    return WEFT_OK;
}

static float *kept_of(const struct wefti_mtp *mtp, uint32_t slot, uint32_t i) {
    return mtp->kept + ((size_t)slot * KEPT_MAX + i) * mtp->stride;
}

/* What is kept of a sequence: of its tokens before `end`. */
static weft_err add_kept(struct wefti_mtp *mtp, const struct wefti_slots *slots, uint32_t slot,
                         uint32_t end, struct weft_errmsg *why) {
    uint32_t n_kept = mtp->states[slot].n_kept;
    weft_err err = WEFT_OK;
    WEFT_ASSERT(n_kept <= end);
    for (uint32_t i = 0; i < n_kept && !err; i++)
        err = add_row(mtp, &slots->slots[slot], end - n_kept + i, kept_of(mtp, slot, i), why);
    return err;
}

/* ------------------------------------------------------------------------------------- plans --- */

void wefti_mtp_move(struct wefti_mtp *mtp, const struct weft_step_plan *plan) {
    mtp->n_of_step = mtp->n_rows = mtp->n_answers = 0; /* a step before may have failed halfway */
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        if (plan->copies[i].kind == WEFT_KV_FULL) wefti_beside_copy(&mtp->beside, &plan->copies[i]);
    }
    for (uint32_t i = 0; i < plan->n_restores; i++)
        wefti_mtp_forget(mtp, plan->restores[i].block);
}

void wefti_mtp_forget(struct wefti_mtp *mtp, uint32_t block) {
    const struct wefti_kv_cache *kv = &mtp->beside.kv;
    memset(wefti_kv_cache_block(kv, WEFT_KV_FULL, block), 0, kv->block_bytes[WEFT_KV_FULL]);
}

void wefti_mtp_start(struct wefti_mtp *mtp, uint32_t slot) {
    mtp->states[slot] = (struct state){0};
}

/* ----------------------------------------------------------------------------------- guesses --- */

/* The next guess of a sequence that has `round` of them. */
static weft_err add_to_round(struct wefti_mtp *mtp, struct wefti_slots *slots, uint32_t idx,
                             uint32_t round, struct weft_errmsg *why) {
    struct wefti_slot *slot = &slots->slots[idx];
    struct state *state = &mtp->states[idx];
    float *own = mtp->own + idx * mtp->stride;
    weft_err err = round == 0 ? add_kept(mtp, slots, idx, slot->n_computed, why)
                              : add_row(mtp, slot, slot->n_computed - 1 + round, own, why);
    if (err) return err;
    state->n_kept = 0;
    mtp->last_rows[mtp->n_answers] = mtp->n_rows - 1;
    mtp->answers[mtp->n_answers++] = (struct answer){&slot->tokens[slot->n_known + round], own};
    slot->n_guesses++;
    return WEFT_OK;
}

weft_err wefti_mtp_guess(struct wefti_mtp *mtp, struct wefti_slots *slots,
                         const struct wefti_guess_line *lines, uint32_t n_lines,
                         struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    for (uint32_t round = 0; round < WEFT_SPEC_TOKENS_MAX && !err; round++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_lines && !err; i++) {
            uint32_t idx = lines[i].slot;
            const struct wefti_slot *slot = &slots->slots[idx];
            bool begins = slot->n_computed + 1 == slot->n_known && mtp->states[idx].n_kept > 0;
            if (round >= lines[i].n_most || (round == 0 ? !begins : slot->n_guesses < round))
                continue;
            err = add_to_round(mtp, slots, idx, round, why);
            n++;
        }
        if (n == 0) break;
        if (!err) err = run_pass(mtp, why);
    }
    return err;
}

/* ------------------------------------------------------------------------------------- steps --- */

void wefti_mtp_note(struct wefti_mtp *mtp, const struct wefti_slots *slots, uint32_t slot,
                    uint32_t row) {
    WEFT_ASSERT(mtp->n_of_step < mtp->max_seqs);
    mtp->states[slot].pos = slots->slots[slot].n_computed;
    mtp->states[slot].row = row;
    mtp->of_step[mtp->n_of_step++] = slot;
}

void wefti_mtp_take(struct wefti_mtp *mtp, uint32_t row, const float *state) {
    WEFT_ASSERT(row < mtp->max_rows);
    memcpy(mtp->of_batch + row * mtp->stride, state, mtp->n_hidden * sizeof *state);
}

/* Whether those of a sequence are too many to be kept, or it is over. */
static bool goes_in(const struct state *state, const struct wefti_slot *slot) {
    return slot->finish != WEFT_END_NONE ||
           state->n_kept + (slot->n_computed - state->pos) > KEPT_MAX;
}

/* All but the last one, whose next token may not be known. At an end that goes in, too, if it is. */
static weft_err add_all(struct wefti_mtp *mtp, const struct wefti_slots *slots, uint32_t idx,
                        struct weft_errmsg *why) {
    const struct wefti_slot *slot = &slots->slots[idx];
    const struct state *state = &mtp->states[idx];
    bool has_next = slot->finish != WEFT_END_NONE && slot->n_computed < slot->n_known;
    weft_err err = add_kept(mtp, slots, idx, state->pos, why);
    for (uint32_t pos = state->pos; pos + 1 < slot->n_computed + has_next && !err; pos++) {
        const float *input = mtp->of_batch + (state->row + pos - state->pos) * mtp->stride;
        err = add_row(mtp, slot, pos, input, why);
    }
    return err;
}

/* When the rows that it was needed for have run. */
static void keep(struct wefti_mtp *mtp, const struct wefti_slot *slot, uint32_t idx) {
    struct state *state = &mtp->states[idx];
    uint32_t n = slot->n_computed - state->pos, from = 0;
    if (goes_in(state, slot)) {
        state->n_kept = 0;
        from = n - 1;
    }
    memcpy(kept_of(mtp, idx, state->n_kept), mtp->of_batch + (state->row + from) * mtp->stride,
           (n - from) * mtp->stride * sizeof(float));
    state->n_kept += n - from;
}

weft_err wefti_mtp_settle(struct wefti_mtp *mtp, const struct wefti_slots *slots,
                          struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < mtp->n_of_step && !err; i++) {
        uint32_t idx = mtp->of_step[i];
        if (goes_in(&mtp->states[idx], &slots->slots[idx])) err = add_all(mtp, slots, idx, why);
    }
    if (!err) err = run_pass(mtp, why);
    for (uint32_t i = 0; i < mtp->n_of_step && !err; i++)
        keep(mtp, &slots->slots[mtp->of_step[i]], mtp->of_step[i]);
    mtp->n_of_step = 0;
    return err;
}
