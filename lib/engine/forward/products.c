/* Products of activations with packed weights, shared out among the threads.
 *
 * A phase of products is cut into blocks of rows, and the weight panels of each block into runs;
 * a task is a run over a block. Never along K: each sum is one thread's, in one order. The FFN's
 * gate and up meet in one task, so only their product is stored. */
#include "forward/products.h"

#include <math.h>

#include "base/check.h"
#include "base/clock.h"
#include "forward/lora.h"

enum {
    /* A task is a run of weight panels. It stays in half of a 1 MiB L2 while a block of rows passes
     * over it from L3; so weights, the larger side, are read from memory once per block. */
    RUN_BYTES = 512 * 1024,
    BLOCK_BYTES = 8 * 1024 * 1024,
    BLOCK_ROWS_UNIT = 48, /* whole groups of interleaved rows on every ISA: of 6 or 12 */
    RUN_PANELS = 8,       /* so many panels share the rows that they read */
    /* Of gate and up, whose tile has room for RUN_PANELS then: where kernels widen rows, they do so
     * for every task. */
    TILE_ROWS_MAX = WEFTI_FORWARD_BLOCK_ROWS_MAX / 2,
};

void wefti_forward_multiply_piece(const struct wefti_forward *f,
                                  const struct wefti_forward_acts *acts,
                                  const struct wefti_forward_product *product,
                                  const struct wefti_forward_piece *piece) {
    const struct wefti_weights_matrix *m = product->matrix;
    enum weft_kern_act form = weft_kern_act_of(m->kind);
    WEFT_ASSERT(piece->row % acts->group == 0);
    size_t shift = piece->row * product->ldc;
    struct weft_gemm_args args = {
        .act = acts->rows[form] + piece->row * acts->row_bytes[form],
        .act_row_bytes = acts->row_bytes[form],
        .act_group = acts->group,
        .packed = f->weights->base + m->offset,
        .c = product->c + shift,
        .ldc = product->ldc,
        .bias = product->bias,
        .residual = product->residual ? product->residual + shift : NULL,
        .m = piece->n_rows,
        .n = m->n,
        .k = m->k,
        .k_whole = m->k_whole,
        .segs = &m->segs,
        .beside = product->beside,
    };
    f->kern->gemm[m->kind](&args, piece->begin, piece->end);
}

/* How a phase of products is cut: blocks of rows, and runs of panels within each. */
struct task_grid {
    uint32_t n_rows, block_rows, n_blocks, n_panels;
    uint32_t panels_per_task; /* 0: runs become shorter */
    uint32_t n_threads, n_runs;
};

/* With few rows the runs are long at first and then ever shorter, so that all threads end together.
 * Each is half of an even share of what is left. */
static uint32_t shrinking_run(const struct task_grid *grid, uint32_t n_left) {
    uint32_t panels =
        n_left / (2 * grid->n_threads) / WEFTI_FORWARD_TILE_PANELS * WEFTI_FORWARD_TILE_PANELS;
    return weft_min_u32(weft_max_u32(panels, WEFTI_FORWARD_TILE_PANELS), n_left);
}

/* Panels of run `i`. */
static void panels_of_run(const struct task_grid *grid, uint32_t i, uint32_t *begin_out,
                          uint32_t *end_out) {
    if (grid->panels_per_task) {
        *begin_out = i * grid->panels_per_task;
        *end_out = weft_min_u32(*begin_out + grid->panels_per_task, grid->n_panels);
        return;
    }
    uint32_t begin = 0, panels = shrinking_run(grid, grid->n_panels);
    for (; i > 0; i--) {
        begin += panels;
        panels = shrinking_run(grid, grid->n_panels - begin);
    }
    *begin_out = begin;
    *end_out = begin + panels;
}

static uint32_t count_shrinking_runs(const struct task_grid *grid) {
    uint32_t n = 0;
    for (uint32_t begin = 0; begin < grid->n_panels; n++) {
        begin += shrinking_run(grid, grid->n_panels - begin);
    }
    return n;
}

static size_t widest_row(const struct wefti_forward_acts *acts) {
    size_t bytes = 0;
    for (int form = 0; form < WEFT_ACT_COUNT; form++) {
        if (acts->rows[form] && acts->row_bytes[form] > bytes) bytes = acts->row_bytes[form];
    }
    return bytes;
}

uint32_t wefti_forward_block_rows(size_t row_bytes) {
    WEFT_ASSERT(row_bytes > 0);
    uint32_t rows = (uint32_t)(BLOCK_BYTES / row_bytes) / BLOCK_ROWS_UNIT * BLOCK_ROWS_UNIT;
    return weft_min_u32(weft_max_u32(rows, BLOCK_ROWS_UNIT), WEFTI_FORWARD_BLOCK_ROWS_MAX);
}

uint32_t wefti_forward_run_panels(size_t panel_bytes) {
    WEFT_ASSERT(panel_bytes > 0);
    uint32_t panels =
        (uint32_t)(RUN_BYTES / panel_bytes) / WEFTI_FORWARD_TILE_PANELS * WEFTI_FORWARD_TILE_PANELS;
    return weft_max_u32(panels, WEFTI_FORWARD_TILE_PANELS);
}

/* `tile_floats`: 0, or room for a task's result. */
static struct task_grid make_task_grid(const struct wefti_forward *f,
                                       const struct wefti_forward_acts *acts, uint32_t n_rows,
                                       size_t panel_bytes, uint32_t n_panels,
                                       uint32_t tile_floats) {
    WEFT_ASSERT(panel_bytes > 0 && n_panels > 0);
    uint32_t rows = wefti_forward_block_rows(widest_row(acts)), panels_max = n_panels;
    if (tile_floats) {
        rows = weft_min_u32(rows, TILE_ROWS_MAX);
        panels_max = tile_floats / WEFT_PANEL / weft_min_u32(rows, n_rows) /
                     WEFTI_FORWARD_TILE_PANELS * WEFTI_FORWARD_TILE_PANELS;
        WEFT_ASSERT(panels_max > 0);
    }
    struct task_grid grid = {.n_rows = n_rows,
                             .block_rows = rows,
                             .n_blocks = (n_rows + rows - 1) / rows,
                             .n_panels = n_panels,
                             .n_threads = f->n_threads};
    if (n_rows <= WEFTI_FORWARD_OWN_ROWS && n_panels <= panels_max &&
        n_panels >= WEFTI_FORWARD_TILE_PANELS * f->n_threads) {
        grid.n_runs = count_shrinking_runs(&grid);
        return grid;
    }
    /* Some four tasks per thread and phase even out a thread that was displaced for a while. */
    uint32_t panels = n_panels * grid.n_blocks / (4 * f->n_threads);
    panels = weft_min_u32(panels, (uint32_t)(RUN_BYTES / panel_bytes));
    panels = panels / WEFTI_FORWARD_TILE_PANELS * WEFTI_FORWARD_TILE_PANELS;
    if (panels < RUN_PANELS && n_panels >= 4 * RUN_PANELS * f->n_threads) panels = RUN_PANELS;
    if (panels == 0)
        panels =
            n_panels >= WEFTI_FORWARD_TILE_PANELS * f->n_threads ? WEFTI_FORWARD_TILE_PANELS : 1;
    grid.panels_per_task = weft_min_u32(panels, panels_max);
    grid.n_runs = (n_panels + grid.panels_per_task - 1) / grid.panels_per_task;
    return grid;
}

/* The next task of the phase; false: there is none left. */
static bool take_piece(const struct wefti_forward_thread *thread, const struct task_grid *grid,
                       struct wefti_forward_piece *piece_out) {
    uint32_t task = wefti_forward_take_task(thread);
    if (task >= grid->n_blocks * grid->n_runs) return false;
    piece_out->row = task / grid->n_runs * grid->block_rows;
    piece_out->n_rows = weft_min_u32(grid->block_rows, grid->n_rows - piece_out->row);
    panels_of_run(grid, task % grid->n_runs, &piece_out->begin, &piece_out->end);
    return true;
}

/* A piece of all the products laid side by side. */
static void multiply_side_by_side(const struct wefti_forward_thread *thread,
                                  const struct wefti_forward_acts *acts,
                                  const struct wefti_forward_product *products, uint32_t n_products,
                                  const struct wefti_forward_piece *piece) {
    uint32_t first = 0;
    for (uint32_t i = 0; i < n_products; i++) {
        uint32_t n_panels = products[i].matrix->n_panels;
        uint32_t begin = weft_max_u32(piece->begin, first);
        uint32_t end = weft_min_u32(piece->end, first + n_panels);
        if (begin < end) {
            const struct wefti_forward_piece own = {piece->row, piece->n_rows, begin - first,
                                                    end - first};
            wefti_forward_multiply_piece(thread->forward, acts, &products[i], &own);
        }
        first += n_panels;
    }
}

void wefti_forward_multiply_on(const struct wefti_forward_thread *thread,
                               const struct wefti_forward_acts *acts, uint32_t n_rows,
                               const struct wefti_forward_product *products, uint32_t n_products) {
    uint32_t n_panels = 0;
    for (uint32_t i = 0; i < n_products; i++) {
        n_panels += products[i].matrix->n_panels;
    }
    size_t panel_bytes = products[0].matrix->panel_bytes;
    struct task_grid grid = make_task_grid(thread->forward, acts, n_rows, panel_bytes, n_panels, 0);
    struct wefti_forward_piece piece;
    while (take_piece(thread, &grid, &piece)) {
        multiply_side_by_side(thread, acts, products, n_products, &piece);
    }
}

void wefti_forward_multiply(const struct wefti_forward_thread *thread,
                            const struct wefti_forward_acts *acts, uint32_t n_rows,
                            const struct wefti_forward_product *products, uint32_t n_products) {
    wefti_forward_multiply_on(thread, acts, n_rows, products, n_products);
    wefti_forward_end_phase(thread);
}

/* Gate and up are linear in what they are made of, so its factor may follow. */
static void scale_pair(float *gate, float *up, uint32_t n, float factor) {
    for (uint32_t i = 0; i < n; i++) {
        gate[i] *= factor;
        up[i] *= factor;
    }
}

/* gpt-oss's form of swish: both parts are clamped, and up is one more than it is. */
static void activate_clamped(float *gate, const float *up, uint32_t n, float limit) {
    for (uint32_t i = 0; i < n; i++) {
        float g = gate[i] < limit ? gate[i] : limit;
        float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        gate[i] = (u + 1) * (g / (1 + expf(-1.702f * g)));
    }
}

/* Nemotron's. */
static void square_relu(float *gate, const float *up, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float g = gate[i] > 0 ? gate[i] : 0;
        gate[i] = up ? g * g * up[i] : g * g;
    }
}

/* gate = its activation, times `up` if there is one. */
static void activate(const struct wefti_forward *f, float *gate, const float *up, uint32_t n) {
    for (uint32_t i = 0; f->gate_scale != 0 && i < n; i++)
        gate[i] *= f->gate_scale;
    if (f->act_limit > 0 && up)
        activate_clamped(gate, up, n, f->act_limit);
    else if (f->squares_relu)
        square_relu(gate, up, n);
    else
        f->act_mul(gate, up, n, gate);
}

/* There is no up. */
static void activate_alone(const struct wefti_forward_thread *thread,
                           const struct wefti_forward_product *gate,
                           const struct wefti_forward_piece *piece) {
    uint32_t column = piece->begin * WEFT_PANEL;
    uint32_t n = weft_min_u32(gate->matrix->n, piece->end * WEFT_PANEL) - column;
    uint64_t begin_ns = thread->log ? weft_now_ns() : 0;
    for (uint32_t r = 0; r < piece->n_rows; r++) {
        float *y = gate->c + (piece->row + r) * gate->ldc + column;
        activate(thread->forward, y, NULL, n);
    }
    if (thread->log) wefti_profile_mark_aside(thread->log, WEFT_ENG_OP_SILU_MUL, begin_ns);
}

/* What adapters add to a member of the pair, which is read after its product; NULL: nothing. */
static struct weft_kern_beside *look_ahead(const struct wefti_forward_thread *thread,
                                           const struct wefti_forward_adapted *adapted,
                                           uint32_t member, const struct wefti_forward_piece *piece,
                                           struct wefti_forward_lora_parts *parts) {
    if (!adapted || !adapted->group) return NULL;
    wefti_forward_lora_look(wefti_forward_lora_after(thread, adapted->layer), adapted->group,
                            member, piece, parts);
    return &parts->beside;
}

/* Where a piece goes that is needed by its thread alone. */
struct tile_target {
    float *tile;
    const float *bias; /* of the whole matrix; NULL: none */
    struct weft_kern_beside *beside;
};

/* A piece to the tile's beginning; returns the floats from row to row. Panels are contiguous, so a run
 * of them is a matrix of its own. */
static size_t multiply_to_tile(const struct wefti_forward_thread *thread,
                               const struct wefti_forward_acts *acts,
                               const struct wefti_weights_matrix *matrix,
                               const struct wefti_forward_piece *piece,
                               const struct tile_target *to) {
    const uint32_t column = piece->begin * WEFT_PANEL, n_panels = piece->end - piece->begin;
    struct wefti_weights_matrix run = *matrix;
    run.offset += piece->begin * run.panel_bytes;
    run.n = weft_min_u32(run.n - column, n_panels * WEFT_PANEL);
    struct wefti_forward_acts shifted = *acts;
    enum weft_kern_act form = weft_kern_act_of(run.kind);
    shifted.rows[form] += piece->row * shifted.row_bytes[form];
    const struct wefti_forward_product product = {.matrix = &run,
                                                  .c = to->tile,
                                                  .ldc = (size_t)n_panels * WEFT_PANEL,
                                                  .bias = to->bias ? to->bias + column : NULL,
                                                  .beside = to->beside};
    const struct wefti_forward_piece whole = {0, piece->n_rows, 0, n_panels};
    wefti_forward_multiply_piece(thread->forward, &shifted, &product, &whole);
    return product.ldc;
}

/* Gate goes to the result's place, up into scratch. */
void wefti_forward_gate_up_piece(const struct wefti_forward_thread *thread,
                                 const struct wefti_forward_acts *acts,
                                 const struct wefti_forward_product *gate,
                                 const struct wefti_forward_product *up_part,
                                 const struct wefti_forward_adapted *adapted,
                                 const struct wefti_forward_piece *piece) {
    struct wefti_forward *f = thread->forward;
    struct wefti_forward_lora_parts parts;
    struct wefti_forward_product own = *gate;
    own.beside = look_ahead(thread, adapted, 0, piece, &parts);
    wefti_forward_multiply_piece(f, acts, &own, piece);

    const uint32_t column = piece->begin * WEFT_PANEL;
    const uint32_t n = weft_min_u32(gate->matrix->n, piece->end * WEFT_PANEL) - column;
    const struct wefti_forward_target to_gate = {piece, gate->c + piece->row * gate->ldc + column,
                                                 gate->ldc};
    if (adapted && up_part->matrix->n == 0) adapted->add(thread, adapted, 0, &to_gate);
    if (up_part->matrix->n == 0) {
        activate_alone(thread, gate, piece);
        return;
    }
    const struct tile_target up = {thread->scratch->tile, up_part->bias,
                                   look_ahead(thread, adapted, 1, piece, &parts)};
    const size_t ldc = multiply_to_tile(thread, acts, up_part->matrix, piece, &up);
    if (adapted) {
        const struct wefti_forward_target to_up = {piece, up.tile, ldc};
        adapted->add(thread, adapted, 0, &to_gate);
        adapted->add(thread, adapted, 1, &to_up);
    }

    uint64_t begin_ns = thread->log ? weft_now_ns() : 0;
    for (uint32_t r = 0; r < piece->n_rows; r++) {
        float *y = gate->c + (piece->row + r) * gate->ldc + column;
        if (gate->row_scales) scale_pair(y, up.tile + r * ldc, n, gate->row_scales[piece->row + r]);
        activate(f, y, up.tile + r * ldc, n);
    }
    if (thread->log) wefti_profile_mark_aside(thread->log, WEFT_ENG_OP_SILU_MUL, begin_ns);
}

static void add_adapters(const struct wefti_forward_thread *thread,
                         const struct wefti_forward_adapted *adapted, uint32_t member,
                         const struct wefti_forward_target *target) {
    wefti_forward_lora_up_piece(thread, wefti_forward_lora_after(thread, adapted->layer),
                                adapted->group, member, target);
}

/* Whether tasks of this grid may make what `down` reads themselves: rows are interleaved, columns of a
 * task are whole units of its activations, and nobody else wants to see them. */
static bool can_make_inner(const struct wefti_forward_thread *thread,
                           const struct wefti_forward_acts *acts, uint32_t layer_idx,
                           const struct task_grid *grid) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const uint32_t columns = grid->panels_per_task * WEFT_PANEL;
    return acts->group > 1 && !f->calib && !wefti_forward_lora_after(thread, layer_idx) &&
           layer->down.k == layer->gate.n && columns > 0 &&
           columns % weft_kern_act_unit(layer->down.kind) == 0;
}

/* A piece of silu(gate) * up, and the same columns of what `down` reads, while they are in cache. */
static void make_inner_piece(const struct wefti_forward_thread *thread,
                             const struct wefti_forward_acts *acts, uint32_t layer_idx,
                             const struct wefti_forward_piece *piece,
                             const struct wefti_forward_acts *inner) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const enum weft_kern_act form = weft_kern_act_of(layer->down.kind);
    const struct tile_target gate = {thread->scratch->gate, wefti_forward_vector(f, layer->b_gate),
                                     NULL},
                             up = {thread->scratch->tile, wefti_forward_vector(f, layer->b_up),
                                   NULL};
    const size_t ldc = multiply_to_tile(thread, acts, &layer->gate, piece, &gate);
    if (layer->up.n > 0) (void)multiply_to_tile(thread, acts, &layer->up, piece, &up);

    uint64_t begin_ns = thread->log ? weft_now_ns() : 0;
    const uint32_t column = piece->begin * WEFT_PANEL;
    struct weft_kern_act_part part = {
        .src_stride = ldc,
        .k = layer->down.k,
        .k_begin = column,
        .k_end = weft_min_u32(layer->down.k, piece->end * WEFT_PANEL),
    };
    for (uint32_t r = 0; r < piece->n_rows; r += acts->group) {
        part.src = gate.tile + r * ldc;
        part.n_rows = weft_min_u32(acts->group, piece->n_rows - r);
        part.group = (uint8_t *)f->ffn + (piece->row + r) * inner->row_bytes[form];
        for (uint32_t i = r; i < r + part.n_rows; i++) {
            float *y = gate.tile + i * ldc;
            activate(f, y, layer->up.n > 0 ? up.tile + i * ldc : NULL, part.k_end - column);
        }
        f->kern->act_group(layer->down.kind, &part);
    }
    if (thread->log) wefti_profile_mark_aside(thread->log, WEFT_ENG_OP_SILU_MUL, begin_ns);
}

/* They lie where silu(gate) * up would lie. */
static struct wefti_forward_acts
plan_inner(const struct wefti_forward *f, const struct wefti_weights_matrix *down, uint32_t group) {
    const enum weft_kern_act form = weft_kern_act_of(down->kind);
    struct wefti_forward_acts inner = {.group = group};
    inner.rows[form] = (const uint8_t *)f->ffn;
    inner.row_bytes[form] = weft_kern_act_row_bytes(down->kind, down->k);
    WEFT_ASSERT(inner.row_bytes[form] <= f->ffn_stride * sizeof *f->ffn);
    return inner;
}

void wefti_forward_gate_up(const struct wefti_forward_thread *thread,
                           const struct wefti_forward_acts *acts, uint32_t layer_idx,
                           const struct wefti_forward_source *src, uint32_t n_rows,
                           struct wefti_forward_acts *inner_out) {
    const struct wefti_weights_layer *layer = &thread->forward->weights->layers[layer_idx];
    const struct wefti_forward_lora_plan *lora = wefti_forward_lora_after(thread, layer_idx);
    const struct wefti_forward_lora_group group = {
        .layer = layer_idx, .n = 2, .roles = {WEFT_LORA_GATE, WEFT_LORA_UP}};
    const struct wefti_forward_adapted adapted = {
        .add = add_adapters, .layer = layer_idx, .group = &group};
    if (lora) {
        wefti_forward_lora_down(thread, lora, &group, src);
        wefti_forward_end_phase(thread);
    }
    struct task_grid grid = make_task_grid(thread->forward, acts, n_rows, layer->gate.panel_bytes,
                                           layer->gate.n_panels, WEFTI_FORWARD_FFN_TILE_FLOATS);
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_product gate = {.matrix = &layer->gate,
                                               .c = f->ffn,
                                               .ldc = f->ffn_stride,
                                               .bias = wefti_forward_vector(f, layer->b_gate)};
    const struct wefti_forward_product up = {.matrix = &layer->up,
                                             .bias = wefti_forward_vector(f, layer->b_up)};
    const bool makes_inner = can_make_inner(thread, acts, layer_idx, &grid);
    if (makes_inner) *inner_out = plan_inner(f, &layer->down, acts->group);
    struct wefti_forward_piece piece;
    while (take_piece(thread, &grid, &piece)) {
        if (makes_inner)
            make_inner_piece(thread, acts, layer_idx, &piece, inner_out);
        else
            wefti_forward_gate_up_piece(thread, acts, &gate, &up, lora ? &adapted : NULL, &piece);
    }
    wefti_forward_end_phase(thread);
    if (makes_inner) return;
    const struct wefti_weights_matrix *down[] = {&layer->down};
    const struct wefti_forward_source made = {.rows = f->ffn, .stride = f->ffn_stride};
    wefti_forward_mark(thread, WEFT_ENG_OP_DOWN_CONVERT);
    *inner_out = wefti_forward_acts_make(thread, &made, n_rows, down, 1);
}
