#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "api/metrics.h"
#include "base/process.h"

static struct weft_msg_snapshot snapshot(void) {
    struct weft_msg_snapshot s = {.serving = true, .advancing = true, .has_model = true};
    s.n_blocks = 10;
    s.n_blocks_free = 4;
    s.n_running = 3;
    s.n_waiting = 2;
    s.n_preemptions = 5;
    s.iter_tokens[0] = 7;
    s.iter_tokens[2] = 1;
    s.iter_tokens_count = 8;
    s.iter_tokens_sum = 20;
    s.worker_idle_us = 1500000;
    s.n_solitary_steps = 9;
    s.model.block_size = 16;
    return s;
}

static void render(const struct weft_api_metrics *m, const struct weft_msg_snapshot *s,
                   const char *prefix, struct weft_buf *out) {
    struct weft_api_metrics_view view = {
        .prefix = prefix, .model_name = "a \"b\"\\c", .snapshot = s, .is_serving = true};
    view.held_output_bytes = 77;
    view.has_prefix_cache = true;
    weft_buf_init(out, 1 << 20);
    weft_api_metrics_render(m, &view, out);
}

#define LABELS "{model_name=\"a \\\"b\\\"\\\\c\",engine=\"0\""

static void has_line(struct weft_buf *out, const char *line) {
    char want[512];
    (void)snprintf(want, sizeof want, "\n%s\n", line);
    if (!strstr(weft_buf_cstr(out), want)) fail_msg("no line %s", line);
}

static void values_stand_under_vllm_s_names(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_api_metrics_source source = {0};
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    weft_api_metrics_init(&m);
    weft_api_metrics_snapshot(&m, &source, &s, 0);
    weft_api_metrics_observe(&m.ttft, 0.02); /* on a bound: le means less or equal */
    weft_api_metrics_observe(&m.ttft, 1e9);
    struct weft_api_metrics_choice c = {.reason = WEFT_END_STOP,
                                        .arrived_us = 1000000,
                                        .queued_us = 500000,
                                        .first_us = 2000000,
                                        .last_us = 4000000,
                                        .now_us = 4000000,
                                        .n_output = 5};
    weft_api_metrics_choice(&m, &c);
    render(&m, &s, "weft_", &out);
    has_line(&out, "weft_num_requests_running" LABELS "} 3");
    has_line(&out, "weft_num_requests_waiting" LABELS "} 2");
    has_line(&out, "weft_kv_cache_usage_perc" LABELS "} 0.6");
    assert_null(strstr(out.data, "kv_window_blocks"));
    has_line(&out, "weft_num_preemptions_total" LABELS "} 5");
    has_line(&out, "weft_time_to_first_token_seconds_bucket" LABELS ",le=\"0.01\"} 0");
    has_line(&out, "weft_time_to_first_token_seconds_bucket" LABELS ",le=\"0.02\"} 1");
    has_line(&out, "weft_time_to_first_token_seconds_bucket" LABELS ",le=\"2560.0\"} 1");
    has_line(&out, "weft_time_to_first_token_seconds_bucket" LABELS ",le=\"+Inf\"} 2");
    has_line(&out, "weft_time_to_first_token_seconds_count" LABELS "} 2");
    has_line(&out, "weft_request_success_total" LABELS ",finished_reason=\"stop\"} 1");
    has_line(&out, "weft_e2e_request_latency_seconds_sum" LABELS "} 3");
    has_line(&out, "weft_request_queue_time_seconds_sum" LABELS "} 0.5");
    has_line(&out, "weft_request_prefill_time_seconds_sum" LABELS "} 0.5");
    has_line(&out, "weft_request_decode_time_seconds_sum" LABELS "} 2");
    has_line(&out, "weft_request_time_per_output_token_seconds_sum" LABELS "} 0.5");
    has_line(&out, "weft_iteration_tokens_bucket" LABELS ",le=\"1.0\"} 7");
    has_line(&out, "weft_iteration_tokens_bucket" LABELS ",le=\"8.0\"} 7");
    has_line(&out, "weft_iteration_tokens_bucket" LABELS ",le=\"16.0\"} 8");
    has_line(&out, "weft_iteration_tokens_bucket" LABELS ",le=\"131072.0\"} 8");
    has_line(&out, "weft_worker_idle_seconds_total" LABELS "} 1.5");
    has_line(&out, "weft_scheduler_solitary_steps_total" LABELS "} 9");
    has_line(&out, "weft_held_bytes" LABELS ",of=\"output\"} 77");
    has_line(&out, "weft_cache_config_info" LABELS
                   ",block_size=\"16\",num_gpu_blocks=\"10\",enable_prefix_caching=\"True\"} 1");
    weft_buf_fini(&out);
    render(&m, &s, "vllm:", &out);
    has_line(&out, "vllm:iteration_tokens_total_count" LABELS "} 8");
    weft_buf_fini(&out);
}

static void counters_never_fall_when_a_scheduler_starts_anew(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_api_metrics_source source = {0};
    weft_api_metrics_init(&m);
    struct weft_msg_snapshot s = {.n_preemptions = 5};
    weft_api_metrics_snapshot(&m, &source, &s, 0);
    weft_api_metrics_snapshot(&m, &source, &s, 0);
    s.n_preemptions = 8;
    weft_api_metrics_snapshot(&m, &source, &s, 0);
    assert_int_equal(m.carried.n_preemptions, 8);
    s.n_preemptions = 2; /* another process */
    weft_api_metrics_snapshot(&m, &source, &s, 0);
    assert_int_equal(m.carried.n_preemptions, 10);
}

/* `n_layers` of them with a thousand experts each, all counters at their largest. */
static void the_model_of_a_step_s_time_tells_its_error(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_api_metrics_source source = {0};
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    weft_api_metrics_init(&m);
    s.step_predicted_us = 18000000;
    s.step_actual_us = 20000000;
    s.step_error_us = 4000000;
    weft_api_metrics_snapshot(&m, &source, &s, 0);
    render(&m, &s, "weft_", &out);
    has_line(&out, "weft_step_time_model_error_ratio" LABELS "} 0.2");
    has_line(&out, "weft_step_predicted_seconds_total" LABELS "} 18");
    has_line(&out, "weft_step_actual_seconds_total" LABELS "} 20");
    has_line(&out, "weft_step_prediction_error_seconds_total" LABELS "} 4");
    weft_buf_fini(&out);
    s.step_actual_us += 5000000; /* without an error: half of what counts */
    weft_api_metrics_snapshot(&m, &source, &s, 0);
    weft_api_metrics_snapshot(&m, &source, &s, 0); /* nothing was computed */
    render(&m, &s, "weft_", &out);
    has_line(&out, "weft_step_time_model_error_ratio" LABELS "} 0.1");
    weft_buf_fini(&out);
    weft_api_metrics_fini(&m);
}

static void carry_many_experts(struct weft_api_metrics *m, uint32_t n_layers) {
    uint32_t layers[64];
    uint64_t *rows = calloc((size_t)n_layers * 1000, sizeof *rows);
    assert_non_null(rows);
    for (uint32_t i = 0; i < n_layers; i++)
        layers[i] = 900 + i;
    for (uint32_t i = 0; i < n_layers * 1000; i++)
        rows[i] = UINT64_MAX;
    struct weft_msg_experts msg = {n_layers, 1000, layers, rows};
    assert_int_equal(weft_expert_rows_carry(&m->experts, &msg), WEFT_OK);
    free(rows);
}

static void experts_have_a_line_each(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_buf out;
    static const uint32_t layers[] = {1, 5};
    static const uint64_t rows[] = {0, 3, 1ull << 60, 7};
    struct weft_msg_experts msg = {2, 2, layers, rows};
    weft_api_metrics_init(&m);
    render(&m, NULL, "weft_", &out);
    assert_null(strstr(weft_buf_cstr(&out), "expert"));
    weft_buf_fini(&out);
    assert_int_equal(weft_expert_rows_carry(&m.experts, &msg), WEFT_OK);
    render(&m, NULL, "vllm:", &out);
    has_line(&out, "# TYPE vllm:expert_tokens_total counter");
    has_line(&out, "vllm:expert_tokens_total" LABELS ",layer=\"1\",expert=\"0\"} 0");
    has_line(&out, "vllm:expert_tokens_total" LABELS ",layer=\"1\",expert=\"1\"} 3");
    has_line(&out,
             "vllm:expert_tokens_total" LABELS ",layer=\"5\",expert=\"0\"} 1152921504606846976");
    has_line(&out, "vllm:expert_tokens_total" LABELS ",layer=\"5\",expert=\"1\"} 7");
    weft_buf_fini(&out);
    weft_api_metrics_fini(&m);
}

static void the_most_experts_with_the_longest_names_fit(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_buf out;
    char name[1000], prefix[65];
    memset(name, '"', sizeof name - 1);
    memset(prefix, 'p', sizeof prefix - 1);
    name[sizeof name - 1] = prefix[sizeof prefix - 1] = '\0';
    struct weft_msg_snapshot s = snapshot();
    struct weft_api_metrics_view view = {.prefix = prefix, .model_name = name, .snapshot = &s};
    weft_api_metrics_init(&m);
    carry_many_experts(&m, 64);
    weft_buf_init(&out, WEFT_API_METRICS_BYTES_MAX);
    weft_api_metrics_render(&m, &view, &out);
    assert_false(out.failed);
    assert_in_range(out.len, 64000 * 700, WEFT_API_METRICS_BYTES_MAX - 64000 * 10);
    weft_buf_fini(&out);
    weft_api_metrics_fini(&m);
}

static void responses_are_counted_by_route_and_by_status(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_buf out;
    weft_api_metrics_init(&m);
    weft_api_metrics_http(&m, "/v1/models", 0, 200);
    weft_api_metrics_http(&m, "/v1/models", 0, 401);
    weft_api_metrics_http(&m, "/v1/completions", 1, 200);
    weft_api_metrics_http(&m, "/v1/completions", 1, 503);
    weft_api_metrics_http(&m, "/v1/completions", 1, 200);
    weft_api_metrics_http(&m, NULL, 3, 404);
    render(&m, NULL, "weft_", &out);
#define SERIES(handler, method, status)                                                            \
    "weft_http_requests_total" LABELS ",handler=\"" handler "\",method=\"" method                  \
    "\",status=\"" status "\"}"
    has_line(&out, SERIES("/v1/models", "GET", "2xx") " 1");
    has_line(&out, SERIES("/v1/models", "GET", "4xx") " 1");
    has_line(&out, SERIES("/v1/completions", "POST", "2xx") " 2");
    has_line(&out, SERIES("/v1/completions", "POST", "5xx") " 1");
    has_line(&out, SERIES("none", "other", "4xx") " 1");
#undef SERIES
    has_line(&out, "weft_http_responses_total" LABELS ",code=\"200\"} 3");
    has_line(&out, "weft_http_responses_total" LABELS ",code=\"404\"} 1");
    has_line(&out, "weft_http_responses_total" LABELS ",code=\"503\"} 1");
    assert_null(strstr(weft_buf_cstr(&out), "OPTIONS")); /* nothing was asked that way */
    weft_buf_fini(&out);
    render(&m, NULL, "vllm:", &out);
    assert_non_null(strstr(weft_buf_cstr(&out), "\nhttp_requests_total{"));
    weft_buf_fini(&out);
    weft_api_metrics_fini(&m);
}

static void dropped_requests_are_counted_by_the_reason(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_buf out;
    weft_api_metrics_init(&m);
    weft_api_metrics_dropped(&m, "queue_full");
    weft_api_metrics_dropped(&m, "deadline");
    weft_api_metrics_dropped(&m, NULL);
    weft_api_metrics_dropped(&m, "queue_full");
    render(&m, NULL, "weft_", &out);
    has_line(&out, "weft_requests_dropped_total" LABELS ",reason=\"queue_full\"} 2");
    has_line(&out, "weft_requests_dropped_total" LABELS ",reason=\"deadline\"} 1");
    weft_buf_fini(&out);
    weft_api_metrics_fini(&m);
}

static void promtool_has_nothing_to_say(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_api_metrics_source source = {0};
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    if (system("promtool --version >/dev/null 2>&1") != 0) {
        print_message("SKIPPED: promtool is not installed\n");
        skip();
    }
    weft_api_metrics_init(&m);
    weft_api_metrics_snapshot(&m, &source, &s, 0);
    carry_many_experts(&m, 4);
    render(&m, &s, "weft_", &out);
    FILE *pipe = popen("promtool check metrics", "w");
    assert_non_null(pipe);
    assert_int_equal(fwrite(out.data, 1, out.len, pipe), out.len);
    assert_int_equal(pclose(pipe), 0);
    weft_buf_fini(&out);
    weft_api_metrics_fini(&m);
}

/* By the dashboards that are vLLM's own: overview, instances, KV cache. */
static void what_vllm_s_dashboards_ask_for_is_there(void **state) {
    (void)state;
    static const struct {
        const char *name, *type;
    } asked[] = {
        {"vllm:num_requests_running", "gauge"},
        {"vllm:num_requests_waiting", "gauge"},
        {"vllm:num_requests_waiting_by_reason", "gauge"},
        {"vllm:kv_cache_usage_perc", "gauge"},
        {"vllm:num_preemptions_total", "counter"},
        {"vllm:prompt_tokens_total", "counter"},
        {"vllm:prompt_tokens_by_source_total", "counter"},
        {"vllm:prompt_tokens_cached_total", "counter"},
        {"vllm:generation_tokens_total", "counter"},
        {"vllm:prefix_cache_queries_total", "counter"},
        {"vllm:prefix_cache_hits_total", "counter"},
        {"vllm:request_success_total", "counter"},
        {"vllm:cache_config_info", "gauge"},
        {"vllm:iteration_tokens_total", "histogram"},
        {"vllm:time_to_first_token_seconds", "histogram"},
        {"vllm:inter_token_latency_seconds", "histogram"},
        {"vllm:request_time_per_output_token_seconds", "histogram"},
        {"vllm:e2e_request_latency_seconds", "histogram"},
        {"vllm:request_queue_time_seconds", "histogram"},
        {"vllm:request_prefill_time_seconds", "histogram"},
        {"vllm:request_decode_time_seconds", "histogram"},
        {"vllm:request_inference_time_seconds", "histogram"},
        {"vllm:request_prompt_tokens", "histogram"},
        {"vllm:request_generation_tokens", "histogram"},
        {"vllm:request_params_max_tokens", "histogram"},
        {"vllm:request_params_n", "histogram"},
        {"http_requests_total", "counter"},
        {"http_request_duration_seconds", "histogram"},
    };
    struct weft_api_metrics m;
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    weft_api_metrics_init(&m);
    render(&m, &s, "vllm:", &out);
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        char line[128];
        (void)snprintf(line, sizeof line, "# TYPE %s %s", asked[i].name, asked[i].type);
        has_line(&out, line);
    }
    weft_buf_fini(&out);
}

static void times_of_responses_are_kept_by_route_and_method(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    weft_api_metrics_init(&m);
    weft_api_metrics_http_time(&m, "/health", 0, 100000); /* on a bound */
    weft_api_metrics_http_time(&m, "/health", 0, 1000000);
    weft_api_metrics_http_time(&m, "/health", 0, 9000000);
    weft_api_metrics_http_time(&m, NULL, 1, 250000);
    render(&m, &s, "weft_", &out);
#define TIMES(suffix, handler, method, more)                                                       \
    "weft_http_request_duration_seconds" suffix LABELS ",handler=\"" handler "\",method=\"" method \
    "\"" more
    has_line(&out, TIMES("_bucket", "/health", "GET", ",le=\"0.1\"} 1"));
    has_line(&out, TIMES("_bucket", "/health", "GET", ",le=\"0.5\"} 1"));
    has_line(&out, TIMES("_bucket", "/health", "GET", ",le=\"1.0\"} 2"));
    has_line(&out, TIMES("_bucket", "/health", "GET", ",le=\"+Inf\"} 3"));
    has_line(&out, TIMES("_sum", "/health", "GET", "} 10.1"));
    has_line(&out, TIMES("_count", "/health", "GET", "} 3"));
    has_line(&out, TIMES("_count", "none", "POST", "} 1"));
    weft_buf_fini(&out);
}

static void the_process_has_prometheus_own_names(void **state) {
    (void)state;
    const struct weft_process process = {.cpu_seconds = 1.5, .open_files = 12, .max_files = 1024};
    struct weft_api_metrics m;
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    const struct weft_api_metrics_view view = {.prefix = "weft_",
                                               .model_name = "m",
                                               .snapshot = &s,
                                               .router_resident_bytes = 4096,
                                               .process = &process,
                                               .started_s = 1700000000};
    weft_api_metrics_init(&m);
    weft_buf_init(&out, 1 << 20);
    weft_api_metrics_render(&m, &view, &out);
    has_line(&out, "# TYPE process_cpu_seconds_total counter");
    has_line(&out, "process_cpu_seconds_total 1.5");
    has_line(&out, "process_resident_memory_bytes 4096");
    has_line(&out, "process_open_fds 12");
    has_line(&out, "process_max_fds 1024");
    has_line(&out, "process_start_time_seconds 1700000000");
    weft_buf_fini(&out);
}

static void tokens_and_waiting_requests_are_told_apart_as_vllm_does(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    weft_api_metrics_init(&m);
    m.n_prompt_tokens = 30;
    m.n_cached_tokens = 10;
    render(&m, &s, "weft_", &out);
    has_line(&out, "weft_prompt_tokens_by_source_total" LABELS ",source=\"local_compute\"} 20");
    has_line(&out, "weft_prompt_tokens_by_source_total" LABELS ",source=\"local_cache_hit\"} 10");
    has_line(&out, "weft_num_requests_waiting_by_reason" LABELS ",reason=\"capacity\"} 2");
    has_line(&out, "weft_num_requests_waiting_by_reason" LABELS ",reason=\"deferred\"} 0");
    weft_buf_fini(&out);
    s.serving = false; /* they wait for a worker */
    render(&m, &s, "weft_", &out);
    has_line(&out, "weft_num_requests_waiting_by_reason" LABELS ",reason=\"capacity\"} 0");
    has_line(&out, "weft_num_requests_waiting_by_reason" LABELS ",reason=\"deferred\"} 2");
    weft_buf_fini(&out);
}

static void windowed_blocks_are_told_and_count_if_they_are_fewer(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    weft_buf_init(&out, 1 << 20);
    weft_api_metrics_init(&m);
    s.n_window_blocks = 4;
    s.n_window_blocks_free = 1;
    render(&m, &s, "weft_", &out);
    has_line(&out, "weft_kv_cache_usage_perc" LABELS "} 0.75");
    has_line(&out, "weft_kv_blocks" LABELS ",state=\"used\"} 6");
    has_line(&out, "weft_kv_window_blocks" LABELS ",state=\"used\"} 3");
    has_line(&out, "weft_kv_window_blocks" LABELS ",state=\"free\"} 1");
    weft_buf_fini(&out);
}

static void figures_of_ranks_are_told_where_they_are_known(void **state) {
    (void)state;
    struct weft_api_metrics m;
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    weft_api_metrics_init(&m);
    s.n_workers = 2;
    s.n_ranks = 3;
    s.ranks[0].figures = (struct weft_rank_figures){.remote_pages = 7, .n_experts = 4};
    s.ranks[1].rank = 1;
    s.ranks[1].figures =
        (struct weft_rank_figures){.remote_pages = WEFT_PAGES_UNKNOWN, .weight_bytes = 99};
    s.ranks[2].group = 1;
    s.ranks[2].figures = (struct weft_rank_figures){.meeting_us = 1500000};
    render(&m, &s, "weft_", &out);
    has_line(&out, "# TYPE weft_numa_remote_pages gauge");
    has_line(&out, "weft_numa_remote_pages" LABELS ",group=\"0\",rank=\"0\"} 7");
    has_line(&out, "weft_numa_remote_pages" LABELS ",group=\"1\",rank=\"0\"} 0");
    assert_null(strstr(weft_buf_cstr(&out), "remote_pages" LABELS ",group=\"0\",rank=\"1\""));
    has_line(&out, "weft_worker_weight_bytes" LABELS ",group=\"0\",rank=\"1\"} 99");
    has_line(&out, "weft_worker_experts" LABELS ",group=\"0\",rank=\"0\"} 4");
    has_line(&out, "weft_worker_meeting_seconds_total" LABELS ",group=\"1\",rank=\"0\"} 1.5");
    weft_buf_fini(&out);
    for (uint32_t i = 0; i < s.n_ranks; i++)
        s.ranks[i].figures = (struct weft_rank_figures){.remote_pages = WEFT_PAGES_UNKNOWN};
    render(&m, &s, "weft_", &out);
    assert_null(strstr(weft_buf_cstr(&out), "remote_pages"));
    assert_null(strstr(weft_buf_cstr(&out), "worker_experts"));
    assert_null(strstr(weft_buf_cstr(&out), "meeting"));
    weft_buf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_stand_under_vllm_s_names),
        cmocka_unit_test(counters_never_fall_when_a_scheduler_starts_anew),
        cmocka_unit_test(the_model_of_a_step_s_time_tells_its_error),
        cmocka_unit_test(experts_have_a_line_each),
        cmocka_unit_test(the_most_experts_with_the_longest_names_fit),
        cmocka_unit_test(responses_are_counted_by_route_and_by_status),
        cmocka_unit_test(dropped_requests_are_counted_by_the_reason),
        cmocka_unit_test(promtool_has_nothing_to_say),
        cmocka_unit_test(what_vllm_s_dashboards_ask_for_is_there),
        cmocka_unit_test(times_of_responses_are_kept_by_route_and_method),
        cmocka_unit_test(the_process_has_prometheus_own_names),
        cmocka_unit_test(tokens_and_waiting_requests_are_told_apart_as_vllm_does),
        cmocka_unit_test(windowed_blocks_are_told_and_count_if_they_are_fewer),
        cmocka_unit_test(figures_of_ranks_are_told_where_they_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
