/* From characters to ids: which pairs merge, within which bounds, and that it can be undone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "unit/model_files.h"
#include "unit/tokenizer_files.h"

/* --- merging ---------------------------------------------------------------------------------- */

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
    weft_tok_free(tok);
}

static void whole_pieces_bypass_merges_only_where_told(void **state) {
    (void)state;
    static const char *const words[] = {"a", "b", "c", "abc", NULL};
    struct text_parts parts = {.words = words};
    weft_tokenizer *tok = text_open(&parts);
    text_expect(tok, "abc", 0, "0 1 2");
    weft_tok_free(tok);
    parts.options = "\"ignore_merges\":true,";
    tok = text_open(&parts);
    text_expect(tok, "abc", 0, "3");
    text_expect(tok, "abca", 0, "0 1 2 0");
    weft_tok_free(tok);
}

static void unknown_characters_become_bytes_unknown_tokens_or_nothing(void **state) {
    (void)state;
    static const char *const words[] = {"a", "<unk>", "b", NULL};
    struct text_parts parts = {.words = words};
    weft_tokenizer *tok = text_open(&parts);
    text_expect(tok, "axxb", 0, "0 2");
    weft_tok_free(tok);
    parts.options = "\"unk_token\":\"<unk>\",";
    tok = text_open(&parts);
    text_expect(tok, "ax\u00e9b", 0, "0 1 1 2");
    weft_tok_free(tok);
    parts.options = "\"unk_token\":\"<unk>\",\"fuse_unk\":true,";
    tok = text_open(&parts);
    text_expect(tok, "ax\u00e9bx", 0, "0 1 2 1");
    weft_tok_free(tok);

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
    weft_tok_free(tok);
}

static void byte_level_text_may_hold_any_bytes(void **state) {
    (void)state;
    weft_tokenizer *tok =
        text_open(&(struct text_parts){.bytes = true, .pre_tokenizer = TEXT_BYTE_LEVEL});
    text_expect_n(tok, "a\0 ~", 4, 0, "97 0 32 126");
    text_expect(tok, "\u00e9", 0, "195 169");
    text_expect(tok, "\xff", 0, "239 191 189"); /* U+FFFD */
    text_expect(tok, "\xe2\x82", 0, "239 191 189");
    text_expect(tok, "x\xed\xa0\x80y", 0, "120 239 191 189 239 191 189 239 191 189 121");
    weft_tok_free(tok);
}

/* The result of the priority queue, computed as plainly as possible. */
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
    weft_tokenizer *tok = text_open_path("tests/data/zoo/llama_gqa_llama3rope");
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
    weft_tok_free(tok);
}

/* --- cuts in front of U+2581 ------------------------------------------------------------------ */

/* A vocabulary of a, b, U+2581 (ids 0 to 2) and the results of some random merges. */
struct small_bpe {
    char words[24][128]; /* U+2581 written as _ */
    uint32_t left[24], right[24];
    uint32_t n;
};

static void small_bpe_init(struct small_bpe *bpe, uint64_t *rand) {
    memset(bpe, 0, sizeof *bpe);
    memcpy(bpe->words[0], "a", 2);
    memcpy(bpe->words[1], "b", 2);
    memcpy(bpe->words[2], "_", 2);
    bpe->n = 3;
    for (uint32_t tries = 0; tries < 40 && bpe->n < 12; tries++) {
        uint32_t left = weft_rand_below(rand, bpe->n), right = weft_rand_below(rand, bpe->n);
        char word[128];
        (void)snprintf(word, sizeof word, "%.60s%.60s", bpe->words[left], bpe->words[right]);
        bool known = strlen(word) > 12;
        for (uint32_t i = 0; i < bpe->n; i++)
            known |= strcmp(bpe->words[i], word) == 0;
        if (known) continue;
        memcpy(bpe->words[bpe->n], word, sizeof word);
        bpe->left[bpe->n] = left;
        bpe->right[bpe->n++] = right;
    }
}

static void add_marked(struct weft_buf *out, const char *word) {
    for (; *word; word++)
        if (*word == '_')
            weft_buf_add_str(out, "\u2581");
        else
            weft_buf_add_char(out, *word);
}

static weft_tokenizer *small_bpe_open(const struct small_bpe *bpe) {
    struct weft_buf json;
    struct weft_errmsg why = {""};
    weft_tokenizer *tok;
    weft_buf_init(&json, 1 << 16);
    weft_buf_add_str(&json, "{\"decoder\":{\"type\":\"Metaspace\"},\"pre_tokenizer\":{\"type\":"
                            "\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":"
                            "\"never\",\"split\":false},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (uint32_t i = 0; i < bpe->n; i++) {
        weft_buf_add_str(&json, i ? ",\"" : "\"");
        add_marked(&json, bpe->words[i]);
        weft_buf_printf(&json, "\":%u", i);
    }
    weft_buf_add_str(&json, "},\"merges\":[");
    for (uint32_t i = 3; i < bpe->n; i++) {
        weft_buf_add_str(&json, i > 3 ? ",[\"" : "[\"");
        add_marked(&json, bpe->words[bpe->left[i]]);
        weft_buf_add_str(&json, "\",\"");
        add_marked(&json, bpe->words[bpe->right[i]]);
        weft_buf_add_str(&json, "\"]");
    }
    weft_buf_add_str(&json, "]}}");
    if (text_try_open(weft_buf_cstr(&json), &tok, &why)) fail_msg("%s", why.text);
    weft_buf_fini(&json);
    return tok;
}

/* Every merge in the order of the list, each from the left to the right, until none applies: a
 * merge that a later one makes possible again comes first again. */
static size_t small_bpe_encode(const struct small_bpe *bpe, uint32_t *ids, size_t n) {
    for (uint32_t rule = 3; rule < bpe->n;) {
        size_t at = 0;
        while (at + 1 < n && !(ids[at] == bpe->left[rule] && ids[at + 1] == bpe->right[rule]))
            at++;
        if (at + 1 >= n) {
            rule++;
            continue;
        }
        ids[at] = rule;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
        rule = 3;
    }
    return n;
}

static void merges_across_spaces_are_found_where_there_are_any(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    for (int round = 0; round < 300; round++) {
        struct small_bpe bpe;
        small_bpe_init(&bpe, &rand);
        weft_tokenizer *tok = small_bpe_open(&bpe);
        for (int i = 0; i < 10; i++) {
            char text[80];
            uint32_t want[80];
            size_t len = 1 + weft_rand_below(&rand, sizeof text - 1), n;
            for (size_t k = 0; k < len; k++) {
                want[k] = weft_rand_below(&rand, 3);
                text[k] = "ab "[want[k]];
            }
            size_t n_want = small_bpe_encode(&bpe, want, len);
            uint32_t *ids = text_ids(tok, text, len, 0, &n);
            assert_int_equal(n, n_want);
            assert_memory_equal(ids, want, n * sizeof *ids);
            free(ids);
        }
        weft_tok_free(tok);
    }
}

/* A word has the same ids whether it came before in a long text or not. */
static void a_long_text_is_its_words_one_by_one(void **state) {
    (void)state;
    enum { TEXT_MAX = 100000 };
    static const char *const paths[] = {"models/fable-6m", "tests/data/spm/bpe_unknown",
                                        "tests/data/spm/bpe_across"};
    static const char *const parts[] = {
        "a",      "b",      "e", "th",       "ing",
        "\u00e9", "\u4e00", "Z", "aaaaaaaa", "q"}; /* some are unknown to the second */
    uint64_t rand = weft_rand_test_seed();
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        weft_tokenizer *tok = text_open_path(paths[i]);
        struct weft_buf text;
        uint32_t *want = calloc(TEXT_MAX, sizeof *want), *ids;
        size_t n_want = 0, n;
        assert_non_null(want);
        weft_buf_init(&text, TEXT_MAX);
        while (text.len < 50000) {
            size_t start = text.len;
            weft_buf_add_char(&text, ' ');
            for (uint32_t k = 1 + weft_rand_below(&rand, 6); k > 0; k--)
                weft_buf_add_str(&text,
                                 parts[weft_rand_below(&rand, sizeof parts / sizeof *parts)]);
            ids = text_ids(tok, text.data + start, text.len - start, 0, &n);
            memcpy(want + n_want, ids, n * sizeof *ids);
            n_want += n;
            free(ids);
        }
        ids = text_ids(tok, text.data, text.len, 0, &n);
        assert_int_equal(n, n_want);
        assert_memory_equal(ids, want, n * sizeof *ids);
        free(ids);
        free(want);
        weft_buf_fini(&text);
        weft_tok_free(tok);
    }
}

/* The same with several steps that cut them, in a text that begins with a word that comes again. */
static void words_cut_by_several_steps_come_again_the_same(void **state) {
    (void)state;
    static const char *const words[] = {"ab", "abc", " a", NULL};
    weft_tokenizer *tok = text_open(&(struct text_parts){
        .bytes = true,
        .words = words,
        .merges = "[[\"a\",\"b\"],[\"ab\",\"c\"]]",
        .pre_tokenizer =
            "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},{\"type\":\"Split\","
            "\"pattern\":{\"String\":\" \"},\"behavior\":\"Isolated\"},{\"type\":\"Split\","
            "\"pattern\":{\"String\":\"c\"},\"behavior\":\"Isolated\"}," TEXT_BYTE_LEVEL "]}"});
    struct weft_buf text;
    weft_buf_init(&text, 1 << 20);
    for (size_t i = 0; i < 5000; i++)
        weft_buf_add_str(&text, "abc ");
    size_t n;
    uint32_t *ids = text_ids(tok, text.data, text.len, 0, &n);
    assert_int_equal(n, 15000);
    for (size_t i = 0; i < n; i++) /* never abc: a step stands between */
        assert_int_equal(ids[i], i % 3 == 0 ? 256 : i % 3 == 1 ? 'c' : ' ');
    free(ids);
    weft_buf_fini(&text);
    weft_tok_free(tok);
}

/* --- bounds ----------------------------------------------------------------------------------- */

static void more_ids_than_allowed_is_an_error_with_the_number(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open_path("models/fable-6m");
    struct weft_errmsg why = {""};
    uint32_t *ids;
    size_t n;
    assert_int_equal(
        weft_tok_encode(tok, &(struct weft_tok_input){{"one two", 7}, 0, 1}, &ids, &n, &why),
        WEFT_E_TOOBIG);
    assert_string_equal(why.text, "the text has more than 1 tokens");
    assert_null(ids);
    assert_int_equal(n, 0);
    assert_int_equal(weft_tok_encode(tok,
                                     &(struct weft_tok_input){{"", 0}, WEFT_TOK_ADD_SPECIAL, 0},
                                     &ids, &n, &why),
                     WEFT_E_TOOBIG);
    assert_int_equal(weft_tok_encode(tok, &(struct weft_tok_input){{"", 0}, 0, 0}, &ids, &n, &why),
                     WEFT_OK);
    free(ids);
    weft_tok_free(tok);
}

static void a_megabyte_of_one_letter_takes_no_quadratic_time(void **state) {
    (void)state;
    static const char *const paths[] = {"models/fable-6m", "tests/data/zoo/llama_gqa_llama3rope",
                                        "tests/data/spm/bpe_across",
                                        "tests/data/spm/unigram_bytes"};
    static const char letters[] = {'a', ' ', '\n', '.', '1', '\''};
    enum { LEN = 1000000 };
    char *text = malloc(LEN);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        weft_tokenizer *tok = text_open_path(paths[i]);
        for (size_t k = 0; k < sizeof letters; k++) {
            size_t n;
            memset(text, letters[k], LEN);
            uint32_t *ids = text_ids(tok, text, LEN, 0, &n);
            assert_true(n > 0 && n <= LEN);
            free(ids);
        }
        weft_tok_free(tok);
    }
    free(text);
}

/* --- random texts and threads ----------------------------------------------------------------- */

static void check_round_trips(const weft_tokenizer *tok, uint64_t *rand, int rounds) {
    struct weft_buf want, got;
    weft_buf_init(&want, 1 << 16);
    weft_buf_init(&got, 1 << 16);
    for (int round = 0; round < rounds; round++) {
        char text[512];
        size_t len = text_random(rand, text, sizeof text), n;
        weft_buf_clear(&want);
        weft_buf_clear(&got);
        text_sanitise(text, len, &want);
        uint32_t *ids = text_ids(tok, text, len, round % 2 ? WEFT_TOK_PARSE_SPECIAL : 0, &n);
        text_decode(tok, ids, n, &got);
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
    static const char *const paths[] = {"models/fable-6m", TEST_FABLE_Q8_0,
                                        "tests/data/zoo/llama_gqa_llama3rope"};
    for (size_t i = 0; i < 3; i++) {
        weft_tokenizer *tok = text_open_path(paths[i]);
        check_round_trips(tok, &rand, 2000);
        weft_tok_free(tok);
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
        size_t len = text_random(&share->seed, text, sizeof text), n;
        if (weft_tok_encode(share->tok, &(struct weft_tok_input){{text, len}, 0, 4096}, &ids, &n,
                            NULL))
            return NULL;
        for (size_t k = 0; k < n; k++)
            share->checksum = share->checksum * 31 + ids[k];
        free(ids);
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    weft_tokenizer *tok = text_open_path("models/fable-6m");
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
    weft_tok_free(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower_rank_merges_first_and_left_before_right),
        cmocka_unit_test(whole_pieces_bypass_merges_only_where_told),
        cmocka_unit_test(unknown_characters_become_bytes_unknown_tokens_or_nothing),
        cmocka_unit_test(byte_level_text_may_hold_any_bytes),
        cmocka_unit_test(words_of_any_length_merge_as_the_naive_way_does),
        cmocka_unit_test(merges_across_spaces_are_found_where_there_are_any),
        cmocka_unit_test(a_long_text_is_its_words_one_by_one),
        cmocka_unit_test(words_cut_by_several_steps_come_again_the_same),
        cmocka_unit_test(more_ids_than_allowed_is_an_error_with_the_number),
        cmocka_unit_test(a_megabyte_of_one_letter_takes_no_quadratic_time),
        cmocka_unit_test(random_bytes_come_back_as_sanitised_text),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
