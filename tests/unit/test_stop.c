#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "tokenizer/tokenizer.h"

static struct weft_stop_set *set; /* of the matchers under test; of one test at a time */

static int drop_set(void **state) {
    (void)state;
    weft_stop_set_free(set);
    set = NULL;
    return 0;
}

/* A matcher of strings that nothing else watches for. */
static struct weft_stop *new_stop(const char *const *strings, size_t n, bool include) {
    size_t lens[WEFT_STOP_STRINGS_MAX];
    struct weft_stop *stop;
    for (size_t i = 0; i < n; i++)
        lens[i] = strlen(strings[i]);
    (void)drop_set(NULL);
    assert_int_equal(weft_stop_set_new(strings, lens, n, &set), WEFT_OK);
    assert_int_equal(weft_stop_new(set, include, &stop), WEFT_OK);
    return stop;
}

/* Feeds `pieces` (NULL-terminated) one by one; `outs` holds the text that each must let through,
 * and last the text that finish adds. Returns the index of the string that matched, or -1. */
static int feed(struct weft_stop *stop, const char *const *pieces, const char *const *outs) {
    struct weft_buf out;
    size_t which;
    int matched = -1;
    weft_buf_init(&out, 1 << 16);
    for (; *pieces && matched < 0; pieces++, outs++) {
        weft_buf_clear(&out);
        if (weft_stop_push(stop, *pieces, strlen(*pieces), &out, &which)) matched = (int)which;
        assert_string_equal(weft_buf_cstr(&out), *outs);
    }
    if (matched < 0) {
        weft_buf_clear(&out);
        weft_stop_finish(stop, &out);
        assert_string_equal(weft_buf_cstr(&out), *outs);
    }
    weft_buf_fini(&out);
    weft_stop_free(stop);
    return matched;
}

static void what_may_become_a_stop_string_is_held_back(void **state) {
    (void)state;
    static const char *const strings[] = {"STOP"};
    static const char *const pieces[] = {"abS", "T", "xS", "TO", NULL};
    static const char *const outs[] = {"ab", "", "STx", "", "STO"};
    assert_int_equal(feed(new_stop(strings, 1, false), pieces, outs), -1);
}

static void a_match_cuts_the_text_before_or_behind_it(void **state) {
    (void)state;
    static const char *const strings[] = {"\n\n", "END"};
    static const char *const pieces[] = {"one\n", "\ntwo", NULL};
    static const char *const before[] = {"one", ""}, *const behind[] = {"one", "\n\n"};
    assert_int_equal(feed(new_stop(strings, 2, false), pieces, before), 0);
    assert_int_equal(feed(new_stop(strings, 2, true), pieces, behind), 0);
}

static void the_earliest_end_wins_then_the_earliest_start(void **state) {
    (void)state;
    static const char *const pieces[] = {"xabcdx", NULL};
    static const char *const outs_x[] = {"x"}, *const outs_xa[] = {"xa"};
    static const char *const by_end[] = {"abcd", "bc"};
    assert_int_equal(feed(new_stop(by_end, 2, false), pieces, outs_xa), 1);
    static const char *const by_start[] = {"cd", "abcd", "bcd"};
    assert_int_equal(feed(new_stop(by_start, 3, false), pieces, outs_x), 1);
}

static void overlapping_prefixes_do_not_hide_a_match(void **state) {
    (void)state;
    static const char *const strings[] = {"aab", "abab"};
    static const char *const pieces[] = {"a", "a", "a", "b", NULL};
    static const char *const outs[] = {"", "", "a", ""};
    assert_int_equal(feed(new_stop(strings, 2, false), pieces, outs), 0);
}

static void after_a_match_nothing_more_is_taken(void **state) {
    (void)state;
    static const char *const strings[] = {"x"};
    struct weft_stop *stop = new_stop(strings, 1, false);
    struct weft_buf out;
    size_t which;
    weft_buf_init(&out, 100);
    assert_true(weft_stop_push(stop, "axb", 3, &out, &which));
    assert_false(weft_stop_push(stop, "cxd", 3, &out, &which));
    weft_stop_finish(stop, &out);
    assert_string_equal(weft_buf_cstr(&out), "a");
    weft_buf_fini(&out);
    weft_stop_free(stop);
}

static void what_is_completed_where_nothing_counts_is_text_and_may_begin_another(void **state) {
    (void)state;
    static const char *const strings[] = {"aba"};
    struct weft_buf out;
    size_t which = SIZE_MAX;
    weft_buf_init(&out, 100);
    for (int include = 0; include < 2; include++) {
        struct weft_stop *stop = new_stop(strings, 1, include);
        weft_buf_clear(&out);
        weft_stop_pass(stop, "xaba", 4, &out);
        assert_string_equal(weft_buf_cstr(&out), "xab"); /* the last one may begin the next */
        assert_true(weft_stop_push(stop, "bay", 3, &out, &which));
        assert_int_equal(which, 0);
        assert_string_equal(weft_buf_cstr(&out), include ? "xababa" : "xab");
        weft_stop_free(stop);
    }
    struct weft_stop *stop = new_stop(strings, 1, false);
    weft_buf_clear(&out);
    weft_stop_pass(stop, "ab", 2, &out);
    assert_int_equal(out.len, 0); /* not a half of it */
    assert_false(weft_stop_push(stop, "c", 1, &out, &which));
    assert_string_equal(weft_buf_cstr(&out), "abc");
    weft_stop_free(stop);
    weft_buf_fini(&out);
}

static void bad_stop_strings_are_refused(void **state) {
    (void)state;
    static char big[WEFT_STOP_STRING_BYTES_MAX + 1];
    const char *strings[WEFT_STOP_STRINGS_MAX + 1];
    const size_t empty[] = {0}, long_one[] = {sizeof big};
    size_t lens[WEFT_STOP_STRINGS_MAX + 1];
    for (size_t i = 0; i <= WEFT_STOP_STRINGS_MAX; i++) {
        strings[i] = big;
        lens[i] = 1;
    }
    assert_int_equal(weft_stop_set_new(strings, empty, 1, &set), WEFT_E_INVAL);
    assert_null(set);
    assert_int_equal(weft_stop_set_new(strings, long_one, 1, &set), WEFT_E_TOOBIG);
    assert_int_equal(weft_stop_set_new(strings, lens, WEFT_STOP_STRINGS_MAX + 1, &set),
                     WEFT_E_TOOBIG);
    assert_null(set);
    weft_stop_set_free(NULL);
    weft_stop_free(NULL);
}

static void without_strings_everything_passes(void **state) {
    (void)state;
    struct weft_stop *stop = new_stop(NULL, 0, false);
    struct weft_buf out;
    size_t which;
    weft_buf_init(&out, 100);
    assert_false(weft_stop_push(stop, "all of it", 9, &out, &which));
    assert_string_equal(weft_buf_cstr(&out), "all of it");
    weft_buf_fini(&out);
    weft_stop_free(stop);
}

static void matchers_of_one_set_do_not_see_each_others_text(void **state) {
    (void)state;
    enum { N = 256 };
    static const char *const strings[] = {"abcabd", "bcx"};
    static const size_t lens[] = {6, 3};
    static const char text[] = "abcabcabdy", safe[] = "abc"; /* until the match */
    struct weft_stop *stops[N];
    struct weft_buf outs[N];
    size_t which;
    assert_int_equal(weft_stop_set_new(strings, lens, 2, &set), WEFT_OK);
    for (size_t i = 0; i < N; i++) {
        weft_buf_init(&outs[i], 100);
        assert_int_equal(weft_stop_new(set, i % 2, &stops[i]), WEFT_OK);
        assert_false(weft_stop_push(stops[i], text, i % 9, &outs[i], &which));
    }
    for (size_t i = N; i-- > 0;) {
        size_t from = i % 9;
        assert_true(weft_stop_push(stops[i], text + from, 10 - from, &outs[i], &which));
        assert_int_equal(which, 0);
        assert_string_equal(weft_buf_cstr(&outs[i]), i % 2 ? "abcabcabd" : safe);
        weft_buf_fini(&outs[i]);
        weft_stop_free(stops[i]);
    }
}

static void the_strings_memory_is_the_sets_and_no_matchers(void **state) {
    (void)state;
    static const size_t lens[] = {4096, 4096, 4096, 4096};
    assert_true(weft_stop_set_bytes(lens, 4) >= 4 * 4096 * 5);
    assert_true(weft_stop_bytes(4) <= 64);
}

/* --- against a model that looks at the whole text --------------------------------------------- */

struct naive_match {
    size_t start, end, which; /* start SIZE_MAX: none */
};

/* Only matches that end after the first `quiet` bytes count. */
static struct naive_match naive_find(const char *text, size_t len, size_t quiet, char (*strings)[8],
                                     size_t n) {
    struct naive_match best = {SIZE_MAX, SIZE_MAX, 0};
    for (size_t end = quiet + 1; end <= len && best.start == SIZE_MAX; end++) {
        for (size_t i = 0; i < n; i++) {
            size_t size = strlen(strings[i]);
            if (size > end || memcmp(text + end - size, strings[i], size) != 0) continue;
            if (best.start == SIZE_MAX || end - size < best.start)
                best = (struct naive_match){end - size, end, i};
        }
    }
    return best;
}

/* The length of the tail of text[0..len) in which a stop string could still begin. */
static size_t naive_held(const char *text, size_t len, char (*strings)[8], size_t n) {
    for (size_t held = len < 7 ? len : 7; held > 0; held--)
        for (size_t i = 0; i < n; i++)
            if (strlen(strings[i]) > held && memcmp(text + len - held, strings[i], held) == 0)
                return held;
    return 0;
}

static void one_round(uint64_t *rand) {
    char text[120], strings[WEFT_STOP_STRINGS_MAX][8] = {{0}};
    const char *pointers[WEFT_STOP_STRINGS_MAX];
    size_t n = 1 + weft_rand_below(rand, weft_rand_below(rand, 50) ? 4 : WEFT_STOP_STRINGS_MAX);
    size_t at = 0;
    uint32_t letters = 1 + weft_rand_below(rand, 3);
    for (size_t i = 0; i < n; i++) {
        size_t len = 1 + weft_rand_below(rand, 7);
        for (size_t k = 0; k < len; k++)
            strings[i][k] = (char)('a' + weft_rand_below(rand, letters));
        pointers[i] = strings[i];
    }
    size_t len = weft_rand_below(rand, sizeof text);
    for (size_t i = 0; i < len; i++)
        text[i] = (char)('a' + weft_rand_below(rand, letters + 1));
    bool include = weft_rand_below(rand, 2), matched = false;
    size_t quiet = weft_rand_below(rand, 2) ? weft_rand_below(rand, (uint32_t)len + 1) : 0;
    struct naive_match want = naive_find(text, len, quiet, strings, n);
    struct weft_stop *stop = new_stop(pointers, n, include);
    struct weft_buf out;
    size_t which = SIZE_MAX;
    weft_buf_init(&out, 1 << 12);
    while (at < len && !matched) {
        size_t piece = 1 + weft_rand_below(rand, 9);
        if (piece > len - at) piece = len - at;
        if (at < quiet) {
            if (piece > quiet - at) piece = quiet - at;
            weft_stop_pass(stop, text + at, piece, &out);
        } else {
            matched = weft_stop_push(stop, text + at, piece, &out, &which);
        }
        at += piece;
        if (!matched) assert_int_equal(out.len, at - naive_held(text, at, strings, n));
    }
    if (!matched) weft_stop_finish(stop, &out);
    assert_int_equal(matched, want.start != SIZE_MAX);
    size_t want_len = !matched ? len : include ? want.end : want.start;
    assert_int_equal(out.len, want_len);
    if (want_len > 0) assert_memory_equal(out.data, text, want_len);
    if (matched) assert_string_equal(strings[which], strings[want.which]);
    weft_buf_fini(&out);
    weft_stop_free(stop);
}

static void any_cutting_of_a_text_gives_what_the_naive_model_gives(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    for (int round = 0; round < 20000; round++)
        one_round(&rand);
}

static void of_a_long_piece_only_its_end_is_held_back(void **state) {
    (void)state;
    enum { LEN = 3 * WEFT_STOP_STRING_BYTES_MAX + 17, STOP_LEN = WEFT_STOP_STRING_BYTES_MAX };
    char *text = malloc(LEN), *pattern = malloc(STOP_LEN);
    assert_true(text && pattern);
    memset(text, 'a', LEN);
    memset(pattern, 'a', STOP_LEN);
    pattern[STOP_LEN - 1] = 'b';
    const char *const strings[] = {pattern};
    const size_t lens[] = {STOP_LEN};
    struct weft_stop *stop;
    struct weft_buf out;
    size_t which;
    weft_buf_init(&out, 1 << 16);
    assert_int_equal(weft_stop_set_new(strings, lens, 1, &set), WEFT_OK);
    assert_int_equal(weft_stop_new(set, false, &stop), WEFT_OK);
    assert_false(weft_stop_push(stop, text, LEN, &out, &which));
    assert_int_equal(out.len, LEN - (STOP_LEN - 1));
    assert_true(weft_stop_push(stop, "b", 1, &out, &which));
    assert_int_equal(out.len, LEN - (STOP_LEN - 1));
    weft_buf_fini(&out);
    weft_stop_free(stop);
    free(text);
    free(pattern);
}

#define CASE(name) cmocka_unit_test_teardown(name, drop_set)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(what_may_become_a_stop_string_is_held_back),
        CASE(a_match_cuts_the_text_before_or_behind_it),
        CASE(the_earliest_end_wins_then_the_earliest_start),
        CASE(overlapping_prefixes_do_not_hide_a_match),
        CASE(after_a_match_nothing_more_is_taken),
        CASE(what_is_completed_where_nothing_counts_is_text_and_may_begin_another),
        CASE(bad_stop_strings_are_refused),
        CASE(without_strings_everything_passes),
        CASE(matchers_of_one_set_do_not_see_each_others_text),
        CASE(the_strings_memory_is_the_sets_and_no_matchers),
        CASE(any_cutting_of_a_text_gives_what_the_naive_model_gives),
        CASE(of_a_long_piece_only_its_end_is_held_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
