/* bench_sched — how long the scheduler thinks about a step: weft_sched_plan and weft_sched_result,
 * with a worker that answers at once.
 *
 *     bench_sched [--seqs 1000] [--steps 2000] [--tenants 50]
 *
 * Decode only: all sequences run, and each step brings one token of each. Mixed: answers are short,
 * so that in each step some end and others of a long queue take their places, a third of them with
 * a prefix that is cached. Both under each policy, with many tenants and users and with one, one
 * plan ahead of the worker as in service. The goal is less than 1 ms of processor time per step, at the
 * median and at p99; the longest step is printed beside them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/rand.h"
#include "scheduler/scheduler.h"

#define GOAL_US 1000.0
#define STEP_US 60000u /* of the worker, on the scheduler's clock: no real time passes */
#define BLOCK_SIZE 16u
#define MODEL_LEN 4096u
#define BATCHED_TOKENS_BESIDE 512u /* for prompts, beside a token of each sequence */
#define N_TEXTS 8u
#define N_SHARED 128u
#define N_WAITING 1000u
#define SEQS_MAX (WEFT_SEQS_MAX / 8 * 7 - 1)

struct params {
    uint32_t n_seqs, n_steps, n_tenants;
};

struct slot {
    uint32_t gen, n_prompt, n_tokens, n_computed, n_tokens_max;
};

struct world {
    weft_sched *sched;
    bool is_mixed;
    uint32_t n_tenants, n_seqs;
    struct slot *slots;
    struct weft_step_out *outs[WEFT_SCHED_PLANS_MAX];
    struct weft_step_result results[WEFT_SCHED_PLANS_MAX];
    uint64_t n_planned, n_taken; /* of this run */
    uint64_t now_us, last_id, rand;
    uint64_t n_prompt_tokens, n_stream_tokens, n_cached_tokens, n_preempted; /* measured steps */
    uint32_t prompt[MODEL_LEN];
};

static void *need(void *mem) {
    WEFT_ASSERT(mem != NULL);
    return mem;
}

static uint64_t clock_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts); /* other programs' turns do not count */
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint32_t draw(struct world *world, uint32_t least, uint32_t most) {
    return least + (uint32_t)(weft_rand_next(&world->rand) % (most - least + 1));
}

/* ------------------------------------------------------------------------------ the requests --- */

static void submit(struct world *world) {
    uint64_t id = ++world->last_id;
    uint32_t n_prompt = world->is_mixed ? draw(world, 64, 400) : 64;
    bool shares = draw(world, 0, 2) == 0 && n_prompt > N_SHARED;
    uint64_t text = draw(world, 0, N_TEXTS - 1);
    for (uint32_t i = 0; i < n_prompt; i++)
        world->prompt[i] =
            shares && i < N_SHARED ? (uint32_t)(text * 1000 + i) : draw(world, 10000, 31999);
    struct weft_submit request = {.request_id = id,
                                  .attempt = 1,
                                  .prompt = world->prompt,
                                  .n_prompt = n_prompt,
                                  .n_choices = 1,
                                  .priority = (int32_t)draw(world, 0, 3),
                                  .ttft_us = (uint64_t)draw(world, 600, 6000) * 1000000,
                                  .tenant = 1 + id % world->n_tenants,
                                  .flow = 1 + id / world->n_tenants % 4,
                                  .weight = 1 + (uint32_t)(id % world->n_tenants % 3)};
    weft_sampling_init(&request.sampling);
    request.sampling.max_tokens = world->is_mixed ? draw(world, 16, 240) : MODEL_LEN - n_prompt;
    uint32_t retry_after_ms;
    struct weft_errmsg why;
    enum weft_reject reject =
        weft_sched_submit(world->sched, world->now_us, 0, &request, &retry_after_ms, &why);
    WEFT_ASSERT(reject == WEFT_REJECT_NONE || reject == WEFT_REJECT_TENANT_FULL ||
                reject == WEFT_REJECT_QUEUE_FULL);
}

static void refill(struct world *world) {
    struct weft_sched_stats stats;
    weft_sched_stats(world->sched, &stats);
    uint32_t wanted = world->n_seqs + (world->is_mixed ? N_WAITING : 0);
    for (uint32_t n = stats.n_running + stats.n_waiting; n < wanted; n++)
        submit(world);
}

/* -------------------------------------------------------------------------------- the worker --- */

static void start(struct world *world, const struct weft_step_start *start) {
    world->slots[start->slot] =
        (struct slot){.gen = start->gen,
                      .n_prompt = start->n_prompt,
                      .n_tokens = start->n_tokens,
                      .n_computed = start->n_cached,
                      .n_tokens_max = start->n_prompt + start->sampling.max_tokens};
    world->n_cached_tokens += start->n_cached;
    if (start->n_tokens > start->n_prompt) world->n_preempted++;
}

static void run_row(struct world *world, const struct weft_step_row *row,
                    struct weft_step_out *out) {
    struct slot *slot = &world->slots[row->slot];
    *out = (struct weft_step_out){.slot = row->slot, .gen = row->gen};
    if (slot->n_tokens == slot->n_tokens_max) return; /* it had ended before */
    WEFT_ASSERT(slot->gen == row->gen && slot->n_computed + row->n_tokens <= slot->n_tokens);
    out->ran = true;
    if (slot->n_computed >= slot->n_prompt)
        world->n_stream_tokens += row->n_tokens;
    else
        world->n_prompt_tokens += row->n_tokens;
    slot->n_computed += row->n_tokens;
    if (slot->n_computed < slot->n_tokens) return;
    out->sampled = true;
    out->output_idx = slot->n_tokens - slot->n_prompt;
    out->token = 1 + out->output_idx % 31999;
    if (++slot->n_tokens == slot->n_tokens_max) out->finish = WEFT_END_LENGTH;
}

static void execute(struct world *world, const struct weft_step_plan *plan) {
    uint32_t at = world->n_planned++ % WEFT_SCHED_PLANS_MAX;
    struct weft_step_result *result = &world->results[at];
    *result = (struct weft_step_result){.epoch = plan->epoch,
                                        .step = plan->step,
                                        .busy_us = STEP_US,
                                        .outs = world->outs[at],
                                        .n_outs = plan->n_rows};
    for (uint32_t i = 0; i < plan->n_starts; i++)
        start(world, &plan->starts[i]);
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        run_row(world, &plan->rows[i], &world->outs[at][i]);
        result->n_tokens += world->outs[at][i].ran ? plan->rows[i].n_tokens : 0;
    }
}

/* ------------------------------------------------------------------------------ the measuring --- */

/* Plans until two are out or there is nothing to do, then takes in one result; the time of both. */
static uint64_t step_ns(struct world *world) {
    uint64_t spent = 0;
    const struct weft_step_plan *plan;
    for (;;) {
        uint64_t begin = clock_ns();
        bool is_plan = weft_sched_plan(world->sched, world->now_us, &plan);
        spent += clock_ns() - begin;
        if (!is_plan) break;
        execute(world, plan);
    }
    WEFT_ASSERT(world->n_taken < world->n_planned);
    world->now_us += STEP_US;
    struct weft_errmsg why;
    uint64_t begin = clock_ns();
    WEFT_ASSERT(!weft_sched_result(world->sched, world->now_us,
                                   &world->results[world->n_taken % WEFT_SCHED_PLANS_MAX], &why));
    spent += clock_ns() - begin;
    world->n_taken++;
    weft_sched_events_clear(world->sched);
    weft_sched_tick(world->sched, world->now_us);
    return spent;
}

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static struct world *world_new(const struct params *params, enum weft_sched_policy policy,
                               bool is_mixed, uint32_t n_tenants) {
    struct world *world = need(calloc(1, sizeof *world));
    /* An eighth of the places is kept for those who have nothing running. */
    uint32_t n_places = params->n_seqs + params->n_seqs / 7 + 1;
    const struct weft_sched_options options = {
        .n_blocks = params->n_seqs * (is_mixed ? 48 : MODEL_LEN / BLOCK_SIZE) + N_TEXTS * 16,
        .block_size = BLOCK_SIZE,
        .max_seqs = n_places,
        .max_batched_tokens = params->n_seqs + BATCHED_TOKENS_BESIDE,
        .max_model_len = MODEL_LEN,
        .n_vocab = 32000,
        .max_queue = 4 * N_WAITING,
        .itl_target_us = 0, /* the step is full, as in the worst case */
        .prefix_cache = true,
        .policy = policy,
        .max_queued_tokens = 4000000000u,
    };
    struct weft_errmsg why;
    WEFT_ASSERT(!weft_sched_new(&options, &world->sched, &why));
    world->is_mixed = is_mixed;
    world->n_tenants = n_tenants;
    world->n_seqs = params->n_seqs;
    world->rand = 1;
    world->now_us = 1000000;
    world->slots = need(calloc(n_places, sizeof *world->slots));
    for (uint32_t i = 0; i < WEFT_SCHED_PLANS_MAX; i++)
        world->outs[i] = need(calloc(n_places, sizeof *world->outs[i]));
    weft_sched_new_epoch(world->sched, world->now_us, 1);
    return world;
}

static void world_free(struct world *world) {
    weft_sched_free(world->sched);
    free(world->slots);
    for (uint32_t i = 0; i < WEFT_SCHED_PLANS_MAX; i++)
        free(world->outs[i]);
    free(world);
}

/* True if the goal is met. */
static bool measure(const struct params *params, enum weft_sched_policy policy, bool is_mixed,
                    uint32_t n_tenants) {
    static const char *const names[] = {"fcfs", "priority", "edf"};
    struct world *world = world_new(params, policy, is_mixed, n_tenants);
    /* Decode only: until all prompts are through. Mixed: until as many leave as come. */
    uint32_t n_warm = is_mixed ? 1000 : 2 + params->n_seqs * 64 / BATCHED_TOKENS_BESIDE * 2;
    for (uint32_t i = 0; i < n_warm; i++) {
        refill(world);
        step_ns(world);
    }
    world->n_prompt_tokens = world->n_stream_tokens = world->n_cached_tokens = 0;
    world->n_preempted = 0;
    uint64_t *spent = need(calloc(params->n_steps, sizeof *spent)), n_running = 0;
    for (uint32_t i = 0; i < params->n_steps; i++) {
        struct weft_sched_stats stats;
        refill(world);
        weft_sched_stats(world->sched, &stats);
        n_running += stats.n_running_seqs;
        spent[i] = step_ns(world);
    }
    qsort(spent, params->n_steps, sizeof *spent, by_value);
    uint32_t middle = params->n_steps / 2, late = (uint32_t)(params->n_steps * 99ull / 100);
    double median = (double)spent[middle] / 1e3, p99 = (double)spent[late] / 1e3;
    double n = params->n_steps;
    printf("%-8s %-8s %7" PRIu32 " %8.0f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f  %s\n",
           is_mixed ? "mixed" : "decode", names[policy], n_tenants, (double)n_running / n,
           (double)world->n_stream_tokens / n, (double)world->n_prompt_tokens / n,
           (double)world->n_cached_tokens / n, median, p99,
           (double)spent[params->n_steps - 1] / 1e3, (double)world->n_preempted,
           p99 < GOAL_US ? "met" : "not met");
    fflush(stdout);
    free(spent);
    world_free(world);
    return p99 < GOAL_US;
}

static bool read_flag(struct params *params, const char *name, const char *text) {
    uint32_t *field = !strcmp(name, "--seqs")      ? &params->n_seqs
                      : !strcmp(name, "--steps")   ? &params->n_steps
                      : !strcmp(name, "--tenants") ? &params->n_tenants
                                                   : NULL;
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (!field || errno || *end || value < 1 || value > SEQS_MAX) return false;
    *field = (uint32_t)value;
    return true;
}

int main(int argc, char **argv) {
    struct params params = {.n_seqs = 1000, .n_steps = 2000, .n_tenants = 50};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && read_flag(&params, argv[i], argv[i + 1])) continue;
        fprintf(stderr,
                "usage: bench_sched [--seqs 1000] [--steps 2000] [--tenants 50], "
                "each 1 to %u\n",
                SEQS_MAX);
        return 2;
    }
    printf("%-8s %-8s %7s %8s %8s %8s %8s %8s %8s %8s %8s\n", "", "policy", "tenants", "running",
           "streams", "prompts", "cached", "us p50", "us p99", "us max", "returned");
    bool is_met = true;
    for (int is_mixed = 0; is_mixed < 2; is_mixed++)
        for (int policy = 0; policy < WEFT_SCHED_POLICY_COUNT; policy++)
            for (int many = 0; many < 2; many++)
                is_met &= measure(&params, (enum weft_sched_policy)policy, is_mixed,
                                  many ? params.n_tenants : 1);
    printf("\nGoal: a step of %" PRIu32 " sequences is planned in less than 1 ms (p99): %s.\n",
           params.n_seqs, is_met ? "met" : "not met");
}
