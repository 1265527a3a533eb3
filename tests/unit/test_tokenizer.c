#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/parse.h"
#include "base/rand.h"
#include "unit/model_files.h"
#include "unit/text_files.h"

#define SPECIAL WEFT_TEXT_PARSE_SPECIAL
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"

static weft_tokenizer *open_path(const char *relative) {
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    if (weft_text_open(test_source_path(relative), &tok, &why)) fail_msg("%s", why.text);
    return tok;
}

/* --- merging -----------------------------------------------------------------------------------
 */

static void lower_rank_merges_first_and_left_before_right(void **state) {
    (void)state;
    static const char *const words[] = {"a", "b", "c", "bc", "ab", "abc", "aa", NULL};
    weft_tokenizer *tok = text_open(
        &(struct text_parts){.words = words, .merges = "[\"b c\",[\"a\",\"b\"],\"a a\",\"ab c\"]"});
    text_expect(tok, "abc", 0, "0 3"); /* b c is rank 0 */
    text_expect(tok, "ab", 0, "4");    /* a pair in the list form */
    text_expect(tok, "aaaaa", 0, "6 6 0");
    text_expect(tok, "aab", 0, "0 4"); /* a b before a a */
    text_expect(tok, "", 0, "");
    weft_text_free(tok);
}

static void whole_pieces_bypass_merges_only_where_told(void **state) {
    (void)state;
    static const char *const words[] = {"a", "b", "c", "abc", NULL};
    struct text_parts parts = {.words = words};
    weft_tokenizer *tok = text_open(&parts);
    text_expect(tok, "abc", 0, "0 1 2");
    weft_text_free(tok);
    parts.options = "\"ignore_merges\":true,";
    tok = text_open(&parts);
    text_expect(tok, "abc", 0, "3");
    text_expect(tok, "abca", 0, "0 1 2 0");
    weft_text_free(tok);
}

static void unknown_characters_become_bytes_unknown_tokens_or_nothing(void **state) {
    (void)state;
    static const char *const words[] = {"a", "<unk>", "b", NULL};
    struct text_parts parts = {.words = words};
    weft_tokenizer *tok = text_open(&parts);
    text_expect(tok, "axxb", 0, "0 2");
    weft_text_free(tok);
    parts.options = "\"unk_token\":\"<unk>\",";
    tok = text_open(&parts);
    text_expect(tok, "ax\u00e9b", 0, "0 1 1 2");
    weft_text_free(tok);
    parts.options = "\"unk_token\":\"<unk>\",\"fuse_unk\":true,";
    tok = text_open(&parts);
    text_expect(tok, "ax\u00e9bx", 0, "0 1 2 1");
    weft_text_free(tok);

    char text[256][8];
    const char *fallback[259] = {"a", "<unk>"};
    for (int i = 0; i < 256; i++) {
        (void)snprintf(text[i], sizeof text[i], "<0x%02X>", (unsigned)i);
        fallback[2 + i] = text[i];
    }
    parts.words = fallback;
    parts.options = "\"unk_token\":\"<unk>\",\"byte_fallback\":true,";
    tok = text_open(&parts);
    text_expect(tok, "a\u00e9", 0, "0 197 171"); /* C3 A9 */
    weft_text_free(tok);
}

static void byte_level_text_may_hold_any_bytes(void **state) {
    (void)state;
    weft_tokenizer *tok =
        text_open(&(struct text_parts){.bytes = true, .pre_tokenizer = BYTE_LEVEL});
    text_expect_n(tok, "a\0 ~", 4, 0, "97 0 32 126");
    text_expect(tok, "\u00e9", 0, "195 169");
    text_expect(tok, "\xff", 0, "239 191 189"); /* U+FFFD */
    text_expect(tok, "\xe2\x82", 0, "239 191 189");
    text_expect(tok, "x\xed\xa0\x80y", 0, "120 239 191 189 239 191 189 239 191 189 121");
    weft_text_free(tok);
}

/* What the priority queue computes, written as plainly as possible. */
struct naive {
    json_t *root;
    json_t *ranks; /* "left right" -> rank */
    const json_t *vocab;
};

static void naive_init(struct naive *naive, const char *path) {
    json_error_t at;
    naive->root = json_load_file(path, 0, &at);
    assert_non_null(naive->root);
    const json_t *model = json_object_get(naive->root, "model");
    const json_t *merges = json_object_get(model, "merges");
    naive->vocab = json_object_get(model, "vocab");
    naive->ranks = json_object();
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *merge = json_array_get(merges, i);
        char pair[512];
        if (json_is_string(merge))
            (void)snprintf(pair, sizeof pair, "%s", json_string_value(merge));
        else
            (void)snprintf(pair, sizeof pair, "%s %s", json_string_value(json_array_get(merge, 0)),
                           json_string_value(json_array_get(merge, 1)));
        assert_int_equal(json_object_set_new(naive->ranks, pair, json_integer((json_int_t)i)), 0);
    }
}

/* ASCII letters only; returns the number of ids. */
static size_t naive_encode(const struct naive *naive, const char *word, size_t len, uint32_t *ids) {
    char(*parts)[256] = calloc(len + 1, sizeof *parts);
    assert_non_null(parts);
    size_t n = len;
    for (size_t i = 0; i < len; i++)
        parts[i][0] = word[i];
    for (;;) {
        json_int_t best = INT64_MAX;
        size_t best_at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char pair[520];
            (void)snprintf(pair, sizeof pair, "%s %s", parts[i], parts[i + 1]);
            const json_t *rank = json_object_get(naive->ranks, pair);
            if (rank && json_integer_value(rank) < best) {
                best = json_integer_value(rank);
                best_at = i;
            }
        }
        if (best == INT64_MAX) break;
        size_t have = strlen(parts[best_at]);
        memcpy(parts[best_at] + have, parts[best_at + 1], strlen(parts[best_at + 1]) + 1);
        memmove(parts + best_at + 1, parts + best_at + 2, (n - best_at - 2) * sizeof *parts);
        n--;
    }
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)json_integer_value(json_object_get(naive->vocab, parts[i]));
    free(parts);
    return n;
}

static void words_of_any_length_merge_as_the_naive_way_does(void **state) {
    (void)state;
    static const char letters[] = "etaoinshrdlu";
    uint64_t rand = weft_rand_test_seed();
    weft_tokenizer *tok = open_path("tests/data/zoo/llama_gqa_llama3rope");
    struct naive naive;
    naive_init(&naive, test_source_path("tests/data/zoo/llama_gqa_llama3rope/tokenizer.json"));
    for (int round = 0; round < 400; round++) {
        char word[200];
        uint32_t want[200];
        size_t len = 1 + weft_rand_below(&rand, round % 4 ? 60 : 200), n;
        uint32_t n_letters = 1 + weft_rand_below(&rand, sizeof letters - 1);
        for (size_t i = 0; i < len; i++)
            word[i] = letters[weft_rand_below(&rand, n_letters)];
        size_t n_want = naive_encode(&naive, word, len, want);
        uint32_t *ids = text_ids(tok, word, len, 0, &n);
        assert_int_equal(n, n_want);
        assert_memory_equal(ids, want, n * sizeof *ids);
        free(ids);
    }
    json_decref(naive.ranks);
    json_decref(naive.root);
    weft_text_free(tok);
}

/* --- splitting ---------------------------------------------------------------------------------
 */

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
    weft_text_free(tok);
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
    weft_text_free(tok);
    tok = text_open(&(struct text_parts){
        .words = words,
        .options = "\"ignore_merges\":true,",
        .pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},"
                         "\"behavior\":\"Isolated\"}"});
    text_expect(tok, "a\u0301", 0, "3"); /* a mark belongs to the word */
    weft_text_free(tok);
}

static void byte_level_puts_a_space_in_front_where_told(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}"});
    text_expect(tok, "a", 0, "32 97");
    text_expect(tok, " a", 0, "32 97");
    weft_text_free(tok);
}

static void steps_behind_byte_level_see_printable_bytes(void **state) {
    (void)state;
    /* 0xB2 prints as a superscript two, which is a number: Digits cuts it out of the word. */
    static const char *const words[] = {"a\u00c2\u00b2", NULL};
    struct text_parts parts = {.bytes = true,
                               .words = words,
                               .options = "\"ignore_merges\":true,",
                               .pre_tokenizer =
                                   "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL
                                   ",{\"type\":\"Digits\",\"individual_digits\":true}]}"};
    weft_tokenizer *tok = text_open(&parts);
    text_expect(tok, "a\u00b2", 0, "97 194 178");
    weft_text_free(tok);
    parts.pre_tokenizer = BYTE_LEVEL;
    tok = text_open(&parts);
    text_expect(tok, "a\u00b2", 0, "256");
    weft_text_free(tok);
}

/* --- normalising -------------------------------------------------------------------------------
 */

static void expect_normal(const char *normalizer, const char *text, const char *want) {
    weft_tokenizer *tok = text_open(
        &(struct text_parts){.bytes = true, .normalizer = normalizer, .pre_tokenizer = BYTE_LEVEL});
    size_t n;
    uint32_t *ids = text_ids(tok, text, strlen(text), 0, &n);
    char got[256];
    assert_true(n < sizeof got);
    for (size_t i = 0; i < n; i++)
        got[i] = (char)ids[i];
    got[n] = 0;
    assert_string_equal(got, want);
    free(ids);
    weft_text_free(tok);
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
        .bytes = true, .normalizer = "{\"type\":\"NFD\"}", .pre_tokenizer = BYTE_LEVEL});
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
    weft_text_free(tok);
}

/* --- added tokens ------------------------------------------------------------------------------
 */

#define ADDED(id, text, traits) "{\"id\":" #id ",\"content\":\"" text "\"" traits "}"

static void special_tokens_are_parsed_only_on_request(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .pre_tokenizer = BYTE_LEVEL,
        .added_tokens = "[" ADDED(256, "<s>", ",\"special\":true,\"normalized\":false") "," ADDED(
            257, "<tool>", ",\"special\":false,\"normalized\":false") "]"});
    text_expect(tok, "<s>", SPECIAL, "256");
    text_expect(tok, "<s>", 0, "60 115 62");
    text_expect(tok, "a<tool>", 0, "97 257");
    text_expect(tok, "a<tool><s>", SPECIAL, "97 257 256");
    assert_true(weft_text_is_special(tok, 256));
    assert_false(weft_text_is_special(tok, 257));
    assert_false(weft_text_is_special(tok, 97));
    assert_false(weft_text_is_special(tok, 5000));
    assert_int_equal(weft_text_vocab_size(tok), 258);
    weft_text_free(tok);
}

static void the_longest_of_several_added_tokens_wins(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .pre_tokenizer = BYTE_LEVEL,
        .added_tokens = "[" ADDED(256, "<a", ",\"special\":true") "," ADDED(
            257, "<ab>", ",\"special\":true") "," ADDED(258, "<abc>",
                                                        ",\"special\":false,"
                                                        "\"normalized\":false") "]"});
    text_expect(tok, "<ab>", SPECIAL, "257");
    text_expect(tok, "<abc>", SPECIAL, "258");
    text_expect(tok, "<abx", SPECIAL, "256 98 120");
    text_expect(tok, "<<a", SPECIAL, "60 256");
    text_expect(tok, "<", SPECIAL, "60");
    weft_text_free(tok);
}

static void added_tokens_swallow_space_and_stand_alone_where_told(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .pre_tokenizer = BYTE_LEVEL,
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
    weft_text_free(tok);
}

static void normalised_added_tokens_are_found_in_normalised_text(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .normalizer = "{\"type\":\"Lowercase\"}",
        .pre_tokenizer = BYTE_LEVEL,
        .added_tokens = "[" ADDED(256, "<TAG>", ",\"special\":false,\"normalized\":true") "," ADDED(
            257, "<RAW>", ",\"special\":false,\"normalized\":false") "]"});
    text_expect(tok, "A<tag>", 0, "97 256");
    text_expect(tok, "<TaG>", 0, "256");
    text_expect(tok, "<RAW>", 0, "257");
    text_expect(tok, "<raw>", 0, "60 114 97 119 62");
    weft_text_free(tok);
}

static void the_post_processor_frames_a_text_on_request(void **state) {
    (void)state;
    struct text_parts parts = {
        .bytes = true,
        .pre_tokenizer = BYTE_LEVEL,
        .post_processor =
            "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
            "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
            "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"</s>\"}}],"
            "\"special_tokens\":{\"<s>\":{\"ids\":[1]},\"</s>\":{\"ids\":[2,3]}}}]}"};
    weft_tokenizer *tok = text_open(&parts);
    text_expect(tok, "a", WEFT_TEXT_ADD_SPECIAL, "1 97 2 3");
    text_expect(tok, "", WEFT_TEXT_ADD_SPECIAL, "1 2 3");
    text_expect(tok, "a", 0, "97");
    weft_text_free(tok);
    parts.post_processor =
        "{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",2],\"cls\":[\"<s>\",0]}";
    tok = text_open(&parts);
    text_expect(tok, "a", WEFT_TEXT_ADD_SPECIAL, "0 97 2");
    weft_text_free(tok);
}

/* --- bounds ------------------------------------------------------------------------------------
 */

static void more_ids_than_allowed_is_an_error_with_the_number(void **state) {
    (void)state;
    weft_tokenizer *tok = open_path("models/fable-6m");
    struct weft_errmsg why = {""};
    uint32_t *ids;
    size_t n;
    assert_int_equal(weft_text_encode(tok, "one two", 7, 0, 1, &ids, &n, &why), WEFT_E_TOOBIG);
    assert_string_equal(why.text, "the text has more than 1 tokens");
    assert_null(ids);
    assert_int_equal(n, 0);
    assert_int_equal(weft_text_encode(tok, "", 0, WEFT_TEXT_ADD_SPECIAL, 0, &ids, &n, &why),
                     WEFT_E_TOOBIG);
    assert_int_equal(weft_text_encode(tok, "", 0, 0, 0, &ids, &n, &why), WEFT_OK);
    free(ids);
    weft_text_free(tok);
}

static void a_megabyte_of_one_letter_takes_no_quadratic_time(void **state) {
    (void)state;
    static const char *const paths[] = {"models/fable-6m", "tests/data/zoo/llama_gqa_llama3rope"};
    static const char letters[] = {'a', ' ', '\n', '.', '1', '\''};
    enum { LEN = 1000000 };
    char *text = malloc(LEN);
    assert_non_null(text);
    for (size_t i = 0; i < 2; i++) {
        weft_tokenizer *tok = open_path(paths[i]);
        for (size_t k = 0; k < sizeof letters; k++) {
            size_t n;
            memset(text, letters[k], LEN);
            uint32_t *ids = text_ids(tok, text, LEN, 0, &n);
            assert_true(n > 0 && n <= LEN);
            free(ids);
        }
        weft_text_free(tok);
    }
    free(text);
}

/* --- properties --------------------------------------------------------------------------------
 */

/* Whether some continuation makes the `n` bytes at `text` a character. */
static bool could_become_one(const char *text, size_t n) {
    static const char tails[] = {'\x80', '\x90', '\xA0'}; /* one of each range a second byte has */
    for (size_t len = n; len <= 4; len++) {
        for (size_t i = 0; i < sizeof tails; i++) {
            char whole[4] = {0, tails[i], '\x80', '\x80'};
            memcpy(whole, text, n);
            if (weft_utf8_valid(whole, len) && (unsigned char)whole[0] >= 0x80) return true;
        }
    }
    return false;
}

/* Each maximal subpart of what is ill-formed becomes one U+FFFD. */
static void sanitise(const char *text, size_t len, struct weft_buf *out) {
    for (size_t at = 0, n; at < len; at += n) {
        n = 1;
        while (n < 4 && n < len - at && !weft_utf8_valid(text + at, n) &&
               could_become_one(text + at, n + 1))
            n++;
        if (weft_utf8_valid(text + at, n))
            weft_buf_add(out, text + at, n);
        else
            weft_buf_add_str(out, "\uFFFD");
    }
}

static void decode(const weft_tokenizer *tok, const uint32_t *ids, size_t n, struct weft_buf *out) {
    struct weft_detok detok;
    weft_detok_init(&detok, tok, false);
    for (size_t i = 0; i < n; i++)
        weft_detok_push(&detok, ids[i], out);
    weft_detok_finish(&detok, out);
}

static size_t random_text(uint64_t *rand, char *text, size_t max) {
    static const char *const bits[] = {
        "a",      " ",          "the ",       "\n",     "\r\n", "1",  "\u00e9",   "\u4e00",  "'s",
        "\u0301", "<|im_end|>", "\U0001f600", "\u2581", ".",    "<|", "\xe2\x96", "\xf0\x9f"};
    size_t len = 0;
    uint32_t n = weft_rand_below(rand, 40);
    for (uint32_t i = 0; i < n; i++) {
        char byte = (char)weft_rand_next(rand);
        const char *bit = bits[weft_rand_below(rand, sizeof bits / sizeof *bits)];
        bool raw = weft_rand_below(rand, 3) == 0;
        size_t bit_len = raw ? 1 : strlen(bit);
        if (bit_len > max - len) break;
        memcpy(text + len, raw ? &byte : bit, bit_len);
        len += bit_len;
    }
    return len;
}

static void check_round_trips(const weft_tokenizer *tok, uint64_t *rand, int rounds) {
    struct weft_buf want, got;
    weft_buf_init(&want, 1 << 16);
    weft_buf_init(&got, 1 << 16);
    for (int round = 0; round < rounds; round++) {
        char text[512];
        size_t len = random_text(rand, text, sizeof text), n;
        weft_buf_clear(&want);
        weft_buf_clear(&got);
        sanitise(text, len, &want);
        uint32_t *ids = text_ids(tok, text, len, round % 2 ? SPECIAL : 0, &n);
        decode(tok, ids, n, &got);
        free(ids);
        assert_int_equal(got.len, want.len);
        assert_string_equal(weft_buf_cstr(&got), weft_buf_cstr(&want));
    }
    weft_buf_fini(&want);
    weft_buf_fini(&got);
}

static void random_bytes_come_back_as_sanitised_text(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    static const char *const paths[] = {"models/fable-6m", "tests/data/fable-6m-q8_0.gguf",
                                        "tests/data/zoo/llama_gqa_llama3rope"};
    for (size_t i = 0; i < 3; i++) {
        weft_tokenizer *tok = open_path(paths[i]);
        check_round_trips(tok, &rand, 2000);
        weft_text_free(tok);
    }
}

struct share {
    const weft_tokenizer *tok;
    uint64_t seed, checksum;
};

static void *encode_much(void *arg) {
    struct share *share = arg;
    for (int i = 0; i < 300; i++) {
        char text[512];
        uint32_t *ids;
        size_t len = random_text(&share->seed, text, sizeof text), n;
        if (weft_text_encode(share->tok, text, len, 0, 4096, &ids, &n, NULL)) return NULL;
        for (size_t k = 0; k < n; k++)
            share->checksum = share->checksum * 31 + ids[k];
        free(ids);
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    weft_tokenizer *tok = open_path("models/fable-6m");
    struct share shares[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        shares[i] = (struct share){tok, 7, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_much, &shares[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(shares[i].checksum, shares[0].checksum);
        assert_int_not_equal(shares[i].checksum, 0);
    }
    weft_text_free(tok);
}

/* --- what else is asked of a tokenizer ---------------------------------------------------------
 */

static void ends_of_generation_come_from_the_files(void **state) {
    (void)state;
    static const char *const paths[] = {"models/fable-6m", "tests/data/fable-6m-q8_0.gguf"};
    for (size_t i = 0; i < 2; i++) {
        weft_tokenizer *tok = open_path(paths[i]);
        size_t n;
        uint32_t bos;
        const uint32_t *eos = weft_text_eos(tok, &n);
        assert_int_equal(n, 2);
        assert_int_equal(eos[0], 4092);
        assert_int_equal(eos[1], 4094);
        assert_true(weft_text_bos(tok, &bos));
        assert_int_equal(bos, 4091);
        text_expect(tok, "Hello", WEFT_TEXT_ADD_SPECIAL, "4091 39 498 78");
        weft_text_free(tok);
    }
}

static void write_text(const char *dir, const char *name, const char *text) {
    test_dir_write(dir, name, text, strlen(text));
}

/* A folder with the tokenizer <s> </s> <|eot|> a (ids 0 to 3) in it. */
static char *small_folder(void) {
    static const char *const words[] = {"<s>", "</s>", "<|eot|>", "a", NULL};
    char *dir = test_dir_new();
    struct weft_buf json;
    weft_buf_init(&json, 1 << 16);
    text_build_json(&json, &(struct text_parts){.words = words});
    test_dir_write(dir, "tokenizer.json", json.data, json.len);
    weft_buf_fini(&json);
    return dir;
}

static void expect_eos(const char *dir, const char *want) {
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    char got[64] = "";
    size_t n, len = 0;
    if (weft_text_open(dir, &tok, &why)) fail_msg("%s", why.text);
    const uint32_t *eos = weft_text_eos(tok, &n);
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(got + len, sizeof got - len, "%s%u", i ? " " : "", eos[i]);
    assert_string_equal(got, want);
    weft_text_free(tok);
}

static void every_file_may_name_an_end_and_each_counts_once(void **state) {
    (void)state;
    char *dir = small_folder();
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

/* What transformers writes for a tokenizer without a length of its own. */
static void integers_beyond_63_bits_are_no_hindrance(void **state) {
    (void)state;
    char *dir = small_folder();
    struct weft_gen_defaults got;
    struct weft_errmsg why = {""};
    write_text(dir, "tokenizer_config.json",
               "{\"model_max_length\":1000000000000000019884624838656,\"eos_token\":\"</s>\"}");
    write_text(dir, "generation_config.json",
               "{\"max_length\":1000000000000000019884624838656,\"top_k\":20}");
    write_text(dir, "config.json", "{\"eos_token_id\":1000000000000000019884624838656}");
    expect_eos(dir, "1");
    assert_int_equal(weft_text_gen_defaults(dir, &got, &why), WEFT_OK);
    assert_int_equal(got.top_k, 20);
    test_dir_free(dir);
}

static void fifos_and_devices_are_refused_and_not_waited_for(void **state) {
    (void)state;
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json", "chat_template.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int device = 0; device < 2; device++) {
            char *dir = small_folder(), path[4096], *source;
            struct weft_gen_defaults got;
            struct weft_errmsg why = {""};
            weft_tokenizer *tok = NULL;
            (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
            (void)unlink(path);
            int rc = device ? symlink("/dev/zero", path) : mkfifo(path, 0600);
            assert_int_equal(rc, 0);
            weft_err err = i < 3 ? weft_text_open(dir, &tok, &why) : WEFT_E_PROTO;
            assert_int_equal(err, WEFT_E_PROTO);
            assert_null(tok);
            if (i == 2) assert_int_equal(weft_text_gen_defaults(dir, &got, &why), WEFT_E_PROTO);
            if (i % 2) assert_int_equal(weft_chat_find(dir, &source, &why), WEFT_E_PROTO);
            if (!strstr(why.text, "is not a regular file")) fail_msg("%s", why.text);
            test_dir_free(dir);
        }
    }
}

static void tokens_have_bytes_and_others_none(void **state) {
    (void)state;
    weft_tokenizer *tok = open_path("models/fable-6m");
    size_t len;
    const char *bytes = weft_text_token_bytes(tok, 4094, &len);
    assert_int_equal(len, 10);
    assert_memory_equal(bytes, "<|im_end|>", 10);
    assert_true(weft_text_is_special(tok, 4094));
    assert_false(weft_text_is_special(tok, 4096));
    (void)weft_text_token_bytes(tok, 4096, &len);
    assert_int_equal(len, 0);
    (void)weft_text_token_bytes(tok, UINT32_MAX, &len);
    assert_int_equal(len, 0);
    weft_text_free(tok);
}

static void sampling_defaults_come_from_generation_config(void **state) {
    (void)state;
    struct weft_gen_defaults got;
    struct weft_errmsg why = {""};
    assert_int_equal(weft_text_gen_defaults(test_source_path("models/fable-6m"), &got, &why),
                     WEFT_OK);
    assert_true(got.temperature == 0.8 && got.top_p == 0.95);
    assert_true(got.min_p != got.min_p && got.repetition_penalty != got.repetition_penalty);
    assert_true(got.top_k == -1 && got.max_new_tokens == -1);
    assert_int_equal(weft_text_gen_defaults("/nonexistent", &got, &why), WEFT_OK);
    assert_true(got.temperature != got.temperature);
    char *dir = test_dir_new();
    static const char wrong[] = "{\"top_k\":\"many\"}";
    test_dir_write(dir, "generation_config.json", wrong, sizeof wrong - 1);
    assert_int_equal(weft_text_gen_defaults(dir, &got, &why), WEFT_E_PROTO);
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
    assert_int_equal(weft_text_gen_defaults(dir, &got, &why), WEFT_OK);
    assert_int_equal(got.top_k, -1); /* off, as where nothing is said */
    assert_true(got.temperature == 0 && got.top_p == 1 && got.max_new_tokens == 7);
    write_text(dir, "generation_config.json",
               "{\"top_k\":-5,\"temperature\":-1,\"top_p\":0,\"min_p\":1.5,"
               "\"repetition_penalty\":0,\"max_new_tokens\":2.5}");
    assert_int_equal(weft_text_gen_defaults(dir, &got, &why), WEFT_OK);
    assert_true(got.top_k == -1 && got.max_new_tokens == -1);
    assert_true(isnan(got.temperature) && isnan(got.top_p) && isnan(got.min_p));
    assert_true(isnan(got.repetition_penalty));
    test_dir_free(dir);
}

/* --- files that are refused --------------------------------------------------------------------
 */

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
        {{.normalizer = "{\"type\":\"BertNormalizer\"}"}, "BertNormalizer"},
        {{.pre_tokenizer = "{\"type\":\"UnicodeScripts\"}"}, "UnicodeScripts"},
        {{.decoder = "{\"type\":\"WordPiece\"}"}, "WordPiece"},
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
    assert_int_equal(text_try_open("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]},"
                                   "\"decoder\":{\"type\":\"Fuse\"}}",
                                   &tok, &why),
                     WEFT_E_UNSUPPORTED);
    assert_non_null(strstr(why.text, "Unigram"));
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
    assert_int_equal(weft_text_open("/nonexistent", &tok, NULL), WEFT_E_NOTFOUND);
    assert_int_equal(weft_text_open("/nonexistent.gguf", &tok, NULL), WEFT_E_NOTFOUND);
}

/* --- GGUF --------------------------------------------------------------------------------------
 */

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
    text_expect(tok, "ab", WEFT_TEXT_ADD_SPECIAL, "1 8");
    text_expect(tok, "\u00e9", 0, "3 208 182"); /* 13 + C3, 13 + A9 */
    text_expect(tok, "ab<tool>ab", 0, "8 10 8");
    text_expect(tok, "</s>ab", SPECIAL, "2 8");
    text_expect(tok, "<s>", 0, "3 73 128 75"); /* never by merging */
    struct weft_buf out;
    weft_buf_init(&out, 100);
    decode(tok, (const uint32_t[]){8, 6, 208, 182, 4}, 5, &out);
    assert_string_equal(weft_buf_cstr(&out), "ab a\u00e9a");
    weft_buf_fini(&out);
    size_t n;
    const uint32_t *eos = weft_text_eos(tok, &n);
    assert_int_equal(n, 2);
    assert_int_equal(eos[0], 2);
    assert_int_equal(eos[1], 11); /* <|im_end|>, by its name */
    weft_text_free(tok);
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
    text_expect(tok, "ab ab", WEFT_TEXT_ADD_SPECIAL, "7 8 2");
    uint64_t rand = weft_rand_test_seed();
    struct weft_buf want, got;
    weft_buf_init(&want, 1 << 16);
    weft_buf_init(&got, 1 << 16);
    for (int round = 0; round < 500; round++) {
        char text[512];
        size_t len = random_text(&rand, text, sizeof text), n;
        if (memmem(text, len, "\u2581", 3)) continue; /* that one does come back as a space */
        weft_buf_clear(&want);
        weft_buf_clear(&got);
        sanitise(text, len, &want);
        uint32_t *ids = text_ids(tok, text, len, 0, &n);
        decode(tok, ids, n, &got);
        free(ids);
        assert_string_equal(weft_buf_cstr(&got), weft_buf_cstr(&want));
    }
    weft_buf_fini(&want);
    weft_buf_fini(&got);
    weft_text_free(tok);
}

static void put_strings(struct gguf_builder *b, const char *key, const char *const *texts,
                        size_t n) {
    gguf_key(b, key, 9);
    gguf_put(&b->kvs, 8, 4);
    gguf_put(&b->kvs, n, 8);
    for (size_t i = 0; i < n; i++)
        gguf_put_str(&b->kvs, texts[i]);
}

/* Names with one split differ in what else they stand for. */
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
        text_expect(tok, "abc", WEFT_TEXT_ADD_SPECIAL, cases[i].want);
        weft_text_free(tok);
    }
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
    if (weft_text_open(path, &tok, &why)) fail_msg("%s", why.text);
    text_expect(tok, "ab", 0, "8");
    weft_text_free(tok);
    assert_int_equal(weft_chat_find(path, &source, &why), WEFT_OK);
    assert_string_equal(source, "from the file");
    free(source);
    assert_int_equal(weft_text_gen_defaults(path, &got, &why), WEFT_OK);
    gguf_fini(&b);
    weft_buf_fini(&bytes);
    test_dir_free(dir);

    dir = small_folder();
    (void)snprintf(path, sizeof path, "%s.gguf", dir);
    assert_int_equal(rename(dir, path), 0);
    if (weft_text_open(path, &tok, &why)) fail_msg("%s", why.text);
    weft_text_free(tok);
    assert_int_equal(rename(path, dir), 0);
    write_text(dir, "config.json", "{}");
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    if (weft_text_open(path, &tok, &why)) fail_msg("%s", why.text);
    text_expect(tok, "a", 0, "3");
    weft_text_free(tok);
    test_dir_free(dir);
}

static void gguf_vocabularies_that_do_not_add_up_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *model, *pre, *named;
        bool words;
        weft_err err;
    } cases[] = {
        {"t5", NULL, "t5", true, WEFT_E_UNSUPPORTED},
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower_rank_merges_first_and_left_before_right),
        cmocka_unit_test(whole_pieces_bypass_merges_only_where_told),
        cmocka_unit_test(unknown_characters_become_bytes_unknown_tokens_or_nothing),
        cmocka_unit_test(byte_level_text_may_hold_any_bytes),
        cmocka_unit_test(words_of_any_length_merge_as_the_naive_way_does),
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
        cmocka_unit_test(more_ids_than_allowed_is_an_error_with_the_number),
        cmocka_unit_test(a_megabyte_of_one_letter_takes_no_quadratic_time),
        cmocka_unit_test(random_bytes_come_back_as_sanitised_text),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(ends_of_generation_come_from_the_files),
        cmocka_unit_test(every_file_may_name_an_end_and_each_counts_once),
        cmocka_unit_test(integers_beyond_63_bits_are_no_hindrance),
        cmocka_unit_test(fifos_and_devices_are_refused_and_not_waited_for),
        cmocka_unit_test(tokens_have_bytes_and_others_none),
        cmocka_unit_test(sampling_defaults_come_from_generation_config),
        cmocka_unit_test(sampling_defaults_that_no_sampler_can_use_are_ignored),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(malformed_files_are_refused),
        cmocka_unit_test(sentence_piece_merges_by_score_and_falls_back_to_bytes),
        cmocka_unit_test(sentence_piece_without_a_space_in_front),
        cmocka_unit_test(the_name_of_a_split_says_whether_merges_are_ignored_and_bos_added),
        cmocka_unit_test(gguf_files_need_no_suffix_and_folders_may_have_one),
        cmocka_unit_test(gguf_vocabularies_that_do_not_add_up_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
