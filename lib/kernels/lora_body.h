/* kernels/lora_body — low-rank products of adapters, shared by the ISAs.
 *
 * A lane is one row times one panel. Lanes of different adapters and rows go through K together: each
 * has one chain of sums, which waits for itself, and one stream of weights, which waits for memory, so
 * there must be many at once. A lane's chain is K ascending whoever goes beside it.
 *
 * An ISA's file includes its vec_<isa>.h, and says how many of its vectors are LANES that are kept in
 * registers. */
#ifndef WEFT_KERNELS_LORA_BODY_H
#define WEFT_KERNELS_LORA_BODY_H

#include "kern_internal.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    AHEAD = 2048,      /* bytes; see FEW_AHEAD of gemm_body.h */
    WORD_BYTES = 64,   /* of a panel: a pair of K in bf16, or one of K in f32 */
    EXPAND_PANELS = 4, /* of a row that go on together */
};

/* Word `word` of a panel as one or two vectors. */
ALWAYS_INLINE void read_word(const uint8_t *panel, size_t word, bool is_bf16, vec *even, vec *odd) {
    const uint8_t *at = panel + word * WORD_BYTES;
    *even = is_bf16 ? vec_even(at) : vec_read((const void *)at);
    *odd = is_bf16 ? vec_odd(at) : *even;
}

/* What is known of lanes when they are compiled: of one panel if is_same. */
struct shape {
    uint32_t n;
    bool is_same, is_bf16;
};

/* Lanes under way, one beside the other; those of one panel read the first one's. */
struct lanes {
    const float *x[LANES];
    const uint8_t *panels[LANES];
    vec sum[LANES];
};

/* Words begin..end; as far ahead of them, each lane's `ahead` is fetched. */
ALWAYS_INLINE void run_words(struct lanes *lanes, struct shape shape, const uint8_t *const *ahead,
                             size_t begin, size_t end) {
    size_t per_word = shape.is_bf16 ? 2 : 1;
    vec even, odd;
    for (size_t word = begin; word < end; word++) {
        for (uint32_t l = 0; l < shape.n; l++) {
            const float *x = lanes->x[l] + word * per_word;
            if (l == 0 || !shape.is_same) {
                read_word(lanes->panels[l], word, shape.is_bf16, &even, &odd);
                __builtin_prefetch(ahead[l] + word * WORD_BYTES + AHEAD);
            }
            lanes->sum[l] = vec_add_product(lanes->sum[l], x[0], even);
            if (shape.is_bf16) lanes->sum[l] = vec_add_product(lanes->sum[l], x[1], odd);
        }
    }
}

/* Those after them are `next` further on. */
ALWAYS_INLINE void run_lanes(const struct weft_kern_lora_lane *own, struct shape shape,
                             uint32_t next, uint32_t k) {
    size_t per_word = shape.is_bf16 ? 2 : 1, n_whole = k / per_word,
           n_words = (k + per_word - 1) / per_word;
    size_t n_ahead = n_whole > AHEAD / WORD_BYTES ? n_whole - AHEAD / WORD_BYTES : 0;
    const uint8_t *after[LANES];
    struct lanes lanes;
    for (uint32_t l = 0; l < shape.n; l++) {
        lanes.x[l] = own[l].x;
        lanes.panels[l] = own[l].panel;
        lanes.sum[l] = vec_zero();
        after[l] = own[l + next].panel - n_words * WORD_BYTES;
    }
    run_words(&lanes, shape, lanes.panels, 0, n_ahead);
    run_words(&lanes, shape, after, n_ahead, n_whole);
    for (uint32_t l = 0; l < shape.n; l++) {
        if (n_whole < n_words) { /* an odd K ends here */
            vec even, odd;
            read_word(lanes.panels[l], n_whole, shape.is_bf16, &even, &odd);
            lanes.sum[l] = vec_add_product(lanes.sum[l], lanes.x[l][k - 1], even);
        }
        vec_write(vec_times(lanes.sum[l], own[l].scale), own[l].out);
    }
}

static inline uint32_t count_same(const struct weft_kern_lora_lane *lanes, uint32_t n) {
    uint32_t same = 1;
    while (same < n && lanes[same].panel == lanes[0].panel)
        same++;
    return same;
}

ALWAYS_INLINE void shrink_type(const struct weft_kern_lora_lane *lanes, uint32_t n_lanes,
                               uint32_t k, bool is_bf16) {
    for (uint32_t i = 0, n; i < n_lanes; i += n) {
        uint32_t n_left = n_lanes - i;
        n = n_left >= LANES ? LANES : n_left >= LANES / 2 ? LANES / 2 : 1;
        uint32_t next = 2 * n <= n_left ? n : 0;
        const struct weft_kern_lora_lane *own = lanes + i;
        if (n == LANES && count_same(own, n) == n)
            run_lanes(own, (struct shape){LANES, true, is_bf16}, next, k);
        else if (n == LANES)
            run_lanes(own, (struct shape){LANES, false, is_bf16}, next, k);
        else if (n == LANES / 2)
            run_lanes(own, (struct shape){LANES / 2, false, is_bf16}, next, k);
        else
            run_lanes(own, (struct shape){1, false, is_bf16}, next, k);
    }
}

static void lora_shrink(enum weft_dtype type, const struct weft_kern_lora_lane *lanes,
                        uint32_t n_lanes, uint32_t k) {
    WEFT_ASSERT(type == WEFT_DT_F32 || type == WEFT_DT_BF16);
    if (type == WEFT_DT_BF16)
        shrink_type(lanes, n_lanes, k, true);
    else
        shrink_type(lanes, n_lanes, k, false);
}

/* y += sum, of `n` columns, at most a panel's. */
ALWAYS_INLINE void add_columns(vec sum, uint32_t n, float *y) {
    if (n >= WEFT_PANEL) {
        vec_write(vec_plus(vec_read_any(y), sum), y);
        return;
    }
    _Alignas(64) float part[WEFT_PANEL];
    vec_write(sum, part);
    for (uint32_t i = 0; i < n; i++)
        y[i] += part[i];
}

ALWAYS_INLINE size_t expand_panel_bytes(const struct weft_kern_lora_expand *args, bool is_bf16) {
    return (size_t)(is_bf16 ? weft_div_up_u32(args->rank, 2) : args->rank) * WORD_BYTES;
}

/* `n_panels` panels from `panel` on times one row. */
ALWAYS_INLINE void expand_row(const struct weft_kern_lora_expand *args, const uint8_t *panel,
                              uint32_t n_panels, const float *t, bool is_bf16,
                              vec sum[EXPAND_PANELS]) {
    size_t per_word = is_bf16 ? 2 : 1, n_whole = args->rank / per_word;
    size_t panel_bytes = expand_panel_bytes(args, is_bf16);
    vec even, odd;
    for (uint32_t p = 0; p < n_panels; p++)
        sum[p] = vec_zero();
    for (size_t word = 0; word < n_whole; word++) {
        for (uint32_t p = 0; p < n_panels; p++) {
            read_word(panel + p * panel_bytes, word, is_bf16, &even, &odd);
            sum[p] = vec_add_product(sum[p], t[word * per_word], even);
            if (is_bf16) sum[p] = vec_add_product(sum[p], t[word * per_word + 1], odd);
        }
    }
    if (n_whole * per_word == args->rank) return;
    for (uint32_t p = 0; p < n_panels; p++) {
        read_word(panel + p * panel_bytes, n_whole, is_bf16, &even, &odd);
        sum[p] = vec_add_product(sum[p], t[args->rank - 1], even);
    }
}

/* Panels from `first` on, for all rows, while as much of what comes `ahead` is fetched. */
ALWAYS_INLINE void expand_panels(const struct weft_kern_lora_expand *args, uint32_t first,
                                 uint32_t n_panels, const uint8_t *ahead, bool is_bf16) {
    size_t panel_bytes = expand_panel_bytes(args, is_bf16);
    const uint8_t *panel = args->panels + first * panel_bytes;
    for (size_t at = 0; at < EXPAND_PANELS * panel_bytes; at += WORD_BYTES)
        __builtin_prefetch(ahead + at);
    for (uint32_t r = 0; r < args->n_rows; r++) {
        vec sum[EXPAND_PANELS];
        expand_row(args, panel, n_panels, args->t[r], is_bf16, sum);
        for (uint32_t p = 0; p < n_panels; p++) {
            uint32_t column = (first + p) * WEFT_PANEL;
            add_columns(sum[p], args->n_columns - column, args->y[r] + column);
        }
    }
}

ALWAYS_INLINE void expand_type(const struct weft_kern_lora_expand *args, bool is_bf16) {
    size_t panel_bytes = expand_panel_bytes(args, is_bf16);
    uint32_t n_panels = weft_div_up_u32(args->n_columns, WEFT_PANEL), p = 0;
    for (; p + EXPAND_PANELS <= n_panels; p += EXPAND_PANELS) {
        uint32_t after = p + EXPAND_PANELS;
        const uint8_t *ahead = after < n_panels ? args->panels + after * panel_bytes : args->next;
        expand_panels(args, p, EXPAND_PANELS, ahead, is_bf16);
    }
    for (; p < n_panels; p++)
        expand_panels(args, p, 1, args->next, is_bf16);
}

static void lora_expand(enum weft_dtype type, const struct weft_kern_lora_expand *args) {
    WEFT_ASSERT(type == WEFT_DT_F32 || type == WEFT_DT_BF16);
    if (type == WEFT_DT_BF16)
        expand_type(args, true);
    else
        expand_type(args, false);
}

#endif
