/* engine/runtime/pool — the compute threads: a barrier, and a counter that hands out tasks.
 *
 * A run calls one function on all threads. Inside it, phases end with a barrier that all of them
 * reach, and within a phase the tasks 0, 1, 2, ... go to whoever takes them next. */
#ifndef WEFT_ENGINE_POOL_H
#define WEFT_ENGINE_POOL_H

#include <stdint.h>

#include "base/err.h"

struct wefti_pool;
typedef void wefti_pool_fn(void *ctx, uint32_t thread_idx);

/* CPUs this process was given at its start. */
uint32_t wefti_pool_n_cpus(void);

/* Threads to start by default: one per CPU, but no more than this engine's part of the cgroup's
 * quota, rounded down; more would only spend it sooner and then stand still together. */
uint32_t wefti_pool_n_usable_cpus(uint32_t n_sharers);

/* n_threads - 1 threads; the caller of wefti_pool_run is thread 0. Pinned, one per allowed CPU,
 * where there are exactly as many threads as CPUs. */
WEFT_MUST_CHECK weft_err wefti_pool_new(uint32_t n_threads, struct wefti_pool **pool_out,
                                        struct weft_errmsg *why);
void wefti_pool_free(struct wefti_pool *pool); /* accepts NULL */

/* Gives the calling thread its CPUs back, if a run pinned it; the next run pins anew. So does
 * wefti_pool_free. */
void wefti_pool_unpin_caller(struct wefti_pool *pool);

/* Calls fn(ctx, 0..n_threads-1), one per thread, and returns when all have. */
void wefti_pool_run(struct wefti_pool *pool, wefti_pool_fn *fn, void *ctx);

/* Inside a run, by every thread: ends a phase. All see after it what was written before it. */
void wefti_pool_barrier(struct wefti_pool *pool);

/* The same, and the last thread to arrive calls fn(ctx) before any goes on. */
void wefti_pool_barrier_with(struct wefti_pool *pool, void (*fn)(void *ctx), void *ctx);

/* Inside a run: 0, 1, 2, ... within a phase, each to one thread. */
uint32_t wefti_pool_take(struct wefti_pool *pool, uint32_t thread_idx);

/* Notes progress of the thread (so does take); the sum may be read from anywhere. */
void wefti_pool_progress(struct wefti_pool *pool, uint32_t thread_idx);
uint64_t wefti_pool_progress_sum(const struct wefti_pool *pool);
uint32_t wefti_pool_n_threads(const struct wefti_pool *pool);

#endif
