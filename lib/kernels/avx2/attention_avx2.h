/* kernels/attention_avx2 — attention with AVX2, for the files with and without AVX-VNNI.
 * Scores: 8 sums, which are 4 queries x 16 tokens or 1 query x 64; a K vector holds 8 tokens of one
 * step of the head. Values: 4 queries x 16 elements or 1 x 64. */
#ifndef WEFT_KERNELS_ATTENTION_AVX2_H
#define WEFT_KERNELS_ATTENTION_AVX2_H

#include <immintrin.h>

#include "attention_tile.h"

#define ATTN_HAS_PAIRS 0

enum { LANES8 = 8, SUMS = 8, PIECE = 4 };

ALWAYS_INLINE __m256i load_words(const uint8_t *base, size_t word) {
    return _mm256_loadu_si256((const void *)(base + word * sizeof(uint32_t)));
}

ALWAYS_INLINE __m256i word_of(const uint32_t *words, size_t at) {
    return _mm256_set1_epi32((int32_t)words[at]);
}

ALWAYS_INLINE __m256 load8(const uint8_t *base, size_t at, enum attn_form form) {
    if (form == FORM_F32) return _mm256_loadu_ps((const float *)(const void *)base + at);
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)(base + at * 2)));
}

ALWAYS_INLINE __m256 even_of(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

ALWAYS_INLINE __m256 odd_of(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int32_t)0xffff0000u)));
}

static inline void widen_f16(const uint8_t *codes, size_t n, float *out) {
    for (size_t i = 0; i < n; i += LANES8) {
        _mm256_storeu_ps(out + i, load8(codes, i, FORM_F16));
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

/* Where K has pairs of elements of 16 tokens, V has pairs of tokens: of two elements of four tokens,
 * those of tokens 0 and 1 come to stand side by side, and those of 2 and 3. */
static inline void latent_pairs(const uint8_t *k, uint32_t n, uint8_t *v) {
    const __m128i by = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    uint32_t d = 0;
    for (; d + 2 <= n; d += 2) {
        for (uint32_t four = 0; four < ATTN_SUB / 4; four++) {
            const uint8_t *from = k + kv_k_at(2, four * 4, d) * sizeof(uint16_t);
            __m128i x = _mm_shuffle_epi8(_mm_loadu_si128((const void *)from), by);
            uint8_t *to = v + ((size_t)four * 2 * n + d) * 4;
            _mm_storel_epi64((void *)to, x);
            _mm_storel_epi64((void *)(to + (size_t)n * 4), _mm_unpackhi_epi64(x, x));
        }
    }
    for (; d < n; d++) {
        for (uint32_t token = 0; token < ATTN_SUB; token++) {
            memcpy(v + kv_v_at(2, n, token, d) * 2, k + kv_k_at(2, token, d) * 2, 2);
        }
    }
}

/* Where K has fours of elements of 16 tokens, V has fours of tokens: 4 x 4 bytes change places. */
static inline void latent_fours(const uint8_t *k, uint32_t n, uint8_t *v) {
    const __m128i by = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    uint32_t d = 0;
    for (; d + 4 <= n; d += 4) {
        for (uint32_t four = 0; four < ATTN_SUB / 4; four++) {
            const uint8_t *from = k + kv_k_at(4, four * 4, d);
            __m128i x = _mm_shuffle_epi8(_mm_loadu_si128((const void *)from), by);
            _mm_storeu_si128((void *)(v + ((size_t)four * n + d) * 4), x);
        }
    }
    for (; d < n; d++) {
        for (uint32_t token = 0; token < ATTN_SUB; token++) {
            v[kv_v_at(4, n, token, d)] = k[kv_k_at(4, token, d)];
        }
    }
}

/* Codes of 16 numbers as words: of each four the first and third, then the others. A lane has a four
 * of `a`, and one of `b`. */
ALWAYS_INLINE __m256i halves_of(__m256 a, __m256 b, __m256 inverse) {
    const __m256i by = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    __m256i codes = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(a, inverse)),
                                       _mm256_cvtps_epi32(_mm256_mul_ps(b, inverse)));
    return _mm256_shuffle_epi8(codes, by);
}

static inline void fours_of(const float *x, uint32_t n, float inverse, uint32_t *words) {
    for (uint32_t i = 0; i < n; i += 2 * LANES8) {
        __m256i halves = halves_of(_mm256_loadu_ps(x + i), _mm256_loadu_ps(x + i + LANES8),
                                   _mm256_set1_ps(inverse));
        _mm256_storeu_si256((void *)(words + i / 2), _mm256_permute4x64_epi64(halves, 0xd8));
    }
}

/* Where halves_of leaves the words of a four of tokens. */
ALWAYS_INLINE uint32_t weight_at(uint32_t part, uint32_t four) {
    return four / 4 * 8 + four % 2 * 4 + four / 2 % 2 * 2 + part;
}

ALWAYS_INLINE float code_weights(const float *p, const float *scales, uint32_t *words) {
    enum { VECTORS = ATTN_TILE / LANES8 };
    const __m256 zero = _mm256_setzero_ps();
    __m256 w[VECTORS];
    uint32_t bits[LANES8], max_bits = 0;
    __m256i most = _mm256_setzero_si256();
    for (uint32_t i = 0; i < VECTORS; i++) {
        __m256 x = _mm256_load_ps(p + (size_t)i * LANES8);
        __m256 scaled = _mm256_mul_ps(x, _mm256_load_ps(scales + (size_t)i * LANES8));
        w[i] = _mm256_and_ps(scaled, _mm256_cmp_ps(x, zero, _CMP_GT_OQ));
        __m256i magnitude =
            _mm256_and_si256(_mm256_castps_si256(w[i]), _mm256_set1_epi32(0x7fffffff));
        most = _mm256_max_epu32(most, magnitude);
    }
    _mm256_storeu_si256((void *)bits, most);
    for (uint32_t i = 0; i < LANES8; i++) {
        max_bits = bits[i] > max_bits ? bits[i] : max_bits;
    }
    const __m256 inverse = _mm256_set1_ps(code_inverse(max_bits));
    for (uint32_t i = 0; i < VECTORS; i += 2) {
        _mm256_store_si256((void *)(words + (size_t)i * LANES8 / 2),
                           halves_of(w[i], w[i + 1], inverse));
    }
    return code_scale(max_bits);
}

/* Fours of codes and of bytes, as 16-bit numbers: even and odd ones. */
ALWAYS_INLINE __m256i add_fours(__m256i sum, __m256i even_bytes, __m256i odd_bytes, __m256i even,
                                __m256i odd) {
#ifdef __AVXVNNI__
    return _mm256_dpwssd_avx_epi32(_mm256_dpwssd_avx_epi32(sum, even_bytes, even), odd_bytes, odd);
#else
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even_bytes, even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(odd_bytes, odd));
#endif
}

ALWAYS_INLINE __m256i even_bytes_of(__m256i fours) {
    return _mm256_srai_epi16(_mm256_slli_epi16(fours, 8), 8);
}

ALWAYS_INLINE __m256i odd_bytes_of(__m256i fours) {
    return _mm256_srai_epi16(fours, 8);
}

/* -------------------------------------------------------------------------------- scores --- */

/* Tokens 16 * sub .. 16 * (sub + subs) of the tile for n queries: n * subs <= 4. */
ALWAYS_INLINE void score_f32(const struct score_job *job, enum attn_form form, uint32_t n,
                             uint32_t sub, uint32_t subs) {
    const struct attn_tile *tile = job->tile;
    const uint32_t *words = job->words;
    union attn_weights *p = job->p;
    const float *q = (const void *)words;
    __m256 sum[PIECE][SUMS];
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < subs * 2; v++) {
            sum[i][v] = _mm256_setzero_ps();
        }
    }
    const size_t step = form == FORM_BF16 ? 2 : 1, head_dim = tile->head_dim;
    const size_t whole = head_dim / step * step;
    for (size_t d = 0; d < whole; d += step) {
        for (uint32_t v = 0; v < subs * 2; v++) {
            const uint8_t *k = tile->k[sub + v / 2], *next = tile->after_k[sub + v / 2];
            const size_t at = d / step * ATTN_SUB + (size_t)v % 2 * LANES8;
            if (v % 2 == 0) __builtin_prefetch(next + at * (form == FORM_F16 ? 2 : 4));
            __m256 key, odd;
            if (form == FORM_BF16) {
                __m256i pairs = load_words(k, at);
                key = even_of(pairs);
                odd = odd_of(pairs);
            } else {
                key = load8(k, at, form);
            }
            for (uint32_t i = 0; i < n; i++) {
                __m256 a = _mm256_broadcast_ss(&q[d * QUERY_BATCH + i]);
                sum[i][v] = _mm256_fmadd_ps(a, key, sum[i][v]);
            }
            for (uint32_t i = 0; i < n && form == FORM_BF16; i++) {
                __m256 a = _mm256_broadcast_ss(&q[(d + 1) * QUERY_BATCH + i]);
                sum[i][v] = _mm256_fmadd_ps(a, odd, sum[i][v]);
            }
        }
    }
    for (uint32_t v = 0; v < subs * 2 && whole < head_dim; v++) {
        const size_t at = whole / 2 * ATTN_SUB + (size_t)v % 2 * LANES8;
        __m256 key = even_of(load_words(tile->k[sub + v / 2], at));
        for (uint32_t i = 0; i < n; i++) {
            __m256 a = _mm256_broadcast_ss(&q[whole * QUERY_BATCH + i]);
            sum[i][v] = _mm256_fmadd_ps(a, key, sum[i][v]);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < subs * 2; v++) {
            _mm256_store_ps(&p[i].p[sub * ATTN_SUB + v * LANES8], sum[i][v]);
        }
    }
}

ALWAYS_INLINE void score_fours(const struct score_job *job, uint32_t n, uint32_t sub,
                               uint32_t subs) {
    const struct attn_tile *tile = job->tile;
    const uint32_t *words = job->words;
    union attn_weights *p = job->p;
    __m256i sum[PIECE][SUMS];
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < subs * 2; v++) {
            sum[i][v] = _mm256_setzero_si256();
        }
    }
    const uint32_t n_fours = (tile->head_dim + 3) / 4;
    for (size_t four = 0; four < n_fours; four++) {
        for (uint32_t v = 0; v < subs * 2; v++) {
            __m256i key =
                load_words(tile->k[sub + v / 2], four * ATTN_SUB + (size_t)v % 2 * LANES8);
            __m256i low = even_bytes_of(key), high = odd_bytes_of(key);
            for (uint32_t i = 0; i < n; i++) {
                sum[i][v] =
                    add_fours(sum[i][v], low, high, word_of(words, 2 * four * QUERY_BATCH + i),
                              word_of(words, (2 * four + 1) * QUERY_BATCH + i));
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < subs * 2; v++) {
            _mm256_store_si256((void *)&p[i].words[sub * ATTN_SUB + v * LANES8], sum[i][v]);
        }
    }
}

ALWAYS_INLINE void score_some(const struct score_job *job, enum attn_form form, uint32_t n,
                              uint32_t sub, uint32_t subs) {
    if (form == FORM_FOURS)
        score_fours(job, n, sub, subs);
    else
        score_f32(job, form, n, sub, subs);
}

ALWAYS_INLINE void score_piece(const struct score_job *job, enum attn_form form, uint32_t n_all,
                               uint32_t n_subs) {
    const uint32_t n = n_all < PIECE ? n_all : PIECE, together = PIECE / n;
    for (uint32_t i = 0; i < n_all; i += n) {
        struct score_job some = *job;
        some.words += i;
        some.p += i;
        uint32_t sub = 0;
        for (; sub + together <= n_subs; sub += together) {
            score_some(&some, form, n, sub, together);
        }
        for (; sub < n_subs; sub++) {
            score_some(&some, form, n, sub, 1);
        }
    }
}

/* -------------------------------------------------------------------------------- values --- */

/* Elements d .. d + 8 * vectors of the head; the last, incomplete vector has `count`. */
struct columns {
    size_t d;
    uint32_t vectors, count;
};

ALWAYS_INLINE __m256i mask_of(uint32_t count) {
    const __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)count), at);
}

ALWAYS_INLINE __m256i load_columns(const uint8_t *base, size_t word, const struct columns *c) {
    if (c->count == LANES8) return load_words(base, word);
    return _mm256_maskload_epi32((const int *)(const void *)base + word, mask_of(c->count));
}

ALWAYS_INLINE __m256 load_elements(const uint8_t *base, size_t at, enum attn_form form,
                                   const struct columns *c) {
    if (c->count == LANES8) return load8(base, at, form);
    if (form == FORM_F32) return _mm256_castsi256_ps(load_columns(base, at, c));
    uint8_t halves[16] = {0};
    memcpy(halves, base + at * 2, (size_t)c->count * 2);
    return load8(halves, 0, FORM_F16);
}

typedef __m256 value_sums[PIECE][SUMS];

ALWAYS_INLINE void value_start(const struct value_job *job, uint32_t n, const struct columns *c,
                               value_sums sum) {
    for (uint32_t i = 0; i < n; i++) {
        __m256 fade = _mm256_set1_ps(job->folds[i].fade);
        for (uint32_t v = 0; v < c->vectors; v++) {
            const float *out = job->queries[i].out + c->d + (size_t)v * LANES8;
            __m256 before = c->count == LANES8 ? _mm256_loadu_ps(out)
                                               : _mm256_maskload_ps(out, mask_of(c->count));
            sum[i][v] = _mm256_mul_ps(fade, before);
        }
    }
}

ALWAYS_INLINE void value_end(const struct value_job *job, uint32_t n, const struct columns *c,
                             value_sums sum) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < c->vectors; v++) {
            float *out = job->queries[i].out + c->d + (size_t)v * LANES8;
            if (c->count == LANES8)
                _mm256_storeu_ps(out, sum[i][v]);
            else
                _mm256_maskstore_ps(out, mask_of(c->count), sum[i][v]);
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
        for (uint32_t v = 0; v < c->vectors; v++) {
            if (v % 2 == 0)
                __builtin_prefetch(next + (at + (size_t)v * LANES8) * (form == FORM_F16 ? 2 : 4));
            __m256 value = load_elements(base, at + (size_t)v * LANES8, form, c);
            for (uint32_t i = 0; i < n; i++) {
                sum[i][v] = _mm256_fmadd_ps(_mm256_broadcast_ss(&p[i].p[j]), value, sum[i][v]);
            }
        }
    }
}

struct pair_of {
    uint32_t pair;
    bool has_first, has_second;
};

/* Both tokens of a pair, or one of them. */
ALWAYS_INLINE void value_pair(const struct value_job *job, uint32_t n, struct pair_of of,
                              const struct columns *c, value_sums sum) {
    const struct attn_tile *tile = job->tile;
    const union attn_weights *p = job->p;
    const uint32_t pair = of.pair;
    const uint8_t *base = tile->v[pair / (ATTN_SUB / 2)];
    const uint8_t *next = tile->after_v[pair / (ATTN_SUB / 2)];
    const size_t at = pair % (ATTN_SUB / 2) * (size_t)tile->value_dim + c->d;
    for (uint32_t v = 0; v < c->vectors; v++) {
        if (v % 2 == 0) __builtin_prefetch(next + (at + (size_t)v * LANES8) * sizeof(uint32_t));
        __m256i value = load_columns(base, at + (size_t)v * LANES8, c);
        __m256 first = even_of(value), second = odd_of(value);
        for (uint32_t i = 0; i < n && of.has_first; i++) {
            __m256 weight = _mm256_broadcast_ss(&p[i].p[2 * pair]);
            sum[i][v] = _mm256_fmadd_ps(weight, first, sum[i][v]);
        }
        for (uint32_t i = 0; i < n && of.has_second; i++) {
            __m256 weight = _mm256_broadcast_ss(&p[i].p[2 * pair + 1]);
            sum[i][v] = _mm256_fmadd_ps(weight, second, sum[i][v]);
        }
    }
}

ALWAYS_INLINE void value_pairs(const struct value_job *job, uint32_t n, const struct columns *c,
                               value_sums sum) {
    const uint32_t j0 = job->j0, j1 = job->j1;
    uint32_t pair = j0 / 2;
    if (j0 % 2) value_pair(job, n, (struct pair_of){pair++, false, true}, c, sum);
    for (; pair < j1 / 2; pair++) {
        value_pair(job, n, (struct pair_of){pair, true, true}, c, sum);
    }
    if (j1 % 2 && j1 > j0) value_pair(job, n, (struct pair_of){pair, true, false}, c, sum);
}

ALWAYS_INLINE void value_fours(const struct value_job *job, uint32_t n, const struct columns *c,
                               value_sums sum) {
    const struct attn_tile *tile = job->tile;
    const union attn_weights *p = job->p;
    __m256i dot[PIECE][SUMS];
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < c->vectors; v++) {
            dot[i][v] = _mm256_setzero_si256();
        }
    }
    for (uint32_t four = job->j0 / 4; four < (job->j1 + 3) / 4; four++) {
        const uint8_t *base = tile->v[four / 4], *next = tile->after_v[four / 4];
        const size_t at = four % 4 * (size_t)tile->value_dim + c->d;
        for (uint32_t v = 0; v < c->vectors; v++) {
            if (v % 2 == 0) __builtin_prefetch(next + (at + (size_t)v * LANES8) * sizeof(uint32_t));
            __m256i value = load_columns(base, at + (size_t)v * LANES8, c);
            __m256i low = even_bytes_of(value), high = odd_bytes_of(value);
            for (uint32_t i = 0; i < n; i++) {
                dot[i][v] = add_fours(dot[i][v], low, high, word_of(p[i].words, weight_at(0, four)),
                                      word_of(p[i].words, weight_at(1, four)));
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const __m256 scale = _mm256_set1_ps(job->folds[i].scale);
        for (uint32_t v = 0; v < c->vectors; v++) {
            sum[i][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[i][v]), scale, sum[i][v]);
        }
    }
}

ALWAYS_INLINE void value_columns(const struct value_job *job, enum attn_form form, uint32_t n,
                                 struct columns c) {
    value_sums sum;
    value_start(job, n, &c, sum);
    if (form == FORM_FOURS)
        value_fours(job, n, &c, sum);
    else if (form == FORM_BF16)
        value_pairs(job, n, &c, sum);
    else
        value_tokens(job, form, n, &c, sum);
    value_end(job, n, &c, sum);
}

ALWAYS_INLINE void value_piece(const struct value_job *job, enum attn_form form, uint32_t n_all) {
    const uint32_t n = n_all < PIECE ? n_all : PIECE, vectors = SUMS / n, wide = vectors * LANES8;
    for (uint32_t i = 0; i < n_all; i += n) {
        const struct value_job some = {job->tile,      job->queries + i, job->p + i,
                                       job->folds + i, job->j0,          job->j1};
        uint32_t d = 0, value_dim = job->tile->value_dim;
        for (; d + wide <= value_dim; d += wide) {
            value_columns(&some, form, n, (struct columns){d, vectors, LANES8});
        }
        for (; d + LANES8 <= value_dim; d += LANES8) {
            value_columns(&some, form, n, (struct columns){d, 1, LANES8});
        }
        if (d < value_dim) {
            value_columns(&some, form, n, (struct columns){d, 1, value_dim - d});
        }
    }
}

#include "attention_body.h"

#endif
