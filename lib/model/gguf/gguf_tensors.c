#include "gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cursor.h"

/* Type numbers of the file format; NULL: unassigned or withdrawn. */
static const char *const type_names[] = {
    [0] = "F32",     [1] = "F16",      [2] = "Q4_0",   [3] = "Q4_1",    [6] = "Q5_0",
    [7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",   [10] = "Q2_K",   [11] = "Q3_K",
    [12] = "Q4_K",   [13] = "Q5_K",    [14] = "Q6_K",  [15] = "Q8_K",   [16] = "IQ2_XXS",
    [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
    [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",
    [27] = "I64",    [28] = "F64",     [29] = "IQ1_M", [30] = "BF16",   [34] = "TQ1_0",
    [35] = "TQ2_0",  [39] = "MXFP4",
};

static const uint32_t type_numbers[WEFT_DT_COUNT] = {
    [WEFT_DT_F32] = 0,   [WEFT_DT_F16] = 1,     [WEFT_DT_Q4_0] = 2,      [WEFT_DT_Q4_1] = 3,
    [WEFT_DT_Q8_0] = 8,  [WEFT_DT_Q4_K] = 12,   [WEFT_DT_Q5_K] = 13,     [WEFT_DT_Q6_K] = 14,
    [WEFT_DT_BF16] = 30, [WEFT_DT_Q5_0] = 6,    [WEFT_DT_Q5_1] = 7,      [WEFT_DT_Q2_K] = 10,
    [WEFT_DT_Q3_K] = 11, [WEFT_DT_IQ4_NL] = 20, [WEFT_DT_F8_E4M3] = 257, [WEFT_DT_Q4_Z] = 258,
    [WEFT_DT_NF4] = 259, [WEFT_DT_Q4_G] = 260,
};
enum { NUMBERS_OF_GGUF = 256 };

uint32_t wefti_model_gguf_type_of(enum weft_dtype dtype) {
    WEFT_ASSERT(dtype < WEFT_DT_COUNT);
    return type_numbers[dtype];
}

bool wefti_model_packed_dtype(uint32_t type, enum weft_dtype *dtype_out) {
    *dtype_out = WEFT_DT_F32;
    for (uint32_t i = 0; i < WEFT_DT_I32; i++) {
        if (type_numbers[i] != type) continue;
        *dtype_out = (enum weft_dtype)i;
        return true;
    }
    return false;
}

bool wefti_model_gguf_dtype(uint32_t type, enum weft_dtype *dtype_out) {
    *dtype_out = WEFT_DT_F32;
    return type < NUMBERS_OF_GGUF && wefti_model_packed_dtype(type, dtype_out);
}

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

static weft_err read_dtype(const struct reader *r, uint32_t type, enum weft_dtype *dtype_out) {
    if (wefti_model_gguf_dtype(type, dtype_out)) return WEFT_OK;
    size_t n_names = sizeof type_names / sizeof type_names[0];
    const char *name = type < n_names && type_names[type] ? type_names[type] : "unknown";
    return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                        "%s: tensor '%s' has type %s (%u), which is not supported (F32, F16, BF16, "
                        "Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K and IQ4_NL are)",
                        r->path, r->name.text, name, type);
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
    return wefti_model_check_layout(r->model, r->path, first, data, data_bytes, false, r->why);
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
