#include "harness/coll_cases.h"

#include <string.h>

#include "base/buf.h"
#include "base/check.h"

enum {
    WIDTH = COLL_PART_BYTES / sizeof(float),
    MEETINGS = 2000,
    BOARDS = 300,
    ROWS = 5,
    ROW_WORDS = 64,
    GIVEN_MAX = 8 * COLL_PART_BYTES,
};

/* Writes anew as soon as it may; the sums show whether anybody still read. */
weft_err coll_sums(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    uint32_t n_ranks = weft_coll_n_ranks(coll);
    for (uint32_t round = 0; round < MEETINGS; round++) {
        float *part = weft_coll_part(coll, rank), sums[WIDTH];
        uint32_t n = round % 3 ? WIDTH : 1 + round % WIDTH;
        for (uint32_t i = 0; i < n; i++)
            part[i] = (float)(rank + round + i);
        const struct weft_coll_wrote wrote = {.part_bytes = n * sizeof *part};
        weft_err err = weft_coll_meet(coll, rank, &wrote, why);
        if (err) return err;
        weft_coll_sum(coll, rank, &(struct weft_coll_span){0, n, 0xff}, sums);
        uint32_t ranks = n_ranks * (n_ranks - 1) / 2;
        for (uint32_t i = 0; i < n; i++)
            WEFT_ASSERT(sums[i] == (float)(n_ranks * (round + i) + ranks));
    }
    return WEFT_OK;
}

weft_err coll_gathers(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    uint8_t own[5], all[WEFT_COLL_RANKS_MAX][5];
    for (uint32_t round = 0; round < 20; round++) {
        memset(own, (int)(rank + 10 * round), sizeof own);
        weft_err err = weft_coll_all_gather(coll, rank, own, sizeof own, all, why);
        if (err) return err;
        for (uint32_t i = 0; i < weft_coll_n_ranks(coll); i++)
            WEFT_ASSERT(all[i][0] == i + 10 * round && all[i][4] == all[i][0]);
    }
    return WEFT_OK;
}

/* Behind the word that the first writes. */
static uint32_t *row_of(weft_coll *coll, uint32_t row) {
    return (uint32_t *)weft_coll_board(coll) + 1 + row * ROW_WORDS;
}

weft_err coll_boards(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    uint32_t *board = weft_coll_board(coll), n_own = ROW_WORDS / weft_coll_n_ranks(coll);
    for (uint32_t round = 1; round <= BOARDS; round++) {
        struct weft_coll_wrote wrote = {
            .board_at = (1 + rank * n_own) * sizeof *board,
            .row_bytes = n_own * sizeof *board,
            .row_stride = ROW_WORDS * sizeof *board,
            .n_rows = round % (ROWS + 1), /* none, too */
        };
        for (uint32_t i = 0; i < wrote.n_rows * n_own; i++)
            row_of(coll, i / n_own)[rank * n_own + i % n_own] = round + i / n_own * 1000;
        weft_err err = weft_coll_meet(coll, rank, &wrote, why);
        if (err) return err;
        for (uint32_t i = 0; i < wrote.n_rows * ROW_WORDS; i++)
            WEFT_ASSERT(row_of(coll, i / ROW_WORDS)[i % ROW_WORDS] == round + i / ROW_WORDS * 1000);
        wrote = (struct weft_coll_wrote){.row_bytes = sizeof *board, .n_rows = rank == 0};
        if (rank == 0) *board = round;
        err = weft_coll_meet(coll, rank, &wrote, why);
        if (err) return err;
        WEFT_ASSERT(*board == round);
        err = weft_coll_meet(coll, rank, NULL, why); /* all have read */
        if (err) return err;
    }
    return WEFT_OK;
}

/* Lengths about those of one part, of two, and of many. */
static const size_t given[] = {0,
                               1,
                               COLL_PART_BYTES - 9,
                               COLL_PART_BYTES - 8,
                               COLL_PART_BYTES - 7,
                               2 * COLL_PART_BYTES - 8,
                               2 * COLL_PART_BYTES - 7,
                               GIVEN_MAX};

weft_err coll_gives(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    static _Thread_local uint8_t bytes[GIVEN_MAX];
    struct weft_buf taken;
    weft_err err = WEFT_OK;
    weft_buf_init(&taken, GIVEN_MAX);
    for (size_t i = 0; i < sizeof given / sizeof given[0] && !err; i++) {
        for (size_t k = 0; k < given[i]; k++)
            bytes[k] = (uint8_t)(i + 7 * k);
        if (rank == 0) {
            err = weft_coll_give(coll, bytes, given[i], why);
            continue;
        }
        err = weft_coll_take(coll, rank, &taken, why);
        WEFT_ASSERT(err || taken.len == given[i]);
        WEFT_ASSERT(taken.len == 0 || memcmp(taken.data, bytes, taken.len) == 0);
    }
    weft_buf_fini(&taken);
    return err;
}
