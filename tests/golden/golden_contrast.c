/* Contrastive search in the exact mode (f32 activations) finds what a plain one finds over a float64 reference of
 * the same weights: tests/golden/make_contrast_goldens.py made tests/data/contrast.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/eng_drive.h"

enum { TOKENS_MAX = 64 };

static uint32_t read_tokens(const json_t *list, uint32_t out[TOKENS_MAX]) {
    uint32_t n = (uint32_t)json_array_size(list);
    assert_in_range(n, 1, TOKENS_MAX);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return n;
}

static void check_case(const char *name, struct drive *drive, const json_t *one) {
    uint32_t prompt[TOKENS_MAX], want[TOKENS_MAX], got[TOKENS_MAX];
    struct weft_sampling sampling;
    uint32_t n_prompt = read_tokens(json_object_get(one, "prompt"), prompt);
    uint32_t n_want = read_tokens(json_object_get(one, "output"), want);
    weft_sampling_init(&sampling);
    sampling.penalty_alpha = (float)json_real_value(json_object_get(one, "penalty_alpha"));
    sampling.top_k = (uint32_t)json_integer_value(json_object_get(one, "top_k"));
    sampling.max_tokens = n_want;
    assert_true(weft_sampling_is_contrastive(&sampling));
    assert_int_equal(drive_complete(drive, prompt, n_prompt, &sampling, got), n_want);
    for (uint32_t i = 0; i < n_want; i++)
        if (got[i] != want[i])
            fail_msg("%s, top_k %u: token %u is %u, not %u", name, sampling.top_k, i, got[i],
                     want[i]);
}

static void tokens_equal_those_over_the_reference(void **state) {
    (void)state;
    json_error_t at;
    json_t *root = json_load_file(drive_fixture("tests/data/contrast.json"), 0, &at);
    const char *name;
    json_t *cases;
    size_t n_cases = 0;
    if (!root) fail_msg("%s", at.text);
    json_object_foreach(root, name, cases) {
        char path[128];
        struct weft_eng_options options;
        weft_eng_options_init(&options);
        options.activations = WEFT_ENG_ACT_F32;
        options.kv_memory_bytes = 4u << 20;
        options.n_threads = 2;
        (void)snprintf(path, sizeof path, "tests/data/zoo/%s", name);
        weft_eng *eng = drive_open(drive_fixture(path), &options);
        struct drive *drive = calloc(1, sizeof *drive);
        assert_non_null(drive);
        drive_init(drive, eng);
        for (size_t i = 0; i < json_array_size(cases); i++) {
            check_case(name, drive, json_array_get(cases, i));
            drive_init(drive, eng);
            drive->epoch += i + 1;
            n_cases++;
        }
        free(drive);
        weft_eng_free(eng);
    }
    (void)printf("%zu models, %zu searches\n", json_object_size(root), n_cases);
    assert_true(n_cases >= 20);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_equal_those_over_the_reference),
    };
    if (drive_isa_missing()) return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
