/* Fused multiply-adds; of bytes, pairs of products in 16 bits, pairs of those in 32. bf16 is
 * widened to f32 here, so that its peak is the same. */
#include <immintrin.h>

#include "peak.h"

#define STEP_F32(sum, a, b) _mm256_fmadd_ps(a, b, sum)
#define STEP_INT8(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), b))

PEAK_DEFINE(peak_f32, __m256, STEP_F32, 8 * 2, _mm256_set1_ps(1.5f), _mm256_set1_ps(0.5f))
PEAK_DEFINE(peak_int8, __m256i, STEP_INT8, 32 * 2, _mm256_set1_epi8(3), _mm256_set1_epi8(1))

void wefti_kern_fill_peak_avx2(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_F32] = table->peak[WEFT_PEAK_BF16] = peak_f32;
    table->peak[WEFT_PEAK_INT8] = peak_int8;
}
