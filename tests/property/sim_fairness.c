/* Who shares a machine with somebody that floods it, on a virtual clock.
 *
 *   - One tenant sends 20 times what another of equal weight does, which is far more than the
 *     machine can do. The light one's p99 time to a first token stays within 1.5 times of what
 *     it is when the heavy one sends only its share. Likewise for two users of one tenant.
 *   - Of two tenants that always have somebody waiting, each gets what its weight says, within 5 %.
 *   - One request with n = 128 leaves places for others. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "property/sim_machine.h"

#define LIGHT_PER_SECOND 0.4
#define SHARE_PER_SECOND 1.2 /* of about 2.4 that the machine can do */
#define FLOOD 20
#define REQUESTS_MAX 100000u
#define WARM_UP_US 60000000ull

static struct sim_request requests[REQUESTS_MAX];
static double times[REQUESTS_MAX];

struct sender {
    uint64_t tenant, flow;
    uint32_t weight;
    double per_second;
    uint32_t n_prompt_most, n_output_most;
    uint64_t next_us;
};

/* Lengths are uniform up to twice their mean. */
static uint32_t draw(struct sender *senders, uint32_t n_senders, uint64_t seconds, uint64_t rand) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_senders; i++)
        senders[i].next_us = sim_gap_us(&rand, senders[i].per_second);
    for (;;) {
        struct sender *next = &senders[0];
        for (uint32_t i = 1; i < n_senders; i++) {
            if (senders[i].next_us < next->next_us) next = &senders[i];
        }
        if (next->next_us >= seconds * 1000000) return n;
        WEFT_ASSERT(n < REQUESTS_MAX);
        requests[n++] =
            (struct sim_request){.at_us = next->next_us,
                                 .n_prompt = 1 + weft_rand_below(&rand, next->n_prompt_most),
                                 .n_output = 1 + weft_rand_below(&rand, next->n_output_most),
                                 .tenant = next->tenant,
                                 .flow = next->flow,
                                 .weight = next->weight};
        next->next_us += sim_gap_us(&rand, next->per_second);
    }
}

/* ------------------------------------------------------------------------------- the flood --- */

struct light {
    double p50, p99;
    uint32_t n, n_refused, n_heavy_refused;
};

static struct light measure_light(uint32_t n, uint64_t tenant, uint64_t flow) {
    struct light light = {0};
    for (uint32_t i = 0; i < n; i++) {
        const struct sim_request *request = &requests[i];
        bool is_light = request->tenant == tenant && request->flow == flow;
        bool is_refused = request->reject != WEFT_REJECT_NONE;
        light.n_refused += is_light && is_refused;
        light.n_heavy_refused += !is_light && is_refused;
        WEFT_ASSERT(is_refused || (request->end_us > 0 && request->n_failed == 0));
        if (is_light && !is_refused)
            times[light.n++] = (double)(request->first_us - request->at_us) / 1e6;
    }
    light.p50 = sim_percentile(times, light.n, 50);
    light.p99 = sim_percentile(times, light.n, 99);
    return light;
}

static struct light run_flood(double heavy_per_second, bool are_users,
                              enum weft_sched_policy policy, uint64_t seed) {
    struct sender senders[2] = {
        {.tenant = 1, .flow = 1, .per_second = LIGHT_PER_SECOND},
        {.tenant = are_users ? 1 : 2, .flow = 2, .per_second = heavy_per_second},
    };
    for (int i = 0; i < 2; i++) {
        senders[i].weight = 1;
        senders[i].n_prompt_most = 256;
        senders[i].n_output_most = 32;
    }
    struct weft_sched_options options = sim_machine_options();
    options.policy = policy;
    struct sim_machine *machine = sim_machine_new(&options, &sim_tinyllama);
    uint32_t n = draw(senders, 2, sim_is_slow() ? 2500 : 4000, seed);
    sim_machine_load(machine, requests, n);
    sim_machine_run(machine);
    sim_machine_free(machine);
    return measure_light(n, 1, 1);
}

static void check_flood(bool are_users, enum weft_sched_policy policy, const char *name,
                        uint64_t seed) {
    struct light fair = run_flood(SHARE_PER_SECOND, are_users, policy, seed);
    struct light flooded = run_flood(LIGHT_PER_SECOND * FLOOD, are_users, policy, seed);
    printf("%s, %s: the light one's first token after %.0f ms, p99 %.0f ms; beside a flood %.0f "
           "ms, p99 %.0f ms (%.2f times); refused: %" PRIu32 " of its %" PRIu32 ", %" PRIu32
           " of the heavy one's\n",
           are_users ? "two users" : "two tenants", name, fair.p50 * 1e3, fair.p99 * 1e3,
           flooded.p50 * 1e3, flooded.p99 * 1e3, flooded.p99 / fair.p99, flooded.n_refused,
           flooded.n + flooded.n_refused, flooded.n_heavy_refused);
    (void)fflush(stdout);
    WEFT_ASSERT(fair.n_refused == 0 && flooded.n_refused == 0);
    WEFT_ASSERT(flooded.n_heavy_refused > 0);
    WEFT_ASSERT(flooded.p99 <= 1.5 * fair.p99);
}

/* ------------------------------------------------------------------------------ the weights --- */

static void check_weights(uint32_t weight_a, uint32_t weight_b, uint32_t prompt_b,
                          uint32_t output_b, uint64_t seed) {
    struct sender senders[2] = {
        {.tenant = 1,
         .weight = weight_a,
         .per_second = 6,
         .n_prompt_most = 256,
         .n_output_most = 32},
        {.tenant = 2, .weight = weight_b, .per_second = 6},
    };
    senders[1].n_prompt_most = prompt_b;
    senders[1].n_output_most = output_b;
    struct weft_sched_options options = sim_machine_options();
    struct sim_machine *machine = sim_machine_new(&options, &sim_tinyllama);
    uint64_t seconds = sim_is_slow() ? 400 : 3000;
    uint32_t n = draw(senders, 2, seconds, seed);
    uint64_t end_us = machine->now_us + seconds * 1000000;
    sim_machine_load(machine, requests, n);
    double served[2] = {0}, generated[2] = {0};
    while (machine->now_us < end_us && sim_machine_step(machine)) {
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct sim_request *request = &requests[i];
        bool is_b = request->tenant == 2;
        if (request->first_us == 0 || request->first_us < WARM_UP_US) continue;
        served[is_b] += request->n_prompt + 2.0 * request->n_tokens;
        generated[is_b] += request->n_tokens;
    }
    sim_machine_run(machine);
    sim_machine_free(machine);
    double got = served[1] / (served[0] + served[1]);
    double due = (double)weight_b / (weight_a + weight_b);
    double off = got / due - 1, off_a = (1 - got) / (1 - due) - 1;
    printf("weights %" PRIu32 ":%" PRIu32 " (prompts of %d and %" PRIu32
           " tokens): of %.0f tokens, generated ones twice, %.2f %% and %.2f %% (due: %.2f and "
           "%.2f; off by %.2f %% and %.2f %%); generated: %.0f and %.0f\n",
           weight_a, weight_b, 128, prompt_b / 2, served[0] + served[1], 100 * (1 - got), 100 * got,
           100 * (1 - due), 100 * due, 100 * off_a, 100 * off, generated[0], generated[1]);
    (void)fflush(stdout);
    double bound = 0.05;
    WEFT_ASSERT(off < bound && off > -bound && off_a < bound && off_a > -bound);
}

/* -------------------------------------------------------------------------------- n = 128 --- */

/* The others come one after the other while the large one runs; alone: without it. */
static double run_choices(bool alone, bool same_tenant, double *most_out) {
    struct weft_sched_options options = sim_machine_options();
    struct sim_machine *machine = sim_machine_new(&options, &sim_tinyllama);
    uint32_t n = 0, n_times = 0;
    memset(requests, 0, 64 * sizeof *requests);
    if (!alone)
        requests[n++] = (struct sim_request){
            .n_prompt = 200, .n_output = 100, .n_choices = 128, .tenant = 1, .weight = 1};
    for (uint32_t i = 0; i < 16; i++)
        requests[n++] = (struct sim_request){.at_us = 700000 + i * 1200000ull,
                                             .n_prompt = 64,
                                             .n_output = 16,
                                             .tenant = same_tenant ? 1 : 2,
                                             .weight = 1};
    sim_machine_load(machine, requests, n);
    sim_machine_run(machine);
    *most_out = 0;
    for (uint32_t i = 0; i < n; i++) {
        WEFT_ASSERT(requests[i].end_us > 0 && requests[i].n_failed == 0);
        if (requests[i].n_choices) continue;
        times[n_times++] = (double)(requests[i].first_us - requests[i].at_us) / 1e6;
        if (times[n_times - 1] > *most_out) *most_out = times[n_times - 1];
    }
    if (!alone) WEFT_ASSERT(requests[0].end_us > requests[n - 1].at_us);
    sim_machine_free(machine);
    return sim_percentile(times, n_times, 50);
}

static void check_choices(bool same_tenant) {
    double most_alone, most;
    double alone = run_choices(true, same_tenant, &most_alone);
    double beside = run_choices(false, same_tenant, &most);
    printf("beside a request with n = 128 of %s tenant: a first token after %.0f ms, at most %.0f "
           "ms; without it %.0f ms, at most %.0f ms\n",
           same_tenant ? "the same" : "another", beside * 1e3, most * 1e3, alone * 1e3,
           most_alone * 1e3);
    (void)fflush(stdout);
    WEFT_ASSERT(most < 2.0);
}

int main(void) {
    weft_check_actor("sim_fairness");
    uint64_t seed = sim_seed(1);
    check_flood(false, WEFT_SCHED_FCFS, "fcfs", seed);
    check_flood(true, WEFT_SCHED_FCFS, "fcfs", seed);
    check_flood(false, WEFT_SCHED_EDF, "edf", seed);
    check_flood(true, WEFT_SCHED_EDF, "edf", seed);
    check_flood(false, WEFT_SCHED_PRIORITY, "priority", seed);
    check_weights(1, 1, 256, 32, seed);
    check_weights(1, 3, 256, 32, seed);
    check_weights(2, 5, 256, 32, seed);
    check_weights(1, 3, 64, 128, seed);
    check_choices(false);
    check_choices(true);
    return 0;
}
