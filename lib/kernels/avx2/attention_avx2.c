/* Attention with AVX2. Scores: 8 sums, which are 4 queries x 16 tokens or 1 query x 64; a K vector
 * holds 8 tokens of one element of the head. Values: 4 queries x 16 elements or 1 x 64. */
#include <immintrin.h>

#include "attention_tile.h"

enum { LANES8 = 8, SUMS = 8 };

ALWAYS_INLINE __m256 load8(const uint8_t *base, size_t at, enum weft_kv_dtype dtype) {
    if (dtype == WEFT_KV_F32) return _mm256_loadu_ps((const float *)(const void *)base + at);
    if (dtype == WEFT_KV_INT8)
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(base + at))));
    __m128i half = _mm_loadu_si128((const void *)(base + at * 2));
    if (dtype == WEFT_KV_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static inline void widen_codes(const uint8_t *codes, uint32_t n, enum weft_kv_dtype dtype,
                               float *out) {
    for (uint32_t i = 0; i < n; i += LANES8) {
        _mm256_store_ps(out + i, load8(codes, i, dtype));
    }
}

/* Elements d..d+8 of 8 tokens: from[8][16] to to[8][stride], by pairs, pairs of them and halves. */
static inline void transpose8(const float *from, float *to, size_t to_stride) {
    __m256 a[LANES8], b[LANES8];
    for (uint32_t i = 0; i < LANES8; i++) {
        a[i] = _mm256_load_ps(from + (size_t)i * ATTN_SUB);
    }
    for (uint32_t i = 0; i < LANES8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (uint32_t i = 0; i < LANES8; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    for (uint32_t i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * to_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * to_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}

static inline void transpose(const float *from, uint32_t n, float *to) {
    uint32_t d = 0;
    for (; d + LANES8 <= n; d += LANES8) {
        const float *block = from + (size_t)d * ATTN_SUB;
        transpose8(block, to + d, n);
        transpose8(block + LANES8, to + (size_t)LANES8 * n + d, n);
    }
    for (; d < n; d++) {
        for (uint32_t token = 0; token < ATTN_SUB; token++) {
            to[(size_t)token * n + d] = from[(size_t)d * ATTN_SUB + token];
        }
    }
}

ALWAYS_INLINE float tile_max(const float p[ATTN_TILE]) {
    __m256 of8 = _mm256_load_ps(p);
    for (uint32_t j = LANES8; j < ATTN_TILE; j += LANES8) {
        of8 = _mm256_max_ps(of8, _mm256_load_ps(p + j));
    }
    __m128 of4 = _mm_max_ps(_mm256_castps256_ps128(of8), _mm256_extractf128_ps(of8, 1));
    __m128 of2 = _mm_max_ps(of4, _mm_movehl_ps(of4, of4));
    return _mm_cvtss_f32(_mm_max_ss(of2, _mm_movehdup_ps(of2)));
}

/* Halves onto each other, down to one. */
ALWAYS_INLINE float tile_sum(const float p[ATTN_TILE]) {
    __m256 sums[ATTN_TILE / LANES8 / 2];
    for (uint32_t v = 0; v < ATTN_TILE / LANES8 / 2; v++) {
        sums[v] = _mm256_add_ps(_mm256_load_ps(p + (size_t)v * LANES8),
                                _mm256_load_ps(p + ATTN_TILE / 2 + (size_t)v * LANES8));
    }
    __m256 of8 = _mm256_add_ps(_mm256_add_ps(sums[0], sums[2]), _mm256_add_ps(sums[1], sums[3]));
    __m128 of4 = _mm_add_ps(_mm256_castps256_ps128(of8), _mm256_extractf128_ps(of8, 1));
    __m128 of2 = _mm_add_ps(of4, _mm_movehl_ps(of4, of4));
    return _mm_cvtss_f32(_mm_add_ss(of2, _mm_movehdup_ps(of2)));
}

/* Tokens 16 * sub .. 16 * (sub + subs) of the tile for n queries: n * subs <= 4. */
ALWAYS_INLINE void score_block(const struct attn_tile *tile, const struct attn_query *queries,
                               uint32_t n, uint32_t sub, uint32_t subs, enum weft_kv_dtype dtype,
                               float (*p)[ATTN_TILE]) {
    __m256 sum[QUERY_BATCH][SUMS];
    const float *q[QUERY_BATCH];
    for (uint32_t i = 0; i < n; i++) {
        q[i] = queries[i].q;
        for (uint32_t v = 0; v < subs * 2; v++) {
            sum[i][v] = _mm256_setzero_ps();
        }
    }
    const uint8_t *k[ATTN_SUBS];
    for (uint32_t s = 0; s < subs; s++) {
        k[s] = tile->k[sub + s];
    }
    size_t d = 0, head_dim = tile->head_dim;
    do {
        __m256 key[SUMS];
        for (uint32_t v = 0; v < subs * 2; v++) {
            key[v] = load8(k[v / 2], d * ATTN_SUB + (size_t)(v % 2) * LANES8, dtype);
        }
        for (uint32_t i = 0; i < n; i++) {
            __m256 a = _mm256_broadcast_ss(&q[i][d]);
            for (uint32_t v = 0; v < subs * 2; v++) {
                sum[i][v] = _mm256_fmadd_ps(a, key[v], sum[i][v]);
            }
        }
    } while (++d < head_dim);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < subs * 2; v++) {
            _mm256_store_ps(&p[i][sub * ATTN_SUB + v * LANES8], sum[i][v]);
        }
    }
}

ALWAYS_INLINE void score_queries(const struct attn_tile *tile, const struct attn_query *queries,
                                 uint32_t n, uint32_t n_subs, enum weft_kv_dtype dtype,
                                 float (*p)[ATTN_TILE]) {
    const uint32_t together = n == 1 ? 4 : n == 2 ? 2 : 1;
    uint32_t sub = 0;
    for (; sub + together <= n_subs; sub += together) {
        score_block(tile, queries, n, sub, together, dtype, p);
    }
    for (; sub < n_subs; sub++) {
        score_block(tile, queries, n, sub, 1, dtype, p);
    }
}

/* Elements d .. d + 8 * vectors of the head. */
ALWAYS_INLINE void value_block(const struct attn_tile *tile, const struct attn_query *queries,
                               uint32_t n, size_t d, uint32_t vectors, enum weft_kv_dtype dtype,
                               float (*p)[ATTN_TILE], const float *fade, uint32_t j0, uint32_t j1) {
    __m256 sum[QUERY_BATCH][SUMS];
    for (uint32_t i = 0; i < n; i++) {
        __m256 f = _mm256_set1_ps(fade[i]);
        for (uint32_t v = 0; v < vectors; v++) {
            const float *out = queries[i].out + d + (size_t)v * LANES8;
            sum[i][v] = _mm256_mul_ps(f, _mm256_loadu_ps(out));
        }
    }
    size_t value_dim = tile->value_dim;
    for (uint32_t j = j0; j < j1; j++) {
        const uint8_t *base = tile->v[j / ATTN_SUB];
        size_t at = j % ATTN_SUB * value_dim + d;
        __m256 value[SUMS];
        for (uint32_t v = 0; v < vectors; v++) {
            value[v] = load8(base, at + (size_t)v * LANES8, dtype);
        }
        for (uint32_t i = 0; i < n; i++) {
            __m256 weight = _mm256_set1_ps(p[i][j]);
            for (uint32_t v = 0; v < vectors; v++) {
                sum[i][v] = _mm256_fmadd_ps(weight, value[v], sum[i][v]);
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < vectors; v++) {
            _mm256_storeu_ps(queries[i].out + d + (size_t)v * LANES8, sum[i][v]);
        }
    }
}

/* One element of the head, where its size is not a multiple of 8. */
ALWAYS_INLINE void value_scalar(const struct attn_tile *tile, const struct attn_query *query,
                                size_t d, enum weft_kv_dtype dtype, const float *p, float fade,
                                uint32_t j0, uint32_t j1) {
    float sum = query->out[d] * fade;
    for (uint32_t j = j0; j < j1; j++) {
        const uint8_t *base = tile->v[j / ATTN_SUB];
        size_t at = j % ATTN_SUB * (size_t)tile->value_dim + d;
        float value;
        if (dtype == WEFT_KV_F32) {
            memcpy(&value, base + at * 4, sizeof value);
        } else if (dtype == WEFT_KV_INT8) {
            value = (float)(int8_t)base[at];
        } else {
            uint16_t half;
            memcpy(&half, base + at * 2, sizeof half);
            value = dtype == WEFT_KV_F16 ? f16_to_f32(half) : bf16_to_f32(half);
        }
        sum = fmaf(p[j], value, sum);
    }
    query->out[d] = sum;
}

ALWAYS_INLINE void value_queries(const struct attn_tile *tile, const struct attn_query *queries,
                                 uint32_t n, enum weft_kv_dtype dtype, float (*p)[ATTN_TILE],
                                 const float *fade, uint32_t j0, uint32_t j1) {
    const uint32_t vectors = n == 1 ? 8 : n == 2 ? 4 : 2;
    uint32_t d = 0, value_dim = tile->value_dim;
    for (; d + vectors * LANES8 <= value_dim; d += vectors * LANES8) {
        value_block(tile, queries, n, d, vectors, dtype, p, fade, j0, j1);
    }
    for (; d + LANES8 <= value_dim; d += LANES8) {
        value_block(tile, queries, n, d, 1, dtype, p, fade, j0, j1);
    }
    for (; d < value_dim; d++) {
        for (uint32_t i = 0; i < n; i++) {
            value_scalar(tile, &queries[i], d, dtype, p[i], fade[i], j0, j1);
        }
    }
}

#include "attention_body.h"

void wefti_kern_fill_attention_avx2(struct weft_kern_table *table) {
    fill_attention(table);
}
