/* Packing, the 16-bit floats under it, the cuts of K, and the choice of a table. */
#include "kernels_test.h"

#include <float.h>

#include "inside/kernels/convert.h"

static uint64_t seed;

static void every_f16_is_read_as_its_value(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float got = f16_to_f32((uint16_t)h);
        int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
        double sign = h & 0x8000 ? -1.0 : 1.0;
        if (exponent == 31 && mantissa != 0) {
            assert_true(isnan(got));
            continue;
        }
        double truth = exponent == 31  ? INFINITY
                       : exponent == 0 ? ldexp(mantissa, -24)
                                       : ldexp(1024 + mantissa, exponent - 25);
        assert_true(same_bits(got, (float)(sign * truth)));
        assert_int_equal(f32_to_f16(got), h);
        if (!isinf(got)) assert_int_equal(f32_to_bf16(bf16_to_f32((uint16_t)h)), h);
    }
}

/* Halfway cases and their neighbours around every finite number of the format. */
static void narrowing_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float low = f16_to_f32((uint16_t)h), high = f16_to_f32((uint16_t)(h + 1));
        float middle = (float)(((double)low + (double)high) / 2); /* exact in f32 */
        assert_int_equal(f32_to_f16(middle), h + (h & 1));
        assert_int_equal(f32_to_f16(nextafterf(middle, -INFINITY)), h);
        assert_int_equal(f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(f32_to_f16(-middle), 0x8000 | (h + (h & 1)));
    }
    assert_int_equal(f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    for (uint32_t h = 0; h < 0x7f7f; h++) {
        float middle = f32_from_bits(h << 16 | 0x8000u);
        assert_int_equal(f32_to_bf16(middle), h + (h & 1));
        assert_int_equal(f32_to_bf16(f32_from_bits(h << 16 | 0x7fffu)), h);
        assert_int_equal(f32_to_bf16(f32_from_bits(h << 16 | 0x8001u)), h + 1);
    }
    assert_int_equal(f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(f32_to_bf16(FLT_MAX), 0x7f80);
    assert_true(isnan(bf16_to_f32(f32_to_bf16(f32_from_bits(0x7f800001u)))));
    assert_true(isnan(f16_to_f32(f32_to_f16(NAN))));
}

static void every_e4m3_is_read_as_its_value(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 256; code++) {
        float got = f8_value((uint8_t)code);
        int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
        double sign = code & 0x80 ? -1.0 : 1.0;
        if (exponent == 15 && mantissa == 7) {
            assert_true(isnan(got));
            continue;
        }
        double truth = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
        assert_true(same_bits(got, (float)(sign * truth)));
    }
}

/* Rows of FP8 and NF4 that end within a panel, of FP8 within a group, too: a panel gives the same
 * values as the row, but a NaN takes its group with it. */
static void fp8_and_nf4_rows_are_packed_as_they_are(void **state) {
    static const enum weft_gemm_kind kinds[2] = {WEFT_GEMM_F8_E4M3_F32, WEFT_GEMM_NF4_F32};
    static const enum weft_dtype types[2] = {WEFT_DT_F8_E4M3, WEFT_DT_NF4};
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        const struct fp8_nf4 *c = fp8_nf4_of(types[round % 2]);
        uint32_t n = between(&seed, 1, 40), k = between(&seed, 1, 500);
        if (c->per_byte == 2) k = (k + c->group - 1) / c->group * c->group;
        size_t row_bytes = fp8_nf4_bytes(c, k, 1);
        uint8_t *bytes = take(n * row_bytes + 1), *rows = bytes + 1;
        void *packed = take(weft_kern_packed_bytes(kinds[round % 2], n, k));
        float *wanted = take(k * sizeof(float)), *got = take(k * sizeof(float));
        fill_fp8_nf4(&seed, c, rows, n, k);
        if (c->per_byte == 1 && round % 4 == 0) rows[4] = 0xff;
        weft_kern_pack(kinds[round % 2], &(struct weft_kern_source){types[round % 2], rows, n, k},
                       0, n, NULL, packed);
        for (uint32_t row = 0; row < n; row++) {
            weft_kern_read_row(types[round % 2], rows + row * row_bytes, k, wanted);
            assert_int_equal(weft_kern_unpack_row(kinds[round % 2], packed, k, row, got),
                             WEFT_DT_F32);
            bool has_nan = isnan(wanted[0]);
            assert_int_equal(has_nan, row == 0 && rows[4] == 0xff && c->per_byte == 1);
            for (uint32_t i = 0; i < k; i++) {
                if (has_nan && i < c->group) {
                    assert_true(isnan(got[i]));
                } else {
                    assert_true(same_bits(got[i], wanted[i]));
                }
            }
        }
        free(bytes);
        free(packed);
        free(wanted);
        free(got);
    }
}

/* The same of groups in any order, and of one that is past the table. */
static void act_order_rows_are_packed_as_they_are(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        enum weft_dtype type = round % 2 ? WEFT_DT_Q8_G : WEFT_DT_Q4_G;
        enum weft_gemm_kind kind = weft_kern_exact_kind(type);
        const struct act_order *o = act_order_of(type);
        uint32_t n = between(&seed, 1, 40), k = between(&seed, 1, 12) * ORDER_GROUP;
        size_t row_bytes = order_row_bytes(o, k);
        uint8_t *bytes = take(n * row_bytes + 1), *rows = bytes + 1;
        void *packed = take(weft_kern_packed_bytes(kind, n, k));
        float *wanted = take(k * sizeof(float)), *got = take(k * sizeof(float));
        fill_act_order(&seed, o, rows, n, k);
        for (uint32_t row = 0; row < n && round % 8 < 2; row++) {
            memset(rows + row * row_bytes + order_groups(k) * 3, 0xff, 2);
        }
        weft_kern_pack(kind, &(struct weft_kern_source){type, rows, n, k}, 0, n, NULL, packed);
        for (uint32_t row = 0; row < n; row++) {
            weft_kern_read_row(type, rows + row * row_bytes, k, wanted);
            assert_int_equal(weft_kern_unpack_row(kind, packed, k, row, got), WEFT_DT_F32);
            assert_memory_equal(got, wanted, k * sizeof(float));
        }
        free(bytes);
        free(packed);
        free(wanted);
        free(got);
    }
}

/* Codes and scales of a feature, as a checkpoint has them; columns that end within a group, too. */
static void i8_rows_are_packed_as_they_are(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 30; round++) {
        uint32_t n = between(&seed, 1, 40), k = between(&seed, 1, 600);
        size_t row_bytes = sizeof(float) + k;
        uint8_t *bytes = take(n * row_bytes + 1), *rows = bytes + 1;
        void *packed = take(weft_kern_packed_bytes(WEFT_GEMM_I8, n, k));
        float *wanted = take(k * sizeof(float)), *got = take(k * sizeof(float));
        for (uint32_t row = 0; row < n; row++) {
            uint8_t *at = rows + row * row_bytes;
            float scale = some_float(&seed, PLAIN);
            memcpy(at, &scale, sizeof scale);
            for (uint32_t i = 0; i < k; i++)
                at[sizeof scale + i] = (uint8_t)weft_rand_next(&seed); /* -128, too */
        }
        weft_kern_pack(WEFT_GEMM_I8, &(struct weft_kern_source){WEFT_DT_I8, rows, n, k}, 0, n, NULL,
                       packed);
        for (uint32_t row = 0; row < n; row++) {
            const uint8_t *at = rows + row * row_bytes;
            float scale;
            memcpy(&scale, at, sizeof scale);
            weft_kern_read_row(WEFT_DT_I8, at, k, wanted);
            for (uint32_t i = 0; i < k; i++)
                assert_true(wanted[i] == scale * (float)(int8_t)at[sizeof scale + i]);
            assert_int_equal(weft_kern_unpack_row(WEFT_GEMM_I8, packed, k, row, got), WEFT_DT_F32);
            assert_memory_equal(got, wanted, k * sizeof(float));
        }
        free(bytes);
        free(packed);
        free(wanted);
        free(got);
    }
}

/* Sources of each type made from `w`, at an odd address, and their values after rounding. */
static uint8_t *make_source(enum weft_dtype type, float *w, uint32_t n, uint32_t k) {
    size_t count = (size_t)n * k;
    uint8_t *bytes = take(count * 4 + 1), *out = bytes + 1;
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        switch (type) {
        case WEFT_DT_F32:
            memcpy(out + i * 4, &w[i], 4);
            break;
        case WEFT_DT_F16:
        case WEFT_DT_BF16:
            half = type == WEFT_DT_F16 ? f32_to_f16(w[i]) : f32_to_bf16(w[i]);
            memcpy(out + i * 2, &half, 2);
            w[i] = type == WEFT_DT_F16 ? f16_to_f32(half) : bf16_to_f32(half);
            break;
        case WEFT_DT_Q8_0:
            if (i % 32 == 0) {
                half = f32_to_f16(some_float(&seed, PLAIN));
                memcpy(out + i / 32 * 34, &half, 2);
            }
            memcpy(&half, out + i / 32 * 34, 2);
            int8_t code = (int8_t)weft_rand_next(&seed); /* -128, too */
            memcpy(out + i / 32 * 34 + 2 + i % 32, &code, 1);
            w[i] = f16_to_f32(half) * code;
            break;
        default: /* those of fewer bits: golden_quant.c */
            fail();
        }
    }
    return bytes;
}

static float packed_at(enum weft_gemm_kind kind, const uint8_t *packed, uint32_t n, uint32_t k,
                       uint32_t k_all) {
    const uint8_t *panel = packed + n / 16 * weft_kern_panel_bytes(kind, k_all);
    const uint16_t *halves = (const void *)panel;
    const uint8_t *block = panel + (size_t)k / 32 * 544;
    uint32_t i = n % 16;
    uint16_t scale;
    int code;
    switch (kind) {
    case WEFT_GEMM_F32_F32:
        return ((const float *)(const void *)panel)[(size_t)k * 16 + i];
    case WEFT_GEMM_F16_F32:
        return f16_to_f32(halves[(size_t)k * 16 + i]);
    case WEFT_GEMM_BF16_F32:
    case WEFT_GEMM_BF16:
        return bf16_to_f32(halves[((size_t)k / 2 * 16 + i) * 2 + k % 2]);
    default:
        memcpy(&scale, block + 512 + 2 * (size_t)i, 2);
        code = block[k % 32 / 4 * 64 + i * 4 + k % 4] - 128;
        return f16_to_f32(scale) * (float)code;
    }
}

/* The stored form of value `w` of a block of 32 whose largest magnitude is `max`. */
static void check_stored(enum weft_gemm_kind kind, bool was_q8, float got, float w, float max) {
    if (kind == WEFT_GEMM_F32_F32) {
        assert_true(same_bits(got, w));
    } else if (kind == WEFT_GEMM_F16_F32) {
        assert_true(same_bits(got, f16_to_f32(f32_to_f16(w))));
    } else if (kind == WEFT_GEMM_BF16_F32 || kind == WEFT_GEMM_BF16) {
        assert_true(same_bits(got, bf16_to_f32(f32_to_bf16(w))));
    } else if (was_q8) {
        assert_true(got == w);
    } else {
        /* Half a step, and the scale's own rounding to f16 (2^-11 of up to 127 steps). */
        assert_true(fabsf(got - w) <= max / 127.0f * (0.5001f + 127.0f * 0x1p-11f) + 0x1p-18f);
    }
}

static void packing_keeps_values_and_pads_with_zero(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 240; round++) {
        enum weft_gemm_kind kind = (enum weft_gemm_kind)(round % FLOAT_KINDS);
        enum weft_dtype type = (enum weft_dtype)(round / 6 % 4);
        bool blocks = type == WEFT_DT_Q8_0 || kind == WEFT_GEMM_Q8_0 || kind == WEFT_GEMM_Q8_0_F32;
        uint32_t n = between(&seed, 1, 50), k = between(&seed, 1, 5) * 32;
        if (!blocks) k = between(&seed, 1, 170);
        float *w = take((size_t)n * k * sizeof *w);
        fill(&seed, round % 2 ? PLAIN : SPARSE, w, (size_t)n * k);
        uint8_t *source = make_source(type, w, n, k);
        size_t bytes = weft_kern_packed_bytes(kind, n, k);
        assert_int_equal(bytes % 64, 0);
        uint8_t *packed = take(bytes), *parts = take(bytes);
        weft_kern_pack(kind, &(struct weft_kern_source){type, source + 1, n, k}, 0, n, NULL,
                       packed);
        for (uint32_t n0 = 0; n0 < n; n0 += 16) { /* panel by panel gives the same, every byte */
            weft_kern_pack(kind, &(struct weft_kern_source){type, source + 1, n, k}, n0,
                           weft_min_u32(n, n0 + 16), NULL, parts);
        }
        assert_memory_equal(packed, parts, bytes);
        for (uint32_t i = 0; i < (n + 15) / 16 * 16; i++) {
            for (uint32_t j = 0; j < k; j++) {
                float got = packed_at(kind, packed, i, j, k), max = 0;
                if (i >= n) {
                    assert_true(same_bits(got, 0.0f));
                    continue;
                }
                for (uint32_t b = j / 32 * 32; blocks && b < j / 32 * 32 + 32; b++) {
                    max = fmaxf(max, fabsf(w[(size_t)i * k + b]));
                }
                check_stored(kind, type == WEFT_DT_Q8_0, got, w[(size_t)i * k + j], max);
            }
        }
        free(w);
        free(source);
        free(packed);
        free(parts);
    }
}

/* The kind's own source type, packed and back. */
static void unpacked_rows_are_what_was_packed(void **state) {
    static const enum weft_dtype own[WEFT_GEMM_KIND_COUNT] = {
        [WEFT_GEMM_F32_F32] = WEFT_DT_F32,   [WEFT_GEMM_F16_F32] = WEFT_DT_F16,
        [WEFT_GEMM_BF16_F32] = WEFT_DT_BF16, [WEFT_GEMM_BF16] = WEFT_DT_BF16,
        [WEFT_GEMM_Q8_0_F32] = WEFT_DT_Q8_0, [WEFT_GEMM_Q8_0] = WEFT_DT_Q8_0,
    };
    static const uint32_t groups[WEFT_GEMM_KIND_COUNT] = {1, 1, 2, 2, 32, 32};
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        enum weft_gemm_kind kind = (enum weft_gemm_kind)(round % FLOAT_KINDS);
        enum weft_dtype type = own[kind];
        uint32_t n = between(&seed, 1, 50), k = between(&seed, 1, 170); /* odd ones, too */
        if (type == WEFT_DT_Q8_0) k = between(&seed, 1, 5) * 32;
        size_t row_bytes = type == WEFT_DT_Q8_0  ? k / 32 * (size_t)34
                           : type == WEFT_DT_F32 ? k * (size_t)4
                                                 : k * (size_t)2;
        float *w = take((size_t)n * k * sizeof *w);
        fill(&seed, PLAIN, w, (size_t)n * k);
        uint8_t *source = make_source(type, w, n, k);
        uint8_t *packed = take(weft_kern_packed_bytes(kind, n, k)), *row = take(row_bytes + 1);
        weft_kern_pack(kind, &(struct weft_kern_source){type, source + 1, n, k}, 0, n, NULL,
                       packed);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(weft_kern_unpack_row(kind, packed, k, i, row + 1), type);
            assert_memory_equal(row + 1, source + 1 + i * row_bytes, row_bytes);
        }
        assert_int_equal(weft_kern_group(kind), groups[kind]);
        free(w);
        free(source);
        free(packed);
        free(row);
    }
}

static void quantising_what_cannot_be_is_harmless(void **state) {
    const float cases[] = {0.0f, -0.0f, 1e-45f, 1e-38f, 1e-9f, 3e38f, INFINITY, NAN};
    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float w[32];
        for (uint32_t j = 0; j < 32; j++) {
            w[j] = j % 2 ? cases[i] : 0.0f;
        }
        _Alignas(64) uint8_t packed[576];
        assert_int_equal(weft_kern_packed_bytes(WEFT_GEMM_Q8_0, 1, 32), sizeof packed);
        weft_kern_pack(WEFT_GEMM_Q8_0, &(struct weft_kern_source){WEFT_DT_F32, w, 1, 32}, 0, 1,
                       NULL, packed);
        float got = packed_at(WEFT_GEMM_Q8_0, packed, 0, 1, 32);
        if (cases[i] < 1e-6f) {
            assert_true(got == 0.0f);
        } else {
            assert_true(!isfinite(got));
        }
    }
}

static void segments_follow_the_units(void **state) {
    (void)state;
    struct weft_kern_segs segs;
    weft_kern_segs_split(&segs, 11, 64);
    const uint32_t ends[8] = {64, 128, 256, 320, 384, 512, 576, 704};
    assert_int_equal(segs.n_segs, 8);
    assert_memory_equal(segs.seg_end, ends, sizeof ends);
    weft_kern_segs_split(&segs, 1, 7);
    for (uint32_t s = 0; s < 8; s++) {
        assert_int_equal(segs.seg_end[s], s == 7 ? 7 : 0);
    }
    weft_kern_segs_one(&segs, 99);
    assert_int_equal(segs.n_segs, 1);
    assert_int_equal(segs.seg_end[0], 99);
}

static void every_entry_of_every_table_is_there(void **state) {
    struct weft_kern_table tables[TABLES_MAX];
    uint32_t n_tables = all_tables(tables);
    (void)state;
    for (uint32_t t = 0; t < n_tables; t++) {
        for (uint32_t kind = 0; kind < FLOAT_KINDS; kind++) {
            assert_true(tables[t].gemm[kind] != NULL);
        }
        assert_true(tables[t].name && tables[t].act_convert && tables[t].rms_norm &&
                    tables[t].rope);
        assert_true(tables[t].silu_mul && tables[t].kv_write && tables[t].attention);
        assert_true(tables[t].chunk_max && tables[t].exp_parts && tables[t].log_sum_exp &&
                    tables[t].argmax);
    }
}

static void the_variable_forces_an_isa_or_is_refused(void **state) {
    static const char *const names[WEFT_ISA_COUNT] = {"scalar", "avx2", "avx2vnni",
                                                      "avx512", "amx",  "neon"};
    const struct weft_kern_table *table;
    struct weft_errmsg why;
    (void)state;
    for (uint32_t isa = 0; isa < WEFT_ISA_COUNT; isa++) {
        assert_int_equal(setenv("WEFT_ISA", names[isa], 1), 0);
        weft_err err = weft_kern_select(&table, &why);
        assert_ptr_equal(table, weft_kern_table_for((enum weft_isa)isa));
        assert_int_equal(err, table ? WEFT_OK : WEFT_E_UNSUPPORTED);
        if (table) assert_int_equal(table->isa, isa);
    }
    assert_int_equal(setenv("WEFT_ISA", "sse9", 1), 0);
    assert_int_equal(weft_kern_select(&table, &why), WEFT_E_UNSUPPORTED);
    assert_null(table);
    assert_non_null(strstr(why.text, ", not \"sse9\""));
    for (uint32_t isa = 0; isa < WEFT_ISA_COUNT; isa++) { /* what there is, and nothing else */
        bool is_told = strstr(why.text, names[isa]) != NULL;
        assert_int_equal(is_told, weft_kern_table_for((enum weft_isa)isa) != NULL);
    }
    assert_int_equal(unsetenv("WEFT_ISA"), 0);
    assert_int_equal(weft_kern_select(&table, NULL), WEFT_OK);
    for (uint32_t isa = 0; isa < WEFT_ISA_COUNT; isa++) { /* the best there is */
        if (weft_kern_table_for((enum weft_isa)isa)) assert_true(table->isa >= isa);
    }
}

/* Half a step; f16's rounding of the minimum, and fifteen times that of the scale; and all of it if
 * the step itself is lost in f16. */
static void four_bits_are_within_half_a_step(void **state) {
    (void)state;
    static const enum flavour flavours[] = {PLAIN, WIDE, TINY, SPARSE};
    for (uint32_t round = 0; round < 400; round++) {
        float w[32], got[32];
        fill(&seed, flavours[round % 4], w, 32);
        if (round % 7 == 0) {
            for (uint32_t i = 0; i < 32; i++)
                w[i] = w[0]; /* no range at all */
        }
        void *packed = take(weft_kern_packed_bytes(WEFT_GEMM_Q4_1, 1, 32));
        weft_kern_pack(WEFT_GEMM_Q4_1, &(struct weft_kern_source){WEFT_DT_F32, w, 1, 32}, 0, 1,
                       NULL, packed);
        assert_int_equal(weft_kern_unpack_row(WEFT_GEMM_Q4_1, packed, 32, 0, got), WEFT_DT_F32);
        float low = w[0], high = w[0];
        for (uint32_t i = 0; i < 32; i++) {
            low = fminf(low, w[i]);
            high = fmaxf(high, w[i]);
        }
        float step = (high - low) / 15.0f, rounding = fabsf(low) * 0x1p-11f + step * 15 * 0x1p-11f;
        for (uint32_t i = 0; i < 32; i++)
            assert_true(fabsf(got[i] - w[i]) <= step * 0.5001f + rounding + 16 * 0x1p-25f);
        free(packed);
    }
    float bad[32] = {1.0f, NAN, 2.0f}, got[32];
    void *packed = take(weft_kern_packed_bytes(WEFT_GEMM_Q4_1, 1, 32));
    weft_kern_pack(WEFT_GEMM_Q4_1, &(struct weft_kern_source){WEFT_DT_F32, bad, 1, 32}, 0, 1, NULL,
                   packed);
    (void)weft_kern_unpack_row(WEFT_GEMM_Q4_1, packed, 32, 0, got);
    assert_true(isnan(got[5]));
    free(packed);
}

/* Packed files hold panels: their sizes, and with them where the arrays of a group begin, stay. */
static void panels_are_as_long_as_those_in_files(void **state) {
    (void)state;
    static const struct {
        enum weft_dtype dtype;
        uint32_t at_scales, at_mins, at_super, bytes;
    } written[] = {
        {WEFT_DT_Q4_0, 256, 288, 288, 288},      {WEFT_DT_Q4_1, 256, 288, 320, 320},
        {WEFT_DT_Q4_Z, 256, 288, 304, 304},      {WEFT_DT_Q4_K, 2048, 2176, 2304, 2368},
        {WEFT_DT_Q5_K, 2560, 2688, 2816, 2880},  {WEFT_DT_Q6_K, 3072, 3328, 3328, 3392},
        {WEFT_DT_Q2_K, 1024, 1280, 1536, 1600},  {WEFT_DT_Q3_K, 1536, 1792, 1792, 1856},
        {WEFT_DT_Q5_1, 320, 352, 384, 384},      {WEFT_DT_Q5_0, 320, 352, 352, 352},
        {WEFT_DT_IQ4_NL, 256, 288, 288, 288},    {WEFT_DT_IQ4_XS, 2048, 2176, 2176, 2240},
        {WEFT_DT_IQ3_S, 2048, 2176, 2176, 2240}, {WEFT_DT_IQ3_XXS, 2048, 2176, 2176, 2240},
        {WEFT_DT_IQ2_S, 1536, 1792, 1792, 1856}, {WEFT_DT_IQ1_M, 1536, 1792, 1792, 1856},
        {WEFT_DT_TQ2_0, 1024, 1024, 1024, 1088}, {WEFT_DT_MXFP4, 256, 272, 272, 272},
        {WEFT_DT_NVFP4, 512, 576, 576, 576},     {WEFT_DT_NVFP4_S, 512, 576, 576, 640},
    };
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        const struct quant_layout *q = quant_layout_of(written[i].dtype);
        assert_int_equal(q->at_scales, written[i].at_scales);
        assert_int_equal(q->at_mins, written[i].at_mins);
        assert_int_equal(q->at_super, written[i].at_super);
        assert_int_equal(q->bytes, written[i].bytes);
        assert_int_equal(weft_kern_panel_bytes(weft_kern_fast_kind(written[i].dtype), 512),
                         (512 / q->group * q->bytes + 63) / 64 * 64);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_bits_are_within_half_a_step),
        cmocka_unit_test(every_f16_is_read_as_its_value),
        cmocka_unit_test(every_e4m3_is_read_as_its_value),
        cmocka_unit_test(fp8_and_nf4_rows_are_packed_as_they_are),
        cmocka_unit_test(act_order_rows_are_packed_as_they_are),
        cmocka_unit_test(i8_rows_are_packed_as_they_are),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(packing_keeps_values_and_pads_with_zero),
        cmocka_unit_test(unpacked_rows_are_what_was_packed),
        cmocka_unit_test(quantising_what_cannot_be_is_harmless),
        cmocka_unit_test(segments_follow_the_units),
        cmocka_unit_test(every_entry_of_every_table_is_there),
        cmocka_unit_test(the_variable_forces_an_isa_or_is_refused),
        cmocka_unit_test(panels_are_as_long_as_those_in_files),
    };
    seed = weft_rand_test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
