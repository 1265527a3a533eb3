/* FP8 and NF4 with f32 activations: weights are widened chunk by chunk into L1 and meet the tile of
 * f32. */
#include "fp8_nf4.h"
#include "gemm_neon.h"

/* e4m3 as f32, of 16 features: see f8_value; packing takes care of NaN. */
ALWAYS_INLINE struct quarters f8_values(const uint8_t *codes) {
    int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(codes));
    int16x8_t wide[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)};
    struct quarters out;
    for (uint32_t h = 0; h < 2; h++) {
        int16x8_t bits = vandq_s16(vshlq_n_s16(wide[h], 7), vdupq_n_s16((int16_t)0xbf80));
        float16x8_t half = vreinterpretq_f16_s16(bits);
        out.v[2 * h] = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(half)), 256.0f);
        out.v[2 * h + 1] = vmulq_n_f32(vcvt_high_f32_f16(half), 256.0f);
    }
    return out;
}

static void widen_f8(const uint8_t *panel, uint32_t count, float *out) {
    for (size_t k0 = 0; k0 < count; k0 += F8_GROUP) {
        const struct quarters scale = load_quarters((const void *)panel);
        const uint8_t *codes = panel + FP8_NF4_SCALES;
        const size_t n = count - k0 < F8_GROUP ? count - k0 : F8_GROUP;
        for (size_t k = 0; k < n; k++, out += WEFT_PANEL) {
            store_quarters(times(scale, f8_values(codes + k * WEFT_PANEL)), out);
        }
        panel = codes + (size_t)F8_GROUP * WEFT_PANEL;
    }
}

/* Bytes of the 16 values, looked up four at a time. */
struct nf4_table {
    uint8x16x4_t bytes;
};

ALWAYS_INLINE struct nf4_table load_nf4_table(void) {
    const uint8_t *at = (const void *)nf4_values;
    return (struct nf4_table){
        {{vld1q_u8(at), vld1q_u8(at + 16), vld1q_u8(at + 32), vld1q_u8(at + 48)}}};
}

/* `codes`: those of 16 features. */
ALWAYS_INLINE struct quarters look_up_nf4(const struct nf4_table *table, uint8x16_t codes) {
    static const uint8_t spread[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    static const uint8_t byte[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    const uint8x16_t at = vshlq_n_u8(codes, 2);
    struct quarters out;
    for (uint32_t i = 0; i < QUARTERS; i++) {
        uint8x16_t from = vaddq_u8(vld1q_u8(spread), vdupq_n_u8((uint8_t)(i * LANES)));
        uint8x16_t index = vaddq_u8(vqtbl1q_u8(at, from), vld1q_u8(byte));
        out.v[i] = vreinterpretq_f32_u8(vqtbl4q_u8(table->bytes, index));
    }
    return out;
}

static void widen_nf4(const uint8_t *panel, uint32_t count, float *out) {
    const struct nf4_table table = load_nf4_table();
    for (size_t k0 = 0; k0 < count; k0 += NF4_GROUP) {
        const struct quarters scale = load_quarters((const void *)panel);
        panel += FP8_NF4_SCALES;
        for (size_t k = 0; k < NF4_GROUP; k += 2, panel += WEFT_PANEL, out += 2 * WEFT_PANEL) {
            uint8x16_t both = vld1q_u8(panel), odd = vandq_u8(both, vdupq_n_u8(15));
            store_quarters(times(scale, look_up_nf4(&table, vshrq_n_u8(both, 4))), out);
            store_quarters(times(scale, look_up_nf4(&table, odd)), out + WEFT_PANEL);
        }
    }
}

static const struct tile_kernel f8_kernel = {.kind = WEFT_GEMM_F8_E4M3_F32,
                                             .group = F8_GROUP,
                                             .group_bytes = FP8_NF4_SCALES + F8_GROUP * WEFT_PANEL,
                                             .step = 1,
                                             .per_word = 1,
                                             TILES_WIDENED_NEON,
                                             .widen = widen_f8};

static const struct tile_kernel nf4_kernel = {.kind = WEFT_GEMM_NF4_F32,
                                              .group = NF4_GROUP,
                                              .group_bytes =
                                                  FP8_NF4_SCALES + NF4_GROUP / 2 * WEFT_PANEL,
                                              .step = 1,
                                              .per_word = 1,
                                              TILES_WIDENED_NEON,
                                              .widen = widen_nf4};

static void gemm_f8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&f8_kernel, args, p_begin, p_end);
}

static void gemm_nf4(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&nf4_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_fp8_nf4_neon(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_F8_E4M3_F32] = gemm_f8;
    table->gemm[WEFT_GEMM_NF4_F32] = gemm_nf4;
}
