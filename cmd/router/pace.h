/* pace — whether a body or a message comes in fast enough.
 *
 * Rule     Within any time as long as the idle time-out, WEFT_PACE_BYTES_PER_S_MIN on the average;
 *          and the whole within the idle time-out and what it takes at that rate. A sum since the
 *          beginning would let a client that sent much at once rest on it for hours.
 * Window   Slides by its quarters: what came is counted in four of them.
 */
#ifndef WEFT_ROUTER_PACE_H
#define WEFT_ROUTER_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define WEFT_PACE_BYTES_PER_S_MIN 32768 /* 32 MiB in 17 minutes */
#define WEFT_PACE_QUARTERS 4

struct pace {
    uint64_t since_ms, quarter_since_ms;
    uint64_t bytes[WEFT_PACE_QUARTERS]; /* of the quarter under way and those before it */
};

/* The first byte is there, or the clock is to start anew. */
void wefti_pace_begin(struct pace *pace, uint64_t now_ms);

/* Some bytes came. */
void wefti_pace_add(struct pace *pace, uint64_t n_bytes);

/* Looks at the clock; now and then, a few times per window_ms. True: give it up. `whole_bytes`:
 * what there will be at most. */
bool wefti_pace_is_late(struct pace *pace, uint64_t whole_bytes, uint64_t window_ms,
                        uint64_t now_ms);

#endif
