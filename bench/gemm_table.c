/* Products of TinyLlama-1.1B's shapes, ours beside those of libraries. Weights are prepared
 * beforehand on every side, in many copies, so that each product reads them from memory, as a
 * model's step does. Every round measures the machine, ours and then the others, whose threads get
 * a moment to fall asleep before anything else is measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/check.h"
#include "base/rand.h"
#include "crew.h"
#include "gemm_peers.h"

enum { ROUNDS_MAX = 99, N_SHAPES = 4, N_ROWS = 5, CHECKS = 64, PAUSE_MS = 50, FEW_ROWS = 4 };
#define COPIES_BYTES 400e6
#define SECONDS_MIN 0.05 /* of a measurement */

static const struct {
    uint32_t k, n;
} shapes[N_SHAPES] = {{2048, 2048}, {2048, 5632}, {5632, 2048}, {2048, 32000}};
static const uint32_t row_counts[N_ROWS] = {1, 8, 32, 128, 512};

static const struct {
    const char *name;
    enum weft_gemm_kind kind;
    uint32_t bytes; /* of a weight, roughly: decides on the number of copies */
} types[BENCH_TYPE_COUNT] = {
    {"f32", WEFT_GEMM_F32_F32, 4}, {"bf16", WEFT_GEMM_BF16, 2}, {"int8", WEFT_GEMM_I8, 1}};

/* Without libraries the table has our own figures alone. */
static const struct bench_peer *const peers[] = {
#ifdef WEFT_BENCH_ONEDNN
    &bench_onednn,
#endif
#ifdef WEFT_BENCH_OPENBLAS
    &bench_openblas,
#endif
    NULL};
enum { PEERS_MAX = 2 };

/* Our side of a product. */
struct ours {
    const struct weft_kern_table *table;
    enum weft_gemm_kind kind;
    struct weft_kern_segs segs;
    struct weft_gemm_args args; /* `packed` is the first copy */
    size_t packed_bytes;
    uint32_t n_copies, next;
};

/* Rates in 1e9 operations per second; of a peer that does not take part, 0. */
struct cell {
    double ours, of_dram, of_peak;
    double peers[PEERS_MAX], ratios[PEERS_MAX];
};

void *bench_take(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WEFT_ASSERT(memory != MAP_FAILED);
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

void bench_drop(void *memory, size_t bytes) {
    if (memory) (void)munmap(memory, bytes);
}

static float *random_floats(size_t count, float least) {
    float *values = bench_take(count * sizeof *values);
    uint64_t seed = count;
    for (size_t i = 0; i < count; i++)
        values[i] = least + (float)weft_rand_unit(&seed);
    return values;
}

/* ------------------------------------------------------------------------------------- ours --- */

static void make_weights(struct ours *ours, const struct bench_product *p) {
    ours->packed_bytes = weft_kern_packed_bytes(ours->kind, p->n, p->k);
    ours->n_copies = p->n_copies;
    uint8_t *packed = bench_take(p->n_copies * ours->packed_bytes);
    weft_kern_pack(ours->kind, &(struct weft_kern_source){WEFT_DT_F32, p->w, p->n, p->k}, 0, p->n,
                   NULL, packed);
    for (uint32_t i = 1; i < p->n_copies; i++)
        memcpy(packed + i * ours->packed_bytes, packed, ours->packed_bytes);
    weft_kern_segs_one(&ours->segs, p->k);
    ours->args = (struct weft_gemm_args){
        .packed = packed, .ldc = p->n, .n = p->n, .k = p->k, .segs = &ours->segs};
}

void bench_make_rows(const struct weft_kern_table *table, enum weft_gemm_kind kind,
                     const float *rows, struct weft_gemm_args *args) {
    uint32_t group = args->m > FEW_ROWS ? table->group_rows : 1;
    size_t row_bytes = weft_kern_act_row_bytes(kind, args->k);
    size_t n_rows = (args->m + group - 1) / group * group;
    uint8_t *act = aligned_alloc(64, n_rows * row_bytes), *row = aligned_alloc(64, row_bytes);
    WEFT_ASSERT(act && row);
    memset(act, 0, n_rows * row_bytes);
    for (uint32_t r = 0; r < args->m; r++) {
        memset(row, 0, row_bytes);
        table->act_convert(kind, rows + (size_t)r * args->k, args->k, 1, args->k, row, row_bytes);
        if (group == 1)
            memcpy(act + r * row_bytes, row, row_bytes);
        else
            weft_kern_act_interleave(table, kind, row, row_bytes, r % group,
                                     act + (r - r % group) * row_bytes);
    }
    free(row);
    args->act = act;
    args->act_row_bytes = row_bytes;
    args->act_group = group;
}

static void make_rows(struct ours *ours, const struct bench_product *p) {
    size_t bytes = (size_t)p->m * p->n * sizeof(float);
    ours->args.m = p->m;
    ours->args.c = aligned_alloc(64, bytes);
    WEFT_ASSERT(ours->args.c != NULL);
    memset(ours->args.c, 0, bytes);
    bench_make_rows(ours->table, ours->kind, p->a, &ours->args);
}

static void drop_rows(struct ours *ours) {
    free((void *)(uintptr_t)ours->args.act);
    free(ours->args.c);
}

static void run_ours(const void *job, uint32_t repeat, uint32_t part, uint32_t n_parts) {
    const struct ours *ours = job;
    struct weft_gemm_args args = ours->args;
    uint64_t n_panels = (args.n + WEFT_PANEL - 1) / WEFT_PANEL;
    args.packed =
        (const uint8_t *)args.packed + (ours->next + repeat) % ours->n_copies * ours->packed_bytes;
    ours->table->gemm[ours->kind](&args, (uint32_t)(n_panels * part / n_parts),
                                  (uint32_t)(n_panels * (part + 1) / n_parts));
}

static double measure_ours(struct ours *ours, uint32_t n_repeats) {
    double seconds = bench_crew_measure(run_ours, ours, n_repeats);
    ours->next = (ours->next + n_repeats) % ours->n_copies;
    return seconds;
}

/* --------------------------------------------------------------------------------- one cell --- */

static uint32_t repeats_for(double seconds) {
    double n = ceil(SECONDS_MIN / (seconds > 1e-9 ? seconds : 1e-9));
    return n > 100000 ? 100000 : n < 1 ? 1 : (uint32_t)n;
}

static void let_sleep(void) {
    struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    (void)nanosleep(&pause, NULL);
}

/* Both sides have to have multiplied the same; 8 bits are off by one in a hundred, and sums of some
 * thousand products, which are about 10, by one at most. */
static void compare(const struct ours *ours, const struct bench_peer *peer) {
    size_t count = (size_t)ours->args.m * ours->args.n;
    for (size_t i = 0; i < CHECKS; i++) {
        size_t at = i * (count - 1) / (CHECKS - 1);
        WEFT_ASSERT(fabsf(ours->args.c[at] - peer->result(at)) < 1);
    }
}

/* The medians of a product's rounds. */
static weft_err measure_cell(struct ours *ours, const struct bench_product *p,
                             weft_machine *machine, uint32_t n_threads, uint32_t n_rounds,
                             struct cell *out, struct weft_errmsg *why) {
    double rates[1 + PEERS_MAX][ROUNDS_MAX], ratios[PEERS_MAX][ROUNDS_MAX];
    double of_dram[ROUNDS_MAX], of_peak[ROUNDS_MAX];
    double giga_ops = 2e-9 * p->m * p->n * p->k;
    uint32_t n_repeats[1 + PEERS_MAX] = {0};
    bool takes_part[PEERS_MAX] = {false};
    enum weft_kern_peak peak = weft_kern_peak_of(weft_kern_act_of(ours->kind));
    (void)measure_ours(ours, 1);
    n_repeats[0] = repeats_for(measure_ours(ours, 2));
    for (uint32_t i = 0; peers[i]; i++) {
        takes_part[i] = peers[i]->has(p->type) && peers[i]->prepare(p, n_threads);
        if (!takes_part[i]) continue;
        (void)peers[i]->measure(1);
        n_repeats[1 + i] = repeats_for(peers[i]->measure(2));
        compare(ours, peers[i]);
        let_sleep();
    }
    for (uint32_t round = 0; round < n_rounds; round++) {
        struct weft_machine_rates can;
        weft_err err = weft_machine_measure(machine, &can, why);
        if (err) return err;
        double seconds = measure_ours(ours, n_repeats[0]);
        rates[0][round] = giga_ops / seconds;
        of_dram[round] = (double)ours->packed_bytes / seconds / can.dram_bytes;
        of_peak[round] = giga_ops * 1e9 / seconds / can.ops[peak];
        for (uint32_t i = 0; peers[i]; i++) {
            if (!takes_part[i]) continue;
            rates[1 + i][round] = giga_ops / peers[i]->measure(n_repeats[1 + i]);
            ratios[i][round] = rates[0][round] / rates[1 + i][round];
            let_sleep();
        }
    }
    *out = (struct cell){.ours = weft_median(rates[0], n_rounds),
                         .of_dram = weft_median(of_dram, n_rounds),
                         .of_peak = weft_median(of_peak, n_rounds)};
    for (uint32_t i = 0; peers[i]; i++) {
        if (!takes_part[i]) continue;
        out->peers[i] = weft_median(rates[1 + i], n_rounds);
        out->ratios[i] = weft_median(ratios[i], n_rounds);
    }
    return WEFT_OK;
}

/* ---------------------------------------------------------------------------------- results --- */

/* The goal of a product: times oneDNN's rate, or for a single row a share of the bandwidth. */
static double goal_of(uint32_t m) {
    return m == 1 ? 0.9 : m < 128 ? 1.2 : 1.0;
}

static void print_head(uint32_t n_threads, uint32_t n_rounds) {
    (void)printf(
        "\nProducts, weights from memory, %u threads, %u rounds: 1e9 operations per second, "
        "and ours divided by theirs\n%-5s %12s %4s %9s %6s %6s",
        n_threads, n_rounds, "type", "K x N", "M", "ours", "DRAM", "peak");
    for (uint32_t i = 0; peers[i]; i++)
        (void)printf(" %9s %6s", peers[i]->name, "ratio");
    (void)printf("  goal\n");
#ifndef WEFT_BENCH_ONEDNN
    (void)printf("(oneDNN was not found when this was built.)\n");
#endif
#ifndef WEFT_BENCH_OPENBLAS
    (void)printf("(OpenBLAS was not found when this was built.)\n");
#endif
}

/* The share of the goal's yardstick that a product reached; 0: its yardstick is not here. */
static double reached(const struct bench_product *p, const struct cell *cell) {
    if (p->m == 1) return cell->of_dram;
    for (uint32_t i = 0; peers[i]; i++) {
        if (peers[i]->sets_goal) return cell->ratios[i];
    }
    return 0;
}

static void print_cell(const struct bench_product *p, const struct cell *cell) {
    char shape[32];
    double share = reached(p, cell), goal = goal_of(p->m);
    (void)snprintf(shape, sizeof shape, "%u x %u", p->k, p->n);
    (void)printf("%-5s %12s %4u %9.1f %5.0f%% %5.0f%%", types[p->type].name, shape, p->m,
                 cell->ours, 100 * cell->of_dram, 100 * cell->of_peak);
    for (uint32_t i = 0; peers[i]; i++) {
        if (cell->peers[i] > 0)
            (void)printf(" %9.1f %6.2f", cell->peers[i], cell->ratios[i]);
        else
            (void)printf(" %9s %6s", "-", "-");
    }
    if (p->m == 1)
        (void)printf("  >= %.0f %% of DRAM", 100 * goal);
    else
        (void)printf("  >= %.1f x oneDNN", goal);
    (void)printf("%s\n", share == 0 ? "" : share >= goal ? ": met" : ": missed");
    (void)fflush(stdout);
}

static void print_cell_json(const struct bench_product *p, const struct cell *cell, bool first) {
    (void)printf("%s{\"type\": \"%s\", \"k\": %u, \"n\": %u, \"m\": %u, \"ours\": %.2f, "
                 "\"of_dram\": %.4f, \"of_peak\": %.4f",
                 first ? "" : ",\n", types[p->type].name, p->k, p->n, p->m, cell->ours,
                 cell->of_dram, cell->of_peak);
    for (uint32_t i = 0; peers[i]; i++) {
        if (cell->peers[i] > 0)
            (void)printf(", \"%s\": %.2f, \"%s_ratio\": %.4f", peers[i]->name, cell->peers[i],
                         peers[i]->name, cell->ratios[i]);
    }
    (void)printf("}");
}

/* -------------------------------------------------------------------------------- the table --- */

static weft_err measure_shape(struct ours *ours, struct bench_product *p, weft_machine *machine,
                              uint32_t n_threads, uint32_t n_rounds, bool json,
                              struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    bool first = p->type == 0 && p->k == shapes[0].k && p->n == shapes[0].n;
    make_weights(ours, p);
    for (uint32_t i = 0; i < N_ROWS && !err; i++) {
        struct cell cell;
        p->m = row_counts[i];
        make_rows(ours, p);
        err = measure_cell(ours, p, machine, n_threads, n_rounds, &cell, why);
        drop_rows(ours);
        if (err) break;
        if (json)
            print_cell_json(p, &cell, first && i == 0);
        else
            print_cell(p, &cell);
    }
    for (uint32_t i = 0; peers[i]; i++)
        peers[i]->drop();
    bench_drop((void *)(uintptr_t)ours->args.packed, ours->n_copies * ours->packed_bytes);
    return err;
}

weft_err bench_products(const struct weft_kern_table *table, weft_machine *machine,
                        uint32_t n_threads, uint32_t n_rounds, bool json, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    WEFT_ASSERT(n_rounds >= 1 && n_rounds <= ROUNDS_MAX);
    if (json)
        (void)printf("[");
    else
        print_head(n_threads, n_rounds);
    for (int type = 0; type < BENCH_TYPE_COUNT && !err; type++) {
        for (uint32_t s = 0; s < N_SHAPES && !err; s++) {
            uint32_t n = shapes[s].n, k = shapes[s].k, m_max = row_counts[N_ROWS - 1];
            size_t w_count = (size_t)n * k, a_count = (size_t)m_max * k;
            float *w = random_floats(w_count, -0.5f), *a = random_floats(a_count, 0);
            struct ours ours = {.table = table, .kind = types[type].kind};
            struct bench_product product = {
                .type = (enum bench_type)type,
                .n = n,
                .k = k,
                .n_copies = 1 + (uint32_t)(COPIES_BYTES / ((double)w_count * types[type].bytes)),
                .a = a,
                .w = w};
            err = measure_shape(&ours, &product, machine, n_threads, n_rounds, json, why);
            bench_drop(a, a_count * sizeof *a);
            bench_drop(w, w_count * sizeof *w);
        }
    }
    if (json) (void)printf("]");
    return err;
}
