/* The last step of a chain: a token is drawn, and what Mirostat and adaptive-p learn of it. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "sampler/chain.h"
#include "sampler/philox.h"

/* The place at which the running sum of weights passes the target; the last one that has a weight
 * where rounding lets none pass it. */
static uint32_t find(const double *weights, uint32_t n, double target) {
    double sum = 0.0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < n && !(sum > target); i++) {
        if (!(weights[i] > 0.0)) continue;
        sum += weights[i];
        last = i;
    }
    return last;
}

/* --------------------------------------------------------------------------------- Mirostat --- */

enum { MIROSTAT_M = 100 }; /* best tokens that tell Zipf's exponent */

/* Zipf's exponent, from the ratios of neighbours among the best tokens. NAN: there are no two. */
static double zipf_exponent(const struct wefti_chain *c, uint32_t n_ratios) {
    const struct wefti_chain_scratch *s = c->scratch;
    double tb = 0.0, tt = 0.0;
    for (uint32_t i = 0; i < n_ratios; i++) {
        double below = s->x[s->rank[i + 1]];
        if (below == -INFINITY) break;
        double t = log((i + 2.0) / (i + 1.0)), b = s->x[s->rank[i]] - below;
        tb += t * b;
        tt += t * t;
    }
    return tb / tt;
}

/* How many tokens keep the surprise at mu, in a vocabulary whose probabilities follow Zipf's law. */
static uint32_t zipf_kept(const struct wefti_chain *c, double mu, struct wefti_mirostat *out) {
    bool is_llama = c->input->sampling->variant == WEFT_VARIANT_LLAMA_CPP;
    uint32_t n_ratios = is_llama ? MIROSTAT_M - 1 : MIROSTAT_M;
    if (n_ratios > c->n - 1) n_ratios = c->n - 1;
    double s_hat = zipf_exponent(c, n_ratios), eps = s_hat - 1.0;
    double k = pow(eps * exp2(mu) / (1.0 - pow((double)c->n_vocab, -eps)), 1.0 / s_hat);
    double wanted = is_llama ? floor(k) : rint(k) + 1.0;
    out->s_hat = s_hat;
    out->k = k;
    if (!(wanted < (double)c->n)) return c->n; /* not a number, too: all tokens are alike */
    return wanted > 1.0 ? (uint32_t)wanted : 1;
}

/* The ranked tokens of a surprise of at most mu. */
static uint32_t surprises_kept(const struct wefti_chain *c, uint32_t n_ranked, double mu) {
    const struct wefti_chain_scratch *s = c->scratch;
    uint32_t n = 0;
    while (n < n_ranked && -log2(s->p[s->rank[n]]) <= mu)
        n++;
    return n > 0 ? n : 1;
}

uint32_t wefti_mirostat_draw(struct wefti_chain *c, double mu, double u,
                             struct wefti_mirostat *out) {
    const struct weft_sampling *sampling = c->input->sampling;
    struct wefti_chain_scratch *s = c->scratch;
    bool is_first = sampling->mirostat == 1;
    *out = (struct wefti_mirostat){0};
    (void)wefti_chain_softmax(c);
    /* Of Mirostat 2 only what it may keep: with some room, and never less than the best token. */
    double least = is_first ? 0.0 : fmin(0.999 * exp2(-mu), 1.0 / c->n);
    uint32_t n_ranked = wefti_chain_rank(c, least);
    uint32_t n = is_first ? zipf_kept(c, mu, out) : surprises_kept(c, n_ranked, mu);
    double kept = 0.0, *ranked = s->x; /* the logits are done with */
    for (uint32_t i = 0; i < n; i++)
        kept += ranked[i] = s->p[s->rank[i]];
    uint32_t i = find(ranked, n, u * kept);
    bool before_cut = is_first && sampling->variant == WEFT_VARIANT_VLLM;
    out->n_kept = n;
    out->p = ranked[i] / kept;
    out->surprise = -log2(before_cut ? ranked[i] : out->p);
    out->mu =
        mu - (double)sampling->mirostat_eta * (out->surprise - (double)sampling->mirostat_tau);
    return s->ids[s->rank[i]];
}

/* -------------------------------------------------------------------------------- adaptive-p --- */

/* The candidates' weights, in place of their logits: a bell around the probability that would bring
 * the average of tokens to the target. Returns their sum. */
static double weigh_by_distance(struct wefti_chain *c, double average) {
    enum { PEAK = 5, SHARPNESS = 10 };
    const double width = 0.3, target = (double)c->input->sampling->adaptive_target;
    double aim = fmin(fmax(2.0 * target - average, 0.0), 1.0), sum = 0.0;
    for (uint32_t i = 0; i < c->n; i++) {
        double off = fabs(c->scratch->p[i] - aim) / width;
        bool is_possible = c->scratch->x[i] > -INFINITY;
        c->scratch->x[i] = is_possible ? exp(PEAK - SHARPNESS * off * off / (1.0 + off)) : 0.0;
        sum += c->scratch->x[i];
    }
    return sum;
}

static double adaptive_average(const struct wefti_sampler_input *input) {
    return input->state ? *input->state : weft_sampling_first_state(input->sampling);
}

static uint32_t draw_adaptive(struct wefti_chain *c, double u) {
    const struct weft_sampling *s = c->input->sampling;
    double decay = (double)s->adaptive_decay, average = adaptive_average(c->input);
    double sum = weigh_by_distance(c, average);
    uint32_t i = find(c->scratch->x, c->n, u * sum);
    if (c->input->state) *c->input->state = decay * average + (1.0 - decay) * c->scratch->p[i];
    return c->scratch->ids[i];
}

/* ------------------------------------------------------------------------------------ tokens --- */

uint32_t wefti_chain_draw(struct wefti_chain *c, const struct wefti_chain_plan *plan) {
    const struct wefti_sampler_input *input = c->input;
    const struct weft_sampling *s = input->sampling;
    double u = wefti_philox_unit(s->seed, input->choice, input->n_known);
    WEFT_ASSERT(c->n > 0 && u >= 0.0);
    if (s->mirostat > 0) {
        struct wefti_mirostat drawn;
        double mu = input->state ? *input->state : weft_sampling_first_state(s);
        uint32_t token = wefti_mirostat_draw(c, mu, u, &drawn);
        if (input->state) *input->state = drawn.mu;
        return token;
    }
    (void)wefti_chain_softmax(c);
    return plan->is_adaptive ? draw_adaptive(c, u) : c->scratch->ids[find(c->scratch->p, c->n, u)];
}

void wefti_chain_probabilities(struct wefti_chain *c, const struct wefti_chain_plan *plan,
                               double *out) {
    const double *weights = c->scratch->p;
    double sum = 1.0;
    (void)wefti_chain_softmax(c);
    if (plan->is_adaptive) {
        sum = weigh_by_distance(c, adaptive_average(c->input));
        weights = c->scratch->x;
    }
    memset(out, 0, c->n_vocab * sizeof *out);
    for (uint32_t i = 0; i < c->n; i++)
        out[c->scratch->ids[i]] = weights[i] / sum;
}
