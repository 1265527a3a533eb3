/* The scheduler as a whole: making, ending, starting over, and its state for others. */
#include "scheduler/scheduler.h"
#include "scheduler_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

#define POOL_ALIGN 64

/* --------------------------------------------------------------------------------- options --- */

static weft_err check_range(uint32_t value, uint32_t max, const char *name,
                            struct weft_errmsg *why) {
    if (value >= 1 && value <= max) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "%s must be between 1 and %u, got %u", name, max, value);
}

/* Of all these the state of recurrent layers cannot be had back. */
static weft_err check_recurrent(const struct weft_sched_options *o, struct weft_errmsg *why) {
    bool asks = o->window > 0 || o->n_spill_blocks > 0 || o->n_spec_tokens > 0 || o->has_contrast;
    bool keeps = o->n_checkpoints > 0 && o->n_checkpoints <= WEFT_STATE_CHECKPOINTS_MAX &&
                 o->checkpoint_tokens > 0 && o->checkpoint_tokens <= WEFT_CONTEXT_MAX;
    if (!o->is_recurrent || (!asks && (keeps || !o->prefix_cache))) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL,
                        "with recurrent layers there are no window, spilling, guesses and "
                        "contrastive search, and a cache has 1 to %u checkpoints, not %u, each "
                        "after some tokens, not %u",
                        WEFT_STATE_CHECKPOINTS_MAX, o->n_checkpoints, o->checkpoint_tokens);
}

static weft_err check_options(const struct weft_sched_options *o, struct weft_errmsg *why) {
    weft_err err = check_range(o->n_blocks, WEFT_KV_BLOCKS_MAX, "n_blocks", why);
    if (!err) err = check_range(o->block_size, WEFT_BLOCK_SIZE_MAX, "block_size", why);
    if (!err) err = check_range(o->max_seqs, WEFT_SEQS_MAX, "max_seqs", why);
    if (!err)
        err =
            check_range(o->max_batched_tokens, WEFT_BATCHED_TOKENS_MAX, "max_batched_tokens", why);
    if (!err) err = check_range(o->max_model_len, WEFT_CONTEXT_MAX, "max_model_len", why);
    if (!err) err = wefti_sched_window_check_options(o, why);
    if (!err && (o->n_spill_blocks > WEFT_KV_BLOCKS_MAX || (o->n_spill_blocks && o->window)))
        return weft_err_set(why, WEFT_E_INVAL, "n_spill_blocks %u, at most %u and with no window",
                            o->n_spill_blocks, WEFT_KV_BLOCKS_MAX);
    if (!err && o->whole_tokens > 0 &&
        (o->max_model_len > o->max_batched_tokens || o->prefix_cache || o->n_spill_blocks ||
         o->window))
        return weft_err_set(why, WEFT_E_INVAL,
                            "texts of up to %u tokens are to be computed whole in steps of %u, "
                            "without cache, spilling and windows",
                            o->max_model_len, o->max_batched_tokens);
    if (!err) err = check_recurrent(o, why);
    if (!err && o->n_spec_tokens > WEFT_SPEC_TOKENS_MAX && o->n_spec_tokens != WEFT_SCHED_SPEC_AUTO)
        return weft_err_set(why, WEFT_E_INVAL, "n_spec_tokens must be at most %u, got %u",
                            WEFT_SPEC_TOKENS_MAX, o->n_spec_tokens);
    if (!err) err = check_range(o->n_vocab, WEFT_VOCAB_MAX, "n_vocab", why);
    if (!err) err = check_range(o->max_queue, WEFT_QUEUE_MAX, "max_queue", why);
    if (!err && o->max_sessions > WEFT_SESSIONS_MAX)
        err = check_range(o->max_sessions, WEFT_SESSIONS_MAX, "max_sessions", why);
    if (err || o->step_logprob_bytes == 0) return err;
    uint32_t least = WEFT_LOGPROB_HEAD_BYTES + WEFT_LOGPROB_TOP_BYTES * o->n_vocab;
    if (o->step_logprob_bytes >= least && o->step_logprob_bytes <= WEFT_STEP_LOGPROB_BYTES_MAX)
        return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "step_logprob_bytes must be between %u and %u, got %u",
                        least, WEFT_STEP_LOGPROB_BYTES_MAX, o->step_logprob_bytes);
}

/* ------------------------------------------------------------------------------- new, free --- */

static weft_err make_pool(weft_sched *sched) {
    size_t n_bytes = weft_kv_pool_bytes(sched->options.n_blocks);
    n_bytes = (n_bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
    sched->pool_mem = aligned_alloc(POOL_ALIGN, n_bytes);
    if (!sched->pool_mem) return WEFT_E_NOMEM;
    return weft_kv_pool_init(sched->pool_mem, n_bytes, sched->options.n_blocks, &sched->pool);
}

static weft_err make_cache(weft_sched *sched) {
    const struct weft_sched_options *options = &sched->options;
    size_t n_bytes = weft_kv_prefix_bytes(options->n_blocks, options->block_size);
    n_bytes = (n_bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
    sched->cache_mem = aligned_alloc(POOL_ALIGN, n_bytes);
    sched->found_blocks = calloc(sched->table_cap, sizeof *sched->found_blocks);
    sched->found_tokens = calloc(options->max_model_len, sizeof *sched->found_tokens);
    if (!sched->cache_mem || !sched->found_blocks || !sched->found_tokens) return WEFT_E_NOMEM;
    return weft_kv_prefix_init(sched->cache_mem, n_bytes, sched->pool, options->block_size,
                               options->cache_seed, &sched->cache);
}

/* The slots bound all that a plan can hold: each has at most one release, start and row in it, and
 * one copy and grant for each kind of blocks. */
static weft_err make_tables(weft_sched *sched) {
    size_t n = sched->options.max_seqs;
    sched->slot_gen = calloc(n, sizeof *sched->slot_gen);
    sched->free_slots = calloc(n, sizeof *sched->free_slots);
    sched->table_blocks = calloc(n, sched->table_cap * sizeof *sched->table_blocks);
    sched->running = calloc(n, sizeof(struct seq *));
    sched->by_slot = calloc(n, sizeof(struct seq *));
    sched->payers = calloc(PAYER_BUCKETS, sizeof *sched->payers);
    sched->candidates = calloc(n, sizeof(struct seq *));
    sched->pending = calloc(n, sizeof *sched->pending);
    sched->releases = calloc(n, sizeof *sched->releases);
    sched->starts = calloc(n, sizeof *sched->starts);
    sched->copies = calloc(WEFT_KV_KINDS * n, sizeof *sched->copies);
    sched->grants = calloc(WEFT_KV_KINDS * n, sizeof *sched->grants);
    sched->states = calloc(2 * n, sizeof *sched->states);
    sched->rows = calloc(n, sizeof *sched->rows);
    sched->start_tokens = calloc(sched->history_cap, sizeof *sched->start_tokens);
    bool all = sched->slot_gen && sched->free_slots && sched->table_blocks && sched->running &&
               sched->by_slot && sched->payers && sched->candidates && sched->pending &&
               sched->releases && sched->starts && sched->copies && sched->grants &&
               sched->states && sched->rows && sched->start_tokens;
    for (uint32_t i = 0; i < WEFT_SCHED_PLANS_MAX; i++) {
        sched->out[i].rows = calloc(n, sizeof(struct row));
        all = all && sched->out[i].rows;
    }
    return all ? WEFT_OK : WEFT_E_NOMEM;
}

static void fill_free_slots(weft_sched *sched) {
    sched->n_free_slots = sched->options.max_seqs;
    for (uint32_t i = 0; i < sched->n_free_slots; i++)
        sched->free_slots[i] = sched->n_free_slots - 1 - i; /* a stack: low slots come first */
}

static void init_sizes(weft_sched *sched, const struct weft_sched_options *options) {
    sched->options = *options;
    if (options->step_logprob_bytes == 0)
        sched->options.step_logprob_bytes = WEFT_STEP_LOGPROB_BYTES_MAX;
    if (options->contrast_bytes == 0 || options->contrast_bytes > WEFT_CONTRAST_BYTES_MAX)
        sched->options.contrast_bytes = WEFT_CONTRAST_BYTES_MAX;
    sched->running_max = options->max_seqs < options->max_batched_tokens
                             ? options->max_seqs
                             : options->max_batched_tokens;
    sched->history_cap = weft_max_u32(options->max_model_len, WEFT_SHIFTED_TOKENS_MAX);
    uint32_t longest = wefti_sched_blocks_for(sched, options->max_model_len);
    sched->table_cap = longest < options->n_blocks ? longest : options->n_blocks;
    TAILQ_INIT(&sched->idle_payers);
    TAILQ_INIT(&sched->awaiting);
    TAILQ_INIT(&sched->sessions);
    TAILQ_INIT(&sched->file_ops);
}

weft_err weft_sched_new(const struct weft_sched_options *options, weft_sched **sched_out,
                        struct weft_errmsg *why) {
    *sched_out = NULL;
    weft_sched *sched = NULL;
    weft_err err = check_options(options, why);
    if (err) goto cleanup;
    err = WEFT_E_NOMEM;
    sched = calloc(1, sizeof *sched);
    if (!sched) goto no_memory;
    init_sizes(sched, options);
    err = make_pool(sched);
    if (!err) err = make_cache(sched);
    if (!err) err = wefti_sched_window_init(sched);
    if (!err) err = wefti_sched_states_init(sched);
    if (!err) err = wefti_sched_spill_init(sched);
    if (!err) err = make_tables(sched);
    if (!err) err = wefti_sched_index_init(&sched->index);
    if (err) goto no_memory;
    fill_free_slots(sched);
    *sched_out = sched;
    sched = NULL;
    goto cleanup;
no_memory:
    err = weft_err_set(why, err, "no memory for a scheduler of %u sequences and %u blocks",
                       options->max_seqs, options->n_blocks);
cleanup:
    weft_sched_free(sched);
    return err;
}

static void free_requests(weft_sched *sched) {
    for (uint32_t i = 0; sched->index.buckets && i < sched->index.n_buckets; i++) {
        for (struct request *req = LIST_FIRST(&sched->index.buckets[i]), *next; req; req = next) {
            next = LIST_NEXT(req, link);
            wefti_sched_request_free(req);
        }
    }
    wefti_sched_request_free_borrowed(sched);
    wefti_sched_index_fini(&sched->index);
}

void weft_sched_free(weft_sched *sched) {
    if (!sched) return;
    free_requests(sched);
    wefti_sched_files_fini(sched);
    wefti_sched_sessions_drop(sched);
    wefti_sched_payers_fini(sched);
    wefti_sched_heap_fini(&sched->waiting);
    wefti_sched_heap_fini(&sched->deadlines);
    for (uint32_t i = 0; i < WEFT_SCHED_PLANS_MAX; i++)
        free(sched->out[i].rows);
    free(sched->events);
    free(sched->start_tokens);
    free(sched->rows);
    free(sched->grants);
    free(sched->states);
    free(sched->copies);
    free(sched->starts);
    free(sched->releases);
    free(sched->pending);
    free(sched->candidates);
    free(sched->by_slot);
    free(sched->running);
    free(sched->table_blocks);
    free(sched->free_slots);
    free(sched->slot_gen);
    free(sched->found_tokens);
    free(sched->found_blocks);
    wefti_sched_spill_fini(sched);
    wefti_sched_window_fini(sched);
    wefti_sched_states_fini(sched);
    free(sched->cache_mem);
    free(sched->pool_mem);
    free(sched);
}

/* ----------------------------------------------------------------------------------- epoch --- */

void weft_sched_reset_cache(weft_sched *sched) {
    wefti_sched_sessions_drop(sched);
    wefti_sched_files_forget(sched);
    for (uint32_t i = 0; i < sched->n_running; i++) {
        struct weft_kv_chain *chain = &sched->running[i]->chain;
        *chain = (struct weft_kv_chain){.space = chain->space, .is_closed = true};
        sched->running[i]->beside.is_over = true;
    }
    weft_kv_prefix_reset(sched->cache);
    sched->n_cache_resets++;
}

static void forget_plans(weft_sched *sched) {
    for (; sched->n_out > 0; sched->n_out--) {
        struct plan_out *plan = &sched->out[(sched->step - sched->n_out) % WEFT_SCHED_PLANS_MAX];
        for (uint32_t i = 0; i < plan->n_rows; i++) {
            struct seq *seq = plan->rows[i].seq;
            if (!seq) continue;
            seq->row[plan->step % WEFT_SCHED_PLANS_MAX] = NO_ROW;
            seq->n_rows_out--;
            seq->n_samples_out -= plan->rows[i].samples;
        }
    }
}

/* The tokens that the plans that are out would have sampled will be sampled again, and be the same:
 * a token depends on seed, choice and position (docs/architecture.md#batch-invariance). Generations
 * go on: a slot's never returns. */
void weft_sched_new_epoch(weft_sched *sched, uint64_t now_us, uint64_t epoch) {
    WEFT_ASSERT(epoch > sched->epoch);
    wefti_sched_forecast_advance(sched, now_us);
    wefti_sched_forecast_lost(sched);
    wefti_sched_note_losses(sched);
    wefti_sched_spill_note_loss(sched);
    forget_plans(sched);
    while (sched->n_running > 0)
        wefti_sched_seq_preempt(sched, sched->running[sched->n_running - 1]);
    sched->n_pending = 0; /* the worker drops everything by itself */
    wefti_sched_files_lost(sched);
    weft_sched_reset_cache(sched);
    sched->epoch = epoch;
    sched->step = 0;
    wefti_sched_forget_announced(sched);
    wefti_sched_spill_reset(sched);
}

void weft_sched_drain(weft_sched *sched) {
    sched->draining = true;
}

/* ----------------------------------------------------------------------------------- state --- */

void weft_sched_stats(const weft_sched *sched, struct weft_sched_stats *stats_out) {
    *stats_out = (struct weft_sched_stats){
        .n_waiting = sched->n_requests_waiting,
        .n_running = sched->n_requests_running,
        .n_running_seqs = sched->n_running,
        .n_waiting_seqs = sched->n_seqs_waiting,
        .n_blocks = sched->options.n_blocks,
        .n_blocks_free = weft_kv_n_free(sched->pool) + weft_kv_prefix_n_idle(sched->cache),
        .n_blocks_published = weft_kv_prefix_n_nodes(sched->cache),
        .n_blocks_idle = weft_kv_prefix_n_idle(sched->cache),
        .n_window_blocks = sched->options.n_window_blocks,
        .n_window_blocks_free = wefti_sched_window_n_there(sched),
        .n_plans_out = sched->n_out,
        .n_sessions = sched->n_sessions,
        .n_session_blocks = sched->n_session_blocks,
        .n_checkpoints = sched->checkpoints ? sched->options.n_checkpoints : 0,
        .n_checkpoints_held =
            sched->checkpoints ? weft_kv_checkpoints_n_hung(sched->checkpoints) : 0,
        .spill_bytes = (sched->n_spill_slots - sched->n_spill_free) * sched->options.block_bytes,
    };
#define COPY(name, ...) stats_out->name = sched->name;
#define PASS_OVER(...)
    WEFT_COUNTER_LIST(COPY, PASS_OVER)
#undef PASS_OVER
#undef COPY
    stats_out->n_cache_evictions = weft_kv_prefix_n_evicted(sched->cache);
    if (sched->checkpoints)
        stats_out->n_checkpoints_evicted = weft_kv_checkpoints_n_evicted(sched->checkpoints);
}

bool weft_sched_has(const weft_sched *sched, uint32_t router, uint64_t request_id) {
    return wefti_sched_index_find(&sched->index, router, request_id) != NULL;
}

bool weft_sched_idle(const weft_sched *sched) {
    return sched->index.n == 0 && sched->n_out == 0;
}
