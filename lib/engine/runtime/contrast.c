#include "runtime/contrast.h"

#include <math.h>

#include "base/check.h"
#include "runtime/memory.h"

enum { LANES = 8 };

static struct wefti_contrast *lay_out(struct wefti_memory_layout *layout, uint32_t n_max,
                                      uint32_t n_hidden) {
    struct wefti_contrast *contrast = wefti_memory_reserve(layout, 1, sizeof *contrast);
    float *hidden = wefti_memory_reserve(layout, n_max, n_hidden * sizeof *hidden);
    double *squares = wefti_memory_reserve(layout, n_max, sizeof *squares);
    if (!layout->base) return NULL;
    contrast->hidden = hidden;
    contrast->squares = squares;
    return contrast;
}

struct wefti_contrast *wefti_contrast_new(uint32_t n_max, uint32_t n_hidden) {
    struct wefti_memory_layout layout = {0};
    WEFT_ASSERT(n_max > 0 && n_max <= WEFT_CONTEXT_MAX);
    WEFT_ASSERT(n_hidden > 0 && n_hidden <= WEFT_HIDDEN_MAX);
    (void)lay_out(&layout, n_max, n_hidden);
    size_t bytes = layout.used;
    layout = (struct wefti_memory_layout){.base = wefti_memory_map(bytes)};
    if (!layout.base) return NULL;
    struct wefti_contrast *contrast = lay_out(&layout, n_max, n_hidden); /* zeroed */
    contrast->n_max = n_max;
    contrast->n_hidden = n_hidden;
    contrast->map_bytes = bytes;
    return contrast;
}

void wefti_contrast_free(struct wefti_contrast *contrast) {
    if (contrast) wefti_memory_unmap(contrast, contrast->map_bytes);
}

static double dot(const float *a, const float *b, uint32_t n) {
    double sums[LANES] = {0};
    for (uint32_t i = 0; i + LANES <= n; i += LANES) {
        for (uint32_t lane = 0; lane < LANES; lane++)
            sums[lane] += (double)a[i + lane] * (double)b[i + lane];
    }
    for (uint32_t i = n - n % LANES; i < n; i++)
        sums[i % LANES] += (double)a[i] * (double)b[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

void wefti_contrast_add(struct wefti_contrast *contrast, const float *hidden) {
    uint32_t n = contrast->n_hidden, at = contrast->n++;
    float *own = contrast->hidden + (size_t)at * n;
    WEFT_ASSERT(at < contrast->n_max);
    for (uint32_t i = 0; i < n; i++)
        own[i] = hidden[i];
    contrast->squares[at] = dot(own, own, n);
}

/* A state of zeroes, or of no numbers, is like nothing. */
double wefti_contrast_cosine(const struct wefti_contrast *contrast, const float *hidden) {
    uint32_t n = contrast->n_hidden;
    double square = dot(hidden, hidden, n), greatest = -1.0;
    WEFT_ASSERT(contrast->n > 0);
    for (uint32_t i = 0; i < contrast->n; i++) {
        double product = dot(hidden, contrast->hidden + (size_t)i * n, n);
        greatest = fmax(greatest, product / sqrt(square * contrast->squares[i]));
    }
    return greatest;
}

double wefti_contrast_score(const struct wefti_contrast_candidate *candidate, double alpha) {
    return (1.0 - alpha) * candidate->p - alpha * candidate->cosine;
}

uint32_t wefti_contrast_choose(const struct wefti_contrast *contrast, double alpha) {
    const struct wefti_contrast_candidate *all = contrast->candidates;
    uint32_t best = 0;
    WEFT_ASSERT(contrast->n_candidates > 0 && contrast->n_candidates <= WEFT_CONTRAST_K_MAX);
    for (uint32_t i = 1; i < contrast->n_candidates; i++)
        if (wefti_contrast_score(&all[i], alpha) > wefti_contrast_score(&all[best], alpha))
            best = i;
    return best;
}
