#include "collective/collective.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/minmax.h"

#define MAGIC "WEFTCOLL"
enum {
    VERSION = 1,
    HEADER_BYTES = 4096,
    SLICE_MS = 50,    /* asleep at a time, */
    IDLE_MS = 250,    /* and with nothing to do */
    SPINS = 2000,     /* pauses of 40 to 140 cycles: 30 to 100 us at 3 GHz */
    SUM_FLOATS = 128, /* summed at a time: they stay in L1 */
};

enum state { STATE_NONE, STATE_JOINED, STATE_LEFT };

/* Why the group is over; the rank it is about is in the bits above. */
enum end { END_NONE, END_ABORTED, END_DIED, END_LEFT, END_LATE, END_BITS = 8 };

struct rank {
    _Alignas(64) _Atomic uint32_t arrived;
    _Atomic uint32_t n_sleepers;
    _Alignas(64) _Atomic uint32_t state;
    pthread_mutex_t life;
    _Atomic uint64_t figures[WEFT_COLL_FIGURES];
};

struct header {
    char magic[8];
    uint32_t version, n_ranks;
    _Atomic uint32_t ended;
    _Atomic uint64_t part_bytes, board_bytes; /* 0: nobody has reserved any */
    struct rank ranks[WEFT_COLL_RANKS_MAX];
};
_Static_assert(sizeof(struct header) <= HEADER_BYTES, "the header has a page of its own");

struct weft_coll {
    struct header *header;
    int fd;
    uint32_t n_ranks, spins, wait_ms_max;
    pthread_mutex_t reserving; /* ranks of one process share the mapping */
    uint8_t *data;             /* NULL: nothing is reserved */
    size_t data_bytes, part_bytes;
};

/* ----------------------------------------------------------------------------- open, close --- */

static weft_err init_lives(struct header *header, struct weft_errmsg *why) {
    pthread_mutexattr_t attr;
    int failure = pthread_mutexattr_init(&attr);
    if (failure) return weft_err_errno(why, failure, "cannot describe a shared mutex");
    failure = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (!failure) failure = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (uint32_t i = 0; i < header->n_ranks && !failure; i++)
        failure = pthread_mutex_init(&header->ranks[i].life, &attr);
    (void)pthread_mutexattr_destroy(&attr);
    return failure ? weft_err_errno(why, failure, "cannot make a shared mutex") : WEFT_OK;
}

weft_err weft_coll_create(uint32_t n_ranks, int *fd_out, struct weft_errmsg *why) {
    *fd_out = -1;
    if (!weft_coll_may_have(n_ranks))
        return weft_err_set(why, WEFT_E_INVAL, "a group has 1, 2, 4 or 8 ranks, not %u", n_ranks);
    weft_err err = WEFT_OK;
    struct header *header = MAP_FAILED;
    int fd = memfd_create("weft-collective", MFD_CLOEXEC);
    if (fd < 0) return weft_err_errno(why, errno, "cannot make the memory of a group");
    if (ftruncate(fd, HEADER_BYTES) == 0)
        header = mmap(NULL, HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED) {
        err = weft_err_errno(why, errno, "cannot map the memory of a group");
        goto cleanup;
    }
    memcpy(header->magic, MAGIC, sizeof header->magic);
    header->version = VERSION;
    header->n_ranks = n_ranks;
    err = init_lives(header, why);
    (void)munmap(header, HEADER_BYTES);
    if (err) goto cleanup;
    *fd_out = fd;
    fd = -1;
cleanup:
    if (fd >= 0) (void)close(fd);
    return err;
}

static bool is_segment(const struct header *header) {
    return memcmp(header->magic, MAGIC, sizeof header->magic) == 0 && header->version == VERSION &&
           weft_coll_may_have(header->n_ranks);
}

/* Ranks that share CPUs want those for which they wait. */
static uint32_t count_spins(uint32_t n_ranks) {
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return n_cpus >= (long)n_ranks ? SPINS : 1;
}

weft_err weft_coll_open(int fd, uint32_t wait_ms_max, weft_coll **coll_out,
                        struct weft_errmsg *why) {
    *coll_out = NULL;
    weft_err err = WEFT_OK;
    struct stat st;
    if (fstat(fd, &st) != 0) return weft_err_errno(why, errno, "cannot read the memory of a group");
    if (st.st_size < HEADER_BYTES)
        return weft_err_set(why, WEFT_E_PROTO, "%lld bytes are not the memory of a group",
                            (long long)st.st_size);
    weft_coll *coll = calloc(1, sizeof *coll);
    if (!coll) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a group");
    (void)pthread_mutex_init(&coll->reserving, NULL);
    coll->wait_ms_max = wait_ms_max;
    coll->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (coll->fd >= 0)
        coll->header = mmap(NULL, HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, coll->fd, 0);
    if (coll->fd < 0 || coll->header == MAP_FAILED) {
        err = weft_err_errno(why, errno, "cannot map the memory of a group");
        coll->header = NULL;
        goto cleanup;
    }
    if (!is_segment(coll->header)) {
        err = weft_err_set(why, WEFT_E_PROTO,
                           "this is not the memory of a group, or that of another version");
        goto cleanup;
    }
    coll->n_ranks = coll->header->n_ranks;
    coll->spins = count_spins(coll->n_ranks);
    *coll_out = coll;
    coll = NULL;
cleanup:
    weft_coll_close(coll);
    return err;
}

void weft_coll_close(weft_coll *coll) {
    if (!coll) return;
    if (coll->data) (void)munmap(coll->data, coll->data_bytes);
    if (coll->header) (void)munmap(coll->header, HEADER_BYTES);
    if (coll->fd >= 0) (void)close(coll->fd);
    (void)pthread_mutex_destroy(&coll->reserving);
    free(coll);
}

uint32_t weft_coll_n_ranks(const weft_coll *coll) {
    return coll->n_ranks;
}

/* --------------------------------------------------------------------------------- the end --- */

static void wake(_Atomic uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The first reason is everybody's. */
static void end_group(weft_coll *coll, enum end end, uint32_t rank) {
    uint32_t none = END_NONE, reason = (uint32_t)end | rank << END_BITS;
    if (!atomic_compare_exchange_strong(&coll->header->ended, &none, reason)) return;
    for (uint32_t i = 0; i < coll->n_ranks; i++)
        wake(&coll->header->ranks[i].arrived);
}

void weft_coll_abort(weft_coll *coll) {
    end_group(coll, END_ABORTED, 0);
}

/* OK while it goes on. */
static weft_err check_ended(const weft_coll *coll, struct weft_errmsg *why) {
    uint32_t ended = atomic_load_explicit(&coll->header->ended, memory_order_acquire);
    if (ended == END_NONE) return WEFT_OK;
    uint32_t rank = ended >> END_BITS;
    switch (ended & ((1u << END_BITS) - 1)) {
    case END_DIED:
        return weft_err_set(why, WEFT_E_CLOSED, "rank %u of the group has died", rank);
    case END_LEFT:
        return weft_err_set(why, WEFT_E_CLOSED, "rank %u has left the group", rank);
    case END_LATE:
        return weft_err_set(why, WEFT_E_TIMEOUT, "rank %u of the group has not come within %u ms",
                            rank, coll->wait_ms_max);
    default:
        return weft_err_set(why, WEFT_E_CLOSED, "the group was ended");
    }
}

/* ----------------------------------------------------------------------------- join, leave --- */

weft_err weft_coll_join(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    WEFT_ASSERT(rank < coll->n_ranks);
    struct rank *own = &coll->header->ranks[rank];
    uint32_t none = STATE_NONE;
    /* Alive first, known as joined later: so nobody finds one without the other. */
    int failure = pthread_mutex_trylock(&own->life);
    bool is_first = !failure && atomic_compare_exchange_strong(&own->state, &none, STATE_JOINED);
    if (is_first) return WEFT_OK;
    if (!failure) (void)pthread_mutex_unlock(&own->life);
    return weft_err_set(why, WEFT_E_STATE, "rank %u of the group was taken before", rank);
}

void weft_coll_leave(weft_coll *coll, uint32_t rank) {
    WEFT_ASSERT(rank < coll->n_ranks);
    struct rank *own = &coll->header->ranks[rank];
    atomic_store(&own->state, STATE_LEFT);
    int failure = pthread_mutex_unlock(&own->life);
    WEFT_ASSERT(failure == 0); /* it is this thread that joined */
    wake(&own->arrived);
}

/* Ends the group if a peer that does not come is gone for good. */
static void look_after(weft_coll *coll, uint32_t peer) {
    struct rank *theirs = &coll->header->ranks[peer];
    uint32_t state = atomic_load(&theirs->state);
    if (state == STATE_LEFT) end_group(coll, END_LEFT, peer);
    if (state != STATE_JOINED) return; /* it has yet to come */
    int failure = pthread_mutex_trylock(&theirs->life);
    if (failure == EBUSY) return;
    /* A mutex that its dead owner held stays unusable when it is unlocked as it is. */
    bool is_dead = failure == EOWNERDEAD || failure == ENOTRECOVERABLE;
    if (failure == 0 || failure == EOWNERDEAD) (void)pthread_mutex_unlock(&theirs->life);
    if (is_dead) end_group(coll, END_DIED, peer);
}

/* --------------------------------------------------------------------------------- reserve --- */

/* The size that the first one asked for. */
static uint64_t agree(_Atomic uint64_t *size, uint64_t wanted) {
    uint64_t none = 0;
    return atomic_compare_exchange_strong(size, &none, wanted) ? wanted : none;
}

static weft_err map_data(weft_coll *coll, size_t part_bytes, size_t board_bytes,
                         struct weft_errmsg *why) {
    struct header *header = coll->header;
    uint64_t part = agree(&header->part_bytes, part_bytes);
    uint64_t board = agree(&header->board_bytes, board_bytes);
    if (part != part_bytes || board != board_bytes)
        return weft_err_set(why, WEFT_E_STATE,
                            "the ranks of the group differ in model or options: one wants %" PRIu64
                            " and %" PRIu64 " bytes, another %zu and %zu",
                            part, board, part_bytes, board_bytes);
    size_t bytes = 2 * coll->n_ranks * part_bytes + board_bytes;
    if (ftruncate(coll->fd, (off_t)(HEADER_BYTES + bytes)) != 0) /* to the same size by all */
        return weft_err_errno(why, errno, "cannot size the memory of a group to %zu bytes", bytes);
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, coll->fd, HEADER_BYTES);
    if (data == MAP_FAILED)
        return weft_err_errno(why, errno, "cannot map %zu bytes of a group", bytes);
    coll->data = data;
    coll->data_bytes = bytes;
    coll->part_bytes = part_bytes;
    return WEFT_OK;
}

weft_err weft_coll_reserve(weft_coll *coll, size_t part_bytes, size_t board_bytes,
                           struct weft_errmsg *why) {
    WEFT_ASSERT(part_bytes > 0);
    part_bytes = weft_round_up(weft_max_size(part_bytes, WEFT_COLL_PART_BYTES_MIN), 64);
    board_bytes = weft_round_up(weft_max_size(board_bytes, 1), 64);
    weft_err err = WEFT_OK;
    (void)pthread_mutex_lock(&coll->reserving);
    size_t board_had = coll->data_bytes - 2 * coll->n_ranks * coll->part_bytes;
    if (!coll->data) {
        err = map_data(coll, part_bytes, board_bytes, why);
    } else if (coll->part_bytes != part_bytes || board_had != board_bytes) {
        err = weft_err_set(why, WEFT_E_STATE,
                           "the ranks of the group differ in model or options: one wants %zu and "
                           "%zu bytes, another %zu and %zu",
                           coll->part_bytes, board_had, part_bytes, board_bytes);
    }
    (void)pthread_mutex_unlock(&coll->reserving);
    return err;
}

/* ---------------------------------------------------------------------------------- figures --- */

static _Atomic uint64_t *figure_of(const weft_coll *coll, uint32_t rank, uint32_t which) {
    WEFT_ASSERT(rank < coll->n_ranks && which < WEFT_COLL_FIGURES);
    return &coll->header->ranks[rank].figures[which];
}

void weft_coll_tell(weft_coll *coll, uint32_t rank, uint32_t which, uint64_t figure) {
    atomic_store_explicit(figure_of(coll, rank, which), figure, memory_order_relaxed);
}

uint64_t weft_coll_told(const weft_coll *coll, uint32_t rank, uint32_t which) {
    return atomic_load_explicit(figure_of(coll, rank, which), memory_order_relaxed);
}

/* -------------------------------------------------------------------------------- meetings --- */

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Whether a count has come to `meeting`, however often it went round. */
static bool has_come(uint32_t arrived, uint32_t meeting) {
    return (int32_t)(arrived - meeting) >= 0;
}

static bool spin_for(const weft_coll *coll, struct rank *peer, uint32_t meeting) {
    for (uint32_t i = 0; i < coll->spins; i++) {
        if (has_come(atomic_load_explicit(&peer->arrived, memory_order_acquire), meeting))
            return true;
        if (atomic_load_explicit(&coll->header->ended, memory_order_relaxed)) return false;
        pause_cpu();
    }
    return false;
}

/* Asleep for a slice of time at most. */
static bool sleep_for(struct rank *peer, uint32_t meeting, uint32_t slice_ms) {
    const struct timespec slice = {.tv_nsec = (long)slice_ms * 1000 * 1000};
    (void)atomic_fetch_add(&peer->n_sleepers, 1);
    uint32_t arrived = atomic_load(&peer->arrived);
    if (!has_come(arrived, meeting)) {
        (void)syscall(SYS_futex, &peer->arrived, FUTEX_WAIT, arrived, &slice, NULL, 0);
        arrived = atomic_load(&peer->arrived);
    }
    (void)atomic_fetch_sub(&peer->n_sleepers, 1);
    return has_come(arrived, meeting);
}

/* `is_idle`: for something to do, which may take any time. */
static weft_err wait_for(weft_coll *coll, uint32_t peer_idx, uint32_t meeting, bool is_idle,
                         struct weft_errmsg *why) {
    struct rank *peer = &coll->header->ranks[peer_idx];
    uint64_t since_ms = 0;
    bool has_met = spin_for(coll, peer, meeting);
    while (!has_met) {
        weft_err err = check_ended(coll, why);
        if (err) return has_come(atomic_load(&peer->arrived), meeting) ? WEFT_OK : err;
        has_met = sleep_for(peer, meeting, is_idle ? IDLE_MS : SLICE_MS);
        if (has_met) break;
        uint64_t now_ms = weft_now_ms();
        if (since_ms == 0) since_ms = now_ms;
        look_after(coll, peer_idx);
        if (!is_idle && coll->wait_ms_max > 0 && now_ms - since_ms >= coll->wait_ms_max)
            end_group(coll, END_LATE, peer_idx);
    }
    return WEFT_OK;
}

/* A peer that came and died since is met all the same: what it wrote is whole. */
static weft_err meet(weft_coll *coll, uint32_t rank, bool is_idle, struct weft_errmsg *why) {
    WEFT_ASSERT(rank < coll->n_ranks);
    struct rank *own = &coll->header->ranks[rank];
    weft_err err = check_ended(coll, why);
    if (err) return err;
    uint32_t meeting = atomic_load_explicit(&own->arrived, memory_order_relaxed) + 1;
    atomic_store(&own->arrived, meeting);
    if (atomic_load(&own->n_sleepers) > 0) wake(&own->arrived);
    for (uint32_t i = 1; i < coll->n_ranks && !err; i++)
        err = wait_for(coll, (rank + i) % coll->n_ranks, meeting, is_idle, why);
    return err;
}

weft_err weft_coll_meet(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    return meet(coll, rank, false, why);
}

/* ------------------------------------------------------------------------------------ data --- */

/* Parts are written for even and odd meetings in turn. */
static uint8_t *part_at(const weft_coll *coll, uint32_t rank, uint32_t meeting) {
    WEFT_ASSERT(coll->data != NULL && rank < coll->n_ranks);
    return coll->data + ((meeting & 1u) * coll->n_ranks + rank) * coll->part_bytes;
}

static uint32_t meetings_of(const weft_coll *coll, uint32_t rank) {
    WEFT_ASSERT(rank < coll->n_ranks);
    return atomic_load_explicit(&coll->header->ranks[rank].arrived, memory_order_relaxed);
}

void *weft_coll_part(const weft_coll *coll, uint32_t rank) {
    return part_at(coll, rank, meetings_of(coll, rank) + 1);
}

const void *weft_coll_part_of(const weft_coll *coll, uint32_t rank, uint32_t peer) {
    return part_at(coll, peer, meetings_of(coll, rank));
}

void *weft_coll_board(const weft_coll *coll) {
    WEFT_ASSERT(coll->data != NULL);
    return coll->data + 2 * coll->n_ranks * coll->part_bytes;
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
    weft_err err = weft_coll_meet(coll, rank, why);
    if (!err) weft_coll_sum(coll, rank, &(struct weft_coll_span){0, n, present}, x);
    return err;
}

weft_err weft_coll_all_gather(weft_coll *coll, uint32_t rank, const void *own, size_t bytes,
                              void *all, struct weft_errmsg *why) {
    WEFT_ASSERT(bytes <= coll->part_bytes);
    memcpy(weft_coll_part(coll, rank), own, bytes);
    weft_err err = weft_coll_meet(coll, rank, why);
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
        weft_err err = meet(coll, 0, false, why);
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
        weft_err err = meet(coll, rank, used > 0, why);
        if (err) return err;
        const uint8_t *part = weft_coll_part_of(coll, rank, 0);
        if (used > 0) memcpy(&all, part, sizeof all);
        size_t n = weft_min_size((size_t)all - out->len, coll->part_bytes - used);
        weft_buf_add(out, part + used, n);
        if (out->failed) {
            weft_coll_abort(coll);
            return weft_err_set(why, WEFT_E_TOOBIG, "%" PRIu64 " bytes are too many for rank %u",
                                all, rank);
        }
        used = 0;
    } while (out->len < all);
    return WEFT_OK;
}
