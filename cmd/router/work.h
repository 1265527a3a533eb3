/* work — what takes too long for the loop, done by libuv's threads, in an order of our own.
 *
 * Why      libuv's queue is first come, first served: a dozen bodies of many megabytes would stand
 *          in front of everybody's prompts for half a minute. So only as many jobs as there are
 *          threads are given to it, and the next is chosen when one comes back.
 * Order    The shortest first, with ageing: a job's rank is the time it came plus what its bytes
 *          weigh, so that nobody is overtaken for ever.
 * Large    Of jobs over WEFT_WORK_LARGE_BYTES one runs at a time: the other threads stay free for
 *          the small ones, and the scratch memory of one such job is all there ever is.
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
/* A job that came a second later goes first if it is smaller by more than 250 kB. A core gets
 * through some four times as much in that time, so a queue that grows grows old jobs first. */
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

TAILQ_HEAD(work_list, work); /* in the order of their ranks */

struct work_queue {
    uv_loop_t *loop;
    struct work_list small, large;
    uint32_t n_running;
    bool runs_large;
};

void wefti_work_init(struct work_queue *queue, uv_loop_t *loop);

/* Cannot fail; `run` and `done` are set. */
void wefti_work_add(struct work_queue *queue, struct work *work, uint64_t bytes, uint64_t now_ms);

/* True: it had not begun and never will, `done` is not called. False: it runs, or is idle. */
bool wefti_work_cancel(struct work *work);

/* Between the halves of work.c, and for its test: takes the job that is to run next off its list;
 * NULL: there is none, or none that may run now. */
struct work *wefti_work_take(struct work_queue *queue);
void wefti_work_put(struct work_queue *queue, struct work *work, uint64_t bytes, uint64_t now_ms);

#endif
