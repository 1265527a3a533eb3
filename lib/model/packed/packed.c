/* Packed files, read. The header is one page: what follows is checked against it and against its
 * sums before anything is believed, so that a damaged file is told from a foreign one. Hostile
 * bytes can forge the sums: every count, length and type is checked all the same.
 *
 *      0  "WEFTPACK"       16  u64 bytes of the file       48  u32 sections, u32 zero
 *      8  u32 version      24  u64 bytes of the arena      56  packed_as[32], padded with zeros
 *     12  u32 format       32  u64 hash of the layout      88  u64 XXH3 of all after the arena
 *                          40  u64 hash of the weights     96  u64 XXH3 of these 96 bytes */
#include "packed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/cursor.h"
#include "gguf/gguf.h"
#include "hf/hf.h"
#include "params.h"

bool wefti_model_packed_is(const void *bytes, size_t n) {
    return n >= 8 && memcmp(bytes, WEFTI_MODEL_PACKED_MAGIC, 8) == 0;
}

/* ------------------------------------------------------------------------------ the header --- */

static weft_err damaged(const char *path, const char *what, struct weft_errmsg *why) {
    return weft_err_set(why, WEFT_E_PROTO, "%s: is a damaged packed file: %s", path, what);
}

/* Printable ASCII up to its first zero, and nothing after that. */
static bool is_label(const char *text, size_t bytes) {
    size_t len = strnlen(text, bytes);
    for (size_t i = 0; i < bytes; i++) {
        bool fits = i < len ? text[i] >= 0x20 && text[i] < 0x7f : text[i] == 0;
        if (!fits) return false;
    }
    return len > 0 && len < bytes;
}

static weft_err check_sizes(const struct wefti_model_file *file, uint64_t file_bytes,
                            uint64_t arena_bytes, struct weft_errmsg *why) {
    if (file_bytes != file->n_bytes)
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: is a damaged packed file: it has %zu bytes of %" PRIu64,
                            file->path, file->n_bytes, file_bytes);
    if (arena_bytes < WEFT_PACKED_PAGE || arena_bytes % WEFT_PACKED_PAGE ||
        arena_bytes > file_bytes || file_bytes - arena_bytes > WEFTI_MODEL_PACKED_META_BYTES_MAX)
        return damaged(file->path, "its parts do not fit its size", why);
    return WEFT_OK;
}

static weft_err read_header(const struct wefti_model_file *file,
                            struct wefti_model_packed_view *view, uint64_t *meta_hash_out,
                            struct weft_errmsg *why) {
    struct weft_cursor cur;
    struct weft_packed *facts = &view->facts;
    if (!wefti_model_packed_is(file->bytes, file->n_bytes))
        return weft_err_set(why, WEFT_E_PROTO, "%s: is not a packed file", file->path);
    if (file->n_bytes < WEFT_PACKED_PAGE)
        return damaged(file->path, "it ends within its header", why);
    weft_cursor_init(&cur, file->bytes + 8, WEFT_PACKED_PAGE - 8);
    uint32_t version = weft_cursor_u32(&cur);
    if (version != WEFT_PACKED_VERSION)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: was packed in version %u of the format and this weft reads %u: "
                            "pack the model anew",
                            file->path, version, WEFT_PACKED_VERSION);
    uint32_t format = weft_cursor_u32(&cur);
    uint64_t file_bytes = weft_cursor_u64(&cur);
    facts->arena_bytes = weft_cursor_u64(&cur);
    facts->layout_hash = weft_cursor_u64(&cur);
    facts->weights_hash = weft_cursor_u64(&cur);
    view->n_sections = weft_cursor_u32(&cur);
    uint32_t zero = weft_cursor_u32(&cur);
    const unsigned char *label = weft_cursor_take(&cur, sizeof facts->packed_as);
    *meta_hash_out = weft_cursor_u64(&cur);
    uint64_t hash = weft_cursor_u64(&cur);
    WEFT_ASSERT(label && !cur.failed); /* a page holds it all */
    memcpy(facts->packed_as, label, sizeof facts->packed_as);
    if (hash != XXH3_64bits(file->bytes, WEFTI_MODEL_PACKED_HASH_AT))
        return damaged(file->path, "the sum of its header is wrong", why);
    if (format > WEFT_MODEL_GGUF || zero != 0 ||
        view->n_sections > WEFTI_MODEL_PACKED_SECTIONS_MAX ||
        !is_label(facts->packed_as, sizeof facts->packed_as))
        return damaged(file->path, "its header says what none says", why);
    view->format = (enum weft_model_format)format;
    return check_sizes(file, file_bytes, facts->arena_bytes, why);
}

/* False: the rest is no section. */
static bool next_section(struct weft_cursor *cur, struct weft_str *name_out,
                         struct weft_str *bytes_out) {
    uint32_t name_len = weft_cursor_u32(cur);
    *name_out = (struct weft_str){(const char *)weft_cursor_take(cur, name_len), name_len};
    uint64_t len = weft_cursor_u64(cur);
    *bytes_out = (struct weft_str){(const char *)weft_cursor_take(cur, len), len};
    return !cur->failed;
}

weft_err wefti_model_packed_parse(const struct wefti_model_file *file,
                                  struct wefti_model_packed_view *view_out,
                                  struct weft_errmsg *why) {
    struct wefti_model_packed_view view = {0};
    struct weft_str name, bytes;
    struct weft_cursor cur;
    uint64_t meta_hash = 0;
    *view_out = view;
    weft_err err = read_header(file, &view, &meta_hash, why);
    if (err) return err;
    view.sections = file->bytes + view.facts.arena_bytes;
    view.sections_bytes = file->n_bytes - (size_t)view.facts.arena_bytes;
    if (meta_hash != XXH3_64bits(view.sections, view.sections_bytes))
        return damaged(file->path, "the sum of what the model came with is wrong", why);
    weft_cursor_init(&cur, view.sections, view.sections_bytes);
    for (uint32_t i = 0; i < view.n_sections; i++) {
        if (!next_section(&cur, &name, &bytes))
            return damaged(file->path, "a section reaches past its end", why);
    }
    if (weft_cursor_left(&cur) > 0)
        return damaged(file->path, "something follows its last section", why);
    *view_out = view;
    return WEFT_OK;
}

bool wefti_model_packed_find(const struct wefti_model_packed_view *view, const char *name,
                             struct weft_str *section_out) {
    struct weft_cursor cur;
    struct weft_str key, bytes;
    *section_out = (struct weft_str){NULL, 0};
    weft_cursor_init(&cur, view->sections, view->sections_bytes);
    for (uint32_t i = 0; i < view->n_sections && next_section(&cur, &key, &bytes); i++) {
        if (key.len != strlen(name) || memcmp(key.data, name, key.len) != 0) continue;
        *section_out = bytes;
        return true;
    }
    return false;
}

weft_err wefti_model_packed_narrow_to_gguf(struct wefti_model_file *file, struct weft_errmsg *why) {
    struct wefti_model_packed_view view;
    struct weft_str section;
    weft_err err = wefti_model_packed_parse(file, &view, why);
    if (err) return err;
    if (view.format != WEFT_MODEL_GGUF || !wefti_model_packed_find(&view, "gguf", &section))
        return weft_err_set(why, WEFT_E_PROTO, "%s: was not packed from a GGUF file", file->path);
    file->bytes = (const unsigned char *)section.data;
    file->n_bytes = section.len;
    return WEFT_OK;
}

/* ------------------------------------------------------------------------------- the model --- */

struct reader {
    weft_model *model;
    const char *path;
    struct weft_cursor cur;
    struct weft_errmsg *why;
};

/* Whether tensors of an opened model have this type. */
static bool read_type(uint32_t number, enum weft_dtype *dtype_out) {
    return weft_dtype_of_number(number, dtype_out) &&
           weft_dtypes[*dtype_out].class <= WEFT_DTYPE_FOLDER;
}

/* Blocks of what is stored must fit the rows, as those of the type do. */
static bool read_stored(const struct weft_tensor *tensor, uint32_t number,
                        enum weft_dtype *stored_out) {
    return weft_dtype_of_number(number, stored_out) &&
           weft_dtypes[*stored_out].class <= WEFT_DTYPE_FOLDER &&
           tensor->dims[tensor->n_dims - 1] % weft_dtype_block_elems(*stored_out) == 0;
}

static weft_err read_tensor(struct reader *r, enum weft_dtype *stored_out) {
    struct weft_tensor tensor = {0};
    uint32_t name_len = weft_cursor_u32(&r->cur);
    const char *name = (const char *)weft_cursor_take(&r->cur, name_len);
    uint32_t type = weft_cursor_u32(&r->cur), stored = weft_cursor_u32(&r->cur);
    tensor.n_dims = weft_cursor_u32(&r->cur);
    if (r->cur.failed || tensor.n_dims < 1 || tensor.n_dims > 4)
        return damaged(r->path, "its list of tensors", r->why);
    for (uint32_t i = 0; i < tensor.n_dims; i++) {
        tensor.dims[i] = weft_cursor_u64(&r->cur);
    }
    uint64_t n_inline = weft_cursor_u64(&r->cur);
    const void *values = weft_cursor_take(&r->cur, n_inline);
    bool fits = !r->cur.failed && read_type(type, &tensor.dtype) &&
                wefti_model_tensor_bytes(&tensor, &tensor.bytes) &&
                read_stored(&tensor, stored, stored_out) &&
                (n_inline == 0 || n_inline == tensor.bytes);
    if (!fits) {
        struct wefti_model_shown shown =
            name ? wefti_model_show(name, name_len) : wefti_model_show("", 0);
        return weft_err_set(r->why, WEFT_E_PROTO,
                            "%s: is a damaged packed file: what it says of tensor '%s'", r->path,
                            shown.text);
    }
    if (n_inline > 0) tensor.data = values;
    return wefti_model_add_tensor(r->model, r->path, name, name_len, &tensor, r->why);
}

static weft_err read_tensors(weft_model *model, const char *path,
                             const struct wefti_model_packed_view *view, struct weft_errmsg *why) {
    struct reader r = {.model = model, .path = path, .why = why};
    struct weft_str section;
    if (!wefti_model_packed_find(view, "tensors", &section))
        return damaged(path, "it has no list of tensors", why);
    weft_cursor_init(&r.cur, section.data, section.len);
    uint32_t n = weft_cursor_u32(&r.cur);
    /* The least an entry can take: a name of one letter and one dimension. */
    if (n > WEFT_TENSORS_MAX || n > weft_cursor_left(&r.cur) / (4 + 1 + 4 + 4 + 4 + 8 + 8))
        return damaged(path, "its list of tensors claims too many", why);
    model->stored = calloc((size_t)n + 1, sizeof *model->stored);
    if (!model->stored) return weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", path);
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < n && !err; i++) {
        err = read_tensor(&r, &model->stored[i]);
    }
    if (!err && weft_cursor_left(&r.cur) > 0)
        err = damaged(path, "something follows its list of tensors", why);
    return err;
}

static weft_err config_of_gguf(weft_model *model, const char *path,
                               const struct wefti_model_packed_view *view,
                               struct weft_errmsg *why) {
    struct wefti_model_file file;
    struct weft_str section;
    weft_gguf *gguf;
    if (!wefti_model_packed_find(view, "gguf", &section) || section.len == 0)
        return damaged(path, "it has no metadata", why);
    weft_err err = wefti_model_file_borrow(path, section.data, section.len, &file, why);
    if (err) return err;
    err = wefti_model_gguf_parse(&file, &gguf, why);
    if (err) return err;
    err = wefti_model_config_gguf(gguf, &model->params, why);
    weft_gguf_free(gguf);
    return err;
}

static weft_err config_of_folder(weft_model *model, const char *path,
                                 const struct wefti_model_packed_view *view,
                                 struct weft_errmsg *why) {
    struct wefti_model_file file;
    struct weft_str section;
    if (!wefti_model_packed_find(view, "config.json", &section) || section.len == 0 ||
        section.len > WEFTI_MODEL_CONFIG_BYTES_MAX)
        return damaged(path, "it has no config.json", why);
    weft_err err = wefti_model_file_borrow(path, section.data, section.len, &file, why);
    if (err) return err;
    err = wefti_model_config_hf(&file, &model->params, why);
    wefti_model_file_close(&file);
    return err;
}

static weft_err fill_model(weft_model *model, const struct wefti_model_file *file,
                           struct weft_errmsg *why) {
    struct wefti_model_packed_view view;
    struct weft_str name;
    weft_err err = wefti_model_packed_parse(file, &view, why);
    if (err) return err;
    err = view.format == WEFT_MODEL_GGUF ? config_of_gguf(model, file->path, &view, why)
                                         : config_of_folder(model, file->path, &view, why);
    if (err) return err;
    model->packed = view.facts;
    if (wefti_model_packed_find(&view, "name", &name) && name.len > 0)
        wefti_model_params_set_name(&model->params, name.data, name.len);
    else
        wefti_model_name_from_path(&model->params, file->path, "");
    err = read_tensors(model, file->path, &view, why);
    if (!err) err = wefti_model_index(model, file->path, why);
    if (!err && view.format == WEFT_MODEL_GGUF) wefti_model_gguf_optional(model);
    if (!err) err = wefti_model_resolve(model, view.format, file->path, why);
    return err;
}

weft_err wefti_model_from_packed(struct wefti_model_file *file, weft_model **model_out,
                                 struct weft_errmsg *why) {
    *model_out = NULL;
    weft_model *model = wefti_model_new();
    weft_err err = WEFT_E_NOMEM;
    if (!model) {
        err = weft_err_set(why, err, "%s: out of memory", file->path);
        goto cleanup;
    }
    err = fill_model(model, file, why);
    if (err) goto cleanup;
    err = wefti_model_add_file(model, file);
    if (err) {
        err = weft_err_set(why, err, "out of memory while opening a model");
        goto cleanup;
    }
    *model_out = model;
    model = NULL;
cleanup:
    wefti_model_file_close(file);
    weft_model_free(model);
    return err;
}

/* ------------------------------------------------------------------------------- accessors --- */

const struct weft_packed *weft_model_packed(const weft_model *model) {
    return model->packed.arena_bytes ? &model->packed : NULL;
}

enum weft_dtype weft_model_stored(const weft_model *model, const struct weft_tensor *tensor) {
    size_t idx = (size_t)(tensor - model->tensors);
    WEFT_ASSERT(model->stored && idx < model->n_tensors);
    return model->stored[idx];
}

const void *weft_model_take_mapping(weft_model *model, size_t *bytes_out) {
    WEFT_ASSERT(model->packed.arena_bytes && model->n_files == 1 && model->files[0].map);
    struct wefti_model_file *file = &model->files[0];
    const void *map = file->map;
    *bytes_out = file->map_bytes;
    file->map = NULL; /* tensors with values of their own still point into it */
    return map;
}
