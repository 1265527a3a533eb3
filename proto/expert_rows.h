/* expert_rows — the sums behind weft_expert_tokens_total: rows by layer and expert.
 *
 * The sums never fall, whichever process restarts. A worker reports rows since its last report, and
 * the scheduler adds them. The scheduler reports its sums; a router adds their growth, or the whole
 * sums of a new scheduler, which began at 0.
 */
#ifndef WEFT_PROTO_EXPERT_ROWS_H
#define WEFT_PROTO_EXPERT_ROWS_H

#include <stdint.h>

#include "base/err.h"
#include "proto/proto.h"

struct weft_expert_rows { /* zeroes: nothing is known */
    uint32_t n_layers, n_experts;
    uint32_t *layers; /* [n_layers], those that have experts */
    uint64_t *sums;   /* [n_layers][n_experts]; they stop at UINT64_MAX */
    uint64_t *seen;   /* the same, as carried last */
};

void weft_expert_rows_fini(struct weft_expert_rows *rows); /* zeroes again */

/* For the scheduler: adds a worker's report. PROTO: an earlier worker had other layers or experts.
 * NOMEM. */
WEFT_MUST_CHECK weft_err weft_expert_rows_add(struct weft_expert_rows *rows,
                                              const struct weft_msg_experts *told,
                                              struct weft_errmsg *why);

/* For a router: adds the growth of the scheduler's sums. Other layers or experts mean another
 * model, whose sums begin at 0. NOMEM: the rows are empty again. */
WEFT_MUST_CHECK weft_err weft_expert_rows_carry(struct weft_expert_rows *rows,
                                                const struct weft_msg_experts *told);
/* The next weft_expert_rows_carry is from another scheduler. */
void weft_expert_rows_new_source(struct weft_expert_rows *rows);

#endif
