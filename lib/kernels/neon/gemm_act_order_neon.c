/* 4 bits with groups of columns in any order, with f32 activations: weights are widened chunk by
 * chunk into L1 and meet the tile of f32. */
#include "act_order.h"
#include "gemm_neon.h"

/* scale * (code - zero); the entry of the table begins with the scales, then has the zeros. */
ALWAYS_INLINE void widen_column(const uint8_t *entry, uint8x16_t codes, float *out) {
    const uint8x16_t zeros = vld1q_u8(entry + (size_t)WEFT_PANEL * 2);
    const struct quarters scale = load_halves(entry);
    int16x8_t low = vreinterpretq_s16_u16(vsubl_u8(vget_low_u8(codes), vget_low_u8(zeros)));
    int16x8_t high = vreinterpretq_s16_u16(vsubl_high_u8(codes, zeros));
    struct quarters value = {
        {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
         vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
    store_quarters(times(scale, value), out);
}

static void widen_q4_g(const struct weft_gemm_args *args, const uint8_t *at, uint32_t k_begin,
                       uint32_t count, float *out) {
    const struct q4_g_panel panel = q4_g_panel_of(at, args->k, whole_k(args));
    for (uint32_t k = k_begin; k < k_begin + count; k += 2, out += 2 * WEFT_PANEL) {
        uint8x16_t both = vld1q_u8(panel.codes + (size_t)k / 2 * WEFT_PANEL);
        widen_column(q4_g_entry(&panel, k), vandq_u8(both, vdupq_n_u8(15)), out);
        widen_column(q4_g_entry(&panel, k + 1), vshrq_n_u8(both, 4), out + WEFT_PANEL);
    }
}

static const struct tile_kernel kernel = {.kind = WEFT_GEMM_Q4_G_F32,
                                          .group = Q4_G_GROUP,
                                          .group_bytes = Q4_G_BYTES,
                                          .step = 1,
                                          .per_word = 1,
                                          TILES_WIDENED_NEON,
                                          .widen_at = widen_q4_g};

static void gemm_q4_g(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_act_order_neon(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q4_G_F32] = gemm_q4_g;
}
