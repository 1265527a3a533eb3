/* base/ring — hands fixed-size items from one thread to one other thread.
 *
 * Model    A circle of 2^k slots. The producer writes `tail` with release after filling a slot, the
 *          consumer reads it with acquire; `head` goes the other way. Each index has a cache line
 *          of its own, and each side keeps a private copy of the other's index, so the common case
 *          touches no shared line.
 * Threads  One producer, one consumer. Neither blocks; pair it with an eventfd or futex to wait.
 * Memory   One allocation at init.
 */
#ifndef WEFT_BASE_RING_H
#define WEFT_BASE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct weft_ring {
    _Alignas(64) _Atomic uint32_t tail; /* written by the producer */
    uint32_t head_seen;                 /* producer's copy of head */
    _Alignas(64) _Atomic uint32_t head; /* written by the consumer */
    uint32_t tail_seen;                 /* consumer's copy of tail */
    _Alignas(64) uint32_t mask;
    uint32_t item_bytes;
    unsigned char *slots;
};

/* `n_slots` is rounded up to a power of two, at most 2^20. WEFT_E_NOMEM. */
WEFT_MUST_CHECK weft_err weft_ring_init(struct weft_ring *ring, uint32_t n_slots,
                                        uint32_t item_bytes);
void weft_ring_fini(struct weft_ring *ring);

bool weft_ring_push(struct weft_ring *ring, const void *item); /* false: full */
bool weft_ring_pop(struct weft_ring *ring, void *item_out);    /* false: empty */

#endif
