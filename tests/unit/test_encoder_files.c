/* Encoders' files: what of a model's description comes out, and what is refused by name. */
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

#include "base/file.h"
#include "unit/model_files.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static weft_model *open_model(const char *name) {
    char path[128];
    struct weft_errmsg why = {""};
    weft_model *model;
    (void)snprintf(path, sizeof path, "tests/data/embed/%s", name);
    if (weft_model_open(test_source_path(path), &model, &why)) fail_msg("%s", why.text);
    return model;
}

static void families_are_told_apart_by_what_they_compute(void **state) {
    (void)state;
    static const struct {
        const char *name;
        struct weft_model_encoder want;
        bool gelu, pre_norms;
        uint32_t window, n_context;
    } cases[] = {
        {"bert-uncased-mean",
         {.is_on = 1, .n_types = 2, .n_positions = 160, .norms_sums = 1, .norm_bias = 1, .bias = 1},
         true,
         false,
         0,
         160},
        {"bert-rerank-sigmoid",
         {.is_on = 1,
          .n_types = 2,
          .n_positions = 160,
          .norms_sums = 1,
          .norm_bias = 1,
          .bias = 1,
          .has_head = 1,
          .n_labels = 1},
         true,
         false,
         0,
         160},
        {"xlmr-cls",
         {.is_on = 1,
          .n_types = 1,
          .n_positions = 160,
          .first_position = 2,
          .norms_sums = 1,
          .norm_bias = 1,
          .bias = 1},
         true,
         false,
         0,
         160},
        {"gguf/xlmr-rerank.gguf",
         {.is_on = 1,
          .n_types = 1,
          .n_positions = 160,
          .norms_sums = 1,
          .norm_bias = 1,
          .bias = 1,
          .has_head = 1,
          .n_labels = 1},
         true,
         false,
         0,
         160},
        {"nomic-mean",
         {.is_on = 1, .n_types = 2, .norms_sums = 1, .norm_bias = 1, .gated = 1},
         false,
         false,
         0,
         2048},
        {"gguf/nomic-mean.gguf",
         {.is_on = 1, .n_types = 2, .norms_sums = 1, .norm_bias = 1, .gated = 1},
         false,
         false,
         0,
         2048},
        {"modernbert-mean", {.is_on = 1, .gated = 1}, true, true, 9, 1024},
        {"gte-cls",
         {.is_on = 1, .norms_sums = 1, .norm_bias = 1, .bias = 1, .gated = 1},
         true,
         false,
         0,
         160},
        {"gte-rerank",
         {.is_on = 1,
          .n_types = 1,
          .norms_sums = 1,
          .norm_bias = 1,
          .bias = 1,
          .gated = 1,
          .has_head = 1,
          .n_labels = 1},
         true,
         false,
         0,
         160},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        weft_model *model = open_model(cases[i].name);
        const struct weft_model_params *p = weft_model_params(model);
        assert_memory_equal(&p->encoder, &cases[i].want, sizeof p->encoder);
        assert_int_equal(p->gelu, cases[i].gelu);
        assert_int_equal(p->pre_norms, cases[i].pre_norms);
        assert_int_equal(p->window, cases[i].window);
        assert_int_equal(p->n_context, cases[i].n_context);
        assert_null(weft_model_head(model));
        assert_int_equal(weft_model_final_norm(model) != NULL, cases[i].pre_norms);
        assert_int_equal(weft_model_encoder(model)->classifier != NULL, cases[i].want.has_head);
        weft_model_free(model);
    }
}

static void layers_of_modernbert_differ_in_what_they_see(void **state) {
    (void)state;
    weft_model *model = open_model("modernbert-mean");
    const struct weft_model_params *p = weft_model_params(model);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        assert_int_equal(weft_model_bit(p->no_window, i), i % 3 == 0);
        assert_int_equal(weft_model_layers(model)[i].attn_norm != NULL, i > 0);
    }
    assert_true(p->rope_theta == 160000 && p->local_rope_theta == 10000);
    weft_model_free(model);
}

static void rope_of_gte_is_stretched_whatever_the_length(void **state) {
    (void)state;
    struct weft_rope rope;
    weft_model *model = open_model("gte-cls"); /* base 50000, by 8, heads of 16 */
    weft_model_rope(model, false, false, &rope);
    for (int i = 0; i < 8; i++) {
        double want = pow(50000. * 8, -i / 8.) / pow(8, 1 / 8.);
        assert_true(fabs(rope.inv_freq[i] / want - 1) < 1e-12);
    }
    assert_true(rope.magnitude == 1);
    assert_int_equal(weft_model_long_prompt(model), UINT32_MAX);
    weft_model_free(model);
}

/* A copy of a folder whose config.json has other values; the caller frees it. */
static char *folder_with(const char *name, const char *changes) {
    char path[128], *bytes, *dir = test_dir_new();
    size_t n;
    json_error_t at;
    (void)snprintf(path, sizeof path, "tests/data/embed/%s/config.json", name);
    json_t *config = json_load_file(test_source_path(path), 0, &at);
    json_t *other = json_loads(changes, 0, &at);
    assert_true(config && other);
    assert_int_equal(json_object_update(config, other), 0);
    char *text = json_dumps(config, 0);
    test_dir_write(dir, "config.json", text, strlen(text));
    (void)snprintf(path, sizeof path, "tests/data/embed/%s/model.safetensors", name);
    assert_int_equal(
        weft_file_read(test_source_path(path), WEFT_FILE_REGULAR, 1 << 20, &bytes, &n, NULL), 0);
    test_dir_write(dir, "model.safetensors", bytes, n);
    free(bytes);
    free(text);
    json_decref(config);
    json_decref(other);
    return dir;
}

static void what_would_compute_something_else_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *name, *changes, *named;
    } cases[] = {
        {"bert-uncased-mean", "{\"position_embedding_type\":\"relative_key\"}", "relative_key"},
        {"bert-uncased-mean", "{\"hidden_act\":\"relu\"}", "hidden_act"},
        {"bert-uncased-mean", "{\"is_decoder\":true}", "is_decoder"},
        {"bert-uncased-mean", "{\"quantization_config\":{}}", "quantization_config"},
        {"bert-uncased-mean", "{\"type_vocab_size\":3}", "token types"},
        {"bert-uncased-mean", "{\"type_vocab_size\":0}", "token_type_embeddings"},
        {"bert-uncased-mean", "{\"num_attention_heads\":5}", "multiple"},
        {"bert-uncased-mean", "{\"num_attention_heads\":0}", "attention heads"},
        {"bert-uncased-mean", "{\"max_position_embeddings\":161}", "position_embeddings"},
        {"bert-uncased-mean", "{\"num_hidden_layers\":4}", "encoder.layer.3."},
        {"bert-uncased-mean", "{\"num_hidden_layers\":2}", "encoder.layer.2."},
        {"bert-uncased-mean", "{\"architectures\":[\"BertForSequenceClassification\"]}",
         "classifier.weight"},
        {"bert-uncased-mean", "{\"layer_norm_eps\":-1}", "epsilon"},
        {"xlmr-cls", "{\"pad_token_id\":400}", "context length"},
        {"xlmr-cls", "{\"pad_token_id\":161}", "context length"},
        {"nomic-mean", "{\"qkv_proj_bias\":null}", "qkv_proj_bias"},
        {"nomic-mean", "{\"prenorm\":true}", "prenorm"},
        {"nomic-mean", "{\"activation_function\":\"gelu\"}", "activation_function"},
        {"nomic-mean", "{\"rotary_emb_fraction\":0.5}", "rotary_emb_fraction"},
        {"nomic-mean", "{\"rotary_emb_interleaved\":true}", "rotary_emb_interleaved"},
        {"nomic-mean", "{\"num_experts\":8}", "num_experts"},
        {"modernbert-mean", "{\"attention_bias\":true}", "attention_bias"},
        {"modernbert-mean", "{\"global_attn_every_n_layers\":0}", "global_attn_every_n_layers"},
        {"modernbert-mean", "{\"global_rope_theta\":0}", "RoPE base"},
        {"modernbert-mean", "{\"norm_bias\":true}", "norm.bias"},
        {"modernbert-mean", "{\"architectures\":[\"ModernBertForSequenceClassification\"]}",
         "ModernBertForSequenceClassification"},
        {"gte-cls", "{\"logn_attention_scale\":true}", "logn_attention_scale"},
        {"gte-cls", "{\"layer_norm_type\":\"rms_norm\"}", "layer_norm_type"},
        {"gte-cls", "{\"position_embedding_type\":\"absolute\"}", "position_embedding_type"},
        {"gte-cls", "{\"hidden_act\":\"silu\"}", "hidden_act"},
        {"gte-cls", "{\"type_vocab_size\":1}", "token_type_embeddings"},
        {"gte-cls", "{\"architectures\":[\"NewForSequenceClassification\"]}", "pooler.dense"},
        {"gte-cls", "{\"architectures\":[\"NewForTokenClassification\"]}",
         "NewForTokenClassification"},
        {"gte-cls", "{\"model_type\":\"bert\"}", "model_type"},
        {"gte-cls", "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", "linear"},
        {"gte-cls", "{\"rope_scaling\":{\"type\":\"ntk\",\"factor\":2,\"mixed_b\":0.6}}",
         "mixed_b"},
        {"gte-cls", "{\"rope_scaling\":{\"type\":\"ntk\"}}", "factor"},
        {"gte-cls", "{\"rope_scaling\":{\"factor\":2}}", "no type"},
        {"gte-cls", "{\"rope_scaling\":{\"type\":\"ntk\",\"factor\":0.5}}", "RoPE scaling factor"},
        {"gte-cls", "{\"rope_scaling\":3}", "rope_scaling"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_errmsg why = {""};
        weft_model *model;
        char *dir = folder_with(cases[i].name, cases[i].changes);
        weft_err err = weft_model_open(dir, &model, &why);
        if (!err || !strstr(why.text, cases[i].named))
            fail_msg("%s: %d: %s", cases[i].changes, (int)err, why.text);
        assert_null(model);
        test_dir_free(dir);
    }
}

static void options_that_are_served_are_read(void **state) {
    (void)state;
    static const struct {
        const char *name, *changes;
        struct weft_model_encoder want;
    } cases[] = {
        {"bert-uncased-mean",
         "{\"hidden_act\":\"gelu_new\"}",
         {.is_on = 1,
          .n_types = 2,
          .n_positions = 160,
          .norms_sums = 1,
          .norm_bias = 1,
          .bias = 1,
          .tanh_gelu = 1}},
        {"modernbert-mean",
         "{\"global_rope_theta\":null,\"local_rope_theta\":null,\"rope_parameters\":{"
         "\"full_attention\":{\"rope_theta\":5},\"sliding_attention\":{\"rope_theta\":7}}}",
         {.is_on = 1, .gated = 1}},
        {"gte-cls",
         "{\"architectures\":[\"GteModel\"],\"model_type\":\"gte\",\"rope_scaling\":null}",
         {.is_on = 1, .norms_sums = 1, .norm_bias = 1, .bias = 1, .gated = 1}},
        {"gte-cls",
         "{\"architectures\":[\"NewForMaskedLM\"],\"unpad_inputs\":true}",
         {.is_on = 1, .norms_sums = 1, .norm_bias = 1, .bias = 1, .gated = 1}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct weft_errmsg why = {""};
        weft_model *model;
        char *dir = folder_with(cases[i].name, cases[i].changes);
        if (weft_model_open(dir, &model, &why)) fail_msg("%s", why.text);
        const struct weft_model_params *p = weft_model_params(model);
        assert_memory_equal(&p->encoder, &cases[i].want, sizeof p->encoder);
        if (i == 1) assert_true(p->rope_theta == 5 && p->local_rope_theta == 7);
        weft_model_free(model);
        test_dir_free(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_told_apart_by_what_they_compute),
        cmocka_unit_test(layers_of_modernbert_differ_in_what_they_see),
        cmocka_unit_test(rope_of_gte_is_stretched_whatever_the_length),
        cmocka_unit_test(what_would_compute_something_else_is_refused_by_name),
        cmocka_unit_test(options_that_are_served_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
