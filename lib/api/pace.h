/* pace — whether a body or a message comes in fast enough, and whether output is taken fast enough.
 *
 * Input    Within any time as long as the idle time-out, WEFT_API_PACE_BYTES_PER_S_MIN on the average;
 *          and the whole within the idle time-out and what it takes at that rate. A sum since the
 *          beginning would let a client that sent much at once rest on it for hours.
 *          The window slides by its quarters: what came is counted in four of them.
 * Output   While more is waiting than the socket takes, a goal has to be reached within each
 *          stall time-out: WEFT_API_READ_BYTES_PER_S_MIN, or what was waiting when it was set, if
 *          that is less; of those who make us hold much an eighth of it, lest they do so for
 *          days. Once it is reached the next is set: what was taken fast buys no time later.
 *          The rate is for honest links: a slow phone's 2 kB/s pass. Bytes are taken when the
 *          client's system has confirmed them, those in our kernel's buffer still wait. It
 *          confirms in lumps as large as its own buffer, now and then: hence a rate this low.
 */
#ifndef WEFT_API_PACE_H
#define WEFT_API_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define WEFT_API_PACE_BYTES_PER_S_MIN 32768 /* 32 MiB in 17 minutes */
#define WEFT_API_PACE_QUARTERS 4
#define WEFT_API_READ_BYTES_PER_S_MIN 1024
#define WEFT_API_READ_SHARE 8 /* of what is held */

struct weft_api_pace {
    uint64_t since_ms, quarter_since_ms;
    uint64_t bytes[WEFT_API_PACE_QUARTERS]; /* of the quarter under way and those before it */
};

/* The first byte is there, or the clock is to start anew. */
void weft_api_pace_begin(struct weft_api_pace *pace, uint64_t now_ms);

/* Some bytes came. */
void weft_api_pace_add(struct weft_api_pace *pace, uint64_t n_bytes);

/* Looks at the clock; now and then, a few times per window_ms. True: give it up. `whole_bytes`:
 * what there will be at most. */
bool weft_api_pace_is_late(struct weft_api_pace *pace, uint64_t whole_bytes, uint64_t window_ms,
                           uint64_t now_ms);

struct weft_api_read_pace {
    uint64_t since_ms;
    uint64_t taken, waiting; /* at that time */
    bool is_on;
};

/* Nothing is waiting. */
void weft_api_read_pace_rest(struct weft_api_read_pace *pace);

/* Looks at the clock; now and then, many times per window_ms, while `waiting` bytes (of which there
 * are some) cannot all be handed over. `taken`: all that the client ever took; `held`: what is held
 * for it besides. True: give it up. */
bool weft_api_read_pace_is_late(struct weft_api_read_pace *pace, uint64_t waiting, uint64_t taken,
                                uint64_t held, uint64_t window_ms, uint64_t now_ms);

#endif
