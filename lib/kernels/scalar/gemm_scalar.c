/* The definition of the product: one row, one panel, one segment at a time, K ascending. */
#include "kern_internal.h"

#include <math.h>

#include "act_order.h"
#include "convert.h"
#include "fp8_nf4.h"
#include "quant.h"

/* Adds k_begin..k_end of one row times one panel to `sum`. */
typedef void dot_fn(const struct weft_gemm_args *args, const void *row, const void *panel,
                    uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]);

static void dot_f32(const struct weft_gemm_args *args, const void *row, const void *panel,
                    uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const float *a = row, *w = panel;
    (void)args;
    for (uint32_t k = k_begin; k < k_end; k++) {
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += a[k] * w[(size_t)k * WEFT_PANEL + i];
        }
    }
}

static void dot_f16_f32(const struct weft_gemm_args *args, const void *row, const void *panel,
                        uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const float *a = row;
    const uint16_t *w = panel;
    (void)args;
    for (uint32_t k = k_begin; k < k_end; k++) {
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += a[k] * f16_to_f32(w[(size_t)k * WEFT_PANEL + i]);
        }
    }
}

/* Element k of feature i in a bf16 panel. */
static float bf16_weight(const uint16_t *panel, uint32_t k, uint32_t i) {
    return bf16_to_f32(panel[((size_t)k / 2 * WEFT_PANEL + i) * 2 + k % 2]);
}

static void dot_bf16_f32(const struct weft_gemm_args *args, const void *row, const void *panel,
                         uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const float *a = row;
    (void)args;
    for (uint32_t k = k_begin; k < k_end; k++) {
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += a[k] * bf16_weight(panel, k, i);
        }
    }
}

static void dot_bf16(const struct weft_gemm_args *args, const void *row, const void *panel,
                     uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const uint16_t *a = row;
    (void)args;
    for (uint32_t k = k_begin; k < k_end; k++) {
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += bf16_to_f32(a[k]) * bf16_weight(panel, k, i);
        }
    }
}

/* The block of a Q8 panel that holds element k, its 16 scales, and the code of element k, feature
 * i. */
static const uint8_t *q8_block(const void *panel, uint32_t k) {
    return (const uint8_t *)panel + (size_t)k / Q8_GROUP * Q8_BLOCK_BYTES;
}

static float q8_scale(const uint8_t *block, uint32_t i) {
    uint16_t half;
    memcpy(&half, block + Q8_CODES + (size_t)i * 2, sizeof half);
    return f16_to_f32(half);
}

static int32_t q8_code(const uint8_t *block, uint32_t k, uint32_t i) {
    return block[(size_t)(k % Q8_GROUP / 4) * WEFT_PANEL * 4 + (size_t)i * 4 + k % 4] - 128;
}

static void dot_q8_f32(const struct weft_gemm_args *args, const void *row, const void *panel,
                       uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const float *a = row;
    (void)args;
    for (uint32_t k = k_begin; k < k_end; k++) {
        const uint8_t *block = q8_block(panel, k);
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += a[k] * (q8_scale(block, i) * (float)q8_code(block, k, i));
        }
    }
}

static void dot_q8(const struct weft_gemm_args *args, const void *row, const void *panel,
                   uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    struct q8_row a = q8_row_at(row, args->k);
    for (uint32_t k0 = k_begin; k0 < k_end; k0 += Q8_GROUP) {
        const uint8_t *block = q8_block(panel, k0);
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            int32_t dot = 0; /* |dot| <= 32 * 128 * 128 = 2^19: exact in f32, too */
            for (uint32_t k = k0; k < k0 + Q8_GROUP; k++) {
                dot += a.codes[k] * q8_code(block, k, i);
            }
            sum[i] = fmaf((float)dot * q8_scale(block, i), a.scales[k0 / Q8_GROUP], sum[i]);
        }
    }
}

static int32_t i8_code(const void *panel, uint32_t k, uint32_t i) {
    return ((const uint8_t *)panel)[(size_t)(k / 4) * I8_QUAD_BYTES + (size_t)i * 4 + k % 4] - 128;
}

static const float *i8_scales(const void *panel, uint32_t k) {
    return (const void *)((const uint8_t *)panel + (size_t)i8_columns(k) * WEFT_PANEL);
}

static void dot_i8_f32(const struct weft_gemm_args *args, const void *row, const void *panel,
                       uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const float *a = row, *scales = i8_scales(panel, args->k);
    for (uint32_t k = k_begin; k < k_end; k++) {
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += a[k] * (scales[i] * (float)i8_code(panel, k, i));
        }
    }
}

static void dot_i8(const struct weft_gemm_args *args, const void *row, const void *panel,
                   uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    struct i8_row a = i8_row_at(row, args->k);
    const float *scales = i8_scales(panel, args->k);
    for (uint32_t k0 = k_begin; k0 < k_end; k0 += I8_GROUP) {
        float scale = a.scales[k0 / I8_GROUP];
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            int32_t dot = 0; /* |dot| <= 256 * 127 * 127 < 2^22: exact in f32 */
            for (uint32_t k = k0; k < weft_min_u32(k_end, k0 + I8_GROUP); k++) {
                dot += a.codes[k] * i8_code(panel, k, i);
            }
            sum[i] = fmaf((float)dot, scale * scales[i], sum[i]);
        }
    }
}

static void dot_fp8_nf4(const struct fp8_nf4 *layout, const float *a, const uint8_t *panel,
                        uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    for (uint32_t k = k_begin; k < k_end; k++) {
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += a[k] * fp8_nf4_weight(layout, panel, k, i);
        }
    }
}

static void dot_f8_f32(const struct weft_gemm_args *args, const void *row, const void *panel,
                       uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    (void)args;
    dot_fp8_nf4(&f8_layout, row, panel, k_begin, k_end, sum);
}

static void dot_nf4_f32(const struct weft_gemm_args *args, const void *row, const void *panel,
                        uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    (void)args;
    dot_fp8_nf4(&nf4_layout, row, panel, k_begin, k_end, sum);
}

static void dot_order(const struct act_order *o, const struct weft_gemm_args *args, const float *a,
                      const uint8_t *at, uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const struct order_panel panel = order_panel_of(o, at, args->k, whole_k(args));
    for (uint32_t k = k_begin; k < k_end; k++) {
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += a[k] * order_weight(o, &panel, k, i);
        }
    }
}

static void dot_q4_g_f32(const struct weft_gemm_args *args, const void *row, const void *panel,
                         uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    dot_order(&q4_g_layout, args, row, panel, k_begin, k_end, sum);
}

static void dot_q8_g_f32(const struct weft_gemm_args *args, const void *row, const void *panel,
                         uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    dot_order(&q8_g_layout, args, row, panel, k_begin, k_end, sum);
}

static void dot_quant_f32(enum weft_dtype dtype, const float *a, const uint8_t *panel,
                          uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const struct quant_layout *q = &quant_layouts[dtype];
    for (uint32_t k = k_begin; k < k_end; k++) {
        const uint8_t *group = panel + (size_t)k / q->group * q->bytes;
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += a[k] * quant_weight(q, group, k % q->group, i);
        }
    }
}

/* Integer dots of columns that share a scale; then the min, if any, times the sum of the
 * activations. */
static void dot_quant(enum weft_dtype dtype, struct q8_row a, const uint8_t *panel,
                      uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const struct quant_layout *q = &quant_layouts[dtype];
    for (uint32_t k0 = k_begin; k0 < k_end; k0 += q->sub) {
        const uint8_t *group = panel + (size_t)k0 / q->group * q->bytes;
        uint32_t sub = k0 % q->group / q->sub, block = k0 / Q8_GROUP;
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            int32_t dot = 0, codes = 0;
            for (uint32_t k = k0; k < k0 + q->sub; k++) {
                dot += a.codes[k] * ((int32_t)quant_code(q, group, k % q->group, i) - q->zero);
                codes += a.codes[k];
            }
            sum[i] = fmaf((float)dot * quant_scale(q, group, sub, i), a.scales[block], sum[i]);
            float acts = a.scales[block] * (float)codes; /* of a whole block: a.sums[block] */
            if (q->has_min) sum[i] = fmaf(acts, quant_min(q, group, sub, i), sum[i]);
        }
    }
}

/* bf16 activations, and weights rounded to bf16. */
static float rounded_product(uint16_t a, float weight) {
    return bf16_to_f32(a) * bf16_to_f32(f32_to_bf16(weight));
}

static void dot_q8_bf16(const struct weft_gemm_args *args, const void *row, const void *panel,
                        uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const uint16_t *a = row;
    (void)args;
    for (uint32_t k = k_begin; k < k_end; k++) {
        const uint8_t *block = q8_block(panel, k);
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += rounded_product(a[k], q8_scale(block, i) * (float)q8_code(block, k, i));
        }
    }
}

static void dot_quant_bf16(enum weft_dtype dtype, const uint16_t *a, const uint8_t *panel,
                           uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {
    const struct quant_layout *q = &quant_layouts[dtype];
    for (uint32_t k = k_begin; k < k_end; k++) {
        const uint8_t *group = panel + (size_t)k / q->group * q->bytes;
        for (uint32_t i = 0; i < WEFT_PANEL; i++) {
            sum[i] += rounded_product(a[k], quant_weight(q, group, k % q->group, i));
        }
    }
}

static void product(const struct weft_gemm_args *args, const void *row, const void *panel,
                    dot_fn *dot, float sum[WEFT_PANEL]) {
    const struct weft_kern_segs *segs = args->segs;
    memset(sum, 0, WEFT_PANEL * sizeof *sum);
    if (segs->n_segs == 1) {
        dot(args, row, panel, 0, args->k, sum);
        return;
    }
    struct seg_tree tree = {0};
    float slots[3 * WEFT_PANEL];
    for (uint32_t s = 0; s < segs->n_segs; s++) {
        uint32_t begin = s > 0 ? segs->seg_end[s - 1] : 0;
        memset(sum, 0, WEFT_PANEL * sizeof *sum);
        dot(args, row, panel, begin, segs->seg_end[s], sum);
        (void)seg_tree_add(&tree, slots, s, segs->seg_end[s] > begin, sum, WEFT_PANEL);
    }
}

static void gemm(const struct weft_gemm_args *args, enum weft_gemm_kind kind, dot_fn *dot,
                 uint32_t p_begin, uint32_t p_end) {
    check_gemm_args(args, kind, p_begin, p_end);
    size_t panel_bytes = weft_kern_part_bytes(kind, whole_k(args), args->k);
    for (uint32_t p = p_begin; p < p_end; p++) {
        const uint8_t *panel = (const uint8_t *)args->packed + p * panel_bytes;
        uint32_t n0 = p * WEFT_PANEL, n_cols = weft_min_u32(WEFT_PANEL, args->n - n0);
        for (uint32_t m = 0; m < args->m; m++) {
            float sum[WEFT_PANEL];
            product(args, (const uint8_t *)args->act + m * args->act_row_bytes, panel, dot, sum);
            put_row(args, sum, m, n0, n_cols);
        }
    }
}

static void gemm_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_F32_F32, dot_f32, p_begin, p_end);
}

static void gemm_f16_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_F16_F32, dot_f16_f32, p_begin, p_end);
}

static void gemm_bf16_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_BF16_F32, dot_bf16_f32, p_begin, p_end);
}

static void gemm_bf16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_BF16, dot_bf16, p_begin, p_end);
}

static void gemm_q8_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_Q8_0_F32, dot_q8_f32, p_begin, p_end);
}

static void gemm_i8_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_I8_F32, dot_i8_f32, p_begin, p_end);
}

static void gemm_i8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_I8, dot_i8, p_begin, p_end);
}

static void gemm_q8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_Q8_0, dot_q8, p_begin, p_end);
}

static void gemm_f8_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_F8_E4M3_F32, dot_f8_f32, p_begin, p_end);
}

static void gemm_nf4_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_NF4_F32, dot_nf4_f32, p_begin, p_end);
}

static void gemm_q4_g_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_Q4_G_F32, dot_q4_g_f32, p_begin, p_end);
}

static void gemm_q8_g_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_Q8_G_F32, dot_q8_g_f32, p_begin, p_end);
}

static void gemm_q8_bf16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm(args, WEFT_GEMM_Q8_0_BF16, dot_q8_bf16, p_begin, p_end);
}

/* Three pairs of functions for each type. */
#define DEFINE_QUANT(name, ID, ...)                                                                \
    static void dot_##name##_f32(const struct weft_gemm_args *args, const void *row,               \
                                 const void *panel, uint32_t k_begin, uint32_t k_end,              \
                                 float sum[WEFT_PANEL]) {                                          \
        (void)args;                                                                                \
        dot_quant_f32(WEFT_DT_##ID, row, panel, k_begin, k_end, sum);                              \
    }                                                                                              \
    static void dot_##name(const struct weft_gemm_args *args, const void *row, const void *panel,  \
                           uint32_t k_begin, uint32_t k_end, float sum[WEFT_PANEL]) {              \
        dot_quant(WEFT_DT_##ID, q8_row_at(row, args->k), panel, k_begin, k_end, sum);              \
    }                                                                                              \
    static void dot_##name##_bf16(const struct weft_gemm_args *args, const void *row,              \
                                  const void *panel, uint32_t k_begin, uint32_t k_end,             \
                                  float sum[WEFT_PANEL]) {                                         \
        (void)args;                                                                                \
        dot_quant_bf16(WEFT_DT_##ID, row, panel, k_begin, k_end, sum);                             \
    }                                                                                              \
    static void gemm_##name##_f32(const struct weft_gemm_args *args, uint32_t p_begin,             \
                                  uint32_t p_end) {                                                \
        gemm(args, WEFT_GEMM_##ID##_F32, dot_##name##_f32, p_begin, p_end);                        \
    }                                                                                              \
    static void gemm_##name##_bf16(const struct weft_gemm_args *args, uint32_t p_begin,            \
                                   uint32_t p_end) {                                               \
        gemm(args, WEFT_GEMM_##ID##_BF16, dot_##name##_bf16, p_begin, p_end);                      \
    }                                                                                              \
    static void gemm_##name(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) { \
        gemm(args, WEFT_GEMM_##ID, dot_##name, p_begin, p_end);                                    \
    }

QUANT_EACH(DEFINE_QUANT)

void wefti_kern_fill_gemm_scalar(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_F32_F32] = gemm_f32;
    table->gemm[WEFT_GEMM_F16_F32] = gemm_f16_f32;
    table->gemm[WEFT_GEMM_BF16_F32] = gemm_bf16_f32;
    table->gemm[WEFT_GEMM_BF16] = gemm_bf16;
    table->gemm[WEFT_GEMM_Q8_0_F32] = gemm_q8_f32;
    table->gemm[WEFT_GEMM_Q8_0] = gemm_q8;
    table->gemm[WEFT_GEMM_Q8_0_BF16] = gemm_q8_bf16;
    table->gemm[WEFT_GEMM_I8_F32] = gemm_i8_f32;
    table->gemm[WEFT_GEMM_I8] = gemm_i8;
    table->gemm[WEFT_GEMM_F8_E4M3_F32] = gemm_f8_f32;
    table->gemm[WEFT_GEMM_NF4_F32] = gemm_nf4_f32;
    table->gemm[WEFT_GEMM_Q4_G_F32] = gemm_q4_g_f32;
    table->gemm[WEFT_GEMM_Q8_G_F32] = gemm_q8_g_f32;
#define FILL_QUANT(name, ID, ...)                                                                  \
    table->gemm[WEFT_GEMM_##ID##_BF16] = gemm_##name##_bf16;                                       \
    table->gemm[WEFT_GEMM_##ID##_F32] = gemm_##name##_f32;                                         \
    table->gemm[WEFT_GEMM_##ID] = gemm_##name;
    QUANT_EACH(FILL_QUANT)
}
