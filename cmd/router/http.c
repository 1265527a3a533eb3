/* The incoming half of http.h: heads, bodies, the connection and its clock. */
#include "http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api.h"
#include "base/check.h"
#include "base/clock.h"
#include "inside/api/call/call.h"

/* A body may cost this many bytes on the wire beyond its own: chunk headers of a client that sends
 * a byte at a time, but not chunk extensions without end. */
#define BODY_OVERHEAD_BYTES 65536
#define BODY_OVERHEAD_FACTOR 8

/* Of one connection in one turn of the loop: a read may bring thousands, and where each is answered
 * at once, nobody else would have a turn before the last. */
#define REQUESTS_PER_TURN 8

/* ---------------------------------------------------------------------------- parsing heads --- */

size_t wefti_http_scan(struct http_scan *scan, const char *bytes, size_t n, bool *done_out,
                       bool *ok_out) {
    *done_out = false;
    *ok_out = true;
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        bool is_nameless = /* folded into the line before it, or ": value" */
            scan->has_line && scan->line_bytes == 0 && (c == ' ' || c == '\t' || c == ':');
        if (scan->saw_cr != (c == '\n') || c == '\0' || is_nameless) {
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

struct span wefti_http_path(const char *target, size_t len) {
    struct span path = {target, len};
    if (len && target[0] != '/') {
        size_t scheme = 0;
        while (scheme < len && !strchr(":/?#", target[scheme]))
            scheme++;
        bool is_absolute = len - scheme >= 3 && memcmp(target + scheme, "://", 3) == 0;
        if (!is_absolute) return path;
        size_t at = scheme + 3;
        while (at < len && !strchr("/?#", target[at]))
            at++;
        if (at == len || target[at] != '/') return (struct span){"/", 1};
        path = (struct span){target + at, len - at};
    }
    const char *query = memchr(path.at, '?', path.len);
    if (query) path.len = (size_t)(query - path.at);
    return path;
}

static struct http *http_of(llhttp_t *parser) {
    return parser->data;
}

static int on_url(llhttp_t *parser, const char *at, size_t len) {
    struct http *h = http_of(parser);
    if (len > WEFT_URL_BYTES_MAX)
        weft_api_error_set(&h->refusal, 414, NULL, NULL, "the URL is longer than %d bytes",
                           WEFT_URL_BYTES_MAX);
    h->path = wefti_http_path(at, len);
    return 0;
}

static int on_header_field(llhttp_t *parser, const char *at, size_t len) {
    struct http *h = http_of(parser);
    if (h->head_done) return 0; /* a trailer */
    h->field = (struct span){at, len};
    if (++h->n_headers > WEFT_HEADERS_MAX)
        weft_api_error_set(&h->refusal, 431, NULL, NULL, "more than %d header lines",
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
        weft_api_error_set(&h->refusal, 400, NULL, "malformed_http",
                           "two Transfer-Encoding headers");
    if (h->authorization.at && is_named(&h->field, "authorization"))
        weft_api_error_set(&h->refusal, 400, NULL, "malformed_http", "two Authorization headers");
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
        weft_api_error_set(&h->refusal, 501, NULL, NULL, "this server is not a proxy");
        h->keep_alive = false;
    }
    if (parser->http_major != 1)
        weft_api_error_set(&h->refusal, 505, NULL, NULL, "this server speaks HTTP/1.1");
    if ((parser->http_minor >= 1 && h->n_hosts == 0) || h->n_hosts > 1)
        weft_api_error_set(&h->refusal, 400, NULL, NULL, "a request needs exactly one Host header");
    if (h->transfer_encoding.at &&
        (!is_named(&h->transfer_encoding, "chunked") || parser->http_minor == 0))
        weft_api_error_set(&h->refusal, 501, NULL, NULL, "the only transfer coding is chunked");
    if (h->content_encoding.at && !is_named(&h->content_encoding, "identity"))
        weft_api_error_set(&h->refusal, 415, NULL, NULL, "bodies must not be compressed");
    if (h->expect.at && !is_named(&h->expect, "100-continue"))
        weft_api_error_set(&h->refusal, 417, NULL, NULL, "the only expectation is 100-continue");
    wefti_api_check(h);
    if (!has_body || h->refusal.status) return;
    if (!(parser->flags & F_CHUNKED) && parser->content_length > server->config.max_body_bytes)
        weft_api_error_set(&h->refusal, 413, NULL, NULL, "the body is larger than %llu bytes",
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
        weft_api_error_set(&h->refusal, 413, NULL, NULL, "the body is larger than %llu bytes",
                           (unsigned long long)server->config.max_body_bytes);
        return 0;
    }
    size_t before = h->body.len;
    uint64_t cost = weft_api_cost(before + len) - weft_api_cost(before);
    if (!weft_api_hold(&server->api, cost)) {
        weft_api_error_no_room(&h->refusal);
        return 0;
    }
    weft_buf_add(&h->body, at, len);
    if (h->body.len == before) {
        weft_api_release(&server->api, cost);
        weft_api_error_set(&h->refusal, 500, NULL, NULL, "out of memory");
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
    wefti_http_refuse_with(h, 400, "malformed_http", text);
}

void wefti_http_begin_request(struct http *h) {
    weft_buf_fini(&h->head);
    weft_api_release(&h->conn->server->api, weft_api_cost(h->body.len));
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
    h->since_ms = weft_now_ms();
    llhttp_init(&h->parser, HTTP_REQUEST, parser_settings());
    h->parser.data = h;
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

static bool has_had_turn(const struct http *h) {
    return h->turn == h->conn->server->n_turns && h->n_in_turn >= REQUESTS_PER_TURN;
}

static void count_request(struct http *h) {
    uint64_t turn = h->conn->server->n_turns;
    if (h->turn != turn) h->n_in_turn = 0;
    h->turn = turn;
    h->n_in_turn++;
}

/* A client's time begins when the answer before has left, whatever it sent until then: requests wait
 * for that, and who reads slowly is judged by its reading. */
static uint64_t after_output_ms(const struct http *h, uint64_t ms) {
    return ms > h->conn->written_ms ? ms : h->conn->written_ms;
}

static size_t take_head(struct http *h, const char *bytes, size_t n) {
    bool is_done, is_ok;
    if (h->head.len == 0) h->since_ms = h->last_byte_ms;
    size_t used = wefti_http_scan(&h->scan, bytes, n, &is_done, &is_ok);
    weft_buf_add(&h->head, bytes, used);
    if (!is_ok) {
        wefti_http_refuse_with(
            h, 400, "malformed_http",
            "malformed HTTP: header lines must have a name, end in CR LF and not be folded");
    } else if (h->head.failed || (h->head.len == WEFT_HEAD_BYTES_MAX && !is_done)) {
        wefti_http_refuse_with(h, 431, NULL, "the request's head is too large");
    } else if (is_done) {
        count_request(h);
        llhttp_errno_t status = llhttp_execute(&h->parser, h->head.data, h->head.len);
        h->phase = HTTP_IN_BODY;
        weft_api_pace_begin(&h->pace, after_output_ms(h, h->last_byte_ms));
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
    size_t before = h->body.len;
    llhttp_errno_t status = llhttp_execute(&h->parser, bytes, n);
    size_t used = n;
    if (status == HPE_PAUSED) used = (size_t)(llhttp_get_error_pos(&h->parser) - bytes);
    WEFT_ASSERT(used <= n);
    h->body_raw_bytes += used;
    weft_api_pace_add(&h->pace, h->body.len - before);
    if (h->body_raw_bytes > BODY_OVERHEAD_BYTES + BODY_OVERHEAD_FACTOR * h->body.len)
        weft_api_error_set(&h->refusal, 413, NULL, NULL, "the body's chunks are mostly overhead");
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
        bool waits = conn->is_writing || has_had_turn(h) || h->pending.len > 0;
        if (h->phase == HTTP_BUSY || (h->phase == HTTP_IN_HEAD && waits)) {
            stash(h, bytes, n);
            if (!conn->is_writing) wefti_conn_awake(conn); /* or on_turn comes when it is done */
            return;
        }
        size_t used = h->phase == HTTP_IN_HEAD ? take_head(h, bytes, n) : take_body(h, bytes, n);
        bytes += used;
        n -= used;
    }
}

/* --------------------------------------------------------------------------- the connection --- */

static void on_bytes(struct conn *conn, const char *bytes, size_t n) {
    struct http *h = conn->proto;
    h->last_byte_ms = weft_now_ms();
    feed(h, bytes, n);
}

static void on_eof(struct conn *conn) {
    struct http *h = conn->proto;
    /* A half-closed client whose answers are made gets them; one that waits is gone. What waits for
     * its turn alone has it first. */
    h->has_eof = h->pending.len > 0 && !h->call;
    if (h->has_eof) return;
    if (h->call) {
        wefti_conn_close(conn);
        return;
    }
    h->phase = HTTP_ENDED;
    wefti_conn_end(conn, false);
}

static void on_turn(struct conn *conn) {
    struct http *h = conn->proto;
    if (h->call) wefti_http_pump(h);
    if (conn->is_closing || h->phase != HTTP_IN_HEAD || conn->is_writing) return;
    if (h->pending.len && has_had_turn(h)) {
        wefti_conn_awake(conn);
        return;
    }
    if (h->pending.len) {
        struct weft_buf bytes = h->pending;
        weft_buf_init(&h->pending, bytes.max_bytes);
        feed(h, bytes.data, bytes.len);
        weft_buf_fini(&bytes);
    }
    bool is_gone = h->has_eof && (h->call || !h->pending.len);
    if (is_gone && !conn->is_closing) on_eof(conn);
    if (!conn->is_closing && h->pending.len <= WEFT_PIPELINE_BYTES_MAX) wefti_conn_read(conn, true);
}

/* What the body will have at most. */
static uint64_t body_bytes(const struct http *h) {
    uint64_t max = h->conn->server->config.max_body_bytes;
    bool is_chunked = h->parser.flags & F_CHUNKED;
    return is_chunked ? max : h->body.len + h->parser.content_length; /* which counts down */
}

/* A call in a thread's hands must be left alone: its client is answered, the call itself freed when
 * the thread comes back. */
static void end_late_call(struct http *h) {
    weft_api_call *call = h->call;
    if (!weft_api_call_is_late(call, weft_now_us())) return;
    if (!call->in_thread) {
        weft_api_call_fail(call, 504, 0, "request_timeout", "the request took too long");
        return;
    }
    h->call = NULL;
    weft_api_call_drop(call);
    wefti_http_refuse_with(h, 504, "request_timeout", "the request took too long");
}

static void on_tick(struct conn *conn, uint64_t now_ms) {
    struct http *h = conn->proto;
    const struct weft_config *config = &conn->server->config;
    uint64_t spent_ms = now_ms - after_output_ms(h, h->since_ms);
    conn->held_bytes = h->call ? weft_api_call_held(h->call) : 0;
    if (h->phase == HTTP_IN_HEAD && h->head.len == 0) {
        bool is_idle = spent_ms > config->idle_timeout_ms;
        if (is_idle && !conn->is_writing && !h->pending.len) wefti_conn_close(conn);
    } else if (h->phase == HTTP_IN_HEAD) {
        if (spent_ms > config->idle_timeout_ms)
            wefti_http_refuse_with(h, 408, NULL, "the request's head is late");
    } else if (h->phase == HTTP_IN_BODY) {
        if (weft_api_pace_is_late(&h->pace, body_bytes(h), config->idle_timeout_ms, now_ms))
            wefti_http_refuse_with(h, 408, NULL, "the request's body is late");
    } else if (h->call) {
        end_late_call(h);
        if (h->call) wefti_http_keep_alive(h, now_ms);
    }
}

/* A request has begun to come in, or is being answered. */
static bool is_busy(const struct conn *conn) {
    const struct http *h = conn->proto;
    return h->phase == HTTP_IN_BODY || h->phase == HTTP_BUSY || h->head.len > 0;
}

static void on_close(struct conn *conn) {
    struct http *h = conn->proto;
    weft_api_call_drop(h->call);
    h->call = NULL;
    h->phase = HTTP_ENDED;
    weft_api_release(&conn->server->api, weft_api_cost(h->body.len));
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
    wefti_http_begin_request(h);
    return true;
}
