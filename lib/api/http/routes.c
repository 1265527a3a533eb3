/* Which path and method means what, who may ask, and the answers that need no call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "answers/answers.h"
#include "api/api.h"
#include "base/check.h"
#include "base/parse.h"
#include "base/process.h"
#include "base/utf8.h"
#include "http/head.h"
#include "http/page.h"
#include "kinds/kind.h"
#include "names.h"
#include "params/params_internal.h"
#include "store/store.h"

#define JSON "application/json"
#define TEXT_BYTES_MAX (1u << 20)
#define PROPS_BYTES_MAX (8u << 20)           /* a chat template of 1 MiB, escaped */
#define RESPONSE_BYTES_MAX ((size_t)1 << 40) /* the store's own bound is less */

/* ---------------------------------------------------------------------------- short answers --- */

static struct weft_writer begin_json(struct weft_api_answer *out) {
    struct weft_writer w;
    out->status = 200;
    out->type = JSON;
    weft_writer_init(&w, WEFT_WRITE_JSON, &out->body);
    return w;
}

static void set_not_found(struct weft_api_error *no, const struct weft_api_span *path) {
    char quoted[200];
    weft_api_quote(path->at, path->len, quoted, sizeof quoted);
    weft_api_error_set(no, 404, NULL, "not_found", "there is nothing at '%s'", quoted);
}

static void get_models(const struct weft_api_state *api, const struct weft_api_span *path,
                       const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)path;
    struct weft_writer w = begin_json(out);
    wefti_api_write_models(api, moment, &w);
}

/* Decodes what is percent-encoded; `out` has room for `len` bytes. Returns how many there are. */
static size_t decode(const char *at, size_t len, char *out) {
    const char *end = at + len;
    size_t n = 0;
    while (at < end) {
        char c = *at++;
        if (c == '%' && end - at >= 2) {
            char hex[3] = {at[0], at[1], 0}, *stop;
            char decoded = (char)strtoul(hex, &stop, 16);
            if (stop == hex + 2) {
                c = decoded;
                at += 2;
            }
        }
        out[n++] = c;
    }
    return n;
}

/* /v1/models/NAME; a name may hold slashes, percent-encoded or not. */
static void get_model(const struct weft_api_state *api, const struct weft_api_span *path,
                      const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)moment;
    char name[WEFT_API_URL_BYTES_MAX + 1];
    size_t prefix = strlen("/v1/models/"), len;
    WEFT_ASSERT(path->len > prefix && path->len - prefix < sizeof name);
    len = decode(path->at + prefix, path->len - prefix, name);
    if (!wefti_api_is_model(&api->limits, name, len)) {
        wefti_api_no_such_model(&api->limits, name, len, &out->error);
        return;
    }
    name[len] = '\0';
    struct weft_writer w = begin_json(out);
    wefti_api_write_model(api, name, &w);
}

static void get_health(const struct weft_api_state *api, const struct weft_api_span *path,
                       const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)path;
    struct weft_writer w = begin_json(out);
    wefti_api_write_health(api, moment, &w);
    if (!weft_api_why_ill(api, moment->now_ms)) return;
    out->status = 503;
    weft_buf_add_str(&out->extra, "Retry-After: 1\r\n");
}

static void get_live(const struct weft_api_state *api, const struct weft_api_span *path,
                     const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)api;
    (void)path;
    (void)moment;
    out->status = 200;
    out->type = JSON;
    weft_buf_add_str(&out->body, "{\"status\":\"ok\"}");
}

static void get_version(const struct weft_api_state *api, const struct weft_api_span *path,
                        const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)api;
    (void)path;
    (void)moment;
    out->status = 200;
    out->type = JSON;
    weft_buf_add_str(&out->body, "{\"version\":\"" WEFT_VERSION "\"}");
}

static void get_props(const struct weft_api_state *api, const struct weft_api_span *path,
                      const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)path;
    (void)moment;
    struct weft_writer w = begin_json(out);
    out->body.max_bytes = PROPS_BYTES_MAX;
    wefti_api_write_props(api, &w);
}

static void get_slots(const struct weft_api_state *api, const struct weft_api_span *path,
                      const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)path;
    (void)moment;
    struct weft_writer w = begin_json(out);
    wefti_api_write_slots(api, &w);
}

static void get_lora_adapters(const struct weft_api_state *api, const struct weft_api_span *path,
                              const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)path;
    (void)moment;
    struct weft_writer w = begin_json(out);
    wefti_api_write_lora_adapters(api, &w);
}

static void get_tags(const struct weft_api_state *api, const struct weft_api_span *path,
                     const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)path;
    (void)moment;
    struct weft_writer w = begin_json(out);
    wefti_api_write_ollama_tags(api, &w);
}

static void get_ps(const struct weft_api_state *api, const struct weft_api_span *path,
                   const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)path;
    (void)moment;
    struct weft_writer w = begin_json(out);
    wefti_api_write_ollama_ps(api, &w);
}

static void get_metrics(const struct weft_api_state *api, const struct weft_api_span *path,
                        const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)path;
    struct weft_process process;
    struct weft_api_metrics_scheduler schedulers[WEFT_API_SCHEDULERS_MAX];
    weft_process_read(&process);
    const struct weft_api_metrics_view view = {
        .prefix = api->settings.metrics_prefix,
        .model_name = api->limits.model_name,
        .snapshot = api->upstream.has_snapshot ? &api->upstream.snapshot : NULL,
        .router_resident_bytes = moment->resident_bytes,
        .process = &process,
        .started_s = api->settings.started_s,
        .held_input_bytes = api->held_bytes,
        .held_output_bytes = api->output_bytes,
        .has_prefix_cache = api->settings.prefix_cache,
        .is_serving = !weft_api_why_ill(api, moment->now_ms),
        .schedulers = schedulers,
        .n_schedulers = weft_api_upstream_list(&api->upstream, moment->now_ms, schedulers),
    };
    out->status = 200;
    out->type = "text/plain; version=0.0.4; charset=utf-8";
    out->body.max_bytes = WEFT_API_METRICS_BYTES_MAX;
    weft_api_metrics_render(&api->metrics, &view, &out->body);
}

/* Events have the newest figures; a stored answer has old ones. */
static void get_stats(const struct weft_api_state *api, const struct weft_api_span *path,
                      const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)path;
    struct weft_writer w = begin_json(out);
    wefti_api_write_stats(api, moment, &w);
    weft_buf_add_str(&out->extra, "Cache-Control: no-store\r\n");
}

static void get_page(const struct weft_api_state *api, const struct weft_api_span *path,
                     const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)api;
    (void)moment;
    const struct wefti_api_page_file *file = wefti_api_find_page_file(path);
    if (!file) {
        set_not_found(&out->error, path);
        return;
    }
    out->status = 200;
    out->type = file->type;
    weft_buf_add_str(&out->extra, WEFTI_API_PAGE_HEADERS);
    weft_buf_add(&out->body, file->bytes, file->n_bytes);
}

static void get_page_settings(const struct weft_api_state *api, const struct weft_api_span *path,
                              const struct weft_api_moment *moment, struct weft_api_answer *out) {
    (void)path;
    (void)moment;
    struct weft_writer w = begin_json(out);
    weft_buf_add_str(&out->extra, WEFTI_API_PAGE_HEADERS);
    wefti_api_write_page_settings(api, &w);
}

/* /v1/responses/ID: what is kept there, or that it isn't any more. Whose key is another one finds nothing. */
static void reply_response(const struct weft_api_http *h, const struct weft_api_moment *moment,
                           struct weft_api_answer *out) {
    char id[WEFT_API_URL_BYTES_MAX + 1], quoted[80];
    size_t prefix = strlen(h->route.path);
    WEFT_ASSERT(h->path.len > prefix && h->path.len - prefix < sizeof id);
    struct weft_str name = {id, decode(h->path.at + prefix, h->path.len - prefix, id)};
    if (memchr(h->path.at + prefix, '/', h->path.len - prefix)) {
        set_not_found(&out->error, &h->path);
        return;
    }
    weft_api_store *store = h->api->store;
    bool is_there = false, drops = h->method == HTTP_DELETE;
    out->body.max_bytes = RESPONSE_BYTES_MAX;
    if (store && drops)
        is_there = wefti_api_store_drop(store, h->asks.tenant, name, moment->now_ms);
    else if (store)
        is_there = wefti_api_store_get(store, h->asks.tenant, name, KEPT_RESPONSE, moment->now_ms,
                                       &out->body);
    weft_api_quote(name.data, name.len, quoted, sizeof quoted);
    if (!is_there) {
        weft_api_error_set(&out->error, 404, "response_id", "response_not_found",
                           "no response '%s' is kept here%s", quoted,
                           store ? "" : ": this server was started without --responses-store");
        return;
    }
    out->status = 200;
    out->type = JSON;
    if (!drops) return;
    struct weft_writer w = begin_json(out);
    weft_write_map(&w);
    weft_write_key(&w, "id");
    weft_write_text(&w, name.data, name.len);
    weft_write_key(&w, "object");
    weft_write_str(&w, "response");
    weft_write_key(&w, "deleted");
    weft_write_bool(&w, true);
    weft_write_end(&w);
}

/* ----------------------------------------------------------------------------------- routes --- */

/* Routes beside those of calls (kinds/kind.h). */
static const struct weft_api_route routes[] = {
    {.path = "/reset_prefix_cache",
     .is_post = true,
     .is_guarded = true,
     .is_admins = true,
     .act = wefti_api_reset_prefix_cache},
    {.path = "/v1/responses/",
     .is_prefix = true,
     .is_guarded = true,
     .is_dropped = true,
     .reply = reply_response},
    {.path = "/v1/files", .is_guarded = true, .is_stored = true},
    {.path = "/v1/files/", .is_prefix = true, .is_guarded = true, .is_stored = true},
    {.path = "/v1/batches", .is_guarded = true, .is_stored = true},
    {.path = "/v1/batches/", .is_prefix = true, .is_guarded = true, .is_stored = true},
    {.path = "/v1/models", .is_guarded = true, .answer = get_models},
    {.path = "/v1/models/", .is_guarded = true, .answer = get_models},
    {.path = "/v1/models/", .is_prefix = true, .is_guarded = true, .answer = get_model},
    {.path = "/api/tags", .is_guarded = true, .answer = get_tags},
    {.path = "/api/ps", .is_guarded = true, .answer = get_ps},
    {.path = "/api/version", .answer = get_version},
    {.path = "/props", .is_guarded = true, .answer = get_props},
    {.path = "/lora-adapters", .is_guarded = true, .answer = get_lora_adapters},
    {.path = "/slots", .is_guarded = true, .answer = get_slots},
    {.path = "/health", .is_watched = true, .answer = get_health},
    {.path = "/health/live", .is_watched = true, .answer = get_live},
    {.path = "/ping", .is_watched = true, .answer = get_health},
    {.path = "/metrics", .is_watched = true, .answer = get_metrics},
    {.path = "/stats", .is_guarded = true, .is_live = true, .answer = get_stats},
    {.path = "/version", .answer = get_version},
    {.path = "/", .answer = get_page},
    {.path = "/page/settings.json", .answer = get_page_settings},
    {.path = "/page/", .is_prefix = true, .answer = get_page},
};

const char *wefti_api_route_allow(const struct weft_api_route *route) {
    if (route->is_drop) return "DELETE, OPTIONS";
    if (route->is_stored) return "GET, HEAD, POST, DELETE, OPTIONS";
    if (route->is_dropped) return "GET, HEAD, DELETE, OPTIONS";
    return route->is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

static bool fits(const struct weft_api_span *path, const char *route, bool is_prefix) {
    size_t len = strlen(route);
    bool is_long_enough = is_prefix ? path->len > len : path->len == len;
    return is_long_enough && path->at && memcmp(path->at, route, len) == 0;
}

#define SESSIONS "/v1/sessions"

/* Behind a name: a session may be called "save". */
static bool ends_so(const struct weft_api_span *path, const char *end) {
    size_t len = strlen(end);
    return path->len > strlen(SESSIONS "/") + len &&
           memcmp(path->at + path->len - len, end, len) == 0;
}

/* What stands between the prefix and "/save" or "/restore" is a name, percent-encoded. */
static struct weft_api_route find_session_route(const struct weft_api_span *path) {
    const weft_api_kind *kind = &wefti_api_kind_session_drop;
    if (fits(path, SESSIONS, false)) kind = &wefti_api_kind_session_list;
    if (ends_so(path, "/save")) kind = &wefti_api_kind_session_save;
    if (ends_so(path, "/restore")) kind = &wefti_api_kind_session_restore;
    bool has_file = kind == &wefti_api_kind_session_save || kind == &wefti_api_kind_session_restore;
    return (struct weft_api_route){.path = kind->path,
                                   .is_post = has_file,
                                   .is_drop = kind == &wefti_api_kind_session_drop,
                                   .is_guarded = true,
                                   .kind = kind};
}

/* The session that the path names; false: that is no name. */
static bool take_session_id(struct weft_api_http *h) {
    char name[WEFT_API_URL_BYTES_MAX + 1];
    size_t n_prefix = strlen(SESSIONS "/"), n_end = 0;
    if (h->route.kind == &wefti_api_kind_session_list) return true;
    if (h->route.kind == &wefti_api_kind_session_save) n_end = strlen("/save");
    if (h->route.kind == &wefti_api_kind_session_restore) n_end = strlen("/restore");
    if (h->path.len <= n_prefix + n_end || h->path.len - n_prefix >= sizeof name) return false;
    size_t len = h->path.len - n_prefix - n_end;
    if (memchr(h->path.at + n_prefix, '/', len)) return false;
    struct weft_str id = {name, decode(h->path.at + n_prefix, len, name)};
    if (!wefti_api_is_session_id(id) || !weft_utf8_valid(id.data, id.len)) return false;
    memcpy(h->session_id, id.data, id.len);
    h->n_session_id = (uint32_t)id.len;
    return true;
}

/* The next of a list's members, without blanks around it and what follows a ';'. False: no more. */
static bool next_member(struct weft_api_span *list, struct weft_api_span *out) {
    if (list->len == 0) return false;
    const char *end = memchr(list->at, ',', list->len);
    size_t n = end ? (size_t)(end - list->at) : list->len;
    *out = (struct weft_api_span){list->at, n};
    list->at += end ? n + 1 : n;
    list->len -= end ? n + 1 : n;
    const char *more = memchr(out->at, ';', out->len);
    if (more) out->len = (size_t)(more - out->at);
    for (; out->len && (*out->at == ' ' || *out->at == '\t'); out->len--)
        out->at++;
    while (out->len && (out->at[out->len - 1] == ' ' || out->at[out->len - 1] == '\t'))
        out->len--;
    return true;
}

static bool has_member(struct weft_api_span list, const char *text) {
    struct weft_api_span member;
    while (next_member(&list, &member)) {
        if (member.len == strlen(text) && strncasecmp(member.at, text, member.len) == 0)
            return true;
    }
    return false;
}

#define SLOTS "/slots/"

/* What the query says is looked at once it is known who asks. */
static struct weft_api_route find_slot_route(const struct weft_api_http *h) {
    static const char *const actions[] = {"save", "restore", "erase"};
    static const weft_api_kind *const kinds[] = {
        &wefti_api_kind_slot_save, &wefti_api_kind_slot_restore, &wefti_api_kind_slot_erase};
    struct weft_api_route route = {
        .path = "/slots/ID", .is_post = true, .is_guarded = true, .is_slot = true};
    struct weft_str action;
    if (!wefti_api_http_query(h, "action", &action)) return route;
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (weft_str_is(action, actions[i], strlen(actions[i]))) route.kind = kinds[i];
    }
    return route;
}

static void refuse_action(struct weft_api_http *h) {
    struct weft_str action;
    if (wefti_api_http_query_once(h, "action", &action))
        weft_api_error_set(&h->refusal, 400, "action", NULL,
                           "'action' must be save, restore or erase: /slots/0?action=save");
}

/* The session of the slot that the path names; false: that is no number. */
static bool take_slot(struct weft_api_http *h) {
    char text[16] = "";
    uint64_t idx = 0;
    size_t n_prefix = strlen(SLOTS), len = h->path.len - n_prefix;
    if (len >= sizeof text) return false;
    memcpy(text, h->path.at + n_prefix, len);
    if (weft_parse_u64(text, INT32_MAX, &idx)) return false;
    h->n_session_id = wefti_api_slot_session((uint32_t)idx, h->session_id);
    return true;
}

static struct weft_api_route find_route(const struct weft_api_http *h) {
    const struct weft_api_span *path = &h->path;
    if (fits(path, SLOTS, true)) return find_slot_route(h);
    if (fits(path, SESSIONS, false) || fits(path, SESSIONS "/", true))
        return find_session_route(path);
    for (size_t i = 0; wefti_api_kinds[i]; i++) {
        const weft_api_kind *kind = wefti_api_kinds[i];
        if (!kind->asks_session && fits(path, kind->path, false))
            return (struct weft_api_route){.path = kind->path,
                                           .is_post = true,
                                           .is_guarded = true,
                                           .is_admins = kind->is_admins,
                                           .needs_model = kind->generates || kind->begin,
                                           .kind = kind};
    }
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (fits(path, routes[i].path, routes[i].is_prefix)) return routes[i];
    }
    return (struct weft_api_route){0};
}

/* "Authorization: Bearer KEY", or Anthropic's "x-api-key: KEY" where nothing is authorized that way. */
static struct weft_api_span key_of(const struct weft_api_http *h) {
    struct weft_api_span key = h->authorization;
    if (!key.at && h->api_key.at) return h->api_key;
    bool is_bearer = key.at && key.len >= 7 && strncasecmp(key.at, "bearer ", 7) == 0;
    if (!is_bearer) return (struct weft_api_span){"", 0};
    key.at += 7;
    key.len -= 7;
    while (key.len && *key.at == ' ') {
        key.at++;
        key.len--;
    }
    return key;
}

static bool take_key(struct weft_api_http *h) {
    const struct weft_api_key *used;
    struct weft_api_span key = key_of(h);
    bool is_admitted = weft_api_admits(h->api, key.at, key.len, &used);
    if (used) {
        (void)snprintf(h->key_name, sizeof h->key_name, "%s", used->name);
        h->asks.tenant = used->tenant;
        h->asks.weight = used->weight;
    }
    h->is_admin = weft_api_is_admin(h->api, used);
    return is_admitted;
}

/* Clients that name another type than they send (curl -d, urllib) are served. Browsers, which send
 * an Origin, must name JSON: a web page can make them send any other type, or none, without a
 * preflight. */
static bool is_welcome_type(const struct weft_api_span *type, const struct weft_api_span *origin) {
    if (!origin->at) return true;
    if (!type->at) return false;
    size_t n = 0;
    while (n < type->len && type->at[n] != ';' && type->at[n] != ' ')
        n++;
    bool is_plain = n == 16 && strncasecmp(type->at, "application/json", n) == 0;
    bool is_suffix = n > 5 && strncasecmp(type->at + n - 5, "+json", 5) == 0;
    return is_plain || is_suffix;
}

/* A page can make a browser send a form to anybody without asking first, but not with a key of the page's own. */
static bool is_welcome_upload(struct weft_api_http *h) {
    if (h->is_gzip)
        weft_api_error_set(&h->refusal, 415, NULL, NULL,
                           "a file is uploaded as it is, not compressed");
    if (h->origin.at && !h->authorization.at)
        weft_api_error_set(&h->refusal, 415, NULL, NULL,
                           "a web page uploads files with an Authorization header");
    return !h->refusal.status;
}

void wefti_api_http_check(struct weft_api_http *h) {
    struct weft_api_error *no = &h->refusal;
    struct weft_str stream;
    h->route = find_route(h);
    const struct weft_api_route *route = &h->route;
    if (h->method == HTTP_OPTIONS) return;
    bool names_session = !route->is_slot && route->kind && route->kind->asks_session;
    if (!route->path || (names_session && !take_session_id(h)) ||
        (route->is_slot && !take_slot(h))) {
        set_not_found(no, &h->path);
        return;
    }
    bool is_method = route->is_drop   ? h->method == HTTP_DELETE
                     : route->is_post ? h->method == HTTP_POST
                                      : h->method == HTTP_GET || h->method == HTTP_HEAD;
    is_method = is_method || (route->is_dropped && h->method == HTTP_DELETE);
    if (route->is_stored) is_method = wefti_api_http_read_ask(h);
    if (!is_method) {
        weft_api_error_set(no, 405, NULL, "method_not_allowed", "%s takes %s", route->path,
                           wefti_api_route_allow(route));
        return;
    }
    if (route->is_guarded && !take_key(h)) {
        weft_api_error_set(no, 401, NULL, "invalid_api_key", "%s",
                           h->authorization.len || h->api_key.len
                               ? "Incorrect API key provided"
                               : "No API key provided: send it as \"Authorization: Bearer KEY\"");
        return;
    }
    if (route->is_admins && !h->is_admin) {
        weft_api_error_set(no, 403, NULL, "admins_only", WEFT_API_ADMINS_ONLY);
        return;
    }
    if (route->is_stored && !h->api->settings.keeps_batches) {
        weft_api_error_set(no, 404, NULL, "not_found",
                           "files and batches are not kept here: this server was started without "
                           "--batch-store");
        return;
    }
    if (route->is_slot && !route->kind) {
        refuse_action(h);
        return;
    }
    if (route->is_live && !wefti_api_http_query_once(h, "stream", &stream)) return;
    bool is_post = route->is_post || h->ask.op == WEFT_API_ASK_BATCH_NEW;
    if (h->ask.op == WEFT_API_ASK_FILE_UPLOAD && !is_welcome_upload(h)) return;
    if (is_post && !is_welcome_type(&h->content_type, &h->origin)) {
        weft_api_error_set(no, 415, NULL, NULL,
                           "the body must be sent as Content-Type: application/json");
        return;
    }
    if (route->kind && route->kind->generates) wefti_api_http_read_wishes(h);
    const char *why = route->needs_model ? weft_api_why_not(h->api, h->now_ms) : NULL;
    if (why && !no->status && !weft_api_is_back_soon(h->api, h->now_ms)) {
        weft_api_error_set(no, 503, NULL, "not_serving", "%s", why);
        no->retry_after_ms = WEFT_API_RETRY_MS;
    }
}

bool weft_api_http_wants_events(const struct weft_api_http *h) {
    if (!h->route.is_live || h->method != HTTP_GET) return false;
    struct weft_str stream;
    return has_member(h->accept, "text/event-stream") ||
           (wefti_api_http_query(h, "stream", &stream) &&
            (WEFT_STR_IS(stream, "true") || WEFT_STR_IS(stream, "1")));
}

static void answer_options(const struct weft_api_http *h, struct weft_api_answer *out) {
    struct weft_buf *extra = &out->extra;
    const char *allow =
        h->route.path ? wefti_api_route_allow(&h->route) : "GET, HEAD, POST, OPTIONS";
    out->status = 204;
    weft_buf_printf(extra, "Allow: %s\r\n", allow);
    if (!h->origin.at) return;
    weft_buf_printf(extra, "Access-Control-Allow-Methods: %s\r\n", allow);
    if (h->wanted_headers.at) {
        weft_buf_add_str(extra, "Access-Control-Allow-Headers: ");
        weft_buf_add(extra, h->wanted_headers.at, h->wanted_headers.len);
        weft_buf_add_str(extra, "\r\n");
    }
    weft_buf_add_str(extra, "Access-Control-Max-Age: 600\r\n");
}

void weft_api_http_answer(const struct weft_api_http *h, const struct weft_api_moment *moment,
                          struct weft_api_answer *out) {
    WEFT_ASSERT(h->status == WEFT_API_HTTP_WHOLE && !h->refusal.status);
    memset(out, 0, sizeof *out);
    weft_buf_init(&out->body, TEXT_BYTES_MAX);
    weft_buf_init(&out->extra, 2 * WEFT_API_HEAD_BYTES_MAX);
    if (h->method == HTTP_OPTIONS) {
        answer_options(h, out);
        return;
    }
    if (h->route.act) {
        out->status = 200;
        h->route.act(h->api, &out->error);
        return;
    }
    if (h->route.reply) {
        h->route.reply(h, moment, out);
        return;
    }
    WEFT_ASSERT(h->route.answer && !h->route.kind);
    h->route.answer(h->api, &h->path, moment, out);
}
