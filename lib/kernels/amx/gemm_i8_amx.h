/* kernels/gemm_i8_amx — products of int8 activations with weights of one scale per feature, on AMX's tiles: for the
 * file with the instructions (tiles_amx.h, which is included before), and for a test with a model of them.
 *
 * All is as with AVX-512 and VNNI, but for the dots of 256 columns: a tile instruction takes 64 of them of 16 rows and a
 * panel at once. Integers are exact, and floats are added as there, so both give the same bits, and few rows, which
 * memory bounds, go there.
 *
 * Integers leave tiles by memory: those of a group of columns become floats while the next group's dots are under
 * way, some rows after each step of four dots, as far as a core looks ahead.
 *
 * No other type of 8-bit activations is here: dots leave tiles by memory alone, and where each block of 32 columns
 * has a scale, that is most of what tiles save. Q8_0, Q4_0 and Q4_K at 512 rows had 0.5 to 1.2 times the rate of VNNI,
 * and 0.7 to 1.0 at 8 rows (Xeon, model 207, two cores); with sums in registers, and the next
 * block's dots under way meanwhile, 0.9 to 1.05 and 0.6 to 0.7. A loop alone had 1.75, but 1.1 while another guest
 * used the core's other half (docs/plan/19.md). */
#ifndef WEFT_KERNELS_GEMM_I8_AMX_H
#define WEFT_KERNELS_GEMM_I8_AMX_H

#include "gemm_tiles_amx.h"

enum { GROUP_TILES = I8_GROUP / TILE_LINE, ROWS_BETWEEN = 8 }; /* added after four dots */

/* Dots of a group of columns: [tile][row][panel][feature]. */
typedef int32_t group_dots[2 * TILE_FLOATS];

/* Dots that have left their tiles, and the sums that they are added to: of n_rows rows, [row][panel][feature]. */
struct group_due {
    const int32_t *dots;
    const float *from; /* NULL: sums begin with zero */
    float *to;
    const uint8_t *scales; /* of the first row's group; its start is offset_at bytes further on */
    size_t offset_at;
    uint32_t n_rows;
    __m512 w_scales[MANY_PANELS];
};

/* Rows begin..end of them. */
ALWAYS_INLINE void add_dots(const struct tile_product *p, const struct group_due *due,
                            uint32_t begin, uint32_t end) {
    const size_t stride = p->args->act_row_bytes;
    const uint8_t *scale = due->scales + begin * stride;
    for (size_t r = begin; r < end; r++, scale += stride) {
        const __m512 a_scale = _mm512_set1_ps(*(const float *)(const void *)scale);
        const __m512i start =
            _mm512_set1_epi32(*(const int32_t *)(const void *)(scale + due->offset_at));
        for (size_t i = 0; i < MANY_PANELS; i++) {
            const size_t at = (r * MANY_PANELS + i) * WEFT_PANEL;
            const __m512i dot = _mm512_add_epi32(_mm512_load_si512(due->dots + at), start);
            const __m512 sum = due->from ? _mm512_load_ps(due->from + at) : _mm512_setzero_ps();
            _mm512_store_ps(due->to + at,
                            _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                                            _mm512_mul_ps(a_scale, due->w_scales[i]), sum));
        }
    }
}

ALWAYS_INLINE void multiply_i8(struct tile_product *p, const struct tile_span *span, uint32_t tile,
                               const uint8_t *const panels[], const uint8_t *const rest[],
                               bool two) {
    const struct tile_sums sums = tile_sums_of(p, span, tile);
    const struct tile_rows first = tile_rows_of(p, span, tile);
    const struct tile_rows rows[2] = {first, two ? tile_rows_of(p, span, tile + 1) : first};
    const uint32_t n_tiles = span_tiles(p, span), n_groups = i8_groups(span->end - span->begin);
    const size_t columns = i8_columns(p->args->k);
    _Alignas(64) group_dots dots[2];
    struct group_due due = {
        .from = sums.from,
        .to = sums.to,
        .scales = p->act + tile * TILE_LINES * p->args->act_row_bytes + columns +
                  span->begin / I8_GROUP * sizeof(float),
        .offset_at = i8_groups(p->args->k) * sizeof(float),
        .n_rows = weft_min_u32(p->n_rows - tile * TILE_LINES, (two ? 2 : 1) * TILE_LINES)};
    for (uint32_t i = 0; i < MANY_PANELS; i++) { /* a panel ends in its scales */
        due.w_scales[i] = _mm512_load_ps(p->panels[i] + columns * WEFT_PANEL);
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint32_t at = g * GROUP_TILES, n = weft_min_u32(n_tiles - at, GROUP_TILES);
        uint32_t added = g > 0 ? 0 : due.n_rows;
        zero_sums(two);
        for (uint32_t t = 0; t < n; t++) {
            dot_columns(p, rows, panels, at + t, 1, two, true);
            const uint32_t end = weft_min_u32(added + ROWS_BETWEEN, due.n_rows);
            add_dots(p, &due, added, end);
            added = end;
        }
        if (g + 1 == n_groups && span_rest(p, span))
            dot_last_columns(p, span, tile, rest, two, true);
        if (g > 0) {
            add_dots(p, &due, added, due.n_rows);
            due.from = due.to;
            due.scales += sizeof(float);
        }
        store_tiles(dots[g % 2], two);
        due.dots = dots[g % 2];
    }
    add_dots(p, &due, 0, due.n_rows);
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
    WEFT_ASSERT(args->act_group == 1 || args->act_group == MANY_ROWS);
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
