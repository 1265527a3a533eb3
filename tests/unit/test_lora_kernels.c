/* Low-rank products: the bits of the plain products of the same weights, whatever lanes and rows go
 * beside them. */
#include "kernels_test.h"

enum { LANES_MAX = 21, PANELS_MAX = 4, ROWS_MAX = 5, GUARD = 3 };

static uint64_t seed = 7;

/* Weights of n output features and k columns, packed for f32 activations. */
struct weights {
    enum weft_dtype type;
    enum weft_gemm_kind kind;
    uint32_t n, k;
    uint8_t *packed;
};

static struct weights some_weights(enum weft_dtype type, uint32_t n, uint32_t k) {
    struct weights w = {type, weft_kern_exact_kind(type), n, k, NULL};
    float *rows = take(sizeof *rows * n * k);
    fill(&seed, PLAIN, rows, (size_t)n * k);
    w.packed = take(weft_kern_packed_bytes(w.kind, n, k));
    const struct weft_kern_source source = {WEFT_DT_F32, rows, n, k};
    weft_kern_pack(w.kind, &source, 0, n, NULL, w.packed);
    free(rows);
    return w;
}

/* One row times the weights by the plain product, added to `y` if there is one. */
static void multiply_plainly(const struct weft_kern_table *table, const struct weights *w,
                             const float *x, const float *y, float *out) {
    size_t row_bytes = weft_kern_act_row_bytes(w->kind, w->k);
    void *row = take(row_bytes);
    memcpy(row, x, w->k * sizeof *x);
    struct weft_kern_segs segs;
    weft_kern_segs_one(&segs, w->k);
    const struct weft_gemm_args args = {.act = row,
                                        .act_row_bytes = row_bytes,
                                        .act_group = 1,
                                        .packed = w->packed,
                                        .c = out,
                                        .ldc = w->n,
                                        .residual = y,
                                        .m = 1,
                                        .n = w->n,
                                        .k = w->k,
                                        .segs = &segs};
    table->gemm[w->kind](&args, 0, weft_div_up_u32(w->n, WEFT_PANEL));
    free(row);
}

static void shrink_some(const struct weft_kern_table *table, enum weft_dtype type, uint32_t k) {
    struct weights w[PANELS_MAX];
    float *x[ROWS_MAX], out[LANES_MAX][WEFT_PANEL], expected[WEFT_PANEL];
    struct weft_kern_lora_lane lanes[LANES_MAX];
    uint32_t n = between(&seed, 1, LANES_MAX), of[LANES_MAX];
    uint32_t n_weights = between(&seed, 1, PANELS_MAX);
    for (uint32_t i = 0; i < PANELS_MAX; i++)
        w[i] = some_weights(type, WEFT_PANEL, k);
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        x[i] = take(sizeof *x[i] * k);
        fill(&seed, PLAIN, x[i], k);
    }
    for (uint32_t i = 0; i < n; i++) {
        of[i] = i * n_weights / n;
        lanes[i] = (struct weft_kern_lora_lane){w[of[i]].packed, x[between(&seed, 0, ROWS_MAX - 1)],
                                                out[i], some_float(&seed, PLAIN)};
    }
    table->lora_shrink(type, lanes, n, k);
    for (uint32_t i = 0; i < n; i++) {
        multiply_plainly(table, &w[of[i]], lanes[i].x, NULL, expected);
        for (uint32_t c = 0; c < WEFT_PANEL; c++)
            assert_true(same_bits(out[i][c], expected[c] * lanes[i].scale));
    }
    for (uint32_t i = 0; i < PANELS_MAX; i++)
        free(w[i].packed);
    for (uint32_t i = 0; i < ROWS_MAX; i++)
        free(x[i]);
}

static void expand_some(const struct weft_kern_table *table, enum weft_dtype type, uint32_t rank) {
    uint32_t n = between(&seed, 1, 11 * WEFT_PANEL), n_rows = between(&seed, 1, ROWS_MAX);
    struct weights w = some_weights(type, n, rank);
    float *t[ROWS_MAX], *y[ROWS_MAX], *expected[ROWS_MAX];
    for (uint32_t r = 0; r < n_rows; r++) {
        t[r] = take(sizeof *t[r] * rank);
        y[r] = take(sizeof *y[r] * (n + GUARD));
        expected[r] = take(sizeof *expected[r] * n);
        fill(&seed, PLAIN, t[r], rank);
        fill(&seed, PLAIN, y[r], n + GUARD);
        multiply_plainly(table, &w, t[r], y[r], expected[r]);
    }
    float after = y[0][n];
    const struct weft_kern_lora_expand args = {
        w.packed, (const float *const *)t, y, rank, n, n_rows, w.packed};
    table->lora_expand(type, &args);
    assert_true(same_bits(y[0][n], after));
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t c = 0; c < n; c++)
            assert_true(same_bits(y[r][c], expected[r][c]));
        free(t[r]);
        free(y[r]);
        free(expected[r]);
    }
    free(w.packed);
}

static void on_all_tables(void (*some)(const struct weft_kern_table *, enum weft_dtype, uint32_t),
                          uint32_t k_max) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    for (uint32_t t = 0; t < n_tables; t++) {
        for (uint32_t i = 0; i < 150; i++)
            some(&tables[t], i % 2 ? WEFT_DT_F32 : WEFT_DT_BF16, between(&seed, 1, k_max));
    }
}

static void lanes_are_plain_products(void **state) {
    (void)state;
    on_all_tables(shrink_some, 300);
}

static void expanded_rows_are_plain_products(void **state) {
    (void)state;
    on_all_tables(expand_some, 70);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_are_plain_products),
        cmocka_unit_test(expanded_rows_are_plain_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
