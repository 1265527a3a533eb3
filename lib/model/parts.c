/* Rows of weights that are in parts, put together as their type has them, or as f32. */
#include "parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { F8_GROUP = 128 }; /* columns that share a scale */

/* Blocks as the list of types has them. */
#define BLOCK(id, name, class, elems, bytes, ...) id##_ELEMS = (elems), id##_BYTES = (bytes),
enum { WEFT_DTYPES(BLOCK) };

static float read_scale(const struct weft_parts *parts, uint64_t idx) {
    const unsigned char *at = parts->pieces[WEFTI_MODEL_PIECE_SCALES].at;
    uint16_t half;
    float scale;
    if (parts->scale_dtype == WEFT_DT_F32) {
        memcpy(&scale, at + idx * sizeof scale, sizeof scale);
        return scale;
    }
    memcpy(&half, at + idx * sizeof half, sizeof half);
    return parts->scale_dtype == WEFT_DT_F16 ? wefti_model_f32_from_f16(half)
                                             : wefti_model_f32_from_bits((uint32_t)half << 16);
}

/* ------------------------------------------------------------------------------------- FP8 --- */

static float f8_scale(const struct weft_parts *parts, uint64_t row, uint64_t col) {
    uint64_t block = row / parts->quant.block_rows * parts->scale_cols;
    return read_scale(parts, block + col / parts->quant.block_cols);
}

static const unsigned char *f8_codes(const struct weft_parts *parts, uint64_t row) {
    return parts->pieces[WEFTI_MODEL_PIECE_CODES].at + row * parts->k;
}

static void f8_row(const struct weft_parts *parts, uint64_t row, unsigned char *out) {
    for (uint64_t k = 0; k < parts->k; k += F8_GROUP) {
        size_t n = parts->k - k < F8_GROUP ? parts->k - k : F8_GROUP;
        float scale = f8_scale(parts, row, k);
        memcpy(out, &scale, sizeof scale);
        memcpy(out + sizeof scale, f8_codes(parts, row) + k, n);
        out += sizeof scale + n;
    }
}

/* Its bits are those of an f16 that is 256 times smaller, except for NaN. */
static float f8_value(unsigned char code) {
    if ((code & 0x7fu) == 0x7fu) return wefti_model_f32_from_bits(0x7fc00000u);
    uint32_t half = (uint32_t)(code & 0x80u) << 8 | (uint32_t)(code & 0x7fu) << 7;
    return 256.0f * wefti_model_f32_from_f16((uint16_t)half);
}

static void f8_row_f32(const struct weft_parts *parts, uint64_t row, float *out) {
    for (uint64_t k = 0; k < parts->k; k++)
        out[k] = f8_scale(parts, row, k) * f8_value(f8_codes(parts, row)[k]);
}

/* ---------------------------------------------------------------------------- GPTQ and AWQ --- */

enum { Q4_BLOCK = Q4_Z_ELEMS, Q4_BLOCK_BYTES = Q4_Z_BYTES };
_Static_assert((int)Q4_BLOCK_BYTES == 2 + 1 + Q4_BLOCK / 2, "a scale, a zero and codes");
_Static_assert((int)Q4_G_ELEMS == Q4_BLOCK, "a group for each block");
_Static_assert((int)Q4_G_BYTES == Q4_BLOCK_BYTES + 2 * Q4_BLOCK, "and the groups of its columns");

/* The place of a feature in a word of AWQ. */
static const uint32_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t read_word(const struct weft_parts *parts, enum wefti_model_piece piece,
                          uint64_t idx) {
    uint32_t word;
    memcpy(&word, parts->pieces[piece].at + idx * sizeof word, sizeof word);
    return word;
}

static uint32_t place_of_row(const struct weft_parts *parts, uint64_t row) {
    return parts->quant.method == WEFT_QUANT_AWQ ? awq_place[row % 8] : (uint32_t)(row % 8);
}

static uint32_t q4_code(const struct weft_parts *parts, uint64_t row, uint64_t k) {
    if (parts->quant.method == WEFT_QUANT_AWQ) {
        uint32_t word = read_word(parts, WEFTI_MODEL_PIECE_CODES, k * (parts->n / 8) + row / 8);
        return word >> 4 * place_of_row(parts, row) & 15u;
    }
    return read_word(parts, WEFTI_MODEL_PIECE_CODES, k / 8 * parts->n + row) >> 4 * (k % 8) & 15u;
}

static uint32_t q4_zero(const struct weft_parts *parts, uint64_t row, uint64_t group) {
    uint32_t word = read_word(parts, WEFTI_MODEL_PIECE_ZEROS, group * (parts->n / 8) + row / 8);
    uint32_t zero = word >> 4 * place_of_row(parts, row) & 15u;
    return parts->quant.zeros_less_one ? (zero + 1) & 15u : zero;
}

/* Scale and zero, then the codes: columns 0..15 in the low halves of 16 bytes, 16..31 in the high
 * ones. */
static void q4_block(const struct weft_parts *parts, uint64_t row, uint64_t k0,
                     unsigned char out[Q4_BLOCK_BYTES]) {
    uint64_t group = k0 / parts->group;
    memcpy(out, parts->pieces[WEFTI_MODEL_PIECE_SCALES].at + (group * parts->n + row) * 2, 2);
    out[2] = (unsigned char)q4_zero(parts, row, group);
    for (uint32_t i = 0; i < Q4_BLOCK / 2; i++) {
        uint32_t low = q4_code(parts, row, k0 + i);
        out[3 + i] = (unsigned char)(low | q4_code(parts, row, k0 + Q4_BLOCK / 2 + i) << 4);
    }
}

/* Rows are the inner loop, because they lie side by side in the file. */
static void q4_rows(const struct weft_parts *parts, uint64_t row_begin, uint64_t n_rows,
                    size_t row_bytes, unsigned char *out) {
    for (uint64_t k0 = 0; k0 < parts->k; k0 += Q4_BLOCK, out += Q4_BLOCK_BYTES) {
        for (uint64_t i = 0; i < n_rows; i++)
            q4_block(parts, row_begin + i, k0, out + i * row_bytes);
    }
}

/* The group of column k. */
static uint64_t q4_group(const struct weft_parts *parts, uint64_t k) {
    bool has_table = parts->pieces[WEFTI_MODEL_PIECE_GROUPS].at != NULL;
    return has_table ? read_word(parts, WEFTI_MODEL_PIECE_GROUPS, k) : k / parts->group;
}

/* Scales and zeros of as many groups as there are blocks of 32 columns, the groups of all columns,
 * then codes: of two columns the first in the low half. */
static void q4_g_row(const struct weft_parts *parts, uint64_t row, unsigned char *out) {
    uint64_t n_groups = parts->k / Q4_BLOCK;
    unsigned char *zeros = out + n_groups * 2, *groups = zeros + n_groups;
    unsigned char *codes = groups + parts->k * 2;
    WEFT_ASSERT(parts->n_groups <= n_groups);
    memset(out, 0, n_groups * 3);
    for (uint64_t g = 0; g < parts->n_groups; g++) {
        memcpy(out + g * 2, parts->pieces[WEFTI_MODEL_PIECE_SCALES].at + (g * parts->n + row) * 2,
               2);
        zeros[g] = (unsigned char)q4_zero(parts, row, g);
    }
    for (uint64_t k = 0; k < parts->k; k++) {
        uint16_t group = (uint16_t)q4_group(parts, k);
        memcpy(groups + k * sizeof group, &group, sizeof group);
    }
    for (uint64_t k = 0; k < parts->k; k += 2)
        codes[k / 2] = (unsigned char)(q4_code(parts, row, k) | q4_code(parts, row, k + 1) << 4);
}

static void q4_row_f32(const struct weft_parts *parts, uint64_t row, float *out) {
    for (uint64_t k = 0; k < parts->k; k++) {
        uint64_t group = q4_group(parts, k);
        int32_t code = (int32_t)q4_code(parts, row, k) - (int32_t)q4_zero(parts, row, group);
        out[k] = read_scale(parts, group * parts->n + row) * (float)code;
    }
}

/* ------------------------------------------------------------------------------------- NF4 --- */

enum { NF4_BLOCK = NF4_ELEMS, NF4_BLOCK_BYTES = NF4_BYTES };
_Static_assert((int)NF4_BLOCK_BYTES == 4 + NF4_BLOCK / 2, "a scale and codes");

const float wefti_model_nf4_values[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

static float read_f32(const struct weft_parts *parts, enum wefti_model_piece piece, uint64_t idx) {
    float value;
    memcpy(&value, parts->pieces[piece].at + idx * sizeof value, sizeof value);
    return value;
}

/* The scale of weight `idx` of all; a quantised one is rounded twice, as the tool does. */
static float nf4_scale(const struct weft_parts *parts, uint64_t idx) {
    uint64_t block = idx / parts->block;
    if (parts->scale_dtype == WEFT_DT_F32) return read_f32(parts, WEFTI_MODEL_PIECE_SCALES, block);
    unsigned char code = parts->pieces[WEFTI_MODEL_PIECE_SCALES].at[block];
    float scale = read_f32(parts, WEFTI_MODEL_PIECE_NESTED_VALUES, code) *
                  read_f32(parts, WEFTI_MODEL_PIECE_NESTED_SCALES, block / parts->nested_block);
    return scale + parts->nested_offset;
}

static void nf4_row(const struct weft_parts *parts, uint64_t row, unsigned char *out) {
    for (uint64_t k = 0; k < parts->k; k += NF4_BLOCK, out += NF4_BLOCK_BYTES) {
        uint64_t idx = row * parts->k + k;
        float scale = nf4_scale(parts, idx);
        memcpy(out, &scale, sizeof scale);
        memcpy(out + sizeof scale, parts->pieces[WEFTI_MODEL_PIECE_CODES].at + idx / 2,
               NF4_BLOCK / 2);
    }
}

static void nf4_row_f32(const struct weft_parts *parts, uint64_t row, float *out) {
    for (uint64_t k = 0; k < parts->k; k++) {
        uint64_t idx = row * parts->k + k;
        unsigned char pair = parts->pieces[WEFTI_MODEL_PIECE_CODES].at[idx / 2];
        out[k] = nf4_scale(parts, idx) * wefti_model_nf4_values[idx % 2 ? pair & 15 : pair >> 4];
    }
}

/* ----------------------------------------------------------------------------------- views --- */

const struct weft_parts *wefti_model_add_view(weft_model *model, const struct weft_tensor *whole,
                                              const struct wefti_model_view *view, uint64_t n,
                                              uint64_t k) {
    struct weft_parts *parts = calloc(1, sizeof *parts);
    if (!parts) return NULL;
    WEFT_ASSERT(view->kind != WEFTI_MODEL_VIEW_NONE && view->run > 0 && view->step >= view->run);
    WEFT_ASSERT(whole->data && !whole->parts);
    parts->view = *view;
    parts->n = n;
    parts->k = k;
    parts->pieces[WEFTI_MODEL_PIECE_CODES] =
        (struct wefti_model_piece_data){whole->data, whole->bytes};
    parts->next_view = model->views;
    model->views = parts;
    return parts;
}

void wefti_model_free_views(weft_model *model) {
    for (struct weft_parts *parts = model->views, *next; parts; parts = next) {
        next = parts->next_view;
        free(parts);
    }
    model->views = NULL;
}

/* The place of row or element `i` in the other tensor. */
static uint64_t place_in(const struct wefti_model_view *view, uint64_t i) {
    return view->first + i / view->run * view->step + i % view->run;
}

/* Rows as they are stored. Of a turned matrix the rows are the inner loop, because they lie side by side. */
static void view_rows(const struct weft_parts *parts, uint64_t row_begin, uint64_t n_rows,
                      size_t row_bytes, unsigned char *out) {
    const struct wefti_model_view *view = &parts->view;
    const unsigned char *at = parts->pieces[WEFTI_MODEL_PIECE_CODES].at;
    size_t bytes = weft_dtype_block_bytes(view->dtype);
    if (view->kind == WEFTI_MODEL_VIEW_ROWS) {
        for (uint64_t i = 0; i < n_rows; i++)
            memcpy(out + i * row_bytes, at + place_in(view, row_begin + i) * view->pitch,
                   row_bytes);
        return;
    }
    bool is_turned = view->kind == WEFTI_MODEL_VIEW_COLUMNS;
    for (uint64_t k = 0; k < parts->k; k++) {
        for (uint64_t i = 0; i < n_rows; i++) {
            const unsigned char *from =
                is_turned ? at + k * view->pitch + place_in(view, row_begin + i) * bytes
                          : at + place_in(view, k) * bytes;
            memcpy(out + i * row_bytes + k * bytes, from, bytes);
        }
    }
}

static void view_row_f32(const struct weft_parts *parts, uint64_t row, float *out) {
    if (parts->view.dtype == WEFT_DT_F32) {
        view_rows(parts, row, 1, parts->k * sizeof *out, (unsigned char *)out);
        return;
    }
    struct weft_tensor plain = {.dtype = parts->view.dtype,
                                .n_dims = 2,
                                .dims = {1, parts->k},
                                .bytes = parts->k * weft_dtype_block_bytes(parts->view.dtype)};
    /* It is put into the end of the result, which is wider: so each element is read before it is overwritten. */
    unsigned char *stored = (unsigned char *)(out + parts->k) - plain.bytes;
    view_rows(parts, row, 1, plain.bytes, stored);
    plain.data = stored;
    weft_tensor_row_f32(&plain, 0, out);
}

/* ----------------------------------------------------------------- NVFP4 of a GGUF file --- */

enum { SCALED_BLOCK = NVFP4_S_ELEMS, SCALED_BLOCK_BYTES = NVFP4_S_BYTES };
_Static_assert((int)SCALED_BLOCK == NVFP4_ELEMS && (int)SCALED_BLOCK_BYTES == 4 + NVFP4_BYTES,
               "a scale and the block");

static void scaled_row(const struct weft_parts *parts, uint64_t row, unsigned char *out) {
    const unsigned char *from =
        parts->pieces[WEFTI_MODEL_PIECE_CODES].at + row * (parts->k / SCALED_BLOCK) * NVFP4_BYTES;
    for (uint64_t k = 0; k < parts->k; k += SCALED_BLOCK) {
        memcpy(out, parts->pieces[WEFTI_MODEL_PIECE_SCALES].at, 4);
        memcpy(out + 4, from, NVFP4_BYTES);
        from += NVFP4_BYTES;
        out += SCALED_BLOCK_BYTES;
    }
}

/* --------------------------------------------------------------------------------- any row --- */

size_t weft_tensor_row_bytes(const struct weft_tensor *tensor) {
    WEFT_ASSERT(tensor->n_dims >= 1 && tensor->n_dims <= 4);
    uint64_t k = tensor->dims[tensor->n_dims - 1];
    if (tensor->dtype == WEFT_DT_F8_E4M3)
        return (size_t)k + (size_t)((k + F8_GROUP - 1) / F8_GROUP) * sizeof(float);
    return (size_t)k / weft_dtype_block_elems(tensor->dtype) *
           weft_dtype_block_bytes(tensor->dtype);
}

void wefti_model_parts_row_f32(const struct weft_parts *parts, uint64_t row, float *out) {
    WEFT_ASSERT(row < parts->n);
    if (parts->view.kind) {
        view_row_f32(parts, row, out);
        return;
    }
    WEFT_ASSERT(parts->quant.method != WEFT_QUANT_NONE); /* of NVFP4 only blocks are read */
    if (parts->quant.method == WEFT_QUANT_FP8)
        f8_row_f32(parts, row, out);
    else if (parts->quant.method == WEFT_QUANT_BNB)
        nf4_row_f32(parts, row, out);
    else
        q4_row_f32(parts, row, out);
}

/* Rows of `parts` as their type has them. */
static void join_rows(const struct weft_parts *parts, enum weft_dtype dtype, uint64_t row_begin,
                      uint64_t n_rows, size_t row_bytes, unsigned char *out) {
    WEFT_ASSERT(row_begin <= parts->n && n_rows <= parts->n - row_begin);
    if (parts->view.kind) {
        view_rows(parts, row_begin, n_rows, row_bytes, out);
        return;
    }
    if (dtype == WEFT_DT_Q4_Z) {
        q4_rows(parts, row_begin, n_rows, row_bytes, out);
        return;
    }
    for (uint64_t i = 0; i < n_rows; i++, out += row_bytes) {
        if (dtype == WEFT_DT_F8_E4M3)
            f8_row(parts, row_begin + i, out);
        else if (dtype == WEFT_DT_Q4_G)
            q4_g_row(parts, row_begin + i, out);
        else if (dtype == WEFT_DT_NF4)
            nf4_row(parts, row_begin + i, out);
        else if (dtype == WEFT_DT_NVFP4_S)
            scaled_row(parts, row_begin + i, out);
        else
            wefti_model_parts_row_f32(parts, row_begin + i, (float *)(void *)out);
    }
}

void weft_tensor_rows(const struct weft_tensor *tensor, uint64_t row_begin, uint64_t n_rows,
                      void *out) {
    size_t row_bytes = weft_tensor_row_bytes(tensor);
    const struct weft_parts *parts = tensor->parts;
    WEFT_ASSERT(tensor->n_dims == 2 && row_begin <= tensor->dims[0] &&
                n_rows <= tensor->dims[0] - row_begin);
    if (!parts) {
        WEFT_ASSERT(tensor->data || tensor->bytes == 0); /* not of a packed file */
        memcpy(out, (const unsigned char *)tensor->data + row_begin * row_bytes,
               n_rows * row_bytes);
        return;
    }
    join_rows(parts, tensor->dtype, tensor->parts_row + row_begin, n_rows, row_bytes, out);
}
