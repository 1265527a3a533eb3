/* From text to ids: cut at added tokens, normalise, split, merge.
 *
 * The split steps run depth first: a piece goes through all later steps before the next piece is
 * cut, so nothing is stored but the buffers of the few steps that change the text. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "codec/utf8.h"
#include "pieces/bpe.h"
#include "pieces/unigram.h"
#include "pieces/wordpiece.h"
#include "vocab/alphabet.h"

/* Scratch and output of one call. */
struct encoder {
    const weft_tokenizer *tok;
    bool parse_special;
    struct wefti_tok_matcher matcher;
    struct wefti_tok_bpe bpe;
    struct wefti_tok_unigram unigram;
    struct wefti_tok_ids ids;
    struct weft_buf normalized, spare;
    struct weft_buf step_text[WEFTI_TOK_STEPS_MAX]; /* of the steps that change the text */
    struct weft_buf piece_bytes;                    /* a piece turned back from TO_CHARS */
    struct weft_errmsg *why;
};

/* A piece on its way through the steps. */
struct piece {
    const char *text;
    size_t len;
    bool first; /* it starts where the whole text starts */
};

static weft_err run_steps(struct encoder *enc, size_t step, struct piece piece);

/* --- steps ------------------------------------------------------------------------------------ */

/* Matches and the gaps between them, joined to pieces as the behaviour says. */
struct splitter {
    struct encoder *enc;
    size_t step;
    struct piece whole;
    size_t start, end; /* the piece being collected; empty at first */
    bool is_match;     /* its last segment was a match */
};

static weft_err flush_piece(struct splitter *split) {
    const struct wefti_tok_step *step = &split->enc->tok->steps[split->step];
    if (split->start == split->end) return WEFT_OK;
    if (step->behavior == WEFTI_TOK_SPLIT_REMOVED && split->is_match) return WEFT_OK;
    struct piece piece = {split->whole.text + split->start, split->end - split->start,
                          split->whole.first && split->start == 0};
    return run_steps(split->enc, split->step + 1, piece);
}

static bool joins(enum wefti_tok_behavior behavior, bool last_is_match, bool is_match) {
    switch (behavior) {
    case WEFTI_TOK_SPLIT_WITH_PREVIOUS:
        return is_match && !last_is_match;
    case WEFTI_TOK_SPLIT_WITH_NEXT:
        return !is_match && last_is_match;
    case WEFTI_TOK_SPLIT_CONTIGUOUS:
        return is_match == last_is_match;
    default:
        return false;
    }
}

static weft_err add_segment(struct splitter *split, size_t start, size_t end, bool is_match) {
    const struct wefti_tok_step *step = &split->enc->tok->steps[split->step];
    if (start == end) return WEFT_OK;
    is_match ^= step->invert;
    weft_err err = WEFT_OK;
    if (split->start == split->end || !joins(step->behavior, split->is_match, is_match)) {
        err = flush_piece(split);
        split->start = start;
    }
    split->end = end;
    split->is_match = is_match;
    return err;
}

static weft_err run_split(struct encoder *enc, size_t step_idx, struct piece piece) {
    const struct wefti_tok_step *step = &enc->tok->steps[step_idx];
    struct splitter split = {enc, step_idx, piece, 0, 0, false};
    size_t done = 0, at = 0;
    weft_err err = WEFT_OK;
    while (at <= piece.len && !err) {
        struct wefti_tok_match match;
        err = wefti_tok_regex_find(&step->regex, &enc->matcher,
                                   (struct weft_str){piece.text, piece.len}, at, &match, enc->why);
        if (err || !match.found) break;
        err = add_segment(&split, done, match.start, false);
        if (!err) err = add_segment(&split, match.start, match.end, true);
        done = at = match.end;
        if (match.start == match.end) at += at < piece.len ? weft_utf8_len(piece.text[at]) : 1;
    }
    if (!err) err = add_segment(&split, done, piece.len, false);
    if (!err) err = flush_piece(&split);
    return err;
}

static void write_metaspace(const struct wefti_tok_step *step, struct piece piece,
                            struct weft_buf *out) {
    static const char mark[] = WEFTI_TOK_MARK;
    bool marked = piece.text[0] == ' ' || (piece.len >= 3 && memcmp(piece.text, mark, 3) == 0);
    bool prepend = step->prepend == WEFTI_TOK_PREPEND_ALWAYS ||
                   (step->prepend == WEFTI_TOK_PREPEND_FIRST && piece.first);
    if (prepend && !marked) weft_buf_add_str(out, mark);
    for (size_t at = 0; at < piece.len;) {
        const char *space = memchr(piece.text + at, ' ', piece.len - at);
        size_t end = space ? (size_t)(space - piece.text) : piece.len;
        weft_buf_add(out, piece.text + at, end - at);
        if (space) weft_buf_add_str(out, mark);
        at = end + 1;
    }
}

static weft_err run_rewrite(struct encoder *enc, size_t step_idx, struct piece piece) {
    const struct wefti_tok_step *step = &enc->tok->steps[step_idx];
    struct weft_buf *out = &enc->step_text[step_idx];
    weft_buf_clear(out);
    if (step->kind == WEFTI_TOK_STEP_METASPACE) {
        write_metaspace(step, piece, out);
    } else if (step->kind == WEFTI_TOK_STEP_TO_CHARS) {
        for (size_t i = 0; i < piece.len; i++)
            weft_utf8_put(out, wefti_tok_char_of_byte((unsigned char)piece.text[i]));
    } else {
        WEFT_ASSERT(step->kind == WEFTI_TOK_STEP_PREFIX_SPACE);
        if (piece.text[0] != ' ') weft_buf_add_char(out, ' ');
        weft_buf_add(out, piece.text, piece.len);
    }
    if (out->failed)
        return weft_err_set(enc->why, WEFT_E_TOOBIG, "the text is too long: %zu bytes", piece.len);
    return run_steps(enc, step_idx + 1, (struct piece){out->data, out->len, piece.first});
}

static weft_err run_step(struct encoder *enc, size_t step, struct piece piece) {
    const weft_tokenizer *tok = enc->tok;
    WEFT_ASSERT(piece.len > 0 && step <= tok->n_steps);
    if (step < tok->n_steps)
        return tok->steps[step].kind == WEFTI_TOK_STEP_SPLIT ? run_split(enc, step, piece)
                                                             : run_rewrite(enc, step, piece);
    if (tok->scores)
        return wefti_tok_unigram_run(tok, &enc->unigram, piece.text, piece.len, &enc->ids,
                                     enc->why);
    if (tok->word.is_used)
        return wefti_tok_wordpiece_run(tok, piece.text, piece.len, &enc->ids, enc->why);
    if (!tok->to_chars)
        return wefti_tok_bpe_run(tok, &enc->bpe, piece.text, piece.len, &enc->ids, enc->why);
    weft_buf_clear(&enc->piece_bytes);
    bool ok = wefti_tok_bytes_of_chars(piece.text, piece.len, &enc->piece_bytes);
    WEFT_ASSERT(ok); /* a piece of what TO_CHARS wrote */
    if (enc->piece_bytes.failed) return WEFT_E_NOMEM;
    return wefti_tok_bpe_run(tok, &enc->bpe, enc->piece_bytes.data, enc->piece_bytes.len, &enc->ids,
                             enc->why);
}

/* The first step or two cut a text into words; the later ones look at each for what is rarely
 * there. A word seen before skips them. (At the start of the text it may become another word.) */
static weft_err run_steps(struct encoder *enc, size_t step, struct piece piece) {
    bool found = false;
    struct wefti_tok_word *word = NULL;
    if (step >= 2 && step < enc->tok->n_steps && !piece.first)
        word = wefti_tok_words_at(&enc->bpe, step, piece.text, piece.len, &found);
    if (found) return wefti_tok_words_use(word, &enc->ids, enc->why);
    if (!word) return run_step(enc, step, piece);
    size_t before = enc->ids.n;
    enc->bpe.in_word = true;
    weft_err err = run_step(enc, step, piece);
    enc->bpe.in_word = false;
    if (!err) wefti_tok_words_put(word, step, piece.text, piece.len, &enc->ids, before);
    return err;
}

/* --- added tokens ----------------------------------------------------------------------------- */

typedef weft_err (*segment_fn)(struct encoder *enc, struct piece piece);

/* Calls `segment` for each piece of text between added tokens. */
static weft_err cut_at_added(struct encoder *enc, const struct wefti_tok_added *added,
                             struct piece piece, segment_fn segment) {
    WEFT_ASSERT(added->n <= added->cap);
    size_t at = 0;
    struct wefti_tok_added_match match;
    weft_err err = WEFT_OK;
    while (!err &&
           wefti_tok_added_find(added, enc->parse_special, piece.text, piece.len, at, &match)) {
        if (match.start > at)
            err = segment(
                enc, (struct piece){piece.text + at, match.start - at, piece.first && at == 0});
        if (!err) err = wefti_tok_ids_add(&enc->ids, match.token->id, enc->why);
        at = match.end;
    }
    if (!err && at < piece.len)
        err = segment(enc, (struct piece){piece.text + at, piece.len - at, piece.first && at == 0});
    return err;
}

static weft_err split_segment(struct encoder *enc, struct piece piece) {
    return run_steps(enc, 0, piece);
}

static weft_err normalize_segment(struct encoder *enc, struct piece piece) {
    const weft_tokenizer *tok = enc->tok;
    if (tok->n_norms > 0) {
        weft_buf_clear(&enc->normalized);
        weft_buf_add(&enc->normalized, piece.text, piece.len);
        struct wefti_tok_normalizing state = {&enc->matcher, &enc->normalized, &enc->spare,
                                              piece.first};
        weft_err err = wefti_tok_norm_run(tok->norms, tok->n_norms, &state, enc->why);
        if (err) return err;
        if (enc->normalized.len == 0) return WEFT_OK;
        piece.text = enc->normalized.data;
        piece.len = enc->normalized.len;
    }
    return cut_at_added(enc, &tok->added_normalized, piece, split_segment);
}

/* --- the call --------------------------------------------------------------------------------- */

static weft_err encoder_init(struct encoder *enc, const weft_tokenizer *tok, size_t len,
                             struct weft_errmsg *why) {
    *enc = (struct encoder){.tok = tok, .why = why};
    /* The widest rewriting is 18-fold (NFKD), and one byte can become three (U+FFFD). */
    size_t max = len * 64 + 4096;
    if (max > WEFTI_TOK_TEXT_BYTES_MAX) max = WEFTI_TOK_TEXT_BYTES_MAX;
    weft_buf_init(&enc->normalized, max);
    weft_buf_init(&enc->spare, max);
    weft_buf_init(&enc->piece_bytes, max);
    for (size_t i = 0; i < WEFTI_TOK_STEPS_MAX; i++)
        weft_buf_init(&enc->step_text[i], max);
    wefti_tok_words_init(&enc->bpe, len);
    return wefti_tok_matcher_init(&enc->matcher, len);
}

static void encoder_fini(struct encoder *enc) {
    wefti_tok_matcher_fini(&enc->matcher);
    wefti_tok_bpe_fini(&enc->bpe);
    wefti_tok_unigram_fini(&enc->unigram);
    free(enc->ids.ids);
    weft_buf_fini(&enc->normalized);
    weft_buf_fini(&enc->spare);
    weft_buf_fini(&enc->piece_bytes);
    for (size_t i = 0; i < WEFTI_TOK_STEPS_MAX; i++)
        weft_buf_fini(&enc->step_text[i]);
}

/* Where nothing is dropped, n tokens cover so much text and no more: what cannot fit is refused
 * before any work. */
static weft_err check_length(const weft_tokenizer *tok, size_t len, size_t ids_max,
                             struct weft_errmsg *why) {
    if (len > WEFT_BODY_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "a text of %zu bytes; the limit is %u", len,
                            WEFT_BODY_BYTES_MAX);
    if (tok->text_bytes_per_id > 0 && len / tok->text_bytes_per_id > ids_max)
        return weft_err_set(why, WEFT_E_TOOBIG, "the text has more than %zu tokens", ids_max);
    return WEFT_OK;
}

static weft_err add_affix(struct encoder *enc, const uint32_t *ids, size_t n) {
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < n && !err; i++)
        err = wefti_tok_ids_add(&enc->ids, ids[i], enc->why);
    return err;
}

weft_err weft_tok_encode(const weft_tokenizer *tok, const struct weft_tok_input *input,
                         uint32_t **ids_out, size_t *n_out, struct weft_errmsg *why) {
    struct weft_str text = input->text;
    WEFT_ASSERT(tok);
    WEFT_ASSERT(text.data || text.len == 0);
    *ids_out = NULL;
    *n_out = 0;
    weft_err err = check_length(tok, text.len, input->ids_max, why);
    if (err) return err;
    struct encoder enc;
    struct weft_buf valid; /* the text with U+FFFD for what is not UTF-8 */
    weft_buf_init(&valid, 3 * text.len + 3);
    err = encoder_init(&enc, tok, text.len, why);
    if (err) goto cleanup;
    enc.ids.max = input->ids_max;
    enc.parse_special = input->flags & WEFT_TOK_PARSE_SPECIAL;
    if (!weft_utf8_valid(text.data, text.len)) {
        weft_utf8_clean(&valid, text.data, text.len);
        err = valid.failed ? WEFT_E_NOMEM : check_length(tok, valid.len, input->ids_max, why);
        if (err) goto cleanup;
        text = (struct weft_str){valid.data, valid.len};
    }
    bool special = input->flags & WEFT_TOK_ADD_SPECIAL;
    if (special) err = add_affix(&enc, tok->prefix_ids, tok->n_prefix);
    if (!err && text.len > 0)
        err = cut_at_added(&enc, &tok->added_raw, (struct piece){text.data, text.len, true},
                           normalize_segment);
    if (!err && special) err = add_affix(&enc, tok->suffix_ids, tok->n_suffix);
    if (err) goto cleanup;
    *ids_out = enc.ids.ids;
    *n_out = enc.ids.n;
    enc.ids.ids = NULL; /* the caller owns it from here */
cleanup:
    if (err == WEFT_E_NOMEM)
        (void)weft_err_set(why, err, "no memory to tokenise %zu bytes", text.len);
    encoder_fini(&enc);
    weft_buf_fini(&valid);
    return err;
}
