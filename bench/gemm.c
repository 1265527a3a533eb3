/* bench_gemm — the products against the machine's peaks.
 *
 *   bench_gemm [--threads N] [--rounds N] [--mib N] [--only kinds|products] [--json]
 *   bench_gemm --repeat KIND:ROWS:TIMES    one product again and again, for what counts instructions
 *
 * WEFT_ISA picks the kernels. Two tables: every kind of weight beside the machine's ceilings, here,
 * and three types beside libraries, in gemm_table.c.
 *
 * One row reads every weight once: GB/s beside plain reading. Many rows compute: GFLOP/s beside
 * multiply-adds in registers, of f32, bf16 or bytes as the kind's activations are. Every round
 * measures the machine and then each kind, so that a slow minute slows all of them; the table shows
 * the median round and the median share. Weights of the one-row case are --mib large (256), well
 * beyond the caches. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/parse.h"
#include "base/rand.h"
#include "crew.h"
#include "gemm_peers.h"
#include "inside/cmd_weft/bench/bench_machine.h"
#include "kernels/kernels.h"

enum { ROUNDS_MAX = 99, LOOKS = 3, DIM = 2048, LONG_K = 4096, N_SHAPES = 4, M_MAX = 512 };

static const uint32_t shapes[N_SHAPES] = {1, 16, 64, M_MAX};
#define NAMES_NONE(id, name)
#define NAMES_EXACT(id, name) [WEFT_GEMM_##id##_F32] = name "*f32",
#define NAMES_BOTH(id, name) NAMES_EXACT(id, name)[WEFT_GEMM_##id] = name,
#define NAMES_ALL(id, name) NAMES_BOTH(id, name)[WEFT_GEMM_##id##_BF16] = name "*bf16",
#define NAMES(id, name, class, elems, bytes, file, layout, products) NAMES_##products(id, name)
static const char *const kind_names[WEFT_GEMM_KIND_COUNT] = {WEFT_DTYPES(NAMES)};

/* A product; `repeats` of it are one measurement. */
struct job {
    const struct weft_kern_table *table;
    enum weft_gemm_kind kind;
    struct weft_gemm_args args;
    uint32_t repeats;
};

static void run_gemm(const void *arg, uint32_t repeat, uint32_t part, uint32_t parts) {
    const struct job *job = arg;
    uint64_t panels = (job->args.n + WEFT_PANEL - 1) / WEFT_PANEL;
    (void)repeat;
    job->table->gemm[job->kind](&job->args, (uint32_t)(panels * part / parts),
                                (uint32_t)(panels * (part + 1) / parts));
}

static double measure(const struct job *job) {
    return bench_crew_measure(run_gemm, job, job->repeats);
}

static void *take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    WEFT_ASSERT(memory != NULL);
    memset(memory, 0, (bytes + 63) / 64 * 64);
    return memory;
}

/* Blocks of types that are packed from nothing else: any codes, and no scale beyond 2 or near zero,
 * wherever a type has them. */
static void fill_blocks(uint8_t *out, size_t n_bytes) {
    uint64_t seed = 1;
    for (size_t i = 0; i < n_bytes; i++) {
        out[i] = (uint8_t)(weft_rand_next(&seed) & 0x1fu) | 0x20u;
    }
}

static void fill_floats(float *out, size_t count) {
    uint64_t seed = 1;
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)weft_rand_unit(&seed) - 0.5f;
    }
}

/* A weight of `n` features whose panels are all alike, as contents do not change the cost. */
static void *make_weights(enum weft_gemm_kind kind, uint32_t n, uint32_t k) {
    size_t panel = weft_kern_panel_bytes(kind, k), count = (size_t)WEFT_PANEL * k;
    uint8_t *packed = take(weft_kern_packed_bytes(kind, n, k));
    void *source = take(count * sizeof(float)); /* no type has more */
    enum weft_dtype weights = weft_kern_weights_of(kind), type = WEFT_DT_F32;
    if (weft_dtype_block_elems(weights) > 1 || weights == WEFT_DT_F8_E4M3) {
        type = weights;
        fill_blocks(source, count * sizeof(float));
    } else {
        fill_floats(source, count);
    }
    weft_kern_pack(kind, &(struct weft_kern_source){type, source, WEFT_PANEL, k}, 0, WEFT_PANEL,
                   NULL, packed);
    for (uint32_t p = 1; p < n / WEFT_PANEL; p++) {
        memcpy(packed + p * panel, packed, panel);
    }
    free(source);
    return packed;
}

static struct job make_job(const struct weft_kern_table *table, enum weft_gemm_kind kind,
                           uint32_t m, uint32_t n, uint32_t k, struct weft_kern_segs *segs) {
    float *src = take((size_t)m * k * sizeof *src);
    fill_floats(src, (size_t)m * k);
    weft_kern_segs_one(segs, k);
    struct job job = {.table = table, .kind = kind, .repeats = 1};
    job.args = (struct weft_gemm_args){.packed = make_weights(kind, n, k),
                                       .c = take((size_t)m * n * sizeof(float)),
                                       .ldc = n,
                                       .m = m,
                                       .n = n,
                                       .k = k,
                                       .segs = segs};
    bench_make_rows(table, kind, src, &job.args);
    free(src);
    return job;
}

struct options {
    uint64_t threads, rounds, mib;
    bool json, kinds, products;
    const char *repeat;
};

static void end_with_usage(const char *name) {
    (void)fprintf(stderr,
                  "usage: %s [--threads N] [--rounds N] [--mib N] [--only kinds|products] "
                  "[--json]\n       %s --repeat KIND:ROWS:TIMES\n",
                  name, name);
    exit(2);
}

static void parse_options(int argc, char **argv, struct options *o) {
    uint32_t cpus[WEFT_CPUS_MAX];
    *o = (struct options){.threads = weft_cpu_allowed(cpus),
                          .rounds = 5,
                          .mib = 256,
                          .kinds = true,
                          .products = true};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
            continue;
        }
        const char *flag = argv[i], *text = argv[++i];
        if (!text) end_with_usage(argv[0]);
        uint64_t *value = strcmp(flag, "--threads") == 0  ? &o->threads
                          : strcmp(flag, "--rounds") == 0 ? &o->rounds
                          : strcmp(flag, "--mib") == 0    ? &o->mib
                                                          : NULL;
        if (strcmp(flag, "--repeat") == 0) {
            o->repeat = text;
        } else if (strcmp(flag, "--only") == 0) {
            o->kinds = strcmp(text, "kinds") == 0;
            o->products = strcmp(text, "products") == 0;
            if (!o->kinds && !o->products) end_with_usage(argv[0]);
        } else if (!value || weft_parse_u64(text, 65536, value) || *value == 0) {
            end_with_usage(argv[0]);
        }
    }
    if (o->threads > BENCH_THREADS_MAX) o->threads = BENCH_THREADS_MAX;
    if (o->rounds > ROUNDS_MAX) o->rounds = ROUNDS_MAX;
}

static double gflop(const struct job *job) {
    return 2e-9 * job->args.m * job->args.n * job->args.k;
}

static enum weft_kern_peak peak_of(enum weft_gemm_kind kind) {
    return weft_kern_peak_of(weft_kern_act_of(kind));
}

static double gbyte(const struct job *job) {
    return 1e-9 * (double)weft_kern_packed_bytes(job->kind, job->args.n, job->args.k);
}

static void die(const struct weft_errmsg *why) {
    (void)fprintf(stderr, "bench_gemm: %s\n", why->text);
    exit(1);
}

/* Every kind of weight: rates, and shares of the machine's in the same round. */
static double rates[WEFT_GEMM_KIND_COUNT][N_SHAPES][ROUNDS_MAX];
static double shares[WEFT_GEMM_KIND_COUNT][N_SHAPES][ROUNDS_MAX];
static double read_rates[ROUNDS_MAX], peaks[WEFT_PEAK_COUNT][ROUNDS_MAX];

static bool is_there[WEFT_GEMM_KIND_COUNT]; /* in the table */

static void measure_kind_round(weft_machine *machine, struct job jobs[][N_SHAPES], uint32_t round) {
    struct weft_machine_rates can;
    struct weft_errmsg why = {""};
    if (weft_machine_measure(machine, &can, &why)) die(&why);
    read_rates[round] = can.dram_bytes / 1e9;
    for (uint32_t p = 0; p < WEFT_PEAK_COUNT; p++) {
        peaks[p][round] = can.ops[p] / 1e9;
    }
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        if (!is_there[kind]) continue;
        for (uint32_t s = 0; s < N_SHAPES; s++) {
            struct job *job = &jobs[kind][s];
            double amount = shapes[s] == 1 ? gbyte(job) : gflop(job);
            job->repeats = shapes[s] == 1 ? 1 : 1 + 256 / shapes[s];
            rates[kind][s][round] = amount / measure(job);
            double ceiling = shapes[s] == 1 ? read_rates[round] : peaks[peak_of(job->kind)][round];
            shares[kind][s][round] = rates[kind][s][round] / ceiling;
        }
    }
}

static void print_kinds(uint32_t n_rounds) {
    (void)printf("\n%-10s %18s", "", "m=1 GB/s");
    for (uint32_t s = 1; s < N_SHAPES; s++) {
        (void)printf("    m=%-3u GFLOP/s", shapes[s]);
    }
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        if (!is_there[kind]) continue;
        (void)printf("\n%-10s", kind_names[kind]);
        for (uint32_t s = 0; s < N_SHAPES; s++) {
            (void)printf(" %10.1f (%3.0f%%)", weft_median(rates[kind][s], n_rounds),
                         100 * weft_median(shares[kind][s], n_rounds));
        }
    }
    (void)printf("\n");
}

static void print_kinds_json(uint32_t n_rounds) {
    (void)printf("[");
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        if (!is_there[kind]) continue;
        for (uint32_t s = 0; s < N_SHAPES; s++) {
            (void)printf(
                "%s{\"kind\": \"%s\", \"m\": %u, \"%s\": %.2f, \"%s\": %.4f}",
                kind || s ? ",\n" : "", kind_names[kind], shapes[s],
                shapes[s] == 1 ? "gb_per_s" : "gop_per_s", weft_median(rates[kind][s], n_rounds),
                shapes[s] == 1 ? "of_dram" : "of_peak", weft_median(shares[kind][s], n_rounds));
        }
    }
    (void)printf("]");
}

static void bench_kinds(const struct weft_kern_table *table, weft_machine *machine,
                        const struct options *o) {
    static struct job jobs[WEFT_GEMM_KIND_COUNT][N_SHAPES];
    static struct weft_kern_segs segs[WEFT_GEMM_KIND_COUNT][N_SHAPES];
    uint32_t n_rounds = (uint32_t)o->rounds;
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++)
        is_there[kind] = table->gemm[kind] != NULL;
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        if (!is_there[kind]) continue;
        for (uint32_t s = 0; s < N_SHAPES; s++) {
            uint32_t n = DIM, k = DIM;
            if (shapes[s] == 1) {
                k = LONG_K;
                size_t panel = weft_kern_panel_bytes((enum weft_gemm_kind)kind, k);
                n = (uint32_t)((o->mib << 20) / panel) * WEFT_PANEL;
            }
            jobs[kind][s] =
                make_job(table, (enum weft_gemm_kind)kind, shapes[s], n, k, &segs[kind][s]);
            (void)measure(&jobs[kind][s]);
        }
    }
    for (uint32_t round = 0; round < n_rounds; round++) {
        measure_kind_round(machine, jobs, round);
    }
    (o->json ? print_kinds_json : print_kinds)(n_rounds);
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        if (!is_there[kind]) continue;
        for (uint32_t s = 0; s < N_SHAPES; s++) {
            struct weft_gemm_args *args = &jobs[kind][s].args;
            free((void *)(uintptr_t)args->act);
            free((void *)(uintptr_t)args->packed);
            free(args->c);
        }
    }
}

/* The ceilings: medians of a few measurements. */
static void print_machine(const struct weft_kern_table *table, weft_machine *machine,
                          const struct options *o) {
    double reading[LOOKS], ops[WEFT_PEAK_COUNT][LOOKS];
    struct weft_errmsg why = {""};
    for (uint32_t i = 0; i < LOOKS; i++) {
        struct weft_machine_rates can;
        if (weft_machine_measure(machine, &can, &why)) die(&why);
        reading[i] = can.dram_bytes / 1e9;
        for (uint32_t p = 0; p < WEFT_PEAK_COUNT; p++)
            ops[p][i] = can.ops[p] / 1e9;
    }
    (void)printf(o->json ? "{\"isa\": \"%s\", \"threads\": %" PRIu64 ", \"rounds\": %" PRIu64
                           ", \"machine\": {\"dram_read_gb_per_s\": %.2f, "
                           "\"f32_gflop_per_s\": %.1f, \"bf16_gflop_per_s\": %.1f, "
                           "\"vnni_gop_per_s\": %.1f}"
                         : "%s, %" PRIu64 " threads, %" PRIu64 " rounds: reading %.1f GB/s, f32 "
                           "%.0f, bf16 %.0f, int8 %.0f GFLOP/s\n",
                 table->name, o->threads, o->rounds, weft_median(reading, LOOKS),
                 weft_median(ops[WEFT_PEAK_F32], LOOKS), weft_median(ops[WEFT_PEAK_BF16], LOOKS),
                 weft_median(ops[WEFT_PEAK_INT8], LOOKS));
}

/* `what`: KIND:ROWS:TIMES. False if it is none. */
static bool repeat_product(const struct weft_kern_table *table, const char *what) {
    enum { REPEAT_N = 256, REPEAT_K = 1024 };
    struct weft_kern_segs segs;
    char name[16];
    uint32_t m, times, kind = 0;
    if (sscanf(what, "%15[^:]:%" SCNu32 ":%" SCNu32, name, &m, &times) != 3 || m == 0) return false;
    while (kind < WEFT_GEMM_KIND_COUNT && strcmp(kind_names[kind], name) != 0)
        kind++;
    if (kind == WEFT_GEMM_KIND_COUNT || !table->gemm[kind] || m > M_MAX) return false;
    struct job job = make_job(table, (enum weft_gemm_kind)kind, m, REPEAT_N, REPEAT_K, &segs);
    for (uint32_t i = 0; i < times; i++) {
        run_gemm(&job, i, 0, 1);
    }
    return true;
}

int main(int argc, char **argv) {
    const struct weft_kern_table *table;
    weft_machine *machine;
    struct weft_errmsg why = {""};
    struct options o;
    parse_options(argc, argv, &o);
    if (weft_kern_select(&table, &why)) die(&why);
    if (o.repeat) {
        if (!repeat_product(table, o.repeat)) end_with_usage(argv[0]);
        return 0;
    }
    if (weft_machine_new(table, (uint32_t)o.threads, &machine, &why)) die(&why);
    bench_crew_start((uint32_t)o.threads);
    print_machine(table, machine, &o);
    if (o.kinds) {
        if (o.json) (void)printf(",\n\"kinds\": ");
        bench_kinds(table, machine, &o);
    }
    if (o.products) {
        if (o.json) (void)printf(",\n\"products\": ");
        if (bench_products(table, machine, (uint32_t)o.threads, (uint32_t)o.rounds, o.json, &why))
            die(&why);
    }
    if (o.json) (void)printf("}\n");
    bench_crew_stop();
    weft_machine_free(machine);
    return 0;
}
