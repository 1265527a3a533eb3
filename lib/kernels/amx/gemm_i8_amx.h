/* kernels/gemm_i8_amx — products of many rows of int8 with weights of one scale per feature, on AMX's
 * tiles: for the file with the instructions (tiles_amx.h, which is included before), and for a test
 * with a model of them.
 *
 * All is as with AVX-512 and VNNI, and its few rows and scales are used, but for the dots of a group of
 * columns: a tile instruction takes those of 12 rows and a panel of 16 features at once. Integers are
 * exact, and floats are added as there, so both give the same bits.
 *
 * No other type of 8-bit activations is here: dots leave tiles by memory alone, and where each block of 32 columns
 * has a scale, that is most of what tiles save. Q8_0, Q4_0 and Q4_K at 512 rows had 0.5 to 1.2 times the rate of VNNI,
 * and 0.7 to 1.0 at 8 rows (Xeon, model 207, two cores; one scale: 2.1 times); with sums in registers, and the next
 * block's dots under way meanwhile, 0.9 to 1.05 and 0.6 to 0.7. A loop alone had 1.75, but 1.1 while another guest
 * used the core's other half (docs/plan/19.md).
 *
 * Tiles want a row's codes side by side; interleaved rows have them a word apart. They are laid so once
 * for all panels of a span, where dots of AVX-512 have their starts: [two blocks][row][16] words. The
 * tiles' shapes are set once for each call of a product. */
#ifndef WEFT_KERNELS_GEMM_I8_AMX_H
#define WEFT_KERNELS_GEMM_I8_AMX_H

#include "avx512/gemm_dots_avx512.h"
#include "rows_amx.h"
#include "tile_config.h"

enum {
    GROUP_WORDS = MANY_ROWS * Q8_QUADS, /* of codes of a block and group of rows */
    PAIR_QUADS = 2 * Q8_QUADS,          /* of a tile */
    SPAN_BLOCKS = SPAN_WORDS / Q8_QUADS,
};

/* [panel][row][feature] */
typedef int32_t panel_dots[MANY_PANELS][MANY_ROWS][WEFT_PANEL];

/* Dots of `n` tiles of rows, as lay_i8 lays them, and of two panels. */
ALWAYS_INLINE void dot_tiles(const int32_t *rows, const uint8_t *const panels[], uint32_t n,
                             panel_dots dots) {
    enum { PANEL_STEP = PAIR_QUADS * I8_QUAD_BYTES };
    tile_zero(TILE_SUMS_0);
    tile_zero(TILE_SUMS_1);
    for (size_t i = 0; i < n; i++) {
        tile_load(TILE_ROWS, rows + i * MANY_ROWS * PAIR_QUADS, TILE_LINE);
        tile_load(TILE_PANEL_0, panels[0] + i * PANEL_STEP, TILE_LINE);
        tile_load(TILE_PANEL_1, panels[1] + i * PANEL_STEP, TILE_LINE);
        tile_dot(TILE_SUMS_0, TILE_ROWS, TILE_PANEL_0);
        tile_dot(TILE_SUMS_1, TILE_ROWS, TILE_PANEL_1);
    }
    tile_store(TILE_SUMS_0, dots[0], TILE_LINE);
    tile_store(TILE_SUMS_1, dots[1], TILE_LINE);
}

/* Pairs of whole blocks; what is left of K is not laid. */
static void lay_i8(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,
                   int32_t *out) {
    (void)k;
    for (uint32_t b = 0; b < n_blocks / 2 * 2; b++) {
        lay_rows(act + (size_t)(first + b) * GROUP_WORDS * ACT_WORD,
                 out + (size_t)(b / 2) * 2 * GROUP_WORDS + (size_t)(b % 2) * Q8_QUADS, PAIR_QUADS);
    }
}

/* Adds the products of quads from `quad` on, which no tile is full of. */
static void dot_rest(const struct tile *t, uint32_t n_rows, size_t quad, panel_dots dots) {
    const struct act_words codes = act_words_at(t, MANY_ROWS, t->k_begin / 4);
    for (; quad < i8_columns(t->count) / 4; quad++) {
        for (uint32_t p = 0; p < MANY_PANELS; p++) {
            const __m512i w = _mm512_load_si512(t->panels[p] + quad * I8_QUAD_BYTES);
            for (uint32_t r = 0; r < n_rows; r++) {
                __m512i dot = _mm512_load_si512(dots[p][r]);
                dot = dot_quads(dot, w, broadcast_word(codes, r, quad));
                _mm512_store_si512(dots[p][r], dot);
            }
        }
    }
}

/* As tile_i8 of gemm_i8_avx512.h. */
static void many_i8(const struct tile *t, uint32_t n_rows) {
    const uint32_t group = t->k_begin / I8_GROUP, n_words = i8_columns(t->k) / 4;
    const struct act_words scales = act_words_at(t, MANY_ROWS, n_words + group);
    const struct act_words offsets = act_words_at(t, MANY_ROWS, n_words + i8_groups(t->k) + group);
    const size_t scales_at = (i8_columns(t->k) - (size_t)t->k_begin) * WEFT_PANEL;
    _Alignas(64) panel_dots dots;
    const uint32_t n_pairs = t->count / (PAIR_QUADS * 4);
    for (size_t quad = 0; quad < i8_columns(t->count) / 4; quad++) {
        prefetch_step(t, MANY_PANELS, quad);
    }
    dot_tiles(t->starts, t->panels, n_pairs, dots);
    dot_rest(t, n_rows, (size_t)n_pairs * PAIR_QUADS, dots);
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t p = 0; p < MANY_PANELS; p++) {
            const size_t at = (r * MANY_PANELS + p) * WEFT_PANEL;
            __m512 w_scale = _mm512_load_ps((const void *)(t->panels[p] + scales_at));
            __m512 scale = _mm512_mul_ps(broadcast_f32(scales, r, 0), w_scale);
            __m512i dot =
                _mm512_add_epi32(_mm512_load_si512(dots[p][r]), broadcast_word(offsets, r, 0));
            __m512 sum =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, _mm512_load_ps(t->from + at));
            _mm512_store_ps(t->acc + at, sum);
        }
    }
}

static void gemm_i8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    struct tile_kernel kernel = wefti_kern_i8_kernel_avx512vnni();
    kernel.many = many_i8;
    kernel.many_rows = MANY_ROWS;
    kernel.start = lay_i8;
    kernel.n_starts = Q8_QUADS;
    kernel.block_tiles = ACT_FLOATS / (SPAN_BLOCKS * MANY_ROWS * kernel.n_starts);
    WEFT_ASSERT(kernel.block_tiles > 0 && kernel.many_panels == MANY_PANELS);
    const bool uses_tiles = args->act_group > 1;
    if (uses_tiles) {
        const struct tile_config config = tile_config_of(MANY_ROWS);
        tile_configure(&config);
    }
    gemm_run(&kernel, args, p_begin, p_end);
    if (uses_tiles) tile_release();
}

#endif
