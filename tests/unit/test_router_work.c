#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "inside/router/work.h"

#define MIB (1u << 20)

static struct work_queue queue;

static int set_up(void **state) {
    (void)state;
    wefti_work_init(&queue, NULL, WEFT_WORK_LARGE_BYTES); /* nothing here gets as far as a thread */
    return 0;
}

static void finish(struct work *work) {
    queue.n_running--;
    if (work->is_large) queue.runs_large = false;
    work->place = WORK_IDLE;
}

static void the_shortest_of_those_that_came_together_goes_first(void **state) {
    (void)state;
    struct work jobs[3] = {0};
    wefti_work_put(&queue, &jobs[0], 900000, 5);
    wefti_work_put(&queue, &jobs[1], 20000, 5);
    wefti_work_put(&queue, &jobs[2], 400000, 5);
    assert_ptr_equal(wefti_work_take(&queue), &jobs[1]);
    assert_ptr_equal(wefti_work_take(&queue), &jobs[2]);
    assert_ptr_equal(wefti_work_take(&queue), &jobs[0]);
    assert_null(wefti_work_take(&queue));
}

static void one_large_job_runs_at_a_time_beside_small_ones(void **state) {
    (void)state;
    struct work large[3] = {0}, small[5] = {0};
    for (int i = 0; i < 3; i++)
        wefti_work_put(&queue, &large[i], 15 * MIB, 0);
    assert_ptr_equal(wefti_work_take(&queue), &large[0]);
    assert_null(wefti_work_take(&queue)); /* three threads stay free */
    for (int i = 0; i < 5; i++)
        wefti_work_put(&queue, &small[i], 20000, 1);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(wefti_work_take(&queue), &small[i]);
    assert_null(wefti_work_take(&queue)); /* all threads are taken */
    finish(&large[0]);
    assert_ptr_equal(wefti_work_take(&queue), &small[3]);
    finish(&small[0]);
    assert_ptr_equal(wefti_work_take(&queue), &small[4]);
    finish(&small[1]);
    assert_ptr_equal(wefti_work_take(&queue), &large[1]);
}

static void nobody_is_overtaken_for_ever(void **state) {
    (void)state;
    struct work large = {0}, small[1000] = {0};
    uint64_t now_ms = 0;
    int n_before = 0;
    wefti_work_put(&queue, &large, 2 * MIB, now_ms);
    for (;;) { /* small ones never cease to come */
        wefti_work_put(&queue, &small[n_before], 20000, now_ms);
        struct work *work = wefti_work_take(&queue);
        finish(work);
        if (work == &large) break;
        now_ms += 100;
        assert_true(++n_before < 1000);
    }
    assert_in_range(now_ms, 2 * MIB / WEFT_WORK_BYTES_PER_MS - 200,
                    2 * MIB / WEFT_WORK_BYTES_PER_MS + 200);
}

static void what_has_not_begun_can_be_taken_back(void **state) {
    (void)state;
    struct work jobs[4] = {0};
    for (int i = 0; i < 4; i++)
        wefti_work_put(&queue, &jobs[i], i == 3 ? 2 * MIB : 1000, 0);
    struct work *running = wefti_work_take(&queue);
    assert_false(wefti_work_cancel(running));
    assert_true(wefti_work_cancel(&jobs[1]));
    assert_false(wefti_work_cancel(&jobs[1]));
    assert_true(wefti_work_cancel(&jobs[3]));
    assert_ptr_equal(wefti_work_take(&queue), &jobs[2]);
    assert_null(wefti_work_take(&queue));
}

/* -------------------------------------------------------------------------------- in a loop --- */

struct counted {
    struct work work;
    int n_run, n_done;
};

static void on_run(struct work *work) {
    ((struct counted *)work)->n_run++;
}

static void on_done(struct work *work) {
    ((struct counted *)work)->n_done++;
}

static void every_job_is_run_once_and_then_reported(void **state) {
    (void)state;
    static struct counted jobs[50];
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    wefti_work_init(&queue, &loop, WEFT_WORK_LARGE_BYTES);
    for (uint32_t i = 0; i < 50; i++) {
        jobs[i].work.run = on_run;
        jobs[i].work.done = on_done;
        wefti_work_add(&queue, &jobs[i].work, i % 3 ? 20000 : 2 * MIB, i);
    }
    bool is_back = wefti_work_cancel(&jobs[48].work); /* a large one, far behind */
    assert_true(is_back);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(jobs[i].n_run, i != 48);
        assert_int_equal(jobs[i].n_done, i != 48);
    }
    assert_int_equal(queue.n_running, 0);
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(the_shortest_of_those_that_came_together_goes_first),
        CASE(one_large_job_runs_at_a_time_beside_small_ones),
        CASE(nobody_is_overtaken_for_ever),
        CASE(what_has_not_begun_can_be_taken_back),
        CASE(every_job_is_run_once_and_then_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
