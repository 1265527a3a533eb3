/* A beam search is one request: its live beams are its sequences, each with a slot and a block table.
 *
 * The worker's own samples mean nothing here. Each row brings the likeliest tokens; when those of all
 * live beams are there, the search (search.h) says which beams go on. A beam stays in its place with
 * the first that continues it. The others take the places of beams that ended, or new ones:
 *
 *     in its place    restarts in its slot under a new generation; its blocks stay
 *     elsewhere       the same, but gives up its blocks and shares those of the beam that it continues;
 *                     the last one, if it is not full, is copied
 *     new             waits like any sequence, and begins with what is cached or a sibling has
 *
 * So until the next plan a sequence that `restarts` elsewhere has no blocks. Where none are left, or
 * the beam that it continues has lost its own, it is preempted: it then computes all it has. Nobody
 * gets a second row before all beams are there, as nobody knows what to compute. A beam may lose its
 * place meanwhile: what continues it stays known, so it is not computed again for that. Between a result and
 * the next plan the worker has nothing to do for such a request. Where layers carry a state, it is shared
 * in that plan or never: the beam that is continued goes on with it then.
 *
 * Tokens are told in the end. A router that asks again after a loss gets those that it has not seen:
 * the search begins anew, and finds the same. */
#include "beam/beams.h"

#include <string.h>

#include "base/check.h"

/* --------------------------------------------------------------------------------- results --- */

/* Whether no other row of the request is in this plan before its own. */
static bool is_first_row(const weft_sched *sched, const struct seq *seq) {
    uint32_t plan = (uint32_t)((sched->step - sched->n_out) % WEFT_SCHED_PLANS_MAX);
    for (uint32_t i = 0; i < seq->choice; i++) {
        if (seq->req->seqs[i].row[plan] != NO_ROW) return false;
    }
    return true;
}

weft_err wefti_sched_beam_prepare(const weft_sched *sched, struct seq *seq, uint32_t *n_events) {
    struct request *req = seq->req;
    if (!is_first_row(sched, seq)) return WEFT_OK;
    weft_err err = wefti_beam_reserve(req->beams->search);
    uint32_t n_tokens = req->beams->search->n_tokens + 1;
    for (uint32_t i = 0; i < req->n_choices && !err; i++)
        err = wefti_sched_seq_reserve_output(&req->seqs[i], n_tokens - req->seqs[i].n_output);
    *n_events += req->beams->n_told * (n_tokens + 1);
    return err;
}

static bool all_are_there(const struct request *req) {
    const struct beams *beams = req->beams;
    for (uint32_t i = 0; i < wefti_beam_n_live(beams->search); i++) {
        if (!req->seqs[beams->choice[i]].has_next) return false;
    }
    return true;
}

/* `best` NULL: the tree had no more. */
static void tell(weft_sched *sched, struct request *req, uint32_t choice,
                 const struct wefti_beam *best) {
    const struct beams *beams = req->beams;
    enum weft_end end = best && best->is_stopped ? WEFT_END_STOP : WEFT_END_LENGTH;
    uint32_t n = best ? best->n_tokens : 0, *tokens = sched->found_tokens;
    if (beams->is_known[choice]) return;
    if (best) wefti_beam_tokens(beams->search, best, tokens);
    for (uint32_t i = beams->n_known[choice]; i < n; i++) {
        struct weft_step_out one = {.sampled = true, .token = tokens[i], .output_idx = i};
        wefti_sched_event_push(sched, &req->seqs[choice], &one, i + 1 < n ? WEFT_END_NONE : end);
    }
    if (n <= beams->n_known[choice]) wefti_sched_event_push(sched, &req->seqs[choice], NULL, end);
}

static void finish(weft_sched *sched, struct request *req) {
    const struct beams *beams = req->beams;
    const struct wefti_beam *best[WEFT_BEAMS_MAX];
    uint32_t n = wefti_beam_best(beams->search, beams->n_told, best);
    for (uint32_t i = 0; i < beams->n_told; i++)
        tell(sched, req, i, i < n ? best[i] : NULL);
    sched->n_finished++;
    wefti_sched_request_drop(sched, req);
}

/* ------------------------------------------------------------------------------ who goes on --- */

/* The choices of the new beams: the first that continues a beam has its place. */
struct places {
    uint32_t choice[WEFT_BEAMS_MAX];
    bool is_own[WEFT_BEAMS_MAX];     /* it has the place of the beam that it continues */
    bool is_taken[WEFT_BEAMS_MAX];   /* by choice */
    uint32_t source[WEFT_BEAMS_MAX]; /* choices of the beams that they continue */
    uint32_t n;
};

static void find_places(const struct beams *beams, struct places *places) {
    *places = (struct places){.n = wefti_beam_n_live(beams->search)};
    for (uint32_t i = 0; i < places->n; i++) {
        uint32_t source = beams->choice[wefti_beam_live(beams->search, i)->parent];
        places->source[i] = source;
        places->is_own[i] = !places->is_taken[source];
        places->is_taken[source] = true;
        if (places->is_own[i]) places->choice[i] = source;
    }
}

/* Places of beams that ended come before new ones: these have a slot, perhaps. */
static uint32_t find_free(const struct request *req, const struct places *places) {
    uint32_t unborn = UINT32_MAX;
    for (uint32_t i = 0; i < req->n_choices; i++) {
        if (places->is_taken[i]) continue;
        if (req->seqs[i].state != SEQ_DONE) return i;
        if (unborn == UINT32_MAX) unborn = i;
    }
    WEFT_ASSERT(unborn < req->n_choices); /* no more beams than the width */
    return unborn;
}

static void fill_places(const struct request *req, struct places *places) {
    for (uint32_t i = 0; i < places->n; i++) {
        if (places->is_own[i]) continue;
        places->choice[i] = find_free(req, places);
        places->is_taken[places->choice[i]] = true;
    }
}

/* What it has in the cache is of no use to the beam that takes its place. */
static void give_up_blocks(weft_sched *sched, struct seq *seq) {
    wefti_sched_spill_drop(sched, seq);
    if (seq->state != SEQ_RUNNING) return;
    wefti_sched_publish(sched, seq, seq->n_planned);
    wefti_sched_states_drop(sched, seq);
    weft_kv_prefix_release(sched->cache, &seq->table, &seq->chain);
    wefti_sched_window_release(sched, seq);
    seq->n_planned = seq->n_granted = 0;
    wefti_sched_seq_release(sched, seq); /* before others get these blocks */
}

static void bear(weft_sched *sched, struct seq *seq) {
    struct request *req = seq->req;
    seq->state = SEQ_WAITING;
    seq->n_computed_max = 0;
    req->n_live++;
    req->n_waiting++;
    sched->n_seqs_waiting++;
}

static void take_place(weft_sched *sched, struct request *req, const struct places *places,
                       uint32_t idx) {
    const struct wefti_beam *beam = wefti_beam_live(req->beams->search, idx);
    struct seq *seq = &req->seqs[places->choice[idx]];
    if (!places->is_own[idx]) give_up_blocks(sched, seq);
    if (seq->state == SEQ_DONE) bear(sched, seq);
    wefti_beam_tokens(req->beams->search, beam, seq->output);
    seq->n_output = beam->n_tokens;
    seq->restarts = seq->state == SEQ_RUNNING;
    seq->restart_source = places->source[idx];
    seq->has_next = false;
    req->beams->choice[idx] = seq->choice;
}

/* Beams that end leave after the others have come, so that the request never seems to be over. Room
 * for outputs was kept for all choices: it is there again for those that leave. */
static void go_on(weft_sched *sched, struct request *req) {
    struct places places;
    find_places(req->beams, &places);
    fill_places(req, &places);
    for (uint32_t i = 0; i < places.n; i++)
        take_place(sched, req, &places, i);
    for (uint32_t i = 0; i < req->n_choices; i++) {
        struct seq *seq = &req->seqs[i];
        if (places.is_taken[i] || seq->state == SEQ_DONE) continue;
        seq->has_next = false;
        wefti_sched_seq_leave(sched, seq, false);
        seq->n_output = seq->output_cap = 0;
    }
    if (req->n_waiting > 0) wefti_sched_request_unpark(sched, req);
}

static void advance(weft_sched *sched, struct request *req) {
    struct beams *beams = req->beams;
    struct wefti_beam_next next[WEFT_BEAMS_MAX];
    for (uint32_t i = 0; i < wefti_beam_n_live(beams->search); i++) {
        size_t choice = beams->choice[i];
        next[i] = (struct wefti_beam_next){
            .n = beams->n_next[choice],
            .tokens = beams->tokens + choice * beams->n_wanted,
            .logprobs = beams->logprobs + choice * beams->n_wanted,
        };
    }
    wefti_beam_advance(beams->search, next);
    if (beams->search->is_over)
        finish(sched, req);
    else
        go_on(sched, req);
}

void wefti_sched_beam_take(weft_sched *sched, struct seq *seq, const struct weft_step_out *out) {
    struct request *req = seq->req;
    struct beams *beams = req->beams;
    size_t at = (size_t)seq->choice * beams->n_wanted;
    uint32_t n = out->has_logprobs ? out->logprobs.n_top : 0;
    WEFT_ASSERT(n <= beams->n_wanted && !seq->has_next && !seq->restarts);
    beams->n_next[seq->choice] = n;
    if (n > 0) {
        memcpy(beams->tokens + at, out->logprobs.top_ids, n * sizeof *beams->tokens);
        memcpy(beams->logprobs + at, out->logprobs.top_logprobs, n * sizeof *beams->logprobs);
    }
    seq->has_next = true;
    sched->n_output_tokens++;
    wefti_sched_charge_output(sched, req);
    if (all_are_there(req)) advance(sched, req);
}

/* -------------------------------------------------------------------------------- restarts --- */

/* Whether what it shares of the beam that it continues is still there: no room that others make brings that back. */
static bool has_source(const weft_sched *sched, const struct seq *seq, uint32_t n_cached) {
    const struct seq *source = &seq->req->seqs[seq->restart_source];
    uint32_t n_shared = n_cached / sched->options.block_size * sched->options.block_size;
    if (source == seq) return true;
    if (source->state != SEQ_RUNNING || source->n_planned < n_cached) return false;
    if (sched->options.is_recurrent && source->n_planned > n_cached) return false;
    return wefti_sched_window_holds(sched, source, n_shared);
}

/* What it shares, with a source; false: the blocks for the rest cannot be had. */
static bool find_shared(const weft_sched *sched, const struct seq *seq, uint32_t n_cached,
                        struct prefix *prefix_out) {
    const struct seq *source = &seq->req->seqs[seq->restart_source];
    uint32_t n_blocks = n_cached / sched->options.block_size;
    *prefix_out = (struct prefix){
        .source = source, .n_blocks = n_blocks, .partial = WEFT_KV_NONE, .n_cached = n_cached};
    if (n_cached % sched->options.block_size) prefix_out->partial = source->table.blocks[n_blocks];
    wefti_sched_window_limit(sched, prefix_out);
    uint32_t n_wanted = wefti_sched_blocks_for(sched, n_cached + 1) - n_blocks;
    uint64_t n_there = (uint64_t)weft_kv_n_free(sched->pool) + weft_kv_prefix_n_idle(sched->cache);
    return n_there >= n_wanted && wefti_sched_window_has_room(sched, prefix_out, n_cached + 1);
}

/* The blocks of all its tokens, the last included, so that its row preempts nobody. False: they cannot
 * be had. */
static bool take_blocks(weft_sched *sched, struct seq *seq, uint32_t n_cached) {
    struct prefix prefix;
    if (seq->restart_source == seq->choice) {
        uint32_t n_blocks = wefti_sched_blocks_for(sched, n_cached + 1);
        seq->n_planned = n_cached;
        if (weft_kv_prefix_grow(sched->cache, &seq->table, n_blocks) ||
            wefti_sched_window_grow(sched, seq, 1))
            return false;
        wefti_sched_states_fork(sched, seq, seq);
        return true;
    }
    if (!find_shared(sched, seq, n_cached, &prefix)) return false;
    wefti_sched_prefix_fill(sched, seq, &prefix, n_cached + 1);
    seq->n_planned = prefix.n_cached;
    return true;
}

/* Its slot is released and started in one plan: releases come first there. */
static void restart(weft_sched *sched, struct seq *seq) {
    wefti_sched_seq_release(sched, seq);
    seq->is_released = false;
    seq->gen = ++sched->slot_gen[seq->slot];
    seq->restarts = false;
    seq->n_granted = 0;
    seq->start_step = sched->step;
    wefti_sched_window_grant_anew(sched, seq);
    wefti_sched_seq_add_start(sched, seq, seq->n_planned, seq->n_planned);
}

void wefti_sched_beams_restart(weft_sched *sched, const struct seq *alone) {
    uint32_t i = 0;
    while (i < sched->n_running) {
        struct seq *seq = sched->running[i];
        uint32_t n_cached = seq->req->n_prompt + seq->n_output - 1;
        bool sits_out = alone && seq != alone;
        if (!seq->restarts || sits_out || !wefti_sched_seq_start_fits(sched, seq)) {
            i++;
            continue;
        }
        bool can_share = has_source(sched, seq, n_cached);
        if (can_share && take_blocks(sched, seq, n_cached)) {
            restart(sched, seq);
            i++;
        } else if (!can_share || !wefti_sched_sessions_give(sched)) {
            wefti_sched_seq_preempt(sched, seq); /* the next one has its place */
            sched->n_preemptions++;
        }
    }
}

void wefti_sched_beams_yield(weft_sched *sched) {
    for (uint32_t i = sched->n_running; i-- > 0;) {
        if (!sched->running[i]->has_next) continue;
        wefti_sched_seq_preempt(sched, sched->running[i]);
        sched->n_preemptions++;
        return;
    }
}
