/* kernels/gemm_i8_neon — int8 weights of one scale per feature: a group of 256 columns is one run of dot
 * products, whose sums meet those of f32, in memory, only between groups. */
#ifndef WEFT_KERNELS_GEMM_I8_NEON_H
#define WEFT_KERNELS_GEMM_I8_NEON_H

#include "gemm_dot_neon.h"

/* Sums of one group of up to 256 columns; a panel ends in its scales. */
ALWAYS_INLINE void tile_i8(const struct tile *args, uint32_t rows, uint32_t panels) {
    const struct tile t = *args;
    const uint32_t group = t.k_begin / I8_GROUP, n_words = i8_columns(t.k) / 4;
    const struct act_words acts = act_words_at(&t, 1, t.k_begin / 4);
    const struct act_words a_scales = act_words_at(&t, 1, n_words + group);
    const struct act_words offsets = act_words_at(&t, 1, n_words + i8_groups(t.k) + group);
    const uint32_t n_quads = i8_columns(t.count) / 4;
    const uint8x16_t high_bit = vdupq_n_u8(MEETS_SIGNED ? CODE_ZERO : 0);
    int32x4_t dot[FEW_MAX][FEW_PANELS][QUARTERS];
    for (uint32_t r = 0; r < rows; r++) {
        const int32x4_t first = vdupq_n_s32(MEETS_SIGNED ? 0 : int_at(offsets, r, 0));
        for (uint32_t i = 0; i < panels * QUARTERS; i++) {
            dot[r][i / QUARTERS][i % QUARTERS] = first;
        }
    }
    for (uint32_t quad = 0; quad < n_quads; quad += LANES) {
        const uint32_t n = weft_min_u32(LANES, n_quads - quad);
        int8x16_t a[FEW_MAX];
        for (uint32_t r = 0; r < rows; r++) { /* scales may follow; they meet no weights */
            a[r] = vld1q_s8(act_word(acts, r, quad));
        }
        for (uint32_t i = 0; i < panels * QUARTERS; i++) {
            const uint8_t *at = t.panels[i / QUARTERS] + (size_t)quad * I8_QUAD_BYTES +
                                (size_t)(i % QUARTERS) * QUARTER_BYTES;
            uint8x16_t w[LANES];
            for (uint32_t j = 0; j < LANES; j++) {
                w[j] = j < n ? veorq_u8(vld1q_u8(at + (size_t)j * I8_QUAD_BYTES), high_bit)
                             : vdupq_n_u8(0);
            }
            for (uint32_t r = 0; r < rows; r++) {
                int32x4_t *to = &dot[r][i / QUARTERS][i % QUARTERS];
                *to = dot_quads(*to, w, (struct quads){&a[r], false, 0}, 0, LANES);
            }
        }
        prefetch_either(&t, panels, 1, quad, (size_t)quad * I8_QUAD_BYTES);
        for (uint32_t j = 1; j < LANES; j++) {
            prefetch_either(&t, panels, 1, quad, (size_t)(quad + j) * I8_QUAD_BYTES);
        }
    }
    const size_t scales_at = (i8_columns(t.k) - (size_t)t.k_begin) * WEFT_PANEL;
    for (uint32_t i = 0; i < panels * QUARTERS; i++) {
        const float *scales = (const void *)(t.panels[i / QUARTERS] + scales_at);
        float32x4_t scale = vld1q_f32(scales + (size_t)(i % QUARTERS) * LANES);
        for (uint32_t r = 0; r < rows; r++) {
            const size_t at = (size_t)r * panels * WEFT_PANEL + (size_t)i * LANES;
            float32x4_t by = vmulq_n_f32(scale, float_at(a_scales, r, 0));
            float32x4_t exact = vcvtq_f32_s32(dot[r][i / QUARTERS][i % QUARTERS]);
            vst1q_f32(t.acc + at, vfmaq_f32(vld1q_f32(t.from + at), exact, by));
        }
    }
}

/* Bytes of codes in the buffer, of whole steps; scales follow. */
ALWAYS_INLINE size_t i8_wide_bytes(uint32_t count) {
    return (size_t)(count + 7) / 8 * STEP_BYTES;
}

static void take_apart_i8(const uint8_t *panel, uint32_t count, float *out) {
    const uint32_t n_quads = (count + 3) / 4;
    const uint8x16_t high_bit = vdupq_n_u8(CODE_ZERO);
    uint8_t *to = (void *)out;
    for (uint32_t quad = 0; quad < n_quads; quad += 2, to += STEP_BYTES) {
        for (uint32_t v = 0; v < QUARTERS; v++) {
            uint8x16_t w = veorq_u8(load_line(panel, quad, v), high_bit), w2 = vdupq_n_u8(0);
            if (quad + 1 < n_quads) w2 = veorq_u8(load_line(panel, quad + 1, v), high_bit);
#ifdef __ARM_FEATURE_MATMUL_INT8
            store_pairs(w, w2, to + (size_t)v * 32);
#else
            vst1q_u8(to + (size_t)v * 16, w);
            vst1q_u8(to + 64 + (size_t)v * 16, w2);
#endif
        }
    }
}

static void append_scales(float *out, uint32_t count, const float *scales) {
    store_quarters(load_quarters(scales), out + i8_wide_bytes(count) / sizeof *out);
}

/* Scales of 6 interleaved rows' group. */
ALWAYS_INLINE struct part_f32 load_i8_scales(const struct tile *t, uint32_t first, uint32_t rows) {
    const uint32_t group = t->k_begin / I8_GROUP, n_words = i8_columns(t->k) / 4;
    return load_part_f32(many_word(t, first, (size_t)n_words + group), rows);
}

#ifdef __ARM_FEATURE_MATMUL_INT8
ALWAYS_INLINE void part_i8(const struct tile *args, uint32_t first, uint32_t rows) {
    const struct tile t = *args;
    const uint32_t n_steps = (t.count + 7) / 8, n_pairs = (rows + 1) / 2;
    const float *scales = (const void *)(t.panels[0] + i8_wide_bytes(t.count));
    int32x4_t dot[PART_PAIRS][PAIRS];
    for (uint32_t i = 0; i < n_pairs * PAIRS; i++) {
        dot[i / PAIRS][i % PAIRS] = vdupq_n_s32(0);
    }
    for (uint32_t step = 0; step < n_steps; step++) {
        uint32x4_t a[PART_PAIRS];
        if (first == 0) prefetch_step(&t, 1, step);
        load_row_pairs(many_word(&t, first, (size_t)t.k_begin / 4 + step * 2), rows, a);
        for (uint32_t j = 0; j < PAIRS; j++) {
            const uint8_t *at = t.panels[0] + (size_t)step * STEP_BYTES + (size_t)j * 16;
            int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(at));
            for (uint32_t i = 0; i < n_pairs; i++) {
                dot[i][j] = vmmlaq_s32(dot[i][j], vreinterpretq_s8_u32(a[i]), w);
            }
        }
    }
    const struct part_f32 by = load_i8_scales(&t, first, rows);
    pair_sums sum;
    load_pair_sums(t.from + (size_t)first * WEFT_PANEL, rows, sum);
    for (uint32_t j = 0; j < PAIRS; j++) {
        float32x4_t scale = load_twice(scales + (size_t)j * 2);
        for (uint32_t i = 0; i < n_pairs; i++) {
            float32x4_t both = vmulq_f32(scale, each_twice(by.v[i / 2], i % 2));
            sum[i][j] = vfmaq_f32(sum[i][j], vcvtq_f32_s32(dot[i][j]), both);
        }
    }
    store_pair_sums(sum, rows, t.acc + (size_t)first * WEFT_PANEL);
}
#else
ALWAYS_INLINE void part_i8(const struct tile *args, uint32_t first, uint32_t rows) {
    const struct tile t = *args;
    const uint32_t n_steps = (t.count + 7) / 8;
    const float *scales = (const void *)(t.panels[0] + i8_wide_bytes(t.count));
    int32x4_t dot[PART_ROWS][QUARTERS];
    for (uint32_t i = 0; i < rows * QUARTERS; i++) {
        dot[i / QUARTERS][i % QUARTERS] = vdupq_n_s32(0);
    }
    for (uint32_t step = 0; step < n_steps; step++) {
        int8x16_t a[2][2]; /* rows 0..3 of two quads, and rows 4 and 5 */
        if (first == 0) prefetch_step(&t, 1, step);
        for (uint32_t i = 0; i < 2; i++) {
            const uint8_t *at = many_word(&t, first, (size_t)t.k_begin / 4 + step * 2 + i);
            struct part_f32 words = load_part_f32(at, rows);
            a[0][i] = vreinterpretq_s8_f32(words.v[0]);
            a[1][i] = vreinterpretq_s8_f32(words.v[1]);
        }
        for (uint32_t v = 0; v < QUARTERS; v++) {
            const uint8_t *at = t.panels[0] + (size_t)step * STEP_BYTES + (size_t)v * 16;
            const uint8x16_t w[2] = {vld1q_u8(at), vld1q_u8(at + 64)};
            for (uint32_t r = 0; r < rows; r++) {
                dot[r][v] =
                    dot_quads(dot[r][v], w, (struct quads){a[r / LANES], true, r % LANES}, 0, 2);
            }
        }
    }
    const struct part_f32 by = load_i8_scales(&t, first, rows);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t v = 0; v < QUARTERS; v++) {
            const size_t at = (size_t)(first + r) * WEFT_PANEL + (size_t)v * LANES;
            float32x4_t scale = vld1q_f32(scales + (size_t)v * LANES);
            float32x4_t both = times_lane(scale, by.v[r / LANES], r % LANES);
            float32x4_t sum = vld1q_f32(t.from + at);
            vst1q_f32(t.acc + at, vfmaq_f32(sum, vcvtq_f32_s32(dot[r][v]), both));
        }
    }
}
#endif

static void few_i8(const struct tile *t, uint32_t n_rows) {
    RUN_DOT_FEW(tile_i8, t, n_rows)
}

static void many_i8(const struct tile *t, uint32_t n_rows) {
    RUN_PARTS(part_i8, t, n_rows)
}

static const struct tile_kernel i8_kernel = {.kind = WEFT_GEMM_I8,
                                             .group = I8_GROUP,
                                             .group_bytes = I8_GROUP / 4 * I8_QUAD_BYTES,
                                             .step = 8,
                                             .chunk = I8_GROUP,
                                             .per_word = 4,
                                             TILES_DOT_NEON(few_i8, many_i8),
                                             .widen = take_apart_i8,
                                             .scale = append_scales};

static void gemm_i8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&i8_kernel, args, p_begin, p_end);
}

static void fill_i8(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_I8] = gemm_i8;
}

#endif
