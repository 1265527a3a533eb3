/* Hugging Face's tokenizer.json: byte-level BPE, BPE and Unigram over characters as SentencePiece
 * makes them, WordPiece.
 *
 * The file names its parts (normalizer, pre_tokenizer, model, post_processor, decoder), each a tree
 * of typed objects. Every type is either translated exactly or refused by name. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "formats/formats.h"
#include "vocab/alphabet.h"

#define REPLACES_MAX 8
#define NESTING_MAX 8 /* Sequence inside Sequence */

/* GPT-2's split, the default of ByteLevel. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+"
                                   "| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char mark[] = WEFTI_TOK_MARK;

struct replace {
    struct weft_str from, to; /* borrowed from the JSON tree */
};

struct loader {
    weft_tokenizer *tok;
    struct weft_errmsg *why;
    bool has_byte_level;
    /* The decoder. */
    bool decode_bytes, decode_fallback;
    bool decode_words;           /* WordPiece: a space before what does not go on with a word */
    struct weft_str tail_prefix; /* what goes on with a word begins with this */
    struct replace replaces[REPLACES_MAX];
    size_t n_replaces;
    struct weft_buf piece, bytes; /* of the token being read */
};

/* --- helpers ---------------------------------------------------------------------------------- */

static weft_err refuse(struct loader *loader, const char *part, struct weft_str what) {
    return weft_err_set(loader->why, WEFT_E_UNSUPPORTED, "%s \"%.*s\" is not supported", part,
                        (int)(what.len < 100 ? what.len : 100), what.data);
}

static weft_err malformed(struct loader *loader, const char *what) {
    return weft_err_set(loader->why, WEFT_E_PROTO, "%s", what);
}

/* A part may be a Sequence of such parts; `one` gets the leaves. */
typedef weft_err (*part_fn)(struct loader *loader, const json_t *part, struct weft_str type);

static weft_err each_part(struct loader *loader, const json_t *part, const char *list, int depth,
                          part_fn one) {
    if (!part || json_is_null(part)) return WEFT_OK;
    if (!json_is_object(part) || depth > NESTING_MAX)
        return malformed(loader, "a part of the tokenizer is not an object, or nested too deeply");
    struct weft_str type = wefti_tok_json_str_at(part, "type");
    if (!WEFT_STR_IS(type, "Sequence")) return one(loader, part, type);
    const json_t *parts = json_object_get(part, list);
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < json_array_size(parts) && !err; i++)
        err = each_part(loader, json_array_get(parts, i), list, depth + 1, one);
    return err;
}

/* {"String": text} or {"Regex": text}. */
static weft_err get_pattern(struct loader *loader, const json_t *part, struct weft_str *text_out,
                            bool *literal_out) {
    const json_t *pattern = json_object_get(part, "pattern");
    const json_t *text = json_object_get(pattern, "Regex");
    *literal_out = !text;
    if (!text) text = json_object_get(pattern, "String");
    *text_out = wefti_tok_json_str(text);
    return text ? WEFT_OK : malformed(loader, "a pattern is neither a String nor a Regex");
}

/* --- normalizer ------------------------------------------------------------------------------- */

static weft_err load_replace(struct loader *loader, const json_t *part) {
    struct weft_str pattern, content = wefti_tok_json_str_at(part, "content");
    bool literal;
    weft_err err = get_pattern(loader, part, &pattern, &literal);
    if (err || pattern.len == 0) return err;
    struct wefti_tok_norm *norm;
    err = wefti_tok_add_norm(loader->tok, WEFTI_TOK_NORM_REPLACE, content.data, content.len, &norm,
                             loader->why);
    if (err) return err;
    norm->grows = literal && content.len >= pattern.len;
    return wefti_tok_regex_init(&norm->regex, pattern.data, pattern.len, literal, loader->why);
}

static weft_err load_precompiled(struct loader *loader, const json_t *part) {
    struct weft_str text = wefti_tok_json_str_at(part, "precompiled_charsmap");
    if (text.len == 0) return WEFT_OK;
    struct wefti_tok_norm *norm = NULL;
    weft_err err =
        wefti_tok_add_norm(loader->tok, WEFTI_TOK_NORM_CLUSTERS, NULL, 0, &norm, loader->why);
    if (err) return err;
    WEFT_ASSERT(norm);
    struct weft_buf map;
    weft_buf_init(&map, text.len);
    if (!wefti_tok_base64(text, &map))
        err = malformed(loader, "precompiled_charsmap is not base64");
    else if (map.failed)
        err = WEFT_E_NOMEM;
    else
        err = wefti_tok_charsmap_new(map.data, map.len, &norm->map, loader->why);
    weft_buf_fini(&map);
    return err;
}

static weft_err load_bert_normalizer(struct loader *loader, const json_t *part) {
    bool lowercase = wefti_tok_json_bool_at(part, "lowercase", true);
    return wefti_tok_add_bert(
        loader->tok,
        &(struct wefti_tok_bert){
            .clean_text = wefti_tok_json_bool_at(part, "clean_text", true),
            .chinese = wefti_tok_json_bool_at(part, "handle_chinese_chars", true),
            .strip_accents = wefti_tok_json_bool_at(part, "strip_accents", lowercase),
            .lowercase = lowercase},
        loader->why);
}

static weft_err load_normalizer(struct loader *loader, const json_t *part, struct weft_str type) {
    static const struct {
        const char *name;
        enum wefti_tok_norm_kind kind;
    } plain[] = {{"NFC", WEFTI_TOK_NORM_NFC},
                 {"NFD", WEFTI_TOK_NORM_NFD},
                 {"NFKC", WEFTI_TOK_NORM_NFKC},
                 {"NFKD", WEFTI_TOK_NORM_NFKD},
                 {"Lowercase", WEFTI_TOK_NORM_LOWERCASE}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (weft_str_is(type, plain[i].name, strlen(plain[i].name)))
            return wefti_tok_add_norm(loader->tok, plain[i].kind, NULL, 0, NULL, loader->why);
    if (WEFT_STR_IS(type, "Replace")) return load_replace(loader, part);
    if (WEFT_STR_IS(type, "Precompiled")) return load_precompiled(loader, part);
    if (WEFT_STR_IS(type, "BertNormalizer")) return load_bert_normalizer(loader, part);
    if (WEFT_STR_IS(type, "Prepend")) {
        struct weft_str text = wefti_tok_json_str_at(part, "prepend");
        return wefti_tok_add_norm(loader->tok, WEFTI_TOK_NORM_PREPEND, text.data, text.len, NULL,
                                  loader->why);
    }
    if (WEFT_STR_IS(type, "Strip")) {
        struct wefti_tok_norm *norm;
        weft_err err =
            wefti_tok_add_norm(loader->tok, WEFTI_TOK_NORM_STRIP, NULL, 0, &norm, loader->why);
        if (err) return err;
        norm->left = wefti_tok_json_bool_at(part, "strip_left", true);
        norm->right = wefti_tok_json_bool_at(part, "strip_right", true);
        return WEFT_OK;
    }
    return refuse(loader, "normalizer", type);
}

/* --- pre-tokenizer ---------------------------------------------------------------------------- */

static weft_err get_behavior(struct loader *loader, const json_t *part,
                             enum wefti_tok_behavior *out) {
    struct weft_str name = wefti_tok_json_str_at(part, "behavior");
    if (WEFT_STR_IS(name, "Isolated") || name.len == 0)
        *out = WEFTI_TOK_SPLIT_ISOLATED;
    else if (WEFT_STR_IS(name, "Removed"))
        *out = WEFTI_TOK_SPLIT_REMOVED;
    else if (WEFT_STR_IS(name, "MergedWithPrevious"))
        *out = WEFTI_TOK_SPLIT_WITH_PREVIOUS;
    else if (WEFT_STR_IS(name, "MergedWithNext"))
        *out = WEFTI_TOK_SPLIT_WITH_NEXT;
    else if (WEFT_STR_IS(name, "Contiguous"))
        *out = WEFTI_TOK_SPLIT_CONTIGUOUS;
    else
        return refuse(loader, "split behavior", name);
    return WEFT_OK;
}

static weft_err add_split(struct loader *loader, const char *pattern,
                          enum wefti_tok_behavior behavior, bool invert) {
    struct wefti_tok_split split = {
        .pattern = {pattern, strlen(pattern)}, .behavior = behavior, .invert = invert};
    return wefti_tok_add_split(loader->tok, &split, loader->why);
}

static weft_err load_split(struct loader *loader, const json_t *part) {
    struct wefti_tok_split split = {.behavior = WEFTI_TOK_SPLIT_ISOLATED};
    weft_err err = get_pattern(loader, part, &split.pattern, &split.literal);
    if (!err) err = get_behavior(loader, part, &split.behavior);
    split.invert = wefti_tok_json_bool_at(part, "invert", false);
    return err ? err : wefti_tok_add_split(loader->tok, &split, loader->why);
}

static weft_err load_byte_level(struct loader *loader, const json_t *part) {
    struct wefti_tok_step *step;
    weft_err err = WEFT_OK;
    loader->has_byte_level = true;
    if (wefti_tok_json_bool_at(part, "add_prefix_space", true))
        err = wefti_tok_add_step(loader->tok, WEFTI_TOK_STEP_PREFIX_SPACE, &step, loader->why);
    if (!err && wefti_tok_json_bool_at(part, "use_regex", true))
        err = add_split(loader, gpt2_pattern, WEFTI_TOK_SPLIT_ISOLATED, false);
    if (!err) err = wefti_tok_add_step(loader->tok, WEFTI_TOK_STEP_TO_CHARS, &step, loader->why);
    return err;
}

static weft_err load_metaspace(struct loader *loader, const json_t *part) {
    struct weft_str replacement = wefti_tok_json_str_at(part, "replacement"),
                    scheme = wefti_tok_json_str_at(part, "prepend_scheme");
    if (!WEFT_STR_IS(replacement, "\xE2\x96\x81"))
        return refuse(loader, "Metaspace replacement", replacement);
    struct wefti_tok_step *step;
    weft_err err = wefti_tok_add_step(loader->tok, WEFTI_TOK_STEP_METASPACE, &step, loader->why);
    if (err) return err;
    if (WEFT_STR_IS(scheme, "first"))
        step->prepend = WEFTI_TOK_PREPEND_FIRST;
    else if (WEFT_STR_IS(scheme, "always"))
        step->prepend = WEFTI_TOK_PREPEND_ALWAYS;
    else if (WEFT_STR_IS(scheme, "never"))
        step->prepend = WEFTI_TOK_PREPEND_NEVER;
    else if (scheme.len > 0)
        return refuse(loader, "Metaspace prepend_scheme", scheme);
    else if (wefti_tok_json_bool_at(part, "add_prefix_space", true))
        step->prepend = WEFTI_TOK_PREPEND_ALWAYS;
    if (!wefti_tok_json_bool_at(part, "split", true)) return WEFT_OK;
    struct wefti_tok_split split = {
        .pattern = {mark, sizeof mark - 1}, .literal = true, .behavior = WEFTI_TOK_SPLIT_WITH_NEXT};
    return wefti_tok_add_split(loader->tok, &split, loader->why);
}

static weft_err load_pre_tokenizer(struct loader *loader, const json_t *part,
                                   struct weft_str type) {
    bool rewrites = WEFT_STR_IS(type, "ByteLevel") || WEFT_STR_IS(type, "Metaspace");
    if (rewrites && loader->has_byte_level)
        return weft_err_set(loader->why, WEFT_E_UNSUPPORTED,
                            "pre_tokenizer \"%.*s\" after ByteLevel is not supported",
                            (int)type.len, type.data);
    if (WEFT_STR_IS(type, "Split")) return load_split(loader, part);
    if (WEFT_STR_IS(type, "ByteLevel")) return load_byte_level(loader, part);
    if (WEFT_STR_IS(type, "Metaspace")) return load_metaspace(loader, part);
    if (WEFT_STR_IS(type, "BertPreTokenizer"))
        return wefti_tok_add_bert_splits(loader->tok, loader->why);
    if (WEFT_STR_IS(type, "Digits")) {
        bool single = wefti_tok_json_bool_at(part, "individual_digits", false);
        return add_split(loader, single ? "\\p{N}" : "\\p{N}+", WEFTI_TOK_SPLIT_ISOLATED, false);
    }
    if (WEFT_STR_IS(type, "Punctuation")) {
        enum wefti_tok_behavior behavior;
        weft_err err = get_behavior(loader, part, &behavior);
        return err ? err : add_split(loader, "[\\p{P}!-/:-@\\[-`{-~]", behavior, false);
    }
    if (WEFT_STR_IS(type, "Whitespace"))
        return add_split(loader, "\\w+|[^\\w\\s]+", WEFTI_TOK_SPLIT_REMOVED, true);
    if (WEFT_STR_IS(type, "WhitespaceSplit"))
        return add_split(loader, "\\s", WEFTI_TOK_SPLIT_REMOVED, false);
    return refuse(loader, "pre_tokenizer", type);
}

/* TO_CHARS matters only for the steps after it. */
static void drop_last_to_chars(weft_tokenizer *tok) {
    if (tok->n_steps > 0 && tok->steps[tok->n_steps - 1].kind == WEFTI_TOK_STEP_TO_CHARS)
        tok->n_steps--;
}

/* --- decoder ---------------------------------------------------------------------------------- */

static weft_err add_replace(struct loader *loader, struct weft_str from, struct weft_str to) {
    if (from.len == 0) return WEFT_OK;
    if (loader->n_replaces == REPLACES_MAX)
        return malformed(loader, "the decoder has more Replace steps than anyone needs");
    loader->replaces[loader->n_replaces++] = (struct replace){from, to};
    return WEFT_OK;
}

static weft_err load_decoder(struct loader *loader, const json_t *part, struct weft_str type) {
    if (WEFT_STR_IS(type, "ByteLevel")) {
        loader->decode_bytes = true;
        return WEFT_OK;
    }
    if (WEFT_STR_IS(type, "ByteFallback")) {
        loader->decode_fallback = true;
        return WEFT_OK;
    }
    if (WEFT_STR_IS(type, "Fuse")) return WEFT_OK; /* tokens are joined anyway */
    if (WEFT_STR_IS(type, "Replace")) {
        struct weft_str pattern;
        bool literal;
        weft_err err = get_pattern(loader, part, &pattern, &literal);
        if (!err && !literal) err = refuse(loader, "decoder Replace with Regex", pattern);
        return err ? err : add_replace(loader, pattern, wefti_tok_json_str_at(part, "content"));
    }
    if (WEFT_STR_IS(type, "Strip")) {
        double start = json_number_value(json_object_get(part, "start"));
        double stop = json_number_value(json_object_get(part, "stop"));
        struct weft_str content = wefti_tok_json_str_at(part, "content");
        if (!WEFT_STR_IS(content, " ") || (start != 0 && start != 1) || stop != 0)
            return refuse(loader, "decoder Strip other than of one leading space:", content);
        loader->tok->strip_first_space |= start == 1;
        return WEFT_OK;
    }
    if (WEFT_STR_IS(type, "Metaspace")) {
        struct weft_str scheme = wefti_tok_json_str_at(part, "prepend_scheme");
        loader->tok->strip_first_space |=
            scheme.len > 0 ? !WEFT_STR_IS(scheme, "never")
                           : wefti_tok_json_bool_at(part, "add_prefix_space", true);
        return add_replace(loader, (struct weft_str){mark, sizeof mark - 1},
                           (struct weft_str){" ", 1});
    }
    if (WEFT_STR_IS(type, "WordPiece")) {
        /* `cleanup` looks at neighbouring words (" ." becomes "."): not done, as nothing is generated. */
        loader->decode_words = true;
        loader->tail_prefix = wefti_tok_json_str_at(part, "prefix");
        loader->tok->strip_first_space = true;
        return WEFT_OK;
    }
    return refuse(loader, "decoder", type);
}

static void replace_all(struct weft_str text, const struct replace *replace, struct weft_buf *out) {
    for (size_t at = 0; at < text.len;) {
        const char *hit =
            memmem(text.data + at, text.len - at, replace->from.data, replace->from.len);
        size_t end = hit ? (size_t)(hit - text.data) : text.len;
        weft_buf_add(out, text.data + at, end - at);
        if (hit) weft_buf_add(out, replace->to.data, replace->to.len);
        at = hit ? end + replace->from.len : end;
    }
}

/* Decodes `written`, an entry of the vocabulary, into loader->bytes. */
static weft_err decode_entry(struct loader *loader, struct weft_str written, struct weft_str *out) {
    *out = (struct weft_str){"", 0};
    weft_buf_clear(&loader->bytes);
    int byte = loader->decode_fallback ? wefti_tok_fallback_byte(written) : -1;
    if (byte >= 0) {
        weft_buf_add_char(&loader->bytes, (char)byte);
    } else if (loader->decode_bytes) {
        if (!wefti_tok_bytes_of_chars(written.data, written.len, &loader->bytes))
            weft_buf_add(&loader->bytes, written.data, written.len);
    } else if (loader->decode_words) {
        struct weft_str tail = loader->tail_prefix;
        bool goes_on = tail.len > 0 && written.len >= tail.len &&
                       memcmp(written.data, tail.data, tail.len) == 0;
        if (!goes_on) weft_buf_add_char(&loader->bytes, ' ');
        size_t cut = goes_on ? tail.len : 0;
        weft_buf_add(&loader->bytes, written.data + cut, written.len - cut);
    } else {
        weft_buf_add(&loader->bytes, written.data, written.len);
        for (size_t i = 0; i < loader->n_replaces; i++) {
            struct weft_buf spare;
            weft_buf_init(&spare, loader->bytes.max_bytes);
            replace_all((struct weft_str){loader->bytes.data, loader->bytes.len},
                        &loader->replaces[i], &spare);
            weft_buf_fini(&loader->bytes);
            loader->bytes = spare;
        }
    }
    if (loader->bytes.failed) return malformed(loader, "a token decodes to too long a text");
    *out = (struct weft_str){loader->bytes.data, loader->bytes.len};
    return WEFT_OK;
}

/* --- model ------------------------------------------------------------------------------------ */

/* An entry as merging sees it: in loader->piece, or `written` itself. */
static struct weft_str to_piece(struct loader *loader, struct weft_str written,
                                bool *reachable_out) {
    *reachable_out = true;
    if (!loader->tok->byte_level) return written;
    weft_buf_clear(&loader->piece);
    *reachable_out = wefti_tok_bytes_of_chars(written.data, written.len, &loader->piece);
    return *reachable_out ? (struct weft_str){loader->piece.data, loader->piece.len} : written;
}

/* Unigram: [["piece", score], ...], by id. */
static weft_err load_scored_vocab(struct loader *loader, const json_t *vocab) {
    weft_tokenizer *tok = loader->tok;
    size_t n = json_array_size(vocab);
    if (n == 0 || n > WEFT_VOCAB_MAX)
        return weft_err_set(loader->why, WEFT_E_PROTO, "a vocabulary of %zu pieces; 1 to %u can be",
                            n, WEFT_VOCAB_MAX);
    tok->scores = calloc(n, sizeof *tok->scores);
    if (!tok->scores) return WEFT_E_NOMEM;
    for (size_t id = 0; id < n; id++) {
        const json_t *entry = json_array_get(vocab, id), *score = json_array_get(entry, 1);
        struct weft_str written = wefti_tok_json_str(json_array_get(entry, 0)), bytes;
        if (written.len > WEFTI_TOK_ENTRY_BYTES_MAX || !json_is_number(score))
            return weft_err_set(loader->why, WEFT_E_PROTO,
                                "entry %zu of the vocabulary is too long or has no score", id);
        tok->scores[id] = json_number_value(score);
        weft_err err = decode_entry(loader, written, &bytes);
        if (!err)
            err =
                wefti_tok_vocab_put(&tok->vocab, id, written, bytes, WEFTI_TOK_PIECE, loader->why);
        if (err) return err;
    }
    return wefti_tok_vocab_index(&tok->vocab);
}

static weft_err load_vocab(struct loader *loader, json_t *vocab) {
    const char *key;
    size_t key_len;
    json_t *value;
    json_object_keylen_foreach(vocab, key, key_len, value) {
        struct weft_str written = {key, key_len}, bytes;
        uint64_t id;
        if (!weft_json_u64(value, &id))
            return malformed(loader, "an id of the vocabulary is not a non-negative integer");
        if (key_len > WEFTI_TOK_ENTRY_BYTES_MAX)
            return malformed(loader, "an entry of the vocabulary is too long");
        const struct wefti_tok_vocab *have = &loader->tok->vocab;
        if (id < have->n_tokens && have->tokens[id].flags)
            return weft_err_set(loader->why, WEFT_E_PROTO,
                                "two entries of the vocabulary have id %llu",
                                (unsigned long long)id);
        bool reachable;
        struct weft_str piece = to_piece(loader, written, &reachable);
        weft_err err = decode_entry(loader, written, &bytes);
        if (!err)
            err = wefti_tok_vocab_put(&loader->tok->vocab, id, piece, bytes,
                                      reachable ? WEFTI_TOK_PIECE : 0, loader->why);
        if (err) return err;
    }
    return wefti_tok_vocab_index(&loader->tok->vocab);
}

static uint32_t find_entry(struct loader *loader, struct weft_str written) {
    bool reachable;
    struct weft_str piece = to_piece(loader, written, &reachable);
    return reachable ? wefti_tok_vocab_find(&loader->tok->vocab, piece.data, piece.len)
                     : WEFTI_TOK_NO_ID;
}

/* "left right", or ["left", "right"]. */
static bool get_merge(const json_t *merge, struct weft_str *left, struct weft_str *right) {
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        *left = wefti_tok_json_str(json_array_get(merge, 0));
        *right = wefti_tok_json_str(json_array_get(merge, 1));
        return left->len > 0 && right->len > 0;
    }
    struct weft_str text = wefti_tok_json_str(merge);
    const char *space = memchr(text.data, ' ', text.len);
    if (!space) return false;
    *left = (struct weft_str){text.data, (size_t)(space - text.data)};
    *right = (struct weft_str){space + 1, text.len - left->len - 1};
    return left->len > 0 && right->len > 0 && !memchr(right->data, ' ', right->len);
}

static weft_err load_merges(struct loader *loader, const json_t *merges) {
    weft_tokenizer *tok = loader->tok;
    size_t n = json_array_size(merges);
    weft_err err = wefti_tok_merges_init(&tok->merges, n);
    if (err == WEFT_E_TOOBIG) return weft_err_set(loader->why, err, "%zu merges are too many", n);
    struct weft_buf joined;
    weft_buf_init(&joined, (size_t)2 * WEFTI_TOK_ENTRY_BYTES_MAX);
    for (size_t i = 0; i < n && !err; i++) {
        struct weft_str left = {"", 0}, right = left;
        if (!get_merge(json_array_get(merges, i), &left, &right)) {
            err = weft_err_set(loader->why, WEFT_E_PROTO, "merge %zu is not a pair", i);
            break;
        }
        weft_buf_clear(&joined);
        weft_buf_add(&joined, left.data, left.len);
        weft_buf_add(&joined, right.data, right.len);
        uint32_t left_id = find_entry(loader, left), right_id = find_entry(loader, right);
        uint32_t id = find_entry(loader, (struct weft_str){joined.data, joined.len});
        if (left_id == WEFTI_TOK_NO_ID || right_id == WEFTI_TOK_NO_ID || id == WEFTI_TOK_NO_ID)
            err = weft_err_set(loader->why, WEFT_E_PROTO,
                               "merge %zu has a part that is not in the vocabulary", i);
        else
            wefti_tok_merges_put(&tok->merges, left_id, right_id, (uint32_t)i, id);
    }
    weft_buf_fini(&joined);
    return err;
}

static weft_err load_fallback(struct loader *loader) {
    weft_tokenizer *tok = loader->tok;
    size_t n = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<0x%02X>", byte);
        tok->fallback_ids[byte] = wefti_tok_vocab_find(&tok->vocab, text, 6);
        n += tok->fallback_ids[byte] != WEFTI_TOK_NO_ID;
    }
    tok->byte_fallback = n == 256;
    if (n > 0 && n < 256)
        return weft_err_set(loader->why, WEFT_E_UNSUPPORTED,
                            "byte_fallback with only %zu of 256 byte tokens is not supported", n);
    return WEFT_OK;
}

static weft_err load_unigram(struct loader *loader, const json_t *model) {
    weft_tokenizer *tok = loader->tok;
    uint64_t unk;
    if (loader->has_byte_level)
        return refuse(loader, "pre_tokenizer ByteLevel with model",
                      (struct weft_str){"Unigram", 7});
    const json_t *unk_id = json_object_get(model, "unk_id");
    weft_err err = load_scored_vocab(loader, json_object_get(model, "vocab"));
    if (!err && wefti_tok_json_bool_at(model, "byte_fallback", false)) err = load_fallback(loader);
    if (err || !unk_id || json_is_null(unk_id)) return err;
    if (!weft_json_u64(unk_id, &unk) || unk >= tok->vocab.n_tokens)
        return malformed(loader, "unk_id is no token of the vocabulary");
    tok->unk_id = (uint32_t)unk;
    return WEFT_OK;
}

static weft_err load_wordpiece(struct loader *loader, const json_t *model) {
    weft_tokenizer *tok = loader->tok;
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *chars_max = json_object_get(model, "max_input_chars_per_word");
    struct weft_str tail = prefix ? wefti_tok_json_str(prefix) : (struct weft_str){"##", 2};
    uint64_t most = 100;
    if (loader->has_byte_level)
        return refuse(loader, "pre_tokenizer ByteLevel with model",
                      (struct weft_str){"WordPiece", 9});
    if (!json_is_object(vocab)) return malformed(loader, "the model has no vocab object");
    if (tail.len >= sizeof tok->word.tail || memchr(tail.data, 0, tail.len))
        return refuse(loader, "continuing_subword_prefix", tail);
    if (chars_max && (!weft_json_u64(chars_max, &most) || most > WEFTI_TOK_TEXT_BYTES_MAX))
        return malformed(loader, "max_input_chars_per_word is no count");
    tok->word.is_used = true;
    tok->word.chars_max = (size_t)most;
    memcpy(tok->word.tail, tail.data, tail.len);
    weft_err err = load_vocab(loader, vocab);
    if (err) return err;
    struct weft_str unk = wefti_tok_json_str_at(model, "unk_token");
    tok->unk_id = find_entry(loader, unk.len > 0 ? unk : (struct weft_str){"[UNK]", 5});
    return WEFT_OK;
}

static weft_err load_model(struct loader *loader, const json_t *model) {
    weft_tokenizer *tok = loader->tok;
    struct weft_str type = wefti_tok_json_str_at(model, "type"),
                    unk = wefti_tok_json_str_at(model, "unk_token");
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    if (WEFT_STR_IS(type, "Unigram")) return load_unigram(loader, model);
    if (WEFT_STR_IS(type, "WordPiece")) return load_wordpiece(loader, model);
    if (!WEFT_STR_IS(type, "BPE") && !(type.len == 0 && merges))
        return refuse(loader, "tokenizer model", type);
    if (!json_is_object(vocab) || !json_is_array(merges))
        return malformed(loader, "the model has no vocab object or no merges array");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++)
        if (wefti_tok_json_str_at(model, affixes[i]).len > 0)
            return refuse(loader, "model option",
                          (struct weft_str){affixes[i], strlen(affixes[i])});
    if (json_number_value(json_object_get(model, "dropout")) > 0)
        return refuse(loader, "model option", (struct weft_str){"dropout", 7});
    tok->byte_level = loader->has_byte_level;
    tok->ignore_merges = wefti_tok_json_bool_at(model, "ignore_merges", false);
    tok->fuse_unk = wefti_tok_json_bool_at(model, "fuse_unk", false);
    weft_err err = load_vocab(loader, vocab);
    if (!err) err = load_merges(loader, merges);
    if (!err && wefti_tok_json_bool_at(model, "byte_fallback", false)) err = load_fallback(loader);
    if (!err && unk.len > 0) tok->unk_id = find_entry(loader, unk);
    return err;
}

/* --- added tokens ----------------------------------------------------------------------------- */

static weft_err put_added(struct loader *loader, struct weft_str content, uint32_t id,
                          bool normalized, const struct wefti_tok_added_token *traits) {
    weft_tokenizer *tok = loader->tok;
    if (!normalized || tok->n_norms == 0)
        return wefti_tok_added_put(normalized ? &tok->added_normalized : &tok->added_raw, content,
                                   id, traits);
    struct wefti_tok_matcher matcher;
    struct weft_buf text, spare;
    weft_buf_init(&text, (size_t)4 * WEFTI_TOK_ENTRY_BYTES_MAX);
    weft_buf_init(&spare, (size_t)4 * WEFTI_TOK_ENTRY_BYTES_MAX);
    weft_buf_add(&text, content.data, content.len);
    weft_err err = wefti_tok_matcher_init(&matcher, content.len);
    struct wefti_tok_normalizing state = {&matcher, &text, &spare, true};
    if (!err) err = wefti_tok_norm_run(tok->norms, tok->n_norms, &state, loader->why);
    if (!err)
        err = wefti_tok_added_put(&tok->added_normalized, (struct weft_str){text.data, text.len},
                                  id, traits);
    if (tok->vocab.bytes_max < text.len) tok->vocab.bytes_max = (uint32_t)text.len;
    wefti_tok_matcher_fini(&matcher);
    weft_buf_fini(&text);
    weft_buf_fini(&spare);
    return err;
}

static weft_err load_added(struct loader *loader, const json_t *list) {
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < json_array_size(list) && !err; i++) {
        const json_t *entry = json_array_get(list, i);
        struct weft_str content = wefti_tok_json_str_at(entry, "content");
        uint64_t id;
        if (!weft_json_u64(json_object_get(entry, "id"), &id) || content.len == 0)
            return weft_err_set(loader->why, WEFT_E_PROTO, "added token %zu lacks an id or content",
                                i);
        struct wefti_tok_added_token traits = wefti_tok_added_traits(entry);
        uint32_t flags = WEFTI_TOK_ADDED | (traits.special ? WEFTI_TOK_SPECIAL : 0);
        err = wefti_tok_vocab_put(&loader->tok->vocab, id, content, content, flags, loader->why);
        if (!err)
            err = put_added(loader, content, (uint32_t)id,
                            wefti_tok_json_bool_at(entry, "normalized", !traits.special), &traits);
    }
    return err;
}

/* --- post-processor --------------------------------------------------------------------------- */

static weft_err add_affix(struct loader *loader, bool is_suffix, const json_t *value) {
    weft_tokenizer *tok = loader->tok;
    size_t *n = is_suffix ? &tok->n_suffix : &tok->n_prefix;
    uint64_t id;
    if (!weft_json_u64(value, &id) || id >= tok->vocab.n_tokens)
        return malformed(loader, "the post_processor names a token that is not in the vocabulary");
    if (*n == WEFTI_TOK_AFFIX_IDS_MAX)
        return malformed(loader, "the post_processor puts too many tokens around a text");
    (is_suffix ? tok->suffix_ids : tok->prefix_ids)[(*n)++] = (uint32_t)id;
    return WEFT_OK;
}

static weft_err load_template(struct loader *loader, const json_t *part) {
    const json_t *single = json_object_get(part, "single");
    const json_t *specials = json_object_get(part, "special_tokens");
    bool is_suffix = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");
        if (json_object_get(item, "Sequence")) {
            if (is_suffix)
                return refuse(loader, "post_processor", (struct weft_str){"text twice", 10});
            is_suffix = true;
            continue;
        }
        const char *name = json_string_value(json_object_get(special, "id"));
        const json_t *ids = name ? json_object_get(json_object_get(specials, name), "ids") : NULL;
        if (!json_is_array(ids))
            return malformed(loader, "the post_processor names an unknown special token");
        for (size_t k = 0; k < json_array_size(ids); k++) {
            weft_err err = add_affix(loader, is_suffix, json_array_get(ids, k));
            if (err) return err;
        }
    }
    return WEFT_OK;
}

/* The lists of a pair's affixes: before the first text, between the two, after the second. */
static weft_err add_pair_affix(struct loader *loader, size_t part, const json_t *value) {
    struct wefti_tok_pair_rules *pair = &loader->tok->pair;
    uint32_t *const lists[] = {pair->prefix_ids, pair->middle_ids, pair->suffix_ids};
    size_t *const counts[] = {&pair->n_prefix, &pair->n_middle, &pair->n_suffix};
    uint64_t id;
    WEFT_ASSERT(part < 3);
    if (!weft_json_u64(value, &id) || id >= loader->tok->vocab.n_tokens)
        return malformed(loader, "the post_processor names a token that is not in the vocabulary");
    if (*counts[part] == WEFTI_TOK_AFFIX_IDS_MAX)
        return malformed(loader, "the post_processor puts too many tokens around two texts");
    lists[part][(*counts[part])++] = (uint32_t)id;
    return WEFT_OK;
}

/* Where the walk over a template's `pair` is. */
struct pair_place {
    size_t part;        /* texts seen: 0 to 2 */
    uint64_t type_last; /* types begin with 0 and never go down */
};

static weft_err load_pair_special(struct loader *loader, const json_t *ids, uint64_t type,
                                  const struct pair_place *place) {
    struct wefti_tok_pair_rules *pair = &loader->tok->pair;
    if (!json_is_array(ids))
        return malformed(loader, "the post_processor names an unknown special token");
    if (place->part == 0 && type != 0) pair->is_odd = true;
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < json_array_size(ids) && !err; i++)
        err = add_pair_affix(loader, place->part, json_array_get(ids, i));
    if (place->part == 1 && type == 0) pair->n_middle_first = pair->n_middle;
    return err;
}

/* {"Sequence": {"id": "A", "type_id": 0}} and {"SpecialToken": {...}}. A pair that is put together in a way no
 * model here needs makes no error of the file: single texts may be all that is asked for. */
static weft_err load_pair_template(struct loader *loader, const json_t *items,
                                   const json_t *specials) {
    struct wefti_tok_pair_rules *pair = &loader->tok->pair;
    struct pair_place place = {0};
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < json_array_size(items) && !err; i++) {
        const json_t *item = json_array_get(items, i), *text = json_object_get(item, "Sequence");
        const json_t *part = text ? text : json_object_get(item, "SpecialToken");
        struct weft_str name = wefti_tok_json_str_at(part, "id");
        uint64_t type = 0;
        (void)weft_json_u64(json_object_get(part, "type_id"), &type);
        if (type > 1 || type < place.type_last) pair->is_odd = true;
        place.type_last = type;
        if (!text) {
            const char *key = json_string_value(json_object_get(part, "id"));
            const json_t *special = key ? json_object_get(specials, key) : NULL;
            err = load_pair_special(loader, json_object_get(special, "ids"), type, &place);
            continue;
        }
        bool in_order = place.part == 0 ? WEFT_STR_IS(name, "A") && type == 0
                                        : place.part == 1 && WEFT_STR_IS(name, "B");
        if (!in_order) pair->is_odd = true;
        if (place.part == 1) pair->typed = type == 1;
        if (place.part < 2) place.part++;
    }
    /* A last token of another type than the text before it has no place in these rules. */
    if (place.part != 2 || (place.type_last == 1) != pair->typed) pair->is_odd = true;
    return err;
}

static weft_err load_cls_sep(struct loader *loader, const json_t *part, bool is_bert) {
    const json_t *cls = json_array_get(json_object_get(part, "cls"), 1);
    const json_t *sep = json_array_get(json_object_get(part, "sep"), 1);
    weft_err err = add_affix(loader, false, cls);
    if (!err) err = add_affix(loader, true, sep);
    if (!err) err = add_pair_affix(loader, 0, cls);
    if (!err) err = add_pair_affix(loader, 1, sep);
    if (!err && !is_bert) err = add_pair_affix(loader, 1, sep);
    if (!err) err = add_pair_affix(loader, 2, sep);
    loader->tok->pair.typed = is_bert;
    loader->tok->pair.n_middle_first = loader->tok->pair.n_middle;
    return err;
}

static weft_err load_post_processor(struct loader *loader, const json_t *part,
                                    struct weft_str type) {
    if (WEFT_STR_IS(type, "ByteLevel")) return WEFT_OK; /* it only moves offsets */
    if (loader->tok->n_prefix + loader->tok->n_suffix > 0)
        return refuse(loader, "a second post_processor", type);
    if (WEFT_STR_IS(type, "TemplateProcessing")) {
        weft_err err = load_template(loader, part);
        return err ? err
                   : load_pair_template(loader, json_object_get(part, "pair"),
                                        json_object_get(part, "special_tokens"));
    }
    if (WEFT_STR_IS(type, "RobertaProcessing") || WEFT_STR_IS(type, "BertProcessing"))
        return load_cls_sep(loader, part, WEFT_STR_IS(type, "BertProcessing"));
    return refuse(loader, "post_processor", type);
}

/* --- the file --------------------------------------------------------------------------------- */

static weft_err load_parts(struct loader *loader, const json_t *root) {
    weft_err err =
        each_part(loader, json_object_get(root, "normalizer"), "normalizers", 0, load_normalizer);
    if (!err)
        err = each_part(loader, json_object_get(root, "pre_tokenizer"), "pretokenizers", 0,
                        load_pre_tokenizer);
    drop_last_to_chars(loader->tok);
    const json_t *decoder = json_object_get(root, "decoder");
    if (!err && !json_is_object(decoder))
        err = refuse(loader, "a tokenizer without a", (struct weft_str){"decoder", 7});
    if (!err) err = each_part(loader, decoder, "decoders", 0, load_decoder);
    if (!err) err = load_model(loader, json_object_get(root, "model"));
    if (!err) err = load_added(loader, json_object_get(root, "added_tokens"));
    if (!err) err = wefti_tok_seal(loader->tok, loader->why);
    if (!err)
        err = each_part(loader, json_object_get(root, "post_processor"), "processors", 0,
                        load_post_processor);
    return err;
}

weft_err wefti_tok_load_json(weft_tokenizer *tok, const char *dir, struct weft_errmsg *why) {
    WEFT_ASSERT(tok->vocab.n_tokens == 0);
    json_t *root;
    weft_err err = weft_model_json(dir, "tokenizer.json", WEFTI_TOK_FILE_BYTES_MAX, &root, why);
    if (err == WEFT_E_NOTFOUND) return weft_err_set(why, err, "%s has no tokenizer.json", dir);
    if (err) return err;
    struct weft_errmsg detail = {""};
    struct loader loader = {.tok = tok, .why = &detail};
    weft_buf_init(&loader.piece, (size_t)4 * WEFTI_TOK_ENTRY_BYTES_MAX);
    weft_buf_init(&loader.bytes, (size_t)4 * WEFTI_TOK_ENTRY_BYTES_MAX);
    err = load_parts(&loader, root);
    if (err)
        (void)weft_err_set(why, err, "%s/tokenizer.json: %s", dir,
                           detail.text[0] ? detail.text : weft_err_text(err));
    weft_buf_fini(&loader.piece);
    weft_buf_fini(&loader.bytes);
    json_decref(root);
    if (!err) err = wefti_tok_load_specials(tok, dir, why);
    return err;
}
