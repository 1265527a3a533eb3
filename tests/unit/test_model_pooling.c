/* What a folder or file says of its purpose: which texts become vectors or scores, and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/model.h"
#include "unit/model_files.h"

static int make_dir(void **state) {
    char path[512];
    char *dir = test_dir_new();
    (void)snprintf(path, sizeof path, "%s/1_Pooling", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    *state = dir;
    return 0;
}

static int free_dir(void **state) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/1_Pooling/config.json", (char *)*state);
    (void)unlink(path);
    *strrchr(path, '/') = 0;
    assert_int_equal(rmdir(path), 0);
    test_dir_free(*state);
    return 0;
}

static void write_text(const char *dir, const char *name, const char *text) {
    test_dir_write(dir, name, text, strlen(text));
}

static struct weft_model_pooling *read_good(const char *path) {
    struct weft_model_pooling *pooling;
    struct weft_errmsg why = {""};
    if (weft_model_pooling_read(path, &pooling, &why)) fail_msg("%s", why.text);
    return pooling;
}

static void expect_bad(const char *path, weft_err want, const char *words) {
    struct weft_model_pooling *pooling;
    struct weft_errmsg why = {""};
    weft_err err = weft_model_pooling_read(path, &pooling, &why);
    if (err != want || !strstr(why.text, words)) fail_msg("%d: %s", (int)err, why.text);
    assert_null(pooling);
}

#define MODULE(idx, path, type)                                                                    \
    "{\"idx\": " #idx ", \"name\": \"" #idx "\", \"path\": \"" path                                \
    "\", \"type\": \"sentence_transformers.models." type "\"}"
static const char pools[] =
    "[" MODULE(0, "", "Transformer") "," MODULE(1, "1_Pooling", "Pooling") "]";

static void write_decoder(const char *dir, const char *pooling) {
    write_text(dir, "config.json", "{\"architectures\": [\"Qwen3ForCausalLM\"]}");
    write_text(dir, "modules.json", pools);
    write_text(dir, "1_Pooling/config.json", pooling);
}

static void a_decoder_alone_generates(void **state) {
    write_text(*state, "config.json", "{\"architectures\": [\"LlamaForCausalLM\"]}");
    write_text(*state, "tokenizer_config.json", "{\"model_max_length\": 77}");
    struct weft_model_pooling *p = read_good(*state);
    assert_int_equal(p->task, WEFT_MODEL_GENERATES);
    assert_int_equal(p->kind, WEFT_POOLING_LAST);
    assert_true(p->normalises && !p->judges);
    assert_int_equal(p->n_tokens_max, 0);
    weft_model_pooling_free(p);
}

static void what_sees_both_ways_generates_nothing(void **state) {
    static const struct {
        const char *config;
        enum weft_pooling_kind kind;
    } cases[] = {
        {"{\"architectures\": [\"Qwen3ForCausalLM\"], \"is_causal\": false}", WEFT_POOLING_LAST},
        {"{\"architectures\": [\"NewModel\", \"NewForTokenClassification\"]}", WEFT_POOLING_CLS},
        {"{\"architectures\": [\"GteModel\"]}", WEFT_POOLING_CLS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text(*state, "config.json", cases[i].config);
        struct weft_model_pooling *p = read_good(*state);
        assert_int_equal(p->task, WEFT_MODEL_EMBEDS);
        assert_int_equal(p->kind, cases[i].kind);
        assert_true(p->normalises && !p->judges && !p->generates);
        weft_model_pooling_free(p);
    }
}

static void folders_of_ours_say_what_they_are(void **state) {
    (void)state;
    struct weft_model_pooling *p = read_good(test_source_path("tests/data/embed/qwen3-last"));
    assert_int_equal(p->task, WEFT_MODEL_EMBEDS);
    assert_int_equal(p->kind, WEFT_POOLING_LAST);
    assert_true(p->normalises && !p->judges);
    assert_int_equal(p->n_tokens_max, 64);
    assert_int_equal(p->n_prompts, 2);
    assert_string_equal(p->prompts[0].name, "query");
    assert_int_equal(strncmp(p->prompts[0].text, "Instruct: Given", 15), 0);
    assert_string_equal(p->prompts[1].text, "");
    assert_int_equal(p->default_prompt, UINT32_MAX);
    weft_model_pooling_free(p);
    p = read_good(test_source_path("tests/data/embed/qwen3-reranker"));
    assert_int_equal(p->task, WEFT_MODEL_GENERATES);
    assert_true(p->judges);
    weft_model_pooling_free(p);
}

static void both_forms_of_a_pooling_are_read(void **state) {
    static const struct {
        const char *text;
        enum weft_pooling_kind kind;
    } forms[] = {
        {"{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}",
         WEFT_POOLING_CLS},
        {"{\"pooling_mode_mean_tokens\": true, \"include_prompt\": true}", WEFT_POOLING_MEAN},
        {"{\"pooling_mode_lasttoken\": true}", WEFT_POOLING_LAST},
        {"{\"pooling_mode\": \"mean\", \"embedding_dimension\": 64}", WEFT_POOLING_MEAN},
        {"{\"pooling_mode\": \"lasttoken\"}", WEFT_POOLING_LAST},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        write_decoder(*state, forms[i].text);
        struct weft_model_pooling *p = read_good(*state);
        assert_int_equal(p->task, WEFT_MODEL_EMBEDS);
        assert_int_equal(p->kind, forms[i].kind);
        assert_false(p->normalises);
        weft_model_pooling_free(p);
    }
}

static void what_cannot_be_done_is_refused_by_name(void **state) {
    write_decoder(*state, "{\"pooling_mode_max_tokens\": true}");
    expect_bad(*state, WEFT_E_UNSUPPORTED, "\"max_tokens\" is not supported");
    write_decoder(*state, "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}");
    expect_bad(*state, WEFT_E_UNSUPPORTED, "side by side");
    write_decoder(*state, "{\"pooling_mode_mean_tokens\": true, \"include_prompt\": false}");
    expect_bad(*state, WEFT_E_UNSUPPORTED, "leave out the prompt");
    write_decoder(*state, "{}");
    expect_bad(*state, WEFT_E_PROTO, "has no mode");
    write_decoder(*state, "[]");
    expect_bad(*state, WEFT_E_PROTO, "not a JSON object");
    write_text(*state, "modules.json",
               "[" MODULE(0, "", "Transformer") "," MODULE(1, "2_D", "Dense") "]");
    expect_bad(*state, WEFT_E_UNSUPPORTED, "module \"Dense\"");
    write_text(*state, "modules.json", "[" MODULE(0, "", "Transformer") "]");
    expect_bad(*state, WEFT_E_UNSUPPORTED, "has no pooling");
    write_text(*state, "modules.json", "[" MODULE(1, "../1_Pooling", "Pooling") "]");
    expect_bad(*state, WEFT_E_PROTO, "no plain name");
    write_text(*state, "modules.json", "[" MODULE(1, "", "Pooling") "]");
    expect_bad(*state, WEFT_E_PROTO, "no plain name");
    write_text(*state, "1_Pooling/config.json", "{\"pooling_mode\": \"mean\"}");
    write_text(*state, "modules.json",
               "[" MODULE(1, "1_Pooling", "Pooling") "," MODULE(2, "1_Pooling", "Pooling") "]");
    expect_bad(*state, WEFT_E_UNSUPPORTED, "several poolings");
    write_text(*state, "modules.json", "[" MODULE(1, "gone", "Pooling") "]");
    expect_bad(*state, WEFT_E_NOTFOUND, "gone/config.json");
    write_text(*state, "modules.json", "{");
    expect_bad(*state, WEFT_E_PROTO, "modules.json is not valid JSON");
}

static void write_classifier(const char *dir, const char *rest) {
    char text[512];
    (void)snprintf(text, sizeof text, "{\"architectures\": [\"BertForSequenceClassification\"]%s}",
                   rest);
    write_text(dir, "config.json", text);
}

static void scores_are_as_the_config_says(void **state) {
    static const struct {
        const char *rest;
        uint32_t n_labels;
        enum weft_model_activation activation;
    } forms[] = {
        {", \"num_labels\": 1", 1, WEFT_MODEL_SIGMOID},
        {"", 2, WEFT_MODEL_SOFTMAX},
        {", \"id2label\": {\"0\": \"no\", \"1\": \"yes\", \"2\": \"else\"}", 3, WEFT_MODEL_SOFTMAX},
        {", \"num_labels\": 1, \"sentence_transformers\": {\"activation_fn\": "
         "\"torch.nn.modules.linear.Identity\"}",
         1, WEFT_MODEL_IDENTITY},
        {", \"num_labels\": 2, \"sbert_ce_default_activation_function\": "
         "\"torch.nn.modules.activation.Sigmoid\"",
         2, WEFT_MODEL_SIGMOID},
    };
    write_text(*state, "tokenizer_config.json", "{\"model_max_length\": 64}");
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        write_classifier(*state, forms[i].rest);
        struct weft_model_pooling *p = read_good(*state);
        assert_int_equal(p->task, WEFT_MODEL_CLASSIFIES);
        assert_int_equal(p->n_labels, forms[i].n_labels);
        assert_int_equal(p->activation, forms[i].activation);
        assert_string_equal(p->labels[0], i == 2 ? "no" : "LABEL_0");
        assert_int_equal(p->n_tokens_max, 64);
        weft_model_pooling_free(p);
    }
    write_classifier(*state, ", \"sbert_ce_default_activation_function\": \"torch.nn.Mish\"");
    expect_bad(*state, WEFT_E_UNSUPPORTED, "scores by \"Mish\"");
    write_classifier(*state, ", \"num_labels\": 100000");
    expect_bad(*state, WEFT_E_TOOBIG, "100000 labels");
}

/* 10^30 is how transformers says that there is none. */
static void lengths_and_prompts_are_read(void **state) {
    write_decoder(*state, "{\"pooling_mode\": \"lasttoken\"}");
    write_text(*state, "tokenizer_config.json",
               "{\"model_max_length\": 1000000000000000019884624838656}");
    struct weft_model_pooling *p = read_good(*state);
    assert_int_equal(p->n_tokens_max, 0);
    weft_model_pooling_free(p);
    write_text(*state, "sentence_bert_config.json", "{\"max_seq_length\": 256}");
    write_text(*state, "config_sentence_transformers.json",
               "{\"prompts\": {\"a\": \"A: \", \"b\": \"B: \"}, \"default_prompt_name\": \"b\"}");
    p = read_good(*state);
    assert_int_equal(p->n_tokens_max, 256);
    assert_int_equal(p->default_prompt, 1);
    weft_model_pooling_free(p);
}

static void build_gguf(const char *dir, const char *arch, int64_t pooling_type, bool is_encoder) {
    struct gguf_builder b;
    struct weft_buf bytes;
    char key[64];
    gguf_init(&b);
    gguf_str(&b, "general.architecture", arch);
    (void)snprintf(key, sizeof key, "%s.pooling_type", arch);
    if (pooling_type >= 0) gguf_u32(&b, key, (uint32_t)pooling_type);
    (void)snprintf(key, sizeof key, "%s.attention.causal", arch);
    if (is_encoder) {
        gguf_key(&b, key, WEFT_GGUF_BOOL);
        gguf_put(&b.kvs, 0, 1);
    }
    weft_buf_init(&bytes, 1u << 16);
    gguf_finish(&b, &bytes);
    test_dir_write(dir, "m.gguf", bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    gguf_fini(&b);
}

static void gguf_files_say_it_in_their_metadata(void **state) {
    static const struct {
        const char *arch;
        int64_t type;
        bool is_encoder;
        enum weft_model_task task;
        enum weft_pooling_kind kind;
        bool judges;
    } files[] = {
        {"llama", -1, false, WEFT_MODEL_GENERATES, WEFT_POOLING_LAST, false},
        {"qwen3", -1, false, WEFT_MODEL_GENERATES, WEFT_POOLING_LAST, true},
        {"qwen3", 3, false, WEFT_MODEL_EMBEDS, WEFT_POOLING_LAST, false},
        {"qwen3", 4, false, WEFT_MODEL_GENERATES, WEFT_POOLING_LAST, true},
        {"bert", 1, true, WEFT_MODEL_EMBEDS, WEFT_POOLING_MEAN, false},
        {"bert", -1, true, WEFT_MODEL_EMBEDS, WEFT_POOLING_CLS, false},
    };
    char path[512];
    (void)snprintf(path, sizeof path, "%s/m.gguf", (char *)*state);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        build_gguf(*state, files[i].arch, files[i].type, files[i].is_encoder);
        struct weft_model_pooling *p = read_good(path);
        assert_int_equal(p->task, files[i].task);
        assert_int_equal(p->kind, files[i].kind);
        assert_int_equal(p->judges, files[i].judges);
        assert_true(p->normalises);
        weft_model_pooling_free(p);
    }
    build_gguf(*state, "qwen3", 9, false);
    expect_bad(path, WEFT_E_UNSUPPORTED, "pooling_type 9");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, free_dir)
    const struct CMUnitTest tests[] = {
        TEST(what_sees_both_ways_generates_nothing),  TEST(a_decoder_alone_generates),
        TEST(folders_of_ours_say_what_they_are),      TEST(both_forms_of_a_pooling_are_read),
        TEST(what_cannot_be_done_is_refused_by_name), TEST(scores_are_as_the_config_says),
        TEST(lengths_and_prompts_are_read),           TEST(gguf_files_say_it_in_their_metadata),
    };
#undef TEST
    return cmocka_run_group_tests_name("model_pooling", tests, NULL, NULL);
}
