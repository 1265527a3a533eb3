/* Plans of the scheduler against the simplest model there is: lists, and everything written out.
 *
 * The model keeps for each position of each block the whole text up to there, and for each sequence
 * its tokens, its blocks and how many are computed. It replays a plan and says what was allowed:
 *   - starts     in the order of the policy, a plain search through those that wait; nobody who could
 *                start is left out
 *   - blocks     those of all tables are not free, all others are; written by one sequence only
 *   - hits       at most what stands anywhere; at least, but for one in a thousand, the whole blocks
 *                that a running sequence has of the text
 *   - rows       as many tokens as fit the step, or as there are; each stream gets its one
 *   - guesses    within what is left of the step, each sequence's within its length and its blocks, of
 *                which nobody else has one
 *   - preemption only where blocks lack, never of the oldest, and then nobody starts
 *   - refusals   by counting
 * One tenant, one plan at a time, one choice; random worlds from one seed (WEFT_SEED). What runs two
 * plans deep, is lost, or has choices is sim_scheduler's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "scheduler/scheduler.h"

#define LEN_MAX 48u
#define BLOCKS_MAX 64u
#define BLOCK_MAX 8u
#define REQUESTS_MAX 64u
#define N_VOCAB 3u
#define N_WORLDS 400u
#define N_STEPS 250u
#define PROMPTS_AHEAD 4u /* under EDF: as many prompts run before one that is due later starts */

struct text {
    uint32_t n, tokens[LEN_MAX];
};

struct request {
    bool is_there, runs, was_preempted;
    uint64_t id, order, due_us;
    int32_t priority;
    struct text text; /* prompt and output */
    uint32_t n_prompt, n_max;
    uint32_t slot, gen, n_blocks, blocks[LEN_MAX], n_computed; /* while it runs */
};

struct world {
    uint64_t rand, now_us, n_orders, n_steps;
    struct weft_sched_options options;
    uint32_t places;
    weft_sched *sched;
    struct request requests[REQUESTS_MAX];
    struct text contents[BLOCKS_MAX][BLOCK_MAX]; /* n 0: nothing */
};

static struct {
    uint64_t n_steps, n_starts, n_preemptions, n_hit_tokens, n_refused, n_ends, n_cancels, n_waits,
        n_missed, n_guesses;
} totals;

static uint32_t below(struct world *world, uint32_t n) {
    return weft_rand_below(&world->rand, n);
}

static bool begins_with(const struct text *text, const struct text *beginning) {
    return beginning->n > 0 && beginning->n <= text->n &&
           memcmp(text->tokens, beginning->tokens, beginning->n * sizeof *text->tokens) == 0;
}

static uint32_t blocks_for(const struct world *world, uint32_t n_tokens) {
    return (n_tokens + world->options.block_size - 1) / world->options.block_size;
}

static uint32_t n_running(const struct world *world) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        n += world->requests[i].is_there && world->requests[i].runs;
    return n;
}

static bool in_table(const struct request *req, uint32_t block) {
    for (uint32_t i = 0; req->is_there && req->runs && i < req->n_blocks; i++) {
        if (req->blocks[i] == block) return true;
    }
    return false;
}

static uint32_t n_users(const struct world *world, uint32_t block) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        n += in_table(&world->requests[i], block);
    return n;
}

static uint32_t n_free(const struct world *world) {
    uint32_t n = 0;
    for (uint32_t b = 0; b < world->options.n_blocks; b++)
        n += n_users(world, b) == 0;
    return n;
}

/* ----------------------------------------------------------------------------------- order --- */

/* Whether the policy has `a` before `b`. */
static bool comes_before(const struct world *world, const struct request *a,
                         const struct request *b) {
    if (world->options.policy == WEFT_SCHED_PRIORITY && a->priority != b->priority)
        return a->priority < b->priority;
    if (world->options.policy != WEFT_SCHED_FCFS && a->was_preempted != b->was_preempted)
        return a->was_preempted;
    if (world->options.policy == WEFT_SCHED_EDF && a->due_us != b->due_us)
        return a->due_us < b->due_us;
    return a->order < b->order;
}

static bool computes_prompt(const struct request *req) {
    return req->is_there && req->runs && req->n_computed < req->n_prompt;
}

/* Somebody who computes a prompt that begins alike: it may wait for that. */
static bool may_follow(const struct world *world, const struct request *req) {
    uint32_t n = world->options.block_size;
    for (uint32_t i = 0; world->options.prefix_cache && i < REQUESTS_MAX; i++) {
        const struct request *other = &world->requests[i];
        struct text beginning = other->text;
        beginning.n = n;
        if (other != req && other->is_there && other->runs && other->n_prompt >= n &&
            other->n_computed <= other->n_prompt && begins_with(&req->text, &beginning))
            return true;
    }
    return false;
}

static struct request *first_waiting(struct world *world) {
    struct request *first = NULL;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        struct request *req = &world->requests[i];
        if (!req->is_there || req->runs || may_follow(world, req)) continue;
        if (!first || comes_before(world, req, first)) first = req;
    }
    return first;
}

/* ------------------------------------------------------------------------------------ hits --- */

static bool stands_somewhere(const struct world *world, const struct request *req, uint32_t pos) {
    struct text up_to = req->text;
    up_to.n = pos + 1;
    for (uint32_t b = 0; b < world->options.n_blocks; b++) {
        const struct text *there = &world->contents[b][pos % world->options.block_size];
        if (there->n == up_to.n && begins_with(&up_to, there)) return true;
    }
    return false;
}

static uint32_t hits_at_most(const struct world *world, const struct request *req) {
    uint32_t n = 0;
    while (world->options.prefix_cache && n + 1 < req->text.n && stands_somewhere(world, req, n))
        n++;
    return n;
}

static uint32_t hits_at_least(const struct world *world, const struct request *req) {
    uint32_t best = 0, size = world->options.block_size;
    struct weft_sched_stats stats;
    weft_sched_stats(world->sched, &stats);
    if (stats.n_cache_evictions > 0)
        return 0; /* who computed what another had published keeps it
                                                  to itself, when that is gone */
    for (uint32_t i = 0; world->options.prefix_cache && i < REQUESTS_MAX; i++) {
        const struct request *other = &world->requests[i];
        if (other == req || !other->is_there || !other->runs) continue;
        uint32_t n = 0;
        while (n + 1 < req->text.n && n < other->n_computed && n < other->text.n &&
               req->text.tokens[n] == other->text.tokens[n])
            n++;
        if (n / size * size > best) best = n / size * size;
    }
    return best;
}

/* -------------------------------------------------------------------------------- submitting --- */

static void draw_request(struct world *world, struct request *req) {
    *req = (struct request){.id = ++world->n_orders, .order = world->n_orders};
    const struct request *other = &world->requests[below(world, REQUESTS_MAX)];
    req->n_prompt = 1 + below(world, world->options.max_model_len + 1);
    if (req->n_prompt > LEN_MAX) req->n_prompt = LEN_MAX;
    req->n_max = 1 + below(world, 12);
    req->priority = (int32_t)below(world, 3) - 1;
    bool is_alike = below(world, 2) && other != req;
    for (uint32_t i = 0; i < req->n_prompt; i++)
        req->text.tokens[i] =
            is_alike && i < other->text.n ? other->text.tokens[i] : below(world, N_VOCAB);
    req->text.n = req->n_prompt;
    req->due_us = world->now_us + 60000000;
}

static enum weft_reject expected_reject(const struct world *world, const struct request *req) {
    const struct weft_sched_options *o = &world->options;
    uint32_t longest = req->n_prompt + req->n_max, n_waiting = 0;
    uint64_t n_tokens = 0;
    if (longest > o->max_model_len) longest = o->max_model_len;
    if (req->n_prompt + 1 > o->max_model_len || blocks_for(world, longest) > o->n_blocks)
        return WEFT_REJECT_TOO_LONG;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        const struct request *other = &world->requests[i];
        if (other == req || !other->is_there || other->runs) continue;
        n_waiting++;
        n_tokens += other->n_prompt;
    }
    if (n_waiting >= o->max_queue + (world->places - n_running(world)))
        return WEFT_REJECT_QUEUE_FULL;
    if (o->max_queued_tokens > 0 && n_tokens > 0 && n_tokens + req->n_prompt > o->max_queued_tokens)
        return WEFT_REJECT_OVERLOADED;
    return WEFT_REJECT_NONE;
}

static void arrive(struct world *world) {
    struct request *req = NULL;
    for (uint32_t i = 0; i < REQUESTS_MAX && !req; i++) {
        if (!world->requests[i].is_there) req = &world->requests[i];
    }
    if (!req) return;
    draw_request(world, req);
    struct weft_submit submit = {.request_id = req->id,
                                 .prompt = req->text.tokens,
                                 .n_prompt = req->n_prompt,
                                 .n_choices = 1,
                                 .priority = req->priority};
    weft_sampling_init(&submit.sampling);
    submit.sampling.max_tokens = req->n_max;
    submit.sampling.seed = req->id;
    uint32_t retry_after_ms;
    struct weft_errmsg why;
    enum weft_reject expected = expected_reject(world, req);
    enum weft_reject reject =
        weft_sched_submit(world->sched, world->now_us, 0, &submit, &retry_after_ms, &why);
    WEFT_ASSERT(reject == expected);
    req->is_there = reject == WEFT_REJECT_NONE;
    totals.n_refused += reject != WEFT_REJECT_NONE;
}

static void cancel(struct world *world) {
    struct request *req = &world->requests[below(world, REQUESTS_MAX)];
    if (!req->is_there) return;
    struct weft_sched_key key = {.request_id = req->id};
    weft_sched_cancel(world->sched, world->now_us, &key, UINT32_MAX);
    req->is_there = false;
    totals.n_cancels++;
}

/* ------------------------------------------------------------------------------------ a plan --- */

static struct request *in_slot(struct world *world, uint32_t slot, uint32_t gen) {
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        struct request *req = &world->requests[i];
        if (req->is_there && req->runs && req->slot == slot && req->gen == gen) return req;
    }
    return NULL;
}

static uint32_t n_left(const struct request *req) {
    return req->is_there && req->runs ? req->text.n - req->n_computed : 0;
}

/* Whoever is released but was not through was preempted. */
static bool replay_releases(struct world *world, const struct weft_step_plan *plan) {
    uint32_t n_wanted = 0, n_there = n_free(world), n_preempted = 0, n_before = n_running(world);
    const struct request *oldest = NULL;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        const struct request *req = &world->requests[i];
        if (n_left(req) == 0) continue;
        if (n_left(req) == 1) n_wanted += blocks_for(world, req->n_computed + 1) > req->n_blocks;
        if (!oldest || req->order < oldest->order) oldest = req;
    }
    for (uint32_t i = 0; i < plan->n_releases; i++) {
        struct request *req = in_slot(world, plan->releases[i].slot, plan->releases[i].gen);
        if (!req) continue; /* it had ended, or was cancelled */
        WEFT_ASSERT(req != oldest && n_before > 1);
        req->runs = false;
        req->was_preempted = true;
        n_preempted++;
    }
    totals.n_preemptions += n_preempted;
    if (n_preempted == 0) return false;
    WEFT_ASSERT(n_wanted > n_there && plan->n_starts == 0);
    return true;
}

static struct request *find(struct world *world, uint64_t id) {
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        if (world->requests[i].is_there && world->requests[i].id == id) return &world->requests[i];
    }
    return NULL;
}

/* The tables as they were when the plan began decide what others may share; who started in it has
 * computed nothing. */
static void replay_start(struct world *world, const struct weft_step_start *start) {
    struct request *req = find(world, start->sampling.seed), *first = first_waiting(world);
    WEFT_ASSERT(req && !req->runs);
    WEFT_ASSERT(may_follow(world, req) || req == first || comes_before(world, req, first));
    WEFT_ASSERT(start->n_tokens == req->text.n && start->n_prompt == req->n_prompt);
    WEFT_ASSERT(memcmp(start->tokens, req->text.tokens, req->text.n * sizeof(uint32_t)) == 0);
    totals.n_missed += start->n_cached < hits_at_least(world, req);
    WEFT_ASSERT(start->n_cached <= hits_at_most(world, req));
    WEFT_ASSERT(start->n_written == start->n_cached); /* no layer is recurrent */
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        WEFT_ASSERT(!world->requests[i].is_there || !world->requests[i].runs ||
                    world->requests[i].slot != start->slot);
    req->runs = true;
    req->was_preempted = false;
    req->slot = start->slot;
    req->gen = start->gen;
    req->n_blocks = 0;
    req->n_computed = start->n_cached;
    totals.n_starts++;
    totals.n_hit_tokens += start->n_cached;
    WEFT_ASSERT(n_running(world) <= world->places);
}

static void replay_memory(struct world *world, const struct weft_step_plan *plan) {
    for (uint32_t i = 0; i < plan->n_copies; i++)
        memcpy(world->contents[plan->copies[i].to], world->contents[plan->copies[i].from],
               sizeof world->contents[0]);
    for (uint32_t i = 0; i < plan->n_grants; i++) {
        struct request *req = in_slot(world, plan->grants[i].slot, plan->grants[i].gen);
        WEFT_ASSERT(req != NULL);
        for (uint32_t k = 0; k < plan->grants[i].n_blocks; k++) {
            WEFT_ASSERT(req->n_blocks < blocks_for(world, world->options.max_model_len));
            WEFT_ASSERT(!in_table(req, plan->grants[i].blocks[k]));
            req->blocks[req->n_blocks++] = plan->grants[i].blocks[k];
        }
    }
}

static void compute(struct world *world, struct request *req, uint32_t n_tokens) {
    uint32_t size = world->options.block_size;
    for (uint32_t pos = 0; pos < req->n_computed; pos++) {
        const struct text *there = &world->contents[req->blocks[pos / size]][pos % size];
        WEFT_ASSERT(there->n == pos + 1 && begins_with(&req->text, there));
    }
    for (; n_tokens > 0; n_tokens--, req->n_computed++) {
        uint32_t block = req->blocks[req->n_computed / size];
        WEFT_ASSERT(req->n_computed / size < req->n_blocks && n_users(world, block) == 1);
        struct text *there = &world->contents[block][req->n_computed % size];
        *there = req->text;
        there->n = req->n_computed + 1;
    }
}

/* One is sampled beside the guesses, and another row's place is there after them. */
static uint32_t check_guesses(const struct world *world, const struct request *req,
                              const struct weft_step_row *row) {
    uint32_t longest = req->n_prompt + req->n_max, n = row->n_spec;
    if (n == 0) return 0;
    if (longest > world->options.max_model_len) longest = world->options.max_model_len;
    WEFT_ASSERT(row->n_tokens == 1 && n_left(req) == 1 && req->n_computed >= req->n_prompt);
    WEFT_ASSERT(n <= world->options.n_spec_tokens && req->text.n + n + 1 <= longest);
    uint32_t most = req->text.n + n + 1 < longest ? req->text.n + n + 1 : longest;
    WEFT_ASSERT(most <= req->n_blocks * world->options.block_size);
    for (uint32_t pos = req->text.n; pos < req->text.n + n; pos++)
        WEFT_ASSERT(n_users(world, req->blocks[pos / world->options.block_size]) == 1);
    return n;
}

/* All that all could use, or as much as fits. */
static void replay_rows(struct world *world, const struct weft_step_plan *plan) {
    uint32_t n_wanted = 0, n_given = 0, n_streams = 0, n_guesses = 0;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        n_wanted += n_left(&world->requests[i]);
        n_streams += n_left(&world->requests[i]) == 1;
    }
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        struct request *req = in_slot(world, plan->rows[i].slot, plan->rows[i].gen);
        WEFT_ASSERT(req && plan->rows[i].n_tokens <= n_left(req));
        n_given += plan->rows[i].n_tokens;
        n_guesses += check_guesses(world, req, &plan->rows[i]);
        n_streams -= n_left(req) == 1;
        for (uint32_t k = 0; k < i; k++)
            WEFT_ASSERT(plan->rows[k].slot != plan->rows[i].slot);
    }
    WEFT_ASSERT(n_guesses <= world->options.max_batched_tokens - world->places);
    uint32_t n_most = world->options.max_batched_tokens - n_guesses;
    totals.n_guesses += n_guesses;
    WEFT_ASSERT(n_given == (n_wanted < n_most ? n_wanted : n_most));
    WEFT_ASSERT(n_streams == 0 || n_given == n_most);
    for (uint32_t i = 0; i < plan->n_rows; i++)
        compute(world, in_slot(world, plan->rows[i].slot, plan->rows[i].gen),
                plan->rows[i].n_tokens);
}

/* Called with the tables of the plan, before its rows. */
static void check_nobody_left_out(struct world *world, const struct weft_step_plan *plan) {
    const struct request *first = first_waiting(world);
    uint32_t n_before = 0;
    bool is_restart = false; /* of a sequence with output, of which a plan holds few */
    for (uint32_t i = 0; i < plan->n_starts; i++)
        is_restart = is_restart || plan->starts[i].n_tokens > plan->starts[i].n_prompt;
    if (!first || n_running(world) == world->places || !world->options.evict_last) return;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        const struct request *req = &world->requests[i];
        n_before += computes_prompt(req);
        /* It may as well have no room, and nobody overtakes it then. */
        if (req->is_there && !req->runs && may_follow(world, req)) return;
    }
    if (world->options.policy == WEFT_SCHED_EDF && n_before >= PROMPTS_AHEAD) return;
    if (is_restart && first->text.n > first->n_prompt) return;
    uint32_t n_shared = hits_at_most(world, first) / world->options.block_size;
    uint32_t n_least = blocks_for(world, first->text.n) - n_shared;
    totals.n_waits++;
    WEFT_ASSERT(n_free(world) < n_least + n_shared + n_running(world));
}

static void check_memory(const struct world *world) {
    struct weft_sched_stats stats;
    weft_sched_stats(world->sched, &stats);
    WEFT_ASSERT(stats.n_blocks_free == n_free(world));
    WEFT_ASSERT(stats.n_running_seqs == n_running(world));
}

static void answer(struct world *world, const struct weft_step_plan *plan) {
    struct weft_step_out outs[REQUESTS_MAX];
    struct weft_step_result result = {.epoch = plan->epoch,
                                      .step = plan->step,
                                      .busy_us = 1000,
                                      .n_outs = plan->n_rows,
                                      .outs = outs};
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct weft_step_row *row = &plan->rows[i];
        struct request *req = in_slot(world, row->slot, row->gen);
        outs[i] = (struct weft_step_out){.slot = row->slot, .gen = row->gen, .ran = true};
        result.n_tokens += row->n_tokens;
        if (req->n_computed < req->text.n) continue;
        outs[i].sampled = true;
        outs[i].output_idx = req->text.n - req->n_prompt;
        outs[i].token = below(world, N_VOCAB);
        req->text.tokens[req->text.n++] = outs[i].token;
        outs[i].n_proposed = below(world, row->n_spec + 1);
        outs[i].n_accepted = outs[i].n_more = below(world, outs[i].n_proposed + 1);
        outs[i].more = req->text.tokens + req->text.n;
        for (uint32_t k = 0; k < outs[i].n_accepted; k++) {
            req->text.tokens[req->text.n++] = below(world, N_VOCAB);
            compute(world, req, 1);
        }
        bool is_over = req->text.n == req->n_prompt + req->n_max ||
                       req->text.n == world->options.max_model_len;
        if (!is_over) continue;
        outs[i].finish = WEFT_END_LENGTH;
        req->is_there = false;
        totals.n_ends++;
    }
    struct weft_errmsg why;
    world->now_us += result.busy_us;
    WEFT_ASSERT(!weft_sched_result(world->sched, world->now_us, &result, &why));
    weft_sched_events_clear(world->sched);
}

static bool step(struct world *world) {
    const struct weft_step_plan *plan;
    if (!weft_sched_plan(world->sched, world->now_us, &plan)) return false;
    bool preempted = replay_releases(world, plan);
    for (uint32_t i = 0; i < plan->n_starts; i++)
        replay_start(world, &plan->starts[i]);
    replay_memory(world, plan);
    if (!preempted) check_nobody_left_out(world, plan);
    check_memory(world);
    replay_rows(world, plan);
    answer(world, plan);
    totals.n_steps++;
    return true;
}

/* ----------------------------------------------------------------------------------- worlds --- */

static void draw_options(struct world *world) {
    struct weft_sched_options *o = &world->options;
    o->max_model_len = 4 + below(world, LEN_MAX - 4);
    o->block_size = 1 + below(world, BLOCK_MAX);
    uint32_t longest = blocks_for(world, o->max_model_len);
    o->n_blocks = longest + below(world, 3 * longest);
    if (o->n_blocks > BLOCKS_MAX) o->n_blocks = BLOCKS_MAX;
    o->max_seqs = 1 + below(world, 12);
    o->max_batched_tokens = 1 + below(world, 40);
    o->n_vocab = N_VOCAB;
    o->max_queue = 1 + below(world, 30);
    o->max_queued_tokens = below(world, 3) ? 0 : 20 + below(world, 300);
    o->prefix_cache = below(world, 3) > 0;
    o->cache_seed = world->rand;
    o->policy = (enum weft_sched_policy)below(world, WEFT_SCHED_POLICY_COUNT);
    o->evict_last = below(world, 2);
    o->n_spec_tokens = below(world, 2) ? 0 : 1 + below(world, 6);
    world->places = o->max_seqs < o->max_batched_tokens ? o->max_seqs : o->max_batched_tokens;
}

static void run_world(struct world *world, uint64_t seed) {
    struct weft_errmsg why;
    memset(world, 0, sizeof *world);
    world->rand = seed;
    world->now_us = 1000000;
    draw_options(world);
    WEFT_ASSERT(!weft_sched_new(&world->options, &world->sched, &why));
    weft_sched_new_epoch(world->sched, world->now_us, 1);
    uint32_t busy = 2 + below(world, 12);
    for (uint32_t i = 0; i < N_STEPS; i++) {
        world->now_us += below(world, 100);
        while (below(world, busy) == 0)
            arrive(world);
        if (below(world, 20) == 0) cancel(world);
        (void)step(world);
        weft_sched_check(world->sched);
    }
    while (step(world)) {
    }
    WEFT_ASSERT(weft_sched_idle(world->sched));
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        WEFT_ASSERT(!world->requests[i].is_there);
    weft_sched_free(world->sched);
}

int main(void) {
    weft_check_actor("prop_scheduler");
    uint64_t seed = weft_rand_test_seed();
    (void)fflush(stdout); /* an abort must not swallow the seed */
    struct world *world = calloc(1, sizeof *world);
    WEFT_ASSERT(world != NULL);
    uint32_t n_worlds = getenv("WEFT_SANITIZED") ? N_WORLDS / 10 : N_WORLDS;
    for (uint32_t i = 0; i < n_worlds; i++)
        run_world(world, weft_rand_next(&seed));
    free(world);
    /* Who computed the same as another at the same time keeps what follows to itself. */
    WEFT_ASSERT(totals.n_missed <= 2 + totals.n_starts / 1000);
    printf("%" PRIu64 " plans: %" PRIu64 " starts with %" PRIu64 " tokens cached, %" PRIu64
           " preemptions, %" PRIu64 " ends, %" PRIu64 " cancels, %" PRIu64 " refusals, %" PRIu64
           " times the first in line had no room, %" PRIu64 " guesses\n",
           totals.n_steps, totals.n_starts, totals.n_hit_tokens, totals.n_preemptions,
           totals.n_ends, totals.n_cancels, totals.n_refused, totals.n_waits, totals.n_guesses);
    WEFT_ASSERT(totals.n_guesses > 0);
    return 0;
}
