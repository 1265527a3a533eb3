/* remote — how many resident pages of weights, KV cache and scratch lie on other NUMA nodes than the
 * worker's.
 *
 * Control asks the kernel where pages lie, in slices of a tenth of a millisecond or so, between
 * which it does what it always does; the step thread is not involved. A pass looks at all pages, or
 * where there are many at every n-th, and stands for the rest. There is one when the engine is open,
 * one after the first step, which has read all weights, and then one a minute. */
#ifndef WEFT_WORKER_REMOTE_H
#define WEFT_WORKER_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

#define WEFTI_REMOTE_PAUSE_MS 60000u /* between the begins of passes */
#define WEFTI_REMOTE_SLICE_MS 20u    /* between slices */
enum {
    WEFTI_REMOTE_PAGES_MAX = 1 << 14, /* of a pass */
    WEFTI_REMOTE_SLICE = 512,         /* of them at a time */
};

/* weft_numa_locate, or what a test has in its place. */
typedef int wefti_remote_locate_fn(void **pages, size_t n_pages, int *nodes_out);

struct wefti_remote {
    uint64_t home; /* 0: nothing is counted, since no page can be far away */
    wefti_remote_locate_fn *locate;
    struct weft_eng_region regions[WEFT_ENG_REGIONS];
    uint32_t n_regions;
    size_t page_bytes;
    uint64_t n_pages, stride;
    uint64_t n_passes; /* begun */
    bool is_counting, has_stepped;
    uint64_t next_page, n_seen; /* of this pass: those on other nodes */
    uint64_t pass_at_ms, slice_at_ms;
    uint64_t n_remote; /* by the last pass; WEFT_PAGES_UNKNOWN (proto/proto.h): there is none */
};

/* The regions of an open engine, and its home. */
void wefti_remote_init(struct wefti_remote *remote, uint64_t home,
                       const struct weft_eng_region *regions, uint32_t n_regions,
                       wefti_remote_locate_fn *locate);

/* Counts a slice, if it is time. `n_steps` have run in all. */
void wefti_remote_tick(struct wefti_remote *remote, uint64_t n_steps, uint64_t now_ms);

/* How long the caller may wait until the next tick, at most `wait_ms`. */
uint64_t wefti_remote_wait_ms(const struct wefti_remote *remote, uint64_t wait_ms);

#endif
