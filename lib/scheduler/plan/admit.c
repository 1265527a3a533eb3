/* Starts waiting sequences in the order of the queue (queue.c), one by one, since each start moves
 * its tenant back; nobody overtakes one that lacks room.
 *
 * A sequence takes the blocks of all tokens it has at once, so that a prompt half done never runs
 * out of them, and leaves at least one free block for every running sequence to grow into:
 * starting a newcomer only to preempt it in the next step would be wasted work.
 *
 * The choices of a request share their prompt. The first to start computes it; the others are
 * parked until all its tokens but the last are planned, then fork: they share the full blocks below
 * it, copy the block that holds its position, and recompute the last token alone, whose logits they
 * need. The copy is executed before the rows of its plan, and after all plans before; the source
 * therefore is a sequence whose rows in earlier plans cover the prompt. Requests share with others
 * through the prefix cache (prefix.c), and may wait for that (follow.c). */
#include "scheduler_internal.h"

#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

#define PROMPTS_AHEAD 4u

enum outcome { READY, BLOCKED, CROWDED, PARK, AWAIT }; /* CROWDED: it lacks a place, or blocks */

void wefti_sched_wake_parked(weft_sched *sched) {
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        if (seq->req->parked && wefti_sched_seq_can_be_forked(seq))
            wefti_sched_request_unpark(sched, seq->req);
    }
}

/* ----------------------------------------------------------------------------------- start --- */

/* The prompt as it is, or joined with the output in the plan's own storage. */
static const uint32_t *join_tokens(weft_sched *sched, const struct seq *seq) {
    const struct request *req = seq->req;
    if (seq->n_output == 0) return req->prompt;
    uint32_t *tokens = sched->start_tokens + sched->n_start_tokens;
    memcpy(tokens, req->prompt, req->n_prompt * sizeof *tokens);
    memcpy(tokens + req->n_prompt, seq->output, seq->n_output * sizeof *tokens);
    sched->n_start_tokens += req->n_prompt + seq->n_output;
    return tokens;
}

_Static_assert(WEFT_CONTEXT_MAX <= WEFT_STEP_START_TOKENS_MAX, "any sequence fits a plan");
_Static_assert(WEFT_GRAMMAR_BYTES_MAX + 4 * (WEFT_ALLOWED_TOKENS_MAX + WEFT_BAD_WORDS_MAX) <=
                   WEFT_STEP_GRAMMAR_BYTES_MAX,
               "so does any grammar, with all that may be beside it");

/* The storage holds the longest one that dropped tokens, or several; a plan's message a few of those. More
 * starts need more plans. */
bool wefti_sched_seq_start_fits(const weft_sched *sched, const struct seq *seq) {
    uint32_t n_tokens = seq->req->n_prompt + seq->n_output;
    if (n_tokens > WEFT_STEP_START_TOKENS_MAX - sched->n_plan_tokens) return false;
    if (weft_sampling_long_bytes(&seq->req->sampling) >
        WEFT_STEP_GRAMMAR_BYTES_MAX - sched->n_plan_grammar_bytes)
        return false;
    WEFT_ASSERT(sched->n_start_tokens <= sched->history_cap);
    return seq->n_output == 0 || n_tokens <= sched->history_cap - sched->n_start_tokens;
}

void wefti_sched_seq_add_start(weft_sched *sched, struct seq *seq, uint32_t n_cached,
                               uint32_t n_written) {
    struct request *req = seq->req;
    uint32_t n_tokens = req->n_prompt + seq->n_output;
    seq->n_written = n_written;
    sched->n_plan_tokens += n_tokens;
    sched->n_plan_grammar_bytes += (uint32_t)weft_sampling_long_bytes(&req->sampling);
    sched->starts[sched->plan.n_starts++] = (struct weft_step_start){
        .slot = seq->slot,
        .gen = seq->gen,
        .choice = seq->choice,
        .tokens = join_tokens(sched, seq),
        .n_tokens = n_tokens,
        .n_prompt = req->n_prompt,
        .n_keep = seq->n_dropped > 0 ? req->n_keep : 0,
        .n_dropped = seq->n_dropped,
        .n_cached = n_cached,
        .n_written = n_written,
        .n_window_skipped = seq->windowed.first,
        .n_prompt_logprobs_done = req->n_prompt_logprobs_done,
        .sampler_state = seq->sampler_state,
        .sampling = req->sampling,
        .pooling = req->pooling,
        .n_adapters = req->n_adapters,
        .adapters = req->adapters,
    };
    req->last_start_plan = sched->n_plans;
}

/* With what examine found for it. */
static void plan_start(weft_sched *sched, struct seq *seq, const struct prefix *prefix) {
    struct request *req = seq->req;
    uint32_t n_tokens = wefti_sched_seq_known(seq);
    bool is_new = seq->gen == 0;
    wefti_sched_seq_start(sched, seq);
    wefti_sched_prefix_fill(sched, seq, prefix, n_tokens);
    seq->n_planned = prefix->n_cached;
    seq->n_granted = seq->chunk = seq->n_spec = seq->n_spec_out = 0;
    seq->put_off = false;
    seq->ration = 0;
    seq->turn = ++sched->n_turns; /* after all that wait */
    seq->start_step = sched->step;
    wefti_sched_seq_add_start(sched, seq, prefix->n_cached,
                              wefti_sched_prefix_n_written(sched, prefix));
    req->following = (struct following){0};
    req->was_preempted = false;
    if (!prefix->source)
        sched->n_cache_hit_tokens += prefix->n_restored > 0
                                         ? prefix->n_blocks * sched->options.block_size
                                         : prefix->n_cached;
    if (seq->owes_shift) wefti_sched_charge_prompt(sched, req, n_tokens - prefix->n_cached);
    seq->owes_shift = false;
    if (req->first_plan_us != UINT64_MAX) {
        if (sched->options.is_recurrent && is_new && !prefix->source) /* it was too late to share */
            wefti_sched_charge_prompt(sched, req, n_tokens - prefix->n_cached);
        return;
    }
    wefti_sched_request_first_start(sched, req);
    wefti_sched_forecast_started(sched, req);
    wefti_sched_charge_prompt(sched, req, n_tokens - prefix->n_cached);
    req->n_prompt_cached = prefix->n_cached < req->n_prompt ? prefix->n_cached : req->n_prompt;
}

/* In the order of deadlines a prompt that starts behind others gets nothing of a step, but holds a
 * place and memory that somebody more urgent may want soon. */
static bool is_premature(const weft_sched *sched, const struct request *req) {
    if (sched->options.policy != WEFT_SCHED_EDF) return false;
    uint32_t n_before = 0;
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        uint32_t n_prompt = wefti_sched_seq_prompt(seq);
        if (seq->n_planned >= n_prompt) continue;
        int order = wefti_sched_served_less(seq->req, req);
        bool is_before =
            order ? order < 0 : wefti_sched_heap_before(&seq->req->by_turn, &req->by_turn);
        n_before += is_before;
        n_tokens += is_before ? n_prompt - seq->n_planned : 0;
    }
    return n_before >= PROMPTS_AHEAD && n_tokens >= sched->options.max_batched_tokens;
}

/* It will not start now, whatever room there is: nobody gives up any for it. */
static bool is_held_back(const weft_sched *sched, const struct request *req) {
    const struct yielding *yielding = &sched->yielding;
    return (req->is_background && yielding->is_on && !yielding->may_start) ||
           is_premature(sched, req);
}

/* A sequence whose last row is still out waits for its token, and so does everybody after it: the
 * blocks it gave up are not for younger ones. Sessions make room for it: what they held stays in the
 * cache meanwhile, so what was found is there. */
static enum outcome examine(weft_sched *sched, const struct seq *seq, struct prefix *prefix_out) {
    const struct request *req = seq->req;
    if (seq->n_rows_out > 0) return BLOCKED;
    if (sched->n_running == sched->running_max) return CROWDED;
    if (wefti_sched_lacks_grammar(sched, req)) return AWAIT;
    wefti_sched_prefix_find(sched, seq, prefix_out);
    if (!prefix_out->source && seq->n_dropped == 0 && wefti_sched_prefix_awaited(sched, req) &&
        prefix_out->n_cached + 1 < req->n_prompt)
        return PARK;
    while (!wefti_sched_prefix_has_room(sched, prefix_out, wefti_sched_seq_known(seq))) {
        if (is_held_back(sched, req)) return BLOCKED;
        if (!wefti_sched_sessions_give(sched)) return CROWDED;
    }
    bool fits = wefti_sched_seq_start_fits(sched, seq) &&
                wefti_sched_spill_fits(sched, prefix_out->n_restored);
    return fits ? READY : BLOCKED;
}

/* NULL: those that wait are beams that have nothing to compute before others are there. */
static struct seq *first_waiting(struct request *req) {
    for (uint32_t i = 0; i < req->n_choices; i++) {
        if (req->seqs[i].state == SEQ_WAITING && !req->seqs[i].has_next) return &req->seqs[i];
    }
    return NULL;
}

struct seq *wefti_sched_next_suspect(weft_sched *sched) {
    struct request *req = wefti_sched_queue_top(sched);
    struct seq *seq = req ? first_waiting(req) : NULL;
    struct prefix prefix;
    if (!seq || !wefti_sched_seq_is_suspect(seq)) return NULL; /* cheaper than the rest */
    return examine(sched, seq, &prefix) == READY ? seq : NULL;
}

void wefti_sched_seq_plan_start(weft_sched *sched, struct seq *seq) {
    struct prefix prefix;
    enum outcome outcome = examine(sched, seq, &prefix);
    WEFT_ASSERT(outcome == READY);
    plan_start(sched, seq, &prefix);
}

/* ----------------------------------------------------------------------------------- admit --- */

/* One request must not hold every place: beyond half of them it waits while others do, and the last
 * ones stay free for whoever comes, who would else have to wait until one of its choices ends. */
static bool has_its_share(const weft_sched *sched, const struct request *req) {
    uint32_t n = req->n_running;
    if (wefti_sched_beams_stand(req)) return false;
    if (n > 0 && n + wefti_sched_places_kept(sched) >= sched->running_max) return true;
    uint32_t n_waiting = sched->waiting.n;
    if (!req->is_background) n_waiting -= sched->n_background_queued;
    return n_waiting > 1 && n > 0 && n >= sched->running_max / 2;
}

bool wefti_sched_becomes_late(const weft_sched *sched, const struct request *req,
                              uint32_t n_tokens_left) {
    if (sched->options.policy != WEFT_SCHED_EDF || req->is_late || req->was_preempted) return false;
    uint64_t us = wefti_sched_forecast_prompt_us(sched, n_tokens_left);
    return us == UINT64_MAX || sched->now_us + us > wefti_sched_due_us(req);
}

static bool is_late(const weft_sched *sched, const struct request *req) {
    return req->first_plan_us == UINT64_MAX && wefti_sched_becomes_late(sched, req, req->n_prompt);
}

/* Starts one sequence. READY: somebody's turn may be next, this request's or another's. */
static enum outcome admit_one(weft_sched *sched, struct request *req) {
    struct seq *seq = first_waiting(req);
    struct prefix prefix;
    enum outcome outcome = seq ? examine(sched, seq, &prefix) : PARK;
    if (outcome == PARK) wefti_sched_request_park(sched, req);
    if (outcome == AWAIT) wefti_sched_await_grammar(sched, req);
    bool wants_way = outcome == CROWDED && !req->is_background && !is_held_back(sched, req);
    if (wants_way && wefti_sched_make_way(sched)) return READY;
    if (outcome != READY) return outcome;
    if (req->is_background && sched->yielding.is_on) {
        if (!sched->yielding.may_start) return BLOCKED;
        sched->yielding.may_start = false;
    }
    if (wefti_sched_follow(sched, seq, prefix.n_cached)) return READY;
    if (wefti_sched_seq_is_suspect(seq)) return BLOCKED; /* a plan of its own: suspects.c */
    if (is_premature(sched, req)) return BLOCKED;
    if (is_late(sched, req)) {
        req->is_late = true;
        wefti_sched_queue_rerank(sched, req);
    } else if (has_its_share(sched, req)) {
        wefti_sched_request_set_aside(sched, req);
    } else {
        plan_start(sched, seq, &prefix);
    }
    return READY;
}

static void call_back_asides(weft_sched *sched) {
    struct request *req = NULL;
    while ((req = LIST_FIRST(&sched->asides)))
        wefti_sched_request_unpark(sched, req); /* back into the queue */
}

void wefti_sched_admit(weft_sched *sched) {
    call_back_asides(sched);
    for (;;) {
        struct request *req = wefti_sched_queue_top(sched);
        if (req && !wefti_sched_may_run_more(sched, req)) req = wefti_sched_queue_newcomer(sched);
        if (!req) return;
        enum outcome outcome = admit_one(sched, req);
        if (outcome == BLOCKED || outcome == CROWDED) return;
    }
}
