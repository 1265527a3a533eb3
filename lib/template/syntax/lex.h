/* lex — text, tags and the white-space control between them. */
#ifndef WEFT_TMPL_LEX_H
#define WEFT_TMPL_LEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum wefti_tmpl_lex_kind {
    WEFTI_TMPL_LEX_END,
    WEFTI_TMPL_LEX_TEXT,      /* between tags; `text` is after white-space control */
    WEFTI_TMPL_LEX_OPEN_EXPR, /* {{ */
    WEFTI_TMPL_LEX_CLOSE_EXPR,
    WEFTI_TMPL_LEX_OPEN_TAG, /* {% */
    WEFTI_TMPL_LEX_CLOSE_TAG,
    WEFTI_TMPL_LEX_NAME,
    WEFTI_TMPL_LEX_STRING, /* without its quotes, escapes unresolved */
    WEFTI_TMPL_LEX_INT,
    WEFTI_TMPL_LEX_FLOAT,
    WEFTI_TMPL_LEX_OP, /* one or two characters */
};

struct wefti_tmpl_lexeme {
    enum wefti_tmpl_lex_kind kind;
    struct weft_str text;
    uint32_t line;
};

struct wefti_tmpl_lex {
    const char *start, *at, *end;
    uint32_t line;
    uint32_t n_open;                 /* brackets: "}}" closes dictionaries before it closes a tag */
    enum wefti_tmpl_lex_kind inside; /* TEXT, OPEN_EXPR or OPEN_TAG */
    bool strip_next; /* the last tag ended in "-": the text after it loses its space */
    bool trim_next;  /* the last tag was a block: one newline after it goes */
    bool after_dot;  /* "a.0.1" is members, not a fraction */
};

void wefti_tmpl_lex_init(struct wefti_tmpl_lex *lex, const char *source, size_t len);
weft_err wefti_tmpl_lex_next(struct wefti_tmpl_lex *lex, struct wefti_tmpl_lexeme *out,
                             struct weft_errmsg *why);

#endif
