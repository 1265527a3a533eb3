/* The feed-forward half of a layer with experts.
 *
 *   norm + convert | router | choose | sort by expert, gather | gate, up, silu of all experts
 *   convert | down of all experts | weighted sums + residual
 *
 * All experts of a layer are one phase of products, cut into tasks by their work, so that a
 * popular one holds nobody up. If an expert has few rows, as always in decoding, whoever takes its
 * task gathers and converts them; rows of the others are converted once, shared out and
 * interleaved. A row's sums are its own: products do not depend on the other rows, and the outputs
 * of its experts are added by their ids, in 8 groups and a fixed tree (docs/architecture.md, "Batch
 * invariance"), so neither company nor the place of an expert changes a bit. */
#include "forward/experts.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "forward/activations.h"
#include "forward/booking.h"
#include "forward/lora.h"
#include "forward/products.h"
#include "forward/ranks.h"

/* What the phases of one layer share; the same on all threads. */
struct routing {
    const struct wefti_weights_layer *layer;
    uint32_t n_rows;
    const uint32_t *chosen; /* [n_rows][n_used] */
    const float *weights;
    const struct wefti_forward_sorted_rows *sorted;
};

/* Whether rows of an expert are interleaved by the group. */
static bool is_wide(uint32_t n_rows) {
    return n_rows > WEFTI_FORWARD_OWN_ROWS;
}

size_t wefti_forward_places_max(const struct wefti_forward *f, size_t n_rows) {
    size_t n_routes = n_rows * f->moe.n_used, n_wide = n_routes / (WEFTI_FORWARD_OWN_ROWS + 1);
    if (n_wide > f->moe.n_experts) n_wide = f->moe.n_experts;
    return n_routes + (n_wide + 1) * f->kern->group_rows;
}

/* ---------------------------------------------------------------------------------- sorting --- */

/* Rows of the experts that are here: others have no places. */
static void sort_rows(const struct wefti_forward *f, const struct wefti_weights_expert *experts,
                      const uint32_t *chosen, const float *weights, uint32_t n_rows,
                      struct wefti_forward_sorted_rows *s) {
    uint32_t n_used = f->moe.n_used, n_experts = f->moe.n_experts, group = f->kern->group_rows;
    memset(s->n_rows, 0, n_experts * sizeof *s->n_rows);
    for (uint32_t i = 0; i < n_rows * n_used; i++)
        s->n_rows[chosen[i]] += experts[chosen[i]].is_own;
    s->n_places = 0;
    for (uint32_t e = 0; e < n_experts; e++) {
        if (is_wide(s->n_rows[e])) s->n_places = (s->n_places + group - 1) / group * group;
        s->first[e] = s->n_places;
        s->n_places += s->n_rows[e];
        s->n_rows[e] = 0;
    }
    for (uint32_t i = 0; i < n_rows * n_used; i++) {
        if (!experts[chosen[i]].is_own) continue;
        uint32_t e = chosen[i], place = s->first[e] + s->n_rows[e]++;
        s->row[place] = i / n_used;
        if (s->weight) s->weight[place] = weights[i];
        s->place[i] = place;
    }
}

/* Every thread routes few rows for itself; many are shared out. */
static struct routing route_rows(const struct wefti_forward_thread *thread,
                                 const struct wefti_weights_layer *layer, uint32_t n_rows) {
    struct wefti_forward *f = thread->forward;
    bool own = n_rows <= WEFTI_FORWARD_OWN_ROWS;
    const struct wefti_forward_router router = {
        .moe = &f->moe,
        .bias = wefti_forward_vector(f, layer->score_bias),
        .factors = wefti_forward_vector(f, layer->expert_scale),
        .score_scale = f->score_scale,
    };
    uint32_t *chosen = own ? thread->scratch->chosen : f->chosen, n_used = f->moe.n_used;
    float *weights = own ? thread->scratch->weights : f->route_weights;
    uint32_t begin = 0, end = n_rows;
    while (own ||
           wefti_forward_take_rows(thread, n_rows, WEFTI_FORWARD_ROWS_PER_TASK, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++)
            wefti_forward_route(&router, f->scores + row * f->score_stride, chosen + row * n_used,
                                weights + row * n_used);
        if (own) break;
    }
    if (!own) wefti_forward_end_phase(thread);
    sort_rows(f, layer->experts, chosen, weights, n_rows, &thread->scratch->sorted);
    return (struct routing){layer, n_rows, chosen, weights, &thread->scratch->sorted};
}

/* Counts the routes and tells the watcher; on the first thread. */
static void note_routes(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                        const struct routing *routing) {
    struct wefti_forward *f = thread->forward;
    if (thread->idx != 0) return;
    uint64_t *tokens = f->expert_tokens + (size_t)layer_idx * f->moe.n_experts;
    for (uint32_t i = 0; i < routing->n_rows * f->moe.n_used; i++)
        tokens[routing->chosen[i]]++;
    for (uint32_t e = 0; e < f->moe.n_experts && f->profile; e++) {
        uint32_t n = routing->sorted->n_rows[e];
        if (n > 0) wefti_forward_book_expert(f->profile, &routing->layer->experts[e], n);
    }
    if (f->on_routes)
        f->on_routes(f->on_routes_ctx, layer_idx, routing->n_rows, routing->chosen,
                     routing->weights);
}

/* ------------------------------------------------------------------------------ activations --- */

/* The source of experts' rows: the layer's rows, converted already, or the results
 * of gate and up. */
struct feed {
    const struct wefti_forward_acts *acts; /* the layer's rows; NULL: `inner`, by places */
    const struct wefti_weights_matrix *const *group;
    uint32_t n_group;
    bool wanted[WEFT_ACT_COUNT];
    bool q8_has_sums; /* rows of Q8 are those of Q8_SUMS: one is made, and serves both */
    size_t row_bytes[WEFT_ACT_COUNT];
};

static struct feed feed_of(const struct wefti_forward_acts *acts,
                           const struct wefti_weights_matrix *const *group, uint32_t n_group) {
    struct feed feed = {.acts = acts, .group = group, .n_group = n_group};
    for (uint32_t i = 0; i < n_group; i++) {
        enum weft_kern_act form = weft_kern_act_of(group[i]->kind);
        feed.wanted[form] = true;
        feed.row_bytes[form] =
            acts ? acts->row_bytes[form] : weft_kern_act_row_bytes(group[i]->kind, group[i]->k);
    }
    feed.q8_has_sums = feed.wanted[WEFT_ACT_Q8] && feed.wanted[WEFT_ACT_Q8_SUMS];
    if (feed.q8_has_sums) feed.wanted[WEFT_ACT_Q8] = false;
    return feed;
}

/* The row at a place in the form that `matrix` wants; made in `own`, unless it is there already. */
static const uint8_t *row_at(const struct wefti_forward *f, const struct routing *routing,
                             const struct feed *feed, enum weft_kern_act form, uint32_t place,
                             uint8_t *own) {
    if (feed->acts)
        return feed->acts->rows[form] + routing->sorted->row[place] * feed->row_bytes[form];
    const float *x = f->inner + place * f->inner_stride;
    if (form == WEFT_ACT_F32) return (const uint8_t *)x;
    for (uint32_t i = 0; i < feed->n_group; i++) {
        const struct wefti_weights_matrix *m = feed->group[i];
        if (weft_kern_act_of(m->kind) != form) continue;
        f->kern->act_convert(m->kind, x, f->inner_stride, 1, m->k, own, feed->row_bytes[form]);
        break;
    }
    return own;
}

/* Places begin..end, no more than a group, to where `form` has them. */
static void gather_group(const struct wefti_forward_thread *thread, const struct routing *routing,
                         const struct feed *feed, enum weft_kern_act form, uint32_t begin,
                         uint32_t end) {
    const struct wefti_forward *f = thread->forward;
    const size_t bytes = feed->row_bytes[form];
    uint8_t *to = f->sorted[form] + begin * bytes;
    for (uint32_t place = begin; feed->acts && place < end; place++)
        weft_kern_act_interleave(f->kern, wefti_forward_form_kind(form),
                                 row_at(f, routing, feed, form, place, thread->scratch->few[form]),
                                 bytes, place - begin, to);
    if (feed->acts) return;
    for (uint32_t i = 0; i < feed->n_group; i++) {
        const struct wefti_weights_matrix *m = feed->group[i];
        if (weft_kern_act_of(m->kind) != form) continue;
        const struct weft_kern_act_part part = {.src = f->inner + begin * f->inner_stride,
                                                .src_stride = f->inner_stride,
                                                .n_rows = end - begin,
                                                .k = m->k,
                                                .k_end = m->k,
                                                .group = to};
        f->kern->act_group(m->kind, &part);
        break;
    }
}

/* Rows of the experts that have many, interleaved. Ends a phase, if there are such. */
static void gather_wide(const struct wefti_forward_thread *thread, const struct routing *routing,
                        const struct feed *feed) {
    const struct wefti_forward *f = thread->forward;
    uint32_t group = f->kern->group_rows, before = 0, task = UINT32_MAX;
    for (uint32_t e = 0; e < f->moe.n_experts; e++) {
        uint32_t n = routing->sorted->n_rows[e], n_tasks = (n + group - 1) / group;
        if (!is_wide(n)) continue;
        if (task == UINT32_MAX) task = wefti_forward_take_task(thread);
        for (; task < before + n_tasks; task = wefti_forward_take_task(thread)) {
            uint32_t begin = routing->sorted->first[e] + (task - before) * group;
            uint32_t end = weft_min_u32(begin + group, routing->sorted->first[e] + n);
            for (int form = 0; form < WEFT_ACT_COUNT; form++) {
                if (feed->wanted[form])
                    gather_group(thread, routing, feed, (enum weft_kern_act)form, begin, end);
            }
        }
        before += n_tasks;
    }
    if (before > 0) wefti_forward_end_phase(thread);
}

/* The activations of one expert, row 0 being its first. */
static struct wefti_forward_acts acts_of(const struct wefti_forward_thread *thread,
                                         const struct routing *routing, const struct feed *feed,
                                         uint32_t expert) {
    const struct wefti_forward *f = thread->forward;
    uint32_t n = routing->sorted->n_rows[expert], first = routing->sorted->first[expert];
    struct wefti_forward_acts acts = {.group = is_wide(n) ? f->kern->group_rows : 1};
    for (int i = 0; i < WEFT_ACT_COUNT; i++) {
        enum weft_kern_act form = (enum weft_kern_act)i;
        size_t bytes = feed->row_bytes[form];
        if (!feed->wanted[form]) continue;
        acts.row_bytes[form] = bytes;
        acts.rows[form] = f->sorted[form] + first * bytes;
        if (is_wide(n)) continue;
        uint8_t *few = thread->scratch->few[form];
        acts.rows[form] = n == 1 ? row_at(f, routing, feed, form, first, few) : few;
        for (uint32_t r = 0; n > 1 && r < n; r++) {
            const uint8_t *row = row_at(f, routing, feed, form, first + r, few + r * bytes);
            if (row != few + r * bytes) memcpy(few + r * bytes, row, bytes);
        }
    }
    if (feed->q8_has_sums) {
        acts.rows[WEFT_ACT_Q8] = acts.rows[WEFT_ACT_Q8_SUMS];
        acts.row_bytes[WEFT_ACT_Q8] = acts.row_bytes[WEFT_ACT_Q8_SUMS];
    }
    return acts;
}

/* --------------------------------------------------------------------------------- products --- */

/* The cut of all experts' products into tasks, and a thread's place among these. */
struct walk {
    uint32_t n_panels, block_rows, panels_per_task;
    uint32_t expert, before; /* where it is, and how many tasks came before */
    uint32_t made;           /* whose activations `acts` are */
    struct wefti_forward_acts acts;
};

/* Some eight tasks per thread, runs that stay in cache, and for gate and up room for a tile. */
static struct walk begin_walk(const struct wefti_forward_thread *thread,
                              const struct routing *routing,
                              const struct wefti_weights_matrix *matrix, bool in_tiles) {
    const struct wefti_forward *f = thread->forward;
    size_t row_bytes = weft_kern_act_row_bytes(matrix->kind, matrix->k);
    struct walk w = {.n_panels = matrix->n_panels,
                     .block_rows = wefti_forward_block_rows(row_bytes),
                     .made = UINT32_MAX};
    uint64_t n_panels = 0;
    uint32_t most = 1;
    for (uint32_t e = 0; e < f->moe.n_experts; e++) {
        uint32_t n = routing->sorted->n_rows[e];
        n_panels += (uint64_t)(n + w.block_rows - 1) / w.block_rows * w.n_panels;
        most = weft_max_u32(most, weft_min_u32(n, w.block_rows));
    }
    uint32_t panels = (uint32_t)(n_panels / (8 * f->n_threads));
    panels = weft_min_u32(panels, wefti_forward_run_panels(matrix->panel_bytes));
    if (in_tiles) panels = weft_min_u32(panels, WEFTI_FORWARD_FFN_TILE_FLOATS / WEFT_PANEL / most);
    panels = panels / WEFTI_FORWARD_TILE_PANELS * WEFTI_FORWARD_TILE_PANELS;
    w.panels_per_task = weft_max_u32(panels, WEFTI_FORWARD_TILE_PANELS);
    return w;
}

/* Takes the next task, a piece of the product of w->expert. False: there is none left. */
static bool next_piece(const struct wefti_forward_thread *thread, const struct routing *routing,
                       struct walk *w, struct wefti_forward_piece *piece_out) {
    uint32_t task = wefti_forward_take_task(thread);
    uint32_t n_runs = (w->n_panels + w->panels_per_task - 1) / w->panels_per_task;
    for (; w->expert < thread->forward->moe.n_experts; w->expert++) {
        uint32_t n_rows = routing->sorted->n_rows[w->expert];
        uint32_t n_tasks = (n_rows + w->block_rows - 1) / w->block_rows * n_runs;
        if (task < w->before + n_tasks) {
            uint32_t at = task - w->before, row = at / n_runs * w->block_rows;
            uint32_t begin = at % n_runs * w->panels_per_task;
            *piece_out =
                (struct wefti_forward_piece){row, weft_min_u32(w->block_rows, n_rows - row), begin,
                                             weft_min_u32(begin + w->panels_per_task, w->n_panels)};
            return true;
        }
        w->before += n_tasks;
    }
    return false;
}

static const struct wefti_forward_acts *walk_acts(const struct wefti_forward_thread *thread,
                                                  const struct routing *routing,
                                                  const struct feed *feed, struct walk *w) {
    if (w->made != w->expert) w->acts = acts_of(thread, routing, feed, w->expert);
    w->made = w->expert;
    return &w->acts;
}

static void add_adapters(const struct wefti_forward_thread *thread,
                         const struct wefti_forward_adapted *adapted, uint32_t member,
                         const struct wefti_forward_target *target) {
    wefti_forward_lora_experts_up(thread, adapted->experts, adapted->expert, member, target);
}

/* inner = silu(gate) * up, of all experts. `lora` NULL: no row's adapters change any. Ends a phase. */
static void gate_up_all(const struct wefti_forward_thread *thread, const struct routing *routing,
                        const struct feed *feed, const struct wefti_forward_lora_experts *lora) {
    const struct wefti_forward *f = thread->forward;
    struct walk w = begin_walk(thread, routing, &routing->layer->experts->gate, true);
    struct wefti_forward_piece piece;
    while (next_piece(thread, routing, &w, &piece)) {
        const struct wefti_weights_expert *expert = &routing->layer->experts[w.expert];
        const struct wefti_forward_product gate = {
            .matrix = &expert->gate,
            .c = f->inner + routing->sorted->first[w.expert] * f->inner_stride,
            .ldc = f->inner_stride,
            .bias = wefti_forward_vector(f, expert->b_gate),
            .row_scales = routing->sorted->weight
                              ? routing->sorted->weight + routing->sorted->first[w.expert]
                              : NULL};
        const struct wefti_forward_adapted adapted = {
            .add = add_adapters, .experts = lora, .expert = w.expert};
        const struct wefti_forward_product up = {.matrix = &expert->up,
                                                 .bias = wefti_forward_vector(f, expert->b_up)};
        wefti_forward_gate_up_piece(thread, walk_acts(thread, routing, feed, &w), &gate, &up,
                                    lora ? &adapted : NULL, &piece);
    }
    wefti_forward_end_phase(thread);
}

/* Shows what each expert's last matrix meets to the calibration, if one watches. */
static void observe_inner(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                          const struct routing *routing) {
    const struct wefti_forward *f = thread->forward;
    if (!f->calib || thread->idx != 0) return;
    for (uint32_t e = 0; e < f->moe.n_experts; e++) {
        const float *rows = f->inner + routing->sorted->first[e] * f->inner_stride;
        const struct wefti_calib_rows inner = {.data = (const uint8_t *)rows,
                                               .row_bytes = f->inner_stride * sizeof *rows,
                                               .k = routing->layer->experts[e].down.k,
                                               .group = 1,
                                               .n_rows = routing->sorted->n_rows[e]};
        if (inner.n_rows > 0) wefti_calib_add_expert(f->calib, layer_idx, e, &inner);
    }
}

/* outer = inner * down. Ends a phase. */
static void down_all(const struct wefti_forward_thread *thread, const struct routing *routing,
                     const struct feed *feed, const struct wefti_forward_lora_experts *lora) {
    const struct wefti_forward *f = thread->forward;
    struct walk w = begin_walk(thread, routing, &routing->layer->experts->down, false);
    struct wefti_forward_piece piece;
    while (next_piece(thread, routing, &w, &piece)) {
        const struct wefti_weights_expert *expert = &routing->layer->experts[w.expert];
        const struct wefti_forward_product product = {
            .matrix = &expert->down,
            .c = f->outer + routing->sorted->first[w.expert] * f->x_stride,
            .ldc = f->x_stride,
            .bias = wefti_forward_vector(f, expert->b_down)};
        wefti_forward_multiply_piece(f, walk_acts(thread, routing, feed, &w), &product, &piece);
        if (!lora) continue;
        const struct wefti_forward_target target = {
            &piece, product.c + piece.row * product.ldc + (size_t)piece.begin * WEFT_PANEL,
            product.ldc};
        wefti_forward_lora_experts_up(thread, lora, w.expert, 0, &target);
    }
    wefti_forward_end_phase(thread);
}

/* ------------------------------------------------------------------------------------- sums --- */

enum { SUM_COLUMNS = 64, SUM_GROUPS = WEFTI_WEIGHTS_EXPERT_GROUPS };

/* The sums of groups of experts, where they are `full`, joined by the tree into sums[0]. */
static void join_groups(float sums[SUM_GROUPS][SUM_COLUMNS], bool full[SUM_GROUPS], uint32_t n) {
    for (uint32_t step = 1; step < SUM_GROUPS; step *= 2) {
        for (uint32_t g = 0; g < SUM_GROUPS; g += 2 * step) {
            if (!full[g + step]) continue;
            for (uint32_t i = 0; i < n; i++)
                sums[g][i] = full[g] ? sums[g][i] + sums[g + step][i] : sums[g + step][i];
            full[g] = true;
        }
    }
}

/* Columns of a row. */
struct stretch {
    uint32_t row, begin, n;
};

/* The output of a row's experts, of those that are here, by groups of them. */
static void sum_groups(const struct wefti_forward *f, const struct routing *routing,
                       struct stretch at, float sums[SUM_GROUPS][SUM_COLUMNS],
                       bool full[SUM_GROUPS]) {
    uint32_t row = at.row, begin = at.begin, n = at.n;
    uint32_t group = 0, first = row * f->moe.n_used;
    for (uint32_t i = first; i < first + f->moe.n_used; i++) {
        if (!routing->layer->experts[routing->chosen[i]].is_own) continue;
        const float *y = f->outer + routing->sorted->place[i] * f->x_stride + begin;
        float weight = f->weighs_inputs ? 1 : routing->weights[i];
        while (routing->chosen[i] >= wefti_weights_expert_group_end(f->moe.n_experts, group))
            group++;
        for (uint32_t c = 0; c < n; c++)
            sums[group][c] = full[group] ? sums[group][c] + weight * y[c] : weight * y[c];
        full[group] = true;
    }
}

/* Of all groups that are here, in sums[0]; false: there are none. */
static bool sum_experts(const struct wefti_forward *f, const struct routing *routing,
                        struct stretch at, float sums[SUM_GROUPS][SUM_COLUMNS]) {
    bool full[SUM_GROUPS] = {false};
    sum_groups(f, routing, at, sums, full);
    join_groups(sums, full, at.n);
    return full[0];
}

/* The shared expert's gate: the sigmoid of one more score. */
static float shared_weight(const struct wefti_forward *f, const struct routing *routing,
                           const struct wefti_forward_acts *acts, uint32_t row) {
    enum { N_PARTS = 16 };
    if (!routing->layer->shared_gate) return 1;
    const float *w = wefti_weights_vector(f->weights, routing->layer->shared_gate);
    const float *x = (const float *)(const void *)(acts->rows[WEFT_ACT_F32] +
                                                   row * acts->row_bytes[WEFT_ACT_F32]);
    float sums[N_PARTS] = {0};
    for (uint32_t i = 0; i < f->n_hidden; i++)
        sums[i % N_PARTS] += x[i] * w[i];
    for (uint32_t step = N_PARTS / 2; step > 0; step /= 2) {
        for (uint32_t i = 0; i < step; i++)
            sums[i] += sums[i + step];
    }
    return 1 / (1 + expf(-sums[0]));
}

/* Experts that stand beside the feed-forward part: routed = norm(routed) + norm(plain), which is changed. */
static void join_beside(const struct wefti_forward *f, const struct wefti_weights_layer *layer,
                        float *routed, float *plain) {
    const struct wefti_forward_norm norms[] = {{layer->post_experts_norm, 0},
                                               {layer->post_plain_norm, 0}};
    wefti_forward_normalise(f, routed, norms[0], f->n_hidden, routed);
    wefti_forward_normalise(f, plain, norms[1], f->n_hidden, plain);
    for (uint32_t i = 0; i < f->n_hidden; i++)
        routed[i] += plain[i];
}

/* x += the sum of all experts' outputs. Ends a phase. */
static void combine(const struct wefti_forward_thread *thread, const struct routing *routing,
                    const struct wefti_forward_acts *acts) {
    struct wefti_forward *f = thread->forward;
    uint32_t per_task = routing->n_rows > 4 * f->n_threads ? WEFTI_FORWARD_ROWS_PER_TASK : 1, begin,
             end;
    bool is_beside = routing->layer->post_experts_norm > 0;
    bool has_shared = routing->layer->gate.n > 0 && !is_beside;
    const struct wefti_forward_half_end end_of_half = wefti_forward_ffn_end(f, routing->layer);
    while (wefti_forward_take_rows(thread, routing->n_rows, per_task, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++) {
            float *x = f->x + row * f->x_stride, *out = f->adds_apart ? thread->scratch->wide : x;
            const float *shared = has_shared ? f->added + row * f->x_stride : NULL;
            float weight = has_shared ? shared_weight(f, routing, acts, row) : 0;
            for (uint32_t at = 0; at < f->n_hidden; at += SUM_COLUMNS) {
                float sums[SUM_GROUPS][SUM_COLUMNS];
                uint32_t n = weft_min_u32(SUM_COLUMNS, f->n_hidden - at);
                (void)sum_experts(f, routing, (struct stretch){row, at, n}, sums);
                for (uint32_t i = 0; i < n; i++) {
                    float routed = sums[0][i];
                    float sum = has_shared ? routed + weight * shared[at + i] : routed;
                    out[at + i] = f->adds_apart ? sum : x[at + i] + sum;
                }
            }
            if (is_beside) join_beside(f, routing->layer, out, f->added + row * f->x_stride);
            if (f->adds_apart) wefti_forward_add_row(f, x, out, &end_of_half);
        }
    }
    wefti_forward_end_phase(thread);
}

/* Each group's sum to its own place in the part. */
static void put_groups(const struct wefti_forward *f, const struct routing *routing,
                       struct stretch at, float *part) {
    float sums[SUM_GROUPS][SUM_COLUMNS];
    bool full[SUM_GROUPS] = {false};
    sum_groups(f, routing, at, sums, full);
    for (uint32_t g = 0; g < SUM_GROUPS; g++) {
        float *to = part + at.row * f->part_stride + routing->layer->group_slot[g] * f->x_stride;
        if (full[g]) memcpy(to + at.begin, sums[g], at.n * sizeof *to);
    }
}

/* This rank's part of the output: its experts', beside that of the shared one. */
static void put_parts(const struct wefti_forward_thread *thread, const struct routing *routing,
                      uint32_t per_task) {
    const struct wefti_forward *f = thread->forward;
    float *part = wefti_forward_own_part(f);
    uint32_t begin, end;
    while (wefti_forward_take_rows(thread, routing->n_rows, per_task, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++) {
            for (uint32_t at = 0; at < f->expert_width; at += SUM_COLUMNS) {
                float sums[SUM_GROUPS][SUM_COLUMNS];
                uint32_t n = weft_min_u32(SUM_COLUMNS, f->expert_width - at);
                const struct stretch stretch = {row, at, n};
                if (f->weights->moves_groups)
                    put_groups(f, routing, stretch, part);
                else if (sum_experts(f, routing, stretch, sums))
                    memcpy(part + row * f->part_stride + at, sums[0], n * sizeof *part);
            }
        }
    }
}

/* A bit for each group that a row's experts are of. */
static uint8_t groups_of_row(const struct wefti_forward *f, const struct routing *routing,
                             uint32_t row) {
    uint8_t groups = 0;
    uint32_t group = 0, first = row * f->moe.n_used;
    for (uint32_t i = first; i < first + f->moe.n_used; i++) {
        while (routing->chosen[i] >= wefti_weights_expert_group_end(f->moe.n_experts, group))
            group++;
        groups |= (uint8_t)(1u << group);
    }
    return groups;
}

/* out = the sum of all ranks' experts, of which `groups` has the groups. */
static void join_parts(const struct wefti_forward *f, const struct routing *routing,
                       struct stretch at, uint8_t groups, float out[SUM_COLUMNS]) {
    const struct wefti_weights_layer *layer = routing->layer;
    if (!f->weights->moves_groups) {
        const struct wefti_forward_sum sum = {at.row, at.begin, at.n, groups};
        wefti_forward_sum_parts(f, &sum, out);
        return;
    }
    float sums[SUM_GROUPS][SUM_COLUMNS];
    bool full[SUM_GROUPS] = {false};
    for (uint32_t g = 0; g < SUM_GROUPS; g++) {
        full[g] = (groups & 1u << g) != 0;
        if (!full[g]) continue;
        const float *part = wefti_forward_part_of(f, layer->group_rank[g], at.row);
        memcpy(sums[g], part + layer->group_slot[g] * f->x_stride + at.begin,
               at.n * sizeof *sums[g]);
    }
    join_groups(sums, full, at.n);
    memcpy(out, sums[0], at.n * sizeof *out);
}

/* The same as combine, where experts are other ranks', too. */
static void combine_divided(const struct wefti_forward_thread *thread,
                            const struct routing *routing, const struct wefti_forward_acts *acts) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_matrix *down = &routing->layer->down;
    uint32_t per_task = routing->n_rows > 4 * f->n_threads ? WEFTI_FORWARD_ROWS_PER_TASK : 1, begin,
             end;
    bool is_beside = routing->layer->post_experts_norm > 0;
    bool has_shared = down->present != 0 && !is_beside;
    const struct wefti_forward_half_end end_of_half = wefti_forward_ffn_end(f, routing->layer);
    put_parts(thread, routing, per_task);
    if (!wefti_forward_share_parts(thread, routing->n_rows)) return;
    while (wefti_forward_take_rows(thread, routing->n_rows, per_task, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++) {
            float *x = f->x + row * f->x_stride, *out = f->adds_apart ? thread->scratch->wide : x;
            float routed[SUM_COLUMNS], shared[SUM_COLUMNS];
            float weight = has_shared ? shared_weight(f, routing, acts, row) : 0;
            uint8_t groups = groups_of_row(f, routing, row);
            for (uint32_t at = 0; at < f->n_hidden; at += SUM_COLUMNS) {
                uint32_t n = weft_min_u32(SUM_COLUMNS, f->n_hidden - at);
                const struct wefti_forward_sum sum = {row, (uint32_t)f->shared_at + at, n,
                                                      down->present};
                join_parts(f, routing, (struct stretch){row, at, n}, groups, routed);
                if (has_shared) wefti_forward_sum_parts(f, &sum, shared);
                for (uint32_t i = 0; i < n; i++) {
                    float all = has_shared ? routed[i] + weight * shared[i] : routed[i];
                    out[at + i] = f->adds_apart ? all : x[at + i] + all;
                }
            }
            if (is_beside) {
                const struct wefti_forward_sum plain = {row, (uint32_t)f->shared_at, f->n_hidden,
                                                        down->present};
                wefti_forward_sum_parts(f, &plain, thread->scratch->beside);
                join_beside(f, routing->layer, out, thread->scratch->beside);
            }
            if (f->adds_apart) wefti_forward_add_row(f, x, out, &end_of_half);
        }
    }
    wefti_forward_end_phase(thread);
}

/* The sum of a row's experts, and where ranks divide them the shared one's in `added`. */
static void sum_latent_row(const struct wefti_forward *f, const struct routing *routing,
                           uint32_t row) {
    const struct wefti_weights_matrix *down = &routing->layer->down;
    const bool is_divided = wefti_forward_is_divided(f);
    const uint8_t groups = is_divided ? groups_of_row(f, routing, row) : 0;
    for (uint32_t at = 0; at < f->expert_width; at += SUM_COLUMNS) {
        float sums[SUM_GROUPS][SUM_COLUMNS];
        const struct stretch stretch = {row, at, weft_min_u32(SUM_COLUMNS, f->expert_width - at)};
        if (is_divided)
            join_parts(f, routing, stretch, groups, sums[0]);
        else
            (void)sum_experts(f, routing, stretch, sums);
        memcpy(f->latent + row * f->latent_stride + at, sums[0], stretch.n * sizeof *sums[0]);
    }
    const struct wefti_forward_sum shared = {row, (uint32_t)f->shared_at, f->n_hidden,
                                             down->present};
    if (is_divided && down->present != 0)
        wefti_forward_sum_parts(f, &shared, f->added + row * f->x_stride);
}

/* The same as combine, where what experts yield is not as wide as x: their sum is made so wide first, by each rank for
 * itself. Ends phases. */
static void combine_latent(const struct wefti_forward_thread *thread,
                           const struct routing *routing) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_matrix *out[] = {&routing->layer->latent_out};
    const uint32_t n_rows = routing->n_rows,
                   per_task = n_rows > 4 * f->n_threads ? WEFTI_FORWARD_ROWS_PER_TASK : 1;
    const bool is_divided = wefti_forward_is_divided(f);
    const bool has_shared =
        is_divided ? routing->layer->down.present != 0 : routing->layer->gate.n > 0;
    const struct wefti_forward_half_end end_of_half = wefti_forward_ffn_end(f, routing->layer);
    uint32_t begin, end;
    if (is_divided) {
        put_parts(thread, routing, per_task);
        if (!wefti_forward_share_parts(thread, n_rows)) return;
    }
    while (wefti_forward_take_rows(thread, n_rows, per_task, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++)
            sum_latent_row(f, routing, row);
    }
    wefti_forward_end_phase(thread);
    const struct wefti_forward_source sums = {.rows = f->latent, .stride = f->latent_stride};
    const struct wefti_forward_product product = {.matrix = out[0],
                                                  .c = f->added,
                                                  .ldc = f->x_stride,
                                                  .residual = has_shared ? f->added : NULL};
    const struct wefti_forward_acts acts = wefti_forward_acts_make(thread, &sums, n_rows, out, 1);
    wefti_forward_multiply(thread, &acts, n_rows, &product, 1);
    while (wefti_forward_take_rows(thread, n_rows, per_task, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++)
            wefti_forward_add_row(f, f->x + row * f->x_stride, f->added + row * f->x_stride,
                                  &end_of_half);
    }
    wefti_forward_end_phase(thread);
}

/* What experts read, where that is of another width than x: rows of `latent`. Ends phases. */
static struct wefti_forward_acts make_latent(const struct wefti_forward_thread *thread,
                                             const struct wefti_weights_layer *layer,
                                             const struct wefti_forward_acts *hidden,
                                             uint32_t n_rows) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_expert *e = layer->experts;
    const struct wefti_weights_matrix *in[] = {&e->gate, &e->up};
    const struct wefti_forward_product product = {
        .matrix = &layer->latent_in, .c = f->latent, .ldc = f->latent_stride};
    const struct wefti_forward_source rows = {
        .rows = f->latent, .stride = f->latent_stride, .apart = true};
    wefti_forward_multiply(thread, hidden, n_rows, &product, 1);
    return wefti_forward_acts_make(thread, &rows, n_rows, in, e->up.n > 0 ? 2 : 1);
}

/* The shared expert's output, in `added` or beside the part of the others. Ends phases. */
static void shared_expert(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                          uint32_t n_rows) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const struct wefti_forward_lora_plan *lora = wefti_forward_lora_after(thread, layer_idx);
    const struct wefti_weights_matrix *in[] = {&layer->gate, &layer->up};
    const struct wefti_forward_source hidden = wefti_forward_ffn_source(f, layer);
    wefti_forward_mark(thread, WEFT_ENG_OP_FFN_NORM);
    struct wefti_forward_acts acts =
        wefti_forward_acts_make(thread, &hidden, n_rows, in, layer->up.n > 0 ? 2 : 1);
    wefti_forward_mark(thread, WEFT_ENG_OP_GATE_UP);
    struct wefti_forward_acts made;
    wefti_forward_gate_up(thread, &acts, layer_idx, &hidden, n_rows, &made);
    wefti_forward_acts_observe(thread, layer_idx, WEFTI_CALIB_DOWN, &made, n_rows);
    const struct wefti_forward_source inner = {.rows = f->ffn, .stride = f->ffn_stride};
    struct wefti_forward_product product = {
        .matrix = &layer->down, .c = f->added, .ldc = f->x_stride};
    if (wefti_forward_is_divided(f)) {
        product.c = wefti_forward_own_part(f) + f->shared_at;
        product.ldc = f->part_stride;
    }
    const struct wefti_forward_lora_group group = {.layer = layer_idx,
                                                   .n = 1,
                                                   .roles = {WEFT_LORA_DOWN},
                                                   .y = {product.c},
                                                   .ldc = {product.ldc}};
    wefti_forward_mark(thread, WEFT_ENG_OP_DOWN);
    if (lora) wefti_forward_lora_down(thread, lora, &group, &inner);
    wefti_forward_multiply(thread, &made, n_rows, &product, 1);
    if (lora) wefti_forward_lora_up(thread, lora, &group);
}

/* The router's scores. Ends a phase. */
static void score_experts(const struct wefti_forward_thread *thread,
                          const struct wefti_weights_layer *layer,
                          const struct wefti_forward_acts *acts, uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_product scores = {.matrix = &layer->router,
                                                 .c = f->scores,
                                                 .ldc = f->score_stride,
                                                 .bias = wefti_forward_vector(f, layer->b_router)};
    wefti_forward_mark(thread, WEFT_ENG_OP_ROUTE);
    wefti_forward_multiply(thread, acts, n_rows, &scores, 1);
}

void wefti_forward_experts(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                           uint32_t n_rows) {
    struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const struct wefti_weights_expert *e = layer->experts;
    const struct wefti_weights_matrix *in[] = {&layer->router, &e->gate, &e->up},
                                      *out[] = {&e->down};
    struct wefti_forward_source hidden = wefti_forward_ffn_source(f, layer);
    hidden.apart = true;
    const uint32_t n_in = e->up.n > 0 ? 2 : 1; /* gate, and up if there is one */
    const struct wefti_forward_lora_plan *plan = wefti_forward_lora_after(thread, layer_idx);
    const bool has_lora = plan && plan->has_experts;
    if (layer->gate.n > 0) shared_expert(thread, layer_idx, n_rows);
    wefti_forward_mark(thread, WEFT_ENG_OP_FFN_NORM);
    struct wefti_forward_acts acts;
    if (layer->router_norm > 0) { /* it reads other rows than the experts do */
        hidden.norm = (struct wefti_forward_norm){layer->router_norm, 0};
        acts = wefti_forward_acts_make(thread, &hidden, n_rows, in, 1);
        score_experts(thread, layer, &acts, n_rows);
        wefti_forward_mark(thread, WEFT_ENG_OP_FFN_NORM);
        hidden.norm = (struct wefti_forward_norm){layer->experts_norm, 0};
        /* Adapters want f32, which the router's is. */
        acts = wefti_forward_acts_make(thread, &hidden, n_rows, has_lora ? in : in + 1,
                                       has_lora ? 1 + n_in : n_in);
    } else if (layer->latent_in.n > 0) {
        const struct wefti_weights_matrix *first[] = {&layer->router, &layer->latent_in};
        acts = wefti_forward_acts_make(thread, &hidden, n_rows, first, 2);
        score_experts(thread, layer, &acts, n_rows);
        acts = make_latent(thread, layer, &acts, n_rows);
    } else {
        acts = wefti_forward_acts_make(thread, &hidden, n_rows, in, 1 + n_in);
        score_experts(thread, layer, &acts, n_rows);
    }
    wefti_forward_acts_observe(thread, layer_idx, WEFTI_CALIB_FFN, &acts, n_rows);
    wefti_forward_mark(thread, WEFT_ENG_OP_ROUTE);
    struct routing routing = route_rows(thread, layer, n_rows);
    note_routes(thread, layer_idx, &routing);
    struct feed feed = feed_of(&acts, in + 1, n_in);
    gather_wide(thread, &routing, &feed);
    wefti_forward_mark(thread, WEFT_ENG_OP_GATE_UP);
    struct wefti_forward_lora_experts lora = {.plan = plan,
                                              .sorted = routing.sorted,
                                              .layer = layer_idx,
                                              .n = 2,
                                              .roles = {WEFT_LORA_GATE, WEFT_LORA_UP}};
    if (has_lora)
        wefti_forward_lora_experts_down(thread, &lora, acts.rows[WEFT_ACT_F32],
                                        acts.row_bytes[WEFT_ACT_F32], true);
    gate_up_all(thread, &routing, &feed, has_lora ? &lora : NULL);
    observe_inner(thread, layer_idx, &routing);
    wefti_forward_mark(thread, WEFT_ENG_OP_DOWN_CONVERT);
    feed = feed_of(NULL, out, 1);
    gather_wide(thread, &routing, &feed);
    wefti_forward_mark(thread, WEFT_ENG_OP_DOWN);
    lora.n = 1;
    lora.roles[0] = WEFT_LORA_DOWN;
    if (has_lora)
        wefti_forward_lora_experts_down(thread, &lora, (const uint8_t *)f->inner,
                                        f->inner_stride * sizeof(float), false);
    down_all(thread, &routing, &feed, has_lora ? &lora : NULL);
    wefti_forward_mark(thread, WEFT_ENG_OP_COMBINE);
    if (layer->latent_in.n > 0) {
        combine_latent(thread, &routing);
        return;
    }
    (wefti_forward_is_divided(f) ? combine_divided : combine)(thread, &routing, &acts);
}
