/* Adapters between routers and workers: what lib/scheduler/adapters decides, as messages. */
#include <string.h>

#include "actor_internal.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

static void tell_router(struct wefti_actor *a, uint32_t peer, const struct weft_msg_lora *lora) {
    const struct weft_msg msg = {.type = WEFT_MSG_LORA, .lora = *lora};
    wefti_router_send(a, peer, &msg);
}

/* Nobody has it any more; requests that name it end. */
static void forget(struct wefti_actor *a, struct weft_sched_adapter *item, const char *because) {
    struct weft_msg msg = {.type = WEFT_MSG_REMOVE_LORA};
    msg.remove_lora.id = item->id;
    for (uint32_t i = 0; i < a->n_groups; i++) {
        weft_sched *sched = a->groups[i].replica->sched;
        if (sched) weft_sched_end_adapter(sched, weft_now_us(), item->id);
        if (item->groups[i] != WEFT_SCHED_ADAPTER_ABSENT)
            (void)wefti_group_send(a, &a->groups[i], &msg);
    }
    for (uint32_t peer = 0; because && peer < WEFT_LINK_PEERS_MAX; peer++) {
        const struct weft_msg_lora lora = {.id = item->id, .text = because};
        if (item->asks[peer]) tell_router(a, peer, &lora);
    }
    weft_sched_adapters_forget(&a->adapters, item);
}

void wefti_adapters_ask(struct wefti_actor *a, uint32_t peer, const struct weft_msg_add_lora *m) {
    struct weft_errmsg why = {""};
    weft_err err = weft_sched_adapters_ask(&a->adapters, peer, m->id, &m->digest, m->path, &why);
    if (!err) return;
    const struct weft_msg_lora lora = {.id = m->id, .text = why.text};
    tell_router(a, peer, &lora);
}

void wefti_adapters_answer(struct wefti_actor *a, struct wefti_group *g,
                           const struct weft_msg_lora *m) {
    uint32_t group = (uint32_t)(g - a->groups);
    bool fits = true;
    struct weft_sched_adapter *item = weft_sched_adapters_find(&a->adapters, m->id);
    if (!item || item->groups[group] != WEFT_SCHED_ADAPTER_ASKED) return; /* forgotten meanwhile */
    if (!m->is_there) {
        weft_debug("an adapter is not there: %s", m->text);
        forget(a, item, m->text);
        return;
    }
    item = weft_sched_adapters_loaded(&a->adapters, group, m->id, &m->digest, m->bytes, &fits);
    if (item && !fits) {
        weft_warn("%s: the adapter is another than it was", item->path);
        forget(a, item, "the adapter's files have changed since it was loaded");
    }
}

static bool is_used(const struct wefti_actor *a, uint64_t id) {
    for (uint32_t i = 0; i < a->n_groups; i++) {
        const weft_sched *sched = a->groups[i].replica->sched;
        if (sched && weft_sched_uses_adapter(sched, id)) return true;
    }
    return false;
}

static void forget_unwanted(struct wefti_actor *a) {
    uint64_t now_us = weft_now_us();
    struct weft_sched_adapter *item = NULL;
    while ((item = weft_sched_adapters_unwanted(&a->adapters, item, now_us))) {
        if (is_used(a, item->id)) continue;
        forget(a, item, NULL);
        item = NULL; /* the last one is in its place */
    }
}

static void tell_workers(struct wefti_actor *a) {
    for (uint32_t i = 0; i < a->n_groups; i++) {
        const struct weft_sched_adapter *item = NULL;
        while ((item = weft_sched_adapters_next(&a->adapters, i))) {
            struct weft_msg msg = {.type = WEFT_MSG_ADD_LORA};
            msg.add_lora = (struct weft_msg_add_lora){item->id, item->digest, item->path};
            if (!wefti_group_send(a, &a->groups[i], &msg)) break;
        }
    }
}

void wefti_adapters_turn(struct wefti_actor *a) {
    const struct weft_sched_adapter *item = NULL;
    uint32_t peer = 0;
    forget_unwanted(a);
    tell_workers(a);
    while ((item = weft_sched_adapters_news(&a->adapters, &peer))) {
        const struct weft_msg_lora lora = {.id = item->id,
                                           .is_there = true,
                                           .digest = item->digest,
                                           .bytes = item->bytes,
                                           .text = ""};
        tell_router(a, peer, &lora);
    }
}
