/* The table of adapters: when one is ready, what a worker is told, and when it goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "scheduler/adapters.h"

static const struct weft_digest none = {0, 0}, verse = {1, 2}, other = {3, 4};

static void setup(struct weft_sched_adapters *a, uint32_t n_groups) {
    assert_int_equal(weft_sched_adapters_init(a, n_groups), WEFT_OK);
}

static void ask(struct weft_sched_adapters *a, uint32_t router, uint64_t id) {
    struct weft_errmsg why;
    assert_int_equal(weft_sched_adapters_ask(a, router, id, &none, "/a", &why), WEFT_OK);
}

static void load(struct weft_sched_adapters *a, uint32_t group, uint64_t id) {
    bool fits = false;
    assert_non_null(weft_sched_adapters_loaded(a, group, id, &verse, 10, &fits));
    assert_true(fits);
}

static uint64_t told(struct weft_sched_adapters *a, uint32_t group) {
    const struct weft_sched_adapter *item = weft_sched_adapters_next(a, group);
    return item ? item->id : 0;
}

static uint64_t news(struct weft_sched_adapters *a, uint32_t *router) {
    const struct weft_sched_adapter *item = weft_sched_adapters_news(a, router);
    return item ? item->id : 0;
}

static void one_is_ready_when_all_workers_have_it(void **state) {
    (void)state;
    struct weft_sched_adapters a;
    uint32_t router = 99;
    setup(&a, 2);
    weft_sched_adapters_came(&a, 0);
    weft_sched_adapters_came(&a, 1);
    ask(&a, 3, 7);
    ask(&a, 255, 7);
    for (uint32_t group = 0; group < 2; group++) {
        assert_int_equal(told(&a, group), 7);
        assert_int_equal(told(&a, group), 0);
        assert_true(weft_sched_adapters_may_plan(&a, group)); /* what runs goes on */
        assert_int_equal(news(&a, &router), 0);
        load(&a, group, 7);
    }
    assert_int_equal(news(&a, &router), 7);
    assert_int_equal(router, 3);
    assert_int_equal(news(&a, &router), 7);
    assert_int_equal(router, 255);
    assert_int_equal(news(&a, &router), 0);
    ask(&a, 4, 7); /* it is there already */
    assert_int_equal(news(&a, &router), 7);
    assert_int_equal(router, 4);
    weft_sched_adapters_fini(&a);
}

static void a_worker_that_comes_anew_gets_no_plans_before_it_has_all(void **state) {
    (void)state;
    struct weft_sched_adapters a;
    setup(&a, 1);
    ask(&a, 0, 7);
    ask(&a, 0, 8);
    assert_int_equal(told(&a, 0), 0); /* nobody is there */
    weft_sched_adapters_came(&a, 0);
    assert_int_equal(told(&a, 0), 7);
    assert_int_equal(told(&a, 0), 8);
    ask(&a, 0, 9);
    assert_int_equal(told(&a, 0), 9);
    load(&a, 0, 7);
    load(&a, 0, 9); /* came later, and is not waited for */
    assert_false(weft_sched_adapters_may_plan(&a, 0));
    load(&a, 0, 8);
    assert_true(weft_sched_adapters_may_plan(&a, 0));
    weft_sched_adapters_went(&a, 0);
    weft_sched_adapters_came(&a, 0);
    assert_false(weft_sched_adapters_may_plan(&a, 0));
    for (uint64_t id = 7; id <= 9; id++)
        weft_sched_adapters_forget(&a, weft_sched_adapters_find(&a, id));
    assert_true(weft_sched_adapters_may_plan(&a, 0));
    weft_sched_adapters_fini(&a);
}

static void one_that_a_router_knows_is_waited_for_though_the_worker_came_first(void **state) {
    (void)state;
    struct weft_sched_adapters a;
    struct weft_errmsg why;
    setup(&a, 3);
    weft_sched_adapters_came(&a, 0);
    weft_sched_adapters_came(&a, 1);
    ask(&a, 0, 7); /* not known yet: no request names it */
    assert_int_equal(told(&a, 0), 7);
    load(&a, 0, 7);
    assert_true(weft_sched_adapters_may_plan(&a, 1));
    for (int i = 0; i < 2; i++)
        assert_int_equal(weft_sched_adapters_ask(&a, 1, 7, &verse, "/a", &why), WEFT_OK);
    assert_true(weft_sched_adapters_may_plan(&a, 0)); /* it has it */
    assert_true(weft_sched_adapters_may_plan(&a, 2)); /* nobody is there */
    assert_false(weft_sched_adapters_may_plan(&a, 1));
    assert_int_equal(told(&a, 1), 7);
    assert_false(weft_sched_adapters_may_plan(&a, 1));
    load(&a, 1, 7);
    assert_true(weft_sched_adapters_may_plan(&a, 1));
    assert_int_equal(weft_sched_adapters_ask(&a, 1, 8, &other, "/b", &why), WEFT_OK);
    assert_false(weft_sched_adapters_may_plan(&a, 0));
    weft_sched_adapters_forget(&a, weft_sched_adapters_find(&a, 8)); /* it cannot be loaded */
    assert_true(weft_sched_adapters_may_plan(&a, 0));
    weft_sched_adapters_fini(&a);
}

static void a_router_tells_what_an_adapter_was_that_another_one_asked_for(void **state) {
    (void)state;
    struct weft_sched_adapters a;
    struct weft_errmsg why;
    bool fits = true;
    setup(&a, 1);
    weft_sched_adapters_came(&a, 0);
    ask(&a, 0, 7);
    assert_int_equal(weft_sched_adapters_ask(&a, 1, 7, &other, "/a", &why), WEFT_OK);
    assert_int_equal(told(&a, 0), 7);
    assert_non_null(weft_sched_adapters_loaded(&a, 0, 7, &verse, 10, &fits));
    assert_false(fits);
    weft_sched_adapters_fini(&a);
}

static void another_content_in_its_place_is_noticed(void **state) {
    (void)state;
    struct weft_sched_adapters a;
    struct weft_errmsg why;
    bool fits = true;
    setup(&a, 1);
    weft_sched_adapters_came(&a, 0);
    ask(&a, 0, 7);
    assert_int_equal(told(&a, 0), 7);
    load(&a, 0, 7);
    assert_int_equal(weft_sched_adapters_ask(&a, 1, 7, &other, "/a", &why), WEFT_E_INVAL);
    assert_int_equal(weft_sched_adapters_ask(&a, 1, 7, &verse, "/b", &why), WEFT_E_INVAL);
    weft_sched_adapters_went(&a, 0);
    weft_sched_adapters_came(&a, 0);
    assert_int_equal(told(&a, 0), 7);
    assert_non_null(weft_sched_adapters_loaded(&a, 0, 7, &other, 10, &fits));
    assert_false(fits);
    assert_null(weft_sched_adapters_loaded(&a, 0, 1000, &other, 10, &fits));
    weft_sched_adapters_fini(&a);
}

static void one_that_nobody_asks_for_goes_after_a_while(void **state) {
    (void)state;
    struct weft_sched_adapters a;
    uint64_t later = 1000 + WEFT_SCHED_ADAPTER_GRACE_US;
    setup(&a, 1);
    ask(&a, 0, 7);
    ask(&a, 1, 7);
    weft_sched_adapters_unask(&a, 0, 7, 1000);
    assert_null(weft_sched_adapters_unwanted(&a, NULL, 2 * later)); /* the other one does */
    weft_sched_adapters_unask(&a, 1, UINT64_MAX, 1000);
    assert_null(weft_sched_adapters_unwanted(&a, NULL, later - 1));
    assert_non_null(weft_sched_adapters_unwanted(&a, NULL, later));
    ask(&a, 1, 7);
    assert_null(weft_sched_adapters_unwanted(&a, NULL, 2 * later));
    weft_sched_adapters_unask(&a, 1, 7, later); /* it says so */
    assert_non_null(weft_sched_adapters_unwanted(&a, NULL, later));
    weft_sched_adapters_fini(&a);
}

static void salts_tell_adapters_strengths_and_orders_apart(void **state) {
    (void)state;
    static const struct weft_step_adapter lists[][2] = {
        {{7, 1.0f, 0}, {8, 1.0f, 0}}, {{8, 1.0f, 0}, {7, 1.0f, 0}}, {{7, 0.5f, 0}, {8, 1.0f, 0}}};
    struct weft_sched_adapters a;
    struct weft_errmsg why;
    struct weft_digest seen[8];
    uint32_t n = 0;
    setup(&a, 1);
    weft_sched_adapters_came(&a, 0);
    assert_int_equal(weft_sched_adapters_ask(&a, 0, 7, &verse, "/a", &why), WEFT_OK);
    assert_int_equal(weft_sched_adapters_ask(&a, 0, 8, &other, "/b", &why), WEFT_OK);
    for (size_t i = 0; i < 6; i++) {
        struct weft_submit submit = {.n_adapters = 1 + (uint32_t)(i % 2), .adapters = lists[i / 2]};
        assert_int_equal(weft_sched_adapters_salt(&a, &submit, &why), WEFT_OK);
        seen[n++] = submit.cache_salt;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < i; k++)
            assert_true(seen[i].hi != seen[k].hi || seen[i].lo != seen[k].lo);
    }
    struct weft_submit plain = {.n_adapters = 0}, unknown = {.n_adapters = 1};
    static const struct weft_step_adapter nobody = {99, 1.0f, 0};
    unknown.adapters = &nobody;
    assert_int_equal(weft_sched_adapters_salt(&a, &plain, &why), WEFT_OK);
    assert_true((plain.cache_salt.hi | plain.cache_salt.lo) == 0);
    assert_int_equal(weft_sched_adapters_salt(&a, &unknown, &why), WEFT_E_INVAL);
    weft_sched_adapters_fini(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_ready_when_all_workers_have_it),
        cmocka_unit_test(a_worker_that_comes_anew_gets_no_plans_before_it_has_all),
        cmocka_unit_test(one_that_a_router_knows_is_waited_for_though_the_worker_came_first),
        cmocka_unit_test(a_router_tells_what_an_adapter_was_that_another_one_asked_for),
        cmocka_unit_test(another_content_in_its_place_is_noticed),
        cmocka_unit_test(one_that_nobody_asks_for_goes_after_a_while),
        cmocka_unit_test(salts_tell_adapters_strengths_and_orders_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
