#include "rpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "api/pace.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "codec/json_out.h"
#include "codec/msgpack.h"
#include "codec/utf8.h"
#include "inside/api/call/call.h"
#include "server.h"

#define FIELDS_MAX 1024 /* of one request; the API has some sixty */

/* What a connection that has not shown its key yet may send in one message. */
#define UNADMITTED_BYTES_MAX 16384
#define ERROR_BYTES_MAX 4096
#define NO_KEY "incorrect API key: give it as \"api_key\" in the params"
#define NO_KEY_YET NO_KEY " of a smaller request before this one"

/* One request under way. */
struct rpc_call {
    struct rpc *rpc;
    struct rpc_call *prev, *next;
    weft_api_call *call;
    uint32_t msgid;
    char request_id[WEFT_REQUEST_ID_BYTES_MAX + 1];
    bool has_streamed;        /* all notifications are out */
    struct weft_mp_feed feed; /* the result, packed while it is rendered: */
    struct weft_buf json;     /* what is not packed yet, no more than one piece and a string */
    struct weft_buf packed;   /* and what is */
    uint64_t small_bytes;     /* of its body, where it costs nothing of the shared budget */
    uint64_t free_bytes;      /* of output that costs nothing there, of the connection's */
    uint64_t held;            /* of the budget for output, for `packed` */
};

struct rpc {
    struct conn *conn;
    struct weft_buf in;
    size_t in_from; /* where the first message not handled yet begins */
    struct weft_mp_scan scan;
    struct weft_api_pace pace; /* of the message that comes in */
    uint64_t held;             /* of the shared budget, for that message */
    uint64_t held_by_out;      /* of that for output, for results on their way out */
    struct rpc_call *calls;
    uint32_t n_calls;
    uint64_t small_bytes, free_bytes; /* of all calls */
    uint64_t opened_ms;
    bool is_partial;  /* a message has begun and is not whole */
    bool is_skipping; /* it was refused, and its bytes are thrown away */
    bool is_admitted; /* gave an API key, or none is needed */
    bool has_ended;   /* sent nonsense: nothing more is read */
};

/* -------------------------------------------------------------------------------- responses --- */

static void begin_response(struct weft_buf *out, uint32_t msgid) {
    weft_msgpack_add_array(out, 4);
    weft_msgpack_add_uint(out, 1);
    weft_msgpack_add_uint(out, msgid);
}

static void respond_error(struct rpc *rpc, uint32_t msgid, const char *type, const char *message) {
    struct weft_buf *out = &rpc->conn->out;
    struct weft_buf clean; /* it may quote what the client sent, and cut that in two */
    weft_buf_init(&clean, ERROR_BYTES_MAX);
    weft_utf8_clean(&clean, message, strlen(message));
    begin_response(out, msgid);
    weft_msgpack_add_array(out, 2);
    weft_msgpack_add_text(out, type, strlen(type));
    weft_msgpack_add_text(out, clean.data ? clean.data : "", clean.len);
    weft_msgpack_add_nil(out);
    weft_buf_fini(&clean);
    rpc->conn->server->api.metrics.rpc[1]++;
    wefti_conn_awake(rpc->conn);
}

static void respond_failure(struct rpc *rpc, uint32_t msgid, const struct weft_api_error *error) {
    char text[sizeof error->message + 64];
    const char *type = weft_api_error_type(error->status);
    if (error->retry_after == 0) {
        respond_error(rpc, msgid, type, error->message);
        return;
    }
    (void)snprintf(text, sizeof text, "%s (retry_after_ms: %" PRIu64 ")", error->message,
                   (uint64_t)error->retry_after * 1000);
    respond_error(rpc, msgid, type, text);
}

static void begin_result(struct weft_buf *out, uint32_t msgid) {
    begin_response(out, msgid);
    weft_msgpack_add_nil(out);
}

/* A whole response. It may be as large as a message can be: copying that would take a second in
 * which no other connection has its turn. */
static void respond_packed(struct rpc *rpc, struct weft_buf *packed) {
    struct weft_buf *out = &rpc->conn->out;
    if (out->len == 0 && !out->failed) {
        struct weft_buf empty = *out;
        *out = *packed;
        *packed = empty;
    } else {
        weft_buf_add(out, packed->data, packed->len);
        if (packed->failed) out->failed = true;
    }
    rpc->conn->server->api.metrics.rpc[0]++;
    wefti_conn_awake(rpc->conn);
}

/* Of short JSON; it is given up. */
static void respond_json(struct rpc *rpc, uint32_t msgid, struct weft_buf *json) {
    struct weft_mp_feed feed = {0};
    struct weft_buf packed;
    weft_buf_init(&packed, WEFT_MESSAGE_BYTES_MAX);
    begin_result(&packed, msgid);
    (void)weft_msgpack_feed(&feed, json->data, json->len, true, &packed);
    if (json->failed) packed.failed = true;
    respond_packed(rpc, &packed);
    weft_buf_fini(&packed);
    weft_buf_fini(json);
}

/* ---------------------------------------------------------------------------- calls, ending --- */

static void free_call(struct weft_api_state *api, struct rpc_call *rc) {
    weft_api_call_drop(rc->call);
    weft_api_release_output(api, rc->held);
    weft_buf_fini(&rc->json);
    weft_buf_fini(&rc->packed);
    free(rc);
}

static void remove_call(struct rpc_call *rc) {
    struct rpc *rpc = rc->rpc;
    WEFT_ASSERT(rpc->n_calls > 0 && rpc->small_bytes >= rc->small_bytes);
    WEFT_ASSERT(rpc->free_bytes >= rc->free_bytes);
    if (rc->prev)
        rc->prev->next = rc->next;
    else
        rpc->calls = rc->next;
    if (rc->next) rc->next->prev = rc->prev;
    rpc->n_calls--;
    rpc->small_bytes -= rc->small_bytes;
    rpc->free_bytes -= rc->free_bytes;
    free_call(rc->call->api, rc);
}

static void drop_calls(struct rpc *rpc) {
    for (struct rpc_call *rc = rpc->calls, *next; rc; rc = next) {
        next = rc->next;
        remove_call(rc);
    }
}

static void finish_call(struct rpc_call *rc) {
    struct rpc *rpc = rc->rpc;
    respond_packed(rpc, &rc->packed);
    rpc->held_by_out += rc->held;
    rc->held = 0;
    remove_call(rc);
}

/* A list of tokens may be many times as long as the text that was sent, and log-probabilities as
 * JSON many times as long as they are in the call. */
static bool hold_result(struct rpc_call *rc) {
    const weft_api_call *call = rc->call;
    bool is_generation = call->kind != CALL_TOKENIZE && call->kind != CALL_DETOKENIZE;
    uint64_t cost = rc->packed.len > call->free_bytes ? rc->packed.len : 0;
    if (cost <= rc->held) return true;
    if (!is_generation && call->held_bytes == 0) return true; /* small requests always pass */
    if (!weft_api_hold_output(call->api, cost - rc->held)) return false;
    rc->held = cost;
    return true;
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
    weft_msgpack_add_array(out, 3);
    weft_msgpack_add_uint(out, 2);
    weft_msgpack_add_text(out, "token", 5);
    weft_msgpack_add_array(out, 1);
    weft_msgpack_add_json(out, map);
    json_decref(map);
}

/* Notifications while there is room. True when the last one is out. */
static bool pump_stream(struct rpc_call *rc) {
    struct conn *conn = rc->rpc->conn;
    struct weft_buf *chunk = &conn->server->scratch;
    while (!wefti_conn_is_full(conn)) {
        weft_buf_clear(chunk);
        if (weft_api_render_chunk(rc->call, chunk)) {
            notify_token(rc, chunk);
            continue;
        }
        return rc->call->state == WEFT_API_CALL_DONE;
    }
    return false;
}

static void no_room(struct rpc *rpc, uint32_t msgid) {
    struct weft_api_error error = {0};
    weft_api_error_no_room(&error);
    respond_failure(rpc, msgid, &error);
}

static void fail_for_room(struct rpc_call *rc) {
    no_room(rc->rpc, rc->msgid);
    remove_call(rc);
}

static void pack_some(struct rpc_call *rc, bool is_last) {
    const struct weft_buf *json = &rc->json;
    size_t used = weft_msgpack_feed(&rc->feed, json->data, json->len, is_last, &rc->packed);
    if (json->failed) rc->packed.failed = true;
    weft_buf_drop_front(&rc->json, used);
}

/* May end the call, and with it `rc`. */
static void pump_call(struct rpc_call *rc) {
    weft_api_call *call = rc->call;
    if (call->state == WEFT_API_CALL_PREPARING || call->state == WEFT_API_CALL_WAITING) return;
    if (call->state == WEFT_API_CALL_FAILED) {
        respond_failure(rc->rpc, rc->msgid, &call->error);
        remove_call(rc);
        return;
    }
    if (call->params.stream && !rc->has_streamed) {
        if (!pump_stream(rc)) return;
        rc->has_streamed = true;
        weft_api_render_rewind(call);
    }
    if (call->state != WEFT_API_CALL_DONE) return;
    if (rc->packed.len == 0) begin_result(&rc->packed, rc->msgid);
    bool is_done = weft_api_render_body(call, &rc->json, WEFT_OUT_BYTES) == WEFT_API_RENDER_DONE;
    pack_some(rc, is_done);
    if (!hold_result(rc))
        fail_for_room(rc);
    else if (is_done)
        finish_call(rc);
    else
        wefti_conn_awake(rc->rpc->conn); /* the rest in the next turn */
}

static void on_wake(weft_api_call *call) {
    const struct rpc_call *rc = call->owner;
    wefti_conn_awake(rc->rpc->conn);
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
    struct weft_mp_item item;
    *out = '\0';
    if (!request->params ||
        !weft_msgpack_find(request->params, request->params_len, "request_id", &item) ||
        item.type == WEFT_MP_NIL)
        return true;
    if (item.type == WEFT_MP_INT) {
        (void)snprintf(out, out_bytes, "%" PRId64, item.i);
        return true;
    }
    if (item.type != WEFT_MP_TEXT || item.len == 0 || item.len >= out_bytes ||
        memchr(item.bytes, 0, item.len) || !weft_utf8_valid(item.bytes, item.len))
        return false;
    memcpy(out, item.bytes, item.len);
    out[item.len] = '\0';
    return true;
}

/* True when one more call, with so many small bytes, would be over a bound. */
static bool is_crowded(const struct rpc *rpc, uint64_t small_bytes) {
    return rpc->n_calls >= WEFT_RPC_CALLS_MAX ||
           rpc->small_bytes + small_bytes > WEFT_RPC_SMALL_BYTES_MAX;
}

static void refuse_call(struct rpc *rpc, uint32_t msgid) {
    struct weft_api_error error = {0};
    weft_api_error_set(&error, 429, NULL, NULL,
                       "too many requests are under way on this connection, try again later");
    error.retry_after = 1;
    respond_failure(rpc, msgid, &error);
}

static void start_call(struct rpc *rpc, const struct request *request, enum call_kind kind) {
    struct server *server = rpc->conn->server;
    struct rpc_call *rc = NULL;
    char request_id[sizeof rc->request_id] = "";
    struct weft_buf body;
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
    size_t len = request->params ? request->params_len : 1;
    uint64_t cost = weft_api_cost(len), small_bytes = cost ? 0 : len;
    if (is_crowded(rpc, small_bytes)) {
        refuse_call(rpc, request->msgid);
        return;
    }
    if (!weft_api_hold(&server->api, cost)) {
        no_room(rpc, request->msgid);
        return;
    }
    weft_buf_init(&body, WEFT_BODY_BYTES_MAX);
    weft_buf_add(&body, request->params ? request->params : &empty_map, len);
    rc = calloc(1, sizeof *rc);
    if (rc && body.len)
        rc->call = weft_api_call_new(&server->api, kind, &body, on_wake, rc, weft_now_us());
    if (!rc || !rc->call) {
        free(rc);
        weft_buf_fini(&body);
        weft_api_release(&server->api, cost);
        respond_error(rpc, request->msgid, weft_api_error_type(500), "out of memory");
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
    rc->small_bytes = small_bytes;
    rpc->small_bytes += small_bytes;
    /* Many calls of one connection share what is free, lest small results of many add up to much.
     */
    uint64_t left = WEFT_RPC_SMALL_BYTES_MAX - rpc->free_bytes;
    rc->free_bytes = rc->call->free_bytes =
        left < WEFT_API_SMALL_BYTES ? left : WEFT_API_SMALL_BYTES;
    rpc->free_bytes += rc->free_bytes;
    rc->call->is_msgpack = true;
    rc->call->streams_for_rpc = true;
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
        respond_error(rpc, rc->msgid, weft_api_error_type(499), "the request was cancelled");
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
    struct weft_mp_item key;
    const struct server *server = rpc->conn->server;
    if (!rpc->is_admitted && request->params &&
        weft_msgpack_find(request->params, request->params_len, "api_key", &key) &&
        key.type == WEFT_MP_TEXT)
        rpc->is_admitted = wefti_server_admits(server, key.bytes, key.len);
    return rpc->is_admitted;
}

static void dispatch(struct rpc *rpc, const struct weft_mp_item *name,
                     const struct request *request) {
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
        respond_error(rpc, request->msgid, weft_api_error_type(401), NO_KEY);
    } else {
        method->handle(rpc, request);
    }
}

/* --------------------------------------------------------------------------------- messages --- */

/* [0, msgid, method, params] or [2, method, params], measured. False: neither. */
static bool take_message(struct rpc *rpc, const char *bytes, size_t len) {
    size_t at = 0;
    struct weft_mp_item head, type, msgid = {0}, name, params;
    struct request request = {0};
    if (weft_msgpack_item(bytes, len, &at, &head) != WEFT_MP_OK || head.type != WEFT_MP_ARRAY ||
        head.len < 3 || weft_msgpack_item(bytes, len, &at, &type) != WEFT_MP_OK ||
        type.type != WEFT_MP_INT)
        return false;
    request.is_notification = type.i == 2;
    if (type.i == 0) {
        if (head.len != 4 || weft_msgpack_item(bytes, len, &at, &msgid) != WEFT_MP_OK ||
            msgid.type != WEFT_MP_INT || msgid.i < 0 || msgid.i > UINT32_MAX)
            return false;
    } else if (type.i != 2 || head.len != 3) {
        return false;
    }
    request.msgid = (uint32_t)msgid.i;
    if (weft_msgpack_item(bytes, len, &at, &name) != WEFT_MP_OK || name.type != WEFT_MP_TEXT ||
        weft_msgpack_item(bytes, len, &at, &params) != WEFT_MP_OK || params.type != WEFT_MP_ARRAY)
        return false;
    size_t map_at = at;
    struct weft_mp_item map = {0};
    if (params.len > 0 && weft_msgpack_item(bytes, len, &map_at, &map) != WEFT_MP_OK) return false;
    if (params.len > 1 || (params.len == 1 && map.type != WEFT_MP_MAP)) {
        if (!request.is_notification)
            respond_error(rpc, request.msgid, "invalid_request_error",
                          "params must be an array of one map");
        return true;
    }
    if (params.len == 1 && map.len > FIELDS_MAX) { /* each would be looked at, more than once */
        if (!request.is_notification)
            respond_error(rpc, request.msgid, "invalid_request_error",
                          "a request has no more than 1024 fields");
        return true;
    }
    if (params.len == 1) {
        request.params = bytes + at;
        request.params_len = len - at;
    }
    dispatch(rpc, &name, &request);
    return true;
}

static struct weft_api_state *api_of(const struct rpc *rpc) {
    return &rpc->conn->server->api;
}

static void release_input(struct rpc *rpc) {
    weft_api_release(api_of(rpc), rpc->held);
    rpc->held = 0;
}

static void forget_input(struct rpc *rpc) {
    if (rpc->in_from == rpc->in.len) {
        weft_buf_fini(&rpc->in);
        rpc->in_from = 0;
    } else if (rpc->in_from > rpc->in.len / 2) { /* so that moving bytes stays cheap */
        weft_buf_drop_front(&rpc->in, rpc->in_from);
        rpc->in_from = 0;
    }
}

/* What is under way has lost its client's trust; what was answered still goes out. */
static void end_connection(struct rpc *rpc, const char *why) {
    wefti_server_complain(rpc->conn->server, "closed a MessagePack-RPC connection: %s", why);
    rpc->has_ended = true;
    drop_calls(rpc);
    wefti_conn_end(rpc->conn, true);
}

/* The message that has begun to come is refused: its request is answered, what there is of it and
 * what will come thrown away, and the requests beside it go on. False: it is no request, and the
 * connection was ended. */
static bool refuse_message(struct rpc *rpc, const struct weft_api_error *error) {
    const char *bytes = rpc->in.data + rpc->in_from;
    size_t at = 0, len = rpc->in.len - rpc->in_from;
    struct weft_mp_item head, kind, msgid = {0};
    bool is_known =
        weft_msgpack_item(bytes, len, &at, &head) == WEFT_MP_OK && head.type == WEFT_MP_ARRAY &&
        weft_msgpack_item(bytes, len, &at, &kind) == WEFT_MP_OK && kind.type == WEFT_MP_INT;
    bool is_request = is_known && head.len == 4 && kind.i == 0;
    bool is_notification = is_known && head.len == 3 && kind.i == 2;
    if (is_request)
        is_request = weft_msgpack_item(bytes, len, &at, &msgid) == WEFT_MP_OK &&
                     msgid.type == WEFT_MP_INT && msgid.i >= 0 && msgid.i <= UINT32_MAX;
    if (!is_request && !is_notification) {
        end_connection(rpc, "not a request");
        return false;
    }
    if (is_request) respond_failure(rpc, (uint32_t)msgid.i, error);
    rpc->in_from += rpc->scan.at;
    rpc->is_skipping = true;
    release_input(rpc);
    return true;
}

static bool refuse_message_with(struct rpc *rpc, int status, const char *text) {
    struct weft_api_error error = {0};
    weft_api_error_set(&error, status, NULL, NULL, "%s", text);
    return refuse_message(rpc, &error);
}

/* A part of a message is there: is there room for it? False: it, or the connection, was refused. */
static bool keep_partial(struct rpc *rpc) {
    uint64_t len = rpc->in.len - rpc->in_from;
    if (!rpc->is_admitted && len > UNADMITTED_BYTES_MAX) {
        (void)refuse_message_with(rpc, 401, NO_KEY_YET);
        return false;
    }
    uint64_t cost = weft_api_cost(len);
    if (cost > rpc->held && !weft_api_hold(api_of(rpc), cost - rpc->held)) {
        struct weft_api_error error = {0};
        weft_api_error_no_room(&error);
        (void)refuse_message(rpc, &error);
        return false;
    }
    if (cost > rpc->held) rpc->held = cost;
    return true;
}

/* Or will in a moment. */
static bool has_answer(const struct rpc *rpc) {
    for (const struct rpc_call *rc = rpc->calls; rc; rc = rc->next) {
        enum weft_api_call_state state = rc->call->state;
        if (state == WEFT_API_CALL_DONE || state == WEFT_API_CALL_FAILED) return true;
        /* A thread has it only because this turn of the loop had seen enough. */
        bool is_short = rc->small_bytes > 0 && rc->small_bytes <= WEFT_SHORT_BODY_BYTES;
        if (state == WEFT_API_CALL_PREPARING && is_short) return true;
    }
    return false;
}

/* Answers that are there make room as they go out, so what comes next waits for them: a client may
 * send a thousand short requests at once and never see one refused. Only what takes its time in
 * the scheduler or a thread, and would keep a "cancel" waiting, is refused. */
static bool has_room(const struct rpc *rpc) {
    if (wefti_conn_is_full(rpc->conn)) return false;
    return !is_crowded(rpc, WEFT_API_SMALL_BYTES) || !has_answer(rpc);
}

static void message_ended(struct rpc *rpc) {
    rpc->scan = (struct weft_mp_scan){0};
    rpc->is_partial = rpc->is_skipping = false;
    release_input(rpc);
}

/* Throws away what there is of a refused message. False: no more of it for now, or nonsense. */
static bool skip_some(struct rpc *rpc) {
    size_t used;
    const char *bytes = rpc->in.data + rpc->in_from;
    enum weft_mp_status status =
        weft_msgpack_skip(&rpc->scan, bytes, rpc->in.len - rpc->in_from, &used);
    rpc->in_from += used;
    if (status == WEFT_MP_OK) message_ended(rpc);
    if (status == WEFT_MP_BAD)
        end_connection(rpc, "malformed MessagePack in a message refused before");
    return status == WEFT_MP_OK;
}

/* One message, as far as it has come in. False: it has to wait for more, or was the last. */
static bool take_some(struct rpc *rpc) {
    struct weft_errmsg why;
    const char *bytes = rpc->in.data + rpc->in_from;
    enum weft_mp_status status = weft_msgpack_scan(&rpc->scan, bytes, rpc->in.len - rpc->in_from,
                                                   rpc->conn->server->config.max_body_bytes, &why);
    if (status == WEFT_MP_LONG) return refuse_message_with(rpc, 413, why.text);
    if (status == WEFT_MP_MORE) return !keep_partial(rpc) && rpc->is_skipping;
    if (status == WEFT_MP_BAD) { /* where the next message begins nobody can tell */
        end_connection(rpc, why.text);
        return false;
    }
    size_t len = rpc->scan.at;
    if (!rpc->is_admitted && len > UNADMITTED_BYTES_MAX) {
        if (refuse_message_with(rpc, 401, NO_KEY_YET)) message_ended(rpc);
        return !rpc->has_ended;
    }
    message_ended(rpc); /* a call holds what it needs of the budget by itself */
    if (!take_message(rpc, bytes, len)) {
        end_connection(rpc, "not a request");
        return false;
    }
    rpc->in_from += len;
    return true;
}

/* Handles what has come in as far as there is room for answers. */
static void take_messages(struct rpc *rpc) {
    bool goes_on = true;
    while (goes_on && rpc->in_from < rpc->in.len && has_room(rpc))
        goes_on = rpc->is_skipping ? skip_some(rpc) : take_some(rpc);
    if (rpc->has_ended) return;
    bool was_partial = rpc->is_partial;
    rpc->is_partial = rpc->in_from < rpc->in.len || rpc->is_skipping;
    if (rpc->is_partial && !was_partial) weft_api_pace_begin(&rpc->pace, weft_now_ms());
    forget_input(rpc);
    wefti_conn_read(rpc->conn, has_room(rpc));
}

/* --------------------------------------------------------------------------- the connection --- */

static void on_bytes(struct conn *conn, const char *bytes, size_t n) {
    struct rpc *rpc = conn->proto;
    if (rpc->has_ended) return;
    weft_api_pace_add(&rpc->pace, n);
    weft_buf_add(&rpc->in, bytes, n);
    if (rpc->in.failed)
        wefti_conn_close(conn);
    else
        take_messages(rpc);
}

/* All results are in the socket's hands. */
static void release_output(struct rpc *rpc) {
    const struct conn *conn = rpc->conn;
    if (conn->is_writing || conn->out.len > 0) return;
    weft_api_release_output(api_of(rpc), rpc->held_by_out);
    rpc->held_by_out = 0;
}

static void on_turn(struct conn *conn) {
    struct rpc *rpc = conn->proto;
    if (!rpc->has_ended) release_output(rpc); /* what is pumped now may never let it happen below */
    for (struct rpc_call *rc = rpc->calls, *next; rc && !wefti_conn_is_full(conn); rc = next) {
        next = rc->next;
        pump_call(rc);
    }
    bool was_full = wefti_conn_is_full(conn);
    wefti_conn_flush(conn);
    if (conn->is_closing) return;
    /* The socket took all of it, so nobody else will say that there is room for the rest. */
    if (was_full && !conn->is_writing) wefti_conn_awake(conn);
    if (rpc->has_ended) return;
    release_output(rpc);
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
        weft_api_call_fail(rc->call, 504, 0, "request_timeout", why);
        return;
    }
    respond_error(rc->rpc, rc->msgid, weft_api_error_type(504), why);
    remove_call(rc);
}

/* Part of a message, and no more of it for a while: it is given up. With nothing else under way the
 * client is broken or hostile, and the connection goes, too. */
static void check_pace(struct rpc *rpc, uint64_t now_ms) {
    const struct weft_config *config = &rpc->conn->server->config;
    if (!rpc->is_partial) return;
    if (!rpc->conn->is_reading) { /* it is us who wait */
        weft_api_pace_begin(&rpc->pace, now_ms);
        return;
    }
    if (!weft_api_pace_is_late(&rpc->pace, config->max_body_bytes, config->idle_timeout_ms, now_ms))
        return;
    if (!rpc->is_skipping && !refuse_message_with(rpc, 408, "the message is late")) return;
    if (rpc->n_calls == 0)
        end_connection(rpc, "a message is late");
    else
        take_messages(rpc); /* away with what there is of it */
}

/* What still runs, or has not begun, is not held up by who reads slowly. */
static bool waits_for_reader(const struct rpc_call *rc) {
    const weft_api_call *call = rc->call;
    return call->state == WEFT_API_CALL_DONE ||
           (call->state == WEFT_API_CALL_RUNNING && call->params.stream);
}

static void on_tick(struct conn *conn, uint64_t now_ms) {
    struct rpc *rpc = conn->proto;
    uint64_t now_us = weft_now_us();
    conn->held_bytes = rpc->held_by_out;
    for (struct rpc_call *rc = rpc->calls, *next; rc; rc = next) {
        next = rc->next;
        if (waits_for_reader(rc)) conn->held_bytes += rc->held + weft_api_call_held(rc->call);
        if (weft_api_call_is_late(rc->call, now_us)) end_late_call(rc);
    }
    if (rpc->has_ended) return;
    release_output(rpc);
    const struct weft_config *config = &conn->server->config;
    if (!rpc->is_admitted && now_ms > rpc->opened_ms + config->idle_timeout_ms) {
        end_connection(rpc, "no API key within --idle-timeout");
        return;
    }
    check_pace(rpc, now_ms);
}

static bool is_busy(const struct conn *conn) {
    return ((const struct rpc *)conn->proto)->n_calls > 0;
}

static void on_close(struct conn *conn) {
    struct rpc *rpc = conn->proto;
    drop_calls(rpc);
    release_input(rpc);
    weft_api_release_output(api_of(rpc), rpc->held_by_out);
    rpc->held_by_out = 0;
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
    rpc->opened_ms = weft_now_ms();
    weft_buf_init(&rpc->in, conn->server->config.max_body_bytes + 2 * WEFT_READ_BYTES);
    rpc->is_admitted = conn->server->n_api_keys == 0;
    conn->ops = &ops;
    conn->proto = rpc;
    return true;
}
