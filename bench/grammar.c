/* Microseconds for JSON Schemas: to compile each, and for the mask before each token of the texts that they allow.
 *
 *     bench_grammar MODEL SCHEMAS.jsonl     with --worst the schemas that took longest, too
 *
 * MODEL is a tokenizer; its vocabulary is filled up to 128,256 with pairs of its tokens, which nothing ever uses but
 * every walk meets. CPU time of the one thread; each schema starts with an empty cache, as a first request finds it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

#define N_VOCAB 128256u
#define PAIR_BYTES_MAX 64u
#define WORST 10

struct times {
    double *us;
    size_t n, cap;
};

static struct weft_str tokens[N_VOCAB];
static uint64_t mask[(N_VOCAB + 63) / 64];
static weft_tokenizer *tok;
static weft_gram_vocab *vocab;

static double cpu_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void add_time(struct times *times, double us) {
    if (times->n == times->cap) {
        times->cap = times->cap ? 2 * times->cap : 1024;
        times->us = realloc(times->us, times->cap * sizeof *times->us);
        WEFT_ASSERT(times->us);
    }
    times->us[times->n++] = us;
}

static void fill_up(uint32_t n) {
    for (uint32_t id = n, a = 0; id < N_VOCAB; a++) {
        const struct weft_str *x = &tokens[a % n], *y = &tokens[(a * 7919u + 13) % n];
        if (x->len == 0 || y->len == 0 || x->len + y->len > PAIR_BYTES_MAX) continue;
        char *pair = malloc(x->len + y->len);
        WEFT_ASSERT(pair);
        memcpy(pair, x->data, x->len);
        memcpy(pair + x->len, y->data, y->len);
        tokens[id++] = (struct weft_str){pair, x->len + y->len};
    }
}

static weft_err open_vocab(const char *model, struct weft_errmsg *why) {
    weft_err err = weft_tok_open(model, &tok, why);
    if (err) return err;
    uint32_t n = weft_tok_vocab_size(tok);
    if (n == 0 || n > N_VOCAB)
        return weft_err_set(why, WEFT_E_TOOBIG, "%u tokens are none, or over %u", n, N_VOCAB);
    for (uint32_t id = 0; id < n; id++) {
        if (!weft_tok_is_special(tok, id))
            tokens[id].data = weft_tok_token_bytes(tok, id, &tokens[id].len);
    }
    fill_up(n);
    return weft_gram_vocab_new(tokens, N_VOCAB, &vocab);
}

static void measure_text(weft_gram *gram, const char *text, size_t len, struct times *masks) {
    weft_gram_state *state;
    struct weft_errmsg why;
    uint32_t *ids;
    size_t n;
    const struct weft_tok_input input = {{text, len}, 0, len + 1};
    if (weft_tok_encode(tok, &input, &ids, &n, &why)) return;
    weft_err err = weft_gram_state_new(gram, &state);
    for (size_t i = 0; i < n && !err; i++) {
        double begun = cpu_us();
        err = weft_gram_mask(state, vocab, mask);
        add_time(masks, cpu_us() - begun);
        if (!err) err = weft_gram_take(state, tokens[ids[i]].data, tokens[ids[i]].len);
    }
    weft_gram_state_free(state);
    free(ids);
}

struct worst {
    char id[128];
    double compile_us, mask_us;
};

static struct worst measure_schema(const json_t *one, struct times *compiles, struct times *masks) {
    struct weft_errmsg why;
    struct worst worst = {0};
    weft_gram *gram;
    size_t i;
    json_t *item;
    char *text = json_dumps(json_object_get(one, "schema"), JSON_ENCODE_ANY | JSON_COMPACT);
    WEFT_ASSERT(text);
    (void)snprintf(worst.id, sizeof worst.id, "%s", json_string_value(json_object_get(one, "id")));
    double begun = cpu_us();
    weft_err err = weft_gram_schema((struct weft_str){text, strlen(text)}, &gram, &why);
    worst.compile_us = cpu_us() - begun;
    add_time(compiles, worst.compile_us);
    size_t first = masks->n;
    json_array_foreach(json_object_get(one, "valid"), i, item) {
        if (!err) measure_text(gram, json_string_value(item), json_string_length(item), masks);
    }
    for (size_t k = first; k < masks->n; k++)
        worst.mask_us = masks->us[k] > worst.mask_us ? masks->us[k] : worst.mask_us;
    weft_gram_free(gram);
    free(text);
    return worst;
}

static int compare(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static int by_compile(const void *x, const void *y) {
    return compare(&((const struct worst *)y)->compile_us, &((const struct worst *)x)->compile_us);
}

static int by_mask(const void *x, const void *y) {
    return compare(&((const struct worst *)y)->mask_us, &((const struct worst *)x)->mask_us);
}

static void print(const char *what, struct times *times) {
    if (times->n == 0) return;
    qsort(times->us, times->n, sizeof *times->us, compare);
    double sum = 0;
    for (size_t i = 0; i < times->n; i++)
        sum += times->us[i];
    printf("%-8s %8zu: mean %9.1f  p50 %9.1f  p90 %9.1f  p99 %9.1f  p99.9 %9.1f  max %9.1f us\n",
           what, times->n, sum / (double)times->n, times->us[times->n / 2],
           times->us[times->n * 9 / 10], times->us[times->n * 99 / 100],
           times->us[times->n * 999 / 1000], times->us[times->n - 1]);
}

static void print_worst(struct worst *list, size_t n) {
    for (int kind = 0; kind < 2; kind++) {
        qsort(list, n, sizeof *list, kind ? by_mask : by_compile);
        for (size_t i = 0; i < n && i < WORST; i++)
            printf("  %s %9.0f us  %s\n", kind ? "mask   " : "compile",
                   kind ? list[i].mask_us : list[i].compile_us, list[i].id);
    }
}

int main(int argc, char **argv) {
    struct weft_errmsg why = {""};
    struct times compiles = {0}, masks = {0};
    static struct worst worst[8192];
    size_t n = 0;
    if (argc < 3) {
        (void)fprintf(stderr, "usage: bench_grammar MODEL SCHEMAS.jsonl [--worst]\n");
        return 2;
    }
    FILE *file = fopen(argv[2], "rb");
    weft_err err = open_vocab(argv[1], &why);
    if (err || !file) {
        (void)fprintf(stderr, "bench_grammar: %s\n", file ? why.text : "cannot read the schemas");
        return 1;
    }
    json_t *one;
    while ((one = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)) &&
           n < sizeof worst / sizeof *worst) {
        worst[n++] = measure_schema(one, &compiles, &masks);
        json_decref(one);
    }
    (void)fclose(file);
    print("compile", &compiles);
    print("mask", &masks);
    if (argc > 3) print_worst(worst, n);
    weft_gram_vocab_free(vocab);
    weft_tok_free(tok);
    return 0;
}
