/* JSON Schemas with texts that validators have judged: WEFT_SHARED_DIR/schemas, whose README says how they are
 * scored. They are no part of the repository: without them the test is skipped.
 *
 * No text that a schema forbids may be accepted where the schema compiles, by bytes or in tokens; how many
 * compile, and how many texts that are allowed are accepted, is held against the goals below.
 *
 *   golden_schemas [FILE.jsonl [ID]]     one file, one schema of it, and what is wrong with each */
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

#define SKIPPED 77
#define TOKENS_MAX (1u << 22)
#define SCHEMAS_MAX 4096

static weft_tokenizer *tok;
static weft_gram_vocab *vocab;
static struct weft_str *tokens;
static uint64_t *mask;
static bool is_verbose;

struct score {
    uint32_t n_schemas, n_compiled;
    uint32_t n_valid, n_valid_wrong, n_spaced, n_spaced_wrong;
    uint32_t n_invalid, n_invalid_wrong, n_format_wrong, n_split;
    double ms[SCHEMAS_MAX];
};

static void open_vocab(void) {
    char path[PATH_MAX];
    struct weft_errmsg why;
    (void)snprintf(path, sizeof path, "%s/models/fable-6m", getenv("WEFT_SOURCE_DIR"));
    WEFT_ASSERT(weft_tok_open(path, &tok, &why) == WEFT_OK);
    uint32_t n = weft_tok_vocab_size(tok);
    tokens = calloc(n, sizeof *tokens);
    mask = calloc(weft_gram_mask_words(n), sizeof *mask);
    WEFT_ASSERT(tokens && mask);
    for (uint32_t id = 0; id < n; id++) {
        if (!weft_tok_is_special(tok, id))
            tokens[id].data = weft_tok_token_bytes(tok, id, &tokens[id].len);
    }
    WEFT_ASSERT(weft_gram_vocab_new(tokens, n, &vocab) == WEFT_OK);
}

static bool accepts(weft_gram *gram, const char *text, size_t len) {
    weft_gram_state *state;
    WEFT_ASSERT(weft_gram_state_new(gram, &state) == WEFT_OK);
    bool ok = !weft_gram_take(state, text, len) && weft_gram_may_end(state);
    weft_gram_state_free(state);
    return ok;
}

static bool accepts_tokens(weft_gram *gram, const char *text, size_t len) {
    struct weft_errmsg why;
    uint32_t *ids;
    size_t n;
    weft_gram_state *state;
    const struct weft_tok_input input = {{text, len}, 0, TOKENS_MAX};
    if (weft_tok_encode(tok, &input, &ids, &n, &why)) return accepts(gram, text, len);
    WEFT_ASSERT(weft_gram_state_new(gram, &state) == WEFT_OK);
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        ok = !weft_gram_mask(state, vocab, mask) && (mask[ids[i] / 64] >> (ids[i] % 64) & 1);
        bool taken = !weft_gram_take(state, tokens[ids[i]].data, tokens[ids[i]].len);
        WEFT_ASSERT(taken == ok);
    }
    ok = ok && weft_gram_may_end(state);
    weft_gram_state_free(state);
    free(ids);
    return ok;
}

static bool is_listed(const json_t *list, size_t idx) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        if ((size_t)json_integer_value(one) == idx) return true;
    }
    return false;
}

static void judge(struct score *score, weft_gram *gram, const json_t *one, const char *kind) {
    const json_t *list = json_object_get(one, kind), *spaced = json_object_get(one, "spaced");
    bool is_valid = !strcmp(kind, "valid");
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        size_t len = json_string_length(item);
        bool ok = accepts(gram, text, len), in_tokens = accepts_tokens(gram, text, len);
        bool is_spaced = is_valid && is_listed(spaced, i);
        score->n_split += ok != in_tokens;
        if (is_spaced) {
            score->n_spaced++;
            score->n_spaced_wrong += !ok;
        } else if (is_valid) {
            score->n_valid++;
            score->n_valid_wrong += !ok;
        } else if (!strcmp(kind, "invalid")) {
            score->n_invalid++;
            score->n_invalid_wrong += ok;
        } else {
            score->n_format_wrong += ok;
        }
        if (ok != is_valid && (is_verbose || !is_valid))
            printf("%s: %s, but %s: %.300s\n", json_string_value(json_object_get(one, "id")), kind,
                   ok ? "accepted" : "rejected", text);
    }
}

static double now_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void score_schema(struct score *score, const json_t *one, const char *text, size_t len) {
    struct weft_errmsg why = {""};
    weft_gram *gram;
    const char *id = json_string_value(json_object_get(one, "id"));
    bool must_refuse = json_is_true(json_object_get(one, "remote")) ||
                       json_is_true(json_object_get(one, "refuse"));
    double begun_ms = now_ms();
    weft_err err = weft_gram_schema((struct weft_str){text, len}, &gram, &why);
    double ms = now_ms() - begun_ms;
    if (must_refuse) {
        if (!err) printf("%s: compiles, though it leaves the document or is wrong\n", id);
        weft_gram_free(gram);
        return;
    }
    /* A schema that nothing satisfies is refused, and rightly so. */
    bool is_right = err && json_array_size(json_object_get(one, "valid")) == 0 &&
                    strstr(why.text, "nothing satisfies it");
    WEFT_ASSERT(score->n_schemas < SCHEMAS_MAX);
    score->ms[score->n_schemas++] = ms;
    score->n_compiled += !err || is_right;
    if (err && !is_right && is_verbose) printf("%s: refused: %s\n", id, why.text);
    if (ms > (is_verbose ? 10 : 1000)) printf("%s: %.0f ms to compile\n", id, ms);
    if (!err) {
        judge(score, gram, one, "valid");
        judge(score, gram, one, "invalid");
        judge(score, gram, one, "invalid_format");
    }
    weft_gram_free(gram);
}

static int compare(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

/* The schema's own text: numbers and keys as they are spelled there. */
static const char *find_schema(const char *line, size_t *len_out) {
    const char *at = strstr(line, "\"schema\":");
    json_error_t where;
    WEFT_ASSERT(at);
    at += strlen("\"schema\":");
    json_t *value = json_loads(
        at, JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
        &where);
    WEFT_ASSERT(value);
    *len_out = (size_t)where.position;
    json_decref(value);
    return at;
}

static struct score *score_file(const char *path, const char *id) {
    struct score *score = calloc(1, sizeof *score);
    FILE *file = fopen(path, "rb");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    WEFT_ASSERT(file && score);
    while ((n = getline(&line, &cap, file)) > 0) {
        json_t *one = json_loads(line, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
        size_t len;
        WEFT_ASSERT(one);
        if (!id || !strcmp(id, json_string_value(json_object_get(one, "id")))) {
            const char *text = find_schema(line, &len);
            score_schema(score, one, text, len);
        }
        json_decref(one);
    }
    (void)fclose(file);
    free(line);
    qsort(score->ms, score->n_schemas, sizeof *score->ms, compare);
    return score;
}

static double share(uint32_t n, uint32_t of) {
    return of ? 100.0 * n / of : 100;
}

static bool check_file(const char *folder, const char *name, const char *id, double least,
                       double least_valid) {
    char path[2 * PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    struct score *s = score_file(path, id);
    uint32_t n = s->n_schemas;
    double compiled = share(s->n_compiled, n),
           valid = share(s->n_valid - s->n_valid_wrong, s->n_valid);
    printf(
        "%s: %u of %u schemas compile (%.1f %%, goal %.0f), %u of %u valid texts accepted "
        "(%.2f %%, goal %.0f), with blanks %u of %u; %u of %u invalid ones accepted, %u by format "
        "alone; %u differ in tokens; compile p50 %.2f, p99 %.1f, most %.0f ms\n",
        name, s->n_compiled, n, compiled, least, s->n_valid - s->n_valid_wrong, s->n_valid, valid,
        least_valid, s->n_spaced - s->n_spaced_wrong, s->n_spaced, s->n_invalid_wrong, s->n_invalid,
        s->n_format_wrong, s->n_split, n ? s->ms[n / 2] : 0, n ? s->ms[n * 99 / 100] : 0,
        n ? s->ms[n - 1] : 0);
    bool is_right = s->n_invalid_wrong == 0 && s->n_split == 0 && s->n_format_wrong == 0 &&
                    compiled >= least && valid >= least_valid;
    free(s);
    return is_right;
}

int main(int argc, char **argv) {
    char folder[PATH_MAX];
    const char *shared = getenv("WEFT_SHARED_DIR");
    (void)snprintf(folder, sizeof folder, "%s/schemas", shared ? shared : "");
    if (access(folder, R_OK) != 0) {
        printf("skipped: there is no %s\n", folder);
        return SKIPPED;
    }
    open_vocab();
    is_verbose = argc > 1;
    bool is_right = true;
    if (argc > 1) {
        is_right = check_file(folder, argv[1], argc > 2 ? argv[2] : NULL, 0, 0);
    } else {
        is_right = check_file(folder, "bench.jsonl", NULL, 90, 99) && is_right;
        is_right = check_file(folder, "suite.jsonl", NULL, 85, 0) && is_right;
    }
    weft_gram_vocab_free(vocab);
    free(tokens);
    free(mask);
    weft_tok_free(tok);
    return is_right ? 0 : 1;
}
