/* kernels/attention_avx512 — attention with AVX-512, for the files with and without VNNI, BF16 and AMX's
 * tiles (amx/attention_amx.h).
 * Scores: 4 queries x 64 tokens or 8 x 32 are 16 sums; a K vector holds 16 tokens of one step of the
 * head. Values: 4 queries x 64 elements or 8 x 32 are 16 sums; tokens are broadcast. */
#ifndef WEFT_KERNELS_ATTENTION_AVX512_H
#define WEFT_KERNELS_ATTENTION_AVX512_H

#include <immintrin.h>

#include "attention_tile.h"

#ifdef __AVX512BF16__
#define ATTN_HAS_PAIRS 1
#else
#define ATTN_HAS_PAIRS 0
#endif

enum { VECTORS_MAX = 4 };

/* Sums that live across a loop have the type that the dot product uses inside: between two types of
 * vectors gcc 12 copies every register in every step. */
typedef int32_t lanes __attribute__((vector_size(64)));

ALWAYS_INLINE __m512i load_words(const uint8_t *base, size_t word) {
    return _mm512_loadu_si512(base + word * sizeof(uint32_t));
}

ALWAYS_INLINE __m512i word_of(const uint32_t *words, size_t at) {
    return _mm512_set1_epi32((int32_t)words[at]);
}

ALWAYS_INLINE __m512 float_of(const uint32_t *words, size_t at) {
    return _mm512_castsi512_ps(word_of(words, at));
}

ALWAYS_INLINE __m512 load16(const uint8_t *base, size_t at, enum attn_form form) {
    if (form == FORM_F32) return _mm512_loadu_ps(base + at * 4);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(base + at * 2)));
}

/* The same for the elements of `mask`; nothing after them is touched. */
ALWAYS_INLINE __m512 load_some(const uint8_t *base, size_t at, __mmask16 mask,
                               enum attn_form form) {
    if (form == FORM_F32) return _mm512_maskz_loadu_ps(mask, base + at * 4);
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, base + at * 2));
}

ALWAYS_INLINE __m512 even_of(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

ALWAYS_INLINE __m512 odd_of(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int32_t)0xffff0000u)));
}

static inline void widen_f16(const uint8_t *codes, size_t n, float *out) {
    for (size_t i = 0; i < n; i += 16) {
        _mm512_storeu_ps(out + i, load16(codes, i, FORM_F16));
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

/* 4 x 4 lanes of 128 bits. */
ALWAYS_INLINE void transpose_lanes(const __m512i x[4], __m512i out[4]) {
    __m512i a = _mm512_shuffle_i64x2(x[0], x[1], 0x44), b = _mm512_shuffle_i64x2(x[0], x[1], 0xee);
    __m512i c = _mm512_shuffle_i64x2(x[2], x[3], 0x44), d = _mm512_shuffle_i64x2(x[2], x[3], 0xee);
    out[0] = _mm512_shuffle_i64x2(a, c, 0x88);
    out[1] = _mm512_shuffle_i64x2(a, c, 0xdd);
    out[2] = _mm512_shuffle_i64x2(b, d, 0x88);
    out[3] = _mm512_shuffle_i64x2(b, d, 0xdd);
}

/* Where K has pairs of elements of 16 tokens, V has pairs of tokens: a shuffle within each vector
 * of two elements makes pairs of tokens, and those of eight vectors change places. */
static inline void latent_pairs(const uint8_t *k, uint32_t n, uint8_t *v) {
    _Alignas(64) uint16_t order[32];
    for (uint32_t i = 0; i < 32; i++) { /* pair i / 4, of elements 0 0 1 1, tokens 0 1 0 1 */
        order[i] = (uint16_t)((i / 4 * 2 + i % 2) * 2 + i / 2 % 2);
    }
    const __m512i by = _mm512_load_si512(order);
    uint32_t d = 0;
    for (; d + 16 <= n; d += 16) {
        __m512i x[8], low[4], high[4], even[4], odd[4];
        for (uint32_t i = 0; i < 8; i++) {
            x[i] = _mm512_permutexvar_epi16(by, load_words(k, (size_t)(d / 2 + i) * ATTN_SUB));
        }
        for (uint32_t i = 0; i < 4; i++) {
            low[i] = _mm512_unpacklo_epi64(x[2 * i], x[2 * i + 1]);
            high[i] = _mm512_unpackhi_epi64(x[2 * i], x[2 * i + 1]);
        }
        transpose_lanes(low, even);
        transpose_lanes(high, odd);
        for (uint32_t i = 0; i < 4; i++) {
            _mm512_storeu_si512(v + ((size_t)(2 * i) * n + d) * 4, even[i]);
            _mm512_storeu_si512(v + ((size_t)(2 * i + 1) * n + d) * 4, odd[i]);
        }
    }
    for (; d < n; d++) {
        for (uint32_t token = 0; token < ATTN_SUB; token++) {
            memcpy(v + kv_v_at(2, n, token, d) * 2, k + kv_k_at(2, token, d) * 2, 2);
        }
    }
}

/* The same with fours: 4 x 4 bytes within a lane. */
static inline void latent_fours(const uint8_t *k, uint32_t n, uint8_t *v) {
    const __m512i by =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    uint32_t d = 0;
    for (; d + 16 <= n; d += 16) {
        __m512i x[4], out[4];
        for (uint32_t i = 0; i < 4; i++) {
            x[i] = _mm512_shuffle_epi8(load_words(k, (size_t)(d / 4 + i) * ATTN_SUB), by);
        }
        transpose_lanes(x, out);
        for (uint32_t i = 0; i < 4; i++) {
            _mm512_storeu_si512(v + ((size_t)i * n + d) * 4, out[i]);
        }
    }
    for (; d < n; d++) {
        for (uint32_t token = 0; token < ATTN_SUB; token++) {
            v[kv_v_at(4, n, token, d)] = k[kv_k_at(4, token, d)];
        }
    }
}

/* Codes of 32 numbers as words: of each four the first and third, then the others. A lane has a four
 * of `a`, and one of `b`. */
ALWAYS_INLINE __m512i halves_of(__m512 a, __m512 b, __m512 inverse) {
    const __m512i by =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    __m512i codes = _mm512_packs_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)),
                                       _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
    return _mm512_shuffle_epi8(codes, by);
}

static inline void fours_of(const float *x, uint32_t n, float inverse, uint32_t *words) {
    const __m512i in_order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    for (uint32_t i = 0; i < n; i += 16) {
        __m512 a = _mm512_loadu_ps(x + i);
        __m512i halves = halves_of(a, a, _mm512_set1_ps(inverse));
        halves = _mm512_permutexvar_epi64(in_order, halves);
        _mm256_storeu_si256((void *)(words + i / 2), _mm512_castsi512_si256(halves));
    }
}

/* Where halves_of leaves the words of a four of tokens. */
ALWAYS_INLINE uint32_t weight_at(uint32_t part, uint32_t four) {
    return four / 8 * 16 + four % 4 * 4 + four / 4 % 2 * 2 + part;
}

/* A tile's weights p * scales, 0 where p is; returns the largest one's bits. */
ALWAYS_INLINE uint32_t scale_weights(const float *p, const float *scales, __m512 w[4]) {
    __m512 zero = _mm512_setzero_ps();
    __m512i most = _mm512_setzero_si512();
    for (uint32_t i = 0; i < 4; i++) {
        __m512 x = _mm512_load_ps(p + (size_t)i * 16);
        __mmask16 seen = _mm512_cmp_ps_mask(x, zero, _CMP_GT_OQ);
        w[i] = _mm512_maskz_mul_ps(seen, x, _mm512_load_ps(scales + (size_t)i * 16));
        most = _mm512_max_epu32(most, _mm512_castps_si512(_mm512_abs_ps(w[i])));
    }
    return _mm512_reduce_max_epu32(most);
}

ALWAYS_INLINE float code_weights(const float *p, const float *scales, uint32_t *words) {
    __m512 w[4];
    const uint32_t max_bits = scale_weights(p, scales, w);
    const __m512 inverse = _mm512_set1_ps(code_inverse(max_bits));
    _mm512_store_si512(words, halves_of(w[0], w[1], inverse));
    _mm512_store_si512(words + 16, halves_of(w[2], w[3], inverse));
    return code_scale(max_bits);
}

#if ATTN_HAS_TILES
/* Codes of 64 numbers in two bytes each, both signed: high * 256 + low. Packing takes a lane of each vector at a
 * time. */
ALWAYS_INLINE void bytes_of_64(const __m512 x[4], float inverse, uint8_t *high, uint8_t *low) {
    const __m512i in_order =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i low_bytes = _mm512_set1_epi16(0xff), half = _mm512_set1_epi16(0x80);
    __m512i words[2];
    for (uint32_t i = 0; i < 2; i++) {
        const __m512 a = _mm512_mul_ps(x[2 * i], _mm512_set1_ps(inverse));
        const __m512 b = _mm512_mul_ps(x[2 * i + 1], _mm512_set1_ps(inverse));
        words[i] = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
    }
    __m512i bytes = _mm512_packus_epi16(_mm512_and_si512(words[0], low_bytes),
                                        _mm512_and_si512(words[1], low_bytes));
    _mm512_storeu_si512(low, _mm512_permutexvar_epi32(in_order, bytes));
    bytes = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(words[0], half), 8),
                               _mm512_srai_epi16(_mm512_add_epi16(words[1], half), 8));
    _mm512_storeu_si512(high, _mm512_permutexvar_epi32(in_order, bytes));
}

static inline void bytes_of(const float *x, uint32_t n, float inverse, uint8_t *bytes) {
    for (uint32_t i = 0; i < n; i += 64) {
        __m512 of_64[4];
        for (uint32_t v = 0; v < 4; v++) {
            of_64[v] = _mm512_loadu_ps(x + i + (size_t)v * 16);
        }
        bytes_of_64(of_64, inverse, bytes + i, bytes + n + i);
    }
}

ALWAYS_INLINE float byte_weights(const float *p, const float *scales, uint8_t *bytes) {
    __m512 w[4];
    const uint32_t max_bits = scale_weights(p, scales, w);
    bytes_of_64(w, code_inverse(max_bits), bytes, bytes + ATTN_TILE);
    return code_scale(max_bits);
}
#endif

/* Bytes of each four as 16-bit numbers. */
ALWAYS_INLINE __m512i even_bytes_of(__m512i fours) {
    return _mm512_srai_epi16(_mm512_slli_epi16(fours, 8), 8);
}

ALWAYS_INLINE __m512i odd_bytes_of(__m512i fours) {
    return _mm512_srai_epi16(fours, 8);
}

ALWAYS_INLINE lanes dot_halves(lanes sum, __m512i a, __m512i b) {
#ifdef __AVX512VNNI__
    return (lanes)_mm512_dpwssd_epi32((__m512i)sum, a, b);
#else
    return sum + (lanes)_mm512_madd_epi16(a, b);
#endif
}

/* -------------------------------------------------------------------------------- scores --- */

ALWAYS_INLINE void score_f32(const struct score_job *job, enum attn_form form, uint32_t n,
                             uint32_t sub, uint32_t subs) {
    const struct attn_tile *tile = job->tile;
    const uint32_t *words = job->words;
    union attn_weights *p = job->p;
    __m512 sum[QUERY_BATCH][ATTN_SUBS];
    const uint8_t *k[ATTN_SUBS], *next[ATTN_SUBS];
    for (uint32_t s = 0; s < subs; s++) {
        k[s] = tile->k[sub + s];
        next[s] = tile->after_k[sub + s];
        for (uint32_t i = 0; i < n; i++) {
            sum[i][s] = _mm512_setzero_ps();
        }
    }
    const size_t head_dim = tile->head_dim, whole = form == FORM_BF16 ? head_dim / 2 * 2 : head_dim;
    for (size_t d = 0; d < whole; d += form == FORM_BF16 ? 2 : 1) {
        __m512 key[2][ATTN_SUBS];
        for (uint32_t s = 0; s < subs; s++) {
            if (form == FORM_BF16) {
                __m512i pairs = load_words(k[s], d / 2 * ATTN_SUB);
                __builtin_prefetch(next[s] + d / 2 * 64);
                key[0][s] = even_of(pairs);
                key[1][s] = odd_of(pairs);
            } else {
                __builtin_prefetch(next[s] + d * (form == FORM_F32 ? 64 : 32));
                key[0][s] = load16(k[s], d * ATTN_SUB, form);
            }
        }
        for (uint32_t half = 0; half < (form == FORM_BF16 ? 2 : 1); half++) {
            for (uint32_t i = 0; i < n; i++) {
                __m512 a = float_of(words, (d + half) * QUERY_BATCH + i);
                for (uint32_t s = 0; s < subs; s++) {
                    sum[i][s] = _mm512_fmadd_ps(a, key[half][s], sum[i][s]);
                }
            }
        }
    }
    if (whole < head_dim) {
        for (uint32_t s = 0; s < subs; s++) {
            __m512 key = even_of(load_words(k[s], whole / 2 * ATTN_SUB));
            for (uint32_t i = 0; i < n; i++) {
                __m512 a = float_of(words, whole * QUERY_BATCH + i);
                sum[i][s] = _mm512_fmadd_ps(a, key, sum[i][s]);
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t s = 0; s < subs; s++) {
            _mm512_store_ps(&p[i].p[(sub + s) * ATTN_SUB], sum[i][s]);
        }
    }
}

#if ATTN_HAS_PAIRS
ALWAYS_INLINE lanes dot_pairs(lanes sum, __m512i a, __m512i b) {
    return (lanes)_mm512_castps_si512(
        _mm512_dpbf16_ps(_mm512_castsi512_ps((__m512i)sum), (__m512bh)a, (__m512bh)b));
}
#endif

/* PAIRS and FOURS. */
ALWAYS_INLINE void score_dots(const struct score_job *job, enum attn_form form, uint32_t n,
                              uint32_t sub, uint32_t subs) {
    const struct attn_tile *tile = job->tile;
    const uint32_t *words = job->words;
    union attn_weights *p = job->p;
    lanes sum[QUERY_BATCH][ATTN_SUBS];
    const uint8_t *k[ATTN_SUBS], *next[ATTN_SUBS];
    for (uint32_t s = 0; s < subs; s++) {
        k[s] = tile->k[sub + s];
        next[s] = tile->after_k[sub + s];
        for (uint32_t i = 0; i < n; i++) {
            sum[i][s] = (lanes)_mm512_setzero_si512();
        }
    }
    const uint32_t unit = form_unit(form), n_steps = (tile->head_dim + unit - 1) / unit;
    for (size_t w = 0; w < n_steps; w++) {
        __m512i key[ATTN_SUBS], odd[ATTN_SUBS];
        for (uint32_t s = 0; s < subs; s++) {
            key[s] = load_words(k[s], w * ATTN_SUB);
            __builtin_prefetch(next[s] + w * 64);
            if (form != FORM_FOURS) continue;
            odd[s] = odd_bytes_of(key[s]);
            key[s] = even_bytes_of(key[s]);
        }
        for (uint32_t i = 0; i < n && form == FORM_FOURS; i++) {
            __m512i a = word_of(words, 2 * w * QUERY_BATCH + i);
            for (uint32_t s = 0; s < subs; s++) {
                sum[i][s] = dot_halves(sum[i][s], key[s], a);
            }
        }
        for (uint32_t i = 0; i < n && form == FORM_FOURS; i++) {
            __m512i a = word_of(words, (2 * w + 1) * QUERY_BATCH + i);
            for (uint32_t s = 0; s < subs; s++) {
                sum[i][s] = dot_halves(sum[i][s], odd[s], a);
            }
        }
#if ATTN_HAS_PAIRS
        for (uint32_t i = 0; i < n && form == FORM_PAIRS; i++) {
            __m512i a = word_of(words, w * QUERY_BATCH + i);
            for (uint32_t s = 0; s < subs; s++) {
                sum[i][s] = dot_pairs(sum[i][s], key[s], a);
            }
        }
#endif
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t s = 0; s < subs; s++) {
            _mm512_store_si512(&p[i].words[(sub + s) * ATTN_SUB], (__m512i)sum[i][s]);
        }
    }
}

ALWAYS_INLINE void score_some(const struct score_job *job, enum attn_form form, uint32_t n,
                              uint32_t sub, uint32_t subs) {
    if (form == FORM_PAIRS || form == FORM_FOURS)
        score_dots(job, form, n, sub, subs);
    else
        score_f32(job, form, n, sub, subs);
}

ALWAYS_INLINE void score_piece(const struct score_job *job, enum attn_form form, uint32_t n,
                               uint32_t n_subs) {
    const uint32_t subs = n == QUERY_BATCH ? ATTN_SUBS / 2 : ATTN_SUBS;
    uint32_t sub = 0;
#if ATTN_HAS_TILES
    if (is_tiled(form)) {
        if (form == FORM_TILES)
            score_tiles(job, n_subs);
        else
            score_bytes(job, n, n_subs);
        return;
    }
#endif
    for (; sub + subs <= n_subs; sub += subs) {
        score_some(job, form, n, sub, subs);
    }
    for (; sub < n_subs; sub++) {
        score_some(job, form, n, sub, 1);
    }
}

/* -------------------------------------------------------------------------------- values --- */

/* Elements d .. d + 16 * vectors of the head; `mask` is for the last, incomplete vector. */
struct columns {
    size_t d;
    uint32_t vectors;
    __mmask16 mask;
};

ALWAYS_INLINE __m512i load_columns(const uint8_t *base, size_t word, const struct columns *c) {
    if (c->vectors > 1) return load_words(base, word);
    return _mm512_maskz_loadu_epi32(c->mask, base + word * sizeof(uint32_t));
}

typedef __m512 value_sums[QUERY_BATCH][VECTORS_MAX];

ALWAYS_INLINE void value_start(const struct value_job *job, uint32_t n, const struct columns *c,
                               value_sums sum) {
    for (uint32_t i = 0; i < n; i++) {
        __m512 fade = _mm512_set1_ps(job->folds[i].fade);
        for (uint32_t v = 0; v < c->vectors; v++) {
            const float *out = job->queries[i].out + c->d + (size_t)v * 16;
            sum[i][v] = _mm512_mul_ps(fade, _mm512_maskz_loadu_ps(c->mask, out));
        }
    }
}

ALWAYS_INLINE void value_end(const struct value_job *job, uint32_t n, const struct columns *c,
                             value_sums sum) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < c->vectors; v++) {
            _mm512_mask_storeu_ps(job->queries[i].out + c->d + (size_t)v * 16, c->mask, sum[i][v]);
        }
    }
}

/* F32 and F16: token by token. */
ALWAYS_INLINE void value_tokens(const struct value_job *job, enum attn_form form, uint32_t n,
                                const struct columns *c, value_sums sum) {
    const struct attn_tile *tile = job->tile;
    const union attn_weights *p = job->p;
    for (uint32_t j = job->j0; j < job->j1; j++) {
        const uint8_t *base = tile->v[j / ATTN_SUB], *next = tile->after_v[j / ATTN_SUB];
        const size_t at = j % ATTN_SUB * (size_t)tile->value_dim + c->d;
        __m512 value[VECTORS_MAX];
        for (uint32_t v = 0; v < c->vectors; v++) {
            __builtin_prefetch(next + (at + (size_t)v * 16) * (form == FORM_F32 ? 4 : 2));
            value[v] = c->vectors > 1 ? load16(base, at + (size_t)v * 16, form)
                                      : load_some(base, at, c->mask, form);
        }
        for (uint32_t i = 0; i < n; i++) {
            __m512 weight = _mm512_set1_ps(p[i].p[j]);
            for (uint32_t v = 0; v < c->vectors; v++) {
                sum[i][v] = _mm512_fmadd_ps(weight, value[v], sum[i][v]);
            }
        }
    }
}

enum which { FIRST = 1, SECOND = 2, BOTH = 3 };
struct pair_of {
    uint32_t pair;
    enum which which;
};

/* A pair of tokens, or one of them. */
ALWAYS_INLINE void value_pair(const struct value_job *job, enum attn_form form, uint32_t n,
                              struct pair_of pair_of, const struct columns *c, value_sums sum) {
    const struct attn_tile *tile = job->tile;
    const union attn_weights *p = job->p;
    const uint32_t pair = pair_of.pair;
    const enum which which = pair_of.which;
    const uint8_t *base = tile->v[pair / (ATTN_SUB / 2)];
    const uint8_t *next = tile->after_v[pair / (ATTN_SUB / 2)];
    const size_t at = pair % (ATTN_SUB / 2) * (size_t)tile->value_dim + c->d;
    __m512i value[VECTORS_MAX];
    for (uint32_t v = 0; v < c->vectors; v++) {
        __builtin_prefetch(next + (at + (size_t)v * 16) * sizeof(uint32_t));
        value[v] = load_columns(base, at + (size_t)v * 16, c);
    }
#if ATTN_HAS_PAIRS
    if (form == FORM_PAIRS) {
        const __m512i seen = _mm512_set1_epi32(which == FIRST ? 0xffff : (int32_t)0xffff0000u);
        for (uint32_t v = 0; v < c->vectors && which != BOTH; v++) {
            value[v] = _mm512_and_si512(value[v], seen);
        }
        for (uint32_t i = 0; i < n; i++) {
            __m512i weight = word_of(p[i].words, pair);
            for (uint32_t v = 0; v < c->vectors; v++) {
                sum[i][v] = _mm512_dpbf16_ps(sum[i][v], (__m512bh)value[v], (__m512bh)weight);
            }
        }
        return;
    }
#endif
    (void)form;
    for (uint32_t half = 0; half < 2; half++) {
        if (!(which & (half ? SECOND : FIRST))) continue;
        for (uint32_t i = 0; i < n; i++) {
            __m512 weight = _mm512_set1_ps(p[i].p[2 * pair + half]);
            for (uint32_t v = 0; v < c->vectors; v++) {
                __m512 x = half ? odd_of(value[v]) : even_of(value[v]);
                sum[i][v] = _mm512_fmadd_ps(weight, x, sum[i][v]);
            }
        }
    }
}

ALWAYS_INLINE void value_pairs(const struct value_job *job, enum attn_form form, uint32_t n,
                               const struct columns *c, value_sums sum) {
    const uint32_t j0 = job->j0, j1 = job->j1;
    uint32_t pair = j0 / 2;
    if (j0 % 2) value_pair(job, form, n, (struct pair_of){pair++, SECOND}, c, sum);
    for (; pair < j1 / 2; pair++) {
        value_pair(job, form, n, (struct pair_of){pair, BOTH}, c, sum);
    }
    if (j1 % 2 && j1 > j0) value_pair(job, form, n, (struct pair_of){pair, FIRST}, c, sum);
}

ALWAYS_INLINE void value_fours(const struct value_job *job, uint32_t n, const struct columns *c,
                               value_sums sum) {
    const struct attn_tile *tile = job->tile;
    const union attn_weights *p = job->p;
    lanes dot[QUERY_BATCH][VECTORS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < c->vectors; v++) {
            dot[i][v] = (lanes)_mm512_setzero_si512();
        }
    }
    for (uint32_t four = job->j0 / 4; four < (job->j1 + 3) / 4; four++) {
        const uint8_t *base = tile->v[four / 4], *next = tile->after_v[four / 4];
        const size_t at = four % 4 * (size_t)tile->value_dim + c->d;
        __m512i even[VECTORS_MAX], odd[VECTORS_MAX];
        for (uint32_t v = 0; v < c->vectors; v++) {
            __m512i value = load_columns(base, at + (size_t)v * 16, c);
            __builtin_prefetch(next + (at + (size_t)v * 16) * sizeof(uint32_t));
            even[v] = even_bytes_of(value);
            odd[v] = odd_bytes_of(value);
        }
        for (uint32_t i = 0; i < n; i++) {
            __m512i weight = word_of(p[i].words, weight_at(0, four));
            for (uint32_t v = 0; v < c->vectors; v++) {
                dot[i][v] = dot_halves(dot[i][v], even[v], weight);
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            __m512i weight = word_of(p[i].words, weight_at(1, four));
            for (uint32_t v = 0; v < c->vectors; v++) {
                dot[i][v] = dot_halves(dot[i][v], odd[v], weight);
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const __m512 scale = _mm512_set1_ps(job->folds[i].scale);
        for (uint32_t v = 0; v < c->vectors; v++) {
            sum[i][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps((__m512i)dot[i][v]), scale, sum[i][v]);
        }
    }
}

ALWAYS_INLINE void value_columns(const struct value_job *job, enum attn_form form, uint32_t n,
                                 struct columns c) {
    value_sums sum;
    value_start(job, n, &c, sum);
    if (form == FORM_FOURS)
        value_fours(job, n, &c, sum);
    else if (form == FORM_PAIRS || form == FORM_BF16)
        value_pairs(job, form, n, &c, sum);
    else
        value_tokens(job, form, n, &c, sum);
    value_end(job, n, &c, sum);
}

ALWAYS_INLINE void value_piece(const struct value_job *job, enum attn_form form, uint32_t n) {
    const uint32_t vectors = n == QUERY_BATCH ? 2 : VECTORS_MAX, value_dim = job->tile->value_dim;
    uint32_t d = 0;
#if ATTN_HAS_TILES
    if (is_tiled(form)) {
        if (form == FORM_TILES)
            value_tiles(job, n);
        else
            value_bytes(job, n);
        return;
    }
#endif
    for (; d + vectors * 16 <= value_dim; d += vectors * 16) {
        value_columns(job, form, n, (struct columns){d, vectors, 0xffff});
    }
    if (vectors > 2 && d + 32 <= value_dim) { /* side by side: a single one waits for each sum */
        value_columns(job, form, n, (struct columns){d, 2, 0xffff});
        d += 32;
    }
    for (; d < value_dim; d += 16) {
        uint32_t left = value_dim - d;
        __mmask16 mask = (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1u);
        value_columns(job, form, n, (struct columns){d, 1, mask});
    }
}

#include "attention_body.h"

#endif
