/* Products to test: any weights and activations of a kind, both forms of the latter, and what they
 * give. */
#ifndef WEFT_TEST_GEMM_CASE_H
#define WEFT_TEST_GEMM_CASE_H

#include "kernels_test.h"

struct gemm_case {
    enum weft_gemm_kind kind;
    uint32_t m, n, k;
    size_t ldc;
    struct weft_gemm_args args;
    struct weft_kern_segs segs;
    float *weights, *act_src; /* what was packed and converted */
    uint8_t *groups;          /* packed instead, of the types of fewer bits */
    size_t group_row_bytes;
    void *packed, *act;
    float *residual, *bias;
};

static uint64_t seed;

static inline bool is_q8(enum weft_gemm_kind kind) {
    return weights_of(kind) == WEFT_DT_Q8_0;
}

static inline bool is_i8(enum weft_gemm_kind kind) {
    return kind == WEFT_GEMM_I8 || kind == WEFT_GEMM_I8_F32;
}

static inline bool has_codes(enum weft_gemm_kind kind) { /* of activations, too */
    return takes_q8(kind) || kind == WEFT_GEMM_I8;
}

static inline bool is_bf16(enum weft_gemm_kind kind) {
    return kind == WEFT_GEMM_BF16 || kind == WEFT_GEMM_BF16_F32;
}

static inline uint32_t unit_of(enum weft_gemm_kind kind) {
    return is_i8(kind)                      ? I8_GROUP
           : is_fp8_nf4(weights_of(kind))   ? fp8_nf4_of(weights_of(kind))->group
           : is_act_order(weights_of(kind)) ? ORDER_GROUP
           : is_quant(weights_of(kind))     ? quant_layout_of(weights_of(kind))->group
           : is_q8(kind)                    ? 32
           : is_bf16(kind)                  ? 2
                                            : 1;
}

/* A slice of a packed weight keeps the scales of the whole. */
static inline void slice_i8(const struct gemm_case *c, uint32_t k0, uint32_t k, uint8_t *packed) {
    size_t whole = weft_kern_panel_bytes(c->kind, c->k), part = weft_kern_panel_bytes(c->kind, k);
    for (uint32_t p = 0; p < (c->n + WEFT_PANEL - 1) / WEFT_PANEL; p++) {
        const uint8_t *from = (const uint8_t *)c->packed + p * whole;
        memcpy(packed + p * part, from + (size_t)k0 * WEFT_PANEL, part - 64);
        memcpy(packed + (p + 1) * part - 64, from + whole - 64, 64);
    }
}

/* The same of one of FP8 or NF4. k0 begins a group. */
static inline void pack_fp8_nf4(const struct gemm_case *c, uint32_t k0, uint32_t k, void *packed) {
    const struct fp8_nf4 *layout = fp8_nf4_of(weights_of(c->kind));
    size_t skip = k0 / layout->group * fp8_nf4_group_bytes(layout, 1),
           bytes = fp8_nf4_bytes(layout, k, 1);
    uint8_t *rows = take(c->n * bytes);
    for (uint32_t n = 0; n < c->n; n++) {
        memcpy(rows + n * bytes, c->groups + n * c->group_row_bytes + skip, bytes);
    }
    weft_kern_pack(c->kind, &(struct weft_kern_source){weights_of(c->kind), rows, c->n, k}, 0, c->n,
                   NULL, packed);
    free(rows);
}

/* Columns k0..k0+k of all features. */
static inline void pack_columns(const struct gemm_case *c, uint32_t k0, uint32_t k, void *packed) {
    if (is_i8(c->kind) && k < c->k) {
        slice_i8(c, k0, k, packed);
        return;
    }
    if (is_fp8_nf4(weights_of(c->kind))) {
        pack_fp8_nf4(c, k0, k, packed);
        return;
    }
    if (is_act_order(weights_of(c->kind))) {
        assert_true(k0 == 0 && k == c->k);
        weft_kern_pack(c->kind, &(struct weft_kern_source){weights_of(c->kind), c->groups, c->n, k},
                       0, c->n, NULL, packed);
        return;
    }
    if (!c->groups) {
        float *weights = take((size_t)c->n * k * sizeof(float));
        for (uint32_t n = 0; n < c->n; n++) {
            memcpy(weights + (size_t)n * k, c->weights + (size_t)n * c->k + k0, k * sizeof(float));
        }
        weft_kern_pack(c->kind, &(struct weft_kern_source){WEFT_DT_F32, weights, c->n, k}, 0, c->n,
                       NULL, packed);
        free(weights);
        return;
    }
    const struct quant_layout *q = quant_layout_of(weights_of(c->kind));
    size_t block_bytes = weft_dtype_block_bytes(weights_of(c->kind));
    size_t skip = k0 / q->group * block_bytes, bytes = k / q->group * block_bytes;
    uint8_t *groups = take(c->n * bytes);
    for (uint32_t n = 0; n < c->n; n++) {
        memcpy(groups + n * bytes, c->groups + n * c->group_row_bytes + skip, bytes);
    }
    enum weft_dtype type = weights_of(c->kind);
    weft_kern_pack(c->kind, &(struct weft_kern_source){type, groups, c->n, k}, 0, c->n, NULL,
                   packed);
    free(groups);
}

/* Builds a case; `table` converts the activations. */
static inline void make_case(struct gemm_case *c, const struct weft_kern_table *table,
                             enum weft_gemm_kind kind, uint32_t m, uint32_t n, uint32_t k,
                             enum flavour flavour) {
    memset(c, 0, sizeof *c);
    uint32_t unit = unit_of(kind);
    if (unit > 2 && !is_i8(kind) && kind != WEFT_GEMM_F8_E4M3_F32) k = (k + unit - 1) / unit * unit;
    c->kind = kind;
    c->m = m;
    c->n = n;
    c->k = k;
    c->ldc = n + weft_rand_below(&seed, 9);
    c->weights = take((size_t)n * k * sizeof(float));
    c->act_src = take((size_t)m * k * sizeof(float));
    /* A product of two tiny numbers would be lost in any format; let them meet ordinary ones. */
    fill(&seed, flavour, c->weights, (size_t)n * k);
    fill(&seed, flavour == TINY ? PLAIN : flavour, c->act_src, (size_t)m * k);
    if (flavour == HUGE_ONES && kind != WEFT_GEMM_F32_F32 && !is_bf16(kind) && !is_i8(kind)) {
        for (size_t i = 0; i < (size_t)n * k; i++) {
            c->weights[i] *= 1e-14f; /* f16 and f16 scales end at 65504 */
        }
    }
    c->packed = take(weft_kern_packed_bytes(kind, n, k));
    if (is_quant(weights_of(kind))) {
        const struct quant_layout *q = quant_layout_of(weights_of(kind));
        c->group_row_bytes = k / q->group * (size_t)weft_dtype_block_bytes(weights_of(kind));
        c->groups = take(n * c->group_row_bytes);
        fill_groups(&seed, weights_of(kind), c->groups, (size_t)n * k / q->group);
    }
    if (is_fp8_nf4(weights_of(kind))) {
        c->group_row_bytes = fp8_nf4_bytes(fp8_nf4_of(weights_of(kind)), k, 1);
        c->groups = take(n * c->group_row_bytes);
        fill_fp8_nf4(&seed, fp8_nf4_of(weights_of(kind)), c->groups, n, k);
    }
    if (is_act_order(weights_of(kind))) {
        c->group_row_bytes = order_row_bytes(act_order_of(weights_of(kind)), k);
        c->groups = take(n * c->group_row_bytes);
        fill_act_order(&seed, act_order_of(weights_of(kind)), c->groups, n, k);
    }
    pack_columns(c, 0, k, c->packed);
    size_t row_bytes = weft_kern_act_row_bytes(kind, k) + 64 * weft_rand_below(&seed, 3);
    c->act = take(m * row_bytes);
    table->act_convert(kind, c->act_src, k, m, k, c->act, row_bytes);
    c->residual = take(m * c->ldc * sizeof(float));
    fill(&seed, PLAIN, c->residual, m * c->ldc);
    c->bias = take(n * sizeof(float));
    fill(&seed, PLAIN, c->bias, n);
    if (weft_rand_below(&seed, 2) || k % unit != 0) {
        weft_kern_segs_one(&c->segs, k);
    } else {
        uint32_t bigger = k % (unit * 4) == 0 && weft_rand_below(&seed, 2) ? unit * 4 : unit;
        weft_kern_segs_split(&c->segs, k / bigger, bigger);
    }
    c->args = (struct weft_gemm_args){.act = c->act,
                                      .act_row_bytes = row_bytes,
                                      .act_group = 1,
                                      .packed = c->packed,
                                      .ldc = c->ldc,
                                      .bias = weft_rand_below(&seed, 2) ? c->bias : NULL,
                                      .residual = weft_rand_below(&seed, 2) ? c->residual : NULL,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .segs = &c->segs};
}

static inline void drop_case(struct gemm_case *c) {
    free(c->weights);
    free(c->act_src);
    free(c->groups);
    free(c->packed);
    free(c->act);
    free(c->residual);
    free(c->bias);
}

static inline uint32_t n_panels(const struct gemm_case *c) {
    return (c->n + WEFT_PANEL - 1) / WEFT_PANEL;
}

static inline size_t group_count(const struct weft_kern_table *table, uint32_t m) {
    return (m + table->group_rows - 1) / table->group_rows;
}

/* The activations of `args` interleaved, in lanes that are NaN where there is no row. */
static inline void *interleaved(const struct weft_kern_table *table, enum weft_gemm_kind kind,
                                const struct weft_gemm_args *args) {
    size_t group_bytes = table->group_rows * args->act_row_bytes;
    uint8_t *groups = take(group_count(table, args->m) * group_bytes);
    memset(groups, 0xff, group_count(table, args->m) * group_bytes);
    for (uint32_t m = 0; m < args->m; m++) {
        weft_kern_act_interleave(table, kind, (const uint8_t *)args->act + m * args->act_row_bytes,
                                 args->act_row_bytes, m % table->group_rows,
                                 groups + m / table->group_rows * group_bytes);
    }
    return groups;
}

/* The kernel, by chance with activations in one form or the other: both must give the same bits. */
static inline void run_kernel(const struct weft_kern_table *table, enum weft_gemm_kind kind,
                              const struct weft_gemm_args *args, uint32_t p0, uint32_t p1) {
    struct weft_gemm_args other = *args;
    void *groups = NULL;
    if (weft_rand_below(&seed, 2)) {
        other.act = groups = interleaved(table, kind, args);
        other.act_group = table->group_rows;
    }
    table->gemm[kind](&other, p0, p1);
    free(groups);
}

/* The whole product into fresh memory. */
static inline float *product(const struct weft_kern_table *table, const struct gemm_case *c) {
    struct weft_gemm_args args = c->args;
    args.c = take(c->m * c->ldc * sizeof(float));
    run_kernel(table, c->kind, &args, 0, n_panels(c));
    return args.c;
}

#endif
