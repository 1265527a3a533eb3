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
#include "base/str.h"

/* The numbers travel (proto/schema.md): they never change. */
enum weft_grammar_kind {
    WEFT_GRAMMAR_NONE = 0,        /* free text */
    WEFT_GRAMMAR_SCHEMA = 1,      /* JSON Schema */
    WEFT_GRAMMAR_JSON_OBJECT = 2, /* any; the text is empty */
    WEFT_GRAMMAR_REGEX = 3,       /* of the whole output, in Python's syntax */
    WEFT_GRAMMAR_RULES = 4,       /* GBNF where its first rule has "::=", else Lark */
    WEFT_GRAMMAR_CHOICE = 5,      /* a JSON list of strings, at least one */
    WEFT_GRAMMAR_TAGS = 6,        /* structural tags: JSON */
    WEFT_GRAMMAR_TEXT = 7, /* any, special tokens included; what counts is the thinking before it */
    WEFT_GRAMMAR_COUNT
};

/* Where a model thinks before it answers: the grammar begins behind the end of that. */
enum weft_grammar_thinking {
    WEFT_THINKING_NONE,  /* it does not */
    WEFT_THINKING_OPEN,  /* the prompt has opened it: the end mark ends it */
    WEFT_THINKING_MAYBE, /* the output may begin with the begin mark */
    WEFT_THINKING_COUNT
};

/* The marks around thoughts. Within either its first byte stands once, and no mark begins another. */
#define WEFT_MARKS_LIST(MARKS)                                                                     \
    MARKS(THINK, "<think>", "</think>")                                                            \
    MARKS(MISTRAL, "[THINK]", "[/THINK]")                                                          \
    MARKS(SEED, "<seed:think>", "</seed:think>")                                                   \
    MARKS(COHERE, "<|START_THINKING|>", "<|END_THINKING|>")
enum weft_grammar_marks {
#define WEFT_MARKS_NAME(name, begin, end) WEFT_MARKS_##name,
    WEFT_MARKS_LIST(WEFT_MARKS_NAME)
#undef WEFT_MARKS_NAME
        WEFT_MARKS_COUNT
};
#define WEFT_MARK_BYTES_MAX 32

struct weft_mark_texts {
    struct weft_str begin, end;
};
struct weft_mark_texts weft_grammar_mark_texts(enum weft_grammar_marks marks);
/* False: no marks of these texts. */
bool weft_grammar_find_marks(struct weft_str begin, struct weft_str end,
                             enum weft_grammar_marks *marks_out);

/* Blanks in JSON: 0, none; 1, one at most, after ',' and ':'; n, up to n wherever JSON has them. */
#define WEFT_GRAMMAR_BLANKS_MAX 64
#define WEFT_GRAMMAR_BLANKS_USUAL 1
/* Digits of a JSON number on either side of its point. */
#define WEFT_GRAMMAR_DIGITS_MAX 1000
#define WEFT_GRAMMAR_DIGITS_USUAL 64

struct weft_grammar {
    enum weft_grammar_kind kind;
    enum weft_grammar_thinking thinking;
    enum weft_grammar_marks marks;     /* of the thinking */
    uint32_t json_blanks, json_digits; /* 0..BLANKS_MAX; 1..DIGITS_MAX */
    uint32_t n_bytes;                  /* at most WEFT_GRAMMAR_BYTES_MAX */
    const char *text;                  /* [n_bytes], not terminated */
};

/* NONE, with the usual blanks and digits. */
void weft_grammar_init(struct weft_grammar *grammar);
/* Numbers in their ranges. INVAL names the field. */
WEFT_MUST_CHECK weft_err weft_grammar_check(const struct weft_grammar *grammar,
                                            struct weft_errmsg *why);

#endif
