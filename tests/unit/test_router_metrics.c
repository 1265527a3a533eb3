#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cmd/router/metrics.h"

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
    s.model.block_size = 16;
    return s;
}

static void render(const struct metrics *m, const struct weft_msg_snapshot *s, const char *prefix,
                   struct weft_buf *out) {
    struct metrics_view view = {
        .prefix = prefix, .model_name = "a \"b\"\\c", .snapshot = s, .is_serving = true};
    view.held_output_bytes = 77;
    weft_buf_init(out, 1 << 20);
    wefti_metrics_render(m, &view, out);
}

#define LABELS "{model_name=\"a \\\"b\\\"\\\\c\",engine=\"0\""

static void has_line(struct weft_buf *out, const char *line) {
    char want[512];
    (void)snprintf(want, sizeof want, "\n%s\n", line);
    if (!strstr(weft_buf_cstr(out), want)) fail_msg("no line %s", line);
}

static void values_stand_under_vllm_s_names(void **state) {
    (void)state;
    struct metrics m;
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    wefti_metrics_init(&m);
    wefti_metrics_snapshot(&m, &s);
    wefti_metrics_observe(&m.ttft, 0.02); /* on a bound: le means less or equal */
    wefti_metrics_observe(&m.ttft, 1e9);
    struct metrics_choice c = {.reason = FINISHED_STOP,
                               .arrived_us = 1000000,
                               .queued_us = 500000,
                               .first_us = 2000000,
                               .last_us = 4000000,
                               .now_us = 4000000,
                               .n_output = 5};
    wefti_metrics_choice(&m, &c);
    render(&m, &s, "weft_", &out);
    has_line(&out, "weft_num_requests_running" LABELS "} 3");
    has_line(&out, "weft_num_requests_waiting" LABELS "} 2");
    has_line(&out, "weft_kv_cache_usage_perc" LABELS "} 0.6");
    has_line(&out, "weft_num_preemptions_total" LABELS "} 5");
    has_line(&out, "weft_time_to_first_token_seconds_bucket" LABELS ",le=\"0.01\"} 0");
    has_line(&out, "weft_time_to_first_token_seconds_bucket" LABELS ",le=\"0.02\"} 1");
    has_line(&out, "weft_time_to_first_token_seconds_bucket" LABELS ",le=\"2560\"} 1");
    has_line(&out, "weft_time_to_first_token_seconds_bucket" LABELS ",le=\"+Inf\"} 2");
    has_line(&out, "weft_time_to_first_token_seconds_count" LABELS "} 2");
    has_line(&out, "weft_request_success_total" LABELS ",finished_reason=\"stop\"} 1");
    has_line(&out, "weft_e2e_request_latency_seconds_sum" LABELS "} 3");
    has_line(&out, "weft_request_queue_time_seconds_sum" LABELS "} 0.5");
    has_line(&out, "weft_request_prefill_time_seconds_sum" LABELS "} 0.5");
    has_line(&out, "weft_request_decode_time_seconds_sum" LABELS "} 2");
    has_line(&out, "weft_request_time_per_output_token_seconds_sum" LABELS "} 0.5");
    has_line(&out, "weft_iteration_tokens_bucket" LABELS ",le=\"1\"} 7");
    has_line(&out, "weft_iteration_tokens_bucket" LABELS ",le=\"8\"} 7");
    has_line(&out, "weft_iteration_tokens_bucket" LABELS ",le=\"16\"} 8");
    has_line(&out, "weft_iteration_tokens_bucket" LABELS ",le=\"131072\"} 8");
    has_line(&out, "weft_worker_idle_seconds_total" LABELS "} 1.5");
    has_line(&out, "weft_held_bytes" LABELS ",of=\"output\"} 77");
    weft_buf_fini(&out);
    render(&m, &s, "vllm:", &out);
    has_line(&out, "vllm:iteration_tokens_total_count" LABELS "} 8");
    weft_buf_fini(&out);
}

static void counters_never_fall_when_a_scheduler_starts_anew(void **state) {
    (void)state;
    struct metrics m;
    wefti_metrics_init(&m);
    struct weft_msg_snapshot s = {.n_preemptions = 5};
    wefti_metrics_snapshot(&m, &s);
    wefti_metrics_snapshot(&m, &s);
    s.n_preemptions = 8;
    wefti_metrics_snapshot(&m, &s);
    assert_int_equal(m.carried[CARRIED_PREEMPTIONS], 8);
    s.n_preemptions = 2; /* another process */
    wefti_metrics_snapshot(&m, &s);
    assert_int_equal(m.carried[CARRIED_PREEMPTIONS], 10);
}

static void promtool_has_nothing_to_say(void **state) {
    (void)state;
    struct metrics m;
    struct weft_buf out;
    struct weft_msg_snapshot s = snapshot();
    if (system("promtool --version >/dev/null 2>&1") != 0) {
        print_message("SKIPPED: promtool is not installed\n");
        skip();
    }
    wefti_metrics_init(&m);
    wefti_metrics_snapshot(&m, &s);
    render(&m, &s, "weft_", &out);
    FILE *pipe = popen("promtool check metrics", "w");
    assert_non_null(pipe);
    assert_int_equal(fwrite(out.data, 1, out.len, pipe), out.len);
    assert_int_equal(pclose(pipe), 0);
    weft_buf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_stand_under_vllm_s_names),
        cmocka_unit_test(counters_never_fall_when_a_scheduler_starts_anew),
        cmocka_unit_test(promtool_has_nothing_to_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
