#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "collective/collective.h"
#include "harness/coll_cases.h"

enum { RANKS = 4, NEVER_MS = 0, SOON_MS = 100 };

/* A rank that is a thread. */
struct rank {
    weft_coll *coll;
    uint32_t idx;
    coll_case *run;
    weft_err err;
    struct weft_errmsg why;
    pthread_t handle;
    _Atomic bool is_there;
};

static void *rank_main(void *arg) {
    struct rank *rank = arg;
    rank->err = weft_coll_join(rank->coll, rank->idx, &rank->why);
    rank->is_there = true;
    if (!rank->err) rank->err = rank->run(rank->coll, rank->idx, &rank->why);
    return NULL;
}

static void start_rank(struct rank *rank, weft_coll *coll, uint32_t idx, coll_case *run) {
    *rank = (struct rank){.coll = coll, .idx = idx, .run = run};
    assert_int_equal(pthread_create(&rank->handle, NULL, rank_main, rank), 0);
}

static weft_coll *open_group(uint32_t n_ranks, uint32_t wait_ms_max) {
    int fd;
    weft_coll *coll;
    struct weft_errmsg why = {""};
    if (weft_coll_create(n_ranks, &fd, &why)) fail_msg("%s", why.text);
    if (weft_coll_open(fd, wait_ms_max, &coll, &why)) fail_msg("%s", why.text);
    (void)close(fd);
    if (weft_coll_reserve(coll, COLL_PART_BYTES, COLL_BOARD_BYTES, &why)) fail_msg("%s", why.text);
    assert_int_equal(weft_coll_n_ranks(coll), n_ranks);
    return coll;
}

static void run_all(weft_coll *coll, coll_case *run, weft_err want) {
    struct rank ranks[WEFT_COLL_RANKS_MAX];
    uint32_t n = weft_coll_n_ranks(coll);
    for (uint32_t i = 0; i < n; i++)
        start_rank(&ranks[i], coll, i, run);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(pthread_join(ranks[i].handle, NULL), 0);
        if (ranks[i].err != want) fail_msg("rank %u: %s", i, ranks[i].why.text);
    }
}

/* ------------------------------------------------------------------------------------ data --- */

static void parts_are_not_overwritten_while_they_are_read(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= WEFT_COLL_RANKS_MAX; n *= 2) {
        weft_coll *coll = open_group(n, NEVER_MS);
        run_all(coll, coll_sums, WEFT_OK);
        weft_coll_close(coll);
    }
}

static void everybody_gets_what_everybody_has(void **state) {
    (void)state;
    weft_coll *coll = open_group(RANKS, NEVER_MS);
    run_all(coll, coll_gathers, WEFT_OK);
    weft_coll_close(coll);
}

static void the_board_is_everybodys(void **state) {
    (void)state;
    weft_coll *coll = open_group(RANKS, NEVER_MS);
    run_all(coll, coll_boards, WEFT_OK);
    weft_coll_close(coll);
}

static void a_sum_of_one_segment_is_that_segment(void **state) {
    (void)state;
    weft_coll *coll = open_group(1, NEVER_MS);
    float x[3] = {-0.0f, 2.5f, -3.0f};
    assert_int_equal(weft_coll_all_reduce(coll, 0, x, 3, 1 << 6, NULL), WEFT_OK);
    assert_true(x[0] == 0 && 1 / x[0] < 0); /* nothing was added to it */
    assert_true(x[1] == 2.5f && x[2] == -3.0f);
    weft_coll_close(coll);
}

/* --------------------------------------------------------------------------------- endings --- */

static weft_err meet_once(weft_coll *coll, uint32_t idx, struct weft_errmsg *why) {
    return weft_coll_meet(coll, idx, NULL, why);
}

static weft_err meet_and_stay(weft_coll *coll, uint32_t idx, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    while (!err)
        err = weft_coll_meet(coll, idx, NULL, why);
    weft_coll_leave(coll, idx);
    return err;
}

static void who_waits_hears_that_the_group_was_ended(void **state) {
    (void)state;
    weft_coll *coll = open_group(RANKS, NEVER_MS);
    struct rank ranks[RANKS];
    for (uint32_t i = 1; i < RANKS; i++)
        start_rank(&ranks[i], coll, i, meet_and_stay);
    for (uint32_t i = 1; i < RANKS; i++) {
        while (!ranks[i].is_there)
            (void)usleep(100);
    }
    weft_coll_abort(coll);
    for (uint32_t i = 1; i < RANKS; i++) {
        assert_int_equal(pthread_join(ranks[i].handle, NULL), 0);
        assert_int_equal(ranks[i].err, WEFT_E_CLOSED);
        assert_string_equal(ranks[i].why.text, "the group was ended");
    }
    struct weft_errmsg why;
    assert_int_equal(weft_coll_join(coll, 0, &why), WEFT_OK);
    assert_int_equal(weft_coll_meet(coll, 0, NULL, &why),
                     WEFT_E_CLOSED); /* and whoever comes later */
    weft_coll_leave(coll, 0);
    weft_coll_close(coll);
}

static void the_rank_that_is_waited_for_is_known(void **state) {
    (void)state;
    weft_coll *coll = open_group(RANKS, NEVER_MS);
    struct rank ranks[RANKS];
    assert_int_equal(weft_coll_awaited(coll, 2), 2); /* nobody waits */
    for (uint32_t i = 0; i < RANKS; i++) {
        if (i != 3) start_rank(&ranks[i], coll, i, meet_once);
    }
    for (uint32_t i = 0; i < 3; i++) {
        while (weft_coll_awaited(coll, i) != 3) /* until it has come itself */
            (void)usleep(1000);
    }
    start_rank(&ranks[3], coll, 3, meet_once);
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(pthread_join(ranks[i].handle, NULL), 0);
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(weft_coll_awaited(coll, i), i);
    weft_coll_close(coll);
}

static void a_rank_that_never_comes_ends_the_group(void **state) {
    (void)state;
    weft_coll *coll = open_group(RANKS, SOON_MS);
    struct rank ranks[RANKS];
    uint32_t n_late = 0;
    for (uint32_t i = 0; i < RANKS; i++) {
        if (i != 2) start_rank(&ranks[i], coll, i, meet_once);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        if (i == 2) continue;
        assert_int_equal(pthread_join(ranks[i].handle, NULL), 0);
        /* All say the same, or that one who had given up was gone. */
        assert_true(ranks[i].err == WEFT_E_TIMEOUT || ranks[i].err == WEFT_E_CLOSED);
        n_late += ranks[i].err == WEFT_E_TIMEOUT;
    }
    assert_true(n_late > 0); /* the first to give up, at least */
    weft_coll_close(coll);
}

static void a_thread_that_ends_without_leaving_is_dead(void **state) {
    (void)state;
    weft_coll *coll = open_group(2, NEVER_MS);
    struct rank other;
    struct weft_errmsg why;
    assert_int_equal(weft_coll_join(coll, 0, &why), WEFT_OK);
    start_rank(&other, coll, 1, meet_once);
    assert_int_equal(weft_coll_meet(coll, 0, NULL, &why), WEFT_OK);
    assert_int_equal(pthread_join(other.handle, NULL), 0);
    assert_int_equal(other.err, WEFT_OK);
    assert_int_equal(weft_coll_meet(coll, 0, NULL, &why), WEFT_E_CLOSED);
    assert_string_equal(why.text, "rank 1 of the group has died");
    weft_coll_leave(coll, 0);
    weft_coll_close(coll);
}

static void who_waits_for_a_rank_that_left_hears_so(void **state) {
    (void)state;
    weft_coll *coll = open_group(2, NEVER_MS);
    struct rank other;
    struct weft_errmsg why;
    start_rank(&other, coll, 1, meet_and_stay);
    assert_int_equal(weft_coll_join(coll, 0, &why), WEFT_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(weft_coll_meet(coll, 0, NULL, &why), WEFT_OK);
    weft_coll_leave(coll, 0);
    assert_int_equal(pthread_join(other.handle, NULL), 0);
    assert_int_equal(other.err, WEFT_E_CLOSED);
    assert_string_equal(other.why.text, "rank 0 has left the group");
    weft_coll_close(coll);
}

/* A process of its own, which meets until it is killed or the group ends; exit status 0 then. */
static pid_t start_process(int fd, uint32_t idx, coll_case *run) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    weft_coll *coll;
    weft_err err = weft_coll_open(fd, NEVER_MS, &coll, NULL);
    if (!err) err = weft_coll_reserve(coll, 64, 64, NULL);
    if (!err) err = weft_coll_join(coll, idx, NULL);
    if (!err) err = run(coll, idx, NULL);
    weft_coll_close(coll);
    _exit(err == WEFT_E_CLOSED ? 0 : 1);
}

static void the_others_notice_a_killed_process(void **state) {
    (void)state;
    int fd, status;
    pid_t pids[RANKS];
    weft_coll *coll;
    struct weft_errmsg why = {""};
    assert_int_equal(weft_coll_create(RANKS, &fd, NULL), WEFT_OK);
    for (uint32_t i = 1; i < RANKS; i++)
        pids[i] = start_process(fd, i, meet_and_stay);
    assert_int_equal(weft_coll_open(fd, NEVER_MS, &coll, NULL), WEFT_OK);
    assert_int_equal(weft_coll_reserve(coll, 64, 64, NULL), WEFT_OK);
    assert_int_equal(weft_coll_join(coll, 0, NULL), WEFT_OK);
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; !err; i++) {
        err = weft_coll_meet(coll, 0, NULL, &why);
        if (i == 50) assert_int_equal(kill(pids[2], SIGKILL), 0);
    }
    assert_int_equal(err, WEFT_E_CLOSED);
    assert_string_equal(why.text, "rank 2 of the group has died");
    for (uint32_t i = 1; i < RANKS; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (i != 2) assert_int_equal(status, 0);
    }
    weft_coll_leave(coll, 0);
    weft_coll_close(coll);
    (void)close(fd);
}

/* Says that it is there by a meeting, then waits for something to do. */
static weft_err meet_and_take(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    struct weft_buf taken;
    weft_buf_init(&taken, 64);
    weft_err err = weft_coll_meet(coll, rank, NULL, why);
    if (!err) err = weft_coll_take(coll, rank, &taken, why);
    weft_buf_fini(&taken);
    return err;
}

static void the_idle_notice_a_killed_process(void **state) {
    (void)state;
    int fd, status;
    pid_t pids[RANKS];
    weft_coll *coll;
    assert_int_equal(weft_coll_create(RANKS, &fd, NULL), WEFT_OK);
    for (uint32_t i = 1; i < RANKS; i++)
        pids[i] = start_process(fd, i, meet_and_take);
    assert_int_equal(weft_coll_open(fd, NEVER_MS, &coll, NULL), WEFT_OK);
    assert_int_equal(weft_coll_reserve(coll, 64, 64, NULL), WEFT_OK);
    assert_int_equal(weft_coll_join(coll, 0, NULL), WEFT_OK);
    assert_int_equal(weft_coll_meet(coll, 0, NULL, NULL), WEFT_OK);
    (void)usleep(50 * 1000); /* time to begin to wait; the outcome is the same before it */
    assert_int_equal(kill(pids[RANKS - 1], SIGKILL), 0);
    for (uint32_t i = 1; i < RANKS; i++) { /* without rank 0, which has nothing to give */
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (i != RANKS - 1) assert_int_equal(status, 0);
    }
    weft_coll_leave(coll, 0);
    weft_coll_close(coll);
    (void)close(fd);
}

static void who_waits_for_nobody_may_ask_whether_all_live(void **state) {
    (void)state;
    int fd, status;
    weft_coll *coll;
    struct weft_errmsg why = {""};
    assert_int_equal(weft_coll_create(2, &fd, NULL), WEFT_OK);
    pid_t pid = start_process(fd, 1, meet_and_take);
    assert_int_equal(weft_coll_open(fd, NEVER_MS, &coll, NULL), WEFT_OK);
    assert_int_equal(weft_coll_reserve(coll, 64, 64, NULL), WEFT_OK);
    assert_int_equal(weft_coll_check(coll, 0, &why), WEFT_OK); /* it may have yet to come */
    assert_int_equal(weft_coll_join(coll, 0, NULL), WEFT_OK);
    assert_int_equal(weft_coll_meet(coll, 0, NULL, NULL), WEFT_OK);
    assert_int_equal(weft_coll_check(coll, 0, &why), WEFT_OK);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(weft_coll_check(coll, 0, &why), WEFT_E_CLOSED);
    assert_string_equal(why.text, "rank 1 of the group has died");
    weft_coll_leave(coll, 0);
    weft_coll_close(coll);
    (void)close(fd);
}

static void nobody_can_change_the_size_of_its_memory(void **state) {
    (void)state;
    int fd;
    weft_coll *coll;
    assert_int_equal(weft_coll_create(2, &fd, NULL), WEFT_OK);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(weft_coll_open(fd, NEVER_MS, &coll, NULL), WEFT_OK);
    assert_int_equal(weft_coll_reserve(coll, 64, 64, NULL), WEFT_OK);
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(ftruncate(fd, 1 << 20), -1);
    weft_coll_close(coll);
    (void)close(fd);
    fd = memfd_create("of-others", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(weft_coll_open(fd, NEVER_MS, &coll, NULL), WEFT_E_PROTO);
    (void)close(fd);
}

static void a_stopped_process_is_waited_for(void **state) {
    (void)state;
    int fd, status;
    weft_coll *coll;
    assert_int_equal(weft_coll_create(2, &fd, NULL), WEFT_OK);
    pid_t pid = start_process(fd, 1, meet_and_stay);
    assert_int_equal(weft_coll_open(fd, NEVER_MS, &coll, NULL), WEFT_OK);
    assert_int_equal(weft_coll_reserve(coll, 64, 64, NULL), WEFT_OK);
    assert_int_equal(weft_coll_join(coll, 0, NULL), WEFT_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(weft_coll_meet(coll, 0, NULL, NULL), WEFT_OK);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    pid_t waker = fork(); /* long after the waiter has looked whether it lives */
    assert_true(waker >= 0);
    if (waker == 0) {
        (void)usleep(300 * 1000);
        _exit(kill(pid, SIGCONT));
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(weft_coll_meet(coll, 0, NULL, NULL), WEFT_OK);
    assert_int_equal(waitpid(waker, &status, 0), waker);
    weft_coll_abort(coll);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    weft_coll_leave(coll, 0);
    weft_coll_close(coll);
    (void)close(fd);
}

/* -------------------------------------------------------------------------- given and taken --- */

static void what_the_first_rank_gives_all_others_take(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= WEFT_COLL_RANKS_MAX; n *= 2) {
        weft_coll *coll = open_group(n, NEVER_MS);
        run_all(coll, coll_gives, WEFT_OK);
        weft_coll_close(coll);
    }
}

static weft_err take_one(weft_coll *coll, uint32_t idx, struct weft_errmsg *why) {
    struct weft_buf taken;
    weft_buf_init(&taken, 100);
    weft_err err = weft_coll_take(coll, idx, &taken, why);
    weft_buf_fini(&taken);
    return err;
}

static void who_takes_waits_for_longer_than_others(void **state) {
    (void)state;
    struct rank taker;
    weft_coll *coll = open_group(2, 1);
    assert_int_equal(weft_coll_join(coll, 0, NULL), WEFT_OK);
    start_rank(&taker, coll, 1, take_one);
    while (!taker.is_there)
        (void)usleep(100);
    (void)usleep(SOON_MS * 1000);
    assert_int_equal(weft_coll_give(coll, "now", 3, NULL), WEFT_OK);
    assert_int_equal(pthread_join(taker.handle, NULL), 0);
    if (taker.err) fail_msg("%s", taker.why.text);
    weft_coll_close(coll);
}

static void more_than_one_may_take_ends_the_group(void **state) {
    (void)state;
    struct rank taker;
    weft_coll *coll = open_group(2, NEVER_MS);
    uint8_t bytes[101] = {0};
    assert_int_equal(weft_coll_join(coll, 0, NULL), WEFT_OK);
    start_rank(&taker, coll, 1, take_one);
    assert_int_equal(weft_coll_give(coll, bytes, sizeof bytes, NULL), WEFT_OK);
    assert_int_equal(pthread_join(taker.handle, NULL), 0);
    assert_int_equal(taker.err, WEFT_E_TOOBIG);
    assert_int_equal(weft_coll_meet(coll, 0, NULL, NULL), WEFT_E_CLOSED);
    weft_coll_close(coll);
}

static void pages_of_shared_memory_are_counted_once(void **state) {
    (void)state;
    weft_coll *coll = open_group(4, NEVER_MS);
    assert_int_equal(weft_coll_own_bytes(coll, 1000, 400), 2100);
    weft_coll_close(coll);
}

static void what_a_rank_tells_anybody_may_ask(void **state) {
    (void)state;
    weft_coll *coll = open_group(2, NEVER_MS);
    assert_int_equal(weft_coll_told(coll, 1, WEFT_COLL_FIGURES - 1), 0);
    weft_coll_tell(coll, 1, WEFT_COLL_FIGURES - 1, UINT64_MAX);
    weft_coll_tell(coll, 0, WEFT_COLL_FIGURES - 1, 7);
    assert_true(weft_coll_told(coll, 1, WEFT_COLL_FIGURES - 1) == UINT64_MAX);
    weft_coll_close(coll);
}

/* -------------------------------------------------------------------------------- refusals --- */

static void groups_of_other_sizes_are_refused(void **state) {
    (void)state;
    static const uint32_t sizes[] = {0, 3, 5, 6, 7, 9, 16, UINT32_MAX};
    int fd;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(weft_coll_create(sizes[i], &fd, NULL), WEFT_E_INVAL);
        assert_int_equal(fd, -1);
    }
}

static void a_rank_is_taken_once(void **state) {
    (void)state;
    weft_coll *coll = open_group(2, NEVER_MS);
    struct weft_errmsg why;
    assert_int_equal(weft_coll_join(coll, 1, &why), WEFT_OK);
    assert_int_equal(weft_coll_join(coll, 1, &why), WEFT_E_STATE);
    assert_string_equal(why.text, "rank 1 of the group was taken before");
    weft_coll_leave(coll, 1);
    assert_int_equal(weft_coll_join(coll, 1, &why), WEFT_E_STATE);
    weft_coll_close(coll);
}

static void ranks_of_different_models_are_told_so(void **state) {
    (void)state;
    int fd;
    weft_coll *a, *b;
    struct weft_errmsg why;
    assert_int_equal(weft_coll_create(2, &fd, NULL), WEFT_OK);
    assert_int_equal(weft_coll_open(fd, NEVER_MS, &a, NULL), WEFT_OK);
    assert_int_equal(weft_coll_open(fd, NEVER_MS, &b, NULL), WEFT_OK);
    assert_int_equal(weft_coll_reserve(a, 2020, 200, NULL), WEFT_OK);
    assert_int_equal(weft_coll_reserve(b, 3000, 200, &why), WEFT_E_STATE);
    assert_non_null(strstr(why.text, "differ in model or options"));
    assert_int_equal(weft_coll_reserve(b, 2020, 300, &why), WEFT_E_STATE);
    assert_int_equal(weft_coll_reserve(b, 2048, 256, NULL), WEFT_OK); /* rounded up */
    assert_int_equal(weft_coll_reserve(a, 2020, 200, NULL), WEFT_OK);
    assert_int_equal(weft_coll_reserve(a, 2020, 300, &why), WEFT_E_STATE);
    weft_coll_close(a);
    weft_coll_close(b);
    (void)close(fd);
}

#ifndef WITH_MPI
static void without_mpi_there_is_no_group_across_hosts(void **state) {
    (void)state;
    weft_coll *coll;
    struct weft_errmsg why;
    uint32_t rank;
    assert_int_equal(weft_coll_open_mpi(NEVER_MS, &coll, &rank, &why), WEFT_E_UNSUPPORTED);
    assert_string_equal(why.text, "this program was built without MPI (-DWEFT_MPI=ON)");
    assert_null(coll);
}
#endif

static void what_is_no_segment_is_refused(void **state) {
    (void)state;
    weft_coll *coll;
    int fd = memfd_create("other", MFD_CLOEXEC);
    assert_int_equal(weft_coll_open(fd, 0, &coll, NULL), WEFT_E_PROTO);
    assert_int_equal(ftruncate(fd, 1 << 16), 0);
    assert_int_equal(weft_coll_open(fd, 0, &coll, NULL), WEFT_E_PROTO);
    assert_null(coll);
    (void)close(fd);
    assert_int_equal(weft_coll_open(-1, 0, &coll, NULL), WEFT_E_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        /* Those that fork come first: no thread has run yet. */
        cmocka_unit_test(the_others_notice_a_killed_process),
        cmocka_unit_test(the_idle_notice_a_killed_process),
        cmocka_unit_test(who_waits_for_nobody_may_ask_whether_all_live),
        cmocka_unit_test(nobody_can_change_the_size_of_its_memory),
        cmocka_unit_test(a_stopped_process_is_waited_for),
        cmocka_unit_test(parts_are_not_overwritten_while_they_are_read),
        cmocka_unit_test(everybody_gets_what_everybody_has),
        cmocka_unit_test(the_board_is_everybodys),
        cmocka_unit_test(a_sum_of_one_segment_is_that_segment),
        cmocka_unit_test(who_waits_hears_that_the_group_was_ended),
        cmocka_unit_test(the_rank_that_is_waited_for_is_known),
        cmocka_unit_test(a_rank_that_never_comes_ends_the_group),
        cmocka_unit_test(a_thread_that_ends_without_leaving_is_dead),
        cmocka_unit_test(who_waits_for_a_rank_that_left_hears_so),
        cmocka_unit_test(what_the_first_rank_gives_all_others_take),
        cmocka_unit_test(who_takes_waits_for_longer_than_others),
        cmocka_unit_test(more_than_one_may_take_ends_the_group),
        cmocka_unit_test(pages_of_shared_memory_are_counted_once),
        cmocka_unit_test(what_a_rank_tells_anybody_may_ask),
        cmocka_unit_test(groups_of_other_sizes_are_refused),
        cmocka_unit_test(a_rank_is_taken_once),
        cmocka_unit_test(ranks_of_different_models_are_told_so),
#ifndef WITH_MPI
        cmocka_unit_test(without_mpi_there_is_no_group_across_hosts),
#endif
        cmocka_unit_test(what_is_no_segment_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
