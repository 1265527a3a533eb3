/* The readers of adapters: those that are read, those that are refused, and the words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inside/model/lora/lora_internal.h"
#include "model/lora.h"
#include "unit/model_files.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define QWEN3 "tests/data/zoo/qwen3"
#define FABLE "models/fable-6m"

static weft_lora *open_for(const char *model, const char *path, struct weft_errmsg *why) {
    weft_model *base;
    weft_lora *lora;
    if (weft_model_open(test_source_path(model), &base, why)) fail_msg("%s", why->text);
    const struct weft_lora_base what = {
        .params = weft_model_params(base), .format = WEFT_MODEL_HF, .rank_max = WEFT_LORA_RANK_MAX};
    why->text[0] = 0;
    weft_err err = weft_lora_open(path, &what, &lora, why);
    assert_true((err == WEFT_OK) == (lora != NULL));
    assert_true(!err || why->text[0]);
    weft_model_free(base);
    return lora;
}

static weft_lora *must_open(const char *model, const char *path) {
    struct weft_errmsg why;
    weft_lora *lora = open_for(model, test_source_path(path), &why);
    if (!lora) fail_msg("%s", why.text);
    return lora;
}

static void parts_of_a_folder_have_the_shapes_of_the_model_in_its_order(void **state) {
    (void)state;
    size_t n = 0;
    weft_lora *lora = must_open(QWEN3, "tests/data/lora/qwen3-r6");
    const struct weft_lora_part *parts = weft_lora_parts(lora, &n);
    assert_int_equal(n, 2 * 7); /* two of three layers */
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(parts[i].layer, i < 7 ? 0 : 2);
        assert_int_equal(parts[i].role, i % 7);
        assert_int_equal(parts[i].rank, 6);
        assert_true(parts[i].scale == 2.0f);
        assert_int_equal(parts[i].expert, WEFT_LORA_NO_EXPERT);
    }
    weft_lora_free(lora);
}

static void an_expression_names_modules(void **state) {
    (void)state;
    size_t n = 0;
    weft_lora *lora = must_open("tests/data/zoo/mixtral", "tests/data/lora/mixtral-r8-attn");
    const struct weft_lora_part *parts = weft_lora_parts(lora, &n);
    assert_true(n > 0 && n % 4 == 0);
    assert_true(parts[0].scale == 0.5f);
    weft_lora_free(lora);
}

/* The converter turned the rows of q, and the reader turns them back. */
static void a_gguf_file_is_the_same_adapter_as_its_folder(void **state) {
    (void)state;
    size_t n = 0, n_gguf = 0;
    weft_lora *lora = must_open(FABLE, "tests/data/lora/fable-r4-qv");
    weft_lora *gguf = must_open(FABLE, "tests/data/lora/gguf/fable-r4-qv.gguf");
    const struct weft_lora_part *parts = weft_lora_parts(lora, &n);
    const struct weft_lora_part *gguf_parts = weft_lora_parts(gguf, &n_gguf);
    assert_int_equal(n, n_gguf);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        float row[WEFT_LORA_RANK_MAX], gguf_row[WEFT_LORA_RANK_MAX];
        assert_int_equal(parts[i].role, gguf_parts[i].role);
        assert_true(fabsf(parts[i].scale - gguf_parts[i].scale) < 1e-6f);
        for (uint32_t r = 0; r < parts[i].n; r++) {
            weft_lora_b_row(&parts[i], r, row);
            weft_lora_b_row(&gguf_parts[i], r, gguf_row);
            for (uint32_t c = 0; c < parts[i].rank; c++)
                assert_true(fabsf(row[c] - gguf_row[c]) < 1e-6f);
        }
    }
    struct weft_digest a = weft_lora_digest(lora), b = weft_lora_digest(gguf);
    assert_true(a.hi == b.hi && a.lo == b.lo);
    weft_lora_free(lora);
    weft_lora_free(gguf);
}

static void faults_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *folder, *words;
    } bad[] = {
        {"rank", "lora_A.weight' does not have the shape"},
        {"missing_b", "q_proj.lora_B.weight' is missing"},
        {"width", "q_proj.lora_A.weight' does not have the shape"},
        {"transposed", "q_proj.lora_B.weight' does not have the shape"},
        {"module", "the model has no module 'self_attn.z_proj'"},
        {"layer", "layers.40."},
        {"dora", "use_dora is not supported"},
        {"kind", "peft_type is"},
        {"integers", "type 'I32'"},
        {"cut", "adapter_model.safetensors: tensor"},
        {"json", "adapter_config.json: the file is not valid JSON"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct weft_errmsg why;
        char path[128];
        (void)snprintf(path, sizeof path, "tests/data/lora/bad/%s", bad[i].folder);
        assert_null(open_for(QWEN3, test_source_path(path), &why));
        if (!strstr(why.text, bad[i].words)) fail_msg("%s: %s", bad[i].folder, why.text);
    }
}

static void what_is_no_adapter_is_refused(void **state) {
    (void)state;
    struct weft_errmsg why;
    assert_null(open_for(QWEN3, test_source_path(QWEN3), &why));
    assert_non_null(strstr(why.text, "adapter_config.json"));
    assert_null(open_for(QWEN3, test_source_path("README.md"), &why));
    assert_non_null(strstr(why.text, "neither the folder of a PEFT adapter nor a GGUF file"));
    assert_null(open_for(QWEN3, "/nowhere/at/all", &why));
    assert_non_null(strstr(why.text, "/nowhere/at/all"));
    assert_null(open_for(FABLE, test_source_path(TEST_FABLE_Q8_0), &why));
    assert_non_null(strstr(why.text, "it has no general.type"));
    assert_null(open_for(QWEN3, test_source_path("tests/data/lora/fable-r4-qv"), &why));
}

/* Names and shapes are the model's: only its architecture tells. */
static void another_architecture_is_refused(void **state) {
    (void)state;
    weft_model *base;
    weft_lora *lora;
    struct weft_errmsg why;
    const char *path = test_source_path("tests/data/lora/gguf/fable-r4-qv.gguf");
    assert_int_equal(weft_model_open(test_source_path(FABLE), &base, &why), WEFT_OK);
    struct weft_model_params params = *weft_model_params(base);
    const struct weft_lora_base what = {&params, WEFT_MODEL_HF, WEFT_LORA_RANK_MAX, 0};
    (void)snprintf(params.arch, sizeof params.arch, "gemma2");
    assert_int_equal(weft_lora_open(path, &what, &lora, &why), WEFT_E_UNSUPPORTED);
    assert_non_null(strstr(why.text, "general.architecture is 'llama' and not 'gemma2'"));
    params = *weft_model_params(base);
    params.encoder.is_on = 1;
    assert_int_equal(weft_lora_open(path, &what, &lora, &why), WEFT_E_UNSUPPORTED);
    assert_non_null(strstr(why.text, "the model is an encoder"));
    weft_model_free(base);
}

/* An adapter that opens, whose settings are changed. */
struct changeable {
    char *dir, *text;
};

static struct changeable read_changeable(void) {
    struct changeable of = {test_dir_new(), NULL};
    const char *from = test_source_path("tests/data/lora/qwen3-r6");
    struct weft_errmsg why;
    char *tensors = NULL;
    size_t n = 0;
    assert_int_equal(weft_model_read_in(from, "adapter_config.json", 1 << 20, &of.text, &n, &why),
                     WEFT_OK);
    assert_int_equal(
        weft_model_read_in(from, "adapter_model.safetensors", 1 << 20, &tensors, &n, &why),
        WEFT_OK);
    test_dir_write(of.dir, "adapter_model.safetensors", tensors, n);
    free(tensors);
    return of;
}

static void changeable_free(struct changeable *of) {
    test_dir_free(of->dir);
    free(of->text);
}

/* The caller's, to free. */
static char *changed_text(const struct changeable *of, const char *from, const char *to) {
    char *out = NULL;
    const char *at = strstr(of->text, from);
    assert_non_null(at);
    if (asprintf(&out, "%.*s%s%s", (int)(at - of->text), of->text, to, at + strlen(from)) < 0)
        fail();
    return out;
}

static void refuses_changed(const struct changeable *of, const char *from, const char *to,
                            const char *words) {
    struct weft_errmsg why;
    char *changed = changed_text(of, from, to);
    test_dir_write(of->dir, "adapter_config.json", changed, strlen(changed));
    free(changed);
    assert_null(open_for(QWEN3, of->dir, &why));
    if (!strstr(why.text, words)) fail_msg("%.80s: %s", to, why.text);
}

static void settings_out_of_range_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *words;
    } changes[] = {
        {"\"r\": 6", "\"r\": 0", "r is not a whole number"},
        {"\"r\": 6", "\"r\": 257", "r is not a whole number"},
        {"\"r\": 6", "\"r\": 6.5", "r is not a whole number"},
        {"\"lora_alpha\": 12", "\"lora_alpha\": \"x\"", "lora_alpha is not a positive number"},
        {"\"lora_alpha\": 12", "\"lora_alpha\": 1e308", "of at most 1e9"},
        {"\"peft_type\": \"LORA\"", "\"peft_type\": 5", "peft_type is missing, or no text"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": []", "rank_pattern is not an object"},
        {"\"bias\": \"none\"", "\"bias\": \"all\"", "trained biases"},
        {"\"bias\": \"none\"", "\"bias\": true", "trained biases"},
        {"\"use_rslora\": false", "\"use_rslora\": \"true\"",
         "use_rslora is neither true nor false"},
        {"\"fan_in_fan_out\": false", "\"fan_in_fan_out\": true", "fan_in_fan_out"},
        {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", "modules_to_save"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 300}", "out of range"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": {\"(\": 6}", "not a regular expression"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": {\"((.+)+)+q\": 6}", "takes too long"},
        {"\"q_proj\",", "", "is not among target_modules"},
        {"    2\n", "    1\n", "is not among layers_to_transform"},
    };
    struct changeable of = read_changeable();
    for (size_t i = 0; i < COUNT(changes); i++)
        refuses_changed(&of, changes[i].from, changes[i].to, changes[i].words);
    changeable_free(&of);
}

/* By their ends from a dot on, where a dot in the setting is any letter. */
static void plain_names_are_matched_as_expressions_are(void **state) {
    (void)state;
    static const struct {
        const char *to;
        uint32_t rank;
    } cases[] = {
        {"\"rank_pattern\": {\"q_proj\": 7}", 7},
        {"\"rank_pattern\": {\"_proj\": 7, \"roj\": 7, \"xq_proj\": 7, \"\": 7}", 6},
        {"\"rank_pattern\": {\"attn.q_proj\": 7, \"layers.self_attn.q_proj\": 7}", 6},
        {"\"rank_pattern\": {\"self.attn.q.proj\": 7}", 7},
        {"\"rank_pattern\": {\"model.layers.0.self_attn.q_proj\": 7, \"q_proj\": 8}", 7},
        {"\"rank_pattern\": {\".model.layers.0.self_attn.q_proj\": 7, \"[q]_proj\": 8}", 8},
    };
    static const char module[] = "model.layers.0.self_attn.q_proj";
    struct changeable of = read_changeable();
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct wefti_lora_named named = {
            {module, sizeof module - 1}, module, "x", WEFT_MODEL_HF};
        struct wefti_lora_measure measure = {0};
        wefti_lora_config *config = NULL;
        struct weft_errmsg why = {""};
        char *text = changed_text(&of, "\"rank_pattern\": {}", cases[i].to);
        assert_int_equal(wefti_lora_config_parse("x", text, strlen(text), &config, &why), WEFT_OK);
        assert_int_equal(wefti_lora_config_of(config, &named, 0, &measure, &why), WEFT_OK);
        assert_int_equal(measure.rank, cases[i].rank);
        wefti_lora_config_free(config);
        free(text);
    }
    changeable_free(&of);
}

/* Each alone stays within its bound. */
static void matching_is_bounded_for_all_expressions_together(void **state) {
    (void)state;
    static const struct {
        const char *expression, *words;
    } costly[] = {
        {"(.?){12}z", "take too long to match"},
        {"(((a{9}){9}b){9}c){9}x", "expressions up to rank_pattern take over"},
    };
    struct changeable of = read_changeable();
    for (size_t i = 0; i < COUNT(costly); i++) {
        struct weft_buf to;
        weft_buf_init(&to, 1 << 20);
        weft_buf_add_str(&to, "\"rank_pattern\": {");
        for (int n = 0; n < 4000; n++)
            weft_buf_printf(&to, "%s\"%s%d\": 6", n ? ", " : "", costly[i].expression, n);
        weft_buf_add_str(&to, "}");
        refuses_changed(&of, "\"rank_pattern\": {}", weft_buf_cstr(&to), costly[i].words);
        weft_buf_fini(&to);
    }
    changeable_free(&of);
}

static void an_adapter_outlives_its_file(void **state) {
    (void)state;
    struct changeable of = read_changeable();
    struct weft_errmsg why;
    size_t n = 0;
    float row[4096];
    test_dir_write(of.dir, "adapter_config.json", of.text, strlen(of.text));
    weft_lora *lora = open_for(QWEN3, of.dir, &why);
    if (!lora) fail_msg("%s", why.text);
    test_dir_write(of.dir, "adapter_model.safetensors", "", 0);
    const struct weft_lora_part *parts = weft_lora_parts(lora, &n);
    assert_true(parts[n - 1].k <= COUNT(row));
    weft_lora_a_row(&parts[n - 1], 0, row);
    weft_lora_free(lora);
    assert_null(open_for(QWEN3, of.dir, &why));
    assert_non_null(strstr(why.text, "adapter_model.safetensors: the file is empty"));
    changeable_free(&of);
}

/* Sparse, so that only a reader that takes it whole would notice. */
static void a_file_larger_than_any_adapter_is_refused(void **state) {
    (void)state;
    char path[512];
    struct changeable of = read_changeable();
    struct weft_errmsg why;
    test_dir_write(of.dir, "adapter_config.json", of.text, strlen(of.text));
    (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", of.dir);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    assert_null(open_for(QWEN3, of.dir, &why));
    assert_non_null(strstr(why.text, "more than an adapter of rank 256 of this model needs"));
    changeable_free(&of);
}

static void a_file_larger_than_the_room_left_is_not_read(void **state) {
    (void)state;
    char path[512];
    weft_model *base;
    weft_lora *lora;
    struct changeable of = read_changeable();
    struct weft_errmsg why;
    test_dir_write(of.dir, "adapter_config.json", of.text, strlen(of.text));
    assert_int_equal(weft_model_open(test_source_path(QWEN3), &base, &why), WEFT_OK);
    struct weft_lora_base what = {weft_model_params(base), WEFT_MODEL_HF, 6, 1};
    /* Names and settings may have so much: one that is small has to be looked into. */
    assert_int_equal(weft_lora_open(of.dir, &what, &lora, &why), WEFT_OK);
    weft_lora_free(lora);
    (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", of.dir);
    assert_int_equal(truncate(path, (32 << 20) + 5), 0);
    assert_int_equal(weft_lora_open(of.dir, &what, &lora, &why), WEFT_E_FULL);
    assert_non_null(strstr(why.text, "more than --max-lora-memory leaves room for"));
    weft_model_free(base);
    changeable_free(&of);
}

/* All values of a file of F32: its header stays. */
static void fill_with(const struct changeable *of, uint32_t bits) {
    char *tensors = NULL;
    size_t n = 0;
    uint64_t n_header = 0;
    struct weft_errmsg why;
    assert_int_equal(
        weft_model_read_in(of->dir, "adapter_model.safetensors", 1 << 20, &tensors, &n, &why),
        WEFT_OK);
    memcpy(&n_header, tensors, sizeof n_header);
    for (size_t at = sizeof n_header + n_header; at + sizeof bits <= n; at += sizeof bits)
        memcpy(tensors + at, &bits, sizeof bits);
    test_dir_write(of->dir, "adapter_model.safetensors", tensors, n);
    free(tensors);
}

static void values_nobody_can_compute_with_are_refused(void **state) {
    (void)state;
    static const struct {
        uint32_t bits;
        const char *words;
    } values[] = {
        {0x7fc00000, "values that are no finite numbers"}, /* NaN */
        {0x7f800000, "values that are no finite numbers"}, /* infinite */
        {0xff800000, "values that are no finite numbers"},
        {0x7f61b1e6, "values so large"}, /* 3e38 */
        {0x60ad78ec, "values so large"}, /* 1e20 */
    };
    struct changeable of = read_changeable();
    struct weft_errmsg why;
    test_dir_write(of.dir, "adapter_config.json", of.text, strlen(of.text));
    for (size_t i = 0; i < COUNT(values); i++) {
        fill_with(&of, values[i].bits);
        assert_null(open_for(QWEN3, of.dir, &why));
        if (!strstr(why.text, values[i].words)) fail_msg("%x: %s", values[i].bits, why.text);
    }
    fill_with(&of, 0x41200000); /* 10: much, and nothing is wrong with it */
    weft_lora *lora = open_for(QWEN3, of.dir, &why);
    if (!lora) fail_msg("%s", why.text);
    weft_lora_free(lora);
    changeable_free(&of);
}

static void a_rank_over_the_limit_is_refused(void **state) {
    (void)state;
    weft_model *base;
    weft_lora *lora;
    struct weft_errmsg why;
    assert_int_equal(weft_model_open(test_source_path(QWEN3), &base, &why), WEFT_OK);
    const struct weft_lora_base what = {weft_model_params(base), WEFT_MODEL_HF, 5, 0};
    assert_int_equal(
        weft_lora_open(test_source_path("tests/data/lora/qwen3-r6"), &what, &lora, &why),
        WEFT_E_TOOBIG);
    assert_non_null(strstr(why.text, "has rank 6; the server takes at most 5"));
    weft_model_free(base);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_folder_have_the_shapes_of_the_model_in_its_order),
        cmocka_unit_test(an_expression_names_modules),
        cmocka_unit_test(a_gguf_file_is_the_same_adapter_as_its_folder),
        cmocka_unit_test(faults_are_refused_by_name),
        cmocka_unit_test(what_is_no_adapter_is_refused),
        cmocka_unit_test(another_architecture_is_refused),
        cmocka_unit_test(settings_out_of_range_are_refused),
        cmocka_unit_test(plain_names_are_matched_as_expressions_are),
        cmocka_unit_test(matching_is_bounded_for_all_expressions_together),
        cmocka_unit_test(an_adapter_outlives_its_file),
        cmocka_unit_test(a_file_larger_than_any_adapter_is_refused),
        cmocka_unit_test(a_file_larger_than_the_room_left_is_not_read),
        cmocka_unit_test(values_nobody_can_compute_with_are_refused),
        cmocka_unit_test(a_rank_over_the_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
