/* engine/forward/ranks — where the ranks of a group that divides a model meet in a pass.
 *
 * The sums over K that ranks divide go through parts in the group's memory: rows of part_stride
 * floats. At first stands the sum over heads or columns of the FFN, or of experts. Where groups of
 * experts have been moved, a rank's are no subtree of the sum, so each group's own sum stands there,
 * x_stride floats after the last. At shared_at comes that of a shared expert, if there is one. */
#ifndef WEFT_ENGINE_RANKS_H
#define WEFT_ENGINE_RANKS_H

#include "forward/pass.h"

static inline bool wefti_forward_is_divided(const struct wefti_forward *f) {
    return f->n_ranks > 1;
}

/* What of the group's memory is this rank's after a full pass. */
size_t wefti_forward_rank_bytes(const struct wefti_forward *f);

/* Makes room in the group's memory, and logits that all ranks write to. Errors of
 * weft_coll_reserve. */
WEFT_MUST_CHECK weft_err wefti_forward_join_ranks(struct wefti_forward *f, struct weft_errmsg *why);

/* Each ends a phase, and all ranks see what any wrote in it: rows of its part; its columns of rows of
 * logits, or of what recurrent layers gather; tokens that the first rank sampled. False: the group is over, and with it the pass, on all
 * threads alike. */
bool wefti_forward_share_parts(const struct wefti_forward_thread *thread, uint32_t n_rows);
bool wefti_forward_share_logits(const struct wefti_forward_thread *thread, uint32_t n_rows);
bool wefti_forward_gather(const struct wefti_forward_thread *thread, struct wefti_weights_range own,
                          uint32_t n_rows);
bool wefti_forward_share_tokens(const struct wefti_forward_thread *thread, uint32_t first,
                                uint32_t n);

/* Row 0 of what this rank gives at the next meeting; row `row` of what `rank` gave at the last. */
float *wefti_forward_own_part(const struct wefti_forward *f);
const float *wefti_forward_part_of(const struct wefti_forward *f, uint32_t rank, uint32_t row);

/* Columns of a row of parts, and the segments of the sum that are not empty. */
struct wefti_forward_sum {
    uint32_t row, at, n;
    uint8_t present;
};
/* out[n] = the sum over all ranks, as the last meeting shared it. */
void wefti_forward_sum_parts(const struct wefti_forward *f, const struct wefti_forward_sum *sum,
                             float *out);

#endif
