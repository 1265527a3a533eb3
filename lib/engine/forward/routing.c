/* Which experts a token takes, and how much of each, depends on its row alone, whatever else is in
 * the batch. All in f32 and in one order: groups, experts and weights by ascending id.
 *
 * Source: Shazeer et al. 2017; for groups of experts DeepSeek-V2 (2024), section 2.1.3, and for the
 * bias DeepSeek-V3 (2024), section 2.1.2. */
#include "forward/experts.h"

#include <math.h>
#include <string.h>

static void softmax(float *x, uint32_t n) {
    float max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] > max) max = x[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += x[i];
    }
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sum;
}

static void sigmoid(float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] = 1 / (1 + expf(-x[i]));
}

/* The score that experts are chosen by. */
static float key_of(const float *scores, const float *bias, uint32_t expert) {
    return bias ? scores[expert] + bias[expert] : scores[expert];
}

/* NaN is less than everything. */
static bool is_better(float a, float b) {
    return a > b || (isnan(b) && !isnan(a));
}

/* The best expert of a group, or the sum of the two best. */
static float group_key(const struct weft_model_moe *moe, const float *bias, const float *scores,
                       uint32_t group) {
    uint32_t per_group = moe->n_experts / moe->n_groups, begin = group * per_group;
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t e = begin; e < begin + per_group; e++) {
        float key = key_of(scores, bias, e);
        if (key > best) {
            second = best;
            best = key;
        } else if (key > second) {
            second = key;
        }
    }
    return moe->by_two ? best + second : best;
}

/* A set of experts, or of groups of them. */
struct set {
    uint64_t bits[WEFT_EXPERTS_MAX / 64];
};

static bool has(const struct set *set, uint32_t i) {
    return set->bits[i / 64] >> i % 64 & 1;
}

static void put(struct set *set, uint32_t i) {
    set->bits[i / 64] |= 1ull << i % 64;
}

static void choose_groups(const struct weft_model_moe *moe, const float *bias, const float *scores,
                          struct set *groups_out) {
    float keys[WEFT_EXPERTS_MAX];
    for (uint32_t g = 0; g < moe->n_groups; g++)
        keys[g] = group_key(moe, bias, scores, g);
    for (uint32_t i = 0; i < moe->n_groups_used; i++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t g = 0; g < moe->n_groups; g++) {
            if (has(groups_out, g)) continue;
            if (best == UINT32_MAX || is_better(keys[g], keys[best])) best = g;
        }
        put(groups_out, best);
    }
}

/* The best expert that is not in `taken`, of the groups in `groups`. */
static uint32_t next_best(const struct weft_model_moe *moe, const float *bias, const float *scores,
                          const struct set *groups, const struct set *taken) {
    uint32_t best = UINT32_MAX, per_group = moe->n_experts / moe->n_groups;
    float best_key = NAN;
    for (uint32_t e = 0; e < moe->n_experts; e++) {
        if (has(taken, e) || (moe->n_groups > 1 && !has(groups, e / per_group))) continue;
        float key = key_of(scores, bias, e);
        if (best != UINT32_MAX && !is_better(key, best_key)) continue;
        best = e;
        best_key = key;
    }
    return best;
}

void wefti_forward_route(const struct wefti_forward_router *router, const float *logits,
                         uint32_t *chosen, float *weights) {
    const struct weft_model_moe *moe = router->moe;
    const float *bias = router->bias;
    float scores[WEFT_EXPERTS_MAX];
    struct set groups = {0}, taken = {0};
    float sum = 0;
    uint32_t n = 0;
    memcpy(scores, logits, moe->n_experts * sizeof *scores);
    for (uint32_t e = 0; router->score_scale != 1 && e < moe->n_experts; e++)
        scores[e] *= router->score_scale;
    (moe->sigmoid ? sigmoid : softmax)(scores, moe->n_experts);
    if (moe->n_groups > 1) choose_groups(moe, bias, scores, &groups);
    for (uint32_t i = 0; i < moe->n_used; i++)
        put(&taken, next_best(moe, bias, scores, &groups, &taken));
    for (uint32_t e = 0; e < moe->n_experts; e++) {
        if (!has(&taken, e)) continue;
        chosen[n] = e;
        weights[n++] = scores[e];
        sum += scores[e];
    }
    for (uint32_t i = 0; i < n; i++)
        weights[i] = (moe->normalise ? weights[i] / (sum + 1e-20f) : weights[i]) * moe->scale;
    for (uint32_t i = 0; router->factors && i < n; i++)
        weights[i] *= router->factors[chosen[i]];
}
