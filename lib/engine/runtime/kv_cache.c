/* One mapping holds the blocks of all layers: layer by layer a plane of keys and one of values, or
 * one of latents alone, of as many blocks as the layer's kind has. Block b of a plane is at
 * b * block_bytes, so a block id is all that a table needs. The mapping is address space from the start and becomes resident as blocks are written. */
#include "runtime/kv_cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "runtime/memory.h"

enum {
    /* From this size on the cache gets huge pages: below it they would make memory resident that a
     * small model never touches. */
    HUGE_CACHE_BYTES = 512 << 20,
};

enum weft_kv_dtype wefti_kv_cache_dtype(const struct weft_eng_options *options) {
    switch (options->kv_dtype) {
    case WEFT_ENG_KV_F32:
        return WEFT_KV_F32;
    case WEFT_ENG_KV_BF16:
        return WEFT_KV_BF16;
    case WEFT_ENG_KV_F16:
        return WEFT_KV_F16;
    case WEFT_ENG_KV_INT8:
        return WEFT_KV_INT8;
    case WEFT_ENG_KV_AUTO:
        break;
    }
    return options->activations == WEFT_ENG_ACT_F32 ? WEFT_KV_F32 : WEFT_KV_BF16;
}

/* Never none: whether one block is too much is for the sum of everything to say. */
static uint64_t default_memory(const struct weft_eng_options *options, uint64_t taken_bytes,
                               uint64_t usable_bytes, uint64_t bytes_per_block) {
    uint64_t available = weft_mem_available_bytes();
    uint64_t left = available > taken_bytes ? available - taken_bytes : 0;
    uint64_t memory = weft_min_u64(left / 2 / options->n_sharers, usable_bytes);
    return memory > bytes_per_block ? memory : bytes_per_block;
}

/* How many blocks, and whether one sequence of full length fits into them. */
static weft_err size_blocks(const struct weft_eng_options *options, uint64_t taken_bytes,
                            uint64_t bytes_per_block, struct weft_eng_info *info,
                            struct weft_errmsg *why) {
    WEFT_ASSERT(bytes_per_block > 0);
    uint64_t blocks_per_seq =
        ((uint64_t)info->max_model_len + info->block_size - 1) / info->block_size;
    uint64_t memory = options->kv_memory_bytes;
    if (memory == 0)
        memory = default_memory(options, taken_bytes,
                                blocks_per_seq * info->max_seqs * bytes_per_block, bytes_per_block);
    uint64_t n_blocks = weft_min_u64(memory / bytes_per_block, WEFT_KV_BLOCKS_MAX);
    if (n_blocks == 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "%" PRIu64 " bytes of KV memory hold no block: one takes %" PRIu64,
                            memory, bytes_per_block);
    if (n_blocks < blocks_per_seq) info->max_model_len = (uint32_t)(n_blocks * info->block_size);
    info->n_blocks = (uint32_t)n_blocks;
    info->n_window_blocks = info->window > 0 ? info->n_blocks : 0;
    info->kv_bytes = n_blocks * bytes_per_block;
    return WEFT_OK;
}

/* A window that no sequence outgrows gives nothing back. */
static void set_kinds(struct wefti_kv_cache *cache, const struct weft_model_params *params,
                      struct weft_eng_info *info) {
    if (params->window == 0 || params->window >= info->max_model_len) return;
    for (uint32_t i = 0; i < params->n_layers; i++) {
        if (weft_model_bit(params->no_window, i)) continue;
        cache->windowed[i / 32] |= 1u << i % 32;
        info->window = params->window;
    }
}

weft_err wefti_kv_cache_open(struct wefti_kv_cache *cache, const struct weft_model_params *params,
                             const struct weft_eng_options *options, uint64_t taken_bytes,
                             struct weft_eng_info *info, struct weft_errmsg *why) {
    struct weft_kv_layer layer = {.dtype = wefti_kv_cache_dtype(options),
                                  .block_size = info->block_size,
                                  .n_kv_heads = params->n_kv_heads,
                                  .head_dim = params->head_dim,
                                  .v_dim = params->kv_lora};
    *cache = (struct wefti_kv_cache){.n_planes = weft_kv_n_planes(&layer),
                                     .n_layers = params->n_layers,
                                     .block_bytes = weft_kv_block_bytes(&layer)};
    uint64_t bytes_per_block = (uint64_t)cache->n_planes * cache->n_layers * cache->block_bytes;
    set_kinds(cache, params, info);
    weft_err err = size_blocks(options, taken_bytes, bytes_per_block, info, why);
    if (err) return err;
    cache->n_blocks[WEFT_KV_FULL] = info->n_blocks;
    cache->n_blocks[WEFT_KV_WINDOWED] = info->n_window_blocks;
    cache->map_bytes = (size_t)info->kv_bytes;
    cache->layers = calloc(cache->n_layers, sizeof *cache->layers);
    cache->map = cache->layers ? wefti_memory_map(cache->map_bytes) : NULL;
    if (!cache->map)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %zu bytes of KV cache",
                            cache->map_bytes);
    if (cache->map_bytes >= HUGE_CACHE_BYTES)
        (void)madvise(cache->map, cache->map_bytes, MADV_HUGEPAGE);
    uint8_t *at = cache->map;
    for (uint32_t i = 0; i < cache->n_layers; i++) {
        size_t plane_bytes = cache->block_bytes * cache->n_blocks[wefti_kv_cache_kind(cache, i)];
        layer.k = at;
        if (cache->n_planes > 1) layer.v = at + plane_bytes;
        cache->layers[i] = layer;
        at += cache->n_planes * plane_bytes;
    }
    return WEFT_OK;
}

void wefti_kv_cache_close(struct wefti_kv_cache *cache) {
    wefti_memory_unmap(cache->map, cache->map_bytes);
    free(cache->layers);
    *cache = (struct wefti_kv_cache){0};
}

void wefti_kv_cache_copy(const struct wefti_kv_cache *cache, uint32_t layer,
                         const struct weft_step_copy *copies, uint32_t n_copies) {
    WEFT_ASSERT(layer < cache->n_layers);
    uint8_t *k = cache->layers[layer].k, *v = cache->layers[layer].v; /* NULL: there is none */
    for (uint32_t i = 0; i < n_copies; i++) {
        if (copies[i].kind != wefti_kv_cache_kind(cache, layer)) continue;
        size_t from = copies[i].from * cache->block_bytes, to = copies[i].to * cache->block_bytes;
        if (from == to) continue;
        memcpy(k + to, k + from, cache->block_bytes);
        if (v) memcpy(v + to, v + from, cache->block_bytes);
    }
}
