#include "api.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "codec/json_out.h"
#include "http.h"
#include "inside/api/call/call.h"

#define JSON "application/json"
#define TEXT_BYTES_MAX (1u << 20)

/* ------------------------------------------------------------------------------- short JSON --- */

void wefti_api_models(const struct server *server, struct weft_buf *out) {
    const struct weft_api_state *api = &server->api;
    const char *name = api->limits.model_name, *root = api->settings.model;
    weft_buf_add_str(out, "{\"object\":\"list\",\"data\":[{\"id\":");
    weft_json_str(out, name, strlen(name));
    weft_buf_printf(out,
                    ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"weft\","
                    "\"root\":",
                    api->settings.started_s);
    weft_json_str(out, root, strlen(root));
    weft_buf_add_str(out, ",\"parent\":null,\"max_model_len\":");
    if (api->limits.max_model_len)
        weft_buf_printf(out, "%u}]}", api->limits.max_model_len);
    else
        weft_buf_add_str(out, "null}]}");
}

void wefti_api_health(const struct server *server, struct weft_buf *out) {
    const char *why = weft_api_why_ill(&server->api, weft_now_ms());
    if (why)
        weft_buf_printf(out, "{\"status\":\"unavailable\",\"reason\":\"%s\"}", why);
    else
        weft_buf_add_str(out, "{\"status\":\"ok\"}");
}

void wefti_api_stats(const struct server *server, struct weft_buf *out) {
    const struct weft_api_state *api = &server->api;
    const struct weft_msg_snapshot *s = &api->upstream.snapshot;
    const struct weft_api_metrics *m = &api->metrics;
    weft_buf_printf(out,
                    "{\"serving\":%s,\"advancing\":%s,\"num_requests_running\":%u,"
                    "\"num_requests_waiting\":%u,\"kv_blocks\":%u,\"kv_blocks_free\":%u,"
                    "\"num_preemptions\":%" PRIu64 ",\"steps\":%" PRIu64 ",",
                    s->serving ? "true" : "false", s->advancing ? "true" : "false", s->n_running,
                    s->n_waiting, s->n_blocks, s->n_blocks_free, m->carried.n_preemptions,
                    m->carried.n_steps);
    weft_buf_printf(out,
                    "\"prompt_tokens\":%" PRIu64 ",\"generation_tokens\":%" PRIu64
                    ",\"connections\":%u,\"resident_bytes\":{\"router\":%" PRIu64
                    ",\"scheduler\":%" PRIu64 ",\"worker\":%" PRIu64 "}}",
                    m->n_prompt_tokens, m->n_generation_tokens, server->n_conns,
                    weft_mem_resident_bytes(), s->sched_resident_bytes, s->worker_resident_bytes);
}

/* --------------------------------------------------------------------------------- handlers --- */

static void respond_buf(struct http *h, int status, const char *type, struct weft_buf *body) {
    wefti_http_respond(h, status, type, status == 503 ? "Retry-After: 1\r\n" : "",
                       body->data ? body->data : "", body->len);
    weft_buf_fini(body);
}

static void get_models(struct http *h) {
    struct weft_buf body;
    weft_buf_init(&body, TEXT_BYTES_MAX);
    wefti_api_models(h->conn->server, &body);
    respond_buf(h, 200, JSON, &body);
}

/* /v1/models/NAME; a name may hold slashes, percent-encoded or not. */
static void get_model(struct http *h) {
    const struct weft_api_state *api = &h->conn->server->api;
    const char *at = h->path.at + strlen("/v1/models/"), *end = h->path.at + h->path.len;
    const char *name = api->limits.model_name;
    while (at < end && *name) {
        char c = *at;
        if (c == '%' && end - at >= 3) {
            char hex[3] = {at[1], at[2], 0}, *stop;
            c = (char)strtoul(hex, &stop, 16);
            if (stop == hex + 2) at += 2;
        }
        if (c != *name) break;
        at++;
        name++;
    }
    if (at != end || *name) {
        struct weft_api_error error = {0};
        weft_api_error_set(
            &error, 404, "model", "model_not_found", "The model '%.*s' does not exist.",
            (int)(h->path.len - strlen("/v1/models/")), h->path.at + strlen("/v1/models/"));
        wefti_http_refuse(h, &error);
        return;
    }
    struct weft_buf list, body;
    weft_buf_init(&list, TEXT_BYTES_MAX);
    weft_buf_init(&body, TEXT_BYTES_MAX);
    wefti_api_models(h->conn->server, &list);
    const char *open = memchr(list.data, '[', list.len);
    size_t skip = (size_t)(open + 1 - list.data);
    weft_buf_add(&body, open + 1, list.len - skip - 2); /* without "]}" */
    weft_buf_fini(&list);
    respond_buf(h, 200, JSON, &body);
}

static void get_health(struct http *h) {
    struct server *server = h->conn->server;
    struct weft_buf body;
    weft_buf_init(&body, TEXT_BYTES_MAX);
    bool is_ill = weft_api_why_ill(&server->api, weft_now_ms()) != NULL;
    wefti_api_health(server, &body);
    respond_buf(h, is_ill ? 503 : 200, JSON, &body);
}

static void get_live(struct http *h) {
    wefti_http_respond(h, 200, JSON, "", "{\"status\":\"ok\"}", 15);
}

static void get_version(struct http *h) {
    static const char body[] = "{\"version\":\"" WEFT_VERSION "\"}";
    wefti_http_respond(h, 200, JSON, "", body, sizeof body - 1);
}

static void get_metrics(struct http *h) {
    struct server *server = h->conn->server;
    struct weft_buf body;
    weft_buf_init(&body, WEFT_API_METRICS_BYTES_MAX);
    struct weft_api_metrics_view view = {
        .prefix = server->config.metrics_prefix,
        .model_name = server->api.limits.model_name,
        .snapshot = server->api.upstream.has_snapshot ? &server->api.upstream.snapshot : NULL,
        .router_resident_bytes = weft_mem_resident_bytes(),
        .held_input_bytes = server->api.held_bytes,
        .held_output_bytes = server->api.output_bytes,
        .is_serving = !weft_api_why_ill(&server->api, weft_now_ms()),
    };
    weft_api_metrics_render(&server->api.metrics, &view, &body);
    respond_buf(h, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}

static void get_page(struct http *h) {
    struct weft_buf body;
    weft_buf_init(&body, TEXT_BYTES_MAX);
    wefti_page_render(h->conn->server, &body);
    respond_buf(h, 200, "text/html; charset=utf-8", &body);
}

static void start_call(struct http *h, enum call_kind kind) {
    struct server *server = h->conn->server;
    weft_api_call *call =
        weft_api_call_new(&server->api, kind, &h->body, wefti_http_wake, h, weft_now_us());
    if (!call) {
        struct weft_api_error error = {0};
        weft_api_error_set(&error, 500, NULL, NULL, "out of memory");
        wefti_http_refuse(h, &error);
        return;
    }
    wefti_http_attach(h, call);
    wefti_server_begin(server, call);
}

static void post_completions(struct http *h) {
    start_call(h, CALL_COMPLETION);
}

static void post_chat(struct http *h) {
    start_call(h, CALL_CHAT);
}

static void post_tokenize(struct http *h) {
    start_call(h, CALL_TOKENIZE);
}

static void post_detokenize(struct http *h) {
    start_call(h, CALL_DETOKENIZE);
}

static void post_embeddings(struct http *h) {
    struct weft_api_error error = {0};
    weft_api_error_set(&error, 400, "model", "unsupported_endpoint",
                       "this server does not compute embeddings yet");
    wefti_http_refuse(h, &error);
}

/* ----------------------------------------------------------------------------------- routes --- */

struct route {
    const char *path;
    bool is_post;     /* else GET and HEAD */
    bool is_prefix;   /* any path that begins so */
    bool is_guarded;  /* by the API key */
    bool needs_model; /* 503 while nothing is served */
    void (*handle)(struct http *http);
};

static const struct route routes[] = {
    {"/v1/completions", true, false, true, true, post_completions},
    {"/v1/chat/completions", true, false, true, true, post_chat},
    {"/v1/embeddings", true, false, true, false, post_embeddings},
    {"/v1/models", false, false, true, false, get_models},
    {"/v1/models/", false, true, true, false, get_model},
    {"/tokenize", true, false, true, false, post_tokenize},
    {"/detokenize", true, false, true, false, post_detokenize},
    {"/health", false, false, false, false, get_health},
    {"/health/live", false, false, false, false, get_live},
    {"/ping", false, false, false, false, get_health},
    {"/metrics", false, false, false, false, get_metrics},
    {"/version", false, false, false, false, get_version},
    {"/", false, false, false, false, get_page},
};

const char *wefti_route_allow(const struct route *route) {
    return route->is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

static const struct route *find_route(const struct span *path) {
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        size_t len = strlen(routes[i].path);
        bool fits = routes[i].is_prefix ? path->len > len : path->len == len;
        if (fits && path->at && memcmp(path->at, routes[i].path, len) == 0) return &routes[i];
    }
    return NULL;
}

static bool has_key(const struct http *h) {
    struct span key = h->authorization;
    if (key.len >= 7 && strncasecmp(key.at, "bearer ", 7) == 0) {
        key.at += 7;
        key.len -= 7;
        while (key.len && *key.at == ' ') {
            key.at++;
            key.len--;
        }
    } else {
        key = (struct span){"", 0};
    }
    return wefti_server_admits(h->conn->server, key.at, key.len);
}

/* Clients that name another type than they send (curl -d, urllib) are served all the same. Not so
 * browsers, which say where they come from: a web page can make them send any type but JSON, and
 * none at all, without asking us first. */
static bool is_welcome_type(const struct span *type, const struct span *origin) {
    if (!origin->at) return true;
    if (!type->at) return false;
    size_t n = 0;
    while (n < type->len && type->at[n] != ';' && type->at[n] != ' ')
        n++;
    bool is_plain = n == 16 && strncasecmp(type->at, "application/json", n) == 0;
    bool is_suffix = n > 5 && strncasecmp(type->at + n - 5, "+json", 5) == 0;
    return is_plain || is_suffix;
}

void wefti_api_check(struct http *h) {
    struct weft_api_error *no = &h->refusal;
    h->route = find_route(&h->path);
    const struct route *route = h->route;
    if (h->method == HTTP_OPTIONS) return;
    if (!route) {
        weft_api_error_set(no, 404, NULL, "not_found", "there is nothing at '%.*s'",
                           (int)(h->path.len < 200 ? h->path.len : 200),
                           h->path.at ? h->path.at : "");
        return;
    }
    bool is_method =
        route->is_post ? h->method == HTTP_POST : h->method == HTTP_GET || h->method == HTTP_HEAD;
    if (!is_method) {
        weft_api_error_set(no, 405, NULL, "method_not_allowed", "%s takes %s", route->path,
                           wefti_route_allow(route));
        return;
    }
    if (route->is_guarded && !has_key(h)) {
        weft_api_error_set(no, 401, NULL, "invalid_api_key", "%s",
                           h->authorization.len
                               ? "Incorrect API key provided"
                               : "No API key provided: send it as \"Authorization: Bearer KEY\"");
        return;
    }
    if (route->is_post && !is_welcome_type(&h->content_type, &h->origin)) {
        weft_api_error_set(no, 415, NULL, NULL,
                           "the body must be sent as Content-Type: application/json");
        return;
    }
    struct server *server = h->conn->server;
    uint64_t now_ms = weft_now_ms();
    const char *why = route->needs_model ? weft_api_why_not(&server->api, now_ms) : NULL;
    if (why && !no->status && !weft_api_is_back_soon(&server->api, now_ms)) {
        weft_api_error_set(no, 503, NULL, "not_serving", "%s", why);
        no->retry_after = 1;
    }
}

static void answer_options(struct http *h) {
    struct weft_buf extra;
    weft_buf_init(&extra, WEFT_HEAD_BYTES_MAX);
    const char *allow = h->route ? wefti_route_allow(h->route) : "GET, HEAD, POST, OPTIONS";
    weft_buf_printf(&extra, "Allow: %s\r\n", allow);
    if (h->origin.at) {
        weft_buf_printf(&extra, "Access-Control-Allow-Methods: %s\r\n", allow);
        if (h->wanted_headers.at) {
            weft_buf_add_str(&extra, "Access-Control-Allow-Headers: ");
            weft_buf_add(&extra, h->wanted_headers.at, h->wanted_headers.len);
            weft_buf_add_str(&extra, "\r\n");
        }
        weft_buf_add_str(&extra, "Access-Control-Max-Age: 600\r\n");
    }
    wefti_http_respond(h, 204, NULL, weft_buf_cstr(&extra), "", 0);
    weft_buf_fini(&extra);
}

void wefti_api_handle(struct http *h) {
    WEFT_ASSERT(h->message_done && !h->refusal.status);
    if (h->method == HTTP_OPTIONS)
        answer_options(h);
    else
        h->route->handle(h);
}
