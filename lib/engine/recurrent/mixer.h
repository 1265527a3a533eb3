/* engine/recurrent/mixer — what a recurrent layer does between its two products, cut into tasks.
 *
 * Model    Rows of a step come projected; where a row has what, the mixer says. By kind:
 *            CONV   out = c * conv(b * x)                                    LFM2
 *            MAMBA  x, B and C of silu(conv(.)); dt and decay; scan; norm    Mamba-2
 *            DELTA  q, k and v of silu(conv(.)); beta and decay; scan; norm  gated DeltaNet
 *          The norm of Mamba-2 is of y * silu(gate), in groups of channels; that of the delta rule of
 *          each head's y, which is multiplied by silu(gate) after it.
 * Phases   In the order of their numbers, each done before the next one begins. Tasks of a phase
 *          may run in any order, by any threads.
 * Contract A row's output and the state after it depend on its sequence alone: see kernels.h.
 * Memory   Buffers and states are the caller's; nothing is allocated. */
#ifndef WEFT_ENGINE_MIXER_H
#define WEFT_ENGINE_MIXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "recurrent/states.h"

enum wefti_mixer_kind { WEFTI_MIXER_CONV, WEFTI_MIXER_MAMBA, WEFTI_MIXER_DELTA };

/* A layer, or a rank's share of one. Channels of the convolution are those of x; then of MAMBA B and C of
 * all groups, and of DELTA, before v of all heads, q and k of all groups. */
struct wefti_mixer {
    enum wefti_mixer_kind kind;
    struct wefti_state_shape shape;
    uint32_t n_groups; /* MAMBA: of heads that share B and C; DELTA: key heads */
    /* Heads of a group, one group after the other; 0: heads are of the groups in turn. The first head is
     * that after `skipped_heads` of the first group, or of the first turn. */
    uint32_t group_heads, skipped_heads;
    /* Where a projected row has its parts, in floats: what the convolution takes, x of CONV; its b;
     * the gate, c of CONV; and what dt and beta of the heads come from. */
    size_t conv_at, b_at, gate_at, dt_at, beta_at;
    const float *taps, *conv_bias;      /* as of weft_kern_conv */
    const float *dt_bias, *rate, *skip; /* [n_heads]; skip of MAMBA alone */
    const float *norm;    /* MAMBA: [n_heads * n_columns], or NULL: none; DELTA: [n_columns] */
    uint32_t norm_groups; /* of MAMBA */
    float norm_eps, dt_min, dt_max;
};

/* A sequence's rows of a step: `n` >= 1 of them, from row `first` on. */
struct wefti_mixer_seq {
    uint32_t first, n, place; /* place: of its state */
    bool is_first;            /* they begin the sequence */
};

/* Rows are `stride` floats apart. */
struct wefti_mixer_step {
    const struct weft_kern_table *kern;
    const struct wefti_mixer *mixer;
    const struct wefti_states *states;
    uint32_t layer, n_rows, n_seqs;
    const struct wefti_mixer_seq *seqs; /* which have all rows */
    float *in;                          /* projected; CONV changes x of it */
    float *conv;                        /* [n_channels]; not of CONV */
    float *gates;                       /* [2 * n_heads] dt or beta, and decay; not of CONV */
    float *out;                         /* [n_heads * n_columns], or [n_channels] of CONV */
    size_t in_stride, conv_stride, gate_stride, out_stride;
};

enum wefti_mixer_phase {
    WEFTI_MIXER_CONVOLVE,
    WEFTI_MIXER_PREPARE, /* rows: lengths of q and k, gates */
    WEFTI_MIXER_SCAN,
    WEFTI_MIXER_FINISH, /* rows: norm and gate */
    WEFTI_MIXER_PHASES
};

/* 0: the kind does without. */
uint32_t wefti_mixer_n_tasks(const struct wefti_mixer_step *step, enum wefti_mixer_phase phase);
void wefti_mixer_run(const struct wefti_mixer_step *step, enum wefti_mixer_phase phase,
                     uint32_t task);

#endif
