/* Adapters: the settings of a PEFT folder with its tensors, and GGUF files. The input is settings, a
 * zero byte and a file of tensors; or a GGUF file alone. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "inside/model/lora/lora_internal.h"
#include "unit/model_files.h"

static const struct weft_model_params params = {
    .arch = "llama",
    .n_layers = 2,
    .n_heads = 2,
    .n_kv_heads = 1,
    .head_dim = 16,
    .n_hidden = 32,
    .n_ffn = 64,
    .n_vocab = 8,
    .moe = {.n_experts = 2, .n_used = 1, .n_ffn = 16},
    .no_experts = {1},
};

/* Every row, as the engine reads it. */
static void touch(weft_lora *lora) {
    size_t n = 0;
    const struct weft_lora_part *parts = weft_lora_parts(lora, &n);
    for (size_t i = 0; i < n; i++) {
        float *row = malloc(sizeof *row * (parts[i].k + parts[i].rank));
        WEFT_ASSERT(row);
        for (uint32_t r = 0; r < parts[i].rank; r++)
            weft_lora_a_row(&parts[i], r, row);
        for (uint32_t r = 0; r < parts[i].n; r++)
            weft_lora_b_row(&parts[i], r, row);
        free(row);
    }
    weft_lora_free(lora);
}

static void read_as(const uint8_t *bytes, size_t n, const wefti_lora_config *config,
                    enum weft_model_format base_format) {
    const struct weft_lora_base base = {&params, base_format, WEFT_LORA_RANK_MAX, 0};
    struct weft_errmsg why = {{0}};
    struct wefti_model_file file;
    weft_lora *lora = NULL;
    WEFT_ASSERT(wefti_model_file_borrow("fuzz", bytes, n, &file, &why) == WEFT_OK);
    weft_err err = wefti_lora_from_file(&file, config, &base, &lora, &why);
    WEFT_ASSERT(!err || why.text[0]);
    if (!err) touch(lora);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_errmsg why = {{0}};
    wefti_lora_config *config = NULL;
    const uint8_t *zero = n > 4 && memcmp(bytes, "GGUF", 4) != 0 ? memchr(bytes, 0, n) : NULL;
    if (!zero) {
        read_as(bytes, n, NULL, WEFT_MODEL_HF);
        return 0;
    }
    size_t n_config = (size_t)(zero - bytes);
    weft_err err = wefti_lora_config_parse("fuzz", (const char *)bytes, n_config, &config, &why);
    WEFT_ASSERT(!err || why.text[0]);
    /* From a block of its own size, where a read past the end is seen. */
    uint8_t *rest = malloc(n - n_config);
    WEFT_ASSERT(rest);
    memcpy(rest, zero + 1, n - n_config - 1);
    if (!err) read_as(rest, n - n_config - 1, config, WEFT_MODEL_GGUF);
    free(rest);
    wefti_lora_config_free(config);
    return 0;
}

static void add_peft(void (*add)(const void *bytes, size_t n), const char *settings,
                     const char *header, size_t n_data) {
    struct weft_buf bytes, tensors;
    st_build(&tensors, header, n_data);
    weft_buf_init(&bytes, 1 << 20);
    weft_buf_add(&bytes, settings, strlen(settings) + 1);
    weft_buf_add(&bytes, tensors.data, tensors.len);
    add(bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    weft_buf_fini(&tensors);
}

static void add_gguf(void (*add)(const void *bytes, size_t n)) {
    static const uint64_t a[] = {32, 2}, b[] = {2, 32}, stack_a[] = {32, 1, 2},
                          stack_b[] = {1, 16, 2};
    struct gguf_builder builder;
    struct weft_buf bytes;
    gguf_init(&builder);
    gguf_str(&builder, "general.architecture", "llama");
    gguf_str(&builder, "general.type", "adapter");
    gguf_str(&builder, "adapter.type", "lora");
    gguf_f32(&builder, "adapter.lora.alpha", 4);
    gguf_tensor(&builder, "blk.0.attn_q.weight.lora_a", 0, 2, a, 256);
    gguf_tensor(&builder, "blk.0.attn_q.weight.lora_b", 0, 2, b, 256);
    gguf_tensor(&builder, "blk.1.ffn_up_exps.weight.lora_a", 0, 3, stack_a, 256);
    gguf_tensor(&builder, "blk.1.ffn_up_exps.weight.lora_b", 0, 3, stack_b, 128);
    gguf_finish(&builder, &bytes);
    add(bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    gguf_fini(&builder);
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char settings[] =
        "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"target_modules\":[\"q_proj\",\"w1\"],"
        "\"rank_pattern\":{\"w1\":1},\"alpha_pattern\":{\".*q_proj\":3},\"use_rslora\":true,"
        "\"layers_to_transform\":[0,1]}";
    static const char header[] =
        "{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":{\"dtype\":\"F32\","
        "\"shape\":[2,32],\"data_offsets\":[0,256]},"
        "\"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight\":{\"dtype\":\"F32\","
        "\"shape\":[32,2],\"data_offsets\":[256,512]},"
        "\"base_model.model.model.layers.1.block_sparse_moe.experts.1.w1.lora_A.weight\":{"
        "\"dtype\":\"F16\",\"shape\":[1,32],\"data_offsets\":[512,576]},"
        "\"base_model.model.model.layers.1.block_sparse_moe.experts.1.w1.lora_B.weight\":{"
        "\"dtype\":\"BF16\",\"shape\":[16,1],\"data_offsets\":[576,608]}}";
    add_peft(add, settings, header, 608);
    add_peft(add, "{\"peft_type\":\"LORA\",\"r\":1,\"lora_alpha\":1,\"target_modules\":\".*\"}",
             "{}", 0);
    add_gguf(add);
}
