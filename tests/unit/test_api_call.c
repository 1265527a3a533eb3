/* Requests from body to last token, over a link made of paper: this file is the scheduler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "codec/msgpack_json.h"
#include "inside/api/call/call_internal.h"
#include "inside/api/kinds/kind.h"

#define CALL_COMPLETION (&wefti_api_kind_completion)
#define CALL_CHAT (&wefti_api_kind_chat)
#define CALL_LLAMA (&wefti_api_kind_llama)
#define CALL_TOKENIZE (&wefti_api_kind_tokenize)
#define CALL_DETOKENIZE (&wefti_api_kind_detokenize)

/* ---------------------------------------------------------------- an allocator that refuses --- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t each);
void *__real_realloc(void *at, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t each);
void *__wrap_realloc(void *at, size_t n);

static uint32_t refuse_at; /* the how many-th request is refused; 0: none */

static bool is_refused(void) {
    return refuse_at > 0 && --refuse_at == 0;
}

void *__wrap_malloc(size_t n) {
    return is_refused() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t each) {
    return is_refused() ? NULL : __real_calloc(n, each);
}

void *__wrap_realloc(void *at, size_t n) {
    return is_refused() ? NULL : __real_realloc(at, n);
}

/* --------------------------------------------------------------------------- the paper link --- */

#define SENT_MAX 1024

struct sent {
    enum weft_proto_type type;
    uint64_t id;
    uint32_t attempt, choice, n_prompt, n_choices, n_output[4], output[4][32], n_lps_done;
    bool finished[4], resume;
    uint64_t seed;
};

static struct {
    bool is_up;
    struct sent sent[SENT_MAX];
    uint32_t n_sent, n_resets;
    weft_proto_decoder *decoder;
} paper;

static void paper_reset(void *context) {
    (void)context;
    paper.n_resets++;
}

static weft_err paper_send(void *context, const void *bytes, size_t len) {
    struct weft_msg msg;
    struct weft_errmsg why;
    (void)context;
    if (!paper.is_up) return WEFT_E_CLOSED;
    assert_int_equal(weft_proto_decode(paper.decoder, bytes, len, &msg, &why), WEFT_OK);
    assert_true(paper.n_sent < SENT_MAX);
    struct sent *sent = &paper.sent[paper.n_sent++];
    memset(sent, 0, sizeof *sent);
    sent->type = msg.type;
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
    for (uint32_t i = 0; i < s->n_choices && i < 4; i++) {
        sent->finished[i] = s->choices[i].finished;
        sent->n_output[i] = s->choices[i].n_output;
        for (uint32_t k = 0; k < s->choices[i].n_output && k < 32; k++)
            sent->output[i][k] = s->choices[i].output[k];
    }
    return WEFT_OK;
}

static const struct sent *last_sent(void) {
    assert_true(paper.n_sent > 0);
    return &paper.sent[paper.n_sent - 1];
}

static uint32_t count_sent(enum weft_proto_type type) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < paper.n_sent; i++)
        n += paper.sent[i].type == type;
    return n;
}

/* ------------------------------------------------------------------------------ the fixture --- */

static struct weft_api_state api;
static uint64_t now_us;
static uint32_t n_wakes;

/* The loop's work once per turn. */
static void deliver(void) {
    weft_api_calls_unpark(&api, now_us);
    weft_api_upstream_pump(&api, now_us);
}

static void put_msg(const struct weft_msg *msg) {
    struct weft_buf bytes;
    weft_buf_init(&bytes, 1 << 20);
    weft_proto_encode(msg, &bytes);
    weft_api_upstream_message(&api, bytes.data, bytes.len, now_us);
    weft_buf_fini(&bytes);
    deliver();
}

static void put_link(bool is_up) {
    paper.is_up = is_up;
    if (is_up)
        weft_api_upstream_linked(&api);
    else
        weft_api_upstream_unlinked(&api);
    deliver();
}

static uint32_t max_queue = 1000;
static const char *fingerprint = "fp";

static void put_snapshot(bool serving) {
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
    msg.snapshot.model.max_model_len = 1024;
    msg.snapshot.model.block_size = 16;
    put_msg(&msg);
}

static void put_accepted(const struct sent *sent) {
    struct weft_msg msg = {.type = WEFT_MSG_ACCEPTED};
    msg.accepted = (struct weft_msg_accepted){sent->id, sent->attempt};
    put_msg(&msg);
}

static void put_event(const struct weft_event *event) {
    struct weft_msg msg = {.type = WEFT_MSG_EVENTS};
    msg.events.n = 1;
    msg.events.events = event;
    put_msg(&msg);
}

static void put_token(const struct sent *sent, uint32_t choice, uint32_t idx, uint32_t token,
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

static int set_up(void **state) {
    struct weft_errmsg why;
    char path[1024];
    const struct weft_api_upstream_link link = {paper_send, paper_reset, NULL};
    (void)state;
    memset(&api, 0, sizeof api);
    TAILQ_INIT(&api.parked);
    memset(&paper, 0, sizeof paper);
    const char *root = getenv("WEFT_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/models/fable-6m", root ? root : ".");
    api.settings.max_queue = 1000;
    api.held_max = api.output_max = 1 << 20;
    assert_int_equal(weft_tok_open(path, &api.tok, &why), WEFT_OK);
    api.limits.model_name = "m";
    api.limits.max_logprobs = 20;
    api.limits.max_prompts = WEFT_API_PROMPTS_MAX;
    api.limits.max_logprob_bytes = 1 << 20;
    api.limits.eos = weft_tok_eos(api.tok, &api.limits.n_eos);
    assert_int_equal(weft_tok_gen_defaults("/nowhere", &api.limits.defaults, &why), WEFT_OK);
    weft_api_metrics_init(&api.metrics);
    assert_int_equal(weft_proto_decoder_new(&paper.decoder), WEFT_OK);
    assert_int_equal(weft_api_upstream_init(&api, &link, 1, &why), WEFT_OK);
    now_us = 1000000;
    n_wakes = 0;
    put_link(true);
    put_snapshot(true);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    assert_int_equal(api.held_bytes, 0);
    assert_int_equal(api.output_bytes, 0);
    assert_int_equal(api.upstream.n_unanswered, 0);
    weft_api_upstream_fini(&api); /* asserts that no job is open */
    weft_api_metrics_fini(&api.metrics);
    weft_proto_decoder_free(paper.decoder);
    weft_tok_free(api.tok);
    return 0;
}

static void on_wake(weft_api_call *call) {
    (void)call;
    n_wakes++;
}

static weft_api_call *new_call(struct weft_buf *body, const weft_api_kind *kind,
                               const char *request_id) {
    const struct weft_api_call_request request = {
        .kind = kind,
        .body = body,
        .request_id = request_id,
        .free_bytes = WEFT_API_SMALL_BYTES,
        .wake = on_wake,
        .now_us = now_us,
        .now_s = 1,
    };
    return weft_api_call_new(&api, &request);
}

static weft_api_call *begin_kind(const weft_api_kind *kind, const char *json) {
    struct weft_buf body;
    weft_buf_init(&body, 1 << 20);
    weft_buf_add_str(&body, json);
    assert_true(weft_api_hold(&api, weft_api_cost(body.len)));
    weft_api_call *call = new_call(&body, kind, NULL);
    assert_non_null(call);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    weft_api_upstream_pump(&api, now_us);
    return call;
}

static weft_api_call *begin(const char *json) {
    return begin_kind(CALL_COMPLETION, json);
}

/* Ids of a text that does not begin a prompt. */
static uint32_t encode(const char *text, uint32_t ids[32]) {
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

/* The texts of a stream's chunks, one after another; *done_out at "[DONE]". */
static char *stream_text(weft_api_call *call, bool *done_out) {
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

static void expect_stream(weft_api_call *call, const char *want, bool done) {
    bool is_done;
    char *text = stream_text(call, &is_done);
    assert_string_equal(text, want);
    assert_int_equal(is_done, done);
    free(text);
}

/* The JSON of a stream's next event. */
static bool next_chunk(weft_api_call *call, struct weft_buf *out) {
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

static json_t *body_of(weft_api_call *call, size_t budget) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    wefti_api_render_rewind(call);
    while (weft_api_render_body(call, &out, budget) == WEFT_API_RENDER_MORE) {
    }
    struct weft_errmsg why;
    json_t *json = call->request_id[0]
                       ? weft_msgpack_to_json(out.data, out.len, &why)
                       : json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    if (!json) fail_msg("not JSON: %s", weft_buf_cstr(&out));
    weft_buf_fini(&out);
    return json;
}

static const json_t *choice_of(const json_t *body, size_t i) {
    return json_array_get(json_object_get(body, "choices"), i);
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static int64_t usage_of(const json_t *body, const char *key) {
    return json_integer_value(json_object_get(json_object_get(body, "usage"), key));
}

/* -------------------------------------------------------------------------------- the tests --- */

static void a_stream_shows_each_token_when_it_comes(void **state) {
    (void)state;
    uint32_t ids[32], n = encode(" upon a time", ids);
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true,\"max_tokens\":30}");
    struct sent submit = *last_sent();
    assert_int_equal(submit.type, WEFT_MSG_SUBMIT);
    assert_false(submit.resume);
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    put_accepted(&submit);
    assert_int_equal(call->state, WEFT_API_CALL_RUNNING);
    expect_stream(call, "", false);
    put_token(&submit, 0, 0, ids[0], WEFT_END_NONE);
    size_t len;
    const char *first = weft_tok_token_bytes(api.tok, ids[0], &len);
    char want[64];
    (void)snprintf(want, sizeof want, "%.*s", (int)len, first);
    expect_stream(call, want, false);
    for (uint32_t i = 1; i < n; i++)
        put_token(&submit, 0, i, ids[i], i + 1 == n ? WEFT_END_LENGTH : WEFT_END_NONE);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    expect_stream(call, &" upon a time"[len], true);
    assert_int_equal(api.metrics.n_generation_tokens, n);
    assert_int_equal(api.metrics.finished[WEFT_END_LENGTH], 1);
    weft_api_call_drop(call);
}

static void usage_on_the_way_counts_tokens_that_add_no_text(void **state) {
    (void)state;
    uint32_t ids[32], n = encode(" a\u4f60\u597d", ids); /* characters of several tokens */
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true,\"max_tokens\":30,"
                                "\"stream_options\":{\"continuous_usage_stats\":true}}");
    struct sent submit = *last_sent();
    struct weft_buf out;
    uint32_t n_chunks = 0;
    weft_buf_init(&out, 1 << 20);
    put_accepted(&submit);
    for (uint32_t i = 0; i < n; i++) {
        put_token(&submit, 0, i, ids[i], i + 1 == n ? WEFT_END_LENGTH : WEFT_END_NONE);
        weft_buf_clear(&out);
        if (!next_chunk(call, &out)) continue;
        json_t *chunk = json_loadb(out.data, out.len, 0, NULL);
        assert_int_equal(usage_of(chunk, "completion_tokens"), i + 1);
        json_decref(chunk);
        n_chunks++;
    }
    assert_true(n_chunks < n);
    weft_buf_fini(&out);
    weft_api_call_drop(call);
}

/* All of a call's answer, stream or not, cut into pieces of about so many bytes. */
static char *rendered(weft_api_call *call, size_t budget) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    while ((call->params.stream
                ? weft_api_render_stream(call, &out, budget)
                : weft_api_render_body(call, &out, budget)) == WEFT_API_RENDER_MORE) {
    }
    char *copy = strdup(weft_buf_cstr(&out));
    weft_buf_fini(&out);
    return copy;
}

/* The tokens of a text, 1 ms apart, the first 10 ms after the request came; each with its own
 * log-probability, and with `end` the last one. */
static void put_text(const char *text, enum weft_end end) {
    static const uint32_t best = 7;
    static const float value = -0.5f;
    uint32_t ids[32], n = encode(text, ids);
    struct sent submit = *last_sent();
    put_accepted(&submit);
    now_us += 9000;
    for (uint32_t i = 0; i < n; i++) {
        struct weft_event event = {.request_id = submit.id,
                                   .attempt = submit.attempt,
                                   .sampled = true,
                                   .token = ids[i],
                                   .output_idx = i,
                                   .end = i + 1 == n ? end : WEFT_END_NONE,
                                   .has_logprobs = true,
                                   .logprobs = {-1.5f, 2, 1, &best, &value}};
        now_us += 1000;
        put_event(&event);
    }
}

static double timing_of(const json_t *body, const char *key) {
    return json_number_value(json_object_get(json_object_get(body, "timings"), key));
}

static void llamas_answer_has_its_fields_however_it_is_cut(void **state) {
    (void)state;
    static const char json[] = "{\"prompt\":\"Once\",\"n_predict\":30,\"seed\":3,\"n_probs\":1,"
                               "\"return_tokens\":true,\"stop\":[\"x\",\"e wa\"],"
                               "\"logit_bias\":[[9,1.5],[4,false],[9,1]]}";
    weft_api_call *call = begin_kind(CALL_LLAMA, json);
    uint32_t ids[32], n = encode(" upon there wa", ids), n_prompt = last_sent()->n_prompt;
    put_text(" upon there was a", WEFT_END_LENGTH);
    char *text = rendered(call, 1 << 16);
    for (size_t budget = 1; budget < 100; budget += 7) {
        wefti_api_render_rewind(call);
        char *again = rendered(call, budget);
        assert_string_equal(again, text);
        free(again);
    }
    json_t *body = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *settings = json_object_get(body, "generation_settings");
    const json_t *probs = json_object_get(body, "completion_probabilities");
    assert_string_equal(text_of(body, "content"), " upon ther");
    assert_string_equal(text_of(body, "stop_type"), "word");
    assert_string_equal(text_of(body, "stopping_word"), "e wa");
    assert_string_equal(text_of(body, "prompt"), "<|begin_of_text|>Once");
    assert_string_equal(text_of(body, "model"), "m");
    assert_true(json_is_true(json_object_get(body, "stop")));
    assert_true(json_is_false(json_object_get(body, "truncated")));
    uint64_t n_used = (uint64_t)json_integer_value(json_object_get(body, "tokens_predicted"));
    assert_true(n_used >= n - 1 && n_used <= n);
    assert_int_equal(json_array_size(json_object_get(body, "tokens")), n_used);
    assert_int_equal(json_array_size(probs), n_used);
    const json_t *prob = json_array_get(probs, 0);
    assert_int_equal(json_integer_value(json_object_get(prob, "id")), ids[0]);
    assert_true(json_number_value(json_object_get(prob, "logprob")) == -1.5);
    prob = json_array_get(json_object_get(prob, "top_logprobs"), 0);
    assert_int_equal(json_integer_value(json_object_get(prob, "id")), 7);
    assert_true(json_number_value(json_object_get(prob, "logprob")) == -0.5);
    assert_int_equal(json_integer_value(json_object_get(body, "tokens_evaluated")), n_prompt);
    assert_int_equal(json_integer_value(json_object_get(settings, "seed")), 3);
    assert_int_equal(json_integer_value(json_object_get(settings, "top_k")), 40);
    assert_int_equal(json_array_size(json_object_get(settings, "stop")), 2);
    const json_t *bias = json_object_get(settings, "logit_bias");
    assert_int_equal(json_array_size(bias), 2);
    assert_true(json_is_false(json_object_get(json_array_get(bias, 0), "bias")));
    assert_true(json_number_value(json_object_get(json_array_get(bias, 1), "bias")) == 2.5);
    assert_true(timing_of(body, "prompt_ms") == 10 && timing_of(body, "predicted_n") == n_used);
    assert_true(timing_of(body, "predicted_ms") == (double)n_used - 1);
    json_decref(body);
    free(text);
    weft_api_call_drop(call);
}

static void llamas_stream_names_all_tokens_and_ends_with_the_facts(void **state) {
    (void)state;
    static const char *const probs[] = {"", ",\"n_probs\":1"};
    static const char text[] = " a\u4f60 king";
    uint32_t ids[32], n = encode(text, ids);
    for (uint32_t how = 0; how < 12; how++) {
        static char *whole;
        char json[128];
        (void)snprintf(json, sizeof json,
                       "{\"prompt\":\"Once\",\"stream\":true,\"n_predict\":%u,\"seed\":3%s}", n,
                       probs[how / 6]);
        weft_api_call *call = begin_kind(CALL_LLAMA, json);
        put_text(text, WEFT_END_LENGTH);
        char *stream = rendered(call, how % 6 ? how % 6 * 13 : 1 << 16);
        weft_api_call_drop(call);
        if (how % 6 > 0) {
            assert_string_equal(stream, whole);
            free(stream);
            if (how % 6 == 5) free(whole);
            continue;
        }
        whole = stream;
        char seen[64] = "";
        uint32_t n_seen = 0, n_probs = 0;
        bool is_over = false;
        for (char *at = stream; *at; at = strstr(at, "\n\n") + 2) {
            assert_memory_equal(at, "data: ", 6);
            assert_false(is_over);
            json_t *event = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
            const json_t *tokens = json_object_get(event, "tokens");
            (void)strncat(seen, text_of(event, "content"), sizeof seen - strlen(seen) - 1);
            for (size_t i = 0; i < json_array_size(tokens); i++)
                assert_int_equal(json_integer_value(json_array_get(tokens, i)), ids[n_seen++]);
            n_probs +=
                (uint32_t)json_array_size(json_object_get(event, "completion_probabilities"));
            assert_int_equal(json_integer_value(json_object_get(event, "tokens_predicted")),
                             n_seen);
            is_over = json_is_true(json_object_get(event, "stop"));
            if (is_over) assert_string_equal(text_of(event, "stop_type"), "limit");
            json_decref(event);
        }
        assert_true(is_over);
        assert_string_equal(seen, text);
        assert_int_equal(n_seen, n);
        assert_int_equal(n_probs, how ? n : 0);
    }
}

static void after_a_break_the_stream_goes_on_where_it_was(void **state) {
    (void)state;
    uint32_t ids[32], n = encode(" upon a time there was", ids);
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true,\"n\":2,\"max_tokens\":30}");
    struct sent first = *last_sent();
    put_accepted(&first);
    put_token(&first, 0, 0, ids[0], WEFT_END_NONE);
    put_token(&first, 0, 1, ids[1], WEFT_END_NONE);
    put_token(&first, 1, 0, ids[0], WEFT_END_LENGTH);
    put_link(false);
    put_token(&first, 0, 2, 7, WEFT_END_NONE); /* a message of the dead session */
    put_link(true);
    struct sent second = *last_sent();
    assert_int_equal(second.id, first.id);
    assert_int_equal(second.attempt, first.attempt + 1);
    assert_true(second.resume);
    assert_int_equal(second.seed, first.seed);
    assert_int_equal(second.n_output[0], 2);
    assert_int_equal(second.output[0][1], ids[1]);
    assert_false(second.finished[0]);
    assert_true(second.finished[1]);
    put_accepted(&second);
    put_token(&first, 0, 2, 8, WEFT_END_NONE);  /* the old attempt */
    put_token(&second, 0, 1, 9, WEFT_END_NONE); /* seen before */
    put_token(&second, 0, 3, 9, WEFT_END_NONE); /* from the future */
    for (uint32_t i = 2; i < n; i++)
        put_token(&second, 0, i, ids[i], i + 1 == n ? WEFT_END_LENGTH : WEFT_END_NONE);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    json_t *body = body_of(call, 1 << 16);
    assert_string_equal(text_of(choice_of(body, 0), "text"), " upon a time there was");
    json_decref(body);
    weft_api_call_drop(call);
}

static void a_request_nobody_answered_is_asked_again_as_new(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once\"}");
    struct sent first = *last_sent();
    put_link(false);
    put_link(true);
    struct sent second = *last_sent();
    assert_int_equal(second.type, WEFT_MSG_SUBMIT);
    assert_false(second.resume);
    assert_int_equal(second.attempt, first.attempt + 1);
    put_accepted(&first);
    assert_int_equal(call->state, WEFT_API_CALL_WAITING); /* not this attempt's answer */
    weft_api_call_drop(call);
    assert_int_equal(last_sent()->type, WEFT_MSG_CANCEL);
}

static void a_stop_string_is_never_half_emitted(void **state) {
    (void)state;
    uint32_t ids[32], n = encode(" upon a time there was a king", ids);
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true,\"max_tokens\":30,"
                                "\"stop\":[\"e th\",\"never\"]}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    char seen[256] = "";
    uint32_t used = 0;
    while (used < n && call->state == WEFT_API_CALL_RUNNING) {
        bool is_done;
        put_token(&submit, 0, used, ids[used], WEFT_END_NONE);
        used++;
        char *text = stream_text(call, &is_done);
        (void)strncat(seen, text, sizeof seen - strlen(seen) - 1);
        free(text);
        assert_true(strncmp(seen, " upon a tim", strlen(seen)) == 0);
    }
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    assert_string_equal(seen, " upon a tim");
    assert_int_equal(last_sent()->type, WEFT_MSG_CANCEL);
    assert_int_equal(last_sent()->choice, 0);
    json_t *body = body_of(call, 1 << 16);
    assert_string_equal(text_of(choice_of(body, 0), "text"), " upon a tim");
    assert_string_equal(text_of(choice_of(body, 0), "finish_reason"), "stop");
    assert_string_equal(text_of(choice_of(body, 0), "stop_reason"), "e th");
    assert_int_equal(usage_of(body, "completion_tokens"), used);
    json_decref(body);
    weft_api_call_drop(call);
}

/* One token for each letter, until the request has had enough; the last one ends it. At no time may
 * a stream contain text that is not in `want`. Returns how many were used. */
static uint32_t spell(weft_api_call *call, const char *letters, const char *want) {
    struct sent submit = *last_sent();
    char seen[256] = "";
    uint32_t n = 0;
    put_accepted(&submit);
    for (; letters[n] && call->state == WEFT_API_CALL_RUNNING; n++) {
        uint32_t ids[32];
        bool is_done;
        assert_int_equal(encode((char[]){letters[n], 0}, ids), 1);
        put_token(&submit, 0, n, ids[0], letters[n + 1] ? WEFT_END_NONE : WEFT_END_LENGTH);
        if (!call->params.stream) continue;
        char *text = stream_text(call, &is_done);
        (void)strncat(seen, text, sizeof seen - strlen(seen) - 1);
        free(text);
        if (strncmp(seen, want, strlen(seen)) != 0) fail_msg("'%s' is not in '%s'", seen, want);
    }
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    if (call->params.stream) assert_string_equal(seen, want);
    return n;
}

static void a_stop_string_may_begin_but_not_end_within_min_tokens(void **state) {
    (void)state;
    static const struct {
        const char *stops, *letters;
        uint32_t min_tokens;
        const char *text, *text_with; /* without the stop string and with it */
        uint32_t n_used;
        const char *reason;
    } rows[] = {
        {"\"cde\"", "abcdefgh", 3, "ab", "abcde", 5, "stop"},
        {"\"cde\"", "abcdefgh", 4, "ab", "abcde", 5, "stop"},
        {"\"cde\"", "abcdefgh", 5, "abcdefgh", "abcdefgh", 8, "length"},
        {"\"cde\"", "abcdecde", 5, "abcde", "abcdecde", 8, "stop"},
        {"\"aba\"", "ababaxx", 3, "ab", "ababa", 5, "stop"},
        {"\"aba\"", "ababaxx", 5, "ababaxx", "ababaxx", 7, "length"},
        {"[\"b\",\"abc\"]", "abcd", 2, "", "abc", 3, "stop"},
        {"[\"b\",\"abc\"]", "abcb", 3, "abc", "abcb", 4, "stop"},
        {"\"cde\"", "abcdxcd", 4, "abcdxcd", "abcdxcd", 7, "length"},
    };
    static const char *const prompts[] = {
        "\"prompt\":\"Once\"", "\"prompt\":\"Once\",\"echo\":true",
        "\"prompt\":[46,1259],\"echo\":true", "\"prompt\":[4091],\"echo\":true"};
    static const char *const echoes[] = {"", "Once", "Once", ""};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint32_t how = 0; how < 16; how++) { /* prompt, then streamed, then with the string */
            char json[256], want[64];
            bool is_kept = how & 8;
            (void)snprintf(json, sizeof json,
                           "{%s,\"stop\":%s,\"min_tokens\":%u,\"max_tokens\":30,\"stream\":%s,"
                           "\"include_stop_str_in_output\":%s}",
                           prompts[how % 4], rows[i].stops, rows[i].min_tokens,
                           how & 4 ? "true" : "false", is_kept ? "true" : "false");
            (void)snprintf(want, sizeof want, "%s%s", echoes[how % 4],
                           is_kept ? rows[i].text_with : rows[i].text);
            weft_api_call *call = begin(json);
            assert_int_equal(spell(call, rows[i].letters, want), rows[i].n_used);
            json_t *body = body_of(call, 1 << 16);
            assert_string_equal(text_of(choice_of(body, 0), "text"), want);
            assert_string_equal(text_of(choice_of(body, 0), "finish_reason"), rows[i].reason);
            assert_int_equal(usage_of(body, "completion_tokens"), rows[i].n_used);
            json_decref(body);
            weft_api_call_drop(call);
        }
    }
}

static uint32_t token_of_byte(char byte) {
    for (uint32_t id = 0; id < weft_tok_vocab_size(api.tok); id++) {
        size_t len;
        const char *bytes = weft_tok_token_bytes(api.tok, id, &len);
        if (len == 1 && *bytes == byte) return id;
    }
    fail_msg("no token of one byte");
    return 0;
}

static void a_stop_string_that_begins_in_an_echoed_prompts_last_byte_stops(void **state) {
    (void)state;
    char json[128];
    (void)snprintf(json, sizeof json,
                   "{\"prompt\":[46,4091,%u,4091],\"echo\":true,\"stop\":\"\xc3\xa9\"}",
                   token_of_byte('\xc3'));
    weft_api_call *call = begin(json);
    struct sent submit = *last_sent();
    put_accepted(&submit);
    put_token(&submit, 0, 0, token_of_byte('\xa9'), WEFT_END_NONE);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    json_t *body = body_of(call, 1 << 16);
    assert_string_equal(text_of(choice_of(body, 0), "text"), "O");
    assert_string_equal(text_of(choice_of(body, 0), "stop_reason"), "\xc3\xa9");
    json_decref(body);
    weft_api_call_drop(call);
}

static void stop_tokens_are_counted_but_not_shown(void **state) {
    (void)state;
    uint32_t ids[32];
    (void)encode(" upon", ids);
    char json[256];
    (void)snprintf(json, sizeof json, "{\"prompt\":\"Once\",\"stop_token_ids\":[%u]}", ids[0]);
    weft_api_call *call = begin(json);
    struct sent submit = *last_sent();
    put_accepted(&submit);
    put_token(&submit, 0, 0, 40, WEFT_END_NONE);
    put_token(&submit, 0, 1, ids[0], WEFT_END_STOP);
    json_t *body = body_of(call, 1 << 16);
    size_t len;
    const char *bytes = weft_tok_token_bytes(api.tok, 40, &len);
    assert_int_equal(strlen(text_of(choice_of(body, 0), "text")), len);
    assert_memory_equal(text_of(choice_of(body, 0), "text"), bytes, len);
    assert_int_equal(json_integer_value(json_object_get(choice_of(body, 0), "stop_reason")),
                     ids[0]);
    assert_int_equal(usage_of(body, "completion_tokens"), 2);
    json_decref(body);
    weft_api_call_drop(call);
}

static void one_prompt_may_finish_before_another_is_accepted(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":[\"a\",\"b\"],\"max_tokens\":1}");
    struct sent first = paper.sent[paper.n_sent - 2], second = *last_sent();
    put_accepted(&first);
    put_token(&first, 0, 0, 40, WEFT_END_LENGTH);
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    put_accepted(&second);
    assert_int_equal(call->state, WEFT_API_CALL_RUNNING);
    put_token(&second, 0, 0, 41, WEFT_END_LENGTH);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    weft_api_call_drop(call);
}

static weft_api_call *begin_list(uint32_t n) {
    struct weft_buf json;
    weft_buf_init(&json, 1 << 16);
    for (uint32_t i = 0; i < n; i++)
        weft_buf_add_str(&json, i ? ",\"a\"" : "{\"prompt\":[\"a\"");
    weft_buf_add_str(&json, "]}");
    weft_api_call *call = begin(weft_buf_cstr(&json));
    weft_buf_fini(&json);
    return call;
}

static void a_list_may_be_as_long_as_what_runs_and_waits(void **state) {
    (void)state;
    static const uint32_t rows[][2] = {{1000000, 2048}, {1984, 2048}, {1000, 1064}, {1, 65}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        max_queue = rows[i][0];
        put_snapshot(true); /* 64 sequences at once */
        assert_int_equal(api.limits.max_prompts, rows[i][1]);
    }
    weft_api_call *call = begin_list(65);
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    weft_api_call_drop(call);
    call = begin_list(66);
    assert_int_equal(call->error.status, 400);
    assert_string_equal(call->error.message,
                        "'prompt' holds 66 prompts, at most 65 are allowed in one request");
    weft_api_call_drop(call);
    max_queue = 1000;
}

static void put_rejected(const struct sent *sent, enum weft_reject reason, uint32_t ms) {
    struct weft_msg msg = {.type = WEFT_MSG_REJECTED};
    msg.rejected = (struct weft_rejection){sent->id, sent->attempt, reason, ms, "no"};
    put_msg(&msg);
}

static void refusals_become_http_errors(void **state) {
    (void)state;
    static const struct {
        enum weft_reject reason;
        uint32_t ms;
        int status;
        uint32_t retry_s;
    } rows[] = {
        {WEFT_REJECT_QUEUE_FULL, 1500, 429, 2}, {WEFT_REJECT_QUEUE_FULL, 0, 429, 1},
        {WEFT_REJECT_TOO_LONG, 0, 400, 0},      {WEFT_REJECT_INVALID, 0, 400, 0},
        {WEFT_REJECT_DRAINING, 0, 503, 1},      {WEFT_REJECT_NO_MEMORY, 0, 400, 0},
        {WEFT_REJECT_NO_MEMORY, 10, 503, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weft_api_call *call = begin("{\"prompt\":[\"a\",\"b\"],\"stream\":true}");
        struct sent second = *last_sent(), first = paper.sent[paper.n_sent - 2];
        put_accepted(&first);
        put_rejected(&second, rows[i].reason, rows[i].ms);
        assert_int_equal(call->state, WEFT_API_CALL_FAILED);
        assert_int_equal(call->error.status, rows[i].status);
        assert_int_equal(call->error.retry_after, rows[i].retry_s);
        assert_int_equal(last_sent()->type, WEFT_MSG_CANCEL); /* of the other prompt */
        weft_api_call_drop(call);
    }
}

static void nothing_is_taken_in_while_nothing_serves(void **state) {
    (void)state;
    put_snapshot(false);
    weft_api_call *call = begin("{\"prompt\":\"Once\"}");
    assert_int_equal(call->error.status, 503);
    assert_int_equal(call->error.retry_after, 1);
    weft_api_call_drop(call);
    put_snapshot(true);
    now_us += 2000000; /* the scheduler went silent */
    call = begin("{\"prompt\":\"Once\"}");
    assert_int_equal(call->error.status, 503);
    weft_api_call_drop(call);
}

static weft_api_call *begin_parked(const char *json) {
    uint32_t n_submits = count_sent(WEFT_MSG_SUBMIT);
    weft_api_call *call = begin(json);
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), n_submits);
    return call;
}

static void expect_refusal(weft_api_call *call, int status, const char *word) {
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    assert_int_equal(call->error.status, status);
    assert_non_null(strstr(call->error.message, word));
    weft_api_call_drop(call);
}

static void while_the_scheduler_is_replaced_requests_wait(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    put_link(false);
    weft_api_call *calls[2] = {begin_parked("{\"prompt\":\"Once\"}"),
                               begin_parked("{\"prompt\":[\"a\",\"b\"]}")};
    now_us += 4000000;
    put_link(true);
    put_snapshot(false); /* the new one has no worker yet */
    assert_int_equal(calls[0]->state, WEFT_API_CALL_WAITING);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 0);
    put_snapshot(true);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 3);
    for (uint32_t i = 0; i < 3; i++) { /* in the order in which they came, and as new ones */
        assert_false(last_sent()[(int)i - 2].resume);
        put_accepted(&last_sent()[(int)i - 2]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(calls[i]->state, WEFT_API_CALL_RUNNING);
        weft_api_call_drop(calls[i]);
    }
}

static void while_the_worker_is_replaced_requests_wait(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    put_snapshot(false);
    weft_api_call *call = begin_parked("{\"prompt\":\"Once\"}");
    put_snapshot(true);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 1);
    weft_api_call_drop(call);
    now_us += 2000000; /* it may be a scheduler that stands still */
    call = begin_parked("{\"prompt\":\"Once\"}");
    put_snapshot(true);
    assert_int_equal(last_sent()->type, WEFT_MSG_SUBMIT);
    weft_api_call_drop(call);
}

static void nobody_waits_for_longer_than_the_grace(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    put_snapshot(false);
    now_us += 3000000;
    weft_api_call *call = begin_parked("{\"prompt\":\"Once\"}");
    put_snapshot(false);
    now_us += 1900000;
    deliver();
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    n_wakes = 0;
    now_us += 100000; /* counted from when it could serve last */
    put_snapshot(false);
    assert_int_equal(n_wakes, 1);
    assert_int_equal(call->error.retry_after, 1);
    expect_refusal(call, 503, "being loaded");
    expect_refusal(begin("{\"prompt\":\"Once\"}"), 503, "being loaded"); /* no more patience */
    put_snapshot(true);
    now_us += 3000000;
    put_link(false);
    now_us += 1900000;
    call = begin_parked("{\"prompt\":\"Once\"}"); /* a new break, a new grace */
    weft_api_call_drop(call);
}

static void a_server_that_starts_or_drains_says_so_at_once(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    put_link(false);
    weft_api_call *call = begin_parked("{\"prompt\":\"Once\"}");
    api.draining = true;
    deliver();
    expect_refusal(call, 503, "shutting down");
    expect_refusal(begin("{\"prompt\":\"Once\"}"), 503, "shutting down");
    api.draining = false;
    api.upstream.served_at_ms = 0; /* it was never ready */
    put_link(true);
    put_snapshot(false);
    expect_refusal(begin("{\"prompt\":\"Once\"}"), 503, "being loaded");
}

static void so_many_wait_as_the_queue_may_hold(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    api.settings.max_queue = 3;
    put_link(false);
    weft_api_call *first = begin_parked("{\"prompt\":[\"a\",\"b\"]}");
    expect_refusal(begin("{\"prompt\":[\"a\",\"b\"]}"), 429, "too many");
    weft_api_call *second = begin_parked("{\"prompt\":\"Once\"}");
    expect_refusal(begin("{\"prompt\":\"Once\"}"), 429, "too many");
    weft_api_call_drop(first); /* its client went */
    weft_api_call *third = begin_parked("{\"prompt\":[\"a\",\"b\"]}");
    put_link(true);
    put_snapshot(true);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 3);
    weft_api_call_drop(second);
    weft_api_call_drop(third);
}

static void a_deadline_may_pass_while_a_request_waits(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    api.settings.request_timeout_ms = 1000;
    put_link(false);
    weft_api_call *call = begin_parked("{\"prompt\":\"Once\"}");
    assert_false(weft_api_call_is_late(call, now_us + 1000000));
    assert_true(weft_api_call_is_late(call, now_us + 1000001)); /* nobody else keeps the time */
    assert_true(weft_api_call_end_late(call));
    assert_int_equal(api.n_parked_prompts, 0);
    expect_refusal(call, 504, "took too long");
}

static void open_requests_are_not_submitted_all_at_once(void **state) {
    (void)state;
    weft_api_call *calls[300];
    for (int i = 0; i < 300; i++)
        calls[i] = begin("{\"prompt\":\"Once\"}");
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), WEFT_API_UNANSWERED_MAX);
    struct sent first = paper.sent[1]; /* [0] is the hello */
    put_accepted(&first);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), WEFT_API_UNANSWERED_MAX + 1);
    paper.n_sent = 0;
    put_link(false);
    put_link(true);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), WEFT_API_UNANSWERED_MAX);
    assert_true(paper.sent[1].resume && paper.sent[1].id == first.id); /* the oldest goes first */
    for (int i = 0; i < 300; i++)
        weft_api_call_drop(calls[i]);
    assert_int_equal(api.metrics.finished[WEFT_END_ABORT], 1); /* the others were never accepted */
}

static void put_prompt_lps(const struct sent *sent, uint32_t choice, uint32_t pos, uint32_t n) {
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

static void echoed_prompts_carry_each_log_probability_once(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":[10,11,12,13],\"echo\":true,\"logprobs\":1,\"n\":2,"
                                "\"max_tokens\":1}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    put_prompt_lps(&submit, 0, 1, 2);
    put_prompt_lps(&submit, 1, 1, 3); /* the other choice is further */
    put_prompt_lps(&submit, 0, 3, 1);
    for (uint32_t i = 0; i < 2; i++) {
        struct weft_event event = {.request_id = submit.id,
                                   .attempt = submit.attempt,
                                   .choice = i,
                                   .sampled = true,
                                   .token = 20,
                                   .end = WEFT_END_LENGTH,
                                   .has_logprobs = true};
        event.logprobs = (struct weft_logprobs){-4.0f, 9, 0, NULL, NULL};
        put_event(&event);
    }
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    json_t *body = body_of(call, 1 << 16);
    const json_t *lps = json_object_get(choice_of(body, 1), "logprobs");
    const json_t *values = json_object_get(lps, "token_logprobs");
    assert_int_equal(json_array_size(values), 5);
    assert_true(json_is_null(json_array_get(values, 0)));
    for (size_t i = 1; i < 5; i++)
        assert_true(json_number_value(json_array_get(values, i)) == -(double)i);
    const json_t *top = json_array_get(json_object_get(lps, "top_logprobs"), 1);
    assert_int_equal(json_object_size(top), 2); /* one was asked for, and the token's own */
    assert_int_equal(json_array_size(json_object_get(lps, "text_offset")), 5);
    json_decref(body);
    weft_api_call_drop(call);
}

static void a_prompts_log_probabilities_are_resumed_behind_the_last(void **state) {
    (void)state;
    weft_api_call *call =
        begin("{\"prompt\":[10,11,12,13],\"prompt_logprobs\":1,\"max_tokens\":1}");
    put_accepted(last_sent());
    for (uint32_t pos = 1; pos < 4; pos++) {
        assert_int_equal(last_sent()->n_lps_done, pos > 1 ? pos : 0); /* all below `pos` */
        put_prompt_lps(last_sent(), 0, pos, 1);
        put_link(false);
        put_link(true);
        assert_true(last_sent()->resume);
    }
    assert_int_equal(last_sent()->n_lps_done, 4); /* the whole prompt */
    put_token(last_sent(), 0, 0, 20, WEFT_END_LENGTH);
    json_t *body = body_of(call, 1 << 16);
    assert_int_equal(json_array_size(json_object_get(choice_of(body, 0), "prompt_logprobs")), 4);
    json_decref(body);
    weft_api_call_drop(call);
}

static void a_body_is_the_same_in_pieces_of_any_size(void **state) {
    (void)state;
    uint32_t ids[32], n = encode(" upon a time there was a king of \xc3\xa9t\xc3\xa9", ids);
    weft_api_call *call =
        begin("{\"prompt\":[\"One day\",\"A fox \xf0\x9f\xa6\x8a\"],\"echo\":true,"
              "\"logprobs\":0,\"n\":2,\"max_tokens\":32}");
    for (uint32_t i = 0; i < 2; i++) {
        struct sent submit = paper.sent[paper.n_sent - 2 + i];
        put_accepted(&submit);
    }
    for (uint32_t job = 0; job < 2; job++) {
        struct sent submit = paper.sent[paper.n_sent - 2 + job];
        put_prompt_lps(&submit, 0, 1, 2);
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t i = 0; i < n; i++)
                put_token(&submit, k, i, ids[i], i + 1 == n ? WEFT_END_LENGTH : WEFT_END_NONE);
        }
    }
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    json_t *whole = body_of(call, 1 << 18);
    assert_string_equal(text_of(choice_of(whole, 2), "text"),
                        "A fox \xf0\x9f\xa6\x8a upon a time there was a king of \xc3\xa9t\xc3\xa9");
    for (size_t budget = 1; budget < 2000; budget = budget * 3 + 1) {
        json_t *pieces = body_of(call, budget);
        assert_true(json_equal(whole, pieces));
        json_decref(pieces);
    }
    json_decref(whole);
    weft_api_call_drop(call);
}

static void a_deadline_ends_a_request_wherever_it_is(void **state) {
    (void)state;
    api.settings.request_timeout_ms = 500;
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    struct weft_event event = {
        .request_id = submit.id, .attempt = submit.attempt, .end = WEFT_END_DEADLINE};
    put_event(&event);
    assert_int_equal(call->error.status, 504);
    weft_api_call_drop(call);
    paper.is_up = false; /* one that could never be sent */
    call = begin("{\"prompt\":\"Once\"}");
    paper.is_up = true;
    now_us += 600000;
    weft_api_upstream_pump(&api, now_us);
    assert_int_equal(call->error.status, 504);
    weft_api_call_drop(call);
}

static weft_api_call *in_hand(const char *json, const weft_api_kind *kind) {
    struct weft_buf body;
    weft_buf_init(&body, 1 << 20);
    weft_buf_add_str(&body, json);
    assert_true(weft_api_hold(&api, weft_api_cost(body.len)));
    weft_api_call *call = new_call(&body, kind, NULL);
    assert_non_null(call);
    return call;
}

/* One of two prompts kills every worker: the whole request ends, and the other prompt with it. */
static void a_request_that_cannot_be_computed_ends_with_an_error(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":[\"Once\",\"Twice\"]}");
    struct sent first = paper.sent[paper.n_sent - 2], second = *last_sent();
    put_accepted(&first);
    put_accepted(&second);
    put_token(&first, 0, 0, 5, WEFT_END_NONE);
    struct weft_event event = {
        .request_id = second.id, .attempt = second.attempt, .end = WEFT_END_ERROR};
    put_event(&event);
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    assert_int_equal(call->error.status, 500);
    assert_non_null(strstr(call->error.message, "failed 12 times to compute"));
    assert_int_equal(api.metrics.finished[WEFT_END_ERROR], 2);
    assert_int_equal(last_sent()->type, WEFT_MSG_CANCEL);
    weft_api_call_drop(call);
    call = begin("{\"prompt\":\"Once\",\"stream\":true}");
    first = *last_sent();
    put_accepted(&first);
    put_token(&first, 0, 0, 5, WEFT_END_NONE);
    event = (struct weft_event){
        .request_id = first.id, .attempt = first.attempt, .end = WEFT_END_ERROR};
    put_event(&event);
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    while (weft_api_render_stream(call, &out, 64) == WEFT_API_RENDER_MORE) {
    }
    assert_non_null(strstr(weft_buf_cstr(&out), "data: {\"error\":{\"message\":\"the server"));
    weft_buf_fini(&out);
    weft_api_call_drop(call);
}

static void a_request_from_before_the_model_was_known_is_asked_to_come_again(void **state) {
    (void)state;
    api.limits.n_vocab = 0;
    weft_api_call *call = in_hand("{\"prompt\":\"Once\"}", CALL_COMPLETION);
    put_snapshot(true); /* meanwhile */
    assert_int_equal(api.limits.n_vocab, 4096);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    assert_int_equal(call->error.status, 503);
    weft_api_call_drop(call);
}

static bool was_taken_back;

static bool take_back_not(void *context) {
    (void)context;
    return false;
}

static bool take_back(void *context) {
    (void)context;
    was_taken_back = true;
    return true;
}

static void a_call_in_a_threads_hands_outlives_its_deadline(void **state) {
    (void)state;
    api.settings.request_timeout_ms = 500;
    weft_api_call *call = in_hand("{\"prompt\":\"Once\"}", CALL_COMPLETION);
    weft_api_call_lend(call, take_back_not, NULL);
    assert_false(weft_api_call_is_late(call, now_us + 400000));
    assert_true(weft_api_call_is_late(call, now_us + 600000));
    weft_api_call_drop(call); /* its client was answered; the thread goes on writing to it */
    weft_api_call_prepare(call);
    weft_api_call_return(call, now_us + 600000); /* frees */
    assert_int_equal(n_wakes, 0);
    call = in_hand("{\"prompt\":\"Once\"}", CALL_COMPLETION);
    weft_api_call_lend(call, take_back, NULL);
    weft_api_call_drop(call); /* no thread had begun: gone at once */
    assert_true(was_taken_back);
    call = in_hand("{\"prompt\":\"Once\"}", CALL_COMPLETION);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us + 600000); /* came back too late */
    assert_int_equal(call->error.status, 504);
    assert_int_equal(api.upstream.n_open, 0);
    weft_api_call_drop(call);
}

static char *answer_of(weft_api_call *call, size_t budget) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    wefti_api_render_rewind(call);
    while (weft_api_render_body(call, &out, budget) == WEFT_API_RENDER_MORE) {
    }
    char *copy = strdup(weft_buf_cstr(&out));
    weft_buf_fini(&out);
    return copy;
}

static void answers_about_tokens_are_the_same_in_pieces_of_any_size(void **state) {
    (void)state;
    static const struct {
        const weft_api_kind *kind;
        const char *json, *want;
    } cases[] = {
        {CALL_TOKENIZE, "{\"prompt\":\"Once upon a time\",\"return_token_strs\":true}",
         "{\"count\":6,\"max_model_len\":1024,\"tokens\":[4091,46,1259,572,258,574],\"token_strs\":"
         "[\"<|begin_of_text|>\",\"O\",\"nce\",\" upon\",\" a\",\" time\"]}"},
        {CALL_TOKENIZE, "{\"prompt\":\"Once\",\"add_special_tokens\":false}",
         "{\"count\":2,\"max_model_len\":1024,\"tokens\":[46,1259],\"token_strs\":null}"},
        {CALL_TOKENIZE, "{\"prompt\":\"\",\"add_special_tokens\":false,\"return_token_strs\":true}",
         "{\"count\":0,\"max_model_len\":1024,\"tokens\":[],\"token_strs\":[]}"},
        {CALL_DETOKENIZE, "{\"tokens\":[4091,46,1259,572,258,574]}",
         "{\"prompt\":\"<|begin_of_text|>Once upon a time\"}"},
        {CALL_DETOKENIZE, "{\"tokens\":[]}", "{\"prompt\":\"\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_api_call *call = in_hand(cases[i].json, cases[i].kind);
        weft_api_call_prepare(call);
        weft_api_call_start(call, now_us);
        assert_int_equal(call->state, WEFT_API_CALL_DONE);
        for (size_t budget = 1; budget < 200; budget++) {
            char *got = answer_of(call, budget);
            assert_string_equal(got, cases[i].want);
            free(got);
        }
        weft_api_call_drop(call);
    }
}

static void large_requests_pay_for_what_is_kept_of_them(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    weft_buf_add_str(&json, "{\"prompt\":\"");
    for (int i = 0; i < 30000; i++)
        weft_buf_add_str(&json, "a 1 ");
    weft_buf_add_str(&json, "\"}");
    weft_api_call *call = in_hand(weft_buf_cstr(&json), CALL_TOKENIZE);
    assert_int_equal(api.held_bytes, json.len);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    assert_int_equal(api.held_bytes, call->params.prompts[0].n_ids * sizeof(uint32_t));
    weft_api_call_drop(call);
    call = in_hand(weft_buf_cstr(&json), CALL_TOKENIZE);
    weft_api_call_prepare(call);
    api.held_max = api.held_bytes + 1000; /* the ids are more than that */
    assert_true(weft_api_hold(&api, 1000));
    weft_api_call_start(call, now_us);
    assert_int_equal(call->error.status, 503);
    assert_true(call->error.retry_after > 0);
    weft_api_call_drop(call);
    weft_api_call *small = in_hand("{\"prompt\":\"Once\"}", CALL_TOKENIZE); /* always has room */
    weft_api_call_prepare(small);
    weft_api_call_start(small, now_us);
    assert_int_equal(small->state, WEFT_API_CALL_DONE);
    weft_api_call_drop(small);
    weft_api_release(&api, 1000);
    weft_buf_fini(&json);
}

/* A token whose log-probability says which it is. */
static void put_lp_token(const struct sent *sent, uint32_t choice, uint32_t idx,
                         enum weft_end end) {
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

#define LP_BYTES (4 * (3 + 2 * 2)) /* of an entry with two alternatives */

/* Renders what there is of a stream; every token's log-probability comes once, in order. */
static void expect_lps(weft_api_call *call, uint32_t *next, uint32_t end) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    while (weft_api_render_stream(call, &out, 64) == WEFT_API_RENDER_MORE) {
    }
    const char *key = "\"token_logprobs\":[";
    for (const char *at = weft_buf_cstr(&out); (at = strstr(at, key)); at++)
        assert_true(strtod(at + strlen(key), NULL) == -(double)(*next)++);
    assert_int_equal(*next, end);
    weft_buf_fini(&out);
}

static void a_stream_that_is_read_holds_little(void **state) {
    (void)state;
    api.limits.max_logprob_bytes = 4096;
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true,\"logprobs\":2,"
                                "\"max_tokens\":900}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    uint32_t n = 0, next = 0;
    for (; n < 300; n++) { /* 8400 bytes, one at a time */
        put_lp_token(&submit, 0, n, WEFT_END_NONE);
        expect_lps(call, &next, n + 1);
        assert_true(call->output.logprob_bytes <= 2 * LP_BYTES);
    }
    for (uint32_t waiting = 100; waiting > 0; waiting /= 3) { /* in bursts */
        for (uint32_t i = 0; i < waiting; i++)
            put_lp_token(&submit, 0, n++, WEFT_END_NONE);
        assert_true(call->output.logprob_bytes >= waiting * LP_BYTES);
        struct weft_buf out;
        weft_buf_init(&out, 1 << 20);
        assert_true(next_chunk(call, &out)); /* the first of them, then the rest */
        assert_non_null(strstr(weft_buf_cstr(&out), "token_logprobs"));
        weft_buf_fini(&out);
        next++;
        expect_lps(call, &next, n);
    }
    put_link(false);
    put_link(true);
    assert_int_equal(last_sent()->n_output[0], n); /* the ids are all there */
    weft_api_call_drop(call);
}

static void memory_of_what_was_shown_is_given_back(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true,\"logprobs\":20,"
                                "\"max_tokens\":900}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    uint64_t before = call->output.held_bytes;
    for (uint32_t i = 0; i < 200; i++)
        put_lp_token(&submit, 0, i, WEFT_END_NONE);
    assert_true(call->output.logprob_bytes >= 200 * 4 * (3 + 2 * 20));
    bool is_done;
    free(stream_text(call, &is_done));
    assert_true(call->output.logprob_bytes <= 4096);
    assert_int_equal(call->output.held_bytes, before + call->output.logprob_bytes +
                                                  call->choices[0].cap_tokens * sizeof(uint32_t));
    weft_api_call_drop(call);
}

static void an_echoed_prompt_is_let_go_when_every_choice_has_shown_it(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    weft_buf_add_str(&json, "{\"stream\":true,\"echo\":true,\"logprobs\":0,\"n\":2,"
                            "\"max_tokens\":3,\"prompt\":[10");
    for (int i = 1; i < 401; i++)
        weft_buf_add_str(&json, ",10");
    weft_buf_add_str(&json, "]}");
    weft_api_call *call = begin(weft_buf_cstr(&json));
    weft_buf_fini(&json);
    struct sent submit = *last_sent();
    put_accepted(&submit);
    const struct logprob_store *store = &call->jobs[0].prompt_lps;
    bool is_done;
    for (uint32_t pos = 1; pos < 401; pos += 8) {
        put_prompt_lps(&submit, 0, pos, 8);
        free(stream_text(call, &is_done));
    }
    assert_int_equal(store->n, 400);
    assert_int_equal(store->first, 0); /* the other choice will want them */
    assert_non_null(wefti_api_lp_entry(store, 0));
    put_token(&submit, 0, 0, 40, WEFT_END_NONE);
    put_token(&submit, 1, 0, 40, WEFT_END_NONE);
    free(stream_text(call, &is_done));
    assert_int_equal(store->n, 400);
    assert_int_equal(store->first, 400);
    assert_null(wefti_api_lp_entry(store, 399));
    assert_true(store->cap * 20 <= 4096);
    weft_api_call_drop(call);
}

/* Its result comes once more as a whole. */
static void a_msgpack_stream_keeps_its_log_probabilities(void **state) {
    (void)state;
    struct weft_buf body;
    weft_buf_init(&body, 1 << 20);
    weft_buf_add_str(&body, "{\"prompt\":\"Once\",\"stream\":true,\"logprobs\":2,"
                            "\"max_tokens\":5}");
    weft_api_call *call = new_call(&body, CALL_COMPLETION, "r");
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    weft_api_upstream_pump(&api, now_us);
    struct sent submit = *last_sent();
    put_accepted(&submit);
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    for (uint32_t i = 0; i < 5; i++) {
        put_lp_token(&submit, 0, i, i == 4 ? WEFT_END_LENGTH : WEFT_END_NONE);
        while (weft_api_render_notification(call, &out)) {
        }
    }
    weft_buf_fini(&out);
    json_t *result = body_of(call, 1 << 16);
    const json_t *values =
        json_object_get(json_object_get(choice_of(result, 0), "logprobs"), "token_logprobs");
    for (size_t i = 0; i < 5; i++)
        assert_true(json_number_value(json_array_get(values, i)) == -(double)i);
    json_decref(result);
    weft_api_call_drop(call);
}

static weft_api_call *begin_chat(const char *fields) {
    char json[256];
    (void)snprintf(json, sizeof json,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"logprobs\":true,"
                   "\"top_logprobs\":2%s}",
                   fields);
    weft_api_call *call = in_hand(json, CALL_CHAT);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    weft_api_upstream_pump(&api, now_us);
    return call;
}

static void log_probabilities_are_bounded_where_they_are_held(void **state) {
    (void)state;
    struct weft_errmsg why;
    static const char template[] = "{% for message in messages %}{{'<|im_start|>' + "
                                   "message['role'] + '\n' + message['content'] + '<|im_end|>' + "
                                   "'\n'}}{% endfor %}{% if add_generation_prompt %}"
                                   "{{ '<|im_start|>assistant\n' }}{% endif %}";
    const struct weft_tmpl_specials specials = {weft_tok_bos_token(api.tok),
                                                weft_tok_eos_token(api.tok)};
    if (weft_tmpl_new(template, strlen(template), &specials, &api.chat, &why))
        fail_msg("%s", why.text);
    api.limits.max_logprob_bytes = 100 * LP_BYTES; /* the context leaves room for many more */
    static const char *const fields[] = {"", ",\"stream\":true"};
    for (size_t i = 0; i < 2; i++) {
        weft_api_call *call = begin_chat(fields[i]);
        struct sent submit = *last_sent();
        assert_int_equal(call->state, WEFT_API_CALL_WAITING);
        assert_true(call->params.sampling.max_tokens > 900);
        put_accepted(&submit);
        uint32_t n = 0;
        while (call->state == WEFT_API_CALL_RUNNING && n < 900)
            put_lp_token(&submit, 0, n++, WEFT_END_NONE);
        assert_int_equal(n, 101); /* doubling to 128 is no reason */
        assert_int_equal(call->error.status, 400);
        assert_non_null(strstr(call->error.message, "2800 bytes of --max-logprob-bytes"));
        assert_int_equal(last_sent()->type, WEFT_MSG_CANCEL);
        if (i == 1) {
            struct weft_buf out;
            weft_buf_init(&out, 1 << 20);
            while (weft_api_render_stream(call, &out, 64) == WEFT_API_RENDER_MORE) {
            }
            assert_non_null(
                strstr(weft_buf_cstr(&out), "data: {\"error\":{\"message\":\"the log-"));
            weft_buf_fini(&out);
        }
        weft_api_call_drop(call);
    }
    weft_api_call *call = begin_chat(",\"max_tokens\":100");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    for (uint32_t n = 0; n < 100; n++)
        put_lp_token(&submit, 0, n, n == 99 ? WEFT_END_LENGTH : WEFT_END_NONE);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    weft_api_call_drop(call);
    call = begin_chat(",\"max_tokens\":101");
    assert_int_equal(call->error.status, 400);
    weft_api_call_drop(call);
    weft_tmpl_free(api.chat);
}

static void what_a_template_raises_is_the_400s_message(void **state) {
    (void)state;
    struct weft_errmsg why;
    static const char template[] = "{% for m in messages %}{% if m.role == 'user' %}"
                                   "{{ raise_exception('Roles must \"alternate\": ' ~ m.role) }}"
                                   "{% endif %}{% endfor %}";
    const struct weft_tmpl_specials specials = {weft_tok_bos_token(api.tok),
                                                weft_tok_eos_token(api.tok)};
    if (weft_tmpl_new(template, strlen(template), &specials, &api.chat, &why))
        fail_msg("%s", why.text);
    weft_api_call *call = begin_chat("");
    assert_int_equal(call->error.status, 400);
    assert_string_equal(call->error.message, "Roles must \"alternate\": user");
    weft_api_call_drop(call);
    weft_tmpl_free(api.chat);
    api.chat = NULL;
}

static void one_greedy_call_fails_and_small_ones_go_on(void **state) {
    (void)state;
    api.output_max = 150000; /* one of them may grow past 90000 */
    weft_api_call *small = begin("{\"prompt\":\"Once\",\"logprobs\":2,\"max_tokens\":900}");
    struct sent small_submit = *last_sent();
    put_accepted(&small_submit);
    weft_api_call *greedy[2];
    struct sent submits[2];
    for (int i = 0; i < 2; i++) {
        greedy[i] =
            begin("{\"prompt\":\"Once\",\"stream\":true,\"logprobs\":20,\"max_tokens\":950}");
        submits[i] = *last_sent();
        put_accepted(&submits[i]);
    }
    uint32_t n = 0;
    for (; greedy[1]->state == WEFT_API_CALL_RUNNING && n < 950; n++) {
        put_lp_token(&submits[0], 0, n, WEFT_END_NONE);
        put_lp_token(&submits[1], 0, n, WEFT_END_NONE);
        assert_true(api.output_bytes <= api.output_max);
    }
    assert_true(n < 950);
    assert_int_equal(greedy[0]->state, WEFT_API_CALL_RUNNING);
    assert_int_equal(greedy[1]->error.status, 503);
    assert_int_equal(greedy[1]->error.retry_after, 1);
    struct weft_buf out;
    weft_buf_init(&out, 4 << 20);
    while (weft_api_render_stream(greedy[1], &out, 64) == WEFT_API_RENDER_MORE) {
    }
    const char *at = strstr(weft_buf_cstr(&out), "data: {\"error\":{\"message\":\"the requests");
    assert_non_null(at);
    assert_non_null(strstr(at, "\"too_many_bytes\""));
    weft_buf_fini(&out);
    for (n = 0; n < 900; n++)
        put_lp_token(&small_submit, 0, n, n == 899 ? WEFT_END_LENGTH : WEFT_END_NONE);
    assert_int_equal(small->state, WEFT_API_CALL_DONE);
    assert_true(small->output.held_bytes <= WEFT_API_SMALL_BYTES);
    weft_api_call_drop(greedy[1]);
    for (n = greedy[0]->choices[0].n_tokens; n < 950; n++) { /* now there is room, if it reads */
        bool is_done;
        free(stream_text(greedy[0], &is_done));
        put_lp_token(&submits[0], 0, n, n == 949 ? WEFT_END_LENGTH : WEFT_END_NONE);
    }
    assert_int_equal(greedy[0]->state, WEFT_API_CALL_DONE);
    weft_api_call_drop(greedy[0]);
    weft_api_call_drop(small);
}

static void a_list_of_many_choices_costs_what_it_takes(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    weft_buf_add_str(&json, "{\"n\":8,\"max_tokens\":1,\"prompt\":[\"a\"");
    for (int i = 1; i < 512; i++)
        weft_buf_add_str(&json, ",\"a\"");
    weft_buf_add_str(&json, "]}");
    api.output_max = 100000;
    weft_api_call *call = begin(weft_buf_cstr(&json));
    assert_int_equal(call->error.status, 503);
    assert_int_equal(api.upstream.n_open, 0);
    weft_api_call_drop(call);
    weft_buf_fini(&json);
}

/* A request that begins with `json` and has as many stop strings as there may be, all as long. */
static void add_long_stops(struct weft_buf *json, const char *begin) {
    weft_buf_printf(json, "%s,\"stop\":[", begin);
    for (int i = 0; i < WEFT_STOP_STRINGS_MAX; i++) {
        weft_buf_add_str(json, i ? ",\"" : "\"");
        for (int k = 0; k < WEFT_STOP_STRING_BYTES_MAX; k++)
            weft_buf_add_char(json, (char)('a' + i));
        weft_buf_add_char(json, '"');
    }
    weft_buf_add_str(json, "]}");
}

static void what_is_sure_to_be_held_is_refused_before_it_is_computed(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    api.output_max = 300000;
    weft_api_call *first = begin("{\"prompt\":\"Once\",\"logprobs\":20,\"max_tokens\":900}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    weft_api_call *second = begin("{\"prompt\":\"Once\",\"logprobs\":20,\"max_tokens\":900}");
    assert_int_equal(second->error.status, 503);
    assert_int_equal(api.upstream.n_open, 1);
    weft_api_call_drop(second);
    for (uint32_t i = 0; i < 900; i++)
        put_lp_token(&submit, 0, i, i == 899 ? WEFT_END_LENGTH : WEFT_END_NONE);
    assert_int_equal(first->state, WEFT_API_CALL_DONE);
    assert_int_equal(first->output.prepaid_bytes, 0);
    weft_api_call_drop(first);
    api.output_max = 80000;
    add_long_stops(&json, "{\"prompt\":\"Once\",\"max_tokens\":1");
    weft_api_call *stops = begin(weft_buf_cstr(&json)); /* 5 bytes for each of the 16 KiB */
    assert_int_equal(stops->error.status, 503);
    weft_api_call_drop(stops);
    assert_int_equal(api.output_bytes, 0);
    weft_buf_fini(&json);
}

static void every_choice_shares_the_compiled_stop_strings(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    add_long_stops(&json, "{\"prompt\":[\"Once\",\"Twice\"],\"n\":128,\"max_tokens\":3");
    weft_api_call *call = begin(weft_buf_cstr(&json));
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    assert_int_equal(call->n_choices, 256);
    uint64_t plain = 2 * sizeof *call->jobs + 256 * sizeof *call->choices;
    /* The strings with their tables, 80 KiB, and 512 matchers of a few words; one more compiled
     * for each of them would be 40 MiB. */
    assert_in_range(call->output.held_bytes - plain, 80 << 10, 120 << 10);
    assert_int_equal(api.output_bytes, call->output.held_bytes);
    weft_api_call_drop(call);
    weft_buf_fini(&json);
}

static void a_long_echoed_text_comes_in_pieces(void **state) {
    (void)state;
    struct weft_buf json, out;
    weft_buf_init(&json, 1 << 20);
    weft_buf_init(&out, 1 << 20);
    weft_buf_add_str(&json, "{\"stream\":true,\"echo\":true,\"max_tokens\":1,\"prompt\":\"x");
    for (int i = 0; i < 10000; i++)
        weft_buf_add_str(&json, "\xf0\x9f\xa6\x8a");
    weft_buf_add_str(&json, "\"}");
    api.limits.max_model_len = 1 << 20;
    weft_api_call *call = begin(weft_buf_cstr(&json));
    struct sent submit = *last_sent();
    put_accepted(&submit);
    put_token(&submit, 0, 0, 40, WEFT_END_LENGTH);
    struct weft_buf text;
    weft_buf_init(&text, 1 << 20);
    uint32_t n = 0;
    for (; next_chunk(call, &out); n++) {
        assert_true(out.len < 20000);
        json_t *chunk = json_loadb(out.data, out.len, 0, NULL);
        assert_non_null(chunk);
        weft_buf_add_str(&text, text_of(choice_of(chunk, 0), "text"));
        json_decref(chunk);
        weft_buf_clear(&out);
    }
    assert_in_range(n, 3, 5);
    assert_true(text.len > 40001 && text.len < 40100);
    assert_memory_equal(text.data, strstr(weft_buf_cstr(&json), "x\xf0"), 40001);
    weft_buf_fini(&text);
    weft_buf_fini(&out);
    weft_buf_fini(&json);
    weft_api_call_drop(call);
}

static void nonsense_from_the_scheduler_starts_the_session_over(void **state) {
    (void)state;
    weft_api_upstream_message(&api, "\xc1\xff", 2, now_us);
    assert_int_equal(paper.n_resets, 1);
}

static void another_model_ends_what_the_first_began(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    (void)snprintf(call->fingerprint, sizeof call->fingerprint, "older");
    (void)snprintf(api.upstream.snapshot.model.fingerprint,
                   sizeof api.upstream.snapshot.model.fingerprint, "older");
    put_snapshot(true);
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    assert_int_equal(call->error.status, 503);
    weft_api_call_drop(call);
}

/* Everything a request does, once; after any refusal the fixture's end finds nothing left over.
 * True when it came through to its end. */
static bool live_through(const weft_api_kind *kind, const char *json) {
    struct weft_buf body, out;
    weft_buf_init(&out, 1 << 20);
    weft_buf_init(&body, 1 << 20);
    weft_buf_add_str(&body, json);
    bool is_done = false;
    uint64_t held = weft_api_cost(body.len);
    assert_true(weft_api_hold(&api, held));
    weft_api_call *call = new_call(&body, kind, NULL);
    if (!call) {
        weft_api_release(&api, held);
        weft_buf_fini(&body);
        return false;
    }
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    for (uint32_t i = 0; i < call->n_jobs && call->state < WEFT_API_CALL_DONE; i++) {
        struct job *job = &call->jobs[i];
        job->accepted = true;
        for (uint32_t k = 0; k < 3 && call->state < WEFT_API_CALL_DONE; k++) {
            static const uint32_t ids[] = {5};
            static const float values[] = {-1};
            struct weft_logprobs lps = {-1, 1, 1, ids, values};
            struct weft_event event = {.sampled = true,
                                       .token = 40 + k,
                                       .output_idx = k,
                                       .end = k == 2 ? WEFT_END_LENGTH : WEFT_END_NONE,
                                       .has_logprobs = true,
                                       .prompt_pos = 1,
                                       .n_prompt_logprobs = 1,
                                       .prompt_logprobs = &lps};
            event.logprobs = lps;
            job->upstream.ops->event(&job->upstream, &event, now_us);
        }
    }
    /* The second prompt's log-probabilities never all come, so its echo waits; the
     * first's does not. */
    while (call->state == WEFT_API_CALL_RUNNING &&
           weft_api_render_stream(call, &out, 256) == WEFT_API_RENDER_MORE) {
    }
    if (call->state == WEFT_API_CALL_DONE) {
        wefti_api_render_rewind(call);
        while (weft_api_render_body(call, &out, 256) == WEFT_API_RENDER_MORE) {
        }
        is_done = !out.failed;
    }
    weft_api_call_drop(call);
    weft_buf_fini(&out);
    weft_buf_fini(&body);
    return is_done;
}

static void expect_refusals_cost_nothing(const weft_api_kind *kind, const char *json) {
    bool is_through = false;
    uint32_t n = 0;
    while (!is_through) {
        refuse_at = ++n;
        is_through = live_through(kind, json);
        if (refuse_at == 0) is_through = false; /* it was hit, but perhaps not where it hurts */
        refuse_at = 0;
        assert_int_equal(api.held_bytes, 0);
        assert_int_equal(api.output_bytes, 0);
        assert_int_equal(api.upstream.n_open, 0);
        assert_true(n < 5000);
    }
    assert_true(n > 20);
    assert_true(live_through(kind, json));
}

static void a_refused_allocation_costs_one_request_and_nothing_else(void **state) {
    (void)state;
    expect_refusals_cost_nothing(CALL_COMPLETION,
                                 "{\"prompt\":[\"Once\",\"Twice\"],\"stream\":true,\"echo\":true,"
                                 "\"logprobs\":1,\"max_tokens\":3,\"stop\":[\"zz\"],"
                                 "\"logit_bias\":{\"5\":1}}");
    expect_refusals_cost_nothing(
        CALL_LLAMA, "{\"prompt\":\"Once\",\"stream\":true,\"n_probs\":1,\"n_predict\":3,"
                    "\"stop\":[\"zz\"],\"logit_bias\":[[5,1],[6,false]]}");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static void put_hello(uint64_t instance) {
    struct weft_msg msg = {.type = WEFT_MSG_SCHED_HELLO};
    msg.sched_hello =
        (struct weft_msg_sched_hello){.version = WEFT_PROTO_VERSION, .instance = instance};
    put_msg(&msg);
}

/* The counts of layer 3, which has one. */
static void put_expert(uint64_t rows) {
    static const uint32_t layers[] = {3};
    struct weft_msg msg = {.type = WEFT_MSG_EXPERTS};
    msg.experts = (struct weft_msg_experts){1, 1, layers, &rows};
    put_msg(&msg);
}

static void
counts_of_experts_go_on_with_another_scheduler_and_end_with_another_model(void **state) {
    (void)state;
    const struct weft_expert_rows *rows = &api.metrics.experts;
    put_hello(1);
    put_expert(10);
    put_expert(12);
    assert_int_equal(rows->sums[0], 12);
    put_link(false);
    put_link(true);
    put_hello(1); /* the same one: nothing is new */
    put_expert(12);
    assert_int_equal(rows->sums[0], 12);
    put_link(false);
    put_link(true);
    put_hello(2); /* which has counted more than the one before already */
    put_expert(20);
    assert_int_equal(rows->sums[0], 32);
    fingerprint = "another";
    put_snapshot(true);
    fingerprint = "fp";
    assert_int_equal(rows->n_layers, 0);
    put_expert(5);
    assert_int_equal(rows->sums[0], 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(while_the_scheduler_is_replaced_requests_wait),
        CASE(while_the_worker_is_replaced_requests_wait),
        CASE(nobody_waits_for_longer_than_the_grace),
        CASE(a_server_that_starts_or_drains_says_so_at_once),
        CASE(so_many_wait_as_the_queue_may_hold),
        CASE(a_deadline_may_pass_while_a_request_waits),
        CASE(a_stream_shows_each_token_when_it_comes),
        CASE(usage_on_the_way_counts_tokens_that_add_no_text),
        CASE(llamas_answer_has_its_fields_however_it_is_cut),
        CASE(llamas_stream_names_all_tokens_and_ends_with_the_facts),
        CASE(after_a_break_the_stream_goes_on_where_it_was),
        CASE(a_request_nobody_answered_is_asked_again_as_new),
        CASE(a_stop_string_is_never_half_emitted),
        CASE(a_stop_string_may_begin_but_not_end_within_min_tokens),
        CASE(a_stop_string_that_begins_in_an_echoed_prompts_last_byte_stops),
        CASE(stop_tokens_are_counted_but_not_shown),
        CASE(one_prompt_may_finish_before_another_is_accepted),
        CASE(a_list_may_be_as_long_as_what_runs_and_waits),
        CASE(refusals_become_http_errors),
        CASE(nothing_is_taken_in_while_nothing_serves),
        CASE(open_requests_are_not_submitted_all_at_once),
        CASE(echoed_prompts_carry_each_log_probability_once),
        CASE(a_prompts_log_probabilities_are_resumed_behind_the_last),
        CASE(a_body_is_the_same_in_pieces_of_any_size),
        CASE(a_deadline_ends_a_request_wherever_it_is),
        CASE(a_request_that_cannot_be_computed_ends_with_an_error),
        CASE(a_request_from_before_the_model_was_known_is_asked_to_come_again),
        CASE(a_call_in_a_threads_hands_outlives_its_deadline),
        CASE(answers_about_tokens_are_the_same_in_pieces_of_any_size),
        CASE(large_requests_pay_for_what_is_kept_of_them),
        CASE(a_stream_that_is_read_holds_little),
        CASE(memory_of_what_was_shown_is_given_back),
        CASE(an_echoed_prompt_is_let_go_when_every_choice_has_shown_it),
        CASE(a_msgpack_stream_keeps_its_log_probabilities),
        CASE(log_probabilities_are_bounded_where_they_are_held),
        CASE(what_a_template_raises_is_the_400s_message),
        CASE(one_greedy_call_fails_and_small_ones_go_on),
        CASE(a_list_of_many_choices_costs_what_it_takes),
        CASE(what_is_sure_to_be_held_is_refused_before_it_is_computed),
        CASE(every_choice_shares_the_compiled_stop_strings),
        CASE(a_long_echoed_text_comes_in_pieces),
        CASE(nonsense_from_the_scheduler_starts_the_session_over),
        CASE(another_model_ends_what_the_first_began),
        CASE(a_refused_allocation_costs_one_request_and_nothing_else),
        CASE(counts_of_experts_go_on_with_another_scheduler_and_end_with_another_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
