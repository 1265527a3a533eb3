/* engine/runtime/memory — mappings, and how they are shared out.
 *
 * Memory   comes from the kernel in one piece per owner and is laid out in pieces that start on
 *          cache lines. The same function lays it out twice: with `base` NULL it only adds up
 *          sizes, then, with the mapping in place, it assigns pointers. So the two cannot
 *          disagree. */
#ifndef WEFT_ENGINE_MEMORY_H
#define WEFT_ENGINE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/minmax.h"

/* Zeroed pages from the kernel, not from the heap; resident only where touched. NULL: none left. */
void *wefti_memory_map(size_t bytes);
/* The same, taken from the nodes `home` (of weft_numa_home; 0: from any) while they have room. Where
 * the system refuses that, it is told once in the log, and pages are where they are first used. */
void *wefti_memory_map_near(size_t bytes, uint64_t home);
void wefti_memory_prefer(void *base, size_t bytes, uint64_t home); /* for other mappings */
void wefti_memory_unmap(void *base, size_t bytes);                 /* accepts NULL */

struct wefti_memory_layout {
    uint8_t *base; /* NULL: sizes are added up, nothing is assigned */
    size_t used;
};
/* The next piece, 64-byte aligned; NULL while there is no base. */
void *wefti_memory_reserve(struct wefti_memory_layout *layout, size_t count, size_t elem_bytes);

/* Elements between rows of f32: every row starts on a cache line. */
static inline size_t wefti_memory_stride(size_t n) {
    return weft_round_up(n, 16);
}

#endif
