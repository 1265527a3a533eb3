/* Mappings are anonymous and reserve nothing: pages come when they are touched. */
#include "runtime/memory.h"

#include <sys/mman.h>

#include "base/check.h"

void *wefti_memory_map(size_t bytes) {
    WEFT_ASSERT(bytes > 0);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

void wefti_memory_unmap(void *base, size_t bytes) {
    if (base) (void)munmap(base, bytes);
}

void *wefti_memory_reserve(struct wefti_memory_layout *layout, size_t count, size_t elem_bytes) {
    void *piece = layout->base ? layout->base + layout->used : NULL;
    layout->used += weft_round_up(count * elem_bytes, 64);
    return piece;
}
