/* engine/forward/lora — what adapters add to products.
 *
 * Model    A row of a batch has a list of adapters, mostly none. Rows that share an adapter go through
 *          it together, in blocks. An adapter's part of a product y = W x is y += B (s A x): first
 *          t = s A x of all matrices that read the same x, then, when y is there, y += B t. x is f32,
 *          as it is before the product's own conversion.
 * Contract A row's sum depends on its own list alone: products do not depend on the other rows, and the
 *          adapters of a list are added in its order. A batch without adapters does nothing here. */
#ifndef WEFT_ENGINE_FORWARD_LORA_H
#define WEFT_ENGINE_FORWARD_LORA_H

#include "forward/activations.h"
#include "forward/pass.h"
#include "forward/products.h"
#include "lora/adapters.h"

/* Rows of one adapter that go through it together. */
struct wefti_forward_lora_block {
    const struct wefti_lora_adapter *adapter;
    uint32_t begin, n; /* entries */
};

/* One row and one adapter. */
struct wefti_forward_lora_entry {
    const struct wefti_lora_adapter *adapter;
    uint32_t row;
    float scale;
};

/* The rows of a pass that have adapters: all first ones of lists, then all second ones ... */
struct wefti_forward_lora_plan {
    struct wefti_forward_lora_entry *entries; /* [WEFT_SEQ_ADAPTERS_MAX * max_rows] */
    struct wefti_forward_lora_block *blocks;  /* the same */
    uint32_t n_entries, n_blocks;
    const struct wefti_lora_set *const *sets; /* whose entries they are, as planned */
    const uint32_t *index;
    bool has_experts; /* an adapter changes experts */
};

/* The matrices that read one x, at most WEFTI_FORWARD_LORA_GROUP. */
enum { WEFTI_FORWARD_LORA_GROUP = 4 };
struct wefti_forward_lora_group {
    uint32_t layer, n;
    enum weft_lora_role roles[WEFTI_FORWARD_LORA_GROUP];
    float *y[WEFTI_FORWARD_LORA_GROUP]; /* row 0 of what they add to */
    size_t ldc[WEFTI_FORWARD_LORA_GROUP];
};

/* Buffers for adapters of at most rank_max; address space until they are used. NOMEM. They take so many bytes. */
size_t wefti_forward_lora_bytes(struct wefti_forward *f, uint32_t rank_max);
WEFT_MUST_CHECK weft_err wefti_forward_lora_new(struct wefti_forward *f, uint32_t rank_max,
                                                uint64_t home);
void wefti_forward_lora_free(struct wefti_forward *f);
/* Two plans: for all rows, and for those that go on in the last layer. */
struct wefti_forward_lora_plan *wefti_forward_lora_plans(const struct wefti_forward *f);

/* Sorts the rows whose `sets` are not NULL (`index` NULL: row i is i); false: there are none. */
bool wefti_forward_lora_plan(struct wefti_forward_lora_plan *plan,
                             const struct wefti_lora_set *const *sets, const uint32_t *index,
                             uint32_t n_rows);

/* t of all rows and matrices of a group. A phase's part, not its end: it reads what src reads, and
 * writes t alone. */
void wefti_forward_lora_down(const struct wefti_forward_thread *thread,
                             const struct wefti_forward_lora_plan *plan,
                             const struct wefti_forward_lora_group *group,
                             const struct wefti_forward_source *src);

/* y += B t, of all of a group. Ends a phase. */
void wefti_forward_lora_up(const struct wefti_forward_thread *thread,
                           const struct wefti_forward_lora_plan *plan,
                           const struct wefti_forward_lora_group *group);

/* The same of one matrix of the group, within a piece of its product. */
void wefti_forward_lora_up_piece(const struct wefti_forward_thread *thread,
                                 const struct wefti_forward_lora_plan *plan,
                                 const struct wefti_forward_lora_group *group, uint32_t member,
                                 const struct wefti_forward_target *target);

/* Where a piece's parts of the adapters' B are, for who computes the piece before they are read. */
enum { WEFTI_FORWARD_LORA_PARTS_MAX = 32 };
struct wefti_forward_lora_parts {
    const uint8_t *at[WEFTI_FORWARD_LORA_PARTS_MAX];
    struct weft_kern_beside beside; /* of these */
};
void wefti_forward_lora_look(const struct wefti_forward_lora_plan *plan,
                             const struct wefti_forward_lora_group *group, uint32_t member,
                             const struct wefti_forward_piece *piece,
                             struct wefti_forward_lora_parts *parts_out);

/* Matrices of a layer's experts that read the same x: gate and up, or down. A row is at a place for each
 * of its experts, and its adapters go through them place by place. */
struct wefti_forward_lora_experts {
    const struct wefti_forward_lora_plan *plan;
    const struct wefti_forward_sorted_rows *sorted;
    uint32_t layer, n;
    enum weft_lora_role roles[2];
};

/* t of all places. `x` has rows of f32, x_bytes apart: of places, or (by_row) of the layer's rows. Ends
 * a phase. */
void wefti_forward_lora_experts_down(const struct wefti_forward_thread *thread,
                                     const struct wefti_forward_lora_experts *experts,
                                     const uint8_t *x, size_t x_bytes, bool by_row);

/* y += B t of a piece of one expert's product. */
void wefti_forward_lora_experts_up(const struct wefti_forward_thread *thread,
                                   const struct wefti_forward_lora_experts *experts,
                                   uint32_t expert, uint32_t member,
                                   const struct wefti_forward_target *target);

#endif
