/* Normaliser steps.
 *
 * Unicode normalisation takes the decompositions, combining classes and compositions from utf8proc
 * but orders combining marks itself: utf8proc sorts them by neighbouring swaps, which is quadratic
 * on a text that is one long run of marks in the wrong order. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/check.h"
#include "codec/unicode.h"
#include "codec/utf8.h"
#include "normalize/normalize.h"

#define DECOMPOSED_MAX 18 /* longest decomposition of one character (U+FDFA, NFKD) */

void wefti_tok_norm_fini(struct wefti_tok_norm *norm) {
    free(norm->text);
    wefti_tok_regex_fini(&norm->regex);
    wefti_tok_charsmap_free(norm->map);
    wefti_tok_sentence_free(norm->sentence);
    *norm = (struct wefti_tok_norm){0};
}

/* NFD and NFKD replace a character by one or more, so its 4 bytes become 1 at worst. NFC and NFKC
 * then join up to 4 (the longest canonical decomposition there is) to one that has 2 bytes or more:
 * 16 bytes become 2. Lower case goes from character to character. */
size_t wefti_tok_norm_shrink(const struct wefti_tok_norm *norm) {
    switch (norm->kind) {
    case WEFTI_TOK_NORM_NFC:
    case WEFTI_TOK_NORM_NFKC:
        return 8;
    case WEFTI_TOK_NORM_NFD:
    case WEFTI_TOK_NORM_NFKD:
    case WEFTI_TOK_NORM_LOWERCASE:
        return 4;
    case WEFTI_TOK_NORM_PREPEND:
    case WEFTI_TOK_NORM_CHINESE:
        return 1;
    case WEFTI_TOK_NORM_REPLACE:
        return norm->grows ? 1 : 0;
    case WEFTI_TOK_NORM_SENTENCE: /* an escaped space grows */
        return norm->sentence->squeeze || norm->sentence->map ? 0 : 1;
    case WEFTI_TOK_NORM_STRIP:
    case WEFTI_TOK_NORM_CLUSTERS:
    case WEFTI_TOK_NORM_CLEAN:
    case WEFTI_TOK_NORM_DROP_MARKS:
        break;
    }
    return 0;
}

static int combining_class(utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
}

/* Sorts codes[0..n) by combining class, keeping the order of equals. Counting sort: linear. */
static void sort_by_class(utf8proc_int32_t *codes, size_t n, utf8proc_int32_t *spare) {
    size_t first[257] = {0}; /* where the next code of a class goes */
    for (size_t i = 0; i < n; i++)
        first[combining_class(codes[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        first[i] += first[i - 1];
    for (size_t i = 0; i < n; i++)
        spare[first[combining_class(codes[i])]++] = codes[i];
    memcpy(codes, spare, n * sizeof *codes);
}

/* Canonical ordering: every run of combining marks by class. `spare` has room for `n`. */
static void order_marks(utf8proc_int32_t *codes, size_t n, utf8proc_int32_t *spare) {
    for (size_t start = 0, end; start < n; start = end + 1) {
        bool sorted = true;
        int last = 0;
        for (end = start; end < n; end++) {
            int class = combining_class(codes[end]);
            if (class == 0) break;
            if (class < last) sorted = false;
            last = class;
        }
        if (!sorted) sort_by_class(codes + start, end - start, spare);
    }
}

/* True if nothing can change: NFC leaves everything below U+0300 as it is, the other forms
 * ASCII. */
static bool is_stable(enum wefti_tok_norm_kind kind, const char *text, size_t len) {
    unsigned char bound = kind == WEFTI_TOK_NORM_NFC ? 0xCC : 0x80; /* U+0300 is CC 80 */
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= bound) return false;
    }
    return true;
}

static weft_err unicode_form(enum wefti_tok_norm_kind kind, const struct weft_buf *in,
                             struct weft_buf *out) {
    bool compat = kind == WEFTI_TOK_NORM_NFKC || kind == WEFTI_TOK_NORM_NFKD;
    bool compose = kind == WEFTI_TOK_NORM_NFC || kind == WEFTI_TOK_NORM_NFKC;
    int decompose = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compat ? UTF8PROC_COMPAT : 0);
    weft_err err = WEFT_E_NOMEM;
    utf8proc_int32_t *spare = NULL;
    size_t n = 0, cap = in->len + in->len / 2 + DECOMPOSED_MAX;
    utf8proc_int32_t *codes = malloc(cap * sizeof *codes);
    if (!codes) goto cleanup;
    for (size_t at = 0, len; at < in->len; at += len) {
        if (cap - n < DECOMPOSED_MAX) {
            utf8proc_int32_t *grown = realloc(codes, 2 * cap * sizeof *codes);
            if (!grown) goto cleanup;
            codes = grown;
            cap *= 2;
        }
        uint32_t code = weft_utf8_get(in->data + at, &len);
        int boundary = 0;
        utf8proc_ssize_t added =
            utf8proc_decompose_char((utf8proc_int32_t)code, codes + n, DECOMPOSED_MAX,
                                    (utf8proc_option_t)decompose, &boundary);
        WEFT_ASSERT(added >= 0 && added <= DECOMPOSED_MAX);
        n += (size_t)added;
    }
    spare = malloc((n + 1) * sizeof *spare);
    if (!spare) goto cleanup;
    order_marks(codes, n, spare);
    if (compose) {
        utf8proc_ssize_t left = utf8proc_normalize_utf32(
            codes, (utf8proc_ssize_t)n, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
        WEFT_ASSERT(left >= 0 && (size_t)left <= n);
        n = (size_t)left;
    }
    for (size_t i = 0; i < n; i++)
        weft_utf8_put(out, (uint32_t)codes[i]);
    err = WEFT_OK;
cleanup:
    free(codes);
    free(spare);
    return err;
}

static void lowercase(const struct weft_buf *in, struct weft_buf *out) {
    for (size_t at = 0, len; at < in->len; at += len) {
        uint32_t code = weft_utf8_get(in->data + at, &len);
        if (code == 0x130) /* the one character whose lower case is two: i with a dot above */
            weft_buf_add_str(out, "i\xCC\x87");
        else
            weft_utf8_put(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
    }
}

static weft_err replace(const struct wefti_tok_norm *norm, struct wefti_tok_matcher *matcher,
                        const struct weft_buf *in, struct weft_buf *out, struct weft_errmsg *why) {
    size_t copied = 0;
    for (size_t at = 0; at <= in->len;) {
        struct wefti_tok_match match;
        weft_err err = wefti_tok_regex_find(&norm->regex, matcher,
                                            (struct weft_str){in->data, in->len}, at, &match, why);
        if (err) return err;
        if (!match.found) break;
        weft_buf_add(out, in->data + copied, match.start - copied);
        weft_buf_add(out, norm->text, norm->text_len);
        copied = at = match.end;
        if (match.start == match.end) at += at < in->len ? weft_utf8_len(in->data[at]) : 1;
    }
    weft_buf_add(out, in->data + copied, in->len - copied);
    return WEFT_OK;
}

static void strip(const struct wefti_tok_norm *norm, const struct weft_buf *in,
                  struct weft_buf *out) {
    size_t start = 0, end = in->len, len;
    while (norm->left && start < end &&
           weft_unicode_is_space(weft_utf8_get(in->data + start, &len)))
        start += len;
    while (norm->right && end > start) {
        size_t at = end - 1;
        while (at > start && ((unsigned char)in->data[at] & 0xC0) == 0x80)
            at--;
        if (!weft_unicode_is_space(weft_utf8_get(in->data + at, &len))) break;
        end = at;
    }
    weft_buf_add(out, in->data + start, end - start);
}

static weft_err run_one(const struct wefti_tok_norm *norm, bool first,
                        struct wefti_tok_matcher *matcher, const struct weft_buf *in,
                        struct weft_buf *out, struct weft_errmsg *why) {
    switch (norm->kind) {
    case WEFTI_TOK_NORM_NFC:
    case WEFTI_TOK_NORM_NFD:
    case WEFTI_TOK_NORM_NFKC:
    case WEFTI_TOK_NORM_NFKD:
        if (!is_stable(norm->kind, in->data, in->len)) return unicode_form(norm->kind, in, out);
        weft_buf_add(out, in->data, in->len);
        return WEFT_OK;
    case WEFTI_TOK_NORM_LOWERCASE:
        lowercase(in, out);
        return WEFT_OK;
    case WEFTI_TOK_NORM_PREPEND:
        weft_buf_add(out, norm->text, norm->text_len);
        weft_buf_add(out, in->data, in->len);
        return WEFT_OK;
    case WEFTI_TOK_NORM_REPLACE:
        return replace(norm, matcher, in, out, why);
    case WEFTI_TOK_NORM_STRIP:
        strip(norm, in, out);
        return WEFT_OK;
    case WEFTI_TOK_NORM_CLUSTERS:
        wefti_tok_charsmap_clusters(norm->map, in, out);
        return WEFT_OK;
    case WEFTI_TOK_NORM_SENTENCE:
        wefti_tok_sentence_run(norm->sentence, in, first, out);
        return WEFT_OK;
    case WEFTI_TOK_NORM_CLEAN:
        wefti_tok_bert_clean(in, out);
        return WEFT_OK;
    case WEFTI_TOK_NORM_CHINESE:
        wefti_tok_bert_isolate_chinese(in, out);
        return WEFT_OK;
    case WEFTI_TOK_NORM_DROP_MARKS:
        wefti_tok_bert_drop_marks(in, out);
        return WEFT_OK;
    }
    return WEFT_E_INVAL;
}

weft_err wefti_tok_norm_run(const struct wefti_tok_norm *norms, size_t n,
                            const struct wefti_tok_normalizing *state, struct weft_errmsg *why) {
    WEFT_ASSERT(state->text != state->spare);
    struct weft_buf *text = state->text, *spare = state->spare;
    for (size_t i = 0; i < n && text->len > 0; i++) {
        weft_buf_clear(spare);
        weft_err err = run_one(&norms[i], state->first, state->matcher, text, spare, why);
        if (err) return err;
        if (spare->failed)
            return weft_err_set(why, WEFT_E_TOOBIG, "the normalised text is over %zu bytes",
                                spare->max_bytes);
        struct weft_buf swap = *text;
        *text = *spare;
        *spare = swap;
    }
    return WEFT_OK;
}
