/* Rows of weights that are in parts, put together as their type has them, or as f32. */
#include "model/parts.h"

#include <string.h>

#include "base/check.h"

enum { F8_GROUP = 128 }; /* columns behind a scale */

static float read_scale(const struct weft_parts *parts, uint64_t idx) {
    const unsigned char *at = parts->pieces[WEFTI_PIECE_SCALES].at;
    uint16_t half;
    float scale;
    if (parts->scale_dtype == WEFT_DT_F32) {
        memcpy(&scale, at + idx * sizeof scale, sizeof scale);
        return scale;
    }
    memcpy(&half, at + idx * sizeof half, sizeof half);
    return parts->scale_dtype == WEFT_DT_F16 ? wefti_f32_from_f16(half)
                                             : wefti_f32_from_bits((uint32_t)half << 16);
}

/* --------------------------------------------------------------------------------------- FP8 ---
 */

static float f8_scale(const struct weft_parts *parts, uint64_t row, uint64_t col) {
    uint64_t block = row / parts->quant.block_rows * parts->scale_cols;
    return read_scale(parts, block + col / parts->quant.block_cols);
}

static const unsigned char *f8_codes(const struct weft_parts *parts, uint64_t row) {
    return parts->pieces[WEFTI_PIECE_CODES].at + row * parts->k;
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

/* Its bits are those of an f16 256 times smaller, except for NaN. */
static float f8_value(unsigned char code) {
    if ((code & 0x7fu) == 0x7fu) return wefti_f32_from_bits(0x7fc00000u);
    uint32_t half = (uint32_t)(code & 0x80u) << 8 | (uint32_t)(code & 0x7fu) << 7;
    return 256.0f * wefti_f32_from_f16((uint16_t)half);
}

static void f8_row_f32(const struct weft_parts *parts, uint64_t row, float *out) {
    for (uint64_t k = 0; k < parts->k; k++)
        out[k] = f8_scale(parts, row, k) * f8_value(f8_codes(parts, row)[k]);
}

/* ----------------------------------------------------------------------------------- any row ---
 */

size_t weft_tensor_row_bytes(const struct weft_tensor *tensor) {
    uint64_t k = tensor->dims[tensor->n_dims - 1];
    if (tensor->dtype == WEFT_DT_F8_E4M3)
        return (size_t)k + (size_t)((k + F8_GROUP - 1) / F8_GROUP) * sizeof(float);
    return (size_t)k / weft_dtype_block_elems(tensor->dtype) *
           weft_dtype_block_bytes(tensor->dtype);
}

void wefti_parts_row_f32(const struct weft_parts *parts, uint64_t row, float *out) {
    WEFT_ASSERT(row < parts->n);
    f8_row_f32(parts, row, out);
}

void weft_tensor_rows(const struct weft_tensor *tensor, uint64_t row_begin, uint64_t n_rows,
                      void *out) {
    size_t row_bytes = weft_tensor_row_bytes(tensor);
    const struct weft_parts *parts = tensor->parts;
    WEFT_ASSERT(tensor->n_dims == 2 && row_begin <= tensor->dims[0] &&
                n_rows <= tensor->dims[0] - row_begin);
    if (!parts) {
        memcpy(out, (const unsigned char *)tensor->data + row_begin * row_bytes,
               n_rows * row_bytes);
        return;
    }
    for (uint64_t i = 0; i < n_rows; i++) {
        uint64_t row = tensor->parts_row + row_begin + i;
        unsigned char *to = (unsigned char *)out + i * row_bytes;
        WEFT_ASSERT(row < parts->n);
        f8_row(parts, row, to);
    }
}
