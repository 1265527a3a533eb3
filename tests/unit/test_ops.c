/* Norm, rotation, gate, softmax and the conversions: right against double, and the same bits on
 * every table, in every lane and tail. */
#include "kernels_test.h"

#include <float.h>

#include "inside/kernels/convert.h"
#include "inside/kernels/exp_f32.h"

static uint64_t seed;

/* Distance of `got` from the true value in units of the last place of f32 there. */
static double ulps(float got, double truth) {
    int exponent;
    (void)frexp(truth, &exponent);
    double ulp = ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
    return fabs((double)got - truth) / ulp;
}

static void the_exponential_is_within_2_ulp(void **state) {
    double worst = 0;
    (void)state;
    for (uint32_t i = 0; i < 2000000; i++) {
        float x = (float)(-87.336 + i * (88.722 + 87.336) / 2000000 + weft_rand_unit(&seed) * 1e-4);
        if (x < EXP_LOW || x > 88.722f) continue;
        double off = ulps(exp_f32(x), exp((double)x));
        if (off > worst) worst = off;
    }
    print_message("worst: %.3f ulp\n", worst);
    assert_true(worst <= 2.0);
    assert_true(same_bits(exp_f32(0.0f), 1.0f) && same_bits(exp_f32(-0.0f), 1.0f));
    assert_true(same_bits(exp_f32(-INFINITY), 0.0f) && same_bits(exp_f32(-87.34f), 0.0f));
    assert_true(exp_f32(-87.3365f) >= FLT_MIN);
    assert_true(isinf(exp_f32(INFINITY)) && isinf(exp_f32(88.73f)) && isnan(exp_f32(NAN)));
}

static void so_is_the_fused_one_below_zero(void **state) {
    double worst = 0;
    (void)state;
    for (uint32_t i = 0; i < 1000000; i++) {
        float x = (float)(-87.336 * i / 1000000 - weft_rand_unit(&seed) * 1e-4);
        if (x < EXP_LOW) continue;
        worst = fmax(worst, ulps(exp_falling(x), exp((double)x)));
    }
    print_message("worst: %.3f ulp\n", worst);
    assert_true(worst <= 2.0);
    assert_true(same_bits(exp_falling(0.0f), 1.0f) && same_bits(exp_falling(-0.0f), 1.0f));
    assert_true(same_bits(exp_falling(-INFINITY), 0.0f) && same_bits(exp_falling(-87.34f), 0.0f));
    assert_true(exp_falling(-87.3365f) >= FLT_MIN && isnan(exp_falling(NAN)));
}

enum { CHUNKS = 400 / WEFT_CHUNK + 1 };

static void exp_parts_are_exponentials_and_their_sums(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 400; n += n < 140 ? 1 : 37) {
        float *x = take(n * sizeof *x), temperature = n % 2 ? 1.0f : 0.7f;
        double first[CHUNKS] = {0};
        for (uint32_t i = 0; i < n; i++) {
            x[i] = weft_rand_below(&seed, 9) ? some_float(&seed, PLAIN) * 40.0f : -INFINITY;
        }
        x[weft_rand_below(&seed, n)] = 41.0f;
        for (uint32_t t = 0; t < n_tables; t++) {
            float *parts = take(n * sizeof *parts);
            double sums[CHUNKS] = {0}, all = 0, truth[CHUNKS] = {0};
            memcpy(parts, x, n * sizeof *x);
            double sum = tables[t].exp_parts(parts, n, 41.0f, temperature, sums);
            for (uint32_t i = 0; i < n; i++) {
                assert_true(same_bits(parts[i], exp_f32((x[i] - 41.0f) / temperature)));
                truth[i / WEFT_CHUNK] += (double)parts[i];
            }
            for (uint32_t c = 0; c * WEFT_CHUNK < n; c++) {
                assert_true(fabs(sums[c] - truth[c]) <= n * 0x1p-53 * truth[c]);
                all += sums[c];
            }
            assert_true(sum == all);
            if (t == 0) memcpy(first, sums, sizeof sums);
            assert_memory_equal(sums, first, sizeof sums);
            free(parts);
        }
        free(x);
    }
}

static void chunk_maxima_leave_nan_out(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 400; n += n < 140 ? 1 : 37) {
        float *x = take(n * sizeof *x), want[CHUNKS], got[CHUNKS];
        for (uint32_t c = 0; c < CHUNKS; c++) {
            want[c] = -INFINITY;
        }
        for (uint32_t i = 0; i < n; i++) {
            x[i] = weft_rand_below(&seed, 3) ? some_float(&seed, PLAIN) : NAN;
            if (x[i] > want[i / WEFT_CHUNK]) want[i / WEFT_CHUNK] = x[i];
        }
        for (uint32_t t = 0; t < n_tables; t++) {
            memset(got, 0, sizeof got);
            tables[t].chunk_max(x, n, got);
            for (uint32_t c = 0; c * WEFT_CHUNK < n; c++) {
                assert_true(got[c] == want[c]);
            }
        }
        free(x);
    }
}

static void sums_of_nothing_or_nan_are_nan(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t t = 0; t < n_tables; t++) {
        for (uint32_t n = 1; n < 140; n++) {
            float x[140];
            double sums[CHUNKS];
            for (uint32_t i = 0; i < n; i++) {
                x[i] = -INFINITY;
            }
            assert_true(isnan(tables[t].log_sum_exp(x, n)));
            assert_true(isnan(tables[t].exp_parts(x, n, -INFINITY, 1.0f, sums)));
            fill(&seed, PLAIN, x, n);
            x[weft_rand_below(&seed, n)] = NAN;
            assert_true(isnan(tables[t].log_sum_exp(x, n)));
            assert_true(isnan(tables[t].exp_parts(x, n, 1.0f, 1.0f, sums)));
        }
    }
}

static void log_sum_exp_agrees_with_double(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < 80; round++) {
        uint32_t n = round < 40 ? round + 1 : between(&seed, 1, 5000);
        float *x = take(n * sizeof *x);
        double max = -INFINITY, sum = 0, first = 0;
        for (uint32_t i = 0; i < n; i++) {
            x[i] = some_float(&seed, PLAIN) * (round % 2 ? 30.0f : 1000.0f);
            max = fmax(max, (double)x[i]);
        }
        for (uint32_t i = 0; i < n; i++) {
            sum += exp((double)x[i] - max);
        }
        double truth = max + log(sum);
        for (uint32_t t = 0; t < n_tables; t++) {
            double got = tables[t].log_sum_exp(x, n);
            /* 2 ulp of exp, and the rounding of x - max: at most 2^-24 * 88 where it still counts.
             */
            assert_true(fabs(got - truth) <= (4 + 88) * 0x1p-24);
            if (t == 0) first = got;
            assert_memory_equal(&got, &first, sizeof got);
        }
        free(x);
    }
}

static void argmax_takes_the_first_of_the_largest_and_no_nan(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < 400; round++) {
        uint32_t n = between(&seed, 1, 300), best = UINT32_MAX;
        float x[300];
        for (uint32_t i = 0; i < n; i++) {
            x[i] = (float)weft_rand_below(&seed, 5) - 2.0f;
            if (weft_rand_below(&seed, 4) == 0) x[i] = NAN;
            if (weft_rand_below(&seed, 4) == 0) x[i] = -INFINITY;
            if (isnan(x[i])) continue;
            if (best == UINT32_MAX || x[i] > x[best]) best = i;
        }
        for (uint32_t t = 0; t < n_tables; t++) {
            assert_int_equal(tables[t].argmax(x, n), best == UINT32_MAX ? 0 : best);
        }
    }
}

static void rms_norm_agrees_with_double_on_every_isa(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 300; n += n < 70 ? 1 : 23) {
        for (uint32_t flavour = 0; flavour < FLAVOURS; flavour++) {
            float *x = take(n * sizeof *x), *w = take(n * sizeof *w), *first = take(n * sizeof *x);
            float *y = take(n * sizeof *y);
            fill(&seed, (enum flavour)flavour, x, n);
            fill(&seed, PLAIN, w, n);
            double sum = 0;
            for (uint32_t i = 0; i < n; i++) {
                sum += (double)x[i] * (double)x[i];
            }
            double inverse = 1.0 / sqrt(sum / n + (double)1e-6f);
            tables[0].rms_norm(x, w, 1e-6f, n, first);
            for (uint32_t i = 0; i < n; i++) {
                double truth = (double)x[i] * inverse * (double)w[i];
                assert_true(fabs((double)first[i] - truth) <=
                            (n + 8) * 0x1p-24 * fabs(truth) + 0x1p-148);
            }
            for (uint32_t t = 1; t < n_tables; t++) {
                memcpy(y, x, n * sizeof *x);
                tables[t].rms_norm(y, w, 1e-6f, n, y); /* in place */
                assert_memory_equal(y, first, n * sizeof *y);
            }
            free(x);
            free(w);
            free(first);
            free(y);
        }
    }
}

static void l2_norm_agrees_with_double_on_every_isa(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 300; n += n < 70 ? 1 : 23) {
        float x[300], y[300], first[300], scale = n % 2 ? 1.0f : 0.125f;
        fill(&seed, n % 5 ? PLAIN : SPARSE, x, n);
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += (double)x[i] * (double)x[i];
        double factor = (double)scale / sqrt(sum + (double)1e-6f);
        tables[0].l2_norm(x, scale, 1e-6f, n, first);
        for (uint32_t i = 0; i < n; i++) {
            double truth = (double)x[i] * factor;
            assert_true(fabs((double)first[i] - truth) <= (n + 8) * 0x1p-24 * fabs(truth));
        }
        for (uint32_t t = 1; t < n_tables; t++) {
            memcpy(y, x, sizeof y);
            tables[t].l2_norm(y, scale, 1e-6f, n, y); /* in place */
            assert_memory_equal(y, first, n * sizeof *y);
        }
    }
}

static void layer_norm_agrees_with_double_on_every_isa(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 300; n += n < 70 ? 1 : 23) {
        float x[300], w[300], b[300], y[300], first[300];
        const float *bias = n % 3 ? b : NULL;
        double mean = 0, sum = 0, most = 0;
        fill(&seed, PLAIN, x, n);
        fill(&seed, PLAIN, w, n);
        fill(&seed, PLAIN, b, n);
        for (uint32_t i = 0; i < n; i++) {
            x[i] += 3.0f;
            mean += (double)x[i] / n;
            most = fmax(most, fabs((double)x[i]));
        }
        for (uint32_t i = 0; i < n; i++)
            sum += ((double)x[i] - mean) * ((double)x[i] - mean);
        double inverse = 1.0 / sqrt(sum / n + (double)1e-5f);
        tables[0].layer_norm(x, w, bias, 1e-5f, n, first);
        for (uint32_t i = 0; i < n; i++) {
            double scaled = ((double)x[i] - mean) * inverse * (double)w[i];
            double truth = scaled + (bias ? (double)b[i] : 0);
            double error = (n + 8) * 0x1p-24 * most * inverse; /* of the mean */
            double bound = error * fabs((double)w[i]) * 4 + (n + 12) * 0x1p-24 * fabs(scaled);
            assert_true(fabs((double)first[i] - truth) <= bound + 0x1p-23 * fabs(truth));
        }
        for (uint32_t t = 1; t < n_tables; t++) {
            memcpy(y, x, sizeof y);
            tables[t].layer_norm(y, w, bias, 1e-5f, n, y); /* in place */
            assert_memory_equal(y, first, n * sizeof *y);
        }
    }
}

static void rope_rotates_pairs(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t hd = 2; hd <= 140; hd += 2) {
        for (uint32_t interleaved = 0; interleaved < 2; interleaved++) {
            enum { HEADS = 3 };
            float x[HEADS * 140], y[HEADS * 140], first[HEADS * 140], cos_sin[140];
            fill(&seed, PLAIN, x, HEADS * hd);
            for (uint32_t i = 0; i < hd / 2; i++) {
                double angle = weft_rand_unit(&seed) * 7;
                cos_sin[2 * i] = (float)cos(angle);
                cos_sin[2 * i + 1] = (float)sin(angle);
            }
            for (uint32_t t = 0; t < n_tables; t++) {
                memcpy(y, x, HEADS * hd * sizeof *x);
                tables[t].rope(y, HEADS, hd, cos_sin, interleaved != 0);
                if (t == 0) memcpy(first, y, sizeof y);
                assert_memory_equal(y, first, HEADS * hd * sizeof *y);
            }
            for (uint32_t i = 0; i < HEADS * hd / 2; i++) {
                uint32_t pair = i % (hd / 2), head = i / (hd / 2) * hd;
                uint32_t a = head + (interleaved ? 2 * pair : pair);
                uint32_t b = interleaved ? a + 1 : a + hd / 2;
                double c = (double)cos_sin[2 * pair], s = (double)cos_sin[2 * pair + 1];
                assert_true(fabs((double)first[a] - ((double)x[a] * c - (double)x[b] * s)) < 1e-6);
                assert_true(fabs((double)first[b] - ((double)x[a] * s + (double)x[b] * c)) < 1e-6);
            }
        }
    }
}

static void silu_mul_agrees_with_double(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 200; n += n < 40 ? 1 : 19) {
        float gate[200], up[200], y[200], first[200];
        for (uint32_t i = 0; i < n; i++) {
            gate[i] = some_float(&seed, PLAIN) * (i % 3 ? 4.0f : 120.0f);
            up[i] = some_float(&seed, PLAIN);
        }
        tables[0].silu_mul(gate, up, n, first);
        for (uint32_t i = 0; i < n; i++) {
            double truth = (double)gate[i] / (1.0 + exp(-(double)gate[i])) * (double)up[i];
            assert_true(fabs((double)first[i] - truth) <= 6 * 0x1p-24 * fabs(truth) + 0x1p-120);
        }
        for (uint32_t t = 1; t < n_tables; t++) {
            memcpy(y, gate, sizeof y);
            tables[t].silu_mul(y, up, n, y); /* in place */
            assert_memory_equal(y, first, n * sizeof *y);
            memcpy(y, up, sizeof y);
            tables[t].silu_mul(gate, y, n, y);
            assert_memory_equal(y, first, n * sizeof *y);
        }
    }
}

static void sigmoid_mul_agrees_with_double(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 200; n += n < 40 ? 1 : 19) {
        float gate[200], up[200], y[200], first[200], alone[200];
        for (uint32_t i = 0; i < n; i++) {
            gate[i] = some_float(&seed, PLAIN) * (i % 3 ? 4.0f : 80.0f);
            up[i] = some_float(&seed, PLAIN);
        }
        tables[0].sigmoid_mul(gate, up, n, first);
        tables[0].sigmoid_mul(gate, NULL, n, alone);
        for (uint32_t i = 0; i < n; i++) {
            double truth = 1.0 / (1.0 + exp(-(double)gate[i])), product = truth * (double)up[i];
            assert_true(fabs((double)alone[i] - truth) <= 6 * 0x1p-24 * truth);
            assert_true(fabs((double)first[i] - product) <= 6 * 0x1p-24 * fabs(product));
        }
        for (uint32_t t = 1; t < n_tables; t++) {
            memcpy(y, gate, sizeof y);
            tables[t].sigmoid_mul(y, up, n, y); /* in place */
            assert_memory_equal(y, first, n * sizeof *y);
            memcpy(y, up, sizeof y);
            tables[t].sigmoid_mul(gate, y, n, y);
            assert_memory_equal(y, first, n * sizeof *y);
            tables[t].sigmoid_mul(gate, NULL, n, y);
            assert_memory_equal(y, alone, n * sizeof *y);
        }
    }
}

/* 1 + tanh(u) loses digits where u is large and negative, as any f32 form of it does. */
static void gelu_mul_agrees_with_double(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 200; n += n < 40 ? 1 : 19) {
        float gate[200], up[200], y[200], first[200];
        for (uint32_t i = 0; i < n; i++) {
            gate[i] = some_float(&seed, PLAIN) * (i % 3 ? 4.0f : 120.0f);
            up[i] = some_float(&seed, PLAIN);
        }
        tables[0].gelu_mul(gate, up, n, first);
        for (uint32_t i = 0; i < n; i++) {
            double x = (double)gate[i], u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
            double truth = x / (1 + exp(-2 * u)) * (double)up[i];
            double bound = 0x1p-19 * fabs(truth) + 0x1p-110;
            assert_true(fabs((double)first[i] - truth) <= bound * (1 + fabs(u)));
        }
        for (uint32_t t = 1; t < n_tables; t++) {
            memcpy(y, gate, sizeof y);
            tables[t].gelu_mul(y, up, n, y); /* in place */
            assert_memory_equal(y, first, n * sizeof *y);
        }
        for (uint32_t t = 0; t < n_tables; t++) { /* alone */
            float ones[400];
            for (uint32_t i = 0; i < n; i++)
                ones[i] = 1.0f;
            tables[0].gelu_mul(gate, ones, n, first);
            tables[t].gelu_mul(gate, NULL, n, y);
            assert_memory_equal(y, first, n * sizeof *y);
        }
    }
}

static void gelu_erf_mul_agrees_with_double(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 400; n += n < 40 ? 1 : 19) {
        float gate[400], up[400], y[400], first[400];
        for (uint32_t i = 0; i < n; i++) {
            gate[i] = some_float(&seed, PLAIN) * (i % 3 ? 4.0f : 60.0f);
            up[i] = some_float(&seed, PLAIN);
        }
        tables[0].gelu_erf_mul(gate, up, n, first);
        for (uint32_t i = 0; i < n; i++) {
            double x = (double)gate[i];
            double truth = x * erfc(-x * M_SQRT1_2) / 2 * (double)up[i];
            /* The argument of the exponential is x^2 / 2, rounded twice. */
            double bound = (8 + (x < 0 ? 2 * x * x : 0)) * 0x1p-24 * fabs(truth) + 0x1p-110;
            assert_true(fabs((double)first[i] - truth) <= bound);
        }
        for (uint32_t t = 1; t < n_tables; t++) {
            memcpy(y, gate, sizeof y);
            tables[t].gelu_erf_mul(y, up, n, y); /* in place */
            assert_memory_equal(y, first, n * sizeof *y);
        }
        for (uint32_t t = 0; t < n_tables; t++) { /* alone */
            float ones[400];
            for (uint32_t i = 0; i < n; i++)
                ones[i] = 1.0f;
            tables[0].gelu_erf_mul(gate, ones, n, first);
            tables[t].gelu_erf_mul(gate, NULL, n, y);
            assert_memory_equal(y, first, n * sizeof *y);
        }
    }
}

static void soft_cap_agrees_with_double(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 200; n += n < 40 ? 1 : 19) {
        float x[200], y[200], first[200], cap = 0.5f * (float)between(&seed, 1, 100);
        for (uint32_t i = 0; i < n; i++) {
            x[i] = some_float(&seed, PLAIN) * (i % 3 ? 4.0f : 500.0f);
        }
        memcpy(first, x, sizeof first);
        tables[0].soft_cap(first, n, cap);
        for (uint32_t i = 0; i < n; i++) {
            double truth = (double)cap * tanh((double)x[i] / (double)cap);
            assert_true(fabs((double)first[i] - truth) <= (double)cap * 0x1p-21);
        }
        for (uint32_t t = 1; t < n_tables; t++) {
            memcpy(y, x, sizeof y);
            tables[t].soft_cap(y, n, cap);
            assert_memory_equal(y, first, n * sizeof *y);
        }
    }
}

static void activations_convert_to_the_same_bits_on_every_isa(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        enum weft_gemm_kind kind = (enum weft_gemm_kind)(round % WEFT_GEMM_KIND_COUNT);
        uint32_t group = weft_kern_group(kind), m = between(&seed, 1, 4),
                 k = group > 2 ? between(&seed, 1, group > 32 ? 9 : 40) * group
                               : between(&seed, 1, 200);
        size_t stride = k + weft_rand_below(&seed, 5), row_bytes = weft_kern_act_row_bytes(kind, k);
        float *x = take(m * stride * sizeof *x);
        fill(&seed, (enum flavour)(round / WEFT_GEMM_KIND_COUNT % FLAVOURS), x, m * stride);
        if (round % 5 == 0) x[weft_rand_below(&seed, k)] = round % 2 ? NAN : -INFINITY;
        void *first = take(m * row_bytes), *other = take(m * row_bytes);
        tables[0].act_convert(kind, x, stride, m, k, first, row_bytes);
        for (uint32_t t = 1; t < n_tables; t++) {
            tables[t].act_convert(kind, x, stride, m, k, other, row_bytes);
            assert_memory_equal(first, other, m * row_bytes);
        }
        free(x);
        free(first);
        free(other);
    }
}

/* A group of rows, converted in two parts, beside rows that are converted and then interleaved. */
static void compare_group(const struct weft_kern_table *table, enum weft_gemm_kind kind,
                          const float *x, size_t stride, uint32_t m, uint32_t k) {
    const size_t row_bytes = weft_kern_act_row_bytes(kind, k);
    const size_t group_bytes = table->group_rows * row_bytes;
    const uint32_t unit = weft_kern_act_unit(kind);
    void *rows = take(row_bytes), *want = take(group_bytes), *got = take(group_bytes);
    memset(want, 0, group_bytes);
    memset(got, 0, group_bytes);
    for (uint32_t r = 0; r < m; r++) {
        memset(rows, 0, row_bytes);
        table->act_convert(kind, x + r * stride, stride, 1, k, rows, row_bytes);
        weft_kern_act_interleave(table, kind, rows, row_bytes, r, want);
    }
    const uint32_t cut = weft_rand_below(&seed, k / unit + 1) * unit;
    struct weft_kern_act_part part = {x, stride, m, k, 0, cut, got};
    if (cut > 0) table->act_group(kind, &part);
    part.src += cut;
    part.k_begin = cut;
    part.k_end = k;
    if (cut < k) table->act_group(kind, &part);
    assert_memory_equal(want, got, group_bytes);
    free(rows);
    free(want);
    free(got);
}

static void groups_convert_to_the_bits_of_their_rows(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        enum weft_gemm_kind kind = (enum weft_gemm_kind)(round % WEFT_GEMM_KIND_COUNT);
        uint32_t group = weft_kern_group(kind);
        uint32_t k = between(&seed, 1, group > 32 ? 5 : 40) * (group > 2 ? group : 9);
        if (weft_kern_act_of(kind) == WEFT_ACT_I8) k += weft_rand_below(&seed, group);
        size_t stride = k + weft_rand_below(&seed, 5), n = 12 * stride;
        float *x = take(n * sizeof *x);
        fill(&seed, (enum flavour)(round / WEFT_GEMM_KIND_COUNT % FLAVOURS), x, n);
        if (round % 5 == 0) x[weft_rand_below(&seed, (uint32_t)n)] = round % 2 ? NAN : -INFINITY;
        for (uint32_t t = 0; t < n_tables; t++) {
            uint32_t most = tables[t].group_rows;
            compare_group(&tables[t], kind, x, stride, round % 2 ? most : between(&seed, 1, most),
                          k);
        }
        free(x);
    }
}

/* The squares of 32 errors on the grid that reaches to the largest of them. */
static double plain_error(const float *x) {
    double max = 0, sum = 0;
    for (uint32_t i = 0; i < 32; i++)
        max = fmax(max, fabs((double)x[i]));
    double step = max / 127;
    for (uint32_t i = 0; i < 32 && step > 0; i++) {
        double off = nearbyint((double)x[i] / step) * step - (double)x[i];
        sum += off * off;
    }
    return sum;
}

static void quantised_activations_are_no_farther_than_on_a_plain_grid(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    (void)all_tables(tables);
    (void)state;
    for (uint32_t round = 0; round < 200; round++) {
        float x[64];
        fill(&seed, (enum flavour)(round % FLAVOURS), x, 64);
        _Alignas(64) uint8_t row[128];
        tables[0].act_convert(WEFT_GEMM_Q8_0, x, 64, 1, 64, row, sizeof row);
        struct q8_row q = q8_row_at(row, 64);
        for (uint32_t b = 0; b < 2; b++) {
            int32_t sum = 0;
            double error = 0, square = 0;
            for (uint32_t i = b * 32; i < b * 32 + 32; i++) {
                double off = (double)q.scales[b] * q.codes[i] - (double)x[i];
                assert_true(fabs(off) <= (double)q.scales[b] + 0x1p-100);
                error += off * off;
                square += (double)x[i] * (double)x[i];
                sum += q.codes[i];
            }
            /* Grids are compared by sums of f32. */
            double slack = 0x1p-21 * square + 0x1p-195;
            assert_true(error <= plain_error(x + (size_t)b * 32) + slack);
            assert_int_equal(q.offsets[b], -128 * sum);
        }
    }
}

static float int8_scale(const float *x, uint32_t n) {
    float max = 0;
    for (uint32_t i = 0; i < n; i++) {
        max = fmaxf(max, fabsf(x[i]));
    }
    return max < Q8_TINY ? 0 : max / 127.0f;
}

static void the_cache_holds_rounded_values_in_its_layout(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    enum { HEADS = 2, DIM = 10, BLOCK = 32, BLOCKS = 3 };
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        const struct weft_kern_table *table = &tables[round % n_tables];
        enum weft_kv_dtype dtype = (enum weft_kv_dtype)(round % WEFT_KV_DTYPE_COUNT);
        struct weft_kv_layer kv = {
            .dtype = dtype, .block_size = BLOCK, .n_kv_heads = HEADS, .head_dim = DIM};
        size_t group = weft_kv_group_bytes(&kv), block_bytes = weft_kv_block_bytes(&kv);
        const size_t sizes[WEFT_KV_DTYPE_COUNT] = {4, 2, 2, 1}, size = sizes[dtype];
        const uint32_t unit = weft_kv_unit(dtype);
        assert_int_equal(block_bytes, HEADS * 2 * group);
        kv.stride_bytes = block_bytes + between(&seed, 0, 5) * (size_t)16;
        size_t bytes = (BLOCKS - 1) * kv.stride_bytes + block_bytes;
        uint8_t *k_plane = take(bytes), *v_plane = take(bytes);
        kv.k = k_plane;
        kv.v = v_plane;
        float k[HEADS * DIM], v[HEADS * DIM];
        fill(&seed, (enum flavour)(round % FLAVOURS), k, HEADS * DIM);
        fill(&seed, PLAIN, v, HEADS * DIM);
        const uint32_t block_table[2] = {2, 1};
        uint32_t pos = weft_rand_below(&seed, 2 * BLOCK), block = block_table[pos / BLOCK];
        table->kv_write(&kv, block_table, pos, k, v);
        uint32_t token = pos % BLOCK;
        for (size_t h = 0; h < HEADS; h++) {
            size_t at = block * kv.stride_bytes + (h * 2 + token / 16) * group;
            float scales[2] = {0, 0};
            if (dtype == WEFT_KV_INT8) {
                size_t scale_at = at + weft_kv_code_bytes(&kv) + token % 16 * sizeof(float);
                memcpy(&scales[0], k_plane + scale_at, sizeof(float));
                memcpy(&scales[1], v_plane + scale_at, sizeof(float));
                assert_true(scales[0] == int8_scale(k + h * DIM, DIM));
                assert_true(scales[1] == int8_scale(v + h * DIM, DIM));
            }
            for (size_t d = 0; d < DIM; d++) {
                size_t k_at = (d / unit * 16 + token % 16) * unit + d % unit;
                size_t v_at = (token % 16 / unit * DIM + d) * unit + token % unit;
                float xs[2] = {k[h * DIM + d], v[h * DIM + d]};
                const uint8_t *slots[2] = {k_plane + at + k_at * size, v_plane + at + v_at * size};
                for (uint32_t i = 0; i < 2; i++) {
                    if (dtype == WEFT_KV_INT8) {
                        double value = (double)scales[i] * (int8_t)*slots[i];
                        double step = (double)scales[i] * 0.50001 + 0x1p-100;
                        assert_true(fabs(value - (double)xs[i]) <= step);
                        continue;
                    }
                    uint16_t half = dtype == WEFT_KV_BF16 ? f32_to_bf16(xs[i]) : f32_to_f16(xs[i]);
                    if (dtype == WEFT_KV_F32) {
                        assert_memory_equal(slots[i], &xs[i], size);
                    } else {
                        assert_memory_equal(slots[i], &half, size);
                    }
                }
            }
        }
        size_t touched = 0;
        for (size_t i = 0; i < bytes; i++) {
            touched += k_plane[i] != 0xff;
        }
        assert_true(touched <= HEADS * group / 16); /* no slot but the token's own */
        free(k_plane);
        free(v_plane);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_exponential_is_within_2_ulp),
        cmocka_unit_test(so_is_the_fused_one_below_zero),
        cmocka_unit_test(exp_parts_are_exponentials_and_their_sums),
        cmocka_unit_test(chunk_maxima_leave_nan_out),
        cmocka_unit_test(sums_of_nothing_or_nan_are_nan),
        cmocka_unit_test(log_sum_exp_agrees_with_double),
        cmocka_unit_test(argmax_takes_the_first_of_the_largest_and_no_nan),
        cmocka_unit_test(rms_norm_agrees_with_double_on_every_isa),
        cmocka_unit_test(l2_norm_agrees_with_double_on_every_isa),
        cmocka_unit_test(layer_norm_agrees_with_double_on_every_isa),
        cmocka_unit_test(rope_rotates_pairs),
        cmocka_unit_test(silu_mul_agrees_with_double),
        cmocka_unit_test(sigmoid_mul_agrees_with_double),
        cmocka_unit_test(gelu_mul_agrees_with_double),
        cmocka_unit_test(gelu_erf_mul_agrees_with_double),
        cmocka_unit_test(soft_cap_agrees_with_double),
        cmocka_unit_test(activations_convert_to_the_same_bits_on_every_isa),
        cmocka_unit_test(groups_convert_to_the_bits_of_their_rows),
        cmocka_unit_test(quantised_activations_are_no_farther_than_on_a_plain_grid),
        cmocka_unit_test(the_cache_holds_rounded_values_in_its_layout),
    };
    seed = weft_rand_test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
