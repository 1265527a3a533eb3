#include "weights/recurrent_share.h"

#include "base/check.h"
#include "collective/collective.h"
#include "kernels/kernels.h"

enum { CHANNEL_UNIT = 16 }; /* of short convolutions: a line of floats */

static bool has_heads(const struct weft_model_params *p) {
    return p->recurrent.kind != WEFT_MODEL_CONV;
}

uint32_t wefti_weights_recurrent_unit(const struct weft_model_params *p) {
    return has_heads(p) ? p->recurrent.head_dim : CHANNEL_UNIT;
}

/* Where the columns of a rank begin; n_ranks: where the last one's end. */
static uint32_t first_column(const struct weft_kern_segs *segs, uint32_t rank, uint32_t n_ranks) {
    uint32_t segment = weft_coll_first_segment(rank, n_ranks);
    return segment > 0 ? segs->seg_end[segment - 1] : 0;
}

/* Whether some rank has a part of a group of channels that are normalised together. */
static bool parts_norms(const struct weft_model_params *p, const struct weft_kern_segs *segs,
                        uint32_t n_ranks) {
    const struct weft_model_recurrent *r = &p->recurrent;
    if (r->kind != WEFT_MODEL_MAMBA || r->norm_groups == 0) return false;
    const uint32_t n_group = weft_model_recurrent_inner(p) / r->norm_groups;
    for (uint32_t rank = 1; rank < n_ranks; rank++)
        if (first_column(segs, rank, n_ranks) % n_group != 0) return true;
    return false;
}

/* Whose groups the first one is. */
static uint32_t first_group(const struct weft_model_params *p,
                            const struct wefti_weights_recurrent *share) {
    const struct weft_model_recurrent *r = &p->recurrent;
    return r->takes_turns || share->n == 0 ? 0 : share->first / (r->n_heads / r->n_groups);
}

static void share_groups(const struct weft_model_params *p, struct wefti_weights_recurrent *share) {
    const struct weft_model_recurrent *r = &p->recurrent;
    const uint32_t group_heads = r->n_heads / r->n_groups;
    if (share->n == 0) return;
    if (r->takes_turns) {
        share->n_groups = r->n_groups;
        share->skipped_heads = share->first % r->n_groups;
    } else {
        share->n_groups =
            (share->first + share->n - 1) / group_heads - share->first / group_heads + 1;
        share->skipped_heads = share->first % group_heads;
    }
}

struct wefti_weights_recurrent wefti_weights_recurrent_share(const struct weft_model_params *p,
                                                             const struct weft_kern_segs *segs,
                                                             uint32_t rank, uint32_t n_ranks) {
    const uint32_t dim = has_heads(p) ? p->recurrent.head_dim : 1;
    struct wefti_weights_recurrent share = {
        .is_there = true,
        .inner = {first_column(segs, rank, n_ranks), first_column(segs, rank + 1, n_ranks)},
        .gathers = parts_norms(p, segs, n_ranks)};
    WEFT_ASSERT(share.inner.begin % dim == 0 && share.inner.end % dim == 0);
    share.first = share.inner.begin / dim;
    share.n = share.inner.end / dim - share.first;
    if (has_heads(p)) {
        share.lead = share.first % WEFT_PANEL;
        share_groups(p, &share);
    }
    return share;
}

static struct wefti_weights_range from_at(uint32_t at, uint32_t n) {
    return (struct wefti_weights_range){at, at + n};
}

/* Rows of the own heads and of the groups that they read, where those of all begin at `at`; the numbers
 * of heads, from the panel on that has the first one. */
static struct wefti_weights_range own_inner(const struct wefti_weights_recurrent *share,
                                            uint32_t at) {
    return from_at(at + share->inner.begin, share->inner.end - share->inner.begin);
}

static struct wefti_weights_range own_groups(const struct weft_model_params *p,
                                             const struct wefti_weights_recurrent *share,
                                             uint32_t at) {
    const uint32_t dim = p->recurrent.state_dim;
    return from_at(at + first_group(p, share) * dim, share->n_groups * dim);
}

static struct wefti_weights_range own_numbers(const struct wefti_weights_recurrent *share,
                                              uint32_t at) {
    if (share->n == 0) return from_at(at, 0);
    return from_at(at + share->first - share->lead, share->lead + share->n);
}

uint32_t wefti_weights_recurrent_channels(const struct weft_model_params *p,
                                          const struct wefti_weights_recurrent *share,
                                          struct wefti_weights_range ranges[WEFTI_WEIGHTS_PIECES]) {
    const uint32_t inner = weft_model_recurrent_inner(p),
                   groups = p->recurrent.n_groups * p->recurrent.state_dim;
    if (p->recurrent.kind == WEFT_MODEL_CONV) {
        ranges[0] = own_inner(share, 0);
        return 1;
    }
    const bool is_mamba = p->recurrent.kind == WEFT_MODEL_MAMBA;
    const uint32_t first = is_mamba ? 1 : 0; /* what is of groups */
    ranges[is_mamba ? 0 : 2] = own_inner(share, is_mamba ? 0 : 2 * groups);
    for (uint32_t i = 0; i < 2; i++)
        ranges[first + i] = own_groups(p, share, (is_mamba ? inner : 0) + i * groups);
    return 3;
}

/* Of a short convolution b, c and x; of Mamba-2 the gate, the channels and dt. */
static void divide_one_tensor(const struct weft_model_params *p,
                              const struct wefti_weights_recurrent *share,
                              struct wefti_weights_range rows[WEFT_MODEL_RECURRENT_PARTS]) {
    const uint32_t inner = weft_model_recurrent_inner(p);
    rows[0] = own_inner(share, 0);
    if (p->recurrent.kind == WEFT_MODEL_CONV) {
        rows[1] = own_inner(share, inner);
        rows[2] = own_inner(share, 2 * inner);
        return;
    }
    uint32_t n = wefti_weights_recurrent_channels(p, share, rows + 1);
    for (uint32_t i = 1; i <= n; i++)
        rows[i] = from_at(rows[i].begin + inner, rows[i].end - rows[i].begin);
    rows[n + 1] = own_numbers(share, inner + weft_model_conv_channels(p));
}

void wefti_weights_recurrent_rows(const struct weft_model_params *p,
                                  const struct weft_model_layer *from,
                                  const struct wefti_weights_recurrent *share, bool is_all,
                                  struct wefti_weights_rows_in parts[WEFT_MODEL_RECURRENT_PARTS]) {
    const bool is_delta = p->recurrent.kind == WEFT_MODEL_DELTA;
    const struct weft_tensor *src[WEFT_MODEL_RECURRENT_PARTS];
    struct wefti_weights_range rows[WEFT_MODEL_RECURRENT_PARTS] = {{0, 0}};
    uint32_t n_parts = WEFT_MODEL_RECURRENT_PARTS;
    for (uint32_t i = 0; i < WEFT_MODEL_RECURRENT_PARTS; i++) {
        src[i] = from->rec_in[i];
        if (src[i]) rows[i] = from_at(0, (uint32_t)src[i]->dims[0]);
    }
    if (!is_all && is_delta) { /* q, k and v may be one tensor */
        (void)wefti_weights_recurrent_channels(p, share, rows);
        const uint32_t groups = p->recurrent.n_groups * p->recurrent.state_dim;
        for (uint32_t i = 1; i < 3 && src[i]; i++)
            rows[i] = from_at(rows[i].begin - i * groups, rows[i].end - rows[i].begin);
        for (uint32_t i = 1; i < 3 && !src[i]; i++)
            src[i] = src[0];
        rows[3] = own_inner(share, 0);
        rows[4] = rows[5] = own_numbers(share, 0);
    } else if (!is_all) {
        n_parts = p->recurrent.kind == WEFT_MODEL_CONV ? 3 : 5;
        for (uint32_t i = 1; i < n_parts; i++)
            src[i] = src[0];
        divide_one_tensor(p, share, rows);
    }
    for (uint32_t i = 0; i < WEFT_MODEL_RECURRENT_PARTS; i++)
        parts[i] = (struct wefti_weights_rows_in){i < n_parts ? src[i] : NULL, rows[i]};
}
