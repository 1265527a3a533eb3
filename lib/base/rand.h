/* base/rand — seeds and test data. Sampling has its own counter-based generator (engine). */
#ifndef WEFT_BASE_RAND_H
#define WEFT_BASE_RAND_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* One step of splitmix64 (Steele, Lea and Flood 2014): any 64-bit state, good for tests. */
static inline uint64_t weft_rand_next(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [0, n), n >= 1; the bias of the multiply-shift is below 2^-32 for test-sized n. */
static inline uint32_t weft_rand_below(uint64_t *state, uint32_t n) {
    return (uint32_t)(((weft_rand_next(state) >> 32) * n) >> 32);
}

/* Uniform in [0, 1). */
static inline double weft_rand_unit(uint64_t *state) {
    return (double)(weft_rand_next(state) >> 11) * 0x1p-53;
}

/* From the kernel (getrandom). Never fails on Linux >= 3.17 once booted; aborts otherwise. */
uint64_t weft_rand_seed(void);

/* The seed of a property test: WEFT_SEED from the environment, else a fresh one; prints it. */
uint64_t weft_rand_test_seed(void);

#endif
