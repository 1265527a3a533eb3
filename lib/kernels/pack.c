/* Packing runs once per weight, at load. It is portable C, so that the same file serves every ISA:
 * sixteen rows at a time are read side by side into a small tile and written out transposed. The
 * tile stays in cache: 16 rows x 64 elements x 4 bytes = 4 KiB. */
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#include "act_order.h"
#include "convert.h"
#include "fp8_nf4.h"
#include "kern_internal.h"
#include "quant.h"
#include "quantise.h"

enum { TILE_K = 64 };
_Static_assert(TILE_K % Q8_GROUP == 0, "a tile holds whole quantisation blocks");
_Static_assert(F8_GROUP % TILE_K == 0 && NF4_GROUP % TILE_K == 0, "a tile has one scale of these");

static size_t round_up(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

void weft_kern_segs_split(struct weft_kern_segs *segs, uint32_t n_units, uint32_t unit) {
    WEFT_ASSERT(n_units > 0 && unit > 0);
    segs->n_segs = 8;
    for (uint32_t s = 0; s < 8; s++) {
        segs->seg_end[s] = (uint32_t)((uint64_t)(s + 1) * n_units / 8) * unit;
    }
}

void weft_kern_segs_one(struct weft_kern_segs *segs, uint32_t k) {
    *segs = (struct weft_kern_segs){.n_segs = 1, .seg_end = {k}};
}

uint32_t weft_kern_group(enum weft_gemm_kind kind) {
    return group_of(kind);
}

size_t weft_kern_panel_bytes(enum weft_gemm_kind kind, uint32_t k) {
    enum weft_dtype weights = weights_of(kind);
    switch (weights) {
    case WEFT_DT_F32:
        return (size_t)k * WEFT_PANEL * 4;
    case WEFT_DT_F16:
        return round_up((size_t)k * WEFT_PANEL * 2);
    case WEFT_DT_BF16:
        return ((size_t)k + 1) / 2 * WEFT_PANEL * 4;
    case WEFT_DT_Q8_0:
        WEFT_ASSERT(k % Q8_GROUP == 0);
        return round_up((size_t)k / Q8_GROUP * Q8_BLOCK_BYTES);
    case WEFT_DT_I8:
        return (size_t)i8_columns(k) * WEFT_PANEL + WEFT_PANEL * sizeof(float);
    case WEFT_DT_F8_E4M3:
    case WEFT_DT_NF4:
        return round_up(fp8_nf4_bytes(fp8_nf4_of(weights), k, WEFT_PANEL));
    case WEFT_DT_Q4_G:
    case WEFT_DT_Q8_G:
        return round_up(order_panel_bytes(act_order_of(weights), k, k));
    default: {
        const struct quant_layout *q = quant_layout_of(weights);
        WEFT_ASSERT(k % q->group == 0);
        return round_up((size_t)k / q->group * q->bytes);
    }
    }
}

size_t weft_kern_part_bytes(enum weft_gemm_kind kind, uint32_t k_whole, uint32_t k) {
    enum weft_dtype weights = weights_of(kind);
    if (is_act_order(weights))
        return round_up(order_panel_bytes(act_order_of(weights), k, k_whole));
    return weft_kern_panel_bytes(kind, k);
}

size_t weft_kern_packed_bytes(enum weft_gemm_kind kind, uint32_t n, uint32_t k) {
    return ((size_t)n + WEFT_PANEL - 1) / WEFT_PANEL * weft_kern_panel_bytes(kind, k);
}

bool weft_kern_has_kind(enum weft_dtype dtype) {
    return weft_dtypes[dtype].class != WEFT_DTYPE_PIECE;
}

enum weft_gemm_kind weft_kern_exact_kind(enum weft_dtype dtype) {
#define EXACT_NONE(id)
#define EXACT_EXACT(id) [WEFT_DT_##id] = WEFT_GEMM_##id##_F32,
#define EXACT_BOTH(id) EXACT_EXACT(id)
#define EXACT_ALL(id) EXACT_EXACT(id)
#define EXACT(id, name, class, elems, bytes, file, layout, products) EXACT_##products(id)
    static const enum weft_gemm_kind kinds[WEFT_DT_COUNT] = {WEFT_DTYPES(EXACT)};
    WEFT_ASSERT(weft_kern_has_kind(dtype));
    return kinds[dtype];
}

enum weft_gemm_kind weft_kern_fast_kind(enum weft_dtype dtype) {
#define FAST_NONE(id)
#define FAST_EXACT(id) [WEFT_DT_##id] = WEFT_GEMM_##id##_F32,
#define FAST_BOTH(id) [WEFT_DT_##id] = WEFT_GEMM_##id,
#define FAST_ALL(id) FAST_BOTH(id)
#define FAST(id, name, class, elems, bytes, file, layout, products) FAST_##products(id)
    static const enum weft_gemm_kind kinds[WEFT_DT_COUNT] = {WEFT_DTYPES(FAST)};
    WEFT_ASSERT(weft_kern_has_kind(dtype));
    return kinds[dtype];
}

enum weft_gemm_kind weft_kern_bf16_kind(enum weft_dtype dtype) {
#define BF16_NONE(id)
#define BF16_EXACT(id) [WEFT_DT_##id] = WEFT_GEMM_##id##_F32,
#define BF16_BOTH(id) [WEFT_DT_##id] = WEFT_GEMM_##id,
#define BF16_ALL(id) [WEFT_DT_##id] = WEFT_GEMM_##id##_BF16,
#define BF16(id, name, class, elems, bytes, file, layout, products) BF16_##products(id)
    static const enum weft_gemm_kind kinds[WEFT_DT_COUNT] = {WEFT_DTYPES(BF16)};
    WEFT_ASSERT(weft_kern_has_kind(dtype));
    return kinds[dtype];
}

enum weft_dtype weft_kern_weights_of(enum weft_gemm_kind kind) {
    return weights_of(kind);
}

enum weft_kern_act weft_kern_act_of(enum weft_gemm_kind kind) {
    enum weft_dtype weights = weights_of(kind);
    if (kind_facts[kind].is_exact) return WEFT_ACT_F32;
    if (weights == WEFT_DT_BF16 || kind_facts[kind].rounds) return WEFT_ACT_BF16;
    if (weights == WEFT_DT_I8) return WEFT_ACT_I8;
    if (weights == WEFT_DT_Q8_0) return WEFT_ACT_Q8;
    return quant_reads_sums(quant_layout_of(weights)) ? WEFT_ACT_Q8_SUMS : WEFT_ACT_Q8;
}

uint32_t weft_kern_act_unit(enum weft_gemm_kind kind) {
    static const uint32_t units[WEFT_ACT_COUNT] = {[WEFT_ACT_F32] = 1,
                                                   [WEFT_ACT_BF16] = 2,
                                                   [WEFT_ACT_I8] = I8_GROUP,
                                                   [WEFT_ACT_Q8] = Q8_GROUP,
                                                   [WEFT_ACT_Q8_SUMS] = Q8_GROUP};
    return units[weft_kern_act_of(kind)];
}

size_t weft_kern_act_row_bytes(enum weft_gemm_kind kind, uint32_t k) {
    enum weft_kern_act act = weft_kern_act_of(kind);
    if (act == WEFT_ACT_F32) return round_up((size_t)k * 4);
    /* Rows that begin a multiple of 4 KiB apart would share one set of L1 where tiles read them. */
    if (act == WEFT_ACT_BF16) return round_up(((size_t)k + 1) / 2 * 4) | 64;
    if (act == WEFT_ACT_I8) return round_up((size_t)i8_columns(k) + (size_t)i8_groups(k) * 8) | 64;
    WEFT_ASSERT(k % Q8_GROUP == 0);
    return round_up((size_t)k + (size_t)k / Q8_GROUP * (act == WEFT_ACT_Q8_SUMS ? 16 : 8));
}

void weft_kern_act_interleave(const struct weft_kern_table *table, enum weft_gemm_kind kind,
                              const void *row, size_t row_bytes, uint32_t row_idx, void *group) {
    const uint32_t *words = row, n = table->group_rows;
    WEFT_ASSERT(row_bytes % 4 == 0 && row_idx < n);
    if (table->act_in_rows[weft_kern_act_of(kind)]) {
        memcpy((uint8_t *)group + row_idx * row_bytes, row, row_bytes);
        return;
    }
    uint32_t *to = (uint32_t *)group + row_idx;
    for (size_t i = 0; i < row_bytes / 4; i++, to += n) {
        *to = words[i];
    }
}

/* The source: `row_bytes` per output feature, no alignment. */
struct source {
    enum weft_dtype type;
    const uint8_t *rows;
    size_t row_bytes;
    uint32_t k;
    const struct weft_kern_calib *calib; /* NULL: none */
};

static struct source source_of(enum weft_dtype type, const void *src, uint32_t k) {
    size_t row_bytes = 0;
    switch (type) {
    case WEFT_DT_F32:
        row_bytes = (size_t)k * 4;
        break;
    case WEFT_DT_F16:
    case WEFT_DT_BF16:
        row_bytes = (size_t)k * 2;
        break;
    case WEFT_DT_Q8_0:
        WEFT_ASSERT(k % Q8_GROUP == 0);
        row_bytes = (size_t)k / Q8_GROUP * Q8_SRC_BYTES;
        break;
    case WEFT_DT_I8:
        row_bytes = sizeof(float) + k;
        break;
    case WEFT_DT_F8_E4M3:
    case WEFT_DT_NF4:
        row_bytes = fp8_nf4_bytes(fp8_nf4_of(type), k, 1);
        break;
    case WEFT_DT_Q4_G:
    case WEFT_DT_Q8_G:
        row_bytes = order_row_bytes(act_order_of(type), k);
        break;
    default:
        WEFT_ASSERT(k % quant_layout_of(type)->group == 0);
        row_bytes = (size_t)k / quant_layout_of(type)->group * weft_dtype_block_bytes(type);
    }
    WEFT_ASSERT(row_bytes > 0);
    return (struct source){type, src, row_bytes, k, NULL};
}

static void q8_src_widen(const uint8_t *block, float *dst) {
    uint16_t half;
    int8_t codes[Q8_GROUP];
    memcpy(&half, block, sizeof half);
    memcpy(codes, block + sizeof half, sizeof codes);
    float scale = f16_to_f32(half);
    for (uint32_t i = 0; i < Q8_GROUP; i++) {
        dst[i] = scale * codes[i];
    }
}

/* A row of I8 is the scale, then the codes. */
static void i8_src_widen(const uint8_t *row, uint32_t k0, uint32_t count, float *dst) {
    float scale;
    memcpy(&scale, row, sizeof scale);
    for (uint32_t i = 0; i < count; i++) {
        dst[i] = scale * (float)(int8_t)row[sizeof scale + k0 + i];
    }
}

/* Columns k0..k0+count of a row, all of one group. */
static void fp8_nf4_src_widen(const struct fp8_nf4 *c, const uint8_t *row, uint32_t k0,
                              uint32_t count, float *dst) {
    const uint8_t *group = row + k0 / c->group * fp8_nf4_group_bytes(c, 1);
    float scale;
    memcpy(&scale, group, sizeof scale);
    for (uint32_t i = 0; i < count; i++) {
        dst[i] = scale * fp8_nf4_value(c, group + sizeof scale, 1, k0 % c->group + i);
    }
}

/* The weights of a group of one feature. */
static void quant_src_widen(enum weft_dtype dtype, const uint8_t *src, float out[QUANT_SUPER]) {
    const struct quant_layout *q = quant_layout_of(dtype);
    struct quant_parts parts;
    wefti_kern_quant_split(dtype, src, &parts);
    for (uint32_t k = 0; k < q->group; k++) {
        out[k] = quant_part_weight(q, &parts, k);
    }
}

/* Elements k0..k0+count of one feature as f32; the rest of the tile's row is zero. */
static void read_f32(const struct source *src, uint32_t row, uint32_t k0, uint32_t count,
                     float dst[TILE_K]) {
    const uint8_t *base = src->rows + (size_t)row * src->row_bytes;
    uint16_t halves[TILE_K];
    switch (src->type) {
    case WEFT_DT_F32:
        memcpy(dst, base + (size_t)k0 * 4, (size_t)count * 4);
        break;
    case WEFT_DT_F16:
    case WEFT_DT_BF16:
        memcpy(halves, base + (size_t)k0 * 2, (size_t)count * 2);
        for (uint32_t i = 0; i < count; i++) {
            dst[i] = src->type == WEFT_DT_F16 ? f16_to_f32(halves[i]) : bf16_to_f32(halves[i]);
        }
        break;
    case WEFT_DT_Q8_0:
        for (uint32_t i = 0; i < count; i += Q8_GROUP) {
            q8_src_widen(base + (size_t)(k0 + i) / Q8_GROUP * Q8_SRC_BYTES, dst + i);
        }
        break;
    case WEFT_DT_I8:
        i8_src_widen(base, k0, count, dst);
        break;
    case WEFT_DT_F8_E4M3:
    case WEFT_DT_NF4:
        fp8_nf4_src_widen(fp8_nf4_of(src->type), base, k0, count, dst);
        break;
    case WEFT_DT_Q4_G:
    case WEFT_DT_Q8_G:
        for (uint32_t i = 0; i < count; i++) {
            dst[i] = order_row_weight(act_order_of(src->type), base, src->k, k0 + i);
        }
        break;
    default: { /* groups are a part or a multiple of a tile */
        const struct quant_layout *q = quant_layout_of(src->type);
        const size_t block_bytes = weft_dtype_block_bytes(src->type);
        float wide[QUANT_SUPER];
        for (uint32_t i = 0; i < count; i += weft_min_u32(q->group, TILE_K)) {
            quant_src_widen(src->type, base + (k0 + i) / q->group * block_bytes, wide);
            memcpy(dst + i, wide + (k0 + i) % q->group,
                   weft_min_u32(count - i, weft_min_u32(q->group, TILE_K)) * sizeof *dst);
        }
    }
    }
    memset(dst + count, 0, (TILE_K - count) * sizeof *dst);
}

void weft_kern_read_row(enum weft_dtype type, const void *row, uint32_t k, float *out) {
    struct source src = source_of(type, row, k);
    if (is_quant(type)) {
        const struct quant_layout *q = quant_layout_of(type);
        const size_t block_bytes = weft_dtype_block_bytes(type);
        float wide[QUANT_SUPER];
        for (uint32_t k0 = 0; k0 < k; k0 += q->group) {
            quant_src_widen(type, src.rows + k0 / q->group * block_bytes, wide);
            memcpy(out + k0, wide, q->group * sizeof *out);
        }
        return;
    }
    for (uint32_t k0 = 0; k0 < k; k0 += TILE_K) {
        float tile[TILE_K];
        uint32_t count = weft_min_u32(TILE_K, k - k0);
        read_f32(&src, 0, k0, count, tile);
        memcpy(out + k0, tile, count * sizeof *out);
    }
}

static uint16_t narrow(enum weft_dtype dtype, float f) {
    return dtype == WEFT_DT_F16 ? f32_to_f16(f) : f32_to_bf16(f);
}

/* The same as 16-bit patterns of `dtype`; a source of that type is copied, not converted. */
static void read_half(enum weft_dtype dtype, const struct source *src, uint32_t row, uint32_t k0,
                      uint32_t count, uint16_t dst[TILE_K]) {
    if (src->type == dtype) {
        const uint8_t *base = src->rows + (size_t)row * src->row_bytes;
        memcpy(dst, base + (size_t)k0 * 2, (size_t)count * 2);
        memset(dst + count, 0, (TILE_K - count) * sizeof *dst);
        return;
    }
    float wide[TILE_K];
    read_f32(src, row, k0, count, wide);
    for (uint32_t i = 0; i < TILE_K; i++) {
        dst[i] = narrow(dtype, wide[i]);
    }
}

static void pack_panel_f32(const struct source *src, uint32_t n0, uint32_t n_rows, float *panel) {
    const uint32_t k = src->k;
    float tile[WEFT_PANEL][TILE_K] = {{0}};
    for (uint32_t k0 = 0; k0 < k; k0 += TILE_K) {
        uint32_t count = weft_min_u32(TILE_K, k - k0);
        for (uint32_t r = 0; r < n_rows; r++) {
            read_f32(src, n0 + r, k0, count, tile[r]);
        }
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t r = 0; r < WEFT_PANEL; r++) {
                panel[(size_t)(k0 + i) * WEFT_PANEL + r] = tile[r][i];
            }
        }
    }
}

/* f16: one row of 16 per k; bf16: pairs of k side by side, an odd K padded with zero. */
static void pack_panel_half(enum weft_dtype dtype, const struct source *src, uint32_t n0,
                            uint32_t n_rows, uint16_t *panel) {
    const uint32_t k = src->k;
    uint16_t tile[WEFT_PANEL][TILE_K] = {{0}};
    uint32_t group = dtype == WEFT_DT_BF16 ? 2 : 1;
    for (uint32_t k0 = 0; k0 < k; k0 += TILE_K) {
        uint32_t count = weft_min_u32(TILE_K, k - k0);
        for (uint32_t r = 0; r < n_rows; r++) {
            read_half(dtype, src, n0 + r, k0, count, tile[r]);
        }
        for (uint32_t i = 0; i < count; i += group) {
            uint16_t *out = panel + (size_t)(k0 + i) * WEFT_PANEL;
            for (uint32_t r = 0; r < WEFT_PANEL; r++) {
                memcpy(out + (size_t)r * group, &tile[r][i], group * sizeof *out);
            }
        }
    }
}

/* Elements k0.. of a feature as f32 for quantising, from the calibration's copy of the row
 * if there is one. */
static const float *read_group_f32(const struct source *src, uint32_t row, uint32_t k0,
                                   float wide[TILE_K]) {
    if (src->calib) return src->calib->row + k0;
    read_f32(src, row, k0, Q8_GROUP, wide);
    return wide;
}

/* Begins a feature: a calibration reads it whole, and looks at its distribution. */
static float begin_row(enum grid_form form, const struct source *src, uint32_t row,
                       uint32_t group) {
    const struct weft_kern_calib *calib = src->calib;
    if (!calib) return 1.0f;
    weft_kern_read_row(src->type, src->rows + (size_t)row * src->row_bytes, src->k, calib->row);
    return wefti_kern_grid_row_ratio(form, calib->clip, calib->row, calib->importance, src->k,
                                     group);
}

/* The grid of a group that begins at column k0. */
static struct grid group_grid(enum grid_form form, const struct weft_kern_calib *calib, uint32_t k0,
                              float row_ratio, const float *w) {
    if (calib)
        return wefti_kern_grid_choose(form, calib->clip, w, calib->importance + k0, QUANT_BLOCK,
                                      row_ratio);
    struct grid_ends ends = wefti_kern_grid_ends(w, QUANT_BLOCK);
    return wefti_kern_grid_make(form, &ends, 1.0f);
}

static void put_q8(uint8_t *block, uint32_t feature, uint16_t scale,
                   const uint8_t codes[Q8_GROUP]) {
    for (uint32_t i = 0; i < Q8_GROUP; i++) {
        block[(size_t)(i / 4) * WEFT_PANEL * 4 + (size_t)feature * 4 + i % 4] = codes[i] ^ 0x80u;
    }
    memcpy(block + Q8_CODES + (size_t)feature * 2, &scale, sizeof scale);
}

/* One feature after another, so that a calibration sees it whole. Blocks that are Q8_0 already are
 * copied. */
static void pack_panel_q8(const struct source *src, uint32_t n0, uint32_t n_rows, uint8_t *panel) {
    const uint32_t k = src->k;
    for (uint32_t r = 0; r < WEFT_PANEL; r++) {
        bool copied = src->type == WEFT_DT_Q8_0;
        float ratio = r < n_rows && !copied ? begin_row(GRID_Q8, src, n0 + r, Q8_GROUP) : 1.0f;
        for (uint32_t k0 = 0; k0 < k; k0 += Q8_GROUP) {
            uint8_t codes[Q8_GROUP] = {0};
            uint16_t scale = 0;
            if (r < n_rows && copied) {
                const uint8_t *block = src->rows + (size_t)(n0 + r) * src->row_bytes +
                                       (size_t)k0 / Q8_GROUP * Q8_SRC_BYTES;
                memcpy(&scale, block, sizeof scale);
                memcpy(codes, block + sizeof scale, Q8_GROUP);
            } else if (r < n_rows) {
                float wide[TILE_K];
                const float *w = read_group_f32(src, n0 + r, k0, wide);
                struct grid grid = group_grid(GRID_Q8, src->calib, k0, ratio, w);
                wefti_kern_grid_codes(&grid, w, Q8_GROUP, codes);
                scale = grid.scale_bits;
            }
            put_q8(panel + (size_t)k0 / Q8_GROUP * Q8_BLOCK_BYTES, r, scale, codes);
        }
    }
}

/* The grid of a whole feature. */
static struct grid row_grid(const struct source *src, uint32_t row) {
    const struct weft_kern_calib *calib = src->calib;
    const uint32_t k = src->k;
    if (calib) {
        float ratio = begin_row(GRID_I8, src, row, k);
        return wefti_kern_grid_choose(GRID_I8, calib->clip, calib->row, calib->importance, k,
                                      ratio);
    }
    struct grid_ends ends = {.low = INFINITY, .high = -INFINITY, .finite = true};
    for (uint32_t k0 = 0; k0 < k; k0 += TILE_K) {
        float wide[TILE_K];
        uint32_t count = weft_min_u32(TILE_K, k - k0);
        read_f32(src, row, k0, count, wide);
        wefti_kern_grid_reach(&ends, wide, count);
    }
    return wefti_kern_grid_make(GRID_I8, &ends, 1.0f);
}

/* Columns k0.. of feature r. */
static void put_i8(uint8_t *panel, uint32_t r, uint32_t k0, const uint8_t *codes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)(k0 + i) / 4 * I8_QUAD_BYTES + (size_t)r * 4 + (k0 + i) % 4;
        panel[at] = codes[i] ^ 0x80u;
    }
}

/* Rows that are I8 already are copied. */
static void pack_panel_i8(const struct source *src, uint32_t n0, uint32_t n_rows, uint8_t *panel) {
    const uint32_t k = src->k;
    float *scales = (float *)(void *)(panel + (size_t)i8_columns(k) * WEFT_PANEL);
    memset(panel, 128, (size_t)i8_columns(k) * WEFT_PANEL);
    memset(scales, 0, WEFT_PANEL * sizeof *scales);
    for (uint32_t r = 0; r < n_rows; r++) {
        if (src->type == WEFT_DT_I8) {
            const uint8_t *row = src->rows + (size_t)(n0 + r) * src->row_bytes;
            memcpy(&scales[r], row, sizeof *scales);
            put_i8(panel, r, 0, row + sizeof *scales, k);
            continue;
        }
        struct grid grid = row_grid(src, n0 + r);
        scales[r] = grid.scale;
        for (uint32_t k0 = 0; k0 < k; k0 += TILE_K) {
            float wide[TILE_K];
            uint8_t codes[TILE_K];
            uint32_t count = weft_min_u32(TILE_K, k - k0);
            read_f32(src, n0 + r, k0, count, wide);
            wefti_kern_grid_codes(&grid, wide, count, codes);
            put_i8(panel, r, k0, codes, count);
        }
    }
}

/* The blocks are of the type already. */
static void pack_panel_fp8_nf4(const struct fp8_nf4 *c, const struct source *src, uint32_t n0,
                               uint32_t n_rows, uint8_t *panel) {
    const uint32_t k = src->k;
    memset(panel, 0, fp8_nf4_bytes(c, k, WEFT_PANEL));
    for (uint32_t r = 0; r < n_rows; r++) {
        const uint8_t *from = src->rows + (size_t)(n0 + r) * src->row_bytes;
        uint8_t *group = panel;
        for (uint32_t k0 = 0; k0 < k; k0 += c->group) {
            const uint32_t n_bytes = weft_min_u32(c->group, k - k0) / c->per_byte;
            const float nan = f32_from_bits(0x7fc00000u);
            uint8_t *scale = group + (size_t)r * sizeof nan;
            memcpy(scale, from, sizeof nan);
            from += sizeof nan;
            for (uint32_t i = 0; i < n_bytes; i++) {
                group[FP8_NF4_SCALES + (size_t)i * WEFT_PANEL + r] = from[i];
                bool is_nan = c->per_byte == 1 && (from[i] & 0x7fu) == 0x7fu;
                if (is_nan) memcpy(scale, &nan, sizeof nan);
            }
            from += n_bytes;
            group += fp8_nf4_group_bytes(c, WEFT_PANEL);
        }
    }
}

/* The blocks are of the type already, too. */
static void pack_panel_order(const struct act_order *o, const struct source *src, uint32_t n0,
                             uint32_t n_rows, uint8_t *panel) {
    const uint32_t k = src->k;
    const size_t n_groups = order_groups(k), n_bytes = (size_t)k / o->per_byte;
    uint8_t *groups = panel + n_bytes * WEFT_PANEL, *table = groups + (size_t)k * 2;
    memset(panel, 0, order_panel_bytes(o, k, k));
    for (uint32_t r = 0; r < n_rows; r++) {
        const uint8_t *scales = src->rows + (size_t)(n0 + r) * src->row_bytes;
        const uint8_t *zeros = scales + n_groups * 2, *from = zeros + n_groups;
        if (r == 0) memcpy(groups, from, (size_t)k * 2);
        for (size_t g = 0; g < n_groups; g++) {
            uint8_t *entry = table + g * ORDER_ENTRY;
            memcpy(entry + (size_t)r * 2, scales + g * 2, 2);
            entry[WEFT_PANEL * 2 + r] = zeros[g];
        }
        for (size_t i = 0; i < n_bytes; i++) {
            panel[i * WEFT_PANEL + r] = from[(size_t)k * 2 + i];
        }
    }
}

static void put_scales(const struct quant_layout *q, const struct quant_parts *parts,
                       uint32_t feature, uint8_t *group) {
    uint8_t *super = group + (q->is_super ? q->at_super : q->at_scales);
    uint8_t *min = q->is_super ? super + WEFT_PANEL * 2 : group + q->at_mins;
    const bool in_bytes = q->scales != QUANT_F16 && q->scales != QUANT_ONE;
    if (QUANT_SUPER_IS_F32(q->scales))
        memcpy(super + (size_t)feature * 4, &parts->super, 4);
    else if (q->is_super || !in_bytes)
        memcpy(super + (size_t)feature * 2, &parts->scale, 2);
    if (q->has_zeros)
        group[q->at_mins + feature] = (uint8_t)parts->min;
    else if (q->has_min)
        memcpy(min + (size_t)feature * 2, &parts->min, 2);
    for (uint32_t s = 0; in_bytes && s < q->group / q->sub; s++) {
        group[q->at_scales + s * WEFT_PANEL + feature] = parts->scales[s];
        if (q->has_min) group[q->at_mins + s * WEFT_PANEL + feature] = parts->mins[s];
    }
}

/* Writes one feature's group to its place among the 16. */
static void put_quant(const struct quant_layout *q, const struct quant_parts *parts,
                      uint32_t feature, uint8_t *group) {
    for (uint32_t k = 0; k < q->group; k++) {
        uint32_t block = k / QUANT_BLOCK, quad = k % QUANT_BLOCK / 4, byte = feature * 4 + k % 4;
        uint32_t code = parts->codes[k];
        uint8_t *nibbles = group + block * QUANT_LOW_BYTES + quad % 4 * QUANT_LINE + byte;
        uint8_t *pairs = group + q->at_pairs + (block * 2 + quad / 4) * QUANT_LINE + byte;
        uint8_t *singles = group + q->at_singles + block * QUANT_LINE + byte;
        if (quant_has_nibbles(q)) *nibbles |= (uint8_t)((code & 15u) << quad / 4 * 4);
        if (quant_has_pairs(q))
            *pairs |= (uint8_t)((code >> quant_pair_bit(q) & 3u) << quad % 4 * 2);
        if (quant_has_singles(q)) *singles |= (uint8_t)((code >> quant_single_bit(q) & 1u) << quad);
    }
    put_scales(q, parts, feature, group);
}

/* The group at column k0: taken apart where it is of the type already, else quantised. */
static void read_group(enum weft_dtype dtype, const struct source *src, uint32_t row, uint32_t k0,
                       float row_ratio, struct quant_parts *out) {
    if (src->type == dtype) {
        const uint8_t *groups = src->rows + (size_t)row * src->row_bytes;
        const size_t at = k0 / quant_layout_of(dtype)->group;
        wefti_kern_quant_split(dtype, groups + at * weft_dtype_block_bytes(dtype), out);
        return;
    }
    float wide[TILE_K];
    const float *w = read_group_f32(src, row, k0, wide);
    struct grid grid =
        group_grid(dtype == WEFT_DT_Q4_0 ? GRID_4_0 : GRID_4_1, src->calib, k0, row_ratio, w);
    memset(out, 0, sizeof *out);
    out->scale = grid.scale_bits;
    out->min = grid.min_bits;
    wefti_kern_grid_codes(&grid, w, QUANT_BLOCK, out->codes);
}

static void pack_panel_quant(enum weft_dtype dtype, const struct source *src, uint32_t n0,
                             uint32_t n_rows, uint8_t *panel) {
    const uint32_t k = src->k;
    const struct quant_layout *q = quant_layout_of(dtype);
    bool copied = src->type == dtype;
    WEFT_ASSERT(copied || dtype == WEFT_DT_Q4_0 || dtype == WEFT_DT_Q4_1);
    memset(panel, 0, (size_t)k / q->group * q->bytes);
    for (uint32_t r = 0; r < n_rows; r++) {
        enum grid_form form = dtype == WEFT_DT_Q4_0 ? GRID_4_0 : GRID_4_1;
        float ratio = copied ? 1.0f : begin_row(form, src, n0 + r, QUANT_BLOCK);
        for (uint32_t k0 = 0; k0 < k; k0 += q->group) {
            struct quant_parts parts;
            read_group(dtype, src, n0 + r, k0, ratio, &parts);
            put_quant(q, &parts, r, panel + (size_t)k0 / q->group * q->bytes);
        }
    }
}

static void pack_panel(enum weft_dtype weights, const struct source *src, uint32_t n0,
                       uint32_t n_rows, uint8_t *panel) {
    switch (weights) {
    case WEFT_DT_F32:
        pack_panel_f32(src, n0, n_rows, (float *)(void *)panel);
        break;
    case WEFT_DT_F16:
    case WEFT_DT_BF16:
        pack_panel_half(weights, src, n0, n_rows, (uint16_t *)(void *)panel);
        break;
    case WEFT_DT_Q8_0:
        pack_panel_q8(src, n0, n_rows, panel);
        break;
    case WEFT_DT_I8:
        pack_panel_i8(src, n0, n_rows, panel);
        break;
    case WEFT_DT_F8_E4M3:
    case WEFT_DT_NF4:
        WEFT_ASSERT(src->type == weights);
        pack_panel_fp8_nf4(fp8_nf4_of(weights), src, n0, n_rows, panel);
        break;
    case WEFT_DT_Q4_G:
    case WEFT_DT_Q8_G:
        WEFT_ASSERT(src->type == weights);
        pack_panel_order(act_order_of(weights), src, n0, n_rows, panel);
        break;
    default:
        pack_panel_quant(weights, src, n0, n_rows, panel);
    }
}

void weft_kern_pack(enum weft_gemm_kind kind, const struct weft_kern_source *src, uint32_t n_begin,
                    uint32_t n_end, const struct weft_kern_calib *calib, void *packed) {
    WEFT_ASSERT(n_begin <= n_end && n_end <= src->n && n_begin % WEFT_PANEL == 0 && src->k > 0);
    WEFT_ASSERT(n_end % WEFT_PANEL == 0 || n_end == src->n);
    WEFT_ASSERT((uintptr_t)packed % 64 == 0);
    struct source from = source_of(src->type, src->rows, src->k);
    from.calib = calib;
    enum weft_dtype weights = weights_of(kind);
    size_t panel_bytes = weft_kern_panel_bytes(kind, src->k);
    for (uint32_t n0 = n_begin; n0 < n_end; n0 += WEFT_PANEL) {
        uint8_t *panel = (uint8_t *)packed + n0 / WEFT_PANEL * panel_bytes;
        memset(panel + panel_bytes - 64, 0, 64); /* bytes after the last lines are padding */
        pack_panel(weights, &from, n0, weft_min_u32(WEFT_PANEL, n_end - n0), panel);
    }
}

/* --------------------------------------------------------------------------------- cutting --- */

/* Bytes of a panel in front of column k, which begins a group or is past the last one. */
static size_t bytes_before(enum weft_dtype weights, uint32_t k) {
    switch (weights) {
    case WEFT_DT_F32:
        return (size_t)k * WEFT_PANEL * 4;
    case WEFT_DT_F16:
        return (size_t)k * WEFT_PANEL * 2;
    case WEFT_DT_BF16:
        return ((size_t)k + 1) / 2 * WEFT_PANEL * 4;
    case WEFT_DT_Q8_0:
        return (size_t)k / Q8_GROUP * Q8_BLOCK_BYTES;
    case WEFT_DT_I8:
        return (size_t)i8_columns(k) * WEFT_PANEL;
    case WEFT_DT_F8_E4M3:
    case WEFT_DT_NF4:
        return fp8_nf4_bytes(fp8_nf4_of(weights), k, WEFT_PANEL);
    case WEFT_DT_Q4_G:
    case WEFT_DT_Q8_G:
        return (size_t)k / act_order_of(weights)->per_byte * WEFT_PANEL;
    default:
        return (size_t)k / quant_layout_of(weights)->group * quant_layout_of(weights)->bytes;
    }
}

/* What stands behind all columns of a panel, for its part: scales of its features, or the groups of
 * the own columns and the whole table. */
static void cut_tail(enum weft_dtype weights, const uint8_t *tail, uint32_t k, uint32_t k_begin,
                     uint32_t k_end, uint8_t *to) {
    if (weights == WEFT_DT_I8) memcpy(to, tail, WEFT_PANEL * sizeof(float));
    if (!is_act_order(weights)) return;
    const size_t own = (size_t)(k_end - k_begin) * 2;
    memcpy(to, tail + (size_t)k_begin * 2, own);
    memcpy(to + own, tail + (size_t)k * 2, order_groups(k) * ORDER_ENTRY);
}

void weft_kern_cut(enum weft_gemm_kind kind, const void *panel, uint32_t k, uint32_t k_begin,
                   uint32_t k_end, void *out) {
    WEFT_ASSERT(k_begin < k_end && k_end <= k);
    WEFT_ASSERT(k_begin % group_of(kind) == 0 && (k_end % group_of(kind) == 0 || k_end == k));
    enum weft_dtype weights = weights_of(kind);
    size_t begin = bytes_before(weights, k_begin), end = bytes_before(weights, k_end);
    uint8_t *to = out;
    size_t panel_bytes = weft_kern_part_bytes(kind, k, k_end - k_begin);
    WEFT_ASSERT(end - begin <= panel_bytes);
    memset(to + (end - begin), 0, panel_bytes - (end - begin));
    memcpy(to, (const uint8_t *)panel + begin, end - begin);
    cut_tail(weights, (const uint8_t *)panel + bytes_before(weights, k), k, k_begin, k_end,
             to + (end - begin));
}

/* ------------------------------------------------------------------------------- unpacking --- */

static void unpack_f32(const uint8_t *panel, uint32_t feature, uint32_t k, uint8_t *out) {
    for (uint32_t i = 0; i < k; i++) {
        memcpy(out + (size_t)i * 4, panel + ((size_t)i * WEFT_PANEL + feature) * 4, 4);
    }
}

static void unpack_half(const uint8_t *panel, uint32_t feature, uint32_t k, uint32_t group,
                        uint8_t *out) {
    for (uint32_t i = 0; i < k; i++) {
        size_t at = ((size_t)(i / group) * WEFT_PANEL + feature) * group + i % group;
        memcpy(out + (size_t)i * 2, panel + at * 2, 2);
    }
}

static void unpack_q8(const uint8_t *panel, uint32_t feature, uint32_t k, uint8_t *out) {
    for (uint32_t k0 = 0; k0 < k; k0 += Q8_GROUP, panel += Q8_BLOCK_BYTES, out += Q8_SRC_BYTES) {
        memcpy(out, panel + Q8_CODES + (size_t)feature * 2, 2);
        for (uint32_t i = 0; i < Q8_GROUP; i++) {
            size_t at = (size_t)(i / 4) * WEFT_PANEL * 4 + (size_t)feature * 4 + i % 4;
            out[2 + i] = panel[at] ^ 0x80u; /* less 128, as a signed byte */
        }
    }
}

static void unpack_i8(const uint8_t *panel, uint32_t feature, uint32_t k, uint8_t *out) {
    float scale;
    memcpy(&scale, panel + (size_t)i8_columns(k) * WEFT_PANEL + feature * sizeof scale,
           sizeof scale);
    for (uint32_t i = 0; i < k; i++, out += sizeof(float)) {
        int32_t code = panel[(size_t)(i / 4) * I8_QUAD_BYTES + (size_t)feature * 4 + i % 4] - 128;
        float weight = scale * (float)code;
        memcpy(out, &weight, sizeof weight);
    }
}

static void unpack_fp8_nf4(const struct fp8_nf4 *c, const uint8_t *panel, uint32_t feature,
                           uint32_t k, uint8_t *out) {
    for (uint32_t i = 0; i < k; i++, out += sizeof(float)) {
        float weight = fp8_nf4_weight(c, panel, i, feature);
        memcpy(out, &weight, sizeof weight);
    }
}

static void unpack_order(const struct act_order *o, const uint8_t *at, uint32_t feature, uint32_t k,
                         uint8_t *out) {
    const struct order_panel panel = order_panel_of(o, at, k, k);
    for (uint32_t i = 0; i < k; i++, out += sizeof(float)) {
        float weight = order_weight(o, &panel, i, feature);
        memcpy(out, &weight, sizeof weight);
    }
}

static void unpack_quant(const struct quant_layout *q, const uint8_t *panel, uint32_t feature,
                         uint32_t k, uint8_t *out) {
    for (uint32_t i = 0; i < k; i++, out += sizeof(float)) {
        float weight = quant_weight(q, panel + i / q->group * q->bytes, i % q->group, feature);
        memcpy(out, &weight, sizeof weight);
    }
}

enum weft_dtype weft_kern_unpack_row(enum weft_gemm_kind kind, const void *packed, uint32_t k,
                                     uint32_t row, void *out) {
    const uint8_t *panel =
        (const uint8_t *)packed + row / WEFT_PANEL * weft_kern_panel_bytes(kind, k);
    uint32_t feature = row % WEFT_PANEL;
    enum weft_dtype weights = weights_of(kind);
    switch (weights) {
    case WEFT_DT_F16:
        unpack_half(panel, feature, k, 1, out);
        return WEFT_DT_F16;
    case WEFT_DT_BF16:
        unpack_half(panel, feature, k, 2, out);
        return WEFT_DT_BF16;
    case WEFT_DT_Q8_0:
        unpack_q8(panel, feature, k, out);
        return WEFT_DT_Q8_0;
    case WEFT_DT_F32:
        unpack_f32(panel, feature, k, out);
        break;
    case WEFT_DT_I8:
        unpack_i8(panel, feature, k, out);
        break;
    case WEFT_DT_F8_E4M3:
    case WEFT_DT_NF4:
        unpack_fp8_nf4(fp8_nf4_of(weights), panel, feature, k, out);
        break;
    case WEFT_DT_Q4_G:
    case WEFT_DT_Q8_G:
        unpack_order(act_order_of(weights), panel, feature, k, out);
        break;
    default:
        unpack_quant(quant_layout_of(weights), panel, feature, k, out);
    }
    return WEFT_DT_F32;
}
