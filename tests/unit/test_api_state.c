/* What all requests share: whether the server can serve, and how it tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "api/api.h"

enum { SNAPSHOT_MS = 250, NOW_MS = 10000 };

static struct core serving_core(uint64_t snapshot_age_ms) {
    struct core core = {0};
    core.up.is_up = core.up.has_snapshot = true;
    core.up.snapshot.serving = core.up.snapshot.has_model = core.up.snapshot.advancing = true;
    core.up.snapshot_at_ms = NOW_MS - snapshot_age_ms;
    return core;
}

static void assert_says(const char *why, const char *wanted) {
    assert_non_null(why);
    assert_non_null(strstr(why, wanted));
}

static void health_misses_two_snapshots_and_no_single_one(void **state) {
    (void)state;
    struct core core = serving_core(2 * SNAPSHOT_MS + 50); /* the second may be on its way */
    assert_null(wefti_core_why_ill(&core, NOW_MS));
    core = serving_core(3 * SNAPSHOT_MS);
    assert_says(wefti_core_why_ill(&core, NOW_MS), "does not answer");
    core.up.snapshot_at_ms = NOW_MS; /* it goes on */
    assert_null(wefti_core_why_ill(&core, NOW_MS));
}

static void requests_are_taken_in_for_longer_than_health_is_good(void **state) {
    (void)state;
    struct core core = serving_core(3 * SNAPSHOT_MS);
    assert_null(wefti_core_why_not(&core, NOW_MS));
    core = serving_core(5 * SNAPSHOT_MS);
    assert_says(wefti_core_why_not(&core, NOW_MS), "does not answer");
}

static void a_worker_that_stands_still_is_ill_and_takes_requests(void **state) {
    (void)state;
    struct core core = serving_core(0);
    core.up.snapshot.advancing = false;
    assert_says(wefti_core_why_ill(&core, NOW_MS), "no progress");
    assert_null(wefti_core_why_not(&core, NOW_MS));
}

static void each_reason_not_to_serve_is_told(void **state) {
    (void)state;
    struct core core = serving_core(0);
    core.draining = true;
    assert_says(wefti_core_why_ill(&core, NOW_MS), "shutting down");
    core = serving_core(0);
    core.up.has_snapshot = false;
    assert_says(wefti_core_why_ill(&core, NOW_MS), "starting");
    core = serving_core(0);
    core.up.is_up = false;
    assert_says(wefti_core_why_ill(&core, NOW_MS), "restarting");
    core = serving_core(0);
    core.up.snapshot.draining = true;
    assert_says(wefti_core_why_ill(&core, NOW_MS), "scheduler is shutting down");
    core = serving_core(0);
    core.up.snapshot.serving = false;
    assert_says(wefti_core_why_ill(&core, NOW_MS), "being loaded");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(health_misses_two_snapshots_and_no_single_one),
        cmocka_unit_test(requests_are_taken_in_for_longer_than_health_is_good),
        cmocka_unit_test(a_worker_that_stands_still_is_ill_and_takes_requests),
        cmocka_unit_test(each_reason_not_to_serve_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
