/* Samplers that take candidates away, and temperature. Each is its paper's or engine's definition,
 * written down; what is equal at a border is told apart by the lower id, or stays as one where the
 * variant says so. */
#include <float.h>
#include <math.h>

#include "base/check.h"
#include "sampler/chain.h"
#include "sampler/philox.h"

static bool is_llama_cpp(const struct wefti_chain *c) {
    return c->input->sampling->variant == WEFT_VARIANT_LLAMA_CPP;
}

static double best_of(const struct wefti_chain *c) {
    double best = -INFINITY;
    for (uint32_t i = 0; i < c->n; i++)
        best = c->scratch->x[i] > best ? c->scratch->x[i] : best;
    return best;
}

static void keep_at_least(struct wefti_chain *c, double least) {
    double *x = c->scratch->x;
    for (uint32_t i = 0; i < c->n; i++) {
        if (!(x[i] >= least)) x[i] = -INFINITY;
    }
    wefti_chain_compact(c);
}

/* The n that rank first, of those that were ranked by logit. */
static void keep_first(struct wefti_chain *c, uint32_t n) {
    uint32_t last = c->scratch->rank[n - 1];
    double *x = c->scratch->x, least = x[last];
    for (uint32_t i = 0; i < c->n; i++) {
        if (!(x[i] > least || (x[i] == least && i <= last))) x[i] = -INFINITY;
    }
    wefti_chain_compact(c);
}

/* The smallest probabilities, each at most (1 - mass) / n, are no more than 1 - mass together: what is
 * kept to have the mass is larger. */
static double least_for(double mass, uint32_t n) {
    return 0.999 * (1.0 - mass) / n;
}

static void keep_best(struct wefti_chain *c) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < c->n; i++) {
        if (c->scratch->x[i] > c->scratch->x[best]) best = i;
    }
    c->scratch->x[0] = c->scratch->x[best];
    c->scratch->ids[0] = c->scratch->ids[best];
    c->n = 1;
}

/* ------------------------------------------------------------------------------ temperature --- */

/* Their entropy, as a part of the most that so many can have. llama.cpp counts all that are in its
 * list, where nothing was cut all tokens; webui those that can come. */
static double entropy_share(struct wefti_chain *c) {
    const double *p = c->scratch->p, *x = c->scratch->x;
    uint32_t n = c->n, n_possible = 0;
    double log_sum = wefti_chain_softmax(c), entropy = 0.0;
    for (uint32_t i = 0; i < c->n; i++) {
        n_possible += x[i] > -INFINITY;
        if (p[i] > 0.0) entropy += p[i] * (log_sum - x[i]);
    }
    if (!is_llama_cpp(c)) n = n_possible;
    return n > 1 ? entropy / log((double)n) : 0.0;
}

void wefti_chain_temper(struct wefti_chain *c) {
    const struct weft_sampling *s = c->input->sampling;
    double t = (double)s->temperature, range = (double)s->dynatemp_range;
    if (range > 0.0) {
        if (c->n <= 1) return;
        double least = fmax(0.0, t - range);
        double share = entropy_share(c);
        t = least + (t + range - least) * pow(share, (double)s->dynatemp_exponent);
    }
    if (t < (double)WEFTI_CHAIN_GREEDY_BELOW) {
        keep_best(c);
        return;
    }
    for (uint32_t i = 0; i < c->n; i++)
        c->scratch->x[i] /= t;
}

/* ------------------------------------------------------------------------------------- cuts --- */

/* Standard deviations are those of what is not masked. */
void wefti_cut_top_n_sigma(struct wefti_chain *c) {
    const double *x = c->scratch->x;
    double sum = 0.0, squares = 0.0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (x[i] == -INFINITY) continue;
        sum += x[i];
        n++;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        double off = x[i] > -INFINITY ? x[i] - sum / n : 0.0;
        squares += off * off;
    }
    keep_at_least(c, best_of(c) - (double)c->input->sampling->top_n_sigma * sqrt(squares / n));
}

void wefti_cut_min_p(struct wefti_chain *c) {
    keep_at_least(c, best_of(c) + log((double)c->input->sampling->min_p));
}

void wefti_cut_top_k(struct wefti_chain *c) {
    uint32_t k = c->input->sampling->top_k;
    if (k >= c->n) return;
    (void)wefti_chain_rank(c, 0.0);
    if (is_llama_cpp(c))
        keep_first(c, k);
    else
        keep_at_least(c, c->scratch->x[c->scratch->rank[k - 1]]);
}

void wefti_cut_top_p(struct wefti_chain *c) {
    double sum = 0.0, wanted = (double)c->input->sampling->top_p;
    uint32_t n = 0;
    (void)wefti_chain_softmax(c);
    uint32_t n_ranked = wefti_chain_rank(c, least_for(wanted, c->n));
    while (n < n_ranked && !(sum >= wanted))
        sum += c->scratch->p[c->scratch->rank[n++]];
    keep_first(c, n);
}

/* Entropy, and how far the surprise of each candidate is from it. */
static double measure_surprise(struct wefti_chain *c) {
    struct wefti_chain_scratch *s = c->scratch;
    double log_sum = wefti_chain_softmax(c), entropy = 0.0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (s->p[i] > 0.0) entropy += s->p[i] * (log_sum - s->x[i]);
    }
    for (uint32_t i = 0; i < c->n; i++)
        s->off[i] = fabs(log_sum - s->x[i] - entropy);
    return entropy;
}

/* Tokens by how far their surprise is from what is expected of it, until they have the mass. Those too
 * unlikely for it come last if no likelier one is as far: then they are not sorted. */
void wefti_cut_typical(struct wefti_chain *c) {
    struct wefti_chain_scratch *s = c->scratch;
    bool is_llama = is_llama_cpp(c);
    double entropy = measure_surprise(c), sum = 0.0, mass = (double)c->input->sampling->typical_p;
    double least = least_for(mass, c->n);
    uint32_t n = 0, n_ranked = wefti_chain_rank(c, -log(least) > 2.0 * entropy ? least : DBL_MIN);
    wefti_chain_rank_again(c, s->off, n_ranked);
    while (n < n_ranked && (is_llama ? sum <= mass : sum < mass))
        sum += s->p[s->rank[n++]];
    if (n == 0) n = 1;
    double last = s->off[s->rank[n - 1]];
    while (!is_llama && n < n_ranked && s->off[s->rank[n]] <= last)
        n++;
    for (uint32_t i = 0; i < n; i++) /* no distance is below 0 */
        s->off[s->rank[i]] = -1.0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (s->off[i] >= 0.0) s->x[i] = -INFINITY;
    }
    wefti_chain_compact(c);
}

/* Probability of the i-th best; none behind the candidates. */
static double ranked_p(const struct wefti_chain *c, uint32_t i) {
    return i < c->n ? c->scratch->p[c->scratch->rank[i]] : 0.0;
}

static double curvature(const struct wefti_chain *c, uint32_t i) {
    double first = ranked_p(c, i + 1) - ranked_p(c, i);
    double second = ranked_p(c, i + 2) - ranked_p(c, i + 1);
    return fabs(second - first);
}

/* Tokens that were cut before count as ones of probability 0. */
void wefti_cut_tail_free(struct wefti_chain *c) {
    double total = 0.0, sum = 0.0, z = (double)c->input->sampling->tfs_z;
    if (c->n_vocab <= 2) return;
    uint32_t n_curves = (c->n + 2 < c->n_vocab ? c->n + 2 : c->n_vocab) - 2, n = 0;
    (void)wefti_chain_softmax(c);
    (void)wefti_chain_rank(c, 0.0);
    for (uint32_t i = 0; i < n_curves; i++)
        total += curvature(c, i);
    if (!(total > 0.0)) return; /* all alike */
    while (n < n_curves && sum + curvature(c, n) / total <= z)
        sum += curvature(c, n++) / total;
    if (is_llama_cpp(c))
        n = n > 1 ? n : 1;
    else
        n++;
    if (n < c->n) keep_first(c, n);
}

/* By a chance of their own: all tokens of at least the threshold go but for the last one of them. */
void wefti_cut_xtc(struct wefti_chain *c) {
    const struct weft_sampling *s = c->input->sampling;
    double *x = c->scratch->x, *p = c->scratch->p, threshold = (double)s->xtc_threshold;
    const double *given = c->input->xtc_draw;
    double u = given ? *given : wefti_philox_chance(s->seed, c->input->choice, c->input->n_known);
    uint32_t last = c->n;
    if (u > (double)s->xtc_probability || c->n < 2) return;
    (void)wefti_chain_softmax(c);
    for (uint32_t i = 0; i < c->n; i++) {
        if (p[i] >= threshold && (last == c->n || x[i] <= x[last])) last = i;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        if (p[i] >= threshold && i != last) x[i] = -INFINITY;
    }
    wefti_chain_compact(c);
}
