/* SentencePiece: Unigram, its normaliser, and tokenizer.model files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "model/model.h"
#include "unit/model_files.h"
#include "unit/tokenizer_files.h"

/* --- tokenizer.json --------------------------------------------------------------------------- */

/* A tokenizer.json of a Unigram model; `options` and `normalizer` are JSON. */
static weft_tokenizer *open_unigram(const char *vocab, const char *options,
                                    const char *normalizer) {
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    weft_buf_printf(
        &json,
        "{\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
        "\"\u2581\",\"prepend_scheme\":\"never\",\"split\":false},\"decoder\":{\"type\":"
        "\"Metaspace\"},\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":"
        "true}],\"model\":{\"type\":\"Unigram\",%s,\"vocab\":%s}}",
        normalizer ? normalizer : "null", options, vocab);
    if (text_try_open(weft_buf_cstr(&json), &tok, &why)) fail_msg("%s", why.text);
    weft_buf_fini(&json);
    return tok;
}

#define VOCAB                                                                                      \
    "[[\"<s>\",0],[\"<unk>\",0],[\"a\",-2],[\"b\",-3],[\"ab\",-4],[\"abc\",-9],[\"c\",-4],"        \
    "[\"\u2581\",-2],[\"\u2581a\",-2.5],[\"b\u2581\",-4.5]]"

static void an_unknown_token_that_is_none_is_refused(void **state) {
    (void)state;
    static const char *const ids[] = {"2", "-1", "4294967295", "1e9", "0.5", "\"0\""};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct weft_errmsg why = {""};
        weft_tokenizer *tok;
        char json[256];
        (void)snprintf(json, sizeof json,
                       "{\"decoder\":{\"type\":\"Metaspace\"},\"model\":{\"type\":\"Unigram\","
                       "\"unk_id\":%s,\"vocab\":[[\"a\",-1],"
                       "[\"b\",-2]]}}",
                       ids[i]);
        assert_int_equal(text_try_open(json, &tok, &why), WEFT_E_PROTO);
        assert_non_null(strstr(why.text, "unk_id"));
    }
}

static void the_best_sum_of_scores_wins(void **state) {
    (void)state;
    weft_tokenizer *tok = open_unigram(VOCAB, "\"unk_id\":1", NULL);
    text_expect(tok, "ab", 0, "4");    /* -4 beats -2 - 3 */
    text_expect(tok, "abc", 0, "4 6"); /* -8 beats -9 */
    text_expect(tok, "ba", 0, "3 2");
    text_expect(tok, " a", 0, "8");     /* -2.5 beats -4 */
    text_expect(tok, "ab a", 0, "4 8"); /* -6.5; -2 - 4.5 - 2 = -8.5 */
    text_expect(tok, "b  b", 0, "9 7 3");
    weft_tok_free(tok);
}

static void unknown_characters_are_one_id_or_bytes(void **state) {
    (void)state;
    weft_tokenizer *tok = open_unigram(VOCAB, "\"unk_id\":1", NULL);
    text_expect(tok, "xyz", 0, "1");
    text_expect(tok, "x\u00e9a\u4e00 ", 0, "1 2 1 7");
    text_expect(tok, "x x", 0, "1 7 1");
    weft_tok_free(tok);
    tok = open_unigram(VOCAB, "\"unk_id\":null", NULL); /* nothing stands for them */
    text_expect(tok, "xay", 0, "2");
    weft_tok_free(tok);
    struct weft_buf vocab;
    weft_buf_init(&vocab, 1 << 16);
    weft_buf_add_str(&vocab, "[[\"<s>\",0],[\"<unk>\",0],[\"a\",-2]");
    for (unsigned byte = 0; byte < 256; byte++)
        weft_buf_printf(&vocab, ",[\"<0x%02X>\",-9]", byte);
    weft_buf_add_str(&vocab, "]");
    tok = open_unigram(weft_buf_cstr(&vocab), "\"unk_id\":1,\"byte_fallback\":true", NULL);
    text_expect(tok, "a\u00e9", 0, "2 198 172"); /* 3 + C3, 3 + A9 */
    weft_tok_free(tok);
    weft_buf_fini(&vocab);
}

static void a_special_token_is_not_found_by_its_score(void **state) {
    (void)state;
    weft_tokenizer *tok = open_unigram(VOCAB, "\"unk_id\":1", NULL);
    text_expect(tok, "a<s>a", 0, "2 1 2");
    text_expect(tok, "a<s>a", WEFT_TOK_PARSE_SPECIAL, "2 0 2");
    weft_tok_free(tok);
}

static void a_megabyte_of_one_letter_is_linear(void **state) {
    (void)state;
    enum { LEN = 1000000 };
    char *text = malloc(LEN);
    assert_non_null(text);
    memset(text, 'a', LEN);
    weft_tokenizer *tok =
        open_unigram("[[\"<s>\",0],[\"a\",-1],[\"aaa\",-2]]", "\"unk_id\":0", NULL);
    size_t n;
    uint32_t *ids = text_ids(tok, text, LEN, 0, &n);
    assert_int_equal(n, LEN / 3 + 1);
    free(ids);
    weft_tok_free(tok);
    free(text);
}

/* --- the map ---------------------------------------------------------------------------------- */

struct rule {
    const char *from, *to;
};

/* The double array of a few rules: node k has children at 256 k + byte and its leaf at 256 k. */
static void build_map(const struct rule *rules, size_t n_rules, struct weft_buf *out) {
    enum { NODES = 64, UNITS = 256 * (NODES + 1) };
    static uint32_t units[UNITS];
    uint32_t n_nodes = 2; /* the root is 1: its offset is in unit 0 */
    struct weft_buf texts;
    memset(units, 0, sizeof units);
    weft_buf_init(&texts, 1 << 16);
    units[0] = 256u << 10;
    for (size_t i = 0; i < n_rules; i++) {
        uint32_t base = 256, at = 0;
        for (const char *c = rules[i].from; *c; c++) {
            uint32_t byte = (unsigned char)*c;
            at = base ^ byte;
            if (units[at] == 0) {
                assert_true(n_nodes < NODES);
                uint32_t child = 256 * n_nodes++;
                units[at] = byte | (at ^ child) << 10;
            }
            base = (units[at] >> 10) ^ at;
        }
        units[at] |= 0x100;
        units[base] = 0x80000000u | (uint32_t)texts.len;
        weft_buf_add(&texts, rules[i].to, strlen(rules[i].to) + 1);
    }
    for (unsigned shift = 0; shift < 32; shift += 8)
        weft_buf_add_char(out, (char)(unsigned char)(sizeof units >> shift));
    for (size_t i = 0; i < UNITS; i++)
        for (unsigned shift = 0; shift < 32; shift += 8)
            weft_buf_add_char(out, (char)(unsigned char)(units[i] >> shift));
    weft_buf_add(out, texts.data, texts.len);
    weft_buf_fini(&texts);
}

static void add_base64(const struct weft_buf *bytes, struct weft_buf *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t at = 0; at < bytes->len; at += 3) {
        size_t n = bytes->len - at < 3 ? bytes->len - at : 3;
        uint32_t bits = 0;
        for (size_t i = 0; i < 3; i++)
            bits = bits << 8 | (i < n ? (unsigned char)bytes->data[at + i] : 0);
        for (size_t i = 0; i < 4; i++)
            weft_buf_add_char(out, i <= n ? digits[bits >> (18 - 6 * i) & 63] : '=');
    }
}

static void a_precompiled_map_goes_by_clusters(void **state) {
    (void)state;
    static const struct rule rules[] = {
        {"B", "b"}, {"\uff21", "a"}, {"c\u0301", "a"}, {"\x01", ""}, {"C", "ab"}};
    struct weft_buf map, normalizer;
    weft_buf_init(&map, 1 << 20);
    weft_buf_init(&normalizer, 1 << 20);
    build_map(rules, sizeof rules / sizeof *rules, &map);
    weft_buf_add_str(&normalizer, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
    add_base64(&map, &normalizer);
    weft_buf_add_str(&normalizer, "\"}");
    weft_tokenizer *tok = open_unigram(VOCAB, "\"unk_id\":1", weft_buf_cstr(&normalizer));
    text_expect(tok, "B\uff21", 0, "3 2");
    text_expect(tok, "c\u0301c", 0, "2 6");
    text_expect(tok,
                "a\x01"
                "a",
                0, "2 2");
    text_expect(tok, "C", 0, "4");
    text_expect(tok, "B\u0301a", 0, "3 2"); /* the mark goes with the letter it stands on */
    text_expect(tok, "B\u0301\u0302\u0303a", 0, "3 1 2"); /* a long cluster goes by characters */
    weft_tok_free(tok);
    weft_buf_fini(&map);
    weft_buf_fini(&normalizer);
}

/* --- tokenizer.model -------------------------------------------------------------------------- */

static void put_varint(struct weft_buf *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        weft_buf_add_char(out, (char)(unsigned char)(value | 0x80));
    weft_buf_add_char(out, (char)(unsigned char)value);
}

static void put_int(struct weft_buf *out, unsigned field, uint64_t value) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

static void put_bytes(struct weft_buf *out, unsigned field, const void *bytes, size_t n) {
    put_varint(out, field << 3 | 2);
    put_varint(out, n);
    weft_buf_add(out, bytes, n);
}

static void put_piece(struct weft_buf *out, const char *text, float score, unsigned type) {
    struct weft_buf piece;
    uint32_t bits;
    memcpy(&bits, &score, 4);
    weft_buf_init(&piece, 1 << 16);
    put_bytes(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    for (unsigned shift = 0; shift < 32; shift += 8)
        weft_buf_add_char(&piece, (char)(unsigned char)(bits >> shift));
    put_int(&piece, 3, type);
    put_bytes(out, 1, piece.data, piece.len);
    weft_buf_fini(&piece);
}

static void put_model_type(struct weft_buf *out, uint64_t type) {
    struct weft_buf trainer;
    weft_buf_init(&trainer, 1 << 16);
    put_int(&trainer, 3, type);
    put_int(&trainer, 41, UINT64_MAX); /* bos_id -1 */
    put_bytes(out, 2, trainer.data, trainer.len);
    weft_buf_fini(&trainer);
}

static void put_pieces(struct weft_buf *out) {
    put_piece(out, "<unk>", 0, 2);
    put_piece(out, "<s>", 0, 3);
    put_piece(out, "</s>", 0, 3);
    put_piece(out, "\u2581a", -1, 1);
    put_piece(out, "b", -2, 1);
}

static weft_err try_model(const struct weft_buf *model, const char *config,
                          weft_tokenizer **tok_out, struct weft_errmsg *why) {
    char *dir = test_dir_new();
    test_dir_write(dir, "tokenizer.model", model->data, model->len);
    if (config) test_dir_write(dir, "tokenizer_config.json", config, strlen(config));
    weft_err err = weft_tok_open(dir, tok_out, why);
    test_dir_free(dir);
    return err;
}

static void the_configuration_says_what_stands_around_a_text(void **state) {
    (void)state;
    static const struct {
        uint64_t type;
        const char *config, *want;
    } cases[] = {
        {1, NULL, "3 4 2"}, /* as T5 */
        {2, NULL, "3 4"},   /* as Llama, but there is no BOS */
        {2, "{\"bos_token\":\"<s>\"}", "1 3 4"},
        {2, "{\"bos_token\":{\"content\":\"<s>\"},\"add_bos_token\":false,\"add_eos_token\":true}",
         "3 4 2"},
        {1, "{\"add_eos_token\":false}", "3 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weft_errmsg why = {""};
        weft_tokenizer *tok;
        struct weft_buf model;
        weft_buf_init(&model, 1 << 16);
        put_pieces(&model);
        put_piece(&model, "\u2581", -5, 1);
        put_piece(&model, "a", -6, 1);
        put_model_type(&model, cases[i].type);
        if (try_model(&model, cases[i].config, &tok, &why)) fail_msg("%s", why.text);
        text_expect(tok, "  ab ", WEFT_TOK_ADD_SPECIAL, cases[i].want);
        weft_tok_free(tok);
        weft_buf_fini(&model);
    }
}

static void tokens_added_by_the_configuration_are_found(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    struct weft_buf model;
    weft_buf_init(&model, 1 << 16);
    put_pieces(&model);
    put_model_type(&model, 1);
    if (try_model(&model,
                  "{\"added_tokens_decoder\":{\"2\":{\"content\":\"</s>\",\"special\":true,"
                  "\"rstrip\":true},\"7\":{\"content\":\"<|end|>\",\"special\":true},"
                  "\"8\":{\"content\":\"<x>\"}}}",
                  &tok, &why))
        fail_msg("%s", why.text);
    assert_int_equal(weft_tok_vocab_size(tok), 9);
    text_expect(tok, "a</s>  <x>b<|end|>", WEFT_TOK_PARSE_SPECIAL, "3 2 8 0 4 7");
    text_expect(tok, "<x><|end|>", 0, "8 0");
    size_t len;
    assert_memory_equal(weft_tok_token_bytes(tok, 3, &len), " a", 2);
    weft_tok_free(tok);
    weft_buf_fini(&model);
}

static void legacy_says_whether_special_tokens_are_followed_by_a_space(void **state) {
    (void)state;
    static const char *const configs[] = {"{}", "{\"legacy\":false}",
                                          "{\"add_prefix_space\":false}"};
    static const char *const want[] = {"3 2 3 4", "3 2 5 4", "5 2 5 4"};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        struct weft_errmsg why = {""};
        weft_tokenizer *tok;
        struct weft_buf model;
        weft_buf_init(&model, 1 << 16);
        put_pieces(&model);
        put_piece(&model, "a", -1.5, 1);
        put_model_type(&model, 1);
        if (try_model(&model, configs[i], &tok, &why)) fail_msg("%s", why.text);
        text_expect(tok, "a</s>ab", WEFT_TOK_PARSE_SPECIAL, want[i]);
        weft_tok_free(tok);
        weft_buf_fini(&model);
    }
}

static void older_folders_name_added_tokens_in_a_file_of_their_own(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    struct weft_buf model;
    static const char added[] = "{\"<pad>\":5,\"<|im_end|>\":6,\"</s>\":2}";
    static const char config[] = "{\"eos_token\":\"<|im_end|>\"}";
    char *dir = test_dir_new();
    weft_buf_init(&model, 1 << 16);
    put_pieces(&model);
    put_model_type(&model, 1);
    test_dir_write(dir, "tokenizer.model", model.data, model.len);
    test_dir_write(dir, "added_tokens.json", added, sizeof added - 1);
    test_dir_write(dir, "tokenizer_config.json", config, sizeof config - 1);
    if (weft_tok_open(dir, &tok, &why)) fail_msg("%s", why.text);
    test_dir_free(dir);
    text_expect(tok, "b<|im_end|>", 0, "0 4 6");
    size_t n;
    const uint32_t *eos = weft_tok_eos(tok, &n);
    assert_int_equal(n, 1);
    assert_int_equal(eos[0], 6);
    weft_tok_free(tok);
    weft_buf_fini(&model);
}

static void a_folder_without_a_tokenizer_is_refused(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    char *dir = test_dir_new();
    assert_int_equal(weft_tok_open(dir, &tok, &why), WEFT_E_NOTFOUND);
    assert_non_null(strstr(why.text, "neither a tokenizer.json nor a tokenizer.model"));
    test_dir_free(dir);
}

static void expect_refused(struct weft_buf *model, weft_err want, const char *named) {
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    assert_int_equal(try_model(model, NULL, &tok, &why), want);
    assert_null(tok);
    if (!strstr(why.text, "tokenizer.model") || !strstr(why.text, named)) fail_msg("%s", why.text);
    weft_buf_clear(model);
}

static void models_that_do_not_add_up_are_refused(void **state) {
    (void)state;
    struct weft_buf model, map;
    weft_buf_init(&model, 1 << 20);
    weft_buf_init(&map, 1 << 20);
    expect_refused(&model, WEFT_E_PROTO, "no pieces");
    put_pieces(&model);
    put_model_type(&model, 3);
    expect_refused(&model, WEFT_E_UNSUPPORTED, "type 3");
    put_piece(&model, "<unk>", 0, 2);
    expect_refused(&model, WEFT_E_PROTO, "no piece with a score");
    put_piece(&model, "a\xff", 0, 1);
    expect_refused(&model, WEFT_E_PROTO, "UTF-8");
    put_piece(&model, "", 0, 1);
    expect_refused(&model, WEFT_E_PROTO, "piece 0 is empty");
    put_piece(&model, "<0xG0>", 0, 6);
    expect_refused(&model, WEFT_E_PROTO, "<0xNN>");
    static const float bad[] = {1e30f, -1e30f};
    for (size_t i = 0; i < 2; i++) {
        put_piece(&model, "a", bad[i], 1);
        expect_refused(&model, WEFT_E_PROTO, "score of token 0");
    }
    put_pieces(&model);
    weft_buf_add_str(&model, "\x0a\x7f"); /* 127 bytes that are not there */
    expect_refused(&model, WEFT_E_PROTO, "damaged");
    weft_buf_add_str(&model, "\x0b"); /* a group */
    expect_refused(&model, WEFT_E_PROTO, "damaged");
    for (int i = 0; i < 11; i++)
        weft_buf_add_char(&model, '\x88'); /* a number without end */
    expect_refused(&model, WEFT_E_PROTO, "damaged");
    put_bytes(&map, 2, "\x08\0\0\0\0\0\0\0", 8); /* a map of 8 bytes of which 4 are there */
    put_pieces(&model);
    put_bytes(&model, 3, map.data, map.len);
    expect_refused(&model, WEFT_E_PROTO, "normaliser of 8 bytes is damaged");
    weft_buf_fini(&map);
    weft_buf_fini(&model);
}

/* With any map the text stays UTF-8 and nothing is read outside. */
static void a_map_of_noise_does_no_harm(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    for (int round = 0; round < 200; round++) {
        unsigned char bytes[4 + 4096 + 32] = {0, 16};
        for (size_t i = 4; i < 4100; i += 4) {
            uint32_t unit = (uint32_t)weft_rand_next(&rand);
            if (round % 2) /* a trie that goes on: the right label, a leaf, a near offset */
                unit = (uint32_t)(i / 4 % 256) | 0x100u | (unit % 1024) << 10;
            memcpy(bytes + i, &unit, 4);
        }
        for (size_t i = 4100; i < sizeof bytes; i++)
            bytes[i] = (unsigned char)(weft_rand_next(&rand) % 4 ? 'a' + i % 26 : 0);
        struct weft_errmsg why = {""};
        weft_tokenizer *tok;
        struct weft_buf model, spec, out;
        weft_buf_init(&model, 1 << 16);
        weft_buf_init(&spec, 1 << 16);
        weft_buf_init(&out, 1 << 20);
        put_bytes(&spec, 2, bytes, sizeof bytes);
        put_pieces(&model);
        put_bytes(&model, 3, spec.data, spec.len);
        if (try_model(&model, NULL, &tok, &why)) fail_msg("%s", why.text);
        char text[512];
        size_t len = text_random(&rand, text, sizeof text), n;
        uint32_t *ids = text_ids(tok, text, len, 0, &n);
        text_decode(tok, ids, n, &out);
        free(ids);
        weft_tok_free(tok);
        weft_buf_fini(&out);
        weft_buf_fini(&spec);
        weft_buf_fini(&model);
    }
}

/* A trie whose branches lead back to themselves, on a megabyte that follows them. */
static void a_map_that_loops_ends(void **state) {
    (void)state;
    enum { LEN = 1000000, UNITS = 1024 };
    static unsigned char bytes[4 + 4 * UNITS + 2];
    const uint32_t root = 512u << 10, loop = 'a' | (uint32_t)'a' << 10;
    bytes[1] = 4 * UNITS >> 8;
    for (size_t i = 0; i < 4; i++) {
        bytes[4 + i] = (unsigned char)(root >> 8 * i);
        bytes[4 + (512 ^ 'a') * 4 + i] = (unsigned char)(loop >> 8 * i); /* back to 512 */
    }
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    struct weft_buf model, spec;
    weft_buf_init(&model, 1 << 16);
    weft_buf_init(&spec, 1 << 16);
    put_bytes(&spec, 2, bytes, sizeof bytes);
    put_pieces(&model);
    put_bytes(&model, 3, spec.data, spec.len);
    if (try_model(&model, NULL, &tok, &why)) fail_msg("%s", why.text);
    char *text = malloc(LEN);
    assert_non_null(text);
    memset(text, 'a', LEN);
    text_expect_n(tok, text, LEN, 0, "3 0");
    free(text);
    weft_tok_free(tok);
    weft_buf_fini(&spec);
    weft_buf_fini(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_token_that_is_none_is_refused),
        cmocka_unit_test(the_best_sum_of_scores_wins),
        cmocka_unit_test(unknown_characters_are_one_id_or_bytes),
        cmocka_unit_test(a_special_token_is_not_found_by_its_score),
        cmocka_unit_test(a_megabyte_of_one_letter_is_linear),
        cmocka_unit_test(a_precompiled_map_goes_by_clusters),
        cmocka_unit_test(a_map_that_loops_ends),
        cmocka_unit_test(the_configuration_says_what_stands_around_a_text),
        cmocka_unit_test(tokens_added_by_the_configuration_are_found),
        cmocka_unit_test(legacy_says_whether_special_tokens_are_followed_by_a_space),
        cmocka_unit_test(older_folders_name_added_tokens_in_a_file_of_their_own),
        cmocka_unit_test(a_folder_without_a_tokenizer_is_refused),
        cmocka_unit_test(models_that_do_not_add_up_are_refused),
        cmocka_unit_test(a_map_of_noise_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
