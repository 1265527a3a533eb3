/* bench_machine — the machine's peaks: the ceilings that weft bench and bench_gemm compare
 * their rates with.
 *
 * Every measurement runs on all threads at once, each on a CPU of its own where there are enough,
 * and takes some tens of milliseconds. */
#ifndef WEFT_CMD_WEFT_BENCH_MACHINE_H
#define WEFT_CMD_WEFT_BENCH_MACHINE_H

#include <stdint.h>

#include "base/err.h"
#include "kernels/kernels.h"

typedef struct weft_machine weft_machine;

struct weft_machine_rates {
    double dram_bytes;           /* read per second */
    double ops[WEFT_PEAK_COUNT]; /* per second, two per multiply-add */
};

/* Takes the memory that is to be read, 128 MiB per thread. NOMEM: there is not so much. The
 * caller's until weft_machine_free, which accepts NULL. */
WEFT_MUST_CHECK weft_err weft_machine_new(const struct weft_kern_table *table, uint32_t n_threads,
                                          weft_machine **machine_out, struct weft_errmsg *why);
void weft_machine_free(weft_machine *machine);

/* Measures all of it. NOMEM: a thread could not be started. */
WEFT_MUST_CHECK weft_err weft_machine_measure(weft_machine *machine,
                                              struct weft_machine_rates *rates_out,
                                              struct weft_errmsg *why);

/* The middle one of `n` >= 1 values, which are sorted on the way; for an even number
 * the mean of two. */
double weft_median(double *values, uint32_t n);

#endif
