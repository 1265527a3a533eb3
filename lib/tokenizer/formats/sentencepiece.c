/* SentencePiece's own tokenizer.model: a protobuf message ModelProto.
 *
 * Its pieces stand in the order of their ids, each with a score and a type. A BPE model merges by
 * score, a Unigram model looks for the best sum. Whether a text gets BOS and EOS is not in the file
 * but in Hugging Face's tokenizer_config.json, as are tokens added later. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "formats/formats.h"
#include "formats/protobuf.h"
#include "vocab/alphabet.h"

enum model_field { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum piece_field { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum trainer_field {
    TRAINER_MODEL_TYPE = 3,
    TRAINER_SPACE_AS_SUFFIX = 24,
    TRAINER_BOS_ID = 41,
    TRAINER_EOS_ID = 42,
};
enum normalizer_field {
    NORMALIZER_MAP = 2,
    NORMALIZER_PREFIX = 3,
    NORMALIZER_SQUEEZE = 4,
    NORMALIZER_ESCAPE = 5,
};
enum model_type { MODEL_UNIGRAM = 1, MODEL_BPE = 2, MODEL_WORD = 3, MODEL_CHAR = 4 };
struct loader {
    weft_tokenizer *tok;
    struct weft_errmsg *why;
    struct wefti_tok_sentence *sentence; /* belongs to the normaliser step */
    struct weft_str map;
    uint64_t model_type;
    bool prefix, space_as_suffix;
    uint64_t bos_id, eos_id;
    uint32_t n_pieces;
    struct weft_buf bytes;
};

static weft_err malformed(struct loader *loader, const char *what) {
    return weft_err_set(loader->why, WEFT_E_PROTO, "%s", what);
}

/* --- what stands beside the pieces ------------------------------------------------------------ */

static void take_trainer(struct loader *loader, const struct wefti_tok_pb_field *field) {
    switch (field->number) {
    case TRAINER_MODEL_TYPE:
        loader->model_type = field->value;
        break;
    case TRAINER_SPACE_AS_SUFFIX:
        loader->space_as_suffix = field->value != 0;
        break;
    case TRAINER_BOS_ID:
        loader->bos_id = field->value; /* -1 means none and is never a valid id */
        break;
    case TRAINER_EOS_ID:
        loader->eos_id = field->value;
        break;
    default:
        break;
    }
}

static void take_normalizer(struct loader *loader, const struct wefti_tok_pb_field *field) {
    switch (field->number) {
    case NORMALIZER_MAP:
        loader->map = field->bytes;
        break;
    case NORMALIZER_PREFIX:
        loader->prefix = field->value != 0;
        break;
    case NORMALIZER_SQUEEZE:
        loader->sentence->squeeze = field->value != 0;
        break;
    case NORMALIZER_ESCAPE:
        loader->sentence->escape = field->value != 0;
        break;
    default:
        break;
    }
}

static weft_err each_field(struct loader *loader, struct weft_str message,
                           void (*take)(struct loader *loader,
                                        const struct wefti_tok_pb_field *field)) {
    struct weft_cursor cur;
    struct wefti_tok_pb_field field;
    weft_cursor_init(&cur, message.data, message.len);
    while (wefti_tok_pb_next(&cur, &field))
        take(loader, &field);
    return cur.failed ? malformed(loader, "the file is damaged") : WEFT_OK;
}

static weft_err load_specs(struct loader *loader, struct weft_str file) {
    struct weft_cursor cur;
    struct wefti_tok_pb_field field;
    weft_err err = WEFT_OK;
    loader->model_type = MODEL_UNIGRAM; /* protobuf's defaults */
    loader->prefix = loader->sentence->squeeze = loader->sentence->escape = true;
    loader->bos_id = 1;
    loader->eos_id = 2;
    weft_cursor_init(&cur, file.data, file.len);
    while (!err && wefti_tok_pb_next(&cur, &field)) {
        if (field.wire != WEFTI_TOK_PB_BYTES) continue;
        if (field.number == MODEL_TRAINER) err = each_field(loader, field.bytes, take_trainer);
        if (field.number == MODEL_NORMALIZER)
            err = each_field(loader, field.bytes, take_normalizer);
    }
    if (!err && cur.failed) err = malformed(loader, "the file is damaged");
    if (err) return err;
    loader->sentence->prefix = loader->prefix && !loader->space_as_suffix;
    loader->sentence->suffix = loader->prefix && loader->space_as_suffix;
    loader->tok->strip_first_space =
        !loader->space_as_suffix && (loader->prefix || loader->sentence->squeeze);
    if (loader->model_type == MODEL_WORD || loader->model_type > MODEL_CHAR)
        return weft_err_set(loader->why, WEFT_E_UNSUPPORTED,
                            "a SentencePiece model of type %llu is not supported, only Unigram, "
                            "BPE and characters are",
                            (unsigned long long)loader->model_type);
    if (loader->map.len == 0) return WEFT_OK;
    return wefti_tok_charsmap_new(loader->map.data, loader->map.len, &loader->sentence->map,
                                  loader->why);
}

/* --- pieces ----------------------------------------------------------------------------------- */

struct piece {
    struct weft_str text;
    float score;
    uint64_t type;
};

static weft_err read_piece(struct loader *loader, struct weft_str message, struct piece *piece) {
    struct weft_cursor cur;
    struct wefti_tok_pb_field field;
    *piece = (struct piece){.text = {"", 0}, .type = WEFTI_TOK_PIECE_NORMAL};
    weft_cursor_init(&cur, message.data, message.len);
    while (wefti_tok_pb_next(&cur, &field)) {
        if (field.number == PIECE_TEXT && field.wire == WEFTI_TOK_PB_BYTES)
            piece->text = field.bytes;
        if (field.number == PIECE_TYPE) piece->type = field.value;
        if (field.number == PIECE_SCORE) {
            uint32_t bits = (uint32_t)field.value;
            memcpy(&piece->score, &bits, sizeof bits);
        }
    }
    if (cur.failed) return malformed(loader, "the file is damaged");
    if (piece->text.len == 0 || piece->text.len > WEFTI_TOK_ENTRY_BYTES_MAX ||
        !weft_utf8_valid(piece->text.data, piece->text.len))
        return weft_err_set(loader->why, WEFT_E_PROTO,
                            "piece %u is empty, over %d bytes or not valid UTF-8", loader->n_pieces,
                            WEFTI_TOK_ENTRY_BYTES_MAX);
    return WEFT_OK;
}

static weft_err put_control(struct loader *loader, const struct piece *piece, uint32_t id) {
    weft_tokenizer *tok = loader->tok;
    struct wefti_tok_added_token traits = {.special = true};
    if (piece->type == WEFTI_TOK_PIECE_UNKNOWN) tok->unk_id = id;
    weft_err err = wefti_tok_vocab_put(&tok->vocab, id, piece->text, piece->text,
                                       WEFTI_TOK_ADDED | WEFTI_TOK_SPECIAL, loader->why);
    return err ? err : wefti_tok_added_put(&tok->added_raw, piece->text, id, &traits);
}

/* A user-defined symbol is never split: BPE cuts the text there, Unigram gives it an unbeatable
 * score. */
static weft_err put_symbol(struct loader *loader, const struct piece *piece, uint32_t id) {
    static const struct wefti_tok_added_token ordinary;
    weft_err err = wefti_tok_added_put(&loader->sentence->kept, piece->text, id, &ordinary);
    if (err || loader->model_type == MODEL_UNIGRAM) return err;
    return wefti_tok_added_put(&loader->tok->added_normalized, piece->text, id, &ordinary);
}

static weft_err put_piece(struct loader *loader, const struct piece *piece, uint32_t id) {
    weft_tokenizer *tok = loader->tok;
    if (piece->type == WEFTI_TOK_PIECE_CONTROL || piece->type == WEFTI_TOK_PIECE_UNKNOWN)
        return put_control(loader, piece, id);
    bool unigram = loader->model_type == MODEL_UNIGRAM;
    uint32_t flags = 0;
    weft_buf_clear(&loader->bytes);
    if (piece->type == WEFTI_TOK_PIECE_BYTE) {
        int byte = wefti_tok_fallback_byte(piece->text);
        if (byte < 0) return malformed(loader, "a byte piece is not written as <0xNN>");
        tok->fallback_ids[byte] = id;
        weft_buf_add_char(&loader->bytes, (char)byte);
    } else {
        wefti_tok_add_unmarked(&loader->bytes, piece->text);
        if (piece->type == WEFTI_TOK_PIECE_NORMAL) flags = WEFTI_TOK_PIECE;
        if (piece->type == WEFTI_TOK_PIECE_USER_DEFINED)
            flags = unigram ? WEFTI_TOK_PIECE | WEFTI_TOK_CHOSEN : WEFTI_TOK_ADDED;
    }
    if (loader->bytes.failed) return WEFT_E_NOMEM;
    weft_err err = wefti_tok_vocab_put(&tok->vocab, id, piece->text,
                                       (struct weft_str){loader->bytes.data, loader->bytes.len},
                                       flags, loader->why);
    if (!err && piece->type == WEFTI_TOK_PIECE_USER_DEFINED) err = put_symbol(loader, piece, id);
    return err;
}

/* Reads the pieces, and their scores last, once n_pieces is known. */
static weft_err load_pieces(struct loader *loader, struct weft_str file) {
    weft_tokenizer *tok = loader->tok;
    struct weft_cursor cur;
    struct wefti_tok_pb_field field;
    struct piece piece;
    weft_err err = WEFT_OK;
    size_t cap = 0;
    weft_cursor_init(&cur, file.data, file.len);
    while (!err && wefti_tok_pb_next(&cur, &field)) {
        if (field.number != MODEL_PIECE || field.wire != WEFTI_TOK_PB_BYTES) continue;
        err = read_piece(loader, field.bytes, &piece);
        if (!err) err = put_piece(loader, &piece, loader->n_pieces);
        if (err) return err;
        if (loader->n_pieces == cap) {
            cap = cap ? 2 * cap : 1024; /* ends: wefti_tok_vocab_put refuses id 2^21 */
            double *scores = realloc(tok->scores, cap * sizeof *scores);
            if (!scores) return WEFT_E_NOMEM;
            tok->scores = scores;
        }
        tok->scores[loader->n_pieces++] = (double)piece.score;
    }
    if (!err && loader->n_pieces == 0) err = malformed(loader, "there are no pieces");
    return err ? err : wefti_tok_vocab_index(&tok->vocab);
}

/* --- what the configuration says -------------------------------------------------------------- */

/* An entry of added_tokens_decoder: a token after the pieces, or other traits for one of them. */
static weft_err put_configured(struct loader *loader, uint64_t id, const json_t *entry) {
    weft_tokenizer *tok = loader->tok;
    struct weft_str text = wefti_tok_json_str_at(entry, "content");
    struct wefti_tok_added_token traits = wefti_tok_added_traits(entry);
    if (text.len == 0 || text.len > WEFTI_TOK_ENTRY_BYTES_MAX) return WEFT_OK;
    if (id < loader->n_pieces) {
        for (size_t i = 0; i < tok->added_raw.n; i++) {
            struct wefti_tok_added_token *token = &tok->added_raw.tokens[i];
            if (token->id != id) continue;
            token->single_word = traits.single_word;
            token->strip_left = traits.strip_left;
            token->strip_right = traits.strip_right;
        }
        return WEFT_OK;
    }
    uint32_t flags = WEFTI_TOK_ADDED | (traits.special ? WEFTI_TOK_SPECIAL : 0);
    weft_err err = wefti_tok_vocab_put(&tok->vocab, id, text, text, flags, loader->why);
    return err ? err : wefti_tok_added_put(&tok->added_raw, text, (uint32_t)id, &traits);
}

static weft_err load_configured(struct loader *loader, json_t *config) {
    const char *key;
    json_t *entry;
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, entry) {
        uint64_t id;
        if (weft_parse_u64(key, WEFT_VOCAB_MAX - 1, &id) != WEFT_OK)
            return malformed(loader,
                             "tokenizer_config.json: added_tokens_decoder has a key that is "
                             "no token id");
        weft_err err = put_configured(loader, id, entry);
        if (err) return err;
    }
    /* "legacy" false: no space after special tokens. */
    loader->sentence->prefix_once = !wefti_tok_json_bool_at(config, "legacy", true);
    if (!wefti_tok_json_bool_at(config, "add_prefix_space", true)) loader->sentence->prefix = false;
    return WEFT_OK;
}

/* added_tokens.json, {"text": id}: older folders have it in place of added_tokens_decoder. */
static weft_err load_added(struct loader *loader, json_t *added) {
    const char *key;
    size_t key_len;
    json_t *value;
    json_object_keylen_foreach(added, key, key_len, value) {
        static const struct wefti_tok_added_token ordinary;
        struct weft_str text = {key, key_len};
        uint64_t id;
        if (!weft_json_u64(value, &id))
            return malformed(loader, "added_tokens.json: an id is not a non-negative integer");
        if (id < loader->n_pieces || key_len == 0) continue;
        weft_err err =
            wefti_tok_vocab_put(&loader->tok->vocab, id, text, text, WEFTI_TOK_ADDED, loader->why);
        if (!err) err = wefti_tok_added_put(&loader->tok->added_raw, text, (uint32_t)id, &ordinary);
        if (err) return err;
    }
    return WEFT_OK;
}

/* Defaults if the configuration does not say: T5 (Unigram) ends a text with EOS, Llama (BPE) begins
 * it with BOS. */
static void load_affixes(struct loader *loader, const json_t *config) {
    weft_tokenizer *tok = loader->tok;
    bool unigram = loader->model_type == MODEL_UNIGRAM;
    if (wefti_tok_json_bool_at(config, "add_bos_token", !unigram) && tok->bos_id != WEFTI_TOK_NO_ID)
        tok->prefix_ids[tok->n_prefix++] = tok->bos_id;
    if (wefti_tok_json_bool_at(config, "add_eos_token", unigram) &&
        tok->eos_token_id != WEFTI_TOK_NO_ID)
        tok->suffix_ids[tok->n_suffix++] = tok->eos_token_id;
}

/* --- the file --------------------------------------------------------------------------------- */

static weft_err load_model(struct loader *loader, struct weft_str file) {
    weft_tokenizer *tok = loader->tok;
    weft_err err = wefti_tok_add_sentence(tok, &loader->sentence, loader->why);
    if (!err) err = load_specs(loader, file);
    if (!err) err = load_pieces(loader, file);
    if (err) return err;
    wefti_tok_added_sort(&loader->sentence->kept);
    tok->fuse_unk = true;
    tok->float_sums = true;
    tok->byte_fallback = true;
    for (int byte = 0; byte < 256; byte++)
        if (tok->fallback_ids[byte] == WEFTI_TOK_NO_ID) tok->byte_fallback = false;
    if (loader->bos_id < loader->n_pieces) tok->bos_id = (uint32_t)loader->bos_id;
    if (loader->eos_id < loader->n_pieces) tok->eos_token_id = (uint32_t)loader->eos_id;
    return loader->model_type == MODEL_UNIGRAM ? WEFT_OK : wefti_tok_rank_scores(tok, loader->why);
}

weft_err wefti_tok_load_spm(weft_tokenizer *tok, const char *dir, struct weft_errmsg *why) {
    WEFT_ASSERT(tok->vocab.n_tokens == 0);
    char *text = NULL;
    size_t len;
    json_t *config = NULL, *added = NULL;
    struct weft_errmsg detail = {""};
    struct loader loader = {.tok = tok, .why = &detail};
    weft_buf_init(&loader.bytes, (size_t)2 * WEFTI_TOK_ENTRY_BYTES_MAX);
    weft_err err =
        weft_model_read_in(dir, "tokenizer.model", WEFTI_TOK_FILE_BYTES_MAX, &text, &len, why);
    if (err) goto cleanup;
    err = wefti_tok_read_json(dir, "tokenizer_config.json", &config, why);
    if (!err && !json_object_get(config, "added_tokens_decoder"))
        err = wefti_tok_read_json(dir, "added_tokens.json", &added, why);
    if (err) goto cleanup;
    err = load_model(&loader, (struct weft_str){text, len});
    if (!err) err = load_configured(&loader, config);
    if (!err) err = load_added(&loader, added);
    if (!err) err = wefti_tok_seal(tok, loader.why);
    if (err) {
        (void)weft_err_set(why, err, "%s/tokenizer.model: %s", dir,
                           detail.text[0] ? detail.text : weft_err_text(err));
        goto cleanup;
    }
    err = wefti_tok_load_specials(tok, dir, why);
    if (!err) load_affixes(&loader, config);
cleanup:
    weft_buf_fini(&loader.bytes);
    json_decref(config);
    json_decref(added);
    free(text);
    return err;
}
