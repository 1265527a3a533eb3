/* Headers that say how, and for whom, a request is to be served, on their way to the scheduler; and
 * those that say why it was not. */
#include <stdio.h>
#include <string.h>

#include "api/http.h"
#include "api/rpc.h"
#include "unit/api_fixture.h"

static struct weft_api_http request_of(const char *method, const char *path, const char *lines) {
    struct weft_api_http http;
    char head[1024];
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n%s\r\n",
                     method, path, lines);
    weft_api_http_init(&http, &api);
    assert_int_equal(weft_api_http_take(&http, head, (size_t)n, now_us / 1000), n);
    weft_api_http_fini(&http);
    return http;
}

/* A request with these header lines. */
static struct weft_api_http head_of(const char *path, const char *lines) {
    return request_of("POST", path, lines);
}

static void headers_say_who_asks_and_how_soon(void **state) {
    (void)state;
    struct weft_api_http http = head_of("/v1/completions", "X-LLM-D-SLO-TTFT-MS: 200\r\n"
                                                           "x-llm-d-slo-tpot-ms: 12.5 \r\n"
                                                           "x-llm-d-inference-fairness-id: me\r\n");
    assert_int_equal(http.status, WEFT_API_HTTP_WHOLE);
    assert_int_equal(http.asks.ttft_us, 200000);
    assert_int_equal(http.asks.tpot_us, 12500);
    assert_true(http.asks.flow == weft_api_flow("me", 2));
    assert_true(http.asks.tenant == 0);
    http = head_of("/api/chat", "x-llm-d-slo-ttft-ms: 0\r\nx-llm-d-inference-fairness-id:\r\n");
    assert_int_equal(http.status, WEFT_API_HTTP_WHOLE);
    assert_true(http.asks.ttft_us == 0 && http.asks.flow == 0);
}

static void a_header_that_is_no_time_is_refused_by_name(void **state) {
    (void)state;
    static const char *const values[] = {
        "-1",       "soon",
        "86400001", "1e300",
        "nan",      "1 2",
        "0x10",     "1234567890123456789012345678901234567890123456789012345678901234567890"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char line[128];
        (void)snprintf(line, sizeof line, "x-llm-d-slo-tpot-ms: %s\r\n", values[i]);
        struct weft_api_http http = head_of("/completion", line);
        assert_int_equal(http.status, WEFT_API_HTTP_REFUSED);
        assert_int_equal(http.refusal.status, 400);
        assert_string_equal(http.refusal.param, "x-llm-d-slo-tpot-ms");
        assert_non_null(strstr(http.refusal.message, "milliseconds between 0 and 86400000"));
        http = head_of("/tokenize", line); /* nothing is served there */
        assert_int_equal(http.refusal.status, 0);
    }
}

static void the_name_of_a_user_is_bounded(void **state) {
    (void)state;
    char name[WEFT_API_USER_BYTES_MAX + 2], text[512];
    static const char *const fields[] = {"user", "fairness_id"};
    for (size_t len = WEFT_API_USER_BYTES_MAX; len < sizeof name; len++) {
        bool is_fine = len == WEFT_API_USER_BYTES_MAX;
        memset(name, 'u', len);
        name[len] = '\0';
        (void)snprintf(text, sizeof text, "x-llm-d-inference-fairness-id: %s\r\n", name);
        struct weft_api_http http = head_of("/v1/completions", text);
        assert_int_equal(http.refusal.status, is_fine ? 0 : 400);
        assert_true(http.asks.flow == (is_fine ? weft_api_flow(name, len) : 0));
        for (size_t i = 0; i < 2; i++) {
            (void)snprintf(text, sizeof text, "{\"prompt\":\"a\",\"%s\":\"%s\"}", fields[i], name);
            weft_api_call *call = begin(text);
            assert_int_equal(call->error.status, is_fine ? 0 : 400);
            assert_string_equal(call->error.param, is_fine ? "" : fields[i]);
            weft_api_call_drop(call);
        }
    }
}

/* Two may be a gateway's and a client's own: nobody can tell which one is meant. */
static void a_header_given_twice_is_refused(void **state) {
    (void)state;
    static const char *const names[] = {"x-llm-d-slo-ttft-ms", "x-llm-d-slo-tpot-ms",
                                        "x-llm-d-inference-fairness-id", "Authorization"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char lines[256], want[64];
        (void)snprintf(lines, sizeof lines, "%s: 1\r\nAccept: a\r\n%s: 1\r\n", names[i], names[i]);
        (void)snprintf(want, sizeof want, "two %s headers", names[i]);
        struct weft_api_http http = head_of("/v1/completions", lines);
        assert_int_equal(http.status, WEFT_API_HTTP_REFUSED);
        assert_int_equal(http.refusal.status, 400);
        assert_string_equal(http.refusal.code, "malformed_http");
        assert_string_equal(http.refusal.message, want);
    }
    struct weft_api_http http =
        head_of("/v1/completions", "X-Request-Id: a\r\nX-Request-Id: b\r\n");
    assert_int_equal(http.status, WEFT_API_HTTP_WHOLE); /* the last one counts */
}

/* Of two nobody can tell which one is meant, also where they say the same. */
static void a_field_of_the_query_given_twice_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *method, *path, *field; /* NULL: it is served */
    } asked[] = {
        {"POST", "/slots/0?action=save&action=erase", "action"},
        {"POST", "/slots/0?action=erase&x=1&action=erase", "action"},
        {"POST", "/slots/0?action&action=save", "action"},
        {"POST", "/slots/0?actions=save&action=save&xaction=erase", NULL},
        {"POST", "/slots/0?x=1&x=2&action=restore", NULL},
        {"GET", "/stats?stream=true&stream=false", "stream"},
        {"GET", "/stats?stream=true&live=1&live=2", NULL},
        {"GET", "/v1/files?limit=1&limit=2", "limit"},
        {"GET", "/v1/batches?after=a&after=b", "after"},
        {"POST", "/v1/completions?action=a&action=b", NULL}, /* whose query is ignored */
    };
    api.settings.keeps_batches = true;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        char want[64];
        struct weft_api_http http = request_of(asked[i].method, asked[i].path, "");
        assert_int_equal(http.refusal.status, asked[i].field ? 400 : 0);
        if (!asked[i].field) continue;
        (void)snprintf(want, sizeof want, "the query says '%s' more than once", asked[i].field);
        assert_string_equal(http.refusal.message, want);
        assert_string_equal(http.refusal.param, asked[i].field);
    }
    assert_ptr_equal(head_of("/slots/0?xaction=erase&action=save&actions=erase", "").route.kind,
                     &wefti_api_kind_slot_save);
    api.settings.keeps_batches = false;
}

static void a_key_says_who_pays(void **state) {
    (void)state;
    struct weft_api_keys keys = {0}, none = {0};
    assert_int_equal(weft_api_keys_add_lines(&keys, "one name=team weight=7\ntwo", NULL), WEFT_OK);
    uint64_t tenants[] = {keys.keys[0].tenant, keys.keys[1].tenant};
    weft_api_set_keys(&api, &keys);
    struct weft_api_http http = head_of("/v1/completions", "Authorization: Bearer one\r\n");
    assert_true(http.asks.tenant == tenants[0] && http.asks.weight == 7);
    http = head_of("/v1/completions", "Authorization: Bearer two\r\n");
    assert_true(http.asks.tenant == tenants[1] && http.asks.weight == 1);
    http = head_of("/v1/messages?beta=true", "x-api-key: one\r\n");
    assert_true(http.asks.tenant == tenants[0] && http.route.kind == &wefti_api_kind_messages);
    http = head_of("/v1/messages", "x-api-key: one\r\nAuthorization: Bearer two\r\n");
    assert_true(http.asks.tenant == tenants[1]);
    http = head_of("/v1/messages", "x-api-key: one\r\nAuthorization: Bearer three\r\n");
    assert_int_equal(http.refusal.status, 401);
    weft_api_set_keys(&api, &none);
}

static void who_is_no_admin_resets_nothing(void **state) {
    (void)state;
    struct weft_api_keys keys = {0}, none = {0};
    assert_int_equal(weft_api_keys_add_lines(&keys, "boss admin\nguest", NULL), WEFT_OK);
    weft_api_set_keys(&api, &keys);
    struct weft_api_http http = head_of("/reset_prefix_cache", "Authorization: Bearer guest\r\n");
    assert_int_equal(http.refusal.status, 403);
    assert_string_equal(http.refusal.code, "admins_only");
    http = head_of("/reset_prefix_cache", "Authorization: Bearer boss\r\n");
    assert_int_equal(http.status, WEFT_API_HTTP_WHOLE);
    http = head_of("/reset_prefix_cache", "");
    assert_int_equal(http.refusal.status, 401);
    http = head_of("/v1/completions", "Authorization: Bearer guest\r\n");
    assert_int_equal(http.refusal.status, 0);
    weft_api_set_keys(&api, &none);
    http = head_of("/reset_prefix_cache", "");
    assert_int_equal(http.status, WEFT_API_HTTP_WHOLE);
}

static void what_headers_say_goes_before_the_body(void **state) {
    (void)state;
    asker = (struct weft_api_asker){.tenant = 5, .weight = 3, .flow = 6, .ttft_us = 7};
    weft_api_call *call =
        begin("{\"prompt\":\"a\",\"user\":\"me\",\"slo_ttft_ms\":1,\"slo_tpot_ms\":2}");
    const struct sent *sent = last_sent();
    assert_true(sent->tenant == 5 && sent->weight == 3);
    assert_int_equal(sent->flow, 6);
    assert_int_equal(sent->ttft_us, 7);
    assert_int_equal(sent->tpot_us, 2000);
    weft_api_call_drop(call);
    asker = (struct weft_api_asker){0};
}

/* The salt that reaches the scheduler. */
static struct weft_digest salt_of(uint64_t tenant, const char *json) {
    asker = (struct weft_api_asker){.tenant = tenant, .weight = 1};
    weft_api_call *call = begin(json);
    struct weft_digest salt = last_sent()->cache_salt;
    weft_api_call_drop(call);
    asker = (struct weft_api_asker){0};
    return salt;
}

static bool is_same(struct weft_digest a, struct weft_digest b) {
    return a.hi == b.hi && a.lo == b.lo;
}

static void tenants_share_what_is_cached_unless_they_are_kept_apart(void **state) {
    (void)state;
    static const char plain[] = "{\"prompt\":\"a\"}",
                      salted[] = "{\"prompt\":\"a\",\"cache_salt\":\"s\"}";
    static const struct weft_digest no_salt = {0};
    struct weft_digest salt = salt_of(5, salted);
    assert_true(is_same(salt_of(5, plain), no_salt) && is_same(salt_of(6, salted), salt));
    api.settings.prefix_cache_per_key = true;
    const struct weft_digest apart[] = {
        no_salt,           salt, salt_of(5, plain), salt_of(6, plain), salt_of(5, salted),
        salt_of(6, salted)};
    for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++) {
        for (size_t k = 0; k < i; k++)
            assert_false(is_same(apart[i], apart[k]));
    }
    assert_true(is_same(salt_of(5, plain), apart[2]) && is_same(salt_of(6, salted), apart[5]));
    assert_true(is_same(salt_of(0, plain), no_salt)); /* without keys there is one tenant */
    assert_true(is_same(salt_of(0, salted), salt));
}

static void expect_refused(const struct weft_api_error *error, const char *want) {
    struct weft_api_http http;
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_api_http_init(&http, &api);
    weft_api_http_refuse(&http, error, 1, &out);
    if (!strstr(weft_buf_cstr(&out), want)) fail_msg("no \"%s\": %s", want, weft_buf_cstr(&out));
    weft_api_http_fini(&http);
    weft_buf_fini(&out);
}

static void a_refusal_says_when_to_come_again_and_why(void **state) {
    (void)state;
    struct weft_api_error error = {0};
    weft_api_error_set(&error, 429, NULL, "tenant_full", "no");
    error.retry_after_ms = 1001;
    expect_refused(&error, "\r\nRetry-After: 2\r\nretry-after-ms: 1001\r\n"
                           "x-llm-d-request-dropped-reason: tenant_full\r\n");
    expect_refused(&error, "\"code\":\"tenant_full\"");
    error.status = 503;
    error.retry_after_ms = UINT32_MAX;
    expect_refused(&error, "\r\nRetry-After: 4294968\r\nretry-after-ms: 4294967295\r\n");
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_api_rpc_refuse(1, &error, &out);
    static const char want[] = "no (reason: tenant_full, retry_after_ms: 4294967295)";
    assert_non_null(memmem(out.data, out.len, want, sizeof want - 1));
    weft_buf_clear(&out);
    error.code = NULL;
    weft_api_rpc_refuse(1, &error, &out);
    assert_non_null(memmem(out.data, out.len, "no (retry_after_ms: ", 20));
    weft_buf_fini(&out);
}

/* A head that does not end, of `n` bytes in pieces. */
static void begin_head(struct weft_api_http *http, size_t n) {
    static const char first[] = "POST / HTTP/1.1\r\nX: ";
    char piece[1000];
    memset(piece, 'a', sizeof piece);
    weft_api_http_init(http, &api);
    assert_int_equal(weft_api_http_take(http, first, sizeof first - 1, 1), sizeof first - 1);
    for (size_t i = 0; i < n && !http->refusal.status; i += sizeof piece)
        (void)weft_api_http_take(http, piece, sizeof piece, 1);
}

static void long_heads_cost_where_every_byte_does(void **state) {
    (void)state;
    struct weft_api_http some, more;
    const uint64_t had = api.held_bytes, had_max = api.held_max;
    begin_head(&some, 30000);
    assert_int_equal(api.held_bytes, had);
    weft_api_http_fini(&some);

    api.settings.request_bytes = 1 << 20;
    api.held_max = had + 40000;
    begin_head(&some, 4000);
    assert_int_equal(api.held_bytes, had);
    weft_api_http_fini(&some);
    begin_head(&some, 30000);
    assert_int_equal(some.refusal.status, 0);
    assert_int_equal(api.held_bytes, had + some.head.len);
    begin_head(&more, 30000);
    assert_int_equal(more.refusal.status, 503);
    weft_api_http_fini(&some);
    weft_api_http_fini(&more);
    assert_int_equal(api.held_bytes, had);
    begin_head(&more, 80000); /* of which there is room for 40000 */
    assert_int_equal(more.refusal.status, 503);
    weft_api_http_fini(&more);
    api.held_max = had + 100000;
    begin_head(&more, 80000);
    assert_int_equal(more.refusal.status, 431);
    weft_api_http_fini(&more);
    assert_int_equal(api.held_bytes, had);
    api.settings.request_bytes = 0;
    api.held_max = had_max;
}

static void the_cache_is_reset_where_a_scheduler_is_there(void **state) {
    (void)state;
    struct weft_api_http http;
    struct weft_api_answer answer = {0};
    const struct weft_api_moment moment = {.now_ms = now_us / 1000};
    static const char head[] = "POST /reset_prefix_cache HTTP/1.1\r\nHost: a\r\n\r\n";
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_api_http_init(&http, &api);
    assert_int_equal(weft_api_http_take(&http, head, sizeof head - 1, 1), sizeof head - 1);
    weft_api_http_answer(&http, &moment, &answer);
    assert_int_equal(answer.status, 200);
    assert_int_equal(answer.body.len, 0);
    assert_int_equal(last_sent()->type, WEFT_MSG_RESET_CACHE);
    weft_api_http_respond_with(&http, &answer, 1, &out);
    assert_non_null(strstr(weft_buf_cstr(&out), "Content-Length: 0\r\n\r\n"));

    const struct weft_api_rpc_request request = {.name = "reset_prefix_cache", .name_len = 18};
    struct weft_api_rpc_method method;
    struct weft_api_error error;
    assert_true(weft_api_rpc_find(&request, &method) && method.is_guarded && method.is_admins);
    weft_buf_clear(&out);
    weft_api_rpc_act(&api, &method, 7, &error, &out);
    assert_int_equal(out.len, 5);
    assert_memory_equal(out.data, "\x94\x01\x07\xc0\x80", 5);
    put_link(false);
    weft_buf_clear(&out);
    weft_api_rpc_act(&api, &method, 7, &error, &out);
    assert_true(error.status == 503 && error.retry_after_ms > 0 && out.len == 0);
    weft_api_http_answer(&http, &moment, &answer);
    assert_int_equal(answer.error.status, 503);
    weft_api_http_respond_with(&http, &answer, 1, &out);
    weft_api_http_fini(&http);
    weft_buf_fini(&out);
    put_link(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(headers_say_who_asks_and_how_soon),
        CASE(a_header_that_is_no_time_is_refused_by_name),
        CASE(the_name_of_a_user_is_bounded),
        CASE(a_header_given_twice_is_refused),
        CASE(a_field_of_the_query_given_twice_is_refused),
        CASE(a_key_says_who_pays),
        CASE(who_is_no_admin_resets_nothing),
        CASE(a_refusal_says_when_to_come_again_and_why),
        CASE(long_heads_cost_where_every_byte_does),
        CASE(the_cache_is_reset_where_a_scheduler_is_there),
        CASE(what_headers_say_goes_before_the_body),
        CASE(tenants_share_what_is_cached_unless_they_are_kept_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
