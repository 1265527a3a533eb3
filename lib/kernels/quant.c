/* Blocks of a file taken apart; quant.h says what they mean. */
#include "quant.h"

#include "quant_grids.h"

/* 16 bytes hold columns 0..15 in their low nibbles and 16..31 in the high ones. */
static void split_nibbles(const uint8_t *packed, uint8_t *codes) {
    for (uint32_t i = 0; i < 16; i++) {
        codes[i] = packed[i] & 15u;
        codes[16 + i] = packed[i] >> 4;
    }
}

/* Eight scales and mins of 6 bits in 12 bytes: the first four of each in the low bits of a byte of
 * their own, the others in nibbles and the two bits left over. */
static void split_scales(const uint8_t packed[12], uint8_t scales[8], uint8_t mins[8]) {
    for (uint32_t i = 0; i < 4; i++) {
        scales[i] = packed[i] & 63u;
        mins[i] = packed[4 + i] & 63u;
        scales[4 + i] = (uint8_t)((packed[8 + i] & 15u) | (uint32_t)packed[i] >> 6 << 4);
        mins[4 + i] = (uint8_t)((uint32_t)packed[8 + i] >> 4 | (uint32_t)packed[4 + i] >> 6 << 4);
    }
}

/* Four times 64 columns: the low nibbles of 32 bytes, then the high ones; `high` (NULL: none) has
 * bit j for block j. */
static void split_k4(const uint8_t *low, const uint8_t *high, uint8_t codes[QUANT_SUPER]) {
    for (uint32_t block = 0; block < 8; block++) {
        for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
            uint32_t byte = low[block / 2 * QUANT_BLOCK + i];
            uint32_t code = block % 2 ? byte >> 4 : byte & 15u;
            if (high) code |= ((uint32_t)high[i] >> block & 1u) << 4;
            codes[block * QUANT_BLOCK + i] = (uint8_t)code;
        }
    }
}

/* 16 bytes of nibbles, and bit i of 32 to column i. */
static void split_5(const uint8_t bits[4], const uint8_t *packed, uint8_t *codes) {
    split_nibbles(packed, codes);
    for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
        codes[i] |= (uint8_t)(((uint32_t)bits[i / 8] >> i % 8 & 1u) << 4);
    }
}

/* Two halves of four blocks: two bits of block j at 2j of 32 bytes go to `bit` of the codes. */
static void add_pairs(const uint8_t *pairs, uint32_t bit, uint8_t codes[QUANT_SUPER]) {
    for (uint32_t k = 0; k < QUANT_SUPER; k++) {
        uint32_t half = k / 128, j = k % 128 / QUANT_BLOCK, i = k % QUANT_BLOCK;
        codes[k] |= (uint8_t)(((uint32_t)pairs[half * QUANT_BLOCK + i] >> 2 * j & 3u) << bit);
    }
}

/* Sixteen signed scales of 6 bits in 12 bytes: nibbles in the first eight, two bits more in the
 * others. */
static void split_scales_k3(const uint8_t packed[12], uint8_t scales[16]) {
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t low = i < 8 ? packed[i] & 15u : packed[i - 8] >> 4;
        uint32_t high = (uint32_t)packed[8 + i % 4] >> i / 4 * 2 & 3u;
        scales[i] = (uint8_t)((low | high << 4) - 32u);
    }
}

/* Bit j of `bits` is the third one of block j. */
static void split_k3(const uint8_t *bits, const uint8_t *pairs, uint8_t codes[QUANT_SUPER]) {
    add_pairs(pairs, 0, codes);
    for (uint32_t k = 0; k < QUANT_SUPER; k++) {
        codes[k] |= (uint8_t)(((uint32_t)bits[k % QUANT_BLOCK] >> k / QUANT_BLOCK & 1u) << 2);
    }
}

/* Two halves of four blocks: nibbles in 64 bytes, the low ones first. */
static void split_k6(const uint8_t *low, const uint8_t *high, uint8_t codes[QUANT_SUPER]) {
    for (uint32_t k = 0; k < QUANT_SUPER; k++) {
        uint32_t half = k / 128, j = k % 128 / QUANT_BLOCK, i = k % QUANT_BLOCK;
        uint32_t byte = low[half * 64 + j % 2 * QUANT_BLOCK + i];
        codes[k] = (uint8_t)(j < 2 ? byte & 15u : byte >> 4);
    }
    add_pairs(high, 4, codes);
}

static uint16_t read_u16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

static void split_q4_0(const uint8_t *src, struct quant_parts *out) {
    out->scale = read_u16(src);
    split_nibbles(src + 2, out->codes);
}

static void split_iq4_nl(const uint8_t *src, struct quant_parts *out) {
    split_q4_0(src, out);
}

static void split_q4_1(const uint8_t *src, struct quant_parts *out) {
    out->scale = read_u16(src);
    out->min = read_u16(src + 2);
    split_nibbles(src + 4, out->codes);
}

static void split_q4_z(const uint8_t *src, struct quant_parts *out) {
    out->scale = read_u16(src);
    out->min = src[2];
    split_nibbles(src + 3, out->codes);
}

static void split_q5_0(const uint8_t *src, struct quant_parts *out) {
    out->scale = read_u16(src);
    split_5(src + 2, src + 6, out->codes);
}

static void split_q5_1(const uint8_t *src, struct quant_parts *out) {
    out->scale = read_u16(src);
    out->min = read_u16(src + 2);
    split_5(src + 4, src + 8, out->codes);
}

/* Scales in the low nibbles of 16 bytes, mins in the high ones. */
static void split_q2_k(const uint8_t *src, struct quant_parts *out) {
    for (uint32_t i = 0; i < 16; i++) {
        out->scales[i] = src[i] & 15u;
        out->mins[i] = src[i] >> 4;
    }
    add_pairs(src + 16, 0, out->codes);
    out->scale = read_u16(src + 80);
    out->min = read_u16(src + 82);
}

static void split_q3_k(const uint8_t *src, struct quant_parts *out) {
    split_k3(src, src + 32, out->codes);
    split_scales_k3(src + 96, out->scales);
    out->scale = read_u16(src + 108);
}

static void split_q4_k(const uint8_t *src, struct quant_parts *out) {
    out->scale = read_u16(src);
    out->min = read_u16(src + 2);
    split_scales(src + 4, out->scales, out->mins);
    split_k4(src + 16, NULL, out->codes);
}

static void split_q5_k(const uint8_t *src, struct quant_parts *out) {
    out->scale = read_u16(src);
    out->min = read_u16(src + 2);
    split_scales(src + 4, out->scales, out->mins);
    split_k4(src + 48, src + 16, out->codes);
}

static void split_q6_k(const uint8_t *src, struct quant_parts *out) {
    split_k6(src, src + 128, out->codes);
    memcpy(out->scales, src + 192, 16);
    out->scale = read_u16(src + 208);
}

/* Eight blocks with signed scales of 6 bits: nibbles in four bytes, two bits more of each in the
 * two before them. */
static void split_iq4_xs(const uint8_t *src, struct quant_parts *out) {
    out->scale = read_u16(src);
    for (uint32_t block = 0; block < 8; block++) {
        uint32_t low = (uint32_t)src[4 + block / 2] >> block % 2 * 4 & 15u;
        uint32_t high = (uint32_t)read_u16(src + 2) >> 2 * block & 3u;
        out->scales[block] = (uint8_t)((low | high << 4) - 32u);
        split_nibbles(src + 8 + (size_t)block * 16, out->codes + (size_t)block * QUANT_BLOCK);
    }
}

/* Five digits of base 3 in a byte, as a fraction of 256 whose highest digit comes first: times 3, each
 * carries over in turn. */
static void split_digits(const uint8_t *packed, uint32_t n_bytes, uint32_t n_digits,
                         uint8_t *codes) {
    for (uint32_t i = 0; i < n_bytes; i++) {
        uint32_t fraction = packed[i];
        for (uint32_t digit = 0; digit < n_digits; digit++, fraction = fraction % 256 * 3) {
            codes[digit * n_bytes + i] = (uint8_t)(fraction % 256 * 3 >> 8);
        }
    }
}

/* 32 bytes of five columns, 16 of them, and 4 of four. */
static void split_tq1_0(const uint8_t *src, struct quant_parts *out) {
    split_digits(src, 32, 5, out->codes);
    split_digits(src + 32, 16, 5, out->codes + 160);
    split_digits(src + 48, 4, 4, out->codes + 240);
    out->scale = read_u16(src + 52);
}

static void split_tq2_0(const uint8_t *src, struct quant_parts *out) {
    add_pairs(src, 0, out->codes);
    out->scale = read_u16(src + 64);
}

/* Zeros have a scale of 1, whatever the file says: it tends to be subnormal, which is slow. */
static void split_mxfp4(const uint8_t *src, struct quant_parts *out) {
    uint32_t magnitudes = 0;
    split_nibbles(src + 1, out->codes);
    for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
        magnitudes |= out->codes[i] & 7u;
    }
    out->scales[0] = magnitudes ? src[0] : 128;
}

/* Four times 16 columns. A sign of a scale means nothing; NaN without one is zero. */
static void split_nvfp4(const uint8_t *src, struct quant_parts *out) {
    for (uint32_t sub = 0; sub < 4; sub++) {
        const uint8_t *packed = src + 4 + (size_t)sub * 8;
        uint8_t *codes = out->codes + (size_t)sub * 16;
        out->scales[sub] = src[sub] == 0x7f ? 0 : src[sub] & 0x7fu;
        for (uint32_t i = 0; i < 8; i++) {
            codes[i] = packed[i] & 15u;
            codes[8 + i] = packed[i] >> 4;
        }
    }
}

/* 17 bits are left of the scale, which is off by at most 2^-18 of itself: a product with one of e4m3
 * has 21 bits then. */
static void split_nvfp4_s(const uint8_t *src, struct quant_parts *out) {
    uint32_t bits;
    memcpy(&bits, src, sizeof bits);
    const bool is_finite = (bits & 0x7f800000u) != 0x7f800000u;
    if (is_finite) bits = (bits + 0x40u) & ~0x7fu;
    split_nvfp4(src + sizeof bits, out);
    out->super = f32_from_bits(bits);
}

enum { POINT = 8 };              /* columns that have a byte of signs */
enum { SIGN_2 = 4, SIGN_3 = 8 }; /* bits of a code */

static uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)read_u16(at) | (uint32_t)read_u16(at + 2) << 16;
}

/* Seven signs are stored; the last makes the number of negative ones even. */
static uint32_t even_signs(uint32_t seven) {
    return seven | (uint32_t)__builtin_parity(seven) << 7;
}

/* A point of IQ1 or IQ2. */
static void put_point(uint32_t point, uint32_t signs, uint8_t codes[POINT]) {
    for (uint32_t i = 0; i < POINT; i++) {
        uint32_t sign = signs >> i & 1u ? SIGN_2 : 0;
        codes[i] = (uint8_t)((point >> 2 * i & 3u) | sign);
    }
}

/* Two points of IQ3. */
static void put_points(uint32_t first, uint32_t second, uint32_t signs, uint8_t codes[POINT]) {
    const uint32_t both = first | second << 12;
    for (uint32_t i = 0; i < POINT; i++) {
        uint32_t sign = signs >> i & 1u ? SIGN_3 : 0;
        codes[i] = (uint8_t)((both >> 3 * i & 7u) | sign);
    }
}

/* A file's scale is d * (s + 1/2), a few times halved: a fraction of d times an odd number. */
static uint8_t odd(uint32_t scale) {
    return (uint8_t)(2 * scale + 1);
}

/* From nibbles, the low ones first. */
static void split_odd(const uint8_t *packed, uint32_t n, uint8_t *scales) {
    for (uint32_t i = 0; i < n; i++) {
        scales[i] = odd((uint32_t)packed[i / 2] >> i % 2 * 4 & 15u);
    }
}

/* `halvings`: by how many times d is halved. */
static float fraction(uint32_t half, uint32_t halvings) {
    return f16_to_f32((uint16_t)half) / (float)(1u << halvings);
}

/* Per 32 columns four bytes of indexes, then four times 7 signs and a scale of 4 bits. */
static void split_iq2_xxs(const uint8_t *src, struct quant_parts *out) {
    out->super = fraction(read_u16(src), 3);
    src += 2;
    for (uint32_t block = 0; block < 8; block++, src += 8) {
        const uint32_t packed = read_u32(src + 4);
        uint8_t *codes = out->codes + (size_t)block * QUANT_BLOCK;
        out->scales[2 * block] = out->scales[2 * block + 1] = odd(packed >> 28);
        for (uint32_t i = 0; i < 4; i++) {
            put_point(wefti_kern_grid_iq2_xxs[src[i]], even_signs(packed >> 7 * i & 127u),
                      codes + (size_t)i * POINT);
        }
    }
}

/* Points of 9 bits of index and 7 signs; then scales of 4 bits per 16 columns. */
static void split_iq2_xs(const uint8_t *src, struct quant_parts *out) {
    const uint8_t *points = src + 2, *scales = points + 64;
    out->super = fraction(read_u16(src), 3);
    for (uint32_t i = 0; i < QUANT_SUPER / POINT; i++) {
        const uint32_t packed = read_u16(points + (size_t)2 * i);
        put_point(wefti_kern_grid_iq2_xs[packed & 511u], even_signs(packed >> 9),
                  out->codes + (size_t)i * POINT);
    }
    split_odd(scales, 16, out->scales);
}

/* Low bytes of indexes, bytes of signs, two bits more of each index, scales as above. */
static void split_iq2_s(const uint8_t *src, struct quant_parts *out) {
    const uint8_t *low = src + 2, *signs = low + 32, *high = signs + 32, *scales = high + 8;
    out->super = fraction(read_u16(src), 3);
    for (uint32_t i = 0; i < QUANT_SUPER / POINT; i++) {
        const uint32_t index = low[i] | ((uint32_t)high[i / 4] >> i % 4 * 2 & 3u) << 8;
        put_point(wefti_kern_grid_iq2_s[index], signs[i], out->codes + (size_t)i * POINT);
    }
    split_odd(scales, 16, out->scales);
}

/* Bytes of indexes; then per 32 columns four times 7 signs and a scale of 4 bits. */
static void split_iq3_xxs(const uint8_t *src, struct quant_parts *out) {
    const uint16_t *grid = wefti_kern_grid_iq3_xxs;
    const uint8_t *points = src + 2, *signs = points + 64;
    out->super = fraction(read_u16(src), 2);
    for (uint32_t i = 0; i < QUANT_SUPER / POINT; i++, points += 2) {
        const uint32_t packed = read_u32(signs + (size_t)(i / 4) * 4);
        out->scales[i / 4] = odd(packed >> 28);
        put_points(grid[points[0]], grid[points[1]], even_signs(packed >> i % 4 * 7 & 127u),
                   out->codes + (size_t)i * POINT);
    }
}

/* Low bytes of indexes, their ninth bits, bytes of signs, scales of 4 bits per 32 columns. */
static void split_iq3_s(const uint8_t *src, struct quant_parts *out) {
    const uint16_t *grid = wefti_kern_grid_iq3_s;
    const uint8_t *low = src + 2, *high = low + 64, *signs = high + 8, *scales = signs + 32;
    out->super = fraction(read_u16(src), 0);
    for (uint32_t i = 0; i < QUANT_SUPER / POINT; i++) {
        const uint32_t bits = (uint32_t)high[i / 4] >> i % 4 * 2;
        put_points(grid[low[2 * i] | (bits & 1u) << 8],
                   grid[low[2 * i + 1] | (bits >> 1 & 1u) << 8], signs[i],
                   out->codes + (size_t)i * POINT);
    }
    split_odd(scales, 8, out->scales);
}

/* Low bytes of indexes; then per 32 columns four times 3 bits more, a scale of 3 bits and a sign: that
 * of the eighth added to all coordinates. */
static void split_iq1_s(const uint8_t *src, struct quant_parts *out) {
    const uint8_t *low = src + 2, *high = low + 32;
    out->super = fraction(read_u16(src), 3);
    for (uint32_t block = 0; block < 8; block++) {
        const uint32_t packed = read_u16(high + (size_t)2 * block);
        out->scales[2 * block] = out->scales[2 * block + 1] = odd(packed >> 12 & 7u);
        for (uint32_t i = 4 * block; i < 4 * block + 4; i++) {
            const uint32_t index = low[i] | (packed >> i % 4 * 3 & 7u) << 8;
            put_point(wefti_kern_grid_iq1[index], packed >> 15 ? 255 : 0,
                      out->codes + (size_t)i * POINT);
        }
    }
}

/* Low bytes of indexes; nibbles with 3 bits more and such a sign; then per 64 columns four scales of 3
 * bits in 16, whose highest four are a part of d. */
static void split_iq1_m(const uint8_t *src, struct quant_parts *out) {
    const uint8_t *low = src, *high = low + 32, *scales = high + 16;
    uint32_t d = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t word = read_u16(scales + (size_t)2 * i);
        d |= word >> 12 << 4 * i;
        for (uint32_t j = 0; j < 4; j++) {
            out->scales[4 * i + j] = odd(word >> 3 * j & 7u);
        }
    }
    out->super = fraction(d, 3);
    for (uint32_t i = 0; i < QUANT_SUPER / POINT; i++) {
        const uint32_t nibble = (uint32_t)high[i / 2] >> i % 2 * 4;
        put_point(wefti_kern_grid_iq1[low[i] | (nibble & 7u) << 8], nibble & 8u ? 255 : 0,
                  out->codes + (size_t)i * POINT);
    }
}

void wefti_kern_quant_split(enum weft_dtype dtype, const uint8_t *src, struct quant_parts *out) {
#define SPLIT(name, ID, ...) [WEFT_DT_##ID] = split_##name,
    static void (*const splits[WEFT_DT_COUNT])(const uint8_t *, struct quant_parts *) = {
        QUANT_EACH(SPLIT) QUANT_ALIKE(SPLIT)};
    WEFT_ASSERT(is_quant(dtype));
    memset(out, 0, sizeof *out);
    splits[dtype](src, out);
}
