/* bf16 weights and activations, by dot products of pairs (bfdot) and, for many rows, products of
 * small matrices (bfmmla). The architecture defines the latter as two of the former, one after the
 * other, so both give the same bits: products and sums of f32 that are rounded to odd, with
 * subnormals taken for zero (while FPCR.EBF is 0, as Linux leaves it). */
#include "gemm_pairs_neon.h"

ALWAYS_INLINE float32x4_t dot_lane(float32x4_t sum, bfloat16x8_t w, bfloat16x8_t a, uint32_t lane) {
    switch (lane) {
    case 0:
        return vbfdotq_laneq_f32(sum, w, a, 0);
    case 1:
        return vbfdotq_laneq_f32(sum, w, a, 1);
    case 2:
        return vbfdotq_laneq_f32(sum, w, a, 2);
    default:
        return vbfdotq_laneq_f32(sum, w, a, 3);
    }
}

typedef struct quarters few_sums[FEW_MAX][FEW_PANELS];

/* The pair of every feature that stands at `at`, times what stands in a lane of each row's
 * activations. */
ALWAYS_INLINE void add_few(const uint8_t *at, uint32_t rows, uint32_t panel, const bfloat16x8_t *a,
                           uint32_t lane, few_sums sum) {
    for (uint32_t v = 0; v < QUARTERS; v++) {
        bfloat16x8_t w = vreinterpretq_bf16_u8(vld1q_u8(at + (size_t)v * 16));
        for (uint32_t r = 0; r < rows; r++) {
            sum[r][panel].v[v] = dot_lane(sum[r][panel].v[v], w, a[r], lane);
        }
    }
}

ALWAYS_INLINE void tile_dot(const struct tile *args, uint32_t rows, uint32_t panels) {
    const struct tile t = *args;
    const struct act_words act = act_words_at(&t, 1, t.k_begin / 2);
    const size_t n_pairs = (t.count + 1) / 2; /* an odd K is padded with zero on both sides */
    const size_t n_fours = n_pairs / LANES * LANES;
    bfloat16x8_t a[FEW_MAX];
    few_sums sum;
    for (uint32_t i = 0; i < rows * panels; i++) {
        sum[i / panels][i % panels] = load_quarters(t.from + (size_t)i * WEFT_PANEL);
    }
    for (size_t pair = 0; pair < n_fours; pair += LANES) {
        for (uint32_t r = 0; r < rows; r++) {
            a[r] = vreinterpretq_bf16_u8(vld1q_u8(act_word(act, r, pair)));
        }
        for (uint32_t lane = 0; lane < LANES; lane++) {
            prefetch_either(&t, panels, 1, pair, (pair + lane) * 64);
            for (uint32_t p = 0; p < panels; p++) {
                add_few(t.panels[p] + (pair + lane) * 64, rows, p, a, lane, sum);
            }
        }
    }
    for (size_t pair = n_fours; pair < n_pairs; pair++) {
        for (uint32_t r = 0; r < rows; r++) {
            a[r] = vreinterpretq_bf16_u32(vld1q_dup_u32(act_word(act, r, pair)));
        }
        for (uint32_t p = 0; p < panels; p++) {
            add_few(t.panels[p] + pair * 64, rows, p, a, 0, sum);
        }
    }
    for (uint32_t i = 0; i < rows * panels; i++) {
        store_quarters(sum[i / panels][i % panels], t.acc + (size_t)i * WEFT_PANEL);
    }
}

static void few_dot(const struct tile *t, uint32_t rows){RUN_FEW(tile_dot, t, rows, FEW_PANELS)}

/* Four columns of 6 rows at most. */
ALWAYS_INLINE
    void add_step(const uint8_t *weights, uint32x4_t a[PART_PAIRS], uint32_t rows, pair_sums sum) {
    for (uint32_t j = 0; j < PAIRS; j++) {
        bfloat16x8_t w = vreinterpretq_bf16_u8(vld1q_u8(weights + (size_t)j * 16));
        for (uint32_t i = 0; i < (rows + 1) / 2; i++) {
            sum[i][j] = vbfmmlaq_f32(sum[i][j], vreinterpretq_bf16_u32(a[i]), w);
        }
    }
}

ALWAYS_INLINE void part_bf16(const struct tile *args, uint32_t first, uint32_t rows) {
    const struct tile t = *args;
    const size_t n_pairs = (t.count + 1) / 2, word = (size_t)MANY_ROWS * ACT_WORD;
    const uint8_t *act = t.act + t.k_begin / 2 * word + (size_t)first * ACT_WORD;
    uint32x4_t a[PART_PAIRS];
    pair_sums sum;
    load_pair_sums(t.from + (size_t)first * WEFT_PANEL, rows, sum);
    size_t step = 0;
    for (; step < n_pairs / 2; step++) {
        if (first == 0) prefetch_step(&t, 1, step);
        load_row_pairs(act + step * 2 * word, rows, a);
        add_step(t.panels[0] + step * STEP_BYTES, a, rows, sum);
    }
    if (n_pairs % 2 != 0) { /* what follows is of other columns, and need not be finite */
        load_row_pairs(act + step * 2 * word, rows, a);
        for (uint32_t i = 0; i < (rows + 1) / 2; i++) {
            a[i] = vreinterpretq_u32_u64(
                vandq_u64(vreinterpretq_u64_u32(a[i]), vdupq_n_u64(UINT32_MAX)));
        }
        add_step(t.panels[0] + step * STEP_BYTES, a, rows, sum);
    }
    store_pair_sums(sum, rows, t.acc + (size_t)first * WEFT_PANEL);
}

static void many_bf16(const struct tile *t, uint32_t rows) {
    RUN_PARTS(part_bf16, t, rows)
}

/* Pairs of features; an odd word is followed by zeros. */
static void pair_up(const uint8_t *panel, uint32_t count, float *out) {
    const size_t n_pairs = (count + 1) / 2;
    uint8_t *to = (void *)out;
    for (size_t pair = 0; pair < n_pairs; pair += 2, to += STEP_BYTES) {
        for (size_t v = 0; v < QUARTERS; v++) {
            const uint8_t *at = panel + pair * 64 + v * 16;
            uint8x16_t second = pair + 1 < n_pairs ? vld1q_u8(at + 64) : vdupq_n_u8(0);
            store_pairs(vld1q_u8(at), second, to + v * 32);
        }
    }
}

static const struct tile_kernel bf16_kernel = {.kind = WEFT_GEMM_BF16,
                                               .group = 2,
                                               .group_bytes = 64,
                                               .step = 4,
                                               .per_word = 2,
                                               TILES_NEON(few_dot, many_bf16),
                                               .widen = pair_up};

static void gemm_bf16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&bf16_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_bf16_neonbf16(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_BF16] = gemm_bf16;
}
