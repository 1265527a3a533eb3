/* metrics — counters and histograms in Prometheus' text format, named as vLLM names them.
 *
 * Requests are counted here, by the router that served them; figures of steps and blocks come from
 * the scheduler's snapshots. A scrape asks nobody.
 */
#ifndef WEFT_API_METRICS_H
#define WEFT_API_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/recent.h"
#include "base/buf.h"
#include "base/counters.h"
#include "base/end.h"
#include "base/limits.h"
#include "proto/expert_rows.h"
#include "proto/proto.h"

#define WEFT_API_BUCKETS_MAX 32

struct weft_api_histogram {
    const double *bounds;
    uint32_t n_bounds;
    uint64_t counts[WEFT_API_BUCKETS_MAX]; /* not cumulative; [n_bounds] is +Inf */
    uint64_t n;
    double sum;
};

/* GET, POST, OPTIONS, other. */
#define WEFT_API_HTTP_METHODS 4
/* 2xx (with 1xx and 3xx, of which there are none), 4xx, 5xx. */
#define WEFT_API_HTTP_CLASSES 3
/* Routes that were asked for, and all other paths together. More are counted as those. */
#define WEFT_API_HANDLERS_MAX 64
/* Different status codes. */
#define WEFT_API_STATUSES_MAX 32
/* Different reasons for which requests are dropped. */
#define WEFT_API_REASONS_MAX 32

/* Times of responses: fewer buckets than others, for there is a histogram per route and method. */
#define WEFT_API_HTTP_BUCKETS 3

struct weft_api_handler_counts {
    const char *path; /* of the route; static */
    uint64_t n[WEFT_API_HTTP_METHODS][WEFT_API_HTTP_CLASSES];
    struct weft_api_handler_times {
        uint64_t counts[WEFT_API_HTTP_BUCKETS + 1]; /* not cumulative; the last is +Inf */
        uint64_t n;
        double sum;
    } times[WEFT_API_HTTP_METHODS];
};

struct weft_api_status_count {
    int status;
    uint64_t n;
};

struct weft_api_reason_count {
    const char *reason; /* static */
    uint64_t n;
};

struct weft_api_metrics {
    struct weft_api_histogram ttft, inter_token, per_output_token, e2e, queue, inference, prefill,
        decode;
    struct weft_api_histogram prompt_tokens, generation_tokens, params_max_tokens, params_n;
    uint64_t n_prompt_tokens, n_looked_up_tokens, n_cached_tokens, n_generation_tokens;
    uint64_t finished[WEFT_END_COUNT];
    struct weft_api_handler_counts
        handlers[WEFT_API_HANDLERS_MAX]; /* those seen; the first: other paths */
    struct weft_api_status_count statuses[WEFT_API_STATUSES_MAX]; /* those seen, ascending */
    struct weft_api_reason_count reasons[WEFT_API_REASONS_MAX];   /* those seen */
    uint32_t n_handlers, n_statuses, n_reasons;
    uint64_t rpc[2]; /* answered, failed */
    uint64_t n_connections, n_connections_refused, n_stalled, n_resubmitted;
    uint64_t n_moved;          /* requests, to another scheduler */
    uint64_t n_batch_lines[2]; /* of batches: completed, failed */
    uint32_t n_open_connections;
    /* A new scheduler counts from 0; counts of earlier ones are kept here, so ours only grow. */
    struct weft_counters carried;
    double step_error; /* of predictions of steps' times, relative, smoothed over time computed */
    uint64_t carried_iter_tokens[WEFT_ITER_BUCKETS];
    struct weft_expert_rows experts;
    struct weft_api_recent recent_ttft, recent_inter_token;
    struct weft_api_rates rates; /* of tokens that the scheduler's workers computed */
};

/* What one scheduler last said that it had counted. */
struct weft_api_metrics_source {
    struct weft_counters seen;
    uint64_t seen_iter_tokens[WEFT_ITER_BUCKETS];
};

/* Bounds of a scrape: a line for each series of the experts, with the longest names and labels, and
 * everything else. */
#define WEFT_API_METRICS_LINE_BYTES_MAX 800u
#define WEFT_API_METRICS_BYTES_MAX                                                                 \
    ((4u << 20) + (size_t)WEFT_EXPERT_SERIES_MAX * WEFT_API_METRICS_LINE_BYTES_MAX)

void weft_api_metrics_init(struct weft_api_metrics *metrics);
void weft_api_metrics_fini(struct weft_api_metrics *metrics);
void weft_api_metrics_observe(struct weft_api_histogram *histogram, double value);
void weft_api_metrics_snapshot(struct weft_api_metrics *metrics,
                               struct weft_api_metrics_source *source,
                               const struct weft_msg_snapshot *snapshot, uint64_t now_ms);
/* A token of a choice, `us` after its request came or after the token before. */
void weft_api_metrics_first_token(struct weft_api_metrics *metrics, uint64_t us, uint64_t now_ms);
void weft_api_metrics_next_token(struct weft_api_metrics *metrics, uint64_t us, uint64_t now_ms);

/* What one choice adds at its end. Times in microseconds of one clock; 0: never reached. */
struct weft_api_metrics_choice {
    enum weft_end reason;
    uint64_t arrived_us, queued_us, first_us, last_us, now_us;
    uint32_t n_prompt, n_output, max_tokens, n;
};
void weft_api_metrics_choice(struct weft_api_metrics *metrics,
                             const struct weft_api_metrics_choice *choice);

/* Counts a response. `path`: of the route, static; NULL: there was none. `method`: see
 * WEFT_API_HTTP_METHODS. */
void weft_api_metrics_http(struct weft_api_metrics *metrics, const char *path, uint32_t method,
                           int status);

/* Counts a request that was dropped, for a reason from weft_api_error_dropped; NULL: it was not. */
void weft_api_metrics_dropped(struct weft_api_metrics *metrics, const char *reason);

/* The response has ended, `us` after its request's first byte. */
void weft_api_metrics_http_time(struct weft_api_metrics *metrics, const char *path, uint32_t method,
                                uint64_t us);

struct weft_process;

/* One of several schedulers. */
struct weft_api_metrics_scheduler {
    const char *name;
    bool is_serving;
    uint32_t n_open;   /* requests of this router there */
    uint64_t n_placed; /* that it got, ever */
};

struct weft_api_metrics_view {
    const char *prefix, *model_name;
    const struct weft_msg_snapshot *snapshot; /* NULL: none yet */
    uint64_t router_resident_bytes;
    const struct weft_process *process;           /* the router; NULL: left out */
    int64_t started_s;                            /* its wall clock then */
    uint64_t held_input_bytes, held_output_bytes; /* of the shared budgets */
    bool has_prefix_cache;
    bool is_serving;
    const struct weft_api_metrics_scheduler *schedulers; /* [n_schedulers] */
    uint32_t n_schedulers;                               /* 0: there is one alone */
};
void weft_api_metrics_render(const struct weft_api_metrics *metrics,
                             const struct weft_api_metrics_view *view, struct weft_buf *out);

#endif
