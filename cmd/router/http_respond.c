/* The outgoing half of http.h: status lines, whole bodies, and bodies in pieces. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "api.h"
#include "base/clock.h"
#include "http.h"
#include "inside/api/call/call.h"

#define PIECES_PER_TURN 4

/* -------------------------------------------------------------------------------- responses --- */

static const char *status_text(int status) {
    static const struct {
        int status;
        const char *text;
    } texts[] = {
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
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
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].status == status) return texts[i].text;
    }
    return "Error";
}

static void count_response(const struct http *h, int status) {
    struct weft_api_metrics *metrics = &h->conn->server->api.metrics;
    uint32_t method = 3;
    if (h->method == HTTP_GET || h->method == HTTP_HEAD) method = 0;
    if (h->method == HTTP_POST) method = 1;
    if (h->method == HTTP_OPTIONS) method = 2;
    metrics->http[method][status < 400   ? WEFT_API_HTTP_2XX
                          : status < 500 ? WEFT_API_HTTP_4XX
                                         : WEFT_API_HTTP_5XX]++;
}

static void add_date(struct weft_buf *out) {
    static time_t cached_at;
    static char cached[40];
    time_t now = time(NULL);
    if (now != cached_at) {
        struct tm tm;
        (void)gmtime_r(&now, &tm);
        (void)strftime(cached, sizeof cached, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
        cached_at = now;
    }
    weft_buf_add_str(out, cached);
}

/* Allowed: "*" or a list of origins. Nothing is said to others, and their browsers keep out. */
static void add_cors(const struct http *h, struct weft_buf *out) {
    const char *list = h->conn->server->config.allowed_origins;
    if (!h->origin.at || !list) return;
    if (strcmp(list, "*") == 0) {
        weft_buf_add_str(out, "Access-Control-Allow-Origin: *\r\n"
                              "Access-Control-Expose-Headers: Retry-After\r\n");
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
            weft_buf_add_str(out, "\r\nAccess-Control-Expose-Headers: Retry-After\r\n"
                                  "Vary: Origin\r\n");
            return;
        }
        p = next;
    }
    weft_buf_add_str(out, "Vary: Origin\r\n");
}

/* The status line and the headers that every response has; the empty line is the caller's. */
static void add_head(struct http *h, int status, const char *type, const char *extra) {
    struct weft_buf *out = &h->conn->out;
    if (h->conn->server->api.draining) h->keep_alive = false;
    weft_buf_printf(out, "HTTP/1.1 %d %s\r\n", status, status_text(status));
    add_date(out);
    if (type) weft_buf_printf(out, "Content-Type: %s\r\n", type);
    weft_buf_add_str(out, extra);
    add_cors(h, out);
    if (!h->keep_alive)
        weft_buf_add_str(out, "Connection: close\r\n");
    else if (h->is_http10)
        weft_buf_add_str(out, "Connection: keep-alive\r\n");
    count_response(h, status);
    h->has_begun = true;
}

/* The response is complete in `out`. */
static void finish_response(struct http *h) {
    struct conn *conn = h->conn;
    weft_api_call_drop(h->call);
    h->call = NULL;
    if (!h->keep_alive) {
        bool is_unread = !h->message_done;
        h->phase = HTTP_ENDED;
        wefti_conn_end(conn, is_unread);
        return;
    }
    wefti_http_begin_request(h);
    wefti_conn_flush(conn);
    if (!conn->is_closing && h->pending.len) wefti_conn_awake(conn);
}

void wefti_http_respond(struct http *h, int status, const char *type, const char *extra,
                        const char *body, size_t len) {
    struct weft_buf *out = &h->conn->out;
    h->phase = HTTP_BUSY;
    add_head(h, status, type, extra);
    if (status != 204) weft_buf_printf(out, "Content-Length: %zu\r\n", len);
    weft_buf_add_str(out, "\r\n");
    if (!h->is_head_method) weft_buf_add(out, body, len);
    finish_response(h);
}

void wefti_http_refuse(struct http *h, const struct weft_api_error *error) {
    struct weft_buf body;
    char extra[64] = "";
    weft_buf_init(&body, 1u << 16);
    weft_api_error_json(error, &body);
    if (error->retry_after)
        (void)snprintf(extra, sizeof extra, "Retry-After: %u\r\n", error->retry_after);
    if (error->status == 401) (void)snprintf(extra, sizeof extra, "WWW-Authenticate: Bearer\r\n");
    if (error->status == 405 && h->route)
        (void)snprintf(extra, sizeof extra, "Allow: %s\r\n", wefti_route_allow(h->route));
    /* Where the request was not read to its end, nobody knows where the next one begins. */
    if (!h->message_done) h->keep_alive = false;
    wefti_http_respond(h, error->status, "application/json", extra, body.data, body.len);
    weft_buf_fini(&body);
}

void wefti_http_refuse_with(struct http *h, int status, const char *code, const char *text) {
    struct weft_api_error error = {0};
    weft_api_error_set(&error, status, NULL, code, "%s", text);
    wefti_http_refuse(h, &error);
}

/* ---------------------------------------------------------------------------------- streams --- */

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

static void add_piece(struct http *h, const struct weft_buf *piece) {
    struct weft_buf *out = &h->conn->out;
    if (piece->len == 0) return;
    if (h->is_chunked) add_chunk_size(out, piece->len);
    weft_buf_add(out, piece->data, piece->len);
    if (h->is_chunked) weft_buf_add_str(out, "\r\n");
    if (piece->failed) out->failed = true;
    h->last_sent_ms = weft_now_ms();
}

static void end_pieces(struct http *h) {
    if (h->is_chunked) weft_buf_add_str(&h->conn->out, "0\r\n\r\n");
    finish_response(h);
}

/* A body whose length is not known when its first byte goes out. */
static void begin_pieces(struct http *h, const char *type, const char *extra) {
    h->is_chunked = !h->is_http10;
    if (!h->is_chunked) h->keep_alive = false; /* its end is the connection's */
    add_head(h, 200, type, extra);
    weft_buf_add_str(&h->conn->out, h->is_chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
}

static void begin_stream(struct http *h) {
    h->is_sse = true;
    begin_pieces(h, "text/event-stream; charset=utf-8",
                 "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    h->last_sent_ms = weft_now_ms();
}

static enum weft_api_render render_piece(struct http *h) {
    struct weft_buf *piece = &h->conn->server->scratch;
    weft_buf_clear(piece);
    return h->is_sse ? weft_api_render_stream(h->call, piece, WEFT_OUT_BYTES)
                     : weft_api_render_body(h->call, piece, WEFT_OUT_BYTES);
}

/* Pieces while the socket takes them, but not so many that other connections wait for long. */
static void pump_pieces(struct http *h) {
    struct conn *conn = h->conn;
    for (int i = 0; i < PIECES_PER_TURN; i++) {
        if (wefti_conn_is_full(conn)) return;
        enum weft_api_render status = render_piece(h);
        add_piece(h, &conn->server->scratch);
        if (status == WEFT_API_RENDER_DONE) {
            if (h->call->state == WEFT_API_CALL_FAILED) h->keep_alive = false;
            end_pieces(h);
            return;
        }
        wefti_conn_flush(conn);
        if (conn->is_closing || status == WEFT_API_RENDER_WAIT) return;
    }
    wefti_conn_awake(conn);
}

static void pump_body(struct http *h) {
    struct weft_buf *piece = &h->conn->server->scratch;
    if (h->has_begun) {
        pump_pieces(h);
        return;
    }
    if (render_piece(h) == WEFT_API_RENDER_DONE && !piece->failed) {
        wefti_http_respond(h, 200, "application/json", "", piece->data, piece->len);
        return;
    }
    begin_pieces(h, "application/json", "");
    add_piece(h, piece);
    wefti_conn_flush(h->conn);
    if (!h->conn->is_closing) pump_pieces(h);
}

void wefti_http_pump(struct http *h) {
    weft_api_call *call = h->call;
    switch (call->state) {
    case WEFT_API_CALL_PREPARING:
    case WEFT_API_CALL_WAITING:
        return;
    case WEFT_API_CALL_FAILED:
        if (h->has_begun)
            pump_pieces(h);
        else
            wefti_http_refuse(h, &call->error);
        return;
    case WEFT_API_CALL_RUNNING:
    case WEFT_API_CALL_DONE:
        if (call->params.stream && !h->has_begun) begin_stream(h);
        if (h->is_sse)
            pump_pieces(h);
        else if (call->state == WEFT_API_CALL_DONE)
            pump_body(h);
    }
}

void wefti_http_attach(struct http *h, weft_api_call *call) {
    h->phase = HTTP_BUSY;
    h->call = call;
}

void wefti_http_wake(weft_api_call *call) {
    struct http *h = call->owner;
    wefti_conn_awake(h->conn);
}

/* A comment line in a stream that has been silent for long: proxies and clients give up on those.
 */
void wefti_http_keep_alive(struct http *h, uint64_t now_ms) {
    static const char comment[] = ": keep-alive\n\n";
    struct conn *conn = h->conn;
    if (!h->is_sse || conn->is_writing ||
        now_ms <= h->last_sent_ms + conn->server->config.sse_keepalive_ms)
        return;
    struct weft_buf *piece = &conn->server->scratch;
    weft_buf_clear(piece);
    weft_buf_add(piece, comment, sizeof comment - 1);
    add_piece(h, piece);
    wefti_conn_flush(conn);
}
