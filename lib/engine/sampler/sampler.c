/* From logits to a token.
 *
 * Order: all but the allowed tokens masked; bad words masked; logit_bias, which masks the tokens that it forbids; stop
 * tokens and masked ones masked below min_tokens; the grammar's mask. Then the request's samplers
 * (chain.h). The usual ones in the usual order (penalties, DRY, top_n_sigma, temperature, min_p,
 * top_k, top_p) are made here, at once; the draw walks the remaining weights by ascending id with
 * one number from Philox. Where all tokens are masked, the answer is the lowest id, of those that
 * are allowed.
 *
 * A token's rank counts the tokens with strictly higher logits, plus one; vLLM's counts those that tie with it, too.
 *
 * Nothing is sorted, and few tokens are looked at twice. The maxima of chunks of logits give a
 * bound below which min_p or top_k keep nothing; the rest is gathered, and only that goes through
 * the exponential. top_p alone needs all exponentials, but then drops all weights that are too
 * small. Weights are exp(logit - max) in [0, 1]; select.c finds the largest of them. */
#include "sampler/sampler.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "sampler/chain.h"
#include "sampler/penalties.h"
#include "sampler/philox.h"
#include "sampler/select.h"

struct wefti_sampler_scratch wefti_sampler_scratch_reserve(struct wefti_memory_layout *layout,
                                                           uint32_t n_vocab) {
    size_t n_chunks = wefti_sampler_n_chunks(n_vocab);
    return (struct wefti_sampler_scratch){
        .work = wefti_memory_reserve(layout, wefti_memory_stride(n_vocab), sizeof(float)),
        .counts = wefti_memory_reserve(layout, n_vocab, sizeof(uint32_t)),
        .hist_n = wefti_memory_reserve(layout, WEFTI_SAMPLER_BUCKETS, sizeof(uint32_t)),
        .hist_mass = wefti_memory_reserve(layout, WEFTI_SAMPLER_BUCKETS, sizeof(double)),
        .ids = wefti_memory_reserve(layout, n_vocab, sizeof(uint32_t)),
        .maxima = wefti_memory_reserve(layout, n_chunks, sizeof(float)),
        .best = wefti_memory_reserve(layout, n_chunks, sizeof(float)),
        .sums = wefti_memory_reserve(layout, n_chunks, sizeof(double)),
    };
}

static bool masks_stop_tokens(const struct wefti_sampler_input *input) {
    const struct weft_sampling *s = input->sampling;
    return input->n_known - input->n_prompt < s->min_tokens &&
           (s->n_stop_tokens > 0 || s->n_masked_tokens > 0);
}

bool wefti_sampler_is_plain(const struct wefti_sampler_input *input) {
    const struct weft_sampling *s = input->sampling;
    struct wefti_chain_plan plan = wefti_chain_plan(s);
    return plan.is_greedy && plan.n_penalties == 0 && s->n_bias == 0 && s->n_allowed_tokens == 0 &&
           s->n_bad_words == 0 && !masks_stop_tokens(input) && !input->mask;
}

/* For good: penalties are finite, and their divisors above 0. */
static void mask(const uint32_t *tokens, uint32_t n, float *logits) {
    for (uint32_t i = 0; i < n; i++) {
        logits[tokens[i]] = -INFINITY;
    }
}

static void keep_allowed(const uint64_t *allowed, float *logits, uint32_t n_vocab) {
    for (uint32_t begin = 0; begin < n_vocab; begin += 64) {
        uint64_t word = allowed[begin / 64];
        uint32_t n = weft_min_u32(64, n_vocab - begin);
        if (word == UINT64_MAX) continue;
        for (uint32_t i = 0; i < n; i++)
            logits[begin + i] = word >> i & 1 ? logits[begin + i] : -INFINITY;
    }
}

static void mask_range(float *logits, uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; i++)
        logits[i] = -INFINITY;
}

static void mask_others(const struct weft_sampling *s, float *logits, uint32_t n_vocab) {
    uint32_t begin = 0;
    for (uint32_t i = 0; i < s->n_allowed_tokens; i++) {
        mask_range(logits, begin, s->allowed_tokens[i]);
        begin = s->allowed_tokens[i] + 1;
    }
    if (s->n_allowed_tokens > 0) mask_range(logits, begin, n_vocab);
}

/* Of a word that the output ends with, but for its last token, that one. */
static void mask_bad_words(const struct wefti_sampler_input *input, float *logits) {
    const struct weft_sampling *s = input->sampling;
    const uint32_t *end = input->tokens + input->n_known;
    uint32_t n_output = input->n_known - input->n_prompt;
    for (uint32_t at = 0; at < s->n_bad_words;) {
        uint32_t n_before = s->bad_words[at] - 1;
        const uint32_t *word = &s->bad_words[at + 1];
        if (n_before <= n_output &&
            (n_before == 0 || memcmp(end - n_before, word, n_before * sizeof *word) == 0))
            logits[word[n_before]] = -INFINITY;
        at += n_before + 2;
    }
}

static void mask_and_bias(const struct wefti_sampler_input *input, float *logits,
                          uint32_t n_vocab) {
    const struct weft_sampling *s = input->sampling;
    mask_others(s, logits, n_vocab);
    mask_bad_words(input, logits);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        if (s->bias[i].bias == WEFT_LOGIT_BIAS_NEVER)
            mask(&s->bias[i].token, 1, logits);
        else
            logits[s->bias[i].token] += s->bias[i].bias;
    }
    if (masks_stop_tokens(input)) {
        mask(s->stop_tokens, s->n_stop_tokens, logits);
        mask(s->masked_tokens, s->n_masked_tokens, logits);
    }
    if (input->mask) keep_allowed(input->mask, logits, n_vocab);
}

/* The steps of the plan that come first, as most often they do. */
static void penalise(const struct wefti_sampler_input *input, const struct wefti_chain_plan *plan,
                     float *logits, struct wefti_sampler_scratch *scratch) {
    for (uint32_t i = 0; i < plan->n_penalties; i++) {
        if (plan->steps[i] == WEFT_SAMPLER_PENALTIES) {
            wefti_penalties_apply(input, logits, scratch->counts);
        } else {
            wefti_dry_apply(input, logits, scratch->counts, scratch->chain->runs,
                            scratch->chain->n_runs);
        }
    }
}

/* ------------------------------------------------------------------------------- candidates --- */

/* The usual samplers, those that are off with the values that say so. */
struct usual {
    float top_n_sigma, temperature, min_p, top_p;
    uint32_t top_k;
    bool keeps_ties; /* of the k-th token */
};

static struct usual usual_of(const struct wefti_chain_plan *plan, const struct weft_sampling *s) {
    struct usual u = {
        .temperature = plan->temperature,
        .top_p = 1.0f,
        .keeps_ties = s->variant == WEFT_VARIANT_VLLM,
    };
    for (uint32_t i = plan->n_penalties; i < plan->n; i++) {
        if (plan->steps[i] == WEFT_SAMPLER_TOP_N_SIGMA) u.top_n_sigma = s->top_n_sigma;
        if (plan->steps[i] == WEFT_SAMPLER_MIN_P) u.min_p = s->min_p;
        if (plan->steps[i] == WEFT_SAMPLER_TOP_K) u.top_k = s->top_k;
        if (plan->steps[i] == WEFT_SAMPLER_TOP_P) u.top_p = s->top_p;
    }
    return u;
}

/* The weights still in the running. */
struct field {
    float *w;
    const uint32_t *ids; /* ascending; NULL: position i is token i */
    uint32_t n;
    double *sums; /* per chunk of w; where noted, weights dropped since still count */
};

static double add_up(const double *sums, uint32_t n_chunks) {
    double sum = 0.0;
    for (uint32_t i = 0; i < n_chunks; i++) {
        sum += sums[i];
    }
    return sum;
}

/* Sums up anew, after weights were dropped. */
static double count_again(const struct field *field) {
    for (uint32_t begin = 0, c = 0; begin < field->n; begin += WEFT_CHUNK, c++) {
        uint32_t end = begin + weft_min_u32(WEFT_CHUNK, field->n - begin);
        double even = 0.0, odd = 0.0;
        uint32_t i = begin;
        for (; i + 2 <= end; i += 2) {
            even += (double)field->w[i];
            odd += (double)field->w[i + 1];
        }
        field->sums[c] = even + odd + (i < end ? (double)field->w[i] : 0.0);
    }
    return add_up(field->sums, wefti_sampler_n_chunks(field->n));
}

/* Moves values of at least `bound` to the front of `x` and notes their ids; returns their number.
 * It reads only chunks whose maximum reaches the bound. */
static uint32_t gather_least(float *x, uint32_t n, const float *maxima, float bound,
                             uint32_t *ids) {
    uint32_t n_kept = 0;
    for (uint32_t begin = 0, c = 0; begin < n; begin += WEFT_CHUNK, c++) {
        if (!(maxima[c] >= bound)) continue;
        uint32_t end = begin + weft_min_u32(WEFT_CHUNK, n - begin);
        for (uint32_t i = begin; i < end; i++) {
            float value = x[i];
            ids[n_kept] = i;
            x[n_kept] = value; /* never ahead of the reading */
            n_kept += value >= bound;
        }
    }
    return n_kept;
}

/* A logit below which min_p or top_k keep nothing; -INFINITY: none is known. Each of the k chunks
 * with the largest maxima has a token that is no smaller than the smallest of these maxima: so at
 * least k tokens are. Two logits that differ by less than the slack may still round to the same
 * weight, and a tie goes to the lower id. */
static float least_logit(const struct usual *s, float max, uint32_t n_vocab,
                         const struct wefti_sampler_scratch *scratch) {
    uint32_t n_chunks = wefti_sampler_n_chunks(n_vocab);
    float bound = -INFINITY;
    if (s->min_p > 0.0f) bound = max + s->temperature * logf(s->min_p);
    if (s->top_k > 0 && s->top_k <= n_chunks) {
        struct wefti_sampler_top top = {s->top_k, scratch->ids, scratch->best};
        wefti_sampler_find_top(scratch->maxima, n_chunks, &top);
        if (top.values[top.n - 1] > bound) bound = top.values[top.n - 1];
    }
    float slack = 1e-5f * s->temperature + 1e-6f * (fabsf(max) + fabsf(bound));
    return isfinite(bound) ? bound - slack : -INFINITY;
}

/* Keeps the smallest set of largest weights that reaches the goal; all if they do not. */
static double keep_largest(const struct field *field, const struct wefti_sampler_goal *goal,
                           struct wefti_sampler_scratch *scratch) {
    (void)wefti_sampler_drop_small(field->w, field->n, goal, scratch);
    return count_again(field);
}

/* top_p drops at most 1 - top_p of the mass. A field's smallest weights, each at most (1 - top_p) /
 * n of the mass, are no more than that together: so all that is kept is larger. */
static void leave_out_smallest(struct field *field, float top_p, double mass,
                               struct wefti_sampler_scratch *scratch) {
    float bound = (float)(0.999 * (1.0 - (double)top_p) * mass / field->n);
    uint32_t n_chunks = wefti_sampler_n_chunks(field->n);
    for (uint32_t c = 0; c < n_chunks; c++) {
        scratch->maxima[c] = (float)field->sums[c] * 1.001f; /* none of them is larger */
    }
    field->n = gather_least(field->w, field->n, scratch->maxima, bound, scratch->ids);
    field->ids = scratch->ids;
}

/* Masks logits more than n standard deviations below the best one (Tang et al. 2024). Masked ones
 * do not count. In double and in order of ids, so that company does not matter. */
static void keep_sigmas(float *logits, uint32_t n_vocab, float max, float n) {
    double sum = 0.0, sum_of_squares = 0.0;
    uint32_t n_finite = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (!isfinite(logits[i])) continue;
        sum += (double)logits[i];
        n_finite++;
    }
    double mean = sum / n_finite; /* the best one is finite */
    for (uint32_t i = 0; i < n_vocab; i++) {
        double off = isfinite(logits[i]) ? (double)logits[i] - mean : 0.0;
        sum_of_squares += off * off;
    }
    double bound = (double)max - (double)n * sqrt(sum_of_squares / n_finite);
    for (uint32_t i = 0; i < n_vocab; i++) {
        if ((double)logits[i] < bound) logits[i] = -INFINITY;
    }
}

/* Returns the sum of the weights that are kept. */
static double keep_nucleus(const struct usual *s, struct field *field, double mass,
                           struct wefti_sampler_scratch *scratch) {
    if (s->min_p > 0.0f) {
        for (uint32_t i = 0; i < field->n; i++) { /* the largest weight is 1 */
            if (field->w[i] < s->min_p) field->w[i] = 0.0f;
        }
        mass = count_again(field);
    }
    if (s->top_k > 0 && s->top_k < field->n) {
        struct wefti_sampler_goal goal = {.n = s->top_k, .keeps_ties = s->keeps_ties};
        mass = keep_largest(field, &goal, scratch);
    }
    if (s->top_p < 1.0f) {
        struct wefti_sampler_goal goal = {.mass = (double)s->top_p * mass};
        if (!field->ids) leave_out_smallest(field, s->top_p, mass, scratch);
        mass = keep_largest(field, &goal, scratch);
    }
    return mass;
}

/* The token at which the running sum passes u * mass. If rounding lets the walk end without passing
 * it, the best token is as good as any. */
static uint32_t draw(const struct field *field, double mass, double u, uint32_t best) {
    double target = u * mass, sum = 0.0;
    for (uint32_t begin = 0, c = 0; begin < field->n; begin += WEFT_CHUNK, c++) {
        uint32_t end = begin + weft_min_u32(WEFT_CHUNK, field->n - begin), last = field->n;
        if (sum + field->sums[c] <= target) {
            sum += field->sums[c];
            continue;
        }
        for (uint32_t i = begin; i < end; i++) {
            if (field->w[i] <= 0.0f) continue;
            sum += (double)field->w[i];
            last = i;
            if (sum > target) break;
        }
        if (last == field->n) return best;
        return field->ids ? field->ids[last] : last;
    }
    return best;
}

static bool has_equal_behind(const float *logits, uint32_t n_vocab, uint32_t best) {
    bool found = false;
    for (uint32_t i = best + 1; i < n_vocab; i++)
        found |= logits[i] == logits[best];
    return found;
}

/* Makes the usual samplers' weights of the logits. Returns their sum; 0: it is the best token. */
static double weigh_usual(const struct weft_kern_table *kern, const struct usual *s,
                          const struct wefti_sampler_logits *in, uint32_t best,
                          struct wefti_sampler_scratch *scratch, struct field *field) {
    float *logits = in->logits, max = logits[best];
    uint32_t n_vocab = in->n_vocab;
    *field = (struct field){.w = logits, .n = n_vocab, .sums = scratch->sums};
    if (s->top_k == 1 && !(s->keeps_ties && has_equal_behind(logits, n_vocab, best))) return 0.0;
    if (s->top_n_sigma > 0.0f) keep_sigmas(logits, n_vocab, max, s->top_n_sigma);
    if (s->min_p > 0.0f || s->top_k > 0) {
        kern->chunk_max(logits, n_vocab, scratch->maxima);
        float bound = least_logit(s, max, n_vocab, scratch);
        if (bound > -INFINITY) {
            field->n = gather_least(logits, n_vocab, scratch->maxima, bound, scratch->ids);
            field->ids = scratch->ids;
        }
    }
    /* The maximum goes first: a small temperature then cannot overflow. */
    double mass = kern->exp_parts(field->w, field->n, max, s->temperature, field->sums);
    if (!isfinite(mass)) return 0.0; /* a NaN among the logits: a broken model, still an answer */
    return keep_nucleus(s, field, mass, scratch);
}

/* The chain of the plan's other steps. What a first top_k is sure to drop does not come into it. */
static struct wefti_chain open_chain(const struct weft_kern_table *kern,
                                     const struct wefti_sampler_input *input,
                                     const struct wefti_chain_plan *plan,
                                     const struct wefti_sampler_logits *in,
                                     struct wefti_sampler_scratch *scratch) {
    struct wefti_chain_scratch *own = scratch->chain;
    float *logits = in->logits;
    uint32_t n = in->n_vocab;
    bool begins_with_k =
        plan->n > plan->n_penalties && plan->steps[plan->n_penalties] == WEFT_SAMPLER_TOP_K;
    struct wefti_chain chain = {.input = input,
                                .scratch = own,
                                .counts = scratch->counts,
                                .logits = logits,
                                .n_vocab = in->n_vocab};
    float bound = -INFINITY;
    if (begins_with_k && input->sampling->top_k < n) {
        const struct usual k = {.top_k = input->sampling->top_k};
        kern->chunk_max(logits, n, scratch->maxima);
        bound = least_logit(&k, 0.0f, n, scratch);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (bound > -INFINITY && !(logits[i] >= bound)) continue;
        own->x[chain.n] = logits[i] >= -INFINITY ? (double)logits[i] : -INFINITY; /* no NaN */
        own->ids[chain.n++] = i;
    }
    return chain;
}

/* What comes before the samplers, and the first of them. */
static uint32_t prepare(const struct weft_kern_table *kern, const struct wefti_sampler_input *input,
                        const struct wefti_chain_plan *plan, const struct wefti_sampler_logits *in,
                        struct wefti_sampler_scratch *scratch) {
    WEFT_ASSERT(in->n_vocab > 0 && input->n_known >= input->n_prompt);
    mask_and_bias(input, in->logits, in->n_vocab);
    penalise(input, plan, in->logits, scratch);
    return kern->argmax(in->logits, in->n_vocab);
}

uint32_t wefti_sampler_choose(const struct weft_kern_table *kern,
                              const struct wefti_sampler_input *input, float *logits,
                              uint32_t n_vocab, struct wefti_sampler_scratch *scratch) {
    const struct weft_sampling *s = input->sampling;
    const struct wefti_sampler_logits in = {logits, n_vocab};
    struct wefti_chain_plan plan = wefti_chain_plan(s);
    uint32_t best = prepare(kern, input, &plan, &in, scratch);
    if (s->n_allowed_tokens > 0 && logits[best] == -INFINITY) return s->allowed_tokens[0];
    if (plan.is_greedy || !isfinite(logits[best])) return best;
    if (plan.is_usual) {
        const struct usual usual = usual_of(&plan, s);
        struct field field;
        double mass = weigh_usual(kern, &usual, &in, best, scratch, &field);
        double u = wefti_philox_unit(s->seed, input->choice, input->n_known);
        return mass > 0.0 ? draw(&field, mass, u, best) : best;
    }
    struct wefti_chain chain = open_chain(kern, input, &plan, &in, scratch);
    wefti_chain_run(&chain, &plan, plan.n_penalties);
    return wefti_chain_draw(&chain, &plan);
}

void wefti_sampler_probabilities(const struct weft_kern_table *kern,
                                 const struct wefti_sampler_input *input, float *logits,
                                 uint32_t n_vocab, struct wefti_sampler_scratch *scratch,
                                 double *out) {
    const struct weft_sampling *s = input->sampling;
    const struct wefti_sampler_logits in = {logits, n_vocab};
    struct wefti_chain_plan plan = wefti_chain_plan(s);
    uint32_t best = prepare(kern, input, &plan, &in, scratch);
    struct field field = {.n = 0};
    double mass = 0.0;
    memset(out, 0, n_vocab * sizeof *out);
    if (!plan.is_greedy && !plan.is_usual && isfinite(logits[best])) {
        struct wefti_chain chain = open_chain(kern, input, &plan, &in, scratch);
        wefti_chain_run(&chain, &plan, plan.n_penalties);
        wefti_chain_probabilities(&chain, &plan, out);
        return;
    }
    if (!plan.is_greedy && isfinite(logits[best])) {
        const struct usual usual = usual_of(&plan, s);
        mass = weigh_usual(kern, &usual, &in, best, scratch, &field);
    }
    for (uint32_t i = 0; mass > 0.0 && i < field.n; i++)
        out[field.ids ? field.ids[i] : i] = (double)field.w[i] / mass;
    if (!(mass > 0.0)) out[best] = 1.0;
}

void wefti_sampler_find_likeliest(const struct weft_kern_table *kern,
                                  const struct wefti_sampler_input *input,
                                  const struct wefti_sampler_logits *in,
                                  struct wefti_sampler_scratch *scratch,
                                  struct wefti_sampler_likeliest *out) {
    const struct weft_sampling *s = input->sampling;
    struct wefti_chain_plan plan = wefti_chain_plan(s);
    uint32_t best = prepare(kern, input, &plan, in, scratch);
    float *x = in->logits, values[WEFT_CONTRAST_K_MAX];
    struct wefti_sampler_top top = {weft_min_u32(out->n, in->n_vocab), out->ids, values};
    WEFT_ASSERT(out->n > 0 && out->n <= WEFT_CONTRAST_K_MAX);
    if (!isfinite(x[best])) {
        bool none_is_left = s->n_allowed_tokens > 0 && x[best] == -INFINITY;
        out->ids[0] = none_is_left ? s->allowed_tokens[0] : best;
        out->p[0] = 1.0;
        out->n = 1;
        return;
    }
    double sum = 0.0;
    for (uint32_t i = 0; i < in->n_vocab; i++) {
        if (!(x[i] >= -INFINITY)) x[i] = -INFINITY; /* no NaN */
        sum += exp((double)x[i] - (double)x[best]);
    }
    wefti_sampler_find_top(x, in->n_vocab, &top);
    for (out->n = 0; out->n < top.n && values[out->n] > -INFINITY; out->n++)
        out->p[out->n] = exp((double)values[out->n] - (double)x[best]) / sum;
}

/* ------------------------------------------------------------------------ log-probabilities --- */

void wefti_sampler_logprobs(const struct weft_kern_table *kern, const float *logits,
                            uint32_t n_vocab, uint32_t token, const struct wefti_sampler_top *top,
                            struct weft_logprobs *out) {
    WEFT_ASSERT(token < n_vocab);
    WEFT_ASSERT(top->n <= n_vocab);
    double log_sum = kern->log_sum_exp(logits, n_vocab);
    float own = logits[token];
    uint32_t rank = 1;
    for (uint32_t i = 0; i < n_vocab; i++) {
        rank += logits[i] > own;
    }
    if (top->n > 0) wefti_sampler_find_top(logits, n_vocab, top);
    for (uint32_t i = 0; i < top->n; i++) {
        top->values[i] = (float)((double)top->values[i] - log_sum);
    }
    *out = (struct weft_logprobs){
        .logprob = (float)((double)own - log_sum),
        .rank = rank,
        .n_top = top->n,
        .top_ids = top->ids,
        .top_logprobs = top->values,
    };
}
