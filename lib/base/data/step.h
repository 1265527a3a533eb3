/* base/step — the plain data of one forward step: what a scheduler plans, what a worker did.
 *
 * Model    A worker has `max_seqs` slots. A Start puts a sequence into a slot under a new
 *          generation; rows name (slot, generation) and how many of the sequence's next tokens to
 *          compute. Plans speak relative to the worker's state: plan n+1 is made while step n
 *          runs, so a decode row says "one more token", whichever was sampled last. A sequence's
 *          tokens are its prompt, then its output. It has `n_computed` tokens in the KV cache. A
 *          row computes n_tokens more; when it reaches the last known token the worker samples the
 *          next one and appends it.
 * Guesses  Such a row may let the worker guess what comes next (speculative decoding). It computes the
 *          tokens it guessed in the same step, and samples at the last known token as ever. While what
 *          it sampled is what it had guessed, it goes on with the next position: all that it knew of a
 *          sequence without guesses is known there too, so the tokens are the same. n_computed then
 *          grows by the guesses that came true as well; what was computed of others is written over.
 * Shifts   A sequence that went on beyond the model's length has dropped some of its tokens: n_dropped from
 *          n_keep on. What is computed is the others, at the positions that they have without these; what samples
 *          the next token goes by all of them. A sequence drops tokens by being started anew.
 * Blocks   Layers whose window is shorter than sequences may get have blocks of their own kind, in a
 *          pool with ids of its own. A sequence has a table per kind; entry i holds the tokens from
 *          i * block_size on. The scheduler takes back windowed blocks without a word, once no later
 *          position sees them: a worker reads nothing below what the window of the position it
 *          computes begins with, and what stands in the table there means nothing any more.
 * Spills   A worker may have a file with slots of one block each, all layers together. A spill writes
 *          a block to a slot, a restore reads one back. Only where there are no windowed layers.
 * States   Layers may carry a state of fixed size from token to token in place of keys and values. A slot
 *          has one, of the tokens that it has computed; a worker keeps some more as they were at some
 *          token: checkpoints. A sequence that starts with cached tokens gets the state of just
 *          these, from another slot or a checkpoint.
 * Order    Within a plan: releases, starts, spills, copies, restores, grants, states that slots get, rows,
 *          states that are kept. So a spill finds what earlier plans left in a block that this one
 *          gives away, a restore may overwrite a block that was just copied, and a checkpoint may be
 *          read and written anew in one plan.
 * Memory   Everything behind a pointer is borrowed from whoever made the struct.
 */
#ifndef WEFT_BASE_STEP_H
#define WEFT_BASE_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/end.h"
#include "base/limits.h"
#include "base/pooling.h"
#include "base/sampling.h"

/* Which layers a block belongs to. Where there are no windowed ones, all are FULL. */
enum weft_kv_kind { WEFT_KV_FULL, WEFT_KV_WINDOWED, WEFT_KV_KINDS };

/* An adapter (LoRA) of a sequence, by the number under which the worker has it, and how much of it is
 * added: 1 is as trained. */
struct weft_step_adapter {
    uint64_t id;
    float scale;
    uint32_t zero;
};

struct weft_step_start {
    uint32_t slot, gen;
    uint32_t choice;        /* 0..n-1: keys the generator together with the seed */
    const uint32_t *tokens; /* [n_tokens]: the prompt and the output so far */
    uint32_t n_tokens;      /* >= n_prompt */
    uint32_t n_prompt;      /* >= 1 */
    /* Tokens that have no place any more, counted from n_keep on; 0: all have one. Only with output, after
     * the prompt's log-probabilities are done, and never the last token. */
    uint32_t n_keep, n_dropped;
    uint32_t n_cached; /* leading ones of those that have, which need not be computed; not all */
    /* Those whose KV is in the granted blocks of FULL: n_cached, or with a state, which may be of fewer
     * tokens, whole blocks that others read, too. What is computed again is not written again there. */
    uint32_t n_written;
    uint32_t n_window_skipped; /* entries that the windowed table begins without; no later position
                                  sees them */
    uint32_t n_prompt_logprobs_done; /* prompt positions whose log-probabilities were delivered */
    double sampler_state; /* of weft_sampling_has_state, as reported with the last token; finite */
    struct weft_sampling sampling;
    struct weft_pooling
        pooling;         /* NONE, or it has no output. With one that reads all: n_cached is 0 */
    uint32_t n_adapters; /* at most WEFT_SEQ_ADAPTERS_MAX; added in this order */
    const struct weft_step_adapter *adapters; /* [n_adapters] */
};

struct weft_step_grant { /* blocks appended to one of the sequence's tables */
    uint32_t slot, gen;
    uint32_t kind; /* enum weft_kv_kind */
    uint32_t n_blocks;
    const uint32_t *blocks;
};

struct weft_step_copy { /* the whole block, all layers of its kind; before any row of the plan */
    uint32_t from, to;
    uint32_t kind; /* enum weft_kv_kind */
};

struct weft_step_spill { /* one block, between memory and the file */
    uint32_t block;
    uint32_t slot; /* of the file */
};

/* What moves. In the order of the list, but KEEP comes after all rows. */
enum weft_step_state_op {
    WEFT_STATE_FORK, /* the slot, which the plan starts, gets the state of the slot `other`; of its own: it stays */
    WEFT_STATE_LOAD, /* the same of the checkpoint `other` */
    WEFT_STATE_KEEP, /* the checkpoint `other` gets that of the slot, which has a row */
    WEFT_STATE_OPS,
};

struct weft_step_state {
    uint32_t op; /* enum weft_step_state_op */
    uint32_t slot, other;
};

struct weft_step_release { /* the slot is free; its generation never comes back */
    uint32_t slot, gen;
};

struct weft_step_row {
    uint32_t slot, gen;
    uint32_t n_tokens; /* >= 1; a prompt chunk, 1 to decode, or forced ones */
    /* Tokens beyond that the worker may guess, if the row reaches the last known one: at most
     * WEFT_SPEC_TOKENS_MAX, and as far as blocks, lengths and what it finds allow. */
    uint32_t n_spec;
};

struct weft_step_plan {
    uint64_t epoch; /* of the group: a higher one makes the worker drop all sequences */
    uint64_t step;  /* 0, 1, 2, ... within the epoch, no gaps */
    uint32_t n_releases, n_starts, n_spills, n_copies, n_restores, n_grants, n_states, n_rows;
    const struct weft_step_release *releases;
    const struct weft_step_start *starts;
    const struct weft_step_spill *spills;
    const struct weft_step_copy *copies;
    const struct weft_step_spill *restores;
    const struct weft_step_grant *grants;
    const struct weft_step_state *states;
    const struct weft_step_row *rows;
};

/* Log-probabilities of raw logits (before bias, penalties and temperature). */
struct weft_logprobs {
    float logprob; /* of the token itself */
    uint32_t rank; /* of the token itself: 1 + number of tokens with a higher logit */
    uint32_t n_top;
    const uint32_t *top_ids;   /* [n_top], best first; equal ones by lower id */
    const float *top_logprobs; /* [n_top] */
};

struct weft_step_out { /* one per row, in the plan's order */
    uint32_t slot, gen;
    bool ran;     /* false: the sequence had finished before; nothing was computed */
    bool sampled; /* `token` is new */
    /* Its grammar has no mask yet: the sequence's next row, of one token, computes nothing and samples
     * in the place of this one. */
    bool is_late;
    uint32_t token;
    uint32_t output_idx; /* 0 for the first token after the prompt */
    /* [n_more] what follows `token`: first n_accepted that were sampled where a guess had come true, then
     * forced ones, each the only token that its grammar has there. At most WEFT_MORE_MAX; without
     * log-probabilities alone. */
    const uint32_t *more;
    uint32_t n_more;
    uint32_t n_proposed; /* guesses that were computed, */
    uint32_t n_accepted; /* and how many of them came true: n_computed grew by these, too */
    /* After these tokens: NONE, STOP or LENGTH. Not sampled: LENGTH, with max_tokens 0 after the prompt;
     * COMPLETE and GRAMMAR. */
    enum weft_end finish;
    double sampler_state; /* after these tokens, of samplings that have one; else 0 */
    bool has_logprobs;
    struct weft_logprobs logprobs; /* of the sampled token */
    uint32_t prompt_pos;           /* first prompt position the next entries speak of */
    uint32_t n_prompt_logprobs;
    const struct weft_logprobs *prompt_logprobs; /* [n_prompt_logprobs], of prompt tokens */
    uint32_t n_values; /* with the end of a sequence that has a pooling, else 0 */
    const float *values;
};

struct weft_step_result {
    uint64_t epoch, step;
    uint32_t busy_us; /* computing */
    uint32_t
        idle_us; /* waiting for this plan since the step before ended; 0 if nothing ran before */
    uint32_t n_tokens;    /* computed */
    uint32_t spill_us;    /* of busy_us: for the plan's spills and restores, */
    uint32_t draft_us;    /* and for guesses, */
    uint32_t catch_up_us; /* of which to compute what sequences had before; */
    uint32_t contrast_us; /* and for candidates of contrastive search */
    uint32_t n_outs;
    const struct weft_step_out *outs;
};

/* ---------------------------------------------- what its log-probabilities and values weigh --- */

/* As they travel: logprob, rank and n_top of an entry, then an id and a value for each of n_top. */
#define WEFT_LOGPROB_HEAD_BYTES 12u
#define WEFT_LOGPROB_TOP_BYTES 8u
_Static_assert(WEFT_LOGPROB_HEAD_BYTES + WEFT_LOGPROB_TOP_BYTES * (uint64_t)WEFT_VOCAB_MAX <=
                   WEFT_STEP_LOGPROB_BYTES_MAX,
               "any token's log-probabilities fit a step, so that every sequence advances");
_Static_assert(sizeof(float) * WEFT_HIDDEN_MAX <= WEFT_STEP_LOGPROB_BYTES_MAX,
               "and any sequence's values");

/* The part of a sequence that decides which log-probabilities its next tokens bring, and when its
 * values come, which count as such. Scheduler and worker count by the same rules: what the one plans
 * the other accepts. */
struct weft_step_seq {
    const struct weft_sampling *sampling;
    uint32_t n_vocab, n_values;
    uint32_t n_prompt, n_prompt_logprobs_done;
    uint32_t n_known, n_computed;
};

/* Prompt positions [begin, end) whose log-probabilities the next n_tokens bring: those right after
 * the tokens computed, since the logits at p speak of p + 1. Position 0 has none. */
struct weft_step_span {
    uint32_t begin, end;
};
struct weft_step_span weft_step_prompt_span(const struct weft_step_seq *seq, uint32_t n_tokens);

/* Bytes of all log-probabilities that the next n_tokens bring, the sampled token's and the values
 * included. No token brings more than one entry, and the last one the values in its place. */
uint64_t weft_step_logprob_bytes(const struct weft_step_seq *seq, uint32_t n_tokens);

/* How many of the next n_tokens, taken from the first on, bring no more than room_bytes. */
uint32_t weft_step_tokens_within(const struct weft_step_seq *seq, uint32_t n_tokens,
                                 uint64_t room_bytes);

#endif
