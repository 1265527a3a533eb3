/* Quantised tensors bit for bit: the blocks of a file read as a row, packed into a panel and read
 * back from there, and packed as f32.
 *
 * How the goldens were made: the zoo's NumPy reference took one tensor of each file apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden/goldens.h"
#include "harness/eng_drive.h"
#include "kernels/kernels.h"
#include "model/model.h"

struct type {
    const char *name;
    enum weft_dtype src;
    enum weft_gemm_kind kind;
};

static const struct type types[] = {
    {"F16", WEFT_DT_F16, WEFT_GEMM_F16_F32},
    {"BF16", WEFT_DT_BF16, WEFT_GEMM_BF16_F32},
    {"Q8_0", WEFT_DT_Q8_0, WEFT_GEMM_Q8_0_F32},
    {"Q4_0", WEFT_DT_Q4_0, WEFT_GEMM_Q4_0_F32},
    {"Q4_1", WEFT_DT_Q4_1, WEFT_GEMM_Q4_1_F32},
    {"Q4_K", WEFT_DT_Q4_K, WEFT_GEMM_Q4_K_F32},
    {"Q5_K", WEFT_DT_Q5_K, WEFT_GEMM_Q5_K_F32},
    {"Q6_K", WEFT_DT_Q6_K, WEFT_GEMM_Q6_K_F32},
    {"Q2_K", WEFT_DT_Q2_K, WEFT_GEMM_Q2_K_F32},
    {"Q3_K", WEFT_DT_Q3_K, WEFT_GEMM_Q3_K_F32},
    {"Q5_1", WEFT_DT_Q5_1, WEFT_GEMM_Q5_1_F32},
    {"Q5_0", WEFT_DT_Q5_0, WEFT_GEMM_Q5_0_F32},
    {"IQ4_NL", WEFT_DT_IQ4_NL, WEFT_GEMM_IQ4_NL_F32},
    {"IQ4_XS", WEFT_DT_IQ4_XS, WEFT_GEMM_IQ4_XS_F32},
};

/* Of these the files lie in WEFT_SHARED_DIR. */
static const struct type shared_types[] = {
    {"IQ4_XS", WEFT_DT_IQ4_XS, WEFT_GEMM_IQ4_XS_F32},
    {"IQ3_S", WEFT_DT_IQ3_S, WEFT_GEMM_IQ3_S_F32},
    {"IQ3_XXS", WEFT_DT_IQ3_XXS, WEFT_GEMM_IQ3_XXS_F32},
    {"IQ2_S", WEFT_DT_IQ2_S, WEFT_GEMM_IQ2_S_F32},
    {"IQ2_XS", WEFT_DT_IQ2_XS, WEFT_GEMM_IQ2_XS_F32},
    {"IQ2_XXS", WEFT_DT_IQ2_XXS, WEFT_GEMM_IQ2_XXS_F32},
    {"IQ1_M", WEFT_DT_IQ1_M, WEFT_GEMM_IQ1_M_F32},
    {"IQ1_S", WEFT_DT_IQ1_S, WEFT_GEMM_IQ1_S_F32},
    {"TQ2_0", WEFT_DT_TQ2_0, WEFT_GEMM_TQ2_0_F32},
    {"TQ1_0", WEFT_DT_TQ1_0, WEFT_GEMM_TQ1_0_F32},
    {"MXFP4", WEFT_DT_MXFP4, WEFT_GEMM_MXFP4_F32},
    {"NVFP4", WEFT_DT_NVFP4, WEFT_GEMM_NVFP4_F32},
};

static void *take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    return memory;
}

/* The minimum is subtracted once, in f32; the reference does it in double and then rounds. */
static void check_row(const struct type *type, const struct goldens_array *want, uint32_t row,
                      const float *got) {
    for (uint32_t i = 0; i < want->n_cols; i++) {
        float golden = goldens_f32(want, row, i);
        if (golden == got[i]) continue;
        fail_msg("%s, row %u, column %u: %.9g is not %.9g", type->name, row, i, (double)got[i],
                 (double)golden);
    }
}

static void check_type(const struct type *type, const char *folder,
                       const struct goldens_array *want) {
    char path[1024];
    weft_model *model = NULL;
    struct weft_errmsg why;
    (void)snprintf(path, sizeof path, "%s/%s.gguf", folder, type->name);
    if (weft_model_open(path, &model, &why)) fail_msg("%s", why.text);
    const struct weft_tensor *tensor = weft_model_find(model, "blk.0.attn_k.weight");
    assert_non_null(tensor);
    uint32_t n = (uint32_t)tensor->dims[0], k = (uint32_t)tensor->dims[1];
    assert_int_equal(want->n_rows, n);
    assert_int_equal(want->n_cols, k);
    size_t row_bytes = tensor->bytes / n;
    void *packed = take(weft_kern_packed_bytes(type->kind, n, k));
    void *wide = take(weft_kern_packed_bytes(WEFT_GEMM_F32_F32, n, k));
    weft_kern_pack(type->kind, &(struct weft_kern_source){type->src, tensor->data, n, k}, 0, n,
                   NULL, packed);
    weft_kern_pack(WEFT_GEMM_F32_F32, &(struct weft_kern_source){type->src, tensor->data, n, k}, 0,
                   n, NULL, wide);
    float *row = take(k * sizeof *row);
    void *raw = take(k * sizeof *row);
    for (uint32_t i = 0; i < n; i++) {
        weft_kern_read_row(type->src, (const uint8_t *)tensor->data + i * row_bytes, k, row);
        check_row(type, want, i, row);
        weft_kern_read_row(weft_kern_unpack_row(type->kind, packed, k, i, raw), raw, k, row);
        check_row(type, want, i, row);
        assert_int_equal(weft_kern_unpack_row(WEFT_GEMM_F32_F32, wide, k, i, row), WEFT_DT_F32);
        check_row(type, want, i, row);
    }
    free(row);
    free(raw);
    free(packed);
    free(wide);
    weft_model_free(model);
}

static void check_folder(const char *folder, const struct type *of, size_t n) {
    struct goldens goldens;
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/goldens.safetensors", folder);
    assert_true(goldens_open(&goldens, path));
    for (size_t i = 0; i < n; i++) {
        struct goldens_array want;
        char name[32];
        (void)snprintf(name, sizeof name, "%s.tensor", of[i].name);
        assert_true(goldens_find(&goldens, name, "F32", &want));
        check_type(&of[i], folder, &want);
    }
    goldens_close(&goldens);
}

static void every_types_weights_are_the_files(void **state) {
    (void)state;
    check_folder(drive_fixture("tests/data/zoo/llama_quant"), types,
                 sizeof types / sizeof types[0]);
}

static void those_of_types_in_shared_files_are(void **state) {
    (void)state;
    const char *folder = drive_shared("zoo2/gguf_types");
    if (!folder) skip();
    check_folder(folder, shared_types, sizeof shared_types / sizeof shared_types[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_types_weights_are_the_files),
        cmocka_unit_test(those_of_types_in_shared_files_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
