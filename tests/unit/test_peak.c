/* The loops that measure the machine's peaks: every table has all of them. Nothing is timed.
 */
#include "kernels_test.h"

static void peaks_count_operations_in_proportion_to_their_steps(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t t = 0; t < n_tables; t++) {
        for (uint32_t p = 0; p < WEFT_PEAK_COUNT; p++) {
            double one = tables[t].peak[p](1);
            assert_true(one >= 12 * 2); /* twelve chains of one multiply-add at least */
            assert_true(tables[t].peak[p](0) == 0);
            assert_true(tables[t].peak[p](7) == 7 * one);
            assert_true(tables[t].peak[p](10000) == 10000 * one);
        }
    }
}

static void wider_forms_do_no_less_per_step(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t t = 0; t < n_tables; t++) {
        assert_true(tables[t].peak[WEFT_PEAK_BF16](1) >= tables[t].peak[WEFT_PEAK_F32](1));
        if (tables[t].isa == WEFT_ISA_AMX)
            continue; /* its tiles are of bf16; int8 has VNNI's peak */
        assert_true(tables[t].peak[WEFT_PEAK_INT8](1) >= tables[t].peak[WEFT_PEAK_BF16](1));
    }
}

static void a_kind_is_held_against_the_peak_of_its_activations(void **state) {
    (void)state;
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        enum weft_kern_act act = weft_kern_act_of((enum weft_gemm_kind)kind);
        enum weft_kern_peak peak = weft_kern_peak_of(act);
        assert_true((peak == WEFT_PEAK_BF16) ==
                    (kind == WEFT_GEMM_BF16 || kind_facts[kind].rounds));
        bool is_int8 = kind == WEFT_GEMM_I8 || takes_q8((enum weft_gemm_kind)kind);
        assert_true((peak == WEFT_PEAK_INT8) == is_int8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_count_operations_in_proportion_to_their_steps),
        cmocka_unit_test(wider_forms_do_no_less_per_step),
        cmocka_unit_test(a_kind_is_held_against_the_peak_of_its_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
