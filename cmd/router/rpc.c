#include "cmd/router/rpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/parse.h"
#include "cmd/router/api.h"
#include "cmd/router/call.h"
#include "cmd/router/msgpack_io.h"
#include "cmd/router/server.h"

#define PACK_IN_THREAD_BYTES (256u << 10)

/* One request under way. */
struct rpc_call {
    struct rpc *rpc; /* NULL: the connection is gone, and a thread still packs */
    struct rpc_call *prev, *next;
    struct call *call;
    uint32_t msgid;
    char request_id[WEFT_REQUEST_ID_BYTES_MAX + 1];
    bool has_streamed; /* all notifications are out */
    bool is_packing;
    struct weft_buf json;   /* the result, as far as it is rendered */
    struct weft_buf packed; /* and packed, by a thread */
    uv_work_t work;
};

struct rpc {
    struct conn *conn;
    struct weft_buf in;
    size_t in_from; /* where the first message not handled yet begins */
    struct mp_scan scan;
    uint64_t last_byte_ms;
    uint64_t held; /* bytes of `in` taken from the core's budget */
    struct rpc_call *calls;
    uint32_t n_calls;
    bool is_admitted; /* gave an API key, or none is needed */
    bool has_ended;   /* sent nonsense: nothing more is read */
};

/* -------------------------------------------------------------------------------- responses --- */

static void begin_response(struct rpc *rpc, uint32_t msgid) {
    struct weft_buf *out = &rpc->conn->out;
    wefti_msgpack_add_array(out, 4);
    wefti_msgpack_add_uint(out, 1);
    wefti_msgpack_add_uint(out, msgid);
}

static void respond_error(struct rpc *rpc, uint32_t msgid, const char *type, const char *message) {
    struct weft_buf *out = &rpc->conn->out;
    begin_response(rpc, msgid);
    wefti_msgpack_add_array(out, 2);
    wefti_msgpack_add_text(out, type, strlen(type));
    wefti_msgpack_add_text(out, message, strlen(message));
    wefti_msgpack_add_nil(out);
    rpc->conn->server->core.metrics.rpc[1]++;
    wefti_conn_awake(rpc->conn);
}

static void respond_packed(struct rpc *rpc, uint32_t msgid, const struct weft_buf *packed) {
    struct weft_buf *out = &rpc->conn->out;
    begin_response(rpc, msgid);
    wefti_msgpack_add_nil(out);
    weft_buf_add(out, packed->data, packed->len);
    if (packed->failed) out->failed = true;
    rpc->conn->server->core.metrics.rpc[0]++;
    wefti_conn_awake(rpc->conn);
}

static void pack_json(const struct weft_buf *json, struct weft_buf *packed) {
    json_error_t why;
    json_t *value =
        json_loadb(json->data ? json->data : "", json->len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    if (!value || json->failed) packed->failed = true; /* no memory: we wrote it ourselves */
    if (value) wefti_msgpack_add_json(packed, value);
    json_decref(value);
}

/* `json` is given up. */
static void respond_json(struct rpc *rpc, uint32_t msgid, struct weft_buf *json) {
    struct weft_buf packed;
    weft_buf_init(&packed, WEFT_MESSAGE_BYTES_MAX);
    pack_json(json, &packed);
    respond_packed(rpc, msgid, &packed);
    weft_buf_fini(&packed);
    weft_buf_fini(json);
}

/* ---------------------------------------------------------------------------- calls, ending --- */

static void free_call(struct rpc_call *rc) {
    wefti_call_drop(rc->call);
    weft_buf_fini(&rc->json);
    weft_buf_fini(&rc->packed);
    free(rc);
}

static void remove_call(struct rpc_call *rc) {
    struct rpc *rpc = rc->rpc;
    WEFT_ASSERT(rpc && rpc->n_calls > 0);
    if (rc->prev)
        rc->prev->next = rc->next;
    else
        rpc->calls = rc->next;
    if (rc->next) rc->next->prev = rc->prev;
    rpc->n_calls--;
    rc->rpc = NULL;
    if (!rc->is_packing) free_call(rc);
}

static void drop_calls(struct rpc *rpc) {
    for (struct rpc_call *rc = rpc->calls, *next; rc; rc = next) {
        next = rc->next;
        remove_call(rc);
    }
}

static void pack_in_thread(uv_work_t *work) {
    struct rpc_call *rc = work->data;
    pack_json(&rc->json, &rc->packed);
}

static void after_pack(uv_work_t *work, int status) {
    struct rpc_call *rc = work->data;
    (void)status;
    rc->is_packing = false;
    if (!rc->rpc) {
        free_call(rc);
        return;
    }
    respond_packed(rc->rpc, rc->msgid, &rc->packed);
    remove_call(rc);
}

/* The whole result is in rc->json. */
static void finish_call(struct rpc_call *rc) {
    struct rpc *rpc = rc->rpc;
    if (rc->json.len > PACK_IN_THREAD_BYTES) {
        rc->is_packing = true;
        rc->work.data = rc;
        if (uv_queue_work(&rpc->conn->server->loop, &rc->work, pack_in_thread, after_pack) == 0)
            return;
        rc->is_packing = false;
    }
    respond_json(rpc, rc->msgid, &rc->json);
    remove_call(rc);
}

/* ------------------------------------------------------------------------- calls, rendering --- */

static void notify_token(struct rpc_call *rc, const struct weft_buf *chunk) {
    struct weft_buf *out = &rc->rpc->conn->out;
    json_error_t why;
    json_t *map = json_loadb(chunk->data, chunk->len, JSON_ALLOW_NUL, &why);
    if (!map || json_object_set_new(map, "request_id", json_string(rc->request_id)) != 0) {
        json_decref(map);
        out->failed = true;
        return;
    }
    wefti_msgpack_add_array(out, 3);
    wefti_msgpack_add_uint(out, 2);
    wefti_msgpack_add_text(out, "token", 5);
    wefti_msgpack_add_array(out, 1);
    wefti_msgpack_add_json(out, map);
    json_decref(map);
}

/* Notifications while there is room. True when the last one is out. */
static bool pump_stream(struct rpc_call *rc) {
    struct conn *conn = rc->rpc->conn;
    struct weft_buf *chunk = &conn->server->scratch;
    while (!wefti_conn_is_full(conn)) {
        weft_buf_clear(chunk);
        if (wefti_render_chunk(rc->call, chunk)) {
            notify_token(rc, chunk);
            continue;
        }
        return rc->call->state == CALL_DONE;
    }
    return false;
}

/* May end the call, and with it `rc`. */
static void pump_call(struct rpc_call *rc) {
    struct call *call = rc->call;
    if (rc->is_packing || call->state == CALL_PREPARING || call->state == CALL_WAITING) return;
    if (call->state == CALL_FAILED) {
        respond_error(rc->rpc, rc->msgid, wefti_error_type(call->error.status),
                      call->error.message);
        remove_call(rc);
        return;
    }
    if (call->params.stream && !rc->has_streamed) {
        if (!pump_stream(rc)) return;
        rc->has_streamed = true;
        wefti_render_rewind(call);
    }
    if (call->state != CALL_DONE) return;
    if (wefti_render_body(call, &rc->json, WEFT_OUT_BYTES) == RENDER_DONE)
        finish_call(rc);
    else
        wefti_conn_awake(rc->rpc->conn); /* the rest in the next turn */
}

static void on_wake(struct call *call) {
    struct rpc_call *rc = call->owner;
    if (rc->rpc) wefti_conn_awake(rc->rpc->conn);
}

/* ------------------------------------------------------------------------- calls, beginning --- */

static struct rpc_call *find_call(const struct rpc *rpc, const char *request_id) {
    for (struct rpc_call *rc = rpc->calls; rc; rc = rc->next) {
        if (strcmp(rc->request_id, request_id) == 0) return rc;
    }
    return NULL;
}

struct request {
    uint32_t msgid;
    bool is_notification;
    const char *params; /* the map, measured; NULL when there is none */
    size_t params_len;
};

/* False: the field is neither text of a fair length nor an integer. Absent: "". */
static bool read_request_id(const struct request *request, char *out, size_t out_bytes) {
    struct mp_item item;
    *out = '\0';
    if (!request->params ||
        !wefti_msgpack_find(request->params, request->params_len, "request_id", &item) ||
        item.type == MP_NIL)
        return true;
    if (item.type == MP_INT) {
        (void)snprintf(out, out_bytes, "%" PRId64, item.i);
        return true;
    }
    if (item.type != MP_TEXT || item.len == 0 || item.len >= out_bytes ||
        memchr(item.bytes, 0, item.len) || !weft_utf8_valid(item.bytes, item.len))
        return false;
    memcpy(out, item.bytes, item.len);
    out[item.len] = '\0';
    return true;
}

static void start_call(struct rpc *rpc, const struct request *request, enum call_kind kind) {
    struct server *server = rpc->conn->server;
    struct rpc_call *rc = NULL;
    char request_id[sizeof rc->request_id] = "";
    struct weft_buf body;
    weft_buf_init(&body, WEFT_BODY_BYTES_MAX);
    if (!read_request_id(request, request_id, sizeof request_id)) {
        respond_error(rpc, request->msgid, "invalid_request_error",
                      "'request_id' must be a string of 1 to 128 bytes");
        return;
    }
    if (!request_id[0]) (void)snprintf(request_id, sizeof request_id, "%" PRIu32, request->msgid);
    if (find_call(rpc, request_id)) {
        respond_error(rpc, request->msgid, "invalid_request_error",
                      "'request_id' is that of a request still running");
        return;
    }
    static const char empty_map = (char)0x80;
    weft_buf_add(&body, request->params ? request->params : &empty_map,
                 request->params ? request->params_len : 1);
    if (!wefti_core_hold(&server->core, body.len)) {
        weft_buf_fini(&body);
        respond_error(rpc, request->msgid, wefti_error_type(503),
                      "the server holds too many large requests, try again later");
        return;
    }
    uint64_t held = body.len;
    rc = calloc(1, sizeof *rc);
    if (rc && body.len)
        rc->call = wefti_call_new(&server->core, kind, &body, on_wake, rc, weft_now_us());
    if (!rc || !rc->call) {
        free(rc);
        weft_buf_fini(&body);
        wefti_core_release(&server->core, held);
        respond_error(rpc, request->msgid, wefti_error_type(500), "out of memory");
        return;
    }
    rc->rpc = rpc;
    rc->msgid = request->msgid;
    memcpy(rc->request_id, request_id, sizeof request_id);
    weft_buf_init(&rc->json, WEFT_MESSAGE_BYTES_MAX);
    weft_buf_init(&rc->packed, WEFT_MESSAGE_BYTES_MAX);
    rc->next = rpc->calls;
    if (rpc->calls) rpc->calls->prev = rc;
    rpc->calls = rc;
    rpc->n_calls++;
    rc->call->is_msgpack = true;
    rc->call->has_rpc_view = true;
    wefti_server_begin(server, rc->call);
}

/* ---------------------------------------------------------------------------------- methods --- */

static void do_generate(struct rpc *rpc, const struct request *request) {
    start_call(rpc, request, CALL_COMPLETION);
}

static void do_chat(struct rpc *rpc, const struct request *request) {
    start_call(rpc, request, CALL_CHAT);
}

static void do_tokenize(struct rpc *rpc, const struct request *request) {
    start_call(rpc, request, CALL_TOKENIZE);
}

static void do_detokenize(struct rpc *rpc, const struct request *request) {
    start_call(rpc, request, CALL_DETOKENIZE);
}

static void do_embed(struct rpc *rpc, const struct request *request) {
    respond_error(rpc, request->msgid, "invalid_request_error",
                  "this server does not compute embeddings yet");
}

static void respond_with(struct rpc *rpc, const struct request *request,
                         void (*write)(const struct server *server, struct weft_buf *out)) {
    struct weft_buf json;
    weft_buf_init(&json, WEFT_MESSAGE_BYTES_MAX);
    write(rpc->conn->server, &json);
    respond_json(rpc, request->msgid, &json);
}

static void do_models(struct rpc *rpc, const struct request *request) {
    respond_with(rpc, request, wefti_api_models);
}

static void do_health(struct rpc *rpc, const struct request *request) {
    respond_with(rpc, request, wefti_api_health);
}

static void do_stats(struct rpc *rpc, const struct request *request) {
    respond_with(rpc, request, wefti_api_stats);
}

static void do_cancel(struct rpc *rpc, const struct request *request) {
    char request_id[WEFT_REQUEST_ID_BYTES_MAX + 1];
    bool is_fine = read_request_id(request, request_id, sizeof request_id) && request_id[0];
    if (!is_fine && !request->is_notification)
        respond_error(rpc, request->msgid, "invalid_request_error",
                      "'request_id' must name the request to cancel");
    if (!is_fine) return;
    struct rpc_call *rc = find_call(rpc, request_id);
    if (rc) {
        respond_error(rpc, rc->msgid, wefti_error_type(499), "the request was cancelled");
        remove_call(rc);
    }
    if (request->is_notification) return;
    struct weft_buf json;
    weft_buf_init(&json, 64);
    weft_buf_add_str(&json, rc ? "{\"cancelled\":true}" : "{\"cancelled\":false}");
    respond_json(rpc, request->msgid, &json);
}

static const struct method {
    const char *name;
    bool is_guarded; /* by the API key */
    void (*handle)(struct rpc *rpc, const struct request *request);
} methods[] = {
    {"generate", true, do_generate}, {"chat", true, do_chat},
    {"embed", true, do_embed},       {"cancel", true, do_cancel},
    {"tokenize", true, do_tokenize}, {"detokenize", true, do_detokenize},
    {"models", true, do_models},     {"health", false, do_health},
    {"stats", false, do_stats},
};

/* A key given once, as "api_key" in any call's params, admits the connection. */
static bool is_admitted(struct rpc *rpc, const struct request *request) {
    struct mp_item key;
    const struct server *server = rpc->conn->server;
    if (!rpc->is_admitted && request->params &&
        wefti_msgpack_find(request->params, request->params_len, "api_key", &key) &&
        key.type == MP_TEXT)
        rpc->is_admitted = wefti_server_admits(server, key.bytes, key.len);
    return rpc->is_admitted;
}

static void dispatch(struct rpc *rpc, const struct mp_item *name, const struct request *request) {
    const struct method *method = NULL;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strlen(methods[i].name) == name->len &&
            memcmp(methods[i].name, name->bytes, name->len) == 0)
            method = &methods[i];
    }
    if (request->is_notification) { /* nobody would learn of an answer */
        if (method && method->handle == do_cancel && is_admitted(rpc, request))
            do_cancel(rpc, request);
        return;
    }
    char text[128];
    if (!method) {
        (void)snprintf(text, sizeof text, "there is no method '%.*s'",
                       (int)(name->len < 64 ? name->len : 64), name->bytes);
        respond_error(rpc, request->msgid, "method_not_found", text);
    } else if (method->is_guarded && !is_admitted(rpc, request)) {
        respond_error(rpc, request->msgid, wefti_error_type(401),
                      "incorrect API key: give it as \"api_key\" in the params");
    } else {
        method->handle(rpc, request);
    }
}

/* --------------------------------------------------------------------------------- messages --- */

/* [0, msgid, method, params] or [2, method, params], measured. False: neither. */
static bool take_message(struct rpc *rpc, const char *bytes, size_t len) {
    size_t at = 0;
    struct mp_item head, type, msgid = {0}, name, params;
    struct request request = {0};
    if (wefti_msgpack_item(bytes, len, &at, &head) != MP_OK || head.type != MP_ARRAY ||
        head.len < 3 || wefti_msgpack_item(bytes, len, &at, &type) != MP_OK || type.type != MP_INT)
        return false;
    request.is_notification = type.i == 2;
    if (type.i == 0) {
        if (head.len != 4 || wefti_msgpack_item(bytes, len, &at, &msgid) != MP_OK ||
            msgid.type != MP_INT || msgid.i < 0 || msgid.i > UINT32_MAX)
            return false;
    } else if (type.i != 2 || head.len != 3) {
        return false;
    }
    request.msgid = (uint32_t)msgid.i;
    if (wefti_msgpack_item(bytes, len, &at, &name) != MP_OK || name.type != MP_TEXT ||
        wefti_msgpack_item(bytes, len, &at, &params) != MP_OK || params.type != MP_ARRAY)
        return false;
    size_t map_at = at;
    struct mp_item map = {0};
    if (params.len > 0 && wefti_msgpack_item(bytes, len, &map_at, &map) != MP_OK) return false;
    if (params.len > 1 || (params.len == 1 && map.type != MP_MAP)) {
        if (!request.is_notification)
            respond_error(rpc, request.msgid, "invalid_request_error",
                          "params must be an array of one map");
        return true;
    }
    if (params.len == 1) {
        request.params = bytes + at;
        request.params_len = len - at;
    }
    dispatch(rpc, &name, &request);
    return true;
}

static void forget_input(struct rpc *rpc) {
    struct core *core = &rpc->conn->server->core;
    if (rpc->in_from == rpc->in.len) {
        wefti_core_release(core, rpc->held);
        rpc->held = 0;
        weft_buf_fini(&rpc->in);
        rpc->in_from = 0;
    } else if (rpc->in_from > rpc->in.len / 2) { /* so that moving bytes stays cheap */
        wefti_core_release(core, rpc->in_from);
        rpc->held -= rpc->in_from;
        weft_buf_drop_front(&rpc->in, rpc->in_from);
        rpc->in_from = 0;
    }
}

/* What is under way has lost its client's trust; what was answered still goes out. */
static void end_connection(struct rpc *rpc) {
    rpc->has_ended = true;
    drop_calls(rpc);
    wefti_conn_end(rpc->conn, true);
}

/* Handles what has come in as far as there is room for answers. */
static void take_messages(struct rpc *rpc) {
    struct conn *conn = rpc->conn;
    struct weft_errmsg why;
    while (rpc->in_from < rpc->in.len && !wefti_conn_is_full(conn) &&
           rpc->n_calls < WEFT_RPC_CALLS_MAX) {
        const char *bytes = rpc->in.data + rpc->in_from;
        enum mp_status status = wefti_msgpack_scan(&rpc->scan, bytes, rpc->in.len - rpc->in_from,
                                                   conn->server->config.max_body_bytes, &why);
        if (status == MP_MORE) break;
        size_t len = rpc->scan.at;
        if (status == MP_BAD || !take_message(rpc, bytes, len)) {
            /* Where the next message begins nobody can tell. */
            weft_info("closed a MessagePack-RPC connection: %s",
                      status == MP_BAD ? why.text : "not a request");
            end_connection(rpc);
            return;
        }
        rpc->scan = (struct mp_scan){0};
        rpc->in_from += len;
    }
    forget_input(rpc);
    bool has_room = rpc->n_calls < WEFT_RPC_CALLS_MAX && !wefti_conn_is_full(conn);
    wefti_conn_read(conn, has_room);
}

/* --------------------------------------------------------------------------- the connection --- */

static void on_bytes(struct conn *conn, const char *bytes, size_t n) {
    struct rpc *rpc = conn->proto;
    if (rpc->has_ended) return;
    if (!wefti_core_hold(&conn->server->core, n)) {
        wefti_conn_close(conn);
        return;
    }
    rpc->held += n;
    rpc->last_byte_ms = weft_now_ms();
    weft_buf_add(&rpc->in, bytes, n);
    if (rpc->in.failed)
        wefti_conn_close(conn);
    else
        take_messages(rpc);
}

static void on_turn(struct conn *conn) {
    struct rpc *rpc = conn->proto;
    for (struct rpc_call *rc = rpc->calls, *next; rc && !wefti_conn_is_full(conn); rc = next) {
        next = rc->next;
        pump_call(rc);
    }
    wefti_conn_flush(conn);
    if (conn->is_closing || rpc->has_ended) return;
    if (rpc->in_from < rpc->in.len || !conn->is_reading) take_messages(rpc);
    if (!conn->is_closing && conn->out.len && !conn->is_writing) wefti_conn_flush(conn);
}

static void on_eof(struct conn *conn) {
    wefti_conn_close(conn);
}

/* A call in a thread's hands must be left alone, see http.c. */
static void end_late_call(struct rpc_call *rc) {
    static const char why[] = "the request took too long";
    if (!rc->call->in_thread) {
        wefti_call_fail(rc->call, 504, 0, "request_timeout", why);
        return;
    }
    respond_error(rc->rpc, rc->msgid, wefti_error_type(504), why);
    remove_call(rc);
}

static void on_tick(struct conn *conn, uint64_t now_ms) {
    struct rpc *rpc = conn->proto;
    uint64_t now_us = weft_now_us();
    for (struct rpc_call *rc = rpc->calls, *next; rc; rc = next) {
        next = rc->next;
        if (wefti_call_is_late(rc->call, now_us)) end_late_call(rc);
    }
    /* Half a message, and no more of it for a while: the client is broken or hostile. */
    if (rpc->in_from < rpc->in.len && conn->is_reading && rpc->n_calls == 0 &&
        now_ms > rpc->last_byte_ms + conn->server->config.idle_timeout_ms)
        wefti_conn_close(conn);
}

static bool is_busy(const struct conn *conn) {
    return ((const struct rpc *)conn->proto)->n_calls > 0;
}

static void on_close(struct conn *conn) {
    struct rpc *rpc = conn->proto;
    drop_calls(rpc);
    wefti_core_release(&conn->server->core, rpc->held);
    rpc->held = 0;
}

static void on_free(struct conn *conn) {
    struct rpc *rpc = conn->proto;
    weft_buf_fini(&rpc->in);
    free(rpc);
}

bool wefti_rpc_open(struct conn *conn) {
    static const struct conn_ops ops = {on_bytes, on_turn,  on_eof, on_tick,
                                        is_busy,  on_close, on_free};
    struct rpc *rpc = calloc(1, sizeof *rpc);
    if (!rpc) return false;
    rpc->conn = conn;
    weft_buf_init(&rpc->in, conn->server->config.max_body_bytes + 2 * WEFT_READ_BYTES);
    rpc->is_admitted = conn->server->n_api_keys == 0;
    conn->ops = &ops;
    conn->proto = rpc;
    return true;
}
