#include "format.h"

#include <string.h>

#include "base/check.h"

#define THINK "<think>", "</think>"

const struct weft_msg_format wefti_msg_formats[] = {
    {.name = "gpt-oss",
     .syntax = WEFTI_MSG_HARMONY,
     .hints = {"<|channel|>"},
     .marks = {"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>",
               "<|constrain|>"}},
    {.name = "deepseek-v3.2",
     .syntax = WEFTI_MSG_INVOKE,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<｜DSML｜function_calls>",
     .close = "</｜DSML｜function_calls>",
     .opens = {"<｜DSML｜tool_calls>"},
     .close_too = "</｜DSML｜tool_calls>",
     .hints = {"｜DSML｜"},
     .marks = {THINK, "｜DSML｜"}},
    {.name = "deepseek-v3",
     .syntax = WEFTI_MSG_NAMED_JSON,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<｜tool▁calls▁begin｜>",
     .close = "<｜tool▁calls▁end｜>",
     .opens = {"<｜tool▁calls｜>", "<｜tool_calls_begin｜>", "<｜tool calls begin｜>"},
     .inner = "<｜tool▁call▁begin｜>",
     .hints = {"<｜tool▁calls▁begin｜>", "```json"},
     .marks = {THINK, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
               "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"}},
    {.name = "deepseek-v3.1",
     .syntax = WEFTI_MSG_NAMED_JSON,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<｜tool▁calls▁begin｜>",
     .close = "<｜tool▁calls▁end｜>",
     .opens = {"<｜tool▁calls｜>", "<｜tool_calls_begin｜>", "<｜tool calls begin｜>"},
     .inner = "<｜tool▁call▁begin｜>",
     .hints = {"<｜tool▁calls▁begin｜>"},
     .marks = {THINK, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
               "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"}},
    {.name = "kimi-k2",
     .syntax = WEFTI_MSG_NAMED_JSON,
     .ids = WEFT_MSG_IDS_NUMBER,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<|tool_calls_section_begin|>",
     .close = "<|tool_calls_section_end|>",
     .inner = "<|tool_call_begin|>",
     .hints = {"<|tool_calls_section_begin|>"},
     .marks = {THINK, "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
               "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"}},
    {.name = "minimax-m2",
     .syntax = WEFTI_MSG_INVOKE,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<minimax:tool_call>",
     .close = "</minimax:tool_call>",
     .inner = "<invoke name=",
     .is_inner_bare = true,
     .hints = {"<minimax:tool_call>"},
     .marks = {THINK, "<minimax:tool_call>", "</minimax:tool_call>"}},
    {.name = "seed-oss",
     .syntax = WEFTI_MSG_FUNCTION,
     .think_begin = "<seed:think>",
     .think_end = "</seed:think>",
     .open = "<seed:tool_call>",
     .close = "</seed:tool_call>",
     .inner = "<function=",
     .is_inner_bare = true,
     .hints = {"seed:tool_call"},
     .marks = {"<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"}},
    {.name = "glm-4.5",
     .syntax = WEFTI_MSG_PAIRS,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .hints = {"<arg_key>"},
     .marks = {THINK, "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",
               "</arg_value>"}},
    {.name = "qwen3-coder",
     .syntax = WEFTI_MSG_FUNCTION,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .inner = "<function=",
     .is_inner_bare = true,
     .hints = {"<function=", "<parameter="},
     .marks = {THINK, "<tool_call>", "</tool_call>"}},
    {.name = "command-r7b",
     .syntax = WEFTI_MSG_JSON_LIST,
     .think_begin = "<|START_THINKING|>",
     .think_end = "<|END_THINKING|>",
     .open = "<|START_ACTION|>",
     .close = "<|END_ACTION|>",
     .answer_begin = "<|START_RESPONSE|>",
     .answer_end = "<|END_RESPONSE|>",
     .hints = {"<|START_ACTION|>"},
     .marks = {"<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>",
               "<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
    {.name = "gemma-4",
     .syntax = WEFTI_MSG_BRACES,
     .think_begin = "<|channel>thought",
     .think_end = "<channel|>",
     .open = "<|tool_call>",
     .close = "<tool_call|>",
     .hints = {"<|tool_call>", "<tool_call|>"},
     .marks = {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>"}},
    {.name = "lfm2",
     .syntax = WEFTI_MSG_PYTHON,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>",
     .hints = {"<|tool_call_start|>"},
     .hints_too = {"<|tool_list_start|>", "List of tools: ["}, /* LFM2.5 names no mark */
     .marks = {THINK, "<|tool_call_start|>", "<|tool_call_end|>"}},
    {.name = "mistral-args",
     .syntax = WEFTI_MSG_NAMED_JSON,
     .ids = WEFT_MSG_IDS_NINE,
     .think_begin = "[THINK]",
     .think_end = "[/THINK]",
     .open = "[TOOL_CALLS]",
     .hints = {"[TOOL_CALLS]", "[ARGS]"},
     .marks = {"[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}},
    {.name = "mistral-old",
     .syntax = WEFTI_MSG_JSON_LIST,
     .ids = WEFT_MSG_IDS_NINE,
     .think_begin = "[THINK]",
     .think_end = "[/THINK]",
     .open = "[TOOL_CALLS]",
     .hints = {"[TOOL_CALLS]"},
     .marks = {"[THINK]", "[/THINK]", "[TOOL_CALLS]"}},
    {.name = "nemotron",
     .syntax = WEFTI_MSG_JSON_LIST,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<TOOLCALL>",
     .close = "</TOOLCALL>",
     .hints = {"<TOOLCALL>"},
     .marks = {THINK, "<TOOLCALL>", "</TOOLCALL>"}},
    {.name = "hunyuan",
     .syntax = WEFTI_MSG_JSON_LIST,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<tool_calls>",
     .close = "</tool_calls>",
     .answer_begin = "<answer>",
     .answer_end = "</answer>",
     .hints = {"<tool_calls>"},
     .marks = {THINK, "<tool_calls>", "</tool_calls>", "<answer>", "</answer>"}},
    {.name = "phi-4-mini",
     .syntax = WEFTI_MSG_JSON_LIST,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<|tool_call|>",
     .close = "<|/tool_call|>",
     .opens = {"functools"},
     .hints = {"<|/tool|>"},
     .marks = {THINK, "<|tool_call|>", "<|/tool_call|>"}},
    {.name = "granite-3",
     .syntax = WEFTI_MSG_JSON_LIST,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<|tool_call|>",
     .opens = {"<tool_call>"},
     .close_too = "</tool_call>",
     .answer_begin = "<response>",
     .answer_end = "</response>",
     .think_begin_too = "Here is my thought process:",
     .think_end_too = "Here is my response:",
     .hints = {"<|tool_call|>"},
     .marks = {THINK, "<|tool_call|>", "<response>", "</response>"}},
    {.name = "granite-4",
     .syntax = WEFTI_MSG_JSON_OBJECT,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .hints = {"<tool_call>", "<|start_of_role|>"},
     .marks = {THINK, "<tool_call>", "</tool_call>"}},
    {.name = "ernie-4.5",
     .syntax = WEFTI_MSG_JSON_OBJECT,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .answer_begin = "<response>",
     .answer_end = "</response>",
     .hints = {"<tool_call>", "<response>"},
     .marks = {THINK, "<tool_call>", "</tool_call>", "<response>", "</response>"}},
    {.name = "hermes",
     .syntax = WEFTI_MSG_JSON_OBJECT,
     .think_begin = "<think>",
     .think_end = "</think>",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .hints = {"<tool_call>"},
     .marks = {THINK, "<tool_call>", "</tool_call>"}},
    {.name = "llama4-pythonic",
     .syntax = WEFTI_MSG_PYTHON,
     .open = "<|python_start|>",
     .close = "<|python_end|>",
     .is_inner_bare = true,
     .hints = {"<|python_start|>"},
     .hints_too = {"<|header_start|>"},
     .marks = {"<|python_start|>", "<|python_end|>"}},
    {.name = "llama3-json",
     .syntax = WEFTI_MSG_JSON_BARE,
     .open = "<|python_tag|>",
     .hints = {"\"parameters\"", "<|start_header_id|>"},
     .marks = {"<|python_tag|>"}},
    {.name = "think",
     .syntax = WEFTI_MSG_NO_CALLS,
     .think_begin = "<think>",
     .think_end = "</think>",
     /* Calls that are required are asked for in hermes' spelling. */
     .open = "<tool_call>",
     .close = "</tool_call>",
     .marks = {THINK, "<tool_call>", "</tool_call>"}},
    {.name = NULL},
};

/* --------------------------------------------------------------------------------- by names --- */

static bool is_text(struct weft_str a, const char *b) {
    size_t len = strlen(b);
    return a.len == len && memcmp(a.data, b, len) == 0;
}

/* vLLM's names for the same formats. */
static const struct {
    const char *name, *ours;
} aliases[] = {
    {"command_r7b", "command-r7b"},
    {"deepseek_v3", "deepseek-v3"},
    {"deepseek_v31", "deepseek-v3.1"},
    {"deepseek_v32", "deepseek-v3.2"},
    {"ernie45", "ernie-4.5"},
    {"gemma4", "gemma-4"},
    {"glm45", "glm-4.5"},
    {"glm47", "glm-4.5"},
    {"openai", "gpt-oss"},
    {"granite", "granite-3"},
    {"granite4", "granite-4"},
    {"hunyuan_a13b", "hunyuan"},
    {"kimi_k2", "kimi-k2"},
    {"llama3_json", "llama3-json"},
    {"llama4_pythonic", "llama4-pythonic"},
    {"pythonic", "llama4-pythonic"},
    {"minimax_m2", "minimax-m2"},
    {"mistral", "mistral-args"},
    {"nemotron_json", "nemotron"},
    {"phi4_mini_json", "phi-4-mini"},
    {"qwen3_coder", "qwen3-coder"},
    {"qwen3_xml", "qwen3-coder"},
    {"seed_oss", "seed-oss"},
};

static struct weft_str without_alias(struct weft_str name) {
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        if (is_text(name, aliases[i].name))
            return (struct weft_str){aliases[i].ours, strlen(aliases[i].ours)};
    }
    return name;
}

const weft_msg_format *weft_msg_format_named(struct weft_str name) {
    struct weft_str ours = without_alias(name);
    for (const weft_msg_format *f = wefti_msg_formats; f->name; f++) {
        if (is_text(ours, f->name)) return f;
    }
    return NULL;
}

const char *weft_msg_format_name(const weft_msg_format *format) {
    return format->name;
}

bool weft_msg_has_channels(const weft_msg_format *format) {
    return format->syntax == WEFTI_MSG_HARMONY;
}

enum weft_msg_ids weft_msg_format_ids(const weft_msg_format *format) {
    return format->ids;
}

struct weft_msg_marks weft_msg_thought_marks(const weft_msg_format *format) {
    if (!format->think_begin) return (struct weft_msg_marks){{"", 0}, {"", 0}};
    return (struct weft_msg_marks){{format->think_begin, strlen(format->think_begin)},
                                   {format->think_end, strlen(format->think_end)}};
}

const char *weft_msg_format_names(void) {
    return "command-r7b, deepseek-v3, deepseek-v3.1, deepseek-v3.2, ernie-4.5, gemma-4, glm-4.5, "
           "gpt-oss, "
           "granite-3, "
           "granite-4, hermes, "
           "hunyuan, kimi-k2, lfm2, llama3-json, llama4-pythonic, minimax-m2, mistral-args, "
           "mistral-old, nemotron, "
           "phi-4-mini, qwen3-coder, seed-oss, think";
}

/* ------------------------------------------------------------------------------- by contents --- */

bool weft_msg_is_mark(const weft_msg_format *format, struct weft_str token) {
    for (size_t i = 0; i < WEFTI_MSG_MARKS_MAX && format->marks[i]; i++) {
        if (is_text(token, format->marks[i])) return true;
    }
    return false;
}

static bool has_all(struct weft_str source, const char *const *hints) {
    if (!hints[0]) return false;
    for (size_t i = 0; i < WEFTI_MSG_HINTS_MAX && hints[i]; i++) {
        if (!memmem(source.data, source.len, hints[i], strlen(hints[i]))) return false;
    }
    return true;
}

static bool has_one(struct weft_str source, const char *const hints[2]) {
    for (size_t i = 0; i < 2 && hints[i]; i++) {
        if (memmem(source.data, source.len, hints[i], strlen(hints[i]))) return true;
    }
    return false;
}

const weft_msg_format *weft_msg_format_of_template(struct weft_str source) {
    const weft_msg_format *usual = NULL;
    for (const weft_msg_format *f = wefti_msg_formats; f->name; f++) {
        if (has_all(source, f->hints) || has_one(source, f->hints_too)) return f;
        if (is_text((struct weft_str){"hermes", 6}, f->name)) usual = f;
    }
    WEFT_ASSERT(usual);
    return usual;
}
