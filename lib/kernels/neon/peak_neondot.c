/* Dot products of four bytes. */
#include <arm_neon.h>

#include "peak.h"

#define STEP(sum, a, b) vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))

PEAK_DEFINE(peak_int8, int32x4_t, STEP, 16 * 2, vdupq_n_s32(0x03030303), vdupq_n_s32(0x01010101))

void wefti_kern_fill_peak_neondot(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_INT8] = peak_int8;
}
