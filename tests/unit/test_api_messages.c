/* Anthropic's Messages API: what its conversations become, and its answers, whole and in events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/api_fixture.h"

#define CALL_MESSAGES (&wefti_api_kind_messages)
#define CALL_COUNT (&wefti_api_kind_count_tokens)
#define IDS_MAX 512

/* Hermes' marks, and all that a message has. */
static const char template[] =
    "{% for m in messages %}[{{ m.role }}{% if m.tool_call_id %} {{ m.tool_call_id }} {{ m.name "
    "}}{% endif %}: "
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>{\"name\": {{ c.function.name }}, \"arguments\": "
    "{{ c.function.arguments | tojson }}}</tool_call>{% endfor %}]{% endfor %}"
    "{% if tools %}{% for t in tools %}({{ t.function.name }}){% endfor %}{% endif %}"
    "{% if enable_thinking is defined %}{{ 'T' if enable_thinking else 'F' }}{% endif %}"
    "{% if add_generation_prompt %}[assistant: {% endif %}";

static void set_template(void) {
    struct weft_errmsg why;
    if (weft_api_set_template(&api, strdup(template), "auto", &why)) fail_msg("%s", why.text);
}

static void drop_template(void) {
    weft_tmpl_free(api.chat);
    free(api.chat_source);
    api.chat = NULL;
    api.chat_source = NULL;
}

/* --------------------------------------------------------------------------- conversations --- */

#define TOOL                                                                                       \
    "{\"name\":\"get\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\","               \
    "\"properties\":"                                                                              \
    "{\"a\":{\"type\":\"string\"}}},\"cache_control\":{\"type\":\"ephemeral\"}}"

/* `fields` are those after max_tokens. */
static weft_api_call *prepared(const weft_api_kind *kind, const char *fields) {
    char json[4096];
    (void)snprintf(json, sizeof json, "{\"max_tokens\":200,%s}", fields);
    weft_api_call *call = in_hand(json, kind);
    weft_api_call_prepare(call);
    if (!call->error.status && weft_api_call_has_grammar(call)) weft_api_call_check(call);
    return call;
}

static void expect_prompt(const char *fields, const char *want) {
    weft_api_call *call = prepared(CALL_MESSAGES, fields);
    struct weft_buf text;
    weft_buf_init(&text, 1 << 16);
    if (call->error.status) fail_msg("%s: %s", fields, call->error.message);
    const struct prompt *prompt = &call->params.prompts[0];
    for (size_t i = 0; i < prompt->n_ids; i++) {
        size_t len;
        const char *bytes = weft_tok_token_bytes(api.tok, prompt->ids[i], &len);
        weft_buf_add(&text, bytes, len);
    }
    assert_string_equal(weft_buf_cstr(&text), want);
    weft_buf_fini(&text);
    weft_api_call_start(call, now_us);
    weft_api_call_drop(call);
}

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define CALLED                                                                                     \
    "{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":[{\"type\":"       \
    "\"thinking\","                                                                                \
    "\"thinking\":\"hm\",\"signature\":\"s\"},{\"type\":\"redacted_thinking\",\"data\":\"x\"},"    \
    "{\"type\":\"text\",\"text\":\"Well\"},{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":"    \
    "\"get\","                                                                                     \
    "\"input\":{\"a\":1}}]}"

static void blocks_become_messages(void **state) {
    (void)state;
    static const struct {
        const char *fields, *want;
    } cases[] = {
        {HI, "[user: Hi][assistant: "},
        {HI ",\"system\":\"Be brief.\"", "[system: Be brief.][user: Hi][assistant: "},
        {HI ",\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=1\"},"
            "{\"type\":\"text\",\"text\":\"A\",\"cache_control\":{}},{\"type\":\"text\",\"text\":"
            "\"B\"}]",
         "[system: A\nB][user: Hi][assistant: "},
        {HI ",\"system\":[]", "[user: Hi][assistant: "},
        {"\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"ctx\",\"content\":[{"
         "\"type\":\"text\","
         "\"text\":\"b\"}]},{\"role\":\"msg\",\"content\":\"c\"}]",
         "[user: a\nb\nc][assistant: "},
        {"\"messages\":[" CALLED
         ",{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"more\"},"
         "{\"type\":\"tool_result\",\"tool_use_id\":\"toolu_1\",\"is_error\":true,\"content\":[{"
         "\"type\":\"text\","
         "\"text\":\"42\"},{\"type\":\"tool_reference\",\"tool_name\":\"other\"}]}]}]",
         "[user: Hi][assistant: <think>hm</think>Well<tool_call>{\"name\": get, \"arguments\": "
         "{\"a\": 1}}"
         "</tool_call>][tool toolu_1 get: 42\nother][user: more][assistant: "},
        {"\"messages\":[" CALLED
         ",{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":"
         "\"toolu_1\"}]},{\"role\":\"system\",\"content\":\"note\"}]",
         "[user: Hi][assistant: <think>hm</think>Well<tool_call>{\"name\": get, \"arguments\": "
         "{\"a\": 1}}"
         "</tool_call>][tool toolu_1 get: note][assistant: "},
        {"\"messages\":[{\"role\":\"system\",\"content\":\"A\"},{\"role\":\"user\",\"content\":"
         "\"u\"},"
         "{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"B\"}]}],\"system\":\"S\"",
         "[system: S\nA][user: u\nB][assistant: "},
        {"\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":"
         "\"Once \"}]",
         "[user: u][assistant: Once "},
        {HI ",\"tools\":[" TOOL ",{\"type\":\"web_search_20250305\",\"name\":\"web_search\"},"
            "{\"type\":\"custom\",\"name\":\"b\",\"input_schema\":{}}]",
         "[user: Hi](get)(b)[assistant: "},
        {HI ",\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]",
         "[user: Hi][assistant: "},
        {HI ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}",
         "[user: Hi]T[assistant: "},
        {HI ",\"thinking\":{\"type\":\"adaptive\"}", "[user: Hi]T[assistant: "},
        {HI ",\"thinking\":{\"type\":\"disabled\"},\"output_config\":{\"effort\":\"high\"}",
         "[user: Hi]F[assistant: "},
        {HI ",\"output_config\":{\"effort\":\"high\"}", "[user: Hi]T[assistant: "},
    };
    set_template();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_prompt(cases[i].fields, cases[i].want);
    }
    drop_template();
}

static void what_cannot_be_read_is_refused_by_its_place(void **state) {
    (void)state;
    static const struct {
        const char *fields, *param, *word;
    } cases[] = {
        {"\"system\":\"x\"", "messages", "at least one"},
        {"\"messages\":[]", "messages", "at least one"},
        {"\"messages\":{}", "messages", "at least one"},
        {"\"messages\":[7]", "messages[0].role", "must be"},
        {"\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]", "messages[0].role", "must be"},
        {"\"messages\":[{\"role\":\"user\"}]", "messages[0].content", "must be"},
        {"\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{"
         "\"type\":\"image\"}]}]",
         "messages[1].content", "an image or a document"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\"}]}]",
         "messages[0].content", "an image or a document"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":"
         "\"a\",\"content\":"
         "[{\"type\":\"image\"}]}]}]",
         "messages[0].content", "an image or a document"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_use\"}]}]",
         "messages[0].content", "'tool_use'"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[\"a\"]}]", "messages[0].content",
         "without a type"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
         "messages[0].content", "'text'"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\"}]}]",
         "messages[0].content", "'tool_use_id'"},
        {"\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\","
         "\"name\":\"b\","
         "\"input\":[]}]}]",
         "messages[0].content", "'input'"},
        {"\"messages\":[" CALLED "]", "messages", "result is missing"},
        {HI ",\"system\":7", "system", "a string"},
        {HI ",\"system\":[{\"type\":\"image\"}]", "system", "text blocks"},
        {HI ",\"tools\":7", "tools", "an array"},
        {HI ",\"tools\":[{\"input_schema\":{}}]", "tools[0]", "'name'"},
        {HI ",\"tools\":[7]", "tools[0]", "'name'"},
        {HI ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\"}}]", "tools[0]",
         "\"input_schema\""},
        {HI ",\"tool_choice\":{\"type\":\"any\"}", "tool_choice", "no 'tools'"},
        {HI ",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"tool\"}", "tool_choice", "a 'name'"},
        {HI ",\"tool_choice\":\"auto\"", "tool_choice", "'tool_choice.type'"},
        {HI ",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"no\"}",
         "tool_choice", "'no'"},
        {HI ",\"thinking\":{\"type\":\"x\"}", "thinking", "\"adaptive\""},
        {HI ",\"output_format\":{\"type\":\"x\"}", "output_format", "json_schema"},
        {HI ",\"thread\":{\"type\":\"create\"}", "thread", "send all messages"},
        {HI ",\"compaction\":{\"type\":\"summarize\"}", "compaction", "not supported"},
        {HI ",\"stop_sequences\":7", "stop_sequences", "'stop_sequences'"},
        {HI ",\"max_tokens\":0", NULL, ""},
    };
    set_template();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_api_call *call = prepared(CALL_MESSAGES, cases[i].fields);
        if (call->error.status != 400) fail_msg("%s is not refused", cases[i].fields);
        if (cases[i].param) assert_string_equal(call->error.param, cases[i].param);
        if (!strstr(call->error.message, cases[i].word))
            fail_msg("%s: '%s' lacks '%s'", cases[i].fields, call->error.message, cases[i].word);
        weft_api_call_start(call, now_us);
        weft_api_call_drop(call);
    }
    drop_template();
}

static void max_tokens_is_needed_and_an_upper_bound(void **state) {
    (void)state;
    set_template();
    weft_api_call *call = begin_kind(CALL_MESSAGES, "{" HI "}");
    assert_int_equal(call->error.status, 400);
    assert_string_equal(call->error.param, "max_tokens");
    weft_api_call_drop(call);
    static const uint32_t wanted[] = {7, 32000};
    for (size_t i = 0; i < 2; i++) {
        char json[256];
        (void)snprintf(json, sizeof json,
                       "{\"max_tokens\":%u,\"metadata\":{\"user_id\":\"u\"}," HI "}", wanted[i]);
        call = begin_kind(CALL_MESSAGES, json);
        assert_int_equal(call->error.status, 0);
        uint32_t left = 1024 - last_sent()->n_prompt;
        assert_int_equal(call->params.sampling.max_tokens, wanted[i] < left ? wanted[i] : left);
        assert_true(last_sent()->flow == weft_api_flow("u", 1));
        weft_api_call_drop(call);
    }
    drop_template();
}

static void a_format_is_a_grammar_of_the_answer(void **state) {
    (void)state;
    static const char format[] = "{\"type\":\"json_schema\",\"schema\":{\"type\":\"integer\"}}";
    set_template();
    for (size_t i = 0; i < 2; i++) {
        char fields[256], field[160];
        (void)snprintf(field, sizeof field,
                       i ? "\"output_config\":{\"format\":%s}" : "\"output_format\":%s", format);
        (void)snprintf(fields, sizeof fields, HI ",%s", field);
        weft_api_call *call = prepared(CALL_MESSAGES, fields);
        assert_int_equal(call->params.sampling.grammar.kind, WEFT_GRAMMAR_SCHEMA);
        assert_string_equal(call->params.sampling.grammar.text, "{\"type\":\"integer\"}");
        weft_api_call_start(call, now_us);
        weft_api_call_drop(call);
    }
    drop_template();
}

static void a_budget_that_the_context_holds_bounds_thoughts(void **state) {
    (void)state;
    static const uint32_t budgets[] = {0, 100, 1023, 1024, 31999};
    set_template();
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        char fields[160];
        (void)snprintf(fields, sizeof fields,
                       HI ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":%u}", budgets[i]);
        weft_api_call *call = prepared(CALL_MESSAGES, fields);
        assert_int_equal(call->error.status, 0);
        assert_int_equal(call->params.sampling.thinking_token_budget,
                         budgets[i] < 1024 ? budgets[i] : UINT32_MAX);
        weft_api_call_start(call, now_us);
        weft_api_call_drop(call);
    }
    drop_template();
}

static void tokens_are_counted_as_messages_are(void **state) {
    (void)state;
    static const char fields[] =
        HI ",\"system\":\"S\",\"tools\":[" TOOL "],\"thinking\":{\"type\":\"enabled\"}";
    set_template();
    weft_api_call *call = prepared(CALL_MESSAGES, fields);
    size_t n = call->params.prompts[0].n_ids;
    weft_api_call_start(call, now_us);
    weft_api_call_drop(call);
    call = prepared(CALL_COUNT, fields);
    weft_api_call_start(call, now_us);
    json_t *body = body_of(call, 3);
    assert_int_equal(json_object_size(body), 1);
    assert_int_equal(json_integer_value(json_object_get(body, "input_tokens")), n);
    json_decref(body);
    weft_api_call_drop(call);
    drop_template();
}

/* ---------------------------------------------------------------------------------- answers --- */

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

/* A call that has written `text`, of which the last token has `end`; 3 of its prompt's tokens were cached. */
static weft_api_call *answered(const char *fields, const char *text, enum weft_end end) {
    struct weft_errmsg why;
    uint32_t *ids;
    size_t n;
    weft_api_call *call = prepared(CALL_MESSAGES, fields);
    weft_api_call_start(call, now_us);
    deliver();
    if (call->error.status) fail_msg("%s", call->error.message);
    struct sent submit = *last_sent();
    put_accepted(&submit);
    assert_int_equal(weft_tok_encode(api.tok,
                                     &(struct weft_tok_input){{text, strlen(text)}, 0, IDS_MAX},
                                     &ids, &n, &why),
                     WEFT_OK);
    for (uint32_t i = 0; i < n && call->state != WEFT_API_CALL_DONE; i++) {
        struct weft_event event = {.request_id = submit.id,
                                   .attempt = submit.attempt,
                                   .sampled = true,
                                   .token = ids[i],
                                   .output_idx = i,
                                   .end = i + 1 == n ? end : WEFT_END_NONE,
                                   .n_prompt_cached = 3};
        put_event(&event);
    }
    free(ids);
    return call;
}

/* The message that a stream's events make, as a client puts it together; "input" as text, and no "signature". */
struct made {
    json_t *message;
    json_t *open; /* its block */
    bool is_over;
};

static void add_to(json_t *block, const char *key, const char *more) {
    const char *old = json_string_value(json_object_get(block, key));
    char *text = malloc((old ? strlen(old) : 0) + strlen(more) + 1);
    assert_non_null(text);
    (void)sprintf(text, "%s%s", old ? old : "", more);
    json_object_set_new(block, key, json_string(text));
    free(text);
}

static void take_delta(struct made *made, const json_t *delta) {
    static const char *const kinds[][3] = {{"text_delta", "text", "text"},
                                           {"thinking_delta", "thinking", "thinking"},
                                           {"input_json_delta", "partial_json", "json"},
                                           {"signature_delta", "signature", "signature"}};
    assert_non_null(made->open);
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(text_of(delta, "type"), kinds[i][0]) != 0) continue;
        add_to(made->open, kinds[i][2], text_of(delta, kinds[i][1]));
        return;
    }
    fail();
}

static void take_event(struct made *made, const char *name, const json_t *event) {
    assert_string_equal(text_of(event, "type"), name);
    assert_false(made->is_over);
    json_t *content = json_object_get(made->message, "content");
    if (strcmp(name, "message_start") == 0) {
        assert_null(made->message);
        made->message = json_deep_copy(json_object_get(event, "message"));
    } else if (strcmp(name, "content_block_start") == 0) {
        assert_null(made->open);
        assert_int_equal(json_integer_value(json_object_get(event, "index")),
                         json_array_size(content));
        made->open = json_deep_copy(json_object_get(event, "content_block"));
        json_array_append_new(content, made->open);
    } else if (strcmp(name, "content_block_delta") == 0) {
        assert_int_equal(json_integer_value(json_object_get(event, "index")),
                         json_array_size(content) - 1);
        take_delta(made, json_object_get(event, "delta"));
    } else if (strcmp(name, "content_block_stop") == 0) {
        assert_non_null(made->open);
        const char *json = json_string_value(json_object_get(made->open, "json"));
        json_t *input = json ? json_loads(json, 0, NULL) : NULL;
        if (input) json_object_set_new(made->open, "input", input);
        json_object_del(made->open, "json");
        made->open = NULL;
    } else if (strcmp(name, "message_delta") == 0) {
        assert_null(made->open);
        json_object_update(made->message, json_object_get(event, "delta"));
        json_object_set(made->message, "usage", json_object_get(event, "usage"));
    } else if (strcmp(name, "message_stop") == 0) {
        made->is_over = true;
    } else {
        assert_string_equal(name, "ping");
    }
}

static json_t *made_of(char *stream) {
    struct made made = {0};
    for (char *at = stream, *end; (end = strstr(at, "\n\n")); at = end + 2) {
        char *data = strstr(at, "\ndata: ");
        assert_memory_equal(at, "event: ", 7);
        assert_true(data && data < end);
        *data = *end = '\0';
        json_t *event = json_loads(data + 7, JSON_REJECT_DUPLICATES, NULL);
        take_event(&made, at + 7, event);
        json_decref(event);
    }
    assert_true(made.is_over);
    return made.message;
}

#define GET                                                                                        \
    "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": \"x}\\\"{\", \"b\": [1, "             \
    "{}]}}\n</tool_call>"

static void an_answer_that_fills_the_context_says_so(void **state) {
    (void)state;
    static const char *const wants[] = {"model_context_window_exceeded", "max_tokens"};
    set_template();
    for (uint32_t i = 0; i < 2; i++) {
        weft_api_call *call = answered(HI, " upon a time", WEFT_END_LENGTH);
        if (!i) call->params.usual_max_tokens = 32000;
        json_t *body = body_of(call, 1 << 16);
        assert_string_equal(text_of(body, "stop_reason"), wants[i]);
        json_decref(body);
        weft_api_call_drop(call);
    }
    drop_template();
}

/* The token that ends an answer by WEFT_END_STOP is no part of it. */
static const struct {
    const char *fields, *text;
    enum weft_end end;
    const char *want; /* the members that tell the answer */
} answers[] = {
    {HI, " upon a time", WEFT_END_LENGTH,
     "{\"content\":[{\"type\":\"text\",\"text\":\" upon a "
     "time\"}],\"stop_reason\":\"max_tokens\",\"stop_sequence\":null}"},
    {HI ",\"stop_sequences\":[\"x\",\"a t\"]", " upon a time and", WEFT_END_STOP,
     "{\"content\":[{\"type\":\"text\",\"text\":\" upon \"}],\"stop_reason\":\"stop_sequence\","
     "\"stop_sequence\":\"a t\"}"},
    {HI ",\"tools\":[" TOOL "]", "Well." GET GET ".", WEFT_END_STOP,
     "{\"content\":[{\"type\":\"text\",\"text\":\"Well.\"},{\"type\":\"tool_use\",\"name\":\"get\","
     "\"input\":{\"a\":"
     "\"x}\\\"{\",\"b\":[1,{}]}},{\"type\":\"tool_use\",\"name\":\"get\",\"input\":{\"a\":\"x}\\\"{"
     "\",\"b\":[1,{}]}}],"
     "\"stop_reason\":\"tool_use\",\"stop_sequence\":null}"},
    {HI ",\"tools\":[" TOOL "],\"thinking\":{\"type\":\"enabled\"}",
     "<think>hm\nhm</think>Well." GET ".", WEFT_END_STOP,
     "{\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\\nhm\",\"signature\":\"\"},{\"type\":"
     "\"text\",\"text\":"
     "\"Well.\"},{\"type\":\"tool_use\",\"name\":\"get\",\"input\":{\"a\":\"x}\\\"{\",\"b\":[1,{}]}"
     "}],"
     "\"stop_reason\":\"tool_use\",\"stop_sequence\":null}"},
    {HI ",\"thinking\":{\"type\":\"enabled\",\"display\":\"omitted\"}", "<think>hm</think>Well.",
     WEFT_END_LENGTH,
     "{\"content\":[{\"type\":\"text\",\"text\":\"Well.\"}],\"stop_reason\":\"max_tokens\",\"stop_"
     "sequence\":null}"},
    {HI ",\"tools\":[" TOOL "]", "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": \"x",
     WEFT_END_LENGTH,
     "{\"content\":[{\"type\":\"tool_use\",\"name\":\"get\",\"input\":{}}],\"stop_reason\":\"max_"
     "tokens\","
     "\"stop_sequence\":null}"},
    {HI ",\"tools\":[" TOOL "]",
     GET "\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": \"x", WEFT_END_LENGTH,
     "{\"content\":[{\"type\":\"tool_use\",\"name\":\"get\",\"input\":{\"a\":\"x}\\\"{\",\"b\":[1,{"
     "}]}},{\"type\":"
     "\"tool_use\",\"name\":\"get\",\"input\":{}}],\"stop_reason\":\"max_tokens\",\"stop_"
     "sequence\":null}"},
    {HI, "<tool_call>", WEFT_END_LENGTH,
     "{\"content\":[{\"type\":\"text\",\"text\":\"<tool_call>\"}],\"stop_reason\":\"max_tokens\","
     "\"stop_sequence\":null}"},
};

/* Compares with what is wanted; the ids of calls are ours. */
static void expect(json_t *message, const char *want) {
    json_t *wanted = json_loads(want, 0, NULL), *block;
    size_t i;
    assert_non_null(wanted);
    assert_string_equal(text_of(message, "type"), "message");
    assert_string_equal(text_of(message, "role"), "assistant");
    assert_string_equal(text_of(message, "model"), "m");
    assert_memory_equal(text_of(message, "id"), "msg_", 4);
    json_array_foreach(json_object_get(message, "content"), i, block) {
        if (strcmp(text_of(block, "type"), "tool_use") != 0) continue;
        assert_memory_equal(text_of(block, "id"), "toolu_", 6);
        json_object_del(block, "id");
    }
    json_t *told = json_pack("{s:O,s:O,s:O}", "content", json_object_get(message, "content"),
                             "stop_reason", json_object_get(message, "stop_reason"),
                             "stop_sequence", json_object_get(message, "stop_sequence"));
    if (!json_equal(told, wanted)) {
        char *text = json_dumps(told, JSON_COMPACT);
        fail_msg("got %s, wanted %s", text, want);
    }
    json_decref(told);
    json_decref(wanted);
}

static void bodies_are_the_same_however_they_are_cut(void **state) {
    (void)state;
    set_template();
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        weft_api_call *call = answered(answers[i].fields, answers[i].text, answers[i].end);
        char *text = rendered(call, 1 << 16);
        for (size_t budget = 1; budget < 700; budget++) {
            wefti_api_render_rewind(call);
            char *again = rendered(call, budget);
            assert_string_equal(again, text);
            free(again);
        }
        json_t *body = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(body);
        const json_t *usage = json_object_get(body, "usage");
        int64_t n_input = json_integer_value(json_object_get(usage, "input_tokens"));
        assert_int_equal(n_input + 3, call->params.prompts[0].n_ids);
        assert_int_equal(json_integer_value(json_object_get(usage, "cache_read_input_tokens")), 3);
        assert_int_equal(json_integer_value(json_object_get(usage, "output_tokens")),
                         call->choices[0].n_tokens);
        expect(body, answers[i].want);
        json_decref(body);
        free(text);
        weft_api_call_drop(call);
    }
    drop_template();
}

/* Where a call was cut off, the deltas are what came of it, and no more than that. */
static void events_make_the_same_message(void **state) {
    (void)state;
    set_template();
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        char fields[1024], *whole = NULL;
        (void)snprintf(fields, sizeof fields, "%s,\"seed\":5", answers[i].fields);
        weft_api_call *call = answered(fields, answers[i].text, answers[i].end);
        json_t *body = body_of(call, 1 << 16);
        weft_api_call_drop(call);
        (void)snprintf(fields, sizeof fields, "%s,\"seed\":5,\"stream\":true", answers[i].fields);
        for (size_t budget = 1; budget < 1000; budget += budget < 50 ? 7 : 190) {
            call = answered(fields, answers[i].text, answers[i].end);
            char *stream = rendered(call, budget);
            weft_api_call_drop(call);
            char *id = strstr(stream, "\"id\":\"msg_");
            assert_non_null(id);
            memset(id + 10, '0', strcspn(id + 10, "\""));
            if (whole) assert_string_equal(stream, whole);
            if (!whole) whole = strdup(stream);
            free(stream);
        }
        json_t *made = made_of(whole);
        assert_true(json_equal(json_object_get(made, "usage"), json_object_get(body, "usage")));
        assert_true(json_equal(json_object_get(made, "content"), json_object_get(body, "content")));
        expect(made, answers[i].want);
        json_decref(made);
        json_decref(body);
        free(whole);
    }
    drop_template();
}

static void a_stream_that_fails_ends_with_an_error_event(void **state) {
    (void)state;
    static const char want[] =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
        "\"message\":\"the server is shutting "
        "down\",\"details\":{\"error_code\":\"shutting_down\",\"param\":null}},\"request_id\":";
    struct weft_api_error leaving = {0};
    struct weft_buf out;
    set_template();
    weft_api_call *call = begin_kind(CALL_MESSAGES, "{\"max_tokens\":9,\"stream\":true," HI "}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    put_token(&submit, 0, 0, 40, WEFT_END_NONE);
    weft_api_error_leaving(&leaving);
    assert_true(weft_api_call_end(call, &leaving));
    weft_buf_init(&out, 1 << 16);
    while (weft_api_render_stream(call, &out, 64) == WEFT_API_RENDER_MORE) {
    }
    const char *last = strstr(weft_buf_cstr(&out), "event: error");
    assert_true(last && strncmp(last, want, sizeof want - 1) == 0);
    assert_string_equal(weft_api_call_keep_alive(call),
                        "event: ping\ndata: {\"type\": \"ping\"}\n\n");
    weft_buf_fini(&out);
    weft_api_call_drop(call);
    drop_template();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(blocks_become_messages),
        CASE(what_cannot_be_read_is_refused_by_its_place),
        CASE(max_tokens_is_needed_and_an_upper_bound),
        CASE(a_format_is_a_grammar_of_the_answer),
        CASE(a_budget_that_the_context_holds_bounds_thoughts),
        CASE(tokens_are_counted_as_messages_are),
        CASE(an_answer_that_fills_the_context_says_so),
        CASE(bodies_are_the_same_however_they_are_cut),
        CASE(events_make_the_same_message),
        CASE(a_stream_that_fails_ends_with_an_error_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
