/* Products of 2 x 4 by 4 x 2 bf16. */
#include <arm_neon.h>

#include "peak.h"

#define STEP(sum, a, b) vbfmmlaq_f32(sum, vreinterpretq_bf16_f32(a), vreinterpretq_bf16_f32(b))

/* 1.5 and 0.5 in both halves. */
PEAK_DEFINE(peak_bf16, float32x4_t, STEP, 16 * 2, vreinterpretq_f32_u32(vdupq_n_u32(0x3fc03fc0)),
            vreinterpretq_f32_u32(vdupq_n_u32(0x3f003f00)))

void wefti_kern_fill_peak_neonbf16(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_BF16] = peak_bf16;
}
