/* The object of /stats: what is in it, when it is known, and who is who. */
#include "unit/api_fixture.h"

#include <string.h>

#include "api/rpc.h"
#include "codec/writer.h"
#include "inside/api/answers/answers.h"

static json_t *stats(void) {
    const struct weft_api_moment moment = {now_us / 1000, 4096};
    struct weft_buf out;
    struct weft_writer w;
    weft_buf_init(&out, 1 << 20);
    weft_writer_init(&w, WEFT_WRITE_JSON, &out);
    wefti_api_write_stats(&api, &moment, &w);
    json_t *json = json_loadb(out.data, out.len, 0, NULL);
    assert_non_null(json);
    weft_buf_fini(&out);
    return json;
}

static json_int_t number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static double real(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static struct weft_msg snapshot_msg(const struct weft_activity_step *steps, uint32_t n_steps,
                                    const struct weft_activity_seq *seqs, uint32_t n_seqs) {
    struct weft_msg msg = {.type = WEFT_MSG_SNAPSHOT};
    struct weft_msg_snapshot *s = &msg.snapshot;
    *s = api.upstream.snapshot;
    s->n_workers = s->n_workers_serving = 1;
    s->activity = (struct weft_activity){
        .n_steps = n_steps, .steps = steps, .n_seqs = n_seqs, .seqs = seqs, .router = 3};
    return msg;
}

/* --------------------------------------------------------------------------------- the cases --- */

static void an_idle_server_has_every_field(void **state) {
    (void)state;
    json_t *json = stats();
    assert_true(json_is_true(json_object_get(json, "serving")));
    assert_true(json_is_true(json_object_get(json, "advancing")));
    assert_true(json_is_false(json_object_get(json, "draining")));
    assert_true(json_is_null(json_object_get(json, "reason")));
    assert_int_equal(number(json, "max_model_len"), 1024);
    assert_int_equal(number(json, "max_num_seqs"), 64);
    assert_int_equal(number(json, "max_num_batched_tokens"), 64);
    assert_int_equal(number(json, "block_size"), 16);
    assert_int_equal(number(json, "kv_blocks"), 100);
    assert_int_equal(number(json, "kv_blocks_used"), 0);
    assert_int_equal(number(json, "kv_blocks_cached"), 0);
    assert_int_equal(number(json, "sequences_omitted"), 0);
    assert_int_equal(json_array_size(json_object_get(json, "last_steps")), 0);
    assert_int_equal(json_array_size(json_object_get(json, "sequences")), 0);
    assert_true(json_is_null(json_object_get(json, "experts")));
    const json_t *ttft = json_object_get(json, "time_to_first_token_seconds");
    assert_int_equal(number(ttft, "count"), 0);
    assert_true(json_is_null(json_object_get(ttft, "p50")));
    assert_int_equal(number(json_object_get(json, "resident_bytes"), "router"), 4096);
    json_decref(json);
}

static void steps_and_sequences_come_with_ages_of_now(void **state) {
    (void)state;
    const struct weft_activity_step steps[] = {
        {.step = 6, .age_us = 30000, .busy_us = 500, .n_prompt_tokens = 40, .n_seqs = 1},
        {.step = 7, .age_us = 10000, .busy_us = 250, .n_decode_tokens = 2, .n_seqs = 2}};
    const struct weft_activity_seq seqs[] = {{.request_id = 0xab,
                                              .age_us = 500000,
                                              .router = 2,
                                              .choice = 1,
                                              .phase = WEFT_ACTIVITY_PROMPT,
                                              .n_prompt = 20,
                                              .n_prompt_done = 16,
                                              .max_tokens = 9,
                                              .n_blocks = 2}};
    struct weft_msg msg = snapshot_msg(steps, 2, seqs, 1);
    msg.snapshot.activity.n_seqs_omitted = 4;
    put_msg(&msg);
    now_us += 100000;
    json_t *json = stats();
    const json_t *last = json_array_get(json_object_get(json, "last_steps"), 1);
    assert_int_equal(number(last, "step"), 7);
    assert_true(real(last, "age_seconds") == 0.11 && real(last, "seconds") == 0.00025);
    assert_int_equal(number(last, "decode_tokens"), 2);
    assert_int_equal(number(last, "sequences"), 2);
    assert_null(json_object_get(last, "group")); /* there is one */
    const json_t *seq = json_array_get(json_object_get(json, "sequences"), 0);
    assert_string_equal(text_of(seq, "request_id"), "2-ab"); /* another router's */
    assert_string_equal(text_of(seq, "phase"), "prompt");
    assert_int_equal(number(seq, "choice"), 1);
    assert_int_equal(number(seq, "prompt_tokens"), 20);
    assert_int_equal(number(seq, "prompt_tokens_done"), 16);
    assert_int_equal(number(seq, "kv_blocks"), 2);
    assert_true(real(seq, "age_seconds") == 0.6);
    assert_int_equal(number(json, "sequences_omitted"), 4);
    json_decref(json);
}

static void groups_are_named_if_there_are_several(void **state) {
    (void)state;
    const struct weft_activity_step step = {.step = 1, .n_seqs = 1, .group = 1};
    const struct weft_activity_seq seq = {.n_prompt = 1, .group = 1};
    struct weft_msg msg = snapshot_msg(&step, 1, &seq, 1);
    msg.snapshot.n_workers = 2;
    put_msg(&msg);
    json_t *json = stats();
    assert_int_equal(number(json_array_get(json_object_get(json, "last_steps"), 0), "group"), 1);
    assert_int_equal(number(json_array_get(json_object_get(json, "sequences"), 0), "group"), 1);
    json_decref(json);
}

static void own_requests_go_by_the_id_and_the_choice_of_their_answers(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":[\"a\",\"b\"],\"n\":2}");
    const struct sent *second = last_sent();
    const struct weft_activity_seq seqs[] = {
        {.request_id = second->id, .router = 3, .choice = 1, .phase = WEFT_ACTIVITY_WAITING},
        {.request_id = second->id, .router = 4, .choice = 1}, /* the same number of another */
        {.request_id = second->id + 1, .router = 3}};         /* ended meanwhile */
    struct weft_msg msg = snapshot_msg(NULL, 0, seqs, 3);
    put_msg(&msg);
    json_t *json = stats();
    const json_t *list = json_object_get(json, "sequences");
    assert_string_equal(text_of(json_array_get(list, 0), "request_id"), call->id);
    assert_int_equal(number(json_array_get(list, 0), "choice"), 3);
    assert_ptr_equal(strstr(text_of(json_array_get(list, 1), "request_id"), "4-"),
                     text_of(json_array_get(list, 1), "request_id"));
    assert_ptr_equal(strstr(text_of(json_array_get(list, 2), "request_id"), "3-"),
                     text_of(json_array_get(list, 2), "request_id"));
    json_decref(json);
    weft_api_call_drop(call);
}

static void without_a_scheduler_nothing_serves_and_nobody_is_listed(void **state) {
    (void)state;
    const struct weft_activity_seq seq = {.n_prompt = 1};
    struct weft_msg msg = snapshot_msg(NULL, 0, &seq, 1);
    put_msg(&msg);
    put_link(false);
    json_t *json = stats();
    assert_true(json_is_false(json_object_get(json, "serving")));
    assert_true(json_is_false(json_object_get(json, "advancing")));
    assert_string_equal(text_of(json, "reason"), "the scheduler is restarting");
    assert_int_equal(json_array_size(json_object_get(json, "sequences")), 0);
    json_decref(json);
    put_link(true);
    put_msg(&msg);
    now_us += 1001000; /* it is silent */
    json = stats();
    assert_true(json_is_false(json_object_get(json, "serving")));
    assert_int_equal(json_array_size(json_object_get(json, "sequences")), 0);
    json_decref(json);
    put_snapshot(true);
}

static void tokens_of_the_last_minute_have_percentiles(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"a\",\"max_tokens\":3}");
    struct sent sent = *last_sent();
    put_accepted(&sent);
    const uint32_t apart_us[] = {50000, 10000, 20000};
    for (uint32_t i = 0; i < 3; i++) {
        now_us += apart_us[i];
        put_token(&sent, 0, i, 100, i == 2 ? WEFT_END_LENGTH : WEFT_END_NONE);
    }
    json_t *json = stats();
    const json_t *first = json_object_get(json, "time_to_first_token_seconds");
    const json_t *next = json_object_get(json, "inter_token_latency_seconds");
    assert_int_equal(number(first, "count"), 1);
    assert_float_equal(real(first, "p99"), 0.05, 1e-6);
    assert_int_equal(number(next, "count"), 2);
    assert_float_equal(real(next, "p50"), 0.01, 1e-6);
    assert_float_equal(real(next, "p95"), 0.02, 1e-6);
    json_decref(json);
    weft_api_call_drop(call);
}

static void rates_are_those_of_the_scheduler_s_counters(void **state) {
    (void)state;
    struct weft_msg msg = snapshot_msg(NULL, 0, NULL, 0);
    for (uint32_t i = 0; i < 5; i++) {
        put_msg(&msg);
        msg.snapshot.n_prompt_tokens += 100;
        msg.snapshot.n_output_tokens += 25;
        now_us += 250000;
    }
    json_t *json = stats();
    const json_t *rates = json_object_get(json, "tokens_per_second");
    assert_float_equal(real(rates, "prompt"), 400, 1e-6);
    assert_float_equal(real(rates, "generation"), 100, 1e-6);
    json_decref(json);
    put_snapshot(true);
}

static void load_of_experts_is_summed_over_layers(void **state) {
    (void)state;
    const uint32_t layers[] = {1, 2};
    const uint64_t rows[] = {1, 2, 3, 10, 20, 30};
    struct weft_msg msg = {.type = WEFT_MSG_EXPERTS};
    msg.experts = (struct weft_msg_experts){2, 3, layers, rows};
    put_msg(&msg);
    json_t *json = stats();
    const json_t *experts = json_object_get(json, "experts");
    assert_int_equal(number(experts, "n_experts"), 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(json_integer_value(json_array_get(json_object_get(experts, "tokens"), i)),
                         11 * (i + 1));
    json_decref(json);
}

static void over_rpc_stats_need_the_key(void **state) {
    (void)state;
    struct weft_api_rpc_method method;
    const struct weft_api_rpc_request request = {.name = "stats", .name_len = 5};
    assert_true(weft_api_rpc_find(&request, &method));
    assert_true(method.is_guarded);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(an_idle_server_has_every_field),
        CASE(steps_and_sequences_come_with_ages_of_now),
        CASE(groups_are_named_if_there_are_several),
        CASE(own_requests_go_by_the_id_and_the_choice_of_their_answers),
        CASE(without_a_scheduler_nothing_serves_and_nobody_is_listed),
        CASE(tokens_of_the_last_minute_have_percentiles),
        CASE(rates_are_those_of_the_scheduler_s_counters),
        CASE(load_of_experts_is_summed_over_layers),
        CASE(over_rpc_stats_need_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
