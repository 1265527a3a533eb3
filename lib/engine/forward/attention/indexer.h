/* engine/forward/indexer — which positions rows attend to, where a model chooses them. */
#ifndef WEFT_ENGINE_INDEXER_H
#define WEFT_ENGINE_INDEXER_H

#include "forward/pass.h"

/* Sizes that follow from the model; `n_context`: positions of a sequence at most. */
void wefti_forward_index_set(struct wefti_forward *f, const struct weft_model_params *params,
                             uint32_t n_context);

/* Whether any of the rows has more positions than it attends to: else nothing is scored. */
bool wefti_forward_index_scores(const struct wefti_forward *f, const struct weft_attn_row *rows,
                                uint32_t n);

/* How many positions are scored for all rows together. */
uint64_t wefti_forward_index_scored(const struct wefti_forward *f, const struct weft_attn_row *rows,
                                    uint32_t n);

/* Puts a row's index key into the cache, and makes its index queries ready. */
void wefti_forward_index_row(const struct wefti_forward *f, uint32_t layer,
                             const struct wefti_forward_batch *batch, uint32_t row);

/* Moves what choosing reads of row `from` to row `to`, before it. */
void wefti_forward_index_move(const struct wefti_forward *f, uint32_t from, uint32_t to);

/* f->seen = what each row attends to, for those that do not attend to all. The index keys of
 * their histories are in the cache. Ends phases if anything is scored. */
void wefti_forward_index_choose(const struct wefti_forward_thread *thread, uint32_t layer,
                                const struct weft_attn_row *rows, uint32_t n_rows);

#endif
