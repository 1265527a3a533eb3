/* engine/weights — the packed weights of a model, as the forward pass reads them.
 *
 * Model    All of a model lies in one arena: matrices as panels for the kernels, vectors as f32, an
 *          untied embedding table as in the file. The layout follows from the model and the options
 *          alone (plan.h), so a worker can tell whether an arena is the one it would make.
 * Memory   The arena is private memory, a memfd that outlives the worker (arena.h), or a packed
 *          file (packed_file.c); mapped read-only in any case.
 * Threads  Read by all compute threads once open. */
#ifndef WEFT_ENGINE_WEIGHTS_H
#define WEFT_ENGINE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "runtime/pool.h"

/* Where the model is divided among ranks, this is what its own rank has of all of these. */
struct wefti_weights_range {
    uint32_t begin, end;
};

struct wefti_weights_matrix {
    enum weft_gemm_kind kind;
    uint32_t n, k, n_panels;    /* 0: its rank has nothing of it */
    uint32_t k_whole;           /* columns of the model's matrix that the rank's are some of */
    struct weft_kern_segs segs; /* those of other ranks are empty */
    uint8_t present;            /* where ranks divide K: a bit for each segment of the whole sum
                                    that is not empty */
    size_t offset, panel_bytes; /* in the arena */
};

struct wefti_weights_expert {
    struct wefti_weights_matrix gate, up, down; /* alike for all experts of a layer */
    size_t b_gate, b_up, b_down;                /* offsets of f32 vectors; 0: none */
    bool is_own;                                /* its rank has it */
};

/* Groups in which experts are summed (docs/architecture.md, "Batch invariance"). */
enum { WEFTI_WEIGHTS_EXPERT_GROUPS = 8 };

/* One matrix per head: all of one shape and type, back to back. */
struct wefti_weights_heads {
    struct wefti_weights_matrix first;
    size_t head_bytes;
};

/* A matrix as in the file, of which rows are read one at a time. */
struct wefti_weights_rows {
    enum weft_dtype src;
    uint32_t n, k; /* n is 0: there is none */
    size_t offset, row_bytes;
};

/* What an encoder has outside of its layers; offsets are of f32 vectors, 0: none. */
struct wefti_weights_encoder {
    struct wefti_weights_rows types, positions; /* added to embeddings */
    size_t embed_norm, embed_bias;
    struct wefti_weights_rows dense, classifier; /* the head */
    size_t dense_bias, labels_bias;
};

/* What the rank has of a recurrent layer: heads, or channels of short convolutions, and the groups
 * that its heads read, which may be several ranks'. */
struct wefti_weights_recurrent {
    bool is_there;          /* the layer is recurrent, whoever has its heads */
    uint32_t first, n;      /* heads, or channels */
    uint32_t n_groups;      /* the own heads' keys, or B and C; 0: there are none */
    uint32_t skipped_heads; /* that read the first of these groups, or come before it in turn */
    uint32_t lead; /* numbers of heads before the own ones in rows, from a whole panel on */
    bool gathers;  /* a norm is over channels of several ranks, which all have to see */
    struct wefti_weights_range inner; /* columns of rec_out */
};

struct wefti_weights_layer {
    /* Heads of queries, and the kv heads that these read: a kv head may be several ranks'. The
     * first one serves group_heads queries of the model, of which `skipped_heads` are not this
     * rank's. The own ones begin at heads q_first and k_first of what q and k yield. */
    uint32_t n_heads, n_kv_heads, skipped_heads, q_first, k_first;
    size_t attn_norm, ffn_norm;                                       /* offsets of f32 vectors */
    size_t bq, bk, bv, q_norm, k_norm, post_attn_norm, post_ffn_norm; /* the same; 0: none */
    size_t bo, b_gate, b_up, b_down, attn_norm_bias, ffn_norm_bias;   /* likewise */
    /* Encoders. Norms of sums are of what halves of the layer leave behind. */
    size_t attn_sum_norm, attn_sum_bias, ffn_sum_norm, ffn_sum_bias;
    struct wefti_weights_matrix q, k, v, o;
    /* n is 0: only experts, of which none is shared; of up alone: gate is the only one of the two. */
    struct wefti_weights_matrix gate, up, down;
    struct wefti_weights_matrix router; /* for f32 */
    /* To what experts read and from what they yield, where that is of another width; else n is 0. */
    struct wefti_weights_matrix latent_in, latent_out;
    struct wefti_weights_expert *experts;            /* NULL: the layer has none */
    uint8_t group_rank[WEFTI_WEIGHTS_EXPERT_GROUPS]; /* who has a group of them */
    uint8_t group_slot[WEFTI_WEIGHTS_EXPERT_GROUPS]; /* and as which of its groups */
    size_t score_bias, shared_gate, b_router;        /* offsets of f32 vectors; 0: none */
    size_t sinks;                                    /* of this rank's heads; 0: none */
    struct wefti_weights_matrix attn_gate;           /* n is 0: there is none */
    /* Recurrent layers: what makes a row, part after part (n is 0: it is not there), the last product, and vectors. */
    struct wefti_weights_matrix rec_in[WEFT_MODEL_RECURRENT_PARTS], rec_out;
    struct wefti_weights_recurrent rec;
    size_t taps, conv_bias;     /* of the own channels */
    size_t dt_bias, rate, skip; /* of the own heads */
    size_t rec_norm;            /* of all */
    bool no_attention, no_ffn;
    /* Latent attention: q may come by way of q_a; k makes the cache's rows, and there is no v;
     * `up_k` takes a head's q into the space of latents, `up_v` the latent that a head attended to
     * into its values. */
    struct wefti_weights_matrix q_a; /* n is 0: there is none */
    size_t q_a_norm, latent_norm;
    struct wefti_weights_heads up_k, up_v;
    /* What only some families have; offsets of f32 vectors, 0: none. Norms of experts that stand beside the feed-forward
     * part, of that part and of the router, and a factor of each expert's weight. */
    size_t experts_norm, post_plain_norm, post_experts_norm, router_norm, expert_scale;
    struct wefti_weights_matrix input_gate,
        input_proj; /* of the layer's own embeddings; n is 0: none */
    size_t post_input_norm, layer_scale;
    uint32_t first_kv_head; /* of the model's, where ranks divide them */
    /* The indexer, all of it every rank's. */
    struct wefti_weights_matrix index_q, index_k, index_weights; /* n is 0: there is none */
    size_t index_norm, index_norm_bias;
};

/* All that the engine reads from a model, in one arena. The model file is closed after packing:
 * what happens to it later cannot reach a running worker. */
struct wefti_weights {
    uint8_t *base; /* mapped read-only once packed */
    size_t bytes;
    size_t map_bytes; /* of a packed file, which goes on after the arena; else 0 */
    /* The bytes that a step of one token reads: no header, no rows to gather, no gaps, and as many
     * experts as one token takes. */
    size_t step_bytes;
    bool inherited;
    uint64_t model_hash;
    uint64_t layout_hash; /* of the whole model's, the same for all ranks */
    uint64_t arena_hash;  /* of this rank's */
    uint32_t n_layers, n_vocab, n_hidden;
    uint32_t rank, n_ranks;
    struct wefti_weights_range vocab; /* tokens of the embedding and the head */
    uint32_t n_own_experts;           /* of the layer where they are most */
    bool moves_groups;                /* ranks have other groups of experts than in order */
    uint64_t placement_hash;          /* of who has which, the same for all ranks; 0: in order */
    uint32_t n_heads_max;             /* of the layers */
    struct wefti_weights_layer *layers;
    struct wefti_weights_expert *experts; /* all layers', or NULL */
    size_t final_norm, final_bias;        /* 0: there is none */
    struct wefti_weights_matrix head;     /* n is 0: there is none */
    struct wefti_weights_encoder encoder;
    /* Of a layer that predicts further tokens: what makes its input of embeddings and states. */
    size_t enorm, hnorm;                 /* offsets of f32 vectors */
    struct wefti_weights_matrix eh_proj; /* n is 0: it is a whole model */
    /* What makes the embeddings that tokens have for each layer; every rank has all of it. */
    struct wefti_weights_rows input_table; /* n is 0: there are none */
    struct wefti_weights_matrix input_model;
    size_t input_norm;
    bool tied;                           /* embedding rows are gathered from the head's panels */
    struct wefti_weights_rows embedding; /* else these are the rank's rows */
};

/* KV heads of the layer where the rank has most; where layers with a window have heads of their own, of these
 * layers (`local`) or of the others. */
uint32_t wefti_weights_kv_heads(const struct wefti_weights *weights,
                                const struct weft_model_params *params, bool local);

/* Where group `group` of the experts 0..n-1 ends. */
static inline uint32_t wefti_weights_expert_group_end(uint32_t n, uint32_t group) {
    return (uint32_t)((uint64_t)(group + 1) * n / WEFTI_WEIGHTS_EXPERT_GROUPS);
}

/* The tokens of a rank: whole panels of the head. */
struct wefti_weights_range wefti_weights_vocab_of(uint32_t n_vocab, uint32_t rank,
                                                  uint32_t n_ranks);

/* Decides on the layout of the weights of `model`, and so on their size; takes no memory for them
 * yet. *plan_out is the caller's, and borrows model and options. Errors: INVAL (options that the
 * model does not fit), NOMEM. In any case `weights` is to be closed. */
struct wefti_weights_plan;
WEFT_MUST_CHECK weft_err wefti_weights_lay_out(struct wefti_weights *weights,
                                               const weft_model *model,
                                               const struct weft_eng_options *options,
                                               struct wefti_weights_plan **plan_out,
                                               struct weft_errmsg *why);
void wefti_weights_plan_free(struct wefti_weights_plan *plan); /* accepts NULL */

/* Whether the weights are a packed file as it is, and so in the page cache. */
bool wefti_weights_are_mapped(const weft_model *model, const struct weft_eng_options *options);

/* How much of `weights` is memory that would have to be found: nothing of what is mapped, nor of
 * what an arena has already. */
uint64_t wefti_weights_bytes_to_come(const struct wefti_weights *weights,
                                     const struct wefti_weights_plan *plan);

/* What the rank's weights take by the type they are stored as: [WEFT_DT_COUNT]. */
const uint64_t *wefti_weights_bytes_of_type(const struct wefti_weights_plan *plan);

/* Packs or maps the weights that were laid out, of the `model` that was opened at `path`; tells
 * `loading` to who asked for it. Errors: NOMEM, STATE (options->weights_fd holds something else),
 * PROTO (damaged packed file). */
WEFT_MUST_CHECK weft_err wefti_weights_load(struct wefti_weights *weights,
                                            struct wefti_weights_plan *plan, const char *path,
                                            weft_model *model, struct wefti_pool *pool,
                                            struct weft_eng_loading *loading,
                                            struct weft_errmsg *why);
void wefti_weights_close(struct wefti_weights *weights); /* accepts zeroed and closed ones */

static inline const float *wefti_weights_vector(const struct wefti_weights *weights,
                                                size_t offset) {
    return (const float *)(const void *)(weights->base + offset);
}

/* Row `row` as f32. */
void wefti_weights_row(const struct wefti_weights *weights, const struct wefti_weights_rows *rows,
                       uint32_t row, float *out);

/* The embedding of `token`, one of this rank's, as f32; `raw`: scratch of 4 * n_hidden bytes. */
void wefti_weights_embed(const struct wefti_weights *weights, uint32_t token, uint8_t *raw,
                         float *out);

#endif
