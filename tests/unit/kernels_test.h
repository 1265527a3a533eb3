/* Shared by the kernel tests: the tables to run, random numbers of every kind, aligned memory. */
#ifndef WEFT_TEST_KERNELS_H
#define WEFT_TEST_KERNELS_H

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rand.h"
#include "inside/kernels/act_order.h"
#include "inside/kernels/fp8_nf4.h"
#include "inside/kernels/kern_internal.h"
#include "inside/kernels/quant.h"
#include "kernels/kernels.h"

enum {
    TABLES_MAX = 9,
    FLOAT_KINDS = WEFT_GEMM_Q8_0_BF16, /* those before take weights from any source */
};

/* NEON, and without each of its extensions in turn. */
static inline uint32_t neon_tables(struct wefti_kern_features features,
                                   struct weft_kern_table *tables) {
    uint32_t n = 0;
    if (features.neon) wefti_kern_table_build(&tables[n++], WEFT_ISA_NEON, features);
    if (features.i8mm || features.bf16) {
        features.i8mm = features.bf16 = false;
        wefti_kern_table_build(&tables[n++], WEFT_ISA_NEON, features);
    }
    if (features.dotprod) {
        features.dotprod = false;
        wefti_kern_table_build(&tables[n++], WEFT_ISA_NEON, features);
    }
    return n;
}

/* Every table this CPU can run: one per ISA, and AVX-512 and NEON also without each of their
 * extensions, as they are on an older CPU. */
static inline uint32_t all_tables(struct weft_kern_table tables[TABLES_MAX]) {
    struct wefti_kern_features features = wefti_kern_features_detect();
    uint32_t n = 0;
    wefti_kern_table_build(&tables[n++], WEFT_ISA_SCALAR, features);
    if (features.avx2) wefti_kern_table_build(&tables[n++], WEFT_ISA_AVX2, features);
    if (features.avx2vnni) wefti_kern_table_build(&tables[n++], WEFT_ISA_AVX2VNNI, features);
    if (features.avx512) {
        wefti_kern_table_build(&tables[n++], WEFT_ISA_AVX512, features);
        if (features.bf16) { /* as on a CPU where it is fast, or not there */
            if (!features.slow_bf16) features.bf16 = false;
            features.slow_bf16 = false;
            wefti_kern_table_build(&tables[n++], WEFT_ISA_AVX512, features);
        }
        features.vnni = features.bf16 = false;
        wefti_kern_table_build(&tables[n++], WEFT_ISA_AVX512, features);
    }
    const struct weft_kern_table *amx = weft_kern_table_for(WEFT_ISA_AMX);
    if (amx) tables[n++] = *amx;
    return n + neon_tables(features, tables + n);
}

/* Exactly `bytes`, so that a sanitizer sees the first byte read past them; NaN until written. */
static inline void *take(size_t bytes) {
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 64, bytes), 0);
    memset(memory, 0xff, bytes);
    return memory;
}

/* Whether a kind's activations are rows of Q8, or of Q8_SUMS. */
static inline bool takes_q8(enum weft_gemm_kind kind) {
    enum weft_kern_act act = weft_kern_act_of(kind);
    return act == WEFT_ACT_Q8 || act == WEFT_ACT_Q8_SUMS;
}

/* Whether another kind's products are the same functions: one of them is enough. */
static inline bool is_alike(enum weft_gemm_kind kind) {
    return quant_lies_as(weights_of(kind)) != weights_of(kind);
}

/* Whether a table has products of a kind that are not another kind's. */
static inline bool has_own(const struct weft_kern_table *table, uint32_t kind) {
    return table->gemm[kind] && !is_alike((enum weft_gemm_kind)kind);
}

enum flavour { PLAIN, WIDE, TINY, HUGE_ONES, SPARSE, FLAVOURS };

/* PLAIN: around 1. WIDE: exponents -20 to 15, as f16 has. TINY: subnormals. HUGE_ONES: up to 1e18,
 * so that products stay finite. SPARSE: many zeros of either sign. */
static inline float some_float(uint64_t *seed, enum flavour flavour) {
    float unit = (float)(weft_rand_unit(seed) * 2.0 - 1.0);
    switch (flavour) {
    case WIDE:
        return ldexpf(unit, (int)weft_rand_below(seed, 36) - 20);
    case TINY:
        return ldexpf(unit, -126 - (int)weft_rand_below(seed, 23));
    case HUGE_ONES:
        return unit * 1e18f;
    case SPARSE:
        return weft_rand_below(seed, 3) == 0 ? unit : copysignf(0.0f, unit);
    default:
        return unit;
    }
}

static inline void fill(uint64_t *seed, enum flavour flavour, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        x[i] = some_float(seed, flavour);
    }
}

/* Exactly one number in lo..hi. */
static inline uint32_t between(uint64_t *seed, uint32_t lo, uint32_t hi) {
    return lo + weft_rand_below(seed, hi - lo + 1);
}

/* A number of f16 with this sign, of magnitude 2^-8 to 2^-4. */
static inline uint16_t some_scale(uint64_t *seed, bool negative) {
    return (uint16_t)((negative ? 0x8000u : 0) | (7 + weft_rand_below(seed, 4)) << 10 |
                      weft_rand_below(seed, 1024));
}

/* The highest nibbles of the last four words. */
static inline void set_scale_iq1_m(uint8_t *group, uint16_t scale) {
    for (uint32_t i = 0; i < 4; i++) {
        uint8_t *high = group + 48 + 2 * (size_t)i + 1;
        *high = (uint8_t)((*high & 15u) | ((uint32_t)scale >> 4 * i & 15u) << 4);
    }
}

static inline void set_scales(enum weft_dtype dtype, uint8_t *group, uint16_t scale, uint16_t min) {
    static const uint8_t at[WEFT_DT_COUNT] = {[WEFT_DT_Q6_K] = 208,
                                              [WEFT_DT_Q2_K] = 80,
                                              [WEFT_DT_Q3_K] = 108,
                                              [WEFT_DT_TQ2_0] = 64,
                                              [WEFT_DT_TQ1_0] =
                                                  52}; /* the others begin with them */
    const struct quant_layout *q = quant_layout_of(dtype);
    if (q->scales == QUANT_UE4M3) return; /* any byte is small enough */
    if (q->scales == QUANT_UE4M3_F32) {
        const float super = f16_to_f32(scale);
        memcpy(group, &super, sizeof super);
        return;
    }
    if (q->scales == QUANT_E8M0) {
        group[0] = (uint8_t)(112 + scale % 32);
        return;
    }
    if (dtype == WEFT_DT_IQ1_M) {
        set_scale_iq1_m(group, scale);
        return;
    }
    memcpy(group + at[dtype], &scale, 2);
    if (q->has_zeros)
        group[at[dtype] + 2] = (uint8_t)(min % 17);
    else if (q->has_min)
        memcpy(group + at[dtype] + 2, &min, 2);
}

/* `n` groups as a file has them: any codes and small scales, all of moderate size. */
static inline void fill_groups(uint64_t *seed, enum weft_dtype dtype, uint8_t *out, size_t n) {
    const struct quant_layout *q = quant_layout_of(dtype);
    const uint32_t block_bytes = weft_dtype_block_bytes(dtype);
    for (size_t g = 0; g < n; g++, out += block_bytes) {
        for (uint32_t i = 0; i < block_bytes; i++) {
            out[i] = (uint8_t)weft_rand_next(seed);
        }
        if (weft_rand_below(seed, 8) == 0) memset(out, 0xff, block_bytes);
        uint16_t scale = some_scale(seed, weft_rand_below(seed, 2));
        uint16_t min = some_scale(seed, !q->is_super && weft_rand_below(seed, 2));
        set_scales(dtype, out, scale, min);
    }
}

/* Rows of FP8 or NF4: any codes but NaN, and scales of moderate size. */
static inline void fill_fp8_nf4(uint64_t *seed, const struct fp8_nf4 *c, uint8_t *out,
                                size_t n_rows, uint32_t k) {
    for (size_t row = 0; row < n_rows; row++) {
        for (uint32_t k0 = 0; k0 < k; k0 += c->group) {
            float scale = ldexpf((float)weft_rand_unit(seed) + 1, -6);
            memcpy(out, &scale, sizeof scale);
            out += sizeof scale;
            for (uint32_t i = 0; i < weft_min_u32(c->group, k - k0) / c->per_byte; i++) {
                uint8_t code = (uint8_t)weft_rand_next(seed);
                bool is_nan = c->per_byte == 1 && (code & 0x7f) == 0x7f;
                *out++ = is_nan ? 0x7e : code;
            }
        }
    }
}

/* Rows of 4 bits with columns in groups as they come, the same in all rows. */
static inline void fill_act_order(uint64_t *seed, const struct act_order *o, uint8_t *out,
                                  size_t n_rows, uint32_t k) {
    const size_t n_groups = order_groups(k), row_bytes = order_row_bytes(o, k);
    for (size_t row = 0; row < n_rows; row++, out += row_bytes) {
        uint8_t *zeros = out + n_groups * 2, *groups = zeros + n_groups;
        for (size_t g = 0; g < n_groups; g++) {
            uint16_t scale = some_scale(seed, weft_rand_below(seed, 2));
            memcpy(out + g * 2, &scale, sizeof scale);
            zeros[g] = (uint8_t)weft_rand_below(seed, o->per_byte == 1 ? 256 : 16);
        }
        for (uint32_t i = 0; i < k; i++) {
            uint16_t group = (uint16_t)weft_rand_below(seed, (uint32_t)n_groups);
            memcpy(groups + (size_t)i * 2, &group, sizeof group);
        }
        if (row > 0) memcpy(groups, groups - row * row_bytes, (size_t)k * 2);
        for (uint32_t i = 0; i < k / o->per_byte; i++) {
            groups[(size_t)k * 2 + i] = (uint8_t)weft_rand_next(seed);
        }
    }
}

static inline bool same_bits(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

#endif
