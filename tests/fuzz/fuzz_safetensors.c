/* One safetensors file: the header against the data it describes. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/check.h"
#include "model/model_internal.h"
#include "unit/model_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_errmsg why = {{0}};
    struct wefti_file file;
    weft_model *model = wefti_model_new();
    WEFT_ASSERT(model);
    WEFT_ASSERT(wefti_file_borrow("fuzz.safetensors", bytes, n, &file, &why) == WEFT_OK);
    weft_err err = wefti_safetensors_read(model, &file, &why);
    WEFT_ASSERT(!err || why.text[0]);
    if (!err) {
        WEFT_ASSERT(wefti_model_index(model, file.path, &why) == WEFT_OK);
        (void)weft_model_hash(model); /* touches every byte */
    }
    weft_model_free(model);
    wefti_file_close(&file);
    return 0;
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
}
