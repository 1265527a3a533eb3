/* engine/runtime/kv_cache — the physical blocks of keys and values, all layers in one mapping.
 *
 * The scheduler decides who holds which block (lib/paged_kv); here they are memory. A block of a
 * kind is one of each layer of that kind, all of them in one piece. */
#ifndef WEFT_ENGINE_KV_CACHE_H
#define WEFT_ENGINE_KV_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/step.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "model/model.h"

/* The engine's own blocks, for what is computed without any sequence going on with it. */
#define WEFTI_KV_SPARE 16u

struct wefti_kv_cache {
    struct weft_kv_layer *layers; /* [n_layers]; some may be those of others */
    struct weft_kv_layer
        *index;     /* [n_layers] an indexer's keys, in the same blocks; NULL: there are none */
    uint32_t top_k; /* with those: positions that a token attends to */
    uint32_t n_layers, n_blocks[WEFT_KV_KINDS];
    uint32_t n_spare; /* blocks of each kind after those, which no plan names */
    /* A bit per layer that has no part in blocks: it is without attention, or reads another layer's. */
    uint32_t absent[WEFT_LAYERS_MAX / 32];
    uint32_t windowed[WEFT_LAYERS_MAX / 32]; /* a bit per layer: its blocks are of that kind */
    size_t block_bytes[WEFT_KV_KINDS];       /* in all layers of the kind; 0: there are none */
    uint8_t *map;
    size_t map_bytes;
};

static inline enum weft_kv_kind wefti_kv_cache_kind(const struct wefti_kv_cache *cache,
                                                    uint32_t layer) {
    return weft_model_bit(cache->windowed, layer) ? WEFT_KV_WINDOWED : WEFT_KV_FULL;
}

/* Where all layers of a block are: block_bytes[kind] of them. */
static inline uint8_t *wefti_kv_cache_block(const struct wefti_kv_cache *cache,
                                            enum weft_kv_kind kind, uint32_t block) {
    uint8_t *first = cache->map;
    if (kind == WEFT_KV_WINDOWED)
        first += (size_t)(cache->n_blocks[WEFT_KV_FULL] + cache->n_spare) *
                 cache->block_bytes[WEFT_KV_FULL];
    return first + block * cache->block_bytes[kind];
}

/* What so many blocks of each kind take, in all layers. */
static inline uint64_t wefti_kv_cache_bytes(const struct wefti_kv_cache *cache, uint64_t n_full,
                                            uint64_t n_windowed) {
    return n_full * cache->block_bytes[WEFT_KV_FULL] +
           n_windowed * cache->block_bytes[WEFT_KV_WINDOWED];
}

/* What one sequence takes that has grown to so many tokens, in whole blocks; and what attention then reads for its
 * next one. */
uint64_t wefti_kv_cache_seq_bytes(const struct wefti_kv_cache *cache,
                                  const struct weft_eng_info *info, uint32_t n_tokens,
                                  uint64_t *read_bytes_out);

/* How many sequences of full length it holds at a time: the scarcer kind of blocks counts. */
uint64_t wefti_kv_cache_n_seqs(const struct wefti_kv_cache *cache,
                               const struct weft_eng_info *info);

/* The element type by the options. */
enum weft_kv_dtype wefti_kv_cache_dtype(const struct weft_eng_options *options);

/* Sizes the cache and maps it. Writes n_blocks, window, n_window_blocks and kv_bytes of `info`, and
 * lowers max_model_len where no sequence of that length fits. `taken_bytes`: what others will take
 * of the memory that is free now, or of options->limit: a cache that takes its size from what a
 * limit leaves is never less than for one sequence; `beside_bytes`: what each block takes
 * elsewhere, in the same memory. INVAL: not even one block fits into the memory asked for. NOMEM.
 * In any case `cache` is to be closed. */
WEFT_MUST_CHECK weft_err wefti_kv_cache_open(struct wefti_kv_cache *cache,
                                             const struct weft_model_params *params,
                                             const struct weft_eng_options *options,
                                             uint64_t taken_bytes, uint64_t beside_bytes,
                                             struct weft_eng_info *info, struct weft_errmsg *why);
/* A cache whose blocks stand beside those of another, whatever its layers see: a block takes so many
 * bytes, and there are as many as info has. NOMEM; to be closed in any case. */
uint64_t wefti_kv_cache_block_bytes(const struct weft_model_params *params,
                                    const struct weft_eng_options *options);
WEFT_MUST_CHECK weft_err wefti_kv_cache_open_beside(struct wefti_kv_cache *cache,
                                                    const struct weft_model_params *params,
                                                    const struct weft_eng_options *options,
                                                    const struct weft_eng_info *info,
                                                    struct weft_errmsg *why);
void wefti_kv_cache_close(struct wefti_kv_cache *cache); /* accepts zeroed ones */

/* Puts numbers between -1 and 1 into the first `n_blocks` blocks of each kind, or as many as there
 * are. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_kv_cache_fill(const struct wefti_kv_cache *cache,
                                             const struct weft_kern_table *kern, uint64_t n_blocks);

/* Copies blocks within one layer, those of its kind, in the order of the list. */
void wefti_kv_cache_copy(const struct wefti_kv_cache *cache, uint32_t layer,
                         const struct weft_step_copy *copies, uint32_t n_copies);

#endif
