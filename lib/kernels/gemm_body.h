/* kernels/gemm_body — the loops around a register tile, shared by the vector ISAs.
 *
 * A tile is a few rows times a few panels whose sums live in registers while K runs. Around it:
 *
 * - Activations of many rows come interleaved (kernels.h): what a tile broadcasts in one step of K
 *   stands side by side, so it is one stream of one pointer, whatever the distance of the rows.
 * - Rows come in blocks of at most 8 tiles (16 where a tile has half the rows): with the sums of
 *   eight sets (96 KiB) and the rows' part of a span (192 KiB), most of a 1 MiB L2 is left to
 *   panels. The sums' tree of segments (288 KiB) is touched where segments end.
 * - Panels come in sets of as many as the tile takes. For missing ones the last panel is computed
 *   again and dropped.
 * - Up to 8 sets go through K together, span by span: the rows' part of a span (192 KiB) is read
 *   from L2 by all of them. Otherwise a long K would be read from L3 for each set, or widened again.
 *   (Xeon, model 207, one core, 96 rows with 4 sets and with 8: f32 176 and 190 GFLOP/s, bf16 154
 *   and 164, int8 alike.)
 * - K is cut by segment, and within one in chunks whose part of the panels (16 KiB) fills half of a
 *   32 KiB L1 while all tiles of the block pass over it: the B sliver (Goto and van de Geijn
 *   2008).
 *
 * Between chunks the sums rest in `acc` as f32, which changes no bit of them: one chain per
 * element, K ascending, whatever the shape of the tile. That is all that batch invariance asks for.
 *
 * Few rows are bound by memory: they have a tile of their own, with more panels, and K unchunked,
 * so that each panel is one long stream. Many rows are bound by arithmetic: weights narrower than
 * f32 are widened chunk by chunk into a buffer in L1, once for all rows of the block, and meet the
 * f32 tile; a value widened earlier is the same value, so both ways agree to the bit. */
#ifndef WEFT_KERNELS_GEMM_BODY_H
#define WEFT_KERNELS_GEMM_BODY_H

#include <string.h>

#include "kern_internal.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    TILE_PANELS_MAX = 4,
    TILE_FLOATS_MAX = 24 * WEFT_PANEL, /* rows * panels * 16 of the largest tile */
    BLOCK_TILES = 8,
    SET_FLOATS_MAX = BLOCK_TILES * TILE_FLOATS_MAX,
    SETS_MAX = 8,
    NO_SETS_TILES = 4, /* fewer go through K with one set */
    BLOCK_FLOATS_MAX = SETS_MAX * SET_FLOATS_MAX,
    NARROW_TILES = 2,
    SPAN_WORDS = 512, /* of a row: 2 KiB */
    CHUNK_BYTES = 16 * 1024,
    GROUP_MAX =
        256, /* a chunk holds whole groups: those of the widest type take more than half of L1 */
    WIDE_FLOATS = GROUP_MAX * 2 * WEFT_PANEL,
    UNPACK_CHUNK = 512, /* columns of a chunk of unpacked weights: 16 KiB of two panels */
    UNPACK_MOST = UNPACK_CHUNK * 3 / 2, /* where fewer than a chunk and a half are left */
    FACTORS_MAX = 6,
    FACTOR_FLOATS = UNPACK_MOST / Q8_GROUP * FACTORS_MAX * WEFT_PANEL, /* of a panel */
    ACT_FLOATS = 48 * 1024, /* widened activations of the block's rows: 192 KiB of L2 */
    FEW_AHEAD = 2048,
    BESIDE_LINES = 12,
    ACT_WORD = 4, /* bytes that a step of K takes of a row: 1 f32, 2 bf16 or 4 int8 */
};

/* The bits of 1.5 * 2^23, whose last place is worth 1: a dot that begins at them is a float by them. */
#define DOT_BIAS 0x1.8p23f
enum { DOT_BIAS_BITS = 0x4b400000 };

/* What a dot begins with: `start` less `part` of it. Wraps: a group's lanes of rows that are not
 * there hold anything, and sums of rows that are there fit. */
ALWAYS_INLINE int32_t biased_word(int32_t start, int32_t part) {
    return (int32_t)((uint32_t)start - (uint32_t)part + DOT_BIAS_BITS);
}

/* By a constant, to the left where it is negative. What a group's lanes of rows that are not there
 * hold may not fit. */
ALWAYS_INLINE int32_t shifted_right(int32_t x, int by) {
    return by >= 0 ? x >> by : (int32_t)((uint32_t)x << -by);
}

/* One call of a tile: adds `count` elements of K (at least one; whole groups, but for an odd last
 * element of bf16) to what lies at `from`, to acc[row][panel][16]. */
struct tile {
    const uint8_t *act;                     /* word 0 of the first row */
    size_t act_row_bytes;                   /* of rows that lie one after the other */
    const uint8_t *panels[TILE_PANELS_MAX]; /* at the first of these elements */
    uint32_t count;
    uint32_t k_begin, k; /* where in the row these elements stand, and the row's length */
    /* For few rows: bytes of a panel from `panels` on, and from its end to that of the same place
     * in the tile's next panels. */
    size_t left, skip;
    /* For many rows: step s prefetches ahead + p * ahead_stride + s * ahead_step. */
    const uint8_t *ahead;
    size_t ahead_stride, ahead_step;
    /* Unpacked weights (tile_kernel): the factors of each panel, block after block, and what the dots
     * of interleaved rows begin with: [block][n_starts][row]. */
    const float *factors[TILE_PANELS_MAX];
    const int32_t *starts;
    const float *from; /* acc; or zeros, where a segment begins */
    float *acc;
};

/* What sums begin with: read from here, as filling acc with zeros before a tile took longer than one
 * would think (AVX-VNNI, 96 rows in segments of 256 columns: 57 % of the peak, and 69 % without). */
static const _Alignas(64) float tile_zeros[TILE_FLOATS_MAX];

ALWAYS_INLINE void prefetch_step(const struct tile *t, uint32_t panels, size_t step) {
    for (uint32_t p = 0; p < panels; p++) {
        __builtin_prefetch(t->ahead + p * t->ahead_stride + step * t->ahead_step);
    }
}

/* The place `at` bytes further on in the streams of few rows. */
ALWAYS_INLINE size_t stream_at(const struct tile *t, size_t at) {
    return at < t->left ? at : at + t->skip;
}

/* With few rows every panel is one long stream, which goes on in the next panels: a step prefetches
 * what stands FEW_AHEAD bytes further. Zen 5, one core of a busy machine, GB/s without -> with,
 * where plain reading has 24: q8 20 -> 23, i8 17 -> 21, q4_0 17 -> 20, q4_k 12 -> 19; 1 and 2 KiB
 * are better than 4. */
ALWAYS_INLINE void prefetch_either(const struct tile *t, uint32_t panels, uint32_t group_rows,
                                   size_t step, size_t at) {
    if (group_rows > 1) {
        prefetch_step(t, panels, step);
        return;
    }
    size_t further = stream_at(t, at + FEW_AHEAD);
    for (uint32_t p = 0; p < panels; p++) {
        __builtin_prefetch(t->panels[p] + further);
    }
}

/* Words of a tile's activations: row r's word w is at + r * row + w * word. */
struct act_words {
    const uint8_t *at;
    size_t row, word;
};

/* From word `first` of each row on. `group_rows` is 1, or the constant that rows are interleaved
 * by: then both distances are constants, too. */
ALWAYS_INLINE struct act_words act_words_at(const struct tile *t, uint32_t group_rows,
                                            size_t first) {
    const size_t word = (size_t)group_rows * ACT_WORD;
    return (struct act_words){t->act + first * word, group_rows > 1 ? ACT_WORD : t->act_row_bytes,
                              word};
}

ALWAYS_INLINE const void *act_word(struct act_words words, uint32_t row, size_t word) {
    return words.at + row * words.row + word * words.word;
}

typedef void tile_fn(const struct tile *tile, uint32_t rows);

struct tile_kernel {
    enum weft_gemm_kind kind;
    uint32_t group, group_bytes; /* elements of K, and bytes of a panel, that belong together */
    uint32_t step;               /* elements of K per step of `many` */
    uint32_t chunk;              /* elements of K per call of a tile at most; 0: see chunk_of */
    uint32_t per_word;           /* elements of K in a word of activations */
    /* Rows one after the other: up to few_rows take few_panels, up to few_max many_panels. */
    uint32_t few_rows, few_max, few_panels;
    tile_fn *few;
    bool few_widens; /* `few` takes f32 weights, too */
    /* Interleaved rows: tiles of many_rows, which divides group_rows, or fewer. */
    uint32_t group_rows, many_rows, many_panels;
    uint32_t block_tiles; /* of a block at most; 0: BLOCK_TILES, more if they are smaller */
    tile_fn *many;        /* f32 weights if there is `widen` or `widen_at` */
    /* NULL, or: `many` with weights as they are, for rows of at most NARROW_TILES tiles: widening
     * in registers for each costs less than going through a buffer. Its steps are those of `many`. */
    tile_fn *narrow;
    /* NULL, or: `count` elements of K of a panel as f32 [count][16]; or, where wide_bytes is not 0,
     * in a form of the kernel's own, of so many bytes per group, no more than as f32. */
    void (*widen)(const uint8_t *panel, uint32_t count, float *out);
    uint32_t wide_bytes;
    /* NULL, or the same where a part of a panel cannot be read alone: `count` of its elements from
     * k_begin on. */
    void (*widen_at)(const struct weft_gemm_args *args, const uint8_t *panel, uint32_t k_begin,
                     uint32_t count, float *out);
    /* NULL, or: what `many` takes of `count` elements of a panel: codes as bytes, either where they
     * are or in `codes`, which it returns; and for each block of 32 columns up to FACTORS_MAX times 16
     * floats. */
    const uint8_t *(*unpack)(const uint8_t *panel, uint32_t count, uint8_t *codes, float *factors);
    /* NULL, or: what the dots of interleaved rows begin with, for n_blocks blocks of 32 columns from
     * `first` on: n_starts in each; or whatever else in words of 32 bits tiles take of a block. */
    void (*start)(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks, int32_t *out);
    uint32_t n_starts;
    /* NULL, or: multiplies what was widened by the 16 f32 in which the panel ends. */
    void (*scale)(float *out, uint32_t count, const float *scales);
    /* NULL, or: `count` activations of each of `group_rows` rows as f32, which both tiles then
     * take; 1: of one row, from `act` on; else of all that are interleaved, and so they are
     * again. `act` is at an even column, `out` is aligned. */
    void (*widen_act)(const uint8_t *act, uint32_t count, uint32_t group_rows, float *out);
};

/* Rows and panels under way, and the scratch of the thread that works on them (640 KiB of
 * stack). */
struct block {
    const struct tile_kernel *kernel;
    const struct weft_gemm_args *args;
    const uint8_t *act;
    const uint8_t *panels[TILE_PANELS_MAX];
    size_t panel_bytes;
    uint32_t rows, n_panels, tile_rows, n_tiles;
    uint32_t set, n_sets, p_begin, p_end; /* the set of `panels`, and what panels there are */
    bool few, widen, narrow;              /* rows lie one after the other; weights are widened */
    /* What act_f32 has: columns from wide_begin on, wide_count of each row; 0: none. Or as many starts
     * of each row. */
    uint32_t wide_begin, wide_count;
    _Alignas(64) float acc[BLOCK_FLOATS_MAX];
    _Alignas(64) float slots[3 * BLOCK_FLOATS_MAX];
    _Alignas(64) float tile_acc[TILE_FLOATS_MAX]; /* of a tile, to be joined */
    _Alignas(64) float weights[WIDE_FLOATS];
    union { /* of all the block's rows */
        _Alignas(64) float act_f32[ACT_FLOATS];
        _Alignas(64) int32_t starts[ACT_FLOATS];
    };
    _Alignas(64) float factors[TILE_PANELS_MAX * FACTOR_FLOATS];
};

/* Words of two columns, `group_rows` rows side by side, to columns of as many rows. */
static inline void widen_act_bf16(const uint8_t *act, uint32_t count, uint32_t group_rows,
                                  float *out) {
    const uint32_t n_words = (count + 1) / 2;
    for (uint32_t w = 0; w < n_words; w++, out += 2 * (size_t)group_rows) {
        for (uint32_t r = 0; r < group_rows; r++) {
            uint32_t pair;
            memcpy(&pair, act + ((size_t)w * group_rows + r) * ACT_WORD, sizeof pair);
            uint32_t even = pair << 16, odd = pair & 0xffff0000u;
            memcpy(out + r, &even, sizeof even);
            if (2 * w + 1 < count) memcpy(out + group_rows + r, &odd, sizeof odd);
        }
    }
}

/* Elements of K per chunk. Few rows use nothing twice: no limit. */
static inline uint32_t chunk_of(const struct block *b) {
    const struct tile_kernel *kernel = b->kernel;
    WEFT_ASSERT(b->n_panels > 0 && b->n_panels <= TILE_PANELS_MAX);
    if (kernel->chunk) return kernel->chunk;
    if (kernel->unpack && !b->few) return UNPACK_CHUNK;
    if (b->widen) {
        WEFT_ASSERT(kernel->group * b->n_panels * WEFT_PANEL <= WIDE_FLOATS);
        uint32_t floats = kernel->group * WEFT_PANEL;
        uint32_t bytes = kernel->wide_bytes ? kernel->wide_bytes : floats * (uint32_t)sizeof(float);
        uint32_t groups = CHUNK_BYTES / b->n_panels / bytes;
        return (groups ? groups : 1) * kernel->group;
    }
    if (b->few) return UINT32_MAX;
    uint32_t groups = CHUNK_BYTES / b->n_panels / kernel->group_bytes;
    return (groups ? groups : 1) * kernel->group;
}

/* Elements of the next chunk, when `left` are left of a segment's span. */
static inline uint32_t chunk_at(const struct block *b, uint32_t left) {
    const struct tile_kernel *kernel = b->kernel;
    if (kernel->unpack && !b->few && !kernel->chunk && left <= UNPACK_MOST) return left;
    return weft_min_u32(chunk_of(b), left);
}

/* The panels of the tile as bytes and factors. */
static inline void unpack_panels(struct block *b, struct tile *tile) {
    const struct tile_kernel *kernel = b->kernel;
    WEFT_ASSERT(tile->count <= UNPACK_MOST);
    WEFT_ASSERT((size_t)b->n_panels * tile->count * WEFT_PANEL <= sizeof b->weights);
    for (uint32_t p = 0; p < b->n_panels; p++) {
        float *factors = b->factors + (size_t)p * FACTOR_FLOATS;
        uint8_t *codes = (uint8_t *)b->weights + (size_t)p * tile->count * WEFT_PANEL;
        tile->panels[p] = kernel->unpack(tile->panels[p], tile->count, codes, factors);
        tile->factors[p] = factors;
    }
}

/* The panels at element k_begin, as the tile wants them. */
static inline void chunk_panels(struct block *b, uint32_t k_begin, struct tile *tile) {
    const struct tile_kernel *kernel = b->kernel;
    for (uint32_t p = 0; p < b->n_panels; p++) {
        tile->panels[p] = b->panels[p] + (size_t)k_begin / kernel->group * kernel->group_bytes;
        if (b->widen) {
            float *out = b->weights + (size_t)p * tile->count * WEFT_PANEL;
            if (kernel->widen_at)
                kernel->widen_at(b->args, b->panels[p], k_begin, tile->count, out);
            else
                kernel->widen(tile->panels[p], tile->count, out);
            const uint8_t *end = b->panels[p] + b->panel_bytes;
            if (kernel->scale)
                kernel->scale(out, tile->count, (const float *)(const void *)end - 16);
            tile->panels[p] = (const void *)out;
        }
    }
    if (kernel->unpack && !b->few) unpack_panels(b, tile);
}

/* Panels of a set of the block. */
static inline void choose_set(struct block *b, uint32_t set) {
    b->set = set;
    for (uint32_t j = 0; j < b->n_panels; j++) {
        size_t at = weft_min_u32(b->p_begin + set * b->n_panels + j, b->p_end - 1);
        b->panels[j] = (const uint8_t *)b->args->packed + at * b->panel_bytes;
    }
}

static inline void plan_streams(const struct block *b, struct tile *tile) {
    const struct tile_kernel *kernel = b->kernel;
    tile->left = b->panel_bytes - (size_t)tile->k_begin / kernel->group * kernel->group_bytes;
    tile->skip = (b->n_panels - 1) * b->panel_bytes;
}

/* Columns of a span: what the block's rows have of it stays in L2 for all sets. */
static inline uint32_t span_of(const struct block *b) {
    const struct tile_kernel *kernel = b->kernel;
    const uint32_t n_rows = b->n_tiles * b->tile_rows;
    if (kernel->widen_act) {
        uint32_t span = ACT_FLOATS / n_rows;
        WEFT_ASSERT(span >= SPAN_WORDS);
        return span / SPAN_WORDS * SPAN_WORDS;
    }
    if (b->few) return UINT32_MAX;
    const uint32_t span = SPAN_WORDS * kernel->per_word;
    if (!kernel->start) return span;
    uint32_t most = ACT_FLOATS / (n_rows * kernel->n_starts) * Q8_GROUP / GROUP_MAX * GROUP_MAX;
    WEFT_ASSERT(most > 0);
    return weft_min_u32(span, most);
}

/* At least columns begin..end of the block's rows as f32, for all sets: as many as there is room for,
 * as the next segment and the next panels read them, too. */
static inline void widen_acts(struct block *b, uint32_t begin, uint32_t end) {
    const struct tile_kernel *kernel = b->kernel;
    const uint32_t group_rows = b->few ? 1 : kernel->group_rows;
    if (begin >= b->wide_begin && end <= b->wide_begin + b->wide_count) return;
    const uint32_t count = weft_min_u32(b->args->k - begin, span_of(b));
    b->wide_begin = begin;
    b->wide_count = count;
    const size_t skip = (size_t)begin / kernel->per_word * group_rows * ACT_WORD;
    for (uint32_t r = 0; r < b->rows; r += group_rows) {
        kernel->widen_act(b->act + r * b->args->act_row_bytes + skip, count, group_rows,
                          b->act_f32 + (size_t)r * count);
    }
}

/* The same of the integers that dots of the block's rows begin with. */
static inline void start_dots(struct block *b, uint32_t begin, uint32_t end) {
    const struct tile_kernel *kernel = b->kernel;
    if (begin >= b->wide_begin &&
        (end - b->wide_begin) / Q8_GROUP * kernel->n_starts <= b->wide_count)
        return;
    end = weft_min_u32(b->args->k - begin, span_of(b)) + begin;
    const uint32_t n_blocks = (end - begin) / Q8_GROUP;
    b->wide_begin = begin;
    b->wide_count = n_blocks * kernel->n_starts;
    const uint32_t n_groups = (b->rows + kernel->group_rows - 1) / kernel->group_rows;
    WEFT_ASSERT(n_groups * kernel->group_rows * b->wide_count <= ACT_FLOATS);
    for (uint32_t r = 0; r < b->rows; r += kernel->group_rows) {
        kernel->start(b->act + r * b->args->act_row_bytes, b->args->k, begin / Q8_GROUP, n_blocks,
                      b->starts + (size_t)r * b->wide_count);
    }
}

/* Where tiles find them. */
static inline const uint8_t *use_widened(const struct block *b, struct tile *tile) {
    tile->act_row_bytes = b->wide_count * sizeof(float);
    tile->k_begin -= b->wide_begin;
    return (const void *)b->act_f32;
}

/* How the sums of a segment go on: those of earlier ones, nearest first, are added to them, and the
 * result goes to `to`. Pointers are of the whole block. */
struct join {
    uint32_t n_from;
    const float *from[3];
    float *to;
};

/* The place of segment `s` in the tree of kern_internal.h, of whose slots, `slot_floats` long, `full` are
 * filled; the last sum goes to `acc`. */
static inline struct join plan_join(float *acc, float *slots, size_t slot_floats, bool full[3],
                                    uint32_t s, bool present) {
    struct join join = {.to = acc};
    uint32_t bit = 0;
    for (; bit < 3 && (s >> bit & 1u); bit++) {
        if (full[bit]) join.from[join.n_from++] = slots + bit * slot_floats;
    }
    if (bit == 3) return join;
    join.to = slots + bit * slot_floats;
    full[bit] = present || join.n_from > 0;
    return join;
}

/* to = from[0] + value, to = from[1] + to ...; `to` may be `value`. */
ALWAYS_INLINE void join_n(uint32_t n, const float *const *from, size_t at, const float *value,
                          float *to, size_t len) {
    IVDEP
    for (size_t i = 0; i < len; i++) {
        float v = value[i];
        for (uint32_t k = 0; k < n; k++) {
            v = from[k][at + i] + v;
        }
        to[i] = v;
    }
}

/* Floats at..at+len of the block; `sums`: theirs of the segment, NULL if it is empty. */
static inline void join_sums(const struct join *join, const float *sums, size_t at, size_t len) {
    const float *const *from = join->from;
    const float *value = sums;
    uint32_t n = join->n_from;
    if (!sums && n == 0) return;
    if (!sums) {
        value = from[0] + at;
        from++;
        n--;
    }
    switch (n) {
    case 0:
        join_n(0, from, at, value, join->to + at, len);
        break;
    case 1:
        join_n(1, from, at, value, join->to + at, len);
        break;
    case 2:
        join_n(2, from, at, value, join->to + at, len);
        break;
    default:
        join_n(3, from, at, value, join->to + at, len);
    }
}

/* One chunk of a segment for all tiles of the block and set. */
struct step {
    uint32_t k_begin, count;
    bool first, last;    /* of the segment */
    const uint8_t *next; /* what the next chunk reads, of its first panel */
    uint32_t next_count; /* its columns, about */
    float *sums;         /* of the whole block */
    const struct join *join;
};

/* Tiles share what the next chunk reads, so that requests go out evenly while they compute. Returns
 * the bytes from one tile's share to the next one's. */
static inline size_t plan_ahead(const struct block *b, const struct step *step, struct tile *tile) {
    const struct tile_kernel *kernel = b->kernel;
    size_t share = (size_t)step->next_count / kernel->group * kernel->group_bytes / b->n_tiles;
    tile->ahead = step->next;
    tile->ahead_stride = b->panel_bytes;
    tile->ahead_step = share / (tile->count / kernel->step + 1) + 1;
    return share;
}

/* A few lines for each tile, as it has to compute for longer than they take to come. */
static inline void fetch_beside(struct weft_kern_beside *beside) {
    size_t end = beside->n_parts * beside->part_bytes;
    for (uint32_t i = 0; i < BESIDE_LINES && beside->at < end; i++, beside->at += 64) {
        const uint8_t *part = beside->parts[beside->at / beside->part_bytes];
        __builtin_prefetch(part + beside->at % beside->part_bytes, 0, 2);
    }
}

/* One `tile` is changed from call to call: a tile of a chunk takes some hundred cycles, and copies of
 * what was just written in parts would wait for it. */
static inline void run_chunk(struct block *b, const struct step *step) {
    const struct tile_kernel *kernel = b->kernel;
    tile_fn *const run = b->few ? kernel->few : b->narrow ? kernel->narrow : kernel->many;
    const uint32_t group_rows = b->few ? 1 : kernel->group_rows;
    struct tile tile = {.count = step->count,
                        .k_begin = step->k_begin,
                        .k = b->args->k,
                        .act_row_bytes = b->args->act_row_bytes};
    WEFT_ASSERT(run != NULL);
    chunk_panels(b, step->k_begin, &tile);
    size_t share = 0;
    if (b->few)
        plan_streams(b, &tile);
    else
        share = plan_ahead(b, step, &tile);
    const uint8_t *act = b->act;
    if (kernel->widen_act) act = use_widened(b, &tile);
    const bool has_starts = kernel->start && !b->few;
    const int32_t *starts = b->starts;
    if (has_starts)
        starts +=
            (size_t)(step->k_begin - b->wide_begin) / Q8_GROUP * kernel->n_starts * group_rows;
    float *acc = step->sums + (size_t)b->set * SET_FLOATS_MAX;
    /* Groups are as long as their rows together; within one, rows lie a word apart. */
    for (uint32_t first = 0, into = 0; first < b->rows; first += b->tile_rows) {
        const uint32_t rows = weft_min_u32(b->tile_rows, b->rows - first);
        const size_t len = (size_t)rows * b->n_panels * WEFT_PANEL;
        tile.act = act + (size_t)into * ACT_WORD;
        tile.starts = starts + into;
        const bool joins = step->last && step->join->n_from;
        tile.from = step->first ? tile_zeros : acc;
        tile.acc = joins ? b->tile_acc : acc;
        if (b->args->beside && !b->few) fetch_beside(b->args->beside);
        run(&tile, rows);
        if (joins) join_sums(step->join, b->tile_acc, (size_t)(acc - step->sums), len);
        acc += len;
        tile.ahead += share;
        into += b->tile_rows;
        if (into >= group_rows) {
            act += into * tile.act_row_bytes;
            if (has_starts) starts += (size_t)into * b->wide_count;
            into = 0;
        }
    }
}

/* Element k of the first panel of a set; after the last set, of what follows the block. */
static inline const uint8_t *panel_at(const struct block *b, uint32_t set, uint32_t k) {
    size_t at = (size_t)k / b->kernel->group * b->kernel->group_bytes;
    return (const uint8_t *)b->args->packed +
           (b->p_begin + (size_t)set * b->n_panels) * b->panel_bytes + at;
}

/* Columns begin..end, of one segment, for all sets; `step` says what is the same for all. */
static inline void run_span(struct block *b, uint32_t begin, uint32_t end, uint32_t seg_begin,
                            uint32_t seg_end, struct step step) {
    if (b->kernel->widen_act) widen_acts(b, begin, end);
    if (b->kernel->start && !b->few) start_dots(b, begin, end);
    for (uint32_t set = 0; set < b->n_sets; set++) {
        choose_set(b, set);
        for (uint32_t at = begin; at < end; at += step.count) {
            step.k_begin = at;
            step.count = chunk_at(b, end - at);
            step.first = at == seg_begin;
            step.last = at + step.count == seg_end;
            const uint32_t left = end - at - step.count;
            step.next_count = chunk_at(b, left ? left : end - begin);
            if (left) {
                step.next = panel_at(b, set, at + step.count);
            } else if (set + 1 < b->n_sets) {
                step.next = panel_at(b, set + 1, begin);
            } else {
                step.next = end < b->args->k ? panel_at(b, 0, end) : panel_at(b, b->n_sets, 0);
            }
            run_chunk(b, &step);
        }
    }
}

/* All of K for the block's rows and panels; the result is left in acc[set][row][panel][16]. */
static inline void run_block(struct block *b) {
    const struct weft_kern_segs *segs = b->args->segs;
    const size_t len = (size_t)b->rows * b->n_panels * WEFT_PANEL;
    uint32_t span = span_of(b), begin = 0;
    bool full[3] = {false};
    for (uint32_t s = 0; s < segs->n_segs; s++) {
        uint32_t end = segs->seg_end[s], seg_begin = begin;
        struct join join = {.to = b->acc};
        if (segs->n_segs > 1)
            join = plan_join(b->acc, b->slots, BLOCK_FLOATS_MAX, full, s, begin < end);
        struct step step = {.sums = join.n_from ? b->acc : join.to, .join = &join};
        for (uint32_t set = 0; set < b->n_sets && begin == end; set++) {
            join_sums(&join, NULL, (size_t)set * SET_FLOATS_MAX, len);
        }
        for (uint32_t next; begin < end; begin = next) {
            next = end - begin > span ? begin + span : end;
            run_span(b, begin, next, seg_begin, end, step);
        }
    }
}

static inline void store_set(const struct block *b, uint32_t set, uint32_t m0) {
    const struct weft_gemm_args *args = b->args;
    const float *sums = b->acc + (size_t)set * SET_FLOATS_MAX;
    uint32_t p = b->p_begin + set * b->n_panels, n0 = p * WEFT_PANEL;
    uint32_t n_cols =
        weft_min_u32(args->n, weft_min_u32(p + b->n_panels, b->p_end) * WEFT_PANEL) - n0;
    for (uint32_t r = 0; r < b->rows; r++) {
        put_row(args, sums + (size_t)r * b->n_panels * WEFT_PANEL, m0 + r, n0, n_cols);
    }
}

/* Rows m0..m0+b->rows, all panels of the call. */
static inline void run_rows(struct block *b, uint32_t m0, uint32_t p_begin, uint32_t p_end) {
    const struct tile_kernel *kernel = b->kernel;
    b->n_panels = b->few && b->rows <= kernel->few_rows ? kernel->few_panels : kernel->many_panels;
    WEFT_ASSERT(b->n_panels > 0);
    b->n_tiles = (b->rows + b->tile_rows - 1) / b->tile_rows;
    b->act = (const uint8_t *)b->args->act + m0 * b->args->act_row_bytes;
    b->p_end = p_end;
    b->wide_begin = b->wide_count = 0;
    b->narrow = kernel->narrow && !b->few && b->n_tiles <= NARROW_TILES;
    b->widen = (kernel->widen || kernel->widen_at) && !b->narrow && (!b->few || kernel->few_widens);
    for (b->p_begin = p_begin; b->p_begin < p_end; b->p_begin += b->n_sets * b->n_panels) {
        uint32_t n_sets = (p_end - b->p_begin + b->n_panels - 1) / b->n_panels;
        /* Few tiles have their rows in L1, and read panels as long streams from memory; unless each
         * set would widen the rows again. */
        bool widens_again = (kernel->widen_act || kernel->n_starts > 2) && span_of(b) < b->args->k;
        bool one = b->few || (b->n_tiles < NO_SETS_TILES && !widens_again);
        b->n_sets = one ? 1 : weft_min_u32(n_sets, SETS_MAX);
        run_block(b);
        for (uint32_t set = 0; set < b->n_sets; set++) {
            store_set(b, set, m0);
        }
    }
}

static inline void gemm_run(const struct tile_kernel *kernel, const struct weft_gemm_args *args,
                            uint32_t p_begin, uint32_t p_end) {
    check_gemm_args(args, kernel->kind, p_begin, p_end);
    WEFT_ASSERT(args->act_group == 1 || args->act_group == kernel->group_rows);
    struct block b;
    b.kernel = kernel;
    b.args = args;
    b.panel_bytes = weft_kern_part_bytes(kernel->kind, whole_k(args), args->k);
    b.few = args->act_group == 1;
    b.tile_rows = b.few ? kernel->few_max : kernel->many_rows;
    /* Blocks of whole groups, of about equal size. */
    uint32_t unit = b.few ? 1 : kernel->group_rows, n_units = (args->m + unit - 1) / unit;
    uint32_t most_tiles = kernel->block_tiles ? kernel->block_tiles : BLOCK_TILES;
    WEFT_ASSERT(most_tiles * kernel->many_rows * kernel->many_panels * WEFT_PANEL <=
                SET_FLOATS_MAX);
    uint32_t most = b.tile_rows * (b.few ? 1 : most_tiles) / unit;
    uint32_t n_blocks = (n_units + most - 1) / most;
    for (uint32_t i = 0; i < n_blocks; i++) {
        uint32_t m0 = (uint32_t)((uint64_t)n_units * i / n_blocks) * unit;
        uint32_t m1 = (uint32_t)((uint64_t)n_units * (i + 1) / n_blocks) * unit;
        b.rows = weft_min_u32(m1, args->m) - m0;
        run_rows(&b, m0, p_begin, p_end);
    }
}

#endif
