/* Blocks of GGUF's types of few bits as weights, and the points of lattices that some have.
 *
 * How the hashes were made: those of blocks by tests/golden/make_quant_hashes.py, a reader of its own,
 * which agrees with the goldens of ../shared/zoo2/gguf_types; those of grids from the coordinates that
 * GGML's definition gives. */
#include "kernels_test.h"

#include "inside/kernels/quant_grids.h"

static uint64_t fnv(uint64_t hash, const void *data, size_t n) {
    const uint8_t *bytes = data;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    }
    return hash;
}

static const uint64_t fnv_of_nothing = 0xcbf29ce484222325;

static void grids_are_the_formats(void **state) {
    (void)state;
    static const struct {
        const uint16_t *points;
        uint32_t n, bits; /* of a coordinate */
        uint64_t hash;
    } grids[] = {
        {wefti_kern_grid_iq1, 2048, 2, 0xec28b6368f0c62e0ull},
        {wefti_kern_grid_iq2_xxs, 256, 2, 0xab05d880babe6823ull},
        {wefti_kern_grid_iq2_xs, 512, 2, 0x6853eeeddb7ea013ull},
        {wefti_kern_grid_iq2_s, 1024, 2, 0x2c1955b62f3d75bdull},
        {wefti_kern_grid_iq3_xxs, 256, 3, 0xe94d0633d4024cd5ull},
        {wefti_kern_grid_iq3_s, 512, 3, 0x5d10ecbdf51ec43bull},
    };
    for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++) {
        const uint32_t bits = grids[g].bits, n_coordinates = bits == 2 ? 8 : 4;
        uint64_t hash = fnv_of_nothing;
        for (uint32_t i = 0; i < grids[g].n; i++) {
            const uint32_t point = grids[g].points[i];
            assert_true(i == 0 || point > grids[g].points[i - 1]);
            assert_true(point >> bits * n_coordinates == 0);
            for (uint32_t c = 0; c < n_coordinates; c++) {
                const uint8_t coordinate = (uint8_t)(point >> bits * c & ((1u << bits) - 1));
                hash = fnv(hash, &coordinate, 1);
            }
        }
        assert_true(hash == grids[g].hash);
    }
}

/* Any bytes, but a finite scale; subnormal ones are among them. */
static void random_block(enum weft_dtype dtype, uint64_t number, uint8_t *out) {
    const struct quant_layout *q = quant_layout_of(dtype);
    uint64_t at = number;
    for (uint32_t i = 0; i < weft_dtype_block_bytes(dtype); i++) {
        at = at * 6364136223846793005 + 1442695040888963407;
        out[i] = (uint8_t)(at >> 56);
    }
    if (q->scales == QUANT_E8M0)
        out[0] = (uint8_t)(number % 4 ? out[0] % 252 : number / 4);
    else if (dtype == WEFT_DT_TQ2_0)
        out[65] &= 0xbf;
    else if (dtype == WEFT_DT_TQ1_0)
        out[53] &= 0xbf;
    else if (dtype == WEFT_DT_IQ1_M)
        out[55] &= 0xbf;
    else if (q->is_super)
        out[1] &= 0xbf;
}

static void blocks_are_the_weights_of_the_definition(void **state) {
    (void)state;
    static const struct {
        enum weft_dtype dtype;
        uint64_t hash; /* of the weights of 16 blocks, zeros without a sign */
    } types[] = {
        {WEFT_DT_IQ4_XS, 0x4a600509604933ccull},  {WEFT_DT_IQ3_S, 0x68b3a24e283d5fcbull},
        {WEFT_DT_IQ3_XXS, 0xf4a9ec72799eb864ull}, {WEFT_DT_IQ2_S, 0x0ad8bbac317ef10aull},
        {WEFT_DT_IQ2_XS, 0x6abadd99d3bb9fdeull},  {WEFT_DT_IQ2_XXS, 0x491a14855d99693eull},
        {WEFT_DT_IQ1_M, 0x4fca6555ea6262aeull},   {WEFT_DT_IQ1_S, 0x5604975e7e9a95d1ull},
        {WEFT_DT_TQ2_0, 0xce00a725be16c1e4ull},   {WEFT_DT_TQ1_0, 0x38438cea5bbae5b7ull},
        {WEFT_DT_MXFP4, 0x9ebfa2dc85c98fbaull},   {WEFT_DT_NVFP4, 0xa7300e84890a0a23ull},
    };
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const enum weft_dtype dtype = types[t].dtype;
        const uint32_t n = weft_dtype_block_elems(dtype);
        uint64_t hash = fnv_of_nothing;
        for (uint64_t number = 0; number < 16; number++) {
            uint8_t block[256] = {0};
            float weights[QUANT_SUPER];
            random_block(dtype, number, block);
            weft_kern_read_row(dtype, block, n, weights);
            for (uint32_t i = 0; i < n; i++) {
                weights[i] += 0.0f;
            }
            hash = fnv(hash, weights, n * sizeof *weights);
        }
        if (hash != types[t].hash) fail_msg("%s: other weights", weft_dtype_name(dtype));
    }
}

static void same_as_itself(enum weft_dtype dtype) {
    const enum weft_gemm_kind kind = weft_kern_fast_kind(dtype);
    const struct quant_layout *q = quant_layout_of(dtype);
    float want[QUANT_SUPER], got[QUANT_SUPER];
    uint8_t *panel = take(weft_kern_panel_bytes(kind, q->group)), block[256] = {0};
    for (uint64_t number = 0; number < 8; number++) {
        random_block(dtype, number, block);
        weft_kern_read_row(dtype, block, q->group, want);
        weft_kern_pack(kind, &(struct weft_kern_source){dtype, block, 1, q->group}, 0, 1, NULL,
                       panel);
        assert_int_equal(weft_kern_unpack_row(kind, panel, q->group, 0, got), WEFT_DT_F32);
        for (uint32_t i = 0; i < q->group; i++) {
            assert_true(want[i] == got[i]);
        }
    }
    free(panel);
}

static void panels_hold_the_same_weights(void **state) {
    (void)state;
    static const enum weft_dtype types[] = {WEFT_DT_IQ4_XS, WEFT_DT_IQ3_S,  WEFT_DT_IQ3_XXS,
                                            WEFT_DT_IQ2_S,  WEFT_DT_IQ2_XS, WEFT_DT_IQ2_XXS,
                                            WEFT_DT_IQ1_M,  WEFT_DT_IQ1_S,  WEFT_DT_TQ2_0,
                                            WEFT_DT_TQ1_0,  WEFT_DT_MXFP4,  WEFT_DT_NVFP4};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        same_as_itself(types[t]);
    }
}

/* A scale of e8m0 is never infinite or NaN; one of e4m3 has no sign, and its NaN is zero. */
static void scales_of_a_byte_are_what_they_are(void **state) {
    (void)state;
    assert_true(quant_e8m0(0) == 0x1p-128f && quant_e8m0(1) == 0x1p-127f);
    assert_true(quant_e8m0(2) == 0x1p-126f && quant_e8m0(128) == 1.0f);
    assert_true(quant_e8m0(255) == 0x1p127f);
    assert_true(quant_ue4m3(0) == 0.0f && quant_ue4m3(1) == 0x1p-10f);
    assert_true(quant_ue4m3(0x38) == 0.5f && quant_ue4m3(0x7e) == 224.0f);
    uint8_t block[36] = {0x7f, 0xff, 0xb8, 0x80};
    float weights[64];
    memset(block + 4, 0x22, 32); /* 1 of e2m1, all over */
    weft_kern_read_row(WEFT_DT_NVFP4, block, 64, weights);
    assert_true(weights[0] == 0.0f && weights[16] == 480.0f);
    assert_true(weights[32] == 1.0f && weights[48] == 0.0f);
}

/* Of a scale of a whole matrix 17 bits are left; that of ones stays. */
static void a_matrix_scale_multiplies_all_weights(void **state) {
    (void)state;
    static const float scales[] = {1.0f, 0.5f, -3.0f, 0x1.00006p0f, 0x1.00008p0f, 0x1.00018p0f};
    static const float stored[] = {1.0f, 0.5f, -3.0f, 0x1p0f, 0x1.0001p0f, 0x1.0002p0f};
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        uint8_t block[256] = {0}, scaled[256];
        float plain[QUANT_SUPER], times[QUANT_SUPER];
        random_block(WEFT_DT_NVFP4, s, block);
        memcpy(scaled, scales + s, sizeof *scales);
        memcpy(scaled + 4, block, 36);
        weft_kern_read_row(WEFT_DT_NVFP4, block, 64, plain);
        weft_kern_read_row(WEFT_DT_NVFP4_S, scaled, 64, times);
        for (uint32_t i = 0; i < 64; i++) {
            assert_true(times[i] == plain[i] * stored[s]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grids_are_the_formats),
        cmocka_unit_test(blocks_are_the_weights_of_the_definition),
        cmocka_unit_test(panels_hold_the_same_weights),
        cmocka_unit_test(scales_of_a_byte_are_what_they_are),
        cmocka_unit_test(a_matrix_scale_multiplies_all_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
