/* kernels/peak — the loop that reaches an ISA's peak: multiply-adds in registers.
 *
 * Twelve chains cover two pipes of up to six cycles latency each; with 32 registers there are 16,
 * as vdpbf16ps of Zen 5 is 5 % short of its peak with 12. They are single variables, as an array
 * would live in memory. Sums stay finite after any number of steps: they reach a point where adding
 * changes nothing, or wrap around. */
#ifndef WEFT_KERNELS_PEAK_H
#define WEFT_KERNELS_PEAK_H

#include "kern_internal.h"

#if defined(__AVX512F__) || defined(__aarch64__)
#define PEAK_CHAINS 16
#define PEAK_EACH(DO, step)                                                                        \
    PEAK_TWELVE(DO, step) DO(step, 12) DO(step, 13) DO(step, 14) DO(step, 15)
#else
#define PEAK_CHAINS 12
#define PEAK_EACH(DO, step) PEAK_TWELVE(DO, step)
#endif
#define PEAK_TWELVE(DO, step)                                                                      \
    DO(step, 0)                                                                                    \
    DO(step, 1)                                                                                    \
    DO(step, 2)                                                                                    \
    DO(step, 3)                                                                                    \
    DO(step, 4)                                                                                    \
    DO(step, 5)                                                                                    \
    DO(step, 6)                                                                                    \
    DO(step, 7)                                                                                    \
    DO(step, 8)                                                                                    \
    DO(step, 9)                                                                                    \
    DO(step, 10)                                                                                   \
    DO(step, 11)

/* No instructions, but to the compiler `x` is read and changed: so it cannot leave work on it out,
 * move it out of the loop, or share it between chains. */
#if defined(__x86_64__)
#define PEAK_TOUCH(x) __asm__ volatile("" : "+v"(x));
#elif defined(__aarch64__)
#define PEAK_TOUCH(x) __asm__ volatile("" : "+w"(x));
#else
#define PEAK_TOUCH(x) __asm__ volatile("" : "+m"(x));
#endif

#define PEAK_START_CHAIN(vec, i)                                                                   \
    vec s##i = {0};                                                                                \
    PEAK_TOUCH(s##i)
#define PEAK_STEP_CHAIN(step, i) PEAK_TOUCH(a) s##i = step(s##i, a, b);
#define PEAK_END_CHAIN(step, i) PEAK_TOUCH(s##i)

/* Defines the function `name`. `step(sum, a, b)` is the chain's next value, `ops` operations away;
 * `factor_a` and `factor_b` are its first factors. */
#define PEAK_DEFINE(name, vec, step, ops, factor_a, factor_b)                                      \
    static double name(uint64_t steps) {                                                           \
        vec a = (factor_a), b = (factor_b);                                                        \
        PEAK_EACH(PEAK_START_CHAIN, vec)                                                           \
        PEAK_TOUCH(b)                                                                              \
        for (uint64_t i = 0; i < steps; i++) {                                                     \
            PEAK_EACH(PEAK_STEP_CHAIN, step)                                                       \
        }                                                                                          \
        PEAK_EACH(PEAK_END_CHAIN, step)                                                            \
        return (double)steps * PEAK_CHAINS * (ops);                                                \
    }

#endif
