/* What routers ask about sessions: of all groups together, or of the one that has the session. */
#include <stdlib.h>

#include "actor_internal.h"
#include "base/clock.h"

static void answer(struct wefti_actor *a, uint32_t peer, const struct weft_session_answer *text) {
    struct weft_msg msg = {.type = WEFT_MSG_SESSION_DONE, .session_done = *text};
    wefti_router_send(a, peer, &msg);
}

static void list(struct wefti_actor *a, uint32_t peer, const struct weft_session_wish *wish) {
    struct weft_session_answer text = {.id = wish->id, .text = ""};
    struct weft_session_told *told = calloc(WEFT_SESSIONS_MAX, sizeof *told);
    if (!told) {
        text.err = WEFT_E_NOMEM;
        text.text = "no memory for a list of sessions";
    }
    for (uint32_t i = 0; told && i < a->n_groups; i++) {
        const weft_sched *sched = a->groups[i].replica->sched;
        if (!sched) continue;
        text.n_told += weft_sched_session_list(sched, weft_now_us(), wish->tenant,
                                               told + text.n_told, WEFT_SESSIONS_MAX - text.n_told);
    }
    text.told = told;
    answer(a, peer, &text);
    free(told);
}

static void drop(struct wefti_actor *a, uint32_t peer, const struct weft_session_wish *wish) {
    struct weft_session_answer text = {
        .id = wish->id, .err = WEFT_E_NOTFOUND, .text = "there is no such session"};
    for (uint32_t i = 0; i < a->n_groups; i++) {
        weft_sched *sched = a->groups[i].replica->sched;
        uint32_t n = sched ? weft_sched_session_drop(sched, wish->tenant, wish->session_id) : 0;
        if (n == 0) continue;
        text.n_tokens += n;
        text.err = WEFT_OK;
        text.text = "";
    }
    answer(a, peer, &text);
}

/* The group that has the session; to restore one, the first that serves. NULL: none. */
static struct wefti_group *find_group(struct wefti_actor *a, const struct weft_session_wish *wish) {
    struct wefti_group *serving = NULL;
    for (uint32_t i = 0; i < a->n_groups; i++) {
        struct wefti_group *g = &a->groups[i];
        if (!g->replica->is_serving) continue;
        if (weft_sched_session_has(g->replica->sched, wish->tenant, wish->session_id)) return g;
        if (!serving) serving = g;
    }
    return serving;
}

void wefti_sessions_ask(struct wefti_actor *a, uint32_t peer,
                        const struct weft_session_wish *wish) {
    struct weft_errmsg why = {"no worker is there now"};
    if (wish->op == WEFT_SESSION_LIST) {
        list(a, peer, wish);
        return;
    }
    if (wish->op == WEFT_SESSION_DROP) {
        drop(a, peer, wish);
        return;
    }
    weft_err err = WEFT_E_CLOSED;
    struct wefti_group *g = find_group(a, wish);
    if (g) err = weft_sched_session_ask(g->replica->sched, weft_now_us(), peer, wish, &why);
    if (!err) return;
    const struct weft_session_answer no = {.id = wish->id, .err = err, .text = why.text};
    answer(a, peer, &no);
}

void wefti_sessions_pump(struct wefti_actor *a, struct wefti_group *g) {
    weft_sched *sched = g->replica->sched;
    struct weft_msg msg = {.type = WEFT_MSG_KV_FILE};
    const struct weft_kv_file *file = NULL;
    if (g->replica->is_serving && weft_sched_next_file(sched, &file)) {
        msg.kv_file = *file;
        (void)wefti_group_send(a, g, &msg); /* if it is lost, so is the worker */
    }
    uint32_t peer;
    struct weft_session_answer text;
    while (weft_sched_session_answered(sched, &peer, &text))
        answer(a, peer, &text);
}
