/* The plan of a request's samplers, their candidates, and how these are ranked.
 *
 * Ranks come from a radix sort of the bits of doubles, eight at a time: linear, stable, without a
 * heap, and passes in which all share a digit are left out. */
#include "sampler/chain.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "sampler/penalties.h"

struct wefti_chain_scratch wefti_chain_scratch_reserve(struct wefti_memory_layout *layout,
                                                       uint32_t n_vocab, uint32_t n_tokens_max) {
    return (struct wefti_chain_scratch){
        .x = wefti_memory_reserve(layout, n_vocab, sizeof(double)),
        .p = wefti_memory_reserve(layout, n_vocab, sizeof(double)),
        .off = wefti_memory_reserve(layout, n_vocab, sizeof(double)),
        .ids = wefti_memory_reserve(layout, n_vocab, sizeof(uint32_t)),
        .keys = wefti_memory_reserve(layout, n_vocab, sizeof(uint64_t)),
        .keys_spare = wefti_memory_reserve(layout, n_vocab, sizeof(uint64_t)),
        .rank = wefti_memory_reserve(layout, n_vocab, sizeof(uint32_t)),
        .rank_spare = wefti_memory_reserve(layout, n_vocab, sizeof(uint32_t)),
        .runs = wefti_memory_reserve(layout, n_tokens_max, sizeof(uint32_t)),
        .n_runs = n_tokens_max,
    };
}

/* ------------------------------------------------------------------------------------- plan --- */

static bool is_dynamic(const struct weft_sampling *s) {
    return s->dynatemp_range > 0.0f;
}

/* Whether it would change anything. */
static bool is_active(enum weft_sampler sampler, const struct weft_sampling *s) {
    switch (sampler) {
    case WEFT_SAMPLER_PENALTIES:
        return weft_sampling_has_penalties(s);
    case WEFT_SAMPLER_DRY:
        return wefti_dry_is_active(s);
    case WEFT_SAMPLER_TEMPERATURE:
        return s->temperature != 1.0f || is_dynamic(s);
    case WEFT_SAMPLER_TOP_N_SIGMA:
        return s->top_n_sigma > 0.0f;
    case WEFT_SAMPLER_MIN_P:
        return s->min_p > 0.0f;
    case WEFT_SAMPLER_TOP_K:
        return s->top_k > 0;
    case WEFT_SAMPLER_TOP_P:
        return s->top_p < 1.0f;
    case WEFT_SAMPLER_TYPICAL:
        return s->typical_p < 1.0f;
    case WEFT_SAMPLER_TAIL_FREE:
        return s->tfs_z < 1.0f;
    case WEFT_SAMPLER_XTC:
        return s->xtc_probability > 0.0f && s->xtc_threshold <= 0.5f;
    case WEFT_SAMPLER_ADAPTIVE_P:
        return s->adaptive_target >= 0.0f;
    case WEFT_SAMPLER_COUNT:
        break;
    }
    return false;
}

/* Mirostat decides alone how many tokens are kept. */
static bool runs_with_mirostat(enum weft_sampler sampler) {
    return sampler == WEFT_SAMPLER_PENALTIES || sampler == WEFT_SAMPLER_DRY ||
           sampler == WEFT_SAMPLER_TEMPERATURE;
}

static bool is_penalty(enum weft_sampler sampler) {
    return sampler == WEFT_SAMPLER_PENALTIES || sampler == WEFT_SAMPLER_DRY;
}

/* The best token may be lost. */
static bool may_drop_best(enum weft_sampler sampler) {
    return sampler == WEFT_SAMPLER_TYPICAL || sampler == WEFT_SAMPLER_XTC;
}

/* Step i is a temperature of 0, and what is before it leaves the best token in place. */
static bool is_greedy_at(const struct wefti_chain_plan *plan, uint32_t i,
                         const struct weft_sampling *s) {
    if (plan->steps[i] != WEFT_SAMPLER_TEMPERATURE || is_dynamic(s) ||
        s->temperature >= WEFTI_CHAIN_GREEDY_BELOW || s->mirostat > 0 || plan->is_adaptive)
        return false;
    for (uint32_t before = plan->n_penalties; before < i; before++) {
        if (may_drop_best(plan->steps[before]) || is_penalty(plan->steps[before])) return false;
    }
    return true;
}

/* The steps behind the penalties are in the order in which sampler.c makes them at once. */
static bool is_usual(const struct wefti_chain_plan *plan, const struct weft_sampling *s) {
    uint32_t last = WEFT_SAMPLER_TOP_N_SIGMA;
    for (uint32_t i = plan->n_penalties; i < plan->n; i++) {
        uint32_t step = plan->steps[i];
        bool is_dynamic_one = step == WEFT_SAMPLER_TEMPERATURE && is_dynamic(s);
        if (step < last || step > WEFT_SAMPLER_TOP_P || is_dynamic_one) return false;
        last = step;
    }
    return s->mirostat == 0;
}
_Static_assert(WEFT_SAMPLER_DRY < WEFT_SAMPLER_TOP_N_SIGMA &&
                   WEFT_SAMPLER_TOP_N_SIGMA < WEFT_SAMPLER_TEMPERATURE &&
                   WEFT_SAMPLER_TEMPERATURE < WEFT_SAMPLER_MIN_P &&
                   WEFT_SAMPLER_MIN_P < WEFT_SAMPLER_TOP_K &&
                   WEFT_SAMPLER_TOP_K < WEFT_SAMPLER_TOP_P,
               "the usual order is that of the numbers");

struct wefti_chain_plan wefti_chain_plan(const struct weft_sampling *s) {
    enum weft_sampler order[WEFT_SAMPLER_COUNT];
    uint32_t n = weft_samplers_list(s->samplers, order);
    struct wefti_chain_plan plan = {.temperature = 1.0f};
    for (uint32_t i = 0; i < n; i++) {
        if (!is_active(order[i], s) || (s->mirostat > 0 && !runs_with_mirostat(order[i]))) continue;
        if (plan.n == plan.n_penalties && is_penalty(order[i])) plan.n_penalties++;
        if (order[i] == WEFT_SAMPLER_TEMPERATURE) plan.temperature = s->temperature;
        plan.is_adaptive |= order[i] == WEFT_SAMPLER_ADAPTIVE_P;
        plan.steps[plan.n++] = order[i];
    }
    for (uint32_t i = 0; i < plan.n && !plan.is_greedy; i++)
        plan.is_greedy = is_greedy_at(&plan, i, s);
    plan.is_usual = is_usual(&plan, s);
    return plan;
}

/* -------------------------------------------------------------------------------- candidates --- */

double wefti_chain_softmax(struct wefti_chain *c) {
    const double *x = c->scratch->x;
    double *p = c->scratch->p, max = -INFINITY, sum = 0.0;
    for (uint32_t i = 0; i < c->n; i++)
        max = x[i] > max ? x[i] : max;
    for (uint32_t i = 0; i < c->n; i++) {
        p[i] = exp(x[i] - max);
        sum += p[i];
    }
    for (uint32_t i = 0; i < c->n; i++)
        p[i] /= sum;
    return max + log(sum);
}

void wefti_chain_compact(struct wefti_chain *c) {
    double *x = c->scratch->x;
    uint32_t *ids = c->scratch->ids, n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        double value = x[i];
        uint32_t id = ids[i];
        x[n] = value, ids[n] = id; /* never ahead of the reading */
        n += value > -INFINITY;
    }
    WEFT_ASSERT(n > 0);
    c->n = n;
}

/* Bits that rise with the value. */
static uint64_t key_of(double value) {
    uint64_t bits;
    value += 0.0; /* -0 is 0 */
    memcpy(&bits, &value, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

enum { DIGITS = 8, VALUES = 256 };

static uint32_t digit_of(uint64_t key, uint32_t digit) {
    return (uint32_t)(key >> 8 * digit) & (VALUES - 1);
}

static void count_digits(const uint64_t *keys, uint32_t n, uint32_t counts[DIGITS][VALUES]) {
    memset(counts, 0, DIGITS * sizeof counts[0]);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t digit = 0; digit < DIGITS; digit++)
            counts[digit][digit_of(keys[i], digit)]++;
    }
}

/* Sorts scratch->keys and, along with them, scratch->rank. */
static void sort_keys(struct wefti_chain_scratch *s, uint32_t n) {
    uint32_t counts[DIGITS][VALUES];
    count_digits(s->keys, n, counts);
    for (uint32_t digit = 0; digit < DIGITS && n > 0; digit++) {
        uint32_t *places = counts[digit], begin = 0;
        if (places[digit_of(s->keys[0], digit)] == n) continue;
        for (uint32_t value = 0; value < VALUES; value++) {
            uint32_t count = places[value];
            places[value] = begin;
            begin += count;
        }
        for (uint32_t i = 0; i < n; i++) {
            uint32_t to = places[digit_of(s->keys[i], digit)]++;
            s->keys_spare[to] = s->keys[i];
            s->rank_spare[to] = s->rank[i];
        }
        uint64_t *keys = s->keys;
        uint32_t *rank = s->rank;
        s->keys = s->keys_spare, s->rank = s->rank_spare;
        s->keys_spare = keys, s->rank_spare = rank;
    }
}

uint32_t wefti_chain_rank(struct wefti_chain *c, double least_p) {
    struct wefti_chain_scratch *s = c->scratch;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (least_p > 0.0 && s->p[i] < least_p) continue;
        s->rank[n] = i;
        s->keys[n++] = ~key_of(s->x[i]);
    }
    sort_keys(s, n);
    return n;
}

void wefti_chain_rank_again(struct wefti_chain *c, const double *rising, uint32_t n) {
    struct wefti_chain_scratch *s = c->scratch;
    for (uint32_t i = 0; i < n; i++)
        s->keys[i] = key_of(rising[s->rank[i]]);
    sort_keys(s, n);
}

/* --------------------------------------------------------------------------------- the chain --- */

/* Penalties that do not come first: through the place where they are made on raw logits. Candidates
 * that they leave alone keep their bits. */
static void penalise(struct wefti_chain *c, enum weft_sampler sampler) {
    double *x = c->scratch->x;
    const uint32_t *ids = c->scratch->ids;
    for (uint32_t i = 0; i < c->n; i++)
        c->logits[ids[i]] = (float)x[i];
    if (sampler == WEFT_SAMPLER_PENALTIES)
        wefti_penalties_apply(c->input, c->logits, c->counts);
    else
        wefti_dry_apply(c->input, c->logits, c->counts, c->scratch->runs, c->scratch->n_runs);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->logits[ids[i]] != (float)x[i]) x[i] = (double)c->logits[ids[i]];
    }
}

void wefti_chain_run(struct wefti_chain *c, const struct wefti_chain_plan *plan, uint32_t begin) {
    static wefti_chain_fn *const samplers[WEFT_SAMPLER_COUNT] = {
        [WEFT_SAMPLER_TOP_N_SIGMA] = wefti_cut_top_n_sigma,
        [WEFT_SAMPLER_TEMPERATURE] = wefti_chain_temper,
        [WEFT_SAMPLER_MIN_P] = wefti_cut_min_p,
        [WEFT_SAMPLER_TOP_K] = wefti_cut_top_k,
        [WEFT_SAMPLER_TOP_P] = wefti_cut_top_p,
        [WEFT_SAMPLER_TYPICAL] = wefti_cut_typical,
        [WEFT_SAMPLER_TAIL_FREE] = wefti_cut_tail_free,
        [WEFT_SAMPLER_XTC] = wefti_cut_xtc,
    };
    for (uint32_t i = begin; i < plan->n; i++) {
        enum weft_sampler step = plan->steps[i];
        WEFT_ASSERT(c->n > 0 && c->n <= c->n_vocab);
        if (is_penalty(step))
            penalise(c, step);
        else if (samplers[step])
            samplers[step](c);
    }
}
