/* kernels/gemm_int8_amx — products of many rows of int8 activations on AMX's tiles: for the file with
 * the instructions (tiles_amx.h, which is included before), and for a test with a model of them.
 *
 * All is as with AVX-512 and VNNI, and its few rows, unpacked weights and factors are used, but for
 * the dots of a block, or of half of one: a tile instruction takes those of 12 rows and a panel of 16
 * features at once. Integers are exact, and floats are added as there, so both give the same bits.
 * That is why bf16 is not here: TDPBF16PS adds pairs of products in an order of its own, and flushes
 * subnormals, so few rows would have to take tiles, too, to agree with many.
 *
 * - Tiles want a row's codes side by side; interleaved rows have them a word apart. They are laid so
 *   once for all panels of a span, where dots of AVX-512 have their starts, and behind those:
 *   [block]{ [starts][row], [row][8] words }; int8 of one scale: [two blocks][row][16] words.
 * - Dots leave tiles by memory alone. Those of the next block are under way while the floats of one
 *   are added, from the other half of a buffer; sums stay in memory, as two loads and a store beside
 *   three operations cost nothing, and so any number of rows is one loop.
 * - The tiles' shapes are set once for each call of a product.
 *
 * No machine with AMX has run this; times are guesses. */
#ifndef WEFT_KERNELS_GEMM_INT8_AMX_H
#define WEFT_KERNELS_GEMM_INT8_AMX_H

#include "avx512/gemm_dots_avx512.h"
#include "quant.h"
#include "tile_config.h"

enum {
    GROUP_WORDS = MANY_ROWS * Q8_QUADS, /* of codes of a block and group of rows */
    PAIR_QUADS = 2 * Q8_QUADS,          /* of a tile of int8 of one scale */
    SPAN_BLOCKS = SPAN_WORDS / Q8_QUADS,
};

/* [panel][row][feature] */
typedef int32_t panel_dots[MANY_PANELS][MANY_ROWS][WEFT_PANEL];

/* Rows of words, and two panels, of `n` tiles one after the other. */
struct tile_run {
    const void *rows;
    size_t row_bytes, rows_step;
    const uint8_t *panels[MANY_PANELS];
    size_t panel_step;
    uint32_t n;
};

ALWAYS_INLINE void dot_tiles(const struct tile_run *run, panel_dots dots) {
    const uint8_t *rows = run->rows;
    tile_zero(TILE_SUMS_0);
    tile_zero(TILE_SUMS_1);
    for (size_t i = 0; i < run->n; i++) {
        tile_load(TILE_ROWS, rows + i * run->rows_step, run->row_bytes);
        tile_load(TILE_PANEL_0, run->panels[0] + i * run->panel_step, TILE_LINE);
        tile_load(TILE_PANEL_1, run->panels[1] + i * run->panel_step, TILE_LINE);
        tile_dot(TILE_SUMS_0, TILE_ROWS, TILE_PANEL_0);
        tile_dot(TILE_SUMS_1, TILE_ROWS, TILE_PANEL_1);
    }
    tile_store(TILE_SUMS_0, dots[0], TILE_LINE);
    tile_store(TILE_SUMS_1, dots[1], TILE_LINE);
}

/* Words of 16 lanes' places among 96. */
ALWAYS_INLINE __m512i pick_words(const __m512i from[6], __m512i place) {
    __m512i low = _mm512_permutex2var_epi32(from[0], place, from[1]);
    __m512i middle = _mm512_permutex2var_epi32(from[2], place, from[3]);
    __m512i high = _mm512_permutex2var_epi32(from[4], place, from[5]);
    low =
        _mm512_mask_blend_epi32(_mm512_cmpge_epi32_mask(place, _mm512_set1_epi32(32)), low, middle);
    return _mm512_mask_blend_epi32(_mm512_cmpge_epi32_mask(place, _mm512_set1_epi32(64)), low,
                                   high);
}

/* A block's codes of interleaved rows, [8][12] words, as rows of 8, `row_words` apart. */
ALWAYS_INLINE void lay_rows(const uint8_t *codes, uint32_t row_words, int32_t *rows) {
    __m512i from[6];
    for (size_t i = 0; i < 6; i++) {
        from[i] = _mm512_loadu_si512(codes + i * 64);
    }
    /* The places of row 0, then of row 1. */
    __m512i place = _mm512_setr_epi32(0, 12, 24, 36, 48, 60, 72, 84, 1, 13, 25, 37, 49, 61, 73, 85);
    for (size_t r = 0; r < MANY_ROWS; r += 2) {
        __m512i two = pick_words(from, place);
        _mm256_storeu_si256((void *)(rows + r * row_words), _mm512_castsi512_si256(two));
        _mm256_storeu_si256((void *)(rows + (r + 1) * row_words),
                            _mm512_extracti64x4_epi64(two, 1));
        place = _mm512_add_epi32(place, _mm512_set1_epi32(2));
    }
}

/* What `start` of tile_kernel does, for kinds with scales of each block. */
static inline void lay_blocks(const struct tile_kernel *base, const uint8_t *act, uint32_t k,
                              uint32_t first, uint32_t n_blocks, int32_t *out) {
    const uint32_t n_starts = base->start ? base->n_starts : 0;
    for (uint32_t b = first; b < first + n_blocks; b++) {
        if (n_starts) base->start(act, k, b, 1, out);
        out += (size_t)n_starts * MANY_ROWS;
        lay_rows(act + (size_t)b * GROUP_WORDS * ACT_WORD, Q8_QUADS, out);
        out += GROUP_WORDS;
    }
}

/* Of each row and block, in front of its codes. */
ALWAYS_INLINE uint32_t starts_of(struct dot_form form) {
    return form.has_starts || form.quads < Q8_QUADS ? Q8_QUADS / form.quads : 0;
}

/* Where block `b` of the tile has its starts; codes are behind them. */
ALWAYS_INLINE const int32_t *laid_at(const struct tile *t, struct dot_form form, size_t b) {
    return t->starts + b * (starts_of(form) * MANY_ROWS + GROUP_WORDS);
}

ALWAYS_INLINE void dot_block(const struct tile *t, struct dot_form form, struct dot_place place,
                             panel_dots dots) {
    const size_t quad = place.part * form.quads, at = place.block * form.block_bytes + quad * 64;
    const int32_t *rows = laid_at(t, form, place.block) + starts_of(form) * MANY_ROWS + quad;
    for (size_t i = 0; i < form.quads; i++) {
        prefetch_step(t, MANY_PANELS, place.block * Q8_QUADS + quad + i);
    }
    dot_tiles(&(struct tile_run){.rows = rows,
                                 .row_bytes = Q8_QUADS * sizeof *rows,
                                 .panels = {t->panels[0] + at, t->panels[1] + at},
                                 .n = 1},
              dots);
}

/* As in add_quads of gemm_dots_avx512.h. `from`: what is added to. */
ALWAYS_INLINE void fold_block(const struct tile *t, struct dot_form form, uint32_t n_rows,
                              struct dot_place place, panel_dots dots, const float *from) {
    const struct dot_acts acts = dot_acts_at(t, MANY_ROWS);
    const size_t scale_idx = place.block * (Q8_QUADS / form.quads) + place.part;
    const int32_t *starts = laid_at(t, form, place.block) + place.part * MANY_ROWS;
    const float *halves = (const void *)starts; /* see start_half_sums */
    __m512 scale[MANY_PANELS], bias[MANY_PANELS], min[MANY_PANELS];
    for (uint32_t p = 0; p < MANY_PANELS; p++) {
        const float *factors = t->factors[p] + scale_idx * (form.has_mins ? 3 : 2) * WEFT_PANEL;
        scale[p] = _mm512_load_ps(factors);
        bias[p] = _mm512_load_ps(factors + WEFT_PANEL);
        if (form.has_mins) min[p] = _mm512_load_ps(factors + (size_t)2 * WEFT_PANEL);
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        const __m512i start = _mm512_set1_epi32(form.has_starts ? starts[r] : DOT_BIAS_BITS);
        const __m512 by = broadcast_f32(acts.scales, r, place.block);
        for (uint32_t p = 0; p < MANY_PANELS; p++) {
            const size_t at = (r * MANY_PANELS + p) * WEFT_PANEL;
            __m512i dot = _mm512_add_epi32(_mm512_load_si512(dots[p][r]), start);
            __m512 sum = add_dot(_mm512_load_ps(from + at), dot, scale[p], bias[p], by);
            if (form.has_mins) {
                __m512 sums = form.quads == Q8_QUADS ? broadcast_f32(acts.sums, r, place.block)
                                                     : _mm512_set1_ps(halves[r]);
                sum = _mm512_fmadd_ps(sums, min[p], sum);
            }
            _mm512_store_ps(t->acc + at, sum);
        }
    }
}

ALWAYS_INLINE void tile_blocks_amx(const struct tile *args, struct dot_form form, uint32_t n_rows) {
    const struct tile t = *args;
    const size_t parts = Q8_QUADS / form.quads, n = t.count / Q8_GROUP * parts;
    _Alignas(64) panel_dots dots[2];
    dot_block(&t, form, (struct dot_place){0, 0}, dots[0]);
    for (size_t i = 0; i < n; i++) {
        const struct dot_place place = {i / parts, i % parts};
        const struct dot_place next = {(i + 1) / parts, (i + 1) % parts};
        if (i + 1 < n) dot_block(&t, form, next, dots[(i + 1) % 2]);
        fold_block(&t, form, n_rows, place, dots[i % 2], i ? t.acc : t.from);
    }
}

/* Many rows by tiles of `quads`; `kernel` is one of AVX-512 but for `many`, `start` and n_starts. */
static void run_amx(struct tile_kernel kernel, uint32_t quads, const struct weft_gemm_args *args,
                    uint32_t p_begin, uint32_t p_end) {
    kernel.many_rows = MANY_ROWS;
    kernel.block_tiles = ACT_FLOATS / (SPAN_BLOCKS * MANY_ROWS * kernel.n_starts);
    WEFT_ASSERT(kernel.block_tiles > 0 && kernel.many_panels == MANY_PANELS);
    const bool uses_tiles = args->act_group > 1;
    if (uses_tiles) {
        const struct tile_config config = tile_config_of(MANY_ROWS, quads);
        tile_configure(&config);
    }
    gemm_run(&kernel, args, p_begin, p_end);
    if (uses_tiles) tile_release();
}

/* The form is a constant in every copy. */
#define DEFINE_BLOCKS_AMX(name, base_kernel, ...)                                                  \
    static void many_##name(const struct tile *t, uint32_t n_rows) {                               \
        tile_blocks_amx(t, (struct dot_form){__VA_ARGS__}, n_rows);                                \
    }                                                                                              \
    static void lay_##name(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,      \
                           int32_t *out) {                                                         \
        const struct tile_kernel base = base_kernel;                                               \
        lay_blocks(&base, act, k, first, n_blocks, out);                                           \
    }                                                                                              \
    static void gemm_##name(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) { \
        const struct dot_form form = {__VA_ARGS__};                                                \
        struct tile_kernel kernel = base_kernel;                                                   \
        kernel.many = many_##name;                                                                 \
        kernel.start = lay_##name;                                                                 \
        kernel.n_starts = starts_of(form) + Q8_QUADS;                                              \
        run_amx(kernel, form.quads, args, p_begin, p_end);                                         \
    }

#define DEFINE_QUANT_AMX(name, ID, sub_, bits_, zero_, codes_, added_, scales_)                    \
    DEFINE_BLOCKS_AMX(name, wefti_kern_q2_q6_kernel_avx512vnni(WEFT_GEMM_##ID),                    \
                      .block_bytes = Q8_CODES, .quads = (sub_) / 4, .has_starts = (zero_) != 0,    \
                      .has_mins = QUANT_##added_ != QUANT_NONE)

DEFINE_BLOCKS_AMX(q8, wefti_kern_q8_kernel_avx512vnni(), .block_bytes = Q8_BLOCK_BYTES,
                  .quads = Q8_QUADS, .has_starts = true)
QUANT_EACH(DEFINE_QUANT_AMX)

/* Pairs of whole blocks; what is left of K is not laid. */
static void lay_i8(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,
                   int32_t *out) {
    (void)k;
    for (uint32_t b = 0; b < n_blocks / 2 * 2; b++) {
        lay_rows(act + (size_t)(first + b) * GROUP_WORDS * ACT_WORD, PAIR_QUADS,
                 out + (size_t)(b / 2) * 2 * GROUP_WORDS + (size_t)(b % 2) * Q8_QUADS);
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
    dot_tiles(&(struct tile_run){.rows = t->starts,
                                 .row_bytes = TILE_LINE,
                                 .rows_step = MANY_ROWS * TILE_LINE,
                                 .panels = {t->panels[0], t->panels[1]},
                                 .panel_step = (size_t)PAIR_QUADS * I8_QUAD_BYTES,
                                 .n = n_pairs},
              dots);
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
    kernel.start = lay_i8;
    kernel.n_starts = Q8_QUADS;
    run_amx(kernel, PAIR_QUADS, args, p_begin, p_end);
}

#define FILL_QUANT_AMX(name, ID, ...) table->gemm[WEFT_GEMM_##ID] = gemm_##name;

static void fill_int8(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q8_0] = gemm_q8;
    table->gemm[WEFT_GEMM_I8] = gemm_i8;
    QUANT_EACH(FILL_QUANT_AMX)
}

#endif
