/* Calls and several schedulers: who gets what, who takes over when one is lost, refuses or falls
 * silent, and what is shown of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/adapters.h"
#include "api/http.h"
#include "base/rand.h"
#include "inside/api/answers/answers.h"
#include "inside/api/cluster/cluster.h"
#include "unit/api_fixture.h"

#define MS 1000ull
#define GRACE_MS 5000u

static int set_up_three(void **state) {
    (void)state;
    int status = set_up_several(3);
    api.settings.restart_grace_ms = GRACE_MS;
    return status;
}

/* Puts something as another scheduler. */
#define AS(scheduler, put)                                                                         \
    do {                                                                                           \
        from = scheduler;                                                                          \
        put;                                                                                       \
    } while (0)

static int tear_down_three(void **state) {
    from = 0;
    fingerprint = "fp";
    n_running = 0;
    wefti_api_adapters_fini(&api);
    return tear_down(state);
}

static uint32_t count_submits(void) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < paper.n_sent; i++)
        n += paper.sent[i].type == WEFT_MSG_SUBMIT;
    return n;
}

/* Time passes: every scheduler but those of `silent` (bits) reports, and the loop ticks. */
static void pass_ms(uint32_t ms, uint32_t silent) {
    uint32_t was = from;
    for (uint32_t t = 0; t < ms; t += 100) {
        now_us += 100 * MS;
        for (uint32_t i = 0; i < 3; i++) {
            if (!(silent & 1u << i) && paper.is_up[i]) AS(i, put_snapshot(true));
        }
        weft_api_upstream_tick(&api, now_us);
        deliver();
    }
    from = was;
}

static void put_rejected(const struct sent *sent, enum weft_reject reason, uint32_t ms) {
    struct weft_msg msg = {.type = WEFT_MSG_REJECTED};
    msg.rejected = (struct weft_rejection){sent->id, sent->attempt, reason, ms, "no"};
    put_msg(&msg);
}

/* A stream that has begun; its submission. */
static weft_api_call *begin_stream(uint32_t n_tokens, struct sent *submit_out) {
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true,\"max_tokens\":30}");
    *submit_out = *last_sent();
    AS(submit_out->scheduler, put_accepted(submit_out));
    for (uint32_t i = 0; i < n_tokens; i++)
        put_token(submit_out, 0, i, 100 + i, WEFT_END_NONE);
    return call;
}

/* ------------------------------------------------------------------------------------- placing --- */

static void the_same_prompt_goes_to_the_same_scheduler_and_load_is_shared(void **state) {
    (void)state;
    weft_api_call *calls[60];
    uint32_t counts[3] = {0}, home = 0;
    for (uint32_t i = 0; i < 10; i++) {
        weft_api_call *call = begin("{\"prompt\":\"Once upon a time\"}");
        if (i == 0) home = last_sent()->scheduler;
        assert_int_equal(last_sent()->scheduler, home);
        weft_api_call_drop(call);
    }
    for (uint32_t i = 0; i < 60; i++) {
        char body[64];
        (void)snprintf(body, sizeof body, "{\"prompt\":\"%u Once upon a time\"}", i);
        calls[i] = begin(body);
        counts[last_sent()->scheduler]++;
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_true(counts[i] >= 10 && counts[i] <= 25);
    for (uint32_t i = 0; i < 60; i++)
        weft_api_call_drop(calls[i]);
}

static void what_comes_from_another_scheduler_is_not_believed(void **state) {
    (void)state;
    struct sent submit;
    weft_api_call *call = begin_stream(1, &submit);
    AS((submit.scheduler + 1) % 3, put_token(&submit, 0, 1, 7, WEFT_END_LENGTH));
    assert_int_equal(call->state, WEFT_API_CALL_RUNNING);
    assert_int_equal(call->choices[0].n_tokens, 1);
    weft_api_call_drop(call);
    assert_int_equal(last_sent()->type, WEFT_MSG_CANCEL);
    assert_int_equal(last_sent()->scheduler, submit.scheduler);
}

/* -------------------------------------------------------------------------------------- losses --- */

static void a_lost_scheduler_s_streams_go_on_at_another_at_once(void **state) {
    (void)state;
    struct sent submit;
    weft_api_call *call = begin_stream(3, &submit);
    AS(submit.scheduler, put_link(false));
    struct sent again = *last_sent();
    assert_int_equal(again.type, WEFT_MSG_SUBMIT);
    assert_int_not_equal(again.scheduler, submit.scheduler);
    assert_true(again.resume && again.id == submit.id && again.attempt == submit.attempt + 1);
    assert_int_equal(again.n_output[0], 3);
    assert_int_equal(again.output[0][2], 102);
    assert_int_equal(again.seed, submit.seed);
    AS(again.scheduler, put_accepted(&again));
    put_token(&again, 0, 3, 103, WEFT_END_LENGTH);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    assert_int_equal(api.metrics.n_moved, 1);
    weft_api_call_drop(call);
}

static void what_has_no_token_goes_to_whatever_fingerprint_and_names_it(void **state) {
    (void)state;
    fingerprint = "another";
    for (uint32_t i = 0; i < 3; i++)
        AS(i, put_snapshot(true));
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"max_tokens\":1}");
    struct sent first = *last_sent();
    fingerprint = "third";
    AS((first.scheduler + 1) % 3, put_snapshot(true));
    AS((first.scheduler + 2) % 3, put_snapshot(true));
    AS(first.scheduler, put_link(false));
    struct sent second = *last_sent();
    assert_int_not_equal(second.scheduler, first.scheduler);
    AS(second.scheduler, put_accepted(&second));
    put_token(&second, 0, 0, 5, WEFT_END_LENGTH);
    json_t *body = body_of(call, 1 << 16);
    assert_string_equal(text_of(body, "system_fingerprint"), "third");
    json_decref(body);
    weft_api_call_drop(call);
}

static void a_stream_that_nobody_else_can_go_on_with_waits_for_the_grace_and_ends(void **state) {
    (void)state;
    struct sent submit;
    weft_api_call *call = begin_stream(2, &submit);
    fingerprint = "other";
    for (uint32_t i = 0; i < 3; i++) {
        if (i != submit.scheduler) AS(i, put_snapshot(true));
    }
    uint32_t n = count_submits();
    AS(submit.scheduler, put_link(false));
    pass_ms(GRACE_MS - 200, 0);
    assert_int_equal(call->state, WEFT_API_CALL_RUNNING);
    assert_int_equal(count_submits(), n);
    pass_ms(400, 0);
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    assert_int_equal(call->error.status, 503);
    assert_string_equal(call->error.code, "scheduler_lost");
    assert_non_null(strstr(call->error.message, "no other one"));
    weft_api_call_drop(call);
}

static void those_who_are_left_alone_are_waited_for(void **state) {
    (void)state;
    struct sent submit;
    weft_api_call *call = begin_stream(2, &submit);
    for (uint32_t i = 0; i < 3 * 12; i++) {
        AS(i % 3, put_link(false));
        AS(i % 3, put_link(true));
        AS(i % 3, put_snapshot(true));
    }
    uint32_t n = count_submits();
    pass_ms(WEFTI_API_BACKOFF_MS_MAX,
            0); /* half of it at least, and that is as long as the grace */
    assert_int_equal(call->state, WEFT_API_CALL_RUNNING);
    assert_true(count_submits() > n);
    weft_api_call_drop(call);
}

static void nobody_gives_up_for_the_time_in_which_this_process_stood_still(void **state) {
    (void)state;
    struct sent submit;
    weft_api_call *call = begin_stream(2, &submit);
    fingerprint = "other";
    for (uint32_t i = 0; i < 3; i++) {
        if (i != submit.scheduler) AS(i, put_snapshot(true));
    }
    AS(submit.scheduler, put_link(false));
    pass_ms(GRACE_MS - 1000, 0);
    now_us += 60000 * MS;
    pass_ms(800, 0);
    assert_int_equal(call->state, WEFT_API_CALL_RUNNING);
    pass_ms(400, 0);
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    weft_api_call_drop(call);
}

static void within_the_grace_its_own_scheduler_goes_on_with_it(void **state) {
    (void)state;
    struct sent submit;
    weft_api_call *call = begin_stream(2, &submit);
    fingerprint = "other";
    for (uint32_t i = 0; i < 3; i++) {
        if (i != submit.scheduler) AS(i, put_snapshot(true));
    }
    AS(submit.scheduler, put_link(false));
    pass_ms(2000, 0);
    fingerprint = "fp";
    AS(submit.scheduler, put_link(true));
    put_snapshot(true);
    weft_api_upstream_tick(&api, now_us);
    deliver();
    assert_int_equal(last_sent()->type, WEFT_MSG_SUBMIT);
    assert_int_equal(last_sent()->scheduler, submit.scheduler);
    assert_true(last_sent()->resume);
    weft_api_call_drop(call);
}

static void a_silent_scheduler_loses_its_streams_and_is_told(void **state) {
    (void)state;
    struct sent submit;
    weft_api_call *call = begin_stream(2, &submit);
    weft_api_upstream_tick(&api, now_us);
    pass_ms(WEFT_API_UPSTREAM_UNABLE_MS - 500, 1u << submit.scheduler);
    assert_int_equal(count_submits(), 1);
    pass_ms(WEFT_API_SNAPSHOT_AGE_MS_MAX + 1000, 1u << submit.scheduler);
    assert_int_equal(count_submits(), 2);
    assert_int_equal(last_sent()->type, WEFT_MSG_SUBMIT);
    assert_int_not_equal(last_sent()->scheduler, submit.scheduler);
    bool is_told = false;
    for (uint32_t i = 0; i < paper.n_sent; i++)
        is_told = is_told ||
                  (paper.sent[i].type == WEFT_MSG_CANCEL &&
                   paper.sent[i].scheduler == submit.scheduler && paper.sent[i].id == submit.id);
    assert_true(is_told);
    put_token(&submit, 0, 2, 9, WEFT_END_LENGTH); /* it was only slow: nobody listens any more */
    assert_int_equal(call->state, WEFT_API_CALL_RUNNING);
    weft_api_call_drop(call);
}

static void
a_scheduler_without_a_worker_loses_its_streams_and_one_that_drains_does_not(void **state) {
    (void)state;
    struct sent submit;
    weft_api_call *call = begin_stream(2, &submit);
    struct weft_msg msg = {.type = WEFT_MSG_SNAPSHOT};
    msg.snapshot = api.upstream.schedulers[submit.scheduler].snapshot;
    msg.snapshot.activity = (struct weft_activity){0};
    msg.snapshot.draining = true;
    for (uint32_t ms = 0; ms < 10000; ms += 500) {
        AS(submit.scheduler, put_msg(&msg));
        pass_ms(500, 1u << submit.scheduler);
    }
    assert_int_equal(count_submits(), 1);
    for (uint32_t ms = 0; ms < WEFT_API_UPSTREAM_UNABLE_MS - 1000; ms += 500) {
        AS(submit.scheduler, put_snapshot(false));
        pass_ms(500, 1u << submit.scheduler);
    }
    assert_int_equal(count_submits(), 1);
    for (uint32_t ms = 0; ms < 2000; ms += 500) {
        AS(submit.scheduler, put_snapshot(false));
        pass_ms(500, 1u << submit.scheduler);
    }
    assert_int_equal(count_submits(), 2);
    assert_int_not_equal(last_sent()->scheduler, submit.scheduler);
    weft_api_call_drop(call);
}

static void while_this_process_stood_still_nobody_was_silent(void **state) {
    (void)state;
    struct sent submit;
    weft_api_call *call = begin_stream(2, &submit);
    weft_api_upstream_tick(&api, now_us);
    now_us += 60000 * MS;
    weft_api_upstream_tick(&api, now_us);
    deliver();
    pass_ms(1000, 0);
    assert_int_equal(count_submits(), 1);
    weft_api_call_drop(call);
}

static void a_call_s_prompts_are_computed_by_one_model(void **state) {
    (void)state;
    AS(1, fingerprint = "one"; put_snapshot(true));
    AS(2, fingerprint = "two"; put_snapshot(true));
    for (uint32_t i = 0; i < 20; i++) {
        char body[96];
        (void)snprintf(body, sizeof body, "{\"prompt\":[\"%u a\",\"%u b\",\"%u c\",\"%u d\"]}", i,
                       i, i, i);
        weft_api_call *call = begin(body);
        for (uint32_t k = 1; k < 4; k++)
            assert_int_equal(paper.sent[paper.n_sent - 1 - k].scheduler, last_sent()->scheduler);
        weft_api_call_drop(call);
    }
}

/* ------------------------------------------------------------------------------------- refusals --- */

static void a_refusal_for_want_of_room_is_tried_at_each_of_the_others(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once\"}");
    uint32_t asked = 0;
    for (uint32_t n = 1; n <= 3; n++) {
        struct sent sent = *last_sent();
        assert_int_equal(count_submits(), n);
        assert_false(sent.resume);
        assert_false(asked & 1u << sent.scheduler);
        asked |= 1u << sent.scheduler;
        AS(sent.scheduler, put_rejected(&sent, WEFT_REJECT_QUEUE_FULL, n * 1000));
        if (n == 3) break;
        assert_int_equal(count_submits(), n); /* not at once */
        assert_int_equal(call->state, WEFT_API_CALL_WAITING);
        pass_ms(1000, 0);
    }
    assert_int_equal(asked, 7);
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    assert_int_equal(call->error.status, 429);
    assert_int_equal(call->error.retry_after_ms, 1000); /* the soonest of three */
    weft_api_call_drop(call);
}

static void what_is_wrong_with_a_request_is_told_at_once(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once\"}");
    struct sent sent = *last_sent();
    AS(sent.scheduler, put_rejected(&sent, WEFT_REJECT_INVALID, 0));
    assert_int_equal(call->error.status, 400);
    weft_api_call_drop(call);
}

static void too_long_for_one_and_too_busy_for_another_is_worth_another_try(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once\"}");
    for (uint32_t n = 0; n < 3; n++) {
        struct sent sent = *last_sent();
        AS(sent.scheduler,
           put_rejected(&sent, n == 1 ? WEFT_REJECT_QUEUE_FULL : WEFT_REJECT_TOO_LONG,
                        n == 1 ? 2000 : 0));
        pass_ms(1000, 0);
    }
    assert_int_equal(call->error.status, 503);
    assert_int_equal(call->error.retry_after_ms, 2000);
    weft_api_call_drop(call);
}

static void a_client_that_leaves_between_two_tries_leaves_nothing_behind(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once\"}");
    struct sent sent = *last_sent();
    AS(sent.scheduler, put_rejected(&sent, WEFT_REJECT_QUEUE_FULL, 0));
    weft_api_call_drop(call);
    assert_int_equal(api.upstream.n_open, 0);
    uint32_t n = count_submits();
    pass_ms(1000, 0);
    assert_int_equal(count_submits(), n);
}

/* ------------------------------------------------------------------------------------ adapters --- */

static void put_lora(uint64_t digest, const char *failure) {
    struct weft_msg msg = {.type = WEFT_MSG_LORA};
    msg.lora = (struct weft_msg_lora){.id = api.adapters.all[0]->id,
                                      .is_there = !failure,
                                      .digest = {1, digest},
                                      .text = failure ? failure : ""};
    put_msg(&msg);
}

/* All three are asked for the adapter "a". */
static void begin_adapter(void) {
    struct weft_errmsg why;
    assert_int_equal(weft_api_adapters_begin(&api, "a=/a", false, &why), WEFT_OK);
    for (uint32_t i = 0; i < 3; i++) {
        AS(i, put_link(false));
        AS(i, put_link(true));
        AS(i, put_snapshot(true));
    }
}

static bool is_offered(void) {
    const char *failure = NULL;
    return weft_api_adapters_are_ready(&api, &failure) && api.limits.adapters->n == 1;
}

static const char *adapter_body(uint32_t i) {
    static char body[96];
    (void)snprintf(body, sizeof body, "{\"model\":\"a\",\"prompt\":\"%u Once upon a time\"}", i);
    return body;
}

static void an_adapter_is_offered_once_all_that_serve_have_it(void **state) {
    (void)state;
    begin_adapter();
    AS(0, put_lora(5, NULL));
    assert_false(is_offered());
    AS(1, put_link(false));
    assert_false(is_offered());
    AS(2, put_snapshot(false)); /* nobody knows for how long */
    assert_true(is_offered());
    for (uint32_t i = 0; i < 20; i++) { /* one that serves again may not have it yet */
        AS(2, put_snapshot(true));
        weft_api_call *call = begin(adapter_body(i));
        assert_int_equal(last_sent()->type, WEFT_MSG_SUBMIT);
        assert_int_equal(last_sent()->scheduler, 0);
        weft_api_call_drop(call);
    }
    AS(2, put_lora(5, NULL));
    uint32_t placed = 0;
    for (uint32_t i = 0; i < 40; i++) {
        weft_api_call *call = begin(adapter_body(i));
        placed |= 1u << last_sent()->scheduler;
        weft_api_call_drop(call);
    }
    assert_int_equal(placed, 1u << 0 | 1u << 2);
}

static void one_that_loses_an_adapter_loses_its_streams_to_those_that_have_it(void **state) {
    (void)state;
    begin_adapter();
    for (uint32_t i = 0; i < 3; i++)
        AS(i, put_lora(5, NULL));
    weft_api_call *call = begin(adapter_body(0)),
                  *plain = begin("{\"prompt\":\"0 Once upon a time\"}");
    struct sent first = paper.sent[paper.n_sent - 2];
    uint32_t n = count_submits();
    AS(first.scheduler, put_accepted(&first));
    put_token(&first, 0, 0, 7, WEFT_END_NONE);
    put_lora(0, "its file is gone");
    assert_true(is_offered());
    assert_int_equal(count_submits(), n + 1);
    struct sent second = *last_sent();
    assert_int_equal(second.id, first.id);
    assert_int_not_equal(second.scheduler, first.scheduler);
    AS(second.scheduler, put_lora(6, NULL)); /* another one in its place */
    struct sent third = *last_sent();
    assert_int_not_equal(third.scheduler, first.scheduler);
    assert_int_not_equal(third.scheduler, second.scheduler);
    AS(third.scheduler, put_lora(0, "its file is gone"));
    assert_int_equal(api.adapters.n, 0); /* nobody has it */
    weft_api_call_drop(call);
    weft_api_call_drop(plain);
}

static void an_adapter_that_one_cannot_load_is_not_offered(void **state) {
    (void)state;
    const char *failure = NULL;
    begin_adapter();
    AS(1, put_lora(5, NULL));
    AS(0, put_lora(0, "there is no such file"));
    (void)weft_api_adapters_are_ready(&api, &failure);
    assert_non_null(strstr(failure, "no such file"));
    assert_int_equal(api.adapters.n, 0);
}

/* ------------------------------------------------------------------------------------ together --- */

static void one_that_serves_is_enough(void **state) {
    (void)state;
    AS(0, put_link(false));
    AS(1, put_snapshot(false));
    assert_null(weft_api_why_ill(&api, now_us / 1000));
    weft_api_call *call = begin("{\"prompt\":\"Once\"}");
    assert_int_equal(last_sent()->scheduler, 2);
    AS(2, put_link(false));
    assert_non_null(weft_api_why_ill(&api, now_us / 1000));
    assert_true(weft_api_is_back_soon(&api, now_us / 1000));
    AS(0, put_link(true));
    put_snapshot(true);
    weft_api_upstream_tick(&api, now_us);
    deliver();
    assert_int_equal(last_sent()->type, WEFT_MSG_SUBMIT);
    assert_int_equal(last_sent()->scheduler, 0);
    weft_api_call_drop(call);
}

static void figures_are_sums_of_those_that_are_there(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        n_running = 1 + i;
        AS(i, put_snapshot(true));
    }
    const struct weft_msg_snapshot *sum = &api.upstream.snapshot;
    assert_int_equal(sum->n_running, 6);
    assert_int_equal(sum->n_blocks, 300);
    assert_int_equal(sum->model.max_model_len, 1024);
    AS(2, put_link(false));
    assert_int_equal(sum->n_running, 3);
    assert_int_equal(sum->n_blocks, 200);
}

static void counters_of_one_that_starts_anew_go_on(void **state) {
    (void)state;
    struct weft_msg msg = {.type = WEFT_MSG_SNAPSHOT};
    msg.snapshot.n_workers = 1;
    static const uint64_t steps[] = {10, 20, 30, 35, 4};
    static const uint32_t whose[] = {0, 1, 0, 1, 1}; /* the last is another process */
    for (uint32_t i = 0; i < 5; i++) {
        msg.snapshot.n_steps = steps[i];
        AS(whose[i], put_msg(&msg));
    }
    assert_int_equal(api.metrics.carried.n_steps, 30 + 35 + 4);
}

static void who_serves_another_model_is_left_out(void **state) {
    (void)state;
    struct weft_msg msg = {.type = WEFT_MSG_SNAPSHOT};
    msg.snapshot = api.upstream.schedulers[1].snapshot;
    msg.snapshot.activity = (struct weft_activity){0};
    (void)snprintf(msg.snapshot.model.model_name, sizeof msg.snapshot.model.model_name, "stranger");
    AS(1, put_msg(&msg));
    for (uint32_t i = 0; i < 30; i++) {
        char body[64];
        (void)snprintf(body, sizeof body, "{\"prompt\":\"%u Once\"}", i);
        weft_api_call *call = begin(body);
        assert_int_not_equal(last_sent()->scheduler, 1);
        weft_api_call_drop(call);
    }
    assert_int_equal(api.upstream.snapshot.n_blocks, 200);
    AS(1, put_snapshot(true)); /* the right one again */
    assert_int_equal(api.upstream.snapshot.n_blocks, 300);
}

static void experts_of_all_are_summed(void **state) {
    (void)state;
    static const uint32_t layers[] = {3};
    struct weft_msg msg = {.type = WEFT_MSG_EXPERTS};
    static const uint64_t rows[] = {10, 100, 12};
    for (uint32_t i = 0; i < 3; i++) {
        msg.experts = (struct weft_msg_experts){1, 1, layers, &rows[i]};
        AS(i % 2, put_msg(&msg));
    }
    assert_int_equal(api.metrics.experts.sums[0], 112);
}

static void stats_name_each_and_whose_requests_are_whose(void **state) {
    (void)state;
    struct sent submit;
    weft_api_call *call = begin_stream(1, &submit);
    const struct weft_activity_seq seqs[] = {
        {.request_id = submit.id, .router = 5, .phase = WEFT_ACTIVITY_DECODE},
        {.request_id = submit.id, .router = 6, .phase = WEFT_ACTIVITY_DECODE}};
    struct weft_msg msg = {.type = WEFT_MSG_SNAPSHOT};
    msg.snapshot = api.upstream.schedulers[submit.scheduler].snapshot;
    msg.snapshot.activity = (struct weft_activity){.n_seqs = 2, .seqs = seqs, .router = 5};
    AS(submit.scheduler, put_msg(&msg));
    struct weft_buf out;
    struct weft_writer w;
    const struct weft_api_moment moment = {now_us / 1000, 4096};
    weft_buf_init(&out, 1 << 20);
    weft_writer_init(&w, WEFT_WRITE_JSON, &out);
    wefti_api_write_stats(&api, &moment, &w);
    json_t *json = json_loadb(out.data, out.len, 0, NULL);
    assert_non_null(json);
    const json_t *list = json_object_get(json, "schedulers");
    assert_int_equal(json_array_size(list), 3);
    assert_string_equal(text_of(json_array_get(list, 1), "url"), "parchment");
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(
            json_integer_value(json_object_get(json_array_get(list, i), "open_requests")),
            i == submit.scheduler);
    list = json_object_get(json, "sequences");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(text_of(json_array_get(list, 0), "request_id"), call->id);
    assert_string_not_equal(text_of(json_array_get(list, 1), "request_id"), call->id);
    json_decref(json);
    weft_buf_fini(&out);
    weft_api_call_drop(call);
}

static void forgetting_prefixes_is_told_to_all(void **state) {
    (void)state;
    uint32_t n = paper.n_sent;
    AS(1, put_link(false));
    assert_int_equal(weft_api_upstream_reset_cache(&api), WEFT_OK);
    assert_int_equal(paper.n_sent, n + 2);
    assert_int_equal(last_sent()->type, WEFT_MSG_RESET_CACHE);
}

/* The job that waits for an answer to this submission. */
static const struct weft_api_upstream_job *asked_by(const struct sent *sent) {
    const struct weft_api_upstream_job *job =
        api.upstream.slots[(uint32_t)sent->id % api.upstream.n_slots];
    bool is_its = sent->type == WEFT_MSG_SUBMIT && job && job->id == sent->id &&
                  job->attempt == sent->attempt;
    return is_its ? job : NULL;
}

/* All are there, and whoever was asked last answers. */
static void answer_all(void) {
    for (uint32_t i = 0; i < 3; i++) {
        if (!paper.is_up[i]) AS(i, put_link(true));
    }
    for (uint32_t i = 0; i < 200 && api.upstream.n_open > 0; i++) {
        pass_ms(100, 0);
        for (uint32_t k = 0; k < paper.n_sent; k++) {
            const struct sent sent = paper.sent[k];
            from = sent.scheduler;
            if (asked_by(&sent)) put_accepted(&sent);
            for (uint32_t t = 0; t < 20 && asked_by(&sent); t++) {
                const struct job *job = (const struct job *)asked_by(&sent);
                if (job->choices[0].n_tokens == t)
                    put_token(&sent, 0, t, 200 + t, t == 19 ? WEFT_END_LENGTH : WEFT_END_NONE);
            }
        }
    }
}

/* Random losses, returns, refusals, tokens: at the end each call has all of its tokens once, or was
 * refused by everybody. */
static void whatever_happens_each_stream_has_its_tokens_once(void **state) {
    (void)state;
    uint64_t seed = weft_rand_test_seed();
    uint32_t n_done = 0;
    for (uint32_t round = 0; round < 40; round++) {
        weft_api_call *calls[6];
        paper.n_sent = 0;
        for (uint32_t i = 0; i < 6; i++)
            calls[i] = begin("{\"prompt\":\"Once\",\"stream\":true,\"max_tokens\":20}");
        for (uint32_t step = 0; step < 3000; step++) {
            uint32_t node = weft_rand_below(&seed, 3), what = weft_rand_below(&seed, 40);
            if (paper.n_sent > SENT_MAX - 100) break;
            from = node;
            if (what == 0 && step < 1500) {
                put_link(!paper.is_up[node]);
                if (paper.is_up[node]) put_snapshot(true);
            } else if (what == 1) {
                for (uint32_t i = 0; i < 3 && step >= 1500; i++) {
                    if (!paper.is_up[i]) AS(i, put_link(true));
                }
                pass_ms(100, 0);
            } else {
                struct sent sent = paper.sent[weft_rand_below(&seed, paper.n_sent)];
                if (sent.type != WEFT_MSG_SUBMIT || !paper.is_up[sent.scheduler]) continue;
                const struct weft_api_upstream_job *job =
                    api.upstream.slots[(uint32_t)sent.id % api.upstream.n_slots];
                if (!job || job->id != sent.id) continue;
                const struct choice *choice = &((const struct job *)job)->choices[0];
                from = sent.scheduler;
                if (what == 2 && !sent.resume && step < 1500)
                    put_rejected(&sent, WEFT_REJECT_QUEUE_FULL, 0);
                else if (what < 20)
                    put_accepted(&sent);
                else
                    put_token(&sent, 0, choice->n_tokens,
                              sent.attempt == job->attempt ? 200 + choice->n_tokens : 999,
                              choice->n_tokens == 19 ? WEFT_END_LENGTH : WEFT_END_NONE);
            }
        }
        answer_all();
        for (uint32_t i = 0; i < 6; i++) {
            bool is_done = calls[i]->state == WEFT_API_CALL_DONE;
            if (!is_done) assert_int_equal(calls[i]->error.status, 429);
            if (is_done) assert_int_equal(calls[i]->choices[0].n_tokens, 20);
            n_done += is_done;
            for (uint32_t k = 0; calls[i]->n_choices && k < calls[i]->choices[0].n_tokens; k++)
                assert_int_equal(calls[i]->choices[0].tokens[k], 200 + k);
            weft_api_call_drop(calls[i]);
        }
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(api.upstream.cluster->nodes[i].n_open, 0);
            if (!paper.is_up[i]) AS(i, put_link(true));
        }
        pass_ms(20000, 0);
    }
    assert_true(n_done > 40 * 6 / 2);
}

#define CASE3(name) cmocka_unit_test_setup_teardown(name, set_up_three, tear_down_three)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE3(the_same_prompt_goes_to_the_same_scheduler_and_load_is_shared),
        CASE3(what_comes_from_another_scheduler_is_not_believed),
        CASE3(a_lost_scheduler_s_streams_go_on_at_another_at_once),
        CASE3(what_has_no_token_goes_to_whatever_fingerprint_and_names_it),
        CASE3(a_stream_that_nobody_else_can_go_on_with_waits_for_the_grace_and_ends),
        CASE3(nobody_gives_up_for_the_time_in_which_this_process_stood_still),
        CASE3(those_who_are_left_alone_are_waited_for),
        CASE3(within_the_grace_its_own_scheduler_goes_on_with_it),
        CASE3(a_silent_scheduler_loses_its_streams_and_is_told),
        CASE3(a_scheduler_without_a_worker_loses_its_streams_and_one_that_drains_does_not),
        CASE3(while_this_process_stood_still_nobody_was_silent),
        CASE3(a_call_s_prompts_are_computed_by_one_model),
        CASE3(a_refusal_for_want_of_room_is_tried_at_each_of_the_others),
        CASE3(what_is_wrong_with_a_request_is_told_at_once),
        CASE3(too_long_for_one_and_too_busy_for_another_is_worth_another_try),
        CASE3(a_client_that_leaves_between_two_tries_leaves_nothing_behind),
        CASE3(an_adapter_is_offered_once_all_that_serve_have_it),
        CASE3(one_that_loses_an_adapter_loses_its_streams_to_those_that_have_it),
        CASE3(an_adapter_that_one_cannot_load_is_not_offered),
        CASE3(one_that_serves_is_enough),
        CASE3(figures_are_sums_of_those_that_are_there),
        CASE3(counters_of_one_that_starts_anew_go_on),
        CASE3(who_serves_another_model_is_left_out),
        CASE3(experts_of_all_are_summed),
        CASE3(stats_name_each_and_whose_requests_are_whose),
        CASE3(forgetting_prefixes_is_told_to_all),
        CASE3(whatever_happens_each_stream_has_its_tokens_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
