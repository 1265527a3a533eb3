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
    WEFTI_MSG_HARMONY,
};

#define WEFTI_MSG_HINTS_MAX 3
#define WEFTI_MSG_MARKS_MAX 12

struct weft_msg_format {
    const char *name;
    enum wefti_msg_syntax syntax;
    enum weft_msg_ids ids;
    const char *think_begin, *think_end; /* NULL: none, or Harmony's */
    const char *open, *close;            /* of all calls, or of each; NULL: none */
    const char *hints
        [WEFTI_MSG_HINTS_MAX]; /* a chat template that has all of them is of this format; none: never */
    const char
        *marks[WEFTI_MSG_MARKS_MAX]; /* those that may be special tokens, thoughts' included */
};

/* Ended by one without a name; in the order in which templates are tried. */
extern const struct weft_msg_format wefti_msg_formats[];

#endif
