/* The types of a model's tensors (types.c) and their places in the arena. All of it follows from
 * the model and the options, so whoever maps an arena can tell whether it is the one that it
 * would have made. */
#include "weights/plan.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/limits.h"
#include "collective/collective.h"
#include "runtime/memory.h"
#include "weights/expert_load.h"
#include "weights/recurrent_share.h"

/* Covers all that packing decides and no hash sees, such as the inside of a panel: packed files of
 * another version are refused. */
#define LAYOUT_VERSION 1
#define FFN_UNIT 2 /* columns of the down projection that no segment parts */
_Static_assert(WEFTI_WEIGHTS_HEADS == 3, "the layout's hash has the number, and packed files it");

struct item_bytes {
    size_t own, whole;
};

/* What tells the kinds of a type apart. */
static uint64_t number_of_kind(enum weft_gemm_kind kind, enum weft_dtype stored) {
    if (kind == weft_kern_exact_kind(stored)) return 1;
    return kind == weft_kern_fast_kind(stored) ? 0 : 2;
}

/* `stored`: the form's name in a packed file. Both hashes cover the layout; that of the run also
 * covers the kernels that read it, which a packed file leaves open. What they cover has numbers of
 * its own, which no order of rows or members changes. It is the layout of the whole model: ranks of
 * a group yield the bits of one that has it all, and are known by its name. */
static void add_item(struct wefti_weights_plan *plan, const struct wefti_weights_item *item,
                     enum weft_dtype stored, struct item_bytes bytes) {
    WEFT_ASSERT(plan->n_items < plan->cap_items);
    struct wefti_weights_item *slot = &plan->items[plan->n_items++];
    uint64_t place = plan->whole_used;
    *slot = *item;
    slot->offset = plan->used;
    slot->whole_offset = plan->whole_used;
    plan->used += weft_round_up(bytes.own, 64);
    plan->bytes_of_type[stored] += bytes.own;
    if (item->form != WEFTI_WEIGHTS_ROWS) plan->step_bytes += bytes.own;
    if (item->again) { /* the whole has it already */
        WEFT_ASSERT(slot > plan->items && slot[-1].src == item->src);
        slot->whole_offset = slot[-1].whole_offset;
        return;
    }
    plan->whole_used += weft_round_up(bytes.whole, 64);
    bool is_matrix = item->form == WEFTI_WEIGHTS_PANELS || item->form == WEFTI_WEIGHTS_HEADS;
    uint64_t facts[6] = {(uint64_t)item->form,
                         weft_dtypes[stored].layout_number,
                         item->n,
                         item->k,
                         place,
                         is_matrix ? number_of_kind(item->kind, stored) : 0};
    WEFT_ASSERT(!is_matrix || weft_kern_weights_of(item->kind) == stored);
    plan->hash = XXH64(facts, sizeof facts, plan->hash);
    plan->place_hash = XXH64(facts, sizeof facts - sizeof facts[5], plan->place_hash);
    plan->stored[wefti_weights_plan_tensor_idx(plan, item->src)] = stored;
}

static uint32_t least_common_multiple(uint32_t a, uint32_t b) {
    uint32_t x = a, y = b;
    while (y) {
        uint32_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* ----------------------------------------------------------------------------------- shares --- */

static struct wefti_weights_range all_of(uint32_t n) {
    return (struct wefti_weights_range){0, n};
}

/* Eight segments in whole units of `unit` columns and of the packing group (docs/architecture.md,
 * "Batch invariance"). */
static struct weft_kern_segs segments_of(enum weft_gemm_kind kind, uint32_t k, uint32_t unit) {
    struct weft_kern_segs segs;
    unit = least_common_multiple(unit, weft_kern_group(kind));
    WEFT_ASSERT(unit > 0);
    weft_kern_segs_split(&segs, (k + unit - 1) / unit, unit);
    for (uint32_t s = 0; s < segs.n_segs; s++)
        segs.seg_end[s] = weft_min_u32(segs.seg_end[s], k);
    return segs;
}

/* The columns of the rank's segments. */
static struct wefti_weights_range own_columns(const struct wefti_weights_plan *plan,
                                              const struct weft_kern_segs *segs) {
    const struct weft_eng_options *options = plan->options;
    uint32_t first = weft_coll_first_segment(options->rank, options->n_ranks);
    uint32_t end = weft_coll_first_segment(options->rank + 1, options->n_ranks);
    return (struct wefti_weights_range){first > 0 ? segs->seg_end[first - 1] : 0,
                                        segs->seg_end[end - 1]};
}

/* A matrix's segments before it is placed. */
static struct weft_kern_segs foresee_segments(const struct wefti_weights_plan *plan,
                                              const struct weft_tensor *tensor,
                                              enum wefti_calib_input input, uint32_t unit) {
    struct wefti_weights_types types = plan->types; /* what it finds is noted when it is placed */
    struct wefti_weights_type type = wefti_weights_matrix_type(&types, tensor, input, plan->layer);
    return segments_of(type.kind, (uint32_t)tensor->dims[1], unit);
}

/* The rank's columns then: they are rows of those that come first. */
static struct wefti_weights_range foresee_columns(const struct wefti_weights_plan *plan,
                                                  const struct weft_tensor *tensor,
                                                  enum wefti_calib_input input, uint32_t unit) {
    if (plan->options->n_ranks == 1) return all_of((uint32_t)tensor->dims[1]);
    struct weft_kern_segs segs = foresee_segments(plan, tensor, input, unit);
    return own_columns(plan, &segs);
}

/* The segments of the own columns alone: before and after them, and where they are, as a sum over
 * them alone sees it. */
static void keep_own_segments(struct wefti_weights_matrix *matrix,
                              struct wefti_weights_range columns) {
    struct weft_kern_segs *segs = &matrix->segs;
    for (uint32_t s = 0, begin = 0, end; s < segs->n_segs; s++, begin = end) {
        end = segs->seg_end[s];
        if (end > begin) matrix->present |= (uint8_t)(1u << s);
        segs->seg_end[s] =
            weft_min_u32(weft_max_u32(end, columns.begin), columns.end) - columns.begin;
    }
}

/* -------------------------------------------------------------------------------- placement --- */

/* A matrix of n x k, of which the rank has some rows; or, where `unit` is not 0, the columns of its
 * segments, which are sums of whole units. */
struct shape {
    uint32_t n, k;
    struct wefti_weights_range rows;
    uint32_t unit;
    bool again; /* these are further rows of the tensor that was placed before */
};

static struct shape whole(uint32_t n, uint32_t k) {
    return (struct shape){n, k, all_of(n), 0, false};
}

static struct shape rows_of(uint32_t n, uint32_t k, struct wefti_weights_range rows) {
    return (struct shape){n, k, rows, 0, false};
}

static struct shape by_units(uint32_t n, uint32_t k, uint32_t unit) {
    return (struct shape){n, k, all_of(n), unit, false};
}

/* Fills in what there is to know of a matrix but its place: n rows, and k of its k_whole columns. */
static void describe_matrix(struct wefti_weights_matrix *matrix, enum weft_gemm_kind kind,
                            uint32_t n, uint32_t k, uint32_t k_whole) {
    matrix->kind = kind;
    if (n == 0 || k == 0) return;
    matrix->n = n;
    matrix->k = k;
    matrix->k_whole = k_whole;
    matrix->n_panels = weft_div_up_u32(n, WEFT_PANEL);
    matrix->panel_bytes = weft_kern_part_bytes(kind, k_whole, k);
}

/* A packed file has panels. Where a rank's rows begin within one, they are read and packed again,
 * which yields the same bits of some types. */
static void note_shift(struct wefti_weights_plan *plan, const struct wefti_weights_item *item,
                       enum weft_dtype stored) {
    if (!weft_model_packed(plan->model) || item->rows.begin % WEFT_PANEL == 0) return;
    bool can_shift = stored == WEFT_DT_F32 || stored == WEFT_DT_F16 || stored == WEFT_DT_BF16 ||
                     stored == WEFT_DT_Q8_0;
    size_t bytes = weft_round_up((size_t)WEFT_PANEL * item->k * sizeof(float), 64);
    if (!can_shift && !plan->uncut) plan->uncut = item->src;
    if (bytes > plan->cut_bytes) plan->cut_bytes = bytes;
}

/* Shapes were checked when the model was opened. */
static void place_matrix(struct wefti_weights_plan *plan, const struct weft_tensor *tensor,
                         enum wefti_calib_input input, struct shape shape,
                         struct wefti_weights_matrix *out) {
    WEFT_ASSERT(tensor->n_dims == 2 && tensor->dims[0] == shape.n && tensor->dims[1] == shape.k);
    struct wefti_weights_types types = plan->types; /* which have noted it */
    struct wefti_weights_type type =
        wefti_weights_matrix_type(shape.again ? &types : &plan->types, tensor, input, plan->layer);
    *out = (struct wefti_weights_matrix){.offset = plan->used};
    struct wefti_weights_item item = {.src = tensor,
                                      .form = WEFTI_WEIGHTS_PANELS,
                                      .kind = type.kind,
                                      .n = shape.n,
                                      .k = shape.k,
                                      .rows = shape.rows,
                                      .columns = all_of(shape.k),
                                      .again = shape.again};
    weft_kern_segs_one(&out->segs, shape.k);
    if (shape.unit > 0) {
        out->segs = segments_of(type.kind, shape.k, shape.unit);
        item.columns = own_columns(plan, &out->segs);
        keep_own_segments(out, item.columns);
    }
    if (plan->importance && input <= WEFTI_CALIB_HEAD &&
        shape.k <=
            wefti_calib_columns(plan->options->calib, input)) /* else it meets something else */
        item.importance =
            plan->importance + wefti_calib_offset(plan->options->calib, plan->layer, input);
    if (plan->importance && input == WEFTI_CALIB_EXPERT_DOWN)
        item.importance = plan->importance + wefti_calib_expert_offset(plan->options->calib,
                                                                       plan->layer, plan->expert);
    uint32_t n = wefti_weights_item_n(&item), k = wefti_weights_item_k(&item);
    describe_matrix(out, type.kind, n, k, shape.k);
    struct item_bytes bytes = {.whole = weft_kern_packed_bytes(type.kind, shape.n, shape.k)};
    if (out->n > 0) {
        uint32_t panels_per_task =
            (uint32_t)((WEFTI_WEIGHTS_TASK_BYTES + out->panel_bytes - 1) / out->panel_bytes);
        item.rows_per_task = panels_per_task * WEFT_PANEL;
        item.n_tasks = weft_div_up_u32(n, item.rows_per_task);
        bytes.own = out->n_panels * out->panel_bytes;
        size_t panel_bytes = weft_kern_panel_bytes(type.kind, shape.k);
        if (k < shape.k && panel_bytes > plan->cut_bytes) plan->cut_bytes = panel_bytes;
        note_shift(plan, &item, type.stored);
    }
    add_item(plan, &item, type.stored, bytes);
}

/* `n` rows of k, one after the other. All ranks have them, but for what `change` leaves out. */
static size_t place_vectors(struct wefti_weights_plan *plan, const struct weft_tensor *tensor,
                            uint32_t n, uint32_t k, struct wefti_weights_item change) {
    size_t offset = plan->used;
    struct wefti_weights_item item = change;
    item.src = tensor;
    item.form = WEFTI_WEIGHTS_VECTOR;
    item.n = n;
    item.k = k;
    item.rows = all_of(n);
    item.columns = all_of(k);
    WEFT_ASSERT(tensor->dims[tensor->n_dims - 1] == k); /* perhaps a matrix of one row */
    size_t row_bytes = k * sizeof(float),
           own_bytes = wefti_weights_item_own_k(&item) * sizeof(float);
    item.n_tasks = own_bytes > 0;
    if (item.n_pieces > 0 && row_bytes > plan->cut_bytes)
        plan->cut_bytes = weft_round_up(row_bytes, 64);
    add_item(plan, &item, WEFT_DT_F32, (struct item_bytes){n * own_bytes, n * row_bytes});
    return offset;
}

static size_t place_vector(struct wefti_weights_plan *plan, const struct weft_tensor *tensor,
                           uint32_t k, bool plus_one) {
    return place_vectors(plan, tensor, 1, k, (struct wefti_weights_item){.plus_one = plus_one});
}

/* 0, where the header lies, if the model has none. */
static size_t place_bias(struct wefti_weights_plan *plan, const struct weft_tensor *tensor,
                         uint32_t k) {
    return tensor ? place_vector(plan, tensor, k, false) : 0;
}

static size_t place_norm(struct wefti_weights_plan *plan, const struct weft_tensor *tensor,
                         uint32_t k) {
    if (!tensor) return 0;
    return place_vector(plan, tensor, k, weft_model_params(plan->model)->norm_plus_one);
}

/* What there is to know of an expert that other ranks have: rows are sorted and counted by it. */
static void describe_expert(struct wefti_weights_plan *plan, const struct weft_model_expert *from,
                            struct wefti_weights_expert *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    const uint32_t width = weft_model_expert_width(p);
    const struct weft_tensor *tensors[] = {from->gate, from->up, from->down};
    struct wefti_weights_matrix *matrices[] = {&to->gate, &to->up, &to->down};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        struct shape shape = i == 2 ? whole(width, p->moe.n_ffn) : whole(p->moe.n_ffn, width);
        enum wefti_calib_input input = i == 2 ? WEFTI_CALIB_EXPERT_DOWN : WEFTI_CALIB_FFN;
        if (!tensors[i]) continue; /* there is no up */
        shape.rows = (struct wefti_weights_range){0, 0};
        place_matrix(plan, tensors[i], input, shape, matrices[i]);
        describe_matrix(matrices[i], matrices[i]->kind, shape.n, shape.k, shape.k);
    }
}

/* Every rank has all of them. */
static void place_expert_biases(struct wefti_weights_plan *plan,
                                const struct weft_model_expert *from,
                                struct wefti_weights_expert *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    to->b_gate = place_bias(plan, from->b_gate, p->moe.n_ffn);
    to->b_up = place_bias(plan, from->b_up, p->moe.n_ffn);
    to->b_down = place_bias(plan, from->b_down, p->n_hidden);
}

/* Which ranks have which groups of a layer's experts. */
static void share_experts(const struct wefti_weights_plan *plan, struct wefti_weights_layer *to) {
    const struct weft_eng_options *options = plan->options;
    uint32_t n = weft_model_params(plan->model)->moe.n_experts, n_slots[WEFT_COLL_RANKS_MAX] = {0};
    const uint64_t *tokens =
        plan->expert_tokens ? plan->expert_tokens + (size_t)plan->layer * n : NULL;
    wefti_expert_load_place(tokens, n, options->n_ranks, to->group_rank);
    for (uint32_t g = 0, e = 0; g < WEFTI_WEIGHTS_EXPERT_GROUPS; g++) {
        to->group_slot[g] = (uint8_t)n_slots[to->group_rank[g]]++;
        for (; e < wefti_weights_expert_group_end(n, g); e++)
            to->experts[e].is_own = to->group_rank[g] == options->rank;
    }
}

/* An expert stays whole however many ranks there are, so nothing of it is split. */
static void place_experts(struct wefti_weights_plan *plan, const struct weft_model_layer *from,
                          struct wefti_weights_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    uint32_t n = p->moe.n_experts, ffn = p->moe.n_ffn, hidden = p->n_hidden,
             width = weft_model_expert_width(p);
    WEFT_ASSERT(n > 0);
    place_matrix(plan, from->router, WEFTI_CALIB_ROUTER, whole(n, hidden), &to->router);
    if (from->latent_in) { /* small, and every rank has them */
        place_matrix(plan, from->latent_in, WEFTI_CALIB_FFN, whole(width, hidden), &to->latent_in);
        place_matrix(plan, from->latent_out, WEFTI_CALIB_FFN, whole(hidden, width),
                     &to->latent_out);
    }
    to->score_bias = place_bias(plan, from->score_bias, n);
    to->shared_gate = place_bias(plan, from->shared_gate, hidden);
    to->b_router = place_bias(plan, from->b_router, n);
    to->router_norm = place_norm(plan, from->router_norm, hidden);
    to->expert_scale = place_bias(plan, from->expert_scale, n);
    to->experts_norm = place_norm(plan, from->experts_norm, hidden);
    to->post_plain_norm = place_norm(plan, from->post_plain_norm, hidden);
    to->post_experts_norm = place_norm(plan, from->post_experts_norm, hidden);
    share_experts(plan, to);
    size_t step_bytes = plan->step_bytes;
    for (uint32_t e = 0; e < n; e++) {
        plan->expert = e;
        if (!to->experts[e].is_own) {
            describe_expert(plan, &from->experts[e], &to->experts[e]);
            place_expert_biases(plan, &from->experts[e], &to->experts[e]);
            continue;
        }
        place_matrix(plan, from->experts[e].gate, WEFTI_CALIB_FFN, whole(ffn, width),
                     &to->experts[e].gate);
        if (from->experts[e].up)
            place_matrix(plan, from->experts[e].up, WEFTI_CALIB_FFN, whole(ffn, width),
                         &to->experts[e].up);
        place_matrix(plan, from->experts[e].down, WEFTI_CALIB_EXPERT_DOWN, whole(width, ffn),
                     &to->experts[e].down);
        place_expert_biases(plan, &from->experts[e], &to->experts[e]);
    }
    plan->step_bytes = step_bytes + (plan->step_bytes - step_bytes) / n * p->moe.n_used;
}

/* The heads of columns of the output's matrix, `dim` each. */
static struct wefti_weights_range heads_of(struct wefti_weights_range columns, uint32_t dim) {
    WEFT_ASSERT(columns.begin % dim == 0 && columns.end % dim == 0);
    return (struct wefti_weights_range){columns.begin / dim, columns.end / dim};
}

static struct wefti_weights_range times(struct wefti_weights_range heads, uint32_t dim) {
    return (struct wefti_weights_range){heads.begin * dim, heads.end * dim};
}

/* A bias from element `at` on; 0 stays 0. */
static size_t shift_bias(size_t offset, uint32_t at) {
    return offset > 0 ? offset + at * sizeof(float) : 0;
}

/* The kv heads that some heads read. */
static struct wefti_weights_range kv_heads_of(struct wefti_weights_range heads, uint32_t group) {
    if (heads.begin == heads.end) return all_of(0);
    return (struct wefti_weights_range){heads.begin / group, (heads.end - 1) / group + 1};
}

static void place_attention(struct wefti_weights_plan *plan, const struct weft_model_layer *from,
                            struct wefti_weights_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    const uint32_t n_kv_heads = weft_model_kv_heads(p, plan->layer),
                   group = p->n_heads / n_kv_heads, dim = weft_model_head_dim(p, plan->layer),
                   hidden = p->n_hidden;
    const uint32_t q_dim = p->n_heads * dim, kv_dim = n_kv_heads * dim;
    struct wefti_weights_range heads =
        heads_of(foresee_columns(plan, from->wo, WEFTI_CALIB_O, dim), dim);
    struct wefti_weights_range kv_heads = kv_heads_of(heads, group), q = heads, k = kv_heads;
    to->n_heads = heads.end - heads.begin;
    to->n_kv_heads = kv_heads.end - kv_heads.begin;
    to->first_kv_head = kv_heads.begin;
    if (to->n_heads > 0) to->skipped_heads = heads.begin - kv_heads.begin * group;
    if (p->qk_norm_all && to->n_heads > 0) { /* the norm is over all of them */
        q = all_of(p->n_heads);
        k = all_of(n_kv_heads);
        to->q_first = heads.begin;
        to->k_first = kv_heads.begin;
    }
    place_matrix(plan, from->wq, WEFTI_CALIB_QKV, rows_of(q_dim, hidden, times(q, dim)), &to->q);
    if (from->wk)
        place_matrix(plan, from->wk, WEFTI_CALIB_QKV, rows_of(kv_dim, hidden, times(k, dim)),
                     &to->k);
    if (from->wv)
        place_matrix(plan, from->wv, WEFTI_CALIB_QKV, rows_of(kv_dim, hidden, times(kv_heads, dim)),
                     &to->v);
    to->bq = shift_bias(place_bias(plan, from->bq, q_dim), q.begin * dim);
    to->bk = shift_bias(place_bias(plan, from->bk, kv_dim), k.begin * dim);
    to->bv = shift_bias(place_bias(plan, from->bv, kv_dim), kv_heads.begin * dim);
    if (from->attn_gate)
        place_matrix(plan, from->attn_gate, WEFTI_CALIB_QKV,
                     rows_of(q_dim, hidden, times(heads, dim)), &to->attn_gate);
    to->sinks = shift_bias(place_bias(plan, from->sinks, p->n_heads), heads.begin);
    const bool norms_all = p->qk_norm_all || p->block.head_norms;
    to->q_norm = place_norm(plan, from->q_norm, norms_all ? q_dim : dim);
    to->k_norm = place_norm(plan, from->k_norm, norms_all ? kv_dim : dim);
    if (p->block.head_norms) {
        to->q_norm = shift_bias(to->q_norm, q.begin * dim);
        to->k_norm = shift_bias(to->k_norm, k.begin * dim);
    }
    place_matrix(plan, from->wo, WEFTI_CALIB_O, by_units(hidden, q_dim, dim), &to->o);
    to->bo = place_bias(plan, from->bo, hidden);
}

/* Where the matrices of heads lie in a tensor: n x k each, in rows begin, begin + step, ... and the
 * ones that follow them; turned: these rows are columns. */
struct head_matrices {
    uint32_t begin, step, n, k;
    bool turned;
};

static void place_heads(struct wefti_weights_plan *plan, const struct weft_tensor *tensor,
                        struct head_matrices rows, struct wefti_weights_range own,
                        struct wefti_weights_heads *out) {
    uint32_t n_heads = weft_model_params(plan->model)->n_heads, n = rows.n, k = rows.k;
    WEFT_ASSERT(tensor->n_dims == 2 && tensor->dims[0] == (uint64_t)n_heads * rows.step);
    WEFT_ASSERT(tensor->dims[1] == (rows.turned ? n : k));
    WEFT_ASSERT(rows.begin + (rows.turned ? k : n) <= rows.step);
    struct wefti_weights_type type =
        rows.turned ? wefti_weights_turned_type(&plan->types, tensor, k, plan->layer)
                    : wefti_weights_matrix_type(&plan->types, tensor, WEFTI_CALIB_QKV, plan->layer);
    *out = (struct wefti_weights_heads){.head_bytes = weft_kern_packed_bytes(type.kind, n, k)};
    out->first.offset = plan->used;
    describe_matrix(&out->first, type.kind, n, k, k);
    weft_kern_segs_one(&out->first.segs, k);
    const struct wefti_weights_item item = {.src = tensor,
                                            .form = WEFTI_WEIGHTS_HEADS,
                                            .kind = type.kind,
                                            .n = n,
                                            .k = k,
                                            .rows = all_of(n),
                                            .columns = all_of(k),
                                            .n_tasks = own.end - own.begin,
                                            .rows_per_task = n,
                                            .row_begin = rows.begin + own.begin * rows.step,
                                            .row_step = rows.step,
                                            .turned = rows.turned};
    add_item(plan, &item, type.stored,
             (struct item_bytes){item.n_tasks * out->head_bytes, n_heads * out->head_bytes});
}

/* Every rank chooses by itself, and all choose the same: they have all index keys in their caches. What weighs heads
 * is computed in f32, as routers are. */
static void place_indexer(struct wefti_weights_plan *plan, const struct weft_model_layer *from,
                          struct wefti_weights_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    uint32_t n = p->indexer.n_heads, dim = p->indexer.head_dim;
    place_matrix(plan, from->index_q, WEFTI_CALIB_Q_RANK, whole(n * dim, p->q_lora), &to->index_q);
    place_matrix(plan, from->index_k, WEFTI_CALIB_QKV, whole(dim, p->n_hidden), &to->index_k);
    place_matrix(plan, from->index_weights, WEFTI_CALIB_ROUTER, whole(n, p->n_hidden),
                 &to->index_weights);
    to->index_norm = place_bias(plan, from->index_norm, dim);
    to->index_norm_bias = place_bias(plan, from->index_norm_bias, dim);
}

/* All of latent attention but the norms around it. What makes the rows of the cache is every
 * rank's: they all need it, and it is small. */
static void place_latent(struct wefti_weights_plan *plan, const struct weft_model_layer *from,
                         struct wefti_weights_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    uint32_t q_head = p->nope_dim + p->rope_dim, step = p->nope_dim + p->v_dim;
    uint32_t q_in = from->wq_a ? p->q_lora : p->n_hidden;
    struct wefti_weights_range heads =
        heads_of(foresee_columns(plan, from->wo, WEFTI_CALIB_O, p->v_dim), p->v_dim);
    to->n_heads = heads.end - heads.begin;
    to->n_kv_heads = p->n_kv_heads;
    if (from->wq_a) {
        place_matrix(plan, from->wq_a, WEFTI_CALIB_QKV, whole(p->q_lora, p->n_hidden), &to->q_a);
        to->q_a_norm = place_norm(plan, from->q_a_norm, p->q_lora);
    }
    place_matrix(plan, from->wq, from->wq_a ? WEFTI_CALIB_Q_RANK : WEFTI_CALIB_QKV,
                 rows_of(p->n_heads * q_head, q_in, times(heads, q_head)), &to->q);
    place_matrix(plan, from->wk, WEFTI_CALIB_QKV, whole(p->head_dim, p->n_hidden), &to->k);
    to->latent_norm = place_norm(plan, from->latent_norm, p->kv_lora);
    if (from->w_kv_b) {
        const struct head_matrices up_k = {0, step, p->kv_lora, p->nope_dim, true};
        const struct head_matrices up_v = {p->nope_dim, step, p->v_dim, p->kv_lora, false};
        place_heads(plan, from->w_kv_b, up_k, heads, &to->up_k);
        place_heads(plan, from->w_kv_b, up_v, heads, &to->up_v);
    } else {
        const struct head_matrices up_k = {0, p->kv_lora, p->kv_lora, p->nope_dim, false};
        const struct head_matrices up_v = {0, p->v_dim, p->v_dim, p->kv_lora, false};
        place_heads(plan, from->w_k_b, up_k, heads, &to->up_k);
        place_heads(plan, from->w_v_b, up_v, heads, &to->up_v);
    }
    if (from->index_q) place_indexer(plan, from, to);
    place_matrix(plan, from->wo, WEFTI_CALIB_O,
                 by_units(p->n_hidden, p->n_heads * p->v_dim, p->v_dim), &to->o);
}

/* What makes rows: a tensor may be several matrices of a rank. */
static void place_recurrent_in(struct wefti_weights_plan *plan, const struct weft_model_layer *from,
                               struct wefti_weights_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    struct wefti_weights_rows_in parts[WEFT_MODEL_RECURRENT_PARTS];
    wefti_weights_recurrent_rows(p, from, &to->rec, plan->options->n_ranks == 1, parts);
    for (uint32_t i = 0; i < WEFT_MODEL_RECURRENT_PARTS; i++) {
        if (!parts[i].src) continue;
        struct shape shape = rows_of((uint32_t)parts[i].src->dims[0], p->n_hidden, parts[i].rows);
        shape.again = i > 0 && parts[i].src == parts[i - 1].src;
        place_matrix(plan, parts[i].src, WEFTI_CALIB_QKV, shape, &to->rec_in[i]);
    }
}

static void place_recurrent(struct wefti_weights_plan *plan, const struct weft_model_layer *from,
                            struct wefti_weights_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    const struct weft_model_recurrent *r = &p->recurrent;
    const uint32_t inner = weft_model_recurrent_inner(p), channels = weft_model_conv_channels(p),
                   unit = wefti_weights_recurrent_unit(p);
    const struct weft_kern_segs segs = foresee_segments(plan, from->rec_out, WEFTI_CALIB_O, unit);
    to->rec = wefti_weights_recurrent_share(p, &segs, plan->options->rank, plan->options->n_ranks);
    place_recurrent_in(plan, from, to);
    place_matrix(plan, from->rec_out, WEFTI_CALIB_O, by_units(p->n_hidden, inner, unit),
                 &to->rec_out);
    struct wefti_weights_item own = {0};
    if (plan->options->n_ranks > 1)
        own.n_pieces = wefti_weights_recurrent_channels(p, &to->rec, own.pieces);
    to->taps = place_vectors(plan, from->taps, r->conv_width, channels, own);
    if (from->conv_bias) to->conv_bias = place_vectors(plan, from->conv_bias, 1, channels, own);
    to->dt_bias = shift_bias(place_bias(plan, from->dt_bias, r->n_heads), to->rec.first);
    if (from->rate)
        to->rate =
            shift_bias(place_vectors(plan, from->rate, 1, r->n_heads,
                                     (struct wefti_weights_item){.minus_exp = !r->rates_are_plain}),
                       to->rec.first);
    to->skip = shift_bias(place_bias(plan, from->skip, r->n_heads), to->rec.first);
    if (from->rec_norm)
        to->rec_norm = place_bias(plan, from->rec_norm,
                                  (uint32_t)from->rec_norm->dims[from->rec_norm->n_dims - 1]);
}

/* What a layer does with its own embeddings. */
static void place_layer_input(struct wefti_weights_plan *plan, const struct weft_model_layer *from,
                              struct wefti_weights_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    const uint32_t n = p->unlike.layer_input, hidden = p->n_hidden;
    if (from->input_gate) {
        place_matrix(plan, from->input_gate, WEFTI_CALIB_LAYER_INPUT, whole(n, hidden),
                     &to->input_gate);
        place_matrix(plan, from->input_proj, WEFTI_CALIB_LAYER_INPUT, whole(hidden, n),
                     &to->input_proj);
        to->post_input_norm = place_norm(plan, from->post_input_norm, hidden);
    }
    to->layer_scale = place_bias(plan, from->layer_scale, 1);
}

/* What norms add, and the norms of encoders' sums. */
static void place_other_norms(struct wefti_weights_plan *plan, const struct weft_model_layer *from,
                              struct wefti_weights_layer *to) {
    uint32_t hidden = weft_model_params(plan->model)->n_hidden;
    to->attn_norm_bias = place_bias(plan, from->attn_norm_bias, hidden);
    to->ffn_norm_bias = place_bias(plan, from->ffn_norm_bias, hidden);
    to->attn_sum_norm = place_bias(plan, from->attn_sum_norm, hidden);
    to->attn_sum_bias = place_bias(plan, from->attn_sum_bias, hidden);
    to->ffn_sum_norm = place_bias(plan, from->ffn_sum_norm, hidden);
    to->ffn_sum_bias = place_bias(plan, from->ffn_sum_bias, hidden);
}

static void place_layer(struct wefti_weights_plan *plan, const struct weft_model_layer *from,
                        struct wefti_weights_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    uint32_t hidden = p->n_hidden, ffn = weft_model_ffn(p, plan->layer);
    to->attn_norm = place_norm(plan, from->attn_norm, hidden);
    to->no_attention = weft_model_bit(p->recurrent.no_attention, plan->layer);
    to->no_ffn = weft_model_bit(p->recurrent.no_ffn, plan->layer);
    if (from->rec_out) place_recurrent(plan, from, to);
    if (p->kv_lora > 0)
        place_latent(plan, from, to);
    else if (!to->no_attention)
        place_attention(plan, from, to);
    to->post_attn_norm = place_norm(plan, from->post_attn_norm, hidden);
    to->ffn_norm = place_norm(plan, from->ffn_norm, hidden);
    if (from->experts) {
        ffn = p->moe.n_ffn_shared;
        place_experts(plan, from, to);
    }
    if (from->w_gate) {
        struct wefti_weights_range own =
            foresee_columns(plan, from->w_down, WEFTI_CALIB_DOWN, FFN_UNIT);
        place_matrix(plan, from->w_gate, WEFTI_CALIB_FFN, rows_of(ffn, hidden, own), &to->gate);
        if (from->w_up)
            place_matrix(plan, from->w_up, WEFTI_CALIB_FFN, rows_of(ffn, hidden, own), &to->up);
        place_matrix(plan, from->w_down, WEFTI_CALIB_DOWN, by_units(hidden, ffn, FFN_UNIT),
                     &to->down);
        to->b_gate = shift_bias(place_bias(plan, from->b_gate, ffn), own.begin);
        to->b_up = shift_bias(place_bias(plan, from->b_up, ffn), own.begin);
        to->b_down = place_bias(plan, from->b_down, hidden);
    }
    place_other_norms(plan, from, to);
    to->post_ffn_norm = place_norm(plan, from->post_ffn_norm, hidden);
    place_layer_input(plan, from, to);
}

/* A table as in the file; the rank has rows `own` of it. */
static void place_rows(struct wefti_weights_plan *plan, const struct weft_tensor *table,
                       struct wefti_weights_range own, struct wefti_weights_rows *out) {
    if (!table) return;
    WEFT_ASSERT(table->n_dims == 2 && table->dims[0] > 0);
    uint32_t n_rows = (uint32_t)table->dims[0], k = (uint32_t)table->dims[1];
    size_t row_bytes = table->bytes / n_rows;
    uint32_t rows = (uint32_t)(WEFTI_WEIGHTS_TASK_BYTES / row_bytes) + 1;
    struct wefti_weights_item item = {.src = table,
                                      .form = WEFTI_WEIGHTS_ROWS,
                                      .n = n_rows,
                                      .k = k,
                                      .rows = own,
                                      .columns = all_of(k),
                                      .rows_per_task = rows};
    uint32_t n = wefti_weights_item_n(&item);
    *out = (struct wefti_weights_rows){
        .src = table->dtype, .n = n, .k = k, .offset = plan->used, .row_bytes = row_bytes};
    item.n_tasks = weft_div_up_u32(n, rows);
    add_item(plan, &item, table->dtype, (struct item_bytes){n * row_bytes, table->bytes});
}

static void place_embedding(struct wefti_weights_plan *plan, struct wefti_weights *weights) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    weights->tied = p->tied;
    if (p->tied) return;
    place_rows(plan, weft_model_embedding(plan->model), weights->vocab, &weights->embedding);
}

/* An encoder is one rank's (check_ranks). */
static void place_encoder(struct wefti_weights_plan *plan, struct wefti_weights *weights) {
    struct wefti_weights_encoder *out = &weights->encoder;
    const struct weft_model_params *p = weft_model_params(plan->model);
    const struct weft_model_encoder_tensors *from = weft_model_encoder(plan->model);
    const struct {
        const struct weft_tensor *table;
        struct wefti_weights_rows *out;
    } tables[] = {{from->types, &out->types},
                  {from->positions, &out->positions},
                  {from->dense, &out->dense},
                  {from->classifier, &out->classifier}};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (tables[i].table)
            place_rows(plan, tables[i].table, all_of((uint32_t)tables[i].table->dims[0]),
                       tables[i].out);
    out->embed_norm = place_bias(plan, from->embed_norm, p->n_hidden);
    out->embed_bias = place_bias(plan, from->embed_bias, p->n_hidden);
    if (p->encoder.is_on)
        weights->final_bias = place_bias(plan, weft_model_final_bias(plan->model), p->n_hidden);
    out->dense_bias = place_bias(plan, from->dense_bias, p->n_hidden);
    out->labels_bias = place_bias(plan, from->labels_bias, p->encoder.n_labels);
}

/* What makes the embeddings that tokens have for each layer. */
static void place_inputs(struct wefti_weights_plan *plan, struct wefti_weights *weights) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    const struct weft_model_input_tensors *from = weft_model_inputs(plan->model);
    const uint32_t n = p->n_layers * p->unlike.layer_input;
    if (!from->table) return;
    place_rows(plan, from->table, all_of(p->unlike.n_vocab_input), &weights->input_table);
    plan->layer = 0; /* whose types it has */
    place_matrix(plan, from->proj, WEFTI_CALIB_LAYER_INPUT, whole(n, p->n_hidden),
                 &weights->input_model);
    weights->input_norm = place_norm(plan, from->norm, p->unlike.layer_input);
}

/* A predictor is one rank's: drafts and their like are not divided. */
static void place_predictor(struct wefti_weights_plan *plan, struct wefti_weights *weights) {
    const struct weft_model_predictor_tensors *from = weft_model_predictor(plan->model);
    uint32_t hidden = weft_model_params(plan->model)->n_hidden;
    if (!from) return;
    WEFT_ASSERT(plan->options->n_ranks == 1);
    weights->enorm = place_norm(plan, from->enorm, hidden);
    weights->hnorm = place_norm(plan, from->hnorm, hidden);
    place_matrix(plan, from->eh_proj, WEFTI_CALIB_QKV, whole(hidden, 2 * hidden),
                 &weights->eh_proj);
}

/* A calibrated pack that does the same as an uncalibrated one counts as one. */
static weft_err use_calibration(struct wefti_weights_plan *plan, struct weft_errmsg *why) {
    const struct weft_eng_options *options = plan->options;
    const struct weft_model_params *p = weft_model_params(plan->model);
    if (options->layer_dtypes && options->n_layer_dtypes != p->n_layers)
        return weft_err_set(why, WEFT_E_INVAL, "types for %u layers, the model has %u",
                            options->n_layer_dtypes, p->n_layers);
    if (!options->calib || options->clip == WEFT_ENG_CLIP_MINMAX) return WEFT_OK;
    if (!wefti_calib_fits(options->calib, plan->model))
        return weft_err_set(why, WEFT_E_INVAL, "the calibration is of another model");
    plan->calib_hash = (uint64_t)options->clip;
    plan->importance = wefti_calib_importance(options->calib, &plan->calib_hash);
    const struct wefti_calib_sizes sizes = wefti_calib_sizes_of(plan->model);
    plan->row_floats = wefti_memory_stride(
        weft_max_u32(weft_max_u32(p->n_hidden, sizes.o_dim),
                     weft_max_u32(sizes.q_rank, weft_max_u32(sizes.n_ffn, sizes.n_ffn_expert))));
    plan->rows_bytes = plan->row_floats * sizeof *plan->rows * WEFT_THREADS_MAX;
    plan->rows = wefti_memory_map(plan->rows_bytes); /* resident only for threads that are there */
    if (!plan->importance || !plan->rows)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for the calibration");
    return WEFT_OK;
}

/* The layer decides once, for all of its rows, what its experts compute with. */
static weft_err check_experts(const struct wefti_weights *weights, uint32_t n_experts,
                              struct weft_errmsg *why) {
    for (uint32_t i = 0; i < weights->n_layers; i++) {
        const struct wefti_weights_expert *experts = weights->layers[i].experts;
        for (uint32_t e = 1; experts && e < n_experts; e++) {
            if (experts[e].gate.kind == experts->gate.kind &&
                experts[e].up.kind == experts->up.kind &&
                experts[e].down.kind == experts->down.kind)
                continue;
            return weft_err_set(why, WEFT_E_UNSUPPORTED,
                                "the weights of experts 0 and %u of layer %u are of different "
                                "types, which is not supported",
                                e, i);
        }
    }
    return WEFT_OK;
}

/* Scratch of every thread for a panel's rows, where weights are in parts. */
static weft_err make_room_to_join(struct wefti_weights_plan *plan, struct weft_errmsg *why) {
    for (size_t i = 0; i < weft_model_n_tensors(plan->model); i++) {
        const struct weft_tensor *tensor = weft_model_tensor(plan->model, i);
        size_t bytes = tensor->parts ? weft_tensor_row_bytes(tensor) * WEFT_PANEL : 0;
        if (bytes > plan->joined_bytes) plan->joined_bytes = weft_round_up(bytes, 64);
    }
    if (plan->joined_bytes == 0) return WEFT_OK;
    plan->joined =
        wefti_memory_map(plan->joined_bytes * WEFT_THREADS_MAX); /* see use_calibration */
    if (plan->joined) return WEFT_OK;
    return weft_err_set(why, WEFT_E_NOMEM, "no memory to put weights together in");
}

/* A head's matrix, and a row. Resident only for threads that are there. */
static weft_err make_room_to_turn(struct wefti_weights_plan *plan, struct weft_errmsg *why) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    plan->turn_floats = wefti_memory_stride((size_t)p->kv_lora * p->nope_dim + p->kv_lora);
    plan->turn_bytes = plan->turn_floats * sizeof *plan->turn * WEFT_THREADS_MAX;
    plan->turn = wefti_memory_map(plan->turn_bytes);
    return plan->turn ? WEFT_OK : weft_err_set(why, WEFT_E_NOMEM, "no memory to pack in");
}

/* For a panel before columns are cut off, or for rows. */
static weft_err make_room_to_cut(struct wefti_weights_plan *plan, struct weft_errmsg *why) {
    if (plan->cut_bytes == 0) return WEFT_OK;
    plan->cut = wefti_memory_map(plan->cut_bytes * WEFT_THREADS_MAX);
    return plan->cut ? WEFT_OK : weft_err_set(why, WEFT_E_NOMEM, "no memory to pack in");
}

/* A rank keeps the keys and values of its own heads alone, so layers that share them must be divided alike, which depends
 * on the types of their last products. */
static weft_err check_shared_kv(const struct wefti_weights_plan *plan,
                                const struct wefti_weights *weights, struct weft_errmsg *why) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const uint32_t source = weft_model_kv_layer(p, i);
        const struct wefti_weights_layer *a = &weights->layers[i], *b = &weights->layers[source];
        if (a->n_heads == b->n_heads && a->first_kv_head == b->first_kv_head &&
            a->n_kv_heads == b->n_kv_heads && a->skipped_heads == b->skipped_heads)
            continue;
        return weft_err_set(
            why, WEFT_E_UNSUPPORTED,
            "layer %u reads the keys and values of layer %u, but the types of their "
            "weights divide their heads among %u workers in different ways: give "
            "each worker all of the model (--layout replica)",
            i, source, plan->options->n_ranks);
    }
    return WEFT_OK;
}

/* What a group of ranks cannot have. */
static weft_err check_ranks(const struct wefti_weights_plan *plan,
                            const struct wefti_weights *weights, struct weft_errmsg *why) {
    weft_err err = check_shared_kv(plan, weights, why);
    if (err) return err;
    if (weft_model_params(plan->model)->encoder.is_on && plan->options->n_ranks > 1)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "a model that reads texts whole is not divided among workers: give "
                            "each of them all of it (--layout replica)");
    if (!plan->uncut) return WEFT_OK;
    return weft_err_set(why, WEFT_E_UNSUPPORTED,
                        "%s cannot be divided among %u workers in the form that the file has it "
                        "in: use the source of the packed file",
                        plan->uncut->name, plan->options->n_ranks);
}

/* What of the model is this rank's, before anything is placed. */
static void take_share(struct wefti_weights *weights, const struct weft_eng_options *options,
                       const struct weft_model_params *p) {
    weights->rank = options->rank;
    weights->n_ranks = options->n_ranks;
    weights->vocab = wefti_weights_vocab_of(p->n_vocab, options->rank, options->n_ranks);
    weights->moves_groups = options->n_ranks > 1 && options->expert_profile;
}

/* What there is to know of who has which experts. */
static void note_experts(struct wefti_weights *weights, uint32_t n_experts) {
    for (uint32_t i = 0; i < weights->n_layers; i++) {
        const struct wefti_weights_layer *layer = &weights->layers[i];
        uint32_t n_own = 0;
        for (uint32_t e = 0; layer->experts && e < n_experts; e++)
            n_own += layer->experts[e].is_own;
        weights->n_own_experts = weft_max_u32(weights->n_own_experts, n_own);
        if (weights->moves_groups)
            weights->placement_hash =
                XXH64(layer->group_rank, sizeof layer->group_rank, weights->placement_hash);
    }
}

weft_err wefti_weights_plan_make(struct wefti_weights_plan *plan, const weft_model *model,
                                 const struct weft_eng_options *options,
                                 struct wefti_weights *weights, struct weft_errmsg *why) {
    const struct weft_model_params *p = weft_model_params(model);
    const struct weft_kern_table *kern;
    *plan = (struct wefti_weights_plan){
        .model = model,
        .options = options,
        .types = {.model = model, .options = options},
        .place_hash = LAYOUT_VERSION,
        .cap_items = (size_t)p->n_layers * (60 + 6 * (size_t)p->moe.n_experts) + 20,
    };
    weights->n_layers = p->n_layers;
    weights->n_vocab = p->n_vocab;
    weights->n_hidden = p->n_hidden;
    take_share(weights, options, p);
    plan->items = calloc(plan->cap_items, sizeof *plan->items);
    plan->stored = calloc(weft_model_n_tensors(model), sizeof *plan->stored);
    weights->layers = calloc(p->n_layers, sizeof *weights->layers);
    size_t n_experts = (size_t)p->n_layers * p->moe.n_experts;
    weights->experts = calloc(n_experts + 1, sizeof *weights->experts);
    if (!plan->items || !plan->stored || !weights->layers || !weights->experts)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for the list of tensors");
    weft_err err = wefti_weights_types_check_scheme(options, why);
    if (!err) err = weft_kern_select(&kern, why);
    if (err) return err;
    plan->types.bf16_of_blocks = kern->bf16_of_blocks;
    if (options->expert_profile)
        err = wefti_expert_load_read(options->expert_profile, p, &plan->expert_tokens, why);
    if (!err) err = use_calibration(plan, why);
    if (!err) err = make_room_to_join(plan, why);
    if (!err && p->kv_lora > 0) err = make_room_to_turn(plan, why);
    if (err) return err;
    for (size_t i = 0; i < weft_model_n_tensors(model); i++)
        plan->stored[i] = weft_model_tensor(model, i)->dtype;
    plan->used = plan->whole_used = WEFT_PACKED_PAGE;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        plan->layer = i;
        if (weft_model_layers(model)[i].experts)
            weights->layers[i].experts = weights->experts + (size_t)i * p->moe.n_experts;
        struct wefti_weights_layer *layer = &weights->layers[i];
        place_layer(plan, &weft_model_layers(model)[i], layer);
        weights->n_heads_max = weft_max_u32(weights->n_heads_max, layer->n_heads);
    }
    weights->final_norm = place_norm(plan, weft_model_final_norm(model), p->n_hidden);
    if (!p->encoder.is_on)
        weights->final_bias = place_bias(plan, weft_model_final_bias(model), p->n_hidden);
    if (weft_model_head(model))
        place_matrix(plan, weft_model_head(model), WEFTI_CALIB_HEAD,
                     rows_of(p->n_vocab, p->n_hidden, weights->vocab), &weights->head);
    place_embedding(plan, weights);
    place_encoder(plan, weights);
    place_inputs(plan, weights);
    place_predictor(plan, weights);
    note_experts(weights, p->moe.n_experts);
    weights->layout_hash = weights->arena_hash = plan->hash;
    uint64_t share[] = {plan->hash, options->rank, options->n_ranks, weights->placement_hash};
    if (options->n_ranks > 1) weights->arena_hash = XXH64(share, sizeof share, 0);
    weights->bytes = weft_round_up(plan->used, WEFT_PACKED_PAGE);
    weights->step_bytes = plan->step_bytes;
    err = check_experts(weights, p->moe.n_experts, why);
    if (!err) err = check_ranks(plan, weights, why);
    if (!err) err = make_room_to_cut(plan, why);
    return err ? err : wefti_weights_types_check(&plan->types, why);
}

void wefti_weights_plan_fini(struct wefti_weights_plan *plan) {
    free(plan->items);
    free(plan->stored);
    free(plan->importance);
    free(plan->expert_tokens);
    if (plan->packed) (void)munmap((void *)(uintptr_t)plan->packed, plan->packed_bytes);
    wefti_memory_unmap(plan->rows, plan->rows_bytes);
    wefti_memory_unmap(plan->joined, plan->joined_bytes * WEFT_THREADS_MAX);
    wefti_memory_unmap(plan->turn, plan->turn_bytes);
    wefti_memory_unmap(plan->cut, plan->cut_bytes * WEFT_THREADS_MAX);
}
