/* The blocks of windowed layers: how many a sequence needs, and whose they are.
 *
 * Such a layer sees a sequence's last `window` tokens. So at the start of every plan each sequence
 * gives up the windowed blocks that no position from its n_planned on sees: later rows compute
 * nothing before that, and earlier rows belong to plans that the worker executes before this one. In
 * this very plan they may be granted to somebody else.
 *
 * Before a row is planned, its tokens have windowed blocks. A prompt takes those of a chunk, not of
 * all its tokens: it never holds more than its window, one chunk and one block. That they will be
 * there is not certain, as it is of other blocks, which a prompt takes when it starts. So admission
 * counts what all who run may come to hold (claims), and should they run out nevertheless, somebody
 * is preempted for the next token; what is left over goes to longer chunks.
 *
 * A pool that holds the window, one token more and a block is enough for one sequence alone, of any
 * length: it goes on by one token at least, and less is refused at the start. The worker's holds a
 * step's tokens in place of one, so that the chunks of a sequence alone are not cut short. */
#include "scheduler_internal.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/minmax.h"

static bool has_windows(const weft_sched *sched) {
    return sched->options.window > 0;
}

/* The windowed blocks below this one are of no use to a position. */
static uint32_t first_seen(const weft_sched *sched, uint32_t pos) {
    uint32_t window = sched->options.window;
    uint32_t low = pos >= window ? pos - window + 1 : 0;
    return low / sched->options.block_size;
}

static uint64_t n_there(const weft_sched *sched) {
    return (uint64_t)weft_kv_n_free(sched->window_pool) + weft_kv_windows_n_idle(sched->windows);
}

uint32_t wefti_sched_window_n_there(const weft_sched *sched) {
    return has_windows(sched) ? (uint32_t)n_there(sched) : 0;
}

/* -------------------------------------------------------------------------------- who runs --- */

void wefti_sched_window_move_all(weft_sched *sched) {
    for (uint32_t i = 0; i < sched->n_running && has_windows(sched); i++) {
        struct seq *seq = sched->running[i];
        weft_kv_windows_move(sched->windows, &seq->windowed, first_seen(sched, seq->n_planned));
    }
}

weft_err wefti_sched_window_grow(weft_sched *sched, struct seq *seq, uint32_t n_tokens) {
    if (!has_windows(sched)) return WEFT_OK;
    uint32_t n_wanted = wefti_sched_blocks_for(sched, seq->n_planned + n_tokens);
    return weft_kv_windows_grow(sched->windows, &seq->windowed, n_wanted);
}

uint32_t wefti_sched_window_room(weft_sched *sched, struct seq *seq, uint32_t n_tokens) {
    if (!has_windows(sched)) return n_tokens;
    uint32_t n_wanted = wefti_sched_blocks_for(sched, seq->n_planned + n_tokens);
    uint64_t there = n_there(sched), for_others = sched->n_running - 1;
    uint64_t n_spare = there > for_others ? there - for_others : 0;
    if (n_wanted > seq->windowed.n + n_spare) n_wanted = seq->windowed.n + (uint32_t)n_spare;
    weft_err err = weft_kv_windows_grow(sched->windows, &seq->windowed, n_wanted);
    WEFT_ASSERT(!err); /* counted above */
    uint64_t room = (uint64_t)seq->windowed.n * sched->options.block_size - seq->n_planned;
    return room < n_tokens ? (uint32_t)room : n_tokens;
}

/* The most that a sequence of n_tokens, of which n_done are computed, holds before it gets blocks for
 * output tokens. */
static uint32_t need(const weft_sched *sched, uint32_t n_tokens, uint32_t n_done) {
    uint32_t chunk = weft_min_u32(n_tokens - n_done, sched->options.max_batched_tokens);
    uint32_t seen = wefti_sched_blocks_for(sched, sched->options.window + chunk) + 1;
    uint32_t all = wefti_sched_blocks_for(sched, n_tokens + 1);
    return weft_min_u32(weft_min_u32(seen, all), sched->options.n_window_blocks);
}

/* What those who run may need on top of what they hold. */
static uint64_t claims(const weft_sched *sched) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        uint32_t n = need(sched, wefti_sched_seq_len(seq), seq->n_planned);
        uint32_t n_held = seq->windowed.n - seq->windowed.first;
        sum += n > n_held ? n - n_held : 0;
    }
    return sum;
}

/* -------------------------------------------------------------------------------- prefixes --- */

bool wefti_sched_window_holds(const weft_sched *sched, const struct seq *source,
                              uint32_t n_tokens) {
    return !has_windows(sched) || source->windowed.first <= first_seen(sched, n_tokens);
}

bool wefti_sched_window_can_fork(const weft_sched *sched, const struct seq *source) {
    uint32_t n_shared = source->req->n_prompt - 1;
    uint32_t n_whole = n_shared / sched->options.block_size * sched->options.block_size;
    return wefti_sched_window_holds(sched, source, n_whole);
}

/* A sibling's block, or the twin of a cached one. */
static weft_kv_block shared_block(const weft_sched *sched, const struct prefix *prefix,
                                  uint32_t idx) {
    if (prefix->source) return prefix->source->windowed.blocks[idx];
    weft_kv_block node = idx < prefix->n_blocks ? sched->found_blocks[idx] : prefix->partial;
    return weft_kv_windows_twin(sched->windows, node);
}

/* The longest part of the prefix found whose last window has its twins. */
static void keep_usable(const weft_sched *sched, struct prefix *prefix) {
    uint32_t n_usable = 0, run = 0; /* blocks run..i have twins */
    for (uint32_t i = 0; i < prefix->n_blocks; i++) {
        if (shared_block(sched, prefix, i) == WEFT_KV_NONE) run = i + 1;
        if (run <= first_seen(sched, (i + 1) * sched->options.block_size)) n_usable = i + 1;
    }
    bool is_whole = n_usable == prefix->n_blocks && prefix->partial != WEFT_KV_NONE;
    if (is_whole && shared_block(sched, prefix, n_usable) != WEFT_KV_NONE) return;
    prefix->n_blocks = n_usable;
    prefix->partial = WEFT_KV_NONE;
    prefix->n_cached = n_usable * sched->options.block_size;
}

void wefti_sched_window_limit(const weft_sched *sched, struct prefix *prefix) {
    if (!has_windows(sched)) return;
    if (!prefix->source) keep_usable(sched, prefix);
    prefix->window_first = first_seen(sched, prefix->n_blocks * sched->options.block_size);
}

static bool is_idle(const weft_sched *sched, const struct prefix *prefix, weft_kv_block block) {
    return !prefix->source && weft_kv_holders(sched->window_pool, block) == 1;
}

static bool has_room(const weft_sched *sched, const struct prefix *prefix, uint32_t n_tokens) {
    uint32_t n_shared = prefix->n_blocks - prefix->window_first;
    uint32_t n_now = wefti_sched_blocks_for(sched, prefix->n_cached + 1) - prefix->n_blocks;
    uint32_t n_wanted = need(sched, n_tokens, prefix->n_cached);
    n_wanted = weft_max_u32(n_wanted > n_shared ? n_wanted - n_shared : 0, n_now);
    uint64_t there = n_there(sched);
    for (uint32_t i = prefix->window_first; i < prefix->n_blocks; i++)
        there -= is_idle(sched, prefix, shared_block(sched, prefix, i));
    if (prefix->partial != WEFT_KV_NONE) /* it cannot be both, source and copy */
        there -= is_idle(sched, prefix, shared_block(sched, prefix, prefix->n_blocks));
    return there >= n_wanted + claims(sched);
}

bool wefti_sched_window_has_room(const weft_sched *sched, struct prefix *prefix,
                                 uint32_t n_tokens) {
    if (!has_windows(sched) || has_room(sched, prefix, n_tokens)) return true;
    if (prefix->partial == WEFT_KV_NONE) return false;
    prefix->partial = WEFT_KV_NONE;
    prefix->n_cached = prefix->n_blocks * sched->options.block_size;
    return has_room(sched, prefix, n_tokens);
}

static void add_copy(weft_sched *sched, struct seq *seq, weft_kv_block from) {
    struct weft_kv_copy copy;
    weft_err err = weft_kv_windows_append_copy(sched->windows, from, &seq->windowed, &copy);
    WEFT_ASSERT(!err); /* window_has_room looked */
    sched->copies[sched->plan.n_copies++] =
        (struct weft_step_copy){.from = copy.from, .to = copy.to, .kind = WEFT_KV_WINDOWED};
}

void wefti_sched_window_share(weft_sched *sched, const struct prefix *prefix,
                              weft_kv_block *storage, uint32_t cap,
                              struct weft_kv_window_table *table) {
    if (!has_windows(sched)) return;
    weft_kv_window_table_init(table, storage, cap, prefix->window_first);
    for (uint32_t i = prefix->window_first; i < prefix->n_blocks; i++) {
        weft_err err = weft_kv_windows_share(sched->windows, shared_block(sched, prefix, i), table);
        WEFT_ASSERT(!err); /* fewer holders than slots and sessions */
    }
}

void wefti_sched_window_fill(weft_sched *sched, struct seq *seq, const struct prefix *prefix) {
    if (!has_windows(sched)) return;
    weft_kv_block *storage = sched->window_table_blocks + (size_t)seq->slot * sched->table_cap;
    wefti_sched_window_share(sched, prefix, storage, sched->table_cap, &seq->windowed);
    seq->n_window_granted = prefix->window_first;
    if (prefix->partial != WEFT_KV_NONE)
        add_copy(sched, seq, shared_block(sched, prefix, prefix->n_blocks));
    uint32_t n_wanted = wefti_sched_blocks_for(sched, prefix->n_cached + 1);
    weft_err err = weft_kv_windows_grow(sched->windows, &seq->windowed, n_wanted);
    WEFT_ASSERT(!err); /* window_has_room looked */
}

bool wefti_sched_window_can_spare(const weft_sched *sched, uint32_t n_tokens) {
    if (!has_windows(sched)) return true;
    uint32_t n = wefti_sched_blocks_for(sched, n_tokens) - first_seen(sched, n_tokens);
    return n_there(sched) >= n + claims(sched);
}

void wefti_sched_window_take(weft_sched *sched, uint32_t n_tokens,
                             struct weft_kv_window_table *table) {
    if (!has_windows(sched)) return;
    weft_kv_window_table_init(table, table->blocks, table->cap, first_seen(sched, n_tokens));
    weft_err err = weft_kv_windows_grow(sched->windows, table, table->cap);
    WEFT_ASSERT(!err); /* they can be spared */
}

void wefti_sched_window_keep(weft_sched *sched, const struct seq *seq, uint32_t idx,
                             weft_kv_block node) {
    if (!has_windows(sched) || idx < seq->windowed.first || idx >= seq->windowed.n) return;
    weft_kv_windows_keep(sched->windows, node, seq->windowed.blocks[idx]);
}

void wefti_sched_window_grant_anew(weft_sched *sched, struct seq *seq) {
    if (has_windows(sched)) seq->n_window_granted = seq->windowed.first;
}

void wefti_sched_window_release(weft_sched *sched, struct seq *seq) {
    if (!has_windows(sched)) return;
    weft_kv_windows_release(sched->windows, &seq->windowed);
    seq->n_window_granted = 0;
}

/* ------------------------------------------------------------------------------------ state --- */

#define ALIGN 64

weft_err wefti_sched_window_init(weft_sched *sched) {
    const struct weft_sched_options *o = &sched->options;
    if (!has_windows(sched)) return WEFT_OK;
    size_t pool_bytes = weft_kv_pool_bytes(o->n_window_blocks);
    size_t bytes = weft_kv_windows_bytes(o->n_blocks, o->n_window_blocks);
    pool_bytes = (pool_bytes + ALIGN - 1) / ALIGN * ALIGN;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    sched->window_pool_mem = aligned_alloc(ALIGN, pool_bytes);
    sched->windows_mem = aligned_alloc(ALIGN, bytes);
    sched->window_table_blocks =
        calloc(o->max_seqs, sched->table_cap * sizeof *sched->window_table_blocks);
    if (!sched->window_pool_mem || !sched->windows_mem || !sched->window_table_blocks)
        return WEFT_E_NOMEM;
    weft_err err = weft_kv_pool_init(sched->window_pool_mem, pool_bytes, o->n_window_blocks,
                                     &sched->window_pool);
    if (!err)
        err = weft_kv_windows_init(sched->windows_mem, bytes, sched->window_pool, o->n_blocks,
                                   &sched->windows);
    if (!err) weft_kv_prefix_pair(sched->cache, sched->windows);
    return err;
}

void wefti_sched_window_fini(weft_sched *sched) {
    free(sched->window_table_blocks);
    free(sched->windows_mem);
    free(sched->window_pool_mem);
}

weft_err wefti_sched_window_check_options(const struct weft_sched_options *o,
                                          struct weft_errmsg *why) {
    uint32_t bs = o->block_size;
    if (o->window == 0 && o->n_window_blocks == 0) return WEFT_OK;
    if (o->window == 0 || o->window > WEFT_CONTEXT_MAX || o->n_window_blocks > WEFT_KV_BLOCKS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "a window of %u tokens and %u blocks for it",
                            o->window, o->n_window_blocks);
    uint32_t n_longest = weft_min_u32((o->max_model_len + bs - 1) / bs, o->n_blocks);
    uint32_t n_least = weft_min_u32((o->window + 1 + bs - 1) / bs + 1, n_longest);
    if (o->n_window_blocks >= n_least) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "n_window_blocks must be at least %u, got %u", n_least,
                        o->n_window_blocks);
}

void wefti_sched_window_check(const weft_sched *sched, uint64_t n_held) {
    uint64_t n_holders = 0;
    if (!has_windows(sched)) return;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        const struct weft_kv_window_table *table = &seq->windowed;
        if (seq->table.n == 0) continue; /* a beam that starts anew */
        WEFT_ASSERT(table->first <= first_seen(sched, seq->n_planned) && table->n <= table->cap);
        WEFT_ASSERT(seq->n_window_granted <= table->n);
        WEFT_ASSERT(seq->n_planned <= table->n * sched->options.block_size);
        n_held += table->n - table->first;
        for (uint32_t b = table->first; b < table->n; b++)
            WEFT_ASSERT(weft_kv_holders(sched->window_pool, table->blocks[b]) > 0);
    }
    for (uint32_t b = 0; b < sched->options.n_window_blocks; b++)
        n_holders += weft_kv_holders(sched->window_pool, b);
    WEFT_ASSERT(n_held + weft_kv_windows_n_twins(sched->windows) == n_holders);
    weft_kv_windows_check(sched->windows);
}
