/* Where the states of recurrent layers come from, and which are kept.
 *
 * Keys and values are not enough for layers that carry a state: whoever begins after some tokens needs
 * the state of just these. A slot has it between two plans only:
 *
 *     siblings   while some wait, a chunk ends before the prompt's last token; those that start in the
 *                next plan copy the state that is there then. A beam does so with the one that it
 *                continues
 *     others     load a checkpoint: a state that the worker kept when somebody's row ended at a block's
 *                border. It hangs on that node of the prefix cache
 *
 * A prefix that is found is as long as ever, and its blocks are shared; but what follows its last
 * checkpoint is computed again. It is not written again: others may be reading these blocks. So a start
 * says how many tokens have keys and values there (n_written), and the worker leaves those alone.
 *
 * A checkpoint costs a chunk that ends there, so one is taken only where it spares checkpoint_tokens
 * or more: at the last border within a prompt; every so often in long prompts and outputs; and where
 * the blocks that were found end, or those that a follower shares: others begin alike up to there.
 *
 * It is taken in the plan that has the row, and hangs on its node once that is published. Whoever
 * loads it is in a later plan, or in one that writes it anew: loads come before rows. A row may
 * turn out to compute less than planned (its sequence has ended, or waits for a mask). Its tokens
 * are not known then, and the checkpoint hangs nowhere. */
#include "scheduler_internal.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/minmax.h"

#define STRIDE_GAINS 8u /* so many times checkpoint_tokens from one to the next, */
#define STRIDE_PARTS 8u /* or so many parts of a long prompt */
#define MEM_ALIGN 64u

weft_err wefti_sched_states_init(weft_sched *sched) {
    const struct weft_sched_options *o = &sched->options;
    if (!o->is_recurrent || !o->prefix_cache) return WEFT_OK;
    size_t n_bytes = weft_kv_checkpoints_bytes(o->n_checkpoints, o->n_blocks);
    n_bytes = (n_bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
    sched->checkpoints_mem = aligned_alloc(MEM_ALIGN, n_bytes);
    if (!sched->checkpoints_mem) return WEFT_E_NOMEM;
    weft_err err = weft_kv_checkpoints_init(sched->checkpoints_mem, n_bytes, o->n_checkpoints,
                                            o->n_blocks, &sched->checkpoints);
    if (!err) weft_kv_prefix_pair_states(sched->cache, sched->checkpoints);
    return err;
}

void wefti_sched_states_fini(weft_sched *sched) {
    free(sched->checkpoints_mem);
}

/* ------------------------------------------------------------------------------- beginning --- */

uint32_t wefti_sched_states_within(const weft_sched *sched, uint32_t n_blocks) {
    if (!sched->checkpoints) return n_blocks;
    while (n_blocks > 0 &&
           weft_kv_checkpoints_of(sched->checkpoints, sched->found_blocks[n_blocks - 1]) ==
               WEFT_KV_NONE)
        n_blocks--;
    return n_blocks;
}

static void add(weft_sched *sched, enum weft_step_state_op op, const struct seq *seq,
                uint32_t other) {
    WEFT_ASSERT(sched->plan.n_states < 2 * sched->options.max_seqs);
    sched->states[sched->plan.n_states++] = (struct weft_step_state){op, seq->slot, other};
}

void wefti_sched_states_fork(weft_sched *sched, const struct seq *seq, const struct seq *source) {
    if (sched->options.is_recurrent) add(sched, WEFT_STATE_FORK, seq, source->slot);
}

void wefti_sched_states_begin(weft_sched *sched, struct seq *seq, const struct prefix *prefix) {
    uint32_t n_shared = prefix->n_blocks * sched->options.block_size;
    WEFT_ASSERT(seq->kept.n_tokens == 0);
    seq->state_from = prefix->n_cached;
    seq->wanted_at = 0;
    if (prefix->source) wefti_sched_states_fork(sched, seq, prefix->source);
    if (!sched->checkpoints || prefix->source) return;
    if (n_shared > prefix->n_cached) seq->wanted_at = n_shared;
    if (prefix->n_cached == 0) return;
    uint32_t last = prefix->n_cached / sched->options.block_size - 1;
    uint32_t id = weft_kv_checkpoints_of(sched->checkpoints, seq->table.blocks[last]);
    WEFT_ASSERT(id != WEFT_KV_NONE); /* prefix_find looked */
    add(sched, WEFT_STATE_LOAD, seq, id);
    weft_kv_checkpoints_use(sched->checkpoints, id);
    sched->n_checkpoint_hits++;
}

/* ---------------------------------------------------------------------------------- stops --- */

/* Tokens from one to the next in what has no end in sight. */
static uint32_t stride_of(const weft_sched *sched, const struct seq *seq) {
    uint32_t n = weft_max_u32(STRIDE_GAINS * sched->options.checkpoint_tokens,
                              seq->req->n_prompt / STRIDE_PARTS);
    return wefti_sched_blocks_for(sched, n) * sched->options.block_size;
}

static bool pays(const weft_sched *sched, const struct seq *seq, uint32_t at) {
    return at >= seq->state_from + sched->options.checkpoint_tokens;
}

/* The first number of tokens over `from` at which its state is wanted; UINT32_MAX: none. */
static uint32_t next_stop(const weft_sched *sched, const struct seq *seq, uint32_t from) {
    uint32_t size = sched->options.block_size, stride = stride_of(sched, seq), stop = UINT32_MAX;
    const uint32_t wanted[] = {seq->wanted_at, (seq->req->n_prompt - 1) / size * size,
                               (from / stride + 1) * stride};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (wanted[i] > from && pays(sched, seq, wanted[i])) stop = weft_min_u32(stop, wanted[i]);
    }
    return stop;
}

static bool may_keep(const weft_sched *sched, const struct seq *seq) {
    return sched->checkpoints && !seq->chain.is_closed;
}

uint32_t wefti_sched_states_chunk(const weft_sched *sched, const struct seq *seq,
                                  uint32_t n_tokens) {
    uint32_t stop = UINT32_MAX, fork = seq->req->n_prompt - 1;
    if (!sched->options.is_recurrent) return n_tokens;
    if (may_keep(sched, seq)) stop = next_stop(sched, seq, seq->n_planned);
    if (seq->req->n_waiting > 0 && seq->n_planned < fork) stop = weft_min_u32(stop, fork);
    WEFT_ASSERT(stop > seq->n_planned && stop - seq->n_planned >= seq->chunk);
    return weft_min_u32(n_tokens, stop - seq->n_planned - seq->chunk);
}

uint32_t wefti_sched_states_awaited(const weft_sched *sched, struct seq *leader,
                                    uint32_t n_shared) {
    if (!sched->checkpoints) return n_shared;
    if (!pays(sched, leader, n_shared)) return 0;
    bool has_one = leader->wanted_at > leader->n_planned && pays(sched, leader, leader->wanted_at);
    if (!has_one) leader->wanted_at = n_shared;
    return leader->wanted_at <= n_shared ? leader->wanted_at : 0;
}

/* --------------------------------------------------------------------------------- keeping --- */

void wefti_sched_states_keep(weft_sched *sched, struct seq *seq, uint32_t n_computed) {
    if (!may_keep(sched, seq) || n_computed == 0 || seq->kept.n_tokens > 0) return;
    if (next_stop(sched, seq, seq->n_planned - n_computed) != seq->n_planned) return;
    uint32_t id = weft_kv_checkpoints_take(sched->checkpoints);
    if (id == WEFT_KV_NONE) return;
    seq->kept = (struct kept){.id = id, .n_tokens = seq->n_planned};
    seq->state_from = seq->n_planned;
    add(sched, WEFT_STATE_KEEP, seq, id);
    sched->n_checkpoints_taken++;
}

void wefti_sched_states_drop(weft_sched *sched, struct seq *seq) {
    if (seq->kept.n_tokens == 0) return;
    weft_kv_checkpoints_drop(sched->checkpoints, seq->kept.id);
    seq->kept = (struct kept){0};
}

void wefti_sched_states_hang(weft_sched *sched, struct seq *seq, uint32_t n_tokens) {
    uint32_t n = seq->kept.n_tokens / sched->options.block_size;
    if (n == 0 || (n_tokens < seq->kept.n_tokens && !seq->chain.is_closed)) return;
    if (n > seq->chain.n) { /* its blocks are not the cache's */
        wefti_sched_states_drop(sched, seq);
        return;
    }
    weft_kv_checkpoints_hang(sched->checkpoints, seq->kept.id, seq->table.blocks[n - 1]);
    seq->kept = (struct kept){0};
}

void wefti_sched_states_check(const weft_sched *sched, uint32_t n_of_files) {
    if (!sched->checkpoints) return;
    uint32_t n_taken = n_of_files;
    weft_kv_checkpoints_check(sched->checkpoints);
    for (uint32_t i = 0; i < sched->n_running; i++)
        n_taken += sched->running[i]->kept.n_tokens > 0;
    WEFT_ASSERT(n_taken == weft_kv_checkpoints_n_taken(sched->checkpoints));
}
