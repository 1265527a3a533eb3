/* RoPE's frequencies against figures of a short NumPy program, in double, from the same definitions
 * (Hugging Face's); and the keys of configurations for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside/model/gguf/gguf.h"
#include "unit/model_files.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* tiny_config, whose heads are of 16, with the keys of `changes` replaced. */
static void must_parse(const char *changes, struct weft_model_params *params) {
    struct weft_errmsg why;
    print_message("    %s\n", changes);
    if (test_parse_config(changes, params, &why)) fail_msg("%s", why.text);
}

static void rope_of(const char *changes, bool is_long, struct weft_rope *out) {
    weft_model model = {0};
    must_parse(changes, &model.params);
    weft_model_rope(&model, false, is_long, out);
}

static bool is_near(double got, double want) {
    return fabs(got - want) <= 1e-14 * fabs(want);
}

static void yarn_stretches_slow_pairs_and_leaves_fast_ones(void **state) {
    (void)state;
    static const struct {
        const char *changes;
        double magnitude;
        double inv_freq[12];
    } cases[] = {
        {"{\"max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
         "\"original_max_position_embeddings\":1024}}",
         1.138629436111989,
         {1.0, 0.31622776601683794, 0.08125000000000002, 0.019764235376052368, 0.004375,
          0.0007905694150420947, 0.00025, 7.905694150420948e-05}},
        {"{\"max_position_embeddings\":163840,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
         "\"beta_fast\":32,\"beta_slow\":1,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
         "\"original_max_position_embeddings\":4096}}",
         1,
         {1.0, 0.31622776601683794, 0.1, 0.023914724805023366, 0.005125, 0.0008498621211702518,
          2.5e-05, 7.905694150420949e-06}},
        /* Hardly any pair turns often enough to stay as it is. */
        {"{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8.0,"
         "\"original_max_position_embeddings\":64}}",
         1.2079441541679836,
         {1.0, 0.22399466759526024, 0.04166666666666667, 0.003952847075210474, 0.00125,
          0.00039528470752104737, 0.000125, 3.952847075210474e-05}},
        {"{\"head_dim\":24,\"rope_theta\":null,\"rope_parameters\":{\"rope_type\":\"yarn\","
         "\"rope_theta\":500000.0,\"factor\":2.5,\"beta_fast\":16,\"beta_slow\":2,"
         "\"original_max_position_embeddings\":8192,\"attention_factor\":0.75}}",
         0.75,
         {1.0, 0.3350316475065263, 0.11224620483093732, 0.03760603093086393, 0.012599210498948734,
          0.002954793975521021, 0.000565685424949238, 0.00018952251989117259, 6.349604207872801e-05,
          2.1273183587779955e-05, 7.12718974512271e-06, 2.3878341224000835e-06}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_rope rope;
        rope_of(cases[i].changes, i % 2, &rope);
        assert_true(is_near(rope.magnitude, cases[i].magnitude));
        for (size_t k = 0; k < (i == 3 ? 12 : 8); k++)
            assert_true(is_near(rope.inv_freq[k], cases[i].inv_freq[k]));
    }
}

static void yarn_has_the_defaults_of_transformers(void **state) {
    (void)state;
    static const struct {
        const char *changes;
        double factor, magnitude, mscale;
        uint32_t original, n_context;
    } cases[] = {
        /* The original context decides on the context's length, whatever else the file says. */
        {"{\"max_position_embeddings\":1024,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}", 4,
         1.138629436111989, 1, 1024, 4096},
        {"{\"max_position_embeddings\":2048,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
         "\"original_max_position_embeddings\":1024}}",
         4, 1.138629436111989, 1, 1024, 4096},
        {"{\"max_position_embeddings\":8192,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
         "\"original_max_position_embeddings\":1024}}",
         4, 1.138629436111989, 1, 1024, 8192},
        {"{\"max_position_embeddings\":4096,\"original_max_position_embeddings\":1024,"
         "\"rope_scaling\":{\"type\":\"yarn\"}}",
         4, 1.138629436111989, 1, 1024, 4096},
        /* Both mscales or none count on cos and sin; the second alone on latent attention. */
        {"{\"max_position_embeddings\":1024,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
         "\"mscale_all_dim\":0.707}}",
         40, 1.3688879454113936, 1.2608037774058554, 1024, 40960},
        {"{\"max_position_embeddings\":1024,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
         "\"mscale\":1,\"mscale_all_dim\":0.707}}",
         40, 1.3688879454113936 / 1.2608037774058554, 1.2608037774058554, 1024, 40960},
        {"{\"max_position_embeddings\":1024,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":1}}", 1,
         1, 1, 1024, 1024},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params p;
        must_parse(cases[i].changes, &p);
        assert_int_equal(p.rope_scaling, WEFT_ROPE_YARN);
        assert_true(p.rope_factor == cases[i].factor);
        assert_true(is_near(p.rope_magnitude, cases[i].magnitude));
        assert_true(is_near(p.yarn_mscale, cases[i].mscale));
        assert_int_equal(p.rope_original_context, cases[i].original);
        assert_int_equal(p.n_context, cases[i].n_context);
    }
}

#define LISTS "\"short_factor\":[1,1.5,2,2.5,3,3.5,4,4.5],\"long_factor\":[1,2,4,8,16,32,64,128]"

static void longrope_has_frequencies_for_short_and_for_long_prompts(void **state) {
    (void)state;
    static const char *const spellings[] = {
        "{\"max_position_embeddings\":512,\"original_max_position_embeddings\":64,"
        "\"rope_scaling\":{\"type\":\"longrope\"," LISTS "}}",
        "{\"max_position_embeddings\":512,\"original_max_position_embeddings\":64,"
        "\"rope_scaling\":{\"type\":\"su\"," LISTS "}}",
        "{\"max_position_embeddings\":512,\"rope_parameters\":{\"rope_type\":\"longrope\","
        "\"original_max_position_embeddings\":64," LISTS "}}",
        "{\"max_position_embeddings\":1024,\"rope_parameters\":{\"rope_type\":\"longrope\","
        "\"original_max_position_embeddings\":64,\"factor\":8," LISTS "}}",
        "{\"max_position_embeddings\":1024,\"rope_parameters\":{\"rope_type\":\"longrope\","
        "\"original_max_position_embeddings\":64,\"attention_factor\":1.224744871391589," LISTS
        "}}",
    };
    for (size_t i = 0; i < COUNT(spellings); i++) {
        struct weft_rope shorter, longer;
        rope_of(spellings[i], false, &shorter);
        rope_of(spellings[i], true, &longer);
        assert_true(is_near(shorter.magnitude, 1.224744871391589));
        assert_true(longer.magnitude == shorter.magnitude);
        for (int k = 0; k < 8; k++) {
            double plain = pow(10000, -k / 8.0);
            assert_true(is_near(shorter.inv_freq[k], plain / (1 + k / 2.0)));
            assert_true(is_near(longer.inv_freq[k], plain / (1 << k)));
        }
    }
}

static void a_long_prompt_is_one_over_the_original_context(void **state) {
    (void)state;
    weft_model model = {0};
    must_parse("{\"max_position_embeddings\":512,\"original_max_position_embeddings\":64,"
               "\"rope_scaling\":{\"type\":\"longrope\"," LISTS "}}",
               &model.params);
    assert_int_equal(weft_model_long_prompt(&model), 64);
    must_parse("{\"max_position_embeddings\":512,\"rope_scaling\":{\"type\":\"yarn\","
               "\"original_max_position_embeddings\":64,\"factor\":4}}",
               &model.params);
    assert_int_equal(weft_model_long_prompt(&model), UINT32_MAX);
}

static void a_dynamic_scaling_changes_nothing_within_the_context(void **state) {
    (void)state;
    struct weft_rope plain, dynamic;
    struct weft_model_params p;
    rope_of("{}", false, &plain);
    rope_of("{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}}", false, &dynamic);
    assert_memory_equal(&plain, &dynamic, sizeof plain);
    must_parse("{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}}", &p);
    assert_int_equal(p.rope_scaling, WEFT_ROPE_DYNAMIC);
    assert_int_equal(p.n_context, 128);
}

/* Llama 4 Scout: pairs that turn once in the original context or more stay, and all others are stretched. */
static void a_llama3_scaling_may_blend_none(void **state) {
    (void)state;
    struct weft_rope plain, scaled;
    rope_of("{}", false, &plain);
    rope_of("{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":16,\"low_freq_factor\":1,"
            "\"high_freq_factor\":1,\"original_max_position_embeddings\":64}}",
            false, &scaled);
    for (int k = 0; k < 8; k++) {
        const bool stays = 64 * plain.inv_freq[k] >= 2 * M_PI;
        assert_true(scaled.inv_freq[k] == plain.inv_freq[k] / (stays ? 1 : 16));
    }
    assert_true(scaled.inv_freq[0] == plain.inv_freq[0] && scaled.inv_freq[7] < plain.inv_freq[7]);
}

/* Llama 4 Scout again; what no model has is an error. */
static void a_longer_context_than_any_sequence_is_cut(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    must_parse("{\"max_position_embeddings\":10485760}", &p);
    assert_int_equal(p.n_context, WEFT_CONTEXT_MAX);
    assert_int_equal(test_parse_config("{\"max_position_embeddings\":16777217}", &p, &why),
                     WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "context length is 16777217"));
}

static void pairs_are_of_the_elements_that_turn(void **state) {
    (void)state;
    struct weft_rope rope;
    rope_of("{\"partial_rotary_factor\":0.5}", false, &rope);
    for (int k = 0; k < 4; k++)
        assert_true(is_near(rope.inv_freq[k], pow(10, -k)));
    assert_true(rope.inv_freq[4] == 0);
}

static void scalings_that_make_no_sense_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *rope, *said;
    } cases[] = {
        {"\"type\":\"yarn\",\"factor\":0", "scaling factor is 0"},
        {"\"type\":\"yarn\",\"factor\":1e300", "factor"},
        {"\"type\":\"yarn\",\"factor\":\"4\"", "factor"},
        {"\"type\":\"yarn\",\"factor\":4,\"beta_fast\":1,\"beta_slow\":2",
         "beta_slow <= beta_fast"},
        {"\"type\":\"yarn\",\"factor\":4,\"beta_slow\":0", "beta_slow"},
        {"\"type\":\"yarn\",\"factor\":4,\"truncate\":0", "truncate"},
        {"\"type\":\"yarn\",\"factor\":4,\"attention_factor\":0", "on attention are 0"},
        {"\"type\":\"yarn\",\"factor\":4,\"mscale_all_dim\":-100,\"mscale\":1", "on attention"},
        {"\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":0",
         "original context length"},
        {"\"type\":\"yarn\",\"original_max_position_embeddings\":0", "factor is inf"},
        {"\"type\":\"yarn\",\"factor\":4,\"rope_theta\":1", "base over 1"},
        {"\"type\":\"dynamic\"", "\"rope_scaling\" has no \"factor\""},
        {"\"type\":\"linear\"", "has no \"factor\""},
        {"\"type\":\"yarn\",\"beta_fast\":32", "has no \"factor\""},
        {"\"type\":\"longrope\"", "short_factor"},
        {"\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1]", "long_factor"},
        {"\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1]", "has 7 numbers, 8"},
        {"\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1,1]", "has 9 numbers, 8"},
        {"\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,\"1\"]", "list of numbers"},
        {"\"type\":\"longrope\",\"short_factor\":1", "not a list"},
        {"\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,0],\"long_factor\":[1,1,1,1,1,1,"
         "1,1]",
         "short factor 7"},
        {"\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[1,1,-1,1,1,1,"
         "1,1]",
         "long factor 2"},
        {"\"type\":\"longrope\",\"original_max_position_embeddings\":1," LISTS, "on attention"},
        {"\"type\":\"longrope\",\"original_max_position_embeddings\":0," LISTS,
         "original context length"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params params;
        struct weft_errmsg why;
        char changes[400];
        (void)snprintf(changes, sizeof changes, "{\"rope_scaling\":{%s}}", cases[i].rope);
        weft_err err = test_parse_config(changes, &params, &why);
        print_message("    %s\n", why.text);
        assert_int_equal(err, WEFT_E_PROTO);
        assert_non_null(strstr(why.text, cases[i].said));
    }
}

/* ------------------------------------------------------------------------------- GGUF files --- */

struct loaded {
    struct weft_model_params params;
    struct weft_rope shorter, longer;
};

static weft_err load(struct gguf_builder *b, struct loaded *out, struct weft_errmsg *why) {
    struct weft_buf bytes;
    struct wefti_model_file file;
    weft_model *model;
    gguf_tiny_tensors(b, 0);
    gguf_finish(b, &bytes);
    why->text[0] = 0;
    assert_int_equal(wefti_model_file_borrow("tiny.gguf", bytes.data, bytes.len, &file, why),
                     WEFT_OK);
    weft_err err = wefti_model_from_gguf(&file, &model, why);
    if (!err) {
        out->params = *weft_model_params(model);
        weft_model_rope(model, false, false, &out->shorter);
        weft_model_rope(model, false, true, &out->longer);
    }
    weft_model_free(model);
    weft_buf_fini(&bytes);
    gguf_fini(b);
    return err;
}

static void begin(struct gguf_builder *b) {
    gguf_init(b);
    gguf_tiny_config(b);
}

/* As llama.cpp's converter writes Llama 4 Scout's. */
static void a_longer_context_of_a_gguf_file_is_cut(void **state) {
    (void)state;
    static const char key[] = "llama.context_length";
    const uint32_t said = 10485760;
    struct gguf_builder b;
    struct weft_buf bytes;
    struct weft_errmsg why;
    struct wefti_model_file file;
    weft_model *model;
    begin(&b);
    gguf_tiny_tensors(&b, 0);
    gguf_finish(&b, &bytes);
    uint8_t *at = memmem(bytes.data, bytes.len, key, strlen(key));
    assert_non_null(at);
    memcpy(at + strlen(key) + sizeof(uint32_t), &said, sizeof said); /* after its type */
    assert_int_equal(wefti_model_file_borrow("tiny.gguf", bytes.data, bytes.len, &file, &why),
                     WEFT_OK);
    if (wefti_model_from_gguf(&file, &model, &why)) fail_msg("%s", why.text);
    assert_int_equal(weft_model_params(model)->n_context, WEFT_CONTEXT_MAX);
    weft_model_free(model);
    weft_buf_fini(&bytes);
    gguf_fini(&b);
}

static void yarn_of_gguf_files_is_the_same(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_errmsg why;
    struct loaded got = {0};
    struct weft_rope want;
    rope_of("{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":16,\"beta_slow\":2,"
            "\"original_max_position_embeddings\":64}}",
            false, &want);
    begin(&b);
    gguf_str(&b, "llama.rope.scaling.type", "yarn");
    gguf_f32(&b, "llama.rope.scaling.factor", 4);
    gguf_f32(&b, "llama.rope.scaling.yarn_beta_fast", 16);
    gguf_f32(&b, "llama.rope.scaling.yarn_beta_slow", 2);
    gguf_u32(&b, "llama.rope.scaling.original_context_length", 64);
    if (load(&b, &got, &why)) fail_msg("%s", why.text);
    assert_memory_equal(&got.shorter, &want, sizeof want);
    assert_true(got.params.yarn_mscale == 1);
    assert_int_equal(got.params.n_context, 256);
}

/* As in DeepSeek's files: 0.1 * mscale_all_dim, and nothing on cos and sin. */
static void yarns_logarithm_of_gguf_files_is_for_latent_attention(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_errmsg why;
    struct loaded got = {0};
    begin(&b);
    gguf_str(&b, "llama.rope.scaling.type", "yarn");
    gguf_f32(&b, "llama.rope.scaling.factor", 40);
    gguf_f32(&b, "llama.rope.scaling.yarn_log_multiplier", 0.0707f);
    if (load(&b, &got, &why)) fail_msg("%s", why.text);
    assert_true(fabs(got.params.yarn_mscale - 1.2608037774058554) < 1e-7);
    assert_true(got.shorter.magnitude == 1);

    begin(&b);
    gguf_str(&b, "llama.rope.scaling.type", "yarn");
    gguf_f32(&b, "llama.rope.scaling.factor", 4);
    gguf_f32(&b, "llama.rope.scaling.yarn_attn_factor", 0.75);
    if (load(&b, &got, &why)) fail_msg("%s", why.text);
    assert_true(got.shorter.magnitude == 0.75);

    begin(&b);
    gguf_str(&b, "llama.rope.scaling.type", "yarn");
    gguf_f32(&b, "llama.rope.scaling.factor", 4);
    gguf_f32(&b, "llama.rope.scaling.yarn_ext_factor", 0.5);
    assert_int_equal(load(&b, &got, &why), WEFT_E_UNSUPPORTED);
    assert_non_null(strstr(why.text, "yarn_ext_factor is 0.5"));
}

static void add_table(struct gguf_builder *b, const char *name, const float values[8]) {
    static const uint64_t dims[] = {8};
    size_t at = b->data.len;
    gguf_tensor(b, name, 0, 1, dims, 8 * sizeof *values);
    memcpy(b->data.data + at, values, 8 * sizeof *values);
}

static void longrope_of_gguf_files_is_in_two_tensors(void **state) {
    (void)state;
    static const float longer[] = {1, 2, 4, 8, 16, 32, 64, 128};
    static const float shorter[] = {1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5};
    for (int says_so = 0; says_so < 2; says_so++) {
        struct gguf_builder b;
        struct weft_errmsg why;
        struct loaded got = {0};
        struct weft_rope want;
        begin(&b);
        if (says_so) gguf_str(&b, "llama.rope.scaling.type", "longrope");
        gguf_f32(&b, "llama.rope.scaling.attn_factor", 1.25);
        gguf_u32(&b, "llama.rope.scaling.original_context_length", 64);
        add_table(&b, "rope_factors_long.weight", longer);
        add_table(&b, "rope_factors_short.weight", shorter);
        if (load(&b, &got, &why)) fail_msg("%s", why.text);
        assert_int_equal(got.params.rope_original_context, 64);
        for (int is_long = 0; is_long < 2; is_long++) {
            rope_of("{\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":"
                    "\"longrope\",\"attention_factor\":1.25," LISTS "}}",
                    is_long, &want);
            assert_memory_equal(is_long ? &got.longer : &got.shorter, &want, sizeof want);
        }
    }
}

static void half_a_longrope_is_refused(void **state) {
    (void)state;
    static const float good[] = {1, 1, 1, 1, 1, 1, 1, 1}, bad[] = {1, 1, 1, 0, 1, 1, 1, 1};
    static const float large[] = {1, 1, 1, 1e7f, 1, 1, 1, 1};
    static const struct {
        const char *type;
        const float *longer, *shorter;
        weft_err err;
        const char *said;
    } cases[] = {
        {NULL, good, NULL, WEFT_E_PROTO, "rope_factors_short.weight' is missing"},
        {NULL, NULL, good, WEFT_E_PROTO, "rope_factors_long.weight' is missing"},
        {"longrope", NULL, NULL, WEFT_E_PROTO, "rope_factors_long.weight' is missing"},
        {NULL, good, bad, WEFT_E_PROTO, "must be positive"},
        {NULL, large, good, WEFT_E_PROTO, "long factor 3"},
        {"yarn", good, good, WEFT_E_UNSUPPORTED, "another scaling"},
        {"none", good, good, WEFT_OK, ""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct gguf_builder b;
        struct weft_errmsg why;
        struct loaded got = {0};
        begin(&b);
        if (cases[i].type) gguf_str(&b, "llama.rope.scaling.type", cases[i].type);
        if (cases[i].longer) add_table(&b, "rope_factors_long.weight", cases[i].longer);
        if (cases[i].shorter) add_table(&b, "rope_factors_short.weight", cases[i].shorter);
        weft_err err = load(&b, &got, &why);
        print_message("    %s\n", why.text);
        assert_int_equal(err, cases[i].err);
        assert_non_null(strstr(why.text, cases[i].said));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yarn_stretches_slow_pairs_and_leaves_fast_ones),
        cmocka_unit_test(yarn_has_the_defaults_of_transformers),
        cmocka_unit_test(longrope_has_frequencies_for_short_and_for_long_prompts),
        cmocka_unit_test(a_long_prompt_is_one_over_the_original_context),
        cmocka_unit_test(a_dynamic_scaling_changes_nothing_within_the_context),
        cmocka_unit_test(a_llama3_scaling_may_blend_none),
        cmocka_unit_test(a_longer_context_than_any_sequence_is_cut),
        cmocka_unit_test(pairs_are_of_the_elements_that_turn),
        cmocka_unit_test(scalings_that_make_no_sense_are_refused),
        cmocka_unit_test(a_longer_context_of_a_gguf_file_is_cut),
        cmocka_unit_test(yarn_of_gguf_files_is_the_same),
        cmocka_unit_test(yarns_logarithm_of_gguf_files_is_for_latent_attention),
        cmocka_unit_test(longrope_of_gguf_files_is_in_two_tensors),
        cmocka_unit_test(half_a_longrope_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
