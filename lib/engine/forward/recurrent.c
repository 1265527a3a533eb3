/* A recurrent layer between the residual stream and its last product:
 *
 *   norm + convert | projections | scales of parts | phases of the mixer (recurrent/mixer.h)
 *
 * Rows of one sequence stand together in a batch, so a mixer's sequences are runs of rows. */
#include "forward/recurrent.h"

#include <string.h>

#include "base/check.h"
#include "forward/forward.h"
#include "forward/products.h"
#include "forward/ranks.h"

/* Numbers of a row of the convolution that are of groups. */
static uint32_t group_channels(const struct weft_model_params *p,
                               const struct wefti_weights_recurrent *share) {
    return 2 * share->n_groups * p->recurrent.state_dim;
}

struct wefti_state_shape wefti_forward_state_shape(const struct wefti_weights *weights,
                                                   const struct weft_model_params *p,
                                                   uint32_t layer) {
    const struct weft_model_recurrent *r = &p->recurrent;
    const struct wefti_weights_recurrent *own = &weights->layers[layer].rec;
    if (!weft_model_has_recurrent(p) || own->n == 0) return (struct wefti_state_shape){0};
    const bool has_heads = r->kind != WEFT_MODEL_CONV;
    return (struct wefti_state_shape){
        .conv_width = r->conv_width,
        .n_channels = own->inner.end - own->inner.begin + (has_heads ? group_channels(p, own) : 0),
        .n_heads = has_heads ? own->n : 0,
        .n_rows = has_heads ? r->state_dim : 0,
        .n_columns = has_heads ? r->head_dim : 0,
    };
}

/* Where the parts of a projected row begin (model.h, WEFT_MODEL_RECURRENT_PARTS). Returns how long it is. */
static size_t place_parts(struct wefti_mixer *mixer, const struct wefti_weights_recurrent *share) {
    const size_t inner = share->inner.end - share->inner.begin, channels = mixer->shape.n_channels,
                 numbers = share->lead + share->n;
    if (mixer->kind == WEFTI_MIXER_CONV) {
        mixer->gate_at = inner;
        mixer->conv_at = 2 * inner;
        return 3 * inner;
    }
    if (mixer->kind == WEFTI_MIXER_MAMBA) {
        mixer->conv_at = inner;
        mixer->dt_at = inner + channels + share->lead;
        return inner + channels + numbers;
    }
    mixer->gate_at = channels;
    mixer->beta_at = channels + inner + share->lead;
    mixer->dt_at = mixer->beta_at + numbers;
    return channels + inner + 2 * numbers;
}

static void widen(size_t *stride, size_t n) {
    n = wefti_memory_stride(n);
    if (n > *stride) *stride = n;
}

/* Rows have room for the layer of which this rank has most. */
static void set_strides(struct wefti_forward *f, const struct weft_model_params *p) {
    for (uint32_t i = 0; i < f->n_layers; i++) {
        const struct wefti_weights_recurrent *own = &f->weights->layers[i].rec;
        struct wefti_mixer mixer = f->mixer;
        mixer.shape = wefti_forward_state_shape(f->weights, p, i);
        widen(&f->rec_stride, place_parts(&mixer, own));
        widen(&f->conv_stride, mixer.shape.n_channels);
        widen(&f->gate_stride, 2 * (size_t)mixer.shape.n_heads);
        widen(&f->rec_out_stride, own->inner.end - own->inner.begin);
        if (own->gathers) f->gathered_stride = wefti_memory_stride(weft_model_recurrent_inner(p));
    }
}

void wefti_forward_recurrent_set(struct wefti_forward *f, const struct weft_model_params *p) {
    const struct weft_model_recurrent *r = &p->recurrent;
    if (!weft_model_has_recurrent(p)) return;
    f->mixer = (struct wefti_mixer){
        .kind = r->kind == WEFT_MODEL_CONV    ? WEFTI_MIXER_CONV
                : r->kind == WEFT_MODEL_MAMBA ? WEFTI_MIXER_MAMBA
                                              : WEFTI_MIXER_DELTA,
        .group_heads = r->takes_turns || r->n_groups == 0 ? 0 : r->n_heads / r->n_groups,
        .norm_groups = r->norm_groups,
        .norm_eps = f->rms_eps,
        .dt_min = r->dt_min,
        .dt_max = r->dt_max,
    };
    if (r->norm_groups > 0) f->norm_channels = weft_model_recurrent_inner(p) / r->norm_groups;
    set_strides(f, p);
    for (size_t i = 0; i < 5; i++)
        f->row_scales[i] = p->block.row_scales[i];
}

/* The layer's own mixer. Where ranks gather what they made, its norm comes after that. */
static struct wefti_mixer mixer_of(const struct wefti_forward *f, uint32_t layer_idx) {
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    struct wefti_mixer mixer = f->mixer;
    mixer.shape = f->states->layers[layer_idx].shape;
    mixer.n_groups = layer->rec.n_groups;
    mixer.skipped_heads = layer->rec.skipped_heads;
    mixer.taps = wefti_forward_vector(f, layer->taps);
    mixer.conv_bias = wefti_forward_vector(f, layer->conv_bias);
    mixer.dt_bias = wefti_forward_vector(f, layer->dt_bias);
    mixer.rate = wefti_forward_vector(f, layer->rate);
    mixer.skip = wefti_forward_vector(f, layer->skip);
    mixer.norm = layer->rec.gathers ? NULL : wefti_forward_vector(f, layer->rec_norm);
    if (f->norm_channels > 0 && mixer.norm) {
        const struct wefti_weights_range own = layer->rec.inner;
        mixer.norm += own.begin;
        mixer.norm_groups = (own.end - own.begin) / f->norm_channels;
    }
    (void)place_parts(&mixer, &layer->rec);
    return mixer;
}

static void project(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                    uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const struct wefti_weights_matrix *in[WEFT_MODEL_RECURRENT_PARTS];
    struct wefti_forward_product products[WEFT_MODEL_RECURRENT_PARTS];
    uint32_t n = 0;
    size_t at = 0;
    for (uint32_t i = 0; i < WEFT_MODEL_RECURRENT_PARTS; i++) {
        if (layer->rec_in[i].n == 0) continue;
        in[n] = &layer->rec_in[i];
        products[n] = (struct wefti_forward_product){
            .matrix = in[n], .c = f->rec_rows + at, .ldc = f->rec_stride};
        at += in[n++]->n;
    }
    WEFT_ASSERT(n > 0 && at <= f->rec_stride);
    struct wefti_forward_source hidden = {.rows = f->x, /* attention beside it reads what is kept */
                                          .stride = f->x_stride,
                                          .norm = {layer->attn_norm, layer->attn_norm_bias}};
    wefti_forward_mark(thread, WEFT_ENG_OP_ATTN_NORM);
    struct wefti_forward_acts acts = wefti_forward_acts_make(thread, &hidden, n_rows, in, n);
    wefti_forward_mark(thread, WEFT_ENG_OP_QKV);
    /* Parts may be of different kinds, which no product runs side by side. */
    wefti_forward_multiply(thread, &acts, n_rows, products, n);
}

/* Falcon-H1's factors of gate, x, B, C and dt. Ends a phase. */
static void scale_parts(const struct wefti_forward_thread *thread, const struct wefti_mixer *mixer,
                        uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    const uint32_t inner = mixer->shape.n_heads * mixer->shape.n_columns,
                   bc = mixer->n_groups * mixer->shape.n_rows;
    const size_t starts[] = {0, inner, 2 * (size_t)inner, 2 * (size_t)inner + bc, mixer->dt_at};
    const uint32_t sizes[] = {inner, inner, bc, bc, mixer->shape.n_heads};
    uint32_t begin, end;
    while (wefti_forward_take_rows(thread, n_rows, WEFTI_FORWARD_ROWS_PER_TASK, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++) {
            for (size_t part = 0; part < 5; part++) {
                float *x = f->rec_rows + row * f->rec_stride + starts[part];
                for (uint32_t i = 0; i < sizes[part]; i++)
                    x[i] *= f->row_scales[part];
            }
        }
    }
    wefti_forward_end_phase(thread);
}

static void mix(const struct wefti_forward_thread *thread, const struct wefti_mixer_step *step) {
    for (int i = 0; i < WEFTI_MIXER_PHASES; i++) {
        const enum wefti_mixer_phase phase = (enum wefti_mixer_phase)i;
        const uint32_t n_tasks = wefti_mixer_n_tasks(step, phase);
        if (n_tasks == 0) continue;
        wefti_forward_mark(thread, WEFT_ENG_OP_SCAN);
        for (uint32_t task = wefti_forward_take_task(thread); task < n_tasks;
             task = wefti_forward_take_task(thread))
            wefti_mixer_run(step, phase, task);
        wefti_forward_end_phase(thread);
    }
}

/* The own columns of a gathered row: of groups that have some, all is looked at. */
static void normalise_own(const struct wefti_forward_thread *thread,
                          const struct wefti_weights_layer *layer, const float *row, float *out) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_weights_range own = layer->rec.inner;
    const float *norm = wefti_weights_vector(f->weights, layer->rec_norm);
    const uint32_t n = f->norm_channels;
    float *group = thread->scratch->wide;
    for (uint32_t at = own.begin / n * n; at < own.end; at += n) {
        const uint32_t begin = weft_max_u32(at, own.begin), end = weft_min_u32(at + n, own.end);
        f->kern->rms_norm(row + at, norm + at, f->rms_eps, n, group);
        memcpy(out + begin - own.begin, group + begin - at, (end - begin) * sizeof *out);
    }
}

/* What heads of all ranks made is normalised together. False: the group is over. Ends phases. */
static bool gather(const struct wefti_forward_thread *thread,
                   const struct wefti_weights_layer *layer, uint32_t n_rows) {
    const struct wefti_forward *f = thread->forward;
    uint32_t begin, end;
    if (!wefti_forward_gather(thread, layer->rec.inner, n_rows)) return false;
    if (layer->rec.n == 0) return true;
    wefti_forward_mark(thread, WEFT_ENG_OP_SCAN);
    while (wefti_forward_take_rows(thread, n_rows, WEFTI_FORWARD_ROWS_PER_TASK, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++)
            normalise_own(thread, layer, f->gathered + row * f->gathered_stride,
                          f->rec_out + row * f->rec_out_stride);
    }
    wefti_forward_end_phase(thread);
    return true;
}

bool wefti_forward_recurrent(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                             const struct wefti_forward_batch *batch,
                             struct wefti_forward_source *made_out) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    const bool gathers = layer->rec.gathers;
    *made_out = (struct wefti_forward_source){.rows = f->rec_out, .stride = f->rec_out_stride};
    if (layer->rec.n > 0) {
        const struct wefti_mixer mixer = mixer_of(f, layer_idx);
        const struct wefti_mixer_step step = {
            .kern = f->kern,
            .mixer = &mixer,
            .states = f->states,
            .layer = layer_idx,
            .n_rows = batch->n_tokens,
            .n_seqs = batch->n_seqs,
            .seqs = batch->seqs,
            .in = f->rec_rows,
            .conv = f->rec_conv,
            .gates = f->rec_gates,
            .out = gathers ? f->gathered + layer->rec.inner.begin : f->rec_out,
            .in_stride = f->rec_stride,
            .conv_stride = f->conv_stride,
            .gate_stride = f->gate_stride,
            .out_stride = gathers ? f->gathered_stride : f->rec_out_stride,
        };
        project(thread, layer_idx, batch->n_tokens);
        wefti_forward_mark(thread, WEFT_ENG_OP_SCAN);
        if (f->row_scales[0] != 0) scale_parts(thread, &mixer, batch->n_tokens);
        mix(thread, &step);
    }
    return !gathers || gather(thread, layer, batch->n_tokens);
}
