/* config.json. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "inside/model/hf/hf.h"
#include "unit/model_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_errmsg why = {{0}};
    struct weft_model_params params = {0};
    struct wefti_model_file file;
    WEFT_ASSERT(wefti_model_file_borrow("fuzz.json", bytes, n, &file, &why) == WEFT_OK);
    weft_err err = wefti_model_config_hf(&file, &params, &why);
    WEFT_ASSERT(!err || why.text[0]);
    WEFT_ASSERT(err || (params.n_heads % params.n_kv_heads == 0 && params.rope_dim % 2 == 0));
    wefti_model_file_close(&file);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const endings[] = {
        "\"rope_scaling\":null,\"tie_word_embeddings\":true,\"attention_bias\":false}",
        "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0},\"head_dim\":16}",
        "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4,\"original_max_position_embeddings\":64}}",
        "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":32,\"mscale_all_dim\":1}}",
        "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,2],"
        "\"long_factor\":[1,2,3,4,5,6]},\"partial_rotary_factor\":0.75,"
        "\"original_max_position_embeddings\":64}",
        "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5},"
        "\"sliding_window\":4096}",
        "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"
        "\"pack-quantized\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4,\"type\":\"int\","
        "\"symmetric\":false,\"strategy\":\"group\",\"group_size\":32,\"actorder\":\"group\"}},"
        "\"b\":{\"weights\":null,\"format\":null}},\"sparsity_config\":{}}}",
        "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"
        "\"naive-quantized\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":8,\"type\":"
        "\"float\",\"strategy\":\"block\",\"block_structure\":[128,128]}}}}}",
    };
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        struct weft_buf text;
        weft_buf_init(&text, 1 << 16);
        weft_buf_add(&text, tiny_config, strlen(tiny_config) - 1);
        weft_buf_printf(&text, ",%s", endings[i]);
        add(text.data, text.len);
        weft_buf_fini(&text);
    }
    const char *shared = getenv("WEFT_SHARED_DIR");
    char folder[4096];
    test_each_config(test_source_path("tests/data/zoo"), add);
    test_each_config(test_source_path("tests/data/embed"), add);
    test_each_config(test_source_path("tests/data/formats"), add);
    (void)snprintf(folder, sizeof folder, "%s/zoo2", shared ? shared : "../shared");
    test_each_config(folder, add);
}
