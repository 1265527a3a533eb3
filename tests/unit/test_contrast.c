/* Contrastive search: cosines with a context, and which candidate wins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "runtime/contrast.h"

enum { STATES = 40, DIMS_MAX = 37 };

static float states[STATES][DIMS_MAX];

static void fill(void) {
    uint32_t seed = 7;
    for (uint32_t i = 0; i < STATES; i++) {
        for (uint32_t k = 0; k < DIMS_MAX; k++) {
            seed = seed * 1664525u + 1013904223u;
            states[i][k] = (float)(seed >> 8) / (1 << 23) - 1.0f;
        }
    }
}

static double naive(const float *a, const float *b, uint32_t n) {
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static void the_greatest_cosine_is_that_of_a_naive_sum(void **state) {
    (void)state;
    fill();
    for (uint32_t n_dims = 1; n_dims <= DIMS_MAX; n_dims++) {
        struct wefti_contrast *c = wefti_contrast_new(STATES - 1, n_dims);
        double want = -1;
        assert_non_null(c);
        for (uint32_t i = 1; i < STATES; i++) {
            wefti_contrast_add(c, states[i]);
            want = fmax(want, naive(states[0], states[i], n_dims));
            assert_true(fabs(wefti_contrast_cosine(c, states[0]) - want) < 1e-14);
        }
        assert_true(fabs(wefti_contrast_cosine(c, states[5]) - 1) < 1e-14);
        wefti_contrast_free(c);
    }
    wefti_contrast_free(NULL);
}

static void a_state_of_zeroes_is_like_nothing(void **state) {
    (void)state;
    static const float zeroes[DIMS_MAX];
    fill();
    struct wefti_contrast *c = wefti_contrast_new(2, DIMS_MAX);
    wefti_contrast_add(c, zeroes);
    assert_true(wefti_contrast_cosine(c, states[0]) == -1);
    assert_true(wefti_contrast_cosine(c, zeroes) == -1);
    wefti_contrast_add(c, states[0]);
    assert_true(wefti_contrast_cosine(c, zeroes) == -1);
    assert_true(fabs(wefti_contrast_cosine(c, states[0]) - 1) < 1e-14);
    wefti_contrast_free(c);
}

static void the_greatest_score_wins_and_of_equal_ones_the_likelier_token(void **state) {
    (void)state;
    struct wefti_contrast *c = wefti_contrast_new(1, 1);
    static const struct wefti_contrast_candidate all[] = {
        {9, 0.5, 0.9}, {4, 0.3, 0.5}, {7, 0.15, 0.25}, {1, 0.05, 0.15}};
    static const struct {
        double alpha;
        uint32_t want;
    } cases[] = {{0, 0}, {0.1, 0}, {0.35, 1}, {0.45, 2}, {0.6, 3}, {1, 3}};
    for (uint32_t i = 0; i < 4; i++)
        c->candidates[i] = all[i];
    c->n_candidates = 4;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(wefti_contrast_choose(c, cases[i].alpha), cases[i].want);
    c->candidates[2].cosine = c->candidates[3].cosine;
    assert_int_equal(wefti_contrast_choose(c, 1), 2);
    c->candidates[0].p = NAN; /* of a broken model: still an answer */
    assert_in_range(wefti_contrast_choose(c, 0.5), 0, 3);
    wefti_contrast_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_greatest_cosine_is_that_of_a_naive_sum),
        cmocka_unit_test(a_state_of_zeroes_is_like_nothing),
        cmocka_unit_test(the_greatest_score_wins_and_of_equal_ones_the_likelier_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
