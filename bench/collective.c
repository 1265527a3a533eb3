/* bench_collective [RANKS] [FLOATS] — what a sum over ranks costs where they come together: threads on
 * a CPU each, which do nothing else. Prints microseconds per all-reduce, the median of many. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "collective/collective.h"

enum { ROUNDS = 2000, WARM = 200, FLOATS_MAX = 1 << 20 };

struct rank {
    weft_coll *coll;
    uint32_t idx, n_floats;
    pthread_t handle;
};

static uint64_t times_ns[ROUNDS];

static int compare(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void *run(void *arg) {
    struct rank *rank = arg;
    struct weft_errmsg why = {""};
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(rank->idx, &cpu);
    (void)pthread_setaffinity_np(pthread_self(), sizeof cpu, &cpu);
    float *x = calloc(rank->n_floats, sizeof *x);
    WEFT_ASSERT(x && !weft_coll_join(rank->coll, rank->idx, &why));
    for (uint32_t i = 0; i < WARM + ROUNDS; i++) {
        uint64_t begin_ns = weft_now_ns();
        weft_err err = weft_coll_all_reduce(rank->coll, rank->idx, x, rank->n_floats, 0xff, &why);
        WEFT_ASSERT(!err);
        if (rank->idx == 0 && i >= WARM) times_ns[i - WARM] = weft_now_ns() - begin_ns;
    }
    free(x);
    return NULL;
}

int main(int argc, char **argv) {
    struct weft_errmsg why = {""};
    struct rank ranks[WEFT_COLL_RANKS_MAX];
    long n_ranks = argc > 1 ? strtol(argv[1], NULL, 10) : 2;
    long n_floats = argc > 2 ? strtol(argv[2], NULL, 10) : 2048;
    if (n_ranks < 1 || n_ranks > WEFT_COLL_RANKS_MAX || n_floats < 1 || n_floats > FLOATS_MAX) {
        fputs("usage: bench_collective [RANKS] [FLOATS]\n", stderr);
        return 2;
    }
    int fd = -1;
    weft_coll *coll = NULL;
    if (weft_coll_create((uint32_t)n_ranks, &fd, &why) || weft_coll_open(fd, 0, &coll, &why) ||
        weft_coll_reserve(coll, (size_t)n_floats * sizeof(float), 64, &why)) {
        fprintf(stderr, "bench_collective: %s\n", why.text);
        return 1;
    }
    for (uint32_t i = 0; i < (uint32_t)n_ranks; i++) {
        ranks[i] = (struct rank){.coll = coll, .idx = i, .n_floats = (uint32_t)n_floats};
        int failed = pthread_create(&ranks[i].handle, NULL, run, &ranks[i]);
        WEFT_ASSERT(!failed);
    }
    for (uint32_t i = 0; i < (uint32_t)n_ranks; i++)
        (void)pthread_join(ranks[i].handle, NULL);
    qsort(times_ns, ROUNDS, sizeof *times_ns, compare);
    const uint32_t middle = ROUNDS / 2, late = ROUNDS - ROUNDS / 100;
    printf("%ld ranks, %ld floats: %.2f us, p99 %.2f us\n", n_ranks, n_floats,
           (double)times_ns[middle] / 1000, (double)times_ns[late] / 1000);
    weft_coll_close(coll);
    (void)close(fd);
    return 0;
}
