/* A group whose ranks mpirun has started, on one machine or on several. Each has a copy of the
 * group's memory; a meeting is a message from everybody to everybody, which carries what its sender
 * wrote: a head, and behind it the begin of its part, or rows of the board. A part's head lies
 * before it in memory, so it is sent and received in place; rows are packed and unpacked.
 *
 * The library's own calls that wait take a CPU until they are done. Nothing here waits in them, but
 * looks again and again: at once for a while, then asleep for ever longer. Calls are made by one
 * thread at a time: by whoever meets, joins or leaves. Another thread that ends the group only sets
 * a flag, which that one reads.
 *
 * A rank that is lost is lost to mpirun first, which says so and ends the job. What ranks notice
 * themselves ends it as well, with a sentence in the log. */
#include <mpi.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "collective_internal.h"

/* The checker looks for the wait in the function that begins to send or receive. */
/* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */

enum {
    VERSION = 1,
    HEAD_BYTES = 128,     /* parts behind it begin at 64 bytes */
    SPIN_NS = 200 * 1000, /* about what a message takes */
    SLEEP_PART = 8,     /* asleep for this part of the time waited so far: so much later at most */
    SLEEP_NS = 1000000, /* but not for longer, */
    IDLE_NS = 5 * 1000000, /* or, with nothing to do, than this: 200 looks a second */
};

enum tag { TAG_PART, TAG_BOARD, TAG_LEFT };

/* All heads say for what memory they are: a rank of another model is found at the first meeting. */
struct head {
    uint32_t version, meeting, n_rows, reserved;
    uint64_t part_bytes, board_bytes; /* what the sender has room for */
    uint64_t board_at, row_bytes, row_stride;
    uint64_t figures[WEFT_COLL_FIGURES];
};
_Static_assert(sizeof(struct head) <= HEAD_BYTES, "a head has room before a part");

/* What comes from a peer in a meeting. */
enum progress { AWAITED, COMING, HERE };
struct incoming {
    enum progress progress;
    bool is_board;
    size_t n_bytes;
    MPI_Request request;
};

enum state { STATE_NONE, STATE_JOINED, STATE_LEFT };

struct mpi {
    struct weft_coll base;
    uint32_t rank;
    enum state state;
    _Atomic bool is_ended; /* by a thread of this process */
    _Atomic uint32_t arrived;
    _Atomic uint64_t figures[WEFT_COLL_RANKS_MAX][WEFT_COLL_FIGURES];
    uint8_t *packed; /* by rank, packed_stride apart: rows on their way to or from the board */
    size_t packed_stride;
    void *map;
    size_t map_bytes;
    struct incoming incoming[WEFT_COLL_RANKS_MAX];
    MPI_Request sent[WEFT_COLL_RANKS_MAX];
};

static struct mpi *mpi_of(weft_coll *coll) {
    return (struct mpi *)coll;
}

/* --------------------------------------------------------------------------------- the end --- */

static _Noreturn void end_job(const struct weft_errmsg *why) {
    weft_error("%s: this ends the job", why->text);
    (void)MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    _Exit(EXIT_FAILURE);
}

/* A call that the library refused. */
static void check_call(int status, uint32_t peer) {
    char text[MPI_MAX_ERROR_STRING] = "";
    struct weft_errmsg why;
    int len = 0;
    if (status == MPI_SUCCESS) return;
    (void)MPI_Error_string(status, text, &len);
    (void)weft_err_set(&why, WEFT_E_IO, "rank %u of the group cannot be reached: %s", peer, text);
    end_job(&why);
}

static void abort_mpi(weft_coll *coll) {
    atomic_store(&mpi_of(coll)->is_ended, true);
}

/* --------------------------------------------------------------------------------- waiting --- */

struct wait {
    uint64_t since_ns;
    bool is_idle; /* it may take any time */
};

static struct wait wait_begin(bool is_idle) {
    return (struct wait){.since_ns = weft_now_ns(), .is_idle = is_idle};
}

/* Between one look and the next. Ends the job where `peer` is awaited for too long. */
static void wait_on(const struct mpi *group, const struct wait *wait, uint32_t peer) {
    uint64_t waited = weft_now_ns() - wait->since_ns;
    uint32_t wait_ms_max = group->base.wait_ms_max;
    if (waited < SPIN_NS) return;
    if (!wait->is_idle && wait_ms_max > 0 && waited / 1000000 >= wait_ms_max) {
        struct weft_errmsg why;
        (void)weft_err_set(&why, WEFT_E_TIMEOUT, "rank %u of the group has not come within %u ms",
                           peer, wait_ms_max);
        end_job(&why);
    }
    uint64_t asleep = weft_min_u64(waited / SLEEP_PART, wait->is_idle ? IDLE_NS : SLEEP_NS);
    const struct timespec time = {.tv_nsec = (long)asleep};
    (void)nanosleep(&time, NULL);
}

/* ----------------------------------------------------------------------------- join, leave --- */

static weft_err join_mpi(weft_coll *coll, uint32_t rank, struct weft_errmsg *why) {
    struct mpi *group = mpi_of(coll);
    if (rank != group->rank)
        return weft_err_set(why, WEFT_E_STATE, "rank %u of the group is another process", rank);
    if (group->state != STATE_NONE)
        return weft_err_set(why, WEFT_E_STATE, "rank %u of the group was taken before", rank);
    group->state = STATE_JOINED;
    return WEFT_OK;
}

/* Who waits for this rank hears of it. */
static void leave_mpi(weft_coll *coll, uint32_t rank) {
    struct mpi *group = mpi_of(coll);
    WEFT_ASSERT(rank == group->rank && group->state == STATE_JOINED);
    group->state = STATE_LEFT;
    for (uint32_t i = 0; i < coll->n_ranks && !atomic_load(&group->is_ended); i++) {
        if (i != rank)
            check_call(
                MPI_Isend(NULL, 0, MPI_BYTE, (int)i, TAG_LEFT, MPI_COMM_WORLD, &group->sent[i]), i);
    }
}

/* ------------------------------------------------------------------------------------ send --- */

static void fill_head(struct mpi *group, const struct weft_coll_wrote *wrote, void *out) {
    struct head head = {
        .version = VERSION,
        .meeting = atomic_load(&group->arrived) + 1,
        .n_rows = wrote->n_rows,
        .part_bytes = group->base.part_bytes,
        .board_bytes = group->base.board_bytes,
        .board_at = wrote->board_at,
        .row_bytes = wrote->row_bytes,
        .row_stride = wrote->row_stride,
    };
    for (uint32_t i = 0; i < WEFT_COLL_FIGURES; i++)
        head.figures[i] = atomic_load(&group->figures[group->rank][i]);
    memcpy(out, &head, sizeof head);
}

static uint8_t *packed_of(const struct mpi *group, uint32_t rank) {
    return group->packed + rank * group->packed_stride;
}

static void send_all(struct mpi *group, const struct weft_coll_wrote *wrote) {
    uint32_t meeting = atomic_load(&group->arrived) + 1;
    bool is_board = wrote->n_rows > 0;
    uint8_t *message = wefti_coll_part_at(&group->base, group->rank, meeting) - HEAD_BYTES;
    size_t n_bytes = HEAD_BYTES + wrote->part_bytes;
    if (is_board) {
        message = packed_of(group, group->rank);
        n_bytes = HEAD_BYTES + wrote->n_rows * wrote->row_bytes;
        for (uint32_t i = 0; i < wrote->n_rows; i++)
            memcpy(message + HEAD_BYTES + i * wrote->row_bytes,
                   group->base.board + wrote->board_at + i * wrote->row_stride, wrote->row_bytes);
    }
    fill_head(group, wrote, message);
    for (uint32_t i = 0; i < group->base.n_ranks; i++) {
        if (i == group->rank) continue;
        check_call(MPI_Isend(message, (int)n_bytes, MPI_BYTE, (int)i,
                             is_board ? TAG_BOARD : TAG_PART, MPI_COMM_WORLD, &group->sent[i]),
                   i);
    }
}

static bool is_sent(struct mpi *group, uint32_t peer) {
    int is_done = 0;
    check_call(MPI_Test(&group->sent[peer], &is_done, MPI_STATUS_IGNORE), peer);
    return is_done;
}

/* --------------------------------------------------------------------------------- receive --- */

static void receive(struct mpi *group, uint32_t peer, MPI_Message *message,
                    const MPI_Status *status) {
    struct incoming *in = &group->incoming[peer];
    struct weft_errmsg why;
    int n_bytes = 0;
    (void)MPI_Get_count(status, MPI_BYTE, &n_bytes);
    if (status->MPI_TAG == TAG_LEFT) {
        (void)weft_err_set(&why, WEFT_E_CLOSED, "rank %u has left the group", peer);
        end_job(&why);
    }
    in->is_board = status->MPI_TAG == TAG_BOARD;
    in->n_bytes = (size_t)n_bytes;
    size_t room = HEAD_BYTES + (in->is_board ? group->base.board_bytes : group->base.part_bytes);
    if (n_bytes < HEAD_BYTES || in->n_bytes > room) {
        (void)weft_err_set(&why, WEFT_E_STATE,
                           "the ranks of the group differ in model or options: rank %u sends %zu "
                           "bytes where %zu have room",
                           peer, in->n_bytes, room);
        end_job(&why);
    }
    uint32_t meeting = atomic_load(&group->arrived) + 1;
    uint8_t *to = in->is_board ? packed_of(group, peer)
                               : wefti_coll_part_at(&group->base, peer, meeting) - HEAD_BYTES;
    check_call(MPI_Imrecv(to, n_bytes, MPI_BYTE, message, &in->request), peer);
    in->progress = COMING;
}

/* Whether its rows are as many bytes as it has, and lie on the board. */
static bool fits(const struct mpi *group, const struct incoming *in, const struct head *head) {
    size_t board = group->base.board_bytes, n_rows = head->n_rows;
    if (!in->is_board) return n_rows == 0;
    if (n_rows == 0 || head->row_bytes > board || head->board_at > board - head->row_bytes)
        return false;
    if (in->n_bytes - HEAD_BYTES != n_rows * head->row_bytes) return false;
    size_t left = board - head->row_bytes - head->board_at;
    return n_rows == 1 || head->row_stride <= left / (n_rows - 1);
}

static void take(struct mpi *group, uint32_t peer) {
    const struct incoming *in = &group->incoming[peer];
    const struct weft_coll *base = &group->base;
    uint32_t meeting = atomic_load(&group->arrived) + 1;
    const uint8_t *message = in->is_board ? packed_of(group, peer)
                                          : wefti_coll_part_at(base, peer, meeting) - HEAD_BYTES;
    struct weft_errmsg why;
    struct head head;
    memcpy(&head, message, sizeof head);
    if (head.version != VERSION) {
        (void)weft_err_set(&why, WEFT_E_PROTO, "rank %u of the group is of another version", peer);
        end_job(&why);
    }
    if (head.part_bytes != base->part_bytes || head.board_bytes != base->board_bytes) {
        (void)weft_err_set(&why, WEFT_E_STATE, WEFTI_COLL_DIFFER, (size_t)head.part_bytes,
                           (size_t)head.board_bytes, base->part_bytes, base->board_bytes);
        end_job(&why);
    }
    if (head.meeting != meeting || !fits(group, in, &head)) {
        (void)weft_err_set(&why, WEFT_E_PROTO,
                           "rank %u of the group came to meeting %u with %zu bytes, which is not "
                           "what meeting %u is about",
                           peer, head.meeting, in->n_bytes, meeting);
        end_job(&why);
    }
    for (uint32_t i = 0; i < head.n_rows; i++)
        memcpy(base->board + head.board_at + i * head.row_stride,
               message + HEAD_BYTES + i * head.row_bytes, head.row_bytes);
    for (uint32_t i = 0; i < WEFT_COLL_FIGURES; i++)
        atomic_store(&group->figures[peer][i], head.figures[i]);
}

/* Looks once. True: it has come further. */
static bool look_for(struct mpi *group, uint32_t peer) {
    struct incoming *in = &group->incoming[peer];
    int is_there = 0;
    if (in->progress == AWAITED) {
        MPI_Message message;
        MPI_Status status;
        check_call(
            MPI_Improbe((int)peer, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &message, &status),
            peer);
        if (is_there) receive(group, peer, &message, &status);
    } else if (in->progress == COMING) {
        check_call(MPI_Test(&in->request, &is_there, MPI_STATUS_IGNORE), peer);
        if (is_there) take(group, peer);
        if (is_there) in->progress = HERE;
    }
    return is_there;
}

/* Receives from all peers while sends go on, until both are done. */
static weft_err exchange(struct mpi *group, bool is_idle, struct weft_errmsg *why) {
    struct wait wait = wait_begin(is_idle);
    for (;;) {
        uint32_t awaited = group->rank; /* or one that is not done */
        bool has_moved = false;
        for (uint32_t i = 0; i < group->base.n_ranks; i++) {
            if (i == group->rank) continue;
            if (look_for(group, i)) has_moved = true;
            if (group->incoming[i].progress != HERE || !is_sent(group, i)) awaited = i;
        }
        if (awaited == group->rank) return WEFT_OK;
        if (atomic_load(&group->is_ended)) break;
        if (has_moved)
            wait = wait_begin(is_idle);
        else
            wait_on(group, &wait, awaited);
    }
    return weft_err_set(why, WEFT_E_CLOSED, "the group was ended");
}

static weft_err meet_mpi(weft_coll *coll, const struct wefti_coll_visit *visit,
                         struct weft_errmsg *why) {
    struct mpi *group = mpi_of(coll);
    WEFT_ASSERT(visit->rank == group->rank && group->state == STATE_JOINED && coll->parts);
    WEFT_ASSERT(visit->wrote.part_bytes == 0 || visit->wrote.n_rows == 0);
    if (atomic_load(&group->is_ended))
        return weft_err_set(why, WEFT_E_CLOSED, "the group was ended");
    for (uint32_t i = 0; i < coll->n_ranks; i++)
        group->incoming[i] = (struct incoming){.progress = AWAITED};
    send_all(group, &visit->wrote);
    weft_err err = exchange(group, visit->is_idle, why);
    atomic_fetch_add(&group->arrived, 1);
    return err;
}

/* --------------------------------------------------------------------------------- reserve --- */

/* All parts and rows, and rows once more on their way. */
static size_t own_bytes_mpi(const weft_coll *coll, size_t part_bytes, size_t board_bytes) {
    return 2 * coll->n_ranks * (HEAD_BYTES + part_bytes) + 2 * board_bytes;
}

/* Nobody is asked: whose sizes differ is found at the first meeting. */
static weft_err reserve_mpi(weft_coll *coll, size_t part_bytes, size_t board_bytes,
                            struct weft_errmsg *why) {
    struct mpi *group = mpi_of(coll);
    size_t most = INT_MAX - HEAD_BYTES, n = coll->n_ranks;
    if (part_bytes > most || board_bytes > most)
        return weft_err_set(why, WEFT_E_TOOBIG,
                            "a message of MPI has at most %zu bytes, and the group wants to share "
                            "%zu and %zu at once",
                            most, part_bytes, board_bytes);
    size_t parts = 2 * n * (HEAD_BYTES + part_bytes), packed = n * (HEAD_BYTES + board_bytes);
    size_t bytes = parts + board_bytes + packed;
    uint8_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %zu bytes of a group", bytes);
    group->map = map;
    group->map_bytes = bytes;
    coll->parts = map + HEAD_BYTES;
    coll->part_stride = HEAD_BYTES + part_bytes;
    coll->board = map + parts;
    group->packed = map + parts + board_bytes;
    group->packed_stride = HEAD_BYTES + board_bytes;
    return WEFT_OK;
}

/* ----------------------------------------------------------------------------- open, close --- */

/* Until all have left, too, as far as they were there. */
static void part_from_all(struct mpi *group) {
    for (uint32_t i = 0; i < group->base.n_ranks; i++) {
        struct wait wait = wait_begin(false);
        int has_left = i == group->rank;
        while (!has_left) {
            check_call(MPI_Iprobe((int)i, TAG_LEFT, MPI_COMM_WORLD, &has_left, MPI_STATUS_IGNORE),
                       i);
            if (!has_left) wait_on(group, &wait, i);
        }
        if (i == group->rank) continue;
        check_call(MPI_Recv(NULL, 0, MPI_BYTE, (int)i, TAG_LEFT, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                   i);
        check_call(MPI_Wait(&group->sent[i], MPI_STATUS_IGNORE), i);
    }
}

static void close_mpi(weft_coll *coll) {
    struct mpi *group = mpi_of(coll);
    if (group->state != STATE_LEFT || atomic_load(&group->is_ended)) {
        weft_warn("rank %u of the group ends, and the job with it", group->rank);
        (void)MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE); /* the others wait */
        _Exit(EXIT_FAILURE);
    }
    part_from_all(group);
    (void)MPI_Finalize();
    if (group->map) (void)munmap(group->map, group->map_bytes);
    (void)pthread_mutex_destroy(&coll->reserving);
    free(group);
}

static const struct wefti_coll_way by_messages = {
    .close = close_mpi,
    .join = join_mpi,
    .leave = leave_mpi,
    .reserve = reserve_mpi,
    .own_bytes = own_bytes_mpi,
    .abort = abort_mpi,
    .meet = meet_mpi,
};

/* Refuses what all ranks refuse alike: nobody waits for anybody. */
static weft_err start_mpi(int *n_ranks_out, struct weft_errmsg *why) {
    int is_running = 0, level = 0, n_ranks = 0;
    (void)MPI_Initialized(&is_running);
    if (is_running) return weft_err_set(why, WEFT_E_STATE, "a process is of one group of MPI");
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
        return weft_err_set(why, WEFT_E_IO, "MPI does not start");
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    *n_ranks_out = n_ranks;
    weft_err err = WEFT_OK;
    if (level < MPI_THREAD_SERIALIZED)
        err = weft_err_set(why, WEFT_E_UNSUPPORTED,
                           "this MPI is for one thread, and the ranks of a group have several");
    else if (n_ranks < 0 || !weft_coll_may_have((uint32_t)n_ranks))
        err = weft_err_set(why, WEFT_E_INVAL,
                           "a group has 1, 2, 4 or 8 ranks, and mpirun has started %d", n_ranks);
    if (err) (void)MPI_Finalize();
    return err;
}

weft_err weft_coll_open_mpi(uint32_t wait_ms_max, weft_coll **coll_out, uint32_t *rank_out,
                            struct weft_errmsg *why) {
    int n_ranks = 0, rank = 0;
    *coll_out = NULL;
    *rank_out = 0;
    struct mpi *group = calloc(1, sizeof *group);
    if (!group) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a group");
    weft_err err = start_mpi(&n_ranks, why);
    if (err) {
        free(group);
        return err;
    }
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    group->base = (struct weft_coll){
        .way = &by_messages, .n_ranks = (uint32_t)n_ranks, .wait_ms_max = wait_ms_max};
    (void)pthread_mutex_init(&group->base.reserving, NULL);
    group->rank = (uint32_t)rank;
    for (uint32_t i = 0; i < group->base.n_ranks; i++) {
        group->base.arrived[i] = &group->arrived;
        group->base.figures[i] = group->figures[i];
    }
    *coll_out = &group->base;
    *rank_out = group->rank;
    return WEFT_OK;
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */
