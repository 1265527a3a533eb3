/* recent — figures of the last moments: percentiles of times, and tokens per second.
 *
 * /metrics has histograms since the start, from which a scraper makes rates; whoever looks at /stats
 * once has nothing to compare with, so these remember a little. Memory is fixed, times are
 * arguments.
 */
#ifndef WEFT_API_RECENT_H
#define WEFT_API_RECENT_H

#include <stdint.h>

#define WEFT_API_RECENT_VALUES_MAX 1024
#define WEFT_API_RECENT_MS 60000u

/* The last values, and when they came; zeroes at first. */
struct weft_api_recent {
    float values[WEFT_API_RECENT_VALUES_MAX];
    uint64_t at_ms[WEFT_API_RECENT_VALUES_MAX];
    uint64_t n; /* ever */
};

struct weft_api_percentiles {
    uint32_t n; /* values they are made of; if 0 the others are 0, too */
    double p50, p95, p99;
};

void weft_api_recent_add(struct weft_api_recent *recent, uint64_t now_ms, double value);

/* Of values no older than WEFT_API_RECENT_MS: each percentile is the smallest value that so many
 * per cent do not exceed. */
void weft_api_recent_percentiles(const struct weft_api_recent *recent, uint64_t now_ms,
                                 struct weft_api_percentiles *out);

/* Two counters that grow, read about every 250 ms. */
#define WEFT_API_RATES_MS 5000u
#define WEFT_API_RATES_APART_MS 200u
#define WEFT_API_RATES_SAMPLES 32
_Static_assert(WEFT_API_RATES_SAMPLES *WEFT_API_RATES_APART_MS > WEFT_API_RATES_MS,
               "they reach back far enough");

struct weft_api_rates { /* zeroes at first */
    struct weft_api_rates_sample {
        uint64_t at_ms, n_prompt, n_output;
    } samples[WEFT_API_RATES_SAMPLES];
    uint64_t n; /* ever */
};

void weft_api_rates_add(struct weft_api_rates *rates, uint64_t now_ms, uint64_t n_prompt,
                        uint64_t n_output);

/* Growth per second over the last WEFT_API_RATES_MS; 0 while that is unknown. When no more samples
 * come it falls to 0. */
void weft_api_rates_read(const struct weft_api_rates *rates, uint64_t now_ms, double *prompt_out,
                         double *output_out);

#endif
