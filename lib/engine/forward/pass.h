/* engine/forward, shared by its files — shapes, buffers, and a thread's view of a pass.
 *
 * The pool runs one function on all threads. Phases end with a barrier, and within a phase threads
 * take tasks; so every function of this room that says it ends a phase is called by all threads,
 * with the same arguments. */
#ifndef WEFT_ENGINE_PASS_H
#define WEFT_ENGINE_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "collective/collective.h"
#include "engine/engine.h"
#include "forward/forward.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "recurrent/mixer.h"
#include "runtime/kv_cache.h"
#include "runtime/memory.h"
#include "runtime/pool.h"
#include "runtime/profile.h"
#include "weights/weights.h"

enum {
    /* Up to so many rows, each thread converts the activations for itself. */
    WEFTI_FORWARD_OWN_ROWS = 4,
    /* Rows of a task of rope; and of norms and conversions that do not interleave. */
    WEFTI_FORWARD_ROWS_PER_TASK = 4,
    /* Rows of logits held at a time. */
    WEFTI_FORWARD_HEAD_ROWS = 64,
    /* Rows of a task of a product, at most. */
    WEFTI_FORWARD_BLOCK_ROWS_MAX = 576,
    /* Panels that the kernels take at a time, at most. */
    WEFTI_FORWARD_TILE_PANELS = 4,
    /* Room for gate or up: the fewest panels of the most rows; fewer rows get more panels. */
    WEFTI_FORWARD_FFN_TILE_FLOATS =
        WEFTI_FORWARD_BLOCK_ROWS_MAX * WEFTI_FORWARD_TILE_PANELS * WEFT_PANEL,
};

/* Layers differ in what attention sees, in its angles and its heads: some have no window, some have one. */
enum { WEFTI_FORWARD_FULL, WEFTI_FORWARD_WINDOWED, WEFTI_FORWARD_KINDS };

/* Heads in layers of a kind. KV heads are the most that this rank has of them in any of these. */
struct wefti_forward_heads {
    uint32_t head_dim, rope_dim, n_kv_heads;
    uint32_t group_heads; /* query heads of a kv head */
    float scale;          /* of scores */
};

/* The rows of a layer in the order of their experts: every thread works it out for itself. A row
 * takes n_used places; those of an expert lie together, and where they are many (`wide`) their
 * activations are interleaved, so that such an expert begins at a whole group. */
struct wefti_forward_sorted_rows {
    uint32_t *first, *n_rows; /* [n_experts] its first place, and how many it has */
    uint32_t *row;            /* [places] whose it is */
    float *weight;            /* [places] the router's, where it multiplies what is read; or NULL */
    uint32_t *place;          /* [rows][n_used] the way back */
    uint32_t n_places;
};

/* What one thread works in. */
struct wefti_forward_scratch {
    uint8_t *own[WEFT_ACT_COUNT]; /* WEFTI_FORWARD_OWN_ROWS rows */
    float *wide;        /* one row before conversion, or a group of rows of hidden_stride */
    float *beside;      /* [hidden]; where experts stand beside the feed-forward part */
    uint8_t *raw;       /* one embedding row as stored */
    float *tile, *gate; /* [WEFTI_FORWARD_FFN_TILE_FLOATS] */
    uint8_t *heads;     /* activations of one head, where there are latents */
    /* Only where there are experts: */
    uint8_t *few[WEFT_ACT_COUNT]; /* WEFTI_FORWARD_OWN_ROWS rows of an expert */
    struct wefti_forward_sorted_rows sorted;
    uint32_t *chosen; /* [WEFTI_FORWARD_OWN_ROWS][n_used] */
    float *weights;   /* the same */
};

struct wefti_forward {
    const struct weft_kern_table *kern;
    struct wefti_pool *pool;
    struct wefti_profile *profile; /* NULL: off */
    const struct wefti_weights *weights;
    const struct wefti_kv_cache *kv;

    /* Where the model is divided among ranks; else coll is NULL and n_ranks 1. */
    weft_coll *coll;
    uint32_t rank, n_ranks;
    size_t part_stride, shared_at; /* of rows of parts; where the shared expert's begin in them */
    bool has_agreed;               /* the ranks on who has which experts */
    uint32_t *shared_tokens;       /* [rows] that the first rank sampled */
    weft_err failed;               /* written at a meeting: the group is over */
    struct weft_errmsg failure;
    _Atomic uint64_t meeting_ns; /* in meetings with other ranks, for anybody to read */

    /* The shape of the model, and strides of rows in floats. Heads and inner columns of the FFN are
     * the most that this rank has of them in any layer. */
    uint32_t n_threads, n_layers, n_heads, n_hidden, n_ffn;
    uint32_t narrow_layer;       /* the last that has keys and values of its own, or a state */
    uint32_t head_dim, rope_dim; /* the largest of the kinds */
    uint32_t q_dim, max_rows;
    struct wefti_forward_heads of_kind[WEFTI_FORWARD_KINDS];
    uint32_t latent_dim; /* 0: attention is the usual one, and the next line means nothing */
    uint32_t q_lora, nope_dim, v_dim;
    struct weft_model_indexer
        indexer; /* n_heads 0: there is none, and the next lines mean nothing */
    float index_scale;
    size_t index_k_stride, index_q_stride, index_weight_stride;
    size_t seen_stride; /* words; 0: no sequence has more positions than a row attends to */
    size_t index_room;  /* scores of a round */
    uint32_t windows[WEFTI_FORWARD_KINDS]; /* 0: none; layers of either kind may be all there are */
    float rms_eps, embed_scale, residual_scale, logit_scale;
    float attn_soft_cap, logit_soft_cap;
    bool is_exact; /* attention rounds no queries and no weights */
    bool rope_interleaved, qk_norm_all, head_norms;
    bool layer_norm;         /* norms take the mean off */
    bool parallel, one_norm; /* both halves of a layer read what it reads; by one norm */
    bool beside; /* recurrent parts stand beside attention, and both read what a layer reads */
    bool norms_turned; /* q and k are normalised after they are turned */
    /* q is multiplied by 1 + q_beta * ln(1 + floor((position + q_shift) / q_step)), where it is not turned or
     * everywhere; q_step 0: nowhere */
    uint32_t q_step, q_shift;
    float q_beta;
    bool q_unturned;
    bool plain_qk_norm; /* q and k that are turned are normalised, without weights */
    bool in_chunks;     /* windows are chunks */
    bool has_attn_gate;
    bool plain_v_norm;  /* heads of values are normalised, without weights */
    uint32_t input_dim; /* elements of a layer's own embeddings; 0: there are none */
    float score_scale;  /* of routers' scores */
    float act_limit;    /* of act_mul in its clamped form; 0: it is not */
    bool squares_relu;  /* in place of act_mul */
    float gate_scale;   /* of gates before they are activated */
    float attention_scale, recurrent_scale, ffn_scale; /* of what halves yield */
    float row_scales[5];                               /* see scale_parts; 0: none */
    const struct wefti_states *states;                 /* of recurrent layers, or NULL */
    struct wefti_mixer mixer;                          /* what those have in common */
    uint32_t norm_channels; /* that Mamba-2 normalises together; 0: none */
    size_t rec_stride, conv_stride, gate_stride, rec_out_stride;
    size_t gathered_stride; /* of rows that ranks gather; 0: they do not */
    float *gathered;        /* [rows] in the group's memory */
    bool weighs_inputs;     /* routers' weights multiply what experts read */
    bool has_positions;     /* learned: nothing turns */
    uint32_t first_position;
    /* What becomes of a gate: kern's silu_mul or its like. */
    void (*act_mul)(const float *gate, const float *up, uint32_t n, float *y);
    bool
        adds_apart; /* the output of halves of layers is scaled or normalised before it is added, or their
                        sum is normalised */
    uint32_t no_rope[WEFT_LAYERS_MAX / 32], no_window[WEFT_LAYERS_MAX / 32];
    uint32_t n_kinds;                                   /* how many of them the model has */
    enum weft_kv_kind block_kinds[WEFTI_FORWARD_KINDS]; /* what their blocks are */
    bool uses[WEFT_ACT_COUNT];
    size_t act_bytes[WEFT_ACT_COUNT]; /* of the widest row */
    size_t x_stride, q_stride, out_stride, kv_stride, ffn_stride, logit_stride, rope_stride;
    size_t q_a_stride, heads_stride, joined_stride, inputs_stride;
    size_t hidden_stride; /* of the widest row that is normalised */

    /* For sequences with a short prompt, and with a long one. */
    struct weft_rope ropes[WEFTI_FORWARD_KINDS][2];

    /* Buffers of all threads. */
    float *rope[WEFTI_FORWARD_KINDS]; /* [rows][rope_stride] cos and sin pairs */
    float *x;                         /* [rows][x_stride] the residual stream */
    float *inputs; /* [rows][inputs_stride] the layers' own embeddings, layer by layer; or NULL */
    float *read;   /* [rows][x_stride] what a layer reads, where both of its halves do; or NULL */
    float *joined; /* [rows][joined_stride] of a predictor: embeddings beside states; or NULL */
    float *added;  /* [rows][x_stride] to scale or normalise before it is added, or of the shared
                     expert; or NULL */
    float *q, *k, *v, *attn; /* [rows][q_stride, kv_stride twice, out_stride] */
    float *attn_gate;        /* [rows][out_stride] of what heads yield; or NULL */
    /* Recurrent layers, in the same memory: projected rows, what the convolution makes, gates, and what comes out. */
    float *rec_rows, *rec_conv, *rec_gates, *rec_out;
    float *ones;  /* [head_dim], where norms of heads have no weights */
    float *q_a;   /* [rows][q_a_stride]; with latents */
    float *heads; /* [rows][heads_stride]; with latents: queries, then values */
    /* With an indexer: keys, queries and weights of their heads, [rows] of each stride; scores of a round; and what
     * rows attend to, [rows][seen_stride]. */
    float *index_k, *index_q, *index_weights, *index_scores;
    uint64_t *seen;
    /* [rows, to whole groups][ffn_stride], in the same memory as q..attn; or activations of `down`. */
    float *ffn;
    uint8_t *shared[WEFT_ACT_COUNT]; /* [rows] converted activations */
    float *logits; /* [WEFTI_FORWARD_HEAD_ROWS][logit_stride]; divided: in the group's memory */
    struct weft_attn_row *last_rows[WEFTI_FORWARD_KINDS]; /* [rows] the rows that go on, by kinds */
    struct wefti_forward_attn_tile *tiles[WEFTI_FORWARD_KINDS];      /* [rows] */
    struct wefti_forward_attn_tile *last_tiles[WEFTI_FORWARD_KINDS]; /* [rows] of last_rows */
    float *parts; /* [parts_max] sums of a row and span */
    size_t parts_max;
    struct wefti_forward_scratch *threads; /* [n_threads] */

    /* Where there are experts. */
    struct weft_model_moe moe;
    size_t score_stride, inner_stride;
    uint32_t expert_width; /* of what experts read and yield */
    size_t latent_stride;
    float *latent;        /* [rows][latent_stride] either, where that is not the hidden state */
    float *scores;        /* [rows][score_stride] */
    uint32_t *chosen;     /* [rows][n_used] */
    float *route_weights; /* the same */
    uint8_t *sorted[WEFT_ACT_COUNT]; /* [places] activations of experts */
    float *inner;                    /* [places][inner_stride] */
    float *outer;                    /* [places][x_stride] */
    uint64_t *expert_tokens;         /* [n_layers][n_experts] */

    struct wefti_forward_lora *lora; /* NULL: there are no adapters */
    weft_eng_routes_fn *on_routes;   /* NULL: nobody watches */
    void *on_routes_ctx;
    weft_eng_calib *calib; /* NULL: no calibration watches */
    void *map;
    size_t map_bytes;
};

/* One thread's view of a pass. */
struct wefti_forward_thread {
    struct wefti_forward *forward;
    const struct wefti_forward_pass *pass; /* of forward.c */
    struct wefti_forward_scratch *scratch;
    struct wefti_profile_log *log; /* NULL: nobody wants to know */
    /* Rows with adapters: of the batch, and of those that go on in the last layer. NULL: none has any. */
    const struct wefti_forward_lora_plan *lora, *last_lora;
    uint32_t idx;
};

/* A norm: an offset of its weights, and of what it adds; 0: none. */
struct wefti_forward_norm {
    size_t weight, bias;
};

/* y = the norm of x; both of n. */
static inline void wefti_forward_normalise(const struct wefti_forward *f, const float *x,
                                           struct wefti_forward_norm norm, uint32_t n, float *y) {
    const float *w = wefti_weights_vector(f->weights, norm.weight);
    const float *b = norm.bias ? wefti_weights_vector(f->weights, norm.bias) : NULL;
    WEFT_ASSERT(norm.weight > 0);
    if (f->layer_norm)
        f->kern->layer_norm(x, w, b, f->rms_eps, n, y);
    else
        f->kern->rms_norm(x, w, f->rms_eps, n, y);
}

/* The vector at an offset; NULL: the model has none. */
static inline const float *wefti_forward_vector(const struct wefti_forward *f, size_t offset) {
    return offset ? wefti_weights_vector(f->weights, offset) : NULL;
}

/* How a half of a layer ends. */
struct wefti_forward_half_end {
    size_t bias;                         /* of its last product */
    float scale;                         /* of what is added, beside the model's own; 0: 1 */
    struct wefti_forward_norm post, sum; /* of what is added; and of what that leaves */
    size_t whole;                        /* a factor of that; 0: 1 */
};

static inline struct wefti_forward_half_end
wefti_forward_ffn_end(const struct wefti_forward *f, const struct wefti_weights_layer *layer) {
    return (struct wefti_forward_half_end){.bias = layer->b_down,
                                           .scale = f->ffn_scale,
                                           .post = {layer->post_ffn_norm, 0},
                                           .sum = {layer->ffn_sum_norm, layer->ffn_sum_bias},
                                           .whole = f->input_dim ? 0 : layer->layer_scale};
}

/* x += a row of a half's output, which may be changed. */
static inline void wefti_forward_add_row(const struct wefti_forward *f, float *x, float *added,
                                         const struct wefti_forward_half_end *half) {
    if (half->post.weight) wefti_forward_normalise(f, added, half->post, f->n_hidden, added);
    const float scale = half->scale != 0 ? f->residual_scale * half->scale : f->residual_scale;
    for (uint32_t i = 0; i < f->n_hidden; i++)
        x[i] += scale * added[i];
    if (half->sum.weight) wefti_forward_normalise(f, x, half->sum, f->n_hidden, x);
    const float *whole = wefti_forward_vector(f, half->whole);
    for (uint32_t i = 0; whole && i < f->n_hidden; i++)
        x[i] *= whole[0];
}

/* Of the rows that a layer has after attention. */
static inline const struct wefti_forward_lora_plan *
wefti_forward_lora_after(const struct wefti_forward_thread *thread, uint32_t layer) {
    return layer >= thread->forward->narrow_layer ? thread->last_lora : thread->lora;
}

/* The thread turns to `op`. */
static inline void wefti_forward_mark(const struct wefti_forward_thread *thread,
                                      enum weft_eng_op op) {
    if (thread->log) wefti_profile_mark(thread->log, op);
}

static inline uint32_t wefti_forward_layer_kind(const struct wefti_forward *f, uint32_t layer) {
    return f->n_kinds == 1 || weft_model_bit(f->no_window, layer) ? WEFTI_FORWARD_FULL
                                                                  : WEFTI_FORWARD_WINDOWED;
}

/* The kind of the blocks that a layer reads and writes. */
static inline enum weft_kv_kind wefti_forward_block_kind(const struct wefti_forward *f,
                                                         uint32_t layer) {
    return f->block_kinds[wefti_forward_layer_kind(f, layer)];
}

/* Whether a row of the batch writes its keys and values to the blocks of a layer. */
static inline bool wefti_forward_writes(const struct wefti_forward *f,
                                        const struct wefti_forward_batch *batch, uint32_t layer,
                                        uint32_t row) {
    bool is_full = wefti_forward_block_kind(f, layer) == WEFT_KV_FULL;
    return !(is_full && batch->is_written && batch->is_written[row]);
}

/* The next task of a phase. */
static inline uint32_t wefti_forward_take_task(const struct wefti_forward_thread *thread) {
    return wefti_pool_take(thread->forward->pool, thread->idx);
}

/* The next rows begin..end of a phase, `per_task` at a time; false: there are none left. */
static inline bool wefti_forward_take_rows(const struct wefti_forward_thread *thread,
                                           uint32_t n_rows, uint32_t per_task, uint32_t *begin_out,
                                           uint32_t *end_out) {
    uint32_t task = wefti_forward_take_task(thread);
    if (task >= (n_rows + per_task - 1) / per_task) return false;
    *begin_out = task * per_task;
    *end_out = *begin_out + weft_min_u32(per_task, n_rows - *begin_out);
    return true;
}

/* Ends a phase. */
static inline void wefti_forward_end_phase(const struct wefti_forward_thread *thread) {
    wefti_forward_mark(thread, WEFT_ENG_OP_WAIT);
    wefti_pool_barrier(thread->forward->pool);
}

static inline const struct wefti_forward_heads *
wefti_forward_heads_of(const struct wefti_forward *f, uint32_t layer) {
    return &f->of_kind[wefti_forward_layer_kind(f, layer)];
}

/* How long values are in the cache, at most. */
static inline uint32_t wefti_forward_value_dim(const struct wefti_forward *f) {
    return f->latent_dim ? f->latent_dim : f->head_dim;
}

#endif
