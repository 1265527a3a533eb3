/* The types of 2 to 6 bits, with quantised activations and with f32 ones. Codes of up to 6 bits do
 * not saturate vpmaddubsw, so a dot of four is two instructions and an addition. */
#include "gemm_avx2.h"
#include "quant.h"

struct codes {
    __m256i low, high; /* features 0..7 and 8..15 */
};

struct quads {
    struct codes low, high; /* quads j and j + 4 of a block */
};

struct halves {
    __m256i low, high; /* of quads j and j + 4: those of 8 features */
};

/* Looked-up ones would: even and odd bytes go as 16-bit numbers. */
ALWAYS_INLINE __m256i dot_bytes(__m256i sum, __m256i codes, __m256i a) {
    __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(0xff));
    __m256i a_even = _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, a_even));
    __m256i odd = _mm256_srli_epi16(codes, 8), a_odd = _mm256_srai_epi16(a, 8);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(odd, a_odd));
}

ALWAYS_INLINE __m256i dot_codes(const struct quant_layout *q, __m256i sum, __m256i codes,
                                __m256i a) {
    if (q->is_looked_up) return dot_bytes(sum, codes, a);
    __m256i pairs = _mm256_maddubs_epi16(codes, a);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* 16-bit lanes by a constant, to the right where it is negative. */
ALWAYS_INLINE __m256i shift(__m256i x, int left) {
    return left >= 0 ? _mm256_slli_epi16(x, left) : _mm256_srli_epi16(x, -left);
}

/* bits | x & mask */
ALWAYS_INLINE __m256i merge(__m256i bits, __m256i x, char mask) {
    return _mm256_or_si256(bits, _mm256_and_si256(x, _mm256_set1_epi8(mask)));
}

/* Half a line: `at` is 0 or 32 bytes into it. */
ALWAYS_INLINE __m256i load_line(const uint8_t *array, uint32_t line, uint32_t at) {
    return _mm256_loadu_si256((const void *)(array + (size_t)line * QUANT_LINE + at));
}

/* `at` of quads j and j + 4. */
ALWAYS_INLINE struct halves load_half(const struct quant_layout *q, const uint8_t *group,
                                      uint32_t block, uint32_t j, uint32_t at) {
    __m256i low = _mm256_setzero_si256(), high = low;
    if (quant_has_nibbles(q)) {
        __m256i both = load_line(group, block * 4 + j, at), nibble = _mm256_set1_epi8(15);
        low = _mm256_and_si256(both, nibble);
        high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
    }
    if (quant_has_pairs(q)) {
        const int bit = (int)quant_pair_bit(q), left = bit - 2 * (int)j;
        const char mask = (char)(3 << bit);
        const uint8_t *pairs = group + q->at_pairs;
        low = merge(low, shift(load_line(pairs, block * 2, at), left), mask);
        high = merge(high, shift(load_line(pairs, block * 2 + 1, at), left), mask);
    }
    if (quant_has_singles(q)) {
        const int bit = (int)quant_single_bit(q), left = bit - (int)j;
        __m256i bits = load_line(group + q->at_singles, block, at);
        low = merge(low, shift(bits, left), (char)(1 << bit));
        high = merge(high, shift(bits, left - 4), (char)(1 << bit));
    }
    if (q->is_looked_up) {
        __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)quant_values));
        low = _mm256_shuffle_epi8(table, low);
        high = _mm256_shuffle_epi8(table, high);
    }
    return (struct halves){low, high};
}

ALWAYS_INLINE struct quads load_quads(const struct quant_layout *q, const uint8_t *group,
                                      uint32_t block, uint32_t j) {
    const struct halves first = load_half(q, group, block, j, 0);
    const struct halves second = load_half(q, group, block, j, QUANT_LINE / 2);
    return (struct quads){{first.low, second.low}, {first.high, second.high}};
}

ALWAYS_INLINE struct pair load_halves(const uint8_t *at) {
    const __m128i *halves = (const void *)at;
    return (struct pair){_mm256_cvtph_ps(_mm_loadu_si128(halves)),
                         _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}

/* `super` times 16 bytes. */
ALWAYS_INLINE struct pair times_bytes(struct pair super, const uint8_t *at, bool is_signed) {
    __m128i bytes = _mm_loadu_si128((const void *)at), upper = _mm_srli_si128(bytes, 8);
    __m256i low = is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
    __m256i high = is_signed ? _mm256_cvtepi8_epi32(upper) : _mm256_cvtepu8_epi32(upper);
    return (struct pair){_mm256_mul_ps(super.low, _mm256_cvtepi32_ps(low)),
                         _mm256_mul_ps(super.high, _mm256_cvtepi32_ps(high))};
}

ALWAYS_INLINE struct pair load_scale(const struct quant_layout *q, const uint8_t *group,
                                     uint32_t sub) {
    const uint8_t *scales = group + q->at_scales;
    if (!q->is_super) return load_halves(scales);
    return times_bytes(load_halves(group + q->at_super), scales + sub * WEFT_PANEL,
                       quant_signed_scales(q));
}

/* With its sign. */
ALWAYS_INLINE struct pair load_min(const struct quant_layout *q, const uint8_t *group,
                                   uint32_t sub) {
    const uint8_t *mins = group + q->at_mins;
    if (!q->has_min) return (struct pair){_mm256_setzero_ps(), _mm256_setzero_ps()};
    if (!q->is_super && !q->has_zeros) return load_halves(mins);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    struct pair min = q->has_zeros ? times_bytes(load_scale(q, group, sub), mins, false)
                                   : times_bytes(load_halves(group + q->at_super + WEFT_PANEL * 2),
                                                 mins + sub * WEFT_PANEL, false);
    return (struct pair){_mm256_xor_ps(min.low, sign), _mm256_xor_ps(min.high, sign)};
}

ALWAYS_INLINE void dot_lines(const struct tile *t, const struct quant_layout *q, uint32_t rows,
                             uint32_t panels, uint32_t group_rows, const uint8_t *const *groups,
                             size_t block_at, uint32_t block, struct codes low_dot[][FEW_PANELS],
                             struct codes high_dot[][FEW_PANELS]) {
    const struct act_words acts = act_words_at(t, group_rows, t->k_begin / 4);
    for (uint32_t j = 0; j < 4; j++) {
        if (group_rows > 1) prefetch_step(t, panels, block_at * 4 + j);
        for (uint32_t p = 0; p < panels; p++) {
            struct quads w = load_quads(q, groups[p], block, j);
            for (uint32_t r = 0; r < rows; r++) {
                __m256i low = broadcast_word(acts, r, block_at * Q8_QUADS + j);
                __m256i high = broadcast_word(acts, r, block_at * Q8_QUADS + j + 4);
                low_dot[r][p].low = dot_codes(q, low_dot[r][p].low, w.low.low, low);
                low_dot[r][p].high = dot_codes(q, low_dot[r][p].high, w.low.high, low);
                high_dot[r][p].low = dot_codes(q, high_dot[r][p].low, w.high.low, high);
                high_dot[r][p].high = dot_codes(q, high_dot[r][p].high, w.high.high, high);
            }
        }
    }
}

/* sum + (dot * scale) * by */
ALWAYS_INLINE struct pair scaled(struct codes dot, __m256 by, struct pair scale, struct pair sum) {
    return (struct pair){
        _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(dot.low), scale.low), by, sum.low),
        _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(dot.high), scale.high), by, sum.high)};
}

/* Where dots begin: codes stand `zero` too high. With two scales: for the first half of a block,
 * and for the other. */
ALWAYS_INLINE __m256i first_dot(const struct quant_layout *q, __m256i offset, __m256i half,
                                bool second) {
    if (!q->zero) return _mm256_setzero_si256();
    const __m256i whole = _mm256_srai_epi32(offset, quant_offset_shift(q));
    if (q->sub == QUANT_BLOCK) return whole;
    const __m256i low = _mm256_srai_epi32(half, quant_halves_shift(q));
    return second ? _mm256_sub_epi32(whole, low) : low;
}

/* The factor of mins: `by` times the sum of half a block's codes; stored are -32 and -128
 * times the sums. */
ALWAYS_INLINE __m256 half_sum(__m256i offset, __m256i half, __m256 by, bool second) {
    const __m256i low = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_srai_epi32(half, 5));
    const __m256i both = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_srai_epi32(offset, 7));
    return _mm256_mul_ps(by, _mm256_cvtepi32_ps(second ? _mm256_sub_epi32(both, low) : low));
}

ALWAYS_INLINE void tile_quant(const struct tile *args, const struct quant_layout *q, uint32_t rows,
                              uint32_t panels, uint32_t group_rows) {
    const struct tile t = *args;
    const size_t n_blocks = t.count / QUANT_BLOCK, per_group = q->group / QUANT_BLOCK;
    const size_t n_all = t.k / QUANT_BLOCK, first = t.k_begin / QUANT_BLOCK;
    const struct act_words scales = act_words_at(&t, group_rows, n_all * Q8_QUADS + first);
    const struct act_words offsets = act_words_at(&t, group_rows, n_all * (Q8_QUADS + 1) + first);
    const struct act_words halves = act_words_at(&t, group_rows, n_all * (Q8_QUADS + 2) + first);
    const struct act_words sums = act_words_at(&t, group_rows, n_all * (Q8_QUADS + 3) + first);
    const bool two = q->sub < QUANT_BLOCK;
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    for (size_t b = 0; b < n_blocks; b++) {
        uint32_t block = (uint32_t)(b % per_group), sub = two ? 2 * block : block;
        const uint8_t *groups[FEW_PANELS];
        struct codes low[DOT_MANY_ROWS][FEW_PANELS], high[DOT_MANY_ROWS][FEW_PANELS];
        for (uint32_t p = 0; p < panels; p++) {
            groups[p] = t.panels[p] + b / per_group * q->bytes;
            for (uint32_t r = 0; r < rows; r++) {
                __m256i offset = broadcast_word(offsets, r, b);
                __m256i half = two ? broadcast_word(halves, r, b) : offset;
                low[r][p].low = low[r][p].high = first_dot(q, offset, half, false);
                high[r][p].low = high[r][p].high = first_dot(q, offset, half, true);
            }
        }
        if (two)
            dot_lines(&t, q, rows, panels, group_rows, groups, b, block, low, high);
        else
            dot_lines(&t, q, rows, panels, group_rows, groups, b, block, low, low);
        for (uint32_t p = 0; p < panels; p++) {
            struct pair scale = load_scale(q, groups[p], sub), min = load_min(q, groups[p], sub);
            for (uint32_t r = 0; r < rows; r++) {
                __m256 by = broadcast_f32(scales, r, b);
                sum[r][p] = scaled(low[r][p], by, scale, sum[r][p]);
                if (q->has_min && !two)
                    sum[r][p] = fmadd_pair(broadcast_f32(sums, r, b), min, sum[r][p]);
                if (!two) continue;
                __m256i offset = broadcast_word(offsets, r, b), half = broadcast_word(halves, r, b);
                if (q->has_min)
                    sum[r][p] = fmadd_pair(half_sum(offset, half, by, false), min, sum[r][p]);
                sum[r][p] = scaled(high[r][p], by, load_scale(q, groups[p], sub + 1), sum[r][p]);
                if (q->has_min)
                    sum[r][p] = fmadd_pair(half_sum(offset, half, by, true),
                                           load_min(q, groups[p], sub + 1), sum[r][p]);
            }
        }
    }
    store_sums(&t, rows, panels, sum);
}

/* Element `i` (0..3) of each of the 8 quads in `codes` as a weight. */
ALWAYS_INLINE __m256 weight_of(__m256i codes, uint32_t i, __m256 zero, __m256 scale, __m256 min) {
    __m256i code = _mm256_and_si256(_mm256_srli_epi32(codes, 8 * (int)i), _mm256_set1_epi32(255));
    return _mm256_fmadd_ps(scale, _mm256_sub_ps(_mm256_cvtepi32_ps(code), zero), min);
}

ALWAYS_INLINE void widen_quads(struct codes codes, __m256 zero, struct pair scale, struct pair min,
                               float *out) {
    for (uint32_t i = 0; i < 4; i++, out += WEFT_PANEL) {
        _mm256_store_ps(out, weight_of(codes.low, i, zero, scale.low, min.low));
        _mm256_store_ps(out + HALF, weight_of(codes.high, i, zero, scale.high, min.high));
    }
}

ALWAYS_INLINE void widen_quant(const struct quant_layout *q, const uint8_t *panel, uint32_t count,
                               float *out) {
    const __m256 zero = _mm256_set1_ps((float)q->zero);
    for (size_t k0 = 0; k0 < count; k0 += q->group, panel += q->bytes) {
        for (uint32_t block = 0; block < q->group / QUANT_BLOCK; block++) {
            uint32_t n_subs = QUANT_BLOCK / q->sub, sub = block * n_subs;
            struct pair low = load_scale(q, panel, sub), low_min = load_min(q, panel, sub);
            struct pair high = load_scale(q, panel, sub + n_subs - 1);
            struct pair high_min = load_min(q, panel, sub + n_subs - 1);
            for (uint32_t j = 0; j < 4; j++) {
                struct quads quads = load_quads(q, panel, block, j);
                float *to = out + (size_t)j * 4 * WEFT_PANEL;
                widen_quads(quads.low, zero, low, low_min, to);
                widen_quads(quads.high, zero, high, high_min,
                            to + (size_t)QUANT_BLOCK / 2 * WEFT_PANEL);
            }
            out += (size_t)QUANT_BLOCK * WEFT_PANEL;
        }
    }
}

/* The layout is a constant in every copy. */
#define DEFINE_QUANT(name, ID, ...)                                                                \
    ALWAYS_INLINE void tile_##name(const struct tile *t, uint32_t rows, uint32_t panels,           \
                                   uint32_t group_rows) {                                          \
        tile_quant(t, &quant_layouts[WEFT_DT_##ID], rows, panels, group_rows);                     \
    }                                                                                              \
    static void few_##name(const struct tile *t, uint32_t n_rows) {                                \
        RUN_DOT_FEW(tile_##name, t, n_rows)                                                        \
    }                                                                                              \
    static void many_##name(const struct tile *t, uint32_t n_rows) {                               \
        RUN_DOT_MANY(tile_##name, t, n_rows)                                                       \
    }                                                                                              \
    static void widen_##name(const uint8_t *panel, uint32_t count, float *out) {                   \
        widen_quant(&quant_layouts[WEFT_DT_##ID], panel, count, out);                              \
    }                                                                                              \
    static void gemm_##name(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) { \
        const struct quant_layout *q = &quant_layouts[WEFT_DT_##ID];                               \
        const struct tile_kernel kernel = {.kind = WEFT_GEMM_##ID,                                 \
                                           .group = q->group,                                      \
                                           .group_bytes = q->bytes,                                \
                                           .step = 8,                                              \
                                           .per_word = 4,                                          \
                                           TILES_DOT_AVX2(few_##name, many_##name)};               \
        gemm_run(&kernel, args, p_begin, p_end);                                                   \
    }                                                                                              \
    static void gemm_##name##_f32(const struct weft_gemm_args *args, uint32_t p_begin,             \
                                  uint32_t p_end) {                                                \
        const struct quant_layout *q = &quant_layouts[WEFT_DT_##ID];                               \
        const struct tile_kernel kernel = {.kind = WEFT_GEMM_##ID##_F32,                           \
                                           .group = q->group,                                      \
                                           .group_bytes = q->bytes,                                \
                                           .step = 1,                                              \
                                           .per_word = 1,                                          \
                                           TILES_WIDENED_AVX2,                                     \
                                           .widen = widen_##name};                                 \
        gemm_run(&kernel, args, p_begin, p_end);                                                   \
    }

QUANT_EACH(DEFINE_QUANT)

#define FILL_QUANT(name, ID, ...)                                                                  \
    table->gemm[WEFT_GEMM_##ID##_F32] = gemm_##name##_f32;                                         \
    table->gemm[WEFT_GEMM_##ID] = gemm_##name;

void wefti_kern_fill_gemm_q2_q6_avx2(struct weft_kern_table *table) {
    QUANT_EACH(FILL_QUANT)
}
