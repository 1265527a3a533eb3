/* Calls and the scheduler: refused, waiting while it or its worker is replaced, resumed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "unit/api_fixture.h"

static uint32_t count_sent(enum weft_proto_type type) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < paper.n_sent; i++)
        n += paper.sent[i].type == type;
    return n;
}

static void after_a_break_the_stream_goes_on_where_it_was(void **state) {
    (void)state;
    uint32_t ids[32], n = encode(" upon a time there was", ids);
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true,\"n\":2,\"max_tokens\":30}");
    struct sent first = *last_sent();
    put_accepted(&first);
    put_token(&first, 0, 0, ids[0], WEFT_END_NONE);
    put_token(&first, 0, 1, ids[1], WEFT_END_NONE);
    put_token(&first, 1, 0, ids[0], WEFT_END_LENGTH);
    put_link(false);
    put_token(&first, 0, 2, 7, WEFT_END_NONE); /* a message of the dead session */
    put_link(true);
    struct sent second = *last_sent();
    assert_int_equal(second.id, first.id);
    assert_int_equal(second.attempt, first.attempt + 1);
    assert_true(second.resume);
    assert_int_equal(second.seed, first.seed);
    assert_int_equal(second.n_output[0], 2);
    assert_int_equal(second.output[0][1], ids[1]);
    assert_false(second.finished[0]);
    assert_true(second.finished[1]);
    put_accepted(&second);
    put_token(&first, 0, 2, 8, WEFT_END_NONE);  /* the old attempt */
    put_token(&second, 0, 1, 9, WEFT_END_NONE); /* seen before */
    put_token(&second, 0, 3, 9, WEFT_END_NONE); /* from the future */
    for (uint32_t i = 2; i < n; i++)
        put_token(&second, 0, i, ids[i], i + 1 == n ? WEFT_END_LENGTH : WEFT_END_NONE);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    json_t *body = body_of(call, 1 << 16);
    assert_string_equal(text_of(choice_of(body, 0), "text"), " upon a time there was");
    json_decref(body);
    weft_api_call_drop(call);
}

static void a_request_nobody_answered_is_asked_again_as_new(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once\"}");
    struct sent first = *last_sent();
    put_link(false);
    put_link(true);
    struct sent second = *last_sent();
    assert_int_equal(second.type, WEFT_MSG_SUBMIT);
    assert_false(second.resume);
    assert_int_equal(second.attempt, first.attempt + 1);
    put_accepted(&first);
    assert_int_equal(call->state, WEFT_API_CALL_WAITING); /* not this attempt's answer */
    weft_api_call_drop(call);
    assert_int_equal(last_sent()->type, WEFT_MSG_CANCEL);
}

static void put_rejected(const struct sent *sent, enum weft_reject reason, uint32_t ms) {
    struct weft_msg msg = {.type = WEFT_MSG_REJECTED};
    msg.rejected = (struct weft_rejection){sent->id, sent->attempt, reason, ms, "no"};
    put_msg(&msg);
}

static void refusals_become_http_errors(void **state) {
    (void)state;
    static const struct {
        enum weft_reject reason;
        uint32_t ms;
        int status;
        uint32_t retry_ms;
        const char *code;
    } rows[] = {
        {WEFT_REJECT_QUEUE_FULL, 1500, 429, 1500, "queue_full"},
        {WEFT_REJECT_QUEUE_FULL, 0, 429, 1000, "queue_full"},
        {WEFT_REJECT_TOO_LONG, 0, 400, 0, "context_length_exceeded"},
        {WEFT_REJECT_INVALID, 0, 400, 0, NULL},
        {WEFT_REJECT_DRAINING, 0, 503, 1000, "draining"},
        {WEFT_REJECT_NO_MEMORY, 0, 400, 0, "no_memory"},
        {WEFT_REJECT_NO_MEMORY, 10, 503, 10, "no_memory"},
        {WEFT_REJECT_OVERLOADED, 7001, 503, 7001, "overloaded"},
        {WEFT_REJECT_DEADLINE, 60000, 503, 60000, "deadline"},
        {WEFT_REJECT_TENANT_FULL, 1, 429, 1, "tenant_full"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weft_api_call *call = begin("{\"prompt\":[\"a\",\"b\"],\"stream\":true}");
        struct sent second = *last_sent(), first = paper.sent[paper.n_sent - 2];
        put_accepted(&first);
        put_rejected(&second, rows[i].reason, rows[i].ms);
        assert_int_equal(call->state, WEFT_API_CALL_FAILED);
        assert_int_equal(call->error.status, rows[i].status);
        assert_int_equal(call->error.retry_after_ms, rows[i].retry_ms);
        if (rows[i].code)
            assert_string_equal(call->error.code, rows[i].code);
        else
            assert_null(call->error.code);
        assert_int_equal(last_sent()->type, WEFT_MSG_CANCEL); /* of the other prompt */
        weft_api_call_drop(call);
    }
}

static void nothing_is_taken_in_while_nothing_serves(void **state) {
    (void)state;
    put_snapshot(false);
    weft_api_call *call = begin("{\"prompt\":\"Once\"}");
    assert_int_equal(call->error.status, 503);
    assert_int_equal(call->error.retry_after_ms, 1000);
    weft_api_call_drop(call);
    put_snapshot(true);
    now_us += 2000000; /* the scheduler went silent */
    call = begin("{\"prompt\":\"Once\"}");
    assert_int_equal(call->error.status, 503);
    weft_api_call_drop(call);
}

static weft_api_call *begin_parked(const char *json) {
    uint32_t n_submits = count_sent(WEFT_MSG_SUBMIT);
    weft_api_call *call = begin(json);
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), n_submits);
    return call;
}

static void expect_refusal(weft_api_call *call, int status, const char *word) {
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    assert_int_equal(call->error.status, status);
    assert_non_null(strstr(call->error.message, word));
    weft_api_call_drop(call);
}

static void while_the_scheduler_is_replaced_requests_wait(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    put_link(false);
    weft_api_call *calls[2] = {begin_parked("{\"prompt\":\"Once\"}"),
                               begin_parked("{\"prompt\":[\"a\",\"b\"]}")};
    now_us += 4000000;
    put_link(true);
    put_snapshot(false); /* the new one has no worker yet */
    assert_int_equal(calls[0]->state, WEFT_API_CALL_WAITING);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 0);
    put_snapshot(true);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 3);
    for (uint32_t i = 0; i < 3; i++) { /* in the order in which they came, and as new ones */
        assert_false(last_sent()[(int)i - 2].resume);
        put_accepted(&last_sent()[(int)i - 2]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(calls[i]->state, WEFT_API_CALL_RUNNING);
        weft_api_call_drop(calls[i]);
    }
}

static void while_the_worker_is_replaced_requests_wait(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    put_snapshot(false);
    weft_api_call *call = begin_parked("{\"prompt\":\"Once\"}");
    put_snapshot(true);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 1);
    weft_api_call_drop(call);
    now_us += 2000000; /* it may be a scheduler that stands still */
    call = begin_parked("{\"prompt\":\"Once\"}");
    put_snapshot(true);
    assert_int_equal(last_sent()->type, WEFT_MSG_SUBMIT);
    weft_api_call_drop(call);
}

static void nobody_waits_for_longer_than_the_grace(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    put_snapshot(false);
    now_us += 3000000;
    weft_api_call *call = begin_parked("{\"prompt\":\"Once\"}");
    put_snapshot(false);
    now_us += 1900000;
    deliver();
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    n_wakes = 0;
    now_us += 100000; /* counted from when it could serve last */
    put_snapshot(false);
    assert_int_equal(n_wakes, 1);
    assert_int_equal(call->error.retry_after_ms, 1000);
    expect_refusal(call, 503, "being loaded");
    expect_refusal(begin("{\"prompt\":\"Once\"}"), 503, "being loaded"); /* no more patience */
    put_snapshot(true);
    now_us += 3000000;
    put_link(false);
    now_us += 1900000;
    call = begin_parked("{\"prompt\":\"Once\"}"); /* a new break, a new grace */
    weft_api_call_drop(call);
}

static void the_time_in_which_this_process_stood_still_is_no_part_of_the_grace(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    weft_api_upstream_tick(&api, now_us);
    now_us += 3000000;
    put_snapshot(false); /* it served three seconds ago */
    weft_api_upstream_tick(&api, now_us);
    now_us += 60000000; /* the machine slept, say */
    weft_api_upstream_tick(&api, now_us);
    weft_api_call *call = begin_parked("{\"prompt\":\"Once\"}");
    put_snapshot(true);
    assert_int_equal(last_sent()->type, WEFT_MSG_SUBMIT);
    weft_api_call_drop(call);
}

static void a_server_that_starts_or_drains_says_so_at_once(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    put_link(false);
    weft_api_call *call = begin_parked("{\"prompt\":\"Once\"}");
    api.draining = true;
    deliver();
    expect_refusal(call, 503, "shutting down");
    expect_refusal(begin("{\"prompt\":\"Once\"}"), 503, "shutting down");
    api.draining = false;
    api.upstream.schedulers[0].served_at_ms = 0; /* it was never ready */
    put_link(true);
    put_snapshot(false);
    expect_refusal(begin("{\"prompt\":\"Once\"}"), 503, "being loaded");
}

static void so_many_wait_as_the_queue_may_hold(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    api.settings.max_queue = 3;
    put_link(false);
    weft_api_call *first = begin_parked("{\"prompt\":[\"a\",\"b\"]}");
    expect_refusal(begin("{\"prompt\":[\"a\",\"b\"]}"), 429, "too many");
    weft_api_call *second = begin_parked("{\"prompt\":\"Once\"}");
    expect_refusal(begin("{\"prompt\":\"Once\"}"), 429, "too many");
    weft_api_call_drop(first); /* its client went */
    weft_api_call *third = begin_parked("{\"prompt\":[\"a\",\"b\"]}");
    put_link(true);
    put_snapshot(true);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 3);
    weft_api_call_drop(second);
    weft_api_call_drop(third);
}

/* The same, of a tenant. */
static weft_api_call *begin_parked_of(uint64_t tenant, uint32_t weight, const char *json) {
    asker = (struct weft_api_asker){.tenant = tenant, .weight = weight};
    weft_api_call *call = begin_parked(json);
    asker = (struct weft_api_asker){0};
    return call;
}

static void refuse_parking(uint64_t tenant, uint32_t weight, const char *json, const char *code) {
    asker = (struct weft_api_asker){.tenant = tenant, .weight = weight};
    weft_api_call *call = begin(json);
    asker = (struct weft_api_asker){0};
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    assert_string_equal(call->error.code, code);
    assert_int_equal(call->error.retry_after_ms, 1000);
    expect_refusal(call, 429, "wait for the server to be back");
}

static void who_fills_the_places_leaves_others_their_part(void **state) {
    (void)state;
    static const char one[] = "{\"prompt\":\"Once\"}", two[] = "{\"prompt\":[\"a\",\"b\"]}";
    weft_api_call *calls[8];
    uint32_t n = 0;
    api.settings.restart_grace_ms = 5000;
    api.settings.max_queue = 4;
    put_link(false);
    calls[n++] = begin_parked_of(1, 1, two);
    calls[n++] = begin_parked_of(1, 1, two); /* alone it may have all of them */
    refuse_parking(1, 1, one, "queue_full");
    calls[n++] = begin_parked_of(2, 1, one);
    refuse_parking(2, 1, two, "tenant_full");
    calls[n++] = begin_parked_of(2, 1, one);
    refuse_parking(2, 1, one, "tenant_full"); /* a half of four */
    refuse_parking(1, 1, one, "tenant_full");
    calls[n++] = begin_parked_of(3, 6, two); /* six eighths of four */
    calls[n++] = begin_parked_of(3, 6, one);
    refuse_parking(3, 6, one, "tenant_full");
    calls[n++] = begin_parked_of(0, 0, one); /* at least one */
    refuse_parking(0, 0, one, "tenant_full");
    assert_int_equal(api.n_parked_prompts, 10);
    while (n > 4) /* whoever has left takes nothing from others */
        weft_api_call_drop(calls[--n]);
    calls[n++] = begin_parked_of(4, 2, two); /* a half of four, again */
    refuse_parking(4, 2, one, "tenant_full");
    put_link(true);
    put_snapshot(true);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 8);
    while (n > 0)
        weft_api_call_drop(calls[--n]);
}

static void a_deadline_may_pass_while_a_request_waits(void **state) {
    (void)state;
    api.settings.restart_grace_ms = 5000;
    api.settings.request_timeout_ms = 1000;
    put_link(false);
    weft_api_call *call = begin_parked("{\"prompt\":\"Once\"}");
    assert_false(weft_api_call_is_late(call, now_us + 1000000));
    assert_true(weft_api_call_is_late(call, now_us + 1000001)); /* nobody else keeps the time */
    struct weft_api_error late = {0};
    weft_api_error_late(&late);
    assert_true(weft_api_call_end(call, &late));
    assert_int_equal(api.n_parked_prompts, 0);
    expect_refusal(call, 504, "took too long");
}

static void open_requests_are_not_submitted_all_at_once(void **state) {
    (void)state;
    weft_api_call *calls[300];
    for (int i = 0; i < 300; i++)
        calls[i] = begin("{\"prompt\":\"Once\"}");
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), WEFT_API_UNANSWERED_MAX);
    struct sent first = paper.sent[1]; /* [0] is the hello */
    put_accepted(&first);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), WEFT_API_UNANSWERED_MAX + 1);
    paper.n_sent = 0;
    put_link(false);
    put_link(true);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), WEFT_API_UNANSWERED_MAX);
    assert_true(paper.sent[1].resume && paper.sent[1].id == first.id); /* the oldest goes first */
    for (int i = 0; i < 300; i++)
        weft_api_call_drop(calls[i]);
    assert_int_equal(api.metrics.finished[WEFT_END_ABORT], 1); /* the others were never accepted */
}

static void a_prompts_log_probabilities_are_resumed_behind_the_last(void **state) {
    (void)state;
    weft_api_call *call =
        begin("{\"prompt\":[10,11,12,13],\"prompt_logprobs\":1,\"max_tokens\":1}");
    put_accepted(last_sent());
    for (uint32_t pos = 1; pos < 4; pos++) {
        assert_int_equal(last_sent()->n_lps_done, pos > 1 ? pos : 0); /* all below `pos` */
        put_prompt_lps(last_sent(), 0, pos, 1);
        put_link(false);
        put_link(true);
        assert_true(last_sent()->resume);
    }
    assert_int_equal(last_sent()->n_lps_done, 4); /* the whole prompt */
    put_token(last_sent(), 0, 0, 20, WEFT_END_LENGTH);
    json_t *body = body_of(call, 1 << 16);
    assert_int_equal(json_array_size(json_object_get(choice_of(body, 0), "prompt_logprobs")), 4);
    json_decref(body);
    weft_api_call_drop(call);
}

static void nonsense_from_the_scheduler_starts_the_session_over(void **state) {
    (void)state;
    weft_api_upstream_message(&api, 0, "\xc1\xff", 2, now_us);
    assert_int_equal(paper.n_resets, 1);
}

static void another_model_ends_what_the_first_began(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    (void)snprintf(call->fingerprint, sizeof call->fingerprint, "older");
    struct weft_model_info *model = &api.upstream.schedulers[0].snapshot.model;
    (void)snprintf(model->fingerprint, sizeof model->fingerprint, "older");
    put_snapshot(true);
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    assert_int_equal(call->error.status, 503);
    weft_api_call_drop(call);
}

static void put_hello(uint64_t instance) {
    struct weft_msg msg = {.type = WEFT_MSG_SCHED_HELLO};
    msg.sched_hello =
        (struct weft_msg_sched_hello){.version = WEFT_PROTO_VERSION, .instance = instance};
    put_msg(&msg);
}

/* The counts of layer 3, which has one. */
static void put_expert(uint64_t rows) {
    static const uint32_t layers[] = {3};
    struct weft_msg msg = {.type = WEFT_MSG_EXPERTS};
    msg.experts = (struct weft_msg_experts){1, 1, layers, &rows};
    put_msg(&msg);
}

static void
counts_of_experts_go_on_with_another_scheduler_and_end_with_another_model(void **state) {
    (void)state;
    const struct weft_expert_rows *rows = &api.metrics.experts;
    put_hello(1);
    put_expert(10);
    put_expert(12);
    assert_int_equal(rows->sums[0], 12);
    put_link(false);
    put_link(true);
    put_hello(1); /* the same one: nothing is new */
    put_expert(12);
    assert_int_equal(rows->sums[0], 12);
    put_link(false);
    put_link(true);
    put_hello(2); /* which has counted more than the one before already */
    put_expert(20);
    assert_int_equal(rows->sums[0], 32);
    fingerprint = "another";
    put_snapshot(true);
    fingerprint = "fp";
    assert_int_equal(rows->n_layers, 0);
    put_expert(5);
    assert_int_equal(rows->sums[0], 5);
}

static void a_scheduler_that_says_nothing_is_started_over_with(void **state) {
    (void)state;
    const uint64_t ms = 1000, end = now_us + 30000 * ms;
    uint32_t n_ticks = 0;
    for (; now_us < end && paper.n_resets == 0; now_us += 100 * ms, n_ticks++)
        weft_api_upstream_tick(&api, now_us);
    assert_int_equal(paper.n_resets, 1);
    assert_int_equal(n_ticks, 2 + WEFT_API_UPSTREAM_SILENT_MS / 100);
    put_link(false);
    put_link(true);
    for (uint32_t i = 0; i < 300; i++, now_us += 100 * ms) {
        if (i % 90 == 0) put_snapshot(true); /* seldom, but in time */
        weft_api_upstream_tick(&api, now_us);
    }
    now_us += 60000 * ms; /* this process stood still itself */
    weft_api_upstream_tick(&api, now_us);
    assert_int_equal(paper.n_resets, 1);
}

static weft_api_call *begin_background(uint32_t n_prompts) {
    struct weft_buf json;
    weft_buf_init(&json, 1 << 16);
    weft_buf_add_str(&json, "{\"max_tokens\":1,\"prompt\":[\"a\"");
    for (uint32_t i = 1; i < n_prompts; i++)
        weft_buf_add_str(&json, ",\"a\"");
    weft_buf_add_str(&json, "]}");
    asker = (struct weft_api_asker){.is_background = true};
    weft_api_call *call = begin(weft_buf_cstr(&json));
    asker = (struct weft_api_asker){0};
    weft_buf_fini(&json);
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    return call;
}

static void end_newest(uint32_t n) {
    const struct sent *newest = last_sent() - (n - 1);
    for (uint32_t i = 0; i < n; i++)
        put_accepted(&newest[i]);
    for (uint32_t i = 0; i < n; i++)
        put_token(&newest[i], 0, 0, 300, WEFT_END_LENGTH);
}

/* The snapshot's 64 places and as many more keep the worker busy. */
static void
in_the_background_a_call_with_more_prompts_than_there_is_room_for_has_its_turn(void **state) {
    (void)state;
    weft_api_call *first = begin_background(100), *large = begin_background(200),
                  *last = begin_background(1);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT),
                     100); /* `large` has no room, `last` waits for it */
    weft_api_call *other = begin("{\"prompt\":\"b\",\"max_tokens\":1}");
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 101);
    weft_api_call_drop(other);
    assert_int_equal(api.n_background_jobs, 100);
    weft_api_call_drop(first);
    deliver();
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 301);
    assert_int_equal(api.n_background_jobs, 200);
    end_newest(200);
    assert_int_equal(large->state, WEFT_API_CALL_DONE);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 302);
    weft_api_call_drop(large);
    end_newest(1);
    assert_int_equal(last->state, WEFT_API_CALL_DONE);
    weft_api_call_drop(last);
}

static void in_the_background_calls_leave_the_line_when_they_are_dropped(void **state) {
    (void)state;
    weft_api_call *first = begin_background(128), *second = begin_background(2),
                  *third = begin_background(3);
    weft_api_call_drop(second);
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 128);
    weft_api_call_drop(first);
    deliver();
    assert_int_equal(count_sent(WEFT_MSG_SUBMIT), 131);
    weft_api_call_drop(third);
    assert_int_equal(api.n_background_jobs, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_scheduler_that_says_nothing_is_started_over_with),
        CASE(after_a_break_the_stream_goes_on_where_it_was),
        CASE(a_request_nobody_answered_is_asked_again_as_new),
        CASE(refusals_become_http_errors),
        CASE(nothing_is_taken_in_while_nothing_serves),
        CASE(while_the_scheduler_is_replaced_requests_wait),
        CASE(while_the_worker_is_replaced_requests_wait),
        CASE(nobody_waits_for_longer_than_the_grace),
        CASE(the_time_in_which_this_process_stood_still_is_no_part_of_the_grace),
        CASE(a_server_that_starts_or_drains_says_so_at_once),
        CASE(so_many_wait_as_the_queue_may_hold),
        CASE(who_fills_the_places_leaves_others_their_part),
        CASE(a_deadline_may_pass_while_a_request_waits),
        CASE(open_requests_are_not_submitted_all_at_once),
        CASE(a_prompts_log_probabilities_are_resumed_behind_the_last),
        CASE(in_the_background_a_call_with_more_prompts_than_there_is_room_for_has_its_turn),
        CASE(in_the_background_calls_leave_the_line_when_they_are_dropped),
        CASE(nonsense_from_the_scheduler_starts_the_session_over),
        CASE(another_model_ends_what_the_first_began),
        CASE(counts_of_experts_go_on_with_another_scheduler_and_end_with_another_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
