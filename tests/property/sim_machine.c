#include "property/sim_machine.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/parse.h"
#include "base/rand.h"

#define CHECK_EVERY 256u
#define PROBE_ID UINT64_MAX

const struct sim_cost sim_tinyllama = {
    .base_us = 17000, .prompt_token_us = 2300, .stream_row_us = 1500, .seen_ns = 350};

struct sim_slot {
    uint32_t gen, n_prompt, n_tokens, n_computed, n_tokens_max;
    bool is_used;
};

struct sim_step {
    struct weft_step_result result;
    struct weft_step_out *outs;
    uint64_t end_us;
};

static void *need(void *mem) {
    WEFT_ASSERT(mem != NULL);
    return mem;
}

struct weft_sched_options sim_machine_options(void) {
    return (struct weft_sched_options){
        .n_blocks = 4096,
        .block_size = 16,
        .max_seqs = 32,
        .max_batched_tokens = 512,
        .max_model_len = 2048,
        .n_vocab = 32000,
        .max_queue = 1024,
        .itl_target_us = UINT32_MAX, /* automatic */
        .prefix_cache = true,
    };
}

struct sim_machine *sim_machine_new(const struct weft_sched_options *options,
                                    const struct sim_cost *cost) {
    struct sim_machine *machine = need(calloc(1, sizeof *machine));
    struct weft_errmsg why;
    WEFT_ASSERT(!weft_sched_new(options, &machine->sched, &why));
    machine->options = *options;
    machine->cost = *cost;
    machine->now_us = machine->free_us = 1000000;
    machine->slots = need(calloc(options->max_seqs, sizeof *machine->slots));
    machine->steps = need(calloc(WEFT_SCHED_PLANS_MAX, sizeof *machine->steps));
    for (uint32_t i = 0; i < WEFT_SCHED_PLANS_MAX; i++)
        machine->steps[i].outs = need(calloc(options->max_seqs, sizeof *machine->steps[i].outs));
    machine->prompt = need(calloc(options->max_model_len, sizeof *machine->prompt));
    weft_sched_new_epoch(machine->sched, machine->now_us, 1);
    return machine;
}

void sim_machine_free(struct sim_machine *machine) {
    weft_sched_free(machine->sched);
    for (uint32_t i = 0; i < WEFT_SCHED_PLANS_MAX; i++)
        free(machine->steps[i].outs);
    free(machine->steps);
    free(machine->slots);
    free(machine->prompt);
    free(machine);
}

/* -------------------------------------------------------------------------------- the worker --- */

static void note(struct sim_machine *machine, uint64_t value) {
    uint64_t state = machine->trace ^ value;
    machine->trace = weft_rand_next(&state);
}

static void start(struct sim_machine *machine, const struct weft_step_start *start) {
    struct sim_slot *slot = &machine->slots[start->slot];
    WEFT_ASSERT(!slot->is_used && start->n_cached < start->n_tokens);
    uint32_t most = machine->options.max_model_len - start->n_prompt;
    uint32_t wanted = start->sampling.max_tokens < most ? start->sampling.max_tokens : most;
    *slot = (struct sim_slot){.gen = start->gen,
                              .n_prompt = start->n_prompt,
                              .n_tokens = start->n_tokens,
                              .n_computed = start->n_cached,
                              .n_tokens_max = start->n_prompt + wanted,
                              .is_used = true};
    note(machine, start->sampling.seed * 1000003 + start->n_cached);
}

struct work {
    uint64_t n_prompt, n_streams, n_seen;
};

static void run_row(struct sim_machine *machine, const struct weft_step_row *row,
                    struct weft_step_out *out, struct work *work) {
    struct sim_slot *slot = &machine->slots[row->slot];
    uint64_t n = row->n_tokens, first = slot->n_computed;
    WEFT_ASSERT(slot->is_used && slot->gen == row->gen && n >= 1);
    WEFT_ASSERT(first + n <= slot->n_tokens && slot->n_tokens < slot->n_tokens_max);
    *out = (struct weft_step_out){.slot = row->slot, .gen = row->gen, .ran = true};
    work->n_seen += n * first + n * (n + 1) / 2;
    if (n == 1 && slot->n_tokens > slot->n_prompt && first + 1 == slot->n_tokens)
        work->n_streams++;
    else
        work->n_prompt += n;
    slot->n_computed += row->n_tokens;
    note(machine, ((uint64_t)row->slot << 32) | row->n_tokens);
    if (slot->n_computed < slot->n_tokens) return;
    out->sampled = true;
    out->output_idx = slot->n_tokens - slot->n_prompt;
    out->token = (out->output_idx * 7919 + slot->n_prompt) % machine->options.n_vocab;
    if (++slot->n_tokens == slot->n_tokens_max) out->finish = WEFT_END_LENGTH;
}

static uint64_t cost_us(const struct sim_cost *cost, const struct work *work) {
    uint64_t us = work->n_prompt * cost->prompt_token_us, n_rows = work->n_streams;
    if (us < cost->base_us) us = cost->base_us;
    if (work->n_prompt == 0 && n_rows > 0) n_rows--;
    return us + n_rows * cost->stream_row_us + work->n_seen * cost->seen_ns / 1000;
}

static void execute(struct sim_machine *machine, const struct weft_step_plan *plan) {
    struct sim_step *step = &machine->steps[plan->step % WEFT_SCHED_PLANS_MAX];
    struct work work = {0};
    step->result = (struct weft_step_result){
        .epoch = plan->epoch, .step = plan->step, .outs = step->outs, .n_outs = plan->n_rows};
    for (uint32_t i = 0; i < plan->n_releases; i++)
        machine->slots[plan->releases[i].slot].is_used = false;
    for (uint32_t i = 0; i < plan->n_starts; i++)
        start(machine, &plan->starts[i]);
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        run_row(machine, &plan->rows[i], &step->outs[i], &work);
        step->result.n_tokens += plan->rows[i].n_tokens;
    }
    step->result.busy_us = plan->n_rows ? (uint32_t)cost_us(&machine->cost, &work) : 0;
    if (machine->free_us < machine->now_us) machine->free_us = machine->now_us;
    machine->free_us += step->result.busy_us;
    step->end_us = machine->free_us;
    machine->n_out++;
}

static void plan_all(struct sim_machine *machine) {
    const struct weft_step_plan *plan;
    weft_sched_tick(machine->sched, machine->now_us);
    while (weft_sched_plan(machine->sched, machine->now_us, &plan))
        execute(machine, plan);
}

/* ------------------------------------------------------------------------------- its clients --- */

static enum weft_reject submit(struct sim_machine *machine, const struct sim_request *request,
                               uint64_t id, uint32_t *retry_after_ms_out) {
    struct weft_submit message = {
        .request_id = id,
        .attempt = 1,
        .prompt = machine->prompt,
        .n_prompt = request->n_prompt,
        .n_choices = request->n_choices ? request->n_choices : 1,
        .tenant = request->tenant,
        .flow = request->flow,
        .weight = request->weight,
        .ttft_us = request->ttft_us,
    };
    struct weft_errmsg why;
    uint64_t of_text = request->text, of_itself = ~id;
    for (uint32_t i = 0; i < request->n_prompt; i++)
        machine->prompt[i] = weft_rand_below(i < request->n_shared ? &of_text : &of_itself,
                                             machine->options.n_vocab);
    weft_sampling_init(&message.sampling);
    message.sampling.seed = id;
    message.sampling.max_tokens = request->n_output;
    return weft_sched_submit(machine->sched, machine->now_us, 0, &message, retry_after_ms_out,
                             &why);
}

bool sim_machine_probe(struct sim_machine *machine, const struct sim_request *like) {
    uint32_t retry_after_ms;
    struct weft_sched_key key = {.attempt = 1, .request_id = PROBE_ID};
    if (submit(machine, like, PROBE_ID, &retry_after_ms)) return false;
    weft_sched_cancel(machine->sched, machine->now_us, &key, UINT32_MAX);
    return true;
}

static void take_event(struct sim_machine *machine, const struct weft_event *event) {
    WEFT_ASSERT(event->request_id >= 1 && event->request_id <= machine->n_requests);
    struct sim_request *request = &machine->requests[event->request_id - 1];
    WEFT_ASSERT(request->end_us == 0); /* nothing after the end */
    if (event->sampled && request->n_tokens++ == 0) request->first_us = machine->now_us;
    if (!event->end) return;
    request->n_failed += event->end != WEFT_END_LENGTH;
    if (++request->n_ended == (request->n_choices ? request->n_choices : 1))
        request->end_us = machine->now_us;
}

static void take_events(struct sim_machine *machine) {
    size_t n;
    const struct weft_sched_event *events = weft_sched_events(machine->sched, &n);
    for (size_t i = 0; i < n; i++)
        take_event(machine, &events[i].event);
    weft_sched_events_clear(machine->sched);
}

static void take_result(struct sim_machine *machine) {
    uint32_t oldest = 0;
    for (uint32_t i = 1; machine->n_out == WEFT_SCHED_PLANS_MAX && i < WEFT_SCHED_PLANS_MAX; i++) {
        if (machine->steps[i].result.step < machine->steps[oldest].result.step) oldest = i;
    }
    if (machine->n_out == 1 && machine->steps[1].result.step > machine->steps[0].result.step)
        oldest = 1;
    struct weft_errmsg why;
    machine->now_us = machine->steps[oldest].end_us;
    machine->n_out--;
    weft_err err =
        weft_sched_result(machine->sched, machine->now_us, &machine->steps[oldest].result, &why);
    if (err) (void)fprintf(stderr, "refused: %s\n", why.text);
    WEFT_ASSERT(!err);
    take_events(machine);
    if (machine->n_results++ % CHECK_EVERY == 0) weft_sched_check(machine->sched);
}

/* ------------------------------------------------------------------------------------ a run --- */

void sim_machine_load(struct sim_machine *machine, struct sim_request *requests, uint32_t n) {
    machine->requests = requests;
    machine->n_requests = n;
    machine->n_arrived = 0;
    uint64_t start_us = machine->now_us;
    for (uint32_t i = 0; i < n; i++)
        requests[i].at_us += start_us;
}

static uint64_t next_result_us(const struct sim_machine *machine) {
    if (machine->n_out == 0) return UINT64_MAX;
    uint64_t a = machine->steps[0].end_us, b = machine->steps[1].end_us;
    if (machine->n_out == WEFT_SCHED_PLANS_MAX) return a < b ? a : b;
    return machine->steps[machine->steps[1].result.step > machine->steps[0].result.step].end_us;
}

_Static_assert(WEFT_SCHED_PLANS_MAX == 2, "the steps that are out are told apart as one or both");

bool sim_machine_step(struct sim_machine *machine) {
    uint64_t result_us = next_result_us(machine);
    bool has_arrival = machine->n_arrived < machine->n_requests;
    if (!has_arrival && machine->n_out == 0) {
        WEFT_ASSERT(weft_sched_idle(machine->sched)); /* nobody is forgotten */
        return false;
    }
    if (has_arrival && machine->requests[machine->n_arrived].at_us <= result_us) {
        struct sim_request *request = &machine->requests[machine->n_arrived++];
        machine->now_us = request->at_us;
        request->reject = submit(machine, request, machine->n_arrived, &request->retry_after_ms);
    } else {
        take_result(machine);
    }
    plan_all(machine);
    return true;
}

void sim_machine_run(struct sim_machine *machine) {
    while (sim_machine_step(machine)) {
    }
    weft_sched_check(machine->sched);
}

/* --------------------------------------------------------------------------------- the rest --- */

uint64_t sim_gap_us(uint64_t *rand, double per_second) {
    return (uint64_t)(-log(1 - weft_rand_unit(rand)) / per_second * 1e6);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double sim_percentile(double *values, uint32_t n, double percent) {
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, ascending);
    uint32_t idx = (uint32_t)(percent / 100 * n);
    return values[idx < n ? idx : n - 1];
}

uint64_t sim_seed(uint64_t usual) {
    const char *text = getenv("WEFT_SEED");
    uint64_t seed;
    if (!text || weft_parse_u64(text, UINT64_MAX, &seed)) seed = usual;
    printf("seed %" PRIu64 "\n", seed);
    (void)fflush(stdout);
    return seed;
}

bool sim_is_slow(void) {
    return getenv("WEFT_SANITIZED") != NULL;
}
