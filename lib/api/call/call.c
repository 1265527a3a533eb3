#include "call/call_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/call.h"
#include "base/check.h"
#include "base/minmax.h"
#include "base/rand.h"
#include "call/parking.h"
#include "call/rank.h"
#include "call/session_call.h"
#include "codec/digest.h"
#include "codec/gunzip.h"
#include "kinds/kind.h"
#include "pooled/pooled.h"

static const struct weft_api_upstream_job_ops job_ops;

static struct job *job_of(struct weft_api_upstream_job *upstream) {
    _Static_assert(offsetof(struct job, upstream) == 0, "one address for both");
    return (struct job *)upstream;
}

static const struct job *const_job_of(const struct weft_api_upstream_job *upstream) {
    return (const struct job *)upstream;
}

/* ---------------------------------------------------------------------------------- budgets --- */

static void fail(weft_api_call *call, int status, uint32_t retry_after_ms, const char *code,
                 const char *message);

static void fail_for_room(weft_api_call *call) {
    fail(call, 503, WEFT_API_RETRY_MS, "too_many_bytes",
         "the requests under way hold too much output, try again later");
}

/* Takes `n` more bytes of the budget for output. False: the call has failed. */
static bool hold_output(weft_api_call *call, uint64_t n) {
    if (wefti_api_output_hold(&call->output, n)) return true;
    fail_for_room(call);
    return false;
}

static void fail_for_logprobs(weft_api_call *call) {
    char text[256];
    (void)snprintf(
        text, sizeof text,
        "the log-probabilities held for this request would be more than the %" PRIu64
        " bytes of --max-logprob-bytes; %s",
        call->limits.max_logprob_bytes,
        call->params.drops_sent_logprobs
            ? "read faster, or ask for fewer of them"
            : "ask for fewer of them, fewer tokens or choices, or for a stream over HTTP");
    fail(call, 400, 0, NULL, text);
}

/* Where other fields of the request take tokens away, it contradicts itself, and would do so again. */
static void fail_for_grammar(weft_api_call *call) {
    const struct weft_sampling *sampling = &call->params.sampling;
    bool takes_away = sampling->n_allowed_tokens > 0 || sampling->n_bad_words > 0;
    for (uint32_t i = 0; i < sampling->n_bias; i++)
        takes_away = takes_away || sampling->bias[i].bias <= WEFT_LOGIT_BIAS_NEVER;
    if (takes_away)
        fail(call, 400, 0, "grammar_failed",
             "'allowed_token_ids', 'bad_words' or 'logit_bias' leave none of the tokens that the "
             "grammar allows at some place of the output");
    else
        fail(call, 500, 0, "grammar_failed",
             "the output could not be kept within its grammar: that met a bound of work or memory "
             "(the server's log says if it was what all grammars may take)");
}

/* False: the call has failed. */
static bool push_logprobs(weft_api_call *call, struct logprob_store *store, uint32_t most,
                          const struct weft_logprobs *lp) {
    switch (wefti_api_lp_push(&call->output, store, most, lp)) {
    case LP_PUSHED:
        return true;
    case LP_NO_ROOM:
        fail_for_room(call);
        return false;
    case LP_TOO_MANY:
        fail_for_logprobs(call);
        return false;
    case LP_NO_MEMORY:
        break;
    }
    fail(call, 500, 0, NULL, "out of memory");
    return false;
}

/* --------------------------------------------------------------------------------- the call --- */

#define CHUNK_HEAD_BYTES_MAX (1u << 20) /* the model's name is the longest of it */
#define DEADLINE_GRACE_US 1000000

static void wake(weft_api_call *call) {
    if (!call->is_abandoned) call->wake(call);
}

/* MessagePack-RPC's are short, and a client's own: the same on every connection. */
static void name_call(weft_api_call *call, const struct weft_api_call_request *request) {
    const char *prefix = request->kind->id_prefix;
    size_t n = strlen(prefix);
    const char *between = n > 0 && prefix[n - 1] == '_' ? "" : "-";
    if (request->kind->has_random_ids)
        (void)snprintf(call->id, sizeof call->id, "%.23s%s%016" PRIx64 "%016" PRIx64, prefix,
                       between, weft_rand_seed(), weft_rand_seed());
    else if (request->is_rpc)
        (void)snprintf(call->id, sizeof call->id, "%.23s%s%016" PRIx64, prefix, between,
                       weft_rand_seed());
    else
        (void)snprintf(call->id, sizeof call->id, "%.23s%s%s", prefix, between, call->request_id);
}

weft_api_call *weft_api_call_new(struct weft_api_state *api,
                                 const struct weft_api_call_request *request) {
    struct weft_buf *body = request->body;
    weft_api_call *call = calloc(1, sizeof *call + request->path_session.len);
    if (!call) return NULL;
    if (request->path_session.len > 0) {
        char *name = (char *)(call + 1);
        memcpy(name, request->path_session.data, request->path_session.len);
        call->path_session = (struct weft_str){name, request->path_session.len};
    }
    size_t n_body = body->len;
    if (request->is_gzip && n_body > 0 && !(call->unpack = weft_gunzip_new(body))) {
        free(call);
        return NULL;
    }
    int id_len = snprintf(call->request_id, sizeof call->request_id, "%s", request->request_id);
    WEFT_ASSERT(id_len > 0 && (size_t)id_len < sizeof call->request_id);
    call->api = api;
    call->kind = request->kind;
    call->is_msgpack = request->is_msgpack;
    call->is_rpc = request->is_rpc;
    call->wake = request->wake;
    call->owner = request->owner;
    STAILQ_INIT(&call->unrendered);
    call->model_name = api->limits.model_name; /* outlives every call */
    call->limits = api->limits;
    call->limits.adapters = wefti_api_adapters_hold(api);
    call->limits.recall =
        (struct weft_api_recall){api->store, request->asker.tenant, request->now_us / 1000};
    call->held_bytes = weft_api_cost(api, n_body);
    call->output = (struct output_budget){.api = api,
                                          .free_bytes = request->free_bytes,
                                          .logprob_max = api->limits.max_logprob_bytes};
    call->body = *body;
    if (weft_api_cost(api, WEFT_API_FIRST_ROOM_BYTES) == 0) /* else it has none yet */
        call->body_room = WEFT_API_FIRST_ROOM_BYTES;
    if (call->unpack) call->body.max_bytes++; /* prepare.c says why */
    weft_buf_init(body, body->max_bytes);
    weft_buf_init(&call->chunk_head, CHUNK_HEAD_BYTES_MAX);
    name_call(call, request);
    call->asker = request->asker;
    call->created_s = request->now_s;
    call->arrived_us = request->now_us;
    uint64_t timeout_us = (uint64_t)api->settings.request_timeout_ms * 1000;
    if (timeout_us && !call->asker.is_background) call->deadline_us = request->now_us + timeout_us;
    return call;
}

static void close_job(struct job *job) {
    struct weft_api_state *api = job->call->api;
    weft_api_upstream_close(api, &job->upstream);
    if (!job->call->asker.is_background) return;
    WEFT_ASSERT(api->n_background_jobs > 0);
    api->n_background_jobs--;
}

/* Cancels the jobs at the scheduler and closes them. */
static void withdraw(weft_api_call *call) {
    if (call->parked_tenant) wefti_api_unpark(call);
    if (call->is_in_line) wefti_api_leave_line(call);
    weft_api_upstream_forget(&call->session_ask);
    for (uint32_t i = 0; i < call->n_jobs; i++) {
        struct job *job = &call->jobs[i];
        if (job->upstream.place == WEFT_API_UPSTREAM_CLOSED) continue;
        weft_api_upstream_cancel(call->api, &job->upstream, UINT32_MAX);
        close_job(job);
    }
}

static void count_choice(const struct choice *choice, enum weft_end reason, uint64_t now_us) {
    const struct job *job = choice->job;
    const weft_api_call *call = job->call;
    if (call->asker.is_background) return; /* batches have counts of their own */
    struct weft_api_metrics_choice end = {
        .reason = reason,
        .arrived_us = call->arrived_us,
        .queued_us = job->queued_us,
        .first_us = choice->first_us,
        .last_us = choice->last_us,
        .now_us = now_us,
        .n_prompt = (uint32_t)job->prompt->n_ids,
        .n_output = choice->n_tokens,
        .max_tokens = call->params.sampling.max_tokens,
        .n = call->params.n,
    };
    weft_api_metrics_choice(&call->api->metrics, &end);
}

static void count_open_choices(const weft_api_call *call, enum weft_end reason) {
    for (uint32_t i = 0; i < call->n_choices && call->accepted; i++) {
        if (call->choices[i].end == WEFT_END_NONE) count_choice(&call->choices[i], reason, 0);
    }
}

static void call_free_job(struct job *job) {
    free(job->prompt_lps.words);
    free(job->values);
}

static void call_free(weft_api_call *call) {
    if (call->kind->free_state) call->kind->free_state(call);
    for (uint32_t i = 0; i < call->n_choices; i++) {
        struct choice *choice = &call->choices[i];
        free(choice->tokens);
        free(choice->lps.words);
        wefti_api_scan_fini(&choice->scan);
        wefti_api_view_fini(&choice->view);
    }
    for (uint32_t i = 0; i < call->n_jobs; i++)
        call_free_job(&call->jobs[i]);
    free(call->ranked);
    free(call->choices);
    free(call->jobs);
    weft_stop_set_free(call->stop_set);
    weft_api_release(call->api, call->held_bytes);
    wefti_api_output_release(&call->output, call->output.held_bytes);
    if (call->uses_adapters)
        wefti_api_adapters_use(call->api, call->params.adapters, call->params.n_adapters, false);
    if (call->kind->begin) wefti_api_adapters_forget_call(call->api, call);
    wefti_api_params_fini(&call->params);
    wefti_api_adapters_let_go(call->limits.adapters);
    weft_gunzip_free(call->unpack);
    weft_buf_fini(&call->body);
    weft_buf_fini(&call->chunk_head);
    free(call);
}

bool weft_api_call_is_late(const weft_api_call *call, uint64_t now_us) {
    if (call->deadline_us == 0) return false;
    bool is_ours = call->state == WEFT_API_CALL_PREPARING || call->parked_tenant;
    uint64_t grace_us = is_ours ? 0 : DEADLINE_GRACE_US;
    return now_us > call->deadline_us + grace_us;
}

void weft_api_call_drop(weft_api_call *call) {
    if (!call) return;
    call->is_abandoned = true;
    if (call->in_thread && call->take_back(call->lent_to)) call->in_thread = false;
    if (call->in_thread) return;
    if (call->state == WEFT_API_CALL_WAITING || call->state == WEFT_API_CALL_RUNNING) {
        count_open_choices(call, WEFT_END_ABORT);
        withdraw(call);
    }
    call_free(call);
}

void weft_api_call_lend(weft_api_call *call, bool (*take_back)(void *context), void *context) {
    WEFT_ASSERT(call->state == WEFT_API_CALL_PREPARING && !call->in_thread);
    call->in_thread = true;
    call->take_back = take_back;
    call->lent_to = context;
}

void weft_api_call_return(weft_api_call *call, uint64_t now_us) {
    WEFT_ASSERT(call->in_thread);
    bool has_owner = !call->is_abandoned;
    call->in_thread = false;
    weft_api_call_start(call, now_us);
    if (has_owner) wake(call); /* the owner looks again */
}

/* `param`: the field of the request; NULL: none. */
static void fail_at(weft_api_call *call, const char *param, int status, uint32_t retry_after_ms,
                    const char *code, const char *message) {
    WEFT_ASSERT(!call->in_thread); /* params and error are that thread's */
    if (call->state == WEFT_API_CALL_FAILED || call->state == WEFT_API_CALL_DONE) return;
    weft_api_error_set(&call->error, status, param, code, "%s", message);
    call->error.retry_after_ms = retry_after_ms;
    count_open_choices(call, WEFT_END_ERROR);
    withdraw(call);
    call->state = WEFT_API_CALL_FAILED;
    wake(call);
}

static void fail(weft_api_call *call, int status, uint32_t retry_after_ms, const char *code,
                 const char *message) {
    fail_at(call, NULL, status, retry_after_ms, code, message);
}

void wefti_api_call_fail(weft_api_call *call, int status, uint32_t retry_after_ms, const char *code,
                         const char *message) {
    fail(call, status, retry_after_ms, code, message);
}

/* --------------------------------------------------------------------------------- starting --- */

static bool init_choice(struct choice *choice, struct job *job, uint32_t idx, uint32_t index,
                        const struct weft_detok *detok) {
    const struct params *p = &job->call->params;
    choice->job = job;
    choice->idx = idx;
    choice->index = index;
    choice->lps.k = p->sampling.n_logprobs > 0 ? (uint32_t)p->sampling.n_logprobs : 0;
    return wefti_api_scan_begin(choice, detok) == WEFT_OK;
}

/* For a token that is held until the end; a call of a tool is held until it is complete: some four bytes for each
 * token. */
static uint64_t token_bytes(const weft_api_call *call) {
    return (call->params.chat.tools ? 2 : 1) * sizeof(uint32_t);
}

static bool fail_for_ever(weft_api_call *call, uint64_t n) {
    char text[256];
    (void)snprintf(text, sizeof text,
                   "the output could take %" PRIu64 " bytes, more than the %" PRIu64
                   " that --request-memory leaves for output; ask for fewer tokens, choices or "
                   "log-probabilities",
                   n, call->api->output_max);
    fail(call, 400, 0, "too_many_bytes", text);
    return false;
}

/* Reserves what is sure to be needed: better refused now than when half is computed. With --request-memory each
 * byte counts, and requests that only wait could take what streams need to go on: so all that may be needed. */
static bool hold_ahead(weft_api_call *call, uint64_t n_choices) {
    const struct params *p = &call->params;
    bool is_reserved = call->api->settings.request_bytes > 0;
    uint64_t logprobs = p->drops_sent_logprobs ? 0 : p->logprob_bytes;
    if (is_reserved)
        logprobs = weft_min_u64(wefti_api_params_logprob_bytes_most(p), call->output.logprob_max);
    uint64_t each = sizeof *call->choices, once = p->n_prompts * sizeof *call->jobs + logprobs;
    if (p->n_stops > 0) {
        once += weft_stop_set_bytes(p->stop_lens, p->n_stops);
        each += (2 + call->kind->n_views) * weft_stop_bytes(p->n_stops); /* scan and views */
    }
    if (p->chat.format) each += 2 * weft_msg_parser_bytes();
    if (is_reserved) each += p->sampling.max_tokens * token_bytes(call);
    once += wefti_api_values_bytes(call);
    uint64_t all = once + n_choices * each;
    if (is_reserved && all > call->api->output_max) return fail_for_ever(call, all);
    if (!hold_output(call, all)) return false;
    call->output.prepaid_bytes = logprobs;
    call->output.is_reserved = is_reserved;
    return true;
}

static bool compile_stops(weft_api_call *call) {
    const struct params *p = &call->params;
    if (p->n_stops == 0) return true;
    return weft_stop_set_new((const char *const *)p->stops, p->stop_lens, p->n_stops,
                             &call->stop_set) == WEFT_OK;
}

static uint64_t seed_of(const weft_api_call *call) {
    if (call->params.has_seed) return call->params.sampling.seed;
    uint64_t seed = weft_rand_seed();
    return call->kind->draws_short_seeds ? (uint32_t)seed : seed;
}

static bool make_jobs(weft_api_call *call) {
    const struct params *p = &call->params;
    uint64_t n_choices = (uint64_t)p->n_prompts * p->n_run;
    if (!hold_ahead(call, n_choices) || !compile_stops(call)) return false;
    call->jobs = calloc(p->n_prompts, sizeof *call->jobs);
    call->choices = calloc(n_choices, sizeof *call->choices);
    if (!call->jobs || !call->choices) return false;
    call->n_jobs = p->n_prompts;
    call->n_choices = (uint32_t)n_choices;
    call->n_shown = p->n_prompts * p->n;
    for (uint32_t i = 0; i < call->n_jobs; i++) {
        struct job *job = &call->jobs[i];
        job->upstream.ops = &job_ops;
        job->call = call;
        job->prompt = &p->prompts[i];
        job->choices = call->choices + (size_t)i * p->n_run;
        job->n_choices = p->n_run;
        job->prompt_lps.k =
            p->sampling.n_prompt_logprobs > 0 ? (uint32_t)p->sampling.n_prompt_logprobs : 0;
        job->seed = seed_of(call);
        struct weft_detok detok = wefti_api_scan_detok(job);
        for (uint32_t k = 0; k < p->n_run; k++) {
            if (!init_choice(&job->choices[k], job, k, i * p->n_run + k, &detok)) return false;
        }
    }
    return true;
}

static void park(weft_api_call *call) {
    bool is_share = false;
    weft_err err = wefti_api_park(call, &is_share);
    if (!err)
        call->state = WEFT_API_CALL_WAITING;
    else if (err != WEFT_E_FULL)
        fail(call, 500, 0, NULL, "out of memory");
    else if (is_share)
        fail(call, 429, WEFT_API_RETRY_MS, "tenant_full",
             "too many requests wait for the server to be back, and your share of the places for "
             "them is full, try again later");
    else
        fail(call, 429, WEFT_API_RETRY_MS, "queue_full",
             "too many requests wait for the server to be back, try again later");
}

/* It may have been taken off the list since the call came. */
static bool begin_adapters(weft_api_call *call) {
    const struct params *p = &call->params;
    if (p->n_adapters == 0) return true;
    if (!wefti_api_adapters_have(call->api, p->adapters, p->n_adapters)) {
        fail(call, 404, 0, "model_not_found", "an adapter of the request is not there any more");
        return false;
    }
    if (!call->uses_adapters) wefti_api_adapters_use(call->api, p->adapters, p->n_adapters, true);
    call->uses_adapters = true;
    return true;
}

static void submit(weft_api_call *call, uint64_t now_us) {
    struct weft_api_state *api = call->api;
    const char *why = weft_api_why_not(api, now_us / 1000);
    if (why && weft_api_is_back_soon(api, now_us / 1000)) {
        park(call);
        return;
    }
    if (!why && call->limits.n_vocab == 0) why = "the model was being loaded";
    if (why) {
        fail(call, 503, WEFT_API_RETRY_MS, "not_serving", why);
        return;
    }
    (void)snprintf(call->fingerprint, sizeof call->fingerprint, "%s",
                   api->upstream.snapshot.model.fingerprint);
    if (!begin_adapters(call)) return;
    if (api->upstream.n_open + call->params.n_prompts > WEFT_API_OPEN_JOBS_MAX) {
        fail(call, 429, WEFT_API_RETRY_MS, "queue_full",
             "too many requests are open, try again later");
        return;
    }
    if (!make_jobs(call)) {
        fail(call, 500, 0, NULL, "out of memory");
        return;
    }
    call->state = WEFT_API_CALL_WAITING;
    for (uint32_t i = 0; i < call->n_jobs; i++) {
        if (weft_api_upstream_submit(api, &call->jobs[i].upstream)) {
            fail(call, 500, 0, NULL, "out of memory");
            return;
        }
        api->n_background_jobs += call->asker.is_background;
    }
}

static void submit_in_turn(weft_api_call *call, uint64_t now_us) {
    if (!wefti_api_must_line_up(call)) {
        submit(call, now_us);
        return;
    }
    wefti_api_line_up(call);
    call->state = WEFT_API_CALL_WAITING;
}

/* Of which a short body may make much. */
static uint64_t kept_beside(const struct weft_api_state *api, const struct params *p) {
    return weft_api_cost(api, p->n_kept_items) + weft_api_cost(api, p->sampling.grammar.n_bytes) +
           weft_api_cost(api, weft_msg_tools_bytes(p->chat.tools) +
                                  weft_msg_tools_bytes(p->chat.callable_tools));
}

/* What a request holds once its body is freed: its ids stay, up to four bytes for each byte of text. A small one
 * still holds nothing. */
static uint64_t settled_bytes(const weft_api_call *call) {
    const struct params *p = &call->params;
    uint64_t bytes = kept_beside(call->api, p);
    if (call->held_bytes == 0 && bytes == 0) return 0;
    if (call->held_bytes > 0) bytes += p->n_answer_fields;
    for (uint32_t i = 0; i < p->n_prompts; i++) {
        const struct prompt *prompt = &p->prompts[i];
        bytes += prompt->n_ids * sizeof *prompt->ids + (prompt->echo ? prompt->text_len : 0);
        bytes += prompt->n_document;
    }
    return bytes;
}

/* Without room the call has an error. One that could never have it is not told to come again: a line of a batch
 * would do so for ever. */
static void settle(weft_api_call *call) {
    struct weft_api_state *api = call->api;
    uint64_t bytes = settled_bytes(call);
    weft_api_release(api, call->held_bytes);
    call->held_bytes = 0;
    if (weft_api_hold(api, bytes))
        call->held_bytes = bytes;
    else if (bytes <= api->held_max)
        weft_api_error_no_room(&call->error);
    else
        weft_api_error_set(&call->error, 413, NULL, "too_many_bytes",
                           "the request's tokens and texts take %" PRIu64
                           " bytes, and all requests together may take %" PRIu64,
                           bytes, api->held_max);
}

/* The client's own "timeout" counts from its arrival, as --request-timeout does. */
static void note_timeout(weft_api_call *call) {
    uint64_t timeout_us = call->params.service.timeout_us;
    if (!timeout_us) return;
    uint64_t until_us = call->arrived_us + timeout_us;
    if (!call->deadline_us || until_us < call->deadline_us) call->deadline_us = until_us;
}

/* Two salts that are one for the client are two here if tenants differ. */
static void keep_tenants_apart(weft_api_call *call) {
    struct weft_digest *salt = &call->params.service.cache_salt;
    const uint64_t both[] = {call->asker.tenant, salt->hi, salt->lo};
    if (call->api->settings.prefix_cache_per_key && call->asker.tenant)
        *salt = weft_digest_of("cache_salt of a tenant", (const char *)both, sizeof both);
}

static void begin(weft_api_call *call) {
    call->state = WEFT_API_CALL_WAITING;
    if (!call->kind->begin(call)) return;
    call->state = call->error.status ? WEFT_API_CALL_FAILED : WEFT_API_CALL_DONE;
    wake(call);
}

void wefti_api_call_finish(weft_api_call *call, const struct weft_api_error *error) {
    WEFT_ASSERT(call->kind->begin && call->state == WEFT_API_CALL_WAITING);
    if (error) call->error = *error;
    call->state = error ? WEFT_API_CALL_FAILED : WEFT_API_CALL_DONE;
    wake(call);
}

const char *wefti_api_call_fingerprint(const weft_api_call *call,
                                       char text[WEFT_API_FINGERPRINT_BYTES]) {
    const struct params *p = &call->params;
    struct {
        char model[sizeof call->fingerprint];
        struct {
            struct weft_digest digest;
            float scale;
            uint32_t zero;
        } adapters[WEFT_SEQ_ADAPTERS_MAX];
    } all;
    if (p->n_adapters == 0) return call->fingerprint;
    memset(&all, 0, sizeof all);
    memcpy(all.model, call->fingerprint, sizeof all.model);
    for (uint32_t i = 0; i < p->n_adapters; i++) {
        for (uint32_t k = 0; k < call->limits.adapters->n; k++) {
            const struct weft_api_adapter_item *item = &call->limits.adapters->items[k];
            if (item->id == p->adapters[i].id) all.adapters[i].digest = item->digest;
        }
        all.adapters[i].scale = p->adapters[i].scale;
    }
    (void)snprintf(text, WEFT_API_FINGERPRINT_BYTES, "fp_%016" PRIx64,
                   weft_digest_u64("fingerprint", (const char *)&all, sizeof all));
    return text;
}

void weft_api_call_start(weft_api_call *call, uint64_t now_us) {
    WEFT_ASSERT(call->state == WEFT_API_CALL_PREPARING && !call->in_thread);
    if (call->is_abandoned) {
        call_free(call);
        return;
    }
    note_timeout(call);
    keep_tenants_apart(call);
    if (call->params.adapter_name) call->model_name = call->params.adapter_name;
    if (!call->error.status) settle(call);
    if (call->error.status) {
        call->state = WEFT_API_CALL_FAILED;
        wake(call);
    } else if (call->kind->asks_session) {
        wefti_api_session_ask(call);
    } else if (call->kind->begin) {
        begin(call);
    } else if (!call->kind->generates || call->params.n_prompts == 0) {
        call->state = WEFT_API_CALL_DONE;
        wake(call);
    } else if (weft_api_call_is_late(call, now_us)) {
        fail(call, 504, 0, "request_timeout", "the request took too long");
    } else {
        submit_in_turn(call, now_us);
    }
}

void weft_api_calls_unpark(struct weft_api_state *api, uint64_t now_us) {
    uint64_t now_ms = now_us / 1000;
    weft_api_call *call;
    if (weft_api_why_not(api, now_ms) && weft_api_is_back_soon(api, now_ms)) return;
    while ((call = TAILQ_FIRST(&api->parked))) {
        wefti_api_unpark(call);
        submit_in_turn(call, now_us);
    }
    while ((call = wefti_api_next_in_line(api)))
        submit(call, now_us);
}

/* ------------------------------------------------------------------ what the scheduler says --- */

static void job_accepted(struct weft_api_upstream_job *upstream) {
    struct job *job = job_of(upstream);
    weft_api_call *call = job->call;
    if (job->accepted) return;
    job->accepted = true;
    if (++call->n_accepted < call->n_jobs || call->state != WEFT_API_CALL_WAITING) return;
    call->state = WEFT_API_CALL_RUNNING;
    call->accepted = true;
    wake(call);
}

/* In HTTP's terms. */
static const struct {
    int status;
    bool is_for_now; /* another try may do better */
    const char *code;
} rejections[WEFT_REJECT_COUNT] = {
    [WEFT_REJECT_NONE] = {500, false, NULL}, /* never sent */
    [WEFT_REJECT_QUEUE_FULL] = {429, true, "queue_full"},
    [WEFT_REJECT_TOO_LONG] = {400, false, "context_length_exceeded"},
    [WEFT_REJECT_INVALID] = {400, false, NULL},
    [WEFT_REJECT_DRAINING] = {503, true, "draining"},
    [WEFT_REJECT_NO_MEMORY] = {503, true, "no_memory"},
    [WEFT_REJECT_OVERLOADED] = {503, true, "overloaded"},
    [WEFT_REJECT_DEADLINE] = {503, true, "deadline"},
    [WEFT_REJECT_TENANT_FULL] = {429, true, "tenant_full"},
};

/* The field that a scheduler means. All that it finds wrong with a beam search is its width, which it
 * alone can compare with its places: the rest was checked here. */
static const char *refused_field(const weft_api_call *call, enum weft_reject reason) {
    const struct params *p = &call->params;
    if (reason != WEFT_REJECT_INVALID || p->sampling.beam_width == 0) return NULL;
    return p->sampling.beam_width == p->n ? "n" : "best_of";
}

static void job_rejected(struct weft_api_upstream_job *upstream, const struct weft_rejection *msg) {
    const struct job *job = job_of(upstream);
    const char *text = msg->text && msg->text[0] ? msg->text : "the request was refused";
    uint32_t retry_ms = msg->retry_after_ms;
    WEFT_ASSERT((unsigned)msg->reason < WEFT_REJECT_COUNT);
    int status = rejections[msg->reason].status;
    const char *code = rejections[msg->reason].code;
    if (msg->reason == WEFT_REJECT_NO_MEMORY && retry_ms == 0)
        fail(job->call, 400, 0, code, text); /* there never will be so much */
    else if (rejections[msg->reason].is_for_now)
        fail(job->call, status, retry_ms ? retry_ms : WEFT_API_RETRY_MS, code, text);
    else
        fail_at(job->call, refused_field(job->call, msg->reason), status, 0, code, text);
}

/* Takes entries of any choice: all are of the same prompt. */
static bool take_prompt_logprobs(struct job *job, const struct weft_event *event) {
    for (uint32_t i = 0; i < event->n_prompt_logprobs; i++) {
        /* The first position has none, so entry e is of position e + 1. */
        uint64_t pos = (uint64_t)event->prompt_pos + i;
        if (pos != (uint64_t)job->prompt_lps.n + 1 || pos >= job->prompt->n_ids) continue;
        if (!push_logprobs(job->call, &job->prompt_lps, (uint32_t)job->prompt->n_ids,
                           &event->prompt_logprobs[i]))
            return false;
    }
    return true;
}

/* False: the call has failed. */
static bool take_values(struct job *job, const struct weft_event *event) {
    switch (wefti_api_take_values(job, event)) {
    case WEFT_OK:
        return true;
    case WEFT_E_NOMEM:
        fail(job->call, 500, 0, NULL, "out of memory");
        return false;
    case WEFT_E_PROTO:
        fail(job->call, 500, 0, "computation_failed",
             "what the model makes of this text is not a number: its weights are damaged, or they "
             "overflow");
        return false;
    default:
        fail(job->call, 500, 0, "computation_failed", "the worker answered with other values");
        return false;
    }
}

static bool grow_tokens(weft_api_call *call, struct choice *choice) {
    uint32_t max = call->params.sampling.max_tokens;
    uint32_t more = choice->cap_tokens ? choice->cap_tokens : 16;
    if (more > max - choice->cap_tokens) more = max - choice->cap_tokens;
    uint64_t n_bytes = call->output.is_reserved ? 0 : more * token_bytes(call);
    if (!hold_output(call, n_bytes)) return false;
    uint32_t *tokens = realloc(choice->tokens, (choice->cap_tokens + more) * sizeof *tokens);
    if (!tokens) {
        wefti_api_output_release(&call->output, n_bytes);
        return false;
    }
    choice->tokens = tokens;
    choice->cap_tokens += more;
    return true;
}

static bool push_token(struct choice *choice, const struct weft_event *event) {
    weft_api_call *call = choice->job->call;
    if (choice->n_tokens == choice->cap_tokens && !grow_tokens(call, choice)) return false;
    if (call->params.logprobs >= 0 &&
        !push_logprobs(call, &choice->lps, call->params.sampling.max_tokens,
                       event->has_logprobs ? &event->logprobs : NULL))
        return false;
    choice->tokens[choice->n_tokens++] = event->token;
    choice->sampler_state = event->sampler_state;
    choice->logprob_sum += event->has_logprobs ? event->logprobs.logprob : NAN;
    return true;
}

static bool is_own_stop_token(const struct params *p, uint32_t token) {
    for (uint32_t i = 0; i < p->n_own_stop_tokens; i++) {
        if (p->stop_tokens[i] == token) return true;
    }
    return false;
}

static enum weft_end end_of(struct choice *choice, const struct weft_event *event) {
    const struct params *p = &choice->job->call->params;
    bool is_stop_token = event->end == WEFT_END_STOP && event->sampled;
    bool is_silent = is_stop_token && !p->include_stop;
    bool is_scanned = choice->scan.stop || choice->scan.parser;
    if (event->sampled && is_scanned && !is_silent) {
        enum weft_end end = wefti_api_scan_push(choice, event->token);
        if (end != WEFT_END_NONE) return end;
    }
    if (is_stop_token)
        return is_own_stop_token(p, event->token) ? WEFT_END_STOP_TOKEN : WEFT_END_STOP;
    if (event->end == WEFT_END_NONE) return WEFT_END_NONE;
    bool is_stop = event->end == WEFT_END_STOP || event->end == WEFT_END_COMPLETE;
    return is_stop ? event->end : WEFT_END_LENGTH;
}

/* The choice has something that the stream has not shown. */
static void note_unrendered(struct choice *choice) {
    weft_api_call *call = choice->job->call;
    if (choice->is_unrendered || !call->params.stream) return;
    choice->is_unrendered = true;
    STAILQ_INSERT_TAIL(&call->unrendered, choice, unrendered);
}

static void end_choice(struct choice *choice, uint64_t now_us) {
    struct job *job = choice->job;
    weft_api_call *call = job->call;
    count_choice(choice, choice->end, now_us);
    wefti_api_scan_fini(&choice->scan);
    if (++job->n_ended < job->n_choices) return;
    close_job(job);
    if (++call->n_jobs_ended < call->n_jobs) return;
    wefti_api_rank_choices(call);
    if (wefti_api_make_scores(call)) {
        fail(call, 500, 0, NULL, "out of memory");
        return;
    }
    call->state = WEFT_API_CALL_DONE;
}

static void note_start(struct job *job, const struct weft_event *event) {
    const weft_api_call *call = job->call;
    struct weft_api_metrics *metrics = &call->api->metrics;
    job->has_started = true;
    uint32_t n_prompt = (uint32_t)job->prompt->n_ids, n_cached = event->n_prompt_cached;
    job->n_cached = n_cached < n_prompt ? n_cached : n_prompt;
    job->queued_us = event->queued_us;
    metrics->n_prompt_tokens += n_prompt;
    metrics->n_cached_tokens += job->n_cached;
    /* Who wants a prompt's log-probabilities wants them computed. */
    const struct weft_model_info *model = &call->api->upstream.snapshot.model;
    bool may_find = !model->is_recurrent || model->n_checkpoints > 0;
    if (call->api->settings.prefix_cache && may_find && call->params.sampling.n_prompt_logprobs < 0)
        metrics->n_looked_up_tokens += n_prompt;
}

static void note_token(struct choice *choice, uint64_t now_us) {
    const weft_api_call *call = choice->job->call;
    struct weft_api_metrics *metrics = &call->api->metrics;
    metrics->n_generation_tokens++;
    if (call->asker.is_background) { /* nobody feels its times */
        if (choice->first_us == 0) choice->first_us = now_us;
    } else if (choice->first_us == 0) {
        choice->first_us = now_us;
        weft_api_metrics_first_token(metrics, now_us - call->arrived_us, now_us / 1000);
    } else {
        weft_api_metrics_next_token(metrics, now_us - choice->last_us, now_us / 1000);
    }
    choice->last_us = now_us;
}

static void job_event(struct weft_api_upstream_job *upstream, const struct weft_event *event,
                      uint64_t now_us) {
    struct job *job = job_of(upstream);
    weft_api_call *call = job->call;
    /* One prompt may be far ahead while another has not been accepted yet. */
    if (event->choice >= job->n_choices || !job->accepted) return;
    struct choice *choice = &job->choices[event->choice];
    if (choice->end != WEFT_END_NONE) return; /* tokens after a stop string */
    if (event->sampled && (event->output_idx != choice->n_tokens ||
                           choice->n_tokens >= call->params.sampling.max_tokens))
        return;
    if (event->end == WEFT_END_DEADLINE) {
        fail(call, 504, 0, "request_timeout", "the request took too long");
        return;
    }
    if (event->end == WEFT_END_ERROR &&
        !wefti_api_adapters_have(call->api, call->params.adapters, call->params.n_adapters)) {
        fail(call, 503, 0, "adapter_lost", "an adapter of the request is not there any more");
        return;
    }
    if (event->end == WEFT_END_ERROR) {
        char text[96];
        (void)snprintf(text, sizeof text, "the server failed %d times to compute this request",
                       WEFT_SEQ_LOSSES_MAX);
        fail(call, 500, 0, "computation_failed", text);
        return;
    }
    if (event->end == WEFT_END_GRAMMAR) {
        fail_for_grammar(call);
        return;
    }
    if (call->kind->pools && event->end && !take_values(job, event)) return;
    if (!take_prompt_logprobs(job, event) || (event->sampled && !push_token(choice, event))) {
        /* No effect if it has failed for want of room already. */
        fail(call, 500, 0, NULL, "out of memory");
        return;
    }
    if (!job->has_started && (event->sampled || event->end)) note_start(job, event);
    if (event->sampled) note_token(choice, now_us);
    choice->end = end_of(choice, event);
    note_unrendered(choice);
    if (choice->end != WEFT_END_NONE) {
        if (event->end == WEFT_END_NONE)
            weft_api_upstream_cancel(call->api, &job->upstream, choice->idx);
        end_choice(choice, now_us);
    }
    if (call->params.stream || call->state == WEFT_API_CALL_DONE) wake(call);
}

static void job_failed(struct weft_api_upstream_job *upstream,
                       enum weft_api_upstream_failure failure) {
    weft_api_call *call = job_of(upstream)->call;
    switch (failure) {
    case WEFT_API_UPSTREAM_LATE:
        fail(call, 504, 0, "request_timeout", "the request took too long");
        return;
    case WEFT_API_UPSTREAM_TOO_LARGE:
        fail(call, 413, 0, NULL, "the request is too large");
        return;
    case WEFT_API_UPSTREAM_MODEL_CHANGED:
        fail(call, 503, WEFT_API_RETRY_MS, "model_changed",
             "the model behind the server was exchanged");
        return;
    case WEFT_API_UPSTREAM_NOBODY:
        fail(call, 503, WEFT_API_RETRY_MS, "not_serving",
             "no scheduler was there to take the request, try again later");
        return;
    case WEFT_API_UPSTREAM_NO_EQUAL:
        fail(call, 503, WEFT_API_RETRY_MS, "scheduler_lost",
             "the scheduler that computed this request was lost, and no other one would go on with "
             "the same tokens");
        return;
    }
}

/* ------------------------------------------------------------- what the scheduler is told --- */

static bool job_is_late(const struct weft_api_upstream_job *upstream, uint64_t now_us) {
    const weft_api_call *call = const_job_of(upstream)->call;
    return call->deadline_us && call->deadline_us <= now_us;
}

static const char *job_fingerprint(const struct weft_api_upstream_job *upstream) {
    return const_job_of(upstream)->call->fingerprint;
}

/* An answer names one fingerprint, and what is there of it was computed by one model. */
static bool job_is_bound(const struct weft_api_upstream_job *upstream) {
    const struct job *job = const_job_of(upstream);
    if (job->call->n_jobs > 1) return job->call->is_placed;
    for (uint32_t i = 0; i < job->n_choices; i++) {
        if (job->choices[i].n_tokens > 0 || job->choices[i].end != WEFT_END_NONE) return true;
    }
    return job->prompt_lps.n > 0;
}

static void job_placed(struct weft_api_upstream_job *upstream, const char *fingerprint) {
    weft_api_call *call = job_of(upstream)->call;
    call->is_placed = true;
    if (strcmp(call->fingerprint, fingerprint) == 0) return;
    weft_buf_clear(&call->chunk_head); /* which names it */
    (void)snprintf(call->fingerprint, sizeof call->fingerprint, "%s", fingerprint);
}

static void describe_job(const struct weft_api_upstream_job *upstream, uint64_t now_us,
                         struct weft_submit_choice *choices, struct weft_submit *out) {
    const struct job *job = const_job_of(upstream);
    const weft_api_call *call = job->call;
    const struct service *service = &call->params.service;
    const struct weft_api_asker *asker = &call->asker;
    for (uint32_t i = 0; i < job->n_choices; i++) {
        const struct choice *choice = &job->choices[i];
        choices[i] = (struct weft_submit_choice){.output = choice->tokens,
                                                 .n_output = choice->n_tokens,
                                                 .sampler_state = choice->sampler_state,
                                                 .finished = choice->end != WEFT_END_NONE};
    }
    *out = (struct weft_submit){
        .prompt = job->prompt->ids,
        .n_prompt = (uint32_t)job->prompt->n_ids,
        .n_choices = job->n_choices,
        .choices = choices,
        /* Positions, of which the first has no entry. */
        .n_prompt_logprobs_done = job->prompt_lps.n ? job->prompt_lps.n + 1 : 0,
        .resume = job->accepted,
        .age_us = now_us - call->arrived_us,
        .sampling = call->params.sampling,
        .pooling = call->params.pooled.pooling,
        .priority = asker->is_background ? WEFT_PRIORITY_BACKGROUND : service->priority,
        .ttft_us = asker->ttft_us ? asker->ttft_us : service->ttft_us,
        .tpot_us = asker->tpot_us ? asker->tpot_us : service->tpot_us,
        .tenant = asker->tenant,
        .flow = asker->flow ? asker->flow : service->flow,
        .weight = asker->weight ? asker->weight : 1,
        .cache_salt = service->cache_salt,
        .no_guesses = service->no_guesses,
        .shifts = call->params.shifts,
        .n_keep = wefti_api_params_n_keep(&call->params, job->prompt, call->api->tok),
        .n_adapters = call->params.n_adapters,
        .adapters = call->params.adapters,
    };
    out->pooling.n_first = job->prompt->n_first;
    if (job == call->jobs) /* of several prompts the first goes on with the conversation */
        out->session_id = (struct weft_str){service->session_id, service->n_session_id};
    if (call->deadline_us) out->deadline_us = call->deadline_us - now_us;
    out->sampling.seed = job->seed;
}

static const char *public_id_of_job(const struct weft_api_upstream_job *upstream,
                                    uint32_t *choice) {
    const struct job *job = const_job_of(upstream);
    if (*choice < job->n_choices) *choice = job->choices[*choice].index;
    return job->call->id;
}

static bool job_uses_adapter(const struct weft_api_upstream_job *upstream, uint64_t id) {
    const struct params *p = &const_job_of(upstream)->call->params;
    for (uint32_t i = 0; i < p->n_adapters; i++) {
        if (p->adapters[i].id == id) return true;
    }
    return false;
}

static const struct weft_api_upstream_job_ops job_ops = {
    .public_id = public_id_of_job,
    .describe = describe_job,
    .is_late = job_is_late,
    .fingerprint = job_fingerprint,
    .is_bound = job_is_bound,
    .placed = job_placed,
    .uses_adapter = job_uses_adapter,
    .accepted = job_accepted,
    .rejected = job_rejected,
    .event = job_event,
    .failed = job_failed,
};

/* ----------------------------------------------------------------------------------- counts --- */

uint64_t weft_api_call_held(const weft_api_call *call) {
    return call->held_bytes + wefti_api_output_cost(&call->output, call->output.held_bytes);
}

uint32_t wefti_api_prompt_tokens(const weft_api_call *call) {
    size_t n = 0;
    for (uint32_t i = 0; i < call->n_jobs; i++)
        n += call->jobs[i].prompt->n_ids;
    return (uint32_t)n;
}

uint64_t wefti_api_output_tokens(const weft_api_call *call) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < call->n_choices; i++)
        n += call->choices[i].n_tokens;
    return n;
}

uint32_t wefti_api_cached_tokens(const weft_api_call *call) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < call->n_jobs; i++)
        n += call->jobs[i].n_cached;
    return (uint32_t)n;
}

uint64_t wefti_api_thought_tokens(const weft_api_call *call) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < call->n_choices; i++) {
        const struct choice *choice = &call->choices[i];
        n += choice->n_thoughts > choice->view.n_thoughts ? choice->n_thoughts
                                                          : choice->view.n_thoughts;
    }
    return n;
}

uint64_t weft_api_call_result_cost(const weft_api_call *call, size_t n) {
    /* A list of tokens may be many times longer than the text sent, and log-probabilities grow when
     * written out. Small requests without output always pass. */
    if (!call->kind->generates && call->held_bytes == 0) return 0;
    return wefti_api_output_cost(&call->output, n);
}

bool weft_api_call_result_fits(const weft_api_call *call, size_t n) {
    uint64_t own = wefti_api_output_cost(&call->output, call->output.held_bytes);
    WEFT_ASSERT(own <= call->api->output_max);
    return weft_api_call_result_cost(call, n) <= call->api->output_max - own;
}

bool weft_api_call_end(weft_api_call *call, const struct weft_api_error *error) {
    if (call->in_thread) return false;
    fail(call, error->status, error->retry_after_ms, error->code, error->message);
    return true;
}

/* The reasons of its choices, each once, in the order of the list. */
static void name_ends(const weft_api_call *call, char *out, size_t out_bytes) {
    size_t len = 0;
    bool has_open = call->n_choices == 0;
    *out = '\0';
    for (uint32_t i = 0; i < call->n_choices; i++)
        has_open = has_open || call->choices[i].end == WEFT_END_NONE;
    if (call->state == WEFT_API_CALL_FAILED || has_open) {
        (void)snprintf(out, out_bytes, "%s",
                       call->state == WEFT_API_CALL_FAILED ? "error" : "abort");
        return;
    }
    for (uint32_t i = 0; i < call->n_choices; i++) {
        const char *reason = weft_end_reason(call->choices[i].end);
        if (strstr(out, reason)) continue;
        int n = snprintf(out + len, out_bytes - len, "%s%s", len ? "," : "", reason);
        if (n > 0) len += (size_t)n;
        WEFT_ASSERT(len < out_bytes);
    }
}

void weft_api_call_tell(const weft_api_call *call, struct weft_api_call_progress *out) {
    WEFT_ASSERT(!call->in_thread);
    memset(out, 0, sizeof *out);
    out->has_begun = call->accepted;
    if (!out->has_begun) return;
    name_ends(call, out->finish, sizeof out->finish);
    out->n_prompt = wefti_api_prompt_tokens(call);
    out->n_cached = wefti_api_cached_tokens(call);
    out->n_output = wefti_api_output_tokens(call);
    for (uint32_t i = 0; i < call->n_jobs; i++) {
        if (call->jobs[i].queued_us > out->queued_us) out->queued_us = call->jobs[i].queued_us;
    }
    for (uint32_t i = 0; i < call->n_choices; i++) {
        uint64_t first_us = call->choices[i].first_us;
        if (!first_us) continue;
        first_us -= call->arrived_us;
        if (!out->first_us || first_us < out->first_us) out->first_us = first_us;
    }
}

const char *weft_api_call_model_name(const weft_api_call *call) {
    return call->kind->generates ? call->model_name : NULL;
}

void *weft_api_call_owner(const weft_api_call *call) {
    return call->owner;
}

const char *weft_api_call_request_id(const weft_api_call *call) {
    return call->request_id;
}

enum weft_api_call_state weft_api_call_state(const weft_api_call *call) {
    return call->state;
}

const struct weft_api_error *weft_api_call_error(const weft_api_call *call) {
    WEFT_ASSERT(call->state == WEFT_API_CALL_FAILED && call->error.status != 0);
    return &call->error;
}

bool weft_api_call_is_stream(const weft_api_call *call) {
    WEFT_ASSERT(!call->in_thread);
    return call->params.stream;
}
