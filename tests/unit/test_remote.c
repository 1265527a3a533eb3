/* Counting pages that lie on other nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <unistd.h>

#include "inside/cmd_worker/remote.h"
#include "proto/proto.h"

#define BASE ((uintptr_t)1 << 40) /* nothing is there, and nobody looks */

static struct wefti_remote remote;
static uint64_t n_asked;
static int refusal;

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

static uint64_t number_of(const void *page) {
    assert_int_equal((uintptr_t)page % page_bytes(), 0);
    return ((uintptr_t)page - BASE) / page_bytes();
}

/* Every fourth page is not resident; of the others those with numbers of 3 modulo 4 are on node 1. */
static int locate(void **pages, size_t n_pages, int *nodes_out) {
    assert_in_range(n_pages, 1, WEFTI_REMOTE_SLICE);
    for (size_t i = 0; i < n_pages; i++) {
        uint64_t n = number_of(pages[i]) % 4;
        nodes_out[i] = n == 0 ? -ENOENT : n == 3;
    }
    n_asked += n_pages;
    return refusal;
}

static void start(uint64_t home, uint64_t n_pages) {
    const struct weft_eng_region regions[] = {{(void *)BASE, (n_pages / 2) * page_bytes()},
                                              {(void *)(BASE + (n_pages / 2) * page_bytes()), 0},
                                              {(void *)(BASE + (n_pages / 2) * page_bytes()),
                                               (n_pages - n_pages / 2) * page_bytes() - 1}};
    wefti_remote_init(&remote, home, regions, 3, locate);
    n_asked = 0;
    refusal = 0;
}

/* Ticks as often as it wants, over a whole pass; returns the time after it. */
static uint64_t run_pass(uint64_t n_steps, uint64_t now_ms) {
    wefti_remote_tick(&remote, n_steps, now_ms);
    for (; remote.is_counting; wefti_remote_tick(&remote, n_steps, now_ms))
        now_ms += wefti_remote_wait_ms(&remote, 100);
    return now_ms;
}

static void all_pages_are_counted_where_there_are_few(void **state) {
    (void)state;
    start(1, 4000);
    assert_true(remote.n_remote == WEFT_PAGES_UNKNOWN);
    (void)run_pass(0, 5);
    assert_int_equal(n_asked, 4000);
    assert_int_equal(remote.n_remote, 1000);
    start(2, 4000); /* at home on node 1: those of node 0 are remote */
    (void)run_pass(0, 5);
    assert_int_equal(remote.n_remote, 2000);
    start(3, 4000);
    (void)run_pass(0, 5);
    assert_int_equal(remote.n_remote, 0);
}

static void of_many_some_stand_for_the_rest(void **state) {
    (void)state;
    const uint64_t n_pages = 1000003;
    start(1, n_pages);
    uint64_t now_ms = run_pass(1, 5);
    assert_in_range(n_asked, WEFTI_REMOTE_PAGES_MAX / 2, WEFTI_REMOTE_PAGES_MAX);
    assert_int_equal(remote.stride, 62);
    uint64_t sum = remote.n_remote;
    for (uint64_t i = 1; i < remote.stride; i++) { /* together they see every page once */
        now_ms = run_pass(1, now_ms + WEFTI_REMOTE_PAUSE_MS);
        sum += remote.n_remote;
    }
    assert_int_equal(n_asked, n_pages);
    assert_int_equal(sum, n_pages / 4 * remote.stride);
}

static void a_pass_follows_the_first_step_and_then_one_a_minute(void **state) {
    (void)state;
    start(1, 100);
    uint64_t now_ms = run_pass(0, 5);
    assert_int_equal(n_asked, 100);
    wefti_remote_tick(&remote, 0, now_ms + 1000);
    assert_int_equal(n_asked, 100);
    assert_int_equal(wefti_remote_wait_ms(&remote, 100), 100);
    wefti_remote_tick(&remote, 1, now_ms + 2000);
    assert_int_equal(n_asked, 200);
    wefti_remote_tick(&remote, 9, now_ms + 1000 + WEFTI_REMOTE_PAUSE_MS);
    assert_int_equal(n_asked, 200);
    wefti_remote_tick(&remote, 9, now_ms + 2000 + WEFTI_REMOTE_PAUSE_MS);
    assert_int_equal(n_asked, 300);
}

static void slices_leave_time_between_them(void **state) {
    (void)state;
    start(1, 2000);
    wefti_remote_tick(&remote, 0, 5);
    assert_int_equal(n_asked, WEFTI_REMOTE_SLICE);
    assert_int_equal(wefti_remote_wait_ms(&remote, 100), WEFTI_REMOTE_SLICE_MS);
    assert_int_equal(wefti_remote_wait_ms(&remote, 7), 7);
    wefti_remote_tick(&remote, 0, 5 + WEFTI_REMOTE_SLICE_MS - 1);
    assert_int_equal(n_asked, WEFTI_REMOTE_SLICE);
    wefti_remote_tick(&remote, 0, 5 + WEFTI_REMOTE_SLICE_MS);
    assert_int_equal(n_asked, 2 * WEFTI_REMOTE_SLICE);
    assert_true(remote.n_remote == WEFT_PAGES_UNKNOWN); /* until the pass is over */
}

static void a_worker_without_a_choice_counts_nothing(void **state) {
    (void)state;
    start(0, 4000);
    wefti_remote_tick(&remote, 1, 5);
    assert_int_equal(n_asked, 0);
    assert_int_equal(remote.n_remote, 0);
    assert_int_equal(wefti_remote_wait_ms(&remote, 100), 100);
}

static void a_refusal_ends_it(void **state) {
    (void)state;
    start(1, 4000);
    refusal = EPERM;
    wefti_remote_tick(&remote, 1, 5);
    assert_int_equal(n_asked, WEFTI_REMOTE_SLICE);
    wefti_remote_tick(&remote, 1, 5 + 2 * WEFTI_REMOTE_PAUSE_MS);
    assert_int_equal(n_asked, WEFTI_REMOTE_SLICE);
    assert_int_equal(wefti_remote_wait_ms(&remote, 100), 100);
    assert_true(remote.n_remote == WEFT_PAGES_UNKNOWN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pages_are_counted_where_there_are_few),
        cmocka_unit_test(of_many_some_stand_for_the_rest),
        cmocka_unit_test(a_pass_follows_the_first_step_and_then_one_a_minute),
        cmocka_unit_test(slices_leave_time_between_them),
        cmocka_unit_test(a_worker_without_a_choice_counts_nothing),
        cmocka_unit_test(a_refusal_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
