/* kernels/gemm_f32_neon — few rows of f32 times weights of 32 or 16 bits, which are widened in
 * registers. Both of a pair of bf16 are an f32 once they are in the high half of 32 bits. */
#ifndef WEFT_KERNELS_GEMM_F32_NEON_H
#define WEFT_KERNELS_GEMM_F32_NEON_H

#include "gemm_neon.h"

enum weights_form { FORM_F32, FORM_F16, FORM_BF16 };

ALWAYS_INLINE struct quarters load_bf16(const uint8_t *panel, size_t k) {
    const uint32_t *pairs = (const void *)(panel + k / 2 * 64);
    struct quarters w;
    for (uint32_t i = 0; i < QUARTERS; i++) {
        uint32x4_t both = vld1q_u32(pairs + (size_t)i * LANES);
        uint32x4_t bits = k % 2 ? vandq_u32(both, vdupq_n_u32(0xffff0000u)) : vshlq_n_u32(both, 16);
        w.v[i] = vreinterpretq_f32_u32(bits);
    }
    return w;
}

/* Element k of a panel. */
ALWAYS_INLINE struct quarters load_weights(enum weights_form form, const uint8_t *panel, size_t k) {
    if (form == FORM_F16) return load_halves(panel + k * 32);
    if (form == FORM_BF16) return load_bf16(panel, k);
    return load_quarters((const void *)(panel + k * 64));
}

typedef struct quarters few_sums[FEW_MAX][FEW_PANELS];

ALWAYS_INLINE void load_few(const struct tile *t, uint32_t rows, uint32_t panels, few_sums sum) {
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            sum[r][p] = load_quarters(t->from + (r * panels + p) * WEFT_PANEL);
        }
    }
}

ALWAYS_INLINE void store_few(const struct tile *t, uint32_t rows, uint32_t panels, few_sums sum) {
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            store_quarters(sum[r][p], t->acc + (r * panels + p) * WEFT_PANEL);
        }
    }
}

/* Element k times what stands in a lane of each row's activations. */
ALWAYS_INLINE void add_few(const struct tile *t, uint32_t rows, uint32_t panels,
                           enum weights_form form, size_t k, const float32x4_t *a, uint32_t lane,
                           few_sums sum) {
    for (uint32_t p = 0; p < panels; p++) {
        struct quarters w = load_weights(form, t->panels[p], k);
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t i = 0; i < QUARTERS; i++) {
                sum[r][p].v[i] = fma_lane(sum[r][p].v[i], w.v[i], a[r], lane);
            }
        }
    }
}

ALWAYS_INLINE void tile_few(const struct tile *args, uint32_t rows, uint32_t panels,
                            enum weights_form form) {
    const struct tile t = *args; /* a copy: the stores into acc might alias the original */
    const struct act_words act = act_words_at(&t, 1, t.k_begin);
    const size_t bytes = form == FORM_F32 ? 64 : 32, n_fours = t.count / LANES * LANES;
    float32x4_t a[FEW_MAX];
    few_sums sum;
    load_few(&t, rows, panels, sum);
    for (size_t k = 0; k < n_fours; k += LANES) {
        for (uint32_t r = 0; r < rows; r++) {
            a[r] = vld1q_f32(act_word(act, r, k));
        }
        for (uint32_t lane = 0; lane < LANES; lane++) {
            if (lane % (64 / bytes) == 0) prefetch_either(&t, panels, 1, k, (k + lane) * bytes);
            add_few(&t, rows, panels, form, k + lane, a, lane, sum);
        }
    }
    for (size_t k = n_fours; k < t.count; k++) {
        for (uint32_t r = 0; r < rows; r++) {
            a[r] = vld1q_dup_f32(act_word(act, r, k));
        }
        add_few(&t, rows, panels, form, k, a, 0, sum);
    }
    store_few(&t, rows, panels, sum);
}

#endif
