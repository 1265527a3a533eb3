/* Requests that want their first token in time, at one and a half times what the machine can do.
 *
 * Half of them within a second, half within ten, by seed; refusal is on. Served by deadline, at least
 * 1.3 times as many are in time as where who came first is served first. The load is Azure's trace
 * of code completion, lengths scaled to the machine (inputs / 16, outputs / 2 and at least 8) and its
 * clock to the rate; and one of the same statistics, which needs no file.
 *
 * Who is refused is told when to come again. That is held against when the very same request would
 * have been accepted: a copy of the run goes on without newcomers, of whom no server can know, and
 * is asked after each step. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rand.h"
#include "property/sim_machine.h"
#include "traffic/trace.h"

#define REQUESTS_MAX 8819u
#define OVERLOAD 1.5
#define URGENT_US 1000000u
#define PATIENT_US 10000000u
#define LONG_WAIT_MS 5000u
#define PROBE_EVERY 40u /* refusals */

static struct sim_request recorded[REQUESTS_MAX], requests[REQUESTS_MAX];
static double errors[REQUESTS_MAX];

/* ---------------------------------------------------------------------------------- loads --- */

static void scale(struct sim_request *request, double n_in, double n_out) {
    double prompt = n_in / 16, output = n_out / 2;
    request->n_prompt = prompt < 1 ? 1 : prompt > 1000 ? 1000 : (uint32_t)prompt;
    request->n_output = output < 8 ? 8 : output > 1000 ? 1000 : (uint32_t)output;
}

/* 0: it is not there. */
static uint32_t read_trace(void) {
    const char *shared = getenv("WEFT_SHARED_DIR");
    char path[4096];
    struct weft_traffic_trace trace;
    struct weft_errmsg why;
    (void)snprintf(path, sizeof path, "%s/traces/AzureLLMInferenceTrace_code.csv",
                   shared ? shared : "../shared");
    if (weft_traffic_trace_read(path, REQUESTS_MAX, &trace, &why)) {
        printf("SKIPPED: the recorded trace: %s\n", why.text);
        return 0;
    }
    uint32_t n = trace.n_rows;
    for (uint32_t i = 0; i < n; i++) {
        recorded[i] = (struct sim_request){.at_us = trace.rows[i].at_ns / 1000};
        scale(&recorded[i], trace.rows[i].n_in, trace.rows[i].n_out);
    }
    weft_traffic_trace_fini(&trace);
    return n;
}

static double normal(uint64_t *rand) {
    double radius = sqrt(-2 * log(1 - weft_rand_unit(rand)));
    return radius * cos(6.283185307179586 * weft_rand_unit(rand));
}

/* Median 1469 tokens in and mean 2048, median 13 out and mean 27, as log-normal distributions. In
 * three of four seconds nobody comes: phases of 9 s, in which requests come as a Poisson process,
 * with 25 s between, on the average. */
static uint32_t make_trace(uint64_t rand) {
    uint64_t at_us = 0, phase_end_us = 0;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        at_us += sim_gap_us(&rand, 9.7);
        while (at_us > phase_end_us) {
            uint64_t begin_us = phase_end_us + sim_gap_us(&rand, 1.0 / 25);
            at_us = begin_us + sim_gap_us(&rand, 9.7);
            phase_end_us = begin_us + sim_gap_us(&rand, 1.0 / 9);
        }
        recorded[i] = (struct sim_request){.at_us = at_us};
        scale(&recorded[i], 1469 * exp(0.81 * normal(&rand)), 13 * exp(1.2 * normal(&rand)));
    }
    return REQUESTS_MAX;
}

/* ----------------------------------------------------------------------------------- runs --- */

static struct sim_machine *new_machine(enum weft_sched_policy policy) {
    struct weft_sched_options options = sim_machine_options();
    options.policy = policy;
    options.max_queue = REQUESTS_MAX;
    return sim_machine_new(&options, &sim_tinyllama);
}

/* Requests a second with everybody there from the start. */
static double capacity(uint32_t n) {
    memcpy(requests, recorded, n * sizeof *requests);
    for (uint32_t i = 0; i < n; i++)
        requests[i].at_us = 0;
    struct sim_machine *machine = new_machine(WEFT_SCHED_FCFS);
    uint64_t start_us = machine->now_us;
    sim_machine_load(machine, requests, n);
    sim_machine_run(machine);
    double per_second = n / ((double)(machine->now_us - start_us) / 1e6);
    sim_machine_free(machine);
    return per_second;
}

static void draw(uint32_t n, double per_second, uint64_t rand) {
    double stretch = n / per_second * 1e6 / (double)recorded[n - 1].at_us;
    memcpy(requests, recorded, n * sizeof *requests);
    for (uint32_t i = 0; i < n; i++) {
        requests[i].at_us = (uint64_t)((double)recorded[i].at_us * stretch);
        requests[i].ttft_us = weft_rand_below(&rand, 2) ? URGENT_US : PATIENT_US;
    }
}

struct outcome {
    uint32_t n[2], n_good[2], n_refused[2]; /* urgent and patient ones */
    uint32_t n_probed;
    double off_p50, off_p90; /* of Retry-After, relative to the true wait */
    double told_p50, true_p50;
    uint64_t trace;
};

static double told[REQUESTS_MAX], waited[REQUESTS_MAX];

/* In a copy of all this, where nobody else comes: how long until the request is accepted, in us. */
static uint64_t wait_in_copy(struct sim_machine *machine, const struct sim_request *like) {
    uint64_t wait_us = 0;
    int ends[2];
    WEFT_ASSERT(pipe(ends) == 0);
    pid_t child = fork();
    WEFT_ASSERT(child >= 0);
    if (child == 0) {
        uint64_t since_us = machine->now_us;
        machine->n_requests = machine->n_arrived;
        while (!sim_machine_probe(machine, like) && sim_machine_step(machine)) {
        }
        wait_us = machine->now_us - since_us;
        _exit(write(ends[1], &wait_us, sizeof wait_us) != sizeof wait_us);
    }
    WEFT_ASSERT(read(ends[0], &wait_us, sizeof wait_us) == sizeof wait_us);
    (void)close(ends[0]);
    (void)close(ends[1]);
    WEFT_ASSERT(waitpid(child, NULL, 0) == child);
    return wait_us;
}

static void probe(struct sim_machine *machine, uint32_t idx, struct outcome *outcome) {
    const struct sim_request *request = &requests[idx];
    double wait_ms = (double)wait_in_copy(machine, request) / 1e3;
    if (wait_ms <= LONG_WAIT_MS) return;
    told[outcome->n_probed] = request->retry_after_ms;
    waited[outcome->n_probed] = wait_ms;
    errors[outcome->n_probed++] = fabs(request->retry_after_ms / wait_ms - 1);
}

static struct outcome run(uint32_t n, double per_second, enum weft_sched_policy policy,
                          bool with_probes, uint64_t seed) {
    struct outcome outcome = {0};
    draw(n, per_second, seed);
    struct sim_machine *machine = new_machine(policy);
    sim_machine_load(machine, requests, n);
    uint32_t n_refused = 0;
    while (sim_machine_step(machine)) {
        uint32_t last = machine->n_arrived - 1;
        bool is_new = machine->now_us == requests[last].at_us;
        if (!with_probes || machine->n_arrived == 0 || !is_new || !requests[last].reject) continue;
        if (n_refused++ % PROBE_EVERY == 0) probe(machine, last, &outcome);
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct sim_request *request = &requests[i];
        bool is_patient = request->ttft_us == PATIENT_US, is_refused = request->reject != 0;
        WEFT_ASSERT(!is_refused || request->reject == WEFT_REJECT_DEADLINE);
        WEFT_ASSERT(is_refused || (request->end_us > 0 && request->n_failed == 0));
        outcome.n[is_patient]++;
        outcome.n_refused[is_patient] += is_refused;
        outcome.n_good[is_patient] +=
            !is_refused && request->first_us - request->at_us <= request->ttft_us;
    }
    outcome.trace = machine->trace;
    outcome.off_p50 = sim_percentile(errors, outcome.n_probed, 50);
    outcome.off_p90 = sim_percentile(errors, outcome.n_probed, 90);
    outcome.told_p50 = sim_percentile(told, outcome.n_probed, 50);
    outcome.true_p50 = sim_percentile(waited, outcome.n_probed, 50);
    sim_machine_free(machine);
    return outcome;
}

static uint32_t print(const char *name, const struct outcome *outcome) {
    uint32_t n_good = outcome->n_good[0] + outcome->n_good[1];
    printf("  %s: %" PRIu32 " in time: %" PRIu32 " of %" PRIu32 " due in 1 s (%" PRIu32
           " refused), %" PRIu32 " of %" PRIu32 " due in 10 s (%" PRIu32 " refused)\n",
           name, n_good, outcome->n_good[0], outcome->n[0], outcome->n_refused[0],
           outcome->n_good[1], outcome->n[1], outcome->n_refused[1]);
    printf("  %s: %" PRIu32 " refusals with more than 5 s to wait: told %.1f s (median), true %.1f "
           "s, off by %.0f %% at the median, %.0f %% at p90\n",
           name, outcome->n_probed, outcome->told_p50 / 1e3, outcome->true_p50 / 1e3,
           100 * outcome->off_p50, 100 * outcome->off_p90);
    (void)fflush(stdout);
    return n_good;
}

static void compare(const char *name, uint32_t n, uint64_t seed) {
    if (sim_is_slow() && n > 2000) n = 2000;
    double most = capacity(n);
    printf("%s: %" PRIu32 " requests; the machine can do %.2f a second, %.2f come\n", name, n, most,
           OVERLOAD * most);
    struct outcome fcfs = run(n, OVERLOAD * most, WEFT_SCHED_FCFS, true, seed);
    struct outcome edf = run(n, OVERLOAD * most, WEFT_SCHED_EDF, true, seed);
    uint32_t n_fcfs = print("fcfs", &fcfs), n_edf = print("edf", &edf);
    printf("  goodput by deadline: %.2f times\n", (double)n_edf / n_fcfs);
    (void)fflush(stdout);
    WEFT_ASSERT(run(n, OVERLOAD * most, WEFT_SCHED_EDF, false, seed).trace == edf.trace);
    if (sim_is_slow()) return; /* too few to judge by */
    WEFT_ASSERT(n_edf >= 1.3 * n_fcfs);
    WEFT_ASSERT(fcfs.off_p50 <= 0.2 && edf.off_p50 <= 0.2);
}

int main(void) {
    weft_check_actor("sim_deadlines");
    uint64_t seed = sim_seed(2);
    compare("as Azure's trace of code completion", make_trace(seed), seed);
    uint32_t n = read_trace();
    if (n > 0) compare("Azure's trace of code completion", n, seed);
    return 0;
}
