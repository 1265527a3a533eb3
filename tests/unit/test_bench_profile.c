/* The arithmetic of the roofline table, on figures that were made up to come out even. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "inside/cmd_weft/bench/bench_profile.h"

static const struct weft_machine_rates machine = {
    .dram_bytes = 50e9,
    .ops = {[WEFT_PEAK_F32] = 200e9, [WEFT_PEAK_BF16] = 1000e9, [WEFT_PEAK_INT8] = 2000e9},
};

/* Four steps of 10 ms on two threads. */
static struct weft_eng_profile make_profile(void) {
    struct weft_eng_profile p = {
        .n_threads = 2, .n_steps = 4, .step_ns = 40000000, .gap_ns = 400000};
    p.ops[WEFT_ENG_OP_QKV] = (struct weft_eng_op_totals){.n_calls = 88,
                                                         .busy_ns = 40000000,
                                                         .bytes = 500000000,
                                                         .ops = 1000000000,
                                                         .activations = WEFT_ENG_ACT_INT8};
    p.ops[WEFT_ENG_OP_DOWN] = (struct weft_eng_op_totals){.n_calls = 88,
                                                          .busy_ns = 20000000,
                                                          .bytes = 100000000,
                                                          .ops = 9000000000,
                                                          .activations = WEFT_ENG_ACT_BF16};
    p.ops[WEFT_ENG_OP_SAMPLE] = (struct weft_eng_op_totals){
        .n_calls = 12, .busy_ns = 800000, .activations = WEFT_ENG_ACT_F32};
    p.ops[WEFT_ENG_OP_WAIT] = (struct weft_eng_op_totals){.busy_ns = 8000000};
    return p;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void rates_are_work_over_the_threads_share_of_time(void **state) {
    (void)state;
    struct weft_roofline_row rows[WEFT_ROOFLINE_ROWS];
    struct weft_eng_profile profile = make_profile();
    weft_roofline(&profile, &machine, rows);
    const struct weft_roofline_row *qkv = &rows[WEFT_ENG_OP_QKV], *down = &rows[WEFT_ENG_OP_DOWN];
    assert_string_equal(qkv->name, "qkv");
    assert_true(near(qkv->calls, 22) && near(qkv->ms, 5) && near(qkv->share, 0.5));
    assert_true(qkv->counted && !qkv->computes);
    assert_true(near(qkv->bytes_per_s, 25e9) && near(qkv->of_dram, 0.5));
    assert_true(near(qkv->ops_per_s, 50e9) && near(qkv->of_peak, 0.025)); /* of int8's */
    assert_true(down->counted && down->computes);
    assert_true(near(down->bytes_per_s, 10e9) && near(down->of_dram, 0.2));
    assert_true(near(down->ops_per_s, 900e9) && near(down->of_peak, 0.9)); /* of bf16's */
    assert_false(rows[WEFT_ENG_OP_SAMPLE].counted);
    assert_true(near(rows[WEFT_ENG_OP_SAMPLE].calls, 3));
    assert_true(near(rows[WEFT_ENG_OP_SAMPLE].ms, 0.1));
    assert_true(near(rows[WEFT_ENG_OP_WAIT].share, 0.1));
}

static void what_no_operator_took_is_outside_and_the_gap_comes_on_top(void **state) {
    (void)state;
    struct weft_roofline_row rows[WEFT_ROOFLINE_ROWS];
    struct weft_eng_profile profile = make_profile();
    weft_roofline(&profile, &machine, rows);
    double sum = 0;
    for (uint32_t i = 0; i <= WEFT_ENG_OP_COUNT; i++) {
        sum += rows[i].share;
    }
    assert_true(near(sum, 1));
    assert_string_equal(rows[WEFT_ENG_OP_COUNT].name, "outside");
    assert_true(near(rows[WEFT_ENG_OP_COUNT].share, 0.14));
    assert_string_equal(rows[WEFT_ENG_OP_COUNT + 1].name, "gap");
    assert_true(near(rows[WEFT_ENG_OP_COUNT + 1].share, 0.01));
    assert_true(near(rows[WEFT_ENG_OP_COUNT + 1].ms, 0.1));
}

static void repetitions_add_up(void **state) {
    (void)state;
    struct weft_roofline_row once[WEFT_ROOFLINE_ROWS], thrice[WEFT_ROOFLINE_ROWS];
    struct weft_eng_profile profile = make_profile(), sum = {0};
    for (int i = 0; i < 3; i++) {
        weft_profile_add(&sum, &profile);
    }
    assert_int_equal(sum.n_steps, 12);
    assert_int_equal(sum.ops[WEFT_ENG_OP_QKV].n_calls, 264);
    weft_roofline(&profile, &machine, once);
    weft_roofline(&sum, &machine, thrice);
    for (uint32_t i = 0; i < WEFT_ROOFLINE_ROWS; i++) {
        assert_true(near(thrice[i].ms, once[i].ms) && near(thrice[i].calls, once[i].calls));
        assert_true(near(thrice[i].of_peak, once[i].of_peak));
    }
}

static void nothing_measured_is_a_table_of_zeroes(void **state) {
    (void)state;
    struct weft_roofline_row rows[WEFT_ROOFLINE_ROWS];
    const struct weft_eng_profile nothing = {0};
    const struct weft_machine_rates unknown = {0};
    weft_roofline(&nothing, &unknown, rows);
    for (uint32_t i = 0; i < WEFT_ROOFLINE_ROWS; i++) {
        assert_non_null(rows[i].name);
        assert_true(rows[i].ms == 0 && rows[i].share == 0 && !rows[i].counted);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_work_over_the_threads_share_of_time),
        cmocka_unit_test(what_no_operator_took_is_outside_and_the_gap_comes_on_top),
        cmocka_unit_test(repetitions_add_up),
        cmocka_unit_test(nothing_measured_is_a_table_of_zeroes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
