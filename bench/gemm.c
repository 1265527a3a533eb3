/* bench_gemm — the products against what the machine can do.
 *
 *   bench_gemm [--threads N] [--rounds N] [--mib N]        WEFT_ISA picks the table
 *
 * One row reads every weight once: GB/s beside plain reading. Many rows compute: GFLOP/s beside
 * multiply-adds in registers, of f32, bf16 or bytes as the kind's activations are. Every round
 * measures the machine and then each kind, so that a slow minute slows all of them; the table shows
 * the median round and the median share. Weights of the one-row case are --mib large (256), well
 * beyond the caches. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/parse.h"
#include "base/rand.h"
#include "cmd/weft/bench_machine.h"
#include "kernels/kernels.h"

enum {
    THREADS_MAX = 64,
    ROUNDS_MAX = 99,
    DIM = 2048,
    LONG_K = 4096,
    N_SHAPES = 4,
    M_MAX = 512,
    FEW_ROWS = 4
};

static const uint32_t shapes[N_SHAPES] = {1, 16, 64, M_MAX};
static const char *const kind_names[WEFT_GEMM_KIND_COUNT] = {
    "f32",      "f16*f32", "bf16*f32", "bf16", "q8*f32",   "q8",
    "i8*f32",   "i8",      "q4_0*f32", "q4_0", "q4_1*f32", "q4_1",
    "q4_k*f32", "q4_k",    "q5_k*f32", "q5_k", "q6_k*f32", "q6_k"};

/* One measurement: `run(job, part, parts)` on all threads at once, `repeats` times. */
struct job {
    void (*run)(const struct job *job, uint32_t part, uint32_t parts);
    const struct weft_kern_table *table;
    enum weft_gemm_kind kind;
    struct weft_gemm_args args;
    uint32_t repeats;
};

struct crew {
    uint32_t n_threads;
    pthread_t threads[THREADS_MAX];
    pthread_barrier_t start, end;
    const struct job *job; /* NULL: go home */
};

struct member {
    struct crew *crew;
    uint32_t part;
};

static struct crew crew;
static struct member members[THREADS_MAX];

static void run_gemm(const struct job *job, uint32_t part, uint32_t parts) {
    uint64_t panels = (job->args.n + WEFT_PANEL - 1) / WEFT_PANEL;
    job->table->gemm[job->kind](&job->args, (uint32_t)(panels * part / parts),
                                (uint32_t)(panels * (part + 1) / parts));
}

static void work(struct crew *c, uint32_t part) {
    for (uint32_t i = 0; i < c->job->repeats; i++) {
        c->job->run(c->job, part, c->n_threads);
    }
}

static void *member_main(void *arg) {
    struct member *me = arg;
    for (;;) {
        (void)pthread_barrier_wait(&me->crew->start);
        if (!me->crew->job) return NULL;
        work(me->crew, me->part);
        (void)pthread_barrier_wait(&me->crew->end);
    }
}

/* Seconds per repeat. */
static double measure(const struct job *job) {
    crew.job = job;
    (void)pthread_barrier_wait(&crew.start);
    uint64_t begin = weft_now_ns();
    work(&crew, 0);
    (void)pthread_barrier_wait(&crew.end);
    return (double)(weft_now_ns() - begin) * 1e-9 / job->repeats;
}

static void crew_start(uint32_t n_threads) {
    uint32_t cpus[WEFT_CPUS_MAX], n_cpus = weft_cpu_allowed(cpus);
    crew.n_threads = n_threads;
    WEFT_ASSERT(pthread_barrier_init(&crew.start, NULL, n_threads) == 0);
    WEFT_ASSERT(pthread_barrier_init(&crew.end, NULL, n_threads) == 0);
    for (uint32_t i = 1; i < n_threads; i++) {
        members[i] = (struct member){&crew, i};
        WEFT_ASSERT(pthread_create(&crew.threads[i], NULL, member_main, &members[i]) == 0);
    }
    (void)weft_cpu_pin(cpus[n_cpus - 1]);
}

static void crew_stop(void) {
    crew.job = NULL;
    (void)pthread_barrier_wait(&crew.start);
    for (uint32_t i = 1; i < crew.n_threads; i++) {
        (void)pthread_join(crew.threads[i], NULL);
    }
}

static void *take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    WEFT_ASSERT(memory != NULL);
    memset(memory, 0, (bytes + 63) / 64 * 64);
    return memory;
}

/* Blocks of the types of few bits, which are packed from nothing else: where their f16 numbers are;
 * at_min 0: none. */
static const struct block {
    uint32_t columns, bytes, at_scale, at_min;
} blocks[] = {
    {32, 18, 0, 0}, {32, 20, 0, 2}, {256, 144, 0, 2}, {256, 176, 0, 2}, {256, 210, 208, 0}};

/* `count` blocks of any codes and of moderate scales. */
static void fill_blocks(const struct block *block, size_t count, uint8_t *out) {
    static const uint8_t scale[2] = {0, 0x20}; /* 2^-7 */
    uint64_t seed = 1;
    for (size_t b = 0; b < count; b++, out += block->bytes) {
        for (uint32_t i = 0; i < block->bytes; i++) {
            out[i] = (uint8_t)weft_rand_next(&seed);
        }
        memcpy(out + block->at_scale, scale, sizeof scale);
        if (block->at_min) memcpy(out + block->at_min, scale, sizeof scale);
    }
}

static void fill_floats(float *out, size_t count) {
    uint64_t seed = 1;
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)weft_rand_unit(&seed) - 0.5f;
    }
}

/* A weight of `n` features whose panels are all alike: what is in them costs nothing extra. */
static void *make_weights(enum weft_gemm_kind kind, uint32_t n, uint32_t k) {
    size_t panel = weft_kern_panel_bytes(kind, k), count = (size_t)WEFT_PANEL * k;
    uint8_t *packed = take(weft_kern_packed_bytes(kind, n, k));
    void *source = take(count * sizeof(float)); /* no type has more */
    enum weft_kern_src type = WEFT_SRC_F32;
    if (kind >= WEFT_GEMM_Q4_0_F32) {
        uint32_t quant = (kind - WEFT_GEMM_Q4_0_F32) / 2;
        type = (enum weft_kern_src)(WEFT_SRC_Q4_0 + quant);
        fill_blocks(&blocks[quant], count / blocks[quant].columns, source);
    } else {
        fill_floats(source, count);
    }
    weft_kern_pack(kind, type, source, WEFT_PANEL, k, 0, WEFT_PANEL, packed);
    for (uint32_t p = 1; p < n / WEFT_PANEL; p++) {
        memcpy(packed + p * panel, packed, panel);
    }
    free(source);
    return packed;
}

/* Rows in the form that many of them are multiplied in. */
static void *interleave(void *rows, uint32_t m, size_t row_bytes, uint32_t group) {
    uint8_t *out = take((m + group - 1) / group * group * row_bytes);
    for (uint32_t r = 0; r < m; r++) {
        weft_kern_act_interleave((const uint8_t *)rows + r * row_bytes, row_bytes, r % group, group,
                                 out + (r - r % group) * row_bytes);
    }
    free(rows);
    return out;
}

static struct job make_job(const struct weft_kern_table *table, enum weft_gemm_kind kind,
                           uint32_t m, uint32_t n, uint32_t k, struct weft_kern_segs *segs) {
    float *src = take((size_t)m * k * sizeof *src);
    fill_floats(src, (size_t)m * k);
    size_t row_bytes = weft_kern_act_row_bytes(kind, k);
    void *act = take(m * row_bytes);
    table->act_convert(kind, src, k, m, k, act, row_bytes);
    free(src);
    uint32_t group = m > FEW_ROWS ? table->group_rows : 1;
    if (group > 1) act = interleave(act, m, row_bytes, group);
    weft_kern_segs_one(segs, k);
    struct job job = {.run = run_gemm, .table = table, .kind = kind, .repeats = 1};
    job.args = (struct weft_gemm_args){.act = act,
                                       .act_row_bytes = row_bytes,
                                       .act_group = group,
                                       .packed = make_weights(kind, n, k),
                                       .c = take((size_t)m * n * sizeof(float)),
                                       .ldc = n,
                                       .m = m,
                                       .n = n,
                                       .k = k,
                                       .segs = segs};
    return job;
}

struct options {
    uint64_t threads, rounds, mib;
};

static void parse_options(int argc, char **argv, struct options *o) {
    uint32_t cpus[WEFT_CPUS_MAX];
    *o = (struct options){.threads = weft_cpu_allowed(cpus), .rounds = 7, .mib = 256};
    for (int i = 1; i < argc; i += 2) {
        uint64_t *value = strcmp(argv[i], "--threads") == 0  ? &o->threads
                          : strcmp(argv[i], "--rounds") == 0 ? &o->rounds
                          : strcmp(argv[i], "--mib") == 0    ? &o->mib
                                                             : NULL;
        if (!value || i + 1 == argc || weft_parse_u64(argv[i + 1], 65536, value) || *value == 0) {
            (void)fprintf(stderr, "usage: %s [--threads N] [--rounds N] [--mib N]\n", argv[0]);
            exit(2);
        }
    }
    if (o->threads > THREADS_MAX) o->threads = THREADS_MAX;
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

int main(int argc, char **argv) {
    static struct job jobs[WEFT_GEMM_KIND_COUNT][N_SHAPES];
    static struct weft_kern_segs segs[WEFT_GEMM_KIND_COUNT][N_SHAPES];
    static double rates[WEFT_GEMM_KIND_COUNT][N_SHAPES][ROUNDS_MAX];
    static double shares[WEFT_GEMM_KIND_COUNT][N_SHAPES][ROUNDS_MAX];
    static double read_rates[ROUNDS_MAX], peaks[WEFT_PEAK_COUNT][ROUNDS_MAX];
    const struct weft_kern_table *table;
    weft_machine *machine;
    struct weft_errmsg why = {""};
    struct options o;
    parse_options(argc, argv, &o);
    if (weft_kern_select(&table, &why)) die(&why);
    if (weft_machine_new(table, (uint32_t)o.threads, &machine, &why)) die(&why);
    crew_start((uint32_t)o.threads);
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        for (uint32_t s = 0; s < N_SHAPES; s++) {
            uint32_t n = DIM, k = DIM;
            if (shapes[s] == 1) {
                k = LONG_K;
                size_t panel = weft_kern_panel_bytes((enum weft_gemm_kind)kind, k);
                n = (uint32_t)((o.mib << 20) / panel) * WEFT_PANEL;
            }
            jobs[kind][s] =
                make_job(table, (enum weft_gemm_kind)kind, shapes[s], n, k, &segs[kind][s]);
            (void)measure(&jobs[kind][s]);
        }
    }
    for (uint32_t round = 0; round < o.rounds; round++) {
        struct weft_machine_rates can;
        if (weft_machine_measure(machine, &can, &why)) die(&why);
        read_rates[round] = can.dram_bytes / 1e9;
        for (uint32_t p = 0; p < WEFT_PEAK_COUNT; p++) {
            peaks[p][round] = can.ops[p] / 1e9;
        }
        for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
            for (uint32_t s = 0; s < N_SHAPES; s++) {
                struct job *job = &jobs[kind][s];
                double amount = shapes[s] == 1 ? gbyte(job) : gflop(job);
                job->repeats = shapes[s] == 1 ? 1 : 1 + 256 / shapes[s];
                rates[kind][s][round] = amount / measure(job);
                double peak = peaks[peak_of(job->kind)][round];
                shares[kind][s][round] =
                    rates[kind][s][round] / (shapes[s] == 1 ? read_rates[round] : peak);
            }
        }
    }
    uint32_t n_rounds = (uint32_t)o.rounds;
    (void)printf("%s, %" PRIu64 " threads, %u rounds: reading %.1f GB/s, f32 %.0f, bf16 %.0f, "
                 "int8 %.0f GFLOP/s\n",
                 table->name, o.threads, n_rounds, weft_median(read_rates, n_rounds),
                 weft_median(peaks[WEFT_PEAK_F32], n_rounds),
                 weft_median(peaks[WEFT_PEAK_BF16], n_rounds),
                 weft_median(peaks[WEFT_PEAK_INT8], n_rounds));
    (void)printf("%-10s %18s", "", "m=1 GB/s");
    for (uint32_t s = 1; s < N_SHAPES; s++) {
        (void)printf("    m=%-3u GFLOP/s", shapes[s]);
    }
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        (void)printf("\n%-10s", kind_names[kind]);
        for (uint32_t s = 0; s < N_SHAPES; s++) {
            (void)printf(" %10.1f (%3.0f%%)", weft_median(rates[kind][s], n_rounds),
                         100 * weft_median(shares[kind][s], n_rounds));
        }
    }
    (void)printf("\n");
    crew_stop();
    weft_machine_free(machine);
    return 0;
}
