/* join — waits for a thread no longer than so long: what it does may hang, on a slow disk, and the process
 * is to end all the same. */
#ifndef WEFT_WORKER_JOIN_H
#define WEFT_WORKER_JOIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* False: it did not end within `wait_ms_max`, and goes on using what it uses. */
static inline bool wefti_join_within(pthread_t thread, uint32_t wait_ms_max) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)wait_ms_max * 1000000u;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
}

#endif
