/* Models' outputs: the first bytes choose a format, tools, what the prompt opened and how the rest
 * is cut. What pieces say put together is what the whole says; arguments are JSON; nothing of an
 * output without calls is lost. */
#include "fuzz/fuzz.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "inside/message/format.h"
#include "message/message.h"

#define HEAD_BYTES 4
#define TEXT_BYTES_MAX (16u << 20)

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{"
    "\"type\":\"string\"},\"i\":{\"type\":\"integer\"},\"o\":{\"$ref\":\"#/$defs/o\"},\"n\":{"
    "\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"},{\"type\":\"string\"}]}},\"$defs\":{"
    "\"o\":{\"type\":[\"object\",\"array\",\"boolean\"]}}}}},{\"function\":{\"name\":\"g\"}}]";

/* Everything that was told, and each kind alone. */
struct heard {
    struct weft_buf all, thoughts, content, args;
    enum weft_msg_kind last;
    uint32_t n_calls;
    bool is_constrained;
};

static void check_args(struct heard *heard) {
    json_error_t why;
    if (heard->n_calls == 0 || heard->is_constrained) return;
    json_t *args = json_loadb(weft_buf_cstr(&heard->args), heard->args.len, JSON_ALLOW_NUL, &why);
    enum json_error_code code = args ? json_error_unknown : json_error_code(&why);
    WEFT_ASSERT(args || code == json_error_numeric_overflow || code == json_error_null_byte_in_key);
    WEFT_ASSERT(!args || json_is_object(args));
    WEFT_ASSERT(heard->args.data[0] == '{');
    json_decref(args);
    weft_buf_clear(&heard->args);
}

static void hear(void *context, const struct weft_msg_event *event) {
    struct heard *heard = context;
    WEFT_ASSERT(event->text.len > 0);
    if (event->kind == WEFT_MSG_CALL) {
        check_args(heard);
        WEFT_ASSERT(event->call == heard->n_calls++);
        weft_buf_printf(&heard->all, "\ncall '%.*s' ", (int)event->id.len, event->id.data);
    } else if (event->kind != heard->last) {
        weft_buf_printf(&heard->all, "\n%d ", (int)event->kind);
    }
    heard->last = event->kind;
    weft_buf_add(&heard->all, event->text.data, event->text.len);
    struct weft_buf *own = event->kind == WEFT_MSG_THOUGHT     ? &heard->thoughts
                           : event->kind == WEFT_MSG_CONTENT   ? &heard->content
                           : event->kind == WEFT_MSG_ARGUMENTS ? &heard->args
                                                               : NULL;
    if (own == &heard->args) WEFT_ASSERT(event->call + 1 == heard->n_calls);
    if (own) weft_buf_add(own, event->text.data, event->text.len);
}

static void begin(struct heard *heard, bool is_constrained) {
    *heard = (struct heard){.last = WEFT_MSG_CALL, .is_constrained = is_constrained};
    weft_buf_init(&heard->all, TEXT_BYTES_MAX);
    weft_buf_init(&heard->thoughts, TEXT_BYTES_MAX);
    weft_buf_init(&heard->content, TEXT_BYTES_MAX);
    weft_buf_init(&heard->args, TEXT_BYTES_MAX);
}

static void end(struct heard *heard) {
    weft_buf_fini(&heard->all);
    weft_buf_fini(&heard->thoughts);
    weft_buf_fini(&heard->content);
    weft_buf_fini(&heard->args);
}

/* In pieces of up to `step` bytes; 0: whole. */
static void read_output(const struct weft_msg_setup *setup, struct weft_str output, size_t step,
                        struct heard *heard) {
    weft_msg_parser *parser;
    uint64_t rand = step;
    WEFT_ASSERT(weft_msg_parser_new(setup, &parser) == WEFT_OK);
    for (size_t at = 0, n; at < output.len; at += n) {
        n = step ? 1 + weft_rand_below(&rand, (uint32_t)step) : output.len;
        if (n > output.len - at) n = output.len - at;
        WEFT_ASSERT(weft_msg_push(parser, (struct weft_str){output.data + at, n}, hear, heard) ==
                    WEFT_OK);
        (void)weft_msg_is_thinking(parser);
    }
    WEFT_ASSERT(weft_msg_finish(parser, hear, heard) == WEFT_OK);
    WEFT_ASSERT(weft_msg_calls(parser) == heard->n_calls);
    WEFT_ASSERT(setup->calls_max == 0 || setup->is_constrained ||
                heard->n_calls <= setup->calls_max);
    check_args(heard);
    weft_msg_parser_free(parser);
}

static bool has(struct weft_str text, const char *mark) {
    return mark && memmem(text.data, text.len, mark, strlen(mark));
}

/* The bytes of `part` in order, within `text` from *at on. */
static bool is_within(const struct weft_buf *part, struct weft_str text, size_t *at) {
    for (size_t i = 0; i < part->len; i++, ++*at) {
        while (*at < text.len && text.data[*at] != part->data[i])
            ++*at;
        if (*at == text.len) return false;
    }
    return true;
}

static size_t count_seen(const char *text, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += !strchr(" \n\t\r", text[i]) || text[i] == '\0';
    return n;
}

/* What was told comes from the output; and where no mark or empty list was dropped, all of it was told. */
static void check_losses(const struct weft_msg_setup *setup, struct weft_str output,
                         const struct heard *heard) {
    const struct weft_msg_format *format = setup->format;
    size_t at = 0;
    if (format->syntax == WEFTI_MSG_HARMONY) return;
    WEFT_ASSERT(is_within(&heard->thoughts, output, &at));
    WEFT_ASSERT(is_within(&heard->content, output, &at));
    bool drops = has(output, format->think_begin) || has(output, format->think_begin_too) ||
                 has(output, format->answer_begin) || setup->prompt_end.len > 0;
    if (drops || heard->n_calls > 0 ||
        (setup->tools &&
         (has(output, "]") || has(output, format->close) || has(output, format->close_too))))
        return;
    WEFT_ASSERT(count_seen(heard->content.data, heard->content.len) ==
                count_seen(output.data, output.len));
    if (!setup->tools) WEFT_ASSERT(heard->content.len == output.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static weft_msg_tools *tools;
    static size_t n_formats;
    if (!tools) {
        json_t *list = json_loads(tools_text, 0, NULL);
        WEFT_ASSERT(weft_msg_tools_new(list, &tools, NULL) == WEFT_OK);
        json_decref(list);
        while (wefti_msg_formats[n_formats].name)
            n_formats++;
    }
    if (n < HEAD_BYTES) return 0;
    struct weft_msg_setup setup = {.format = &wefti_msg_formats[bytes[0] % n_formats],
                                   .tools = bytes[1] & 1 ? NULL : tools,
                                   .is_constrained = bytes[1] & 2,
                                   .calls_max = bytes[1] & 4 ? 1 + bytes[3] % 3 : 0};
    const char *open = setup.format->think_begin;
    if (bytes[1] & 8 && open) setup.prompt_end = (struct weft_str){open, strlen(open)};
    struct weft_str output = {(const char *)bytes + HEAD_BYTES, n - HEAD_BYTES};
    struct heard whole, cut;
    begin(&whole, setup.is_constrained);
    begin(&cut, setup.is_constrained);
    read_output(&setup, output, 0, &whole);
    read_output(&setup, output, bytes[2] % 16 + 1, &cut);
    WEFT_ASSERT(whole.all.len == cut.all.len);
    WEFT_ASSERT(whole.all.len == 0 || memcmp(whole.all.data, cut.all.data, cut.all.len) == 0);
    if (!setup.is_constrained) check_losses(&setup, output, &whole);
    end(&whole);
    end(&cut);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const struct {
        const char *format, *output;
    } seeds[] = {
        {"hermes", "<think>a</think>\nb <tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": "
                   "\"\\u00e9 </tool_call>\", \"i\": [1, -2.5e3, null]}}\n</tool_call> c"},
        {"think", "<think>\n a \n</think>\n\nb"},
        {"granite-3",
         "Here is my thought process: a Here is my response: b<|tool_call|>[{\"name\": "
         "\"f\", \"arguments\": \"{}\"}, {\"name\": \"g\"}]"},
        {"command-r7b",
         "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n {\"tool_call_id\": "
         "\"0\", \"tool_name\": \"f\", \"parameters\": {\"i\": 1}}\n]<|END_ACTION|>"},
        {"command-r7b", "<|START_RESPONSE|>a <|END_RESPONSE|>"},
        {"llama3-json", "{\"name\": \"f\", \"parameters\": {\"a\": [true]}}; {\"type\": "
                        "\"function\", \"function\": {\"name\": \"g\", \"parameters\": {}}} a"},
        {"llama3-json", "<|python_tag|>f.call(s=\"a\", i=1)"},
        {"llama4-pythonic", "[f(s='a\\'\\x41', i=[1, 2.5, (True,), {'k': None}]), g()]"},
        {"ernie-4.5", "<think>a</think><response>b</response><tool_call>{\"name\": \"f\", "
                      "\"arguments\": {\"s\": \"\"}}</tool_call>"},
        {"gemma-4", "<|channel>thought\na<channel|>b<|tool_call>call:f{s:<|\"|>\xc3\xa9\"<|<|\"|>,"
                    "\"n\":[1,{k:true}]}<tool_call|>c"},
        {"lfm2", "a<|tool_call_start|>[f(s=\"\\ud83d\\ude42\", n=1)]<|tool_call_end|>b"},
        {"mistral-args", "[THINK]a[/THINK][TOOL_CALLS]f[CALL_ID]012345678[ARGS]{\"i\": "
                         "1}[TOOL_CALLS]g{}"},
        {"mistral-old",
         "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"123456789\"}]"},
        {"deepseek-v3",
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
         "{\"s\": \"a\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
        {"deepseek-v3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": \"a\"}"
                          "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
        {"deepseek-v3.2",
         "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
         "name=\"s\" string=\"true\">a</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
         "</｜DSML｜function_calls>"},
        {"kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
                    "<|tool_call_argument_begin|>{\"i\": 1}<|tool_call_end|>"
                    "<|tool_calls_section_end|>"},
        {"qwen3-coder", "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=o>\n"
                        "{'a': True}\n</parameter>\n</function>\n</tool_call>\n<function=g>"
                        "</function>"},
        {"minimax-m2", "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"n\">null"
                       "</parameter>\n</invoke>\n</minimax:tool_call>"},
        {"glm-4.5", "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a</arg_value>\n<arg_key>i"
                    "</arg_key><arg_value>7.0</arg_value></tool_call>"},
        {"hunyuan", "<tool_calls><tool_call>f\n```json\n{}\n```</tool_call></tool_calls><answer>"
                    "a</answer>"},
        {"gpt-oss", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
                    "to=functions.f <|constrain|>json<|message|>{\"i\": 1}<|call|><|start|>"
                    "assistant<|channel|>final<|message|>b<|return|>"},
        {"phi-4-mini", "functools[{\"name\": \"f\", \"arguments\": {}}]<|tool_call|>{\"name\": "
                       "\"g\"}<|/tool_call|>"},
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char seed[HEAD_BYTES + 512] = {0};
        const weft_msg_format *format =
            weft_msg_format_named((struct weft_str){seeds[i].format, strlen(seeds[i].format)});
        size_t len = strlen(seeds[i].output);
        WEFT_ASSERT(format && len <= 512);
        seed[0] = (char)(format - wefti_msg_formats);
        memcpy(seed + HEAD_BYTES, seeds[i].output, len);
        for (char flags = 0; flags < 4; flags++) {
            seed[1] = flags;
            add(seed, HEAD_BYTES + len);
        }
    }
}
