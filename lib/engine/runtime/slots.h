/* engine/runtime/slots — the sequences a worker holds: tokens, block tables, sampling parameters,
 * and how far each has come.
 *
 * Model    A slot holds one sequence or none; (slot, generation) names it. It has n_known tokens,
 *          of which n_computed went through the model; the first n_prompt are the prompt. Where a
 *          sequence dropped some (base/step.h, Shifts), these are the tokens without them, and
 *          `history` has all: n_known + n_dropped.
 * Threads  One owner, who steps the engine; compute threads read during a step.
 * Errors   Only init can fail: arguments come from a plan that plan_check.h found right. */
#ifndef WEFT_ENGINE_SLOTS_H
#define WEFT_ENGINE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/step.h"
#include "engine/engine.h"
#include "runtime/contrast.h"

struct wefti_slot {
    bool used, gen_known; /* gen_known: `gen` is that of the last sequence here, even if !used */
    uint32_t gen, choice;
    uint32_t n_prompt, n_known, n_computed;
    uint32_t n_written; /* of a start: the KV below is not written to blocks of FULL */
    uint32_t n_guesses; /* of this step's row: they stand behind the known tokens at first */
    uint32_t n_table[WEFT_KV_KINDS];
    uint32_t n_prompt_logprobs_done;
    enum weft_end finish;           /* != NONE: later rows are no-ops */
    struct weft_sampling sampling;  /* its grammar without the text */
    struct wefti_guide_run *guide;  /* NULL: none, or no memory for what the grammar wants */
    bool is_late, is_held;          /* its mask is; and its next row samples from `held` */
    uint64_t late_since_ms;         /* if is_late; or since anything was done for anybody, */
    uint64_t late_turns;            /* which was the so-manieth time */
    float *held;                    /* [n_vocab] from the heap, while it is late */
    uint32_t *tokens;               /* [max_model_len] */
    uint32_t n_dropped;             /* tokens that only the history has */
    uint32_t *history;              /* [history_cap], if some were dropped */
    uint32_t *table[WEFT_KV_KINDS]; /* [table_cap]; of kinds that are not there NULL */
    uint32_t *stop_tokens;          /* [WEFT_STOP_TOKENS_MAX], what sampling.stop_tokens and
                                     .masked_tokens point into */
    struct weft_logit_bias *bias;   /* [WEFT_LOGIT_BIAS_MAX] */
    uint32_t *allowed_tokens;       /* [WEFT_ALLOWED_TOKENS_MAX] */
    uint32_t *bad_words;            /* [WEFT_BAD_WORDS_MAX] */
    struct weft_pooling pooling;    /* NONE: it generates; else: */
    double *sum;                    /* [n_hidden] of the hidden states that count, in order */
    float *values;                  /* [n_values] where to in the step that ends it, */
    uint32_t n_values;              /* and how many */
    uint32_t *dry_breakers;         /* [WEFT_DRY_BREAKERS_MAX] */
    double sampler_state;           /* after the last token that was sampled */

    struct wefti_contrast *contrast; /* NULL: it has no contrastive search */
    /* Of the sequence that the next plan starts here. */
    struct wefti_contrast *next_contrast;
};

/* A slot after the parts of a plan that have been checked so far. */
struct wefti_slot_shadow {
    uint64_t stamp; /* the plan's that it belongs to */
    bool used, gen_known, finished, has_row;
    bool is_new, has_state; /* the plan starts it, and says where its state comes from */
    uint32_t n_state;       /* tokens that its state is of */
    uint32_t gen;
    uint32_t n_table[WEFT_KV_KINDS];
    struct weft_step_seq seq;
};

struct wefti_slots {
    uint32_t n_slots, max_model_len, history_cap, block_size, n_vocab, max_batched_tokens;
    uint32_t n_kinds, n_blocks[WEFT_KV_KINDS]; /* kinds of blocks: WEFT_KV_FULL first */
    uint32_t window;                           /* of WEFT_KV_WINDOWED */
    struct weft_pooling_shape shape;
    bool is_encoder, is_recurrent;
    uint32_t n_checkpoints;
    uint32_t *kept_tokens; /* [n_checkpoints] that the state of each is of; 0: it has none */
    uint32_t table_cap;
    struct wefti_slot *slots;
    struct wefti_slot_shadow *shadows; /* [n_slots], plan_check.c's */
    uint64_t shadow_stamp;
    void *map;
    size_t map_bytes;
    uint32_t *histories; /* [n_slots][history_cap]: apart, as most of it is never touched */
    size_t history_bytes;
};

/* Blocks in a table of the longest sequence. */
uint32_t wefti_slots_table_cap(const struct weft_eng_info *info);

/* What they take once every sequence has been as long as the model allows. Output beyond that (context_shift) is
 * not counted: nobody has more of it than the router that keeps it. */
uint64_t wefti_slots_bytes(const struct weft_eng_info *info);
WEFT_MUST_CHECK weft_err wefti_slots_init(struct wefti_slots *slots,
                                          const struct weft_eng_info *info,
                                          struct weft_errmsg *why);
/* No sequence is longer than in `info`, and none has a block beyond its numbers, which are no higher
 * than those of init. There are no sequences yet. */
void wefti_slots_lower(struct wefti_slots *slots, const struct weft_eng_info *info);
void wefti_slots_fini(struct wefti_slots *slots);
/* Drops all sequences; a new epoch counts generations anew. */
void wefti_slots_clear(struct wefti_slots *slots);

void wefti_slot_start(struct wefti_slots *slots, const struct weft_step_start *start);
void wefti_slot_grant(struct wefti_slots *slots, const struct weft_step_grant *grant);
void wefti_slot_release(struct wefti_slots *slots, const struct weft_step_release *release);

void wefti_slot_drop_held(struct wefti_slot *slot); /* no-op: there is none */

/* Before a plan is committed that starts a sequence: all that can fail of contrastive search. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_slot_prepare_contrast(struct wefti_slots *slots,
                                                     const struct weft_step_start *start,
                                                     struct weft_errmsg *why);

/* Appends a sampled token and decides whether it was the last. */
void wefti_slot_append(struct wefti_slots *slots, struct wefti_slot *slot, uint32_t token);

/* The facts that decide on the log-probabilities of its next row. */
struct weft_step_seq wefti_slot_seq(const struct wefti_slots *slots, const struct wefti_slot *slot);

/* Whether reaching the last known token yields another one (else the sequence ends there). */
bool wefti_slot_may_sample(const struct wefti_slots *slots, const struct wefti_slot *slot);

/* Positions [begin, end) of the next n_tokens whose hidden states its pooling reads. */
struct weft_step_span wefti_slot_pooled(const struct wefti_slot *slot, uint32_t n_tokens);
/* Adds the next one of them; then, all tokens being computed, writes the values. */
void wefti_slot_pool(struct wefti_slot *slot, const float *hidden, uint32_t n_hidden);
void wefti_slot_write_values(const struct wefti_slot *slot);

/* Tokens after the prompt, and all of them with the prompt: n_prompt + n_output. */
static inline uint32_t wefti_slot_n_output(const struct wefti_slot *slot) {
    return slot->n_known + slot->n_dropped - slot->n_prompt;
}

static inline const uint32_t *wefti_slot_history(const struct wefti_slot *slot) {
    return slot->n_dropped > 0 ? slot->history : slot->tokens;
}

/* Most tokens that a sequence has, those that it dropped included. */
uint32_t wefti_slots_history_cap(uint32_t max_model_len);

/* Why a sequence with this much output, which ends with `last`, is over; NONE: it goes on. It has n_known
 * tokens that it did not drop. */
enum weft_end wefti_slot_finish(const struct weft_sampling *sampling, uint32_t n_output,
                                uint32_t last, uint32_t n_known, uint32_t max_model_len);

#endif
