/* Weights of quantised checkpoints whose codes are whole numbers or e4m3, made here piece by piece:
 * every weight is what its method defines, to the bit, in the type that holds it exactly; and pieces
 * that contradict each other or the configuration are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rand.h"
#include "inside/model/hf/hf.h"
#include "inside/model/parts.h"
#include "kernels/kernels.h"
#include "unit/model_files.h"

enum { N_MAX = 24, K_MAX = 160, PIECES_MAX = 8 };

static uint64_t seed;

/* --------------------------------------------------------------------------------- a matrix --- */

struct matrix {
    enum weft_quant_method method;
    uint32_t bits, n, k, group; /* columns that share a scale; 0: all */
    bool one_scale;             /* for all rows */
    bool is_symmetric, is_shuffled, less_one;
    enum weft_dtype scales; /* F32, F16 or BF16 */
    float odd;              /* not 0: what the first scale is */
    enum weft_dtype wanted;
};

/* Its numbers: codes and zeros from 0 on. */
struct numbers {
    uint32_t n_groups, group_of[K_MAX];
    uint8_t codes[N_MAX][K_MAX], zeros[N_MAX][K_MAX];
    float scales[N_MAX][K_MAX];
};

static uint32_t draw(uint32_t end) {
    return weft_rand_below(&seed, end);
}

/* A scale that bf16 and f16 have. */
static float draw_scale(void) {
    return ldexpf((float)(128 + draw(128)), -16 + (int)draw(4));
}

static void shuffle(uint32_t *of, uint32_t n) {
    for (uint32_t i = n; i > 1; i--) {
        uint32_t at = draw(i), kept = of[i - 1];
        of[i - 1] = of[at];
        of[at] = kept;
    }
}

static void draw_numbers(const struct matrix *m, struct numbers *out) {
    const uint32_t group = m->group ? m->group : m->k, end = 1u << m->bits;
    assert_true(m->n <= N_MAX && m->k <= K_MAX);
    memset(out, 0, sizeof *out);
    out->n_groups = (m->k + group - 1) / group;
    for (uint32_t k = 0; k < m->k; k++)
        out->group_of[k] = k / group;
    if (m->is_shuffled) shuffle(out->group_of, m->k);
    for (uint32_t n = 0; n < m->n; n++) {
        for (uint32_t k = 0; k < m->k; k++)
            out->codes[n][k] = (uint8_t)draw(end);
        for (uint32_t g = 0; g < out->n_groups; g++) {
            out->zeros[n][g] = (uint8_t)(m->is_symmetric ? end / 2 : draw(end));
            out->scales[n][g] = m->one_scale && n > 0 ? out->scales[0][g] : draw_scale();
            if (m->odd != 0 && n == 0 && g == 0) out->scales[n][g] = m->odd;
        }
    }
}

/* ------------------------------------------------------------------------------- its pieces --- */

struct piece {
    const char *name, *dtype;
    uint32_t n_dims;
    uint64_t dims[3];
    struct weft_buf data;
};

struct pieces {
    struct piece of[PIECES_MAX];
    uint32_t n;
};

static struct piece *add_piece(struct pieces *pieces, const char *name, const char *dtype,
                               uint64_t rows, uint64_t cols) {
    assert_true(pieces->n < PIECES_MAX);
    struct piece *piece = &pieces->of[pieces->n++];
    *piece = (struct piece){name, dtype, cols ? 2 : 1, {rows, cols, 0}, {0}};
    weft_buf_init(&piece->data, 1u << 20);
    return piece;
}

static void drop_pieces(struct pieces *pieces) {
    for (uint32_t i = 0; i < pieces->n; i++)
        weft_buf_fini(&pieces->of[i].data);
}

static void put_float(struct weft_buf *out, enum weft_dtype dtype, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == WEFT_DT_F32) {
        gguf_put(out, bits, 4);
    } else if (dtype == WEFT_DT_BF16) {
        assert_int_equal(bits & 0xffffu, 0);
        gguf_put(out, bits >> 16, 2);
    } else { /* normal, and exact by how scales are drawn */
        gguf_put(out, ((bits >> 23) - 127 + 15) << 10 | (bits >> 13 & 0x3ffu), 2);
    }
}

/* `n` fields of `bits` each, `step` bytes apart, low bits first; the last word may have fewer. */
static void put_word(struct weft_buf *out, uint32_t bits, const uint8_t *from, size_t step,
                     uint32_t n) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < n && i < 32 / bits; i++)
        word |= (uint32_t)from[i * step] << i * bits;
    gguf_put(out, word, 4);
}

static void add_gptq(const struct matrix *m, const struct numbers *of, struct pieces *out) {
    const uint32_t per = 32 / m->bits, mask = (1u << m->bits) - 1;
    struct piece *piece = add_piece(out, "w.qweight", "I32", m->k / per, m->n);
    for (uint32_t k = 0; k < m->k; k += per) {
        for (uint32_t n = 0; n < m->n; n++)
            put_word(&piece->data, m->bits, &of->codes[n][k], 1, per);
    }
    piece = add_piece(out, "w.qzeros", "I32", of->n_groups, m->n / per);
    for (uint32_t g = 0; g < of->n_groups; g++) {
        for (uint32_t n = 0; n < m->n; n += per) {
            uint8_t zeros[8];
            for (uint32_t i = 0; i < per; i++)
                zeros[i] = (uint8_t)((of->zeros[n + i][g] - m->less_one) & mask);
            put_word(&piece->data, m->bits, zeros, 1, per);
        }
    }
    piece = add_piece(out, "w.scales", weft_dtypes[m->scales].id, of->n_groups, m->n);
    for (uint32_t g = 0; g < of->n_groups; g++) {
        for (uint32_t n = 0; n < m->n; n++)
            put_float(&piece->data, m->scales, of->scales[n][g]);
    }
    piece = add_piece(out, "w.g_idx", "I32", m->k, 0);
    for (uint32_t k = 0; k < m->k; k++)
        gguf_put(&piece->data, of->group_of[k], 4);
}

static void add_scales(const struct matrix *m, const struct numbers *of, struct pieces *out) {
    const uint32_t n_rows = m->one_scale ? 1 : m->n;
    struct piece *piece =
        add_piece(out, "w.weight_scale", weft_dtypes[m->scales].id, n_rows, of->n_groups);
    for (uint32_t n = 0; n < n_rows; n++) {
        for (uint32_t g = 0; g < of->n_groups; g++)
            put_float(&piece->data, m->scales, of->scales[n][g]);
    }
}

static void add_order(const struct matrix *m, const struct numbers *of, struct pieces *out) {
    if (!m->is_shuffled) return;
    struct piece *piece = add_piece(out, "w.weight_g_idx", "I32", m->k, 0);
    for (uint32_t k = 0; k < m->k; k++)
        gguf_put(&piece->data, of->group_of[k], 4);
}

static void add_packed(const struct matrix *m, const struct numbers *of, struct pieces *out) {
    const uint32_t per = 32 / m->bits, n_words = (m->k + per - 1) / per;
    struct piece *piece = add_piece(out, "w.weight_packed", "I32", m->n, n_words);
    for (uint32_t n = 0; n < m->n; n++) {
        for (uint32_t k = 0; k < m->k; k += per)
            put_word(&piece->data, m->bits, &of->codes[n][k], 1, m->k - k);
    }
    piece = add_piece(out, "w.weight_shape", "I64", 2, 0);
    gguf_put(&piece->data, m->n, 8);
    gguf_put(&piece->data, m->k, 8);
    add_scales(m, of, out);
    if (!m->is_symmetric) {
        piece = add_piece(out, "w.weight_zero_point", "I32", (m->n + per - 1) / per, of->n_groups);
        for (uint32_t n = 0; n < m->n; n += per) {
            for (uint32_t g = 0; g < of->n_groups; g++)
                put_word(&piece->data, m->bits, &of->zeros[n][g], sizeof of->zeros[0], m->n - n);
        }
    }
    add_order(m, of, out);
}

static void add_int8(const struct matrix *m, const struct numbers *of, struct pieces *out) {
    struct piece *piece = add_piece(out, "w.weight", "I8", m->n, m->k);
    for (uint32_t n = 0; n < m->n; n++) {
        for (uint32_t k = 0; k < m->k; k++)
            gguf_put(&piece->data, of->codes[n][k] ^ 0x80u, 1);
    }
    add_scales(m, of, out);
    if (!m->is_symmetric) {
        piece = add_piece(out, "w.weight_zero_point", "I8", m->n, of->n_groups);
        for (uint32_t n = 0; n < m->n; n++) {
            for (uint32_t g = 0; g < of->n_groups; g++)
                gguf_put(&piece->data, of->zeros[n][g] ^ 0x80u, 1);
        }
    }
    add_order(m, of, out);
}

static void add_fp8(const struct matrix *m, const struct numbers *of, struct pieces *out) {
    struct piece *piece = add_piece(out, "w.weight", "F8_E4M3", m->n, m->k);
    for (uint32_t n = 0; n < m->n; n++)
        weft_buf_add(&piece->data, of->codes[n], m->k);
    add_scales(m, of, out);
    piece = add_piece(out, "w.input_scale", "F32", 1, 0);
    gguf_put(&piece->data, 0x3f800000u, 4);
}

static void add_pieces(const struct matrix *m, const struct numbers *of, struct pieces *out) {
    out->n = 0;
    if (m->method == WEFT_QUANT_GPTQ) add_gptq(m, of, out);
    if (m->method == WEFT_QUANT_PACKED) add_packed(m, of, out);
    if (m->method == WEFT_QUANT_INT8) add_int8(m, of, out);
    if (m->method == WEFT_QUANT_SCALED_FP8) add_fp8(m, of, out);
}

/* ------------------------------------------------------------------------- and back to one --- */

static void write_file(const struct pieces *pieces, struct weft_buf *out) {
    struct weft_buf header;
    size_t at = 0;
    weft_buf_init(&header, 1u << 16);
    for (uint32_t i = 0; i < pieces->n; i++) {
        const struct piece *p = &pieces->of[i];
        weft_buf_printf(&header, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? ',' : '{', p->name,
                        p->dtype);
        for (uint32_t d = 0; d < p->n_dims; d++)
            weft_buf_printf(&header, "%s%u", d ? "," : "", (unsigned)p->dims[d]);
        weft_buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", at, at + p->data.len);
        at += p->data.len;
    }
    weft_buf_add_str(&header, "}");
    weft_buf_init(out, 1u << 20);
    gguf_put(out, header.len, 8);
    weft_buf_add(out, header.data, header.len);
    for (uint32_t i = 0; i < pieces->n; i++)
        weft_buf_add(out, pieces->of[i].data.data, pieces->of[i].data.len);
    assert_false(header.failed || out->failed);
    weft_buf_fini(&header);
}

static struct weft_model_quant quant_of(const struct matrix *m) {
    struct weft_model_quant quant = {.method = m->method,
                                     .block_rows = !m->one_scale,
                                     .block_cols = m->group,
                                     .zeros_less_one = m->less_one};
    quant.ints.bits = m->method == WEFT_QUANT_SCALED_FP8 ? 0 : m->bits;
    quant.ints.has_zeros = m->method != WEFT_QUANT_GPTQ && !m->is_symmetric;
    quant.ints.has_order = m->method != WEFT_QUANT_GPTQ && m->is_shuffled;
    return quant;
}

/* The model of the one matrix; it borrows `bytes`. */
static weft_err read_model(const struct weft_model_quant *quant, const struct weft_buf *bytes,
                           weft_model **model_out, struct weft_errmsg *why) {
    struct wefti_model_file file;
    weft_model *model = wefti_model_new();
    assert_non_null(model);
    model->params.quant = *quant;
    if (wefti_model_file_borrow("w.safetensors", bytes->data, bytes->len, &file, why))
        fail_msg("%s", why->text);
    weft_err err = wefti_model_safetensors_read(model, &file, why);
    if (!err) err = wefti_model_join(model, file.path, why);
    wefti_model_file_close(&file);
    *model_out = model;
    return err;
}

/* By the definition of e4m3, without infinities. */
static float e4m3(uint8_t code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    if ((code & 0x7f) == 0x7f) return NAN;
    float value =
        exponent ? ldexpf(8.0f + (float)fraction, exponent - 10) : ldexpf((float)fraction, -9);
    return code & 0x80 ? -value : value;
}

static float weight_of(const struct matrix *m, const struct numbers *of, uint32_t n, uint32_t k) {
    const uint32_t group = of->group_of[k];
    const float scale = of->scales[m->one_scale ? 0 : n][group];
    if (m->method == WEFT_QUANT_SCALED_FP8) return scale * e4m3(of->codes[n][k]);
    return (float)((double)scale * (of->codes[n][k] - of->zeros[n][group]));
}

static void check_weights(const struct matrix *m, const struct numbers *of,
                          const struct weft_tensor *tensor) {
    static float row[K_MAX], read[K_MAX];
    static unsigned char rows[N_MAX * K_MAX * sizeof(float)];
    const size_t row_bytes = weft_tensor_row_bytes(tensor);
    assert_int_equal(tensor->dims[0], m->n);
    assert_int_equal(tensor->dims[1], m->k);
    assert_true(row_bytes * m->n <= sizeof rows);
    weft_tensor_rows(tensor, 0, m->n, rows);
    for (uint32_t n = 0; n < m->n; n++) {
        weft_tensor_row_f32(tensor, n, row);
        weft_kern_read_row(tensor->dtype, rows + n * row_bytes, m->k, read);
        for (uint32_t k = 0; k < m->k; k++) {
            const float wanted = weight_of(m, of, n, k);
            if (isnan(wanted) ? isnan(row[k]) && isnan(read[k])
                              : row[k] == wanted && read[k] == wanted)
                continue;
            fail_msg("weight %u, %u: %.9g and %.9g are not %.9g", n, k, (double)row[k],
                     (double)read[k], (double)wanted);
        }
    }
}

#define GPTQ WEFT_QUANT_GPTQ
#define PACKED WEFT_QUANT_PACKED
#define INT8 WEFT_QUANT_INT8
#define FP8 WEFT_QUANT_SCALED_FP8
#define SYM .is_symmetric = true
#define SHUFFLED .is_shuffled = true
#define LESS .less_one = true
#define WHOLE .one_scale = true
#define OF(x) .scales = WEFT_DT_##x
#define IS(x) .wanted = WEFT_DT_##x

static const struct matrix matrices[] = {
    {GPTQ, 8, 8, 64, 32, SYM, LESS, OF(F16), IS(Q8_0)},
    {GPTQ, 8, 12, 96, 96, SYM, OF(F16), IS(I8)},
    {GPTQ, 8, 12, 96, 32, LESS, OF(F16), IS(Q8_G)},
    {GPTQ, 8, 8, 160, 32, SYM, LESS, SHUFFLED, OF(F16), IS(Q8_G)},
    {GPTQ, 8, 8, 96, 48, SYM, OF(F16), IS(Q8_G)},
    {GPTQ, 8, 8, 64, 16, SYM, OF(F16), IS(F32)}, /* more groups than blocks */
    {GPTQ, 4, 8, 64, 32, SYM, LESS, OF(F16), IS(Q4_0)},
    {GPTQ, 4, 16, 64, 32, LESS, OF(BF16), IS(Q4_Z)},
    {GPTQ, 4, 16, 64, 64, OF(F32), .odd = 0.1f, IS(F32)},
    {GPTQ, 4, 16, 128, 32, SHUFFLED, OF(F32), IS(Q4_G)},
    {GPTQ, 4, 16, 64, 24, LESS, OF(F16), IS(F32)}, /* the last group is short */
    {PACKED, 4, 10, 64, 32, SYM, OF(BF16), IS(Q4_0)},
    {PACKED, 4, 10, 96, 0, SYM, OF(BF16), IS(Q4_0)},
    {PACKED, 4, 10, 96, 32, OF(F16), IS(Q4_Z)},
    {PACKED, 4, 11, 128, 32, SHUFFLED, OF(BF16), IS(Q4_G)},
    {PACKED, 4, 7, 128, 32, SYM, SHUFFLED, OF(BF16), IS(Q4_G)},
    {PACKED, 4, 3, 35, 0, OF(BF16), IS(F32)}, /* a word of three codes */
    {PACKED, 4, 3, 64, 32, SYM, OF(BF16), .odd = 0x1p-30f, IS(F32)},
    {PACKED, 4, 3, 64, 32, SYM, OF(BF16), .odd = 0x1.02p-17f, IS(Q4_0)}, /* subnormal, exact */
    {PACKED, 8, 6, 64, 32, SYM, OF(BF16), IS(Q8_0)},
    {PACKED, 8, 6, 62, 0, SYM, OF(BF16), IS(I8)},
    {PACKED, 8, 6, 64, 32, OF(BF16), IS(Q8_G)},
    {INT8, 8, 9, 70, 0, SYM, OF(BF16), IS(I8)},
    {INT8, 8, 9, 70, 0, SYM, OF(F32), .odd = 0.1f, IS(I8)},
    {INT8, 8, 9, 70, 0, SYM, WHOLE, OF(F32), IS(I8)},
    {INT8, 8, 9, 128, 32, SYM, OF(F32), IS(Q8_0)},
    {INT8, 8, 9, 64, 0, OF(BF16), IS(Q8_G)},
    {INT8, 8, 9, 70, 0, OF(BF16), IS(F32)},
    {FP8, 8, 9, 150, 0, SYM, OF(BF16), IS(F8_E4M3)},
    {FP8, 8, 9, 150, 0, SYM, WHOLE, OF(F32), .odd = 0.1f, IS(F8_E4M3)},
};

static void weights_are_what_their_method_defines(void **state) {
    (void)state;
    static struct numbers numbers;
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        const struct matrix *m = &matrices[i];
        const struct weft_model_quant quant = quant_of(m);
        struct pieces pieces;
        struct weft_buf bytes;
        struct weft_errmsg why = {""};
        weft_model *model;
        draw_numbers(m, &numbers);
        add_pieces(m, &numbers, &pieces);
        write_file(&pieces, &bytes);
        if (read_model(&quant, &bytes, &model, &why)) fail_msg("%zu: %s", i, why.text);
        assert_int_equal(weft_model_n_tensors(model), 1);
        const struct weft_tensor *tensor = weft_model_tensor(model, 0);
        print_message("    %zu: %s\n", i, weft_dtype_name(tensor->dtype));
        assert_string_equal(tensor->name, "w.weight");
        assert_int_equal(tensor->dtype, m->wanted);
        check_weights(m, &numbers, tensor);
        weft_model_free(model);
        weft_buf_fini(&bytes);
        drop_pieces(&pieces);
    }
}

/* Rows from `begin` on of a part of a weight, of each two times `dim` rows of which it has the first or the second. */
static void check_rows(const struct matrix *m, const struct numbers *of, bool is_second,
                       const struct weft_tensor *tensor, uint32_t dim, uint32_t begin) {
    static float row[K_MAX], read[K_MAX];
    static unsigned char rows[N_MAX * K_MAX * sizeof(float)];
    const size_t row_bytes = weft_tensor_row_bytes(tensor);
    const uint32_t end = (uint32_t)tensor->dims[0];
    assert_true(row_bytes * (end - begin) <= sizeof rows);
    weft_tensor_rows(tensor, begin, end - begin, rows);
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t n = i / dim * 2 * dim + is_second * dim + i % dim;
        weft_tensor_row_f32(tensor, i, row);
        weft_kern_read_row(tensor->dtype, rows + (i - begin) * row_bytes, m->k, read);
        for (uint32_t k = 0; k < m->k; k++) {
            const float wanted = weight_of(m, of, n, k);
            if (!isnan(wanted) && (row[k] != wanted || read[k] != wanted))
                fail_msg("row %u, %u: %.9g and %.9g are not %.9g", i, k, (double)row[k],
                         (double)read[k], (double)wanted);
        }
    }
}

/* Queries among which gates stand are taken apart whatever the method. */
static void rows_among_others_are_those_of_the_weight(void **state) {
    (void)state;
    static struct numbers numbers;
    static const char *const names[] = {"model.layers.0.self_attn.q_proj.weight",
                                        "model.layers.0.self_attn.gate_proj.weight"};
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        const struct matrix *m = &matrices[i];
        const struct weft_model_quant quant = quant_of(m);
        struct pieces pieces;
        struct weft_buf bytes;
        struct weft_errmsg why = {""};
        weft_model *model;
        if (m->n % 2 != 0) continue; /* no heads with gates */
        draw_numbers(m, &numbers);
        add_pieces(m, &numbers, &pieces);
        write_file(&pieces, &bytes);
        if (read_model(&quant, &bytes, &model, &why)) fail_msg("%zu: %s", i, why.text);
        const uint32_t dim = m->n % 4 == 0 ? 2 : 1;
        model->params.block.gate_in_q = 1;
        model->params.head_dim = dim;
        free((char *)(uintptr_t)model->tensors[0].name);
        model->tensors[0].name = strdup(names[0]);
        assert_non_null(model->tensors[0].name);
        if (wefti_model_split(model, WEFT_MODEL_HF, "w", &why)) fail_msg("%zu: %s", i, why.text);
        assert_int_equal(weft_model_n_tensors(model), 2);
        for (size_t t = 0; t < 2; t++) {
            const struct weft_tensor *tensor = weft_model_tensor(model, t);
            const bool is_gate = strcmp(tensor->name, names[1]) == 0;
            assert_true(is_gate || strcmp(tensor->name, names[0]) == 0);
            assert_int_equal(tensor->dtype, m->wanted);
            assert_int_equal(tensor->dims[0], m->n / 2);
            for (uint32_t begin = 0; begin < m->n / 2; begin++)
                check_rows(m, &numbers, is_gate, tensor, dim, begin);
        }
        assert_true(wefti_model_parts_hash(weft_model_tensor(model, 0), 0) !=
                    wefti_model_parts_hash(weft_model_tensor(model, 1), 0));
        weft_model_free(model);
        weft_buf_fini(&bytes);
        drop_pieces(&pieces);
    }
}

/* -------------------------------------------------------------------------------- refusals --- */

/* Changes of one piece: NULL and 0 leave what there is. */
struct change {
    struct matrix of;
    const char *name, *to, *dtype;
    uint64_t dims[3];
    int64_t value; /* not 0: of its first eight bytes or fewer */
    const char *said;
};

#define W8A8                                                                                       \
    { INT8, 8, 8, 64, 0, SYM, OF(F32) }
#define W4A16                                                                                      \
    { PACKED, 4, 8, 64, 32, SYM, OF(F32) }
#define WITH_ZEROS                                                                                 \
    { PACKED, 4, 8, 64, 32, OF(F32) }
#define WITH_ORDER                                                                                 \
    { PACKED, 4, 8, 64, 32, SYM, SHUFFLED, OF(F32) }
#define FLOATS                                                                                     \
    { FP8, 8, 8, 64, 0, SYM, OF(F32) }
#define GPTQ_8                                                                                     \
    { GPTQ, 8, 8, 64, 32, SYM, OF(F16) }

static const struct change changes[] = {
    {W8A8, "w.weight_scale", "w.scale", .said = "'w.weight_scale' is missing"},
    {W8A8, "w.weight_scale", .dims = {2, 4}, .said = "another shape than [8, 1]"},
    {W8A8, "w.weight_scale", .dims = {2, 2, 2}, .said = "another shape than [8, 1]"},
    {W8A8, "w.weight_scale", .dtype = "I32", .said = "scales and no floats"},
    {W8A8, "w.weight", .dims = {8, 8, 8}, .said = "no matrix"},
    {W8A8, "w.weight", .dims = {16, 32}, .said = "another shape than [16, 1]"},
    {W8A8, "w.weight", .dtype = "U8", .said = "type 'u8' and belongs to no quantised weight"},
    {W8A8, "w.weight", .dtype = "F8_E4M3", .said = "'f8_e4m3' and belongs to no"},
    {W4A16, "w.weight_packed", "w.packed", .said = "belongs to no quantised weight"},
    {W4A16, "w.weight_shape", "w.shape", .said = "'w.weight_shape' is missing"},
    {W4A16, "w.weight_shape", .dims = {1, 2}, .said = "another shape than [2]"},
    {W4A16, "w.weight_shape", .value = -8, .said = "another shape than its words"},
    {W4A16, "w.weight_shape", .value = 9, .said = "another shape than its words"},
    {W4A16, "w.weight_shape", .value = INT64_MAX, .said = "another shape than its words"},
    {W4A16, "w.weight_packed", .dims = {16, 4}, .said = "another shape than its words"},
    {W4A16, "w.weight_scale", .dims = {16, 1}, .said = "another shape than [8, 2]"},
    {W4A16, "w.weight_scale", "w.weight_zero_point", .said = "missing"},
    {WITH_ZEROS, "w.weight_zero_point", "w.zeros", .said = "'w.weight_zero_point' is missing"},
    {WITH_ZEROS, "w.weight_zero_point", .dims = {2, 1}, .said = "another shape than [1, 2]"},
    {WITH_ZEROS, "w.weight_zero_point", .dtype = "F32", .said = "another type than the codes"},
    {WITH_ORDER, "w.weight_g_idx", "w.g_idx", .said = "'w.weight_g_idx' is missing"},
    {WITH_ORDER, "w.weight_g_idx", .dims = {2, 32}, .said = "another shape than [64]"},
    {WITH_ORDER, "w.weight_g_idx", .value = -1, .said = "a group that there is not"},
    {FLOATS, "w.weight_scale", "w.scale", .said = "'w.weight_scale' is missing"},
    {FLOATS, "w.weight_scale", .dims = {1, 8}, .said = "another shape than [8, 1]"},
    {FLOATS, "w.weight", .dims = {512}, .said = "no matrix"},
    {GPTQ_8, "w.qzeros", .dims = {4, 1}, .said = "another shape than [2, 2]"},
    {GPTQ_8, "w.scales", .dims = {1, 16}, .said = "another shape than [2, 8]"},
    {GPTQ_8, "w.g_idx", .value = 2, .said = "a group that there is not"},
    {GPTQ_8, "w.qweight", .dims = {64, 2}, .said = "multiple of 4"},
};

static void apply(const struct change *change, struct pieces *pieces) {
    for (uint32_t i = 0; i < pieces->n; i++) {
        struct piece *piece = &pieces->of[i];
        if (strcmp(piece->name, change->name) != 0) continue;
        if (change->to) piece->name = change->to;
        if (change->dtype) piece->dtype = change->dtype;
        if (change->dims[0]) {
            memcpy(piece->dims, change->dims, sizeof piece->dims);
            piece->n_dims = change->dims[2] ? 3 : change->dims[1] ? 2 : 1;
        }
        if (change->value)
            memcpy(piece->data.data, &change->value, strcmp(piece->dtype, "I64") == 0 ? 8 : 4);
        return;
    }
    fail_msg("no %s", change->name);
}

static void expect_refusal(const struct weft_model_quant *quant, const struct pieces *pieces,
                           const char *said) {
    struct weft_errmsg why = {""};
    struct weft_buf bytes;
    weft_model *model;
    write_file(pieces, &bytes);
    weft_err err = read_model(quant, &bytes, &model, &why);
    print_message("    %s\n", why.text);
    assert_true(err == WEFT_E_PROTO || err == WEFT_E_UNSUPPORTED);
    assert_non_null(strstr(why.text, said));
    assert_non_null(strstr(why.text, "'w."));
    weft_model_free(model);
    weft_buf_fini(&bytes);
}

static void pieces_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static struct numbers numbers;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const struct weft_model_quant quant = quant_of(&changes[i].of);
        struct pieces pieces;
        draw_numbers(&changes[i].of, &numbers);
        add_pieces(&changes[i].of, &numbers, &pieces);
        apply(&changes[i], &pieces);
        expect_refusal(&quant, &pieces, changes[i].said);
        drop_pieces(&pieces);
    }
}

/* What the configuration says of all weights, and one is otherwise. */
static void a_configuration_that_contradicts_is_refused(void **state) {
    (void)state;
    static const struct matrix four = W4A16, zeros = WITH_ZEROS, floats = FLOATS;
    static struct numbers numbers;
    struct pieces pieces;
    draw_numbers(&four, &numbers);
    add_pieces(&four, &numbers, &pieces);
    struct weft_model_quant quant = quant_of(&four);
    quant.ints.bits = 8;
    expect_refusal(&quant, &pieces, "another shape than its words");
    quant = quant_of(&four);
    quant.block_cols = 7;
    expect_refusal(&quant, &pieces, "\"group_size\"");
    quant.block_cols = 64;
    expect_refusal(&quant, &pieces, "another shape than [8, 1]");
    quant = quant_of(&four);
    quant.block_rows = 0;
    expect_refusal(&quant, &pieces, "another shape than [1, 2]");
    quant = quant_of(&four);
    quant.ints.has_zeros = 1;
    expect_refusal(&quant, &pieces, "'w.weight_zero_point' is missing");
    drop_pieces(&pieces);

    draw_numbers(&zeros, &numbers);
    add_pieces(&zeros, &numbers, &pieces);
    quant = quant_of(&four);
    expect_refusal(&quant, &pieces, "\"symmetric\" is not false");
    drop_pieces(&pieces);

    draw_numbers(&floats, &numbers);
    add_pieces(&floats, &numbers, &pieces);
    quant = quant_of(&floats);
    quant.method = WEFT_QUANT_INT8;
    expect_refusal(&quant, &pieces, "belongs to no quantised weight");
    drop_pieces(&pieces);
}

/* The same under another name, in a checkpoint of fp8 with one scale to a matrix. */
static void scales_may_be_called_inverse(void **state) {
    (void)state;
    static const struct matrix floats = {FP8, 8, 9, 70, 0, SYM, WHOLE, OF(BF16)};
    static struct numbers numbers;
    struct pieces pieces;
    struct weft_errmsg why = {""};
    struct weft_buf bytes;
    weft_model *model;
    const struct weft_model_quant quant = quant_of(&floats);
    draw_numbers(&floats, &numbers);
    add_pieces(&floats, &numbers, &pieces);
    for (uint32_t i = 0; i < pieces.n; i++) {
        struct piece *piece = &pieces.of[i];
        if (strcmp(piece->name, "w.input_scale") == 0) piece->name = "w.activation_scale";
        if (strcmp(piece->name, "w.weight_scale") != 0) continue;
        piece->name = "w.weight_scale_inv";
        piece->n_dims = 0;
    }
    write_file(&pieces, &bytes);
    if (read_model(&quant, &bytes, &model, &why)) fail_msg("%s", why.text);
    assert_int_equal(weft_model_n_tensors(model), 1);
    check_weights(&floats, &numbers, weft_model_tensor(model, 0));
    weft_model_free(model);
    weft_buf_fini(&bytes);
    drop_pieces(&pieces);
}

/* One expert's matrix has zeros, the other's are all the middle: both are in the form with zeros. */
static void experts_of_a_layer_get_one_form(void **state) {
    (void)state;
    static const struct matrix alike = {PACKED, 4, 8, 64, 32, SYM, OF(BF16)},
                               zeros = {PACKED, 4, 8, 64, 32, OF(BF16)};
    static const struct matrix *const both[] = {&alike, &zeros};
    static struct numbers numbers[2];
    static char names[2 * PIECES_MAX][64];
    struct pieces pieces = {.n = 0}, own[2];
    struct weft_errmsg why = {""};
    struct weft_buf bytes;
    weft_model *model;
    uint32_t n_names = 0;
    struct weft_model_quant quant = quant_of(&zeros);
    for (uint32_t e = 0; e < 2; e++) {
        struct matrix written = *both[e];
        draw_numbers(both[e], &numbers[e]);
        written.is_symmetric = false; /* in the file, too */
        add_pieces(&written, &numbers[e], &own[e]);
        for (uint32_t i = 0; i < own[e].n; i++) {
            char *name = names[n_names++];
            (void)snprintf(name, sizeof names[0], "a.experts.%u.%s", e, own[e].of[i].name);
            pieces.of[pieces.n] = own[e].of[i];
            pieces.of[pieces.n++].name = name;
        }
    }
    write_file(&pieces, &bytes);
    if (read_model(&quant, &bytes, &model, &why)) fail_msg("%s", why.text);
    assert_int_equal(weft_model_n_tensors(model), 2);
    for (uint32_t e = 0; e < 2; e++) {
        assert_int_equal(weft_model_tensor(model, e)->dtype, WEFT_DT_Q4_Z);
        check_weights(both[e], &numbers[e], weft_model_tensor(model, e));
    }
    weft_model_free(model);
    weft_buf_fini(&bytes);
    drop_pieces(&pieces);
}

/* Some tools write noughts beside symmetric codes in bytes; and what is for other engines. */
static void tensors_without_meaning_here_are_left_out(void **state) {
    (void)state;
    static const struct matrix eight = W8A8;
    static const char *const names[] = {"w.input_scale", "a.k_scale", "a.v_scale",
                                        "w.output_scale"};
    static struct numbers numbers;
    struct pieces pieces;
    struct weft_errmsg why = {""};
    struct weft_buf bytes;
    weft_model *model;
    const struct weft_model_quant quant = quant_of(&eight);
    draw_numbers(&eight, &numbers);
    add_pieces(&eight, &numbers, &pieces);
    struct piece *noughts = add_piece(&pieces, "w.weight_zero_point", "I8", eight.n, 1);
    gguf_put(&noughts->data, 0, 8);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        gguf_put(&add_piece(&pieces, names[i], "F32", 1, 0)->data, 0x3f800000u, 4);
    write_file(&pieces, &bytes);
    if (read_model(&quant, &bytes, &model, &why)) fail_msg("%s", why.text);
    assert_int_equal(weft_model_n_tensors(model), 1);
    assert_int_equal(weft_model_tensor(model, 0)->dtype, WEFT_DT_I8);
    check_weights(&eight, &numbers, weft_model_tensor(model, 0));
    weft_model_free(model);
    weft_buf_fini(&bytes);
    noughts->data.data[3] = 1;
    expect_refusal(&quant, &pieces, "\"symmetric\" is not false");
    drop_pieces(&pieces);
}

/* All of them, and what lies between two. */
static void a_float_is_a_half_or_has_none(void **state) {
    (void)state;
    for (uint32_t half = 0; half <= UINT16_MAX; half++) {
        const float value = wefti_model_f32_from_f16((uint16_t)half);
        uint16_t got;
        const bool is_finite = (half & 0x7c00u) != 0x7c00u;
        assert_int_equal(wefti_model_f16_of_f32(value, &got), is_finite);
        if (!is_finite) continue;
        assert_int_equal(got, half);
        if (value != 0)
            assert_false(wefti_model_f16_of_f32(nextafterf(value, INFINITY), &got) ||
                         wefti_model_f16_of_f32(nextafterf(value, -INFINITY), &got));
    }
    uint16_t got;
    assert_false(wefti_model_f16_of_f32(65536.0f, &got));
    assert_false(wefti_model_f16_of_f32(0x1p-25f, &got));
    assert_false(wefti_model_f16_of_f32(0x1p-149f, &got));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_what_their_method_defines),
        cmocka_unit_test(rows_among_others_are_those_of_the_weight),
        cmocka_unit_test(a_float_is_a_half_or_has_none),
        cmocka_unit_test(pieces_that_do_not_fit_are_refused),
        cmocka_unit_test(a_configuration_that_contradicts_is_refused),
        cmocka_unit_test(scales_may_be_called_inverse),
        cmocka_unit_test(experts_of_a_layer_get_one_form),
        cmocka_unit_test(tensors_without_meaning_here_are_left_out),
    };
    seed = weft_rand_test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
