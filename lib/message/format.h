/* message/format: one row for each format; parser and constraints read it, so that they agree. */
#ifndef WEFTI_MESSAGE_FORMAT_H
#define WEFTI_MESSAGE_FORMAT_H

#include "message/message.h"

/* What stands between a format's marks. */
enum wefti_msg_syntax {
    WEFTI_MSG_NO_CALLS,
    WEFTI_MSG_JSON_OBJECT, /* open {"name": ..., "arguments": {...}} close */
    WEFTI_MSG_JSON_LIST,   /* open [{...}, ...] close, which may be missing */
    WEFTI_MSG_JSON_BARE,   /* {"name": ..., "parameters": {...}}; ..., perhaps after open */
    WEFTI_MSG_NAMED_JSON,  /* begin ... name separator {...} end */
    WEFTI_MSG_FUNCTION,    /* <function=NAME><parameter=KEY>VALUE</parameter></function> */
    WEFTI_MSG_INVOKE, /* <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke> */
    WEFTI_MSG_PAIRS,  /* NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value> */
    WEFTI_MSG_PYTHON, /* [NAME(KEY=LITERAL, ...), ...] */
    WEFTI_MSG_BRACES, /* call:NAME{KEY:VALUE,...} */
    WEFTI_MSG_HARMONY,
};

#define WEFTI_MSG_HINTS_MAX 3
#define WEFTI_MSG_MARKS_MAX 12
#define WEFTI_MSG_OPENS_MAX 4

struct weft_msg_format {
    const char *name;
    enum wefti_msg_syntax syntax;
    enum weft_msg_ids ids;
    const char *think_begin, *think_end; /* NULL: none, or Harmony's */
    const char *open, *close;            /* of all calls, or of each; NULL: none */
    /* Read, not asked for: other spellings of `open`; a call's own first mark, where `open` is forgotten (what stands
     * after it is read as if it had been there); the sentences or tags that some models put around an answer. */
    const char *opens[WEFTI_MSG_OPENS_MAX];
    const char *close_too; /* of one of `opens` */
    const char *inner;
    bool is_inner_bare; /* `inner` may be ordinary text: a call of a tool that was given, or none */
    const char *answer_begin, *answer_end;
    const char *think_begin_too, *think_end_too;
    /* A chat template that has all of them is of this format; none: never. */
    const char *hints[WEFTI_MSG_HINTS_MAX];
    const char *hints_too[2]; /* each alone is enough */
    /* Those that may be special tokens, thoughts' included. */
    const char *marks[WEFTI_MSG_MARKS_MAX];
};

/* Ended by one without a name; in the order in which templates are tried. */
extern const struct weft_msg_format wefti_msg_formats[];

#endif
