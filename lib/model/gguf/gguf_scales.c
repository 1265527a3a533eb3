/* Matrices of NVFP4 with a scale of their own: tensor "x.scale" beside "x.weight", and of a stack of
 * experts one scale for each. Such a matrix is in parts from then on, its blocks with the scale in front.
 * "x.input_scale" beside it is for activations in 4 bits; here they have 8, and find their own. */
#include "gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "parts.h"

static const char weight[] = ".weight", scale[] = ".scale", input_scale[] = ".input_scale";

enum { ENDING = sizeof weight - 1 };

struct scaler {
    weft_model *model;
    const char *path;
    struct weft_errmsg *why;
    bool *is_spent; /* [model->n_tensors]: a scale that its matrix has taken in */
    size_t n_parts;
};

static bool ends_with(const char *name, const char *end) {
    size_t len = strlen(name), n = strlen(end);
    return len > n && strcmp(name + len - n, end) == 0;
}

static const struct weft_tensor *find_beside(const struct scaler *s, const char *base,
                                             const char *ending) {
    char name[WEFTI_MODEL_TENSOR_NAME_BYTES_MAX + 64];
    int n = snprintf(name, sizeof name, "%s%s", base, ending);
    WEFT_ASSERT(n > 0 && (size_t)n < sizeof name);
    return weft_model_find(s->model, name);
}

/* The tensor with `ending` that belongs to a matrix, and the matrix's place in it; NULL: there is
 * none. That of an expert is beside the stack it came from. */
static const struct weft_tensor *find_scale(const struct scaler *s,
                                            const struct weft_tensor *matrix, const char *ending,
                                            uint64_t *idx_out) {
    char base[WEFTI_MODEL_TENSOR_NAME_BYTES_MAX + 16];
    int len = (int)strlen(matrix->name) - ENDING;
    *idx_out = 0;
    WEFT_ASSERT(len > 0 && (size_t)len + 8 < sizeof base);
    (void)snprintf(base, sizeof base, "%.*s", len, matrix->name);
    const struct weft_tensor *found = find_beside(s, base, ending);
    char *number = strrchr(base, '.'), *end = NULL;
    if (found || !number || s->model->params.moe.n_experts == 0) return found;
    *idx_out = strtoull(number + 1, &end, 10);
    if (end == number + 1 || *end) return NULL;
    (void)snprintf(number, (size_t)(base + sizeof base - number), "_exps");
    return find_beside(s, base, ending);
}

static weft_err check_scale(const struct scaler *s, const struct weft_tensor *tensor,
                            const struct weft_tensor *matrix, uint64_t idx) {
    struct wefti_model_shown shown = wefti_model_show(tensor->name, strlen(tensor->name));
    const uint32_t n_experts = s->model->params.moe.n_experts;
    bool is_stack = ends_with(tensor->name, "_exps.scale");
    float value;
    if (tensor->dtype != WEFT_DT_F32 || tensor->n_dims != 1 ||
        tensor->dims[0] != (is_stack ? n_experts : 1) || idx >= tensor->dims[0])
        return weft_err_set(s->why, WEFT_E_PROTO, "%s: tensor '%s' is not %u of f32", s->path,
                            shown.text, is_stack ? n_experts : 1);
    memcpy(&value, (const unsigned char *)tensor->data + idx * sizeof value, sizeof value);
    if (!isfinite(value))
        return weft_err_set(s->why, WEFT_E_PROTO, "%s: tensor '%s' has a scale that is not finite",
                            s->path, shown.text);
    if (matrix->dtype == WEFT_DT_NVFP4 && matrix->n_dims == 2 && matrix->data) return WEFT_OK;
    return weft_err_set(s->why, WEFT_E_UNSUPPORTED,
                        "%s: tensor '%s' scales a matrix that is not of NVFP4", s->path,
                        shown.text);
}

static void spend(const struct scaler *s, const struct weft_tensor *tensor) {
    s->is_spent[tensor - s->model->tensors] = true;
}

/* The matrix at `idx`, if it has a scale. */
static weft_err join(struct scaler *s, size_t idx) {
    struct weft_tensor *matrix = &s->model->tensors[idx];
    uint64_t place, other;
    if (!ends_with(matrix->name, weight)) return WEFT_OK;
    const struct weft_tensor *found = find_scale(s, matrix, scale, &place);
    if (!found) return WEFT_OK;
    weft_err err = check_scale(s, found, matrix, place);
    if (err) return err;
    const struct weft_tensor *of_input = find_scale(s, matrix, input_scale, &other);
    struct weft_parts *parts = &s->model->parts[s->n_parts++];
    *parts =
        (struct weft_parts){.n = matrix->dims[0], .k = matrix->dims[1], .scale_dtype = WEFT_DT_F32};
    parts->pieces[WEFTI_MODEL_PIECE_CODES] =
        (struct wefti_model_piece_data){matrix->data, matrix->bytes};
    parts->pieces[WEFTI_MODEL_PIECE_SCALES] = (struct wefti_model_piece_data){
        (const unsigned char *)found->data + place * sizeof(float), sizeof(float)};
    matrix->dtype = WEFT_DT_NVFP4_S;
    matrix->parts = parts;
    matrix->bytes = matrix->dims[0] * weft_tensor_row_bytes(matrix);
    spend(s, found);
    if (of_input) spend(s, of_input);
    return WEFT_OK;
}

static void drop_spent(const struct scaler *s) {
    weft_model *model = s->model;
    size_t n = 0;
    for (size_t i = 0; i < model->n_tensors; i++) {
        if (s->is_spent[i])
            free((char *)(uintptr_t)model->tensors[i].name);
        else
            model->tensors[n++] = model->tensors[i];
    }
    model->n_tensors = n;
}

static bool has_scales(const weft_model *model) {
    for (size_t i = 0; i < model->n_tensors; i++) {
        if (ends_with(model->tensors[i].name, scale)) return true;
    }
    return false;
}

weft_err wefti_model_gguf_scales(weft_model *model, const char *path, struct weft_errmsg *why) {
    struct scaler s = {.model = model, .path = path, .why = why};
    if (!has_scales(model)) return WEFT_OK;
    weft_err err = wefti_model_index(model, path, why);
    if (err) return err;
    WEFT_ASSERT(!model->parts);
    s.is_spent = calloc(model->n_tensors, sizeof *s.is_spent);
    model->parts = calloc(model->n_tensors, sizeof *model->parts);
    if (!s.is_spent || !model->parts) {
        err = weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", path);
        goto cleanup;
    }
    for (size_t i = 0; !err && i < model->n_tensors; i++) {
        err = join(&s, i);
    }
    if (!err) drop_spent(&s);
cleanup:
    free(s.is_spent);
    return err;
}
