/* normalize — the steps that rewrite a text before it is cut. */
#ifndef WEFT_TOK_NORMALIZE_H
#define WEFT_TOK_NORMALIZE_H

#include "normalize/charsmap.h"
#include "normalize/regex.h"
#include "normalize/sentence.h"

enum wefti_tok_norm_kind {
    WEFTI_TOK_NORM_NFC,
    WEFTI_TOK_NORM_NFD,
    WEFTI_TOK_NORM_NFKC,
    WEFTI_TOK_NORM_NFKD,
    WEFTI_TOK_NORM_LOWERCASE,
    WEFTI_TOK_NORM_PREPEND,
    WEFTI_TOK_NORM_REPLACE,
    WEFTI_TOK_NORM_STRIP,
    WEFTI_TOK_NORM_CLUSTERS, /* the map, by grapheme clusters */
    WEFTI_TOK_NORM_SENTENCE,
    WEFTI_TOK_NORM_CLEAN,      /* BERT: no control characters, all white space a space */
    WEFTI_TOK_NORM_CHINESE,    /* BERT: spaces around Chinese characters */
    WEFTI_TOK_NORM_DROP_MARKS, /* BERT: no non-spacing marks */
};

struct wefti_tok_norm {
    enum wefti_tok_norm_kind kind;
    char *text; /* owned: the prefix or replacement; NULL: none */
    size_t text_len;
    struct wefti_tok_regex regex;        /* REPLACE */
    bool grows;                          /* REPLACE: the replacement is never shorter */
    bool left, right;                    /* STRIP */
    struct wefti_tok_charsmap *map;      /* owned: CLUSTERS */
    struct wefti_tok_sentence *sentence; /* owned: SENTENCE */
};

void wefti_tok_norm_fini(struct wefti_tok_norm *norm);

/* The factor by which a text shrinks at most; 0: it may vanish. */
size_t wefti_tok_norm_shrink(const struct wefti_tok_norm *norm);

/* The text being normalised, and scratch. */
struct wefti_tok_normalizing {
    struct wefti_tok_matcher *matcher;
    struct weft_buf *text, *spare; /* `spare` is scratch; their contents may be swapped */
    bool first;                    /* the whole text begins here */
};

/* Replaces state->text by its normalised form. */
weft_err wefti_tok_norm_run(const struct wefti_tok_norm *norms, size_t n,
                            const struct wefti_tok_normalizing *state, struct weft_errmsg *why);

/* The steps in bert.c; they append to `out`. */
void wefti_tok_bert_clean(const struct weft_buf *in, struct weft_buf *out);
void wefti_tok_bert_isolate_chinese(const struct weft_buf *in, struct weft_buf *out);
void wefti_tok_bert_drop_marks(const struct weft_buf *in, struct weft_buf *out);

#endif
