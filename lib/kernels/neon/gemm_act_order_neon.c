/* 4 and 8 bits with groups of columns in any order, with f32 activations: weights are widened chunk by
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
    const struct order_panel panel = order_panel_of(&q4_g_layout, at, args->k, whole_k(args));
    for (uint32_t k = k_begin; k < k_begin + count; k += 2, out += 2 * WEFT_PANEL) {
        uint8x16_t both = vld1q_u8(panel.codes + (size_t)k / 2 * WEFT_PANEL);
        widen_column(order_entry(&panel, k), vandq_u8(both, vdupq_n_u8(15)), out);
        widen_column(order_entry(&panel, k + 1), vshrq_n_u8(both, 4), out + WEFT_PANEL);
    }
}

static void widen_q8_g(const struct weft_gemm_args *args, const uint8_t *at, uint32_t k_begin,
                       uint32_t count, float *out) {
    const struct order_panel panel = order_panel_of(&q8_g_layout, at, args->k, whole_k(args));
    for (uint32_t k = k_begin; k < k_begin + count; k++, out += WEFT_PANEL)
        widen_column(order_entry(&panel, k), vld1q_u8(panel.codes + (size_t)k * WEFT_PANEL), out);
}

#define ORDER_KERNEL(name, ID)                                                                     \
    static const struct tile_kernel kernel_##name = {.kind = WEFT_GEMM_##ID##_F32,                 \
                                                     .group = ORDER_GROUP,                         \
                                                     .group_bytes = ORDER_GROUP_BYTES_##ID,        \
                                                     .step = 1,                                    \
                                                     .per_word = 1,                                \
                                                     TILES_WIDENED_NEON,                           \
                                                     .widen_at = widen_##name};                    \
    static void gemm_##name(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) { \
        gemm_run(&kernel_##name, args, p_begin, p_end);                                            \
    }

ORDER_KERNEL(q4_g, Q4_G)
ORDER_KERNEL(q8_g, Q8_G)

void wefti_kern_fill_gemm_act_order_neon(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q4_G_F32] = gemm_q4_g;
    table->gemm[WEFT_GEMM_Q8_G_F32] = gemm_q8_g;
}
