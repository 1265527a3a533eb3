/* Fused multiply-adds; of bytes, two products in 16 bits, then pairs of those in 32. bf16 is widened
 * to f32 here, so that its peak is the same. */
#include <arm_neon.h>

#include "peak.h"

static inline int32x4_t step_int8(int32x4_t sum, int32x4_t a, int32x4_t b) {
    int8x16_t x = vreinterpretq_s8_s32(a), y = vreinterpretq_s8_s32(b);
    int16x8_t two = vmlal_high_s8(vmull_s8(vget_low_s8(x), vget_low_s8(y)), x, y);
    return vpadalq_s16(sum, two);
}

#define STEP_F32(sum, a, b) vfmaq_f32(sum, a, b)

PEAK_DEFINE(peak_f32, float32x4_t, STEP_F32, 4 * 2, vdupq_n_f32(1.5f), vdupq_n_f32(0.5f))
PEAK_DEFINE(peak_int8, int32x4_t, step_int8, 16 * 2, vdupq_n_s32(0x03030303),
            vdupq_n_s32(0x01010101))

void wefti_kern_fill_peak_neon(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_F32] = table->peak[WEFT_PEAK_BF16] = peak_f32;
    table->peak[WEFT_PEAK_INT8] = peak_int8;
}
