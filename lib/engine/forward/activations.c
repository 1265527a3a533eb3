/* Rows of activations in the forms that products want.
 *
 * The pass goes on in f32; the form that a matrix multiplies depends on its kind. Rows are
 * normalised and converted once per group of products of the same rows, to all forms that the group
 * wants. Each thread makes few rows for itself, which costs less than a barrier, and takes f32 as
 * it is; many rows are shared out and interleaved. None of this changes a bit of any row. */
#include "forward/activations.h"

#include <string.h>

/* For each form of activations, a kind that takes it. */
static const enum weft_gemm_kind form_kind[WEFT_ACT_COUNT] = {[WEFT_ACT_F32] = WEFT_GEMM_F32_F32,
                                                              [WEFT_ACT_BF16] = WEFT_GEMM_BF16,
                                                              [WEFT_ACT_I8] = WEFT_GEMM_I8,
                                                              [WEFT_ACT_Q8] = WEFT_GEMM_Q8_0,
                                                              [WEFT_ACT_Q8_SUMS] = WEFT_GEMM_Q4_1};

enum weft_gemm_kind wefti_forward_form_kind(enum weft_kern_act form) {
    return form_kind[form];
}

static void note_form(struct wefti_forward *f, const struct wefti_weights_matrix *m) {
    enum weft_kern_act form = weft_kern_act_of(m->kind);
    size_t bytes = weft_kern_act_row_bytes(form_kind[form], m->k);
    f->uses[form] = true;
    if (bytes > f->act_bytes[form]) f->act_bytes[form] = bytes;
}

void wefti_forward_acts_note_forms(struct wefti_forward *f) {
    for (uint32_t i = 0; i < f->n_layers; i++) {
        const struct wefti_weights_layer *l = &f->weights->layers[i];
        const struct wefti_weights_expert *e = l->experts; /* the others are like the first one */
        const struct wefti_weights_matrix *all[] = {&l->q,
                                                    &l->q_a,
                                                    &l->k,
                                                    &l->v,
                                                    &l->o,
                                                    &l->gate,
                                                    &l->up,
                                                    &l->down,
                                                    &l->router,
                                                    &l->latent_in,
                                                    &l->latent_out,
                                                    &l->attn_gate,
                                                    &l->index_q,
                                                    &l->index_k,
                                                    &l->index_weights,
                                                    &l->rec_out,
                                                    &l->input_gate,
                                                    &l->input_proj,
                                                    e ? &e->gate : NULL,
                                                    e ? &e->up : NULL,
                                                    e ? &e->down : NULL};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++) {
            if (all[j] && all[j]->n > 0) note_form(f, all[j]);
        }
        for (size_t j = 0; j < WEFT_MODEL_RECURRENT_PARTS; j++) {
            if (l->rec_in[j].n > 0) note_form(f, &l->rec_in[j]);
        }
    }
    if (f->weights->head.n > 0) note_form(f, &f->weights->head);
    if (f->weights->input_model.n > 0) note_form(f, &f->weights->input_model);
    if (f->weights->eh_proj.n > 0) note_form(f, &f->weights->eh_proj);
}

static void forms_of(const struct wefti_weights_matrix *const *group, uint32_t n,
                     bool wanted[WEFT_ACT_COUNT]) {
    for (int form = 0; form < WEFT_ACT_COUNT; form++) {
        wanted[form] = false;
    }
    for (uint32_t i = 0; i < n; i++) {
        wanted[weft_kern_act_of(group[i]->kind)] = true;
    }
    if (wanted[WEFT_ACT_Q8_SUMS]) wanted[WEFT_ACT_Q8] = false; /* its rows serve both */
}

static bool needs_conversion(const bool wanted[WEFT_ACT_COUNT]) {
    for (int form = 0; form < WEFT_ACT_COUNT; form++) {
        if (form != WEFT_ACT_F32 && wanted[form]) return true;
    }
    return false;
}

/* How rows of k columns are made: from `src`, in the wanted forms. */
struct recipe {
    const struct wefti_forward_source *src;
    uint32_t k;
    bool wanted[WEFT_ACT_COUNT];
    uint8_t *const *to; /* memory per form */
};

/* A row of the source, normalised. */
static const float *source_row(const struct wefti_forward_thread *thread,
                               const struct recipe *recipe, uint32_t row, float *wide) {
    const struct wefti_forward_source *src = recipe->src;
    const float *x = src->rows + (src->index ? src->index[row] : row) * src->stride;
    if (!src->norm.weight) return x;
    wefti_forward_normalise(thread->forward, x, src->norm, recipe->k, wide);
    return wide;
}

/* Row `row` of `acts`, which are not interleaved. */
static void make_row(const struct wefti_forward_thread *thread, const struct recipe *recipe,
                     const struct wefti_forward_acts *acts, uint32_t row) {
    const struct wefti_forward *f = thread->forward;
    uint8_t *const *to = recipe->to;
    const uint32_t k = recipe->k;
    const float *x = source_row(thread, recipe, row, thread->scratch->wide);
    for (int form = 0; form < WEFT_ACT_COUNT; form++) {
        if (!recipe->wanted[form] || (form == WEFT_ACT_F32 && acts->rows[form] != to[form]))
            continue;
        const size_t bytes = acts->row_bytes[form];
        uint8_t *at = to[form] + row * bytes;
        if (form == WEFT_ACT_F32)
            memcpy(at, x, k * sizeof(float));
        else
            f->kern->act_convert(form_kind[form], x, wefti_memory_stride(k), 1, k, at, bytes);
    }
}

/* The group of rows begin..end. Rows that are not ready where they are stand in scratch first. */
static void make_group(const struct wefti_forward_thread *thread, const struct recipe *recipe,
                       const struct wefti_forward_acts *acts, uint32_t begin, uint32_t end) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_source *src = recipe->src;
    struct weft_kern_act_part part = {.src = src->rows + begin * src->stride,
                                      .src_stride = src->stride,
                                      .n_rows = end - begin,
                                      .k = recipe->k,
                                      .k_end = recipe->k};
    if (src->norm.weight || src->index) {
        const size_t stride = wefti_memory_stride(recipe->k);
        float *wide = thread->scratch->wide;
        WEFT_ASSERT(stride <= f->hidden_stride);
        for (uint32_t row = begin; row < end; row++, wide += stride) {
            const float *x = source_row(thread, recipe, row, wide);
            if (x != wide) memcpy(wide, x, recipe->k * sizeof *wide);
        }
        part.src = thread->scratch->wide;
        part.src_stride = stride;
    }
    for (int form = 0; form < WEFT_ACT_COUNT; form++) {
        if (!recipe->wanted[form]) continue;
        part.group = recipe->to[form] + begin * acts->row_bytes[form];
        f->kern->act_group(form_kind[form], &part);
    }
}

struct wefti_forward_acts wefti_forward_acts_make(const struct wefti_forward_thread *thread,
                                                  const struct wefti_forward_source *src,
                                                  uint32_t n_rows,
                                                  const struct wefti_weights_matrix *const *group,
                                                  uint32_t n_group) {
    struct wefti_forward *f = thread->forward;
    bool own = n_rows <= WEFTI_FORWARD_OWN_ROWS;
    uint8_t *const *to = own ? thread->scratch->own : f->shared;
    struct recipe recipe = {.src = src, .k = group[0]->k, .to = to};
    const bool *wanted = recipe.wanted;
    forms_of(group, n_group, recipe.wanted);
    struct wefti_forward_acts acts = {.group = own || src->apart ? 1 : f->kern->group_rows};
    for (int form = 0; form < WEFT_ACT_COUNT; form++) {
        if (!wanted[form]) continue;
        acts.rows[form] = to[form];
        acts.row_bytes[form] = weft_kern_act_row_bytes(form_kind[form], recipe.k);
    }
    bool as_is = !src->norm.weight && !src->index && acts.group == 1;
    if (as_is && wanted[WEFT_ACT_F32]) {
        acts.rows[WEFT_ACT_F32] = (const uint8_t *)src->rows;
        acts.row_bytes[WEFT_ACT_F32] = src->stride * sizeof(float);
    }
    if (wanted[WEFT_ACT_Q8_SUMS]) {
        acts.rows[WEFT_ACT_Q8] = acts.rows[WEFT_ACT_Q8_SUMS];
        acts.row_bytes[WEFT_ACT_Q8] = acts.row_bytes[WEFT_ACT_Q8_SUMS];
    }
    if (as_is && !needs_conversion(wanted)) return acts;
    if (own) {
        for (uint32_t row = 0; row < n_rows; row++) {
            make_row(thread, &recipe, &acts, row);
        }
        return acts;
    }
    const bool groups = acts.group > 1;
    uint32_t per_task = groups ? acts.group : WEFTI_FORWARD_ROWS_PER_TASK, begin, end;
    while (wefti_forward_take_rows(thread, n_rows, per_task, &begin, &end)) {
        if (groups) make_group(thread, &recipe, &acts, begin, end);
        for (uint32_t row = begin; row < end && !groups; row++) {
            make_row(thread, &recipe, &acts, row);
        }
    }
    wefti_forward_end_phase(thread);
    return acts;
}

/* One thread shows all rows, so they come in order, whatever the others do meanwhile. */
void wefti_forward_acts_observe(const struct wefti_forward_thread *thread, uint32_t layer,
                                enum wefti_calib_input input, const struct wefti_forward_acts *acts,
                                uint32_t n_rows) {
    weft_eng_calib *calib = thread->forward->calib;
    if (!calib || thread->idx != 0) return;
    const struct wefti_weights_layer *own = &thread->forward->weights->layers[layer];
    uint32_t k = wefti_calib_columns(calib, input);
    if (input == WEFTI_CALIB_DOWN) k = own->down.k;
    if (input == WEFTI_CALIB_O) k = own->o.k;
    const struct wefti_calib_rows rows = {.data = acts->rows[WEFT_ACT_F32],
                                          .row_bytes = acts->row_bytes[WEFT_ACT_F32],
                                          .k = k,
                                          .group = acts->group,
                                          .n_rows = n_rows};
    wefti_calib_add(calib, layer, input, &rows);
}
