/* kernels/convert — 16-bit floats in portable C. Every ISA rounds activations, cache entries and
 * weights to the same bits, so the hardware's bf16 conversion (which flushes subnormals) is not
 * used. F16C gives the same as f32_to_f16, NaN payloads too; ISA files may use either. */
#ifndef WEFT_KERNELS_CONVERT_H
#define WEFT_KERNELS_CONVERT_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float f32_from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline float bf16_to_f32(uint16_t h) {
    return f32_from_bits((uint32_t)h << 16);
}

/* Nearest, ties to even; NaN stays NaN (made quiet), overflow goes to infinity. */
static inline uint16_t f32_to_bf16(float f) {
    uint32_t bits = f32_bits(f);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
    if (exponent == 31) {
        uint32_t quiet = mantissa ? 0x400000u : 0u;
        return f32_from_bits(sign | 0x7f800000u | quiet | mantissa << 13);
    }
    if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24 is exact */
        return f32_from_bits(sign | f32_bits((float)mantissa * 0x1p-24f));
    }
    return f32_from_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
}

/* Nearest, ties to even; 65520 and above go to infinity. */
static inline uint16_t f32_to_f16(float f) {
    uint32_t bits = f32_bits(f), magnitude = bits & 0x7fffffffu, half;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x477ff000u) {
        half = 0x7c00u;
    } else if (magnitude < 0x38800000u) {
        /* Below 2^-14: one ulp of 0.5 is 2^-24, the subnormal step, so this addition rounds right.
         */
        half = f32_bits(f32_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    } else {
        half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    return (uint16_t)(half | ((bits >> 16) & 0x8000u));
}

#endif
