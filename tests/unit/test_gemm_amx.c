/* Products as AMX computes them, by a model of its instructions, against those of AVX-512: the same
 * bits. And that what differs would be found before it is used. */
#include <stdio.h>

#include "gemm_case.h"

#include "gemm_amx_model.h"
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

static void check_same(const struct gemm_case *c, uint32_t p0, uint32_t p1) {
    void *groups = interleaved(&vnni, &c->args);
    float *want = sums_of(&vnni, c, groups, p0, p1), *got = sums_of(&amx, c, groups, p0, p1);
    for (size_t i = 0; i < c->m * c->ldc; i++) {
        if (same_bits(got[i], want[i])) continue;
        fail_msg("kind %d, %u x %u x %u, %u segments, panels %u..%u: row %zu, column %zu is %.9g, "
                 "not %.9g",
                 c->kind, c->m, c->n, c->k, c->segs.n_segs, p0, p1, i / c->ldc, i % c->ldc,
                 (double)got[i], (double)want[i]);
    }
    free(groups);
    free(want);
    free(got);
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

/* More rows than a block has, more panels than go through K together, and K longer than a span. */
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

static enum weft_gemm_kind broken;

/* Off by the last bit of one sum, where rows are many. */
static void broken_product(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    vnni.gemm[broken](args, p_begin, p_end);
    float *sum = args->c + args->ldc * 3 + 5;
    if (args->act_group > 1) *sum = nextafterf(*sum, INFINITY);
}

static void one_wrong_bit_of_any_kind_is_found_before_use(void **state) {
    (void)state;
    assert_true(wefti_kern_agree(&amx, &vnni));
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        struct weft_kern_table table = amx;
        broken = (enum weft_gemm_kind)kind;
        table.gemm[kind] = broken_product;
        assert_int_equal(wefti_kern_agree(&table, &vnni), !has_codes(broken));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_rows_has_the_bits_of_avx512),
        cmocka_unit_test(large_products_have_the_bits_of_avx512),
        cmocka_unit_test(extreme_codes_have_the_bits_of_avx512),
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
