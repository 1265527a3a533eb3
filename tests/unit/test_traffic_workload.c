#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "traffic/workload.h"

static struct weft_traffic_options defaults(void) {
    return (struct weft_traffic_options){.n_requests = 10,
                                         .n_turns = 1,
                                         .prompt_tokens = 20,
                                         .turn_tokens = 5,
                                         .max_tokens = 8,
                                         .n_vocab = 1000,
                                         .scale = 1,
                                         .output_scale = 1,
                                         .output_min = 1,
                                         .burstiness = 1};
}

static struct weft_traffic_workload make(const struct weft_traffic_options *options) {
    struct weft_traffic_workload w;
    struct weft_errmsg why;
    assert_int_equal(weft_traffic_workload_init(&w, options, &why), WEFT_OK);
    return w;
}

/* The ids of a prompt; returns their number. */
static size_t prompt_of(const struct weft_traffic_workload *w, uint32_t job, uint32_t turn,
                        uint32_t *ids_out, size_t n_max) {
    struct weft_buf text;
    char braced[1 << 16];
    weft_buf_init(&text, sizeof braced - 3);
    weft_traffic_add_prompt(w, job, turn, &text);
    assert_false(text.failed);
    (void)snprintf(braced, sizeof braced, "[%s]", weft_buf_cstr(&text));
    json_t *json = json_loads(braced, 0, NULL);
    size_t n = json_array_size(json);
    assert_true(n > 0 && n <= n_max);
    for (size_t i = 0; i < n; i++)
        ids_out[i] = (uint32_t)json_integer_value(json_array_get(json, i));
    json_decref(json);
    weft_buf_fini(&text);
    return n;
}

static void prompts_have_their_length_and_their_vocabulary(void **state) {
    (void)state;
    struct weft_traffic_options options = defaults();
    struct weft_traffic_workload w = make(&options);
    uint32_t ids[64];
    assert_int_equal(w.n_jobs, 10);
    assert_null(w.at_ns);
    for (uint32_t job = 0; job < 10; job++) {
        assert_int_equal(prompt_of(&w, job, 0, ids, 64), 20);
        for (int i = 0; i < 20; i++)
            assert_true(ids[i] < 1000);
    }
    weft_traffic_workload_fini(&w);
}

static void a_prompt_depends_on_seed_and_place_alone(void **state) {
    (void)state;
    struct weft_traffic_options options = defaults();
    struct weft_traffic_workload w = make(&options), again = make(&options);
    options.seed = 1;
    struct weft_traffic_workload other = make(&options);
    uint32_t a[64], b[64];
    (void)prompt_of(&w, 3, 0, a, 64);
    (void)prompt_of(&again, 9, 0, b, 64);
    assert_memory_not_equal(a, b, 80);
    (void)prompt_of(&again, 3, 0, b, 64);
    assert_memory_equal(a, b, 80);
    (void)prompt_of(&other, 3, 0, b, 64);
    assert_memory_not_equal(a, b, 80);
}

static void the_last_conversation_may_have_fewer_turns(void **state) {
    (void)state;
    struct weft_traffic_options options = defaults();
    options.n_turns = 4;
    struct weft_traffic_workload w = make(&options);
    uint32_t ids[64], first[64];
    assert_int_equal(w.n_jobs, 3);
    assert_int_equal(weft_traffic_turns(&w, 0), 4);
    assert_int_equal(weft_traffic_turns(&w, 2), 2);
    assert_int_equal(prompt_of(&w, 0, 0, first, 64), 20);
    assert_int_equal(prompt_of(&w, 0, 1, ids, 64), 5);
    assert_memory_not_equal(ids, first, 5 * sizeof *ids);
    weft_traffic_workload_fini(&w);
}

static void chats_are_messages_of_words(void **state) {
    (void)state;
    struct weft_traffic_options options = defaults();
    options.is_chat = true;
    struct weft_traffic_workload w = make(&options);
    struct weft_buf text;
    weft_buf_init(&text, 4096);
    weft_buf_add_char(&text, '[');
    weft_traffic_add_prompt(&w, 0, 0, &text);
    weft_buf_drop_front(&text, 2); /* the bracket, and the comma that it made look needed */
    json_t *json = json_loads(weft_buf_cstr(&text), 0, NULL);
    const char *content = json_string_value(json_object_get(json, "content"));
    uint32_t n_spaces = 0;
    assert_non_null(content);
    for (const char *p = content; *p; p++)
        n_spaces += *p == ' ';
    assert_int_equal(n_spaces, 19);
    assert_string_equal(json_string_value(json_object_get(json, "role")), "user");
    json_decref(json);
    weft_buf_fini(&text);
}

/* ------------------------------------------------------------------------------------ traces --- */

static struct weft_traffic_trace made_up(void) {
    static const char text[] =
        "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 30, \"hash_ids\": [7, 8, "
        "9]}\n"
        "{\"timestamp\": 100, \"input_length\": 1536, \"output_length\": 3, \"hash_ids\": [7, 8, "
        "9]}\n"
        "{\"timestamp\": 100, \"input_length\": 1500, \"output_length\": 0, \"hash_ids\": [7, 5, "
        "9]}\n"
        "{\"timestamp\": 400, \"input_length\": 5, \"output_length\": 5, \"hash_ids\": [6]}\n"
        "{\"timestamp\": 500, \"input_length\": 1500, \"output_length\": 3}\n";
    struct weft_traffic_trace trace;
    struct weft_errmsg why;
    assert_int_equal(weft_traffic_trace_parse("t", text, strlen(text), 0, &trace, &why), WEFT_OK);
    return trace;
}

/* Tokens from the front on that two prompts have in common. */
static uint32_t shared(const struct weft_traffic_workload *w, uint32_t a, uint32_t b) {
    static uint32_t x[2048], y[2048];
    size_t n = weft_min_size(prompt_of(w, a, 0, x, 2048), prompt_of(w, b, 0, y, 2048));
    uint32_t i = 0;
    while (i < n && x[i] == y[i])
        i++;
    return i;
}

static void equal_hash_ids_are_equal_tokens_and_others_are_not(void **state) {
    (void)state;
    static const uint32_t scales[] = {1, 3, 16, 24, 32};
    struct weft_traffic_trace trace = made_up();
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        struct weft_traffic_options options = defaults();
        options.n_requests = 0;
        options.n_vocab = 100000;
        options.trace = &trace;
        options.scale = scales[i];
        struct weft_traffic_workload w = make(&options);
        assert_int_equal(w.n_requests, 5);
        assert_int_equal(shared(&w, 0, 1), 1100 / scales[i]); /* all of the shorter one */
        assert_int_equal(shared(&w, 1, 2), (512 + scales[i] - 1) / scales[i]);
        assert_int_equal(shared(&w, 0, 4), 0);
        uint32_t ids[2048];
        assert_int_equal(prompt_of(&w, 3, 0, ids, 2048), weft_max_u32(5 / scales[i], 1));
        weft_traffic_workload_fini(&w);
    }
    weft_traffic_trace_fini(&trace);
}

/* Blocks further on, after one that differed, are the same tokens at the same places. */
static void a_hash_ids_tokens_do_not_depend_on_what_is_before_them(void **state) {
    (void)state;
    static uint32_t a[2048], b[2048];
    struct weft_traffic_trace trace = made_up();
    struct weft_traffic_options options = defaults();
    options.n_requests = 0;
    options.trace = &trace;
    struct weft_traffic_workload w = make(&options);
    (void)prompt_of(&w, 1, 0, a, 2048);
    (void)prompt_of(&w, 2, 0, b, 2048);
    assert_memory_equal(a + 1024, b + 1024, (1500 - 1024) * sizeof *a);
    assert_memory_not_equal(a + 512, b + 512, 512 * sizeof *a);
    weft_traffic_workload_fini(&w);
    weft_traffic_trace_fini(&trace);
}

static void answers_are_scaled_apart_and_have_a_least_length(void **state) {
    (void)state;
    struct weft_traffic_trace trace = made_up();
    struct weft_traffic_options options = defaults();
    options.trace = &trace;
    options.scale = 16;
    options.output_scale = 2;
    options.output_min = 4;
    struct weft_traffic_workload w = make(&options);
    assert_int_equal(w.n_requests, 5); /* ten were asked for */
    assert_int_equal(weft_traffic_request(&w, 0, 0).n_output, 15);
    assert_int_equal(weft_traffic_request(&w, 1, 0).n_output, 4);
    assert_int_equal(weft_traffic_request(&w, 2, 0).n_output, 4);
    options.output_min = 0;
    struct weft_traffic_workload least = make(&options);
    assert_int_equal(weft_traffic_request(&least, 2, 0).n_output, 1);
    weft_traffic_trace_fini(&trace);
}

static void a_rate_changes_a_traces_speed_and_nothing_else(void **state) {
    (void)state;
    struct weft_traffic_trace trace = made_up();
    struct weft_traffic_options options = defaults();
    options.trace = &trace;
    options.loop = WEFT_TRAFFIC_RECORDED;
    struct weft_traffic_workload w = make(&options);
    for (uint32_t i = 0; i < 5; i++)
        assert_true(w.at_ns[i] == trace.rows[i].at_ns);
    weft_traffic_workload_fini(&w);
    options.rate = 1; /* five requests in four seconds; recorded in half a second */
    w = make(&options);
    for (uint32_t i = 0; i < 5; i++)
        assert_true(w.at_ns[i] == 8 * trace.rows[i].at_ns);
    weft_traffic_workload_fini(&w);
    weft_traffic_trace_fini(&trace);
}

static void deadlines_are_drawn_by_the_seed_in_equal_shares(void **state) {
    (void)state;
    struct weft_traffic_options options = defaults();
    options.n_requests = 10000;
    options.n_deadlines = 2;
    options.deadlines_ms[0] = 1000;
    options.deadlines_ms[1] = 10000;
    struct weft_traffic_workload w = make(&options), again = make(&options);
    uint32_t n_short = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        uint32_t ms = weft_traffic_request(&w, i, 0).deadline_ms;
        assert_true(ms == 1000 || ms == 10000);
        assert_int_equal(ms, weft_traffic_request(&again, i, 0).deadline_ms);
        n_short += ms == 1000;
    }
    assert_in_range(n_short, 4800, 5200);
}

static void options_that_contradict_each_other_are_refused(void **state) {
    (void)state;
    struct weft_traffic_trace trace = made_up();
    struct weft_traffic_options options = defaults();
    struct weft_traffic_workload w;
    struct weft_errmsg why;
    options.loop = WEFT_TRAFFIC_DRAWN;
    assert_int_equal(weft_traffic_workload_init(&w, &options, &why), WEFT_E_INVAL);
    options.loop = WEFT_TRAFFIC_RECORDED;
    assert_int_equal(weft_traffic_workload_init(&w, &options, &why), WEFT_E_INVAL);
    options.trace = &trace;
    options.n_turns = 2;
    assert_int_equal(weft_traffic_workload_init(&w, &options, &why), WEFT_E_INVAL);
    options.n_turns = 1;
    options.rate = 5;
    trace.rows[1].at_ns = 0;
    options.n_requests = 2;
    assert_int_equal(weft_traffic_workload_init(&w, &options, &why), WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "all at once"));
    weft_traffic_trace_fini(&trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_have_their_length_and_their_vocabulary),
        cmocka_unit_test(a_prompt_depends_on_seed_and_place_alone),
        cmocka_unit_test(the_last_conversation_may_have_fewer_turns),
        cmocka_unit_test(chats_are_messages_of_words),
        cmocka_unit_test(equal_hash_ids_are_equal_tokens_and_others_are_not),
        cmocka_unit_test(a_hash_ids_tokens_do_not_depend_on_what_is_before_them),
        cmocka_unit_test(answers_are_scaled_apart_and_have_a_least_length),
        cmocka_unit_test(a_rate_changes_a_traces_speed_and_nothing_else),
        cmocka_unit_test(deadlines_are_drawn_by_the_seed_in_equal_shares),
        cmocka_unit_test(options_that_contradict_each_other_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
