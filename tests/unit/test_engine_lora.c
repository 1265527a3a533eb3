/* Adapters in the engine: they compute what merged weights would, in all linear layers of all kinds of
 * models, and sequences keep theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/eng_drive.h"
#include "harness/lora_files.h"
#include "unit/engine_fixtures.h"
#include "unit/model_files.h"

enum { N_TOKENS = 40, VOCAB_MAX = 4096 };

static weft_eng *open_exact(const char *model) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.activations = WEFT_ENG_ACT_F32;
    options.kv_memory_bytes = 16u << 20;
    options.max_batched_tokens = 32; /* some experts have many rows, others few */
    options.n_threads = 2;
    return drive_open(model, &options);
}

static void add(weft_eng *eng, uint64_t id, const char *dir) {
    struct weft_errmsg why;
    struct weft_eng_lora info;
    if (weft_eng_add_lora(eng, id, dir, &info, &why)) fail_msg("%s", why.text);
}

static void keep_row(void *ctx, uint32_t pos, const float *logits) {
    float(*rows)[VOCAB_MAX] = ctx;
    memcpy(rows[pos], logits, sizeof rows[pos]);
}

static float (*logits_of(weft_eng *eng))[VOCAB_MAX] {
    float(*rows)[VOCAB_MAX] = calloc(N_TOKENS, sizeof *rows);
    struct weft_errmsg why;
    uint32_t tokens[N_TOKENS], n_vocab = weft_eng_info(eng)->n_vocab;
    assert_non_null(rows);
    assert_true(n_vocab <= VOCAB_MAX);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 5) % n_vocab;
    if (weft_eng_logits(eng, tokens, N_TOKENS, keep_row, rows, &why)) fail_msg("%s", why.text);
    return rows;
}

static float largest_difference(float (*a)[VOCAB_MAX], float (*b)[VOCAB_MAX], uint32_t n_vocab) {
    float worst = 0;
    for (uint32_t r = 0; r < N_TOKENS; r++) {
        for (uint32_t i = 0; i < n_vocab; i++) {
            float off = fabsf(a[r][i] - b[r][i]);
            if (isnan(off) || off > worst) worst = off; /* a NaN sticks */
        }
    }
    return worst;
}

/* Logits are kept by rows of the largest vocabulary of all. */
static void check_merged(const char *name, uint32_t rank) {
    static const struct weft_step_adapter whole = {7, 1.0f, 0};
    char model[1024], *adapter = test_dir_new(), *merged = test_dir_new();
    struct weft_errmsg why;
    (void)snprintf(model, sizeof model, "%s", drive_fixture(name));
    lora_write_random(model, adapter, rank, 11);
    lora_write_merged(model, merged, rank, 11);
    weft_eng *eng = open_exact(model), *other = open_exact(merged);
    float(*base)[VOCAB_MAX] = logits_of(eng);
    add(eng, 7, adapter);
    if (weft_eng_use_loras(eng, &whole, 1, &why)) fail_msg("%s", why.text);
    float(*has)[VOCAB_MAX] = logits_of(eng), (*want)[VOCAB_MAX] = logits_of(other);
    uint32_t n_vocab = weft_eng_info(eng)->n_vocab;
    float off = largest_difference(has, want, n_vocab);
    (void)printf("  %s: %.2e, of a change by %.2e\n", name, (double)off,
                 (double)largest_difference(has, base, n_vocab));
    assert_true(off < 1e-3f);
    assert_true(largest_difference(has, base, n_vocab) > 0.1f);
    free(base);
    free(has);
    free(want);
    weft_eng_free(eng);
    weft_eng_free(other);
    test_dir_free(adapter);
    test_dir_free(merged);
}

static void adapters_add_what_merged_weights_have(void **state) {
    (void)state;
    static const char *const names[] = {
        "qwen2",     "gemma2", "gemma3",    "phi3",        "olmo2",       "granite", "mixtral",
        "qwen2_moe", "olmoe",  "qwen3_moe", "deepseek_v2", "deepseek_v3", "smollm3", "qwen3"};
    size_t n = engine_short_run ? 8 : sizeof names / sizeof names[0];
    for (size_t i = 0; i < n; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/zoo/%s", names[i]);
        check_merged(path, 1 + (uint32_t)i * 3);
    }
}

/* A PEFT folder on a GGUF model is the same as the converted adapter on it. */
static void an_adapter_fits_a_model_of_the_other_format(void **state) {
    (void)state;
    static const char *const adapters[] = {"tests/data/lora/fable-r4-qv",
                                           "tests/data/lora/gguf/fable-r4-qv.gguf"};
    float(*rows[2])[VOCAB_MAX];
    for (int i = 0; i < 2; i++) {
        static const struct weft_step_adapter whole = {1, 1.0f, 0};
        struct weft_errmsg why;
        weft_eng *eng = open_exact(drive_fixture(ENGINE_QUANTISED));
        add(eng, 1, drive_fixture(adapters[i]));
        assert_int_equal(weft_eng_use_loras(eng, &whole, 1, &why), WEFT_OK);
        rows[i] = logits_of(eng);
        weft_eng_free(eng);
    }
    assert_true(largest_difference(rows[0], rows[1], VOCAB_MAX) == 0);
    free(rows[0]);
    free(rows[1]);
}

static void tables_and_numbers_are_checked(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct weft_eng_lora info;
    struct weft_errmsg why;
    char path[1024];
    weft_eng_options_init(&options);
    options.kv_memory_bytes = 16u << 20;
    options.max_loras = 1;
    (void)snprintf(path, sizeof path, "%s", drive_fixture("tests/data/lora/qwen3-r6"));
    weft_eng *eng = drive_open(drive_fixture("tests/data/zoo/qwen3"), &options);
    assert_int_equal(weft_eng_add_lora(eng, 1, path, &info, &why), WEFT_OK);
    assert_int_equal(weft_eng_add_lora(eng, 1, "/nowhere", &info, &why), WEFT_OK); /* it is there */
    assert_int_equal(weft_eng_add_lora(eng, 2, path, &info, &why), WEFT_E_FULL);
    assert_non_null(strstr(why.text, "--max-loras"));
    weft_eng_remove_lora(eng, 1);
    weft_eng_remove_lora(eng, 9);
    assert_int_equal(weft_eng_add_lora(eng, 2, path, &info, &why), WEFT_OK);
    static const struct weft_step_adapter gone = {1, 1.0f, 0}, no_number = {2, NAN, 0};
    assert_int_equal(weft_eng_use_loras(eng, &gone, 1, &why), WEFT_E_PROTO);
    assert_int_equal(weft_eng_use_loras(eng, &no_number, 1, &why), WEFT_E_PROTO);
    weft_eng_free(eng);
    options.max_loras = 0;
    eng = drive_open(drive_fixture("tests/data/zoo/qwen3"), &options);
    assert_int_equal(weft_eng_add_lora(eng, 1, path, &info, &why), WEFT_E_FULL);
    assert_int_equal(weft_eng_use_loras(eng, &gone, 1, &why), WEFT_E_PROTO);
    weft_eng_free(eng);
}

/* What one takes is told, and given back with it. */
static void memory_is_bounded(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct weft_eng_lora info;
    struct weft_errmsg why;
    char path[1024];
    weft_eng_options_init(&options);
    options.kv_memory_bytes = 16u << 20;
    (void)snprintf(path, sizeof path, "%s", drive_fixture("tests/data/lora/qwen3-r6"));
    weft_eng *eng = drive_open(drive_fixture("tests/data/zoo/qwen3"), &options);
    assert_int_equal(weft_eng_add_lora(eng, 1, path, &info, &why), WEFT_OK);
    weft_eng_free(eng);
    options.lora_memory_bytes = 2 * info.bytes;
    eng = drive_open(drive_fixture("tests/data/zoo/qwen3"), &options);
    for (uint64_t round = 0; round < 3; round++) {
        assert_int_equal(weft_eng_add_lora(eng, 3 * round, path, &info, &why), WEFT_OK);
        assert_int_equal(weft_eng_add_lora(eng, 3 * round + 1, path, &info, &why), WEFT_OK);
        assert_int_equal(weft_eng_add_lora(eng, 3 * round + 2, path, &info, &why), WEFT_E_FULL);
        assert_non_null(strstr(why.text, "--max-lora-memory"));
        assert_non_null(strstr(why.text, "qwen3-r6 takes"));
        weft_eng_remove_lora(eng, 3 * round);
        weft_eng_remove_lora(eng, 3 * round + 1);
    }
    weft_eng_free(eng);
}

/* It goes with the last sequence that has it. */
static void an_adapter_in_use_stays_until_its_sequence_ends(void **state) {
    (void)state;
    static const uint32_t prompt[] = {3, 4, 5}, blocks[] = {0};
    static const struct weft_step_adapter whole = {1, 1.0f, 0};
    struct weft_eng_options options;
    struct weft_errmsg why;
    const struct weft_step_result *result;
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    weft_eng_options_init(&options);
    options.kv_memory_bytes = 16u << 20;
    weft_eng *eng = drive_open(drive_fixture("tests/data/zoo/qwen3"), &options);
    add(eng, 1, drive_fixture("tests/data/lora/qwen3-r6"));
    drive_init(drive, eng);
    struct weft_step_start start = {.slot = 2,
                                    .gen = 1,
                                    .tokens = prompt,
                                    .n_tokens = 3,
                                    .n_prompt = 3,
                                    .n_adapters = 1,
                                    .adapters = &whole};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 4;
    drive_start(drive, &start);
    drive_grant(drive, 2, 1, blocks, 1);
    drive_row(drive, 2, 1, 3);
    assert_true(drive_run(drive)->outs[0].sampled);
    weft_eng_remove_lora(eng, 1);
    drive_row(drive, 2, 1, 1);
    assert_true(drive_run(drive)->outs[0].sampled);
    /* None may start with it any more. */
    start.slot = 3;
    drive_start(drive, &start);
    struct weft_step_plan plan = drive_plan(drive);
    assert_int_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_E_PROTO);
    drive_clear(drive);
    drive_release(drive, 2, 1);
    (void)drive_run(drive);
    add(eng, 1, drive_fixture("tests/data/lora/qwen3-r6")); /* the number is free again */
    free(drive);
    weft_eng_free(eng);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_lora", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_add_what_merged_weights_have),
        cmocka_unit_test(an_adapter_fits_a_model_of_the_other_format),
        cmocka_unit_test(tables_and_numbers_are_checked),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(an_adapter_in_use_stays_until_its_sequence_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
