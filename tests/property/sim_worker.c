#include "property/sim_worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "base/rand.h"

struct slot {
    bool used, has_row, is_held;
    enum weft_end finish;
    uint32_t gen; /* of the last start, used or not */
    uint32_t choice, n_prompt, n_tokens, n_computed, n_logprobs_done;
    uint32_t n_written; /* of a start: nothing below is written to `blocks` */
    uint32_t n_dropped; /* tokens that are not in `tokens` any more */
    uint64_t prompt_hash;
    uint64_t state; /* of the recurrent layers: the history up to the last token computed */
    bool has_state;
    struct weft_sampling sampling;
    struct weft_pooling pooling;
    uint32_t stop_tokens[WEFT_STOP_TOKENS_MAX];
    uint32_t *tokens;  /* [max_model_len] */
    uint64_t *history; /* [max_model_len] hash of tokens[0..i] */
    uint32_t *blocks;  /* [table_cap] */
    uint32_t n_blocks;
    uint32_t *window_blocks; /* [table_cap], from `n_window_skipped` on */
    uint32_t n_window_skipped, n_window_blocks;
};

/* A plan in storage of its own, as if it had come through a socket. */
struct message {
    struct weft_step_plan plan;
    unsigned char *bytes;
    size_t n_bytes, cap;
};

struct sim_worker {
    struct weft_sched_options options;
    uint32_t table_cap;
    struct slot *slots;
    uint32_t *block_users;      /* tables each block stands in */
    uint64_t *contents;         /* [n_blocks][block_size] */
    uint64_t *kept;             /* [n_checkpoints] states */
    uint64_t *spilled;          /* [n_spill_blocks][block_size], the file */
    uint64_t *window_contents;  /* [n_window_blocks][block_size] */
    uint32_t n_window_held_max; /* windowed blocks that a sequence could still see, at most */
    uint64_t epoch, next_step;
    struct message queue[SIM_PLANS_MAX];
    uint32_t queue_head, n_queued, last_sent;
    struct weft_step_result result;
    struct weft_step_out *outs;
    struct weft_logprobs *prompt_logprobs; /* [max_batched_tokens] of one result */
    uint32_t n_prompt_logprobs;
    uint32_t
        *top_ids; /* [1 + max_seqs][SIM_TOP_MAX]: anybody's, and those of beams in one result */
    float *top_logprobs;
    uint32_t *more; /* [max_seqs][WEFT_MORE_MAX] of one result */
    float *values;  /* [max_seqs][n_values_max] likewise */
    uint32_t n_values_max;
    uint32_t step_us, token_us, block_us;
};

/* ------------------------------------------------------------------------------- reference --- */

static uint64_t mix(uint64_t hash, uint64_t value) {
    uint64_t state = hash ^ (value * 0x9e3779b97f4a7c15u);
    return weft_rand_next(&state);
}

uint64_t sim_prompt_hash(const uint32_t *prompt, uint32_t n_prompt, uint64_t seed) {
    uint64_t hash = mix(seed, n_prompt);
    for (uint32_t i = 0; i < n_prompt; i++)
        hash = mix(hash, prompt[i]);
    return hash;
}

uint32_t sim_token(uint64_t prompt_hash, uint32_t choice, uint32_t output_idx, uint32_t n_vocab) {
    uint64_t state = mix(mix(prompt_hash, choice + 1), output_idx);
    return weft_rand_below(&state, n_vocab);
}

double sim_sampler_state(uint64_t prompt_hash, uint32_t choice, uint32_t n_output) {
    return (double)(mix(mix(prompt_hash, choice + 1), n_output) >> 12) + 0.5;
}

static uint64_t add_to_history(uint64_t history, uint32_t token) {
    return mix(history, token + 1);
}

static uint64_t begin_history(const struct weft_sched_options *options, uint32_t n_prompt) {
    return options->long_prompt > 0 && n_prompt > options->long_prompt ? 2 : 1;
}

uint64_t sim_history(const struct weft_sched_options *options, const uint32_t *tokens,
                     uint32_t n_prompt, uint32_t n_tokens) {
    uint64_t history = begin_history(options, n_prompt);
    for (uint32_t i = 0; i < n_tokens; i++)
        history = add_to_history(history, tokens[i]);
    return history;
}

static float logprob_of(uint64_t history, uint32_t token) {
    return -(float)(mix(history, ~(uint64_t)token) & 0xfff) / 256.0f;
}

void sim_next(uint64_t history, uint32_t n_vocab, uint32_t n, uint32_t *ids, float *logprobs) {
    uint32_t n_best = 0;
    for (uint32_t token = 0; token < n_vocab; token++) {
        float logprob = logprob_of(history, token);
        uint32_t at = n_best;
        for (; at > 0 && logprob > logprobs[at - 1]; at--) {
            if (at == n) continue; /* the last one goes */
            ids[at] = ids[at - 1];
            logprobs[at] = logprobs[at - 1];
        }
        if (at == n) continue;
        ids[at] = token;
        logprobs[at] = logprob;
        n_best += n_best < n;
    }
}

float sim_value(uint64_t prompt_hash, uint32_t i) {
    return (float)(mix(prompt_hash, ~(uint64_t)i) & 0xffff) / 256.0f;
}

float sim_prompt_logprob(uint64_t prompt_hash, uint32_t pos) {
    return -(float)(mix(prompt_hash, pos) & 0xffff);
}

/* ------------------------------------------------------------------------------- new, free --- */

static void *need(void *mem) {
    WEFT_ASSERT(mem != NULL);
    return mem;
}

struct sim_worker *sim_worker_new(const struct weft_sched_options *options) {
    struct sim_worker *worker = need(calloc(1, sizeof *worker));
    worker->options = *options;
    worker->table_cap = (options->max_model_len + options->block_size - 1) / options->block_size;
    worker->slots = need(calloc(options->max_seqs, sizeof *worker->slots));
    for (uint32_t i = 0; i < options->max_seqs; i++) {
        struct slot *slot = &worker->slots[i];
        slot->tokens = need(calloc(options->max_model_len, sizeof *slot->tokens));
        slot->history = need(calloc(options->max_model_len, sizeof *slot->history));
        slot->blocks = need(calloc(worker->table_cap, sizeof *slot->blocks));
        slot->window_blocks = need(calloc(worker->table_cap, sizeof *slot->window_blocks));
    }
    size_t n_entries = (size_t)options->n_blocks * options->block_size;
    worker->block_users = need(calloc(options->n_blocks, sizeof *worker->block_users));
    worker->contents = need(calloc(n_entries, sizeof *worker->contents));
    size_t n_spilled = (size_t)options->n_spill_blocks * options->block_size;
    worker->spilled = need(calloc(n_spilled + 1, sizeof *worker->spilled));
    size_t n_window_entries = (size_t)options->n_window_blocks * options->block_size;
    worker->window_contents = need(calloc(n_window_entries + 1, sizeof *worker->window_contents));
    worker->kept = need(calloc((size_t)options->n_checkpoints + 1, sizeof *worker->kept));
    worker->outs = need(calloc(options->max_seqs, sizeof *worker->outs));
    worker->prompt_logprobs =
        need(calloc(options->max_batched_tokens, sizeof *worker->prompt_logprobs));
    worker->top_ids =
        need(calloc((1 + (size_t)options->max_seqs) * SIM_TOP_MAX, sizeof *worker->top_ids));
    worker->more = need(calloc((size_t)options->max_seqs * WEFT_MORE_MAX, sizeof *worker->more));
    worker->top_logprobs =
        need(calloc((1 + (size_t)options->max_seqs) * SIM_TOP_MAX, sizeof *worker->top_logprobs));
    worker->n_values_max = options->shape.n_hidden + options->shape.n_labels + WEFT_POOLING_IDS_MAX;
    worker->values =
        need(calloc((size_t)options->max_seqs * worker->n_values_max, sizeof *worker->values));
    worker->step_us = 1000;
    worker->token_us = 100;
    return worker;
}

void sim_worker_free(struct sim_worker *worker) {
    if (!worker) return;
    for (uint32_t i = 0; i < worker->options.max_seqs; i++) {
        free(worker->slots[i].tokens);
        free(worker->slots[i].history);
        free(worker->slots[i].blocks);
        free(worker->slots[i].window_blocks);
    }
    for (uint32_t i = 0; i < SIM_PLANS_MAX; i++)
        free(worker->queue[i].bytes);
    free(worker->slots);
    free(worker->block_users);
    free(worker->contents);
    free(worker->spilled);
    free(worker->kept);
    free(worker->window_contents);
    free(worker->outs);
    free(worker->prompt_logprobs);
    free(worker->top_ids);
    free(worker->more);
    free(worker->values);
    free(worker->top_logprobs);
    free(worker);
}

/* Generations are kept: within the scheduler's life they never come back, whatever the epoch. */
void sim_worker_reset(struct sim_worker *worker, uint64_t epoch) {
    WEFT_ASSERT(epoch > worker->epoch);
    for (uint32_t i = 0; i < worker->options.max_seqs; i++) {
        worker->slots[i].used = false;
        worker->slots[i].n_blocks = 0;
    }
    size_t n_entries = (size_t)worker->options.n_blocks * worker->options.block_size;
    memset(worker->block_users, 0, worker->options.n_blocks * sizeof *worker->block_users);
    memset(worker->contents, 0, n_entries * sizeof *worker->contents);
    n_entries = (size_t)worker->options.n_window_blocks * worker->options.block_size;
    memset(worker->window_contents, 0, n_entries * sizeof *worker->window_contents);
    n_entries = (size_t)worker->options.n_spill_blocks * worker->options.block_size;
    memset(worker->spilled, 0, n_entries * sizeof *worker->spilled);
    memset(worker->kept, 0, worker->options.n_checkpoints * sizeof *worker->kept);
    worker->n_queued = 0;
    worker->epoch = epoch;
    worker->next_step = 0;
}

void sim_worker_costs(struct sim_worker *worker, uint32_t step_us, uint32_t token_us) {
    worker->step_us = step_us;
    worker->token_us = token_us;
}

void sim_worker_spill_cost(struct sim_worker *worker, uint32_t block_us) {
    worker->block_us = block_us;
}

/* ----------------------------------------------------------------------------- the message --- */

static size_t append(struct message *message, const void *items, size_t n_bytes) {
    size_t at = (message->n_bytes + 7) / 8 * 8;
    if (at + n_bytes > message->cap) {
        message->cap = (at + n_bytes) * 2;
        message->bytes = need(realloc(message->bytes, message->cap));
    }
    if (n_bytes) memcpy(message->bytes + at, items, n_bytes);
    message->n_bytes = at + n_bytes;
    return at;
}

/* First everything is copied and pointers hold offsets; once the storage is final they become
 * pointers. Offsets travel in a pointer's clothes, hence the casts. */
static const void *as_pointer(size_t offset) {
    return (const void *)(uintptr_t)offset; // NOLINT(performance-no-int-to-ptr)
}

static void *rebase(const struct message *message, const void *offset) {
    return message->bytes + (uintptr_t)offset;
}

static void copy_start(struct message *message, size_t at, const struct weft_step_start *start) {
    struct weft_step_start copy = *start;
    const struct weft_sampling *sampling = &start->sampling;
    copy.tokens = as_pointer(append(message, start->tokens, start->n_tokens * sizeof(uint32_t)));
    copy.sampling.stop_tokens = as_pointer(
        append(message, sampling->stop_tokens, sampling->n_stop_tokens * sizeof(uint32_t)));
    copy.sampling.masked_tokens = as_pointer(
        append(message, sampling->masked_tokens, sampling->n_masked_tokens * sizeof(uint32_t)));
    copy.sampling.bias =
        as_pointer(append(message, sampling->bias, sampling->n_bias * sizeof *sampling->bias));
    memcpy(message->bytes + at, &copy, sizeof copy);
}

static void copy_grant(struct message *message, size_t at, const struct weft_step_grant *grant) {
    struct weft_step_grant copy = *grant;
    copy.blocks = as_pointer(append(message, grant->blocks, grant->n_blocks * sizeof(uint32_t)));
    memcpy(message->bytes + at, &copy, sizeof copy);
}

static void copy_plan(struct message *message, const struct weft_step_plan *plan) {
    message->n_bytes = 0;
    struct weft_step_plan *copy = &message->plan;
    *copy = *plan;
    size_t releases = append(message, plan->releases, plan->n_releases * sizeof *plan->releases);
    size_t starts = append(message, plan->starts, plan->n_starts * sizeof *plan->starts);
    size_t copies = append(message, plan->copies, plan->n_copies * sizeof *plan->copies);
    size_t spills = append(message, plan->spills, plan->n_spills * sizeof *plan->spills);
    size_t restores = append(message, plan->restores, plan->n_restores * sizeof *plan->restores);
    size_t grants = append(message, plan->grants, plan->n_grants * sizeof *plan->grants);
    size_t states = append(message, plan->states, plan->n_states * sizeof *plan->states);
    size_t rows = append(message, plan->rows, plan->n_rows * sizeof *plan->rows);
    for (uint32_t i = 0; i < plan->n_starts; i++)
        copy_start(message, starts + i * sizeof *plan->starts, &plan->starts[i]);
    for (uint32_t i = 0; i < plan->n_grants; i++)
        copy_grant(message, grants + i * sizeof *plan->grants, &plan->grants[i]);
    copy->releases = rebase(message, as_pointer(releases));
    copy->copies = rebase(message, as_pointer(copies));
    copy->spills = rebase(message, as_pointer(spills));
    copy->restores = rebase(message, as_pointer(restores));
    copy->states = rebase(message, as_pointer(states));
    copy->rows = rebase(message, as_pointer(rows));
    struct weft_step_start *start = rebase(message, as_pointer(starts));
    copy->starts = start;
    for (uint32_t i = 0; i < plan->n_starts; i++) {
        start[i].tokens = rebase(message, start[i].tokens);
        start[i].sampling.stop_tokens = rebase(message, start[i].sampling.stop_tokens);
        start[i].sampling.masked_tokens = rebase(message, start[i].sampling.masked_tokens);
        start[i].sampling.bias = rebase(message, start[i].sampling.bias);
    }
    struct weft_step_grant *grant = rebase(message, as_pointer(grants));
    copy->grants = grant;
    for (uint32_t i = 0; i < plan->n_grants; i++)
        grant[i].blocks = rebase(message, grant[i].blocks);
}

void sim_worker_send(struct sim_worker *worker, const struct weft_step_plan *plan) {
    WEFT_ASSERT(worker->n_queued < SIM_PLANS_MAX);
    worker->last_sent = (worker->queue_head + worker->n_queued++) % SIM_PLANS_MAX;
    copy_plan(&worker->queue[worker->last_sent], plan);
}

uint32_t sim_worker_n_queued(const struct sim_worker *worker) {
    return worker->n_queued;
}

const struct weft_step_plan *sim_worker_last(const struct sim_worker *worker) {
    return &worker->queue[worker->last_sent].plan;
}

/* ------------------------------------------------------------------------------ the deltas --- */

static struct slot *used_slot(struct sim_worker *worker, uint32_t slot_idx, uint32_t gen) {
    WEFT_ASSERT(slot_idx < worker->options.max_seqs);
    struct slot *slot = &worker->slots[slot_idx];
    WEFT_ASSERT(slot->used);
    WEFT_ASSERT(slot->gen == gen);
    return slot;
}

static void release(struct sim_worker *worker, const struct weft_step_release *release) {
    struct slot *slot = used_slot(worker, release->slot, release->gen);
    for (uint32_t i = 0; i < slot->n_blocks; i++)
        worker->block_users[slot->blocks[i]]--;
    slot->n_blocks = 0;
    slot->used = false;
}

static void add_token(struct sim_worker *worker, struct slot *slot, uint32_t token) {
    WEFT_ASSERT(slot->n_tokens < worker->options.max_model_len);
    WEFT_ASSERT(token < worker->options.n_vocab);
    uint32_t i = slot->n_tokens++;
    slot->tokens[i] = token;
    uint64_t before = i ? slot->history[i - 1] : begin_history(&worker->options, slot->n_prompt);
    slot->history[i] = add_to_history(before, token);
}

static uint32_t n_output_of(const struct slot *slot) {
    return slot->n_tokens + slot->n_dropped - slot->n_prompt;
}

/* What a sequence has dropped by then, one token after the other. */
static uint32_t dropped_by(uint32_t len, const struct weft_step_start *start) {
    uint32_t n = start->n_prompt, n_dropped = 0;
    for (uint32_t i = start->n_prompt; i < start->n_tokens; i++) {
        if (++n < len) continue;
        n -= (len - start->n_keep) / 2;
        n_dropped += (len - start->n_keep) / 2;
    }
    return n_dropped;
}

static void check_dropped(const struct sim_worker *worker, const struct weft_step_start *start) {
    if (start->n_dropped == 0) return;
    WEFT_ASSERT(start->n_keep + start->n_dropped < start->n_tokens);
    WEFT_ASSERT(start->n_dropped == dropped_by(worker->options.max_model_len, start));
    WEFT_ASSERT(start->sampling.n_prompt_logprobs < 0 || start->n_prompt == 1 ||
                start->n_prompt_logprobs_done == start->n_prompt);
}

static bool is_beam(const struct slot *slot) {
    return slot->sampling.length_penalty != 1.0f;
}

static void check_sampling(const struct sim_worker *worker, const struct weft_sampling *sampling) {
    struct weft_errmsg why;
    WEFT_ASSERT(!weft_sampling_check(sampling, worker->options.n_vocab, &why));
    WEFT_ASSERT(sampling->n_logprobs <= (int32_t)SIM_TOP_MAX);
    WEFT_ASSERT(sampling->n_prompt_logprobs <= (int32_t)SIM_TOP_MAX);
}

/* The first windowed block that a position sees. */
static uint32_t first_seen(const struct sim_worker *worker, uint32_t pos) {
    uint32_t window = worker->options.window;
    return window == 0 || pos < window ? 0 : (pos - window + 1) / worker->options.block_size;
}

/* Whether a sequence still sees a windowed block, the first or the next after that. */
static bool sees(const struct sim_worker *worker, const struct slot *slot, uint32_t block) {
    if (!slot->used || slot->finish != WEFT_END_NONE) return false;
    for (uint32_t i = first_seen(worker, slot->n_computed); i < slot->n_window_blocks; i++) {
        if (slot->window_blocks[i] == block) return true;
    }
    return false;
}

static uint32_t n_who_see(const struct sim_worker *worker, uint32_t block) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < worker->options.max_seqs; i++)
        n += sees(worker, &worker->slots[i], block);
    return n;
}

/* Of what has none, there is nothing to check. */
static void check_pooling(const struct sim_worker *worker, const struct weft_step_start *start) {
    const struct weft_pooling *pooling = &start->pooling;
    WEFT_ASSERT(!weft_pooling_check(pooling, &start->sampling, start->n_prompt,
                                    worker->options.n_vocab, NULL));
    if (pooling->kind == WEFT_POOLING_NONE) return;
    WEFT_ASSERT(weft_pooling_n_values(pooling, &worker->options.shape) > 0);
    WEFT_ASSERT(start->n_tokens == start->n_prompt && start->choice == 0);
    WEFT_ASSERT(start->n_cached == 0 || !weft_pooling_reads_all(pooling));
}

/* Only where a state may be of fewer tokens than blocks have been found. */
static void check_written(const struct sim_worker *worker, const struct weft_step_start *start) {
    if (start->n_written == start->n_cached) return;
    WEFT_ASSERT(worker->options.n_checkpoints > 0 && start->n_written > start->n_cached);
    WEFT_ASSERT(start->n_written < start->n_tokens);
    WEFT_ASSERT(start->n_written % worker->options.block_size == 0);
}

static void start(struct sim_worker *worker, const struct weft_step_start *start) {
    WEFT_ASSERT(start->slot < worker->options.max_seqs);
    struct slot *slot = &worker->slots[start->slot];
    WEFT_ASSERT(!slot->used && start->gen > slot->gen);
    WEFT_ASSERT(start->n_prompt >= 1 && start->n_tokens >= start->n_prompt);
    uint32_t n_left = start->n_tokens - start->n_dropped;
    check_dropped(worker, start);
    WEFT_ASSERT(!worker->options.is_recurrent || start->n_dropped == 0);
    WEFT_ASSERT(start->n_cached < n_left && n_left <= worker->options.max_model_len);
    check_written(worker, start);
    WEFT_ASSERT(start->n_prompt_logprobs_done <= start->n_prompt);
    check_sampling(worker, &start->sampling);
    check_pooling(worker, start);
    /* The logits of a cached token are never computed: the next one's log-probability is lost. */
    uint32_t next = start->n_prompt_logprobs_done ? start->n_prompt_logprobs_done : 1;
    WEFT_ASSERT(start->sampling.n_prompt_logprobs < 0 || next >= start->n_prompt ||
                start->n_cached < next);
    slot->used = true;
    slot->has_row = slot->is_held = false;
    slot->finish = WEFT_END_NONE;
    slot->gen = start->gen;
    slot->choice = start->choice;
    slot->n_prompt = start->n_prompt;
    slot->n_computed = start->n_cached;
    slot->n_written = start->n_written;
    slot->has_state = false;
    slot->n_logprobs_done = start->n_prompt_logprobs_done;
    slot->n_tokens = slot->n_blocks = 0;
    slot->n_dropped = start->n_dropped;
    slot->n_window_skipped = slot->n_window_blocks = start->n_window_skipped;
    WEFT_ASSERT(start->n_window_skipped <= first_seen(worker, slot->n_computed));
    slot->sampling = start->sampling;
    slot->pooling = start->pooling;
    memcpy(slot->stop_tokens, start->sampling.stop_tokens,
           start->sampling.n_stop_tokens * sizeof(uint32_t));
    slot->sampling.stop_tokens = slot->stop_tokens;
    slot->prompt_hash = sim_prompt_hash(start->tokens, start->n_prompt, start->sampling.seed);
    for (uint32_t i = 0; i < start->n_tokens; i++) {
        if (i < start->n_keep || i >= start->n_keep + start->n_dropped)
            add_token(worker, slot, start->tokens[i]);
    }
    uint32_t n_output = start->n_tokens - start->n_prompt;
    if (weft_sampling_has_state(&start->sampling) && n_output > 0)
        WEFT_ASSERT(start->sampler_state ==
                    sim_sampler_state(slot->prompt_hash, slot->choice, n_output));
    for (uint32_t i = start->n_prompt; i < start->n_tokens && !is_beam(slot); i++)
        WEFT_ASSERT(start->tokens[i] == sim_token(slot->prompt_hash, slot->choice,
                                                  i - start->n_prompt, worker->options.n_vocab));
}

/* The target is nobody's yet. The source may be nobody's, too: it holds what somebody computed. */
static void copy(struct sim_worker *worker, const struct weft_step_copy *copy) {
    uint32_t block_size = worker->options.block_size;
    if (copy->kind == WEFT_KV_WINDOWED) {
        WEFT_ASSERT(copy->from < worker->options.n_window_blocks);
        WEFT_ASSERT(copy->to < worker->options.n_window_blocks);
        WEFT_ASSERT(n_who_see(worker, copy->to) == 0);
        memcpy(worker->window_contents + (size_t)copy->to * block_size,
               worker->window_contents + (size_t)copy->from * block_size,
               block_size * sizeof(uint64_t));
        return;
    }
    WEFT_ASSERT(copy->kind == WEFT_KV_FULL);
    WEFT_ASSERT(copy->from < worker->options.n_blocks && copy->to < worker->options.n_blocks);
    WEFT_ASSERT(worker->block_users[copy->to] == 0);
    memcpy(worker->contents + (size_t)copy->to * block_size,
           worker->contents + (size_t)copy->from * block_size, block_size * sizeof(uint64_t));
}

static void move(struct sim_worker *worker, const struct weft_step_spill *spill, bool is_restore) {
    uint32_t block_size = worker->options.block_size;
    WEFT_ASSERT(spill->block < worker->options.n_blocks);
    WEFT_ASSERT(spill->slot < worker->options.n_spill_blocks);
    uint64_t *in_memory = worker->contents + (size_t)spill->block * block_size;
    uint64_t *in_file = worker->spilled + (size_t)spill->slot * block_size;
    WEFT_ASSERT(!is_restore || worker->block_users[spill->block] == 0);
    memcpy(is_restore ? in_memory : in_file, is_restore ? in_file : in_memory,
           block_size * sizeof(uint64_t));
}

/* Nobody is told when windowed blocks are taken back: only those that are still seen matter. */
static void grant_windowed(struct sim_worker *worker, struct slot *slot,
                           const struct weft_step_grant *grant) {
    for (uint32_t i = 0; i < grant->n_blocks; i++) {
        uint32_t block = grant->blocks[i];
        WEFT_ASSERT(block < worker->options.n_window_blocks);
        WEFT_ASSERT(slot->n_window_blocks < worker->table_cap);
        bool read_only =
            (slot->n_window_blocks + 1) * worker->options.block_size <= slot->n_computed;
        WEFT_ASSERT(n_who_see(worker, block) == 0 || read_only);
        slot->window_blocks[slot->n_window_blocks++] = block;
    }
}

/* A block that others use may only be granted below what is written already, where nobody writes. */
static void grant(struct sim_worker *worker, const struct weft_step_grant *grant) {
    struct slot *slot = used_slot(worker, grant->slot, grant->gen);
    WEFT_ASSERT(grant->n_blocks > 0 && grant->kind < WEFT_KV_KINDS);
    if (grant->kind == WEFT_KV_WINDOWED) {
        grant_windowed(worker, slot, grant);
        return;
    }
    for (uint32_t i = 0; i < grant->n_blocks; i++) {
        uint32_t block = grant->blocks[i];
        WEFT_ASSERT(block < worker->options.n_blocks);
        WEFT_ASSERT(slot->n_blocks < worker->table_cap);
        bool read_only = (slot->n_blocks + 1) * worker->options.block_size <= slot->n_written;
        WEFT_ASSERT(worker->block_users[block] == 0 || read_only);
        slot->blocks[slot->n_blocks++] = block;
        worker->block_users[block]++;
    }
}

/* -------------------------------------------------------------------------------- the rows --- */

static uint64_t *content(struct sim_worker *worker, const struct slot *slot, uint32_t pos) {
    uint32_t block = slot->blocks[pos / worker->options.block_size];
    return &worker->contents[(size_t)block * worker->options.block_size +
                             pos % worker->options.block_size];
}

static uint64_t *window_content(struct sim_worker *worker, const struct slot *slot, uint32_t pos) {
    uint32_t block = slot->window_blocks[pos / worker->options.block_size];
    return &worker->window_contents[(size_t)block * worker->options.block_size +
                                    pos % worker->options.block_size];
}

/* What starts find written was written by plans before: their rows may run at the same time. */
static void check_found(struct sim_worker *worker, const struct weft_step_plan *plan) {
    for (uint32_t i = 0; i < plan->n_starts; i++) {
        const struct slot *slot = &worker->slots[plan->starts[i].slot];
        WEFT_ASSERT(slot->n_written <= slot->n_blocks * worker->options.block_size);
        for (uint32_t pos = 0; pos < slot->n_written; pos++)
            WEFT_ASSERT(*content(worker, slot, pos) == slot->history[pos]);
    }
}

/* Positions first..end are written; the first of them sees the most of those before. */
static void compute_windowed(struct sim_worker *worker, struct slot *slot, uint32_t first,
                             uint32_t end) {
    uint32_t block_size = worker->options.block_size, window = worker->options.window;
    WEFT_ASSERT(end <= slot->n_window_blocks * block_size);
    for (uint32_t pos = first < window ? 0 : first - window + 1; pos < first; pos++)
        WEFT_ASSERT(*window_content(worker, slot, pos) == slot->history[pos]);
    for (uint32_t pos = first; pos < end; pos++) {
        if (pos == first || pos % block_size == 0)
            WEFT_ASSERT(n_who_see(worker, slot->window_blocks[pos / block_size]) == 1);
        *window_content(worker, slot, pos) = slot->history[pos];
    }
    uint32_t n_held = slot->n_window_blocks - first_seen(worker, first);
    if (n_held > worker->n_window_held_max) worker->n_window_held_max = n_held;
}

/* What a slot, or a checkpoint, has of a state: the history that it is of. */
static void move_state(struct sim_worker *worker, const struct weft_step_state *state) {
    WEFT_ASSERT(worker->options.is_recurrent && state->slot < worker->options.max_seqs);
    struct slot *slot = &worker->slots[state->slot];
    WEFT_ASSERT(slot->used && state->op < WEFT_STATE_OPS);
    bool is_fork = state->op == WEFT_STATE_FORK;
    WEFT_ASSERT(state->other <
                (is_fork ? worker->options.max_seqs : worker->options.n_checkpoints));
    if (state->op == WEFT_STATE_KEEP) {
        WEFT_ASSERT(slot->has_row);
        worker->kept[state->other] = slot->state;
        return;
    }
    WEFT_ASSERT(!slot->has_state && slot->n_computed > 0);
    slot->state = is_fork ? worker->slots[state->other].state : worker->kept[state->other];
    slot->has_state = true;
}

static void move_states(struct sim_worker *worker, const struct weft_step_plan *plan, bool keeps) {
    for (uint32_t i = 0; i < plan->n_states; i++) {
        if (keeps == (plan->states[i].op == WEFT_STATE_KEEP)) move_state(worker, &plan->states[i]);
    }
}

static void compute_state(struct slot *slot, uint32_t end) {
    bool is_first = slot->n_computed == 0;
    WEFT_ASSERT(is_first ||
                (slot->has_state && slot->state == slot->history[slot->n_computed - 1]));
    if (end > 0) slot->state = slot->history[end - 1];
    slot->has_state = true;
}

static void compute(struct sim_worker *worker, struct slot *slot, uint32_t n_tokens) {
    uint32_t end = slot->n_computed + n_tokens;
    WEFT_ASSERT(end <= slot->n_tokens);
    WEFT_ASSERT(end <= slot->n_blocks * worker->options.block_size);
    uint32_t first = weft_max_u32(slot->n_computed, slot->n_written);
    for (uint32_t pos = 0; pos < first; pos++)
        WEFT_ASSERT(*content(worker, slot, pos) == slot->history[pos]);
    for (uint32_t pos = first; pos < end; pos++) {
        WEFT_ASSERT(worker->block_users[slot->blocks[pos / worker->options.block_size]] == 1);
        *content(worker, slot, pos) = slot->history[pos];
    }
    if (worker->options.window > 0) compute_windowed(worker, slot, slot->n_computed, end);
    if (worker->options.is_recurrent) compute_state(slot, end);
    slot->n_computed = end;
}

static void add_prompt_logprobs(struct sim_worker *worker, struct slot *slot, uint32_t first,
                                struct weft_step_out *out) {
    if (slot->sampling.n_prompt_logprobs < 0) return;
    uint32_t from = first + 1, end = slot->n_computed + 1;
    if (from < slot->n_logprobs_done) from = slot->n_logprobs_done;
    if (end > slot->n_prompt) end = slot->n_prompt;
    if (from >= end) return;
    out->prompt_pos = from;
    out->n_prompt_logprobs = end - from;
    out->prompt_logprobs = worker->prompt_logprobs + worker->n_prompt_logprobs;
    for (uint32_t pos = from; pos < end; pos++)
        worker->prompt_logprobs[worker->n_prompt_logprobs++] = (struct weft_logprobs){
            .logprob = sim_prompt_logprob(slot->prompt_hash, pos),
            .rank = 1,
            .n_top = (uint32_t)slot->sampling.n_prompt_logprobs,
            .top_ids = worker->top_ids,
            .top_logprobs = worker->top_logprobs,
        };
    slot->n_logprobs_done = end;
}

static bool is_stop_token(const struct slot *slot, uint32_t token) {
    for (uint32_t i = 0; i < slot->sampling.n_stop_tokens; i++) {
        if (slot->stop_tokens[i] == token) return true;
    }
    return false;
}

/* The next token, and whether it was the last. */
static uint32_t take_next(struct sim_worker *worker, struct slot *slot) {
    uint32_t idx = n_output_of(slot);
    uint32_t token = sim_token(slot->prompt_hash, slot->choice, idx, worker->options.n_vocab);
    add_token(worker, slot, token);
    if (is_stop_token(slot, token) && idx + 1 >= slot->sampling.min_tokens)
        slot->finish = WEFT_END_STOP;
    else if (idx + 1 >= slot->sampling.max_tokens ||
             slot->n_tokens == worker->options.max_model_len)
        slot->finish = WEFT_END_LENGTH;
    return token;
}

/* What a grammar may do, at random: one time in four there is no mask yet, of some requests five in
 * eight. */
static bool is_late(const struct sim_worker *worker, const struct slot *slot) {
    uint64_t state = mix(slot->prompt_hash, ~worker->next_step);
    uint32_t n_late = slot->prompt_hash % 4 == 0 ? 5 : 2;
    return slot->sampling.grammar.kind != WEFT_GRAMMAR_NONE && weft_rand_below(&state, 8) < n_late;
}

static uint32_t *more_of(struct sim_worker *worker, struct weft_step_out *out) {
    uint32_t *more = worker->more + (size_t)(out - worker->outs) * WEFT_MORE_MAX;
    out->more = more;
    return more;
}

/* One time in two some tokens follow the sampled one. */
static void force(struct sim_worker *worker, struct slot *slot, struct weft_step_out *out) {
    if (slot->sampling.grammar.kind == WEFT_GRAMMAR_NONE || slot->sampling.n_logprobs >= 0) return;
    uint64_t state = mix(slot->prompt_hash, worker->next_step);
    uint32_t n = weft_rand_below(&state, 2) ? 1 + weft_rand_below(&state, WEFT_FORCED_MAX) : 0;
    for (; n > 0 && slot->finish == WEFT_END_NONE; n--)
        more_of(worker, out)[out->n_more++] = take_next(worker, slot);
}

/* As far as lengths and blocks allow; how many of them, and how many come true, is left to chance. */
static uint32_t guess_room(const struct sim_worker *worker, const struct slot *slot,
                           const struct weft_step_row *row) {
    uint32_t n = row->n_spec, size = worker->options.block_size;
    uint32_t n_output = n_output_of(slot), n_left = slot->sampling.max_tokens;
    if (n_left <= n_output || slot->n_tokens >= worker->options.max_model_len) return 0;
    n = weft_min_u32(n, n_left - n_output - 1);
    n = weft_min_u32(n, worker->options.max_model_len - slot->n_tokens - 1);
    n = weft_min_u32(n, slot->n_blocks * size - slot->n_tokens);
    if (worker->options.window > 0)
        n = weft_min_u32(n, slot->n_window_blocks * size - slot->n_tokens);
    return n;
}

/* Whatever is guessed is written first: where nobody else reads. */
static void write_guesses(struct sim_worker *worker, struct slot *slot, uint32_t n) {
    uint32_t size = worker->options.block_size;
    for (uint32_t pos = slot->n_tokens; pos < slot->n_tokens + n; pos++) {
        WEFT_ASSERT(worker->block_users[slot->blocks[pos / size]] == 1);
        *content(worker, slot, pos) = ~pos;
        if (worker->options.window == 0) continue;
        WEFT_ASSERT(n_who_see(worker, slot->window_blocks[pos / size]) == 1);
        *window_content(worker, slot, pos) = ~pos;
    }
}

static void guess(struct sim_worker *worker, struct slot *slot, const struct weft_step_row *row,
                  struct weft_step_out *out) {
    uint64_t state = mix(slot->prompt_hash, worker->next_step * 7 + 1);
    WEFT_ASSERT(row->n_spec == 0 || slot->sampling.n_logprobs < 0);
    out->n_proposed = weft_rand_below(&state, guess_room(worker, slot, row) + 1);
    write_guesses(worker, slot, out->n_proposed);
    worker->result.n_tokens += out->n_proposed;
}

/* The first token is sampled: those after it whose guesses came true follow. */
static void verify(struct sim_worker *worker, struct slot *slot, struct weft_step_out *out) {
    uint64_t state = mix(slot->prompt_hash, worker->next_step * 7 + 2);
    uint32_t n = weft_rand_below(&state, out->n_proposed + 1);
    for (; out->n_accepted < n && slot->finish == WEFT_END_NONE; out->n_accepted++) {
        compute(worker, slot, 1);
        more_of(worker, out)[out->n_more++] = take_next(worker, slot);
    }
}

/* The sampled token stands behind what it continues. */
static void tell_next(struct sim_worker *worker, const struct slot *slot,
                      struct weft_step_out *out) {
    size_t at = (1 + (size_t)(out - worker->outs)) * SIM_TOP_MAX;
    out->logprobs.top_ids = worker->top_ids + at;
    out->logprobs.top_logprobs = worker->top_logprobs + at;
    sim_next(slot->history[slot->n_tokens - 2], worker->options.n_vocab, out->logprobs.n_top,
             worker->top_ids + at, worker->top_logprobs + at);
}

static void pool(struct sim_worker *worker, const struct slot *slot, struct weft_step_out *out) {
    float *values = worker->values + (size_t)(out - worker->outs) * worker->n_values_max;
    out->n_values = weft_pooling_n_values(&slot->pooling, &worker->options.shape);
    out->values = values;
    for (uint32_t i = 0; i < out->n_values; i++)
        values[i] = sim_value(slot->prompt_hash, i);
}

static void sample(struct sim_worker *worker, struct slot *slot, struct weft_step_out *out) {
    if (slot->sampling.max_tokens == 0) {
        pool(worker, slot, out);
        slot->finish = out->finish = WEFT_END_LENGTH;
        return;
    }
    if (is_late(worker, slot)) {
        slot->is_held = out->is_late = true;
        return;
    }
    out->sampled = true;
    out->output_idx = n_output_of(slot);
    out->token = take_next(worker, slot);
    verify(worker, slot, out);
    if (weft_sampling_has_state(&slot->sampling))
        out->sampler_state = sim_sampler_state(slot->prompt_hash, slot->choice, n_output_of(slot));
    if (slot->finish == WEFT_END_NONE) force(worker, slot, out);
    out->finish = slot->finish;
    if (slot->sampling.n_logprobs < 0) return;
    out->has_logprobs = true;
    out->logprobs = (struct weft_logprobs){.logprob = -1.0f,
                                           .rank = 1,
                                           .n_top = (uint32_t)slot->sampling.n_logprobs,
                                           .top_ids = worker->top_ids,
                                           .top_logprobs = worker->top_logprobs};
    if (is_beam(slot)) tell_next(worker, slot, out);
}

static void run_row(struct sim_worker *worker, const struct weft_step_row *row) {
    struct slot *slot = used_slot(worker, row->slot, row->gen);
    struct weft_step_out *out = &worker->outs[worker->result.n_outs++];
    *out = (struct weft_step_out){.slot = row->slot, .gen = row->gen};
    WEFT_ASSERT(row->n_tokens >= 1 && !slot->has_row);
    slot->has_row = true;
    /* A scheduler can count, but for tokens that were forced, or guessed, since. */
    bool may_jump = slot->sampling.grammar.kind != WEFT_GRAMMAR_NONE ||
                    (worker->options.n_spec_tokens > 0 && slot->sampling.n_logprobs < 0);
    WEFT_ASSERT(slot->finish != WEFT_END_LENGTH || may_jump);
    if (slot->finish != WEFT_END_NONE) return;
    out->ran = true;
    uint32_t first = slot->n_computed, n_computed = row->n_tokens - slot->is_held;
    WEFT_ASSERT(worker->options.whole_tokens == 0 || row->n_tokens == slot->n_prompt);
    WEFT_ASSERT(!slot->is_held || n_computed == 0);
    bool guesses = row->n_spec > 0 && !slot->is_held && first + n_computed == slot->n_tokens;
    slot->is_held = false;
    compute(worker, slot, n_computed);
    worker->result.n_tokens += n_computed;
    add_prompt_logprobs(worker, slot, first, out);
    if (guesses) guess(worker, slot, row, out);
    if (slot->n_computed == slot->n_tokens) sample(worker, slot, out);
}

static void check_budget(const struct sim_worker *worker, const struct weft_step_plan *plan) {
    uint64_t n_tokens = 0, n_start_tokens = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        n_tokens += (uint64_t)plan->rows[i].n_tokens + plan->rows[i].n_spec;
    for (uint32_t i = 0; i < plan->n_starts; i++)
        n_start_tokens += plan->starts[i].n_tokens;
    WEFT_ASSERT(n_start_tokens <= WEFT_STEP_START_TOKENS_MAX);
    WEFT_ASSERT(n_tokens <= worker->options.max_batched_tokens);
    WEFT_ASSERT(plan->n_rows <= worker->options.max_seqs);
}

/* As they would travel: see proto/schema.md. */
static uint64_t logprob_bytes(const struct weft_logprobs *entries, uint32_t n) {
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        n_bytes += 12 + 8 * (uint64_t)entries[i].n_top;
    return n_bytes;
}

static void check_result(const struct sim_worker *worker) {
    uint64_t n_bytes = 0, n_bytes_max = worker->options.step_logprob_bytes;
    for (uint32_t i = 0; i < worker->result.n_outs; i++) {
        const struct weft_step_out *out = &worker->outs[i];
        n_bytes += logprob_bytes(&out->logprobs, out->has_logprobs);
        n_bytes += logprob_bytes(out->prompt_logprobs, out->n_prompt_logprobs);
        n_bytes += 4 * (uint64_t)out->n_values;
    }
    WEFT_ASSERT(n_bytes <= (n_bytes_max ? n_bytes_max : WEFT_STEP_LOGPROB_BYTES_MAX));
}

static const struct weft_step_start *start_of(const struct weft_step_plan *plan, uint32_t slot) {
    for (uint32_t i = 0; i < plan->n_starts; i++) {
        if (plan->starts[i].slot == slot) return &plan->starts[i];
    }
    return NULL;
}

uint32_t sim_worker_reaches(const struct sim_worker *worker, uint64_t seed) {
    const struct weft_step_plan *plan = &worker->queue[worker->queue_head].plan;
    uint32_t reached = 0;
    for (uint32_t i = 0; worker->n_queued > 0 && i < plan->n_rows; i++) {
        const struct weft_step_row *row = &plan->rows[i];
        const struct weft_step_start *begin = start_of(plan, row->slot);
        const struct slot *slot = &worker->slots[row->slot];
        uint32_t end = begin ? begin->n_cached : slot->n_computed - slot->is_held;
        end += row->n_tokens;
        bool goes_on = begin || slot->finish == WEFT_END_NONE;
        bool is_own = (begin ? begin->sampling.seed : slot->sampling.seed) == seed;
        if (goes_on && is_own && end > reached) reached = end;
    }
    return reached;
}

struct weft_step_result *sim_worker_run(struct sim_worker *worker) {
    WEFT_ASSERT(worker->n_queued > 0);
    const struct weft_step_plan *plan = &worker->queue[worker->queue_head].plan;
    worker->queue_head = (worker->queue_head + 1) % SIM_PLANS_MAX;
    worker->n_queued--;
    WEFT_ASSERT(plan->epoch == worker->epoch && plan->step == worker->next_step++);
    check_budget(worker, plan);
    worker->result =
        (struct weft_step_result){.epoch = plan->epoch, .step = plan->step, .outs = worker->outs};
    worker->n_prompt_logprobs = 0;
    for (uint32_t i = 0; i < plan->n_releases; i++)
        release(worker, &plan->releases[i]);
    for (uint32_t i = 0; i < plan->n_starts; i++)
        start(worker, &plan->starts[i]);
    for (uint32_t i = 0; i < plan->n_spills; i++)
        move(worker, &plan->spills[i], false);
    for (uint32_t i = 0; i < plan->n_copies; i++)
        copy(worker, &plan->copies[i]);
    for (uint32_t i = 0; i < plan->n_restores; i++)
        move(worker, &plan->restores[i], true);
    for (uint32_t i = 0; i < plan->n_grants; i++)
        grant(worker, &plan->grants[i]);
    move_states(worker, plan, false);
    check_found(worker, plan);
    for (uint32_t i = 0; i < plan->n_rows; i++)
        run_row(worker, &plan->rows[i]);
    check_result(worker);
    move_states(worker, plan, true);
    for (uint32_t i = 0; i < plan->n_rows; i++)
        worker->slots[plan->rows[i].slot].has_row = false;
    worker->result.busy_us = worker->step_us + worker->token_us * worker->result.n_tokens;
    worker->result.spill_us = worker->block_us * (plan->n_spills + plan->n_restores);
    worker->result.busy_us += worker->result.spill_us;
    return &worker->result;
}

uint32_t sim_worker_n_window_held_max(const struct sim_worker *worker) {
    return worker->n_window_held_max;
}

uint32_t sim_worker_n_slots_used(const struct sim_worker *worker) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < worker->options.max_seqs; i++)
        n += worker->slots[i].used;
    return n;
}
