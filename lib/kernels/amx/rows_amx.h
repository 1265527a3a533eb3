/* kernels/rows_amx — interleaved rows as tiles want them: a row's words side by side, where in a group of
 * rows they are a row's distance apart. Needs AVX-512; gemm_avx512.h is included before. */
#ifndef WEFT_KERNELS_ROWS_AMX_H
#define WEFT_KERNELS_ROWS_AMX_H

#include "avx512/gemm_avx512.h"

enum { LAY_WORDS = 8 }; /* of a row at once */

/* Words of 16 lanes' places among 96. */
ALWAYS_INLINE __m512i pick_words(const __m512i from[6], __m512i place) {
    __m512i low = _mm512_permutex2var_epi32(from[0], place, from[1]);
    __m512i middle = _mm512_permutex2var_epi32(from[2], place, from[3]);
    __m512i high = _mm512_permutex2var_epi32(from[4], place, from[5]);
    low =
        _mm512_mask_blend_epi32(_mm512_cmpge_epi32_mask(place, _mm512_set1_epi32(32)), low, middle);
    return _mm512_mask_blend_epi32(_mm512_cmpge_epi32_mask(place, _mm512_set1_epi32(64)), low,
                                   high);
}

/* Eight words of interleaved rows, [8][12], to rows that are `stride` words apart. */
ALWAYS_INLINE void lay_rows(const uint8_t *words, int32_t *rows, size_t stride) {
    __m512i from[6];
    for (size_t i = 0; i < 6; i++) {
        from[i] = _mm512_loadu_si512(words + i * 64);
    }
    /* The places of row 0, then of row 1. */
    __m512i place = _mm512_setr_epi32(0, 12, 24, 36, 48, 60, 72, 84, 1, 13, 25, 37, 49, 61, 73, 85);
    for (size_t r = 0; r < MANY_ROWS; r += 2) {
        __m512i two = pick_words(from, place);
        _mm256_storeu_si256((void *)(rows + r * stride), _mm512_castsi512_si256(two));
        _mm256_storeu_si256((void *)(rows + (r + 1) * stride), _mm512_extracti64x4_epi64(two, 1));
        place = _mm512_add_epi32(place, _mm512_set1_epi32(2));
    }
}

#endif
