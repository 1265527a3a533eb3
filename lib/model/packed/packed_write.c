/* Packed files, written: everything but the arena, which is the engine's. The header comes last: a
 * file without one is nothing. */
#include "packed.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/check.h"
#include "gguf/gguf.h"

/* The small files of a folder that somebody may want: a few megabytes. And its pooling's. */
static const char *const small_files[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
};
#define SMALL_FILE_BYTES_MAX (256u << 20)
_Static_assert(3 + sizeof small_files / sizeof small_files[0] <= WEFTI_MODEL_PACKED_SECTIONS_MAX,
               "with the name, the tensors and a pooling, all of them are read again");

static void put_u32(struct weft_buf *out, uint32_t value) {
    for (int i = 0; i < 4; i++, value >>= 8)
        weft_buf_add_char(out, (char)(unsigned char)value);
}

static void put_u64(struct weft_buf *out, uint64_t value) {
    put_u32(out, (uint32_t)value);
    put_u32(out, (uint32_t)(value >> 32));
}

static void put_section(struct weft_buf *out, const char *name, const void *bytes, size_t n,
                        uint32_t *n_sections) {
    put_u32(out, (uint32_t)strlen(name));
    weft_buf_add_str(out, name);
    put_u64(out, n);
    weft_buf_add(out, bytes, n);
    ++*n_sections;
}

static void put_tensors(const weft_model *model, const enum weft_dtype *stored,
                        struct weft_buf *out) {
    put_u32(out, (uint32_t)model->n_tensors);
    for (size_t i = 0; i < model->n_tensors; i++) {
        const struct weft_tensor *tensor = &model->tensors[i];
        bool has_values = wefti_model_role_is_read(tensor->name);
        WEFT_ASSERT(stored[i] < WEFT_DT_COUNT);
        WEFT_ASSERT(!has_values || tensor->data);
        put_u32(out, (uint32_t)strlen(tensor->name));
        weft_buf_add_str(out, tensor->name);
        put_u32(out, weft_dtypes[tensor->dtype].file_number);
        put_u32(out, weft_dtypes[stored[i]].file_number);
        put_u32(out, tensor->n_dims);
        for (uint32_t d = 0; d < tensor->n_dims; d++)
            put_u64(out, tensor->dims[d]);
        put_u64(out, has_values ? tensor->bytes : 0);
        if (has_values) weft_buf_add(out, tensor->data, tensor->bytes);
    }
}

/* Nothing, if it is not there. */
static weft_err put_file(const char *dir, const char *name, struct weft_buf *out,
                         uint32_t *n_sections, struct weft_errmsg *why) {
    char *text;
    size_t len;
    struct weft_errmsg missing = {""};
    weft_err err = weft_model_read_in(dir, name, SMALL_FILE_BYTES_MAX, &text, &len, &missing);
    if (err == WEFT_E_NOTFOUND) return WEFT_OK;
    if (err) return weft_err_set(why, err, "%s", missing.text);
    put_section(out, name, text, len, n_sections);
    free(text);
    return WEFT_OK;
}

/* The source's metadata, or its small files. */
static weft_err put_source(const struct weft_model_place *place, struct weft_buf *out,
                           uint32_t *n_sections, struct weft_errmsg *why) {
    char pooling[WEFTI_MODEL_POOLING_NAME_BYTES];
    if (place->format == WEFT_MODEL_GGUF) {
        weft_gguf *gguf;
        weft_err err = weft_gguf_open(place->path, &gguf, why);
        if (err) return err;
        put_section(out, "gguf", gguf->file.bytes, gguf->tensors_at, n_sections);
        weft_gguf_free(gguf);
        return WEFT_OK;
    }
    weft_err err = wefti_model_pooling_file(place->path, pooling, why);
    for (size_t i = 0; i < sizeof small_files / sizeof small_files[0] && !err; i++)
        err = put_file(place->path, small_files[i], out, n_sections, why);
    if (!err && *pooling) err = put_file(place->path, pooling, out, n_sections, why);
    return err;
}

static weft_err put_sections(const struct weft_model_place *place,
                             const struct weft_packed_source *source, struct weft_buf *out,
                             uint32_t *n_sections, struct weft_errmsg *why) {
    const char *name = source->model->params.name;
    struct weft_buf tensors;
    weft_buf_init(&tensors, WEFTI_MODEL_PACKED_META_BYTES_MAX);
    put_section(out, "name", name, strlen(name), n_sections);
    put_tensors(source->model, source->stored, &tensors);
    put_section(out, "tensors", tensors.data, tensors.len, n_sections);
    weft_err err = put_source(place, out, n_sections, why);
    if (!err && (out->failed || tensors.failed))
        err = weft_err_set(why, WEFT_E_NOMEM, "%s: no memory for what is not its weights",
                           place->path);
    weft_buf_fini(&tensors);
    return err;
}

static void put_header(const struct weft_packed *packed, enum weft_model_format format,
                       const struct weft_buf *sections, uint32_t n_sections, struct weft_buf *out) {
    weft_buf_add_str(out, WEFTI_MODEL_PACKED_MAGIC);
    put_u32(out, WEFT_PACKED_VERSION);
    put_u32(out, (uint32_t)format);
    put_u64(out, packed->arena_bytes + sections->len);
    put_u64(out, packed->arena_bytes);
    put_u64(out, packed->layout_hash);
    put_u64(out, packed->weights_hash);
    put_u32(out, n_sections);
    put_u32(out, 0);
    weft_buf_add(out, packed->packed_as, sizeof packed->packed_as);
    put_u64(out, XXH3_64bits(sections->data, sections->len));
    WEFT_ASSERT(out->failed || out->len == WEFTI_MODEL_PACKED_HASH_AT);
    if (!out->failed) put_u64(out, XXH3_64bits(out->data, out->len));
}

weft_err weft_packed_finish(int fd, const char *out_path, const struct weft_packed_source *source,
                            const struct weft_packed *packed, struct weft_errmsg *why) {
    struct weft_model_place place;
    struct weft_buf sections, header;
    uint32_t n_sections = 0;
    WEFT_ASSERT(packed->arena_bytes > 0 && packed->arena_bytes % WEFT_PACKED_PAGE == 0);
    WEFT_ASSERT(!weft_model_packed(source->model));
    weft_err err = weft_model_locate(source->path, &place, why);
    if (err) return err;
    weft_buf_init(&sections, WEFTI_MODEL_PACKED_META_BYTES_MAX);
    weft_buf_init(&header, WEFT_PACKED_PAGE);
    err = put_sections(&place, source, &sections, &n_sections, why);
    if (err) goto cleanup;
    put_header(packed, place.format, &sections, n_sections, &header);
    if (header.failed) {
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for a header");
        goto cleanup;
    }
    err = wefti_model_file_put(fd, out_path, sections.data, sections.len, packed->arena_bytes, why);
    if (!err) err = wefti_model_file_put(fd, out_path, header.data, header.len, 0, why);
cleanup:
    weft_buf_fini(&header);
    weft_buf_fini(&sections);
    weft_model_place_fini(&place);
    return err;
}
