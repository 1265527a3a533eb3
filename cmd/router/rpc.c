#include "rpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "api/api.h"
#include "api/call.h"
#include "api/pace.h"
#include "api/rpc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "codec/msgpack.h"
#include "server.h"

/* The longest message of a connection that has not shown its key. */
#define UNADMITTED_BYTES_MAX 16384
#define NO_KEY "incorrect API key: give it as \"api_key\" in the params"
#define NO_KEY_YET NO_KEY " of a smaller request before this one"

/* One request under way. */
struct rpc_call {
    struct rpc *rpc;
    LIST_ENTRY(rpc_call) entry;
    weft_api_call *call;
    uint32_t msgid;
    bool has_streamed; /* all notifications are out */
    uint64_t begun_us;
    int status; /* of the answer; 0: there is none yet */
    char method[16];
    struct weft_buf packed; /* the result, while it is rendered */
    uint64_t small_bytes;   /* of its body, if that costs no shared budget */
    uint64_t free_bytes;    /* its share of the connection's free output */
    uint64_t held;          /* of the budget for output, for `packed` */
};

struct rpc {
    struct conn *conn;
    struct weft_buf in;
    size_t in_from; /* where the first message not handled yet begins */
    struct weft_mp_scan scan;
    struct weft_api_pace pace; /* of the message that comes in */
    uint64_t held;             /* of the shared budget, for that message */
    uint64_t held_by_out;      /* of the budget for output, for results being sent */
    LIST_HEAD(, rpc_call) calls;
    uint32_t n_calls;
    uint64_t small_bytes, free_bytes; /* of all calls */
    uint64_t opened_ms;
    bool is_partial;        /* a message has begun and is not whole */
    bool is_skipping;       /* it was refused, and its bytes are discarded */
    bool is_admitted;       /* gave an API key, or none is needed, */
    bool is_admin;          /* one of an admin, */
    uint32_t n_key_changes; /* when there had been so many of them, */
    char key_name[WEFT_API_KEY_NAME_BYTES_MAX + 1]; /* and this is its name, */
    struct weft_api_asker asker;                    /* and this is whose it is */
    bool has_ended; /* sent nonsense, or is to come to another server: nothing more is read */
};

/* -------------------------------------------------------------------------------- responses --- */

static struct weft_api_state *api_of(const struct rpc *rpc) {
    return &rpc->conn->server->api;
}

static void count_failure(struct rpc *rpc) {
    api_of(rpc)->metrics.rpc[1]++;
    wefti_conn_awake(rpc->conn);
}

static void count_success(struct rpc *rpc) {
    api_of(rpc)->metrics.rpc[0]++;
    wefti_conn_awake(rpc->conn);
}

static void respond_error(struct rpc *rpc, uint32_t msgid, int status, const char *message) {
    weft_api_rpc_error(msgid, weft_api_error_type(status), message, &rpc->conn->out);
    count_failure(rpc);
}

static void respond_failure(struct rpc *rpc, uint32_t msgid, const struct weft_api_error *error) {
    weft_api_rpc_refuse(msgid, error, &rpc->conn->out);
    weft_api_metrics_dropped(&api_of(rpc)->metrics, weft_api_error_dropped(error));
    count_failure(rpc);
}

/* Sends a whole response, without a copy: of the largest, a copy would take a second in which no
 * other connection has its turn. */
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
    count_success(rpc);
}

/* ------------------------------------------------------------------------------- access log --- */

static void log_call(const struct rpc_call *rc) {
    struct weft_api_access access = {
        .id = weft_api_call_request_id(rc->call),
        .method = "RPC",
        .path = rc->method,
        .path_len = strlen(rc->method),
        .status = rc->status ? rc->status : 499,
        .total_us = weft_now_us() - rc->begun_us,
        .key = rc->rpc->key_name,
    };
    if (rc->rpc->conn->server->access_format == WEFT_API_ACCESS_OFF) return;
    if (weft_api_call_state(rc->call) != WEFT_API_CALL_PREPARING) {
        access.model = weft_api_call_model_name(rc->call);
        weft_api_call_tell(rc->call, &access.call);
    }
    wefti_server_log_access(rc->rpc->conn, &access);
}

/* A request that was answered at once. */
static void log_request(const struct rpc *rpc, uint32_t msgid, const char *name, size_t name_len,
                        int status, uint64_t begun_us) {
    char id[16];
    (void)snprintf(id, sizeof id, "%" PRIu32, msgid);
    struct weft_api_access access = {
        .id = id,
        .method = "RPC",
        .path = name,
        .path_len = name_len,
        .status = status,
        .total_us = weft_now_us() - begun_us,
        .key = rpc->key_name,
    };
    wefti_server_log_access(rpc->conn, &access);
}

/* ---------------------------------------------------------------------------- calls, ending --- */

static void remove_call(struct rpc_call *rc) {
    struct rpc *rpc = rc->rpc;
    log_call(rc);
    WEFT_ASSERT(rpc->n_calls > 0 && rpc->small_bytes >= rc->small_bytes);
    WEFT_ASSERT(rpc->free_bytes >= rc->free_bytes);
    LIST_REMOVE(rc, entry);
    rpc->n_calls--;
    rpc->small_bytes -= rc->small_bytes;
    rpc->free_bytes -= rc->free_bytes;
    weft_api_call_drop(rc->call);
    weft_api_release_output(api_of(rpc), rc->held);
    weft_buf_fini(&rc->packed);
    free(rc);
}

static void drop_calls(struct rpc *rpc) {
    while (!LIST_EMPTY(&rpc->calls))          /* each has left the list before it is freed */
        remove_call(LIST_FIRST(&rpc->calls)); /* NOLINT(clang-analyzer-unix.Malloc) */
}

static void finish_call(struct rpc_call *rc) {
    struct rpc *rpc = rc->rpc;
    respond_packed(rpc, &rc->packed);
    rc->status = 200;
    rpc->held_by_out += rc->held;
    rc->held = 0;
    remove_call(rc);
}

static bool hold_result(struct rpc_call *rc) {
    uint64_t cost = weft_api_call_result_cost(rc->call, rc->packed.len);
    if (cost <= rc->held) return true;
    if (!weft_api_hold_output(api_of(rc->rpc), cost - rc->held)) return false;
    rc->held = cost;
    return true;
}

/* ------------------------------------------------------------------------- calls, rendering --- */

/* Sends notifications while there is room. True after the last one. */
static bool pump_stream(struct rpc_call *rc) {
    struct conn *conn = rc->rpc->conn;
    while (!wefti_conn_is_full(conn)) {
        if (!weft_api_render_notification(rc->call, &conn->out))
            return weft_api_call_state(rc->call) == WEFT_API_CALL_DONE;
    }
    return false;
}

static void no_room(struct rpc *rpc, uint32_t msgid) {
    struct weft_api_error error = {0};
    weft_api_error_no_room(&error);
    respond_failure(rpc, msgid, &error);
}

/* Its result has no room: now, or never, and then it helps nobody to compute it again. */
static void fail_for_room(struct rpc_call *rc) {
    struct weft_api_error error = {0};
    if (weft_api_call_result_fits(rc->call, rc->packed.len))
        weft_api_error_no_room(&error);
    else
        weft_api_error_set(&error, 413, NULL, "too_many_bytes",
                           "the result takes more than the %" PRIu64
                           " bytes that all output together may take: ask for less, or over HTTP, "
                           "where it is sent while it is written",
                           api_of(rc->rpc)->output_max);
    respond_failure(rc->rpc, rc->msgid, &error);
    rc->status = error.status;
    remove_call(rc);
}

/* May end the call, and with it `rc`. */
static void pump_call(struct rpc_call *rc) {
    weft_api_call *call = rc->call;
    enum weft_api_call_state state = weft_api_call_state(call);
    if (state == WEFT_API_CALL_PREPARING || state == WEFT_API_CALL_WAITING) return;
    if (state == WEFT_API_CALL_FAILED) {
        respond_failure(rc->rpc, rc->msgid, weft_api_call_error(call));
        rc->status = weft_api_call_error(call)->status;
        remove_call(rc);
        return;
    }
    if (weft_api_call_is_stream(call) && !rc->has_streamed) {
        if (!pump_stream(rc)) return;
        rc->has_streamed = true;
    }
    if (state != WEFT_API_CALL_DONE) return;
    if (rc->packed.len == 0) weft_api_rpc_begin_result(rc->msgid, &rc->packed);
    bool is_done = weft_api_render_body(call, &rc->packed, WEFT_OUT_BYTES) == WEFT_API_RENDER_DONE;
    if (!hold_result(rc))
        fail_for_room(rc);
    else if (is_done)
        finish_call(rc);
    else
        wefti_conn_awake(rc->rpc->conn); /* the rest in the next turn */
}

static void on_wake(weft_api_call *call) {
    const struct rpc_call *rc = weft_api_call_owner(call);
    wefti_conn_awake(rc->rpc->conn);
}

/* ------------------------------------------------------------------------- calls, beginning --- */

static struct rpc_call *find_call(const struct rpc *rpc, const char *request_id) {
    struct rpc_call *rc;
    LIST_FOREACH(rc, &rpc->calls, entry) {
        if (strcmp(weft_api_call_request_id(rc->call), request_id) == 0) return rc;
    }
    return NULL;
}

/* True if one more call, with so many small bytes, would exceed a bound. */
static bool is_crowded(const struct rpc *rpc, uint64_t small_bytes) {
    return rpc->n_calls >= WEFT_RPC_CALLS_MAX ||
           rpc->small_bytes + small_bytes > WEFT_RPC_SMALL_BYTES_MAX;
}

static void refuse_call(struct rpc *rpc, uint32_t msgid) {
    struct weft_api_error error = {0};
    weft_api_error_set(&error, 429, NULL, "too_many_calls",
                       "too many requests are under way on this connection, try again later");
    error.retry_after_ms = WEFT_API_RETRY_MS;
    respond_failure(rpc, msgid, &error);
}

/* Makes the call of a request, with a copy of the params. NULL: out of memory. */
static struct rpc_call *make_call(struct rpc *rpc, const struct weft_api_rpc_request *request,
                                  const weft_api_kind *kind, const char *request_id) {
    static const char empty_map = (char)0x80;
    struct rpc_call *rc = calloc(1, sizeof *rc);
    struct weft_buf body;
    weft_buf_init(&body, WEFT_BODY_BYTES_MAX);
    weft_buf_add(&body, request->params ? request->params : &empty_map,
                 request->params ? request->params_len : 1);
    /* Calls of one connection share its free bytes, so many small results cannot add up. */
    uint64_t left = WEFT_RPC_SMALL_BYTES_MAX - rpc->free_bytes;
    const struct weft_api_call_request asked = {
        .kind = kind,
        .body = &body,
        .is_msgpack = true,
        .is_rpc = true,
        .request_id = request_id,
        .asker = rpc->asker,
        .free_bytes = weft_min_u64(left, api_of(rpc)->small_bytes),
        .wake = on_wake,
        .owner = rc,
        .now_us = weft_now_us(),
        .now_s = (int64_t)time(NULL),
    };
    if (rc && body.len) rc->call = weft_api_call_new(api_of(rpc), &asked);
    if (!rc || !rc->call) {
        weft_buf_fini(&body);
        free(rc);
        return NULL;
    }
    rc->free_bytes = asked.free_bytes;
    return rc;
}

/* 0: it has begun; else the status it was refused with. */
static int start_call(struct rpc *rpc, const struct weft_api_rpc_request *request,
                      const weft_api_kind *kind) {
    char request_id[WEFT_REQUEST_ID_BYTES_MAX + 1];
    if (!weft_api_rpc_request_id(request, request_id)) {
        respond_error(rpc, request->msgid, 400, "'request_id' must be a string of 1 to 128 bytes");
        return 400;
    }
    if (!request_id[0]) (void)snprintf(request_id, sizeof request_id, "%" PRIu32, request->msgid);
    if (find_call(rpc, request_id)) {
        respond_error(rpc, request->msgid, 400, "'request_id' is that of a request still running");
        return 400;
    }
    size_t len = request->params ? request->params_len : 1;
    uint64_t cost = weft_api_cost(api_of(rpc), len), small_bytes = cost ? 0 : len;
    if (is_crowded(rpc, small_bytes)) {
        refuse_call(rpc, request->msgid);
        return 429;
    }
    if (!weft_api_hold(api_of(rpc), cost)) {
        no_room(rpc, request->msgid);
        return 503;
    }
    struct rpc_call *rc = make_call(rpc, request, kind, request_id);
    if (!rc) {
        weft_api_release(api_of(rpc), cost);
        respond_error(rpc, request->msgid, 500, "out of memory");
        return 500;
    }
    rc->rpc = rpc;
    rc->msgid = request->msgid;
    weft_buf_init(&rc->packed, WEFT_MESSAGE_BYTES_MAX);
    LIST_INSERT_HEAD(&rpc->calls, rc, entry);
    rpc->n_calls++;
    rc->small_bytes = small_bytes;
    rpc->small_bytes += small_bytes;
    rpc->free_bytes += rc->free_bytes;
    rc->begun_us = weft_now_us();
    (void)snprintf(rc->method, sizeof rc->method, "%.*s", (int)request->name_len, request->name);
    wefti_server_begin(rpc->conn->server, rc->call);
    return 0;
}

/* ---------------------------------------------------------------------------------- methods --- */

static int cancel(struct rpc *rpc, const struct weft_api_rpc_request *request) {
    char request_id[WEFT_REQUEST_ID_BYTES_MAX + 1];
    bool is_fine = weft_api_rpc_request_id(request, request_id) && request_id[0];
    if (!is_fine && !request->is_notification)
        respond_error(rpc, request->msgid, 400, "'request_id' must name the request to cancel");
    if (!is_fine) return 400;
    struct rpc_call *rc = find_call(rpc, request_id);
    if (rc) {
        respond_error(rpc, rc->msgid, 499, "the request was cancelled");
        rc->status = 499;
        remove_call(rc);
    }
    if (request->is_notification) return 200;
    weft_api_rpc_cancelled(request->msgid, rc != NULL, &rpc->conn->out);
    count_success(rpc);
    return 200;
}

/* Whoever was admitted by other keys must show one again. */
static void look_at_keys(struct rpc *rpc) {
    const struct weft_api_state *api = api_of(rpc);
    if (rpc->n_key_changes == api->n_key_changes) return;
    rpc->n_key_changes = api->n_key_changes;
    rpc->is_admitted = rpc->is_admin = api->keys.n == 0;
    rpc->asker = (struct weft_api_asker){0};
    rpc->opened_ms = weft_now_ms();
}

/* A key given once, as "api_key" in any call's params, admits the connection. */
static bool is_admitted(struct rpc *rpc, const struct weft_api_rpc_request *request) {
    const struct weft_api_key *key;
    if (rpc->is_admitted) return true;
    rpc->is_admitted = weft_api_rpc_has_key(api_of(rpc), request, &key);
    rpc->is_admin = weft_api_is_admin(api_of(rpc), key);
    (void)snprintf(rpc->key_name, sizeof rpc->key_name, "%s", key ? key->name : "");
    rpc->asker =
        (struct weft_api_asker){.tenant = key ? key->tenant : 0, .weight = key ? key->weight : 0};
    return rpc->is_admitted;
}

/* Returns the status of the answer; 0: it is still to come. */
static int dispatch_request(struct rpc *rpc, const struct weft_api_rpc_request *request,
                            const struct weft_api_rpc_method *method) {
    if (!method) {
        char text[128], name[72];
        weft_api_quote(request->name, request->name_len, name, sizeof name);
        (void)snprintf(text, sizeof text, "there is no method '%s'", name);
        weft_api_rpc_error(request->msgid, "method_not_found", text, &rpc->conn->out);
        count_failure(rpc);
        return 404;
    }
    if (method->is_guarded && !is_admitted(rpc, request)) {
        respond_error(rpc, request->msgid, 401, NO_KEY);
        return 401;
    }
    if (method->is_admins && !rpc->is_admin) {
        respond_error(rpc, request->msgid, 403, WEFT_API_ADMINS_ONLY);
        return 403;
    }
    if (method->is_cancel) return cancel(rpc, request);
    if (method->kind) return start_call(rpc, request, method->kind);
    if (method->act) {
        struct weft_api_error error;
        weft_api_rpc_act(api_of(rpc), method, request->msgid, &error, &rpc->conn->out);
        if (error.status)
            respond_failure(rpc, request->msgid, &error);
        else
            count_success(rpc);
        return error.status ? error.status : 200;
    }
    const struct weft_api_moment moment = {weft_now_ms(), weft_mem_resident_bytes()};
    weft_api_rpc_answer(api_of(rpc), method, request->msgid, &moment, &rpc->conn->out);
    count_success(rpc);
    return 200;
}

static void dispatch(struct rpc *rpc, const struct weft_api_rpc_request *request) {
    struct weft_api_rpc_method method;
    bool is_known = weft_api_rpc_find(request, &method);
    if (request->is_notification) { /* a notification has no answer */
        if (is_known && method.is_cancel && is_admitted(rpc, request)) (void)cancel(rpc, request);
        return;
    }
    uint64_t begun_us = weft_now_us();
    int status = dispatch_request(rpc, request, is_known ? &method : NULL);
    if (status)
        log_request(rpc, request->msgid, request->name, request->name_len, status, begun_us);
}

/* --------------------------------------------------------------------------------- messages --- */

static void refuse_request(struct rpc *rpc, uint32_t msgid, const struct weft_api_error *error) {
    respond_failure(rpc, msgid, error);
    log_request(rpc, msgid, NULL, 0, error->status, weft_now_us());
}

/* Takes a whole message. False: it is neither request nor notification. */
static bool take_message(struct rpc *rpc, const char *bytes, size_t len) {
    struct weft_api_rpc_request request;
    struct weft_api_error error;
    if (weft_api_rpc_parse(bytes, len, &request, &error) == WEFT_API_RPC_NONSENSE) return false;
    if (!error.status)
        dispatch(rpc, &request);
    else if (!request.is_notification)
        refuse_request(rpc, request.msgid, &error);
    return true;
}

static void release_input(struct rpc *rpc) {
    weft_api_release(api_of(rpc), rpc->held);
    rpc->held = 0;
}

static void forget_input(struct rpc *rpc) {
    WEFT_ASSERT(rpc->in_from <= rpc->in.len);
    if (rpc->in_from == rpc->in.len) {
        weft_buf_fini(&rpc->in);
        rpc->in_from = 0;
    } else if (rpc->in_from > rpc->in.len / 2) { /* so that moving bytes stays cheap */
        weft_buf_drop_front(&rpc->in, rpc->in_from);
        rpc->in_from = 0;
    }
}

/* Cancels all calls after nonsense; answers already made still go out. */
static void end_connection(struct rpc *rpc, const char *why) {
    wefti_server_complain(rpc->conn->server, "closed a MessagePack-RPC connection: %s", why);
    rpc->has_ended = true;
    drop_calls(rpc);
    wefti_conn_end(rpc->conn, true);
}

/* Refuses a partial message: its request is answered, its bytes so far and those to come are
 * discarded, and other requests go on. False: it is no request, and the connection was ended. */
static bool refuse_message(struct rpc *rpc, const struct weft_api_error *error) {
    const char *bytes = rpc->in.data + rpc->in_from;
    uint32_t msgid;
    enum weft_api_rpc_message message =
        weft_api_rpc_peek(bytes, rpc->in.len - rpc->in_from, &msgid);
    if (message == WEFT_API_RPC_NONSENSE) {
        end_connection(rpc, "not a request");
        return false;
    }
    if (message == WEFT_API_RPC_REQUEST) refuse_request(rpc, msgid, error);
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

/* Makes room for a partial message. False: it, or the connection, was refused. */
static bool keep_partial(struct rpc *rpc) {
    uint64_t len = rpc->in.len - rpc->in_from;
    if (!rpc->is_admitted && len > UNADMITTED_BYTES_MAX) {
        (void)refuse_message_with(rpc, 401, NO_KEY_YET);
        return false;
    }
    uint64_t cost = weft_api_cost(api_of(rpc), len);
    if (cost > rpc->held && !weft_api_hold(api_of(rpc), cost - rpc->held)) {
        struct weft_api_error error = {0};
        weft_api_error_no_room(&error);
        (void)refuse_message(rpc, &error);
        return false;
    }
    if (cost > rpc->held) rpc->held = cost;
    return true;
}

/* True if an answer is ready, or will be in a moment. */
static bool has_answer(const struct rpc *rpc) {
    const struct rpc_call *rc;
    LIST_FOREACH(rc, &rpc->calls, entry) {
        enum weft_api_call_state state = weft_api_call_state(rc->call);
        if (state == WEFT_API_CALL_DONE || state == WEFT_API_CALL_FAILED) return true;
        /* A short call is in a thread only because this turn of the loop was full. */
        bool is_short = rc->small_bytes > 0 && rc->small_bytes <= WEFT_API_SHORT_BODY_BYTES;
        if (state == WEFT_API_CALL_PREPARING && is_short) return true;
    }
    return false;
}

/* Answers make room as they go out, so the next message waits for them: a client may send a
 * thousand short requests at once without a refusal. A request is refused only if slow calls, in
 * the scheduler or a thread, would keep a "cancel" waiting. */
static bool has_room(const struct rpc *rpc) {
    if (wefti_conn_is_full(rpc->conn)) return false;
    return !is_crowded(rpc, WEFT_API_SMALL_BYTES) || !has_answer(rpc);
}

static void message_ended(struct rpc *rpc) {
    rpc->scan = (struct weft_mp_scan){0};
    rpc->is_partial = rpc->is_skipping = false;
    release_input(rpc);
}

/* Discards bytes of a refused message. False: no more of it for now, or nonsense. */
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

/* Takes one message, as far as it is there. False: it must wait for more, or was the last. */
static bool take_some(struct rpc *rpc) {
    struct weft_errmsg why;
    const char *bytes = rpc->in.data + rpc->in_from;
    enum weft_mp_status status = weft_msgpack_scan(&rpc->scan, bytes, rpc->in.len - rpc->in_from,
                                                   rpc->conn->server->config.max_body_bytes, &why);
    if (status == WEFT_MP_LONG) return refuse_message_with(rpc, 413, why.text);
    if (status == WEFT_MP_MORE) return !keep_partial(rpc) && rpc->is_skipping;
    if (status == WEFT_MP_BAD) { /* the start of the next message is unknown */
        end_connection(rpc, why.text);
        return false;
    }
    size_t len = rpc->scan.at;
    if (!rpc->is_admitted && len > UNADMITTED_BYTES_MAX) {
        if (refuse_message_with(rpc, 401, NO_KEY_YET)) message_ended(rpc);
        return !rpc->has_ended;
    }
    message_ended(rpc); /* a call holds its own share of the budget */
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
    look_at_keys(rpc);
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

/* The socket has all results. */
static void release_output(struct rpc *rpc) {
    const struct conn *conn = rpc->conn;
    if (conn->is_writing || conn->out.len > 0) return;
    weft_api_release_output(api_of(rpc), rpc->held_by_out);
    rpc->held_by_out = 0;
}

/* Another server accepts now, and nothing in the protocol says so: a connection ends when all its
 * calls have their answers. */
static void end_if_replaced(struct rpc *rpc) {
    bool is_idle = rpc->n_calls == 0 && !rpc->is_partial;
    if (!api_of(rpc)->is_replaced || !is_idle || rpc->has_ended) return;
    rpc->has_ended = true;
    wefti_conn_end(rpc->conn, true);
}

static void on_turn(struct conn *conn) {
    struct rpc *rpc = conn->proto;
    if (!rpc->has_ended) release_output(rpc); /* new output may prevent it below */
    for (struct rpc_call *rc = LIST_FIRST(&rpc->calls), *next; rc && !wefti_conn_is_full(conn);
         rc = next) {
        next = LIST_NEXT(rc, entry);
        pump_call(rc);
    }
    bool was_full = wefti_conn_is_full(conn);
    wefti_conn_flush(conn);
    if (conn->is_closing) return;
    /* The socket took everything, so no write will report room for the rest. */
    if (was_full && !conn->is_writing) wefti_conn_awake(conn);
    if (rpc->has_ended) return;
    release_output(rpc);
    if (rpc->in_from < rpc->in.len || !conn->is_reading) take_messages(rpc);
    if (!conn->is_closing && conn->out.len && !conn->is_writing) wefti_conn_flush(conn);
    if (!conn->is_closing) end_if_replaced(rpc);
}

static void on_eof(struct conn *conn) {
    wefti_conn_close(conn);
}

/* A call that a thread has must be left alone, see http.c. */
static void end_call(struct rpc_call *rc, const struct weft_api_error *error) {
    if (weft_api_call_end(rc->call, error)) return;
    respond_failure(rc->rpc, rc->msgid, error);
    rc->status = error->status;
    remove_call(rc);
}

static void end_late_call(struct rpc_call *rc) {
    struct weft_api_error error = {0};
    weft_api_error_late(&error);
    end_call(rc, &error);
}

/* Gives up a message that stops coming. If nothing else is under way the client is broken or
 * hostile, so the connection is closed too. */
static void check_pace(struct rpc *rpc, uint64_t now_ms) {
    const struct weft_config *config = &rpc->conn->server->config;
    if (!rpc->is_partial) return;
    if (!rpc->conn->is_reading) { /* we are the ones not reading */
        weft_api_pace_begin(&rpc->pace, now_ms);
        return;
    }
    if (!weft_api_pace_is_late(&rpc->pace, config->max_body_bytes, config->idle_timeout_ms, now_ms))
        return;
    if (!rpc->is_skipping && !refuse_message_with(rpc, 408, "the message is late")) return;
    if (rpc->n_calls == 0)
        end_connection(rpc, "a message is late");
    else
        take_messages(rpc); /* discards what there is of it */
}

/* True if slow reading can hold the call up: it is done, or a running stream. */
static bool waits_for_reader(const struct rpc_call *rc) {
    enum weft_api_call_state state = weft_api_call_state(rc->call);
    if (state == WEFT_API_CALL_DONE) return true;
    return state == WEFT_API_CALL_RUNNING && weft_api_call_is_stream(rc->call);
}

static void on_tick(struct conn *conn, uint64_t now_ms) {
    struct rpc *rpc = conn->proto;
    uint64_t now_us = weft_now_us();
    conn->held_bytes = rpc->held_by_out;
    for (struct rpc_call *rc = LIST_FIRST(&rpc->calls), *next; rc; rc = next) {
        next = LIST_NEXT(rc, entry);
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
    end_if_replaced(rpc);
}

static void on_give_up(struct conn *conn) {
    struct rpc *rpc = conn->proto;
    struct weft_api_error error = {0};
    weft_api_error_leaving(&error);
    for (struct rpc_call *rc = LIST_FIRST(&rpc->calls), *next; rc; rc = next) {
        next = LIST_NEXT(rc, entry);
        end_call(rc, &error);
    }
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
    static const struct conn_ops ops = {on_bytes,   on_turn, on_eof,   on_tick,
                                        on_give_up, is_busy, on_close, on_free};
    struct rpc *rpc = calloc(1, sizeof *rpc);
    if (!rpc) return false;
    rpc->conn = conn;
    rpc->opened_ms = weft_now_ms();
    weft_buf_init(&rpc->in, conn->server->config.max_body_bytes + 2 * WEFT_READ_BYTES);
    rpc->n_key_changes = conn->server->api.n_key_changes;
    rpc->is_admitted = rpc->is_admin = conn->server->api.keys.n == 0;
    LIST_INIT(&rpc->calls);
    conn->ops = &ops;
    conn->proto = rpc;
    return true;
}
