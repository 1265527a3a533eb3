/* kernels/quant_grids — the points of lattices of 8 or 4 dimensions that codes of GGML's IQ1, IQ2 and
 * IQ3 are: those that quantised weights come near often. A file has their indexes.
 *
 * A coordinate is an index itself: of IQ1's -1, 0 and 1, of IQ2's magnitudes 8, 25 and 43, of IQ3_XXS's
 * 4, 12 .. 52 and 62, and of IQ3_S's 1, 3 .. 15. A point has the first one lowest; a grid is sorted by
 * its points as numbers. IQ2 and IQ3 have signs beside the points.
 *
 * Source: GGML's block formats; lattices for weights: Tseng et al. 2024, "QuIP#" (arXiv:2402.04396). */
#ifndef WEFT_KERNELS_QUANT_GRIDS_H
#define WEFT_KERNELS_QUANT_GRIDS_H

#include <stdint.h>

extern const uint16_t wefti_kern_grid_iq1[2048]; /* 8 coordinates of 2 bits */
extern const uint16_t wefti_kern_grid_iq2_xxs[256];
extern const uint16_t wefti_kern_grid_iq2_xs[512];
extern const uint16_t wefti_kern_grid_iq2_s[1024];
extern const uint16_t wefti_kern_grid_iq3_xxs[256]; /* 4 coordinates of 3 bits */
extern const uint16_t wefti_kern_grid_iq3_s[512];

#endif
