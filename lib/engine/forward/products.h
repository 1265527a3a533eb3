/* engine/forward/products — matrix products, cut into tasks. */
#ifndef WEFT_ENGINE_PRODUCTS_H
#define WEFT_ENGINE_PRODUCTS_H

#include "forward/activations.h"
#include "forward/pass.h"

/* c = activations * matrix, plus `bias` and `residual` if there are any; rows of c and residual
 * are ldc apart. */
struct wefti_forward_product {
    const struct wefti_weights_matrix *matrix;
    float *c;
    size_t ldc;
    const float *residual; /* NULL: none; may be c */
    const float *bias;     /* NULL: none */
};

/* All products of the same activations. */
void wefti_forward_multiply_on(const struct wefti_forward_thread *thread,
                               const struct wefti_forward_acts *acts, uint32_t n_rows,
                               const struct wefti_forward_product *products, uint32_t n_products);
/* The same. Ends a phase. */
void wefti_forward_multiply(const struct wefti_forward_thread *thread,
                            const struct wefti_forward_acts *acts, uint32_t n_rows,
                            const struct wefti_forward_product *products, uint32_t n_products);

/* ffn = silu(gate) * up. Ends a phase. */
void wefti_forward_gate_up(const struct wefti_forward_thread *thread,
                           const struct wefti_forward_acts *acts,
                           const struct wefti_weights_layer *layer, uint32_t n_rows);

/* Panels begin..end of rows row..row+n_rows: part of a task. */
struct wefti_forward_piece {
    uint32_t row, n_rows, begin, end;
};

/* Computes a piece of a product, or of c = silu(gate) * up, which is then no larger than
 * WEFTI_FORWARD_FFN_TILE_FLOATS. `acts` and `c` are those of row 0 and column 0. */
void wefti_forward_multiply_piece(const struct wefti_forward *f,
                                  const struct wefti_forward_acts *acts,
                                  const struct wefti_forward_product *product,
                                  const struct wefti_forward_piece *piece);
void wefti_forward_gate_up_piece(const struct wefti_forward_thread *thread,
                                 const struct wefti_forward_acts *acts,
                                 const struct wefti_forward_product *gate,
                                 const struct wefti_weights_matrix *up,
                                 const struct wefti_forward_piece *piece);

/* How many rows make a block, and how many panels a run, so that both stay in cache. */
uint32_t wefti_forward_block_rows(size_t row_bytes);
uint32_t wefti_forward_run_panels(size_t panel_bytes);

#endif
