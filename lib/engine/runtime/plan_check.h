/* engine/runtime/plan_check — whether a step's plan fits the sequences that are there. */
#ifndef WEFT_ENGINE_PLAN_CHECK_H
#define WEFT_ENGINE_PLAN_CHECK_H

#include "runtime/slots.h"

/* Goes through the whole plan as weft_eng_step would and changes no sequence. `n_spill_slots`: of
 * the spill file. `is_new_epoch`: as if every slot were empty. WEFT_E_PROTO with the first thing
 * that does not fit. */
WEFT_MUST_CHECK weft_err wefti_plan_check(struct wefti_slots *slots,
                                          const struct weft_step_plan *plan, uint32_t n_spill_slots,
                                          bool is_new_epoch, struct weft_errmsg *why);

#endif
