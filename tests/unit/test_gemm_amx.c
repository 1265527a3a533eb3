/* Products as AMX computes them, by a model of its instructions: integers have the bits of AVX-512, bf16
 * those of sums in the order of bf16_order.h; the latter on the CPU's own tiles, too, where it has some.
 * And that what differs would be found before it is used. */
#include <stdio.h>

#include "gemm_case.h"

#include "gemm_amx_model.h"
#include "inside/kernels/amx/bf16_order.h"
#include "inside/kernels/amx/try_amx.h"

static struct weft_kern_table vnni, amx;

/* Panels p0..p1 of the product of interleaved rows. */
static float *sums_of(const struct weft_kern_table *table, const struct gemm_case *c, void *groups,
                      uint32_t p0, uint32_t p1) {
    struct weft_gemm_args args = c->args;
    args.c = take(c->m * c->ldc * sizeof(float));
    args.act = groups;
    args.act_group = table->group_rows;
    table->gemm[c->kind](&args, p0, p1);
    return args.c;
}

static void check_same_as(const struct weft_kern_table *table, const struct gemm_case *c,
                          uint32_t p0, uint32_t p1) {
    void *groups = interleaved(&vnni, c->kind, &c->args);
    void *amx_groups = interleaved(table, c->kind, &c->args);
    float *want = sums_of(&vnni, c, groups, p0, p1), *got = sums_of(table, c, amx_groups, p0, p1);
    for (size_t i = 0; i < c->m * c->ldc; i++) {
        if (same_bits(got[i], want[i])) continue;
        fail_msg("kind %d, %u x %u x %u, %u segments, panels %u..%u: row %zu, column %zu is %.9g, "
                 "not %.9g",
                 c->kind, c->m, c->n, c->k, c->segs.n_segs, p0, p1, i / c->ldc, i % c->ldc,
                 (double)got[i], (double)want[i]);
    }
    free(groups);
    free(amx_groups);
    free(want);
    free(got);
}

static void check_same(const struct gemm_case *c, uint32_t p0, uint32_t p1) {
    check_same_as(&amx, c, p0, p1);
}

static void check_product_of(enum weft_gemm_kind kind, uint32_t m, uint32_t n, uint32_t k,
                             enum flavour flavour) {
    struct gemm_case c;
    make_case(&c, &vnni, kind, m, n, k, flavour);
    check_same(&c, 0, n_panels(&c));
    uint32_t p0 = weft_rand_below(&seed, n_panels(&c));
    check_same(&c, p0, between(&seed, p0, n_panels(&c)));
    drop_case(&c);
}

static void any_number_of_rows_has_the_bits_of_avx512(void **state) {
    (void)state;
    for (uint32_t m = 1; m <= 40; m++) {
        for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
            if (!has_codes((enum weft_gemm_kind)kind) || is_alike((enum weft_gemm_kind)kind))
                continue;
            check_product_of((enum weft_gemm_kind)kind, m, between(&seed, 1, 70),
                             between(&seed, 1, 600), (enum flavour)(m % FLAVOURS));
        }
    }
}

/* Many rows and panels, and K longer than a span. */
static void large_products_have_the_bits_of_avx512(void **state) {
    static const uint32_t sizes[3][3] = {{100, 70, 2400}, {50, 290, 300}, {15, 40, 4500}};
    (void)state;
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        for (uint32_t i = 0; i < 3; i++) {
            if (!has_codes((enum weft_gemm_kind)kind) || is_alike((enum weft_gemm_kind)kind))
                continue;
            check_product_of((enum weft_gemm_kind)kind, sizes[i][0], sizes[i][1], sizes[i][2],
                             PLAIN);
        }
    }
}

/* Codes at the ends of their ranges. */
static void extreme_codes_have_the_bits_of_avx512(void **state) {
    static const enum weft_gemm_kind kinds[] = {WEFT_GEMM_Q8_0, WEFT_GEMM_I8};
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct gemm_case c;
        make_case(&c, &vnni, kinds[i % 2], 14, 20, 320, PLAIN);
        for (size_t j = 0; j < (size_t)c.n * c.k; j++) {
            c.weights[j] = i & 2 ? -1.0f : 1.0f;
        }
        for (size_t j = 0; j < (size_t)c.m * c.k; j++) {
            c.act_src[j] = i & 4 ? -1.0f : 1.0f;
        }
        pack_columns(&c, 0, c.k, c.packed);
        vnni.act_convert(c.kind, c.act_src, c.k, c.m, c.k, c.act, c.args.act_row_bytes);
        check_same(&c, 0, n_panels(&c));
        drop_case(&c);
    }
}

/* Tiles of 16 pairs, from each segment's begin on. */
static float bf16_sum(const struct gemm_case *c, uint32_t m, uint32_t n) {
    const uint16_t *a = (const void *)((const uint8_t *)c->act + m * c->args.act_row_bytes);
    const uint16_t *b = c->packed; /* [panel][pair][feature][2] */
    b += ((size_t)(n / WEFT_PANEL) * ((c->k + 1) / 2) * WEFT_PANEL + n % WEFT_PANEL) * 2;
    struct seg_tree tree = {{false}};
    float slots[3], sum = 0;
    for (uint32_t s = 0, begin = 0; s < c->segs.n_segs; begin = c->segs.seg_end[s++]) {
        const uint32_t end = (c->segs.seg_end[s] + 1) / 2;
        sum = 0;
        for (size_t pair = begin / 2; pair < end; pair += 16) {
            sum = bf16_add_pairs(sum, a + pair * 2, b + pair * 2 * WEFT_PANEL, 2 * WEFT_PANEL,
                                 weft_min_u32(16, end - (uint32_t)pair));
        }
        (void)seg_tree_add(&tree, slots, s, begin < c->segs.seg_end[s], &sum, 1);
    }
    return sum;
}

static void check_order(const struct weft_kern_table *table, const struct gemm_case *c) {
    void *groups = interleaved(table, c->kind, &c->args);
    struct weft_gemm_args args = c->args;
    args.bias = args.residual = NULL;
    args.c = take(c->m * c->ldc * sizeof(float));
    for (uint32_t form = 0; form < 2; form++) {
        args.act = form ? groups : c->act;
        args.act_group = form ? table->group_rows : 1;
        table->gemm[c->kind](&args, 0, n_panels(c));
        for (uint32_t m = 0; m < c->m; m++) {
            for (uint32_t n = 0; n < c->n; n++) {
                float got = args.c[m * c->ldc + n], want = bf16_sum(c, m, n);
                if (same_bits(got, want)) continue;
                fail_msg("%s, %u x %u x %u, %u segments, groups of %u: row %u, column %u is %.9g, "
                         "not %.9g",
                         table->name, c->m, c->n, c->k, c->segs.n_segs, args.act_group, m, n,
                         (double)got, (double)want);
            }
        }
    }
    free(groups);
    free(args.c);
}

static void sums_of_bf16_have_the_order_of_the_manual(void **state) {
    const struct weft_kern_table *own = weft_kern_table_for(WEFT_ISA_AMX);
    (void)state;
    if (!own) puts("this CPU has no AMX: by the model only");
    for (uint32_t i = 0; i < 60; i++) {
        struct gemm_case c;
        const uint32_t m = i < 40 ? i + 1 : between(&seed, 1, 120);
        const uint32_t k = i % 2 ? between(&seed, 1, 600) : 32 * between(&seed, 1, 40);
        make_case(&c, &vnni, WEFT_GEMM_BF16, m, between(&seed, 1, 90), k,
                  (enum flavour)(i % FLAVOURS));
        check_order(&amx, &c);
        if (own && strcmp(own->bits, vnni.bits) != 0) check_order(own, &c);
        drop_case(&c);
    }
}

/* More rows than a block has, several spans in a segment, and more panels than go through K together. */
static void large_sums_of_bf16_have_the_order_of_the_manual(void **state) {
    const struct weft_kern_table *own = weft_kern_table_for(WEFT_ISA_AMX);
    (void)state;
    if (!own || !own->act_in_rows[WEFT_ACT_BF16]) {
        puts("skipped: this CPU has no tiles of bf16");
        skip();
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct gemm_case c;
        make_case(&c, &vnni, WEFT_GEMM_BF16, i ? 130 : 600, i ? 700 : 170, i ? 640 : 1100, PLAIN);
        if (i)
            weft_kern_segs_split(&c.segs, c.k / 64, 64);
        else
            weft_kern_segs_one(&c.segs, c.k);
        check_order(own, &c);
        drop_case(&c);
    }
}

/* The same of int8, where another table has the bits. */
static void large_sums_of_int8_have_the_bits_of_avx512(void **state) {
    const struct weft_kern_table *own = weft_kern_table_for(WEFT_ISA_AMX);
    (void)state;
    if (!own || !own->act_in_rows[WEFT_ACT_I8]) {
        puts("skipped: this CPU has no tiles of int8");
        skip();
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct gemm_case c;
        make_case(&c, &vnni, WEFT_GEMM_I8, 600, i ? 300 : 170, i ? 2304 : 1100, PLAIN);
        if (i)
            weft_kern_segs_split(&c.segs, c.k / 256, 256);
        else
            weft_kern_segs_one(&c.segs, c.k);
        check_same_as(own, &c, 0, n_panels(&c));
        drop_case(&c);
    }
}

/* The kind's weights as numbers, packed as bf16. */
static void *packed_as_bf16(const struct gemm_case *c) {
    float *weights = take((size_t)c->n * c->k * sizeof *weights);
    void *row = take((size_t)c->k * sizeof(float));
    void *packed = take(weft_kern_packed_bytes(WEFT_GEMM_BF16, c->n, c->k));
    for (uint32_t n = 0; n < c->n; n++) {
        enum weft_dtype type = weft_kern_unpack_row(c->kind, c->packed, c->k, n, row);
        weft_kern_read_row(type, row, c->k, weights + (size_t)n * c->k);
    }
    weft_kern_pack(WEFT_GEMM_BF16, &(struct weft_kern_source){WEFT_DT_F32, weights, c->n, c->k}, 0,
                   c->n, NULL, packed);
    free(weights);
    free(row);
    return packed;
}

static void check_rounded(const struct weft_kern_table *table, enum weft_gemm_kind kind, uint32_t m,
                          uint32_t n, uint32_t k, enum flavour flavour) {
    struct gemm_case c;
    make_case(&c, &vnni, kind, m, n, k, flavour);
    struct weft_gemm_args args = c.args, plain = c.args;
    float *got = args.c = take(m * c.ldc * sizeof *got);
    float *want = plain.c = take(m * c.ldc * sizeof *want);
    void *packed = packed_as_bf16(&c);
    plain.packed = packed;
    run_kernel(table, kind, &args, 0, n_panels(&c));
    run_kernel(table, WEFT_GEMM_BF16, &plain, 0, n_panels(&c));
    for (uint32_t i = 0; i < m; i++) {
        for (uint32_t j = 0; j < n; j++) {
            if (same_bits(got[i * c.ldc + j], want[i * c.ldc + j])) continue;
            fail_msg("%s, kind %d, %u x %u x %u, %u segments: row %u, column %u is %.9g, not %.9g",
                     table->name, kind, m, n, c.k, c.segs.n_segs, i, j, (double)got[i * c.ldc + j],
                     (double)want[i * c.ldc + j]);
        }
    }
    free(got);
    free(want);
    free(packed);
    drop_case(&c);
}

static void rounded_blocks_have_the_bits_of_bf16(void **state) {
    static const uint32_t rows[] = {1, 5, 16, 17, 33, 40};
    const struct weft_kern_table *own = weft_kern_table_for(WEFT_ISA_AMX);
    struct weft_kern_table rounded = vnni;
    struct wefti_kern_features features = wefti_kern_features_detect();
    (void)state;
    if (!features.bf16 || !features.vbmi) {
        puts("skipped: this CPU lacks AVX-512 with BF16 or VBMI");
        skip();
    }
    fill_gemm_rounded_model(&rounded);
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        if (!kind_facts[kind].rounds || is_alike((enum weft_gemm_kind)kind)) continue;
        for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            const uint32_t n = between(&seed, 1, 80), k = between(&seed, 1, 1300);
            check_rounded(&rounded, (enum weft_gemm_kind)kind, rows[i], n, k,
                          (enum flavour)(i % FLAVOURS));
            if (own && own->bf16_of_blocks)
                check_rounded(own, (enum weft_gemm_kind)kind, rows[i] + 560, n, k, PLAIN);
        }
    }
}

static void without_bf16_there_are_the_bits_of_avx512(void **state) {
    struct wefti_kern_features features = wefti_kern_features_detect();
    struct weft_kern_table table;
    (void)state;
    features.amx = true;
    features.amx_bf16 = false;
    wefti_kern_table_build(&table, WEFT_ISA_AMX, features);
    assert_string_equal(table.bits, vnni.bits);
    assert_ptr_equal(table.gemm[WEFT_GEMM_BF16], vnni.gemm[WEFT_GEMM_BF16]);
    features.amx_bf16 = true;
    wefti_kern_table_build(&table, WEFT_ISA_AMX, features);
    assert_string_not_equal(table.bits, vnni.bits);
}

static enum weft_gemm_kind broken;

/* Off by the last bit of one sum, where rows are many. */
static void broken_product(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    amx.gemm[broken](args, p_begin, p_end);
    float *sum = args->c + args->ldc * 3 + 5;
    if (args->act_group > 1) *sum = nextafterf(*sum, INFINITY);
}

static void one_wrong_bit_of_any_kind_is_found_before_use(void **state) {
    (void)state;
    assert_true(wefti_kern_agree(&amx, &vnni));
    assert_true(wefti_kern_amx_bf16_holds(&amx));
    assert_false(wefti_kern_amx_bf16_holds(&vnni));
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        struct weft_kern_table table = amx;
        broken = (enum weft_gemm_kind)kind;
        table.gemm[kind] = broken_product;
        assert_int_equal(wefti_kern_agree(&table, &vnni), !has_codes(broken));
        bool holds = wefti_kern_amx_bf16_holds(&table);
        assert_int_equal(holds, broken != WEFT_GEMM_BF16);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_rows_has_the_bits_of_avx512),
        cmocka_unit_test(large_products_have_the_bits_of_avx512),
        cmocka_unit_test(extreme_codes_have_the_bits_of_avx512),
        cmocka_unit_test(sums_of_bf16_have_the_order_of_the_manual),
        cmocka_unit_test(large_sums_of_bf16_have_the_order_of_the_manual),
        cmocka_unit_test(large_sums_of_int8_have_the_bits_of_avx512),
        cmocka_unit_test(rounded_blocks_have_the_bits_of_bf16),
        cmocka_unit_test(without_bf16_there_are_the_bits_of_avx512),
        cmocka_unit_test(one_wrong_bit_of_any_kind_is_found_before_use),
    };
    struct wefti_kern_features features = wefti_kern_features_detect();
    if (!features.vnni) {
        puts("skipped: this CPU lacks AVX-512 with VNNI, whose bits are compared with");
        return 77;
    }
    wefti_kern_table_build(&vnni, WEFT_ISA_AVX512, features);
    amx = vnni;
    fill_gemm_amx_model(&amx);
    seed = weft_rand_test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
