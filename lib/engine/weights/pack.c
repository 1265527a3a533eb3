/* Tensors of a file into the forms of the arena, part by part, on all threads. */
#include "weights/pack.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/minmax.h"

struct packing {
    const struct wefti_weights_plan *plan;
    struct wefti_pool *pool;
    uint8_t *base;             /* where parts are packed in place, or */
    wefti_weights_put_fn *put; /* what puts them elsewhere */
    void *put_ctx;
    uint32_t n_tasks;
    _Atomic uint32_t n_done;
    atomic_flag is_telling; /* held by the thread that does */
    uint64_t model_hash;
};

/* Rows begin..end of an item's tensor are its part `part`. */
static void part_rows(const struct wefti_weights_item *item, uint32_t part, uint32_t *begin_out,
                      uint32_t *end_out) {
    *begin_out = item->rows.begin + part * item->rows_per_task;
    *end_out = *begin_out + weft_min_u32(item->rows_per_task, item->rows.end - *begin_out);
}

size_t wefti_weights_part_bytes_max(const struct wefti_weights_item *item) {
    if (item->form == WEFTI_WEIGHTS_VECTOR) return (size_t)item->n * item->k * sizeof(float);
    uint32_t rows = weft_min_u32(item->rows_per_task, wefti_weights_item_n(item));
    if (item->form != WEFTI_WEIGHTS_ROWS)
        return weft_div_up_u32(rows, WEFT_PANEL) * wefti_weights_item_panel_bytes(item);
    return item->src->bytes / item->n * rows;
}

size_t wefti_weights_part_offset(const struct wefti_weights_item *item, uint32_t part) {
    if (item->form == WEFTI_WEIGHTS_VECTOR) return item->offset;
    size_t row = (size_t)part * item->rows_per_task;
    if (item->form == WEFTI_WEIGHTS_HEADS)
        return item->offset + part * weft_kern_packed_bytes(item->kind, item->n, item->k);
    if (item->form == WEFTI_WEIGHTS_PANELS)
        return item->offset + row / WEFT_PANEL * wefti_weights_item_panel_bytes(item);
    return item->offset + row * (item->src->bytes / item->n);
}

size_t wefti_weights_source_bytes(const struct wefti_weights_item *item) {
    if (item->form != WEFTI_WEIGHTS_HEADS) return item->src->bytes;
    return item->src->bytes / item->row_step * (item->turned ? item->k : item->n);
}

static enum weft_kern_clip clip_of(enum weft_eng_clip clip) {
    static const enum weft_kern_clip clips[] = {
        [WEFT_ENG_CLIP_ERROR] = WEFT_CLIP_ERROR,
        [WEFT_ENG_CLIP_MINMAX] = WEFT_CLIP_MINMAX,
        [WEFT_ENG_CLIP_PERCENTILE] = WEFT_CLIP_PERCENTILE,
        [WEFT_ENG_CLIP_ENTROPY] = WEFT_CLIP_ENTROPY,
    };
    return clips[clip];
}

/* `n` rows as they lie in a file, to panels. */
static size_t pack_rows(const struct wefti_weights_plan *plan,
                        const struct wefti_weights_item *item, const void *rows, uint32_t n,
                        uint32_t thread_idx, uint8_t *to) {
    struct weft_kern_calib calib = {.clip = clip_of(plan->options->clip),
                                    .importance = item->importance,
                                    .row = plan->rows + thread_idx * plan->row_floats};
    const struct weft_kern_calib *calib_of = item->importance ? &calib : NULL;
    uint32_t own_k = wefti_weights_item_k(item);
    if (own_k == item->k) {
        const struct weft_kern_source source = {item->src->dtype, rows, n, item->k};
        weft_kern_pack(item->kind, &source, 0, n, calib_of, to);
        return weft_kern_packed_bytes(item->kind, n, item->k);
    }
    /* What quantises rows looks at all of their columns: these are cut afterwards. */
    uint8_t *panel = plan->cut + thread_idx * plan->cut_bytes;
    size_t row_bytes = weft_tensor_row_bytes(item->src);
    size_t panel_bytes = wefti_weights_item_panel_bytes(item);
    for (uint32_t n0 = 0; n0 < n; n0 += WEFT_PANEL, to += panel_bytes) {
        const struct weft_kern_source source = {item->src->dtype,
                                                (const uint8_t *)rows + n0 * row_bytes,
                                                weft_min_u32(WEFT_PANEL, n - n0), item->k};
        weft_kern_pack(item->kind, &source, 0, source.n, calib_of, panel);
        weft_kern_cut(item->kind, panel, item->k, item->columns.begin, item->columns.end, to);
    }
    return weft_div_up_u32(n, WEFT_PANEL) * panel_bytes;
}

/* Puts rows together from parts first, a panel's at a time. */
static size_t pack_joined(const struct wefti_weights_plan *plan,
                          const struct wefti_weights_item *item, uint32_t begin, uint32_t end,
                          uint32_t thread_idx, uint8_t *to) {
    uint8_t *rows = plan->joined + thread_idx * plan->joined_bytes;
    size_t done = 0;
    WEFT_ASSERT(item->form != WEFTI_WEIGHTS_ROWS && plan->joined != NULL);
    for (uint32_t n0 = begin; n0 < end; n0 += WEFT_PANEL) {
        uint32_t n = weft_min_u32(WEFT_PANEL, end - n0);
        weft_tensor_rows(item->src, n0, n, rows);
        done += pack_rows(plan, item, rows, n, thread_idx, to + done);
    }
    return done;
}

/* One row of an item's tensor as it lies in a file; `row` may hold it. */
static const void *source_row(const struct wefti_weights_item *item, size_t idx, void *row) {
    const struct weft_tensor *src = item->src;
    if (!src->parts) return (const uint8_t *)src->data + idx * (src->bytes / src->dims[0]);
    weft_tensor_rows(src, idx, 1, row);
    return row;
}

/* The matrix of one head. */
static size_t pack_head(const struct wefti_weights_plan *plan,
                        const struct wefti_weights_item *item, uint32_t head, uint32_t thread_idx,
                        uint8_t *to) {
    size_t first = item->row_begin + (size_t)head * item->row_step;
    uint8_t *joined = plan->joined ? plan->joined + thread_idx * plan->joined_bytes : NULL;
    if (!item->turned && item->src->parts)
        return pack_joined(plan, item, (uint32_t)first, (uint32_t)first + item->n, thread_idx, to);
    if (!item->turned)
        return pack_rows(plan, item, source_row(item, first, NULL), item->n, thread_idx, to);
    float *turned = plan->turn + thread_idx * plan->turn_floats;
    float *row = turned + (size_t)item->n * item->k;
    for (uint32_t k = 0; k < item->k; k++) {
        const void *source = source_row(item, first + k, joined);
        weft_kern_read_row(item->src->dtype, source, item->n, row);
        for (uint32_t n = 0; n < item->n; n++)
            turned[(size_t)n * item->k + k] = row[n];
    }
    weft_kern_pack(item->kind, &(struct weft_kern_source){WEFT_DT_F32, turned, item->n, item->k}, 0,
                   item->n, NULL, to);
    return weft_kern_packed_bytes(item->kind, item->n, item->k);
}

/* Rows begin..end of an item that begin within a panel of `whole`, as panels of their own. */
static void shift_rows(const struct wefti_weights_plan *plan, const struct wefti_weights_item *item,
                       const uint8_t *whole, uint32_t begin, uint32_t end, uint32_t thread_idx,
                       uint8_t *to) {
    uint8_t *rows = plan->cut + thread_idx * plan->cut_bytes;
    size_t panel_bytes = weft_kern_panel_bytes(item->kind, item->k);
    for (uint32_t n0 = begin; n0 < end; n0 += WEFT_PANEL, to += panel_bytes) {
        struct weft_kern_source source = {
            .rows = rows, .n = weft_min_u32(WEFT_PANEL, end - n0), .k = item->k};
        enum weft_dtype type = weft_kern_weights_of(item->kind);
        size_t row_bytes =
            item->k / weft_dtype_block_elems(type) * (size_t)weft_dtype_block_bytes(type);
        for (uint32_t i = 0; i < source.n; i++)
            source.type =
                weft_kern_unpack_row(item->kind, whole, item->k, n0 + i, rows + i * row_bytes);
        WEFT_ASSERT(source.type == type);
        weft_kern_pack(item->kind, &source, 0, source.n, NULL, to);
    }
}

/* The rank's columns of a vector's row of all. Returns how many they are. */
static size_t take_pieces(const struct wefti_weights_item *item, const float *row, float *to) {
    size_t n = 0;
    for (uint32_t i = 0; i < item->n_pieces; i++) {
        const struct wefti_weights_range piece = item->pieces[i];
        memcpy(to + n, row + piece.begin, (piece.end - piece.begin) * sizeof *to);
        n += piece.end - piece.begin;
    }
    return n;
}

/* The rank's share of a part of a packed file. Features of other ranks that follow on its last one
 * in a panel are of no matter. */
static size_t take_part(const struct wefti_weights_plan *plan,
                        const struct wefti_weights_item *item, uint32_t part, uint32_t thread_idx,
                        uint8_t *to) {
    const uint8_t *whole = plan->packed + item->whole_offset;
    size_t bytes = (size_t)item->n * item->k * sizeof(float), at = 0; /* of a vector */
    uint32_t begin = 0, end = 0, k = wefti_weights_item_k(item);
    if (item->n_pieces > 0) {
        const float *row = (const float *)(const void *)whole;
        float *out = (float *)(void *)to;
        for (uint32_t i = 0; i < item->n; i++)
            out += take_pieces(item, row + (size_t)i * item->k, out);
        return (size_t)((uint8_t *)out - to);
    }
    if (item->form == WEFTI_WEIGHTS_HEADS) {
        bytes = weft_kern_packed_bytes(item->kind, item->n, item->k);
        at = (item->row_begin / item->row_step + part) * bytes;
    }
    if (item->form == WEFTI_WEIGHTS_ROWS) {
        part_rows(item, part, &begin, &end);
        bytes = item->src->bytes / item->n * (end - begin);
        at = item->src->bytes / item->n * begin;
    }
    if (item->form != WEFTI_WEIGHTS_PANELS) {
        memcpy(to, whole + at, bytes);
        return bytes;
    }
    part_rows(item, part, &begin, &end);
    size_t own_bytes = wefti_weights_item_panel_bytes(item);
    uint32_t n_panels = weft_div_up_u32(end - begin, WEFT_PANEL);
    const uint8_t *from = whole + begin / WEFT_PANEL * weft_kern_panel_bytes(item->kind, item->k);
    if (begin % WEFT_PANEL != 0)
        shift_rows(plan, item, whole, begin, end, thread_idx, to);
    else if (k == item->k)
        memcpy(to, from, n_panels * own_bytes);
    for (uint32_t p = 0; k < item->k && p < n_panels; p++)
        weft_kern_cut(item->kind, from + p * weft_kern_panel_bytes(item->kind, item->k), item->k,
                      item->columns.begin, item->columns.end, to + p * own_bytes);
    return n_panels * own_bytes;
}

static size_t pack_vectors(const struct wefti_weights_plan *plan,
                           const struct wefti_weights_item *item, uint32_t thread_idx, float *to) {
    const size_t own_k = wefti_weights_item_own_k(item), n = item->n * own_k;
    float *all =
        item->n_pieces ? (float *)(void *)(plan->cut + thread_idx * plan->cut_bytes) : NULL;
    for (uint32_t row = 0; row < item->n; row++) {
        float *own = to + row * own_k;
        weft_tensor_row_f32(item->src, row, all ? all : own);
        if (all) (void)take_pieces(item, all, own);
    }
    for (size_t i = 0; i < n && item->plus_one; i++)
        to[i] += 1;
    for (size_t i = 0; i < n && item->minus_exp; i++)
        to[i] = -expf(to[i]);
    return n * sizeof *to;
}

size_t wefti_weights_pack_part(const struct wefti_weights_plan *plan,
                               const struct wefti_weights_item *item, uint32_t part,
                               uint32_t thread_idx, uint8_t *to) {
    const struct weft_tensor *src = item->src;
    if (plan->packed) return take_part(plan, item, part, thread_idx, to);
    if (item->form == WEFTI_WEIGHTS_VECTOR)
        return pack_vectors(plan, item, thread_idx, (float *)(void *)to);
    if (item->form == WEFTI_WEIGHTS_HEADS) return pack_head(plan, item, part, thread_idx, to);
    uint32_t begin, end;
    part_rows(item, part, &begin, &end);
    if (src->parts) return pack_joined(plan, item, begin, end, thread_idx, to);
    size_t row_bytes = src->bytes / item->n;
    const uint8_t *rows = (const uint8_t *)src->data + begin * row_bytes;
    if (item->form == WEFTI_WEIGHTS_PANELS)
        return pack_rows(plan, item, rows, end - begin, thread_idx, to);
    memcpy(to, rows, (end - begin) * row_bytes);
    return (end - begin) * row_bytes;
}

/* What a part was packed from is not needed again, or not soon: of heads, all rows are turned into each of
 * them. */
static void forget_source(const struct wefti_weights_plan *plan,
                          const struct wefti_weights_item *item, uint32_t part) {
    const struct weft_tensor *src = item->src;
    if (plan->packed || src->parts || item->form == WEFTI_WEIGHTS_HEADS) return;
    if (item->form == WEFTI_WEIGHTS_VECTOR) {
        weft_model_forget(plan->model, src->data, src->bytes);
        return;
    }
    uint32_t begin, end;
    part_rows(item, part, &begin, &end);
    size_t row_bytes = src->bytes / item->n;
    weft_model_forget(plan->model, (const uint8_t *)src->data + begin * row_bytes,
                      (end - begin) * row_bytes);
}

/* A thread that finds another one telling leaves it to that one. */
static void tell_progress(struct packing *packing) {
    const struct weft_eng_options *options = packing->plan->options;
    struct weft_eng_loading *loading = packing->plan->loading;
    uint32_t n_done = atomic_fetch_add_explicit(&packing->n_done, 1, memory_order_relaxed) + 1;
    if (!loading || !options->on_loading) return;
    if (atomic_flag_test_and_set_explicit(&packing->is_telling, memory_order_acquire)) return;
    loading->done_bytes =
        (uint64_t)((double)loading->weight_bytes * n_done / (double)packing->n_tasks);
    options->on_loading(options->loading_ctx, loading);
    atomic_flag_clear_explicit(&packing->is_telling, memory_order_release);
}

/* Task 0 hashes the file (one stream, as long as a share of the packing; of a predictor nobody asks for
 * the hash, and its file is the whole model's); the others follow the items. Tasks ascend per
 * thread, so each keeps its place in the list. */
static void pack_thread(void *ctx, uint32_t thread_idx) {
    struct packing *packing = ctx;
    const struct wefti_weights_item *item = packing->plan->items;
    uint32_t item_begin = 1;
    for (;;) {
        uint32_t task = wefti_pool_take(packing->pool, thread_idx);
        if (task >= packing->n_tasks) return;
        if (task == 0) {
            if (!weft_model_predictor(packing->plan->model))
                packing->model_hash = weft_model_hash(packing->plan->model);
            tell_progress(packing);
            continue;
        }
        while (task >= item_begin + item->n_tasks) {
            item_begin += item->n_tasks;
            item++;
        }
        uint32_t part = task - item_begin;
        if (packing->put)
            packing->put(packing->put_ctx, item, part, thread_idx);
        else
            (void)wefti_weights_pack_part(packing->plan, item, part, thread_idx,
                                          packing->base + wefti_weights_part_offset(item, part));
        forget_source(packing->plan, item, part);
        tell_progress(packing);
    }
}

uint64_t wefti_weights_calibrated_hash(const struct wefti_weights_plan *plan, uint64_t hash) {
    return plan->importance ? XXH64(&hash, sizeof hash, plan->calib_hash) : hash;
}

static uint64_t run_packing(struct packing *packing) {
    atomic_flag_clear(&packing->is_telling);
    packing->n_tasks = 1;
    for (size_t i = 0; i < packing->plan->n_items; i++) {
        packing->n_tasks += packing->plan->items[i].n_tasks;
    }
    wefti_pool_run(packing->pool, pack_thread, packing);
    return wefti_weights_calibrated_hash(packing->plan, packing->model_hash);
}

uint64_t wefti_weights_pack_parts(const struct wefti_weights_plan *plan, struct wefti_pool *pool,
                                  wefti_weights_put_fn *put, void *ctx) {
    struct packing packing = {.plan = plan, .pool = pool, .put = put, .put_ctx = ctx};
    return run_packing(&packing);
}

uint64_t wefti_weights_pack_in_place(const struct wefti_weights_plan *plan, struct wefti_pool *pool,
                                     uint8_t *base) {
    struct packing packing = {.plan = plan, .pool = pool, .base = base};
    return run_packing(&packing);
}
