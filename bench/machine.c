#include "bench/machine.h"

uint64_t bench_read(const void *memory, size_t bytes) {
    const uint64_t *words = memory;
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < bytes / sizeof *words; i += 8) {
        for (size_t l = 0; l < 8; l++) {
            sums[l] ^= words[i + l];
        }
    }
    return sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
}

/* Twelve chains hide a latency of six cycles on two pipes. They are single variables, as an array
 * would stay in memory; they start apart, or they would be one; and the empty asm hides from the
 * compiler that the factors never change. */
#define EACH_CHAIN(do_it)                                                                          \
    do_it(0) do_it(1) do_it(2) do_it(3) do_it(4) do_it(5) do_it(6) do_it(7) do_it(8) do_it(9)      \
        do_it(10) do_it(11)
#define DECLARE(i) vec s##i = {i};
#define STEP(i) s##i = a * b + s##i;
#define USE(i) __asm__ volatile("" : "+x"(s##i));

#define DEFINE_FMA(name, attribute, lanes)                                                         \
    attribute static double name(uint64_t steps) {                                                 \
        typedef float vec __attribute__((vector_size((lanes)*4)));                                 \
        vec a = {0}, b = {0};                                                                      \
        EACH_CHAIN(DECLARE)                                                                        \
        for (uint64_t i = 0; i < steps; i++) {                                                     \
            __asm__ volatile("" : "+x"(a), "+x"(b));                                               \
            EACH_CHAIN(STEP)                                                                       \
        }                                                                                          \
        EACH_CHAIN(USE)                                                                            \
        return (double)steps * 12 * 2 * (lanes);                                                   \
    }

#if defined(__x86_64__)
DEFINE_FMA(fma_avx512, __attribute__((target("avx512f,fma"))), 16)
DEFINE_FMA(fma_avx2, __attribute__((target("avx2,fma"))), 8)
DEFINE_FMA(fma_scalar, , 4)

double bench_fma(enum weft_isa isa, uint64_t steps) {
    if (isa == WEFT_ISA_AVX512) return fma_avx512(steps);
    return isa == WEFT_ISA_AVX2 ? fma_avx2(steps) : fma_scalar(steps);
}
#else
static double multiply_add(uint64_t steps) {
    volatile float sum = 0;
    for (uint64_t s = 0; s < steps; s++) {
        sum = sum * 0.5f + 1.0f;
    }
    return (double)steps * 2;
}

double bench_fma(enum weft_isa isa, uint64_t steps) {
    (void)isa;
    return multiply_add(steps);
}
#endif
