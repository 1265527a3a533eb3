/* kernels/act_order — 4 bits with groups of columns in any order, as GPTQ's act-order yields. Each
 * column names its group; a group of a feature has an f16 scale and a zero in a byte, and there is
 * one for 32 columns at most. For K columns, G = K/32:
 *
 *   a row     [G] f16 scales, [G] zeros, [K] u16 groups, [K/2] codes, even columns in low halves
 *   a panel   codes [K/2][16], groups [K] u16 (of its first feature: all have the same),
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

enum {
    Q4_G_GROUP = 32,                          /* columns at least, of a group */
    Q4_G_ENTRY = 3 * WEFT_PANEL,              /* bytes of the table */
    Q4_G_BYTES = Q4_G_GROUP / 2 * WEFT_PANEL, /* of codes, of so many columns */
};

static inline size_t q4_g_groups(uint32_t k) {
    WEFT_ASSERT(k % Q4_G_GROUP == 0);
    return k / Q4_G_GROUP;
}

static inline size_t q4_g_row_bytes(uint32_t k) {
    return q4_g_groups(k) * 3 + (size_t)k * 2 + k / 2;
}

/* Of k columns, which may be a part of k_whole. */
static inline size_t q4_g_panel_bytes(uint32_t k, uint32_t k_whole) {
    return (size_t)k / 2 * WEFT_PANEL + (size_t)k * 2 + q4_g_groups(k_whole) * Q4_G_ENTRY;
}

/* The number of column `k`'s group, from `groups`. */
static inline uint32_t q4_g_group(const uint8_t *groups, uint32_t k_whole, uint32_t k) {
    uint16_t group;
    memcpy(&group, groups + (size_t)k * sizeof group, sizeof group);
    return weft_min_u32(group, k_whole / Q4_G_GROUP - 1);
}

/* Where the things of a panel are. */
struct q4_g_panel {
    const uint8_t *codes, *groups, *table;
    uint32_t k_whole;
};

static inline struct q4_g_panel q4_g_panel_of(const uint8_t *panel, uint32_t k, uint32_t k_whole) {
    const uint8_t *groups = panel + (size_t)k / 2 * WEFT_PANEL;
    return (struct q4_g_panel){panel, groups, groups + (size_t)k * 2, k_whole};
}

/* The entry of the table for column k. */
static inline const uint8_t *q4_g_entry(const struct q4_g_panel *panel, uint32_t k) {
    return panel->table + (size_t)q4_g_group(panel->groups, panel->k_whole, k) * Q4_G_ENTRY;
}

static inline uint32_t q4_g_code(uint8_t byte, uint32_t k) {
    return k % 2 ? (uint32_t)byte >> 4 : byte & 15u;
}

static inline float q4_g_value(uint16_t scale, uint8_t zero, uint32_t code) {
    return f16_to_f32(scale) * (float)((int32_t)code - (int32_t)zero);
}

/* Weight of column k, feature i of a panel. */
static inline float q4_g_weight(const struct q4_g_panel *panel, uint32_t k, uint32_t i) {
    const uint8_t *entry = q4_g_entry(panel, k);
    uint16_t scale;
    memcpy(&scale, entry + (size_t)i * sizeof scale, sizeof scale);
    uint8_t byte = panel->codes[(size_t)k / 2 * WEFT_PANEL + i];
    return q4_g_value(scale, entry[WEFT_PANEL * sizeof scale + i], q4_g_code(byte, k));
}

/* The same of a row. */
static inline float q4_g_row_weight(const uint8_t *row, uint32_t k_all, uint32_t k) {
    const size_t n_groups = q4_g_groups(k_all);
    const uint8_t *zeros = row + n_groups * 2, *groups = zeros + n_groups;
    const uint32_t group = q4_g_group(groups, k_all, k);
    uint16_t scale;
    memcpy(&scale, row + (size_t)group * sizeof scale, sizeof scale);
    uint8_t byte = groups[(size_t)k_all * 2 + k / 2];
    return q4_g_value(scale, zeros[group], q4_g_code(byte, k));
}

#endif
