/* bench_order — what batch invariance costs the products, in each tier that this CPU can run.
 *
 *   bench_order [--threads N] [--rounds N] [--k N]
 *
 * A token's sums have one order whatever else is in the batch (docs/architecture.md, "Batch
 * invariance"): K ascending in eight segments, joined by a tree. Without that promise each number
 * of rows could have the order that is fastest for it. Here the kernels as they are run a product
 * (the down projection of TinyLlama-1.1B: 2048 features of 5632 columns, or of --k) in that order,
 * and in those that they can take otherwise:
 *
 *   - one segment: no tree;
 *   - K in 2 or 4 parts, each a product of its own that adds to the output: what rows and weights
 *     have of a part lies in nearer caches.
 *
 * The cost is what the promised order takes more than the fastest of all four. Other ways to
 * compute one sum, such as several chains along K, are not among them: a tile has enough sums to
 * hide the latency of each, so nothing waits for a chain. Weights of one row come from memory
 * (copies of them, in turns), others from caches. Orders take turns; the fastest of --rounds (9) counts,
 * as whatever else a machine does only adds to a time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/parse.h"
#include "base/rand.h"
#include "crew.h"
#include "inside/cmd_weft/bench/bench_machine.h"
#include "kernels/kernels.h"

enum {
    N = 2048,
    UNIT = 256,
    COLUMNS_MAX = 65536,
    ROUNDS_MAX = 99,
    FEW_ROWS = 4,
    PARTS_MAX = 4,
    N_SHAPES = 4
};
enum { MIB = 128, KINDS = 6 };
enum order { PROMISED, ONE_SEGMENT, TWO_PARTS, FOUR_PARTS, N_ORDERS };

static uint32_t n_columns = 5632;
static const uint32_t shapes[N_SHAPES] = {1, 8, 64, 512};
static const uint32_t parts_of[N_ORDERS] = {1, 1, 2, 4};
static const struct {
    const char *name;
    enum weft_gemm_kind kind;
} kinds[KINDS] = {{"f32", WEFT_GEMM_F32_F32}, {"bf16", WEFT_GEMM_BF16}, {"i8", WEFT_GEMM_I8},
                  {"q8_0", WEFT_GEMM_Q8_0},   {"q4_0", WEFT_GEMM_Q4_0}, {"q4_k", WEFT_GEMM_Q4_K}};

/* A product in one of the orders: up to PARTS_MAX products of parts of K. */
struct job {
    const struct weft_kern_table *table;
    enum weft_gemm_kind kind;
    uint32_t n_parts, n_copies;
    size_t packed_bytes[PARTS_MAX]; /* of one copy */
    struct weft_kern_segs segs[PARTS_MAX];
    struct weft_gemm_args parts[PARTS_MAX];
};

static void *take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    WEFT_ASSERT(memory != NULL);
    memset(memory, 0, (bytes + 63) / 64 * 64);
    return memory;
}

static void run_job(const void *arg, uint32_t repeat, uint32_t part, uint32_t n_parts) {
    const struct job *job = arg;
    const uint64_t n_panels = N / WEFT_PANEL;
    for (uint32_t i = 0; i < job->n_parts; i++) {
        struct weft_gemm_args args = job->parts[i];
        args.packed = (const uint8_t *)args.packed + repeat % job->n_copies * job->packed_bytes[i];
        job->table->gemm[job->kind](&args, (uint32_t)(n_panels * part / n_parts),
                                    (uint32_t)(n_panels * (part + 1) / n_parts));
    }
}

/* The whole weight, any codes, with scales of moderate size. */
static uint8_t *make_weight(enum weft_gemm_kind kind) {
    uint8_t *packed = take(weft_kern_packed_bytes(kind, N, n_columns));
    enum weft_dtype weights = weft_kern_weights_of(kind), type = WEFT_DT_F32;
    uint8_t *source = take((size_t)WEFT_PANEL * n_columns * sizeof(float));
    uint64_t seed = 1;
    if (weft_dtype_block_elems(weights) > 1) {
        type = weights;
        for (size_t i = 0; i < (size_t)WEFT_PANEL * n_columns * sizeof(float); i++)
            source[i] = (uint8_t)weft_rand_next(&seed) & 0x3fu;
    } else {
        for (size_t i = 0; i < (size_t)WEFT_PANEL * n_columns; i++)
            ((float *)(void *)source)[i] = (float)weft_rand_unit(&seed) - 0.5f;
    }
    const struct weft_kern_source src = {type, source, WEFT_PANEL, n_columns};
    weft_kern_pack(kind, &src, 0, WEFT_PANEL, NULL, packed);
    const size_t panel = weft_kern_panel_bytes(kind, n_columns);
    for (uint32_t p = 1; p < N / WEFT_PANEL; p++) {
        memcpy(packed + p * panel, packed, panel);
    }
    free(source);
    return packed;
}

/* Columns begin..end of every panel, `n_copies` times. */
static uint8_t *cut_weight(enum weft_gemm_kind kind, const uint8_t *whole, uint32_t begin,
                           uint32_t end, uint32_t n_copies) {
    const size_t panel = weft_kern_panel_bytes(kind, n_columns);
    const size_t cut = weft_kern_part_bytes(kind, n_columns, end - begin),
                 n_panels = N / WEFT_PANEL;
    uint8_t *out = take(n_copies * n_panels * cut);
    for (size_t p = 0; p < n_copies * n_panels; p++) {
        weft_kern_cut(kind, whole + p % n_panels * panel, n_columns, begin, end, out + p * cut);
    }
    return out;
}

/* Rows as a worker would hand them over. */
static void make_rows(const struct job *job, struct weft_gemm_args *args) {
    const uint32_t group = args->m > FEW_ROWS ? job->table->group_rows : 1;
    const size_t row_bytes = weft_kern_act_row_bytes(job->kind, args->k);
    uint8_t *act = take((args->m + group - 1) / group * group * row_bytes);
    uint8_t *row = take(row_bytes);
    float *x = take(args->k * sizeof *x);
    uint64_t seed = 1;
    for (uint32_t r = 0; r < args->m; r++) {
        for (uint32_t i = 0; i < args->k; i++) {
            x[i] = (float)weft_rand_unit(&seed) - 0.5f;
        }
        job->table->act_convert(job->kind, x, args->k, 1, args->k, row, row_bytes);
        if (group == 1)
            memcpy(act + r * row_bytes, row, row_bytes);
        else
            weft_kern_act_interleave(job->table, job->kind, row, row_bytes, r % group,
                                     act + r / group * group * row_bytes);
    }
    free(x);
    free(row);
    args->act = act;
    args->act_row_bytes = row_bytes;
    args->act_group = group;
}

static void make_job(struct job *job, const struct weft_kern_table *table, enum weft_gemm_kind kind,
                     enum order order, uint32_t m, const uint8_t *whole) {
    const size_t bytes = weft_kern_packed_bytes(kind, N, n_columns);
    float *c = take((size_t)m * N * sizeof *c);
    *job = (struct job){.table = table, .kind = kind, .n_parts = parts_of[order]};
    job->n_copies = m == 1 ? (uint32_t)(((size_t)MIB << 20) / bytes) : 1;
    for (uint32_t i = 0; i < job->n_parts; i++) {
        const uint32_t begin = n_columns / UNIT * i / job->n_parts * UNIT;
        const uint32_t end = n_columns / UNIT * (i + 1) / job->n_parts * UNIT;
        struct weft_gemm_args *args = &job->parts[i];
        *args = (struct weft_gemm_args){.c = c, .ldc = N, .m = m, .n = N, .k = end - begin};
        args->packed = cut_weight(kind, whole, begin, end, job->n_copies);
        args->residual = i ? c : NULL;
        args->segs = &job->segs[i];
        job->packed_bytes[i] = N / WEFT_PANEL * weft_kern_part_bytes(kind, n_columns, end - begin);
        if (order == PROMISED)
            weft_kern_segs_split(&job->segs[i], n_columns / UNIT, UNIT);
        else
            weft_kern_segs_one(&job->segs[i], end - begin);
        make_rows(job, args);
    }
}

static void drop_job(struct job *job) {
    for (uint32_t i = 0; i < job->n_parts; i++) {
        free((void *)(uintptr_t)job->parts[i].act);
        free((void *)(uintptr_t)job->parts[i].packed);
    }
    free(job->parts[0].c);
}

/* How often to run a product so that it takes some ten milliseconds. */
static uint32_t repeats_of(const struct job *job) {
    double once = bench_crew_measure(run_job, job, 1);
    return once < 5e-3 ? 1 + (uint32_t)(10e-3 / once) : 2;
}

/* The cost in percent, and in *best_out the order that was fastest. */
static double cost_of(const struct weft_kern_table *table, uint32_t k, uint32_t m, uint32_t rounds,
                      enum order *best_out) {
    struct job jobs[N_ORDERS];
    double times[N_ORDERS];
    uint8_t *whole = make_weight(kinds[k].kind);
    uint32_t repeats = 1;
    for (uint32_t o = 0; o < N_ORDERS; o++) {
        make_job(&jobs[o], table, kinds[k].kind, (enum order)o, m, whole);
        repeats = repeats_of(&jobs[o]);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t o = 0; o < N_ORDERS; o++) {
            double time = bench_crew_measure(run_job, &jobs[o], repeats);
            if (round == 0 || time < times[o]) times[o] = time;
        }
    }
    *best_out = PROMISED;
    for (uint32_t o = 0; o < N_ORDERS; o++) {
        if (times[o] < times[*best_out]) *best_out = (enum order)o;
        drop_job(&jobs[o]);
    }
    free(whole);
    return 100 * (times[PROMISED] / times[*best_out] - 1);
}

static void bench_tier(const struct weft_kern_table *table, uint32_t rounds) {
    static const char *const orders[N_ORDERS] = {"", "one", "two", "four"};
    double costs[KINDS * N_SHAPES], sum = 0;
    (void)printf("\n%-18s", table->name);
    for (uint32_t s = 0; s < N_SHAPES; s++) {
        (void)printf("      m=%-4u  ", shapes[s]);
    }
    for (uint32_t k = 0; k < KINDS; k++) {
        (void)printf("\n%-18s", kinds[k].name);
        for (uint32_t s = 0; s < N_SHAPES; s++) {
            enum order best;
            double cost = cost_of(table, k, shapes[s], rounds, &best);
            costs[k * N_SHAPES + s] = cost;
            sum += cost;
            (void)printf(" %6.1f %% %-5s", cost, orders[best]);
            (void)fflush(stdout);
        }
    }
    (void)printf("\n%-18s %6.1f %%, median %.1f %%\n", "mean", sum / (KINDS * N_SHAPES),
                 weft_median(costs, KINDS * N_SHAPES));
}

int main(int argc, char **argv) {
    uint32_t cpus[WEFT_CPUS_MAX];
    uint64_t threads = weft_cpu_allowed(cpus), rounds = 9, k = n_columns;
    for (int i = 1; i < argc; i += 2) {
        uint64_t *value = strcmp(argv[i], "--threads") == 0  ? &threads
                          : strcmp(argv[i], "--rounds") == 0 ? &rounds
                          : strcmp(argv[i], "--k") == 0      ? &k
                                                             : NULL;
        const uint64_t most = value == &k ? COLUMNS_MAX : ROUNDS_MAX;
        if (!value || i + 1 == argc || weft_parse_u64(argv[i + 1], most, value) || !*value ||
            k % UNIT != 0 || k < PARTS_MAX * UNIT) {
            (void)fprintf(stderr, "usage: %s [--threads N] [--rounds N] [--k N]\n", argv[0]);
            return 2;
        }
    }
    n_columns = (uint32_t)k;
    if (threads > BENCH_THREADS_MAX) threads = BENCH_THREADS_MAX;
    bench_crew_start((uint32_t)threads);
    (void)printf("%" PRIu64 " threads, %" PRIu64
                 " rounds: what the promised order takes more than the fastest (one segment, K in "
                 "two or four parts)\n",
                 threads, rounds);
    for (uint32_t isa = WEFT_ISA_SCALAR + 1; isa < WEFT_ISA_COUNT; isa++) {
        const struct weft_kern_table *table = weft_kern_table_for((enum weft_isa)isa);
        if (table) bench_tier(table, (uint32_t)rounds);
    }
    bench_crew_stop();
    return 0;
}
