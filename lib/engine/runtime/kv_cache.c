/* One mapping holds the blocks of all layers, those of full layers first. A block is in one piece:
 * layer by layer its keys and its values, or its latents alone, and an indexer's keys after them. So its number is all that a table
 * needs, and a spill file gets it in one write. The mapping is address space from the start and
 * becomes resident as blocks are written, by a huge page for every few of them. With a plane per
 * layer, a token would come to new huge pages in all planes at once, and its step would wait until
 * all of them are zeroed. */
#include "runtime/kv_cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "base/rand.h"
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

/* ----------------------------------------------------------------------------------- sizes --- */

/* What blocks of each kind take, all layers of the kind together, and how many are of use. */
struct sizes {
    uint64_t bytes[WEFT_KV_KINDS];   /* of a block; 0: there are no such layers */
    uint64_t one_seq[WEFT_KV_KINDS]; /* blocks that a sequence of full length can come to hold */
    uint64_t all_seqs[WEFT_KV_KINDS];
};

static uint64_t blocks_for(const struct weft_eng_info *info, uint64_t n_tokens) {
    return (n_tokens + info->block_size - 1) / info->block_size;
}

static struct sizes sizes_of(const struct wefti_kv_cache *cache, uint64_t beside_bytes,
                             const struct weft_eng_info *info) {
    struct sizes s = {.one_seq = {blocks_for(info, info->max_model_len)}};
    uint64_t seen = blocks_for(info, (uint64_t)info->window + info->max_batched_tokens) + 1;
    if (info->window > 0) s.one_seq[WEFT_KV_WINDOWED] = weft_min_u64(s.one_seq[0], seen);
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        s.bytes[kind] = cache->block_bytes[kind];
        s.all_seqs[kind] = s.one_seq[kind] * info->max_seqs;
    }
    s.bytes[WEFT_KV_FULL] += beside_bytes;
    return s;
}

static uint64_t sum(const struct sizes *s, uint64_t n_full, uint64_t n_windowed) {
    return n_full * s->bytes[WEFT_KV_FULL] + n_windowed * s->bytes[WEFT_KV_WINDOWED];
}

/* Never none: whether one block is too much is for the sum of everything to say. So it is for one sequence of
 * full length where there is a limit: of a server that is given one, nobody wants less. */
static uint64_t default_memory(const struct weft_eng_options *options, uint64_t taken_bytes,
                               const struct sizes *s) {
    bool is_limited = options->limit.bytes > 0;
    uint64_t available = is_limited                ? options->limit.bytes
                         : options->room_bytes > 0 ? options->room_bytes
                                                   : weft_mem_available_bytes();
    uint64_t left = available > taken_bytes ? available - taken_bytes : 0;
    uint64_t usable = sum(s, s->all_seqs[WEFT_KV_FULL], s->all_seqs[WEFT_KV_WINDOWED]);
    if (!is_limited) left /= 2;
    uint64_t least =
        is_limited ? sum(s, s->one_seq[WEFT_KV_FULL], s->one_seq[WEFT_KV_WINDOWED]) : sum(s, 1, 1);
    return weft_max_u64(weft_min_u64(left / options->n_sharers, usable), least);
}

/* What is good for sequences that are twice as long as their windowed blocks reach: a fair part for
 * short ones, which need as many blocks of either kind, and for long ones. */
static uint64_t full_beside(const struct sizes *s, uint64_t n_windowed) {
    uint64_t one_full = s->one_seq[WEFT_KV_FULL], one_windowed = s->one_seq[WEFT_KV_WINDOWED];
    uint64_t n = n_windowed * weft_min_u64(one_full, 2 * one_windowed) / one_windowed;
    return weft_max_u64(n, one_full);
}

/* Both kinds have layers, and there is memory for one sequence of full length at least. With memory
 * for all, the rest goes to cached prefixes, which need both kinds as sequences do. A worker that is
 * replaced gets as much memory as the blocks took, and divides it the same way again. */
static void divide(const struct sizes *s, uint64_t memory, uint64_t n_out[WEFT_KV_KINDS]) {
    const uint64_t *one = s->one_seq, *all = s->all_seqs;
    if (memory >= sum(s, all[WEFT_KV_FULL], all[WEFT_KV_WINDOWED])) {
        uint64_t n_seqs = memory / sum(s, one[WEFT_KV_FULL], one[WEFT_KV_WINDOWED]);
        for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++)
            n_out[kind] = n_seqs * one[kind];
        return;
    }
    uint64_t low = one[WEFT_KV_WINDOWED], high = all[WEFT_KV_WINDOWED];
    while (low < high) { /* the most windowed ones that fit, with what belongs beside them */
        uint64_t mid = low + (high - low + 1) / 2;
        if (sum(s, full_beside(s, mid), mid) <= memory)
            low = mid;
        else
            high = mid - 1;
    }
    uint64_t n_full = full_beside(s, low);
    if (low == all[WEFT_KV_WINDOWED]) n_full = (memory - sum(s, 0, low)) / s->bytes[WEFT_KV_FULL];
    n_out[WEFT_KV_FULL] = n_full;
    n_out[WEFT_KV_WINDOWED] = low;
}

/* Where no layer is full, those blocks are but numbers, and never the ones that lack: a sequence
 * holds no more of them than one of full length does for as many windowed ones, and each cached
 * windowed block stands beside one. */
static uint64_t count_mere_numbers(const struct sizes *s, const struct weft_eng_info *info,
                                   uint64_t n_windowed) {
    uint64_t per_seq = weft_max_u64(info->window / info->block_size, 1);
    uint64_t n_seqs = weft_min_u64(n_windowed / per_seq + 1, info->max_seqs);
    return n_seqs * s->one_seq[WEFT_KV_FULL] + n_windowed;
}

/* The most blocks of one sequence; 0: not even one fits. */
static uint64_t count_of_one(const struct sizes *s, uint64_t memory) {
    uint64_t n_windowed = s->one_seq[WEFT_KV_WINDOWED], pair = sum(s, 1, 1);
    WEFT_ASSERT(pair > 0);
    uint64_t n = memory / pair;
    if (s->bytes[WEFT_KV_FULL] == 0) return n < n_windowed ? n : s->one_seq[WEFT_KV_FULL];
    if (n >= n_windowed) n = (memory - sum(s, 0, n_windowed)) / s->bytes[WEFT_KV_FULL];
    return n;
}

/* How many blocks of each kind. One sequence of full length always fits into them: it may have to be
 * a shorter one. */
static weft_err size_blocks(const struct wefti_kv_cache *cache,
                            const struct weft_eng_options *options, uint64_t taken_bytes,
                            uint64_t beside_bytes, struct weft_eng_info *info,
                            struct weft_errmsg *why) {
    struct sizes s = sizes_of(cache, beside_bytes, info);
    uint64_t memory = options->kv_memory_bytes;
    if (memory == 0) memory = default_memory(options, taken_bytes, &s);
    uint64_t n[WEFT_KV_KINDS] = {count_of_one(&s, memory)};
    n[WEFT_KV_WINDOWED] = weft_min_u64(n[WEFT_KV_FULL], s.one_seq[WEFT_KV_WINDOWED]);
    if (n[WEFT_KV_FULL] == 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "%" PRIu64 " bytes for the KV cache (--kv-memory) hold no block: one "
                            "takes %" PRIu64,
                            memory, sum(&s, 1, 1));
    if (n[WEFT_KV_FULL] < s.one_seq[WEFT_KV_FULL]) {
        info->max_model_len = (uint32_t)(n[WEFT_KV_FULL] * info->block_size);
    } else if (s.bytes[WEFT_KV_FULL] == 0) {
        n[WEFT_KV_WINDOWED] = memory / s.bytes[WEFT_KV_WINDOWED];
        n[WEFT_KV_FULL] = count_mere_numbers(&s, info, n[WEFT_KV_WINDOWED]);
    } else if (info->window > 0) {
        divide(&s, memory, n);
    }
    info->n_blocks = (uint32_t)weft_min_u64(n[WEFT_KV_FULL], WEFT_KV_BLOCKS_MAX);
    info->n_window_blocks = (uint32_t)weft_min_u64(n[WEFT_KV_WINDOWED], WEFT_KV_BLOCKS_MAX);
    info->kv_bytes = sum(&s, info->n_blocks, info->n_window_blocks);
    return WEFT_OK;
}

/* What a layer keeps, but for where. */
static struct weft_kv_layer layer_of(const struct weft_model_params *params,
                                     const struct weft_eng_options *options, uint32_t layer) {
    return (struct weft_kv_layer){.dtype = wefti_kv_cache_dtype(options),
                                  .block_size = options->block_size,
                                  .n_kv_heads = weft_model_kv_heads(params, layer),
                                  .head_dim = weft_model_head_dim(params, layer),
                                  .v_dim = params->kv_lora};
}

/* An indexer's keys of a layer, likewise. */
static struct weft_kv_layer index_of(const struct weft_model_params *params,
                                     const struct weft_eng_options *options) {
    return (struct weft_kv_layer){.dtype = wefti_kv_cache_dtype(options),
                                  .block_size = options->block_size,
                                  .n_kv_heads = 1,
                                  .head_dim = params->indexer.head_dim,
                                  .v_dim = params->indexer.head_dim};
}

static size_t plane_bytes(const struct weft_kv_layer *layer) {
    return weft_kv_n_planes(layer) * weft_kv_block_bytes(layer);
}

/* All of a layer in a block. */
static size_t layer_bytes(const struct weft_model_params *params,
                          const struct weft_eng_options *options, uint32_t layer) {
    const struct weft_kv_layer kv = layer_of(params, options, layer),
                               index = index_of(params, options);
    return plane_bytes(&kv) + (params->indexer.n_heads > 0 ? plane_bytes(&index) : 0);
}

uint64_t wefti_kv_cache_seq_bytes(const struct wefti_kv_cache *cache,
                                  const struct weft_eng_info *info, uint32_t n_tokens,
                                  uint64_t *read_bytes_out) {
    struct weft_eng_info of_one = *info;
    of_one.max_model_len = n_tokens;
    const struct sizes s = sizes_of(cache, 0, &of_one);
    *read_bytes_out = 0;
    for (uint32_t i = 0; i < cache->n_layers; i++) {
        bool is_windowed = wefti_kv_cache_kind(cache, i) == WEFT_KV_WINDOWED;
        uint64_t n_seen = is_windowed ? weft_min_u64(n_tokens, info->window) : n_tokens;
        /* Also what another layer keeps; without attention there is nothing. */
        if (!cache->layers[i].k) continue;
        if (cache->index && n_seen > cache->top_k) {
            *read_bytes_out += plane_bytes(&cache->index[i]) * n_seen / info->block_size;
            n_seen = cache->top_k;
        }
        *read_bytes_out += plane_bytes(&cache->layers[i]) * n_seen / info->block_size;
    }
    return sum(&s, s.one_seq[WEFT_KV_FULL], s.one_seq[WEFT_KV_WINDOWED]);
}

uint64_t wefti_kv_cache_n_seqs(const struct wefti_kv_cache *cache,
                               const struct weft_eng_info *info) {
    const struct sizes s = sizes_of(cache, 0, info);
    uint64_t n = UINT64_MAX;
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        if (s.bytes[kind] == 0) continue; /* mere numbers */
        WEFT_ASSERT(s.one_seq[kind] > 0);
        n = weft_min_u64(n, cache->n_blocks[kind] / s.one_seq[kind]);
    }
    return n;
}

/* Layers that have no attention, or read what another one keeps. */
static void set_absent(struct wefti_kv_cache *cache, const struct weft_model_params *params) {
    memcpy(cache->absent, params->recurrent.no_attention, sizeof cache->absent);
    for (uint32_t i = 0; i < params->n_layers; i++) {
        if (weft_model_kv_layer(params, i) != i) cache->absent[i / 32] |= 1u << i % 32;
    }
}

/* A window that no sequence outgrows gives nothing back. */
static void set_kinds(struct wefti_kv_cache *cache, const struct weft_model_params *params,
                      const struct weft_eng_options *options, struct weft_eng_info *info) {
    bool has_windows = params->window > 0 && params->window < info->max_model_len;
    set_absent(cache, params);
    for (uint32_t i = 0; i < params->n_layers; i++) {
        if (weft_model_bit(params->recurrent.no_attention, i)) continue;
        if (has_windows && !weft_model_bit(params->no_window, i)) {
            cache->windowed[i / 32] |= 1u << i % 32;
            info->window = params->window;
        }
        if (!weft_model_bit(cache->absent, i))
            cache->block_bytes[wefti_kv_cache_kind(cache, i)] += layer_bytes(params, options, i);
    }
}

static void place_layers(struct wefti_kv_cache *cache, const struct weft_model_params *params,
                         const struct weft_eng_options *options) {
    uint8_t *at[WEFT_KV_KINDS];
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++)
        at[kind] = wefti_kv_cache_block(cache, kind, 0);
    for (uint32_t i = 0; i < cache->n_layers; i++) {
        enum weft_kv_kind kind = wefti_kv_cache_kind(cache, i);
        struct weft_kv_layer layer = layer_of(params, options, i);
        uint32_t source = weft_model_kv_layer(params, i);
        /* Layers that are absent have these two as well: so any layer says them. */
        cache->layers[i].dtype = layer.dtype;
        cache->layers[i].block_size = layer.block_size;
        if (source != i) cache->layers[i] = cache->layers[source];
        if (weft_model_bit(cache->absent, i)) continue;
        layer.k = at[kind];
        if (layer.v_dim == 0) layer.v = at[kind] + weft_kv_block_bytes(&layer);
        layer.stride_bytes = cache->block_bytes[kind];
        cache->layers[i] = layer;
        if (cache->index) {
            cache->index[i] = index_of(params, options);
            cache->index[i].k = at[kind] + plane_bytes(&layer);
            cache->index[i].stride_bytes = layer.stride_bytes;
        }
        at[kind] += layer_bytes(params, options, i);
    }
}

static weft_err map_blocks(struct wefti_kv_cache *cache, const struct weft_model_params *params,
                           const struct weft_eng_options *options, const struct weft_eng_info *info,
                           struct weft_errmsg *why) {
    cache->n_blocks[WEFT_KV_FULL] = info->n_blocks;
    cache->n_blocks[WEFT_KV_WINDOWED] = info->n_window_blocks;
    cache->map_bytes = wefti_kv_cache_bytes(cache, (uint64_t)info->n_blocks + cache->n_spare,
                                            (uint64_t)info->n_window_blocks + cache->n_spare);
    cache->layers = calloc(cache->n_layers, sizeof *cache->layers);
    bool has_index = params->indexer.n_heads > 0;
    cache->top_k = params->indexer.top_k;
    if (has_index) cache->index = calloc(cache->n_layers, sizeof *cache->index);
    bool is_there = cache->layers && (cache->index || !has_index);
    if (is_there) cache->map = wefti_memory_map_near(cache->map_bytes, info->home);
    if (!is_there || !cache->map)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %zu bytes of KV cache",
                            cache->map_bytes);
    if (cache->map_bytes >= HUGE_CACHE_BYTES)
        (void)madvise(cache->map, cache->map_bytes, MADV_HUGEPAGE);
    place_layers(cache, params, options);
    return WEFT_OK;
}

weft_err wefti_kv_cache_open(struct wefti_kv_cache *cache, const struct weft_model_params *params,
                             const struct weft_eng_options *options, uint64_t taken_bytes,
                             uint64_t beside_bytes, struct weft_eng_info *info,
                             struct weft_errmsg *why) {
    *cache = (struct wefti_kv_cache){.n_layers = params->n_layers,
                                     .n_spare = info->has_contrast ? WEFTI_KV_SPARE : 0};
    set_kinds(cache, params, options, info);
    weft_err err = size_blocks(cache, options, taken_bytes, beside_bytes, info, why);
    return err ? err : map_blocks(cache, params, options, info, why);
}

uint64_t wefti_kv_cache_block_bytes(const struct weft_model_params *params,
                                    const struct weft_eng_options *options) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < params->n_layers; i++) {
        bool is_there = !weft_model_bit(params->recurrent.no_attention, i) &&
                        weft_model_kv_layer(params, i) == i;
        if (is_there) sum += layer_bytes(params, options, i);
    }
    return sum;
}

weft_err wefti_kv_cache_open_beside(struct wefti_kv_cache *cache,
                                    const struct weft_model_params *params,
                                    const struct weft_eng_options *options,
                                    const struct weft_eng_info *info, struct weft_errmsg *why) {
    struct weft_eng_info full = *info;
    full.n_window_blocks = 0;
    *cache = (struct wefti_kv_cache){.n_layers = params->n_layers};
    set_absent(cache, params);
    cache->block_bytes[WEFT_KV_FULL] = wefti_kv_cache_block_bytes(params, options);
    return map_blocks(cache, params, options, &full, why);
}

void wefti_kv_cache_close(struct wefti_kv_cache *cache) {
    wefti_memory_unmap(cache->map, cache->map_bytes);
    free(cache->layers);
    free(cache->index);
    *cache = (struct wefti_kv_cache){0};
}

/* Elements of all heads of a token in the layer where they are most. */
static size_t widest_row(const struct wefti_kv_cache *cache) {
    size_t widest = 1;
    for (uint32_t i = 0; i < cache->n_layers; i++) {
        const size_t n = (size_t)cache->layers[i].n_kv_heads * cache->layers[i].head_dim;
        if (n > widest) widest = n;
        if (cache->index && cache->index[i].head_dim > widest) widest = cache->index[i].head_dim;
    }
    return widest;
}

weft_err wefti_kv_cache_fill(const struct wefti_kv_cache *cache, const struct weft_kern_table *kern,
                             uint64_t n_blocks) {
    const uint32_t block = 0;
    uint64_t seed = 1;
    float *row = malloc(widest_row(cache) * sizeof *row);
    if (!row) return WEFT_E_NOMEM;
    for (uint32_t i = 0; i < cache->n_layers; i++) {
        const struct weft_kv_layer *layer = &cache->layers[i];
        const size_t n = (size_t)layer->n_kv_heads * layer->head_dim;
        if (weft_model_bit(cache->absent, i)) continue;
        for (uint32_t pos = 0; pos < layer->block_size; pos++) {
            for (size_t at = 0; at < n; at++)
                row[at] = (float)(weft_rand_unit(&seed) * 2.0 - 1.0);
            kern->kv_write(layer, &block, pos, row, layer->v_dim ? NULL : row);
            for (size_t at = 0; cache->index && at < cache->index[i].head_dim; at++)
                row[at] = (float)(weft_rand_unit(&seed) * 2.0 - 1.0);
            if (cache->index) kern->kv_write(&cache->index[i], &block, pos, row, NULL);
        }
    }
    free(row);
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        const uint8_t *first = wefti_kv_cache_block(cache, (enum weft_kv_kind)kind, 0);
        bool is_there = cache->block_bytes[kind] > 0;
        for (uint32_t b = 1; b < cache->n_blocks[kind] && b < n_blocks && is_there; b++)
            memcpy(wefti_kv_cache_block(cache, (enum weft_kv_kind)kind, b), first,
                   cache->block_bytes[kind]);
    }
    return WEFT_OK;
}

void wefti_kv_cache_copy(const struct wefti_kv_cache *cache, uint32_t layer,
                         const struct weft_step_copy *copies, uint32_t n_copies) {
    WEFT_ASSERT(layer < cache->n_layers);
    if (weft_model_bit(cache->absent, layer)) return;
    uint8_t *k = cache->layers[layer].k; /* and all other planes directly after it */
    size_t n_bytes = plane_bytes(&cache->layers[layer]);
    if (cache->index) n_bytes += plane_bytes(&cache->index[layer]);
    size_t stride_bytes = cache->layers[layer].stride_bytes;
    for (uint32_t i = 0; i < n_copies; i++) {
        uint32_t from = copies[i].from, to = copies[i].to;
        if (copies[i].kind != wefti_kv_cache_kind(cache, layer) || from == to) continue;
        memcpy(k + to * stride_bytes, k + from * stride_bytes, n_bytes);
    }
}
