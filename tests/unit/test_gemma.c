/* Keys that configurations of Gemma leave out: transformers' defaults in folders, llama.cpp's rules
 * in GGUF files; and Gemma 3 as the language part of a larger model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "inside/model/gguf/gguf.h"
#include "inside/model/hf/hf.h"
#include "unit/model_files.h"

#define GEMMA2 "\"architectures\":[\"Gemma2ForCausalLM\"],\"model_type\":\"gemma2\""
#define GEMMA3 "\"architectures\":[\"Gemma3ForCausalLM\"],\"model_type\":\"gemma3_text\""
#define WRAPPED "\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"model_type\":\"gemma3\""
#define NO_SIZES                                                                                   \
    ",\"num_attention_heads\":null,\"num_key_value_heads\":null,\"head_dim\":null,"                \
    "\"vocab_size\":null,\"max_position_embeddings\":null,\"rope_theta\":null,"                    \
    "\"tie_word_embeddings\":null,\"hidden_act\":null"

static void must_parse(const char *changes, struct weft_model_params *params) {
    struct weft_errmsg why;
    if (test_parse_config(changes, params, &why)) fail_msg("%s", why.text);
}

static void missing_keys_of_gemma_have_defaults_of_their_own(void **state) {
    (void)state;
    struct weft_model_params p;
    must_parse("{" GEMMA2 NO_SIZES ",\"hidden_size\":2304}", &p);
    assert_int_equal(p.n_heads, 8);
    assert_int_equal(p.n_kv_heads, 4);
    assert_int_equal(p.head_dim, 256);
    assert_int_equal(p.n_vocab, 256000);
    assert_int_equal(p.n_context, 8192);
    assert_true(p.tied && p.rope_theta == 10000 && p.local_rope_theta == 0);
    assert_true(p.attn_scale == 1.0f / 16 && p.attn_soft_cap == 50 && p.logit_soft_cap == 30);
    must_parse("{" GEMMA2 ",\"hidden_act\":null,\"attn_logit_softcapping\":null,"
               "\"final_logit_softcapping\":null,\"query_pre_attn_scalar\":64}",
               &p);
    assert_true(p.attn_scale == 1.0f / 8 && p.attn_soft_cap == 0 && p.logit_soft_cap == 0);
    must_parse("{" GEMMA3 NO_SIZES ",\"hidden_size\":2304}", &p);
    assert_int_equal(p.n_vocab, 262208);
    assert_int_equal(p.n_context, 131072);
    assert_true(p.tied && p.rope_theta == 1e6 && p.local_rope_theta == 10000);
    assert_true(p.attn_scale == 1.0f / 16 && p.attn_soft_cap == 0 && p.logit_soft_cap == 0);
}

static void layers_with_a_window_are_listed_or_follow_a_pattern(void **state) {
    (void)state;
    struct weft_model_params p;
    must_parse("{" GEMMA3 ",\"hidden_act\":null,\"num_hidden_layers\":3,\"sliding_window\":16,"
               "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]}",
               &p);
    assert_int_equal(p.window, 16);
    assert_int_equal(p.no_window[0], 2);
    must_parse("{" GEMMA3 ",\"hidden_act\":null,\"num_hidden_layers\":7,\"sliding_window\":16}",
               &p);
    assert_int_equal(p.no_window[0], 32);
    must_parse("{" GEMMA2 ",\"hidden_act\":null,\"num_hidden_layers\":4,\"sliding_window\":16}",
               &p);
    assert_int_equal(p.no_window[0], 10);
}

static void each_kind_of_layer_may_have_a_rope_of_its_own(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    must_parse("{" GEMMA3 ",\"hidden_act\":null,\"rope_parameters\":{\"full_attention\":{"
               "\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":5e5},"
               "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":2e4}}}",
               &p);
    assert_int_equal(p.rope_scaling, WEFT_ROPE_LINEAR);
    assert_true(p.rope_factor == 8 && p.rope_theta == 5e5 && p.local_rope_theta == 2e4);
    static const struct {
        const char *changes, *said;
        weft_err err;
    } cases[] = {
        {"{" GEMMA3 ",\"hidden_act\":null,\"rope_parameters\":{\"full_attention\":{}}}",
         "an object per kind of layer", WEFT_E_PROTO},
        {"{" GEMMA3 ",\"hidden_act\":null,\"rope_parameters\":{\"full_attention\":{},"
         "\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":2}}}",
         "layers with a window", WEFT_E_UNSUPPORTED},
        {"{\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{\"rope_theta\":5}}}",
         "one RoPE per kind of layer", WEFT_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(test_parse_config(cases[i].changes, &p, &why), cases[i].err);
        print_message("    %s\n", why.text);
        assert_non_null(strstr(why.text, cases[i].said));
    }
}

static void the_language_part_of_a_larger_model_is_read(void **state) {
    (void)state;
    struct weft_model_params p;
    struct weft_errmsg why;
    must_parse("{" WRAPPED ",\"tie_word_embeddings\":false,\"hidden_size\":7,\"vision_config\":{},"
               "\"text_config\":{\"hidden_size\":2560,\"intermediate_size\":10240,"
               "\"num_hidden_layers\":34,\"sliding_window\":1024,"
               "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}}",
               &p);
    assert_string_equal(p.arch, "gemma3");
    assert_true(p.wrapped && !p.tied);
    assert_int_equal(p.n_hidden, 2560);
    assert_int_equal(p.n_layers, 34);
    assert_int_equal(p.window, 1024);
    assert_true(p.rope_factor == 8);
    assert_int_equal(test_parse_config("{" WRAPPED "}", &p, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "text_config"));
}

static void names_of_tensors_lose_what_they_are_wrapped_in(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"language_model.model.norm.weight", "model.norm.weight"},
        {"vision_tower.vision_model.head.weight", NULL},
        {"language_model.lm_head.weight", "lm_head.weight"},
        {"model.language_model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"},
        {"model.multi_modal_projector.mm_soft_emb_norm.weight", NULL},
        {"lm_head.bias", "lm_head.bias"},
    };
    enum { N = sizeof names / sizeof names[0] };
    weft_model *model = wefti_model_new();
    struct weft_errmsg why;
    assert_non_null(model);
    for (size_t i = 0; i < N; i++) {
        struct weft_tensor tensor = {.n_dims = 1, .dims = {1}, .data = names, .bytes = 4};
        assert_int_equal(
            wefti_model_add_tensor(model, "t", names[i][0], strlen(names[i][0]), &tensor, &why),
            WEFT_OK);
    }
    wefti_model_unwrap(model);
    size_t n = 0;
    for (size_t i = 0; i < N; i++) {
        if (names[i][1]) assert_string_equal(weft_model_tensor(model, n++)->name, names[i][1]);
    }
    assert_int_equal(weft_model_n_tensors(model), n);
    weft_model_free(model);
}

/* No key of a GGUF file holds the scale of queries. */
static void queries_of_the_largest_gemmas_are_scaled_by_the_hidden_size(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        uint32_t n_layers;
        float scale; /* 0: by the head dimension */
    } cases[] = {{"gemma2", 46, 1.0f / 12},
                 {"gemma2", 42, 0},
                 {"gemma3", 62, 1.0f / 12},
                 {"gemma3", 46, 0},
                 {"gemma3", 48, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const struct {
            const char *key;
            uint32_t value;
        } sizes[] = {{"context_length", 8192},        {"embedding_length", 4608},
                     {"feed_forward_length", 36864},  {"attention.head_count", 32},
                     {"attention.head_count_kv", 16}, {"attention.key_length", 128},
                     {"vocab_size", 256000}};
        struct weft_model_params p = {0};
        struct weft_errmsg why;
        struct gguf_builder b;
        struct weft_buf bytes;
        struct wefti_model_file file;
        weft_gguf *gguf;
        char key[64];
        gguf_init(&b);
        gguf_str(&b, "general.architecture", cases[i].arch);
        (void)snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", cases[i].arch);
        gguf_f32(&b, key, 1e-6f);
        (void)snprintf(key, sizeof key, "%s.block_count", cases[i].arch);
        gguf_u32(&b, key, cases[i].n_layers);
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            (void)snprintf(key, sizeof key, "%s.%s", cases[i].arch, sizes[k].key);
            gguf_u32(&b, key, sizes[k].value);
        }
        gguf_finish(&b, &bytes);
        assert_int_equal(wefti_model_file_borrow("t.gguf", bytes.data, bytes.len, &file, &why),
                         WEFT_OK);
        if (wefti_model_gguf_parse(&file, &gguf, &why) || wefti_model_config_gguf(gguf, &p, &why))
            fail_msg("%s", why.text);
        assert_true(fabsf(p.attn_scale - cases[i].scale) < 1e-7f);
        /* The converter leaves the window out where no layer of Gemma 3 has one. */
        bool is_third = strcmp(cases[i].arch, "gemma3") == 0;
        assert_int_equal(p.window, is_third ? 0 : 4096);
        assert_int_equal(p.no_window[0], is_third ? UINT32_MAX : 0xAAAAAAAAu);
        weft_gguf_free(gguf);
        weft_buf_fini(&bytes);
        gguf_fini(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_keys_of_gemma_have_defaults_of_their_own),
        cmocka_unit_test(layers_with_a_window_are_listed_or_follow_a_pattern),
        cmocka_unit_test(each_kind_of_layer_may_have_a_rope_of_its_own),
        cmocka_unit_test(the_language_part_of_a_larger_model_is_read),
        cmocka_unit_test(names_of_tensors_lose_what_they_are_wrapped_in),
        cmocka_unit_test(queries_of_the_largest_gemmas_are_scaled_by_the_hidden_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
