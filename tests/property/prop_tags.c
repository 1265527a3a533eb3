/* Structural tags over three letters, with triggers, ends and excluded texts that overlap as they like, against a
 * model that looks at every place of a text. In half of the cases '<' is a special token, of which
 * there is none in free text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/rand.h"
#include "grammar/grammar.h"

#define N_CASES 3000
#define N_TEXTS 40
#define TEXT_MAX 40u
#define N_TAGS_MAX 3u

struct tag {
    char begin[12], content[4], end[4];
    bool is_free; /* its content is any text; it has an end then */
};

static char triggers[2][4], excluded[4];
static uint32_t n_triggers, n_tags;
static struct tag tags[N_TAGS_MAX];
static bool must, is_once, is_special;

static void random_text(uint64_t *rand, uint32_t min, uint32_t max, char *out) {
    size_t n = min + weft_rand_below(rand, max - min + 1);
    for (size_t i = 0; i < n; i++)
        out[i] = "ab<"[weft_rand_below(rand, 3)];
    out[n] = 0;
}

/* ------------------------------------------------------------------------------------- the model --- */

static bool is_at(const char *text, size_t at, size_t n, const char *what) {
    size_t len = strlen(what);
    return n - at >= len && memcmp(text + at, what, len) == 0;
}

/* Whether `what` ends at `end`, and began at `from` or later. */
static bool ends_at(const char *text, size_t from, size_t end, const char *what) {
    size_t len = strlen(what);
    return len > 0 && end - from >= len && memcmp(text + end - len, what, len) == 0;
}

static bool has(const char *text, size_t from, size_t end, const char *what) {
    for (size_t i = from; i <= end; i++)
        if (ends_at(text, from, i, what)) return true;
    return false;
}

/* Whether it is all free text, as far as its characters say. */
static bool is_plain(const char *text, size_t from, size_t end) {
    return !is_special || end <= from || !memchr(text + from, '<', end - from);
}

/* Marks where a tag may end whose first `n_known` bytes are before `at`. */
static void follow(const struct tag *tag, const char *text, size_t at, size_t n_known, bool *ends) {
    size_t n = strlen(text);
    if (!is_at(text, at, n, tag->begin + n_known)) return;
    at += strlen(tag->begin) - n_known;
    for (size_t to = at; to <= n; to++) {
        size_t end = to + strlen(tag->end);
        if (!is_at(text, to, n, tag->end)) continue;
        bool fits = tag->is_free /* of ends that overlap the first one counts */
                        ? !has(text, at, end - 1, tag->end) && is_plain(text, at, to)
                        : is_at(text, at, n, tag->content) && to - at == strlen(tag->content);
        if (fits) ends[end] = true;
    }
}

/* Free text from `at` on: where tags may end in it, and whether it may go on to the end of the text. */
static bool scan(const char *text, size_t at, bool *ends) {
    size_t n = strlen(text);
    for (size_t i = at; i <= n; i++) {
        bool is_trigger = false;
        for (size_t k = 0; k < n_triggers; k++) {
            if (!ends_at(text, at, i, triggers[k])) continue;
            is_trigger = true;
            if (!is_plain(text, at, i - strlen(triggers[k]))) continue;
            for (size_t t = 0; t < n_tags; t++)
                if (strncmp(tags[t].begin, triggers[k], strlen(triggers[k])) == 0)
                    follow(&tags[t], text, i, strlen(triggers[k]), ends);
        }
        if (is_trigger || ends_at(text, at, i, excluded)) return false;
    }
    return is_plain(text, at, n);
}

static bool model(const char *text) {
    bool starts[TEXT_MAX + 1] = {false};
    size_t n = strlen(text);
    for (size_t t = 0; must && t < n_tags; t++)
        follow(&tags[t], text, 0, 0, starts);
    if (must && is_once) return starts[n];
    if (!must) starts[0] = true;
    for (size_t i = 0; i <= n; i++) {
        bool ends[TEXT_MAX + 1] = {false};
        if (!starts[i]) continue;
        if (scan(text, i, ends) || (is_once && ends[n])) return true;
        for (size_t k = i; k <= n && !is_once; k++)
            starts[k] = starts[k] || ends[k];
    }
    return false;
}

/* --------------------------------------------------------------------------------------- a case --- */

static void random_case(uint64_t *rand) {
    n_triggers = 1 + weft_rand_below(rand, 2);
    n_tags = 1 + weft_rand_below(rand, N_TAGS_MAX);
    for (size_t i = 0; i < n_triggers; i++)
        random_text(rand, 1, 3, triggers[i]);
    random_text(rand, 0, 3, excluded);
    is_special = weft_rand_below(rand, 2) == 0;
    for (char *at = excluded; *at && is_special; at++)
        if (*at == '<') *at = 'a'; /* tokens are excluded anyway */
    for (size_t i = 0; i < n_tags; i++) {
        struct tag *tag = &tags[i];
        char rest[4];
        random_text(rand, 0, 2, rest);
        (void)snprintf(tag->begin, sizeof tag->begin, "%s%s",
                       triggers[weft_rand_below(rand, n_triggers)], rest);
        tag->is_free = weft_rand_below(rand, 2) == 0;
        random_text(rand, 0, 2, tag->content);
        random_text(rand, tag->is_free ? 1 : 0, 3, tag->end);
    }
    must = weft_rand_below(rand, 2) == 0;
    is_once = weft_rand_below(rand, 2) == 0;
}

/* `before`, between characters `between`, `behind`: a string, or one text or token for each character. */
struct form {
    const char *text, *token, *before, *between, *behind;
};

static void put_text(struct weft_buf *out, const struct form *form, const char *text) {
    if (!is_special) {
        weft_buf_printf(out, form->text, text);
        return;
    }
    weft_buf_add_str(out, form->before);
    for (size_t i = 0; text[i]; i++) {
        const char one[2] = {text[i], 0};
        if (i) weft_buf_add_str(out, form->between);
        weft_buf_printf(out, text[i] == '<' ? form->token : form->text, one);
    }
    if (!*text) weft_buf_printf(out, form->text, text);
    weft_buf_add_str(out, form->behind);
}

static weft_gram *compile(struct weft_buf *out) {
#define TOKEN "{\"type\":\"token\",\"token\":\"%s\"}"
    static const struct form text = {"\"%s\"", TOKEN, "[", ",", "]"};
    static const struct form format = {"{\"type\":\"const_string\",\"value\":\"%s\"}", TOKEN,
                                       "{\"type\":\"sequence\",\"elements\":[", ",", "]}"};
    struct weft_errmsg why = {""};
    weft_gram *gram;
    weft_buf_printf(out,
                    "{\"format\":{\"type\":\"triggered_tags\",\"at_least_one\":%s,"
                    "\"stop_after_first\":%s,\"excludes\":[",
                    must ? "true" : "false", is_once ? "true" : "false");
    if (*excluded) weft_buf_printf(out, "\"%s\"", excluded);
    weft_buf_add_str(out, "],\"triggers\":[");
    for (size_t i = 0; i < n_triggers; i++) {
        weft_buf_add_str(out, i ? "," : "");
        put_text(out, &text, triggers[i]);
    }
    weft_buf_add_str(out, "],\"tags\":[");
    for (size_t i = 0; i < n_tags; i++) {
        weft_buf_printf(out, "%s{\"begin\":", i ? "," : "");
        put_text(out, &text, tags[i].begin);
        weft_buf_add_str(out, ",\"end\":[");
        put_text(out, &text, tags[i].end);
        weft_buf_add_str(out, "],\"content\":");
        if (tags[i].is_free)
            weft_buf_add_str(out, "{\"type\":\"any_text\"}");
        else
            put_text(out, &format, tags[i].content);
        weft_buf_add_str(out, "}");
    }
    weft_buf_add_str(out, "]}}");
    weft_err err = weft_gram_tags((struct weft_str){weft_buf_cstr(out), out->len}, &gram, &why);
    WEFT_ASSERT(!err || strstr(why.text, "lies within another one") ||
                strstr(why.text, "has what a trigger ends with"));
    return err ? NULL : gram;
}

static bool accepts(weft_gram *gram, const char *text) {
    weft_gram_state *state;
    WEFT_ASSERT(!weft_gram_state_new(gram, &state));
    weft_err err = WEFT_OK;
    for (; *text && !err; text++)
        err = is_special && *text == '<' ? weft_gram_take_special(state, (struct weft_str){text, 1})
                                         : weft_gram_take(state, text, 1);
    bool is_good = !err && weft_gram_may_end(state);
    weft_gram_state_free(state);
    return is_good;
}

/* Pieces of what may come, and what is between them. */
static void make_text(uint64_t *rand, char *out) {
    size_t n = 0;
    out[0] = 0;
    for (size_t i = weft_rand_below(rand, 7); i > 0; i--) {
        const struct tag *tag = &tags[weft_rand_below(rand, n_tags)];
        char some[4];
        random_text(rand, 0, 3, some);
        const char *const pieces[] = {tag->begin, tag->is_free ? some : tag->content, tag->end,
                                      some};
        size_t first = weft_rand_below(rand, 4);
        for (size_t k = first; k < (first ? first + 1 : 3); k++) {
            size_t len = strlen(pieces[k]);
            if (n + len > TEXT_MAX) return;
            memcpy(out + n, pieces[k], len + 1);
            n += len;
        }
    }
}

int main(void) {
    weft_check_actor("prop_tags");
    uint64_t rand = weft_rand_test_seed();
    size_t n_good = 0, n_all = 0;
    for (int i = 0; i < N_CASES; i++) {
        char text[TEXT_MAX + 1];
        struct weft_buf json;
        weft_buf_init(&json, 1 << 16);
        random_case(&rand);
        weft_gram *gram = compile(&json);
        for (int k = 0; k < N_TEXTS && gram; k++) {
            make_text(&rand, text);
            bool is_good = model(text);
            if (accepts(gram, text) != is_good) {
                (void)fprintf(stderr, "%s\n\"%s\" is to be %s\n", weft_buf_cstr(&json), text,
                              is_good ? "accepted" : "rejected");
                WEFT_ASSERT(false);
            }
            n_good += is_good;
            n_all++;
        }
        weft_gram_free(gram);
        weft_buf_fini(&json);
    }
    printf("%zu texts, %zu of them accepted\n", n_all, n_good);
    return 0;
}
