/* A request and its sequences as plain objects: making, ending, and questions about one of them. */
#include "scheduler_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

#define FIRST_OUTPUT_CAP 64u

/* Everything that follows seqs[] has 4-byte elements or, at the end, bytes: so no padding is needed
 * between the parts. */
_Static_assert(_Alignof(struct weft_logit_bias) == _Alignof(uint32_t), "arrays lie back to back");
_Static_assert(sizeof(struct seq) % _Alignof(uint32_t) == 0, "arrays follow the sequences");

static size_t request_bytes(const struct weft_submit *submit) {
    return sizeof(struct request) + wefti_sched_n_seqs(submit) * sizeof(struct seq) +
           submit->n_prompt * sizeof(uint32_t) + submit->sampling.n_stop_tokens * sizeof(uint32_t) +
           submit->sampling.n_masked_tokens * sizeof(uint32_t) +
           submit->sampling.n_dry_breakers * sizeof(uint32_t) +
           submit->sampling.n_bias * sizeof(struct weft_logit_bias) +
           weft_sampling_long_bytes(&submit->sampling) + submit->session_id.len;
}

static void *append(unsigned char **at, const void *items, size_t n_bytes) {
    void *copy = *at;
    if (n_bytes) memcpy(copy, items, n_bytes);
    *at += n_bytes;
    return copy;
}

static void copy_arrays(struct request *req, const struct weft_submit *submit) {
    const struct weft_sampling *sampling = &submit->sampling;
    unsigned char *at = (unsigned char *)&req->seqs[req->n_choices];
    req->prompt = append(&at, submit->prompt, submit->n_prompt * sizeof *submit->prompt);
    req->sampling.stop_tokens =
        append(&at, sampling->stop_tokens, sampling->n_stop_tokens * sizeof(uint32_t));
    req->sampling.masked_tokens =
        append(&at, sampling->masked_tokens, sampling->n_masked_tokens * sizeof(uint32_t));
    req->sampling.bias =
        append(&at, sampling->bias, sampling->n_bias * sizeof(struct weft_logit_bias));
    req->sampling.allowed_tokens =
        append(&at, sampling->allowed_tokens, sampling->n_allowed_tokens * sizeof(uint32_t));
    req->sampling.bad_words =
        append(&at, sampling->bad_words, sampling->n_bad_words * sizeof(uint32_t));
    req->sampling.dry_breakers =
        append(&at, sampling->dry_breakers, sampling->n_dry_breakers * sizeof(uint32_t));
    req->sampling.grammar.text = append(&at, sampling->grammar.text, sampling->grammar.n_bytes);
    req->session_id.data = append(&at, submit->session_id.data, submit->session_id.len);
    req->session_id.len = submit->session_id.len;
}

static weft_err init_seq(struct seq *seq, struct request *req, uint32_t choice,
                         const struct weft_submit_choice *resumed) {
    seq->req = req;
    seq->choice = choice;
    seq->state = SEQ_WAITING;
    seq->lost_epoch = UINT64_MAX;
    for (uint32_t i = 0; i < WEFT_SCHED_PLANS_MAX; i++)
        seq->row[i] = NO_ROW;
    if (resumed && resumed->finished) seq->state = SEQ_DONE;
    if (!resumed || resumed->finished || resumed->n_output == 0) return WEFT_OK;
    seq->output = malloc(resumed->n_output * sizeof *seq->output);
    if (!seq->output) return WEFT_E_NOMEM;
    memcpy(seq->output, resumed->output, resumed->n_output * sizeof *seq->output);
    seq->n_output = seq->output_cap = resumed->n_output;
    seq->sampler_state = resumed->sampler_state;
    seq->n_computed_max =
        req->n_prompt + resumed->n_output - 1; /* the last one's was never needed */
    return WEFT_OK;
}

struct request *wefti_sched_request_new(uint32_t router, const struct weft_submit *submit) {
    struct request *req = calloc(1, request_bytes(submit));
    if (!req) return NULL;
    req->key = (struct weft_sched_key){
        .router = router, .attempt = submit->attempt, .request_id = submit->request_id};
    req->n_prompt = submit->n_prompt;
    req->n_choices = wefti_sched_n_seqs(submit);
    req->n_prompt_logprobs_done = submit->n_prompt_logprobs_done;
    req->sampling = submit->sampling;
    req->pooling = submit->pooling;
    req->first_plan_us = UINT64_MAX;
    req->compiled_epoch = UINT64_MAX;
    req->salt = (struct weft_kv_space){.hi = submit->cache_salt.hi, .lo = submit->cache_salt.lo};
    req->n_adapters = submit->n_adapters;
    if (submit->n_adapters > 0)
        memcpy(req->adapters, submit->adapters, submit->n_adapters * sizeof *req->adapters);
    req->is_resumed = submit->resume;
    req->no_guesses = submit->no_guesses;
    req->shifts = submit->shifts;
    req->n_keep = submit->n_keep;
    req->tenant = submit->tenant;
    req->flow = submit->flow;
    req->weight = submit->weight;
    req->priority = submit->priority;
    req->is_background = submit->priority == WEFT_PRIORITY_BACKGROUND;
    req->ttft_us = submit->ttft_us;
    req->tpot_us = submit->tpot_us;
    copy_arrays(req, submit);
    for (uint32_t i = 0; i < req->n_choices; i++) {
        bool is_resumed = submit->choices && i < submit->n_choices;
        const struct weft_submit_choice *resumed = is_resumed ? &submit->choices[i] : NULL;
        if (init_seq(&req->seqs[i], req, i, resumed)) goto no_memory;
        req->n_waiting += req->seqs[i].state == SEQ_WAITING;
    }
    req->n_live = req->n_waiting;
    return req;
no_memory:
    wefti_sched_request_free(req);
    return NULL;
}

void wefti_sched_request_free(struct request *req) {
    if (!req) return;
    for (uint32_t i = 0; i < req->n_choices; i++)
        free(req->seqs[i].output);
    wefti_sched_beams_free(req->beams);
    free(req);
}

weft_err wefti_sched_seq_reserve_output(struct seq *seq, uint32_t n_more) {
    if (n_more <= seq->output_cap - seq->n_output) return WEFT_OK;
    uint32_t least = seq->n_output + n_more;
    uint32_t cap = weft_max_u32(seq->output_cap ? seq->output_cap * 2 : FIRST_OUTPUT_CAP, least);
    cap = weft_min_u32(cap, seq->req->sampling.max_tokens);
    WEFT_ASSERT(cap >= least); /* nothing comes beyond max_tokens */
    uint32_t *output = realloc(seq->output, cap * sizeof *output);
    if (!output) return WEFT_E_NOMEM;
    seq->output = output;
    seq->output_cap = cap;
    return WEFT_OK;
}

struct weft_step_seq wefti_sched_seq_view(const weft_sched *sched, const struct seq *seq,
                                          uint32_t n_tokens) {
    return (struct weft_step_seq){
        .sampling = &seq->req->sampling,
        .n_vocab = sched->options.n_vocab,
        .n_values = weft_pooling_n_values(&seq->req->pooling, &sched->options.shape),
        .n_prompt = seq->req->n_prompt,
        .n_prompt_logprobs_done = seq->req->n_prompt_logprobs_done,
        .n_known = wefti_sched_seq_len(seq),
        .n_computed = seq->n_planned - seq->is_held + n_tokens,
    };
}

bool wefti_sched_seq_older(const struct seq *a, const struct seq *b) {
    if (a->req->is_background != b->req->is_background) return b->req->is_background;
    if (a->req->arrival_us != b->req->arrival_us) return a->req->arrival_us < b->req->arrival_us;
    if (a->req->order != b->req->order) return a->req->order < b->req->order;
    return a->choice < b->choice;
}

/* Stop tokens are the worker's to see; lengths are known beforehand. A request for zero tokens
 * ends with the row that completes its prompt, which is counted like a sample. */
bool wefti_sched_seq_complete(const weft_sched *sched, const struct seq *seq) {
    if (seq->restarts) return true;
    if (seq->n_samples_out == 0) return false;
    if (seq->req->beams) return true; /* nobody knows yet what it goes on with */
    uint32_t max_tokens = seq->req->sampling.max_tokens;
    return seq->n_output + seq->n_samples_out >= (max_tokens ? max_tokens : 1) ||
           wefti_sched_seq_len(seq) >= sched->options.max_model_len;
}

bool wefti_sched_prompt_logprobs_pending(const struct request *req) {
    return req->sampling.n_prompt_logprobs >= 0 && req->n_prompt > 1 &&
           req->n_prompt_logprobs_done < req->n_prompt;
}

bool wefti_sched_computes_all(const struct request *req) {
    return wefti_sched_prompt_logprobs_pending(req) || weft_pooling_reads_all(&req->pooling) ||
           weft_sampling_is_contrastive(&req->sampling);
}

uint64_t wefti_sched_contrast_bytes(const weft_sched *sched, const struct weft_sampling *sampling,
                                    uint32_t n_prompt) {
    uint64_t n_tokens = (uint64_t)n_prompt + sampling->max_tokens;
    if (!weft_sampling_is_contrastive(sampling)) return 0;
    if (n_tokens > sched->options.max_model_len) n_tokens = sched->options.max_model_len;
    return weft_sampling_contrast_bytes((uint32_t)n_tokens, sched->options.shape.n_hidden);
}
