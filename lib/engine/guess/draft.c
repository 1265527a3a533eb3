/* Rounds: the first computes what a sequence got since it last guessed, a token or two, and each that
 * follows the guess before it, for all sequences together. What more a sequence lacks is computed before,
 * without logits, and in time of its own, since it is not what a guess costs. */
#include "guess/draft.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "model/model.h"
#include "runtime/memory.h"
#include "tokenizer/tokenizer.h"

#define CATCH_UP_TOKENS 256u /* of a step, of all sequences: a draft's pass over so many is short */
#define LACKS_USUALLY 2u     /* the last guess, if it came true, and the token sampled after it */

struct state {          /* of a slot's sequence */
    uint32_t n_valid;   /* leading tokens that the draft has computed, as far as it is known */
    uint32_t n_written; /* the same in this step, guesses included */
};

struct wefti_draft {
    struct wefti_beside beside;
    uint32_t n_vocab, n_shared_vocab, n_context, long_prompt, block_size;
    uint32_t max_rows, max_seqs;

    uint16_t *n_in_block; /* [n_blocks] leading tokens computed */
    struct state *states; /* [max_seqs] */
    uint32_t *of_step;    /* [max_seqs] slots that were written to */
    uint32_t n_of_step;
    /* Of a pass: */
    uint32_t *tokens; /* [max_rows] */
    struct weft_attn_row *rows;
    bool *is_long;
    uint32_t *last_rows;  /* [max_rows] those whose logits are wanted */
    uint32_t *logit_rows; /* [max_rows] 0, 1, 2, ...: all of these */
    uint32_t **answers;   /* [max_rows], of each logit row: where its likeliest token goes */
    uint32_t n_rows, n_logit_rows;
    void *map;
    size_t map_bytes;
};

/* -------------------------------------------------------------------------------- vocabulary --- */

static weft_err differ(const char *path, struct weft_errmsg *why, uint32_t id, uint32_t n_of_draft,
                       uint32_t n_of_target) {
    if (n_of_draft != n_of_target)
        return weft_err_set(
            why, WEFT_E_INVAL,
            "the draft model %s has %u tokens, the model has %u: they must have the "
            "same vocabulary",
            path, n_of_draft, n_of_target);
    return weft_err_set(why, WEFT_E_INVAL,
                        "token %u of the draft model %s is another one than the model's: they must "
                        "have the same vocabulary",
                        id, path);
}

static weft_err check_vocabulary(const char *draft_path, const char *target_path,
                                 uint32_t *n_shared_out, struct weft_errmsg *why) {
    weft_tokenizer *draft = NULL, *target = NULL;
    weft_err err = weft_tok_open(target_path, &target, why);
    if (!err) err = weft_tok_open(draft_path, &draft, why);
    if (err) goto cleanup;
    uint32_t n = weft_tok_vocab_size(target), n_draft = weft_tok_vocab_size(draft);
    if (n != n_draft) err = differ(draft_path, why, 0, n_draft, n);
    for (uint32_t id = 0; id < n && !err; id++) {
        size_t len = 0, draft_len = 0;
        const char *bytes = weft_tok_token_bytes(target, id, &len);
        const char *draft_bytes = weft_tok_token_bytes(draft, id, &draft_len);
        bool is_same = len == draft_len && (len == 0 || !memcmp(bytes, draft_bytes, len)) &&
                       weft_tok_is_special(target, id) == weft_tok_is_special(draft, id);
        if (!is_same) err = differ(draft_path, why, id, n, n);
    }
    *n_shared_out = n;
cleanup:
    weft_tok_free(draft);
    weft_tok_free(target);
    return err;
}

/* ----------------------------------------------------------------------------------- opening --- */

static weft_err check_model(struct wefti_draft *draft, const char *path, const char *target_path,
                            const weft_model *model, const struct weft_eng_info *info,
                            struct weft_errmsg *why) {
    const struct weft_model_params *p = weft_model_params(model);
    if (p->encoder.is_on)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the draft model %s is an encoder, which says nothing", path);
    if (weft_model_has_recurrent(p))
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "the draft model %s has recurrent layers, whose states cannot go back "
                            "where a guess does not come true",
                            path);
    weft_err err = check_vocabulary(path, target_path, &draft->n_shared_vocab, why);
    draft->n_vocab = p->n_vocab;
    draft->n_shared_vocab =
        weft_min_u32(draft->n_shared_vocab, weft_min_u32(p->n_vocab, info->n_vocab));
    draft->n_context = p->n_context;
    draft->long_prompt = weft_model_long_prompt(model);
    return err;
}

weft_err wefti_draft_new(const struct wefti_beside_host *host, struct wefti_draft **draft_out,
                         struct weft_errmsg *why) {
    const struct weft_eng_info *info = host->info;
    const char *path = host->options->draft_path;
    weft_model *model = NULL;
    *draft_out = NULL;
    struct wefti_draft *draft = calloc(1, sizeof *draft);
    if (!draft) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a draft model");
    draft->block_size = info->block_size;
    draft->max_rows = info->max_batched_tokens;
    draft->max_seqs = info->max_seqs;
    weft_err err = weft_model_open(path, &model, why);
    if (!err) err = check_model(draft, path, host->path, model, info, why);
    if (!err) {
        err = wefti_beside_init(&draft->beside, path, model, host, why);
        model = NULL;
    }
    if (err) {
        weft_model_free(model);
        wefti_draft_free(draft);
        return err;
    }
    *draft_out = draft;
    return WEFT_OK;
}

void wefti_draft_free(struct wefti_draft *draft) {
    if (!draft) return;
    wefti_beside_close(&draft->beside);
    wefti_memory_unmap(draft->map, draft->map_bytes);
    free(draft);
}

struct wefti_beside *wefti_draft_beside(struct wefti_draft *draft) {
    return &draft->beside;
}

static void lay_out(struct wefti_draft *d, uint32_t n_blocks, struct wefti_memory_layout *layout) {
    d->n_in_block = wefti_memory_reserve(layout, n_blocks, sizeof *d->n_in_block);
    d->states = wefti_memory_reserve(layout, d->max_seqs, sizeof *d->states);
    d->of_step = wefti_memory_reserve(layout, d->max_seqs, sizeof *d->of_step);
    d->tokens = wefti_memory_reserve(layout, d->max_rows, sizeof *d->tokens);
    d->rows = wefti_memory_reserve(layout, d->max_rows, sizeof *d->rows);
    d->is_long = wefti_memory_reserve(layout, d->max_rows, sizeof *d->is_long);
    d->last_rows = wefti_memory_reserve(layout, d->max_rows, sizeof *d->last_rows);
    d->logit_rows = wefti_memory_reserve(layout, d->max_rows, sizeof *d->logit_rows);
    d->answers = wefti_memory_reserve(layout, d->max_rows, sizeof(uint32_t *));
}

weft_err wefti_draft_open(struct wefti_draft *draft, const struct weft_eng_info *info,
                          struct weft_errmsg *why) {
    struct wefti_memory_layout layout = {0};
    lay_out(draft, info->n_blocks, &layout);
    draft->map_bytes = layout.used;
    draft->map = wefti_memory_map_near(draft->map_bytes, info->home);
    if (!draft->map) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a draft model's steps");
    layout = (struct wefti_memory_layout){.base = draft->map};
    lay_out(draft, info->n_blocks, &layout);
    for (uint32_t i = 0; i < draft->max_rows; i++)
        draft->logit_rows[i] = i;
    return wefti_beside_open(&draft->beside, info, why);
}

/* ------------------------------------------------------------------------------------- plans --- */

void wefti_draft_move(struct wefti_draft *draft, const struct weft_step_plan *plan) {
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        const struct weft_step_copy *copy = &plan->copies[i];
        if (copy->kind != WEFT_KV_FULL) continue;
        if (draft->n_in_block[copy->from] > 0) wefti_beside_copy(&draft->beside, copy);
        draft->n_in_block[copy->to] = draft->n_in_block[copy->from];
    }
    for (uint32_t i = 0; i < plan->n_restores; i++)
        draft->n_in_block[plan->restores[i].block] = 0;
}

void wefti_draft_forget(struct wefti_draft *draft, uint32_t block) {
    draft->n_in_block[block] = 0;
}

void wefti_draft_start(struct wefti_draft *draft, uint32_t slot) {
    draft->states[slot] = (struct state){0};
}

/* What the target has not computed in a block is not there for the draft. */
void wefti_draft_grant(struct wefti_draft *draft, const struct wefti_slot *slot,
                       const struct weft_step_grant *grant) {
    if (grant->kind != WEFT_KV_FULL) return;
    for (uint32_t i = 0; i < grant->n_blocks; i++) {
        uint64_t first = (uint64_t)(slot->n_table[WEFT_KV_FULL] + i) * draft->block_size;
        uint64_t n = slot->n_computed > first ? slot->n_computed - first : 0;
        uint16_t *n_in_block = &draft->n_in_block[grant->blocks[i]];
        *n_in_block = (uint16_t)weft_min_u64(*n_in_block, n);
    }
}

/* ----------------------------------------------------------------------------------- guesses --- */

/* Blocks that others computed as well make it longer. */
static uint32_t n_valid(struct wefti_draft *draft, const struct wefti_slot *slot,
                        struct state *state, uint32_t n_known) {
    uint32_t size = draft->block_size;
    while (state->n_valid < n_known) {
        uint32_t idx = state->n_valid / size, in_block = state->n_valid % size;
        uint32_t there = draft->n_in_block[slot->table[WEFT_KV_FULL][idx]];
        if (there <= in_block) break;
        state->n_valid = idx * size + there;
    }
    /* The last token is computed in any case: its logits are what is wanted. */
    state->n_valid = weft_min_u32(state->n_valid, n_known - 1);
    return state->n_valid;
}

static void add_row(struct wefti_draft *draft, const struct wefti_slot *slot, uint32_t pos) {
    uint32_t row = draft->n_rows++, token = slot->tokens[pos];
    WEFT_ASSERT(row < draft->max_rows);
    draft->tokens[row] = token < draft->n_vocab ? token : 0; /* padding, which nobody sees */
    draft->rows[row] = (struct weft_attn_row){slot->table[WEFT_KV_FULL], pos, 0};
    draft->is_long[row] = slot->n_prompt > draft->long_prompt;
}

static void want_answer(struct wefti_draft *draft, uint32_t *answer) {
    draft->last_rows[draft->n_logit_rows] = draft->n_rows - 1;
    draft->answers[draft->n_logit_rows++] = answer;
}

static void on_logits(void *ctx, uint32_t i, float *logits, uint32_t thread_idx) {
    const struct wefti_draft *draft = ctx;
    (void)thread_idx;
    *draft->answers[i] = draft->beside.kern->argmax(logits, draft->n_shared_vocab);
}

static weft_err run_pass(struct wefti_draft *draft, struct weft_errmsg *why) {
    const struct wefti_forward_batch batch = {
        .n_tokens = draft->n_rows,
        .tokens = draft->tokens,
        .rows = {draft->rows, draft->rows},
        .is_long = draft->is_long,
        .n_last_rows = draft->n_logit_rows,
        .last_rows = draft->last_rows,
        .n_logit_rows = draft->n_logit_rows,
        .logit_rows = draft->logit_rows,
        .on_logits = on_logits,
        .ctx = draft,
    };
    weft_err err =
        draft->n_rows > 0 ? wefti_forward_run(draft->beside.forward, &batch, why) : WEFT_OK;
    draft->n_rows = draft->n_logit_rows = 0;
    return err;
}

/* All but the last few tokens that it lacks, as far as there is room in this step. */
static void catch_up(struct wefti_draft *draft, const struct wefti_slot *slot,
                     struct state *state) {
    uint32_t most = weft_min_u32(CATCH_UP_TOKENS, draft->max_rows);
    uint32_t end = weft_min_u32(slot->n_known, draft->n_context);
    if (end - weft_min_u32(state->n_written, end) <= LACKS_USUALLY) return;
    while (state->n_written + 1 < end && draft->n_rows < most)
        add_row(draft, slot, state->n_written++);
}

/* Not if it has not caught up, has all it wants, or is at the end of the draft's context. */
static bool guesses_in(const struct wefti_draft *draft, const struct wefti_slot *slot,
                       const struct state *state, uint32_t n_most, uint32_t round) {
    if (round > 0 ? slot->n_guesses < round : slot->n_known - state->n_written > LACKS_USUALLY)
        return false;
    return round < n_most && slot->n_known + round < draft->n_context;
}

static void add_to_round(struct wefti_draft *draft, struct wefti_slot *slot, struct state *state,
                         uint32_t round) {
    uint32_t end = slot->n_known + round;
    for (; state->n_written < end; state->n_written++)
        add_row(draft, slot, state->n_written);
    want_answer(draft, &slot->tokens[end]);
    slot->n_guesses++;
}

static weft_err begin(struct wefti_draft *draft, const struct wefti_slots *slots,
                      const struct wefti_guess_line *lines, uint32_t n_lines,
                      struct weft_errmsg *why) {
    for (uint32_t i = 0; i < n_lines; i++) {
        const struct wefti_slot *slot = &slots->slots[lines[i].slot];
        struct state *state = &draft->states[lines[i].slot];
        state->n_written = n_valid(draft, slot, state, slot->n_known);
        draft->of_step[draft->n_of_step++] = lines[i].slot;
        catch_up(draft, slot, state);
    }
    return run_pass(draft, why);
}

weft_err wefti_draft_guess(struct wefti_draft *draft, struct wefti_slots *slots,
                           const struct wefti_guess_line *lines, uint32_t n_lines,
                           uint32_t *catch_up_us_out, struct weft_errmsg *why) {
    uint64_t begin_us = weft_now_us();
    draft->n_of_step = 0;
    weft_err err = begin(draft, slots, lines, n_lines, why);
    *catch_up_us_out = (uint32_t)weft_min_u64(weft_now_us() - begin_us, UINT32_MAX);
    for (uint32_t round = 0; round < WEFT_SPEC_TOKENS_MAX && !err; round++) {
        for (uint32_t i = 0; i < n_lines; i++) {
            struct wefti_slot *slot = &slots->slots[lines[i].slot];
            struct state *state = &draft->states[lines[i].slot];
            if (guesses_in(draft, slot, state, lines[i].n_most, round))
                add_to_round(draft, slot, state, round);
        }
        if (draft->n_rows == 0) break;
        err = run_pass(draft, why);
    }
    return err;
}

static void note_blocks(struct wefti_draft *draft, const struct wefti_slot *slot, uint32_t from,
                        uint32_t end) {
    uint32_t size = draft->block_size;
    for (uint32_t idx = from / size; idx * size < end; idx++) {
        uint16_t *n_in_block = &draft->n_in_block[slot->table[WEFT_KV_FULL][idx]];
        uint32_t n = weft_min_u32(size, end - idx * size);
        *n_in_block = (uint16_t)weft_max_u32(*n_in_block, n);
    }
}

void wefti_draft_settle(struct wefti_draft *draft, const struct wefti_slots *slots) {
    for (uint32_t i = 0; i < draft->n_of_step; i++) {
        const struct wefti_slot *slot = &slots->slots[draft->of_step[i]];
        struct state *state = &draft->states[draft->of_step[i]];
        uint32_t end = weft_min_u32(state->n_written, slot->n_computed);
        if (end > state->n_valid) note_blocks(draft, slot, state->n_valid, end);
        state->n_valid = weft_max_u32(state->n_valid, end);
    }
    draft->n_of_step = 0;
}
