#include "api/recent.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"

/* ----------------------------------------------------------------------------- percentiles --- */

void weft_api_recent_add(struct weft_api_recent *r, uint64_t now_ms, double value) {
    uint32_t at = (uint32_t)(r->n++ % WEFT_API_RECENT_VALUES_MAX);
    r->values[at] = (float)value;
    r->at_ms[at] = now_ms;
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(const float *sorted, uint32_t n, uint32_t percent) {
    uint32_t rank = (n * percent + 99) / 100;
    WEFT_ASSERT(rank >= 1 && rank <= n);
    return sorted[rank - 1];
}

void weft_api_recent_percentiles(const struct weft_api_recent *r, uint64_t now_ms,
                                 struct weft_api_percentiles *out) {
    float values[WEFT_API_RECENT_VALUES_MAX];
    uint32_t n = 0;
    uint64_t left = r->n < WEFT_API_RECENT_VALUES_MAX ? r->n : WEFT_API_RECENT_VALUES_MAX;
    for (uint64_t i = r->n; left > 0; left--) { /* from the newest on */
        uint32_t at = (uint32_t)(--i % WEFT_API_RECENT_VALUES_MAX);
        if (now_ms > r->at_ms[at] + WEFT_API_RECENT_MS) break;
        values[n++] = r->values[at];
    }
    *out = (struct weft_api_percentiles){.n = n};
    if (n == 0) return;
    qsort(values, n, sizeof values[0], compare);
    out->p50 = percentile(values, n, 50);
    out->p95 = percentile(values, n, 95);
    out->p99 = percentile(values, n, 99);
}

/* ----------------------------------------------------------------------------------- rates --- */

/* Snapshots also come when something changes; one that comes soon after another takes its place, so
 * that the samples reach back far enough. */
void weft_api_rates_add(struct weft_api_rates *r, uint64_t now_ms, uint64_t n_prompt,
                        uint64_t n_output) {
    const struct weft_api_rates_sample *before =
        r->n >= 2 ? &r->samples[(r->n - 2) % WEFT_API_RATES_SAMPLES] : NULL;
    bool is_soon = before && now_ms < before->at_ms + WEFT_API_RATES_APART_MS;
    if (!is_soon) r->n++;
    r->samples[(r->n - 1) % WEFT_API_RATES_SAMPLES] =
        (struct weft_api_rates_sample){now_ms, n_prompt, n_output};
}

/* The oldest sample of the window. */
static const struct weft_api_rates_sample *find_first(const struct weft_api_rates *r,
                                                      uint64_t now_ms) {
    uint64_t begin = r->n > WEFT_API_RATES_SAMPLES ? r->n - WEFT_API_RATES_SAMPLES : 0;
    for (uint64_t i = begin; i < r->n; i++) {
        const struct weft_api_rates_sample *sample = &r->samples[i % WEFT_API_RATES_SAMPLES];
        if (sample->at_ms + WEFT_API_RATES_MS >= now_ms) return sample;
    }
    return NULL;
}

void weft_api_rates_read(const struct weft_api_rates *r, uint64_t now_ms, double *prompt_out,
                         double *output_out) {
    *prompt_out = *output_out = 0;
    const struct weft_api_rates_sample *first = find_first(r, now_ms);
    if (!first) return;
    const struct weft_api_rates_sample *last = &r->samples[(r->n - 1) % WEFT_API_RATES_SAMPLES];
    /* The last one is a little old even while they come. */
    bool is_fresh = now_ms <= last->at_ms + 3 * WEFT_API_RATES_APART_MS;
    uint64_t ms = (is_fresh ? last->at_ms : now_ms) - first->at_ms;
    if (ms == 0 || last->n_prompt < first->n_prompt || last->n_output < first->n_output) return;
    *prompt_out = (double)(last->n_prompt - first->n_prompt) * 1e3 / (double)ms;
    *output_out = (double)(last->n_output - first->n_output) * 1e3 / (double)ms;
}
