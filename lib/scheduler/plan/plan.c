/* One plan: who gets a token, who loses its blocks, what to tell the worker. */
#include "scheduler_internal.h"

#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

#define COST_SCALE 1024u  /* so that a part of a microsecond counts */
#define TOKENS_BESIDE 64u /* recomputing is part of some step that others pay for as such */

/* ------------------------------------------------------------------------------ preemption --- */

static uint32_t n_own_blocks(const weft_sched *sched, const struct weft_kv_table *table) {
    uint32_t low = 0, high = table->n; /* the first own one */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (weft_kv_prefix_is_own(sched->cache, table->blocks[middle]))
            high = middle;
        else
            low = middle + 1;
    }
    return table->n - low;
}

/* What it would take to compute again what a sequence has after n_shared tokens; 0: not known. */
static uint64_t recompute_us(const weft_sched *sched, const struct seq *seq, uint32_t n_shared) {
    struct weft_sched_work others = {.n_tokens = TOKENS_BESIDE}, work = others;
    weft_sched_work_add(&work, n_shared, seq->n_planned - n_shared, 0);
    return weft_sched_cost_predict(&sched->cost, &work) -
           weft_sched_cost_predict(&sched->cost, &others);
}

/* What it would cost to compute again what a victim has for itself, or to spill it and read it back,
 * for each block that this frees: each of them may be taken before the victim is back. */
static uint64_t cost_per_block(const weft_sched *sched, const struct seq *seq) {
    uint32_t n_blocks = n_own_blocks(sched, &seq->table);
    uint32_t n_shared = (seq->table.n - n_blocks) * sched->options.block_size;
    if (n_blocks == 0 || seq->n_planned < n_shared) return UINT64_MAX;
    uint64_t us = recompute_us(sched, seq, n_shared);
    if (us == 0) return (uint64_t)(seq->n_planned - n_shared) * COST_SCALE / n_blocks;
    return wefti_sched_give_up_us(sched, seq, seq->table.n - n_blocks, us) * COST_SCALE / n_blocks;
}

static void spill(weft_sched *sched, struct seq *victim) {
    uint32_t n_blocks = victim->table.n - n_own_blocks(sched, &victim->table);
    uint32_t n_shared = n_blocks * sched->options.block_size;
    if (sched->n_spill_free == 0 || victim->n_planned <= n_shared) return;
    wefti_sched_spill(sched, victim, n_blocks, recompute_us(sched, victim, n_shared));
}

/* Something new is on its way, if not done yet. */
static bool has_progressed(const struct seq *seq) {
    return seq->n_planned > seq->n_computed_max;
}

static bool is_protected(const struct seq *seq) {
    return seq->n_preempted >= WEFTI_SCHED_PREEMPTED_MAX && !has_progressed(seq);
}

/* Whether `a` should rather go than `b`, whom it comes after. */
static bool is_better_victim(const weft_sched *sched, const struct seq *a, uint64_t cost_a,
                             const struct seq *b, uint64_t cost_b) {
    if (sched->options.evict_last) return a->start_step >= b->start_step;
    bool by_priority = sched->options.policy == WEFT_SCHED_PRIORITY;
    if (a->req->is_background != b->req->is_background) return a->req->is_background;
    if (is_protected(a) != is_protected(b)) return is_protected(b);
    if (by_priority && a->req->priority != b->req->priority)
        return a->req->priority > b->req->priority;
    return cost_a <= cost_b;
}

/* The plan starts it, so its release would come before its start. */
static bool starts_now(const struct seq *seq) {
    return seq->req->beams && seq->n_granted == 0;
}

/* The running sequence whose loss costs least for what it frees; of equals the youngest. NULL: beams
 * that start now have all the blocks, or files that are written and read, which will end. The
 * oldest request is spared; when nobody else runs, its oldest sequence. docs/scheduling.md has the
 * proof that all come to their ends. */
static struct seq *choose_victim(const weft_sched *sched) {
    const struct request *oldest = sched->running[0]->req;
    uint32_t first = 1;
    while (first < sched->n_running && sched->running[first]->req == oldest)
        first++;
    if (first == sched->n_running) first = 1;
    if (first == sched->n_running && wefti_sched_files_hold(sched)) return NULL;
    WEFT_ASSERT(first < sched->n_running); /* one sequence alone fits: checked at submission */
    struct seq *victim = NULL;
    uint64_t victim_cost = 0;
    for (uint32_t i = first; i < sched->n_running; i++) {
        struct seq *seq = sched->running[i];
        if (starts_now(seq)) continue;
        uint64_t cost = cost_per_block(sched, seq);
        if (victim && !is_better_victim(sched, seq, cost, victim, victim_cost)) continue;
        victim = seq;
        victim_cost = cost;
    }
    return victim;
}

/* One that was preempted before, again and again without progress, is left alone until it has got
 * something done: it has the blocks for that. Whoever lacks one waits so long. Not so one that is
 * protected itself (it lacks a windowed block), or has the plan for itself; and nobody in the background
 * keeps others waiting. */
static bool may_preempt(const weft_sched *sched, const struct seq *seq, const struct seq *victim,
                        const struct seq *alone) {
    bool lacks_window = sched->options.window > 0 && is_protected(seq);
    if (!victim) return false;
    if (victim->req->is_background && !seq->req->is_background) return true;
    return !is_protected(victim) || lacks_window || seq == alone || seq == victim;
}

/* The blocks that a sequence's next tokens are written to. WEFT_E_FULL. */
static weft_err grow(weft_sched *sched, struct seq *seq, uint32_t n_tokens) {
    n_tokens -= seq->is_held; /* that one is written */
    uint32_t reach = wefti_sched_seq_reach(sched, seq, n_tokens);
    uint32_t n_blocks = wefti_sched_blocks_for(sched, reach);
    weft_err err = weft_kv_prefix_grow(sched->cache, &seq->table, n_blocks);
    return err ? err : wefti_sched_window_grow(sched, seq, reach - seq->n_planned);
}

/* Whether what it lacks are forced tokens: output that nobody has computed, without blocks as yet. */
static bool lacks_forced(const struct seq *seq, uint32_t left) {
    return left > 1 && left <= 1 + WEFT_FORCED_MAX &&
           seq->n_planned >= wefti_sched_seq_prompt(seq) && seq->n_planned >= seq->n_computed_max &&
           seq->req->sampling.n_logprobs < 0;
}

/* Its chunk: one token if it decodes, and of forced ones as many more as are to `spare` and have blocks;
 * none if it has its share of what is left of the step. WEFT_E_FULL: not even blocks for one. */
static weft_err plan_chunk(weft_sched *sched, struct seq *seq, uint32_t spare) {
    uint32_t left = wefti_sched_seq_left(seq);
    bool is_forced = lacks_forced(seq, left);
    seq->chunk = is_forced ? weft_min_u32(left, 1 + spare) : left == 1;
    if (seq->chunk > 1 && !grow(sched, seq, seq->chunk)) return WEFT_OK;
    seq->chunk = weft_min_u32(seq->chunk, 1);
    while (grow(sched, seq, 1)) {
        if (!wefti_sched_sessions_give(sched)) return WEFT_E_FULL;
    }
    return WEFT_OK;
}

/* Tokens that decoding sequences may have beside one for each: nobody's, and within the step's time. */
static uint32_t spare_tokens(const weft_sched *sched) {
    struct weft_sched_work decode = {0};
    for (uint32_t i = 0; i < sched->n_running; i++)
        weft_sched_work_add(&decode, sched->running[i]->n_planned, 1, 1);
    uint32_t nobodys = sched->options.max_batched_tokens - sched->running_max;
    return weft_min_u32(nobodys, wefti_sched_timely_tokens(sched, &decode, 1, 0));
}

/* A row for everybody who decodes, oldest first, and the blocks it is written to. Prompts have their
 * blocks since they started, but for windowed ones, of which they get those of one token. True: somebody
 * was preempted for it, or waits for blocks; who waits in the background keeps nobody else from starting. */
static bool plan_decode(weft_sched *sched, const struct seq *alone, uint32_t *spare_out) {
    uint32_t nobodys = sched->options.max_batched_tokens - sched->running_max;
    uint32_t spare = spare_tokens(sched);
    bool preempted = false;
    uint32_t i = 0;
    while (i < sched->n_running) {
        struct seq *seq = sched->running[i];
        uint32_t left = wefti_sched_seq_left(seq);
        bool wants = left > 0 && !wefti_sched_seq_complete(sched, seq) && !seq->put_off;
        seq->chunk = seq->n_spec = 0;
        if (!wants || !plan_chunk(sched, seq, spare)) {
            spare -= seq->chunk > 1 ? seq->chunk - 1 : 0;
            nobodys -= seq->chunk > 1 ? seq->chunk - 1 : 0;
            i++;
            continue;
        }
        struct seq *victim = choose_victim(sched);
        if (!may_preempt(sched, seq, victim, alone)) {
            seq->put_off = true;
            seq->chunk = 0;
            preempted = preempted || !sched->yielding.is_on || !seq->req->is_background;
            i++;
            continue;
        }
        bool moved_up = wefti_sched_seq_older(victim, seq);
        spill(sched, victim);
        victim->n_preempted = has_progressed(victim) ? 1 : victim->n_preempted + 1;
        if (victim->req->is_background)
            victim->n_preempted = weft_min_u32(victim->n_preempted, WEFTI_SCHED_PREEMPTED_MAX);
        wefti_sched_seq_preempt(sched, victim);
        sched->n_preemptions++;
        wefti_sched_headroom_lacked(sched);
        preempted = true;
        if (moved_up) i--; /* seq stands one place further up now; it tries again */
    }
    *spare_out = nobodys;
    return preempted;
}

/* -------------------------------------------------------------------------------- emission --- */

static void emit_releases(weft_sched *sched) {
    memcpy(sched->releases, sched->pending, sched->n_pending * sizeof *sched->pending);
    sched->plan.n_releases = sched->n_pending;
    sched->n_pending = 0;
}

static void emit_window_grant(weft_sched *sched, struct seq *seq) {
    if (seq->n_window_granted == seq->windowed.n) return;
    sched->grants[sched->plan.n_grants++] = (struct weft_step_grant){
        .slot = seq->slot,
        .gen = seq->gen,
        .kind = WEFT_KV_WINDOWED,
        .n_blocks = seq->windowed.n - seq->n_window_granted,
        .blocks = seq->windowed.blocks + seq->n_window_granted,
    };
    seq->n_window_granted = seq->windowed.n;
}

static void emit_grant(weft_sched *sched, struct seq *seq) {
    if (seq->n_granted == seq->table.n) return;
    sched->grants[sched->plan.n_grants++] = (struct weft_step_grant){
        .slot = seq->slot,
        .gen = seq->gen,
        .n_blocks = seq->table.n - seq->n_granted,
        .blocks = seq->table.blocks + seq->n_granted,
    };
    seq->n_granted = seq->table.n;
}

/* Whether nobody else holds the blocks that its row writes to, and the cache has none of them. */
static bool writes_to_own(const weft_sched *sched, const struct seq *seq, uint32_t n_tokens) {
    uint32_t size = sched->options.block_size;
    uint32_t first = weft_max_u32(seq->n_planned, seq->n_written);
    uint32_t end = wefti_sched_seq_reach(sched, seq, n_tokens);
    for (uint32_t i = first / size; first < end && i * size < end; i++) {
        if (weft_kv_holders(sched->pool, seq->table.blocks[i]) > 1) return false;
    }
    return true;
}

static void emit_row(weft_sched *sched, struct seq *seq, struct plan_out *out) {
    uint32_t n_tokens = seq->chunk;
    uint32_t row_idx = out->n_rows++;
    uint32_t n_computed = n_tokens - seq->is_held;
    bool samples = wefti_sched_seq_left(seq) == n_tokens;
    WEFT_ASSERT(wefti_sched_seq_reach(sched, seq, n_computed + seq->n_spec) <=
                seq->table.n * sched->options.block_size);
    WEFT_ASSERT(writes_to_own(sched, seq, n_computed + seq->n_spec));
    struct weft_step_seq view = wefti_sched_seq_view(sched, seq, 0);
    out->logprob_bytes += weft_step_logprob_bytes(&view, n_tokens);
    sched->rows[row_idx] = (struct weft_step_row){
        .slot = seq->slot, .gen = seq->gen, .n_tokens = n_tokens, .n_spec = seq->n_spec};
    out->rows[row_idx] = (struct row){
        .seq = seq,
        .slot = seq->slot,
        .gen = seq->gen,
        .first = seq->n_planned,
        .n_tokens = n_computed,
        .n_spec = seq->n_spec,
        .samples = samples,
    };
    seq->row[out->step % WEFT_SCHED_PLANS_MAX] = row_idx;
    seq->n_rows_out++;
    bool is_decode = seq->n_planned >= wefti_sched_seq_prompt(seq) &&
                     (n_tokens == 1 || lacks_forced(seq, n_tokens));
    out->n_decode_tokens += is_decode ? n_tokens : 0;
    if (!is_decode) sched->n_planned_tokens += n_tokens;
    seq->n_planned += n_computed;
    wefti_sched_states_keep(sched, seq, n_computed);
    seq->n_spec_out += seq->n_spec;
    out->n_spec += seq->n_spec;
    seq->is_held = false;
    seq->n_samples_out += samples;
    if (n_tokens == 1)
        out->n_decode++;
    else
        out->n_prompt += n_tokens;
    wefti_sched_note_prompt(seq->req, n_computed);
}

static void emit(weft_sched *sched) {
    struct plan_out *out = &sched->out[sched->step % WEFT_SCHED_PLANS_MAX];
    out->step = sched->step;
    out->n_rows = out->n_decode = out->n_prompt = out->n_decode_tokens = out->n_spec = 0;
    out->logprob_bytes = 0;
    emit_releases(sched);
    sched->plan.n_spills = sched->n_spills;
    sched->n_spills = 0;
    out->n_moved = sched->plan.n_spills + sched->plan.n_restores;
    out->has_trial = sched->guess_time.has_trial;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        struct seq *seq = sched->running[i];
        if (seq->is_released) continue; /* it starts anew in a later plan */
        emit_grant(sched, seq);
        emit_window_grant(sched, seq);
        if (seq->chunk) emit_row(sched, seq, out);
    }
    WEFT_ASSERT(out->n_decode + out->n_prompt + out->n_spec <= sched->options.max_batched_tokens);
    WEFT_ASSERT(out->logprob_bytes <= sched->options.step_logprob_bytes);
    sched->plan.n_rows = out->n_rows;
    sched->plan.epoch = sched->epoch;
    sched->plan.step = sched->step++;
    sched->n_out++;
}

static void begin(weft_sched *sched) {
    wefti_sched_request_free_borrowed(sched);
    sched->n_plans++;
    sched->n_start_tokens = sched->n_plan_tokens = sched->n_plan_grammar_bytes = 0;
    sched->guess_time.has_trial = false;
    sched->plan = (struct weft_step_plan){
        .releases = sched->releases,
        .starts = sched->starts,
        .spills = sched->spills,
        .copies = sched->copies,
        .restores = sched->restores,
        .grants = sched->grants,
        .states = sched->states,
        .rows = sched->rows,
    };
}

static bool has_rows(const weft_sched *sched) {
    for (uint32_t i = 0; i < sched->n_running; i++) {
        if (sched->running[i]->chunk) return true;
    }
    return false;
}

/* Nobody is admitted in a plan that preempts: the blocks just freed are for those who run. A plan
 * of releases alone tidies up a worker that has nothing else to do. A suspect's plan is the only
 * one out, so that a loss has one cause. */
bool weft_sched_plan(weft_sched *sched, uint64_t now_us, const struct weft_step_plan **plan_out) {
    wefti_sched_forecast_advance(sched, now_us);
    *plan_out = NULL;
    if (sched->n_out == WEFT_SCHED_PLANS_MAX) return false;
    begin(sched);
    wefti_sched_publish_all(sched);
    wefti_sched_window_move_all(sched);
    wefti_sched_wake_followers(sched);
    wefti_sched_wake_awaiting(sched);
    wefti_sched_wake_parked(sched);
    struct seq *suspect = wefti_sched_find_suspect(sched);
    if (suspect && sched->n_out > 0) return false;
    if (suspect && suspect->state == SEQ_WAITING) wefti_sched_seq_plan_start(sched, suspect);
    wefti_sched_beams_restart(sched, suspect);
    wefti_sched_ration(sched, suspect);
    if (!suspect) wefti_sched_yield(sched);
    uint32_t spare = 0;
    bool preempted = plan_decode(sched, suspect, &spare);
    if (!preempted && !suspect) wefti_sched_admit(sched);
    if (!preempted) wefti_sched_plan_guesses(sched, spare);
    wefti_sched_share_out(sched);
    if (!has_rows(sched)) {
        WEFT_ASSERT(sched->plan.n_starts == 0); /* whoever starts is given something to do */
        if (sched->n_out == 0) wefti_sched_beams_yield(sched);
        if (sched->n_pending == 0 || sched->n_out > 0) return false;
    }
    emit(sched);
    sched->n_solitary_steps += suspect != NULL;
    *plan_out = &sched->plan;
    return true;
}
