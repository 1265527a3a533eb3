/* /v1/responses: what goes in becomes messages, what comes out is items, and a stream tells the same as a body. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside/api/store/store.h"
#include "unit/api_fixture.h"

#define CALL_RESPONSES (&wefti_api_kind_responses)

/* Tells what it is given: "<user>text|" for each message, with thoughts, calls and results. */
static const char source[] =
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }})"
    "{% endif %}{{ m.content }}{% for c in m.tool_calls %}[{{ c.id }} {{ c.function.name }} "
    "{{ c.function.arguments | tojson }}]{% endfor %}{% if m.tool_call_id %}={{ m.tool_call_id }}"
    "{% endif %}|{% endfor %}{% if tools %}{% for t in tools %}+{{ t.function.name }}{% endfor "
    "%}{% endif %}"
    "{% if reasoning_effort %}%{{ reasoning_effort }}{% endif %}";

static int set_up_chat(void **state) {
    struct weft_errmsg why = {""};
    (void)set_up(state);
    if (weft_api_set_template(&api, strdup(source), "hermes", &why)) fail_msg("%s", why.text);
    return 0;
}

static int tear_down_chat(void **state) {
    wefti_api_store_free(api.store);
    weft_tmpl_free(api.chat);
    free(api.chat_source);
    return tear_down(state);
}
#define CHAT(name) cmocka_unit_test_setup_teardown(name, set_up_chat, tear_down_chat)

/* The tokens of a text, a letter each; a stop is a token more. */
static void put_letters(const char *text, enum weft_end end) {
    static const uint32_t best = 7;
    static const float value = -0.5f;
    struct sent submit = *last_sent();
    uint32_t n = (uint32_t)strlen(text) + (end == WEFT_END_STOP);
    put_accepted(&submit);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t ids[32];
        assert_int_equal(encode((char[]){text[i] ? text[i] : 'z', 0}, ids), 1);
        now_us += 1000;
        put_event(&(struct weft_event){.request_id = submit.id,
                                       .attempt = submit.attempt,
                                       .sampled = true,
                                       .token = ids[0],
                                       .output_idx = i,
                                       .end = i + 1 < n ? WEFT_END_NONE : end,
                                       .has_logprobs = true,
                                       .logprobs = {-(float)i - 0.5f, 2, 1, &best, &value}});
    }
}

static char *streamed(weft_api_call *call, size_t budget) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    while (weft_api_render_stream(call, &out, budget) == WEFT_API_RENDER_MORE) {
    }
    assert_false(out.failed);
    char *copy = strdup(weft_buf_cstr(&out));
    weft_buf_fini(&out);
    return copy;
}

/* Ids of calls are "call_ID". */
static char *without_ids(char *text) {
    for (char *at = text; (at = strstr(at, "call_")); at++) {
        size_t n = strspn(at + 5, "0123456789abcdef");
        if (n != 24) continue;
        memcpy(at + 5, "ID", 2);
        memmove(at + 7, at + 5 + n, strlen(at + 5 + n) + 1);
    }
    return text;
}

/* The prompt that a request becomes. */
static void expect_prompt(const char *fields, const char *want) {
    char json[2048];
    (void)snprintf(json, sizeof json, "{%s}", fields);
    weft_api_call *call = in_hand(json, CALL_RESPONSES);
    weft_api_call_prepare(call);
    if (call->error.status) fail_msg("%s: %s", fields, call->error.message);
    const struct prompt *prompt = &call->params.prompts[0];
    struct weft_buf out;
    struct weft_detok detok;
    weft_buf_init(&out, 1 << 16);
    weft_detok_init(&detok, api.tok, true);
    for (size_t i = 0; i < prompt->n_ids; i++)
        weft_detok_push(&detok, prompt->ids[i], &out);
    weft_detok_finish(&detok, &out);
    assert_string_equal(without_ids((char *)(uintptr_t)weft_buf_cstr(&out)), want);
    weft_buf_fini(&out);
    weft_api_call_start(call, now_us);
    weft_api_call_drop(call);
}

static void expect_error(const char *fields, int status, const char *param, const char *text) {
    char json[2048];
    (void)snprintf(json, sizeof json, "{%s}", fields);
    weft_api_call *call = begin_kind(CALL_RESPONSES, json);
    if (call->error.status != status) fail_msg("%s: %d", fields, call->error.status);
    assert_string_equal(call->error.param, param);
    if (!strstr(call->error.message, text)) fail_msg("%s: %s", fields, call->error.message);
    weft_api_call_drop(call);
}

/* ------------------------------------------------------------------------------------ input --- */

static void items_become_messages(void **state) {
    (void)state;
    expect_prompt("\"input\":\"Hi\"", "<user>Hi|");
    expect_prompt("\"input\":\"Hi\",\"instructions\":\"Be kind\"", "<system>Be kind|<user>Hi|");
    expect_prompt("\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
                  "\"a\"},{\"type\":\"input_text\",\"text\":\"b\"}]}]",
                  "<user>a\nb|");
    expect_prompt("\"input\":[{\"type\":\"message\",\"role\":\"developer\",\"content\":\"b\"},"
                  "{\"role\":\"user\",\"content\":\"c\"}],\"instructions\":\"a\"",
                  "<system>a\n\nb|<user>c|");
    expect_prompt("\"input\":[{\"role\":\"user\",\"content\":\"a\"},"
                  "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"type\":\"summary_text\","
                  "\"text\":\"short\"}],\"content\":[{\"type\":\"reasoning_text\",\"text\":"
                  "\"long\"}],\"encrypted_content\":\"x\"},"
                  "{\"type\":\"message\",\"role\":\"assistant\",\"id\":\"msg_1\",\"status\":"
                  "\"completed\",\"content\":[{\"type\":\"output_text\",\"text\":\"b\"}]},"
                  "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":"
                  "\"{\\\"x\\\":1}\"},"
                  "{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"g\",\"arguments\":"
                  "\"{}\"},"
                  "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"one\"},"
                  "{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":"
                  "\"input_text\",\"text\":\"two\"}]},"
                  "{\"type\":\"reasoning\",\"summary\":[{\"text\":\"s\"}],\"content\":null}]",
                  "<user>a|<assistant>(long)b[c1 f {\"x\": 1}][c2 g {}]|<tool>one=c1|"
                  "<tool>two=c2|<assistant>(s)|");
}

static void any_number_of_system_messages_is_one(void **state) {
    (void)state;
    const uint32_t n = 100000;
    struct weft_buf json;
    weft_buf_init(&json, 8 << 20);
    weft_buf_add_str(&json, "{\"truncation\":\"auto\",\"input\":[");
    for (uint32_t i = 0; i < n; i++)
        weft_buf_add_str(&json, "{\"role\":\"system\",\"content\":\"\"},");
    weft_buf_add_str(&json, "{\"role\":\"user\",\"content\":\"a\"}]}");
    api.held_max = 8 << 20;
    weft_api_call *call = in_hand(weft_buf_cstr(&json), CALL_RESPONSES);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    weft_api_call_drop(call);
    weft_buf_fini(&json);
}

static void items_of_other_tools_are_calls_and_results_or_nothing(void **state) {
    (void)state;
    expect_prompt(
        "\"input\":[{\"role\":\"user\",\"content\":\"a\"},"
        "{\"type\":\"web_search_call\",\"id\":\"ws_1\",\"status\":\"completed\"},"
        "{\"type\":\"item_reference\",\"id\":\"x\"},{\"type\":\"compaction\"},"
        "{\"type\":\"local_shell_call\",\"call_id\":\"c1\",\"action\":{\"type\":\"exec\"}},"
        "{\"type\":\"local_shell_call_output\",\"id\":\"c1\",\"output\":\"ok\"},"
        "{\"type\":\"custom_tool_call\",\"call_id\":\"c2\",\"name\":\"p\",\"input\":\"i\"},"
        "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c2\",\"output\":{\"a\":1}},"
        "{\"type\":\"mcp_call\",\"id\":\"m\",\"name\":\"n\",\"output\":\"o\"}]",
        "<user>a|<assistant>[c1 local_shell {\"type\": \"exec\"}]|<tool>ok=c1|"
        "<assistant>[c2 p {\"input\": \"i\"}]|<tool>{\"a\":1}=c2|");
}

static void tools_that_are_no_functions_are_passed_over(void **state) {
    (void)state;
    static const char tools[] = "\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"},{\"type\":"
                                "\"function\",\"name\":\"f\",\"parameters\":null,\"strict\":null},"
                                "{\"type\":\"custom\",\"name\":\"p\"}]";
    static const char *const choices[] = {
        "\"auto\"",
        "\"required\"",
        "{\"type\":\"function\",\"name\":\"f\"}",
        "{\"type\":\"web_search\"}",
        "{\"type\":\"custom\",\"name\":\"p\"}",
        "{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{\"type\":\"web_search\"},"
        "{\"type\":\"function\",\"name\":\"f\"}]}",
        "null",
    };
    char fields[1024];
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        (void)snprintf(fields, sizeof fields, "%s,\"tool_choice\":%s", tools, choices[i]);
        expect_prompt(fields, "<user>a|+f");
    }
    expect_prompt("\"input\":\"a\",\"tools\":[{\"type\":\"mcp\"}],\"tool_choice\":\"required\"",
                  "<user>a|");
    expect_prompt("\"input\":\"a\",\"tools\":[{\"type\":\"mcp\"}],\"tool_choice\":{\"type\":"
                  "\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"type\":\"mcp\"}]}",
                  "<user>a|");
    expect_prompt("\"input\":\"a\",\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"}",
                  "<user>a|%low");
}

static void what_cannot_be_honoured_is_refused(void **state) {
    (void)state;
    expect_error("\"model\":\"m\"", 400, "input", "must provide");
    expect_error("\"input\":3", 400, "input", "must be");
    expect_error("\"input\":[]", 400, "input", "at least one");
    expect_error("\"input\":[3]", 400, "input[0]", "must be an object");
    expect_error("\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":"
                 "[{\"type\":\"input_image\",\"image_url\":\"x\"}]}]",
                 400, "input[1].content", "reads text only");
    expect_error("\"input\":[{\"type\":\"function_call\",\"name\":\"f\"}]", 400, "input[0].call_id",
                 "must be a string");
    expect_error("\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":"
                 "[{\"type\":\"input_image\"}]}]",
                 400, "input[0].content", "reads text only");
    expect_error("\"input\":[{\"role\":\"nobody\",\"content\":\"a\"}]", 400, "input[0].role",
                 "one");
    expect_error("\"input\":\"a\",\"background\":true", 400, "background", "not supported");
    expect_error("\"input\":\"a\",\"prompt\":{\"id\":\"x\"}", 400, "prompt", "not supported");
    expect_error("\"input\":\"a\",\"instructions\":[]", 400, "instructions", "a string");
    expect_error("\"input\":\"a\",\"metadata\":[]", 400, "metadata", "an object");
    expect_error("\"input\":\"a\",\"truncation\":\"some\"", 400, "truncation", "must be");
    expect_error("\"input\":\"a\",\"include\":\"x\"", 400, "include", "an array");
    expect_error("\"input\":\"a\",\"text\":{\"format\":{\"type\":\"xml\"}}", 400, "text",
                 "must be");
    expect_error("\"input\":\"a\",\"tool_choice\":\"required\"", 400, "tool_choice", "no 'tools'");
    expect_error("\"input\":\"a\",\"reasoning\":{\"effort\":\"huge\"}", 400, "reasoning.effort",
                 "must be");
    expect_error("\"input\":\"a\",\"previous_response_id\":\"resp_1\"", 400, "previous_response_id",
                 "--responses-store");
    expect_error("\"input\":\"a\",\"max_output_tokens\":0", 400, "max_output_tokens", "");
}

/* A body of `before`, so often `one` with commas between, and `after`. */
static weft_api_call *begin_long(const char *before, const char *one, size_t n, const char *after) {
    struct weft_buf body;
    weft_buf_init(&body, 64 << 20);
    weft_buf_add_str(&body, before);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) weft_buf_add_char(&body, ',');
        weft_buf_add_str(&body, one);
    }
    weft_buf_add_str(&body, after);
    api.held_max = 1 << 30;
    weft_api_call *call = begin_kind(CALL_RESPONSES, weft_buf_cstr(&body));
    weft_buf_fini(&body);
    return call;
}

static void expect_long_error(weft_api_call *call, const char *param, const char *text) {
    assert_int_equal(call->error.status, 400);
    assert_string_equal(call->error.param, param);
    if (!strstr(call->error.message, text)) fail_msg("%s", call->error.message);
    weft_api_call_drop(call);
}

/* In a time that grows as they do: each used to move all that follow it. */
static void long_conversations_take_no_longer_than_they_are(void **state) {
    (void)state;
    expect_long_error(
        begin_long("{\"input\":[", "{\"role\":\"system\",\"content\":\"ab\"}", 200000, "]}"),
        "input", "maximum context length");
}

static void texts_that_are_read_as_json_are_bounded_as_json_is(void **state) {
    (void)state;
    static const char before[] =
        "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":"
        "\"{\\\"a\\\":[";
    expect_long_error(begin_long(before, "1", 1 << 20, "]}\"}]}"), "input",
                      "more than 1048576 values");
    weft_api_call *call = begin_long(before, "1", 10, "]}\"}]}");
    assert_int_equal(call->error.status, 0);
    weft_api_call_drop(call);
}

static void no_more_tools_are_allowed_than_there_may_be(void **state) {
    (void)state;
    expect_long_error(
        begin_long("{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}],"
                   "\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[",
                   "{\"type\":\"function\",\"name\":\"f\"}", 1025, "]}}"),
        "tool_choice", "at most 1024");
}

/* They are looked at until the last call of them has come. */
static void tools_pay_for_what_is_kept_of_them(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    weft_buf_add_str(&json, "{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\","
                            "\"parameters\":{\"enum\":[0");
    for (int i = 0; i < 10000; i++)
        weft_buf_add_str(&json, ",0");
    weft_buf_add_str(&json, "]}}]}");
    weft_api_call *call = in_hand(weft_buf_cstr(&json), CALL_RESPONSES);
    assert_int_equal(api.held_bytes, 0); /* it is short, and what it says is not */
    weft_api_call_prepare(call);
    assert_int_equal(call->error.status, 0);
    weft_api_call_start(call, now_us);
    assert_true(api.held_bytes > 10000 * sizeof(json_t));
    weft_api_call_drop(call);
    assert_int_equal(api.held_bytes, 0);
    weft_buf_fini(&json);
}

/* ----------------------------------------------------------------------------------- output --- */

#define TOOLS ",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}]"
static const char thinking[] =
    "<think>why not</think>Hi there\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
    "[1, \"two\"]}}\n</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";

static weft_api_call *respond(const char *fields, const char *output, enum weft_end end) {
    char json[1024];
    put_snapshot(true);
    (void)snprintf(json, sizeof json, "{\"input\":\"a\",\"seed\":3%s}", fields);
    weft_api_call *call = begin_kind(CALL_RESPONSES, json);
    if (call->error.status) fail_msg("%s", call->error.message);
    (void)snprintf(call->id, sizeof call->id, "resp_1");
    put_letters(output, end);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    return call;
}

static const json_t *item_of(const json_t *response, size_t i, const char *type) {
    const json_t *item = json_array_get(json_object_get(response, "output"), i);
    assert_string_equal(text_of(item, "type"), type);
    return item;
}

static const json_t *part_of(const json_t *item) {
    return json_array_get(json_object_get(item, "content"), 0);
}

static void a_body_has_its_items_however_it_is_cut(void **state) {
    (void)state;
    weft_api_call *call = respond(TOOLS ",\"metadata\":{\"k\":\"v\"}", thinking, WEFT_END_STOP);
    json_t *body = body_of(call, 1 << 16);
    for (size_t budget = 1; budget < 200; budget += 3) {
        json_t *again = body_of(call, budget);
        assert_true(json_equal(body, again));
        json_decref(again);
    }
    assert_string_equal(text_of(body, "status"), "completed");
    assert_string_equal(text_of(body, "object"), "response");
    assert_string_equal(text_of(json_object_get(body, "metadata"), "k"), "v");
    assert_true(json_is_false(json_object_get(body, "store")));
    assert_int_equal(json_array_size(json_object_get(body, "output")), 4);
    assert_string_equal(text_of(part_of(item_of(body, 0, "reasoning")), "text"), "why not");
    assert_string_equal(text_of(part_of(item_of(body, 1, "message")), "text"), "Hi there");
    const json_t *call_item = item_of(body, 2, "function_call");
    assert_string_equal(text_of(call_item, "name"), "f");
    assert_string_equal(text_of(call_item, "arguments"), "{\"a\": [1, \"two\"]}");
    assert_string_equal(text_of(item_of(body, 3, "function_call"), "arguments"), "{}");
    const json_t *details =
        json_object_get(json_object_get(body, "usage"), "output_tokens_details");
    assert_int_equal(json_integer_value(json_object_get(details, "reasoning_tokens")), 14);
    json_decref(body);
    weft_api_call_drop(call);
}

/* Puts a stream's deltas together, and checks that what is told again is the same. */
static void follow(const char *stream, const char *const *types, const json_t *body) {
    char text[512] = "";
    int64_t n = 0;
    const json_t *want = json_object_get(body, "output");
    for (const char *at = stream; (at = strstr(at, "event: ")); n++) {
        const char *data = strstr(at, "\ndata: ") + 7, *end = strstr(data, "\n\n");
        json_t *event = json_loadb(data, (size_t)(end - data), JSON_REJECT_DUPLICATES, NULL);
        const char *type = text_of(event, "type"), *delta = text_of(event, "delta");
        assert_int_equal(strncmp(at + 7, type, strlen(type)), 0);
        assert_int_equal(json_integer_value(json_object_get(event, "sequence_number")), n);
        const json_t *item = json_object_get(event, "item");
        const json_t *one = json_array_get(
            want, (size_t)json_integer_value(json_object_get(event, "output_index")));
        if (delta) strcat(text, delta);
        if (!delta && strcmp(type, *types) != 0) fail_msg("%s, not %s", type, *types);
        if (strstr(type, "text.done")) assert_string_equal(text_of(event, "text"), text);
        if (strstr(type, "arguments.done")) assert_string_equal(text_of(event, "arguments"), text);
        if (strstr(type, "part.done"))
            assert_string_equal(text_of(json_object_get(event, "part"), "text"), text);
        if (strstr(type, "item.done")) assert_true(json_equal(item, one));
        if (strstr(type, "item.done")) text[0] = '\0';
        if (strstr(type, "completed"))
            assert_true(json_equal(json_object_get(event, "response"), body));
        types += !delta;
        at = end;
        json_decref(event);
    }
    assert_null(*types);
}

static void a_stream_tells_what_the_body_has_however_it_is_cut(void **state) {
    (void)state;
    static const char *const types[] = {
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
        NULL,
    };
    weft_api_call *call = respond(TOOLS, thinking, WEFT_END_STOP);
    json_t *body = body_of(call, 1 << 16);
    weft_api_call_drop(call);
    char *first = NULL;
    for (size_t budget = 1; budget < 3000; budget += budget < 300 ? 7 : 400) {
        call = respond(TOOLS ",\"stream\":true", thinking, WEFT_END_STOP);
        char *text = streamed(call, budget);
        if (first) assert_string_equal(text, first);
        if (!first) follow(text, types, body);
        free(first);
        first = text;
        weft_api_call_drop(call);
    }
    free(first);
    json_decref(body);
}

static void a_stream_tells_each_token_when_it_comes(void **state) {
    (void)state;
    weft_api_call *call =
        begin_kind(CALL_RESPONSES, "{\"input\":\"a\",\"stream\":true,\"max_output_tokens\":9}");
    struct sent submit = *last_sent();
    uint32_t ids[32];
    put_accepted(&submit);
    char *text = streamed(call, 100);
    assert_non_null(strstr(text, "event: response.in_progress\n"));
    free(text);
    assert_int_equal(encode("x", ids), 1);
    put_token(&submit, 0, 0, ids[0], WEFT_END_NONE);
    text = streamed(call, 100);
    assert_non_null(strstr(text, "\"delta\":\"x\""));
    assert_null(strstr(text, "done"));
    assert_true(weft_api_call_is_between_events(call));
    free(text);
    put_token(&submit, 0, 1, ids[0], WEFT_END_DEADLINE);
    text = streamed(call, 100);
    assert_non_null(strstr(text, "event: response.failed\n"));
    assert_non_null(strstr(text, "\"error\":{\"code\":\"request_timeout\",\"message\":"));
    free(text);
    weft_api_call_drop(call);
}

static void what_is_cut_off_is_incomplete(void **state) {
    (void)state;
    weft_api_call *call = respond("", "Hi", WEFT_END_LENGTH);
    json_t *body = body_of(call, 10);
    assert_string_equal(text_of(body, "status"), "incomplete");
    assert_string_equal(text_of(json_object_get(body, "incomplete_details"), "reason"),
                        "max_output_tokens");
    assert_string_equal(text_of(item_of(body, 0, "message"), "status"), "incomplete");
    json_decref(body);
    weft_api_call_drop(call);
    call = respond(",\"stream\":true", "Hi", WEFT_END_LENGTH);
    char *text = streamed(call, 50);
    assert_non_null(strstr(text, "event: response.incomplete\n"));
    free(text);
    weft_api_call_drop(call);
}

static void an_answer_of_nothing_is_an_empty_message(void **state) {
    (void)state;
    static const char silent[] = "<think></think>";
    for (uint32_t streams = 0; streams < 2; streams++) {
        weft_api_call *call = respond(streams ? ",\"stream\":true" : "", silent, WEFT_END_STOP);
        if (streams) {
            char *text = streamed(call, 1 << 16);
            assert_non_null(strstr(text, "event: response.output_text.done\n"));
            free(text);
        } else {
            json_t *body = body_of(call, 1);
            assert_string_equal(text_of(part_of(item_of(body, 0, "message")), "text"), "");
            json_decref(body);
        }
        weft_api_call_drop(call);
    }
}

static void log_probabilities_are_those_of_the_message(void **state) {
    (void)state;
    static const char fields[] =
        ",\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":1";
    static const char output[] = "<think>no</think>Hi you";
    weft_api_call *call = respond(fields, output, WEFT_END_LENGTH);
    json_t *body = body_of(call, 5);
    const json_t *list = json_object_get(part_of(item_of(body, 1, "message")), "logprobs");
    size_t n = json_array_size(list);
    assert_true(n >= 6 && n < sizeof output);
    const json_t *last = json_array_get(list, n - 1);
    assert_string_equal(text_of(last, "token"), "u");
    assert_int_equal(json_array_size(json_object_get(last, "top_logprobs")), 1);
    weft_api_call_drop(call);
    call = respond(",\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":1,"
                   "\"stream\":true",
                   output, WEFT_END_LENGTH);
    char *text = streamed(call, 50);
    size_t n_told = 0;
    for (const char *at = text; (at = strstr(at, "\"top_logprobs\":[")); at++)
        n_told++;
    assert_int_equal(n_told, n);
    free(text);
    json_decref(body);
    weft_api_call_drop(call);
}

/* -------------------------------------------------------------------------------- the store --- */

static void a_kept_conversation_goes_on(void **state) {
    (void)state;
    api.store = wefti_api_store_new(1 << 20, 1000);
    asker.tenant = 7;
    weft_api_call *call = respond(TOOLS ",\"instructions\":\"no more\"", thinking, WEFT_END_STOP);
    json_t *body = body_of(call, 9);
    assert_true(json_is_true(json_object_get(body, "store")));
    struct weft_buf kept;
    weft_buf_init(&kept, 1 << 20);
    assert_true(wefti_api_store_get(api.store, 7, (struct weft_str){"resp_1", 6}, KEPT_RESPONSE,
                                    now_us / 1000, &kept));
    json_t *again = json_loadb(kept.data, kept.len, 0, NULL);
    assert_true(json_equal(body, again));
    json_decref(again);
    json_decref(body);
    weft_buf_fini(&kept);
    weft_api_call_drop(call);
    expect_prompt("\"input\":\"b\",\"previous_response_id\":\"resp_1\"",
                  "<user>a|<assistant>(why not)Hi there[call_ID f {\"a\": [1, \"two\"]}]"
                  "[call_ID f {}]|<user>b|");
    asker.tenant = 8;
    expect_error("\"input\":\"b\",\"previous_response_id\":\"resp_1\"", 404, "previous_response_id",
                 "no response 'resp_1'");
    expect_error("\"input\":\"b\",\"previous_response_id\":\"resp_2\"", 404, "previous_response_id",
                 "no response 'resp_2'");
    asker.tenant = 7;
    now_us += 1000 * 1000;
    put_snapshot(true);
    expect_error("\"input\":\"b\",\"previous_response_id\":\"resp_1\"", 404, "previous_response_id",
                 "no response 'resp_1'");
    asker = (struct weft_api_asker){0};
}

/* Its text is put together without reading the request's part of it once more. */
static void what_a_request_said_does_not_mix_with_what_came_out(void **state) {
    (void)state;
    api.store = wefti_api_store_new(1 << 20, 1000);
    weft_api_call *call =
        respond(",\"metadata\":{\"output\":\"[{}]}\",\"a\":\"]\"},\"instructions\":null", "Hi",
                WEFT_END_STOP);
    json_decref(body_of(call, 9));
    weft_api_call_drop(call);
    expect_prompt("\"input\":\"b\",\"previous_response_id\":\"resp_1\"",
                  "<user>a|<assistant>Hi|<user>b|");
}

static void a_stream_is_kept_by_its_end(void **state) {
    (void)state;
    api.store = wefti_api_store_new(1 << 20, 1000);
    weft_api_call *call = respond(",\"stream\":true", "Hi", WEFT_END_STOP);
    free(streamed(call, 20));
    assert_int_equal(wefti_api_store_figures(api.store).n, 1);
    weft_api_call_drop(call);
    call = respond(",\"store\":false", "Hi", WEFT_END_STOP);
    json_decref(body_of(call, 20));
    assert_int_equal(wefti_api_store_figures(api.store).n, 1);
    weft_api_call_drop(call);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CHAT(items_become_messages),
        CHAT(any_number_of_system_messages_is_one),
        CHAT(items_of_other_tools_are_calls_and_results_or_nothing),
        CHAT(tools_that_are_no_functions_are_passed_over),
        CHAT(what_cannot_be_honoured_is_refused),
        CHAT(long_conversations_take_no_longer_than_they_are),
        CHAT(texts_that_are_read_as_json_are_bounded_as_json_is),
        CHAT(no_more_tools_are_allowed_than_there_may_be),
        CHAT(tools_pay_for_what_is_kept_of_them),
        CHAT(a_body_has_its_items_however_it_is_cut),
        CHAT(a_stream_tells_what_the_body_has_however_it_is_cut),
        CHAT(a_stream_tells_each_token_when_it_comes),
        CHAT(what_is_cut_off_is_incomplete),
        CHAT(an_answer_of_nothing_is_an_empty_message),
        CHAT(log_probabilities_are_those_of_the_message),
        CHAT(a_kept_conversation_goes_on),
        CHAT(what_a_request_said_does_not_mix_with_what_came_out),
        CHAT(a_stream_is_kept_by_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
