/* quantise — float weights to codes of a grid, and how far the grid reaches.
 *
 * A group of weights (a whole output feature, or 32 columns of it) is stored as integers of a grid:
 * weight = scale * (code - zero) + min. The grid is made from the ends of the group, drawn in by a
 * ratio of up to 1: weights outside are clipped, those inside get finer steps. The ratio is chosen
 * by the weights and by how much each column matters.
 *
 * All of it is portable C in a fixed order, without the C library's transcendental functions: the
 * same bits on every CPU. */
#ifndef WEFT_KERNELS_QUANTISE_H
#define WEFT_KERNELS_QUANTISE_H

#include <stdint.h>

#include "kernels/kernels.h"

enum grid_form {
    GRID_I8,  /* codes -127..127, scale in f32 */
    GRID_Q8,  /* the same, scale in f16 (Q8_0) */
    GRID_4_0, /* codes 0..15, zero at 8, scale in f16 and of the largest weight's sign */
    GRID_4_1, /* codes 0..15, scale and min in f16 */
};

struct grid {
    enum grid_form form;
    float scale, min;    /* as stored, widened; NaN where the group has an infinity or NaN */
    float factor;        /* what weights are multiplied by; 0: all codes are that of zero */
    uint16_t scale_bits; /* f16; not of I8 */
    uint16_t min_bits;
};

/* Ends of a group. */
struct grid_ends {
    float low, high;
    float largest; /* the first weight of the largest magnitude, with its sign */
    bool finite;
};

/* Start with {.low = INFINITY, .high = -INFINITY, .finite = true}; adds n >= 1 weights. */
void wefti_kern_grid_reach(struct grid_ends *ends, const float *w, uint32_t n);
struct grid_ends wefti_kern_grid_ends(const float *w, uint32_t n);

/* ratio in (0, 1]; with 1 every weight is inside. 4_0 and Q8 by GGML's rules. */
struct grid wefti_kern_grid_make(enum grid_form form, const struct grid_ends *ends, float ratio);

/* The codes of n weights: of I8 and Q8 two's complement, else 0..15. */
void wefti_kern_grid_codes(const struct grid *grid, const float *w, uint32_t n, uint8_t *codes);

/* The grid for one group of n weights. `importance` [n]: how much the square of a weight's error
 * counts. `row_ratio`: from wefti_kern_grid_row_ratio for the group's row. The weighted error is
 * never larger than that of the grid of ratio 1. */
struct grid wefti_kern_grid_choose(enum grid_form form, enum weft_kern_clip clip, const float *w,
                                   const float *importance, uint32_t n, float row_ratio);

/* The ratio of PERCENTILE and ENTROPY for a row of `n` weights in groups of `group` (a divisor of
 * n): one for all its groups, from how weights lie between the ends of theirs. */
float wefti_kern_grid_row_ratio(enum grid_form form, enum weft_kern_clip clip, const float *w,
                                const float *importance, uint32_t n, uint32_t group);

/* Sum of importance * (weight - stored)^2 over n weights. */
double wefti_kern_grid_error(const struct grid *grid, const float *w, const float *importance,
                             uint32_t n);

#endif
