/* What clients see: streams, bodies in pieces, stop strings, echoes, log-probabilities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/api_fixture.h"

static void expect_stream(weft_api_call *call, const char *want, bool done) {
    bool is_done;
    char *text = stream_text(call, &is_done);
    assert_string_equal(text, want);
    assert_int_equal(is_done, done);
    free(text);
}

static int64_t usage_of(const json_t *body, const char *key) {
    return json_integer_value(json_object_get(json_object_get(body, "usage"), key));
}

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

/* Two tokens of the same bytes, of which one is the byte's own. */
static void find_twins(uint32_t twins[2]) {
    uint32_t n = 0;
    for (uint32_t id = 0; id < weft_tok_vocab_size(api.tok) && n < 2; id++) {
        size_t len;
        const char *bytes = weft_tok_token_bytes(api.tok, id, &len);
        if (len == 1 && bytes[0] == 'a') twins[n++] = id;
    }
    assert_int_equal(n, 2);
}

/* The alternatives of a call whose one token came with these. The caller drops it. */
static json_t *top_of_call(const char *request_id, const struct weft_event *event) {
    struct weft_buf body;
    struct weft_event sent = *event;
    weft_buf_init(&body, 1 << 20);
    weft_buf_add_str(&body, "{\"prompt\":[5],\"logprobs\":2,\"max_tokens\":1}");
    weft_api_call *call = new_call(&body, CALL_COMPLETION, request_id);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    weft_api_upstream_pump(&api, now_us);
    put_accepted(last_sent());
    sent.request_id = last_sent()->id;
    sent.attempt = last_sent()->attempt;
    put_event(&sent);
    json_t *result = body_of(call, 1 << 16), *top;
    top = json_object_get(json_object_get(choice_of(result, 0), "logprobs"), "top_logprobs");
    top = json_incref(json_array_get(top, 0));
    json_decref(result);
    weft_api_call_drop(call);
    return top;
}

static void a_name_of_several_tokens_stands_once_among_the_alternatives(void **state) {
    (void)state;
    struct weft_errmsg why;
    weft_tokenizer *usual = api.tok;
    char path[1024];
    const char *root = getenv("WEFT_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/tests/data/spm/bpe", root ? root : ".");
    assert_int_equal(weft_tok_open(path, &api.tok, &why), WEFT_OK);
    uint32_t twins[2];
    find_twins(twins);
    const uint32_t other = weft_tok_vocab_size(api.tok) - 1;
    static const float values[2] = {-0.5f, -1.0f};
    const struct {
        uint32_t token, top[2];
        float value; /* of the token */
        size_t n;
        float shown; /* for the twins' name */
    } cases[] = {{other, {twins[0], twins[1]}, -2.0f, 2, -0.5f},
                 {other, {twins[1], twins[0]}, -2.0f, 2, -0.5f},
                 {twins[0], {twins[0], twins[1]}, -0.5f, 1, -0.5f},
                 {twins[1], {twins[0], twins[1]}, -1.0f, 1, -1.0f},
                 {twins[1], {other, twins[0]}, -2.0f, 2, -2.0f},
                 {twins[1], {twins[0], other}, -2.0f, 2, -2.0f}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct weft_event event = {.sampled = true,
                                         .token = cases[i].token,
                                         .end = WEFT_END_LENGTH,
                                         .has_logprobs = true,
                                         .logprobs = {cases[i].value, 1, 2, cases[i].top, values}};
        for (uint32_t is_rpc = 0; is_rpc < 2; is_rpc++) {
            json_t *got = top_of_call(is_rpc ? "r" : NULL, &event);
            assert_int_equal(json_object_size(got), cases[i].n);
            assert_true((float)json_number_value(json_object_get(got, "a")) == cases[i].shown);
            json_decref(got);
        }
    }
    weft_tok_free(api.tok);
    api.tok = usual;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_stream_shows_each_token_when_it_comes),
        CASE(usage_on_the_way_counts_tokens_that_add_no_text),
        CASE(a_stop_string_is_never_half_emitted),
        CASE(a_stop_string_may_begin_but_not_end_within_min_tokens),
        CASE(a_stop_string_that_begins_in_an_echoed_prompts_last_byte_stops),
        CASE(stop_tokens_are_counted_but_not_shown),
        CASE(echoed_prompts_carry_each_log_probability_once),
        CASE(a_body_is_the_same_in_pieces_of_any_size),
        CASE(a_msgpack_stream_keeps_its_log_probabilities),
        CASE(a_name_of_several_tokens_stands_once_among_the_alternatives),
        CASE(a_long_echoed_text_comes_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
