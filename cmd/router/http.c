#include "http.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "api/call.h"
#include "api/http.h"
#include "api/live.h"
#include "api/pace.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "batches/ask.h"
#include "server.h"

/* Of requests to come more is not read. With --request-memory little: they are in no budget. */
#define PIPELINE_BYTES_MAX 65536
#define SMALL_PIPELINE_BYTES_MAX 1024
#define PIECES_PER_TURN 4
/* Requests of one connection in one turn of the loop: a read may bring thousands, and answering all
 * at once would keep other connections waiting. */
#define REQUESTS_PER_TURN 8

enum http_phase {
    HTTP_READING, /* `request` says how far */
    HTTP_BUSY,    /* a response is being made */
    HTTP_ENDED,
};

struct http {
    struct conn *conn;
    enum http_phase phase;
    uint64_t since_ms;     /* in the head: its first byte, or the last response */
    uint64_t last_byte_ms; /* when it came from the client */
    uint64_t last_sent_ms;
    struct weft_buf pending; /* bytes of requests to come */
    bool has_eof;            /* no more bytes will come */
    uint64_t turn;           /* the loop's turn in which a request last came, */
    uint32_t n_in_turn;      /* and the number that came in it */
    struct weft_api_http request;
    struct weft_api_pace pace;        /* of its body */
    weft_api_call *call;              /* that answers it */
    struct weft_api_live_stream live; /* or events of /stats do, */
    struct batch_ask *ask;            /* or who keeps files and batches */
    bool has_begun, is_stream;        /* the response */
    uint64_t begun_us;                /* the request's first byte */
    bool is_logged;                   /* in the access log */
};

/* -------------------------------------------------------------------------------- responses --- */

static int64_t wall_clock_s(void) {
    return (int64_t)time(NULL);
}

static void begin_request(struct http *h) {
    weft_api_http_reset(&h->request);
    h->has_begun = h->is_stream = h->is_logged = false;
    h->phase = HTTP_READING;
    h->since_ms = weft_now_ms();
}

static void log_access(struct http *h) {
    const struct weft_api_http *request = &h->request;
    if (h->is_logged || h->conn->server->access_format == WEFT_API_ACCESS_OFF) return;
    h->is_logged = true;
    struct weft_api_access access = {
        .id = weft_api_http_request_id(&h->request),
        .method = request->head_done ? llhttp_method_name(request->method) : NULL,
        .path = request->path.at,
        .path_len = request->path.len,
        .status = request->sent_status ? request->sent_status : 499,
        .total_us = weft_now_us() - h->begun_us,
        .key = request->key_name,
    };
    if (h->call && weft_api_call_state(h->call) != WEFT_API_CALL_PREPARING) {
        access.model = weft_api_call_model_name(h->call);
        weft_api_call_tell(h->call, &access.call);
    }
    wefti_server_log_access(h->conn, &access);
}

/* The response is complete in `out`. */
static void finish_response(struct http *h) {
    struct conn *conn = h->conn;
    weft_api_http_over(&h->request, weft_now_us() - h->begun_us);
    log_access(h);
    weft_api_call_drop(h->call);
    wefti_ask_drop(h->ask);
    h->call = NULL;
    h->ask = NULL;
    if (!h->request.keep_alive) {
        bool is_unread = !h->request.message_done;
        h->phase = HTTP_ENDED;
        wefti_conn_end(conn, is_unread);
        return;
    }
    begin_request(h);
    wefti_conn_flush(conn);
    if (!conn->is_closing && h->pending.len) wefti_conn_awake(conn);
}

static void refuse(struct http *h, const struct weft_api_error *error) {
    WEFT_ASSERT(!h->has_begun);
    h->phase = HTTP_BUSY;
    weft_api_http_refuse(&h->request, error, wall_clock_s(), &h->conn->out);
    finish_response(h);
}

static void refuse_with(struct http *h, int status, const char *code, const char *text) {
    struct weft_api_error error = {0};
    weft_api_error_set(&error, status, NULL, code, "%s", text);
    refuse(h, &error);
}

static void add_piece(struct http *h, const struct weft_buf *piece) {
    if (piece->len == 0) return;
    weft_api_http_piece(&h->request, piece, &h->conn->out);
    h->last_sent_ms = weft_now_ms();
}

/* A body whose length is not known when its first byte goes out. */
static void begin_pieces(struct http *h, const char *type, const char *extra) {
    const struct weft_api_response response = {200, type, extra};
    weft_api_http_begin(&h->request, &response, wall_clock_s(), &h->conn->out);
    h->has_begun = true;
    h->last_sent_ms = weft_now_ms();
}

static void begin_events(struct http *h, const char *type) {
    begin_pieces(h, type, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
}

static enum weft_api_render render_piece(struct http *h) {
    struct weft_buf *piece = &h->conn->server->scratch;
    weft_buf_clear(piece);
    return h->is_stream ? weft_api_render_stream(h->call, piece, WEFT_OUT_BYTES)
                        : weft_api_render_body(h->call, piece, WEFT_OUT_BYTES);
}

/* Sends pieces while the socket takes them, but not so many that other connections wait long. */
static void pump_pieces(struct http *h) {
    struct conn *conn = h->conn;
    for (int i = 0; i < PIECES_PER_TURN; i++) {
        if (wefti_conn_is_full(conn)) return;
        enum weft_api_render status = render_piece(h);
        add_piece(h, &conn->server->scratch);
        if (status == WEFT_API_RENDER_DONE) {
            if (weft_api_call_state(h->call) == WEFT_API_CALL_FAILED) h->request.keep_alive = false;
            weft_api_http_end(&h->request, &conn->out);
            finish_response(h);
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
        const struct weft_api_response response = {200, "application/json", NULL};
        weft_api_http_respond(&h->request, &response, piece->data, piece->len, wall_clock_s(),
                              &h->conn->out);
        finish_response(h);
        return;
    }
    begin_pieces(h, "application/json", NULL);
    add_piece(h, piece);
    wefti_conn_flush(h->conn);
    if (!h->conn->is_closing) pump_pieces(h);
}

/* Sends what the call has, as far as there is room. */
static void pump(struct http *h) {
    WEFT_ASSERT(h->call && h->phase == HTTP_BUSY);
    switch (weft_api_call_state(h->call)) {
    case WEFT_API_CALL_PREPARING:
    case WEFT_API_CALL_WAITING:
        return;
    case WEFT_API_CALL_FAILED:
        if (h->has_begun)
            pump_pieces(h);
        else
            refuse(h, weft_api_call_error(h->call));
        return;
    case WEFT_API_CALL_RUNNING:
    case WEFT_API_CALL_DONE:
        if (weft_api_call_is_stream(h->call) && !h->has_begun) {
            h->is_stream = true;
            begin_events(h, weft_api_call_stream_type(h->call));
        }
        if (h->is_stream)
            pump_pieces(h);
        else if (weft_api_call_state(h->call) == WEFT_API_CALL_DONE)
            pump_body(h);
    }
}

/* Sends a comment line in a silent stream, which proxies and clients would give up on. Streams of
 * lines have none. */
static void keep_alive(struct http *h, uint64_t now_ms) {
    struct conn *conn = h->conn;
    if (!h->is_stream || conn->is_writing || !weft_api_call_is_between_events(h->call) ||
        now_ms <= h->last_sent_ms + conn->server->config.sse_keepalive_ms)
        return;
    const char *comment = weft_api_call_keep_alive(h->call);
    if (!comment) return;
    struct weft_buf *piece = &conn->server->scratch;
    weft_buf_clear(piece);
    weft_buf_add_str(piece, comment);
    add_piece(h, piece);
    wefti_conn_flush(conn);
}

/* Sends the newest figures, once the client has taken those before. */
static void pump_live(struct http *h) {
    struct conn *conn = h->conn;
    if (wefti_conn_is_full(conn)) return;
    const struct weft_api_moment moment = {weft_now_ms(), weft_mem_resident_bytes()};
    const struct weft_buf *event = weft_api_live_next(&h->live, &moment);
    if (event) add_piece(h, event);
    if (!weft_api_live_is_over(&h->live)) {
        wefti_conn_flush(conn);
        return;
    }
    weft_api_live_end(&h->live);
    h->request.keep_alive = false;
    weft_api_http_end(&h->request, &conn->out);
    finish_response(h);
}

static void begin_live(struct http *h) {
    if (weft_api_live_begin(&h->conn->server->live, &h->live, h->conn)) {
        begin_events(h, "text/event-stream; charset=utf-8");
        pump_live(h);
        return;
    }
    struct weft_api_error error = {0};
    weft_api_error_set(&error, 503, NULL, "too_many_streams",
                       "%d clients watch the server's figures already, try again later",
                       WEFT_API_LIVE_STREAMS_MAX);
    error.retry_after_ms = WEFT_API_RETRY_MS;
    refuse(h, &error);
}

/* A file's bytes, as a thread reads them and the socket takes them. */
static void pump_file(struct http *h) {
    struct conn *conn = h->conn;
    struct weft_buf *piece = &conn->server->scratch;
    for (int i = 0; i < PIECES_PER_TURN && !wefti_conn_is_full(conn); i++) {
        weft_buf_clear(piece);
        enum ask_piece status = wefti_ask_piece(h->ask, piece);
        if (status == ASK_PIECE_WAIT) return;
        if (status == ASK_PIECE_FAILED) {
            wefti_conn_close(conn);
            return;
        }
        if (!h->has_begun) begin_pieces(h, "application/jsonl", NULL);
        add_piece(h, piece);
        if (status == ASK_PIECE_WHOLE) {
            weft_api_http_end(&h->request, &conn->out);
            finish_response(h);
            return;
        }
        wefti_conn_flush(conn);
        if (conn->is_closing) return;
    }
}

/* Answers once that can be done, even in the middle of a body. */
static void pump_ask(struct http *h) {
    struct conn *conn = h->conn;
    switch (wefti_ask_state(h->ask)) {
    case ASK_WORKING:
        if (h->phase != HTTP_READING || conn->is_reading || wefti_ask_is_full(h->ask)) return;
        weft_api_pace_begin(&h->pace, weft_now_ms());
        wefti_conn_read(conn, true);
        return;
    case ASK_SENDING:
        pump_file(h);
        return;
    case ASK_ANSWERED:
        break;
    }
    struct weft_api_answer answer = wefti_ask_answer(h->ask);
    h->phase = HTTP_BUSY;
    weft_api_http_respond_with(&h->request, &answer, wall_clock_s(), &conn->out);
    finish_response(h);
}

/* --------------------------------------------------------------------------------- requests --- */

static void on_wake(weft_api_call *call) {
    struct http *h = weft_api_call_owner(call);
    wefti_conn_awake(h->conn);
}

static void start_call(struct http *h) {
    WEFT_ASSERT(!h->call);
    struct server *server = h->conn->server;
    const struct weft_api_call_request request = {
        .kind = h->request.route.kind,
        .body = &h->request.body,
        .is_gzip = h->request.is_gzip,
        .request_id = weft_api_http_request_id(&h->request),
        .asker = h->request.asks,
        .path_session = {h->request.session_id, h->request.n_session_id},
        .free_bytes = server->api.small_bytes,
        .wake = on_wake,
        .owner = h,
        .now_us = weft_now_us(),
        .now_s = wall_clock_s(),
    };
    h->call = weft_api_call_new(&server->api, &request);
    if (h->call)
        wefti_server_begin(server, h->call);
    else
        refuse_with(h, 500, NULL, "out of memory");
}

static void wake_ask(void *owner) {
    struct http *h = owner;
    wefti_conn_awake(h->conn);
}

/* The head is there. */
static void begin_ask(struct http *h) {
    struct weft_api_http *request = &h->request;
    bool is_asked = request->route.is_stored && request->method != HTTP_OPTIONS;
    if (!is_asked || request->status == WEFT_API_HTTP_REFUSED) return;
    h->ask = wefti_ask_new(&h->conn->server->batches, request, wake_ask, h);
    if (h->ask && wefti_ask_is_upload(h->ask)) {
        request->sink = wefti_ask_take;
        request->sink_to = h->ask;
    }
    if (h->ask) return;
    weft_api_error_set(&request->refusal, 500, NULL, NULL, "out of memory");
    request->status = WEFT_API_HTTP_REFUSED;
}

static void handle(struct http *h) {
    h->phase = HTTP_BUSY;
    if (h->ask) {
        wefti_ask_go(h->ask, &h->request.body);
        pump_ask(h);
        return;
    }
    if (h->request.route.kind && h->request.method != HTTP_OPTIONS) {
        start_call(h);
        return;
    }
    if (weft_api_http_wants_events(&h->request)) {
        begin_live(h);
        return;
    }
    struct weft_api_answer answer;
    const struct weft_api_moment moment = {weft_now_ms(), weft_mem_resident_bytes()};
    weft_api_http_answer(&h->request, &moment, &answer);
    weft_api_http_respond_with(&h->request, &answer, wall_clock_s(), &h->conn->out);
    finish_response(h);
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

/* A client's time begins when the previous answer has left, whatever it sent until then: requests
 * wait for that, and slow reading has its own limit. */
static uint64_t after_output_ms(const struct http *h, uint64_t ms) {
    return ms > h->conn->written_ms ? ms : h->conn->written_ms;
}

/* A request in a spare place is the last of its connection. */
static void use_spare_place(struct http *h) {
    struct weft_api_http *request = &h->request;
    if (!request->head_done || request->status == WEFT_API_HTTP_REFUSED) return;
    request->keep_alive = false;
    if (request->route.is_watched) return;
    struct weft_api_error *no = &request->refusal;
    weft_api_error_set(no, 503, NULL, "too_many_connections", "too many connections");
    no->retry_after_ms = WEFT_API_RETRY_MS;
    request->status = WEFT_API_HTTP_REFUSED;
    h->conn->server->api.metrics.n_connections_refused++;
}

/* Takes bytes of the current request; returns how many belong to it. */
static size_t take(struct http *h, const char *bytes, size_t n) {
    struct weft_api_http *request = &h->request;
    WEFT_ASSERT(h->phase == HTTP_READING);
    bool was_in_head = !request->head_done;
    size_t before = request->body.len;
    if (request->head.len == 0) {
        h->since_ms = h->last_byte_ms;
        h->begun_us = weft_now_us();
    }
    size_t used = weft_api_http_take(request, bytes, n, h->last_byte_ms);
    if (was_in_head && request->head_done) {
        count_request(h);
        weft_api_pace_begin(&h->pace, after_output_ms(h, h->last_byte_ms));
        if (h->conn->place == CONN_SPARE_PLACE) use_spare_place(h);
        begin_ask(h);
    }
    if (request->body.len > before) weft_api_pace_add(&h->pace, request->body.len - before);
    if (request->status == WEFT_API_HTTP_REFUSED) {
        refuse(h, &request->refusal);
    } else if (request->status == WEFT_API_HTTP_WHOLE) {
        handle(h);
    } else if (was_in_head && request->head_done && request->expect.at && !request->is_http10 &&
               used == n) {
        weft_buf_add_str(&h->conn->out, "HTTP/1.1 100 Continue\r\n\r\n");
        wefti_conn_flush(h->conn);
    }
    if (h->ask && h->phase == HTTP_READING && wefti_ask_is_full(h->ask))
        wefti_conn_read(h->conn, false);
    return used;
}

static bool is_in_head(const struct http *h) {
    return h->phase == HTTP_READING && h->request.status == WEFT_API_HTTP_IN_HEAD;
}

/* Whether as many bytes of requests to come wait as may. */
static bool has_pipeline(const struct http *h) {
    bool is_bounded = h->conn->server->config.request_memory > 0;
    return h->pending.len > (is_bounded ? SMALL_PIPELINE_BYTES_MAX : PIPELINE_BYTES_MAX);
}

static void stash(struct http *h, const char *bytes, size_t n) {
    weft_buf_add(&h->pending, bytes, n);
    if (h->pending.failed)
        wefti_conn_close(h->conn);
    else if (has_pipeline(h))
        wefti_conn_read(h->conn, false);
}

static void feed(struct http *h, const char *bytes, size_t n) {
    struct conn *conn = h->conn;
    while (n > 0 && !conn->is_closing && h->phase != HTTP_ENDED) {
        bool waits = conn->is_writing || has_had_turn(h) || h->pending.len > 0;
        if (h->phase == HTTP_BUSY || (is_in_head(h) && waits)) {
            stash(h, bytes, n);
            if (!conn->is_writing) wefti_conn_awake(conn); /* else on_turn comes after the write */
            return;
        }
        size_t used = take(h, bytes, n);
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
    /* A half-closed client gets answers already made; one that waits for an answer is gone. Bytes
     * that only wait for their turn are handled first. */
    bool is_waiting = h->call || h->live.live || h->ask;
    h->has_eof = h->pending.len > 0 && !is_waiting;
    if (h->has_eof) return;
    if (is_waiting) {
        wefti_conn_close(conn);
        return;
    }
    h->phase = HTTP_ENDED;
    wefti_conn_end(conn, false);
}

static void on_turn(struct conn *conn) {
    struct http *h = conn->proto;
    if (h->call) pump(h);
    if (h->live.live) pump_live(h);
    if (h->ask) pump_ask(h);
    if (conn->is_closing || !is_in_head(h) || conn->is_writing) return;
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
    bool is_gone = h->has_eof && (h->call || h->ask || !h->pending.len);
    if (is_gone && !conn->is_closing) on_eof(conn);
    if (!conn->is_closing && !has_pipeline(h)) wefti_conn_read(conn, true);
}

/* A call that a thread has must be left alone: its client is answered, and the call freed when the
 * thread returns. */
static void end_call(struct http *h, const struct weft_api_error *error) {
    weft_api_call *call = h->call;
    if (weft_api_call_end(call, error)) return;
    h->call = NULL;
    weft_api_call_drop(call);
    refuse(h, error);
}

static void end_late_call(struct http *h) {
    struct weft_api_error error = {0};
    weft_api_error_late(&error);
    if (weft_api_call_is_late(h->call, weft_now_us())) end_call(h, &error);
}

static void on_tick(struct conn *conn, uint64_t now_ms) {
    struct http *h = conn->proto;
    const struct weft_config *config = &conn->server->config;
    uint64_t spent_ms = now_ms - after_output_ms(h, h->since_ms);
    conn->held_bytes = h->call ? weft_api_call_held(h->call) : 0;
    if (conn->place == CONN_SPARE_PLACE && now_ms > conn->opened_ms + WEFT_SPARE_MS) {
        wefti_conn_close(conn);
        return;
    }
    if (is_in_head(h) && h->request.head.len == 0) {
        bool is_idle = spent_ms > config->idle_timeout_ms;
        if (is_idle && !conn->is_writing && !h->pending.len) wefti_conn_close(conn);
    } else if (is_in_head(h)) {
        if (spent_ms > config->idle_timeout_ms)
            refuse_with(h, 408, NULL, "the request's head is late");
    } else if (h->phase == HTTP_READING && conn->is_reading) {
        if (weft_api_pace_is_late(&h->pace, weft_api_http_body_max(&h->request),
                                  config->idle_timeout_ms, now_ms))
            refuse_with(h, 408, NULL, "the request's body is late");
    } else if (h->call) {
        end_late_call(h);
        if (h->call) keep_alive(h, now_ms);
    }
}

/* Streams get the error as their last event; other answers under way are complete, and go out. */
static void on_give_up(struct conn *conn) {
    struct http *h = conn->proto;
    struct weft_api_error error = {0};
    weft_api_error_leaving(&error);
    if (h->call)
        end_call(h, &error);
    else if (h->ask && h->has_begun)
        wefti_conn_close(conn);
    else if (h->ask)
        refuse(h, &error);
    else if (h->phase == HTTP_READING && h->request.head.len > 0)
        refuse(h, &error);
}

/* True if a request has begun to come in or is being answered, or one more should be. */
static bool is_busy(const struct conn *conn) {
    const struct http *h = conn->proto;
    if (h->phase == HTTP_BUSY || h->request.head.len > 0) return true;
    return h->phase == HTTP_READING && conn->place == CONN_PLACE &&
           wefti_server_expects(conn->server, after_output_ms(h, h->since_ms), weft_now_ms());
}

static void on_close(struct conn *conn) {
    struct http *h = conn->proto;
    if (h->phase == HTTP_BUSY) { /* the client has left */
        weft_api_http_over(&h->request, weft_now_us() - h->begun_us);
        log_access(h);
    }
    weft_api_call_drop(h->call);
    wefti_ask_drop(h->ask);
    h->call = NULL;
    h->ask = NULL;
    weft_api_live_end(&h->live);
    h->phase = HTTP_ENDED;
    weft_api_http_fini(&h->request);
}

static void on_free(struct conn *conn) {
    struct http *h = conn->proto;
    weft_buf_fini(&h->pending);
    free(h);
}

bool wefti_http_open(struct conn *conn) {
    static const struct conn_ops ops = {on_bytes,   on_turn, on_eof,   on_tick,
                                        on_give_up, is_busy, on_close, on_free};
    struct http *h = calloc(1, sizeof *h);
    if (!h) return false;
    h->conn = conn;
    weft_api_http_init(&h->request, &conn->server->api);
    weft_buf_init(&h->pending, PIPELINE_BYTES_MAX + WEFT_READ_BYTES);
    conn->ops = &ops;
    conn->proto = h;
    begin_request(h);
    return true;
}
