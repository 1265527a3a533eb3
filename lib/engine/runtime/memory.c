/* Mappings are anonymous and reserve nothing: pages come when they are touched. */
#include "runtime/memory.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/log.h"
#include "base/numa.h"

void *wefti_memory_map(size_t bytes) {
    WEFT_ASSERT(bytes > 0);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

void *wefti_memory_map_near(size_t bytes, uint64_t home) {
    void *base = wefti_memory_map(bytes);
    if (base) wefti_memory_prefer(base, bytes, home);
    return base;
}

void wefti_memory_prefer(void *base, size_t bytes, uint64_t home) {
    static atomic_flag has_told = ATOMIC_FLAG_INIT;
    int error = home ? weft_numa_prefer(home, base, bytes) : 0;
    if (error && !atomic_flag_test_and_set(&has_told))
        weft_warn("memory lies on the NUMA node that first uses it, as the system does not let a "
                  "node be chosen: %s",
                  strerror(error));
}

void wefti_memory_unmap(void *base, size_t bytes) {
    if (base) (void)munmap(base, bytes);
}

void *wefti_memory_reserve(struct wefti_memory_layout *layout, size_t count, size_t elem_bytes) {
    void *piece = layout->base ? layout->base + layout->used : NULL;
    layout->used += weft_round_up(count * elem_bytes, 64);
    return piece;
}
