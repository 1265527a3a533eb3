/* Pairs of bf16 products summed in f32, vdpbf16ps. */
#include <immintrin.h>

#include "peak.h"

/* The factors are carried as integers, which every compiler lets asm touch. */
#define STEP_BF16(sum, a, b)                                                                       \
    _mm512_castps_si512(_mm512_dpbf16_ps(_mm512_castsi512_ps(sum), (__m512bh)(a), (__m512bh)(b)))

PEAK_DEFINE(peak_bf16, __m512i, STEP_BF16, 32 * 2, _mm512_set1_epi16(0x3fc0 /* 1.5 */),
            _mm512_set1_epi16(0x3f00 /* 0.5 */))

void wefti_kern_fill_peak_avx512bf16(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_BF16] = peak_bf16;
}
