/* kernels/gemm_rounded_amx — weights of blocks, rounded to bf16, by bf16 activations on AMX's tiles: for the
 * files that gemm_bf16_amx.h is for. Needs AVX-512 with VBMI and BF16, too.
 *
 * A weight is what its scale, code and min give as an f32, rounded once more: so sums are those of a bf16 weight
 * that was packed from these numbers (but where a number is less than all that are normal, or a scale is infinite). To unpack 64 codes takes some 18 instructions, once for all rows of a
 * block; beside that dots of 8 bits by VNNI would take 2 for each row. */
#ifndef WEFT_KERNELS_GEMM_ROUNDED_AMX_H
#define WEFT_KERNELS_GEMM_ROUNDED_AMX_H

#include "avx512/quant_avx512.h"
#include "gemm_bf16_amx.h"

/* What makes a weight of a code, for features 0..7 and 8..15, each of them twice: weight = (code - zero) * scale +
 * added. Where `zero` would only make a product overflow that is finite with it, it is in `added`. */
struct unpack_form {
    __m512 scale[2], added[2], zero;
};

/* Whether (code - zero) is formed first: scales reach so far that zero * scale may be infinite. */
ALWAYS_INLINE bool takes_zero_first(const struct quant_layout *q) {
    return q->scales == QUANT_E8M0 || QUANT_SUPER_IS_F32(q->scales);
}

ALWAYS_INLINE struct unpack_form unpack_form_of(__m512 scale, __m512 added, float zero) {
    const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    return (struct unpack_form){
        {_mm512_permutexvar_ps(low, scale), _mm512_permutexvar_ps(high, scale)},
        {_mm512_permutexvar_ps(low, added), _mm512_permutexvar_ps(high, added)},
        _mm512_set1_ps(zero)};
}

/* The codes of columns 2 * pair and 2 * pair + 1 of quads, of features 8 * half..: each in 32 bits. */
ALWAYS_INLINE __m512 pair_codes(__m512i quads, uint32_t pair, uint32_t half) {
    const __m512i lanes =
        _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29);
    const __m512i place = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)(32 * half + 2 * pair)));
    return _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(0x1111111111111111u, place, quads));
}

/* Quads of 16 features to two lines of pairs. */
ALWAYS_INLINE void unpack_quads(__m512i quads, const struct unpack_form *form, bool zero_first,
                                uint8_t *pairs) {
    for (uint32_t pair = 0; pair < 2; pair++) {
        __m512 weights[2];
        for (uint32_t half = 0; half < 2; half++) {
            __m512 code = pair_codes(quads, pair, half);
            if (zero_first) code = _mm512_sub_ps(code, form->zero);
            weights[half] = _mm512_fmadd_ps(code, form->scale[half], form->added[half]);
        }
        _mm512_store_si512(pairs + (size_t)pair * TILE_LINE,
                           (__m512i)_mm512_cvtne2ps_pbh(weights[1], weights[0]));
    }
}

/* Of columns that share a scale. */
ALWAYS_INLINE struct unpack_form quant_form(const struct quant_layout *q, const uint8_t *group,
                                            uint32_t sub) {
    const __m512 scale = load_scale(q, group, sub), nothing = _mm512_setzero_ps();
    __m512 added = nothing;
    if (q->has_min) {
        added = load_min(q, group, sub);
        if (takes_min_away(q)) added = _mm512_sub_ps(nothing, added);
    } else if (!takes_zero_first(q)) {
        added = _mm512_mul_ps(scale, _mm512_set1_ps(-(float)q->zero));
    }
    return unpack_form_of(scale, added, (float)q->zero);
}

ALWAYS_INLINE void round_quant(const struct quant_layout *q, const uint8_t *panel, uint32_t count,
                               uint8_t *pairs) {
    enum { QUAD_BYTES = 2 * TILE_LINE };
    const uint32_t n_subs = QUANT_BLOCK / q->sub;
    for (size_t k = 0; k < count; k += q->group, panel += q->bytes) {
        for (uint32_t block = 0; block < q->group / QUANT_BLOCK; block++, pairs += TILE_BYTES) {
            const struct unpack_form low = quant_form(q, panel, block * n_subs);
            const struct unpack_form high =
                n_subs > 1 ? quant_form(q, panel, block * n_subs + 1) : low;
            for (uint32_t j = 0; j < 4; j++) {
                const struct quads quads = load_quads(q, panel, block, j);
                unpack_quads(quads.low, &low, takes_zero_first(q), pairs + (size_t)j * QUAD_BYTES);
                unpack_quads(quads.high, &high, takes_zero_first(q),
                             pairs + (size_t)(j + 4) * QUAD_BYTES);
            }
        }
    }
}

static void round_q8(const uint8_t *panel, uint32_t count, uint8_t *pairs) {
    for (size_t k = 0; k < count; k += Q8_GROUP, panel += Q8_BLOCK_BYTES) {
        const __m512 scale = load_halves(panel + Q8_CODES);
        const struct unpack_form form =
            unpack_form_of(scale, _mm512_mul_ps(scale, _mm512_set1_ps(-128.0f)), 0);
        for (size_t quad = 0; quad < Q8_QUADS; quad++, pairs += (size_t)2 * TILE_LINE) {
            unpack_quads(_mm512_loadu_si512(panel + quad * QUANT_LINE), &form, false, pairs);
        }
    }
}

#define ROUNDED(kind_, group_, bytes_, widen_)                                                     \
    {                                                                                              \
        .kind = (kind_), .group = (group_), .group_bytes = (bytes_), .column_bytes = 2,            \
        .widen = (widen_), .many = many_bf16, .few = few_bf16                                      \
    }

static void gemm_q8_bf16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    static const struct tile_weights weights =
        ROUNDED(WEFT_GEMM_Q8_0_BF16, Q8_GROUP, Q8_BLOCK_BYTES, round_q8);
    gemm_tiles(&weights, args, p_begin, p_end);
}

/* The layout is a constant in every copy. */
#define DEFINE_ROUNDED(name, ID, ...)                                                              \
    static void round_##name(const uint8_t *panel, uint32_t count, uint8_t *pairs) {               \
        round_quant(&quant_layouts[WEFT_DT_##ID], panel, count, pairs);                            \
    }                                                                                              \
    static void gemm_##name##_bf16(const struct weft_gemm_args *args, uint32_t p_begin,            \
                                   uint32_t p_end) {                                               \
        const struct quant_layout *q = &quant_layouts[WEFT_DT_##ID];                               \
        const struct tile_weights weights =                                                        \
            ROUNDED(WEFT_GEMM_##ID##_BF16, q->group, q->bytes, round_##name);                      \
        gemm_tiles(&weights, args, p_begin, p_end);                                                \
    }

QUANT_EACH(DEFINE_ROUNDED)

#define FILL_ROUNDED(name, ID, ...) table->gemm[WEFT_GEMM_##ID##_BF16] = gemm_##name##_bf16;
#define FILL_ROUNDED_ALIKE(name, ID, AS)                                                           \
    table->gemm[WEFT_GEMM_##ID##_BF16] = table->gemm[WEFT_GEMM_##AS##_BF16];

static inline void fill_rounded(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q8_0_BF16] = gemm_q8_bf16;
    QUANT_EACH(FILL_ROUNDED)
    QUANT_ALIKE(FILL_ROUNDED_ALIKE)
}

#endif
