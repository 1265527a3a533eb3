/* Admission: a request that can never run is refused with a sentence, one too many with a time. */
#include "scheduler_internal.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/minmax.h"

/* Resumed requests pass the queue's bound; this is the bound of everything together. */
#define REQUESTS_MAX (2u * WEFT_QUEUE_MAX)

#define RETRY_MIN_MS 1000u
#define RETRY_MAX_MS 600000u

/* ---------------------------------------------------------------------------------- checks --- */

static bool tokens_in_vocabulary(const uint32_t *tokens, uint32_t n_tokens, uint32_t n_vocab) {
    uint32_t max = 0; /* no early exit: the common case runs through, and this way vectorised */
    for (uint32_t i = 0; i < n_tokens; i++)
        max = tokens[i] > max ? tokens[i] : max;
    return max < n_vocab;
}

static weft_err check_pooling(const weft_sched *sched, const struct weft_submit *submit,
                              struct weft_errmsg *why) {
    const struct weft_pooling *pooling = &submit->pooling;
    weft_err err = weft_pooling_check(pooling, &submit->sampling, submit->n_prompt,
                                      sched->options.n_vocab, why);
    bool has_next = pooling->kind == WEFT_POOLING_NONE || pooling->kind == WEFT_POOLING_TOKENS;
    if (!err && has_next && sched->options.whole_tokens > 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "this model reads texts whole and predicts no tokens: it has vectors "
                            "or scores alone");
    if (err || pooling->kind == WEFT_POOLING_NONE) return err;
    if (weft_pooling_n_values(pooling, &sched->options.shape) == 0)
        return weft_err_set(why, WEFT_E_INVAL, "this model has no such values");
    if (submit->n_choices == 1) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "with pooling there is one choice, not %u",
                        submit->n_choices);
}

static weft_err check_contrast(const weft_sched *sched, const struct weft_submit *submit,
                               struct weft_errmsg *why) {
    uint64_t bytes = wefti_sched_contrast_bytes(sched, &submit->sampling, submit->n_prompt);
    if (bytes == 0) return WEFT_OK;
    if (!sched->options.has_contrast)
        return weft_err_set(why, WEFT_E_INVAL,
                            "contrastive search (penalty_alpha) is not available %s",
                            sched->options.is_recurrent
                                ? "with this model, which has recurrent layers"
                                : "where workers divide a model (--layout tp), or --memory-limit "
                                  "is too low for it");
    if (submit->n_choices != 1 || submit->pooling.kind != WEFT_POOLING_NONE)
        return weft_err_set(why, WEFT_E_INVAL,
                            "contrastive search (penalty_alpha) has one choice, not %u",
                            submit->n_choices);
    if (submit->shifts)
        return weft_err_set(why, WEFT_E_INVAL,
                            "contrastive search (penalty_alpha) compares with all of the text: its "
                            "context cannot be shifted");
    if (bytes <= sched->options.contrast_bytes) return WEFT_OK;
    return weft_err_set(why, WEFT_E_TOOBIG,
                        "contrastive search (penalty_alpha) keeps the hidden states of prompt and "
                        "output, %" PRIu64 " MiB for %u and %u tokens; at most %" PRIu64
                        " MiB are possible: ask for a lower max_tokens",
                        bytes >> 20, submit->n_prompt, submit->sampling.max_tokens,
                        sched->options.contrast_bytes >> 20);
}

static weft_err check_shape(const weft_sched *sched, const struct weft_submit *submit,
                            struct weft_errmsg *why) {
    if (submit->n_prompt == 0) return weft_err_set(why, WEFT_E_INVAL, "the prompt has no tokens");
    if (submit->n_choices == 0 || submit->n_choices > WEFT_CHOICES_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "n must be between 1 and %d, got %u",
                            WEFT_CHOICES_MAX, submit->n_choices);
    uint32_t width = submit->sampling.beam_width;
    if (width > 0 && (width < submit->n_choices || width > sched->running_max))
        return weft_err_set(why, WEFT_E_INVAL,
                            "a beam search must have at least n = %u and at most %u beams, got %u",
                            submit->n_choices, sched->running_max, width);
    if (submit->n_prompt_logprobs_done > submit->n_prompt)
        return weft_err_set(why, WEFT_E_INVAL,
                            "%u prompt log-probabilities are done, but the prompt has %u tokens",
                            submit->n_prompt_logprobs_done, submit->n_prompt);
    if (submit->n_adapters > WEFT_SEQ_ADAPTERS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "at most %u adapters for one request, got %u",
                            WEFT_SEQ_ADAPTERS_MAX, submit->n_adapters);
    weft_err err = weft_sampling_check(&submit->sampling, sched->options.n_vocab, why);
    if (!err) err = wefti_sched_shift_check(sched, submit, why);
    return err ? err : check_pooling(sched, submit, why);
}

static weft_err check_fits(const weft_sched *sched, uint32_t n_prompt, uint32_t n_wanted,
                           struct weft_errmsg *why) {
    const struct weft_sched_options *options = &sched->options;
    uint32_t n_least = n_wanted ? 1 : 0;
    if (n_prompt > options->max_model_len - n_least)
        return weft_err_set(why, WEFT_E_TOOBIG,
                            "the prompt has %u tokens and at least %u more are wanted, but the "
                            "longest sequence of this model has %u",
                            n_prompt, n_least, options->max_model_len);
    uint32_t n_room = options->max_model_len - n_prompt;
    uint32_t n_tokens = n_prompt + (n_wanted < n_room ? n_wanted : n_room);
    if (wefti_sched_blocks_for(sched, n_tokens) > options->n_blocks)
        return weft_err_set(why, WEFT_E_TOOBIG,
                            "%u tokens of prompt and %u of output need %u cache blocks, there are "
                            "%u",
                            n_prompt, n_tokens - n_prompt, wefti_sched_blocks_for(sched, n_tokens),
                            options->n_blocks);
    return WEFT_OK;
}

static weft_err check_choice(const weft_sched *sched, const struct weft_submit *submit,
                             uint32_t idx, struct weft_errmsg *why) {
    const struct weft_submit_choice *choice = &submit->choices[idx];
    if (choice->n_output == 0) return WEFT_OK;
    uint32_t n_room = sched->options.max_model_len - submit->n_prompt;
    if (choice->n_output >= submit->sampling.max_tokens ||
        (choice->n_output >= n_room && !submit->shifts))
        return weft_err_set(why, WEFT_E_INVAL, "choice %u has %u tokens of output already", idx,
                            choice->n_output);
    bool owes_prompt = submit->sampling.n_prompt_logprobs >= 0 && submit->n_prompt > 1 &&
                       submit->n_prompt_logprobs_done < submit->n_prompt;
    if (choice->n_output >= n_room && owes_prompt)
        return weft_err_set(why, WEFT_E_INVAL,
                            "choice %u dropped tokens before its prompt's were told", idx);
    if (!tokens_in_vocabulary(choice->output, choice->n_output, sched->options.n_vocab))
        return weft_err_set(why, WEFT_E_INVAL,
                            "choice %u has a token that is outside the vocabulary of %u", idx,
                            sched->options.n_vocab);
    return WEFT_OK;
}

static weft_err check_choices(const weft_sched *sched, const struct weft_submit *submit,
                              struct weft_errmsg *why) {
    if (!submit->choices) return WEFT_OK;
    uint32_t n_live = 0;
    for (uint32_t i = 0; i < submit->n_choices; i++) {
        if (submit->choices[i].finished) continue;
        weft_err err = check_choice(sched, submit, i, why);
        if (err) return err;
        n_live++;
    }
    if (n_live > 0) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "all of its choices are finished");
}

static weft_err check_submit(const weft_sched *sched, const struct weft_submit *submit,
                             const struct request *old, struct weft_errmsg *why) {
    if (old && old->key.attempt >= submit->attempt)
        return weft_err_set(why, WEFT_E_INVAL,
                            "request %" PRIu64 " is known by attempt %u already, this is %u",
                            submit->request_id, old->key.attempt, submit->attempt);
    weft_err err = check_shape(sched, submit, why);
    if (!err) err = check_fits(sched, submit->n_prompt, submit->sampling.max_tokens, why);
    if (!err) err = check_contrast(sched, submit, why);
    if (err) return err;
    if (!tokens_in_vocabulary(submit->prompt, submit->n_prompt, sched->options.n_vocab))
        return weft_err_set(why, WEFT_E_INVAL,
                            "the prompt has a token that is outside the vocabulary of %u",
                            sched->options.n_vocab);
    return check_choices(sched, submit, why);
}

bool wefti_sched_request_fits(const weft_sched *sched, const struct request *req) {
    if (check_fits(sched, req->n_prompt, req->sampling.max_tokens, NULL)) return false;
    uint32_t n_room = sched->options.max_model_len - req->n_prompt;
    if (req->beams && wefti_sched_beams_max_tokens(req) > n_room) return false;
    for (uint32_t i = 0; i < req->n_choices; i++) {
        const struct seq *seq = &req->seqs[i];
        bool is_long = seq->n_output > 0 && seq->n_output >= n_room;
        if (seq->state != SEQ_DONE && is_long && !req->shifts) return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------------- queue --- */

static uint32_t to_retry_ms(uint64_t us) {
    uint64_t ms = us < UINT64_MAX - 999 ? (us + 999) / 1000 : RETRY_MAX_MS;
    if (ms < RETRY_MIN_MS) return RETRY_MIN_MS;
    return ms < RETRY_MAX_MS ? (uint32_t)ms : RETRY_MAX_MS;
}

/* Between two plans all newcomers wait, also for free places: as many more may come. */
static uint32_t waiting_max(const weft_sched *sched) {
    return sched->options.max_queue + (sched->running_max - sched->n_running);
}

struct payer *wefti_sched_request_reserve(weft_sched *sched, const struct request_payer *who) {
    uint32_t n_requests = sched->index.n + 1;
    if (n_requests > REQUESTS_MAX || wefti_sched_heap_reserve(&sched->waiting, n_requests) ||
        wefti_sched_heap_reserve(&sched->deadlines, n_requests))
        return NULL;
    return wefti_sched_payer_reserve(sched, who);
}

static struct request *make_request(weft_sched *sched, uint64_t now_us, uint32_t router,
                                    const struct weft_submit *submit) {
    struct request *req = wefti_sched_request_new(router, submit);
    if (!req) return NULL;
    req->arrival_us = submit->age_us < now_us ? now_us - submit->age_us : 0;
    req->order = sched->n_submitted++;
    req->deadline_us = UINT64_MAX;
    if (submit->deadline_us && submit->deadline_us < UINT64_MAX - now_us)
        req->deadline_us = now_us + submit->deadline_us;
    wefti_sched_shift_begin(sched, req);
    if (!wefti_sched_beams_init(sched, req, submit->n_choices)) return req;
    wefti_sched_request_free(req);
    return NULL;
}

static const struct payer *tenant_of(const weft_sched *sched, const struct weft_submit *submit) {
    static const struct payer nobody;
    const struct payer *tenant = wefti_sched_tenant_find(sched, submit->tenant);
    return tenant ? tenant : &nobody;
}

/* A tenant that has less than its part of a full queue may go on to it, whatever others have put there.
 * So may a user of the only tenant's, up to twice the queue's length. So it has at most its length for
 * each tenant, and once more. */
static enum weft_reject check_places(const weft_sched *sched, const struct weft_submit *submit,
                                     uint32_t *retry_ms_out, struct weft_errmsg *why) {
    uint32_t max = waiting_max(sched), n = sched->n_requests_waiting;
    if (n < max) return WEFT_REJECT_NONE;
    uint64_t part = wefti_sched_tenant_part(sched, submit, sched->options.max_queue);
    bool is_alone = part == UINT64_MAX;
    if (!is_alone && tenant_of(sched, submit)->n_queued < part) return WEFT_REJECT_NONE;
    if (is_alone && n < 2 * max && wefti_sched_user_has_part(sched, submit))
        return WEFT_REJECT_NONE;
    *retry_ms_out = to_retry_ms(wefti_sched_forecast_requests_us(sched, n - max + 1));
    (void)weft_err_set(why, WEFT_E_FULL,
                       is_alone ? "%u requests are waiting, which is the limit"
                                : "%u requests are waiting, and your share of the queue is full",
                       n);
    return is_alone ? WEFT_REJECT_QUEUE_FULL : WEFT_REJECT_TENANT_FULL;
}

/* The same for tokens: a tenant with nothing waiting, or less than its part, is let in. */
static enum weft_reject check_tokens(const weft_sched *sched, const struct weft_submit *submit,
                                     uint32_t *retry_ms_out, struct weft_errmsg *why) {
    uint64_t max = sched->options.max_queued_tokens, n = sched->n_queued_tokens;
    if (max == 0 || n == 0 || n + submit->n_prompt <= max) return WEFT_REJECT_NONE;
    uint64_t part = wefti_sched_tenant_part(sched, submit, max);
    uint64_t own = tenant_of(sched, submit)->n_queued_tokens;
    if (part < UINT64_MAX && (own == 0 || own + submit->n_prompt <= part)) return WEFT_REJECT_NONE;
    uint64_t n_over = n + submit->n_prompt - max;
    *retry_ms_out = to_retry_ms(wefti_sched_forecast_tokens_us(sched, n_over < n ? n_over : n));
    (void)weft_err_set(why, WEFT_E_FULL,
                       "%" PRIu64
                       " tokens of prompts are waiting; with these %u that would be more than "
                       "the limit of %" PRIu64,
                       n, submit->n_prompt, max);
    return WEFT_REJECT_OVERLOADED;
}

static enum weft_reject check_deadline(const weft_sched *sched, const struct weft_submit *submit,
                                       uint32_t *retry_ms_out, struct weft_errmsg *why) {
    uint64_t left_us = UINT64_MAX;
    if (submit->ttft_us > 0)
        left_us = submit->ttft_us > submit->age_us ? submit->ttft_us - submit->age_us : 0;
    if (submit->deadline_us > 0 && submit->deadline_us < left_us) left_us = submit->deadline_us;
    if (left_us == UINT64_MAX) return WEFT_REJECT_NONE;
    uint64_t wait_us = wefti_sched_forecast_first_token_us(sched, submit);
    if (wait_us <= left_us) return WEFT_REJECT_NONE;
    *retry_ms_out = to_retry_ms(wait_us - left_us);
    (void)weft_err_set(why, WEFT_E_FULL,
                       "its first token is due in %" PRIu64 " ms, but would come in %" PRIu64 " ms",
                       left_us / 1000, wait_us < UINT64_MAX ? wait_us / 1000 : RETRY_MAX_MS);
    return WEFT_REJECT_DEADLINE;
}

/* Those in the background take no place of the queue from others. There are as many places again, so that whatever
 * prompts one request may have, they have room once they are alone; and twice as many as can run, which keep the
 * worker busy. */
static uint32_t background_max(const weft_sched *sched) {
    uint32_t n_queue = sched->options.max_queue;
    return sched->running_max + weft_max_u32(n_queue, sched->running_max);
}

static enum weft_reject check_background(const weft_sched *sched, uint32_t *retry_ms_out,
                                         struct weft_errmsg *why) {
    if (sched->n_background < background_max(sched)) return WEFT_REJECT_NONE;
    *retry_ms_out = RETRY_MIN_MS;
    (void)weft_err_set(why, WEFT_E_FULL,
                       "%u requests are in the background already, which is the limit",
                       sched->n_background);
    return WEFT_REJECT_QUEUE_FULL;
}

/* Those in the background, too: their hidden states are as large. */
static enum weft_reject check_contrasts(const weft_sched *sched, const struct weft_submit *submit,
                                        uint32_t *retry_ms_out, struct weft_errmsg *why) {
    uint64_t own = wefti_sched_contrast_bytes(sched, &submit->sampling, submit->n_prompt);
    uint64_t most = sched->options.contrast_bytes;
    if (own == 0 || sched->contrast_bytes + own <= most) return WEFT_REJECT_NONE;
    *retry_ms_out = RETRY_MIN_MS;
    (void)weft_err_set(why, WEFT_E_FULL,
                       "requests with contrastive search (penalty_alpha) keep %" PRIu64
                       " MiB of hidden states; with the %" PRIu64
                       " of this one that would be more than the limit of %" PRIu64,
                       sched->contrast_bytes >> 20, own >> 20, most >> 20);
    return WEFT_REJECT_OVERLOADED;
}

static enum weft_reject check_load(const weft_sched *sched, const struct weft_submit *submit,
                                   uint32_t *retry_ms_out, struct weft_errmsg *why) {
    enum weft_reject no = check_contrasts(sched, submit, retry_ms_out, why);
    if (no) return no;
    if (submit->priority == WEFT_PRIORITY_BACKGROUND)
        return check_background(sched, retry_ms_out, why);
    no = check_places(sched, submit, retry_ms_out, why);
    if (!no) no = check_tokens(sched, submit, retry_ms_out, why);
    if (!no) no = check_deadline(sched, submit, retry_ms_out, why);
    return no;
}

static enum weft_reject take(weft_sched *sched, uint64_t now_us, uint32_t router,
                             const struct weft_submit *submit, uint32_t *retry_ms_out,
                             struct weft_errmsg *why) {
    if (sched->draining && !submit->resume) {
        (void)weft_err_set(why, WEFT_E_CLOSED, "the server is shutting down");
        return WEFT_REJECT_DRAINING;
    }
    struct request *old = wefti_sched_index_find(&sched->index, router, submit->request_id);
    weft_err err = check_submit(sched, submit, old, why);
    if (err) return err == WEFT_E_TOOBIG ? WEFT_REJECT_TOO_LONG : WEFT_REJECT_INVALID;
    enum weft_reject no =
        submit->resume ? WEFT_REJECT_NONE : check_load(sched, submit, retry_ms_out, why);
    if (no) return no;
    const struct request_payer who = {submit->tenant, submit->flow, submit->weight,
                                      submit->priority == WEFT_PRIORITY_BACKGROUND};
    struct payer *payer = wefti_sched_request_reserve(sched, &who);
    struct request *req = payer ? make_request(sched, now_us, router, submit) : NULL;
    if (!req) {
        *retry_ms_out = RETRY_MIN_MS;
        (void)weft_err_set(why, WEFT_E_NOMEM, "no memory for a request of %u tokens",
                           submit->n_prompt);
        return WEFT_REJECT_NO_MEMORY;
    }
    if (old) {
        sched->n_cancelled++;
        wefti_sched_request_drop(sched, old);
    }
    wefti_sched_request_enqueue(sched, req, payer);
    wefti_sched_session_touch(sched, req->tenant, req->session_id);
    return WEFT_REJECT_NONE;
}

enum weft_reject weft_sched_submit(weft_sched *sched, uint64_t now_us, uint32_t router,
                                   const struct weft_submit *submit, uint32_t *retry_after_ms_out,
                                   struct weft_errmsg *why) {
    *retry_after_ms_out = 0;
    wefti_sched_forecast_advance(sched, now_us);
    enum weft_reject reject = take(sched, now_us, router, submit, retry_after_ms_out, why);
    if (reject)
        sched->n_rejected++;
    else
        sched->n_accepted++;
    return reject;
}
