/* gguf_splits — what a name in tokenizer.ggml.pre stands for. */
#ifndef WEFT_TOK_GGUF_SPLITS_H
#define WEFT_TOK_GGUF_SPLITS_H

#include <stdbool.h>

#include "base/str.h"

#define WEFTI_TOK_GGUF_PATTERNS_MAX 6

enum {
    WEFTI_TOK_GGUF_IGNORE_MERGES = 1, /* a piece that is a token is that token */
    WEFTI_TOK_GGUF_ADD_BOS = 2,       /* unless the file says otherwise */
    WEFTI_TOK_GGUF_ADD_SEP = 4,       /* between two texts, unless the file says otherwise */
    WEFTI_TOK_GGUF_NFC = 8,           /* text is brought into normal form C */
    WEFTI_TOK_GGUF_CHARS = 16,        /* merging starts from characters, as in SentencePiece */
};

struct wefti_tok_gguf_split {
    const char *names[16]; /* as in tokenizer.ggml.pre */
    unsigned flags;
    const char *patterns[WEFTI_TOK_GGUF_PATTERNS_MAX]; /* one after the other, matches isolated */
};

/* NULL: nobody knows the name. */
const struct wefti_tok_gguf_split *wefti_tok_gguf_split(struct weft_str name);

#endif
