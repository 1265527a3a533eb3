/* Recurrent layers: right against their formulas in double, and the same bits however tokens are cut
 * into calls. */
#include "kernels_test.h"

static uint64_t seed;

/* ------------------------------------------------------------------------------ convolutions --- */

struct inputs {
    bool is_first;
    uint32_t n, n_channels, width;
    size_t x_stride, y_stride;
    float *x, *taps, *bias, *state;
};

static struct inputs some_inputs(uint32_t n, uint32_t n_channels, uint32_t width) {
    struct inputs in = {.n = n, .n_channels = n_channels, .width = width};
    in.x_stride = n_channels + between(&seed, 0, 5);
    in.y_stride = n_channels + between(&seed, 0, 5);
    in.x = take(n * in.x_stride * sizeof *in.x);
    in.taps = take((size_t)n_channels * width * sizeof *in.taps);
    in.bias = take(n_channels * sizeof *in.bias);
    in.state = take((size_t)n_channels * (width - 1) * sizeof *in.state);
    fill(&seed, PLAIN, in.x, n * in.x_stride);
    fill(&seed, PLAIN, in.taps, (size_t)n_channels * width);
    fill(&seed, PLAIN, in.bias, n_channels);
    in.is_first = n % 2;
    if (!in.is_first) fill(&seed, PLAIN, in.state, (size_t)n_channels * (width - 1));
    return in;
}

static void free_inputs(struct inputs *in) {
    free(in->x);
    free(in->taps);
    free(in->bias);
    free(in->state);
}

static void convolve(const struct weft_kern_table *table, const struct inputs *in, bool has_silu,
                     float *state, float *y, uint32_t t, uint32_t n, uint32_t c_begin,
                     uint32_t c_end) {
    const struct weft_kern_conv args = {.state = state,
                                        .x = in->x + t * in->x_stride,
                                        .taps = in->taps,
                                        .bias = has_silu ? in->bias : NULL,
                                        .y = y + t * in->y_stride,
                                        .x_stride = in->x_stride,
                                        .y_stride = in->y_stride,
                                        .n_tokens = n,
                                        .n_channels = in->n_channels,
                                        .width = in->width,
                                        .is_first = in->is_first && t == 0,
                                        .has_silu = has_silu};
    table->conv(&args, c_begin, c_end);
}

/* The input `back` tokens before token t. */
static double input_of(const struct inputs *in, uint32_t t, uint32_t back, uint32_t channel) {
    if (back <= t) return (double)in->x[(t - back) * in->x_stride + channel];
    if (in->is_first) return 0;
    return (double)in->state[(size_t)(in->width - 1 + t - back) * in->n_channels + channel];
}

static void compare_sums(const struct inputs *in, bool has_silu, const float *y) {
    for (uint32_t t = 0; t < in->n; t++) {
        for (uint32_t c = 0; c < in->n_channels; c++) {
            double sum = has_silu ? (double)in->bias[c] : 0, size = fabs(sum);
            for (uint32_t back = 0; back < in->width; back++) {
                double tap = (double)in->taps[(in->width - 1 - back) * in->n_channels + c];
                sum += tap * input_of(in, t, back, c);
                size += fabs(tap * input_of(in, t, back, c));
            }
            if (has_silu) sum /= 1 + exp(-sum);
            double bound = (in->width + 8) * 0x1p-23 * size;
            assert_true(fabs((double)y[t * in->y_stride + c] - sum) <= bound);
        }
    }
}

static void check_last_inputs(const struct inputs *in, const float *state) {
    for (uint32_t i = 0; i + 1 < in->width; i++) {
        for (uint32_t c = 0; c < in->n_channels; c++) {
            double want = input_of(in, in->n - 1, in->width - 2 - i, c);
            assert_true((double)state[(size_t)i * in->n_channels + c] == want);
        }
    }
}

static void convolve_some(const struct weft_kern_table *tables, uint32_t n_tables,
                          const struct inputs *in, bool has_silu) {
    const size_t state_bytes = (size_t)in->n_channels * (in->width - 1) * sizeof(float);
    const size_t y_bytes = in->n * in->y_stride * sizeof(float);
    float *state = take(state_bytes), *cut_state = take(state_bytes), *y = take(y_bytes),
          *cut = take(y_bytes);
    memcpy(state, in->state, state_bytes);
    convolve(&tables[0], in, has_silu, state, y, 0, in->n, 0, in->n_channels);
    compare_sums(in, has_silu, y);
    check_last_inputs(in, state);
    for (uint32_t i = 0; i < n_tables; i++) {
        memcpy(cut_state, in->state, state_bytes);
        memset(cut, 0xff, y_bytes);
        uint32_t middle = between(&seed, 0, in->n_channels);
        for (uint32_t t = 0, n; t < in->n; t += n) {
            n = weft_min_u32(between(&seed, 1, 6), in->n - t);
            convolve(&tables[i], in, has_silu, cut_state, cut, t, n, middle, in->n_channels);
            convolve(&tables[i], in, has_silu, cut_state, cut, t, n, 0, middle);
        }
        assert_memory_equal(cut, y, y_bytes);
        assert_memory_equal(cut_state, state, state_bytes);
    }
    free(state);
    free(cut_state);
    free(y);
    free(cut);
}

static void convolutions_have_the_same_bits_on_every_isa_however_they_are_cut(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t width = 2; width <= WEFT_CONV_WIDTH_MAX; width++) {
        for (uint32_t round = 0; round < 8; round++) {
            uint32_t n_channels = round == 0 ? 37 : between(&seed, 1, 200);
            struct inputs in = some_inputs(between(&seed, 1, 20), n_channels, width);
            convolve_some(tables, n_tables, &in, round % 2);
            free_inputs(&in);
        }
    }
}

/* ----------------------------------------------------------------------------------- fading --- */

static void decays_agree_with_double_and_stay_within_their_limits(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t n = 1; n < 200; n += n < 40 ? 1 : 19) {
        float x[200], bias[200], rate[200], dt[2][200], decay[2][200];
        struct weft_kern_decay args = {x, bias, rate, 0, INFINITY, dt[0], decay[0], n};
        if (n % 2) args.dt_min = 0.01f;
        if (n % 2) args.dt_max = 3.0f;
        for (uint32_t i = 0; i < n; i++) {
            x[i] = some_float(&seed, PLAIN) * (i % 3 ? 8.0f : 80.0f);
            bias[i] = some_float(&seed, PLAIN);
            rate[i] = -20.0f * (float)weft_rand_unit(&seed);
        }
        tables[0].decay(&args);
        for (uint32_t i = 0; i < n; i++) {
            double sum = (double)(x[i] + bias[i]), truth = fmax(sum, 0) + log1p(exp(-fabs(sum)));
            truth = fmin(fmax(truth, (double)args.dt_min), (double)args.dt_max);
            assert_true(fabs((double)dt[0][i] - truth) <= 8 * 0x1p-24 * truth);
            double power = (double)rate[i] * (double)dt[0][i], faded = exp(power);
            double bound = (6 - power) * 0x1p-24 * faded;
            assert_true(fabs((double)decay[0][i] - faded) <= bound + 0x1p-120);
        }
        for (uint32_t t = 1; t < n_tables; t++) {
            args.decay = decay[1];
            args.dt = t % 2 ? dt[1] : NULL;
            tables[t].decay(&args);
            assert_memory_equal(decay[1], decay[0], n * sizeof(float));
            if (args.dt) assert_memory_equal(dt[1], dt[0], n * sizeof(float));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_have_the_same_bits_on_every_isa_however_they_are_cut),
        cmocka_unit_test(decays_agree_with_double_and_stay_within_their_limits),
    };
    seed = weft_rand_test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
