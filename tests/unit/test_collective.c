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

enum { RANKS = 4, WIDTH = 333, MEETINGS = 2000, NEVER_MS = 0, SOON_MS = 100 };

/* A rank that is a thread. */
struct rank {
    weft_coll *coll;
    uint32_t idx;
    weft_err (*run)(struct rank *rank);
    weft_err err;
    struct weft_errmsg why;
    pthread_t handle;
    _Atomic bool is_there;
};

static void *rank_main(void *arg) {
    struct rank *rank = arg;
    rank->err = weft_coll_join(rank->coll, rank->idx, &rank->why);
    rank->is_there = true;
    if (!rank->err) rank->err = rank->run(rank);
    return NULL;
}

static void start_rank(struct rank *rank, weft_coll *coll, uint32_t idx,
                       weft_err (*run)(struct rank *rank)) {
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
    if (weft_coll_reserve(coll, WIDTH * sizeof(float), 64, &why)) fail_msg("%s", why.text);
    assert_int_equal(weft_coll_n_ranks(coll), n_ranks);
    return coll;
}

static void run_all(weft_coll *coll, weft_err (*run)(struct rank *rank), weft_err want) {
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

/* Writes anew as soon as it may; the sums show whether anybody still read. */
static weft_err sum_again_and_again(struct rank *rank) {
    weft_err err = WEFT_OK;
    uint32_t n_ranks = weft_coll_n_ranks(rank->coll);
    for (uint32_t round = 0; round < MEETINGS && !err; round++) {
        float *part = weft_coll_part(rank->coll, rank->idx), sums[WIDTH];
        for (uint32_t i = 0; i < WIDTH; i++)
            part[i] = (float)(rank->idx + round + i);
        const struct weft_coll_wrote wrote = {.part_bytes = sizeof sums};
        err = weft_coll_meet(rank->coll, rank->idx, &wrote, &rank->why);
        if (err) break;
        weft_coll_sum(rank->coll, rank->idx, &(struct weft_coll_span){0, WIDTH, 0xff}, sums);
        for (uint32_t i = 0; i < WIDTH; i++)
            WEFT_ASSERT(sums[i] == (float)(n_ranks * (round + i) + n_ranks * (n_ranks - 1) / 2));
    }
    weft_coll_leave(rank->coll, rank->idx);
    return err;
}

static void parts_are_not_overwritten_while_they_are_read(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= WEFT_COLL_RANKS_MAX; n *= 2) {
        weft_coll *coll = open_group(n, NEVER_MS);
        run_all(coll, sum_again_and_again, WEFT_OK);
        weft_coll_close(coll);
    }
}

static weft_err gather(struct rank *rank) {
    uint8_t own[5], all[RANKS][5];
    weft_err err = WEFT_OK;
    for (uint8_t round = 0; round < 20 && !err; round++) {
        memset(own, (int)rank->idx + 10 * round, sizeof own);
        err = weft_coll_all_gather(rank->coll, rank->idx, own, sizeof own, all, &rank->why);
        for (uint32_t i = 0; i < RANKS && !err; i++)
            WEFT_ASSERT(all[i][0] == i + 10 * round && all[i][4] == all[i][0]);
    }
    return err;
}

static void everybody_gets_what_everybody_has(void **state) {
    (void)state;
    weft_coll *coll = open_group(RANKS, NEVER_MS);
    run_all(coll, gather, WEFT_OK);
    weft_coll_close(coll);
}

/* The first writes, the others read, and it writes again after they have. */
static weft_err read_board(struct rank *rank) {
    weft_err err = WEFT_OK;
    uint32_t *board = weft_coll_board(rank->coll);
    for (uint32_t round = 1; round < MEETINGS && !err; round++) {
        const struct weft_coll_wrote wrote = {.row_bytes = sizeof *board, .n_rows = rank->idx == 0};
        if (rank->idx == 0) *board = round;
        err = weft_coll_meet(rank->coll, rank->idx, &wrote, &rank->why);
        WEFT_ASSERT(err || *board == round);
        if (!err) err = weft_coll_meet(rank->coll, rank->idx, NULL, &rank->why);
    }
    return err;
}

static void the_board_is_everybodys(void **state) {
    (void)state;
    weft_coll *coll = open_group(RANKS, NEVER_MS);
    run_all(coll, read_board, WEFT_OK);
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

static weft_err meet_once(struct rank *rank) {
    return weft_coll_meet(rank->coll, rank->idx, NULL, &rank->why);
}

static weft_err meet_and_stay(struct rank *rank) {
    weft_err err = WEFT_OK;
    while (!err)
        err = weft_coll_meet(rank->coll, rank->idx, NULL, &rank->why);
    weft_coll_leave(rank->coll, rank->idx);
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

static void a_rank_that_never_comes_ends_the_group(void **state) {
    (void)state;
    weft_coll *coll = open_group(RANKS, SOON_MS);
    struct rank ranks[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) {
        if (i != 2) start_rank(&ranks[i], coll, i, meet_once);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        if (i == 2) continue;
        assert_int_equal(pthread_join(ranks[i].handle, NULL), 0);
        /* All say the same, or that one who had given up was gone. */
        assert_true(ranks[i].err == WEFT_E_TIMEOUT || ranks[i].err == WEFT_E_CLOSED);
    }
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
static pid_t start_process(int fd, uint32_t idx) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    struct rank rank = {.idx = idx};
    weft_err err = weft_coll_open(fd, NEVER_MS, &rank.coll, NULL);
    if (!err) err = weft_coll_reserve(rank.coll, 64, 64, NULL);
    if (!err) err = weft_coll_join(rank.coll, idx, NULL);
    if (!err) err = meet_and_stay(&rank);
    weft_coll_close(rank.coll);
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
        pids[i] = start_process(fd, i);
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

static void a_stopped_process_is_waited_for(void **state) {
    (void)state;
    int fd, status;
    weft_coll *coll;
    assert_int_equal(weft_coll_create(2, &fd, NULL), WEFT_OK);
    pid_t pid = start_process(fd, 1);
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

enum { PART_BYTES = 1344, GIVEN_MAX = 8 * PART_BYTES };

/* Lengths about those of one part, of two, and of many. */
static const size_t given[] = {0,
                               1,
                               PART_BYTES - 9,
                               PART_BYTES - 8,
                               PART_BYTES - 7,
                               2 * PART_BYTES - 8,
                               2 * PART_BYTES - 7,
                               GIVEN_MAX};

static weft_err give_or_take(struct rank *rank) {
    static _Thread_local uint8_t bytes[GIVEN_MAX];
    struct weft_buf taken;
    weft_err err = WEFT_OK;
    weft_buf_init(&taken, GIVEN_MAX);
    for (size_t i = 0; i < sizeof given / sizeof given[0] && !err; i++) {
        for (size_t k = 0; k < given[i]; k++)
            bytes[k] = (uint8_t)(i + 7 * k);
        if (rank->idx == 0) {
            err = weft_coll_give(rank->coll, bytes, given[i], &rank->why);
            continue;
        }
        err = weft_coll_take(rank->coll, rank->idx, &taken, &rank->why);
        WEFT_ASSERT(err || (taken.len == given[i] && !memcmp(taken.data, bytes, taken.len)));
    }
    weft_buf_fini(&taken);
    return err;
}

static void what_the_first_rank_gives_all_others_take(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= WEFT_COLL_RANKS_MAX; n *= 2) {
        weft_coll *coll = open_group(n, NEVER_MS);
        run_all(coll, give_or_take, WEFT_OK);
        weft_coll_close(coll);
    }
}

static weft_err take_one(struct rank *rank) {
    struct weft_buf taken;
    weft_buf_init(&taken, 100);
    weft_err err = weft_coll_take(rank->coll, 1, &taken, &rank->why);
    weft_buf_fini(&taken);
    return err;
}

static void who_takes_waits_for_longer_than_others(void **state) {
    (void)state;
    struct rank taker;
    weft_coll *coll = open_group(2, 1);
    assert_int_equal(weft_coll_join(coll, 0, NULL), WEFT_OK);
    start_rank(&taker, coll, 1, take_one);
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
        cmocka_unit_test(a_stopped_process_is_waited_for),
        cmocka_unit_test(parts_are_not_overwritten_while_they_are_read),
        cmocka_unit_test(everybody_gets_what_everybody_has),
        cmocka_unit_test(the_board_is_everybodys),
        cmocka_unit_test(a_sum_of_one_segment_is_that_segment),
        cmocka_unit_test(who_waits_hears_that_the_group_was_ended),
        cmocka_unit_test(a_rank_that_never_comes_ends_the_group),
        cmocka_unit_test(a_thread_that_ends_without_leaving_is_dead),
        cmocka_unit_test(who_waits_for_a_rank_that_left_hears_so),
        cmocka_unit_test(what_the_first_rank_gives_all_others_take),
        cmocka_unit_test(who_takes_waits_for_longer_than_others),
        cmocka_unit_test(more_than_one_may_take_ends_the_group),
        cmocka_unit_test(what_a_rank_tells_anybody_may_ask),
        cmocka_unit_test(groups_of_other_sizes_are_refused),
        cmocka_unit_test(a_rank_is_taken_once),
        cmocka_unit_test(ranks_of_different_models_are_told_so),
        cmocka_unit_test(what_is_no_segment_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
