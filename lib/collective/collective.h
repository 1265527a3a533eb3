/* collective — sums and meetings of the ranks of a group, in a segment of shared memory or by MPI.
 *
 * Model    A group has 1, 2, 4 or 8 ranks, which compute the same steps on shares of one model.
 *          Where a sum is divided among them, it has 8 segments (docs/architecture.md, "Batch
 *          invariance"), of which rank r of R owns 8r/R .. 8(r+1)/R. It joins its own by the fixed
 *          tree and puts the result into its part; weft_coll_sum joins the parts by what is left of
 *          the tree. So the bits are the same for any R. A segment that is empty has no value and
 *          is passed over, and so is a rank of which all are.
 * Meeting  Everything goes through weft_coll_meet, a barrier. What a rank wrote before it, all see
 *          after it. Each rank has two parts and writes them in turn, before every other meeting: a
 *          rank that writes again has met everybody who read what it overwrites.
 *
 *              part = weft_coll_part(coll, rank);      ... fill it
 *              weft_coll_meet(coll, rank, &wrote, why);
 *              weft_coll_sum(coll, rank, &what, out);  ... by any number of threads
 *
 * Shared   Ranks on one machine map a memfd: one page of header, then 2 x R parts of part_bytes,
 *          then the board. In the header every rank has lines of its own:
 *            arrived     how many meetings it came to. Written by its rank (release), read by all
 *                        (acquire); these are all the pairs that order the other memory.
 *            n_sleepers  who sleeps on `arrived`. The rank writes `arrived` and then reads
 *                        n_sleepers, a sleeper the other way round, both sequentially consistent:
 *                        at least one of them sees the other.
 *            life        a robust mutex that the rank holds from joining to leaving. The kernel
 *                        gives it back with a mark when its thread ends, however it died.
 *          and all have `ended`: 0, or why the group is over. It is written once.
 * MPI      Ranks that mpirun has started are processes with copies of the same memory. A meeting
 *          sends everybody what a rank says that it wrote. The end of the group is that of the job:
 *          who notices it writes a sentence to the log and aborts, and mpirun ends all ranks with a
 *          status that is not 0.
 * Waiting  First by a bounded spin, then asleep on a futex, for 50 ms at a time, or 250 if there is
 *          nothing to do. In between a waiter looks whether the group has ended and whether all of
 *          its peers are alive; so the death of a peer that has joined is noticed in that time. Who
 *          has yet to join is waited for: whoever starts the ranks watches them until then. A peer
 *          that is stopped is alive. Who finds a peer dead, or has waited for too long, ends the
 *          group, and everybody who waits, or ever will, gets an error. There is no way back: a new
 *          group takes a new segment. With MPI a waiter looks again and again, asleep in between for
 *          up to 1 ms, or 5 if there is nothing to do.
 * Threads  Several ranks may be threads of one process and share a weft_coll, but not with MPI. A
 *          rank joins and leaves in one thread, which must live as long as the rank does. It meets
 *          in any thread, one at a time; `abort` may be called by any thread at any time. The rest
 *          only reads.
 * Memory   The segment is a memfd, which has no name: nothing is left of it when its last process
 *          ends. Its pages are resident as far as they were ever written.
 * Costs    A meeting of ranks that arrive together takes some microseconds. A sum reads R parts:
 *          each rank sums for itself, so that one meeting is enough. */
#ifndef WEFT_COLLECTIVE_H
#define WEFT_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define WEFT_COLL_RANKS_MAX 8u
#define WEFT_COLL_SEGMENTS 8u
#define WEFT_COLL_FIGURES 8u
#define WEFT_COLL_PART_BYTES_MIN 1024u

typedef struct weft_coll weft_coll;

/* Whether a group may have so many ranks. */
static inline bool weft_coll_may_have(uint32_t n_ranks) {
    return n_ranks == 1 || n_ranks == 2 || n_ranks == 4 || n_ranks == 8;
}

/* The segments of a rank: begin .. begin of the next one. */
static inline uint32_t weft_coll_first_segment(uint32_t rank, uint32_t n_ranks) {
    return rank * WEFT_COLL_SEGMENTS / n_ranks;
}

/* Makes the segment of a group: a memfd, closed on exec, the caller's. INVAL, IO, NOMEM. */
WEFT_MUST_CHECK weft_err weft_coll_create(uint32_t n_ranks, int *fd_out, struct weft_errmsg *why);

/* Maps a segment; `fd` stays the caller's and may be closed. A waiter gives up after wait_ms_max;
 * 0: never. *coll_out is the caller's. PROTO: it is none, or one of another version. IO, NOMEM. */
WEFT_MUST_CHECK weft_err weft_coll_open(int fd, uint32_t wait_ms_max, weft_coll **coll_out,
                                        struct weft_errmsg *why);
/* The group that mpirun has started, of which this process is one rank. Once in the life of a
 * process, and closed by the thread that opened it, when all ranks have left: one that closes
 * without leaving, or after an abort, ends the job. UNSUPPORTED: it was built without MPI, or the
 * MPI is for one thread alone. INVAL: so many ranks are no group. */
WEFT_MUST_CHECK weft_err weft_coll_open_mpi(uint32_t wait_ms_max, weft_coll **coll_out,
                                            uint32_t *rank_out, struct weft_errmsg *why);
/* Accepts NULL. Ranks of this process have left. */
void weft_coll_close(weft_coll *coll);

uint32_t weft_coll_n_ranks(const weft_coll *coll);

/* Takes a rank, once in the life of a segment. STATE: it was taken before. */
WEFT_MUST_CHECK weft_err weft_coll_join(weft_coll *coll, uint32_t rank, struct weft_errmsg *why);
/* By the thread that joined. Those that meet without it get an error. */
void weft_coll_leave(weft_coll *coll, uint32_t rank);

/* Figures that a rank tells, and anybody may ask for at any time: the last one told (with MPI: before
 * the last meeting), 0 before. */
void weft_coll_tell(weft_coll *coll, uint32_t rank, uint32_t which, uint64_t figure);
uint64_t weft_coll_told(const weft_coll *coll, uint32_t rank, uint32_t which);

/* How large parts and board are: decided by the first rank that asks, and the same for all; parts
 * have WEFT_COLL_PART_BYTES_MIN at least. Not while other threads use `coll` for anything else but
 * this. STATE: another rank wants another size (it has another model, or other options). IO, NOMEM.
 */
WEFT_MUST_CHECK weft_err weft_coll_reserve(weft_coll *coll, size_t part_bytes, size_t board_bytes,
                                           struct weft_errmsg *why);

/* What this process has, or writes, of the memory that these sizes would take. */
size_t weft_coll_own_bytes(const weft_coll *coll, size_t part_bytes, size_t board_bytes);

/* Ends the group: everybody who waits, or ever will, gets CLOSED. */
void weft_coll_abort(weft_coll *coll);

/* Whether the group goes on and all peers live, for a rank that waits in no meeting: what one that
 * does would look at. By any thread. CLOSED, TIMEOUT: it is over. With MPI always OK: whoever hears of
 * its end has ended. */
WEFT_MUST_CHECK weft_err weft_coll_check(weft_coll *coll, uint32_t rank, struct weft_errmsg *why);

/* The rank that came to the fewest meetings, for which those wait that came to more; `rank` if none is
 * behind it. With MPI always `rank`. By any thread. */
uint32_t weft_coll_awaited(const weft_coll *coll, uint32_t rank);

/* What a rank wrote since its last meeting, for others to read after the next one: the first bytes
 * of its part, and rows of the board. In shared memory they would see the rest, too; nowhere else. */
struct weft_coll_wrote {
    size_t part_bytes;
    size_t board_at, row_bytes, row_stride;
    uint32_t n_rows;
};
/* Waits until all ranks have come as often as this one. wrote == NULL: nothing. CLOSED: the group is
 * over, since a peer died or left, or somebody ended it. TIMEOUT: a peer did not come in time. */
WEFT_MUST_CHECK weft_err weft_coll_meet(weft_coll *coll, uint32_t rank,
                                        const struct weft_coll_wrote *wrote,
                                        struct weft_errmsg *why);

/* This rank's part of what the next meeting shares: part_bytes, 64-byte aligned. */
void *weft_coll_part(const weft_coll *coll, uint32_t rank);

/* Another one's (or its own) part as the last meeting shared it, until this rank's next meeting. */
const void *weft_coll_part_of(const weft_coll *coll, uint32_t rank, uint32_t peer);

/* Memory that all ranks see, 64-byte aligned. Who may write what, and when, is theirs to agree on:
 * a meeting must lie between writing and reading, and one between reading and writing again. */
void *weft_coll_board(const weft_coll *coll);

/* Floats at .. at + n of the parts that the last meeting shared; `present` has bit s where segment
 * s is not empty, at least one. */
struct weft_coll_span {
    size_t at;
    uint32_t n;
    uint8_t present;
};
/* out[n] = their sum by the tree. */
void weft_coll_sum(const weft_coll *coll, uint32_t rank, const struct weft_coll_span *span,
                   float *out);

/* The usual way of it, for a rank of one thread: x[n] = the sum of everybody's. Errors of meet. */
WEFT_MUST_CHECK weft_err weft_coll_all_reduce(weft_coll *coll, uint32_t rank, float *x, uint32_t n,
                                              uint8_t present, struct weft_errmsg *why);

/* all[n_ranks][bytes] = everybody's `own`; bytes <= part_bytes. Errors of meet. */
WEFT_MUST_CHECK weft_err weft_coll_all_gather(weft_coll *coll, uint32_t rank, const void *own,
                                              size_t bytes, void *all, struct weft_errmsg *why);

/* Rank 0 gives bytes, of any number, to the others, all of which take: what they are to do next.
 * Who takes waits without limit, asleep: there may be nothing to do for days. Errors of meet; taken,
 * also TOOBIG, for more than the buffer may hold, which ends the group. */
WEFT_MUST_CHECK weft_err weft_coll_give(weft_coll *coll, const void *bytes, size_t len,
                                        struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err weft_coll_take(weft_coll *coll, uint32_t rank, struct weft_buf *out,
                                        struct weft_errmsg *why);

#endif
