#include "placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "base/numa.h"

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
    static struct weft_numa numa;
    uint32_t cpus[WEFT_CPUS_MAX];
    weft_numa_read("", &numa);
    p->n_cpus = weft_cpu_allowed(cpus);
    for (uint32_t i = 0; i < p->n_cpus; i++)
        p->places[i] =
            (struct weft_place){weft_numa_node_of(&numa, cpus[i]), core_of(cpus[i]), cpus[i]};
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

/* ---------------------------------------------------------------------------------- choice --- */

static uint32_t count_lists(const char *text) {
    uint32_t n = 1;
    for (; *text; text++)
        n += *text == '/';
    return n;
}

/* The node of a CPU; false: this process may not use it. */
static bool find_node(const struct weft_placement *p, uint32_t cpu, uint32_t *node_out) {
    for (uint32_t i = 0; i < p->n_cpus; i++) {
        if (p->places[i].cpu != cpu) continue;
        *node_out = p->places[i].node;
        return true;
    }
    return false;
}

static weft_err place_on_list(const struct weft_placement *p, const char *text, size_t len,
                              struct weft_worker_place *out, struct weft_errmsg *why) {
    if (weft_cpu_parse_list(text, len, &out->cpus))
        return weft_err_set(why, WEFT_E_INVAL,
                            "--cpus is lists of CPUs such as 0-3/4-7, one per worker; \"%.*s\" is "
                            "none",
                            (int)weft_min_u64(len, 64), text);
    out->is_bound = true;
    for (uint32_t cpu = WEFT_CPUS_MAX; cpu-- > 0;) {
        if (CPU_ISSET(cpu, &out->cpus) && !find_node(p, cpu, &out->node))
            return weft_err_set(why, WEFT_E_INVAL,
                                "--cpus names CPU %u, which this process may not use", cpu);
    }
    return WEFT_OK;
}

static weft_err place_on_lists(const struct weft_placement *p, const char *text,
                               struct weft_placement_choice *choice, struct weft_errmsg *why) {
    for (uint32_t i = 0; i < choice->n_workers; i++) {
        size_t len = strcspn(text, "/");
        weft_err err = place_on_list(p, text, len, &choice->workers[i], why);
        if (err) return err;
        text += len + 1;
    }
    return WEFT_OK;
}

static void place_on_parts(const struct weft_placement *p, uint32_t n_threads,
                           struct weft_placement_choice *choice) {
    for (uint32_t i = 0; i < choice->n_workers; i++) {
        struct weft_worker_place *worker = &choice->workers[i];
        uint32_t begin = 0, end = 0;
        weft_placement_part(p, choice->n_workers, i, &begin, &end);
        worker->node = p->places[begin].node;
        worker->is_bound = choice->n_workers > 1 && n_threads <= end - begin;
        if (!worker->is_bound) {
            begin = 0;
            end = p->n_cpus;
        }
        for (uint32_t c = begin; c < end; c++)
            CPU_SET(p->places[c].cpu, &worker->cpus);
    }
}

/* What a worker starts by itself, at least: no more than it has CPUs and time for. */
static uint32_t default_threads(const struct weft_placement_wish *wish, uint32_t n_workers,
                                uint32_t n_own) {
    uint32_t n = wish->cpus ? n_own : 1; /* parts have no CPU in common, as lists may */
    return wish->n_quota ? weft_min_u32(n, weft_max_u32(wish->n_quota / n_workers, 1)) : n;
}

static void count(const struct weft_placement_wish *wish, struct weft_placement_choice *choice) {
    bool is_on[WEFT_NUMA_NODES_MAX] = {false};
    cpu_set_t all;
    CPU_ZERO(&all);
    for (uint32_t i = 0; i < choice->n_workers; i++) {
        const struct weft_worker_place *worker = &choice->workers[i];
        uint32_t n_own = (uint32_t)CPU_COUNT(&worker->cpus);
        uint32_t n = wish->n_threads;
        if (n == 0) n = default_threads(wish, choice->n_workers, n_own);
        CPU_OR(&all, &all, &worker->cpus);
        choice->n_nodes += !is_on[worker->node];
        is_on[worker->node] = true;
        choice->is_crowded = choice->is_crowded || n > n_own;
        choice->n_threads += n;
    }
    choice->n_cpus = (uint32_t)CPU_COUNT(&all);
    if (wish->n_quota > 0) choice->n_cpus = weft_min_u32(choice->n_cpus, wish->n_quota);
    choice->is_crowded = choice->is_crowded || choice->n_threads > choice->n_cpus;
}

static uint32_t default_workers(const struct weft_placement_wish *wish, uint32_t n_nodes) {
    uint32_t n = wish->n_quota ? weft_min_u32(n_nodes, wish->n_quota) : n_nodes;
    uint32_t n_in_group = weft_max_u32(wish->n_in_group, 1);
    return weft_max_u32(n / n_in_group, 1) * n_in_group;
}

weft_err weft_placement_choose(const struct weft_placement *p,
                               const struct weft_placement_wish *wish,
                               struct weft_placement_choice *choice, struct weft_errmsg *why) {
    uint32_t n_nodes = weft_placement_n_nodes(p),
             n_lists = wish->cpus ? count_lists(wish->cpus) : 0;
    uint32_t n = wish->n_workers;
    *choice = (struct weft_placement_choice){0};
    if (n == 0) n = n_lists;
    if (n == 0) n = default_workers(wish, n_nodes);
    if (n_lists > WEFT_WORKERS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "--cpus has %u lists; there are at most %d workers",
                            n_lists, WEFT_WORKERS_MAX);
    if (n_lists > 0 && n_lists != n)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--cpus has %u list%s for %u worker%s: each has its own, as in 0-3/4-7",
                            n_lists, n_lists == 1 ? "" : "s", n, n == 1 ? "" : "s");
    choice->n_workers = weft_min_u32(n, WEFT_WORKERS_MAX);
    weft_err err = WEFT_OK;
    if (wish->cpus)
        err = place_on_lists(p, wish->cpus, choice, why);
    else
        place_on_parts(p, wish->n_threads, choice);
    if (!err) count(wish, choice);
    return err;
}
