/* model_files — builds small model files in memory and in a temporary folder, for tests. */
#ifndef WEFT_TESTS_MODEL_FILES_H
#define WEFT_TESTS_MODEL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "model/model.h"

/* A fresh folder; *_free removes the files in it, and the folder. Both die loudly. */
char *test_dir_new(void);
void test_dir_free(char *dir);
void test_dir_write(const char *dir, const char *name, const void *bytes, size_t n);

/* "$WEFT_SOURCE_DIR/<relative>", in a static buffer; four calls may be held at a time. */
const char *test_source_path(const char *relative);

/* The config.json of every folder in `zoo`, which need not be there. */
void test_each_config(const char *zoo, void (*add)(const void *bytes, size_t n));

/* ----------------------------------------------------------------------------- safetensors --- */

/* header length, header, n_data bytes of a fixed pattern */
void st_build(struct weft_buf *out, const char *header, size_t n_data);

/* config.json and the safetensors bytes of a model of one layer: hidden 32, 2 heads of 16, 1 KV
 * head, ffn 64, vocabulary 8, untied, F32. */
extern const char tiny_config[];
void st_build_tiny(struct weft_buf *out);

/* Reads tiny_config with the keys of `changes`, a JSON object, replaced. */
weft_err test_parse_config(const char *changes, struct weft_model_params *params,
                           struct weft_errmsg *why);

/* ------------------------------------------------------------------------------------ gguf --- */

struct gguf_builder {
    struct weft_buf kvs, infos, data;
    uint32_t version;
    uint64_t n_kvs, n_tensors, alignment;
};

void gguf_init(struct gguf_builder *b);
void gguf_fini(struct gguf_builder *b);
void gguf_key(struct gguf_builder *b, const char *key, uint32_t type); /* the value is up to you */
void gguf_u32(struct gguf_builder *b, const char *key, uint32_t value);
void gguf_f32(struct gguf_builder *b, const char *key, float value);
void gguf_str(struct gguf_builder *b, const char *key, const char *value);
void gguf_put(struct weft_buf *buf, uint64_t value, size_t n_bytes);
void gguf_put_str(struct weft_buf *buf, const char *text);
/* dims as in the file, innermost first; the data follows the last tensor's, aligned. */
void gguf_tensor(struct gguf_builder *b, const char *name, uint32_t type, uint32_t n_dims,
                 const uint64_t *dims, size_t n_bytes);
/* As gguf_tensor, but at the offset given and without data. */
void gguf_tensor_at(struct gguf_builder *b, const char *name, uint32_t type, uint32_t n_dims,
                    const uint64_t *dims, uint64_t offset);
void gguf_finish(struct gguf_builder *b, struct weft_buf *out);

/* Metadata and tensors of the same tiny model; norms F32, the rest `type` (0 F32, 1 F16, 8 Q8_0,
 * 30 BF16). */
void gguf_tiny_config(struct gguf_builder *b);
void gguf_tiny_tensors(struct gguf_builder *b, uint32_t type);
/* Those from `first` up to `end` of them all. */
enum { GGUF_TINY_TENSORS = 12 };
void gguf_tiny_some(struct gguf_builder *b, uint32_t type, size_t first, size_t end);
void gguf_build_tiny(struct weft_buf *out, uint32_t type);

#endif
