/* call_internal — what a call consists of.
 *
 * Model    A call holds jobs, one for each prompt; a job is one Submit to the scheduler, with n
 *          choices. A choice keeps its output as token ids only: text is made from them when the
 *          client's socket has room (render/). A call that starts while a worker or the scheduler
 *          is being replaced is parked before it has jobs (parking.h).
 * Stops    Stop strings need text as soon as a token comes: render/choice_text.h. They are compiled
 *          once, for all matchers of the call.
 */
#ifndef WEFT_API_CALL_INTERNAL_H
#define WEFT_API_CALL_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "api/call.h"
#include "api/error.h"
#include "api/limits.h"
#include "api/upstream.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/request.h"
#include "call/logprob_store.h"
#include "call/output_budget.h"
#include "codec/writer.h"
#include "params/params.h"
#include "proto/proto.h"
#include "render/choice_text.h"
#include "render/render.h"
#include "tokenizer/tokenizer.h"

/* What a compressed body is made in at first: most are prepared in the loop's thread at once. */
#define WEFT_API_FIRST_ROOM_BYTES 8192

struct weft_api_state;
struct weft_gunzip;

struct choice {
    struct job *job;
    uint32_t idx;     /* within the job */
    uint32_t index;   /* within the response */
    uint32_t *tokens; /* output; at most max_tokens */
    uint32_t n_tokens, cap_tokens;
    double sampler_state; /* after the last of them */
    struct logprob_store lps;
    double logprob_sum; /* of its tokens; no number where the scheduler was not asked for them */
    enum weft_end end;
    uint32_t stop_idx; /* WEFT_END_STOP_STRING: which */
    struct choice_scan scan;
    uint64_t first_us, last_us; /* when tokens came */
    struct choice_view view;
    STAILQ_ENTRY(choice) unrendered; /* in the call's list */
    bool is_unrendered;
    bool is_read;           /* to its end, so the following are final (render/message.h): */
    bool has_thoughts;      /* that are told */
    bool is_call_cut;       /* the last of its calls isn't whole */
    uint32_t n_calls;       /* of tools; */
    uint32_t n_whole_calls; /* the first ones, whose arguments are whole (kinds/messages.h) */
    uint32_t n_thoughts;    /* tokens */
};

struct job {
    struct weft_api_upstream_job upstream; /* first: one address for both */
    weft_api_call *call;
    bool accepted; /* in some attempt: from then on it is resumed */
    const struct prompt *prompt;
    struct choice *choices;
    uint32_t n_choices, n_ended;
    struct logprob_store prompt_lps; /* of positions 1, 2, ... */
    uint64_t seed;
    uint64_t prompt_digest; /* 0: not made yet */
    bool has_started;       /* its first token has come */
    uint32_t n_cached;
    uint64_t queued_us;
    float *values; /* owned: of a pooling, as they are told; NULL: they have not come */
    uint32_t n_values;
};

struct ranked {
    uint32_t idx; /* of a pair */
    double score;
};

STAILQ_HEAD(choices, choice);

struct weft_api_call {
    struct weft_api_state *api;
    void (*wake)(weft_api_call *call);
    void *owner;

    const weft_api_kind *kind;
    enum weft_api_call_state state;
    TAILQ_ENTRY(weft_api_call) parked_entry; /* while it is parked, or in line */
    struct weft_api_parked_tenant
        *parked_tenant; /* not NULL: WAITING for the scheduler itself, and without jobs */
    bool is_in_line;    /* the same for one in the background that waits for others */
    bool accepted;      /* the scheduler took it */
    bool uses_adapters; /* counted with each of its adapters */
    bool is_placed;     /* one of several schedulers got a job of it */
    bool is_abandoned;  /* dropped; freed as soon as no thread uses it */
    bool in_thread;     /* prepared elsewhere, or waiting for that */
    bool (*take_back)(void *lent_to); /* see weft_api_call_lend */
    void *lent_to;

    struct weft_buf body;
    struct weft_gunzip *unpack;    /* makes the body; NULL: it came as it is, or is made */
    size_t body_room;              /* that its bytes may take so far */
    bool wants_room;               /* that is too little */
    size_t n_read;                 /* of the body, whose bytes are freed as soon as they are read */
    bool is_msgpack;               /* the body is; else JSON */
    bool is_rpc;                   /* the answer is MessagePack-RPC's; else HTTP's */
    uint64_t held_bytes;           /* of the shared budget */
    struct weft_api_limits limits; /* as they were when the call came */
    struct params params;
    struct weft_api_error error;

    const char *model_name;
    char fingerprint[32];
    char id[24 + WEFT_REQUEST_ID_BYTES_MAX + 1]; /* of the response */
    char request_id[WEFT_REQUEST_ID_BYTES_MAX + 1];
    int64_t created_s;
    uint64_t arrived_us, deadline_us; /* 0: none */
    struct weft_api_asker asker;

    struct job *jobs;
    struct choice *choices;         /* of all jobs; job i has [i * n_run, (i + 1) * n_run), until
                                       they are ranked: then [i * n, (i + 1) * n) are shown */
    struct weft_stop_set *stop_set; /* all matchers borrow it; NULL: no stop strings */
    uint32_t n_jobs, n_accepted, n_jobs_ended, n_choices;
    uint32_t n_shown; /* of n_choices, those in the answer: the first of them, once it is done */
    struct choices unrendered;       /* choices of a stream with something to render */
    struct weft_buf chunk_head;      /* how each chunk of its stream begins, */
    struct weft_writer chunk_writer; /* and the writer after that */
    struct render render;
    struct weft_api_session_ask session_ask; /* of a kind that asks about sessions, */
    struct weft_str path_session; /* which its path names, right after the call; empty: none */
    void *kind_state;             /* of its rendering: owned, and the kind's to free; NULL: none */
    struct output_budget output;
    struct ranked *ranked; /* owned: [pooled.n_scores]; NULL: there are none yet */
};

/* Ends a call with an error; no effect on one that has ended. */
void wefti_api_call_fail(weft_api_call *call, int status, uint32_t retry_after_ms, const char *code,
                         const char *message);
/* Ends a call that waits for something else than a scheduler; `error` NULL: well. */
void wefti_api_call_finish(weft_api_call *call, const struct weft_api_error *error);

/* The model's, or where the call has adapters another for each list of them. */
#define WEFT_API_FINGERPRINT_BYTES 32
const char *wefti_api_call_fingerprint(const weft_api_call *call,
                                       char text[WEFT_API_FINGERPRINT_BYTES]);

uint32_t wefti_api_prompt_tokens(const weft_api_call *call);
uint64_t wefti_api_output_tokens(const weft_api_call *call);
uint32_t wefti_api_cached_tokens(const weft_api_call *call);
/* Of what is rendered. */
uint64_t wefti_api_thought_tokens(const weft_api_call *call);

#endif
