/* formats — readers of the files that tokenizers come in. */
#ifndef WEFT_TOK_FORMATS_H
#define WEFT_TOK_FORMATS_H

#include <jansson.h>

#include "build.h"
#include "model/model.h"

#define WEFTI_TOK_FILE_BYTES_MAX (256u << 20)  /* tokenizer.json of a 256k vocabulary: 33 MB */
#define WEFTI_TOK_CONFIG_BYTES_MAX (16u << 20) /* what lies beside it: a few hundred kB at most */

/* Fill `tok` (zeroed, ids set to none); on failure the caller frees it. */
weft_err wefti_tok_load_json(weft_tokenizer *tok, const char *dir, struct weft_errmsg *why);
weft_err wefti_tok_load_gguf(weft_tokenizer *tok, const char *path, struct weft_errmsg *why);

weft_err wefti_tok_load_spm(weft_tokenizer *tok, const char *dir, struct weft_errmsg *why);

/* Reads BOS and EOS from tokenizer_config.json, generation_config.json and config.json; they
 * override what `tok` has. */
weft_err wefti_tok_load_specials(weft_tokenizer *tok, const char *dir, struct weft_errmsg *why);

/* weft_model_json for an optional file: NULL and WEFT_OK if it is missing. */
weft_err wefti_tok_read_json(const char *dir, const char *name, json_t **root_out,
                             struct weft_errmsg *why);

/* The string in `value`; empty if it is not a string. */
struct weft_str wefti_tok_json_str(const json_t *value);
struct weft_str wefti_tok_json_str_at(const json_t *object, const char *key);
bool wefti_tok_json_bool_at(const json_t *object, const char *key, bool otherwise);
/* Decodes base64 and appends it; false: an invalid character. */
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

#endif
