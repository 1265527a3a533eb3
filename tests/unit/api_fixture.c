#include "unit/api_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/msgpack_json.h"

struct paper paper;
struct weft_api_state api;
uint64_t now_us;
uint32_t n_wakes, max_queue = 1000;
struct weft_api_asker asker;
const char *fingerprint = "fp";
uint32_t n_running, from;

/* --------------------------------------------------------------------------- the paper link --- */

static const char *const names[PAPERS_MAX] = {"paper", "parchment", "papyrus"};

static uint32_t scheduler_of(const void *context) {
    uint32_t i = 0;
    while (context != names[i])
        i++;
    return i;
}

static void paper_reset(void *context) {
    (void)context;
    paper.n_resets++;
}

static weft_err paper_send(void *context, const void *bytes, size_t len) {
    struct weft_msg msg;
    struct weft_errmsg why;
    if (!paper.is_up[scheduler_of(context)]) return WEFT_E_CLOSED;
    assert_int_equal(weft_proto_decode(paper.decoder, bytes, len, &msg, &why), WEFT_OK);
    assert_true(paper.n_sent < SENT_MAX);
    struct sent *sent = &paper.sent[paper.n_sent++];
    memset(sent, 0, sizeof *sent);
    sent->type = msg.type;
    sent->scheduler = scheduler_of(context);
    if (msg.type == WEFT_MSG_CANCEL) {
        sent->id = msg.cancel.request_id;
        sent->attempt = msg.cancel.attempt;
        sent->choice = msg.cancel.choice;
    }
    if (msg.type != WEFT_MSG_SUBMIT) return WEFT_OK;
    const struct weft_submit *s = &msg.submit;
    assert_int_equal(weft_sampling_check(&s->sampling, 4096, &why), WEFT_OK);
    sent->id = s->request_id;
    sent->attempt = s->attempt;
    sent->n_prompt = s->n_prompt;
    sent->n_choices = s->n_choices;
    sent->n_lps_done = s->n_prompt_logprobs_done;
    sent->resume = s->resume;
    sent->seed = s->sampling.seed;
    sent->deadline_us = s->deadline_us;
    sent->priority = s->priority;
    sent->ttft_us = s->ttft_us;
    sent->tpot_us = s->tpot_us;
    sent->tenant = s->tenant;
    sent->flow = s->flow;
    sent->weight = s->weight;
    sent->cache_salt = s->cache_salt;
    sent->pooling = s->pooling;
    for (uint32_t i = 0; i < s->n_choices && i < 4; i++) {
        sent->finished[i] = s->choices[i].finished;
        sent->n_output[i] = s->choices[i].n_output;
        for (uint32_t k = 0; k < s->choices[i].n_output && k < 32; k++)
            sent->output[i][k] = s->choices[i].output[k];
    }
    return WEFT_OK;
}

const struct sent *last_sent(void) {
    assert_true(paper.n_sent > 0);
    return &paper.sent[paper.n_sent - 1];
}

/* ----------------------------------------------------------------- the scheduler's messages --- */

void deliver(void) {
    weft_api_calls_unpark(&api, now_us);
    weft_api_upstream_pump(&api, now_us);
}

void put_msg(const struct weft_msg *msg) {
    struct weft_buf bytes;
    weft_buf_init(&bytes, 1 << 20);
    weft_proto_encode(msg, &bytes);
    weft_api_upstream_message(&api, from, bytes.data, bytes.len, now_us);
    weft_buf_fini(&bytes);
    deliver();
}

void put_link(bool is_up) {
    paper.is_up[from] = is_up;
    if (is_up)
        weft_api_upstream_linked(&api, from);
    else
        weft_api_upstream_unlinked(&api, from, now_us);
    deliver();
}

void put_snapshot(bool serving) {
    struct weft_msg msg = {.type = WEFT_MSG_SNAPSHOT};
    msg.snapshot.serving = msg.snapshot.advancing = serving;
    msg.snapshot.has_model = true;
    (void)snprintf(msg.snapshot.model.fingerprint, sizeof msg.snapshot.model.fingerprint, "%s",
                   fingerprint);
    (void)snprintf(msg.snapshot.model.model_name, sizeof msg.snapshot.model.model_name, "m");
    msg.snapshot.model.n_vocab = 4096;
    msg.snapshot.n_blocks = msg.snapshot.n_blocks_free = msg.snapshot.model.n_blocks = 100;
    msg.snapshot.model.max_seqs = msg.snapshot.model.max_batched_tokens = 64;
    msg.snapshot.model.n_threads = 1;
    msg.snapshot.max_queue = max_queue;
    msg.snapshot.n_running = n_running;
    msg.snapshot.model.max_model_len = 1024;
    msg.snapshot.model.block_size = 16;
    put_msg(&msg);
}

void put_accepted(const struct sent *sent) {
    struct weft_msg msg = {.type = WEFT_MSG_ACCEPTED};
    msg.accepted = (struct weft_msg_accepted){sent->id, sent->attempt};
    put_msg(&msg);
}

void put_event(const struct weft_event *event) {
    struct weft_msg msg = {.type = WEFT_MSG_EVENTS};
    msg.events.n = 1;
    msg.events.events = event;
    put_msg(&msg);
}

void put_token(const struct sent *sent, uint32_t choice, uint32_t idx, uint32_t token,
               enum weft_end end) {
    struct weft_event event = {.request_id = sent->id,
                               .attempt = sent->attempt,
                               .choice = choice,
                               .sampled = true,
                               .token = token,
                               .output_idx = idx,
                               .end = end};
    put_event(&event);
}

void put_prompt_lps(const struct sent *sent, uint32_t choice, uint32_t pos, uint32_t n) {
    struct weft_logprobs lps[8];
    static const uint32_t ids[2] = {5, 6};
    static const float values[2] = {-0.5f, -0.25f};
    for (uint32_t i = 0; i < n; i++)
        lps[i] = (struct weft_logprobs){-(float)(pos + i), 3, 2, ids, values};
    struct weft_event event = {.request_id = sent->id,
                               .attempt = sent->attempt,
                               .choice = choice,
                               .prompt_pos = pos,
                               .n_prompt_logprobs = n,
                               .prompt_logprobs = lps};
    put_event(&event);
}

void put_lp_token(const struct sent *sent, uint32_t choice, uint32_t idx, enum weft_end end) {
    static const uint32_t ids[2] = {5, 6};
    static const float values[2] = {-0.5f, -0.25f};
    struct weft_event event = {.request_id = sent->id,
                               .attempt = sent->attempt,
                               .choice = choice,
                               .sampled = true,
                               .token = 40,
                               .output_idx = idx,
                               .end = end,
                               .has_logprobs = true};
    event.logprobs = (struct weft_logprobs){-(float)idx, 3, 2, ids, values};
    put_event(&event);
}

uint32_t encode(const char *text, uint32_t ids[32]) {
    struct weft_errmsg why;
    uint32_t *found;
    size_t n;
    assert_int_equal(weft_tok_encode(api.tok, &(struct weft_tok_input){{text, strlen(text)}, 0, 32},
                                     &found, &n, &why),
                     WEFT_OK);
    memcpy(ids, found, n * sizeof *ids);
    free(found);
    return (uint32_t)n;
}

/* -------------------------------------------------------------------- from a text to a call --- */

static void on_wake(weft_api_call *call) {
    (void)call;
    n_wakes++;
}

weft_api_call *new_call(struct weft_buf *body, const weft_api_kind *kind, const char *request_id) {
    const struct weft_api_call_request request = {
        .kind = kind,
        .body = body,
        .request_id = request_id ? request_id : "over-http",
        .asker = asker,
        .is_rpc = request_id != NULL,
        .free_bytes = api.small_bytes,
        .wake = on_wake,
        .now_us = now_us,
        .now_s = 1,
    };
    return weft_api_call_new(&api, &request);
}

weft_api_call *in_hand(const char *json, const weft_api_kind *kind) {
    struct weft_buf body;
    weft_buf_init(&body, 8 << 20);
    weft_buf_add_str(&body, json);
    assert_true(weft_api_hold(&api, weft_api_cost(&api, body.len)));
    weft_api_call *call = new_call(&body, kind, NULL);
    assert_non_null(call);
    return call;
}

weft_api_call *begin_kind(const weft_api_kind *kind, const char *json) {
    weft_api_call *call = in_hand(json, kind);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    weft_api_upstream_pump(&api, now_us);
    return call;
}

weft_api_call *begin(const char *json) {
    return begin_kind(CALL_COMPLETION, json);
}

weft_api_call *begin_chat(const char *fields) {
    char json[256];
    (void)snprintf(json, sizeof json,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"logprobs\":true,"
                   "\"top_logprobs\":2%s}",
                   fields);
    return begin_kind(CALL_CHAT, json);
}

/* ----------------------------------------------------- from a call to what is in its answer --- */

char *stream_text(weft_api_call *call, bool *done_out) {
    struct weft_buf out, text;
    weft_buf_init(&out, 1 << 20);
    weft_buf_init(&text, 1 << 20);
    while (weft_api_render_stream(call, &out, 64) == WEFT_API_RENDER_MORE) {
    }
    *done_out = strstr(weft_buf_cstr(&out), "data: [DONE]\n\n") != NULL;
    for (char *at = (char *)(uintptr_t)weft_buf_cstr(&out); (at = strstr(at, "data: {")); at++) {
        char *end = strstr(at, "\n\n");
        json_t *json = json_loadb(at + 6, (size_t)(end - at) - 6, 0, NULL);
        assert_non_null(json);
        const json_t *chunk = json_array_get(json_object_get(json, "choices"), 0);
        if (chunk) weft_buf_add_str(&text, json_string_value(json_object_get(chunk, "text")));
        json_decref(json);
    }
    char *copy = strdup(weft_buf_cstr(&text));
    weft_buf_fini(&out);
    weft_buf_fini(&text);
    return copy;
}

bool next_chunk(weft_api_call *call, struct weft_buf *out) {
    size_t begin = out->len;
    if (weft_api_render_stream(call, out, 1) != WEFT_API_RENDER_MORE) {
        out->len = begin;
        return false;
    }
    assert_memory_equal(out->data + begin, "data: ", 6);
    memmove(out->data + begin, out->data + begin + 6, out->len - begin - 6);
    out->len -= 8;
    return true;
}

json_t *body_of(weft_api_call *call, size_t budget) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    wefti_api_render_rewind(call);
    while (weft_api_render_body(call, &out, budget) == WEFT_API_RENDER_MORE) {
    }
    struct weft_errmsg why;
    json_t *json = call->is_rpc ? weft_msgpack_to_json(out.data, out.len, &why)
                                : json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    if (!json) fail_msg("not JSON: %s", weft_buf_cstr(&out));
    weft_buf_fini(&out);
    return json;
}

const json_t *choice_of(const json_t *body, size_t i) {
    return json_array_get(json_object_get(body, "choices"), i);
}

const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* --------------------------------------------------------------- before and after each case --- */

int set_up_several(uint32_t n) {
    struct weft_errmsg why;
    char path[1024];
    static const char *const model_names[] = {"m"};
    struct weft_api_upstream_link links[PAPERS_MAX];
    for (uint32_t i = 0; i < n; i++)
        links[i] = (struct weft_api_upstream_link){paper_send, paper_reset,
                                                   (void *)(uintptr_t)names[i], names[i]};
    memset(&api, 0, sizeof api);
    TAILQ_INIT(&api.parked);
    TAILQ_INIT(&api.background);
    memset(&paper, 0, sizeof paper);
    const char *root = getenv("WEFT_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/models/fable-6m", root ? root : ".");
    api.settings.max_queue = 1000;
    api.held_max = api.output_max = 1 << 20;
    api.small_bytes = WEFT_API_SMALL_BYTES;
    assert_int_equal(weft_tok_open(path, &api.tok, &why), WEFT_OK);
    api.limits.model_name = "m";
    api.limits.model_names = model_names;
    api.limits.n_model_names = 1;
    api.limits.max_logprobs = 20;
    api.limits.json_blanks = WEFT_GRAMMAR_BLANKS_USUAL;
    api.limits.json_digits = WEFT_GRAMMAR_DIGITS_USUAL;
    api.limits.max_prompts = WEFT_API_PROMPTS_MAX;
    api.limits.max_logprob_bytes = 1 << 20;
    api.limits.eos = weft_tok_eos(api.tok, &api.limits.n_eos);
    assert_int_equal(weft_tok_gen_defaults("/nowhere", &api.limits.defaults, &why), WEFT_OK);
    weft_api_metrics_init(&api.metrics);
    assert_int_equal(weft_proto_decoder_new(&paper.decoder), WEFT_OK);
    assert_int_equal(weft_api_upstream_init(&api, links, n, 1, &why), WEFT_OK);
    now_us = 1000000;
    n_wakes = 0;
    for (from = n; from-- > 0;) {
        put_link(true);
        put_snapshot(true);
        if (from == 0) break;
    }
    return 0;
}

int set_up(void **state) {
    (void)state;
    return set_up_several(1);
}

int tear_down(void **state) {
    (void)state;
    assert_int_equal(api.held_bytes, 0);
    assert_int_equal(api.output_bytes, 0);
    for (uint32_t i = 0; i < api.upstream.n_schedulers; i++)
        assert_int_equal(api.upstream.schedulers[i].n_unanswered, 0);
    assert_true(TAILQ_EMPTY(&api.parked) && LIST_EMPTY(&api.parked_tenants));
    assert_int_equal(api.n_parked_prompts, 0);
    assert_true(TAILQ_EMPTY(&api.background) && api.n_background_jobs == 0);
    weft_api_upstream_fini(&api); /* asserts that no job is open */
    weft_api_metrics_fini(&api.metrics);
    weft_proto_decoder_free(paper.decoder);
    weft_tok_free(api.tok);
    return 0;
}
