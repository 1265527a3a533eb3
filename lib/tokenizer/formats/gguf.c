/* Vocabularies in GGUF files, as llama.cpp writes and reads them.
 *
 * "gpt2" is byte-level BPE with a list of merges. How text is cut before merging is given only as a
 * name (tokenizer.ggml.pre), which stands for the regular expressions of the model's training.
 * "llama" is SentencePiece BPE: pieces merge by score, characters fall back to bytes. "t5" is
 * SentencePiece Unigram with its normaliser. "bert" is WordPiece, whose pieces that begin a word have
 * U+2581 in front. */
#include <stdlib.h>

#include "base/check.h"
#include "base/utf8.h"
#include "formats/formats.h"
#include "vocab/alphabet.h"

struct loader {
    weft_tokenizer *tok;
    const weft_gguf *gguf;
    struct weft_errmsg *why;
    size_t n_tokens;
    bool typed; /* there is a token_type for each token */
    /* Defaults if the file does not say. */
    bool add_bos, add_eos;
    uint32_t bos_id, eos_id;
    struct weft_buf piece, bytes;
};

/* --- how text is cut -------------------------------------------------------------------------- */

#define PATTERNS_MAX 6
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CASELESS_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES_AND_SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define O200K_WORDS                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"     \
    "+" CASELESS_CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"      \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" CASELESS_CONTRACTIONS "?"

/* Letters with case, in the Unicode version and the blocks of DeepSeek's own list. */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}"                          \
    "\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"                  \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}"                         \
    "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}"                 \
    "\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}"                 \
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"                 \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"                            \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}"                           \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"                 \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}"                  \
    "\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}"                   \
    "\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}"                  \
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"                  \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"                  \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"                 \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"               \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"                              \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

struct split {
    const char *names[13]; /* as in tokenizer.ggml.pre */
    bool ignore_merges, add_bos;
    const char *patterns[PATTERNS_MAX]; /* one after the other, matches isolated */
};

/* The patterns are those of the models' own tokenizer.json files. */
static const struct split splits[] = {
    {{"gpt-2", "phi-2", "mpt", "olmo", "jina-es", "jina-de", "jais", "roberta-bpe", "gigachat",
      "jina-v2-es", "jina-v2-de", "modern-bert"},
     false,
     false,
     {GPT2}},
    {{"default"}, false, false, {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2"},
     true,
     true,
     {CASELESS_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" SPACES_AND_SIGNS}},
    {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"},
     false,
     false,
     {CASELESS_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" SPACES_AND_SIGNS}},
    {{"qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan"},
     false,
     false,
     {CASELESS_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" SPACES_AND_SIGNS}},
    {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"},
     false,
     false,
     {"\\p{N}", GPT2}},
    {{"falcon"}, false, false, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {{"deepseek-llm"},
     false,
     false,
     {"[\\r\\n]", "\\s?[" DEEPSEEK_LETTERS "]+",
      "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
      "\\s+$", "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}+"}},
    {{"deepseek-coder"},
     false,
     false,
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"}},
    {{"deepseek-v3"},
     false,
     false,
     {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
      "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*"
      "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {{"gpt-4o", "llama4"},
     false,
     false,
     {O200K_WORDS "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {{"tekken"},
     true,
     true,
     {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
      "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
      "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
};

static const struct split *find_split(struct weft_str name) {
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        for (const char *const *known = splits[i].names; *known; known++)
            if (weft_str_is(name, *known, strlen(*known))) return &splits[i];
    return NULL;
}

static weft_err add_pattern(struct loader *loader, const char *pattern) {
    struct wefti_tok_split split = {.pattern = {pattern, strlen(pattern)},
                                    .behavior = WEFTI_TOK_SPLIT_ISOLATED};
    return wefti_tok_add_split(loader->tok, &split, loader->why);
}

static weft_err load_split(struct loader *loader) {
    struct weft_str name = {"default", 7};
    (void)weft_gguf_str(loader->gguf, "tokenizer.ggml.pre", &name);
    const struct split *split = find_split(name);
    if (!split)
        return weft_err_set(loader->why, WEFT_E_UNSUPPORTED,
                            "tokenizer.ggml.pre \"%.*s\" is not supported",
                            (int)(name.len < 60 ? name.len : 60), name.data);
    loader->tok->ignore_merges = split->ignore_merges;
    loader->add_bos = split->add_bos;
    weft_err err = WEFT_OK;
    if (WEFT_STR_IS(name, "modern-bert")) /* the one whose text is in normal form C first */
        err = wefti_tok_add_norm(loader->tok, WEFTI_TOK_NORM_NFC, NULL, 0, NULL, loader->why);
    for (size_t i = 0; i < PATTERNS_MAX && split->patterns[i] && !err; i++)
        err = add_pattern(loader, split->patterns[i]);
    return err;
}

/* --- tokens ----------------------------------------------------------------------------------- */

static weft_err malformed(struct loader *loader, const char *what) {
    return weft_err_set(loader->why, WEFT_E_PROTO, "%s", what);
}

static enum wefti_tok_piece_type type_of(const struct loader *loader, size_t id) {
    int64_t type = WEFTI_TOK_PIECE_NORMAL;
    if (loader->typed && !weft_gguf_array_i64(loader->gguf, "tokenizer.ggml.token_type", id, &type))
        return WEFTI_TOK_PIECE_NORMAL;
    return type >= WEFTI_TOK_PIECE_NORMAL && type <= WEFTI_TOK_PIECE_BYTE
               ? (enum wefti_tok_piece_type)type
               : WEFTI_TOK_PIECE_NORMAL;
}

static bool is_special(enum wefti_tok_piece_type type) {
    return type == WEFTI_TOK_PIECE_CONTROL || type == WEFTI_TOK_PIECE_UNKNOWN;
}

/* Adds an ordinary entry, for merging and decoding. */
static weft_err put_ordinary(struct loader *loader, uint64_t id, struct weft_str text,
                             enum wefti_tok_piece_type type) {
    weft_tokenizer *tok = loader->tok;
    struct weft_str piece = text, bytes = text;
    uint32_t flags = WEFTI_TOK_PIECE;
    weft_buf_clear(&loader->bytes);
    if (tok->byte_level) {
        if (wefti_tok_bytes_of_chars(text.data, text.len, &loader->bytes))
            piece = bytes = (struct weft_str){loader->bytes.data, loader->bytes.len};
        else
            flags = 0; /* no text encodes to it */
    } else if (type == WEFTI_TOK_PIECE_BYTE) {
        int byte = wefti_tok_fallback_byte(text);
        if (byte < 0) return malformed(loader, "a byte token is not written as <0xNN>");
        tok->fallback_ids[byte] = (uint32_t)id;
        weft_buf_add_char(&loader->bytes, (char)byte);
        bytes = (struct weft_str){loader->bytes.data, loader->bytes.len};
        flags = 0;
    } else {
        if (type != WEFTI_TOK_PIECE_NORMAL)
            flags = 0; /* SentencePiece never makes its symbols by merging */
        wefti_tok_add_unmarked(&loader->bytes, text);
        bytes = (struct weft_str){loader->bytes.data, loader->bytes.len};
    }
    return wefti_tok_vocab_put(&tok->vocab, id, piece, bytes, flags, loader->why);
}

static weft_err put_token(struct loader *loader, uint64_t id, struct weft_str text) {
    enum wefti_tok_piece_type type = type_of(loader, id);
    if (text.len > WEFTI_TOK_ENTRY_BYTES_MAX || !weft_utf8_valid(text.data, text.len))
        return weft_err_set(loader->why, WEFT_E_PROTO,
                            "token %llu is over %d bytes or not valid UTF-8",
                            (unsigned long long)id, WEFTI_TOK_ENTRY_BYTES_MAX);
    if (!is_special(type) && type != WEFTI_TOK_PIECE_USER_DEFINED)
        return put_ordinary(loader, id, text, type);
    struct wefti_tok_added_token traits = {.special = is_special(type)};
    uint32_t flags = WEFTI_TOK_ADDED | (traits.special ? WEFTI_TOK_SPECIAL : 0);
    weft_err err = wefti_tok_vocab_put(&loader->tok->vocab, id, text, text, flags, loader->why);
    if (!err) err = wefti_tok_added_put(&loader->tok->added_raw, text, (uint32_t)id, &traits);
    return err;
}

static weft_err load_tokens(struct loader *loader) {
    enum weft_gguf_type type;
    size_t n_types;
    if (!weft_gguf_array(loader->gguf, "tokenizer.ggml.tokens", &type, &loader->n_tokens) ||
        type != WEFT_GGUF_STRING || loader->n_tokens == 0)
        return malformed(loader, "tokenizer.ggml.tokens is not an array of strings");
    if (weft_gguf_array(loader->gguf, "tokenizer.ggml.token_type", &type, &n_types)) {
        if (n_types != loader->n_tokens)
            return weft_err_set(loader->why, WEFT_E_PROTO, "%zu token types for %zu tokens",
                                n_types, loader->n_tokens);
        loader->typed = true;
    }
    weft_err err = WEFT_OK;
    for (size_t id = 0; id < loader->n_tokens && !err; id++) {
        struct weft_str text;
        if (!weft_gguf_array_str(loader->gguf, "tokenizer.ggml.tokens", id, &text))
            return malformed(loader, "tokenizer.ggml.tokens cannot be read");
        err = put_token(loader, id, text);
    }
    return err ? err : wefti_tok_vocab_index(&loader->tok->vocab);
}

/* --- merges, scores --------------------------------------------------------------------------- */

static uint32_t find_entry(struct loader *loader, const char *text, size_t len) {
    weft_buf_clear(&loader->bytes);
    if (!weft_utf8_valid(text, len) || !wefti_tok_bytes_of_chars(text, len, &loader->bytes))
        return WEFTI_TOK_NO_ID;
    return wefti_tok_vocab_find(&loader->tok->vocab, loader->bytes.data, loader->bytes.len);
}

/* "left right". A merge whose result is not in the vocabulary could only be undone, so it is left
 * out. */
static weft_err put_merge(struct loader *loader, size_t rank, struct weft_str text) {
    const char *space = text.len > 1 ? memchr(text.data + 1, ' ', text.len - 1) : NULL;
    if (!space || text.len > 2 * WEFTI_TOK_ENTRY_BYTES_MAX)
        return weft_err_set(loader->why, WEFT_E_PROTO, "merge %zu is not a pair", rank);
    size_t left_len = (size_t)(space - text.data), right_len = text.len - left_len - 1;
    weft_buf_clear(&loader->piece);
    weft_buf_add(&loader->piece, text.data, left_len);
    weft_buf_add(&loader->piece, space + 1, right_len);
    uint32_t left = find_entry(loader, text.data, left_len);
    uint32_t right = find_entry(loader, space + 1, right_len);
    uint32_t id = find_entry(loader, loader->piece.data, loader->piece.len);
    if (left != WEFTI_TOK_NO_ID && right != WEFTI_TOK_NO_ID && id != WEFTI_TOK_NO_ID)
        wefti_tok_merges_put(&loader->tok->merges, left, right, (uint32_t)rank, id);
    return WEFT_OK;
}

static weft_err load_merges(struct loader *loader) {
    enum weft_gguf_type type;
    size_t n;
    if (!weft_gguf_array(loader->gguf, "tokenizer.ggml.merges", &type, &n) ||
        type != WEFT_GGUF_STRING)
        return malformed(loader, "tokenizer.ggml.merges is not an array of strings");
    weft_err err = wefti_tok_merges_init(&loader->tok->merges, n);
    if (err == WEFT_E_TOOBIG) return weft_err_set(loader->why, err, "%zu merges are too many", n);
    for (size_t i = 0; i < n && !err; i++) {
        struct weft_str text;
        if (!weft_gguf_array_str(loader->gguf, "tokenizer.ggml.merges", i, &text))
            return malformed(loader, "tokenizer.ggml.merges cannot be read");
        err = put_merge(loader, i, text);
    }
    return err;
}

static weft_err load_scores(struct loader *loader) {
    size_t n = loader->n_tokens, n_scores;
    enum weft_gguf_type type;
    if (!weft_gguf_array(loader->gguf, "tokenizer.ggml.scores", &type, &n_scores) || n_scores != n)
        return malformed(loader, "tokenizer.ggml.scores is not an array of one number per token");
    double *scores = loader->tok->scores = calloc(n, sizeof *scores);
    if (!scores) return WEFT_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        if (!weft_gguf_array_f64(loader->gguf, "tokenizer.ggml.scores", i, &scores[i]))
            return weft_err_set(loader->why, WEFT_E_PROTO, "the score of token %zu is not a number",
                                i);
    return WEFT_OK;
}

/* --- special tokens --------------------------------------------------------------------------- */

static uint32_t get_id(const struct loader *loader, const char *key, uint32_t otherwise) {
    uint64_t id = otherwise;
    (void)weft_gguf_u64(loader->gguf, key, &id);
    return id < loader->n_tokens ? (uint32_t)id : WEFTI_TOK_NO_ID;
}

/* All tokens that end a turn in the formats in use; a model has one or two of them. */
static void add_known_eos(weft_tokenizer *tok) {
    static const char *const names[] = {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|return|>",
        "<|call|>",
        "<|end_of_text|>",
        "<EOT>",
        "< EOT >",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|END_OF_TURN_TOKEN|>",
        "<|eot|>",
        "<end_of_utterance>",
        ("<\xEF\xBD\x9C"
         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint32_t id;
        if (wefti_tok_find(tok, (struct weft_str){names[i], strlen(names[i])}, &id) &&
            weft_tok_is_special(tok, id))
            wefti_tok_add_eos(tok, id);
    }
}

/* Files have the names of today or those of before, and all three or none that count. */
static void load_fim(struct loader *loader) {
    static const char *const keys[2][3] = {
        {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.fim_suf_token_id",
         "tokenizer.ggml.fim_mid_token_id"},
        {"tokenizer.ggml.prefix_token_id", "tokenizer.ggml.suffix_token_id",
         "tokenizer.ggml.middle_token_id"},
    };
    for (size_t i = 0; i < 2 && !loader->tok->has_fim; i++) {
        const struct weft_tok_fim fim = {get_id(loader, keys[i][0], WEFTI_TOK_NO_ID),
                                         get_id(loader, keys[i][1], WEFTI_TOK_NO_ID),
                                         get_id(loader, keys[i][2], WEFTI_TOK_NO_ID), true};
        loader->tok->fim = fim;
        loader->tok->has_fim = fim.prefix != WEFTI_TOK_NO_ID && fim.suffix != WEFTI_TOK_NO_ID &&
                               fim.middle != WEFTI_TOK_NO_ID;
    }
}

/* What llama.cpp puts around a query and a document: BOS, the one, EOS, SEP where the file asks for it, the other,
 * EOS. */
static void load_pair(struct loader *loader, bool add_bos, bool add_eos) {
    weft_tokenizer *tok = loader->tok;
    struct wefti_tok_pair_rules *pair = &tok->pair;
    bool add_sep = false;
    uint32_t sep = get_id(loader, "tokenizer.ggml.seperator_token_id", WEFTI_TOK_NO_ID);
    (void)weft_gguf_bool(loader->gguf, "tokenizer.ggml.add_sep_token", &add_sep);
    if (add_bos && tok->bos_id != WEFTI_TOK_NO_ID) pair->prefix_ids[pair->n_prefix++] = tok->bos_id;
    if (add_eos && tok->eos_token_id != WEFTI_TOK_NO_ID) {
        pair->middle_ids[pair->n_middle++] = tok->eos_token_id;
        pair->suffix_ids[pair->n_suffix++] = tok->eos_token_id;
    }
    if (add_sep && sep != WEFTI_TOK_NO_ID) pair->middle_ids[pair->n_middle++] = sep;
    pair->n_middle_first = pair->n_middle;
}

static void load_specials(struct loader *loader) {
    weft_tokenizer *tok = loader->tok;
    bool add_bos = loader->add_bos, add_eos = loader->add_eos;
    tok->bos_id = get_id(loader, "tokenizer.ggml.bos_token_id", loader->bos_id);
    tok->eos_token_id = get_id(loader, "tokenizer.ggml.eos_token_id", loader->eos_id);
    static const char *const enders[] = {"tokenizer.ggml.eot_token_id",
                                         "tokenizer.ggml.eom_token_id"};
    wefti_tok_add_eos(tok, tok->eos_token_id);
    for (size_t i = 0; i < 2; i++)
        wefti_tok_add_eos(tok, get_id(loader, enders[i], WEFTI_TOK_NO_ID));
    add_known_eos(tok);
    load_fim(loader);
    (void)weft_gguf_bool(loader->gguf, "tokenizer.ggml.add_bos_token", &add_bos);
    (void)weft_gguf_bool(loader->gguf, "tokenizer.ggml.add_eos_token", &add_eos);
    if (add_bos && tok->bos_id != WEFTI_TOK_NO_ID) tok->prefix_ids[tok->n_prefix++] = tok->bos_id;
    if (add_eos && tok->eos_token_id != WEFTI_TOK_NO_ID)
        tok->suffix_ids[tok->n_suffix++] = tok->eos_token_id;
    load_pair(loader, add_bos, add_eos);
}

/* --- the kinds -------------------------------------------------------------------------------- */

static weft_err load_byte_level(struct loader *loader) {
    loader->tok->byte_level = true;
    weft_err err = load_split(loader);
    if (!err) err = load_tokens(loader);
    return err ? err : load_merges(loader);
}

static void note_fallback(weft_tokenizer *tok) {
    tok->byte_fallback = true;
    for (int byte = 0; byte < 256; byte++)
        if (tok->fallback_ids[byte] == WEFTI_TOK_NO_ID) tok->byte_fallback = false;
}

/* SentencePiece puts a space before the text and after each special token, and writes all spaces as
 * U+2581. */
static weft_err load_sentence_piece(struct loader *loader) {
    static const char mark[] = WEFTI_TOK_MARK;
    weft_tokenizer *tok = loader->tok;
    bool space_prefix = true;
    struct wefti_tok_norm *norm;
    loader->add_bos = true;
    loader->bos_id = 1;
    loader->eos_id = 2;
    (void)weft_gguf_bool(loader->gguf, "tokenizer.ggml.add_space_prefix", &space_prefix);
    tok->strip_first_space = space_prefix;
    weft_err err = WEFT_OK;
    if (space_prefix)
        err = wefti_tok_add_norm(tok, WEFTI_TOK_NORM_PREPEND, " ", 1, NULL, loader->why);
    if (!err)
        err = wefti_tok_add_norm(tok, WEFTI_TOK_NORM_REPLACE, mark, sizeof mark - 1, &norm,
                                 loader->why);
    if (!err) norm->grows = true;
    if (!err) err = wefti_tok_regex_init(&norm->regex, " ", 1, true, loader->why);
    if (!err) err = load_tokens(loader);
    if (!err) err = load_scores(loader);
    if (!err) err = wefti_tok_rank_scores(tok, loader->why);
    if (err) return err;
    note_fallback(tok);
    tok->unk_id = get_id(loader, "tokenizer.ggml.unknown_token_id", 0);
    return WEFT_OK;
}

static weft_err load_charsmap(struct loader *loader, struct wefti_tok_sentence *sentence) {
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    enum weft_gguf_type type;
    size_t n;
    if (!weft_gguf_array(loader->gguf, key, &type, &n) || n == 0) return WEFT_OK;
    if (type != WEFT_GGUF_U8 && type != WEFT_GGUF_I8)
        return malformed(loader, "tokenizer.ggml.precompiled_charsmap is not an array of bytes");
    char *map = malloc(n);
    if (!map) return WEFT_E_NOMEM;
    for (size_t i = 0; i < n; i++) {
        int64_t byte = 0;
        (void)weft_gguf_array_i64(loader->gguf, key, i, &byte);
        map[i] = (char)(uint8_t)byte;
    }
    weft_err err = wefti_tok_charsmap_new(map, n, &sentence->map, loader->why);
    free(map);
    return err;
}

static weft_err load_unigram(struct loader *loader) {
    weft_tokenizer *tok = loader->tok;
    struct wefti_tok_sentence *sentence;
    weft_err err = wefti_tok_add_sentence(tok, &sentence, loader->why);
    if (err) return err;
    loader->add_eos = true;
    loader->eos_id = 1;
    sentence->prefix = sentence->squeeze = sentence->escape = true;
    (void)weft_gguf_bool(loader->gguf, "tokenizer.ggml.add_space_prefix", &sentence->prefix);
    (void)weft_gguf_bool(loader->gguf, "tokenizer.ggml.remove_extra_whitespaces",
                         &sentence->squeeze);
    tok->strip_first_space = sentence->prefix || sentence->squeeze;
    err = load_charsmap(loader, sentence);
    if (!err) err = load_tokens(loader);
    if (!err) err = load_scores(loader);
    note_fallback(tok);
    tok->unk_id = get_id(loader, "tokenizer.ggml.unknown_token_id", 2);
    return err;
}

/* BERT's own normaliser. Files from before its options were written down are of uncased models. */
static weft_err load_wordpiece(struct loader *loader) {
    static const char mark[] = WEFTI_TOK_MARK;
    weft_tokenizer *tok = loader->tok;
    struct wefti_tok_bert bert = {true, true, true, true};
    (void)weft_gguf_bool(loader->gguf, "tokenizer.ggml.normalizer.lowercase", &bert.lowercase);
    bert.strip_accents = bert.lowercase;
    (void)weft_gguf_bool(loader->gguf, "tokenizer.ggml.normalizer.strip_accents",
                         &bert.strip_accents);
    loader->add_bos = loader->add_eos = true;
    loader->bos_id = get_id(loader, "tokenizer.ggml.cls_token_id", WEFTI_TOK_NO_ID);
    loader->eos_id = get_id(loader, "tokenizer.ggml.seperator_token_id", WEFTI_TOK_NO_ID);
    tok->strip_first_space = true;
    tok->word.is_used = true;
    tok->word.chars_max = 100; /* as everywhere; the format has no key for it */
    memcpy(tok->word.head, mark, sizeof mark);
    weft_err err = wefti_tok_add_bert(tok, &bert, loader->why);
    if (!err) err = wefti_tok_add_bert_splits(tok, loader->why);
    if (!err) err = load_tokens(loader);
    if (err) return err;
    tok->unk_id = get_id(loader, "tokenizer.ggml.unknown_token_id", WEFTI_TOK_NO_ID);
    tok->pair.typed = true;
    return WEFT_OK;
}

static weft_err load_kind(struct loader *loader) {
    struct weft_str kind = {"", 0};
    weft_err err;
    loader->bos_id = loader->eos_id = WEFTI_TOK_NO_ID;
    if (!weft_gguf_str(loader->gguf, "tokenizer.ggml.model", &kind))
        return malformed(loader, "there is no tokenizer.ggml.model");
    if (WEFT_STR_IS(kind, "gpt2"))
        err = load_byte_level(loader);
    else if (WEFT_STR_IS(kind, "llama"))
        err = load_sentence_piece(loader);
    else if (WEFT_STR_IS(kind, "t5"))
        err = load_unigram(loader);
    else if (WEFT_STR_IS(kind, "bert"))
        err = load_wordpiece(loader);
    else
        return weft_err_set(loader->why, WEFT_E_UNSUPPORTED,
                            "tokenizer.ggml.model \"%.*s\" is not supported",
                            (int)(kind.len < 60 ? kind.len : 60), kind.data);
    if (!err) err = wefti_tok_seal(loader->tok, loader->why);
    if (!err) load_specials(loader);
    return err;
}

weft_err wefti_tok_load_gguf(weft_tokenizer *tok, const char *path, struct weft_errmsg *why) {
    WEFT_ASSERT(tok->vocab.n_tokens == 0);
    weft_gguf *gguf;
    weft_err err = weft_gguf_open(path, &gguf, why);
    if (err) return err;
    struct weft_errmsg detail = {""};
    struct loader loader = {.tok = tok, .gguf = gguf, .why = &detail};
    weft_buf_init(&loader.piece, (size_t)4 * WEFTI_TOK_ENTRY_BYTES_MAX);
    weft_buf_init(&loader.bytes, (size_t)4 * WEFTI_TOK_ENTRY_BYTES_MAX);
    err = load_kind(&loader);
    if (err)
        (void)weft_err_set(why, err, "%s: %s", path,
                           detail.text[0] ? detail.text : weft_err_text(err));
    weft_buf_fini(&loader.piece);
    weft_buf_fini(&loader.bytes);
    weft_gguf_free(gguf);
    return err;
}
