/* A router's process: the real calls, upstream and links, and in place of its sockets the clients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "inside/router/scheduler_link.h"
#include "property/faults/clients.h"
#include "property/faults/wire.h"

#define TICK_US 100000u

struct router {
    struct sim_proc proc;
    char urls[256];
    struct weft_api_state api;
    struct scheduler_links links;
    struct clients clients;
    uint64_t tick_at_us;
    uint64_t looked_at_us;
};

static weft_tokenizer *tokenizer;
struct tally tally;

void routers_begin(void) {
    char path[1024];
    struct weft_errmsg why;
    const char *root = getenv("WEFT_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/models/fable-6m", root ? root : ".");
    weft_err err = weft_tok_open(path, &tokenizer, &why);
    SIM_CHECK(!err, "%s", why.text);
}

void routers_end(void) {
    weft_tok_free(tokenizer);
}

/* ------------------------------------------------------------------------------------- turns --- */

/* Whether a scheduler is there for this router, seen from above. */
static bool is_able(const struct router *r) {
    for (uint32_t i = 0; i < r->links.n; i++) {
        if (wire_joins(&r->proc, scheduler_proc(schedulers[i])) && scheduler_serves(schedulers[i]))
            return true;
    }
    return false;
}

static void note_able(struct router *r) {
    uint64_t since_us = weft_min_u64(sim_now_us() - r->looked_at_us, 2 * TICK_US); /* not stopped */
    struct clients *clients = &r->clients;
    r->looked_at_us = sim_now_us();
    if (is_able(r)) {
        clients->able_at_us = sim_now_us();
        clients->was_able_us += since_us;
    } else {
        clients->was_able_us = 0;
    }
}

static void turn(struct sim_proc *proc) {
    struct router *r = (struct router *)proc;
    uint64_t now_us = sim_now_us();
    wire_enter(proc);
    note_able(r);
    for (uint32_t i = 0; i < r->links.n; i++)
        wefti_scheduler_link_read(&r->links.links[i], now_us);
    if (now_us >= r->tick_at_us) {
        r->tick_at_us = now_us + TICK_US;
        wefti_scheduler_links_tick(&r->links, now_us);
    }
    clients_come_and_go(&r->clients);
    weft_api_calls_unpark(&r->api, now_us);
    weft_api_upstream_pump(&r->api, now_us);
    clients_look(&r->clients);
    uint64_t next_us = r->tick_at_us;
    if (!r->clients.is_closed && r->clients.next_at_us < next_us &&
        clients_count(&r->clients) < shape.n_clients_max)
        next_us = r->clients.next_at_us;
    sim_wake(proc, next_us > now_us ? next_us : now_us + 1);
}

/* ------------------------------------------------------------------------------- its process --- */

struct router *router_new(uint32_t idx) {
    struct router *r = calloc(1, sizeof *r);
    WEFT_ASSERT(r);
    r->proc =
        (struct sim_proc){.kind = "router", .idx = idx, .turn_at_us = UINT64_MAX, .turn = turn};
    for (uint32_t i = 0; i < shape.n_schedulers; i++) {
        char url[64];
        scheduler_url(url, i);
        if (i > 0) strcat(r->urls, ",");
        strcat(r->urls, url);
    }
    return r;
}

void router_start(struct router *r) {
    static const char *const names[] = {"m"};
    struct weft_errmsg why;
    if (r->proc.is_alive) return;
    sim_say("router %u starts", r->proc.idx);
    r->proc.is_alive = true;
    r->proc.stopped_until_us = 0;
    r->proc.turn_at_us = UINT64_MAX;
    const struct weft_api_settings settings = {.model = "m",
                                               .max_body_bytes = 1 << 20,
                                               .max_logprob_bytes = 1 << 20,
                                               .restart_grace_ms = GRACE_MS,
                                               .max_queue = shape.max_queue,
                                               .prefix_cache = true};
    weft_api_init(&r->api, &settings);
    r->api.tok = tokenizer;
    r->api.limits.model_name = "m";
    r->api.limits.model_names = names;
    r->api.limits.n_model_names = 1;
    r->api.limits.max_logprobs = 20;
    weft_err err = weft_tok_gen_defaults("/nowhere", &r->api.limits.defaults, &why);
    SIM_CHECK(!err, "%s", why.text);
    wire_enter(&r->proc);
    memset(&r->links, 0, sizeof r->links);
    r->links.options.insecure = true;
    err = wefti_scheduler_links_open(&r->links, &r->api, r->urls, &why);
    SIM_CHECK(!err, "%s", why.text);
    r->clients.api = &r->api;
    r->clients.router = r->proc.idx;
    r->clients.able_at_us = r->clients.was_able_us = 0;
    r->clients.n_ever = 0;
    r->clients.next_at_us = sim_now_us() + 100000;
    r->tick_at_us = 0;
    r->looked_at_us = sim_now_us();
    sim_wake(&r->proc, sim_now_us());
}

void router_kill(struct router *r) {
    if (!r->proc.is_alive) return;
    r->proc.is_alive = false;
    wire_kill(&r->proc);
    clients_drop_all(&r->clients);
    tally.n_resubmitted += r->api.metrics.n_resubmitted;
    tally.n_moved += r->api.metrics.n_moved;
    wefti_scheduler_links_close(&r->links);
    r->api.tok = NULL;
    weft_api_fini(&r->api);
}

void router_free(struct router *r) {
    router_kill(r);
    free(r);
}

struct sim_proc *router_proc(struct router *r) {
    return &r->proc;
}

void router_close(struct router *r) {
    r->clients.is_closed = true;
}

uint64_t router_n_steps(const struct router *r) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        const struct client *client = &r->clients.list[i];
        if (client->call) n += client->n_choices * (client->max_tokens + client->n_prompt / 8 + 2);
    }
    return n;
}

bool router_is_idle(const struct router *r) {
    return clients_count(&r->clients) == 0;
}

void router_check_well(const struct router *r) {
    const char *why = weft_api_why_ill(&r->api, sim_now_us() / 1000);
    SIM_CHECK(!why, "router %u: /health says: %s", r->proc.idx, why);
    SIM_CHECK(r->api.upstream.n_open == 0, "router %u: %u requests are open without a client",
              r->proc.idx, r->api.upstream.n_open);
}
