#include "parts.h"

#include <string.h>

#include "base/check.h"

bool wefti_model_tensor_bytes(const struct weft_tensor *tensor, size_t *bytes_out) {
    WEFT_ASSERT(tensor->n_dims <= 4);
    uint64_t block_elems = weft_dtype_block_elems(tensor->dtype);
    uint64_t n = 1;
    *bytes_out = 0;
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        if (__builtin_mul_overflow(n, tensor->dims[i], &n)) return false;
    }
    uint64_t row = tensor->n_dims > 0 ? tensor->dims[tensor->n_dims - 1] : 1;
    if (row % block_elems != 0) return false;
    if (__builtin_mul_overflow(n / block_elems, weft_dtype_block_bytes(tensor->dtype), &n)) {
        return false;
    }
    *bytes_out = n;
    return true;
}

float wefti_model_f32_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float wefti_model_f32_from_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24 is exact in f32 */
        float value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    if (exponent == 0x1f) { /* a NaN comes out quiet, as in F16C and the kernels */
        uint32_t quiet = mantissa ? 0x400000u : 0;
        return wefti_model_f32_from_bits(sign | 0x7f800000u | quiet | mantissa << 13);
    }
    return wefti_model_f32_from_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

bool wefti_model_f16_of_f32(float value, uint16_t *half_out) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    const int32_t exponent = (int32_t)(bits >> 23 & 0xffu) - 127;
    const uint32_t mantissa = bits & 0x7fffffu;
    *half_out = sign;
    if (value == 0.0f) return true;
    if (exponent > 15 || exponent < -24) return false;
    if (exponent >= -14) {
        *half_out = (uint16_t)(sign | (uint32_t)(exponent + 15) << 10 | mantissa >> 13);
        return (mantissa & 0x1fffu) == 0;
    }
    const uint32_t shift = (uint32_t)(-1 - exponent); /* 14 to 23: a subnormal */
    const uint32_t whole = mantissa | 0x800000u;
    *half_out = (uint16_t)(sign | whole >> shift);
    return (whole & ((1u << shift) - 1)) == 0;
}

static uint16_t load_u16(const unsigned char *at) {
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

bool wefti_model_has_rows_f32(enum weft_dtype dtype) {
    return weft_dtype_is_float(dtype) || dtype == WEFT_DT_Q8_0;
}

void weft_tensor_row_f32(const struct weft_tensor *tensor, uint64_t row, float *out) {
    WEFT_ASSERT(tensor->n_dims == 1 || tensor->n_dims == 2);
    WEFT_ASSERT(row < (tensor->n_dims == 2 ? tensor->dims[0] : 1));
    uint64_t n = tensor->dims[tensor->n_dims - 1];
    if (tensor->parts) {
        wefti_model_parts_row_f32(tensor->parts, tensor->parts_row + row, out);
        return;
    }
    uint64_t block_elems = weft_dtype_block_elems(tensor->dtype);
    WEFT_ASSERT(n % block_elems == 0);
    WEFT_ASSERT(tensor->data); /* not of a packed file */
    uint64_t row_bytes = n / block_elems * weft_dtype_block_bytes(tensor->dtype);
    const unsigned char *at = (const unsigned char *)tensor->data + row * row_bytes;
    switch (tensor->dtype) {
    case WEFT_DT_F32:
        memcpy(out, at, row_bytes);
        break;
    case WEFT_DT_F16:
        for (uint64_t i = 0; i < n; i++) {
            out[i] = wefti_model_f32_from_f16(load_u16(at + 2 * i));
        }
        break;
    case WEFT_DT_BF16:
        for (uint64_t i = 0; i < n; i++) {
            out[i] = wefti_model_f32_from_bits((uint32_t)load_u16(at + 2 * i) << 16);
        }
        break;
    case WEFT_DT_Q8_0: /* 11 bits of scale times 8 bits: the product is exact */
        for (uint64_t block = 0; block < n / 32; block++, at += 34) {
            float scale = wefti_model_f32_from_f16(load_u16(at));
            for (uint64_t i = 0; i < 32; i++) {
                out[block * 32 + i] = scale * (float)(int8_t)at[2 + i];
            }
        }
        break;
    default:
        WEFT_ASSERT(false);
    }
}
