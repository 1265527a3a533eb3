/* base/minmax — the smaller and the larger of two numbers, and multiples. No macros: each argument
 * is evaluated once, and has one type. */
#ifndef WEFT_BASE_MINMAX_H
#define WEFT_BASE_MINMAX_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t weft_min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static inline uint32_t weft_max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}
static inline uint64_t weft_min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static inline uint64_t weft_max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}
static inline size_t weft_min_size(size_t a, size_t b) {
    return a < b ? a : b;
}
static inline size_t weft_max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

/* The least multiple of `multiple` (not 0) that is at least `value`. */
static inline size_t weft_round_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/* How many pieces of `per_piece` (not 0) hold `count`; their sum fits 32 bits. */
static inline uint32_t weft_div_up_u32(uint32_t count, uint32_t per_piece) {
    return (count + per_piece - 1) / per_piece;
}

#endif
