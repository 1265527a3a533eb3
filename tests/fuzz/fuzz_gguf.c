/* GGUF: metadata with every accessor on every key, then the whole model. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "inside/model/gguf/gguf.h"
#include "unit/model_files.h"

static void read_strings(const weft_gguf *gguf, const char *key, size_t count) {
    struct weft_str str;
    volatile char sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!weft_gguf_array_str(gguf, key, i, &str)) break;
        for (size_t k = 0; k < str.len; k++) {
            sum = (char)(sum ^ str.data[k]);
        }
    }
}

static void read_key(const weft_gguf *gguf, const char *key) {
    uint64_t u;
    int64_t i;
    double f;
    bool b;
    struct weft_str str;
    enum weft_gguf_type type;
    size_t count;
    (void)weft_gguf_u64(gguf, key, &u);
    (void)weft_gguf_f64(gguf, key, &f);
    (void)weft_gguf_bool(gguf, key, &b);
    (void)weft_gguf_str(gguf, key, &str);
    if (!weft_gguf_array(gguf, key, &type, &count)) return;
    WEFT_ASSERT(!weft_gguf_array_i64(gguf, key, count, &i));
    WEFT_ASSERT(!weft_gguf_array_f64(gguf, key, count, &f));
    if (count == 0) return;
    (void)weft_gguf_array_i64(gguf, key, count - 1, &i);
    (void)weft_gguf_array_f64(gguf, key, count - 1, &f);
    read_strings(gguf, key, count);
}

static void read_metadata(const weft_gguf *gguf) {
    for (size_t k = 0; k < weft_gguf_n_keys(gguf); k++) {
        enum weft_gguf_type type;
        char key[256];
        struct weft_str str = weft_gguf_key(gguf, k, &type);
        if (str.len >= sizeof key || memchr(str.data, 0, str.len)) continue;
        memcpy(key, str.data, str.len);
        key[str.len] = 0;
        read_key(gguf, key);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_errmsg why = {{0}};
    struct wefti_model_file file;
    weft_gguf *gguf;
    weft_model *model;
    WEFT_ASSERT(wefti_model_file_borrow("fuzz.gguf", bytes, n, &file, &why) == WEFT_OK);
    weft_err err = wefti_model_gguf_parse(&file, &gguf, &why);
    WEFT_ASSERT(!err || why.text[0]);
    if (err) return 0;
    read_metadata(gguf);
    weft_gguf_free(gguf);
    WEFT_ASSERT(wefti_model_file_borrow("fuzz.gguf", bytes, n, &file, &why) == WEFT_OK);
    err = wefti_model_from_gguf(&file, &model, &why);
    WEFT_ASSERT(!err || why.text[0]);
    if (err) return 0;
    struct weft_rope rope;
    weft_model_rope(model, true, true, &rope);
    (void)weft_model_hash(model);
    weft_model_free(model);
    return 0;
}

static void add_arrays(struct gguf_builder *b) {
    gguf_key(b, "tokenizer.ggml.tokens", WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_STRING, 4);
    gguf_put(&b->kvs, 2, 8);
    gguf_put_str(&b->kvs, "one");
    gguf_put_str(&b->kvs, "two");
    gguf_key(b, "tokenizer.ggml.scores", WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_F32, 4);
    gguf_put(&b->kvs, 2, 8);
    gguf_put(&b->kvs, 0, 8);
    gguf_key(b, "nested", WEFT_GGUF_ARRAY);
    gguf_put(&b->kvs, WEFT_GGUF_ARRAY, 4);
    gguf_put(&b->kvs, 1, 8);
    gguf_put(&b->kvs, WEFT_GGUF_I16, 4);
    gguf_put(&b->kvs, 2, 8);
    gguf_put(&b->kvs, 0, 4);
    gguf_key(b, "flag", WEFT_GGUF_BOOL);
    gguf_put(&b->kvs, 1, 1);
}

enum {
    HIDDEN = 32,
    HEADS = 2,
    LORA = 8,
    NOPE = 4,
    ROPE = 2,
    VALUE = 6,
    INDEX_HEADS = 3,
    INDEX = 4,
    FFN = 16,
    VOCAB = 8,
    EXPERTS = 4
};

static void put_matrix(struct gguf_builder *b, const char *name, uint64_t rows, uint64_t columns) {
    const uint64_t dims[] = {columns, rows};
    gguf_tensor(b, name, 0, 2, dims, rows * columns * sizeof(float));
}

static void put_vector(struct gguf_builder *b, const char *name, uint64_t n) {
    gguf_tensor(b, name, 0, 1, &n, n * sizeof(float));
}

static void put_experts(struct gguf_builder *b, const char *name, uint64_t rows, uint64_t columns) {
    const uint64_t dims[] = {columns, rows, EXPERTS};
    gguf_tensor(b, name, 0, 3, dims, EXPERTS * rows * columns * sizeof(float));
}

static void put_ffn(struct gguf_builder *b, bool experts) {
    put_vector(b, "blk.0.ffn_norm.weight", HIDDEN);
    if (experts) {
        put_matrix(b, "blk.0.ffn_gate_inp.weight", EXPERTS, HIDDEN);
        put_vector(b, "blk.0.exp_probs_b.bias", EXPERTS);
        put_experts(b, "blk.0.ffn_gate_exps.weight", FFN, HIDDEN);
        put_experts(b, "blk.0.ffn_up_exps.weight", FFN, HIDDEN);
        put_experts(b, "blk.0.ffn_down_exps.weight", HIDDEN, FFN);
    }
    put_matrix(b, experts ? "blk.0.ffn_gate_shexp.weight" : "blk.0.ffn_gate.weight", FFN, HIDDEN);
    put_matrix(b, experts ? "blk.0.ffn_up_shexp.weight" : "blk.0.ffn_up.weight", FFN, HIDDEN);
    put_matrix(b, experts ? "blk.0.ffn_down_shexp.weight" : "blk.0.ffn_down.weight", HIDDEN, FFN);
}

enum latent {
    OLDER,
    NEWER,
    INDEXED
}; /* as older files describe it; with experts; and an indexer */

/* A model of one layer with latent attention. */
static void add_latent(void (*add)(const void *bytes, size_t n), enum latent latent) {
    const bool older = latent == OLDER, indexed = latent == INDEXED;
    const char *arch = indexed ? "deepseek32" : "deepseek2";
    char name[96];
    static const struct {
        const char *key;
        uint32_t older, newer; /* 0: not there */
    } keys[] = {
        {".block_count", 1, 1},
        {".context_length", 64, 64},
        {".embedding_length", HIDDEN, HIDDEN},
        {".feed_forward_length", FFN, FFN},
        {".vocab_size", VOCAB, VOCAB},
        {".attention.head_count", HEADS, HEADS},
        {".attention.head_count_kv", HEADS, 1},
        {".attention.kv_lora_rank", LORA, LORA},
        {".attention.q_lora_rank", 0, 3},
        {".attention.key_length", NOPE + ROPE, LORA + ROPE},
        {".attention.value_length", VALUE, LORA},
        {".attention.key_length_mla", 0, NOPE + ROPE},
        {".attention.value_length_mla", 0, VALUE},
        {".rope.dimension_count", ROPE, ROPE},
        {".expert_count", 0, EXPERTS},
        {".expert_used_count", 0, 2},
        {".expert_feed_forward_length", 0, FFN},
        {".expert_shared_count", 0, 1},
        {".expert_gating_func", 0, 2},
        {".expert_group_count", 0, 2},
        {".expert_group_used_count", 0, 1},
        {".attention.indexer.head_count", 0, INDEX_HEADS},
        {".attention.indexer.key_length", 0, INDEX},
        {".attention.indexer.top_k", 0, 5},
    };
    static const uint64_t k_dims[] = {NOPE, LORA, HEADS}, v_dims[] = {LORA, VALUE, HEADS};
    struct gguf_builder b;
    struct weft_buf bytes;
    gguf_init(&b);
    gguf_str(&b, "general.architecture", arch);
    (void)snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_f32(&b, name, 1e-6f);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        uint32_t value = older ? keys[i].older : keys[i].newer;
        if (!value || (strstr(keys[i].key, "indexer") && !indexed)) continue;
        (void)snprintf(name, sizeof name, "%s%s", arch, keys[i].key);
        gguf_u32(&b, name, value);
    }
    if (indexed) {
        put_matrix(&b, "blk.0.indexer.attn_q_b.weight", (uint64_t)INDEX_HEADS * INDEX, 3);
        put_matrix(&b, "blk.0.indexer.attn_k.weight", INDEX, HIDDEN);
        put_vector(&b, "blk.0.indexer.k_norm.weight", INDEX);
        put_vector(&b, "blk.0.indexer.k_norm.bias", INDEX);
        put_matrix(&b, "blk.0.indexer.proj.weight", INDEX_HEADS, HIDDEN);
    }
    put_matrix(&b, "token_embd.weight", VOCAB, HIDDEN);
    put_vector(&b, "output_norm.weight", HIDDEN);
    put_vector(&b, "blk.0.attn_norm.weight", HIDDEN);
    put_vector(&b, "blk.0.attn_kv_a_norm.weight", LORA);
    put_matrix(&b, "blk.0.attn_kv_a_mqa.weight", LORA + ROPE, HIDDEN);
    put_matrix(&b, "blk.0.attn_output.weight", HIDDEN, (uint64_t)HEADS * VALUE);
    if (older) {
        put_matrix(&b, "blk.0.attn_q.weight", (uint64_t)HEADS * (NOPE + ROPE), HIDDEN);
        put_matrix(&b, "blk.0.attn_kv_b.weight", (uint64_t)HEADS * (NOPE + VALUE), LORA);
    } else {
        put_matrix(&b, "blk.0.attn_q_a.weight", 3, HIDDEN);
        put_vector(&b, "blk.0.attn_q_a_norm.weight", 3);
        put_matrix(&b, "blk.0.attn_q_b.weight", (uint64_t)HEADS * (NOPE + ROPE), 3);
        gguf_tensor(&b, "blk.0.attn_k_b.weight", 0, 3, k_dims, sizeof(float) * NOPE * LORA * HEADS);
        gguf_tensor(&b, "blk.0.attn_v_b.weight", 0, 3, v_dims,
                    sizeof(float) * LORA * VALUE * HEADS);
    }
    put_ffn(&b, !older);
    gguf_finish(&b, &bytes);
    add(bytes.data, bytes.len);
    weft_buf_fini(&bytes);
    gguf_fini(&b);
}

/* Tables of tensors whose blocks have more columns than the model. */
static void add_wide_blocks(void (*add)(const void *bytes, size_t n)) {
    static const uint32_t types[4][3] = {{23, 21, 18}, {22, 17, 16}, {29, 19, 40}, {35, 34, 12}};
    static const uint64_t dims[] = {256, 1};
    for (size_t i = 0; i < 4; i++) {
        struct gguf_builder b;
        struct weft_buf bytes;
        gguf_init(&b);
        gguf_tiny_config(&b);
        for (size_t t = 0; t < 3; t++) {
            const char name[] = {(char)('a' + t), '.', 'w', 'e', 'i', 'g', 'h', 't', 0};
            enum weft_dtype dtype;
            WEFT_ASSERT(weft_dtype_of_number(types[i][t], &dtype));
            gguf_tensor(&b, name, types[i][t], 2, dims,
                        256 / weft_dtype_block_elems(dtype) * weft_dtype_block_bytes(dtype));
        }
        if (i == 2) { /* of its NVFP4 */
            gguf_tensor(&b, "c.scale", 0, 1, dims + 1, sizeof(float));
            gguf_tensor(&b, "c.input_scale", 0, 1, dims + 1, sizeof(float));
        }
        gguf_finish(&b, &bytes);
        add(bytes.data, bytes.len);
        weft_buf_fini(&bytes);
        gguf_fini(&b);
    }
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const uint32_t types[] = {0, 1, 6, 7, 8, 20, 30, 39};
    static const uint64_t half_head[] = {8};
    add_latent(add, OLDER);
    add_latent(add, NEWER);
    add_latent(add, INDEXED);
    add_wide_blocks(add);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct gguf_builder b;
        struct weft_buf bytes;
        gguf_init(&b);
        gguf_tiny_config(&b);
        gguf_u32(&b, "general.alignment", 32);
        gguf_f32(&b, "llama.rope.scaling.factor", 2);
        gguf_str(&b, "llama.rope.scaling.type", i % 3 ? "yarn" : "none");
        add_arrays(&b);
        if (i % 2) gguf_tensor(&b, "rope_freqs.weight", 0, 1, half_head, 32);
        if (i % 4 == 2) {
            gguf_tensor(&b, "rope_factors_long.weight", 1, 1, half_head, 16);
            gguf_tensor(&b, "rope_factors_short.weight", 1, 1, half_head, 16);
        }
        gguf_tiny_tensors(&b, types[i]);
        gguf_finish(&b, &bytes);
        add(bytes.data, bytes.len);
        weft_buf_fini(&bytes);
        gguf_fini(&b);
    }
}
