/* collective, shared by its files — a group's memory as one process sees it, and the ways in which
 * what ranks write there reaches the others. */
#ifndef WEFT_COLLECTIVE_INTERNAL_H
#define WEFT_COLLECTIVE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collective/collective.h"

/* A rank comes to a meeting. */
struct wefti_coll_visit {
    uint32_t rank;
    struct weft_coll_wrote wrote;
    bool is_idle; /* it waits for something to do, which may take any time */
};

/* A way: memory that all ranks map (shared.c), or messages between copies of it (mpi.c). */
struct wefti_coll_way {
    void (*close)(weft_coll *coll); /* frees `coll`, too */
    weft_err (*join)(weft_coll *coll, uint32_t rank, struct weft_errmsg *why);
    void (*leave)(weft_coll *coll, uint32_t rank);
    /* Makes the memory; sizes are multiples of 64. Once. */
    weft_err (*reserve)(weft_coll *coll, size_t part_bytes, size_t board_bytes,
                        struct weft_errmsg *why);
    size_t (*own_bytes)(const weft_coll *coll, size_t part_bytes, size_t board_bytes);
    void (*abort)(weft_coll *coll);
    weft_err (*check)(weft_coll *coll, uint32_t rank, struct weft_errmsg *why); /* NULL: no need */
    weft_err (*meet)(weft_coll *coll, const struct wefti_coll_visit *visit,
                     struct weft_errmsg *why);
};

/* What all ways have; each puts more behind it. */
struct weft_coll {
    const struct wefti_coll_way *way;
    uint32_t n_ranks, wait_ms_max;
    pthread_mutex_t reserving; /* ranks of one process share the mapping */
    /* Parts of the even meetings, then those of the odd ones, part_stride apart. */
    uint8_t *parts; /* NULL: nothing is reserved */
    uint8_t *board;
    size_t part_bytes, part_stride, board_bytes;
    /* By rank: how many meetings it came to (only of ranks in this process), and what it told. */
    _Atomic uint32_t *arrived[WEFT_COLL_RANKS_MAX];
    _Atomic uint64_t *figures[WEFT_COLL_RANKS_MAX];
};

static inline uint32_t wefti_coll_meetings(const weft_coll *coll, uint32_t rank) {
    return atomic_load_explicit(coll->arrived[rank], memory_order_relaxed);
}

static inline uint8_t *wefti_coll_part_at(const weft_coll *coll, uint32_t rank, uint32_t meeting) {
    return coll->parts + ((meeting & 1u) * coll->n_ranks + rank) * coll->part_stride;
}

#define WEFTI_COLL_DIFFER                                                                          \
    "the ranks of the group differ in model or options: one wants %zu and %zu bytes, another %zu " \
    "and %zu"

#endif
