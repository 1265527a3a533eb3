#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "api/access.h"

#define NOW_MS 1769860800123u

static const struct weft_api_access completion = {
    .id = "abc",
    .method = "POST",
    .path = "/v1/completions",
    .path_len = 15,
    .status = 200,
    .total_us = 45678,
    .client = "127.0.0.1:4711",
    .key = "team b",
    .model = "fable-6m",
    .call = {.has_begun = true,
             .finish = "stop,length",
             .n_prompt = 12,
             .n_cached = 3,
             .n_output = 48,
             .queued_us = 1200,
             .first_us = 9000},
};

static struct weft_buf render(const struct weft_api_access *access,
                              enum weft_api_access_format format) {
    struct weft_buf out;
    weft_buf_init(&out, WEFT_API_ACCESS_LINE_BYTES_MAX);
    weft_api_access_line(access, format, NOW_MS, &out);
    assert_false(out.failed);
    assert_ptr_equal(memchr(out.data, '\n', out.len), out.data + out.len - 1); /* one line */
    return out;
}

static void text_is_one_line_of_names_and_values(void **state) {
    (void)state;
    struct weft_buf out = render(&completion, WEFT_API_ACCESS_TEXT);
    assert_string_equal(weft_buf_cstr(&out),
                        "2026-01-31T12:00:00.123Z INFO  router: access: id=abc method=POST "
                        "path=/v1/completions model=fable-6m status=200 finish=stop,length "
                        "tokens_in=12 tokens_cached=3 tokens_out=48 queue_ms=1.200 "
                        "first_token_ms=9.000 total_ms=45.678 client=127.0.0.1:4711 "
                        "key=\"team b\"\n");
    weft_buf_fini(&out);
}

static void json_is_an_object_with_numbers_and_nulls(void **state) {
    (void)state;
    struct weft_buf out = render(&completion, WEFT_API_ACCESS_JSON);
    json_t *line = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    assert_string_equal(json_string_value(json_object_get(line, "msg")), "access");
    assert_int_equal(json_integer_value(json_object_get(line, "tokens_out")), 48);
    assert_true(json_real_value(json_object_get(line, "first_token_ms")) == 9.0);
    json_decref(line);
    weft_buf_fini(&out);
    const struct weft_api_access probe = {.id = "x",
                                          .method = "GET",
                                          .path = "/health",
                                          .path_len = 7,
                                          .status = 200,
                                          .client = "",
                                          .key = ""};
    out = render(&probe, WEFT_API_ACCESS_JSON);
    line = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    static const char *const absent[] = {"model",    "finish",         "tokens_in", "tokens_out",
                                         "queue_ms", "first_token_ms", "client",    "key"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        assert_true(json_is_null(json_object_get(line, absent[i])));
    json_decref(line);
    weft_buf_fini(&out);
}

static void the_worst_that_clients_send_stays_one_line(void **state) {
    (void)state;
    char path[5000];
    struct weft_api_access access = completion;
    for (size_t i = 0; i < sizeof path; i++)
        path[i] = (char)(i % 7 ? i * 37 : '\n');
    access.path = path;
    access.path_len = sizeof path;
    char quotes[512];
    memset(quotes, '"', sizeof quotes - 1);
    quotes[sizeof quotes - 1] = '\0';
    access.model = access.id = access.client = quotes;
    for (int format = WEFT_API_ACCESS_TEXT; format <= WEFT_API_ACCESS_JSON; format++) {
        struct weft_buf out = render(&access, (enum weft_api_access_format)format);
        assert_true(out.len < WEFT_API_ACCESS_LINE_BYTES_MAX);
        if (format == WEFT_API_ACCESS_JSON) {
            json_t *line = json_loadb(out.data, out.len, 0, NULL);
            assert_non_null(line);
            json_decref(line);
        }
        weft_buf_fini(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_one_line_of_names_and_values),
        cmocka_unit_test(json_is_an_object_with_numbers_and_nulls),
        cmocka_unit_test(the_worst_that_clients_send_stays_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
