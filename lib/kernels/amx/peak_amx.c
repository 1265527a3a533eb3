/* Products of bytes summed in 32 bits by tiles, tdpbsud. Five sums take turns: one is ready after 52
 * cycles, and another one begins every 16 (Intel's optimisation manual, on Sapphire Rapids). */
#include "tiles_amx.h"

#include "tile_config.h"

enum { CHAINS = 5 };

static double peak_int8(uint64_t steps) {
    const struct tile_config config = tile_config_of(TILE_LINES, TILE_LINES);
    tile_configure(&config); /* and all tiles are zero */
    for (uint64_t i = 0; i < steps; i++) {
        tile_dot(TILE_SUMS_0, TILE_ROWS, TILE_PANEL_0);
        tile_dot(TILE_SUMS_1, TILE_ROWS, TILE_PANEL_0);
        tile_dot(5, TILE_ROWS, TILE_PANEL_0);
        tile_dot(6, TILE_ROWS, TILE_PANEL_0);
        tile_dot(7, TILE_ROWS, TILE_PANEL_0);
    }
    tile_release();
    return (double)steps * CHAINS * TILE_LINES * WEFT_PANEL * TILE_LINE * 2;
}

void wefti_kern_fill_peak_amx(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_INT8] = peak_int8;
}
