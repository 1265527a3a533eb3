#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "base/utf8.h"
#include "unit/model_files.h"
#include "unit/tokenizer_files.h"

/* Ids 0..255 are the bytes; 256 is special, 257 an added word of two characters' halves. */
static weft_tokenizer *bytes_tokenizer(void) {
    return text_open(&(struct text_parts){
        .bytes = true,
        .pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}",
        .added_tokens = "[{\"id\":256,\"content\":\"<s>\",\"special\":true},"
                        "{\"id\":257,\"content\":\"\u00e9t\u00e9\",\"special\":false,"
                        "\"normalized\":false}]"});
}

static void expect_text(const weft_tokenizer *tok, bool skip_special, const uint32_t *ids, size_t n,
                        const char *want) {
    struct weft_detok detok;
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_detok_init(&detok, tok, skip_special);
    for (size_t i = 0; i < n; i++) {
        size_t before = out.len;
        weft_detok_push(&detok, ids[i], &out);
        assert_true(weft_utf8_valid(weft_buf_cstr(&out) + before, out.len - before));
    }
    weft_detok_finish(&detok, &out);
    assert_string_equal(weft_buf_cstr(&out), want);
    weft_buf_fini(&out);
}

#define EXPECT(tok, skip, want, ...)                                                               \
    expect_text(tok, skip, (const uint32_t[]){__VA_ARGS__},                                        \
                sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), want)

static void half_characters_wait_for_their_other_half(void **state) {
    (void)state;
    weft_tokenizer *tok = bytes_tokenizer();
    struct weft_detok detok;
    struct weft_buf out;
    weft_buf_init(&out, 100);
    weft_detok_init(&detok, tok, true);
    static const unsigned char grin[] = {0xF0, 0x9F, 0x98, 0x80};
    for (size_t i = 0; i < 3; i++) {
        weft_detok_push(&detok, grin[i], &out);
        assert_int_equal(out.len, 0);
    }
    weft_detok_push(&detok, grin[3], &out);
    assert_string_equal(weft_buf_cstr(&out), "\U0001f600");
    weft_buf_fini(&out);
    weft_tok_free(tok);
}

static void impossible_bytes_become_one_replacement_each_part(void **state) {
    (void)state;
    weft_tokenizer *tok = bytes_tokenizer();
    EXPECT(tok, true, "\uFFFDa", 0xFF, 'a');
    EXPECT(tok, true, "\uFFFDa", 0xE2, 0x82, 'a');             /* one part that broke off */
    EXPECT(tok, true, "\uFFFD\uFFFDa", 0xE0, 0x80, 'a');       /* overlong: two parts */
    EXPECT(tok, true, "\uFFFD\uFFFD\uFFFD", 0xED, 0xA0, 0x80); /* a surrogate: three */
    EXPECT(tok, true, "\uFFFD\u00e9", 0xC3, 0xC3, 0xA9);
    EXPECT(tok, true, "x\uFFFD", 'x', 0xF0, 0x9F, 0x98); /* the end came first */
    EXPECT(tok, true, "\uFFFD\uFFFD", 0xF4, 0x90);       /* above U+10FFFF */
    weft_tok_free(tok);
}

static void special_tokens_are_shown_or_skipped(void **state) {
    (void)state;
    weft_tokenizer *tok = bytes_tokenizer();
    EXPECT(tok, true, "ab", 'a', 256, 'b');
    EXPECT(tok, false, "a<s>b", 'a', 256, 'b');
    EXPECT(tok, true, "\u00e9", 0xC3, 256, 0xA9); /* skipped: as if it were not there */
    EXPECT(tok, false, "\uFFFD<s>\uFFFD", 0xC3, 256, 0xA9);
    EXPECT(tok, true, "\u00e9t\u00e9", 257);
    EXPECT(tok, true, "a", 'a', 9999, UINT32_MAX); /* unknown ids say nothing */
    weft_tok_free(tok);
}

static void the_first_space_of_sentence_piece_goes(void **state) {
    (void)state;
    static const char *const words[] = {"\u2581", "\u2581a", "b", "<0xC3>", "<0xA9>", NULL};
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .words = words,
        .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
                      "\"prepend\":\"\u2581\"},{\"type\":\"Replace\",\"pattern\":"
                      "{\"String\":\" \"},\"content\":\"\u2581\"}]}",
        .merges = "[]",
        .added_tokens = "[{\"id\":5,\"content\":\"<s>\",\"special\":true}]",
        .decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
                   "{\"String\":\"\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
                   "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
                   "\"stop\":0}]}"});
    EXPECT(tok, true, "a ab", 1, 1, 2);
    EXPECT(tok, true, " a", 0, 1);     /* only one space goes */
    EXPECT(tok, true, "a", 5, 1);      /* a skipped token is no beginning */
    EXPECT(tok, false, "<s> a", 5, 1); /* a shown one is */
    EXPECT(tok, true, "\u00e9 a", 3, 4, 1);
    struct weft_detok detok;
    struct weft_buf out;
    weft_buf_init(&out, 100);
    weft_detok_init(&detok, tok, true);
    detok.at_start = false; /* what continues a prompt */
    weft_detok_push(&detok, 1, &out);
    assert_string_equal(weft_buf_cstr(&out), " a");
    weft_buf_fini(&out);
    weft_tok_free(tok);
}

/* All bytes at once through the rule "one per maximal subpart" is the same as one by one. */
static void pieces_concatenate_to_the_whole(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    if (weft_tok_open(test_source_path("models/fable-6m"), &tok, &why)) fail_msg("%s", why.text);
    weft_tokenizer *bytes = bytes_tokenizer();
    struct weft_buf pieces, whole;
    weft_buf_init(&pieces, 1 << 16);
    weft_buf_init(&whole, 1 << 16);
    for (int round = 0; round < 3000; round++) {
        struct weft_detok by_token, by_byte;
        weft_detok_init(&by_token, tok, false);
        weft_detok_init(&by_byte, bytes, false);
        weft_buf_clear(&pieces);
        weft_buf_clear(&whole);
        uint32_t n = weft_rand_below(&rand, 30);
        for (uint32_t i = 0; i < n; i++) {
            /* Half of them single bytes, so that characters do get torn. */
            uint32_t id = weft_rand_below(&rand, weft_rand_below(&rand, 2) ? 256 : 4096);
            size_t len, before = pieces.len;
            const char *text = weft_tok_token_bytes(tok, id, &len);
            weft_detok_push(&by_token, id, &pieces);
            assert_true(weft_utf8_valid(weft_buf_cstr(&pieces) + before, pieces.len - before));
            for (size_t k = 0; k < len; k++)
                weft_detok_push(&by_byte, (unsigned char)text[k], &whole);
        }
        weft_detok_finish(&by_token, &pieces);
        weft_detok_finish(&by_byte, &whole);
        assert_int_equal(pieces.len, whole.len);
        assert_string_equal(weft_buf_cstr(&pieces), weft_buf_cstr(&whole));
    }
    weft_buf_fini(&pieces);
    weft_buf_fini(&whole);
    weft_tok_free(bytes);
    weft_tok_free(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_characters_wait_for_their_other_half),
        cmocka_unit_test(impossible_bytes_become_one_replacement_each_part),
        cmocka_unit_test(special_tokens_are_shown_or_skipped),
        cmocka_unit_test(the_first_space_of_sentence_piece_goes),
        cmocka_unit_test(pieces_concatenate_to_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
