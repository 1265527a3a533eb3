/* What a model writes, parted into thoughts, content and calls: the rules that whole outputs of golden_toolcalls don't
 * pin down. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message/message.h"

#define HEARD_BYTES_MAX (64u << 20)

static weft_msg_tools *tools;
static struct weft_buf
    heard; /* "[t:...]", "[c:...]", "[call N name id]", "[a:...]": as told, or joined */
static enum weft_msg_kind last;
static bool joins;

static struct weft_str str(const char *text) {
    return (struct weft_str){text, strlen(text)};
}

/* --------------------------------------------------------------------------------- hearing --- */

static void hear(void *context, const struct weft_msg_event *event) {
    (void)context;
    static const char *const names[] = {"t", "c", "call", "a"};
    bool is_more = joins && heard.len > 0 && event->kind == last && event->kind != WEFT_MSG_CALL;
    if (is_more)
        heard.len--; /* the bracket */
    else
        weft_buf_printf(&heard, "[%s", names[event->kind]);
    if (event->kind == WEFT_MSG_CALL) weft_buf_printf(&heard, " %u ", event->call);
    if (event->kind != WEFT_MSG_CALL && !is_more) weft_buf_add_char(&heard, ':');
    weft_buf_add(&heard, event->text.data, event->text.len);
    if (event->kind == WEFT_MSG_CALL && event->id.len > 0)
        weft_buf_printf(&heard, " %.*s", (int)event->id.len, event->id.data);
    weft_buf_add_char(&heard, ']');
    last = event->kind;
}

static struct weft_msg_setup setup_of(const char *format) {
    struct weft_msg_setup setup = {.format = weft_msg_format_named(str(format)), .tools = tools};
    assert_non_null(setup.format);
    return setup;
}

static void parse(const struct weft_msg_setup *setup, const char *output, size_t step) {
    weft_msg_parser *parser;
    weft_buf_clear(&heard);
    assert_int_equal(weft_msg_parser_new(setup, &parser), WEFT_OK);
    size_t len = strlen(output);
    for (size_t at = 0; at < len; at += step) {
        struct weft_str piece = {output + at, len - at < step ? len - at : step};
        assert_int_equal(weft_msg_push(parser, piece, hear, NULL), WEFT_OK);
    }
    assert_int_equal(weft_msg_finish(parser, hear, NULL), WEFT_OK);
    weft_msg_parser_free(parser);
}

static void expect_of(const struct weft_msg_setup *setup, const char *output, const char *want) {
    joins = true;
    parse(setup, output, strlen(output) + 1);
    assert_string_equal(weft_buf_cstr(&heard), want);
    parse(setup, output, 1);
    assert_string_equal(weft_buf_cstr(&heard), want);
}

static void expect(const char *format, const char *output, const char *want) {
    struct weft_msg_setup setup = setup_of(format);
    expect_of(&setup, output, want);
}

/* -------------------------------------------------------------------------- text and blanks --- */

static void plain_text_comes_through_byte_for_byte(void **state) {
    (void)state;
    expect("hermes", " \n a \t b\n\n", "[c: \n a \t b\n\n]");
    expect("hermes", "  ", "[c:  ]");
    expect("hermes", "", "");
    expect("hermes", "a <tool_cal", "[c:a <tool_cal]");
    expect("think", "\n<thin", "[c:\n<thin]");
    expect("gpt-oss", " no channel ", "[c: no channel ]");
    expect("llama4-pythonic", "[] [x]", "[c:[] [x]]");
    expect("granite-3", " a </response> <response>", "[c: a </response> <response>]");
}

static void blanks_around_marks_are_not_told(void **state) {
    (void)state;
    expect("hermes", " <think> a  b </think>\n\n c  d\n", "[t:a  b][c:c  d\n]");
    expect("hermes", "a\n <tool_call>\n{\"name\":\"f\"}\n</tool_call>\n\nb ",
           "[c:a][call 0 f][a:{}][c:b ]");
    expect("hermes", "a\n <tool_call>\n{f}\n", "[c:a\n <tool_call>\n{f}\n]");
    expect("hunyuan", "<answer>\n a \n</answer>\n", "[c:a]");
}

static void nothing_is_held_that_cannot_be_a_mark(void **state) {
    (void)state;
    struct weft_msg_setup setup = setup_of("hermes");
    joins = false;
    parse(&setup, "a <b <to", 1);
    assert_string_equal(weft_buf_cstr(&heard), "[c:a][c: <b][c: <to]");
    parse(&setup, "a <tool_call b", 4);
    assert_string_equal(weft_buf_cstr(&heard), "[c:a][c: <tool_call b]");
}

static void thoughts_open_at_the_beginning_only(void **state) {
    (void)state;
    struct weft_msg_setup setup = setup_of("think");
    expect("think", "a<think>b</think>", "[c:a<think>b</think>]");
    expect("think", "<think>a", "[t:a]");
    expect("think", "<think></think>", "");
    setup.prompt_end = str("assistant\n<think>\n");
    expect_of(&setup, "a</think>b", "[t:a][c:b]");
    expect_of(&setup, "\n<think>a</think>b</think>", "[t:a][c:b</think>]");
    expect_of(&setup, "a </thin", "[t:a </thin]");
    setup.prompt_end = str("<think>\n\n</think>\n\n");
    expect_of(&setup, "a</think>b", "[c:a</think>b]");
    setup.prompt_end = str("What is <think>?\nassistant\n");
    expect_of(&setup, "a", "[c:a]");
    setup = setup_of("mistral-args");
    setup.prompt_end = str("[THINK]");
    expect_of(&setup, "a[/THINK]b", "[t:a][c:b]");
}

static void a_parser_knows_whether_it_reads_thoughts(void **state) {
    (void)state;
    static const struct {
        const char *format, *prompt_end, *output;
        bool thinks;
    } cases[] = {
        {"hermes", "", "", false},
        {"hermes", "<think>", "", true},
        {"hermes", "", "<think>", true},
        {"hermes", "", "<think>a</thi", true},
        {"hermes", "", "<think>a</think>", false},
        {"gpt-oss", "", "<|channel|>analysis<|message|>", true},
        {"gpt-oss", "", "<|channel|>analysis<|message|>a<|end|>", false},
        {"gpt-oss", "<|channel|>analysis<|message|>", "a", true},
        {"gpt-oss", "<|channel|>final<|message|>", "a", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weft_msg_setup setup = setup_of(cases[i].format);
        weft_msg_parser *parser;
        setup.prompt_end = str(cases[i].prompt_end);
        assert_int_equal(weft_msg_parser_new(&setup, &parser), WEFT_OK);
        assert_int_equal(weft_msg_push(parser, str(cases[i].output), hear, NULL), WEFT_OK);
        assert_int_equal(weft_msg_is_thinking(parser), cases[i].thinks);
        weft_msg_parser_free(parser);
    }
}

/* ----------------------------------------------------------------------------------- calls --- */

static void without_tools_calls_are_content(void **state) {
    (void)state;
    static const char *const outputs[][2] = {
        {"hermes", "a <tool_call>{\"name\": \"f\"}</tool_call>"},
        {"llama3-json", "{\"name\": \"f\", \"parameters\": {}}"},
        {"gpt-oss", "<|channel|>commentary to=functions.f<|message|>{}"},
        {"llama4-pythonic", "[f()]"},
        {"qwen3-coder", "<function=f></function>"},
    };
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        char want[256];
        struct weft_msg_setup setup = setup_of(outputs[i][0]);
        setup.tools = NULL;
        (void)snprintf(want, sizeof want, "[c:%s]", outputs[i][1]);
        expect_of(&setup, outputs[i][1], want);
    }
}

static void bare_calls_are_of_given_tools_and_begin_the_answer(void **state) {
    (void)state;
    expect("llama3-json", "\n{\"name\": \"f\", \"parameters\": {}}\n", "[call 0 f][a:{}]");
    expect("llama3-json", "{\"name\": \"no\", \"parameters\": {}}",
           "[c:{\"name\": \"no\", \"parameters\": {}}]");
    expect("llama3-json", "{\"name\": \"f\"}", "[c:{\"name\": \"f\"}]");
    expect("llama3-json", "<|python_tag|>{\"name\": \"no\"}", "[call 0 no][a:{}]");
    expect("llama3-json", "a {\"name\": \"f\", \"parameters\": {}}",
           "[c:a {\"name\": \"f\", \"parameters\": {}}]");
    expect("llama3-json", "{\"name\": \"f\", \"parameters\": {}}; and",
           "[call 0 f][a:{}][c:; and]");
    expect("llama4-pythonic", "[f(), no()]", "[c:[f(), no()]]");
    expect("llama4-pythonic", "[f(), g(s='a')] b",
           "[call 0 f][a:{}][call 1 g][a:{\"s\": \"a\"}][c:b]");
    expect("qwen3-coder", "<function=no></function>", "[c:<function=no></function>]");
    expect("qwen3-coder", "a\n<function=f></function>", "[c:a][call 0 f][a:{}]");
}

static void broken_calls_are_content_and_those_before_them_stay(void **state) {
    (void)state;
    expect("mistral-old", "[TOOL_CALLS][{\"name\": \"f\"}, {\"name\": 5}] a",
           "[call 0 f][a:{}][c:{\"name\": 5}] a]");
    expect("granite-3", "<|tool_call|>[{\"name\": \"f\", \"arguments\": [1]}]",
           "[c:<|tool_call|>[{\"name\": \"f\", \"arguments\": [1]}]]");
    expect("hermes", "<tool_call>{\"arguments\": {}}</tool_call>",
           "[c:<tool_call>{\"arguments\": {}}</tool_call>]");
    expect("hermes", "<tool_call>{\"name\": \"\"}</tool_call>",
           "[c:<tool_call>{\"name\": \"\"}</tool_call>]");
    expect("hermes", "<tool_call><tool_call>{\"name\": \"f\"}</tool_call>",
           "[c:<tool_call>][call 0 f][a:{}]");
    expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\xff\"}}",
           "[c:<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\xff\"}}]");
    expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud800\"}}",
           "[c:<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud800\"}}]");
    expect("kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_end|>",
           "[c:<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_end|>]");
    expect("gpt-oss", "<|channel|>commentary to=functions.f<|message|>{a}<|call|>",
           "[c:<|channel|>commentary to=functions.f<|message|>{a}]");
}

static void ids_are_those_of_the_output(void **state) {
    (void)state;
    expect("command-r7b",
           "<|START_ACTION|>[{\"tool_call_id\": \"12\", \"tool_name\": \"f\"}, {\"name\": \"f\", "
           "\"id\": 3}, {\"tool_name\": \"g\"}]<|END_ACTION|>",
           "[call 0 f 12][a:{}][call 1 f 3][a:{}][call 2 g][a:{}]");
    expect("kimi-k2", "<|tool_call_begin|>functions.a.b:10<|tool_call_argument_begin|>{}",
           "[call 0 a.b functions.a.b:10][a:{}]");
}

static void arguments_keep_their_spelling_and_are_objects(void **state) {
    (void)state;
    expect("hermes",
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\":123456789012345678901, \"b\" : "
           "1.50e+3}}",
           "[call 0 f][a:{\"a\":123456789012345678901, \"b\" : 1.50e+3}]");
    expect("hermes", "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>",
           "[call 0 f][a:{\"a\": 1}]");
    expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": null}", "[call 0 f][a:{}]");
    expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \" {} \"}", "[call 0 f][a:{}]");
    expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}",
           "[call 0 f][a:{\"a\": 1}]");
    expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"a\"}",
           "[c:<tool_call>{\"name\": \"f\", \"arguments\": \"a\"}]");
    expect("mistral-args", "[TOOL_CALLS]f{\"a\": 1}[TOOL_CALLS]g[CALL_ID]012345678[ARGS]{}",
           "[call 0 f][a:{\"a\": 1}][call 1 g 012345678][a:{}]");
    expect("lfm2",
           "<|tool_call_start|>[f(a=(1, 'x\\ty'), b={'k': None,}, c=-1.5)]<|tool_call_end|>",
           "[call 0 f][a:{\"a\": [1, \"x\\ty\"], \"b\": {\"k\": null}, \"c\": -1.5}]");
}

static void values_in_braces_become_json(void **state) {
    (void)state;
#define GEMMA(text) "<|tool_call>call:f{" text "}<tool_call|>"
    static const char *const cases[][2] = {
        {"", "{}"},
        {"a:1", "{\"a\": 1}"},
        {"a:<|\"|>x<|\"|>,b:true", "{\"a\": \"x\", \"b\": true}"},
        {"a:<|\"|>say \"hi\", {<|no|>} <|\"\n\\<|\"|>",
         "{\"a\": \"say \\\"hi\\\", {<|no|>} <|\\\"\\n\\\\\"}"},
        {"a:[1,-2.5e3,<|\"|><<|\"|>,null],b:{c:{},<|\"|>d e<|\"|>:[]}",
         "{\"a\": [1, -2.5e3, \"<\", null], \"b\": {\"c\": {}, \"d e\": []}}"},
        {"\"a\": \"\\u00e9\\n\", \"b\" : [ true , ] ,", "{\"a\": \"\\u00e9\\n\", \"b\": [true]}"},
        {"\xc3\xbc-x.y:<|\"|>\xe2\x82\xac<|\"|>", "{\"\xc3\xbc-x.y\": \"\xe2\x82\xac\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char output[256], told[256];
        (void)snprintf(output, sizeof output, "<|tool_call>call:f{%s}<tool_call|>", cases[i][0]);
        (void)snprintf(told, sizeof told, "[call 0 f][a:%s]", cases[i][1]);
        expect("gemma-4", output, told);
    }
    expect("gemma-4", "<|channel>thought\nHm.\n<channel|>So: " GEMMA("a:1") "\n" GEMMA(""),
           "[t:Hm.][c:So:][call 0 f][a:{\"a\": 1}][call 1 f][a:{}]");
    static const char *const broken[] = {GEMMA("a"),
                                         GEMMA("a:"),
                                         GEMMA("a:yes"),
                                         GEMMA("a:1,,b:2"),
                                         GEMMA("a:<|'|>x<|'|>"),
                                         GEMMA(":1"),
                                         GEMMA("a:[1}"),
                                         GEMMA("a:1]"),
                                         GEMMA("a:01"),
                                         "<|tool_call>f{}<tool_call|>",
                                         "<|tool_call>call:{}<tool_call|>"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char told[256];
        (void)snprintf(told, sizeof told, "[c:%s]", broken[i]);
        expect("gemma-4", broken[i], told);
    }
#undef GEMMA
}

static void answers_of_ernie_stand_between_tags(void **state) {
    (void)state;
    expect("ernie-4.5", "<think>\nHm.\n</think>\n\n<response>\nSo it is.\n</response>\n",
           "[t:Hm.][c:So it is.]");
    expect("ernie-4.5", "No tags, no thoughts.", "[c:No tags, no thoughts.]");
    expect("ernie-4.5",
           "<think>\nHm.\n</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
           "1}}\n</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
           "[t:Hm.][call 0 f][a:{\"a\": 1}][call 1 g][a:{}]");
    expect("ernie-4.5", "<response>\nFirst.\n</response>\n<tool_call>{\"name\": \"f\"}</tool_call>",
           "[c:First.][call 0 f][a:{}]");
    expect("ernie-4.5", "<response>\nNever closed", "[c:Never closed]");
}

/* -------------------------------------------------------------------------------- schemas --- */

static void expect_typed(const char *key, const char *value, const char *want) {
    char output[512], told[512];
    (void)snprintf(output, sizeof output,
                   "<minimax:tool_call><invoke name=\"typed\"><parameter name=\"%s\">%s</parameter>"
                   "</invoke></minimax:tool_call>",
                   key, value);
    (void)snprintf(told, sizeof told, "[call 0 typed][a:{\"%s\": %s}]", key, want);
    expect("minimax-m2", output, told);
}

static void values_in_tags_have_the_types_of_the_schema(void **state) {
    (void)state;
    expect_typed("text", "12", "\"12\"");
    expect_typed("text", " a\n\"b\" <c ", "\" a\\n\\\"b\\\" <c \"");
    expect_typed("text", "null", "\"null\"");
    expect_typed("whole", " 12\n", "12");
    expect_typed("whole", "7.0", "7.0");
    expect_typed("whole", "7.5", "\"7.5\"");
    expect_typed("whole", "twelve", "\"twelve\"");
    expect_typed("number", "1e400", "1e400");
    expect_typed("number", "3", "3");
    expect_typed("flag", "True", "true");
    expect_typed("flag", "no", "\"no\"");
    expect_typed("maybe", "None", "null");
    expect_typed("maybe", "5", "5");
    expect_typed("maybe", "five", "\"five\"");
    expect_typed("either", "null", "null");
    expect_typed("either", "5", "\"5\"");
    expect_typed("object", "{'a': [True, (1,)]}", "{\"a\": [true, [1]]}");
    expect_typed("object", "[1]", "\"[1]\"");
    expect_typed("far", "{\"a\": 1}", "{\"a\": 1}");
    expect_typed("one_of", "2", "2");
    expect_typed("one_of", "b", "\"b\"");
    expect_typed("fixed", "2", "2");
    expect_typed("round", "[1]", "[1]");
    expect_typed("unknown", "[1, 2]", "[1, 2]");
    expect_typed("unknown", "\"a\"", "\"\\\"a\\\"\"");
    expect_typed("unknown", "True", "\"True\"");
    expect_typed("unknown", "", "\"\"");
}

static void attributes_of_tags_say_types_too(void **state) {
    (void)state;
    expect("deepseek-v3.2",
           "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\">"
           "<｜DSML｜parameter name=\"a\" string=\"true\">1</｜DSML｜parameter>"
           "<｜DSML｜parameter name=\"b\" string=\"false\">1</｜DSML｜parameter>"
           "<｜DSML｜parameter name=\"c\" string=\"false\">x</｜DSML｜parameter>"
           "</｜DSML｜invoke></｜DSML｜function_calls>",
           "[call 0 f][a:{\"a\": \"1\", \"b\": 1, \"c\": \"x\"}]");
}

/* ---------------------------------------------------------------------------- constrained --- */

static void constrained_calls_are_told_as_they_come(void **state) {
    (void)state;
    struct weft_msg_setup setup = setup_of("hermes");
    setup.is_constrained = true;
    joins = false;
    parse(&setup, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 12}}\n</tool_call>", 9);
    assert_string_equal(weft_buf_cstr(&heard), "[call 0 f][a:{\"a\": ][a:12}]");
    joins = true;
    expect_of(&setup, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, 2",
              "[call 0 f][a:{\"a\": [1, 2]");
    setup = setup_of("qwen3-coder");
    setup.is_constrained = true;
    expect_of(&setup, "<tool_call>\n<function=typed>\n<parameter=text>\na\nb\n<",
              "[call 0 typed][a:{\"text\": \"a\\nb\\n<]");
    expect_of(&setup, "<tool_call>\n<function=typed>\n<parameter=whole>\n12\n</par",
              "[call 0 typed][a:{\"whole\": ]");
    static const char *const ends[] = {"", "\n<", "\n<par", "\n</functi", "\n</function>\n</tool"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char text[128];
        (void)snprintf(text, sizeof text,
                       "<tool_call>\n<function=typed>\n<parameter=whole>\n12\n</parameter>%s",
                       ends[i]);
        expect_of(&setup, text,
                  i < 4 ? "[call 0 typed][a:{\"whole\": 12]" : "[call 0 typed][a:{\"whole\": 12}]");
    }
    setup = setup_of("hermes");
    setup.is_constrained = true;
    expect_of(&setup, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_c",
              "[call 0 f][a:{}]");
    setup = setup_of("gpt-oss");
    setup.is_constrained = true;
    expect_of(&setup, "<|channel|>commentary to=functions.f<|message|>{}<|ca", "[call 0 f][a:{}]");
    setup = setup_of("llama4-pythonic");
    setup.is_constrained = true;
    expect_of(&setup, "[f(a='x', b=[1", "[call 0 f][a:{\"a\": \"x\", \"b\": [1]");
    setup = setup_of("mistral-old"); /* the first arguments count */
    setup.is_constrained = true;
    expect_of(&setup,
              "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"arguments\": {\"a\": 1}}]",
              "[call 0 f][a:{}]");
}

static void it_is_over_after_as_many_calls_as_may_be(void **state) {
    (void)state;
    struct weft_msg_setup setup = setup_of("mistral-old");
    weft_msg_parser *parser;
    setup.calls_max = 1;
    weft_buf_clear(&heard);
    assert_int_equal(weft_msg_parser_new(&setup, &parser), WEFT_OK);
    struct weft_str text = str("[TOOL_CALLS][{\"name\": \"f\"}");
    assert_int_equal(weft_msg_push(parser, text, hear, NULL), WEFT_OK);
    assert_true(weft_msg_is_over(parser));
    assert_int_equal(weft_msg_calls(parser), 1);
    assert_int_equal(weft_msg_push(parser, str(", {\"name\": \"g\"}] a"), hear, NULL), WEFT_OK);
    assert_int_equal(weft_msg_finish(parser, hear, NULL), WEFT_OK);
    assert_int_equal(weft_msg_calls(parser), 1);
    assert_string_equal(weft_buf_cstr(&heard), "[call 0 f][a:{}]");
    weft_msg_parser_free(parser);
    setup = setup_of("llama4-pythonic");
    setup.calls_max = 1;
    expect_of(&setup, "[f(), g()]", "[call 0 f][a:{}]");
}

/* ----------------------------------------------------------------------------------- bounds --- */

static size_t n_told;

static void count(void *context, const struct weft_msg_event *event) {
    (void)context;
    assert_int_equal(event->kind, WEFT_MSG_CONTENT);
    n_told += event->text.len;
}

/* Byte by byte, so that reading anything twice would show. */
static void calls_that_are_too_long_are_content(void **state) {
    (void)state;
    static const char *const begins[][2] = {
        {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \""},
        {"qwen3-coder", "<tool_call><function=typed><parameter=text>"},
        {"gpt-oss", "<|channel|>commentary to=functions.f<|message|>{\"a\": \""},
        {"llama4-pythonic", "[f(a='"},
        {"hermes", "<tool_call>"},
        {"hermes", ""},
    };
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        struct weft_msg_setup setup = setup_of(begins[i][0]);
        weft_msg_parser *parser;
        size_t n = strlen(begins[i][1]);
        bool has_blanks = i >= 4;
        n_told = 0;
        assert_int_equal(weft_msg_parser_new(&setup, &parser), WEFT_OK);
        assert_int_equal(weft_msg_push(parser, str(begins[i][1]), count, NULL), WEFT_OK);
        for (; n < WEFT_MSG_CALL_BYTES_MAX + 1000; n++)
            assert_int_equal(weft_msg_push(parser, str(has_blanks ? " " : "x"), count, NULL),
                             WEFT_OK);
        assert_true(n_told > WEFT_MSG_CALL_BYTES_MAX - 1000);
        assert_int_equal(weft_msg_finish(parser, count, NULL), WEFT_OK);
        assert_int_equal(n_told, n);
        weft_msg_parser_free(parser);
    }
}

static void depth_is_bounded(void **state) {
    (void)state;
    char output[1024] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ";
    size_t len = strlen(output);
    memset(output + len, '[', 200);
    struct weft_msg_setup setup = setup_of("hermes");
    char want[1100];
    (void)snprintf(want, sizeof want, "[c:%s]", output);
    expect_of(&setup, output, want);
    setup = setup_of("lfm2");
    (void)snprintf(output, sizeof output, "<|tool_call_start|>[f(a=");
    memset(output + strlen(output), '[', 200);
    (void)snprintf(want, sizeof want, "[c:%s]", output);
    expect_of(&setup, output, want);
}

/* ---------------------------------------------------------------------------------- tools --- */

static void expect_fault(const char *list, weft_err err, const char *words) {
    struct weft_errmsg why = {""};
    weft_msg_tools *made = NULL;
    json_t *root = json_loads(list, JSON_DECODE_ANY, NULL);
    assert_non_null(root);
    assert_int_equal(weft_msg_tools_new(root, &made, &why), err);
    assert_null(made);
    assert_non_null(strstr(why.text, words));
    json_decref(root);
}

static void tools_that_are_none_are_named(void **state) {
    (void)state;
    expect_fault("5", WEFT_E_INVAL, "no list");
    expect_fault("[5]", WEFT_E_INVAL, "tool 0 is no object");
    expect_fault("[{\"type\": \"web_search\"}]", WEFT_E_INVAL, "tool 0 is no function");
    expect_fault("[{}]", WEFT_E_INVAL, "tool 0 has no object \"function\"");
    expect_fault("[{\"function\": {}}]", WEFT_E_INVAL, "tool 0 has no name");
    expect_fault("[{\"function\": {\"name\": \"a\\nb\"}}]", WEFT_E_INVAL, "tool 0 has a control");
    expect_fault("[{\"function\": {\"name\": \"a\", \"parameters\": 5}}]", WEFT_E_INVAL, "tool a");
    assert_int_equal(weft_msg_tools_count(tools), 3);
}

/* --------------------------------------------------------------------------------- formats --- */

static void formats_are_told_by_templates(void **state) {
    (void)state;
    static const char *const sources[][2] = {
        {"", "hermes"},
        {"<tool_call>", "hermes"},
        {"<tool_call> <function= <parameter=", "qwen3-coder"},
        {"<tool_call> <arg_key>", "glm-4.5"},
        {"<|start_of_role|> <tool_call>", "granite-4"},
        {"<|start_of_role|> <|tool_call|>", "granite-3"},
        {"[TOOL_CALLS]", "mistral-old"},
        {"[TOOL_CALLS] [ARGS]", "mistral-args"},
        {"<|tool_list_start|>", "lfm2"},
        {"List of tools: [", "lfm2"},
        {"<tool_call> <response>", "ernie-4.5"},
        {"<|start_header_id|> \"parameters\"", "llama3-json"},
        {"<|header_start|> \"parameters\"", "llama4-pythonic"},
        {"<|tool_call> <tool_call|>", "gemma-4"},
        {"<｜tool▁calls▁begin｜>", "deepseek-v3.1"},
        {"<｜tool▁calls▁begin｜> ```json", "deepseek-v3"},
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        const weft_msg_format *format = weft_msg_format_of_template(str(sources[i][0]));
        assert_string_equal(weft_msg_format_name(format), sources[i][1]);
        assert_non_null(strstr(weft_msg_format_names(), sources[i][1]));
    }
    assert_null(weft_msg_format_named(str("no")));
    assert_ptr_equal(weft_msg_format_named(str("llama3_json")),
                     weft_msg_format_named(str("llama3-json")));
    assert_ptr_equal(weft_msg_format_named(str("openai")), weft_msg_format_named(str("gpt-oss")));
    const weft_msg_format *hermes = weft_msg_format_named(str("hermes"));
    assert_true(weft_msg_is_mark(hermes, str("<think>")));
    assert_false(weft_msg_is_mark(hermes, str("<think")));
}

/* ------------------------------------------------------------------------------------- all --- */

static const char tools_text[] =
    "[{\"function\": {\"name\": \"f\"}}, {\"type\": \"function\", \"function\": {\"name\": \"g\", "
    "\"parameters\": null}}, {\"function\": {\"name\": \"typed\", \"parameters\": {\"properties\": "
    "{"
    "\"text\": {\"type\": \"string\"}, \"whole\": {\"type\": \"integer\"}, "
    "\"number\": {\"type\": \"number\"}, \"flag\": {\"type\": \"boolean\"}, "
    "\"maybe\": {\"type\": [\"integer\", \"null\", \"string\"]}, "
    "\"either\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}, "
    "\"object\": {\"type\": \"object\"}, \"far\": {\"$ref\": \"#/$defs/a~1b\"}, "
    "\"one_of\": {\"enum\": [1, 2, \"b\"]}, \"fixed\": {\"const\": 2}, "
    "\"round\": {\"$ref\": \"#/properties/round\"}}, "
    "\"$defs\": {\"a/b\": {\"oneOf\": [{\"properties\": {}}, {\"items\": {}}]}}}}}]";

static int set_up(void **state) {
    (void)state;
    json_t *list = json_loads(tools_text, 0, NULL);
    weft_buf_init(&heard, HEARD_BYTES_MAX);
    int err = list ? (int)weft_msg_tools_new(list, &tools, NULL) : 1;
    json_decref(list);
    return err;
}

static int tear_down(void **state) {
    (void)state;
    weft_msg_tools_free(tools);
    weft_buf_fini(&heard);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text_comes_through_byte_for_byte),
        cmocka_unit_test(blanks_around_marks_are_not_told),
        cmocka_unit_test(nothing_is_held_that_cannot_be_a_mark),
        cmocka_unit_test(thoughts_open_at_the_beginning_only),
        cmocka_unit_test(a_parser_knows_whether_it_reads_thoughts),
        cmocka_unit_test(without_tools_calls_are_content),
        cmocka_unit_test(bare_calls_are_of_given_tools_and_begin_the_answer),
        cmocka_unit_test(broken_calls_are_content_and_those_before_them_stay),
        cmocka_unit_test(ids_are_those_of_the_output),
        cmocka_unit_test(arguments_keep_their_spelling_and_are_objects),
        cmocka_unit_test(values_in_braces_become_json),
        cmocka_unit_test(answers_of_ernie_stand_between_tags),
        cmocka_unit_test(values_in_tags_have_the_types_of_the_schema),
        cmocka_unit_test(attributes_of_tags_say_types_too),
        cmocka_unit_test(constrained_calls_are_told_as_they_come),
        cmocka_unit_test(it_is_over_after_as_many_calls_as_may_be),
        cmocka_unit_test(calls_that_are_too_long_are_content),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(tools_that_are_none_are_named),
        cmocka_unit_test(formats_are_told_by_templates),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
