/* DeepSeek-V3.2's lightning indexer (arXiv:2512.02556): every token leaves a short key of its own in the cache,
 * beside its latent, and a later token attends to those top_k positions whose keys its index
 * queries score highest.
 *
 *   index keys into the cache, index queries turned (latent.c) | scores | choice | attention
 *
 * Scores are of one row and a span of positions to a task, choices of one row. What a row attends to follows
 * from the row and its history alone. Rows that have no more positions than they may attend to are
 * not scored. Scores of many rows over a long context would take more memory than all else, so rows
 * come in rounds. */
#include "forward/attention/indexer.h"

#include <math.h>
#include <string.h>

#include "forward/attention/choose.h"

enum {
    SPAN = 1024,           /* positions of a task */
    ROOM_BYTES = 16 << 20, /* of the scores of a round, or more where one row has more */
};
#define NORM_EPS 1e-6f /* of index keys, whatever the model's own */
_Static_assert(SPAN % WEFT_ATTN_SET_WORD == 0, "kernels begin at whole tiles");

void wefti_forward_index_set(struct wefti_forward *f, const struct weft_model_params *params,
                             uint32_t n_context) {
    const struct weft_model_indexer *indexer = &params->indexer;
    f->indexer = *indexer;
    if (indexer->n_heads == 0) return;
    f->index_k_stride = wefti_memory_stride(indexer->head_dim);
    f->index_scale = (float)(1 / sqrt((double)indexer->head_dim * indexer->n_heads));
    if (n_context <= indexer->top_k) return; /* nobody ever has more */
    f->index_q_stride = wefti_memory_stride((size_t)indexer->n_heads * indexer->head_dim);
    f->index_weight_stride = wefti_memory_stride(indexer->n_heads);
    f->seen_stride = weft_attn_set_words(n_context);
    f->index_room = weft_round_up(n_context, SPAN);
    if (f->index_room < ROOM_BYTES / sizeof(float)) {
        size_t all = f->index_room * f->max_rows;
        f->index_room = all < ROOM_BYTES / sizeof(float) ? all : ROOM_BYTES / sizeof(float);
    }
}

static bool is_scored(const struct wefti_forward *f, const struct weft_attn_row *row) {
    return row->pos >= f->indexer.top_k;
}

bool wefti_forward_index_scores(const struct wefti_forward *f, const struct weft_attn_row *rows,
                                uint32_t n) {
    for (uint32_t i = 0; i < n && f->seen_stride > 0; i++) {
        if (is_scored(f, &rows[i])) return true;
    }
    return false;
}

uint64_t wefti_forward_index_scored(const struct wefti_forward *f, const struct weft_attn_row *rows,
                                    uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n && f->seen_stride > 0; i++) {
        if (is_scored(f, &rows[i])) sum += (uint64_t)rows[i].pos + 1;
    }
    return sum;
}

void wefti_forward_index_row(const struct wefti_forward *f, uint32_t layer_idx,
                             const struct wefti_forward_batch *batch, uint32_t row) {
    const struct weft_attn_row *at = &batch->rows[wefti_forward_block_kind(f, layer_idx)][row];
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const float *cos_sin = f->rope[wefti_forward_layer_kind(f, layer_idx)] + row * f->rope_stride;
    float *k = f->index_k + row * f->index_k_stride;
    f->kern->layer_norm(k, wefti_weights_vector(f->weights, layer->index_norm),
                        wefti_weights_vector(f->weights, layer->index_norm_bias), NORM_EPS,
                        f->indexer.head_dim, k);
    f->kern->rope(k, 1, f->rope_dim, cos_sin, f->indexer.pairs);
    if (wefti_forward_writes(f, batch, layer_idx, row))
        f->kern->kv_write(&f->kv->index[layer_idx], at->block_table, at->pos, k, NULL);
    if (!is_scored(f, at)) return;
    float *q = f->index_q + row * f->index_q_stride;
    for (uint32_t h = 0; h < f->indexer.n_heads; h++, q += f->indexer.head_dim)
        f->kern->rope(q, 1, f->rope_dim, cos_sin, f->indexer.pairs);
}

void wefti_forward_index_move(const struct wefti_forward *f, uint32_t from, uint32_t to) {
    WEFT_ASSERT(to < from);
    if (f->seen_stride == 0) return;
    memcpy(f->index_q + to * f->index_q_stride, f->index_q + from * f->index_q_stride,
           f->index_q_stride * sizeof *f->index_q);
    memcpy(f->index_weights + to * f->index_weight_stride,
           f->index_weights + from * f->index_weight_stride,
           f->index_weight_stride * sizeof *f->index_weights);
}

/* Rows that are scored together: their tasks, and so their scores, follow on each other. */
struct round {
    const struct weft_attn_row *rows;
    uint32_t begin, end, n_tasks;
};

static uint32_t count_tasks(const struct wefti_forward *f, const struct weft_attn_row *row) {
    return is_scored(f, row) ? row->pos / SPAN + 1 : 0;
}

static struct round plan_round(const struct wefti_forward *f, const struct weft_attn_row *rows,
                               uint32_t begin, uint32_t n_rows) {
    struct round round = {.rows = rows, .begin = begin, .end = begin};
    for (; round.end < n_rows; round.end++) {
        uint32_t n_tasks = round.n_tasks + count_tasks(f, &rows[round.end]);
        if ((size_t)n_tasks * SPAN > f->index_room) break;
        round.n_tasks = n_tasks;
    }
    WEFT_ASSERT(round.end > begin); /* one has room */
    return round;
}

static void score(const struct wefti_forward_thread *thread, uint32_t layer,
                  const struct round *round) {
    const struct wefti_forward *f = thread->forward;
    uint32_t row = round->begin, before = 0;
    for (uint32_t task = wefti_forward_take_task(thread); task < round->n_tasks;
         task = wefti_forward_take_task(thread)) {
        while (task >= before + count_tasks(f, &round->rows[row]))
            before += count_tasks(f, &round->rows[row++]);
        uint32_t begin = (task - before) * SPAN;
        uint32_t end = weft_min_u32(begin + SPAN, round->rows[row].pos + 1);
        const struct weft_index_args args = {.kv = f->kv->index[layer],
                                             .block_table = round->rows[row].block_table,
                                             .q = f->index_q + row * f->index_q_stride,
                                             .weights =
                                                 f->index_weights + row * f->index_weight_stride,
                                             .n_heads = f->indexer.n_heads,
                                             .exact = f->is_exact,
                                             .scale = f->index_scale};
        f->kern->index_scores(&args, begin, end, f->index_scores + (size_t)task * SPAN);
    }
    wefti_forward_end_phase(thread);
}

static void choose(const struct wefti_forward_thread *thread, const struct round *round) {
    const struct wefti_forward *f = thread->forward;
    const uint32_t n_rows = round->end - round->begin;
    uint32_t row = round->begin, before = 0;
    for (uint32_t task = wefti_forward_take_task(thread); task < n_rows;
         task = wefti_forward_take_task(thread)) {
        while (row < round->begin + task)
            before += count_tasks(f, &round->rows[row++]);
        const struct weft_attn_row *at = &round->rows[row];
        WEFT_ASSERT(at->pos / WEFT_ATTN_SET_WORD < f->seen_stride);
        if (is_scored(f, at))
            wefti_forward_choose(f->index_scores + (size_t)before * SPAN, at->pos + 1,
                                 f->indexer.top_k, f->seen + row * f->seen_stride);
    }
    wefti_forward_end_phase(thread);
}

void wefti_forward_index_choose(const struct wefti_forward_thread *thread, uint32_t layer,
                                const struct weft_attn_row *rows, uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    if (!wefti_forward_index_scores(f, rows, n_rows)) return;
    wefti_forward_mark(thread, WEFT_ENG_OP_INDEX);
    for (uint32_t begin = 0; begin < n_rows;) {
        const struct round round = plan_round(f, rows, begin, n_rows);
        begin = round.end;
        if (round.n_tasks == 0) continue;
        score(thread, layer, &round);
        wefti_forward_mark(thread, WEFT_ENG_OP_INDEX);
        choose(thread, &round);
        wefti_forward_mark(thread, WEFT_ENG_OP_INDEX);
    }
}
