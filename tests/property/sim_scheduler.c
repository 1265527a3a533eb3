/* A simulated day: the scheduler between routers that submit, cancel, resume and vanish, and a
 * worker that dies, on a clock that only the dice move.
 *
 * Worlds of random shape (tiny pools, one slot or many, one token per step or plenty) run one after
 * the other from one seed, STEPS steps in total. In every other one requests come as they were
 * recorded, where the traces are at hand. Throughout:
 *   - the worker holds every plan against base/step.h, and every block against the history that its
 *     reader expects (sim_worker.h);
 *   - every stream yields the tokens of sim_token: no token lost, doubled or out of place, across
 *     preemptions, workers' deaths, schedulers' deaths and resubmissions; prompt
 *     log-probabilities likewise;
 *   - after each plan every slot in use belongs to a stream that somebody still waits for;
 *   - every accepted request ends within a bound of steps;
 *   - no step yields more log-probabilities than the budget, however many are asked for;
 *   - a beam search yields what one finds that is told all about the worker beforehand;
 *   - a request of which every worker dies ends, and soon; others end so only if as many workers
 *     were lost since they last got something;
 *   - refusals are justified; deadlines are kept;
 *   - sessions keep to their bounds, and take no block from anybody who wants it;
 *   - at the end of a world nothing is left: requests, slots, blocks.
 * At the end of a run whatever it is about must have happened: see check_all_happened.
 * Every eighth world is run twice and must make the same plans.
 *
 * WEFT_SEED replays a run (where as many traces are at hand), WEFT_STEPS changes its length. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/parse.h"
#include "base/rand.h"
#include "property/sim_beams.h"
#include "property/sim_trace.h"
#include "property/sim_worker.h"
#include "scheduler/scheduler.h"
#include "scheduler/sessions.h"
#include "scheduler/step_cost.h"

#define STEPS 2000000u /* five runs of it in CI, each from a seed of its own */
#define STEPS_SANITIZED 200000u
#define WORLD_STEPS 2500u
#define CLIENTS_MAX 96u
#define ANNOUNCED_MAX 64u
#define CHOICES_MAX 20u
#define LEN_MAX 192u
#define N_ROUTERS 3u
#define N_TENANTS 4u
#define N_VOCAB 50u
#define N_HIDDEN 30u

/* ----------------------------------------------------------------------------------- state --- */

struct stream {
    uint32_t tokens[LEN_MAX];
    uint32_t n;
    double sampler_state; /* after them */
    uint32_t n_losses;    /* workers lost since it was handed in or its last event */
    bool ended;
};

struct client {
    bool live;      /* somebody waits for it */
    bool submitted; /* the current scheduler has accepted it */
    struct weft_sched_key key;
    uint64_t arrived_us, deadline_us; /* UINT64_MAX: none */
    uint64_t since_step, end_by_step; /* starvation: see steps_bound */
    uint64_t prompt_hash;
    uint32_t prompt[LEN_MAX];
    uint32_t n_prompt, n_choices;
    uint32_t logprobs_done; /* prompt positions [0, done) */
    uint32_t deadly_len;    /* no worker survives having so much of it in the cache; 0: harmless */
    uint32_t n_killed;      /* workers, since it was handed in or came further than ever before */
    uint32_t n_survived;    /* the most of it that a worker had in the cache and lived */
    bool shifts;            /* it goes on beyond the model's length, */
    uint32_t n_keep;        /* with these */
    uint32_t tenant, flow;
    int32_t priority;
    uint64_t ttft_us;
    uint32_t stop_tokens[3];
    struct weft_logit_bias bias[1];
    struct weft_sampling sampling;
    struct weft_pooling pooling;
    struct weft_str session_id;
    struct stream streams[CHOICES_MAX];
    struct sim_beam beams[SIM_BEAMS_MAX]; /* what a search finds */
};

struct odds { /* per ten thousand turns */
    uint32_t burst, cancel, resubmit, worker_loss, sched_loss, router_loss, hostile;
    uint32_t deadly, alike, grammar; /* of newcomers */
    uint32_t reset;                  /* of the prefix cache */
    uint32_t file;                   /* sessions to be saved or restored */
};

struct slot_user {
    uint64_t request_id; /* 0: free */
    uint32_t attempt, choice;
};

struct world {
    uint64_t rand, now_us;
    bool is_recorded; /* requests are those of a trace */
    struct sim_trace recorded;
    uint64_t n_turns;
    bool is_plain; /* first come, first served: nobody may overtake, so each has its own bound */
    struct weft_sched_options options;
    uint32_t spill_block_us;
    struct odds odds;
    weft_sched *sched;
    uint32_t n_resumed; /* by this scheduler: no bound is theirs */
    struct sim_worker *worker;
    const struct weft_step_plan *unsent; /* made, but not on its way yet */
    struct slot_user *users;             /* [max_seqs] as the plans tell */
    struct client clients[CLIENTS_MAX];
    struct weft_kv_filed filed; /* what the worker will say of a file; its id 0: none is out */
    uint32_t file_tokens[LEN_MAX];
    uint64_t announced[ANNOUNCED_MAX]; /* grammars that the worker compiles */
    uint32_t n_announced;
    uint64_t epoch, last_request_id, n_steps;
    uint64_t trace;
};

struct totals {
    uint64_t n_worlds, n_steps, n_tokens, n_accepted, n_preemptions, n_worker_losses,
        n_sched_losses;
    uint64_t n_queue_full, n_too_long, n_deadlines, n_cancels, n_forks, n_hostile_refused;
    uint64_t n_states, n_kept, n_loaded, n_kept_evicted, n_left_alone, n_spills, n_restores,
        n_recorded, n_compiled, n_forced, n_late, n_beams, n_guessed, n_accepted_guesses;
    uint64_t n_deadly, n_given_up, n_innocent, n_pooled;
    uint64_t n_hit_tokens, n_evictions;
    uint64_t n_saved, n_files_failed;
    uint64_t n_sessions_kept, n_sessions_evicted, n_sessions_expired;
    uint64_t n_shifts;
    uint64_t n_tenant_full, n_too_late, n_overloaded;
    double bound_used_max; /* of the steps within which a request must end */
};

static struct totals totals;
static bool has_traces;

static uint32_t dice(struct world *world, uint32_t n) {
    return weft_rand_below(&world->rand, n);
}

static uint32_t between(struct world *world, uint32_t min, uint32_t max) {
    return min + dice(world, max - min + 1);
}

static bool chance(struct world *world, uint32_t per_ten_thousand) {
    return dice(world, 10000) < per_ten_thousand;
}

static void trace(struct world *world, uint64_t value) {
    uint64_t state = world->trace ^ value;
    world->trace = weft_rand_next(&state);
}

/* ------------------------------------------------------------------------------ starvation --- */

/* So much output, and what is left computed again each time that tokens are dropped: two at least. */
static uint64_t shift_work(const struct world *world, uint32_t n_output) {
    return n_output + (uint64_t)(n_output / 2 + 1) * world->options.max_model_len;
}

/* Everything that all together could still compute, one token a step, and a running set to wait
 * for. Twice: two plans are in flight. */
static uint64_t steps_bound(const struct world *world) {
    uint64_t work = 0;
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        const struct client *client = &world->clients[i];
        if (!client->live) continue;
        uint32_t n_room = world->options.max_model_len - client->n_prompt;
        uint32_t n_output = client->sampling.max_tokens;
        uint64_t n_tokens = client->n_prompt + (n_output < n_room ? n_output : n_room);
        uint32_t width = client->sampling.beam_width;
        if (client->shifts) n_tokens = client->n_prompt + shift_work(world, n_output);
        work += client->n_choices * n_tokens;
        work += width * n_tokens * n_tokens; /* if each step preempts all of them */
    }
    return 64 + 2 * (work + world->options.max_seqs * world->options.max_model_len);
}

/* After an event that throws everybody back. */
static void renew_bounds(struct world *world) {
    uint64_t end_by = world->n_steps + steps_bound(world);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &world->clients[i];
        if (end_by <= client->end_by_step) continue;
        client->since_step = world->n_steps;
        client->end_by_step = end_by;
    }
}

/* Those in the background only begin to count once nobody else is there. */
static void check_nobody_starves(struct world *world) {
    bool is_busy = false;
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        const struct client *client = &world->clients[i];
        bool is_background = client->priority == WEFT_PRIORITY_BACKGROUND;
        is_busy = is_busy || (client->live && !is_background);
        WEFT_ASSERT(is_background || !client->live || world->n_steps <= client->end_by_step);
    }
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &world->clients[i];
        if (!client->live || client->priority != WEFT_PRIORITY_BACKGROUND) continue;
        if (is_busy) client->end_by_step = world->n_steps + steps_bound(world);
        WEFT_ASSERT(world->n_steps <= client->end_by_step);
    }
}

/* ------------------------------------------------------------------------------ submitting --- */

/* Any of them: those that left lately are kept for a while, so that others go on after their answers. */
static struct client *free_client(struct world *world) {
    uint32_t first = dice(world, CLIENTS_MAX);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &world->clients[(first + i) % CLIENTS_MAX];
        if (!client->live) return client;
    }
    return NULL;
}

static struct client *random_client(struct world *world) {
    struct client *client = &world->clients[dice(world, CLIENTS_MAX)];
    return client->live ? client : NULL;
}

static struct client *find_client(struct world *world, uint64_t request_id) {
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        if (world->clients[i].live && world->clients[i].key.request_id == request_id)
            return &world->clients[i];
    }
    return NULL;
}

static void draw_sampling(struct world *world, struct client *client) {
    struct weft_sampling *sampling = &client->sampling;
    weft_sampling_init(sampling);
    sampling->seed = client->key.request_id; /* identifies the request in plans */
    sampling->max_tokens =
        chance(world, 500) ? UINT32_MAX : between(world, 1, chance(world, 3000) ? 100 : 12);
    sampling->min_tokens = chance(world, 2000) ? dice(world, 5) : 0;
    uint32_t n_top_max = chance(world, 5000) ? 3 : SIM_TOP_MAX;
    if (chance(world, 2000)) sampling->n_logprobs = (int32_t)between(world, 0, n_top_max);
    if (chance(world, 2500)) sampling->n_prompt_logprobs = (int32_t)between(world, 0, n_top_max);
    if (chance(world, sampling->n_prompt_logprobs >= 0 ? 3000 : 500)) sampling->max_tokens = 0;
    if (chance(world, 3000)) {
        sampling->n_stop_tokens = between(world, 1, 3);
        for (uint32_t i = 0; i < sampling->n_stop_tokens; i++)
            client->stop_tokens[i] = dice(world, N_VOCAB);
    }
    if (chance(world, 1000)) {
        sampling->n_bias = 1;
        client->bias[0] = (struct weft_logit_bias){.token = dice(world, N_VOCAB), .bias = 1.0f};
    }
    sampling->stop_tokens = client->stop_tokens;
    sampling->bias = client->bias;
    if (!world->is_plain && chance(world, world->odds.grammar))
        sampling->grammar.kind = WEFT_GRAMMAR_JSON_OBJECT;
    /* Without a grammar each token is sampled, and tells what the state after it must be. */
    if (sampling->grammar.kind == WEFT_GRAMMAR_NONE && sampling->seed % 3 == 0)
        sampling->mirostat = 2;
}

/* A few of those that want no text want values. */
static void draw_pooling(struct world *world, struct client *client) {
    if (world->options.whole_tokens > 0) { /* everybody does */
        uint64_t seed = client->sampling.seed;
        weft_sampling_init(&client->sampling);
        client->sampling.seed = seed;
        client->sampling.max_tokens = 0;
        client->n_choices = 1;
        client->pooling.kind =
            (enum weft_pooling_kind)between(world, WEFT_POOLING_LAST, WEFT_POOLING_CLS);
        return;
    }
    bool is_candidate = client->sampling.max_tokens == 0 &&
                        client->sampling.n_prompt_logprobs < 0 && client->n_choices == 1;
    if (!is_candidate || chance(world, 3000)) return;
    client->pooling.kind =
        (enum weft_pooling_kind)between(world, WEFT_POOLING_LAST, WEFT_POOLING_TOKENS);
    client->pooling.n_ids = client->pooling.kind == WEFT_POOLING_TOKENS ? 2 : 0;
}

/* Often it begins as another's did, or goes on after what that one was answered. */
static void draw_prompt(struct world *world, struct client *client) {
    uint32_t n = 0;
    const struct client *other = &world->clients[dice(world, CLIENTS_MAX)];
    if (other != client && other->n_prompt > 0 && chance(world, world->odds.alike)) {
        const struct stream *answer = &other->streams[dice(world, other->n_choices)];
        bool goes_on = chance(world, 5000);
        for (; n < client->n_prompt && n < other->n_prompt; n++)
            client->prompt[n] = other->prompt[n];
        for (uint32_t i = 0; goes_on && n < client->n_prompt && i < answer->n; i++)
            client->prompt[n++] = answer->tokens[i];
        if (n > 0 && chance(world, 5000)) n = dice(world, n);
    }
    for (; n < client->n_prompt; n++)
        client->prompt[n] = dice(world, N_VOCAB);
}

static bool fits(const struct world *world, const struct client *client) {
    const struct weft_sched_options *o = &world->options;
    uint32_t n_least = client->sampling.max_tokens ? 1 : 0;
    if (client->n_prompt + n_least > o->max_model_len) return false;
    uint64_t n_tokens = (uint64_t)client->n_prompt + client->sampling.max_tokens;
    if (n_tokens > o->max_model_len) n_tokens = o->max_model_len;
    return (n_tokens + o->block_size - 1) / o->block_size <= o->n_blocks;
}

static uint32_t places_max(const struct world *world) {
    const struct weft_sched_options *options = &world->options;
    return options->max_seqs < options->max_batched_tokens ? options->max_seqs
                                                           : options->max_batched_tokens;
}

/* In place of what it was to be, now and then. */
static void draw_beams(struct world *world, struct client *client) {
    uint32_t n_most = places_max(world) < SIM_BEAMS_MAX ? places_max(world) : SIM_BEAMS_MAX;
    if (!chance(world, 1500) || client->n_choices > n_most || !fits(world, client) ||
        client->sampling.max_tokens == 0)
        return;
    struct weft_sampling *s = &client->sampling;
    struct weft_sampling old = *s;
    weft_sampling_init(s);
    s->seed = old.seed;
    s->max_tokens = old.max_tokens;
    s->min_tokens = old.min_tokens;
    s->stop_tokens = old.stop_tokens;
    s->n_stop_tokens = old.n_stop_tokens;
    s->beam_width = between(world, client->n_choices, n_most);
    if (s->beam_width % 3 == 0 && chance(world, 5000)) s->beam_groups = 3;
    if (chance(world, 5000)) s->diversity_penalty = 0.5f;
    s->length_penalty = chance(world, 5000) ? 0.5f : -1.0f; /* a worker knows beams by that */
    s->early_stopping = dice(world, WEFT_BEAM_STOP_COUNT);
    sim_beams_search(&world->options, s, client->prompt, client->n_prompt, client->n_choices,
                     client->beams);
    totals.n_beams++;
}

/* Which of a tenant's few conversations it belongs to. */
static void draw_session(struct world *world, struct client *client) {
    static const char names[][2] = {"a", "b", "c", "d", "e", "f"};
    bool has_one = world->options.session_ttl_us > 0 && chance(world, 6000);
    if (has_one) client->session_id = (struct weft_str){names[dice(world, 6)], 1};
}

/* Streams have room for so much. */
static void draw_shift(struct world *world, struct client *client) {
    struct weft_sampling *s = &client->sampling;
    bool may = s->beam_width == 0 && client->pooling.kind == WEFT_POOLING_NONE;
    if (!may || s->max_tokens > LEN_MAX || world->options.whole_tokens > 0 ||
        world->options.is_recurrent)
        return;
    client->shifts = chance(world, 3000);
    client->n_keep = dice(world, chance(world, 5000) ? 8 : 2 * LEN_MAX);
}

static void draw_client(struct world *world, struct client *client) {
    memset(client, 0, sizeof *client);
    client->key = (struct weft_sched_key){.router = dice(world, N_ROUTERS),
                                          .request_id = ++world->last_request_id};
    uint32_t longest = world->options.max_model_len + (chance(world, 500) ? 2 : 0);
    uint32_t n_output = 100;
    if (world->is_recorded) {
        client->n_prompt = longest;
        sim_trace_take(&world->recorded, world->n_turns, N_VOCAB, &client->n_prompt, &n_output,
                       client->prompt);
        totals.n_recorded++;
    } else {
        client->n_prompt = between(world, 1, chance(world, 7000) && longest > 24 ? 24 : longest);
        draw_prompt(world, client);
    }
    client->n_choices =
        chance(world, 7500) ? 1 : between(world, 2, chance(world, 1000) ? CHOICES_MAX : 5);
    client->arrived_us = world->now_us;
    client->deadline_us = UINT64_MAX;
    if (chance(world, 1000)) client->deadline_us = world->now_us + dice(world, 2000000) + 1;
    if (chance(world, world->odds.deadly))
        client->deadly_len = between(world, 1, client->n_prompt + 4);
    client->tenant = world->is_plain || chance(world, 7000) ? 0 : dice(world, N_TENANTS);
    client->flow = world->is_plain || chance(world, 7000) ? 0 : dice(world, 20);
    client->priority = (int32_t)dice(world, 5) - 2;
    if (!world->is_plain && chance(world, 1500)) client->priority = WEFT_PRIORITY_BACKGROUND;
    client->ttft_us = chance(world, 3000) ? between(world, 1, 5000000) : 0;
    draw_sampling(world, client);
    draw_pooling(world, client);
    if (world->is_recorded && client->pooling.kind == WEFT_POOLING_NONE)
        client->sampling.max_tokens = n_output;
    draw_beams(world, client);
    draw_shift(world, client);
    draw_session(world, client);
    if (client->sampling.beam_width > 0) client->sampling.mirostat = 0; /* a search draws nothing */
    client->prompt_hash = sim_prompt_hash(client->prompt, client->n_prompt, client->sampling.seed);
}

static enum weft_reject submit(struct world *world, struct client *client, bool resume) {
    struct weft_submit_choice choices[CHOICES_MAX];
    for (uint32_t i = 0; i < client->n_choices; i++)
        choices[i] = (struct weft_submit_choice){.output = client->streams[i].tokens,
                                                 .n_output = client->streams[i].n,
                                                 .sampler_state = client->streams[i].sampler_state,
                                                 .finished = client->streams[i].ended};
    bool overdue = client->deadline_us <= world->now_us; /* it gets one microsecond more */
    if (overdue) client->deadline_us = world->now_us + 1;
    bool has_deadline = client->deadline_us != UINT64_MAX;
    struct weft_submit message = {
        .request_id = client->key.request_id,
        .attempt = client->key.attempt,
        .prompt = client->prompt,
        .n_prompt = client->n_prompt,
        .n_choices = client->n_choices,
        .choices = resume || chance(world, 5000) ? choices : NULL,
        .n_prompt_logprobs_done = client->logprobs_done,
        .resume = resume,
        .age_us = world->now_us - client->arrived_us,
        .deadline_us = has_deadline ? client->deadline_us - world->now_us : 0,
        .sampling = client->sampling,
        .pooling = client->pooling,
        .shifts = client->shifts,
        .n_keep = client->n_keep,
        .session_id = client->session_id,
        .tenant = client->tenant,
        .flow = client->flow,
        .weight = 1 + client->tenant,
        .priority = client->priority,
        .ttft_us = client->ttft_us,
    };
    struct weft_errmsg why;
    uint32_t retry_after_ms;
    world->n_resumed += resume;
    enum weft_reject reject = weft_sched_submit(world->sched, world->now_us, client->key.router,
                                                &message, &retry_after_ms, &why);
    bool says_when = reject == WEFT_REJECT_QUEUE_FULL || reject == WEFT_REJECT_TENANT_FULL ||
                     reject == WEFT_REJECT_DEADLINE || reject == WEFT_REJECT_OVERLOADED;
    WEFT_ASSERT(says_when == (retry_after_ms >= 1000));
    return reject;
}

static void arrive(struct world *world) {
    struct client *client = free_client(world);
    if (!client) return;
    draw_client(world, client);
    struct weft_sched_stats stats;
    weft_sched_stats(world->sched, &stats);
    enum weft_reject expected = WEFT_REJECT_NONE;
    if (!fits(world, client))
        expected = WEFT_REJECT_TOO_LONG;
    else if (client->priority != WEFT_PRIORITY_BACKGROUND &&
             stats.n_waiting >= world->options.max_queue + places_max(world) - stats.n_running_seqs)
        expected = WEFT_REJECT_QUEUE_FULL;
    enum weft_reject reject = submit(world, client, false);
    /* Tenants below their share may pass a full queue; forecasts refuse what would come too late, and
     * so many tokens must not wait. */
    bool is_fair = !world->is_plain && expected == WEFT_REJECT_QUEUE_FULL &&
                   (reject == WEFT_REJECT_NONE || reject == WEFT_REJECT_TENANT_FULL);
    bool is_due = reject == WEFT_REJECT_DEADLINE && expected != WEFT_REJECT_TOO_LONG &&
                  (client->ttft_us > 0 || client->deadline_us != UINT64_MAX);
    bool is_over = reject == WEFT_REJECT_OVERLOADED && expected != WEFT_REJECT_TOO_LONG &&
                   world->options.max_queued_tokens > 0;
    bool is_behind =
        reject == WEFT_REJECT_QUEUE_FULL && client->priority == WEFT_PRIORITY_BACKGROUND;
    WEFT_ASSERT(reject == expected || is_fair || is_due || is_over || is_behind);
    WEFT_ASSERT(reject ||
                stats.n_waiting < (N_TENANTS + 1) * (world->options.max_queue + places_max(world)) +
                                      world->n_resumed);
    totals.n_too_long += reject == WEFT_REJECT_TOO_LONG;
    totals.n_queue_full += reject == WEFT_REJECT_QUEUE_FULL;
    totals.n_tenant_full += reject == WEFT_REJECT_TENANT_FULL;
    totals.n_too_late += reject == WEFT_REJECT_DEADLINE;
    totals.n_overloaded += reject == WEFT_REJECT_OVERLOADED;
    if (reject) return;
    totals.n_accepted++;
    totals.n_deadly += client->deadly_len > 0;
    client->live = client->submitted = true;
    client->since_step = world->n_steps;
    client->end_by_step = world->n_steps + steps_bound(world);
    if (!world->is_plain) renew_bounds(world);
}

static void resubmit(struct world *world, struct client *client) {
    client->key.attempt++;
    client->n_killed = client->n_survived = 0;
    for (uint32_t i = 0; i < client->n_choices; i++)
        client->streams[i].n_losses = 0;
    enum weft_reject reject = submit(world, client, true);
    WEFT_ASSERT(reject == WEFT_REJECT_NONE);
    client->submitted = true;
}

static void cancel(struct world *world, struct client *client) {
    bool is_one = chance(world, 3000) && client->sampling.beam_width == 0;
    uint32_t choice = is_one ? dice(world, client->n_choices) : UINT32_MAX;
    totals.n_cancels++;
    weft_sched_cancel(world->sched, world->now_us, &client->key, choice);
    if (choice == UINT32_MAX) {
        client->live = false;
        return;
    }
    client->streams[choice].ended = true;
    bool all = true;
    for (uint32_t i = 0; i < client->n_choices; i++)
        all = all && client->streams[i].ended;
    if (all) client->live = false;
}

/* ---------------------------------------------------------------------------------- losses --- */

static void take_events(struct world *world);

static void lose_worker(struct world *world) {
    totals.n_worker_losses++;
    world->unsent = NULL;
    world->n_announced = 0;
    weft_sched_new_epoch(world->sched, world->now_us, ++world->epoch);
    world->filed.id = 0;
    sim_worker_reset(world->worker, world->epoch);
    memset(world->users, 0, world->options.max_seqs * sizeof *world->users);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        for (uint32_t k = 0; k < CHOICES_MAX; k++)
            world->clients[i].streams[k].n_losses++;
    }
    take_events(world);
    renew_bounds(world);
}

static void note_progress(struct world *world) {
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &world->clients[i];
        if (!client->live || client->deadly_len == 0) continue;
        uint32_t reached = sim_worker_reaches(world->worker, client->sampling.seed);
        if (reached <= client->n_survived) continue;
        client->n_survived = reached;
        client->n_killed = 0;
    }
}

/* Whether the worker dies of the plan it is about to run. No request may kill many without being
 * computed further than before; chunks end at other places after each death, so that happens. */
static bool kill_worker(struct world *world) {
    bool is_deadly = false;
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &world->clients[i];
        if (!client->live || client->deadly_len == 0) continue;
        if (sim_worker_reaches(world->worker, client->sampling.seed) < client->deadly_len) continue;
        is_deadly = true;
        uint32_t n_seqs = client->n_choices + client->sampling.beam_width;
        WEFT_ASSERT(++client->n_killed <= 3 * WEFT_SEQ_LOSSES_MAX * n_seqs);
    }
    if (is_deadly)
        lose_worker(world);
    else
        note_progress(world);
    return is_deadly;
}

static void start_actors(struct world *world) {
    struct weft_errmsg why;
    WEFT_ASSERT(!weft_sched_new(&world->options, &world->sched, &why));
    world->n_resumed = 0;
    world->worker = sim_worker_new(&world->options);
    sim_worker_spill_cost(world->worker, world->spill_block_us);
    sim_worker_costs(world->worker, between(world, 100, 3000), between(world, 10, 3000));
    weft_sched_new_epoch(world->sched, world->now_us, ++world->epoch);
    world->filed.id = 0;
    sim_worker_reset(world->worker, world->epoch);
    world->unsent = NULL;
    world->n_announced = 0;
    memset(world->users, 0, world->options.max_seqs * sizeof *world->users);
}

static void stop_actors(struct world *world) {
    struct weft_sched_stats stats;
    weft_sched_stats(world->sched, &stats);
    totals.n_preemptions += stats.n_preemptions;
    totals.n_hit_tokens += stats.n_cache_hit_tokens;
    totals.n_kept += stats.n_checkpoints_taken;
    totals.n_loaded += stats.n_checkpoint_hits;
    totals.n_kept_evicted += stats.n_checkpoints_evicted;
    totals.n_evictions += stats.n_cache_evictions;
    totals.n_sessions_kept += stats.n_sessions_kept;
    totals.n_sessions_evicted += stats.n_sessions_evicted;
    totals.n_sessions_expired += stats.n_sessions_expired;
    totals.n_forced += stats.n_forced_tokens;
    totals.n_guessed += stats.n_draft_tokens;
    totals.n_accepted_guesses += stats.n_draft_accepted;
    totals.n_late += stats.n_late_masks;
    totals.n_shifts += stats.n_context_shifts;
    weft_sched_free(world->sched);
    sim_worker_free(world->worker);
}

/* Its successor knows nothing; the routers hand in what they have, in any order, some later. */
static void lose_scheduler(struct world *world) {
    totals.n_sched_losses++;
    stop_actors(world);
    start_actors(world);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++)
        world->clients[i].submitted = false;
}

static void lose_router(struct world *world) {
    uint32_t router = dice(world, N_ROUTERS);
    weft_sched_router_lost(world->sched, world->now_us, router);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        if (world->clients[i].key.router == router) world->clients[i].live = false;
    }
}

/* Sorted neither by age nor by id. */
static void hand_in_again(struct world *world, uint32_t per_ten_thousand) {
    uint32_t offset = dice(world, CLIENTS_MAX);
    bool any = false;
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &world->clients[(i + offset) % CLIENTS_MAX];
        if (!client->live || client->submitted || !chance(world, per_ten_thousand)) continue;
        resubmit(world, client);
        any = true;
    }
    if (any) renew_bounds(world);
}

/* ---------------------------------------------------------------------------------- events --- */

/* One choice is enough to end them all. */
static uint32_t most_losses(const struct client *client) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < client->n_choices; i++) {
        if (client->streams[i].n_losses > most) most = client->streams[i].n_losses;
    }
    return most;
}

static void end_stream(struct world *world, struct client *client, uint32_t choice,
                       enum weft_end end) {
    struct stream *stream = &client->streams[choice];
    const struct weft_sampling *sampling = &client->sampling;
    stream->ended = true;
    if (sampling->beam_width > 0 && (end == WEFT_END_LENGTH || end == WEFT_END_STOP))
        WEFT_ASSERT(stream->n == client->beams[choice].n && end == client->beams[choice].end);
    else if (end == WEFT_END_LENGTH)
        WEFT_ASSERT(
            stream->n == sampling->max_tokens ||
            (client->n_prompt + stream->n == world->options.max_model_len && !client->shifts));
    if (end == WEFT_END_ERROR) {
        WEFT_ASSERT(most_losses(client) >= WEFT_SEQ_LOSSES_MAX);
        totals.n_given_up += client->deadly_len > 0;
        totals.n_innocent += client->deadly_len == 0;
    } else if (end == WEFT_END_DEADLINE) {
        WEFT_ASSERT(client->deadline_us <= world->now_us ||
                    world->options.queue_timeout_us + world->options.run_timeout_us > 0);
        totals.n_deadlines++;
    } else if (sampling->n_prompt_logprobs >= 0 && client->n_prompt > 1) {
        WEFT_ASSERT(client->logprobs_done == client->n_prompt);
    }
    for (uint32_t i = 0; i < client->n_choices; i++) {
        if (!client->streams[i].ended) return;
    }
    client->live = false;
    uint64_t used = world->n_steps - client->since_step;
    double share = (double)used / (double)(client->end_by_step - client->since_step);
    if (share > totals.bound_used_max) totals.bound_used_max = share;
}

static void take_prompt_logprobs(struct client *client, const struct weft_event *out) {
    WEFT_ASSERT(out->prompt_pos == (client->logprobs_done ? client->logprobs_done : 1));
    WEFT_ASSERT(out->prompt_pos + out->n_prompt_logprobs <= client->n_prompt);
    for (uint32_t i = 0; i < out->n_prompt_logprobs; i++) {
        float expected = sim_prompt_logprob(client->prompt_hash, out->prompt_pos + i);
        WEFT_ASSERT(out->prompt_logprobs[i].logprob == expected);
    }
    client->logprobs_done = out->prompt_pos + out->n_prompt_logprobs;
}

/* They come with the end, if it is not a bad one. */
static void take_values(struct world *world, const struct client *client,
                        const struct weft_event *out) {
    bool ends_well = out->end == WEFT_END_LENGTH;
    uint32_t n = weft_pooling_n_values(&client->pooling, &world->options.shape);
    WEFT_ASSERT(out->n_values == (ends_well ? n : 0));
    for (uint32_t i = 0; i < out->n_values; i++)
        WEFT_ASSERT(out->values[i] == sim_value(client->prompt_hash, i));
    totals.n_pooled += out->n_values > 0;
}

static void take_event(struct world *world, uint32_t router, const struct weft_event *event) {
    struct client *client = find_client(world, event->request_id);
    WEFT_ASSERT(client && client->submitted); /* no event after the end, or of the cancelled */
    WEFT_ASSERT(event->attempt == client->key.attempt);
    WEFT_ASSERT(router == client->key.router);
    WEFT_ASSERT(event->choice < client->n_choices);
    struct stream *stream = &client->streams[event->choice];
    WEFT_ASSERT(!stream->ended);
    bool tells = event->sampled || event->n_prompt_logprobs > 0;
    WEFT_ASSERT(tells || event->end);
    if (tells) stream->n_losses = 0;
    if (event->n_prompt_logprobs) take_prompt_logprobs(client, event);
    take_values(world, client, event);
    if (event->sampled) {
        bool is_beam = client->sampling.beam_width > 0;
        uint32_t token = is_beam
                             ? client->beams[event->choice].tokens[stream->n]
                             : sim_token(client->prompt_hash, event->choice, stream->n, N_VOCAB);
        WEFT_ASSERT(event->output_idx == stream->n && event->token == token);
        WEFT_ASSERT(event->has_logprobs == (client->sampling.n_logprobs >= 0));
        stream->tokens[stream->n++] = token;
        stream->sampler_state = event->sampler_state;
        totals.n_tokens++;
    }
    trace(world, event->request_id * 8 + (uint64_t)event->end);
    if (event->end) end_stream(world, client, event->choice, event->end);
}

static void take_events(struct world *world) {
    size_t n;
    const struct weft_sched_event *events = weft_sched_events(world->sched, &n);
    for (size_t i = 0; i < n; i++)
        take_event(world, events[i].router, &events[i].event);
    weft_sched_events_clear(world->sched);
}

static void tick(struct world *world) {
    weft_sched_tick(world->sched, world->now_us);
    take_events(world);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        const struct client *client = &world->clients[i];
        WEFT_ASSERT(!client->live || !client->submitted || client->deadline_us > world->now_us);
    }
}

/* ----------------------------------------------------------------------------------- steps --- */

static void trace_plan(struct world *world, const struct weft_step_plan *plan) {
    trace(world, plan->epoch * 1000003 + plan->step);
    for (uint32_t i = 0; i < plan->n_releases; i++)
        trace(world, ((uint64_t)plan->releases[i].slot << 32) | plan->releases[i].gen);
    for (uint32_t i = 0; i < plan->n_starts; i++)
        trace(world, plan->starts[i].sampling.seed * 64 + plan->starts[i].n_cached);
    for (uint32_t i = 0; i < plan->n_spills; i++)
        trace(world, ((uint64_t)plan->spills[i].block << 32) | plan->spills[i].slot);
    for (uint32_t i = 0; i < plan->n_restores; i++)
        trace(world, ((uint64_t)plan->restores[i].block << 32) | plan->restores[i].slot);
    totals.n_spills += plan->n_spills;
    totals.n_restores += plan->n_restores;
    for (uint32_t i = 0; i < plan->n_copies; i++)
        trace(world, ((uint64_t)plan->copies[i].from << 32) | plan->copies[i].to);
    for (uint32_t i = 0; i < plan->n_grants; i++) {
        for (uint32_t b = 0; b < plan->grants[i].n_blocks; b++)
            trace(world, plan->grants[i].blocks[b]);
    }
    for (uint32_t i = 0; i < plan->n_states; i++)
        trace(world, ((uint64_t)plan->states[i].op << 32) + plan->states[i].slot +
                         ((uint64_t)plan->states[i].other << 16));
    for (uint32_t i = 0; i < plan->n_rows; i++)
        trace(world, ((uint64_t)plan->rows[i].slot << 32) | plan->rows[i].n_tokens);
    totals.n_states += plan->n_states;
}

/* A request that leaves is out of the next plan made: after that, somebody waits for all
 * that is in slots. */
static void follow_slots(struct world *world, const struct weft_step_plan *plan) {
    for (uint32_t i = 0; i < plan->n_releases; i++)
        world->users[plan->releases[i].slot].request_id = 0;
    for (uint32_t i = 0; i < plan->n_starts; i++) {
        const struct weft_step_start *start = &plan->starts[i];
        const struct client *client = find_client(world, start->sampling.seed);
        WEFT_ASSERT(client);
        world->users[start->slot] = (struct slot_user){.request_id = client->key.request_id,
                                                       .attempt = client->key.attempt,
                                                       .choice = start->choice};
        totals.n_forks += start->n_cached > 0;
        totals.n_left_alone += start->n_written - start->n_cached;
    }
    for (uint32_t i = 0; i < world->options.max_seqs; i++) {
        const struct slot_user *user = &world->users[i];
        if (user->request_id == 0) continue;
        const struct client *client = find_client(world, user->request_id);
        WEFT_ASSERT(client && client->submitted && client->key.attempt == user->attempt);
        WEFT_ASSERT(!client->streams[user->choice].ended || client->sampling.beam_width > 0);
    }
}

/* Plans are valid until the next one is made: they are copied at the last moment, so that memory
 * freed too early shows. */
static void send_plan(struct world *world) {
    if (world->unsent) sim_worker_send(world->worker, world->unsent);
    world->unsent = NULL;
}

/* The worker compiles what it heard of, each in its time; a loss makes it forget them. */
static void compile(struct world *world) {
    const struct weft_grammar *grammar = NULL;
    while (world->n_announced < ANNOUNCED_MAX &&
           weft_sched_next_grammar(world->sched, world->now_us,
                                   &world->announced[world->n_announced], &grammar)) {
        WEFT_ASSERT(grammar->kind == WEFT_GRAMMAR_JSON_OBJECT);
        world->n_announced++;
    }
    for (uint32_t i = world->n_announced; i-- > 0;) {
        if (chance(world, 3000)) continue;
        weft_sched_compiled(world->sched, world->now_us, world->announced[i]);
        world->announced[i] = world->announced[--world->n_announced];
        totals.n_compiled++;
    }
}

static bool make_plan(struct world *world) {
    send_plan(world);
    tick(world);
    const struct weft_step_plan *plan;
    bool made = weft_sched_plan(world->sched, world->now_us, &plan);
    compile(world);
    WEFT_ASSERT(made == (plan != NULL));
    if (!made) return false;
    world->unsent = plan;
    trace_plan(world, plan);
    follow_slots(world, plan);
    return true;
}

/* ----------------------------------------------------------------------------------- files --- */

static void ask_for_file(struct world *world) {
    static const struct weft_str names[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    const struct client *client = &world->clients[dice(world, CLIENTS_MAX)]; /* or who was there */
    const struct weft_session_wish wish = {
        .op = chance(world, 6000) ? WEFT_SESSION_SAVE : WEFT_SESSION_RESTORE,
        .tenant = client->tenant,
        .session_id = client->session_id.len > 0 ? client->session_id : names[dice(world, 3)],
        .file = names[0],
    };
    struct weft_errmsg why;
    weft_err err = weft_sched_session_ask(world->sched, world->now_us, 0, &wish, &why);
    bool has_none = !world->options.prefix_cache || world->options.session_ttl_us == 0;
    WEFT_ASSERT(err == (has_none ? WEFT_E_UNSUPPORTED : WEFT_OK) || err == WEFT_E_AGAIN);
}

/* The simulated worker's blocks have histories, which no file has: what is read fails in the end. */
static void make_answer(struct world *world, const struct weft_kv_file *file) {
    uint32_t bs = world->options.block_size, n_max = world->options.max_model_len / bs + 1;
    bool fails = file->op == WEFT_KV_FILE_READ || chance(world, 2000);
    world->filed = (struct weft_kv_filed){.epoch = file->epoch,
                                          .id = file->id,
                                          .err = fails ? WEFT_E_IO : WEFT_OK,
                                          .text = "",
                                          .tokens = world->file_tokens};
    if (file->op != WEFT_KV_FILE_OPEN || fails) return;
    world->filed.n_tokens = bs * dice(world, n_max + 1);
    if (world->filed.n_tokens > LEN_MAX) world->filed.n_tokens = 0;
    for (uint32_t i = 0; i < world->filed.n_tokens; i++)
        world->file_tokens[i] = dice(world, N_VOCAB);
}

static void run_files(struct world *world) {
    struct weft_errmsg why;
    struct weft_session_answer answer;
    const struct weft_kv_file *file = NULL;
    uint32_t router;
    if (world->filed.id > 0 && chance(world, 2000)) {
        weft_err err = weft_sched_filed(world->sched, world->now_us, &world->filed, &why);
        WEFT_ASSERT(!err);
        world->filed.id = 0;
    }
    if (weft_sched_next_file(world->sched, &file)) {
        WEFT_ASSERT(world->filed.id == 0); /* one at a time */
        make_answer(world, file);
    }
    while (weft_sched_session_answered(world->sched, &router, &answer)) {
        totals.n_saved += !answer.err;
        totals.n_files_failed += answer.err == WEFT_E_IO;
    }
}

/* ---------------------------------------------------------------------------------- results --- */

/* Flips something. It may hit a row that nobody waits for and be taken; never a live one: the
 * streams would show it. */
static void spoil_result(struct world *world, struct weft_step_result *result,
                         struct weft_step_out *outs) {
    memcpy(outs, result->outs, result->n_outs * sizeof *outs);
    result->outs = outs;
    if (result->n_outs == 0 || chance(world, 1000)) {
        result->n_outs++;
        return;
    }
    struct weft_step_out *out = &outs[dice(world, result->n_outs)];
    static const uint32_t beyond = N_VOCAB;
    switch (dice(world, 11)) {
    case 0:
        out->slot++;
        break;
    case 1:
        out->gen--;
        break;
    case 2:
        out->ran = !out->ran;
        break;
    case 3:
        out->sampled = !out->sampled;
        break;
    case 4:
        out->token = out->sampled ? N_VOCAB + dice(world, 5) : 0;
        break;
    case 5:
        out->output_idx += out->sampled;
        break;
    case 6:
        out->finish = (enum weft_end)dice(world, 5);
        break;
    case 7:
        out->more = &beyond;
        out->n_more = 1;
        break;
    case 8:
        out->is_late = !out->is_late;
        break;
    case 9:
        out->n_proposed += WEFT_SPEC_TOKENS_MAX + 1;
        break;
    default:
        out->n_prompt_logprobs += 1;
        break;
    }
}

static void try_hostile_result(struct world *world, const struct weft_step_result *honest) {
    struct weft_step_out outs[LEN_MAX];
    struct weft_step_result result = *honest;
    struct weft_sched_stats before, after;
    struct weft_errmsg why;
    spoil_result(world, &result, outs);
    if (chance(world, 1000)) result.step += 1 + dice(world, 3);
    /* Only a result that is refused may be followed by the honest one. */
    weft_sched_stats(world->sched, &before);
    weft_err err = weft_sched_result(world->sched, world->now_us, &result, &why);
    if (!err) return;
    WEFT_ASSERT(err == WEFT_E_PROTO);
    weft_sched_stats(world->sched, &after);
    WEFT_ASSERT(before.n_plans_out == after.n_plans_out && before.n_steps == after.n_steps);
    WEFT_ASSERT(before.n_output_tokens == after.n_output_tokens);
    WEFT_ASSERT(before.n_blocks_free == after.n_blocks_free);
    totals.n_hostile_refused++;
    WEFT_ASSERT(!weft_sched_result(world->sched, world->now_us, honest, &why));
}

static bool run_worker(struct world *world) {
    send_plan(world);
    if (sim_worker_n_queued(world->worker) == 0) return false;
    if (kill_worker(world)) return true;
    struct weft_step_result *result = sim_worker_run(world->worker);
    world->now_us += result->busy_us;
    if (chance(world, world->odds.hostile)) {
        try_hostile_result(world, result);
    } else {
        struct weft_errmsg why;
        weft_err err = weft_sched_result(world->sched, world->now_us, result, &why);
        if (err) (void)fprintf(stderr, "refused: %s\n", why.text);
        WEFT_ASSERT(!err);
    }
    world->n_steps++;
    take_events(world);
    return true;
}

/* Usually ahead of the worker by one plan, as in service; at times in lockstep. */
static bool turn(struct world *world) {
    bool moved = false;
    if (sim_worker_n_queued(world->worker) + (world->unsent != NULL) < SIM_PLANS_MAX &&
        chance(world, 8000))
        moved = make_plan(world);
    if (!moved || chance(world, 3000)) moved = run_worker(world) || moved;
    return moved;
}

/* ---------------------------------------------------------------------------------- worlds --- */

/* A world of a model that reads texts whole. */
static void draw_whole(struct world *world) {
    struct weft_sched_options *o = &world->options;
    o->whole_tokens = between(world, 1, o->max_batched_tokens);
    if (o->max_batched_tokens < o->max_model_len) o->max_batched_tokens = o->max_model_len;
    o->prefix_cache = false;
    o->window = o->n_window_blocks = o->n_spill_blocks = 0;
}

/* A world of a model whose layers carry a state. */
static void draw_recurrent(struct world *world) {
    struct weft_sched_options *o = &world->options;
    o->is_recurrent = true;
    o->n_checkpoints = chance(world, 7000) ? between(world, 1, 2) : between(world, 1, 60);
    o->checkpoint_tokens = between(world, 1, chance(world, 5000) ? 4 : 40);
    o->n_spill_blocks = o->n_spec_tokens = o->window = o->n_window_blocks = 0;
}

static void draw_world(struct world *world) {
    struct weft_sched_options *o = &world->options;
    o->max_model_len = between(world, 8, LEN_MAX - 2);
    o->block_size = chance(world, 3000) ? between(world, 1, 4) : between(world, 4, 16);
    uint32_t longest = (o->max_model_len + o->block_size - 1) / o->block_size;
    o->n_blocks = chance(world, 500) ? between(world, 1, longest)
                                     : between(world, longest, longest * between(world, 1, 6));
    o->max_seqs = chance(world, 1000) ? 1 : between(world, 2, 16);
    o->max_batched_tokens = chance(world, 2000) ? between(world, 1, 8) : between(world, 8, 96);
    o->n_vocab = N_VOCAB;
    o->shape.n_hidden = N_HIDDEN;
    o->max_queue = between(world, 1, 60);
    o->itl_target_us = chance(world, 5000)   ? 0
                       : chance(world, 5000) ? WEFT_SCHED_ITL_AUTO
                                             : between(world, 1000, 100000);
    world->is_plain = chance(world, 3000);
    if (!world->is_plain) o->policy = (enum weft_sched_policy)dice(world, WEFT_SCHED_POLICY_COUNT);
    o->max_queued_tokens = chance(world, 7000) ? 0 : between(world, 50, 3000);
    o->queue_timeout_us = chance(world, 8000) ? 0 : between(world, 100000, 3000000);
    o->run_timeout_us = chance(world, 8000) ? 0 : between(world, 100000, 3000000);
    o->n_spec_tokens = chance(world, 5000)   ? 0
                       : chance(world, 5000) ? WEFT_SCHED_SPEC_AUTO
                                             : between(world, 1, WEFT_SPEC_TOKENS_MAX);
    o->prefix_cache = chance(world, 7500);
    if (chance(world, 7000)) {
        o->session_ttl_us = between(world, 1, 2000000);
        o->max_sessions = between(world, 1, 6);
        o->max_session_blocks = between(world, 0, o->n_blocks);
    }
    o->long_prompt = chance(world, 7000) ? 0 : between(world, 1, o->max_model_len);
    o->cache_seed = world->rand;
    if (chance(world, 6000)) {
        o->window = between(world, 1, chance(world, 7000) ? 24 : o->max_model_len);
        uint32_t least = (o->window + o->block_size) / o->block_size + 1;
        if (least > longest) least = longest;
        o->n_window_blocks = between(world, least, least * between(world, 1, 6));
    } else if (chance(world, 7000)) {
        o->n_spill_blocks = between(world, 1, 2 * o->n_blocks);
        o->block_bytes = between(world, 1, 200000);
        world->spill_block_us = between(world, 0, 400);
    }
    if (chance(world, 1000)) draw_whole(world);
    if (o->whole_tokens == 0 && chance(world, 1500)) draw_recurrent(world);
    /* At least one token with the whole vocabulary; often too little for everybody. */
    o->step_logprob_bytes = chance(world, 5000) ? 0 : between(world, 12 + 8 * N_VOCAB, 2000);
    world->odds = (struct odds){
        .burst = between(world, 50, 1500),
        .cancel = chance(world, 3000) ? 0 : between(world, 0, 300),
        .resubmit = chance(world, 5000) ? 0 : between(world, 0, 100),
        .worker_loss = chance(world, 5000) ? 0 : between(world, 0, 100),
        .sched_loss = chance(world, 5000) ? 0 : between(world, 0, 50),
        .router_loss = chance(world, 5000) ? 0 : between(world, 0, 20),
        .hostile = chance(world, 5000) ? 0 : between(world, 0, 1000),
        .deadly = chance(world, 7000) ? 0 : between(world, 0, 500),
        .alike = chance(world, 3000) ? 0 : between(world, 0, 9000),
        .grammar = chance(world, 8000) ? 1500 : 9500,
        .reset = chance(world, 7000) ? 0 : between(world, 0, 200),
        .file = chance(world, 5000) ? 0 : between(world, 0, 200),
    };
}

static void disturb(struct world *world) {
    const struct odds *odds = &world->odds;
    for (uint32_t n = 0; n < CLIENTS_MAX && world->is_recorded; n++) {
        if (!sim_trace_is_due(&world->recorded, world->n_turns)) break;
        arrive(world); /* nobody free: it comes later */
    }
    if (!world->is_recorded && chance(world, odds->burst)) {
        for (uint32_t n = between(world, 1, chance(world, 2000) ? 30 : 3); n > 0; n--)
            arrive(world);
    }
    struct client *client = random_client(world);
    if (client && chance(world, odds->cancel)) {
        cancel(world, client);
    } else if (client && client->submitted && chance(world, odds->resubmit)) {
        resubmit(world, client); /* the same scheduler, a session that broke */
        renew_bounds(world);
    }
    if (chance(world, odds->worker_loss)) lose_worker(world);
    if (chance(world, odds->reset)) weft_sched_reset_cache(world->sched);
    if (chance(world, odds->file)) ask_for_file(world);
    if (chance(world, odds->sched_loss)) lose_scheduler(world);
    if (chance(world, odds->router_loss)) lose_router(world);
    hand_in_again(world, 1000);
}

static void check_drained(struct world *world) {
    struct weft_sched_stats stats;
    WEFT_ASSERT(weft_sched_idle(world->sched));
    world->now_us += world->options.session_ttl_us;
    tick(world);
    weft_sched_stats(world->sched, &stats);
    WEFT_ASSERT(stats.n_sessions == 0 && stats.n_session_blocks == 0);
    WEFT_ASSERT(stats.n_blocks_free == stats.n_blocks);
    WEFT_ASSERT(stats.n_blocks_published == 0 || world->options.prefix_cache);
    WEFT_ASSERT(stats.n_window_blocks_free == stats.n_window_blocks);
    weft_sched_reset_cache(world->sched);
    weft_sched_stats(world->sched, &stats);
    WEFT_ASSERT(stats.n_blocks_free == stats.n_blocks && stats.n_blocks_published == 0);
    WEFT_ASSERT(stats.n_checkpoints_held == 0);
    WEFT_ASSERT(stats.spill_bytes == 0);
    WEFT_ASSERT(stats.n_waiting == 0 && stats.n_running == 0);
    WEFT_ASSERT(stats.n_waiting_seqs == 0 && stats.n_running_seqs == 0);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++)
        WEFT_ASSERT(!world->clients[i].live);
    WEFT_ASSERT(sim_worker_n_slots_used(world->worker) == 0);
    weft_sched_check(world->sched);
}

/* No more requests come; all that are in must get out. */
static void drain(struct world *world) {
    weft_sched_drain(world->sched);
    struct client newcomer;
    draw_client(world, &newcomer);
    WEFT_ASSERT(submit(world, &newcomer, false) == WEFT_REJECT_DRAINING);
    hand_in_again(world, 10000);
    uint64_t n_idle = 0;
    while (n_idle < 64) { /* turns may do nothing by chance */
        n_idle = turn(world) || world->filed.id > 0 ? 0 : n_idle + 1;
        run_files(world);
        if (world->n_steps % 16 == 0) check_nobody_starves(world);
    }
    check_drained(world);
}

static uint64_t run_world(struct world *world, uint64_t seed) {
    memset(world, 0, sizeof *world);
    world->rand = seed;
    world->now_us = 1000000;
    draw_world(world);
    world->is_recorded = chance(world, 5000) && has_traces;
    if (world->is_recorded) sim_trace_begin(&world->recorded, &world->rand, between(world, 5, 60));
    world->users = calloc(world->options.max_seqs, sizeof *world->users);
    WEFT_ASSERT(world->users != NULL);
    start_actors(world);
    for (; world->n_steps < WORLD_STEPS && world->n_turns < 20 * WORLD_STEPS; world->n_turns++) {
        world->now_us += dice(world, 300);
        disturb(world);
        (void)turn(world);
        run_files(world);
        if (world->n_turns % 16 == 0) check_nobody_starves(world);
        if (world->n_turns % 32 == 0) weft_sched_check(world->sched);
    }
    drain(world);
    stop_actors(world);
    free(world->users);
    return world->trace;
}

static uint64_t wanted_steps(void) {
    const char *text = getenv("WEFT_STEPS");
    uint64_t n_steps;
    if (!text || weft_parse_u64(text, UINT64_MAX, &n_steps))
        return getenv("WEFT_SANITIZED") ? STEPS_SANITIZED : STEPS;
    return n_steps;
}

static void report(void) {
    printf("%" PRIu64 " steps in %" PRIu64 " worlds: %" PRIu64 " requests, %" PRIu64
           " tokens, %" PRIu64 " preemptions, %" PRIu64 " forks\n",
           totals.n_steps, totals.n_worlds, totals.n_accepted, totals.n_tokens,
           totals.n_preemptions, totals.n_forks);
    printf("lost: %" PRIu64 " workers, %" PRIu64 " schedulers; %" PRIu64 " cancels, %" PRIu64
           " deadlines; refused: %" PRIu64 " for the queue, %" PRIu64 " too long; %" PRIu64
           " hostile results\n",
           totals.n_worker_losses, totals.n_sched_losses, totals.n_cancels, totals.n_deadlines,
           totals.n_queue_full, totals.n_too_long, totals.n_hostile_refused);
    printf("%" PRIu64 " requests were deadly, %" PRIu64 " of them given up, and %" PRIu64
           " harmless ones\n",
           totals.n_deadly, totals.n_given_up, totals.n_innocent);
    printf("refused: %" PRIu64 " for their tenant's share, %" PRIu64 " as too late, %" PRIu64
           " for the tokens that wait\n",
           totals.n_tenant_full, totals.n_too_late, totals.n_overloaded);
    printf("%" PRIu64 " tokens found in the prefix cache, %" PRIu64 " of its blocks evicted\n",
           totals.n_hit_tokens, totals.n_evictions);
    printf("%" PRIu64 " requests came as they were recorded\n", totals.n_recorded);
    printf("%" PRIu64 " blocks spilled, %" PRIu64 " read back\n", totals.n_spills,
           totals.n_restores);
    printf("%" PRIu64 " states moved; %" PRIu64 " checkpoints, %" PRIu64 " used, %" PRIu64
           " evicted; %" PRIu64 " tokens were in blocks, but not in a state\n",
           totals.n_states, totals.n_kept, totals.n_loaded, totals.n_kept_evicted,
           totals.n_left_alone);
    printf("%" PRIu64 " beam searches, %" PRIu64 " shifts\n", totals.n_beams, totals.n_shifts);
    printf("%" PRIu64 " requests waited until their grammar was compiled; %" PRIu64
           " tokens were forced, %" PRIu64 " rows late\n",
           totals.n_compiled, totals.n_forced, totals.n_late);
    printf("%" PRIu64 " requests got values\n", totals.n_pooled);
    printf("%" PRIu64 " guesses, of which %" PRIu64 " came true\n", totals.n_guessed,
           totals.n_accepted_guesses);
    printf("%" PRIu64 " sessions saved, %" PRIu64 " not for their files\n", totals.n_saved,
           totals.n_files_failed);
    printf("%" PRIu64 " sessions kept, %" PRIu64 " evicted, %" PRIu64 " expired\n",
           totals.n_sessions_kept, totals.n_sessions_evicted, totals.n_sessions_expired);
    printf("the slowest request took %.0f %% of the steps it may take\n",
           totals.bound_used_max * 100.0);
}

/* Of a run of usual length: a rule that nothing tried was not checked. */
static void check_all_happened(void) {
    WEFT_ASSERT(totals.n_preemptions > 0 && totals.n_forks > 0 && totals.n_deadlines > 0);
    WEFT_ASSERT(totals.n_guessed > totals.n_accepted_guesses && totals.n_accepted_guesses > 0);
    WEFT_ASSERT(totals.n_compiled > 0 && totals.n_forced > 0 && totals.n_late > 0);
    WEFT_ASSERT(totals.n_beams > 0 && totals.n_shifts > 0 && totals.n_states > 0);
    WEFT_ASSERT(totals.n_kept > 0 && totals.n_loaded > 0 && totals.n_left_alone > 0);
    WEFT_ASSERT(totals.n_kept_evicted > 0 || totals.n_steps < STEPS); /* in one world of ten */
    WEFT_ASSERT(totals.n_sessions_kept > 0 && totals.n_sessions_evicted > 0);
    WEFT_ASSERT(totals.n_sessions_expired > 0 && totals.n_files_failed > 0);
    WEFT_ASSERT(totals.n_saved > 0 ||
                totals.n_steps < STEPS); /* some ten in a short run, at random */
    WEFT_ASSERT(totals.n_hit_tokens > 0 && totals.n_evictions > 0);
    WEFT_ASSERT(totals.n_spills > 0 && totals.n_restores > 0);
    WEFT_ASSERT(totals.n_recorded > 0 || !has_traces);
    WEFT_ASSERT(totals.n_worker_losses > 0 && totals.n_sched_losses > 0);
    WEFT_ASSERT(totals.n_hostile_refused > 0 && totals.n_given_up > 0 && totals.n_pooled > 0);
}

int main(void) {
    weft_check_actor("sim_scheduler");
    uint64_t seed = weft_rand_test_seed(), n_steps = wanted_steps();
    has_traces = sim_trace_open() > 0;
    (void)fflush(stdout); /* an abort must not swallow the seed */
    struct world *world = calloc(1, sizeof *world);
    WEFT_ASSERT(world != NULL);
    while (totals.n_steps < n_steps) {
        uint64_t world_seed = weft_rand_next(&seed);
        uint64_t first = run_world(world, world_seed);
        totals.n_steps += world->n_steps;
        if (totals.n_worlds++ % 8 == 0) WEFT_ASSERT(run_world(world, world_seed) == first);
    }
    free(world);
    sim_trace_close();
    report();
    if (n_steps >= STEPS_SANITIZED) check_all_happened();
    return 0;
}
