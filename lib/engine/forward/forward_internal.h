/* engine, private — what the files of the forward pass share.
 *
 *   forward.c         the pass: what runs in which order on every thread
 *   forward_memory.c  shapes, strides and buffers
 *   activations.c     rows normalised and converted to what products want
 *   products.c        matrix products, cut into tasks
 *   experts.c         layers with experts
 *   attention.c       attention, cut into tasks
 *   latent.c          what is around it where it is latent
 *
 * The pool runs one function on all threads; each sees the pass through its own lane. Phases end
 * with a barrier, and within a phase threads take tasks, so every function here that says it ends
 * a phase is called by all threads with the same arguments.
 */
#ifndef WEFT_ENGINE_FORWARD_INTERNAL_H
#define WEFT_ENGINE_FORWARD_INTERNAL_H

#include "engine_internal.h"

enum {
    WEFTI_FORWARD_OWN_ROWS = 4, /* up to here each thread converts the activations for itself */
    WEFTI_FORWARD_ROWS_PER_TASK =
        4,                        /* of rope; and of norms and conversions that do not interleave */
    WEFTI_FORWARD_HEAD_ROWS = 64, /* logits held at a time */
    WEFTI_FORWARD_BLOCK_ROWS_MAX = 576, /* rows of one task of a product */
    WEFTI_FORWARD_TILE_PANELS = 4,      /* the kernels take up to so many panels at a time */
    /* Of gate or up: enough for the fewest panels of the most rows; fewer rows get more panels. */
    WEFTI_FORWARD_FFN_TILE_FLOATS =
        WEFTI_FORWARD_BLOCK_ROWS_MAX * WEFTI_FORWARD_TILE_PANELS * WEFT_PANEL,
};

/* Layers may differ in what attention sees and how it is turned: those without a window, and those
 * with one. */
enum { WEFTI_FORWARD_FULL, WEFTI_FORWARD_WINDOWED, WEFTI_FORWARD_KINDS };

/* The rows of a layer in the order of their experts: every thread works it out for itself. A row
 * takes n_used places; those of an expert lie together, and where they are many (`wide`) their
 * activations are interleaved, so that such an expert begins at a whole group. */
struct wefti_forward_sorted_rows {
    uint32_t *first, *n_rows; /* [n_experts] its first place, and how many it has */
    uint32_t *row;            /* [places] whose it is */
    uint32_t *place;          /* [rows][n_used] the way back */
    uint32_t n_places;
};

/* Of one thread. */
struct wefti_forward_scratch {
    uint8_t *own[WEFT_ACT_COUNT]; /* WEFTI_FORWARD_OWN_ROWS rows */
    float *wide;                  /* one row before conversion */
    uint8_t *raw;                 /* one embedding row as stored */
    float *tile;                  /* [WEFTI_FORWARD_FFN_TILE_FLOATS] */
    uint8_t *heads;               /* of latent.c: activations of one head */
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
    uint32_t n_threads, n_layers, n_heads, n_kv_heads, head_dim, rope_dim, n_hidden, n_ffn;
    uint32_t q_dim, max_rows;
    uint32_t latent_dim; /* 0: attention is the usual one; what follows is of latents */
    uint32_t q_lora, nope_dim, v_dim;
    uint32_t windows[WEFTI_FORWARD_KINDS]; /* 0: none; layers of either kind may be all there are */
    float rms_eps, attn_scale, embed_scale, residual_scale, logit_scale;
    float attn_soft_cap, logit_soft_cap;
    bool rope_interleaved, gelu, qk_norm_all;
    bool adds_apart; /* what halves of layers add is first put into `added` */
    uint32_t no_rope[WEFT_LAYERS_MAX / 32], no_window[WEFT_LAYERS_MAX / 32];
    uint32_t n_kinds; /* of layers */
    bool uses[WEFT_ACT_COUNT];
    size_t act_bytes[WEFT_ACT_COUNT]; /* of the widest row */
    size_t x_stride, q_stride, out_stride, kv_stride, ffn_stride, logit_stride, rope_stride;
    size_t q_a_stride, heads_stride;

    struct weft_rope ropes[WEFTI_FORWARD_KINDS]
                          [2];        /* of sequences with a short prompt, and a long one */
    float *rope[WEFTI_FORWARD_KINDS]; /* [rows][rope_stride] cos and sin pairs */
    float *x;                         /* [rows][x_stride] the residual stream */
    float *added; /* the same: what is scaled or normalised before it is added; or NULL */
    float *q, *k, *v, *attn;         /* [rows][q_stride, kv_stride twice, out_stride] */
    float *q_a;                      /* [rows][q_a_stride] of latents */
    float *heads;                    /* [rows][heads_stride] of latents: queries, then values */
    float *ffn;                      /* [rows][ffn_stride], in the same memory as q..attn */
    uint8_t *shared[WEFT_ACT_COUNT]; /* [rows] converted activations */
    float *logits;                   /* [WEFTI_FORWARD_HEAD_ROWS][logit_stride] */
    struct weft_attn_row *last_rows; /* [rows] the rows that go on in the last layer */
    struct wefti_forward_attn_tile *tiles[WEFTI_FORWARD_KINDS],
        *last_tiles[WEFTI_FORWARD_KINDS]; /* [rows] */
    float *parts;                         /* [parts_max] sums of a row and span */
    size_t parts_max;
    struct wefti_forward_scratch *threads;
    struct weft_model_moe moe;
    size_t score_stride, inner_stride;
    float *scores;                   /* [rows][score_stride] of experts */
    uint32_t *chosen;                /* [rows][n_used] */
    float *route_weights;            /* the same */
    uint8_t *sorted[WEFT_ACT_COUNT]; /* [places] activations of experts */
    float *inner;                    /* [places][inner_stride] */
    float *outer;                    /* [places][x_stride] */
    uint64_t *expert_tokens;         /* [n_layers][n_experts] */
    weft_eng_routes_fn *on_routes;
    void *on_routes_ctx;
    weft_eng_calib *calib; /* NULL but while a calibration watches */
    void *map;
    size_t map_bytes;
};

/* One thread's view of a run. */
struct wefti_forward_thread {
    struct wefti_forward *forward;
    const struct wefti_forward_pass *pass; /* of forward.c */
    struct wefti_forward_scratch *scratch;
    struct wefti_profile_log *log; /* NULL: nobody wants to know */
    uint32_t idx;
};

/* From here on this thread is busy with `op`. */
static inline void wefti_forward_mark(const struct wefti_forward_thread *thread,
                                      enum weft_eng_op op) {
    if (thread->log) wefti_profile_mark(thread->log, op);
}

static inline uint32_t wefti_forward_layer_kind(const struct wefti_forward *f, uint32_t layer) {
    return f->n_kinds == 1 || weft_model_bit(f->no_window, layer) ? WEFTI_FORWARD_FULL
                                                                  : WEFTI_FORWARD_WINDOWED;
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

/* ----------------------------------------------------------------------------- activations --- */

/* A source of activations: rows of f32, all of them or those listed, perhaps to be normalised. */
struct wefti_forward_source {
    const float *rows;
    size_t stride;
    const uint32_t *index; /* NULL: row i is i */
    const float *norm;     /* NULL: as they are */
    bool apart;            /* rows are not interleaved, however many they are */
};

/* Rows of activations in the forms a group of products wants. */
struct wefti_forward_acts {
    uint32_t group; /* rows are interleaved by so many; 1: they are not */
    const uint8_t *rows[WEFT_ACT_COUNT];
    size_t row_bytes[WEFT_ACT_COUNT];
};

/* Once: which forms the weights ask for, and how wide their rows get. */
void wefti_forward_acts_note_forms(struct wefti_forward *f);

/* The activations of `n_rows` rows for the products in `group`, ready for this thread when it
 * returns. Ends a phase unless each thread made its own. */
struct wefti_forward_acts wefti_forward_acts_make(const struct wefti_forward_thread *thread,
                                                  const struct wefti_forward_source *src,
                                                  uint32_t n_rows,
                                                  const struct wefti_weights_matrix *const *group,
                                                  uint32_t n_group);

/* Shows them to the calibration, if one watches. */
void wefti_forward_acts_observe(const struct wefti_forward_thread *thread, uint32_t layer,
                                enum wefti_calib_input input, const struct wefti_forward_acts *acts,
                                uint32_t n_rows);

/* -------------------------------------------------------------------------------- products --- */

/* c = activations * matrix, plus `bias` and `residual` where there are such; rows of c and residual
 * are ldc apart. */
struct wefti_forward_product {
    const struct wefti_weights_matrix *matrix;
    float *c;
    size_t ldc;
    const float *residual; /* NULL: none; may be c */
    const float *bias;     /* NULL: none */
};

/* All products of the same activations. Ends a phase. */
void wefti_forward_multiply(const struct wefti_forward_thread *thread,
                            const struct wefti_forward_acts *acts, uint32_t n_rows,
                            const struct wefti_forward_product *products, uint32_t n_products);

/* ffn = silu(gate) * up. Ends a phase. */
void wefti_forward_gate_up(const struct wefti_forward_thread *thread,
                           const struct wefti_forward_acts *acts,
                           const struct wefti_weights_layer *layer, uint32_t n_rows);

/* Panels begin..end of rows row..row+n_rows: part of a task. */
struct wefti_forward_piece {
    uint32_t row, n_rows, begin, end;
};

/* A piece of a product, and of c = silu(gate) * up, for which it is no larger than
 * WEFTI_FORWARD_FFN_TILE_FLOATS. Both speak of row 0 and column 0. */
void wefti_forward_multiply_piece(const struct wefti_forward *f,
                                  const struct wefti_forward_acts *acts,
                                  const struct wefti_forward_product *product,
                                  const struct wefti_forward_piece *piece);
void wefti_forward_gate_up_piece(const struct wefti_forward_thread *thread,
                                 const struct wefti_forward_acts *acts,
                                 const struct wefti_forward_product *gate,
                                 const struct wefti_weights_matrix *up,
                                 const struct wefti_forward_piece *piece);

/* Rows of a block, and panels of a run of them, that stay in cache while they are computed. */
uint32_t wefti_forward_block_rows(size_t row_bytes);
uint32_t wefti_forward_run_panels(size_t panel_bytes);

/* --------------------------------------------------------------------------------- experts --- */

/* The feed-forward half of a layer with experts: x += what they and the shared one yield. Ends a
 * phase. */
void wefti_forward_experts(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                           uint32_t n_rows);

/* Places that the experts of `n_rows` rows take at most. */
size_t wefti_forward_places_max(const struct wefti_forward *f, size_t n_rows);

/* ------------------------------------------------------------------------------- attention --- */

struct wefti_forward_attn_tile {
    uint32_t begin, end;
    uint32_t span_begin, n_spans; /* what its rows see any of */
    size_t part;                  /* where its sums of single spans begin: rows times spans */
};

/* The attention of some rows: tiles of rows, which threads share by kv head (or groups of the heads
 * that share a latent), and where that is not enough by spans of positions, too. All of it yields
 * the same bits. */
struct wefti_forward_attn_work {
    uint32_t window; /* 0: none */
    const struct weft_attn_row *rows;
    struct wefti_forward_attn_tile *tiles;
    uint32_t n_tiles;
    uint32_t n_spans;  /* of all tiles; 0: not shared by spans */
    uint32_t n_shares; /* of each of them: kv heads, or groups of the heads that share a latent */
};

/* What a layer's values are long in the cache. */
static inline uint32_t wefti_forward_value_dim(const struct wefti_forward *f) {
    return f->latent_dim ? f->latent_dim : f->head_dim;
}

/* Cuts the attention of `n` rows into tiles, for which `tiles` has room. */
struct wefti_forward_attn_work wefti_forward_attn_plan(const struct wefti_forward *f,
                                                       uint32_t window,
                                                       const struct weft_attn_row *rows, uint32_t n,
                                                       struct wefti_forward_attn_tile *tiles);

/* attn = attention of q over the layer's cache. Ends a phase, or two. */
void wefti_forward_attend(const struct wefti_forward_thread *thread, uint32_t layer,
                          const struct wefti_forward_attn_work *work);

/* Of latent attention: q, and rows of the cache, from the residual stream. Ends phases. */
void wefti_forward_latent_in(const struct wefti_forward_thread *thread, uint32_t layer,
                             const struct wefti_forward_batch *batch);

/* heads = the values of what rows attended to. Ends a phase. */
void wefti_forward_latent_out(const struct wefti_forward_thread *thread, uint32_t layer,
                              uint32_t n_rows);

/* Bytes that a thread needs for a head's activations. */
size_t wefti_forward_latent_bytes(const struct wefti_forward *f);

/* Positions that the rows see, and those that their tiles read. */
uint64_t wefti_forward_attn_seen(uint32_t window, const struct weft_attn_row *rows, uint32_t n);
uint64_t wefti_forward_attn_read(const struct wefti_forward *f,
                                 const struct wefti_forward_attn_work *work);

/* Sums of a row and span to have room for, where no sequence is longer than `n_context`, and the
 * floats of one of them, all heads. */
size_t wefti_forward_attn_parts_max(const struct wefti_forward *f, uint32_t n_context);
size_t wefti_forward_attn_part_floats(const struct wefti_forward *f);

#endif
