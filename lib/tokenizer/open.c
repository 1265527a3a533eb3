/* Opens a tokenizer from any of its file formats. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "formats/formats.h"

static weft_err load_folder(weft_tokenizer *tok, const char *dir, struct weft_errmsg *why) {
    weft_err err = wefti_tok_load_json(tok, dir, why);
    if (err != WEFT_E_NOTFOUND) return err;
    if (why) why->text[0] = 0;
    err = wefti_tok_load_spm(tok, dir, why);
    if (err != WEFT_E_NOTFOUND) return err;
    return weft_err_set(why, err, "%s has neither a tokenizer.json nor a tokenizer.model", dir);
}

weft_err weft_tok_open(const char *path, weft_tokenizer **tok_out, struct weft_errmsg *why) {
    WEFT_ASSERT(path);
    weft_err err = WEFT_E_NOMEM;
    struct weft_model_place place = {0};
    *tok_out = NULL;
    weft_tokenizer *tok = calloc(1, sizeof *tok);
    if (!tok) goto cleanup;
    wefti_tok_vocab_init(&tok->vocab);
    tok->bos_id = tok->eos_token_id = tok->unk_id = WEFTI_TOK_NO_ID;
    memset(tok->fallback_ids, 0xFF, sizeof tok->fallback_ids);
    err = weft_model_locate(path, &place, why);
    if (err) goto cleanup;
    err = place.format == WEFT_MODEL_GGUF ? wefti_tok_load_gguf(tok, place.path, why)
                                          : load_folder(tok, place.path, why);
    if (err) goto cleanup;
    wefti_tok_find_fim(tok);
    *tok_out = tok;
    tok = NULL;
cleanup:
    if (err == WEFT_E_NOMEM) (void)weft_err_set(why, err, "%s: out of memory", path);
    weft_model_place_fini(&place);
    weft_tok_free(tok);
    return err;
}
