/* What a sequence that starts need not compute, since others did: blocks of the prefix cache, or of
 * a sibling's table.
 *
 * The last known token is always computed: its logits are what the sequence goes on with. A sequence
 * whose prompt log-probabilities are still wanted finds nothing, for these need the logits of every
 * token; nor does one with contrastive search, whose context are the hidden states of all tokens.
 *
 * A block is published by the first plan after the one that fills it. The worker executes plans in
 * order, so whoever is told of it then reads what was written. Its tokens must be known by then; so
 * an output token's block waits for the result. What a plan copies is read before the plan's rows
 * write anything, and in the order of the copies: a block may be a copy's source and be granted
 * anew in one plan.
 * Where layers carry a state, that decides what of a prefix need not be computed: see states.c. */
#include "scheduler_internal.h"

#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

/* --------------------------------------------------------------------------------- finding --- */

/* K and V depend on the tokens before, and on nothing else but this. Salts are digests, so a bit of
 * theirs can be had for the rest. */
static struct weft_kv_space make_space(const weft_sched *sched, uint32_t n_prompt, uint64_t hi,
                                       uint64_t lo) {
    uint32_t long_prompt = sched->options.long_prompt;
    uint64_t is_long = long_prompt > 0 && n_prompt > long_prompt;
    return (struct weft_kv_space){.hi = hi, .lo = (lo & ~1ull) | is_long};
}

struct weft_kv_space wefti_sched_space_of(const weft_sched *sched, const struct request *req) {
    return make_space(sched, req->n_prompt, req->salt.hi, req->salt.lo);
}

uint32_t wefti_sched_prefix_peek(const weft_sched *sched, const struct weft_submit *submit) {
    if (!sched->options.prefix_cache || submit->n_prompt > sched->options.max_model_len) return 0;
    struct weft_kv_space space =
        make_space(sched, submit->n_prompt, submit->cache_salt.hi, submit->cache_salt.lo);
    struct weft_kv_match match;
    weft_kv_prefix_find(sched->cache, &space, submit->prompt, submit->n_prompt, sched->found_blocks,
                        sched->table_cap, &match);
    return wefti_sched_states_within(sched, match.n_blocks) * sched->options.block_size;
}

bool wefti_sched_same_space(const weft_sched *sched, const struct request *a,
                            const struct request *b) {
    struct weft_kv_space of_a = wefti_sched_space_of(sched, a),
                         of_b = wefti_sched_space_of(sched, b);
    return of_a.hi == of_b.hi && of_a.lo == of_b.lo;
}

const uint32_t *wefti_sched_tokens_of(const weft_sched *sched, const struct seq *seq) {
    const struct request *req = seq->req;
    if (seq->n_output == 0) return req->prompt;
    wefti_sched_seq_copy_tokens(seq, sched->found_tokens);
    return sched->found_tokens;
}

/* While prompt log-probabilities are on their way nobody forks: were the sequence that computes
 * them cancelled, another one would have to start from the prompt. */
bool wefti_sched_seq_can_be_forked(const struct seq *seq) {
    const struct request *req = seq->req;
    return seq->state == SEQ_RUNNING && seq->n_planned + 1 >= req->n_prompt &&
           seq->n_dropped == 0 && !wefti_sched_prompt_logprobs_pending(req);
}

/* A sequence started in this very plan (the worker knows none of its blocks yet) is no source: the
 * block it copied is not complete before the copies of the plan are through. */
static const struct seq *find_source(const weft_sched *sched, const struct request *req) {
    for (uint32_t i = 0; i < req->n_choices; i++) {
        const struct seq *seq = &req->seqs[i];
        bool has_moved_on = sched->options.is_recurrent && seq->n_planned + 1 != req->n_prompt;
        if (wefti_sched_seq_can_be_forked(seq) && seq->n_granted > 0 && !has_moved_on &&
            wefti_sched_window_can_fork(sched, seq))
            return seq;
    }
    return NULL;
}

/* The beam of whose parent this one is another child, as long as its state is that of the parent. NULL: it has moved
 * on, or is not there. */
static const struct seq *find_sibling_beam(const weft_sched *sched, const struct seq *seq) {
    if (!sched->options.is_recurrent || !seq->req->beams || seq->n_output == 0) return NULL;
    const struct seq *source = &seq->req->seqs[seq->restart_source];
    bool is_there = source->state == SEQ_RUNNING && source->n_output == seq->n_output &&
                    source->n_planned + 1 == wefti_sched_seq_known(seq);
    return is_there ? source : NULL;
}

/* Those that can be forked, but are no source, have moved on from their prompt's window, or its state. */
bool wefti_sched_prefix_awaited(const weft_sched *sched, const struct request *req) {
    for (uint32_t i = 0; i < req->n_choices && req->n_prompt > 1; i++) {
        const struct seq *seq = &req->seqs[i];
        bool is_ready = wefti_sched_seq_can_be_forked(seq) &&
                        (seq->n_granted > 0 || sched->options.is_recurrent);
        if (seq->state == SEQ_RUNNING && !is_ready && seq->n_dropped == 0) return true;
    }
    return false;
}

static void find_cached(const weft_sched *sched, const struct seq *seq, struct prefix *prefix) {
    uint32_t n_tokens = wefti_sched_seq_known(seq);
    struct weft_kv_space space = wefti_sched_space_of(sched, seq->req);
    struct weft_kv_match match;
    if (!sched->options.prefix_cache || wefti_sched_computes_all(seq->req)) return;
    weft_kv_prefix_find(sched->cache, &space, wefti_sched_tokens_of(sched, seq), n_tokens - 1,
                        sched->found_blocks, sched->table_cap, &match);
    prefix->n_blocks = match.n_blocks;
    prefix->partial = match.partial;
    prefix->n_cached = match.n_blocks * sched->options.block_size + match.n_partial;
    if (sched->checkpoints) {
        prefix->partial = WEFT_KV_NONE;
        prefix->n_cached =
            wefti_sched_states_within(sched, match.n_blocks) * sched->options.block_size;
    }
    wefti_sched_window_limit(sched, prefix);
}

static void find_forked(const weft_sched *sched, const struct seq *source, uint32_t n_shared,
                        struct prefix *prefix_out) {
    *prefix_out = (struct prefix){.source = source,
                                  .n_blocks = n_shared / sched->options.block_size,
                                  .partial = WEFT_KV_NONE,
                                  .n_cached = n_shared};
    if (n_shared % sched->options.block_size)
        prefix_out->partial = source->table.blocks[prefix_out->n_blocks];
    wefti_sched_window_limit(sched, prefix_out);
}

void wefti_sched_prefix_find(const weft_sched *sched, const struct seq *seq,
                             struct prefix *prefix_out) {
    const struct seq *beam = find_sibling_beam(sched, seq);
    const struct seq *source = seq->n_dropped == 0 ? find_source(sched, seq->req) : NULL;
    *prefix_out = (struct prefix){.partial = WEFT_KV_NONE};
    find_cached(sched, seq, prefix_out);
    if (source && seq->req->n_prompt - 1 > prefix_out->n_cached)
        find_forked(sched, source, seq->req->n_prompt - 1, prefix_out);
    if (beam) find_forked(sched, beam, wefti_sched_seq_known(seq) - 1, prefix_out);
    wefti_sched_spill_extend(sched, seq, prefix_out);
}

void wefti_sched_prefix_hold(weft_sched *sched, const struct weft_kv_space *space,
                             const uint32_t *tokens, uint32_t n_tokens, struct held *held) {
    struct weft_kv_match match;
    weft_kv_prefix_find(sched->cache, space, tokens, n_tokens, sched->found_blocks, held->table.cap,
                        &match);
    struct prefix prefix = {.n_blocks = match.n_blocks, .partial = WEFT_KV_NONE};
    wefti_sched_window_limit(sched, &prefix);
    weft_err err = weft_kv_prefix_use(sched->cache, space, sched->found_blocks, prefix.n_blocks,
                                      &held->table, &held->chain);
    WEFT_ASSERT(!err); /* fewer holders than slots and sessions */
    wefti_sched_window_share(sched, &prefix, held->windowed.blocks, held->windowed.cap,
                             &held->windowed);
}

void wefti_sched_held_drop(weft_sched *sched, struct held *held) {
    weft_kv_prefix_release(sched->cache, &held->table, &held->chain);
    if (sched->windows) weft_kv_windows_release(sched->windows, &held->windowed);
}

/* -------------------------------------------------------------------------------- headroom --- */

/* Nobody knows how long answers become. Where starting sequences took all memory but a block for each
 * that runs, those would soon be preempted, come back as soon as they fit, and push out others: a
 * quarter of all work was recomputation. So each preemption makes newcomers leave free a quarter
 * of a block more for every running sequence, and each end a 128th of one less: preemptions settle
 * at about one in thirty ends. Where memory suffices nothing of this is felt. */
#define HEADROOM_SCALE 256u
#define HEADROOM_UP (HEADROOM_SCALE / 4)
#define HEADROOM_DOWN (HEADROOM_SCALE / 128)

static uint64_t headroom(const weft_sched *sched) {
    return sched->n_running + (uint64_t)sched->n_running * sched->headroom / HEADROOM_SCALE;
}

void wefti_sched_headroom_lacked(weft_sched *sched) {
    uint32_t most = sched->table_cap * HEADROOM_SCALE;
    if (sched->options.evict_last) return;
    sched->headroom = weft_min_u32(sched->headroom + HEADROOM_UP, most);
}

void wefti_sched_headroom_sufficed(weft_sched *sched) {
    sched->headroom -= weft_min_u32(sched->headroom, HEADROOM_DOWN);
}

/* ------------------------------------------------------------------------------------ room --- */

static bool is_idle(const weft_sched *sched, const struct prefix *prefix, weft_kv_block block) {
    return !prefix->source && weft_kv_holders(sched->pool, block) == 1;
}

bool wefti_sched_prefix_can_spare(const weft_sched *sched, uint32_t n_blocks) {
    uint64_t n_there = (uint64_t)weft_kv_n_free(sched->pool) + weft_kv_prefix_n_idle(sched->cache);
    return n_there >= n_blocks + headroom(sched);
}

bool wefti_sched_prefix_has_room(const weft_sched *sched, struct prefix *prefix,
                                 uint32_t n_tokens) {
    uint32_t n_wanted = wefti_sched_blocks_for(sched, n_tokens) - prefix->n_blocks;
    uint64_t n_there = (uint64_t)weft_kv_n_free(sched->pool) + weft_kv_prefix_n_idle(sched->cache);
    for (uint32_t i = 0; !prefix->source && i < prefix->n_blocks; i++)
        n_there -= is_idle(sched, prefix, sched->found_blocks[i]);
    if (n_there < (uint64_t)n_wanted + headroom(sched)) return false;
    if (!wefti_sched_window_has_room(sched, prefix, n_tokens)) return false;
    bool is_last = prefix->partial != WEFT_KV_NONE && n_there == 1;
    if (is_last &&
        is_idle(sched, prefix, prefix->partial)) { /* it cannot be both, source and copy */
        prefix->partial = WEFT_KV_NONE;
        prefix->n_cached = prefix->n_blocks * sched->options.block_size;
    }
    return true;
}

uint32_t wefti_sched_prefix_n_written(const weft_sched *sched, const struct prefix *prefix) {
    return weft_max_u32(prefix->n_cached, prefix->n_blocks * sched->options.block_size);
}

static void add_copy(weft_sched *sched, struct seq *seq, weft_kv_block from) {
    struct weft_kv_copy copy;
    weft_err err = weft_kv_prefix_append_copy(sched->cache, from, &seq->table, &copy);
    WEFT_ASSERT(!err); /* prefix_has_room looked */
    sched->copies[sched->plan.n_copies++] =
        (struct weft_step_copy){.from = copy.from, .to = copy.to};
}

void wefti_sched_prefix_fill(weft_sched *sched, struct seq *seq, const struct prefix *prefix,
                             uint32_t n_tokens) {
    weft_kv_block *storage = sched->table_blocks + (size_t)seq->slot * sched->table_cap;
    struct weft_kv_space space = wefti_sched_space_of(sched, seq->req);
    weft_err err;
    weft_kv_table_init(&seq->table, storage, sched->table_cap);
    if (prefix->source)
        err = weft_kv_prefix_fork(sched->cache, &prefix->source->table, &prefix->source->chain,
                                  prefix->n_blocks, &seq->table, &seq->chain);
    else
        err = weft_kv_prefix_use(sched->cache, &space, sched->found_blocks, prefix->n_blocks,
                                 &seq->table, &seq->chain);
    WEFT_ASSERT(!err); /* fewer holders than slots */
    wefti_sched_states_begin(sched, seq, prefix);
    seq->beside = (struct beside){0};
    wefti_sched_window_fill(sched, seq, prefix); /* while what was found is sure to be there */
    if (prefix->partial != WEFT_KV_NONE) add_copy(sched, seq, prefix->partial);
    err = weft_kv_prefix_grow(sched->cache, &seq->table, wefti_sched_blocks_for(sched, n_tokens));
    WEFT_ASSERT(!err); /* prefix_has_room looked */
    if (prefix->n_restored > 0) wefti_sched_spill_restore(sched, seq, prefix);
    wefti_sched_spill_drop(sched, seq);
}

/* ------------------------------------------------------------------------------ publishing --- */

/* The tokens of a block: where they lie, or gathered from prompt and output. */
static const uint32_t *block_tokens(const weft_sched *sched, const struct seq *seq, uint32_t idx,
                                    uint32_t storage[WEFT_BLOCK_SIZE_MAX]) {
    uint32_t n = sched->options.block_size, n_prompt = seq->req->n_prompt;
    uint64_t first = (uint64_t)idx * n;
    for (uint32_t i = 0; i < n && seq->n_dropped > 0; i++)
        storage[i] = wefti_sched_seq_token(seq, (uint32_t)first + i);
    if (seq->n_dropped > 0) return storage;
    if (first + n <= n_prompt) return seq->req->prompt + first;
    if (first >= n_prompt) return seq->output + (first - n_prompt);
    for (uint32_t i = 0; i < n; i++)
        storage[i] =
            first + i < n_prompt ? seq->req->prompt[first + i] : seq->output[first + i - n_prompt];
    return storage;
}

/* Where another one has published the same tokens, its nodes may lack their twins: windowed blocks
 * go before others, and then a prefix is computed again. So the closed chain is followed through
 * the nodes of the other, and they get this sequence's windowed blocks. Nobody holds them for that:
 * it ends when one is gone. */
static void lend_twins(weft_sched *sched, struct seq *seq, uint32_t n) {
    uint32_t storage[WEFT_BLOCK_SIZE_MAX];
    struct beside *beside = &seq->beside;
    if (beside->n < seq->chain.n) {
        beside->n = seq->chain.n;
        beside->node = seq->table.blocks[beside->n - 1];
        beside->birth = weft_kv_prefix_birth(sched->cache, beside->node);
    }
    while (beside->n < n && !beside->is_over) {
        weft_kv_block parent = beside->n > 0 ? beside->node : WEFT_KV_NONE, child = WEFT_KV_NONE;
        if (beside->n == 0 || weft_kv_prefix_birth(sched->cache, parent) == beside->birth)
            child = weft_kv_prefix_child(sched->cache, &seq->chain.space, parent,
                                         block_tokens(sched, seq, beside->n, storage));
        beside->is_over = child == WEFT_KV_NONE;
        if (beside->is_over) return;
        wefti_sched_window_keep(sched, seq, beside->n++, child);
        beside->node = child;
        beside->birth = weft_kv_prefix_birth(sched->cache, child);
    }
}

void wefti_sched_publish(weft_sched *sched, struct seq *seq, uint32_t n_computed) {
    if (!sched->options.prefix_cache) return;
    uint32_t n_known = wefti_sched_seq_known(seq);
    uint32_t n = (n_computed < n_known ? n_computed : n_known) / sched->options.block_size;
    uint32_t storage[WEFT_BLOCK_SIZE_MAX];
    while (seq->chain.n < n && !seq->chain.is_closed) {
        uint32_t idx = seq->chain.n;
        (void)weft_kv_prefix_publish(sched->cache, &seq->table, &seq->chain,
                                     block_tokens(sched, seq, idx, storage));
        if (!seq->chain.is_closed) wefti_sched_window_keep(sched, seq, idx, seq->table.blocks[idx]);
    }
    if (seq->chain.is_closed && sched->options.window > 0) lend_twins(sched, seq, n);
    if (sched->checkpoints) wefti_sched_states_hang(sched, seq, weft_min_u32(n_computed, n_known));
}

void wefti_sched_publish_all(weft_sched *sched) {
    for (uint32_t i = 0; i < sched->n_running; i++)
        wefti_sched_publish(sched, sched->running[i], sched->running[i]->n_planned);
}
