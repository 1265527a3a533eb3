/* The forward pass of a decoder (Llama's form) or an encoder (BERT's) over a flat batch.
 *
 * One run of the pool goes through the whole model; phases are split by barriers, and within a
 * phase threads take tiles of the output. Per layer:
 *
 *   norm + convert | q, k, v | rope, K and V into the cache | attention | convert | o + residual
 *   norm + convert | gate, up, silu | convert | down + residual (or experts.c)
 *
 * In an encoder a row sees what comes after it, too: all rows of a sequence are in one pass. Embeddings are
 * normalised, and halves of layers may be normalised when they have been added.
 *
 * After the last K and V that any layer writes, everything runs only for the rows of whose output anything is
 * wanted: rows do not see each other there, so that changes no bit of any row. Mostly that is in the last layer; where the
 * last layers read the K and V of earlier ones, most rows of prompts are spared all of these. */
#include "forward/forward.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "forward/activations.h"
#include "forward/attention/attention.h"
#include "forward/attention/indexer.h"
#include "forward/attention/latent.h"
#include "forward/booking.h"
#include "forward/experts.h"
#include "forward/layer_input.h"
#include "forward/lora.h"
#include "forward/pass.h"
#include "forward/products.h"
#include "forward/ranks.h"
#include "forward/recurrent.h"

/* What one pass computes; const, the same for all threads. */
struct wefti_forward_pass {
    struct wefti_forward *forward;
    const struct wefti_forward_batch *batch;
    struct wefti_forward_attn_work attention[WEFTI_FORWARD_KINDS],
        last_attention[WEFTI_FORWARD_KINDS];
    bool narrows; /* it goes on with the batch's last_rows alone, within f->narrow_layer */
    const struct wefti_forward_lora_plan *lora, *last_lora; /* as a thread has them */
};

/* Whether a layer, from its beginning, has the last rows alone. */
static bool has_last_rows(const struct wefti_forward_thread *thread, uint32_t layer) {
    return thread->pass->narrows && layer > thread->forward->narrow_layer;
}

static void mark_layer(const struct wefti_forward_thread *thread, uint32_t layer) {
    if (thread->log) thread->log->layer = layer;
}

/* cos and sin of the angles at one position, in double and rounded once. */
static void fill_rope(const struct weft_rope *rope, uint32_t rope_dim, uint32_t pos,
                      float *cos_sin) {
    for (uint32_t i = 0; i < rope_dim / 2; i++) {
        double angle = (double)pos * rope->inv_freq[i];
        cos_sin[(size_t)i * 2] = (float)(cos(angle) * rope->magnitude);
        cos_sin[(size_t)i * 2 + 1] = (float)(sin(angle) * rope->magnitude);
    }
}

static void scale_row(float *x, uint32_t n, float scale) {
    for (uint32_t i = 0; i < n; i++)
        x[i] *= scale;
}

/* x *= sigmoid(gate) */
static void gate_row(float *x, const float *gate, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] /= 1 + expf(-gate[i]);
}

/* out += a row of a table. */
static void add_table_row(const struct wefti_forward_thread *thread,
                          const struct wefti_weights_rows *table, uint32_t row, float *out) {
    const struct wefti_forward *f = thread->forward;
    float *wide = thread->scratch->wide;
    if (table->n == 0) return;
    wefti_weights_row(f->weights, table, row, wide);
    for (uint32_t i = 0; i < f->n_hidden; i++)
        out[i] += wide[i];
}

/* A token's embedding as the first layer reads it. */
static void embed(const struct wefti_forward_thread *thread, uint32_t row, float *out) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_batch *batch = thread->pass->batch;
    const struct wefti_weights_encoder *encoder = &f->weights->encoder;
    const struct wefti_forward_norm norm = {encoder->embed_norm, encoder->embed_bias};
    wefti_weights_embed(f->weights, batch->tokens[row], thread->scratch->raw, out);
    if (f->embed_scale != 1) scale_row(out, f->n_hidden, f->embed_scale);
    bool is_second = batch->is_second && batch->is_second[row] && encoder->types.n > 1;
    add_table_row(thread, &encoder->types, is_second, out);
    add_table_row(thread, &encoder->positions,
                  f->first_position + batch->rows[WEFT_KV_FULL][row].pos, out);
    if (norm.weight) wefti_forward_normalise(f, out, norm, f->n_hidden, out);
}

static bool has_token(struct wefti_weights_range vocab, uint32_t token) {
    return token >= vocab.begin && token < vocab.end;
}

/* Everybody gets the embeddings that any rank has. Ends a phase, unless the group is over. */
static void share_embeddings(const struct wefti_forward_thread *thread) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_batch *batch = thread->pass->batch;
    uint32_t begin, end;
    if (!wefti_forward_share_parts(thread, batch->n_tokens)) return;
    while (wefti_forward_take_rows(thread, batch->n_tokens, WEFTI_FORWARD_ROWS_PER_TASK, &begin,
                                   &end)) {
        for (uint32_t row = begin; row < end; row++) {
            uint32_t rank = 0, token = batch->tokens[row], n_vocab = f->weights->n_vocab;
            while (!has_token(wefti_weights_vocab_of(n_vocab, rank, f->n_ranks), token))
                rank++;
            memcpy(f->x + row * f->x_stride, wefti_forward_part_of(f, rank, row),
                   f->n_hidden * sizeof *f->x);
        }
    }
    wefti_forward_end_phase(thread);
}

/* A token's embedding and the state before it, side by side. */
static void join(const struct wefti_forward_thread *thread, uint32_t row, float *out) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_norm enorm = {f->weights->enorm, 0}, hnorm = {f->weights->hnorm, 0};
    embed(thread, row, out);
    wefti_forward_normalise(f, out, enorm, f->n_hidden, out);
    wefti_forward_normalise(f, thread->pass->batch->states[row], hnorm, f->n_hidden,
                            out + f->n_hidden);
}

/* What a predictor's layer reads. */
static void multiply_joined(const struct wefti_forward_thread *thread, uint32_t n_rows) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_matrix *eh_proj[] = {&f->weights->eh_proj};
    const struct wefti_forward_source joined = {.rows = f->joined, .stride = f->joined_stride};
    const struct wefti_forward_product product = {
        .matrix = eh_proj[0], .c = f->x, .ldc = f->x_stride};
    struct wefti_forward_acts acts = wefti_forward_acts_make(thread, &joined, n_rows, eh_proj, 1);
    wefti_forward_multiply(thread, &acts, n_rows, &product, 1);
}

/* Embeddings, angles, and the copies of cache blocks: none writes what another one reads. */
static void begin_pass(const struct wefti_forward_thread *thread) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_batch *batch = thread->pass->batch;
    uint32_t n_copies_tasks = batch->n_copies ? f->n_layers : 0;
    wefti_forward_mark(thread, WEFT_ENG_OP_EMBED);
    uint32_t n_tasks = n_copies_tasks + batch->n_tokens;
    for (uint32_t task = wefti_forward_take_task(thread); task < n_tasks;
         task = wefti_forward_take_task(thread)) {
        if (task < n_copies_tasks) {
            wefti_kv_cache_copy(f->kv, task, batch->copies, batch->n_copies);
            continue;
        }
        uint32_t row = task - n_copies_tasks;
        if (f->joined)
            join(thread, row, f->joined + row * f->joined_stride);
        else if (!wefti_forward_is_divided(f))
            embed(thread, row, f->x + row * f->x_stride);
        else if (has_token(f->weights->vocab, batch->tokens[row]))
            embed(thread, row, wefti_forward_own_part(f) + row * f->part_stride);
        for (uint32_t kind = 0; kind < f->n_kinds && !f->has_positions; kind++)
            fill_rope(&f->ropes[kind][batch->is_long[row]], f->of_kind[kind].rope_dim,
                      batch->rows[WEFT_KV_FULL][row].pos, f->rope[kind] + row * f->rope_stride);
    }
    if (wefti_forward_is_divided(f))
        share_embeddings(thread);
    else
        wefti_forward_end_phase(thread);
    if (f->joined) multiply_joined(thread, batch->n_tokens);
    if (f->inputs && !f->failed) wefti_forward_make_inputs(thread, batch);
}

/* Normalises each head, or all of them as one row. */
static void norm_heads(const struct wefti_forward *f, float *x, uint32_t n, uint32_t head_dim,
                       size_t norm) {
    const uint32_t run = f->qk_norm_all ? n : head_dim;
    const float *weights = wefti_weights_vector(f->weights, norm);
    for (uint32_t at = 0; at < n; at += run) {
        const float *own = f->head_norms ? weights + at : weights;
        if (f->layer_norm)
            f->kern->layer_norm(x + at, own, NULL, f->rms_eps, run, x + at);
        else
            f->kern->rms_norm(x + at, own, f->rms_eps, run, x + at);
    }
}

static void turn_heads(const struct wefti_forward *f, float *x, uint32_t n,
                       const struct wefti_forward_heads *heads, const float *cos_sin) {
    const uint32_t dim = heads->head_dim;
    if (heads->rope_dim == dim) {
        f->kern->rope(x, n / dim, dim, cos_sin, f->rope_interleaved);
        return;
    }
    for (uint32_t at = 0; at < n; at += dim)
        f->kern->rope(x + at, 1, heads->rope_dim, cos_sin, f->rope_interleaved);
}

static void norm_q_and_k(const struct wefti_forward *f, const struct wefti_weights_layer *layer,
                         uint32_t head_dim, uint32_t row) {
    float *q = f->q + row * f->q_stride, *k = f->k + row * f->kv_stride;
    if (layer->q_norm) norm_heads(f, q, layer->q.n, head_dim, layer->q_norm);
    if (layer->k_norm) norm_heads(f, k, layer->k.n, head_dim, layer->k_norm);
}

/* Queries far behind count for more. Source: Llama 4's temperature tuning, which Ministral 3 has, too. */
static void scale_q(const struct wefti_forward *f, float *q, uint32_t n, uint32_t pos) {
    const uint32_t n_steps = (pos + f->q_shift) / f->q_step;
    scale_row(q, n, (float)(1 + (double)f->q_beta * log(1 + (double)n_steps)));
}

/* Norms of Llama 4's queries and keys have no weights, nor has that of Gemma 4's values. */
static void norm_plainly(const struct wefti_forward *f, float *x, uint32_t n, uint32_t head_dim) {
    for (uint32_t at = 0; at < n; at += head_dim)
        f->kern->rms_norm(x + at, f->ones, f->rms_eps, head_dim, x + at);
}

/* A row's q and k as attention wants them; its angles are those of the batch's row `turns_as`. */
static void finish_q_and_k(const struct wefti_forward *f, uint32_t layer_idx, uint32_t row,
                           uint32_t turns_as, uint32_t pos) {
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const struct wefti_forward_heads *heads = wefti_forward_heads_of(f, layer_idx);
    const float *cos_sin =
        f->rope[wefti_forward_layer_kind(f, layer_idx)] + turns_as * f->rope_stride;
    float *q = f->q + row * f->q_stride, *k = f->k + row * f->kv_stride,
          *v = f->v + row * f->kv_stride;
    if (layer->v.n == 0) memcpy(v, k, layer->k.n * sizeof *v);
    if (f->plain_v_norm) norm_plainly(f, v, layer->k.n, heads->head_dim);
    if (!f->norms_turned) norm_q_and_k(f, layer, heads->head_dim, row);
    bool turns = !weft_model_bit(f->no_rope, layer_idx);
    if (turns) {
        turn_heads(f, q, layer->q.n, heads, cos_sin);
        turn_heads(f, k, layer->k.n, heads, cos_sin);
    }
    if (turns && f->plain_qk_norm) {
        norm_plainly(f, q, layer->q.n, heads->head_dim);
        norm_plainly(f, k, layer->k.n, heads->head_dim);
    }
    if (f->norms_turned) norm_q_and_k(f, layer, heads->head_dim, row);
    if (f->q_step > 0 && !(f->q_unturned && turns)) scale_q(f, q, layer->q.n, pos);
}

static void rope_and_cache(const struct wefti_forward_thread *thread, uint32_t layer,
                           uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_batch *batch = thread->pass->batch;
    const bool is_last = has_last_rows(thread, layer);
    const struct weft_attn_row *rows = is_last ? f->last_rows[wefti_forward_layer_kind(f, layer)]
                                               : batch->rows[wefti_forward_block_kind(f, layer)];
    const float *k = f->k + (size_t)f->weights->layers[layer].k_first *
                                wefti_forward_heads_of(f, layer)->head_dim;
    uint32_t per_task = n_rows > 4 * f->n_threads ? WEFTI_FORWARD_ROWS_PER_TASK : 1;
    uint32_t begin, end;
    while (wefti_forward_take_rows(thread, n_rows, per_task, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++) {
            uint32_t of_batch = is_last ? batch->last_rows[row] : row;
            finish_q_and_k(f, layer, row, of_batch, rows[row].pos);
            if (f->weights->layers[layer].k.n == 0) continue; /* it reads another layer's */
            if (!wefti_forward_writes(f, batch, layer, of_batch)) continue;
            f->kern->kv_write(&f->kv->layers[layer], rows[row].block_table, rows[row].pos,
                              k + row * f->kv_stride, f->v + row * f->kv_stride);
        }
    }
    wefti_forward_end_phase(thread);
}

/* Moves the rows that go on to the front. No target comes after its source, so one thread goes
 * through them in order. */
static void move_last_rows_to_front(const struct wefti_forward_thread *thread) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_batch *batch = thread->pass->batch;
    for (uint32_t i = 0; i < batch->n_last_rows && thread->idx == 0; i++) {
        uint32_t row = batch->last_rows[i];
        if (row == i) continue;
        memcpy(f->x + i * f->x_stride, f->x + row * f->x_stride, f->n_hidden * sizeof(float));
        memcpy(f->q + i * f->q_stride, f->q + row * f->q_stride, f->q_dim * sizeof(float));
        if (f->indexer.n_heads > 0) wefti_forward_index_move(f, row, i);
        if (f->attn_gate)
            memcpy(f->attn_gate + i * f->out_stride, f->attn_gate + row * f->out_stride,
                   f->out_stride * sizeof(float));
        if (f->read)
            memcpy(f->read + i * f->x_stride, f->read + row * f->x_stride,
                   f->n_hidden * sizeof(float));
    }
    wefti_forward_end_phase(thread);
}

/* The same as add_product, where ranks divide the sum over K. */
static void add_divided_product(const struct wefti_forward_thread *thread,
                                const struct wefti_forward_acts *acts, uint32_t n_rows,
                                const struct wefti_weights_matrix *matrix,
                                const struct wefti_forward_half_end *half) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_forward_product part = {
        .matrix = matrix, .c = wefti_forward_own_part(f), .ldc = f->part_stride};
    if (matrix->n > 0) wefti_forward_multiply_on(thread, acts, n_rows, &part, 1);
    if (!wefti_forward_share_parts(thread, n_rows)) return;
    float *sum = thread->scratch->wide;
    const float *bias = wefti_forward_vector(f, half->bias);
    uint32_t begin, end;
    while (wefti_forward_take_rows(thread, n_rows, WEFTI_FORWARD_ROWS_PER_TASK, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++) {
            const struct wefti_forward_sum what = {row, 0, f->n_hidden, matrix->present};
            float *x = f->x + row * f->x_stride;
            wefti_forward_sum_parts(f, &what, sum);
            for (uint32_t i = 0; bias && i < f->n_hidden; i++)
                sum[i] += bias[i];
            if (f->adds_apart) {
                wefti_forward_add_row(f, x, sum, half);
                continue;
            }
            for (uint32_t i = 0; i < f->n_hidden; i++)
                x[i] += sum[i];
        }
    }
    wefti_forward_end_phase(thread);
}

/* The product that ends a half of a layer. */
struct last_product {
    uint32_t layer;
    const struct wefti_weights_matrix *matrix;
    enum weft_lora_role role;
    struct wefti_forward_source src; /* of the activations */
    const struct wefti_forward_lora_plan
        *lora; /* of the rows that it has; NULL: none has adapters */
};

/* x += activations * matrix. */
static void add_product(const struct wefti_forward_thread *thread,
                        const struct wefti_forward_acts *acts, uint32_t n_rows,
                        const struct last_product *last,
                        const struct wefti_forward_half_end *half) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_matrix *matrix = last->matrix;
    const struct wefti_forward_lora_plan *lora = last->lora;
    const struct wefti_forward_lora_group group = {.layer = last->layer,
                                                   .n = 1,
                                                   .roles = {last->role},
                                                   .y = {f->adds_apart ? f->added : f->x},
                                                   .ldc = {f->x_stride}};
    if (lora) wefti_forward_lora_down(thread, lora, &group, &last->src);
    if (wefti_forward_is_divided(f)) {
        add_divided_product(thread, acts, n_rows, matrix, half);
        return;
    }
    if (!f->adds_apart) {
        const struct wefti_forward_product sum = {.matrix = matrix,
                                                  .c = f->x,
                                                  .ldc = f->x_stride,
                                                  .residual = f->x,
                                                  .bias = wefti_forward_vector(f, half->bias)};
        wefti_forward_multiply(thread, acts, n_rows, &sum, 1);
        if (lora) wefti_forward_lora_up(thread, lora, &group);
        return;
    }
    const struct wefti_forward_product part = {.matrix = matrix,
                                               .c = f->added,
                                               .ldc = f->x_stride,
                                               .bias = wefti_forward_vector(f, half->bias)};
    wefti_forward_multiply(thread, acts, n_rows, &part, 1);
    if (lora) wefti_forward_lora_up(thread, lora, &group);
    uint32_t begin, end;
    while (wefti_forward_take_rows(thread, n_rows, WEFTI_FORWARD_ROWS_PER_TASK, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++)
            wefti_forward_add_row(f, f->x + row * f->x_stride, f->added + row * f->x_stride, half);
    }
    wefti_forward_end_phase(thread);
}

/* Makes q from the residual stream, and K and V, which go into the cache. */
static void make_q_and_kv(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                          uint32_t n_rows) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    /* A recurrent part beside it has changed x, long after all of it was kept. */
    struct wefti_forward_source hidden = {.rows = layer->rec.is_there ? f->read : f->x,
                                          .stride = f->x_stride,
                                          .norm = {layer->attn_norm, layer->attn_norm_bias}};
    const struct wefti_forward_product all[] = {
        {.matrix = &layer->q,
         .c = f->q,
         .ldc = f->q_stride,
         .bias = wefti_forward_vector(f, layer->bq)},
        {.matrix = &layer->k,
         .c = f->k,
         .ldc = f->kv_stride,
         .bias = wefti_forward_vector(f, layer->bk)},
        {.matrix = &layer->v,
         .c = f->v,
         .ldc = f->kv_stride,
         .bias = wefti_forward_vector(f, layer->bv)},
        {.matrix = &layer->attn_gate, .c = f->attn_gate, .ldc = f->out_stride}};
    const struct wefti_weights_matrix *matrices[4];
    struct wefti_forward_product products[4];
    uint32_t n_products = 0;
    for (uint32_t i = 0; i < 4; i++) {
        if (all[i].matrix->n == 0) continue;
        matrices[n_products] = all[i].matrix;
        products[n_products++] = all[i];
    }
    wefti_forward_mark(thread, WEFT_ENG_OP_ATTN_NORM);
    struct wefti_forward_acts acts =
        wefti_forward_acts_make(thread, &hidden, n_rows, matrices, n_products);
    wefti_forward_acts_observe(thread, layer_idx, WEFTI_CALIB_QKV, &acts, n_rows);
    const struct wefti_forward_lora_group group = {
        .layer = layer_idx,
        .n = layer->attn_gate.n > 0 ? 4 : 3,
        .roles = {WEFT_LORA_Q, WEFT_LORA_K, WEFT_LORA_V, WEFT_LORA_ATTN_GATE},
        .y = {f->q, f->k, f->v, f->attn_gate},
        .ldc = {f->q_stride, f->kv_stride, f->kv_stride, f->out_stride}};
    const struct wefti_forward_lora_plan *lora =
        has_last_rows(thread, layer_idx) ? thread->last_lora : thread->lora;
    wefti_forward_mark(thread, WEFT_ENG_OP_QKV);
    if (lora) wefti_forward_lora_down(thread, lora, &group, &hidden);
    wefti_forward_multiply(thread, &acts, n_rows, products, n_products);
    if (lora) wefti_forward_lora_up(thread, lora, &group);
    wefti_forward_mark(thread, WEFT_ENG_OP_ROPE_KV);
    rope_and_cache(thread, layer_idx, n_rows);
}

/* What the rows' heads attended to, and where it is. */
static struct wefti_forward_source attended(const struct wefti_forward *f) {
    if (f->latent_dim)
        return (struct wefti_forward_source){.rows = f->heads, .stride = f->heads_stride};
    return (struct wefti_forward_source){.rows = f->attn, .stride = f->out_stride};
}

/* What heads yield is gated, each element by its own. Ends a phase. */
static void gate_attended(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                          uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    const uint32_t n =
        f->weights->layers[layer_idx].n_heads * wefti_forward_heads_of(f, layer_idx)->head_dim;
    uint32_t begin, end;
    while (wefti_forward_take_rows(thread, n_rows, WEFTI_FORWARD_ROWS_PER_TASK, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++)
            gate_row(f->attn + row * f->out_stride, f->attn_gate + row * f->out_stride, n);
    }
    wefti_forward_end_phase(thread);
}

/* The same as the output's matrix wants it. */
static struct wefti_forward_acts attend(const struct wefti_forward_thread *thread,
                                        uint32_t layer_idx,
                                        const struct wefti_forward_attn_work *work,
                                        uint32_t n_rows) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_matrix *o[] = {&f->weights->layers[layer_idx].o};
    const struct wefti_forward_source heads = attended(f);
    wefti_forward_mark(thread, WEFT_ENG_OP_ATTENTION);
    wefti_forward_attend(thread, layer_idx, work);
    if (f->attn_gate) gate_attended(thread, layer_idx, n_rows);
    if (f->latent_dim) {
        wefti_forward_mark(thread, WEFT_ENG_OP_O);
        wefti_forward_latent_out(thread, layer_idx, n_rows);
    }
    wefti_forward_mark(thread, WEFT_ENG_OP_O_CONVERT);
    struct wefti_forward_acts acts = wefti_forward_acts_make(thread, &heads, n_rows, o, 1);
    wefti_forward_acts_observe(thread, layer_idx, WEFTI_CALIB_O, &acts, n_rows);
    return acts;
}

/* Each thread copies rows of its own, so nobody waits: what a layer reads is changed after a barrier at the earliest. */
static void keep_read(const struct wefti_forward_thread *thread, uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    uint32_t begin = (uint32_t)((uint64_t)n_rows * thread->idx / f->n_threads),
             end = (uint32_t)((uint64_t)n_rows * (thread->idx + 1) / f->n_threads);
    memcpy(f->read + begin * f->x_stride, f->x + begin * f->x_stride,
           (end - begin) * f->x_stride * sizeof *f->x);
}

static void layer_attention(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                            uint32_t *n_rows) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_forward_batch *batch = thread->pass->batch;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    uint32_t kind = wefti_forward_layer_kind(f, layer_idx);
    const struct wefti_forward_attn_work *work = has_last_rows(thread, layer_idx)
                                                     ? &thread->pass->last_attention[kind]
                                                     : &thread->pass->attention[kind];

    bool has_heads = layer->n_heads > 0;
    if (has_heads && f->latent_dim)
        wefti_forward_latent_in(thread, layer_idx, batch);
    else if (has_heads)
        make_q_and_kv(thread, layer_idx, *n_rows);
    if (thread->pass->narrows && layer_idx == f->narrow_layer) {
        *n_rows = batch->n_last_rows;
        if (*n_rows == 0) return;
        wefti_forward_mark(thread, WEFT_ENG_OP_ATTENTION);
        if (!has_heads && f->read) wefti_forward_end_phase(thread); /* all of it is kept */
        move_last_rows_to_front(thread);
        work = &thread->pass->last_attention[kind];
    }
    struct wefti_forward_acts acts = {0};
    if (has_heads && f->indexer.n_heads > 0)
        wefti_forward_index_choose(thread, layer_idx, work->rows, *n_rows);
    if (has_heads) acts = attend(thread, layer_idx, work, *n_rows);
    wefti_forward_mark(thread, WEFT_ENG_OP_O);
    const struct wefti_forward_half_end end = {.bias = layer->bo,
                                               .scale = f->attention_scale,
                                               .post = {layer->post_attn_norm, 0},
                                               .sum = {layer->attn_sum_norm, layer->attn_sum_bias}};
    const struct last_product last = {layer_idx, &layer->o, WEFT_LORA_O, attended(f),
                                      wefti_forward_lora_after(thread, layer_idx)};
    add_product(thread, &acts, *n_rows, &last, &end);
}

/* The recurrent part, which all rows of the batch go through. */
static void layer_recurrent(const struct wefti_forward_thread *thread, uint32_t layer_idx) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_forward_batch *batch = thread->pass->batch;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const struct wefti_weights_matrix *out[] = {&layer->rec_out};
    struct wefti_forward_source made;
    struct wefti_forward_acts acts = {0};
    if (!wefti_forward_recurrent(thread, layer_idx, batch, &made)) return;
    wefti_forward_mark(thread, WEFT_ENG_OP_O_CONVERT);
    if (layer->rec.n > 0) acts = wefti_forward_acts_make(thread, &made, batch->n_tokens, out, 1);
    wefti_forward_mark(thread, WEFT_ENG_OP_O);
    const struct wefti_forward_half_end end = {.scale = f->recurrent_scale};
    const struct last_product last = {layer_idx, &layer->rec_out, WEFT_LORA_REC_OUT, made,
                                      thread->lora};
    add_product(thread, &acts, batch->n_tokens, &last, &end);
}

/* Rows that go on, where the layer has no attention that leaves out the others. */
static void narrow(const struct wefti_forward_thread *thread, uint32_t *n_rows) {
    *n_rows = thread->pass->batch->n_last_rows;
    if (*n_rows > 0) move_last_rows_to_front(thread);
}

/* The products of the FFN up to the last one, as that wants them. */
static struct wefti_forward_acts make_inner(const struct wefti_forward_thread *thread,
                                            uint32_t layer_idx, uint32_t n_rows) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const struct wefti_weights_matrix *in[] = {&layer->gate, &layer->up};
    struct wefti_forward_source hidden = wefti_forward_ffn_source(f, layer);
    wefti_forward_mark(thread, WEFT_ENG_OP_FFN_NORM);
    struct wefti_forward_acts acts =
        wefti_forward_acts_make(thread, &hidden, n_rows, in, layer->up.n > 0 ? 2 : 1);
    wefti_forward_acts_observe(thread, layer_idx, WEFTI_CALIB_FFN, &acts, n_rows);
    wefti_forward_mark(thread, WEFT_ENG_OP_GATE_UP);
    struct wefti_forward_acts inner;
    wefti_forward_gate_up(thread, &acts, layer_idx, &hidden, n_rows, &inner);
    wefti_forward_acts_observe(thread, layer_idx, WEFTI_CALIB_DOWN, &inner, n_rows);
    return inner;
}

static void layer_ffn(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                      uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const struct last_product last = {layer_idx,
                                      &layer->down,
                                      WEFT_LORA_DOWN,
                                      {.rows = f->ffn, .stride = f->ffn_stride},
                                      wefti_forward_lora_after(thread, layer_idx)};
    struct wefti_forward_acts acts = {0};
    if (layer->down.n > 0) acts = make_inner(thread, layer_idx, n_rows);
    wefti_forward_mark(thread, WEFT_ENG_OP_DOWN);
    const struct wefti_forward_half_end end = wefti_forward_ffn_end(f, layer);
    add_product(thread, &acts, n_rows, &last, &end);
}

/* The caller gets the hidden states of the batch's spans. Nothing is written that others read. */
static void give_hidden(const struct wefti_forward_thread *thread) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_batch *batch = thread->pass->batch;
    const struct wefti_forward_norm norm = {f->weights->final_norm, f->weights->final_bias};
    float *hidden = thread->scratch->wide;
    wefti_forward_mark(thread, WEFT_ENG_OP_HEAD_NORM);
    for (uint32_t i = wefti_forward_take_task(thread); i < batch->n_spans;
         i = wefti_forward_take_task(thread)) {
        for (uint32_t row = 0; row < batch->spans[i].n; row++) {
            const float *x = f->x + (batch->spans[i].first + row) * f->x_stride;
            if (norm.weight) wefti_forward_normalise(f, x, norm, f->n_hidden, hidden);
            batch->on_hidden(batch->ctx, i, norm.weight ? hidden : x, thread->idx);
        }
    }
    wefti_forward_end_phase(thread);
}

static void give_logits(const struct wefti_forward_thread *thread, uint32_t first, uint32_t i) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_batch *batch = thread->pass->batch;
    float *logits = f->logits + i * f->logit_stride;
    if (f->logit_soft_cap > 0) f->kern->soft_cap(logits, f->weights->n_vocab, f->logit_soft_cap);
    if (f->logit_scale != 1) scale_row(logits, f->weights->n_vocab, f->logit_scale);
    batch->on_logits(batch->ctx, first + i, logits, thread->idx);
}

static bool is_chained(const struct wefti_forward_thread *thread, uint32_t i) {
    const bool *chained = thread->pass->batch->is_chained;
    return chained && chained[i];
}

/* The caller gets n rows of logits, which follow on row `first` of the list. */
static void give_chunk(const struct wefti_forward_thread *thread, uint32_t first, uint32_t n) {
    wefti_forward_mark(thread, WEFT_ENG_OP_SAMPLE);
    if (thread->pass->batch->in_order) {
        for (uint32_t i = 0; i < n && thread->idx == 0; i++) {
            give_logits(thread, first, i);
        }
        return;
    }
    for (uint32_t i = wefti_forward_take_task(thread); i < n; i = wefti_forward_take_task(thread)) {
        if (i > 0 && is_chained(thread, first + i)) continue; /* they go with the row before */
        give_logits(thread, first, i);
        for (uint32_t k = i + 1; k < n && is_chained(thread, first + k); k++)
            give_logits(thread, first, k);
    }
}

/* Logits of rows first..first+n of the list, which the caller gets. Each rank has those of some
 * tokens, and writes them to their places in rows that all share; the first one gives the rows. */
static void head_chunk(const struct wefti_forward_thread *thread, uint32_t first, uint32_t n) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_forward_batch *batch = thread->pass->batch;
    const struct wefti_weights_matrix *head[] = {&f->weights->head};
    struct wefti_forward_source hidden = {.rows = f->x,
                                          .stride = f->x_stride,
                                          .index = batch->logit_rows + first,
                                          .norm = {f->weights->final_norm, f->weights->final_bias}};
    if (head[0]->n > 0) {
        wefti_forward_mark(thread, WEFT_ENG_OP_HEAD_NORM);
        struct wefti_forward_acts acts = wefti_forward_acts_make(thread, &hidden, n, head, 1);
        wefti_forward_acts_observe(thread, 0, WEFTI_CALIB_HEAD, &acts, n);
        const struct wefti_forward_product out = {
            .matrix = head[0], .c = f->logits + f->weights->vocab.begin, .ldc = f->logit_stride};
        wefti_forward_mark(thread, WEFT_ENG_OP_HEAD);
        wefti_forward_multiply_on(thread, &acts, n, &out, 1);
    }
    if (!wefti_forward_is_divided(f)) {
        wefti_forward_end_phase(thread);
        give_chunk(thread, first, n);
        wefti_forward_end_phase(thread);
        return;
    }
    if (!wefti_forward_share_logits(thread, n)) return;
    if (f->rank == 0) give_chunk(thread, first, n);
    (void)wefti_forward_share_tokens(thread, first, n); /* before anybody writes the next rows */
}

static void run_thread(void *ctx, uint32_t thread_idx) {
    const struct wefti_forward_pass *pass = ctx;
    struct wefti_forward *f = pass->forward;
    struct wefti_forward_thread thread = {.forward = f,
                                          .pass = pass,
                                          .scratch = &f->threads[thread_idx],
                                          .lora = pass->lora,
                                          .last_lora = pass->last_lora,
                                          .idx = thread_idx};
    if (f->profile) thread.log = wefti_profile_thread_log(f->profile, thread_idx);
    uint32_t n_rows = pass->batch->n_tokens;
    begin_pass(&thread);
    for (uint32_t i = 0; i < f->n_layers && n_rows > 0 && !f->failed; i++) {
        const struct wefti_weights_layer *layer = &f->weights->layers[i];
        mark_layer(&thread, i);
        if (f->read) keep_read(&thread, n_rows);
        if (layer->rec.is_there) layer_recurrent(&thread, i);
        if (f->failed) break;
        if (!layer->no_attention)
            layer_attention(&thread, i, &n_rows);
        else if (pass->narrows && i == f->narrow_layer)
            narrow(&thread, &n_rows);
        if (f->failed) break;
        if (n_rows > 0 && layer->experts)
            wefti_forward_experts(&thread, i, n_rows);
        else if (n_rows > 0 && !layer->no_ffn)
            layer_ffn(&thread, i, n_rows);
        if (f->failed) break;
        if (n_rows > 0 && f->inputs)
            wefti_forward_layer_input(&thread, i, n_rows,
                                      pass->narrows && i >= f->narrow_layer ? pass->batch->last_rows
                                                                            : NULL);
        wefti_pool_progress(f->pool, thread_idx);
    }
    mark_layer(&thread, UINT32_MAX);
    if (pass->batch->n_spans > 0 && !f->failed) give_hidden(&thread);
    uint32_t n_logit_rows = pass->batch->n_logit_rows;
    for (uint32_t first = 0; first < n_logit_rows && !f->failed; first += WEFTI_FORWARD_HEAD_ROWS) {
        head_chunk(&thread, first, weft_min_u32(WEFTI_FORWARD_HEAD_ROWS, n_logit_rows - first));
    }
    wefti_forward_mark(&thread, WEFT_ENG_OP_COUNT);
}

static void note_pass(const struct wefti_forward *f, const struct wefti_forward_pass *pass,
                      bool narrows) {
    const struct wefti_forward_batch *batch = pass->batch;
    struct wefti_forward_costs costs = {
        .attention_peak =
            f->is_exact ? WEFT_PEAK_F32 : f->kern->attention_peak[f->kv->layers[0].dtype],
        .n_rows = batch->n_tokens,
        .n_last_rows = batch->n_last_rows, /* all of them unless it narrows to those */
        .n_logit_rows = batch->n_logit_rows,
        .n_head_calls =
            (batch->n_logit_rows + WEFTI_FORWARD_HEAD_ROWS - 1) / WEFTI_FORWARD_HEAD_ROWS,
        .n_heads = f->weights->n_heads_max,
        .narrow_layer = f->narrow_layer,
        .state_bytes = f->states && f->states->map ? 2 * f->states->place_bytes * batch->n_seqs : 0,
    };
    for (uint32_t i = 0; i < f->n_layers; i++) {
        uint32_t kind = wefti_forward_layer_kind(f, i), window = f->windows[kind];
        if (f->weights->layers[i].no_attention) continue;
        const bool is_last = narrows && i >= f->narrow_layer;
        if (f->kv->index)
            wefti_forward_cost_index(
                &costs, &f->kv->index[i], f->indexer.n_heads,
                is_last
                    ? wefti_forward_index_scored(f, f->last_rows[kind], batch->n_last_rows)
                    : wefti_forward_index_scored(f, batch->rows[WEFT_KV_FULL], batch->n_tokens));
        if (is_last) {
            wefti_forward_cost_attention(
                &costs, &f->kv->layers[i],
                wefti_forward_attn_seen(f, window, f->last_rows[kind], batch->n_last_rows),
                wefti_forward_attn_read(f, &pass->last_attention[kind]));
        } else {
            wefti_forward_cost_attention(
                &costs, &f->kv->layers[i],
                wefti_forward_attn_seen(f, window, batch->rows[WEFT_KV_FULL], batch->n_tokens),
                wefti_forward_attn_read(f, &pass->attention[kind]));
        }
    }
    wefti_forward_book_pass(f->profile, f->weights, &costs);
}

void wefti_forward_watch_routes(struct wefti_forward *f, weft_eng_routes_fn *fn, void *ctx) {
    f->on_routes = fn;
    f->on_routes_ctx = ctx;
}

const uint64_t *wefti_forward_expert_tokens(const struct wefti_forward *f) {
    return f->expert_tokens;
}

void wefti_forward_observe(struct wefti_forward *f, weft_eng_calib *calib) {
    f->calib = calib;
}

uint32_t *wefti_forward_shared_tokens(const struct wefti_forward *f) {
    return f->shared_tokens;
}

/* Before the threads begin, since they share the plans. */
static void plan_adapters(struct wefti_forward_pass *pass) {
    struct wefti_forward_lora_plan *plans;
    const struct wefti_forward_batch *batch = pass->batch;
    if (!batch->adapters) return;
    plans = wefti_forward_lora_plans(pass->forward);
    if (!wefti_forward_lora_plan(&plans[0], batch->adapters, NULL, batch->n_tokens)) return;
    pass->lora = pass->last_lora = &plans[0];
    if (!pass->narrows) return;
    (void)wefti_forward_lora_plan(&plans[1], batch->adapters, batch->last_rows, batch->n_last_rows);
    pass->last_lora = &plans[1];
}

weft_err wefti_forward_run(struct wefti_forward *f, const struct wefti_forward_batch *batch,
                           struct weft_errmsg *why) {
    WEFT_ASSERT(batch->n_tokens <= f->max_rows && batch->n_last_rows <= batch->n_tokens);
    WEFT_ASSERT(batch->n_logit_rows <= batch->n_last_rows);
    if (f->failed) return weft_err_set(why, f->failed, "%s", f->failure.text);
    struct wefti_forward_pass pass = {.forward = f, .batch = batch};
    for (uint32_t kind = 0; kind < f->n_kinds; kind++)
        pass.attention[kind] = wefti_forward_attn_plan(f, kind, batch->rows[f->block_kinds[kind]],
                                                       batch->n_tokens, f->tiles[kind]);
    bool narrows = batch->n_last_rows < batch->n_tokens;
    for (uint32_t kind = 0; kind < f->n_kinds && narrows; kind++) {
        struct weft_attn_row *rows = f->last_rows[kind];
        for (uint32_t i = 0; i < batch->n_last_rows; i++)
            rows[i] = batch->rows[f->block_kinds[kind]][batch->last_rows[i]];
        pass.last_attention[kind] =
            wefti_forward_attn_plan(f, kind, rows, batch->n_last_rows, f->last_tiles[kind]);
    }
    pass.narrows = narrows;
    plan_adapters(&pass);
    if (f->profile) note_pass(f, &pass, narrows);
    wefti_pool_run(f->pool, run_thread, &pass);
    return f->failed ? weft_err_set(why, f->failed, "%s", f->failure.text) : WEFT_OK;
}
