/* Grids for weights, and the choice of their reach; see quantise.h. */
#include "quantise.h"

#include <math.h>
#include <string.h>

#include "convert.h"
#include "kern_internal.h"

enum {
    BINS = 2048,        /* of a histogram of magnitudes, for grids of 8 bits */
    BINS_PER_LEVEL = 16 /* the same of 4 bits: more would hold one weight each */
};
#define PERCENTILE 0.999
#define SMOOTHING 1e-4 /* what a level without mass has, where outliers are gathered in it */
#define RATIO_STEP (1.0f / 40.0f)
#define RATIO_LEAST 0.2f

/* ----------------------------------------------------------------------------------- grids --- */

void wefti_kern_grid_reach(struct grid_ends *ends, const float *w, uint32_t n) {
    uint32_t max_bits = f32_bits(ends->largest) & 0x7fffffffu;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t magnitude = f32_bits(w[i]) & 0x7fffffffu;
        if (magnitude > max_bits) {
            max_bits = magnitude;
            ends->largest = w[i];
        }
        ends->low = w[i] < ends->low ? w[i] : ends->low;
        ends->high = w[i] > ends->high ? w[i] : ends->high;
    }
    ends->finite = ends->finite && max_bits < 0x7f800000u;
}

struct grid_ends wefti_kern_grid_ends(const float *w, uint32_t n) {
    struct grid_ends ends = {.low = w[0], .high = w[0], .finite = true};
    wefti_kern_grid_reach(&ends, w, n);
    return ends;
}

static void store_scale(struct grid *grid, float scale, bool finite) {
    grid->scale_bits = finite ? f32_to_f16(scale) : 0x7e00u;
    grid->scale = f16_to_f32(grid->scale_bits);
}

/* As in GGML, the scale's own rounding is not in the factor: codes are those of the
 * unrounded scale. */
static void make_symmetric(struct grid *grid, float scale, bool finite) {
    store_scale(grid, scale, finite);
    if (finite && (grid->scale_bits & 0x7fffu) != 0) grid->factor = 1.0f / scale;
}

static void make_i8(struct grid *grid, float magnitude, bool finite) {
    grid->scale = finite ? magnitude / 127.0f : NAN;
    if (finite && magnitude >= Q8_TINY) grid->factor = 1.0f / grid->scale;
}

/* The smallest and the largest weight are the ends; codes are taken with scale and minimum as they
 * are stored. */
static void make_4_1(struct grid *grid, const struct grid_ends *ends, float ratio) {
    float low = ends->low, high = ends->high;
    if (ratio < 1.0f) {
        float cut = (1.0f - ratio) * 0.5f * (high - low);
        low += cut;
        high -= cut;
    }
    store_scale(grid, (high - low) / 15.0f, ends->finite);
    grid->min_bits = f32_to_f16(low);
    grid->min = f16_to_f32(grid->min_bits);
    bool fits = ends->finite && isfinite(grid->scale) && isfinite(grid->min); /* f16 */
    if (fits && grid->scale != 0.0f) grid->factor = 1.0f;                     /* codes divide */
}

struct grid wefti_kern_grid_make(enum grid_form form, const struct grid_ends *ends, float ratio) {
    struct grid grid = {.form = form};
    float magnitude = fabsf(ends->largest) * ratio;
    switch (form) {
    case GRID_I8:
        make_i8(&grid, magnitude, ends->finite);
        break;
    case GRID_Q8:
        make_symmetric(&grid, magnitude / 127.0f, ends->finite);
        break;
    case GRID_4_0:
        make_symmetric(&grid, ends->largest * ratio / -8.0f, ends->finite);
        break;
    case GRID_4_1:
        make_4_1(&grid, ends, ratio);
        break;
    }
    return grid;
}

static float clamp(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

/* The nearest integer, halves away from zero: roundf for |x| < 2^22, without a call. The number
 * added is the one below 1/2: 1/2 itself would lift numbers just under a half. */
static int32_t nearest(float x) {
    return (int32_t)(x + copysignf(0x1.fffffep-2f, x));
}

static int32_t code_of(const struct grid *grid, float w) {
    switch (grid->form) {
    case GRID_I8:
    case GRID_Q8:
        return nearest(clamp(w * grid->factor, -127.0f, 127.0f));
    case GRID_4_0: /* cut off, which rounds where nothing is negative */
        return (int32_t)clamp(w * grid->factor + 8.5f, 0.0f, 15.0f);
    case GRID_4_1:
        break;
    }
    return nearest(clamp((w - grid->min) / grid->scale, 0.0f, 15.0f));
}

static int32_t zero_code(enum grid_form form) {
    return form == GRID_4_0 ? 8 : 0;
}

void wefti_kern_grid_codes(const struct grid *grid, const float *w, uint32_t n, uint8_t *codes) {
    if (grid->factor == 0.0f) {
        memset(codes, zero_code(grid->form), n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        codes[i] = (uint8_t)code_of(grid, w[i]);
    }
}

/* ------------------------------------------------------------------------------- the error --- */

/* `clipped_out` gets the part of the weights beyond the last codes. */
static double error_of(const struct grid *grid, const float *w, const float *importance, uint32_t n,
                       double *clipped_out) {
    bool eight = grid->form == GRID_I8 || grid->form == GRID_Q8;
    int32_t zero = zero_code(grid->form);
    float first = fmaf(grid->scale, (float)(eight ? -127 : -zero), grid->min);
    float last = fmaf(grid->scale, (float)(eight ? 127 : 15 - zero), grid->min);
    float low = first < last ? first : last, high = first < last ? last : first;
    double sum = 0.0, clipped = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        int32_t code = (grid->factor == 0.0f ? zero : code_of(grid, w[i])) - zero;
        double diff = (double)w[i] - ((double)grid->scale * code + (double)grid->min);
        double error = (double)importance[i] * diff * diff;
        sum += error;
        if (w[i] < low || w[i] > high) clipped += error;
    }
    *clipped_out = clipped;
    return sum;
}

double wefti_kern_grid_error(const struct grid *grid, const float *w, const float *importance,
                             uint32_t n) {
    double clipped;
    return error_of(grid, w, importance, n, &clipped);
}

/* Draws the ends in step by step. The clipped part only grows, so once its error alone exceeds the
 * best so far, nothing better follows. */
static struct grid least_error(enum grid_form form, const struct grid_ends *ends, const float *w,
                               const float *importance, uint32_t n, const struct grid *whole) {
    struct grid best = *whole;
    double clipped, best_error = error_of(whole, w, importance, n, &clipped);
    for (uint32_t step = 1;; step++) {
        float ratio = 1.0f - (float)step * RATIO_STEP;
        if (ratio < RATIO_LEAST) return best;
        struct grid grid = wefti_kern_grid_make(form, ends, ratio);
        double error = error_of(&grid, w, importance, n, &clipped);
        if (error < best_error) {
            best = grid;
            best_error = error;
        }
        if (clipped > best_error) return best;
    }
}

struct grid wefti_kern_grid_choose(enum grid_form form, enum weft_kern_clip clip, const float *w,
                                   const float *importance, uint32_t n, float row_ratio) {
    struct grid_ends ends = wefti_kern_grid_ends(w, n);
    struct grid whole = wefti_kern_grid_make(form, &ends, 1.0f);
    if (clip == WEFT_CLIP_MINMAX || whole.factor == 0.0f) return whole;
    if (clip == WEFT_CLIP_ERROR) return least_error(form, &ends, w, importance, n, &whole);
    if (row_ratio >= 1.0f) return whole;
    struct grid drawn = wefti_kern_grid_make(form, &ends, row_ratio);
    bool better = wefti_kern_grid_error(&drawn, w, importance, n) <
                  wefti_kern_grid_error(&whole, w, importance, n);
    return better ? drawn : whole;
}

/* ------------------------------------------------------------------------------ histograms --- */

/* Where weights lie between the middle of their group (0) and its end (1), by importance. */
struct histogram {
    uint32_t n_bins;
    double mass[BINS];
    double total;
};

static void add_group(struct histogram *hist, bool centred, const float *w, const float *importance,
                      uint32_t n) {
    struct grid_ends ends = wefti_kern_grid_ends(w, n);
    float middle = centred ? ends.low * 0.5f + ends.high * 0.5f : 0.0f;
    float half = centred ? ends.high * 0.5f - ends.low * 0.5f : fabsf(ends.largest);
    if (!ends.finite || !(half > 0.0f)) return;
    for (uint32_t i = 0; i < n; i++) {
        float at = fabsf(w[i] - middle) / half * (float)hist->n_bins;
        uint32_t bin = weft_min_u32((uint32_t)at, hist->n_bins - 1);
        hist->mass[bin] += (double)importance[i];
        hist->total += (double)importance[i];
    }
}

static float percentile_ratio(const struct histogram *hist) {
    double below = 0.0;
    for (uint32_t i = 0; i < hist->n_bins; i++) {
        below += hist->mass[i];
        if (below >= PERCENTILE * hist->total) return (float)(i + 1) / (float)hist->n_bins;
    }
    return 1.0f;
}

/* ln x of a normal x > 0: exponent, and the series of artanh for a mantissa in [2/3, 4/3). */
static double portable_log(double x) {
    static const double terms[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                   1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    int exponent;
    double mantissa = frexp(x, &exponent);
    if (mantissa < 2.0 / 3.0) {
        mantissa *= 2.0;
        exponent--;
    }
    double t = (mantissa - 1.0) / (mantissa + 1.0), square = t * t, sum = 0.0;
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++) { /* |t| <= 1/5: the rest < 2^-52 */
        sum = sum * square + terms[i];
    }
    return 2.0 * t * sum + exponent * 0.69314718055994530942;
}

/* Totals of the bins before each: their mass, how many hold any, and the sum of p ln p. So a cut
 * costs as many steps as the grid has levels, not as there are bins. */
struct running {
    double mass[BINS + 1], p_log_p[BINS + 1];
    uint32_t held[BINS + 1];
};

static double p_log_p(double p) {
    return p > 0.0 ? p * portable_log(p) : 0.0;
}

static void run_up(const struct histogram *hist, struct running *run) {
    run->mass[0] = run->p_log_p[0] = 0.0;
    run->held[0] = 0;
    for (uint32_t i = 0; i < hist->n_bins; i++) {
        double p = hist->mass[i] / hist->total;
        run->mass[i + 1] = run->mass[i] + p;
        run->p_log_p[i + 1] = run->p_log_p[i] + p_log_p(p);
        run->held[i + 1] = run->held[i] + (p > 0.0);
    }
}

/* The divergence of a histogram's first n bins, with the rest gathered in the last of them, from
 * what `n_levels` steps leave of them. A step's mass is spread evenly over those of its bins that
 * hold any. Source: Migacz, 8-bit inference with TensorRT (GTC 2017). */
static double divergence(const struct histogram *hist, const struct running *run, uint32_t n,
                         uint32_t n_levels) {
    double inside = run->mass[n], outside = run->mass[hist->n_bins] - inside;
    double last = hist->mass[n - 1] / hist->total;
    double sum = run->p_log_p[n - 1] + p_log_p(last + outside);
    for (uint32_t level = 0; level < n_levels; level++) {
        uint32_t begin = (uint32_t)((uint64_t)level * n / n_levels);
        uint32_t end = (uint32_t)((uint64_t)(level + 1) * n / n_levels);
        double mass = run->mass[end] - run->mass[begin];
        uint32_t held = run->held[end] - run->held[begin];
        double more = end == n ? outside : 0.0;
        if (more > 0.0 && !(last > 0.0)) held++;
        if (held == 0) continue;
        double q = mass > 0.0 ? mass / held / inside : SMOOTHING;
        sum -= (mass + more) * portable_log(q);
    }
    return sum;
}

static float entropy_ratio(const struct histogram *hist, uint32_t n_levels) {
    struct running run;
    uint32_t step = hist->n_bins / 64, best = hist->n_bins;
    double least = INFINITY;
    run_up(hist, &run);
    for (uint32_t n = hist->n_bins; (float)n >= RATIO_LEAST * (float)hist->n_bins; n -= step) {
        if (!(run.mass[n] > 0.0)) break;
        double now = divergence(hist, &run, n, n_levels);
        if (now < least) {
            least = now;
            best = n;
        }
    }
    return (float)best / (float)hist->n_bins;
}

float wefti_kern_grid_row_ratio(enum grid_form form, enum weft_kern_clip clip, const float *w,
                                const float *importance, uint32_t n, uint32_t group) {
    if (clip != WEFT_CLIP_PERCENTILE && clip != WEFT_CLIP_ENTROPY) return 1.0f;
    bool eight = form == GRID_I8 || form == GRID_Q8;
    uint32_t n_levels = eight ? 128 : 8; /* of magnitudes */
    struct histogram hist = {.n_bins = eight ? BINS : n_levels * BINS_PER_LEVEL};
    for (uint32_t i = 0; i < n; i += group) {
        add_group(&hist, form == GRID_4_1, w + i, importance + i, group);
    }
    if (!(hist.total > 0.0)) return 1.0f;
    return clip == WEFT_CLIP_PERCENTILE ? percentile_ratio(&hist) : entropy_ratio(&hist, n_levels);
}
