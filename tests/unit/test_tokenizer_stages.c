/* The stages around the merging: splitting, normalising, added tokens, the frame of a text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/tokenizer_files.h"

#define SPECIAL WEFT_TOK_PARSE_SPECIAL

/* --- splitting -------------------------------------------------------------------------------- */

/* Pieces of the texts below, whole by ignore_merges. */
static const char *const split_words[] = {
    "the",    "-",          "final",  "--",       "countdown", "the-",     "final-",
    "-final", "-countdown", "thefin", " ",        "12",        "1",        "2",
    "ab",     "!",          "?!",     "\u2581ab", "\u2581",    "\u258112", NULL};

static void expect_split(const char *pre_tokenizer, const char *text, const char *want) {
    weft_tokenizer *tok = text_open(&(struct text_parts){.words = split_words,
                                                         .pre_tokenizer = pre_tokenizer,
                                                         .options = "\"ignore_merges\":true,"});
    text_expect(tok, text, 0, want);
    weft_tok_free(tok);
}

static void split_joins_matches_as_its_behavior_says(void **state) {
    (void)state;
    static const struct {
        const char *behavior, *invert, *want;
    } cases[] = {
        {"Removed", "false", "0 2 4"},          {"Isolated", "false", "0 1 2 1 1 4"},
        {"Contiguous", "false", "0 1 2 3 4"},   {"MergedWithPrevious", "false", "5 6 1 4"},
        {"MergedWithNext", "false", "0 7 1 8"}, {"Removed", "true", "1 1 1"},
        {"Isolated", "true", "0 1 2 1 1 4"},    {"MergedWithPrevious", "true", "0 7 1 8"},
        {"MergedWithNext", "true", "5 6 1 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[256];
        (void)snprintf(json, sizeof json,
                       "{\"type\":\"Split\",\"pattern\":{\"%s\":\"-\"},\"behavior\":\"%s\","
                       "\"invert\":%s}",
                       i % 2 ? "Regex" : "String", cases[i].behavior, cases[i].invert);
        expect_split(json, "the-final--countdown", cases[i].want);
    }
}

static void other_pre_tokenizers_cut_where_they_should(void **state) {
    (void)state;
    expect_split("{\"type\":\"Digits\",\"individual_digits\":true}", "the12ab", "0 12 13 14");
    expect_split("{\"type\":\"Digits\",\"individual_digits\":false}", "the12ab", "0 11 14");
    expect_split("{\"type\":\"Whitespace\"}", "the 12?!", "0 11 16");
    expect_split("{\"type\":\"WhitespaceSplit\"}", "the  ab", "0 14");
    expect_split("{\"type\":\"Punctuation\",\"behavior\":\"Isolated\"}", "ab!the", "14 15 0");
    expect_split("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},"
                 "{\"type\":\"Digits\",\"individual_digits\":true}]}",
                 "ab12 the", "14 12 13 0");
    expect_split(
        "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"always\"}",
        "ab 12", "17 19");
    expect_split("{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"never\"}",
                 "ab 12", "14 19");
    /* The border of a word. */
    const char *const border = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\bthe\\\\b\"},"
                               "\"behavior\":\"Isolated\"}";
    expect_split(border, "the-the", "0 1 0");
    expect_split(border, "thefin", "9");
    expect_split("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x*\"},\"behavior\":\"Isolated\"}",
                 "ab", ""); /* an empty match between any two characters cuts there */
}

static void white_space_and_words_mean_what_unicode_says(void **state) {
    (void)state;
    /* U+180E is no white space since Unicode 6.3; U+0085 and U+3000 are. */
    static const char *const words[] = {"a", "b", "a\u180eb", "a\u0301", NULL};
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .words = words,
        .options = "\"ignore_merges\":true,",
        .pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s\"},"
                         "\"behavior\":\"Removed\"}"});
    text_expect(tok, "a\u180eb", 0, "2");
    text_expect(tok,
                "a\xc2\x85"
                "b\u3000a\u00a0b",
                0, "0 1 0 1");
    weft_tok_free(tok);
    tok = text_open(&(struct text_parts){
        .words = words,
        .options = "\"ignore_merges\":true,",
        .pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},"
                         "\"behavior\":\"Isolated\"}"});
    text_expect(tok, "a\u0301", 0, "3"); /* a mark belongs to the word */
    weft_tok_free(tok);
}

static void byte_level_puts_a_space_in_front_where_told(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}"});
    text_expect(tok, "a", 0, "32 97");
    text_expect(tok, " a", 0, "32 97");
    weft_tok_free(tok);
}

static void steps_behind_byte_level_see_printable_bytes(void **state) {
    (void)state;
    /* 0xB2 prints as a superscript two, which is a number: Digits cuts it out of the word. */
    static const char *const words[] = {"a\u00c2\u00b2", NULL};
    struct text_parts parts = {.bytes = true,
                               .words = words,
                               .options = "\"ignore_merges\":true,",
                               .pre_tokenizer =
                                   "{\"type\":\"Sequence\",\"pretokenizers\":[" TEXT_BYTE_LEVEL
                                   ",{\"type\":\"Digits\",\"individual_digits\":true}]}"};
    weft_tokenizer *tok = text_open(&parts);
    text_expect(tok, "a\u00b2", 0, "97 194 178");
    weft_tok_free(tok);
    parts.pre_tokenizer = TEXT_BYTE_LEVEL;
    tok = text_open(&parts);
    text_expect(tok, "a\u00b2", 0, "256");
    weft_tok_free(tok);
}

/* --- normalising ------------------------------------------------------------------------------ */

static void expect_normal(const char *normalizer, const char *text, const char *want) {
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true, .normalizer = normalizer, .pre_tokenizer = TEXT_BYTE_LEVEL});
    size_t n;
    uint32_t *ids = text_ids(tok, text, strlen(text), 0, &n);
    char got[256];
    assert_true(n < sizeof got);
    for (size_t i = 0; i < n; i++)
        got[i] = (char)ids[i];
    got[n] = 0;
    assert_string_equal(got, want);
    free(ids);
    weft_tok_free(tok);
}

static void text_is_normalised_as_the_file_says(void **state) {
    (void)state;
    expect_normal("{\"type\":\"NFC\"}", "e\u0301x", "\u00e9x");
    expect_normal("{\"type\":\"NFC\"}", "\ufb01 \u1100\u1161", "\ufb01 \uac00");
    expect_normal("{\"type\":\"NFD\"}", "\u00e9", "e\u0301");
    expect_normal("{\"type\":\"NFD\"}", "\uac01", "\u1100\u1161\u11a8");
    expect_normal("{\"type\":\"NFKC\"}", "\ufb01\u00b2", "fi2");
    expect_normal("{\"type\":\"NFKD\"}", "\u1e9b\u0323", "s\u0323\u0307");
    expect_normal("{\"type\":\"NFC\"}", "a\u0315\u0300\u05ae\u0323b",
                  "\u1ea1\u05ae\u0300\u0315b"); /* marks in canonical order */
    expect_normal("{\"type\":\"Lowercase\"}", "A\u00c9\u0130Z", "a\u00e9i\u0307z");
    expect_normal("{\"type\":\"Prepend\",\"prepend\":\"_\"}", "a", "_a");
    expect_normal("{\"type\":\"Prepend\",\"prepend\":\"_\"}", "", "");
    expect_normal("{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"__\"}",
                  " a b", "__a__b");
    expect_normal("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[ab]+\"},\"content\":\"\"}",
                  "xaby", "xy");
    expect_normal("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", "\u3000 a b \n",
                  "a b");
    expect_normal("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},"
                  "{\"type\":\"Lowercase\"}]}",
                  "\uff21", "a");
}

static void a_long_run_of_unordered_marks_is_no_trap(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true, .normalizer = "{\"type\":\"NFD\"}", .pre_tokenizer = TEXT_BYTE_LEVEL});
    struct weft_buf text;
    weft_buf_init(&text, 1 << 21);
    for (int i = 0; i < 200000; i++)
        weft_buf_add_str(&text, i % 2 ? "\u0323" : "\u0301"); /* below, above, below ... */
    size_t n;
    uint32_t *ids = text_ids(tok, text.data, text.len, 0, &n);
    assert_int_equal(n, 400000);
    assert_int_equal(ids[1], 0xA3); /* all those below come first */
    assert_int_equal(ids[399999], 0x81);
    free(ids);
    weft_buf_fini(&text);
    weft_tok_free(tok);
}

/* --- added tokens ----------------------------------------------------------------------------- */

#define ADDED(id, text, traits) "{\"id\":" #id ",\"content\":\"" text "\"" traits "}"

static void special_tokens_are_parsed_only_on_request(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .pre_tokenizer = TEXT_BYTE_LEVEL,
        .added_tokens = "[" ADDED(256, "<s>", ",\"special\":true,\"normalized\":false") "," ADDED(
            257, "<tool>", ",\"special\":false,\"normalized\":false") "]"});
    text_expect(tok, "<s>", SPECIAL, "256");
    text_expect(tok, "<s>", 0, "60 115 62");
    text_expect(tok, "a<tool>", 0, "97 257");
    text_expect(tok, "a<tool><s>", SPECIAL, "97 257 256");
    assert_true(weft_tok_is_special(tok, 256));
    assert_false(weft_tok_is_special(tok, 257));
    assert_false(weft_tok_is_special(tok, 97));
    assert_false(weft_tok_is_special(tok, 5000));
    assert_int_equal(weft_tok_vocab_size(tok), 258);
    weft_tok_free(tok);
}

static void the_longest_of_several_added_tokens_wins(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .pre_tokenizer = TEXT_BYTE_LEVEL,
        .added_tokens = "[" ADDED(256, "<a", ",\"special\":true") "," ADDED(
            257, "<ab>", ",\"special\":true") "," ADDED(258, "<abc>",
                                                        ",\"special\":false,"
                                                        "\"normalized\":false") "]"});
    text_expect(tok, "<ab>", SPECIAL, "257");
    text_expect(tok, "<abc>", SPECIAL, "258");
    text_expect(tok, "<abx", SPECIAL, "256 98 120");
    text_expect(tok, "<<a", SPECIAL, "60 256");
    text_expect(tok, "<", SPECIAL, "60");
    weft_tok_free(tok);
}

static void added_tokens_swallow_space_and_stand_alone_where_told(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .pre_tokenizer = TEXT_BYTE_LEVEL,
        .added_tokens = "[" ADDED(256, "<l>", ",\"special\":true,\"lstrip\":true") "," ADDED(
            257, "<r>",
            ",\"special\":true,\"rstrip\":true") "," ADDED(258, "word",
                                                           ",\"special\":true,"
                                                           "\"single_word\":true") "]"});
    text_expect(tok, "a \u3000<l> b", SPECIAL, "97 256 32 98");
    text_expect(tok, "a <r> \n b", SPECIAL, "97 32 257 98");
    text_expect(tok, "<r>  <l>", SPECIAL, "257 256");
    text_expect(tok, "word", SPECIAL, "258");
    text_expect(tok, "(word)", SPECIAL, "40 258 41");
    text_expect(tok, "word5", SPECIAL, "119 111 114 100 53");
    text_expect(tok, "\u00e9word", SPECIAL, "195 169 119 111 114 100");
    weft_tok_free(tok);
}

static void normalised_added_tokens_are_found_in_normalised_text(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .normalizer = "{\"type\":\"Lowercase\"}",
        .pre_tokenizer = TEXT_BYTE_LEVEL,
        .added_tokens = "[" ADDED(256, "<TAG>", ",\"special\":false,\"normalized\":true") "," ADDED(
            257, "<RAW>", ",\"special\":false,\"normalized\":false") "]"});
    text_expect(tok, "A<tag>", 0, "97 256");
    text_expect(tok, "<TaG>", 0, "256");
    text_expect(tok, "<RAW>", 0, "257");
    text_expect(tok, "<raw>", 0, "60 114 97 119 62");
    weft_tok_free(tok);
}

static void the_post_processor_frames_a_text_on_request(void **state) {
    (void)state;
    struct text_parts parts = {
        .bytes = true,
        .pre_tokenizer = TEXT_BYTE_LEVEL,
        .post_processor =
            "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
            "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
            "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"</s>\"}}],"
            "\"special_tokens\":{\"<s>\":{\"ids\":[1]},\"</s>\":{\"ids\":[2,3]}}}]}"};
    weft_tokenizer *tok = text_open(&parts);
    text_expect(tok, "a", WEFT_TOK_ADD_SPECIAL, "1 97 2 3");
    text_expect(tok, "", WEFT_TOK_ADD_SPECIAL, "1 2 3");
    text_expect(tok, "a", 0, "97");
    weft_tok_free(tok);
    parts.post_processor =
        "{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",2],\"cls\":[\"<s>\",0]}";
    tok = text_open(&parts);
    text_expect(tok, "a", WEFT_TOK_ADD_SPECIAL, "0 97 2");
    weft_tok_free(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_joins_matches_as_its_behavior_says),
        cmocka_unit_test(other_pre_tokenizers_cut_where_they_should),
        cmocka_unit_test(white_space_and_words_mean_what_unicode_says),
        cmocka_unit_test(byte_level_puts_a_space_in_front_where_told),
        cmocka_unit_test(steps_behind_byte_level_see_printable_bytes),
        cmocka_unit_test(text_is_normalised_as_the_file_says),
        cmocka_unit_test(a_long_run_of_unordered_marks_is_no_trap),
        cmocka_unit_test(special_tokens_are_parsed_only_on_request),
        cmocka_unit_test(the_longest_of_several_added_tokens_wins),
        cmocka_unit_test(added_tokens_swallow_space_and_stand_alone_where_told),
        cmocka_unit_test(normalised_added_tokens_are_found_in_normalised_text),
        cmocka_unit_test(the_post_processor_frames_a_text_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
