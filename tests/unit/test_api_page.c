/* The page: its files, how they are sent, and what they are told of the server. */
#include <string.h>

#include "api_fixture.h"
#include "inside/api/http/page.h"

/* The answer to GET `path`; the caller frees it as weft_api_http_respond_with does. */
static struct weft_api_answer get(const char *path) {
    struct weft_api_http http;
    struct weft_api_answer answer = {0};
    const struct weft_api_moment moment = {.now_ms = now_us / 1000};
    char head[256];
    int n = snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);
    weft_api_http_init(&http, &api);
    assert_int_equal(weft_api_http_take(&http, head, (size_t)n, moment.now_ms), n);
    assert_int_equal(http.status, WEFT_API_HTTP_WHOLE);
    weft_api_http_answer(&http, &moment, &answer);
    weft_api_http_fini(&http);
    return answer;
}

static void drop(struct weft_api_answer *answer) {
    weft_buf_fini(&answer->body);
    weft_buf_fini(&answer->extra);
}

static const struct wefti_api_page_file *file_of(const char *path) {
    return wefti_api_find_page_file(&(struct weft_api_span){path, strlen(path)});
}

static void the_pages_files_come_with_their_type_and_what_protects_them(void **state) {
    (void)state;
    static const char *const headers[] = {
        "Content-Security-Policy: default-src 'none'; script-src 'self';",
        "frame-ancestors 'none'\r\n",
        "X-Content-Type-Options: nosniff\r\n",
        "Referrer-Policy: no-referrer\r\n",
        "Cache-Control: no-cache\r\n",
    };
    for (const struct wefti_api_page_file *file = wefti_api_page_files; file->name; file++) {
        char path[128];
        (void)snprintf(path, sizeof path, "/page/%s", file->name);
        struct weft_api_answer answer = get(path);
        assert_int_equal(answer.status, 200);
        assert_string_equal(answer.type, file->type);
        assert_true(file->n_bytes > 0);
        assert_int_equal(answer.body.len, file->n_bytes);
        assert_memory_equal(answer.body.data, file->bytes, file->n_bytes);
        for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
            assert_non_null(strstr(weft_buf_cstr(&answer.extra), headers[i]));
        drop(&answer);
    }
    assert_ptr_equal(file_of("/"), file_of("/page/index.html"));
    assert_string_equal(file_of("/")->type, "text/html; charset=utf-8");
    assert_string_equal(file_of("/page/page.js")->type, "text/javascript; charset=utf-8");
}

static void the_page_names_only_its_own_files_and_runs_nothing_inline(void **state) {
    (void)state;
    struct weft_api_answer answer = get("/");
    const char *html = weft_buf_cstr(&answer.body);
    static const char *const forbidden[] = {
        "<script>", "<style", " style=", " onclick=", " onload=", "http://", "https://"};
    for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++)
        assert_null(strstr(html, forbidden[i]));
    uint32_t n = 0;
    for (const char *at = html; (at = strstr(at, "\"/page/")) != NULL; n++) {
        char path[128] = "";
        at++;
        memcpy(path, at, strcspn(at, "\""));
        if (!file_of(path)) fail_msg("the page names %s", path);
    }
    assert_true(n >= 3);
    drop(&answer);
}

static void what_is_no_file_of_the_page_is_not_found(void **state) {
    (void)state;
    static const char *const paths[] = {"/page/x", "/page/index.html/", "/page/../page.css",
                                        "/page/index.htm", "/page/embed.cmake"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct weft_api_answer answer = get(paths[i]);
        assert_int_equal(answer.error.status, 404);
        drop(&answer);
    }
}

static json_t *settings(void) {
    struct weft_api_answer answer = get("/page/settings.json");
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.type, "application/json");
    assert_non_null(strstr(weft_buf_cstr(&answer.extra), "X-Content-Type-Options: nosniff\r\n"));
    json_t *json = json_loadb(answer.body.data, answer.body.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    drop(&answer);
    return json;
}

static const json_t *knob_of(const json_t *json, const char *name) {
    const json_t *list = json_object_get(json, "sampling"), *found = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(text_of(json_array_get(list, i), "name"), name) == 0)
            found = json_array_get(list, i);
    }
    assert_non_null(found);
    return found;
}

static double number_of(const json_t *object, const char *key) {
    assert_true(json_is_number(json_object_get(object, key)));
    return json_number_value(json_object_get(object, key));
}

static void the_page_is_told_the_servers_own_numbers(void **state) {
    (void)state;
    api.limits.defaults.temperature = 0.5;
    api.limits.defaults.max_new_tokens = 77;
    json_t *json = settings();
    assert_float_equal(number_of(knob_of(json, "temperature"), "default"), 0.5, 0);
    assert_float_equal(number_of(knob_of(json, "temperature"), "most"), 100, 0);
    assert_float_equal(number_of(knob_of(json, "repetition_penalty"), "default"), 1, 0);
    assert_true(json_is_true(json_object_get(knob_of(json, "top_k"), "is_whole")));
    assert_int_equal(number_of(json, "max_new_tokens"), 77);
    assert_int_equal(number_of(json, "max_logprobs"), 20);
    assert_true(json_is_false(json_object_get(json, "has_chat_template")));
    assert_true(json_is_false(json_object_get(json, "needs_key")));
    json_decref(json);
    assert_int_equal(weft_api_keys_add_lines(&api.keys, "secret", NULL), WEFT_OK);
    json = settings(); /* anybody may read them */
    assert_true(json_is_true(json_object_get(json, "needs_key")));
    json_decref(json);
    weft_api_keys_fini(&api.keys);
}

static void a_models_name_stays_a_text_whatever_is_in_it(void **state) {
    (void)state;
    static const char name[] = "\"</script><img src=x onerror=alert(1)>\\\n\x01{}\u2028";
    api.limits.model_name = name;
    json_t *json = settings();
    assert_string_equal(text_of(json, "model"), name);
    json_decref(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(the_pages_files_come_with_their_type_and_what_protects_them),
        CASE(the_page_names_only_its_own_files_and_runs_nothing_inline),
        CASE(what_is_no_file_of_the_page_is_not_found),
        CASE(the_page_is_told_the_servers_own_numbers),
        CASE(a_models_name_stays_a_text_whatever_is_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
