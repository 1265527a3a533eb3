/* Quantised weights with f32 activations: they are widened chunk by chunk into L1 and meet the tile
 * of f32. */
#include "gemm_codes_neon.h"

/* Byte `i` of each word, signed, as f32. */
ALWAYS_INLINE float32x4_t widen_byte(uint8x16_t quads, uint32_t i) {
    int32x4_t word = vreinterpretq_s32_u8(quads);
    return vcvtq_f32_s32((word << (24 - 8 * (int)i)) >> 24);
}

static void widen_i8(const uint8_t *panel, uint32_t count, float *out) {
    for (uint32_t k = 0; k < count; k++, out += WEFT_PANEL) {
        for (uint32_t v = 0; v < QUARTERS; v++) {
            uint32x4_t word =
                vreinterpretq_u32_u8(veorq_u8(load_line(panel, k / 4, v), vdupq_n_u8(CODE_ZERO)));
            int32x4_t code = vreinterpretq_s32_u32(word << (24 - k % 4 * 8)) >> 24;
            vst1q_f32(out + (size_t)v * LANES, vcvtq_f32_s32(code));
        }
    }
}

static void scale_i8(float *out, uint32_t count, const float *scales) {
    const struct quarters scale = load_quarters(scales);
    for (uint32_t k = 0; k < count; k++, out += WEFT_PANEL) {
        store_quarters(times(load_quarters(out), scale), out);
    }
}

/* Four columns of four features. */
ALWAYS_INLINE void widen_quad(const struct quant_layout *q, uint8x16_t codes, float32x4_t scale,
                              float32x4_t min, float *out) {
    for (uint32_t i = 0; i < 4; i++, out += WEFT_PANEL) {
        float32x4_t code = widen_byte(codes, i);
        vst1q_f32(out, q->has_min ? vfmaq_f32(min, scale, code) : vmulq_f32(scale, code));
    }
}

ALWAYS_INLINE void widen_block(const struct quant_layout *q, const uint8_t *group, uint32_t block,
                               float *out) {
    const uint32_t n_subs = QUANT_BLOCK / q->sub, sub = block * n_subs;
    struct quarters scale[2] = {load_scale(q, group, sub), load_scale(q, group, sub + n_subs - 1)};
    struct quarters min[2] = {scale[0], scale[1]};
    if (q->has_min) {
        min[0] = load_min(q, group, sub);
        min[1] = load_min(q, group, sub + n_subs - 1);
    }
    for (uint32_t v = 0; v < QUARTERS; v++) {
        uint8x16_t codes[Q8_QUADS];
        load_signed(q, group, block, v, codes);
        for (uint32_t quad = 0; quad < Q8_QUADS; quad++) {
            uint32_t half = quad / (Q8_QUADS / 2);
            widen_quad(q, codes[quad], scale[half].v[v], min[half].v[v],
                       out + (size_t)quad * 4 * WEFT_PANEL + (size_t)v * LANES);
        }
    }
}

ALWAYS_INLINE void widen_quant(const struct quant_layout *q, const uint8_t *panel, uint32_t count,
                               float *out) {
    for (size_t k0 = 0; k0 < count; k0 += q->group, panel += q->bytes) {
        for (uint32_t block = 0; block < q->group / QUANT_BLOCK; block++) {
            widen_block(q, panel, block, out);
            out += (size_t)QUANT_BLOCK * WEFT_PANEL;
        }
    }
}

static const struct tile_kernel i8_f32_kernel = {.kind = WEFT_GEMM_I8_F32,
                                                 .group = I8_GROUP,
                                                 .group_bytes = I8_GROUP / 4 * I8_QUAD_BYTES,
                                                 .step = 1,
                                                 .per_word = 1,
                                                 TILES_WIDENED_NEON,
                                                 .widen = widen_i8,
                                                 .scale = scale_i8};

static void gemm_i8_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&i8_f32_kernel, args, p_begin, p_end);
}

/* The layout is a constant in every copy. */
#define DEFINE_QUANT(name, ID, ...)                                                                \
    static void widen_##name(const uint8_t *panel, uint32_t count, float *out) {                   \
        widen_quant(layout_of(WEFT_DT_##ID), panel, count, out);                                   \
    }                                                                                              \
    static void gemm_##name##_f32(const struct weft_gemm_args *args, uint32_t p_begin,             \
                                  uint32_t p_end) {                                                \
        const struct quant_layout *q = layout_of(WEFT_DT_##ID);                                    \
        const struct tile_kernel kernel = {.kind = WEFT_GEMM_##ID##_F32,                           \
                                           .group = q->group,                                      \
                                           .group_bytes = q->bytes,                                \
                                           .step = 1,                                              \
                                           .per_word = 1,                                          \
                                           TILES_WIDENED_NEON,                                     \
                                           .widen = widen_##name};                                 \
        gemm_run(&kernel, args, p_begin, p_end);                                                   \
    }

CODES_EACH(DEFINE_QUANT)

#define FILL_QUANT(name, ID, ...) table->gemm[WEFT_GEMM_##ID##_F32] = gemm_##name##_f32;

void wefti_kern_fill_gemm_widened_neon(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_I8_F32] = gemm_i8_f32;
    CODES_EACH(FILL_QUANT)
}
