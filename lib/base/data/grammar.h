/* base/grammar — what a request's output must be, as plain data.
 *
 * It is born in the router, which has compiled it once and so knows that it can be honoured, travels
 * through the scheduler, which reads only its length, and is compiled again in the worker.
 */
#ifndef WEFT_BASE_GRAMMAR_H
#define WEFT_BASE_GRAMMAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"

/* X(NAME, number, what it is in refusals). The numbers travel (proto/schema.md): they never change. */
#define WEFT_GRAMMAR_LIST(X)                                                                       \
    X(NONE, 0, "nothing") /* free text */                                                          \
    X(SCHEMA, 1, "JSON Schema")                                                                    \
    X(JSON_OBJECT, 2, "JSON object")  /* any; the text is empty */                                 \
    X(REGEX, 3, "regular expression") /* of the whole text */                                      \
    X(RULES, 4, "grammar")            /* GBNF, where it has "::=", else Lark */                    \
    X(CHOICE, 5, "choice")            /* a JSON list of strings, at least one */                   \
    X(TAGS, 6, "structural tags")     /* docs/structured-output.md */

enum weft_grammar_kind {
#define WEFT_GRAMMAR_ENUM(name, number, ...) WEFT_GRAMMAR_##name = (number),
    WEFT_GRAMMAR_LIST(WEFT_GRAMMAR_ENUM)
#undef WEFT_GRAMMAR_ENUM
        WEFT_GRAMMAR_COUNT
};

/* Where a model thinks before it answers: the grammar begins behind the end of that. */
enum weft_grammar_thinking {
    WEFT_THINKING_NONE,  /* it does not */
    WEFT_THINKING_OPEN,  /* the prompt has opened it: "</think>" ends it */
    WEFT_THINKING_MAYBE, /* the output may begin with "<think>" */
    WEFT_THINKING_COUNT
};

/* Blanks in JSON: 0, none; 1, one at most, after ',' and ':'; n, up to n wherever JSON has them. */
#define WEFT_GRAMMAR_BLANKS_MAX 64
#define WEFT_GRAMMAR_BLANKS_USUAL 1
/* Digits of a JSON number on either side of its point. */
#define WEFT_GRAMMAR_DIGITS_MAX 1000
#define WEFT_GRAMMAR_DIGITS_USUAL 64

struct weft_grammar {
    enum weft_grammar_kind kind;
    enum weft_grammar_thinking thinking;
    uint32_t json_blanks, json_digits; /* 0..BLANKS_MAX; 1..DIGITS_MAX */
    uint32_t n_bytes;                  /* at most WEFT_GRAMMAR_BYTES_MAX */
    const char *text;                  /* [n_bytes], not terminated */
};

/* NONE, with the usual blanks and digits. */
void weft_grammar_init(struct weft_grammar *grammar);
/* What it is in refusals: "JSON Schema". Static storage. */
const char *weft_grammar_name(enum weft_grammar_kind kind);
/* Numbers in their ranges. INVAL names the field. */
WEFT_MUST_CHECK weft_err weft_grammar_check(const struct weft_grammar *grammar,
                                            struct weft_errmsg *why);

#endif
