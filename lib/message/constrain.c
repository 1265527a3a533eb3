/* What a model may write so that its calls are right, by format. A layout says what stands around a call's name and its
 * arguments; marks in it are special tokens where the model has such. Each tool's schema is written once: calls are
 * told apart by their names, and what repeats is the choice of them all. */
#include "message/message.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "format.h"
#include "loosen.h"
#include "params.h"
#include "tools.h"

/* A compilation each: 1,024 tools take one, and what is to be loosened some twenty. */
#define N_CHECKS 4096u
/* Some seconds'; a hundred tools of MCP servers take a tenth of them. */
#define N_LOOKS (1u << 22)

/* The format's `open` and `close` stand around each call, or around all of them. */
struct layout {
    const char *format;
    bool is_around_all;
    const char
        *before;      /* follows `open`, where that is around all; then after each call `between` */
    const char *call; /* before a name */
    const char *name_end; /* between name and arguments */
    const char *call_end;
    const char *between; /* two calls */
    const char *after;   /* all calls, before `close` */
};

#define QUOTED_LIST(name)                                                                          \
    { name, true, "[", "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]" }
#define QUOTED_OBJECT(name)                                                                        \
    { name, false, "", "\n{\"name\": \"", "\", \"arguments\": ", "}\n", "\n", "" }

static const struct layout layouts[] = {
    QUOTED_OBJECT("hermes"),
    QUOTED_OBJECT("granite-4"),
    QUOTED_OBJECT("ernie-4.5"),
    QUOTED_OBJECT("think"),
    QUOTED_LIST("mistral-old"),
    QUOTED_LIST("nemotron"),
    QUOTED_LIST("hunyuan"),
    QUOTED_LIST("phi-4-mini"),
    QUOTED_LIST("granite-3"),
    {"command-r7b", true, "[\n    ",
     "{\"tool_call_id\": \"" WEFTI_MSG_NUMBER "\", \"tool_name\": \"", "\", \"parameters\": ", "}",
     ",\n    ", "\n]"},
    {"llama3-json", true, "", "{\"name\": \"", "\", \"parameters\": ", "}", "; ", ""},
    {"deepseek-v3", true, "", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",
     "\n```<｜tool▁call▁end｜>", "\n", ""},
    {"deepseek-v3.1", true, "", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
     "", ""},
    {"kimi-k2", true, "", "<|tool_call_begin|>functions.",
     ":" WEFTI_MSG_NUMBER "<|tool_call_argument_begin|>", "<|tool_call_end|>", "", ""},
    {"mistral-args", false, "", "", "[ARGS]", "", "", ""},
    {"qwen3-coder", false, "", "\n<function=", ">\n", "</function>\n", "\n", ""},
    {"seed-oss", false, "", "\n<function=", ">\n", "</function>\n", "\n", ""},
    {"minimax-m2", true, "\n", "<invoke name=\"", "\">\n", "</invoke>\n", "", ""},
    {"deepseek-v3.2", true, "\n", "<｜DSML｜invoke name=\"", "\">\n", "</｜DSML｜invoke>\n", "",
     ""},
    {"glm-4.5", false, "", "", WEFTI_MSG_LINE, "", "\n", ""},
    {"gemma-4", false, "", "call:", "", "", "", ""}, /* arguments in JSON, which is read, too */
    {"lfm2", true, "[", "", "(", ")", ", ", "]"},
    {"llama4-pythonic", true, "[", "", "(", ")", ", ", "]"},
    {"gpt-oss", false, "", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>",
     "<|call|>", "<|start|>assistant", ""},
};

static const struct {
    const char *format;
    struct wefti_msg_writing writing;
} writings[] = {
    {"qwen3-coder", {"<parameter=", ">\n", NULL, "</parameter>", "\n</parameter>\n", false, false}},
    {"seed-oss", {"<parameter=", ">", NULL, "</parameter>", "</parameter>\n", true, false}},
    {"minimax-m2",
     {"<parameter name=\"", "\">", NULL, "</parameter>", "</parameter>\n", false, false}},
    {"deepseek-v3.2",
     {"<｜DSML｜parameter name=\"", "\" string=\"false\">", "\" string=\"true\">",
      "</｜DSML｜parameter>", "</｜DSML｜parameter>\n", false, false}},
    {"glm-4.5",
     {"<arg_key>", "</arg_key>" WEFTI_MSG_LINE "<arg_value>", NULL, "</arg_value>",
      "</arg_value>" WEFTI_MSG_LINE, false, false}},
    {"lfm2", {.is_python = true}},
    {"llama4-pythonic", {.is_python = true}},
};

static const struct layout *layout_of(const struct weft_msg_format *format) {
    const struct layout *layout = NULL;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts && !layout; i++)
        if (!strcmp(layouts[i].format, format->name)) layout = &layouts[i];
    WEFT_ASSERT(layout);
    return layout;
}

static const struct wefti_msg_writing *writing_of(const struct weft_msg_format *format) {
    for (size_t i = 0; i < sizeof writings / sizeof *writings; i++)
        if (!strcmp(writings[i].format, format->name)) return &writings[i].writing;
    return NULL;
}

static const char *text_or_none(const char *text) {
    return text ? text : "";
}

/* ---------------------------------------------------------------------------------------- calls --- */

/* A name that stands between quotes of JSON may be any; others must be what the parser reads up to the next mark. */
static bool is_quoted(const struct wefti_msg_build *b, const struct layout *layout) {
    size_t n = strlen(layout->call);
    return n > 0 && layout->call[n - 1] == '"' && !writing_of(b->wish->format);
}

static bool is_sayable(const struct wefti_msg_build *b, const struct wefti_msg_tool *tool,
                       const struct layout *layout) {
    static const char names[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    const struct wefti_msg_writing *writing = writing_of(b->wish->format);
    if (is_quoted(b, layout)) return true;
    if (writing && writing->is_python) return strspn(tool->name, names) == tool->name_len;
    for (size_t i = 0; i < tool->name_len; i++) {
        unsigned char c = (unsigned char)tool->name[i];
        if (c <= ' ' || c == 0x7f || strchr("<>[]{}()\"'`|", c)) return false;
    }
    return true;
}

static void add_name(struct wefti_msg_build *b, json_t *seq, const struct wefti_msg_tool *tool,
                     const struct layout *layout) {
    if (!is_quoted(b, layout)) {
        wefti_msg_add_text(b, seq, tool->name, tool->name_len);
        return;
    }
    json_t *name = json_stringn(tool->name, tool->name_len);
    char *text = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    if (text)
        wefti_msg_add_text(b, seq, text + 1, strlen(text) - 2);
    else
        b->failed = true;
    free(text);
    json_decref(name);
}

/* From its name on. */
static json_t *tool_node(struct wefti_msg_build *b, const struct wefti_msg_tool *tool,
                         const struct layout *layout) {
    const struct wefti_msg_writing *writing = writing_of(b->wish->format);
    json_t *seq = wefti_msg_seq(b), *schema = wefti_msg_honoured(b, tool->parameters);
    add_name(b, seq, tool, layout);
    wefti_msg_add_spelt(b, seq, layout->name_end);
    if (writing)
        wefti_msg_add(b, seq, wefti_msg_params(b, tool->parameters, schema, writing));
    else
        wefti_msg_add(b, seq, wefti_msg_schema(b, json_incref(schema)));
    json_decref(schema);
    return seq;
}

/* One call, without what `open` already is. */
static json_t *call_node(struct wefti_msg_build *b, const struct layout *layout, bool is_opened) {
    const struct weft_msg_format *format = b->wish->format;
    json_t *seq = wefti_msg_seq(b), *any = wefti_msg_or(b);
    if (!layout->is_around_all && !is_opened)
        wefti_msg_add_spelt(b, seq, text_or_none(format->open));
    wefti_msg_add_spelt(b, seq, layout->call);
    for (uint32_t i = 0; i < b->wish->tools->count && !b->failed; i++) {
        const struct wefti_msg_tool *tool = &b->wish->tools->tools[i];
        if (is_sayable(b, tool, layout)) wefti_msg_add(b, any, tool_node(b, tool, layout));
    }
    wefti_msg_add(b, seq, any);
    wefti_msg_add_spelt(b, seq, layout->call_end);
    if (!layout->is_around_all) wefti_msg_add_spelt(b, seq, text_or_none(format->close));
    return seq;
}

/* All calls of a section, without `open`. */
static json_t *section_node(struct wefti_msg_build *b, const struct layout *layout,
                            bool is_marked) {
    json_t *seq = wefti_msg_seq(b);
    wefti_msg_add_spelt(b, seq, layout->before);
    wefti_msg_add(
        b, seq,
        wefti_msg_separated(b, call_node(b, layout, true), layout->between, b->wish->is_single));
    wefti_msg_add_spelt(b, seq, layout->after);
    if (is_marked) wefti_msg_add_spelt(b, seq, text_or_none(b->wish->format->close));
    return seq;
}

/* Formats whose models write calls without marks. */
static bool is_bare(const struct weft_msg_format *format) {
    return format->syntax == WEFTI_MSG_JSON_BARE || !strcmp(format->name, "llama4-pythonic");
}

static json_t *required_node(struct wefti_msg_build *b, const struct layout *layout) {
    const struct weft_msg_format *format = b->wish->format;
    if (!layout->is_around_all)
        return wefti_msg_separated(b, call_node(b, layout, false), layout->between,
                                   b->wish->is_single);
    json_t *seq = wefti_msg_seq(b);
    if (!is_bare(format)) wefti_msg_add_spelt(b, seq, text_or_none(format->open));
    wefti_msg_add(b, seq, section_node(b, layout, !is_bare(format)));
    return seq;
}

static json_t *auto_node(struct wefti_msg_build *b, const struct layout *layout) {
    json_t *content =
        layout->is_around_all ? section_node(b, layout, true) : call_node(b, layout, true);
    return wefti_msg_triggered(b, b->wish->format->open, content, b->wish->is_single);
}

/* -------------------------------------------------------------------------------------- Harmony --- */

static const char analysis[] = "<|channel|>analysis<|message|>";

/* Text up to the next message of the model. */
static void add_rest_of_message(struct wefti_msg_build *b, json_t *seq) {
    wefti_msg_add(b, seq, wefti_msg_any_text(b));
    wefti_msg_add_spelt(b, seq, "<|end|><|start|>assistant");
}

/* Adds messages before the one that counts: thoughts, and with `is_free` what a user is told before calls. The prompt
 * ends in what begins a message, or has begun thoughts. */
static void add_messages_before(struct wefti_msg_build *b, json_t *all, bool is_free) {
    struct weft_str prompt = b->wish->prompt_end;
    const size_t n = sizeof analysis - 1;
    if (prompt.len >= n && memcmp(prompt.data + prompt.len - n, analysis, n) == 0)
        add_rest_of_message(b, all);
    json_t *seq = wefti_msg_seq(b);
    if (is_free) {
        json_t *channel = wefti_msg_or(b);
        wefti_msg_add(b, channel, wefti_msg_const(b, "analysis", 8));
        wefti_msg_add(b, channel, wefti_msg_const(b, "commentary", 10));
        wefti_msg_add_spelt(b, seq, "<|channel|>");
        wefti_msg_add(b, seq, channel);
        wefti_msg_add_spelt(b, seq, "<|message|>");
    } else {
        wefti_msg_add_spelt(b, seq, analysis);
    }
    add_rest_of_message(b, seq);
    wefti_msg_add(b, all, is_free ? wefti_msg_star(b, seq) : wefti_msg_optional(b, seq));
}

static json_t *harmony_node(struct wefti_msg_build *b, const struct layout *layout) {
    bool is_free = b->wish->choice == WEFT_MSG_AUTO;
    json_t *seq = wefti_msg_seq(b);
    json_t *calls =
        wefti_msg_separated(b, call_node(b, layout, true), layout->between, b->wish->is_single);
    add_messages_before(b, seq, is_free);
    if (is_free) {
        json_t *any = wefti_msg_or(b), *answer = wefti_msg_seq(b);
        wefti_msg_add_spelt(b, answer, "<|channel|>final<|message|>");
        wefti_msg_add(b, answer, wefti_msg_any_text(b));
        wefti_msg_add(b, any, answer);
        wefti_msg_add(b, any, calls);
        calls = any;
    }
    wefti_msg_add(b, seq, calls);
    return seq;
}

/* ---------------------------------------------------------------------------------- all of them --- */

static const struct wefti_msg_tool *first_sayable(const struct wefti_msg_build *b,
                                                  const struct layout *layout) {
    for (uint32_t i = 0; i < b->wish->tools->count; i++)
        if (is_sayable(b, &b->wish->tools->tools[i], layout)) return &b->wish->tools->tools[i];
    return NULL;
}

/* Where a text that begins like one is a call, no mark tells calls from text. And where the form that is asked for is not
 * the model's own, it is asked for only where a call must come. */
static bool has_nothing_to_ask(const struct weft_msg_wish *wish) {
    return wish->choice == WEFT_MSG_AUTO &&
           (wish->format->syntax == WEFTI_MSG_NO_CALLS ||
            wish->format->syntax == WEFTI_MSG_BRACES || is_bare(wish->format));
}

static weft_err write_out(struct wefti_msg_build *b, json_t *format, struct weft_buf *tags_out,
                          struct weft_errmsg *why) {
    struct weft_buf text;
    weft_err err = WEFT_OK;
    json_t *root = json_object();
    wefti_msg_set(b, root, "format", format);
    weft_buf_init(&text, WEFT_GRAMMAR_BYTES_MAX);
    if (!wefti_msg_dump(b, root, &text))
        err = b->failed
                  ? weft_err_set(why, WEFT_E_NOMEM, "no memory for a grammar")
                  : weft_err_set(why, WEFT_E_TOOBIG, "the tools make a grammar of over %u bytes",
                                 WEFT_GRAMMAR_BYTES_MAX);
    if (!err) weft_buf_add(tags_out, text.data, text.len);
    if (!err && tags_out->failed) err = weft_err_set(why, WEFT_E_NOMEM, "no memory for a grammar");
    weft_buf_fini(&text);
    json_decref(root);
    return err;
}

weft_err weft_msg_constrain(const struct weft_msg_wish *wish, struct weft_buf *tags_out,
                            bool *thinks_out, struct weft_errmsg *why) {
    struct wefti_msg_build b = {.wish = wish, .n_checks = N_CHECKS, .n_looks = N_LOOKS};
    const struct layout *layout = layout_of(wish->format);
    weft_buf_clear(tags_out);
    *thinks_out = wish->format->syntax == WEFTI_MSG_HARMONY;
    if (!wish->tools || wish->tools->count == 0)
        return weft_err_set(why, WEFT_E_INVAL, "there are no tools to call");
    const char *first = wish->tools->tools[0].name;
    if (has_nothing_to_ask(wish)) return WEFT_OK;
    if (!first_sayable(&b, layout))
        return weft_err_set(why, WEFT_E_INVAL,
                            "a model of format %s can't write the name of tool \"%.60s\"",
                            wish->format->name, first);
    json_t *format;
    if (*thinks_out)
        format = harmony_node(&b, layout);
    else
        format = wish->choice == WEFT_MSG_AUTO ? auto_node(&b, layout) : required_node(&b, layout);
    if (b.is_cut_off) {
        json_decref(format);
        return weft_err_set(why, WEFT_E_TOOBIG,
                            "the tools' schemas, with all that they refer to, are too large");
    }
    return write_out(&b, format, tags_out, why);
}

weft_err weft_msg_constrain_answer(const struct weft_msg_wish *wish, struct weft_str answer,
                                   struct weft_buf *tags_out, struct weft_errmsg *why) {
    struct wefti_msg_build b = {.wish = wish};
    WEFT_ASSERT(wish->format->syntax == WEFTI_MSG_HARMONY);
    weft_buf_clear(tags_out);
    json_t *format = json_loadb(answer.data, answer.len, JSON_REJECT_DUPLICATES, NULL);
    if (!format) return weft_err_set(why, WEFT_E_INVAL, "the answer's format is no JSON object");
    json_t *seq = wefti_msg_seq(&b);
    add_messages_before(&b, seq, false);
    wefti_msg_add_spelt(&b, seq, "<|channel|>final<|message|>");
    wefti_msg_add(&b, seq, format);
    return write_out(&b, seq, tags_out, why);
}
