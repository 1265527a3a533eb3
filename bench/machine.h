/* bench/machine — what the machine can do at most, as the yardstick beside which kernels are
 * measured. */
#ifndef WEFT_BENCH_MACHINE_H
#define WEFT_BENCH_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* Reads all of `memory` (64-byte aligned, `bytes` a multiple of 64); the result keeps it honest. */
uint64_t bench_read(const void *memory, size_t bytes);

/* Runs `steps` steps of independent f32 fused multiply-adds in the registers of `isa`; returns the
 * number of floating-point operations done. */
double bench_fma(enum weft_isa isa, uint64_t steps);

#endif
