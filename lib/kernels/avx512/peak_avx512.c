/* As peak_avx2.c, twice as wide: what AVX-512 does without VNNI and BF16. */
#include <immintrin.h>

#include "peak.h"

#define STEP_F32(sum, a, b) _mm512_fmadd_ps(a, b, sum)
#define STEP_INT8(sum, a, b) _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), b))

PEAK_DEFINE(peak_f32, __m512, STEP_F32, 16 * 2, _mm512_set1_ps(1.5f), _mm512_set1_ps(0.5f))
PEAK_DEFINE(peak_int8, __m512i, STEP_INT8, 64 * 2, _mm512_set1_epi8(3), _mm512_set1_epi8(1))

void wefti_kern_fill_peak_avx512(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_F32] = table->peak[WEFT_PEAK_BF16] = peak_f32;
    table->peak[WEFT_PEAK_INT8] = peak_int8;
}
