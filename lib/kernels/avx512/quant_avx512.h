/* kernels/quant_avx512 — groups of the types of 2 to 6 bits (quant.h) in registers: codes as bytes, scales and
 * mins as f32. gemm_avx512.h is included before. */
#ifndef WEFT_KERNELS_QUANT_AVX512_H
#define WEFT_KERNELS_QUANT_AVX512_H

#include "gemm_avx512.h"
#include "quant.h"

struct quads {
    __m512i low, high; /* quads j and j + 4 of a block */
};

/* 16-bit lanes by a constant, to the right where it is negative. Compilers do not agree on the type
 * of the intrinsics' counts. */
ALWAYS_INLINE __m512i shift(__m512i x, int left) {
    typedef uint16_t lanes __attribute__((vector_size(64)));
    return left >= 0 ? (__m512i)((lanes)x << left) : (__m512i)((lanes)x >> -left);
}

/* bits | x & mask */
ALWAYS_INLINE __m512i merge(__m512i bits, __m512i x, char mask) {
    return _mm512_ternarylogic_epi32(bits, x, _mm512_set1_epi8(mask), 0xf8);
}

ALWAYS_INLINE __m512i load_line(const uint8_t *array, uint32_t line) {
    return _mm512_loadu_si512(array + (size_t)line * QUANT_LINE);
}

ALWAYS_INLINE struct quads load_quads(const struct quant_layout *q, const uint8_t *group,
                                      uint32_t block, uint32_t j) {
    struct quads quads = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    if (quant_has_nibbles(q)) {
        __m512i both = load_line(group, block * 4 + j), nibble = _mm512_set1_epi8(15);
        quads.low = _mm512_and_si512(both, nibble);
        quads.high = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
    }
    if (quant_has_pairs(q)) { /* bits 2j, 2j + 1 of two lines */
        const int bit = (int)quant_pair_bit(q), left = bit - 2 * (int)j;
        const char mask = (char)(3 << bit);
        const uint8_t *pairs = group + q->at_pairs;
        quads.low = merge(quads.low, shift(load_line(pairs, block * 2), left), mask);
        quads.high = merge(quads.high, shift(load_line(pairs, block * 2 + 1), left), mask);
    }
    if (quant_has_singles(q)) { /* bit j, and bit j + 4 */
        const int bit = (int)quant_single_bit(q), left = bit - (int)j;
        __m512i bits = load_line(group + q->at_singles, block);
        quads.low = merge(quads.low, shift(bits, left), (char)(1 << bit));
        quads.high = merge(quads.high, shift(bits, left - 4), (char)(1 << bit));
    }
    if (quant_is_looked_up(q)) {
        __m128i values = _mm_loadu_si128((const void *)quant_tables[q->table]);
        __m512i table = _mm512_broadcast_i32x4(values);
        quads.low = _mm512_shuffle_epi8(table, quads.low);
        quads.high = _mm512_shuffle_epi8(table, quads.high);
    }
    return quads;
}

/* quant_e8m0 and quant_ue4m3 of 16 features. */
ALWAYS_INLINE __m512 e8m0_scales(__m128i bytes) {
    const __m512i wide = _mm512_cvtepu8_epi32(bytes);
    const __mmask16 low = _mm512_cmplt_epi32_mask(wide, _mm512_set1_epi32(2));
    __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(wide, _mm512_set1_epi32(1)), 23);
    bits = _mm512_mask_sllv_epi32(bits, low, _mm512_set1_epi32(0x00200000), wide);
    return _mm512_castsi512_ps(bits);
}

ALWAYS_INLINE __m512 ue4m3_scales(__m128i bytes) {
    __m256i half = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7);
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(128.0f));
}

ALWAYS_INLINE __m512 load_scale(const struct quant_layout *q, const uint8_t *group, uint32_t sub) {
    const uint8_t *scales = group + q->at_scales, *super = group + q->at_super;
    if (q->scales == QUANT_F16) return load_halves(scales);
    if (q->scales == QUANT_ONE) return load_halves(super);
    __m128i bytes = _mm_loadu_si128((const void *)(scales + sub * WEFT_PANEL));
    if (q->scales == QUANT_E8M0) return e8m0_scales(bytes);
    if (q->scales == QUANT_UE4M3) return ue4m3_scales(bytes);
    if (q->scales == QUANT_UE4M3_F32)
        return _mm512_mul_ps(_mm512_loadu_ps(super), ue4m3_scales(bytes));
    __m512i whole =
        quant_signed_scales(q) ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
    __m512 by = q->scales == QUANT_INTS ? load_halves(super) : _mm512_loadu_ps(super);
    return _mm512_mul_ps(by, _mm512_cvtepi32_ps(whole));
}

/* 4_1: as stored; the K types and 4_Z: the amount to subtract. */
ALWAYS_INLINE bool takes_min_away(const struct quant_layout *q) {
    return q->is_super || q->has_zeros;
}

ALWAYS_INLINE __m512 load_min(const struct quant_layout *q, const uint8_t *group, uint32_t sub) {
    const uint8_t *mins = group + q->at_mins;
    if (!takes_min_away(q)) return load_halves(mins);
    __m128i bytes = _mm_loadu_si128((const void *)(mins + sub * WEFT_PANEL));
    __m512 super = q->has_zeros ? load_scale(q, group, sub)
                                : load_halves(group + q->at_super + WEFT_PANEL * 2);
    return _mm512_mul_ps(super, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
}

#endif
