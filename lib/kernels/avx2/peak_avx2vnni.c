/* Four products of bytes summed in 32 bits, vpdpbusd. */
#include <immintrin.h>

#include "peak.h"

#define STEP_INT8(sum, a, b) _mm256_dpbusd_avx_epi32(sum, a, b)

PEAK_DEFINE(peak_int8, __m256i, STEP_INT8, 32 * 2, _mm256_set1_epi8(3), _mm256_set1_epi8(1))

void wefti_kern_fill_peak_avx2vnni(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_INT8] = peak_int8;
}
