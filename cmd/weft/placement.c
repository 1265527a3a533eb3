#include "cmd/weft/placement.h"

#include "base/check.h"

/* Stable, and of at most a thousand. */
static void sort_by_node(struct weft_placement *p) {
    for (uint32_t i = 1; i < p->n_cpus; i++) {
        uint32_t cpu = p->cpus[i], node = p->nodes[i], at = i;
        for (; at > 0 && p->nodes[at - 1] > node; at--) {
            p->cpus[at] = p->cpus[at - 1];
            p->nodes[at] = p->nodes[at - 1];
        }
        p->cpus[at] = cpu;
        p->nodes[at] = node;
    }
}

void weft_placement_read(struct weft_placement *p) {
    p->n_cpus = weft_cpu_allowed(p->cpus);
    for (uint32_t i = 0; i < p->n_cpus; i++)
        p->nodes[i] = weft_cpu_node(p->cpus[i]);
    sort_by_node(p);
}

uint32_t weft_placement_n_nodes(const struct weft_placement *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_cpus; i++)
        n += i == 0 || p->nodes[i] != p->nodes[i - 1];
    return n;
}

void weft_placement_part(const struct weft_placement *p, uint32_t n_workers, uint32_t worker_idx,
                         uint32_t *begin_out, uint32_t *end_out) {
    WEFT_ASSERT(worker_idx < n_workers && p->n_cpus > 0);
    *begin_out = (uint32_t)((uint64_t)worker_idx * p->n_cpus / n_workers);
    *end_out = (uint32_t)((uint64_t)(worker_idx + 1) * p->n_cpus / n_workers);
    if (*end_out == *begin_out) *end_out = *begin_out + 1;
}
