/* Freeing a tokenizer, and small getters. */
#include "tokenizer.h"

#include <stdlib.h>

#include "base/check.h"
#include "tables.h"

void weft_tok_free(weft_tokenizer *tok) {
    if (!tok) return;
    wefti_tok_vocab_fini(&tok->vocab);
    wefti_tok_merges_fini(&tok->merges);
    wefti_tok_added_fini(&tok->added_raw);
    wefti_tok_added_fini(&tok->added_normalized);
    for (size_t i = 0; i < tok->n_norms; i++)
        wefti_tok_norm_fini(&tok->norms[i]);
    for (size_t i = 0; i < tok->n_steps; i++)
        wefti_tok_regex_fini(&tok->steps[i].regex);
    free(tok->score_ranks);
    free(tok->scores);
    wefti_tok_trie_fini(&tok->trie);
    free(tok);
}

uint32_t weft_tok_vocab_size(const weft_tokenizer *tok) {
    WEFT_ASSERT(tok);
    return tok->vocab.n_tokens;
}

bool weft_tok_bos(const weft_tokenizer *tok, uint32_t *id_out) {
    *id_out = tok->bos_id;
    return tok->bos_id != WEFTI_TOK_NO_ID;
}

static struct weft_str written(const weft_tokenizer *tok, uint32_t id) {
    if (id == WEFTI_TOK_NO_ID) return (struct weft_str){NULL, 0};
    struct weft_str text = wefti_tok_vocab_bytes(&tok->vocab, id);
    WEFT_ASSERT(text.data);
    return text;
}

struct weft_str weft_tok_bos_token(const weft_tokenizer *tok) {
    return written(tok, tok->bos_id);
}

struct weft_str weft_tok_eos_token(const weft_tokenizer *tok) {
    return written(tok, tok->eos_token_id);
}

const uint32_t *weft_tok_eos(const weft_tokenizer *tok, size_t *n_out) {
    WEFT_ASSERT(tok->n_eos <= WEFTI_TOK_EOS_MAX);
    *n_out = tok->n_eos;
    return tok->eos_ids;
}

const char *weft_tok_token_bytes(const weft_tokenizer *tok, uint32_t id, size_t *len_out) {
    *len_out = 0;
    if (id >= tok->vocab.n_tokens || !(tok->vocab.tokens[id].flags & WEFTI_TOK_PRESENT)) return "";
    struct weft_str bytes = wefti_tok_vocab_bytes(&tok->vocab, id);
    *len_out = bytes.len;
    return bytes.data;
}

bool weft_tok_is_special(const weft_tokenizer *tok, uint32_t id) {
    return id < tok->vocab.n_tokens && (tok->vocab.tokens[id].flags & WEFTI_TOK_SPECIAL);
}
