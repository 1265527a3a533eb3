#include "property/faults/clients.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/limits.h"
#include "inside/api/call/call_internal.h"
#include "inside/api/kinds/kind.h"
#include "property/faults/wire.h"
#include "property/sim_worker.h"

/* Snapshots, retries and delays on the wire: what a router knows is older than what is so. */
#define SLACK_US 3500000u
#define RETRY_US 500000u /* after an error */

/* ------------------------------------------------------------------------------- newcomers --- */

/* Beginnings are often alike, so that prefixes are shared. */
static void draw_prompt(struct client *client) {
    uint32_t family = sim_dice(4), n_alike = sim_dice(96);
    client->n_prompt = (uint32_t)sim_between(1, sim_chance(3000) ? PROMPT_MAX : 40);
    for (uint32_t i = 0; i < client->n_prompt; i++)
        client->prompt[i] = i < n_alike ? (family * 977 + i * 31) % N_VOCAB : sim_dice(N_VOCAB);
}

static void write_body(const struct client *client, struct weft_buf *out) {
    char text[160];
    weft_buf_init(out, 1 << 20);
    weft_buf_add_str(out, "{\"prompt\":[");
    for (uint32_t i = 0; i < client->n_prompt; i++) {
        (void)snprintf(text, sizeof text, "%s%u", i ? "," : "", client->prompt[i]);
        weft_buf_add_str(out, text);
    }
    (void)snprintf(
        text, sizeof text, "],\"max_tokens\":%u,\"n\":%u,\"seed\":%" PRIu64 ",\"stream\":%s",
        client->max_tokens, client->n_choices, client->seed, sim_chance(5000) ? "true" : "false");
    weft_buf_add_str(out, text);
    if (client->stop_token < N_VOCAB) {
        (void)snprintf(text, sizeof text, ",\"stop_token_ids\":[%u]", client->stop_token);
        weft_buf_add_str(out, text);
    }
    if (client->timeout_us > 0) {
        (void)snprintf(text, sizeof text, ",\"timeout\":%.3f", (double)client->timeout_us / 1e6);
        weft_buf_add_str(out, text);
    }
    weft_buf_add_str(out, "}");
}

static void on_wake(weft_api_call *call) {
    (void)call; /* everybody is looked at in each turn */
}

static void come(struct clients *clients, struct client *client) {
    char request_id[32];
    struct weft_buf body;
    memset(client, 0, sizeof *client);
    client->seed = sim_dice(UINT32_MAX);
    client->n_choices = sim_chance(8000) ? 1 : (uint32_t)sim_between(2, 4);
    client->max_tokens = (uint32_t)sim_between(1, sim_chance(3000) ? 80 : 20);
    draw_prompt(client);
    client->prompt_hash = sim_prompt_hash(client->prompt, client->n_prompt, client->seed);
    client->stop_token = N_VOCAB;
    if (sim_chance(2000))
        client->stop_token =
            sim_token(client->prompt_hash, 0, sim_dice(client->max_tokens), N_VOCAB);
    client->timeout_us = sim_chance(1000) ? 1000 * sim_between(200, 15000) : 0;
    client->came_at_us = sim_now_us();
    client->leaves_at_us = sim_chance(500) ? sim_now_us() + sim_between(1, 3000000) : UINT64_MAX;
    client->n_ended_before = wire_n_ended();
    write_body(client, &body);
    (void)snprintf(request_id, sizeof request_id, "c%" PRIu64, ++clients->n_ever);
    const struct weft_api_call_request request = {
        .kind = &wefti_api_kind_completion,
        .body = &body,
        .request_id = request_id,
        .free_bytes = WEFT_API_SMALL_BYTES,
        .wake = on_wake,
        .now_us = sim_now_us(),
        .now_s = 1,
    };
    client->call = weft_api_call_new(clients->api, &request);
    WEFT_ASSERT(client->call);
    tally.n_calls++;
    weft_api_call_prepare(client->call);
    weft_api_call_start(client->call, sim_now_us());
    weft_buf_fini(&body);
}

static void leave(struct client *client) {
    weft_api_call_drop(client->call);
    client->call = NULL;
}

void clients_come_and_go(struct clients *clients) {
    for (uint32_t i = 0; i < shape.n_clients_max; i++) {
        struct client *client = &clients->list[i];
        if (client->call && sim_now_us() >= client->leaves_at_us) {
            tally.n_dropped++;
            leave(client);
        }
        if (client->call || clients->is_closed || sim_now_us() < clients->next_at_us) continue;
        clients->next_at_us = sim_now_us() + sim_between(0, 2 * shape.think_us);
        come(clients, client);
    }
}

/* -------------------------------------------------------------------------- what they may get --- */

static const char *code_of(const weft_api_call *call) {
    const char *code = weft_api_call_error(call)->code;
    return code ? code : "";
}

/* It was told nothing false: all so far, and in place. */
static void check_tokens(const struct clients *clients, struct client *client) {
    const weft_api_call *call = client->call;
    for (uint32_t c = 0; c < call->n_choices; c++) {
        const struct choice *choice = &call->choices[c];
        SIM_CHECK(choice->n_tokens >= client->n_seen[c], "router %u, %s: tokens were taken back",
                  clients->router, call->request_id);
        for (; client->n_seen[c] < choice->n_tokens; client->n_seen[c]++) {
            uint32_t i = client->n_seen[c];
            uint32_t token = sim_token(client->prompt_hash, choice->idx, i, N_VOCAB);
            SIM_CHECK(choice->tokens[i] == token && i < client->max_tokens,
                      "router %u, %s, choice %u: token %u is %u and not %u", clients->router,
                      call->request_id, c, i, choice->tokens[i], token);
            tally.n_tokens++;
        }
    }
}

static uint32_t n_due(const struct client *client, uint32_t choice, enum weft_end *end_out) {
    *end_out = WEFT_END_LENGTH;
    for (uint32_t i = 0; i < client->max_tokens; i++) {
        if (sim_token(client->prompt_hash, choice, i, N_VOCAB) != client->stop_token) continue;
        *end_out = WEFT_END_STOP_TOKEN;
        return i + 1;
    }
    return client->max_tokens;
}

static void check_done(const struct clients *clients, const struct client *client) {
    const weft_api_call *call = client->call;
    SIM_CHECK(call->n_choices == client->n_choices, "router %u, %s: %u choices instead of %u",
              clients->router, call->request_id, call->n_choices, client->n_choices);
    for (uint32_t c = 0; c < call->n_choices; c++) {
        enum weft_end end;
        uint32_t n = n_due(client, call->choices[c].idx, &end);
        SIM_CHECK(call->choices[c].n_tokens == n && call->choices[c].end == end,
                  "router %u, %s, choice %u ended after %u of %u tokens as %s", clients->router,
                  call->request_id, c, call->choices[c].n_tokens, n,
                  weft_end_reason(call->choices[c].end));
    }
}

static bool has_output(const struct client *client) {
    for (uint32_t c = 0; c < 4; c++) {
        if (client->n_seen[c] > 0) return true;
    }
    return false;
}

/* Errors for want of somebody who serves: nobody did for the grace, as far as one can see from here. */
static bool was_alone(const struct clients *clients) {
    uint64_t since_us = sim_now_us() - clients->able_at_us;
    return clients->able_at_us == 0 || clients->was_able_us < SLACK_US ||
           since_us + SLACK_US >= GRACE_MS * 1000;
}

static bool is_allowed(const struct clients *clients, const struct client *client) {
    const char *code = code_of(client->call);
    bool is_accepted = client->call->accepted;
    if (strcmp(code, "not_serving") == 0) return !has_output(client) && was_alone(clients);
    if (strcmp(code, "scheduler_lost") == 0) return shape.n_schedulers > 1 && was_alone(clients);
    if (strcmp(code, "queue_full") == 0) return !is_accepted && shape.is_tight;
    if (strcmp(code, "request_timeout") == 0)
        return client->timeout_us > 0 && sim_now_us() >= client->came_at_us + client->timeout_us;
    if (strcmp(code, "deadline") == 0) return client->timeout_us > 0 && !is_accepted;
    if (strcmp(code, "computation_failed") == 0)
        return wire_n_ended() - client->n_ended_before >= WEFT_SEQ_LOSSES_MAX;
    return false;
}

static void check_failed(const struct clients *clients, const struct client *client) {
    const struct weft_api_error *error = weft_api_call_error(client->call);
    SIM_CHECK(
        is_allowed(clients, client),
        "router %u, %s failed after %.3f s: %d %s: %s (a scheduler served it last %.3f s ago)",
        clients->router, weft_api_call_request_id(client->call),
        (double)(sim_now_us() - client->came_at_us) / 1e6, error->status, code_of(client->call),
        error->message, (double)(sim_now_us() - clients->able_at_us) / 1e6);
    tally.n_refused += strcmp(code_of(client->call), "queue_full") == 0;
}

/* ------------------------------------------------------------------------------- everybody --- */

/* As a socket that takes what there is, or for once does not. */
static void read_stream(struct client *client) {
    struct weft_buf out;
    if (!weft_api_call_is_stream(client->call) || sim_chance(3000)) return;
    if (weft_api_call_state(client->call) < WEFT_API_CALL_RUNNING) return;
    weft_buf_init(&out, 1 << 22);
    while (weft_api_render_stream(client->call, &out, 4096) == WEFT_API_RENDER_MORE)
        weft_buf_clear(&out);
    WEFT_ASSERT(!out.failed);
    weft_buf_fini(&out);
}

/* As a connection does in its ticks. */
static void end_if_late(struct client *client) {
    struct weft_api_error error = {0};
    weft_api_error_late(&error);
    if (!weft_api_call_is_late(client->call, sim_now_us())) return;
    bool has_ended = weft_api_call_end(client->call, &error);
    WEFT_ASSERT(has_ended);
}

static void look(struct clients *clients, struct client *client) {
    end_if_late(client);
    enum weft_api_call_state state = weft_api_call_state(client->call);
    check_tokens(clients, client);
    read_stream(client);
    if (state == WEFT_API_CALL_DONE) {
        check_done(clients, client);
        tally.n_done++;
        leave(client);
    } else if (state == WEFT_API_CALL_FAILED) {
        check_failed(clients, client);
        sim_say("router %u: %s gets an error: %s", clients->router,
                weft_api_call_request_id(client->call), weft_api_call_error(client->call)->message);
        tally.n_failed++;
        leave(client);
        clients->next_at_us = sim_now_us() + RETRY_US;
    }
}

void clients_look(struct clients *clients) {
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        if (clients->list[i].call) look(clients, &clients->list[i]);
    }
}

void clients_drop_all(struct clients *clients) {
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        if (clients->list[i].call) leave(&clients->list[i]);
    }
}

uint32_t clients_count(const struct clients *clients) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < CLIENTS_MAX; i++)
        n += clients->list[i].call != NULL;
    return n;
}
