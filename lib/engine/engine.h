/* engine — the forward pass of one step over a flat batch, and the sampler after it.
 *
 * Model    The engine holds packed weights, physical KV blocks and `max_seqs` slots with the
 *          tokens, the block table and the sampler state of one sequence each. weft_eng_step
 *          applies a plan (base/step.h) and computes all its rows in one fused pass: no padding,
 *          GEMMs see all tokens at once, attention runs per sequence, the head runs for the rows
 *          that need logits.
 * Contract Batch invariance (docs/architecture.md): a row's result depends on its sequence alone.
 * Threads  One owner calls step; inside, a pool of pinned threads computes tiles between barriers.
 *          weft_eng_progress and weft_eng_n_spill_blocks may be read from any thread.
 * Memory   Everything is sized from the options at opening; a step takes nothing from the heap.
 * Errors   Plans come from another process: weft_eng_step checks them whole before changing
 *          anything and answers WEFT_E_PROTO; it never trips an assertion over them.
 * Source   Orca (OSDI 2022), Kwon et al. (SOSP 2023), Sarathi-Serve (OSDI 2024); Salmon et al.
 *          2011 for the generator (Philox 4x32-10).
 */
#ifndef WEFT_ENGINE_H
#define WEFT_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/request.h"
#include "base/step.h"

typedef struct weft_eng weft_eng;
typedef struct weft_coll weft_coll; /* collective.h */

enum weft_eng_dtype {
    WEFT_ENG_DT_AUTO,
    WEFT_ENG_DT_F32,
    WEFT_ENG_DT_BF16,
    WEFT_ENG_DT_F16,
    WEFT_ENG_DT_Q8, /* 8 bits, by scheme; weights that the file has quantised stay so */
    WEFT_ENG_DT_Q4, /* 4 bits, by scheme; the head as with Q8 */
};
/* How float weights become codes of Q8 and Q4. */
enum weft_eng_scheme {
    WEFT_ENG_SCHEME_AUTO,       /* Q8: channel; Q4: group-asym */
    WEFT_ENG_SCHEME_CHANNEL,    /* one scale per output feature; Q8 only */
    WEFT_ENG_SCHEME_GROUP,      /* a scale per 32 columns: Q8_0 and Q4_0 */
    WEFT_ENG_SCHEME_GROUP_ASYM, /* scale and minimum per 32 columns: Q4_1; Q4 only */
};
enum weft_eng_act { WEFT_ENG_ACT_AUTO, WEFT_ENG_ACT_F32, WEFT_ENG_ACT_BF16, WEFT_ENG_ACT_INT8 };
enum weft_eng_kv {
    WEFT_ENG_KV_AUTO,
    WEFT_ENG_KV_F32,
    WEFT_ENG_KV_BF16,
    WEFT_ENG_KV_F16,
    WEFT_ENG_KV_INT8, /* one scale per token and KV head */
};

/* How far the codes of a quantised group reach, if a calibration says which columns matter. */
enum weft_eng_clip {
    WEFT_ENG_CLIP_ERROR,      /* to the least error in the matrix's output */
    WEFT_ENG_CLIP_MINMAX,     /* to the largest weight, as without a calibration */
    WEFT_ENG_CLIP_PERCENTILE, /* to where 99.9 % of what matters lies within */
    WEFT_ENG_CLIP_ENTROPY,    /* to where the distribution of what matters changes least */
};
typedef struct weft_eng_calib weft_eng_calib;

/* Of a bound on memory, what is not the engines': n times `least_bytes`, or n times so many parts of the bound
 * that are within least_bytes..most_bytes. */
struct weft_eng_limit_term {
    char name[16]; /* for people */
    char flag[24]; /* of the setting that makes it less; "": none does */
    uint32_t n;
    uint32_t part; /* 0: it does not follow from the bound */
    uint64_t least_bytes, most_bytes;
};
/* Of one of the n. */
uint64_t weft_eng_limit_term_bytes(const struct weft_eng_limit_term *term, uint64_t limit_bytes);
#define WEFT_ENG_LIMIT_TERMS_MAX 6
#define WEFT_ENG_LIMIT_REQUESTS "requests" /* the term that is --request-memory, n times */

/* A bound on the memory of a server, or program, that engines are a part of. */
struct weft_eng_limit {
    uint64_t bytes; /* 0: there is none */
    struct weft_eng_limit_term terms[WEFT_ENG_LIMIT_TERMS_MAX];
    uint32_t n_terms;
};

/* What of an engine's needs follows from the limit, for whoever asks how high it has to be. */
struct weft_eng_follows {
    uint64_t scratch_bytes; /* without the next two */
    uint64_t answer_bytes;  /* the most for log-probabilities; no more than requests may take */
    uint64_t contrast_bytes, contrast_from_bytes; /* of contrastive search, from such a limit on */
    bool has_loras;                               /* adapters, whose memory nobody gave */
};

/* What opening takes of memory, and how far it has come. */
struct weft_eng_loading {
    const char *model_name;
    uint64_t weight_bytes;            /* packed */
    uint32_t n_copies;                /* of the weights, by as many engines at the same time */
    bool is_page_cache;               /* the weights are a packed file: the kernel may drop them */
    uint32_t n_sharers;               /* each takes the next four: */
    uint64_t draft_bytes;             /* weights of what guesses; 0: there are none */
    uint64_t state_bytes;             /* of recurrent layers; 0: there are none */
    uint64_t kv_bytes, scratch_bytes; /* when all of it is in use */
    uint64_t limit_bytes;             /* of the cgroup, or what the machine has; 0: not known */
    /* With a limit: adapters and the vocabulary, of each; and the limit. Then mapped weights count, too. */
    uint64_t lora_bytes, vocab_bytes;
    struct weft_eng_limit limit;
    struct weft_eng_follows follows;
    /* For advice: a setting by which the weights would be less, or NULL; somebody gave the cache's size; its type is
     * the smallest. */
    const char *fewer_bits;
    bool is_kv_given, is_kv_least;
    bool has_many_checkpoints; /* as many as somebody asked for, and more than sequences */
    uint64_t done_bytes;       /* of the weights */
};
/* "2.3 GiB (weights 2.1 GiB, KV cache 128 MiB, scratch 60 MiB)". Returns `out`. */
#define WEFT_ENG_NEED_TEXT_BYTES 384
const char *weft_eng_need_text(const struct weft_eng_loading *loading,
                               char out[WEFT_ENG_NEED_TEXT_BYTES]);
/* Called once before the first weight is read, then after each megabyte or so that was packed: by
 * any thread, but never by two at once. */
typedef void weft_eng_loading_fn(void *ctx, const struct weft_eng_loading *loading);

#define WEFT_ENG_CHECKPOINTS_AUTO UINT32_MAX

struct weft_eng_options {
    enum weft_eng_dtype dtype; /* AUTO: as the file has it, tensor by tensor */
    enum weft_eng_scheme scheme;
    /* Borrowed until the engine is open. The calibration is one of the same model. */
    const weft_eng_calib *calib; /* NULL: every weight lies within the codes */
    enum weft_eng_clip clip;
    const enum weft_eng_dtype *layer_dtypes; /* per layer, in place of dtype, or NULL */
    uint32_t n_layer_dtypes;                 /* as many as the model has layers */
    /* AUTO: bf16 for bf16 weights, int8 for quantised ones, f32 for the rest. */
    enum weft_eng_act activations;
    enum weft_eng_kv kv_dtype; /* AUTO: bf16; with f32 activations f32 */
    uint32_t block_size;       /* a multiple of 16, at most WEFT_BLOCK_SIZE_MAX */
    uint64_t kv_memory_bytes;  /* 0: min(half of what is available, what the sequences can use) */
    /* Of a file for blocks that plans spill, made in spill_dir without a name; 0: none. Of no use
     * with windowed layers. The directory's name is borrowed until the engine is open. */
    uint64_t spill_bytes;
    const char *spill_dir;
    /* Engines on this machine or in this cgroup, all alike: available memory and the CPU quota,
     * where sizes follow from them, are divided by it. */
    uint32_t n_sharers;
    /* A group of 1, 2, 4 or 8 engines divides one model: each has a share of its weights and of its
     * heads' KV cache, and all get the same plans and compute them together, to the bits of an
     * engine that is alone. They have the same model and options, but may differ in threads and
     * memory, and so in length and numbers of blocks and checkpoints: weft_eng_lower brings them down
     * to the least of all. Of a packed file each takes its share into memory.
     * With n_ranks over 1, `coll` is their group (of as many ranks), in which this one has joined
     * by the time of the first step; borrowed until the engine is freed. */
    uint32_t rank, n_ranks;
    weft_coll *coll;
    /* A file of weft_eng_write_expert_profile, or NULL: the groups of experts go to ranks by their
     * load in it, not in order; the bits stay. All ranks read the same. Borrowed until the engine is
     * open. */
    const char *expert_profile;
    uint32_t n_copies; /* those of them that pack now, each for itself and others */
    uint32_t max_seqs, max_batched_tokens;
    /* States of recurrent layers that plans may keep beside those of slots: at most
     * WEFT_STATE_CHECKPOINTS_MAX, or WEFT_ENG_CHECKPOINTS_AUTO: as many as slots, in 1 GiB, but 4 at
     * least. Of no use without such layers. */
    uint32_t n_checkpoints;
    uint32_t max_model_len; /* 0: the model's context */
    /* What rows with n_spec guess by: what came after the same last tokens before, so many of them or
     * fewer, down to 2; at most WEFT_SPEC_NGRAM_MAX. Where that finds nothing, by what a small model
     * with the same vocabulary says, which takes the types of this one's options, or by the layer that the
     * model has for it (multi-token prediction). 0, NULL and false: they guess nothing. Not both of the
     * latter, and neither with ranks. The path is borrowed until the engine is open. */
    uint32_t ngram_max;
    const char *draft_path;
    bool mtp;
    uint64_t
        request_bytes;  /* of all compiled grammars; 0: 1 GiB, of which unused ones keep 256 MiB */
    uint32_t n_threads; /* 0: one per allowed CPU, no more than the cgroup's CPU quota grants */
    /* A memfd that outlives this process and keeps the packed weights, or -1: private memory.
     * Empty: this process packs into it and seals it. Filled: its header (layout, which follows
     * from the model's shape and the options, and the model's contents) is checked and it is mapped
     * as it is, since packed bits are the same on every ISA; a mismatch is WEFT_E_STATE. */
    int weights_fd;
    weft_eng_loading_fn *on_loading; /* NULL: nobody wants to know */
    void *loading_ctx;
    /* LoRA adapters that may be there at a time, and the highest rank of one (1..256). max_loras 0: none
     * may. Not in a group: then there are none. */
    uint32_t max_loras, max_lora_rank;
    uint64_t
        lora_memory_bytes; /* of all adapters of this engine; 0: a third of what the machine's or the
                                 cgroup's memory leaves beside the model */
    /* Set: a cache whose size is not given takes what the limit leaves, and what does not fit is refused. */
    struct weft_eng_limit limit;
    uint64_t
        room_bytes; /* of weft_eng_foresee: what another machine has free; 0: what this one has */
    bool profile;   /* note when each thread was busy with what; see weft_eng_profile */
    uint64_t home;  /* nodes whose memory is preferred (base/numa.h); 0: no choice */
};

/* max_seqs 64, max_batched_tokens 512, block_size 16, n_sharers 1, n_copies 1, n_ranks 1,
 * max_loras 64, max_lora_rank 256, weights_fd -1, the rest 0. */
void weft_eng_options_init(struct weft_eng_options *options);

/* "auto|f32|bf16|f16|q8|q4", "auto|channel|group|group-asym", "auto|f32|bf16|int8",
 * "auto|f32|bf16|f16|int8"; else WEFT_E_INVAL. */
WEFT_MUST_CHECK weft_err weft_eng_parse_dtype(const char *text, enum weft_eng_dtype *out);
WEFT_MUST_CHECK weft_err weft_eng_parse_scheme(const char *text, enum weft_eng_scheme *out);
/* "error|minmax|percentile|entropy" */
WEFT_MUST_CHECK weft_err weft_eng_parse_clip(const char *text, enum weft_eng_clip *out);
WEFT_MUST_CHECK weft_err weft_eng_parse_act(const char *text, enum weft_eng_act *out);
WEFT_MUST_CHECK weft_err weft_eng_parse_kv(const char *text, enum weft_eng_kv *out);

/* The options as they took effect. */
struct weft_eng_info {
    char model_name[128];
    char arch[32];
    char isa[32];
    char fingerprint[32]; /* "fp_" + 16 hex digits: model hash, dtype, activations, KV type, ISA */
    uint32_t n_vocab, n_hidden, n_layers, n_blocks, block_size;
    uint32_t n_labels; /* of a head that classifies; 0: there is none */
    bool
        is_encoder; /* every sequence is computed whole in one step, and has a pooling; nothing of it is kept.
                        max_batched_tokens is max_model_len or more */
    bool
        is_recurrent; /* layers carry a state from token to token: who starts with cached tokens gets
                          theirs, and sequences guess and drop none */
    uint32_t n_checkpoints; /* states that are kept for others; 0 where no layer has one */
    bool has_contrast; /* contrastive search is possible: one process has the whole model, which has
                          no such layers */
    uint32_t window;   /* of the layers whose blocks are WEFT_KV_WINDOWED; 0: no such kind */
    uint32_t n_window_blocks; /* of that kind; n_blocks are WEFT_KV_FULL, which take no memory where
                                 all layers are windowed */
    uint32_t n_experts, n_experts_used; /* of a layer, and by a token there; 0: none */
    uint32_t n_own_experts;             /* of a layer, those that this rank has (at most) */
    uint32_t max_model_len; /* lowered (with a warning in the log) if one sequence would not fit */
    uint32_t max_seqs, max_batched_tokens, n_threads;
    uint32_t long_prompt; /* a prompt of more tokens has nothing in the KV cache that a shorter one
                             can share, or the other way round (LongRoPE) */
    uint64_t weight_bytes, kv_bytes; /* the latter with the blocks of what guesses */
    uint64_t draft_bytes; /* weights of that: a draft model or the model's own layer; 0: none */
    /* The weights that a sampling step reads once, whatever its batch: all but an untied embedding
     * table, of which it reads rows, and of experts as many as one token takes. */
    uint64_t step_weight_bytes;
    uint64_t seq_state_bytes; /* of recurrent layers, of one sequence; 0: there are none */
    /* Elements of matrices that a token meets, each a multiply-add; only rows that need logits
     * meet the head's. */
    uint64_t n_layer_weights, n_head_weights;
    enum weft_eng_act activations; /* those that most of the layers' weights meet; never AUTO */
    bool weights_inherited;        /* mapped from weights_fd, not packed */
    uint64_t home;
};

/* Opens the model at `path`, packs or maps its weights, starts the threads. *eng_out is the
 * caller's. Errors of weft_model_open, and NOMEM (also where weights, KV cache and scratch are more
 * than the cgroup or the machine has left: told before any weight is read), INVAL (options), STATE
 * (weights_fd). */
WEFT_MUST_CHECK weft_err weft_eng_open(const char *path, const struct weft_eng_options *options,
                                       weft_eng **eng_out, struct weft_errmsg *why);
void weft_eng_free(weft_eng *eng); /* accepts NULL */

/* What one sequence of so many tokens takes of the KV cache, and what its next token reads there. */
struct weft_eng_plan_context {
    uint32_t n_tokens;
    uint64_t kv_bytes; /* in whole blocks: of windowed layers as many as it can come to hold */
    uint64_t read_bytes;
};
enum { WEFT_ENG_PLAN_CONTEXTS_MAX = 8 };

/* An engine that was not opened: what weft_eng_open would take and be, all of it. */
struct weft_eng_plan {
    bool is_bare;                    /* nobody has seen the weights: weft_model_open_shapes */
    uint32_t model_len, n_context;   /* the length asked for, and the model's own */
    struct weft_eng_info info;       /* without fingerprint; max_model_len may be lowered */
    struct weft_eng_loading loading; /* its terms, and of its strings those of static storage */
    struct weft_errmsg refusal; /* why it would not be opened for lack of memory; "": it would */
    uint64_t room_bytes;        /* that can be had, of loading.limit_bytes */
    bool is_cgroup;             /* whose limit that is; else the machine's memory */
    const char *kv_type;        /* "bf16" */
    uint64_t kv_block_bytes[WEFT_KV_KINDS];
    uint64_t n_full_seqs;                  /* of max_model_len, that the cache holds at a time */
    uint64_t bytes_of_type[WEFT_DT_COUNT]; /* of the weights */
    struct weft_eng_plan_context contexts[WEFT_ENG_PLAN_CONTEXTS_MAX];
    uint32_t n_contexts; /* 4k, 8k, 32k, 128k, as far as the model goes, and model_len */
};

/* Fills *plan_out without taking the memory or reading a weight. Errors of weft_eng_open, but not those of memory
 * that does not do, which are the plan's `refusal`. */
WEFT_MUST_CHECK weft_err weft_eng_foresee(const char *path, const struct weft_eng_options *options,
                                          struct weft_eng_plan *plan_out, struct weft_errmsg *why);

struct weft_eng_packed {
    uint64_t file_bytes, source_bytes; /* of the file, and of the tensors that were read for it */
    uint64_t us;                       /* that reading, packing and writing took */
    char packed_as[32];
};

/* Packs the model at `path` with options->dtype (on options->n_threads) into a file that stands for
 * it as a MODEL, with any activations. It gets its name when it is whole; an existing file stays,
 * unless `replace`. EXISTS, INVAL (packed already, or `out_path` is part of the model), IO (says
 * which file and why), errors of weft_model_open, NOMEM. */
WEFT_MUST_CHECK weft_err weft_eng_pack(const char *path, const struct weft_eng_options *options,
                                       const char *out_path, bool replace,
                                       struct weft_eng_packed *packed_out, struct weft_errmsg *why);
/* Whether weft_eng_pack would refuse these names; to be asked before the work. */
WEFT_MUST_CHECK weft_err weft_eng_pack_check(const char *path, const char *out_path, bool replace,
                                             struct weft_errmsg *why);

const struct weft_eng_info *weft_eng_info(const weft_eng *eng);

/* UNSUPPORTED, with a sentence: the model is an encoder, which predicts no tokens. */
WEFT_MUST_CHECK weft_err weft_eng_check_predicts(const weft_eng *eng, struct weft_errmsg *why);

/* Before the first step: what plans may use is no more than in `room`, the same for all ranks of a
 * group. Its max_model_len, n_blocks and n_window_blocks count, each of which is the engine's or
 * less; kv_bytes becomes what so many blocks take. Memory stays as it is. */
void weft_eng_lower(weft_eng *eng, const struct weft_eng_info *room);

/* For benchmarks: puts keys and values of no meaning into the first `n_blocks` blocks (of each kind, or
 * as many as there are), so that sequences may begin with any number of cached tokens. Between steps.
 * NOMEM. */
WEFT_MUST_CHECK weft_err weft_eng_fill_cache(weft_eng *eng, uint64_t n_blocks);

/* Drops all sequences and starts over at (epoch, step 0). A plan of a higher epoch does so too. */
void weft_eng_reset(weft_eng *eng, uint64_t epoch);

/* Runs one plan. *result_out is the engine's, valid until the next call. WEFT_E_PROTO: the plan
 * does not fit the state (unknown slot, block out of range, wrong step, over a limit): nothing was
 * done. WEFT_E_IO: a spill or restore failed: the file is closed, and the engine is to be reset.
 * WEFT_E_STATE: an older epoch, or it was not reset after that. CLOSED or TIMEOUT: a peer in the
 * group is gone or does not come; no engine of the group can step again, and all get this.
 * So it is with STATE, if they have different profiles of experts.
 *
 * In a group the results of the first rank are those of the sequences. The others' say the same of
 * tokens and ends, but have no log-probabilities. */
WEFT_MUST_CHECK weft_err weft_eng_step(weft_eng *eng, const struct weft_step_plan *plan,
                                       const struct weft_step_result **result_out,
                                       struct weft_errmsg *why);

/* Grammars that sequences to come will follow are compiled, beside steps, once somebody says so; a
 * sequence that starts with one of these waits for nothing. By any thread, on an open engine.
 * False: no memory, or not the first rank: only that samples. */
struct weft_eng_ticket {
    uint64_t epoch, id; /* the caller's */
    int wake_fd;        /* an eventfd, written to when there are news: open until all are told */
};
bool weft_eng_prepare_grammar(weft_eng *eng, const struct weft_eng_ticket *ticket,
                              const struct weft_grammar *grammar);
/* The next one that is compiled now, or cannot be. Each is told once. False: none. */
bool weft_eng_next_prepared(weft_eng *eng, struct weft_eng_ticket *ticket_out);

/* Reads the LoRA adapter at `path` (lora.h) and keeps it under a number of the caller's, for sequences
 * that name it; if it has one of that number, that stays. By any thread but one at a time, on an open
 * engine, while steps run. FULL (max_loras,
 * lora_memory_bytes), UNSUPPORTED (in a group), errors of weft_lora_open, NOMEM. */
struct weft_eng_lora {
    struct weft_digest digest; /* of what it says: equal ones compute the same */
    uint64_t bytes;            /* of memory */
};
WEFT_MUST_CHECK weft_err weft_eng_add_lora(weft_eng *eng, uint64_t id, const char *path,
                                           struct weft_eng_lora *info_out, struct weft_errmsg *why);
/* No sequence may start with it any more; it goes with the last that has it. Unknown numbers are
 * ignored. Between steps, by the thread that steps. */
void weft_eng_remove_lora(weft_eng *eng, uint64_t id);
/* The adapters with which weft_eng_logits computes from here on. PROTO: one is not there. */
WEFT_MUST_CHECK weft_err weft_eng_use_loras(weft_eng *eng, const struct weft_step_adapter *list,
                                            uint32_t n, struct weft_errmsg *why);

/* The mappings that steps read and write: weights, KV cache, scratch. Not all of their pages need be
 * resident. They stay until the engine is freed, and may be asked for from any thread. */
struct weft_eng_region {
    const void *base; /* a page's begin */
    size_t bytes;
};
enum { WEFT_ENG_REGIONS = 5 };
/* Returns how many there are, at most WEFT_ENG_REGIONS. */
uint32_t weft_eng_regions(const weft_eng *eng, struct weft_eng_region out[WEFT_ENG_REGIONS]);

/* A number that compute threads bump per layer and row chunk, and per block spilled or restored: it
 * moves while a step advances. */
uint64_t weft_eng_progress(const weft_eng *eng);
/* Nanoseconds that steps have spent in meetings with the other ranks, waits included. From any
 * thread. */
uint64_t weft_eng_meeting_ns(const weft_eng *eng);
/* How many blocks its spill file takes; 0: it has none, or an error has closed it. */
uint32_t weft_eng_n_spill_blocks(const weft_eng *eng);

/* ------------------------------------------------------------------------------------- profile ---
 *
 * An engine opened with `profile` reads the clock wherever a compute thread turns from one thing to
 * the next, some twenty times per layer, and notes it in memory taken at opening. Without it
 * nothing is noted and no clock is read. */

/* What a compute thread can be busy with, in the order of a pass. */
enum weft_eng_op {
    WEFT_ENG_OP_EMBED,        /* embeddings, rope's angles, copies of blocks */
    WEFT_ENG_OP_ATTN_NORM,    /* norm and conversion of the input of q, k and v */
    WEFT_ENG_OP_QKV,          /* one product */
    WEFT_ENG_OP_ROPE_KV,      /* q and k turned, k and v into the cache */
    WEFT_ENG_OP_INDEX,        /* what rows attend to, where a model chooses */
    WEFT_ENG_OP_ATTENTION,    /* and the copies of the rows that go on in the last layer */
    WEFT_ENG_OP_SCAN,         /* recurrent layers between their products */
    WEFT_ENG_OP_O_CONVERT,    /* of its input; nothing for few f32 rows */
    WEFT_ENG_OP_O,            /* and the residual */
    WEFT_ENG_OP_FFN_NORM,     /* norm and conversion */
    WEFT_ENG_OP_GATE_UP,      /* both products */
    WEFT_ENG_OP_SILU_MUL,     /* tile by tile, as they come */
    WEFT_ENG_OP_DOWN_CONVERT, /* as with o */
    WEFT_ENG_OP_DOWN,
    WEFT_ENG_OP_ROUTE,   /* in layers with experts: who computes which rows */
    WEFT_ENG_OP_COMBINE, /* and the sum of their outputs */
    WEFT_ENG_OP_HEAD_NORM,
    WEFT_ENG_OP_HEAD,
    WEFT_ENG_OP_SAMPLE, /* logits to token, log-probabilities; or the callback of weft_eng_logits */
    WEFT_ENG_OP_WAIT,   /* at a barrier, and the moment after it until the next operator */
    WEFT_ENG_OP_COUNT,
};

/* "embed", "attn_norm", ...; and "step" for COUNT, which stands for whole steps. Static storage. */
const char *weft_eng_op_name(enum weft_eng_op op);

struct weft_eng_op_totals {
    /* Calls of the model's operator, each once whatever number of threads took part: one per step
     * and layer; head and head_norm per 64 rows; sample per row; wait none. */
    uint64_t n_calls;
    uint64_t busy_ns; /* of all threads together */
    uint64_t bytes;   /* the least that products and attention read: weights once per call, K and V
                         once per tile of 32 rows of a sequence; 0 for the others */
    uint64_t ops;     /* of the products and attention: two per multiply-add */
    enum weft_eng_act activations; /* those that most of its weights meet; never AUTO */
};

struct weft_eng_profile {
    uint32_t n_threads;
    uint64_t n_steps, step_ns; /* weft_eng_step from call to return; chunks of weft_eng_logits */
    uint64_t gap_ns;           /* between one step's return and the next one's call */
    struct weft_eng_op_totals ops[WEFT_ENG_OP_COUNT];
};

/* The figures since opening or the last reset; zeroes if the engine does not profile. This and the
 * others here are called between steps, by the thread that steps. */
void weft_eng_profile(const weft_eng *eng, struct weft_eng_profile *out);
void weft_eng_profile_reset(weft_eng *eng);

struct weft_eng_span {
    uint64_t begin_ns, end_ns; /* of weft_now_ns */
    enum weft_eng_op op;       /* COUNT: a step */
    uint32_t detail;           /* layer; a step's tokens */
};
enum { WEFT_ENG_SPANS_MAX = 1 << 14 }; /* kept per thread, the newest */

/* The newest spans of a thread, or of the steps where thread_idx is n_threads: oldest first, up to
 * `max` of them. A span without a layer (embed, head ...) has detail UINT32_MAX. Returns their
 * number. */
uint32_t weft_eng_profile_spans(const weft_eng *eng, uint32_t thread_idx, struct weft_eng_span *out,
                                uint32_t max);

/* For tests and `weft perplexity`: raw logits of every position of `tokens` run as one sequence
 * from scratch (slots are left alone; takes blocks from the top of the pools, so the engine must be
 * idle), in chunks of max_batched_tokens. `on_row` gets position, logits[n_vocab]. In a group all
 * ranks call it with the same tokens, and the first one's on_row is called. UNSUPPORTED: an encoder
 * has none. */
WEFT_MUST_CHECK weft_err weft_eng_logits(weft_eng *eng, const uint32_t *tokens, uint32_t n_tokens,
                                         void (*on_row)(void *ctx, uint32_t pos,
                                                        const float *logits),
                                         void *ctx, struct weft_errmsg *why);

/* For tests: `fn` gets, in every layer with experts, the choices of a pass's rows, row by row in
 * ascending order of experts, and their weights: [n_rows][n_used] each. NULL ends that. */
typedef void weft_eng_routes_fn(void *ctx, uint32_t layer, uint32_t n_rows, const uint32_t *experts,
                                const float *weights);
void weft_eng_watch_routes(weft_eng *eng, weft_eng_routes_fn *fn, void *ctx);

/* Rows that each expert has computed since opening, [n_layers][n_experts] of the info. NULL: the
 * model has no experts. Between steps, by the thread that steps. */
const uint64_t *weft_eng_expert_tokens(const weft_eng *eng);
/* Writes what these have become, for weft_eng_options. INVAL: there are none. IO, NOMEM. */
WEFT_MUST_CHECK weft_err weft_eng_write_expert_profile(const weft_eng *eng, FILE *out,
                                                       struct weft_errmsg *why);
/* Whether a layer has experts, or is a plain one; the same from opening on, for any thread. */
bool weft_eng_has_experts(const weft_eng *eng, uint32_t layer);

/* Begins a calibration of the model, not of a rank's share of it: what weft_eng_logits computes
 * from here on is added to it, until the engine goes. *calib_out is the caller's and outlives the
 * engine. INVAL: not all of the engine's activations are f32. */
WEFT_MUST_CHECK weft_err weft_eng_calibrate(weft_eng *eng, weft_eng_calib **calib_out,
                                            struct weft_errmsg *why);
void weft_eng_calib_free(weft_eng_calib *calib); /* accepts NULL */

/* --------------------------------------------------------------------------- samplers alone ---
 *
 * For `weft sample` and tests: what samplers make of logits that are given, without an engine. Scratch
 * comes from the heap. NOMEM; INVAL: a sampling or tokens that do not fit the vocabulary. */
struct weft_eng_given {
    const float *logits; /* [n_vocab], one of them finite */
    uint32_t n_vocab;
    const struct weft_sampling *sampling;
    const uint32_t *tokens; /* [n_tokens], the first n_prompt of them the prompt */
    uint32_t n_prompt, n_tokens;
    const double *xtc_draw; /* NULL: the generator's */
};

/* The probabilities that the next token is drawn by, of all n_vocab. Without Mirostat. */
WEFT_MUST_CHECK weft_err weft_eng_given_probabilities(const struct weft_eng_given *given,
                                                      double *out, struct weft_errmsg *why);

/* The token that Mirostat takes at `draw`, in [0, 1) of what it keeps, by falling probability. */
struct weft_eng_mirostat {
    double s_hat, k; /* of Mirostat 1: Zipf's exponent, and how many tokens follow from it */
    uint32_t n_kept, token;
    double p, surprise, mu; /* the token's, and mu after it */
};
WEFT_MUST_CHECK weft_err weft_eng_given_mirostat(const struct weft_eng_given *given, double mu,
                                                 double draw, struct weft_eng_mirostat *out,
                                                 struct weft_errmsg *why);

/* Contrastive search (Su et al. 2022): of the k best tokens that with the greatest
 * (1 - alpha) p - alpha max cos, the cosines between its last hidden state and those of the context. */
struct weft_eng_contrastive {
    uint32_t k, n_context, n_dims; /* each at least 1; k at most n_vocab */
    double alpha;
    const float *candidates; /* [k][n_dims], of the best token first */
    const float *context;    /* [n_context][n_dims] */
};
struct weft_eng_candidate {
    uint32_t token;
    double p, max_cosine, score;
};
/* Fills out[k], best tokens first; *chosen_out is the index of the one to take. */
WEFT_MUST_CHECK weft_err weft_eng_given_contrastive(const struct weft_eng_given *given,
                                                    const struct weft_eng_contrastive *search,
                                                    struct weft_eng_candidate *out,
                                                    uint32_t *chosen_out, struct weft_errmsg *why);

#endif
