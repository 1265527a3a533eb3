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
    const float *residual;           /* NULL: none; may be c */
    const float *bias;               /* NULL: none */
    struct weft_kern_beside *beside; /* NULL, or what is read after it */
    /* NULL, or factors of rows: of gate and up alike, before they meet */
    const float *row_scales;
};

/* All products of the same activations. */
void wefti_forward_multiply_on(const struct wefti_forward_thread *thread,
                               const struct wefti_forward_acts *acts, uint32_t n_rows,
                               const struct wefti_forward_product *products, uint32_t n_products);
/* The same. Ends a phase. */
void wefti_forward_multiply(const struct wefti_forward_thread *thread,
                            const struct wefti_forward_acts *acts, uint32_t n_rows,
                            const struct wefti_forward_product *products, uint32_t n_products);

/* silu(gate) * up, whose activations were made from `src`, as the layer's `down` reads it. Rows of it
 * stand in `ffn` where adapters or a calibration read them. Ends a phase, or two. */
void wefti_forward_gate_up(const struct wefti_forward_thread *thread,
                           const struct wefti_forward_acts *acts, uint32_t layer_idx,
                           const struct wefti_forward_source *src, uint32_t n_rows,
                           struct wefti_forward_acts *inner_out);

/* Panels begin..end of rows row..row+n_rows: part of a task. */
struct wefti_forward_piece {
    uint32_t row, n_rows, begin, end;
};

/* Where something is added to a piece of a product: its first row and column. */
struct wefti_forward_target {
    const struct wefti_forward_piece *piece;
    float *y;
    size_t ldc;
};

/* What adapters add to gate (member 0) and up (1) before they meet. */
struct wefti_forward_lora_group;
struct wefti_forward_lora_experts;
struct wefti_forward_adapted {
    void (*add)(const struct wefti_forward_thread *thread,
                const struct wefti_forward_adapted *adapted, uint32_t member,
                const struct wefti_forward_target *target);
    uint32_t layer;
    const struct wefti_forward_lora_group *group;     /* of a product of all rows, */
    const struct wefti_forward_lora_experts *experts; /* or of one of these */
    uint32_t expert;
};

/* Computes a piece of a product, or of c = silu(gate) * up, which is then no larger than
 * WEFTI_FORWARD_FFN_TILE_FLOATS. `acts` and `c` are those of row 0 and column 0; of `up` matrix and bias
 * count, and a matrix of no rows means that gate is activated alone. `adapted` NULL: no row has adapters. */
void wefti_forward_multiply_piece(const struct wefti_forward *f,
                                  const struct wefti_forward_acts *acts,
                                  const struct wefti_forward_product *product,
                                  const struct wefti_forward_piece *piece);
void wefti_forward_gate_up_piece(const struct wefti_forward_thread *thread,
                                 const struct wefti_forward_acts *acts,
                                 const struct wefti_forward_product *gate,
                                 const struct wefti_forward_product *up,
                                 const struct wefti_forward_adapted *adapted,
                                 const struct wefti_forward_piece *piece);

/* How many rows make a block, and how many panels a run, so that both stay in cache. */
uint32_t wefti_forward_block_rows(size_t row_bytes);
uint32_t wefti_forward_run_panels(size_t panel_bytes);

#endif
