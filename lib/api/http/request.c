/* The incoming half of http.h. */
#include "api/http.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/api.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/rand.h"
#include "http/head.h"

/* A body may cost this many bytes on the wire beyond its own: enough for chunks of one byte, not
 * for endless chunk extensions. */
#define BODY_OVERHEAD_BYTES 65536
#define BODY_OVERHEAD_FACTOR 8
#define FORM_BYTES 65536 /* around an uploaded file */

/* ---------------------------------------------------------------------------- parsing heads --- */

size_t wefti_api_http_scan(struct weft_api_head_scan *scan, const char *bytes, size_t n,
                           bool *done_out, bool *ok_out) {
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

struct weft_api_span wefti_api_http_path(const char *target, size_t len) {
    struct weft_api_span path = {target, len};
    if (len && target[0] != '/') {
        size_t scheme = 0;
        while (scheme < len && !strchr(":/?#", target[scheme]))
            scheme++;
        bool is_absolute = len - scheme >= 3 && memcmp(target + scheme, "://", 3) == 0;
        if (!is_absolute) return path;
        size_t at = scheme + 3;
        while (at < len && !strchr("/?#", target[at]))
            at++;
        if (at == len || target[at] != '/') return (struct weft_api_span){"/", 1};
        path = (struct weft_api_span){target + at, len - at};
    }
    const char *query = memchr(path.at, '?', path.len);
    if (query) path.len = (size_t)(query - path.at);
    return path;
}

static struct weft_api_http *http_of(llhttp_t *parser) {
    return parser->data;
}

static int on_url(llhttp_t *parser, const char *at, size_t len) {
    struct weft_api_http *h = http_of(parser);
    if (len > WEFT_API_URL_BYTES_MAX)
        weft_api_error_set(&h->refusal, 414, NULL, NULL, "the URL is longer than %d bytes",
                           WEFT_API_URL_BYTES_MAX);
    h->path = wefti_api_http_path(at, len);
    const char *query = memchr(at, '?', len);
    if (query) h->query = (struct weft_api_span){query + 1, (size_t)(at + len - query) - 1};
    return 0;
}

static int on_header_field(llhttp_t *parser, const char *at, size_t len) {
    struct weft_api_http *h = http_of(parser);
    if (h->head_done) return 0; /* a trailer */
    h->field = (struct weft_api_span){at, len};
    if (++h->n_headers > WEFT_API_HEADERS_MAX)
        weft_api_error_set(&h->refusal, 431, NULL, NULL, "more than %d header lines",
                           WEFT_API_HEADERS_MAX);
    return 0;
}

static bool is_named(const struct weft_api_span *field, const char *name) {
    return field->len == strlen(name) && strncasecmp(field->at, name, field->len) == 0;
}

static int on_header_value(llhttp_t *parser, const char *at, size_t len) {
    struct weft_api_http *h = http_of(parser);
    if (h->head_done) return 0;
    /* Of two that say who asks, and how soon or in which form it comes, nobody can tell which one is
     * meant: a proxy in front may have looked at the other. Of the rest the last one counts. */
    const struct {
        const char *name;
        struct weft_api_span *span;
        bool is_single;
    } known[] = {
        {"Accept", &h->accept, false},
        {"Authorization", &h->authorization, true},
        {"x-api-key", &h->api_key, true},
        {"Content-Type", &h->content_type, false},
        {"Content-Encoding", &h->content_encoding, true},
        {"Transfer-Encoding", &h->transfer_encoding, true},
        {"Origin", &h->origin, false},
        {"Expect", &h->expect, false},
        {"Access-Control-Request-Headers", &h->wanted_headers, false},
        {"X-Request-Id", &h->given_id, false},
        {"x-llm-d-slo-ttft-ms", &h->ttft, true},
        {"x-llm-d-slo-tpot-ms", &h->tpot, true},
        {"x-llm-d-inference-fairness-id", &h->fairness_id, true},
    };
    while (len && (at[len - 1] == ' ' || at[len - 1] == '\t'))
        len--;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!is_named(&h->field, known[i].name)) continue;
        if (known[i].is_single && known[i].span->at)
            weft_api_error_set(&h->refusal, 400, NULL, "malformed_http", "two %s headers",
                               known[i].name);
        *known[i].span = (struct weft_api_span){at, len};
    }
    if (is_named(&h->field, "host")) h->n_hosts++;
    return 0;
}

static bool is_fair_id(const struct weft_api_span *id) {
    if (!id->at || id->len == 0 || id->len > WEFT_REQUEST_ID_BYTES_MAX) return false;
    for (size_t i = 0; i < id->len; i++) {
        char c = id->at[i];
        if (c <= ' ' || c > '~' || c == '"' || c == '\\') return false;
    }
    return true;
}

const char *weft_api_http_request_id(struct weft_api_http *h) {
    if (h->request_id[0]) return h->request_id;
    if (is_fair_id(&h->given_id))
        (void)snprintf(h->request_id, sizeof h->request_id, "%.*s", (int)h->given_id.len,
                       h->given_id.at);
    else
        (void)snprintf(h->request_id, sizeof h->request_id, "%016" PRIx64, weft_rand_seed());
    return h->request_id;
}

/* Where nobody will read it, a body may have what costs no budget. */
static uint64_t body_bytes_max(const struct weft_api_http *h) {
    uint64_t max = h->api->settings.max_body_bytes;
    if (h->ask.op == WEFT_API_ASK_FILE_UPLOAD)
        return h->api->settings.batch_file_bytes + FORM_BYTES;
    bool is_read = h->route.kind && h->method == HTTP_POST;
    return is_read || max < WEFT_API_SMALL_BYTES ? max : WEFT_API_SMALL_BYTES;
}

/* Refuses a body of `more` bytes beyond those that are there, if that is too much. */
static bool is_too_large(struct weft_api_http *h, uint64_t more) {
    uint64_t max = body_bytes_max(h);
    if (more <= max && h->n_body <= max - more) return false;
    weft_api_error_set(&h->refusal, 413, NULL, NULL, "the body is larger than %llu bytes",
                       (unsigned long long)max);
    return true;
}

/* Answers what can be answered before the body is read. */
static void check_head(struct weft_api_http *h) {
    const llhttp_t *parser = &h->parser;
    bool has_body = parser->content_length > 0 || (parser->flags & F_CHUNKED);
    if (parser->method == HTTP_CONNECT) {
        weft_api_error_set(&h->refusal, 501, NULL, NULL, "this server is not a proxy");
        h->keep_alive = false;
    }
    if (parser->http_major != 1)
        weft_api_error_set(&h->refusal, 505, NULL, NULL, "this server speaks HTTP/1.1");
    if ((parser->http_minor >= 1 && h->n_hosts == 0) || h->n_hosts > 1)
        weft_api_error_set(&h->refusal, 400, NULL, "malformed_http",
                           "a request needs exactly one Host header");
    if (h->transfer_encoding.at &&
        (!is_named(&h->transfer_encoding, "chunked") || parser->http_minor == 0))
        weft_api_error_set(&h->refusal, 501, NULL, NULL, "the only transfer coding is chunked");
    h->is_gzip = is_named(&h->content_encoding, "gzip") || is_named(&h->content_encoding, "x-gzip");
    if (h->content_encoding.at && !h->is_gzip && !is_named(&h->content_encoding, "identity"))
        weft_api_error_set(&h->refusal, 415, NULL, NULL,
                           "a body can be compressed with gzip, and with nothing else");
    if (h->expect.at && !is_named(&h->expect, "100-continue"))
        weft_api_error_set(&h->refusal, 417, NULL, NULL, "the only expectation is 100-continue");
    wefti_api_http_check(h);
    if (!has_body || h->refusal.status) return;
    if (!(parser->flags & F_CHUNKED)) (void)is_too_large(h, parser->content_length);
}

static int on_headers_complete(llhttp_t *parser) {
    struct weft_api_http *h = http_of(parser);
    h->head_done = true;
    h->method = parser->method;
    h->is_head_method = parser->method == HTTP_HEAD;
    h->is_http10 = parser->http_minor == 0;
    h->keep_alive = llhttp_should_keep_alive(parser) != 0;
    parser->upgrade = 0; /* upgrades are ignored */
    check_head(h);
    return 0;
}

/* Before a chunk's bytes, of which llhttp has the number. */
static int on_chunk_header(llhttp_t *parser) {
    struct weft_api_http *h = http_of(parser);
    if (!h->refusal.status) (void)is_too_large(h, parser->content_length);
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t len) {
    struct weft_api_http *h = http_of(parser);
    if (h->refusal.status || is_too_large(h, len)) return 0;
    h->n_body += len;
    if (h->sink) {
        if (!h->sink(h->sink_to, at, len))
            h->sink = NULL; /* the answer is there; the rest is nobody's */
        return 0;
    }
    if (h->ask.op == WEFT_API_ASK_FILE_UPLOAD) return 0;
    size_t before = h->body.len;
    uint64_t cost = weft_api_cost(h->api, before + len) - weft_api_cost(h->api, before);
    if (!weft_api_hold(h->api, cost)) {
        weft_api_error_no_room(&h->refusal);
        return 0;
    }
    weft_buf_add(&h->body, at, len);
    if (h->body.len == before) {
        weft_api_release(h->api, cost);
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
        settings.on_chunk_header = on_chunk_header;
        settings.on_body = on_body;
        settings.on_message_complete = on_message_complete;
        is_set = true;
    }
    return &settings;
}

/* ---------------------------------------------------------------------- requests as a whole --- */

void weft_api_http_init(struct weft_api_http *h, struct weft_api_state *api) {
    memset(h, 0, sizeof *h);
    h->api = api;
    weft_buf_init(&h->head, WEFT_API_HEAD_BYTES_MAX);
    weft_buf_init(&h->body, api->settings.max_body_bytes);
    weft_api_http_reset(h);
}

/* Where every byte costs: a head of more than every connection has room for. */
static uint64_t head_cost(const struct weft_api_http *h, size_t n) {
    return h->api->settings.request_bytes > 0 && n > WEFT_API_SMALL_HEAD_BYTES ? n : 0;
}

void weft_api_http_fini(struct weft_api_http *h) {
    weft_api_release(h->api, weft_api_cost(h->api, h->body.len));
    weft_api_release(h->api, head_cost(h, h->head.len));
    weft_buf_fini(&h->body);
    weft_buf_fini(&h->head);
}

void weft_api_http_reset(struct weft_api_http *h) {
    struct weft_api_state *api = h->api;
    weft_api_http_fini(h);
    struct weft_buf head = h->head, body = h->body;
    memset(h, 0, sizeof *h);
    h->api = api;
    h->head = head;
    h->body = body;
    h->keep_alive = true;
    h->method = HTTP_GET;
    llhttp_init(&h->parser, HTTP_REQUEST, parser_settings());
    h->parser.data = h;
}

static void refuse_malformed(struct weft_api_http *h, const char *why) {
    weft_api_error_set(&h->refusal, 400, NULL, "malformed_http", "malformed HTTP: %s", why);
}

/* After each parsed piece: decides if the request is refused, whole or needs more. */
static void look_at_request(struct weft_api_http *h, llhttp_errno_t status) {
    if (!h->refusal.status && status != HPE_OK && status != HPE_PAUSED) {
        const char *reason = llhttp_get_error_reason(&h->parser);
        refuse_malformed(h, reason && reason[0] ? reason : llhttp_errno_name(status));
    }
    h->status = WEFT_API_HTTP_IN_BODY;
    if (h->message_done) h->status = WEFT_API_HTTP_WHOLE;
}

/* The first bytes of a client that takes HTTP/2 for granted, which the parser calls malformed. */
static bool is_http2(const struct weft_buf *head) {
    static const char preface[] = "PRI * HTTP/2.0\r\n";
    return head->len >= sizeof preface - 1 && memcmp(head->data, preface, sizeof preface - 1) == 0;
}

static size_t take_head(struct weft_api_http *h, const char *bytes, size_t n) {
    bool is_done, is_ok;
    size_t used = wefti_api_http_scan(&h->scan, bytes, n, &is_done, &is_ok);
    const size_t had = h->head.len;
    if (!weft_api_hold(h->api, head_cost(h, had + used) - head_cost(h, had))) {
        weft_api_error_no_room(&h->refusal);
        return used;
    }
    weft_buf_add(&h->head, bytes, used);
    if (h->head.failed) weft_api_release(h->api, head_cost(h, had + used) - head_cost(h, had));
    if (!is_ok) {
        refuse_malformed(h, "header lines must have a name, end in CR LF and not be folded");
    } else if (h->head.failed || (h->head.len == WEFT_API_HEAD_BYTES_MAX && !is_done)) {
        weft_api_error_set(&h->refusal, 431, NULL, NULL, "the request's head is too large");
    } else if (is_done && is_http2(&h->head)) {
        weft_api_error_set(&h->refusal, 505, NULL, NULL, "this server speaks HTTP/1.1, not HTTP/2");
    } else if (is_done) {
        llhttp_errno_t status = llhttp_execute(&h->parser, h->head.data, h->head.len);
        /* Two opinions about where a head ends allow request smuggling. */
        if (status == HPE_OK && !h->head_done) status = HPE_INVALID_HEADER_TOKEN;
        if (status == HPE_PAUSED && llhttp_get_error_pos(&h->parser) != h->head.data + h->head.len)
            status = HPE_INVALID_HEADER_TOKEN;
        look_at_request(h, status);
    }
    return used;
}

static size_t take_body(struct weft_api_http *h, const char *bytes, size_t n) {
    llhttp_errno_t status = llhttp_execute(&h->parser, bytes, n);
    size_t used = n;
    if (status == HPE_PAUSED) used = (size_t)(llhttp_get_error_pos(&h->parser) - bytes);
    WEFT_ASSERT(used <= n);
    h->body_raw_bytes += used;
    if (h->body_raw_bytes > BODY_OVERHEAD_BYTES + BODY_OVERHEAD_FACTOR * h->n_body)
        weft_api_error_set(&h->refusal, 413, NULL, NULL, "the body's chunks are mostly overhead");
    look_at_request(h, status);
    return used;
}

size_t weft_api_http_take(struct weft_api_http *h, const char *bytes, size_t n, uint64_t now_ms) {
    WEFT_ASSERT(h->status == WEFT_API_HTTP_IN_HEAD || h->status == WEFT_API_HTTP_IN_BODY);
    WEFT_ASSERT(n > 0);
    h->now_ms = now_ms;
    size_t used =
        h->status == WEFT_API_HTTP_IN_HEAD ? take_head(h, bytes, n) : take_body(h, bytes, n);
    if (h->refusal.status) h->status = WEFT_API_HTTP_REFUSED;
    return used;
}

uint64_t weft_api_http_body_max(const struct weft_api_http *h) {
    WEFT_ASSERT(h->head_done);
    bool is_chunked = h->parser.flags & F_CHUNKED;
    if (is_chunked) return body_bytes_max(h);
    return h->n_body + h->parser.content_length; /* llhttp counts it down */
}
