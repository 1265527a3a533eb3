/* traffic/times — durations with the moment each was taken at, and their percentiles.
 *
 * A load test keeps every one of them: percentiles of percentiles are none. Eight bytes each, so an
 * hour of a thousand tokens per second is 29 MB. Memory: grows by doubling, freed by fini. */
#ifndef WEFT_TRAFFIC_TIMES_H
#define WEFT_TRAFFIC_TIMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct weft_traffic_sample {
    float at_s; /* from the beginning of the run */
    float ms;
};

/* All zero is an empty one. */
struct weft_traffic_times {
    struct weft_traffic_sample *samples; /* owned; in no order */
    size_t n, n_max;
    bool is_sorted; /* by ms */
};

/* False: no memory, and nothing is added. */
WEFT_MUST_CHECK bool weft_traffic_times_add(struct weft_traffic_times *times, double at_s,
                                            double ms);
void weft_traffic_times_fini(struct weft_traffic_times *times);

/* Sorts them, if need be, and returns the milliseconds that `share` (0..1) of them do not exceed
 * (nearest rank); 0 if there are none. */
double weft_traffic_percentile(struct weft_traffic_times *times, double share);

#endif
