/* The largest of many weights without sorting them, and the best few in order.
 *
 * Non-negative floats are ordered like their bits, so the k-th largest, or the point where the
 * largest add up to a sum, is found by three passes of radix selection (11, 11 and 9 bits). Equal
 * weights rank by lower id. */
#include "sampler/select.h"

#include <string.h>

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The largest weights are kept: all above `bits`, and among those equal to it the `n_equal` with
 * the lowest ids. */
struct threshold {
    uint32_t bits, n_equal;
};

static bool reached(const struct wefti_sampler_goal *goal, uint64_t n, double mass) {
    return goal->n ? n >= goal->n : mass >= goal->mass;
}

/* Weights whose bits above `prefix_shift` are `prefix`, by their next bits, from `shift` up. */
struct bits_window {
    uint32_t prefix, prefix_shift, shift, n_buckets;
};

/* One pass over the weights: counts and sums those in the window by bucket. */
static void fill_histogram(const float *w, uint32_t n, struct bits_window window,
                           struct wefti_sampler_scratch *scratch) {
    memset(scratch->hist_n, 0, window.n_buckets * sizeof *scratch->hist_n);
    memset(scratch->hist_mass, 0, window.n_buckets * sizeof *scratch->hist_mass);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(w[i]);
        if (bits >> window.prefix_shift != window.prefix || bits == 0) continue;
        uint32_t bucket = (bits >> window.shift) & (window.n_buckets - 1);
        scratch->hist_n[bucket]++;
        scratch->hist_mass[bucket] += (double)w[i];
    }
}

/* The smallest set of largest weights that reaches the goal; false when even all non-zero ones do
 * not. Weights are finite and not negative. */
static bool select_largest(const float *w, uint32_t n, const struct wefti_sampler_goal *goal,
                           struct wefti_sampler_scratch *scratch, struct threshold *out) {
    static const uint32_t shifts[3] = {20, 9, 0}, widths[3] = {11, 11, 9};
    uint32_t prefix = 0, prefix_shift = 31, n_here = 0;
    uint64_t n_above = 0;
    double mass_above = 0.0;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t n_buckets = 1u << widths[pass], chosen = n_buckets;
        fill_histogram(w, n, (struct bits_window){prefix, prefix_shift, shifts[pass], n_buckets},
                       scratch);
        for (uint32_t bucket = n_buckets; bucket-- > 0;) {
            if (scratch->hist_n[bucket] == 0) continue;
            if (chosen < n_buckets) { /* the one before does not suffice */
                n_above += scratch->hist_n[chosen];
                mass_above += scratch->hist_mass[chosen];
            }
            chosen = bucket;
            if (reached(goal, n_above + scratch->hist_n[bucket],
                        mass_above + scratch->hist_mass[bucket]))
                break;
        }
        if (chosen == n_buckets) return false;
        n_here = scratch->hist_n[chosen];
        /* Later passes add the same weights in another order: there the last bucket suffices even
         * if rounding says otherwise. */
        if (pass == 0 && !reached(goal, n_above + n_here, mass_above + scratch->hist_mass[chosen]))
            return false;
        prefix = prefix << widths[pass] | chosen;
        prefix_shift = shifts[pass];
    }
    float value;
    memcpy(&value, &prefix, sizeof value);
    uint32_t n_equal = 1;
    while (n_equal < n_here &&
           !reached(goal, n_above + n_equal, mass_above + (double)n_equal * (double)value)) {
        n_equal++;
    }
    *out = (struct threshold){prefix, n_equal};
    return true;
}

static void drop_below(float *w, uint32_t n, const struct threshold *keep) {
    uint32_t n_equal = keep->n_equal;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(w[i]);
        if (bits > keep->bits) continue;
        if (bits == keep->bits && n_equal > 0) {
            n_equal--;
            continue;
        }
        w[i] = 0.0f;
    }
}

bool wefti_sampler_drop_small(float *w, uint32_t n, const struct wefti_sampler_goal *goal,
                              struct wefti_sampler_scratch *scratch) {
    struct threshold keep;
    if (!select_largest(w, n, goal, scratch, &keep)) return false;
    if (goal->keeps_ties) keep.n_equal = n;
    drop_below(w, n, &keep);
    return true;
}

/* ----------------------------------------------------------------------------- the best few --- */

/* A heap of the best so far, the worst of them at its root; entry a is worse than entry b. */
static bool is_worse(const struct wefti_sampler_top *top, uint32_t a, uint32_t b) {
    if (top->values[a] != top->values[b]) return top->values[a] < top->values[b];
    return top->ids[a] > top->ids[b];
}

static void swap_entries(const struct wefti_sampler_top *top, uint32_t a, uint32_t b) {
    uint32_t id = top->ids[a];
    float value = top->values[a];
    top->ids[a] = top->ids[b], top->values[a] = top->values[b];
    top->ids[b] = id, top->values[b] = value;
}

static void sift_down(const struct wefti_sampler_top *top, uint32_t at, uint32_t n) {
    for (;;) {
        uint32_t worst = at, left = 2 * at + 1;
        if (left < n && is_worse(top, left, worst)) worst = left;
        if (left + 1 < n && is_worse(top, left + 1, worst)) worst = left + 1;
        if (worst == at) return;
        swap_entries(top, at, worst);
        at = worst;
    }
}

void wefti_sampler_find_top(const float *logits, uint32_t n_vocab,
                            const struct wefti_sampler_top *top) {
    for (uint32_t i = 0; i < top->n; i++) {
        top->ids[i] = i;
        top->values[i] = logits[i];
    }
    for (uint32_t i = top->n / 2; i > 0; i--) {
        sift_down(top, i - 1, top->n);
    }
    for (uint32_t i = top->n; i < n_vocab; i++) { /* ids ascend: an equal one is worse */
        if (!(logits[i] > top->values[0])) continue;
        top->ids[0] = i;
        top->values[0] = logits[i];
        sift_down(top, 0, top->n);
    }
    for (uint32_t n = top->n; n > 1; n--) { /* the worst goes last, again and again */
        swap_entries(top, 0, n - 1);
        sift_down(top, 0, n - 1);
    }
}
