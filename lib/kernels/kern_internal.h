/* kernels, private — what the ISA files share. Only static inline helpers and declarations: code in
 * a header would otherwise be emitted by every ISA file, and the linker may keep the AVX-512 copy.
 */
#ifndef WEFT_KERNELS_INTERNAL_H
#define WEFT_KERNELS_INTERNAL_H

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/minmax.h"

enum {
    Q8_GROUP = 32,                    /* elements that share a scale */
    Q8_QUADS = Q8_GROUP / 4,          /* k is interleaved by four, for vpdpbusd */
    Q8_CODES = Q8_GROUP * WEFT_PANEL, /* bytes of codes of one block, in front of its scales */
    Q8_BLOCK_BYTES = Q8_CODES + WEFT_PANEL * 2,
    Q8_SRC_BYTES = 2 + Q8_GROUP, /* GGML's block: f16 scale, 32 int8 */
    ATTN_TILE = 64,              /* tokens folded at a time, at absolute positions */
    ATTN_SUB = 16,               /* tokens side by side in the K layout */
};

/* Iterations do not depend on each other, whatever pointers may be equal. */
#ifdef __clang__
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif

enum { I8_GROUP = 256, I8_QUAD_BYTES = 4 * WEFT_PANEL };
enum { F8_GROUP = 128, NF4_GROUP = 64 };

/* Rows that stand interleaved: as many as the largest tile has. */
enum {
    WEFTI_KERN_GROUP_ROWS_AVX2 = 6,
    WEFTI_KERN_GROUP_ROWS_AVX512 = 12,
    WEFTI_KERN_GROUP_ROWS_NEON = 12
};

/* Columns as stored, of weights and activations. */
static inline uint32_t i8_columns(uint32_t k) {
    return (k + 3) / 4 * 4;
}

static inline uint32_t i8_groups(uint32_t k) {
    return (k + I8_GROUP - 1) / I8_GROUP;
}

/* One activation row of kind I8. */
struct i8_row {
    const int8_t *codes;
    const float *scales;
    const int32_t *offsets;
};

static inline struct i8_row i8_row_at(const void *row, uint32_t k) {
    const int8_t *codes = row;
    const float *scales = (const void *)(codes + i8_columns(k));
    return (struct i8_row){codes, scales, (const void *)(scales + i8_groups(k))};
}

/* Non-negative numbers below this are quantised as zero: their reciprocal would overflow. */
#define Q8_TINY 0x1p-100f

/* One activation row of kind Q8: codes, then f32 scales, then -128 * sum(codes) per block. For
 * weights with mins, or with two scales in a block, there follow -32 * sum(codes) of the first half
 * of each block, then f32 scale * sum. */
struct q8_row {
    const int8_t *codes;
    const float *scales;
    const int32_t *offsets;
    const int32_t *halves;
    const float *sums;
};

static inline struct q8_row q8_row_at(const void *row, uint32_t k) {
    const int8_t *codes = row;
    const float *scales = (const void *)(codes + k);
    const int32_t *offsets = (const void *)(scales + k / Q8_GROUP);
    const int32_t *halves = offsets + k / Q8_GROUP;
    return (struct q8_row){codes, scales, offsets, halves, (const void *)(halves + k / Q8_GROUP)};
}

/* The weights that a kind multiplies, and whether by f32 activations, or by bf16 where weights are rounded to it. */
struct kind_facts {
    enum weft_dtype weights;
    bool is_exact, rounds;
};

#define KIND_FACTS_NONE(id)
#define KIND_FACTS_EXACT(id) [WEFT_GEMM_##id##_F32] = {WEFT_DT_##id, true, false},
#define KIND_FACTS_BOTH(id) KIND_FACTS_EXACT(id)[WEFT_GEMM_##id] = {WEFT_DT_##id, false, false},
#define KIND_FACTS_ALL(id) KIND_FACTS_BOTH(id)[WEFT_GEMM_##id##_BF16] = {WEFT_DT_##id, false, true},
#define KIND_FACTS(id, name, class, elems, bytes, file, layout, products) KIND_FACTS_##products(id)
static const struct kind_facts kind_facts[WEFT_GEMM_KIND_COUNT] = {WEFT_DTYPES(KIND_FACTS)};

static inline enum weft_dtype weights_of(enum weft_gemm_kind kind) {
    WEFT_ASSERT((unsigned)kind < WEFT_GEMM_KIND_COUNT);
    return kind_facts[kind].weights;
}

/* See weft_kern_group. */
static inline uint32_t group_of(enum weft_gemm_kind kind) {
    switch (weights_of(kind)) {
    case WEFT_DT_BF16:
        return 2;
    case WEFT_DT_I8:
        return I8_GROUP;
    case WEFT_DT_F8_E4M3:
        return F8_GROUP;
    default:
        return weft_dtype_block_elems(weights_of(kind));
    }
}

/* Stores finished sums of row m, from column n0 on. */
static inline void put_row(const struct weft_gemm_args *args, const float *sum, uint32_t m,
                           uint32_t n0, uint32_t n_cols) {
    size_t at = (size_t)m * args->ldc + n0;
    float *c = args->c + at;
    const float *bias = args->bias ? args->bias + n0 : NULL;
    const float *residual = args->residual ? args->residual + at : NULL;
    if (!bias && !residual) {
        memcpy(c, sum, n_cols * sizeof *c);
        return;
    }
    /* c may be the residual: element by element it is the same. */
    if (!bias) {
        IVDEP
        for (uint32_t i = 0; i < n_cols; i++) {
            c[i] = residual[i] + sum[i];
        }
        return;
    }
    IVDEP
    for (uint32_t i = 0; i < n_cols; i++) {
        float value = sum[i] + bias[i];
        c[i] = residual ? residual[i] + value : value;
    }
}

/* Columns of what `packed` was cut from, if it was. */
static inline uint32_t whole_k(const struct weft_gemm_args *args) {
    return args->k_whole ? args->k_whole : args->k;
}

static inline void check_gemm_args(const struct weft_gemm_args *args, enum weft_gemm_kind kind,
                                   uint32_t p_begin, uint32_t p_end) {
    const struct weft_kern_segs *segs = args->segs;
    WEFT_ASSERT(args->n > 0 && args->k > 0 && args->ldc >= args->n);
    WEFT_ASSERT(whole_k(args) >= args->k);
    WEFT_ASSERT(p_begin <= p_end && p_end <= (args->n + WEFT_PANEL - 1) / WEFT_PANEL);
    WEFT_ASSERT((uintptr_t)args->packed % 64 == 0 && (uintptr_t)args->act % 64 == 0);
    WEFT_ASSERT(args->act_row_bytes % 64 == 0 &&
                args->act_row_bytes >= weft_kern_act_row_bytes(kind, args->k));
    WEFT_ASSERT(segs->n_segs == 1 || segs->n_segs == 8);
    uint32_t group = group_of(kind);
    for (uint32_t s = 0, end = 0; s < segs->n_segs; s++) {
        WEFT_ASSERT(segs->seg_end[s] >= end);
        end = segs->seg_end[s];
        bool may_end = weft_dtype_block_elems(weights_of(kind)) == 1; /* K has no whole groups */
        WEFT_ASSERT(end % group == 0 || (end == args->k && may_end));
    }
    WEFT_ASSERT(segs->seg_end[segs->n_segs - 1] == args->k);
}

/* Where the group of 16 tokens around `token` of `block` begins, in bytes. */
static inline size_t kv_group_at(const struct weft_kv_layer *kv, uint32_t block, uint32_t kv_head,
                                 uint32_t token) {
    size_t group = (size_t)kv_head * (kv->block_size / ATTN_SUB) + token / ATTN_SUB;
    return block * kv->stride_bytes + group * weft_kv_group_bytes(kv);
}

/* Where element `d` of a token's K, and of its V, lies in a group, in elements. */
static inline size_t kv_k_at(uint32_t unit, uint32_t token, uint32_t d) {
    return ((size_t)d / unit * ATTN_SUB + token) * unit + d % unit;
}

static inline size_t kv_v_at(uint32_t unit, uint32_t dim, uint32_t token, uint32_t d) {
    return ((size_t)token / unit * dim + d) * unit + token % unit;
}

/* The scales after an int8 group's codes. */
static inline const float *kv_scales(const void *group, uint32_t head_dim) {
    size_t n = (head_dim + 3) / 4 * 4;
    return (const float *)(const void *)((const uint8_t *)group + n * ATTN_SUB);
}

/* Queries and weights that meet int8 are codes of up to this much, and numbers below Q8_TINY none. */
#define ATTN_CODE_MAX 16383 /* times 127, 1024 times, is below 2^31 */

static inline void check_kv_layer(const struct weft_kv_layer *kv) {
    WEFT_ASSERT(kv->block_size > 0 && kv->block_size % ATTN_SUB == 0);
    WEFT_ASSERT(kv->n_kv_heads > 0 && kv->head_dim > 0 && kv->dtype < WEFT_KV_DTYPE_COUNT);
    WEFT_ASSERT(kv->head_dim <= WEFT_KV_DIM_MAX && kv->v_dim <= kv->head_dim);
    WEFT_ASSERT((uintptr_t)kv->k % 16 == 0 && (uintptr_t)kv->v % 16 == 0);
    WEFT_ASSERT(kv->stride_bytes % 16 == 0 && kv->stride_bytes >= weft_kv_block_bytes(kv));
    WEFT_ASSERT((kv->v == NULL) == (kv->v_dim > 0));
}

/* The sums of a span of positions for a query: see weft_attn_parts. */
struct span_sum {
    float *out;
    float max, total;
};

static inline bool sees_span(uint32_t low, uint32_t pos, uint32_t span) {
    return low / WEFT_ATTN_SPAN <= span && span <= pos / WEFT_ATTN_SPAN;
}

/* The positions that a row sees, of those that others of its kind see; NULL: all. */
static inline const uint64_t *seen_by(const struct weft_attn_args *args, uint32_t row) {
    bool is_chosen = args->seen && args->rows[row].pos >= args->seen_from;
    return is_chosen ? args->seen + row * args->seen_stride : NULL;
}

/* Whether any of a span is among them; `pos` is the last one. */
static inline bool has_of_span(const uint64_t *seen, uint32_t pos, uint32_t span) {
    enum { WORDS = WEFT_ATTN_SPAN / ATTN_TILE };
    if (!seen) return true;
    uint32_t end = weft_min_u32((span + 1) * WORDS, pos / ATTN_TILE + 1);
    for (uint32_t w = span * WORDS; w < end; w++) {
        if (seen[w]) return true;
    }
    return false;
}

/* Where `row` (counted from the call's first) and `head` have their sums of `span`. */
static inline float *part_at(const struct weft_attn_args *args, const struct weft_attn_parts *parts,
                             uint32_t row, uint32_t span, uint32_t head) {
    WEFT_ASSERT(span >= parts->span_begin && span - parts->span_begin < parts->n_spans);
    size_t at = (size_t)row * parts->n_spans + (span - parts->span_begin);
    return parts->sums +
           (at * args->n_heads + head) * weft_attn_part_floats(weft_kv_value_dim(&args->kv));
}

/* Query heads begin..end read kv head `kv_head`. */
struct head_range {
    uint32_t begin, end;
};

/* Heads of a kv head, if none is skipped. */
static inline uint32_t kv_group_heads(const struct weft_attn_args *args) {
    return args->group_heads ? args->group_heads : args->n_heads / args->kv.n_kv_heads;
}

static inline struct head_range heads_of(const struct weft_attn_args *args, uint32_t kv_head) {
    uint32_t group = kv_group_heads(args);
    uint32_t begin = kv_head * group, end = begin + group, skipped = args->skipped_heads;
    struct head_range heads = {begin > skipped ? begin - skipped : 0,
                               weft_min_u32(end - skipped, args->n_heads)};
    WEFT_ASSERT(heads.begin < heads.end);
    return heads;
}

static inline void check_attn_args(const struct weft_attn_args *args,
                                   const struct weft_attn_range *range) {
    check_kv_layer(&args->kv);
    WEFT_ASSERT(range->row_begin <= range->row_end && range->kv_head_begin < range->kv_head_end);
    WEFT_ASSERT(range->kv_head_end <= args->kv.n_kv_heads);
    WEFT_ASSERT(args->group_heads > 0 || args->n_heads % args->kv.n_kv_heads == 0);
    WEFT_ASSERT(args->skipped_heads == 0 || args->skipped_heads < args->group_heads);
    WEFT_ASSERT(args->q != args->out); /* `out` collects while `q` is still read */
    WEFT_ASSERT(!args->seen || args->window == 0);
}

static inline void check_index_args(const struct weft_index_args *args, uint32_t begin,
                                    uint32_t end) {
    check_kv_layer(&args->kv);
    WEFT_ASSERT(args->kv.n_kv_heads == 1 && args->kv.v_dim == args->kv.head_dim);
    WEFT_ASSERT(begin % ATTN_TILE == 0 && begin <= end && args->n_heads > 0);
}

/* The fixed tree of struct weft_kern_segs, fed one segment at a time like a binary counter: slot b
 * holds the sum of the 2^b segments before the current one, where bit b of the segment's number is
 * set. A run of empty segments has no value and is passed over. */
struct seg_tree {
    bool full[3];
};

/* Takes in segment `seg` (its `len` values are in `value`; not `present`: it is empty). `slots`
 * holds 3 * len floats. After the last segment `value` holds the joined sum and the function
 * returns true unless every segment was empty. */
static inline bool seg_tree_add(struct seg_tree *tree, float *slots, uint32_t seg, bool present,
                                float *value, size_t len) {
    for (uint32_t b = 0; b < 3; b++) {
        float *slot = slots + b * len;
        if (!(seg >> b & 1u)) {
            tree->full[b] = present;
            if (present) memcpy(slot, value, len * sizeof *value);
            return present;
        }
        if (!tree->full[b]) continue;
        if (present) {
            for (size_t i = 0; i < len; i++) {
                value[i] = slot[i] + value[i];
            }
        } else {
            memcpy(value, slot, len * sizeof *value);
        }
        present = true;
    }
    return present;
}

/* Features of the CPU beyond the ISA's base set; a test may clear bits to reach the
 * plain variants. `slow_bf16`: vdpbf16ps is there, but f32 FMAs of widened bf16 are faster. `amx`:
 * with 8-bit products, `amx_bf16` with those of bf16, too, and with what AVX-512 has beside it (BF16, VBMI); whether this process may use it is another
 * matter (amx/try_amx.h). */
struct wefti_kern_features {
    bool avx2, avx2vnni, avx512, vnni, vbmi, bf16, slow_bf16, amx, amx_bf16;
    bool neon, dotprod, i8mm; /* and bf16 */
};

struct wefti_kern_features wefti_kern_features_detect(void);

/* The table for `isa` with no more than `features`. Base sets must be there. */
void wefti_kern_table_build(struct weft_kern_table *table, enum weft_isa isa,
                            struct wefti_kern_features features);

/* Each sets the entries it implements. */
void wefti_kern_fill_gemm_scalar(struct weft_kern_table *table);
void wefti_kern_fill_lora_scalar(struct weft_kern_table *table);
void wefti_kern_fill_attention_scalar(struct weft_kern_table *table);
void wefti_kern_fill_recurrent_scalar(struct weft_kern_table *table);
void wefti_kern_fill_ops_scalar(struct weft_kern_table *table);
void wefti_kern_fill_peak_scalar(struct weft_kern_table *table);

void wefti_kern_fill_gemm_f32_avx2(struct weft_kern_table *table);
void wefti_kern_fill_gemm_bf16_avx2(struct weft_kern_table *table);
void wefti_kern_fill_gemm_q8_avx2(struct weft_kern_table *table);
void wefti_kern_fill_gemm_q2_q6_avx2(struct weft_kern_table *table);
void wefti_kern_fill_gemm_fp8_nf4_avx2(struct weft_kern_table *table);
void wefti_kern_fill_gemm_act_order_avx2(struct weft_kern_table *table);
void wefti_kern_fill_gemm_i8_avx2(struct weft_kern_table *table);
void wefti_kern_fill_lora_avx2(struct weft_kern_table *table);
void wefti_kern_fill_attention_avx2(struct weft_kern_table *table);
void wefti_kern_fill_recurrent_avx2(struct weft_kern_table *table);
void wefti_kern_fill_ops_avx2(struct weft_kern_table *table);
void wefti_kern_fill_peak_avx2(struct weft_kern_table *table);

void wefti_kern_fill_gemm_q8_avx2vnni(struct weft_kern_table *table);
void wefti_kern_fill_gemm_i8_avx2vnni(struct weft_kern_table *table);
void wefti_kern_fill_gemm_q2_q6_avx2vnni(struct weft_kern_table *table);
void wefti_kern_fill_attention_avx2vnni(struct weft_kern_table *table);
void wefti_kern_fill_peak_avx2vnni(struct weft_kern_table *table);

void wefti_kern_fill_gemm_f32_avx512(struct weft_kern_table *table);
void wefti_kern_fill_gemm_bf16_avx512(struct weft_kern_table *table);
void wefti_kern_fill_gemm_bf16_avx512bf16(struct weft_kern_table *table);
void wefti_kern_fill_gemm_q8_avx512(struct weft_kern_table *table);
void wefti_kern_fill_gemm_q8_avx512vnni(struct weft_kern_table *table);
void wefti_kern_fill_gemm_q2_q6_avx512(struct weft_kern_table *table);
void wefti_kern_fill_gemm_fp8_nf4_avx512(struct weft_kern_table *table);
void wefti_kern_fill_gemm_act_order_avx512(struct weft_kern_table *table);
void wefti_kern_fill_gemm_q2_q6_avx512vnni(struct weft_kern_table *table);
void wefti_kern_fill_gemm_i8_avx512vnni(struct weft_kern_table *table);
void wefti_kern_fill_gemm_i8_avx512(struct weft_kern_table *table);
void wefti_kern_fill_lora_avx512(struct weft_kern_table *table);
void wefti_kern_fill_attention_avx512(struct weft_kern_table *table);
void wefti_kern_fill_attention_avx512vnni(struct weft_kern_table *table);
void wefti_kern_fill_attention_avx512bf16(struct weft_kern_table *table); /* and VNNI */
void wefti_kern_fill_recurrent_avx512(struct weft_kern_table *table);
void wefti_kern_fill_ops_avx512(struct weft_kern_table *table);
/* For AMX: rows of int8 and, if `bf16`, of bf16 one after the other. */
void wefti_kern_fill_act_in_rows_avx512(struct weft_kern_table *table, bool bf16);
void wefti_kern_fill_peak_avx512(struct weft_kern_table *table);
void wefti_kern_fill_peak_avx512bf16(struct weft_kern_table *table);
void wefti_kern_fill_peak_avx512vnni(struct weft_kern_table *table);

void wefti_kern_fill_gemm_i8_amx(struct weft_kern_table *table);
void wefti_kern_fill_gemm_bf16_amx(struct weft_kern_table *table);
void wefti_kern_fill_attention_amx(struct weft_kern_table *table); /* bf16, int8 by tiles */
void wefti_kern_fill_peak_amx(struct weft_kern_table *table);

void wefti_kern_fill_gemm_f32_neon(struct weft_kern_table *table);
void wefti_kern_fill_gemm_bf16_neon(struct weft_kern_table *table);
void wefti_kern_fill_gemm_bf16_neonbf16(struct weft_kern_table *table);
void wefti_kern_fill_gemm_int8_neon(struct weft_kern_table *table); /* of Q8 and fewer bits, too */
void wefti_kern_fill_gemm_int8_neondot(struct weft_kern_table *table);
void wefti_kern_fill_gemm_int8_neoni8mm(struct weft_kern_table *table);
void wefti_kern_fill_gemm_widened_neon(struct weft_kern_table *table);
void wefti_kern_fill_gemm_fp8_nf4_neon(struct weft_kern_table *table);
void wefti_kern_fill_gemm_act_order_neon(struct weft_kern_table *table);
void wefti_kern_fill_attention_neon(struct weft_kern_table *table);
void wefti_kern_fill_attention_neondot(struct weft_kern_table *table);
void wefti_kern_fill_attention_neonbf16(struct weft_kern_table *table); /* and dotprod */
void wefti_kern_fill_lora_neon(struct weft_kern_table *table);
void wefti_kern_fill_recurrent_neon(struct weft_kern_table *table);
void wefti_kern_fill_ops_neon(struct weft_kern_table *table);
void wefti_kern_fill_peak_neon(struct weft_kern_table *table);
void wefti_kern_fill_peak_neondot(struct weft_kern_table *table);
void wefti_kern_fill_peak_neoni8mm(struct weft_kern_table *table);
void wefti_kern_fill_peak_neonbf16(struct weft_kern_table *table);

#endif
