/* Rows of weights that are in parts, put together as their type has them, or as f32. */
#include "parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { F8_GROUP = 128 }; /* columns that share a scale */

/* Blocks as the list of types has them. */
#define BLOCK(id, name, class, elems, bytes, ...) id##_ELEMS = (elems), id##_BYTES = (bytes),
enum { WEFT_DTYPES(BLOCK) };

float wefti_model_parts_scale(const struct weft_parts *parts, uint64_t idx) {
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
    return wefti_model_parts_scale(parts,
                                   row / parts->scale_rows * parts->n_groups + col / parts->group);
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

/* --------------------------------------------------------------------------- whole numbers --- */

enum { BLOCK = Q4_Z_ELEMS, Q4_CODES = BLOCK / 2 };
_Static_assert((int)Q4_Z_BYTES == 2 + 1 + Q4_CODES, "a scale, a zero and codes");
_Static_assert((int)Q4_0_ELEMS == BLOCK && (int)Q4_0_BYTES == 2 + Q4_CODES, "no zero");
_Static_assert((int)Q8_0_ELEMS == BLOCK && (int)Q8_0_BYTES == 2 + BLOCK, "nor here");
_Static_assert((int)Q4_G_ELEMS == BLOCK, "a group for each block");
_Static_assert((int)Q4_G_BYTES == 2 + 1 + Q4_CODES + 2 * BLOCK, "and the groups of its columns");
_Static_assert((int)Q8_G_BYTES == 2 + 1 + BLOCK + 2 * BLOCK, "the same of 8 bits");

/* The place of a feature in a word of AWQ. */
static const uint32_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t read_word(const struct weft_parts *parts, enum wefti_model_piece piece,
                          uint64_t idx) {
    uint32_t word;
    memcpy(&word, parts->pieces[piece].at + idx * sizeof word, sizeof word);
    return word;
}

/* Number `place` in a word, from its lowest bits on. */
static uint32_t field(const struct weft_parts *parts, uint32_t word, uint32_t place) {
    return word >> parts->bits * place & ((1u << parts->bits) - 1);
}

/* Words along a row's columns: they follow on each other in a row (compressed-tensors), or have those of the
 * other rows between them (GPTQ). */
static void unpack_words(const struct weft_parts *parts, uint64_t row, uint64_t k0, uint64_t n,
                         uint8_t *out) {
    const bool by_row = parts->quant.method == WEFT_QUANT_PACKED;
    const uint64_t per = 32 / parts->bits, step = by_row ? 1 : parts->n;
    uint64_t at =
        by_row ? row * ((parts->k + per - 1) / per) + k0 / per : k0 / per * parts->n + row;
    WEFT_ASSERT(k0 % per == 0);
    for (uint64_t i = 0; i < n; i += per, at += step) {
        uint32_t word = read_word(parts, WEFTI_MODEL_PIECE_CODES, at);
        for (uint32_t place = 0; place < per && i + place < n; place++)
            out[i + place] = (uint8_t)field(parts, word, place);
    }
}

/* Codes of n columns from k0 on, k0 a multiple of 8: not below 0, with the middle for a weight of 0. */
static void read_codes(const struct weft_parts *parts, uint64_t row, uint64_t k0, uint64_t n,
                       uint8_t *out) {
    if (parts->quant.method == WEFT_QUANT_AWQ) {
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = (k0 + i) * (parts->n / 8) + row / 8;
            out[i] = (uint8_t)field(parts, read_word(parts, WEFTI_MODEL_PIECE_CODES, at),
                                    awq_place[row % 8]);
        }
    } else if (parts->quant.method == WEFT_QUANT_INT8) {
        const unsigned char *codes =
            parts->pieces[WEFTI_MODEL_PIECE_CODES].at + row * parts->k + k0;
        for (uint64_t i = 0; i < n; i++)
            out[i] = codes[i] ^ 0x80u;
    } else {
        unpack_words(parts, row, k0, n, out);
    }
}

/* Where the scale of a group is among the scales. */
static uint64_t scale_idx(const struct weft_parts *parts, uint64_t row, uint64_t group) {
    if (parts->quant.method == WEFT_QUANT_GPTQ || parts->quant.method == WEFT_QUANT_AWQ)
        return group * parts->n + row;
    return row / parts->scale_rows * parts->n_groups + group;
}

/* The code of a weight of 0. */
static uint32_t read_zero(const struct weft_parts *parts, uint64_t row, uint64_t group) {
    const struct wefti_model_piece_data *zeros = &parts->pieces[WEFTI_MODEL_PIECE_ZEROS];
    const uint64_t per = 32 / parts->bits;
    if (!zeros->at) return 1u << (parts->bits - 1);
    if (parts->quant.method == WEFT_QUANT_INT8)
        return zeros->at[scale_idx(parts, row, group)] ^ 0x80u;
    uint64_t at = parts->quant.method == WEFT_QUANT_PACKED ? row / per * parts->n_groups + group
                                                           : group * (parts->n / per) + row / per;
    uint32_t place =
        parts->quant.method == WEFT_QUANT_AWQ ? awq_place[row % 8] : (uint32_t)(row % per);
    uint32_t zero = field(parts, read_word(parts, WEFTI_MODEL_PIECE_ZEROS, at), place);
    return parts->quant.zeros_less_one ? (zero + 1) & ((1u << parts->bits) - 1) : zero;
}

/* A scale that is an f16, or has one: join_ints.c saw to it. */
static void put_scale(const struct weft_parts *parts, uint64_t row, uint64_t group,
                      unsigned char *out) {
    const uint64_t idx = scale_idx(parts, row, group);
    uint16_t half;
    if (parts->scale_dtype == WEFT_DT_F16)
        memcpy(&half, parts->pieces[WEFTI_MODEL_PIECE_SCALES].at + idx * sizeof half, sizeof half);
    else
        (void)wefti_model_f16_of_f32(wefti_model_parts_scale(parts, idx), &half);
    memcpy(out, &half, sizeof half);
}

/* A scale, of Q4_Z the zero, then codes: of 4 bits columns 0..15 in the low halves of 16 bytes, 16..31 in the
 * high ones. */
static void put_block(const struct weft_parts *parts, enum weft_dtype dtype, uint64_t row,
                      uint64_t k0, unsigned char *out) {
    const uint64_t group = k0 / parts->group;
    uint8_t codes[BLOCK];
    read_codes(parts, row, k0, BLOCK, codes);
    put_scale(parts, row, group, out);
    out += 2;
    if (dtype == WEFT_DT_Q8_0) {
        for (uint32_t i = 0; i < BLOCK; i++)
            out[i] = codes[i] ^ 0x80u;
        return;
    }
    if (dtype == WEFT_DT_Q4_Z) *out++ = (unsigned char)read_zero(parts, row, group);
    for (uint32_t i = 0; i < Q4_CODES; i++)
        out[i] = (unsigned char)(codes[i] | codes[Q4_CODES + i] << 4);
}

/* Rows are the inner loop, because those of GPTQ and AWQ lie side by side in the file. */
static void put_blocks(const struct weft_parts *parts, enum weft_dtype dtype, uint64_t row_begin,
                       uint64_t n_rows, size_t row_bytes, unsigned char *out) {
    const uint32_t block_bytes = weft_dtype_block_bytes(dtype);
    for (uint64_t k0 = 0; k0 < parts->k; k0 += BLOCK, out += block_bytes) {
        for (uint64_t i = 0; i < n_rows; i++)
            put_block(parts, dtype, row_begin + i, k0, out + i * row_bytes);
    }
}

/* The scale of the row, then codes less the middle. */
static void i8_row(const struct weft_parts *parts, uint64_t row, unsigned char *out) {
    const float scale = wefti_model_parts_scale(parts, scale_idx(parts, row, 0));
    memcpy(out, &scale, sizeof scale);
    out += sizeof scale;
    read_codes(parts, row, 0, parts->k, out);
    for (uint64_t k = 0; k < parts->k; k++)
        out[k] ^= 0x80u;
}

/* The group of column k. */
static uint64_t group_of(const struct weft_parts *parts, uint64_t k) {
    bool has_table = parts->pieces[WEFTI_MODEL_PIECE_GROUPS].at != NULL;
    return has_table ? read_word(parts, WEFTI_MODEL_PIECE_GROUPS, k) : k / parts->group;
}

/* Scales and zeros of as many groups as there are blocks of 32 columns, the groups of all columns,
 * then codes: of 4 bits two to a byte, the first in the low half. */
static void act_order_row(const struct weft_parts *parts, uint64_t row, unsigned char *out) {
    uint64_t n_groups = parts->k / BLOCK;
    unsigned char *zeros = out + n_groups * 2, *groups = zeros + n_groups;
    unsigned char *codes = groups + parts->k * 2;
    WEFT_ASSERT(parts->n_groups <= n_groups);
    memset(out, 0, n_groups * 3);
    for (uint64_t g = 0; g < parts->n_groups; g++) {
        put_scale(parts, row, g, out + g * 2);
        zeros[g] = (unsigned char)read_zero(parts, row, g);
    }
    for (uint64_t k = 0; k < parts->k; k++) {
        uint16_t group = (uint16_t)group_of(parts, k);
        memcpy(groups + k * sizeof group, &group, sizeof group);
    }
    if (parts->bits == 8) {
        read_codes(parts, row, 0, parts->k, codes);
        return;
    }
    for (uint64_t k = 0; k < parts->k; k += BLOCK, codes += Q4_CODES) {
        uint8_t block[BLOCK];
        read_codes(parts, row, k, BLOCK, block);
        for (uint32_t i = 0; i < Q4_CODES; i++)
            codes[i] = (unsigned char)(block[2 * i] | block[2 * i + 1] << 4);
    }
}

static void ints_row_f32(const struct weft_parts *parts, uint64_t row, float *out) {
    uint64_t group = UINT64_MAX;
    float scale = 0;
    int32_t zero = 0;
    for (uint64_t k0 = 0; k0 < parts->k; k0 += BLOCK) {
        const uint64_t n = parts->k - k0 < BLOCK ? parts->k - k0 : BLOCK;
        uint8_t codes[BLOCK];
        read_codes(parts, row, k0, n, codes);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t own = group_of(parts, k0 + i);
            if (own != group) {
                scale = wefti_model_parts_scale(parts, scale_idx(parts, row, own));
                zero = (int32_t)read_zero(parts, row, own);
                group = own;
            }
            out[k0 + i] = scale * (float)((int32_t)codes[i] - zero);
        }
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

struct weft_parts *wefti_model_add_view(weft_model *model, const struct weft_tensor *whole,
                                        const struct wefti_model_view *view, uint64_t n,
                                        uint64_t k) {
    struct weft_parts *parts = calloc(1, sizeof *parts);
    if (!parts) return NULL;
    WEFT_ASSERT(view->kind != WEFTI_MODEL_VIEW_NONE && view->run > 0 && view->step >= view->run);
    const bool is_joined = view->kind == WEFTI_MODEL_VIEW_JOINED;
    WEFT_ASSERT(is_joined ? whole->parts && !whole->parts->view.kind && whole->parts_row == 0
                          : whole->data && !whole->parts);
    parts->view = *view;
    parts->n = n;
    parts->k = k;
    if (is_joined)
        parts->of = whole->parts;
    else
        parts->pieces[WEFTI_MODEL_PIECE_CODES] =
            (struct wefti_model_piece_data){whole->data, whole->bytes};
    parts->next_view = model->views;
    model->views = parts;
    return parts;
}

float *wefti_model_add_floats(weft_model *model, size_t n) {
    struct weft_parts *parts = calloc(1, sizeof *parts + n * sizeof(float));
    if (!parts) return NULL;
    parts->next_view = model->views;
    model->views = parts;
    return (float *)(parts + 1);
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

/* A row of blocks of 32: the scale's exponent, then elements 0..15 in the low halves of 16 bytes and 16..31 in the
 * high ones. The file has element 2 * i in the low half of byte i, and the one after it in the high half. */
static void mxfp4_row(const struct weft_parts *parts, uint64_t row, unsigned char *out) {
    enum { ELEMS = MXFP4_ELEMS, HALF = ELEMS / 2 };
    const uint64_t n_blocks = parts->k / ELEMS, at = place_in(&parts->view, row) * n_blocks;
    const unsigned char *codes = parts->pieces[WEFTI_MODEL_PIECE_CODES].at + at * HALF,
                        *scales = parts->pieces[WEFTI_MODEL_PIECE_SCALES].at + at;
    for (uint64_t b = 0; b < n_blocks; b++, codes += HALF, out += MXFP4_BYTES) {
        out[0] = scales[b];
        for (uint32_t i = 0; i < HALF; i++) {
            const unsigned char low = (unsigned char)(codes[i / 2] >> 4 * (i % 2) & 15),
                                high = (unsigned char)(codes[(i + HALF) / 2] >> 4 * (i % 2) & 15);
            out[1 + i] = (unsigned char)(low | high << 4);
        }
    }
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
    if (view->kind == WEFTI_MODEL_VIEW_MXFP4) {
        for (uint64_t i = 0; i < n_rows; i++)
            mxfp4_row(parts, row_begin + i, out + i * row_bytes);
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
    if (tensor->dtype == WEFT_DT_I8) return (size_t)k + sizeof(float);
    return (size_t)k / weft_dtype_block_elems(tensor->dtype) *
           weft_dtype_block_bytes(tensor->dtype);
}

void wefti_model_parts_row_f32(const struct weft_parts *parts, uint64_t row, float *out) {
    WEFT_ASSERT(row < parts->n && parts->view.kind != WEFTI_MODEL_VIEW_MXFP4);
    if (parts->of) {
        row = place_in(&parts->view, row);
        parts = parts->of;
    }
    if (parts->view.kind) {
        view_row_f32(parts, row, out);
        return;
    }
    WEFT_ASSERT(parts->quant.method != WEFT_QUANT_NONE); /* of NVFP4 only blocks are read */
    if (parts->quant.method == WEFT_QUANT_FP8 || parts->quant.method == WEFT_QUANT_SCALED_FP8)
        f8_row_f32(parts, row, out);
    else if (parts->quant.method == WEFT_QUANT_BNB)
        nf4_row_f32(parts, row, out);
    else
        ints_row_f32(parts, row, out);
}

static void join_rows(const struct weft_parts *parts, enum weft_dtype dtype, uint64_t row_begin,
                      uint64_t n_rows, size_t row_bytes, unsigned char *out);

/* Rows of a view of a quantised weight, run by run. */
static void join_runs(const struct weft_parts *parts, enum weft_dtype dtype, uint64_t row_begin,
                      uint64_t n_rows, size_t row_bytes, unsigned char *out) {
    const struct wefti_model_view *view = &parts->view;
    for (uint64_t n, done = 0; done < n_rows; done += n) {
        const uint64_t row = row_begin + done, left = view->run - row % view->run;
        n = n_rows - done < left ? n_rows - done : left;
        join_rows(parts->of, dtype, place_in(view, row), n, row_bytes, out + done * row_bytes);
    }
}

/* Rows of `parts` as their type has them. */
static void join_rows(const struct weft_parts *parts, enum weft_dtype dtype, uint64_t row_begin,
                      uint64_t n_rows, size_t row_bytes, unsigned char *out) {
    WEFT_ASSERT(row_begin <= parts->n && n_rows <= parts->n - row_begin);
    if (parts->of) {
        join_runs(parts, dtype, row_begin, n_rows, row_bytes, out);
        return;
    }
    if (parts->view.kind) {
        view_rows(parts, row_begin, n_rows, row_bytes, out);
        return;
    }
    if (dtype == WEFT_DT_Q4_Z || dtype == WEFT_DT_Q4_0 || dtype == WEFT_DT_Q8_0) {
        put_blocks(parts, dtype, row_begin, n_rows, row_bytes, out);
        return;
    }
    for (uint64_t i = 0; i < n_rows; i++, out += row_bytes) {
        if (dtype == WEFT_DT_F8_E4M3)
            f8_row(parts, row_begin + i, out);
        else if (dtype == WEFT_DT_I8)
            i8_row(parts, row_begin + i, out);
        else if (dtype == WEFT_DT_Q4_G || dtype == WEFT_DT_Q8_G)
            act_order_row(parts, row_begin + i, out);
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
