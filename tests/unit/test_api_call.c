/* The life of a call: deadlines, threads' hands, errors on the way, refused allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside/api/store/store.h"
#include "unit/api_fixture.h"

/* ---------------------------------------------------------------- an allocator that refuses --- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t each);
void *__real_realloc(void *at, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t each);
void *__wrap_realloc(void *at, size_t n);

static uint32_t refuse_at; /* the how many-th request is refused; 0: none */

static bool is_refused(void) {
    return refuse_at > 0 && --refuse_at == 0;
}

void *__wrap_malloc(size_t n) {
    return is_refused() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t each) {
    return is_refused() ? NULL : __real_calloc(n, each);
}

void *__wrap_realloc(void *at, size_t n) {
    return is_refused() ? NULL : __real_realloc(at, n);
}

/* -------------------------------------------------------------------------------- the tests --- */

static void one_prompt_may_finish_before_another_is_accepted(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":[\"a\",\"b\"],\"max_tokens\":1}");
    struct sent first = paper.sent[paper.n_sent - 2], second = *last_sent();
    put_accepted(&first);
    put_token(&first, 0, 0, 40, WEFT_END_LENGTH);
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    put_accepted(&second);
    assert_int_equal(call->state, WEFT_API_CALL_RUNNING);
    put_token(&second, 0, 0, 41, WEFT_END_LENGTH);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    weft_api_call_drop(call);
}

static void a_deadline_ends_a_request_wherever_it_is(void **state) {
    (void)state;
    api.settings.request_timeout_ms = 500;
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    struct weft_event event = {
        .request_id = submit.id, .attempt = submit.attempt, .end = WEFT_END_DEADLINE};
    put_event(&event);
    assert_int_equal(call->error.status, 504);
    weft_api_call_drop(call);
    paper.is_up[0] = false; /* one that could never be sent */
    call = begin("{\"prompt\":\"Once\"}");
    paper.is_up[0] = true;
    now_us += 600000;
    weft_api_upstream_pump(&api, now_us);
    assert_int_equal(call->error.status, 504);
    weft_api_call_drop(call);
}

static void the_scheduler_hears_how_a_request_is_to_be_served(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"a\",\"priority\":3,\"slo_ttft_ms\":5,"
                                "\"slo_tpot_ms\":6,\"user\":\"me\",\"cache_salt\":\"s\","
                                "\"timeout\":2}");
    const struct sent *sent = last_sent();
    assert_int_equal(sent->priority, 3);
    assert_int_equal(sent->ttft_us, 5000);
    assert_int_equal(sent->tpot_us, 6000);
    assert_true(sent->flow == weft_api_flow("me", 2));
    assert_true(sent->cache_salt.hi == call->params.service.cache_salt.hi && sent->cache_salt.hi);
    assert_true(sent->tenant == 0 && sent->weight == 1); /* there are no keys */
    assert_int_equal(sent->deadline_us, 2000000);
    weft_api_call_drop(call);
}

/* A scheduler that found more than there was is not believed. */
static void cached_tokens_are_counted_where_prompts_are_looked_up(void **state) {
    (void)state;
    static const struct {
        const char *json;
        bool has_cache;
        uint32_t n_cached, n_looked_up, n_found;
    } rows[] = {
        {"{\"prompt\":[1,2,3,4]}", true, 3, 4, 3},
        {"{\"prompt\":[1,2,3,4]}", true, 5, 4, 4},
        {"{\"prompt\":[1,2,3,4]}", false, 0, 0, 0},
        {"{\"prompt\":[1,2,3,4],\"prompt_logprobs\":0}", true, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t n_looked_up = api.metrics.n_looked_up_tokens,
                 n_found = api.metrics.n_cached_tokens;
        api.settings.prefix_cache = rows[i].has_cache;
        weft_api_call *call = begin(rows[i].json);
        struct sent submit = *last_sent();
        put_accepted(&submit);
        struct weft_event event = {.request_id = submit.id,
                                   .attempt = submit.attempt,
                                   .sampled = true,
                                   .token = 40,
                                   .n_prompt_cached = rows[i].n_cached};
        put_event(&event);
        assert_int_equal(wefti_api_cached_tokens(call), rows[i].n_found);
        assert_int_equal(api.metrics.n_looked_up_tokens - n_looked_up, rows[i].n_looked_up);
        assert_int_equal(api.metrics.n_cached_tokens - n_found, rows[i].n_found);
        weft_api_call_drop(call);
    }
    api.settings.prefix_cache = false;
}

/* The shorter of the two holds, whichever it is. */
static void a_clients_own_timeout_ends_its_request(void **state) {
    (void)state;
    api.settings.request_timeout_ms = 1000;
    weft_api_call *call = begin("{\"prompt\":\"a\",\"timeout\":0.5}");
    assert_int_equal(last_sent()->deadline_us, 500000);
    weft_api_call_drop(call);
    call = begin("{\"prompt\":\"a\",\"timeout\":3}");
    assert_int_equal(last_sent()->deadline_us, 1000000);
    weft_api_call_drop(call);
    api.settings.request_timeout_ms = 0;
}

static void put_likely_token(const struct sent *sent, uint32_t choice, uint32_t idx, uint32_t token,
                             float logprob, enum weft_end end) {
    struct weft_event event = {.request_id = sent->id,
                               .attempt = sent->attempt,
                               .choice = choice,
                               .sampled = true,
                               .token = token,
                               .output_idx = idx,
                               .end = end,
                               .has_logprobs = true};
    event.logprobs = (struct weft_logprobs){.logprob = logprob, .rank = 1};
    put_event(&event);
}

static void expect_texts(weft_api_call *call, const uint32_t *tokens, size_t n, int64_t n_output) {
    json_t *body = body_of(call, 64);
    assert_int_equal(json_array_size(json_object_get(body, "choices")), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *choice = choice_of(body, i);
        struct weft_buf text;
        struct weft_detok detok;
        weft_buf_init(&text, 1 << 10);
        weft_detok_init(&detok, api.tok, true);
        weft_detok_push(&detok, tokens[i], &text);
        weft_detok_finish(&detok, &text);
        assert_non_null(strstr(text_of(choice, "text"), weft_buf_cstr(&text)));
        assert_int_equal(json_integer_value(json_object_get(choice, "index")), i);
        assert_true(json_is_null(json_object_get(choice, "logprobs")));
        weft_buf_fini(&text);
    }
    const json_t *usage = json_object_get(body, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), n_output);
    json_decref(body);
}

/* Each choice yields its own token, twice at most: so the text tells which it was. */
static void the_likeliest_choices_are_shown_and_all_are_counted(void **state) {
    (void)state;
    weft_api_call *call =
        begin("{\"prompt\":[\"a\",\"b\"],\"n\":2,\"best_of\":4,\"max_tokens\":2}");
    struct sent second = *last_sent(), first = paper.sent[paper.n_sent - 2];
    assert_int_equal(first.n_choices, 4);
    put_accepted(&first);
    put_accepted(&second);
    static const float second_prompt[4] = {-3.0f, -1.0f, -2.0f, -1.0f};
    for (uint32_t k = 0; k < 4; k++)
        put_likely_token(&second, k, 0, 50 + k, second_prompt[k], WEFT_END_LENGTH);
    /* By the token, not by the sum: -1 and -1 are better than -1.5 alone. */
    put_likely_token(&first, 0, 0, 40, -1.5f, WEFT_END_LENGTH);
    put_likely_token(&first, 1, 0, 41, -1.0f, WEFT_END_NONE);
    put_likely_token(&first, 2, 0, 42, -0.5f, WEFT_END_NONE);
    put_link(false); /* what has come so far counts after a break, too */
    put_link(true);
    put_snapshot(true);
    struct sent again = *last_sent();
    assert_int_equal(again.id, first.id);
    assert_true(again.resume && again.finished[0] && again.n_output[1] == 1);
    put_accepted(&again);
    put_likely_token(&again, 1, 1, 41, -1.0f, WEFT_END_LENGTH);
    put_likely_token(&again, 2, 1, 42, -2.6f, WEFT_END_LENGTH);
    put_likely_token(&again, 3, 0, 43, -9.0f, WEFT_END_LENGTH);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    static const uint32_t want[4] = {41, 40, 51, 53};
    expect_texts(call, want, 4, 6 + 4);
    weft_api_call_drop(call);
}

/* One of two prompts kills every worker: the whole request ends, and the other prompt with it. */
static void a_request_that_cannot_be_computed_ends_with_an_error(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":[\"Once\",\"Twice\"]}");
    struct sent first = paper.sent[paper.n_sent - 2], second = *last_sent();
    put_accepted(&first);
    put_accepted(&second);
    put_token(&first, 0, 0, 5, WEFT_END_NONE);
    struct weft_event event = {
        .request_id = second.id, .attempt = second.attempt, .end = WEFT_END_ERROR};
    put_event(&event);
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    assert_int_equal(call->error.status, 500);
    assert_non_null(strstr(call->error.message, "failed 12 times to compute"));
    assert_int_equal(api.metrics.finished[WEFT_END_ERROR], 2);
    assert_int_equal(last_sent()->type, WEFT_MSG_CANCEL);
    weft_api_call_drop(call);
    call = begin("{\"prompt\":\"Once\",\"stream\":true}");
    first = *last_sent();
    put_accepted(&first);
    put_token(&first, 0, 0, 5, WEFT_END_NONE);
    event = (struct weft_event){
        .request_id = first.id, .attempt = first.attempt, .end = WEFT_END_ERROR};
    put_event(&event);
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    while (weft_api_render_stream(call, &out, 64) == WEFT_API_RENDER_MORE) {
    }
    assert_non_null(strstr(weft_buf_cstr(&out), "data: {\"error\":{\"message\":\"the server"));
    weft_buf_fini(&out);
    weft_api_call_drop(call);
}

static void a_request_from_before_the_model_was_known_is_asked_to_come_again(void **state) {
    (void)state;
    api.limits.n_vocab = 0;
    weft_api_call *call = in_hand("{\"prompt\":\"Once\"}", CALL_COMPLETION);
    put_snapshot(true); /* meanwhile */
    assert_int_equal(api.limits.n_vocab, 4096);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    assert_int_equal(call->error.status, 503);
    weft_api_call_drop(call);
}

static bool was_taken_back;

static bool take_back_not(void *context) {
    (void)context;
    return false;
}

static bool take_back(void *context) {
    (void)context;
    was_taken_back = true;
    return true;
}

static void a_call_in_a_threads_hands_outlives_its_deadline(void **state) {
    (void)state;
    api.settings.request_timeout_ms = 500;
    weft_api_call *call = in_hand("{\"prompt\":\"Once\"}", CALL_COMPLETION);
    weft_api_call_lend(call, take_back_not, NULL);
    assert_false(weft_api_call_is_late(call, now_us + 400000));
    assert_true(weft_api_call_is_late(call, now_us + 600000));
    weft_api_call_drop(call); /* its client was answered; the thread goes on writing to it */
    weft_api_call_prepare(call);
    weft_api_call_return(call, now_us + 600000); /* frees */
    assert_int_equal(n_wakes, 0);
    call = in_hand("{\"prompt\":\"Once\"}", CALL_COMPLETION);
    weft_api_call_lend(call, take_back, NULL);
    weft_api_call_drop(call); /* no thread had begun: gone at once */
    assert_true(was_taken_back);
    call = in_hand("{\"prompt\":\"Once\"}", CALL_COMPLETION);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us + 600000); /* came back too late */
    assert_int_equal(call->error.status, 504);
    assert_int_equal(api.upstream.n_open, 0);
    weft_api_call_drop(call);
}

/* Everything a request does, once; after any refusal the fixture's end finds nothing left over.
 * True when it came through to its end. */
static bool live_through(const weft_api_kind *kind, const char *json) {
    struct weft_buf body, out;
    weft_buf_init(&out, 1 << 20);
    weft_buf_init(&body, 1 << 20);
    weft_buf_add_str(&body, json);
    bool is_done = false;
    uint64_t held = weft_api_cost(&api, body.len);
    assert_true(weft_api_hold(&api, held));
    weft_api_call *call = new_call(&body, kind, NULL);
    if (!call) {
        weft_api_release(&api, held);
        weft_buf_fini(&body);
        return false;
    }
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    for (uint32_t i = 0; i < call->n_jobs && call->state < WEFT_API_CALL_DONE; i++) {
        struct job *job = &call->jobs[i];
        job->accepted = true;
        for (uint32_t k = 0; k < 3 && call->state < WEFT_API_CALL_DONE; k++) {
            static const uint32_t ids[] = {5};
            static const float values[] = {-1};
            struct weft_logprobs lps = {-1, 1, 1, ids, values};
            struct weft_event event = {.sampled = true,
                                       .token = 40 + k,
                                       .output_idx = k,
                                       .end = k == 2 ? WEFT_END_LENGTH : WEFT_END_NONE,
                                       .has_logprobs = true,
                                       .prompt_pos = 1,
                                       .n_prompt_logprobs = 1,
                                       .prompt_logprobs = &lps};
            event.logprobs = lps;
            job->upstream.ops->event(&job->upstream, &event, now_us);
        }
    }
    /* The second prompt's log-probabilities never all come, so its echo waits; the
     * first's does not. */
    while (call->state == WEFT_API_CALL_RUNNING &&
           weft_api_render_stream(call, &out, 256) == WEFT_API_RENDER_MORE) {
    }
    if (call->state == WEFT_API_CALL_DONE) {
        wefti_api_render_rewind(call);
        while (weft_api_render_body(call, &out, 256) == WEFT_API_RENDER_MORE) {
        }
        is_done = !out.failed;
    }
    weft_api_call_drop(call);
    weft_buf_fini(&out);
    weft_buf_fini(&body);
    return is_done;
}

static void expect_refusals_cost_nothing(const weft_api_kind *kind, const char *json) {
    bool is_through = false;
    uint32_t n = 0;
    while (!is_through) {
        refuse_at = ++n;
        is_through = live_through(kind, json);
        if (refuse_at == 0) is_through = false; /* it was hit, but perhaps not where it hurts */
        refuse_at = 0;
        assert_int_equal(api.held_bytes, 0);
        assert_int_equal(api.output_bytes, 0);
        assert_int_equal(api.upstream.n_open, 0);
        assert_true(n < 5000);
    }
    assert_true(n > 20);
    assert_true(live_through(kind, json));
}

static void a_refused_allocation_costs_one_request_and_nothing_else(void **state) {
    (void)state;
    expect_refusals_cost_nothing(CALL_COMPLETION,
                                 "{\"prompt\":[\"Once\",\"Twice\"],\"stream\":true,\"echo\":true,"
                                 "\"logprobs\":1,\"max_tokens\":3,\"stop\":[\"zz\"],"
                                 "\"allowed_token_ids\":[5,6],\"bad_words\":[\"Once\",\" a\"],"
                                 "\"dry_multiplier\":1,\"samplers\":[\"dry\",\"xtc\"],"
                                 "\"logit_bias\":{\"5\":1}}");
    expect_refusals_cost_nothing(
        CALL_LLAMA, "{\"prompt\":\"Once\",\"stream\":true,\"n_probs\":1,\"n_predict\":3,"
                    "\"stop\":[\"zz\"],\"logit_bias\":[[5,1],[6,false]]}");
}

static void the_same_of_responses_that_are_kept(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_int_equal(weft_api_set_template(&api, strdup(source), "hermes", &why), WEFT_OK);
    api.store = wefti_api_store_new(1 << 20, 1000000);
    static const char fields[] =
        "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},"
        "{\"type\":\"input_text\",\"text\":\"b\"}]},{\"type\":\"reasoning\",\"summary\":"
        "[{\"text\":\"c\"}]}],\"instructions\":\"d\",\"tools\":[{\"type\":\"function\",\"name\":"
        "\"f\"}],\"stream\":%s,\"stop\":[\"zz\"],\"max_output_tokens\":3,\"top_logprobs\":1,"
        "\"include\":[\"message.output_text.logprobs\"]}";
    static const char *const streams[] = {"true", "false"};
    for (size_t i = 0; i < 2; i++) {
        char json[640];
        (void)snprintf(json, sizeof json, fields, streams[i]);
        expect_refusals_cost_nothing(&wefti_api_kind_responses, json);
    }
    assert_true(wefti_api_store_figures(api.store).n > 0);
    wefti_api_store_free(api.store);
    weft_tmpl_free(api.chat);
    free(api.chat_source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(one_prompt_may_finish_before_another_is_accepted),
        CASE(a_deadline_ends_a_request_wherever_it_is),
        CASE(the_scheduler_hears_how_a_request_is_to_be_served),
        CASE(cached_tokens_are_counted_where_prompts_are_looked_up),
        CASE(a_clients_own_timeout_ends_its_request),
        CASE(the_likeliest_choices_are_shown_and_all_are_counted),
        CASE(a_request_that_cannot_be_computed_ends_with_an_error),
        CASE(a_request_from_before_the_model_was_known_is_asked_to_come_again),
        CASE(a_call_in_a_threads_hands_outlives_its_deadline),
        CASE(a_refused_allocation_costs_one_request_and_nothing_else),
        CASE(the_same_of_responses_that_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
