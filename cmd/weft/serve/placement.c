#include "placement.h"

#include <numa.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

static uint32_t node_of(uint32_t cpu) {
    int node = numa_available() < 0 ? 0 : numa_node_of_cpu((int)cpu);
    return node < 0 ? 0 : (uint32_t)node;
}

/* Hardware threads of one core have one number, unique within the machine: that of the first of
 * them. If the system does not tell, each CPU is a core. */
static uint32_t core_of(uint32_t cpu) {
    char path[96];
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                   cpu);
    FILE *file = fopen(path, "re");
    if (!file) return cpu;
    unsigned first;
    bool ok = fscanf(file, "%u", &first) == 1;
    (void)fclose(file);
    return ok ? first : cpu;
}

static int compare(const void *a, const void *b) {
    const struct weft_place *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

void weft_placement_read(struct weft_placement *p) {
    uint32_t cpus[WEFT_CPUS_MAX];
    p->n_cpus = weft_cpu_allowed(cpus);
    for (uint32_t i = 0; i < p->n_cpus; i++)
        p->places[i] = (struct weft_place){node_of(cpus[i]), core_of(cpus[i]), cpus[i]};
    qsort(p->places, p->n_cpus, sizeof p->places[0], compare);
}

/* Where a node's CPUs end. */
static uint32_t node_end(const struct weft_placement *p, uint32_t begin) {
    uint32_t end = begin;
    while (end < p->n_cpus && p->places[end].node == p->places[begin].node)
        end++;
    return end;
}

uint32_t weft_placement_n_nodes(const struct weft_placement *p) {
    uint32_t n = 0;
    for (uint32_t begin = 0; begin < p->n_cpus; begin = node_end(p, begin))
        n++;
    return n;
}

void weft_placement_part(const struct weft_placement *p, uint32_t n_workers, uint32_t worker_idx,
                         uint32_t *begin_out, uint32_t *end_out) {
    WEFT_ASSERT(worker_idx < n_workers && p->n_cpus > 0);
    uint32_t n_nodes = weft_placement_n_nodes(p), begin = 0, end = p->n_cpus;
    if (n_workers % n_nodes == 0) {
        uint32_t per_node = n_workers / n_nodes;
        for (uint32_t i = worker_idx / per_node; i > 0; i--)
            begin = node_end(p, begin);
        end = node_end(p, begin);
        n_workers = per_node;
        worker_idx %= per_node;
    }
    uint32_t n = end - begin;
    *begin_out = begin + (uint32_t)((uint64_t)worker_idx * n / n_workers);
    *end_out = begin + (uint32_t)((uint64_t)(worker_idx + 1) * n / n_workers);
    if (*end_out == *begin_out) *end_out = *begin_out + 1;
}
