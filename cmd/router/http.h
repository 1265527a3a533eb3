/* http — HTTP/1.1 on one connection: one request at a time, in order.
 *
 * Head     Collected whole (at most WEFT_HEAD_BYTES_MAX) and looked at byte by byte before the
 * parser sees it: lines end in CRLF and nothing else, so that no proxy in front can read another
 *          request out of the same bytes. The parser then refuses the rest of what is ambiguous.
 * Order    While a response is under way the next request's bytes wait, at most
 *          WEFT_PIPELINE_BYTES_MAX of them; beyond that we stop reading. They also wait when a
 *          turn of the loop has seen a few requests of the connection: others have theirs first.
 * Gone     A client that closes its sending side is gone: its request is cancelled. What was
 *          already answered still goes out.
 */
#ifndef WEFT_ROUTER_HTTP_H
#define WEFT_ROUTER_HTTP_H

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/error.h"
#include "api/pace.h"
#include "base/buf.h"
#include "server.h"

#define WEFT_HEAD_BYTES_MAX 65536
#define WEFT_HEADERS_MAX 100
#define WEFT_URL_BYTES_MAX 8192
#define WEFT_PIPELINE_BYTES_MAX 65536

typedef struct weft_api_call weft_api_call;
struct route;

struct span {
    const char *at; /* NULL: not there */
    size_t len;
};

enum http_phase {
    HTTP_IN_HEAD,
    HTTP_IN_BODY,
    HTTP_BUSY, /* a response is being made */
    HTTP_ENDED,
};

struct http_scan { /* the head's bytes so far */
    bool saw_cr, has_line;
    size_t line_bytes;
};

struct http {
    struct conn *conn;
    llhttp_t parser;
    enum http_phase phase;
    uint64_t since_ms;     /* HEAD: its first byte, or the last response was made */
    uint64_t last_byte_ms; /* came from the client */
    uint64_t last_sent_ms;
    struct weft_buf pending; /* bytes of requests to come */
    bool has_eof;            /* there are no more */
    uint64_t turn;           /* of the loop, in which a request came last, */
    uint32_t n_in_turn;      /* and how many did */

    /* One request; the spans point into `head`. */
    struct weft_buf head;
    struct http_scan scan;
    struct span path, field, authorization, content_type, origin, expect, wanted_headers;
    struct span content_encoding, transfer_encoding;
    uint32_t n_headers, n_hosts;
    bool head_done, message_done, keep_alive, is_http10, is_head_method;
    uint8_t method;
    struct weft_api_error refusal; /* found while parsing */
    const struct route *route;
    struct weft_buf body; /* its cost is taken from the shared budget */
    uint64_t body_raw_bytes;
    struct weft_api_pace pace; /* of the body */

    /* Its response. */
    weft_api_call *call;
    bool has_begun, is_chunked, is_sse;
};

/* Gives a fresh connection to HTTP. False: out of memory. */
bool wefti_http_open(struct conn *conn);

/* A whole response. `type` NULL: no body. `extra`: header lines, each ended by CRLF, or "". */
void wefti_http_respond(struct http *http, int status, const char *type, const char *extra,
                        const char *body, size_t len);
void wefti_http_refuse(struct http *http, const struct weft_api_error *error);
void wefti_http_refuse_with(struct http *http, int status, const char *code, const char *text);

/* For api.c: the request is being answered by `call`, which the connection owns from now on. */
void wefti_http_attach(struct http *http, weft_api_call *call);

/* wake function of calls whose owner is a struct http. */
void wefti_http_wake(weft_api_call *call);

/* Between http.c and http_respond.c: what the call has goes out, as far as there is room; a comment
 * line if a stream has been silent for too long; the next request may begin. */
void wefti_http_pump(struct http *http);
void wefti_http_keep_alive(struct http *http, uint64_t now_ms);
void wefti_http_begin_request(struct http *http);

/* The path of a request's target: in "/path?query", or in "http://host/path?query" as a proxy gets
 * it, where no path means "/". Anything else stays as it is, and is found nowhere. */
struct span wefti_http_path(const char *target, size_t len);

/* Checks one piece of a head; pure. Returns how many of the bytes belong to it; *done_out when they
 * complete it. *ok_out false: a bare CR or LF, a NUL, a line folded into the next, or one
 * without a name. */
size_t wefti_http_scan(struct http_scan *scan, const char *bytes, size_t n, bool *done_out,
                       bool *ok_out);

#endif
