/* engine/sampler/select — the largest weights, and the best few in order. Equal ones rank by lower
 * id. */
#ifndef WEFT_ENGINE_SELECT_H
#define WEFT_ENGINE_SELECT_H

#include <stdbool.h>
#include <stdint.h>

#include "sampler/sampler.h"

/* The goal that kept weights must reach: a number of them, or a sum. */
struct wefti_sampler_goal {
    uint32_t n;
    double mass;     /* used when n == 0 */
    bool keeps_ties; /* all weights equal to the least one that is kept stay, too */
};

/* Keeps the smallest set of largest weights that reaches the goal, and sets the others to 0. False:
 * even all of them do not reach it, and all are kept. Weights are finite and not negative. */
bool wefti_sampler_drop_small(float *w, uint32_t n, const struct wefti_sampler_goal *goal,
                              struct wefti_sampler_scratch *scratch);

/* The top->n largest of values[0..n), best first. */
void wefti_sampler_find_top(const float *values, uint32_t n, const struct wefti_sampler_top *top);

#endif
