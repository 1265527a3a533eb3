/* What a pooling may ask for, and how many values it brings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/pooling.h"

static const struct weft_pooling_shape shape = {.n_hidden = 48, .n_labels = 3};

static void each_kind_has_its_number_of_values(void **state) {
    (void)state;
    static const uint32_t wanted[WEFT_POOLING_COUNT] = {
        [WEFT_POOLING_LAST] = 48,  [WEFT_POOLING_MEAN] = 48,    [WEFT_POOLING_CLS] = 48,
        [WEFT_POOLING_TOKENS] = 2, [WEFT_POOLING_CLASSIFY] = 3,
    };
    for (int kind = 0; kind < WEFT_POOLING_COUNT; kind++) {
        struct weft_pooling pooling = {.kind = (enum weft_pooling_kind)kind, .n_ids = 2};
        assert_int_equal(weft_pooling_n_values(&pooling, &shape), wanted[kind]);
    }
}

static void only_what_needs_every_hidden_state_reads_no_cache(void **state) {
    (void)state;
    for (int kind = 0; kind < WEFT_POOLING_COUNT; kind++) {
        struct weft_pooling pooling = {.kind = (enum weft_pooling_kind)kind};
        assert_int_equal(weft_pooling_reads_all(&pooling), kind == WEFT_POOLING_MEAN ||
                                                               kind == WEFT_POOLING_CLS ||
                                                               kind == WEFT_POOLING_CLASSIFY);
    }
}

static bool is_valid(const struct weft_pooling *pooling, uint32_t max_tokens, int32_t n_logprobs) {
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    sampling.max_tokens = max_tokens;
    sampling.n_prompt_logprobs = n_logprobs;
    return weft_pooling_check(pooling, &sampling, 10, 100, NULL) == WEFT_OK;
}

static void values_come_alone(void **state) {
    (void)state;
    struct weft_pooling none = {0}, last = {.kind = WEFT_POOLING_LAST};
    assert_true(is_valid(&none, 1, 3));
    assert_true(is_valid(&last, 0, -1));
    assert_false(is_valid(&last, 1, -1));
    assert_false(is_valid(&last, 0, 0));
}

static void numbers_are_within_their_bounds(void **state) {
    (void)state;
    struct weft_pooling tokens = {.kind = WEFT_POOLING_TOKENS, .n_ids = 2, .ids = {7, 99}};
    assert_true(is_valid(&tokens, 0, -1));
    tokens.ids[1] = 100;
    assert_false(is_valid(&tokens, 0, -1));
    tokens.n_ids = 0;
    assert_false(is_valid(&tokens, 0, -1));
    tokens.n_ids = WEFT_POOLING_IDS_MAX + 1;
    assert_false(is_valid(&tokens, 0, -1));
    struct weft_pooling cls = {.kind = WEFT_POOLING_CLS, .n_first = 10};
    assert_true(is_valid(&cls, 0, -1));
    cls.n_first = 11;
    assert_false(is_valid(&cls, 0, -1));
    cls.n_first = 0;
    cls.n_ids = 1;
    assert_false(is_valid(&cls, 0, -1));
    cls = (struct weft_pooling){.kind = WEFT_POOLING_COUNT};
    assert_false(is_valid(&cls, 0, -1));
    struct weft_pooling none = {.n_first = 1};
    assert_false(is_valid(&none, 0, -1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_has_its_number_of_values),
        cmocka_unit_test(only_what_needs_every_hidden_state_reads_no_cache),
        cmocka_unit_test(values_come_alone),
        cmocka_unit_test(numbers_are_within_their_bounds),
    };
    return cmocka_run_group_tests_name("pooling", tests, NULL, NULL);
}
