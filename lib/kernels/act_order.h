/* kernels/act_order — 4 and 8 bits with groups of columns in any order, as GPTQ's act-order yields, and 8 bits with
 * zeros. Each column names its group; a group of a feature has an f16 scale and a zero in a byte, and there is
 * one for 32 columns at most. For K columns, G = K/32:
 *
 *   a row     [G] f16 scales, [G] zeros, [K] u16 groups, [K / per_byte] codes, even columns in low halves
 *   a panel   codes [K / per_byte][16], groups [K] u16 (of its first feature: all have the same),
 *             then G x { [16] f16 scales, [16] zeros }
 *
 * Columns cut out of a panel name its groups still, and keep all of its table.
 *
 * The table of a panel is small beside L1 (48 bytes for 32 columns or more), so a column may ask
 * for any entry. The weight is scale * (code - zero), exact in f32. Groups past the table, which
 * only a damaged packed file has, are its last. */
#ifndef WEFT_KERNELS_ACT_ORDER_H
#define WEFT_KERNELS_ACT_ORDER_H

#include "convert.h"
#include "kern_internal.h"

struct act_order {
    uint32_t per_byte; /* codes */
};

enum {
    ORDER_GROUP = 32,                                      /* columns at least, of a group */
    ORDER_ENTRY = 3 * WEFT_PANEL,                          /* bytes of the table */
    ORDER_GROUP_BYTES_Q4_G = ORDER_GROUP / 2 * WEFT_PANEL, /* of codes, of so many columns */
    ORDER_GROUP_BYTES_Q8_G = ORDER_GROUP * WEFT_PANEL,
};

static const struct act_order q4_g_layout = {2}, q8_g_layout = {1};

static inline bool is_act_order(enum weft_dtype dtype) {
    return dtype == WEFT_DT_Q4_G || dtype == WEFT_DT_Q8_G;
}

static inline const struct act_order *act_order_of(enum weft_dtype dtype) {
    WEFT_ASSERT(is_act_order(dtype));
    return dtype == WEFT_DT_Q4_G ? &q4_g_layout : &q8_g_layout;
}

static inline size_t order_groups(uint32_t k) {
    WEFT_ASSERT(k % ORDER_GROUP == 0);
    return k / ORDER_GROUP;
}

static inline size_t order_row_bytes(const struct act_order *o, uint32_t k) {
    return order_groups(k) * 3 + (size_t)k * 2 + k / o->per_byte;
}

/* Of k columns, which may be a part of k_whole. */
static inline size_t order_panel_bytes(const struct act_order *o, uint32_t k, uint32_t k_whole) {
    return (size_t)k / o->per_byte * WEFT_PANEL + (size_t)k * 2 +
           order_groups(k_whole) * ORDER_ENTRY;
}

/* The number of column `k`'s group, from `groups`. */
static inline uint32_t order_group(const uint8_t *groups, uint32_t k_whole, uint32_t k) {
    uint16_t group;
    memcpy(&group, groups + (size_t)k * sizeof group, sizeof group);
    return weft_min_u32(group, k_whole / ORDER_GROUP - 1);
}

/* Where the things of a panel are. */
struct order_panel {
    const uint8_t *codes, *groups, *table;
    uint32_t k_whole;
};

static inline struct order_panel order_panel_of(const struct act_order *o, const uint8_t *panel,
                                                uint32_t k, uint32_t k_whole) {
    const uint8_t *groups = panel + (size_t)k / o->per_byte * WEFT_PANEL;
    return (struct order_panel){panel, groups, groups + (size_t)k * 2, k_whole};
}

/* The entry of the table for column k. */
static inline const uint8_t *order_entry(const struct order_panel *panel, uint32_t k) {
    return panel->table + (size_t)order_group(panel->groups, panel->k_whole, k) * ORDER_ENTRY;
}

static inline uint32_t order_code(const struct act_order *o, uint8_t byte, uint32_t k) {
    if (o->per_byte == 1) return byte;
    return k % 2 ? (uint32_t)byte >> 4 : byte & 15u;
}

static inline float order_value(uint16_t scale, uint8_t zero, uint32_t code) {
    return f16_to_f32(scale) * (float)((int32_t)code - (int32_t)zero);
}

/* Weight of column k, feature i of a panel. */
static inline float order_weight(const struct act_order *o, const struct order_panel *panel,
                                 uint32_t k, uint32_t i) {
    const uint8_t *entry = order_entry(panel, k);
    uint16_t scale;
    memcpy(&scale, entry + (size_t)i * sizeof scale, sizeof scale);
    uint8_t byte = panel->codes[(size_t)k / o->per_byte * WEFT_PANEL + i];
    return order_value(scale, entry[WEFT_PANEL * sizeof scale + i], order_code(o, byte, k));
}

/* The same of a row. */
static inline float order_row_weight(const struct act_order *o, const uint8_t *row, uint32_t k_all,
                                     uint32_t k) {
    const size_t n_groups = order_groups(k_all);
    const uint8_t *zeros = row + n_groups * 2, *groups = zeros + n_groups;
    const uint32_t group = order_group(groups, k_all, k);
    uint16_t scale;
    memcpy(&scale, row + (size_t)group * sizeof scale, sizeof scale);
    uint8_t byte = groups[(size_t)k_all * 2 + k / o->per_byte];
    return order_value(scale, zeros[group], order_code(o, byte, k));
}

#endif
