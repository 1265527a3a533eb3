/* One safetensors file: the header against the data it describes, and the pieces of quantised
 * weights, by each method. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "inside/model/hf/hf.h"
#include "inside/model/parts.h"
#include "unit/model_files.h"

/* Every row that was put together, as it will be packed and as f32. */
static void touch_rows(const weft_model *model) {
    for (size_t i = 0; i < weft_model_n_tensors(model); i++) {
        const struct weft_tensor *tensor = weft_model_tensor(model, i);
        if (!tensor->parts) continue;
        size_t row_bytes = weft_tensor_row_bytes(tensor);
        unsigned char *row = malloc(row_bytes);
        float *wide = malloc(tensor->dims[1] * sizeof *wide);
        WEFT_ASSERT(row && wide);
        for (uint64_t r = 0; r < tensor->dims[0]; r++) {
            weft_tensor_rows(tensor, r, 1, row);
            weft_tensor_row_f32(tensor, r, wide);
        }
        free(row);
        free(wide);
    }
}

static void read_as(const uint8_t *bytes, size_t n, const struct weft_model_quant *quant) {
    struct weft_errmsg why = {{0}};
    struct wefti_model_file file;
    weft_model *model = wefti_model_new();
    WEFT_ASSERT(model);
    model->params.quant = *quant;
    WEFT_ASSERT(wefti_model_file_borrow("fuzz.safetensors", bytes, n, &file, &why) == WEFT_OK);
    weft_err err = wefti_model_safetensors_read(model, &file, &why);
    if (!err) err = wefti_model_join(model, file.path, &why);
    WEFT_ASSERT(!err || why.text[0]);
    if (!err) err = wefti_model_index(model, file.path, &why); /* two may be joined to one name */
    WEFT_ASSERT(!err || why.text[0]);
    if (!err) {
        (void)weft_model_hash(model); /* touches every byte */
        touch_rows(model);
    }
    weft_model_free(model);
    wefti_model_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const struct weft_model_quant quants[] = {
        {WEFT_QUANT_NONE, 0, 0, false, {0, 0, 0}},
        {WEFT_QUANT_FP8, 2, 128, false, {0, 0, 0}},
        {WEFT_QUANT_GPTQ, 1, 8, true, {0, 0, 0}},
        {WEFT_QUANT_GPTQ, 1, 0, false, {8, 0, 0}},
        {WEFT_QUANT_AWQ, 1, 32, false, {0, 0, 0}},
        {WEFT_QUANT_BNB, 0, 0, false, {0, 0, 0}},
        {WEFT_QUANT_INT8, 1, 0, false, {8, 0, 0}},
        {WEFT_QUANT_PACKED, 1, 32, false, {4, 1, 1}},
        {WEFT_QUANT_PACKED, 1, 0, false, {8, 0, 0}},
        {WEFT_QUANT_SCALED_FP8, 0, 0, false, {0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof quants / sizeof quants[0]; i++)
        read_as(bytes, n, &quants[i]);
    return 0;
}

/* The pieces of each method, in headers as small as possible; data is a pattern. */
static void add_quantised(void (*add)(const void *bytes, size_t n)) {
    static const struct {
        const char *header;
        size_t n_data;
    } seeds[] = {
        {"{\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,130],\"data_offsets\":[0,390]},"
         "\"a.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[390,406]}}",
         406},
        {"{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[4,8],\"data_offsets\":[0,128]},"
         "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[128,132]},"
         "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[1,8],\"data_offsets\":[132,148]}}",
         148},
        {"{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[2,8],\"data_offsets\":[0,64]},"
         "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[2,1],\"data_offsets\":[64,72]},"
         "\"a.scales\":{\"dtype\":\"F32\",\"shape\":[2,8],\"data_offsets\":[72,136]},"
         "\"a.g_idx\":{\"dtype\":\"I32\",\"shape\":[0],\"data_offsets\":[136,136]}}",
         136},
        {"{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[32,1],\"data_offsets\":[0,128]},"
         "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[128,132]},"
         "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[1,8],\"data_offsets\":[132,148]}}",
         148},
        {"{\"a.weight\":{\"dtype\":\"I8\",\"shape\":[3,5],\"data_offsets\":[0,15]},"
         "\"a.input_scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[15,19]},"
         "\"a.weight_zero_point\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[19,19]},"
         "\"a.weight_scale\":{\"dtype\":\"BF16\",\"shape\":[3,1],\"data_offsets\":[19,25]}}",
         25},
        {"{\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,5],\"data_offsets\":[0,15]},"
         "\"a.weight_scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[15,19]}}",
         19},
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        struct weft_buf bytes;
        st_build(&bytes, seeds[i].header, seeds[i].n_data);
        add(bytes.data, bytes.len);
        weft_buf_fini(&bytes);
    }
}

/* One of compressed-tensors, whose shape and groups are no pattern. */
static void add_packed(void (*add)(const void *bytes, size_t n)) {
    static const char header[] =
        "{\"a.weight_packed\":{\"dtype\":\"I32\",\"shape\":[2,8],\"data_offsets\":[0,64]},"
        "\"a.weight_zero_point\":{\"dtype\":\"I32\",\"shape\":[1,2],\"data_offsets\":[64,72]},"
        "\"a.weight_scale\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[72,80]},"
        "\"a.weight_g_idx\":{\"dtype\":\"I32\",\"shape\":[64],\"data_offsets\":[80,336]},"
        "\"a.weight_shape\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[336,352]}}";
    const uint64_t shape[2] = {2, 64};
    struct weft_buf bytes;
    st_build(&bytes, header, 352);
    char *data = bytes.data + bytes.len - 352;
    for (uint32_t k = 0; k < 64; k++) {
        uint32_t group = k % 2;
        memcpy(data + 80 + k * sizeof group, &group, sizeof group);
    }
    memcpy(data + 336, shape, sizeof shape);
    add(bytes.data, bytes.len);
    weft_buf_fini(&bytes);
}

/* One matrix of NF4, whose map and state are no pattern. */
static void add_nf4(void (*add)(const void *bytes, size_t n)) {
    static const char state[] = "{\"quant_type\":\"nf4\",\"blocksize\":64,\"shape\":[2,64],"
                                "\"nested_blocksize\":2,\"nested_offset\":0.5}";
    static const char header[] =
        "{\"a.weight\":{\"dtype\":\"U8\",\"shape\":[64,1],\"data_offsets\":[0,64]},"
        "\"a.weight.absmax\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[64,66]},"
        "\"a.weight.nested_absmax\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[66,70]},"
        "\"a.weight.nested_quant_map\":{\"dtype\":\"F32\",\"shape\":[256],"
        "\"data_offsets\":[70,1094]},"
        "\"a.weight.quant_map\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[1094,1158]},"
        "\"a.weight.quant_state.bitsandbytes__nf4\":{\"dtype\":\"U8\",\"shape\":[%zu],"
        "\"data_offsets\":[1158,%zu]}}";
    const size_t n_state = sizeof state - 1;
    struct weft_buf text, bytes;
    weft_buf_init(&text, 4096);
    weft_buf_printf(&text, header, n_state, 1158 + n_state);
    st_build(&bytes, weft_buf_cstr(&text), 1158 + n_state);
    memcpy(bytes.data + bytes.len - n_state, state, n_state);
    memcpy(bytes.data + bytes.len - n_state - sizeof wefti_model_nf4_values, wefti_model_nf4_values,
           sizeof wefti_model_nf4_values);
    add(bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    weft_buf_fini(&text);
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const headers[] = {
        "{}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}",
        "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4,8]},\"__metadata__\":"
        "{\"format\":\"pt\"},\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}  ",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
        "\"f\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1],\"data_offsets\":[4,8]}}",
    };
    struct weft_buf bytes;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        st_build(&bytes, headers[i], i == 0 ? 0 : 8);
        add(bytes.data, bytes.len);
        weft_buf_fini(&bytes);
    }
    st_build_tiny(&bytes);
    add(bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    add_quantised(add);
    add_packed(add);
    add_nf4(add);
}
