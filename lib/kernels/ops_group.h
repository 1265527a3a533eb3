/* kernels/ops_group — activations of a group of rows, converted and interleaved at once.
 *
 * Rows are converted a chunk of columns at a time, into a buffer in L1, from where the words of all
 * rows go to their places side by side. Word by word out of whole rows this takes as long as to
 * quantise them (Xeon, model 207: 0.3 ns a number). GROUP_ROWS is each ISA's own, as its table says. */
#ifndef WEFT_KERNELS_OPS_GROUP_H
#define WEFT_KERNELS_OPS_GROUP_H

#include "ops_quantise.h"

enum { GROUP_COLUMNS = LANES * Q8_GROUP, GROUP_BLOCKS = LANES };
_Static_assert(GROUP_COLUMNS % I8_GROUP == 0, "a chunk has whole groups of every form");

/* Words of rows `row_bytes` apart, to `to` and on, where those of GROUP_ROWS rows lie side by side. */
static inline void spread_words(const void *rows, size_t row_bytes, uint32_t n_rows,
                                uint32_t n_words, uint32_t *to) {
    const uint8_t *from = rows;
    uint32_t w = 0;
#ifdef __AVX512F__
    for (; n_rows == GROUP_ROWS && w + LANES <= n_words; w += LANES) {
        ints16 v[LANES] = {{0}};
        for (uint32_t r = 0; r < GROUP_ROWS; r++) {
            memcpy(&v[r], from + r * row_bytes + (size_t)w * 4, sizeof v[r]);
        }
        transpose_lanes(v);
        for (uint32_t l = 0; l < LANES; l++) {
            memcpy(to + ((size_t)w + l) * GROUP_ROWS, &v[l], GROUP_ROWS * sizeof *to);
        }
    }
#endif
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t i = w; i < n_words; i++) {
            memcpy(to + (size_t)i * GROUP_ROWS + r, from + r * row_bytes + (size_t)i * 4, 4);
        }
    }
}

/* Blocks of a chunk as Q8_SUMS has them. */
struct group_chunk {
    _Alignas(64) int8_t codes[GROUP_ROWS][GROUP_COLUMNS];
    float scales[GROUP_ROWS][GROUP_BLOCKS];
    int32_t offsets[GROUP_ROWS][GROUP_BLOCKS], halves[GROUP_ROWS][GROUP_BLOCKS];
    float sums[GROUP_ROWS][GROUP_BLOCKS];
};

/* `n_blocks` blocks of each row, a divisor of 16. Sixteen at once are those of one row, or of several. */
static inline void quantise_chunk(const float *x, size_t stride, uint32_t n_rows, uint32_t n_blocks,
                                  struct group_chunk *chunk) {
    uint32_t r = 0;
#ifdef __AVX512F__
    const uint32_t side = LANES / n_blocks;
    _Alignas(64) int8_t codes[LANES][Q8_GROUP];
    float scales[LANES];
    int32_t offsets[LANES];
    for (; r + side <= n_rows; r += side) {
        const float *from[LANES];
        for (uint32_t b = 0; b < LANES; b++) {
            from[b] = x + (r + b / n_blocks) * stride + (size_t)(b % n_blocks) * Q8_GROUP;
        }
        if (!quantise_sixteen(from, codes[0], scales, offsets)) break;
        for (uint32_t i = 0; i < side; i++) {
            memcpy(chunk->codes[r + i], codes[i * n_blocks], (size_t)n_blocks * Q8_GROUP);
            memcpy(chunk->scales[r + i], scales + i * n_blocks, n_blocks * sizeof *scales);
            memcpy(chunk->offsets[r + i], offsets + i * n_blocks, n_blocks * sizeof *offsets);
        }
    }
#endif
    for (; r < n_rows; r++) {
        for (uint32_t b = 0; b < n_blocks; b++) {
            quantise_closely(x + r * stride + (size_t)b * Q8_GROUP, chunk->codes[r] + b * Q8_GROUP,
                             &chunk->scales[r][b], &chunk->offsets[r][b]);
        }
    }
}

/* Columns of whole blocks in the forms Q8 and Q8_SUMS. */
static inline void group_q8(const struct weft_kern_act_part *part, bool has_sums) {
    const size_t n_all = part->k / Q8_GROUP;
    uint32_t *words = part->group;
    struct group_chunk chunk;
    for (uint32_t k = part->k_begin, n; k < part->k_end; k += n * Q8_GROUP) {
        n = weft_min_u32((part->k_end - k) / Q8_GROUP, GROUP_BLOCKS);
        while (GROUP_BLOCKS % n != 0) {
            n--;
        }
        quantise_chunk(part->src + (k - part->k_begin), part->src_stride, part->n_rows, n, &chunk);
        uint32_t *to = words + (size_t)k / 4 * GROUP_ROWS;
        spread_words(chunk.codes, sizeof *chunk.codes, part->n_rows, n * Q8_QUADS, to);
        to = words + (n_all * Q8_QUADS + k / Q8_GROUP) * GROUP_ROWS;
        spread_words(chunk.scales, sizeof *chunk.scales, part->n_rows, n, to);
        to += n_all * GROUP_ROWS;
        spread_words(chunk.offsets, sizeof *chunk.offsets, part->n_rows, n, to);
        if (!has_sums) continue;
        for (uint32_t r = 0; r < part->n_rows; r++) {
            sum_blocks(chunk.codes[r], chunk.scales[r], chunk.offsets[r], n, chunk.halves[r],
                       chunk.sums[r]);
        }
        to += n_all * GROUP_ROWS;
        spread_words(chunk.halves, sizeof *chunk.halves, part->n_rows, n, to);
        to += n_all * GROUP_ROWS;
        spread_words(chunk.sums, sizeof *chunk.sums, part->n_rows, n, to);
    }
}

/* Columns of whole groups, but for the row's last ones. */
static inline void group_i8(const struct weft_kern_act_part *part) {
    const uint32_t k_words = i8_columns(part->k) / 4, n_all = i8_groups(part->k);
    uint32_t *words = part->group;
    _Alignas(64) int8_t codes[GROUP_ROWS][I8_GROUP];
    float scales[GROUP_ROWS];
    int32_t offsets[GROUP_ROWS];
    for (uint32_t k = part->k_begin, n; k < part->k_end; k += n) {
        n = weft_min_u32(part->k_end - k, I8_GROUP);
        for (uint32_t r = 0; r < part->n_rows; r++) {
            const float *x = part->src + r * part->src_stride + (k - part->k_begin);
            quantise_block(x, n, codes[r], scales + r, offsets + r);
            memset(codes[r] + n, 0, i8_columns(n) - n);
        }
        uint32_t *to = words + (size_t)k / 4 * GROUP_ROWS;
        spread_words(codes, sizeof *codes, part->n_rows, i8_columns(n) / 4, to);
        to = words + (size_t)(k_words + k / I8_GROUP) * GROUP_ROWS;
        spread_words(scales, sizeof *scales, part->n_rows, 1, to);
        spread_words(offsets, sizeof *offsets, part->n_rows, 1, to + (size_t)n_all * GROUP_ROWS);
    }
}

/* Pairs of columns; an odd last one is followed by zero. */
static inline void group_bf16(const struct weft_kern_act_part *part) {
    uint32_t *words = part->group;
    _Alignas(64) uint16_t codes[GROUP_ROWS][GROUP_COLUMNS];
    for (uint32_t k = part->k_begin, n; k < part->k_end; k += n) {
        n = weft_min_u32(part->k_end - k, GROUP_COLUMNS);
        for (uint32_t r = 0; r < part->n_rows; r++) {
            narrow_row(false, part->src + r * part->src_stride + (k - part->k_begin), n, codes[r]);
            if (n % 2 != 0) codes[r][n] = 0;
        }
        spread_words(codes, sizeof *codes, part->n_rows, (n + 1) / 2,
                     words + (size_t)k / 2 * GROUP_ROWS);
    }
}

static inline void check_act_part(enum weft_gemm_kind kind, const struct weft_kern_act_part *part) {
    const uint32_t unit = weft_kern_act_unit(kind);
    WEFT_ASSERT(part->n_rows > 0 && part->n_rows <= GROUP_ROWS);
    WEFT_ASSERT(part->k_begin < part->k_end && part->k_end <= part->k);
    WEFT_ASSERT(part->k_begin % unit == 0 && (part->k_end % unit == 0 || part->k_end == part->k));
    WEFT_ASSERT(part->src_stride >= part->k_end - part->k_begin || part->n_rows == 1);
}

/* The same one after the other: see weft_kern_table.act_in_rows. */
static inline void rows_bf16(enum weft_gemm_kind kind, const struct weft_kern_act_part *part) {
    const size_t row_bytes = weft_kern_act_row_bytes(kind, part->k);
    const uint32_t n = part->k_end - part->k_begin;
    check_act_part(kind, part);
    for (uint32_t r = 0; r < part->n_rows; r++) {
        uint16_t *to = (uint16_t *)(void *)((uint8_t *)part->group + r * row_bytes) + part->k_begin;
        narrow_row(false, part->src + r * part->src_stride, n, to);
        if (n % 2 != 0) to[n] = 0;
    }
}

static inline void rows_i8(enum weft_gemm_kind kind, const struct weft_kern_act_part *part) {
    const size_t row_bytes = weft_kern_act_row_bytes(kind, part->k);
    check_act_part(kind, part);
    for (uint32_t r = 0; r < part->n_rows; r++) {
        quantise_columns_i8(part->src + r * part->src_stride, part->k, part->k_begin, part->k_end,
                            (uint8_t *)part->group + r * row_bytes);
    }
}

static void act_group(enum weft_gemm_kind kind, const struct weft_kern_act_part *part) {
    check_act_part(kind, part);
    switch (weft_kern_act_of(kind)) {
    case WEFT_ACT_Q8:
        group_q8(part, false);
        break;
    case WEFT_ACT_Q8_SUMS:
        group_q8(part, true);
        break;
    case WEFT_ACT_I8:
        group_i8(part);
        break;
    case WEFT_ACT_BF16:
        group_bf16(part);
        break;
    default:
        spread_words(part->src, part->src_stride * sizeof *part->src, part->n_rows,
                     part->k_end - part->k_begin,
                     (uint32_t *)part->group + (size_t)part->k_begin * GROUP_ROWS);
    }
}

#endif
