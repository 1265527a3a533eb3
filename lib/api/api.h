/* api — what all requests of one router share. No sockets and no event loop here: a test runs all
 * of it with a link of its own making.
 */
#ifndef WEFT_API_API_H
#define WEFT_API_API_H

#include <stdbool.h>
#include <sys/queue.h>

#include "api/adapters.h"
#include "api/call.h"
#include "api/dialect.h"
#include "api/keys.h"
#include "api/limits.h"
#include "api/metrics.h"
#include "api/upstream.h"
#include "template/template.h"
#include "tokenizer/tokenizer.h"

struct weft_api_settings {       /* from the command line */
    const char *model;           /* its path, as given */
    const char *metrics_prefix;  /* of all names at /metrics */
    const char *allowed_origins; /* CORS: a comma-separated list, "*" for any; NULL: none */
    uint64_t max_body_bytes;
    uint64_t max_logprob_bytes;  /* of one request */
    uint64_t request_bytes;      /* of all requests and answers, small ones too; 0: see held_max */
    uint32_t request_timeout_ms; /* 0: none */
    uint32_t restart_grace_ms;   /* see weft_api_is_back_soon */
    uint32_t max_queue;          /* prompts that wait meanwhile */
    uint64_t responses_bytes;    /* that are kept; 0: none are */
    uint32_t responses_ttl_s;
    bool keeps_batches;        /* and files: there is a store for them */
    uint64_t batch_file_bytes; /* of one file */
    bool prefix_cache;         /* the scheduler looks prompts up there, */
    bool prefix_cache_per_key; /* and tenants find their own only */
    int64_t started_s;         /* wall clock */
};

#define WEFT_API_MODEL_NAMES_MAX 16

struct weft_api_state {
    struct weft_api_settings settings;
    struct weft_api_keys keys;
    uint32_t n_key_changes; /* whoever was admitted by others must show a key again */
    char *model_names_text; /* owned; `model_names` point into it, `limits` to them */
    const char *model_names[WEFT_API_MODEL_NAMES_MAX];
    weft_tokenizer *tok;
    weft_tmpl *chat;   /* NULL: the model has no template */
    char *chat_source; /* owned; its text, which clients may ask for */
    struct weft_api_dialect dialect;
    struct weft_api_limits limits;
    struct weft_api_metrics metrics;
    struct weft_api_upstream upstream;
    TAILQ_HEAD(, weft_api_call)
    parked; /* they came while nobody served: nothing is submitted yet */
    LIST_HEAD(, weft_api_parked_tenant) parked_tenants; /* whose they are */
    uint32_t n_parked_prompts;
    TAILQ_HEAD(, weft_api_call) background; /* which wait for others of the background */
    uint32_t n_background_jobs;             /* of those that do not: open ones */
    bool
        is_leaving; /* the server will end: /health says so, and connections end with their answers */
    bool draining; /* nothing new is taken */
    /* Another server listens in this one's place: connections end with their answers, and are
     * answered until then as ever. */
    bool is_replaced;
    /* What large requests hold, against `held_max`: bytes received that are no call yet; then a
     * call's body until it is tokenized, and its ids until it ends. Small requests: see
     * weft_api_cost. */
    uint64_t held_bytes, held_max;
    /* Output that calls hold (ids, log-probabilities, matchers; in MessagePack-RPC also a large
     * result until it is sent), against `output_max`; small output costs nothing. A separate
     * budget, so that large prompts cannot use it up. */
    uint64_t output_bytes, output_max;
    uint64_t
        small_bytes; /* what of one request costs nothing; 0 where --request-memory bounds all */
    struct weft_api_adapters adapters;
    struct weft_api_store *store;       /* responses that are kept; NULL: none are */
    struct weft_model_pooling *pooling; /* owned; what `limits.purpose` points to, or NULL */
};

/* A body up to this size costs nothing, so nobody can use up what small requests need. Their number
 * bounds them: one per connection, in MessagePack-RPC WEFT_RPC_SMALL_BYTES_MAX. With
 * --request-memory, which is to be kept, every byte costs. */
#define WEFT_API_SMALL_BYTES 65536

#define WEFT_API_SHORT_BODY_BYTES 16384 /* read in the loop, unless it has read much this turn */

/* Snapshots come every 250 ms. After two missing, and a margin for a busy machine, /health says so;
 * after four nothing more is sent to that scheduler. */
#define WEFT_API_HEALTHY_AGE_MS_MAX 650
#define WEFT_API_SNAPSHOT_AGE_MS_MAX 1000

/* NULL if a generation can be accepted now; else the reason, for people. */
const char *weft_api_why_not(const struct weft_api_state *api, uint64_t now_ms);

/* If it cannot: whether it soon will, since what is gone is being replaced. True for
 * --restart-grace after it last could; never while the server starts, adapters of the command line
 * included, or drains. */
bool weft_api_is_back_soon(const struct weft_api_state *api, uint64_t now_ms);

/* Like weft_api_why_not, for /health, which also wants steps to advance. */
const char *weft_api_why_ill(const struct weft_api_state *api, uint64_t now_ms);

/* Sets up everything but the upstream and the tokenizer, template and limits of the model, which
 * the caller fills in and hands over. Call it before there are threads. */
void weft_api_init(struct weft_api_state *api, const struct weft_api_settings *settings);

/* Call it after weft_api_upstream_fini. */
void weft_api_fini(struct weft_api_state *api);

/* Fills in the names in `limits`: what stands between the commas of `names`, without the spaces
 * around it. INVAL: an empty name, or not UTF-8; TOOBIG: over WEFT_API_MODEL_NAMES_MAX; NOMEM. Call
 * it once. */
WEFT_MUST_CHECK weft_err weft_api_name_model(struct weft_api_state *api, const char *names,
                                             struct weft_errmsg *why);

/* Compiles the chat template and learns how the model talks (dialect.h), once its tokenizer is there. `source`, of
 * malloc, is the state's from here on; NULL: there is none. `parser`: the name of a format of calls, or "auto".
 * UNSUPPORTED, INVAL: of the template; NOTFOUND: no such format. Call it once. */
WEFT_MUST_CHECK weft_err weft_api_set_template(struct weft_api_state *api, char *source,
                                               const char *parser, struct weft_errmsg *why);

/* Says what the model is served for, once its tokenizer is there. `pooling` is the state's from here on, also
 * after an error. `runner`: "auto" goes by it; "generate", "pooling": of a decoder, all the same. INVAL: the
 * model cannot do that. Call it once. */
WEFT_MUST_CHECK weft_err weft_api_set_purpose(struct weft_api_state *api,
                                              struct weft_model_pooling *pooling,
                                              const char *runner, struct weft_errmsg *why);

/* Puts other keys in place; `keys` is zero afterwards. */
void weft_api_set_keys(struct weft_api_state *api, struct weft_api_keys *keys);

/* True when `text` is one of the keys, *key_out, or none is needed, NULL. */
bool weft_api_admits(const struct weft_api_state *api, const char *text, size_t len,
                     const struct weft_api_key **key_out);

/* Whether whoever was admitted so may do what all tenants notice. */
bool weft_api_is_admin(const struct weft_api_state *api, const struct weft_api_key *key);
#define WEFT_API_ADMINS_ONLY                                                                       \
    "this API key may not do that: it takes one whose line in the key file says admin"

/* What `n` bytes of one request cost of the budget: `n`, or nothing if the request is small. */
uint64_t weft_api_cost(const struct weft_api_state *api, uint64_t n);

/* What reading a body of `n` bytes may take beside its own (codec/json_budget); SIZE_MAX: no bound. With
 * --request-memory only one body over WEFT_API_SHORT_BODY_BYTES is read at a time. */
size_t weft_api_reading_bytes(const struct weft_api_state *api, size_t n);

/* Takes `n` bytes of the budget for large requests; false: it is used up. */
bool weft_api_hold(struct weft_api_state *api, uint64_t n);
void weft_api_release(struct weft_api_state *api, uint64_t n);

/* The same for the budget for output. */
bool weft_api_hold_output(struct weft_api_state *api, uint64_t n);
void weft_api_release_output(struct weft_api_state *api, uint64_t n);

#endif
