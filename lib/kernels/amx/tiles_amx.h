/* kernels/tiles_amx — the tile instructions that kernels use, one by one. A test defines the same
 * names by what Intel's manual says of each (tests/unit/tiles_model.h), and runs the kernels so on a
 * CPU without them.
 *
 * A tile is a number, 0 to 7, that must be a literal: it becomes part of the instruction's text. To
 * gcc 12 the intrinsics that read memory do not read it (amxtileintrin.h), hence tile_wait. */
#ifndef WEFT_KERNELS_TILES_AMX_H
#define WEFT_KERNELS_TILES_AMX_H

#include <immintrin.h>

/* What was written before is in memory after this, as far as the compiler is concerned. */
static inline void tile_wait(void) {
    __asm__ volatile("" ::: "memory");
}

#define tile_configure(config)                                                                     \
    do {                                                                                           \
        tile_wait();                                                                               \
        _tile_loadconfig(config);                                                                  \
    } while (0)

#define tile_load(tile, at, stride)                                                                \
    do {                                                                                           \
        tile_wait();                                                                               \
        _tile_loadd(tile, at, stride);                                                             \
        tile_wait(); /* it may be written again */                                                 \
    } while (0)

#define tile_store(tile, at, stride) _tile_stored(tile, at, stride)
#define tile_zero(tile) _tile_zero(tile)
#define tile_release() _tile_release()

/* sums[m][n] += the products of 4 signed bytes of a[m] by 4 unsigned ones of b[.][n], for each four
 * of a's row. */
#define tile_dot(sums, a, b) _tile_dpbsud(sums, a, b)

/* The same where both are signed. */
#define tile_dot_signed(sums, a, b) _tile_dpbssd(sums, a, b)

/* sums[m][n] += the products of bf16 of a[m] by those of b[.][n], summed as bf16_order.h says. */
#define tile_dot_bf16(sums, a, b) _tile_dpbf16ps(sums, a, b)

#endif
