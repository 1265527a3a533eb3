#include "scheduler/adapters.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "codec/digest.h"

weft_err weft_sched_adapters_init(struct weft_sched_adapters *a, uint32_t n_groups) {
    WEFT_ASSERT(n_groups <= WEFT_WORKERS_MAX);
    *a = (struct weft_sched_adapters){.n_groups = n_groups};
    a->items = calloc(WEFT_LORAS_MAX, sizeof *a->items);
    return a->items ? WEFT_OK : WEFT_E_NOMEM;
}

void weft_sched_adapters_fini(struct weft_sched_adapters *a) {
    for (uint32_t i = 0; i < a->n; i++)
        free(a->items[i].path);
    free(a->items);
    *a = (struct weft_sched_adapters){0};
}

struct weft_sched_adapter *weft_sched_adapters_find(const struct weft_sched_adapters *a,
                                                    uint64_t id) {
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->items[i].id == id) return &a->items[i];
    }
    return NULL;
}

static bool is_zero(const struct weft_digest *digest) {
    return (digest->hi | digest->lo) == 0;
}

static bool is_same(const struct weft_digest *a, const struct weft_digest *b) {
    return a->hi == b->hi && a->lo == b->lo;
}

/* --------------------------------------------------------------------------------- routers --- */

/* There is a place for it. NULL: no memory. */
static struct weft_sched_adapter *add(struct weft_sched_adapters *a, uint64_t id,
                                      const struct weft_digest *digest, const char *path) {
    char *copy = strdup(path);
    WEFT_ASSERT(a->n < WEFT_LORAS_MAX);
    if (!copy) return NULL;
    a->items[a->n] = (struct weft_sched_adapter){.id = id, .digest = *digest, .path = copy};
    return &a->items[a->n++];
}

/* A router that knows what it says has requests for it: none may be planned before the workers have it. */
static void await_known(struct weft_sched_adapters *a, struct weft_sched_adapter *item) {
    for (uint32_t g = 0; g < a->n_groups; g++) {
        if (!a->is_serving[g] || item->is_awaited[g]) continue;
        if (item->groups[g] == WEFT_SCHED_ADAPTER_THERE) continue;
        item->is_awaited[g] = true;
        a->n_awaited[g]++;
    }
}

weft_err weft_sched_adapters_ask(struct weft_sched_adapters *a, uint32_t router, uint64_t id,
                                 const struct weft_digest *digest, const char *path,
                                 struct weft_errmsg *why) {
    struct weft_sched_adapter *item = weft_sched_adapters_find(a, id);
    WEFT_ASSERT(router < WEFT_SCHED_ROUTERS_MAX);
    if (!item && a->n == WEFT_LORAS_MAX)
        return weft_err_set(why, WEFT_E_FULL, "there are %d adapters, and no more may be",
                            WEFT_LORAS_MAX);
    if (!item) item = add(a, id, digest, path);
    if (!item) return weft_err_set(why, WEFT_E_NOMEM, "no memory for another adapter");
    bool fits = is_zero(digest) || is_zero(&item->digest) || is_same(digest, &item->digest);
    if (!fits || strcmp(item->path, path) != 0)
        return weft_err_set(why, WEFT_E_INVAL, "%s: another adapter is there in its place", path);
    if (is_zero(&item->digest)) item->digest = *digest;
    if (!is_zero(digest)) await_known(a, item);
    item->n_routers += !item->asks[router];
    item->asks[router] = item->is_untold[router] = true;
    return WEFT_OK;
}

void weft_sched_adapters_unask(struct weft_sched_adapters *a, uint32_t router, uint64_t id,
                               uint64_t now_us) {
    WEFT_ASSERT(router < WEFT_SCHED_ROUTERS_MAX);
    for (uint32_t i = 0; i < a->n; i++) {
        struct weft_sched_adapter *item = &a->items[i];
        if (id != UINT64_MAX && item->id != id) continue;
        if (!item->asks[router]) continue;
        item->asks[router] = item->is_untold[router] = false;
        item->n_routers--;
        item->may_return = id == UINT64_MAX;
        item->unasked_us = now_us;
    }
}

/* -------------------------------------------------------------------------------- workers --- */

static void begin(struct weft_sched_adapters *a, uint32_t group, bool is_serving) {
    WEFT_ASSERT(group < a->n_groups);
    a->is_serving[group] = is_serving;
    a->n_awaited[group] = is_serving ? a->n : 0;
    for (uint32_t i = 0; i < a->n; i++) {
        a->items[i].groups[group] = WEFT_SCHED_ADAPTER_ABSENT;
        a->items[i].is_awaited[group] = is_serving;
    }
}

void weft_sched_adapters_came(struct weft_sched_adapters *a, uint32_t group) {
    begin(a, group, true);
}

void weft_sched_adapters_went(struct weft_sched_adapters *a, uint32_t group) {
    begin(a, group, false);
}

static void stop_awaiting(struct weft_sched_adapters *a, struct weft_sched_adapter *item,
                          uint32_t group) {
    if (item->is_awaited[group]) a->n_awaited[group]--;
    item->is_awaited[group] = false;
}

bool weft_sched_adapters_may_plan(const struct weft_sched_adapters *a, uint32_t group) {
    return a->n_awaited[group] == 0;
}

const struct weft_sched_adapter *weft_sched_adapters_next(struct weft_sched_adapters *a,
                                                          uint32_t group) {
    for (uint32_t i = 0; i < a->n && a->is_serving[group]; i++) {
        if (a->items[i].groups[group] != WEFT_SCHED_ADAPTER_ABSENT) continue;
        a->items[i].groups[group] = WEFT_SCHED_ADAPTER_ASKED;
        return &a->items[i];
    }
    return NULL;
}

struct weft_sched_adapter *weft_sched_adapters_loaded(struct weft_sched_adapters *a, uint32_t group,
                                                      uint64_t id, const struct weft_digest *digest,
                                                      uint64_t bytes, bool *fits_out) {
    struct weft_sched_adapter *item = weft_sched_adapters_find(a, id);
    *fits_out = true;
    if (!item || item->groups[group] != WEFT_SCHED_ADAPTER_ASKED) return NULL;
    *fits_out = is_zero(&item->digest) || is_same(&item->digest, digest);
    if (!*fits_out) return item;
    item->groups[group] = WEFT_SCHED_ADAPTER_THERE;
    item->digest = *digest;
    item->bytes = bytes;
    stop_awaiting(a, item, group);
    return item;
}

static bool is_ready(const struct weft_sched_adapters *a, const struct weft_sched_adapter *item) {
    bool is_anywhere = false;
    for (uint32_t g = 0; g < a->n_groups; g++) {
        if (!a->is_serving[g]) continue;
        if (item->groups[g] != WEFT_SCHED_ADAPTER_THERE) return false;
        is_anywhere = true;
    }
    return is_anywhere;
}

const struct weft_sched_adapter *weft_sched_adapters_news(struct weft_sched_adapters *a,
                                                          uint32_t *router_out) {
    for (uint32_t i = 0; i < a->n; i++) {
        struct weft_sched_adapter *item = &a->items[i];
        bool *untold = memchr(item->is_untold, true, sizeof item->is_untold);
        if (!untold || !is_ready(a, item)) continue;
        *untold = false;
        *router_out = (uint32_t)(untold - item->is_untold);
        return item;
    }
    return NULL;
}

/* --------------------------------------------------------------------------------- leaving --- */

struct weft_sched_adapter *weft_sched_adapters_unwanted(const struct weft_sched_adapters *a,
                                                        const struct weft_sched_adapter *after,
                                                        uint64_t now_us) {
    uint32_t i = after ? (uint32_t)(after - a->items) + 1 : 0;
    for (; i < a->n; i++) {
        struct weft_sched_adapter *item = &a->items[i];
        uint64_t grace_us = item->may_return ? WEFT_SCHED_ADAPTER_GRACE_US : 0;
        if (item->n_routers == 0 && now_us >= item->unasked_us + grace_us) return item;
    }
    return NULL;
}

/* A worker that is still loading it need not be waited for. */
void weft_sched_adapters_forget(struct weft_sched_adapters *a, struct weft_sched_adapter *item) {
    WEFT_ASSERT(item >= a->items && item < a->items + a->n);
    for (uint32_t g = 0; g < a->n_groups; g++)
        stop_awaiting(a, item, g);
    free(item->path);
    *item = a->items[--a->n];
}

/* ------------------------------------------------------------------------------- requests --- */

weft_err weft_sched_adapters_salt(const struct weft_sched_adapters *a, struct weft_submit *submit,
                                  struct weft_errmsg *why) {
    struct {
        struct weft_digest salt;
        struct {
            struct weft_digest digest;
            float scale;
            uint32_t zero;
        } adapters[WEFT_SEQ_ADAPTERS_MAX];
    } all;
    if (submit->n_adapters == 0) return WEFT_OK;
    WEFT_ASSERT(submit->n_adapters <= WEFT_SEQ_ADAPTERS_MAX);
    memset(&all, 0, sizeof all);
    all.salt = submit->cache_salt;
    for (uint32_t i = 0; i < submit->n_adapters; i++) {
        const struct weft_sched_adapter *item = weft_sched_adapters_find(a, submit->adapters[i].id);
        if (!item || is_zero(&item->digest))
            return weft_err_set(why, WEFT_E_INVAL, "the adapter is not loaded, or not any more");
        all.adapters[i].digest = item->digest;
        all.adapters[i].scale = submit->adapters[i].scale;
    }
    submit->cache_salt = weft_digest_of("adapters", (const char *)&all, sizeof all);
    return WEFT_OK;
}
