/* config.json of the families, as real checkpoints have it: what is left out, second names, and nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside/model/arch.h"
#include "inside/model/hf/hf.h"
#include "inside/model/model_internal.h"
#include "unit/model_files.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static weft_err parse(const char *text, struct weft_model_params *p, struct weft_errmsg *why) {
    struct wefti_model_file file;
    *p = (struct weft_model_params){0};
    weft_err err = wefti_model_file_borrow("config.json", text, strlen(text), &file, why);
    if (err) return err;
    err = wefti_model_config_hf(&file, p, why);
    wefti_model_file_close(&file);
    return err;
}

static void must_parse(const char *text, struct weft_model_params *p) {
    struct weft_errmsg why;
    if (parse(text, p, &why)) fail_msg("%s: %s", text, why.text);
}

static void must_refuse(const char *text, const char *part) {
    struct weft_model_params p;
    struct weft_errmsg why = {{0}};
    assert_int_not_equal(parse(text, &p, &why), WEFT_OK);
    if (!strstr(why.text, part)) fail_msg("%s: %s, not %s", text, why.text, part);
}

/* clang-format off */
/* What a file that names nothing but the class means, by transformers' classes. */
static const struct {
    const char *class, *more;
    uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context, turns;
    float eps;
    double theta;
    bool tied;
    uint32_t experts, used, expert_ffn, shared;
    bool normalise;
} bare[] = {
    {"GptOssForCausalLM", "", 36, 2880, 64, 8, 64, 2880, 201088, 131072, 64, 1e-5f, 150000, false, 128, 4, 2880, 0, true},
    {"Glm4ForCausalLM", "", 40, 4096, 32, 2, 128, 13696, 151552, 131072, 64, 1.5625e-7f, 10000, false, 0, 0, 0, 0, false},
    {"Glm4MoeForCausalLM", ",\"head_dim\":128", 46, 4096, 96, 8, 128, 10944, 151552, 131072, 64, 1e-5f, 10000, false, 128, 8, 1408, 1408, true},
    {"Llama4ForCausalLM", "", 48, 5120, 40, 8, 128, 16384, 202048, 131072, 128, 1e-5f, 500000, false, 16, 1, 8192, 8192, false},
    {"Qwen3NextForCausalLM", "", 48, 2048, 16, 2, 256, 5632, 151936, 32768, 64, 1e-6f, 10000, false, 512, 10, 512, 512, true},
    {"Qwen3_5ForCausalLM", "", 32, 4096, 16, 4, 256, 12288, 248320, 32768, 64, 1e-6f, 10000, false, 0, 0, 0, 0, false},
    {"Qwen3_5MoeForCausalLM", "", 40, 2048, 16, 2, 256, 512, 248320, 32768, 64, 1e-6f, 10000, false, 256, 8, 512, 512, true},
    {"Ministral3ForCausalLM", "", 34, 4096, 32, 8, 128, 14336, 131072, 262144, 128, 1e-5f, 1e6, false, 0, 0, 0, 0, false},
    {"GraniteMoeHybridForCausalLM", ",\"num_hidden_layers\":2,\"layer_types\":[\"mamba\",\"attention\"]", 2, 4096, 32, 32, 128, 11008, 32000, 2048, 128, 1e-6f, 10000, false, 8, 2, 11008, 1024, true},
    {"NemotronHForCausalLM", ",\"hybrid_override_pattern\":\"M*E-\"", 4, 4096, 32, 8, 128, 21504, 131072, 4096, 128, 1e-5f, 10000, false, 8, 2, 7688, 7688, true},
    {"FalconH1ForCausalLM", "", 32, 4096, 32, 8, 128, 14336, 128000, 8192, 128, 1e-5f, 100000, false, 0, 0, 0, 0, false},
    {"Lfm2ForCausalLM", "", 32, 2560, 32, 8, 80, 8192, 65536, 128000, 80, 1e-5f, 1e6, true, 0, 0, 0, 0, false},
    {"Lfm2MoeForCausalLM", "", 32, 2048, 32, 8, 64, 7168, 65536, 128000, 64, 1e-5f, 1e6, true, 32, 4, 1792, 0, true},
    {"Ernie4_5ForCausalLM", "", 18, 1024, 16, 2, 128, 3072, 103424, 131072, 128, 1e-5f, 500000, true, 0, 0, 0, 0, false},
    {"Ernie4_5_MoeForCausalLM", "", 28, 2560, 20, 4, 128, 12288, 103424, 131072, 128, 1e-5f, 500000, true, 64, 6, 1536, 3072, true},
    {"MiniMaxM2ForCausalLM", "", 62, 3072, 48, 8, 128, 1536, 200064, 196608, 128, 1e-6f, 5e6, false, 256, 8, 1536, 0, true},
    {"HunYuanDenseV1ForCausalLM", "", 32, 4096, 32, 32, 128, 11008, 290943, 2048, 128, 1e-5f, 10000, false, 0, 0, 0, 0, false},
    {"HunYuanMoEV1ForCausalLM", "", 32, 4096, 32, 32, 128, 11008, 290943, 2048, 128, 1e-5f, 10000, false, 1, 1, 11008, 11008, true},
    {"Exaone4ForCausalLM", "", 32, 4096, 32, 32, 128, 16384, 102400, 2048, 128, 1e-5f, 10000, false, 0, 0, 0, 0, false},
    {"Cohere2ForCausalLM", "", 40, 8192, 64, 64, 128, 22528, 256000, 8192, 128, 1e-5f, 10000, true, 0, 0, 0, 0, false},
    {"Starcoder2ForCausalLM", "", 30, 3072, 24, 2, 128, 12288, 49152, 4096, 128, 1e-5f, 10000, true, 0, 0, 0, 0, false},
    {"GPTNeoXForCausalLM", "", 44, 6144, 64, 64, 96, 24576, 50432, 2048, 24, 1e-5f, 10000, false, 0, 0, 0, 0, false},
    {"StableLmForCausalLM", "", 32, 2560, 32, 32, 80, 6912, 50304, 4096, 20, 1e-5f, 10000, false, 0, 0, 0, 0, false},
    {"SeedOssForCausalLM", "", 64, 4096, 80, 8, 128, 27648, 155136, 524288, 128, 1e-6f, 10000, false, 0, 0, 0, 0, false},
    {"AfmoeForCausalLM", "", 32, 2048, 16, 16, 128, 6144, 200192, 16384, 128, 1e-5f, 10000, false, 64, 6, 1408, 2816, true},
    {"Gemma4ForCausalLM", "", 30, 2304, 8, 4, 512, 9216, 262144, 131072, 512, 1e-6f, 1e6, true, 0, 0, 0, 0, false},
    {"Gemma4ForConditionalGeneration", ",\"text_config\":{}", 30, 2304, 8, 4, 512, 9216, 262144, 131072, 512, 1e-6f, 1e6, true, 0, 0, 0, 0, false},
    {"Dots1ForCausalLM", ",\"n_routed_experts\":128,\"num_experts_per_tok\":6", 62, 4608, 32, 32, 144, 10944, 152064, 2048, 144, 1e-6f, 10000, false, 128, 6, 1408, 0, false},
};
/* clang-format on */

static void what_is_left_out_has_the_familys_value(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(bare); i++) {
        struct weft_model_params p;
        char text[256];
        (void)snprintf(text, sizeof text, "{\"architectures\":[\"%s\"]%s}", bare[i].class,
                       bare[i].more);
        must_parse(text, &p);
        const uint32_t got[] = {p.n_layers,        p.n_hidden,      p.n_heads,    p.n_kv_heads,
                                p.head_dim,        p.n_ffn,         p.n_vocab,    p.n_context,
                                p.rope_dim,        p.moe.n_experts, p.moe.n_used, p.moe.n_ffn,
                                p.moe.n_ffn_shared},
                       want[] = {bare[i].layers,   bare[i].hidden,   bare[i].heads,
                                 bare[i].kv_heads, bare[i].head_dim, bare[i].ffn,
                                 bare[i].vocab,    bare[i].context,  bare[i].turns,
                                 bare[i].experts,  bare[i].used,     bare[i].expert_ffn,
                                 bare[i].shared};
        for (size_t k = 0; k < COUNT(got); k++) {
            if (got[k] != want[k])
                fail_msg("%s: value %zu is %u, not %u", bare[i].class, k, got[k], want[k]);
        }
        if (p.rms_eps != bare[i].eps || p.rope_theta != bare[i].theta || p.tied != bare[i].tied ||
            p.moe.normalise != bare[i].normalise)
            fail_msg("%s: epsilon %g, base %g, tied %d, normalised %d", bare[i].class,
                     (double)p.rms_eps, p.rope_theta, p.tied, p.moe.normalise);
    }
}

#define CLASS(name) "{\"architectures\":[\"" name "\"],"

static void other_settings_have_defaults_too(void **state) {
    (void)state;
    struct weft_model_params p;
    must_parse(CLASS("GptOssForCausalLM") "\"num_hidden_layers\":4}", &p);
    assert_int_equal(p.rope_scaling, WEFT_ROPE_YARN);
    assert_true(p.rope_factor == 32 && p.block.yarn_smooth);
    assert_int_equal(p.window, 128);
    assert_int_equal(p.no_window[0], 0xa);
    /* An object of the newer spelling is all that is said; its base may still be missing. */
    must_parse(CLASS("GptOssForCausalLM") "\"rope_parameters\":{\"rope_type\":\"default\"}}", &p);
    assert_int_equal(p.rope_scaling, WEFT_ROPE_NONE);
    assert_true(p.rope_theta == 150000);
    must_parse(CLASS("GptOssForCausalLM") "\"rope_scaling\":null}", &p);
    assert_int_equal(p.rope_scaling, WEFT_ROPE_NONE);
    must_parse(CLASS("Ministral3ForCausalLM") "\"hidden_size\":64}", &p);
    assert_int_equal(p.rope_scaling, WEFT_ROPE_YARN);
    assert_true(p.rope_original_context == 16384 && p.block.q_beta == 0.1f);
    must_parse(CLASS("Cohere2ForCausalLM") "\"num_hidden_layers\":4}", &p);
    assert_true(p.logit_scale == 0.0625f);
    assert_int_equal(p.no_window[0], 8);
    must_parse(CLASS("SeedOssForCausalLM") "\"vocab_size\":64}", &p);
    assert_true(p.qkv_bias && !p.block.o_bias);
    must_parse(CLASS("AfmoeForCausalLM") "\"num_hidden_layers\":4}", &p);
    assert_int_equal(p.window, 1024);
    assert_true(p.embed_scale == 1 && p.moe.sigmoid);
    assert_int_equal(p.no_experts[0], 1);
    must_parse(CLASS("Glm4MoeForCausalLM") "\"num_hidden_layers\":4,\"head_dim\":128}", &p);
    assert_false(p.qk_norm);
    assert_int_equal(p.no_experts[0], 1);
    must_parse(CLASS("FalconH1ForCausalLM") "\"num_hidden_layers\":4}", &p);
    assert_int_equal(p.recurrent.head_dim, 8);
    assert_int_equal(p.recurrent.norm_groups, 0);
    must_parse(
        CLASS("GraniteMoeHybridForCausalLM") "\"layer_types\":[\"mamba\",\"attention\"],"
                                             "\"num_hidden_layers\":2,\"mamba_d_head\":\"auto\"}",
        &p);
    assert_int_equal(p.recurrent.layers[0], 1);
    assert_int_equal(p.recurrent.head_dim, 64);
    /* Without a list all layers are recurrent, which is no model here. */
    must_refuse(CLASS("GraniteMoeHybridForCausalLM") "\"num_hidden_layers\":2}", "attention");
    must_parse(CLASS("Qwen3NextForCausalLM") "\"num_hidden_layers\":4}", &p);
    assert_int_equal(p.recurrent.layers[0], 7);
    must_parse(CLASS("Lfm2ForCausalLM") "\"num_hidden_layers\":4}", &p);
    assert_int_equal(p.recurrent.kind, WEFT_MODEL_ATTENTION_ALONE);
}

static void second_names_are_known(void **state) {
    (void)state;
    struct weft_model_params p;
    /* dots.llm1 has the method's name for the scores', Hunyuan-A13B no numbers where it has no groups. */
    must_parse(CLASS("Dots1ForCausalLM") "\"n_routed_experts\":128,\"num_experts_per_tok\":6,"
                                         "\"scoring_func\":\"noaux_tc\"}",
               &p);
    assert_true(p.moe.sigmoid && p.moe.score_bias);
    must_parse(
        CLASS("HunYuanMoEV1ForCausalLM") "\"num_experts\":64,\"moe_topk\":8,\"n_group\":false,"
                                         "\"topk_group\":false,\"routed_scaling_factor\":"
                                         "false}",
        &p);
    assert_true(p.moe.scale == 1 && p.moe.n_groups == 1 && p.moe.n_used == 8);
    /* As the first LFM2 checkpoints have it. */
    must_parse(CLASS("Lfm2ForCausalLM") "\"num_hidden_layers\":16,\"hidden_size\":2048,"
                                        "\"block_ff_dim\":12288,\"block_multiple_of\":256,\"block_"
                                        "ffn_dim_multiplier\":1.0,"
                                        "\"tie_embedding\":true,\"theta\":1000000.0,\"full_attn_"
                                        "idxs\":[2,5,8,10,12,14]}",
               &p);
    assert_int_equal(p.n_ffn, 8192);
    assert_int_equal(p.recurrent.layers[0],
                     0xffff & ~(1 << 2 | 1 << 5 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 14));
    must_refuse(CLASS("Lfm2ForCausalLM") "\"full_attn_idxs\":[99]}", "full_attn_idxs");
    /* Nemotron-H: a name per layer in newer files, another name of the heads' size in older ones. */
    must_parse(CLASS("NemotronHForCausalLM") "\"layers_block_type\":[\"mamba\",\"moe\","
                                             "\"attention\",\"mlp\"],\"attention_head_dim\":64,"
                                             "\"rms_norm_eps\":0.1}",
               &p);
    assert_int_equal(p.n_layers, 4);
    assert_int_equal(p.head_dim, 64);
    assert_true(p.rms_eps == 1e-5f); /* of its own key */
    assert_int_equal(p.recurrent.layers[0], 1);
    assert_int_equal(p.recurrent.no_attention[0], 0xb);
    must_parse(CLASS("NemotronHForCausalLM") "\"layer_types\":[\"linear_attention\",\"moe\","
                                             "\"full_attention\"],\"n_group\":4,\"topk_group\":2}",
               &p);
    assert_true(p.moe.n_groups == 4 && p.moe.n_groups_used == 2 && p.moe.by_two);
    must_refuse(CLASS("NemotronHForCausalLM") "\"layers_block_type\":[\"conv\"]}",
                "layers_block_type");
    must_refuse(CLASS("NemotronHForCausalLM") "\"num_hidden_layers\":3}",
                "hybrid_override_pattern");
    must_parse(CLASS("GraniteMoeHybridForCausalLM") "\"num_hidden_layers\":2,\"layers_block_type\":"
                                                    "[\"mamba\",\"attention\"]}",
               &p);
    assert_int_equal(p.recurrent.layers[0], 1);
    must_parse(
        CLASS("Ernie4_5_MoeForCausalLM") "\"num_hidden_layers\":4,\"num_experts\":6,"
                                         "\"num_experts_per_tok\":2,\"moe_layer_end_index\":-1}",
        &p);
    assert_true(p.moe.n_experts == 6 && p.moe.n_used == 2);
    assert_int_equal(p.no_experts[0], 1);
    must_parse(CLASS("GptOssForCausalLM") "\"num_experts\":32}", &p);
    assert_int_equal(p.moe.n_experts, 32);
}

/* The newer spelling, flat or by kinds of layers. */
static void rope_parameters_may_be_given_by_kind(void **state) {
    (void)state;
    struct weft_model_params p;
    must_parse(CLASS("Exaone4ForCausalLM") "\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
                                           "\"default\",\"rope_theta\":777},\"sliding_attention\":{"
                                           "\"rope_type\":\"default\","
                                           "\"rope_theta\":777}},\"dtype\":\"bfloat16\"}",
               &p);
    assert_true(p.rope_theta == 777);
    must_parse(CLASS("Lfm2ForCausalLM") "\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
                                        "\"default\",\"rope_theta\":777},\"conv\":null}}",
               &p);
    assert_true(p.rope_theta == 777);
    must_parse(CLASS("Glm4ForCausalLM") "\"rope_parameters\":{\"rope_type\":\"default\","
                                        "\"rope_theta\":777,\"partial_rotary_factor\":0.25},\"rope_"
                                        "theta\":5}",
               &p);
    assert_true(p.rope_theta == 777);
    assert_int_equal(p.rope_dim, 32);
    must_parse(CLASS("Lfm2ForCausalLM") "\"rope_parameters\":{}}", &p);
    assert_true(p.rope_theta == 1e6);
    must_refuse(
        CLASS("Exaone4ForCausalLM") "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":"
                                    "777},\"sliding_attention\":{\"rope_theta\":10000}}}",
        "rope_parameters");
}

static void llama4_lists_its_layers(void **state) {
    (void)state;
    struct weft_model_params p;
    must_parse(
        CLASS("Llama4ForCausalLM") "\"num_hidden_layers\":8,\"no_rope_layers\":[],"
                                   "\"attn_temperature_tuning\":4,\"interleave_moe_layer_step\":2}",
        &p);
    assert_int_equal(p.no_rope[0], 0x88);
    assert_int_equal(p.no_window[0], 0x88);
    assert_int_equal(p.no_experts[0], 0x55);
    assert_int_equal(p.block.q_step, 8192);
    must_parse(
        CLASS(
            "Llama4ForCausalLM") "\"num_hidden_layers\":4,\"moe_layers\":[0,3],"
                                 "\"attn_temperature_tuning\":0,\"layer_types\":[\"full_"
                                 "attention\","
                                 "\"chunked_attention\",\"chunked_attention\",\"full_attention\"]}",
        &p);
    assert_int_equal(p.no_experts[0], 6);
    assert_int_equal(p.no_window[0], 9);
    assert_int_equal(p.no_rope[0], 8);
    assert_int_equal(p.block.q_step, 0);
    must_refuse(CLASS("Llama4ForCausalLM") "\"moe_layers\":[48]}", "moe_layers");
    must_refuse(CLASS("Llama4ForCausalLM") "\"layer_types\":[]}", "layer_types");
}

/* Two kinds of layers, and what the last ones share. */
static void gemma_4s_layers_are_not_alike(void **state) {
    (void)state;
    struct weft_model_params p;
    must_parse(CLASS("Gemma4ForCausalLM") "\"num_hidden_layers\":8}", &p);
    assert_int_equal(p.no_window[0], 0xa0); /* the sixth, and the last one */
    assert_true(p.unlike.local_head_dim == 256 && p.unlike.local_kv_heads == 4);
    assert_true(p.unlike.rope_pairs == 64 && p.attn_scale == 1);
    assert_true(p.unlike.layer_input == 256 && p.unlike.n_vocab_input == 262144);
    assert_int_equal(weft_model_head_dim(&p, 0), 256);
    assert_int_equal(weft_model_head_dim(&p, 5), 512);
    must_parse(CLASS("Gemma4ForCausalLM") "\"num_hidden_layers\":6,\"num_kv_shared_layers\":3,"
                                          "\"use_double_wide_mlp\":true,\"layer_types\":["
                                          "\"sliding_attention\",\"full_attention\",\"sliding_"
                                          "attention\",\"full_attention\",\"sliding_attention\","
                                          "\"full_attention\"]}",
               &p);
    static const uint32_t sources[] = {0, 1, 2, 1, 2, 1};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(weft_model_kv_layer(&p, i), sources[i]);
        assert_int_equal(weft_model_ffn(&p, i), i < 3 ? 9216 : 18432);
    }
    must_parse(
        CLASS("Gemma4ForCausalLM") "\"num_hidden_layers\":6,\"attention_k_eq_v\":true,"
                                   "\"num_global_key_value_heads\":2,\"hidden_size_per_layer_"
                                   "input\":0,\"enable_moe_block\":true,\"num_experts\":8,"
                                   "\"top_k_experts\":2,\"moe_intermediate_size\":96}",
        &p);
    assert_true(p.n_kv_heads == 2 && p.unlike.local_kv_heads == 4);
    assert_int_equal(p.unlike.keys_as_values[0], 1u << 5);
    assert_true(p.unlike.ffn_beside && p.moe.n_experts == 8 && p.moe.n_used == 2);
    assert_true(p.moe.n_ffn == 96 && p.moe.n_ffn_shared == 9216 && p.moe.normalise);
    assert_int_equal(p.unlike.layer_input, 0);
}

static void gemma_4s_contradictions_are_refused(void **state) {
    (void)state;
#define GEMMA CLASS("Gemma4ForCausalLM") "\"num_hidden_layers\":6,"
    static const char *const cases[][2] = {
        {"\"num_kv_shared_layers\":6}", "6 of 6 layers share"},
        {"\"num_kv_shared_layers\":4294967294}", "layers share"},
        {"\"num_kv_shared_layers\":1}", "layer 5 shares keys and values"},
        {"\"num_kv_shared_layers\":-1}", "num_kv_shared_layers"},
        {"\"global_head_dim\":513}", "head dimension"},
        {"\"global_head_dim\":15}", "it must be even"},
        {"\"head_dim\":15}", "head dimension of layers with a window is 15"},
        {"\"head_dim\":0}", "\"head_dim\" is 0"},
        {"\"head_dim\":1024}", "head dimension of layers with a window is 1024"},
        {"\"num_key_value_heads\":3}", "not a multiple"},
        {"\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3}", "not a multiple of 3"},
        {"\"attention_k_eq_v\":1}", "attention_k_eq_v"},
        {"\"sliding_window\":null}", "sliding_window"},
        {"\"sliding_window\":0}", "sliding_window"},
        {"\"layer_types\":[\"full_attention\"]}", "layer_types"},
        {"\"use_bidirectional_attention\":\"all\"}", "use_bidirectional_attention"},
        {"\"hidden_size_per_layer_input\":1048576}", "size of a layer's embeddings"},
        {"\"vocab_size_per_layer_input\":0}", "tokens with an embedding for each layer"},
        {"\"enable_moe_block\":true}", "experts"},
        {"\"enable_moe_block\":\"yes\"}", "enable_moe_block"},
        {"\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\"}}}",
         "an object per kind of layer"},
        {"\"rope_parameters\":{\"sliding_attention\":{},\"full_attention\":{\"rope_type\":"
         "\"proportional\",\"partial_rotary_factor\":0.001}}}",
         "number of pairs that turn is 0"},
        {"\"rope_parameters\":{\"sliding_attention\":{},\"full_attention\":{\"rope_type\":"
         "\"proportional\",\"partial_rotary_factor\":1.5}}}",
         "partial_rotary_factor"},
        {"\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"proportional\"},"
         "\"full_attention\":{}}}",
         "layers with a window"},
        {"\"final_logit_softcapping\":-1}", "soft caps"},
        {"\"intermediate_size\":1048576,\"use_double_wide_mlp\":true,\"num_kv_shared_layers\":2,"
         "\"layer_types\":[\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
         "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\"]}",
         "feed-forward size of wide layers"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "%s%s", GEMMA, cases[i][0]);
        must_refuse(text, cases[i][1]);
    }
}

static void contradictions_are_refused(void **state) {
    (void)state;
    struct weft_model_params p;
    must_parse(CLASS("NemotronHForCausalLM") "\"hybrid_override_pattern\":\"M*E\","
                                             "\"moe_latent_size\":1024}",
               &p);
    assert_int_equal(p.moe.n_latent, 1024);
    must_refuse(CLASS("NemotronHForCausalLM") "\"hybrid_override_pattern\":\"M*E\","
                                              "\"moe_latent_size\":4097}",
                "width of what experts read is 4097");
    must_refuse(CLASS("Qwen3NextForCausalLM") "\"moe_latent_size\":64}", "another width");
    must_refuse(CLASS("NemotronHForCausalLM") "\"hybrid_override_pattern\":\"M*E-\","
                                              "\"num_hidden_layers\":4,"
                                              "\"mamba_hidden_act\":\"gelu\"}",
                "\"mamba_hidden_act\": gelu is not supported");
    must_refuse(CLASS("FalconH1ForCausalLM") "\"hidden_act\":\"gelu\"}", "hidden_act");
    must_refuse(CLASS("Qwen3NextForCausalLM") "\"hidden_act\":\"relu2\"}", "hidden_act");
    must_refuse(CLASS("FalconH1ForCausalLM") "\"mamba_d_head\":7}", "mamba_d_head");
    must_refuse(CLASS("FalconH1ForCausalLM") "\"mamba_rms_norm\":true}", "mamba_norm_before_gate");
    must_refuse(CLASS("GraniteMoeHybridForCausalLM") "\"mamba_n_heads\":100,\"mamba_d_head\":64}",
                "mamba_n_heads");
    must_refuse(CLASS("Cohere2ForCausalLM") "\"sliding_window\":null}", "sliding_window");
    must_refuse(CLASS("Dots1ForCausalLM") "\"num_experts_per_tok\":2}", "experts");
    must_refuse(CLASS("NemotronHForCausalLM") "\"num_hidden_layers\":3,"
                                              "\"hybrid_override_pattern\":\"M*\"}",
                "hybrid_override_pattern");
}

/* As json.dump writes them. */
static void numbers_that_json_has_not_are_words(void **state) {
    (void)state;
    struct weft_model_params p;
    must_parse(CLASS("FalconH1ForCausalLM") "\"time_step_limit\":[0.5,Infinity],"
                                            "\"of_no_matter\":[NaN,-Infinity,\"Na\\\"NaN\"]}",
               &p);
    assert_true(p.recurrent.dt_min == 0.5f && isinf(p.recurrent.dt_max));
    must_parse(CLASS("FalconH1ForCausalLM") "\"time_step_limit\":[0,{\"__float__\":\"Infinity\"}]}",
               &p);
    assert_true(isinf(p.recurrent.dt_max));
    must_refuse(CLASS("FalconH1ForCausalLM") "\"time_step_limit\":[NaN,Infinity]}",
                "time_step_limit");
    must_refuse(CLASS("FalconH1ForCausalLM") "\"time_step_limit\":[0,-Infinity]}",
                "time_step_limit");
    must_refuse(CLASS("FalconH1ForCausalLM") "\"rope_theta\":NaN}",
                "\"rope_theta\" is not a finite number");
    must_refuse(CLASS("FalconH1ForCausalLM") "\"hidden_size\":Infinity}",
                "\"hidden_size\" is not a whole number");
    must_refuse("{NaN:1}", "config.json");
    must_refuse("{\"a\":NaNa}", "not valid JSON");
}

/* Models that read more than text: the language model's part, whatever it is. */
static void language_parts_of_larger_models_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text, *arch;
        uint32_t hidden, n_layers;
        double theta;
    } cases[] = {
        {CLASS("Llama4ForConditionalGeneration") "\"model_type\":\"llama4\",\"text_config\":{"
                                                 "\"model_type\":\"llama4_text\",\"hidden_size\":"
                                                 "512,\"num_hidden_layers\":4}}",
         "llama4", 512, 4, 500000},
        {CLASS("Mistral3ForConditionalGeneration") "\"text_config\":{\"model_type\":"
                                                   "\"ministral3\",\"num_hidden_layers\":2},"
                                                   "\"vision_config\":{}}",
         "mistral3", 4096, 2, 1e6},
        {CLASS("Qwen3_5ForConditionalGeneration") "\"text_config\":{\"rope_parameters\":{"
                                                  "\"rope_type\":\"default\",\"rope_theta\":1e7,"
                                                  "\"mrope_section\":[11,11,10]}}}",
         "qwen35", 4096, 32, 1e7},
        {"{\"model_type\":\"qwen3_5_moe\",\"text_config\":{\"model_type\":"
         "\"qwen3_5_moe_text\"}}",
         "qwen35moe", 2048, 40, 10000},
        {CLASS("Glm4vForConditionalGeneration") "\"text_config\":{\"model_type\":"
                                                "\"glm4v_text\",\"partial_rotary_factor\":0.5}}",
         "glm4", 4096, 40, 10000},
        /* The first files of GLM-4.1V have all keys beside each other. */
        {CLASS("Glm4vForConditionalGeneration") "\"model_type\":\"glm4v\",\"hidden_size\":256,"
                                                "\"rope_scaling\":{\"type\":\"default\",\"mrope_"
                                                "section\":[8,12,12]}}",
         "glm4", 256, 40, 10000},
        {CLASS("Glm4vMoeForConditionalGeneration") "\"text_config\":{\"head_dim\":128}}", "glm4moe",
         4096, 46, 10000},
        {CLASS(
             "Lfm2VlForConditionalGeneration") "\"model_type\":\"lfm2-vl\",\"text_config\":{"
                                               "\"model_type\":\"lfm2\",\"num_hidden_layers\":3}}",
         "lfm2", 2560, 3, 1e6},
        {CLASS("Cohere2VisionForConditionalGeneration") "\"text_config\":{\"model_type\":"
                                                        "\"cohere2\",\"num_hidden_layers\":3}}",
         "cohere2", 8192, 3, 10000},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_model_params p;
        must_parse(cases[i].text, &p);
        assert_true(p.wrapped);
        assert_string_equal(p.arch, cases[i].arch);
        assert_int_equal(p.n_hidden, cases[i].hidden);
        assert_int_equal(p.n_layers, cases[i].n_layers);
        assert_true(p.rope_theta == cases[i].theta);
    }
    must_refuse(CLASS("Mistral3ForConditionalGeneration") "\"text_config\":7}", "text_config");
    must_refuse(CLASS("Mistral3ForConditionalGeneration") "\"text_config\":{\"model_type\":"
                                                          "\"bert\"}}",
                "bert");
    must_refuse(CLASS("Mistral3ForConditionalGeneration") "\"text_config\":{\"model_type\":"
                                                          "\"gemma3\"}}",
                "gemma3");
}

/* --------------------------------------------------------------------- norms of single heads --- */

/* A folder of tensors in F32, "name rows cols" or "name n" each, after a config.json. */
static char *folder_of(const char *config, const char *const *tensors, size_t n) {
    struct weft_buf header, file;
    size_t at = 0;
    char *dir = test_dir_new();
    weft_buf_init(&header, 1 << 20);
    for (size_t i = 0; i < n; i++) {
        char name[96];
        unsigned rows = 0, cols = 0;
        const int n_read = sscanf(tensors[i], "%95s %u %u", name, &rows, &cols);
        const size_t bytes = 4 * (size_t)rows * (n_read == 3 ? cols : 1);
        weft_buf_printf(&header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%u", i ? "," : "{", name,
                        rows);
        if (n_read == 3) weft_buf_printf(&header, ",%u", cols);
        weft_buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes);
        at += bytes;
    }
    weft_buf_add_str(&header, "}");
    st_build(&file, weft_buf_cstr(&header), at);
    test_dir_write(dir, "config.json", config, strlen(config));
    test_dir_write(dir, "model.safetensors", weft_buf_cstr(&file), file.len);
    weft_buf_fini(&header);
    weft_buf_fini(&file);
    return dir;
}

static const char stable_config[] =
    CLASS("StableLmForCausalLM") "\"hidden_size\":32,\"num_hidden_layers\":1,\"vocab_size\":8,"
                                 "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                                 "\"intermediate_size\":16,"
                                 "\"partial_rotary_factor\":0.5,\"qk_layernorm\":true,\"use_"
                                 "parallel_residual\":true}";

#define LAYER "model.layers.0."
static const char *const stable_tensors[] = {
    "model.embed_tokens.weight 8 32",
    "lm_head.weight 8 32",
    "model.norm.weight 32",
    "model.norm.bias 32",
    LAYER "input_layernorm.weight 32",
    LAYER "input_layernorm.bias 32",
    LAYER "self_attn.q_proj.weight 32 32",
    LAYER "self_attn.k_proj.weight 16 32",
    LAYER "self_attn.v_proj.weight 16 32",
    LAYER "self_attn.o_proj.weight 32 32",
    LAYER "mlp.gate_proj.weight 16 32",
    LAYER "mlp.up_proj.weight 16 32",
    LAYER "mlp.down_proj.weight 32 16",
    LAYER "self_attn.q_layernorm.norms.3.weight 8",
    LAYER "self_attn.k_layernorm.norms.0.weight 8",
    LAYER "self_attn.q_layernorm.norms.0.weight 8",
    LAYER "self_attn.q_layernorm.norms.2.weight 8",
    LAYER "self_attn.q_layernorm.norms.1.weight 8",
    LAYER "self_attn.k_layernorm.norms.1.weight 8",
};

static void norms_of_single_heads_are_one_vector(void **state) {
    (void)state;
    char *dir = folder_of(stable_config, stable_tensors, COUNT(stable_tensors));
    struct weft_errmsg why;
    weft_model *model;
    if (weft_model_open(dir, &model, &why)) fail_msg("%s", why.text);
    assert_true(weft_model_params(model)->block.parallel);
    const struct weft_model_layer *layer = weft_model_layers(model);
    assert_non_null(layer->q_norm);
    assert_int_equal(layer->q_norm->dims[0], 32);
    assert_int_equal(layer->k_norm->dims[0], 16);
    assert_null(layer->ffn_norm);
    float all[32], first;
    weft_tensor_row_f32(layer->q_norm, 0, all);
    /* Heads 3, k's 0, 0, 2 and 1 follow each other in the file, whose bytes are a pattern. */
    size_t at = 4 * (8 * 32 * 2 + 32 * 4 + 32 * 32 * 2 + 16 * 32 * 2 + 16 * 32 * 3);
    unsigned char bytes[4];
    for (size_t i = 0; i < 4; i++)
        bytes[i] = (unsigned char)((at + 2 * 8 * 4 + i) * 7 % 61);
    memcpy(&first, bytes, sizeof first);
    assert_true(all[0] == first);
    for (size_t i = 0; i < 4; i++)
        bytes[i] = (unsigned char)((at + i) * 7 % 61);
    memcpy(&first, bytes, sizeof first);
    assert_true(all[24] == first);
    weft_model_free(model);
    test_dir_free(dir);
    /* Without the last one. */
    dir = folder_of(stable_config, stable_tensors, COUNT(stable_tensors) - 1);
    assert_int_equal(weft_model_open(dir, &model, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "norms of 1 heads of k; there are 2 heads"));
    test_dir_free(dir);
    /* A size that the configuration does not mention. */
    char *bare_text = strdup(stable_config);
    assert_non_null(bare_text);
    memcpy(strstr(bare_text, "vocab_size"), "vocab_sise", strlen("vocab_size"));
    dir = folder_of(bare_text, stable_tensors, COUNT(stable_tensors));
    assert_int_equal(weft_model_open(dir, &model, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "config.json leaves out \"vocab_size\" (50304)"));
    test_dir_free(dir);
    free(bare_text);
    /* Norms that the configuration does not mention. */
    char *text = strdup(stable_config);
    assert_non_null(text);
    memcpy(strstr(text, "true"), "null", 4);
    dir = folder_of(text, stable_tensors, COUNT(stable_tensors));
    assert_int_equal(weft_model_open(dir, &model, &why), WEFT_E_UNSUPPORTED);
    test_dir_free(dir);
    free(text);
}

#define SMALL_NEMOTRON                                                                             \
    "\"vocab_size\":8,\"hidden_size\":32,\"intermediate_size\":32,\"num_attention_heads\":2,"      \
    "\"num_key_value_heads\":2,\"attention_head_dim\":16,\"mamba_num_heads\":8,\"mamba_head_"      \
    "dim\":8,"

/* Of a tensor that does not fit, config.json may be why; but not by what it says under another name, or of experts that
 * the model does not have. */
static void what_is_said_otherwise_is_not_missed(void **state) {
    (void)state;
    static const struct {
        const char *config, *missed, *said;
    } cases[] = {
        {CLASS("NemotronHForCausalLM") SMALL_NEMOTRON "\"hybrid_override_pattern\":\"M*-\"}",
         "\"ssm_state_size\" (128)", "expert"},
        {CLASS("NemotronHForCausalLM") SMALL_NEMOTRON "\"hybrid_override_pattern\":\"M*E\"}",
         "\"n_routed_experts\" (8)", "\"head_dim\""},
        {CLASS("Lfm2ForCausalLM") "\"vocab_size\":8,\"block_ff_dim\":96}", "\"hidden_size\" (2560)",
         "intermediate_size"},
        {CLASS("Qwen3_5ForCausalLM") "\"vocab_size\":8,\"num_hidden_layers\":4,\"hidden_size\":32,"
                                     "\"intermediate_size\":32,\"num_attention_heads\":2,"
                                     "\"num_key_value_heads\":2,\"max_position_embeddings\":64,"
                                     "\"rope_parameters\":{\"partial_rotary_factor\":0.25}}",
         "\"head_dim\" (256)", "partial_rotary_factor"},
    };
    static const char *const tensors[] = {"model.norm.weight 32"};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *dir = folder_of(cases[i].config, tensors, COUNT(tensors));
        struct weft_errmsg why;
        weft_model *model;
        assert_int_equal(weft_model_open(dir, &model, &why), WEFT_E_PROTO);
        print_message("    %s\n", why.text);
        assert_non_null(strstr(why.text, cases[i].missed));
        assert_null(strstr(why.text, cases[i].said));
        test_dir_free(dir);
    }
}

static void norms_of_heads_that_are_not_there_are_refused(void **state) {
    (void)state;
    struct weft_model_params p;
    must_refuse(CLASS("Cohere2ForCausalLM") "\"use_qk_norm\":true}", "use_qk_norm");
    must_refuse(CLASS("GPTNeoXForCausalLM") "\"qk_layernorm\":true}", "qk_layernorm");
    must_refuse(CLASS("SeedOssForCausalLM") "\"use_qk_norm\":true}", "use_qk_norm");
    must_parse(CLASS("MiniMaxM2ForCausalLM") "\"use_qk_norm\":false}", &p);
    assert_false(p.qk_norm || p.qk_norm_all);
    must_parse(CLASS("HunYuanDenseV1ForCausalLM") "\"use_qk_norm\":false}", &p);
    assert_false(p.qk_norm || p.qk_norm_all);
    must_parse(CLASS("Glm4MoeForCausalLM") "\"head_dim\":128,\"use_qk_norm\":true}", &p);
    assert_true(p.qk_norm);
    must_parse(
        CLASS("GPTNeoXForCausalLM") "\"attention_bias\":false,\"use_parallel_residual\":false}",
        &p);
    assert_false(p.qkv_bias || p.block.o_bias || p.block.parallel);
}

/* What real folders have beside the model: layers that guess further tokens, under names of their own. */
static void layers_that_guess_are_left_out(void **state) {
    (void)state;
    static const struct {
        const char *type, *name;
        bool stays;
    } cases[] = {
        {"ernie4_5_moe", "model.mtp_block.0.mlp.gate_proj.weight", false},
        {"ernie4_5_moe", "model.mtp_emb_norm.0.weight", false},
        {"ernie4_5_moe", "model.mtp_hidden_norm.0.weight", false},
        {"ernie4_5_moe", "model.mtp_linear_proj.0.weight", false},
        {"ernie4_5_moe", "model.layers.0.mlp.gate_proj.weight", true},
        {"nemotron_h", "mtp.layers.0.eh_proj.weight", false},
        {"nemotron_h", "backbone.layers.0.mixer.q_proj.weight", true},
        {"qwen3_next", "mtp.fc.weight", false},
        {"qwen3_5_moe_text", "mtp.layers.0.mlp.gate.weight", false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct wefti_model_arch *arch = wefti_model_arch_of_type(cases[i].type);
        char *name;
        assert_non_null(arch);
        assert_int_equal(wefti_model_rename_one(arch, WEFT_MODEL_HF, cases[i].name, &name),
                         WEFT_OK);
        if ((name != NULL) != cases[i].stays) fail_msg("%s", cases[i].name);
        free(name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_out_has_the_familys_value),
        cmocka_unit_test(other_settings_have_defaults_too),
        cmocka_unit_test(layers_that_guess_are_left_out),
        cmocka_unit_test(second_names_are_known),
        cmocka_unit_test(rope_parameters_may_be_given_by_kind),
        cmocka_unit_test(llama4_lists_its_layers),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(gemma_4s_layers_are_not_alike),
        cmocka_unit_test(gemma_4s_contradictions_are_refused),
        cmocka_unit_test(numbers_that_json_has_not_are_words),
        cmocka_unit_test(language_parts_of_larger_models_are_read),
        cmocka_unit_test(norms_of_single_heads_are_one_vector),
        cmocka_unit_test(what_is_said_otherwise_is_not_missed),
        cmocka_unit_test(norms_of_heads_that_are_not_there_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
