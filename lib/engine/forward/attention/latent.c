/* Latent attention (DeepSeek-V2), in the form that keeps one short row of a token: a latent, from
 * which each head would make its key and its value, and a rotated key for all heads.
 *
 * Keys and values are never made. The matrix that would make a key of the latent is applied
 * to the query instead, and the one that would make a value to the sum of latents that the
 * head attended to:
 *
 *   norm | q (by way of q_a), row | row into the cache; per head: rope, up_k q | attention | up_v
 *
 * So the row of a token is a kv head of its own, and all heads are its queries. A head's matrices
 * are small, so that a task is some rows of one head: their activations are converted by whoever
 * multiplies them. */
#include "forward/attention/latent.h"

#include <string.h>

#include "base/check.h"
#include "forward/activations.h"
#include "forward/attention/indexer.h"
#include "forward/lora.h"
#include "forward/products.h"

enum { HEAD_ROWS = 48 }; /* of a task: whole groups of interleaved rows on every ISA */

static size_t head_row_bytes(const struct wefti_weights_heads *heads) {
    return weft_kern_act_row_bytes(heads->first.kind, heads->first.k);
}

size_t wefti_forward_latent_bytes(const struct wefti_forward *f) {
    size_t widest = 0;
    for (uint32_t i = 0; i < f->n_layers; i++) {
        const struct wefti_weights_layer *layer = &f->weights->layers[i];
        size_t up_k = head_row_bytes(&layer->up_k), up_v = head_row_bytes(&layer->up_v);
        if (up_k > widest) widest = up_k;
        if (up_v > widest) widest = up_v;
    }
    return HEAD_ROWS * widest;
}

/* Rows of one head each: head h of row r is at data + r * stride + h * step. */
struct head_rows {
    float *data;
    size_t stride, step;
};

/* Rows of a head in the form that its matrix wants. */
static void convert_rows(const struct wefti_forward_thread *thread,
                         const struct wefti_weights_matrix *m, const float *src, size_t stride,
                         uint32_t n_rows, uint32_t group) {
    const struct wefti_forward *f = thread->forward;
    size_t bytes = weft_kern_act_row_bytes(m->kind, m->k);
    uint8_t *acts = thread->scratch->heads;
    for (uint32_t r = 0; r < n_rows; r += group, src += group * stride) {
        uint8_t *at = acts + r * bytes;
        const struct weft_kern_act_part part = {.src = src,
                                                .src_stride = stride,
                                                .n_rows = weft_min_u32(group, n_rows - r),
                                                .k = m->k,
                                                .k_end = m->k,
                                                .group = at};
        if (group > 1)
            f->kern->act_group(m->kind, &part);
        else
            f->kern->act_convert(m->kind, src, wefti_memory_stride(m->k), 1, m->k, at, bytes);
    }
}

/* Rows of `to` = those of `from`, each times the matrix of its head. */
struct head_product {
    const struct wefti_weights_heads *heads;
    struct head_rows from, to;
    uint32_t n_heads, n_rows;
};

/* Rows begin..end of one head. */
static void multiply_head(const struct wefti_forward_thread *thread,
                          const struct head_product *product, uint32_t head, uint32_t begin,
                          uint32_t end) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_weights_matrix *m = &product->heads->first;
    const struct head_rows *from = &product->from, *to = &product->to;
    WEFT_ASSERT(begin < end && end - begin <= HEAD_ROWS);
    uint32_t group = end - begin > WEFTI_FORWARD_OWN_ROWS ? f->kern->group_rows : 1;
    convert_rows(thread, m, from->data + begin * from->stride + head * from->step, from->stride,
                 end - begin, group);
    const struct weft_gemm_args args = {
        .act = thread->scratch->heads,
        .act_row_bytes = weft_kern_act_row_bytes(m->kind, m->k),
        .act_group = group,
        .packed = f->weights->base + m->offset + head * product->heads->head_bytes,
        .c = to->data + begin * to->stride + head * to->step,
        .ldc = to->stride,
        .m = end - begin,
        .n = m->n,
        .k = m->k,
        .segs = &m->segs,
    };
    f->kern->gemm[m->kind](&args, 0, m->n_panels);
}

/* Task `task` of those of all heads and blocks of rows. */
static void multiply_task(const struct wefti_forward_thread *thread,
                          const struct head_product *product, uint32_t task) {
    uint32_t begin = task / product->n_heads * HEAD_ROWS;
    uint32_t end = weft_min_u32(begin + HEAD_ROWS, product->n_rows);
    multiply_head(thread, product, task % product->n_heads, begin, end);
}

static uint32_t count_tasks(const struct head_product *product) {
    return weft_div_up_u32(product->n_rows, HEAD_ROWS) * product->n_heads;
}

/* Puts a token's row into the cache, and the parts of its queries that turn where attention reads
 * them. */
static void finish_row(const struct wefti_forward *f, uint32_t layer_idx,
                       const struct wefti_forward_batch *batch, uint32_t row) {
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const struct weft_attn_row *at = &batch->rows[wefti_forward_block_kind(f, layer_idx)][row];
    const float *cos_sin = f->rope[wefti_forward_layer_kind(f, layer_idx)] + row * f->rope_stride;
    float *k = f->k + row * f->kv_stride, *q = f->q + row * f->q_stride + f->latent_dim;
    const float *from = f->heads + row * f->heads_stride + f->nope_dim;
    f->kern->rms_norm(k, wefti_weights_vector(f->weights, layer->latent_norm), f->rms_eps,
                      f->latent_dim, k);
    f->kern->rope(k + f->latent_dim, 1, f->rope_dim, cos_sin, f->rope_interleaved);
    if (wefti_forward_writes(f, batch, layer_idx, row))
        f->kern->kv_write(&f->kv->layers[layer_idx], at->block_table, at->pos, k, NULL);
    if (f->indexer.n_heads > 0) wefti_forward_index_row(f, layer_idx, batch, row);
    for (uint32_t h = 0; h < layer->n_heads; h++) {
        memcpy(q, from, f->rope_dim * sizeof *q);
        f->kern->rope(q, 1, f->rope_dim, cos_sin, f->rope_interleaved);
        q += f->head_dim;
        from += f->nope_dim + f->rope_dim;
    }
}

/* Turns the queries' other parts into the space of latents, and finishes rows in the same phase:
 * neither reads what the other writes. */
static void finish_queries(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                           const struct wefti_forward_batch *batch) {
    const struct wefti_forward *f = thread->forward;
    const struct head_product product = {
        .heads = &f->weights->layers[layer_idx].up_k,
        .from = {f->heads, f->heads_stride, f->nope_dim + f->rope_dim},
        .to = {f->q, f->q_stride, f->head_dim},
        .n_heads = f->weights->layers[layer_idx].n_heads,
        .n_rows = batch->n_tokens};
    uint32_t n_products = count_tasks(&product);
    uint32_t n_tasks = n_products + batch->n_tokens;
    uint32_t task = wefti_forward_take_task(thread);
    for (; task < n_products; task = wefti_forward_take_task(thread))
        multiply_task(thread, &product, task);
    wefti_forward_mark(thread, WEFT_ENG_OP_ROPE_KV);
    for (; task < n_tasks; task = wefti_forward_take_task(thread))
        finish_row(f, layer_idx, batch, task - n_products);
    wefti_forward_end_phase(thread);
}

void wefti_forward_latent_in(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                             const struct wefti_forward_batch *batch) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    uint32_t n_rows = batch->n_tokens;
    bool by_rank = f->q_lora > 0;
    const struct wefti_weights_matrix *first = by_rank ? &layer->q_a : &layer->q;
    const struct wefti_weights_matrix *in[] = {first, &layer->k, &layer->index_k,
                                               &layer->index_weights};
    const bool scores =
        wefti_forward_index_scores(f, batch->rows[wefti_forward_block_kind(f, layer_idx)], n_rows);
    const uint32_t n_in = f->indexer.n_heads == 0 ? 2 : scores ? 4 : 3;
    const struct wefti_forward_source hidden = {
        .rows = f->x, .stride = f->x_stride, .norm = {layer->attn_norm, 0}};
    wefti_forward_mark(thread, WEFT_ENG_OP_ATTN_NORM);
    struct wefti_forward_acts acts = wefti_forward_acts_make(thread, &hidden, n_rows, in, n_in);
    wefti_forward_acts_observe(thread, layer_idx, WEFTI_CALIB_QKV, &acts, n_rows);
    const struct wefti_forward_product products[] = {
        {.matrix = first,
         .c = by_rank ? f->q_a : f->heads,
         .ldc = by_rank ? f->q_a_stride : f->heads_stride},
        {.matrix = &layer->k, .c = f->k, .ldc = f->kv_stride},
        {.matrix = &layer->index_k, .c = f->index_k, .ldc = f->index_k_stride},
        {.matrix = &layer->index_weights, .c = f->index_weights, .ldc = f->index_weight_stride},
    };
    const struct wefti_forward_lora_group group = {
        .layer = layer_idx,
        .n = 2,
        .roles = {by_rank ? WEFT_LORA_Q_A : WEFT_LORA_Q, WEFT_LORA_K},
        .y = {products[0].c, f->k},
        .ldc = {products[0].ldc, f->kv_stride}};
    wefti_forward_mark(thread, WEFT_ENG_OP_QKV);
    if (thread->lora) wefti_forward_lora_down(thread, thread->lora, &group, &hidden);
    wefti_forward_multiply(thread, &acts, n_rows, products, n_in);
    if (thread->lora) wefti_forward_lora_up(thread, thread->lora, &group);
    wefti_forward_mark(thread, WEFT_ENG_OP_ATTN_NORM);
    if (by_rank) {
        const struct wefti_weights_matrix *q[] = {&layer->q, &layer->index_q};
        const struct wefti_forward_source ranked = {
            .rows = f->q_a, .stride = f->q_a_stride, .norm = {layer->q_a_norm, 0}};
        const struct wefti_forward_product both[] = {
            {.matrix = &layer->q, .c = f->heads, .ldc = f->heads_stride},
            {.matrix = &layer->index_q, .c = f->index_q, .ldc = f->index_q_stride},
        };
        acts = wefti_forward_acts_make(thread, &ranked, n_rows, q, scores ? 2 : 1);
        wefti_forward_acts_observe(thread, layer_idx, WEFTI_CALIB_Q_RANK, &acts, n_rows);
        const struct wefti_forward_lora_group second = {.layer = layer_idx,
                                                        .n = 1,
                                                        .roles = {WEFT_LORA_Q},
                                                        .y = {f->heads},
                                                        .ldc = {f->heads_stride}};
        wefti_forward_mark(thread, WEFT_ENG_OP_QKV);
        if (thread->lora) wefti_forward_lora_down(thread, thread->lora, &second, &ranked);
        wefti_forward_multiply(thread, &acts, n_rows, both, scores ? 2 : 1);
        if (thread->lora) wefti_forward_lora_up(thread, thread->lora, &second);
    }
    wefti_forward_mark(thread, WEFT_ENG_OP_QKV);
    finish_queries(thread, layer_idx, batch);
}

void wefti_forward_latent_out(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                              uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    const struct head_product product = {.heads = &f->weights->layers[layer_idx].up_v,
                                         .from = {f->attn, f->out_stride, f->latent_dim},
                                         .to = {f->heads, f->heads_stride, f->v_dim},
                                         .n_heads = f->weights->layers[layer_idx].n_heads,
                                         .n_rows = n_rows};
    uint32_t n_tasks = count_tasks(&product);
    for (uint32_t task = wefti_forward_take_task(thread); task < n_tasks;
         task = wefti_forward_take_task(thread)) {
        multiply_task(thread, &product, task);
    }
    wefti_forward_end_phase(thread);
}
