/* A token has a small embedding for each layer, beside the one that the first layer reads:
 *
 *   inputs[layer] = (norm(P x / sqrt(hidden))[layer] + table[token][layer] * sqrt(dim)) / sqrt(2)
 *   x = (x + norm(W act(G x) * inputs[layer])) * scale, after both halves of a layer
 *
 * All of it is one rank's work, which every rank does: the products are small, and their sums over K are whole, so
 * there is nothing to share. The table is read a row per token.
 *
 * Source: transformers' Gemma 4. */
#include "forward/layer_input.h"

#include <math.h>

#include "forward/activations.h"
#include "forward/forward.h"
#include "forward/products.h"

/* Tokens after the table's last have what its first one has: they are none of text. */
static uint32_t row_of(const struct wefti_forward *f, uint32_t token) {
    return token < f->weights->input_table.n ? token : 0;
}

/* What is projected becomes the layers' embeddings of a token. */
static void finish_inputs(const struct wefti_forward_thread *thread, uint32_t token, float *out) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_norm norm = {f->weights->input_norm, 0};
    const uint32_t dim = f->input_dim, n = f->n_layers * dim;
    const float shrink = (float)(1 / sqrt((double)f->n_hidden)), grow = (float)sqrt((double)dim),
                mean = (float)sqrt(0.5);
    float *table = thread->scratch->wide;
    wefti_weights_row(f->weights, &f->weights->input_table, row_of(f, token), table);
    for (uint32_t i = 0; i < n; i++)
        out[i] *= shrink;
    for (uint32_t at = 0; at < n; at += dim)
        wefti_forward_normalise(f, out + at, norm, dim, out + at);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (out[i] + table[i] * grow) * mean;
}

void wefti_forward_make_inputs(const struct wefti_forward_thread *thread,
                               const struct wefti_forward_batch *batch) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_matrix *model[] = {&f->weights->input_model};
    const struct wefti_forward_source hidden = {.rows = f->x, .stride = f->x_stride};
    const struct wefti_forward_product product = {
        .matrix = model[0], .c = f->inputs, .ldc = f->inputs_stride};
    uint32_t begin, end;
    wefti_forward_mark(thread, WEFT_ENG_OP_EMBED);
    struct wefti_forward_acts acts =
        wefti_forward_acts_make(thread, &hidden, batch->n_tokens, model, 1);
    wefti_forward_multiply(thread, &acts, batch->n_tokens, &product, 1);
    wefti_forward_mark(thread, WEFT_ENG_OP_EMBED);
    while (wefti_forward_take_rows(thread, batch->n_tokens, 1, &begin, &end))
        finish_inputs(thread, batch->tokens[begin], f->inputs + begin * f->inputs_stride);
    wefti_forward_end_phase(thread);
}

/* ffn = act(G x) * inputs, a row of input_dim each. */
static void gate_inputs(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                        uint32_t n_rows, const uint32_t *index) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_matrix *gate[] = {&f->weights->layers[layer_idx].input_gate};
    const struct wefti_forward_source hidden = {.rows = f->x, .stride = f->x_stride};
    const struct wefti_forward_product product = {
        .matrix = gate[0], .c = f->ffn, .ldc = f->ffn_stride};
    const float *inputs = f->inputs + (size_t)layer_idx * f->input_dim;
    uint32_t begin, end;
    wefti_forward_mark(thread, WEFT_ENG_OP_GATE_UP);
    struct wefti_forward_acts acts = wefti_forward_acts_make(thread, &hidden, n_rows, gate, 1);
    wefti_forward_multiply(thread, &acts, n_rows, &product, 1);
    wefti_forward_mark(thread, WEFT_ENG_OP_GATE_UP);
    while (wefti_forward_take_rows(thread, n_rows, WEFTI_FORWARD_ROWS_PER_TASK, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++) {
            float *y = f->ffn + row * f->ffn_stride;
            f->act_mul(y, inputs + (index ? index[row] : row) * f->inputs_stride, f->input_dim, y);
        }
    }
    wefti_forward_end_phase(thread);
}

void wefti_forward_layer_input(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                               uint32_t n_rows, const uint32_t *index) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const struct wefti_weights_matrix *proj[] = {&layer->input_proj};
    const struct wefti_forward_source gated = {.rows = f->ffn, .stride = f->ffn_stride};
    const struct wefti_forward_product product = {
        .matrix = proj[0], .c = f->added, .ldc = f->x_stride};
    const struct wefti_forward_half_end end_of_layer = {.post = {layer->post_input_norm, 0},
                                                        .whole = layer->layer_scale};
    uint32_t begin, end;
    gate_inputs(thread, layer_idx, n_rows, index);
    wefti_forward_mark(thread, WEFT_ENG_OP_DOWN);
    struct wefti_forward_acts acts = wefti_forward_acts_make(thread, &gated, n_rows, proj, 1);
    wefti_forward_multiply(thread, &acts, n_rows, &product, 1);
    wefti_forward_mark(thread, WEFT_ENG_OP_DOWN);
    while (wefti_forward_take_rows(thread, n_rows, WEFTI_FORWARD_ROWS_PER_TASK, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++)
            wefti_forward_add_row(f, f->x + row * f->x_stride, f->added + row * f->x_stride,
                                  &end_of_layer);
    }
    wefti_forward_end_phase(thread);
}
