/* The outgoing half of http.h: status lines, whole bodies, and bodies in pieces. */
#include "api/http.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "api/api.h"
#include "base/check.h"
#include "http/head.h"

#define ERROR_BYTES_MAX (1u << 16)

/* Scripts of other origins may read these. */
#define EXPOSED                                                                                    \
    "Access-Control-Expose-Headers: Retry-After, retry-after-ms, "                                 \
    "x-llm-d-request-dropped-reason, X-Request-Id\r\n"

static const char *status_text(int status) {
    static const struct {
        int status;
        const char *text;
    } texts[] = {
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {507, "Insufficient Storage"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].status == status) return texts[i].text;
    }
    return "Error";
}

/* As metrics count it. */
static uint32_t method_of(const struct weft_api_http *h) {
    if (h->method == HTTP_GET || h->method == HTTP_HEAD) return 0;
    if (h->method == HTTP_POST) return 1;
    return h->method == HTTP_OPTIONS ? 2 : 3;
}

static void count_response(const struct weft_api_http *h, int status) {
    weft_api_metrics_http(&h->api->metrics, h->route.path, method_of(h), status);
}

void weft_api_http_over(const struct weft_api_http *h, uint64_t us) {
    if (h->sent_status == 0) return;
    weft_api_metrics_http_time(&h->api->metrics, h->route.path, method_of(h), us);
}

static void add_date(int64_t now_s, struct weft_buf *out) {
    static time_t cached_at;
    static char cached[40];
    time_t now = (time_t)now_s;
    if (now != cached_at) {
        struct tm tm;
        (void)gmtime_r(&now, &tm);
        (void)strftime(cached, sizeof cached, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
        cached_at = now;
    }
    weft_buf_add_str(out, cached);
}

/* Only allowed origins ("*" or a list) get headers; the browsers of others then refuse. */
static void add_cors(const struct weft_api_http *h, struct weft_buf *out) {
    const char *list = h->api->settings.allowed_origins;
    if (!h->origin.at || !list) return;
    if (strcmp(list, "*") == 0) {
        weft_buf_add_str(out, "Access-Control-Allow-Origin: *\r\n" EXPOSED);
        return;
    }
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        const char *next = p[n] ? p + n + 1 : p + n;
        while (n && *p == ' ') {
            p++;
            n--;
        }
        while (n && p[n - 1] == ' ')
            n--;
        if (n == h->origin.len && strncasecmp(p, h->origin.at, n) == 0) {
            weft_buf_add_str(out, "Access-Control-Allow-Origin: ");
            weft_buf_add(out, h->origin.at, h->origin.len);
            weft_buf_add_str(out, "\r\n" EXPOSED "Vary: Origin\r\n");
            return;
        }
        p = next;
    }
    weft_buf_add_str(out, "Vary: Origin\r\n");
}

/* The status line and the headers that every response has; the empty line is the caller's. */
static void add_head(struct weft_api_http *h, const struct weft_api_response *response,
                     int64_t now_s, struct weft_buf *out) {
    if (h->api->is_leaving || h->api->draining || h->api->is_replaced) h->keep_alive = false;
    weft_buf_printf(out, "HTTP/1.1 %d %s\r\n", response->status, status_text(response->status));
    add_date(now_s, out);
    if (response->type) weft_buf_printf(out, "Content-Type: %s\r\n", response->type);
    if (response->extra) weft_buf_add_str(out, response->extra);
    weft_buf_printf(out, "X-Request-Id: %s\r\n", weft_api_http_request_id(h));
    if (weft_api_error_is_anthropics(h->path.at,
                                     h->path.len)) /* their clients know it by that name */
        weft_buf_printf(out, "request-id: %s\r\n", weft_api_http_request_id(h));
    add_cors(h, out);
    if (!h->keep_alive)
        weft_buf_add_str(out, "Connection: close\r\n");
    else if (h->is_http10)
        weft_buf_add_str(out, "Connection: keep-alive\r\n");
    h->sent_status = response->status;
    count_response(h, response->status);
}

void weft_api_http_respond(struct weft_api_http *h, const struct weft_api_response *response,
                           const char *body, size_t len, int64_t now_s, struct weft_buf *out) {
    WEFT_ASSERT(response->type || len == 0);
    add_head(h, response, now_s, out);
    if (response->status != 204) weft_buf_printf(out, "Content-Length: %zu\r\n", len);
    weft_buf_add_str(out, "\r\n");
    if (!h->is_head_method && len > 0) weft_buf_add(out, body, len);
}

/* When to try again, in whole seconds for everybody and exactly for those who know that header; and
 * why the request was dropped. */
static void add_retry(const struct weft_api_error *error, struct weft_buf *extra) {
    uint32_t ms = error->retry_after_ms;
    if (ms > 0)
        weft_buf_printf(extra, "Retry-After: %u\r\nretry-after-ms: %u\r\n",
                        ms / 1000 + (ms % 1000 > 0), ms);
    const char *reason = weft_api_error_dropped(error);
    if (reason) weft_buf_printf(extra, "x-llm-d-request-dropped-reason: %s\r\n", reason);
}

void weft_api_http_refuse(struct weft_api_http *h, const struct weft_api_error *error,
                          int64_t now_s, struct weft_buf *out) {
    struct weft_buf body;
    struct weft_buf extra;
    WEFT_ASSERT(error->status >= 400);
    weft_api_metrics_dropped(&h->api->metrics, weft_api_error_dropped(error));
    weft_buf_init(&body, ERROR_BYTES_MAX);
    weft_api_error_write(error, weft_api_http_request_id(h), h->path.at, h->path.len, &body);
    weft_buf_init(&extra, ERROR_BYTES_MAX);
    add_retry(error, &extra);
    if (error->status == 401) weft_buf_add_str(&extra, "WWW-Authenticate: Bearer\r\n");
    if (error->status == 405 && h->route.path)
        weft_buf_printf(&extra, "Allow: %s\r\n", wefti_api_route_allow(&h->route));
    /* If the request was not read to its end, the start of the next one is unknown. */
    if (!h->message_done) h->keep_alive = false;
    const struct weft_api_response response = {error->status, "application/json",
                                               weft_buf_cstr(&extra)};
    weft_api_http_respond(h, &response, body.data, body.len, now_s, out);
    weft_buf_fini(&extra);
    weft_buf_fini(&body);
}

void weft_api_http_respond_with(struct weft_api_http *h, struct weft_api_answer *answer,
                                int64_t now_s, struct weft_buf *out) {
    const struct weft_api_response response = {answer->status, answer->type,
                                               weft_buf_cstr(&answer->extra)};
    if (answer->body.failed || answer->extra.failed)
        weft_api_error_set(&answer->error, 500, NULL, NULL, "out of memory");
    if (answer->error.status)
        weft_api_http_refuse(h, &answer->error, now_s, out);
    else
        weft_api_http_respond(h, &response, answer->body.data, answer->body.len, now_s, out);
    weft_buf_fini(&answer->body);
    weft_buf_fini(&answer->extra);
}

/* ----------------------------------------------------------------------------------- pieces --- */

static void add_chunk_size(struct weft_buf *out, size_t size) {
    char text[2 * sizeof size + 2];
    size_t at = sizeof text;
    text[--at] = '\n';
    text[--at] = '\r';
    do {
        text[--at] = "0123456789abcdef"[size & 15];
        size >>= 4;
    } while (size > 0);
    weft_buf_add(out, text + at, sizeof text - at);
}

void weft_api_http_begin(struct weft_api_http *h, const struct weft_api_response *response,
                         int64_t now_s, struct weft_buf *out) {
    h->is_chunked = !h->is_http10;
    if (!h->is_chunked) h->keep_alive = false; /* the connection's end is its end */
    add_head(h, response, now_s, out);
    weft_buf_add_str(out, h->is_chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
}

void weft_api_http_piece(const struct weft_api_http *h, const struct weft_buf *piece,
                         struct weft_buf *out) {
    if (piece->len == 0) return;
    if (h->is_chunked) add_chunk_size(out, piece->len);
    weft_buf_add(out, piece->data, piece->len);
    if (h->is_chunked) weft_buf_add_str(out, "\r\n");
    if (piece->failed) out->failed = true;
}

void weft_api_http_end(const struct weft_api_http *h, struct weft_buf *out) {
    if (h->is_chunked) weft_buf_add_str(out, "0\r\n\r\n");
}
