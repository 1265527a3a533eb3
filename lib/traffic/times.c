#include "times.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

bool weft_traffic_times_add(struct weft_traffic_times *times, double at_s, double ms) {
    WEFT_ASSERT(times->n <= times->n_max);
    if (times->n == times->n_max) {
        size_t n_max = times->n_max ? 2 * times->n_max : 1024;
        struct weft_traffic_sample *samples = realloc(times->samples, n_max * sizeof *samples);
        if (!samples) return false;
        times->samples = samples;
        times->n_max = n_max;
    }
    times->samples[times->n++] = (struct weft_traffic_sample){(float)at_s, (float)ms};
    times->is_sorted = false;
    return true;
}

void weft_traffic_times_fini(struct weft_traffic_times *times) {
    free(times->samples);
    *times = (struct weft_traffic_times){0};
}

static int by_ms(const void *a, const void *b) {
    const struct weft_traffic_sample *x = a, *y = b;
    return (x->ms > y->ms) - (x->ms < y->ms);
}

double weft_traffic_percentile(struct weft_traffic_times *times, double share) {
    WEFT_ASSERT(share >= 0 && share <= 1);
    if (times->n == 0) return 0;
    if (!times->is_sorted) qsort(times->samples, times->n, sizeof *times->samples, by_ms);
    times->is_sorted = true;
    size_t rank = (size_t)ceil(share * (double)times->n);
    WEFT_ASSERT(rank <= times->n);
    return (double)times->samples[rank ? rank - 1 : 0].ms;
}
