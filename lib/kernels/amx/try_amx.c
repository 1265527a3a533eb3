#include "try_amx.h"

#include <asm/prctl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/minmax.h"
#include "base/rand.h"
#include "bf16_order.h"
#include "tile_config.h"

enum { TILE_DATA = 18 }; /* of the CPU's states */

bool wefti_kern_amx_permitted(void) {
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

/* Three groups of interleaved rows, the last one not full; of bf16 and int8 a tile of 16 rows, and one that is not full; three panels, so
 * that a set of two is not full; a whole group of every type, and where any number may be a few columns more. */
enum { ROWS = 27, FEATURES = 40, COLUMNS = 256, COLUMNS_ANY = COLUMNS + 37 };
enum { PANELS = 3, PANEL_BYTES_MAX = 9472, ROW_BYTES_MAX = 704, GROUPS_BYTES = 36 * ROW_BYTES_MAX };

struct trial {
    enum weft_gemm_kind kind;
    struct weft_kern_segs segs;
    uint32_t k;
    size_t row_bytes;
    _Alignas(64) uint8_t packed[PANELS * PANEL_BYTES_MAX];
    _Alignas(64) uint8_t rows[GROUPS_BYTES];
    _Alignas(64) uint8_t groups[GROUPS_BYTES],
        known_groups[GROUPS_BYTES]; /* as either table has them */
    float sums[ROWS][FEATURES], known_sums[ROWS][FEATURES];
};

/* Any codes, and scales that are finite, be they f16 or f32: below 2 if bit 6 of their last byte is
 * zero, which is every second byte at most. */
static void fill_weights(struct trial *trial, uint64_t *seed) {
    size_t bytes = weft_kern_packed_bytes(trial->kind, FEATURES, trial->k);
    WEFT_ASSERT(bytes <= sizeof trial->packed);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)weft_rand_next(seed);
        trial->packed[i] = i % 2 ? byte & 0xbf : byte;
    }
}

static void add_to_group(const struct trial *trial, const struct weft_kern_table *table, uint32_t r,
                         uint8_t *groups) {
    const uint32_t n = table->group_rows;
    weft_kern_act_interleave(table, trial->kind, trial->rows + r * trial->row_bytes,
                             trial->row_bytes, r % n, groups + r / n * n * trial->row_bytes);
}

static void fill_rows(struct trial *trial, const struct weft_kern_table *table,
                      const struct weft_kern_table *known, uint64_t *seed) {
    float x[COLUMNS_ANY];
    memset(trial->groups, 0, sizeof trial->groups);
    memset(trial->known_groups, 0, sizeof trial->known_groups);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < trial->k; i++) {
            x[i] = (float)weft_rand_unit(seed) - 0.5f;
        }
        known->act_convert(trial->kind, x, trial->k, 1, trial->k,
                           trial->rows + r * trial->row_bytes, trial->row_bytes);
        add_to_group(trial, table, r, trial->groups);
        add_to_group(trial, known, r, trial->known_groups);
    }
}

static void prepare(struct trial *trial, enum weft_gemm_kind kind, uint32_t k,
                    const struct weft_kern_table *table, const struct weft_kern_table *known,
                    uint64_t *seed) {
    WEFT_ASSERT(known->group_rows <= 12);
    trial->kind = kind;
    trial->k = k;
    trial->row_bytes = weft_kern_act_row_bytes(kind, k);
    WEFT_ASSERT(trial->row_bytes <= ROW_BYTES_MAX);
    weft_kern_segs_one(&trial->segs, k);
    fill_weights(trial, seed);
    fill_rows(trial, table, known, seed);
}

static bool are_same(const struct trial *trial, uint32_t n_rows) {
    const void *bits = trial->sums, *known_bits = trial->known_sums;
    return memcmp(bits, known_bits, n_rows * sizeof trial->sums[0]) == 0;
}

/* One row, rows one after the other, and in groups as the table has them. */
enum { WAYS = 3 };
static const uint32_t ways_rows[WAYS] = {1, ROWS, ROWS};

/* Of one of both tables. */
static void multiply(const struct weft_kern_table *table, struct trial *trial, uint32_t way,
                     const uint8_t *groups, float *sums) {
    const bool grouped = way == WAYS - 1;
    const struct weft_gemm_args args = {.act = grouped ? groups : trial->rows,
                                        .act_row_bytes = trial->row_bytes,
                                        .act_group = grouped ? table->group_rows : 1,
                                        .packed = trial->packed,
                                        .c = sums,
                                        .ldc = FEATURES,
                                        .m = ways_rows[way],
                                        .n = FEATURES,
                                        .k = trial->k,
                                        .segs = &trial->segs};
    table->gemm[trial->kind](&args, 0, PANELS);
}

static bool same_sums(struct trial *trial, const struct weft_kern_table *table,
                      const struct weft_kern_table *known) {
    for (uint32_t way = 0; way < WAYS; way++) {
        multiply(table, trial, way, trial->groups, trial->sums[0]);
        multiply(known, trial, way, trial->known_groups, trial->known_sums[0]);
        if (!are_same(trial, ways_rows[way])) return false;
    }
    return true;
}

/* A key of one tile and a part of another, tokens in a tile that is not full, and all lines of both queries and
 * weights. */
enum { TOKENS = 60, TOKENS_MAX = 64, HEADS = 8, HEAD_DIM = 80, PLANE_BYTES_MAX = TOKENS_MAX * 96 };

/* Attention over int8: another instruction than that of products. */
static bool same_attention(const struct weft_kern_table *table, const struct weft_kern_table *known,
                           uint64_t *seed) {
    _Alignas(64) uint8_t k[PLANE_BYTES_MAX], v[PLANE_BYTES_MAX];
    float x[2 * HEAD_DIM], q[HEADS * HEAD_DIM], out[HEADS * HEAD_DIM], known_out[HEADS * HEAD_DIM];
    const uint32_t block = 0;
    struct weft_kv_layer kv = {.k = k,
                               .v = v,
                               .dtype = WEFT_KV_INT8,
                               .block_size = TOKENS_MAX,
                               .n_kv_heads = 1,
                               .head_dim = HEAD_DIM};
    kv.stride_bytes = weft_kv_block_bytes(&kv);
    WEFT_ASSERT(kv.stride_bytes <= sizeof k);
    for (uint32_t pos = 0; pos < TOKENS; pos++) {
        for (uint32_t i = 0; i < 2 * HEAD_DIM; i++) {
            x[i] = (float)weft_rand_unit(seed) - 0.5f;
        }
        known->kv_write(&kv, &block, pos, x, x + HEAD_DIM);
    }
    for (uint32_t i = 0; i < HEADS * HEAD_DIM; i++) {
        q[i] = (float)weft_rand_unit(seed) - 0.5f;
    }
    const struct weft_attn_row row = {&block, TOKENS - 1, 0};
    struct weft_attn_args args = {.kv = kv,
                                  .q = q,
                                  .out = out,
                                  .q_stride = HEADS * HEAD_DIM,
                                  .out_stride = HEADS * HEAD_DIM,
                                  .rows = &row,
                                  .n_heads = HEADS,
                                  .scale = 1.0f};
    const struct weft_attn_range range = {0, 1, 0, 1};
    table->attention(&args, &range);
    args.out = known_out;
    known->attention(&args, &range);
    const void *bits = out, *known_bits = known_out;
    return memcmp(bits, known_bits, sizeof out) == 0;
}

bool wefti_kern_agree(const struct weft_kern_table *table, const struct weft_kern_table *known) {
    uint64_t seed = 1;
    struct trial trial;
    WEFT_ASSERT(table->group_rows == known->group_rows);
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        enum weft_kern_act act = weft_kern_act_of((enum weft_gemm_kind)kind);
        if (weft_kern_peak_of(act) != WEFT_PEAK_INT8) continue;
        uint32_t k = act == WEFT_ACT_I8 ? COLUMNS_ANY : COLUMNS;
        prepare(&trial, (enum weft_gemm_kind)kind, k, table, known, &seed);
        if (!same_sums(&trial, table, known)) return false;
    }
    return same_attention(table, known, &seed);
}

static float bf16_sum(const struct trial *trial, uint32_t row, uint32_t feature) {
    enum { TILE_PAIRS = TILE_LINES };
    const uint16_t *a = (const void *)(trial->rows + row * trial->row_bytes);
    const uint32_t n_pairs = (trial->k + 1) / 2, panel = feature / WEFT_PANEL;
    const uint16_t *b = (const void *)trial->packed; /* [panel][pair][feature][2] */
    b += ((size_t)panel * n_pairs * WEFT_PANEL + feature % WEFT_PANEL) * 2;
    float sum = 0;
    for (size_t pair = 0; pair < n_pairs; pair += TILE_PAIRS) {
        uint32_t n = weft_min_u32(TILE_PAIRS, n_pairs - (uint32_t)pair);
        sum = bf16_add_pairs(sum, a + pair * 2, b + pair * 2 * WEFT_PANEL, 2 * WEFT_PANEL, n);
    }
    return sum;
}

bool wefti_kern_amx_bf16_holds(const struct weft_kern_table *table) {
    uint64_t seed = 1;
    struct trial trial;
    prepare(&trial, WEFT_GEMM_BF16, COLUMNS_ANY, table, table, &seed);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t n = 0; n < FEATURES; n++) {
            trial.known_sums[r][n] = bf16_sum(&trial, r, n);
        }
    }
    for (uint32_t way = 0; way < WAYS; way++) {
        multiply(table, &trial, way, trial.groups, trial.sums[0]);
        if (!are_same(&trial, ways_rows[way])) return false;
    }
    return true;
}
