/* Perplexity of the bundled model, and of one with experts, in the default mode over
 * tests/data/valid.txt: within 0.5 % of the float64 reference's in goldens.json (whose "definition"
 * is followed here). Every token is predicted once: blocks of 511, each on its own after a
 * begin-of-text token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "harness/eng_drive.h"
#include "tokenizer/tokenizer.h"

#define DEVIATION 0.005

enum { BLOCK = 511 };

static char *read_text(const char *path, size_t *len_out) {
    FILE *f = fopen(path, "rbe");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long len = ftell(f);
    assert_true(len > 0);
    rewind(f);
    char *text = malloc((size_t)len);
    assert_non_null(text);
    *len_out = fread(text, 1, (size_t)len, f);
    assert_int_equal(*len_out, len);
    (void)fclose(f);
    return text;
}

struct loss {
    const uint32_t *tokens; /* begin-of-text first */
    uint32_t n_tokens, n_vocab;
    double sum;
};

static void add_loss(void *ctx, uint32_t pos, const float *logits) {
    struct loss *loss = ctx;
    if (pos + 1 >= loss->n_tokens) return;
    double max = -INFINITY, sum = 0.0;
    for (uint32_t i = 0; i < loss->n_vocab; i++) {
        if ((double)logits[i] > max) max = (double)logits[i];
    }
    for (uint32_t i = 0; i < loss->n_vocab; i++) {
        sum += exp((double)logits[i] - max);
    }
    loss->sum += max + log(sum) - (double)logits[loss->tokens[pos + 1]];
}

/* How a model is opened. */
struct way {
    const char *model;
    enum weft_eng_dtype dtype;
    enum weft_eng_scheme scheme;
    enum weft_eng_kv kv;
};

static double mean_loss(const struct way *way, const uint32_t *ids, size_t n_ids, uint32_t bos) {
    struct weft_eng_options options;
    struct weft_errmsg why = {{0}};
    weft_eng_options_init(&options);
    options.dtype = way->dtype;
    options.scheme = way->scheme;
    options.kv_dtype = way->kv;
    options.kv_memory_bytes = 16u << 20;
    weft_eng *eng = drive_open(way->model, &options);
    double sum = 0.0;
    for (size_t begin = 0; begin < n_ids; begin += BLOCK) {
        uint32_t tokens[BLOCK + 1] = {bos};
        uint32_t n = n_ids - begin < BLOCK ? (uint32_t)(n_ids - begin) : BLOCK;
        for (uint32_t i = 0; i < n; i++) {
            tokens[i + 1] = ids[begin + i];
        }
        struct loss loss = {tokens, n + 1, weft_eng_info(eng)->n_vocab, 0.0};
        if (weft_eng_logits(eng, tokens, n + 1, add_loss, &loss, &why)) fail_msg("%s", why.text);
        sum += loss.sum;
    }
    weft_eng_free(eng);
    return sum / (double)n_ids;
}

static double recorded(const char *folder, const char *key) {
    json_error_t error;
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/goldens.json", folder);
    json_t *doc = json_load_file(path, 0, &error);
    assert_non_null(doc);
    const json_t *value = json_object_get(json_object_get(doc, "perplexity"), key);
    double number = json_number_value(value);
    assert_true(number > 0.0);
    json_decref(doc);
    return number;
}

/* `folder`: of the model whose tokenizer and recorded perplexity it is. */
static void check_in(const char *folder, struct way way, double deviation) {
    weft_tokenizer *tok = NULL;
    struct weft_errmsg why = {{0}};
    size_t len, n_ids;
    uint32_t *ids, bos;
    char *text = read_text(drive_fixture("tests/data/valid.txt"), &len);
    if (weft_tok_open(folder, &tok, &why)) fail_msg("%s", why.text);
    assert_true(weft_tok_bos(tok, &bos));
    if (weft_tok_encode(tok, &(struct weft_tok_input){{text, len}, 0, SIZE_MAX}, &ids, &n_ids,
                        &why))
        fail_msg("%s", why.text);
    assert_int_equal(n_ids, (size_t)recorded(folder, "tokens"));
    double got = exp(mean_loss(&way, ids, n_ids, bos));
    double want = exp(recorded(folder, "nll"));
    (void)printf("%s: perplexity %.4f, recorded %.4f (%+.3f %%)\n", way.model, got, want,
                 100.0 * (got / want - 1.0));
    assert_true(fabs(got / want - 1.0) < deviation);
    free(ids);
    free(text);
    weft_tok_free(tok);
}

static void check_perplexity(struct way way, double deviation) {
    way.model = drive_fixture(way.model);
    check_in(drive_fixture("models/fable-6m"), way, deviation);
}

static void latents_and_experts_keep_the_perplexity(void **state) {
    (void)state;
    const char *folder = drive_shared("models/fable-moe-12m");
    if (!folder) skip();
    char gguf[1024];
    (void)snprintf(gguf, sizeof gguf, "%s/fable-moe-12m-q8_0.gguf", folder);
    check_in(folder, (struct way){.model = folder}, DEVIATION);
    check_in(folder, (struct way){.model = gguf}, DEVIATION);
}

static void bf16_mode_keeps_the_perplexity(void **state) {
    (void)state;
    check_perplexity((struct way){.model = "models/fable-6m"}, DEVIATION);
}

static void int8_mode_keeps_the_perplexity(void **state) {
    (void)state;
    check_perplexity((struct way){.model = TEST_FABLE_Q8_0}, DEVIATION);
}

static void int8_per_channel_keeps_the_perplexity(void **state) {
    (void)state;
    check_perplexity((struct way){.model = "models/fable-6m", .dtype = WEFT_ENG_DT_Q8}, DEVIATION);
}

static void an_int8_cache_keeps_the_perplexity(void **state) {
    (void)state;
    check_perplexity((struct way){.model = "models/fable-6m", .kv = WEFT_ENG_KV_INT8}, DEVIATION);
}

static void four_bits_cost_little_perplexity(void **state) {
    (void)state;
    check_perplexity((struct way){.model = "models/fable-6m", .dtype = WEFT_ENG_DT_Q4}, 0.05);
}

static void scales_per_group_keep_the_perplexity(void **state) {
    (void)state;
    struct way way = {"models/fable-6m", WEFT_ENG_DT_Q8, WEFT_ENG_SCHEME_GROUP, WEFT_ENG_KV_AUTO};
    check_perplexity(way, DEVIATION);
    way.dtype = WEFT_ENG_DT_Q4;
    check_perplexity(way, 0.05);
}

int main(void) {
    weft_log_init("golden_perplexity", WEFT_LOG_WARN, false);
    /* Each takes minutes under a sanitizer, which has seen all of their code in golden_logits. */
    const struct CMUnitTest some[] = {cmocka_unit_test(bf16_mode_keeps_the_perplexity),
                                      cmocka_unit_test(int8_mode_keeps_the_perplexity)};
    if (getenv("WEFT_SANITIZED")) {
        (void)printf("SKIPPED: all but two cases, in a sanitizer build\n");
        return cmocka_run_group_tests(some, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_mode_keeps_the_perplexity),
        cmocka_unit_test(int8_mode_keeps_the_perplexity),
        cmocka_unit_test(int8_per_channel_keeps_the_perplexity),
        cmocka_unit_test(an_int8_cache_keeps_the_perplexity),
        cmocka_unit_test(four_bits_cost_little_perplexity),
        cmocka_unit_test(scales_per_group_keep_the_perplexity),
        cmocka_unit_test(latents_and_experts_keep_the_perplexity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
