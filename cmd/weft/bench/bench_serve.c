/* `weft bench-serve`: the rates that clients of a server get, ours or another's. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "clients.h"
#include "commands.h"
#include "common/config.h"
#include "json_text.h"

enum { REQUESTS_PER_CLIENT = 3 }; /* where --requests does not say */

/* Rates of one run, from its counts. */
struct rates {
    double tokens, requests;
    double decoding;         /* tokens per second while all clients were decoding */
    double cpu_us_per_token; /* of this process */
};

static struct rates rates_of(const struct weft_clients_result *r) {
    struct rates rates = {0};
    if (r->seconds > 0) {
        rates.tokens = (double)r->n_tokens / r->seconds;
        rates.requests = r->n_done / r->seconds;
    }
    /* An event may carry more than a token, or less (part of a character): the average counts. */
    if (r->decoding_seconds > 0 && r->n_events > 0)
        rates.decoding = (double)r->n_decoding_events / r->decoding_seconds * (double)r->n_tokens /
                         (double)r->n_events;
    if (r->n_tokens > 0) rates.cpu_us_per_token = r->cpu_seconds * 1e6 / (double)r->n_tokens;
    return rates;
}

static void print_json_times(const char *name, struct weft_clients_times *times) {
    printf(", \"%s\": {\"p50\": %.3f, \"p95\": %.3f, \"p99\": %.3f}", name,
           weft_clients_percentile(times, 0.50), weft_clients_percentile(times, 0.95),
           weft_clients_percentile(times, 0.99));
}

static void print_json(const struct weft_clients_options *o, struct weft_clients_result *r) {
    struct rates rates = rates_of(r);
    printf("{\"concurrency\": %u, \"requests\": %u, \"failed\": %u, \"prompt_tokens\": %u, "
           "\"max_tokens\": %u, \"seconds\": %.4f, \"tokens\": %llu, \"tokens_per_s\": %.2f, "
           "\"requests_per_s\": %.3f",
           o->n_clients, o->n_requests, r->n_failed, o->prompt_tokens, o->max_tokens, r->seconds,
           (unsigned long long)r->n_tokens, rates.tokens, rates.requests);
    print_json_times("first_token_ms", &r->first);
    print_json_times("between_tokens_ms", &r->between);
    print_json_times("request_ms", &r->whole);
    printf(", \"all_decoding\": {\"seconds\": %.4f, \"tokens_per_s\": %.2f}, "
           "\"client_us_per_token\": %.2f",
           r->decoding_seconds, rates.decoding, rates.cpu_us_per_token);
    if (r->n_failed > 0) {
        printf(", \"first_failure\": ");
        weft_print_json_string(stdout, r->why.text, strlen(r->why.text));
    }
    printf("}\n");
}

static void print_times(const char *name, struct weft_clients_times *times) {
    printf("%-16s %10.2f %10.2f %10.2f\n", name, weft_clients_percentile(times, 0.50),
           weft_clients_percentile(times, 0.95), weft_clients_percentile(times, 0.99));
}

static void print_table(const struct weft_clients_options *o, struct weft_clients_result *r) {
    struct rates rates = rates_of(r);
    printf(
        "%u clients, %u requests of %u tokens in and %u out, %u failed\n"
        "%.2f s: %.1f tokens/s, %.2f requests/s; %.1f tokens/s while all were decoding (%.2f s)\n\n"
        "%-16s %10s %10s %10s\n",
        o->n_clients, o->n_requests, o->prompt_tokens, o->max_tokens, r->n_failed, r->seconds,
        rates.tokens, rates.requests, rates.decoding, r->decoding_seconds, "ms", "median", "95 %",
        "99 %");
    print_times("first token", &r->first);
    print_times("between tokens", &r->between);
    print_times("whole request", &r->whole);
}

/* A client is a descriptor. */
static void raise_file_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

int weft_cmd_bench_serve(const struct weft_config *config) {
    struct weft_errmsg why = {""};
    struct weft_clients_result result = {0};
    (void)signal(SIGPIPE, SIG_IGN); /* a server may hang up while we write */
    raise_file_limit();
    struct weft_clients_options options = {
        .url = config->model,
        .api_key = config->api_key,
        .n_clients = config->load_concurrency,
        .n_requests = config->load_requests ? config->load_requests
                                            : config->load_concurrency * REQUESTS_PER_CLIENT,
        .prompt_tokens = config->load_prompt_tokens,
        .max_tokens = config->load_max_tokens,
        .n_vocab = config->load_vocab,
        .seed = config->seed};
    weft_err err = weft_clients_run(&options, &result, &why);
    if (!err) (config->json ? print_json : print_table)(&options, &result);
    if (!err && result.n_failed > 0)
        err = weft_err_set(&why, WEFT_E_IO, "%u of %u requests failed, the first because: %s",
                           result.n_failed, options.n_requests, result.why.text);
    weft_clients_fini(&result);
    if (err == WEFT_E_INVAL) return weft_cmd_misuse(err, &why); /* the URL is none */
    return err ? weft_cmd_fail(err, &why) : 0;
}
