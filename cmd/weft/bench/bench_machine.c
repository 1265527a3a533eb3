/* Threads are made for each measurement and wait at a mutex until all are there: it costs
 * microseconds, and none is left waiting where a later one cannot be made. */
#include "bench_machine.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/limits.h"

enum {
    READ_BYTES = 128 << 20, /* per thread: several times its share of any last-level cache */
    READ_PASSES = 4,
    /* The prefetchers miss some of the data that a core waits for: asking for it this far ahead
     * reads up to a quarter faster (Zen 5, gcc 12, one core: median 20.2 against 15.9 GB/s). */
    READ_AHEAD = 4096,
    LINE = 64,
    PEAK_NS_MIN = 40000000, /* of a measurement; against it, waking the threads is nothing */
};
/* As wide as every CPU of the architecture loads; memory is far slower than even that. */
typedef uint64_t vec __attribute__((vector_size(16)));

struct member {
    weft_machine *machine;
    pthread_t thread;
    uint32_t cpu;
    uint8_t *memory; /* READ_BYTES, page-aligned; its thread touches it first */
    uint64_t sum;    /* so that the reads have a use */
    double n_ops;
};

struct weft_machine {
    const struct weft_kern_table *table;
    void (*job)(struct member *member); /* written, as the rest, before threads are made */
    enum weft_kern_peak peak;
    uint64_t n_steps[WEFT_PEAK_COUNT];
    pthread_mutex_t gate;
    bool go; /* under the gate */
    uint32_t n_members;
    struct member members[];
};

/* ------------------------------------------------------------------------------ the jobs --- */

static void touch_memory(struct member *member) {
    memset(member->memory, 1, READ_BYTES);
}

static void read_memory(struct member *member) {
    vec sums[LINE / sizeof(vec)] = {{0}};
    for (uint32_t pass = 0; pass < READ_PASSES; pass++) {
        for (size_t at = 0; at < READ_BYTES; at += LINE) {
            const vec *line = (const void *)(member->memory + at);
            __builtin_prefetch(member->memory + (at + READ_AHEAD) % READ_BYTES);
            for (size_t i = 0; i < LINE / sizeof(vec); i++)
                sums[i] += line[i];
        }
    }
    vec sum = sums[0] + sums[1] + sums[2] + sums[3];
    member->sum = sum[0] + sum[1];
}

static void run_peak(struct member *member) {
    const weft_machine *machine = member->machine;
    member->n_ops = machine->table->peak[machine->peak](machine->n_steps[machine->peak]);
}

static void *member_main(void *arg) {
    struct member *member = arg;
    weft_machine *machine = member->machine;
    (void)weft_cpu_pin(member->cpu); /* a refusal costs speed only */
    (void)pthread_mutex_lock(&machine->gate);
    bool go = machine->go;
    (void)pthread_mutex_unlock(&machine->gate);
    if (go) machine->job(member);
    return NULL;
}

/* Runs `job` on all threads. *ns_out: from the moment all may begin until the last is done. */
static weft_err run_job(weft_machine *machine, void (*job)(struct member *member), uint64_t *ns_out,
                        struct weft_errmsg *why) {
    uint32_t n_started = 0;
    int failure = 0;
    machine->job = job;
    (void)pthread_mutex_lock(&machine->gate);
    while (n_started < machine->n_members && !failure) {
        struct member *member = &machine->members[n_started];
        failure = pthread_create(&member->thread, NULL, member_main, member);
        if (!failure) n_started++;
    }
    machine->go = !failure;
    uint64_t begin = weft_now_ns();
    (void)pthread_mutex_unlock(&machine->gate);
    for (uint32_t i = 0; i < n_started; i++)
        (void)pthread_join(machine->members[i].thread, NULL);
    *ns_out = weft_now_ns() - begin;
    if (!failure) return WEFT_OK;
    (void)weft_err_errno(why, failure, "cannot start %u threads to measure the machine",
                         machine->n_members);
    return WEFT_E_NOMEM;
}

/* -------------------------------------------------------------------------- the interface --- */

weft_err weft_machine_new(const struct weft_kern_table *table, uint32_t n_threads,
                          weft_machine **machine_out, struct weft_errmsg *why) {
    uint32_t cpus[WEFT_CPUS_MAX], n_cpus = weft_cpu_allowed(cpus);
    uint64_t ns;
    WEFT_ASSERT(table && n_threads >= 1 && n_threads <= WEFT_THREADS_MAX);
    *machine_out = NULL;
    weft_machine *machine = calloc(1, sizeof *machine + n_threads * sizeof machine->members[0]);
    if (!machine) return WEFT_E_NOMEM;
    machine->table = table;
    (void)pthread_mutex_init(&machine->gate, NULL); /* cannot fail on Linux */
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < n_threads && !err; i++) {
        void *memory =
            mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            err = weft_err_set(why, WEFT_E_NOMEM,
                               "no memory to measure its bandwidth: %u threads read %d MiB each",
                               n_threads, READ_BYTES >> 20);
            break;
        }
        (void)madvise(memory, READ_BYTES, MADV_HUGEPAGE); /* as weights are */
        machine->members[i] =
            (struct member){.machine = machine, .cpu = cpus[i % n_cpus], .memory = memory};
        machine->n_members = i + 1;
    }
    for (uint32_t p = 0; p < WEFT_PEAK_COUNT; p++)
        machine->n_steps[p] = 1 << 16;
    if (!err) err = run_job(machine, touch_memory, &ns, why);
    if (!err) {
        *machine_out = machine;
        machine = NULL;
    }
    weft_machine_free(machine);
    return err;
}

void weft_machine_free(weft_machine *machine) {
    if (!machine) return;
    for (uint32_t i = 0; i < machine->n_members; i++)
        (void)munmap(machine->members[i].memory, READ_BYTES);
    (void)pthread_mutex_destroy(&machine->gate);
    free(machine);
}

/* The first time, the number of steps grows until they take long enough. */
static weft_err measure_peak(weft_machine *machine, enum weft_kern_peak peak, double *ops_out,
                             struct weft_errmsg *why) {
    uint64_t ns = 0;
    machine->peak = peak;
    for (;;) {
        weft_err err = run_job(machine, run_peak, &ns, why);
        if (err) return err;
        if (ns >= PEAK_NS_MIN) break;
        machine->n_steps[peak] *= 2;
    }
    double n_ops = 0;
    for (uint32_t i = 0; i < machine->n_members; i++)
        n_ops += machine->members[i].n_ops;
    *ops_out = n_ops / (double)ns * 1e9;
    return WEFT_OK;
}

weft_err weft_machine_measure(weft_machine *machine, struct weft_machine_rates *rates_out,
                              struct weft_errmsg *why) {
    uint64_t ns = 0;
    *rates_out = (struct weft_machine_rates){0};
    weft_err err = run_job(machine, read_memory, &ns, why);
    if (err) return err;
    rates_out->dram_bytes =
        (double)machine->n_members * READ_BYTES * READ_PASSES / (double)ns * 1e9;
    for (uint32_t p = 0; p < WEFT_PEAK_COUNT && !err; p++)
        err = measure_peak(machine, (enum weft_kern_peak)p, &rates_out->ops[p], why);
    return err;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double weft_median(double *values, uint32_t n) {
    WEFT_ASSERT(n > 0);
    qsort(values, n, sizeof *values, by_size);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
