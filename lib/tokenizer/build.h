/* build — how the readers of formats fill in the tables of a tokenizer. */
#ifndef WEFT_TOK_BUILD_H
#define WEFT_TOK_BUILD_H

#include "tables.h"

/* Adds SentencePiece's normaliser; `tok` takes it over. */
weft_err wefti_tok_add_sentence(weft_tokenizer *tok, struct wefti_tok_sentence **sentence_out,
                                struct weft_errmsg *why);
/* Where a text is cut, and what happens to the matches. */
struct wefti_tok_split {
    struct weft_str pattern; /* as for wefti_tok_regex_init */
    bool literal, invert;
    enum wefti_tok_behavior behavior;
};

/* Adds a split step; an empty pattern cuts nowhere and adds none. */
weft_err wefti_tok_add_split(weft_tokenizer *tok, const struct wefti_tok_split *split,
                             struct weft_errmsg *why);
weft_err wefti_tok_add_step(weft_tokenizer *tok, enum wefti_tok_step_kind kind,
                            struct wefti_tok_step **step_out, struct weft_errmsg *why);
weft_err wefti_tok_add_norm(weft_tokenizer *tok, enum wefti_tok_norm_kind kind, const char *text,
                            size_t len, struct wefti_tok_norm **norm_out, struct weft_errmsg *why);
/* BERT's normaliser, as its options say, and the way it cuts a text into words. */
struct wefti_tok_bert {
    bool clean_text, chinese, strip_accents, lowercase;
};
weft_err wefti_tok_add_bert(weft_tokenizer *tok, const struct wefti_tok_bert *bert,
                            struct weft_errmsg *why);
weft_err wefti_tok_add_bert_splits(weft_tokenizer *tok, struct weft_errmsg *why);
/* Builds indexes and derived tables, once vocabulary and added tokens are complete. */
weft_err wefti_tok_seal(weft_tokenizer *tok, struct weft_errmsg *why);
/* The byte value of <0xNN>; -1 for any other string. */
int wefti_tok_fallback_byte(struct weft_str text);
bool wefti_tok_find(const weft_tokenizer *tok, struct weft_str text, uint32_t *id_out);
/* Adds `id` to eos_ids if it is a token and not there yet. */
void wefti_tok_add_eos(weft_tokenizer *tok, uint64_t id);

/* Looks for the tokens of weft_tok_fim by their names, unless the file has said which they are. */
void wefti_tok_find_fim(weft_tokenizer *tok);

/* Turns tok->scores into ranks for merging. PROTO: one is not a number. */
weft_err wefti_tok_rank_scores(weft_tokenizer *tok, struct weft_errmsg *why);

#endif
