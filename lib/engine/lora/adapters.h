/* engine/lora/adapters — LoRA adapters in memory, in the form that the pass multiplies by.
 *
 * Model    Of each matrix that an adapter changes A and B are packed panels, f32 or bf16. An adapter
 *          is found by a number of the caller's choice, and held by the sequences that use it.
 * Threads  Adapters may be added by any thread, one at a time, while steps run. All else is for the
 *          thread that steps: so nothing disappears within a step. A lock guards the table alone.
 * Memory   One mapping per adapter, sized by its ranks. A full table takes no more of them, nor do those
 *          in it that have all the bytes that they may. */
#ifndef WEFT_ENGINE_ADAPTERS_H
#define WEFT_ENGINE_ADAPTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "kernels/kernels.h"
#include "model/lora.h"
#include "model/model.h"

/* y += scale * B (A x), for one matrix. */
struct wefti_lora_matrix {
    uint32_t rank, n, k; /* rank 0: it stays as it is */
    float scale;
    const uint8_t *a, *b; /* [rank][k] and [n][rank], packed */
};

enum { WEFTI_LORA_EXPERT_ROLES = 3 }; /* gate, up, down */

struct wefti_lora_adapter {
    uint64_t id;
    struct weft_eng_lora info;
    enum weft_dtype type;              /* F32 or BF16, of all matrices */
    struct wefti_lora_matrix *layers;  /* [n_layers][WEFT_LORA_ROLE_COUNT] */
    struct wefti_lora_matrix *experts; /* [n_layers][n_experts][WEFTI_LORA_EXPERT_ROLES]; NULL: as
                                          they are */
    uint32_t n_experts;
    uint32_t n_users;
    bool is_leaving; /* goes with its last user */
    void *map;
    size_t map_bytes;
};

/* The adapters of one sequence, and how much of each is added; in the order of adding. */
struct wefti_lora_use {
    const struct wefti_lora_adapter *adapter;
    float scale;
};
struct wefti_lora_set {
    uint32_t n;
    struct wefti_lora_use uses[WEFT_SEQ_ADAPTERS_MAX];
};

typedef struct wefti_loras wefti_loras;

/* Adapters for a model of `params` (copied), at most n_max of rank_max each, packed for products of
 * `dtype` (F32 or BF16). NOMEM. */
struct wefti_loras_config {
    const struct weft_model_params *params;
    enum weft_model_format format;
    uint32_t n_max, rank_max;
    enum weft_dtype dtype;
    uint64_t home;
};
WEFT_MUST_CHECK weft_err wefti_loras_new(const struct wefti_loras_config *config,
                                         wefti_loras **loras_out);
void wefti_loras_free(wefti_loras *loras); /* accepts NULL */
/* The most bytes of all of them together. Before the first is added; there is no bound until then. */
void wefti_loras_limit(wefti_loras *loras, uint64_t n_bytes_max);

/* weft_eng_add_lora. */
WEFT_MUST_CHECK weft_err wefti_loras_add(wefti_loras *loras, uint64_t id, const char *path,
                                         struct weft_eng_lora *info_out, struct weft_errmsg *why);
/* It is freed when nobody uses it; unknown numbers are ignored. */
void wefti_loras_remove(wefti_loras *loras, uint64_t id);

/* Whether a sequence may start with these; else a sentence. */
WEFT_MUST_CHECK weft_err wefti_loras_check(wefti_loras *loras, const struct weft_step_adapter *list,
                                           uint32_t n, struct weft_errmsg *why);
/* Holds those of a list that was checked; drop lets go of them, of an empty set too. */
void wefti_loras_take(wefti_loras *loras, const struct weft_step_adapter *list, uint32_t n,
                      struct wefti_lora_set *set_out);
void wefti_loras_drop(wefti_loras *loras, struct wefti_lora_set *set);

static inline const struct wefti_lora_matrix *
wefti_lora_matrix_of(const struct wefti_lora_adapter *adapter, uint32_t layer,
                     enum weft_lora_role role) {
    return &adapter->layers[(size_t)layer * WEFT_LORA_ROLE_COUNT + role];
}

/* NULL: the expert stays as it is. */
static inline const struct wefti_lora_matrix *
wefti_lora_expert_matrix(const struct wefti_lora_adapter *adapter, uint32_t layer, uint32_t expert,
                         enum weft_lora_role role) {
    if (!adapter->experts) return NULL;
    size_t at = ((size_t)layer * adapter->n_experts + expert) * WEFTI_LORA_EXPERT_ROLES;
    const struct wefti_lora_matrix *matrix = &adapter->experts[at + (role - WEFT_LORA_GATE)];
    return matrix->rank > 0 ? matrix : NULL;
}

#endif
