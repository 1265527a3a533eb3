/* What the ranks of a group do with their memory, whichever way it is shared. */
#include "collective/collective.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "collective_internal.h"

enum { SUM_FLOATS = 128 }; /* summed at a time: they stay in L1 */

void weft_coll_close(weft_coll *coll) {
    if (coll) coll->way->close(coll);
}

uint32_t weft_coll_n_ranks(const weft_coll *coll) {
    return coll->n_ranks;
}

void weft_coll_abort(weft_coll *coll) {
    coll->way->abort(coll);
}

weft_err weft_coll_check(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    WEFT_ASSERT(rank < coll->n_ranks);
    return coll->way->check ? coll->way->check(coll, rank, why) : WEFT_OK;
}

uint32_t weft_coll_awaited(const weft_coll *coll, uint32_t rank) {
    uint32_t awaited = rank;
    WEFT_ASSERT(rank < coll->n_ranks);
    for (uint32_t i = 0; i < coll->n_ranks; i++) {
        uint32_t ahead = wefti_coll_meetings(coll, awaited) - wefti_coll_meetings(coll, i);
        if ((int32_t)ahead > 0) awaited = i; /* counts may go round */
    }
    return awaited;
}

weft_err weft_coll_join(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    WEFT_ASSERT(rank < coll->n_ranks);
    return coll->way->join(coll, rank, why);
}

void weft_coll_leave(weft_coll *coll, uint32_t rank) {
    WEFT_ASSERT(rank < coll->n_ranks);
    coll->way->leave(coll, rank);
}

size_t weft_coll_own_bytes(const weft_coll *coll, size_t part_bytes, size_t board_bytes) {
    return coll->way->own_bytes(coll, part_bytes, board_bytes);
}

weft_err weft_coll_reserve(weft_coll *coll, size_t part_bytes, size_t board_bytes,
                           struct weft_errmsg *why) {
    WEFT_ASSERT(part_bytes > 0);
    part_bytes = weft_round_up(weft_max_size(part_bytes, WEFT_COLL_PART_BYTES_MIN), 64);
    board_bytes = weft_round_up(weft_max_size(board_bytes, 1), 64);
    weft_err err = WEFT_OK;
    (void)pthread_mutex_lock(&coll->reserving);
    if (!coll->parts) {
        err = coll->way->reserve(coll, part_bytes, board_bytes, why);
        if (!err) {
            coll->part_bytes = part_bytes;
            coll->board_bytes = board_bytes;
        }
    } else if (coll->part_bytes != part_bytes || coll->board_bytes != board_bytes) {
        err = weft_err_set(why, WEFT_E_STATE, WEFTI_COLL_DIFFER, coll->part_bytes,
                           coll->board_bytes, part_bytes, board_bytes);
    }
    (void)pthread_mutex_unlock(&coll->reserving);
    return err;
}

/* --------------------------------------------------------------------------------- figures --- */

static _Atomic uint64_t *figure_of(const weft_coll *coll, uint32_t rank, uint32_t which) {
    WEFT_ASSERT(rank < coll->n_ranks && which < WEFT_COLL_FIGURES);
    return &coll->figures[rank][which];
}

void weft_coll_tell(weft_coll *coll, uint32_t rank, uint32_t which, uint64_t figure) {
    atomic_store_explicit(figure_of(coll, rank, which), figure, memory_order_relaxed);
}

uint64_t weft_coll_told(const weft_coll *coll, uint32_t rank, uint32_t which) {
    return atomic_load_explicit(figure_of(coll, rank, which), memory_order_relaxed);
}

/* ------------------------------------------------------------------------------------ data --- */

static weft_err meet(weft_coll *coll, const struct wefti_coll_visit *visit,
                     struct weft_errmsg *why) {
    const struct weft_coll_wrote *wrote = &visit->wrote;
    WEFT_ASSERT(visit->rank < coll->n_ranks && wrote->part_bytes <= coll->part_bytes);
    WEFT_ASSERT(wrote->n_rows == 0 ||
                (wrote->n_rows - 1) * wrote->row_stride + wrote->row_bytes + wrote->board_at <=
                    coll->board_bytes);
    return coll->way->meet(coll, visit, why);
}

weft_err weft_coll_meet(weft_coll *coll, uint32_t rank, const struct weft_coll_wrote *wrote,
                        struct weft_errmsg *why) {
    struct wefti_coll_visit visit = {.rank = rank};
    if (wrote) visit.wrote = *wrote;
    return meet(coll, &visit, why);
}

/* A meeting that shares the first bytes of this rank's part. */
static weft_err share_part(weft_coll *coll, uint32_t rank, size_t bytes, struct weft_errmsg *why) {
    const struct wefti_coll_visit visit = {.rank = rank, .wrote.part_bytes = bytes};
    return meet(coll, &visit, why);
}

void *weft_coll_part(const weft_coll *coll, uint32_t rank) {
    WEFT_ASSERT(coll->parts != NULL && rank < coll->n_ranks);
    return wefti_coll_part_at(coll, rank, wefti_coll_meetings(coll, rank) + 1);
}

const void *weft_coll_part_of(const weft_coll *coll, uint32_t rank, uint32_t peer) {
    WEFT_ASSERT(coll->parts != NULL && rank < coll->n_ranks && peer < coll->n_ranks);
    return wefti_coll_part_at(coll, peer, wefti_coll_meetings(coll, rank));
}

void *weft_coll_board(const weft_coll *coll) {
    WEFT_ASSERT(coll->parts != NULL);
    return coll->board;
}

/* The parts of some ranks that have values, and where in them. */
struct leaves {
    const float *of[WEFT_COLL_RANKS_MAX]; /* NULL: no value */
    size_t at;
    uint32_t n;
};

/* out = the sum of leaves begin .. begin + n_leaves, a whole tree. False: none has a value. */
static bool join(const struct leaves *leaves, uint32_t begin, uint32_t n_leaves, float *out) {
    float right[SUM_FLOATS];
    if (n_leaves == 1) {
        if (!leaves->of[begin]) return false;
        memcpy(out, leaves->of[begin] + leaves->at, leaves->n * sizeof *out);
        return true;
    }
    bool has_left = join(leaves, begin, n_leaves / 2, out);
    bool has_right = join(leaves, begin + n_leaves / 2, n_leaves / 2, has_left ? right : out);
    for (uint32_t i = 0; has_left && has_right && i < leaves->n; i++)
        out[i] = out[i] + right[i];
    return has_left || has_right;
}

void weft_coll_sum(const weft_coll *coll, uint32_t rank, const struct weft_coll_span *span,
                   float *out) {
    WEFT_ASSERT(span->present != 0);
    WEFT_ASSERT((span->at + span->n) * sizeof *out <= coll->part_bytes);
    struct leaves leaves = {.at = span->at};
    uint32_t per_rank = WEFT_COLL_SEGMENTS / coll->n_ranks, mask = (1u << per_rank) - 1;
    for (uint32_t i = 0; i < coll->n_ranks; i++) {
        if (span->present >> weft_coll_first_segment(i, coll->n_ranks) & mask)
            leaves.of[i] = weft_coll_part_of(coll, rank, i);
    }
    for (uint32_t done = 0; done < span->n; done += leaves.n, leaves.at += leaves.n) {
        leaves.n = weft_min_u32(SUM_FLOATS, span->n - done);
        (void)join(&leaves, 0, coll->n_ranks, out + done);
    }
}

weft_err weft_coll_all_reduce(weft_coll *coll, uint32_t rank, float *x, uint32_t n, uint8_t present,
                              struct weft_errmsg *why) {
    WEFT_ASSERT(n * sizeof *x <= coll->part_bytes);
    memcpy(weft_coll_part(coll, rank), x, n * sizeof *x);
    weft_err err = share_part(coll, rank, n * sizeof *x, why);
    if (!err) weft_coll_sum(coll, rank, &(struct weft_coll_span){0, n, present}, x);
    return err;
}

weft_err weft_coll_all_gather(weft_coll *coll, uint32_t rank, const void *own, size_t bytes,
                              void *all, struct weft_errmsg *why) {
    WEFT_ASSERT(bytes <= coll->part_bytes);
    memcpy(weft_coll_part(coll, rank), own, bytes);
    weft_err err = share_part(coll, rank, bytes, why);
    for (uint32_t i = 0; i < coll->n_ranks && !err; i++)
        memcpy((uint8_t *)all + i * bytes, weft_coll_part_of(coll, rank, i), bytes);
    return err;
}

/* The first part begins with the length of all; each holds as much as it has room for. */
weft_err weft_coll_give(weft_coll *coll, const void *bytes, size_t len, struct weft_errmsg *why) {
    const uint64_t all = len;
    size_t done = 0, used = sizeof all;
    WEFT_ASSERT(coll->part_bytes > sizeof all);
    memcpy(weft_coll_part(coll, 0), &all, sizeof all);
    do {
        size_t n = weft_min_size(len - done, coll->part_bytes - used);
        if (n > 0)
            memcpy((uint8_t *)weft_coll_part(coll, 0) + used, (const uint8_t *)bytes + done, n);
        weft_err err = share_part(coll, 0, used + n, why);
        if (err) return err;
        done += n;
        used = 0;
    } while (done < len);
    return WEFT_OK;
}

weft_err weft_coll_take(weft_coll *coll, uint32_t rank, struct weft_buf *out,
                        struct weft_errmsg *why) {
    uint64_t all = 0;
    size_t used = sizeof all;
    WEFT_ASSERT(coll->part_bytes > sizeof all && rank > 0);
    weft_buf_clear(out);
    do {
        const struct wefti_coll_visit visit = {.rank = rank, .is_idle = used > 0};
        weft_err err = meet(coll, &visit, why);
        if (err) return err;
        const uint8_t *part = weft_coll_part_of(coll, rank, 0);
        if (used > 0) memcpy(&all, part, sizeof all);
        size_t n = weft_min_size((size_t)all - out->len, coll->part_bytes - used);
        weft_buf_add(out, part + used, n);
        if (out->failed) {
            weft_coll_abort(coll);
            if (all <= out->max_bytes)
                return weft_err_set(why, WEFT_E_NOMEM, "no memory for %" PRIu64 " bytes", all);
            return weft_err_set(why, WEFT_E_TOOBIG, "%" PRIu64 " bytes are too many for rank %u",
                                all, rank);
        }
        used = 0;
    } while (out->len < all);
    return WEFT_OK;
}
