/* kernels/ordered — 4 bits with groups of columns in any order: what GPTQ's act-order yields. Each
 * column names its group; a group of a feature has an f16 scale and a zero in a byte, and there is
 * one for 32 columns at most. For K columns, G = K/32:
 *
 *   a row     [G] f16 scales, [G] zeros, [K] u16 groups, [K/2] codes, even columns in low halves
 *   a panel   codes [K/2][16], groups [K] u16 (of its first feature: all have the same),
 *             then G x { [16] f16 scales, [16] zeros }
 *
 * The table of a panel is small beside L1 (48 bytes for 32 columns or more), so a column may ask
 * for any entry. The weight is scale * (code - zero), exact in f32. Groups past the table, which
 * only a damaged packed file has, are its last. */
#ifndef WEFT_KERNELS_ORDERED_H
#define WEFT_KERNELS_ORDERED_H

#include "convert.h"
#include "kern_internal.h"

enum {
    ORDERED_GROUP = 32,                             /* columns at least, of a group */
    ORDERED_ENTRY = 3 * WEFT_PANEL,                 /* bytes of the table */
    ORDERED_BYTES = ORDERED_GROUP / 2 * WEFT_PANEL, /* of codes, of so many columns */
};

static inline size_t ordered_groups(uint32_t k) {
    WEFT_ASSERT(k % ORDERED_GROUP == 0);
    return k / ORDERED_GROUP;
}

static inline size_t ordered_row_bytes(uint32_t k) {
    return ordered_groups(k) * 3 + (size_t)k * 2 + k / 2;
}

static inline size_t ordered_panel_bytes(uint32_t k) {
    return (size_t)k / 2 * WEFT_PANEL + (size_t)k * 2 + ordered_groups(k) * ORDERED_ENTRY;
}

/* The number of column `k`'s group, from `groups`. */
static inline uint32_t ordered_group(const uint8_t *groups, uint32_t k_all, uint32_t k) {
    uint16_t group;
    memcpy(&group, groups + (size_t)k * sizeof group, sizeof group);
    return min_u32(group, k_all / ORDERED_GROUP - 1);
}

static inline const uint8_t *ordered_panel_groups(const uint8_t *panel, uint32_t k_all) {
    return panel + (size_t)k_all / 2 * WEFT_PANEL;
}

/* The entry of the table for column k. */
static inline const uint8_t *ordered_entry(const uint8_t *panel, uint32_t k_all, uint32_t k) {
    const uint8_t *groups = ordered_panel_groups(panel, k_all);
    const uint8_t *table = groups + (size_t)k_all * 2;
    return table + (size_t)ordered_group(groups, k_all, k) * ORDERED_ENTRY;
}

static inline uint32_t ordered_code(uint8_t byte, uint32_t k) {
    return k % 2 ? (uint32_t)byte >> 4 : byte & 15u;
}

static inline float ordered_value(uint16_t scale, uint8_t zero, uint32_t code) {
    return f16_to_f32(scale) * (float)((int32_t)code - (int32_t)zero);
}

/* Weight of column k, feature i of a panel. */
static inline float ordered_weight(const uint8_t *panel, uint32_t k_all, uint32_t k, uint32_t i) {
    const uint8_t *entry = ordered_entry(panel, k_all, k);
    uint16_t scale;
    memcpy(&scale, entry + (size_t)i * sizeof scale, sizeof scale);
    uint8_t byte = panel[(size_t)k / 2 * WEFT_PANEL + i];
    return ordered_value(scale, entry[WEFT_PANEL * sizeof scale + i], ordered_code(byte, k));
}

/* The same of a row. */
static inline float ordered_row_weight(const uint8_t *row, uint32_t k_all, uint32_t k) {
    const size_t n_groups = ordered_groups(k_all);
    const uint8_t *zeros = row + n_groups * 2, *groups = zeros + n_groups;
    const uint32_t group = ordered_group(groups, k_all, k);
    uint16_t scale;
    memcpy(&scale, row + (size_t)group * sizeof scale, sizeof scale);
    uint8_t byte = groups[(size_t)k_all * 2 + k / 2];
    return ordered_value(scale, zeros[group], ordered_code(byte, k));
}

#endif
