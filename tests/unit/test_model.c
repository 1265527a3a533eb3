/* The description of a model, on the fixtures of tests/data and on configurations made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "inside/model/hf/hf.h"
#include "inside/model/params.h"
#include "unit/model_files.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static weft_model *must_open(const char *relative) {
    struct weft_errmsg why = {{0}};
    weft_model *model;
    weft_err err = weft_model_open(test_source_path(relative), &model, &why);
    if (err) fail_msg("%s: %s", relative, why.text);
    return model;
}

/* Hyper-parameters but for the name and the order of rotation. */
static void assert_same_params(const struct weft_model_params *a,
                               const struct weft_model_params *b) {
    assert_string_equal(a->arch, b->arch);
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->n_heads, b->n_heads);
    assert_int_equal(a->n_kv_heads, b->n_kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->n_hidden, b->n_hidden);
    assert_int_equal(a->n_ffn, b->n_ffn);
    assert_int_equal(a->n_vocab, b->n_vocab);
    assert_int_equal(a->n_context, b->n_context);
    assert_true(a->rms_eps == b->rms_eps);
    assert_true(a->rope_theta == b->rope_theta);
    assert_true(a->tied == b->tied);
}

/* clang-format off */
static const struct {
    const char *path;
    struct weft_model_params params;
} fixtures[] = {
    {"models/fable-6m",
     {"llama", "fable-6m", 6, 8, 4, 32, 256, 768, 4096, 1024, 0, 1e-5f, 10000, WEFT_ROPE_NONE, 1, 0, 0, 0, .rope_interleaved = false, .tied = false}},
    {TEST_FABLE_Q8_0,
     {"llama", "fable-6m", 6, 8, 4, 32, 256, 768, 4096, 1024, 0, 1e-5f, 10000, WEFT_ROPE_NONE, 1, 0, 0, 0, .rope_interleaved = true, .tied = false}},
    {"tests/data/fable-draft-1m/config.json",
     {"llama", "fable-draft-1m", 2, 4, 2, 32, 128, 384, 4096, 1024, 0, 1e-5f, 10000, WEFT_ROPE_NONE, 1, 0, 0, 0, .rope_interleaved = false, .tied = false}},
    {"tests/data/zoo/llama_gqa_llama3rope/",
     {"llama", "llama_gqa_llama3rope", 3, 4, 2, 16, 64, 120, 512, 1024, 0, 1e-5f, 10000, WEFT_ROPE_LLAMA3, 8, 1, 4, 64, .rope_interleaved = false, .tied = true}},
    {"tests/data/zoo/gguf/llama_gqa_llama3rope.gguf",
     {"llama", "tiny", 3, 4, 2, 16, 64, 120, 512, 1024, 0, 1e-5f, 10000, WEFT_ROPE_NONE, 1, 0, 0, 0, .rope_interleaved = true, .tied = true}},
    {"tests/data/zoo/mistral_swa16",
     {"llama", "mistral_swa16", 3, 4, 2, 16, 64, 120, 512, 1024, 16, 1e-5f, 10000, WEFT_ROPE_NONE, 1, 0, 0, 0, .rope_interleaved = false, .tied = false}},
    {"tests/data/zoo/llama_mha_linear",
     {"llama", "llama_mha_linear", 3, 4, 4, 16, 64, 112, 512, 1024, 0, 1e-3f, 10000, WEFT_ROPE_LINEAR, 4, 0, 0, 0, .rope_interleaved = false, .tied = false}},
    {"tests/data/zoo/llama_quant/F16.gguf",
     {"llama", "tiny", 2, 8, 1, 32, 256, 256, 512, 1024, 0, 1e-5f, 500000, WEFT_ROPE_NONE, 1, 0, 0, 0, .rope_interleaved = true, .tied = true}},
    {"tests/data/zoo/llama_quant/BF16.gguf",
     {"llama", "tiny", 2, 8, 1, 32, 256, 256, 512, 1024, 0, 1e-5f, 500000, WEFT_ROPE_NONE, 1, 0, 0, 0, .rope_interleaved = true, .tied = true}},
    {"tests/data/zoo/llama_quant/Q8_0.gguf",
     {"llama", "tiny", 2, 8, 1, 32, 256, 256, 512, 1024, 0, 1e-5f, 500000, WEFT_ROPE_NONE, 1, 0, 0, 0, .rope_interleaved = true, .tied = true}},
};
/* clang-format on */

static void hyper_parameters_of_the_fixtures_are_as_written(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(fixtures); i++) {
        weft_model *model = must_open(fixtures[i].path);
        const struct weft_model_params *got = weft_model_params(model);
        const struct weft_model_params *want = &fixtures[i].params;
        print_message("    %s\n", fixtures[i].path);
        assert_same_params(got, want);
        assert_string_equal(got->name, want->name);
        assert_int_equal(got->rope_interleaved, want->rope_interleaved);
        assert_int_equal(got->rope_scaling, want->rope_scaling);
        assert_true(got->rope_factor == want->rope_factor);
        assert_true(got->rope_low_freq_factor == want->rope_low_freq_factor);
        assert_true(got->rope_high_freq_factor == want->rope_high_freq_factor);
        assert_int_equal(got->rope_original_context, want->rope_original_context);
        weft_model_free(model);
    }
}

static void every_role_has_a_tensor_and_tied_heads_are_the_embedding(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(fixtures); i++) {
        weft_model *model = must_open(fixtures[i].path);
        const struct weft_model_params *p = weft_model_params(model);
        const struct weft_tensor *head = weft_model_head(model);
        assert_true((head == weft_model_embedding(model)) == p->tied);
        assert_true(head->n_dims == 2 && head->dims[0] == p->n_vocab &&
                    head->dims[1] == p->n_hidden);
        assert_int_equal(weft_model_final_norm(model)->n_dims, 1);
        for (uint32_t l = 0; l < p->n_layers; l++) {
            const struct weft_model_layer *layer = &weft_model_layers(model)[l];
            const struct weft_tensor *const all[] = {layer->attn_norm, layer->wq,   layer->wk,
                                                     layer->wv,        layer->wo,   layer->ffn_norm,
                                                     layer->w_gate,    layer->w_up, layer->w_down};
            for (size_t k = 0; k < COUNT(all); k++) {
                assert_non_null(all[k]);
                assert_ptr_equal(all[k], weft_model_find(model, all[k]->name));
            }
        }
        assert_null(weft_model_find(model, "no such tensor"));
        weft_model_free(model);
    }
}

/* Row `row` of a Q or K matrix as the GGUF converter moved it: pairs (i, i + d/2) become
 * neighbours. */
static uint64_t gguf_row(uint64_t row, uint32_t head_dim) {
    uint64_t head = row / head_dim, i = row % head_dim, half = head_dim / 2;
    return head * head_dim + 2 * (i % half) + i / half;
}

/* Compares tensors row by row; `head_dim` != 0 undoes the permutation. */
static void assert_same_rows(const struct weft_tensor *hf, const struct weft_tensor *gguf,
                             uint32_t head_dim, double tolerance) {
    assert_int_equal(hf->n_dims, gguf->n_dims);
    uint64_t rows = hf->n_dims == 2 ? hf->dims[0] : 1, cols = hf->dims[hf->n_dims - 1];
    float *a = calloc(cols, sizeof *a), *b = calloc(cols, sizeof *b);
    assert_true(a && b);
    for (uint64_t row = 0; row < rows; row++) {
        double worst = 0, largest = 0;
        weft_tensor_row_f32(hf, row, a);
        weft_tensor_row_f32(gguf, head_dim ? gguf_row(row, head_dim) : row, b);
        for (uint64_t i = 0; i < cols; i++) {
            worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
            largest = fmax(largest, fabs((double)a[i]));
        }
        if (worst > tolerance * largest) {
            fail_msg("%s row %lu: off by %g of %g", hf->name, (unsigned long)row, worst, largest);
        }
    }
    free(a);
    free(b);
}

static void assert_same_weights(const weft_model *hf, const weft_model *gguf, double tolerance) {
    const struct weft_model_params *p = weft_model_params(hf);
    assert_same_rows(weft_model_embedding(hf), weft_model_embedding(gguf), 0, tolerance);
    assert_same_rows(weft_model_head(hf), weft_model_head(gguf), 0, tolerance);
    assert_same_rows(weft_model_final_norm(hf), weft_model_final_norm(gguf), 0, 0);
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const struct weft_model_layer *a = &weft_model_layers(hf)[l];
        const struct weft_model_layer *b = &weft_model_layers(gguf)[l];
        assert_same_rows(a->attn_norm, b->attn_norm, 0, 0);
        assert_same_rows(a->wq, b->wq, p->head_dim, tolerance);
        assert_same_rows(a->wk, b->wk, p->head_dim, tolerance);
        assert_same_rows(a->wv, b->wv, 0, tolerance);
        assert_same_rows(a->wo, b->wo, 0, tolerance);
        assert_same_rows(a->ffn_norm, b->ffn_norm, 0, 0);
        assert_same_rows(a->w_gate, b->w_gate, 0, tolerance);
        assert_same_rows(a->w_up, b->w_up, 0, tolerance);
        assert_same_rows(a->w_down, b->w_down, 0, tolerance);
    }
}

/* Q8_0 divides the largest of 32 values by 127: half a step is 1/254 of it. The scale is rounded to
 * F16 besides (2^-11). */
static void a_folder_and_its_gguf_file_hold_the_same_model(void **state) {
    (void)state;
    static const struct {
        const char *hf, *gguf;
        double tolerance;
    } pairs[] = {
        {"tests/data/zoo/llama_gqa_llama3rope", "tests/data/zoo/gguf/llama_gqa_llama3rope.gguf", 0},
        {"models/fable-6m", TEST_FABLE_Q8_0, 1.0 / 254 + 0x1p-11},
    };
    for (size_t i = 0; i < COUNT(pairs); i++) {
        weft_model *hf = must_open(pairs[i].hf), *gguf = must_open(pairs[i].gguf);
        assert_same_params(weft_model_params(hf), weft_model_params(gguf));
        assert_false(weft_model_params(hf)->rope_interleaved);
        assert_true(weft_model_params(gguf)->rope_interleaved);
        assert_same_weights(hf, gguf, pairs[i].tolerance);

        struct weft_rope a, b;
        weft_model_rope(hf, false, false, &a);
        weft_model_rope(gguf, false, false, &b);
        for (uint32_t k = 0; k < weft_model_params(hf)->head_dim / 2; k++) {
            assert_true(fabs(a.inv_freq[k] - b.inv_freq[k]) <=
                        0x1p-23 * a.inv_freq[k]); /* GGUF's divisors are F32 */
        }
        weft_model_free(hf);
        weft_model_free(gguf);
    }
}

static void one_model_in_three_types_agrees_within_their_rounding(void **state) {
    (void)state;
    weft_model *bf16 = must_open("tests/data/zoo/llama_quant/BF16.gguf");
    weft_model *f16 = must_open("tests/data/zoo/llama_quant/F16.gguf");
    weft_model *q8 = must_open("tests/data/zoo/llama_quant/Q8_0.gguf");
    for (size_t i = 0; i < weft_model_n_tensors(bf16); i++) {
        const struct weft_tensor *tensor = weft_model_tensor(bf16, i);
        assert_same_rows(tensor, weft_model_find(f16, tensor->name), 0, 0x1p-11);
        assert_same_rows(tensor, weft_model_find(q8, tensor->name), 0, 1.0 / 254 + 0x1p-11);
    }
    weft_model_free(bf16);
    weft_model_free(f16);
    weft_model_free(q8);
}

static void rope_frequencies_follow_each_rule(void **state) {
    (void)state;
    struct weft_rope rope;
    const double *f = rope.inv_freq;
    weft_model *model = must_open("models/fable-6m");
    weft_model_rope(model, false, false, &rope);
    for (int i = 0; i < 16; i++) {
        assert_true(fabs(f[i] - exp(-2.0 * i / 32 * log(10000))) < 1e-15);
    }
    weft_model_free(model);

    model = must_open("tests/data/zoo/llama_mha_linear");
    weft_model_rope(model, false, false, &rope);
    assert_true(f[0] == 0.25 && fabs(f[4] - 0.0025) < 1e-17);
    weft_model_free(model);

    /* 64 positions: 1.0 turns 10.2 times (kept), 0.1 turns 1.02 times (blended), 0.01 less than
     * once (divided by 8). The wavelengths of the rest follow in steps of 10^(1/2). */
    model = must_open("tests/data/zoo/llama_gqa_llama3rope");
    weft_model_rope(model, false, false, &rope);
    double turns = 64 * 0.1 / (2 * M_PI), smooth = (turns - 1) / 3;
    assert_true(f[0] == 1);
    assert_true(fabs(f[2] - (0.1 * smooth + 0.1 / 8 * (1 - smooth))) < 1e-16);
    assert_true(fabs(f[4] - 0.01 / 8) < 1e-17);
    weft_model_free(model);
}

static void rows_of_every_type_convert_exactly(void **state) {
    (void)state;
    static const uint16_t f16[] = {0x3c00, 0xc000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0x7c00, 0x8000};
    static const float f16_want[] = {1,        -2,    0x1p-24f, -0x3ffp-24f,
                                     0x1p-14f, 65504, INFINITY, -0.0f};
    static const uint16_t bf16[] = {0x3f80, 0xc000, 0x0001, 0x7f80};
    static const float bf16_want[] = {1, -2, 0x1p-133f, INFINITY};
    unsigned char q8[1 + 2 * 34]; /* one byte off, so that nothing is aligned */
    float out[32];

    struct weft_tensor tensor = {"t", WEFT_DT_F16, 1, {8}, f16, sizeof f16, NULL, 0};
    weft_tensor_row_f32(&tensor, 0, out);
    assert_memory_equal(out, f16_want, sizeof f16_want);

    /* NaN, signalling or quiet, comes out quiet with its payload, as in F16C. */
    static const uint16_t nan[] = {0x7c01, 0xfe02};
    static const uint32_t nan_want[] = {0x7fc02000, 0xffc04000};
    tensor = (struct weft_tensor){"t", WEFT_DT_F16, 1, {2}, nan, sizeof nan, NULL, 0};
    weft_tensor_row_f32(&tensor, 0, out);
    assert_memory_equal(out, nan_want, sizeof nan_want);

    tensor = (struct weft_tensor){"t", WEFT_DT_BF16, 2, {2, 2}, bf16, sizeof bf16, NULL, 0};
    for (uint64_t row = 0; row < 2; row++) {
        weft_tensor_row_f32(&tensor, row, out);
        assert_memory_equal(out, bf16_want + 2 * row, 2 * sizeof *out);
    }

    memset(q8, 0, sizeof q8);
    q8[1 + 34 + 1] = 0x38; /* the second block's scale: 0.5 */
    for (int i = 0; i < 32; i++) {
        q8[1 + 34 + 2 + i] = (unsigned char)(i - 16);
    }
    tensor = (struct weft_tensor){"t", WEFT_DT_Q8_0, 2, {2, 32}, q8 + 1, 68, NULL, 0};
    weft_tensor_row_f32(&tensor, 1, out);
    for (int i = 0; i < 32; i++) {
        assert_true(out[i] == 0.5f * (float)(i - 16));
    }
    assert_string_equal(weft_dtype_name(WEFT_DT_Q8_0), "q8_0");
    assert_int_equal(weft_dtype_block_elems(WEFT_DT_Q8_0), 32);
    assert_int_equal(weft_dtype_block_bytes(WEFT_DT_Q8_0), 34);
}

static void hash_tells_models_apart_and_ignores_where_they_lie(void **state) {
    (void)state;
    char *dir = test_dir_new();
    struct weft_buf bytes;
    struct weft_errmsg why;
    uint64_t hashes[3];
    st_build_tiny(&bytes);
    test_dir_write(dir, "config.json", tiny_config, strlen(tiny_config));
    for (int i = 0; i < 3; i++) {
        weft_model *model;
        if (i == 2) bytes.data[bytes.len - 1] ^= 1;
        test_dir_write(dir, "model.safetensors", bytes.data, bytes.len);
        assert_int_equal(weft_model_open(dir, &model, &why), WEFT_OK);
        hashes[i] = weft_model_hash(model);
        weft_model_free(model);
    }
    assert_int_equal(hashes[0], hashes[1]);
    assert_int_not_equal(hashes[0], hashes[2]);
    weft_buf_fini(&bytes);
    test_dir_free(dir);
}

/* Changes a bit of each byte: all count but the name's and those that belong to no field. A bool
 * stays one. A field that hash.c lacks fails here. */
static void every_hyper_parameter_counts_in_the_hash(void **state) {
    (void)state;
#if __has_builtin(__builtin_clear_padding)
    struct weft_model_params *params = calloc(1, sizeof *params), fields;
    const size_t name_at = offsetof(struct weft_model_params, name);
    uint64_t hash = wefti_model_params_hash(params);
    memset(&fields, 0xff, sizeof fields);
    __builtin_clear_padding(&fields);
    for (size_t i = 0; i < sizeof fields; i++) {
        bool is_name = i >= name_at && i < name_at + sizeof fields.name;
        bool counts = ((const unsigned char *)&fields)[i] != 0 && !is_name;
        ((unsigned char *)params)[i] ^= 1;
        if ((wefti_model_params_hash(params) != hash) != counts)
            fail_msg("byte %zu of struct weft_model_params %s", i,
                     counts ? "is not hashed" : "is hashed");
        ((unsigned char *)params)[i] ^= 1;
    }
    free(params);
#else
    skip(); /* clang knows no padding */
#endif
}

/* ----------------------------------------------------------------------------- config.json --- */

static void options_that_are_not_there_yet_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *changes, *said;
    } cases[] = {
        {"{\"architectures\":[\"GPT2LMHeadModel\"]}", "GPT2LMHeadModel"},
        {"{\"architectures\":null,\"model_type\":\"gptj\"}", "gptj"},
        {"{\"architectures\":null,\"model_type\":\"gptj\"}",
         "there are gpt_neox, gpt_oss; docs/models.md lists all"},
        {"{\"architectures\":[\"LlamaModel\"]}",
         "there are LlamaForCausalLM, Llama4ForCausalLM; docs/models.md lists all"},
        {"{\"architectures\":[\"BambaForCausalLM\"]}", "not supported; docs/models.md lists all"},
        {"{\"architectures\":[\"Qw\"]}", "not supported; docs/models.md lists all"},
        {"{\"clip_qkv\":8}", "clip_qkv"},
        {"{\"layer_types\":[\"linear_attention\"]}", "linear_attention"},
        {"{\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\","
         "\"sliding_window\":16,\"max_window_layers\":0}",
         "max_window_layers"},
        {"{\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\","
         "\"sliding_window\":16,\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
         "layer_types"},
        {"{\"hidden_act\":\"gelu_10\"}", "gelu_10"},
        {"{\"architectures\":[\"GPTNeoXForCausalLM\"],\"model_type\":\"gpt_neox\",\"qk_"
         "layernorm\":true}",
         "qk_layernorm"},
        {"{\"architectures\":[\"Cohere2ForCausalLM\"],\"model_type\":\"cohere2\","
         "\"layer_types\":[\"linear_attention\"],\"num_hidden_layers\":1}",
         "linear_attention"},
        {"{\"quantization_config\":{\"quant_method\":\"hqq\"}}", "hqq"},
        {"{\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"none\"}}",
         "activation_scheme"},
        {"{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}}", "e5m2"},
        {"{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[64,64]}}",
         "[64"},
        {"{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128],"
         "\"activation_scheme\":\"static\"}}",
         "static"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":128}}",
         "bits"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}", "group_size"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,"
         "\"checkpoint_format\":\"marlin\"}}",
         "marlin"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,"
         "\"dynamic\":{\"-:.*mlp.*\":{},\"+:.*head$\":{\"bits\":8}}}}",
         "dynamic"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,"
         "\"dynamic\":[\"mlp\"]}}",
         "dynamic"},
        {"{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,"
         "\"version\":\"gemv\"}}",
         "gemv"},
        {"{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,"
         "\"zero_point\":false}}",
         "zero_point"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":0}}",
         "group_size"},
        {"{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":8,\"group_size\":128}}",
         "bits"},
        {"{\"quantization_config\":{\"load_in_8bit\":true}}", "load_in_8bit"},
        {"{\"quantization_config\":{\"load_in_4bit\":true,\"bnb_4bit_quant_type\":\"fp4\"}}",
         "fp4"},
        {"{\"rope_scaling\":{\"type\":\"mrope\",\"factor\":4}}", "mrope"},
        {"{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"},"
         "\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":2}}}",
         "layer"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params params;
        struct weft_errmsg why;
        weft_err err = test_parse_config(cases[i].changes, &params, &why);
        print_message("    %s\n", why.text);
        assert_int_equal(err, WEFT_E_UNSUPPORTED);
        assert_non_null(strstr(why.text, cases[i].said));
        assert_non_null(strstr(why.text, "config.json"));
    }
}

/* One way for all weights, and one that its own settings do not contradict. */
static void other_compressed_tensors_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *changes, *said;
    } cases[] = {
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"mar"
         "lin-24\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type\":\"in"
         "t\"}}}}}",
         "marlin-24"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"mix"
         "ed-precision\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type"
         "\":\"int\"}}}}}",
         "mixed-precision"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":3,\"type\""
         ":\"int\",\"strategy\":\"channel\"}}}}}",
         "\"num_bits\": 3.0 "},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":1e300,\"ty"
         "pe\":\"int\"}}}}}",
         "num_bits"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type\""
         ":\"float\",\"strategy\":\"channel\"}}}}}",
         "\"type\": \"float\""},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int"
         "-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type\":"
         "\"float\"}}}}}",
         "type"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"flo"
         "at-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type"
         "\":\"float\"}}}}}",
         "num_bits"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type\""
         ":\"int\",\"strategy\":\"group\"}}}}}",
         "group_size"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type\""
         ":\"int\",\"strategy\":\"group\",\"group_size\":-1}}}}}",
         "\"group_size\": -1.0 "},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type\""
         ":\"int\",\"strategy\":\"group\",\"group_size\":0}}}}}",
         "group_size"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type\""
         ":\"int\",\"strategy\":\"group\",\"group_size\":4294967296}}}}}",
         "group_size"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type\""
         ":\"int\",\"strategy\":\"channel\",\"group_size\":32}}}}}",
         "group_size"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"flo"
         "at-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type"
         "\":\"float\",\"strategy\":\"group\",\"group_size\":64}}}}}",
         "group_size"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int"
         "-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type\":"
         "\"int\",\"strategy\":\"block\",\"block_structure\":[128,128]}}}}}",
         "strategy"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"flo"
         "at-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type"
         "\":\"float\",\"strategy\":\"block\",\"block_structure\":[128,64]}}}}}",
         "block_structure"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"flo"
         "at-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type"
         "\":\"float\",\"strategy\":\"block\",\"block_structure\":\"128x128\"}}}}}",
         "block_structure"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int"
         "-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type\":"
         "\"int\",\"strategy\":\"token\"}}}}}",
         "token"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int"
         "-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type\":"
         "\"int\",\"strategy\":7}}}}}",
         "strategy"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"flo"
         "at-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type"
         "\":\"float\",\"symmetric\":false}}}}}",
         "symmetric"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int"
         "-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type\":"
         "\"int\",\"symmetric\":\"no\"}}}}}",
         "symmetric"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type\""
         ":\"int\",\"actorder\":\"spiral\"}}}}}",
         "spiral"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int"
         "-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type\":"
         "\"int\",\"dynamic\":true}}}}}",
         "dynamic"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int"
         "-quantized\",\"config_groups\":{\"group_0\":{\"weights\":7}}}}",
         "weights"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int"
         "-quantized\",\"config_groups\":{\"group_0\":{\"weights\":null}}}}",
         "config_groups"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int"
         "-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type\":"
         "\"int\"}}},\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}}}",
         "sparsity_config"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int"
         "-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type\":"
         "\"int\"}}},\"transform_config\":{\"config_groups\":{\"R1\":{\"type\":\"hadamard\"}"
         "}}}}",
         "transform_config"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4,\"type\":\"int"
         "\",\"strategy\":\"channel\"}},\"b\":{\"weights\":{\"num_bits\":8,\"type\":\"int\","
         "\"strategy\":\"channel\"}}}}}",
         "stored in another way"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pac"
         "k-quantized\",\"config_groups\":[]}}",
         "config_groups"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params params;
        struct weft_errmsg why;
        weft_err err = test_parse_config(cases[i].changes, &params, &why);
        print_message("    %s\n", why.text);
        assert_int_equal(err, WEFT_E_UNSUPPORTED);
        assert_non_null(strstr(why.text, cases[i].said));
        assert_non_null(strstr(why.text, "config.json"));
    }
}

static void fp8_without_blocks_has_a_scale_per_matrix(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    const char *changes =
        "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":null,"
        "\"activation_scheme\":\"static\"}}";
    if (test_parse_config(changes, &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.quant.method, WEFT_QUANT_SCALED_FP8);
    assert_int_equal(p.quant.block_rows, 0);
    assert_int_equal(p.quant.block_cols, 0);
}

/* Which type that is. */
static void fp8_has_two_names(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    const char *changes =
        "{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"float8_e4m3fn\","
        "\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128]}}";
    if (test_parse_config(changes, &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.quant.method, WEFT_QUANT_FP8);
}

/* As in Qwen3.5's checkpoints: layers that are left out are floats, which their tensors show. */
static void gptq_may_leave_layers_out(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    const char *changes =
        "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,"
        "\"desc_act\":false,\"sym\":true,\"lm_head\":false,\"dynamic\":{\"lm_head\":{},"
        "\"model.language_model.embed_tokens\":{},\"-:.*attn.*\":{},\"-:.*mtp.*\":{}}}}";
    if (test_parse_config(changes, &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.quant.method, WEFT_QUANT_GPTQ);
    assert_int_equal(p.quant.block_cols, 128);
}

static void compressed_tensors_are_read_from_their_groups(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    const char *changes =
        "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"dense\","
        "\"ignore\":[\"lm_head\"],\"kv_cache_scheme\":{\"num_bits\":8},\"sparsity_config\":{},"
        "\"config_groups\":{"
        "\"a\":{\"format\":\"pack-quantized\",\"targets\":[\"Linear\"],\"weights\":{"
        "\"num_bits\":4,\"type\":\"int\",\"symmetric\":false,\"strategy\":\"group\","
        "\"group_size\":64,\"actorder\":\"group\"}},"
        "\"b\":{\"weights\":null,\"output_activations\":{\"num_bits\":8}},"
        "\"c\":{\"format\":\"pack-quantized\",\"targets\":[\"re:.*q_proj\"],\"weights\":{"
        "\"num_bits\":4,\"type\":\"int\",\"symmetric\":false,\"group_size\":64,"
        "\"actorder\":\"group\",\"observer\":\"mse\"}}}}}";
    if (test_parse_config(changes, &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.quant.method, WEFT_QUANT_PACKED);
    assert_int_equal(p.quant.block_rows, 1);
    assert_int_equal(p.quant.block_cols, 64);
    assert_int_equal(p.quant.ints.bits, 4);
    assert_true(p.quant.ints.has_zeros && p.quant.ints.has_order);
    changes = "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
              "\"format\":\"naive-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{"
              "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\","
              "\"block_structure\":[128,256],\"actorder\":\"static\"}}}}}";
    if (test_parse_config(changes, &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.quant.method, WEFT_QUANT_SCALED_FP8);
    assert_int_equal(p.quant.block_rows, 128);
    assert_int_equal(p.quant.block_cols, 256);
    changes = "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
              "\"format\":\"int-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{"
              "\"num_bits\":8}}}}}";
    if (test_parse_config(changes, &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.quant.method, WEFT_QUANT_INT8);
    assert_int_equal(p.quant.block_rows, 0);
    assert_int_equal(p.quant.block_cols, 0);
}

#define LATENT                                                                                     \
    "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\","               \
    "\"kv_lora_rank\":48,\"q_lora_rank\":null,\"qk_nope_head_dim\":12,\"qk_rope_head_dim\":6,"     \
    "\"v_head_dim\":10,\"n_routed_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_"       \
    "size\":8,\"n_group\":1,\"topk_group\":1"

static void latent_attention_is_one_row_for_all_heads(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    if (test_parse_config(LATENT ",\"hidden_size\":33}", &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.n_kv_heads, 1);
    assert_int_equal(p.head_dim, 48 + 6);
    assert_int_equal(p.rope_dim, 6);
    assert_int_equal(p.kv_lora, 48);
    assert_int_equal(p.q_lora, 0);
    assert_int_equal(p.nope_dim, 12);
    assert_int_equal(p.v_dim, 10);
    assert_int_equal(p.n_predict, 0);
    assert_true(p.rope_interleaved);
    if (test_parse_config(LATENT ",\"q_lora_rank\":7,\"rope_interleave\":false,\"head_dim\":6,"
                                 "\"num_nextn_predict_layers\":2}",
                          &p, &why))
        fail_msg("%s", why.text);
    assert_int_equal(p.head_dim, 48 + 6);
    assert_int_equal(p.q_lora, 7);
    assert_int_equal(p.n_predict, 2);
    assert_false(p.rope_interleaved);
}

static void nonsense_about_latents_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *change, *said;
    } cases[] = {
        {"\"kv_lora_rank\":null", "has no \"kv_lora_rank\""},
        {"\"kv_lora_rank\":0", "rank of the latent"},
        {"\"kv_lora_rank\":1025", "rank of the latent"},
        {"\"kv_lora_rank\":1020", "head dimension"},
        {"\"kv_lora_rank\":4294967290", "rank of the latent"},
        {"\"kv_lora_rank\":0,\"v_head_dim\":0", "head dimension"},
        {"\"q_lora_rank\":-1", "q_lora_rank"},
        {"\"q_lora_rank\":16777216", "rank of queries"},
        {"\"qk_nope_head_dim\":0", "does not turn"},
        {"\"qk_nope_head_dim\":513", "does not turn"},
        {"\"qk_rope_head_dim\":0", "that turns"},
        {"\"qk_rope_head_dim\":4294967290", "that turns"},
        {"\"qk_rope_head_dim\":7", "elements of a head"},
        {"\"v_head_dim\":null", "v_head_dim"},
        {"\"v_head_dim\":600", "values"},
        {"\"num_nextn_predict_layers\":5000", "predicting layers"},
        {"\"rope_interleave\":\"yes\"", "rope_interleave"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params params;
        struct weft_errmsg why;
        char changes[1024];
        (void)snprintf(changes, sizeof changes, LATENT ",%s}", cases[i].change);
        weft_err err = test_parse_config(changes, &params, &why);
        print_message("    %s\n", why.text);
        assert_int_equal(err, WEFT_E_PROTO);
        assert_non_null(strstr(why.text, cases[i].said));
    }
}

#define INDEXED                                                                                    \
    LATENT ",\"architectures\":[\"DeepseekV32ForCausalLM\"],\"model_type\":\"deepseek_v32\","      \
           "\"q_lora_rank\":7,\"index_n_heads\":5,\"index_head_dim\":11,\"index_topk\":20"

static void an_indexer_turns_halves_unless_it_says_otherwise(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    if (test_parse_config(INDEXED "}", &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.indexer.n_heads, 5);
    assert_int_equal(p.indexer.head_dim, 11);
    assert_int_equal(p.indexer.top_k, 20);
    assert_int_equal(p.indexer.pairs, 0);
    assert_true(p.rope_interleaved);
    if (test_parse_config(INDEXED ",\"indexer_rope_interleave\":true}", &p, &why))
        fail_msg("%s", why.text);
    assert_int_equal(p.indexer.pairs, 1);
    static const char glm[] =
        INDEXED ",\"architectures\":[\"GlmMoeDsaForCausalLM\"],\"model_type\":\"glm_moe_dsa\","
                "\"indexer_types\":[\"full\",\"full\"],\"num_hidden_layers\":2,"
                "\"mlp_layer_types\":[\"sparse\",\"dense\"]}";
    if (test_parse_config(glm, &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.indexer.pairs, 1);
    assert_int_equal(p.no_experts[0], 2);
    /* Other models have none, whatever their files say. */
    if (test_parse_config(LATENT ",\"index_topk\":20}", &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.indexer.n_heads, 0);
}

static void nonsense_about_indexers_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *change, *said;
        weft_err err;
    } cases[] = {
        {"\"index_n_heads\":null", "has no \"index_n_heads\"", WEFT_E_PROTO},
        {"\"index_head_dim\":null", "has no \"index_head_dim\"", WEFT_E_PROTO},
        {"\"index_topk\":null", "has no \"index_topk\"", WEFT_E_PROTO},
        {"\"index_n_heads\":0", "number of the indexer's heads", WEFT_E_PROTO},
        {"\"index_n_heads\":1025", "number of the indexer's heads", WEFT_E_PROTO},
        {"\"index_head_dim\":4294967290", "dimension of the indexer's heads", WEFT_E_PROTO},
        {"\"index_head_dim\":4", "6 elements turn", WEFT_E_PROTO},
        {"\"index_topk\":0", "positions that the indexer chooses", WEFT_E_PROTO},
        {"\"index_topk\":\"all\"", "index_topk", WEFT_E_PROTO},
        {"\"index_topk\":4294967290", "positions that the indexer chooses", WEFT_E_PROTO},
        {"\"q_lora_rank\":null", "rank of queries is 0", WEFT_E_PROTO},
        {"\"indexer_rope_interleave\":1", "indexer_rope_interleave", WEFT_E_PROTO},
        {"\"indexer_types\":\"full\"", "indexer_types", WEFT_E_PROTO},
        {"\"indexer_types\":[\"full\",\"shared\"]", "indexer_types", WEFT_E_UNSUPPORTED},
        {"\"index_topk_freq\":4", "index_topk_freq", WEFT_E_UNSUPPORTED},
        {"\"index_topk_pattern\":\"FS\"", "index_topk_pattern", WEFT_E_UNSUPPORTED},
        {"\"index_kpool\":4", "index_kpool", WEFT_E_UNSUPPORTED},
        {"\"mlp_layer_types\":[]", "mlp_layer_types", WEFT_E_PROTO},
        {"\"mlp_layer_types\":[\"half\"],\"num_hidden_layers\":1", "half", WEFT_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params params;
        struct weft_errmsg why;
        char changes[1024];
        (void)snprintf(changes, sizeof changes, INDEXED ",%s}", cases[i].change);
        weft_err err = test_parse_config(changes, &params, &why);
        print_message("    %s\n", why.text);
        assert_int_equal(err, cases[i].err);
        assert_non_null(strstr(why.text, cases[i].said));
    }
}

/* Keys of experts count for nothing in models without any. */
static void a_model_with_no_experts_is_a_plain_one(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    const char *changes = LATENT ",\"n_routed_experts\":0,\"num_experts_per_tok\":null,"
                                 "\"n_shared_experts\":4294967290,"
                                 "\"moe_intermediate_size\":4294967290}";
    if (test_parse_config(changes, &p, &why)) fail_msg("%s", why.text);
    assert_int_equal(p.moe.n_experts, 0);
    assert_int_equal(p.moe.n_used, 0);
    assert_int_equal(p.moe.n_ffn, 0);
    assert_int_equal(p.moe.n_ffn_shared, 0);
}

/* Above all "topk_method" and "scoring_func", which transformers' third version has no keys for. */
static void each_deepseek_has_defaults_of_its_own(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    const char *third = LATENT ",\"n_group\":null,\"topk_group\":null,\"n_routed_experts\":32,"
                               "\"num_hidden_layers\":4}";
    if (test_parse_config(third, &p, &why)) fail_msg("%s", why.text);
    assert_true(p.moe.sigmoid && p.moe.score_bias && p.moe.by_two && p.moe.normalise);
    assert_int_equal(p.moe.n_groups, 8);
    assert_int_equal(p.moe.n_groups_used, 4);
    assert_true(p.moe.scale == 2.5f);
    assert_int_equal(p.moe.n_ffn_shared, 8);
    assert_int_equal(p.no_experts[0], 7); /* the first three layers */
    if (test_parse_config(LATENT ",\"norm_topk_prob\":false}", &p, &why)) fail_msg("%s", why.text);
    assert_false(p.moe.normalise);
    const char *second = LATENT ",\"architectures\":[\"DeepseekV2ForCausalLM\"],"
                                "\"model_type\":\"deepseek_v2\"}";
    if (test_parse_config(second, &p, &why)) fail_msg("%s", why.text);
    assert_false(p.moe.sigmoid || p.moe.score_bias || p.moe.by_two || p.moe.normalise);
    assert_int_equal(p.moe.n_groups, 1);
    assert_true(p.moe.scale == 1);
    assert_int_equal(p.moe.n_ffn_shared, 0);
    assert_int_equal(p.no_experts[0], 0);
}

static void nonsense_about_experts_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *change, *said;
    } cases[] = {
        {"\"n_routed_experts\":null", "how many experts"},
        {"\"n_routed_experts\":[\"4\"]", "n_routed_experts"},
        {"\"n_routed_experts\":1025", "number of experts"},
        {"\"n_routed_experts\":1", "experts per token"},
        {"\"num_experts_per_tok\":null", "num_experts_per_tok"},
        {"\"num_experts_per_tok\":0", "experts per token"},
        {"\"num_experts_per_tok\":5", "experts per token"},
        {"\"moe_intermediate_size\":4294967290", "size of an expert"},
        {"\"n_shared_experts\":4294967290", "shared expert"},
        {"\"n_shared_experts\":1000,\"moe_intermediate_size\":1000000", "shared expert"},
        {"\"n_group\":0", "number of groups"},
        {"\"n_group\":5", "number of groups"},
        {"\"n_group\":3,\"topk_method\":\"noaux_tc\"", "do not go"},
        {"\"n_group\":4,\"topk_method\":\"noaux_tc\"", "do not go"},
        {"\"topk_group\":2,\"topk_method\":\"noaux_tc\"", "groups that a token uses"},
        {"\"routed_scaling_factor\":0", "scale of routed experts"},
        {"\"routed_scaling_factor\":1e300", "scale of routed experts"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params params;
        struct weft_errmsg why;
        char changes[1024];
        (void)snprintf(changes, sizeof changes,
                       LATENT ",\"topk_method\":\"group_limited_greedy\",%s}", cases[i].change);
        weft_err err = test_parse_config(changes, &params, &why);
        print_message("    %s\n", why.text);
        assert_int_equal(err, WEFT_E_PROTO);
        assert_non_null(strstr(why.text, cases[i].said));
    }
}

static void nonsense_in_config_json_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *changes, *said;
    } cases[] = {
        {"{\"hidden_size\":null}", "hidden_size"},
        {"{\"hidden_size\":\"32\"}", "hidden_size"},
        {"{\"hidden_size\":32.5}", "hidden_size"},
        {"{\"hidden_size\":-32}", "hidden_size"},
        {"{\"hidden_size\":33}", "multiple"},
        {"{\"hidden_size\":4294967297}", "out of range"},
        {"{\"hidden_size\":9223372036854775807}", "out of range"},
        {"{\"hidden_size\":16777216}", "hidden size"},
        {"{\"num_hidden_layers\":0}", "layers"},
        {"{\"num_hidden_layers\":1025}", "1024"},
        {"{\"num_attention_heads\":0}", "heads"},
        {"{\"num_key_value_heads\":0}", "KV heads"},
        {"{\"num_key_value_heads\":3}", "multiple"},
        {"{\"head_dim\":15}", "even"},
        {"{\"head_dim\":1024}", "512"},
        {"{\"vocab_size\":0}", "vocabulary"},
        {"{\"vocab_size\":4000000}", "vocabulary"},
        {"{\"intermediate_size\":0}", "feed-forward"},
        {"{\"max_position_embeddings\":0}", "context"},
        {"{\"rms_norm_eps\":-1}", "epsilon"},
        {"{\"rms_norm_eps\":\"small\"}", "rms_norm_eps"},
        {"{\"rope_theta\":0}", "RoPE base"},
        {"{\"rope_theta\":1e300}", "RoPE base"},
        {"{\"rope_scaling\":7}", "rope_scaling"},
        {"{\"quantization_config\":7}", "quantization_config"},
        {"{\"partial_rotary_factor\":0}", "partial_rotary_factor"},
        {"{\"partial_rotary_factor\":1.5}", "partial_rotary_factor"},
        {"{\"partial_rotary_factor\":\"half\"}", "partial_rotary_factor"},
        {"{\"rope_parameters\":{\"partial_rotary_factor\":-1}}", "partial_rotary_factor"},
        {"{\"partial_rotary_factor\":0.01}", "elements of a head"},
        {"{\"rope_scaling\":{\"factor\":2}}", "no type"},
        {"{\"rope_scaling\":{\"type\":\"linear\"}}", "factor"},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", "factor"},
        {"{\"rope_scaling\":{\"type\":4,\"factor\":2}}", "type"},
        {"{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
         "\"high_freq_factor\":3,\"original_max_position_embeddings\":64}}",
         "high_freq_factor"},
        {"{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
         "\"high_freq_factor\":4}}",
         "original_max_position_embeddings"},
        {"{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
         "\"high_freq_factor\":4,\"original_max_position_embeddings\":0}}",
         "original context"},
        {"{\"tie_word_embeddings\":1}", "tie_word_embeddings"},
        {"{\"attention_bias\":\"no\"}", "attention_bias"},
        {"{\"architectures\":[]}", "architectures"},
        {"{\"architectures\":[\"LlamaForCausalLM\",\"Other\"]}", "architectures"},
        {"{\"architectures\":null,\"model_type\":null}", "model_type"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params params;
        struct weft_errmsg why;
        weft_err err = test_parse_config(cases[i].changes, &params, &why);
        print_message("    %s\n", why.text);
        assert_int_equal(err, WEFT_E_PROTO);
        assert_non_null(strstr(why.text, cases[i].said));
    }
}

static void text_that_is_not_a_configuration_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "", "{", "[]", "7", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\"}"};
    char deep[20000];
    memset(deep, '[', sizeof deep);
    for (size_t i = 0; i <= COUNT(texts); i++) {
        const char *text = i < COUNT(texts) ? texts[i] : deep;
        struct weft_model_params params = {0};
        struct weft_errmsg why;
        struct wefti_model_file file;
        size_t len = i < COUNT(texts) ? strlen(text) : sizeof deep;
        assert_int_equal(wefti_model_file_borrow("config.json", text, len, &file, &why), WEFT_OK);
        assert_int_equal(wefti_model_config_hf(&file, &params, &why), WEFT_E_PROTO);
        assert_non_null(strstr(why.text, "config.json"));
        wefti_model_file_close(&file);
    }
}

static void every_spelling_of_rope_scaling_is_read(void **state) {
    (void)state;
    static const struct {
        const char *changes;
        enum weft_rope_scaling scaling;
        double theta, factor;
        uint32_t original;
    } cases[] = {
        {"{}", WEFT_ROPE_NONE, 10000, 1, 0},
        {"{\"rope_theta\":null}", WEFT_ROPE_NONE, 10000, 1, 0},
        {"{\"rope_scaling\":null}", WEFT_ROPE_NONE, 10000, 1, 0},
        {"{\"rope_scaling\":{\"rope_type\":\"default\"}}", WEFT_ROPE_NONE, 10000, 1, 0},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", WEFT_ROPE_LINEAR, 10000, 2, 0},
        {"{\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.5}}", WEFT_ROPE_LINEAR, 10000,
         2.5, 0},
        {"{\"rope_theta\":null,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5}}",
         WEFT_ROPE_NONE, 5e5, 1, 0},
        {"{\"rope_parameters\":{\"rope_type\":\"linear\",\"rope_theta\":2e6,\"factor\":3}}",
         WEFT_ROPE_LINEAR, 2e6, 3, 0},
        {"{\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":5e5,\"factor\":32,"
         "\"low_freq_factor\":1,\"high_freq_factor\":4,"
         "\"original_max_position_embeddings\":8192}}",
         WEFT_ROPE_LLAMA3, 5e5, 32, 8192},
        {"{\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"default\","
         "\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}}",
         WEFT_ROPE_LLAMA3, 10000, 8, 64},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params params;
        struct weft_errmsg why;
        if (test_parse_config(cases[i].changes, &params, &why)) fail_msg("%s", why.text);
        assert_int_equal(params.rope_scaling, cases[i].scaling);
        assert_true(params.rope_theta == cases[i].theta);
        assert_true(params.rope_factor == cases[i].factor);
        assert_int_equal(params.rope_original_context, cases[i].original);
    }
}

static void a_part_of_each_head_may_turn(void **state) {
    (void)state;
    static const struct {
        const char *changes;
        uint32_t rope_dim;
    } cases[] = {
        {"{}", 16},
        {"{\"head_dim\":32}", 32},
        {"{\"partial_rotary_factor\":0.75}", 12},
        {"{\"partial_rotary_factor\":0.8}", 12}, /* rounded down, as Python's int does */
        {"{\"partial_rotary_factor\":null}", 16},
        {"{\"rope_parameters\":{\"partial_rotary_factor\":0.5}}", 8},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"partial_rotary_factor\":0.25}}", 4},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params params;
        struct weft_errmsg why;
        if (test_parse_config(cases[i].changes, &params, &why)) fail_msg("%s", why.text);
        assert_int_equal(params.rope_dim, cases[i].rope_dim);
    }
}

/* Kimi K2's class is DeepSeek's, its type its own. */
static void the_class_counts_and_a_type_may_not_contradict_it(void **state) {
    (void)state;
    struct weft_model_params params;
    struct weft_errmsg why;
    assert_int_equal(test_parse_config("{\"model_type\":\"kimi_k2\"}", &params, &why), WEFT_OK);
    assert_string_equal(params.arch, "llama");
    assert_int_equal(test_parse_config("{\"model_type\":\"granite\"}", &params, &why),
                     WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "says LlamaForCausalLM, but \"model_type\" is \"granite\""));
}

/* Else the embedding takes its place, and the fault is a tensor without a role. */
static void an_untied_head_must_be_there(void **state) {
    (void)state;
    static const struct {
        const char *tied, *said;
        weft_err err;
    } cases[] = {{",\"tie_word_embeddings\":false}", "'lm_head.weight' is missing", WEFT_E_PROTO},
                 {"}", "'nm_head.weight' has no part", WEFT_E_UNSUPPORTED}};
    char *dir = test_dir_new();
    struct weft_buf bytes;
    st_build_tiny(&bytes);
    char *head = memmem(bytes.data, bytes.len, "lm_head", 7);
    assert_non_null(head);
    head[0] = 'n';
    test_dir_write(dir, "model.safetensors", bytes.data, bytes.len);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_errmsg why;
        weft_model *model;
        char text[4096];
        int n = snprintf(text, sizeof text, "%.*s%s", (int)strlen(tiny_config) - 1, tiny_config,
                         cases[i].tied);
        test_dir_write(dir, "config.json", text, (size_t)n);
        assert_int_equal(weft_model_open(dir, &model, &why), cases[i].err);
        assert_non_null(strstr(why.text, cases[i].said));
    }
    weft_buf_fini(&bytes);
    test_dir_free(dir);
}

/* Folders that hold other files instead of those that are read. */
static void folders_of_other_files_say_what_to_do(void **state) {
    (void)state;
    static const struct {
        const char *file, *said;
    } cases[] = {{"a.txt", "is not a model folder: no config.json"},
                 {"pytorch_model.bin", ".bin files are not read"},
                 {"model-Q4_0.gguf", "name the file"}};
    char *dir = test_dir_new();
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_errmsg why;
        weft_model *model;
        test_dir_write(dir, cases[i].file, "x", 1);
        assert_int_equal(weft_model_open(dir, &model, &why), WEFT_E_NOTFOUND);
        assert_non_null(strstr(why.text, cases[i].said));
        test_dir_write(dir, "config.json", tiny_config, strlen(tiny_config));
        assert_int_equal(weft_model_open(dir, &model, &why), WEFT_E_NOTFOUND);
        assert_true(i == 0 || strstr(why.text, cases[i].said));
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/config.json", dir);
        assert_int_equal(unlink(path), 0);
    }
    test_dir_free(dir);
    struct weft_model_place place;
    struct weft_errmsg why;
    assert_int_equal(weft_model_locate("some-owner/Some-Model-1.5B", &place, &why),
                     WEFT_E_NOTFOUND);
    assert_non_null(strstr(why.text, "nothing is downloaded"));
}

static void a_folder_of_models_names_one(void **state) {
    (void)state;
    char *dir = test_dir_new(), path[4096], said[4096];
    struct weft_errmsg why;
    weft_model *model;
    const char *names[] = {"b", "a", "plain"}; /* the last has no config.json */
    for (size_t i = 0; i < COUNT(names); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        (void)snprintf(path, sizeof path, "%s/config.json", names[i]);
        if (i < 2) test_dir_write(dir, path, "{}", 2);
    }
    assert_int_equal(weft_model_open(dir, &model, &why), WEFT_E_NOTFOUND);
    (void)snprintf(said, sizeof said, "%s is not a model folder: no config.json; %s/a is one", dir,
                   dir);
    assert_string_equal(why.text, said);
    (void)snprintf(path, sizeof path, "%s/a", dir);
    assert_int_equal(weft_model_check_folder(path, &why), WEFT_OK);
    for (size_t i = 0; i < COUNT(names); i++) {
        (void)snprintf(path, sizeof path, "%s/%s/config.json", dir, names[i]);
        (void)unlink(path);
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        assert_int_equal(rmdir(path), 0);
    }
    test_dir_free(dir);
}

/* Cloned without git-lfs, a repository has such files in place of the large ones. */
static void git_lfs_pointers_are_recognised(void **state) {
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:0123456789abcdef\nsize 13644312\n";
    char *dir = test_dir_new(), path[4096];
    struct weft_errmsg why;
    weft_model *model;
    struct weft_model_place place;
    test_dir_write(dir, "x.gguf", pointer, sizeof pointer - 1);
    (void)snprintf(path, sizeof path, "%s/x.gguf", dir);
    assert_int_equal(weft_model_locate(path, &place, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "x.gguf: is a Git LFS pointer"));
    assert_non_null(strstr(why.text, "git lfs pull"));
    test_dir_write(dir, "config.json", tiny_config, strlen(tiny_config));
    test_dir_write(dir, "model.safetensors", pointer, sizeof pointer - 1);
    assert_int_equal(weft_model_open(dir, &model, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "model.safetensors: is a Git LFS pointer"));
    test_dir_write(dir, "tokenizer.json", pointer, sizeof pointer - 1);
    char *text;
    size_t len;
    assert_int_equal(weft_model_read_in(dir, "tokenizer.json", 4096, &text, &len, &why),
                     WEFT_E_PROTO);
    assert_null(text);
    assert_non_null(strstr(why.text, "tokenizer.json: is a Git LFS pointer"));
    test_dir_free(dir);
}

static void missing_keys_have_the_defaults_of_transformers(void **state) {
    (void)state;
    struct weft_model_params params;
    struct weft_errmsg why;
    assert_int_equal(test_parse_config("{\"num_key_value_heads\":null,\"rms_norm_eps\":null,"
                                       "\"max_position_embeddings\":null,\"model_type\":null}",
                                       &params, &why),
                     WEFT_OK);
    assert_int_equal(params.n_kv_heads, 2);
    assert_int_equal(params.head_dim, 16);
    assert_int_equal(params.n_context, 2048);
    assert_true(params.rms_eps == 1e-6f);
    assert_false(params.tied);
    assert_int_equal(test_parse_config("{\"head_dim\":64,\"hidden_size\":33}", &params, &why),
                     WEFT_OK);
    assert_int_equal(params.head_dim, 64);
}

static void mistral_is_a_llama_with_a_window(void **state) {
    (void)state;
    static const struct {
        const char *changes;
        uint32_t window;
    } cases[] = {
        {"\"sliding_window\":null", 0},
        {"\"sliding_window\":128", 0}, /* the context: nothing is ever outside it */
        {"\"sliding_window\":4096", 0},
        {"\"sliding_window\":127", 127},
        {"\"sliding_window\":1", 1},
        {"\"max_position_embeddings\":8192", 4096},
        {"\"sliding_window\":16,\"use_sliding_window\":false", 0},
        {"\"sliding_window\":16,\"use_sliding_window\":true,\"max_window_layers\":64", 16},
        {"\"sliding_window\":16,\"layer_types\":[\"sliding_attention\"]", 16},
    };
    struct weft_model_params params;
    struct weft_errmsg why;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char changes[256];
        (void)snprintf(changes, sizeof changes,
                       "{\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\",%s}",
                       cases[i].changes);
        assert_int_equal(test_parse_config(changes, &params, &why), WEFT_OK);
        assert_string_equal(params.arch, "llama");
        assert_int_equal(params.window, cases[i].window);
    }
    assert_int_equal(test_parse_config("{\"architectures\":[\"MistralForCausalLM\"],"
                                       "\"model_type\":\"mistral\",\"sliding_window\":0}",
                                       &params, &why),
                     WEFT_E_PROTO);
    /* Llama itself has none, whatever its configuration says. */
    assert_int_equal(test_parse_config("{\"sliding_window\":16}", &params, &why), WEFT_OK);
    assert_int_equal(params.window, 0);
}

static void display_names_are_cut_at_whole_characters(void **state) {
    (void)state;
    struct weft_model_params params = {0};
    char name[200];
    memset(name, 'a', sizeof name);
    name[126] = '\xc3', name[127] = '\xa4'; /* the cut at 127 bytes would halve it */
    wefti_model_params_set_name(&params, name, sizeof name);
    assert_int_equal(strlen(params.name), 126);
    wefti_model_params_set_name(&params, "a\x1b[0m\xff", 6);
    assert_string_equal(params.name, "a?[0m?");
    wefti_model_params_set_name(&params, "\xc3\xa4", 2);
    assert_string_equal(params.name, "\xc3\xa4");
}

static void integers_beyond_63_bits_are_no_hindrance(void **state) {
    (void)state;
    char text[2048];
    struct weft_model_params params = {0};
    struct weft_errmsg why;
    struct wefti_model_file file;
    static const char huge[] = "1000000000000000019884624838656";
    (void)snprintf(text, sizeof text, "{\"max_length\":%s,%s", huge, tiny_config + 1);
    assert_int_equal(wefti_model_file_borrow("config.json", text, strlen(text), &file, &why),
                     WEFT_OK);
    if (wefti_model_config_hf(&file, &params, &why)) fail_msg("%s", why.text);
    assert_int_equal(params.n_hidden, 32);
    wefti_model_file_close(&file);
    (void)snprintf(text, sizeof text,
                   "{\"original_max_position_embeddings\":%s,\"rope_scaling\":"
                   "{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
                   "\"high_freq_factor\":4},%s",
                   huge, tiny_config + 1);
    assert_int_equal(wefti_model_file_borrow("config.json", text, strlen(text), &file, &why),
                     WEFT_OK);
    assert_int_equal(wefti_model_config_hf(&file, &params, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "out of range"));
    wefti_model_file_close(&file);
}

static void whole_numbers_convert_as_far_as_a_double_holds_them_all(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool whole;
        uint64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-0.0", true, 0},
        {"7", true, 7},
        {"7.0", true, 7},
        {"9007199254740991", true, 9007199254740991},
        {"9007199254740992", false, 0},
        {"9007199254740993", false, 0}, /* would be 9007199254740992 */
        {"1000000000000000019884624838656", false, 0},
        {"-1", false, 0},
        {"0.5", false, 0},
        {"1e300", false, 0},
        {"\"7\"", false, 0},
        {"true", false, 0},
        {"null", false, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t value = 99;
        json_t *json = json_loads(cases[i].text, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
        assert_non_null(json);
        assert_int_equal(weft_json_u64(json, &value), cases[i].whole);
        assert_int_equal(value, cases[i].value);
        json_decref(json);
    }
    uint64_t value = 99;
    assert_false(weft_json_u64(NULL, &value));
    assert_int_equal(value, 0);
}

static void expect_place(const char *path, enum weft_model_format format, const char *found) {
    struct weft_model_place place;
    struct weft_errmsg why;
    if (weft_model_locate(path, &place, &why)) fail_msg("%s", why.text);
    assert_int_equal(place.format, format);
    assert_string_equal(place.path, found);
    weft_model_place_fini(&place);
    assert_null(place.path);
}

static void content_and_not_the_name_says_what_a_path_is(void **state) {
    (void)state;
    char *dir = test_dir_new(), path[4096], config[4096];
    struct weft_buf bytes;
    struct weft_errmsg why;
    weft_model *model;
    gguf_build_tiny(&bytes, 0);
    test_dir_write(dir, "sha256-0123", bytes.data, bytes.len); /* as content-addressed stores do */
    test_dir_write(dir, "config.json", tiny_config, strlen(tiny_config));
    test_dir_write(dir, "text.gguf", "GGU", 3);
    (void)snprintf(path, sizeof path, "%s/sha256-0123", dir);
    (void)snprintf(config, sizeof config, "%s//config.json", dir);
    expect_place(path, WEFT_MODEL_GGUF, path);
    expect_place(dir, WEFT_MODEL_HF, dir);
    expect_place(config, WEFT_MODEL_HF, dir);
    expect_place("/", WEFT_MODEL_HF, "/");
    if (weft_model_open(path, &model, &why)) fail_msg("%s", why.text);
    assert_string_equal(weft_model_params(model)->name, "tiny");
    weft_model_free(model);

    struct weft_model_place place = {WEFT_MODEL_HF, path, true};
    (void)snprintf(path, sizeof path, "%s/text.gguf", dir);
    assert_int_equal(weft_model_locate(path, &place, &why), WEFT_E_PROTO);
    assert_null(place.path);
    assert_non_null(strstr(why.text, "text.gguf: is neither"));
    weft_model_place_fini(&place);
    weft_buf_fini(&bytes);
    test_dir_free(dir);
}

static void a_fifo_is_refused_and_not_waited_for(void **state) {
    (void)state;
    char *dir = test_dir_new(), path[4096];
    struct weft_errmsg why;
    struct weft_model_place place;
    weft_model *model;
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(weft_model_locate(path, &place, &why), WEFT_E_PROTO);
    assert_int_equal(weft_model_open(dir, &model, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "config.json: is not a regular file"));
    test_dir_free(dir);
}

static void small_files_are_read_within_their_bound(void **state) {
    (void)state;
    char *dir = test_dir_new(), path[4096], *text;
    struct weft_errmsg why;
    size_t len;
    json_t *root;
    test_dir_write(dir, "a.json", "{\"a\":1,\"a\":2}", 13);
    test_dir_write(dir, "empty.json", "", 0);
    test_dir_write(dir, "list.json", "[]", 2);
    (void)snprintf(path, sizeof path, "%s/a.json", dir);
    assert_int_equal(weft_file_read(path, WEFT_FILE_REGULAR, 13, &text, &len, &why), WEFT_OK);
    assert_int_equal(len, 13);
    assert_string_equal(text, "{\"a\":1,\"a\":2}");
    free(text);
    assert_int_equal(weft_file_read(path, WEFT_FILE_REGULAR, 12, &text, &len, &why), WEFT_E_TOOBIG);
    assert_null(text);
    assert_int_equal(weft_file_read("/dev/zero", WEFT_FILE_REGULAR, 12, &text, &len, &why),
                     WEFT_E_PROTO);
    assert_int_equal(weft_model_json(dir, "a.json", 13, &root, &why), WEFT_OK);
    assert_true(json_real_value(json_object_get(root, "a")) == 2); /* the last counts */
    json_decref(root);
    assert_int_equal(weft_model_json(dir, "b.json", 13, &root, &why), WEFT_E_NOTFOUND);
    assert_null(root);
    assert_int_equal(weft_model_json(dir, "empty.json", 13, &root, &why), WEFT_E_PROTO);
    assert_int_equal(weft_model_json(dir, "list.json", 13, &root, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "list.json: is not a JSON object"));
    test_dir_free(dir);
}

static void paths_that_hold_no_model_are_refused(void **state) {
    (void)state;
    struct weft_errmsg why;
    weft_model *model = (weft_model *)&why;
    assert_int_equal(weft_model_open("/nonexistent/model", &model, &why), WEFT_E_NOTFOUND);
    assert_null(model);
    assert_int_equal(weft_model_open(test_source_path("tests/data/zoo"), &model, &why),
                     WEFT_E_NOTFOUND);
    assert_non_null(strstr(why.text, "config.json"));
    assert_int_equal(weft_model_open(test_source_path("tests/data/valid.txt"), &model, &why),
                     WEFT_E_PROTO);
    assert_int_equal(
        weft_model_open(test_source_path("models/fable-6m/model.safetensors"), &model, &why),
        WEFT_E_UNSUPPORTED);
    assert_int_equal(weft_model_open("/dev/null", &model, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "regular"));
    weft_model_free(NULL);
}

/* Pages that the system maps beside one that is read: 64 KiB of the neighbours, on either side. */
#define N_AROUND 32u

/* How many pages with bytes of `tensor` this process has mapped. */
static size_t n_resident(const struct weft_tensor *tensor) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    uint64_t entry = 0, first = (uintptr_t)tensor->data / page;
    FILE *f = fopen("/proc/self/pagemap", "re");
    assert_non_null(f);
    for (uint64_t i = first; i * page < (uintptr_t)tensor->data + tensor->bytes; i++) {
        assert_int_equal(fseek(f, (long)(i * sizeof entry), SEEK_SET), 0);
        assert_int_equal(fread(&entry, sizeof entry, 1, f), 1);
        n += entry >> 63;
    }
    (void)fclose(f);
    return n;
}

static void what_is_forgotten_is_read_again_from_the_file(void **state) {
    (void)state;
    static const char *const paths[] = {"models/fable-6m", TEST_FABLE_Q8_0};
    for (size_t i = 0; i < COUNT(paths); i++) {
        weft_model *model = must_open(paths[i]);
        const struct weft_tensor *embedding = weft_model_embedding(model);
        uint64_t hash = weft_model_hash(model);
        assert_true(n_resident(embedding) <= N_AROUND);
        assert_true(weft_model_hash(model) == hash);
        float row[256];
        weft_tensor_row_f32(embedding, 7, row);
        assert_true(n_resident(embedding) > 0);
        weft_model_forget(model, embedding->data, embedding->bytes);
        assert_int_equal(n_resident(embedding), 0);
        char other[] = "not of the file";
        weft_model_forget(model, other, sizeof other);
        assert_string_equal(other, "not of the file");
        weft_model_free(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hyper_parameters_of_the_fixtures_are_as_written),
        cmocka_unit_test(every_role_has_a_tensor_and_tied_heads_are_the_embedding),
        cmocka_unit_test(a_folder_and_its_gguf_file_hold_the_same_model),
        cmocka_unit_test(one_model_in_three_types_agrees_within_their_rounding),
        cmocka_unit_test(rope_frequencies_follow_each_rule),
        cmocka_unit_test(rows_of_every_type_convert_exactly),
        cmocka_unit_test(hash_tells_models_apart_and_ignores_where_they_lie),
        cmocka_unit_test(what_is_forgotten_is_read_again_from_the_file),
        cmocka_unit_test(every_hyper_parameter_counts_in_the_hash),
        cmocka_unit_test(options_that_are_not_there_yet_are_refused_by_name),
        cmocka_unit_test(other_compressed_tensors_are_refused_by_name),
        cmocka_unit_test(fp8_without_blocks_has_a_scale_per_matrix),
        cmocka_unit_test(gptq_may_leave_layers_out),
        cmocka_unit_test(fp8_has_two_names),
        cmocka_unit_test(compressed_tensors_are_read_from_their_groups),
        cmocka_unit_test(a_model_with_no_experts_is_a_plain_one),
        cmocka_unit_test(each_deepseek_has_defaults_of_its_own),
        cmocka_unit_test(nonsense_about_experts_is_refused),
        cmocka_unit_test(nonsense_in_config_json_is_refused),
        cmocka_unit_test(latent_attention_is_one_row_for_all_heads),
        cmocka_unit_test(nonsense_about_latents_is_refused),
        cmocka_unit_test(an_indexer_turns_halves_unless_it_says_otherwise),
        cmocka_unit_test(nonsense_about_indexers_is_refused),
        cmocka_unit_test(text_that_is_not_a_configuration_is_refused),
        cmocka_unit_test(every_spelling_of_rope_scaling_is_read),
        cmocka_unit_test(a_part_of_each_head_may_turn),
        cmocka_unit_test(the_class_counts_and_a_type_may_not_contradict_it),
        cmocka_unit_test(an_untied_head_must_be_there),
        cmocka_unit_test(folders_of_other_files_say_what_to_do),
        cmocka_unit_test(a_folder_of_models_names_one),
        cmocka_unit_test(git_lfs_pointers_are_recognised),
        cmocka_unit_test(missing_keys_have_the_defaults_of_transformers),
        cmocka_unit_test(mistral_is_a_llama_with_a_window),
        cmocka_unit_test(display_names_are_cut_at_whole_characters),
        cmocka_unit_test(integers_beyond_63_bits_are_no_hindrance),
        cmocka_unit_test(whole_numbers_convert_as_far_as_a_double_holds_them_all),
        cmocka_unit_test(content_and_not_the_name_says_what_a_path_is),
        cmocka_unit_test(a_fifo_is_refused_and_not_waited_for),
        cmocka_unit_test(small_files_are_read_within_their_bound),
        cmocka_unit_test(paths_that_hold_no_model_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
