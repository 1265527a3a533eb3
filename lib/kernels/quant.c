/* Blocks of a file taken apart; quant.h says what they mean. */
#include "quant.h"

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

void wefti_kern_quant_split(enum weft_dtype dtype, const uint8_t *src, struct quant_parts *out) {
#define SPLIT(name, ID, ...) [WEFT_DT_##ID] = split_##name,
    static void (*const splits[WEFT_DT_COUNT])(const uint8_t *,
                                               struct quant_parts *) = {QUANT_EACH(SPLIT)};
    WEFT_ASSERT(is_quant(dtype));
    memset(out, 0, sizeof *out);
    splits[dtype](src, out);
}
