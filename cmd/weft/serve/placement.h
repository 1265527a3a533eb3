/* placement — which CPUs each of several workers gets, and so its NUMA node. */
#ifndef WEFT_CMD_PLACEMENT_H
#define WEFT_CMD_PLACEMENT_H

#include <stdint.h>

#include "base/cpu.h"

struct weft_place {
    uint32_t node, core, cpu;
};

struct weft_placement {
    uint32_t n_cpus;
    struct weft_place places[WEFT_CPUS_MAX]; /* of all CPUs, ascending by node, core and CPU */
};

/* The machine as this process may use it. */
void weft_placement_read(struct weft_placement *placement_out);

/* Different nodes among them. */
uint32_t weft_placement_n_nodes(const struct weft_placement *placement);

/* The CPUs of one of `n_workers`, [*begin_out, *end_out) of placement->places: an equal part of its
 * node's if every node has as many workers, else of all. Never none: workers share CPUs if there
 * are more workers than CPUs. */
void weft_placement_part(const struct weft_placement *placement, uint32_t n_workers,
                         uint32_t worker_idx, uint32_t *begin_out, uint32_t *end_out);

#endif
