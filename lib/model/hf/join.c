/* Quantised weights of a Hugging Face folder: the tensors that belong together become one, under
 * the name that a weight which is not quantised has ("x.weight"), so that everything after this
 * sees one tensor per role. Shapes are checked against each other here; those of the roles follow.
 *
 *   FP8    x.weight [n, k] e4m3, x.weight_scale_inv [ceil(n / rows), ceil(k / cols)]
 *   GPTQ   x.qweight [k/8, n] i32, x.scales [groups, n], x.qzeros [groups, n/8] i32, and perhaps
 *          x.g_idx [k] i32: the groups of the columns. Eight columns, or zeros, are in a word, the
 *          first in its lowest bits.
 *   AWQ    x.qweight [k, n/8] i32, x.scales [groups, n], x.qzeros [groups, n/8] i32: the features
 *          of a word stand in the order 0, 2, 4, 6, 1, 3, 5, 7
 *          Without blocks, x.weight_scale or x.weight_scale_inv []: of the whole matrix
 *   compressed-tensors  x.weight_scale [ceil(n / rows), ceil(k / cols)], and by the format
 *          x.weight [n, k] i8 or e4m3, or
 *          x.weight_packed [n, ceil(k/8)] i32, or of 8 bits [n, ceil(k/4)]: codes in a word as in GPTQ, more by
 *          the middle than signed ones, with x.weight_shape: n, k. Perhaps x.weight_zero_point: i8, one beside
 *          each scale, or in words [ceil(n/8), groups] i32; and x.weight_g_idx [k] i32. Next to them lies what
 *          the activations of other engines are quantised by, and their caches, which is left out
 *   NF4    x.weight [n * k / 2, 1] u8, the first of two in the high half, and beside it, with
 *          "x.weight." before their names: quant_state.bitsandbytes__nf4, JSON, with the shape and
 *          the size of a block; quant_map [16]; absmax [blocks] f32, or u8, which stand for values
 *          of nested_quant_map [256] times nested_absmax [blocks of blocks] plus nested_offset */
#include "join.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"

weft_err wefti_model_join_refuse(const struct wefti_model_joiner *j,
                                 const struct weft_tensor *tensor, const char *fault) {
    struct wefti_model_shown shown = wefti_model_show(tensor->name, strlen(tensor->name));
    return weft_err_set(j->why, WEFT_E_PROTO, "%s: tensor '%s' %s", j->path, shown.text, fault);
}

void wefti_model_join_take(struct wefti_model_joiner *j, enum wefti_model_piece piece,
                           const struct weft_tensor *tensor) {
    WEFT_ASSERT(!j->parts->pieces[piece].at);
    WEFT_ASSERT((size_t)(tensor - j->model->tensors) < j->model->n_tensors);
    j->parts->pieces[piece] = (struct wefti_model_piece_data){tensor->data, tensor->bytes};
    j->fates[tensor - j->model->tensors] =
        tensor == j->codes ? WEFTI_MODEL_JOINED : WEFTI_MODEL_PIECE;
}

void wefti_model_join_drop(struct wefti_model_joiner *j, const struct weft_tensor *tensor) {
    WEFT_ASSERT((size_t)(tensor - j->model->tensors) < j->model->n_tensors);
    j->fates[tensor - j->model->tensors] = WEFTI_MODEL_PIECE;
}

weft_err wefti_model_join_find(struct wefti_model_joiner *j, const char *suffix, bool is_needed,
                               const struct weft_tensor **out) {
    char name[WEFTI_MODEL_TENSOR_NAME_BYTES_MAX + 64];
    int n = snprintf(name, sizeof name, "%.*s%s", j->base_len, j->codes->name, suffix);
    WEFT_ASSERT(n > 0 && (size_t)n < sizeof name);
    *out = weft_model_find(j->model, name);
    if (*out || !is_needed) return WEFT_OK;
    struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
    return weft_err_set(j->why, WEFT_E_PROTO, "%s: tensor '%s' is missing", j->path, shown.text);
}

weft_err wefti_model_join_check_vector(const struct wefti_model_joiner *j,
                                       const struct weft_tensor *tensor, uint64_t n) {
    if (tensor->n_dims == 1 && tensor->dims[0] == n) return WEFT_OK;
    char fault[128];
    (void)snprintf(fault, sizeof fault,
                   "has another shape than [%" PRIu64 "], which its weight asks for", n);
    return wefti_model_join_refuse(j, tensor, fault);
}

weft_err wefti_model_join_check_matrix(const struct wefti_model_joiner *j,
                                       const struct weft_tensor *tensor, uint64_t rows,
                                       uint64_t cols) {
    if (tensor->n_dims == 2 && tensor->dims[0] == rows && tensor->dims[1] == cols) return WEFT_OK;
    char fault[128];
    (void)snprintf(fault, sizeof fault,
                   "has another shape than [%" PRIu64 ", %" PRIu64 "], which its weight asks for",
                   rows, cols);
    return wefti_model_join_refuse(j, tensor, fault);
}

weft_err wefti_model_join_check_scales(const struct wefti_model_joiner *j,
                                       const struct weft_tensor *tensor) {
    const uint64_t rows = wefti_model_join_div_up(j->parts->n, j->parts->scale_rows);
    const uint64_t cols = j->parts->n_groups;
    if (tensor->n_dims == 0 && rows == 1 && cols == 1) return WEFT_OK;
    if (tensor->n_dims == 1 && cols == 1) return wefti_model_join_check_vector(j, tensor, rows);
    return wefti_model_join_check_matrix(j, tensor, rows, cols);
}

weft_err wefti_model_join_take_scales(struct wefti_model_joiner *j,
                                      const struct weft_tensor *scales) {
    if (!wefti_model_join_is_float(scales->dtype))
        return wefti_model_join_refuse(j, scales, "holds scales and no floats");
    j->parts->scale_dtype = scales->dtype;
    wefti_model_join_take(j, WEFTI_MODEL_PIECE_SCALES, scales);
    return WEFT_OK;
}

static weft_err join_fp8(struct wefti_model_joiner *j, struct weft_tensor *out) {
    struct weft_parts *parts = j->parts;
    const struct weft_tensor *scales;
    if (j->codes->n_dims != 2)
        return wefti_model_join_refuse(j, j->codes, "is quantised and no matrix");
    weft_err err = wefti_model_join_find(j, ".weight_scale_inv", true, &scales);
    if (err) return err;
    WEFT_ASSERT(parts->quant.block_rows > 0);
    WEFT_ASSERT(parts->quant.block_cols > 0);
    parts->n = j->codes->dims[0];
    parts->k = j->codes->dims[1];
    parts->scale_rows = parts->quant.block_rows;
    parts->group = parts->quant.block_cols;
    parts->n_groups = wefti_model_join_div_up(parts->k, parts->group);
    err = wefti_model_join_check_matrix(
        j, scales, wefti_model_join_div_up(parts->n, parts->scale_rows), parts->n_groups);
    if (!err) err = wefti_model_join_take_scales(j, scales);
    out->dtype = WEFT_DT_F8_E4M3;
    return err;
}

/* Blocks end within the matrix or with it, as those of FP8 do. Some tools call the same scales inverse. */
static weft_err join_scaled_fp8(struct wefti_model_joiner *j, struct weft_tensor *out) {
    struct weft_parts *parts = j->parts;
    const struct weft_tensor *scales;
    if (j->codes->n_dims != 2)
        return wefti_model_join_refuse(j, j->codes, "is quantised and no matrix");
    weft_err err = wefti_model_join_find(j, ".weight_scale_inv", false, &scales);
    if (!scales) err = wefti_model_join_find(j, ".weight_scale", true, &scales);
    if (err) return err;
    parts->n = j->codes->dims[0];
    parts->k = j->codes->dims[1];
    parts->scale_rows = parts->quant.block_rows ? parts->quant.block_rows : parts->n;
    parts->group = parts->quant.block_cols ? parts->quant.block_cols : parts->k;
    parts->n_groups = wefti_model_join_div_up(parts->k, parts->group);
    err = wefti_model_join_check_scales(j, scales);
    if (!err) err = wefti_model_join_take_scales(j, scales);
    out->dtype = WEFT_DT_F8_E4M3;
    return err;
}

static weft_err find_floats(struct wefti_model_joiner *j, const char *suffix, uint64_t n,
                            const struct weft_tensor **out) {
    weft_err err = wefti_model_join_find(j, suffix, true, out);
    if (err) return err;
    WEFT_ASSERT(*out != NULL);
    err = wefti_model_join_check_vector(j, *out, n);
    if (!err && (*out)->dtype != WEFT_DT_F32)
        err = wefti_model_join_refuse(j, *out, "is not of type f32");
    return err;
}

/* Larger sizes are in no file, and these can be multiplied without overflow. */
static bool read_size(const json_t *value, uint64_t *out) {
    return weft_json_u64(value, out) && *out > 0 && *out < (uint64_t)1 << 31;
}

static bool read_state(struct weft_parts *parts, const json_t *state) {
    const json_t *shape = json_object_get(state, "shape");
    const json_t *nested = json_object_get(state, "nested_blocksize");
    const json_t *offset = json_object_get(state, "nested_offset");
    const char *type = json_string_value(json_object_get(state, "quant_type"));
    if (nested && (!read_size(nested, &parts->nested_block) || !json_is_number(offset)))
        return false;
    parts->nested_offset = (float)json_number_value(offset); /* 0 where there is none */
    return type && strcmp(type, "nf4") == 0 && json_array_size(shape) == 2 &&
           read_size(json_array_get(shape, 0), &parts->n) &&
           read_size(json_array_get(shape, 1), &parts->k) &&
           read_size(json_object_get(state, "blocksize"), &parts->block);
}

static weft_err take_state(struct wefti_model_joiner *j) {
    const struct weft_tensor *tensor;
    json_t *state;
    weft_err err = wefti_model_join_find(j, ".weight.quant_state.bitsandbytes__nf4", true, &tensor);
    if (err) return err;
    if (tensor->dtype != WEFT_DT_U8) return wefti_model_join_refuse(j, tensor, "is not of type u8");
    err = wefti_model_json_parse(j->path, "the state of a quantised weight",
                                 (struct weft_str){tensor->data, tensor->bytes},
                                 JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &state, j->why);
    if (err) return err;
    bool fits = read_state(j->parts, state);
    json_decref(state);
    if (!fits) return wefti_model_join_refuse(j, tensor, "does not describe a matrix of nf4");
    wefti_model_join_drop(j, tensor);
    return WEFT_OK;
}

/* Scales that are quantised themselves. */
static weft_err take_nested(struct wefti_model_joiner *j, uint64_t n_blocks) {
    const struct weft_tensor *scales, *values;
    if (j->parts->nested_block == 0)
        return wefti_model_join_refuse(j, j->codes,
                                       "has quantised scales, and its state does not say how");
    uint64_t n = wefti_model_join_div_up(n_blocks, j->parts->nested_block);
    weft_err err = find_floats(j, ".weight.nested_absmax", n, &scales);
    if (!err) err = find_floats(j, ".weight.nested_quant_map", 256, &values);
    if (err) return err;
    wefti_model_join_take(j, WEFTI_MODEL_PIECE_NESTED_SCALES, scales);
    wefti_model_join_take(j, WEFTI_MODEL_PIECE_NESTED_VALUES, values);
    return WEFT_OK;
}

static weft_err take_map(struct wefti_model_joiner *j) {
    const struct weft_tensor *map;
    weft_err err = find_floats(j, ".weight.quant_map", 16, &map);
    if (err) return err;
    for (uint32_t i = 0; i < 16; i++) {
        float value;
        memcpy(&value, (const unsigned char *)map->data + i * sizeof value, sizeof value);
        if (value != wefti_model_nf4_values[i])
            return wefti_model_join_refuse(j, map, "holds other values than those of nf4");
    }
    wefti_model_join_drop(j, map);
    return WEFT_OK;
}

static weft_err join_nf4(struct wefti_model_joiner *j, struct weft_tensor *out) {
    struct weft_parts *parts = j->parts;
    const struct weft_tensor *scales;
    weft_err err = take_state(j);
    if (!err) err = take_map(j);
    if (!err) err = wefti_model_join_find(j, ".weight.absmax", true, &scales);
    if (err) return err;
    uint64_t n_weights = parts->n * parts->k,
             n_blocks = wefti_model_join_div_up(n_weights, parts->block);
    if (n_weights % 2 != 0 || j->codes->bytes != n_weights / 2)
        return wefti_model_join_refuse(j, j->codes, "has not the bytes that its shape asks for");
    err = wefti_model_join_check_vector(j, scales, n_blocks);
    if (err) return err;
    if (scales->dtype != WEFT_DT_U8 && scales->dtype != WEFT_DT_F32)
        return wefti_model_join_refuse(j, scales, "is neither of type u8 nor f32");
    parts->scale_dtype = scales->dtype;
    wefti_model_join_take(j, WEFTI_MODEL_PIECE_SCALES, scales);
    out->dtype = parts->k % 64 == 0 && parts->block % 64 == 0 ? WEFT_DT_NF4 : WEFT_DT_F32;
    return scales->dtype == WEFT_DT_U8 ? take_nested(j, n_blocks) : WEFT_OK;
}

static const struct method {
    const char *codes; /* how the name of the codes ends */
    enum weft_dtype codes_dtype;
    weft_err (*join)(struct wefti_model_joiner *j, struct weft_tensor *out);
} methods[WEFT_QUANT_COUNT] = {
    [WEFT_QUANT_FP8] = {".weight", WEFT_DT_F8_E4M3, join_fp8},
    [WEFT_QUANT_GPTQ] = {".qweight", WEFT_DT_I32, wefti_model_join_gptq},
    [WEFT_QUANT_AWQ] = {".qweight", WEFT_DT_I32, wefti_model_join_awq},
    [WEFT_QUANT_BNB] = {".weight", WEFT_DT_U8, join_nf4},
    [WEFT_QUANT_INT8] = {".weight", WEFT_DT_I8, wefti_model_join_int8},
    [WEFT_QUANT_PACKED] = {".weight_packed", WEFT_DT_I32, wefti_model_join_packed},
    [WEFT_QUANT_SCALED_FP8] = {".weight", WEFT_DT_F8_E4M3, join_scaled_fp8},
    [WEFT_QUANT_MXFP4] = {NULL, WEFT_DT_F32, NULL}, /* split.c */
};

/* Whether a tensor holds codes: its base's length, or -1. */
static int codes_base(const struct method *method, const struct weft_tensor *tensor) {
    size_t len = strlen(tensor->name), end = strlen(method->codes);
    bool holds = tensor->dtype == method->codes_dtype && len > end &&
                 strcmp(tensor->name + len - end, method->codes) == 0;
    return holds ? (int)(len - end) : -1;
}

/* Tensor `idx`, which holds codes, becomes the whole weight. */
static weft_err join_one(struct wefti_model_joiner *j, const struct method *method, size_t idx,
                         int base_len) {
    struct weft_tensor *tensor = &j->model->tensors[idx], whole = *tensor;
    j->codes = tensor;
    j->base_len = base_len;
    WEFT_ASSERT(j->n_parts < j->model->n_tensors);
    j->parts = &j->model->parts[j->n_parts++];
    j->parts->quant = j->model->params.quant;
    wefti_model_join_take(j, WEFTI_MODEL_PIECE_CODES, tensor);
    if (tensor->bytes == 0) return wefti_model_join_refuse(j, tensor, "is empty");
    weft_err err = method->join(j, &whole);
    if (err) return err;
    whole.n_dims = 2;
    whole.dims[0] = j->parts->n;
    whole.dims[1] = j->parts->k;
    whole.parts = j->parts;
    whole.bytes = whole.dims[0] * weft_tensor_row_bytes(&whole); /* about as many as its pieces */
    whole.name = tensor->name;
    *tensor = whole;
    return WEFT_OK;
}

/* How others quantise activations, and keys and values: here they do as the server is told. */
static void drop_other_scales(struct wefti_model_joiner *j) {
    static const char *const suffixes[] = {
        ".input_scale",       ".activation_scale", ".input_zero_point", ".output_scale",
        ".output_zero_point", ".k_scale",          ".v_scale",          ".q_scale"};
    const enum weft_quant_method method = j->model->params.quant.method;
    if (method != WEFT_QUANT_INT8 && method != WEFT_QUANT_PACKED && method != WEFT_QUANT_SCALED_FP8)
        return;
    for (size_t i = 0; i < j->model->n_tensors; i++) {
        const char *name = j->model->tensors[i].name, *end = strrchr(name, '.');
        for (size_t s = 0; end && s < sizeof suffixes / sizeof suffixes[0]; s++) {
            if (strcmp(end, suffixes[s]) == 0) j->fates[i] = WEFTI_MODEL_PIECE;
        }
    }
}

/* Pieces leave the list, and joined weights get the name that others have. */
static weft_err take_names(struct wefti_model_joiner *j) {
    weft_model *model = j->model;
    size_t n = 0;
    weft_err err = WEFT_OK;
    const struct method *method = &methods[model->params.quant.method];
    for (size_t i = 0; i < model->n_tensors; i++) {
        struct weft_tensor tensor = model->tensors[i];
        char *old = (char *)(uintptr_t)tensor.name, *name = NULL;
        if (j->fates[i] == WEFTI_MODEL_PIECE) {
            free(old);
            continue;
        }
        if (j->fates[i] == WEFTI_MODEL_JOINED && strcmp(method->codes, ".weight") != 0) {
            int base_len = (int)(strlen(old) - strlen(method->codes));
            if (!err && asprintf(&name, "%.*s.weight", base_len, old) < 0)
                err = weft_err_set(j->why, WEFT_E_NOMEM, "%s: out of memory", j->path);
            if (!err) {
                free(old);
                tensor.name = name;
            }
        }
        model->tensors[n++] = tensor;
    }
    model->n_tensors = n;
    return err;
}

/* Refuses tensors that still have a type of pieces. */
static weft_err check_plain(const struct wefti_model_joiner *j) {
    for (size_t i = 0; i < j->model->n_tensors; i++) {
        const struct weft_tensor *tensor = &j->model->tensors[i];
        if (tensor->parts || weft_dtype_is_float(tensor->dtype)) continue;
        struct wefti_model_shown shown = wefti_model_show(tensor->name, strlen(tensor->name));
        return weft_err_set(j->why, WEFT_E_UNSUPPORTED,
                            "%s: tensor '%s' has type '%s' and belongs to no quantised weight",
                            j->path, shown.text, weft_dtype_name(tensor->dtype));
    }
    return WEFT_OK;
}

weft_err wefti_model_join(weft_model *model, const char *path, struct weft_errmsg *why) {
    const struct method *method = &methods[model->params.quant.method];
    struct wefti_model_joiner j = {.model = model, .path = path, .why = why};
    if (!method->join) return WEFT_OK;
    weft_err err = wefti_model_index(model, path, why);
    if (err) return err;
    j.fates = calloc(model->n_tensors + 1, sizeof *j.fates);
    model->parts = calloc(model->n_tensors + 1, sizeof *model->parts);
    if (!j.fates || !model->parts) {
        err = weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", path);
        goto cleanup;
    }
    for (size_t i = 0; i < model->n_tensors; i++) {
        int base_len = codes_base(method, &model->tensors[i]);
        if (base_len < 0) continue;
        err = join_one(&j, method, i, base_len);
        if (err) goto cleanup;
    }
    err = wefti_model_join_experts(&j);
    if (err) goto cleanup;
    drop_other_scales(&j);
    err = take_names(&j);
    if (!err) err = check_plain(&j);
cleanup:
    free(j.fates);
    return err;
}

uint64_t wefti_model_parts_hash(const struct weft_tensor *tensor, uint64_t seed) {
    const struct wefti_model_view *view = &tensor->parts->view;
    const struct weft_parts *parts = tensor->parts->of ? tensor->parts->of : tensor->parts;
    uint32_t offset; /* its bits */
    memcpy(&offset, &parts->nested_offset, sizeof offset);
    const uint64_t facts[] = {
        parts->quant.method,
        parts->quant.block_rows,
        parts->quant.block_cols,
        weft_dtypes[parts->scale_dtype].layout_number,
        tensor->parts_row,
        parts->quant.zeros_less_one,
        parts->block,
        parts->nested_block,
        offset,
    };
    const uint64_t places[] = {view->kind, view->first, view->run, view->step};
    uint64_t hash = XXH3_64bits_withSeed(facts, sizeof facts, seed);
    if (view->kind) hash = XXH3_64bits_withSeed(places, sizeof places, hash);
    for (uint32_t i = 0; i < WEFTI_MODEL_PIECE_COUNT; i++) {
        const struct wefti_model_piece_data *piece = &parts->pieces[i];
        if (piece->at) hash = XXH3_64bits_withSeed(piece->at, piece->bytes, hash);
    }
    return hash;
}
