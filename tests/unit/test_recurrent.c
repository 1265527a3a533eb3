/* Recurrent layers: right against their formulas in double, and the same bits however tokens are cut
 * into calls and states into panels. */
#include "kernels_test.h"

enum { TOKENS_MAX = 40, ROWS_MAX = 130 };

static uint64_t seed;

/* ------------------------------------------------------------------------------------- scans --- */

/* What both scans are given: of Mamba-2 b, c and dt, of the delta rule k, q and beta. */
struct scan {
    bool is_delta, is_first;
    uint32_t n, n_rows, n_columns;
    size_t x_stride, row_stride, gate_stride;
    float *x, *a, *c, *gate, *decay, skip;
    float *state; /* before the first token */
};

static const struct {
    uint32_t n_rows, n_columns;
} shapes[] = {{16, 24}, {20, 37}, {1, 1}, {7, 16}, {33, 15}, {128, 64}, {130, 130}};

/* Rows of length 1. */
static void normalise(float *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (uint32_t i = 0; i < n && sum > 0; i++)
        x[i] = (float)((double)x[i] / sqrt(sum));
}

static size_t state_floats(const struct scan *s) {
    return weft_kern_state_floats(s->n_rows, s->n_columns);
}

static size_t state_at(const struct scan *s, uint32_t row, uint32_t column) {
    return ((size_t)(column / WEFT_PANEL) * s->n_rows + row) * WEFT_PANEL + column % WEFT_PANEL;
}

static struct scan some_scan(bool is_delta, uint32_t n, uint32_t n_rows, uint32_t n_columns) {
    struct scan s = {.is_delta = is_delta, .n = n, .n_rows = n_rows, .n_columns = n_columns};
    s.x_stride = n_columns + between(&seed, 0, 3);
    s.row_stride = n_rows + between(&seed, 0, 3);
    s.gate_stride = between(&seed, 1, 3);
    s.x = take(n * s.x_stride * sizeof *s.x);
    s.a = take(n * s.row_stride * sizeof *s.a);
    s.c = take(n * s.row_stride * sizeof *s.c);
    s.gate = take(n * s.gate_stride * sizeof *s.gate);
    s.decay = take(n * s.gate_stride * sizeof *s.decay);
    s.state = take(state_floats(&s) * sizeof *s.state);
    s.skip = some_float(&seed, PLAIN);
    fill(&seed, PLAIN, s.x, n * s.x_stride);
    fill(&seed, PLAIN, s.a, n * s.row_stride);
    fill(&seed, PLAIN, s.c, n * s.row_stride);
    for (uint32_t t = 0; t < n; t++) {
        s.gate[t * s.gate_stride] = (float)weft_rand_unit(&seed);
        s.decay[t * s.gate_stride] = t % 7 == 3 ? 0.0f : 1.0f - 0.3f * (float)weft_rand_unit(&seed);
        if (is_delta) normalise(s.a + t * s.row_stride, n_rows);
        if (is_delta) normalise(s.c + t * s.row_stride, n_rows);
    }
    s.is_first = n % 2;
    if (s.is_first) return s; /* and NaN is in the state */
    memset(s.state, 0, state_floats(&s) * sizeof *s.state);
    for (uint32_t i = 0; i < n_rows * n_columns; i++)
        s.state[state_at(&s, i / n_columns, i % n_columns)] = some_float(&seed, PLAIN);
    return s;
}

static void free_scan(struct scan *s) {
    free(s->x);
    free(s->a);
    free(s->c);
    free(s->gate);
    free(s->decay);
    free(s->state);
}

/* Tokens from `t` on, panels p_begin..p_end, from x to y, which have the same stride. */
static void run(const struct weft_kern_table *table, const struct scan *s, float *state,
                const float *x, float *y, uint32_t t, uint32_t n, uint32_t p_begin,
                uint32_t p_end) {
    const float *a = s->a + t * s->row_stride, *c = s->c + t * s->row_stride;
    const float *gate = s->gate + t * s->gate_stride, *decay = s->decay + t * s->gate_stride;
    const bool is_first = s->is_first && t == 0;
    x += t * s->x_stride;
    y += t * s->x_stride;
    if (s->is_delta) {
        const struct weft_kern_delta args = {state,       c,
                                             a,           x,
                                             decay,       gate,
                                             y,           s->row_stride,
                                             s->x_stride, s->gate_stride,
                                             s->x_stride, n,
                                             s->n_rows,   s->n_columns,
                                             is_first};
        table->delta_scan(&args, p_begin, p_end);
    } else {
        const struct weft_kern_mamba args = {state,
                                             x,
                                             a,
                                             c,
                                             gate,
                                             decay,
                                             y,
                                             s->x_stride,
                                             s->row_stride,
                                             s->gate_stride,
                                             s->x_stride,
                                             s->skip,
                                             n,
                                             s->n_columns,
                                             s->n_rows,
                                             is_first};
        table->mamba_scan(&args, p_begin, p_end);
    }
}

/* One column in double: its y, and how large the numbers are whose roundings y may show. */
static void compute_column(const struct scan *s, uint32_t column, double y[TOKENS_MAX],
                           double size[TOKENS_MAX]) {
    double h[ROWS_MAX], most = 0, largest = 0;
    for (uint32_t row = 0; row < s->n_rows; row++)
        h[row] = s->is_first ? 0 : (double)s->state[state_at(s, row, column)];
    for (uint32_t t = 0; t < s->n; t++) {
        const float *a = s->a + t * s->row_stride, *c = s->c + t * s->row_stride;
        double x = (double)s->x[t * s->x_stride + column], seen = 0, length = 0, c_length = 0;
        double gate = (double)s->gate[t * s->gate_stride];
        for (uint32_t row = 0; row < s->n_rows; row++) {
            h[row] *= (double)s->decay[t * s->gate_stride];
            seen += h[row] * (double)a[row];
        }
        double change = gate * (s->is_delta ? x - seen : x);
        y[t] = s->is_delta ? 0 : (double)s->skip * x;
        for (uint32_t row = 0; row < s->n_rows; row++) {
            h[row] += change * (double)a[row];
            y[t] += h[row] * (double)c[row];
            length += h[row] * h[row];
            c_length += (double)c[row] * (double)c[row];
        }
        largest = fmax(largest, fabs(x));
        most = fmax(most, sqrt(length));
        size[t] = most * sqrt(c_length) + largest;
    }
}

/* Each token adds its roundings, and neither rule makes them grow: decay is at most 1, and so is what
 * (1 - beta k k^T) does to a length. */
static void compare_with_double(const struct scan *s, const float *y) {
    double truth[TOKENS_MAX], size[TOKENS_MAX];
    for (uint32_t column = 0; column < s->n_columns; column++) {
        compute_column(s, column, truth, size);
        for (uint32_t t = 0; t < s->n; t++) {
            double bound = (s->n_rows + 8) * (t + 2) * 0x1p-24 * size[t];
            assert_true(fabs((double)y[t * s->x_stride + column] - truth[t]) <= bound);
        }
    }
}

static void check_padding(const struct scan *s, const float *state) {
    for (uint32_t row = 0; row < s->n_rows; row++) {
        for (uint32_t c = s->n_columns; c < weft_kern_state_panels(s->n_columns) * WEFT_PANEL; c++)
            assert_true(state[state_at(s, row, c)] == 0.0f);
    }
}

/* The same again: tokens in calls of 1 to `most`, panels one by one and backwards, in place. */
static void compare_cut(const struct weft_kern_table *table, const struct scan *s, uint32_t most,
                        const float *y, const float *after) {
    const size_t state_bytes = state_floats(s) * sizeof(float), x_floats = s->n * s->x_stride;
    float *state = take(state_bytes), *x = take(x_floats * sizeof *x);
    memcpy(state, s->state, state_bytes);
    memcpy(x, s->x, x_floats * sizeof *x);
    for (uint32_t t = 0, n; t < s->n; t += n) {
        n = weft_min_u32(between(&seed, 1, most), s->n - t);
        for (uint32_t p = weft_kern_state_panels(s->n_columns); p-- > 0;)
            run(table, s, state, x, x, t, n, p, p + 1);
    }
    assert_memory_equal(state, after, state_bytes);
    for (uint32_t i = 0; i < x_floats; i++) {
        bool is_column = i % s->x_stride < s->n_columns;
        assert_true(same_bits(x[i], is_column ? y[i] : s->x[i]));
    }
    free(state);
    free(x);
}

static void scan_some(const struct weft_kern_table *table, bool is_delta, uint32_t shape,
                      uint32_t n) {
    struct scan s = some_scan(is_delta, n, shapes[shape].n_rows, shapes[shape].n_columns);
    const size_t state_bytes = state_floats(&s) * sizeof(float);
    float *state = take(state_bytes), *y = take(n * s.x_stride * sizeof *y);
    memcpy(state, s.state, state_bytes);
    run(table, &s, state, s.x, y, 0, n, 0, weft_kern_state_panels(s.n_columns));
    compare_with_double(&s, y);
    check_padding(&s, state);
    compare_cut(table, &s, 1, y, state);
    compare_cut(table, &s, 7, y, state);
    compare_cut(table, &s, 33, y, state);
    free(state);
    free(y);
    free_scan(&s);
}

static void scan_on_all_tables(bool is_delta) {
    static const uint32_t lengths[] = {1, 2, 3, 4, 5, 9, TOKENS_MAX};
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    for (uint32_t t = 0; t < n_tables; t++) {
        for (uint32_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
            for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                scan_some(&tables[t], is_delta, shape, lengths[i]);
        }
    }
}

static void mamba_agrees_with_double_however_it_is_cut(void **state) {
    (void)state;
    scan_on_all_tables(false);
}

static void delta_agrees_with_double_however_it_is_cut(void **state) {
    (void)state;
    scan_on_all_tables(true);
}

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
        cmocka_unit_test(mamba_agrees_with_double_however_it_is_cut),
        cmocka_unit_test(delta_agrees_with_double_however_it_is_cut),
        cmocka_unit_test(convolutions_have_the_same_bits_on_every_isa_however_they_are_cut),
        cmocka_unit_test(decays_agree_with_double_and_stay_within_their_limits),
    };
    seed = weft_rand_test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
