/* Stop strings.
 *
 * Every string runs a Knuth-Morris-Pratt automaton over the same stream; its state is the length of
 * its longest prefix that the text ends with. The longest of these prefixes is held back, since its
 * string may still be completed. Its text is in the set already, so a matcher is just a few lengths
 * and pushing takes no memory. Each byte is looked at once per string, however the text is cut. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "tokenizer.h"

struct pattern {
    const char *text;
    const uint32_t *fail; /* fail[i]: longest proper border of text[0..i] */
    uint32_t len;
};

struct weft_stop_set {
    struct pattern patterns[WEFT_STOP_STRINGS_MAX];
    size_t n;
    uint32_t tables[]; /* the patterns' `fail` one after another, then their texts */
};

struct weft_stop {
    const struct weft_stop_set *set;
    bool include_in_output, done;
    uint32_t matched[]; /* of each pattern; less than its length */
};

/* --- set -------------------------------------------------------------------------------------- */

static void find_borders(const char *text, size_t len, uint32_t *fail) {
    fail[0] = 0;
    for (uint32_t i = 1, border = 0; i < len; i++) {
        while (border > 0 && text[i] != text[border])
            border = fail[border - 1];
        if (text[i] == text[border]) border++;
        fail[i] = border;
    }
}

static size_t sum(const size_t *lens, size_t n) {
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += lens[i];
    return total;
}

size_t weft_stop_set_bytes(const size_t *lens, size_t n) {
    return sizeof(struct weft_stop_set) + sum(lens, n) * (sizeof(uint32_t) + 1);
}

weft_err weft_stop_set_new(const char *const *strings, const size_t *lens, size_t n,
                           struct weft_stop_set **set_out) {
    *set_out = NULL;
    if (n > WEFT_STOP_STRINGS_MAX) return WEFT_E_TOOBIG;
    for (size_t i = 0; i < n; i++) {
        if (lens[i] == 0) return WEFT_E_INVAL;
        if (lens[i] > WEFT_STOP_STRING_BYTES_MAX) return WEFT_E_TOOBIG;
    }
    struct weft_stop_set *set = malloc(weft_stop_set_bytes(lens, n));
    if (!set) return WEFT_E_NOMEM;
    uint32_t *fail = set->tables;
    char *text = (char *)(set->tables + sum(lens, n));
    set->n = n;
    for (size_t i = 0; i < n; i++) {
        memcpy(text, strings[i], lens[i]);
        find_borders(text, lens[i], fail);
        set->patterns[i] = (struct pattern){.text = text, .fail = fail, .len = (uint32_t)lens[i]};
        text += lens[i];
        fail += lens[i];
    }
    *set_out = set;
    return WEFT_OK;
}

void weft_stop_set_free(struct weft_stop_set *set) {
    free(set);
}

/* --- matcher ---------------------------------------------------------------------------------- */

size_t weft_stop_bytes(size_t n) {
    return sizeof(struct weft_stop) + n * sizeof(uint32_t);
}

weft_err weft_stop_new(const struct weft_stop_set *set, bool include_in_output,
                       struct weft_stop **stop_out) {
    WEFT_ASSERT(set);
    struct weft_stop *stop = calloc(1, weft_stop_bytes(set->n));
    *stop_out = stop;
    if (!stop) return WEFT_E_NOMEM;
    stop->set = set;
    stop->include_in_output = include_in_output;
    return WEFT_OK;
}

void weft_stop_free(struct weft_stop *stop) {
    free(stop);
}

/* How much of the pattern is matched after `c`, if `k` bytes were before. */
static uint32_t advance(const struct pattern *pattern, uint32_t k, char c) {
    WEFT_ASSERT(k < pattern->len);
    while (k > 0 && pattern->text[k] != c)
        k = pattern->fail[k - 1];
    return pattern->text[k] == c ? k + 1 : 0;
}

/* The pattern that `c` completes; of several, the longest, which starts first. If matches do not
 * count, the pattern continues with its longest border. */
static const struct pattern *step(struct weft_stop *stop, char c, bool counts) {
    const struct pattern *done = NULL;
    for (size_t i = 0; i < stop->set->n; i++) {
        const struct pattern *pattern = &stop->set->patterns[i];
        uint32_t matched = advance(pattern, stop->matched[i], c);
        if (matched == pattern->len) {
            if (counts && (!done || pattern->len > done->len)) done = pattern;
            matched = pattern->fail[pattern->len - 1];
        }
        stop->matched[i] = matched;
    }
    return done;
}

/* The text that is held back. Its address stays valid. */
static const char *held(const struct weft_stop *stop, size_t *len_out) {
    const char *text = "";
    *len_out = 0;
    for (size_t i = 0; i < stop->set->n; i++) {
        if (stop->matched[i] <= *len_out) continue;
        text = stop->set->patterns[i].text;
        *len_out = stop->matched[i];
    }
    return text;
}

static bool feed(struct weft_stop *stop, const char *text, size_t len, bool counts,
                 struct weft_buf *out, size_t *which_out) {
    if (stop->done) return false;
    size_t n_before, n_behind, end = 0;
    const char *before = held(stop, &n_before);
    const struct pattern *done = NULL;
    while (end < len && !done)
        done = step(stop, text[end++], counts);
    if (done)
        n_behind = stop->include_in_output ? 0 : done->len;
    else
        (void)held(stop, &n_behind);
    WEFT_ASSERT(n_behind <= n_before + end);
    size_t n_safe = n_before + end - n_behind;
    size_t n_old = n_safe < n_before ? n_safe : n_before;
    weft_buf_add(out, before, n_old);
    weft_buf_add(out, text, n_safe - n_old);
    if (!done) return false;
    *which_out = (size_t)(done - stop->set->patterns);
    stop->done = true;
    return true;
}

bool weft_stop_push(struct weft_stop *stop, const char *text, size_t len, struct weft_buf *out,
                    size_t *which_out) {
    return feed(stop, text, len, true, out, which_out);
}

void weft_stop_pass(struct weft_stop *stop, const char *text, size_t len, struct weft_buf *out) {
    size_t which;
    bool hit = feed(stop, text, len, false, out, &which);
    WEFT_ASSERT(!hit);
}

void weft_stop_finish(struct weft_stop *stop, struct weft_buf *out) {
    if (stop->done) return;
    size_t len;
    const char *text = held(stop, &len);
    weft_buf_add(out, text, len);
    memset(stop->matched, 0, stop->set->n * sizeof *stop->matched);
}
