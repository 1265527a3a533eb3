#include "recurrent/mixer.h"

#include <math.h>

#include "base/check.h"
#include "base/minmax.h"

enum {
    CHANNELS_PER_TASK = 512, /* their taps and last inputs stay in L1 */
    ROWS_PER_TASK = 4,
    PANELS_PER_TASK = 4, /* as many as the scans take together, at most */
};
#define L2_EPS 1e-6f /* beside the squares of q and k */

static uint32_t channel_tasks(const struct wefti_mixer *mixer) {
    return weft_div_up_u32(mixer->shape.n_channels, CHANNELS_PER_TASK);
}

static uint32_t head_tasks(const struct wefti_mixer *mixer) {
    return weft_div_up_u32(weft_kern_state_panels(mixer->shape.n_columns), PANELS_PER_TASK);
}

static void check_mixer(const struct wefti_mixer *mixer) {
    const struct wefti_state_shape *shape = &mixer->shape;
    if (mixer->kind == WEFTI_MIXER_CONV) return;
    WEFT_ASSERT(mixer->n_groups > 0 && shape->n_heads > 0);
    WEFT_ASSERT(mixer->group_heads == 0 ||
                mixer->skipped_heads + shape->n_heads <= mixer->n_groups * mixer->group_heads);
    WEFT_ASSERT(shape->n_channels ==
                shape->n_heads * shape->n_columns + 2 * mixer->n_groups * shape->n_rows);
    WEFT_ASSERT(mixer->kind == WEFTI_MIXER_DELTA || !mixer->norm ||
                shape->n_heads * shape->n_columns % mixer->norm_groups == 0);
}

uint32_t wefti_mixer_n_tasks(const struct wefti_mixer_step *step, enum wefti_mixer_phase phase) {
    const struct wefti_mixer *mixer = step->mixer;
    if (phase == WEFTI_MIXER_CONVOLVE) return step->n_seqs * channel_tasks(mixer);
    if (mixer->kind == WEFTI_MIXER_CONV) return 0;
    if (phase == WEFTI_MIXER_SCAN) return step->n_seqs * mixer->shape.n_heads * head_tasks(mixer);
    return weft_div_up_u32(step->n_rows, ROWS_PER_TASK);
}

/* ------------------------------------------------------------------------- the convolution --- */

/* `n` elements of the sequence's rows of `rows` are multiplied by those of `by`. */
static void multiply_rows(const struct wefti_mixer_seq *seq, float *rows, size_t stride,
                          const float *by, size_t by_stride, uint32_t n) {
    for (uint32_t row = seq->first; row < seq->first + seq->n; row++) {
        float *x = rows + row * stride;
        const float *y = by + row * by_stride;
        for (uint32_t i = 0; i < n; i++)
            x[i] *= y[i];
    }
}

static void convolve(const struct wefti_mixer_step *step, uint32_t task) {
    const struct wefti_mixer *mixer = step->mixer;
    const bool is_all = mixer->kind == WEFTI_MIXER_CONV;
    const struct wefti_mixer_seq *seq = &step->seqs[task / channel_tasks(mixer)];
    const uint32_t begin = task % channel_tasks(mixer) * CHANNELS_PER_TASK;
    const uint32_t n = weft_min_u32(CHANNELS_PER_TASK, mixer->shape.n_channels - begin);
    float *x = step->in + mixer->conv_at, *y = is_all ? step->out : step->conv;
    const size_t y_stride = is_all ? step->out_stride : step->conv_stride;
    const struct weft_kern_conv args = {
        .state = wefti_states_conv(step->states, seq->place, step->layer),
        .x = x + seq->first * step->in_stride,
        .taps = mixer->taps,
        .bias = mixer->conv_bias,
        .y = y + seq->first * y_stride,
        .x_stride = step->in_stride,
        .y_stride = y_stride,
        .n_tokens = seq->n,
        .n_channels = mixer->shape.n_channels,
        .width = mixer->shape.conv_width,
        .is_first = seq->is_first,
        .has_silu = !is_all,
    };
    if (is_all)
        multiply_rows(seq, x + begin, step->in_stride, step->in + mixer->b_at + begin,
                      step->in_stride, n);
    step->kern->conv(&args, begin, begin + n);
    if (is_all)
        multiply_rows(seq, y + begin, y_stride, step->in + mixer->gate_at + begin, step->in_stride,
                      n);
}

/* ------------------------------------------------------------------------------------- rows --- */

static void prepare_row(const struct wefti_mixer_step *step, uint32_t row) {
    const struct wefti_mixer *mixer = step->mixer;
    const bool is_delta = mixer->kind == WEFTI_MIXER_DELTA;
    const uint32_t n_heads = mixer->shape.n_heads, k_dim = mixer->shape.n_rows;
    const float *in = step->in + row * step->in_stride;
    float *gates = step->gates + row * step->gate_stride;
    const struct weft_kern_decay decay = {
        .x = in + mixer->dt_at,
        .bias = mixer->dt_bias,
        .rate = mixer->rate,
        .dt_min = mixer->dt_min,
        .dt_max = mixer->dt_max,
        .dt = is_delta ? NULL : gates,
        .decay = gates + n_heads,
        .n = n_heads,
    };
    step->kern->decay(&decay);
    if (!is_delta) return;
    step->kern->sigmoid_mul(in + mixer->beta_at, NULL, n_heads, gates);
    float *q = step->conv + row * step->conv_stride, *k = q + (size_t)mixer->n_groups * k_dim;
    for (uint32_t g = 0; g < mixer->n_groups; g++, q += k_dim, k += k_dim) {
        step->kern->l2_norm(q, 1.0f / sqrtf((float)k_dim), L2_EPS, k_dim, q);
        step->kern->l2_norm(k, 1.0f, L2_EPS, k_dim, k);
    }
}

static void finish_row(const struct wefti_mixer_step *step, uint32_t row) {
    const struct wefti_mixer *mixer = step->mixer;
    const struct weft_kern_table *kern = step->kern;
    const uint32_t n = mixer->shape.n_heads * mixer->shape.n_columns;
    const float *gate = step->in + row * step->in_stride + mixer->gate_at;
    float *y = step->out + row * step->out_stride;
    if (mixer->kind == WEFTI_MIXER_DELTA) {
        const uint32_t v_dim = mixer->shape.n_columns;
        for (uint32_t i = 0; i < n; i += v_dim)
            kern->rms_norm(y + i, mixer->norm, mixer->norm_eps, v_dim, y + i);
        kern->silu_mul(gate, y, n, y);
        return;
    }
    kern->silu_mul(gate, y, n, y);
    if (!mixer->norm) return;
    const uint32_t n_group = n / mixer->norm_groups;
    for (uint32_t i = 0; i < n; i += n_group)
        kern->rms_norm(y + i, mixer->norm + i, mixer->norm_eps, n_group, y + i);
}

/* ------------------------------------------------------------------------------------- scan --- */

/* What a task of the scan works on. */
struct part {
    const struct wefti_mixer_seq *seq;
    uint32_t head, group, p_begin, p_end;
};

static uint32_t group_of(const struct wefti_mixer *mixer, uint32_t head) {
    const uint32_t among = head + mixer->skipped_heads;
    return mixer->group_heads > 0 ? among / mixer->group_heads : among % mixer->n_groups;
}

static struct part part_of(const struct wefti_mixer_step *step, uint32_t task) {
    const struct wefti_mixer *mixer = step->mixer;
    const uint32_t n_heads = mixer->shape.n_heads, head = task / head_tasks(mixer);
    const uint32_t p_begin = task % head_tasks(mixer) * PANELS_PER_TASK,
                   n_panels = weft_kern_state_panels(mixer->shape.n_columns);
    return (struct part){&step->seqs[head / n_heads], head % n_heads,
                         group_of(mixer, head % n_heads), p_begin,
                         weft_min_u32(p_begin + PANELS_PER_TASK, n_panels)};
}

static void scan_mamba(const struct wefti_mixer_step *step, const struct part *part) {
    const struct wefti_state_shape *shape = &step->mixer->shape;
    const size_t head_at = (size_t)part->head * shape->n_columns,
                 n_inner = (size_t)shape->n_heads * shape->n_columns,
                 n_b = (size_t)step->mixer->n_groups * shape->n_rows;
    const float *row = step->conv + part->seq->first * step->conv_stride;
    const float *b = row + n_inner + (size_t)part->group * shape->n_rows;
    const float *gates = step->gates + part->seq->first * step->gate_stride + part->head;
    const struct weft_kern_mamba args = {
        .state = wefti_states_matrix(step->states, part->seq->place, step->layer, part->head),
        .x = row + head_at,
        .b = b,
        .c = b + n_b,
        .dt = gates,
        .decay = gates + shape->n_heads,
        .y = step->out + part->seq->first * step->out_stride + head_at,
        .x_stride = step->conv_stride,
        .bc_stride = step->conv_stride,
        .dt_stride = step->gate_stride,
        .y_stride = step->out_stride,
        .skip = step->mixer->skip[part->head],
        .n_tokens = part->seq->n,
        .head_dim = shape->n_columns,
        .d_state = shape->n_rows,
        .is_first = part->seq->is_first,
    };
    step->kern->mamba_scan(&args, part->p_begin, part->p_end);
}

static void scan_delta(const struct wefti_mixer_step *step, const struct part *part) {
    const struct wefti_state_shape *shape = &step->mixer->shape;
    const size_t head_at = (size_t)part->head * shape->n_columns,
                 n_q = (size_t)step->mixer->n_groups * shape->n_rows;
    const float *row = step->conv + part->seq->first * step->conv_stride;
    const float *q = row + (size_t)part->group * shape->n_rows;
    const float *gates = step->gates + part->seq->first * step->gate_stride + part->head;
    const struct weft_kern_delta args = {
        .state = wefti_states_matrix(step->states, part->seq->place, step->layer, part->head),
        .q = q,
        .k = q + n_q,
        .v = row + 2 * n_q + head_at,
        .decay = gates + shape->n_heads,
        .beta = gates,
        .y = step->out + part->seq->first * step->out_stride + head_at,
        .qk_stride = step->conv_stride,
        .v_stride = step->conv_stride,
        .gate_stride = step->gate_stride,
        .y_stride = step->out_stride,
        .n_tokens = part->seq->n,
        .k_dim = shape->n_rows,
        .v_dim = shape->n_columns,
        .is_first = part->seq->is_first,
    };
    step->kern->delta_scan(&args, part->p_begin, part->p_end);
}

static void run_rows(const struct wefti_mixer_step *step, uint32_t task,
                     void (*of_row)(const struct wefti_mixer_step *step, uint32_t row)) {
    const uint32_t begin = task * ROWS_PER_TASK;
    for (uint32_t row = begin; row < weft_min_u32(begin + ROWS_PER_TASK, step->n_rows); row++)
        of_row(step, row);
}

void wefti_mixer_run(const struct wefti_mixer_step *step, enum wefti_mixer_phase phase,
                     uint32_t task) {
    WEFT_ASSERT(task < wefti_mixer_n_tasks(step, phase));
    check_mixer(step->mixer);
    if (phase == WEFTI_MIXER_CONVOLVE) {
        convolve(step, task);
    } else if (phase == WEFTI_MIXER_SCAN) {
        const struct part part = part_of(step, task);
        if (step->mixer->kind == WEFTI_MIXER_DELTA)
            scan_delta(step, &part);
        else
            scan_mamba(step, &part);
    } else {
        run_rows(step, task, phase == WEFTI_MIXER_PREPARE ? prepare_row : finish_row);
    }
}
