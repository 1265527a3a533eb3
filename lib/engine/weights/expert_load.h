/* engine/weights/expert_load — which ranks have which experts, by how much these were used.
 *
 * A profile is a JSON file of the tokens that each expert of each layer computed. Groups of experts
 * move as a whole (docs/architecture.md, "Batch invariance"), and each rank gets as many of them. */
#ifndef WEFT_ENGINE_EXPERT_LOAD_H
#define WEFT_ENGINE_EXPERT_LOAD_H

#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "model/model.h"
#include "weights/weights.h"

/* Reads a profile of the model: *tokens_out is [n_layers][n_experts], the caller's to free. INVAL:
 * it is none, or one of another model. Errors of weft_file_read. */
WEFT_MUST_CHECK weft_err wefti_expert_load_read(const char *path, const struct weft_model_params *p,
                                                uint64_t **tokens_out, struct weft_errmsg *why);

/* Writes one. IO, NOMEM. */
struct wefti_expert_load {
    const char *model, *arch;
    uint32_t n_layers, n_experts, n_hidden;
    const uint64_t *tokens; /* [n_layers][n_experts] */
};
WEFT_MUST_CHECK weft_err wefti_expert_load_write(FILE *out, const struct wefti_expert_load *load,
                                                 struct weft_errmsg *why);

/* The rank of each group: in order where tokens[n_experts] is NULL; else the most used group first,
 * each to the rank with the least so far that has room. */
void wefti_expert_load_place(const uint64_t *tokens, uint32_t n_experts, uint32_t n_ranks,
                             uint8_t rank_out[WEFTI_WEIGHTS_EXPERT_GROUPS]);

#endif
