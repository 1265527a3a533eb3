/* dialect — how the served model talks: what its chat template wants of a conversation, and in which format it answers.
 * Learnt once, when the model is loaded; const from then on. */
#ifndef WEFT_API_DIALECT_H
#define WEFT_API_DIALECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "message/message.h"
#include "template/template.h"
#include "tokenizer/tokenizer.h"

#define WEFT_API_MARKS_MAX 16

struct weft_api_dialect {
    const weft_msg_format *format; /* NULL: no chat template, so no format */
    bool wants_text;               /* arguments of earlier calls as JSON's text, not as an object */
    bool
        takes_one_call; /* in a message: so no more is written, or the conversation could not go on */
    bool thinks;        /* it has the marks of thoughts */
    bool knows_developer; /* the role */
    struct weft_str marks
        [WEFT_API_MARKS_MAX]; /* those of the format that are special tokens; the tokenizer's */
    uint32_t n_marks;
};

/* `source` is the template's text; `parser` the name of a format, or "auto": what the template looks like. NOTFOUND:
 * there is no such format. */
WEFT_MUST_CHECK weft_err weft_api_learn_dialect(const weft_tmpl *tmpl, const char *source,
                                                const weft_tokenizer *tok, const char *parser,
                                                struct weft_api_dialect *out,
                                                struct weft_errmsg *why);

/* Whether the model has a special token of this text, which is one of its format's marks. */
bool weft_api_has_mark(const struct weft_api_dialect *dialect, struct weft_str text);

#endif
