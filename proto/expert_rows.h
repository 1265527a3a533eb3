/* expert_rows — the sums behind weft_expert_tokens_total: rows by layer and expert.
 *
 * They only ever grow, whoever starts anew on the way to them. A worker tells the scheduler what
 * came since it last told, which is added. The scheduler tells routers its sums; a router adds
 * what they grew by, and of a new scheduler, which began at 0, all it says.
 */
#ifndef WEFT_PROTO_EXPERT_ROWS_H
#define WEFT_PROTO_EXPERT_ROWS_H

#include <stdint.h>

#include "base/err.h"
#include "proto/proto.h"

struct weft_expert_rows { /* zeroes: nothing is known */
    uint32_t n_layers, n_experts;
    uint32_t *layers; /* [n_layers], those that have experts */
    uint64_t *sums;   /* [n_layers][n_experts]; at UINT64_MAX they stand still */
    uint64_t *seen;   /* the same, as carried last */
};

void weft_expert_rows_fini(struct weft_expert_rows *rows); /* zeroes again */

/* The scheduler's: adds what a worker tells. PROTO: the worker before had other layers or
 * experts. NOMEM. */
WEFT_MUST_CHECK weft_err weft_expert_rows_add(struct weft_expert_rows *rows,
                                              const struct weft_msg_experts *told,
                                              struct weft_errmsg *why);

/* A router's: adds what the scheduler's sums grew by. Other layers or experts are those of
 * another model, and begin at 0. NOMEM: nothing is known any more. */
WEFT_MUST_CHECK weft_err weft_expert_rows_carry(struct weft_expert_rows *rows,
                                                const struct weft_msg_experts *told);
/* What is carried next comes from another scheduler. */
void weft_expert_rows_new_source(struct weft_expert_rows *rows);

#endif
