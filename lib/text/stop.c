/* Stop strings.
 *
 * Every string runs the Knuth-Morris-Pratt automaton over the same stream; its state is the length
 * of the longest prefix that the text ends with. What some string may still complete is held back:
 * the longest of these prefixes. A byte is looked at once per string, however the text is cut. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text_internal.h"

#define BITE_BYTES_MIN ((size_t)64)

struct pattern {
    char *text;     /* owned */
    uint32_t *fail; /* owned; fail[i]: longest proper border of text[0..i] */
    uint32_t len, matched;
};

struct weft_stop {
    struct pattern patterns[WEFT_STOP_STRINGS_MAX];
    size_t n, bite_bytes; /* text is looked at in bites */
    bool include_in_output, done;
    struct weft_buf held; /* text that may belong to a match */
};

static weft_err pattern_init(struct pattern *pattern, const char *text, size_t len) {
    pattern->text = malloc(len);
    pattern->fail = malloc(len * sizeof *pattern->fail);
    if (!pattern->text || !pattern->fail) return WEFT_E_NOMEM; /* weft_stop_free cleans up */
    memcpy(pattern->text, text, len);
    pattern->len = (uint32_t)len;
    pattern->fail[0] = 0;
    for (uint32_t i = 1, border = 0; i < len; i++) {
        while (border > 0 && text[i] != text[border])
            border = pattern->fail[border - 1];
        if (text[i] == text[border]) border++;
        pattern->fail[i] = border;
    }
    return WEFT_OK;
}

/* As long as the longest string, so that `held` is at most a prefix of one and a bite. */
static size_t bite_bytes(const size_t *lens, size_t n) {
    size_t longest = BITE_BYTES_MIN;
    for (size_t i = 0; i < n; i++)
        longest = lens[i] > longest ? lens[i] : longest;
    return longest;
}

/* All the memory it will ever need, now: a push cannot fail. */
static void reserve_held(struct weft_stop *stop) {
    static const char filler[WEFT_STOP_STRING_BYTES_MAX];
    weft_buf_init(&stop->held, 2 * stop->bite_bytes);
    weft_buf_add(&stop->held, filler, stop->bite_bytes);
    weft_buf_add(&stop->held, filler, stop->bite_bytes);
    stop->held.len = 0;
}

size_t weft_stop_bytes(const size_t *lens, size_t n) {
    size_t bytes = sizeof(struct weft_stop) + 2 * bite_bytes(lens, n);
    for (size_t i = 0; i < n; i++)
        bytes += lens[i] * (1 + sizeof(uint32_t));
    return bytes;
}

weft_err weft_stop_new(const char *const *strings, const size_t *lens, size_t n,
                       bool include_in_output, struct weft_stop **stop_out) {
    *stop_out = NULL;
    if (n > WEFT_STOP_STRINGS_MAX) return WEFT_E_TOOBIG;
    for (size_t i = 0; i < n; i++) {
        if (lens[i] == 0) return WEFT_E_INVAL;
        if (lens[i] > WEFT_STOP_STRING_BYTES_MAX) return WEFT_E_TOOBIG;
    }
    struct weft_stop *stop = calloc(1, sizeof *stop);
    if (!stop) return WEFT_E_NOMEM;
    weft_err err = WEFT_OK;
    stop->include_in_output = include_in_output;
    stop->bite_bytes = bite_bytes(lens, n);
    reserve_held(stop);
    if (stop->held.failed) err = WEFT_E_NOMEM;
    for (stop->n = 0; stop->n < n && !err; stop->n++)
        err = pattern_init(&stop->patterns[stop->n], strings[stop->n], lens[stop->n]);
    if (!err)
        *stop_out = stop;
    else
        weft_stop_free(stop);
    return err;
}

void weft_stop_free(struct weft_stop *stop) {
    if (!stop) return;
    for (size_t i = 0; i < WEFT_STOP_STRINGS_MAX; i++) {
        free(stop->patterns[i].text);
        free(stop->patterns[i].fail);
    }
    weft_buf_fini(&stop->held);
    free(stop);
}

static void advance(struct pattern *pattern, char c) {
    uint32_t k = pattern->matched;
    WEFT_ASSERT(k < pattern->len);
    while (k > 0 && pattern->text[k] != c)
        k = pattern->fail[k - 1];
    pattern->matched = pattern->text[k] == c ? k + 1 : 0;
}

/* The pattern that `c` completes; of several that end here, the longest starts first. Where
 * matches do not count the pattern goes on with what its end may begin: its longest border. */
static const struct pattern *step(struct weft_stop *stop, char c, bool counts,
                                  size_t *longest_out) {
    const struct pattern *done = NULL;
    *longest_out = 0;
    for (size_t i = 0; i < stop->n; i++) {
        struct pattern *pattern = &stop->patterns[i];
        advance(pattern, c);
        if (pattern->matched == pattern->len) {
            if (counts && (!done || pattern->len > done->len)) done = pattern;
            pattern->matched = pattern->fail[pattern->len - 1];
        }
        if (pattern->matched > *longest_out) *longest_out = pattern->matched;
    }
    return done;
}

/* Looks at what is new in `held`. Returns the pattern that was completed, and where it ends. */
static const struct pattern *scan(struct weft_stop *stop, size_t from, bool counts, size_t *end_out,
                                  size_t *longest_out) {
    *longest_out = 0;
    for (size_t at = from; at < stop->held.len; at++) {
        const struct pattern *done = step(stop, stop->held.data[at], counts, longest_out);
        *end_out = at + 1;
        if (done) return done;
    }
    return NULL;
}

static bool feed(struct weft_stop *stop, const char *text, size_t len, bool counts,
                 struct weft_buf *out, size_t *which_out) {
    if (stop->done) return false;
    while (len > 0) {
        size_t bite = len < stop->bite_bytes ? len : stop->bite_bytes;
        size_t from = stop->held.len, end = 0, longest;
        weft_buf_add(&stop->held, text, bite);
        const struct pattern *done = scan(stop, from, counts, &end, &longest);
        if (done) {
            WEFT_ASSERT(end >= done->len);
            weft_buf_add(out, stop->held.data, stop->include_in_output ? end : end - done->len);
            *which_out = (size_t)(done - stop->patterns);
            stop->done = true;
            return true;
        }
        WEFT_ASSERT(longest <= stop->held.len);
        weft_buf_add(out, stop->held.data, stop->held.len - longest);
        weft_buf_drop_front(&stop->held, stop->held.len - longest);
        text += bite;
        len -= bite;
    }
    return false;
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
    weft_buf_add(out, stop->held.data, stop->held.len);
    weft_buf_clear(&stop->held);
    for (size_t i = 0; i < stop->n; i++)
        stop->patterns[i].matched = 0;
}
