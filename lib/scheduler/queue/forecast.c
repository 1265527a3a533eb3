/* How long newcomers will wait: for refusals that say when to come again, and for deadlines that
 * cannot be met.
 *
 * Two rates are measured, each only over time in which there was something to do, so that a quiet
 * hour says nothing, and as sums that are halved now and then, so that the last few seconds count
 * most: how fast the queue moves, in requests and in tokens of their prompts (whatever holds it up:
 * places, memory, or prompts being computed; prompts that are cached count like others, since the
 * next ones will be as well), and how fast prompts are computed. Time goes on while no result comes,
 * so a worker's death lowers both; when the next one is there they are what they were before.
 *
 * A first token then comes after the queue's tokens that are served before, and after the prompts
 * that run and its own. That is all of the queue, or what its own tenant has waiting, at the tenant's
 * share, if that is less. Under EDF it comes after what is due earlier, running or not; and if it
 * would make others late it is refused, too: else one after the other would miss its deadline. */
#include "scheduler_internal.h"

#include "base/check.h"
#include "base/minmax.h"

#define WINDOW_US 10000000u
#define KNOWN_US 200000u /* measured for less, a rate is not known */
#define SCANNED_MAX 4096u

/* ------------------------------------------------------------------------------- measuring --- */

static void pass(struct rate *rate, uint64_t dt_us) {
    rate->busy_us += dt_us;
    while (rate->busy_us > 2ull * WINDOW_US) {
        rate->busy_us /= 2;
        rate->n_tokens /= 2;
        rate->n_requests /= 2;
    }
}

void wefti_sched_forecast_advance(weft_sched *sched, uint64_t now_us) {
    uint64_t dt_us = now_us > sched->now_us ? now_us - sched->now_us : 0;
    if (sched->waiting.n > 0) pass(&sched->admitted, dt_us);
    bool has_prompts = sched->has_prompts && sched->n_running > 0;
    if (has_prompts) pass(&sched->prompted, dt_us); /* others wait for places */
    sched->now_us = now_us;
}

void wefti_sched_forecast_started(weft_sched *sched, const struct request *req) {
    sched->admitted.n_tokens += (uint64_t)req->n_prompt * RATE_SCALE;
    sched->admitted.n_requests += RATE_SCALE;
}

void wefti_sched_forecast_prompted(weft_sched *sched, uint32_t n_tokens) {
    sched->prompted.n_tokens += (uint64_t)n_tokens * RATE_SCALE;
}

void wefti_sched_forecast_lost(weft_sched *sched) {
    if (sched->is_rate_kept) return; /* it was lost again before it was back */
    sched->is_rate_kept = true;
    sched->admitted_before = sched->admitted;
    sched->prompted_before = sched->prompted;
}

void wefti_sched_forecast_back(weft_sched *sched) {
    if (!sched->is_rate_kept) return;
    sched->is_rate_kept = false;
    sched->admitted = sched->admitted_before;
    sched->prompted = sched->prompted_before;
}

/* In us; UINT64_MAX: never, at this rate; 0: it is not known, before anything was done. */
static uint64_t time_for(uint64_t amount, uint64_t done, uint64_t busy_us) {
    if (busy_us < KNOWN_US || amount == 0 || done == 0) return 0;
    double us = (double)amount * RATE_SCALE * (double)busy_us / (double)done;
    return us < 1e15 ? (uint64_t)us : UINT64_MAX;
}

uint64_t wefti_sched_forecast_tokens_us(const weft_sched *sched, uint64_t n_tokens) {
    return time_for(n_tokens, sched->admitted.n_tokens, sched->admitted.busy_us);
}

uint64_t wefti_sched_forecast_requests_us(const weft_sched *sched, uint64_t n_requests) {
    return time_for(n_requests, sched->admitted.n_requests, sched->admitted.busy_us);
}

uint64_t wefti_sched_forecast_prompt_us(const weft_sched *sched, uint64_t n_tokens) {
    return time_for(n_tokens, sched->prompted.n_tokens, sched->prompted.busy_us);
}

/* ------------------------------------------------------------------------------- a newcomer --- */

/* Prompt tokens that are yet to be computed, by when their first tokens are due: in slices of time,
 * the last of which has all that is due later. */
#define SLICES 256u
#define SLICE_US 250000u

struct agenda {
    uint64_t n_tokens[SLICES];
};

static uint32_t slice_of(const weft_sched *sched, uint64_t due_us) {
    uint64_t idx = due_us > sched->now_us ? (due_us - sched->now_us) / SLICE_US : 0;
    return idx < SLICES ? (uint32_t)idx : SLICES - 1;
}

/* Of a long queue a part stands for all: a heap's order says little about when its nodes are due. Those
 * that are too late already are due when they come before newcomers. */
static void make_agenda(const weft_sched *sched, struct agenda *agenda) {
    *agenda = (struct agenda){0};
    uint32_t n = weft_min_u32(sched->waiting.n, SCANNED_MAX);
    for (uint32_t i = 0; i < n; i++) {
        const struct request *req = WEFTI_SCHED_OWNER(sched->waiting.nodes[i], request, by_age);
        if (req->first_plan_us != UINT64_MAX || req->is_background) continue;
        agenda->n_tokens[slice_of(sched, req->by_turn.minor)] += req->n_prompt;
    }
    for (uint32_t i = 0; n < sched->waiting.n && i < SLICES; i++)
        agenda->n_tokens[i] = agenda->n_tokens[i] * sched->waiting.n / n;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        uint32_t n_prompt = wefti_sched_seq_prompt(seq);
        if (seq->n_planned >= n_prompt || seq->req->is_background) continue;
        agenda->n_tokens[slice_of(sched, seq->req->by_turn.minor)] += n_prompt - seq->n_planned;
    }
}

/* Whether a request that comes in `at_us` has its first token in time, and nobody else misses theirs
 * because of it. done_us: when what is due in a slice or before will have been computed. */
static bool is_feasible(const struct agenda *agenda, const uint64_t done_us[SLICES], uint64_t at_us,
                        uint64_t left_us, uint64_t own_us) {
    uint64_t own = (at_us + left_us) / SLICE_US;
    uint32_t first = own < SLICES ? (uint32_t)own : SLICES - 1;
    uint64_t begin_us = done_us[first] > at_us ? done_us[first] : at_us;
    if (begin_us + own_us > at_us + left_us) return false;
    for (uint32_t i = first + 1; i + 1 < SLICES; i++) {
        uint64_t due_us = (uint64_t)(i + 1) * SLICE_US;
        bool is_there = agenda->n_tokens[i] > 0 && done_us[i] > at_us;
        if (is_there && done_us[i] <= due_us && done_us[i] + own_us > due_us) return false;
    }
    return true;
}

/* Where prompts are computed in the order in which they are due. If it cannot be in time now, the
 * answer is as much too late as it would have to come later, were it alone in that. */
static uint64_t first_token_by_due_us(const weft_sched *sched, const struct weft_submit *submit) {
    struct agenda agenda;
    uint64_t done_us[SLICES], n_tokens = 0;
    uint64_t left_us = submit->ttft_us > submit->age_us ? submit->ttft_us - submit->age_us : 0;
    uint64_t own_us = wefti_sched_forecast_prompt_us(sched, submit->n_prompt);
    if (own_us == UINT64_MAX) return own_us;
    own_us += (uint64_t)sched->n_out * sched->last_step.busy_us; /* no plan changes any more */
    make_agenda(sched, &agenda);
    for (uint32_t i = 0; i < SLICES; i++) {
        n_tokens += agenda.n_tokens[i];
        done_us[i] = wefti_sched_forecast_prompt_us(sched, n_tokens);
    }
    uint64_t most_us = done_us[SLICES - 1]; /* it is idle then */
    if (own_us > left_us || most_us == UINT64_MAX)
        return most_us < UINT64_MAX - own_us ? most_us + own_us : UINT64_MAX;
    uint64_t at_us = 0;
    while (at_us < most_us && at_us < SLICES * (uint64_t)SLICE_US &&
           !is_feasible(&agenda, done_us, at_us, left_us, own_us))
        at_us += SLICE_US;
    return at_us ? left_us + at_us : own_us;
}

static uint64_t queued_before(const weft_sched *sched, const struct weft_submit *submit) {
    const struct payer *tenant = wefti_sched_tenant_find(sched, submit->tenant);
    uint64_t own = tenant ? tenant->n_queued_tokens : 0;
    uint64_t weight = submit->weight ? submit->weight : 1, others = sched->active_weight;
    if (tenant && tenant->n_requests > 0) others -= tenant->active_weight;
    double at_its_share = (double)own * (double)(others + weight) / (double)weight;
    uint64_t all = sched->n_queued_tokens;
    return sched->n_tenants > 1 && at_its_share < (double)all ? (uint64_t)at_its_share : all;
}

static uint64_t prompts_running(const weft_sched *sched) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        uint32_t n_prompt = wefti_sched_seq_prompt(seq);
        if (seq->n_planned < n_prompt) n += n_prompt - seq->n_planned;
    }
    return n;
}

uint64_t wefti_sched_forecast_first_token_us(const weft_sched *sched,
                                             const struct weft_submit *submit) {
    /* Where nothing is to do, what was measured may be of a bad time; and if nobody were let in, it would
     * never be measured again. */
    if (sched->index.n == 0) return 0;
    if (sched->options.policy == WEFT_SCHED_EDF && submit->ttft_us > 0 && sched->n_tenants <= 1)
        return first_token_by_due_us(sched, submit);
    uint64_t queue_us = wefti_sched_forecast_tokens_us(sched, queued_before(sched, submit));
    uint64_t own_us =
        wefti_sched_forecast_prompt_us(sched, prompts_running(sched) + submit->n_prompt);
    return queue_us < UINT64_MAX - own_us ? queue_us + own_us : UINT64_MAX;
}
