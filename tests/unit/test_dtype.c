/* The list of types: numbers in files never change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/dtype.h"

/* The numbers in existing files: GGUF's by its specification, and ours. */
static const struct {
    const char *name;
    uint32_t file_number, layout_number, block_elems, block_bytes;
} written[] = {
    {"f32", 0, 0, 1, 4},          {"f16", 1, 1, 1, 2},          {"q4_0", 2, 4, 32, 18},
    {"q4_1", 3, 5, 32, 20},       {"q5_0", 6, 13, 32, 22},      {"q5_1", 7, 12, 32, 24},
    {"q8_0", 8, 3, 32, 34},       {"q2_k", 10, 10, 256, 84},    {"q3_k", 11, 11, 256, 110},
    {"q4_k", 12, 6, 256, 144},    {"q5_k", 13, 7, 256, 176},    {"q6_k", 14, 8, 256, 210},
    {"iq4_nl", 20, 14, 32, 18},   {"iq4_xs", 23, 19, 256, 136}, {"bf16", 30, 2, 1, 2},
    {"i8", 256, 9, 1, 1},         {"f8_e4m3", 257, 15, 1, 1},   {"q4_z", 258, 16, 32, 19},
    {"nf4", 259, 17, 64, 36},     {"q4_g", 260, 18, 32, 83},    {"iq3_s", 21, 20, 256, 110},
    {"iq3_xxs", 18, 21, 256, 98}, {"iq2_s", 22, 22, 256, 82},   {"iq2_xs", 17, 23, 256, 74},
    {"iq2_xxs", 16, 24, 256, 66}, {"iq1_m", 29, 25, 256, 56},   {"iq1_s", 19, 26, 256, 50},
    {"tq2_0", 35, 27, 256, 66},   {"tq1_0", 34, 28, 256, 54},   {"mxfp4", 39, 29, 32, 17},
    {"nvfp4", 40, 30, 64, 36},    {"nvfp4_s", 262, 32, 64, 40}, {"q8_g", 261, 31, 32, 99},
};

static void numbers_in_files_stay(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        enum weft_dtype dtype;
        assert_true(weft_dtype_of_number(written[i].file_number, &dtype));
        assert_string_equal(weft_dtype_name(dtype), written[i].name);
        assert_int_equal(weft_dtypes[dtype].file_number, written[i].file_number);
        assert_int_equal(weft_dtypes[dtype].layout_number, written[i].layout_number);
        assert_int_equal(weft_dtype_block_elems(dtype), written[i].block_elems);
        assert_int_equal(weft_dtype_block_bytes(dtype), written[i].block_bytes);
    }
}

static void other_numbers_are_of_no_type(void **state) {
    (void)state;
    static const uint32_t numbers[] = {4, 5, 9, 31, 255, 263, UINT32_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        enum weft_dtype dtype = WEFT_DT_U8;
        assert_false(weft_dtype_of_number(numbers[i], &dtype));
        assert_int_equal(dtype, WEFT_DT_F32);
    }
}

static void every_type_has_a_name_of_its_own(void **state) {
    (void)state;
    for (uint32_t i = 0; i < WEFT_DT_COUNT; i++) {
        assert_true(weft_dtypes[i].block_elems > 0 && weft_dtypes[i].block_bytes > 0);
        for (uint32_t j = 0; j < i; j++) {
            assert_string_not_equal(weft_dtypes[i].name, weft_dtypes[j].name);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_in_files_stay),
        cmocka_unit_test(other_numbers_are_of_no_type),
        cmocka_unit_test(every_type_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
