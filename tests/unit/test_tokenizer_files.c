/* The files beside a vocabulary, and files that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "template/template.h"
#include "unit/model_files.h"
#include "unit/tokenizer_files.h"

/* --- what files say --------------------------------------------------------------------------- */

static void ends_of_generation_come_from_the_files(void **state) {
    (void)state;
    static const char *const paths[] = {"models/fable-6m", TEST_FABLE_Q8_0};
    for (size_t i = 0; i < 2; i++) {
        weft_tokenizer *tok = text_open_path(paths[i]);
        size_t n;
        uint32_t bos;
        const uint32_t *eos = weft_tok_eos(tok, &n);
        assert_int_equal(n, 2);
        assert_int_equal(eos[0], 4092);
        assert_int_equal(eos[1], 4094);
        assert_true(weft_tok_bos(tok, &bos));
        assert_int_equal(bos, 4091);
        text_expect(tok, "Hello", WEFT_TOK_ADD_SPECIAL, "4091 39 498 78");
        weft_tok_free(tok);
    }
}

static void write_text(const char *dir, const char *name, const char *text) {
    test_dir_write(dir, name, text, strlen(text));
}

static void expect_eos(const char *dir, const char *want) {
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    char got[64] = "";
    size_t n, len = 0;
    if (weft_tok_open(dir, &tok, &why)) fail_msg("%s", why.text);
    const uint32_t *eos = weft_tok_eos(tok, &n);
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(got + len, sizeof got - len, "%s%u", i ? " " : "", eos[i]);
    assert_string_equal(got, want);
    weft_tok_free(tok);
}

static void every_file_may_name_an_end_and_each_counts_once(void **state) {
    (void)state;
    char *dir = text_small_folder();
    expect_eos(dir, "");
    write_text(dir, "tokenizer_config.json", "{\"eos_token\":\"<|eot|>\"}");
    expect_eos(dir, "2");
    write_text(dir, "generation_config.json", "{\"eos_token_id\":1}");
    expect_eos(dir, "1 2"); /* a base model's file beside a chat tokenizer's */
    write_text(dir, "tokenizer_config.json", "{\"eos_token\":{\"content\":\"<|eot|>\"}}");
    write_text(dir, "generation_config.json", "{\"eos_token_id\":[2,1,2]}");
    expect_eos(dir, "2 1");
    write_text(dir, "config.json", "{\"eos_token_id\":3}");
    expect_eos(dir, "2 1 3");
    write_text(dir, "generation_config.json", "{\"eos_token_id\":[-1,4,1.5,\"1\",null]}");
    write_text(dir, "tokenizer_config.json", "{\"eos_token\":\"nowhere\"}");
    expect_eos(dir, "3");
    test_dir_free(dir);
}

/* As transformers writes it for a tokenizer without a length of its own. */
static void integers_beyond_63_bits_are_no_hindrance(void **state) {
    (void)state;
    char *dir = text_small_folder();
    struct weft_gen_defaults got;
    struct weft_errmsg why = {""};
    write_text(dir, "tokenizer_config.json",
               "{\"model_max_length\":1000000000000000019884624838656,\"eos_token\":\"</s>\"}");
    write_text(dir, "generation_config.json",
               "{\"max_length\":1000000000000000019884624838656,\"top_k\":20}");
    write_text(dir, "config.json", "{\"eos_token_id\":1000000000000000019884624838656}");
    expect_eos(dir, "1");
    assert_int_equal(weft_tok_gen_defaults(dir, &got, &why), WEFT_OK);
    assert_int_equal(got.top_k, 20);
    test_dir_free(dir);
}

static void fifos_and_devices_are_refused_and_not_waited_for(void **state) {
    (void)state;
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json", "chat_template.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int device = 0; device < 2; device++) {
            char *dir = text_small_folder(), path[4096], *source;
            struct weft_gen_defaults got;
            struct weft_errmsg why = {""};
            weft_tokenizer *tok = NULL;
            (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
            (void)unlink(path);
            int rc = device ? symlink("/dev/zero", path) : mkfifo(path, 0600);
            assert_int_equal(rc, 0);
            weft_err err = i < 3 ? weft_tok_open(dir, &tok, &why) : WEFT_E_PROTO;
            assert_int_equal(err, WEFT_E_PROTO);
            assert_null(tok);
            if (i == 2) assert_int_equal(weft_tok_gen_defaults(dir, &got, &why), WEFT_E_PROTO);
            if (i % 2) assert_int_equal(weft_tmpl_find(dir, &source, &why), WEFT_E_PROTO);
            if (!strstr(why.text, "is not a regular file")) fail_msg("%s", why.text);
            test_dir_free(dir);
        }
    }
}

static void tokens_have_bytes_and_others_none(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open_path("models/fable-6m");
    size_t len;
    const char *bytes = weft_tok_token_bytes(tok, 4094, &len);
    assert_int_equal(len, 10);
    assert_memory_equal(bytes, "<|im_end|>", 10);
    assert_true(weft_tok_is_special(tok, 4094));
    assert_false(weft_tok_is_special(tok, 4096));
    (void)weft_tok_token_bytes(tok, 4096, &len);
    assert_int_equal(len, 0);
    (void)weft_tok_token_bytes(tok, UINT32_MAX, &len);
    assert_int_equal(len, 0);
    weft_tok_free(tok);
}

static void sampling_defaults_come_from_generation_config(void **state) {
    (void)state;
    struct weft_gen_defaults got;
    struct weft_errmsg why = {""};
    assert_int_equal(weft_tok_gen_defaults(test_source_path("models/fable-6m"), &got, &why),
                     WEFT_OK);
    assert_true(got.temperature == 0.8 && got.top_p == 0.95);
    assert_true(got.min_p != got.min_p && got.repetition_penalty != got.repetition_penalty);
    assert_true(got.top_k == -1 && got.max_new_tokens == -1);
    assert_int_equal(weft_tok_gen_defaults("/nonexistent", &got, &why), WEFT_OK);
    assert_true(got.temperature != got.temperature);
    char *dir = test_dir_new();
    static const char wrong[] = "{\"top_k\":\"many\"}";
    test_dir_write(dir, "generation_config.json", wrong, sizeof wrong - 1);
    assert_int_equal(weft_tok_gen_defaults(dir, &got, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "generation_config.json: top_k"));
    test_dir_free(dir);
}

static void sampling_defaults_that_no_sampler_can_use_are_ignored(void **state) {
    (void)state;
    char *dir = test_dir_new();
    struct weft_gen_defaults got;
    struct weft_errmsg why = {""};
    write_text(dir, "generation_config.json",
               "{\"top_k\":-1,\"temperature\":0,\"top_p\":1.0,\"max_new_tokens\":7.0}");
    assert_int_equal(weft_tok_gen_defaults(dir, &got, &why), WEFT_OK);
    assert_int_equal(got.top_k, -1); /* off, as by default */
    assert_true(got.temperature == 0 && got.top_p == 1 && got.max_new_tokens == 7);
    write_text(dir, "generation_config.json",
               "{\"top_k\":-5,\"temperature\":-1,\"top_p\":0,\"min_p\":1.5,"
               "\"repetition_penalty\":0,\"max_new_tokens\":2.5}");
    assert_int_equal(weft_tok_gen_defaults(dir, &got, &why), WEFT_OK);
    assert_true(got.top_k == -1 && got.max_new_tokens == -1);
    assert_true(isnan(got.temperature) && isnan(got.top_p) && isnan(got.min_p));
    assert_true(isnan(got.repetition_penalty));
    test_dir_free(dir);
}

/* --- files that are refused ------------------------------------------------------------------- */

static void expect_refusal(const struct text_parts *parts, weft_err want, const char *named) {
    struct weft_buf json;
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    weft_buf_init(&json, 1 << 20);
    text_build_json(&json, parts);
    weft_err err = text_try_open(weft_buf_cstr(&json), &tok, &why);
    assert_null(tok);
    if (err != want || !strstr(why.text, named)) fail_msg("%d: %s", (int)err, why.text);
    weft_buf_fini(&json);
}

static void what_is_not_supported_is_refused_by_name(void **state) {
    (void)state;
    static const char *const words[] = {"a", "b", "ab", NULL};
    static const struct {
        struct text_parts parts;
        const char *named;
    } cases[] = {
        {{.normalizer = "{\"type\":\"Nmt\"}"}, "Nmt"},
        {{.pre_tokenizer = "{\"type\":\"UnicodeScripts\"}"}, "UnicodeScripts"},
        {{.decoder = "{\"type\":\"CTC\"}"}, "CTC"},
        {{.decoder = "null"}, "decoder"},
        {{.post_processor = "{\"type\":\"Mystery\"}"}, "Mystery"},
        {{.options = "\"end_of_word_suffix\":\"</w>\","}, "end_of_word_suffix"},
        {{.options = "\"dropout\":0.1,"}, "dropout"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\\\\K\"},"
                           "\"behavior\":\"Isolated\"}"},
         "\\K"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-z&&[aeiou]]\"},"
                           "\"behavior\":\"Isolated\"}"},
         "intersection"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a{1,3}+\"},"
                           "\"behavior\":\"Isolated\"}"},
         "interval"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},"
                           "\"behavior\":\"Isolated\"}"},
         "(a"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},"
                           "\"behavior\":\"Sideways\"}"},
         "Sideways"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_parts parts = cases[i].parts;
        parts.words = words;
        expect_refusal(&parts, WEFT_E_UNSUPPORTED, cases[i].named);
    }
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    assert_int_equal(text_try_open("{\"model\":{\"type\":\"WordLevel\",\"vocab\":[]},"
                                   "\"decoder\":{\"type\":\"Fuse\"}}",
                                   &tok, &why),
                     WEFT_E_UNSUPPORTED);
    assert_non_null(strstr(why.text, "WordLevel"));
}

static void tokens_around_a_middle_are_known_by_their_names(void **state) {
    (void)state;
    static const char *const rows[][4] = {
        {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", NULL},
        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", NULL},
        {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", NULL},
        {"<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>",
         "<\uff5cfim\u2581end\uff5c>", NULL},
        {"[PREFIX]", "[SUFFIX]", "a", NULL}, /* which has no middle */
        {"<fim_prefix>", "<fim_suffix>", "a", NULL},
        {"<fim_prefix>", "<|fim_suffix|>", "<MID>", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weft_tok_fim fim;
        weft_tokenizer *tok = text_open(&(struct text_parts){.words = rows[i]});
        assert_int_equal(weft_tok_fim(tok, &fim), i < 5);
        if (i < 5) {
            assert_int_equal(fim.prefix, 0);
            assert_int_equal(fim.suffix, 1);
            assert_int_equal(fim.has_middle, i < 4);
        }
        if (i < 4) assert_int_equal(fim.middle, 2);
        weft_tok_free(tok);
    }
}

static void malformed_files_are_refused(void **state) {
    (void)state;
    static const char *const words[] = {"a", "b", "ab", NULL};
    expect_refusal(&(struct text_parts){.words = words, .merges = "[\"a\"]"}, WEFT_E_PROTO,
                   "merge 0");
    expect_refusal(&(struct text_parts){.words = words, .merges = "[\"a b\",\"b b\"]"},
                   WEFT_E_PROTO, "merge 1");
    expect_refusal(&(struct text_parts){.words = words, .merges = "{}"}, WEFT_E_PROTO, "merges");
    expect_refusal(&(struct text_parts){.words = words, .added_tokens = "[{\"id\":-1}]"},
                   WEFT_E_PROTO, "added token 0");
    expect_refusal(&(struct text_parts){.words = words,
                                        .added_tokens = "[{\"id\":999999999,\"content\":\"x\"}]"},
                   WEFT_E_TOOBIG, "999999999");
    static const struct {
        const char *json;
        weft_err err;
    } whole[] = {
        {"", WEFT_E_PROTO},
        {"[]", WEFT_E_PROTO},
        {"{\"model\":", WEFT_E_PROTO},
        {"{}", WEFT_E_UNSUPPORTED},
        {"{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"merges\":[],"
         "\"vocab\":{}}}",
         WEFT_E_PROTO},
        {"{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"merges\":[],"
         "\"vocab\":{\"a\":1,\"b\":1}}}",
         WEFT_E_PROTO},
        {"{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"merges\":[],"
         "\"vocab\":{\"a\":-1}}}",
         WEFT_E_PROTO},
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        struct weft_errmsg why = {""};
        weft_tokenizer *tok;
        assert_int_equal(text_try_open(whole[i].json, &tok, &why), whole[i].err);
        assert_null(tok);
        assert_non_null(strstr(why.text, "tokenizer.json"));
    }
    weft_tokenizer *tok;
    assert_int_equal(weft_tok_open("/nonexistent", &tok, NULL), WEFT_E_NOTFOUND);
    assert_int_equal(weft_tok_open("/nonexistent.gguf", &tok, NULL), WEFT_E_NOTFOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_generation_come_from_the_files),
        cmocka_unit_test(every_file_may_name_an_end_and_each_counts_once),
        cmocka_unit_test(integers_beyond_63_bits_are_no_hindrance),
        cmocka_unit_test(fifos_and_devices_are_refused_and_not_waited_for),
        cmocka_unit_test(tokens_have_bytes_and_others_none),
        cmocka_unit_test(sampling_defaults_come_from_generation_config),
        cmocka_unit_test(sampling_defaults_that_no_sampler_can_use_are_ignored),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(tokens_around_a_middle_are_known_by_their_names),
        cmocka_unit_test(malformed_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
