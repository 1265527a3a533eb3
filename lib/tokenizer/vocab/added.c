/* Added tokens by prefix. */
#include "vocab/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "codec/unicode.h"
#include "codec/utf8.h"
#include "vocab/vocab.h"

void wefti_tok_added_fini(struct wefti_tok_added *added) {
    for (size_t i = 0; i < added->n; i++)
        free(added->tokens[i].text);
    free(added->tokens);
    *added = (struct wefti_tok_added){0};
}

weft_err wefti_tok_added_put(struct wefti_tok_added *added, struct weft_str text, uint32_t id,
                             const struct wefti_tok_added_token *traits) {
    WEFT_ASSERT(added->n <= added->cap);
    WEFT_ASSERT(text.len <= 4 * WEFTI_TOK_ENTRY_BYTES_MAX);
    if (text.len == 0) return WEFT_OK; /* would match everywhere and say nothing */
    if (added->n == added->cap) {
        size_t cap = added->cap ? 2 * added->cap : 64; /* bounded by the vocabulary */
        struct wefti_tok_added_token *tokens = realloc(added->tokens, cap * sizeof *tokens);
        if (!tokens) return WEFT_E_NOMEM;
        added->tokens = tokens;
        added->cap = cap;
    }
    char *copy = malloc(text.len);
    if (!copy) return WEFT_E_NOMEM;
    memcpy(copy, text.data, text.len);
    struct wefti_tok_added_token *token = &added->tokens[added->n++];
    *token = *traits;
    token->text = copy;
    token->len = (uint32_t)text.len;
    token->id = id;
    added->starts[(unsigned char)copy[0]] = true;
    if (!token->special) added->any_ordinary = true;
    return WEFT_OK;
}

static int compare_added(const void *a, const void *b) {
    const struct wefti_tok_added_token *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    if (order != 0) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void wefti_tok_added_sort(struct wefti_tok_added *added) {
    if (added->n > 1) qsort(added->tokens, added->n, sizeof *added->tokens, compare_added);
}

/* First of tokens [low, high), which agree on their first `at` bytes and are longer than that,
 * whose byte at `at` is >= `byte`. */
static size_t lower_bound(const struct wefti_tok_added *added, size_t low, size_t high, size_t at,
                          unsigned byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((unsigned char)added->tokens[middle].text[at] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct wefti_tok_added_token *wefti_tok_added_longest(const struct wefti_tok_added *added,
                                                            bool parse_special, const char *text,
                                                            size_t len) {
    if (len == 0 || !added->starts[(unsigned char)*text]) return NULL;
    const struct wefti_tok_added_token *best = NULL;
    size_t low = 0, high = added->n;
    for (size_t at = 0; low < high; at++) {
        /* Tokens that end here come first among those with the same beginning. */
        for (; low < high && added->tokens[low].len == at; low++)
            if (parse_special || !added->tokens[low].special) best = &added->tokens[low];
        if (at == len) break;
        unsigned byte = (unsigned char)text[at];
        low = lower_bound(added, low, high, at, byte);
        high = lower_bound(added, low, high, at, byte + 1);
    }
    return best;
}

/* Bytes of the white space that ends at `end`, without going below `floor`. */
static size_t space_before(const char *text, size_t floor, size_t end) {
    size_t start = end;
    while (start > floor) {
        size_t at = start - 1, len;
        while (at > floor && ((unsigned char)text[at] & 0xC0) == 0x80)
            at--;
        if (!weft_unicode_is_space(weft_utf8_get(text + at, &len))) break;
        start = at;
    }
    return end - start;
}

static size_t space_behind(const char *text, size_t len, size_t from) {
    size_t at = from, n;
    while (at < len && weft_unicode_is_space(weft_utf8_get(text + at, &n)))
        at += n;
    return at - from;
}

static bool is_lone_word(const char *text, size_t len, size_t start, size_t end) {
    size_t n;
    if (end < len && weft_unicode_is_word(weft_utf8_get(text + end, &n))) return false;
    if (start == 0) return true;
    size_t at = start - 1;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    return !weft_unicode_is_word(weft_utf8_get(text + at, &n));
}

bool wefti_tok_added_find(const struct wefti_tok_added *added, bool parse_special, const char *text,
                          size_t len, size_t from, struct wefti_tok_added_match *match_out) {
    WEFT_ASSERT(from <= len);
    if (added->n == 0 || (!parse_special && !added->any_ordinary)) return false;
    for (size_t at = from; at < len;) {
        const struct wefti_tok_added_token *token =
            wefti_tok_added_longest(added, parse_special, text + at, len - at);
        if (!token) {
            at++;
            continue;
        }
        size_t end = at + token->len;
        if (token->single_word && !is_lone_word(text, len, at, end)) {
            at = end; /* skipped bytes are text now, as in Hugging Face's matcher */
            continue;
        }
        match_out->token = token;
        match_out->start = token->strip_left ? at - space_before(text, from, at) : at;
        match_out->end = token->strip_right ? end + space_behind(text, len, end) : end;
        return true;
    }
    return false;
}
