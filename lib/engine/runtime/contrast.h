/* engine/runtime/contrast — contrastive search in one sequence: of the k likeliest tokens that comes next
 * which is likely and yet unlike what was there.
 *
 * Model    The sequence's context is the hidden state behind each of its tokens. A candidate has a
 *          probability p and, once it was computed, a hidden state h of its own; its score is
 *          (1 - alpha) p - alpha max cos(h, c) over the context. The greatest score wins, of equal ones
 *          the likelier token.
 * Order    Products of hidden states are summed in double, in eight sums and a fixed tree: the same with
 *          every instruction set.
 * Threads  One adds, or any number compare.
 * Memory   Address space for the longest context from the start, resident as states arrive.
 * Source   Su et al. 2022, "A Contrastive Framework for Neural Text Generation", section 4; the
 *          probabilities are those of all tokens, as in transformers.
 */
#ifndef WEFT_ENGINE_CONTRAST_H
#define WEFT_ENGINE_CONTRAST_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

struct wefti_contrast_candidate {
    uint32_t token;
    double p, cosine; /* the latter the greatest, once it is known */
};

struct wefti_contrast {
    float *hidden;   /* [n_max][n_hidden] */
    double *squares; /* [n_max] of the states' lengths */
    uint32_t n, n_max, n_hidden;
    uint32_t n_candidates; /* of this step, best first; 0: there are none */
    struct wefti_contrast_candidate candidates[WEFT_CONTRAST_K_MAX];
    size_t map_bytes;
};

/* For a context of up to n_max states; the caller's, to free. NULL: no memory. */
struct wefti_contrast *wefti_contrast_new(uint32_t n_max, uint32_t n_hidden);
void wefti_contrast_free(struct wefti_contrast *contrast); /* accepts NULL */

/* The state behind the next token joins the context. */
void wefti_contrast_add(struct wefti_contrast *contrast, const float *hidden);

/* The greatest cosine between a state and the context, which has one state at least. */
double wefti_contrast_cosine(const struct wefti_contrast *contrast, const float *hidden);

double wefti_contrast_score(const struct wefti_contrast_candidate *candidate, double alpha);

/* The candidate that wins: its index. */
uint32_t wefti_contrast_choose(const struct wefti_contrast *contrast, double alpha);

#endif
