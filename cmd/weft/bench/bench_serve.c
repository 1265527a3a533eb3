/* `weft bench-serve`: the rates that clients of a server get, ours or another's. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/minmax.h"
#include "base/parse.h"
#include "clients.h"
#include "commands.h"
#include "common/config.h"
#include "report.h"
#include "traffic/plot.h"

enum {
    REQUESTS_PER_CLIENT = 3,       /* where --requests does not say */
    OPEN_LOOP_CLIENTS_MAX = 16384, /* as many connections as a server has by default */
    FILES_KEPT = 64,               /* descriptors that are no clients */
    SVG_BYTES_MAX = 4 << 20,
};

/* All that a run is made of. */
struct bench {
    const struct weft_config *config;
    struct weft_traffic_trace trace;
    struct weft_traffic_goal goal;
    struct weft_traffic_workload workload;
    struct weft_traffic_body body;
    struct weft_clients_options clients;
    struct weft_clients_result result;
    const char *arrivals;
    FILE *svg; /* opened before the run, so that a wrong name ends it at once */
    struct weft_errmsg *why;
};

/* --------------------------------------------------------------------------- what is asked --- */

/* A client is a descriptor. Returns how many there may be. */
static uint32_t raise_file_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return UINT32_MAX;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max >= UINT32_MAX) return UINT32_MAX;
    uint32_t n = (uint32_t)limit.rlim_max;
    return n > 2 * FILES_KEPT ? n - FILES_KEPT : n;
}

/* "1000,10000" */
static weft_err take_deadlines(struct weft_traffic_options *options, const char *list,
                               struct weft_errmsg *why) {
    struct weft_str member;
    for (const char *at = list && *list ? list : NULL; weft_parse_member(&at, ",", &member);) {
        uint64_t ms;
        if (options->n_deadlines == WEFT_TRAFFIC_DEADLINES_MAX ||
            weft_parse_member_u64(member, (uint64_t)WEFT_SETTING_MS_MAX, &ms) || ms == 0)
            return weft_err_set(why, WEFT_E_INVAL,
                                "--ttft-deadlines is up to %d numbers of milliseconds, as "
                                "1000,10000, not \"%s\"",
                                WEFT_TRAFFIC_DEADLINES_MAX, list);
        options->deadlines_ms[options->n_deadlines++] = (uint32_t)ms;
    }
    return WEFT_OK;
}

/* Each line goes into each request as it is: nothing may end it early. */
static weft_err check_headers(const char *lines, struct weft_errmsg *why) {
    for (const char *at = lines; at && *at;) {
        size_t len = strcspn(at, "\n"), name_len = strcspn(at, ":\n \t");
        bool is_fine = name_len > 0 && at[name_len] == ':';
        for (size_t i = 0; i < len; i++)
            is_fine = is_fine && ((unsigned char)at[i] >= ' ' || at[i] == '\t') && at[i] != 0x7f;
        if (!is_fine)
            return weft_err_set(why, WEFT_E_INVAL, "--header is NAME:VALUE, not \"%.*s\"", (int)len,
                                at);
        at += len + (at[len] ? 1 : 0);
    }
    return WEFT_OK;
}

/* The name of the arrivals that there are, and what they mean. */
static void choose_arrivals(struct bench *b, struct weft_traffic_options *options) {
    const struct weft_config *c = b->config;
    const char *name = c->load_arrivals;
    if (!strcmp(name, "auto"))
        name = c->load_trace ? "trace" : c->load_rate <= 0 ? "closed" : "gamma";
    if (!strcmp(name, "gamma") && c->load_burstiness == 1) name = "poisson";
    b->arrivals = name;
    options->burstiness = c->load_burstiness;
    if (!strcmp(name, "poisson")) options->burstiness = 1;
    if (!strcmp(name, "fixed")) options->burstiness = 0;
    options->loop = !strcmp(name, "closed")  ? WEFT_TRAFFIC_CLOSED
                    : !strcmp(name, "trace") ? WEFT_TRAFFIC_RECORDED
                                             : WEFT_TRAFFIC_DRAWN;
}

static weft_err make_workload(struct bench *b) {
    const struct weft_config *c = b->config;
    uint32_t n_requests = c->load_requests;
    if (n_requests == 0 && !c->load_trace)
        n_requests =
            c->load_concurrency * (c->load_turns > 1 ? c->load_turns : REQUESTS_PER_CLIENT);
    struct weft_traffic_options options = {
        .rate = c->load_rate,
        .n_requests = n_requests,
        .n_turns = c->load_turns,
        .prompt_tokens = c->load_prompt_tokens,
        .turn_tokens = c->load_turn_tokens ? c->load_turn_tokens : c->load_prompt_tokens,
        .max_tokens = c->load_max_tokens,
        .n_vocab = c->load_vocab,
        .seed = c->seed,
        .is_chat = c->load_chat,
        .trace = c->load_trace ? &b->trace : NULL,
        .scale = c->load_scale,
        .output_scale = c->load_output_scale ? c->load_output_scale : c->load_scale,
        .output_min = c->load_min_output};
    choose_arrivals(b, &options);
    weft_err err = take_deadlines(&options, c->load_ttft_deadlines, b->why);
    if (!err && c->load_trace)
        err = weft_traffic_trace_read(c->load_trace, c->load_requests, &b->trace, b->why);
    return err ? err : weft_traffic_workload_init(&b->workload, &options, b->why);
}

static uint32_t count_clients(const struct bench *b) {
    uint32_t n_files = raise_file_limit();
    if (!b->workload.at_ns || b->config->given.load_concurrency) return b->config->load_concurrency;
    return weft_min_u32(weft_min_u32(b->workload.n_jobs, OPEN_LOOP_CLIENTS_MAX), n_files);
}

static void on_progress(const struct weft_clients_progress *progress) {
    weft_report_progress(progress);
}

static weft_err prepare(struct bench *b) {
    const struct weft_config *c = b->config;
    bool keeps_ids = c->load_turns > 1 && !c->load_chat;
    weft_err err = check_headers(c->load_header, b->why);
    if (!err && c->load_goodput) err = weft_traffic_goal_parse(c->load_goodput, &b->goal, b->why);
    if (!err)
        err = weft_traffic_body_init(&b->body, c->load_chat, keeps_ids, c->load_extra, b->why);
    if (!err) err = make_workload(b);
    if (!err && weft_traffic_tally_init(&b->result.tally, c->load_turns, &b->goal))
        err = weft_err_set(b->why, WEFT_E_NOMEM, "no memory for the results");
    if (err) return err;
    if (c->load_svg && !(b->svg = fopen(c->load_svg, "we")))
        return weft_err_set(b->why, WEFT_E_IO, "--svg: cannot write %s: %m", c->load_svg);
    b->clients =
        (struct weft_clients_options){.url = c->model,
                                      .api_key = c->api_key,
                                      .headers = c->load_header,
                                      .n_clients = count_clients(b),
                                      .timeout_ms = c->load_timeout_ms,
                                      .workload = &b->workload,
                                      .body = &b->body,
                                      .keep = c->load_turns <= 1 ? WEFT_TRAFFIC_KEEP_NOTHING
                                              : c->load_chat     ? WEFT_TRAFFIC_KEEP_TEXT
                                                                 : WEFT_TRAFFIC_KEEP_IDS,
                                      .on_progress = isatty(STDERR_FILENO) ? on_progress : NULL};
    return WEFT_OK;
}

/* ------------------------------------------------------------------------- what came of it --- */

static weft_err draw(struct bench *b) {
    struct weft_buf text;
    char title[512];
    weft_err err = WEFT_OK;
    if (!b->svg) return WEFT_OK;
    (void)snprintf(title, sizeof title, "%s: %u requests, %s%s%s", b->config->model,
                   b->workload.n_requests, b->arrivals, b->config->load_trace ? ", " : "",
                   b->config->load_trace ? b->config->load_trace : "");
    weft_buf_init(&text, SVG_BYTES_MAX);
    weft_traffic_plot(&b->result.tally, b->result.seconds, title, &text);
    if (text.failed || fwrite(text.data, 1, text.len, b->svg) != text.len || fflush(b->svg) != 0)
        err = weft_err_set(b->why, WEFT_E_IO, "--svg: cannot write %s", b->config->load_svg);
    weft_buf_fini(&text);
    return err;
}

static weft_err report(struct bench *b) {
    const struct weft_traffic_tally *tally = &b->result.tally;
    const struct weft_report_facts facts = {.arrivals = b->arrivals,
                                            .trace = b->config->load_trace,
                                            .has_goal = b->config->load_goodput ||
                                                        b->config->load_ttft_deadlines,
                                            .clients = &b->clients};
    (b->config->json ? weft_report_json : weft_report_table)(&facts, &b->result);
    weft_err err = draw(b);
    if (!err && b->result.is_interrupted)
        return weft_err_set(b->why, WEFT_E_CLOSED, "interrupted after %u of %u requests",
                            tally->n_done + tally->n_failed, b->workload.n_requests);
    if (err || tally->n_failed == 0) return err;
    return weft_err_set(b->why, WEFT_E_IO, "%u of %u requests failed, the first because: %s",
                        tally->n_failed, b->workload.n_requests, tally->why.text);
}

int weft_cmd_bench_serve(const struct weft_config *config) {
    struct weft_errmsg why = {""};
    struct bench b = {.config = config, .why = &why};
    (void)signal(SIGPIPE, SIG_IGN); /* a server may hang up while we write */
    weft_err err = prepare(&b);
    if (!err) err = weft_clients_run(&b.clients, &b.result, &why);
    if (b.clients.on_progress) weft_report_progress_end();
    if (!err) err = report(&b);
    if (b.svg) (void)fclose(b.svg);
    weft_traffic_tally_fini(&b.result.tally);
    weft_traffic_workload_fini(&b.workload);
    weft_traffic_body_fini(&b.body);
    weft_traffic_trace_fini(&b.trace);
    if (err == WEFT_E_INVAL) return weft_cmd_misuse(err, &why); /* the URL or a flag is none */
    return err ? weft_cmd_fail(err, &why) : 0;
}
