/* crew — pinned threads that run one product after the other, as a worker's do: all of them meet
 * after each. The caller only waits. One crew per process. */
#ifndef WEFT_BENCH_CREW_H
#define WEFT_BENCH_CREW_H

#include <stdint.h>

enum { BENCH_THREADS_MAX = 64 };

/* A thread's part of the repeat-th product. */
typedef void (*bench_run)(const void *job, uint32_t repeat, uint32_t part, uint32_t n_parts);

void bench_crew_start(uint32_t n_threads); /* 1..BENCH_THREADS_MAX */
void bench_crew_stop(void);

/* Seconds per repeat. */
double bench_crew_measure(bench_run run, const void *job, uint32_t n_repeats);

#endif
