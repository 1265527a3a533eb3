/* engine/sampler/penalties — what a sequence's own tokens take from their logits.
 *
 * The sequence itself is the record of tokens seen: walking it costs little beside the forward pass,
 * and a resumed or recomputed sequence needs no state to be rebuilt.
 *
 * Source   Repetition: Keskar et al. 2019; frequency, presence: OpenAI; DRY: p-e-w 2024. */
#ifndef WEFT_ENGINE_PENALTIES_H
#define WEFT_ENGINE_PENALTIES_H

#include "sampler/sampler.h"

bool wefti_dry_is_active(const struct weft_sampling *sampling);

/* On raw logits. `counts` [n_vocab] is zero before and after. */
void wefti_penalties_apply(const struct wefti_sampler_input *input, float *logits,
                           uint32_t *counts);
/* The same; it looks back as far as `runs` has room, [n_runs], which is the model's length. */
void wefti_dry_apply(const struct wefti_sampler_input *input, float *logits, uint32_t *counts,
                     uint32_t *runs, uint32_t n_runs);

#endif
