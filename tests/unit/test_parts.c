/* Quantised weights in parts: two ways of reading a row agree, and pieces that do not belong
 * together are refused. Golden logits say that the rows are right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "unit/model_files.h"

#define LAYER "model.layers.0.mlp.down_proj."

/* All rows of a tensor in blocks, at once and one by one, and as f32. */
static void check_tensor(const struct weft_tensor *tensor) {
    size_t row_bytes = weft_tensor_row_bytes(tensor);
    uint32_t n = (uint32_t)tensor->dims[0], k = (uint32_t)tensor->dims[1];
    unsigned char *all = malloc(row_bytes * n), *one = malloc(row_bytes);
    float *wanted = malloc(k * sizeof(float)), *got = malloc(k * sizeof(float));
    assert_true(all && one && wanted && got);
    weft_tensor_rows(tensor, 0, n, all);
    for (uint32_t row = 0; row < n; row++) {
        weft_tensor_rows(tensor, row, 1, one);
        assert_memory_equal(one, all + row * row_bytes, row_bytes);
        weft_tensor_row_f32(tensor, row, wanted);
        weft_kern_read_row(tensor->dtype, one, k, got);
        assert_memory_equal(got, wanted, k * sizeof(float));
    }
    free(all);
    free(one);
    free(wanted);
    free(got);
}

static void rows_in_blocks_are_the_rows_as_f32(void **state) {
    static const struct {
        const char *name;
        enum weft_dtype dtype; /* of the tensor with most columns */
    } formats[] = {{"fp8", WEFT_DT_F8_E4M3},     {"gptq", WEFT_DT_Q4_Z}, {"gptq_v2", WEFT_DT_Q4_Z},
                   {"gptq_order", WEFT_DT_Q4_G}, {"awq", WEFT_DT_Q4_Z},  {"nf4", WEFT_DT_NF4},
                   {"nf4_wide", WEFT_DT_F32}};
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        char path[64];
        weft_model *model;
        struct weft_errmsg why = {""};
        uint32_t n_joined = 0;
        (void)snprintf(path, sizeof path, "tests/data/formats/%s", formats[i].name);
        if (weft_model_open(test_source_path(path), &model, &why)) fail_msg("%s", why.text);
        for (size_t t = 0; t < weft_model_n_tensors(model); t++) {
            if (!weft_model_tensor(model, t)->parts) continue;
            check_tensor(weft_model_tensor(model, t));
            n_joined++;
        }
        assert_int_equal(n_joined, 7);
        assert_int_equal(weft_model_find(model, LAYER "weight")->dtype, formats[i].dtype);
        weft_model_free(model);
    }
}

/* -------------------------------------------------------------------------------- refusals --- */

struct bytes {
    unsigned char *data;
    size_t n;
};

static struct bytes read_fixture(const char *format, const char *name) {
    char path[96], *text;
    struct weft_errmsg why = {""};
    struct bytes bytes;
    (void)snprintf(path, sizeof path, "tests/data/formats/%s/%s", format, name);
    if (weft_file_read(test_source_path(path), WEFT_FILE_REGULAR, 1u << 20, &text, &bytes.n, &why))
        fail_msg("%s", why.text);
    bytes.data = (unsigned char *)text;
    return bytes;
}

/* The file with `to` in place of `from` behind the name of a tensor in its header. */
static void change_header(const struct bytes *file, const char *name, const char *from,
                          const char *to, struct weft_buf *out) {
    uint64_t header_bytes;
    memcpy(&header_bytes, file->data, sizeof header_bytes);
    char *header = strndup((const char *)file->data + 8, header_bytes), key[128];
    assert_non_null(header);
    (void)snprintf(key, sizeof key, "\"%s\"", name);
    char *at = strstr(header, key);
    assert_non_null(at);
    at = strstr(at, from);
    assert_non_null(at);
    weft_buf_init(out, 1u << 20);
    gguf_put(out, header_bytes - strlen(from) + strlen(to), 8);
    weft_buf_add(out, header, (size_t)(at - header));
    weft_buf_add_str(out, to);
    weft_buf_add_str(out, at + strlen(from));
    weft_buf_add(out, file->data + 8 + header_bytes, file->n - 8 - header_bytes);
    assert_false(out->failed);
    free(header);
}

/* The file with four bytes of a tensor's data changed. */
static void change_data(const struct bytes *file, const char *name, uint32_t value,
                        struct weft_buf *out) {
    uint64_t header_bytes;
    char key[128];
    memcpy(&header_bytes, file->data, sizeof header_bytes);
    (void)snprintf(key, sizeof key, "\"%s\"", name);
    char *header = strndup((const char *)file->data + 8, header_bytes);
    assert_non_null(header);
    const char *at = strstr(header, key);
    assert_non_null(at);
    at = strstr(at, "data_offsets");
    assert_non_null(at);
    size_t offset = (size_t)strtoull(at + strlen("data_offsets\":["), NULL, 10);
    weft_buf_init(out, 1u << 20);
    weft_buf_add(out, file->data, file->n);
    assert_false(out->failed);
    memcpy(out->data + 8 + header_bytes + offset, &value, sizeof value);
    free(header);
}

static void expect_refusal(const char *format, const struct weft_buf *file, const char *said) {
    char *dir = test_dir_new();
    struct bytes config = read_fixture(format, "config.json");
    struct weft_errmsg why = {""};
    weft_model *model;
    test_dir_write(dir, "config.json", config.data, config.n);
    test_dir_write(dir, "model.safetensors", file->data, file->len);
    weft_err err = weft_model_open(dir, &model, &why);
    print_message("    %s: %s\n", format, why.text);
    assert_true(err == WEFT_E_PROTO || err == WEFT_E_UNSUPPORTED);
    assert_null(model);
    assert_non_null(strstr(why.text, said));
    free(config.data);
    test_dir_free(dir);
}

static void parts_that_do_not_fit_are_refused(void **state) {
    static const struct {
        const char *format, *name, *from, *to, *said;
    } cases[] = {
        {"fp8", LAYER "weight_scale_inv", "scale_inv", "scale_off", "is missing"},
        {"fp8", LAYER "weight_scale_inv", "[2,2]", "[4,1]", "another shape than [2, 2]"},
        {"fp8", LAYER "weight_scale_inv", "F32", "I32", "no floats"},
        {"fp8", LAYER "weight", "[192,200]", "[192,200,1]", "no matrix"},
        {"fp8", LAYER "weight", "[192,200]", "[200,192]", "hyper-parameters"},
        {"fp8", LAYER "weight", "\"F8_E4M3\"", "\"U8\"", "belongs to no quantised weight"},
        {"gptq", LAYER "qweight", "qweight", "qweighs", "belongs to no quantised weight"},
        {"gptq", LAYER "qzeros", "qzeros", "zeros", "is missing"},
        {"gptq", LAYER "qzeros", "[6,16]", "[16,6]", "another shape than [6, 16]"},
        {"gptq", LAYER "qzeros", "I32", "F32", "not of type i32"},
        {"gptq", LAYER "scales", "[6,128]", "[3,256]", "another shape than [6, 128]"},
        {"gptq", LAYER "g_idx", "[192]", "[2,96]", "another shape than [192]"},
        {"gptq", LAYER "g_idx", "I32", "F32", "not of type i32"},
        {"gptq", LAYER "qweight", "[24,128]", "[128,24]", "another shape than"},
        {"gptq", LAYER "qweight", "[24,128]", "[256,12]", "multiple of 8"},
        {"awq", LAYER "qweight", "[192,16]", "[96,32]", "another shape than"},
        {"awq", LAYER "qweight", "[192,16]", "[3072]", "no matrix"},
        {"nf4", LAYER "weight.quant_map", "[16]", "[8,2]", "another shape than [16]"},
        {"nf4", LAYER "weight.quant_map", "F32", "I32", "not of type f32"},
        {"nf4", LAYER "weight.absmax", "[384]", "[2,192]", "another shape than [384]"},
        {"nf4", LAYER "weight.nested_absmax", "nested_absmax", "nested_max", "is missing"},
        {"nf4", LAYER "weight.quant_state.bitsandbytes__nf4", "__nf4", "__fp4", "is missing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes file = read_fixture(cases[i].format, "model.safetensors");
        struct weft_buf changed;
        change_header(&file, cases[i].name, cases[i].from, cases[i].to, &changed);
        expect_refusal(cases[i].format, &changed, cases[i].said);
        weft_buf_fini(&changed);
        free(file.data);
    }
}

/* The file with `to` in place of `from` wherever it stands in the header. */
static void replace_all(struct weft_buf *file, const char *from, const char *to) {
    uint64_t header_bytes;
    struct weft_buf header, out;
    memcpy(&header_bytes, file->data, sizeof header_bytes);
    weft_buf_init(&header, 1u << 16);
    weft_buf_init(&out, 1u << 20);
    char *text = strndup((const char *)file->data + 8, header_bytes), *rest = text, *at;
    assert_non_null(text);
    while ((at = strstr(rest, from)) != NULL) {
        weft_buf_add(&header, rest, (size_t)(at - rest));
        weft_buf_add_str(&header, to);
        rest = at + strlen(from);
    }
    weft_buf_add_str(&header, rest);
    gguf_put(&out, header.len, 8);
    weft_buf_add(&out, header.data, header.len);
    weft_buf_add(&out, file->data + 8 + header_bytes, file->len - 8 - header_bytes);
    assert_false(header.failed || out.failed);
    free(text);
    weft_buf_fini(&header);
    weft_buf_fini(file);
    *file = out;
}

/* Its rows are gathered from the file, unlike those of a weight in parts, even if the whole
 * is read as f32. */
static void an_embedding_table_in_parts_is_refused(void **state) {
    static const char q[] = "model.layers.0.self_attn.q_proj.", embedding[] = "model.embed_tokens.";
    (void)state;
    for (uint32_t group = 0; group < 2; group++) { /* of column 0; 1: in no order, so read as f32 */
        struct bytes file = read_fixture("gptq", "model.safetensors");
        struct weft_buf swapped;
        change_data(&file, "model.layers.0.self_attn.q_proj.g_idx", group, &swapped);
        replace_all(&swapped, q, "neither.");
        replace_all(&swapped, embedding, q);
        replace_all(&swapped, "neither.", embedding);
        expect_refusal("gptq", &swapped, "the embedding table is quantised");
        weft_buf_fini(&swapped);
        free(file.data);
    }
}

static void values_that_mean_nothing_are_refused(void **state) {
    static const struct {
        const char *format, *name, *said;
        uint32_t value;
    } cases[] = {
        {"gptq", LAYER "g_idx", "a group that there is not", 6},
        {"gptq_order", LAYER "g_idx", "a group that there is not", UINT32_MAX},
        {"nf4", LAYER "weight.quant_map", "other values", 0x3f800000},
        {"nf4", LAYER "weight.quant_state.bitsandbytes__nf4", "not valid JSON", 0x2c2c2c2c},
        {"nf4", LAYER "weight.quant_state.bitsandbytes__nf4", "does not describe", 0x7871227b},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes file = read_fixture(cases[i].format, "model.safetensors");
        struct weft_buf changed;
        change_data(&file, cases[i].name, cases[i].value, &changed);
        expect_refusal(cases[i].format, &changed, cases[i].said);
        weft_buf_fini(&changed);
        free(file.data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_in_blocks_are_the_rows_as_f32),
        cmocka_unit_test(parts_that_do_not_fit_are_refused),
        cmocka_unit_test(an_embedding_table_in_parts_is_refused),
        cmocka_unit_test(values_that_mean_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
