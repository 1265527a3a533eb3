/* pace — whether a body or a message comes in fast enough, and whether output is taken fast enough.
 *
 * Input    WEFT_API_PACE_BYTES_PER_S_MIN on average over any window of the idle time-out; and the
 *          whole within the idle time-out plus its time at that rate. An average since the
 *          beginning would let a client that sent much at once pause for hours. The window slides
 *          by quarters.
 * Output   While the socket does not take everything, a client must reach a goal within each stall
 *          time-out: WEFT_API_READ_BYTES_PER_S_MIN, or less if less was waiting when the goal was
 *          set; but at least an eighth of what we hold for it, so that it cannot make us hold much
 *          for days. Then the next goal is set: reading fast buys no time for later. The rate is
 *          for honest links: a slow phone's 2 kB/s pass. Bytes count as taken when the client's
 *          system confirms them; those in our kernel's buffer still wait. It confirms rarely, in
 *          lumps as large as its own buffer: hence a rate this low.
 */
#ifndef WEFT_API_PACE_H
#define WEFT_API_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define WEFT_API_PACE_BYTES_PER_S_MIN 32768 /* 32 MiB in 17 minutes */
#define WEFT_API_PACE_QUARTERS 4
#define WEFT_API_READ_BYTES_PER_S_MIN 1024
#define WEFT_API_READ_SHARE 8 /* a fraction of what is held */

struct weft_api_pace {
    uint64_t since_ms, quarter_since_ms;
    uint64_t bytes[WEFT_API_PACE_QUARTERS]; /* the current quarter and those before it */
};

/* Starts the clock, at the first byte or anew. */
void weft_api_pace_begin(struct weft_api_pace *pace, uint64_t now_ms);

/* Counts bytes that came. */
void weft_api_pace_add(struct weft_api_pace *pace, uint64_t n_bytes);

/* Call it a few times per window_ms. True: give the client up. `whole_bytes`: the most that will
 * come. */
bool weft_api_pace_is_late(struct weft_api_pace *pace, uint64_t whole_bytes, uint64_t window_ms,
                           uint64_t now_ms);

struct weft_api_read_pace {
    uint64_t since_ms;
    uint64_t taken, waiting; /* at since_ms */
    bool is_on;
};

/* Tells that nothing is waiting. */
void weft_api_read_pace_rest(struct weft_api_read_pace *pace);

/* Call it many times per window_ms, while `waiting` bytes (not 0) cannot all be handed over.
 * `taken`: all that the client ever took; `held`: what else is held for it. True: give the client
 * up. */
bool weft_api_read_pace_is_late(struct weft_api_read_pace *pace, uint64_t waiting, uint64_t taken,
                                uint64_t held, uint64_t window_ms, uint64_t now_ms);

#endif
