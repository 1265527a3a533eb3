#include "group.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/minmax.h"

/* Figures after those that a heartbeat has; the last one of all is the engine's. */
#define ONE(name) +1
enum { PROGRESS = 0 WEFT_RANK_FIGURES(ONE), PID, N_FIGURES };
_Static_assert((int)N_FIGURES < (int)WEFT_COLL_FIGURES, "each has its place");

/* mpirun says who is which rank, and its job ends with any of them. */
static weft_err open_mpi(struct wefti_group *group, const struct weft_config *config,
                         struct weft_errmsg *why) {
    if (config->n_ranks || config->rank || config->group_fd >= 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "with --mpi ranks are mpirun's: no --tp, --rank and --group-fd");
    weft_err err = weft_coll_open_mpi(0, &group->coll, &group->rank, why);
    if (err) return err;
    group->n_ranks = weft_coll_n_ranks(group->coll);
    if (group->n_ranks > 1) return WEFT_OK; /* their engines reserve what they share */
    return weft_coll_reserve(group->coll, WEFT_COLL_PART_BYTES_MIN, 0, why);
}

weft_err wefti_group_open(struct wefti_group *group, const struct weft_config *config,
                          struct weft_errmsg *why) {
    *group = (struct wefti_group){.n_ranks = config->n_ranks > 1 ? config->n_ranks : 1};
    if (config->mpi) return open_mpi(group, config, why);
    if (group->n_ranks == 1) return WEFT_OK;
    group->rank = config->rank;
    if (group->rank >= group->n_ranks)
        return weft_err_set(why, WEFT_E_INVAL, "--rank %u is none of --tp %u", group->rank,
                            group->n_ranks);
    if (config->group_fd < 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--tp %u without --group-fd: who starts the workers "
                            "of a group gives them memory to meet in",
                            group->n_ranks);
    /* Whoever watches over the group ends it if a rank stands still; that may take long, and may be
     * right: a machine that was suspended goes on. */
    weft_err err = weft_coll_open(config->group_fd, 0, &group->coll, why);
    if (err) return err;
    if (weft_coll_n_ranks(group->coll) != group->n_ranks)
        return weft_err_set(why, WEFT_E_INVAL, "--tp %u, but the memory is that of %u",
                            group->n_ranks, weft_coll_n_ranks(group->coll));
    weft_coll_tell(group->coll, group->rank, PID, (uint64_t)getpid());
    return WEFT_OK;
}

void wefti_group_close(struct wefti_group *group) {
    weft_coll_close(group->coll);
    group->coll = NULL;
}

/* ---------------------------------------------------------------------------------- agreeing --- */

/* What ranks tell each other of themselves. */
struct facts {
    char fingerprint[32];
    uint32_t block_size, window, max_seqs, max_batched_tokens;
    uint32_t max_model_len, n_blocks, n_window_blocks, n_spill_blocks, n_checkpoints;
};
_Static_assert(sizeof((struct facts){0}.fingerprint) ==
                   sizeof((struct weft_eng_info){0}.fingerprint),
               "a fingerprint is told whole");
_Static_assert(sizeof(struct facts) <= WEFT_COLL_PART_BYTES_MIN, "any group has room for it");

static void collect(const struct weft_eng_info *info, uint32_t n_spill_blocks, struct facts *out) {
    memset(out, 0, sizeof *out);
    (void)snprintf(out->fingerprint, sizeof out->fingerprint, "%s", info->fingerprint);
    out->block_size = info->block_size;
    out->window = info->window;
    out->max_seqs = info->max_seqs;
    out->max_batched_tokens = info->max_batched_tokens;
    out->max_model_len = info->max_model_len;
    out->n_blocks = info->n_blocks;
    out->n_window_blocks = info->n_window_blocks;
    out->n_spill_blocks = n_spill_blocks;
    out->n_checkpoints = info->n_checkpoints;
}

static bool fit_together(const struct facts *a, const struct facts *b) {
    return strncmp(a->fingerprint, b->fingerprint, sizeof a->fingerprint) == 0 &&
           a->block_size == b->block_size && a->window == b->window && a->max_seqs == b->max_seqs &&
           a->max_batched_tokens == b->max_batched_tokens;
}

weft_err wefti_group_agree(const struct wefti_group *group, struct weft_eng_info *info,
                           uint32_t *n_spill_blocks, struct weft_errmsg *why) {
    struct facts own, all[WEFT_COLL_RANKS_MAX];
    collect(info, *n_spill_blocks, &own);
    weft_err err = weft_coll_all_gather(group->coll, group->rank, &own, sizeof own, all, why);
    if (err) return err;
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        if (!fit_together(&own, &all[i]))
            return weft_err_set(why, WEFT_E_STATE,
                                "rank %u serves another model than rank %u, or with other settings",
                                i, group->rank);
        info->max_model_len = weft_min_u32(info->max_model_len, all[i].max_model_len);
        info->n_blocks = weft_min_u32(info->n_blocks, all[i].n_blocks);
        info->n_window_blocks = weft_min_u32(info->n_window_blocks, all[i].n_window_blocks);
        info->n_checkpoints = weft_min_u32(info->n_checkpoints, all[i].n_checkpoints);
        *n_spill_blocks = weft_min_u32(*n_spill_blocks, all[i].n_spill_blocks);
    }
    return WEFT_OK;
}

/* ----------------------------------------------------------------------------------- figures --- */

uint64_t wefti_group_progress(const struct wefti_group *group, uint64_t own) {
    uint64_t sum = 0;
    if (!group->coll) return own;
    weft_coll_tell(group->coll, group->rank, PROGRESS, own);
    for (uint32_t i = 0; i < group->n_ranks; i++)
        sum += weft_coll_told(group->coll, i, PROGRESS);
    return sum;
}

void wefti_group_awaited(const struct wefti_group *group, uint32_t *rank_out, uint32_t *pid_out) {
    uint32_t rank = group->coll ? weft_coll_awaited(group->coll, 0) : 0;
    uint64_t pid = rank > 0 ? weft_coll_told(group->coll, rank, PID) : 0;
    *rank_out = rank;
    *pid_out = pid <= UINT32_MAX ? (uint32_t)pid : 0;
}

void wefti_group_tell(const struct wefti_group *group, const struct weft_rank_figures *own,
                      struct weft_rank_figures *all) {
    uint32_t which = 0;
    if (!group->coll) {
        all[0] = *own;
        return;
    }
#define TELL(name) weft_coll_tell(group->coll, group->rank, which++, own->name);
    WEFT_RANK_FIGURES(TELL)
#undef TELL
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        which = 0;
#define TAKE(name) all[i].name = weft_coll_told(group->coll, i, which++);
        WEFT_RANK_FIGURES(TAKE)
#undef TAKE
    }
}
