/* Where blocks of the KV cache lie in memory: each in one piece, so that the first ones to be
 * written make no more resident than they take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inside/engine/runtime/kv_cache.h"

enum { LAYERS = 6, BLOCKS = 40 };

/* Models by their layers: all full, two of six full, none full, latents, latents with index keys. */
enum shape { FULL, MIXED, WINDOWED, LATENT, INDEXED, SHAPES };

static struct weft_model_params params_of(enum shape shape) {
    struct weft_model_params params = {.n_layers = LAYERS, .n_kv_heads = 2, .head_dim = 40};
    if (shape == MIXED || shape == WINDOWED) params.window = 48;
    if (shape == MIXED) params.no_window[0] = 1u << 1 | 1u << 5;
    if (shape == LATENT || shape == INDEXED) params.n_kv_heads = 1;
    if (shape == LATENT || shape == INDEXED) params.kv_lora = 32;
    if (shape == INDEXED) params.indexer = (struct weft_model_indexer){4, 11, 20, 0};
    return params;
}

static void open_cache(struct wefti_kv_cache *cache, enum shape shape, enum weft_eng_kv dtype,
                       struct weft_eng_info *info) {
    struct weft_model_params params = params_of(shape);
    struct weft_eng_options options;
    struct weft_errmsg why = {""};
    weft_eng_options_init(&options);
    options.kv_dtype = dtype;
    options.kv_memory_bytes = (uint64_t)BLOCKS * LAYERS * 2 * 16 * 2 * 44 * sizeof(float);
    *info = (struct weft_eng_info){
        .block_size = 16, .max_model_len = 256, .max_seqs = 4, .max_batched_tokens = 32};
    if (wefti_kv_cache_open(cache, &params, &options, 0, 0, info, &why)) fail_msg("%s", why.text);
    assert_int_equal(cache->map_bytes, info->kv_bytes);
    assert_true((info->n_window_blocks > 0) == (params.window > 0));
}

/* K, V and index keys, as far as a layer has them. */
enum { PLANES = 3 };

static const struct weft_kv_layer *layer_of(const struct wefti_kv_cache *cache, uint32_t i,
                                            uint32_t plane) {
    return plane == 2 ? &cache->index[i] : &cache->layers[i];
}

static bool has_plane(const struct wefti_kv_cache *cache, uint32_t i, uint32_t plane) {
    return plane == 2 ? cache->index != NULL : plane < weft_kv_n_planes(&cache->layers[i]);
}

static uint8_t *plane_at(const struct wefti_kv_cache *cache, uint32_t i, uint32_t plane,
                         uint32_t block) {
    const struct weft_kv_layer *layer = layer_of(cache, i, plane);
    return (uint8_t *)(plane == 1 ? layer->v : layer->k) + block * layer->stride_bytes;
}

static size_t bytes_of(const struct wefti_kv_cache *cache, uint32_t i, uint32_t plane) {
    return has_plane(cache, i, plane) ? weft_kv_block_bytes(layer_of(cache, i, plane)) : 0;
}

/* A byte that tells neighbours apart, never 0. */
static uint8_t mark_of(uint32_t layer, uint32_t plane, uint32_t block) {
    return (uint8_t)(1 + ((block * LAYERS + layer) * PLANES + plane) % 251);
}

static void fill_cache(const struct wefti_kv_cache *cache) {
    for (uint32_t i = 0; i < LAYERS; i++) {
        for (uint32_t b = 0; b < cache->n_blocks[wefti_kv_cache_kind(cache, i)]; b++) {
            for (uint32_t p = 0; p < PLANES; p++) {
                if (has_plane(cache, i, p))
                    memset(plane_at(cache, i, p, b), mark_of(i, p, b), bytes_of(cache, i, p));
            }
        }
    }
}

/* That block `b` of a layer holds what fill_cache wrote to block `from`. */
static void check_block(const struct wefti_kv_cache *cache, uint32_t i, uint32_t b, uint32_t from) {
    for (uint32_t p = 0; p < PLANES; p++) {
        size_t n_right = 0, n_bytes = bytes_of(cache, i, p);
        const uint8_t *bytes = n_bytes > 0 ? plane_at(cache, i, p, b) : NULL;
        while (n_right < n_bytes && bytes[n_right] == mark_of(i, p, from))
            n_right++;
        assert_int_equal(n_right, n_bytes);
    }
}

static void blocks_fill_the_mapping_and_share_no_byte(void **state) {
    (void)state;
    for (uint32_t round = 0; round < SHAPES * 4; round++) {
        struct wefti_kv_cache cache;
        struct weft_eng_info info;
        open_cache(&cache, round % SHAPES, WEFT_ENG_KV_F32 + round / SHAPES, &info);
        fill_cache(&cache);
        uint64_t n_bytes = 0;
        for (uint32_t i = 0; i < LAYERS; i++) {
            uint32_t n = cache.n_blocks[wefti_kv_cache_kind(&cache, i)];
            for (uint32_t b = 0; b < n; b++)
                check_block(&cache, i, b, b);
            for (uint32_t p = 0; p < PLANES; p++)
                n_bytes += n * bytes_of(&cache, i, p);
        }
        assert_int_equal(n_bytes, info.kv_bytes);
        assert_null(memchr(cache.map, 0, cache.map_bytes));
        wefti_kv_cache_close(&cache);
    }
}

static void a_block_is_in_one_piece(void **state) {
    (void)state;
    for (enum shape shape = 0; shape < SHAPES; shape++) {
        struct wefti_kv_cache cache;
        struct weft_eng_info info;
        open_cache(&cache, shape, WEFT_ENG_KV_BF16, &info);
        for (uint32_t i = 0; i < LAYERS; i++) {
            enum weft_kv_kind kind = wefti_kv_cache_kind(&cache, i);
            for (uint32_t b = 0; b < cache.n_blocks[kind]; b++) {
                const uint8_t *begin = wefti_kv_cache_block(&cache, kind, b);
                const uint8_t *end = begin + cache.block_bytes[kind];
                for (uint32_t p = 0; p < PLANES; p++) {
                    if (!has_plane(&cache, i, p)) continue;
                    const uint8_t *at = plane_at(&cache, i, p, b);
                    assert_true(begin <= at && at + bytes_of(&cache, i, p) <= end);
                }
            }
        }
        wefti_kv_cache_close(&cache);
    }
}

static void a_block_makes_no_more_pages_resident_than_it_touches(void **state) {
    (void)state;
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), n_resident = 0;
    struct wefti_kv_cache cache;
    struct weft_eng_info info;
    unsigned char resident[4096];
    open_cache(&cache, FULL, WEFT_ENG_KV_BF16, &info);
    assert_true(cache.map_bytes <= sizeof resident * page_bytes);
    (void)madvise(cache.map, cache.map_bytes, MADV_NOHUGEPAGE); /* where all mappings get them */
    for (uint32_t i = 0; i < LAYERS; i++) {
        for (uint32_t p = 0; p < 2; p++)
            memset(plane_at(&cache, i, p, 3), 1, bytes_of(&cache, i, p));
    }
    assert_int_equal(mincore(cache.map, cache.map_bytes, resident), 0);
    for (size_t i = 0; i < (cache.map_bytes + page_bytes - 1) / page_bytes; i++)
        n_resident += resident[i] & 1;
    assert_in_range(n_resident, 1, cache.block_bytes[WEFT_KV_FULL] / page_bytes + 2);
    wefti_kv_cache_close(&cache);
}

static void a_copy_takes_all_of_a_block_and_leaves_the_others(void **state) {
    (void)state;
    const struct weft_step_copy copies[] = {
        {2, 5, WEFT_KV_FULL}, {3, 1, WEFT_KV_WINDOWED}, {4, 4, WEFT_KV_FULL}};
    for (enum shape shape = 0; shape < SHAPES; shape++) {
        struct wefti_kv_cache cache;
        struct weft_eng_info info;
        open_cache(&cache, shape, WEFT_ENG_KV_INT8, &info);
        fill_cache(&cache);
        for (uint32_t i = 0; i < LAYERS; i++) {
            enum weft_kv_kind kind = wefti_kv_cache_kind(&cache, i);
            wefti_kv_cache_copy(&cache, i, copies, 3);
            for (uint32_t b = 0; b < cache.n_blocks[kind]; b++) {
                uint32_t from = b;
                if (kind == WEFT_KV_FULL && b == 5) from = 2;
                if (kind == WEFT_KV_WINDOWED && b == 1) from = 3;
                check_block(&cache, i, b, from);
            }
        }
        wefti_kv_cache_close(&cache);
    }
}

/* What a limit leaves, by hand: so much is taken, and four sequences of 256 tokens can use so much. */
static void open_limited(struct weft_eng_info *info, uint64_t left_bytes, uint32_t n_sharers) {
    struct wefti_kv_cache cache;
    struct weft_model_params params = params_of(FULL);
    struct weft_eng_options options;
    struct weft_errmsg why = {""};
    weft_eng_options_init(&options);
    options.kv_dtype = WEFT_ENG_KV_F32;
    options.n_sharers = n_sharers;
    options.limit.bytes = (1 << 20) + left_bytes;
    *info = (struct weft_eng_info){
        .block_size = 16, .max_model_len = 256, .max_seqs = 4, .max_batched_tokens = 32};
    if (wefti_kv_cache_open(&cache, &params, &options, 1 << 20, 0, info, &why))
        fail_msg("%s", why.text);
    wefti_kv_cache_close(&cache);
}

static void the_cache_takes_what_a_limit_leaves_but_room_for_one_sequence_at_least(void **state) {
    (void)state;
    struct weft_eng_info info;
    open_limited(&info, UINT64_C(1) << 32, 1);
    uint64_t block_bytes = info.kv_bytes / info.n_blocks;
    assert_int_equal(info.n_blocks, 4 * 16); /* all sequences; more are of no use */
    open_limited(&info, 20 * block_bytes, 1);
    assert_int_equal(info.n_blocks, 20);
    open_limited(&info, 40 * block_bytes, 2);
    assert_int_equal(info.n_blocks, 20);
    open_limited(&info, 3 * block_bytes, 1); /* for the sum to refuse */
    assert_int_equal(info.n_blocks, 16);
    assert_int_equal(info.max_model_len, 256);
}

/* Where all layers have a window, other blocks are but numbers. */
static void sequences_of_full_length_are_counted_by_the_scarcer_blocks(void **state) {
    (void)state;
    for (enum shape shape = 0; shape < SHAPES; shape++) {
        struct wefti_kv_cache cache;
        struct weft_model_params params = params_of(shape);
        struct weft_eng_options options;
        struct weft_errmsg why = {""};
        struct weft_eng_info info = {
            .block_size = 16, .max_model_len = 256, .max_seqs = 4, .max_batched_tokens = 32};
        weft_eng_options_init(&options);
        options.kv_memory_bytes = 35 * wefti_kv_cache_block_bytes(&params, &options);
        if (wefti_kv_cache_open(&cache, &params, &options, 0, 0, &info, &why))
            fail_msg("%s", why.text);
        uint64_t n = wefti_kv_cache_n_seqs(&cache, &info), n_windowed = 256;
        if (info.window > 0) n_windowed = info.n_window_blocks / (48 / 16 + 32 / 16 + 1);
        assert_int_equal(n, shape == WINDOWED ? n_windowed : info.n_blocks / 16);
        assert_true(n >= 2 && n <= n_windowed);
        wefti_kv_cache_close(&cache);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_of_full_length_are_counted_by_the_scarcer_blocks),
        cmocka_unit_test(the_cache_takes_what_a_limit_leaves_but_room_for_one_sequence_at_least),
        cmocka_unit_test(blocks_fill_the_mapping_and_share_no_byte),
        cmocka_unit_test(a_block_is_in_one_piece),
        cmocka_unit_test(a_block_makes_no_more_pages_resident_than_it_touches),
        cmocka_unit_test(a_copy_takes_all_of_a_block_and_leaves_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
