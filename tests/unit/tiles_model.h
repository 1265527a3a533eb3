/* What the instructions of tiles_amx.h do, in C, after Intel's Software Developer's Manual, volume 2:
 * LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBSUD, TDPBSSD, TDPBF16PS and TILERELEASE. Where they would
 * raise an exception, an assertion fails. One thread. */
#ifndef WEFT_TEST_TILES_MODEL_H
#define WEFT_TEST_TILES_MODEL_H

#include <string.h>

#include "inside/kernels/amx/bf16_order.h"
#include "inside/kernels/amx/tile_config.h"

static struct {
    struct tile_config config; /* palette 0: tiles are not in use */
    uint8_t lines[TILES][TILE_LINES][TILE_LINE];
} model;

static inline void tile_configure(const struct tile_config *config) {
    WEFT_ASSERT(config->palette == 1 && config->start_line == 0);
    for (uint32_t i = 0; i < sizeof config->reserved; i++) {
        WEFT_ASSERT(config->reserved[i] == 0);
    }
    for (uint32_t tile = 0; tile < 16; tile++) {
        uint32_t lines = config->lines[tile], bytes = config->line_bytes[tile];
        WEFT_ASSERT((lines == 0) == (bytes == 0) && (tile < TILES || lines == 0));
        WEFT_ASSERT(lines <= TILE_LINES && bytes <= TILE_LINE);
    }
    memset(&model, 0, sizeof model);
    model.config = *config;
}

static inline void tile_release(void) {
    memset(&model, 0, sizeof model);
}

static inline void check_tile(uint32_t tile) {
    WEFT_ASSERT(model.config.palette == 1 && tile < TILES && model.config.lines[tile] > 0);
}

static inline void tile_zero(uint32_t tile) {
    check_tile(tile);
    memset(model.lines[tile], 0, sizeof model.lines[tile]);
}

static inline void tile_load(uint32_t tile, const void *at, size_t stride) {
    tile_zero(tile); /* what a shorter line or fewer of them leave */
    for (uint32_t line = 0; line < model.config.lines[tile]; line++) {
        memcpy(model.lines[tile][line], (const uint8_t *)at + line * stride,
               model.config.line_bytes[tile]);
    }
}

static inline void tile_store(uint32_t tile, void *at, size_t stride) {
    check_tile(tile);
    for (uint32_t line = 0; line < model.config.lines[tile]; line++) {
        memcpy((uint8_t *)at + line * stride, model.lines[tile][line],
               model.config.line_bytes[tile]);
    }
}

static inline void check_shapes(uint32_t sums, uint32_t a, uint32_t b) {
    const struct tile_config *config = &model.config;
    check_tile(sums);
    check_tile(a);
    check_tile(b);
    WEFT_ASSERT(sums != a && sums != b && a != b);
    WEFT_ASSERT(config->line_bytes[sums] % 4 == 0 && config->line_bytes[a] % 4 == 0);
    WEFT_ASSERT(config->lines[sums] == config->lines[a]);
    WEFT_ASSERT(config->line_bytes[sums] == config->line_bytes[b]);
    WEFT_ASSERT(config->lines[b] == config->line_bytes[a] / 4);
}

static inline void dot_bytes(uint32_t sums, uint32_t a, uint32_t b, bool is_signed) {
    check_shapes(sums, a, b);
    for (uint32_t m = 0; m < model.config.lines[sums]; m++) {
        int32_t line[TILE_LINE / 4];
        memcpy(line, model.lines[sums][m], sizeof line);
        const int8_t *codes = (const int8_t *)model.lines[a][m];
        for (uint32_t k = 0; k < model.config.line_bytes[a] / 4u; k++) {
            for (uint32_t n = 0; n < model.config.line_bytes[sums] / 4u; n++) {
                const uint8_t *w = &model.lines[b][k][4 * n];
                for (uint32_t i = 0; i < 4; i++) {
                    line[n] += codes[4 * k + i] * (is_signed ? (int8_t)w[i] : w[i]);
                }
            }
        }
        memcpy(model.lines[sums][m], line, sizeof line);
    }
}

/* TDPBSUD: bytes of `a` are signed, those of `b` are not. */
static inline void tile_dot(uint32_t sums, uint32_t a, uint32_t b) {
    dot_bytes(sums, a, b, false);
}

/* TDPBSSD: both are. */
static inline void tile_dot_signed(uint32_t sums, uint32_t a, uint32_t b) {
    dot_bytes(sums, a, b, true);
}

/* TDPBF16PS. */
static inline void tile_dot_bf16(uint32_t sums, uint32_t a, uint32_t b) {
    check_shapes(sums, a, b);
    for (uint32_t m = 0; m < model.config.lines[sums]; m++) {
        float line[TILE_LINE / 4];
        uint16_t pairs[TILE_LINE / 2], column[TILE_LINES][TILE_LINE / 2];
        memcpy(line, model.lines[sums][m], sizeof line);
        memcpy(pairs, model.lines[a][m], sizeof pairs);
        memcpy(column, model.lines[b], sizeof column);
        for (uint32_t n = 0; n < model.config.line_bytes[sums] / 4u; n++) {
            line[n] = bf16_add_pairs(line[n], pairs, &column[0][2 * n], TILE_LINE / 2,
                                     model.config.line_bytes[a] / 4u);
        }
        memcpy(model.lines[sums][m], line, sizeof line);
    }
}

#endif
