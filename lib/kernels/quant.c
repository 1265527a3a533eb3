/* Blocks of a file taken apart; see quant.h for what they mean. */
#include "kernels/quant.h"

/* 16 bytes hold columns 0..15 in their low nibbles and 16..31 in the high ones. */
static void split_nibbles(const uint8_t *packed, uint8_t *codes) {
    for (uint32_t i = 0; i < 16; i++) {
        codes[i] = packed[i] & 15u;
        codes[16 + i] = packed[i] >> 4;
    }
}

/* Eight scales and mins of 6 bits in 12 bytes: the first four of each in the low bits of a byte of
 * their own, the others in nibbles and in the two bits that were left. */
static void split_scales(const uint8_t packed[12], uint8_t scales[8], uint8_t mins[8]) {
    for (uint32_t i = 0; i < 4; i++) {
        scales[i] = packed[i] & 63u;
        mins[i] = packed[4 + i] & 63u;
        scales[4 + i] = (uint8_t)((packed[8 + i] & 15u) | packed[i] >> 6 << 4);
        mins[4 + i] = (uint8_t)(packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4);
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

/* Two halves of four blocks: nibbles in 64 bytes, the low ones first; two bits more of block j at
 * 2j of 32 bytes. */
static void split_k6(const uint8_t *low, const uint8_t *high, uint8_t codes[QUANT_SUPER]) {
    for (uint32_t half = 0; half < 2; half++, low += 64, high += 32) {
        for (uint32_t j = 0; j < 4; j++) {
            for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
                uint32_t byte = low[j % 2 * QUANT_BLOCK + i];
                uint32_t code = (j < 2 ? byte & 15u : byte >> 4) | ((uint32_t)high[i] >> 2 * j & 3u)
                                                                       << 4;
                codes[half * 128 + j * QUANT_BLOCK + i] = (uint8_t)code;
            }
        }
    }
}

static uint16_t read_u16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

void wefti_quant_split(enum quant quant, const uint8_t *src, struct quant_parts *out) {
    memset(out, 0, sizeof *out);
    switch (quant) {
    case QUANT_4_0:
        out->scale = read_u16(src);
        split_nibbles(src + 2, out->codes);
        break;
    case QUANT_4_1:
        out->scale = read_u16(src);
        out->min = read_u16(src + 2);
        split_nibbles(src + 4, out->codes);
        break;
    case QUANT_4_K:
    case QUANT_5_K:
        out->scale = read_u16(src);
        out->min = read_u16(src + 2);
        split_scales(src + 4, out->scales, out->mins);
        if (quant == QUANT_4_K)
            split_k4(src + 16, NULL, out->codes);
        else
            split_k4(src + 48, src + 16, out->codes);
        break;
    case QUANT_6_K:
        split_k6(src, src + 128, out->codes);
        memcpy(out->scales, src + 192, 16);
        out->scale = read_u16(src + 208);
        break;
    case QUANT_COUNT:
        WEFT_ASSERT(false);
    }
}
