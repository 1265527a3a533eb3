/* kernels/tile_config — which tile holds what, and their shapes as LDTILECFG reads them (Intel's
 * Software Developer's Manual, volume 2, LDTILECFG).
 *
 * Sums of up to 16 rows by a panel of 16 features each are rows of codes times a panel's codes, 64
 * columns of both. Codes of weights lie in panels as TDPBSUD wants them, [quad][16][4]; rows must be
 * one after the other. */
#ifndef WEFT_KERNELS_TILE_CONFIG_H
#define WEFT_KERNELS_TILE_CONFIG_H

#include "kern_internal.h"

/* Literals, see tiles_amx.h. */
#define TILE_SUMS_0 0
#define TILE_SUMS_1 1
#define TILE_ROWS 2
#define TILE_PANEL_0 3
#define TILE_PANEL_1 4
#define TILE_SUMS_2 5
#define TILE_SUMS_3 6

/* How many there are; bytes of a line, and lines, at most. */
enum { TILES = 8, TILE_LINE = 64, TILE_LINES = 16 };

struct tile_config {
    uint8_t palette, start_line, reserved[14];
    uint16_t line_bytes[16]; /* of each tile; 8..15 are reserved */
    uint8_t lines[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "what LDTILECFG reads");
_Static_assert(WEFT_PANEL * sizeof(int32_t) == TILE_LINE, "a line has a sum of each feature");

/* For dots of `rows` rows (1..16) by two panels. Tile 7 has their lines, too. */
static inline struct tile_config tile_config_of(uint32_t rows) {
    struct tile_config config = {.palette = 1};
    WEFT_ASSERT(rows > 0 && rows <= TILE_LINES);
    for (uint32_t tile = 0; tile < TILES; tile++) {
        config.lines[tile] = (uint8_t)rows;
        config.line_bytes[tile] = TILE_LINE;
    }
    config.lines[TILE_PANEL_0] = config.lines[TILE_PANEL_1] = TILE_LINES;
    return config;
}

#endif
