/* One rank of a group that mpirun starts (test_mpi.py): the cases of test_collective.c, or one of the
 * ways in which a group ends. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "collective/collective.h"
#include "harness/coll_cases.h"

enum { IDLE_US = 600 * 1000 };

struct rank {
    weft_coll *coll;
    uint32_t idx;
};

static weft_err meet_on(const struct rank *rank) {
    weft_err err = WEFT_OK;
    while (!err)
        err = weft_coll_meet(rank->coll, rank->idx, NULL, NULL);
    return err;
}

/* ------------------------------------------------------------------------------------ data --- */

/* One element a segment, of such magnitudes that no other order of sums would do. */
static void sum_by_the_tree(const struct rank *rank) {
    float s[WEFT_COLL_SEGMENTS], x = 0;
    uint32_t n_ranks = weft_coll_n_ranks(rank->coll), per_rank = WEFT_COLL_SEGMENTS / n_ranks;
    for (uint32_t i = 0; i < WEFT_COLL_SEGMENTS; i++)
        s[i] = ldexpf(1.0f + (float)i / 7, (int)(i * 5 % 8) * 6);
    float want = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    const float *own = s + weft_coll_first_segment(rank->idx, n_ranks);
    if (per_rank == 1) x = own[0];
    if (per_rank == 2) x = own[0] + own[1];
    if (per_rank == 4) x = (own[0] + own[1]) + (own[2] + own[3]);
    if (per_rank == 8) x = want;
    WEFT_ASSERT(!weft_coll_all_reduce(rank->coll, rank->idx, &x, 1, 0xff, NULL));
    WEFT_ASSERT(x == want);
}

static void tell(const struct rank *rank) {
    weft_coll_tell(rank->coll, rank->idx, 2, 100 + rank->idx);
    WEFT_ASSERT(!weft_coll_meet(rank->coll, rank->idx, NULL, NULL));
    for (uint32_t i = 0; i < weft_coll_n_ranks(rank->coll); i++)
        WEFT_ASSERT(weft_coll_told(rank->coll, i, 2) == 100 + i);
}

/* Who waits for something to do leaves the CPU to others. */
static void take_late(const struct rank *rank) {
    struct timespec before, after;
    struct weft_buf taken;
    weft_buf_init(&taken, 100);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    if (rank->idx == 0) {
        (void)usleep(IDLE_US);
        WEFT_ASSERT(!weft_coll_give(rank->coll, "now", 3, NULL));
    } else {
        WEFT_ASSERT(!weft_coll_take(rank->coll, rank->idx, &taken, NULL) && taken.len == 3);
    }
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    long us = (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    (void)printf("rank %u was idle and busy for %ld us\n", rank->idx, us);
    WEFT_ASSERT(us < IDLE_US / 4);
    weft_buf_fini(&taken);
}

/* Everybody has all of it. */
static void count_memory(const struct rank *rank) {
    size_t all = 2 * weft_coll_n_ranks(rank->coll) * COLL_PART_BYTES + COLL_BOARD_BYTES;
    WEFT_ASSERT(weft_coll_own_bytes(rank->coll, COLL_PART_BYTES, COLL_BOARD_BYTES) > all);
}

static void data(const struct rank *rank) {
    static coll_case *const cases[] = {coll_sums, coll_gathers, coll_boards, coll_gives};
    struct weft_errmsg why;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        WEFT_ASSERT(!cases[i](rank->coll, rank->idx, &why));
    sum_by_the_tree(rank);
    count_memory(rank);
    tell(rank);
    take_late(rank);
}

/* --------------------------------------------------------------------------------- endings --- */

/* The last rank ends in the way asked for, the others meet. */
static void end(const struct rank *rank, const char *how) {
    bool is_last = rank->idx + 1 == weft_coll_n_ranks(rank->coll);
    WEFT_ASSERT(!weft_coll_meet(rank->coll, rank->idx, NULL, NULL));
    if (is_last && strcmp(how, "late") == 0) (void)pause();
    if (is_last && strcmp(how, "leaves") == 0) return;
    if (is_last && strcmp(how, "aborts") == 0) weft_coll_abort(rank->coll);
    WEFT_ASSERT(meet_on(rank) == WEFT_E_CLOSED);
}

int main(int argc, char **argv) {
    WEFT_ASSERT(argc == 2);
    const char *how = argv[1];
    struct rank rank;
    struct weft_errmsg why = {""};
    weft_log_init("rank", WEFT_LOG_INFO, false);
    uint32_t wait_ms = strcmp(how, "late") == 0 ? 300 : 0;
    if (weft_coll_open_mpi(wait_ms, &rank.coll, &rank.idx, &why)) {
        weft_say(WEFT_LOG_ERROR, "%s", why.text);
        return EXIT_FAILURE;
    }
    size_t more = strcmp(how, "differs") == 0 ? rank.idx * 64 : 0;
    weft_err err = weft_coll_reserve(rank.coll, COLL_PART_BYTES + more, COLL_BOARD_BYTES, &why);
    if (!err) err = weft_coll_join(rank.coll, rank.idx, &why);
    WEFT_ASSERT(!err);
    WEFT_ASSERT(weft_coll_join(rank.coll, rank.idx, NULL) == WEFT_E_STATE);
    (void)printf("rank %u is process %d\n", rank.idx, (int)getpid());
    (void)fflush(stdout);
    if (strcmp(how, "data") == 0)
        data(&rank);
    else
        end(&rank, how);
    weft_coll_leave(rank.coll, rank.idx);
    weft_coll_close(rank.coll);
    return EXIT_SUCCESS;
}
