/* Attention with AVX-512. Scores: 4 queries x 64 tokens are 16 sums; a K vector holds 16 tokens of
 * one element of the head. Values: 4 queries x 64 elements are 16 sums; tokens are broadcast. */
#include <immintrin.h>

#include "attention_tile.h"

enum { VALUE_VECTORS = 4 };

ALWAYS_INLINE __m512 load16(const uint8_t *base, size_t at, enum weft_kv_dtype dtype) {
    if (dtype == WEFT_KV_F32) return _mm512_loadu_ps(base + at * 4);
    if (dtype == WEFT_KV_INT8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(base + at))));
    __m256i half = _mm256_loadu_si256((const void *)(base + at * 2));
    if (dtype == WEFT_KV_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* The same for the elements of `mask`; nothing after them is touched. */
ALWAYS_INLINE __m512 load_some(const uint8_t *base, size_t at, __mmask16 mask,
                               enum weft_kv_dtype dtype) {
    if (dtype == WEFT_KV_F32) return _mm512_maskz_loadu_ps(mask, base + at * 4);
    if (dtype == WEFT_KV_INT8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, base + at)));
    __m256i half = _mm256_maskz_loadu_epi16(mask, base + at * 2);
    if (dtype == WEFT_KV_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline void widen_codes(const uint8_t *codes, uint32_t n, enum weft_kv_dtype dtype,
                               float *out) {
    for (uint32_t i = 0; i < n; i += 16) {
        _mm512_store_ps(out + i, load16(codes, i, dtype));
    }
}

/* 16 x 16 in four rounds of pairs, each twice as far apart. */
static inline void transpose16(const float *from, float *to, size_t to_stride) {
    __m512 a[16], b[16];
    for (uint32_t i = 0; i < 16; i++) {
        a[i] = _mm512_load_ps(from + (size_t)i * 16);
    }
    for (uint32_t i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (uint32_t i = 0; i < 16; i += 4) {
        __m512d low0 = _mm512_castps_pd(b[i]), high0 = _mm512_castps_pd(b[i + 1]);
        __m512d low1 = _mm512_castps_pd(b[i + 2]), high1 = _mm512_castps_pd(b[i + 3]);
        a[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(low0, low1));
        a[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low0, low1));
        a[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high0, high1));
        a[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high0, high1));
    }
    for (uint32_t i = 0; i < 4; i++) {
        b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
        b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
    }
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t half = i / 4 * 4, row = i % 4;
        _mm512_storeu_ps(to + (half + row) * to_stride,
                         _mm512_shuffle_f32x4(b[half + row], b[half + row + 8], 0x88));
        _mm512_storeu_ps(to + (8 + half + row) * to_stride,
                         _mm512_shuffle_f32x4(b[half + row], b[half + row + 8], 0xdd));
    }
}

static inline void transpose(const float *from, uint32_t n, float *to) {
    uint32_t d = 0;
    for (; d + 16 <= n; d += 16) {
        transpose16(from + (size_t)d * 16, to + d, n);
    }
    for (; d < n; d++) {
        for (uint32_t token = 0; token < ATTN_SUB; token++) {
            to[(size_t)token * n + d] = from[(size_t)d * ATTN_SUB + token];
        }
    }
}

ALWAYS_INLINE float tile_max(const float p[ATTN_TILE]) {
    __m512 low = _mm512_max_ps(_mm512_load_ps(p), _mm512_load_ps(p + 16));
    __m512 high = _mm512_max_ps(_mm512_load_ps(p + 32), _mm512_load_ps(p + 48));
    return _mm512_reduce_max_ps(_mm512_max_ps(low, high));
}

/* Halves onto each other, down to one. */
ALWAYS_INLINE float tile_sum(const float p[ATTN_TILE]) {
    __m512 even = _mm512_add_ps(_mm512_load_ps(p), _mm512_load_ps(p + 32));
    __m512 odd = _mm512_add_ps(_mm512_load_ps(p + 16), _mm512_load_ps(p + 48));
    __m512 all = _mm512_add_ps(even, odd);
    __m256 of8 = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    __m128 of4 = _mm_add_ps(_mm256_castps256_ps128(of8), _mm256_extractf128_ps(of8, 1));
    __m128 of2 = _mm_add_ps(of4, _mm_movehl_ps(of4, of4));
    return _mm_cvtss_f32(_mm_add_ss(of2, _mm_movehdup_ps(of2)));
}

ALWAYS_INLINE void score_block(const struct attn_tile *tile, const struct attn_query *queries,
                               uint32_t n, uint32_t sub, uint32_t subs, enum weft_kv_dtype dtype,
                               float (*p)[ATTN_TILE]) {
    __m512 sum[QUERY_BATCH][ATTN_SUBS];
    const float *q[QUERY_BATCH];
    const uint8_t *k[ATTN_SUBS];
    for (uint32_t i = 0; i < n; i++) {
        q[i] = queries[i].q;
        for (uint32_t s = 0; s < subs; s++) {
            sum[i][s] = _mm512_setzero_ps();
        }
    }
    for (uint32_t s = 0; s < subs; s++) {
        k[s] = tile->k[sub + s];
    }
    size_t d = 0, head_dim = tile->head_dim;
    do {
        __m512 key[ATTN_SUBS];
        for (uint32_t s = 0; s < subs; s++) {
            key[s] = load16(k[s], d * ATTN_SUB, dtype);
        }
        for (uint32_t i = 0; i < n; i++) {
            __m512 a = _mm512_set1_ps(q[i][d]);
            for (uint32_t s = 0; s < subs; s++) {
                sum[i][s] = _mm512_fmadd_ps(a, key[s], sum[i][s]);
            }
        }
    } while (++d < head_dim);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t s = 0; s < subs; s++) {
            _mm512_store_ps(&p[i][(sub + s) * ATTN_SUB], sum[i][s]);
        }
    }
}

ALWAYS_INLINE void score_queries(const struct attn_tile *tile, const struct attn_query *queries,
                                 uint32_t n, uint32_t n_subs, enum weft_kv_dtype dtype,
                                 float (*p)[ATTN_TILE]) {
    if (n_subs == ATTN_SUBS) {
        score_block(tile, queries, n, 0, ATTN_SUBS, dtype, p);
        return;
    }
    for (uint32_t sub = 0; sub < n_subs; sub++) {
        score_block(tile, queries, n, sub, 1, dtype, p);
    }
}

/* Elements d .. d + 16 * vectors of the head; `mask` is for the last, incomplete vector. */
ALWAYS_INLINE void value_block(const struct attn_tile *tile, const struct attn_query *queries,
                               uint32_t n, size_t d, uint32_t vectors, __mmask16 mask,
                               enum weft_kv_dtype dtype, float (*p)[ATTN_TILE], const float *fade,
                               uint32_t j0, uint32_t j1) {
    __m512 sum[QUERY_BATCH][VALUE_VECTORS];
    for (uint32_t i = 0; i < n; i++) {
        __m512 f = _mm512_set1_ps(fade[i]);
        for (uint32_t v = 0; v < vectors; v++) {
            sum[i][v] =
                _mm512_mul_ps(f, _mm512_maskz_loadu_ps(mask, queries[i].out + d + (size_t)v * 16));
        }
    }
    const size_t value_dim = tile->value_dim;
    const uint8_t *base = NULL;
    size_t at = 0;
    for (uint32_t j = j0; j < j1; j++, at += value_dim) {
        if (j == j0 || j % ATTN_SUB == 0) {
            base = tile->v[j / ATTN_SUB];
            at = j % ATTN_SUB * value_dim + d;
        }
        __m512 value[VALUE_VECTORS];
        for (uint32_t v = 0; v < vectors; v++) {
            value[v] = vectors > 1 ? load16(base, at + (size_t)v * 16, dtype)
                                   : load_some(base, at, mask, dtype);
        }
        for (uint32_t i = 0; i < n; i++) {
            __m512 weight = _mm512_set1_ps(p[i][j]);
            for (uint32_t v = 0; v < vectors; v++) {
                sum[i][v] = _mm512_fmadd_ps(weight, value[v], sum[i][v]);
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < vectors; v++) {
            _mm512_mask_storeu_ps(queries[i].out + d + (size_t)v * 16, mask, sum[i][v]);
        }
    }
}

ALWAYS_INLINE void value_queries(const struct attn_tile *tile, const struct attn_query *queries,
                                 uint32_t n, enum weft_kv_dtype dtype, float (*p)[ATTN_TILE],
                                 const float *fade, uint32_t j0, uint32_t j1) {
    uint32_t d = 0, value_dim = tile->value_dim;
    for (; d + VALUE_VECTORS * 16 <= value_dim; d += VALUE_VECTORS * 16) {
        value_block(tile, queries, n, d, VALUE_VECTORS, 0xffff, dtype, p, fade, j0, j1);
    }
    if (d + 32 <=
        value_dim) { /* side by side: a single vector waits for each sum before the next */
        value_block(tile, queries, n, d, 2, 0xffff, dtype, p, fade, j0, j1);
        d += 32;
    }
    for (; d < value_dim; d += 16) {
        uint32_t left = value_dim - d;
        __mmask16 mask = (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1u);
        value_block(tile, queries, n, d, 1, mask, dtype, p, fade, j0, j1);
    }
}

#include "attention_body.h"

void wefti_kern_fill_attention_avx512(struct weft_kern_table *table) {
    fill_attention(table);
}
