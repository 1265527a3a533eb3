/* message: from what a model writes to an assistant's message: its thoughts, its content, the calls of tools; and back:
 * what it may write so that calls are right.
 *
 * Format   One family's way of writing: marks around thoughts and calls, and what stands between them.
 * Parser   Reads one output in pieces of any size and tells events in order; pieces don't change what they say put
 *          together. Nothing is taken back: what may still become a mark, or a call that may still break, is held.
 *          Nothing is lost: a call that is cut off or malformed is content, marks included. Blanks around marks are
 *          not told, other blanks are.
 * Bounds   A call of more than WEFT_MSG_CALL_BYTES_MAX bytes is content.
 * Threads  Formats and tools are const once made; a parser has one owner.
 * Sources  docs/tools.md, docs/reasoning.md.
 */
#ifndef WEFT_MESSAGE_H
#define WEFT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#define WEFT_MSG_CALL_BYTES_MAX (4u << 20)
#define WEFT_MSG_TOOLS_MAX 1024
#define WEFT_MSG_NAME_BYTES_MAX 256

struct json_t; /* jansson's */

/* ---------------------------------------------------------------------------------- formats --- */

typedef struct weft_msg_format weft_msg_format;

/* By its name, "hermes", or vLLM's for it, "llama3_json"; NULL: there is none of that name. */
const weft_msg_format *weft_msg_format_named(struct weft_str name);
/* The one whose marks a chat template's source has; "hermes" without calls in it, where it has none. Never NULL. */
const weft_msg_format *weft_msg_format_of_template(struct weft_str source);
const char *weft_msg_format_name(const weft_msg_format *format);
/* All names, for messages: "command-r7b, deepseek-v3, ...". */
const char *weft_msg_format_names(void);
/* Whether a special token of this text is the parser's to see; any other one is no part of the output. */
bool weft_msg_is_mark(const weft_msg_format *format, struct weft_str token);

/* How the format numbers its calls, where it does. */
enum weft_msg_ids {
    WEFT_MSG_IDS_FREE,   /* "call_" and what a server likes */
    WEFT_MSG_IDS_NINE,   /* nine letters and digits (Mistral) */
    WEFT_MSG_IDS_NUMBER, /* functions.NAME:NUMBER, counted over a conversation (Kimi K2) */
};
enum weft_msg_ids weft_msg_format_ids(const weft_msg_format *format);

/* ------------------------------------------------------------------------------------ tools --- */

typedef struct weft_msg_tools weft_msg_tools;

/* Of OpenAI's list, [{"type": "function", "function": {"name", "description", "parameters"}}, ...], which is copied.
 * Missing and null parameters mean none. INVAL names the tool and its fault; TOOBIG: over WEFT_MSG_TOOLS_MAX. */
WEFT_MUST_CHECK weft_err weft_msg_tools_new(const struct json_t *list, weft_msg_tools **tools_out,
                                            struct weft_errmsg *why);
void weft_msg_tools_free(weft_msg_tools *tools); /* accepts NULL */
uint32_t weft_msg_tools_count(const weft_msg_tools *tools);
size_t weft_msg_tools_bytes(const weft_msg_tools *tools); /* of memory, about; NULL: 0 */

/* ----------------------------------------------------------------------------------- parser --- */

typedef struct weft_msg_parser weft_msg_parser;

struct weft_msg_setup {
    const weft_msg_format *format;
    const weft_msg_tools
        *tools; /* borrowed while the parser lives; NULL: what looks like calls is content */
    struct weft_str
        prompt_end; /* the prompt's last bytes, 256 or all: they may have opened or closed thoughts */
    uint32_t calls_max;  /* it is over after so many complete calls; 0: as many as come */
    bool is_constrained; /* calls fit their grammar: names and arguments are told as they come */
};

enum weft_msg_kind {
    WEFT_MSG_THOUGHT, /* some more of what it thinks */
    WEFT_MSG_CONTENT, /* some more of its answer */
    WEFT_MSG_CALL, /* a call begins: text is the tool's name, id the one that the output carries or "" */
    WEFT_MSG_ARGUMENTS, /* some more of that call's arguments: JSON, an object when put together */
};

struct weft_msg_event {
    enum weft_msg_kind kind;
    uint32_t call;            /* 0, 1, ...: of CALL and ARGUMENTS */
    struct weft_str text, id; /* valid during the call; UTF-8 where the output is */
};
typedef void (*weft_msg_sink)(void *context, const struct weft_msg_event *event);

/* What one takes beside the text that it holds. */
size_t weft_msg_parser_bytes(void);
/* NOMEM. */
WEFT_MUST_CHECK weft_err weft_msg_parser_new(const struct weft_msg_setup *setup,
                                             weft_msg_parser **parser_out);
void weft_msg_parser_free(weft_msg_parser *parser); /* accepts NULL */
/* NOMEM; the parser is of no use any more. */
WEFT_MUST_CHECK weft_err weft_msg_push(weft_msg_parser *parser, struct weft_str text,
                                       weft_msg_sink sink, void *context);
/* The output ends here: what was held is told. */
WEFT_MUST_CHECK weft_err weft_msg_finish(weft_msg_parser *parser, weft_msg_sink sink,
                                         void *context);
/* Between the marks of thoughts: a token pushed next belongs to them. */
bool weft_msg_is_thinking(const weft_msg_parser *parser);
/* Calls told so far; those cut off within constrained arguments included. */
uint32_t weft_msg_calls(const weft_msg_parser *parser);
/* calls_max calls are complete: what comes later is not read. */
bool weft_msg_is_over(const weft_msg_parser *parser);

/* ------------------------------------------------------------------------------- constraints --- */

enum weft_msg_choice {
    WEFT_MSG_AUTO,     /* from a mark that nothing but a call has */
    WEFT_MSG_REQUIRED, /* nothing but calls, after thoughts */
};

struct weft_msg_wish {
    const weft_msg_format *format;
    const weft_msg_tools *tools; /* those that may be called */
    enum weft_msg_choice choice;
    bool is_single;             /* one call, and the output ends */
    struct weft_str prompt_end; /* as in weft_msg_setup */
    /* Whether the model has a special token of this text: then a mark is that token, else it is spelt. */
    bool (*has_special)(void *context, struct weft_str text);
    /* Whether a JSON Schema can be honoured; one that can't is loosened until it can. */
    bool (*can_honour)(void *context, struct weft_str schema);
    void *context;
};

/* Structural tags (WEFT_GRAMMAR_TAGS) into `tags_out`, of which thoughts are a part where *thinks_out is true: else
 * they are to stand before (weft_grammar.thinking). Empty: nothing can be asked of this format and
 * choice. INVAL: no tools; NOMEM. */
WEFT_MUST_CHECK weft_err weft_msg_constrain(const struct weft_msg_wish *wish,
                                            struct weft_buf *tags_out, bool *thinks_out,
                                            struct weft_errmsg *why);

/* Whether an answer stands on a channel of its own (Harmony's), so that what it must fit is to be put there: */
bool weft_msg_has_channels(const weft_msg_format *format);
/* tags of an answer on its channel, after a message of thoughts or not; `answer` is a format of structural
 * tags, a JSON object. The wish's tools, choice and can_honour are not read. INVAL: it is none; NOMEM. */
WEFT_MUST_CHECK weft_err weft_msg_constrain_answer(const struct weft_msg_wish *wish,
                                                   struct weft_str answer,
                                                   struct weft_buf *tags_out,
                                                   struct weft_errmsg *why);

/* The marks around thoughts, for weft_grammar.thinking; empty: the format has none, or (Harmony's) no such marks. */
struct weft_msg_marks {
    struct weft_str begin, end;
};
struct weft_msg_marks weft_msg_thought_marks(const weft_msg_format *format);
/* Whether an output after this prompt begins within thoughts, after them, or may open them. */
enum weft_msg_thinking {
    WEFT_MSG_THINKS_NOT,
    WEFT_MSG_THINKS_OPEN,
    WEFT_MSG_THINKS_MAYBE,
};
enum weft_msg_thinking weft_msg_thinking_after(const weft_msg_format *format,
                                               struct weft_str prompt_end);

#endif
