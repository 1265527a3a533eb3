/* kernels/gemm_dot_avx2 — dot products of 8 bits in registers, for the files with and without
 * AVX-VNNI; integers are exact, so both give the same bits.
 *
 * Weights are unsigned bytes (Q8, int8: code + 128), activations signed ones. vpdpbusd sums four
 * products in 32 bits. Without it there is vpmaddubsw, which sums two in 16 bits, and saturates. So
 * it sees small codes only, and of those of 8 bits one nibble after the other: products of nibbles
 * are so small that eight quads of them add up in 16 bits (8 * 2 * 15 * 128 = 30,720), to be
 * widened once, the high ones times 16. Per 32 products that makes two multiplications and two
 * additions; even and odd bytes as 16-bit numbers (vpmaddwd) take as many, and both operands must
 * be widened.
 *
 * A part of a tile is `rows` rows times `halves` half panels of 8 features. With 12 sums of 16 or
 * 32 bits, two weights, one broadcast and one product, registers are full. */
#ifndef WEFT_KERNELS_GEMM_DOT_AVX2_H
#define WEFT_KERNELS_GEMM_DOT_AVX2_H

#include "gemm_avx2.h"

enum {
    RUN_QUADS = 8, /* whose nibbles' products fit 16 bits */
    DOT_SUMS_MAX = 12,
    HALVES_MAX = 2 * FEW_PANELS,
};

#ifdef __AVXVNNI__
enum { HAS_VNNI = true };
#else
enum { HAS_VNNI = false };
#endif

/* Half panels of `all` that `rows` rows take at once. */
ALWAYS_INLINE uint32_t halves_at_once(uint32_t rows, uint32_t all, bool by_nibbles) {
    uint32_t most = (by_nibbles && !HAS_VNNI ? DOT_SUMS_MAX / 2 : DOT_SUMS_MAX) / rows;
    return most >= all ? all : most >= 2 ? 2 : 1;
}

typedef __m256i dot_sums[MANY_ROWS][HALVES_MAX];

/* No instruction, but a sum that the compiler cannot see through: it would add up products in
 * another order, which changes no bit, and keep all of them in memory until then. */
#define KEEP_ORDER(sum) __asm__("" : "+x"(sum))

/* What of a quad's codes meets activations: all of it, or one nibble after the other. */
struct quad {
    __m256i low, high;
};

ALWAYS_INLINE struct quad bytes_of(__m256i codes) {
    if (HAS_VNNI) return (struct quad){.low = codes};
    const __m256i nibble = _mm256_set1_epi8(15);
    return (struct quad){_mm256_and_si256(codes, nibble),
                         _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)};
}

/* A run of quads: sums of 16 bits that end up in those of 32. */
struct run {
    uint32_t rows, halves;
    bool by_nibbles; /* codes have 8 bits */
    struct act_words acts;
    dot_sums low, high;
};

/* add_quad adds the products of a quad of each half panel, by word `word` of the activations. */
#ifdef __AVXVNNI__
ALWAYS_INLINE void start_run(struct run *run) {
    (void)run;
}

ALWAYS_INLINE void add_quad(struct run *run, const struct quad *codes, size_t word, dot_sums dot) {
    for (uint32_t r = 0; r < run->rows; r++) {
        __m256i a = broadcast_word(run->acts, r, word);
        for (uint32_t h = 0; h < run->halves; h++) {
            dot[r][h] = _mm256_dpbusd_avx_epi32(dot[r][h], codes[h].low, a);
        }
    }
}

ALWAYS_INLINE void end_run(struct run *run, dot_sums dot) {
    (void)run;
    (void)dot;
}
#else
ALWAYS_INLINE void start_run(struct run *run) {
    for (uint32_t r = 0; r < run->rows; r++) {
        for (uint32_t h = 0; h < run->halves; h++) {
            run->low[r][h] = run->high[r][h] = _mm256_setzero_si256();
        }
    }
}

ALWAYS_INLINE __m256i add_products(__m256i sum, __m256i codes, __m256i a) {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, a));
    KEEP_ORDER(sum);
    return sum;
}

ALWAYS_INLINE void add_quad(struct run *run, const struct quad *codes, size_t word, dot_sums dot) {
    (void)dot;
    for (uint32_t r = 0; r < run->rows; r++) {
        __m256i a = broadcast_word(run->acts, r, word);
        for (uint32_t h = 0; h < run->halves; h++) {
            run->low[r][h] = add_products(run->low[r][h], codes[h].low, a);
            if (run->by_nibbles) run->high[r][h] = add_products(run->high[r][h], codes[h].high, a);
        }
    }
}

ALWAYS_INLINE void end_run(struct run *run, dot_sums dot) {
    for (uint32_t r = 0; r < run->rows; r++) {
        for (uint32_t h = 0; h < run->halves; h++) {
            __m256i ones = _mm256_madd_epi16(run->low[r][h], _mm256_set1_epi16(1));
            dot[r][h] = _mm256_add_epi32(dot[r][h], ones);
            if (!run->by_nibbles) continue;
            __m256i sixteens = _mm256_madd_epi16(run->high[r][h], _mm256_set1_epi16(16));
            dot[r][h] = _mm256_add_epi32(dot[r][h], sixteens);
        }
    }
}
#endif

/* A run of n_quads quads of bytes, RUN_QUADS at most: of half panel h from w[h] on, 64 bytes apart;
 * by words `word`... of the activations. */
ALWAYS_INLINE void dot_bytes(const uint8_t *const *w, uint32_t halves, struct act_words acts,
                             uint32_t rows, size_t word, size_t n_quads, dot_sums dot) {
    struct run run = {.rows = rows, .halves = halves, .by_nibbles = true, .acts = acts};
    start_run(&run);
#pragma GCC unroll 8
    for (size_t q = 0; q < n_quads; q++) {
        struct quad codes[HALVES_MAX];
        for (uint32_t h = 0; h < halves; h++) {
            codes[h] = bytes_of(_mm256_loadu_si256((const void *)(w[h] + q * I8_QUAD_BYTES)));
        }
        add_quad(&run, codes, word + q, dot);
    }
    end_run(&run, dot);
}

/* A block's dot becomes a float by its bits: it begins at those of 1.5 * 2^23, whose last place is
 * worth 1. One FMA with the weights' scale, and -1.5 * 2^23 times it to take the beginning away, is
 * dot * scale, rounded once, as both factors are exact; a second one multiplies by the activations'
 * scale and adds. */
ALWAYS_INLINE __m256i biased(__m256i start) {
    return _mm256_add_epi32(start, _mm256_set1_epi32(DOT_BIAS_BITS));
}

ALWAYS_INLINE __m256 bias_of(__m256 scale) {
    return _mm256_mul_ps(scale, _mm256_set1_ps(-DOT_BIAS));
}

/* sum + dot * scale * by; `bias` is bias_of(scale). */
ALWAYS_INLINE __m256 add_dot(__m256 sum, __m256i dot, __m256 scale, __m256 bias, __m256 by) {
    return _mm256_fmadd_ps(_mm256_fmadd_ps(_mm256_castsi256_ps(dot), scale, bias), by, sum);
}

/* What dots of interleaved rows begin with: -128 * 2^-shift times the sum of their codes. */
ALWAYS_INLINE void start_dots_at(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,
                                 int shift, int32_t *out) {
    const int32_t *offsets = (const int32_t *)(const void *)act +
                             ((size_t)k / Q8_GROUP * (Q8_QUADS + 1) + first) * MANY_ROWS;
    for (size_t i = 0; i < (size_t)n_blocks * MANY_ROWS; i++) {
        out[i] = biased_word(offsets[i] >> shift, 0);
    }
}

/* The same for each half of a block; of the first half there are -32 times the sum. */
ALWAYS_INLINE void start_halves_at(const uint8_t *act, uint32_t k, uint32_t first,
                                   uint32_t n_blocks, int shift, int32_t *out) {
    const size_t n_all = k / Q8_GROUP;
    const int32_t *offsets =
        (const int32_t *)(const void *)act + (n_all * (Q8_QUADS + 1) + first) * MANY_ROWS;
    const int32_t *halves = offsets + n_all * MANY_ROWS;
    for (size_t b = 0; b < n_blocks; b++, out += (size_t)2 * MANY_ROWS) {
        for (size_t r = 0; r < MANY_ROWS; r++) {
            int32_t low = shifted_right(halves[b * MANY_ROWS + r], shift - 2);
            out[r] = biased_word(low, 0);
            out[MANY_ROWS + r] = biased_word(offsets[b * MANY_ROWS + r] >> shift, low);
        }
    }
}

/* Halves of blocks with mins have dots that begin at nothing, and need in that place what mins are
 * multiplied by: scale times the sum of the half's codes. */
ALWAYS_INLINE void start_half_sums_at(const uint8_t *act, uint32_t k, uint32_t first,
                                      uint32_t n_blocks, int32_t *out) {
    const size_t n_all = k / Q8_GROUP, line = n_all * MANY_ROWS;
    const float *scales = (const float *)(const void *)act + Q8_QUADS * line + first * MANY_ROWS;
    const int32_t *offsets = (const int32_t *)(const void *)(scales + line),
                  *halves = offsets + line;
    float *sums = (void *)out;
    for (size_t b = 0; b < n_blocks; b++, sums += (size_t)2 * MANY_ROWS) {
        for (size_t r = 0; r < MANY_ROWS; r++) {
            const size_t at = b * MANY_ROWS + r;
            int32_t low = -(halves[at] >> 5);
            sums[r] = scales[at] * (float)low;
            sums[MANY_ROWS + r] = scales[at] * (float)(-(offsets[at] >> 7) - low);
        }
    }
}

/* Of row r and scale i of a tile. */
ALWAYS_INLINE __m256i start_at(const struct tile *t, size_t i, uint32_t r) {
    return _mm256_set1_epi32(t->starts[i * MANY_ROWS + r]);
}

/* What such a run prefetches, `at` bytes and `step` steps into the tile's part of each panel. */
ALWAYS_INLINE void prefetch_run(const struct tile *t, uint32_t panels, uint32_t group_rows,
                                size_t step, size_t at) {
    const size_t further = group_rows > 1 ? 0 : stream_at(t, at + FEW_AHEAD);
    for (uint32_t q = 0; q < RUN_QUADS; q++) {
        if (group_rows > 1) prefetch_step(t, panels, step + q);
        for (uint32_t p = 0; p < panels && group_rows == 1; p++) {
            __builtin_prefetch(t->panels[p] + further + (size_t)q * I8_QUAD_BYTES);
        }
    }
}

#endif
