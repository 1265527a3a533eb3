/* Recurrent layers between their products: right against their formulas in double, and the same bits
 * whatever rows come together, with whom, and in which order tasks run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "inside/engine/recurrent/mixer.h"

enum { SEQS = 3, ROWS = 29, IN_STRIDE = 1140, STRIDE = 640, WIDTH_MAX = 4, DIM_MAX = 64 };

static uint64_t seed;
static const struct weft_kern_table *kern;

/* A layer with random weights, and three sequences' rows, one after the other. */
struct layer {
    struct wefti_mixer mixer;
    float taps[WIDTH_MAX * STRIDE], bias[STRIDE], dt_bias[16], rate[16], skip[16], norm[STRIDE];
    float in[ROWS * IN_STRIDE];
};

static const struct {
    enum wefti_mixer_kind kind;
    struct wefti_state_shape shape;
    uint32_t n_groups, norm_groups; /* norm_groups 0: no norm */
} kinds[] = {
    {WEFTI_MIXER_CONV, {3, 550, 0, 0, 0}, 0, 0},
    {WEFTI_MIXER_MAMBA, {4, 6 * 24 + 4 * 16, 6, 16, 24}, 2, 1},
    {WEFTI_MIXER_MAMBA, {4, 4 * 80 + 2 * 20, 4, 20, 80}, 1, 2},
    {WEFTI_MIXER_MAMBA, {2, 2 * 8 + 4 * 7, 2, 7, 8}, 2, 0},
    {WEFTI_MIXER_DELTA, {4, 4 * 20 + 4 * 37, 4, 20, 37}, 2, 0},
    {WEFTI_MIXER_DELTA, {4, 2 * 64 + 3 * 80, 3, 64, 80}, 1, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const uint32_t seq_first[SEQS + 1] = {0, 1, 20, ROWS};

static void fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(weft_rand_unit(&seed) * 2.0 - 1.0);
}

static void make_layer(struct layer *l, uint32_t kind) {
    struct wefti_mixer *m = &l->mixer;
    fill(l->taps, sizeof l->taps / sizeof(float));
    fill(l->bias, sizeof l->bias / sizeof(float));
    fill(l->dt_bias, 16);
    fill(l->skip, 16);
    fill(l->norm, sizeof l->norm / sizeof(float));
    fill(l->in, sizeof l->in / sizeof(float));
    for (uint32_t i = 0; i < 16; i++)
        l->rate[i] = -1.5f * (float)weft_rand_unit(&seed);
    *m = (struct wefti_mixer){
        .kind = kinds[kind].kind,
        .shape = kinds[kind].shape,
        .n_groups = kinds[kind].n_groups,
        .group_heads = kinds[kind].n_groups ? kinds[kind].shape.n_heads / kinds[kind].n_groups : 0,
        .taps = l->taps,
        .dt_bias = l->dt_bias,
        .rate = l->rate,
        .skip = l->skip,
        .norm = l->norm,
        .norm_groups = kinds[kind].norm_groups,
        .norm_eps = 1e-5f,
        .dt_max = INFINITY};
    m->conv_bias = m->kind == WEFTI_MIXER_MAMBA ? l->bias : NULL;
    if (m->kind == WEFTI_MIXER_MAMBA && m->norm_groups == 0) m->norm = NULL;
    const uint32_t n_inner = m->shape.n_heads * m->shape.n_columns;
    m->gate_at = m->shape.n_channels;
    m->dt_at = m->gate_at + n_inner;
    m->beta_at = m->dt_at + m->shape.n_heads;
    if (m->kind == WEFTI_MIXER_CONV) m->b_at = m->gate_at + 30; /* they share most: so be it */
}

/* --------------------------------------------------------------------------------- in double --- */

static double silu(double x) {
    return x / (1 + exp(-x));
}

/* What goes into the convolution. */
static double input_of(const struct layer *l, uint32_t row, uint32_t channel) {
    const float *in = l->in + (size_t)row * IN_STRIDE;
    double x = (double)in[l->mixer.conv_at + channel];
    return l->mixer.kind == WEFTI_MIXER_CONV ? x * (double)in[l->mixer.b_at + channel] : x;
}

static void convolve_row(const struct layer *l, uint32_t first, uint32_t row, double *out) {
    const struct wefti_state_shape *s = &l->mixer.shape;
    for (uint32_t c = 0; c < s->n_channels; c++) {
        out[c] = l->mixer.conv_bias ? (double)l->bias[c] : 0;
        for (uint32_t back = 0; back < s->conv_width && row >= first + back; back++)
            out[c] += (double)l->taps[(s->conv_width - 1 - back) * s->n_channels + c] *
                      input_of(l, row - back, c);
        if (l->mixer.kind != WEFTI_MIXER_CONV) out[c] = silu(out[c]);
    }
}

static double inverse_length(const double *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return 1 / sqrt(sum + (double)1e-6f);
}

/* One head of a row: y, and its state h[row][column] goes on. */
static void scan_head(const struct layer *l, const float *in, const double *conv, uint32_t head,
                      double (*h)[DIM_MAX + 16], double *y) {
    const struct wefti_mixer *m = &l->mixer;
    const uint32_t n_rows = m->shape.n_rows, n_columns = m->shape.n_columns;
    const uint32_t group = head / (m->shape.n_heads / m->n_groups);
    const bool is_delta = m->kind == WEFTI_MIXER_DELTA;
    const double *a = conv + (is_delta ? m->n_groups * n_rows : m->shape.n_heads * n_columns) +
                      group * n_rows,
                 *c = is_delta ? a - m->n_groups * n_rows : a + m->n_groups * n_rows,
                 *x = conv + (is_delta ? 2 * m->n_groups * n_rows : 0) + head * n_columns;
    const double dt = log1p(exp((double)in[m->dt_at + head] + (double)l->dt_bias[head]));
    const double decay = exp((double)l->rate[head] * dt);
    const double beta = 1 / (1 + exp(-(double)in[m->beta_at + head]));
    const double a_scale = is_delta ? inverse_length(a, n_rows) : 1;
    const double c_scale = is_delta ? inverse_length(c, n_rows) / sqrt((double)n_rows) : 1;
    for (uint32_t column = 0; column < n_columns; column++) {
        double seen = 0;
        for (uint32_t row = 0; row < n_rows; row++) {
            h[row][column] *= decay;
            seen += h[row][column] * a[row] * a_scale;
        }
        double change = is_delta ? beta * (x[column] - seen) : dt * x[column];
        y[column] = is_delta ? 0 : (double)l->skip[head] * x[column];
        for (uint32_t row = 0; row < n_rows; row++) {
            h[row][column] += change * a[row] * a_scale;
            y[column] += h[row][column] * c[row] * c_scale;
        }
    }
}

static void normalise(double *y, uint32_t n, const float *w, double eps) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += y[i] * y[i];
    for (uint32_t i = 0; i < n; i++)
        y[i] *= (double)w[i] / sqrt(sum / n + eps);
}

static void finish(const struct layer *l, const float *in, double *y) {
    const struct wefti_mixer *m = &l->mixer;
    const uint32_t n = m->shape.n_heads * m->shape.n_columns, n_columns = m->shape.n_columns;
    const double eps = (double)m->norm_eps;
    for (uint32_t i = 0; i < n && m->kind == WEFTI_MIXER_DELTA; i += n_columns)
        normalise(y + i, n_columns, l->norm, eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] *= silu((double)in[m->gate_at + i]);
    for (uint32_t i = 0; i < n && m->kind == WEFTI_MIXER_MAMBA && m->norm; i += n / m->norm_groups)
        normalise(y + i, n / m->norm_groups, l->norm + i, eps);
}

/* All rows of one sequence. */
static void compare_seq(const struct layer *l, uint32_t seq, const float *out) {
    static double states[8][DIM_MAX][DIM_MAX + 16];
    const struct wefti_mixer *m = &l->mixer;
    double conv[STRIDE], y[STRIDE];
    memset(states, 0, sizeof states);
    for (uint32_t row = seq_first[seq]; row < seq_first[seq + 1]; row++) {
        const float *in = l->in + (size_t)row * IN_STRIDE;
        uint32_t n = m->shape.n_heads * m->shape.n_columns;
        convolve_row(l, seq_first[seq], row, conv);
        if (m->kind == WEFTI_MIXER_CONV) {
            n = m->shape.n_channels;
            for (uint32_t i = 0; i < n; i++)
                y[i] = conv[i] * (double)in[m->gate_at + i];
        } else {
            for (uint32_t head = 0; head < m->shape.n_heads; head++)
                scan_head(l, in, conv, head, states[head], y + head * m->shape.n_columns);
            finish(l, in, y);
        }
        for (uint32_t i = 0; i < n; i++)
            assert_true(fabs((double)out[row * STRIDE + i] - y[i]) <= 1e-4 * (1 + fabs(y[i])));
    }
}

/* ------------------------------------------------------------------------------------- runs --- */

struct buffers {
    float in[ROWS * IN_STRIDE], conv[ROWS * STRIDE], gates[ROWS * 40], out[ROWS * STRIDE];
};

/* One step: the rows of `seqs`, which come first in the buffers. */
static void run_step(const struct layer *l, const struct wefti_states *states,
                     const struct wefti_mixer_seq *seqs, uint32_t n_seqs, struct buffers *b,
                     bool is_backwards) {
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < n_seqs; i++)
        n_rows += seqs[i].n;
    const struct wefti_mixer_step step = {.kern = kern,
                                          .mixer = &l->mixer,
                                          .states = states,
                                          .layer = 1,
                                          .n_rows = n_rows,
                                          .n_seqs = n_seqs,
                                          .seqs = seqs,
                                          .in = b->in,
                                          .conv = b->conv,
                                          .gates = b->gates,
                                          .out = b->out,
                                          .in_stride = IN_STRIDE,
                                          .conv_stride = STRIDE,
                                          .gate_stride = 40,
                                          .out_stride = STRIDE};
    for (uint32_t phase = 0; phase < WEFTI_MIXER_PHASES; phase++) {
        uint32_t n_tasks = wefti_mixer_n_tasks(&step, (enum wefti_mixer_phase)phase);
        for (uint32_t i = 0; i < n_tasks; i++)
            wefti_mixer_run(&step, (enum wefti_mixer_phase)phase,
                            is_backwards ? n_tasks - 1 - i : i);
    }
}

static void open_states(const struct layer *l, struct wefti_states *states) {
    const struct wefti_state_shape shapes[] = {{0}, l->mixer.shape};
    struct weft_errmsg why = {""};
    if (wefti_states_open(states, shapes, 2, SEQS, 0, &why)) fail_msg("%s", why.text);
    memset(states->map, 0xff, states->map_bytes); /* NaN, of another sequence */
}

static void run_at_once(const struct layer *l, struct wefti_states *states, struct buffers *b,
                        float *out) {
    struct wefti_mixer_seq seqs[SEQS];
    for (uint32_t i = 0; i < SEQS; i++)
        seqs[i] = (struct wefti_mixer_seq){seq_first[i], seq_first[i + 1] - seq_first[i], i, true};
    memcpy(b->in, l->in, sizeof b->in);
    run_step(l, states, seqs, SEQS, b, false);
    memcpy(out, b->out, sizeof b->out);
}

/* Some rows of some sequences at a time, in any order of sequences. */
static void run_in_steps(const struct layer *l, struct wefti_states *states, struct buffers *b,
                         float *out) {
    uint32_t done[SEQS] = {0}, n_done = 0;
    while (n_done < ROWS) {
        struct wefti_mixer_seq seqs[SEQS];
        uint32_t n_seqs = 0, n_rows = 0, from[SEQS], turn = weft_rand_below(&seed, SEQS);
        for (uint32_t i = 0; i < SEQS; i++) {
            uint32_t s = (i + turn) % SEQS, left = seq_first[s + 1] - seq_first[s] - done[s];
            uint32_t n = left > 0 ? weft_rand_below(&seed, left < 8 ? left + 1 : 8) : 0;
            if (n == 0) continue;
            from[n_seqs] = seq_first[s] + done[s];
            seqs[n_seqs++] = (struct wefti_mixer_seq){n_rows, n, s, done[s] == 0};
            memcpy(b->in + (size_t)n_rows * IN_STRIDE,
                   l->in + (size_t)(seq_first[s] + done[s]) * IN_STRIDE,
                   n * IN_STRIDE * sizeof(float));
            n_rows += n;
            done[s] += n;
        }
        n_done += n_rows;
        run_step(l, states, seqs, n_seqs, b, true);
        for (uint32_t i = 0; i < n_seqs; i++)
            memcpy(out + (size_t)from[i] * STRIDE, b->out + (size_t)seqs[i].first * STRIDE,
                   seqs[i].n * STRIDE * sizeof(float));
    }
}

static void run_kinds(void) {
    static struct layer layer;
    static struct buffers buffers;
    static float whole[ROWS * STRIDE], cut[ROWS * STRIDE];
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        struct wefti_states states, cut_states;
        make_layer(&layer, kind);
        const struct wefti_state_shape *s = &layer.mixer.shape;
        const uint32_t n = s->n_heads > 0 ? s->n_heads * s->n_columns : s->n_channels;
        open_states(&layer, &states);
        open_states(&layer, &cut_states);
        run_at_once(&layer, &states, &buffers, whole);
        for (uint32_t seq = 0; seq < SEQS; seq++)
            compare_seq(&layer, seq, whole);
        run_in_steps(&layer, &cut_states, &buffers, cut);
        for (uint32_t row = 0; row < ROWS; row++)
            assert_memory_equal(whole + row * STRIDE, cut + row * STRIDE, n * sizeof(float));
        assert_memory_equal(states.map, cut_states.map, states.map_bytes);
        wefti_states_close(&states);
        wefti_states_close(&cut_states);
    }
}

static void layers_agree_with_double_however_rows_are_cut_into_steps(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3 * WEFT_ISA_COUNT; i++) {
        kern = weft_kern_table_for((enum weft_isa)(i % WEFT_ISA_COUNT));
        if (kern) run_kinds();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_agree_with_double_however_rows_are_cut_into_steps),
    };
    seed = weft_rand_test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
