/* Products of 2 x 8 by 8 x 2 bytes. */
#include <arm_neon.h>

#include "peak.h"

#define STEP(sum, a, b) vmmlaq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))

PEAK_DEFINE(peak_int8, int32x4_t, STEP, 32 * 2, vdupq_n_s32(0x03030303), vdupq_n_s32(0x01010101))

void wefti_kern_fill_peak_neoni8mm(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_INT8] = peak_int8;
}
