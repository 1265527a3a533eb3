#include "api/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/process.h"

/* ------------------------------------------------------------------------------- histograms --- */

/* vLLM's buckets, so that its dashboards and alert rules fit. */
static const double ttft_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                     1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double token_bounds[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                      .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
static const double request_bounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double count_bounds[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                      1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
static const double n_bounds[] = {1, 2, 5, 10, 20};
static const double http_bounds[WEFT_API_HTTP_BUCKETS] = {.1, .5, 1};

#define BOUNDS(histogram, array) set_bounds(histogram, array, sizeof(array) / sizeof *(array))

static void set_bounds(struct weft_api_histogram *h, const double *bounds, size_t n) {
    WEFT_ASSERT(n < WEFT_API_BUCKETS_MAX);
    h->bounds = bounds;
    h->n_bounds = (uint32_t)n;
}

void weft_api_metrics_init(struct weft_api_metrics *m) {
    memset(m, 0, sizeof *m);
    BOUNDS(&m->ttft, ttft_bounds);
    BOUNDS(&m->inter_token, token_bounds);
    BOUNDS(&m->per_output_token, token_bounds);
    BOUNDS(&m->e2e, request_bounds);
    BOUNDS(&m->queue, request_bounds);
    BOUNDS(&m->inference, request_bounds);
    BOUNDS(&m->prefill, request_bounds);
    BOUNDS(&m->decode, request_bounds);
    BOUNDS(&m->prompt_tokens, count_bounds);
    BOUNDS(&m->generation_tokens, count_bounds);
    BOUNDS(&m->params_max_tokens, count_bounds);
    BOUNDS(&m->params_n, n_bounds);
    m->handlers[0].path = "none"; /* as vLLM calls it */
    m->n_handlers = 1;
}

void weft_api_metrics_fini(struct weft_api_metrics *m) {
    weft_expert_rows_fini(&m->experts);
}

void weft_api_metrics_observe(struct weft_api_histogram *h, double value) {
    uint32_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i])
        i++;
    h->counts[i]++;
    h->n++;
    h->sum += value;
}

void weft_api_metrics_first_token(struct weft_api_metrics *m, uint64_t us, uint64_t now_ms) {
    weft_api_metrics_observe(&m->ttft, (double)us * 1e-6);
    weft_api_recent_add(&m->recent_ttft, now_ms, (double)us * 1e-6);
}

void weft_api_metrics_next_token(struct weft_api_metrics *m, uint64_t us, uint64_t now_ms) {
    weft_api_metrics_observe(&m->inter_token, (double)us * 1e-6);
    weft_api_recent_add(&m->recent_inter_token, now_ms, (double)us * 1e-6);
}

static double seconds(uint64_t from_us, uint64_t to_us) {
    return to_us > from_us ? (double)(to_us - from_us) * 1e-6 : 0;
}

void weft_api_metrics_choice(struct weft_api_metrics *m, const struct weft_api_metrics_choice *c) {
    m->finished[c->reason]++;
    if (c->reason == WEFT_END_ABORT || c->reason == WEFT_END_ERROR) return;
    uint64_t begun_us = c->arrived_us + c->queued_us;
    weft_api_metrics_observe(&m->e2e, seconds(c->arrived_us, c->now_us));
    weft_api_metrics_observe(&m->queue, (double)c->queued_us * 1e-6);
    weft_api_metrics_observe(&m->inference, seconds(begun_us, c->now_us));
    weft_api_metrics_observe(&m->prefill, seconds(begun_us, c->first_us ? c->first_us : c->now_us));
    weft_api_metrics_observe(&m->decode, seconds(c->first_us, c->last_us));
    weft_api_metrics_observe(&m->prompt_tokens, c->n_prompt);
    weft_api_metrics_observe(&m->generation_tokens, c->n_output);
    weft_api_metrics_observe(&m->params_max_tokens, c->max_tokens);
    weft_api_metrics_observe(&m->params_n, c->n);
    if (c->n_output > 1)
        weft_api_metrics_observe(&m->per_output_token,
                                 seconds(c->first_us, c->last_us) / (c->n_output - 1));
}

static struct weft_api_handler_counts *handler_of(struct weft_api_metrics *m, const char *path) {
    if (!path) return &m->handlers[0];
    for (uint32_t i = 1; i < m->n_handlers; i++) {
        if (strcmp(m->handlers[i].path, path) == 0) return &m->handlers[i];
    }
    if (m->n_handlers == WEFT_API_HANDLERS_MAX) return &m->handlers[0];
    m->handlers[m->n_handlers].path = path;
    return &m->handlers[m->n_handlers++];
}

static void count_status(struct weft_api_metrics *m, int status) {
    uint32_t i = 0;
    while (i < m->n_statuses && m->statuses[i].status < status)
        i++;
    if (i == m->n_statuses || m->statuses[i].status != status) {
        WEFT_ASSERT(m->n_statuses < WEFT_API_STATUSES_MAX); /* the codes are ours, and fewer */
        memmove(&m->statuses[i + 1], &m->statuses[i], (m->n_statuses - i) * sizeof m->statuses[0]);
        m->statuses[i] = (struct weft_api_status_count){.status = status};
        m->n_statuses++;
    }
    m->statuses[i].n++;
}

void weft_api_metrics_http(struct weft_api_metrics *m, const char *path, uint32_t method,
                           int status) {
    WEFT_ASSERT(method < WEFT_API_HTTP_METHODS);
    uint32_t class = status < 400 ? 0 : status < 500 ? 1 : 2;
    handler_of(m, path)->n[method][class]++;
    count_status(m, status);
}

void weft_api_metrics_dropped(struct weft_api_metrics *m, const char *reason) {
    if (!reason) return;
    uint32_t i = 0;
    while (i < m->n_reasons && strcmp(m->reasons[i].reason, reason) != 0)
        i++;
    if (i == m->n_reasons) {
        WEFT_ASSERT(m->n_reasons < WEFT_API_REASONS_MAX); /* the words are ours, and fewer */
        m->reasons[m->n_reasons++].reason = reason;
    }
    m->reasons[i].n++;
}

void weft_api_metrics_http_time(struct weft_api_metrics *m, const char *path, uint32_t method,
                                uint64_t us) {
    WEFT_ASSERT(method < WEFT_API_HTTP_METHODS);
    struct weft_api_handler_times *times = &handler_of(m, path)->times[method];
    uint32_t i = 0;
    while (i < WEFT_API_HTTP_BUCKETS && (double)us * 1e-6 > http_bounds[i])
        i++;
    times->counts[i]++;
    times->n++;
    times->sum += (double)us * 1e-6;
}

/* -------------------------------------------------------------------------------- snapshots --- */

/* A counter that fell belongs to a new process: its whole value is new. */
static void carry(uint64_t *carried, uint64_t *seen, uint64_t value) {
    *carried += value >= *seen ? value - *seen : value;
    *seen = value;
}

/* Sums add up over groups of workers and outlive schedulers, so the ratio is made of these here. */
#define STEP_ERROR_SECONDS 10

static void smooth_step_error(struct weft_api_metrics *m, const struct weft_counters *before) {
    double actual = (double)(m->carried.step_actual_us - before->step_actual_us);
    double error = (double)(m->carried.step_error_us - before->step_error_us);
    if (actual <= 0) return;
    double weight = actual * 1e-6 / STEP_ERROR_SECONDS;
    m->step_error += (error / actual - m->step_error) * (weight < 1 ? weight : 1);
}

void weft_api_metrics_snapshot(struct weft_api_metrics *m, struct weft_api_metrics_source *source,
                               const struct weft_msg_snapshot *s, uint64_t now_ms) {
    const struct weft_counters before = m->carried;
#define CARRY(name, ...) carry(&m->carried.name, &source->seen.name, s->name);
    WEFT_COUNTER_LIST(CARRY, CARRY)
#undef CARRY
    smooth_step_error(m, &before);
    for (uint32_t i = 0; i < WEFT_ITER_BUCKETS; i++)
        carry(&m->carried_iter_tokens[i], &source->seen_iter_tokens[i], s->iter_tokens[i]);
    weft_api_rates_add(&m->rates, now_ms, m->carried.n_prompt_tokens, m->carried.n_output_tokens);
}

/* -------------------------------------------------------------------------------- rendering --- */

struct writer {
    struct weft_buf *out;
    const char *prefix;
    char labels[640]; /* model_name="...",engine="0" */
};

/* Label values escape backslash, quote and newline. What finds no room is left out. Returns where it
 * ends. */
static size_t escape(const char *value, char *out, size_t out_bytes) {
    size_t n = 0;
    for (const char *p = value; *p && n + 3 < out_bytes; p++) {
        if (*p == '"' || *p == '\\' || *p == '\n') out[n++] = '\\';
        out[n++] = *p == '\n' ? 'n' : *p;
    }
    out[n] = '\0';
    return n;
}

static void set_labels(struct writer *w, const char *model_name) {
    static const char last[] = "\",engine=\"0\"";
    size_t n = (size_t)snprintf(w->labels, sizeof w->labels, "model_name=\"");
    n += escape(model_name, w->labels + n, sizeof w->labels - n - sizeof last);
    memcpy(w->labels + n, last, sizeof last);
}

static void head(const struct writer *w, const char *name, const char *type, const char *help) {
    weft_buf_printf(w->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", w->prefix, name, help, w->prefix,
                    name, type);
}

static void number(const struct writer *w, double value) {
    weft_buf_printf(w->out, " %.15g\n", value);
}

/* `extra`: more labels such as `,state="used"`, or "". */
static void sample(const struct writer *w, const char *name, const char *extra, double value) {
    weft_buf_printf(w->out, "%s%s{%s%s}", w->prefix, name, w->labels, extra);
    number(w, value);
}

static void counter(const struct writer *w, const char *name, const char *help, double value) {
    head(w, name, "counter", help);
    sample(w, name, "", value);
}

static void gauge(const struct writer *w, const char *name, const char *help, double value) {
    head(w, name, "gauge", help);
    sample(w, name, "", value);
}

/* A bucket's bound as vLLM writes it, 1.0 and not 1: a label is compared as text. */
static void add_bound(struct weft_buf *out, double bound) {
    char text[32];
    (void)snprintf(text, sizeof text, "%.15g", bound);
    weft_buf_printf(out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

/* The series of one histogram; `extra` as for sample(). */
static void buckets(const struct writer *w, const char *name, const char *extra,
                    const struct weft_api_histogram *h) {
    uint64_t below = 0;
    for (uint32_t i = 0; i < h->n_bounds; i++) {
        below += h->counts[i];
        weft_buf_printf(w->out, "%s%s_bucket{%s%s,le=\"", w->prefix, name, w->labels, extra);
        add_bound(w->out, h->bounds[i]);
        weft_buf_printf(w->out, "\"} %" PRIu64 "\n", below);
    }
    weft_buf_printf(w->out, "%s%s_bucket{%s%s,le=\"+Inf\"} %" PRIu64 "\n", w->prefix, name,
                    w->labels, extra, h->n);
    weft_buf_printf(w->out, "%s%s_sum{%s%s}", w->prefix, name, w->labels, extra);
    number(w, h->sum);
    weft_buf_printf(w->out, "%s%s_count{%s%s} %" PRIu64 "\n", w->prefix, name, w->labels, extra,
                    h->n);
}

static void histogram(const struct writer *w, const char *name, const char *help,
                      const struct weft_api_histogram *h) {
    head(w, name, "histogram", help);
    buckets(w, name, "", h);
}

static uint64_t n_finished(const struct weft_api_metrics *m, const char *reason) {
    uint64_t n = 0;
    for (uint32_t end = WEFT_END_NONE + 1; end < WEFT_END_COUNT; end++) {
        if (strcmp(weft_end_reason((enum weft_end)end), reason) == 0) n += m->finished[end];
    }
    return n;
}

static void render_requests(const struct writer *w, const struct weft_api_metrics *m) {
    counter(w, "prompt_tokens_total", "Prompt tokens of requests that began to generate.",
            (double)m->n_prompt_tokens);
    uint64_t n_computed = m->n_prompt_tokens - m->n_cached_tokens;
    head(w, "prompt_tokens_by_source_total", "counter", "The same by where they came from.");
    sample(w, "prompt_tokens_by_source_total", ",source=\"local_compute\"", (double)n_computed);
    sample(w, "prompt_tokens_by_source_total", ",source=\"local_cache_hit\"",
           (double)m->n_cached_tokens);
    sample(w, "prompt_tokens_by_source_total", ",source=\"external_kv_transfer\"", 0);
    counter(w, "prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.",
            (double)m->n_cached_tokens);
    counter(w, "prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
            (double)m->n_looked_up_tokens);
    counter(w, "prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
            (double)m->n_cached_tokens);
    counter(w, "generation_tokens_total", "Tokens generated.", (double)m->n_generation_tokens);
    head(w, "request_success_total", "counter", "Choices that ended, by the reason.");
    static const char *const reasons[] = {"stop", "length", "abort", "error"};
    for (uint32_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        char label[48];
        (void)snprintf(label, sizeof label, ",finished_reason=\"%s\"", reasons[i]);
        sample(w, "request_success_total", label, (double)n_finished(m, reasons[i]));
    }
    histogram(w, "time_to_first_token_seconds", "From arrival to the first token.", &m->ttft);
    histogram(w, "inter_token_latency_seconds", "Between two tokens of one choice.",
              &m->inter_token);
    histogram(w, "request_time_per_output_token_seconds",
              "Mean time per token after the first, of each choice.", &m->per_output_token);
    histogram(w, "e2e_request_latency_seconds", "From arrival to the end.", &m->e2e);
    histogram(w, "request_queue_time_seconds", "Waiting for the first step.", &m->queue);
    histogram(w, "request_inference_time_seconds", "From the first step to the end.",
              &m->inference);
    histogram(w, "request_prefill_time_seconds", "From the first step to the first token.",
              &m->prefill);
    histogram(w, "request_decode_time_seconds", "From the first token to the last.", &m->decode);
    histogram(w, "request_prompt_tokens", "Prompt tokens of a choice.", &m->prompt_tokens);
    histogram(w, "request_generation_tokens", "Tokens generated for a choice.",
              &m->generation_tokens);
    histogram(w, "request_params_max_tokens", "The max_tokens of requests.", &m->params_max_tokens);
    histogram(w, "request_params_n", "The n of requests.", &m->params_n);
}

/* Only series that have begun: a label value for each path, method and class would be hundreds. */
static void render_http(const struct writer *w, const struct weft_api_metrics *m) {
    static const char *const methods[WEFT_API_HTTP_METHODS] = {"GET", "POST", "OPTIONS", "other"};
    static const char *const classes[WEFT_API_HTTP_CLASSES] = {"2xx", "4xx", "5xx"};
    char label[160];
    /* vLLM's own has no prefix. */
    struct writer plain = *w;
    if (strcmp(w->prefix, "vllm:") == 0) plain.prefix = "";
    head(&plain, "http_requests_total", "counter", "HTTP requests answered, by route.");
    for (uint32_t i = 0; i < m->n_handlers; i++) {
        const struct weft_api_handler_counts *handler = &m->handlers[i];
        for (uint32_t k = 0; k < WEFT_API_HTTP_METHODS * WEFT_API_HTTP_CLASSES; k++) {
            uint32_t method = k / WEFT_API_HTTP_CLASSES, class = k % WEFT_API_HTTP_CLASSES;
            if (handler->n[method][class] == 0) continue;
            (void)snprintf(label, sizeof label, ",handler=\"%s\",method=\"%s\",status=\"%s\"",
                           handler->path, methods[method], classes[class]);
            sample(&plain, "http_requests_total", label, (double)handler->n[method][class]);
        }
    }
    head(&plain, "http_request_duration_seconds", "histogram",
         "From a request's first byte to the end of its response, by route.");
    for (uint32_t i = 0; i < m->n_handlers; i++) {
        for (uint32_t k = 0; k < WEFT_API_HTTP_METHODS; k++) {
            const struct weft_api_handler_times *times = &m->handlers[i].times[k];
            if (times->n == 0) continue;
            struct weft_api_histogram shown = {.bounds = http_bounds,
                                               .n_bounds = WEFT_API_HTTP_BUCKETS,
                                               .n = times->n,
                                               .sum = times->sum};
            memcpy(shown.counts, times->counts, sizeof times->counts);
            (void)snprintf(label, sizeof label, ",handler=\"%s\",method=\"%s\"",
                           m->handlers[i].path, methods[k]);
            buckets(&plain, "http_request_duration_seconds", label, &shown);
        }
    }
    head(w, "http_responses_total", "counter", "HTTP responses, by exact status code.");
    for (uint32_t i = 0; i < m->n_statuses; i++) {
        (void)snprintf(label, sizeof label, ",code=\"%d\"", m->statuses[i].status);
        sample(w, "http_responses_total", label, (double)m->statuses[i].n);
    }
    head(w, "requests_dropped_total", "counter",
         "Requests refused with 429 or 503, by the reason.");
    for (uint32_t i = 0; i < m->n_reasons; i++) {
        (void)snprintf(label, sizeof label, ",reason=\"%s\"", m->reasons[i].reason);
        sample(w, "requests_dropped_total", label, (double)m->reasons[i].n);
    }
    head(w, "rpc_requests_total", "counter", "MessagePack-RPC requests answered.");
    sample(w, "rpc_requests_total", ",status=\"ok\"", (double)m->rpc[0]);
    sample(w, "rpc_requests_total", ",status=\"error\"", (double)m->rpc[1]);
    gauge(w, "connections", "Client connections open.", m->n_open_connections);
    counter(w, "connections_total", "Client connections taken.", (double)m->n_connections);
    counter(w, "connections_refused_total", "Connections over --max-connections.",
            (double)m->n_connections_refused);
    counter(w, "clients_stalled_total", "Clients dropped because they took too few bytes.",
            (double)m->n_stalled);
    counter(w, "resubmissions_total", "Requests submitted again after a break of the link.",
            (double)m->n_resubmitted);
    head(w, "batch_requests_total", "counter", "Lines of batches that have their answers.");
    sample(w, "batch_requests_total", ",status=\"completed\"", (double)m->n_batch_lines[0]);
    sample(w, "batch_requests_total", ",status=\"failed\"", (double)m->n_batch_lines[1]);
}

static void render_counters(const struct writer *w, const struct weft_counters *counters) {
    const struct shown {
        const char *metric, *labels, *help;
        double value;
    } shown[] = {
#define SHOWN(name, metric, labels, scale, help)                                                   \
    {metric, labels, help, (double)counters->name * (scale)},
        WEFT_COUNTER_LIST(SHOWN, SHOWN)
#undef SHOWN
    };
    for (size_t i = 0; i < WEFT_COUNTERS; i++) {
        /* The first row of a metric names its help and shows the others too. */
        if (!shown[i].help) continue;
        head(w, shown[i].metric, "counter", shown[i].help);
        for (size_t k = i; k < WEFT_COUNTERS; k++) {
            if (shown[k].metric && strcmp(shown[k].metric, shown[i].metric) == 0)
                sample(w, shown[k].metric, shown[k].labels, shown[k].value);
        }
    }
}

/* The scheduler's buckets: of 1 token, and then of 8, 16, 32 ... */
static void render_iterations(const struct writer *w, const struct weft_api_metrics *m) {
    double bounds[WEFT_ITER_BUCKETS - 1] = {1};
    struct weft_api_histogram steps = {.bounds = bounds,
                                       .n_bounds = WEFT_ITER_BUCKETS - 1,
                                       .n = m->carried.iter_tokens_count,
                                       .sum = (double)m->carried.iter_tokens_sum};
    _Static_assert(WEFT_ITER_BUCKETS <= WEFT_API_BUCKETS_MAX, "they fit");
    for (uint32_t i = 1; i < steps.n_bounds; i++)
        bounds[i] = (double)(4u << i);
    memcpy(steps.counts, m->carried_iter_tokens, steps.n_bounds * sizeof steps.counts[0]);
    /* vLLM's own name ends in _total, which a histogram's must not. */
    const char *name =
        strcmp(w->prefix, "vllm:") == 0 ? "iteration_tokens_total" : "iteration_tokens";
    histogram(w, name, "Tokens computed per step.", &steps);
}

struct rank_metric {
    const char *name, *type, *help;
    size_t offset; /* in the figures */
    uint64_t unknown;
    double unit;
};

static const struct rank_metric rank_metrics[] = {
    {"numa_remote_pages", "gauge", "Resident pages of a worker on other NUMA nodes than its own.",
     offsetof(struct weft_rank_figures, remote_pages), WEFT_PAGES_UNKNOWN, 1},
    {"worker_weight_bytes", "gauge", "Packed weights that a worker holds.",
     offsetof(struct weft_rank_figures, weight_bytes), UINT64_MAX, 1},
    {"worker_experts", "gauge", "Experts of each layer that a worker holds.",
     offsetof(struct weft_rank_figures, n_experts), 0, 1},
    {"worker_meeting_seconds_total", "counter",
     "Time that a worker spent in meetings with those with which it divides the model.",
     offsetof(struct weft_rank_figures, meeting_us), 0, 1e-6},
};

/* A figure of each process; one that is not known has no line. */
static void render_rank_figure(const struct writer *w, const struct weft_msg_snapshot *s,
                               const struct rank_metric *metric) {
    char label[64];
    bool has_head = false;
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const struct weft_rank_told *told = &s->ranks[i];
        uint64_t value =
            *(const uint64_t *)(const void *)((const char *)&told->figures + metric->offset);
        if (value == metric->unknown) continue;
        if (!has_head) head(w, metric->name, metric->type, metric->help);
        has_head = true;
        (void)snprintf(label, sizeof label, ",group=\"%u\",rank=\"%u\"", (unsigned)told->group,
                       (unsigned)told->rank);
        sample(w, metric->name, label, (double)value * metric->unit);
    }
}

static void render_ranks(const struct writer *w, const struct weft_msg_snapshot *s) {
    for (size_t i = 0; i < sizeof rank_metrics / sizeof rank_metrics[0]; i++)
        render_rank_figure(w, s, &rank_metrics[i]);
}

static void render_scheduler(const struct writer *w, const struct weft_api_metrics *m,
                             const struct weft_msg_snapshot *s, bool has_prefix_cache) {
    uint32_t n_used = s->n_blocks - s->n_blocks_free;
    uint32_t n_window_used = s->n_window_blocks - s->n_window_blocks_free;
    double usage = s->n_blocks ? (double)n_used / s->n_blocks : 0;
    double window_usage = s->n_window_blocks ? (double)n_window_used / s->n_window_blocks : 0;
    gauge(w, "num_requests_running", "Requests being computed.", s->n_running);
    gauge(w, "num_requests_waiting", "Requests that wait.", s->n_waiting);
    head(w, "num_requests_waiting_by_reason", "gauge", "Requests that wait, by what for.");
    sample(w, "num_requests_waiting_by_reason", ",reason=\"capacity\"",
           s->serving ? s->n_waiting : 0);
    sample(w, "num_requests_waiting_by_reason", ",reason=\"deferred\"",
           s->serving ? 0 : s->n_waiting);
    gauge(w, "kv_cache_usage_perc", "KV blocks in use; 1 is all of them.",
          usage > window_usage ? usage : window_usage);
    head(w, "kv_blocks", "gauge", "KV blocks by state.");
    sample(w, "kv_blocks", ",state=\"used\"", n_used);
    sample(w, "kv_blocks", ",state=\"free\"", s->n_blocks - n_used);
    if (s->n_window_blocks > 0) {
        head(w, "kv_window_blocks", "gauge", "KV blocks of windowed layers by state.");
        sample(w, "kv_window_blocks", ",state=\"used\"", n_window_used);
        sample(w, "kv_window_blocks", ",state=\"free\"", s->n_window_blocks_free);
    }
    gauge(w, "kv_spill_bytes", "KV blocks of preempted sequences in spill files, in bytes.",
          (double)s->spill_bytes);
    gauge(w, "sessions", "Conversations whose KV blocks are kept for their next turn.",
          s->n_sessions);
    gauge(w, "session_blocks", "KV blocks they hold; those that two hold are counted twice.",
          s->n_session_blocks);
    gauge(w, "state_checkpoints", "States of recurrent layers kept for the prefix cache.",
          s->n_checkpoints_held);
    render_counters(w, &m->carried);
    gauge(w, "step_time_model_error_ratio",
          "How far predictions of a step's time are off, smoothed, as a part of it.",
          m->step_error);
    head(w, "workers", "gauge", "Workers by whether they serve.");
    sample(w, "workers", ",state=\"serving\"", s->n_workers_serving);
    sample(w, "workers", ",state=\"absent\"", s->n_workers - s->n_workers_serving);
    render_ranks(w, s);
    render_iterations(w, m);
    head(w, "cache_config_info", "gauge", "The KV cache's configuration, as labels.");
    char label[128];
    has_prefix_cache = has_prefix_cache && (!s->model.is_recurrent || s->model.n_checkpoints > 0);
    (void)snprintf(label, sizeof label,
                   ",block_size=\"%u\",num_gpu_blocks=\"%u\",enable_prefix_caching=\"%s\"",
                   s->model.block_size, s->n_blocks, has_prefix_cache ? "True" : "False");
    sample(w, "cache_config_info", label, 1);
}

/* There may be tens of thousands of lines, written in one go: what a layer's lines have in common
 * is made once. */
static void render_experts(const struct writer *w, const struct weft_expert_rows *rows) {
    if (rows->n_layers == 0) return;
    head(w, "expert_tokens_total", "counter", "Tokens that experts computed.");
    const uint64_t *sum = rows->sums;
    for (uint32_t i = 0; i < rows->n_layers; i++) {
        char begin[WEFT_API_METRICS_LINE_BYTES_MAX];
        int n = snprintf(begin, sizeof begin, "%sexpert_tokens_total{%s,layer=\"%u\",expert=\"",
                         w->prefix, w->labels, rows->layers[i]);
        WEFT_ASSERT(n > 0 && (size_t)n + 32 < sizeof begin); /* an id and a number more */
        for (uint32_t e = 0; e < rows->n_experts; e++) {
            weft_buf_add(w->out, begin, (size_t)n);
            weft_buf_printf(w->out, "%u\"} %" PRIu64 "\n", e, *sum++);
        }
    }
}

static void render_schedulers(const struct writer *w, const struct weft_api_metrics *m,
                              const struct weft_api_metrics_view *view) {
    static const char *const names[] = {"scheduler_serving", "scheduler_open_requests",
                                        "scheduler_placed_requests_total"};
    static const char *const helps[] = {"1 when this scheduler is given requests.",
                                        "Requests of this router at each scheduler.",
                                        "Requests given to each scheduler, moved ones again."};
    if (view->n_schedulers == 0) return;
    for (uint32_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        head(w, names[k], k < 2 ? "gauge" : "counter", helps[k]);
        for (uint32_t i = 0; i < view->n_schedulers; i++) {
            const struct weft_api_metrics_scheduler *s = &view->schedulers[i];
            char name[256], label[sizeof name + 16];
            double values[] = {s->is_serving, s->n_open, (double)s->n_placed};
            (void)escape(s->name, name, sizeof name);
            (void)snprintf(label, sizeof label, ",scheduler=\"%s\"", name);
            sample(w, names[k], label, values[k]);
        }
    }
    counter(w, "moved_requests_total", "Requests handed to another scheduler than before.",
            (double)m->n_moved);
}

/* Under the names that Prometheus' client libraries give them, without a prefix or labels. */
static void render_process(struct weft_buf *out, const struct weft_api_metrics_view *view) {
    const struct weft_process *process = view->process;
    const struct {
        const char *name, *type, *help;
        double value;
    } shown[] = {
        {"process_cpu_seconds_total", "counter", "CPU time of the router.", process->cpu_seconds},
        {"process_resident_memory_bytes", "gauge", "Resident memory of the router.",
         (double)view->router_resident_bytes},
        {"process_open_fds", "gauge", "Open file descriptors of the router.", process->open_files},
        {"process_max_fds", "gauge", "How many it may have.", (double)process->max_files},
        {"process_start_time_seconds", "gauge", "When the router began, in Unix time.",
         (double)view->started_s},
    };
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        weft_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", shown[i].name, shown[i].help,
                        shown[i].name, shown[i].type, shown[i].name, shown[i].value);
    }
}

void weft_api_metrics_render(const struct weft_api_metrics *m,
                             const struct weft_api_metrics_view *view, struct weft_buf *out) {
    struct writer w = {.out = out, .prefix = view->prefix};
    set_labels(&w, view->model_name);
    const struct weft_msg_snapshot *s = view->snapshot;
    gauge(&w, "serving", "1 when requests are taken and steps advance.", view->is_serving);
    if (s) render_scheduler(&w, m, s, view->has_prefix_cache);
    render_schedulers(&w, m, view);
    render_experts(&w, &m->experts);
    render_requests(&w, m);
    render_http(&w, m);
    head(&w, "held_bytes", "gauge", "What requests hold of the budgets for large ones.");
    sample(&w, "held_bytes", ",of=\"input\"", (double)view->held_input_bytes);
    sample(&w, "held_bytes", ",of=\"output\"", (double)view->held_output_bytes);
    head(&w, "process_resident_bytes", "gauge", "Resident memory by process.");
    sample(&w, "process_resident_bytes", ",role=\"router\"", (double)view->router_resident_bytes);
    sample(&w, "process_resident_bytes", ",role=\"scheduler\"",
           s ? (double)s->sched_resident_bytes : 0);
    sample(&w, "process_resident_bytes", ",role=\"worker\"",
           s ? (double)s->worker_resident_bytes : 0);
    if (view->process) render_process(out, view);
    head(&w, "build_info", "gauge", "The version, as a label.");
    sample(&w, "build_info", ",version=\"" WEFT_VERSION "\"", 1);
}
