/* engine/forward/choose — the best of many scores. */
#ifndef WEFT_ENGINE_CHOOSE_H
#define WEFT_ENGINE_CHOOSE_H

#include <stdint.h>

/* The positions of the k largest of n scores, of equal ones the first, as a set of weft_attn_set_words(n)
 * words; all, if there are no more than k. NaN counts as less than any number, -0 as 0. k >= 1. */
void wefti_forward_choose(const float *scores, uint32_t n, uint32_t k, uint64_t *set);

#endif
