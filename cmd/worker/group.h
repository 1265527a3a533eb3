/* group — the workers that divide one model (ranks), as each of them sees it.
 *
 * Rank 0 alone is linked with the scheduler. What it is told to compute it gives to the others, and
 * all compute it together (engine.h); it alone reports. So to a scheduler a group is a worker, and
 * no two ranks can ever differ in what they were told. The group ends with any of its ranks, for
 * good: then each of them ends, too, and whoever started them starts all anew.
 *
 * Threads  The step thread joins, agrees, gives and takes; control may tell figures, ask for those
 *          of others, and abort, once the group is open.
 */
#ifndef WEFT_WORKER_GROUP_H
#define WEFT_WORKER_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "collective/collective.h"
#include "common/config.h"
#include "engine/engine.h"
#include "proto/proto.h"

_Static_assert((int)WEFT_RANKS_MAX == (int)WEFT_COLL_RANKS_MAX, "a heartbeat has room for all");

struct wefti_group {
    weft_coll *coll; /* NULL: there is none, the worker has all of the model */
    uint32_t rank, n_ranks;
};

/* As --rank, --tp and --group-fd say, or --mpi: then by the thread that closes it. INVAL: they
 * contradict each other; IO, NOMEM, PROTO; UNSUPPORTED: a build without MPI. */
WEFT_MUST_CHECK weft_err wefti_group_open(struct wefti_group *group,
                                          const struct weft_config *config,
                                          struct weft_errmsg *why);
void wefti_group_close(struct wefti_group *group);

static inline bool wefti_group_leads(const struct wefti_group *group) {
    return group->rank == 0;
}

/* Compares models and options with those of the others, and lowers `info`, which is the own
 * engine's, to what all have room for. STATE: they differ. CLOSED, TIMEOUT: the group is over. */
WEFT_MUST_CHECK weft_err wefti_group_agree(const struct wefti_group *group,
                                           struct weft_eng_info *info, uint32_t *n_spill_blocks,
                                           struct weft_errmsg *why);

/* How far all ranks have come together, by what each told last; tells of the own progress. */
uint64_t wefti_group_progress(const struct wefti_group *group, uint64_t own);

/* The rank for which the others wait and its process; 0 and 0 if it is the first one. */
void wefti_group_awaited(const struct wefti_group *group, uint32_t *rank_out, uint32_t *pid_out);

/* Tells the others of the own figures, and fills in everybody's as last told, [n_ranks]. */
void wefti_group_tell(const struct wefti_group *group, const struct weft_rank_figures *own,
                      struct weft_rank_figures *all);

#endif
