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
 * that run and its own. Of the queue that is what is due earlier under EDF; else all of it, or what
 * its own tenant has waiting, at the tenant's share, if that is less. */
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
    if (sched->waiting.n > 0 || has_prompts) pass(&sched->prompted, dt_us);
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

/* In us; UINT64_MAX: never, at this rate; 0: it is not known. */
static uint64_t time_for(uint64_t amount, uint64_t done, uint64_t busy_us) {
    if (busy_us < KNOWN_US || amount == 0) return 0;
    if (done == 0) return UINT64_MAX;
    double us = (double)amount * RATE_SCALE * (double)busy_us / (double)done;
    return us < 1e15 ? (uint64_t)us : UINT64_MAX;
}

uint64_t wefti_sched_forecast_tokens_us(const weft_sched *sched, uint64_t n_tokens) {
    return time_for(n_tokens, sched->admitted.n_tokens, sched->admitted.busy_us);
}

uint64_t wefti_sched_forecast_requests_us(const weft_sched *sched, uint64_t n_requests) {
    return time_for(n_requests, sched->admitted.n_requests, sched->admitted.busy_us);
}

/* ------------------------------------------------------------------------------- a newcomer --- */

/* Tokens that are due before. Of a long queue a part stands for all: a heap's order says little about
 * when its nodes are due. */
static uint64_t due_before(const weft_sched *sched, uint64_t due_us) {
    uint32_t n = weft_min_u32(sched->waiting.n, SCANNED_MAX);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct request *req = WEFTI_SCHED_OWNER(sched->waiting.nodes[i], request, by_age);
        if (wefti_sched_due_us(req) <= due_us) sum += req->n_prompt;
    }
    return n < sched->waiting.n ? sum * sched->waiting.n / n : sum;
}

static uint64_t queued_before(const weft_sched *sched, const struct weft_submit *submit) {
    const struct payer *tenant = wefti_sched_tenant_find(sched, submit->tenant);
    uint64_t own = tenant ? tenant->n_queued_tokens : 0;
    uint64_t weight = submit->weight ? submit->weight : 1, others = sched->active_weight;
    if (tenant && tenant->n_requests > 0) others -= tenant->active_weight;
    uint64_t at_its_share = own * ((others + weight) / weight);
    uint64_t all = sched->n_queued_tokens;
    if (sched->options.policy == WEFT_SCHED_EDF && submit->ttft_us > 0)
        all = due_before(sched, sched->now_us + submit->ttft_us - submit->age_us);
    return at_its_share < all && sched->n_tenants > 1 ? at_its_share : all;
}

static uint64_t prompts_running(const weft_sched *sched) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        if (seq->n_planned < seq->req->n_prompt) n += seq->req->n_prompt - seq->n_planned;
    }
    return n;
}

/* Where nothing is to do rates say nothing: they may be of a bad time, and if nobody were let in they
 * would never be measured again. */
static uint64_t alone_us(const weft_sched *sched, uint32_t n_prompt) {
    struct weft_sched_work work = {0};
    weft_sched_work_add(&work, 0, n_prompt, 1);
    return weft_sched_cost_predict(&sched->cost, &work);
}

uint64_t wefti_sched_forecast_first_token_us(const weft_sched *sched,
                                             const struct weft_submit *submit) {
    const struct rate *prompted = &sched->prompted;
    if (sched->index.n == 0) return alone_us(sched, submit->n_prompt);
    uint64_t queue_us = wefti_sched_forecast_tokens_us(sched, queued_before(sched, submit));
    uint64_t prompt_us =
        time_for(prompts_running(sched) + submit->n_prompt, prompted->n_tokens, prompted->busy_us);
    return queue_us < UINT64_MAX - prompt_us ? queue_us + prompt_us : UINT64_MAX;
}
