/* One step end to end: a plan is checked, committed, computed, and its results are reported. */
#include "state.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "collective/collective.h"
#include "guess/guess.h"
#include "runtime/plan_check.h"

/* A step waits so long for masks that are not there; then their sequences are late, and sample from the
 * same logits in a later step. If those who make masks get nothing done in a time that is far beyond what
 * one may cost, a mask that is late never comes. Where ranks meet nobody is late: the step waits up to a
 * bound of its own, and shows between looks that it goes on. */
#define GUIDE_WAIT_MS 10
#define GUIDE_STILL_MS_MAX 60000
#define GUIDE_RANKS_WAIT_MS 10000
#define GUIDE_LOOK_MS 100

/* In place of a token: above all of them. */
#define SHARED_END(end) (UINT32_MAX - (uint32_t)(end))

static uint32_t n_top_of(const weft_eng *eng, int32_t n_asked) {
    return n_asked <= 0 ? 0 : weft_min_u32((uint32_t)n_asked, eng->info.n_vocab);
}

static void give_top(weft_eng *eng, struct wefti_engine_job *job, struct weft_logprobs *logprobs,
                     uint32_t n_top) {
    job->logprobs = logprobs;
    job->top.n = n_top;
    job->top.ids = (uint32_t *)(void *)(eng->top + eng->top_used);
    job->top.values = (float *)(void *)(job->top.ids + n_top);
    eng->top_used += (size_t)n_top * WEFT_LOGPROB_TOP_BYTES;
    WEFT_ASSERT(eng->top_used <= eng->top_bytes); /* plan_check.c counted */
}

/* ------------------------------------------------------------------------------------- step --- */

/* Room for the values of a sequence that ends. */
static float *give_values(weft_eng *eng, uint32_t n_values) {
    float *values = (float *)(void *)(eng->top + eng->top_used);
    eng->top_used += n_values * sizeof *values;
    WEFT_ASSERT(eng->top_used <= eng->top_bytes); /* plan_check.c counted */
    return values;
}

/* The batch and the jobs of a step so far. */
struct step {
    const struct weft_step_plan *plan;
    uint32_t n_tokens, n_last, n_jobs, n_spans, n_prompt_logprobs;
    uint32_t n_held; /* jobs that sample from logits of an earlier step: the last ones of all */
    uint32_t n_seqs; /* of recurrent layers */
};

/* Its context are all hidden states of the sequence, so all are computed. */
static weft_err prepare_contrast(weft_eng *eng, const struct weft_step_start *start,
                                 struct weft_errmsg *why) {
    if (!weft_sampling_is_contrastive(&start->sampling))
        return wefti_slot_prepare_contrast(&eng->slots, start, why);
    if (!eng->info.has_contrast)
        return weft_err_set(why, WEFT_E_PROTO, "a start has contrastive search, which is not here");
    if (start->n_cached > 0 || start->n_dropped > 0 || start->pooling.kind != WEFT_POOLING_NONE)
        return weft_err_set(
            why, WEFT_E_PROTO,
            "a start has contrastive search, pooling %d, %u tokens cached, %u dropped",
            (int)start->pooling.kind, start->n_cached, start->n_dropped);
    return wefti_slot_prepare_contrast(&eng->slots, start, why);
}

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
    if (eng->has_failed && !is_new_epoch)
        return weft_err_set(why, WEFT_E_STATE, "a step of epoch %" PRIu64 " failed halfway",
                            eng->epoch);
    weft_err err =
        wefti_plan_check(&eng->slots, plan, wefti_spill_n_slots(&eng->spill), is_new_epoch, why);
    for (uint32_t i = 0; i < plan->n_starts && !err; i++)
        err = wefti_eng_check_loras(eng, plan->starts[i].adapters, plan->starts[i].n_adapters, why);
    for (uint32_t i = 0; i < plan->n_starts && !err; i++)
        err = prepare_contrast(eng, &plan->starts[i], why);
    return err;
}

static void end_guide(weft_eng *eng, struct wefti_slot *slot) {
    if (slot->guide) wefti_guides_end(eng->guides, slot->guide);
    slot->guide = NULL;
}

/* Where one token alone is left by the grammar, but may not come: it is sampled, to no avail. With stop
 * tokens it is also looked at whether they end the sequence. */
static uint32_t list_unforced(const struct weft_sampling *sampling, uint32_t *list) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < sampling->n_stop_tokens; i++)
        list[n++] = sampling->stop_tokens[i];
    for (uint32_t i = 0; i < sampling->n_masked_tokens; i++)
        list[n++] = sampling->masked_tokens[i];
    for (uint32_t i = 0; i < sampling->n_bias; i++)
        list[n++] = sampling->bias[i].token;
    return n;
}

/* This and `hold` are all of a step that takes memory from the heap, and only where a request has a grammar. */
static void start_guide(weft_eng *eng, const struct weft_step_start *start) {
    struct wefti_slot *slot = &eng->slots.slots[start->slot];
    if (start->sampling.grammar.kind == WEFT_GRAMMAR_NONE || !eng->guides) return;
    uint32_t unforced[WEFT_STOP_TOKENS_MAX + WEFT_LOGIT_BIAS_MAX];
    const struct wefti_guide_start guide = {
        .may_force = start->sampling.n_logprobs < 0 && start->sampling.n_allowed_tokens == 0 &&
                     start->sampling.n_bad_words == 0 && !eng->coll,
        .unforced = unforced,
        .n_unforced = list_unforced(&start->sampling, unforced),
        .thinking_token_budget = start->sampling.thinking_token_budget,
        .grammar = &start->sampling.grammar,
        .output = start->tokens + start->n_prompt,
        .n_output = start->n_tokens - start->n_prompt,
        .stop_tokens = start->sampling.stop_tokens,
        .n_stop_tokens = start->sampling.n_stop_tokens,
    };
    slot->guide = wefti_guides_start(eng->guides, &guide);
}

static void commit_plan(weft_eng *eng, const struct weft_step_plan *plan) {
    if (plan->epoch > eng->epoch) weft_eng_reset(eng, plan->epoch);
    eng->next_step++;
    if (eng->draft) wefti_draft_move(eng->draft, plan);
    if (eng->mtp) wefti_mtp_move(eng->mtp, plan);
    for (uint32_t i = 0; i < plan->n_releases; i++) {
        end_guide(eng, &eng->slots.slots[plan->releases[i].slot]);
        wefti_slot_release(&eng->slots, &plan->releases[i]);
        wefti_loras_drop(eng->loras, &eng->sets[plan->releases[i].slot]);
    }
    for (uint32_t i = 0; i < plan->n_starts; i++) {
        wefti_slot_start(&eng->slots, &plan->starts[i]);
        wefti_ngram_clear(&eng->ngram, plan->starts[i].slot);
        if (eng->draft) wefti_draft_start(eng->draft, plan->starts[i].slot);
        if (eng->mtp) wefti_mtp_start(eng->mtp, plan->starts[i].slot);
        start_guide(eng, &plan->starts[i]);
        wefti_loras_take(eng->loras, plan->starts[i].adapters, plan->starts[i].n_adapters,
                         &eng->sets[plan->starts[i].slot]);
    }
    for (uint32_t i = 0; i < plan->n_grants; i++) {
        const struct weft_step_grant *grant = &plan->grants[i];
        if (eng->draft) wefti_draft_grant(eng->draft, &eng->slots.slots[grant->slot], grant);
        wefti_slot_grant(&eng->slots, grant);
    }
}

/* Each block counts as progress: a slow disk is none that hangs. */
static weft_err spill_blocks(weft_eng *eng, const struct weft_step_plan *plan,
                             struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < plan->n_spills && !err; i++) {
        err = wefti_spill_write(&eng->spill, &eng->kv, &plan->spills[i], why);
        wefti_pool_progress(eng->pool, 0);
    }
    return err;
}

static weft_err restore_blocks(weft_eng *eng, const struct weft_step_plan *plan,
                               struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < plan->n_restores && !err; i++) {
        err = wefti_spill_read(&eng->spill, &eng->kv, &plan->restores[i], why);
        wefti_pool_progress(eng->pool, 0);
    }
    return err;
}

/* Spills, copies and restores, in this order. Without restores the copies are for the forward pass,
 * which makes them with all threads. */
static weft_err move_blocks(weft_eng *eng, const struct weft_step_plan *plan,
                            struct weft_errmsg *why) {
    weft_err err = spill_blocks(eng, plan, why);
    for (uint32_t i = 0; i < eng->kv.n_layers && plan->n_restores > 0 && !err; i++)
        wefti_kv_cache_copy(&eng->kv, i, plan->copies, plan->n_copies);
    if (!err) err = restore_blocks(eng, plan, why);
    eng->has_failed = err != WEFT_OK;
    if (err && eng->coll) weft_coll_abort(eng->coll); /* the other ranks go on with the plan */
    return err;
}

/* States that slots get before rows, or those that are kept after them. */
struct state_moves {
    const weft_eng *eng;
    const struct weft_step_plan *plan;
    bool keeps;
};

static bool is_of(const struct state_moves *moves, const struct weft_step_state *state) {
    return moves->keeps == (state->op == WEFT_STATE_KEEP);
}

/* Each thread has its part of every place: so none waits for another, whoever copies from whom. */
static void copy_states(void *ctx, uint32_t thread_idx) {
    const struct state_moves *moves = ctx;
    const weft_eng *eng = moves->eng;
    for (uint32_t i = 0; i < moves->plan->n_states; i++) {
        const struct weft_step_state *state = &moves->plan->states[i];
        uint32_t place = state->other + (state->op == WEFT_STATE_FORK ? 0 : eng->info.max_seqs);
        if (!is_of(moves, state)) continue;
        wefti_states_copy(&eng->states, moves->keeps ? state->slot : place,
                          moves->keeps ? place : state->slot, thread_idx,
                          wefti_pool_n_threads(eng->pool));
    }
}

static void move_states(weft_eng *eng, const struct weft_step_plan *plan, bool keeps) {
    struct state_moves moves = {eng, plan, keeps};
    bool has_any = false;
    for (uint32_t i = 0; i < plan->n_states; i++) {
        const struct weft_step_state *state = &plan->states[i];
        has_any = has_any || is_of(&moves, state);
        if (state->op == WEFT_STATE_KEEP && keeps)
            eng->slots.kept_tokens[state->other] = eng->slots.slots[state->slot].n_computed;
    }
    if (has_any) wefti_pool_run(eng->pool, copy_states, &moves);
}

/* Rows come in their order. Returns where it stands in the list. With mtp all rows are there anyway. */
static uint32_t add_last_row(weft_eng *eng, struct step *step, uint32_t flat_row) {
    if (eng->mtp) return flat_row;
    if (step->n_last == 0 || eng->last_rows[step->n_last - 1] != flat_row)
        eng->last_rows[step->n_last++] = flat_row;
    return step->n_last - 1;
}

static weft_err guess(weft_eng *eng, const struct weft_step_plan *plan, uint32_t *catch_up_us_out,
                      struct weft_errmsg *why) {
    const struct wefti_guess_sources sources = {
        .ngram = &eng->ngram, .draft = eng->draft, .mtp = eng->mtp, .lines = eng->guess_lines};
    weft_err err = wefti_guess_all(&eng->slots, &sources, plan, catch_up_us_out, why);
    eng->has_failed = err != WEFT_OK;
    return err;
}

static struct wefti_engine_job *add_job(weft_eng *eng, struct step *step, uint32_t flat_row,
                                        uint32_t out_idx) {
    eng->logit_rows[step->n_jobs] = add_last_row(eng, step, flat_row);
    eng->is_chained[step->n_jobs] = false;
    struct wefti_engine_job *job = &eng->jobs[step->n_jobs++];
    *job = (struct wefti_engine_job){.out_idx = out_idx};
    return job;
}

static struct wefti_engine_job *held_job(const weft_eng *eng, uint32_t i) {
    return &eng->jobs[eng->info.max_batched_tokens - 1 - i];
}

static void want_sample(weft_eng *eng, struct wefti_engine_job *job,
                        const struct wefti_slot *slot) {
    struct weft_step_out *out = &eng->outs[job->out_idx];
    job->samples = job->waits = true;
    if (slot->sampling.n_logprobs < 0) return;
    out->has_logprobs = true;
    give_top(eng, job, &out->logprobs, n_top_of(eng, slot->sampling.n_logprobs));
}

/* What the pooling of a sequence needs of its next n_tokens, which begin at `flat_first`. */
static void want_values(weft_eng *eng, struct step *step, uint32_t out_idx, uint32_t flat_first,
                        uint32_t n_tokens) {
    struct weft_step_out *out = &eng->outs[out_idx];
    struct wefti_slot *slot = &eng->slots.slots[out->slot];
    struct weft_step_span span = wefti_slot_pooled(slot, n_tokens);
    for (uint32_t pos = span.begin; pos < span.end; pos++) {
        uint32_t last = add_last_row(eng, step, flat_first + (pos - slot->n_computed));
        if (pos == span.begin) eng->spans[step->n_spans].first = last;
    }
    if (span.begin < span.end) {
        eng->spans[step->n_spans].n = span.end - span.begin;
        eng->span_slots[step->n_spans++] = out->slot;
    }
    if (slot->n_computed + n_tokens < slot->n_known) return;
    slot->values = give_values(eng, slot->n_values);
    out->n_values = slot->n_values;
    out->values = slot->values;
    if (slot->pooling.kind == WEFT_POOLING_TOKENS)
        add_job(eng, step, flat_first + n_tokens - 1, out_idx)->scores = slot->values;
}

/* The hidden states of a sequence's next n_tokens, which begin at `flat_first`. */
static void want_context(weft_eng *eng, struct step *step, uint32_t slot, uint32_t flat_first,
                         uint32_t n_tokens) {
    uint32_t first = add_last_row(eng, step, flat_first);
    for (uint32_t i = 1; i < n_tokens; i++)
        (void)add_last_row(eng, step, flat_first + i);
    eng->spans[step->n_spans] = (struct wefti_forward_span){first, n_tokens};
    eng->span_slots[step->n_spans++] = slot;
}

/* The row after a late one: its token stands for none of the batch's. */
static void gather_held(weft_eng *eng, struct step *step, struct wefti_slot *slot,
                        uint32_t out_idx) {
    struct wefti_engine_job *job = held_job(eng, step->n_held++);
    slot->is_held = false;
    eng->outs[out_idx].ran = true;
    *job = (struct wefti_engine_job){.out_idx = out_idx};
    want_sample(eng, job, slot);
}

/* A row of the batch, which sees so many of its sequence after its own position. */
static void add_token(weft_eng *eng, struct step *step, const struct wefti_slot *slot, uint32_t pos,
                      uint32_t n_after) {
    uint32_t flat = step->n_tokens++;
    const struct wefti_lora_set *set = &eng->sets[slot - eng->slots.slots];
    eng->tokens[flat] = slot->tokens[pos];
    if (eng->mtp) eng->last_rows[step->n_last++] = flat;
    for (uint32_t kind = 0; kind < eng->slots.n_kinds; kind++)
        eng->rows[kind][flat] = (struct weft_attn_row){slot->table[kind], pos, n_after};
    eng->is_second[flat] = slot->pooling.n_first > 0 && pos >= slot->pooling.n_first;
    eng->is_long[flat] = slot->n_prompt > eng->long_prompt;
    eng->is_written[flat] = pos < slot->n_written;
    eng->row_sets[flat] = set->n > 0 ? set : NULL;
}

/* What is guessed comes after the last known token, in the same batch. */
static void add_guesses(weft_eng *eng, struct step *step, const struct wefti_slot *slot,
                        uint32_t out_idx) {
    for (uint32_t i = 0; i < slot->n_guesses; i++) {
        uint32_t pos = slot->n_known + i;
        add_token(eng, step, slot, pos, 0);
        struct wefti_engine_job *job = add_job(eng, step, step->n_tokens - 1, out_idx);
        eng->is_chained[step->n_jobs - 1] = true;
        job->is_guess = true;
        job->pos = pos;
        job->guess = slot->tokens[pos];
        want_sample(eng, job, slot);
    }
    eng->outs[out_idx].n_proposed = slot->n_guesses;
}

/* Puts the tokens of a row into the batch, and notes which of them need logits, and for what. */
static void gather_row(weft_eng *eng, struct step *step, const struct weft_step_row *row,
                       uint32_t out_idx) {
    struct wefti_slot *slot = &eng->slots.slots[row->slot];
    struct weft_step_out *out = &eng->outs[out_idx];
    struct weft_step_seq seq = wefti_slot_seq(&eng->slots, slot);
    struct weft_step_span span = weft_step_prompt_span(&seq, row->n_tokens);
    uint32_t first = slot->n_computed, end = first + row->n_tokens;
    const struct wefti_lora_set *set = &eng->sets[row->slot];
    eng->has_row_sets = eng->has_row_sets || set->n > 0;
    if (eng->mtp) wefti_mtp_note(eng->mtp, &eng->slots, row->slot, step->n_tokens);
    if (row->n_tokens > 0)
        eng->seqs[step->n_seqs++] =
            (struct wefti_mixer_seq){step->n_tokens, row->n_tokens, row->slot, first == 0};
    out->ran = true;
    out->prompt_pos = span.begin;
    out->n_prompt_logprobs = span.end - span.begin;
    out->prompt_logprobs = eng->prompt_logprobs + step->n_prompt_logprobs;
    for (uint32_t pos = first; pos < end; pos++) {
        add_token(eng, step, slot, pos, eng->info.is_encoder ? end - 1 - pos : 0);
        if (pos + 1 < span.begin || pos + 1 >= span.end) continue;
        struct wefti_engine_job *job = add_job(eng, step, step->n_tokens - 1, out_idx);
        job->target = slot->tokens[pos + 1];
        give_top(eng, job, &eng->prompt_logprobs[step->n_prompt_logprobs++],
                 n_top_of(eng, slot->sampling.n_prompt_logprobs));
    }
    if (slot->n_values > 0)
        want_values(eng, step, out_idx, step->n_tokens - row->n_tokens, row->n_tokens);
    if (slot->contrast)
        want_context(eng, step, row->slot, step->n_tokens - row->n_tokens, row->n_tokens);
    slot->n_computed = end;
    if (span.end > span.begin) slot->n_prompt_logprobs_done = span.end;
    if (end < slot->n_known || !wefti_slot_may_sample(&eng->slots, slot)) return;
    want_sample(eng, add_job(eng, step, step->n_tokens - 1, out_idx), slot);
    add_guesses(eng, step, slot, out_idx);
}

static void gather(weft_eng *eng, struct step *step) {
    eng->top_used = 0;
    eng->has_row_sets = false;
    atomic_store(&eng->guide_wait_until_ms, 0);
    for (uint32_t i = 0; i < step->plan->n_rows; i++) {
        const struct weft_step_row *row = &step->plan->rows[i];
        struct wefti_slot *slot = &eng->slots.slots[row->slot];
        eng->outs[i] =
            (struct weft_step_out){.slot = row->slot, .gen = row->gen, .finish = slot->finish};
        if (slot->finish != WEFT_END_NONE) continue;
        if (slot->is_held)
            gather_held(eng, step, slot, i);
        else
            gather_row(eng, step, row, i);
    }
}

/* Until when this step waits for masks: from the first one on that is not there. */
static uint64_t guide_wait_until_ms(weft_eng *eng, uint64_t now_ms) {
    uint64_t until = 0, wanted = now_ms + (eng->coll ? GUIDE_RANKS_WAIT_MS : GUIDE_WAIT_MS);
    return atomic_compare_exchange_strong(&eng->guide_wait_until_ms, &until, wanted) ? wanted
                                                                                     : until;
}

/* What a sequence with a grammar may go on with. False: it is not there yet. Waiting is progress. */
static bool await_guide(weft_eng *eng, const struct wefti_slot *slot, bool waits,
                        uint32_t thread_idx, struct wefti_guide *guide) {
    *guide = (struct wefti_guide){0};
    if (!slot->guide || wefti_guides_await(eng->guides, slot->guide, 0, guide)) return true;
    while (waits) {
        uint64_t now_ms = weft_now_us() / 1000, until_ms = guide_wait_until_ms(eng, now_ms);
        wefti_pool_progress(eng->pool, thread_idx);
        if (now_ms >= until_ms) break;
        uint32_t wait_ms = weft_min_u32((uint32_t)(until_ms - now_ms), GUIDE_LOOK_MS);
        if (wefti_guides_await(eng->guides, slot->guide, wait_ms, guide)) return true;
    }
    return false;
}

/* Keeps the logits until there is a mask. False: it took too long, there is no memory, or others hear of
 * the token in this step. */
static bool hold(weft_eng *eng, struct wefti_slot *slot, const float *logits) {
    uint64_t now_ms = weft_now_us() / 1000;
    size_t n_bytes = eng->info.n_vocab * sizeof *logits;
    if (eng->coll) return false;
    uint64_t n_turns = wefti_guides_n_turns(eng->guides);
    if (!slot->is_late || n_turns != slot->late_turns) slot->late_since_ms = now_ms;
    slot->late_turns = n_turns;
    slot->is_late = true;
    if (now_ms - slot->late_since_ms >= GUIDE_STILL_MS_MAX) return false;
    if (!slot->held) slot->held = malloc(n_bytes);
    if (!slot->held) return false;
    if (slot->held != logits) memcpy(slot->held, logits, n_bytes);
    return true;
}

/* How a sequence ends whose next token cannot be sampled. */
static enum weft_end guide_end(const struct wefti_guide *guide) {
    return guide->mask && guide->may_end ? WEFT_END_COMPLETE : WEFT_END_GRAMMAR;
}

/* What the logits of a sequence's last known token come to. */
struct draw {
    bool is_late; /* there is no mask yet */
    bool is_open; /* one of the slot's candidates will be the token */
    bool sampled;
    uint32_t token;
    const uint32_t *forced; /* [n_forced] what follows it */
    uint32_t n_forced;
    enum weft_end end; /* in place of a token */
};

static void find_candidates(const weft_eng *eng, struct wefti_slot *slot,
                            const struct wefti_sampler_input *input, float *logits,
                            struct wefti_sampler_scratch *scratch) {
    const struct wefti_sampler_logits in = {logits, eng->info.n_vocab};
    struct wefti_sampler_likeliest found = {.n = slot->sampling.top_k};
    wefti_sampler_find_likeliest(eng->kern, input, &in, scratch, &found);
    for (uint32_t i = 0; i < found.n; i++)
        slot->contrast->candidates[i] =
            (struct wefti_contrast_candidate){.token = found.ids[i], .p = found.p[i]};
    slot->contrast->n_candidates = found.n;
}

/* A guess goes without waiting where its mask is late: the next step comes to the same position. */
static struct draw sample(weft_eng *eng, const struct wefti_engine_job *job, float *logits,
                          uint32_t thread_idx) {
    const struct weft_step_out *out = &eng->outs[job->out_idx];
    struct wefti_slot *slot = &eng->slots.slots[out->slot];
    struct wefti_sampler_scratch *scratch = &eng->samplers[thread_idx];
    uint32_t n_vocab = eng->info.n_vocab;
    bool has_grammar = slot->sampling.grammar.kind != WEFT_GRAMMAR_NONE;
    struct wefti_guide guide = {0};
    struct draw draw = {0};
    double state = slot->sampler_state;
    bool is_there = !has_grammar || await_guide(eng, slot, job->waits, thread_idx, &guide);
    draw.is_late = !is_there && (job->is_guess || hold(eng, slot, logits));
    if (draw.is_late) return draw;
    slot->is_late = false;
    struct wefti_sampler_input input = {
        .sampling = &slot->sampling,
        .choice = slot->choice,
        .tokens = wefti_slot_history(slot),
        .n_prompt = slot->n_prompt,
        .n_known = slot->n_prompt + wefti_slot_n_output(slot),
        .mask = guide.is_free ? NULL : guide.mask,
        .state = &slot->sampler_state,
    };
    draw.is_open = slot->contrast != NULL;
    if (draw.is_open) {
        find_candidates(eng, slot, &input, logits, scratch);
        return draw;
    }
    bool is_forced = guide.n_forced > 0;
    draw.sampled = is_forced || !has_grammar || (guide.mask && !guide.is_empty);
    if (is_forced) {
        draw.token = guide.forced[0];
        draw.forced = guide.forced + 1;
        draw.n_forced = guide.n_forced - 1;
    } else if (draw.sampled) {
        float *work = logits; /* raw ones are wanted later only for log-probabilities */
        if (job->logprobs && !wefti_sampler_is_plain(&input)) {
            work = scratch->work;
            memcpy(work, logits, n_vocab * sizeof *work);
        }
        draw.token = wefti_sampler_choose(eng->kern, &input, work, n_vocab, scratch);
        /* Where a bias forbids all that the grammar allows, any token is as bad. */
        draw.sampled = !has_grammar || wefti_guide_allows(&guide, draw.token);
    }
    if (draw.sampled) return draw;
    draw.end = guide_end(&guide);
    slot->sampler_state = state; /* a guess's row comes again */
    return draw;
}

static void take_scores(const weft_eng *eng, const struct wefti_engine_job *job,
                        const float *logits) {
    const struct weft_pooling *pooling = &eng->slots.slots[eng->outs[job->out_idx].slot].pooling;
    for (uint32_t i = 0; i < pooling->n_ids; i++)
        job->scores[i] = logits[pooling->ids[i]];
}

/* A guess that came true was computed as the sequence's last token, and the next one follows from it. */
static bool comes_true(const struct wefti_slot *slot, const struct wefti_engine_job *job) {
    return slot->finish == WEFT_END_NONE && slot->n_computed == job->pos &&
           slot->n_known == job->pos + 1 && slot->tokens[job->pos] == job->guess;
}

/* A sampled token joins its sequence. Nothing follows an end. */
static void append(weft_eng *eng, struct wefti_slot *slot, const struct draw *draw) {
    wefti_slot_append(&eng->slots, slot, draw->token);
    for (uint32_t i = 0; i < draw->n_forced && slot->finish == WEFT_END_NONE; i++)
        wefti_slot_append(&eng->slots, slot, draw->forced[i]);
    if (!slot->guide || slot->finish != WEFT_END_NONE) return;
    if (draw->forced)
        wefti_guides_accept(eng->guides, slot->guide);
    else
        (void)wefti_guides_add(eng->guides, slot->guide, draw->token);
}

/* The row's token stays uncomputed where nothing could be sampled after it: a step to come tells why. */
static void take_guess(weft_eng *eng, const struct wefti_engine_job *job, const struct draw *draw) {
    struct weft_step_out *out = &eng->outs[job->out_idx];
    struct wefti_slot *slot = &eng->slots.slots[out->slot];
    if (!draw->sampled) return;
    slot->n_computed = job->pos + 1;
    append(eng, slot, draw);
    out->n_accepted++;
    if (weft_sampling_has_state(&slot->sampling)) out->sampler_state = slot->sampler_state;
    out->n_more = wefti_slot_n_output(slot) - out->output_idx - 1;
}

static void take(weft_eng *eng, const struct wefti_engine_job *job, const struct draw *draw) {
    struct weft_step_out *out = &eng->outs[job->out_idx];
    struct wefti_slot *slot = &eng->slots.slots[out->slot];
    if (job->is_guess) {
        take_guess(eng, job, draw);
        return;
    }
    out->is_late = draw->is_late;
    out->sampled = draw->sampled;
    out->finish = draw->end;
    if (!draw->sampled) return;
    out->token = draw->token;
    out->output_idx = wefti_slot_n_output(slot);
    out->more = slot->tokens + slot->n_known + 1;
    append(eng, slot, draw);
    if (weft_sampling_has_state(&slot->sampling)) out->sampler_state = slot->sampler_state;
    out->n_more = wefti_slot_n_output(slot) - out->output_idx - 1;
}

/* What the other ranks hear of a draw; NONE: nothing came of it. */
static uint32_t shared_of(const struct draw *draw) {
    return draw->sampled ? draw->token : SHARED_END(draw->end);
}

/* Of logits that may be changed, by any thread, but one after the other for a sequence. */
static void use_logits(weft_eng *eng, struct wefti_engine_job *job, float *logits,
                       uint32_t thread_idx, uint32_t *shared) {
    struct weft_step_out *out = &eng->outs[job->out_idx];
    uint32_t token = job->target;
    if (job->scores) {
        take_scores(eng, job, logits);
        return;
    }
    if (job->samples) {
        struct draw draw = {0};
        if (!job->is_guess || comes_true(&eng->slots.slots[out->slot], job))
            draw = sample(eng, job, logits, thread_idx);
        if (draw.is_open) return;
        if (shared) *shared = shared_of(&draw);
        take(eng, job, &draw);
        token = draw.token;
        out->has_logprobs = out->has_logprobs && draw.sampled;
        if (!draw.sampled) return;
    }
    if (job->logprobs)
        wefti_sampler_logprobs(eng->kern, logits, eng->info.n_vocab, token, &job->top,
                               job->logprobs);
}

/* Runs on any compute thread; everything it writes belongs to this row, or to its sequence, whose rows
 * come in order. */
static void on_logits(void *ctx, uint32_t i, float *logits, uint32_t thread_idx) {
    weft_eng *eng = ctx;
    struct wefti_engine_job *job = &eng->jobs[i];
    uint32_t *shared = wefti_forward_shared_tokens(eng->forward);
    job->is_broken = !isfinite(logits[0]);
    use_logits(eng, job, logits, thread_idx, shared && job->samples ? &shared[i] : NULL);
}

/* Likewise of a slot. */
static void on_hidden(void *ctx, uint32_t i, const float *hidden, uint32_t thread_idx) {
    weft_eng *eng = ctx;
    (void)thread_idx;
    if (i >= eng->n_pooled_spans) {
        wefti_mtp_take(eng->mtp, i - eng->n_pooled_spans, hidden);
        return;
    }
    struct wefti_slot *slot = &eng->slots.slots[eng->span_slots[i]];
    if (slot->contrast)
        wefti_contrast_add(slot->contrast, hidden);
    else
        wefti_slot_pool(slot, hidden, eng->info.n_hidden);
}

/* After the forward pass: masks that came during it are there now. Without one the step waits, so that
 * plans are not made in vain. */
static void use_held_logits(weft_eng *eng, const struct step *step) {
    for (uint32_t i = 0; i < step->n_held; i++) {
        struct wefti_engine_job *job = held_job(eng, i);
        struct wefti_slot *slot = &eng->slots.slots[eng->outs[job->out_idx].slot];
        job->waits = step->n_tokens == 0;
        use_logits(eng, job, slot->held, 0, NULL);
        if (!eng->outs[job->out_idx].is_late) wefti_slot_drop_held(slot);
    }
}

/* What the first rank sampled. Log-probabilities and values are its alone. */
static void take_shared_tokens(weft_eng *eng, const struct step *step) {
    const uint32_t *shared = wefti_forward_shared_tokens(eng->forward);
    if (!shared || eng->weights.rank == 0) return;
    for (uint32_t i = 0; i < step->plan->n_rows; i++) {
        eng->outs[i].has_logprobs = false;
        eng->outs[i].n_prompt_logprobs = 0;
        eng->outs[i].n_values = 0;
    }
    for (uint32_t i = 0; i < step->n_jobs; i++) {
        const struct wefti_engine_job *job = &eng->jobs[i];
        const struct weft_step_out *out = &eng->outs[job->out_idx];
        if (!job->samples || (job->is_guess && !comes_true(&eng->slots.slots[out->slot], job)))
            continue;
        struct draw draw = {.sampled = shared[i] < SHARED_END(WEFT_END_COUNT)};
        if (draw.sampled)
            draw.token = weft_min_u32(shared[i], eng->info.n_vocab - 1);
        else
            draw.end = (enum weft_end)(UINT32_MAX - shared[i]);
        take(eng, job, &draw);
    }
}

/* The states of all rows are wanted, each by itself. */
static void add_state_spans(weft_eng *eng, struct step *step) {
    eng->n_pooled_spans = step->n_spans;
    for (uint32_t row = 0; eng->mtp && row < step->n_tokens; row++)
        eng->spans[step->n_spans++] = (struct wefti_forward_span){row, 1};
}

static weft_err compute(weft_eng *eng, const struct step *step, struct weft_errmsg *why) {
    struct wefti_forward_batch batch = {
        .n_tokens = step->n_tokens,
        .tokens = eng->tokens,
        .rows = {eng->rows[WEFT_KV_FULL], eng->rows[WEFT_KV_WINDOWED]},
        .is_long = eng->is_long,
        .is_second = eng->is_second,
        .is_written = eng->is_written,
        .n_last_rows = step->n_last,
        .last_rows = eng->last_rows,
        .adapters = eng->has_row_sets ? eng->row_sets : NULL,
        .n_logit_rows = step->n_jobs,
        .logit_rows = eng->logit_rows,
        .is_chained = eng->is_chained,
        .on_logits = on_logits,
        .n_spans = step->n_spans,
        .spans = eng->spans,
        .n_seqs = step->n_seqs,
        .seqs = eng->seqs,
        .on_hidden = on_hidden,
        .ctx = eng,
        .n_copies = step->plan->n_restores > 0 ? 0 : step->plan->n_copies,
        .copies = step->plan->copies,
    };
    weft_err err = WEFT_OK;
    if (batch.n_tokens > 0 || batch.n_copies > 0)
        err = wefti_forward_run(eng->forward, &batch, why);
    eng->has_failed = err != WEFT_OK;
    if (err) return err;
    take_shared_tokens(eng, step);
    use_held_logits(eng, step);
    for (uint32_t i = 0; i < step->n_jobs && !eng->has_warned; i++) {
        if (!eng->jobs[i].is_broken) continue;
        weft_warn("logits are not numbers: weights are damaged, or activations overflow; what is "
                  "sampled of them means nothing");
        eng->has_warned = true;
    }
    return WEFT_OK;
}

/* The candidates of contrastive search become tokens. */
static weft_err choose(weft_eng *eng, const struct weft_step_plan *plan, struct weft_errmsg *why) {
    weft_err err = wefti_eng_compare(eng, plan, why);
    eng->has_failed = err != WEFT_OK;
    for (uint32_t i = 0; i < plan->n_rows && !err; i++) {
        struct wefti_slot *slot = &eng->slots.slots[plan->rows[i].slot];
        struct wefti_contrast *contrast = slot->contrast;
        const struct wefti_engine_job job = {.out_idx = i};
        struct draw draw = {.sampled = true};
        if (!contrast || contrast->n_candidates == 0) continue;
        WEFT_ASSERT(contrast->n == slot->n_known);
        uint32_t chosen = wefti_contrast_choose(contrast, (double)slot->sampling.penalty_alpha);
        draw.token = contrast->candidates[chosen].token;
        contrast->n_candidates = 0;
        take(eng, &job, &draw);
    }
    return err;
}

/* The head's outputs for the hidden state that a slot has pooled: f32 weights, sums in double. */
static void classify(weft_eng *eng, const struct wefti_slot *slot) {
    const struct wefti_weights *w = &eng->weights;
    const struct wefti_weights_encoder *head = &w->encoder;
    const float *dense_bias = wefti_weights_vector(w, head->dense_bias);
    const float *labels_bias = wefti_weights_vector(w, head->labels_bias);
    uint32_t n = eng->info.n_hidden;
    float *row = eng->head_rows, *inner = row + n;
    for (uint32_t i = 0; i < n; i++) {
        double sum = (double)dense_bias[i];
        wefti_weights_row(w, &head->dense, i, row);
        for (uint32_t k = 0; k < n; k++)
            sum += (double)row[k] * slot->sum[k];
        inner[i] = (float)tanh(sum);
    }
    for (uint32_t i = 0; i < slot->n_values; i++) {
        double sum = (double)labels_bias[i];
        wefti_weights_row(w, &head->classifier, i, row);
        for (uint32_t k = 0; k < n; k++)
            sum += (double)row[k] * (double)inner[k];
        slot->values[i] = (float)sum;
    }
}

/* Sequences that reached their end say so. */
static void settle(weft_eng *eng, const struct step *step) {
    for (uint32_t i = 0; i < step->plan->n_rows; i++) {
        struct weft_step_out *out = &eng->outs[i];
        struct wefti_slot *slot = &eng->slots.slots[out->slot];
        if (!out->ran) continue;
        if (out->is_late) {
            slot->is_held = true;
        } else if (!out->sampled && slot->n_computed == slot->n_known) {
            if (out->n_values > 0) wefti_slot_write_values(slot);
            if (out->n_values > 0 && slot->pooling.kind == WEFT_POOLING_CLASSIFY)
                classify(eng, slot);
            /* By its grammar; or nothing may be appended. */
            slot->finish = out->finish != WEFT_END_NONE ? out->finish : WEFT_END_LENGTH;
        }
        WEFT_ASSERT(out->n_accepted <= out->n_proposed && out->n_accepted <= out->n_more);
        out->finish = slot->finish;
    }
}

static uint32_t clamp_us(uint64_t us) {
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

/* What guesses catches up with the step: *us_out is the time that it took. */
static weft_err settle_guesses(weft_eng *eng, uint64_t *us_out, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    uint64_t begin_us = weft_now_us();
    if (eng->draft) wefti_draft_settle(eng->draft, &eng->slots);
    if (eng->mtp) err = wefti_mtp_settle(eng->mtp, &eng->slots, why);
    eng->has_failed = err != WEFT_OK;
    *us_out = weft_now_us() - begin_us;
    return err;
}

weft_err weft_eng_step(weft_eng *eng, const struct weft_step_plan *plan,
                       const struct weft_step_result **result_out, struct weft_errmsg *why) {
    *result_out = NULL;
    uint64_t begin_ns = weft_now_ns(), begin_us = begin_ns / 1000;
    weft_err err = check_step_plan(eng, plan, why);
    if (err) return err;
    struct step step = {.plan = plan};
    commit_plan(eng, plan);
    err = move_blocks(eng, plan, why);
    if (err) return err;
    uint64_t moved_us = weft_now_us();
    bool moves = plan->n_spills + plan->n_restores > 0;
    uint32_t catch_up_us = 0;
    err = guess(eng, plan, &catch_up_us, why);
    if (err) return err;
    uint64_t guessed_us = weft_now_us();
    move_states(eng, plan, false);
    gather(eng, &step);
    add_state_spans(eng, &step);
    err = compute(eng, &step, why);
    if (err) return err;
    move_states(eng, plan, true);
    uint64_t computed_us = weft_now_us();
    err = choose(eng, plan, why);
    if (err) return err;
    uint64_t chosen_us = weft_now_us();
    settle(eng, &step);
    uint64_t settled_us = 0;
    err = settle_guesses(eng, &settled_us, why);
    if (err) return err;
    uint64_t end_ns = weft_now_ns(), end_us = end_ns / 1000;
    if (eng->profile) wefti_profile_step(eng->profile, begin_ns, end_ns, step.n_tokens);
    eng->result = (struct weft_step_result){
        .epoch = plan->epoch,
        .step = plan->step,
        .busy_us = clamp_us(end_us - begin_us),
        .idle_us = eng->last_end_us ? clamp_us(begin_us - eng->last_end_us) : 0,
        .n_tokens = step.n_tokens,
        .spill_us = moves ? clamp_us(moved_us - begin_us) : 0,
        .draft_us = clamp_us(guessed_us - moved_us + settled_us),
        .catch_up_us = clamp_us(catch_up_us + settled_us),
        .contrast_us = clamp_us(chosen_us - computed_us),
        .n_outs = plan->n_rows,
        .outs = eng->outs,
    };
    eng->last_end_us = end_us;
    *result_out = &eng->result;
    return WEFT_OK;
}
