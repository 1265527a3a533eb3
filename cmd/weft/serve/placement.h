/* placement — how many workers there are, and which CPUs each gets, and so its NUMA node. */
#ifndef WEFT_CMD_PLACEMENT_H
#define WEFT_CMD_PLACEMENT_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/err.h"
#include "base/limits.h"

struct weft_place {
    uint32_t node, core, cpu; /* the node by its index (base/numa.h) */
};

struct weft_placement {
    uint32_t n_cpus;
    struct weft_place places[WEFT_CPUS_MAX]; /* of all CPUs, ascending by node, core and CPU */
};

/* The machine as this process may use it: nodes without an allowed CPU are not there. */
void weft_placement_read(struct weft_placement *placement_out);

/* Different nodes among them. */
uint32_t weft_placement_n_nodes(const struct weft_placement *placement);

/* The CPUs of one of `n_workers`, [*begin_out, *end_out) of placement->places: an equal part of its
 * node's if every node has as many workers, else of all. Never none: workers share CPUs if there
 * are more workers than CPUs. */
void weft_placement_part(const struct weft_placement *placement, uint32_t n_workers,
                         uint32_t worker_idx, uint32_t *begin_out, uint32_t *end_out);

/* What the settings ask for. */
struct weft_placement_wish {
    uint32_t n_workers;  /* 0: as many as there are nodes, or lists */
    uint32_t n_in_group; /* the number is a multiple of it, where it is not given */
    uint32_t n_threads;  /* of each; 0: as many as it has CPUs */
    uint32_t n_quota;    /* CPUs' worth of time that cgroups grant; 0: no limit */
    const char *cpus;    /* "0-3/4-7": a list for each worker; NULL: parts as above */
};

struct weft_worker_place {
    uint32_t node; /* of the first of its CPUs */
    bool is_bound; /* to these CPUs; else it may run on all */
    cpu_set_t cpus;
};

struct weft_placement_choice {
    uint32_t n_workers;
    uint32_t n_nodes;   /* different ones among the workers' */
    uint32_t n_cpus;    /* that they have together, or are granted time for */
    uint32_t n_threads; /* that they start together, at least */
    bool is_crowded;    /* more threads than CPUs were asked for */
    struct weft_worker_place workers[WEFT_WORKERS_MAX];
};

/* One worker alone has all CPUs, unless there is a list of them. Several have a part each, unless
 * the threads asked for are more than that. More workers than the quota has CPUs are chosen only if
 * asked for. INVAL: the lists are none, not as many as the workers, or name a CPU that is not
 * there. */
WEFT_MUST_CHECK weft_err weft_placement_choose(const struct weft_placement *placement,
                                               const struct weft_placement_wish *wish,
                                               struct weft_placement_choice *choice_out,
                                               struct weft_errmsg *why);

#endif
