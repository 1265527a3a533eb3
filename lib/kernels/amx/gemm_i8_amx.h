/* kernels/gemm_i8_amx — products of int8 activations with weights of one scale per feature, on AMX's tiles: for the
 * file with the instructions (tiles_amx.h, which is included before), and for a test with a model of them.
 *
 * All is as with AVX-512 and VNNI, but for the dots of 256 columns: a tile instruction takes 64 of them of 16 rows and a
 * panel at once. Integers are exact, and floats are added as there, so both give the same bits, and few rows, which
 * memory bounds, go there.
 *
 * Integers leave tiles by memory: those of a group of columns become floats while the next group's dots are under
 * way.
 *
 * No other type of 8-bit activations is here: dots leave tiles by memory alone, and where each block of 32 columns
 * has a scale, that is most of what tiles save. Q8_0, Q4_0 and Q4_K at 512 rows had 0.5 to 1.2 times the rate of VNNI,
 * and 0.7 to 1.0 at 8 rows (Xeon, model 207, two cores); with sums in registers, and the next
 * block's dots under way meanwhile, 0.9 to 1.05 and 0.6 to 0.7. A loop alone had 1.75, but 1.1 while another guest
 * used the core's other half (docs/plan/19.md). */
#ifndef WEFT_KERNELS_GEMM_I8_AMX_H
#define WEFT_KERNELS_GEMM_I8_AMX_H

#include "gemm_tiles_amx.h"

enum { GROUP_TILES = I8_GROUP / TILE_LINE };

/* Dots of a group of columns: [tile][row][panel][feature]. */
typedef int32_t group_dots[2 * TILE_FLOATS];

/* Adds them, times the scales of group `group`, to a tile's sums. */
ALWAYS_INLINE void add_dots(const struct tile_product *p, uint32_t tile, uint32_t group,
                            const int32_t *dots, const float *from, float *to) {
    const struct weft_gemm_args *args = p->args;
    const size_t columns = i8_columns(args->k);
    const uint32_t n_rows = weft_min_u32(p->n_rows - tile * TILE_LINES, TILE_LINES);
    const uint8_t *scale =
        p->act + tile * TILE_LINES * args->act_row_bytes + columns + (size_t)group * sizeof(float);
    const uint8_t *offset = scale + i8_groups(args->k) * sizeof(float);
    /* A panel ends in its scales. */
    const __m512 w_scale[MANY_PANELS] = {_mm512_load_ps(p->panels[0] + columns * WEFT_PANEL),
                                         _mm512_load_ps(p->panels[1] + columns * WEFT_PANEL)};
    for (uint32_t r = 0; r < n_rows; r++) {
        const __m512 a_scale = _mm512_set1_ps(*(const float *)(const void *)scale);
        const __m512i start = _mm512_set1_epi32(*(const int32_t *)(const void *)offset);
        for (uint32_t i = 0; i < MANY_PANELS; i++) {
            const __m512i dot = _mm512_add_epi32(_mm512_load_si512(dots), start);
            const __m512 sum = from ? _mm512_load_ps(from) : _mm512_setzero_ps();
            _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                                                _mm512_mul_ps(a_scale, w_scale[i]), sum));
            dots += WEFT_PANEL;
            to += WEFT_PANEL;
            if (from) from += WEFT_PANEL;
        }
        scale += args->act_row_bytes;
        offset += args->act_row_bytes;
    }
}

ALWAYS_INLINE void add_group(const struct tile_product *p, const struct tile_sums *sums,
                             uint32_t tile, uint32_t group, bool first, const int32_t *dots,
                             bool two) {
    const float *from = first ? sums->from : sums->to;
    add_dots(p, tile, group, dots, from, sums->to);
    if (!two) return;
    add_dots(p, tile + 1, group, dots + TILE_FLOATS, from ? from + TILE_FLOATS : NULL,
             sums->to + TILE_FLOATS);
}

ALWAYS_INLINE void multiply_i8(struct tile_product *p, const struct tile_span *span, uint32_t tile,
                               const uint8_t *const panels[], const uint8_t *const rest[],
                               bool two) {
    const struct tile_sums sums = tile_sums_of(p, span, tile);
    const struct tile_rows first = tile_rows_of(p, span, tile);
    const struct tile_rows rows[2] = {first, two ? tile_rows_of(p, span, tile + 1) : first};
    const uint32_t n_tiles = span_tiles(p, span), group = span->begin / I8_GROUP;
    const uint32_t n_groups = i8_groups(span->end - span->begin);
    _Alignas(64) group_dots dots[2];
    for (uint32_t g = 0; g <= n_groups; g++) {
        if (g < n_groups) {
            const uint32_t at = g * GROUP_TILES;
            zero_sums(two);
            dot_columns(p, rows, panels, at, weft_min_u32(n_tiles - at, GROUP_TILES), two, true);
            if (g + 1 == n_groups && span_rest(p, span))
                dot_last_columns(p, span, tile, rest, two, true);
        }
        if (g > 0) add_group(p, &sums, tile, group + g - 1, g == 1, dots[(g - 1) % 2], two);
        if (g < n_groups) store_tiles(dots[g % 2], two);
    }
    end_tile_sums(p, span, &sums, two);
}

static void many_i8(struct tile_product *p, const struct tile_span *span, uint32_t tile,
                    const uint8_t *const panels[], const uint8_t *const rest[], bool two) {
    if (two)
        multiply_i8(p, span, tile, panels, rest, true);
    else
        multiply_i8(p, span, tile, panels, rest, false);
}

static void gemm_i8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    static const struct tile_weights weights = {.kind = WEFT_GEMM_I8,
                                                .group = I8_GROUP,
                                                .group_bytes = I8_GROUP / 4 * I8_QUAD_BYTES,
                                                .column_bytes = 1,
                                                .many = many_i8};
    if (args->m > FEW_ROWS) {
        gemm_tiles(&weights, args, p_begin, p_end);
        return;
    }
    const struct tile_kernel kernel = wefti_kern_i8_kernel_avx512vnni();
    struct weft_gemm_args few = *args;
    few.act_group = 1;
    gemm_run(&kernel, &few, p_begin, p_end);
}

#endif
