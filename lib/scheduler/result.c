/* Takes in the worker's results. It is another process: the whole result is held against the plan
 * before any of it is believed. */
#include "scheduler_internal.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/minmax.h"

/* ----------------------------------------------------------------------------------- check --- */

static weft_err check_logprobs(const weft_sched *sched, const struct weft_logprobs *logprobs,
                               int32_t n_wanted, struct weft_errmsg *why) {
    if (logprobs->n_top > (uint32_t)n_wanted)
        return weft_err_set(why, WEFT_E_PROTO, "the result has %u log-probabilities, asked were %d",
                            logprobs->n_top, n_wanted);
    for (uint32_t i = 0; i < logprobs->n_top; i++) {
        if (logprobs->top_ids[i] >= sched->options.n_vocab)
            return weft_err_set(why, WEFT_E_PROTO,
                                "the result names token %u of a vocabulary of %u",
                                logprobs->top_ids[i], sched->options.n_vocab);
    }
    return WEFT_OK;
}

static bool is_stop_token(const struct weft_sampling *sampling, uint32_t token) {
    for (uint32_t i = 0; i < sampling->n_stop_tokens; i++) {
        if (sampling->stop_tokens[i] == token) return true;
    }
    return false;
}

/* Without a token: its text is complete, or nothing fits it. */
static bool ends_by_grammar(const struct seq *seq, const struct weft_step_out *out) {
    return seq->req->sampling.grammar.kind != WEFT_GRAMMAR_NONE && !out->sampled &&
           (out->finish == WEFT_END_COMPLETE || out->finish == WEFT_END_GRAMMAR);
}

/* Which ends its n_output-th token, if there is one, may bring. */
struct ends {
    bool length, stop;
};

static struct ends ends_at(const weft_sched *sched, const struct seq *seq, uint32_t n_output,
                           const uint32_t *token) {
    const struct weft_sampling *sampling = &seq->req->sampling;
    return (struct ends){
        .length = n_output >= sampling->max_tokens ||
                  seq->req->n_prompt + n_output - seq->n_dropped >= sched->options.max_model_len,
        .stop = token && n_output >= sampling->min_tokens && is_stop_token(sampling, *token),
    };
}

/* A stop token ends the stream from min_tokens on. If it comes together with a length, either
 * reason will do. Nothing follows an end. */
static bool finish_is_plausible(const weft_sched *sched, const struct seq *seq,
                                const struct weft_step_out *out) {
    if (ends_by_grammar(seq, out)) return true;
    struct ends ends = ends_at(sched, seq, seq->n_output + 1, out->sampled ? &out->token : NULL);
    for (uint32_t i = 0; i < out->n_more; i++) {
        if (ends.length || ends.stop) return false;
        ends = ends_at(sched, seq, seq->n_output + 2 + i, &out->more[i]);
    }
    switch (out->finish) {
    case WEFT_END_NONE:
        return !ends.length && !ends.stop;
    case WEFT_END_STOP:
        return ends.stop;
    case WEFT_END_LENGTH:
        return ends.length;
    default:
        return false;
    }
}

static weft_err check_more(const weft_sched *sched, const struct seq *seq,
                           const struct weft_step_out *out, struct weft_errmsg *why) {
    bool may_be_forced = seq->req->sampling.grammar.kind != WEFT_GRAMMAR_NONE;
    uint32_t n_most = out->n_accepted + (may_be_forced ? WEFT_FORCED_MAX : 0);
    if (out->n_more > 0 && (!out->sampled || out->has_logprobs || out->n_more > n_most))
        return weft_err_set(why, WEFT_E_PROTO, "slot %u: nothing brings %u tokens more", out->slot,
                            out->n_more);
    for (uint32_t i = 0; i < out->n_more; i++) {
        if (out->more[i] >= sched->options.n_vocab)
            return weft_err_set(why, WEFT_E_PROTO, "slot %u: token %u of a vocabulary of %u",
                                out->slot, out->more[i], sched->options.n_vocab);
    }
    return WEFT_OK;
}

/* What came of guesses: no more than were allowed, and none of a row that may make none. */
static weft_err check_guesses(const struct row *row, const struct weft_step_out *out,
                              struct weft_errmsg *why) {
    uint32_t n_allowed = row->samples ? row->n_spec : 0;
    if (out->n_proposed <= n_allowed && out->n_accepted <= out->n_proposed &&
        out->n_accepted <= out->n_more && (out->sampled || out->n_accepted == 0))
        return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO, "slot %u: %u of %u guesses came true, of %u allowed",
                        out->slot, out->n_accepted, out->n_proposed, n_allowed);
}

static weft_err check_sample(const weft_sched *sched, const struct seq *seq,
                             const struct weft_step_out *out, struct weft_errmsg *why) {
    const struct weft_sampling *sampling = &seq->req->sampling;
    bool may_be_late = sampling->grammar.kind != WEFT_GRAMMAR_NONE && sampling->max_tokens > 0;
    bool has_results =
        out->sampled || out->has_logprobs || out->n_more > 0 || out->finish != WEFT_END_NONE;
    if (out->is_late && (!may_be_late || has_results))
        return weft_err_set(why, WEFT_E_PROTO, "slot %u cannot be late", out->slot);
    if (out->is_late) return WEFT_OK;
    if (out->sampled != (sampling->max_tokens > 0) && !ends_by_grammar(seq, out))
        return weft_err_set(why, WEFT_E_PROTO, "slot %u was to end its row %s a token", out->slot,
                            out->sampled ? "without" : "with");
    if (out->sampled && out->token >= sched->options.n_vocab)
        return weft_err_set(why, WEFT_E_PROTO, "slot %u sampled token %u of a vocabulary of %u",
                            out->slot, out->token, sched->options.n_vocab);
    if (out->sampled && out->output_idx != seq->n_output)
        return weft_err_set(why, WEFT_E_PROTO, "slot %u yields output token %u, expected was %u",
                            out->slot, out->output_idx, seq->n_output);
    weft_err err = check_more(sched, seq, out, why);
    if (err) return err;
    if (!finish_is_plausible(sched, seq, out))
        return weft_err_set(why, WEFT_E_PROTO,
                            "slot %u cannot finish that way (%d) after %u tokens", out->slot,
                            (int)out->finish, seq->n_output + 1 + out->n_more);
    if (out->has_logprobs != (out->sampled && sampling->n_logprobs >= 0))
        return weft_err_set(why, WEFT_E_PROTO, "slot %u: log-probabilities %s", out->slot,
                            out->has_logprobs ? "nobody asked for" : "are missing");
    if (!out->has_logprobs) return WEFT_OK;
    return check_logprobs(sched, &out->logprobs, sampling->n_logprobs, why);
}

/* The logits at position p speak of the token at p + 1; position 0 has none. */
static uint32_t first_prompt_logprob(const struct request *req) {
    return req->n_prompt_logprobs_done ? req->n_prompt_logprobs_done : 1;
}

static uint32_t n_prompt_logprobs_due(const struct row *row) {
    const struct request *req = row->seq->req;
    if (!wefti_sched_prompt_logprobs_pending(req)) return 0;
    uint32_t from = first_prompt_logprob(req);
    if (row->first + 1 > from) from = row->first + 1;
    uint32_t end = row->first + row->n_tokens + 1;
    if (end > req->n_prompt) end = req->n_prompt;
    return end > from ? end - from : 0;
}

static weft_err check_prompt_logprobs(const weft_sched *sched, const struct row *row,
                                      const struct weft_step_out *out, struct weft_errmsg *why) {
    const struct request *req = row->seq->req;
    uint32_t n_due = n_prompt_logprobs_due(row);
    if (out->n_prompt_logprobs != n_due)
        return weft_err_set(why, WEFT_E_PROTO,
                            "slot %u yields %u prompt log-probabilities, expected were %u",
                            out->slot, out->n_prompt_logprobs, n_due);
    if (n_due == 0) return WEFT_OK;
    if (out->prompt_pos != first_prompt_logprob(req))
        return weft_err_set(why, WEFT_E_PROTO,
                            "slot %u yields prompt log-probabilities from %u on, expected was %u",
                            out->slot, out->prompt_pos, first_prompt_logprob(req));
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < n_due && !err; i++)
        err = check_logprobs(sched, &out->prompt_logprobs[i], req->sampling.n_prompt_logprobs, why);
    return err;
}

/* They come with the row that completes the prompt. */
static weft_err check_values(const weft_sched *sched, const struct row *row,
                             const struct weft_step_out *out, struct weft_errmsg *why) {
    uint32_t n_due = weft_pooling_n_values(&row->seq->req->pooling, &sched->options.shape);
    if (!row->samples) n_due = 0;
    if (out->n_values == n_due) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO, "slot %u yields %u values, expected were %u", out->slot,
                        out->n_values, n_due);
}

static weft_err check_out(const weft_sched *sched, const struct row *row,
                          const struct weft_step_out *out, struct weft_errmsg *why) {
    if (out->slot != row->slot || out->gen != row->gen)
        return weft_err_set(why, WEFT_E_PROTO,
                            "the result has slot %u, generation %u in place of slot %u, %u",
                            out->slot, out->gen, row->slot, row->gen);
    if (row->ended && out->ran)
        return weft_err_set(why, WEFT_E_PROTO, "slot %u went on after its end", out->slot);
    if (!row->seq) return WEFT_OK; /* cancelled; its output is dropped */
    if (!out->ran)
        return weft_err_set(why, WEFT_E_PROTO, "slot %u did not run, but goes on", out->slot);
    weft_err err = check_prompt_logprobs(sched, row, out, why);
    if (!err) err = check_values(sched, row, out, why);
    if (err) return err;
    err = check_guesses(row, out, why);
    if (err) return err;
    if (row->samples) return check_sample(sched, row->seq, out, why);
    if (out->sampled || out->is_late || out->finish != WEFT_END_NONE || out->has_logprobs ||
        out->n_more > 0)
        return weft_err_set(why, WEFT_E_PROTO, "slot %u sampled before its last token", out->slot);
    return WEFT_OK;
}

static weft_err check_head(const weft_sched *sched, const struct weft_step_result *result,
                           struct weft_errmsg *why) {
    if (result->epoch != sched->epoch)
        return weft_err_set(why, WEFT_E_PROTO,
                            "a result of epoch %" PRIu64 ", but it is %" PRIu64 " only",
                            result->epoch, sched->epoch);
    if (sched->n_out == 0)
        return weft_err_set(why, WEFT_E_PROTO, "a result of step %" PRIu64 ", but no plan is out",
                            result->step);
    uint64_t oldest = sched->step - sched->n_out;
    if (result->step != oldest)
        return weft_err_set(why, WEFT_E_PROTO,
                            "a result of step %" PRIu64 ", expected was %" PRIu64, result->step,
                            oldest);
    return WEFT_OK;
}

/* Checks everything, and takes the memory that the commit needs. */
static weft_err prepare(weft_sched *sched, const struct plan_out *plan,
                        const struct weft_step_result *result, struct weft_errmsg *why) {
    if (result->n_outs != plan->n_rows)
        return weft_err_set(why, WEFT_E_PROTO, "the result of step %" PRIu64 " has %u rows, not %u",
                            result->step, result->n_outs, plan->n_rows);
    uint32_t n_events = plan->n_rows;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct row *row = &plan->rows[i];
        weft_err err = check_out(sched, row, &result->outs[i], why);
        if (err) return err;
        if (!row->seq || !result->outs[i].sampled) continue;
        if (row->seq->req->beams) {
            err = wefti_sched_beam_prepare(sched, row->seq, &n_events);
            if (err) return weft_err_set(why, err, "no memory for beams");
            continue;
        }
        err = wefti_sched_seq_reserve_output(row->seq, 1 + result->outs[i].n_more);
        if (err) return weft_err_set(why, err, "no memory for output tokens");
        n_events += result->outs[i].n_more;
    }
    weft_err err = wefti_sched_events_reserve(sched, n_events);
    return err ? weft_err_set(why, err, "no memory for %u events", n_events) : WEFT_OK;
}

/* ---------------------------------------------------------------------------------- commit --- */

/* A late row's last token counts as computed once it has led to another. */
static void count_tokens(weft_sched *sched, const struct row *row,
                         const struct weft_step_out *out) {
    struct seq *seq = row->seq;
    struct request *req = seq->req;
    uint32_t n_tokens = row->n_tokens + out->n_accepted;
    uint32_t end = row->first + n_tokens, n_prompt = wefti_sched_seq_prompt(seq);
    uint32_t prompt_end = end < n_prompt ? end : n_prompt;
    uint32_t n_new = 0; /* prompt tokens are new once per request, output tokens per sequence */
    if (prompt_end > req->n_prompt_computed) {
        uint32_t from = row->first > req->n_prompt_computed ? row->first : req->n_prompt_computed;
        n_new = prompt_end - from;
        req->n_prompt_computed = prompt_end;
        sched->n_prompt_tokens += n_new;
    }
    uint32_t known = seq->n_computed_max > n_prompt ? seq->n_computed_max : n_prompt;
    if (end > known) n_new += end - (row->first > known ? row->first : known);
    if (end - out->is_late > seq->n_computed_max) {
        seq->n_computed_max = end - out->is_late;
        seq->n_losses = 0; /* it got past the cause of those */
        seq->n_preempted = 0;
    }
    sched->n_recomputed_tokens += n_tokens - n_new;
}

/* The row of a sequence in the plan after the one whose result came last; NULL: none. */
static struct row *next_row(weft_sched *sched, const struct seq *seq) {
    _Static_assert(WEFT_SCHED_PLANS_MAX == 2, "one plan is out beside that one");
    uint32_t plan = (uint32_t)((sched->step - sched->n_out + 1) % WEFT_SCHED_PLANS_MAX);
    return sched->n_out > 1 && seq->row[plan] != NO_ROW ? &sched->out[plan].rows[seq->row[plan]]
                                                        : NULL;
}

static void add_token(weft_sched *sched, struct seq *seq, uint32_t token) {
    seq->output[seq->n_output++] = token;
    sched->n_output_tokens++;
    wefti_sched_charge_output(sched, seq->req);
}

static void shift_guessed(struct seq *seq, struct row *next, uint32_t n_accepted) {
    if (next) next->first += n_accepted;
    if (seq->state == SEQ_RUNNING) seq->n_planned += n_accepted; /* else it starts over */
}

/* Forced tokens are known, but not computed. The row that is out computes the one before them, and no
 * longer reaches the last: what is left comes as a chunk. */
static void add_forced(weft_sched *sched, struct seq *seq, struct row *next, uint32_t n_forced) {
    sched->n_forced_tokens += n_forced;
    if (n_forced == 0 || !next || !next->samples) return;
    next->samples = false;
    seq->n_samples_out--;
    if (seq->state == SEQ_RUNNING) seq->n_spec_out -= next->n_spec;
    next->n_spec = 0;
}

static void add_more(weft_sched *sched, struct seq *seq, const struct weft_step_out *out,
                     enum weft_end last_end) {
    struct row *next = next_row(sched, seq);
    for (uint32_t i = 0; i < out->n_more; i++) {
        bool is_last = i + 1 == out->n_more;
        struct weft_step_out one = {.sampled = true,
                                    .token = out->more[i],
                                    .output_idx = seq->n_output,
                                    .sampler_state = seq->sampler_state};
        add_token(sched, seq, out->more[i]);
        wefti_sched_event_push(sched, seq, &one, is_last ? last_end : WEFT_END_NONE);
    }
    shift_guessed(seq, next, out->n_accepted);
    add_forced(sched, seq, next, out->n_more - out->n_accepted);
}

/* The token that a late row owes comes from the sequence's next row, which computes nothing. */
static void hold(weft_sched *sched, struct seq *seq) {
    struct row *next = next_row(sched, seq);
    bool runs = seq->state == SEQ_RUNNING; /* else it starts over, and nothing is owed */
    WEFT_ASSERT(!seq->is_held && (!next || (next->n_tokens == 1 && next->samples)));
    sched->n_late_masks++;
    if (next) next->n_tokens = 0;
    if (next && runs) seq->n_planned--;
    if (seq->kept.n_tokens > seq->n_planned) wefti_sched_states_drop(sched, seq);
    seq->is_held = !next && runs;
}

static void commit(weft_sched *sched, const struct row *row, const struct weft_step_out *out) {
    struct seq *seq = row->seq;
    struct request *req = seq->req;
    count_tokens(sched, row, out);
    seq->row[(sched->step - sched->n_out) % WEFT_SCHED_PLANS_MAX] = NO_ROW;
    seq->n_rows_out--;
    seq->n_samples_out -= row->samples;
    if (seq->state == SEQ_RUNNING) seq->n_spec_out -= row->n_spec;
    wefti_sched_note_guesses(sched, seq, out);
    if (out->n_prompt_logprobs)
        req->n_prompt_logprobs_done = out->prompt_pos + out->n_prompt_logprobs;
    if (req->beams) {
        if (row->samples) wefti_sched_beam_take(sched, seq, out);
        return;
    }
    if (out->sampled) {
        add_token(sched, seq, out->token);
        seq->sampler_state = out->sampler_state;
    }
    bool tells = out->sampled || out->n_prompt_logprobs > 0 || out->n_values > 0;
    bool outgrows = out->finish == WEFT_END_LENGTH &&
                    wefti_sched_seq_outgrows(seq, seq->n_output + out->n_more);
    enum weft_end last_end = outgrows ? WEFT_END_NONE : out->finish;
    enum weft_end end = out->n_more > 0 ? WEFT_END_NONE : last_end;
    if (tells || end) wefti_sched_event_push(sched, seq, tells ? out : NULL, end);
    add_more(sched, seq, out, last_end);
    if (out->is_late) hold(sched, seq);
    if (outgrows) wefti_sched_seq_shift(sched, seq);
    if (!last_end) return;
    if (req->n_live == 1) sched->n_finished++;
    wefti_sched_seq_leave(sched, seq, true);
}

/* The time of guesses is that of so many rounds, each of as many sequences as it was about on average. */
static void learn_guesses(weft_sched *sched, const struct weft_step_result *result) {
    struct weft_sched_work round = {0};
    uint32_t n_rounds = 0;
    for (uint32_t i = 0; i < result->n_outs; i++) {
        n_rounds = weft_max_u32(n_rounds, result->outs[i].n_proposed);
        round.n_tokens += result->outs[i].n_proposed;
    }
    if (n_rounds == 0) return;
    round.n_tokens = weft_div_up_u32(round.n_tokens, n_rounds);
    uint32_t round_us = result->draft_us - weft_min_u32(result->catch_up_us, result->draft_us);
    weft_sched_cost_learn(&sched->draft_cost, &round, round_us / n_rounds);
}

/* What the step took teaches the model; what it was expected to take, before that, is counted. */
static void learn(weft_sched *sched, const struct plan_out *plan,
                  const struct weft_step_result *result) {
    struct weft_sched_work work = {0};
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct row *row = &plan->rows[i];
        const struct weft_step_out *out = &result->outs[i];
        if (!out->ran) continue;
        weft_sched_work_add(&work, row->first, row->n_tokens + out->n_proposed,
                            out->sampled + out->n_prompt_logprobs + out->n_proposed);
    }
    uint64_t other_us = (uint64_t)result->spill_us + result->draft_us + result->contrast_us;
    uint32_t busy_us = result->busy_us - (uint32_t)weft_min_u64(other_us, result->busy_us);
    uint32_t predicted_us = weft_sched_cost_predict(&sched->cost, &work);
    if (predicted_us > 0) {
        sched->step_predicted_us += predicted_us;
        sched->step_actual_us += busy_us;
        sched->step_error_us +=
            weft_max_u32(predicted_us, busy_us) - weft_min_u32(predicted_us, busy_us);
    }
    weft_sched_cost_learn(&sched->cost, &work, busy_us);
    learn_guesses(sched, result);
}

weft_err weft_sched_result(weft_sched *sched, uint64_t now_us,
                           const struct weft_step_result *result, struct weft_errmsg *why) {
    wefti_sched_forecast_advance(sched, now_us);
    if (result->epoch < sched->epoch) return WEFT_OK; /* from before a restart: nobody waits */
    weft_err err = check_head(sched, result, why);
    if (err) return err;
    struct plan_out *plan = &sched->out[result->step % WEFT_SCHED_PLANS_MAX];
    WEFT_ASSERT(plan->step == result->step);
    err = prepare(sched, plan, result, why);
    if (err) return err;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        if (plan->rows[i].seq) commit(sched, &plan->rows[i], &result->outs[i]);
    }
    wefti_sched_spill_learn(sched, plan->n_moved, result->spill_us);
    learn(sched, plan, result);
    sched->last_step = (struct weft_activity_step){
        .busy_us = result->busy_us,
        .n_prompt_tokens = plan->n_decode + plan->n_prompt - plan->n_decode_tokens,
        .n_decode_tokens = plan->n_decode_tokens,
        .n_seqs = plan->n_rows,
    };
    wefti_sched_forecast_prompted(sched, sched->last_step.n_prompt_tokens);
    sched->n_out--;
    sched->n_steps++;
    wefti_sched_note_time(sched, plan, result);
    return WEFT_OK;
}
