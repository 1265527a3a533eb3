/* message/parser: what the readers of the formats share.
 *
 * Bytes come into `held` and leave its front once they are told or known to be a mark. A stage is a function that reads
 * on from held[at] and says whether it got anywhere; it never looks back before `told`, so a parser's work is linear in
 * its output. Call readers write a call's name and arguments as soon as they are certain; where the output is not
 * constrained, they wait in `name` and `args` for the call's end, and a call that breaks is told as content from held.
 */
#ifndef WEFTI_MESSAGE_PARSER_H
#define WEFTI_MESSAGE_PARSER_H

#include "format.h"
#include "tools.h"

enum wefti_msg_verdict {
    WEFTI_MSG_GO,     /* read something, or went to another state */
    WEFTI_MSG_WAIT,   /* more bytes must come */
    WEFTI_MSG_DONE,   /* the calls are over, held[at] is text again */
    WEFTI_MSG_BROKEN, /* what is held from `region` to `at` is no call */
};

enum wefti_msg_stage {
    WEFTI_MSG_START,
    WEFTI_MSG_THOUGHT_LEAD, /* blanks before it are dropped */
    WEFTI_MSG_IN_THOUGHT,
    WEFTI_MSG_ANSWER_LEAD,
    WEFTI_MSG_ANSWER,
    WEFTI_MSG_IN_CALLS,
};

enum wefti_msg_match { WEFTI_MSG_MISS, WEFTI_MSG_PART, WEFTI_MSG_HIT };

struct weft_msg_parser {
    const weft_msg_format *format;
    const weft_msg_tools *tools;
    uint32_t calls_max, calls;
    bool is_constrained;
    bool is_open; /* the prompt opened thoughts */
    bool is_over, is_end;

    struct weft_buf held;
    size_t told;  /* held bytes that are told, or dropped */
    size_t at;    /* held bytes that are read */
    size_t blank; /* where the blanks begin that end at `at` */
    enum wefti_msg_stage stage;

    weft_msg_sink sink;
    void *context;
    weft_err err;
};

/* held[at ..] against a mark: PART where more bytes could complete it. */
enum wefti_msg_match wefti_msg_look(const weft_msg_parser *p, const char *mark);
/* held[told .. end) is told as `kind`. */
void wefti_msg_tell(weft_msg_parser *p, enum weft_msg_kind kind, size_t end);

static inline bool wefti_msg_is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

#endif
