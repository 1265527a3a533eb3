/* Matrices of NVFP4 with scales of their own beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "inside/model/gguf/gguf.h"
#include "unit/model_files.h"

enum { HIDDEN = 64, KV = 32, FFN = 128, VOCAB = 8, EXPERTS = 4, NVFP4 = 40, F32 = 0 };

static void put_config(struct gguf_builder *b, bool has_experts) {
    const char *arch = has_experts ? "qwen3moe" : "llama";
    static const struct {
        const char *key;
        uint32_t value;
        bool of_experts;
    } keys[] = {
        {"block_count", 1, false},           {"context_length", 64, false},
        {"embedding_length", HIDDEN, false}, {"feed_forward_length", FFN, false},
        {"attention.head_count", 2, false},  {"attention.head_count_kv", 1, false},
        {"attention.key_length", 32, true},  {"attention.value_length", 32, true},
        {"vocab_size", VOCAB, false},        {"expert_count", EXPERTS, true},
        {"expert_used_count", 2, true},      {"expert_feed_forward_length", FFN, true},
    };
    char key[64];
    gguf_str(b, "general.architecture", arch);
    (void)snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_f32(b, key, 1e-5f);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i].of_experts && !has_experts) continue;
        (void)snprintf(key, sizeof key, "%s.%s", arch, keys[i].key);
        gguf_u32(b, key, keys[i].value);
    }
}

static void put_vector(struct gguf_builder *b, const char *name, uint64_t n) {
    gguf_tensor(b, name, F32, 1, &n, n * sizeof(float));
}

static void put_matrix(struct gguf_builder *b, const char *name, uint32_t type, uint64_t rows,
                       uint64_t columns) {
    const uint64_t dims[] = {columns, rows};
    size_t bytes = type == F32 ? rows * columns * 4 : rows * columns / 64 * 36;
    gguf_tensor(b, name, type, 2, dims, bytes);
}

static void put_stack(struct gguf_builder *b, const char *name, uint64_t rows, uint64_t columns) {
    const uint64_t dims[] = {columns, rows, EXPERTS};
    gguf_tensor(b, name, NVFP4, 3, dims, EXPERTS * rows * columns / 64 * 36);
}

/* Scales first, first + 1 ... */
static void put_scales(struct gguf_builder *b, const char *name, uint64_t n, float first) {
    gguf_tensor(b, name, F32, 1, &n, n * sizeof first);
    for (uint64_t i = 0; i < n; i++) {
        float value = first + (float)i;
        memcpy(b->data.data + b->data.len - (n - i) * sizeof value, &value, sizeof value);
    }
}

static void put_tensors(struct gguf_builder *b, bool has_experts) {
    put_matrix(b, "token_embd.weight", F32, VOCAB, HIDDEN);
    put_vector(b, "output_norm.weight", HIDDEN);
    put_vector(b, "blk.0.attn_norm.weight", HIDDEN);
    put_vector(b, "blk.0.ffn_norm.weight", HIDDEN);
    put_matrix(b, "blk.0.attn_q.weight", NVFP4, HIDDEN, HIDDEN);
    put_matrix(b, "blk.0.attn_k.weight", NVFP4, KV, HIDDEN);
    put_matrix(b, "blk.0.attn_v.weight", NVFP4, KV, HIDDEN);
    put_matrix(b, "blk.0.attn_output.weight", F32, HIDDEN, HIDDEN);
    if (!has_experts) {
        put_matrix(b, "blk.0.ffn_gate.weight", NVFP4, FFN, HIDDEN);
        put_matrix(b, "blk.0.ffn_up.weight", NVFP4, FFN, HIDDEN);
        put_matrix(b, "blk.0.ffn_down.weight", NVFP4, HIDDEN, FFN);
        return;
    }
    put_vector(b, "blk.0.attn_q_norm.weight", 32);
    put_vector(b, "blk.0.attn_k_norm.weight", 32);
    put_matrix(b, "blk.0.ffn_gate_inp.weight", F32, EXPERTS, HIDDEN);
    put_stack(b, "blk.0.ffn_gate_exps.weight", FFN, HIDDEN);
    put_stack(b, "blk.0.ffn_up_exps.weight", FFN, HIDDEN);
    put_stack(b, "blk.0.ffn_down_exps.weight", HIDDEN, FFN);
}

/* The builder ends; the bytes outlive the model. */
static weft_err open_built(struct gguf_builder *b, struct weft_buf *bytes, weft_model **model_out,
                           struct weft_errmsg *why) {
    struct wefti_model_file file;
    gguf_finish(b, bytes);
    gguf_fini(b);
    why->text[0] = 0;
    assert_int_equal(wefti_model_file_borrow("x.gguf", bytes->data, bytes->len, &file, why), 0);
    return wefti_model_from_gguf(&file, model_out, why);
}

static void begin(struct gguf_builder *b, bool has_experts) {
    gguf_init(b);
    put_config(b, has_experts);
    put_tensors(b, has_experts);
}

/* Every block of the last row begins with the scale. */
static void check_scaled(const weft_model *model, const char *name, float want) {
    const struct weft_tensor *tensor = weft_model_find(model, name);
    unsigned char row[FFN / 64 * 40];
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, WEFT_DT_NVFP4_S);
    size_t n = weft_tensor_row_bytes(tensor);
    assert_true(n <= sizeof row && n == tensor->dims[1] / 64 * 40);
    weft_tensor_rows(tensor, tensor->dims[0] - 1, 1, row);
    for (size_t at = 0; at < n; at += 40) {
        float got;
        memcpy(&got, row + at, sizeof got);
        assert_true(got == want);
    }
}

static void matrices_take_their_scales_in(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_buf bytes;
    struct weft_errmsg why;
    weft_model *model;
    begin(&b, false);
    put_scales(&b, "blk.0.attn_q.scale", 1, 0.5f);
    put_scales(&b, "blk.0.attn_q.input_scale", 1, 7.0f);
    put_scales(&b, "blk.0.ffn_down.scale", 1, 3.0f);
    if (open_built(&b, &bytes, &model, &why)) fail_msg("%s", why.text);
    check_scaled(model, "blk.0.attn_q.weight", 0.5f);
    check_scaled(model, "blk.0.ffn_down.weight", 3.0f);
    assert_int_equal(weft_model_find(model, "blk.0.attn_k.weight")->dtype, WEFT_DT_NVFP4);
    assert_null(weft_model_find(model, "blk.0.attn_q.scale"));
    assert_null(weft_model_find(model, "blk.0.attn_q.input_scale"));
    weft_model_free(model);
    weft_buf_fini(&bytes);
}

static void each_expert_of_a_stack_has_its_own(void **state) {
    (void)state;
    struct gguf_builder b;
    struct weft_buf bytes;
    struct weft_errmsg why;
    weft_model *model;
    begin(&b, true);
    put_scales(&b, "blk.0.ffn_up_exps.scale", EXPERTS, 2.0f);
    put_scales(&b, "blk.0.ffn_up_exps.input_scale", EXPERTS, 2.0f);
    if (open_built(&b, &bytes, &model, &why)) fail_msg("%s", why.text);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.0.ffn_up.%u.weight", e);
        check_scaled(model, name, 2.0f + (float)e);
    }
    assert_int_equal(weft_model_find(model, "blk.0.ffn_down.0.weight")->dtype, WEFT_DT_NVFP4);
    weft_model_free(model);
    weft_buf_fini(&bytes);
}

static void the_hash_is_another_one_with_another_scale(void **state) {
    (void)state;
    uint64_t hashes[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct gguf_builder b;
        struct weft_buf bytes;
        struct weft_errmsg why;
        weft_model *model;
        begin(&b, false);
        put_scales(&b, "blk.0.attn_q.scale", 1, 1.0f + (float)i);
        if (open_built(&b, &bytes, &model, &why)) fail_msg("%s", why.text);
        hashes[i] = weft_model_hash(model);
        weft_model_free(model);
        weft_buf_fini(&bytes);
    }
    assert_true(hashes[0] != hashes[1]);
}

static void scales_that_fit_nothing_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t n;
        float value;
        bool has_experts;
        const char *said;
    } cases[] = {
        {"blk.0.attn_q.scale", 2, 1, false, "'blk.0.attn_q.scale' is not 1 of f32"},
        {"blk.0.attn_q.scale", 1, INFINITY, false, "'blk.0.attn_q.scale' has a scale that is not"},
        {"blk.0.attn_output.scale", 1, 1, false, "'blk.0.attn_output.scale' scales a matrix that"},
        {"blk.0.attn_k.input_scale", 1, 1, false, "'blk.0.attn_k.input_scale'"},
        {"blk.7.attn_q.scale", 1, 1, false, "'blk.7.attn_q.scale'"},
        {"blk.0.ffn_up_exps.scale", 1, 1, true, "'blk.0.ffn_up_exps.scale' is not 4 of f32"},
        {"blk.0.ffn_up_exps.scale", 5, 1, true, "'blk.0.ffn_up_exps.scale' is not 4 of f32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_builder b;
        struct weft_buf bytes;
        struct weft_errmsg why;
        weft_model *model;
        begin(&b, cases[i].has_experts);
        put_scales(&b, cases[i].name, cases[i].n, cases[i].value);
        assert_int_not_equal(open_built(&b, &bytes, &model, &why), WEFT_OK);
        print_message("    %s\n", why.text);
        assert_non_null(strstr(why.text, cases[i].said));
        weft_buf_fini(&bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_take_their_scales_in),
        cmocka_unit_test(each_expert_of_a_stack_has_its_own),
        cmocka_unit_test(the_hash_is_another_one_with_another_scale),
        cmocka_unit_test(scales_that_fit_nothing_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
