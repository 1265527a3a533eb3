#include "unit/model_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "inside/model/gguf/gguf.h"
#include "inside/model/hf/hf.h"

char *test_dir_new(void) {
    char *dir = NULL;
    const char *tmp = getenv("TMPDIR");
    int n = asprintf(&dir, "%s/weft-test-XXXXXX", tmp ? tmp : "/tmp");
    WEFT_ASSERT(n > 0 && mkdtemp(dir));
    return dir;
}

void test_dir_free(char *dir) {
    DIR *handle = opendir(dir);
    WEFT_ASSERT(handle);
    for (struct dirent *entry; (entry = readdir(handle));) {
        if (entry->d_name[0] == '.') continue;
        int rc = unlinkat(dirfd(handle), entry->d_name, entry->d_type == DT_DIR ? AT_REMOVEDIR : 0);
        WEFT_ASSERT(rc == 0);
    }
    closedir(handle);
    WEFT_ASSERT(rmdir(dir) == 0);
    free(dir);
}

void test_dir_write(const char *dir, const char *name, const void *bytes, size_t n) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    WEFT_ASSERT(file);
    WEFT_ASSERT(n == 0 || fwrite(bytes, 1, n, file) == n);
    WEFT_ASSERT(fclose(file) == 0);
}

const char *test_source_path(const char *relative) {
    static char paths[4][4096];
    static unsigned turn;
    const char *root = getenv("WEFT_SOURCE_DIR");
    char *path = paths[turn++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", root ? root : ".", relative);
    return path;
}

void test_each_config(const char *zoo, void (*add)(const void *bytes, size_t n)) {
    char path[8192];
    DIR *dir = opendir(zoo);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct weft_errmsg why;
        char *text;
        size_t n;
        (void)snprintf(path, sizeof path, "%s/%s/config.json", zoo, entry->d_name);
        if (weft_file_read(path, WEFT_FILE_REGULAR, 1 << 16, &text, &n, &why)) continue;
        add(text, n);
        free(text);
    }
    (void)closedir(dir);
}

static void put_pattern(struct weft_buf *buf, size_t n) {
    char period[61];
    for (size_t i = 0; i < sizeof period; i++)
        period[i] = (char)(i * 7 % sizeof period);
    for (; n > sizeof period; n -= sizeof period)
        weft_buf_add(buf, period, sizeof period);
    weft_buf_add(buf, period, n);
}

/* ----------------------------------------------------------------------------- safetensors --- */

void st_build(struct weft_buf *out, const char *header, size_t n_data) {
    weft_buf_init(out, strlen(header) + n_data + 8);
    gguf_put(out, strlen(header), 8);
    weft_buf_add_str(out, header);
    put_pattern(out, n_data);
    WEFT_ASSERT(!out->failed);
}

const char tiny_config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":32,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"intermediate_size\":64,\"vocab_size\":8,\"max_position_embeddings\":128,"
    "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"hidden_act\":\"silu\"}";

static const struct {
    const char *hf, *gguf;
    uint32_t n_dims, dims[2]; /* row-major */
} tiny_tensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight", 2, {8, 32}},
    {"model.norm.weight", "output_norm.weight", 1, {32}},
    {"lm_head.weight", "output.weight", 2, {8, 32}},
    {"model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight", 1, {32}},
    {"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight", 2, {32, 32}},
    {"model.layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight", 2, {16, 32}},
    {"model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight", 2, {16, 32}},
    {"model.layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight", 2, {32, 32}},
    {"model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight", 1, {32}},
    {"model.layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight", 2, {64, 32}},
    {"model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight", 2, {64, 32}},
    {"model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight", 2, {32, 64}},
};
#define N_TINY (sizeof tiny_tensors / sizeof tiny_tensors[0])

weft_err test_parse_config(const char *changes, struct weft_model_params *params,
                           struct weft_errmsg *why) {
    json_t *config = json_loads(tiny_config, 0, NULL), *update = json_loads(changes, 0, NULL);
    struct wefti_model_file file;
    WEFT_ASSERT(config && update && json_object_update(config, update) == 0);
    char *text = json_dumps(config, 0);
    WEFT_ASSERT(text && !wefti_model_file_borrow("config.json", text, strlen(text), &file, why));
    memset(params, 0, sizeof *params);
    why->text[0] = 0;
    weft_err err = wefti_model_config_hf(&file, params, why);
    wefti_model_file_close(&file);
    free(text);
    json_decref(update);
    json_decref(config);
    return err;
}

void st_build_tiny(struct weft_buf *out) {
    struct weft_buf header;
    size_t at = 0;
    weft_buf_init(&header, 1 << 20);
    weft_buf_add_str(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < N_TINY; i++) {
        bool matrix = tiny_tensors[i].n_dims == 2;
        uint32_t rows = tiny_tensors[i].dims[0], cols = tiny_tensors[i].dims[1];
        size_t bytes = 4 * (size_t)rows * (matrix ? cols : 1);
        weft_buf_printf(&header, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%u", tiny_tensors[i].hf,
                        rows);
        if (matrix) weft_buf_printf(&header, ",%u", cols);
        weft_buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes);
        at += bytes;
    }
    weft_buf_add_str(&header, "}");
    st_build(out, weft_buf_cstr(&header), at);
    weft_buf_fini(&header);
}

/* ------------------------------------------------------------------------------------ gguf --- */

void gguf_put(struct weft_buf *buf, uint64_t value, size_t n_bytes) {
    weft_buf_add(buf, &value, n_bytes);
}

void gguf_put_str(struct weft_buf *buf, const char *text) {
    gguf_put(buf, strlen(text), 8);
    weft_buf_add_str(buf, text);
}

void gguf_init(struct gguf_builder *b) {
    *b = (struct gguf_builder){.version = 3, .alignment = 32};
    weft_buf_init(&b->kvs, 1 << 20);
    weft_buf_init(&b->infos, 1 << 20);
    weft_buf_init(&b->data, 1 << 20);
}

void gguf_fini(struct gguf_builder *b) {
    weft_buf_fini(&b->kvs);
    weft_buf_fini(&b->infos);
    weft_buf_fini(&b->data);
}

void gguf_key(struct gguf_builder *b, const char *key, uint32_t type) {
    gguf_put_str(&b->kvs, key);
    gguf_put(&b->kvs, type, 4);
    b->n_kvs++;
}

void gguf_u32(struct gguf_builder *b, const char *key, uint32_t value) {
    gguf_key(b, key, WEFT_GGUF_U32);
    gguf_put(&b->kvs, value, 4);
}

void gguf_f32(struct gguf_builder *b, const char *key, float value) {
    gguf_key(b, key, WEFT_GGUF_F32);
    weft_buf_add(&b->kvs, &value, sizeof value);
}

void gguf_str(struct gguf_builder *b, const char *key, const char *value) {
    gguf_key(b, key, WEFT_GGUF_STRING);
    gguf_put_str(&b->kvs, value);
}

static void pad(struct weft_buf *buf, uint64_t alignment) {
    while (buf->len % alignment != 0) {
        weft_buf_add_char(buf, 0);
    }
}

void gguf_tensor_at(struct gguf_builder *b, const char *name, uint32_t type, uint32_t n_dims,
                    const uint64_t *dims, uint64_t offset) {
    gguf_put_str(&b->infos, name);
    gguf_put(&b->infos, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) {
        gguf_put(&b->infos, dims[i], 8);
    }
    gguf_put(&b->infos, type, 4);
    gguf_put(&b->infos, offset, 8);
    b->n_tensors++;
}

void gguf_tensor(struct gguf_builder *b, const char *name, uint32_t type, uint32_t n_dims,
                 const uint64_t *dims, size_t n_bytes) {
    pad(&b->data, b->alignment);
    gguf_tensor_at(b, name, type, n_dims, dims, b->data.len);
    put_pattern(&b->data, n_bytes);
}

void gguf_finish(struct gguf_builder *b, struct weft_buf *out) {
    weft_buf_init(out, 1 << 20);
    weft_buf_add_str(out, "GGUF");
    gguf_put(out, b->version, 4);
    gguf_put(out, b->n_tensors, 8);
    gguf_put(out, b->n_kvs, 8);
    weft_buf_add(out, b->kvs.data, b->kvs.len);
    weft_buf_add(out, b->infos.data, b->infos.len);
    if (b->n_tensors > 0) pad(out, b->alignment);
    weft_buf_add(out, b->data.data, b->data.len);
    WEFT_ASSERT(!out->failed && !b->kvs.failed && !b->infos.failed && !b->data.failed);
}

void gguf_tiny_config(struct gguf_builder *b) {
    gguf_str(b, "general.architecture", "llama");
    gguf_str(b, "general.name", "tiny");
    gguf_u32(b, "llama.block_count", 1);
    gguf_u32(b, "llama.context_length", 128);
    gguf_u32(b, "llama.embedding_length", 32);
    gguf_u32(b, "llama.feed_forward_length", 64);
    gguf_u32(b, "llama.attention.head_count", 2);
    gguf_u32(b, "llama.attention.head_count_kv", 1);
    gguf_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_u32(b, "llama.vocab_size", 8);
}

void gguf_tiny_tensors(struct gguf_builder *b, uint32_t type) {
    gguf_tiny_some(b, type, 0, N_TINY);
}

void gguf_tiny_some(struct gguf_builder *b, uint32_t type, size_t first, size_t end) {
    _Static_assert(GGUF_TINY_TENSORS == N_TINY, "as the header says");
    WEFT_ASSERT(end <= N_TINY);
    for (size_t i = first; i < end; i++) {
        bool matrix = tiny_tensors[i].n_dims == 2;
        uint64_t rows = tiny_tensors[i].dims[0], cols = tiny_tensors[i].dims[1];
        uint64_t dims[2] = {matrix ? cols : rows, rows};
        size_t n = rows * (matrix ? cols : 1);
        enum weft_dtype dtype;
        WEFT_ASSERT(weft_dtype_of_number(matrix ? type : 0, &dtype));
        size_t bytes = n / weft_dtype_block_elems(dtype) * weft_dtype_block_bytes(dtype);
        gguf_tensor(b, tiny_tensors[i].gguf, matrix ? type : 0, matrix ? 2 : 1, dims, bytes);
    }
}

void gguf_build_tiny(struct weft_buf *out, uint32_t type) {
    struct gguf_builder b;
    gguf_init(&b);
    gguf_tiny_config(&b);
    gguf_tiny_tensors(&b, type);
    gguf_finish(&b, out);
    gguf_fini(&b);
}
