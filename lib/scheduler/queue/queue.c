/* Whose turn it is among those that wait.
 *
 * Three levels, each a heap: tenants, a tenant's flows (its users), a flow's requests. The tenant
 * that was served least, for its weight, comes first, and of it the flow that was served least;
 * within a flow the policy decides (rank_of). What was served counts in tokens: those of a prompt
 * that had to be computed, when its request first starts, and generated ones, twice as much, when
 * they come. Recomputation is not the client's fault, and is free. Among prompts that run, what is
 * charged and not yet computed does not count: whoever begins a long prompt has had nothing so far.
 *
 * Who comes with nothing waiting begins no lower than the one whose turn it is, so that an hour of
 * silence is no credit. Those that go are remembered for a minute, so that leaving pays no debts.
 *
 * Under the policy of priorities users of one tenant are one flow: a priority is worth something
 * only among the requests that it is compared with.
 *
 * Requests in the background are a tenant's other self, which counts as nobody where places and queues are shared
 * out: its counter begins far above all others (BACKGROUND), so that its turn comes when nobody else waits.
 *
 * Source: virtual token counters, Sheng et al., "Fairness in Serving Large Language Models", OSDI
 * 2024. The weights, the two levels and the free recomputation are ours. */
#include "scheduler_internal.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/minmax.h"
#include "base/rand.h"

#define PROMPT_TOKEN_COST 1u
#define OUTPUT_TOKEN_COST 2u
/* Of a token for weight 1. 2^39 tokens, 17 years of 1000 a second, fit the counters. */
#define UNIT (1ull << 24)
#define BACKGROUND (1ull << 63) /* in the keys of tenants in the background */
/* Tenants and flows without requests are remembered so long, and so many of them. */
#define IDLE_US 60000000ull
#define IDLE_MAX 4096u
#define SCANNED_MAX                                                                                \
    1024u /* payers, for one with nothing running; those served least are among them */

/* -------------------------------------------------------------------------------- payers --- */

static struct payer *payer_of(struct heap_node *node) {
    return WEFTI_SCHED_OWNER(node, payer, node);
}

static struct payer_list *bucket_of(const struct weft_sched *sched, const struct request_payer *who,
                                    bool is_flow) {
    uint64_t state = who->tenant ^ sched->options.cache_seed; /* users choose their names */
    state = weft_rand_next(&state) ^ (is_flow ? who->flow : 0);
    state = weft_rand_next(&state) + is_flow + 2u * who->is_background;
    return &sched->payers[state % PAYER_BUCKETS];
}

/* A tenant, or with a parent one of its flows; NULL: it is not known. */
static struct payer *find(const struct weft_sched *sched, const struct payer *parent,
                          const struct request_payer *who) {
    struct payer *payer = NULL;
    uint64_t id = parent ? who->flow : who->tenant;
    LIST_FOREACH(payer, bucket_of(sched, who, parent != NULL), link) {
        if (payer->parent == parent && payer->id == id &&
            payer->is_background == who->is_background)
            return payer;
    }
    return NULL;
}

static uint32_t *n_tenants_like(struct weft_sched *sched, const struct payer *tenant) {
    return tenant->is_background ? &sched->n_background_tenants : &sched->n_tenants;
}

static void forget(struct weft_sched *sched, struct payer *payer) {
    WEFT_ASSERT(payer->n_requests == 0 && payer->n_flows == 0 && payer->node.pos == 0);
    if (payer->is_idle) {
        TAILQ_REMOVE(&sched->idle_payers, payer, idle_link);
        sched->n_idle_payers--;
    }
    if (payer->parent)
        payer->parent->n_flows--;
    else
        (*n_tenants_like(sched, payer))--;
    LIST_REMOVE(payer, link);
    wefti_sched_heap_fini(&payer->children);
    free(payer);
}

/* The oldest first; a tenant stays as long as one of its flows does. */
void wefti_sched_payers_trim(weft_sched *sched, uint64_t now_us) {
    struct payer *payer = TAILQ_FIRST(&sched->idle_payers);
    while (payer && (sched->n_idle_payers > IDLE_MAX || now_us - payer->left_us > IDLE_US)) {
        struct payer *next = TAILQ_NEXT(payer, idle_link);
        if (payer->n_flows == 0) forget(sched, payer);
        payer = next;
    }
}

static void set_idle(struct weft_sched *sched, struct payer *payer, bool is_idle) {
    if (payer->is_idle == is_idle) return;
    payer->is_idle = is_idle;
    if (is_idle) {
        payer->left_us = sched->now_us;
        TAILQ_INSERT_TAIL(&sched->idle_payers, payer, idle_link);
        sched->n_idle_payers++;
    } else {
        TAILQ_REMOVE(&sched->idle_payers, payer, idle_link);
        sched->n_idle_payers--;
    }
}

static struct payer *find_or_make(struct weft_sched *sched, struct payer *parent,
                                  const struct request_payer *who) {
    struct payer *payer = find(sched, parent, who);
    if (payer) return payer;
    payer = calloc(1, sizeof *payer);
    if (!payer) return NULL;
    payer->id = parent ? who->flow : who->tenant;
    payer->parent = parent;
    payer->weight = 1;
    payer->is_background = who->is_background;
    if (!parent && who->is_background) payer->node.key = BACKGROUND;
    LIST_INSERT_HEAD(bucket_of(sched, who, parent != NULL), payer, link);
    if (parent)
        parent->n_flows++;
    else
        (*n_tenants_like(sched, payer))++;
    set_idle(sched, payer, true);
    return payer;
}

/* Under priorities users are one flow. */
static uint64_t known_flow(const struct weft_sched *sched, uint64_t flow) {
    return sched->options.policy == WEFT_SCHED_PRIORITY ? 0 : flow;
}

struct payer *wefti_sched_payer_reserve(weft_sched *sched, const struct request_payer *given) {
    struct request_payer who = *given;
    who.flow = known_flow(sched, who.flow);
    struct payer *tenant = find_or_make(sched, NULL, &who);
    if (!tenant) return NULL;
    struct payer *flow = find_or_make(sched, tenant, &who);
    uint32_t n_tenants = sched->n_tenants + sched->n_background_tenants;
    if (!flow || wefti_sched_heap_reserve(&sched->tenants, n_tenants) ||
        wefti_sched_heap_reserve(&tenant->children, tenant->n_flows) ||
        wefti_sched_heap_reserve(&flow->children, flow->n_requests + 1))
        return NULL; /* what was made is idle, and goes in time */
    tenant->weight = who.weight ? who.weight : 1;
    return flow;
}

const struct payer *wefti_sched_tenant_find(const weft_sched *sched, uint64_t tenant) {
    return find(sched, NULL, &(struct request_payer){.tenant = tenant});
}

uint64_t wefti_sched_tenant_part(const weft_sched *sched, const struct weft_submit *submit,
                                 uint64_t whole) {
    const struct payer *tenant = wefti_sched_tenant_find(sched, submit->tenant);
    uint64_t weight = submit->weight ? submit->weight : 1, others = sched->active_weight;
    if (tenant && tenant->n_requests > 0) others -= tenant->active_weight;
    if (others == 0) return UINT64_MAX;
    double part = (double)whole * (double)weight / (double)(others + weight);
    return part > 1 ? (uint64_t)part : 1;
}

bool wefti_sched_user_has_part(const weft_sched *sched, const struct weft_submit *submit) {
    const struct payer *tenant = wefti_sched_tenant_find(sched, submit->tenant);
    if (!tenant || tenant->n_requests == 0) return true;
    const struct request_payer who = {.tenant = submit->tenant,
                                      .flow = known_flow(sched, submit->flow)};
    const struct payer *flow = find(sched, tenant, &who);
    bool is_new = !flow || flow->n_requests == 0;
    uint32_t n_flows = tenant->n_active + is_new, part = sched->options.max_queue / n_flows;
    return n_flows > 1 && (is_new || flow->n_queued < part);
}

/* One request more or less, of a tenant or one of its flows. */
static void count_request(weft_sched *sched, struct payer *payer, bool more) {
    WEFT_ASSERT(more || payer->n_requests > 0);
    payer->n_requests += more ? 1 : UINT32_MAX;
    set_idle(sched, payer, payer->n_requests == 0);
}

void wefti_sched_payer_join(weft_sched *sched, struct request *req, struct payer *flow) {
    struct payer *tenant = flow->parent;
    WEFT_ASSERT(tenant != NULL);
    req->payer = flow;
    count_request(sched, flow, true);
    count_request(sched, tenant, true);
    tenant->n_active += flow->n_requests == 1;
    sched->n_background += req->is_background;
    if (tenant->n_requests > 1 || req->is_background) return;
    tenant->active_weight = tenant->weight;
    sched->active_weight += tenant->weight;
}

void wefti_sched_payer_leave(weft_sched *sched, struct request *req) {
    struct payer *flow = req->payer, *tenant = flow->parent;
    WEFT_ASSERT(tenant != NULL && req->by_turn.pos == 0);
    wefti_sched_note_prompt(req, UINT32_MAX);
    req->payer = NULL;
    count_request(sched, flow, false);
    count_request(sched, tenant, false);
    tenant->n_active -= flow->n_requests == 0;
    sched->n_background -= req->is_background;
    if (tenant->n_requests == 0) sched->active_weight -= tenant->active_weight;
}

void wefti_sched_payer_runs(weft_sched *sched, const struct request *req, bool more) {
    for (struct payer *payer = req->payer; payer; payer = payer->parent) {
        uint32_t nobody = 1, *n_tenants = req->is_background ? &nobody : &sched->n_tenants_running;
        uint32_t *n_like_it = payer->parent ? &payer->parent->n_flows_running : n_tenants;
        WEFT_ASSERT(more || payer->n_running > 0);
        *n_like_it -= payer->n_running > 0;
        payer->n_running += more ? 1 : UINT32_MAX;
        *n_like_it += payer->n_running > 0;
    }
}

void wefti_sched_payers_fini(weft_sched *sched) {
    for (uint32_t i = 0; sched->payers && i < PAYER_BUCKETS; i++) {
        struct payer *payer = NULL;
        while ((payer = LIST_FIRST(&sched->payers[i]))) {
            LIST_REMOVE(payer, link);
            wefti_sched_heap_fini(&payer->children);
            free(payer);
        }
    }
    free(sched->payers);
    wefti_sched_heap_fini(&sched->tenants);
}

/* -------------------------------------------------------------------------------- the turn --- */

uint64_t wefti_sched_due_us(const struct request *req) {
    if (req->ttft_us > 0) return req->arrival_us + req->ttft_us;
    if (req->deadline_us != UINT64_MAX) return req->deadline_us;
    return req->arrival_us + WEFTI_SCHED_PATIENCE_US;
}

/* The smaller comes first. Whoever was preempted is at the front of its class. Once a deadline for
 * the first token has passed, it does not matter how late that comes: those that can still be in time
 * go first, but for WEFTI_SCHED_PATIENCE_US only. */
static void rank(const weft_sched *sched, struct request *req) {
    bool was_preempted = req->was_preempted;
    req->by_turn.tie = req->order;
    switch (sched->options.policy) {
    case WEFT_SCHED_PRIORITY:
        req->by_turn.key = (uint64_t)((int64_t)req->priority - INT32_MIN);
        req->by_turn.minor = was_preempted ? 0 : req->arrival_us;
        break;
    case WEFT_SCHED_EDF:
        req->by_turn.key = was_preempted ? 0 : 1;
        req->by_turn.minor = wefti_sched_due_us(req);
        if (req->is_late) req->by_turn.minor += WEFTI_SCHED_PATIENCE_US;
        break;
    default:
        req->by_turn.key = req->arrival_us;
        req->by_turn.minor = 0;
        break;
    }
}

/* The counter without what is charged, but not computed. */
static uint64_t received(const struct payer *payer) {
    uint32_t weight = payer->parent ? 1 : payer->weight;
    uint64_t owed = payer->n_owed * PROMPT_TOKEN_COST * UNIT / weight;
    return payer->node.key > owed ? payer->node.key - owed : 0;
}

/* No credit for having been away: the counter begins where the next one's stands. */
static void wait_in(struct heap *heap, struct payer *payer, uint64_t *turn) {
    if (payer->node.pos > 0) return;
    struct heap_node *top = wefti_sched_heap_top(heap);
    bool has_like = top && payer_of(top)->is_background == payer->is_background;
    uint64_t least = has_like ? received(payer_of(top)) : *turn;
    uint64_t got = received(payer);
    if (got < least) payer->node.key += least - got;
    payer->node.tie = payer->id;
    wefti_sched_heap_push(heap, &payer->node);
}

void wefti_sched_queue_push(weft_sched *sched, struct request *req) {
    struct payer *flow = req->payer, *tenant = flow->parent;
    rank(sched, req);
    wefti_sched_heap_push(&flow->children, &req->by_turn);
    wait_in(&tenant->children, flow, &tenant->turn);
    wait_in(&sched->tenants, tenant, &sched->turn[tenant->is_background]);
    req->by_age.key = req->arrival_us | (req->is_background ? BACKGROUND : 0);
    req->by_age.tie = req->order;
    wefti_sched_heap_push(&sched->waiting, &req->by_age);
    sched->n_background_queued += req->is_background;
}

void wefti_sched_queue_remove(weft_sched *sched, struct request *req) {
    struct payer *flow = req->payer, *tenant = flow->parent;
    if (req->by_turn.pos == 0) return;
    wefti_sched_heap_remove(&flow->children, &req->by_turn);
    wefti_sched_heap_remove(&sched->waiting, &req->by_age);
    sched->n_background_queued -= req->is_background;
    if (flow->children.n > 0) return;
    wefti_sched_heap_remove(&tenant->children, &flow->node);
    tenant->turn = received(flow);
    if (tenant->children.n > 0) return;
    wefti_sched_heap_remove(&sched->tenants, &tenant->node);
    sched->turn[tenant->is_background] = received(tenant);
}

void wefti_sched_queue_rerank(weft_sched *sched, struct request *req) {
    rank(sched, req);
    wefti_sched_heap_update(&req->payer->children, &req->by_turn);
}

struct request *wefti_sched_queue_top(const weft_sched *sched) {
    struct heap_node *tenant = wefti_sched_heap_top(&sched->tenants);
    if (!tenant) return NULL;
    struct heap_node *flow = wefti_sched_heap_top(&payer_of(tenant)->children);
    WEFT_ASSERT(flow);
    struct heap_node *req = wefti_sched_heap_top(&payer_of(flow)->children);
    WEFT_ASSERT(req);
    return WEFTI_SCHED_OWNER(req, request, by_turn);
}

/* The child that was served least of those with nothing running, and not in the background; NULL: none is. */
static struct payer *newcomer(const struct heap *heap) {
    struct payer *best = NULL;
    uint32_t n = weft_min_u32(heap->n, SCANNED_MAX);
    for (uint32_t i = 0; i < n; i++) {
        struct payer *payer = payer_of(heap->nodes[i]);
        if (payer->n_running > 0 || payer->is_background) continue;
        if (!best || wefti_sched_heap_before(&payer->node, &best->node)) best = payer;
    }
    return best;
}

struct request *wefti_sched_queue_newcomer(const weft_sched *sched) {
    struct heap_node *top = wefti_sched_heap_top(&sched->tenants);
    struct payer *tenant = newcomer(&sched->tenants);
    struct payer *flow = tenant ? payer_of(wefti_sched_heap_top(&tenant->children))
                         : top  ? newcomer(&payer_of(top)->children)
                                : NULL;
    if (!flow) return NULL;
    return WEFTI_SCHED_OWNER(wefti_sched_heap_top(&flow->children), request, by_turn);
}

uint32_t wefti_sched_places_kept(const weft_sched *sched) {
    uint32_t n_kept = sched->running_max / 8;
    return n_kept == 0 && sched->running_max >= 4 ? 1 : n_kept;
}

/* As long as others are known that have nothing running, an eighth of the places is kept for them, or
 * for users of the tenant's: who comes back must not have to wait until one of a flood is through. */
bool wefti_sched_may_run_more(const weft_sched *sched, const struct request *req) {
    const struct payer *flow = req->payer, *tenant = flow->parent;
    uint32_t n = sched->n_running;
    if (!req->is_background) n -= sched->n_background_seqs; /* whose places are anybody's */
    if (n + wefti_sched_places_kept(sched) < sched->running_max || wefti_sched_beams_stand(req))
        return true;
    bool others = sched->n_tenants > sched->n_tenants_running && tenant->n_running > 0;
    bool other_users = tenant->n_flows > tenant->n_flows_running && flow->n_running > 0;
    return !others && !other_users;
}

/* -------------------------------------------------------------------------------- charging --- */

static void charge(struct heap *heap, struct payer *payer, uint64_t n_units, uint32_t weight) {
    uint64_t sum = n_units * UNIT + payer->remainder;
    payer->node.key += sum / weight;
    payer->remainder = sum % weight;
    wefti_sched_heap_update(heap, &payer->node);
}

static void charge_all(weft_sched *sched, const struct request *req, uint64_t n_units) {
    struct payer *flow = req->payer, *tenant = flow->parent;
    charge(&tenant->children, flow, n_units, 1);
    charge(&sched->tenants, tenant, n_units, tenant->weight);
}

void wefti_sched_charge_prompt(weft_sched *sched, struct request *req, uint32_t n_tokens) {
    charge_all(sched, req, (uint64_t)n_tokens * PROMPT_TOKEN_COST);
    req->n_owed += n_tokens;
    for (struct payer *payer = req->payer; payer; payer = payer->parent)
        payer->n_owed += n_tokens;
}

void wefti_sched_note_prompt(struct request *req, uint32_t n_tokens) {
    if (n_tokens > req->n_owed) n_tokens = req->n_owed;
    req->n_owed -= n_tokens;
    for (struct payer *payer = req->payer; payer; payer = payer->parent)
        payer->n_owed -= n_tokens;
}

int wefti_sched_served_less(const struct request *a, const struct request *b) {
    const struct payer *flow_a = a->payer, *flow_b = b->payer;
    if (flow_a == flow_b) return 0;
    const struct payer *tenant_a = flow_a->parent, *tenant_b = flow_b->parent;
    bool same_tenant = tenant_a == tenant_b;
    uint64_t got_a = received(same_tenant ? flow_a : tenant_a);
    uint64_t got_b = received(same_tenant ? flow_b : tenant_b);
    if (got_a != got_b) return got_a < got_b ? -1 : 1;
    return (same_tenant ? flow_a->id < flow_b->id : tenant_a->id < tenant_b->id) ? -1 : 1;
}

void wefti_sched_charge_output(weft_sched *sched, const struct request *req) {
    charge_all(sched, req, OUTPUT_TOKEN_COST);
}

/* ----------------------------------------------------------------------------------- check --- */

void wefti_sched_queue_check(const weft_sched *sched) {
    uint32_t n_waiting = 0, n_requests = 0, n_idle = 0;
    uint64_t weight = 0, n_tokens = 0, n_queued = 0;
    wefti_sched_heap_check(&sched->tenants);
    wefti_sched_heap_check(&sched->waiting);
    for (uint32_t i = 0; i < PAYER_BUCKETS; i++) {
        const struct payer *payer = NULL;
        LIST_FOREACH(payer, &sched->payers[i], link) {
            wefti_sched_heap_check(&payer->children);
            WEFT_ASSERT((payer->node.pos > 0) == (payer->children.n > 0));
            WEFT_ASSERT(payer->is_idle == (payer->n_requests == 0));
            n_idle += payer->is_idle;
            if (!payer->parent) {
                weight += payer->n_requests ? payer->active_weight : 0;
                continue;
            }
            n_waiting += payer->children.n;
            n_requests += payer->n_requests;
            n_tokens += payer->n_queued_tokens;
            n_queued += payer->n_queued;
        }
    }
    WEFT_ASSERT(n_waiting == sched->waiting.n && n_requests == sched->index.n);
    WEFT_ASSERT(n_tokens == sched->n_queued_tokens && n_queued == sched->n_requests_waiting);
    WEFT_ASSERT(weight == sched->active_weight && n_idle == sched->n_idle_payers);
}
