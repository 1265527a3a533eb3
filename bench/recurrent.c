/* bench_recurrent — recurrent layers beside the machine's ceilings, on one thread.
 *
 *   bench_recurrent [--rounds N] [--tokens N] [--mib N]                  WEFT_ISA picks the table
 *
 * One layer of real models: the state of so many sequences that they fill --mib (512) takes one token
 * each, as in steps of a batch, which is bound by memory: twice the state's bytes, read and written,
 * against the rate of reading; and one sequence takes --tokens (64) of a prompt, which is bound by
 * arithmetic: multiplications and additions against the peak of fused ones. The best of the
 * rounds. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/minmax.h"
#include "base/parse.h"
#include "base/rand.h"
#include "inside/cmd_weft/bench/bench_machine.h"

enum { ROUNDS_MAX = 999, TOKENS_MAX = 4096, MIB_MAX = 1 << 16, CHANNELS_MAX = 8192 };

enum rule { MAMBA, DELTA, CONV };

/* A layer: heads of n_rows x n_columns, or channels with n_rows taps. */
struct layer {
    const char *name;
    enum rule rule;
    uint32_t n_heads, n_groups, n_rows, n_columns;
    double ops; /* per element of a state and token */
};

static const struct layer layers[] = {
    {"delta rule, Qwen3-Next", DELTA, 32, 16, 128, 128, 7},
    {"Mamba-2, Nemotron-H-8B", MAMBA, 128, 8, 128, 64, 5},
    {"Mamba-2, Granite 4.0 H Small", MAMBA, 128, 1, 128, 64, 5},
    {"convolution, LFM2-1.2B", CONV, 1, 1, 3, 2048, 2},
    {"convolution, Qwen3-Next", CONV, 1, 1, 4, 8192, 2},
};

struct bench {
    const struct weft_kern_table *kern;
    uint32_t n_rounds, n_tokens, n_mib;
    uint64_t rng;
    float *x, *y, *rows,
        *gates; /* [n_tokens][CHANNELS_MAX]; of rows b, k and taps, c, q after them */
    float *states;
};

static float *take(size_t count) {
    void *memory = aligned_alloc(64, weft_round_up(count * sizeof(float), 64));
    if (!memory) abort();
    memset(memory, 0, count * sizeof(float));
    return memory;
}

static size_t state_floats(const struct layer *layer) {
    if (layer->rule == CONV) return (size_t)(layer->n_rows - 1) * layer->n_columns;
    return layer->n_heads * weft_kern_state_floats(layer->n_rows, layer->n_columns);
}

static void run_conv(const struct bench *b, const struct layer *layer, float *state, uint32_t n) {
    const struct weft_kern_conv args = {.state = state,
                                        .x = b->x,
                                        .taps = b->rows,
                                        .y = b->y,
                                        .x_stride = CHANNELS_MAX,
                                        .y_stride = CHANNELS_MAX,
                                        .n_tokens = n,
                                        .n_channels = layer->n_columns,
                                        .width = layer->n_rows,
                                        .has_silu = true};
    b->kern->conv(&args, 0, layer->n_columns);
}

static void run_head(const struct bench *b, const struct layer *layer, uint32_t head, float *state,
                     uint32_t n) {
    const float *rows = b->rows + (size_t)head / (layer->n_heads / layer->n_groups) * layer->n_rows;
    const float *more = rows + CHANNELS_MAX / 2, *x = b->x + (size_t)head * layer->n_columns;
    float *y = b->y + (size_t)head * layer->n_columns;
    const uint32_t n_panels = weft_kern_state_panels(layer->n_columns);
    if (layer->rule == MAMBA) {
        const struct weft_kern_mamba args = {state,
                                             x,
                                             rows,
                                             more,
                                             b->gates,
                                             b->gates,
                                             y,
                                             CHANNELS_MAX,
                                             CHANNELS_MAX,
                                             1,
                                             CHANNELS_MAX,
                                             1.0f,
                                             n,
                                             layer->n_columns,
                                             layer->n_rows,
                                             false};
        b->kern->mamba_scan(&args, 0, n_panels);
    } else {
        const struct weft_kern_delta args = {state,
                                             more,
                                             rows,
                                             x,
                                             b->gates,
                                             b->gates,
                                             y,
                                             CHANNELS_MAX,
                                             CHANNELS_MAX,
                                             1,
                                             CHANNELS_MAX,
                                             n,
                                             layer->n_rows,
                                             layer->n_columns,
                                             false};
        b->kern->delta_scan(&args, 0, n_panels);
    }
}

/* All heads, n tokens. */
static void run_layer(const struct bench *b, const struct layer *layer, float *state, uint32_t n) {
    if (layer->rule == CONV) {
        run_conv(b, layer, state, n);
        return;
    }
    for (uint32_t head = 0; head < layer->n_heads; head++) {
        run_head(b, layer, head, state, n);
        state += weft_kern_state_floats(layer->n_rows, layer->n_columns);
    }
}

/* Seconds per token. */
static double measure(const struct bench *b, const struct layer *layer, uint32_t n_seqs,
                      uint32_t n_tokens) {
    double best = INFINITY;
    for (uint32_t round = 0; round < b->n_rounds; round++) {
        uint64_t begin_ns = weft_now_ns();
        for (uint32_t i = 0; i < n_seqs; i++)
            run_layer(b, layer, b->states + i * state_floats(layer), n_tokens);
        double took = (double)(weft_now_ns() - begin_ns) / 1e9 / n_seqs / n_tokens;
        best = fmin(best, took);
    }
    return best;
}

static void print_layer(const struct bench *b, const struct layer *layer,
                        const struct weft_machine_rates *rates) {
    const size_t floats = state_floats(layer), all = (size_t)b->n_mib << 18;
    const uint32_t n_seqs = (uint32_t)weft_min_u64(all / floats, 4096);
    const double peak = rates->ops[WEFT_PEAK_F32];
    double one = measure(b, layer, n_seqs, 1), prompt = measure(b, layer, 1, b->n_tokens);
    double bytes = 2.0 * (double)floats * sizeof(float) / one;
    double elems = layer->rule == CONV ? (double)layer->n_rows * layer->n_columns : (double)floats;
    printf("%-29s %9.1f %7.1f %5.0f%% %9.2f %7.1f %5.0f%%\n", layer->name, one * 1e6, bytes / 1e9,
           100 * bytes / rates->dram_bytes, prompt * 1e6, elems * layer->ops / prompt / 1e9,
           100 * elems * layer->ops / prompt / peak);
}

static void make_data(struct bench *b) {
    const size_t n = (size_t)b->n_tokens * CHANNELS_MAX;
    b->x = take(n);
    b->y = take(n);
    b->rows = take(weft_max_size(n, (size_t)4 * CHANNELS_MAX));
    b->gates = take(b->n_tokens);
    b->states = take((size_t)b->n_mib << 18);
    for (size_t i = 0; i < n; i++) {
        b->x[i] = (float)weft_rand_unit(&b->rng) - 0.5f;
        b->rows[i] = ((float)weft_rand_unit(&b->rng) - 0.5f) / 8;
    }
    for (uint32_t i = 0; i < b->n_tokens; i++)
        b->gates[i] = 0.5f + 0.4f * (float)weft_rand_unit(&b->rng);
}

static bool parse_options(int argc, char **argv, struct bench *b) {
    for (int i = 1; i < argc; i += 2) {
        uint64_t value = 0;
        if (i + 1 == argc || weft_parse_u64(argv[i + 1], MIB_MAX, &value) || value == 0)
            return false;
        if (!strcmp(argv[i], "--rounds") && value <= ROUNDS_MAX)
            b->n_rounds = (uint32_t)value;
        else if (!strcmp(argv[i], "--tokens") && value <= TOKENS_MAX)
            b->n_tokens = (uint32_t)value;
        else if (!strcmp(argv[i], "--mib") && value >= 8)
            b->n_mib = (uint32_t)value;
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    struct bench b = {.n_rounds = 9, .n_tokens = 64, .n_mib = 512, .rng = 1};
    struct weft_errmsg why = {""};
    struct weft_machine_rates rates;
    weft_machine *machine = NULL;
    if (!parse_options(argc, argv, &b)) {
        (void)fprintf(stderr, "usage: bench_recurrent [--rounds N] [--tokens N] [--mib N]\n");
        return 2;
    }
    if (weft_kern_select(&b.kern, &why) || weft_machine_new(b.kern, 1, &machine, &why) ||
        weft_machine_measure(machine, &rates, &why)) {
        (void)fprintf(stderr, "bench_recurrent: %s\n", why.text);
        weft_machine_free(machine);
        return 1;
    }
    make_data(&b);
    printf("%s, one thread: reads %.1f GB/s, peak %.1f GFLOP/s\n", b.kern->name,
           rates.dram_bytes / 1e9, rates.ops[WEFT_PEAK_F32] / 1e9);
    printf("%-29s %9s %7s %6s %9s %7s %6s\n", "", "one us", "GB/s", "", "prompt us", "GFLOP/s", "");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        print_layer(&b, &layers[i], &rates);
    weft_machine_free(machine);
    return 0;
}
