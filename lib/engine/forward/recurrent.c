/* A recurrent layer between the residual stream and its last product:
 *
 *   norm + convert | projections | scales of parts | phases of the mixer (recurrent/mixer.h)
 *
 * Rows of one sequence stand together in a batch, so a mixer's sequences are runs of rows. */
#include "forward/recurrent.h"

#include "base/check.h"
#include "forward/forward.h"
#include "forward/products.h"

struct wefti_state_shape wefti_forward_state_shape(const struct weft_model_params *p,
                                                   uint32_t layer) {
    const struct weft_model_recurrent *r = &p->recurrent;
    if (!weft_model_has_recurrent(p) || !weft_model_bit(r->layers, layer))
        return (struct wefti_state_shape){0};
    const bool has_heads = r->kind != WEFT_MODEL_CONV;
    return (struct wefti_state_shape){
        .conv_width = r->conv_width,
        .n_channels = weft_model_conv_channels(p),
        .n_heads = has_heads ? r->n_heads : 0,
        .n_rows = has_heads ? r->state_dim : 0,
        .n_columns = has_heads ? r->head_dim : 0,
    };
}

/* Where the parts of a projected row begin (model.h, WEFT_MODEL_RECURRENT_PARTS). */
static void place_parts(struct wefti_mixer *mixer, const struct weft_model_params *p) {
    const size_t inner = weft_model_recurrent_inner(p), channels = weft_model_conv_channels(p);
    if (mixer->kind == WEFTI_MIXER_CONV) {
        mixer->gate_at = inner;
        mixer->conv_at = 2 * inner;
    } else if (mixer->kind == WEFTI_MIXER_MAMBA) {
        mixer->conv_at = inner;
        mixer->dt_at = inner + channels;
    } else {
        mixer->gate_at = channels;
        mixer->beta_at = channels + inner;
        mixer->dt_at = channels + inner + p->recurrent.n_heads;
    }
}

void wefti_forward_recurrent_set(struct wefti_forward *f, const struct weft_model_params *p) {
    const struct weft_model_recurrent *r = &p->recurrent;
    if (!weft_model_has_recurrent(p)) return;
    const size_t inner = weft_model_recurrent_inner(p), channels = weft_model_conv_channels(p);
    f->mixer = (struct wefti_mixer){
        .kind = r->kind == WEFT_MODEL_CONV    ? WEFTI_MIXER_CONV
                : r->kind == WEFT_MODEL_MAMBA ? WEFTI_MIXER_MAMBA
                                              : WEFTI_MIXER_DELTA,
        .n_groups = r->n_groups,
        .takes_turns = r->takes_turns,
        .norm_groups = r->norm_groups,
        .norm_eps = f->rms_eps,
        .dt_min = r->dt_min,
        .dt_max = r->dt_max,
    };
    place_parts(&f->mixer, p);
    const size_t row =
        f->mixer.kind == WEFTI_MIXER_CONV
            ? 3 * inner
            : channels + inner + (f->mixer.kind == WEFTI_MIXER_DELTA ? 2 : 1) * r->n_heads;
    f->rec_stride = wefti_memory_stride(row);
    f->conv_stride = wefti_memory_stride(channels);
    f->gate_stride = wefti_memory_stride(2 * (size_t)r->n_heads);
    f->rec_out_stride = wefti_memory_stride(inner);
    for (size_t i = 0; i < 5; i++)
        f->row_scales[i] = p->block.row_scales[i];
}

/* The layer's own mixer. */
static struct wefti_mixer mixer_of(const struct wefti_forward *f, uint32_t layer_idx) {
    const struct wefti_weights_layer *layer = &f->weights->layers[layer_idx];
    struct wefti_mixer mixer = f->mixer;
    mixer.shape = f->states->layers[layer_idx].shape;
    mixer.taps = wefti_weights_vector(f->weights, layer->taps);
    mixer.conv_bias = wefti_forward_vector(f, layer->conv_bias);
    mixer.dt_bias = wefti_forward_vector(f, layer->dt_bias);
    mixer.rate = wefti_forward_vector(f, layer->rate);
    mixer.skip = wefti_forward_vector(f, layer->skip);
    mixer.norm = wefti_forward_vector(f, layer->rec_norm);
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
    const uint32_t sizes[] = {inner, inner, bc, bc, mixer->shape.n_heads};
    uint32_t begin, end;
    while (wefti_forward_take_rows(thread, n_rows, WEFTI_FORWARD_ROWS_PER_TASK, &begin, &end)) {
        for (uint32_t row = begin; row < end; row++) {
            float *x = f->rec_rows + row * f->rec_stride;
            for (size_t part = 0; part < 5; x += sizes[part++]) {
                for (uint32_t i = 0; i < sizes[part]; i++)
                    x[i] *= f->row_scales[part];
            }
        }
    }
    wefti_forward_end_phase(thread);
}

struct wefti_forward_source wefti_forward_recurrent(const struct wefti_forward_thread *thread,
                                                    uint32_t layer_idx,
                                                    const struct wefti_forward_batch *batch) {
    const struct wefti_forward *f = thread->forward;
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
        .out = f->rec_out,
        .in_stride = f->rec_stride,
        .conv_stride = f->conv_stride,
        .gate_stride = f->gate_stride,
        .out_stride = f->rec_out_stride,
    };
    project(thread, layer_idx, batch->n_tokens);
    wefti_forward_mark(thread, WEFT_ENG_OP_SCAN);
    if (f->row_scales[0] != 0) scale_parts(thread, &mixer, batch->n_tokens);
    for (int i = 0; i < WEFTI_MIXER_PHASES; i++) {
        const enum wefti_mixer_phase phase = (enum wefti_mixer_phase)i;
        const uint32_t n_tasks = wefti_mixer_n_tasks(&step, phase);
        if (n_tasks == 0) continue;
        wefti_forward_mark(thread, WEFT_ENG_OP_SCAN);
        for (uint32_t task = wefti_forward_take_task(thread); task < n_tasks;
             task = wefti_forward_take_task(thread))
            wefti_mixer_run(&step, phase, task);
        wefti_forward_end_phase(thread);
    }
    return (struct wefti_forward_source){.rows = f->rec_out, .stride = f->rec_out_stride};
}
