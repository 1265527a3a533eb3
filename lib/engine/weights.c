/* Packed weights: one arena of a layout that follows from the model and the options alone.
 *
 * The arena lies in the memfd the supervisor gives (it outlives a worker, so that a restarted one
 * maps it in milliseconds and replicas share it), or in private memory. Its first page is a header:
 *
 *   the first worker takes the file lock, sets the size, packs, writes the header, then `complete`
 *   with a release fence, and seals the memfd against every change;
 *   a worker that finds the arena incomplete takes the lock (its predecessor's died with it) and
 *   packs anew; one that finds it complete checks the header and maps it read-only.
 *
 * Packed bits are the same on every ISA, so the layout hash covers types, shapes and offsets only.
 * Whether the arena belongs to the model file is told by the file's identity (device, inode, size,
 * modification time): reading gigabytes to hash them would take longer than packing saved. Where
 * the identity differs (the file was copied or touched) the contents are hashed after all.
 *
 * A packed file (weights_file.c) has the arena ready: it is mapped as it is, and there is no memfd.
 */
#include "engine/weights_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/log.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; the C library's headers may be older than the kernel */
#endif

#define ARENA_MAGIC "WEFTPAK1"
/* Of all that packing decides and no hash sees, such as the inside of a panel: packed files of
 * another version are refused. */
#define LAYOUT_VERSION 1
enum {
    HEADER_BYTES = WEFT_PACKED_PAGE,
    HUGE_PAGE_BYTES = 2 << 20,
    TASK_BYTES = 1 << 20, /* packed at a time by one thread */
};

struct header {
    char magic[8];
    uint64_t layout_hash, file_identity, model_hash, total_bytes;
    _Atomic uint32_t complete; /* written last */
};
_Static_assert(sizeof(struct header) <= HEADER_BYTES, "the header has a page of its own");

/* --------------------------------------------------------------------------------- the plan --- */

/* What stands for a stored form in the hash of a packed file's layout: new types leave the numbers
 * of the old ones, and that of I8, which was the last. */
static uint64_t stored_number(uint32_t stored) {
    enum { NUMBER_OF_I8 = WEFT_DT_Q6_K + 1 };
    if (stored == WEFT_STORED_I8) return NUMBER_OF_I8;
    return stored < NUMBER_OF_I8 ? stored : stored + 1;
}

/* `stored`: what a packed file calls the form. Both hashes cover the layout; that of the run also
 * which kernels read it, which a packed file leaves open. */
static void add_item(struct wefti_plan *plan, const struct wefti_item *item, uint32_t stored,
                     size_t bytes) {
    WEFT_ASSERT(plan->n_items < plan->cap_items);
    struct wefti_item *slot = &plan->items[plan->n_items++];
    *slot = *item;
    slot->offset = plan->used;
    plan->used += wefti_round_up(bytes, 64);
    if (item->form != WEFTI_FORM_RAW) plan->step_bytes += bytes;
    uint64_t facts[5] = {(uint64_t)item->form, (uint64_t)item->kind, item->n, item->k,
                         slot->offset};
    plan->hash = XXH64(facts, sizeof facts, plan->hash);
    facts[1] = stored_number(stored);
    plan->place_hash = XXH64(facts, sizeof facts, plan->place_hash);
    plan->stored[wefti_plan_tensor_idx(plan, item->src)] = stored;
}

/* How a weight is stored: the kinds that read it, with f32 activations and with the fastest. */
struct storage {
    enum weft_gemm_kind exact, fast;
};

/* Of enum weft_dtype or WEFT_STORED_I8. */
static struct storage storage_of(uint32_t stored) {
    static const struct storage storages[WEFT_STORED_I8 + 1] = {
        [WEFT_DT_F32] = {WEFT_GEMM_F32, WEFT_GEMM_F32},
        [WEFT_DT_F16] = {WEFT_GEMM_F16_F32, WEFT_GEMM_F16_F32},
        [WEFT_DT_BF16] = {WEFT_GEMM_BF16_F32, WEFT_GEMM_BF16},
        [WEFT_DT_Q8_0] = {WEFT_GEMM_Q8_F32, WEFT_GEMM_Q8},
        [WEFT_DT_Q4_0] = {WEFT_GEMM_Q4_0_F32, WEFT_GEMM_Q4_0},
        [WEFT_DT_Q4_1] = {WEFT_GEMM_Q4_1_F32, WEFT_GEMM_Q4_1},
        [WEFT_DT_Q4_K] = {WEFT_GEMM_Q4_K_F32, WEFT_GEMM_Q4_K},
        [WEFT_DT_Q5_K] = {WEFT_GEMM_Q5_K_F32, WEFT_GEMM_Q5_K},
        [WEFT_DT_Q6_K] = {WEFT_GEMM_Q6_K_F32, WEFT_GEMM_Q6_K},
        [WEFT_DT_Q2_K] = {WEFT_GEMM_Q2_K_F32, WEFT_GEMM_Q2_K},
        [WEFT_DT_Q3_K] = {WEFT_GEMM_Q3_K_F32, WEFT_GEMM_Q3_K},
        [WEFT_DT_Q5_1] = {WEFT_GEMM_Q5_1_F32, WEFT_GEMM_Q5_1},
        [WEFT_DT_Q5_0] = {WEFT_GEMM_Q5_0_F32, WEFT_GEMM_Q5_0},
        [WEFT_DT_IQ4_NL] = {WEFT_GEMM_Q4_NL_F32, WEFT_GEMM_Q4_NL},
        [WEFT_DT_F8_E4M3] = {WEFT_GEMM_F8_F32, WEFT_GEMM_F8_F32},
        [WEFT_DT_Q4_Z] = {WEFT_GEMM_Q4_Z_F32, WEFT_GEMM_Q4_Z},
        [WEFT_DT_NF4] = {WEFT_GEMM_NF4_F32, WEFT_GEMM_NF4_F32},
        [WEFT_DT_Q4_G] = {WEFT_GEMM_Q4_G_F32, WEFT_GEMM_Q4_G_F32},
        [WEFT_STORED_I8] = {WEFT_GEMM_I8_F32, WEFT_GEMM_I8},
    };
    WEFT_ASSERT(stored <= WEFT_STORED_I8);
    return storages[stored];
}

/* 8 bits of a float weight. */
static uint32_t as_8_bits(const struct wefti_plan *plan, const struct weft_tensor *tensor) {
    if (plan->options->scheme != WEFT_ENG_SCHEME_GROUP) return WEFT_STORED_I8;
    if (tensor->dims[1] % weft_kern_group(WEFT_GEMM_Q8) == 0) return WEFT_DT_Q8_0;
    if (!weft_model_packed(plan->model))
        weft_warn("tensor %s gets one scale per output feature: its %" PRIu64
                  " columns are not a multiple of 32",
                  tensor->name, tensor->dims[1]);
    return WEFT_STORED_I8;
}

/* 4 bits of one, but 8 of the head: every token depends on it. */
static uint32_t as_4_bits(const struct wefti_plan *plan, const struct weft_tensor *tensor) {
    if (tensor == weft_model_head(plan->model)) return as_8_bits(plan, tensor);
    if (tensor->dims[1] % weft_kern_group(WEFT_GEMM_Q4_1) == 0)
        return plan->options->scheme == WEFT_ENG_SCHEME_GROUP ? WEFT_DT_Q4_0 : WEFT_DT_Q4_1;
    if (!weft_model_packed(plan->model))
        weft_warn("tensor %s gets 8 bits: its %" PRIu64 " columns are not a multiple of 32",
                  tensor->name, tensor->dims[1]);
    return WEFT_STORED_I8;
}

/* As the file has it, or what `dtype` says. What is quantised already is not quantised again. */
static uint32_t choose_form(struct wefti_plan *plan, const struct weft_tensor *tensor,
                            enum weft_eng_dtype dtype) {
    bool quantised = tensor->dtype >= WEFT_DT_Q8_0;
    switch (dtype) {
    case WEFT_ENG_DT_F32:
        return WEFT_DT_F32;
    case WEFT_ENG_DT_F16:
        return WEFT_DT_F16;
    case WEFT_ENG_DT_BF16:
        return WEFT_DT_BF16;
    case WEFT_ENG_DT_Q8:
    case WEFT_ENG_DT_Q4:
        plan->n_kept += quantised;
        if (quantised) return tensor->dtype;
        return dtype == WEFT_ENG_DT_Q8 ? as_8_bits(plan, tensor) : as_4_bits(plan, tensor);
    case WEFT_ENG_DT_AUTO:
        break;
    }
    return tensor->dtype;
}

/* A packed file has decided. Another --dtype than it was packed with is refused (by make_plan)
 * where it would have come to another form. */
static uint32_t form_of(struct wefti_plan *plan, const struct weft_tensor *tensor,
                        enum wefti_input input) {
    bool by_layer = plan->options->layer_dtypes && input != WEFTI_IN_HEAD;
    if (!weft_model_packed(plan->model))
        return choose_form(plan, tensor,
                           by_layer ? plan->options->layer_dtypes[plan->layer]
                                    : plan->options->dtype);
    uint32_t form = weft_model_stored(plan->model, tensor);
    plan->dtype_misfits |= plan->options->dtype != WEFT_ENG_DT_AUTO &&
                           choose_form(plan, tensor, plan->options->dtype) != form;
    return form;
}

static bool dtype_takes(enum weft_eng_dtype dtype, enum weft_eng_scheme scheme) {
    switch (scheme) {
    case WEFT_ENG_SCHEME_AUTO:
        return true;
    case WEFT_ENG_SCHEME_CHANNEL:
        return dtype == WEFT_ENG_DT_Q8;
    case WEFT_ENG_SCHEME_GROUP:
        return dtype == WEFT_ENG_DT_Q8 || dtype == WEFT_ENG_DT_Q4;
    case WEFT_ENG_SCHEME_GROUP_ASYM:
        return dtype == WEFT_ENG_DT_Q4;
    }
    return false;
}

static weft_err check_scheme(const struct weft_eng_options *options, struct weft_errmsg *why) {
    static const char *const schemes[] = {"auto", "channel", "group", "group-asym"};
    static const char *const takers[] = {"", "q8", "q8 and q4", "q4"};
    bool taken = dtype_takes(options->dtype, options->scheme);
    for (uint32_t i = 0; i < options->n_layer_dtypes; i++)
        taken |= dtype_takes(options->layer_dtypes[i], options->scheme);
    if (taken) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "the quantisation scheme %s is for weights of dtype %s",
                        schemes[options->scheme], takers[options->scheme]);
}

/* The kernel of a stored weight. bf16 and int8 activations are for weights of such a type; where
 * they are asked for, other weights run with f32, which is more exact. */
static enum weft_gemm_kind kind_of(struct wefti_plan *plan, struct storage storage) {
    enum weft_eng_act act = plan->options->activations;
    enum weft_kern_act own = weft_kern_act_of(storage.fast);
    bool is_int8 = own != WEFT_ACT_F32 && own != WEFT_ACT_BF16;
    bool met = act == WEFT_ENG_ACT_AUTO || act == WEFT_ENG_ACT_F32 ||
               (act == WEFT_ENG_ACT_BF16 && own == WEFT_ACT_BF16) ||
               (act == WEFT_ENG_ACT_INT8 && is_int8);
    plan->asked_kind_met |= met;
    return met && act != WEFT_ENG_ACT_F32 ? storage.fast : storage.exact;
}

static enum weft_kern_src src_of(enum weft_dtype dtype) {
    static const enum weft_kern_src sources[WEFT_DT_COUNT] = {
        [WEFT_DT_F32] = WEFT_SRC_F32,         [WEFT_DT_F16] = WEFT_SRC_F16,
        [WEFT_DT_BF16] = WEFT_SRC_BF16,       [WEFT_DT_Q8_0] = WEFT_SRC_Q8_0,
        [WEFT_DT_Q4_0] = WEFT_SRC_Q4_0,       [WEFT_DT_Q4_1] = WEFT_SRC_Q4_1,
        [WEFT_DT_Q4_K] = WEFT_SRC_Q4_K,       [WEFT_DT_Q5_K] = WEFT_SRC_Q5_K,
        [WEFT_DT_Q6_K] = WEFT_SRC_Q6_K,       [WEFT_DT_Q2_K] = WEFT_SRC_Q2_K,
        [WEFT_DT_Q3_K] = WEFT_SRC_Q3_K,       [WEFT_DT_Q5_1] = WEFT_SRC_Q5_1,
        [WEFT_DT_Q5_0] = WEFT_SRC_Q5_0,       [WEFT_DT_IQ4_NL] = WEFT_SRC_IQ4_NL,
        [WEFT_DT_F8_E4M3] = WEFT_SRC_F8_E4M3, [WEFT_DT_Q4_Z] = WEFT_SRC_Q4_Z,
        [WEFT_DT_NF4] = WEFT_SRC_NF4,         [WEFT_DT_Q4_G] = WEFT_SRC_Q4_G};
    WEFT_ASSERT(dtype < WEFT_DT_COUNT);
    return sources[dtype];
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

/* Eight segments in whole units of `unit` columns and of the packing group (design 2.1). */
static void split_segments(struct wefti_matrix *matrix, uint32_t unit) {
    unit = least_common_multiple(unit, weft_kern_group(matrix->kind));
    WEFT_ASSERT(unit > 0);
    uint32_t n_units = (matrix->k + unit - 1) / unit;
    weft_kern_segs_split(&matrix->segs, n_units, unit);
    for (uint32_t s = 0; s < matrix->segs.n_segs; s++) {
        matrix->segs.seg_end[s] = wefti_min_u32(matrix->segs.seg_end[s], matrix->k);
    }
}

/* What reads the weights of a matrix: those of routers stay as the file has them and meet f32, for
 * the experts that they choose are to be the model's. */
static enum weft_gemm_kind choose_kind(struct wefti_plan *plan, const struct weft_tensor *tensor,
                                       enum wefti_input input, uint32_t *form_out) {
    bool is_router = input == WEFTI_IN_ROUTER;
    *form_out = is_router ? (uint32_t)tensor->dtype : form_of(plan, tensor, input);
    struct storage storage = storage_of(*form_out);
    return is_router ? storage.exact : kind_of(plan, storage);
}

/* Shapes were checked when the model was opened. `split_unit`: 0 for one segment. */
static void place_matrix(struct wefti_plan *plan, const struct weft_tensor *tensor,
                         enum wefti_input input, uint32_t n, uint32_t k, uint32_t split_unit,
                         struct wefti_matrix *out) {
    WEFT_ASSERT(tensor->n_dims == 2 && tensor->dims[0] == n && tensor->dims[1] == k);
    uint32_t form;
    enum weft_gemm_kind kind = choose_kind(plan, tensor, input, &form);
    size_t panel_bytes = weft_kern_panel_bytes(kind, k);
    *out = (struct wefti_matrix){
        .kind = kind,
        .n = n,
        .k = k,
        .n_panels = (n + WEFT_PANEL - 1) / WEFT_PANEL,
        .offset = plan->used,
        .panel_bytes = panel_bytes,
    };
    if (split_unit) {
        split_segments(out, split_unit);
    } else {
        weft_kern_segs_one(&out->segs, k);
    }
    struct wefti_item item = {
        .src = tensor, .form = WEFTI_FORM_PANELS, .kind = kind, .n = n, .k = k};
    if (plan->importance && input <= WEFTI_IN_HEAD)
        item.importance =
            plan->importance + wefti_calib_offset(plan->options->calib, plan->layer, input);
    uint32_t panels_per_task = (uint32_t)((TASK_BYTES + panel_bytes - 1) / panel_bytes);
    item.rows_per_task = panels_per_task * WEFT_PANEL;
    item.n_tasks = (n + item.rows_per_task - 1) / item.rows_per_task;
    add_item(plan, &item, form, weft_kern_packed_bytes(kind, n, k));
}

static size_t place_vector(struct wefti_plan *plan, const struct weft_tensor *tensor, uint32_t k,
                           bool plus_one) {
    size_t offset = plan->used;
    struct wefti_item item = {.src = tensor,
                              .form = WEFTI_FORM_VECTOR,
                              .n = 1,
                              .k = k,
                              .n_tasks = 1,
                              .plus_one = plus_one};
    WEFT_ASSERT(tensor->dims[tensor->n_dims - 1] == k); /* perhaps a matrix of one row */
    add_item(plan, &item, WEFT_DT_F32, (size_t)k * sizeof(float));
    return offset;
}

/* 0, where the header lies, if the model has none. */
static size_t place_bias(struct wefti_plan *plan, const struct weft_tensor *tensor, uint32_t k) {
    return tensor ? place_vector(plan, tensor, k, false) : 0;
}

static size_t place_norm(struct wefti_plan *plan, const struct weft_tensor *tensor, uint32_t k) {
    if (!tensor) return 0;
    return place_vector(plan, tensor, k, weft_model_params(plan->model)->norm_plus_one);
}

/* An expert stays whole however many workers there are, so nothing of it is split. */
static void place_experts(struct wefti_plan *plan, const struct weft_model_layer *from,
                          struct wefti_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    uint32_t n = p->moe.n_experts, ffn = p->moe.n_ffn, hidden = p->n_hidden;
    WEFT_ASSERT(n > 0);
    place_matrix(plan, from->router, WEFTI_IN_ROUTER, n, hidden, 0, &to->router);
    to->score_bias = place_bias(plan, from->score_bias, n);
    to->shared_gate = place_bias(plan, from->shared_gate, hidden);
    size_t step_bytes = plan->step_bytes;
    for (uint32_t e = 0; e < n; e++) {
        place_matrix(plan, from->experts[e].gate, WEFTI_IN_FFN, ffn, hidden, 0,
                     &to->experts[e].gate);
        place_matrix(plan, from->experts[e].up, WEFTI_IN_FFN, ffn, hidden, 0, &to->experts[e].up);
        place_matrix(plan, from->experts[e].down, WEFTI_IN_DOWN, hidden, ffn, 0,
                     &to->experts[e].down);
    }
    plan->step_bytes = step_bytes + (plan->step_bytes - step_bytes) / n * p->moe.n_used;
}

static void place_attention(struct wefti_plan *plan, const struct weft_model_layer *from,
                            struct wefti_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    uint32_t q_dim = p->n_heads * p->head_dim, kv_dim = p->n_kv_heads * p->head_dim;
    uint32_t hidden = p->n_hidden;
    place_matrix(plan, from->wq, WEFTI_IN_QKV, q_dim, hidden, 0, &to->q);
    place_matrix(plan, from->wk, WEFTI_IN_QKV, kv_dim, hidden, 0, &to->k);
    place_matrix(plan, from->wv, WEFTI_IN_QKV, kv_dim, hidden, 0, &to->v);
    to->bq = place_bias(plan, from->bq, q_dim);
    to->bk = place_bias(plan, from->bk, kv_dim);
    to->bv = place_bias(plan, from->bv, kv_dim);
    to->q_norm = place_norm(plan, from->q_norm, p->qk_norm_all ? q_dim : p->head_dim);
    to->k_norm = place_norm(plan, from->k_norm, p->qk_norm_all ? kv_dim : p->head_dim);
    place_matrix(plan, from->wo, WEFTI_IN_O, hidden, q_dim, p->head_dim, &to->o);
}

/* How heads' matrices are stored that are turned, of a tensor stored as `stored`. Blocks of a
 * file's own lie along what are rows now, so such weights become f32, the values they stand for;
 * what
 * --dtype quantises is quantised behind the turn. */
static uint32_t turned_form(uint32_t stored, const struct weft_tensor *tensor, uint32_t k) {
    bool quantised = tensor->dtype >= WEFT_DT_Q8_0;
    if (quantised && stored == tensor->dtype) return WEFT_DT_F32;
    if (stored < WEFT_DT_Q8_0) return stored;
    return k % weft_kern_group(storage_of(stored).exact) == 0 ? stored : WEFT_STORED_I8;
}

/* Heads' matrices of N x K from row `begin` of the tensor on, every `step` rows. */
static void place_heads(struct wefti_plan *plan, const struct weft_tensor *tensor, uint32_t begin,
                        uint32_t step, uint32_t n, uint32_t k, bool turned,
                        struct wefti_heads *out) {
    uint32_t n_heads = weft_model_params(plan->model)->n_heads;
    WEFT_ASSERT(tensor->n_dims == 2 && tensor->dims[0] == (uint64_t)n_heads * step);
    WEFT_ASSERT(tensor->dims[1] == (turned ? n : k) && begin + (turned ? k : n) <= step);
    uint32_t form = form_of(plan, tensor, WEFTI_IN_QKV);
    if (turned) form = turned_form(form, tensor, k);
    enum weft_gemm_kind kind = kind_of(plan, storage_of(form));
    *out = (struct wefti_heads){.head_bytes = weft_kern_packed_bytes(kind, n, k)};
    out->first = (struct wefti_matrix){
        .kind = kind,
        .n = n,
        .k = k,
        .n_panels = (n + WEFT_PANEL - 1) / WEFT_PANEL,
        .offset = plan->used,
        .panel_bytes = weft_kern_panel_bytes(kind, k),
    };
    weft_kern_segs_one(&out->first.segs, k);
    const struct wefti_item item = {.src = tensor,
                                    .form = WEFTI_FORM_HEADS,
                                    .kind = kind,
                                    .n = n,
                                    .k = k,
                                    .n_tasks = n_heads,
                                    .rows_per_task = n,
                                    .row_begin = begin,
                                    .row_step = step,
                                    .turned = turned};
    add_item(plan, &item, form, n_heads * out->head_bytes);
}

/* All of latent attention but the norms around it. */
static void place_latent(struct wefti_plan *plan, const struct weft_model_layer *from,
                         struct wefti_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    uint32_t q_dim = p->n_heads * (p->nope_dim + p->rope_dim), step = p->nope_dim + p->v_dim;
    if (from->wq_a) {
        place_matrix(plan, from->wq_a, WEFTI_IN_QKV, p->q_lora, p->n_hidden, 0, &to->q_a);
        to->q_a_norm = place_norm(plan, from->q_a_norm, p->q_lora);
    }
    place_matrix(plan, from->wq, WEFTI_IN_QKV, q_dim, from->wq_a ? p->q_lora : p->n_hidden, 0,
                 &to->q);
    place_matrix(plan, from->wk, WEFTI_IN_QKV, p->head_dim, p->n_hidden, 0, &to->k);
    to->latent_norm = place_norm(plan, from->latent_norm, p->kv_lora);
    if (from->w_kv_b) {
        place_heads(plan, from->w_kv_b, 0, step, p->kv_lora, p->nope_dim, true, &to->up_k);
        place_heads(plan, from->w_kv_b, p->nope_dim, step, p->v_dim, p->kv_lora, false, &to->up_v);
    } else {
        place_heads(plan, from->w_k_b, 0, p->kv_lora, p->kv_lora, p->nope_dim, false, &to->up_k);
        place_heads(plan, from->w_v_b, 0, p->v_dim, p->v_dim, p->kv_lora, false, &to->up_v);
    }
    place_matrix(plan, from->wo, WEFTI_IN_O, p->n_hidden, p->n_heads * p->v_dim, p->v_dim, &to->o);
}

static void place_layer(struct wefti_plan *plan, const struct weft_model_layer *from,
                        struct wefti_layer *to) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    uint32_t hidden = p->n_hidden, ffn = p->n_ffn;
    to->attn_norm = place_norm(plan, from->attn_norm, hidden);
    if (p->kv_lora > 0)
        place_latent(plan, from, to);
    else
        place_attention(plan, from, to);
    to->post_attn_norm = place_norm(plan, from->post_attn_norm, hidden);
    to->ffn_norm = place_norm(plan, from->ffn_norm, hidden);
    if (from->experts) {
        ffn = p->moe.n_ffn_shared;
        place_experts(plan, from, to);
    }
    if (from->w_gate) {
        place_matrix(plan, from->w_gate, WEFTI_IN_FFN, ffn, hidden, 0, &to->gate);
        place_matrix(plan, from->w_up, WEFTI_IN_FFN, ffn, hidden, 0, &to->up);
        place_matrix(plan, from->w_down, WEFTI_IN_DOWN, hidden, ffn, 2, &to->down);
    }
    to->post_ffn_norm = place_norm(plan, from->post_ffn_norm, hidden);
}

static void place_embedding(struct wefti_plan *plan, struct wefti_weights *weights) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    weights->tied = p->tied;
    if (p->tied) return;
    const struct weft_tensor *table = weft_model_embedding(plan->model);
    WEFT_ASSERT(table->n_dims == 2 && table->dims[0] == p->n_vocab);
    weights->embed_src = src_of(table->dtype);
    weights->embed_offset = plan->used;
    weights->embed_row_bytes = table->bytes / p->n_vocab;
    uint32_t rows = (uint32_t)(TASK_BYTES / weights->embed_row_bytes) + 1;
    struct wefti_item item = {.src = table,
                              .form = WEFTI_FORM_RAW,
                              .kind = (enum weft_gemm_kind)table->dtype,
                              .n = p->n_vocab,
                              .k = p->n_hidden,
                              .rows_per_task = rows};
    item.n_tasks = (p->n_vocab + rows - 1) / rows;
    add_item(plan, &item, table->dtype, table->bytes);
}

/* What the options ask for and this model does not have. */
static weft_err check_plan(const struct wefti_plan *plan, struct weft_errmsg *why) {
    const struct weft_packed *packed = weft_model_packed(plan->model);
    const char *dtype = wefti_dtype_name(plan->options->dtype);
    bool scheme_asked = plan->options->scheme != WEFT_ENG_SCHEME_AUTO;
    if (plan->dtype_misfits && scheme_asked)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the model is packed by another quantisation scheme: leave "
                            "--quant-scheme out, or pack the model anew");
    if (plan->dtype_misfits && strcmp(packed->packed_as, dtype) != 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the model is packed as %s, which --dtype %s cannot change: leave it "
                            "out, or pack the model anew",
                            packed->packed_as, dtype);
    if (plan->n_kept > 0 && !packed)
        weft_warn("%u weights are quantised already: they stay as the file has them", plan->n_kept);
    if (plan->asked_kind_met) return WEFT_OK;
    bool bf16 = plan->options->activations == WEFT_ENG_ACT_BF16;
    return weft_err_set(why, WEFT_E_INVAL, "%s activations need %s weights, the model has none",
                        bf16 ? "bf16" : "int8", bf16 ? "bf16" : "quantised");
}

/* What an uncalibrated pack does anyway is not told apart from one. */
static weft_err take_calibration(struct wefti_plan *plan, struct weft_errmsg *why) {
    const struct weft_eng_options *options = plan->options;
    const struct weft_model_params *p = weft_model_params(plan->model);
    if (options->layer_dtypes && options->n_layer_dtypes != p->n_layers)
        return weft_err_set(why, WEFT_E_INVAL, "types for %u layers, the model has %u",
                            options->n_layer_dtypes, p->n_layers);
    if (!options->calib || options->clip == WEFT_ENG_CLIP_MINMAX) return WEFT_OK;
    if (!wefti_calib_fits(options->calib, p))
        return weft_err_set(why, WEFT_E_INVAL, "the calibration is of another model");
    plan->calib_hash = (uint64_t)options->clip;
    plan->importance = wefti_calib_importance(options->calib, &plan->calib_hash);
    plan->row_floats =
        wefti_stride(wefti_max_u32(p->n_hidden, wefti_max_u32(p->n_heads * p->head_dim, p->n_ffn)));
    plan->rows_bytes = plan->row_floats * sizeof *plan->rows * WEFT_THREADS_MAX;
    plan->rows = wefti_map(plan->rows_bytes); /* resident only for threads that are there */
    if (!plan->importance || !plan->rows)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for the calibration");
    return WEFT_OK;
}

/* What the experts of a layer compute with is decided by the layer, once for all of its rows. */
static weft_err check_experts(const struct wefti_weights *weights, uint32_t n_experts,
                              struct weft_errmsg *why) {
    for (uint32_t i = 0; i < weights->n_layers; i++) {
        const struct wefti_expert *experts = weights->layers[i].experts;
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
static weft_err take_joined(struct wefti_plan *plan, struct weft_errmsg *why) {
    for (size_t i = 0; i < weft_model_n_tensors(plan->model); i++) {
        const struct weft_tensor *tensor = weft_model_tensor(plan->model, i);
        size_t bytes = tensor->parts ? weft_tensor_row_bytes(tensor) * WEFT_PANEL : 0;
        if (bytes > plan->joined_bytes) plan->joined_bytes = wefti_round_up(bytes, 64);
    }
    if (plan->joined_bytes == 0) return WEFT_OK;
    plan->joined = wefti_map(plan->joined_bytes * WEFT_THREADS_MAX); /* see take_calibration */
    if (plan->joined) return WEFT_OK;
    return weft_err_set(why, WEFT_E_NOMEM, "no memory to put weights together in");
}

/* A head's matrix, and a row. Resident only for threads that are there. */
static weft_err make_room_to_turn(struct wefti_plan *plan, struct weft_errmsg *why) {
    const struct weft_model_params *p = weft_model_params(plan->model);
    plan->turn_floats = wefti_stride((size_t)p->kv_lora * p->nope_dim + p->kv_lora);
    plan->turn_bytes = plan->turn_floats * sizeof *plan->turn * WEFT_THREADS_MAX;
    plan->turn = wefti_map(plan->turn_bytes);
    return plan->turn ? WEFT_OK : weft_err_set(why, WEFT_E_NOMEM, "no memory to pack in");
}

weft_err wefti_plan_make(struct wefti_plan *plan, const weft_model *model,
                         const struct weft_eng_options *options, struct wefti_weights *weights,
                         struct weft_errmsg *why) {
    const struct weft_model_params *p = weft_model_params(model);
    *plan = (struct wefti_plan){
        .model = model,
        .options = options,
        .place_hash = LAYOUT_VERSION,
        .cap_items = (size_t)p->n_layers * (23 + 3 * (size_t)p->moe.n_experts) + 3,
    };
    weights->n_layers = p->n_layers;
    weights->n_vocab = p->n_vocab;
    weights->n_hidden = p->n_hidden;
    plan->items = calloc(plan->cap_items, sizeof *plan->items);
    plan->stored = calloc(weft_model_n_tensors(model), sizeof *plan->stored);
    weights->layers = calloc(p->n_layers, sizeof *weights->layers);
    size_t n_experts = (size_t)p->n_layers * p->moe.n_experts;
    weights->experts = calloc(n_experts + 1, sizeof *weights->experts);
    if (!plan->items || !plan->stored || !weights->layers || !weights->experts)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for the list of tensors");
    weft_err err = check_scheme(options, why);
    if (!err) err = take_calibration(plan, why);
    if (!err) err = take_joined(plan, why);
    if (!err && p->kv_lora > 0) err = make_room_to_turn(plan, why);
    if (err) return err;
    for (size_t i = 0; i < weft_model_n_tensors(model); i++)
        plan->stored[i] = weft_model_tensor(model, i)->dtype;
    plan->used = HEADER_BYTES;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        plan->layer = i;
        if (weft_model_layers(model)[i].experts)
            weights->layers[i].experts = weights->experts + (size_t)i * p->moe.n_experts;
        place_layer(plan, &weft_model_layers(model)[i], &weights->layers[i]);
    }
    weights->final_norm = place_norm(plan, weft_model_final_norm(model), p->n_hidden);
    place_matrix(plan, weft_model_head(model), WEFTI_IN_HEAD, p->n_vocab, p->n_hidden, 0,
                 &weights->head);
    place_embedding(plan, weights);
    weights->layout_hash = plan->hash;
    weights->bytes = wefti_round_up(plan->used, HEADER_BYTES);
    weights->step_bytes = plan->step_bytes;
    err = check_experts(weights, p->moe.n_experts, why);
    return err ? err : check_plan(plan, why);
}

void wefti_plan_fini(struct wefti_plan *plan) {
    free(plan->items);
    free(plan->stored);
    free(plan->importance);
    wefti_unmap(plan->rows, plan->rows_bytes);
    wefti_unmap(plan->joined, plan->joined_bytes * WEFT_THREADS_MAX);
    wefti_unmap(plan->turn, plan->turn_bytes);
}

/* ---------------------------------------------------------------------------------- packing --- */

struct packing {
    const struct wefti_plan *plan;
    struct wefti_pool *pool;
    uint8_t *base;     /* packs in place; or */
    wefti_put_fn *put; /* has parts put elsewhere */
    void *put_ctx;
    uint32_t n_tasks;
    uint64_t model_hash;
};

/* Rows begin..end of an item are its part `part`. */
static void part_rows(const struct wefti_item *item, uint32_t part, uint32_t *begin_out,
                      uint32_t *end_out) {
    *begin_out = part * item->rows_per_task;
    *end_out = *begin_out + wefti_min_u32(item->rows_per_task, item->n - *begin_out);
}

size_t wefti_part_bytes_max(const struct wefti_item *item) {
    if (item->form == WEFTI_FORM_VECTOR) return (size_t)item->k * sizeof(float);
    uint32_t rows = wefti_min_u32(item->rows_per_task, item->n);
    if (item->form != WEFTI_FORM_RAW) return weft_kern_packed_bytes(item->kind, rows, item->k);
    return item->src->bytes / item->n * rows;
}

size_t wefti_part_offset(const struct wefti_item *item, uint32_t part) {
    if (item->form == WEFTI_FORM_VECTOR) return item->offset;
    size_t row = (size_t)part * item->rows_per_task;
    if (item->form == WEFTI_FORM_HEADS)
        return item->offset + part * weft_kern_packed_bytes(item->kind, item->n, item->k);
    if (item->form == WEFTI_FORM_PANELS)
        return item->offset + row / WEFT_PANEL * weft_kern_panel_bytes(item->kind, item->k);
    return item->offset + row * (item->src->bytes / item->n);
}

size_t wefti_item_source_bytes(const struct wefti_item *item) {
    if (item->form != WEFTI_FORM_HEADS) return item->src->bytes;
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
static size_t pack_rows(const struct wefti_plan *plan, const struct wefti_item *item,
                        const void *rows, uint32_t n, uint32_t thread_idx, uint8_t *to) {
    struct weft_kern_calib calib = {.clip = clip_of(plan->options->clip),
                                    .importance = item->importance,
                                    .row = plan->rows + thread_idx * plan->row_floats};
    weft_kern_pack_calibrated(item->kind, src_of(item->src->dtype), rows, n, item->k, 0, n,
                              item->importance ? &calib : NULL, to);
    return weft_kern_packed_bytes(item->kind, n, item->k);
}

/* Rows that are put together from parts first, a panel's at a time. */
static size_t pack_joined(const struct wefti_plan *plan, const struct wefti_item *item,
                          uint32_t begin, uint32_t end, uint32_t thread_idx, uint8_t *to) {
    uint8_t *rows = plan->joined + thread_idx * plan->joined_bytes;
    size_t done = 0;
    WEFT_ASSERT(item->form != WEFTI_FORM_RAW && plan->joined != NULL);
    for (uint32_t n0 = begin; n0 < end; n0 += WEFT_PANEL) {
        uint32_t n = wefti_min_u32(WEFT_PANEL, end - n0);
        weft_tensor_rows(item->src, n0, n, rows);
        done += pack_rows(plan, item, rows, n, thread_idx, to + done);
    }
    return done;
}

/* One row of an item's tensor as it lies in a file; `row` may hold it. */
static const void *source_row(const struct wefti_item *item, size_t idx, void *row) {
    const struct weft_tensor *src = item->src;
    if (!src->parts) return (const uint8_t *)src->data + idx * (src->bytes / src->dims[0]);
    weft_tensor_rows(src, idx, 1, row);
    return row;
}

/* The matrix of one head. */
static size_t pack_head(const struct wefti_plan *plan, const struct wefti_item *item, uint32_t head,
                        uint32_t thread_idx, uint8_t *to) {
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
        weft_kern_read_row(src_of(item->src->dtype), source, item->n, row);
        for (uint32_t n = 0; n < item->n; n++)
            turned[(size_t)n * item->k + k] = row[n];
    }
    weft_kern_pack(item->kind, WEFT_SRC_F32, turned, item->n, item->k, 0, item->n, to);
    return weft_kern_packed_bytes(item->kind, item->n, item->k);
}

size_t wefti_pack_part(const struct wefti_plan *plan, const struct wefti_item *item, uint32_t part,
                       uint32_t thread_idx, uint8_t *to) {
    const struct weft_tensor *src = item->src;
    if (item->form == WEFTI_FORM_VECTOR) {
        float *out = (float *)(void *)to;
        weft_tensor_row_f32(src, 0, out);
        for (uint32_t i = 0; i < item->k && item->plus_one; i++)
            out[i] += 1;
        return (size_t)item->k * sizeof(float);
    }
    if (item->form == WEFTI_FORM_HEADS) return pack_head(plan, item, part, thread_idx, to);
    uint32_t begin, end;
    part_rows(item, part, &begin, &end);
    if (src->parts) return pack_joined(plan, item, begin, end, thread_idx, to);
    size_t row_bytes = src->bytes / item->n;
    const uint8_t *rows = (const uint8_t *)src->data + begin * row_bytes;
    if (item->form == WEFTI_FORM_PANELS)
        return pack_rows(plan, item, rows, end - begin, thread_idx, to);
    memcpy(to, rows, (end - begin) * row_bytes);
    return (end - begin) * row_bytes;
}

/* Task 0 hashes the file (one stream, as long as a share of the packing); the others follow the
 * items. Tasks ascend per thread, so each keeps its place in the list. */
static void pack_thread(void *ctx, uint32_t thread_idx) {
    struct packing *packing = ctx;
    const struct wefti_item *item = packing->plan->items;
    uint32_t item_begin = 1;
    for (;;) {
        uint32_t task = wefti_pool_take(packing->pool, thread_idx);
        if (task >= packing->n_tasks) return;
        if (task == 0) {
            packing->model_hash = weft_model_hash(packing->plan->model);
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
            (void)wefti_pack_part(packing->plan, item, part, thread_idx,
                                  packing->base + wefti_part_offset(item, part));
    }
}

/* What weights come of is a model's contents, or its identity, and the calibration. */
static uint64_t calibrated_hash(const struct wefti_plan *plan, uint64_t hash) {
    return plan->importance ? XXH64(&hash, sizeof hash, plan->calib_hash) : hash;
}

static uint64_t run_packing(struct packing *packing) {
    packing->n_tasks = 1;
    for (size_t i = 0; i < packing->plan->n_items; i++) {
        packing->n_tasks += packing->plan->items[i].n_tasks;
    }
    wefti_pool_run(packing->pool, pack_thread, packing);
    return calibrated_hash(packing->plan, packing->model_hash);
}

uint64_t wefti_pack_parts(const struct wefti_plan *plan, struct wefti_pool *pool, wefti_put_fn *put,
                          void *ctx) {
    struct packing packing = {.plan = plan, .pool = pool, .put = put, .put_ctx = ctx};
    return run_packing(&packing);
}

static void pack_all(const struct wefti_plan *plan, struct wefti_pool *pool, uint64_t file_identity,
                     struct wefti_weights *weights, uint8_t *base) {
    struct packing packing = {.plan = plan, .pool = pool, .base = base};
    weights->model_hash = run_packing(&packing);
    struct header *header = (struct header *)(void *)base;
    memcpy(header->magic, ARENA_MAGIC, sizeof header->magic);
    header->layout_hash = weights->layout_hash;
    header->file_identity = file_identity;
    header->model_hash = weights->model_hash;
    header->total_bytes = weights->bytes;
    atomic_store_explicit(&header->complete, 1, memory_order_release);
}

/* ------------------------------------------------------------------------------ the identity ---
 */

static uint64_t stat_hash(const char *name, const struct stat *st) {
    uint64_t facts[5] = {(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size,
                         (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec};
    return XXH64(name, strlen(name), XXH64(facts, sizeof facts, 0));
}

static bool names_weights(const char *name) {
    const char *dot = strrchr(name, '.');
    return strcmp(name, "config.json") == 0 || (dot && strcmp(dot, ".safetensors") == 0);
}

/* A sum, so that the order of the entries does not matter. 0: cannot be told. */
static uint64_t folder_identity(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return 0;
    uint64_t sum = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        struct stat st;
        if (!names_weights(entry->d_name)) continue;
        if (fstatat(dirfd(dir), entry->d_name, &st, 0) == 0) sum += stat_hash(entry->d_name, &st);
    }
    (void)closedir(dir);
    return sum;
}

/* The same of a GGUF file, or of the parts of one. */
static uint64_t files_identity(const weft_model *model) {
    const char *path;
    uint64_t sum = 0;
    for (size_t i = 0; (path = weft_model_file(model, i)) != NULL; i++) {
        struct stat st;
        if (stat(path, &st) != 0) return 0;
        sum += stat_hash("", &st);
    }
    return sum;
}

static uint64_t model_identity(const weft_model *model, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return 0;
    if (S_ISDIR(st.st_mode)) return folder_identity(path);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (strcmp(name, "config.json") != 0) return files_identity(model);
    char folder[4096];
    size_t len = slash ? (size_t)(slash - path) : 0;
    if (len >= sizeof folder) return 0;
    memcpy(folder, path, len);
    folder[len] = '\0';
    return folder_identity(len ? folder : slash ? "/" : ".");
}

/* --------------------------------------------------------------------------------- the arena ---
 */

static weft_err pack_private(const struct wefti_plan *plan, struct wefti_pool *pool,
                             struct wefti_weights *weights, struct weft_errmsg *why) {
    uint8_t *base = wefti_map(weights->bytes);
    if (!base)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %zu bytes of weights",
                            weights->bytes);
    (void)madvise(base, weights->bytes, MADV_HUGEPAGE);
    pack_all(plan, pool, 0, weights, base);
    (void)mprotect(base, weights->bytes, PROT_READ);
    weights->base = base;
    return WEFT_OK;
}

/* NULL, and why, when it cannot be mapped. Readers map it private: they never write, so they share
 * its pages all the same, and kernels before 6.7 refuse a shared mapping of a sealed memfd.
 *
 * It lies as huge pages want it (see use_huge_pages). */
static uint8_t *map_arena(int fd, size_t bytes, bool writable, struct weft_errmsg *why) {
    uint8_t *room = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        (void)weft_err_errno(why, errno, "no room for %zu bytes of weight memory", bytes);
        return NULL;
    }
    size_t before = wefti_round_up((uintptr_t)room, HUGE_PAGE_BYTES) - (uintptr_t)room;
    uint8_t *base = mmap(room + before, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                         (writable ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        (void)weft_err_errno(why, errno, "cannot map %zu bytes of the weight memory", bytes);
        (void)munmap(room, bytes + HUGE_PAGE_BYTES);
        return NULL;
    }
    if (before) (void)munmap(room, before);
    size_t used = before + wefti_round_up(bytes, HEADER_BYTES);
    (void)munmap(room + used, bytes + HUGE_PAGE_BYTES - used);
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    return base;
}

struct collapsing {
    struct wefti_pool *pool;
    volatile uint8_t *base;
    uint32_t n_pages;
};

static void collapse_thread(void *ctx, uint32_t thread_idx) {
    struct collapsing *c = ctx;
    for (;;) {
        uint32_t page = wefti_pool_take(c->pool, thread_idx);
        if (page >= c->n_pages) return;
        volatile uint8_t *at = c->base + (size_t)page * HUGE_PAGE_BYTES;
        *at = 0; /* what is wholly empty cannot be collapsed */
        (void)madvise((void *)(uintptr_t)at, HUGE_PAGE_BYTES, MADV_COLLAPSE);
    }
}

/* By default a memory file gets none, even where others do; so they are asked for one by one, while
 * there is nothing in them. A gigabyte in small pages takes a killed worker a hundred milliseconds
 * to let go of and its successor as long to map: 137 and 111 instead of 0.3 and 5 on a busy machine
 * of two cores. Where there are no huge pages, or no kernel 6.1, all works without. */
static void use_huge_pages(struct wefti_pool *pool, uint8_t *base, size_t bytes) {
    struct collapsing c = {pool, base, (uint32_t)(bytes / HUGE_PAGE_BYTES)};
    wefti_pool_run(pool, collapse_thread, &c);
}

/* What is no memfd takes no seals: then trust in whoever holds it has to do. */
static void seal(int fd) {
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
}

static weft_err pack_shared(const struct wefti_plan *plan, struct wefti_pool *pool,
                            uint64_t file_identity, struct wefti_weights *weights, int fd,
                            struct weft_errmsg *why) {
    /* To nothing first: what a killed predecessor left must not look complete. */
    if (ftruncate(fd, 0) != 0 || ftruncate(fd, (off_t)weights->bytes) != 0)
        return weft_err_errno(why, errno, "cannot size the weight memory to %zu bytes",
                              weights->bytes);
    uint8_t *base = map_arena(fd, weights->bytes, true, why);
    if (!base) return WEFT_E_NOMEM;
    use_huge_pages(pool, base, weights->bytes);
    pack_all(plan, pool, file_identity, weights, base);
    (void)munmap(base, weights->bytes); /* while somebody can write, no seal against it is taken */
    seal(fd);
    weights->base = map_arena(fd, weights->bytes, false, why);
    return weights->base ? WEFT_OK : WEFT_E_NOMEM;
}

/* Maps what another worker packed. *packed_out false: nothing complete is there. */
static weft_err inherit(const struct wefti_plan *plan, uint64_t file_identity,
                        struct wefti_weights *weights, int fd, bool *packed_out,
                        struct weft_errmsg *why) {
    *packed_out = false;
    struct stat st;
    if (fstat(fd, &st) != 0) return weft_err_errno(why, errno, "cannot read the weight memory");
    if ((uint64_t)st.st_size < HEADER_BYTES) return WEFT_OK;
    uint8_t *base = map_arena(fd, (size_t)st.st_size, false, why);
    if (!base) return WEFT_E_NOMEM;
    weft_err err = WEFT_OK;
    const struct header *header = (const struct header *)(const void *)base;
    *packed_out = memcmp(header->magic, ARENA_MAGIC, sizeof header->magic) == 0 &&
                  atomic_load_explicit(&header->complete, memory_order_acquire) == 1;
    if (!*packed_out) goto cleanup;
    if (header->total_bytes != weights->bytes || (uint64_t)st.st_size != weights->bytes ||
        header->layout_hash != weights->layout_hash) {
        err = weft_err_set(why, WEFT_E_STATE,
                           "the weight memory holds another model, or one packed with other "
                           "options: %" PRIu64 " bytes, wanted %zu",
                           header->total_bytes, weights->bytes);
        goto cleanup;
    }
    if (header->file_identity != file_identity &&
        header->model_hash != calibrated_hash(plan, weft_model_hash(plan->model))) {
        err = weft_err_set(why, WEFT_E_STATE,
                           "the weight memory was packed from another version of the model file");
        goto cleanup;
    }
    seal(fd); /* in case its packer died just before */
    weights->model_hash = header->model_hash;
    weights->base = base;
    weights->inherited = true;
    base = NULL;
cleanup:
    if (base) (void)munmap(base, (size_t)st.st_size);
    return err;
}

/* One packs, others wait. The lock belongs to the process, so it dies with it. */
static void lock_arena(int fd, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    while (fcntl(fd, F_SETLKW, &lock) != 0 && errno == EINTR) {
    }
}

static weft_err open_shared(const struct wefti_plan *plan, const char *path,
                            struct wefti_pool *pool, struct wefti_weights *weights, int fd,
                            struct weft_errmsg *why) {
    uint64_t file_identity = calibrated_hash(plan, model_identity(plan->model, path));
    bool packed = false;
    lock_arena(fd, F_WRLCK);
    weft_err err = inherit(plan, file_identity, weights, fd, &packed, why);
    if (!err && !packed) err = pack_shared(plan, pool, file_identity, weights, fd, why);
    lock_arena(fd, F_UNLCK);
    return err;
}

weft_err wefti_weights_open(struct wefti_weights *weights, const char *path, weft_model *model,
                            const struct weft_eng_options *options, struct wefti_pool *pool,
                            struct weft_errmsg *why) {
    *weights = (struct wefti_weights){0};
    struct wefti_plan plan;
    weft_err err = wefti_plan_make(&plan, model, options, weights, why);
    if (!err) {
        err = weft_model_packed(model) ? wefti_weights_map(&plan, path, model, weights, why)
              : options->weights_fd < 0
                  ? pack_private(&plan, pool, weights, why)
                  : open_shared(&plan, path, pool, weights, options->weights_fd, why);
    }
    wefti_plan_fini(&plan);
    if (err) wefti_weights_close(weights);
    return err;
}

void wefti_weights_close(struct wefti_weights *weights) {
    if (weights->base)
        (void)munmap(weights->base, weights->map_bytes ? weights->map_bytes : weights->bytes);
    free(weights->layers);
    free(weights->experts);
    *weights = (struct wefti_weights){0};
}

/* -------------------------------------------------------------------------------- embedding --- */

void wefti_weights_embed(const struct wefti_weights *weights, uint32_t token, uint8_t *raw,
                         float *out) {
    WEFT_DCHECK(token < weights->n_vocab);
    const struct wefti_matrix *head = &weights->head;
    const void *row = weights->base + weights->embed_offset + token * weights->embed_row_bytes;
    enum weft_kern_src src = weights->embed_src;
    if (weights->tied) {
        src = weft_kern_unpack_row(head->kind, weights->base + head->offset, head->k, token, raw);
        row = raw;
    }
    weft_kern_read_row(src, row, weights->n_hidden, out);
}
