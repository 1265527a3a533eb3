/* Calibration, and types by layer: their effects, their limits, and their refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine_fixtures.h"
#include "harness/eng_drive.h"

enum { TOKENS = 48 };

static struct weft_eng_options quantised(enum weft_eng_dtype dtype) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.kv_memory_bytes = 4u << 20;
    options.n_threads = 2;
    options.dtype = dtype;
    return options;
}

static void ignore_row(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx;
    (void)pos;
    (void)logits;
}

/* `stride`: which tokens the text is made of. */
static weft_eng_calib *calibrate(const char *model, uint32_t n_threads, uint32_t stride) {
    struct weft_eng_options options = quantised(WEFT_ENG_DT_AUTO);
    struct weft_errmsg why = {{0}};
    weft_eng_calib *calib = NULL;
    uint32_t tokens[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = 5 + i * stride;
    }
    options.activations = WEFT_ENG_ACT_F32;
    options.n_threads = n_threads;
    weft_eng *eng = drive_open(drive_fixture(model), &options);
    assert_int_equal(weft_eng_calibrate(eng, &calib, &why), WEFT_OK);
    assert_int_equal(weft_eng_logits(eng, tokens, TOKENS, ignore_row, NULL, &why), WEFT_OK);
    assert_int_equal(weft_eng_logits(eng, tokens, 3, ignore_row, NULL, &why), WEFT_OK);
    weft_eng_free(eng);
    return calib;
}

struct outcome {
    char fingerprint[32];
    float row[4096];
};

static void keep_row(void *ctx, uint32_t pos, const float *logits) {
    struct outcome *outcome = ctx;
    if (pos == TOKENS - 1) memcpy(outcome->row, logits, sizeof outcome->row);
}

static void outcome_of(const char *path, const struct weft_eng_options *options,
                       struct outcome *out) {
    uint32_t tokens[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = 9 + i * 11;
    }
    weft_eng *eng = drive_open(path, options);
    memset(out, 0, sizeof *out);
    assert_int_equal(weft_eng_info(eng)->n_vocab, 4096);
    assert_int_equal(weft_eng_logits(eng, tokens, TOKENS, keep_row, out, NULL), WEFT_OK);
    memcpy(out->fingerprint, weft_eng_info(eng)->fingerprint, sizeof out->fingerprint);
    weft_eng_free(eng);
}

static void a_calibration_changes_bits_and_fingerprint_the_same_way_each_time(void **state) {
    (void)state;
    const char *model = drive_fixture(ENGINE_DRAFT);
    weft_eng_calib *one = calibrate(ENGINE_DRAFT, 1, 7), *two = calibrate(ENGINE_DRAFT, 2, 7);
    static struct outcome plain, first, second;
    for (int dtype = WEFT_ENG_DT_Q8; dtype <= WEFT_ENG_DT_Q4; dtype++) {
        struct weft_eng_options options = quantised((enum weft_eng_dtype)dtype);
        outcome_of(model, &options, &plain);
        options.calib = one;
        outcome_of(model, &options, &first);
        options.calib = two;
        options.n_threads = 1;
        outcome_of(model, &options, &second);
        assert_memory_equal(&first, &second, sizeof first);
        assert_string_not_equal(first.fingerprint, plain.fingerprint);
        assert_memory_not_equal(first.row, plain.row, sizeof plain.row);
        options.clip = WEFT_ENG_CLIP_MINMAX; /* the same as without a calibration */
        outcome_of(model, &options, &second);
        assert_memory_equal(&plain, &second, sizeof plain);
    }
    weft_eng_calib_free(one);
    weft_eng_calib_free(two);
}

static void every_clip_runs_and_has_its_own_fingerprint(void **state) {
    (void)state;
    weft_eng_calib *calib = calibrate(ENGINE_DRAFT, 2, 7);
    static struct outcome outcomes[4];
    struct weft_eng_options options = quantised(WEFT_ENG_DT_Q8);
    options.calib = calib;
    for (uint32_t clip = 0; clip < 4; clip++) {
        options.clip = (enum weft_eng_clip)clip;
        outcome_of(drive_fixture(ENGINE_DRAFT), &options, &outcomes[clip]);
        for (uint32_t other = 0; other < clip; other++) {
            assert_string_not_equal(outcomes[clip].fingerprint, outcomes[other].fingerprint);
        }
    }
    weft_eng_calib_free(calib);
}

static void types_by_layer_take_the_place_of_the_one(void **state) {
    (void)state;
    const char *model = drive_fixture(ENGINE_DRAFT);
    enum weft_eng_dtype dtypes[2] = {WEFT_ENG_DT_Q4, WEFT_ENG_DT_Q4};
    static struct outcome q4, same, mixed, other;
    struct weft_eng_options options = quantised(WEFT_ENG_DT_Q4);
    outcome_of(model, &options, &q4);
    options.layer_dtypes = dtypes;
    options.n_layer_dtypes = 2;
    outcome_of(model, &options, &same);
    assert_memory_equal(&q4, &same, sizeof q4);
    dtypes[1] = WEFT_ENG_DT_Q8;
    outcome_of(model, &options, &mixed);
    dtypes[0] = WEFT_ENG_DT_Q8;
    dtypes[1] = WEFT_ENG_DT_Q4;
    outcome_of(model, &options, &other);
    assert_string_not_equal(mixed.fingerprint, q4.fingerprint);
    assert_string_not_equal(mixed.fingerprint, other.fingerprint);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    enum weft_eng_dtype dtypes[3] = {WEFT_ENG_DT_Q4, WEFT_ENG_DT_Q4, WEFT_ENG_DT_Q4};
    struct weft_eng_options options = quantised(WEFT_ENG_DT_Q4);
    struct weft_errmsg why = {{0}};
    weft_eng *eng = drive_open(drive_fixture(ENGINE_DRAFT), &options);
    weft_eng_calib *calib = NULL;
    assert_int_equal(weft_eng_calibrate(eng, &calib, &why), WEFT_E_INVAL);
    assert_null(calib);
    weft_eng_free(eng);
    options.layer_dtypes = dtypes;
    options.n_layer_dtypes = 3;
    assert_int_equal(weft_eng_open(drive_fixture(ENGINE_DRAFT), &options, &eng, &why),
                     WEFT_E_INVAL);
    options.layer_dtypes = NULL;
    options.n_layer_dtypes = 0;
    options.calib = calib = calibrate(ENGINE_TIED, 2, 3);
    assert_int_equal(weft_eng_open(drive_fixture(ENGINE_DRAFT), &options, &eng, &why),
                     WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "another model"));
    weft_eng_calib_free(calib);
}

static void fingerprint_of(const char *model, const struct weft_eng_options *options,
                           char out[32]) {
    weft_eng *eng = drive_open(drive_fixture(model), options);
    (void)snprintf(out, 32, "%s", weft_eng_info(eng)->fingerprint);
    weft_eng_free(eng);
}

/* Experts, shared ones, and latent attention with and without a rank of its queries. */
static void every_kind_of_layer_is_calibrated_the_same_way_each_time(void **state) {
    (void)state;
    static const char *const models[] = {"tests/data/zoo/olmoe", "tests/data/zoo/qwen2_moe",
                                         "tests/data/zoo/deepseek_v2",
                                         "tests/data/zoo/deepseek_v3"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        weft_eng_calib *one = calibrate(models[i], 1, 3), *two = calibrate(models[i], 2, 3);
        weft_eng_calib *other = calibrate(models[i], 2, 5);
        struct weft_eng_options options = quantised(WEFT_ENG_DT_Q8);
        char plain[32], first[32], second[32], third[32];
        fingerprint_of(models[i], &options, plain);
        options.calib = one;
        fingerprint_of(models[i], &options, first);
        options.calib = two;
        fingerprint_of(models[i], &options, second);
        options.calib = other;
        fingerprint_of(models[i], &options, third);
        assert_string_equal(first, second);
        assert_string_not_equal(first, plain);
        assert_string_not_equal(first, third);
        weft_eng_calib_free(one);
        weft_eng_calib_free(two);
        weft_eng_calib_free(other);
    }
}

static void weight_memory_is_inherited_with_the_same_calibration_alone(void **state) {
    (void)state;
    const char *model = drive_fixture(ENGINE_DRAFT);
    weft_eng_calib *calib = calibrate(ENGINE_DRAFT, 2, 7), *other = calibrate(ENGINE_DRAFT, 2, 13);
    struct weft_eng_options options = quantised(WEFT_ENG_DT_Q4);
    static struct outcome first, second;
    struct weft_errmsg why = {{0}};
    weft_eng *eng = NULL;
    int fd = memfd_create("test-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    options.weights_fd = fd;
    options.calib = calib;
    outcome_of(model, &options, &first);
    outcome_of(model, &options, &second);
    assert_memory_equal(&first, &second, sizeof first);
    options.calib = other;
    assert_int_equal(weft_eng_open(model, &options, &eng, &why), WEFT_E_STATE);
    options.calib = NULL;
    assert_int_equal(weft_eng_open(model, &options, &eng, &why), WEFT_E_STATE);
    (void)close(fd);
    weft_eng_calib_free(calib);
    weft_eng_calib_free(other);
}

static void a_packed_file_has_the_calibration_and_the_types_in_it(void **state) {
    (void)state;
    const char *model = drive_fixture(ENGINE_DRAFT);
    enum weft_eng_dtype dtypes[2] = {WEFT_ENG_DT_Q4, WEFT_ENG_DT_Q8};
    weft_eng_calib *calib = calibrate(ENGINE_DRAFT, 2, 7);
    static struct outcome source, packed;
    struct weft_eng_packed info;
    struct weft_errmsg why = {{0}};
    char path[] = "/tmp/weft-calibrated-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct weft_eng_options options = quantised(WEFT_ENG_DT_Q4);
    options.scheme = WEFT_ENG_SCHEME_GROUP;
    options.calib = calib;
    options.layer_dtypes = dtypes;
    options.n_layer_dtypes = 2;
    outcome_of(model, &options, &source);
    assert_int_equal(weft_eng_pack(model, &options, path, true, &info, &why), WEFT_OK);
    options = quantised(WEFT_ENG_DT_AUTO);
    outcome_of(path, &options, &packed);
    assert_memory_equal(&source, &packed, sizeof source);
    (void)close(fd);
    (void)unlink(path);
    weft_eng_calib_free(calib);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_calibrate", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_calibration_changes_bits_and_fingerprint_the_same_way_each_time),
        cmocka_unit_test(every_clip_runs_and_has_its_own_fingerprint),
        cmocka_unit_test(types_by_layer_take_the_place_of_the_one),
        cmocka_unit_test(every_kind_of_layer_is_calibrated_the_same_way_each_time),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(weight_memory_is_inherited_with_the_same_calibration_alone),
        cmocka_unit_test(a_packed_file_has_the_calibration_and_the_types_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
