/* One table, three sources. A setting is set by the first source that names it, from the strongest
 * to the weakest: flags, environment, file, default. Each source is a list of (name, text) pairs
 * that go through the same conversion, so an error reads the same wherever the text came from. */
#include "common/config.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/parse.h"

enum kind { KIND_TEXT, KIND_U32, KIND_U64, KIND_SIZE, KIND_I32, KIND_FD, KIND_DOUBLE, KIND_FLAG };

struct setting {
    const char *name; /* "max-num-seqs": flag --max-num-seqs, variable WEFT_MAX_NUM_SEQS */
    enum kind kind;
    size_t offset;
    unsigned programs; /* bits of enum weft_program */
    double min, max;   /* numbers */
    const char *value; /* default, as text; NULL: unset */
    const char *arg;   /* what --help shows behind the flag */
    const char *help;
};

#define AT(field) offsetof(struct weft_config, field)
#define FRONT (WEFT_PROG_SERVE | WEFT_PROG_ROUTER)
#define LOCAL (WEFT_PROG_RUN | WEFT_PROG_PERPLEXITY | WEFT_PROG_BENCH)
#define ENGINE (WEFT_PROG_SERVE | WEFT_PROG_WORKER | LOCAL)
#define ACTORS (WEFT_PROG_ROUTER | WEFT_PROG_SCHEDULER | WEFT_PROG_WORKER)
#define EVERY (WEFT_PROG_SERVE | ACTORS | LOCAL | WEFT_PROG_PACK | WEFT_PROG_BENCH_SERVE)
#define SECRET (WEFT_PROG_SERVE | WEFT_PROG_ROUTER | WEFT_PROG_BENCH_SERVE)
#define QUANTISERS (WEFT_PROG_PERPLEXITY | WEFT_PROG_PACK)
#define MS_MAX 86400000.0

/* Of base/sampling.h's list. */
#define KIND_F32 KIND_DOUBLE
#define ARG_F32 "X"
#define ARG_U32 "N"
#define KNOB(type, name, flag, value, least, most, api_least, api_most, help)                      \
    {flag, KIND_##type, AT(name), WEFT_PROG_RUN, least, most, #value, ARG_##type, help},
#define PASS_OVER(...)

/* clang-format off */
static const struct setting settings[] = {
    {"host", KIND_TEXT, AT(host), FRONT, 0, 0, "127.0.0.1", "ADDR",
     "address to listen on; of a name's addresses the first that this machine has"},
    {"port", KIND_U32, AT(port), FRONT, 0, 65535, "8080", "N", "HTTP port; 0: any free one"},
    {"rpc-port", KIND_U32, AT(rpc_port), FRONT, 0, 65535, "8081", "N",
     "MessagePack-RPC port; 0: any free one"},
    {"no-rpc", KIND_FLAG, AT(no_rpc), FRONT, 0, 0, NULL, NULL, "no MessagePack-RPC"},
    {"served-model-name", KIND_TEXT, AT(served_model_name), FRONT, 0, 0, NULL, "NAME",
     "the model's name in the API (default: MODEL as given)"},
    {"api-key", KIND_TEXT, AT(api_key), SECRET, 0, 0, NULL, "KEY", "the bearer token of the API"},
    {"api-key-file", KIND_TEXT, AT(api_key_file), FRONT, 0, 0, NULL, "FILE",
     "the same from a file, one key per line"},
    {"chat-template", KIND_TEXT, AT(chat_template), FRONT, 0, 0, NULL, "FILE",
     "use this chat template, not the model's"},
    {"allowed-origins", KIND_TEXT, AT(allowed_origins), FRONT, 0, 0, "*", "LIST",
     "origins allowed by CORS, comma-separated"},
    {"metrics-prefix", KIND_TEXT, AT(metrics_prefix), FRONT, 0, 0, "weft_", "TEXT",
     "prefix of metric names; \"vllm:\" keeps old dashboards"},
    {"expert-metrics", KIND_TEXT, AT(expert_metrics), WEFT_PROG_SERVE | WEFT_PROG_WORKER, 0, 0,
     "auto", "WHEN",
     "count the tokens of each expert: auto|on|off; auto: where there are at most 4096"},
    {"max-connections", KIND_U32, AT(max_connections), FRONT, 1, 1000000, "16384", "N",
     "client connections at once"},
    {"max-body", KIND_SIZE, AT(max_body_bytes), FRONT, 1024, WEFT_BODY_BYTES_MAX, "32MiB", "SIZE",
     "largest request body"},
    {"max-logprobs", KIND_U32, AT(max_logprobs), FRONT, 0, WEFT_VOCAB_MAX, "20", "N",
     "most log-probabilities per token a request may ask for"},
    {"max-logprob-bytes", KIND_SIZE, AT(max_logprob_bytes), FRONT, 4096, 1e12, "64MiB", "SIZE",
     "memory one request's log-probabilities may take at a time"},
    {"client-stall-timeout", KIND_U32, AT(client_stall_timeout_ms), FRONT, 100, MS_MAX, "60000",
     "MS", "drop a client that takes next to no bytes for so long"},
    {"request-timeout", KIND_U32, AT(request_timeout_ms), FRONT, 0, MS_MAX, "0", "MS",
     "end requests that take longer; 0: never"},
    {"idle-timeout", KIND_U32, AT(idle_timeout_ms), FRONT, 100, MS_MAX, "75000", "MS",
     "close idle connections and unfinished requests"},
    {"sse-keepalive", KIND_U32, AT(sse_keepalive_ms), FRONT, 50, MS_MAX, "5000", "MS",
     "comment line in a stream that is silent for so long"},
    {"drain-timeout", KIND_U32, AT(drain_timeout_ms), FRONT, 0, MS_MAX, "30000", "MS",
     "on SIGTERM running requests have so long to end"},
    {"restart-grace", KIND_U32, AT(restart_grace_ms), FRONT, 0, MS_MAX, "5000", "MS",
     "new requests wait so long for a worker or scheduler that is being replaced"},

    {"max-num-seqs", KIND_U32, AT(max_num_seqs), ENGINE | WEFT_PROG_SCHEDULER, 1, WEFT_SEQS_MAX,
     "64", "N", "sequences that a worker computes at once"},
    {"max-num-batched-tokens", KIND_U32, AT(max_num_batched_tokens), ENGINE | WEFT_PROG_SCHEDULER,
     1, WEFT_BATCHED_TOKENS_MAX, "512", "N", "tokens per step"},
    {"max-queue", KIND_U32, AT(max_queue), FRONT | WEFT_PROG_SCHEDULER, 1, WEFT_QUEUE_MAX, "1024",
     "N", "requests that may wait; more are answered 429"},
    {"step-target", KIND_U32, AT(step_target_ms), WEFT_PROG_SERVE | WEFT_PROG_SCHEDULER, 0, 60000,
     "100", "MS", "longest estimated step; 0: no such bound"},

    {"dtype", KIND_TEXT, AT(dtype), ENGINE | WEFT_PROG_PACK, 0, 0, "auto", "TYPE",
     "weights: auto|f32|bf16|f16|q8|q4"},
    {"quant-scheme", KIND_TEXT, AT(quant_scheme), ENGINE | WEFT_PROG_PACK, 0, 0, "auto", "NAME",
     "how q8 and q4 quantise: channel|group|group-asym|auto, which is channel for q8, group-asym "
     "for "
     "q4"},
    {"activations", KIND_TEXT, AT(activations), ENGINE, 0, 0, "auto", "TYPE",
     "auto|f32|bf16|int8; f32 is the exact mode"},
    {"kv-dtype", KIND_TEXT, AT(kv_dtype), ENGINE, 0, 0, "auto", "TYPE",
     "KV cache: f32|bf16|f16|int8|auto, which is bf16, or f32 with f32 activations"},
    {"kv-memory", KIND_SIZE, AT(kv_memory), ENGINE, 0, 1e15, NULL, "SIZE",
     "memory of a worker's KV cache (default: what the sequences can use, at most its part of half "
     "of what is free)"},
    {"block-size", KIND_U32, AT(block_size), ENGINE, 16, WEFT_BLOCK_SIZE_MAX, "16", "N",
     "tokens per KV block; a multiple of 16"},
    {"max-model-len", KIND_U32, AT(max_model_len), ENGINE, 0, WEFT_CONTEXT_MAX, "0", "N",
     "longest sequence; 0: the model's context"},
    {"threads", KIND_U32, AT(threads), ENGINE | WEFT_PROG_PACK, 0, WEFT_THREADS_MAX, "0", "N",
     "compute threads of a worker; 0: one per CPU that affinity and the cgroup's quota allow"},
    {"workers", KIND_TEXT, AT(workers), WEFT_PROG_SERVE | WEFT_PROG_WORKER, 0, 0, "auto", "N",
     "worker processes that share this machine, 1 to 32; auto: one per NUMA node"},
    {"layout", KIND_TEXT, AT(layout), WEFT_PROG_SERVE, 0, 0, "replica", "NAME",
     "replica: each worker computes by itself with all of the model (tp is not there yet)"},

    {"scheduler-url", KIND_TEXT, AT(scheduler_url), WEFT_PROG_ROUTER | WEFT_PROG_SCHEDULER, 0, 0,
     NULL, "URL", "where routers meet the scheduler"},
    {"worker-url", KIND_TEXT, AT(worker_url), WEFT_PROG_SCHEDULER | WEFT_PROG_WORKER, 0, 0, NULL,
     "URL", "where the worker meets the scheduler; to the scheduler one for each, comma-separated"},
    {"model-identity", KIND_TEXT, AT(model_identity), WEFT_PROG_ROUTER, 0, 0, NULL, "TEXT",
     "end where the model's tokenizer, template or defaults are not these"},
    {"link", KIND_TEXT, AT(link), WEFT_PROG_SERVE, 0, 0, "abstract", "KIND",
     "how the processes talk: abstract|ipc|tcp|tls; tls makes certificates of its own"},
    {"link-cert", KIND_TEXT, AT(link_cert), ACTORS, 0, 0, NULL, "FILE",
     "certificate for tls+tcp:// links, PEM"},
    {"link-key", KIND_TEXT, AT(link_key), ACTORS, 0, 0, NULL, "FILE", "its private key, PEM"},
    {"link-ca", KIND_TEXT, AT(link_ca), ACTORS, 0, 0, NULL, "FILE",
     "the authority that signed the certificates of all peers, and of nobody else, PEM"},
    {"insecure-links", KIND_FLAG, AT(insecure_links), ACTORS, 0, 0, NULL, NULL,
     "allow plain tcp:// links beyond the loopback address"},
    {"weights-fd", KIND_FD, AT(weights_fd), WEFT_PROG_WORKER, -1, 1e6, "-1", "FD",
     "memfd that keeps the packed weights"},
    {"status-fd", KIND_FD, AT(status_fd), ACTORS, -1, 1e6, "-1", "FD",
     "where to tell a supervisor that all is ready"},
    {"log-format", KIND_TEXT, AT(log_format), EVERY, 0, 0, "text", "FORMAT", "text|json"},
    {"log-level", KIND_TEXT, AT(log_level), EVERY, 0, 0, "info", "LEVEL", "debug|info|warn|error"},

    {"force", KIND_FLAG, AT(force), WEFT_PROG_PACK, 0, 0, NULL, NULL,
     "replace OUT if it is there already"},

    {"calibrate", KIND_TEXT, AT(calibrate), QUANTISERS, 0, 0, NULL, "FILE",
     "a text that tells which columns of q8 and q4 weights matter"},
    {"calibration", KIND_TEXT, AT(calibration), QUANTISERS, 0, 0, "error", "NAME",
     "where codes end: error|minmax|percentile|entropy"},
    {"mixed", KIND_FLAG, AT(mixed), QUANTISERS, 0, 0, NULL, NULL,
     "keep the layers wider that cost most perplexity on that text"},
    {"mixed-keep", KIND_I32, AT(mixed_keep), QUANTISERS, -1, 1e6, "-1", "N",
     "so many of them; -1: those over twice the median, at most a quarter"},

    {"prompt", KIND_TEXT, AT(prompt), WEFT_PROG_RUN, 0, 0, NULL, "TEXT",
     "the text to go on with (-p)"},
    {"prompt-ids", KIND_TEXT, AT(prompt_ids), WEFT_PROG_RUN, 0, 0, NULL, "1,2,3",
     "the same as token ids"},
    {"n-predict", KIND_U32, AT(n_predict), WEFT_PROG_RUN, 1, WEFT_CONTEXT_MAX, "64", "N",
     "tokens to generate (-n)"},
    WEFT_SAMPLING_LIST(KNOB, PASS_OVER)
    {"seed", KIND_U64, AT(seed), WEFT_PROG_RUN | WEFT_PROG_BENCH_SERVE, 0, 0, "0", "N",
     "of the generator"},
    {"ignore-eos", KIND_FLAG, AT(ignore_eos), WEFT_PROG_RUN, 0, 0, NULL, NULL,
     "go on behind the end of the text"},
    {"json", KIND_FLAG, AT(json), WEFT_PROG_RUN | WEFT_PROG_BENCH | WEFT_PROG_BENCH_SERVE, 0, 0,
     NULL, NULL, "print JSON"},
    {"bench-prompt", KIND_TEXT, AT(bench_prompt), WEFT_PROG_BENCH, 0, 0, "512", "LIST",
     "tokens of a prompt; called --prompt, too"},
    {"gen", KIND_U32, AT(bench_gen), WEFT_PROG_BENCH, 1, WEFT_CONTEXT_MAX, "128", "N",
     "tokens to generate"},
    {"batch", KIND_TEXT, AT(bench_batch), WEFT_PROG_BENCH, 0, 0, "1,4,16", "LIST",
     "sequences that generate at once"},
    {"context", KIND_U32, AT(bench_context), WEFT_PROG_BENCH, 1, WEFT_CONTEXT_MAX, "32", "N",
     "tokens that are there before them"},
    {"reps", KIND_U32, AT(bench_reps), WEFT_PROG_BENCH, 1, WEFT_BENCH_REPS_MAX, "5", "N",
     "times to measure, called --rounds, too; medians are printed"},
    {"profile", KIND_FLAG, AT(bench_profile), WEFT_PROG_BENCH, 0, 0, NULL, NULL,
     "a roofline table of the operators for each prompt and batch"},
    {"trace", KIND_TEXT, AT(bench_trace), WEFT_PROG_BENCH, 0, 0, NULL, "FILE",
     "write the last repetition's steps as a Chrome trace"},
    {"concurrency", KIND_U32, AT(load_concurrency), WEFT_PROG_BENCH_SERVE, 1, 4096, "16", "N",
     "clients, each with one request at a time"},
    {"requests", KIND_U32, AT(load_requests), WEFT_PROG_BENCH_SERVE, 0, 1e6, "0", "N",
     "of all clients together; 0: three for each"},
    {"prompt-tokens", KIND_U32, AT(load_prompt_tokens), WEFT_PROG_BENCH_SERVE, 1, WEFT_CONTEXT_MAX,
     "128", "N", "random token ids in a prompt"},
    {"max-tokens", KIND_U32, AT(load_max_tokens), WEFT_PROG_BENCH_SERVE, 1, WEFT_CONTEXT_MAX, "64",
     "N", "tokens that a request asks for"},
    {"vocab", KIND_U32, AT(load_vocab), WEFT_PROG_BENCH_SERVE, 1, WEFT_VOCAB_MAX, "1000", "N",
     "token ids of prompts are below it"},
};
/* clang-format on */
#define N_SETTINGS (sizeof settings / sizeof settings[0])

static const struct {
    enum weft_program program;
    const char *usage, *about;
    bool takes_model;
} programs[] = {
    {WEFT_PROG_SERVE, "weft serve MODEL [options]",
     "Serves a model over HTTP (OpenAI's API) and MessagePack-RPC.", true},
    {WEFT_PROG_ROUTER, "weft-router MODEL --scheduler-url URL [options]",
     "Takes requests; weft serve starts it.", true},
    {WEFT_PROG_SCHEDULER, "weft-scheduler --scheduler-url URL --worker-url URL [options]",
     "Plans steps; weft serve starts it.", false},
    {WEFT_PROG_WORKER, "weft-worker MODEL --worker-url URL [options]",
     "Computes steps; weft serve starts it.", true},
    {WEFT_PROG_RUN, "weft run MODEL -p TEXT | --prompt-ids 1,2,3 [options]",
     "One completion, without a server.", true},
    {WEFT_PROG_PERPLEXITY, "weft perplexity MODEL FILE [options]",
     "How well a model predicts a text.", true},
    {WEFT_PROG_BENCH, "weft bench MODEL [--prompt LIST] [--gen N] [--batch LIST] [options]",
     "Speed of prompt and generation, beside what the machine can do.", true},
    {WEFT_PROG_PACK, "weft pack MODEL OUT [--dtype TYPE] [options]",
     "Writes a model as the engine wants it in memory: one file that starts at once.", true},
    {WEFT_PROG_BENCH_SERVE, "weft bench-serve URL [--concurrency N] [--requests N] [options]",
     "Loads a server of OpenAI's API with streaming clients: rates and waiting times.", true},
};

static void print_help(size_t prog_idx) {
    printf("usage: %s\n\n%s\n\n", programs[prog_idx].usage, programs[prog_idx].about);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        if (!(s->programs & programs[prog_idx].program)) continue;
        char left[64];
        (void)snprintf(left, sizeof left, "--%s%s%s", s->name, s->arg ? " " : "",
                       s->arg ? s->arg : "");
        printf("  %-30s %s%s%s%s\n", left, s->help, s->value ? " (" : "", s->value ? s->value : "",
               s->value ? ")" : "");
    }
    printf("  %-30s %s\n", "--config FILE", "settings, one \"name = value\" per line");
    printf(
        "\nEach setting can also stand in the environment: --max-num-seqs as WEFT_MAX_NUM_SEQS.\n");
}

static weft_err bad_value(const struct setting *s, const char *called, const char *text,
                          struct weft_errmsg *why) {
    if (s->kind == KIND_SIZE)
        return weft_err_set(why, WEFT_E_INVAL, "%s: \"%s\" is not a size such as 512MiB, in range",
                            called, text);
    return weft_err_set(why, WEFT_E_INVAL, "%s: \"%s\" is not a number from %.15g to %.15g", called,
                        text, s->min, s->max);
}

/* `called` is how messages name the setting: as its source spells it, with the place. */
static weft_err set_value(struct weft_config *config, const struct setting *s, const char *called,
                          const char *text, struct weft_errmsg *why) {
    char *at = (char *)config + s->offset;
    uint64_t u = 0;
    double d = 0;
    bool flag = false;
    weft_err err = WEFT_OK;
    switch (s->kind) {
    case KIND_TEXT:
        *(const char **)(void *)at = text;
        return WEFT_OK;
    case KIND_FLAG:
        if (weft_parse_bool(text, &flag))
            return weft_err_set(why, WEFT_E_INVAL, "%s: \"%s\" is neither true nor false", called,
                                text);
        *(bool *)at = flag;
        return WEFT_OK;
    case KIND_DOUBLE:
        err = weft_parse_double(text, &d);
        if (err || d < s->min || d > s->max) return bad_value(s, called, text, why);
        *(double *)(void *)at = d;
        return WEFT_OK;
    case KIND_I32:
    case KIND_FD:
        err = weft_parse_double(text, &d);
        if (err || d < s->min || d > s->max || d != (double)(int32_t)d)
            return bad_value(s, called, text, why);
        *(int32_t *)(void *)at = (int32_t)d;
        return WEFT_OK;
    case KIND_SIZE:
        err = weft_parse_size(text, &u);
        if (err || (double)u < s->min || (double)u > s->max) return bad_value(s, called, text, why);
        *(uint64_t *)(void *)at = u;
        return WEFT_OK;
    case KIND_U64:
        err = weft_parse_u64(text, UINT64_MAX, &u);
        if (err)
            return weft_err_set(why, WEFT_E_INVAL, "%s: \"%s\" is not a whole number", called,
                                text);
        *(uint64_t *)(void *)at = u;
        return WEFT_OK;
    case KIND_U32:
        err = weft_parse_u64(text, (uint64_t)s->max, &u);
        if (err || (double)u < s->min) return bad_value(s, called, text, why);
        *(uint32_t *)(void *)at = (uint32_t)u;
        return WEFT_OK;
    }
    return WEFT_E_INVAL;
}

static const struct setting *find_setting(unsigned programs_wanted, const char *name, size_t len) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        if ((s->programs & programs_wanted) && strlen(s->name) == len &&
            !memcmp(s->name, name, len))
            return s;
    }
    return NULL;
}

static weft_err set_defaults(enum weft_program program, struct weft_config *config,
                             struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < N_SETTINGS && !err; i++) {
        if ((settings[i].programs & program) && settings[i].value)
            err = set_value(config, &settings[i], settings[i].name, settings[i].value, why);
    }
    return err;
}

static weft_err set_from_env(enum weft_program program, struct weft_config *config,
                             struct weft_errmsg *why) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        /* Descriptors mean something to one supervisor and its child only. */
        if (!(s->programs & program) || s->kind == KIND_FD) continue;
        char name[64] = "WEFT_";
        size_t n = strlen(name);
        for (const char *p = s->name; *p && n < sizeof name - 1; p++)
            name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        name[n] = '\0';
        const char *text = getenv(name);
        if (!text) continue;
        /* Kubernetes puts WEFT_PORT=tcp://... into every pod beside a service named weft. */
        if (strncmp(text, "tcp://", 6) == 0 && s->kind != KIND_TEXT) continue;
        weft_err err = set_value(config, s, name, text, why);
        if (err) return err;
    }
    return WEFT_OK;
}

static char *trim(char *text) {
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1]))
        text[--n] = '\0';
    return text;
}

/* Makes *value, trimmed, what stands between its quotes, if it has some; else what stands before a
 * '#' behind white space. False: a quote without its end, or with more than a comment behind it. */
static bool take_quotes(char **value) {
    char *text = *value;
    if (*text == '"' || *text == '\'') {
        char *end = strchr(text + 1, *text);
        if (!end) return false;
        char *rest = trim(end + 1);
        *end = '\0';
        *value = text + 1;
        return *rest == '\0' || *rest == '#';
    }
    for (char *p = text; *p; p++) {
        if (*p != '#' || (p > text && !isspace((unsigned char)p[-1]))) continue;
        *p = '\0';
        (void)trim(text);
        break;
    }
    return true;
}

/* A copy of `text` for the life of the process. A list keeps hold of all of them, so that a leak
 * checker does not blame a value that an environment variable or a flag took the place of. */
static const char *keep_text(const char *text) {
    static struct kept {
        struct kept *next;
        char text[];
    } * all;
    size_t n = strlen(text) + 1;
    struct kept *kept = malloc(sizeof *kept + n);
    if (!kept) return NULL;
    memcpy(kept->text, text, n);
    kept->next = all;
    all = kept;
    return kept->text;
}

/* "name = value" per line, the value in quotes or not; '#' starts a comment; names as flags, '_'
 * and
 * '-' are one. */
static weft_err set_from_file(enum weft_program program, const char *path,
                              struct weft_config *config, struct weft_errmsg *why) {
    FILE *file = fopen(path, "re");
    if (!file) return weft_err_errno(why, errno, "--config: cannot open \"%s\"", path);
    weft_err err = WEFT_OK;
    char line[4096];
    for (unsigned line_no = 1; !err && fgets(line, sizeof line, file); line_no++) {
        if (!strchr(line, '\n') && !feof(file)) {
            err =
                weft_err_set(why, WEFT_E_INVAL, "%s:%u: line too long, or not text", path, line_no);
            break;
        }
        char *name = trim(line);
        if (!*name || *name == '#') continue;
        char *eq = strchr(name, '=');
        if (!eq) {
            err =
                weft_err_set(why, WEFT_E_INVAL, "%s:%u: expected \"name = value\"", path, line_no);
            break;
        }
        *eq = '\0';
        char *value = trim(eq + 1);
        name = trim(name);
        for (char *p = name; *p; p++) {
            if (*p == '_') *p = '-';
        }
        const struct setting *s = find_setting(program, name, strlen(name));
        if (!s && find_setting(EVERY, name, strlen(name))) continue; /* one file for all actors */
        if (!s || s->kind == KIND_FD) {
            err = weft_err_set(why, WEFT_E_INVAL, "%s:%u: unknown setting \"%s\"", path, line_no,
                               name);
            break;
        }
        char called[4096 + 64];
        (void)snprintf(called, sizeof called, "%s:%u: %s", path, line_no, s->name);
        err = take_quotes(&value) ? WEFT_OK
                                  : weft_err_set(why, WEFT_E_INVAL,
                                                 "%s: a quote has no end, or "
                                                 "something stands behind it",
                                                 called);
        const char *kept = s->kind == KIND_TEXT ? keep_text(value) : value;
        if (!kept)
            err = weft_err_set(why, WEFT_E_NOMEM, "no memory for the settings of \"%s\"", path);
        if (!err) err = set_value(config, s, called, kept, why);
    }
    if (!err && ferror(file))
        err = weft_err_errno(why, errno, "--config: cannot read \"%s\"", path);
    (void)fclose(file);
    return err;
}

/* Short and second names people type. Moves *name_len to the end of the typed one. */
static const char *full_name(enum weft_program program, const char *typed, size_t *name_len) {
    static const struct {
        enum weft_program program;
        const char *typed, *full;
    } names[] = {
        {WEFT_PROG_RUN, "-p", "--prompt"},
        {WEFT_PROG_RUN, "-n", "--n-predict"},
        {WEFT_PROG_BENCH, "--prompt", "--bench-prompt"},
        {WEFT_PROG_BENCH, "--rounds", "--reps"},
    };
    *name_len = strcspn(typed, "=");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].program == program && strlen(names[i].typed) == *name_len &&
            !memcmp(names[i].typed, typed, *name_len))
            return names[i].full;
    }
    return typed;
}

enum ask { ASK_NOTHING, ASK_HELP, ASK_VERSION };

/* One flag at argv[*i]; moves *i behind its value. `config` NULL: only looks whether it is
 * --config, --help or --version. */
static weft_err take_flag(enum weft_program program, int argc, char **argv, int *i,
                          struct weft_config *config, const char **config_file, enum ask *ask_out,
                          struct weft_errmsg *why) {
    size_t typed_len;
    const char *arg = full_name(program, argv[*i], &typed_len);
    const char *value = argv[*i][typed_len] == '=' ? argv[*i] + typed_len + 1 : NULL;
    if (!strcmp(arg, "--help") || !strcmp(arg, "-h") || !strcmp(arg, "--version")) {
        *ask_out = !strcmp(arg, "--version") ? ASK_VERSION : ASK_HELP;
        return WEFT_OK;
    }
    if (arg[0] != '-' || arg[1] != '-')
        return weft_err_set(why, WEFT_E_INVAL, "unknown flag %s (try --help)", argv[*i]);
    const char *name = arg + 2;
    size_t len = strcspn(name, "=");
    bool is_config = len == 6 && !memcmp(name, "config", 6);
    const struct setting *s = is_config ? NULL : find_setting(program, name, len);
    if (!s && !is_config)
        return weft_err_set(why, WEFT_E_INVAL, "unknown flag --%.*s (try --help)", (int)len, name);
    if (s && s->kind == KIND_FLAG) {
        value = value ? value : "true";
    } else if (!value) {
        if (*i + 1 >= argc)
            return weft_err_set(why, WEFT_E_INVAL, "--%.*s needs a value", (int)len, name);
        value = argv[++*i];
    }
    if (is_config) {
        *config_file = value;
        return WEFT_OK;
    }
    if (!config) return WEFT_OK;
    char called[64];
    (void)snprintf(called, sizeof called, "--%s", s->name);
    return set_value(config, s, called, value, why);
}

/* All arguments. Called twice: first for --config, --help and --version alone (config NULL). */
static weft_err take_args(size_t prog_idx, int argc, char **argv, struct weft_config *config,
                          const char **config_file, enum ask *ask_out, struct weft_errmsg *why) {
    enum weft_program program = programs[prog_idx].program;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            weft_err err = take_flag(program, argc, argv, &i, config, config_file, ask_out, why);
            if (err) return err;
            continue;
        }
        if (!config) continue;
        if (programs[prog_idx].takes_model && !config->model)
            config->model = argv[i];
        else if (program == WEFT_PROG_PERPLEXITY && !config->prompt)
            config->prompt = argv[i];
        else if (program == WEFT_PROG_PACK && !config->out)
            config->out = argv[i];
        else
            return weft_err_set(why, WEFT_E_INVAL, "unexpected argument \"%s\"", argv[i]);
    }
    return WEFT_OK;
}

static bool is_one_of(const char *text, const char *const *names) {
    while (*names && strcmp(*names, text) != 0)
        names++;
    return *names != NULL;
}

/* What Prometheus takes for a name's beginning. */
static bool is_metric_prefix(const char *text) {
    for (const char *p = text; *p; p++) {
        bool is_letter = isalpha((unsigned char)*p) || *p == '_' || *p == ':';
        if (!is_letter && (p == text || !isdigit((unsigned char)*p))) return false;
    }
    return strlen(text) <= 64;
}

/* "*", or origins as browsers send them: scheme://host[:port], or "null". Empty: none. */
static bool is_origin_list(const char *text) {
    if (!strcmp(text, "*")) return true;
    while (*text) {
        text += strspn(text, " ");
        size_t n = strcspn(text, ", ");
        const char *host = strstr(text, "://");
        bool is_null = n == 4 && !memcmp(text, "null", 4);
        if (!is_null && (!host || host == text || host + 3 >= text + n)) return false;
        text += n;
        text += strspn(text, " ");
        if (*text && *text++ != ',') return false;
    }
    return true;
}

static weft_err take_workers(struct weft_config *c, struct weft_errmsg *why) {
    if (!c->workers || !strcmp(c->workers, "auto")) return WEFT_OK;
    uint64_t n = 0;
    if (weft_parse_u64(c->workers, WEFT_WORKERS_MAX, &n) || n == 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--workers: \"%s\" is neither auto nor a number from 1 to %d",
                            c->workers, WEFT_WORKERS_MAX);
    c->n_workers = (uint32_t)n;
    return WEFT_OK;
}

static weft_err check_together(size_t prog_idx, struct weft_config *c, struct weft_errmsg *why) {
    static const char *const formats[] = {"text", "json", NULL};
    static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
    static const char *const layouts[] = {"replica", NULL};
    static const char *const whens[] = {"auto", "on", "off", NULL};
    static const char *const links[] = {"abstract", "ipc", "tcp", "tls", NULL};
    if (programs[prog_idx].takes_model && (!c->model || !*c->model))
        return weft_err_set(why, WEFT_E_INVAL, "no %s given; usage: %s",
                            programs[prog_idx].program == WEFT_PROG_BENCH_SERVE ? "URL" : "MODEL",
                            programs[prog_idx].usage);
    if (!is_one_of(c->log_format, formats))
        return weft_err_set(why, WEFT_E_INVAL, "--log-format is text or json, not \"%s\"",
                            c->log_format);
    if (!is_one_of(c->log_level, levels))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--log-level is debug, info, warn or error, not \"%s\"", c->log_level);
    if (c->block_size % 16)
        return weft_err_set(why, WEFT_E_INVAL, "--block-size must be a multiple of 16, got %u",
                            c->block_size);
    if (c->metrics_prefix && !is_metric_prefix(c->metrics_prefix))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--metrics-prefix is up to 64 letters, digits, \"_\" and \":\", not "
                            "\"%s\"",
                            c->metrics_prefix);
    if (c->expert_metrics && !is_one_of(c->expert_metrics, whens))
        return weft_err_set(why, WEFT_E_INVAL, "--expert-metrics is auto, on or off, not \"%s\"",
                            c->expert_metrics);
    if (c->port && c->port == c->rpc_port && !c->no_rpc)
        return weft_err_set(why, WEFT_E_INVAL, "--port and --rpc-port are both %u", c->port);
    if (c->allowed_origins && !is_origin_list(c->allowed_origins))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--allowed-origins is \"*\" or origins such as https://example.org, "
                            "separated by commas, not \"%s\"",
                            c->allowed_origins);
    if (c->layout && !strcmp(c->layout, "tp"))
        return weft_err_set(why, WEFT_E_UNSUPPORTED, "--layout tp is not supported yet");
    if (c->layout && !is_one_of(c->layout, layouts))
        return weft_err_set(why, WEFT_E_INVAL, "--layout is replica, not \"%s\"", c->layout);
    if (c->link && !is_one_of(c->link, links))
        return weft_err_set(why, WEFT_E_INVAL, "--link is abstract, ipc, tcp or tls, not \"%s\"",
                            c->link);
    return take_workers(c, why);
}

weft_err weft_config_parse(enum weft_program program, int argc, char **argv,
                           struct weft_config *config, bool *done_out, struct weft_errmsg *why) {
    size_t prog_idx = 0;
    while (programs[prog_idx].program != program)
        prog_idx++;
    memset(config, 0, sizeof *config);
    config->weights_fd = config->status_fd = -1;
    *done_out = false;
    const char *config_file = getenv("WEFT_CONFIG");
    enum ask ask = ASK_NOTHING;
    weft_err err = take_args(prog_idx, argc, argv, NULL, &config_file, &ask, why);
    if (err) return err;
    if (ask == ASK_HELP) print_help(prog_idx);
    if (ask == ASK_VERSION) printf("weft %s\n", WEFT_VERSION);
    *done_out = ask != ASK_NOTHING;
    if (*done_out) return WEFT_OK;
    err = set_defaults(program, config, why);
    if (!err && config_file) err = set_from_file(program, config_file, config, why);
    if (!err) err = set_from_env(program, config, why);
    if (!err) err = take_args(prog_idx, argc, argv, config, &config_file, &ask, why);
    if (!err) err = check_together(prog_idx, config, why);
    return err;
}

static const char *text_of(const struct weft_config *config, const struct setting *s) {
    WEFT_ASSERT(s->kind == KIND_TEXT);
    return *(const char *const *)(const void *)((const char *)config + s->offset);
}

/* NULL: no memory. */
static char *print_setting(const struct weft_config *config, const struct setting *s) {
    const char *at = (const char *)config + s->offset;
    char *arg = NULL;
    int n = -1;
    switch (s->kind) {
    case KIND_TEXT:
        n = asprintf(&arg, "--%s=%s", s->name, text_of(config, s));
        break;
    case KIND_U32:
        n = asprintf(&arg, "--%s=%u", s->name, *(const uint32_t *)(const void *)at);
        break;
    case KIND_I32:
    case KIND_FD:
        n = asprintf(&arg, "--%s=%d", s->name, *(const int32_t *)(const void *)at);
        break;
    case KIND_U64:
    case KIND_SIZE:
        n = asprintf(&arg, "--%s=%llu", s->name,
                     (unsigned long long)*(const uint64_t *)(const void *)at);
        break;
    case KIND_DOUBLE:
        n = asprintf(&arg, "--%s=%.17g", s->name, *(const double *)(const void *)at);
        break;
    case KIND_FLAG:
        n = asprintf(&arg, "--%s=%s", s->name, *(const bool *)at ? "true" : "false");
        break;
    }
    return n < 0 ? NULL : arg;
}

uint32_t weft_config_argv(const struct weft_config *config, enum weft_program program,
                          char **argv_out, uint32_t max) {
    uint32_t n = 0;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        if (!(s->programs & program)) continue;
        if (!strcmp(s->name, "api-key")) continue;                 /* argv is public in /proc */
        if (s->kind == KIND_TEXT && !text_of(config, s)) continue; /* unset */
        WEFT_ASSERT(n < max);
        argv_out[n] = print_setting(config, s);
        if (!argv_out[n]) goto no_memory;
        n++;
    }
    return n;
no_memory: /* a child with settings missing would run, and differently */
    while (n > 0)
        free(argv_out[--n]);
    return 0;
}
