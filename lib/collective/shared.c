/* A group whose ranks are on one machine: a memfd that all of them map. The header of the module says
 * how it is laid out, and who writes what. */
#include "collective_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/minmax.h"

#define MAGIC "WEFTCOLL"
enum {
    VERSION = 2,
    HEADER_BYTES = 4096,
    SLICE_MS = 50, /* asleep at a time, */
    IDLE_MS = 250, /* and with nothing to do */
    SPINS = 2000,  /* pauses of 40 to 140 cycles: 30 to 100 us at 3 GHz */
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
    uint32_t shares_cpus; /* there are fewer than ranks */
    _Atomic uint32_t ended;
    _Atomic uint64_t part_bytes, board_bytes; /* 0: nobody has reserved any */
    struct rank ranks[WEFT_COLL_RANKS_MAX];
};
_Static_assert(sizeof(struct header) <= HEADER_BYTES, "the header has a page of its own");

struct shared {
    struct weft_coll base;
    struct header *header;
    int fd;
    uint32_t spins;
};

static const struct wefti_coll_way in_shared_memory;

static struct shared *shared_of(weft_coll *coll) {
    return (struct shared *)coll;
}

/* ----------------------------------------------------------------------------- open, close --- */

static void free_shared(weft_coll *coll) {
    struct shared *group = shared_of(coll);
    size_t bytes = 2 * coll->n_ranks * coll->part_stride + coll->board_bytes;
    if (coll->parts) (void)munmap(coll->parts, bytes);
    if (group->header) (void)munmap(group->header, HEADER_BYTES);
    if (group->fd >= 0) (void)close(group->fd);
    (void)pthread_mutex_destroy(&coll->reserving);
    free(group);
}

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
    uint32_t cpus[WEFT_CPUS_MAX];
    int fd = memfd_create("weft-collective", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return weft_err_errno(why, errno, "cannot make the memory of a group");
    /* Nobody can take pages away that others have mapped. */
    if (ftruncate(fd, HEADER_BYTES) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
        header = mmap(NULL, HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED) {
        err = weft_err_errno(why, errno, "cannot map the memory of a group");
        goto cleanup;
    }
    memcpy(header->magic, MAGIC, sizeof header->magic);
    header->version = VERSION;
    header->n_ranks = n_ranks;
    header->shares_cpus = weft_cpu_allowed(cpus) < n_ranks;
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

static bool cannot_shrink(int fd) {
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK);
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
    struct shared *group = calloc(1, sizeof *group);
    if (!group) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a group");
    group->base = (struct weft_coll){.way = &in_shared_memory, .wait_ms_max = wait_ms_max};
    (void)pthread_mutex_init(&group->base.reserving, NULL);
    group->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (group->fd >= 0)
        group->header = mmap(NULL, HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, group->fd, 0);
    if (group->fd < 0 || group->header == MAP_FAILED) {
        err = weft_err_errno(why, errno, "cannot map the memory of a group");
        group->header = NULL;
        goto cleanup;
    }
    if (!cannot_shrink(group->fd) || !is_segment(group->header)) {
        err = weft_err_set(why, WEFT_E_PROTO,
                           "this is not the memory of a group, or that of another version");
        goto cleanup;
    }
    group->base.n_ranks = group->header->n_ranks;
    /* Ranks that share CPUs want those for which they wait. */
    group->spins = group->header->shares_cpus ? 1 : SPINS;
    for (uint32_t i = 0; i < group->base.n_ranks; i++) {
        group->base.arrived[i] = &group->header->ranks[i].arrived;
        group->base.figures[i] = group->header->ranks[i].figures;
    }
    *coll_out = &group->base;
    group = NULL;
cleanup:
    if (group) free_shared(&group->base);
    return err;
}

/* --------------------------------------------------------------------------------- the end --- */

static void wake(_Atomic uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The first reason is everybody's. */
static void end_group(struct shared *group, enum end end, uint32_t rank) {
    uint32_t none = END_NONE, reason = (uint32_t)end | rank << END_BITS;
    if (!atomic_compare_exchange_strong(&group->header->ended, &none, reason)) return;
    for (uint32_t i = 0; i < group->base.n_ranks; i++)
        wake(&group->header->ranks[i].arrived);
}

static void abort_shared(weft_coll *coll) {
    end_group(shared_of(coll), END_ABORTED, 0);
}

/* OK while it goes on. */
static weft_err check_ended(const struct shared *group, struct weft_errmsg *why) {
    uint32_t ended = atomic_load_explicit(&group->header->ended, memory_order_acquire);
    if (ended == END_NONE) return WEFT_OK;
    uint32_t rank = ended >> END_BITS;
    switch (ended & ((1u << END_BITS) - 1)) {
    case END_DIED:
        return weft_err_set(why, WEFT_E_CLOSED, "rank %u of the group has died", rank);
    case END_LEFT:
        return weft_err_set(why, WEFT_E_CLOSED, "rank %u has left the group", rank);
    case END_LATE:
        return weft_err_set(why, WEFT_E_TIMEOUT, "rank %u of the group has not come within %u ms",
                            rank, group->base.wait_ms_max);
    default:
        return weft_err_set(why, WEFT_E_CLOSED, "the group was ended");
    }
}

/* ----------------------------------------------------------------------------- join, leave --- */

static weft_err join_shared(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    struct rank *own = &shared_of(coll)->header->ranks[rank];
    uint32_t none = STATE_NONE;
    /* Alive first, known as joined later: so nobody finds one without the other. */
    int failure = pthread_mutex_trylock(&own->life);
    bool is_first = !failure && atomic_compare_exchange_strong(&own->state, &none, STATE_JOINED);
    if (is_first) return WEFT_OK;
    if (!failure) (void)pthread_mutex_unlock(&own->life);
    return weft_err_set(why, WEFT_E_STATE, "rank %u of the group was taken before", rank);
}

static void leave_shared(weft_coll *coll, uint32_t rank) {
    struct rank *own = &shared_of(coll)->header->ranks[rank];
    atomic_store(&own->state, STATE_LEFT);
    /* It is this thread that joined; but all ranks may write there. */
    if (pthread_mutex_unlock(&own->life) != 0) abort_shared(coll);
    wake(&own->arrived);
}

/* Ends the group if a peer is gone for good. */
static void look_after(struct shared *group, uint32_t peer) {
    struct rank *theirs = &group->header->ranks[peer];
    uint32_t state = atomic_load(&theirs->state);
    if (state == STATE_LEFT) end_group(group, END_LEFT, peer);
    if (state != STATE_JOINED) return; /* it has yet to come */
    int failure = pthread_mutex_trylock(&theirs->life);
    if (failure == EBUSY) return;
    /* A mutex that its dead owner held stays unusable when it is unlocked as it is. */
    bool is_dead = failure == EOWNERDEAD || failure == ENOTRECOVERABLE;
    if (failure == 0 || failure == EOWNERDEAD) (void)pthread_mutex_unlock(&theirs->life);
    if (is_dead) end_group(group, END_DIED, peer);
}

/* Those who wait as well: it may be for long. */
static void look_after_peers(struct shared *group, uint32_t rank) {
    for (uint32_t i = 0; i < group->base.n_ranks; i++) {
        if (i != rank) look_after(group, i);
    }
}

static weft_err check_shared(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    look_after_peers(shared_of(coll), rank);
    return check_ended(shared_of(coll), why);
}

/* --------------------------------------------------------------------------------- reserve --- */

/* The size that the first one asked for. */
static uint64_t agree(_Atomic uint64_t *size, uint64_t wanted) {
    uint64_t none = 0;
    return atomic_compare_exchange_strong(size, &none, wanted) ? wanted : none;
}

/* Pages are counted for those who write them. */
static size_t own_bytes_shared(const weft_coll *coll, size_t part_bytes, size_t board_bytes) {
    return 2 * part_bytes + board_bytes / coll->n_ranks;
}

static weft_err reserve_shared(weft_coll *coll, size_t part_bytes, size_t board_bytes,
                               struct weft_errmsg *why) {
    struct shared *group = shared_of(coll);
    uint64_t part = agree(&group->header->part_bytes, part_bytes);
    uint64_t board = agree(&group->header->board_bytes, board_bytes);
    if (part != part_bytes || board != board_bytes)
        return weft_err_set(why, WEFT_E_STATE, WEFTI_COLL_DIFFER, (size_t)part, (size_t)board,
                            part_bytes, board_bytes);
    size_t bytes = 2 * coll->n_ranks * part_bytes + board_bytes;
    if (ftruncate(group->fd, (off_t)(HEADER_BYTES + bytes)) != 0) /* to the same size by all */
        return weft_err_errno(why, errno, "cannot size the memory of a group to %zu bytes", bytes);
    (void)fcntl(group->fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL); /* unless another rank has */
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, group->fd, HEADER_BYTES);
    if (data == MAP_FAILED)
        return weft_err_errno(why, errno, "cannot map %zu bytes of a group", bytes);
    coll->parts = data;
    coll->part_stride = part_bytes;
    coll->board = data + 2 * coll->n_ranks * part_bytes;
    return WEFT_OK;
}

/* -------------------------------------------------------------------------------- meetings --- */

/* Whether a count has come to `meeting`, however often it went round. */
static bool has_come(uint32_t arrived, uint32_t meeting) {
    return (int32_t)(arrived - meeting) >= 0;
}

static bool spin_for(const struct shared *group, struct rank *peer, uint32_t meeting) {
    for (uint32_t i = 0; i < group->spins; i++) {
        if (has_come(atomic_load_explicit(&peer->arrived, memory_order_acquire), meeting))
            return true;
        if (atomic_load_explicit(&group->header->ended, memory_order_relaxed)) return false;
        weft_cpu_pause();
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

/* For something to do, if the visit is idle, which may take any time. */
static weft_err wait_for(struct shared *group, const struct wefti_coll_visit *visit,
                         uint32_t peer_idx, uint32_t meeting, struct weft_errmsg *why) {
    uint32_t rank = visit->rank;
    bool is_idle = visit->is_idle;
    struct rank *peer = &group->header->ranks[peer_idx];
    uint64_t since_ms = 0;
    bool has_met = spin_for(group, peer, meeting);
    while (!has_met) {
        weft_err err = check_ended(group, why);
        if (err) return has_come(atomic_load(&peer->arrived), meeting) ? WEFT_OK : err;
        has_met = sleep_for(peer, meeting, is_idle ? IDLE_MS : SLICE_MS);
        if (has_met) break;
        uint64_t now_ms = weft_now_ms();
        if (since_ms == 0) since_ms = now_ms;
        look_after_peers(group, rank);
        if (!is_idle && group->base.wait_ms_max > 0 && now_ms - since_ms >= group->base.wait_ms_max)
            end_group(group, END_LATE, peer_idx);
    }
    return WEFT_OK;
}

/* A peer that came and died since is met all the same: what it wrote is whole. */
static weft_err meet_shared(weft_coll *coll, const struct wefti_coll_visit *visit,
                            struct weft_errmsg *why) {
    struct shared *group = shared_of(coll);
    uint32_t rank = visit->rank;
    struct rank *own = &group->header->ranks[rank];
    weft_err err = check_ended(group, why);
    if (err) return err;
    uint32_t meeting = atomic_load_explicit(&own->arrived, memory_order_relaxed) + 1;
    atomic_store(&own->arrived, meeting);
    if (atomic_load(&own->n_sleepers) > 0) wake(&own->arrived);
    for (uint32_t i = 1; i < coll->n_ranks && !err; i++)
        err = wait_for(group, visit, (rank + i) % coll->n_ranks, meeting, why);
    return err;
}

static const struct wefti_coll_way in_shared_memory = {
    .close = free_shared,
    .join = join_shared,
    .leave = leave_shared,
    .reserve = reserve_shared,
    .own_bytes = own_bytes_shared,
    .abort = abort_shared,
    .check = check_shared,
    .meet = meet_shared,
};
