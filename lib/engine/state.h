/* engine, shared by engine.c, step.c and logits.c — the engine itself. */
#ifndef WEFT_ENGINE_STATE_H
#define WEFT_ENGINE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/step.h"
#include "engine/engine.h"
#include "forward/forward.h"
#include "guess/draft.h"
#include "guess/guess.h"
#include "guess/mtp.h"
#include "guess/ngram.h"
#include "kernels/kernels.h"
#include "lora/adapters.h"
#include "recurrent/mixer.h"
#include "runtime/kv_cache.h"
#include "runtime/pool.h"
#include "runtime/profile.h"
#include "runtime/slots.h"
#include "runtime/spill.h"
#include "sampler/chain.h"
#include "sampler/guides.h"
#include "sampler/sampler.h"
#include "weights/weights.h"

/* The use of one row's logits. */
struct wefti_engine_job {
    uint32_t out_idx;
    bool samples;                   /* else: the log-probability of the prompt's next token */
    bool waits;                     /* for a mask that is not there */
    bool is_guess;                  /* the row's token is one, `guess`, */
    uint32_t pos, guess;            /* at this position */
    uint32_t target;                /* that token */
    struct weft_logprobs *logprobs; /* NULL: none wanted */
    struct wefti_sampler_top top;
    float *scores;  /* not NULL: instead of that, the logits that its sequence's pooling names */
    bool is_broken; /* its logits are not numbers */
};

/* A pass over candidates of contrastive search: rows of the flat batch, each with blocks of its own at
 * the end. [WEFTI_KV_SPARE] each. */
struct wefti_eng_contrast {
    uint32_t n, n_most; /* rows, and how many of them a pass may have */
    uint32_t n_copies;
    uint32_t *slots, *candidates;    /* whose they are */
    uint32_t *tables[WEFT_KV_KINDS]; /* [table_cap] for each */
    struct wefti_forward_span *spans;
    struct weft_step_copy *copies; /* one for each kind */
};

struct weft_eng {
    const struct weft_kern_table *kern;
    struct wefti_pool *pool;
    struct wefti_weights weights;
    struct wefti_kv_cache kv;
    struct wefti_spill spill;
    struct wefti_slots slots;
    struct wefti_states
        states; /* places of slots, then of checkpoints; zeroes where no layer is recurrent */
    struct wefti_ngram ngram;
    struct wefti_draft *draft; /* NULL: none */
    struct wefti_mtp *mtp;     /* the same; not both */
    wefti_guides *guides;      /* NULL: of a rank that does not sample */
    wefti_loras *loras;        /* NULL: there may be none */
    struct wefti_forward *forward;
    struct wefti_profile *profile; /* NULL: off */
    struct weft_eng_info info;
    weft_coll *coll; /* NULL: the model is not divided */
    enum weft_kv_dtype kv_dtype;
    bool exact;           /* f32 activations all over */
    uint32_t long_prompt; /* prompts longer than this are long ones */
    uint32_t lora_rank_max;

    uint64_t epoch, next_step;
    bool has_failed;      /* a step of this epoch, halfway */
    uint64_t last_end_us; /* 0: nothing ran yet */
    bool has_warned;      /* that logits are not numbers */
    _Atomic uint64_t
        guide_wait_until_ms; /* this step waits no longer for masks; 0: it does not wait yet */
    struct weft_step_result result;

    /* One step's, sized by the limits. */
    uint32_t *tokens;                          /* [max_batched_tokens] */
    struct weft_attn_row *rows[WEFT_KV_KINDS]; /* [max_batched_tokens]; of kinds that are there */
    bool *is_long, *is_second, *is_written;    /* [max_batched_tokens] */
    float *head_rows;                          /* [2][n_hidden] */
    uint32_t *last_rows;                       /* [max_batched_tokens] */
    struct wefti_lora_set *sets;               /* [max_seqs], and one more for raw logits */
    const struct wefti_lora_set **row_sets;    /* [max_batched_tokens] */
    bool has_row_sets;                         /* some are not NULL */
    uint32_t *logit_rows;                      /* [max_batched_tokens] */
    bool *is_chained;                          /* [max_batched_tokens], of logit rows: guesses' */
    struct wefti_engine_job *jobs;             /* [max_batched_tokens], one per logit row */
    struct wefti_forward_span
        *spans;              /* [max_seqs], and with mtp [max_batched_tokens] after those */
    uint32_t n_pooled_spans; /* of this step; what follows is each row for mtp */
    uint32_t *span_slots;    /* [max_seqs] whose they are */
    struct weft_logprobs *prompt_logprobs; /* [max_batched_tokens] */
    struct weft_step_out *outs;            /* [max_seqs] */
    struct wefti_guess_line *guess_lines;  /* [max_seqs] */
    struct wefti_mixer_seq *seqs;          /* [max_seqs] of recurrent layers */
    struct wefti_eng_contrast contrast;
    struct wefti_sampler_scratch *samplers; /* [n_threads] */
    uint8_t *top;               /* best tokens: ids, then values, row by row; and pooled values */
    size_t top_bytes, top_used; /* the most that a step may yield */
    void *map;
    size_t map_bytes;
};

/* Computes the candidates that the step's logits named, and compares each with its sequence's context
 * (contrast.c). */
WEFT_MUST_CHECK weft_err wefti_eng_compare(weft_eng *eng, const struct weft_step_plan *plan,
                                           struct weft_errmsg *why);

/* Whether a sequence may have these adapters; PROTO, with a sentence. */
WEFT_MUST_CHECK weft_err wefti_eng_check_loras(weft_eng *eng, const struct weft_step_adapter *list,
                                               uint32_t n, struct weft_errmsg *why);

#endif
