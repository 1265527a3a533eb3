/* kernels — the arithmetic: one table of functions, filled once by what the CPU can do.
 *
 * Contract Batch invariance. Within one ISA a row's result is bit-identical alone or in any batch,
 *          for every M, thread count and tile split: each output element is one chain of
 *          operations whose order depends on K (or on positions) alone. The order is stated at
 *          each entry. Across ISAs results agree within a rounding bound, not bit for bit.
 * Scalar   The scalar file is the definition: written for reading, never optimised.
 * Threads  Every function is reentrant and works on the range it is given; the engine splits work
 *          by output tiles (never along K) and hands the parts to its threads.
 * Sizes    Checked at entry with assertions; pointers to activations are 64-byte aligned unless it
 *          says otherwise. Nothing allocates.
 * Source   Goto and van de Geijn 2008 (packing and blocking); Milakov and Gimelshein 2018 (online
 *          softmax); Kwon et al. 2023 (paged attention); GGML Q8_0 block format. */
#ifndef WEFT_KERNELS_H
#define WEFT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"

enum weft_isa {
    WEFT_ISA_SCALAR,
    WEFT_ISA_AVX2,
    WEFT_ISA_AVX2VNNI, /* with AVX-VNNI: dot products of bytes */
    WEFT_ISA_AVX512,
    WEFT_ISA_AMX, /* and AVX-512 with VNNI */
    WEFT_ISA_NEON,
    WEFT_ISA_COUNT
};

/* ------------------------------------------------------------------------------------ GEMM --- */

/* How a packed weight is stored, and which activations it meets: each type has
 * WEFT_GEMM_<type>_F32, with f32 activations, and weights widened to meet them; most also have
 * WEFT_GEMM_<type>, with the activations that weft_kern_act_of names: bf16 in pairs, or 8 bits; and those of
 * blocks WEFT_GEMM_<type>_BF16, where weights are rounded to bf16 as they are read. A type's kinds share
 * a layout. */
#define WEFT_GEMM_KINDS_NONE(id)
#define WEFT_GEMM_KINDS_EXACT(id) WEFT_GEMM_##id##_F32,
#define WEFT_GEMM_KINDS_BOTH(id) WEFT_GEMM_##id##_F32, WEFT_GEMM_##id,
#define WEFT_GEMM_KINDS_ALL(id) WEFT_GEMM_KINDS_BOTH(id) WEFT_GEMM_##id##_BF16,
#define WEFT_GEMM_KINDS(id, name, class, elems, bytes, file, layout, products)                     \
    WEFT_GEMM_KINDS_##products(id)
enum weft_gemm_kind { WEFT_DTYPES(WEFT_GEMM_KINDS) WEFT_GEMM_KIND_COUNT };

/* Whether weights of a type can be multiplied (all but pieces), and then by which kind: with f32
 * activations; with those of 8 bits or, of bf16, its own; with those of bf16. Where there is none of the last two,
 * it is the kind before. */
bool weft_kern_has_kind(enum weft_dtype dtype);
enum weft_gemm_kind weft_kern_exact_kind(enum weft_dtype dtype);
enum weft_gemm_kind weft_kern_fast_kind(enum weft_dtype dtype);
enum weft_gemm_kind weft_kern_bf16_kind(enum weft_dtype dtype);
/* The reverse. */
enum weft_dtype weft_kern_weights_of(enum weft_gemm_kind kind);

/* C[M,N] = A[M,K] * W[N,K]^T. W is packed once, in panels of WEFT_PANEL output features (columns of
 * C), each 64-byte aligned; N is padded up to whole panels with zeros:
 *   f32, f16  [K][16]
 *   bf16      [ceil(K/2)][16][2], an odd K padded with zero
 *   i8        [ceil(K/4)][16][4] int8 + 128 as uint8 (padded with zero weights), [16] f32 scale
 *   q8_0      [K/32] x { [8][16][4] int8 + 128 as uint8, [16] f16 scale }
 *   f8, nf4   fp8_nf4.h
 *   q4_g ...  act_order.h
 *   q4_0 ...  quant.h */
#define WEFT_PANEL 16

/* K is cut in segments that tensor parallelism may split (docs/architecture.md, "Batch
 * invariance"): partial sums of each segment, then joined by the fixed tree
 * ((0+1)+(2+3))+((4+5)+(6+7)); an empty segment is left out of the tree. seg_end[i] is the end of
 * segment i in elements of K, seg_end[n_segs-1] == K; boundaries are multiples of weft_kern_group.
 * n_segs is 1 (no split) or 8. */
struct weft_kern_segs {
    uint32_t n_segs;
    uint32_t seg_end[8];
};

/* Fills `segs` for K = n_units * unit: segment s covers units floor(s*U/8) .. floor((s+1)*U/8). */
void weft_kern_segs_split(struct weft_kern_segs *segs, uint32_t n_units, uint32_t unit);
void weft_kern_segs_one(struct weft_kern_segs *segs, uint32_t k);

/* Bytes of the packed form of an N x K weight, a multiple of 64. */
size_t weft_kern_packed_bytes(enum weft_gemm_kind kind, uint32_t n, uint32_t k);
/* Bytes of one panel. */
size_t weft_kern_panel_bytes(enum weft_gemm_kind kind, uint32_t k);
/* The same of k columns that were cut out of k_whole. */
size_t weft_kern_part_bytes(enum weft_gemm_kind kind, uint32_t k_whole, uint32_t k);

/* How far the grid of a quantised group (an output feature of i8, else 32 columns) reaches. */
enum weft_kern_clip {
    WEFT_CLIP_MINMAX,     /* to its largest weight: nothing is clipped */
    WEFT_CLIP_PERCENTILE, /* to where 99.9 % of the feature's importance lies within */
    WEFT_CLIP_ENTROPY,    /* to where the feature's distribution loses least in levels */
    WEFT_CLIP_ERROR,      /* to where the sum of importance * error^2 is least */
};

struct weft_kern_calib {
    enum weft_kern_clip clip;
    const float *importance; /* [k] >= 0: how much the square of an error in a column matters */
    float *row;              /* [k] scratch */
};

/* An N x K row-major weight, of any alignment, its rows one after the other. A row of I8 begins with its
 * f32 scale. */
struct weft_kern_source {
    enum weft_dtype type;
    const void *rows;
    uint32_t n, k;
};

/* Packs output features n_begin..n_end of a weight (n_begin % 16 == 0; n_end % 16 == 0 or n_end ==
 * n) into `packed`. Converts where the kind's weight type differs (f32 -> bf16 rounds to nearest
 * even; anything -> q8_0 quantises as GGML does: scale = max|w| / 127 stored as f16, q = round(w /
 * scale); i8 likewise over the whole row, with an f32 scale; Q4_0 with scale = the weight of the
 * largest magnitude / -8, Q4_1 between the smallest and the largest weight). The others take blocks
 * of their own type only. Where float weights are quantised and `calib` is not NULL, a clip is
 * chosen per group; one that has a larger sum of importance * error^2 than none is not taken. Plain
 * portable C: the same bits on every ISA. */
void weft_kern_pack(enum weft_gemm_kind kind, const struct weft_kern_source *src, uint32_t n_begin,
                    uint32_t n_end, const struct weft_kern_calib *calib, void *packed);

/* Columns k_begin..k_end of a panel of `k` columns, as a panel of their own: the same weights, as
 * if the others had never been. Both are multiples of weft_kern_group, or k_end is k. */
void weft_kern_cut(enum weft_gemm_kind kind, const void *panel, uint32_t k, uint32_t k_begin,
                   uint32_t k_end, void *out);

/* The way back: output feature `row` of a packed weight of K columns, as packing read it or would
 * read it again to the same bits (f16, bf16, Q8_0 blocks of 34 bytes, else f32). `packed` is the
 * whole weight; `out` holds the row in that form, at most 4 * K bytes, of any alignment. Returns
 * the form. */
enum weft_dtype weft_kern_unpack_row(enum weft_gemm_kind kind, const void *packed, uint32_t k,
                                     uint32_t row, void *out);

/* One row of `k` columns of a source (of any alignment) as f32, as packing reads it. */
void weft_kern_read_row(enum weft_dtype type, const void *row, uint32_t k, float *out);

/* Columns that a kind's layout keeps together, 1, 2 or 32 to 256: segments end between groups. */
uint32_t weft_kern_group(enum weft_gemm_kind kind);

/* The form of a kind's activations. A row of Q8_SUMS begins as one of Q8. */
enum weft_kern_act {
    WEFT_ACT_F32,
    WEFT_ACT_BF16,
    WEFT_ACT_I8,
    WEFT_ACT_Q8,
    WEFT_ACT_Q8_SUMS,
    WEFT_ACT_COUNT
};
enum weft_kern_act weft_kern_act_of(enum weft_gemm_kind kind);

/* Activations in the form a kind wants, for M rows:
 *   f32 kinds   [M][lda] f32, used as they are
 *   BF16        [M][lda] uint16 bf16, lda even, odd K: zero padded; an odd number of lines of 64 bytes
 *   Q8          [M] rows: k int8, then k/32 f32 scales, then k/32 int32 (-128 * sum of the block's
 *               int8, for the unsigned weights); padded to 64 bytes
 *   Q8_SUMS     the same, then k/32 int32 (-32 * sum of the block's first 16), then k/32 f32 (scale
 *               * sum); padded to 64 bytes
 *   I8          [M] rows: k int8 (rounded up to 4 of them with zeros), then ceil(k/256) f32 scales,
 *               then as many int32 (-128 * sum of the group); padded to an odd number of lines
 *
 * Codes of Q8 are those of the one of six grids that fits their block best; those of I8 reach to
 * its largest number.
 *
 * Few rows lie one after the other. Many rows are faster interleaved in groups of the table's
 * group_rows G: 32-bit word w of row r of a group is its word w * G + r, and a group is as long as
 * G rows. Forms for which the table says act_in_rows lie one after the other within a group, too.
 * Lanes of rows that are not there never reach a result. */
size_t weft_kern_act_row_bytes(enum weft_gemm_kind kind, uint32_t k); /* a multiple of 64 */

/* Columns of up to a whole group of rows, for act_group. */
struct weft_kern_act_part {
    const float *src;           /* column k_begin of the first row; any alignment */
    size_t src_stride;          /* elements from row to row */
    uint32_t n_rows;            /* 1..group_rows, the first ones of the group */
    uint32_t k, k_begin, k_end; /* of k columns; multiples of weft_kern_act_unit, or k_end is k */
    void *group;                /* the whole group: group_rows rows of act_row_bytes */
};

/* Columns that a kind's activations keep together: 1, 2, 32 or 256. */
uint32_t weft_kern_act_unit(enum weft_gemm_kind kind);

/* Memory that is read soon, but not by a product: a product of many rows has time to fetch it. */
struct weft_kern_beside {
    const uint8_t *const *parts; /* of part_bytes each */
    uint32_t n_parts;
    size_t part_bytes, at; /* `at`: of all parts, so much was fetched; the kernels advance it */
};

struct weft_gemm_args {
    const void *act;      /* rows in the kind's form, act_row_bytes apart; or at a whole group */
    size_t act_row_bytes; /* >= weft_kern_act_row_bytes(kind, k); a multiple of 64 */
    uint32_t
        act_group; /* 1: row after row; else the table's group_rows: interleaved, or as act_in_rows says */
    const void *packed;    /* whole packed weight, 64-byte aligned */
    float *c;              /* row-major [M][ldc]; column n of the weight lands in c[m * ldc + n] */
    size_t ldc;            /* elements; >= N */
    const float *bias;     /* NULL, or [N], added to every row's product */
    const float *residual; /* NULL, or [M][ldc]: c = residual + that (may be == c) */
    uint32_t m, n, k;
    uint32_t k_whole; /* columns of the weight that `packed` was cut from; 0: it is whole */
    const struct weft_kern_segs *segs;
    struct weft_kern_beside *beside; /* NULL: nothing is to be fetched */
};

/* -------------------------------------------------------------------------------- adapters --- */

/* Low-rank products (LoRA: Hu et al. 2021, arXiv:2106.09685) of many rows that have different
 * adapters (batched as in Punica: Chen et al. 2023, arXiv:2310.18547). Weights are F32 or BF16, in
 * panels as for WEFT_GEMM_F32_F32 or WEFT_GEMM_BF16_F32; activations are f32. */

/* out = scale * (row times panel). */
struct weft_kern_lora_lane {
    const uint8_t *panel;
    const float *x; /* [k] */
    float *out;     /* [WEFT_PANEL] */
    float scale;
};

/* y += row times weight, of one adapter's rows: [n_rows][rank] times `n_columns` output features. */
struct weft_kern_lora_expand {
    const uint8_t *panels; /* of rank columns */
    const float *const *t; /* [n_rows] */
    float *const *y;       /* [n_rows]: [n_columns], of any alignment */
    uint32_t rank, n_columns, n_rows;
    const uint8_t *next; /* what is read after this call: fetched ahead */
};

/* ------------------------------------------------------------------------------- attention --- */

enum weft_kv_dtype { WEFT_KV_F32, WEFT_KV_BF16, WEFT_KV_F16, WEFT_KV_INT8, WEFT_KV_DTYPE_COUNT };

/* One layer's cache. A block holds block_size tokens of all kv heads (block_size % 16 == 0), as
 * groups of 16 tokens of one kv head: [kv_head][block_size/16] groups, and in each
 *   K  [ceil(head_dim/u)][16][u]  16 tokens side by side: dot products of a query run along tokens,
 *                       without horizontal sums
 *   V  [16/u][head_dim][u]; a latent layer (latent attention: DeepSeek-V2) has none, the values of
 *      a token are the first v_dim elements of its K
 *   where u elements (of K: of a token; of V: of u tokens) are what a dot product of the CPU sums
 *   up: 2 of bf16, 4 of int8, else 1. The last u of K are padded with zeros.
 *   int8: after the codes [16] f32, the scale of each token's head: max|x| / 127 of its row, codes
 *   rounded to nearest even; a row with an infinity or NaN has the scale NaN.
 * K and V are read only after rounding to the cache type, the current token's too. */
struct weft_kv_layer {
    void *k, *v; /* planes: block b is at b * stride_bytes; 16-byte aligned; v NULL: latent */
    size_t stride_bytes; /* weft_kv_block_bytes or more, a multiple of 16 */
    enum weft_kv_dtype dtype;
    uint32_t block_size, n_kv_heads, head_dim;
    uint32_t v_dim; /* latent: 1..head_dim; else 0, and values are as long as keys */
};

static inline uint32_t weft_kv_value_dim(const struct weft_kv_layer *kv) {
    return kv->v_dim ? kv->v_dim : kv->head_dim;
}

/* Planes of a layer: K and V, or K alone. */
static inline uint32_t weft_kv_n_planes(const struct weft_kv_layer *kv) {
    return kv->v_dim ? 1 : 2;
}

/* Elements that lie together: u. */
static inline uint32_t weft_kv_unit(enum weft_kv_dtype dtype) {
    return dtype == WEFT_KV_BF16 ? 2 : dtype == WEFT_KV_INT8 ? 4 : 1;
}

/* Bytes of the codes of one group of 16 tokens; scales follow. */
static inline size_t weft_kv_code_bytes(const struct weft_kv_layer *kv) {
    static const uint8_t code_bytes[WEFT_KV_DTYPE_COUNT] = {4, 2, 2, 1};
    size_t unit = weft_kv_unit(kv->dtype);
    return 16 * ((kv->head_dim + unit - 1) / unit * unit * code_bytes[kv->dtype]);
}

/* Bytes of one group of 16 tokens: a multiple of 16. */
static inline size_t weft_kv_group_bytes(const struct weft_kv_layer *kv) {
    size_t scale_bytes = kv->dtype == WEFT_KV_INT8 ? sizeof(float) : 0;
    return weft_kv_code_bytes(kv) + 16 * scale_bytes;
}

/* Bytes of one block of a plane: they lie together, so a block is copied as bytes. */
static inline size_t weft_kv_block_bytes(const struct weft_kv_layer *kv) {
    return (size_t)kv->n_kv_heads * (kv->block_size / 16) * weft_kv_group_bytes(kv);
}

/* One query row: a token of a sequence at absolute position `pos`, which sees positions 0..pos + ahead;
 * with a window, of these at most `window` - 1 to either side of it. */
struct weft_attn_row {
    const uint32_t
        *block_table; /* covers what it sees: ceil((pos + ahead + 1) / block_size) entries */
    uint32_t pos;
    uint32_t ahead; /* 0: it sees nothing after itself; else all up to the end, in encoders */
};

struct weft_attn_args {
    struct weft_kv_layer kv;
    const float *q; /* [rows][n_heads * head_dim], rotated, row stride q_stride elements */
    float *out;     /* [rows][n_heads * value_dim], row stride out_stride elements */
    size_t q_stride, out_stride;
    const struct weft_attn_row
        *rows; /* [n_rows]; rows of one sequence stand together, ascending, and
                                         none sees less far than one before it */
    uint32_t n_heads;
    /* Query heads of a kv head; 0: n_heads / kv.n_kv_heads. Where it is given, the first and the
     * last kv head may have fewer: skipped_heads of the first one's are not there, and heads end
     * with n_heads. */
    uint32_t group_heads, skipped_heads;
    uint32_t window; /* 0: none */
    bool in_chunks;  /* see weft_attn_first */
    /* Queries and weights of values are not rounded: bf16 and int8 are met as f32. Otherwise by
     * what the ISA is fastest with, see `attention`. */
    bool exact;
    float scale;    /* 1 / sqrt(head_dim) unless the model says otherwise */
    float soft_cap; /* scores become soft_cap * tanh(score / soft_cap); 0: they do not */
    const float *
        sinks; /* [n_heads], or NULL: the score of a position without a value, which every row sees */
    /* NULL, or for each of `rows` its set of positions (weft_attn_bit), seen_stride words apart: of what a row
     * at seen_from or later would see it sees these alone, one at least. There is none after its own. Sets of
     * earlier rows are not read. */
    const uint64_t *seen;
    size_t seen_stride;
    uint32_t seen_from;
};

/* Rows of a call, which may be none, and kv heads. */
struct weft_attn_range {
    uint32_t row_begin, row_end, kv_head_begin, kv_head_end; /* one kv head or more */
};

/* Positions as a set: a bit each, a tile of 64 to a word. */
#define WEFT_ATTN_SET_WORD 64u

static inline bool weft_attn_bit(const uint64_t *set, uint32_t pos) {
    return set[pos / WEFT_ATTN_SET_WORD] >> pos % WEFT_ATTN_SET_WORD & 1;
}

static inline size_t weft_attn_set_words(uint32_t n_positions) {
    return ((size_t)n_positions + WEFT_ATTN_SET_WORD - 1) / WEFT_ATTN_SET_WORD;
}

/* The first position that a row at `pos` sees. */
static inline uint32_t weft_attn_low(uint32_t pos, uint32_t window) {
    return window > 0 && pos >= window ? pos - window + 1 : 0;
}

/* The same where `window` may be a chunk: with `in_chunks` a row sees the positions of its own chunk, which begin
 * at multiples of it. Never before what weft_attn_low says. */
static inline uint32_t weft_attn_first(uint32_t pos, uint32_t window, bool in_chunks) {
    return in_chunks && window > 0 ? pos - pos % window : weft_attn_low(pos, window);
}

/* The last position that a row sees. */
static inline uint32_t weft_attn_high(const struct weft_attn_row *row, uint32_t window) {
    return row->pos + (window > 0 && row->ahead >= window ? window - 1 : row->ahead);
}

/* Positions are folded in spans of this length, at multiples of it: a row's sum over one span
 * depends on nothing before it, so threads may share a long sequence. */
#define WEFT_ATTN_SPAN 512

/* Sums of single spans, of rows of one sequence: [rows][n_spans][n_heads][weft_attn_part_floats],
 * where row 0 is the row_begin of a call and span 0 is `span_begin`. Each holds
 * [value_dim] sum of exp(score - max) * v, then max, then the sum of exp(score - max). */
struct weft_attn_parts {
    float *sums;
    uint32_t span_begin, n_spans;
};

static inline size_t weft_attn_part_floats(uint32_t value_dim) {
    return ((size_t)value_dim + 2 + 15) / 16 * 16;
}

/* Queries (rows times heads) that pass over a latent cache together at most. */
#define WEFT_ATTN_LATENT_QUERIES 128

/* What positions score with a row of an indexer (DeepSeek-V3.2, arXiv:2512.02556): the sum over its
 * heads of weight * max(scale * q k, 0), where k is the position's key. */
struct weft_index_args {
    struct weft_kv_layer kv;     /* keys alone: one kv head, v_dim is head_dim */
    const uint32_t *block_table; /* of the row's sequence */
    const float *q;              /* [n_heads * head_dim], rotated */
    const float *weights;        /* [n_heads] */
    uint32_t n_heads;
    bool exact; /* as in weft_attn_args */
    float scale;
};

/* ------------------------------------------------------------------------- recurrent layers --- */

/* Layers that carry a state of fixed size from token to token where attention has keys and values of
 * all of them. Tokens of a sequence are taken one after the other, those of a prompt as those that
 * are generated, by the same operations: so the state after a token, and what the token yields,
 * depend on its history alone, however that was cut into calls. A call has one token or more of one
 * sequence, in order, begins with the state that the call before it left and leaves its own; work is
 * split by sequences, heads, panels and channels, never along time. */

/* A state that is a matrix belongs to one head: [panels][n_rows][WEFT_PANEL], f32, 64-byte aligned.
 * Rows are what is summed over (a key's elements, or d_state of Mamba-2), columns what comes out
 * (a value's elements), in panels, the last one padded with columns of zeros, which stay zeros. */
static inline uint32_t weft_kern_state_panels(uint32_t n_columns) {
    return (n_columns + WEFT_PANEL - 1) / WEFT_PANEL;
}

static inline size_t weft_kern_state_floats(uint32_t n_rows, uint32_t n_columns) {
    return (size_t)n_rows * weft_kern_state_panels(n_columns) * WEFT_PANEL;
}

/* A causal convolution of each channel by itself. */
struct weft_kern_conv {
    float *state;      /* [width - 1][n_channels]: the last inputs, the oldest first */
    const float *x;    /* [n_tokens][n_channels] */
    const float *taps; /* [width][n_channels]: the last ones meet the token itself */
    const float *bias; /* [n_channels]; NULL: zeros */
    float *y;          /* [n_tokens][n_channels], apart from x */
    size_t x_stride, y_stride;
    uint32_t n_tokens, n_channels, width; /* width 2..WEFT_CONV_WIDTH_MAX */
    bool is_first;                        /* the state counts as zeros, whatever is there */
    bool has_silu;                        /* y is silu of the sum */
};

/* How fast states of heads fade: dt = softplus(x + bias), within dt_min..dt_max, and
 * decay = exp(rate * dt). Each [n]. */
struct weft_kern_decay {
    const float *x, *bias;
    const float *rate; /* -exp(A_log), as models have it */
    float dt_min, dt_max;
    float *dt; /* NULL: nobody needs it */
    float *decay;
    uint32_t n;
};

/* One head of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), for each token
 *   h = decay * h + (dt * x) b;   y = c h + skip * x
 * with h [d_state][head_dim], b and c [d_state], x and y [head_dim], the others numbers. */
struct weft_kern_mamba {
    float *state;            /* h: rows d_state, columns head_dim */
    const float *x;          /* [n_tokens], x_stride floats apart */
    const float *b, *c;      /* bc_stride */
    const float *dt, *decay; /* dt_stride */
    float *y;                /* y_stride; may be x */
    size_t x_stride, bc_stride, dt_stride, y_stride;
    float skip; /* D */
    uint32_t n_tokens, head_dim, d_state;
    bool is_first; /* as above */
};

/* One value head of the gated delta rule (Yang et al. 2024, arXiv:2412.06464), for each token
 *   s = decay * s;   r = beta * (v - k s);   s = s + k r;   y = q s
 * with s [k_dim][v_dim], q and k [k_dim], r, v and y [v_dim], decay and beta numbers. */
struct weft_kern_delta {
    float *state;              /* s: rows k_dim, columns v_dim */
    const float *q, *k;        /* [n_tokens], qk_stride floats apart; of length 1, and q scaled */
    const float *v;            /* v_stride */
    const float *decay, *beta; /* gate_stride */
    float *y;                  /* y_stride; may be v */
    size_t qk_stride, v_stride, gate_stride, y_stride;
    uint32_t n_tokens, k_dim, v_dim;
    bool is_first; /* as above */
};

/* ----------------------------------------------------------------------------------- table --- */

/* The peaks that speeds of products are compared with, by the form of their activations. */
enum weft_kern_peak { WEFT_PEAK_F32, WEFT_PEAK_BF16, WEFT_PEAK_INT8, WEFT_PEAK_COUNT };

/* The peak of kinds with such activations. */
static inline enum weft_kern_peak weft_kern_peak_of(enum weft_kern_act act) {
    if (act == WEFT_ACT_F32) return WEFT_PEAK_F32;
    return act == WEFT_ACT_BF16 ? WEFT_PEAK_BF16 : WEFT_PEAK_INT8;
}

#define WEFT_CHUNK 64u /* of long rows of numbers: logits */

struct weft_kern_table {
    enum weft_isa isa;
    const char *name;    /* "scalar", "avx2", "avx2-vnni", "avx512-vnni-bf16", "neon-i8mm", ... */
    const char *bits;    /* the name of a table with the same bits: part of the fingerprint */
    uint32_t group_rows; /* of interleaved activations; 1: this ISA does not use them */
    bool
        act_in_rows[WEFT_ACT_COUNT]; /* but for those of these forms: see weft_kern_act_row_bytes */
    bool bf16_of_blocks;             /* products of blocks rounded to bf16 are made for this ISA */

    /* Panels p_begin..p_end of the product, all M rows. Order per element: K ascending within a
     * segment (bf16: pairs, and as from weights of bf16 where they are rounded to it; activations of Q8: the integer dot of columns that share a scale, times
     * scale_w, rounded; then one fused multiply-add with scale_a, and another one for a min; I8: one
     * with scale_a*scale_w), segments by the tree, bias, residual last. M = 1 and M = 4096 use the
     * same order. On AMX's tiles bf16 has 32 columns at a time, from a segment's begin on: see
     * amx/bf16_order.h. */
    void (*gemm[WEFT_GEMM_KIND_COUNT])(const struct weft_gemm_args *args, uint32_t p_begin,
                                       uint32_t p_end);

    /* Low-rank products, weights of `type` F32 or BF16. Each sum is one chain, K ascending, whatever
     * else is in the call. Lanes of one panel are best side by side. */
    void (*lora_shrink)(enum weft_dtype type, const struct weft_kern_lora_lane *lanes,
                        uint32_t n_lanes, uint32_t k);
    void (*lora_expand)(enum weft_dtype type, const struct weft_kern_lora_expand *args);

    /* Converts M rows of f32 (row stride src_stride elements) to the kind's activations. */
    void (*act_convert)(enum weft_gemm_kind kind, const float *src, size_t src_stride, uint32_t m,
                        uint32_t k, void *act, size_t act_row_bytes);

    /* The same, interleaved: a part of a group. Others may write other columns meanwhile. */
    void (*act_group)(enum weft_gemm_kind kind, const struct weft_kern_act_part *part);

    /* y[i] = x[i] * w[i] / sqrt(mean(x^2) + eps). The sum of squares runs in 16 lanes (element i in
     * lane i % 16), joined by a fixed tree, on every ISA. x and y may be the same. */
    void (*rms_norm)(const float *x, const float *w, float eps, uint32_t n, float *y);

    /* y[i] = (x[i] - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * w[i] + b[i]; b NULL: zeros. Both
     * sums run as that of rms_norm. x and y may be the same. */
    void (*layer_norm)(const float *x, const float *w, const float *b, float eps, uint32_t n,
                       float *y);

    /* y[i] = scale * x[i] / sqrt(sum(x^2) + eps), the sum as that of rms_norm. x and y may be the
     * same. */
    void (*l2_norm)(const float *x, float scale, float eps, uint32_t n, float *y);

    /* Rotates n_heads heads of one row in place; cos_sin: [head_dim/2][2] at its position. */
    void (*rope)(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos_sin,
                 bool interleaved);

    /* y[i] = silu(gate[i]) * up[i]. y may be gate, or up. */
    void (*silu_mul)(const float *gate, const float *up, uint32_t n, float *y);

    /* y[i] = sigmoid(gate[i]) * up[i]; up NULL: sigmoid(gate[i]). y may be gate, or up. */
    void (*sigmoid_mul)(const float *gate, const float *up, uint32_t n, float *y);

    /* y[i] = gelu(gate[i]) * up[i], in the form with tanh: x * (1 + tanh(sqrt(2 / pi) * (x +
     * 0.044715 x^3))) / 2. up NULL: y[i] = gelu(gate[i]). y may be gate. */
    void (*gelu_mul)(const float *gate, const float *up, uint32_t n, float *y);

    /* The same in the exact form, x * (1 + erf(x / sqrt(2))) / 2. */
    void (*gelu_erf_mul)(const float *gate, const float *up, uint32_t n, float *y);

    /* x[i] = cap * tanh(x[i] / cap), in place. */
    void (*soft_cap)(float *x, uint32_t n, float cap);

    /* Rounds one token's K and V ([n_kv_heads * head_dim] each; V of a latent layer is not read)
     * into its slot of the cache. */
    void (*kv_write)(const struct weft_kv_layer *kv, const uint32_t *block_table, uint32_t pos,
                     const float *k, const float *v);

    /* Attention of the range's rows for its kv heads and the query heads that these serve; nothing else is
     * written, and ranges may be cut in any way, to the same bits. Each span of WEFT_ATTN_SPAN positions that a row sees any of gives a maximum, a sum of
     * exponentials and a sum of values; these are joined in ascending order, one after the other,
     * and divided at last. Within a span KV is folded in position order in tiles of 64 tokens at
     * absolute positions; tiles that a row sees nothing of are left out; per tile: scores
     * (head_dim ascending, one chain per token; int8: over the codes, then times the token's
     * scale; capped), new maximum, exponentials, their sum (fixed tree over 64 slots, masked ones
     * exactly 0), then V in position order (int8: the exponential times the token's scale, times
     * codes). A row's result depends on its position and its history only.
     *
     * Unless `exact`, int8 is met by integers, so that sums of products are exact: a query's
     * head becomes 15-bit codes, scale max|q| / 16383, and so do the exponentials times scales of
     * each tile; the sum of a tile's values, times its scale, is added by one fused
     * multiply-add. bf16 is met by dot products of pairs where the CPU has fast ones, queries and
     * exponentials rounded to bf16, else by f32 as they are. With AMX these are of whole tiles, whose
     * order amx/bf16_order.h has: a score's along the head, 32 elements at a time; of values 16 tokens at
     * a time, all that a row sees of 64 a sum of its own, which one fused multiply-add takes in.
     *
     * A row with a set of positions passes over the cache by itself. Spans of which it sees nothing are left out, and
     * within a span a tile is the next four groups of 16 positions of which it sees any; the others of these weigh 0.
     *
     * Heads know nothing of each other: a latent layer's may be given in groups, by an `args` of a
     * group's q, out and n_heads, to the same bits. */
    void (*attention)(const struct weft_attn_args *args, const struct weft_attn_range *range);

    /* The same in two steps, to the same bits: the sums of one span, for those of the rows that see
     * any of it (others' sums are not touched); and, when all spans that a row sees are there,
     * their join into args->out. */
    void (*attention_span)(const struct weft_attn_args *args, const struct weft_attn_range *range,
                           uint32_t span, const struct weft_attn_parts *parts);
    void (*attention_join)(const struct weft_attn_args *args, const struct weft_attn_range *range,
                           const struct weft_attn_parts *parts);

    /* scores[i] = the score of position begin + i, for those before `end`; begin is a multiple of 64. A
     * position's products run as in `attention`; the sum over heads is one chain, heads ascending, a
     * product and a sum for each, rounded both. A dot that is NaN counts as 0. A score is never -0. */
    void (*index_scores)(const struct weft_index_args *args, uint32_t begin, uint32_t end,
                         float *scores);

    /* Channels c_begin..c_end of a convolution. A sum begins with the bias, and the oldest input
     * comes first. The same bits on every ISA, as those of decay. */
    void (*conv)(const struct weft_kern_conv *args, uint32_t c_begin, uint32_t c_end);
    void (*decay)(const struct weft_kern_decay *args);

    /* Panels p_begin..p_end of a head. An element of a state is multiplied by decay, rounded, and
     * gets one multiply-add; a sum over rows is one chain of those, rows ascending (skip * x of
     * Mamba-2 comes last). They are fused where the ISA has that. */
    void (*mamba_scan)(const struct weft_kern_mamba *args, uint32_t p_begin, uint32_t p_end);
    void (*delta_scan)(const struct weft_kern_delta *args, uint32_t p_begin, uint32_t p_end);

    /* The arithmetic that attention runs in, unless it is exact (f32): of int8 there are two
     * operations for each, as the other factor has 15 bits. */
    enum weft_kern_peak attention_peak[WEFT_KV_DTYPE_COUNT];

    /* maxima[c] = the largest of chunk c, elements c * WEFT_CHUNK to the next; -inf where there is
     * none, as NaN never wins. Searches among many elements then look at few chunks. */
    void (*chunk_max)(const float *x, uint32_t n, float *maxima);

    /* In place: x = exp((x - max) / temperature) for max no less than any x and temperature > 0;
     * sums[c] = chunk c's sum in double, 16 lanes and a tree. Returns the sum of sums, c ascending.
     * -inf gives exactly 0; with a NaN among x or an infinite max the sum is NaN. */
    double (*exp_parts)(float *x, uint32_t n, float max, float temperature, double *sums);

    /* ln(sum(exp(x))), x unchanged: max, then double accumulation in 16 lanes. For
     * log-probabilities. */
    double (*log_sum_exp)(const float *x, uint32_t n);

    /* Index of the largest element, the lowest index of equal ones; NaN never wins. n >= 1. */
    uint32_t (*argmax)(const float *x, uint32_t n);

    /* For measuring the peak of one thread: `steps` steps of nothing but multiply-adds in
     * registers, in the fastest form the ISA has. Returns their number of operations, two per
     * multiply-add: proportional to `steps`. */
    double (*peak[WEFT_PEAK_COUNT])(uint64_t steps);
};

/* Puts one row of `row_bytes`, of a kind's activations, into a group of the table's, as its row `row_idx`. */
void weft_kern_act_interleave(const struct weft_kern_table *table, enum weft_gemm_kind kind,
                              const void *row, size_t row_bytes, uint32_t row_idx, void *group);

/* The best table for this CPU, or what WEFT_ISA=scalar|avx2|avx2vnni|avx512|amx|neon
 * names.
 * WEFT_E_UNSUPPORTED: the variable names an unknown ISA or one this CPU lacks. Static storage. */
WEFT_MUST_CHECK weft_err weft_kern_select(const struct weft_kern_table **table_out,
                                          struct weft_errmsg *why);

/* For tests and benchmarks: one ISA's table, NULL where the CPU lacks it. No entry is ever NULL, but for
 * kinds of blocks rounded to bf16 where bf16_of_blocks is false and the ISA is not scalar, which has them all. */
const struct weft_kern_table *weft_kern_table_for(enum weft_isa isa);

#endif
