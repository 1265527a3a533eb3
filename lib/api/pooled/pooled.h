/* pooled — what texts become in place of more text: vectors, numbers for labels, scores of pairs.
 *
 * Model    Each text, or pair of texts, is a prompt and one job of the call. Its values come with its
 *          end, and are made what the model's files say as soon as they are there: cut, of length 1,
 *          probabilities. Scores and their order are made once all have come.
 * Source   Qwen3-Reranker's question: its model card (2025). Matryoshka representations, of which the
 *          first few numbers are a vector, too: Kusupati et al., NeurIPS 2022. */
#ifndef WEFT_API_POOLED_POOLED_H
#define WEFT_API_POOLED_POOLED_H

#include "call/call_internal.h"

/* Texts to ids, cut to what the model takes: an error is the call's. Any thread. */
void wefti_api_encode_pooled(weft_api_call *call);

/* The most bytes that the values of all prompts take. */
uint64_t wefti_api_values_bytes(const weft_api_call *call);

/* Takes a job's values. INVAL: not as many as there must be; PROTO: one is no number; NOMEM. */
WEFT_MUST_CHECK weft_err wefti_api_take_values(struct job *job, const struct weft_event *event);

/* Of all jobs together: call->ranked, which has scores, best first if the kind ranks them. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_api_make_scores(weft_api_call *call);

#endif
