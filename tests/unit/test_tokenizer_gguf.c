/* Tokenizers in GGUF files: SentencePiece by score, BPE by the name of its split. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "template/template.h"
#include "unit/model_files.h"
#include "unit/tokenizer_files.h"

struct gguf_word {
    const char *text;
    float score;
    int type;
};

static void gguf_words(struct gguf_builder *b, const struct gguf_word *words, size_t n,
                       bool fallback) {
    size_t total = n + (fallback ? 256 : 0);
    gguf_key(b, "tokenizer.ggml.tokens", 9);
    gguf_put(&b->kvs, 8, 4);
    gguf_put(&b->kvs, total, 8);
    for (size_t i = 0; i < n; i++)
        gguf_put_str(&b->kvs, words[i].text);
    for (unsigned byte = 0; fallback && byte < 256; byte++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<0x%02X>", byte);
        gguf_put_str(&b->kvs, text);
    }
    gguf_key(b, "tokenizer.ggml.scores", 9);
    gguf_put(&b->kvs, 6, 4);
    gguf_put(&b->kvs, total, 8);
    for (size_t i = 0; i < total; i++) {
        float score = i < n ? words[i].score : 0;
        uint32_t bits;
        memcpy(&bits, &score, 4);
        gguf_put(&b->kvs, bits, 4);
    }
    gguf_key(b, "tokenizer.ggml.token_type", 9);
    gguf_put(&b->kvs, 5, 4);
    gguf_put(&b->kvs, total, 8);
    for (size_t i = 0; i < total; i++)
        gguf_put(&b->kvs, i < n ? (uint64_t)words[i].type : 6, 4);
}

static weft_tokenizer *open_gguf(struct gguf_builder *b) {
    struct weft_buf bytes;
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    weft_buf_init(&bytes, 1 << 20);
    gguf_finish(b, &bytes);
    if (text_try_open_gguf(bytes.data, bytes.len, &tok, &why)) fail_msg("%s", why.text);
    weft_buf_fini(&bytes);
    gguf_fini(b);
    return tok;
}

static const struct gguf_word sp_words[] = {
    {"<unk>", 0, 2},         {"<s>", 0, 3}, {"</s>", 0, 3},     {"\u2581", -10, 1},
    {"a", -11, 1},           {"b", -12, 1}, {"\u2581a", -3, 1}, {"ab", -2, 1},
    {"\u2581ab", -4, 1},     {"aa", -5, 1}, {"<tool>", 0, 4},   {"<|im_end|>", 0, 3},
    {"\u2581\u2581", -6, 1},
};

static void sentence_piece_merges_by_score_and_falls_back_to_bytes(void **state) {
    (void)state;
    struct gguf_builder b;
    gguf_init(&b);
    gguf_str(&b, "tokenizer.ggml.model", "llama");
    gguf_words(&b, sp_words, sizeof sp_words / sizeof *sp_words, true);
    weft_tokenizer *tok = open_gguf(&b);
    text_expect(tok, "ab", 0, "8");   /* _ab: a b (-2), then _ ab */
    text_expect(tok, "aa", 0, "6 4"); /* _a beats aa */
    text_expect(tok, "aaaa", 0, "6 9 4");
    text_expect(tok, " ab", 0, "3 8"); /* one space more in front */
    text_expect(tok, "", 0, "");
    text_expect(tok, "ab", WEFT_TOK_ADD_SPECIAL, "1 8");
    text_expect(tok, "\u00e9", 0, "3 208 182"); /* 13 + C3, 13 + A9 */
    text_expect(tok, "ab<tool>ab", 0, "8 10 8");
    text_expect(tok, "</s>ab", WEFT_TOK_PARSE_SPECIAL, "2 8");
    text_expect(tok, "<s>", 0, "3 73 128 75"); /* never by merging */
    struct weft_buf out;
    weft_buf_init(&out, 100);
    text_decode(tok, (const uint32_t[]){8, 6, 208, 182, 4}, 5, &out);
    assert_string_equal(weft_buf_cstr(&out), "ab a\u00e9a");
    weft_buf_fini(&out);
    size_t n;
    const uint32_t *eos = weft_tok_eos(tok, &n);
    assert_int_equal(n, 2);
    assert_int_equal(eos[0], 2);
    assert_int_equal(eos[1], 11); /* <|im_end|>, by its name */
    weft_tok_free(tok);
}

static void tokens_around_a_middle_are_named_by_the_file(void **state) {
    (void)state;
    static const char *const keys[2][3] = {{"fim_pre", "fim_suf", "fim_mid"},
                                           {"prefix", "suffix", "middle"}};
    for (size_t i = 0; i < 2; i++) {
        struct gguf_builder b;
        struct weft_tok_fim fim;
        gguf_init(&b);
        gguf_str(&b, "tokenizer.ggml.model", "llama");
        for (uint32_t k = 0; k < 3; k++) {
            char key[64];
            (void)snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[i][k]);
            gguf_key(&b, key, 4);
            gguf_put(&b.kvs, 3 + k, 4);
        }
        gguf_words(&b, sp_words, sizeof sp_words / sizeof *sp_words, true);
        weft_tokenizer *tok = open_gguf(&b);
        assert_true(weft_tok_fim(tok, &fim));
        assert_true(fim.has_middle && fim.prefix == 3 && fim.suffix == 4 && fim.middle == 5);
        weft_tok_free(tok);
    }
}

static void sentence_piece_without_a_space_in_front(void **state) {
    (void)state;
    struct gguf_builder b;
    gguf_init(&b);
    gguf_str(&b, "tokenizer.ggml.model", "llama");
    gguf_key(&b, "tokenizer.ggml.add_space_prefix", 7);
    gguf_put(&b.kvs, 0, 1);
    gguf_key(&b, "tokenizer.ggml.add_bos_token", 7);
    gguf_put(&b.kvs, 0, 1);
    gguf_key(&b, "tokenizer.ggml.add_eos_token", 7);
    gguf_put(&b.kvs, 1, 1);
    gguf_words(&b, sp_words, sizeof sp_words / sizeof *sp_words, true);
    weft_tokenizer *tok = open_gguf(&b);
    text_expect(tok, "ab ab", WEFT_TOK_ADD_SPECIAL, "7 8 2");
    uint64_t rand = weft_rand_test_seed();
    struct weft_buf want, got;
    weft_buf_init(&want, 1 << 16);
    weft_buf_init(&got, 1 << 16);
    for (int round = 0; round < 500; round++) {
        char text[512];
        size_t len = text_random(&rand, text, sizeof text), n;
        if (memmem(text, len, "\u2581", 3)) continue; /* that one does come back as a space */
        weft_buf_clear(&want);
        weft_buf_clear(&got);
        text_sanitise(text, len, &want);
        uint32_t *ids = text_ids(tok, text, len, 0, &n);
        text_decode(tok, ids, n, &got);
        free(ids);
        assert_string_equal(weft_buf_cstr(&got), weft_buf_cstr(&want));
    }
    weft_buf_fini(&want);
    weft_buf_fini(&got);
    weft_tok_free(tok);
}

static void put_strings(struct gguf_builder *b, const char *key, const char *const *texts,
                        size_t n) {
    gguf_key(b, key, 9);
    gguf_put(&b->kvs, 8, 4);
    gguf_put(&b->kvs, n, 8);
    for (size_t i = 0; i < n; i++)
        gguf_put_str(&b->kvs, texts[i]);
}

/* Names with the same split differ in other ways. */
static void the_name_of_a_split_says_whether_merges_are_ignored_and_bos_added(void **state) {
    (void)state;
    static const char *const tokens[] = {"a", "b", "c", "abc", "<s>"};
    static const struct {
        const char *pre, *want;
    } cases[] = {
        {"llama-bpe", "4 3"}, {"smaug-bpe", "0 1 2"}, {"dbrx", "0 1 2"}, {"qwen2", "0 1 2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_builder b;
        gguf_init(&b);
        gguf_str(&b, "tokenizer.ggml.model", "gpt2");
        gguf_str(&b, "tokenizer.ggml.pre", cases[i].pre);
        gguf_u32(&b, "tokenizer.ggml.bos_token_id", 4);
        put_strings(&b, "tokenizer.ggml.tokens", tokens, 5);
        put_strings(&b, "tokenizer.ggml.merges", NULL, 0);
        weft_tokenizer *tok = open_gguf(&b);
        text_expect(tok, "abc", WEFT_TOK_ADD_SPECIAL, cases[i].want);
        weft_tok_free(tok);
    }
}

/* A vocabulary of `n` tokens of the types given, and no merges unless told. */
static weft_tokenizer *open_typed(const char *model, const char *const *tokens, const int *types,
                                  size_t n, const char *const *merges, size_t n_merges) {
    struct gguf_builder b;
    gguf_init(&b);
    gguf_str(&b, "tokenizer.ggml.model", model);
    if (strcmp(model, "gpt2") == 0) gguf_str(&b, "tokenizer.ggml.pre", "gpt-4o");
    put_strings(&b, "tokenizer.ggml.tokens", tokens, n);
    put_strings(&b, "tokenizer.ggml.merges", merges, n_merges);
    gguf_u32(&b, "tokenizer.ggml.bos_token_id", 0);
    gguf_key(&b, "tokenizer.ggml.token_type", 9);
    gguf_put(&b.kvs, 5, 4);
    gguf_put(&b.kvs, n, 8);
    for (size_t i = 0; i < n; i++)
        gguf_put(&b.kvs, (uint64_t)types[i], 4);
    return open_gguf(&b);
}

/* Gemma 4's: merges of characters, spaces as U+2581, bytes for what is no token, no space in front. */
static void merges_of_characters_fall_back_to_bytes(void **state) {
    (void)state;
    enum { N_BYTES = 256, N_WORDS = 10 };
    static const char *const words[N_WORDS] = {"<bos>",   "<unk>",       "a",        "b",
                                               "\u2581",  "ab",          "\u2581ab", "<|turn>",
                                               "<turn|>", "\u2581\u2581"};
    static const int word_types[N_WORDS] = {3, 2, 1, 1, 1, 1, 1, 3, 3, 1};
    static const char *const merges[] = {"a b", "\u2581 ab", "\u2581 \u2581"};
    const char *tokens[N_WORDS + N_BYTES];
    int types[N_WORDS + N_BYTES];
    char bytes[N_BYTES][8];
    memcpy(tokens, words, sizeof words);
    memcpy(types, word_types, sizeof word_types);
    for (int i = 0; i < N_BYTES; i++) {
        (void)snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", (unsigned)i);
        tokens[N_WORDS + i] = bytes[i];
        types[N_WORDS + i] = i % 2 ? 6 : 1; /* half of them call themselves ordinary */
    }
    weft_tokenizer *tok = open_typed("gemma4", tokens, types, N_WORDS + N_BYTES, merges, 3);
    text_expect(tok, "ab", WEFT_TOK_ADD_SPECIAL, "0 5");
    text_expect(tok, " ab", 0, "6");
    text_expect(tok, "  ab", 0, "4 6");
    text_expect(tok, "ab\nab", 0, "5 20 5");  /* 10 + 0x0A */
    text_expect(tok, "\u00e9", 0, "205 179"); /* 10 + C3, 10 + A9 */
    text_expect(tok, "<|turn>ab<turn|>", WEFT_TOK_PARSE_SPECIAL, "7 5 8");
    struct weft_buf out;
    weft_buf_init(&out, 100);
    text_decode(tok, (const uint32_t[]){6, 205, 179, 4, 20}, 5, &out);
    assert_string_equal(weft_buf_cstr(&out), " ab\u00e9 \n");
    weft_buf_fini(&out);
    size_t n;
    const uint32_t *eos = weft_tok_eos(tok, &n);
    assert_int_equal(n, 1);
    assert_int_equal(eos[0], 8); /* <turn|>, by its name */
    weft_tok_free(tok);
}

/* In gpt-oss's format <|end|> ends a message of several, elsewhere the turn. */
static void end_ends_the_turn_unless_return_and_call_do(void **state) {
    (void)state;
    static const char *const tokens[] = {"<s>", "<|end|>", "<|return|>", "<|call|>", "<|im_end|>"};
    static const int types[] = {3, 3, 3, 3, 1}; /* the last is ordinary text */
    size_t n;
    weft_tokenizer *tok = open_typed("gpt2", tokens, types, 5, NULL, 0);
    const uint32_t *eos = weft_tok_eos(tok, &n);
    assert_int_equal(n, 2);
    assert_true(eos[0] == 2 && eos[1] == 3);
    weft_tok_free(tok);
    tok = open_typed("gpt2", tokens, types, 2, NULL, 0);
    eos = weft_tok_eos(tok, &n);
    assert_int_equal(n, 1);
    assert_int_equal(eos[0], 1);
    weft_tok_free(tok);
}

/* Each of the three questions a path is opened for, without and with the misleading suffix. */
static void gguf_files_need_no_suffix_and_folders_may_have_one(void **state) {
    (void)state;
    char *dir = test_dir_new(), path[4096], *source;
    struct gguf_builder b;
    struct weft_buf bytes;
    struct weft_errmsg why = {""};
    struct weft_gen_defaults got;
    weft_tokenizer *tok;
    weft_buf_init(&bytes, 1 << 20);
    gguf_init(&b);
    gguf_str(&b, "tokenizer.ggml.model", "llama");
    gguf_str(&b, "tokenizer.chat_template", "from the file");
    gguf_words(&b, sp_words, sizeof sp_words / sizeof *sp_words, true);
    gguf_finish(&b, &bytes);
    test_dir_write(dir, "sha256-0123", bytes.data, bytes.len);
    (void)snprintf(path, sizeof path, "%s/sha256-0123", dir);
    if (weft_tok_open(path, &tok, &why)) fail_msg("%s", why.text);
    text_expect(tok, "ab", 0, "8");
    weft_tok_free(tok);
    assert_int_equal(weft_tmpl_find(path, &source, &why), WEFT_OK);
    assert_string_equal(source, "from the file");
    free(source);
    assert_int_equal(weft_tok_gen_defaults(path, &got, &why), WEFT_OK);
    gguf_fini(&b);
    weft_buf_fini(&bytes);
    test_dir_free(dir);

    dir = text_small_folder();
    (void)snprintf(path, sizeof path, "%s.gguf", dir);
    assert_int_equal(rename(dir, path), 0);
    if (weft_tok_open(path, &tok, &why)) fail_msg("%s", why.text);
    weft_tok_free(tok);
    assert_int_equal(rename(path, dir), 0);
    test_dir_write(dir, "config.json", "{}", 2);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    if (weft_tok_open(path, &tok, &why)) fail_msg("%s", why.text);
    text_expect(tok, "a", 0, "3");
    weft_tok_free(tok);
    test_dir_free(dir);
}

static void gguf_vocabularies_that_do_not_add_up_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *model, *pre, *named;
        bool words;
        weft_err err;
    } cases[] = {
        {"rwkv", NULL, "rwkv", true, WEFT_E_UNSUPPORTED},
        {"bert", NULL, "unknown words", true, WEFT_E_UNSUPPORTED},
        {"t5", NULL, "tokens", false, WEFT_E_PROTO},
        {"gpt2", "klingon", "klingon", true, WEFT_E_UNSUPPORTED},
        {"gpt2", "gpt-2", "merges", true, WEFT_E_PROTO},
        {"llama", NULL, "tokens", false, WEFT_E_PROTO},
        {NULL, NULL, "tokenizer.ggml.model", true, WEFT_E_PROTO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_builder b;
        struct weft_buf bytes;
        struct weft_errmsg why = {""};
        weft_tokenizer *tok;
        weft_buf_init(&bytes, 1 << 20);
        gguf_init(&b);
        if (cases[i].model) gguf_str(&b, "tokenizer.ggml.model", cases[i].model);
        if (cases[i].pre) gguf_str(&b, "tokenizer.ggml.pre", cases[i].pre);
        if (cases[i].words) gguf_words(&b, sp_words, sizeof sp_words / sizeof *sp_words, false);
        gguf_finish(&b, &bytes);
        weft_err err = text_try_open_gguf(bytes.data, bytes.len, &tok, &why);
        assert_null(tok);
        if (err != cases[i].err || !strstr(why.text, cases[i].named)) fail_msg("%s", why.text);
        weft_buf_fini(&bytes);
        gguf_fini(&b);
    }
}

/* Silently they would be as if they were not there. */
static void settings_of_another_type_are_refused(void **state) {
    (void)state;
    static const char *const keys[] = {"tokenizer.ggml.pre", "tokenizer.ggml.add_bos_token",
                                       "tokenizer.ggml.remove_extra_whitespaces",
                                       "tokenizer.ggml.eos_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct gguf_builder b;
        struct weft_buf bytes;
        struct weft_errmsg why = {""};
        weft_tokenizer *tok;
        weft_buf_init(&bytes, 1 << 20);
        gguf_init(&b);
        gguf_str(&b, "tokenizer.ggml.model", "llama");
        gguf_words(&b, sp_words, sizeof sp_words / sizeof *sp_words, true);
        gguf_f32(&b, keys[i], 1);
        gguf_finish(&b, &bytes);
        weft_err err = text_try_open_gguf(bytes.data, bytes.len, &tok, &why);
        assert_null(tok);
        if (err != WEFT_E_PROTO || !strstr(why.text, keys[i])) fail_msg("%s", why.text);
        weft_buf_fini(&bytes);
        gguf_fini(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentence_piece_merges_by_score_and_falls_back_to_bytes),
        cmocka_unit_test(tokens_around_a_middle_are_named_by_the_file),
        cmocka_unit_test(sentence_piece_without_a_space_in_front),
        cmocka_unit_test(the_name_of_a_split_says_whether_merges_are_ignored_and_bos_added),
        cmocka_unit_test(merges_of_characters_fall_back_to_bytes),
        cmocka_unit_test(end_ends_the_turn_unless_return_and_call_do),
        cmocka_unit_test(gguf_files_need_no_suffix_and_folders_may_have_one),
        cmocka_unit_test(gguf_vocabularies_that_do_not_add_up_are_refused),
        cmocka_unit_test(settings_of_another_type_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
