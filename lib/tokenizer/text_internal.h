/* text_internal — what the files of lib/text share.
 *
 * A tokenizer is data, not code: tok_json.c and tok_gguf.c translate two file formats into the same
 * few tables (vocabulary, merges, added tokens, normaliser steps, split steps), and encode.c runs
 * them:
 *
 *   bytes -> valid UTF-8 -> cut at added tokens -> normalise -> cut at normalised added tokens
 *         -> split steps, each cutting the pieces of the one before -> bpe.c on every piece
 *
 * Two alphabets occur. A *byte-level* vocabulary writes each byte as a printable character; its
 * entries are turned back into bytes when they are read, so that merging works on the text as it
 * is. A *character* vocabulary (SentencePiece) starts from characters and falls back to bytes. */
#ifndef WEFT_TEXT_INTERNAL_H
#define WEFT_TEXT_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>

#include <string.h>

#include "base/cursor.h"
#include "base/str.h"
#include "base/utf8.h"
#include "codec/unicode.h"
#include "codec/utf8.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

#define WEFTI_TOK_NO_ID UINT32_MAX
#define WEFTI_TOK_NO_RANK UINT32_MAX

/* Longest real entries are runs of some hundred spaces; the bound keeps every look-up cheap. */
#define WEFTI_TOK_ENTRY_BYTES_MAX 4096
#define WEFTI_TOK_STEPS_MAX 16     /* split steps; DeepSeek's six are the most seen so far */
#define WEFTI_TOK_NORMS_MAX 16     /* normaliser steps */
#define WEFTI_TOK_AFFIX_IDS_MAX 16 /* tokens a post-processor puts on either side of a text */
#define WEFTI_TOK_EOS_MAX 64
#define WEFTI_TOK_FILE_BYTES_MAX (256u << 20)  /* tokenizer.json of a 256k vocabulary: 33 MB */
#define WEFTI_TOK_CONFIG_BYTES_MAX (16u << 20) /* what lies beside it: a few hundred kB at most */
/* A text, or what a normaliser or a step made of it: positions in it are 32 bits wide. */
#define WEFTI_TOK_TEXT_BYTES_MAX (1u << 30)
_Static_assert(WEFT_BODY_BYTES_MAX <= WEFTI_TOK_TEXT_BYTES_MAX, "every body can be tokenised");

/* ------------------------------------------------------------------------------------- utf8 --- */

#define WEFTI_TOK_MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */

/* The byte that a character of a byte-level vocabulary stands for; -1: not in that alphabet. */
int wefti_tok_byte_of_char(uint32_t code);
uint32_t wefti_tok_char_of_byte(unsigned char byte);

/* Appends the bytes that a byte-level entry stands for. False, and nothing appended, when one of
 * its characters is not of that alphabet. */
bool wefti_tok_bytes_of_chars(const char *text, size_t len, struct weft_buf *out);

/* -------------------------------------------------------------------------------------- vocab ---
 */

#define WEFTI_TOK_PRESENT 1u
#define WEFTI_TOK_PIECE 2u   /* can come out of merging: listed in the index of pieces */
#define WEFTI_TOK_ADDED 4u   /* matched in the text as written, before everything else */
#define WEFTI_TOK_SPECIAL 8u /* only with WEFT_TOK_PARSE_SPECIAL; hidden by skip_special */
#define WEFTI_TOK_CHOSEN                                                                           \
    16u /* Unigram: a piece that wins against every other way to write it                          \
         */

struct wefti_tok_entry {
    uint32_t piece_at, piece_len; /* what merging sees */
    uint32_t bytes_at, bytes_len; /* what decoding writes */
    uint32_t flags;
};

struct wefti_tok_vocab_slot {
    uint32_t tag; /* upper half of the hash */
    uint32_t id;  /* WEFTI_TOK_NO_ID: empty */
};

struct wefti_tok_vocab {
    struct weft_buf arena;
    struct wefti_tok_entry *tokens; /* by id; holes have no flags */
    uint32_t n_tokens, cap;
    uint32_t bytes_max; /* longest piece or written form */
    struct wefti_tok_vocab_slot *slots;
    uint32_t mask;
};

void wefti_tok_vocab_init(struct wefti_tok_vocab *vocab);
void wefti_tok_vocab_fini(struct wefti_tok_vocab *vocab);

/* Adds token `id`, or changes what it decodes to; flags are or-ed. `piece` and `bytes` may be the
 * same string. */
weft_err wefti_tok_vocab_put(struct wefti_tok_vocab *vocab, uint64_t id, struct weft_str piece,
                             struct weft_str bytes, uint32_t flags, struct weft_errmsg *why);
/* Builds the index over all pieces; of two equal ones the higher id wins. */
weft_err wefti_tok_vocab_index(struct wefti_tok_vocab *vocab);
/* The id of a piece, or WEFTI_TOK_NO_ID. */
uint32_t wefti_tok_vocab_find(const struct wefti_tok_vocab *vocab, const char *piece, size_t len);

static inline struct weft_str wefti_tok_vocab_bytes(const struct wefti_tok_vocab *vocab,
                                                    uint32_t id) {
    const struct wefti_tok_entry *token = &vocab->tokens[id];
    return (struct weft_str){vocab->arena.data + token->bytes_at, token->bytes_len};
}

struct wefti_tok_trie_node {
    uint32_t first, n; /* children, by byte */
    uint32_t id;       /* the piece that ends here, or WEFTI_TOK_NO_ID */
};

struct wefti_tok_trie {
    struct wefti_tok_trie_node *nodes; /* the root is 0, and nobody's child */
    uint8_t *labels;                   /* by node: the byte that leads there */
    uint32_t n;
    uint32_t depth; /* bytes of the longest piece */
    uint32_t root[256];
};

/* All pieces that are not special; of two equal ones the higher id counts. */
weft_err wefti_tok_trie_build(struct wefti_tok_trie *trie, const struct wefti_tok_vocab *vocab,
                              struct weft_errmsg *why);
void wefti_tok_trie_fini(struct wefti_tok_trie *trie);
/* The child of `node` for a byte; 0: none. */
uint32_t wefti_tok_trie_step(const struct wefti_tok_trie *trie, uint32_t node, uint8_t byte);

struct wefti_tok_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank; /* lower merges first */
    uint32_t id;   /* what they become */
};

struct wefti_tok_merges {
    struct wefti_tok_merge *slots;
    uint32_t mask;
};

weft_err wefti_tok_merges_init(struct wefti_tok_merges *merges, size_t n);
void wefti_tok_merges_fini(struct wefti_tok_merges *merges);
/* At most `n` of init calls; a pair listed twice keeps its last rank. */
void wefti_tok_merges_put(struct wefti_tok_merges *merges, uint32_t left, uint32_t right,
                          uint32_t rank, uint32_t id);
/* NULL: this pair never merges. */
const struct wefti_tok_merge *wefti_tok_merges_find(const struct wefti_tok_merges *merges,
                                                    uint32_t left, uint32_t right);

/* A token that is found in the text as written. */
struct wefti_tok_added_token {
    char *text; /* owned */
    uint32_t len, id;
    bool special, single_word, strip_left, strip_right;
};

/* Sorted by text: one longest match costs a binary search per byte that still fits. */
struct wefti_tok_added {
    struct wefti_tok_added_token *tokens;
    size_t n, cap;
    bool starts[256];  /* some token starts with this byte */
    bool any_ordinary; /* some token is matched without WEFT_TOK_PARSE_SPECIAL */
};

struct wefti_tok_added_match {
    const struct wefti_tok_added_token *token;
    size_t start, end; /* with the white space that the token swallows */
};

void wefti_tok_added_fini(struct wefti_tok_added *added);
weft_err wefti_tok_added_put(struct wefti_tok_added *added, struct weft_str text, uint32_t id,
                             const struct wefti_tok_added_token *traits);
void wefti_tok_added_sort(struct wefti_tok_added *added);
/* The longest token that `text` begins with, or NULL. */
const struct wefti_tok_added_token *wefti_tok_added_longest(const struct wefti_tok_added *added,
                                                            bool parse_special, const char *text,
                                                            size_t len);
/* The first match (of several there, the longest) at or after `from`. */
bool wefti_tok_added_find(const struct wefti_tok_added *added, bool parse_special, const char *text,
                          size_t len, size_t from, struct wefti_tok_added_match *match_out);

/* -------------------------------------------------------------------------------------- regex ---
 */

struct wefti_tok_regex {
    pcre2_code *code;
    bool jit;
};

/* What one thread needs for matching, and its bounds: on a match, and on the time of all matches
 * together in proportion to the text. */
struct wefti_tok_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    uint64_t budget_ns, matching_ns; /* of all matches together; what passed in them so far */
    uint64_t begun_ns;               /* of the thread's clock */
};

/* `pattern` is in Oniguruma's syntax, as far as tokenizers use it, or (`literal`) plain text. */
weft_err wefti_tok_regex_init(struct wefti_tok_regex *regex, const char *pattern, size_t len,
                              bool literal, struct weft_errmsg *why);
void wefti_tok_regex_fini(struct wefti_tok_regex *regex);

weft_err wefti_tok_matcher_init(struct wefti_tok_matcher *matcher, size_t text_bytes);
void wefti_tok_matcher_fini(struct wefti_tok_matcher *matcher);

/* The first match at or after `from`; *found_out says whether there is one. `text` is valid UTF-8.
 * TIMEOUT when a bound is reached. */
weft_err wefti_tok_regex_find(const struct wefti_tok_regex *regex,
                              struct wefti_tok_matcher *matcher, const char *text, size_t len,
                              size_t from, bool *found_out, size_t *start_out, size_t *end_out,
                              struct weft_errmsg *why);

/* ---------------------------------------------------------------------------------- normalise ---
 */

/* SentencePiece's precompiled map of characters. */
struct wefti_tok_charsmap {
    uint32_t *units;
    size_t n_units;
    char *texts; /* texts_len bytes and a 0 */
    size_t texts_len;
};

weft_err wefti_tok_charsmap_new(const void *bytes, size_t n, struct wefti_tok_charsmap **map_out,
                                struct weft_errmsg *why);
void wefti_tok_charsmap_free(struct wefti_tok_charsmap *map); /* accepts NULL */
/* What the beginning of `text` (valid UTF-8, not empty) becomes: the longest match of the map, or
 * without one (and where `map` is NULL) the first character. Returns the bytes that were read. */
size_t wefti_tok_charsmap_next(const struct wefti_tok_charsmap *map, const char *text, size_t len,
                               struct weft_str *out);
/* The whole text as Hugging Face's Precompiled normalizer has it: by grapheme clusters. */
void wefti_tok_charsmap_clusters(const struct wefti_tok_charsmap *map, const struct weft_buf *in,
                                 struct weft_buf *out);

/* What SentencePiece does with a text before it looks for pieces. */
struct wefti_tok_sentence {
    struct wefti_tok_charsmap *map; /* owned, or NULL */
    struct wefti_tok_added kept;    /* symbols the map leaves alone; sorted */
    bool prefix, suffix;            /* a space in front, behind */
    bool prefix_once;               /* and not again behind each special token */
    bool squeeze;                   /* of several spaces one, at the ends none */
    bool escape;                    /* spaces become U+2581 */
};

void wefti_tok_sentence_free(struct wefti_tok_sentence *sentence); /* accepts NULL */
/* `first`: nothing of the whole text stands before `in`. */
void wefti_tok_sentence_run(const struct wefti_tok_sentence *sentence, const struct weft_buf *in,
                            bool first, struct weft_buf *out);

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
};

struct wefti_tok_norm {
    enum wefti_tok_norm_kind kind;
    char *text; /* owned: what is put in front or in place; NULL: nothing */
    size_t text_len;
    struct wefti_tok_regex regex;        /* REPLACE */
    bool grows;                          /* REPLACE: never by something shorter */
    bool left, right;                    /* STRIP */
    struct wefti_tok_charsmap *map;      /* owned: CLUSTERS */
    struct wefti_tok_sentence *sentence; /* owned: SENTENCE */
};

void wefti_tok_norm_fini(struct wefti_tok_norm *norm);

/* A text becomes at most this many times shorter; 0: it may vanish. */
size_t wefti_tok_norm_shrink(const struct wefti_tok_norm *norm);

/* Replaces what is in `text` by its normalised form; `spare` is scratch. Both may be swapped.
 * `first`: the whole text begins here. */
weft_err wefti_tok_norm_run(const struct wefti_tok_norm *norms, size_t n, bool first,
                            struct wefti_tok_matcher *matcher, struct weft_buf *text,
                            struct weft_buf *spare, struct weft_errmsg *why);

/* -------------------------------------------------------------------------------------- split ---
 */

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
    WEFTI_TOK_STEP_METASPACE,    /* spaces become U+2581, perhaps one in front */
    WEFTI_TOK_STEP_TO_CHARS, /* bytes become their printable characters for the steps behind it */
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

/* ---------------------------------------------------------------------------------- tokenizer ---
 */

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
    size_t text_bytes_per_id; /* no token covers more of a text; 0: there is no such bound */
    /* Merge by the score of what comes out, not by a list: SentencePiece. Ranks by token id. */
    uint32_t *score_ranks;
    bool joins_mark[256]; /* some piece has a U+2581 behind this byte; see wefti_tok_split_point */
    /* Unigram: a score by token id (owned), none over WEFTI_TOK_SCORE_MAX; NULL for the other models.
     */
    double *scores;
    double unknown_score; /* of a character without a token */
    bool float_sums;      /* sums are rounded to single precision, as SentencePiece has them */
    struct wefti_tok_trie trie;
    uint32_t unk_id;
    uint32_t unit_ids[256];     /* tokens of one byte (byte level) or one ASCII character */
    uint32_t fallback_ids[256]; /* <0x00> to <0xFF> */
    bool byte_fallback;

    uint32_t prefix_ids[WEFTI_TOK_AFFIX_IDS_MAX], suffix_ids[WEFTI_TOK_AFFIX_IDS_MAX];
    size_t n_prefix, n_suffix;
    uint32_t bos_id;
    uint32_t eos_token_id; /* the tokenizer's own, for templates */
    uint32_t eos_ids[WEFTI_TOK_EOS_MAX];
    size_t n_eos;
    bool strip_first_space; /* decoding drops one space at the very beginning */
};

/* Fill `tok` (zeroed, ids set to none); on failure the caller frees it. */
weft_err wefti_tok_load_json(weft_tokenizer *tok, const char *dir, struct weft_errmsg *why);
weft_err wefti_tok_load_gguf(weft_tokenizer *tok, const char *path, struct weft_errmsg *why);

weft_err wefti_tok_load_spm(weft_tokenizer *tok, const char *dir, struct weft_errmsg *why);

/* BOS and EOS as tokenizer_config.json, generation_config.json and config.json name them, over what
 * `tok` has of them already. */
weft_err wefti_tok_load_specials(weft_tokenizer *tok, const char *dir, struct weft_errmsg *why);
/* Adds SentencePiece's normaliser, which `tok` owns. */
weft_err wefti_tok_add_sentence(weft_tokenizer *tok, struct wefti_tok_sentence **sentence_out,
                                struct weft_errmsg *why);
/* Turns tok->scores into ranks for merging. PROTO: one is not a number. */
weft_err wefti_tok_rank_scores(weft_tokenizer *tok, struct weft_errmsg *why);
/* Appends a SentencePiece entry as what it decodes to: U+2581 becomes a space. */
void wefti_tok_add_unmarked(struct weft_buf *out, struct weft_str text);

/* Adds a split step. A helper of both loaders. */
weft_err wefti_tok_add_split(weft_tokenizer *tok, const char *pattern, size_t len, bool literal,
                             enum wefti_tok_behavior behavior, bool invert,
                             struct weft_errmsg *why);
weft_err wefti_tok_add_step(weft_tokenizer *tok, enum wefti_tok_step_kind kind,
                            struct wefti_tok_step **step_out, struct weft_errmsg *why);
weft_err wefti_tok_add_norm(weft_tokenizer *tok, enum wefti_tok_norm_kind kind, const char *text,
                            size_t len, struct wefti_tok_norm **norm_out, struct weft_errmsg *why);
/* Once vocabulary and added tokens are complete: indexes and derived tables. */
weft_err wefti_tok_seal(weft_tokenizer *tok, struct weft_errmsg *why);
/* <0xNN> as a byte value; -1 for every other string. */
int wefti_tok_fallback_byte(struct weft_str text);
bool wefti_tok_find(const weft_tokenizer *tok, struct weft_str text, uint32_t *id_out);
/* Adds to eos_ids what is a token and not there yet. */
void wefti_tok_add_eos(weft_tokenizer *tok, uint64_t id);

/* ---------------------------------------------------------------------------------------- bpe ---
 */

struct wefti_tok_symbol {
    uint32_t start, len; /* in the piece; len 0: merged into the one before */
    uint32_t id;
    uint32_t prev, next;   /* WEFTI_TOK_NO_ID at the ends */
    uint32_t rank, merged; /* of this symbol with the next; WEFTI_TOK_NO_RANK: never */
};

struct wefti_tok_ids {
    uint32_t *ids; /* owned */
    size_t n, cap, max;
};

#define WEFTI_TOK_WORD_IDS_MAX 10
#define WEFTI_TOK_WORDS_TEXT_MIN 8192 /* shorter texts do not repeat themselves enough */

/* A piece whose ids were found before; len 0: none. */
struct wefti_tok_word {
    uint8_t len, n_ids;
    uint8_t step; /* the split step it came to; 0: it only had to be merged */
    char text[21];
    uint32_t ids[WEFTI_TOK_WORD_IDS_MAX];
};

/* Scratch of one encoding call, reused from piece to piece. */
struct wefti_tok_bpe {
    struct wefti_tok_symbol *symbols;
    size_t cap;
    uint64_t *heap; /* rank << 32 | position, least first */
    size_t n_heap, heap_cap;
    bool last_unknown;            /* SentencePiece: the last character of the piece so far */
    struct wefti_tok_word *words; /* owned; NULL: not worth it */
    bool in_word;                 /* a part of one that is about to be remembered whole */
};

/* Remembers words from here on, where a text of `text_len` is worth it. */
void wefti_tok_words_init(struct wefti_tok_bpe *bpe, size_t text_len);
/* The place of a word, and whether it is there; NULL: it is not remembered. */
struct wefti_tok_word *wefti_tok_words_at(const struct wefti_tok_bpe *bpe, size_t step,
                                          const char *piece, size_t len, bool *found_out);
/* Appends its ids. */
weft_err wefti_tok_words_use(const struct wefti_tok_word *word, struct wefti_tok_ids *ids,
                             struct weft_errmsg *why);
/* Remembers that a word is ids->ids[first..]; too many: no. */
void wefti_tok_words_put(struct wefti_tok_word *word, size_t step, const char *piece, size_t len,
                         const struct wefti_tok_ids *ids, size_t first);

void wefti_tok_bpe_fini(struct wefti_tok_bpe *bpe);
/* Where a SentencePiece text can be cut in two without a token that spans the cut: in front of the
 * first U+2581 behind a byte that no piece has there. `len` if nowhere. */
size_t wefti_tok_split_point(const weft_tokenizer *tok, const char *piece, size_t len);
weft_err wefti_tok_ids_add(struct wefti_tok_ids *ids, uint32_t id, struct weft_errmsg *why);
/* Appends the ids of one piece, of at most WEFTI_TOK_TEXT_BYTES_MAX. O(n log n). Memory follows from
 * the ids that are still allowed, not from `len`. */
weft_err wefti_tok_bpe_run(const weft_tokenizer *tok, struct wefti_tok_bpe *bpe, const char *piece,
                           size_t len, struct wefti_tok_ids *ids, struct weft_errmsg *why);

/* ------------------------------------------------------------------------------------ unigram ---
 */

/* The longest text and the longest token cannot sum up to more than single precision holds. */
#define WEFTI_TOK_SCORE_MAX 1e12

/* Scratch of one encoding call, and where it stands in a piece. */
struct wefti_tok_unigram {
    uint32_t *reached_by; /* by position: the token that reaches it best */
    size_t cap;
    double *ring; /* the scores of the positions ahead */
    size_t ring_mask;
    double sum; /* of everything up to here */
    bool last_unknown;
};

void wefti_tok_unigram_fini(struct wefti_tok_unigram *uni);
/* Appends the ids of one piece, of at most WEFTI_TOK_TEXT_BYTES_MAX of valid UTF-8. Linear in `len`. */
weft_err wefti_tok_unigram_run(const weft_tokenizer *tok, struct wefti_tok_unigram *uni,
                               const char *text, size_t len, struct wefti_tok_ids *ids,
                               struct weft_errmsg *why);
/* What follows from tok->scores. */
weft_err wefti_tok_unigram_seal(weft_tokenizer *tok, struct weft_errmsg *why);

/* ------------------------------------------------------------------------------------- config ---
 */

/* weft_model_json of a file that need not be there: NULL and WEFT_OK then. */
weft_err wefti_tok_read_json(const char *dir, const char *name, json_t **root_out,
                             struct weft_errmsg *why);

/* A string; empty where `value` is none. */
struct weft_str wefti_tok_json_str(const json_t *value);
struct weft_str wefti_tok_json_str_at(const json_t *object, const char *key);
bool wefti_tok_json_bool_at(const json_t *object, const char *key, bool otherwise);
/* Appends what base64 stands for; false: another character is in it. */
bool wefti_tok_base64(struct weft_str text, struct weft_buf *out);
/* How an added token is matched, as tokenizer.json and added_tokens_decoder write it. */
struct wefti_tok_added_token wefti_tok_added_traits(const json_t *entry);

/* What a vocabulary entry is, as SentencePiece numbers it, and tokenizer.ggml.token_type. */
enum wefti_tok_piece_type {
    WEFTI_TOK_PIECE_NORMAL = 1,
    WEFTI_TOK_PIECE_UNKNOWN = 2,
    WEFTI_TOK_PIECE_CONTROL = 3,
    WEFTI_TOK_PIECE_USER_DEFINED = 4,
    WEFTI_TOK_PIECE_UNUSED = 5,
    WEFTI_TOK_PIECE_BYTE = 6,
};

/* ----------------------------------------------------------------------------------- protobuf ---
 */

enum wefti_tok_pb_wire {
    WEFTI_TOK_PB_VARINT = 0,
    WEFTI_TOK_PB_FIXED64 = 1,
    WEFTI_TOK_PB_BYTES = 2,
    WEFTI_TOK_PB_FIXED32 = 5,
};

struct wefti_tok_pb_field {
    uint64_t number;
    enum wefti_tok_pb_wire wire;
    uint64_t value;        /* of VARINT and FIXED */
    struct weft_str bytes; /* of BYTES; borrowed */
};

/* The next field of a message; false at its end, or with cur->failed where it is damaged. */
bool wefti_tok_pb_next(struct weft_cursor *cur, struct wefti_tok_pb_field *field);

#endif
