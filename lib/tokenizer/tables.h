/* tables — what a tokenizer is.
 *
 * A tokenizer is data, not code: formats/ translates the file formats into the same few tables
 * (vocabulary, merges, added tokens, normaliser steps, split steps), and encode.c runs them:
 *
 *   bytes -> valid UTF-8 -> cut at added tokens -> normalise -> cut at normalised added tokens
 *         -> split steps, each cutting the pieces of the one before -> bpe.c on every piece
 *
 * Two alphabets occur. A *byte-level* vocabulary writes each byte as a printable character; its
 * entries are turned back into bytes when they are read, so that merging works on the text as it
 * is. A *character* vocabulary (SentencePiece) starts from characters and falls back to bytes. */
#ifndef WEFT_TOK_TABLES_H
#define WEFT_TOK_TABLES_H

#include "base/limits.h"
#include "normalize/normalize.h"
#include "tokenizer.h"
#include "vocab/added.h"
#include "vocab/merges.h"
#include "vocab/trie.h"
#include "vocab/vocab.h"

#define WEFTI_TOK_STEPS_MAX 16     /* split steps; DeepSeek's six are the most seen */
#define WEFTI_TOK_NORMS_MAX 16     /* normaliser steps */
#define WEFTI_TOK_AFFIX_IDS_MAX 16 /* tokens a post-processor puts on either side of a text */
#define WEFTI_TOK_EOS_MAX 64
/* Bound of a text, before and after normalising: positions in it are 32 bits wide. */
#define WEFTI_TOK_TEXT_BYTES_MAX (1u << 30)
_Static_assert(WEFT_BODY_BYTES_MAX <= WEFTI_TOK_TEXT_BYTES_MAX, "every body can be tokenised");

enum wefti_tok_behavior {
    WEFTI_TOK_SPLIT_ISOLATED,
    WEFTI_TOK_SPLIT_REMOVED,
    WEFTI_TOK_SPLIT_WITH_PREVIOUS,
    WEFTI_TOK_SPLIT_WITH_NEXT,
    WEFTI_TOK_SPLIT_CONTIGUOUS,
};

enum wefti_tok_step_kind {
    WEFTI_TOK_STEP_SPLIT,
    WEFTI_TOK_STEP_PREFIX_SPACE, /* a space before a piece that does not start with one */
    WEFTI_TOK_STEP_METASPACE,    /* spaces become U+2581, perhaps with one in front */
    WEFTI_TOK_STEP_TO_CHARS,     /* bytes become their printable characters for what comes after */
};

enum wefti_tok_prepend {
    WEFTI_TOK_PREPEND_NEVER,
    WEFTI_TOK_PREPEND_FIRST,
    WEFTI_TOK_PREPEND_ALWAYS
};

struct wefti_tok_step {
    enum wefti_tok_step_kind kind;
    struct wefti_tok_regex regex;
    enum wefti_tok_behavior behavior;
    bool invert;
    enum wefti_tok_prepend prepend;
};

/* WordPiece: how words are written as pieces. */
struct wefti_tok_word_rules {
    bool is_used;
    char head[64],
        tail[64];     /* what stands before pieces that begin a word, and that go on with it */
    size_t chars_max; /* longer words are unknown */
    /* Where the walks down the trie start, and whether there are such pieces at all. */
    uint32_t head_node, tail_node;
    bool has_heads, has_tails;
};

/* What a post-processor puts around two texts. Tokens have type 0 up to `n_middle_first` of those in between, and
 * type 1 from there on if `typed`. */
struct wefti_tok_pair_rules {
    bool
        is_odd; /* the texts stand in another order, or types change elsewhere: refused when asked for */
    uint32_t prefix_ids[WEFTI_TOK_AFFIX_IDS_MAX], middle_ids[WEFTI_TOK_AFFIX_IDS_MAX],
        suffix_ids[WEFTI_TOK_AFFIX_IDS_MAX];
    size_t n_prefix, n_middle, n_suffix;
    size_t n_middle_first;
    bool typed;
};

struct weft_tokenizer {
    struct wefti_tok_vocab vocab;
    struct wefti_tok_merges merges;
    struct wefti_tok_added added_raw;        /* matched in the text */
    struct wefti_tok_added added_normalized; /* matched in the normalised text */
    struct wefti_tok_norm norms[WEFTI_TOK_NORMS_MAX];
    size_t n_norms;
    struct wefti_tok_step steps[WEFTI_TOK_STEPS_MAX];
    size_t n_steps;

    bool byte_level;    /* merging starts from bytes; else from characters */
    bool to_chars;      /* a TO_CHARS step is among the steps */
    bool ignore_merges; /* a piece that is a token is that token */
    bool fuse_unk;
    size_t text_bytes_per_id; /* the most text a token covers; 0: no bound */
    /* SentencePiece merges by the score of the result, not by a list. Ranks by token id. */
    uint32_t *score_ranks;
    bool joins_mark[256]; /* some piece has U+2581 after this byte; see wefti_tok_split_point */
    /* Unigram: scores by token id (owned), at most WEFTI_TOK_SCORE_MAX; NULL: another model. */
    double *scores;
    double unknown_score;       /* of a character without a token */
    bool float_sums;            /* sums are rounded to single precision, as in SentencePiece */
    struct wefti_tok_trie trie; /* Unigram, WordPiece */
    struct wefti_tok_word_rules word;
    uint32_t unk_id;
    uint32_t unit_ids[256];     /* tokens of one byte (byte level) or one ASCII character */
    uint32_t fallback_ids[256]; /* <0x00> to <0xFF> */
    bool byte_fallback;

    uint32_t prefix_ids[WEFTI_TOK_AFFIX_IDS_MAX], suffix_ids[WEFTI_TOK_AFFIX_IDS_MAX];
    size_t n_prefix, n_suffix;
    struct wefti_tok_pair_rules pair;
    uint32_t bos_id;
    uint32_t eos_token_id; /* the tokenizer's own, for templates */
    uint32_t eos_ids[WEFTI_TOK_EOS_MAX];
    size_t n_eos;
    bool has_fim;
    struct weft_tok_fim fim;
    bool strip_first_space; /* decoding drops one space at the very beginning */
};

#endif
