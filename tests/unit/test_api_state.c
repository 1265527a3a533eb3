/* The state that all requests share: whether the server can serve, and how it says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "api/adapters.h"
#include "api/api.h"
#include "inside/api/names.h"

enum { SNAPSHOT_MS = 250, NOW_MS = 10000 };

static struct weft_api_state serving_state(uint64_t snapshot_age_ms) {
    struct weft_api_state api = {0};
    api.upstream.is_up = api.upstream.has_snapshot = true;
    api.upstream.snapshot.serving = api.upstream.snapshot.has_model =
        api.upstream.snapshot.advancing = true;
    api.upstream.snapshot_at_ms = NOW_MS - snapshot_age_ms;
    return api;
}

static void assert_says(const char *why, const char *wanted) {
    assert_non_null(why);
    assert_non_null(strstr(why, wanted));
}

static void health_misses_two_snapshots_and_no_single_one(void **state) {
    (void)state;
    struct weft_api_state api =
        serving_state(2 * SNAPSHOT_MS + 50); /* the second may be on its way */
    assert_null(weft_api_why_ill(&api, NOW_MS));
    api = serving_state(3 * SNAPSHOT_MS);
    assert_says(weft_api_why_ill(&api, NOW_MS), "does not answer");
    api.upstream.snapshot_at_ms = NOW_MS; /* it goes on */
    assert_null(weft_api_why_ill(&api, NOW_MS));
}

static void requests_are_taken_in_for_longer_than_health_is_good(void **state) {
    (void)state;
    struct weft_api_state api = serving_state(3 * SNAPSHOT_MS);
    assert_null(weft_api_why_not(&api, NOW_MS));
    api = serving_state(5 * SNAPSHOT_MS);
    assert_says(weft_api_why_not(&api, NOW_MS), "does not answer");
}

static void a_worker_that_stands_still_is_ill_and_takes_requests(void **state) {
    (void)state;
    struct weft_api_state api = serving_state(0);
    api.upstream.snapshot.advancing = false;
    assert_says(weft_api_why_ill(&api, NOW_MS), "no progress");
    assert_null(weft_api_why_not(&api, NOW_MS));
}

static void each_reason_not_to_serve_is_told(void **state) {
    (void)state;
    struct weft_api_state api = serving_state(0);
    api.draining = true;
    assert_says(weft_api_why_ill(&api, NOW_MS), "shutting down");
    api = serving_state(0);
    api.upstream.has_snapshot = false;
    assert_says(weft_api_why_ill(&api, NOW_MS), "starting");
    api = serving_state(0);
    api.upstream.is_up = false;
    assert_says(weft_api_why_ill(&api, NOW_MS), "restarting");
    api = serving_state(0);
    api.upstream.snapshot.draining = true;
    assert_says(weft_api_why_ill(&api, NOW_MS), "scheduler is shutting down");
    api = serving_state(0);
    api.upstream.snapshot.serving = false;
    assert_says(weft_api_why_ill(&api, NOW_MS), "being loaded");
}

static void tell_adapter(struct weft_api_state *api, uint32_t idx, const char *failure) {
    const struct weft_msg_lora told = {.id = api->adapters.all[idx]->id,
                                       .is_there = !failure,
                                       .digest = {1, idx + 1},
                                       .text = failure ? failure : ""};
    api->adapters.ops->told(api, 0, &told);
}

static void expect_unknown(const struct weft_api_state *api, int status) {
    struct weft_api_error error = {0};
    assert_false(wefti_api_is_model(&api->limits, "c", 1));
    wefti_api_no_such_model(&api->limits, "c", 1, &error);
    assert_int_equal(error.status, status);
    assert_int_equal(error.retry_after_ms > 0, status == 503);
    if (status == 404) assert_non_null(strstr(error.message, "'a', 'b'"));
}

static void nothing_is_served_before_adapters_of_the_command_line_are_there(void **state) {
    (void)state;
    struct weft_api_state api = serving_state(0);
    struct weft_errmsg why;
    struct weft_api_scheduler one = {.is_up = true};
    api.upstream.schedulers = &one;
    api.upstream.n_schedulers = 1;
    api.upstream.served_at_ms = NOW_MS; /* as in a router that took over */
    api.settings.restart_grace_ms = 1000;
    assert_int_equal(weft_api_adapters_begin(&api, "a=/a\nb=/b", false, &why), WEFT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_says(weft_api_why_not(&api, NOW_MS), "adapters are being loaded");
        assert_says(weft_api_why_ill(&api, NOW_MS), "adapters are being loaded");
        assert_false(weft_api_is_back_soon(&api, NOW_MS)); /* a request cannot be read yet */
        expect_unknown(&api, 503);
        tell_adapter(&api, i, NULL);
        tell_adapter(&api, i, NULL); /* counts once */
    }
    assert_null(weft_api_why_ill(&api, NOW_MS));
    assert_true(weft_api_is_back_soon(&api, NOW_MS));
    expect_unknown(&api, 404);
    tell_adapter(&api, 1, "its files are gone"); /* later: one name less */
    assert_null(weft_api_why_ill(&api, NOW_MS));
    wefti_api_adapters_fini(&api);
}

/* One of two is gone: the end of a first start, and a name less for a router that comes after. */
static void an_adapter_that_is_gone_ends_only_a_first_start(void **state) {
    (void)state;
    for (int have_served = 0; have_served < 2; have_served++) {
        struct weft_api_state api = serving_state(0);
        struct weft_api_scheduler one = {.is_up = true};
        struct weft_errmsg why;
        const char *failure = NULL;
        api.upstream.schedulers = &one;
        api.upstream.n_schedulers = 1;
        assert_int_equal(weft_api_adapters_begin(&api, "a=/a\nb=/b", have_served, &why), WEFT_OK);
        tell_adapter(&api, 1, "its files are gone");
        assert_false(weft_api_adapters_are_ready(&api, &failure));
        assert_int_equal(failure == NULL, have_served);
        tell_adapter(&api, 0, NULL);
        assert_true(weft_api_adapters_are_ready(&api, &failure));
        assert_int_equal(failure == NULL, have_served);
        assert_true(wefti_api_is_model(&api.limits, "a", 1) ||
                    wefti_api_adapter_find(api.limits.adapters, "a", 1));
        assert_null(wefti_api_adapter_find(api.limits.adapters, "b", 1));
        wefti_api_adapters_fini(&api);
    }
}

static void expect_names(const char *list, weft_err want, const char *const *names, uint32_t n) {
    struct weft_api_state api = {0};
    struct weft_errmsg why;
    assert_int_equal(weft_api_name_model(&api, list, &why), want);
    if (want == WEFT_OK) {
        assert_int_equal(api.limits.n_model_names, n);
        assert_string_equal(api.limits.model_name, names[0]);
        for (uint32_t i = 0; i < n; i++)
            assert_string_equal(api.limits.model_names[i], names[i]);
    }
    free(api.model_names_text);
}

static void a_model_has_the_names_of_a_list(void **state) {
    (void)state;
    static const char *const names[] = {"one", "a b", "c"};
    expect_names("one", WEFT_OK, names, 1);
    expect_names(" one , a b,c ,one", WEFT_OK, names, 3);
    expect_names("", WEFT_E_INVAL, NULL, 0);
    expect_names("a,,b", WEFT_E_INVAL, NULL, 0);
    expect_names("a, ", WEFT_E_INVAL, NULL, 0);
    expect_names("a,\xff", WEFT_E_INVAL, NULL, 0);
    expect_names("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", WEFT_E_TOOBIG, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(health_misses_two_snapshots_and_no_single_one),
        cmocka_unit_test(requests_are_taken_in_for_longer_than_health_is_good),
        cmocka_unit_test(a_worker_that_stands_still_is_ill_and_takes_requests),
        cmocka_unit_test(each_reason_not_to_serve_is_told),
        cmocka_unit_test(an_adapter_that_is_gone_ends_only_a_first_start),
        cmocka_unit_test(nothing_is_served_before_adapters_of_the_command_line_are_there),
        cmocka_unit_test(a_model_has_the_names_of_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
