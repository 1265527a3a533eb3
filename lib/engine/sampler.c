/* From logits to a token.
 *
 * Order: logit_bias; stop tokens and masked ones masked below min_tokens; repetition, frequency
 * and presence penalties; temperature; min_p; top_k; top_p over what is left (as vLLM has it). The
 * draw walks the remaining weights by ascending id with one number from Philox.
 *
 * Two things differ from vLLM. Of tokens that tie at the cut of top_k exactly as many are kept as
 * make k, those with the lowest ids; vLLM keeps them all. And a token's rank counts the tokens with
 * strictly higher logits, plus one; vLLM's counts those that tie with it, too.
 *
 * Nothing is sorted. Weights are exp(logit - max) in [0, 1], and non-negative floats are ordered
 * like their bits, so the k-th largest, or the point where the largest add up to top_p, is found by
 * three passes of radix selection (11, 11 and 9 bits). Equal weights rank by lower id. */
#include "engine/engine_internal.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "engine/philox.h"

#define GREEDY_BELOW 1e-5f /* vLLM's bound: below it a division only overflows */

static bool has_penalties(const struct weft_sampling *s) {
    return s->repetition_penalty != 1.0f || s->frequency_penalty != 0.0f ||
           s->presence_penalty != 0.0f;
}

static bool masks_stop_tokens(const struct wefti_sample *sample) {
    const struct weft_sampling *s = sample->sampling;
    return sample->n_known - sample->n_prompt < s->min_tokens &&
           (s->n_stop_tokens > 0 || s->n_masked_tokens > 0);
}

bool wefti_sample_is_plain(const struct wefti_sample *sample) {
    const struct weft_sampling *s = sample->sampling;
    return s->temperature < GREEDY_BELOW && s->n_bias == 0 && !has_penalties(s) &&
           !masks_stop_tokens(sample);
}

/* The sequence itself is the record of what was seen: walking it costs little beside the forward
 * pass, and a resumed or recomputed sequence needs no state to be rebuilt. */
static void apply_penalties(const struct wefti_sample *sample, float *logits, uint32_t *counts) {
    const struct weft_sampling *s = sample->sampling;
    const uint32_t *tokens = sample->tokens;
    if (s->repetition_penalty != 1.0f) {
        for (uint32_t i = 0; i < sample->n_known; i++) {
            float *x = &logits[tokens[i]];
            if (counts[tokens[i]]++ > 0) continue;
            *x = *x > 0.0f ? *x / s->repetition_penalty : *x * s->repetition_penalty;
        }
        for (uint32_t i = 0; i < sample->n_known; i++) {
            counts[tokens[i]] = 0;
        }
    }
    if (s->frequency_penalty == 0.0f && s->presence_penalty == 0.0f) return;
    for (uint32_t i = sample->n_prompt; i < sample->n_known; i++) {
        counts[tokens[i]]++;
    }
    for (uint32_t i = sample->n_prompt; i < sample->n_known; i++) {
        uint32_t n = counts[tokens[i]];
        if (n == 0) continue; /* this token's first place did it */
        logits[tokens[i]] -= s->frequency_penalty * (float)n + s->presence_penalty;
        counts[tokens[i]] = 0;
    }
}

static void mask(const uint32_t *tokens, uint32_t n, float *logits) {
    for (uint32_t i = 0; i < n; i++) {
        logits[tokens[i]] = -INFINITY;
    }
}

static void process_logits(const struct wefti_sample *sample, float *logits, uint32_t *counts) {
    const struct weft_sampling *s = sample->sampling;
    for (uint32_t i = 0; i < s->n_bias; i++) {
        logits[s->bias[i].token] += s->bias[i].bias;
    }
    if (masks_stop_tokens(sample)) {
        mask(s->stop_tokens, s->n_stop_tokens, logits);
        mask(s->masked_tokens, s->n_masked_tokens, logits);
    }
    if (has_penalties(s)) apply_penalties(sample, logits, counts);
}

/* ------------------------------------------------------------------------------- selection --- */

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The largest weights are kept: all above `bits`, and of those equal to it the `n_equal` with the
 * lowest ids. */
struct threshold {
    uint32_t bits, n_equal;
};

/* What the kept weights must reach: a number of them, or a sum. */
struct goal {
    uint32_t n;
    double mass; /* used when n == 0 */
};

static bool reached(const struct goal *goal, uint64_t n, double mass) {
    return goal->n ? n >= goal->n : mass >= goal->mass;
}

/* One pass over the weights whose upper bits are `prefix`: counts and sums them by their next bits.
 */
static void fill_histogram(const float *w, uint32_t n, uint32_t prefix, uint32_t prefix_shift,
                           uint32_t shift, uint32_t n_buckets,
                           struct wefti_sampler_scratch *scratch) {
    memset(scratch->hist_n, 0, n_buckets * sizeof *scratch->hist_n);
    memset(scratch->hist_mass, 0, n_buckets * sizeof *scratch->hist_mass);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(w[i]);
        if (bits >> prefix_shift != prefix || bits == 0) continue;
        uint32_t bucket = (bits >> shift) & (n_buckets - 1);
        scratch->hist_n[bucket]++;
        scratch->hist_mass[bucket] += (double)w[i];
    }
}

/* The smallest set of largest weights that reaches the goal; false when even all non-zero ones do
 * not. Weights are finite and not negative. */
static bool select_largest(const float *w, uint32_t n, const struct goal *goal,
                           struct wefti_sampler_scratch *scratch, struct threshold *out) {
    static const uint32_t shifts[3] = {20, 9, 0}, widths[3] = {11, 11, 9};
    uint32_t prefix = 0, prefix_shift = 31, n_here = 0;
    uint64_t n_above = 0;
    double mass_above = 0.0;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t n_buckets = 1u << widths[pass], chosen = n_buckets;
        fill_histogram(w, n, prefix, prefix_shift, shifts[pass], n_buckets, scratch);
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

/* ------------------------------------------------------------------------------------ draw --- */

enum { DRAW_BLOCK = 256 };

static double block_sum(const float *w, uint32_t n) {
    double lanes[4] = {0};
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        lanes[0] += (double)w[i];
        lanes[1] += (double)w[i + 1];
        lanes[2] += (double)w[i + 2];
        lanes[3] += (double)w[i + 3];
    }
    for (; i < n; i++) {
        lanes[0] += (double)w[i];
    }
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

static double sum_of(const float *w, uint32_t n) {
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i += DRAW_BLOCK) {
        sum += block_sum(w + i, wefti_min_u32(DRAW_BLOCK, n - i));
    }
    return sum;
}

/* The id at which the running sum passes u * total. Should rounding let the walk end without
 * passing it, the best token is as good as any. */
static uint32_t draw(const float *w, uint32_t n, double u, uint32_t best) {
    double target = u * sum_of(w, n), sum = 0.0;
    for (uint32_t begin = 0; begin < n; begin += DRAW_BLOCK) {
        uint32_t end = begin + wefti_min_u32(DRAW_BLOCK, n - begin), last = best;
        double with_block = sum + block_sum(w + begin, end - begin);
        if (with_block <= target) {
            sum = with_block;
            continue;
        }
        for (uint32_t i = begin; i < end; i++) {
            if (w[i] <= 0.0f) continue;
            sum += (double)w[i];
            last = i;
            if (sum > target) break;
        }
        return last;
    }
    return best;
}

static void keep_nucleus(const struct weft_sampling *s, float *w, uint32_t n, float max_weight,
                         struct wefti_sampler_scratch *scratch) {
    struct threshold keep;
    if (s->min_p > 0.0f) {
        float least = s->min_p * max_weight;
        for (uint32_t i = 0; i < n; i++) {
            if (w[i] < least) w[i] = 0.0f;
        }
    }
    if (s->top_k > 0 && s->top_k < n) {
        struct goal goal = {.n = s->top_k};
        if (select_largest(w, n, &goal, scratch, &keep)) drop_below(w, n, &keep);
    }
    if (s->top_p < 1.0f) {
        struct goal goal = {.mass = (double)s->top_p * sum_of(w, n)};
        if (select_largest(w, n, &goal, scratch, &keep)) drop_below(w, n, &keep);
    }
}

uint32_t wefti_sample(const struct weft_kern_table *kern, const struct wefti_sample *sample,
                      float *logits, uint32_t n_vocab, struct wefti_sampler_scratch *scratch) {
    const struct weft_sampling *s = sample->sampling;
    WEFT_ASSERT(n_vocab > 0 && sample->n_known >= sample->n_prompt);
    process_logits(sample, logits, scratch->counts);
    uint32_t best = kern->argmax(logits, n_vocab);
    float max = logits[best];
    if (s->temperature < GREEDY_BELOW || s->top_k == 1 || !isfinite(max)) return best;
    /* The maximum goes first: a small temperature then cannot overflow. */
    for (uint32_t i = 0; i < n_vocab; i++) {
        logits[i] = (logits[i] - max) / s->temperature;
    }
    float ignored;
    double sum = kern->softmax_parts(logits, n_vocab, &ignored);
    if (!isfinite(sum)) return best; /* a NaN among the logits: a broken model, still an answer */
    keep_nucleus(s, logits, n_vocab, logits[best], scratch);
    double u = wefti_philox_unit(s->seed, sample->choice, sample->n_known);
    return draw(logits, n_vocab, u, best);
}

/* ------------------------------------------------------------------------ log-probabilities --- */

/* A heap of the best so far, the worst of them at the root. `top_values` holds logits meanwhile. */
struct top {
    uint32_t n;
    uint32_t *ids;
    float *values;
};

/* Entry a ranks behind entry b. */
static bool behind(const struct top *top, uint32_t a, uint32_t b) {
    if (top->values[a] != top->values[b]) return top->values[a] < top->values[b];
    return top->ids[a] > top->ids[b];
}

static void swap_entries(struct top *top, uint32_t a, uint32_t b) {
    uint32_t id = top->ids[a];
    float value = top->values[a];
    top->ids[a] = top->ids[b], top->values[a] = top->values[b];
    top->ids[b] = id, top->values[b] = value;
}

static void sift_down(struct top *top, uint32_t at, uint32_t n) {
    for (;;) {
        uint32_t worst = at, left = 2 * at + 1;
        if (left < n && behind(top, left, worst)) worst = left;
        if (left + 1 < n && behind(top, left + 1, worst)) worst = left + 1;
        if (worst == at) return;
        swap_entries(top, at, worst);
        at = worst;
    }
}

static void find_top(const float *logits, uint32_t n_vocab, struct top *top) {
    for (uint32_t i = 0; i < top->n; i++) {
        top->ids[i] = i;
        top->values[i] = logits[i];
    }
    for (uint32_t i = top->n / 2; i > 0; i--) {
        sift_down(top, i - 1, top->n);
    }
    for (uint32_t i = top->n; i < n_vocab; i++) { /* ids ascend: an equal one ranks behind */
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

void wefti_logprobs(const struct weft_kern_table *kern, const float *logits, uint32_t n_vocab,
                    uint32_t token, uint32_t n_top, uint32_t *top_ids, float *top_logprobs,
                    struct weft_logprobs *out) {
    WEFT_ASSERT(token < n_vocab && n_top <= n_vocab);
    double log_sum = kern->log_sum_exp(logits, n_vocab);
    float own = logits[token];
    uint32_t rank = 1;
    for (uint32_t i = 0; i < n_vocab; i++) {
        rank += logits[i] > own;
    }
    struct top top = {n_top, top_ids, top_logprobs};
    if (n_top > 0) find_top(logits, n_vocab, &top);
    for (uint32_t i = 0; i < n_top; i++) {
        top_logprobs[i] = (float)((double)top_logprobs[i] - log_sum);
    }
    *out = (struct weft_logprobs){
        .logprob = (float)((double)own - log_sum),
        .rank = rank,
        .n_top = n_top,
        .top_ids = top_ids,
        .top_logprobs = top_logprobs,
    };
}
