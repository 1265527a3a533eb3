/* work — jobs too long for the loop, run by libuv's threads in an order of our own.
 *
 * Why      libuv's queue is first come, first served: a dozen bodies of many megabytes would delay
 *          everybody's prompts for half a minute. So it gets only as many jobs as it has threads,
 *          and the next is chosen when one returns.
 * Order    The shortest first, with ageing: a job's rank is its time of arrival plus a weight by
 *          its bytes, so no job is overtaken for ever.
 * Large    Only one job over `large_bytes` runs at a time: other threads stay free for
 *          small ones, and there is only one such job's scratch memory.
 * Threads  Everything but `run` belongs to the loop's thread.
 */
#ifndef WEFT_ROUTER_WORK_H
#define WEFT_ROUTER_WORK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#define WEFT_WORK_THREADS 4 /* what libuv's pool has */
#define WEFT_WORK_LARGE_BYTES (1u << 20)
/* A job that came a second later goes first if it is smaller by more than 250 kB. A core does some
 * four times as much in that time, so in a growing queue old jobs go first. */
#define WEFT_WORK_BYTES_PER_MS 250

enum work_place { WORK_IDLE, WORK_QUEUED, WORK_RUNNING };

struct work { /* part of its owner's struct; all zero to begin with */
    uv_work_t uv;
    struct work_queue *queue;
    TAILQ_ENTRY(work) entry;
    enum work_place place;
    bool is_large;
    uint64_t rank;
    void (*run)(struct work *work);  /* in a thread */
    void (*done)(struct work *work); /* afterwards; may free `work` */
};

TAILQ_HEAD(work_list, work); /* by rank */

struct work_queue {
    uv_loop_t *loop;
    struct work_list small, large;
    uint32_t n_running;
    bool runs_large;
    uint64_t large_bytes; /* of a job that is */
};

void wefti_work_init(struct work_queue *queue, uv_loop_t *loop, uint64_t large_bytes);

/* Cannot fail; `run` and `done` are set. */
void wefti_work_add(struct work_queue *queue, struct work *work, uint64_t bytes, uint64_t now_ms);

/* True: it will not begin, and `done` is not called. False: it is running or idle. */
bool wefti_work_cancel(struct work *work);

/* Internal to work.c and its test: takes the next job off its list; NULL: none, or none that may
 * run now. */
struct work *wefti_work_take(struct work_queue *queue);
void wefti_work_put(struct work_queue *queue, struct work *work, uint64_t bytes, uint64_t now_ms);

#endif
