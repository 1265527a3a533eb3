/* message/parser: what the readers of the formats share.
 *
 * Bytes come into `held` and leave its front once they are told or known to be a mark. A stage is a function that reads
 * on from held[at] and says whether it got anywhere; what it keeps between bytes is in the parser, so that the work is
 * linear in the output. Readers of calls hand over a name and arguments as soon as they are
 * certain. Where the output is not constrained these wait in `name`, `id` and `args` for the call's
 * end; a call that breaks is content, from held[told]. */
#ifndef WEFTI_MESSAGE_PARSER_H
#define WEFTI_MESSAGE_PARSER_H

#include "format.h"
#include "read/braces.h"
#include "read/json.h"
#include "read/python.h"
#include "tools.h"

#define WEFTI_MSG_BLANKS_MAX (64u << 10) /* more in a row are told, whatever follows */
#define WEFTI_MSG_HEAD_BYTES_MAX 512     /* a name or key with what is around it */

enum wefti_msg_verdict {
    WEFTI_MSG_GO,     /* read something, or went to another state */
    WEFTI_MSG_WAIT,   /* more bytes must come */
    WEFTI_MSG_DONE,   /* the calls are over, held[at] is text again */
    WEFTI_MSG_BROKEN, /* held[told .. at) is no call */
};

enum wefti_msg_stage {
    WEFTI_MSG_START,
    WEFTI_MSG_THOUGHT_LEAD, /* blanks before it are dropped */
    WEFTI_MSG_IN_THOUGHT,
    WEFTI_MSG_ANSWER_LEAD,
    WEFTI_MSG_ANSWER,
    WEFTI_MSG_IN_CALLS,
    WEFTI_MSG_IN_HARMONY,
};

enum wefti_msg_match { WEFTI_MSG_MISS, WEFTI_MSG_PART, WEFTI_MSG_HIT };

/* What an arguments' value turned out to be. */
enum wefti_msg_args {
    WEFTI_MSG_ARGS_NONE,
    WEFTI_MSG_ARGS_OBJECT,
    WEFTI_MSG_ARGS_TEXT,
    WEFTI_MSG_ARGS_NULL
};

struct weft_msg_parser {
    const weft_msg_format *format;
    const weft_msg_tools *tools; /* NULL: calls are not looked for */
    uint32_t calls_max;
    bool is_constrained;
    bool is_open; /* the prompt opened thoughts */

    bool is_over, is_end;
    struct weft_buf held;
    size_t told;  /* held bytes that are told, or dropped */
    size_t at;    /* held bytes that are read */
    size_t blank; /* where the blanks begin that end at `at` */
    size_t from;  /* where the key, name or value at hand begins */
    enum wefti_msg_stage stage;
    const char *think_end;
    bool is_fresh;       /* nothing but blanks of the answer so far: bare calls may come */
    bool is_answer_open; /* answer_begin was read */

    /* The calls at hand. `read` is of their syntax, `state` its own. */
    enum wefti_msg_verdict (*read)(weft_msg_parser *p);
    int state;
    bool is_bare, is_list,
        is_queued; /* of given tools only; in brackets; none is told before all are read */
    bool is_named, has_call; /* the call at hand; some before it */
    uint32_t calls;          /* told */
    uint32_t n_complete;
    struct weft_buf name, id, args, key, queue;
    const struct wefti_msg_tool *tool; /* of that name; NULL: it was not given */

    struct wefti_msg_json json; /* the value at hand */
    struct wefti_msg_python python;
    struct wefti_msg_braces braces;
    uint32_t level;                /* JSON calls: the depth of name and arguments */
    int field;                     /* the member at hand */
    enum wefti_msg_args shape;     /* of the arguments */
    bool has_args, has_member;     /* the call has them; a tag's value was written */
    bool is_text;                  /* the value at hand is written as text, as it comes */
    int string;                    /* a tag's attribute: 1 true, 0 false, -1 none */
    bool is_thought, is_new;       /* Harmony: of the message at hand; nothing of it is told */
    bool has_thought, has_content; /* Harmony: some was told */

    weft_msg_sink sink;
    void *context;
    weft_err err;
};

static inline bool wefti_msg_is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* ------------------------------------------------------------------------------------ bytes --- */

/* held[at ..] against a mark: PART where more bytes could complete it. */
enum wefti_msg_match wefti_msg_look(const weft_msg_parser *p, const char *mark);
/* The same; a mark that is there is read. At the end of the output no part is a HIT to come: MISS. */
enum wefti_msg_match wefti_msg_take(weft_msg_parser *p, const char *mark);
/* The format's `close`, or the other one that it may have. */
enum wefti_msg_match wefti_msg_take_close(weft_msg_parser *p);
void wefti_msg_skip_blanks(weft_msg_parser *p);
/* More is held of a call than may be. */
static inline bool wefti_msg_is_long(const weft_msg_parser *p) {
    return p->at - p->told > WEFT_MSG_CALL_BYTES_MAX;
}
/* Reads up to the next of `marks`, or of a part of one that may be completed; `blank` is kept. HIT:
 * held[at] is marks[*which]. */
enum wefti_msg_match wefti_msg_scan(weft_msg_parser *p, const char *const *marks, size_t n,
                                    size_t *which_out);
/* held[told .. end) is told as `kind`. */
void wefti_msg_tell(weft_msg_parser *p, enum weft_msg_kind kind, size_t end);
/* held[from .. to) without the blanks around it. */
struct weft_str wefti_msg_trimmed(const weft_msg_parser *p, size_t from, size_t to);

/* ------------------------------------------------------------------------------------ calls --- */

/* Memory ran out, and the parser's error says so: nothing more is told. */
bool wefti_msg_has_failed(weft_msg_parser *p);
/* A call begins; held[told ..] is its text. */
void wefti_msg_begin_call(weft_msg_parser *p);
/* Its name. false: no tool can be called so. */
bool wefti_msg_name(weft_msg_parser *p, struct weft_str name, struct weft_str id);
/* Some more of its arguments. */
void wefti_msg_args(weft_msg_parser *p, const char *bytes, size_t len);
/* It is complete, held[at] comes after it. */
enum wefti_msg_verdict wefti_msg_end_call(weft_msg_parser *p);
/* The end of a list of which none was told before. */
void wefti_msg_tell_queue(weft_msg_parser *p);

/* A JSON value that is the arguments: its first byte is at `from`; held up to `at` is read; it ended before `at`. */
bool wefti_msg_args_begin(weft_msg_parser *p);
void wefti_msg_args_more(weft_msg_parser *p);
bool wefti_msg_args_end(weft_msg_parser *p, size_t end);
/* What a string says that the scan took, into `out`, which has room for it. false: NOMEM, which is noted. */
bool wefti_msg_decode(weft_msg_parser *p, struct weft_str quoted, struct weft_buf *out);

/* ---------------------------------------------------------------------------------- syntaxes --- */

#define WEFTI_MSG_JSON_ITEM 1 /* read_json's state within a list */

/* Begin after `open` (or at `inner`), or at the first byte of a bare call. */
enum wefti_msg_verdict wefti_msg_read_json(weft_msg_parser *p);
enum wefti_msg_verdict wefti_msg_read_named(weft_msg_parser *p);
enum wefti_msg_verdict wefti_msg_read_tags(weft_msg_parser *p);
enum wefti_msg_verdict wefti_msg_read_python(weft_msg_parser *p);
enum wefti_msg_verdict wefti_msg_read_braces(weft_msg_parser *p);
enum wefti_msg_verdict wefti_msg_read_harmony(weft_msg_parser *p);
void wefti_msg_begin_harmony(weft_msg_parser *p, struct weft_str prompt_end);
bool wefti_msg_harmony_thinks(const weft_msg_parser *p);

/* A tag's value, held[from .. to), as JSON into args. */
void wefti_msg_value(weft_msg_parser *p, struct weft_str key, struct weft_str value);
/* Whether the value of this key is text whatever it says. */
bool wefti_msg_is_text(const weft_msg_parser *p, struct weft_str key);
/* Text within a JSON string; at most up to its last whole character unless it is the last piece. Bytes used. */
size_t wefti_msg_write_text(weft_msg_parser *p, const char *bytes, size_t len, bool is_last);

#endif
