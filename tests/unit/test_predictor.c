/* Layers that predict further tokens, opened as models of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "model/model.h"
#include "unit/model_files.h"

static weft_err open_predictor(const char *relative, weft_model **model_out,
                               struct weft_errmsg *why) {
    return weft_model_open_predictor(test_source_path(relative), model_out, why);
}

static void assert_named(const struct weft_tensor *tensor, const char *name) {
    assert_non_null(tensor);
    assert_string_equal(tensor->name, name);
}

static void it_is_a_model_of_the_layer_after_the_last(void **state) {
    (void)state;
    weft_model *model;
    struct weft_errmsg why;
    if (open_predictor("tests/data/zoo/deepseek_v3", &model, &why)) fail_msg("%s", why.text);
    const struct weft_model_params *p = weft_model_params(model);
    const struct weft_model_layer *layer = weft_model_layers(model);
    const struct weft_model_predictor_tensors *own = weft_model_predictor(model);
    assert_int_equal(p->n_layers, 1);
    assert_false(p->tied);
    assert_named(weft_model_embedding(model), "model.layers.3.embed_tokens.weight");
    assert_named(weft_model_final_norm(model), "model.layers.3.shared_head.norm.weight");
    assert_named(weft_model_head(model), "model.layers.3.shared_head.head.weight");
    assert_named(layer->wq_a, "model.layers.3.self_attn.q_a_proj.weight");
    assert_named(layer->router, "model.layers.3.mlp.gate.weight");
    assert_named(layer->experts[15].down, "model.layers.3.mlp.experts.15.down_proj.weight");
    assert_named(own->enorm, "model.layers.3.enorm.weight");
    assert_named(own->hnorm, "model.layers.3.hnorm.weight");
    assert_named(own->eh_proj, "model.layers.3.eh_proj.weight");
    weft_model_free(model);
}

static void a_whole_model_is_no_predictor(void **state) {
    (void)state;
    weft_model *model;
    struct weft_errmsg why;
    const char *path = test_source_path("tests/data/zoo/deepseek_v3");
    if (weft_model_open(path, &model, &why)) fail_msg("%s", why.text);
    assert_null(weft_model_predictor(model));
    weft_model_free(model);
}

static void models_without_one_say_so(void **state) {
    (void)state;
    static const char *const without[] = {"models/fable-6m", "tests/data/zoo/deepseek_v2",
                                          "tests/data/zoo/gguf/deepseek_v3.gguf"};
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        weft_model *model;
        struct weft_errmsg why;
        assert_int_equal(open_predictor(without[i], &model, &why), WEFT_E_INVAL);
        assert_null(model);
        assert_non_null(strstr(why.text, "has no layer that predicts further tokens"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_a_model_of_the_layer_after_the_last),
        cmocka_unit_test(a_whole_model_is_no_predictor),
        cmocka_unit_test(models_without_one_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
