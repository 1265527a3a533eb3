/* base/host/thread — threads that compute.
 *
 * Model: a thread's stack is what `ulimit -s` says, or 2 MiB where it says nothing: attention alone
 * keeps 1.6 MiB there (the tiles it widens, queries' words, sums of a span). These have
 * WEFT_THREAD_STACK bytes whatever the limit is.
 * Threads: any. Memory: as pthread_create. Errors: an errno value, 0 if it runs. */
#ifndef WEFT_BASE_HOST_THREAD_H
#define WEFT_BASE_HOST_THREAD_H

#include <pthread.h>

#include "base/err.h"

#define WEFT_THREAD_STACK (4u << 20)

WEFT_MUST_CHECK int weft_thread_start(pthread_t *thread_out, void *(*fn)(void *), void *ctx);

#endif
