/* Quantising float weights: the bits of each scheme against its rule spelled out, and the clips
 * that a calibration chooses. */
#include "kernels_test.h"

#include "inside/kernels/convert.h"
#include "inside/kernels/quantise.h"

static uint64_t seed;

enum { ROWS = 19, COLUMNS = 96 };

/* A scheme's stored form of one group of 32: by the rule, written for reading. */
static void by_rule(enum weft_gemm_kind kind, const float *w, uint32_t n, float *out) {
    float low = w[0], high = w[0], largest = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        low = fminf(low, w[i]);
        high = fmaxf(high, w[i]);
        if (fabsf(w[i]) > fabsf(largest)) largest = w[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (kind == WEFT_GEMM_I8) {
            float scale = fabsf(largest) / 127.0f;
            out[i] = scale == 0.0f ? 0.0f : scale * roundf(w[i] * (1.0f / scale));
        } else if (kind == WEFT_GEMM_Q8_0) {
            float scale = fabsf(largest) / 127.0f, stored = f16_to_f32(f32_to_f16(scale));
            out[i] = stored == 0.0f ? 0.0f : stored * roundf(w[i] * (1.0f / scale));
        } else if (kind == WEFT_GEMM_Q4_0) {
            float scale = largest / -8.0f, stored = f16_to_f32(f32_to_f16(scale));
            float code = stored == 0.0f ? 8.0f : floorf(w[i] * (1.0f / scale) + 8.5f);
            out[i] = stored * (fminf(code, 15.0f) - 8.0f);
        } else {
            float scale = f16_to_f32(f32_to_f16((high - low) / 15.0f));
            float min = f16_to_f32(f32_to_f16(low));
            float code = scale == 0.0f ? 0.0f : roundf((w[i] - min) / scale);
            out[i] = fmaf(scale, fmaxf(0.0f, fminf(15.0f, code)), min);
        }
    }
}

static void unpack(enum weft_gemm_kind kind, const void *packed, uint32_t k, uint32_t row,
                   float *out) {
    uint8_t raw[4 * COLUMNS];
    assert_true(k <= COLUMNS);
    weft_kern_read_row(weft_kern_unpack_row(kind, packed, k, row, raw), raw, k, out);
}

static const enum weft_gemm_kind kinds[] = {WEFT_GEMM_I8, WEFT_GEMM_Q8_0, WEFT_GEMM_Q4_0,
                                            WEFT_GEMM_Q4_1};

static void each_scheme_stores_what_its_rule_says(void **state) {
    static const enum flavour flavours[] = {PLAIN, WIDE, SPARSE};
    (void)state;
    for (uint32_t round = 0; round < 120; round++) {
        enum weft_gemm_kind kind = kinds[round % 4];
        uint32_t group = kind == WEFT_GEMM_I8 ? COLUMNS : 32;
        float w[ROWS * COLUMNS];
        fill(&seed, flavours[round / 4 % 3], w, ROWS * COLUMNS);
        uint8_t *packed = take(weft_kern_packed_bytes(kind, ROWS, COLUMNS));
        weft_kern_pack(kind, &(struct weft_kern_source){WEFT_DT_F32, w, ROWS, COLUMNS}, 0, ROWS,
                       NULL, packed);
        for (uint32_t row = 0; row < ROWS; row++) {
            float got[COLUMNS], want[COLUMNS];
            unpack(kind, packed, COLUMNS, row, got);
            for (uint32_t k = 0; k < COLUMNS; k += group) {
                by_rule(kind, w + row * COLUMNS + k, group, want + k);
            }
            for (uint32_t k = 0; k < COLUMNS; k++) {
                assert_true(got[k] == want[k]);
            }
        }
        free(packed);
    }
}

static void the_largest_weight_of_either_sign_is_kept(void **state) {
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        float w[32] = {0};
        w[7] = (float)sign * 2.0f;
        w[9] = (float)sign * -2.0f; /* the later one, of the other sign, has the short end */
        _Alignas(64) uint8_t packed[512];
        float got[32];
        weft_kern_pack(WEFT_GEMM_Q4_0, &(struct weft_kern_source){WEFT_DT_F32, w, 1, 32}, 0, 1,
                       NULL, packed);
        unpack(WEFT_GEMM_Q4_0, packed, 32, 0, got);
        assert_true(got[7] == w[7] && got[9] == w[9] * 7.0f / 8.0f && got[0] == 0.0f);
    }
}

static void four_bits_of_what_cannot_be_quantised_are_harmless(void **state) {
    const float cases[] = {0.0f, -0.0f, 1e-45f, -1e-38f, 1e-9f, 3e38f, -INFINITY, NAN};
    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float w[32], got[32];
        for (uint32_t j = 0; j < 32; j++) {
            w[j] = j % 2 ? cases[i] : 0.0f;
        }
        _Alignas(64) uint8_t packed[512];
        weft_kern_pack(WEFT_GEMM_Q4_0, &(struct weft_kern_source){WEFT_DT_F32, w, 1, 32}, 0, 1,
                       NULL, packed);
        unpack(WEFT_GEMM_Q4_0, packed, 32, 0, got);
        bool small = fabsf(cases[i]) < 1e-6f;
        assert_true(small ? fabsf(got[1]) < 1e-6f && got[0] == 0.0f : !isfinite(got[1]));
    }
}

static float gauss(void) {
    float sum = 0.0f;
    for (int i = 0; i < 12; i++) {
        sum += (float)weft_rand_unit(&seed);
    }
    return sum - 6.0f;
}

/* A bell of weights, and one far outside. */
static void bell_with_an_outlier(float *w, uint32_t n, float outlier) {
    for (uint32_t i = 0; i < n; i++) {
        w[i] = gauss();
    }
    w[n / 2] = outlier;
}

static double packed_error(enum weft_gemm_kind kind, enum weft_kern_clip clip, const float *w,
                           const float *importance, uint32_t n, uint32_t k) {
    uint8_t *packed = take(weft_kern_packed_bytes(kind, n, k));
    float *row = take(k * sizeof *row), *got = take(k * sizeof *got);
    uint8_t *raw = take((size_t)k * 4);
    struct weft_kern_calib calib = {clip, importance, row};
    weft_kern_pack(kind, &(struct weft_kern_source){WEFT_DT_F32, w, n, k}, 0, n, &calib, packed);
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        weft_kern_read_row(weft_kern_unpack_row(kind, packed, k, i, raw), raw, k, got);
        for (uint32_t j = 0; j < k; j++) {
            double diff = (double)w[(size_t)i * k + j] - (double)got[j];
            sum += (double)importance[j] * diff * diff;
        }
    }
    free(packed);
    free(row);
    free(got);
    free(raw);
    return sum;
}

static const enum weft_kern_clip clips[] = {WEFT_CLIP_PERCENTILE, WEFT_CLIP_ENTROPY,
                                            WEFT_CLIP_ERROR};

static void no_clip_is_worse_than_none(void **state) {
    enum { N = 17, K = 256 };
    (void)state;
    static float w[N * K];
    for (uint32_t round = 0; round < 48; round++) {
        float importance[K];
        for (uint32_t k = 0; k < K; k++) {
            float g = gauss();
            importance[k] = round % 3 ? g * g : (float)(k % 2);
        }
        for (uint32_t i = 0; i < N; i++) {
            bell_with_an_outlier(w + (size_t)i * K, K, (float)(round % 5) * 4.0f);
        }
        enum weft_gemm_kind kind = kinds[round % 4];
        double whole = packed_error(kind, WEFT_CLIP_MINMAX, w, importance, N, K);
        for (uint32_t c = 0; c < 3; c++) {
            double clipped = packed_error(kind, clips[c], w, importance, N, K);
            assert_true(clipped <= whole * (1.0 + 1e-12));
        }
    }
}

/* Weights that do not matter must not cost the others their steps. */
static void an_outlier_in_an_idle_column_is_clipped(void **state) {
    enum { K = 512 };
    (void)state;
    float w[K], importance[K];
    for (uint32_t k = 0; k < K; k++) {
        importance[k] = 1.0f;
    }
    bell_with_an_outlier(w, K, 30.0f);
    importance[K / 2] = 1e-6f;
    for (uint32_t form = GRID_I8; form <= GRID_Q8; form++) {
        struct grid_ends ends = wefti_kern_grid_ends(w, K);
        struct grid whole = wefti_kern_grid_make((enum grid_form)form, &ends, 1.0f);
        for (uint32_t c = 0; c < 3; c++) {
            float ratio =
                wefti_kern_grid_row_ratio((enum grid_form)form, clips[c], w, importance, K, K);
            struct grid grid =
                wefti_kern_grid_choose((enum grid_form)form, clips[c], w, importance, K, ratio);
            assert_true(grid.scale < 0.5f * whole.scale);
            assert_true(wefti_kern_grid_error(&grid, w, importance, K) <
                        0.5 * wefti_kern_grid_error(&whole, w, importance, K));
        }
    }
}

static void an_outlier_that_matters_is_kept(void **state) {
    enum { K = 512 };
    (void)state;
    float w[K], importance[K];
    for (uint32_t k = 0; k < K; k++) {
        importance[k] = 1.0f;
    }
    bell_with_an_outlier(w, K, 30.0f);
    importance[K / 2] = 1e6f;
    for (uint32_t c = 0; c < 3; c++) {
        float ratio = wefti_kern_grid_row_ratio(GRID_I8, clips[c], w, importance, K, K);
        struct grid grid = wefti_kern_grid_choose(GRID_I8, clips[c], w, importance, K, ratio);
        uint8_t codes[K];
        wefti_kern_grid_codes(&grid, w, K, codes);
        assert_true(fabsf(grid.scale * (float)(int8_t)codes[K / 2] - 30.0f) < 0.2f);
    }
}

/* The percentile of a ramp is known. */
static void the_percentile_is_where_so_much_lies_within(void **state) {
    enum { K = 4000 };
    (void)state;
    static float w[K], importance[K];
    for (uint32_t k = 0; k < K; k++) {
        w[k] = (float)(k + 1) / K * (k % 2 ? 1.0f : -1.0f);
        importance[k] = k < K / 2 ? 1.0f : 0.0f;
    }
    float ratio = wefti_kern_grid_row_ratio(GRID_I8, WEFT_CLIP_PERCENTILE, w, importance, K, K);
    assert_true(fabsf(ratio - 0.4995f) < 0.001f);
    assert_true(wefti_kern_grid_row_ratio(GRID_I8, WEFT_CLIP_MINMAX, w, importance, K, K) == 1.0f);
}

static void columns_without_any_importance_change_nothing(void **state) {
    (void)state;
    float w[64], importance[64] = {0};
    fill(&seed, PLAIN, w, 64);
    for (uint32_t i = 0; i < 4; i++) {
        _Alignas(64) uint8_t plain[2048], calibrated[2048];
        float row[64];
        size_t bytes = weft_kern_packed_bytes(kinds[i], 1, 64);
        assert_true(bytes <= sizeof plain);
        weft_kern_pack(kinds[i], &(struct weft_kern_source){WEFT_DT_F32, w, 1, 64}, 0, 1, NULL,
                       plain);
        for (uint32_t c = 0; c < 3; c++) {
            struct weft_kern_calib calib = {clips[c], importance, row};
            weft_kern_pack(kinds[i], &(struct weft_kern_source){WEFT_DT_F32, w, 1, 64}, 0, 1,
                           &calib, calibrated);
            assert_memory_equal(plain, calibrated, bytes);
        }
    }
}

int main(void) {
    seed = weft_rand_test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_scheme_stores_what_its_rule_says),
        cmocka_unit_test(the_largest_weight_of_either_sign_is_kept),
        cmocka_unit_test(four_bits_of_what_cannot_be_quantised_are_harmless),
        cmocka_unit_test(no_clip_is_worse_than_none),
        cmocka_unit_test(an_outlier_in_an_idle_column_is_clipped),
        cmocka_unit_test(an_outlier_that_matters_is_kept),
        cmocka_unit_test(the_percentile_is_where_so_much_lies_within),
        cmocka_unit_test(columns_without_any_importance_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
