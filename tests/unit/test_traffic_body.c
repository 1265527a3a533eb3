#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "traffic/body.h"

static json_t *make(bool is_chat, bool wants_ids, const char *extra, const char *history) {
    struct weft_traffic_body body;
    struct weft_errmsg why;
    struct weft_buf text, list;
    weft_buf_init(&text, 1 << 20);
    weft_buf_init(&list, 1 << 20);
    weft_buf_add_str(&list, history);
    assert_int_equal(weft_traffic_body_init(&body, is_chat, wants_ids, extra, &why), WEFT_OK);
    weft_traffic_add_body(&body, &list, 7, &text);
    json_t *json = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_object(json));
    weft_traffic_body_fini(&body);
    weft_buf_fini(&text);
    weft_buf_fini(&list);
    return json;
}

static void a_completion_is_greedy_and_streams(void **state) {
    (void)state;
    json_t *json = make(false, false, NULL, "1,2,3");
    assert_int_equal(json_array_size(json_object_get(json, "prompt")), 3);
    assert_int_equal(json_integer_value(json_object_get(json, "max_tokens")), 7);
    assert_true(json_is_true(json_object_get(json, "stream")));
    assert_true(json_is_true(json_object_get(json, "ignore_eos")));
    assert_null(json_object_get(json, "logprobs"));
    json_decref(json);
}

static void ids_are_asked_for_where_they_are_wanted(void **state) {
    (void)state;
    json_t *json = make(false, true, NULL, "1");
    assert_true(json_is_true(json_object_get(json, "return_tokens_as_token_ids")));
    assert_int_equal(json_integer_value(json_object_get(json, "logprobs")), 1);
    json_decref(json);
}

static void extra_fields_are_added_and_go_before_ours(void **state) {
    (void)state;
    json_t *json = make(true, false, "{\"user\": \"a\", \"max_tokens\": 3, \"temperature\": 0.5}",
                        "{\"role\":\"user\",\"content\":\"x\"}");
    assert_string_equal(json_string_value(json_object_get(json, "user")), "a");
    assert_int_equal(json_integer_value(json_object_get(json, "max_tokens")), 3);
    assert_true(json_real_value(json_object_get(json, "temperature")) == 0.5);
    assert_int_equal(json_array_size(json_object_get(json, "messages")), 1);
    json_decref(json);
}

static void what_is_no_object_of_fields_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",          "x", "[]", "{\"a\": 1, \"a\": 2}", "{\"stream\": false}", "{\"prompt\": 1}",
        "{\"n\": 2}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct weft_traffic_body body;
        struct weft_errmsg why = {""};
        assert_int_equal(weft_traffic_body_init(&body, false, false, texts[i], &why), WEFT_E_INVAL);
        assert_non_null(strstr(why.text, "--extra"));
        weft_traffic_body_fini(&body);
    }
}

static void answers_join_the_history(void **state) {
    (void)state;
    struct weft_traffic_body body = {.is_chat = false};
    struct weft_buf history, answer;
    weft_buf_init(&history, 1000);
    weft_buf_init(&answer, 1000);
    weft_buf_add_str(&history, "1,2");
    weft_buf_add_str(&answer, ",3,4");
    weft_traffic_add_answer(&body, &answer, &history);
    assert_string_equal(weft_buf_cstr(&history), "1,2,3,4");
    body.is_chat = true;
    weft_buf_clear(&history);
    weft_buf_clear(&answer);
    weft_buf_add_str(&history, "{}");
    weft_buf_add_str(&answer, "a\\n\\\"b");
    weft_traffic_add_answer(&body, &answer, &history);
    assert_string_equal(weft_buf_cstr(&history),
                        "{},{\"role\":\"assistant\",\"content\":\"a\\n\\\"b\"}");
    weft_buf_fini(&history);
    weft_buf_fini(&answer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_is_greedy_and_streams),
        cmocka_unit_test(ids_are_asked_for_where_they_are_wanted),
        cmocka_unit_test(extra_fields_are_added_and_go_before_ours),
        cmocka_unit_test(what_is_no_object_of_fields_is_refused),
        cmocka_unit_test(answers_join_the_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
