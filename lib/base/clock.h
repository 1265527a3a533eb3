/* base/clock — the monotonic clock. Cores of actors never call it: time is an argument there. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since an arbitrary point, the same for all processes of one boot. */
static inline uint64_t weft_now_ns(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t weft_now_us(void) {
    return weft_now_ns() / 1000u;
}
static inline uint64_t weft_now_ms(void) {
    return weft_now_ns() / 1000000u;
}

#endif
