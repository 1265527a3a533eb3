/* engine/forward/attention — attention, cut into tasks. */
#ifndef WEFT_ENGINE_ATTENTION_H
#define WEFT_ENGINE_ATTENTION_H

#include "forward/pass.h"

struct wefti_forward_attn_tile {
    uint32_t begin, end;
    uint32_t span_begin, n_spans; /* those that any of its rows sees */
    uint64_t size;                /* rows times positions, about */
    uint32_t n_shares;            /* of its kv heads, or of the heads that share a latent: tasks */
    bool by_spans;                /* each of its spans is a task by itself */
    size_t part;                  /* then: where its sums begin, in sums of a row and span */
};

/* The attention of some rows, cut into tiles, which threads share by kv heads (or by groups of the
 * heads that share a latent) and, where that is not enough, by spans of positions, too. All of it
 * yields the same bits. */
struct wefti_forward_attn_work {
    uint32_t window; /* 0: none */
    const struct weft_attn_row *rows;
    struct wefti_forward_attn_tile *tiles;
    uint32_t n_tiles;
    bool has_parts; /* some tile is shared by spans */
};

/* Cuts the attention of `n` rows in layers of a kind into tiles, for which `tiles` has room. */
struct wefti_forward_attn_work wefti_forward_attn_plan(const struct wefti_forward *f, uint32_t kind,
                                                       const struct weft_attn_row *rows, uint32_t n,
                                                       struct wefti_forward_attn_tile *tiles);

/* attn = attention of q over the layer's cache. Ends a phase, or two. */
void wefti_forward_attend(const struct wefti_forward_thread *thread, uint32_t layer,
                          const struct wefti_forward_attn_work *work);

/* How many positions the rows see, and how many their tiles read. */
uint64_t wefti_forward_attn_seen(const struct wefti_forward *f, uint32_t window,
                                 const struct weft_attn_row *rows, uint32_t n);
uint64_t wefti_forward_attn_read(const struct wefti_forward *f,
                                 const struct wefti_forward_attn_work *work);

/* How many sums of a row and span to have room for where no sequence is longer than `n_context`,
 * and how many floats one of them is, all heads together. */
size_t wefti_forward_attn_parts_max(const struct wefti_forward *f, uint32_t n_context);
/* The same by the positions that the longest sequence can have in the cache, which need not be open. */
size_t wefti_forward_attn_parts_for(const struct wefti_forward *f, uint64_t n_positions);
size_t wefti_forward_attn_part_floats(const struct wefti_forward *f);

#endif
