#include "base/ring.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

weft_err weft_ring_init(struct weft_ring *ring, uint32_t n_slots, uint32_t item_bytes) {
    WEFT_ASSERT(n_slots >= 1 && n_slots <= 1u << 20);
    WEFT_ASSERT(item_bytes >= 1);
    uint32_t n = 1;
    while (n < n_slots)
        n *= 2;
    memset(ring, 0, sizeof *ring);
    ring->slots = calloc(n, item_bytes);
    if (!ring->slots) return WEFT_E_NOMEM;
    ring->mask = n - 1;
    ring->item_bytes = item_bytes;
    return WEFT_OK;
}

void weft_ring_fini(struct weft_ring *ring) {
    free(ring->slots);
    ring->slots = NULL;
}

bool weft_ring_push(struct weft_ring *ring, const void *item) {
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - ring->head_seen > ring->mask) {
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail - ring->head_seen > ring->mask) return false;
    }
    memcpy(ring->slots + (size_t)(tail & ring->mask) * ring->item_bytes, item, ring->item_bytes);
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

bool weft_ring_pop(struct weft_ring *ring, void *item_out) {
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head == ring->tail_seen) {
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head == ring->tail_seen) return false;
    }
    memcpy(item_out, ring->slots + (size_t)(head & ring->mask) * ring->item_bytes,
           ring->item_bytes);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return true;
}
