/* Products of whole tiles of bf16, tdpbf16ps. All factors are zero: no instruction is the faster for it. */
#include "tiles_amx.h"

#include "kern_internal.h"
#include "tile_config.h"

static double peak_bf16(uint64_t steps) {
    enum { PER_STEP = 4, OPS = TILE_LINES * WEFT_PANEL * 32 * 2 };
    const struct tile_config config = tile_config_of(TILE_LINES);
    tile_configure(&config);
    for (uint64_t i = 0; i < steps; i++) {
        tile_dot_bf16(TILE_SUMS_0, TILE_ROWS, TILE_PANEL_0);
        tile_dot_bf16(TILE_SUMS_1, TILE_ROWS, TILE_PANEL_1);
        tile_dot_bf16(TILE_SUMS_2, TILE_ROWS, TILE_PANEL_0);
        tile_dot_bf16(TILE_SUMS_3, TILE_ROWS, TILE_PANEL_1);
    }
    tile_release();
    return (double)steps * PER_STEP * OPS;
}

void wefti_kern_fill_peak_amx(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_BF16] = peak_bf16;
}
