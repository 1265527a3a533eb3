/* Constraints by small examples: what each format's calls look like, what breaks them, and which
 * schemas are said how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "message_wish.h"

#define TOOL(name, parameters)                                                                     \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" parameters "}}"
#define SCHEMA(properties, required)                                                               \
    "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required                 \
    "],\"additionalProperties\":false}"
#define WEATHER                                                                                    \
    TOOL("get_weather",                                                                            \
         SCHEMA("\"location\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"              \
                "\"sure\":{\"type\":\"boolean\"}",                                                 \
                "\"location\""))
#define PING TOOL("ping", "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}")
#define BOTH "[" WEATHER "," PING "]"

#define TEXTS (const char *const[])

static weft_gram *compile(const char *format, const char *tools_json, enum weft_msg_choice choice,
                          bool is_single) {
    struct weft_errmsg why = {""};
    weft_msg_tools *tools = test_tools(tools_json);
    struct weft_msg_wish wish = test_wish(format, tools, choice);
    struct weft_buf tags;
    weft_gram *gram = NULL;
    bool thinks;
    wish.is_single = is_single;
    weft_buf_init(&tags, (size_t)16 << 20);
    weft_err err = weft_msg_constrain(&wish, &tags, &thinks, &why);
    if (err) fail_msg("%s: %s", format, why.text);
    assert_int_equal(thinks, strcmp(format, "gpt-oss") == 0);
    if (tags.len > 0) {
        err = weft_gram_tags((struct weft_str){tags.data, tags.len}, &gram, &why);
        if (err) fail_msg("%s: %s: %s", format, why.text, weft_buf_cstr(&tags));
    }
    weft_buf_fini(&tags);
    weft_msg_tools_free(tools);
    return gram;
}

static bool accepts(weft_gram *gram, const char *text) {
    weft_gram_state *state;
    assert_int_equal(weft_gram_state_new(gram, &state), WEFT_OK);
    bool is_good = !weft_gram_take(state, text, strlen(text)) && weft_gram_may_end(state);
    weft_gram_state_free(state);
    return is_good;
}

static void check(weft_gram *gram, const char *const *good, const char *const *bad) {
    for (; *good; good++)
        if (!accepts(gram, *good)) fail_msg("not accepted: %s", *good);
    for (; *bad; bad++)
        if (accepts(gram, *bad)) fail_msg("accepted: %s", *bad);
    weft_gram_free(gram);
}

/* ------------------------------------------------------------------------------------- formats --- */

static const struct spelling {
    const char *format, *call, *ping, *both; /* two calls, as the chat template joins them */
    const char *bad;                         /* its argument is of a wrong type */
} spellings[] = {
    {"hermes",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Oslo\", \"days\": "
     "3}}\n"
     "</tool_call>",
     "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": 1}}\n</tool_call>"},
    {"mistral-old",
     "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Oslo\"}}]",
     "[TOOL_CALLS][{\"name\": \"ping\", \"arguments\": {}}]",
     "[TOOL_CALLS][{\"name\": \"ping\", \"arguments\": {}}, {\"name\": \"ping\", \"arguments\": "
     "{}}]",
     "[TOOL_CALLS][{\"name\": \"pong\", \"arguments\": {}}]"},
    {"nemotron",
     "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Oslo\"}}]</TOOLCALL>",
     "<TOOLCALL>[{\"name\": \"ping\", \"arguments\": {}}]</TOOLCALL>",
     "<TOOLCALL>[{\"name\": \"ping\", \"arguments\": {}}, {\"name\": \"ping\", \"arguments\": {}}]"
     "</TOOLCALL>",
     "<TOOLCALL>[{\"name\": \"ping\", \"arguments\": []}]</TOOLCALL>"},
    {"command-r7b",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", "
     "\"parameters\": {\"location\": \"Oslo\"}}\n]<|END_ACTION|>",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"ping\", \"parameters\": {}}"
     "\n]<|END_ACTION|>",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"ping\", \"parameters\": "
     "{}},"
     "\n    {\"tool_call_id\": \"1\", \"tool_name\": \"ping\", \"parameters\": "
     "{}}\n]<|END_ACTION|>",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"x\", \"tool_name\": \"ping\", \"parameters\": {}}"
     "\n]<|END_ACTION|>"},
    {"deepseek-v3",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
     "{\"location\": \"Oslo\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{}\n```"
     "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>"},
    {"kimi-k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>{\"location\": \"Oslo\"}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:12"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_call_begin|>functions.ping:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>"},
    {"mistral-args", "[TOOL_CALLS]get_weather[ARGS]{\"location\": \"Oslo\"}",
     "[TOOL_CALLS]ping[ARGS]{}", "[TOOL_CALLS]ping[ARGS]{}[TOOL_CALLS]ping[ARGS]{}",
     "[TOOL_CALLS]ping{}"},
    {"qwen3-coder",
     "<tool_call>\n<function=get_weather>\n<parameter=location>\nOslo <b>\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     "<tool_call>\n<function=ping>\n</function>\n</tool_call>",
     "<tool_call>\n<function=ping>\n</function>\n</tool_call>\n<tool_call>\n<function=ping>\n"
     "</function>\n</tool_call>",
     "<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n</parameter>\n</function>\n"
     "</tool_call>"},
    {"seed-oss",
     "<seed:tool_call>\n<function=get_weather>\n<parameter=location>Oslo</parameter>\n</function>\n"
     "</seed:tool_call>",
     "<seed:tool_call>\n<function=ping>\n</function>\n</seed:tool_call>",
     "<seed:tool_call>\n<function=ping>\n</function>\n</seed:tool_call>\n"
     "<seed:tool_call>\n<function=ping>\n</function>\n</seed:tool_call>",
     "<seed:tool_call>\n<function=get_weather>\n<parameter=location>\nOslo</parameter>\n"
     "</function>\n</seed:tool_call>"},
    {"minimax-m2",
     "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"location\">Oslo"
     "</parameter>\n</invoke>\n</minimax:tool_call>",
     "<minimax:tool_call>\n<invoke name=\"ping\">\n</invoke>\n</minimax:tool_call>",
     "<minimax:tool_call>\n<invoke name=\"ping\">\n</invoke>\n<invoke name=\"ping\">\n</invoke>\n"
     "</minimax:tool_call>",
     "<minimax:tool_call>\n<invoke name=\"get_weather\">\n</invoke>\n</minimax:tool_call>"},
    {"deepseek-v3.2",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
     "<｜DSML｜parameter name=\"location\" string=\"true\">Oslo</｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
     "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"ping\">\n</｜DSML｜invoke>\n"
     "</｜DSML｜function_calls>",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"ping\">\n</｜DSML｜invoke>\n"
     "<｜DSML｜invoke name=\"ping\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
     "<｜DSML｜parameter name=\"location\" string=\"false\">3</｜DSML｜parameter>\n"
     "</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
    {"glm-4.5",
     "<tool_call>get_weather\n<arg_key>location</arg_key>\n<arg_value>Oslo</arg_value>\n"
     "</tool_call>",
     "<tool_call>ping\n</tool_call>", "<tool_call>ping\n</tool_call>\n<tool_call>ping</tool_call>",
     "<tool_call>ping<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>"},
    {"lfm2",
     "<|tool_call_start|>[get_weather(location=\"Oslo\", days=3, sure=True)]<|tool_call_end|>",
     "<|tool_call_start|>[ping()]<|tool_call_end|>",
     "<|tool_call_start|>[ping(), ping()]<|tool_call_end|>",
     "<|tool_call_start|>[get_weather(location=\"Oslo\" days=3)]<|tool_call_end|>"},
    {"gpt-oss",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get_weather <|constrain|>json<|message|>{\"location\": \"Oslo\"}<|call|>",
     "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}<|call|>",
     "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}<|call|>"
     "<|start|>assistant"
     "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}<|call|>",
     "<|channel|>commentary to=functions.pong <|constrain|>json<|message|>{}<|call|>"},
};

static void calls_are_required(void **test) {
    (void)test;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        const struct spelling *s = &spellings[i];
        check(compile(s->format, BOTH, WEFT_MSG_REQUIRED, false),
              TEXTS{s->call, s->ping, s->both, 0}, TEXTS{"", "Let me see.", s->bad, 0});
        check(compile(s->format, BOTH, WEFT_MSG_REQUIRED, true), TEXTS{s->call, s->ping, 0},
              TEXTS{"", "Let me see.", s->both, s->bad, 0});
    }
}

/* In JSON, which is not how Gemma 4 writes by itself: else nothing is asked of it. */
static void braces_hold_json_where_a_call_must_come(void **test) {
    (void)test;
    static const char ping[] = "<|tool_call>call:ping{}<tool_call|>",
                      weather[] =
                          "<|tool_call>call:get_weather{\"location\": \"Oslo\"}<tool_call|>",
                      bad[] = "<|tool_call>call:get_weather{\"location\": 3}<tool_call|>";
    check(compile("gemma-4", BOTH, WEFT_MSG_REQUIRED, false), TEXTS{ping, weather, 0},
          TEXTS{"", "Let me see.", bad, 0});
}

static void text_may_stand_around_calls(void **test) {
    (void)test;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        const struct spelling *s = &spellings[i];
        char before[1200];
        if (!strcmp(s->format, "gpt-oss")) continue;
        (void)snprintf(before, sizeof before, "Let me see.\n%s", s->call);
        check(compile(s->format, BOTH, WEFT_MSG_AUTO, false),
              TEXTS{"", "No call.", s->call, s->both, before, 0}, TEXTS{s->bad, 0});
        check(compile(s->format, BOTH, WEFT_MSG_AUTO, true),
              TEXTS{"", "No call.", s->call, before, 0}, TEXTS{s->both, s->bad, 0});
    }
}

static void harmony_answers_on_its_channel(void **test) {
    (void)test;
    check(compile("gpt-oss", BOTH, WEFT_MSG_AUTO, false),
          TEXTS{"<|channel|>final<|message|>Hello.",
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
                "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
                "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}<|call|>",
                0},
          TEXTS{"Hello.", "<|channel|>final<|message|>a<|channel|>",
                "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{", 0});
}

static void calls_without_marks_are_for_required_alone(void **test) {
    static const char *const formats[] = {"llama3-json", "llama4-pythonic", "think"};
    (void)test;
    for (size_t i = 0; i < 3; i++)
        assert_null(compile(formats[i], BOTH, WEFT_MSG_AUTO, false));
    check(
        compile("llama3-json", BOTH, WEFT_MSG_REQUIRED, false),
        TEXTS{"{\"name\": \"ping\", \"parameters\": {}}; {\"name\": \"ping\", \"parameters\": {}}",
              0},
        TEXTS{"{\"name\": \"ping\"}", 0});
    check(compile("llama4-pythonic", BOTH, WEFT_MSG_REQUIRED, false),
          TEXTS{"[ping(), get_weather(location=\"x\", sure=False)]", 0}, TEXTS{"[]", "[ping]", 0});
    check(compile("think", BOTH, WEFT_MSG_REQUIRED, false),
          TEXTS{"<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>", 0},
          TEXTS{"{}", 0});
}

static void an_answer_of_harmony_follows_thoughts(void **test) {
    struct weft_msg_wish wish = test_wish("gpt-oss", NULL, WEFT_MSG_AUTO);
    static const char answer[] =
        "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\"}}";
    struct weft_buf tags;
    weft_gram *gram;
    (void)test;
    weft_buf_init(&tags, 1 << 20);
    assert_int_equal(
        weft_msg_constrain_answer(&wish, (struct weft_str){answer, sizeof answer - 1}, &tags, NULL),
        WEFT_OK);
    assert_int_equal(weft_gram_tags((struct weft_str){tags.data, tags.len}, &gram, NULL), WEFT_OK);
    check(gram,
          TEXTS{"<|channel|>final<|message|>12",
                "<|channel|>analysis<|message|>x<|end|><|start|>assistant"
                "<|channel|>final<|message|>7",
                0},
          TEXTS{"12", "<|channel|>final<|message|>x", 0});
    assert_int_equal(weft_msg_constrain_answer(&wish, (struct weft_str){"{", 1}, &tags, NULL),
                     WEFT_E_INVAL);
    static const char thinks[] = "<|start|>assistant<|channel|>analysis<|message|>";
    wish.prompt_end = (struct weft_str){thinks, sizeof thinks - 1};
    assert_int_equal(
        weft_msg_constrain_answer(&wish, (struct weft_str){answer, sizeof answer - 1}, &tags, NULL),
        WEFT_OK);
    assert_int_equal(weft_gram_tags((struct weft_str){tags.data, tags.len}, &gram, NULL), WEFT_OK);
    check(gram, TEXTS{"x<|end|><|start|>assistant<|channel|>final<|message|>7", 0},
          TEXTS{"<|channel|>final<|message|>7", 0});
    weft_buf_fini(&tags);
}

/* ------------------------------------------------------------------------------------- schemas --- */

#define QWEN(parameters) "<tool_call>\n<function=t>\n" parameters "</function>\n</tool_call>"
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"

static void strings_follow_their_schema(void **test) {
    (void)test;
    check(
        compile("qwen3-coder",
                "[" TOOL("t", SCHEMA("\"p\":{\"type\":\"string\",\"pattern\":\"^[A-Z]+-[0-9]+$\"},"
                                     "\"l\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":3},"
                                     "\"e\":{\"enum\":[\"a.b\",\"c\"]},"
                                     "\"d\":{\"type\":\"string\",\"format\":\"date\"}",
                                     "")) "]",
                WEFT_MSG_REQUIRED, false),
        TEXTS{QWEN(P("p", "AB-1")), QWEN(P("l", "éé")), QWEN(P("e", "a.b")),
              QWEN(P("d", "2026-11-25")), QWEN(P("p", "A-1") P("e", "c")), 0},
        TEXTS{QWEN(P("p", "AB-1x")), QWEN(P("l", "é")), QWEN(P("l", "abcd")), QWEN(P("e", "axb")),
              QWEN(P("d", "2026-13-25")), QWEN(P("e", "c") P("p", "A-1")), 0});
}

static void no_string_is_read_as_another_type(void **test) {
    (void)test;
    check(compile("qwen3-coder",
                  "[" TOOL("t", SCHEMA("\"o\":{\"type\":[\"string\",\"null\"]},"
                                       "\"n\":{\"type\":[\"string\",\"integer\"],\"minimum\":5},"
                                       "\"x\":{}",
                                       "")) "]",
                  WEFT_MSG_REQUIRED, false),
          TEXTS{QWEN(P("o", "null")), QWEN(P("o", "nullify")), QWEN(P("o", "12")),
                QWEN(P("n", "7")), QWEN(P("n", "3 apples")), QWEN(P("x", "{\"a\": 1}")),
                QWEN(P("x", "text")), 0},
          TEXTS{QWEN(P("o", "None")), QWEN(P("n", "3")), QWEN(P("n", " 3 ")), QWEN(P("x", "{a}")),
                QWEN(P("n", "\"3\"")), 0});
}

static void what_properties_cannot_say_is_narrowed(void **test) {
    (void)test;
    check(compile("qwen3-coder",
                  "[" TOOL("t", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
                                "\"b\":{\"type\":\"integer\"}},\"minProperties\":2}") "]",
                  WEFT_MSG_REQUIRED, false),
          TEXTS{QWEN(P("a", "1") P("b", "2")), 0}, TEXTS{QWEN(P("a", "1")), QWEN(""), 0});
    check(compile("qwen3-coder",
                  "[" TOOL("t", "{\"$ref\":\"#/$defs/R\",\"$defs\":{\"R\":{\"type\":\"object\","
                                "\"properties\":{\"n\":{\"$ref\":\"#/$defs/N\"}},"
                                "\"required\":[\"n\"]},\"N\":{\"type\":\"integer\"}}}") "]",
                  WEFT_MSG_REQUIRED, false),
          TEXTS{QWEN(P("n", "1")), 0}, TEXTS{QWEN(P("n", "x")), QWEN(""), 0});
    check(compile("qwen3-coder",
                  "[" TOOL("t", "{\"properties\":{\"a\":{\"type\":\"string\"},"
                                "\"b\":{\"type\":\"string\"}},"
                                "\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}") "]",
                  WEFT_MSG_REQUIRED, false),
          TEXTS{QWEN(P("a", "1")), 0}, TEXTS{QWEN(P("a", "1") P("b", "1")), QWEN(""), 0});
}

static void python_has_commas_where_they_belong(void **test) {
    (void)test;
    check(compile("llama4-pythonic",
                  "[" TOOL("t", SCHEMA("\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},"
                                       "\"c\":{\"type\":[\"null\",\"string\"]}",
                                       "")) "]",
                  WEFT_MSG_REQUIRED, false),
          TEXTS{"[t()]", "[t(a=1)]", "[t(b=True)]", "[t(c=None)]", "[t(a=1, c=\"x\")]",
                "[t(a=1, b=False, c=None)]", "[t(b=True, c=None)]", 0},
          TEXTS{"[t(, a=1)]", "[t(a=1,)]", "[t(b=true)]", "[t(b=True, a=1)]", "[t(a=1, a=1)]", 0});
    check(compile("llama4-pythonic",
                  "[" TOOL("t", SCHEMA("\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},"
                                       "\"c\":{\"type\":\"integer\"}",
                                       "\"b\"")) "]",
                  WEFT_MSG_REQUIRED, false),
          TEXTS{"[t(b=True)]", "[t(a=1, b=True)]", "[t(b=True, c=1)]", "[t(a=1, b=True, c=1)]", 0},
          TEXTS{"[t()]", "[t(a=1)]", "[t(a=1, )]", "[t(b=True, )]", 0});
}

/* ----------------------------------------------------------------------------- what clients send --- */

static const char *const strange_tools[] = {
    "[{\"type\":\"function\",\"function\":{\"name\":\"t\"}}]",
    "[" TOOL("t", "null") "]",
    "[" TOOL("t", "{}") "]",
    "[" TOOL("t", "{\"properties\":null,\"required\":null}") "]",
    "[" TOOL("t", "{\"type\":\"object\",\"description\":null,\"properties\":{\"a\":{\"enum\":null,"
                  "\"type\":\"string\",\"default\":null},\"b\":{\"type\":\"array\",\"items\":null},"
                  "\"c\":null}}") "]",
    "[" TOOL("t",
             "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"properties\":"
             "{\"a\":{\"pattern\":\"(?<=x)y\"},\"b\":{\"format\":\"iri\"},\"c\":{\"type\":\"str\"},"
             "\"d\":{\"type\":\"array\",\"uniqueItems\":true},\"e\":{\"$ref\":\"#/nowhere\"}},"
             "\"required\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}") "]",
    "[" TOOL("t", "{\"additionalProperties\":{\"type\":\"string\"}}") "]",
    "[" TOOL("t", "{\"properties\":{\"child\":{\"$ref\":\"#\"}},\"required\":[\"x y\"]}") "]",
    "[" TOOL("t", "{\"type\":\"string\"}") "]",
    "[" TOOL("t", "{\"not\":{}}") "]",
    "[" TOOL("t",
             "{\"type\":[\"object\",\"null\"],\"properties\":{\"a\":{\"nullable\":true}}}") "]",
};

static void any_list_of_tools_is_taken(void **test) {
    const char *names = weft_msg_format_names();
    (void)test;
    while (*names) {
        char format[32];
        size_t n = strcspn(names, ",");
        (void)snprintf(format, sizeof format, "%.*s", (int)n, names);
        names += n + strspn(names + n, ", ");
        for (size_t i = 0; i < sizeof strange_tools / sizeof *strange_tools; i++) {
            weft_gram_free(compile(format, strange_tools[i], WEFT_MSG_AUTO, false));
            weft_gram *gram = compile(format, strange_tools[i], WEFT_MSG_REQUIRED, false);
            assert_non_null(gram);
            weft_gram_free(gram);
        }
    }
}

static bool can_nothing(void *context, struct weft_str schema) {
    (void)context;
    (void)schema;
    return false;
}

static void without_checks_only_objects_are_asked_for(void **test) {
    struct weft_errmsg why = {""};
    weft_msg_tools *tools = test_tools(BOTH);
    struct weft_msg_wish wish = test_wish("hermes", tools, WEFT_MSG_REQUIRED);
    struct weft_buf tags;
    bool thinks;
    (void)test;
    wish.can_honour = can_nothing;
    weft_buf_init(&tags, 1 << 20);
    assert_int_equal(weft_msg_constrain(&wish, &tags, &thinks, &why), WEFT_OK);
    assert_null(strstr(weft_buf_cstr(&tags), "location"));
    weft_buf_fini(&tags);
    weft_msg_tools_free(tools);
}

static void names_are_escaped_or_refused(void **test) {
    static const char tools_json[] = "[" TOOL("a \\\"b\\\" é", "{}") "]";
    struct weft_errmsg why = {""};
    weft_msg_tools *tools = test_tools(tools_json);
    struct weft_msg_wish wish = test_wish("qwen3-coder", tools, WEFT_MSG_REQUIRED);
    struct weft_buf tags;
    bool thinks;
    (void)test;
    check(compile("hermes", tools_json, WEFT_MSG_REQUIRED, false),
          TEXTS{"<tool_call>\n{\"name\": \"a \\\"b\\\" é\", \"arguments\": {}}\n</tool_call>", 0},
          TEXTS{0});
    weft_buf_init(&tags, 1 << 20);
    assert_int_equal(weft_msg_constrain(&wish, &tags, &thinks, &why), WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "can't write the name of tool \"a \"b\""));
    weft_buf_fini(&tags);
    weft_msg_tools_free(tools);
}

static json_t *many_tools(size_t n, size_t n_words) {
    json_t *list = json_array();
    char name[32], *words = calloc(n_words + 1, 1);
    assert_non_null(words);
    memset(words, 'x', n_words);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "tool_%zu", i);
        json_t *schema =
            json_pack("{s:s, s:{s:{s:s, s:s}, s:{s:s}}}", "type", "object", "properties", "text",
                      "type", "string", "default", words, "count", "type", "integer");
        json_array_append_new(list, json_pack("{s:s, s:{s:s, s:o}}", "type", "function", "function",
                                              "name", name, "parameters", schema));
    }
    free(words);
    return list;
}

static void check_many(const char *format, size_t n_words, weft_err wanted) {
    struct weft_errmsg why = {""};
    json_t *list = many_tools(WEFT_MSG_TOOLS_MAX, n_words);
    weft_msg_tools *tools;
    struct weft_buf tags;
    bool thinks;
    assert_int_equal(weft_msg_tools_new(list, &tools, &why), WEFT_OK);
    struct weft_msg_wish wish = test_wish(format, tools, WEFT_MSG_AUTO);
    weft_buf_init(&tags, (size_t)16 << 20);
    assert_int_equal(weft_msg_constrain(&wish, &tags, &thinks, &why), wanted);
    if (wanted) {
        assert_non_null(strstr(why.text, "make a grammar of over"));
    } else {
        weft_gram *gram;
        weft_err err = weft_gram_tags((struct weft_str){tags.data, tags.len}, &gram, &why);
        if (err) fail_msg("%s", why.text);
        weft_gram_free(gram);
    }
    weft_buf_fini(&tags);
    weft_msg_tools_free(tools);
    json_decref(list);
}

/* A description is the template's to show; one of a property of that name isn't meant. */
static void remarks_are_no_part_of_a_grammar(void **test) {
    (void)test;
    weft_msg_tools *tools =
        test_tools("[" TOOL("f", "{\"type\":\"object\",\"title\":\"long\",\"properties\":{"
                                 "\"description\":{\"type\":\"integer\","
                                 "\"description\":\"long\"}},\"required\":[\"description\"]}") "]");
    struct weft_msg_wish wish = test_wish("hermes", tools, WEFT_MSG_REQUIRED);
    struct weft_buf tags;
    struct weft_errmsg why;
    bool thinks;
    weft_buf_init(&tags, 1 << 20);
    assert_int_equal(weft_msg_constrain(&wish, &tags, &thinks, &why), WEFT_OK);
    assert_null(strstr(weft_buf_cstr(&tags), "long"));
    assert_non_null(strstr(weft_buf_cstr(&tags), "{\"description\":{\"type\":\"integer\"}}"));
    assert_true(weft_msg_tools_bytes(tools) > 500);
    weft_buf_fini(&tags);
    weft_msg_tools_free(tools);
}

static void a_thousand_tools_fit(void **test) {
    (void)test;
    check_many("hermes", 100, WEFT_OK);
    check_many("qwen3-coder", 100, WEFT_OK);
    check_many("lfm2", 100, WEFT_OK);
    check_many("hermes", 5000, WEFT_E_TOOBIG);
}

/* A chain of definitions, each of so many references to the next one under a keyword: few bytes and many ways. */
static char *chained_tool(const char *keyword, int n_links, int n_refs, const char *root,
                          const char *last) {
    struct weft_buf text;
    weft_buf_init(&text, 1 << 20);
    weft_buf_printf(
        &text,
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{%s,\"$defs\":{",
        root);
    for (int i = 0; i < n_links; i++) {
        weft_buf_printf(&text, "\"a%d\":{\"%s\":[", i, keyword);
        for (int k = 0; k < n_refs; k++)
            weft_buf_printf(&text, "%s{\"$ref\":\"#/$defs/a%d\"}", k ? "," : "", i + 1);
        weft_buf_add_str(&text, "]},");
    }
    weft_buf_printf(&text, "\"a%d\":%s}}}}]", n_links, last);
    assert_false(text.failed);
    char *copy = strdup(weft_buf_cstr(&text));
    weft_buf_fini(&text);
    return copy;
}

static weft_err constrain(const char *format, const char *tools_json) {
    weft_msg_tools *tools = test_tools(tools_json);
    struct weft_msg_wish wish = test_wish(format, tools, WEFT_MSG_REQUIRED);
    struct weft_buf tags;
    struct weft_errmsg why;
    bool thinks;
    weft_buf_init(&tags, (size_t)16 << 20);
    weft_err err = weft_msg_constrain(&wish, &tags, &thinks, &why);
    weft_buf_fini(&tags);
    weft_msg_tools_free(tools);
    return err;
}

/* Within seconds, where following each way would take years. */
static void references_are_followed_so_far_and_no_further(void **test) {
    (void)test;
    static const char *const formats[] = {"hermes", "qwen3-coder"};
    char *types = chained_tool("anyOf", 9, 20, "\"properties\":{\"p\":{\"$ref\":\"#/$defs/a0\"}}",
                               "{\"type\":\"string\"}");
    char *lists =
        chained_tool("allOf", 9, 20, "\"allOf\":[{\"$ref\":\"#/$defs/a0\"}]",
                     "{\"properties\":{\"x\":{\"type\":\"string\"}},\"required\":[\"x\"]}");
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        assert_int_equal(constrain(formats[i], types), WEFT_OK);
        weft_err err = constrain(formats[i], lists);
        assert_int_equal(err, i == 0 ? WEFT_OK : WEFT_E_TOOBIG);
    }
    free(types);
    free(lists);
}

/* Its schemas are of one list, however many they are: none within another, and another, to the end of the stack. */
static void a_property_may_be_described_many_times(void **test) {
    (void)test;
    char *tool =
        chained_tool("allOf", 6, 6, "\"allOf\":[{\"$ref\":\"#/$defs/a0\"}]",
                     "{\"properties\":{\"x\":{\"type\":\"string\"}},\"required\":[\"x\"]}");
    assert_int_equal(constrain("qwen3-coder", tool), WEFT_OK);
    free(tool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_required),
        cmocka_unit_test(braces_hold_json_where_a_call_must_come),
        cmocka_unit_test(text_may_stand_around_calls),
        cmocka_unit_test(harmony_answers_on_its_channel),
        cmocka_unit_test(calls_without_marks_are_for_required_alone),
        cmocka_unit_test(an_answer_of_harmony_follows_thoughts),
        cmocka_unit_test(strings_follow_their_schema),
        cmocka_unit_test(no_string_is_read_as_another_type),
        cmocka_unit_test(what_properties_cannot_say_is_narrowed),
        cmocka_unit_test(python_has_commas_where_they_belong),
        cmocka_unit_test(any_list_of_tools_is_taken),
        cmocka_unit_test(without_checks_only_objects_are_asked_for),
        cmocka_unit_test(names_are_escaped_or_refused),
        cmocka_unit_test(remarks_are_no_part_of_a_grammar),
        cmocka_unit_test(a_thousand_tools_fit),
        cmocka_unit_test(references_are_followed_so_far_and_no_further),
        cmocka_unit_test(a_property_may_be_described_many_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
