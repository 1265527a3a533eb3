/* Checks a plan whole before anything changes. It comes from another process, and a plan applied by
 * half would leave the two with different ideas of who holds what.
 *
 * The dry run keeps a shadow of each slot the plan names: the slot after the parts checked so far.
 * Shadows are stamped per plan, so that a plan costs only the slots it names. */
#include "runtime/plan_check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "base/minmax.h"
#include "kernels/kernels.h"

struct check {
    struct wefti_slots *slots;
    const struct weft_step_plan *plan;
    uint32_t n_spill_slots;
    bool is_new_epoch;
    uint64_t logprob_bytes; /* of the rows checked so far */
    struct weft_errmsg *why;
};

static struct wefti_slot_shadow *shadow_of(const struct check *check, uint32_t slot_idx) {
    struct wefti_slots *slots = check->slots;
    if (slot_idx >= slots->n_slots) return NULL;
    struct wefti_slot_shadow *shadow = &slots->shadows[slot_idx];
    if (shadow->stamp == slots->shadow_stamp) return shadow;
    const struct wefti_slot *slot = &slots->slots[slot_idx];
    *shadow = (struct wefti_slot_shadow){.stamp = slots->shadow_stamp};
    if (check->is_new_epoch) return shadow;
    shadow->used = slot->used;
    shadow->gen_known = slot->gen_known;
    shadow->finished = slot->finish != WEFT_END_NONE;
    shadow->gen = slot->gen;
    shadow->n_state = slot->gen_known ? slot->n_computed : 0;
    memcpy(shadow->n_table, slot->n_table, sizeof shadow->n_table);
    shadow->seq = wefti_slot_seq(check->slots, slot);
    return shadow;
}

/* The sequence (slot, gen), or NULL with a sentence. */
static struct wefti_slot_shadow *sequence_of(const struct check *check, const char *part,
                                             uint32_t slot_idx, uint32_t gen) {
    struct wefti_slot_shadow *shadow = shadow_of(check, slot_idx);
    if (shadow && shadow->used && shadow->gen == gen) return shadow;
    (void)weft_err_set(check->why, WEFT_E_PROTO,
                       "a %s names slot %u generation %u, which is not there", part, slot_idx, gen);
    return NULL;
}

static weft_err check_releases(const struct check *check) {
    for (uint32_t i = 0; i < check->plan->n_releases; i++) {
        const struct weft_step_release *release = &check->plan->releases[i];
        struct wefti_slot_shadow *shadow =
            sequence_of(check, "release", release->slot, release->gen);
        if (!shadow) return WEFT_E_PROTO;
        shadow->used = false;
    }
    return WEFT_OK;
}

/* The last token stays, and what the prompt is asked for was told before. */
static weft_err check_dropped(const struct check *check, const struct weft_step_start *start) {
    bool has_prompt = start->sampling.n_prompt_logprobs < 0 ||
                      start->n_prompt_logprobs_done == start->n_prompt || start->n_prompt == 1;
    if (start->n_tokens > start->n_prompt && start->n_tokens <= check->slots->history_cap &&
        start->n_dropped < start->n_tokens && start->n_keep < start->n_tokens - start->n_dropped &&
        has_prompt && start->sampling.max_tokens <= check->slots->history_cap - start->n_prompt &&
        start->pooling.kind == WEFT_POOLING_NONE)
        return WEFT_OK;
    return weft_err_set(check->why, WEFT_E_PROTO,
                        "a start drops %u tokens behind the first %u, of %u, %u of them prompt",
                        start->n_dropped, start->n_keep, start->n_tokens, start->n_prompt);
}

/* Without a state, or with that of the last token that is there, nothing is computed again. Else whole blocks are there,
 * and the sequence goes on in one of its own. */
static weft_err check_written(const struct check *check, const struct weft_step_start *start) {
    uint32_t n = start->n_written, n_left = start->n_tokens - start->n_dropped;
    bool is_more = check->slots->is_recurrent && n > start->n_cached && n <= n_left &&
                   n % check->slots->block_size == 0;
    if (n == start->n_cached || is_more) return WEFT_OK;
    return weft_err_set(check->why, WEFT_E_PROTO,
                        "a start has %u of %u tokens written, %u cached, in blocks of %u", n,
                        n_left, start->n_cached, check->slots->block_size);
}

static weft_err check_start_lengths(const struct check *check,
                                    const struct weft_step_start *start) {
    uint32_t len_max = check->slots->max_model_len;
    if (start->n_dropped > 0) {
        weft_err err = check_dropped(check, start);
        if (err) return err;
    }
    uint32_t n_left = start->n_tokens - start->n_dropped;
    if (start->n_prompt < 1 || start->n_tokens < start->n_prompt || n_left > len_max)
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "a start has %u tokens, %u of them prompt; between 1 and %u fit",
                            start->n_tokens, start->n_prompt, len_max);
    if (start->n_cached >= n_left)
        return weft_err_set(check->why, WEFT_E_PROTO, "a start has %u of %u tokens cached",
                            start->n_cached, n_left);
    uint32_t skipped = start->n_window_skipped,
             low = weft_attn_low(start->n_cached, check->slots->window);
    if (skipped > 0 && (check->slots->window == 0 || skipped > low / check->slots->block_size))
        return weft_err_set(
            check->why, WEFT_E_PROTO,
            "a start skips %u windowed blocks, but position %u sees what is in them", skipped,
            start->n_cached);
    /* The logits of a cached token are never computed, so nothing that depends on them is known. */
    uint32_t next = weft_max_u32(start->n_prompt_logprobs_done, 1);
    if (start->sampling.n_prompt_logprobs >= 0 && next < start->n_prompt && start->n_cached >= next)
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "a start has %u tokens cached, but wants prompt log-probabilities "
                            "from position %u on",
                            start->n_cached, next);
    return check_written(check, start);
}

/* Values are of the prompt, and those that every position has a part in are of computed ones. */
static weft_err check_pooling(const struct check *check, const struct weft_step_start *start) {
    const struct weft_pooling *pooling = &start->pooling;
    struct weft_errmsg detail = {{0}};
    if (weft_pooling_check(pooling, &start->sampling, start->n_prompt, check->slots->n_vocab,
                           &detail))
        return weft_err_set(check->why, WEFT_E_PROTO, "a start is refused: %s", detail.text);
    if (check->slots->is_encoder && (pooling->kind == WEFT_POOLING_NONE ||
                                     pooling->kind == WEFT_POOLING_TOKENS || start->n_cached > 0))
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "a start wants pooling %d of a text with %u tokens cached, but the "
                            "model reads texts whole and has no next token",
                            (int)pooling->kind, start->n_cached);
    if (pooling->kind == WEFT_POOLING_NONE) return WEFT_OK;
    if (weft_pooling_n_values(pooling, &check->slots->shape) == 0)
        return weft_err_set(check->why, WEFT_E_PROTO, "a start wants values that the model lacks");
    uint32_t n_cached_max = weft_pooling_reads_all(pooling) ? 0 : start->n_prompt - 1;
    if (start->n_tokens == start->n_prompt && start->n_cached <= n_cached_max) return WEFT_OK;
    return weft_err_set(check->why, WEFT_E_PROTO,
                        "a start with pooling has %u tokens, a prompt of %u, %u cached",
                        start->n_tokens, start->n_prompt, start->n_cached);
}

static weft_err check_start(const struct check *check, const struct weft_step_start *start) {
    struct weft_errmsg detail = {{0}};
    struct wefti_slot_shadow *shadow = shadow_of(check, start->slot);
    if (!shadow || shadow->used || (shadow->gen_known && shadow->gen == start->gen))
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "a start names slot %u generation %u, which is not free", start->slot,
                            start->gen);
    weft_err err = check_start_lengths(check, start);
    if (err) return err;
    for (uint32_t i = 0; i < start->n_tokens; i++) {
        if (start->tokens[i] < check->slots->n_vocab) continue;
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "token %u at position %u is outside the vocabulary of %u",
                            start->tokens[i], i, check->slots->n_vocab);
    }
    if (weft_sampling_check(&start->sampling, check->slots->n_vocab, &detail))
        return weft_err_set(check->why, WEFT_E_PROTO, "a start is refused: %s", detail.text);
    err = check_pooling(check, start);
    if (err) return err;
    if (!isfinite(start->sampler_state))
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "the state of a start's sampler is no number");
    uint32_t n_left = start->n_tokens - start->n_dropped;
    enum weft_end finish =
        wefti_slot_finish(&start->sampling, start->n_tokens - start->n_prompt,
                          start->tokens[start->n_tokens - 1], n_left, check->slots->max_model_len);
    *shadow = (struct wefti_slot_shadow){
        .stamp = shadow->stamp,
        .used = true,
        .gen_known = true,
        .is_new = true,
        .n_state = shadow->n_state, /* of who was there before */
        .finished = finish != WEFT_END_NONE,
        .gen = start->gen,
        .n_table = {[WEFT_KV_WINDOWED] = start->n_window_skipped},
        .seq = {.sampling = &start->sampling,
                .n_vocab = check->slots->n_vocab,
                .n_values = weft_pooling_n_values(&start->pooling, &check->slots->shape),
                .n_prompt = start->n_prompt,
                .n_prompt_logprobs_done = start->n_prompt_logprobs_done,
                .n_known = n_left,
                .n_computed = start->n_cached},
    };
    return WEFT_OK;
}

static weft_err check_starts(const struct check *check) {
    for (uint32_t i = 0; i < check->plan->n_starts; i++) {
        weft_err err = check_start(check, &check->plan->starts[i]);
        if (err) return err;
    }
    return WEFT_OK;
}

static const char *of_kind(uint32_t kind) {
    return kind == WEFT_KV_WINDOWED ? " of windowed layers" : "";
}

static weft_err check_kind(const struct check *check, const char *part, uint32_t kind) {
    if (kind < check->slots->n_kinds) return WEFT_OK;
    return weft_err_set(check->why, WEFT_E_PROTO, "a %s of blocks of kind %u, there are %u", part,
                        kind, check->slots->n_kinds);
}

static weft_err check_copies(const struct check *check) {
    for (uint32_t i = 0; i < check->plan->n_copies; i++) {
        const struct weft_step_copy *copy = &check->plan->copies[i];
        weft_err err = check_kind(check, "copy", copy->kind);
        if (err) return err;
        uint32_t n_blocks = check->slots->n_blocks[copy->kind];
        if (copy->from < n_blocks && copy->to < n_blocks) continue;
        return weft_err_set(check->why, WEFT_E_PROTO, "a copy from block %u to %u, there are %u%s",
                            copy->from, copy->to, n_blocks, of_kind(copy->kind));
    }
    return WEFT_OK;
}

static weft_err check_spills(const struct check *check, const char *part,
                             const struct weft_step_spill *spills, uint32_t n) {
    const struct wefti_slots *slots = check->slots;
    for (uint32_t i = 0; i < n; i++) {
        if (spills[i].block < slots->n_blocks[WEFT_KV_FULL] &&
            spills[i].slot < check->n_spill_slots)
            continue;
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "a %s of block %u, there are %u, and slot %u, there are %u", part,
                            spills[i].block, slots->n_blocks[WEFT_KV_FULL], spills[i].slot,
                            check->n_spill_slots);
    }
    return WEFT_OK;
}

static weft_err check_grants(const struct check *check) {
    const struct wefti_slots *slots = check->slots;
    for (uint32_t i = 0; i < check->plan->n_grants; i++) {
        const struct weft_step_grant *grant = &check->plan->grants[i];
        struct wefti_slot_shadow *shadow = sequence_of(check, "grant", grant->slot, grant->gen);
        if (!shadow) return WEFT_E_PROTO;
        weft_err err = check_kind(check, "grant", grant->kind);
        if (err) return err;
        uint32_t *n_table = &shadow->n_table[grant->kind], n_blocks = slots->n_blocks[grant->kind];
        if (grant->n_blocks > slots->table_cap - *n_table)
            return weft_err_set(check->why, WEFT_E_PROTO,
                                "slot %u is granted %u blocks on top of %u, %u fit", grant->slot,
                                grant->n_blocks, *n_table, slots->table_cap);
        for (uint32_t b = 0; b < grant->n_blocks; b++) {
            if (grant->blocks[b] < n_blocks) continue;
            return weft_err_set(check->why, WEFT_E_PROTO,
                                "slot %u is granted block %u, there are %u%s", grant->slot,
                                grant->blocks[b], n_blocks, of_kind(grant->kind));
        }
        *n_table += grant->n_blocks;
    }
    return WEFT_OK;
}

static weft_err check_row(struct check *check, const struct weft_step_row *row) {
    struct wefti_slot_shadow *shadow = sequence_of(check, "row", row->slot, row->gen);
    if (!shadow) return WEFT_E_PROTO;
    if (shadow->has_row)
        return weft_err_set(check->why, WEFT_E_PROTO, "slot %u has two rows", row->slot);
    shadow->has_row = true;
    if (row->n_tokens == 0)
        return weft_err_set(check->why, WEFT_E_PROTO, "slot %u has a row of no tokens", row->slot);
    if (row->n_spec > WEFT_SPEC_TOKENS_MAX)
        return weft_err_set(check->why, WEFT_E_PROTO, "slot %u is to guess %u tokens, %d at most",
                            row->slot, row->n_spec, WEFT_SPEC_TOKENS_MAX);
    if (shadow->finished) return WEFT_OK; /* a no-op, whatever it asks for */
    uint32_t n_known = shadow->seq.n_known, n_computed = shadow->seq.n_computed;
    if (row->n_tokens > n_known - n_computed)
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "slot %u has a row of %u tokens, %u are known and %u computed",
                            row->slot, row->n_tokens, n_known, n_computed);
    if (check->slots->is_encoder && row->n_tokens < n_known)
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "slot %u has a row of %u of %u tokens, but the model reads texts whole",
                            row->slot, row->n_tokens, n_known);
    for (uint32_t kind = 0; kind < check->slots->n_kinds; kind++) {
        uint64_t room = (uint64_t)shadow->n_table[kind] * check->slots->block_size;
        if ((uint64_t)n_computed + row->n_tokens <= room) continue;
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "slot %u has blocks%s for %" PRIu64 " tokens, its row ends at %u",
                            row->slot, of_kind(kind), room, n_computed + row->n_tokens);
    }
    check->logprob_bytes += weft_step_logprob_bytes(&shadow->seq, row->n_tokens);
    return WEFT_OK;
}

static weft_err check_rows(struct check *check) {
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < check->plan->n_rows; i++) {
        weft_err err = check_row(check, &check->plan->rows[i]);
        if (err) return err;
        n_tokens += (uint64_t)check->plan->rows[i].n_tokens + check->plan->rows[i].n_spec;
    }
    if (n_tokens > check->slots->max_batched_tokens)
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "a plan of %" PRIu64 " tokens and guesses, at most %u fit", n_tokens,
                            check->slots->max_batched_tokens);
    if (check->logprob_bytes > WEFT_STEP_LOGPROB_BYTES_MAX)
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "a plan whose log-probabilities take %" PRIu64
                            " bytes, at most %u are allowed",
                            check->logprob_bytes, WEFT_STEP_LOGPROB_BYTES_MAX);
    return WEFT_OK;
}

/* What a plan does for which a state would have to be at some other token; NULL: nothing. */
static const char *breach_of_state(const struct weft_step_plan *plan) {
    if (plan->n_spills > 0 || plan->n_restores > 0) return "spills or restores blocks";
    for (uint32_t i = 0; i < plan->n_starts; i++) {
        if (plan->starts[i].n_dropped > 0) return "starts a sequence that dropped tokens";
    }
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        if (plan->rows[i].n_spec > 0) return "lets a sequence guess";
    }
    return NULL;
}

static weft_err check_recurrent(const struct check *check) {
    if (!check->slots->is_recurrent && check->plan->n_states > 0)
        return weft_err_set(check->why, WEFT_E_PROTO,
                            "a plan moves states, but the model has no recurrent layers");
    const char *breach = check->slots->is_recurrent ? breach_of_state(check->plan) : NULL;
    if (!breach) return WEFT_OK;
    return weft_err_set(check->why, WEFT_E_PROTO, "a plan %s, but the model has recurrent layers",
                        breach);
}

static weft_err refuse_state(const struct check *check, const struct weft_step_state *state) {
    static const char *const verbs[WEFT_STATE_OPS] = {"copies", "loads", "keeps"};
    const char *verb = state->op < WEFT_STATE_OPS ? verbs[state->op] : "moves";
    return weft_err_set(check->why, WEFT_E_PROTO,
                        "a plan %s a state, slot %u and %u, which cannot be: of %u slots and %u "
                        "checkpoints",
                        verb, state->slot, state->other, check->slots->n_slots,
                        check->slots->n_checkpoints);
}

/* A state that a slot gets is that of the tokens that it starts with, which the plan may have given to the
 * other slot just before. */
static weft_err check_state(const struct check *check, const struct weft_step_state *state) {
    bool is_fork = state->op == WEFT_STATE_FORK;
    struct wefti_slot_shadow *slot = shadow_of(check, state->slot);
    uint32_t n_others = is_fork ? check->slots->n_slots : check->slots->n_checkpoints;
    if (!slot || !slot->used || state->op >= WEFT_STATE_OPS || state->other >= n_others)
        return refuse_state(check, state);
    if (state->op == WEFT_STATE_KEEP) return slot->has_row ? WEFT_OK : refuse_state(check, state);
    if (!slot->is_new || slot->has_state || slot->seq.n_computed == 0)
        return refuse_state(check, state);
    slot->has_state = true;
    if (is_fork)
        slot->n_state = shadow_of(check, state->other)->n_state;
    else
        slot->n_state = check->is_new_epoch ? 0 : check->slots->kept_tokens[state->other];
    return WEFT_OK;
}

static weft_err check_states(const struct check *check) {
    const struct weft_step_plan *plan = check->plan;
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < plan->n_states && !err; i++)
        err = check_state(check, &plan->states[i]);
    for (uint32_t i = 0; i < plan->n_starts && check->slots->is_recurrent && !err; i++) {
        const struct weft_step_start *start = &plan->starts[i];
        const struct wefti_slot_shadow *slot = shadow_of(check, start->slot);
        if (start->n_cached == 0 || (slot->has_state && slot->n_state == start->n_cached)) continue;
        err = weft_err_set(check->why, WEFT_E_PROTO,
                           "slot %u starts with %u tokens cached, the state that it gets is of %u",
                           start->slot, start->n_cached, slot->has_state ? slot->n_state : 0);
    }
    return err;
}

weft_err wefti_plan_check(struct wefti_slots *slots, const struct weft_step_plan *plan,
                          uint32_t n_spill_slots, bool is_new_epoch, struct weft_errmsg *why) {
    slots->shadow_stamp++; /* 64 bits: never comes round */
    struct check check = {.slots = slots,
                          .plan = plan,
                          .n_spill_slots = n_spill_slots,
                          .is_new_epoch = is_new_epoch,
                          .why = why};
    weft_err err = check_recurrent(&check);
    if (!err) err = check_releases(&check);
    if (!err) err = check_starts(&check);
    if (!err) err = check_spills(&check, "spill", plan->spills, plan->n_spills);
    if (!err) err = check_copies(&check);
    if (!err) err = check_spills(&check, "restore", plan->restores, plan->n_restores);
    if (!err) err = check_grants(&check);
    if (!err) err = check_rows(&check);
    if (!err) err = check_states(&check);
    return err;
}
