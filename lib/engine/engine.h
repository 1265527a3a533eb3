/* engine — the forward pass of one step over a flat batch, and the sampler behind it.
 *
 * Model    The engine holds packed weights, physical KV blocks and `max_seqs` slots with the
 *          tokens, the block table and the sampler state of one sequence each. weft_eng_step
 *          applies a plan (base/step.h) and computes all its rows in one fused pass: no padding,
 *          GEMMs see all tokens at once, attention runs per sequence, the head runs for the rows
 *          that need logits.
 * Contract Batch invariance (docs/architecture.md): a row's result depends on its sequence alone.
 * Threads  One owner calls step; inside, a pool of pinned threads computes tiles between barriers.
 *          weft_eng_progress may be read from any thread.
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

#include "base/err.h"
#include "base/step.h"

typedef struct weft_eng weft_eng;

enum weft_eng_dtype {
    WEFT_ENG_DT_AUTO,
    WEFT_ENG_DT_F32,
    WEFT_ENG_DT_BF16,
    WEFT_ENG_DT_F16,
    WEFT_ENG_DT_Q8, /* int8 per output feature; what is quantised in the file stays as it is */
    WEFT_ENG_DT_Q4, /* Q4_1: 4 bits, scale and minimum per 32 columns; the head as with Q8 */
};
enum weft_eng_act { WEFT_ENG_ACT_AUTO, WEFT_ENG_ACT_F32, WEFT_ENG_ACT_BF16, WEFT_ENG_ACT_INT8 };
enum weft_eng_kv { WEFT_ENG_KV_AUTO, WEFT_ENG_KV_F32, WEFT_ENG_KV_BF16, WEFT_ENG_KV_F16 };

struct weft_eng_options {
    enum weft_eng_dtype dtype; /* AUTO: as the file has it, tensor by tensor */
    enum weft_eng_act
        activations; /* AUTO: bf16 for bf16 weights, int8 for quantised ones, f32 for the rest */
    enum weft_eng_kv kv_dtype; /* AUTO: bf16; with f32 activations f32 */
    uint32_t block_size;       /* a multiple of 16, at most WEFT_BLOCK_SIZE_MAX */
    uint64_t kv_memory_bytes;  /* 0: min(half of what is available, what the sequences can use) */
    uint32_t max_seqs, max_batched_tokens;
    uint32_t max_model_len; /* 0: the model's context */
    uint32_t n_threads;     /* 0: one per allowed CPU, no more than the cgroup's CPU quota grants */
    /* A memfd that outlives this process and keeps the packed weights, or -1: private memory.
     * Empty: this process packs into it and seals it. Filled: its header (layout, which follows
     * from the model's shape and the options, and the model's contents) is checked and it is
     * mapped as it is, since packed bits are the same on every ISA; what does not match is
     * WEFT_E_STATE. */
    int weights_fd;
};

/* max_seqs 64, max_batched_tokens 512, block_size 16, weights_fd -1, the rest 0. */
void weft_eng_options_init(struct weft_eng_options *options);

/* "auto|f32|bf16|f16|q8", "auto|f32|bf16|int8", "auto|f32|bf16|f16"; WEFT_E_INVAL, or UNSUPPORTED
 * for what the interface names but is not there yet (int8 KV). */
WEFT_MUST_CHECK weft_err weft_eng_parse_dtype(const char *text, enum weft_eng_dtype *out);
WEFT_MUST_CHECK weft_err weft_eng_parse_act(const char *text, enum weft_eng_act *out);
WEFT_MUST_CHECK weft_err weft_eng_parse_kv(const char *text, enum weft_eng_kv *out);

/* What came out of the options. */
struct weft_eng_info {
    char model_name[128];
    char arch[32];
    char isa[32];
    char fingerprint[32]; /* "fp_" + 16 hex digits: model hash, dtype, activations, KV type, ISA */
    uint32_t n_vocab, n_blocks, block_size;
    uint32_t max_model_len; /* lowered (with a warning in the log) if one sequence would not fit */
    uint32_t max_seqs, max_batched_tokens, n_threads;
    uint64_t weight_bytes, kv_bytes;
    uint64_t step_weight_bytes; /* of them, what a step that samples reads once whatever its batch:
                                   all but an untied embedding table, of which it reads rows */
    /* Elements of matrices: each is a multiply-add per token, of the head per row of logits. */
    uint64_t n_layer_weights, n_head_weights;
    enum weft_eng_act activations; /* those that most of the layers' weights meet; never AUTO */
    bool weights_inherited;        /* mapped from weights_fd, not packed */
};

/* Opens the model at `path`, packs or maps its weights, starts the threads. *eng_out is the
 * caller's. Errors of weft_model_open, and NOMEM, INVAL (options), STATE (weights_fd). */
WEFT_MUST_CHECK weft_err weft_eng_open(const char *path, const struct weft_eng_options *options,
                                       weft_eng **eng_out, struct weft_errmsg *why);
void weft_eng_free(weft_eng *eng); /* accepts NULL */

const struct weft_eng_info *weft_eng_info(const weft_eng *eng);

/* Drops all sequences and starts over at (epoch, step 0). A plan of a higher epoch does so too. */
void weft_eng_reset(weft_eng *eng, uint64_t epoch);

/* Runs one plan. *result_out is the engine's, valid until the next call. WEFT_E_PROTO: the plan
 * does not fit the state (unknown slot, block out of range, wrong step, over a limit): nothing was
 * done. WEFT_E_STATE: an older epoch. */
WEFT_MUST_CHECK weft_err weft_eng_step(weft_eng *eng, const struct weft_step_plan *plan,
                                       const struct weft_step_result **result_out,
                                       struct weft_errmsg *why);

/* A number that compute threads bump per layer and row chunk: it moves while a step advances. */
uint64_t weft_eng_progress(const weft_eng *eng);

/* For tests and `weft perplexity`: raw logits of every position of `tokens` run as one sequence
 * from scratch (slots are left alone; takes blocks from the top of the pool, so the engine must be
 * idle), in chunks of max_batched_tokens. `on_row` gets position, logits[n_vocab]. */
WEFT_MUST_CHECK weft_err weft_eng_logits(weft_eng *eng, const uint32_t *tokens, uint32_t n_tokens,
                                         void (*on_row)(void *ctx, uint32_t pos,
                                                        const float *logits),
                                         void *ctx, struct weft_errmsg *why);

#endif
