/* Look-ups against a plain search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/minmax.h"
#include "base/rand.h"
#include "inside/engine/guess/ngram.h"

enum { LEN_MAX = 6000, N_GUESSES = 5 };

/* The earliest find of the longest size. */
static uint32_t search(const uint32_t *tokens, uint32_t n_known, uint32_t n_max, uint32_t *out) {
    for (uint32_t n = weft_min_u32(n_max, n_known); n >= 2; n--) {
        for (uint32_t i = 0; i + n < n_known; i++) {
            if (memcmp(tokens + i, tokens + n_known - n, n * sizeof *tokens) != 0) continue;
            uint32_t n_guesses = weft_min_u32(N_GUESSES, n_known - i - n);
            memcpy(out, tokens + i + n, n_guesses * sizeof *tokens);
            return n_guesses;
        }
    }
    return 0;
}

static void check_text(struct wefti_ngram *ngram, uint32_t slot, uint32_t len, uint32_t n_vocab,
                       uint64_t *rng) {
    static uint32_t tokens[LEN_MAX];
    uint32_t wanted[N_GUESSES], guesses[N_GUESSES], n_hits = 0;
    wefti_ngram_clear(ngram, slot);
    for (uint32_t n = 0; n < len;) {
        uint32_t end = weft_min_u32(len, n + 1 + weft_rand_below(rng, 40));
        for (; n < end; n++)
            tokens[n] = weft_rand_below(rng, n_vocab);
        uint32_t n_wanted = search(tokens, n, ngram->n_max, wanted);
        uint32_t n_found = wefti_ngram_guess(ngram, slot, tokens, n, N_GUESSES, guesses);
        assert_int_equal(n_found, n_wanted);
        assert_memory_equal(guesses, wanted, n_found * sizeof *guesses);
        n_hits += n_found > 0;
    }
    assert_true(n_hits > 0);
}

static void finds_are_those_of_a_plain_search(void **state) {
    (void)state;
    uint64_t rng = weft_rand_test_seed();
    for (uint32_t n_max = 2; n_max <= WEFT_SPEC_NGRAM_MAX; n_max++) {
        struct wefti_ngram ngram;
        assert_int_equal(wefti_ngram_init(&ngram, n_max, 2, LEN_MAX, 0, NULL), WEFT_OK);
        for (uint32_t i = 0; i < 4; i++) /* slots have other texts before */
            check_text(&ngram, i % 2, i < 3 ? 300 : LEN_MAX, i == 1 ? 2 : 9, &rng);
        wefti_ngram_fini(&ngram);
    }
}

static void a_long_text_is_indexed_call_by_call(void **state) {
    (void)state;
    static uint32_t tokens[20000];
    struct wefti_ngram ngram;
    uint32_t guess = 0, n_calls = 1;
    assert_int_equal(wefti_ngram_init(&ngram, 3, 1, 20000, 0, NULL), WEFT_OK);
    for (uint32_t i = 0; i < 20000; i++)
        tokens[i] = i % 9999;
    while (wefti_ngram_guess(&ngram, 0, tokens, 20000, 1, &guess) == 0)
        assert_true(++n_calls < 10);
    assert_int_equal(n_calls, 3);
    assert_int_equal(guess, tokens[20000 - 9999]);
    wefti_ngram_fini(&ngram);
}

static uint32_t calls_until_a_guess(struct wefti_ngram *ngram, const uint32_t *tokens, uint32_t n) {
    uint32_t guess = 0, n_calls = 1;
    while (wefti_ngram_guess(ngram, 0, tokens, n, 1, &guess) == 0)
        assert_true(++n_calls < 1000);
    assert_int_equal(guess, tokens[n % 999]);
    return n_calls;
}

/* 8192 tokens, or 128 Ki places, in a call. */
static void an_index_that_is_outgrown_is_made_anew_call_by_call(void **state) {
    (void)state;
    enum { LEN = 262144 + 2 };
    struct wefti_ngram ngram;
    uint32_t *tokens = calloc(LEN, sizeof *tokens);
    assert_non_null(tokens);
    for (uint32_t i = 0; i < LEN; i++)
        tokens[i] = i % 999;
    assert_int_equal(wefti_ngram_init(&ngram, 3, 1, LEN, 0, NULL), WEFT_OK);
    assert_int_equal(calls_until_a_guess(&ngram, tokens, 16384), 2);
    assert_int_equal(calls_until_a_guess(&ngram, tokens, 16385), 3);
    assert_int_equal(calls_until_a_guess(&ngram, tokens, 16386), 1);
    assert_int_equal(calls_until_a_guess(&ngram, tokens, 262144), 3 + 32);
    assert_int_equal(calls_until_a_guess(&ngram, tokens, LEN), 7 + 33);
    wefti_ngram_fini(&ngram);
    free(tokens);
}

static void nobody_knows_which_hashes_meet(void **state) {
    (void)state;
    struct wefti_ngram one, other;
    assert_int_equal(wefti_ngram_init(&one, 3, 1, 100, 0, NULL), WEFT_OK);
    assert_int_equal(wefti_ngram_init(&other, 3, 1, 100, 0, NULL), WEFT_OK);
    assert_true(one.key != other.key);
    wefti_ngram_fini(&one);
    wefti_ngram_fini(&other);
}

static void no_index_guesses_nothing(void **state) {
    (void)state;
    static const uint32_t tokens[] = {1, 2, 1, 2};
    struct wefti_ngram ngram;
    uint32_t guess;
    assert_int_equal(wefti_ngram_init(&ngram, 0, 4, 100, 0, NULL), WEFT_OK);
    wefti_ngram_clear(&ngram, 3);
    assert_int_equal(wefti_ngram_guess(&ngram, 3, tokens, 4, 1, &guess), 0);
    wefti_ngram_fini(&ngram);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_are_those_of_a_plain_search),
        cmocka_unit_test(a_long_text_is_indexed_call_by_call),
        cmocka_unit_test(an_index_that_is_outgrown_is_made_anew_call_by_call),
        cmocka_unit_test(nobody_knows_which_hashes_meet),
        cmocka_unit_test(no_index_guesses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
