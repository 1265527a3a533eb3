/* The metadata of this year's families in GGUF files, where it leaves room for more than one reading. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "inside/model/gguf/gguf.h"
#include "unit/model_files.h"

/* Names a key of the architecture; valid until the next call. */
static const char *of(const char *arch, const char *name) {
    static char key[96];
    int n = snprintf(key, sizeof key, "%s.%s", arch, name);
    WEFT_ASSERT(n > 0 && (size_t)n < sizeof key);
    return key;
}

static void per_layer(struct gguf_builder *b, const char *key, const uint32_t *values, size_t n) {
    gguf_key(b, key, WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_U32, 4);
    gguf_put(&b->kvs, n, 8);
    for (size_t i = 0; i < n; i++)
        gguf_put(&b->kvs, values[i], 4);
}

static void flag(struct gguf_builder *b, const char *key, bool value) {
    gguf_key(b, key, WEFT_GGUF_BOOL);
    gguf_put(&b->kvs, value, 1);
}

/* Three layers of 4 heads of 8. */
static void begin(struct gguf_builder *b, const char *arch) {
    gguf_init(b);
    gguf_str(b, "general.architecture", arch);
    gguf_u32(b, of(arch, "block_count"), 3);
    gguf_u32(b, of(arch, "context_length"), 128);
    gguf_u32(b, of(arch, "embedding_length"), 32);
    gguf_u32(b, of(arch, "attention.head_count"), 4);
    gguf_f32(b, of(arch, "attention.layer_norm_rms_epsilon"), 1e-5f);
    gguf_u32(b, of(arch, "vocab_size"), 8);
}

static void put_states(struct gguf_builder *b, const char *arch) {
    gguf_u32(b, of(arch, "ssm.conv_kernel"), 4);
    gguf_u32(b, of(arch, "ssm.state_size"), 16);
    gguf_u32(b, of(arch, "ssm.group_count"), 1);
    gguf_u32(b, of(arch, "ssm.time_step_rank"), 4);
    gguf_u32(b, of(arch, "ssm.inner_size"), 64);
}

static weft_err end(struct gguf_builder *b, struct weft_model_params *p, struct weft_errmsg *why) {
    struct weft_buf bytes;
    struct wefti_model_file file;
    weft_gguf *gguf = NULL;
    *p = (struct weft_model_params){0};
    why->text[0] = 0;
    gguf_finish(b, &bytes);
    weft_err err = wefti_model_file_borrow("x.gguf", bytes.data, bytes.len, &file, why);
    if (!err) err = wefti_model_gguf_parse(&file, &gguf, why);
    if (!err) err = wefti_model_config_gguf(gguf, p, why);
    weft_gguf_free(gguf);
    weft_buf_fini(&bytes);
    gguf_fini(b);
    return err;
}

static void must_end(struct gguf_builder *b, struct weft_model_params *p) {
    struct weft_errmsg why;
    if (end(b, p, &why)) fail_msg("%s", why.text);
}

static void a_list_of_one_number_is_that_number(void **state) {
    (void)state;
    static const uint32_t same[] = {2, 2, 2}, some[] = {0, 2, 0}, other[] = {2, 1, 2};
    struct gguf_builder b;
    struct weft_model_params p;
    struct weft_errmsg why;
    begin(&b, "granite");
    gguf_u32(&b, "granite.feed_forward_length", 64);
    per_layer(&b, "granite.attention.head_count_kv", same, 3);
    must_end(&b, &p);
    assert_int_equal(p.n_kv_heads, 2);
    for (int i = 0; i < 2; i++) {
        begin(&b, "granite");
        gguf_u32(&b, "granite.feed_forward_length", 64);
        per_layer(&b, "granite.attention.head_count_kv", i == 0 ? some : other, 3);
        assert_int_equal(end(&b, &p, &why), WEFT_E_UNSUPPORTED);
        assert_non_null(strstr(why.text, "granite.attention.head_count_kv differs"));
    }
}

/* Granite 4: which layers have attention, and whether it turns. */
static void put_granite(struct gguf_builder *b) {
    static const uint32_t kv_heads[] = {0, 2, 0};
    begin(b, "granitehybrid");
    put_states(b, "granitehybrid");
    gguf_u32(b, "granitehybrid.feed_forward_length", 64);
    per_layer(b, "granitehybrid.attention.head_count_kv", kv_heads, 3);
}

static void granites_attention_turns_where_the_file_says_so(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_model_params p;
    for (int turns = 0; turns < 3; turns++) { /* 2: it says nothing */
        put_granite(&b);
        if (turns < 2) flag(&b, "granitehybrid.rope.scaling.finetuned", turns == 1);
        must_end(&b, &p);
        assert_int_equal(weft_model_bit(p.no_rope, 1), turns == 0);
        assert_true(weft_model_bit(p.recurrent.layers, 0));
        assert_false(weft_model_bit(p.recurrent.layers, 1));
    }
}

static void granite_without_experts_has_the_part_beside_them(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_model_params p;
    put_granite(&b);
    gguf_u32(&b, "granitehybrid.expert_shared_feed_forward_length", 48);
    must_end(&b, &p);
    assert_int_equal(p.moe.n_experts, 0);
    assert_int_equal(p.n_ffn, 48);
    put_granite(&b);
    must_end(&b, &p);
    assert_int_equal(p.n_ffn, 64);
}

static void granites_mixtures_without_recurrent_layers_have_a_name_of_their_own(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_model_params p;
    for (uint32_t n_shared = 0; n_shared <= 24; n_shared += 24) {
        begin(&b, "granitemoe");
        gguf_u32(&b, "granitemoe.feed_forward_length", 64);
        gguf_u32(&b, "granitemoe.expert_count", 8);
        gguf_u32(&b, "granitemoe.expert_used_count", 2);
        if (n_shared) gguf_u32(&b, "granitemoe.expert_shared_feed_forward_length", n_shared);
        gguf_f32(&b, "granitemoe.residual_scale", 0.25f);
        must_end(&b, &p);
        assert_false(weft_model_has_recurrent(&p));
        assert_true(p.moe.normalise && p.residual_scale == 0.25f);
        assert_int_equal(p.moe.n_experts, 8);
        assert_int_equal(p.moe.n_ffn_shared, n_shared);
        assert_false(weft_model_bit(p.no_rope, 1));
    }
}

static void what_turns_does_not_matter_where_nothing_turns(void **state) {
    (void)state;
    static const uint32_t kv_heads[] = {0, 2, 0}, ffn[] = {0, 0, 64};
    struct gguf_builder b;
    struct weft_model_params p;
    begin(&b, "nemotron_h");
    put_states(&b, "nemotron_h");
    per_layer(&b, "nemotron_h.attention.head_count_kv", kv_heads, 3);
    per_layer(&b, "nemotron_h.feed_forward_length", ffn, 3);
    gguf_u32(&b, "nemotron_h.attention.key_length", 16);
    gguf_u32(&b, "nemotron_h.attention.value_length", 16);
    gguf_u32(&b, "nemotron_h.rope.dimension_count", 21);
    must_end(&b, &p);
    assert_true(weft_model_bit(p.no_rope, 1));
    assert_int_equal(p.rope_dim, 16);
}

static void put_delta(struct gguf_builder *b) {
    begin(b, "qwen35");
    put_states(b, "qwen35");
    gguf_u32(b, "qwen35.feed_forward_length", 64);
    gguf_u32(b, "qwen35.attention.head_count_kv", 2);
    gguf_u32(b, "qwen35.attention.key_length", 8);
}

static void gated_deltanet_is_where_a_list_or_each_nth_layer_says(void **state) {
    (void)state;
    static const unsigned char recurrent[] = {0, 1, 1};
    struct gguf_builder b;
    struct weft_model_params p;
    struct weft_errmsg why;
    put_delta(&b);
    gguf_u32(&b, "qwen35.full_attention_interval", 2);
    must_end(&b, &p);
    assert_true(weft_model_bit(p.recurrent.layers, 0) && weft_model_bit(p.recurrent.layers, 2));
    assert_false(weft_model_bit(p.recurrent.layers, 1));
    for (size_t n = 3; n >= 2; n--) {
        put_delta(&b);
        gguf_u32(&b, "qwen35.full_attention_interval", 2);
        gguf_key(&b, "qwen35.attention.recurrent_layers", WEFT_GGUF_ARRAY);
        gguf_put(&b.kvs, WEFT_GGUF_BOOL, 4);
        gguf_put(&b.kvs, n, 8);
        weft_buf_add(&b.kvs, recurrent, n);
        if (n == 3) {
            must_end(&b, &p);
            assert_false(weft_model_bit(p.recurrent.layers, 0));
            assert_true(weft_model_bit(p.recurrent.layers, 1));
            assert_true(weft_model_bit(p.recurrent.layers, 2));
        } else {
            assert_int_equal(end(&b, &p, &why), WEFT_E_PROTO);
            assert_non_null(strstr(why.text, "qwen35.attention.recurrent_layers"));
        }
    }
}

static void layers_that_predict_are_counted_and_left_out(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_model_params p;
    put_delta(&b);
    gguf_u32(&b, "qwen35.full_attention_interval", 2);
    gguf_u32(&b, "qwen35.nextn_predict_layers", 1);
    must_end(&b, &p);
    assert_int_equal(p.n_layers, 2);
    assert_int_equal(p.n_predict, 1);
}

static void put_windows(struct gguf_builder *b) {
    begin(b, "exaone4");
    gguf_u32(b, "exaone4.feed_forward_length", 64);
    gguf_u32(b, "exaone4.attention.sliding_window", 16);
    gguf_f32(b, "exaone4.rope.freq_base", 1e6f);
}

static void layers_with_a_window_may_have_a_base_of_their_own(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_model_params p;
    struct weft_errmsg why;
    put_windows(&b);
    gguf_f32(&b, "exaone4.rope.freq_base_swa", 1e4f);
    must_end(&b, &p);
    assert_true(p.local_rope_theta == 1e4);
    put_windows(&b);
    gguf_f32(&b, "exaone4.rope.freq_base_swa", 1e6f);
    must_end(&b, &p);
    assert_true(p.local_rope_theta == 0);
    put_windows(&b);
    gguf_f32(&b, "exaone4.rope.freq_base_swa", 1e4f);
    gguf_f32(&b, "exaone4.rope.scaling.factor", 4);
    assert_int_equal(end(&b, &p, &why), WEFT_E_UNSUPPORTED);
    assert_non_null(strstr(why.text, "exaone4.rope.freq_base_swa 10000"));
}

static void experts_have_groups_in_any_family(void **state) {
    (void)state;
    static const uint32_t ffn[] = {16, 16, 16};
    struct gguf_builder b;
    struct weft_model_params p;
    for (uint32_t n_groups = 0; n_groups <= 2; n_groups++) {
        begin(&b, "glm4moe");
        gguf_u32(&b, "glm4moe.feed_forward_length", 64);
        gguf_u32(&b, "glm4moe.expert_count", 8);
        gguf_u32(&b, "glm4moe.expert_used_count", 2);
        gguf_u32(&b, "glm4moe.expert_group_count", n_groups);
        gguf_u32(&b, "glm4moe.expert_group_used_count", n_groups > 0);
        gguf_u32(&b, "glm4moe.expert_gating_func", 2);
        per_layer(&b, "glm4moe.expert_feed_forward_length", ffn, 3);
        must_end(&b, &p);
        assert_int_equal(p.moe.n_groups, n_groups == 2 ? 2 : 1);
        assert_int_equal(p.moe.n_groups_used, 1);
        assert_true(n_groups < 2 || p.moe.by_two);
        assert_int_equal(p.moe.n_ffn, 16);
    }
}

/* Any file may name a window. */
static void a_window_beside_an_indexer_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"feed_forward_length", 64},         {"attention.kv_lora_rank", 16},
                {"attention.q_lora_rank", 12},       {"attention.key_length", 16},
                {"attention.value_length", 8},       {"rope.dimension_count", 8},
                {"attention.indexer.head_count", 4}, {"attention.indexer.key_length", 16},
                {"attention.indexer.top_k", 20}};
    for (uint32_t window = 0; window <= 16; window += 16) {
        struct gguf_builder b;
        struct weft_model_params p;
        struct weft_errmsg why;
        begin(&b, "deepseek32");
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
            gguf_u32(&b, of("deepseek32", keys[i].key), keys[i].value);
        if (window > 0) gguf_u32(&b, of("deepseek32", "attention.sliding_window"), window);
        weft_err err = end(&b, &p, &why);
        assert_int_equal(err, window > 0 ? WEFT_E_UNSUPPORTED : WEFT_OK);
        if (window > 0 && !strstr(why.text, "a window of 16 beside an indexer"))
            fail_msg("%s", why.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_beside_an_indexer_is_refused),
        cmocka_unit_test(a_list_of_one_number_is_that_number),
        cmocka_unit_test(granites_attention_turns_where_the_file_says_so),
        cmocka_unit_test(granite_without_experts_has_the_part_beside_them),
        cmocka_unit_test(granites_mixtures_without_recurrent_layers_have_a_name_of_their_own),
        cmocka_unit_test(what_turns_does_not_matter_where_nothing_turns),
        cmocka_unit_test(gated_deltanet_is_where_a_list_or_each_nth_layer_says),
        cmocka_unit_test(layers_that_predict_are_counted_and_left_out),
        cmocka_unit_test(layers_with_a_window_may_have_a_base_of_their_own),
        cmocka_unit_test(experts_have_groups_in_any_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
