#include "gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cursor.h"

/* Types of the file format that are not read; NULL: it is read, or no type has that number. */
static const char *const other_types[] = {
    [9] = "Q8_1", [15] = "Q8_K", [24] = "I8",   [25] = "I16",  [26] = "I32",
    [27] = "I64", [28] = "F64",  [41] = "Q1_0", [42] = "Q2_0",
};

_Static_assert(sizeof other_types / sizeof other_types[0] <= WEFT_DTYPE_GGUF_NUMBERS,
               "they are GGUF's");

struct reader {
    weft_model *model;
    const char *path;
    struct weft_cursor cur;
    struct wefti_model_shown name; /* of the tensor being read, for messages */
    struct weft_errmsg *why;
};

static weft_err malformed(const struct reader *r, const char *fault) {
    return weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s' %s", r->path, r->name.text, fault);
}

/* "F32, F16, ...": those that are read. */
static void list_types(char *out, size_t out_bytes) {
    size_t at = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < WEFT_DT_COUNT && at < out_bytes; i++) {
        if (weft_dtypes[i].file_number >= WEFT_DTYPE_GGUF_NUMBERS) continue;
        int n = snprintf(out + at, out_bytes - at, "%s%s", at ? ", " : "", weft_dtypes[i].id);
        at += n > 0 ? (size_t)n : 0;
    }
}

static weft_err read_dtype(const struct reader *r, uint32_t number, enum weft_dtype *dtype_out) {
    if (number < WEFT_DTYPE_GGUF_NUMBERS && weft_dtype_of_number(number, dtype_out)) return WEFT_OK;
    char list[400];
    list_types(list, sizeof list);
    size_t n_names = sizeof other_types / sizeof other_types[0];
    const char *name = number < n_names && other_types[number] ? other_types[number] : "unknown";
    return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                        "%s: tensor '%s' has type %s (%u), which is not supported (%s are)",
                        r->path, r->name.text, name, number, list);
}

/* The file lists dimensions innermost first. */
static weft_err read_dims(struct reader *r, struct weft_tensor *tensor) {
    tensor->n_dims = weft_cursor_u32(&r->cur);
    if (r->cur.failed) return malformed(r, "has a description that ends with the file");
    if (tensor->n_dims < 1 || tensor->n_dims > 4) {
        return weft_err_set(r->why, WEFT_E_PROTO,
                            "%s: tensor '%s' has %u dimensions; 1 to 4 are allowed", r->path,
                            r->name.text, tensor->n_dims);
    }
    for (uint32_t i = tensor->n_dims; i-- > 0;) {
        tensor->dims[i] = weft_cursor_u64(&r->cur);
        if (!r->cur.failed && tensor->dims[i] == 0) return malformed(r, "has a dimension of 0");
    }
    return WEFT_OK;
}

static weft_err read_tensor(struct reader *r, uint64_t *offset_out) {
    struct weft_tensor tensor = {0};
    r->name = wefti_model_show("", 0);
    uint64_t len = weft_cursor_u64(&r->cur);
    const char *name = (const char *)weft_cursor_take(&r->cur, len);
    if (!name) return malformed(r, "has a name that reaches past the end of the file");
    r->name = wefti_model_show(name, len);
    weft_err err = read_dims(r, &tensor);
    if (err) return err;
    uint32_t type = weft_cursor_u32(&r->cur);
    *offset_out = weft_cursor_u64(&r->cur);
    if (r->cur.failed) return malformed(r, "has a description that ends with the file");
    err = read_dtype(r, type, &tensor.dtype);
    if (err) return err;
    if (!wefti_model_tensor_bytes(&tensor, &tensor.bytes)) {
        return malformed(r, "has a shape that overflows or is not whole blocks of its type");
    }
    return wefti_model_add_tensor(r->model, r->path, name, len, &tensor, r->why);
}

/* Data begins at the next multiple of the alignment after the descriptions, and offsets are
 * relative to that. */
static weft_err place(struct reader *r, const weft_gguf *gguf, size_t first,
                      const uint64_t *offsets) {
    WEFT_ASSERT(gguf->alignment > 0 && (gguf->alignment & (gguf->alignment - 1)) == 0);
    WEFT_ASSERT(r->model->n_tensors - first == gguf->n_tensors);
    size_t end = (size_t)(r->cur.at - gguf->file.bytes);
    size_t start = (end + gguf->alignment - 1) & ~(gguf->alignment - 1);
    if (start > gguf->file.n_bytes) {
        return weft_err_set(r->why, WEFT_E_PROTO,
                            "%s: truncated: the tensor data would begin at byte %zu of %zu",
                            r->path, start, gguf->file.n_bytes);
    }
    const unsigned char *data = gguf->file.bytes + start;
    size_t data_bytes = gguf->file.n_bytes - start;
    for (size_t i = first; i < r->model->n_tensors; i++) {
        struct weft_tensor *tensor = &r->model->tensors[i];
        uint64_t offset = offsets[i - first];
        r->name = wefti_model_show(tensor->name, strlen(tensor->name));
        if (offset % gguf->alignment != 0) {
            return weft_err_set(r->why, WEFT_E_PROTO,
                                "%s: tensor '%s' is at offset %" PRIu64
                                ", which is not a multiple of the alignment %zu",
                                r->path, r->name.text, offset, gguf->alignment);
        }
        if (offset > data_bytes || tensor->bytes > data_bytes - offset) {
            return weft_err_set(r->why, WEFT_E_PROTO,
                                "%s: tensor '%s' has %zu bytes at offset %" PRIu64
                                ", but the file has %zu bytes of data",
                                r->path, r->name.text, tensor->bytes, offset, data_bytes);
        }
        tensor->data = data + offset;
    }
    return wefti_model_check_layout(r->model, r->path, first,
                                    &(struct wefti_model_region){data, data_bytes, false}, r->why);
}

weft_err wefti_model_gguf_tensors(weft_model *model, const weft_gguf *gguf,
                                  struct weft_errmsg *why) {
    struct reader r = {.model = model, .path = gguf->file.path, .why = why};
    weft_cursor_init(&r.cur, gguf->file.bytes + gguf->tensors_at,
                     gguf->file.n_bytes - gguf->tensors_at);
    /* The least a description can take: a name of one letter and one dimension. */
    size_t room = weft_cursor_left(&r.cur) / (8 + 1 + 4 + 8 + 4 + 8);
    if (gguf->n_tensors == 0 && wefti_model_gguf_is_part(gguf)) return WEFT_OK;
    if (gguf->n_tensors == 0) {
        return weft_err_set(why, WEFT_E_PROTO, "%s: holds a vocabulary only, no tensors", r.path);
    }
    if (gguf->n_tensors > WEFT_TENSORS_MAX || gguf->n_tensors > room) {
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: claims %" PRIu64 " tensors; %u are allowed, and the file has room "
                            "for %zu",
                            r.path, gguf->n_tensors, WEFT_TENSORS_MAX, room);
    }
    uint64_t *offsets = malloc(gguf->n_tensors * sizeof *offsets);
    if (!offsets) return weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", r.path);
    weft_err err = WEFT_OK;
    size_t first = model->n_tensors;
    for (uint64_t i = 0; !err && i < gguf->n_tensors; i++) {
        err = read_tensor(&r, &offsets[i]);
    }
    if (!err) err = place(&r, gguf, first, offsets);
    free(offsets);
    return err;
}
