/* What jansson may take of a thread's budget, and what finds no room in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "codec/json_budget.h"

/* A list of `n` times `value`. */
static json_t *list_of(const char *value, int n) {
    struct weft_buf text;
    weft_buf_init(&text, 1 << 20);
    weft_buf_add_char(&text, '[');
    for (int i = 0; i < n; i++) {
        weft_buf_add_str(&text, value);
        weft_buf_add_char(&text, i < n - 1 ? ',' : ']');
    }
    json_t *list = json_loadb(text.data, text.len, 0, NULL);
    weft_buf_fini(&text);
    return list;
}

static void what_fits_is_read_and_what_does_not_is_refused(void **state) {
    (void)state;
    weft_json_budget_begin(100000);
    json_t *list = list_of("123", 1000);
    assert_non_null(list);
    json_decref(list);
    assert_true(weft_json_budget_end());

    weft_json_budget_begin(100000);
    assert_null(list_of("{}", 1000)); /* the same bytes, and some 300 for each */
    assert_false(weft_json_budget_end());

    list = list_of("{}", 1000); /* nothing bounds it */
    assert_non_null(list);
    json_decref(list);
}

static void what_is_freed_has_room_again(void **state) {
    (void)state;
    weft_json_budget_begin(100000);
    for (int i = 0; i < 100; i++) {
        json_t *list = list_of("123", 1000);
        assert_non_null(list);
        json_decref(list);
    }
    assert_true(weft_json_budget_end());
}

static void what_was_there_before_gives_no_room(void **state) {
    (void)state;
    json_t *before = list_of("{}", 10000);
    weft_json_budget_begin(100000);
    json_decref(before);
    assert_null(list_of("{}", 1000));
    assert_false(weft_json_budget_end());
}

static void *read_much(void *unused) {
    (void)unused;
    json_t *list = list_of("{}", 1000);
    assert_non_null(list);
    json_decref(list);
    return NULL;
}

static void a_budget_is_one_threads(void **state) {
    (void)state;
    pthread_t thread;
    weft_json_budget_begin(1000);
    assert_int_equal(pthread_create(&thread, NULL, read_much, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(weft_json_budget_end());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_read_and_what_does_not_is_refused),
        cmocka_unit_test(what_is_freed_has_room_again),
        cmocka_unit_test(what_was_there_before_gives_no_room),
        cmocka_unit_test(a_budget_is_one_threads),
    };
    weft_json_budget_use();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
