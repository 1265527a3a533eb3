/* config.json. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/check.h"
#include "model/model_internal.h"
#include "unit/model_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_errmsg why = {{0}};
    struct weft_model_params params = {0};
    struct wefti_file file;
    WEFT_ASSERT(wefti_file_borrow("fuzz.json", bytes, n, &file, &why) == WEFT_OK);
    weft_err err = wefti_config_hf(&file, &params, &why);
    WEFT_ASSERT(!err || why.text[0]);
    WEFT_ASSERT(err || (params.n_heads % params.n_kv_heads == 0 && params.head_dim % 2 == 0));
    wefti_file_close(&file);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const endings[] = {
        "\"rope_scaling\":null,\"tie_word_embeddings\":true,\"attention_bias\":false}",
        "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0},\"head_dim\":16}",
        "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4,\"original_max_position_embeddings\":64}}",
        "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5},"
        "\"sliding_window\":4096}",
    };
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        struct weft_buf text;
        weft_buf_init(&text, 1 << 16);
        weft_buf_add(&text, tiny_config, strlen(tiny_config) - 1);
        weft_buf_printf(&text, ",%s", endings[i]);
        add(text.data, text.len);
        weft_buf_fini(&text);
    }
}
