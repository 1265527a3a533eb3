/* WordPiece, and texts and pairs that are cut to a length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/tokenizer_files.h"

#define MODEL(options)                                                                             \
    "\"model\":{\"type\":\"WordPiece\"," options                                                   \
    "\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"un\":3,\"##aff\":4,\"##able\":5,\"##a\":6,"  \
    "\"a\":7,\"ab\":8,\"##c\":9,\"!\":10,\"\xE4\xB8\xAD\":11,\"e\":12,\"\xC3\xA9\":13,"            \
    "\"E\":14,\"[\":15}}"
#define CLS "{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}}"
#define SEP(type) "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":" type "}}"
#define TEXT(name, type) "{\"Sequence\":{\"id\":\"" name "\",\"type_id\":" type "}}"
#define POST(pair)                                                                                 \
    ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" CLS                        \
    "," TEXT("A", "0") "," SEP("0") "],\"pair\":[" pair                                            \
                                    "],\"special_tokens\":{\"[CLS]\":{\"ids\":[1]},"               \
                                    "\"[SEP]\":{\"ids\":[2]}}}"
#define BERT_PAIR CLS "," TEXT("A", "0") "," SEP("0") "," TEXT("B", "1") "," SEP("1")

static weft_tokenizer *open_words(const char *normalizer, const char *model, const char *post) {
    char json[4096];
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    int n = snprintf(json, sizeof json,
                     "{\"normalizer\":{\"type\":\"BertNormalizer\"%s},\"pre_tokenizer\":{\"type\":"
                     "\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\"},"
                     "\"added_tokens\":[{\"id\":1,\"content\":\"[CLS]\",\"special\":true},"
                     "{\"id\":2,\"content\":\"[SEP]\",\"special\":true}],%s%s}",
                     normalizer, model, post);
    assert_true(n > 0 && (size_t)n < sizeof json);
    weft_err err = text_try_open(json, &tok, &why);
    if (err) fail_msg("%s", why.text);
    return tok;
}

static void a_word_becomes_its_longest_pieces_from_the_left(void **state) {
    (void)state;
    weft_tokenizer *tok = open_words("", MODEL(""), "");
    text_expect(tok, "unaffable", 0, "3 4 5");
    text_expect(tok, "unaaff", 0, "3 6 4");
    text_expect(tok, "abc", 0, "8 9");
    text_expect(tok, "aa  ab", 0, "7 6 8");
    weft_tok_free(tok);
}

static void a_word_without_pieces_is_unknown_as_a_whole(void **state) {
    (void)state;
    weft_tokenizer *tok = open_words("", MODEL(""), "");
    text_expect(tok, "unx", 0, "0");
    text_expect(tok, "xun ab", 0, "0 8");
    text_expect(tok, "##a", 0, "0 0 7"); /* the marks are words, and unknown */
    weft_tok_free(tok);
}

static void a_word_over_the_length_is_unknown(void **state) {
    (void)state;
    weft_tokenizer *tok = open_words("", MODEL("\"max_input_chars_per_word\":4,"), "");
    text_expect(tok, "aaaa aaaaa", 0, "7 6 6 6 0");
    text_expect(tok, "\xE4\xB8\xAD\xE4\xB8\xAD", 0, "11 11"); /* characters count, not bytes */
    weft_tok_free(tok);
}

static void the_normalizer_does_what_its_options_say(void **state) {
    (void)state;
    weft_tokenizer *tok = open_words("", MODEL(""), "");
    text_expect(tok, "\xC3\x89 E\xCC\x81", 0, "12 12"); /* lower case, accents off */
    text_expect(tok,
                "a\xE4\xB8\xAD"
                "b!",
                0, "7 11 0 10");
    text_expect_n(tok,
                  "a\0\x01\xE2\x80\x8B"
                  "b",
                  7, 0, "8");
    weft_tok_free(tok);
    tok = open_words(",\"lowercase\":false", MODEL(""), "");
    text_expect(tok, "\xC3\xA9 E", 0, "13 14");
    weft_tok_free(tok);
    tok = open_words(",\"lowercase\":false,\"strip_accents\":true", MODEL(""), "");
    text_expect(tok, "\xC3\xA9 E", 0, "12 14");
    weft_tok_free(tok);
    tok = open_words(",\"handle_chinese_chars\":false,\"clean_text\":false", MODEL(""), "");
    text_expect(tok,
                "\xE4\xB8\xAD"
                "c \x01",
                0, "11 9 0");
    weft_tok_free(tok);
}

static void words_are_decoded_with_spaces_between_them(void **state) {
    (void)state;
    static const uint32_t ids[] = {3, 4, 5, 7, 10};
    weft_tokenizer *tok = open_words("", MODEL(""), "");
    struct weft_buf out;
    weft_buf_init(&out, 100);
    text_decode(tok, ids, 5, &out);
    assert_string_equal(weft_buf_cstr(&out), "unaffable a !");
    weft_buf_fini(&out);
    weft_tok_free(tok);
}

static void a_vocabulary_without_an_unknown_token_is_refused(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    weft_err err = text_try_open("{\"decoder\":{\"type\":\"WordPiece\"},\"model\":{\"type\":"
                                 "\"WordPiece\",\"vocab\":{\"a\":0}}}",
                                 &tok, &why);
    assert_int_equal(err, WEFT_E_UNSUPPORTED);
    assert_non_null(strstr(why.text, "unknown words"));
}

/* --- cuts ------------------------------------------------------------------------------------- */

static void expect_cut(const weft_tokenizer *tok, const struct weft_tok_cut *input,
                       const char *want, size_t n_first) {
    struct weft_errmsg why = {""};
    char got[512] = "";
    uint32_t *ids;
    size_t n, n_first_got;
    weft_err err = weft_tok_encode_cut(tok, input, &ids, &n, &n_first_got, &why);
    if (err) fail_msg("%s", why.text);
    for (size_t i = 0, at = 0; i < n; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, i ? " %u" : "%u", ids[i]);
    assert_string_equal(got, want);
    assert_int_equal(n_first_got, n_first);
    free(ids);
}

static struct weft_tok_cut cut_of(const char *first, const char *second, size_t ids_max) {
    return (struct weft_tok_cut){.first = {first, strlen(first)},
                                 .second = {second ? second : "", second ? strlen(second) : 0},
                                 .is_pair = second != NULL,
                                 .flags = WEFT_TOK_ADD_SPECIAL,
                                 .ids_max = ids_max};
}

static void a_long_text_loses_its_end_and_keeps_what_is_around_it(void **state) {
    (void)state;
    weft_tokenizer *tok = open_words("", MODEL(""), POST(BERT_PAIR));
    struct weft_tok_cut input = cut_of("a ab a ab", NULL, 5);
    expect_cut(tok, &input, "1 7 8 7 2", 5);
    input = cut_of("", NULL, 5);
    expect_cut(tok, &input, "1 2", 2);
    input = cut_of("a", NULL, 2);
    expect_cut(tok, &input, "1 2", 2);
    input.flags = 0;
    expect_cut(tok, &input, "7", 1);
    weft_tok_free(tok);
}

static void the_longer_text_of_a_pair_loses_tokens(void **state) {
    (void)state;
    weft_tokenizer *tok = open_words("", MODEL(""), POST(BERT_PAIR));
    struct weft_tok_cut input = cut_of("a a", "ab ab ab ab", 100);
    expect_cut(tok, &input, "1 7 7 2 8 8 8 8 2", 4);
    input.ids_max = 8;
    expect_cut(tok, &input, "1 7 7 2 8 8 8 2", 4);
    input.ids_max = 7;
    expect_cut(tok, &input, "1 7 7 2 8 8 2", 4);
    input.ids_max = 6; /* of equal ones the second */
    expect_cut(tok, &input, "1 7 7 2 8 2", 4);
    input.ids_max = 5;
    expect_cut(tok, &input, "1 7 2 8 2", 3);
    input.ids_max = 3;
    expect_cut(tok, &input, "1 2 2", 2);
    weft_tok_free(tok);
}

static void less_room_than_special_tokens_is_refused(void **state) {
    (void)state;
    weft_tokenizer *tok = open_words("", MODEL(""), POST(BERT_PAIR));
    struct weft_tok_cut input = cut_of("a", "a", 2);
    struct weft_errmsg why = {""};
    uint32_t *ids;
    size_t n, n_first;
    assert_int_equal(weft_tok_encode_cut(tok, &input, &ids, &n, &n_first, &why), WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "3 are put around"));
    weft_tok_free(tok);
}

static void pairs_have_the_types_of_their_post_processor(void **state) {
    (void)state;
    struct weft_tok_cut input = cut_of("a", "ab", 100);
    static const struct {
        const char *post, *want;
        size_t n_first;
    } cases[] = {
        {POST(CLS "," TEXT("A", "0") "," SEP("0") "," SEP("0") "," TEXT("B", "0") "," SEP("0")),
         "1 7 2 2 8 2", 6},
        {POST(CLS "," TEXT("A", "0") "," SEP("0") "," SEP("1") "," TEXT("B", "1")), "1 7 2 2 8", 3},
        {",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"c\",1],\"sep\":[\"s\",2]}",
         "1 7 2 8 2", 3},
        {",\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"c\",1],\"sep\":[\"s\",2]}",
         "1 7 2 2 8 2", 6},
        {"", "7 8", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tokenizer *tok = open_words("", MODEL(""), cases[i].post);
        expect_cut(tok, &input, cases[i].want, cases[i].n_first);
        weft_tok_free(tok);
    }
}

static void pairs_in_another_order_are_refused_and_single_texts_are_not(void **state) {
    (void)state;
    static const char *const odd[] = {
        POST(TEXT("B", "0") "," TEXT("A", "0")), POST(CLS "," TEXT("A", "0")),
        POST(TEXT("A", "1") "," TEXT("B", "0")), POST(TEXT("A", "0") "," TEXT("B", "2")),
        POST(TEXT("A", "0") "," TEXT("B", "0") "," SEP("1"))};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct weft_errmsg why = {""};
        struct weft_tok_cut input = cut_of("a", "ab", 100);
        uint32_t *ids;
        size_t n, n_first;
        weft_tokenizer *tok = open_words("", MODEL(""), odd[i]);
        assert_int_equal(weft_tok_encode_cut(tok, &input, &ids, &n, &n_first, &why),
                         WEFT_E_UNSUPPORTED);
        input.is_pair = false;
        expect_cut(tok, &input, "1 7 2", 3);
        weft_tok_free(tok);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_becomes_its_longest_pieces_from_the_left),
        cmocka_unit_test(a_word_without_pieces_is_unknown_as_a_whole),
        cmocka_unit_test(a_word_over_the_length_is_unknown),
        cmocka_unit_test(the_normalizer_does_what_its_options_say),
        cmocka_unit_test(words_are_decoded_with_spaces_between_them),
        cmocka_unit_test(a_vocabulary_without_an_unknown_token_is_refused),
        cmocka_unit_test(a_long_text_loses_its_end_and_keeps_what_is_around_it),
        cmocka_unit_test(the_longer_text_of_a_pair_loses_tokens),
        cmocka_unit_test(less_room_than_special_tokens_is_refused),
        cmocka_unit_test(pairs_have_the_types_of_their_post_processor),
        cmocka_unit_test(pairs_in_another_order_are_refused_and_single_texts_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
