#include "cmd/router/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "cmd/router/api.h"
#include "cmd/router/call.h"
#include "cmd/router/json_out.h"

/* A body may cost this many bytes on the wire beyond its own: chunk headers of a client that sends
 * a byte at a time, but not chunk extensions without end. */
#define BODY_OVERHEAD_BYTES 65536
#define BODY_OVERHEAD_FACTOR 8
#define BODY_BYTES_PER_MS_MIN 1 /* 1 kB/s once the idle time-out is over */
#define DEADLINE_GRACE_US 1000000
#define PIECES_PER_TURN 4

static const llhttp_settings_t *parser_settings(void);
static void feed(struct http *h, const char *bytes, size_t n);

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
    struct metrics *metrics = &h->conn->server->core.metrics;
    uint32_t method = 3;
    if (h->method == HTTP_GET || h->method == HTTP_HEAD) method = 0;
    if (h->method == HTTP_POST) method = 1;
    if (h->method == HTTP_OPTIONS) method = 2;
    metrics->http[method][status < 400 ? HTTP_2XX : status < 500 ? HTTP_4XX : HTTP_5XX]++;
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
    if (h->conn->server->core.draining) h->keep_alive = false;
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

static void begin_request(struct http *h) {
    weft_buf_fini(&h->head);
    if (h->body.len) wefti_core_release(&h->conn->server->core, h->body.len);
    weft_buf_fini(&h->body);
    h->scan = (struct http_scan){0};
    h->path = h->field = h->authorization = h->content_type = (struct span){0};
    h->origin = h->expect = h->wanted_headers = h->content_encoding = (struct span){0};
    h->transfer_encoding = (struct span){0};
    h->n_headers = h->n_hosts = 0;
    h->head_done = h->message_done = h->is_http10 = h->is_head_method = false;
    h->keep_alive = true;
    h->method = HTTP_GET;
    memset(&h->refusal, 0, sizeof h->refusal);
    h->route = NULL;
    h->body_raw_bytes = 0;
    h->has_begun = h->is_chunked = h->is_sse = false;
    h->phase = HTTP_IN_HEAD;
    h->since_ms = wefti_server_now_ms(h->conn->server);
    llhttp_init(&h->parser, HTTP_REQUEST, parser_settings());
    h->parser.data = h;
}

/* The response is complete in `out`. */
static void finish_response(struct http *h) {
    struct conn *conn = h->conn;
    wefti_call_drop(h->call);
    h->call = NULL;
    if (!h->keep_alive) {
        bool is_unread = !h->message_done;
        h->phase = HTTP_ENDED;
        wefti_conn_end(conn, is_unread);
        return;
    }
    begin_request(h);
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

void wefti_http_refuse(struct http *h, const struct api_error *error) {
    struct weft_buf body;
    char extra[64] = "";
    weft_buf_init(&body, 1u << 16);
    wefti_error_json(error, &body);
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

static void refuse(struct http *h, int status, const char *code, const char *text) {
    struct api_error error = {0};
    wefti_error_set(&error, status, NULL, code, "%s", text);
    wefti_http_refuse(h, &error);
}

/* ---------------------------------------------------------------------------------- streams --- */

static void add_piece(struct http *h, const struct weft_buf *piece) {
    struct weft_buf *out = &h->conn->out;
    if (piece->len == 0) return;
    if (h->is_chunked) weft_buf_printf(out, "%zx\r\n", piece->len);
    weft_buf_add(out, piece->data, piece->len);
    if (h->is_chunked) weft_buf_add_str(out, "\r\n");
    if (piece->failed) out->failed = true;
    h->last_sent_ms = wefti_server_now_ms(h->conn->server);
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
    h->last_sent_ms = wefti_server_now_ms(h->conn->server);
}

static enum render_status render_piece(struct http *h) {
    struct weft_buf *piece = &h->conn->server->scratch;
    weft_buf_clear(piece);
    return h->is_sse ? wefti_render_stream(h->call, piece, WEFT_OUT_BYTES)
                     : wefti_render_body(h->call, piece, WEFT_OUT_BYTES);
}

/* Pieces while the socket takes them, but not so many that other connections wait for long. */
static void pump_pieces(struct http *h) {
    struct conn *conn = h->conn;
    for (int i = 0; i < PIECES_PER_TURN; i++) {
        if (wefti_conn_is_full(conn)) return;
        enum render_status status = render_piece(h);
        add_piece(h, &conn->server->scratch);
        if (status == RENDER_DONE) {
            if (h->call->state == CALL_FAILED) h->keep_alive = false;
            end_pieces(h);
            return;
        }
        wefti_conn_flush(conn);
        if (conn->is_closing || status == RENDER_WAIT) return;
    }
    wefti_conn_awake(conn);
}

static void pump_body(struct http *h) {
    struct weft_buf *piece = &h->conn->server->scratch;
    if (h->has_begun) {
        pump_pieces(h);
        return;
    }
    if (render_piece(h) == RENDER_DONE && !piece->failed) {
        wefti_http_respond(h, 200, "application/json", "", piece->data, piece->len);
        return;
    }
    begin_pieces(h, "application/json", "");
    add_piece(h, piece);
    wefti_conn_flush(h->conn);
    if (!h->conn->is_closing) pump_pieces(h);
}

static void pump(struct http *h) {
    struct call *call = h->call;
    switch (call->state) {
    case CALL_PREPARING:
    case CALL_WAITING:
        return;
    case CALL_FAILED:
        if (h->has_begun)
            pump_pieces(h);
        else
            wefti_http_refuse(h, &call->error);
        return;
    case CALL_RUNNING:
    case CALL_DONE:
        if (call->params.stream && !h->has_begun) begin_stream(h);
        if (h->is_sse)
            pump_pieces(h);
        else if (call->state == CALL_DONE)
            pump_body(h);
    }
}

void wefti_http_attach(struct http *h, struct call *call) {
    h->phase = HTTP_BUSY;
    h->call = call;
}

void wefti_http_wake(struct call *call) {
    struct http *h = call->owner;
    wefti_conn_awake(h->conn);
}

/* ---------------------------------------------------------------------------- parsing heads --- */

size_t wefti_http_scan(struct http_scan *scan, const char *bytes, size_t n, bool *done_out,
                       bool *ok_out) {
    *done_out = false;
    *ok_out = true;
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        bool is_folded = scan->has_line && scan->line_bytes == 0 && (c == ' ' || c == '\t');
        if (scan->saw_cr != (c == '\n') || c == '\0' || is_folded) {
            *ok_out = false;
            return i + 1;
        }
        scan->saw_cr = c == '\r';
        if (c == '\r') continue;
        if (c != '\n') {
            scan->line_bytes++;
            continue;
        }
        if (scan->line_bytes == 0 && scan->has_line) {
            *done_out = true;
            return i + 1;
        }
        /* Empty lines before the request line are allowed, and count against the head's size. */
        scan->has_line = scan->has_line || scan->line_bytes > 0;
        scan->line_bytes = 0;
    }
    return n;
}

static struct http *http_of(llhttp_t *parser) {
    return parser->data;
}

static int on_url(llhttp_t *parser, const char *at, size_t len) {
    struct http *h = http_of(parser);
    if (len > WEFT_URL_BYTES_MAX)
        wefti_error_set(&h->refusal, 414, NULL, NULL, "the URL is longer than %d bytes",
                        WEFT_URL_BYTES_MAX);
    if (len && at[0] != '/') { /* http://host/path, as to a proxy */
        const char *scheme_end = memmem(at, len, "://", 3);
        size_t skip = scheme_end ? (size_t)(scheme_end + 3 - at) : len;
        const char *slash = memchr(at + skip, '/', len - skip);
        if (slash) {
            len -= (size_t)(slash - at);
            at = slash;
        }
    }
    const char *query = memchr(at, '?', len);
    h->path = (struct span){at, query ? (size_t)(query - at) : len};
    return 0;
}

static int on_header_field(llhttp_t *parser, const char *at, size_t len) {
    struct http *h = http_of(parser);
    if (h->head_done) return 0; /* a trailer */
    h->field = (struct span){at, len};
    if (++h->n_headers > WEFT_HEADERS_MAX)
        wefti_error_set(&h->refusal, 431, NULL, NULL, "more than %d header lines",
                        WEFT_HEADERS_MAX);
    return 0;
}

static bool is_named(const struct span *field, const char *name) {
    return field->len == strlen(name) && strncasecmp(field->at, name, field->len) == 0;
}

static int on_header_value(llhttp_t *parser, const char *at, size_t len) {
    struct http *h = http_of(parser);
    if (h->head_done) return 0;
    const struct {
        const char *name;
        struct span *span;
    } known[] = {
        {"authorization", &h->authorization},
        {"content-type", &h->content_type},
        {"content-encoding", &h->content_encoding},
        {"transfer-encoding", &h->transfer_encoding},
        {"origin", &h->origin},
        {"expect", &h->expect},
        {"access-control-request-headers", &h->wanted_headers},
    };
    while (len && (at[len - 1] == ' ' || at[len - 1] == '\t'))
        len--;
    if (h->transfer_encoding.at && is_named(&h->field, "transfer-encoding"))
        wefti_error_set(&h->refusal, 400, NULL, "malformed_http", "two Transfer-Encoding headers");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (is_named(&h->field, known[i].name)) *known[i].span = (struct span){at, len};
    }
    if (is_named(&h->field, "host")) h->n_hosts++;
    return 0;
}

/* What can be said before the body is read is said before it is read. */
static void check_head(struct http *h) {
    const llhttp_t *parser = &h->parser;
    struct server *server = h->conn->server;
    bool has_body = parser->content_length > 0 || (parser->flags & F_CHUNKED);
    if (parser->method == HTTP_CONNECT) {
        wefti_error_set(&h->refusal, 501, NULL, NULL, "this server is not a proxy");
        h->keep_alive = false;
    }
    if (parser->http_major != 1)
        wefti_error_set(&h->refusal, 505, NULL, NULL, "this server speaks HTTP/1.1");
    if ((parser->http_minor >= 1 && h->n_hosts == 0) || h->n_hosts > 1)
        wefti_error_set(&h->refusal, 400, NULL, NULL, "a request needs exactly one Host header");
    if (h->transfer_encoding.at &&
        (!is_named(&h->transfer_encoding, "chunked") || parser->http_minor == 0))
        wefti_error_set(&h->refusal, 501, NULL, NULL, "the only transfer coding is chunked");
    if (h->content_encoding.at && !is_named(&h->content_encoding, "identity"))
        wefti_error_set(&h->refusal, 415, NULL, NULL, "bodies must not be compressed");
    if (h->expect.at && !is_named(&h->expect, "100-continue"))
        wefti_error_set(&h->refusal, 417, NULL, NULL, "the only expectation is 100-continue");
    wefti_api_check(h);
    if (!has_body || h->refusal.status) return;
    if (!(parser->flags & F_CHUNKED) && parser->content_length > server->config.max_body_bytes)
        wefti_error_set(&h->refusal, 413, NULL, NULL, "the body is larger than %llu bytes",
                        (unsigned long long)server->config.max_body_bytes);
}

static int on_headers_complete(llhttp_t *parser) {
    struct http *h = http_of(parser);
    h->head_done = true;
    h->method = parser->method;
    h->is_head_method = parser->method == HTTP_HEAD;
    h->is_http10 = parser->http_minor == 0;
    h->keep_alive = llhttp_should_keep_alive(parser) != 0;
    parser->upgrade = 0; /* an offer we do not take */
    check_head(h);
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t len) {
    struct http *h = http_of(parser);
    struct server *server = h->conn->server;
    if (h->refusal.status) return 0;
    if (h->body.len + len > server->config.max_body_bytes) {
        wefti_error_set(&h->refusal, 413, NULL, NULL, "the body is larger than %llu bytes",
                        (unsigned long long)server->config.max_body_bytes);
        return 0;
    }
    if (!wefti_core_hold(&server->core, len)) {
        wefti_error_set(&h->refusal, 503, NULL, "too_many_bytes",
                        "the server holds too many large requests, try again later");
        h->refusal.retry_after = 1;
        return 0;
    }
    size_t before = h->body.len;
    weft_buf_add(&h->body, at, len);
    if (h->body.len == before) {
        wefti_core_release(&server->core, len);
        wefti_error_set(&h->refusal, 500, NULL, NULL, "out of memory");
    }
    return 0;
}

static int on_message_complete(llhttp_t *parser) {
    http_of(parser)->message_done = true;
    return HPE_PAUSED; /* the next one has to wait */
}

static const llhttp_settings_t *parser_settings(void) {
    static llhttp_settings_t settings;
    static bool is_set;
    if (!is_set) {
        llhttp_settings_init(&settings);
        settings.on_url = on_url;
        settings.on_header_field = on_header_field;
        settings.on_header_value = on_header_value;
        settings.on_headers_complete = on_headers_complete;
        settings.on_body = on_body;
        settings.on_message_complete = on_message_complete;
        is_set = true;
    }
    return &settings;
}

/* ---------------------------------------------------------------------- requests as a whole --- */

static void refuse_malformed(struct http *h, llhttp_errno_t why) {
    char text[160];
    const char *reason = llhttp_get_error_reason(&h->parser);
    (void)snprintf(text, sizeof text, "malformed HTTP: %s",
                   reason && reason[0] ? reason : llhttp_errno_name(why));
    refuse(h, 400, "malformed_http", text);
}

/* Refuses, answers, or waits for more of the body; called after each piece that was parsed. */
static void look_at_request(struct http *h, llhttp_errno_t status) {
    if (h->refusal.status) {
        wefti_http_refuse(h, &h->refusal);
    } else if (status != HPE_OK && status != HPE_PAUSED) {
        refuse_malformed(h, status);
    } else if (h->message_done) {
        h->phase = HTTP_BUSY;
        wefti_api_handle(h);
    }
}

static size_t take_head(struct http *h, const char *bytes, size_t n) {
    bool is_done, is_ok;
    if (h->head.len == 0) h->since_ms = h->last_byte_ms;
    size_t used = wefti_http_scan(&h->scan, bytes, n, &is_done, &is_ok);
    weft_buf_add(&h->head, bytes, used);
    if (!is_ok) {
        refuse(h, 400, "malformed_http",
               "malformed HTTP: header lines must end in CR LF and not be folded");
    } else if (h->head.failed || (h->head.len == WEFT_HEAD_BYTES_MAX && !is_done)) {
        refuse(h, 431, NULL, "the request's head is too large");
    } else if (is_done) {
        llhttp_errno_t status = llhttp_execute(&h->parser, h->head.data, h->head.len);
        h->phase = HTTP_IN_BODY;
        h->since_ms = h->last_byte_ms;
        /* Two opinions about where a head ends are how requests get smuggled. */
        if (status == HPE_OK && !h->head_done) status = HPE_INVALID_HEADER_TOKEN;
        if (status == HPE_PAUSED && llhttp_get_error_pos(&h->parser) != h->head.data + h->head.len)
            status = HPE_INVALID_HEADER_TOKEN;
        look_at_request(h, status);
        if (h->phase == HTTP_IN_BODY && h->expect.at && !h->is_http10 && used == n) {
            weft_buf_add_str(&h->conn->out, "HTTP/1.1 100 Continue\r\n\r\n");
            wefti_conn_flush(h->conn);
        }
    }
    return used;
}

static size_t take_body(struct http *h, const char *bytes, size_t n) {
    llhttp_errno_t status = llhttp_execute(&h->parser, bytes, n);
    size_t used = n;
    if (status == HPE_PAUSED) used = (size_t)(llhttp_get_error_pos(&h->parser) - bytes);
    WEFT_ASSERT(used <= n);
    h->body_raw_bytes += used;
    if (h->body_raw_bytes > BODY_OVERHEAD_BYTES + BODY_OVERHEAD_FACTOR * h->body.len)
        wefti_error_set(&h->refusal, 413, NULL, NULL, "the body's chunks are mostly overhead");
    look_at_request(h, status);
    return used;
}

static void stash(struct http *h, const char *bytes, size_t n) {
    weft_buf_add(&h->pending, bytes, n);
    if (h->pending.failed)
        wefti_conn_close(h->conn);
    else if (h->pending.len > WEFT_PIPELINE_BYTES_MAX)
        wefti_conn_read(h->conn, false);
}

static void feed(struct http *h, const char *bytes, size_t n) {
    struct conn *conn = h->conn;
    while (n > 0 && !conn->is_closing && h->phase != HTTP_ENDED) {
        size_t used = 0;
        if (h->phase == HTTP_BUSY || (h->phase == HTTP_IN_HEAD && conn->is_writing)) {
            stash(h, bytes, n);
            return;
        }
        used = h->phase == HTTP_IN_HEAD ? take_head(h, bytes, n) : take_body(h, bytes, n);
        bytes += used;
        n -= used;
    }
}

/* --------------------------------------------------------------------------- the connection --- */

static void on_bytes(struct conn *conn, const char *bytes, size_t n) {
    struct http *h = conn->proto;
    h->last_byte_ms = wefti_server_now_ms(conn->server);
    feed(h, bytes, n);
}

static void on_turn(struct conn *conn) {
    struct http *h = conn->proto;
    if (h->call) pump(h);
    if (conn->is_closing || h->phase != HTTP_IN_HEAD || conn->is_writing) return;
    if (h->pending.len) {
        struct weft_buf bytes = h->pending;
        weft_buf_init(&h->pending, bytes.max_bytes);
        feed(h, bytes.data, bytes.len);
        weft_buf_fini(&bytes);
    }
    if (!conn->is_closing && h->pending.len <= WEFT_PIPELINE_BYTES_MAX) wefti_conn_read(conn, true);
}

static void on_eof(struct conn *conn) {
    struct http *h = conn->proto;
    /* A half-closed client whose answers are made gets them; one that waits is gone. */
    if (h->call || h->pending.len) {
        wefti_conn_close(conn);
        return;
    }
    h->phase = HTTP_ENDED;
    wefti_conn_end(conn, false);
}

static void on_tick(struct conn *conn, uint64_t now_ms) {
    struct http *h = conn->proto;
    const struct weft_config *config = &conn->server->config;
    uint64_t spent_ms = now_ms - h->since_ms;
    if (h->phase == HTTP_IN_HEAD && h->head.len == 0) {
        bool is_idle = spent_ms > config->idle_timeout_ms;
        if (is_idle && !conn->is_writing && !h->pending.len) wefti_conn_close(conn);
    } else if (h->phase == HTTP_IN_HEAD) {
        if (spent_ms > config->idle_timeout_ms) refuse(h, 408, NULL, "the request's head is late");
    } else if (h->phase == HTTP_IN_BODY) {
        bool is_stalled = now_ms > h->last_byte_ms + config->idle_timeout_ms;
        uint64_t least = spent_ms > config->idle_timeout_ms
                             ? (spent_ms - config->idle_timeout_ms) * BODY_BYTES_PER_MS_MIN
                             : 0;
        if (is_stalled || h->body.len < least) refuse(h, 408, NULL, "the request's body is late");
    } else if (h->call) {
        if (h->call->deadline_us && weft_now_us() > h->call->deadline_us + DEADLINE_GRACE_US)
            wefti_call_fail(h->call, 504, 0, "request_timeout", "the request took too long");
        if (h->is_sse && !conn->is_writing && now_ms > h->last_sent_ms + config->sse_keepalive_ms) {
            struct weft_buf comment;
            weft_buf_init(&comment, 64);
            weft_buf_add_str(&comment, ": keep-alive\n\n");
            add_piece(h, &comment);
            weft_buf_fini(&comment);
            wefti_conn_flush(conn);
        }
    }
}

/* A request has begun to come in, or is being answered. */
static bool is_busy(const struct conn *conn) {
    const struct http *h = conn->proto;
    return h->phase == HTTP_IN_BODY || h->phase == HTTP_BUSY || h->head.len > 0;
}

static void on_close(struct conn *conn) {
    struct http *h = conn->proto;
    wefti_call_drop(h->call);
    h->call = NULL;
    h->phase = HTTP_ENDED;
    if (h->body.len) wefti_core_release(&conn->server->core, h->body.len);
    weft_buf_fini(&h->body);
}

static void on_free(struct conn *conn) {
    struct http *h = conn->proto;
    weft_buf_fini(&h->head);
    weft_buf_fini(&h->pending);
    free(h);
}

bool wefti_http_open(struct conn *conn) {
    static const struct conn_ops ops = {on_bytes, on_turn,  on_eof, on_tick,
                                        is_busy,  on_close, on_free};
    struct http *h = calloc(1, sizeof *h);
    if (!h) return false;
    h->conn = conn;
    weft_buf_init(&h->head, WEFT_HEAD_BYTES_MAX);
    weft_buf_init(&h->body, conn->server->config.max_body_bytes);
    weft_buf_init(&h->pending, WEFT_PIPELINE_BYTES_MAX + WEFT_READ_BYTES);
    conn->ops = &ops;
    conn->proto = h;
    begin_request(h);
    return true;
}
