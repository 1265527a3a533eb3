/* Fills the tables in, and derives those that follow from others. */
#include "build.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "pieces/unigram.h"
#include "pieces/wordpiece.h"
#include "vocab/alphabet.h"

weft_err wefti_tok_add_step(weft_tokenizer *tok, enum wefti_tok_step_kind kind,
                            struct wefti_tok_step **step_out, struct weft_errmsg *why) {
    WEFT_ASSERT(tok->n_steps <= WEFTI_TOK_STEPS_MAX);
    *step_out = NULL;
    if (tok->n_steps == WEFTI_TOK_STEPS_MAX)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "the pre-tokenizer has more than %d steps, which is not supported",
                            WEFTI_TOK_STEPS_MAX);
    struct wefti_tok_step *step = &tok->steps[tok->n_steps++];
    step->kind = kind;
    *step_out = step;
    return WEFT_OK;
}

weft_err wefti_tok_add_split(weft_tokenizer *tok, const struct wefti_tok_split *split,
                             struct weft_errmsg *why) {
    if (split->pattern.len == 0) return WEFT_OK; /* nothing to cut at */
    struct wefti_tok_step *step;
    weft_err err = wefti_tok_add_step(tok, WEFTI_TOK_STEP_SPLIT, &step, why);
    if (err) return err;
    WEFT_ASSERT(step);
    step->behavior = split->behavior;
    step->invert = split->invert;
    return wefti_tok_regex_init(&step->regex, split->pattern.data, split->pattern.len,
                                split->literal, why);
}

weft_err wefti_tok_add_norm(weft_tokenizer *tok, enum wefti_tok_norm_kind kind, const char *text,
                            size_t len, struct wefti_tok_norm **norm_out, struct weft_errmsg *why) {
    WEFT_ASSERT(tok->n_norms <= WEFTI_TOK_NORMS_MAX);
    WEFT_ASSERT(text || len == 0);
    if (tok->n_norms == WEFTI_TOK_NORMS_MAX || len > WEFTI_TOK_ENTRY_BYTES_MAX)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "the normalizer has more than %d steps or a text over %d bytes",
                            WEFTI_TOK_NORMS_MAX, WEFTI_TOK_ENTRY_BYTES_MAX);
    struct wefti_tok_norm *norm = &tok->norms[tok->n_norms++];
    norm->kind = kind;
    if (len > 0) {
        norm->text = malloc(len);
        if (!norm->text) return WEFT_E_NOMEM;
        memcpy(norm->text, text, len);
        norm->text_len = len;
    }
    if (norm_out) *norm_out = norm;
    return WEFT_OK;
}

weft_err wefti_tok_add_sentence(weft_tokenizer *tok, struct wefti_tok_sentence **sentence_out,
                                struct weft_errmsg *why) {
    struct wefti_tok_norm *norm = NULL;
    *sentence_out = calloc(1, sizeof **sentence_out);
    if (!*sentence_out) return WEFT_E_NOMEM;
    weft_err err = wefti_tok_add_norm(tok, WEFTI_TOK_NORM_SENTENCE, NULL, 0, &norm, why);
    if (err) {
        free(*sentence_out);
        *sentence_out = NULL;
        return err;
    }
    WEFT_ASSERT(norm);
    norm->sentence = *sentence_out;
    return WEFT_OK;
}

int wefti_tok_fallback_byte(struct weft_str text) {
    if (text.len != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = text.data[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

void wefti_tok_add_eos(weft_tokenizer *tok, uint64_t id) {
    if (id >= tok->vocab.n_tokens || tok->n_eos == WEFTI_TOK_EOS_MAX) return;
    for (size_t i = 0; i < tok->n_eos; i++)
        if (tok->eos_ids[i] == id) return;
    tok->eos_ids[tok->n_eos++] = (uint32_t)id;
}

static bool has_lossy_added(const struct wefti_tok_added *added) {
    for (size_t i = 0; i < added->n; i++)
        if (added->tokens[i].strip_left || added->tokens[i].strip_right) return true;
    return false;
}

/* See check_length in encode.c. It is 0 if anything leaves some of the text without a token. */
static size_t text_bytes_per_id(const weft_tokenizer *tok) {
    if (has_lossy_added(&tok->added_raw) || has_lossy_added(&tok->added_normalized)) return 0;
    for (size_t i = 0; i < tok->n_steps; i++)
        if (tok->steps[i].behavior == WEFTI_TOK_SPLIT_REMOVED) return 0;
    for (int c = 0; c < 256 && tok->byte_level; c++)
        if (tok->unit_ids[c] == WEFTI_TOK_NO_ID) return 0;
    if (!tok->byte_level && !tok->byte_fallback) return 0;
    size_t bytes = tok->vocab.bytes_max;
    for (size_t i = 0; i < tok->n_norms; i++)
        bytes *= wefti_tok_norm_shrink(&tok->norms[i]); /* at most 2^14 * 8^16 */
    return bytes;
}

/* Notes the byte before each U+2581 in `piece`. Bytes rather than characters find a few cuts less,
 * never a wrong one. False: a byte token, which is not the text it is written as. */
static bool note_marks_of(weft_tokenizer *tok, struct weft_str piece) {
    static const char mark[] = WEFTI_TOK_MARK;
    for (size_t at = 1; at + 3 <= piece.len; at++) {
        if (memcmp(piece.data + at, mark, 3) != 0) continue;
        tok->joins_mark[(unsigned char)piece.data[at - 1]] = true;
        if (at >= 6 && wefti_tok_fallback_byte((struct weft_str){piece.data + at - 6, 6}) >= 0)
            return false;
    }
    return true;
}

static void note_marks(weft_tokenizer *tok) {
    /* An unknown mark may join unknown characters before it. */
    bool safe = wefti_tok_vocab_find(&tok->vocab, WEFTI_TOK_MARK, 3) != WEFTI_TOK_NO_ID ||
                tok->scores || tok->score_ranks;
    for (uint32_t id = 0; id < tok->vocab.n_tokens; id++) {
        const struct wefti_tok_entry *token = &tok->vocab.tokens[id];
        if (!(token->flags & WEFTI_TOK_PIECE)) continue;
        struct weft_str piece = {tok->vocab.arena.data + token->piece_at, token->piece_len};
        if (!note_marks_of(tok, piece)) safe = false;
    }
    if (!safe) memset(tok->joins_mark, true, sizeof tok->joins_mark);
}

weft_err wefti_tok_seal(weft_tokenizer *tok, struct weft_errmsg *why) {
    if (tok->vocab.n_tokens == 0)
        return weft_err_set(why, WEFT_E_PROTO, "the tokenizer's vocabulary is empty");
    wefti_tok_added_sort(&tok->added_raw);
    wefti_tok_added_sort(&tok->added_normalized);
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        bool whole = tok->byte_level || c < 0x80;
        tok->unit_ids[c] = whole ? wefti_tok_vocab_find(&tok->vocab, &byte, 1) : WEFTI_TOK_NO_ID;
    }
    for (size_t i = 0; i < tok->n_steps; i++)
        tok->to_chars |= tok->steps[i].kind == WEFTI_TOK_STEP_TO_CHARS;
    if (!tok->byte_level) note_marks(tok);
    tok->text_bytes_per_id = text_bytes_per_id(tok);
    if (tok->word.is_used) return wefti_tok_wordpiece_seal(tok, why);
    return tok->scores ? wefti_tok_unigram_seal(tok, why) : WEFT_OK;
}

static bool find_added(const struct wefti_tok_added *added, const weft_tokenizer *tok,
                       struct weft_str text, uint32_t *id_out) {
    for (size_t i = 0; i < added->n; i++) {
        struct weft_str written = wefti_tok_vocab_bytes(&tok->vocab, added->tokens[i].id);
        if (weft_str_is(written, text.data, text.len)) {
            *id_out = added->tokens[i].id;
            return true;
        }
    }
    return false;
}

weft_err wefti_tok_add_bert(weft_tokenizer *tok, const struct wefti_tok_bert *bert,
                            struct weft_errmsg *why) {
    const struct {
        bool is_wanted;
        enum wefti_tok_norm_kind kind;
    } steps[] = {{bert->clean_text, WEFTI_TOK_NORM_CLEAN},
                 {bert->chinese, WEFTI_TOK_NORM_CHINESE},
                 {bert->strip_accents, WEFTI_TOK_NORM_NFD},
                 {bert->strip_accents, WEFTI_TOK_NORM_DROP_MARKS},
                 {bert->lowercase, WEFTI_TOK_NORM_LOWERCASE}};
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !err; i++)
        if (steps[i].is_wanted) err = wefti_tok_add_norm(tok, steps[i].kind, NULL, 0, NULL, why);
    return err;
}

weft_err wefti_tok_add_bert_splits(weft_tokenizer *tok, struct weft_errmsg *why) {
    static const char spaces[] = "\\s+", marks[] = "[\\p{P}!-/:-@\\[-`{-~]";
    const struct wefti_tok_split at_spaces = {.pattern = {spaces, sizeof spaces - 1},
                                              .behavior = WEFTI_TOK_SPLIT_REMOVED},
                                 at_marks = {.pattern = {marks, sizeof marks - 1},
                                             .behavior = WEFTI_TOK_SPLIT_ISOLATED};
    weft_err err = wefti_tok_add_split(tok, &at_spaces, why);
    return err ? err : wefti_tok_add_split(tok, &at_marks, why);
}

bool wefti_tok_find(const weft_tokenizer *tok, struct weft_str text, uint32_t *id_out) {
    *id_out = WEFTI_TOK_NO_ID;
    if (text.len == 0) return false;
    if (find_added(&tok->added_raw, tok, text, id_out) ||
        find_added(&tok->added_normalized, tok, text, id_out))
        return true;
    *id_out = wefti_tok_vocab_find(&tok->vocab, text.data, text.len);
    return *id_out != WEFTI_TOK_NO_ID;
}
