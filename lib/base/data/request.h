/* base/request — the plain data of a request: what a router asks for, what it hears of it.
 *
 * Model    A request is one prompt with 1..n choices, each a stream of tokens. A router submits it,
 *          and gets an acceptance or a rejection, then events. It may submit it again, with what
 *          the choices have so far and a higher attempt: after a loss of the scheduler, say.
 *          Events carry the attempt that they belong to.
 * Memory   Everything behind a pointer is borrowed from whoever made the struct.
 */
#ifndef WEFT_BASE_REQUEST_H
#define WEFT_BASE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/end.h"
#include "base/sampling.h"
#include "base/step.h"
#include "base/str.h"

struct weft_submit_choice {
    const uint32_t *output; /* tokens generated so far, on resumption */
    uint32_t n_output;
    double sampler_state; /* of the last of them, as events said; finite */
    bool finished;        /* nothing more to do for this choice */
};

/* A digest of 128 bits, too strong for a client to make two values share one; zeroes: of nothing. */
struct weft_digest {
    uint64_t hi, lo;
};

/* A request of this priority runs in the background, under every policy: it gets what others leave of a step's time,
 * of places and of blocks, and gives those back as soon as somebody else wants them. */
#define WEFT_PRIORITY_BACKGROUND INT32_MAX

struct weft_submit {
    uint64_t request_id; /* unique per router instance */
    uint32_t attempt;    /* grows with every re-submission */
    const uint32_t *prompt;
    uint32_t n_prompt;
    uint32_t n_choices;                       /* 1..WEFT_CHOICES_MAX */
    const struct weft_submit_choice *choices; /* [n_choices]; empty outputs when fresh */
    uint32_t n_prompt_logprobs_done;          /* on resumption: positions below need no more */
    bool resume;     /* known before: keeps its place by age, never refused by a queue's bound */
    uint64_t age_us; /* how long ago it first arrived */
    uint64_t deadline_us; /* from now; 0: none */
    struct weft_sampling sampling;
    struct weft_pooling pooling;
    int32_t priority; /* lower is served earlier; 0 unless told; or WEFT_PRIORITY_BACKGROUND */
    /* Wishes, at most WEFT_SLO_US_MAX; 0: none. The first token so long after arrival; so long per
     * token after that. */
    uint64_t ttft_us, tpot_us;
    uint64_t tenant;               /* who pays: equal numbers are one API key; 0: nobody named */
    uint64_t flow;                 /* a user of the tenant; 0: nobody named */
    uint32_t weight;               /* the tenant's share next to others': 1..WEFT_WEIGHT_MAX */
    struct weft_digest cache_salt; /* only requests of one salt share cached prefixes */
    bool no_guesses;               /* nothing is guessed ahead for it */
    /* Where a sequence comes to the model's length it does not end: of what is behind its first n_keep tokens
     * half is dropped, and it goes on with the rest. Without beams and pooling. */
    bool shifts;
    uint32_t n_keep;
    struct weft_str session_id; /* the tenant's name for the conversation; empty: none */
    uint32_t n_adapters;        /* at most WEFT_SEQ_ADAPTERS_MAX; added in this order */
    const struct weft_step_adapter *adapters;
};

/* The numbers travel (proto/schema.md): they never change. */
enum weft_reject {
    WEFT_REJECT_NONE = 0,        /* accepted; never sent */
    WEFT_REJECT_QUEUE_FULL = 1,  /* 429 */
    WEFT_REJECT_TOO_LONG = 2,    /* 400: can never fit */
    WEFT_REJECT_INVALID = 3,     /* 400 */
    WEFT_REJECT_DRAINING = 4,    /* 503 */
    WEFT_REJECT_NO_MEMORY = 5,   /* 503 */
    WEFT_REJECT_OVERLOADED = 6,  /* 503: over the server's bound of queued tokens */
    WEFT_REJECT_DEADLINE = 7,    /* 503: its deadline cannot be met */
    WEFT_REJECT_TENANT_FULL = 8, /* 429: the tenant's share of the queue is full */
    WEFT_REJECT_COUNT,
};

struct weft_rejection {
    uint64_t request_id;
    uint32_t attempt;
    enum weft_reject reason;
    uint32_t retry_after_ms; /* 0: do not */
    const char *text;        /* terminated */
};

/* A token, prompt log-probabilities, an end, or several of these at once. */
struct weft_event {
    uint64_t request_id;
    uint32_t attempt;
    uint32_t choice;
    bool sampled;
    uint32_t token, output_idx; /* when sampled */
    double sampler_state;       /* after it: a submit that goes on with it says so */
    enum weft_end end;          /* this choice ends here */
    bool has_logprobs;
    struct weft_logprobs logprobs;
    uint32_t prompt_pos, n_prompt_logprobs;
    const struct weft_logprobs *prompt_logprobs;
    uint32_t n_prompt_cached; /* prompt tokens that were not computed (0 without a prefix cache) */
    uint64_t queued_us;       /* from arrival to the first plan */
    uint32_t n_values;        /* with the end of a request that has a pooling */
    const float *values;
};

#endif
