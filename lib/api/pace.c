#include "api/pace.h"

#include <string.h>

void weft_api_pace_begin(struct weft_api_pace *pace, uint64_t now_ms) {
    memset(pace, 0, sizeof *pace);
    pace->since_ms = pace->quarter_since_ms = now_ms;
}

void weft_api_pace_add(struct weft_api_pace *pace, uint64_t n_bytes) {
    pace->bytes[0] += n_bytes;
}

bool weft_api_pace_is_late(struct weft_api_pace *pace, uint64_t whole_bytes, uint64_t window_ms,
                           uint64_t now_ms) {
    uint64_t spent_ms = now_ms - pace->since_ms;
    if (spent_ms > window_ms + whole_bytes * 1000 / WEFT_API_PACE_BYTES_PER_S_MIN) return true;
    if (now_ms - pace->quarter_since_ms < window_ms / WEFT_API_PACE_QUARTERS) return false;
    uint64_t sum = 0;
    for (int i = 0; i < WEFT_API_PACE_QUARTERS; i++)
        sum += pace->bytes[i];
    memmove(&pace->bytes[1], &pace->bytes[0], sizeof pace->bytes - sizeof pace->bytes[0]);
    pace->bytes[0] = 0;
    pace->quarter_since_ms = now_ms;
    return spent_ms >= window_ms && sum < window_ms * WEFT_API_PACE_BYTES_PER_S_MIN / 1000;
}

void weft_api_read_pace_rest(struct weft_api_read_pace *pace) {
    pace->is_on = false;
}

/* Computed anew each time: the goal shrinks with what is held. */
static uint64_t goal_of(const struct weft_api_read_pace *pace, uint64_t held, uint64_t window_ms) {
    uint64_t goal = window_ms * WEFT_API_READ_BYTES_PER_S_MIN / 1000;
    if (goal > pace->waiting) goal = pace->waiting;
    return held / WEFT_API_READ_SHARE > goal ? held / WEFT_API_READ_SHARE : goal;
}

bool weft_api_read_pace_is_late(struct weft_api_read_pace *pace, uint64_t waiting, uint64_t taken,
                                uint64_t held, uint64_t window_ms, uint64_t now_ms) {
    if (pace->is_on && taken - pace->taken < goal_of(pace, held, window_ms))
        return now_ms > pace->since_ms + window_ms;
    *pace = (struct weft_api_read_pace){
        .since_ms = now_ms, .taken = taken, .waiting = waiting, .is_on = true};
    return false;
}
