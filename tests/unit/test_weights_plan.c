#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <xxhash.h>

#include "harness/eng_drive.h"
#include "inside/engine/weights/plan.h"
#include "unit/engine_fixtures.h"

/* Numbers that packed files and other processes have, too: no order of a list is among them. */
static void both_hashes_are_over_numbers_that_stay(void **state) {
    (void)state;
    static const struct {
        const char *model;
        enum weft_eng_act act;
    } cases[] = {{ENGINE_QUANTISED, WEFT_ENG_ACT_AUTO},
                 {ENGINE_QUANTISED, WEFT_ENG_ACT_F32},
                 {ENGINE_DRAFT, WEFT_ENG_ACT_AUTO},
                 {"tests/data/zoo/deepseek_v2", WEFT_ENG_ACT_AUTO}};
    uint64_t hashes[4], place_hashes[4];
    for (size_t i = 0; i < 4; i++) {
        struct weft_errmsg why = {""};
        struct weft_eng_options options;
        struct wefti_weights_plan plan;
        struct wefti_weights weights = {0};
        weft_model *model;
        if (weft_model_open(drive_fixture(cases[i].model), &model, &why)) fail_msg("%s", why.text);
        weft_eng_options_init(&options);
        options.activations = cases[i].act;
        if (wefti_weights_plan_make(&plan, model, &options, &weights, &why))
            fail_msg("%s", why.text);
        uint64_t hash = 0, place_hash = 1; /* the layout's version */
        for (size_t k = 0; k < plan.n_items; k++) {
            const struct wefti_weights_item *item = &plan.items[k];
            bool is_matrix = item->form == 0 || item->form == 3;
            enum weft_dtype stored = is_matrix         ? weft_kern_weights_of(item->kind)
                                     : item->form == 1 ? WEFT_DT_F32
                                                       : item->src->dtype;
            uint64_t facts[6] = {(uint64_t)item->form,
                                 weft_dtypes[stored].layout_number,
                                 item->n,
                                 item->k,
                                 item->offset,
                                 is_matrix && weft_kern_act_of(item->kind) == WEFT_ACT_F32};
            hash = XXH64(facts, 48, hash);
            place_hash = XXH64(facts, 40, place_hash);
        }
        assert_true(plan.n_items > 10);
        assert_true(plan.hash == hash && weights.layout_hash == hash);
        assert_true(plan.place_hash == place_hash);
        hashes[i] = hash;
        place_hashes[i] = place_hash;
        wefti_weights_plan_fini(&plan);
        wefti_weights_close(&weights);
        weft_model_free(model);
    }
    assert_true(hashes[0] != hashes[1]);             /* other kernels, */
    assert_true(place_hashes[0] == place_hashes[1]); /* but the same layout */
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_weights_plan", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_hashes_are_over_numbers_that_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
