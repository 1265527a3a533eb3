/* Special tokens from the files beside a tokenizer. */
#include "formats/formats.h"

/* "text", or {"content": "text"}. */
static void use_token(const weft_tokenizer *tok, const json_t *config, const char *key,
                      uint32_t *id_out) {
    const json_t *value = json_object_get(config, key);
    struct weft_str text =
        json_is_object(value) ? wefti_tok_json_str_at(value, "content") : wefti_tok_json_str(value);
    uint32_t id;
    if (wefti_tok_find(tok, text, &id)) *id_out = id;
}

/* An id, or a list of them. */
static void add_eos(weft_tokenizer *tok, const json_t *value) {
    uint64_t id;
    if (weft_json_u64(value, &id)) wefti_tok_add_eos(tok, id);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (weft_json_u64(json_array_get(value, i), &id)) wefti_tok_add_eos(tok, id);
}

static void use_config(weft_tokenizer *tok, const json_t *config) {
    uint64_t bos;
    if (tok->bos_id == WEFTI_TOK_NO_ID &&
        weft_json_u64(json_object_get(config, "bos_token_id"), &bos) && bos < tok->vocab.n_tokens)
        tok->bos_id = (uint32_t)bos;
    add_eos(tok, json_object_get(config, "eos_token_id"));
}

/* The files need not agree: generation_config.json may name a base model's EOS beside the chat
 * tokenizer's. */
weft_err wefti_tok_load_specials(weft_tokenizer *tok, const char *dir, struct weft_errmsg *why) {
    json_t *config;
    weft_err err = wefti_tok_read_json(dir, "tokenizer_config.json", &config, why);
    if (err) return err;
    use_token(tok, config, "bos_token", &tok->bos_id);
    use_token(tok, config, "eos_token", &tok->eos_token_id);
    json_decref(config);
    static const char *const files[] = {"generation_config.json", "config.json"};
    for (size_t i = 0; i < 2; i++) {
        err = wefti_tok_read_json(dir, files[i], &config, why);
        if (err) return err;
        use_config(tok, config);
        json_decref(config);
    }
    if (tok->eos_token_id != WEFTI_TOK_NO_ID) wefti_tok_add_eos(tok, tok->eos_token_id);
    if (tok->eos_token_id == WEFTI_TOK_NO_ID && tok->n_eos > 0) tok->eos_token_id = tok->eos_ids[0];
    return WEFT_OK;
}
