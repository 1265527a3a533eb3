/* kernels/gemm_q2_q8_neon — the types of 2 to 6 bits and Q8_0, with activations of 8.
 *
 * Few rows meet weights as they are stored, taken apart in registers. For many, a chunk is taken
 * apart once into a buffer in L1: signed codes less their zero, in the order that the tile reads, and
 * scales as f32. The tile is the same for all types then, but for mins, and two scales in a block. */
#ifndef WEFT_KERNELS_GEMM_Q2_Q8_NEON_H
#define WEFT_KERNELS_GEMM_Q2_Q8_NEON_H

#include "gemm_dot_neon.h"

/* ----------------------------------------------------------------- few rows, blocks of 32 ---- */

/* What few rows find in a block of their activations, beside codes. */
struct few_block {
    int8x16_t codes[2];
    float scale, sums[2];
    int32_t first[2]; /* where dots begin */
};

struct few_acts {
    struct act_words codes, scales, offsets, halves, sums;
};

ALWAYS_INLINE struct few_acts few_acts_at(const struct tile *t) {
    const size_t n_all = t->k / Q8_GROUP, first = t->k_begin / Q8_GROUP;
    return (struct few_acts){act_words_at(t, 1, first * Q8_QUADS),
                             act_words_at(t, 1, n_all * Q8_QUADS + first),
                             act_words_at(t, 1, n_all * (Q8_QUADS + 1) + first),
                             act_words_at(t, 1, n_all * (Q8_QUADS + 2) + first),
                             act_words_at(t, 1, n_all * (Q8_QUADS + 3) + first)};
}

/* Codes stand `zero` too high, unless they are met as signed ones. Stored are -128 times the sums of
 * activations, and -32 times those of the first half. */
ALWAYS_INLINE struct few_block load_few_block(const struct quant_layout *q, struct few_acts acts,
                                              uint32_t row, size_t b) {
    const bool two = q->sub < QUANT_BLOCK, has_zero = q->zero && !(MEETS_SIGNED && q->zero == 128);
    const int8_t *codes = act_word(acts.codes, row, b * Q8_QUADS);
    struct few_block block = {.codes = {vld1q_s8(codes), vld1q_s8(codes + 16)},
                              .scale = float_at(acts.scales, row, b)};
    if (has_zero || two) {
        int32_t whole = int_at(acts.offsets, row, b), half = two ? int_at(acts.halves, row, b) : 0;
        if (has_zero) {
            block.first[0] =
                two ? shifted_right(half, quant_halves_shift(q)) : whole >> quant_offset_shift(q);
            block.first[1] = (whole >> quant_offset_shift(q)) - block.first[0];
        }
        block.sums[0] = block.scale * (float)-(half >> 5);
        block.sums[1] = block.scale * (float)(-(whole >> 7) - -(half >> 5));
    }
    if (q->has_min && !two) block.sums[0] = float_at(acts.sums, row, b);
    return block;
}

typedef struct quarters dot_sums[FEW_MAX][FEW_PANELS];

/* Scales and mins of a block of one panel. */
struct block_scales {
    struct quarters scale[2], min[2];
};

ALWAYS_INLINE struct block_scales load_block_scales(const struct quant_layout *q,
                                                    const uint8_t *group, uint32_t block) {
    const uint32_t n_subs = QUANT_BLOCK / q->sub, sub = block * n_subs;
    struct block_scales s = {0};
    for (uint32_t h = 0; h < n_subs; h++) {
        s.scale[h] = load_scale(q, group, sub + h);
        if (q->has_min) s.min[h] = load_min(q, group, sub + h);
    }
    return s;
}

/* One block of one panel. */
ALWAYS_INLINE void add_block(const struct quant_layout *q, const uint8_t *group, uint32_t block,
                             uint32_t rows, uint32_t panel, const struct few_block *acts,
                             dot_sums sum) {
    const uint32_t n_subs = QUANT_BLOCK / q->sub, n_quads = Q8_QUADS / n_subs;
    const struct block_scales s = load_block_scales(q, group, block);
    for (uint32_t v = 0; v < QUARTERS; v++) {
        uint8x16_t w[Q8_QUADS];
        load_codes(q, group, block, v, MEETS_SIGNED, w);
        for (uint32_t r = 0; r < rows; r++) {
            float32x4_t total = sum[r][panel].v[v];
            for (uint32_t h = 0; h < n_subs; h++) {
                int32x4_t dot = vdupq_n_s32(acts[r].first[h]);
                dot = dot_quads(dot, w, (struct quads){acts[r].codes, false, 0}, h * n_quads,
                                (h + 1) * n_quads);
                float32x4_t scaled = vmulq_f32(vcvtq_f32_s32(dot), s.scale[h].v[v]);
                total = vfmaq_n_f32(total, scaled, acts[r].scale);
                if (q->has_min) total = vfmaq_n_f32(total, s.min[h].v[v], acts[r].sums[h]);
            }
            sum[r][panel].v[v] = total;
        }
    }
}

/* This block's share of the lines about FEW_AHEAD further on. */
ALWAYS_INLINE void prefetch_share(const struct tile *t, const struct quant_layout *q,
                                  uint32_t panels, size_t group, uint32_t block) {
    const uint32_t n_blocks = q->group / QUANT_BLOCK, lines = (q->bytes + 63) / 64;
    const size_t ahead = (FEW_AHEAD + q->bytes - 1) / q->bytes * (size_t)q->bytes;
    const size_t further =
        stream_at(t, group * q->bytes + ahead) + (size_t)lines * block / n_blocks * 64;
    for (uint32_t p = 0; p < panels; p++) {
        const uint8_t *at = t->panels[p] + further;
        for (uint32_t i = 0; i < (lines + n_blocks - 1) / n_blocks; i++) {
            __builtin_prefetch(at + (size_t)i * 64);
        }
    }
}

ALWAYS_INLINE void tile_codes(const struct tile *args, const struct quant_layout *q, uint32_t rows,
                              uint32_t panels) {
    const struct tile t = *args;
    const size_t n_blocks = t.count / QUANT_BLOCK, per_group = q->group / QUANT_BLOCK;
    const struct few_acts acts = few_acts_at(&t);
    dot_sums sum;
    for (uint32_t i = 0; i < rows * panels; i++) {
        sum[i / panels][i % panels] = load_quarters(t.from + (size_t)i * WEFT_PANEL);
    }
    for (size_t b = 0; b < n_blocks; b++) {
        const uint32_t block = (uint32_t)(b % per_group);
        struct few_block row[FEW_MAX];
        prefetch_share(&t, q, panels, b / per_group, block);
        for (uint32_t r = 0; r < rows; r++) {
            row[r] = load_few_block(q, acts, r, b);
        }
        for (uint32_t p = 0; p < panels; p++) {
            add_block(q, t.panels[p] + b / per_group * q->bytes, block, rows, p, row, sum);
        }
    }
    for (uint32_t i = 0; i < rows * panels; i++) {
        store_quarters(sum[i / panels][i % panels], t.acc + (size_t)i * WEFT_PANEL);
    }
}

/* ---------------------------------------------------------------- many rows, blocks of 32 ---- */

enum { WIDE_CHUNK = 512, CODE_BYTES = Q8_GROUP * WEFT_PANEL, DOT_PART_ROWS = 4 };

/* Bytes of a block in the buffer: codes, then scales [subs][16], then mins. */
ALWAYS_INLINE size_t wide_bytes(const struct quant_layout *q) {
    return CODE_BYTES + (size_t)QUANT_BLOCK / q->sub * (q->has_min ? 2 : 1) * WEFT_PANEL * 4;
}

/* Four features' codes, of 8 quads. */
ALWAYS_INLINE void store_codes(const uint8x16_t w[Q8_QUADS], uint32_t quarter, uint8_t *out) {
    for (uint32_t quad = 0; quad < Q8_QUADS; quad += 2) {
#ifdef __ARM_FEATURE_MATMUL_INT8
        store_pairs(w[quad], w[quad + 1],
                    out + (size_t)quad / 2 * STEP_BYTES + (size_t)quarter * 32);
#else
        vst1q_u8(out + (size_t)quad * 64 + (size_t)quarter * 16, w[quad]);
        vst1q_u8(out + (size_t)(quad + 1) * 64 + (size_t)quarter * 16, w[quad + 1]);
#endif
    }
}

ALWAYS_INLINE void take_apart(const struct quant_layout *q, const uint8_t *panel, uint32_t count,
                              float *out) {
    const uint32_t n_subs = QUANT_BLOCK / q->sub;
    uint8_t *to = (void *)out;
    for (size_t k0 = 0; k0 < count; k0 += q->group, panel += q->bytes) {
        for (uint32_t block = 0; block < q->group / QUANT_BLOCK; block++, to += wide_bytes(q)) {
            for (uint32_t v = 0; v < QUARTERS; v++) {
                uint8x16_t w[Q8_QUADS];
                load_signed(q, panel, block, v, w);
                store_codes(w, v, to);
            }
            const struct block_scales s = load_block_scales(q, panel, block);
            float *scales = (void *)(to + CODE_BYTES);
            for (uint32_t h = 0; h < n_subs; h++) {
                store_quarters(s.scale[h], scales + (size_t)h * WEFT_PANEL);
                if (q->has_min)
                    store_quarters(s.min[h], scales + (size_t)(n_subs + h) * WEFT_PANEL);
            }
        }
    }
}

/* Scales, and sums of codes times them, of four interleaved rows. */
struct many_block {
    float32x4_t scale, sums[2];
};

ALWAYS_INLINE struct many_block load_many_block(const struct quant_layout *q, const struct tile *t,
                                                uint32_t first, size_t b) {
    const size_t n_all = t->k / Q8_GROUP, at = t->k_begin / Q8_GROUP + b;
    struct many_block block = {
        .scale = vld1q_f32((const void *)many_word(t, first, n_all * Q8_QUADS + at))};
    if (!q->has_min) return block;
    if (q->sub == QUANT_BLOCK) {
        block.sums[0] = vld1q_f32((const void *)many_word(t, first, n_all * (Q8_QUADS + 3) + at));
        return block;
    }
    int32x4_t whole = vld1q_s32((const void *)many_word(t, first, n_all * (Q8_QUADS + 1) + at));
    int32x4_t half = vld1q_s32((const void *)many_word(t, first, n_all * (Q8_QUADS + 2) + at));
    half = vnegq_s32(vshrq_n_s32(half, 5));
    whole = vnegq_s32(vshrq_n_s32(whole, 7));
    block.sums[0] = vmulq_f32(block.scale, vcvtq_f32_s32(half));
    block.sums[1] = vmulq_f32(block.scale, vcvtq_f32_s32(vsubq_s32(whole, half)));
    return block;
}

#ifdef __ARM_FEATURE_MATMUL_INT8
/* A half of a block, or all of it, times two features. */
ALWAYS_INLINE int32x4_t dot_pairs(const uint8_t *codes, const uint32x4_t a[][PART_PAIRS],
                                  uint32_t pair, uint32_t begin, uint32_t end) {
    int32x4_t dot = vdupq_n_s32(0);
    for (uint32_t step = begin; step < end; step++) {
        int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(codes + (size_t)step * STEP_BYTES));
        dot = vmmlaq_s32(dot, vreinterpretq_s8_u32(a[step][pair]), w);
    }
    return dot;
}

ALWAYS_INLINE void part_codes(const struct tile *args, const struct quant_layout *q, uint32_t first,
                              uint32_t rows) {
    const struct tile t = *args;
    const uint32_t n_subs = QUANT_BLOCK / q->sub, n_steps = Q8_QUADS / 2 / n_subs;
    const uint32_t n_pairs = (rows + 1) / 2;
    const size_t n_blocks = t.count / QUANT_BLOCK;
    pair_sums sum;
    load_pair_sums(t.from + (size_t)first * WEFT_PANEL, rows, sum);
    for (size_t b = 0; b < n_blocks; b++) {
        const uint8_t *w = t.panels[0] + b * wide_bytes(q);
        const float *scales = (const void *)(w + CODE_BYTES), *mins = scales + n_subs * WEFT_PANEL;
        const struct many_block block = load_many_block(q, &t, first, b);
        uint32x4_t a[Q8_QUADS / 2][PART_PAIRS];
        if (first == 0) prefetch_step(&t, 1, b);
        for (uint32_t step = 0; step < Q8_QUADS / 2; step++) {
            const size_t word = t.k_begin / 4 + b * Q8_QUADS + step * 2;
            load_row_pairs(many_word(&t, first, word), rows, a[step]);
        }
        for (uint32_t j = 0; j < PAIRS; j++) {
            for (uint32_t h = 0; h < n_subs; h++) {
                const size_t at = (size_t)h * WEFT_PANEL + (size_t)j * 2;
                float32x4_t scale = load_twice(scales + at), min = scale;
                if (q->has_min) min = load_twice(mins + at);
                for (uint32_t i = 0; i < n_pairs; i++) {
                    int32x4_t dot =
                        dot_pairs(w + (size_t)j * 16, a, i, h * n_steps, (h + 1) * n_steps);
                    float32x4_t scaled = vmulq_f32(vcvtq_f32_s32(dot), scale);
                    sum[i][j] = vfmaq_f32(sum[i][j], scaled, each_twice(block.scale, i));
                    if (q->has_min)
                        sum[i][j] = vfmaq_f32(sum[i][j], each_twice(block.sums[h], i), min);
                }
            }
        }
    }
    store_pair_sums(sum, rows, t.acc + (size_t)first * WEFT_PANEL);
}
#else
ALWAYS_INLINE void part_codes(const struct tile *args, const struct quant_layout *q, uint32_t first,
                              uint32_t rows) {
    const struct tile t = *args;
    const uint32_t n_subs = QUANT_BLOCK / q->sub, n_quads = Q8_QUADS / n_subs;
    const size_t n_blocks = t.count / QUANT_BLOCK;
    struct quarters sum[DOT_PART_ROWS];
    for (uint32_t r = 0; r < rows; r++) {
        sum[r] = load_quarters(t.from + (size_t)(first + r) * WEFT_PANEL);
    }
    for (size_t b = 0; b < n_blocks; b++) {
        const uint8_t *codes = t.panels[0] + b * wide_bytes(q);
        const float *scales = (const void *)(codes + CODE_BYTES),
                    *mins = scales + n_subs * WEFT_PANEL;
        const struct many_block block = load_many_block(q, &t, first, b);
        int8x16_t a[Q8_QUADS];
        if (first == 0) prefetch_step(&t, 1, b);
        for (uint32_t quad = 0; quad < Q8_QUADS; quad++) {
            a[quad] = vreinterpretq_s8_u8(
                vld1q_u8(many_word(&t, first, t.k_begin / 4 + b * Q8_QUADS + quad)));
        }
        for (uint32_t v = 0; v < QUARTERS; v++) {
            uint8x16_t w[Q8_QUADS];
            for (uint32_t quad = 0; quad < Q8_QUADS; quad++) {
                w[quad] = load_line(codes, quad, v);
            }
            for (uint32_t h = 0; h < n_subs; h++) {
                const size_t at = (size_t)h * WEFT_PANEL + (size_t)v * LANES;
                float32x4_t scale = vld1q_f32(scales + at), min = scale;
                if (q->has_min) min = vld1q_f32(mins + at);
                for (uint32_t r = 0; r < rows; r++) {
                    int32x4_t dot = dot_quads(vdupq_n_s32(0), w, (struct quads){a, true, r},
                                              h * n_quads, (h + 1) * n_quads);
                    float32x4_t scaled = vmulq_f32(vcvtq_f32_s32(dot), scale);
                    sum[r].v[v] = fma_lane(sum[r].v[v], scaled, block.scale, r);
                    if (q->has_min) sum[r].v[v] = fma_lane(sum[r].v[v], min, block.sums[h], r);
                }
            }
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        store_quarters(sum[r], t.acc + (size_t)(first + r) * WEFT_PANEL);
    }
}
#endif

#define RUN_DOT_PARTS(part, args, n_rows)                                                          \
    for (uint32_t first = 0; first < (n_rows); first += DOT_PART_ROWS) {                           \
        switch (weft_min_u32((n_rows)-first, DOT_PART_ROWS)) {                                     \
            PART_CASE(part, args, first, 1);                                                       \
            PART_CASE(part, args, first, 2);                                                       \
            PART_CASE(part, args, first, 3);                                                       \
            PART_CASE(part, args, first, 4);                                                       \
            TILE_DEFAULT;                                                                          \
        }                                                                                          \
    }

/* The layout is a constant in every copy. */
#define DEFINE_CODES(name, ID, ...)                                                                \
    ALWAYS_INLINE void tile_##name(const struct tile *t, uint32_t rows, uint32_t panels) {         \
        tile_codes(t, layout_of(WEFT_DT_##ID), rows, panels);                                      \
    }                                                                                              \
    ALWAYS_INLINE void part_##name(const struct tile *t, uint32_t first, uint32_t rows) {          \
        part_codes(t, layout_of(WEFT_DT_##ID), first, rows);                                       \
    }                                                                                              \
    static void few_##name(const struct tile *t, uint32_t n_rows) {                                \
        RUN_DOT_FEW(tile_##name, t, n_rows)                                                        \
    }                                                                                              \
    static void many_##name(const struct tile *t, uint32_t n_rows) {                               \
        RUN_DOT_PARTS(part_##name, t, n_rows)                                                      \
    }                                                                                              \
    static void take_apart_##name(const uint8_t *panel, uint32_t count, float *out) {              \
        take_apart(layout_of(WEFT_DT_##ID), panel, count, out);                                    \
    }                                                                                              \
    static void gemm_##name(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) { \
        const struct quant_layout *q = layout_of(WEFT_DT_##ID);                                    \
        const struct tile_kernel kernel = {.kind = WEFT_GEMM_##ID,                                 \
                                           .group = q->group,                                      \
                                           .group_bytes = q->bytes,                                \
                                           .step = QUANT_BLOCK,                                    \
                                           .chunk = WIDE_CHUNK,                                    \
                                           .per_word = 4,                                          \
                                           TILES_DOT_NEON(few_##name, many_##name),                \
                                           .widen = take_apart_##name};                            \
        gemm_run(&kernel, args, p_begin, p_end);                                                   \
    }

CODES_EACH(DEFINE_CODES)

#define FILL_CODES(name, ID, ...) table->gemm[WEFT_GEMM_##ID] = gemm_##name;

static void fill_codes(struct weft_kern_table *table) {
    CODES_EACH(FILL_CODES)
}

#endif
