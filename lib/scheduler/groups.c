/* Groups by their prospects. One rule decides on placing and on moving alike: see may_hold. */
#include "scheduler/groups.h"

#include "base/check.h"
#include "scheduler_internal.h"

/* ------------------------------------------------------------------------- what workers do --- */

void weft_sched_group_came(struct weft_sched_group *g, uint64_t now_ms) {
    g->is_serving = true;
    if (g->sched) wefti_sched_forecast_back(g->sched);
    g->is_busy = false;
    g->progress = 0;
    g->progress_at_ms = g->heartbeat_at_ms = now_ms;
    g->moved_at_ms = 0;
}

void weft_sched_group_went(struct weft_sched_group *g, uint64_t now_ms) {
    if (!g->is_serving) return;
    g->is_serving = g->is_busy = false;
    g->lost_at_ms = now_ms;
}

void weft_sched_group_heartbeat(struct weft_sched_group *g, uint64_t now_ms, uint64_t progress,
                                bool is_busy) {
    if (!is_busy || progress != g->progress) g->progress_at_ms = now_ms;
    g->heartbeat_at_ms = now_ms;
    g->progress = progress;
    g->is_busy = is_busy;
}

void weft_sched_group_progress(struct weft_sched_group *g, uint64_t now_ms) {
    g->progress_at_ms = now_ms;
}

void weft_sched_group_excuse(struct weft_sched_group *g, uint64_t now_ms) {
    g->progress_at_ms = g->heartbeat_at_ms = now_ms;
}

bool weft_sched_group_idle(const struct weft_sched_group *g) {
    return !g->sched || weft_sched_idle(g->sched);
}

/* An idle worker shows only heartbeats: if it stopped in between, that must not come out with
 * the next request. */
bool weft_sched_group_advances(const struct weft_sched_group *g, uint64_t now_ms) {
    bool is_idle = weft_sched_group_idle(g);
    if (!g->is_serving) return is_idle;
    if (now_ms - g->heartbeat_at_ms > WEFT_SCHED_ADVANCING_MS) return false;
    return is_idle || !g->is_busy || now_ms - g->progress_at_ms <= WEFT_SCHED_ADVANCING_MS;
}

const char *weft_sched_group_symptom(const struct weft_sched_group *g, uint64_t now_ms) {
    if (!g->is_serving) return NULL;
    if (now_ms - g->heartbeat_at_ms > WEFT_SCHED_STUCK_MS) return "sent no heartbeat";
    bool is_stuck = g->is_busy && now_ms - g->progress_at_ms > WEFT_SCHED_STUCK_MS;
    return is_stuck ? "made no progress" : NULL;
}

/* ------------------------------------------------------------------------- of all together --- */

bool weft_sched_groups_serve(const struct weft_sched_groups *gs) {
    for (uint32_t i = 0; i < gs->n; i++) {
        if (gs->groups[i].is_serving) return true;
    }
    return false;
}

bool weft_sched_groups_advance(const struct weft_sched_groups *gs, uint64_t now_ms) {
    bool can_advance = false, is_stuck = false;
    for (uint32_t i = 0; i < gs->n; i++) {
        bool advances = weft_sched_group_advances(&gs->groups[i], now_ms);
        can_advance = can_advance || advances;
        is_stuck = is_stuck || (!advances && !weft_sched_group_idle(&gs->groups[i]));
    }
    return can_advance && !is_stuck;
}

/* --------------------------------------------------------------------------------- placing --- */

/* The one rule: a group without a worker holds nothing while another group has one. */
static bool may_hold(const struct weft_sched_groups *gs, const struct weft_sched_group *g) {
    return g->is_serving || !weft_sched_groups_serve(gs);
}

struct candidate {
    struct weft_sched_group *group;
    bool may_hold, advances;
    uint64_t load;
    uint32_t n_cached; /* tokens of the request's prompt; 0 if it is much busier than others */
};

/* A group's work as it counts for the next request: as in vLLM, a waiting one counts like
 * four running ones. */
static uint64_t load_of(const struct weft_sched_group *g) {
    return 4ull * g->sched->n_seqs_waiting + g->sched->n_running;
}

static bool is_preferred(const struct candidate *a, const struct candidate *b) {
    if (a->may_hold != b->may_hold) return a->may_hold;
    if (a->advances != b->advances) return a->advances;
    if (a->n_cached != b->n_cached) return a->n_cached > b->n_cached;
    return a->load < b->load;
}

/* A cached prefix is worth waiting for, but not behind more than twice as many. */
#define MUCH_BUSIER 8u

static uint64_t load_allowed(const struct weft_sched_groups *gs, uint64_t now_ms) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < gs->n; i++) {
        const struct weft_sched_group *g = &gs->groups[i];
        if (!g->sched || !may_hold(gs, g) || !weft_sched_group_advances(g, now_ms)) continue;
        if (load_of(g) < least) least = load_of(g);
    }
    return least < UINT64_MAX / 2 ? 2 * least + MUCH_BUSIER : UINT64_MAX;
}

/* All groups with a scheduler, the best prospects first; of a request that runs nowhere yet, or of
 * one that moves (NULL). */
static uint32_t rank(struct weft_sched_groups *gs, uint64_t now_ms,
                     const struct weft_submit *submit,
                     struct candidate candidates[WEFT_WORKERS_MAX]) {
    uint32_t n = 0;
    uint64_t allowed = load_allowed(gs, now_ms);
    for (uint32_t i = 0; i < gs->n; i++) {
        struct weft_sched_group *g = &gs->groups[i];
        if (!g->sched) continue;
        struct candidate candidate = {
            .group = g,
            .may_hold = may_hold(gs, g),
            .advances = g->is_serving && weft_sched_group_advances(g, now_ms),
            .load = load_of(g),
        };
        if (submit && gs->n > 1 && candidate.load <= allowed)
            candidate.n_cached = wefti_sched_prefix_peek(g->sched, submit);
        uint32_t at = n++;
        for (; at > 0 && is_preferred(&candidate, &candidates[at - 1]); at--)
            candidates[at] = candidates[at - 1];
        candidates[at] = candidate;
    }
    return n;
}

/* The group of an earlier attempt, which the new one replaces. */
static struct weft_sched_group *find_home(struct weft_sched_groups *gs, uint32_t router,
                                          uint64_t request_id) {
    for (uint32_t i = 0; i < gs->n; i++) {
        struct weft_sched_group *g = &gs->groups[i];
        if (g->sched && weft_sched_has(g->sched, router, request_id)) return g;
    }
    return NULL;
}

/* Refused for what there is to do just now, so that it is worth coming again. */
static bool is_for_load(enum weft_reject no) {
    return no == WEFT_REJECT_QUEUE_FULL || no == WEFT_REJECT_TENANT_FULL ||
           no == WEFT_REJECT_OVERLOADED || no == WEFT_REJECT_DEADLINE;
}

/* Whether to ask the next candidate. A request too long for one may fit another, whose worker had
 * more memory at its start; that is worth waiting for. A full queue is not. */
static bool is_passed_on(enum weft_reject no, const struct candidate *next) {
    return no == WEFT_REJECT_TOO_LONG || (is_for_load(no) && next->may_hold);
}

/* Of several groups that refuse, the one that will take the request first. */
struct refusal {
    enum weft_reject no;
    uint32_t retry_ms;
    struct weft_errmsg why;
};

static void keep_soonest(struct refusal *soonest, enum weft_reject no, uint32_t retry_ms,
                         const struct weft_errmsg *why) {
    if (!is_for_load(no) || (soonest->no && soonest->retry_ms <= retry_ms)) return;
    *soonest = (struct refusal){.no = no, .retry_ms = retry_ms};
    if (why) soonest->why = *why;
}

enum weft_reject weft_sched_groups_submit(struct weft_sched_groups *gs, uint64_t now_us,
                                          uint32_t router, const struct weft_submit *submit,
                                          uint32_t *retry_after_ms_out, struct weft_errmsg *why) {
    struct weft_sched_group *home = find_home(gs, router, submit->request_id);
    if (home)
        return weft_sched_submit(home->sched, now_us, router, submit, retry_after_ms_out, why);
    struct candidate candidates[WEFT_WORKERS_MAX];
    uint32_t n = rank(gs, now_us / 1000, submit, candidates);
    WEFT_ASSERT(n > 0);
    struct refusal soonest = {.no = WEFT_REJECT_NONE};
    for (uint32_t i = 0;; i++) {
        enum weft_reject no = weft_sched_submit(candidates[i].group->sched, now_us, router, submit,
                                                retry_after_ms_out, why);
        keep_soonest(&soonest, no, *retry_after_ms_out, why);
        if (i + 1 < n && is_passed_on(no, &candidates[i + 1])) {
            gs->n_passed_on++;
            continue;
        }
        bool is_final = no != WEFT_REJECT_TOO_LONG && !is_for_load(no);
        if (is_final || !soonest.no) return no;
        *retry_after_ms_out = soonest.retry_ms; /* too long for this one, but not for a full one */
        if (why) *why = soonest.why;
        return soonest.no;
    }
}

/* ---------------------------------------------------------------------------------- moving --- */

static bool is_due(const struct weft_sched_groups *gs, const struct weft_sched_group *g,
                   uint64_t now_ms) {
    if (may_hold(gs, g) || weft_sched_group_idle(g)) return false;
    return now_ms - g->lost_at_ms >= WEFT_SCHED_AWAY_MS &&
           (g->moved_at_ms == 0 || now_ms - g->moved_at_ms >= WEFT_SCHED_AWAY_MS);
}

static bool move(struct weft_sched_groups *gs, uint64_t now_us, weft_sched *from,
                 struct request *req) {
    struct candidate candidates[WEFT_WORKERS_MAX];
    uint32_t n = rank(gs, now_us / 1000, NULL, candidates);
    for (uint32_t i = 0; i < n && candidates[i].may_hold; i++) {
        if (wefti_sched_request_move(from, req, candidates[i].group->sched, now_us)) return true;
    }
    return false;
}

uint32_t weft_sched_groups_move(struct weft_sched_groups *gs, uint64_t now_us) {
    uint32_t n_moved = 0;
    for (uint32_t i = 0; i < gs->n; i++) {
        struct weft_sched_group *g = &gs->groups[i];
        if (!is_due(gs, g, now_us / 1000)) continue;
        g->moved_at_ms = now_us / 1000;
        WEFT_ASSERT(g->sched->n_running == 0 && g->sched->n_out == 0); /* its epoch has ended */
        for (uint32_t k = 0; k < g->sched->index.n_buckets; k++) {
            for (struct request *req = LIST_FIRST(&g->sched->index.buckets[k]), *next; req;
                 req = next) {
                next = LIST_NEXT(req, link); /* moving a request changes its own links only */
                n_moved += move(gs, now_us, g->sched, req);
            }
        }
    }
    return n_moved;
}
