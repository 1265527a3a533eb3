/* The k-th largest score is found digit by digit, from the highest one down: how many scores have which digit, of
 * those that agree in the digits before. Three passes over the scores, however they are spread, and a
 * fourth that takes what is larger, and of what is equal the first ones. */
#include "forward/attention/choose.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "kernels/kernels.h"

enum { DIGITS = 3, DIGIT_BITS = 11 };

/* A number that is larger where the score is. */
static uint32_t order_of(float score) {
    uint32_t bits;
    if (isnan(score)) return 0;
    if (score == 0) score = 0; /* of either sign */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The k-th largest of n; *n_equal_out: how many of its equals are among the k. */
static uint32_t find_cut(const float *scores, uint32_t n, uint32_t k, uint32_t *n_equal_out) {
    static const uint32_t shifts[DIGITS] = {21, 10, 0};
    uint32_t counts[1 << DIGIT_BITS], cut = 0, left = k;
    for (uint32_t d = 0; d < DIGITS; d++) {
        const uint32_t shift = shifts[d], before = d > 0 ? shifts[d - 1] : 32;
        uint32_t digit = (1u << (before - shift)) - 1;
        memset(counts, 0, sizeof counts);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t order = order_of(scores[i]);
            if ((uint64_t)(order ^ cut) >> before == 0)
                counts[order >> shift & ((1u << (before - shift)) - 1)]++;
        }
        for (; counts[digit] < left; digit--) {
            WEFT_ASSERT(digit > 0);
            left -= counts[digit];
        }
        cut |= digit << shift;
    }
    *n_equal_out = left;
    return cut;
}

void wefti_forward_choose(const float *scores, uint32_t n, uint32_t k, uint64_t *set) {
    uint32_t n_equal = n, cut = 0;
    WEFT_ASSERT(k > 0);
    if (n > k) cut = find_cut(scores, n, k, &n_equal);
    memset(set, 0, weft_attn_set_words(n) * sizeof *set);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t order = n > k ? order_of(scores[i]) : 0;
        bool is_equal = order == cut && n_equal > 0;
        n_equal -= is_equal;
        if (order > cut || is_equal)
            set[i / WEFT_ATTN_SET_WORD] |= (uint64_t)1 << i % WEFT_ATTN_SET_WORD;
    }
}
