/* What calls may hold, and what is given back: prompts in a list, bodies and ids, output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "codec/json_budget.h"
#include "unit/api_fixture.h"

static weft_api_call *begin_list(uint32_t n) {
    struct weft_buf json;
    weft_buf_init(&json, 1 << 16);
    for (uint32_t i = 0; i < n; i++)
        weft_buf_add_str(&json, i ? ",\"a\"" : "{\"prompt\":[\"a\"");
    weft_buf_add_str(&json, "]}");
    weft_api_call *call = begin(weft_buf_cstr(&json));
    weft_buf_fini(&json);
    return call;
}

static void a_list_may_be_as_long_as_what_runs_and_waits(void **state) {
    (void)state;
    static const uint32_t rows[][2] = {{1000000, 2048}, {1984, 2048}, {1000, 1064}, {1, 65}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        max_queue = rows[i][0];
        put_snapshot(true); /* 64 sequences at once */
        assert_int_equal(api.limits.max_prompts, rows[i][1]);
    }
    weft_api_call *call = begin_list(65);
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    weft_api_call_drop(call);
    call = begin_list(66);
    assert_int_equal(call->error.status, 400);
    assert_string_equal(call->error.message,
                        "'prompt' holds 66 prompts, at most 65 are allowed in one request");
    weft_api_call_drop(call);
    max_queue = 1000;
}

static void large_requests_pay_for_what_is_kept_of_them(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    weft_buf_add_str(&json, "{\"prompt\":\"");
    for (int i = 0; i < 30000; i++)
        weft_buf_add_str(&json, "a 1 ");
    weft_buf_add_str(&json, "\"}");
    weft_api_call *call = in_hand(weft_buf_cstr(&json), CALL_TOKENIZE);
    assert_int_equal(api.held_bytes, json.len);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    const uint64_t n_kept = api.held_bytes;
    assert_int_equal(n_kept, call->params.prompts[0].n_ids * sizeof(uint32_t));
    weft_api_call_drop(call);
    api.held_max = n_kept;
    assert_true(weft_api_hold(&api, 1000)); /* by others */
    call = in_hand(weft_buf_cstr(&json), CALL_TOKENIZE);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    assert_int_equal(call->error.status, 503);
    assert_true(call->error.retry_after_ms > 0);
    weft_api_call_drop(call);
    weft_api_call *small = in_hand("{\"prompt\":\"Once\"}", CALL_TOKENIZE); /* always has room */
    weft_api_call_prepare(small);
    weft_api_call_start(small, now_us);
    assert_int_equal(small->state, WEFT_API_CALL_DONE);
    weft_api_call_drop(small);
    weft_api_release(&api, 1000);
    api.held_max = n_kept - 1;
    call = in_hand(weft_buf_cstr(&json), CALL_TOKENIZE);
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    assert_int_equal(call->error.status, 413); /* there never will be so much room */
    assert_int_equal(call->error.retry_after_ms, 0);
    assert_int_equal(api.held_bytes, 0);
    weft_api_call_drop(call);
    weft_buf_fini(&json);
}

static void with_a_bound_on_all_requests_small_ones_pay_too(void **state) {
    (void)state;
    static const char body[] = "{\"prompt\":\"Once\"}";
    struct weft_api_state bounded;
    struct weft_api_settings settings = api.settings;
    settings.request_bytes = 1 << 20;
    weft_api_init(&bounded, &settings);
    assert_int_equal(bounded.held_max, 1 << 19);
    assert_int_equal(bounded.output_max, 1 << 19);
    assert_int_equal(weft_api_cost(&bounded, 5), 5);
    assert_int_equal(weft_api_cost(&api, 5), 0);
    weft_api_fini(&bounded);

    api.small_bytes = 0;
    weft_api_call *call = in_hand(body, CALL_TOKENIZE);
    assert_int_equal(api.held_bytes, strlen(body));
    weft_api_call_prepare(call);
    weft_api_call_start(call, now_us);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    assert_int_equal(api.held_bytes, call->params.prompts[0].n_ids * sizeof(uint32_t));
    weft_api_call_drop(call);
    assert_int_equal(api.held_bytes, 0);
    api.small_bytes = WEFT_API_SMALL_BYTES;
}

/* A call of a body with `n` times `value` in a field that nobody knows. */
static weft_api_call *prepare_list_of(const char *value, uint32_t n) {
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    weft_buf_add_str(&json, "{\"prompt\":\"Once\",\"extra\":[0");
    for (uint32_t i = 0; i < n; i++) {
        weft_buf_add_char(&json, ',');
        weft_buf_add_str(&json, value);
    }
    weft_buf_add_str(&json, "]}");
    weft_api_call *call = in_hand(weft_buf_cstr(&json), CALL_TOKENIZE);
    weft_buf_fini(&json);
    weft_api_call_prepare(call);
    return call;
}

static void values_that_take_many_times_their_bytes_are_refused(void **state) {
    (void)state;
    json_malloc_t old_malloc;
    json_free_t old_free;
    json_get_alloc_funcs(&old_malloc, &old_free);
    weft_json_budget_use();
    static const struct {
        const char *value;
        uint32_t n, status;
    } rows[] = {{"1234", 2000, 0}, {"{}", 2000, 413}, {"1234", 19000, 0}, {"{}", 19000, 413}};
    api.settings.request_bytes = 1 << 20; /* the first ones are short */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weft_api_call *call = prepare_list_of(rows[i].value, rows[i].n);
        assert_int_equal(call->error.status, rows[i].status);
        if (rows[i].status) assert_non_null(strstr(call->error.message, "too many values"));
        weft_api_call_drop(call);
    }
    api.settings.request_bytes = 0;
    json_set_alloc_funcs(old_malloc, old_free);
}

/* A call whose body is gzip: {"prompt":"aaa..."} of `n` bytes, of which it may have `max`. */
static weft_api_call *in_hand_packed(size_t n, size_t max) {
    struct weft_buf json, body;
    static unsigned char packed[1 << 16];
    weft_buf_init(&json, 1 << 20);
    weft_buf_init(&body, max);
    weft_buf_add_str(&json, "{\"prompt\":\"");
    while (json.len < n - 2)
        weft_buf_add_char(&json, json.len % 8 ? 'a' : ' ');
    weft_buf_add_str(&json, "\"}");
    z_stream z = {.next_in = (unsigned char *)json.data,
                  .avail_in = (unsigned)json.len,
                  .next_out = packed,
                  .avail_out = sizeof packed};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    weft_buf_add(&body, packed, sizeof packed - z.avail_out);
    (void)deflateEnd(&z);
    weft_buf_fini(&json);
    const struct weft_api_call_request request = {
        .kind = CALL_TOKENIZE, .body = &body, .is_gzip = true, .request_id = "r"};
    assert_true(weft_api_hold(&api, weft_api_cost(&api, body.len)));
    weft_api_call *call = weft_api_call_new(&api, &request);
    assert_non_null(call);
    return call;
}

/* To its end; how many steps it took. */
static uint32_t prepare_packed(weft_api_call *call) {
    uint32_t n_steps = 0;
    do {
        weft_api_call_prepare(call);
        assert_true(call->body.len <= call->body_room);
        n_steps++;
    } while (weft_api_call_make_room(call));
    return n_steps;
}

static void a_compressed_body_takes_room_as_it_grows(void **state) {
    (void)state;
    weft_api_call *call = in_hand_packed(100, 1 << 20);
    assert_int_equal(prepare_packed(call), 1);
    assert_int_equal(api.held_bytes, 0); /* a small one costs nothing */
    weft_api_call_drop(call);
    call = in_hand_packed(100000, 100000); /* just fits */
    assert_int_equal(prepare_packed(call), 5);
    assert_int_equal(call->error.status, 0);
    assert_int_equal(api.held_bytes, 100001);
    weft_api_call_drop(call);
    call = in_hand_packed(100001, 100000);
    (void)prepare_packed(call);
    assert_int_equal(call->error.status, 413);
    assert_string_equal(call->error.message,
                        "the body is larger than 100000 bytes once it is decompressed");
    weft_api_call_drop(call);
    api.held_max = 200000;
    call = in_hand_packed(500000, 1 << 20);
    (void)prepare_packed(call);
    assert_int_equal(call->error.status, 503);
    assert_true(api.held_bytes <= 200000);
    weft_api_call_drop(call);
    api.small_bytes = 0; /* with a bound on all requests the first step has no room for nothing */
    call = in_hand_packed(100, 1 << 20);
    uint64_t n_packed = api.held_bytes;
    weft_api_call_prepare(call);
    assert_int_equal(call->body.len, 0);
    assert_true(weft_api_call_make_room(call));
    assert_int_equal(api.held_bytes, n_packed + 8192);
    assert_int_equal(prepare_packed(call), 1);
    assert_int_equal(call->error.status, 0);
    weft_api_call_drop(call);
    assert_int_equal(api.held_bytes, 0);
    api.small_bytes = WEFT_API_SMALL_BYTES;
    call = in_hand_packed(50000, 1 << 20); /* dropped half-way */
    weft_api_call_prepare(call);
    assert_true(weft_api_call_make_room(call));
    weft_api_call_drop(call);
}

/* Renders what there is of a stream; every token's log-probability comes once, in order. */
static void expect_lps(weft_api_call *call, uint32_t *next, uint32_t end) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    while (weft_api_render_stream(call, &out, 64) == WEFT_API_RENDER_MORE) {
    }
    const char *key = "\"token_logprobs\":[";
    for (const char *at = weft_buf_cstr(&out); (at = strstr(at, key)); at++)
        assert_true(strtod(at + strlen(key), NULL) == -(double)(*next)++);
    assert_int_equal(*next, end);
    weft_buf_fini(&out);
}

/* Streams that run, and as many others as find room. */
static void with_a_bound_on_all_requests_what_was_admitted_has_all_it_may_need(void **state) {
    (void)state;
    uint64_t output_max = api.output_max;
    static const char *const bodies[] = {
        "{\"prompt\":\"Once\",\"stream\":true,\"max_tokens\":900}",
        "{\"prompt\":\"Once\",\"stream\":true,\"max_tokens\":100,\"logprobs\":2}"};
    api.settings.request_bytes = 1 << 16;
    api.small_bytes = 0;
    api.output_max = 1 << 15;
    weft_api_call *calls[2], *others[64];
    struct sent submits[2];
    for (int i = 0; i < 2; i++) {
        calls[i] = begin(bodies[i]);
        submits[i] = *last_sent();
        put_accepted(&submits[i]);
    }
    uint32_t n_others = 0, next = 0;
    do {
        assert_true(n_others < 64);
        others[n_others] = begin("{\"prompt\":\"Once\",\"max_tokens\":4,\"n\":2}");
    } while (others[n_others++]->state == WEFT_API_CALL_WAITING);
    assert_int_equal(others[n_others - 1]->error.status, 503);
    assert_true(n_others > 2);
    for (uint32_t n = 0; n < 900; n++)
        put_token(&submits[0], 0, n, 40, n == 899 ? WEFT_END_LENGTH : WEFT_END_NONE);
    for (uint32_t n = 0; n < 100; n++) { /* half of it is read before the rest comes */
        put_lp_token(&submits[1], 0, n, n == 99 ? WEFT_END_LENGTH : WEFT_END_NONE);
        if (n == 49) expect_lps(calls[1], &next, 50);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(calls[i]->state, WEFT_API_CALL_DONE);
    /* In MessagePack-RPC the packed result is held beside that. */
    const size_t n_left = api.output_max - calls[0]->output.held_bytes;
    assert_true(weft_api_call_result_fits(calls[0], n_left));
    assert_false(weft_api_call_result_fits(calls[0], n_left + 1));
    for (int i = 0; i < 2; i++)
        weft_api_call_drop(calls[i]);
    for (uint32_t i = 0; i < n_others; i++)
        weft_api_call_drop(others[i]);
    weft_api_call *greedy = begin("{\"prompt\":\"Once\",\"max_tokens\":900,\"n\":20}");
    assert_int_equal(greedy->error.status, 400); /* there never will be so much room */
    assert_non_null(strstr(greedy->error.message, "--request-memory"));
    weft_api_call_drop(greedy);
    assert_int_equal(api.output_bytes, 0);
    api.settings.request_bytes = 0;
    api.small_bytes = WEFT_API_SMALL_BYTES;
    api.output_max = output_max;
}

static void a_stream_that_is_read_holds_little(void **state) {
    (void)state;
    api.limits.max_logprob_bytes = 4096;
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true,\"logprobs\":2,"
                                "\"max_tokens\":900}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    uint32_t n = 0, next = 0;
    for (; n < 300; n++) { /* 8400 bytes, one at a time */
        put_lp_token(&submit, 0, n, WEFT_END_NONE);
        expect_lps(call, &next, n + 1);
        assert_true(call->output.logprob_bytes <= 2 * LP_BYTES);
    }
    for (uint32_t waiting = 100; waiting > 0; waiting /= 3) { /* in bursts */
        for (uint32_t i = 0; i < waiting; i++)
            put_lp_token(&submit, 0, n++, WEFT_END_NONE);
        assert_true(call->output.logprob_bytes >= waiting * LP_BYTES);
        struct weft_buf out;
        weft_buf_init(&out, 1 << 20);
        assert_true(next_chunk(call, &out)); /* the first of them, then the rest */
        assert_non_null(strstr(weft_buf_cstr(&out), "token_logprobs"));
        weft_buf_fini(&out);
        next++;
        expect_lps(call, &next, n);
    }
    put_link(false);
    put_link(true);
    assert_int_equal(last_sent()->n_output[0], n); /* the ids are all there */
    weft_api_call_drop(call);
}

static void memory_of_what_was_shown_is_given_back(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once\",\"stream\":true,\"logprobs\":20,"
                                "\"max_tokens\":900}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    uint64_t before = call->output.held_bytes;
    for (uint32_t i = 0; i < 200; i++)
        put_lp_token(&submit, 0, i, WEFT_END_NONE);
    assert_true(call->output.logprob_bytes >= 200 * 4 * (3 + 2 * 20));
    bool is_done;
    free(stream_text(call, &is_done));
    assert_true(call->output.logprob_bytes <= 4096);
    assert_int_equal(call->output.held_bytes, before + call->output.logprob_bytes +
                                                  call->choices[0].cap_tokens * sizeof(uint32_t));
    weft_api_call_drop(call);
}

static void an_echoed_prompt_is_let_go_when_every_choice_has_shown_it(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    weft_buf_add_str(&json, "{\"stream\":true,\"echo\":true,\"logprobs\":0,\"n\":2,"
                            "\"max_tokens\":3,\"prompt\":[10");
    for (int i = 1; i < 401; i++)
        weft_buf_add_str(&json, ",10");
    weft_buf_add_str(&json, "]}");
    weft_api_call *call = begin(weft_buf_cstr(&json));
    weft_buf_fini(&json);
    struct sent submit = *last_sent();
    put_accepted(&submit);
    const struct logprob_store *store = &call->jobs[0].prompt_lps;
    bool is_done;
    for (uint32_t pos = 1; pos < 401; pos += 8) {
        put_prompt_lps(&submit, 0, pos, 8);
        free(stream_text(call, &is_done));
    }
    assert_int_equal(store->n, 400);
    assert_int_equal(store->first, 0); /* the other choice will want them */
    assert_non_null(wefti_api_lp_entry(store, 0));
    put_token(&submit, 0, 0, 40, WEFT_END_NONE);
    put_token(&submit, 1, 0, 40, WEFT_END_NONE);
    free(stream_text(call, &is_done));
    assert_int_equal(store->n, 400);
    assert_int_equal(store->first, 400);
    assert_null(wefti_api_lp_entry(store, 399));
    assert_true(store->cap * 20 <= 4096);
    weft_api_call_drop(call);
}

static void drop_template(void) {
    weft_tmpl_free(api.chat);
    free(api.chat_source);
    api.chat = NULL;
    api.chat_source = NULL;
}

static void log_probabilities_are_bounded_where_they_are_held(void **state) {
    (void)state;
    struct weft_errmsg why;
    static const char template[] = "{% for message in messages %}{{'<|im_start|>' + "
                                   "message['role'] + '\n' + message['content'] + '<|im_end|>' + "
                                   "'\n'}}{% endfor %}{% if add_generation_prompt %}"
                                   "{{ '<|im_start|>assistant\n' }}{% endif %}";
    if (weft_api_set_template(&api, strdup(template), "auto", &why)) fail_msg("%s", why.text);
    api.limits.max_logprob_bytes = 100 * LP_BYTES; /* the context leaves room for many more */
    static const char *const fields[] = {"", ",\"stream\":true"};
    for (size_t i = 0; i < 2; i++) {
        weft_api_call *call = begin_chat(fields[i]);
        struct sent submit = *last_sent();
        assert_int_equal(call->state, WEFT_API_CALL_WAITING);
        assert_true(call->params.sampling.max_tokens > 900);
        put_accepted(&submit);
        uint32_t n = 0;
        while (call->state == WEFT_API_CALL_RUNNING && n < 900)
            put_lp_token(&submit, 0, n++, WEFT_END_NONE);
        assert_int_equal(n, 101); /* doubling to 128 is no reason */
        assert_int_equal(call->error.status, 400);
        assert_non_null(strstr(call->error.message, "2800 bytes of --max-logprob-bytes"));
        assert_int_equal(last_sent()->type, WEFT_MSG_CANCEL);
        if (i == 1) {
            struct weft_buf out;
            weft_buf_init(&out, 1 << 20);
            while (weft_api_render_stream(call, &out, 64) == WEFT_API_RENDER_MORE) {
            }
            assert_non_null(
                strstr(weft_buf_cstr(&out), "data: {\"error\":{\"message\":\"the log-"));
            weft_buf_fini(&out);
        }
        weft_api_call_drop(call);
    }
    weft_api_call *call = begin_chat(",\"max_tokens\":100");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    for (uint32_t n = 0; n < 100; n++)
        put_lp_token(&submit, 0, n, n == 99 ? WEFT_END_LENGTH : WEFT_END_NONE);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    weft_api_call_drop(call);
    call = begin_chat(",\"max_tokens\":101");
    assert_int_equal(call->error.status, 400);
    weft_api_call_drop(call);
    drop_template();
}

static void one_greedy_call_fails_and_small_ones_go_on(void **state) {
    (void)state;
    api.output_max = 150000; /* one of them may grow past 90000 */
    weft_api_call *small = begin("{\"prompt\":\"Once\",\"logprobs\":2,\"max_tokens\":900}");
    struct sent small_submit = *last_sent();
    put_accepted(&small_submit);
    weft_api_call *greedy[2];
    struct sent submits[2];
    for (int i = 0; i < 2; i++) {
        greedy[i] =
            begin("{\"prompt\":\"Once\",\"stream\":true,\"logprobs\":20,\"max_tokens\":950}");
        submits[i] = *last_sent();
        put_accepted(&submits[i]);
    }
    uint32_t n = 0;
    for (; greedy[1]->state == WEFT_API_CALL_RUNNING && n < 950; n++) {
        put_lp_token(&submits[0], 0, n, WEFT_END_NONE);
        put_lp_token(&submits[1], 0, n, WEFT_END_NONE);
        assert_true(api.output_bytes <= api.output_max);
    }
    assert_true(n < 950);
    assert_int_equal(greedy[0]->state, WEFT_API_CALL_RUNNING);
    assert_int_equal(greedy[1]->error.status, 503);
    assert_int_equal(greedy[1]->error.retry_after_ms, 1000);
    struct weft_buf out;
    weft_buf_init(&out, 4 << 20);
    while (weft_api_render_stream(greedy[1], &out, 64) == WEFT_API_RENDER_MORE) {
    }
    const char *at = strstr(weft_buf_cstr(&out), "data: {\"error\":{\"message\":\"the requests");
    assert_non_null(at);
    assert_non_null(strstr(at, "\"too_many_bytes\""));
    weft_buf_fini(&out);
    for (n = 0; n < 900; n++)
        put_lp_token(&small_submit, 0, n, n == 899 ? WEFT_END_LENGTH : WEFT_END_NONE);
    assert_int_equal(small->state, WEFT_API_CALL_DONE);
    assert_true(small->output.held_bytes <= WEFT_API_SMALL_BYTES);
    weft_api_call_drop(greedy[1]);
    for (n = greedy[0]->choices[0].n_tokens; n < 950; n++) { /* now there is room, if it reads */
        bool is_done;
        free(stream_text(greedy[0], &is_done));
        put_lp_token(&submits[0], 0, n, n == 949 ? WEFT_END_LENGTH : WEFT_END_NONE);
    }
    assert_int_equal(greedy[0]->state, WEFT_API_CALL_DONE);
    weft_api_call_drop(greedy[0]);
    weft_api_call_drop(small);
}

static void a_list_of_many_choices_costs_what_it_takes(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    weft_buf_add_str(&json, "{\"n\":8,\"max_tokens\":1,\"prompt\":[\"a\"");
    for (int i = 1; i < 512; i++)
        weft_buf_add_str(&json, ",\"a\"");
    weft_buf_add_str(&json, "]}");
    api.output_max = 100000;
    weft_api_call *call = begin(weft_buf_cstr(&json));
    assert_int_equal(call->error.status, 503);
    assert_int_equal(api.upstream.n_open, 0);
    weft_api_call_drop(call);
    weft_buf_fini(&json);
}

/* A request that begins with `json` and has as many stop strings as there may be, all as long. */
static void add_long_stops(struct weft_buf *json, const char *begin) {
    weft_buf_printf(json, "%s,\"stop\":[", begin);
    for (int i = 0; i < WEFT_STOP_STRINGS_MAX; i++) {
        weft_buf_add_str(json, i ? ",\"" : "\"");
        for (int k = 0; k < WEFT_STOP_STRING_BYTES_MAX; k++)
            weft_buf_add_char(json, (char)('a' + i % 26));
        weft_buf_add_char(json, '"');
    }
    weft_buf_add_str(json, "]}");
}

static void what_is_sure_to_be_held_is_refused_before_it_is_computed(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    api.output_max = 300000;
    weft_api_call *first = begin("{\"prompt\":\"Once\",\"logprobs\":20,\"max_tokens\":900}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    weft_api_call *second = begin("{\"prompt\":\"Once\",\"logprobs\":20,\"max_tokens\":900}");
    assert_int_equal(second->error.status, 503);
    assert_int_equal(api.upstream.n_open, 1);
    weft_api_call_drop(second);
    for (uint32_t i = 0; i < 900; i++)
        put_lp_token(&submit, 0, i, i == 899 ? WEFT_END_LENGTH : WEFT_END_NONE);
    assert_int_equal(first->state, WEFT_API_CALL_DONE);
    assert_int_equal(first->output.prepaid_bytes, 0);
    weft_api_call_drop(first);
    api.output_max = 80000;
    add_long_stops(&json, "{\"prompt\":\"Once\",\"max_tokens\":1");
    weft_api_call *stops = begin(weft_buf_cstr(&json)); /* 5 bytes for each of the 256 KiB */
    assert_int_equal(stops->error.status, 503);
    weft_api_call_drop(stops);
    assert_int_equal(api.output_bytes, 0);
    weft_buf_fini(&json);
}

static void every_choice_shares_the_compiled_stop_strings(void **state) {
    (void)state;
    struct weft_buf json;
    weft_buf_init(&json, 1 << 20);
    api.output_max = 4 << 20;
    add_long_stops(&json, "{\"prompt\":[\"Once\",\"Twice\"],\"n\":128,\"max_tokens\":3");
    weft_api_call *call = begin(weft_buf_cstr(&json));
    assert_int_equal(call->state, WEFT_API_CALL_WAITING);
    assert_int_equal(call->n_choices, 256);
    uint64_t plain = 2 * sizeof *call->jobs + 256 * sizeof *call->choices;
    /* The strings with their tables, 1,280 KiB, and 512 matchers with a word for each; one more
     * compiled for each of them would be 640 MiB. */
    assert_in_range(call->output.held_bytes - plain, 1280 << 10, 1440 << 10);
    assert_int_equal(api.output_bytes, call->output.held_bytes);
    weft_api_call_drop(call);
    weft_buf_fini(&json);
}

/* A body with `n` times `part` for a field's value; it is refused with this code. */
static void refuse_many(const char *part, uint32_t n, const char *code) {
    struct weft_buf json;
    weft_buf_init(&json, 16 << 20);
    weft_buf_add_str(&json, "{\"prompt\":\"a\",\"x\":[1");
    for (uint32_t i = 0; i < n; i++)
        weft_buf_add_str(&json, part);
    weft_api_call *call = begin(weft_buf_cstr(&json));
    assert_int_equal(call->error.status, 400);
    assert_string_equal(call->error.code, code);
    weft_api_call_drop(call);
    weft_buf_fini(&json);
}

static void a_body_is_refused_by_the_bound_that_it_breaks(void **state) {
    (void)state;
    api.held_max = 1 << 30;
    refuse_many(",[1", 62, "invalid_json"); /* 64 levels, and no end */
    refuse_many(",[1", 63, "nested_too_deep");
    refuse_many(",[1", 10000, "nested_too_deep");
    refuse_many(",1", (2 << 20) - 4, "invalid_json");
    refuse_many(",1", 2 << 20, "too_many_values");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_list_may_be_as_long_as_what_runs_and_waits),
        CASE(large_requests_pay_for_what_is_kept_of_them),
        CASE(with_a_bound_on_all_requests_small_ones_pay_too),
        CASE(values_that_take_many_times_their_bytes_are_refused),
        CASE(a_compressed_body_takes_room_as_it_grows),
        CASE(with_a_bound_on_all_requests_what_was_admitted_has_all_it_may_need),
        CASE(a_stream_that_is_read_holds_little),
        CASE(memory_of_what_was_shown_is_given_back),
        CASE(an_echoed_prompt_is_let_go_when_every_choice_has_shown_it),
        CASE(log_probabilities_are_bounded_where_they_are_held),
        CASE(one_greedy_call_fails_and_small_ones_go_on),
        CASE(a_list_of_many_choices_costs_what_it_takes),
        CASE(what_is_sure_to_be_held_is_refused_before_it_is_computed),
        CASE(every_choice_shares_the_compiled_stop_strings),
        CASE(a_body_is_refused_by_the_bound_that_it_breaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
