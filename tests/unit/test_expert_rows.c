/* The counts of experts on their way: worker, scheduler and router, each of which may restart.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "inside/cmd_worker/experts.h"
#include "proto/expert_rows.h"

/* The n-th allocation from now and all after it fail; 0: none. */
static uint64_t fail_at, n_allocations;

static bool may_take(void) {
    n_allocations++;
    return !fail_at || n_allocations < fail_at;
}

void *__real_malloc(size_t n_bytes);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_malloc(size_t n_bytes) {
    return may_take() ? __real_malloc(n_bytes) : NULL;
}
void *__real_calloc(size_t n, size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes) {
    return may_take() ? __real_calloc(n, n_bytes) : NULL;
}

enum { N_LAYERS = 3, N_EXPERTS = 2 };

/* The first layer is a plain one. */
static void start_worker(struct wefti_experts *worker, const char *mode) {
    bool has_experts[WEFT_LAYERS_MAX] = {false, true, true};
    struct weft_errmsg why;
    assert_int_equal(wefti_experts_init(worker, mode, N_LAYERS, N_EXPERTS, has_experts, &why),
                     WEFT_OK);
    wefti_experts_new_session(worker);
}

/* The stepper's copy, and its message. False: there is nothing to tell. */
static bool count(struct wefti_experts *worker, const uint64_t counts[N_LAYERS * N_EXPERTS],
                  struct weft_msg_experts *msg) {
    static uint64_t now_ms = 1000, n_steps;
    now_ms += WEFTI_EXPERTS_TELL_MS;
    n_steps++;
    assert_true(wefti_experts_ask(worker, n_steps, now_ms));
    memcpy(worker->counts, counts, N_LAYERS * N_EXPERTS * sizeof *counts);
    return wefti_experts_news(worker, msg);
}

static void tell(struct wefti_experts *worker, const uint64_t counts[N_LAYERS * N_EXPERTS],
                 struct weft_expert_rows *scheduler) {
    struct weft_msg_experts msg;
    struct weft_errmsg why;
    if (!count(worker, counts, &msg)) return;
    assert_int_equal(weft_expert_rows_add(scheduler, &msg, &why), WEFT_OK);
    wefti_experts_sent(worker);
}

static void pass_on(const struct weft_expert_rows *scheduler, struct weft_expert_rows *router) {
    struct weft_msg_experts msg = {scheduler->n_layers, scheduler->n_experts, scheduler->layers,
                                   scheduler->sums};
    assert_int_equal(weft_expert_rows_carry(router, &msg), WEFT_OK);
}

static void expect(const struct weft_expert_rows *rows, uint64_t a, uint64_t b, uint64_t c,
                   uint64_t d) {
    const uint64_t wanted[] = {a, b, c, d};
    assert_int_equal(rows->n_layers, 2);
    if (!rows->layers) {
        fail_msg("no layers");
        return;
    }
    assert_int_equal(rows->layers[0], 1);
    assert_int_equal(rows->layers[1], 2);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(rows->sums[i], wanted[i]);
}

static void layers_without_experts_are_not_told(void **state) {
    (void)state;
    struct wefti_experts worker;
    struct weft_expert_rows scheduler = {0};
    start_worker(&worker, "auto");
    tell(&worker, (uint64_t[]){0, 0, 0, 0, 0, 0}, &scheduler);
    expect(&scheduler, 0, 0, 0, 0);
    tell(&worker, (uint64_t[]){0, 0, 1, 2, 3, 0}, &scheduler);
    tell(&worker, (uint64_t[]){0, 0, 1, 9, 4, 7}, &scheduler);
    expect(&scheduler, 1, 9, 4, 7);
    wefti_experts_fini(&worker);
    weft_expert_rows_fini(&scheduler);
}

static void counts_go_on_where_a_worker_died(void **state) {
    (void)state;
    struct wefti_experts first, second;
    struct weft_expert_rows scheduler = {0}, router = {0};
    start_worker(&first, "auto");
    tell(&first, (uint64_t[]){0, 0, 10, 0, 4, 6}, &scheduler);
    pass_on(&scheduler, &router);
    start_worker(&second, "auto");
    tell(&second, (uint64_t[]){0, 0, 0, 0, 0, 0}, &scheduler);
    pass_on(&scheduler, &router);
    expect(&router, 10, 0, 4, 6);
    /* More and less than before: all of it is new. */
    tell(&second, (uint64_t[]){0, 0, 50, 1, 2, 0}, &scheduler);
    pass_on(&scheduler, &router);
    expect(&router, 60, 1, 6, 6);
    wefti_experts_fini(&first);
    wefti_experts_fini(&second);
    weft_expert_rows_fini(&scheduler);
    weft_expert_rows_fini(&router);
}

static void counts_go_on_where_a_scheduler_died(void **state) {
    (void)state;
    struct wefti_experts worker;
    struct weft_expert_rows first = {0}, second = {0}, router = {0};
    start_worker(&worker, "auto");
    tell(&worker, (uint64_t[]){0, 0, 10, 0, 4, 6}, &first);
    pass_on(&first, &router);
    wefti_experts_new_session(&worker);
    weft_expert_rows_new_source(&router);
    tell(&worker, (uint64_t[]){0, 0, 10, 0, 4, 6}, &second); /* nothing came since */
    pass_on(&second, &router);
    expect(&second, 0, 0, 0, 0);
    expect(&router, 10, 0, 4, 6);
    tell(&worker, (uint64_t[]){0, 0, 30, 1, 4, 8}, &second);
    pass_on(&second, &router);
    pass_on(&second, &router); /* a session that began anew */
    expect(&router, 30, 1, 4, 8);
    wefti_experts_fini(&worker);
    weft_expert_rows_fini(&first);
    weft_expert_rows_fini(&second);
    weft_expert_rows_fini(&router);
}

static void what_was_not_sent_is_told_with_the_next(void **state) {
    (void)state;
    struct wefti_experts worker;
    struct weft_expert_rows scheduler = {0};
    struct weft_msg_experts msg;
    start_worker(&worker, "auto");
    assert_true(count(&worker, (uint64_t[]){0, 0, 1, 1, 2, 0}, &msg));
    tell(&worker, (uint64_t[]){0, 0, 3, 1, 2, 2}, &scheduler);
    expect(&scheduler, 3, 1, 2, 2);
    wefti_experts_fini(&worker);
    weft_expert_rows_fini(&scheduler);
}

static void it_asks_once_a_second_and_only_after_steps(void **state) {
    (void)state;
    struct wefti_experts worker;
    struct weft_msg_experts msg;
    start_worker(&worker, "auto");
    assert_true(wefti_experts_ask(&worker, 0, 5000));  /* a session's first */
    assert_false(wefti_experts_ask(&worker, 1, 9000)); /* the stepper is at it */
    assert_true(wefti_experts_news(&worker, &msg));
    wefti_experts_sent(&worker);
    assert_false(wefti_experts_ask(&worker, 0, 9000)); /* no step */
    assert_true(wefti_experts_ask(&worker, 7, 9000));
    assert_false(wefti_experts_news(&worker, &msg)); /* steps, but nothing came of them */
    assert_false(wefti_experts_ask(&worker, 9, 9999));
    assert_true(wefti_experts_ask(&worker, 9, 10000));
    wefti_experts_unask(&worker); /* the stepper had no room */
    assert_false(wefti_experts_ask(&worker, 9, 10999));
    assert_true(wefti_experts_ask(&worker, 9, 11000));
    wefti_experts_fini(&worker);
}

static uint32_t n_series(const char *mode, uint32_t n_layers, uint32_t n_experts) {
    bool has_experts[WEFT_LAYERS_MAX];
    struct wefti_experts worker;
    struct weft_errmsg why;
    memset(has_experts, true, sizeof has_experts);
    assert_int_equal(wefti_experts_init(&worker, mode, n_layers, n_experts, has_experts, &why),
                     WEFT_OK);
    uint32_t n = worker.n_layers * worker.n_experts;
    wefti_experts_fini(&worker);
    return n;
}

static void the_mode_says_how_many_series_there_may_be(void **state) {
    (void)state;
    assert_int_equal(n_series("auto", 32, 128), 4096);
    assert_int_equal(n_series("auto", 33, 128), 0);
    assert_int_equal(n_series("on", 33, 128), 33 * 128);
    assert_int_equal(n_series("on", 256, 256), 65536);
    assert_int_equal(n_series("on", 257, 256), 0);
    assert_int_equal(n_series("off", 1, 8), 0);
    assert_int_equal(n_series("on", 32, 0), 0);
    struct wefti_experts none = {0};
    wefti_experts_new_session(&none);
    assert_false(wefti_experts_ask(&none, 1, 5000));
}

static void counts_of_another_model_are_refused_by_a_scheduler_and_new_to_a_router(void **state) {
    (void)state;
    static const uint32_t layers[] = {0, 1}, others[] = {1, 2};
    static const uint64_t values[] = {1, 2, 3, 4};
    struct weft_msg_experts msg = {2, 2, layers, values};
    struct weft_expert_rows scheduler = {0}, router = {0};
    struct weft_errmsg why;
    assert_int_equal(weft_expert_rows_add(&scheduler, &msg, &why), WEFT_OK);
    assert_int_equal(weft_expert_rows_carry(&router, &msg), WEFT_OK);
    const struct weft_msg_experts wrong[] = {
        {2, 2, others, values}, {1, 2, layers, values}, {2, 1, layers, values}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(weft_expert_rows_add(&scheduler, &wrong[i], &why), WEFT_E_PROTO);
        assert_int_equal(scheduler.sums[3], 4);
        assert_int_equal(weft_expert_rows_carry(&router, &wrong[i]), WEFT_OK);
        assert_int_equal(router.n_layers, wrong[i].n_layers);
        assert_int_equal(router.n_experts, wrong[i].n_experts);
        assert_int_equal(router.sums[0], 1);
    }
    weft_expert_rows_fini(&scheduler);
    weft_expert_rows_fini(&router);
}

static void no_counter_falls_whatever_comes(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    static const uint32_t layers[] = {0};
    struct weft_expert_rows scheduler = {0}, router = {0};
    struct weft_errmsg why;
    uint64_t before = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t value = weft_rand_next(&rand) >> weft_rand_below(&rand, 64);
        struct weft_msg_experts msg = {1, 1, layers, &value};
        assert_int_equal(weft_expert_rows_add(&scheduler, &msg, &why), WEFT_OK);
        assert_int_equal(weft_expert_rows_carry(&router, &msg), WEFT_OK);
        if (weft_rand_below(&rand, 4) == 0) weft_expert_rows_new_source(&router);
        assert_true(router.sums[0] >= before);
        before = router.sums[0];
    }
    assert_true(scheduler.sums[0] == UINT64_MAX); /* it stands still at the end */
    weft_expert_rows_fini(&scheduler);
    weft_expert_rows_fini(&router);
}

static void running_out_of_memory_is_an_error_and_passes(void **state) {
    (void)state;
    bool has_experts[WEFT_LAYERS_MAX] = {true};
    static const uint32_t layers[] = {0};
    static const uint64_t values[] = {7};
    struct weft_msg_experts msg = {1, 1, layers, values};
    struct wefti_experts worker;
    struct weft_expert_rows rows = {0};
    struct weft_errmsg why;
    for (uint64_t at = 1; at <= 4; at++) {
        n_allocations = 0;
        fail_at = at;
        weft_err err = wefti_experts_init(&worker, "on", 1, 1, has_experts, &why);
        n_allocations = 0;
        weft_err other = weft_expert_rows_add(&rows, &msg, &why);
        fail_at = 0;
        assert_int_equal(err, WEFT_E_NOMEM);
        assert_int_equal(worker.n_experts, 0);
        assert_int_equal(other, at <= 3 ? WEFT_E_NOMEM : WEFT_OK);
        assert_int_equal(rows.n_layers, at <= 3 ? 0 : 1);
    }
    weft_expert_rows_fini(&rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_without_experts_are_not_told),
        cmocka_unit_test(counts_go_on_where_a_worker_died),
        cmocka_unit_test(counts_go_on_where_a_scheduler_died),
        cmocka_unit_test(what_was_not_sent_is_told_with_the_next),
        cmocka_unit_test(it_asks_once_a_second_and_only_after_steps),
        cmocka_unit_test(the_mode_says_how_many_series_there_may_be),
        cmocka_unit_test(counts_of_another_model_are_refused_by_a_scheduler_and_new_to_a_router),
        cmocka_unit_test(no_counter_falls_whatever_comes),
        cmocka_unit_test(running_out_of_memory_is_an_error_and_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
