/* engine, private — what its files share.
 *
 *   options.c       defaults and names
 *   memory.c        mappings, carved into pieces
 *   pool.c          compute threads, barrier, tile counter
 *   weights.c       the arena of packed weights (weights_internal.h lists its other files)
 *   calibrate.c     what a text says about matrices
 *   plan.c          checks a plan, changes nothing
 *   slots.c         sequences: start, grant, append
 *   forward.c       the pass over a flat batch (forward_internal.h lists its other files)
 *   routing.c       which experts a token takes
 *   sampler.c       logits to token, log-probabilities
 *   profile.c       who was busy with what, and when
 *   engine.c        opening, and one step end to end
 */
#ifndef WEFT_ENGINE_INTERNAL_H
#define WEFT_ENGINE_INTERNAL_H

#include "engine/engine.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/minmax.h"
#include "kernels/kernels.h"
#include "model/model.h"

/* Elements between rows of f32: every row starts on a cache line. */
static inline size_t wefti_memory_stride(size_t n) {
    return weft_round_up(n, 16);
}

/* As --dtype has it: "q8". */
const char *wefti_options_dtype_name(enum weft_eng_dtype dtype);

/* ------------------------------------------------------------------------------- memory map --- */

/* Zeroed pages from the kernel, not from the heap; resident only where touched. NULL: none left. */
void *wefti_memory_map(size_t bytes);
void wefti_memory_unmap(void *base, size_t bytes); /* accepts NULL */

/* Carves one mapping into 64-byte aligned pieces. With base NULL it only adds up the sizes, so the
 * same function lays memory out twice: first to measure, then to assign. */
struct wefti_memory_layout {
    uint8_t *base;
    size_t used;
};
void *wefti_memory_reserve(struct wefti_memory_layout *layout, size_t count, size_t elem_bytes);

/* ------------------------------------------------------------------------------------- pool --- */

struct wefti_pool;
typedef void wefti_pool_fn(void *ctx, uint32_t thread_idx);

/* CPUs this process was given at its start. */
uint32_t wefti_pool_n_cpus(void);

/* n_threads - 1 threads; the caller of wefti_pool_run is thread 0. Pinned, one per allowed CPU,
 * where there are exactly as many threads as CPUs. */
WEFT_MUST_CHECK weft_err wefti_pool_new(uint32_t n_threads, struct wefti_pool **pool_out,
                                        struct weft_errmsg *why);
void wefti_pool_free(struct wefti_pool *pool); /* accepts NULL */

/* Gives the calling thread its CPUs back, if a run pinned it; the next run pins anew. So does
 * wefti_pool_free. */
void wefti_pool_unpin_caller(struct wefti_pool *pool);

/* Calls fn(ctx, 0..n_threads-1), one per thread, and returns when all have. */
void wefti_pool_run(struct wefti_pool *pool, wefti_pool_fn *fn, void *ctx);

/* Inside a run, by every thread: ends a phase. What was written before it is seen by all behind it.
 */
void wefti_pool_barrier(struct wefti_pool *pool);

/* Inside a run: 0, 1, 2, ... within a phase, each to one thread. */
uint32_t wefti_pool_take(struct wefti_pool *pool, uint32_t thread_idx);

/* The thread got on (take says so, too); the sum may be read from anywhere. */
void wefti_pool_progress(struct wefti_pool *pool, uint32_t thread_idx);
uint64_t wefti_pool_progress_sum(const struct wefti_pool *pool);
uint32_t wefti_pool_n_threads(const struct wefti_pool *pool);

/* ---------------------------------------------------------------------------------- weights --- */

struct wefti_weights_matrix {
    enum weft_gemm_kind kind;
    uint32_t n, k, n_panels;
    struct weft_kern_segs segs;
    size_t offset, panel_bytes; /* in the arena */
};

struct wefti_weights_expert {
    struct wefti_weights_matrix gate, up, down; /* of a layer's experts all are alike */
};

/* A matrix of its own for each head, all alike and one behind the other. */
struct wefti_weights_heads {
    struct wefti_weights_matrix first;
    size_t head_bytes;
};

struct wefti_weights_layer {
    size_t attn_norm, ffn_norm;                                       /* offsets of f32 vectors */
    size_t bq, bk, bv, q_norm, k_norm, post_attn_norm, post_ffn_norm; /* the same; 0: none */
    struct wefti_weights_matrix q, k, v, o;
    struct wefti_weights_matrix gate, up, down; /* n is 0: only experts, of which none is shared */
    struct wefti_weights_matrix router;         /* for f32 */
    struct wefti_weights_expert *experts;       /* NULL: the layer has none */
    size_t score_bias, shared_gate;             /* offsets of f32 vectors; 0: none */
    /* Latent attention: q may come by way of q_a; k makes the cache's rows, and there is no v;
     * `up_k` takes a head's q to where it meets latents, `up_v` the latent a head attended to its
     * values. */
    struct wefti_weights_matrix q_a; /* n is 0: there is none */
    size_t q_a_norm, latent_norm;
    struct wefti_weights_heads up_k, up_v;
};

/* Everything the engine reads of a model, in one arena. The model file is closed after packing:
 * what happens to it later cannot reach a running worker. */
struct wefti_weights {
    uint8_t *base; /* mapped read-only once packed */
    size_t bytes;
    size_t map_bytes; /* of a packed file, which goes on behind the arena; else 0 */
    /* What a step of one token reads: no header, no rows to gather, no gaps, of experts a token's
     * share. */
    size_t step_bytes;
    bool inherited;
    uint64_t model_hash, layout_hash;
    uint32_t n_layers, n_vocab, n_hidden;
    struct wefti_weights_layer *layers;
    struct wefti_weights_expert *experts; /* of all layers, or NULL */
    size_t final_norm;
    struct wefti_weights_matrix head;
    bool tied;                    /* embedding rows are gathered from the head's panels */
    enum weft_kern_src embed_src; /* else they stand as in the file, embed_row_bytes apart */
    size_t embed_offset, embed_row_bytes;
};

WEFT_MUST_CHECK weft_err wefti_weights_open(struct wefti_weights *weights, const char *path,
                                            weft_model *model,
                                            const struct weft_eng_options *options,
                                            struct wefti_pool *pool, struct weft_errmsg *why);
void wefti_weights_close(struct wefti_weights *weights); /* accepts zeroed and closed ones */

static inline const float *wefti_weights_vector(const struct wefti_weights *weights,
                                                size_t offset) {
    return (const float *)(const void *)(weights->base + offset);
}

/* The embedding of `token` as f32; `raw`: scratch of 4 * n_hidden bytes. */
void wefti_weights_embed(const struct wefti_weights *weights, uint32_t token, uint8_t *raw,
                         float *out);

/* -------------------------------------------------------------------------------- calibration ---
 */

/* What matrices of a layer have as their input; of the head, whatever the layer. */
enum wefti_calib_input {
    WEFTI_CALIB_QKV,
    WEFTI_CALIB_O,
    WEFTI_CALIB_FFN,
    WEFTI_CALIB_DOWN,
    WEFTI_CALIB_HEAD,
    WEFTI_CALIB_ROUTER, /* not calibrated */
};
enum { WEFTI_CALIB_LAYER_INPUTS = WEFTI_CALIB_HEAD };
#define WEFTI_CALIB_IMPORTANCE_MAX                                                                 \
    1e30f /* also of what is infinite or NaN: a sum of them stays finite                           \
           */

WEFT_MUST_CHECK weft_err wefti_calib_new(uint32_t n_layers, uint32_t n_hidden, uint32_t q_dim,
                                         uint32_t n_ffn, weft_eng_calib **calib_out,
                                         struct weft_errmsg *why);
bool wefti_calib_fits(const weft_eng_calib *calib, const struct weft_model_params *p);

/* Rows of f32, all columns of that input, interleaved by `group` (1: they are not). One thread at a
 * time. */
void wefti_calib_add(weft_eng_calib *calib, uint32_t layer, enum wefti_calib_input input,
                     const uint8_t *rows, size_t row_bytes, uint32_t group, uint32_t n_rows);

/* How much each column matters, inputs at wefti_calib_offset; malloc'd. NULL: no memory. *hash_out
 * goes on with them. */
float *wefti_calib_importance(const weft_eng_calib *calib, uint64_t *hash_out);
size_t wefti_calib_offset(const weft_eng_calib *calib, uint32_t layer,
                          enum wefti_calib_input input);

/* ---------------------------------------------------------------------------------- sampler --- */

struct wefti_sampler_scratch { /* one per thread */
    float *work;               /* [n_vocab] */
    uint32_t *counts;          /* [n_vocab], all zero between calls */
    uint32_t *hist_n;          /* [WEFTI_SAMPLER_BUCKETS] */
    double *hist_mass;         /* [WEFTI_SAMPLER_BUCKETS] */
    uint32_t *ids;             /* [n_vocab] */
    float *maxima, *best;      /* [wefti_sampler_n_chunks(n_vocab)] each */
    double *sums;              /* [wefti_sampler_n_chunks(n_vocab)] */
};
enum { WEFTI_SAMPLER_BUCKETS = 2048 };

static inline uint32_t wefti_sampler_n_chunks(uint32_t n_vocab) {
    return (n_vocab + WEFT_CHUNK - 1) / WEFT_CHUNK;
}

struct wefti_sampler_input {
    const struct weft_sampling *sampling;
    uint32_t choice;
    const uint32_t *tokens; /* [n_known] */
    uint32_t n_prompt, n_known;
};

/* True when sampling leaves the logits as they are: greedy, nothing that changes them. */
bool wefti_sampler_is_plain(const struct wefti_sampler_input *sample);

/* The next token. Changes `logits` unless plain. */
uint32_t wefti_sampler_choose(const struct weft_kern_table *kern,
                              const struct wefti_sampler_input *sample, float *logits,
                              uint32_t n_vocab, struct wefti_sampler_scratch *scratch);

/* Log-probability and rank of `token` and the n_top best, from raw logits. */
void wefti_sampler_logprobs(const struct weft_kern_table *kern, const float *logits,
                            uint32_t n_vocab, uint32_t token, uint32_t n_top, uint32_t *top_ids,
                            float *top_logprobs, struct weft_logprobs *out);

/* ------------------------------------------------------------------------------------ slots --- */

struct wefti_slot {
    bool used, gen_known; /* gen_known: `gen` is that of the last sequence here, even if !used */
    uint32_t gen, choice;
    uint32_t n_prompt, n_known, n_computed, n_table;
    uint32_t n_prompt_logprobs_done;
    enum weft_finish finish; /* != NONE: later rows are no-ops */
    struct weft_sampling sampling;
    uint32_t *tokens;             /* [max_model_len] */
    uint32_t *table;              /* [table_cap] */
    uint32_t *stop_tokens;        /* [WEFT_STOP_TOKENS_MAX], behind sampling.stop_tokens and
                                     .masked_tokens */
    struct weft_logit_bias *bias; /* [WEFT_LOGIT_BIAS_MAX] */
};

struct wefti_slots {
    uint32_t n_slots, max_model_len, block_size, n_blocks, n_vocab, max_batched_tokens;
    uint32_t table_cap;
    struct wefti_slot *slots;
    struct wefti_slot_shadow *shadows; /* of plan.c */
    uint64_t shadow_stamp;
    void *map;
    size_t map_bytes;
};

WEFT_MUST_CHECK weft_err wefti_slots_init(struct wefti_slots *slots,
                                          const struct weft_eng_info *info,
                                          struct weft_errmsg *why);
void wefti_slots_fini(struct wefti_slots *slots);
void wefti_slots_clear(struct wefti_slots *slots);

/* Of checked arguments; cannot fail. */
void wefti_slot_start(struct wefti_slots *slots, const struct weft_step_start *start);
void wefti_slot_grant(struct wefti_slots *slots, const struct weft_step_grant *grant);
void wefti_slot_release(struct wefti_slots *slots, const struct weft_step_release *release);

/* Appends a sampled token and decides whether it was the last. */
void wefti_slot_append(struct wefti_slots *slots, struct wefti_slot *slot, uint32_t token);

/* What decides on the log-probabilities of its next row. */
struct weft_step_seq wefti_slot_seq(const struct wefti_slots *slots, const struct wefti_slot *slot);

/* Whether reaching the last known token yields another one (else the sequence ends there). */
bool wefti_slot_may_sample(const struct wefti_slots *slots, const struct wefti_slot *slot);

/* Why a sequence with this much output is over; NONE: it goes on. */
enum weft_finish wefti_slot_finish(const struct weft_sampling *sampling, const uint32_t *tokens,
                                   uint32_t n_prompt, uint32_t n_known, uint32_t max_model_len);

/* Bytes that plan.c needs per slot for its dry run. */
size_t wefti_shadow_bytes(void);

/* Goes through the whole plan as weft_eng_step would and changes nothing. `is_new_epoch`: as if every slot
 * were empty (the plan opens a new epoch). WEFT_E_PROTO with the first thing that does not fit. */
WEFT_MUST_CHECK weft_err wefti_plan_check(struct wefti_slots *slots,
                                          const struct weft_step_plan *plan, bool is_new_epoch,
                                          struct weft_errmsg *why);

/* ----------------------------------------------------------------------------------- cache --- */

struct wefti_kv_cache {
    struct weft_kv_layer *layers; /* [n_layers] */
    uint32_t n_layers, n_blocks;
    uint32_t n_planes;  /* of a layer: K and V, or latents alone */
    size_t block_bytes; /* of one plane of one layer */
    void *map;
    size_t map_bytes;
};

/* ---------------------------------------------------------------------------------- profile --- */

struct wefti_profile;

/* One thread's notes. It is in one operator at a time: each mark ends a span and begins the next.
 */
struct wefti_profile_log {
    _Alignas(64) uint64_t since_ns; /* when the open span began */
    uint64_t aside_ns;              /* what of it was booked elsewhere */
    uint64_t n_spans;               /* ever; the ring keeps the last ones */
    enum weft_eng_op op;            /* of the open span; COUNT: none is open */
    uint32_t open_layer;            /* the same */
    uint32_t layer;                 /* of spans that begin from now on; UINT32_MAX: in none */
    uint64_t busy_ns[WEFT_ENG_OP_COUNT];
    struct weft_eng_span *ring; /* [WEFT_ENG_SPANS_MAX] */
};

WEFT_MUST_CHECK weft_err wefti_profile_new(uint32_t n_threads, struct wefti_profile **profile_out,
                                           struct weft_errmsg *why);
void wefti_profile_free(struct wefti_profile *profile); /* accepts NULL */
struct wefti_profile_log *wefti_profile_thread_log(struct wefti_profile *profile,
                                                   uint32_t thread_idx);

/* The thread turns to `op` (COUNT: to nothing that concerns us). */
void wefti_profile_mark(struct wefti_profile_log *log, enum weft_eng_op op);
/* The time since `begin_ns` was `op`'s, not that of the open span. */
void wefti_profile_mark_aside(struct wefti_profile_log *log, enum weft_eng_op op,
                              uint64_t begin_ns);

/* What a pass has to do, in rows: books calls, bytes and operations of all its operators. */
struct wefti_forward_costs {
    uint32_t n_rows, n_last_rows; /* behind K and V of the last layer there may be fewer */
    uint32_t n_logit_rows, n_head_calls;
    uint32_t n_heads;
    /* Positions seen by all rows, and those read by all tiles, of all layers. */
    uint64_t n_seen, n_read;
};
void wefti_forward_book_pass(struct wefti_profile *profile, const struct wefti_weights *weights,
                             const struct wefti_kv_cache *kv,
                             const struct wefti_forward_costs *pass);
/* During a pass, by its first thread: an expert computes so many rows. */
void wefti_forward_book_expert(struct wefti_profile *profile,
                               const struct wefti_weights_expert *expert, uint32_t n_rows);
void wefti_profile_step(struct wefti_profile *profile, uint64_t begin_ns, uint64_t end_ns,
                        uint32_t n_tokens);

/* Behind the functions of engine.h. */
void wefti_profile_read(const struct wefti_profile *profile, struct weft_eng_profile *out);
void wefti_profile_reset(struct wefti_profile *profile);
uint32_t wefti_profile_spans(const struct wefti_profile *profile, uint32_t track,
                             struct weft_eng_span *out, uint32_t max);

/* ---------------------------------------------------------------------------------- forward --- */

/* Gets the logits of the batch's `i`-th logit row. They may be changed. */
typedef void wefti_forward_logits_fn(void *ctx, uint32_t i, float *logits, uint32_t thread_idx);

struct wefti_forward_batch {
    uint32_t n_tokens;
    const uint32_t *tokens;           /* [n_tokens] */
    const struct weft_attn_row *rows; /* [n_tokens]; rows of a sequence together, ascending */
    const bool *is_long;              /* [n_tokens] of a sequence with a long prompt (LongRoPE) */
    uint32_t n_logit_rows;
    const uint32_t *logit_rows; /* indices of rows that need logits, ascending */
    wefti_forward_logits_fn *on_logits;
    void *on_logits_ctx;
    bool in_order; /* on_logits is called by thread 0, row after row; else by any, all at once */
    uint32_t n_copies;
    const struct weft_step_copy *copies;
};

struct wefti_forward;

/* -------------------------------------------------------------------------------- routing --- */

/* Chooses the experts of one row by what the router made of it, logits[n_experts]: chosen[n_used],
 * in ascending order, and what their outputs are multiplied by. Of equal ones the lower id wins,
 * and NaN never does, so that the chosen ones are different in any case. `bias` may be NULL. */
void wefti_forward_route(const struct weft_model_moe *moe, const float *bias, const float *logits,
                         uint32_t *chosen, float *weights);

/* Of experts 0..n-1 those of group `group` of the 8 that sums are made in (design 2.1) end here. */
static inline uint32_t wefti_forward_expert_group_end(uint32_t n, uint32_t group) {
    return (uint32_t)((uint64_t)(group + 1) * n / 8);
}

WEFT_MUST_CHECK weft_err wefti_forward_new(
    const struct weft_kern_table *kern, struct wefti_pool *pool,
    const struct wefti_weights *weights, const struct wefti_kv_cache *kv, const weft_model *model,
    uint32_t max_batched_tokens, struct wefti_forward **forward_out, struct weft_errmsg *why);
void wefti_forward_free(struct wefti_forward *forward); /* accepts NULL */

/* From now on its passes are noted there; borrowed. */
void wefti_forward_set_profile(struct wefti_forward *forward, struct wefti_profile *profile);
/* From now on the rows that matrices meet, which must be f32, are added to `calib`; NULL: no more.
 */
void wefti_forward_observe(struct wefti_forward *forward, weft_eng_calib *calib);

/* From now on `fn` is told, on the first thread; NULL: no more. */
void wefti_forward_watch_routes(struct wefti_forward *forward, weft_eng_routes_fn *fn, void *ctx);

/* Rows that each expert computed so far, [n_layers][n_experts]; NULL: there are none. */
const uint64_t *wefti_forward_expert_tokens(const struct wefti_forward *forward);

/* 1..max_batched_tokens tokens (or none, for the copies alone). Takes nothing from the heap. */
void wefti_forward_run(struct wefti_forward *forward, const struct wefti_forward_batch *batch);

#endif
