/* http — HTTP/1.1 without a socket: parses requests as bytes come, finds their routes, writes
 * responses and answers that need no call.
 *
 * Head     Collected whole (at most WEFT_API_HEAD_BYTES_MAX) and looked at byte by byte before the
 *          parser sees it: lines end in CRLF and nothing else, so that no proxy in front can read
 *          another request out of the same bytes. The parser then refuses what else is ambiguous.
 * Routes   A request that can be refused without its body is refused once the head is there.
 * Memory   A large body takes from the shared budget, until the request is reset or its body moves
 *          to a call.
 */
#ifndef WEFT_API_HTTP_H
#define WEFT_API_HTTP_H

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/batch.h"
#include "api/call.h"
#include "api/error.h"
#include "api/keys.h"
#include "base/buf.h"
#include "base/limits.h"

#define WEFT_API_HEAD_BYTES_MAX 65536
#define WEFT_API_SMALL_HEAD_BYTES 4096 /* costs nothing of --request-memory */
#define WEFT_API_HEADERS_MAX 100
#define WEFT_API_URL_BYTES_MAX 8192

struct weft_api_state;
struct weft_api_answer;
struct weft_api_http;

struct weft_api_span {
    const char *at; /* NULL: not there */
    size_t len;
};

/* The time, and what only the process knows. */
struct weft_api_moment {
    uint64_t now_ms;
    uint64_t resident_bytes; /* of the router */
};

struct weft_api_route {
    const char *path; /* NULL: there is none */
    bool is_post;     /* else GET and HEAD, */
    bool is_dropped;  /* and DELETE, */
    bool is_drop;     /* or that alone */
    bool is_prefix;   /* any path that begins so */
    bool is_guarded;  /* by the API key, */
    bool is_admins;   /* and that of an admin */
    bool needs_model; /* 503 while nothing is served */
    bool is_stored;   /* of files and batches: `ask` says what; whoever keeps them answers */
    bool is_slot;     /* of llama-server's slots: the query says what is done */
    bool is_live;     /* also as server-sent events: live.h */
    bool is_watched;  /* for probes and metrics: answered in a spare place, too */
    const weft_api_kind *kind; /* of the call that answers; NULL: one of these does */
    void (*act)(struct weft_api_state *api, struct weft_api_error *error); /* 200 without a body */
    void (*answer)(const struct weft_api_state *api, const struct weft_api_span *path,
                   const struct weft_api_moment *moment, struct weft_api_answer *out);
    /* The same where it matters who asks, or how. */
    void (*reply)(const struct weft_api_http *http, const struct weft_api_moment *moment,
                  struct weft_api_answer *out);
};

/* An answer that needs no call. */
struct weft_api_answer {
    int status;
    const char *type;            /* NULL: no body */
    struct weft_buf body, extra; /* `extra`: header lines; weft_api_http_respond_with frees both */
    struct weft_api_error error; /* the answer instead, if status != 0 */
};

struct weft_api_head_scan { /* the head's bytes so far */
    bool saw_cr, has_line;
    size_t line_bytes;
};

enum weft_api_http_status {
    WEFT_API_HTTP_IN_HEAD,
    WEFT_API_HTTP_IN_BODY,
    WEFT_API_HTTP_WHOLE,
    WEFT_API_HTTP_REFUSED, /* `refusal` says why; no more bytes are taken */
};

/* What a request of a stored route wants. */
enum weft_api_ask_op {
    WEFT_API_ASK_NONE,
    WEFT_API_ASK_FILE_UPLOAD,
    WEFT_API_ASK_FILE_LIST,
    WEFT_API_ASK_FILE_GET,
    WEFT_API_ASK_FILE_CONTENT,
    WEFT_API_ASK_FILE_DROP,
    WEFT_API_ASK_BATCH_NEW,
    WEFT_API_ASK_BATCH_LIST,
    WEFT_API_ASK_BATCH_GET,
    WEFT_API_ASK_BATCH_CANCEL,
};

struct weft_api_ask {
    enum weft_api_ask_op op;
    char id[WEFT_API_STORED_ID_BYTES];    /* of the file or batch; "": of none */
    uint32_t limit;                       /* of a list: 1 to WEFT_API_LIST_MAX */
    char after[WEFT_API_STORED_ID_BYTES]; /* the one before its first; "": none */
};
#define WEFT_API_LIST_MAX 100
#define WEFT_API_LIST_USUAL 20

struct weft_api_http { /* one request; the spans point into `head` */
    struct weft_api_state *api;
    llhttp_t parser;
    enum weft_api_http_status status;
    struct weft_buf head;
    struct weft_api_head_scan scan;
    struct weft_api_span path, field, authorization, api_key, content_type, origin, expect,
        wanted_headers;
    struct weft_api_span content_encoding, transfer_encoding, given_id, query, accept;
    struct weft_api_span ttft, tpot, fairness_id;
    uint32_t n_headers, n_hosts;
    bool head_done, message_done, keep_alive, is_http10, is_head_method;
    bool is_gzip; /* the body */
    uint8_t method;
    struct weft_api_error refusal;
    struct weft_api_route route;
    struct weft_api_ask ask; /* of a stored route */
    struct weft_buf body;    /* its cost is taken from the shared budget */
    /* An upload's body goes here instead; false: it is not wanted any more. Set once the head is there. */
    bool (*sink)(void *to, const char *bytes, size_t n);
    void *sink_to;
    uint64_t n_body, body_raw_bytes;                /* without and with what chunks cost */
    char request_id[WEFT_REQUEST_ID_BYTES_MAX + 1]; /* see weft_api_http_request_id; "": none yet */
    char key_name[WEFT_API_KEY_NAME_BYTES_MAX + 1]; /* of the API key; "": none */
    struct weft_api_asker asks;                     /* its tenant, and what headers say */
    bool is_admin;
    char session_id[WEFT_SESSION_ID_BYTES_MAX]; /* that the path names; not terminated */
    uint32_t n_session_id;
    uint64_t now_ms; /* when these bytes came */

    bool is_chunked; /* the response */
    int sent_status; /* its; 0: it has not begun */
};

/* Storage is the caller's. Init begins the first request, reset the next one. */
void weft_api_http_init(struct weft_api_http *http, struct weft_api_state *api);
void weft_api_http_reset(struct weft_api_http *http);
void weft_api_http_fini(struct weft_api_http *http);

/* Takes bytes of a request that is neither whole nor refused; returns how many belong to it. */
size_t weft_api_http_take(struct weft_api_http *http, const char *bytes, size_t n, uint64_t now_ms);

/* What a client, a proxy and the log call this request: its X-Request-Id, if that is 1 to
 * WEFT_REQUEST_ID_BYTES_MAX visible ASCII characters without quote and backslash; else one of ours. */
const char *weft_api_http_request_id(struct weft_api_http *http);

/* The most bytes that the body can have. */
uint64_t weft_api_http_body_max(const struct weft_api_http *http);

/* Answers a whole request whose route has no kind; OPTIONS included. */
void weft_api_http_answer(const struct weft_api_http *http, const struct weft_api_moment *moment,
                          struct weft_api_answer *out);

/* Whether a request of a live route asks for events: by Accept, or by stream=true in its query. */
bool weft_api_http_wants_events(const struct weft_api_http *http);

/* -------------------------------------------------------------------------------- responses --- */

struct weft_api_response {
    int status;
    const char *type;  /* NULL: no body */
    const char *extra; /* header lines, each ended by CRLF; NULL: none */
};

/* Appends a whole response. `now_s`: wall clock. */
void weft_api_http_respond(struct weft_api_http *http, const struct weft_api_response *response,
                           const char *body, size_t len, int64_t now_s, struct weft_buf *out);
void weft_api_http_refuse(struct weft_api_http *http, const struct weft_api_error *error,
                          int64_t now_s, struct weft_buf *out);

/* Appends a weft_api_answer as a whole response and frees its body. */
void weft_api_http_respond_with(struct weft_api_http *http, struct weft_api_answer *answer,
                                int64_t now_s, struct weft_buf *out);

/* Appends a response whose length is not known at its first byte: head, pieces, end. */
void weft_api_http_begin(struct weft_api_http *http, const struct weft_api_response *response,
                         int64_t now_s, struct weft_buf *out);
void weft_api_http_piece(const struct weft_api_http *http, const struct weft_buf *piece,
                         struct weft_buf *out);
void weft_api_http_end(const struct weft_api_http *http, struct weft_buf *out);

/* The response has left, or its client has, `us` after the request's first byte: for metrics. */
void weft_api_http_over(const struct weft_api_http *http, uint64_t us);

#endif
