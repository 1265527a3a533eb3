/* Vocabularies in GGUF files, as llama.cpp writes and reads them.
 *
 * "gpt2" is byte-level BPE with a list of merges, and "gemma4" such BPE of characters. How text is cut before merging
 * is given only as a name (tokenizer.ggml.pre; gguf_splits.c).
 * "llama" is SentencePiece BPE: pieces merge by score, characters fall back to bytes. "t5" is
 * SentencePiece Unigram with its normaliser. "bert" is WordPiece, whose pieces that begin a word have
 * U+2581 in front. */
#include <stdlib.h>

#include "base/check.h"
#include "base/utf8.h"
#include "formats/formats.h"
#include "formats/gguf_splits.h"
#include "vocab/alphabet.h"

struct loader {
    weft_tokenizer *tok;
    const weft_gguf *gguf;
    struct weft_errmsg *why;
    size_t n_tokens;
    bool typed;    /* there is a token_type for each token */
    bool char_bpe; /* <0x0A> is the byte, whatever its type */
    /* Defaults if the file does not say. */
    bool add_bos, add_eos, add_sep;
    uint32_t bos_id, eos_id;
    struct weft_buf piece, bytes;
};

/* --- how text is cut -------------------------------------------------------------------------- */

/* Spaces are written as U+2581. */
static weft_err add_marks(struct loader *loader) {
    static const char mark[] = WEFTI_TOK_MARK;
    struct wefti_tok_norm *norm = NULL;
    weft_err err = wefti_tok_add_norm(loader->tok, WEFTI_TOK_NORM_REPLACE, mark, sizeof mark - 1,
                                      &norm, loader->why);
    if (err) return err;
    WEFT_ASSERT(norm);
    norm->grows = true;
    return wefti_tok_regex_init(&norm->regex, " ", 1, true, loader->why);
}

static weft_err add_pattern(struct loader *loader, const char *pattern) {
    struct wefti_tok_split split = {.pattern = {pattern, strlen(pattern)},
                                    .behavior = WEFTI_TOK_SPLIT_ISOLATED};
    return wefti_tok_add_split(loader->tok, &split, loader->why);
}

/* The name is the file's, or that of the kind. */
static weft_err load_split(struct loader *loader, const char *otherwise) {
    weft_tokenizer *tok = loader->tok;
    struct weft_str name = {otherwise, strlen(otherwise)};
    (void)weft_gguf_str(loader->gguf, "tokenizer.ggml.pre", &name);
    const struct wefti_tok_gguf_split *split = wefti_tok_gguf_split(name);
    if (!split)
        return weft_err_set(loader->why, WEFT_E_UNSUPPORTED,
                            "tokenizer.ggml.pre \"%.*s\" is not supported",
                            (int)(name.len < 60 ? name.len : 60), name.data);
    tok->byte_level = !(split->flags & WEFTI_TOK_GGUF_CHARS);
    tok->ignore_merges = split->flags & WEFTI_TOK_GGUF_IGNORE_MERGES;
    loader->char_bpe = !tok->byte_level;
    loader->add_bos = split->flags & WEFTI_TOK_GGUF_ADD_BOS;
    loader->add_sep = split->flags & WEFTI_TOK_GGUF_ADD_SEP;
    weft_err err = WEFT_OK;
    if (split->flags & WEFTI_TOK_GGUF_NFC)
        err = wefti_tok_add_norm(tok, WEFTI_TOK_NORM_NFC, NULL, 0, NULL, loader->why);
    if (!err && !tok->byte_level) err = add_marks(loader);
    for (size_t i = 0; i < WEFTI_TOK_GGUF_PATTERNS_MAX && split->patterns[i] && !err; i++)
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
    if (loader->char_bpe && wefti_tok_fallback_byte(text) >= 0) type = WEFTI_TOK_PIECE_BYTE;
    if (!is_special(type) && type != WEFTI_TOK_PIECE_USER_DEFINED)
        return put_ordinary(loader, id, text, type);
    struct wefti_tok_added_token traits = {.special = is_special(type)};
    uint32_t flags = WEFTI_TOK_ADDED | (traits.special ? WEFTI_TOK_SPECIAL : 0);
    weft_err err = wefti_tok_vocab_put(&loader->tok->vocab, id, text, text, flags, loader->why);
    if (!err) err = wefti_tok_added_put(&loader->tok->added_raw, text, (uint32_t)id, &traits);
    return err;
}

static bool is_whole(enum weft_gguf_type type) {
    return type <= WEFT_GGUF_I32 || type == WEFT_GGUF_U64 || type == WEFT_GGUF_I64;
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
        if (!is_whole(type))
            return malformed(loader, "tokenizer.ggml.token_type is not an array of whole numbers");
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
    if (!loader->tok->byte_level) return wefti_tok_vocab_find(&loader->tok->vocab, text, len);
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

static bool find_added(const weft_tokenizer *tok, const char *name, uint32_t *id_out) {
    return wefti_tok_find(tok, (struct weft_str){name, strlen(name)}, id_out) &&
           tok->vocab.tokens[*id_out].flags & WEFTI_TOK_ADDED;
}

/* Whether <|end|> ends a message, of which a turn has several: gpt-oss's and Solar Open's turns end with others. */
static bool has_longer_turns(const weft_tokenizer *tok) {
    uint32_t id;
    return (find_added(tok, "<|return|>", &id) && find_added(tok, "<|call|>", &id)) ||
           (find_added(tok, "<|flush|>", &id) && find_added(tok, "<|calls|>", &id));
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
        "<|flush|>",
        "<|calls|>",
        "<|end_of_text|>",
        "<EOT>",
        "< EOT >",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|END_OF_TURN_TOKEN|>",
        "<|eot|>",
        "<end_of_utterance>",
        "<turn|>",
        "<|tool_response>",
        "[e~[",
        ("<\xEF\xBD\x9C"
         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
    };
    const bool goes_on = has_longer_turns(tok);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint32_t id;
        if (goes_on && strcmp(names[i], "<|end|>") == 0) continue;
        if (find_added(tok, names[i], &id)) wefti_tok_add_eos(tok, id);
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
    bool add_sep = loader->add_sep;
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

static void note_fallback(weft_tokenizer *tok) {
    tok->byte_fallback = true;
    for (int byte = 0; byte < 256; byte++)
        if (tok->fallback_ids[byte] == WEFTI_TOK_NO_ID) tok->byte_fallback = false;
}

/* BPE of bytes, or of characters. */
static weft_err load_bpe(struct loader *loader, const char *split) {
    weft_err err = load_split(loader, split);
    if (!err) err = load_tokens(loader);
    if (!err) err = load_merges(loader);
    if (err || loader->tok->byte_level) return err;
    note_fallback(loader->tok);
    loader->tok->unk_id = get_id(loader, "tokenizer.ggml.unknown_token_id", WEFTI_TOK_NO_ID);
    return WEFT_OK;
}

/* SentencePiece puts a space before the text and after each special token, and writes all spaces as
 * U+2581. */
static weft_err load_sentence_piece(struct loader *loader) {
    weft_tokenizer *tok = loader->tok;
    bool space_prefix = true;
    loader->add_bos = true;
    loader->bos_id = 1;
    loader->eos_id = 2;
    (void)weft_gguf_bool(loader->gguf, "tokenizer.ggml.add_space_prefix", &space_prefix);
    tok->strip_first_space = space_prefix;
    weft_err err = WEFT_OK;
    if (space_prefix)
        err = wefti_tok_add_norm(tok, WEFTI_TOK_NORM_PREPEND, " ", 1, NULL, loader->why);
    if (!err) err = add_marks(loader);
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

static bool is_token_id(struct weft_str key) {
    static const char begin[] = "tokenizer.ggml.", end[] = "_token_id";
    const size_t n_begin = sizeof begin - 1, n_end = sizeof end - 1;
    return key.len >= n_begin + n_end && memcmp(key.data, begin, n_begin) == 0 &&
           memcmp(key.data + key.len - n_end, end, n_end) == 0;
}

/* What is of another type than it should be must not pass for what is not there. */
static weft_err check_types(struct loader *loader) {
    static const char *const flags[] = {
        "tokenizer.ggml.add_bos_token",           "tokenizer.ggml.add_eos_token",
        "tokenizer.ggml.add_sep_token",           "tokenizer.ggml.add_space_prefix",
        "tokenizer.ggml.normalizer.lowercase",    "tokenizer.ggml.normalizer.strip_accents",
        "tokenizer.ggml.remove_extra_whitespaces"};
    const size_t n_flags = sizeof flags / sizeof flags[0];
    for (size_t i = 0; i < weft_gguf_n_keys(loader->gguf); i++) {
        enum weft_gguf_type type;
        const struct weft_str key = weft_gguf_key(loader->gguf, i, &type);
        if (WEFT_STR_IS(key, "tokenizer.ggml.pre") && type != WEFT_GGUF_STRING)
            return malformed(loader, "tokenizer.ggml.pre is not a string");
        if (is_token_id(key) && !is_whole(type))
            return weft_err_set(loader->why, WEFT_E_PROTO, "%.*s is not a whole number",
                                (int)(key.len < 60 ? key.len : 60), key.data);
        for (size_t f = 0; f < n_flags && type != WEFT_GGUF_BOOL; f++) {
            if (key.len == strlen(flags[f]) && memcmp(key.data, flags[f], key.len) == 0)
                return weft_err_set(loader->why, WEFT_E_PROTO, "%s is not a boolean", flags[f]);
        }
    }
    return WEFT_OK;
}

static weft_err load_kind(struct loader *loader) {
    struct weft_str kind = {"", 0};
    weft_err err = check_types(loader);
    if (err) return err;
    loader->bos_id = loader->eos_id = WEFTI_TOK_NO_ID;
    if (!weft_gguf_str(loader->gguf, "tokenizer.ggml.model", &kind))
        return malformed(loader, "there is no tokenizer.ggml.model");
    if (WEFT_STR_IS(kind, "gpt2"))
        err = load_bpe(loader, "default");
    else if (WEFT_STR_IS(kind, "gemma4"))
        err = load_bpe(loader, "gemma4");
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
