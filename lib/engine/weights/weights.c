/* Operations on open weights; open.c opens them. */
#include "weights/weights.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/minmax.h"

void wefti_weights_close(struct wefti_weights *weights) {
    if (weights->base)
        (void)munmap(weights->base, weights->map_bytes ? weights->map_bytes : weights->bytes);
    free(weights->layers);
    free(weights->experts);
    *weights = (struct wefti_weights){0};
}

uint32_t wefti_weights_kv_heads(const struct wefti_weights *weights,
                                const struct weft_model_params *params, bool local) {
    const bool is_alike = params->unlike.local_head_dim == 0 && params->unlike.local_kv_heads == 0;
    uint32_t most = 0;
    for (uint32_t i = 0; i < weights->n_layers; i++) {
        if (is_alike || weft_model_is_local(params, i) == local)
            most = weft_max_u32(most, weights->layers[i].n_kv_heads);
    }
    return most;
}

struct wefti_weights_range wefti_weights_vocab_of(uint32_t n_vocab, uint32_t rank,
                                                  uint32_t n_ranks) {
    uint64_t n_panels = weft_div_up_u32(n_vocab, WEFT_PANEL);
    uint32_t begin = (uint32_t)(n_panels * rank / n_ranks) * WEFT_PANEL;
    uint32_t end = (uint32_t)(n_panels * (rank + 1) / n_ranks) * WEFT_PANEL;
    return (struct wefti_weights_range){begin, weft_min_u32(end, n_vocab)};
}

void wefti_weights_row(const struct wefti_weights *weights, const struct wefti_weights_rows *rows,
                       uint32_t row, float *out) {
    WEFT_ASSERT(row < rows->n);
    weft_kern_read_row(rows->src, weights->base + rows->offset + row * rows->row_bytes, rows->k,
                       out);
}

void wefti_weights_embed(const struct wefti_weights *weights, uint32_t token, uint8_t *raw,
                         float *out) {
    WEFT_ASSERT(token >= weights->vocab.begin && token < weights->vocab.end);
    token -= weights->vocab.begin;
    const struct wefti_weights_matrix *head = &weights->head;
    if (!weights->tied) {
        wefti_weights_row(weights, &weights->embedding, token, out);
        return;
    }
    enum weft_dtype src =
        weft_kern_unpack_row(head->kind, weights->base + head->offset, head->k, token, raw);
    weft_kern_read_row(src, raw, weights->n_hidden, out);
}
