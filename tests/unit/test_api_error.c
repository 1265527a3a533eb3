#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "api/error.h"

static void errors_have_openai_s_shape(void **state) {
    (void)state;
    struct weft_api_error error = {0};
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_api_error_set(&error, 400, "n", NULL, "bad \"%d\"", 7);
    weft_api_error_set(&error, 500, NULL, NULL, "a second one does not replace the first");
    weft_api_error_json(&error, NULL, &out);
    assert_string_equal(
        weft_buf_cstr(&out),
        "{\"error\":{\"message\":\"bad \\\"7\\\"\",\"type\":\"invalid_request_error\","
        "\"param\":\"n\",\"code\":null}}");
    weft_buf_fini(&out);
}

static void memory_that_ran_out_is_told_from_other_failures(void **state) {
    (void)state;
    struct weft_api_error memory = {0}, grammar = {0}, bad = {0};
    weft_api_error_set(&memory, 500, NULL, NULL, "out of memory");
    weft_api_error_set(&grammar, 500, NULL, "grammar_failed", "no");
    weft_api_error_set(&bad, 400, "n", NULL, "bad");
    assert_true(weft_api_error_is_memory(&memory));
    assert_false(weft_api_error_is_memory(&grammar) || weft_api_error_is_memory(&bad));
}

static void expect_quoted(const char *bytes, size_t len, const char *want) {
    char out[16];
    weft_api_quote(bytes, len, out, sizeof out);
    assert_string_equal(out, want);
}

static void what_somebody_sent_is_quoted_whole_or_cut_between_characters(void **state) {
    (void)state;
    expect_quoted(NULL, 0, "");
    expect_quoted("a\0b\n", 4, "a\\u0000b\\n");
    expect_quoted("twelve bytes", 12, "twelve bytes");
    expect_quoted("thirteen byte", 13, "thirteen byt...");
    expect_quoted("eleven byte\xc3\xa9", 13, "eleven byte...");
    expect_quoted("0123456789\0", 11, "0123456789...");
    expect_quoted("a\xc3", 2, "a\xc3"); /* who writes it out knows what to do with that */
}

static void errors_below_api_have_ollama_s_shape(void **state) {
    (void)state;
    struct weft_api_error error = {0};
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_api_error_set(&error, 404, "model", "model_not_found", "no \"x\"");
    weft_api_error_write(&error, "id", "/api/chat", 9, &out);
    assert_string_equal(weft_buf_cstr(&out), "{\"error\":\"no \\\"x\\\"\",\"request_id\":\"id\"}");
    weft_buf_clear(&out);
    weft_api_error_write(&error, NULL, "/apis/chat", 10, &out);
    assert_memory_equal(weft_buf_cstr(&out), "{\"error\":{\"message\":", 20);
    weft_buf_fini(&out);
}

static void errors_of_messages_have_anthropic_s_shape(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *type;
    } cases[] = {
        {400, "invalid_request_error"},
        {401, "authentication_error"},
        {403, "permission_error"},
        {404, "not_found_error"},
        {405, "invalid_request_error"},
        {413, "request_too_large"},
        {415, "invalid_request_error"},
        {429, "rate_limit_error"},
        {431, "invalid_request_error"},
        {500, "api_error"},
        {501, "api_error"},
        {503, "overloaded_error"},
        {504, "timeout_error"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weft_api_error error = {0};
        struct weft_buf out;
        char want[240];
        weft_buf_init(&out, 1 << 16);
        weft_api_error_set(&error, cases[i].status, "model", "some_code", "no \"x\"");
        weft_api_error_write(&error, i % 2 ? "id" : NULL, "/v1/messages/x", i % 3 ? 12 : 14, &out);
        (void)snprintf(
            want, sizeof want,
            "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"no "
            "\\\"x\\\"\",\"details\":{\"error_code\":\"some_code\",\"param\":\"model\"}}%s}",
            cases[i].type, i % 2 ? ",\"request_id\":\"id\"" : "");
        assert_string_equal(weft_buf_cstr(&out), want);
        weft_buf_fini(&out);
    }
    assert_false(weft_api_error_is_anthropics("/v1/messages_", 13));
    assert_false(weft_api_error_is_anthropics("/v1/message", 11));
    assert_false(weft_api_error_is_anthropics(NULL, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_have_openai_s_shape),
        cmocka_unit_test(memory_that_ran_out_is_told_from_other_failures),
        cmocka_unit_test(what_somebody_sent_is_quoted_whole_or_cut_between_characters),
        cmocka_unit_test(errors_below_api_have_ollama_s_shape),
        cmocka_unit_test(errors_of_messages_have_anthropic_s_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
