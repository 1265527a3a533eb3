/* config — every setting of every actor: flags over WEFT_* variables over the --config file.
 *
 * One table names each setting once: its flag, its type, bounds, default, which programs know it
 * and a line of help. `weft serve` reads them all and passes each child the ones it knows; an actor
 * started by hand takes the same flags.
 */
#ifndef WEFT_CMD_CONFIG_H
#define WEFT_CMD_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/sampling.h"

#define WEFT_BENCH_REPS_MAX 100 /* --reps: their rates are kept until the medians are known */

enum weft_program { /* bits */
                    WEFT_PROG_SERVE = 1,
                    WEFT_PROG_ROUTER = 2,
                    WEFT_PROG_SCHEDULER = 4,
                    WEFT_PROG_WORKER = 8,
                    WEFT_PROG_RUN = 16,        /* weft run */
                    WEFT_PROG_PERPLEXITY = 32, /* weft perplexity */
                    WEFT_PROG_BENCH = 64,      /* weft bench */
                    WEFT_PROG_PACK = 128,      /* weft pack */
                    WEFT_PROG_BENCH_SERVE = 256,
};

struct weft_config {
    const char *model; /* the positional MODEL, or URL of weft bench-serve; NULL when the program
                          takes none */

    /* front */
    const char *host;
    uint32_t port, rpc_port; /* 0: any free one */
    bool no_rpc;
    const char *served_model_name; /* NULL: as given on the command line */
    const char *api_key, *api_key_file;
    const char *chat_template;
    const char *allowed_origins; /* CORS: a comma-separated list, "*" for any */
    const char *metrics_prefix;
    const char *expert_metrics; /* "auto", "on", "off" */
    uint32_t max_connections;
    uint64_t max_body_bytes;
    uint32_t max_logprobs;
    uint64_t max_logprob_bytes; /* per request */
    uint32_t client_stall_timeout_ms;
    uint32_t request_timeout_ms; /* a request's whole life; 0: none */
    uint32_t idle_timeout_ms;    /* a keep-alive connection without a request; a slow header */
    uint32_t sse_keepalive_ms;
    uint32_t drain_timeout_ms;
    uint32_t restart_grace_ms; /* new requests wait so long for an actor that is being replaced */

    /* scheduling */
    uint32_t max_num_seqs, max_num_batched_tokens, max_queue;
    uint32_t step_target_ms;

    /* engine */
    const char *dtype, *quant_scheme, *activations, *kv_dtype;
    uint64_t kv_memory; /* 0: automatic */
    uint32_t block_size;
    uint32_t max_model_len; /* 0: the model's */
    uint32_t threads;       /* 0: one per CPU that affinity and the cgroup's quota allow */
    const char *workers;    /* "auto" or a number, which is then this: */
    uint32_t n_workers;     /* 0: one per NUMA node */
    const char *layout;

    /* plumbing */
    const char *scheduler_url, *worker_url; /* where links meet; `weft serve` makes them up */
    /* the scheduler's worker_url: one for each worker, comma-separated */
    const char *model_identity; /* what the first router read; NULL: nobody did before */
    const char *link;           /* weft serve: "abstract", "ipc", "tcp", "tls" */
    const char *link_cert, *link_key, *link_ca;
    bool insecure_links;
    int32_t weights_fd; /* -1 */
    int32_t status_fd;  /* -1; see cmd/common/status.h */
    const char *log_format, *log_level;

    /* weft pack */
    const char *out;
    bool force;
    /* and weft perplexity */
    const char *calibrate, *calibration;
    bool mixed;
    int32_t mixed_keep; /* -1: by rule */

    /* weft run, perplexity, bench */
    const char *prompt;
    const char *prompt_ids;
    uint32_t n_predict;
#define WEFT_CONFIG_F32 double
#define WEFT_CONFIG_U32 uint32_t
#define KNOB(type, name, ...) WEFT_CONFIG_##type name;
#define OWN(...)
    WEFT_SAMPLING_LIST(KNOB, OWN)
#undef OWN
#undef KNOB
    uint64_t seed;
    bool ignore_eos, json;
    const char *bench_prompt, *bench_batch; /* lists of numbers */
    uint32_t bench_gen, bench_context, bench_reps;
    bool bench_profile;
    const char *bench_trace; /* NULL: none */

    /* weft bench-serve */
    uint32_t load_concurrency, load_requests; /* 0 requests: some for each client */
    uint32_t load_prompt_tokens, load_max_tokens, load_vocab;
};

/* Parses argv[1..] for `program` (one bit): defaults, then the --config file, then WEFT_*
 * variables, then flags. Strings are borrowed from argv and the environment, or kept for the
 * process's life. *done_out: --help or --version was printed; exit 0. WEFT_E_INVAL: `why` names the
 * flag. */
WEFT_MUST_CHECK weft_err weft_config_parse(enum weft_program program, int argc, char **argv,
                                           struct weft_config *config_out, bool *done_out,
                                           struct weft_errmsg *why);

/* Flags that give `program` the same settings (secrets left out: they travel by the environment):
 * appends "--flag=value" strings and returns their number; each is malloc'd, argv_out holds at
 * least `max`. 0: no memory, and nothing is appended; every program knows some flag. */
uint32_t weft_config_argv(const struct weft_config *config, enum weft_program program,
                          char **argv_out, uint32_t max);

#endif
