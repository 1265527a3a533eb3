/* kernels/gemm_quant_avx2 — blocks of 32 codes with scales, by activations of 8 bits, for the files
 * with and without AVX-VNNI; integers are exact, so both give the same bits. Without it, vpmaddubsw
 * sums two products in 16 bits, and as many quads as cannot overflow add up there: of codes up to 15
 * all eight of a block, up to 31 four, up to 63 two. Larger ones than 127, IQ4's or Q8's, go by
 * nibbles.
 *
 * Few rows take codes apart in registers. For many rows that is done once, into a buffer in L1,
 * which they meet as loose blocks: [8][16][4] codes, then f32 scales, biases (bias_of) and mins, [16]
 * each of every part that has its own.
 *
 * Many rows without AVX-VNNI meet codes of 8 bits as 16-bit numbers: vpmaddwd and an addition for 16
 * products, which is as many operations as nibbles take, but sums have 32 bits from the beginning.
 * Activations are widened, too, once for all panels. Loose blocks are [8][2][16][2] codes then, less
 * `zero`. */
#ifndef WEFT_KERNELS_GEMM_QUANT_AVX2_H
#define WEFT_KERNELS_GEMM_QUANT_AVX2_H

#include "gemm_dot_avx2.h"
#include "quant.h"

/* 16-bit lanes by a constant, to the right where it is negative. */
ALWAYS_INLINE __m256i shift(__m256i x, int left) {
    return left >= 0 ? _mm256_slli_epi16(x, left) : _mm256_srli_epi16(x, -left);
}

/* 32-bit lanes in the same way, but the other way round. */
ALWAYS_INLINE __m256i halve_words(__m256i x, int times) {
    return times >= 0 ? _mm256_srai_epi32(x, times) : _mm256_slli_epi32(x, -times);
}

/* bits | x & mask */
ALWAYS_INLINE __m256i merge(__m256i bits, __m256i x, char mask) {
    return _mm256_or_si256(bits, _mm256_and_si256(x, _mm256_set1_epi8(mask)));
}

/* Half a line: of the panel's features 0..7 or 8..15. */
ALWAYS_INLINE __m256i load_line(const uint8_t *array, uint32_t line, uint32_t half) {
    const uint8_t *at = array + (size_t)line * QUANT_LINE + (size_t)half * (QUANT_LINE / 2);
    return _mm256_loadu_si256((const void *)at);
}

/* Codes of a quad of a block, of 8 features. */
ALWAYS_INLINE __m256i load_quad(const struct quant_layout *q, const uint8_t *group, uint32_t block,
                                uint32_t quad, uint32_t half) {
    const uint32_t j = quad % 4, upper = quad / 4;
    __m256i codes = _mm256_setzero_si256();
    if (quant_has_nibbles(q)) {
        __m256i both = load_line(group, block * 4 + j, half);
        codes = _mm256_and_si256(shift(both, upper ? -4 : 0), _mm256_set1_epi8(15));
    }
    if (quant_has_pairs(q)) {
        const int bit = (int)quant_pair_bit(q);
        __m256i pairs = load_line(group + q->at_pairs, block * 2 + upper, half);
        codes = merge(codes, shift(pairs, bit - 2 * (int)j), (char)(3 << bit));
    }
    if (quant_has_singles(q)) {
        const int bit = (int)quant_single_bit(q);
        __m256i singles = load_line(group + q->at_singles, block, half);
        codes = merge(codes, shift(singles, bit - (int)quad), (char)(1 << bit));
    }
    if (!quant_is_looked_up(q)) return codes;
    __m128i values = _mm_loadu_si128((const void *)quant_tables[q->table]);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), codes);
}

/* Eight numbers from the 16 of a panel: of f16, or of bytes. */
ALWAYS_INLINE __m256 load_f16(const uint8_t *at, uint32_t half) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at + half));
}

ALWAYS_INLINE __m256 load_whole(const uint8_t *at, uint32_t half, bool is_signed) {
    __m128i bytes = _mm_loadl_epi64((const void *)(at + (size_t)half * HALF));
    return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(bytes)
                                        : _mm256_cvtepu8_epi32(bytes));
}

/* quant_e8m0 and quant_ue4m3 of 8 features. */
ALWAYS_INLINE __m256 e8m0_scales(const uint8_t *at, uint32_t half) {
    const __m128i bytes = _mm_loadl_epi64((const void *)(at + (size_t)half * HALF));
    const __m256i wide = _mm256_cvtepu8_epi32(bytes), two = _mm256_set1_epi32(2);
    __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(wide, _mm256_set1_epi32(1)), 23);
    __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), wide);
    bits = _mm256_blendv_epi8(bits, subnormal, _mm256_cmpgt_epi32(two, wide));
    return _mm256_castsi256_ps(bits);
}

ALWAYS_INLINE __m256 ue4m3_scales(const uint8_t *at, uint32_t half) {
    const __m128i bytes = _mm_loadl_epi64((const void *)(at + (size_t)half * HALF));
    const __m128i halves = _mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(128.0f));
}

ALWAYS_INLINE __m256 load_scale(const struct quant_layout *q, const uint8_t *group, uint32_t sub,
                                uint32_t half) {
    const uint8_t *scales = group + q->at_scales, *super = group + q->at_super;
    if (q->scales == QUANT_F16) return load_f16(scales, half);
    if (q->scales == QUANT_ONE) return load_f16(super, half);
    scales += sub * WEFT_PANEL;
    if (q->scales == QUANT_E8M0) return e8m0_scales(scales, half);
    if (q->scales == QUANT_UE4M3) return ue4m3_scales(scales, half);
    __m256 by = q->scales == QUANT_INTS
                    ? load_f16(super, half)
                    : _mm256_loadu_ps((const float *)(const void *)super + (size_t)half * HALF);
    if (q->scales == QUANT_UE4M3_F32) return _mm256_mul_ps(by, ue4m3_scales(scales, half));
    return _mm256_mul_ps(by, load_whole(scales, half, quant_signed_scales(q)));
}

/* 4_1: as stored; the K types and 4_Z: the amount to subtract. */
ALWAYS_INLINE bool takes_min_away(const struct quant_layout *q) {
    return q->is_super || q->has_zeros;
}

ALWAYS_INLINE __m256 load_min(const struct quant_layout *q, const uint8_t *group, uint32_t sub,
                              uint32_t half) {
    const uint8_t *mins = group + q->at_mins;
    if (!takes_min_away(q)) return load_f16(mins, half);
    __m256 super = q->has_zeros ? load_scale(q, group, sub, half)
                                : load_f16(group + q->at_super + WEFT_PANEL * 2, half);
    return _mm256_mul_ps(super, load_whole(mins + sub * WEFT_PANEL, half, false));
}

enum part { LOW = 1, HIGH = 2, BOTH = 3 }; /* columns 0..15 of a block, 16..31 */

/* Where the codes of a block lie: its group in each half panel, and its number there; or the loose
 * block. */
struct place {
    const uint8_t *groups[HALVES_MAX];
    uint32_t half[HALVES_MAX]; /* of its panel: 0 or 1 */
    uint32_t block;
    const float *from; /* the tile's sums before this block */
};

ALWAYS_INLINE uint32_t parts_of(const struct quant_layout *q) {
    return QUANT_BLOCK / q->sub;
}

ALWAYS_INLINE bool goes_by_nibbles(const struct quant_layout *q) {
    return quant_most(q) > 127 && !HAS_VNNI;
}

enum {
    LOOSE_CODES = 8 * QUANT_LINE,
    LOOSE_FLOATS = WEFT_PANEL * 4, /* bytes */
    LOOSE_STEPS = 4,               /* of a tile, in a block */
};

ALWAYS_INLINE uint32_t loose_scales_at(const struct quant_layout *q) {
    return goes_by_nibbles(q) ? 2 * LOOSE_CODES : LOOSE_CODES; /* as 16-bit numbers */
}

ALWAYS_INLINE uint32_t loose_bytes(const struct quant_layout *q) {
    return loose_scales_at(q) + parts_of(q) * (q->has_min ? 3 : 2) * LOOSE_FLOATS;
}

/* Eight floats of array `i` of those after the codes. */
ALWAYS_INLINE float *loose_floats(const struct quant_layout *q, const uint8_t *block, uint32_t i,
                                  uint32_t half) {
    const uint8_t *at = block + loose_scales_at(q) + (size_t)i * LOOSE_FLOATS;
    return (float *)(uintptr_t)at + (size_t)half * HALF;
}

ALWAYS_INLINE struct quad codes_at(const struct quant_layout *q, const struct place *at, uint32_t h,
                                   uint32_t quad, bool loose) {
    if (loose) return (struct quad){.low = load_line(at->groups[h], quad, at->half[h])};
    const __m256i codes = load_quad(q, at->groups[h], at->block, quad, at->half[h]);
    return goes_by_nibbles(q) ? bytes_of(codes) : (struct quad){.low = codes};
}

ALWAYS_INLINE void put_scale(const struct quant_layout *q, uint8_t *block, uint32_t part,
                             uint32_t half, __m256 scale) {
    _mm256_store_ps(loose_floats(q, block, part, half), scale);
    _mm256_store_ps(loose_floats(q, block, parts_of(q) + part, half), bias_of(scale));
}

/* `part` counts those of the block. */
ALWAYS_INLINE __m256 scale_at(const struct quant_layout *q, const struct place *at, uint32_t h,
                              uint32_t part, bool loose) {
    if (loose) return _mm256_load_ps(loose_floats(q, at->groups[h], part, at->half[h]));
    return load_scale(q, at->groups[h], at->block * parts_of(q) + part, at->half[h]);
}

ALWAYS_INLINE __m256 bias_at(const struct quant_layout *q, const struct place *at, uint32_t h,
                             uint32_t part, bool loose) {
    if (!loose) return bias_of(scale_at(q, at, h, part, loose));
    return _mm256_load_ps(loose_floats(q, at->groups[h], parts_of(q) + part, at->half[h]));
}

ALWAYS_INLINE __m256 min_at(const struct quant_layout *q, const struct place *at, uint32_t h,
                            uint32_t part, bool loose) {
    if (!q->has_min) return _mm256_setzero_ps();
    if (loose)
        return _mm256_load_ps(loose_floats(q, at->groups[h], 2 * parts_of(q) + part, at->half[h]));
    return load_min(q, at->groups[h], at->block * parts_of(q) + part, at->half[h]);
}

/* Half a line's codes of 8 bits as 16-bit numbers: of columns 0 and 1, and of 2 and 3. */
ALWAYS_INLINE void put_words(const struct quant_layout *q, uint8_t *block, uint32_t quad,
                             uint32_t half, __m256i codes) {
    const __m256i zero = _mm256_set1_epi8((char)q->zero);
    const __m128i first = _mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13);
    const __m128i second = _mm_add_epi8(first, _mm_set1_epi16(0x0200));
    __m256i *to = (__m256i *)(void *)(block + (size_t)quad * 2 * QUANT_LINE) + half;
    codes = _mm256_sub_epi8(codes, zero);
    __m256i low = _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(first));
    __m256i high = _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(second));
    _mm256_store_si256(to, _mm256_srai_epi16(low, 8));
    _mm256_store_si256(to + 2, _mm256_srai_epi16(high, 8));
}

/* `count` columns of a panel as loose blocks. */
ALWAYS_INLINE void loosen(const struct quant_layout *q, const uint8_t *panel, uint32_t count,
                          uint8_t *out) {
    const uint32_t n_blocks = count / QUANT_BLOCK, per_group = q->group / QUANT_BLOCK;
    for (uint32_t b = 0; b < n_blocks; b++, out += loose_bytes(q)) {
        struct place at = {.block = b % per_group};
        const uint8_t *group = panel + (size_t)(b / per_group) * q->bytes;
        at.groups[0] = at.groups[1] = group;
        at.half[1] = 1;
#pragma GCC unroll 8
        for (uint32_t quad = 0; quad < 8; quad++) {
            for (uint32_t h = 0; h < 2; h++) {
                __m256i codes = load_quad(q, group, at.block, quad, h);
                __m256i *to = (void *)(out + (size_t)quad * QUANT_LINE);
                if (goes_by_nibbles(q))
                    put_words(q, out, quad, h, codes);
                else
                    _mm256_store_si256(to + h, codes);
            }
        }
        for (uint32_t part = 0; part < parts_of(q); part++) {
            for (uint32_t h = 0; h < 2; h++) {
                put_scale(q, out, part, h, scale_at(q, &at, h, part, false));
                if (q->has_min)
                    _mm256_store_ps(loose_floats(q, out, 2 * parts_of(q) + part, h),
                                    min_at(q, &at, h, part, false));
            }
        }
    }
}

/* Quads whose products fit 16 bits: sums of 2 * 128 times the largest code. */
ALWAYS_INLINE uint32_t quads_of_run(const struct quant_layout *q) {
    if (HAS_VNNI || goes_by_nibbles(q)) return 8;
    const uint32_t most = quant_most(q);
    return most <= 15 ? 8 : most <= 31 ? 4 : most <= 63 ? 2 : 1;
}

/* Adds the products of quads first..end of the block, whose activations begin at word `word`. */
ALWAYS_INLINE void dot_codes(const struct quant_layout *q, const struct place *at, uint32_t halves,
                             struct act_words acts, uint32_t rows, size_t word, uint32_t first,
                             uint32_t end, bool loose, dot_sums dot) {
    struct run run = {
        .rows = rows, .halves = halves, .by_nibbles = goes_by_nibbles(q), .acts = acts};
    start_run(&run);
#pragma GCC unroll 8
    for (uint32_t quad = first; quad < end; quad++) {
        struct quad codes[HALVES_MAX];
        for (uint32_t h = 0; h < halves; h++) {
            codes[h] = codes_at(q, at, h, quad, loose);
        }
        add_quad(&run, codes, word + quad, dot);
    }
    end_run(&run, dot);
}

/* A tile's activations beside their codes, from its first block on. */
struct quant_acts {
    struct act_words codes, scales, offsets, halves, sums;
};

ALWAYS_INLINE struct quant_acts quant_acts_at(const struct tile *t, uint32_t group_rows) {
    const size_t n_all = t->k / QUANT_BLOCK, first = t->k_begin / QUANT_BLOCK;
    return (struct quant_acts){act_words_at(t, group_rows, first * Q8_QUADS),
                               act_words_at(t, group_rows, n_all * Q8_QUADS + first),
                               act_words_at(t, group_rows, n_all * (Q8_QUADS + 1) + first),
                               act_words_at(t, group_rows, n_all * (Q8_QUADS + 2) + first),
                               act_words_at(t, group_rows, n_all * (Q8_QUADS + 3) + first)};
}

/* Where the dots of a row and part begin: codes stand `zero` too high. */
ALWAYS_INLINE __m256i first_dot(const struct quant_layout *q, const struct quant_acts *acts,
                                uint32_t row, size_t b, enum part part) {
    if (!q->zero) return _mm256_setzero_si256();
    __m256i whole = _mm256_srai_epi32(broadcast_word(acts->offsets, row, b), quant_offset_shift(q));
    if (part == BOTH) return whole;
    __m256i low = halve_words(broadcast_word(acts->halves, row, b), quant_halves_shift(q));
    return part == LOW ? low : _mm256_sub_epi32(whole, low);
}

/* What many rows take of a block as 16-bit numbers: scales, then [8][rows][4] codes. */
enum { WORDS_OF_BLOCK = 1 + 2 * Q8_QUADS };

ALWAYS_INLINE void start_words(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,
                               int32_t *out) {
    enum { LINE = MANY_ROWS * ACT_WORD, CODES = Q8_QUADS * LINE };
    const uint8_t *scales = act + ((size_t)k / Q8_GROUP * Q8_QUADS + first) * LINE;
    act += (size_t)first * CODES;
    for (size_t b = 0; b < n_blocks; b++, act += CODES, out += WORDS_OF_BLOCK * MANY_ROWS) {
        memcpy(out, scales + b * LINE, LINE);
        __m256i *to = (void *)(out + MANY_ROWS);
        for (size_t i = 0; i < CODES / sizeof(__m128i); i++) {
            const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)act + i);
            _mm256_storeu_si256(to + i, _mm256_cvtepi8_epi16(codes));
        }
    }
}

/* What is computed beforehand for many rows: those words, where dots begin, or the factors of mins of
 * halves. */
ALWAYS_INLINE bool has_starts(const struct quant_layout *q) {
    return q->zero || parts_of(q) > 1;
}

ALWAYS_INLINE uint32_t n_starts_of(const struct quant_layout *q) {
    return goes_by_nibbles(q) ? WORDS_OF_BLOCK : parts_of(q);
}

ALWAYS_INLINE void start_quant(const struct quant_layout *q, const uint8_t *act, uint32_t k,
                               uint32_t first, uint32_t n_blocks, int32_t *out) {
    if (goes_by_nibbles(q))
        start_words(act, k, first, n_blocks, out);
    else if (!q->zero)
        start_half_sums_at(act, k, first, n_blocks, out);
    else if (parts_of(q) == 1)
        start_dots_at(act, k, first, n_blocks, quant_offset_shift(q), out);
    else
        start_halves_at(act, k, first, n_blocks, quant_offset_shift(q), out);
}

/* The factor of mins: scale times the sum of the part's codes; stored are -32 and -128 times the
 * sums. */
ALWAYS_INLINE __m256 part_sum(const struct quant_acts *acts, uint32_t row, size_t b, enum part part,
                              __m256 by) {
    if (part == BOTH) return broadcast_f32(acts->sums, row, b);
    const __m256i zero = _mm256_setzero_si256();
    __m256i low =
        _mm256_sub_epi32(zero, _mm256_srai_epi32(broadcast_word(acts->halves, row, b), 5));
    __m256i both =
        _mm256_sub_epi32(zero, _mm256_srai_epi32(broadcast_word(acts->offsets, row, b), 7));
    return _mm256_mul_ps(by, _mm256_cvtepi32_ps(part == LOW ? low : _mm256_sub_epi32(both, low)));
}

/* One part of block b for half panels h0... of a tile of `panels`. */
ALWAYS_INLINE void add_part(const struct tile *t, const struct quant_layout *q,
                            const struct quant_acts *acts, const struct place *at, uint32_t rows,
                            uint32_t panels, uint32_t h0, uint32_t halves, size_t b, enum part part,
                            bool loose) {
    const uint32_t first = part == HIGH ? 4 : 0, end = part == LOW ? 4 : 8;
    const size_t i = b * parts_of(q) + (part == HIGH); /* of the scales */
    dot_sums dot;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t h = 0; h < halves; h++) {
            dot[r][h] =
                loose && q->zero ? start_at(t, i, r) : biased(first_dot(q, acts, r, b, part));
        }
    }
    const uint32_t most = quads_of_run(q);
#pragma GCC unroll 4
    for (uint32_t quad = first; quad < end; quad += most) {
        dot_codes(q, at, halves, acts->codes, rows, b * Q8_QUADS, quad,
                  weft_min_u32(quad + most, end), loose, dot);
    }
    const float *from = part == HIGH ? t->acc : at->from;
    for (uint32_t h = 0; h < halves; h++) {
        const __m256 scale = scale_at(q, at, h, part == HIGH, loose);
        const __m256 bias = bias_at(q, at, h, part == HIGH, loose);
        const __m256 min = min_at(q, at, h, part == HIGH, loose);
        for (uint32_t r = 0; r < rows; r++) {
            const __m256 by = broadcast_f32(acts->scales, r, b);
            const size_t to = (size_t)r * panels * WEFT_PANEL + (size_t)(h0 + h) * HALF;
            __m256 sum = add_dot(_mm256_load_ps(from + to), dot[r][h], scale, bias, by);
            if (q->has_min) {
                const __m256 sums = loose && part != BOTH ? _mm256_castsi256_ps(start_at(t, i, r))
                                                          : part_sum(acts, r, b, part, by);
                sum = takes_min_away(q) ? _mm256_fnmadd_ps(sums, min, sum)
                                        : _mm256_fmadd_ps(sums, min, sum);
            }
            _mm256_store_ps(t->acc + to, sum);
        }
    }
}

/* With few rows: this block's share of the lines about FEW_AHEAD further on. */
ALWAYS_INLINE void prefetch_share(const struct tile *t, const struct quant_layout *q,
                                  uint32_t panels, size_t group, uint32_t block) {
    const uint32_t n_blocks = q->group / QUANT_BLOCK, lines = q->bytes / 64;
    const size_t ahead = (FEW_AHEAD + q->bytes - 1) / q->bytes * (size_t)q->bytes;
    const size_t further =
        stream_at(t, group * q->bytes + ahead) + (size_t)lines * block / n_blocks * 64;
    for (uint32_t p = 0; p < panels; p++) {
        const uint8_t *at = t->panels[p] + further;
        for (uint32_t i = 0; i < (lines + n_blocks - 1) / n_blocks; i++) {
            __builtin_prefetch(at + (size_t)i * 64);
        }
    }
}

ALWAYS_INLINE void add_block(const struct tile *t, const struct quant_layout *q,
                             const struct quant_acts *acts, const struct place *at, uint32_t rows,
                             uint32_t panels, uint32_t h0, uint32_t halves, size_t b, bool loose) {
    if (parts_of(q) == 1) {
        add_part(t, q, acts, at, rows, panels, h0, halves, b, BOTH, loose);
    } else {
        add_part(t, q, acts, at, rows, panels, h0, halves, b, LOW, loose);
        add_part(t, q, acts, at, rows, panels, h0, halves, b, HIGH, loose);
    }
}

/* Few rows. */
ALWAYS_INLINE void tile_quant(const struct tile *args, const struct quant_layout *q, uint32_t rows,
                              uint32_t panels) {
    const struct tile t = *args;
    const struct quant_acts acts = quant_acts_at(&t, 1);
    const size_t n_blocks = t.count / QUANT_BLOCK, per_group = q->group / QUANT_BLOCK;
    const uint32_t all = 2 * panels, halves = halves_at_once(rows, all, goes_by_nibbles(q));
    for (size_t b = 0; b < n_blocks; b++) {
        struct place at = {.block = (uint32_t)(b % per_group), .from = b ? t.acc : t.from};
        prefetch_share(&t, q, panels, b / per_group, at.block);
        for (uint32_t h0 = 0; h0 < all; h0 += halves) {
            for (uint32_t h = 0; h < halves; h++) {
                at.groups[h] = t.panels[(h0 + h) / 2] + b / per_group * q->bytes;
                at.half[h] = (h0 + h) % 2;
            }
            add_block(&t, q, &acts, &at, rows, panels, h0, halves, b, false);
        }
    }
}

/* Adds the products of two columns of a block of the tile's rows, from `acts` on. */
ALWAYS_INLINE void add_words(const uint8_t *codes, const int32_t *acts, uint32_t rows,
                             dot_sums dot) {
    const __m256i w[2] = {load_line(codes, 0, 0), load_line(codes, 0, 1)};
    for (uint32_t r = 0; r < rows; r++) {
        const __m256i a = _mm256_set1_epi32(acts[(size_t)2 * r]);
        for (uint32_t h = 0; h < 2; h++) {
            dot[r][h] = _mm256_add_epi32(dot[r][h], _mm256_madd_epi16(w[h], a));
            KEEP_ORDER(dot[r][h]);
        }
    }
}

ALWAYS_INLINE void tile_words(const struct tile *args, const struct quant_layout *q,
                              uint32_t rows) {
    const struct tile t = *args;
    const float *from = t.from;
    for (size_t b = 0; b < t.count / QUANT_BLOCK; b++, from = t.acc) {
        const uint8_t *block = t.panels[0] + b * loose_bytes(q);
        const int32_t *acts = t.starts + b * WORDS_OF_BLOCK * MANY_ROWS;
        dot_sums dot;
        for (uint32_t i = 0; i < 2 * rows; i++) {
            dot[i / 2][i % 2] = _mm256_set1_epi32(DOT_BIAS_BITS);
        }
        for (uint32_t i = 0; i < LOOSE_STEPS; i++) {
            prefetch_step(&t, 1, b * LOOSE_STEPS + i);
        }
#pragma GCC unroll 16
        for (uint32_t i = 0; i < 2 * Q8_QUADS; i++) {
            const size_t at = MANY_ROWS + (size_t)i / 2 * 2 * MANY_ROWS + i % 2;
            add_words(block + (size_t)i * QUANT_LINE, acts + at, rows, dot);
        }
        for (uint32_t h = 0; h < 2; h++) {
            const __m256 scale = _mm256_load_ps(loose_floats(q, block, 0, h));
            const __m256 bias = _mm256_load_ps(loose_floats(q, block, 1, h));
            for (uint32_t r = 0; r < rows; r++) {
                const size_t to = (size_t)r * WEFT_PANEL + (size_t)h * HALF;
                const __m256 by = _mm256_broadcast_ss((const float *)(const void *)acts + r);
                _mm256_store_ps(t.acc + to,
                                add_dot(_mm256_load_ps(from + to), dot[r][h], scale, bias, by));
            }
        }
    }
}

/* Many rows, of one panel in loose blocks. */
ALWAYS_INLINE void tile_loose(const struct tile *args, const struct quant_layout *q,
                              uint32_t rows) {
    if (goes_by_nibbles(q)) {
        tile_words(args, q, rows);
        return;
    }
    const struct tile t = *args;
    const struct quant_acts acts = quant_acts_at(&t, MANY_ROWS);
    const uint32_t halves = halves_at_once(rows, 2, false);
    for (size_t b = 0; b < t.count / QUANT_BLOCK; b++) {
        struct place at = {.block = 0, .from = b ? t.acc : t.from};
        at.groups[0] = at.groups[1] = t.panels[0] + b * loose_bytes(q);
        for (uint32_t i = 0; i < LOOSE_STEPS; i++) {
            prefetch_step(&t, 1, b * LOOSE_STEPS + i);
        }
        for (uint32_t h0 = 0; h0 < 2; h0 += halves) {
            at.half[0] = h0;
            at.half[1] = 1;
            add_block(&t, q, &acts, &at, rows, 1, h0, halves, b, true);
        }
    }
}

#endif
