#include "api/rpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "answers/answers.h"
#include "api/api.h"
#include "base/check.h"
#include "base/utf8.h"
#include "codec/msgpack.h"
#include "kinds/kind.h"

#define FIELDS_MAX 1024 /* in one request; the API has some sixty */

/* --------------------------------------------------------------------------------- messages --- */

enum { REQUEST_TYPE = 0, RESPONSE_TYPE = 1, NOTIFICATION_TYPE = 2 };

/* Reads the beginning of a message; *at moves to the method's name. */
static enum weft_api_rpc_message read_head(const char *bytes, size_t len, size_t *at,
                                           uint32_t *msgid_out) {
    struct weft_mp_item head, type, msgid;
    *msgid_out = 0;
    bool is_typed =
        weft_msgpack_item(bytes, len, at, &head) == WEFT_MP_OK && head.type == WEFT_MP_ARRAY &&
        weft_msgpack_item(bytes, len, at, &type) == WEFT_MP_OK && type.type == WEFT_MP_INT;
    if (!is_typed) return WEFT_API_RPC_NONSENSE;
    if (type.i == NOTIFICATION_TYPE && head.len == 3) return WEFT_API_RPC_NOTIFICATION;
    bool is_request = type.i == REQUEST_TYPE && head.len == 4 &&
                      weft_msgpack_item(bytes, len, at, &msgid) == WEFT_MP_OK &&
                      msgid.type == WEFT_MP_INT && msgid.i >= 0 && msgid.i <= UINT32_MAX;
    if (!is_request) return WEFT_API_RPC_NONSENSE;
    *msgid_out = (uint32_t)msgid.i;
    return WEFT_API_RPC_REQUEST;
}

enum weft_api_rpc_message weft_api_rpc_peek(const char *bytes, size_t len, uint32_t *msgid_out) {
    size_t at = 0;
    return read_head(bytes, len, &at, msgid_out);
}

enum weft_api_rpc_message weft_api_rpc_parse(const char *bytes, size_t len,
                                             struct weft_api_rpc_request *out,
                                             struct weft_api_error *error_out) {
    size_t at = 0;
    struct weft_mp_item name, params, map = {0};
    memset(out, 0, sizeof *out);
    memset(error_out, 0, sizeof *error_out);
    enum weft_api_rpc_message message = read_head(bytes, len, &at, &out->msgid);
    out->is_notification = message == WEFT_API_RPC_NOTIFICATION;
    if (message == WEFT_API_RPC_NONSENSE ||
        weft_msgpack_item(bytes, len, &at, &name) != WEFT_MP_OK || name.type != WEFT_MP_TEXT ||
        weft_msgpack_item(bytes, len, &at, &params) != WEFT_MP_OK || params.type != WEFT_MP_ARRAY)
        return WEFT_API_RPC_NONSENSE;
    out->name = name.bytes;
    out->name_len = name.len;
    size_t map_at = at;
    if (params.len == 0) return message;
    if (weft_msgpack_item(bytes, len, &map_at, &map) != WEFT_MP_OK) return WEFT_API_RPC_NONSENSE;
    if (params.len > 1 || map.type != WEFT_MP_MAP) {
        weft_api_error_set(error_out, 400, NULL, NULL, "params must be an array of one map");
    } else if (map.len > FIELDS_MAX) { /* each would be looked at, more than once */
        weft_api_error_set(error_out, 400, NULL, NULL, "a request has no more than %d fields",
                           FIELDS_MAX);
    } else {
        out->params = bytes + at;
        out->params_len = len - at;
    }
    return message;
}

bool weft_api_rpc_has_key(const struct weft_api_state *api,
                          const struct weft_api_rpc_request *request,
                          const struct weft_api_key **key_out) {
    struct weft_mp_item key;
    *key_out = NULL;
    if (api->keys.n == 0) return true;
    return request->params &&
           weft_msgpack_find(request->params, request->params_len, "api_key", &key) &&
           key.type == WEFT_MP_TEXT && weft_api_admits(api, key.bytes, key.len, key_out);
}

bool weft_api_rpc_request_id(const struct weft_api_rpc_request *request,
                             char id_out[WEFT_REQUEST_ID_BYTES_MAX + 1]) {
    struct weft_mp_item item;
    *id_out = '\0';
    if (!request->params ||
        !weft_msgpack_find(request->params, request->params_len, "request_id", &item) ||
        item.type == WEFT_MP_NIL)
        return true;
    if (item.type == WEFT_MP_INT) {
        (void)snprintf(id_out, WEFT_REQUEST_ID_BYTES_MAX + 1, "%" PRId64, item.i);
        return true;
    }
    if (item.type != WEFT_MP_TEXT || item.len == 0 || item.len > WEFT_REQUEST_ID_BYTES_MAX ||
        memchr(item.bytes, 0, item.len) || !weft_utf8_valid(item.bytes, item.len))
        return false;
    memcpy(id_out, item.bytes, item.len);
    id_out[item.len] = '\0';
    return true;
}

/* ---------------------------------------------------------------------------------- methods --- */

/* Methods beside those of calls (kinds/kind.h). */
static const struct weft_api_rpc_method methods[] = {
    {.name = "cancel", .is_guarded = true, .is_cancel = true},
    {.name = "reset_prefix_cache",
     .is_guarded = true,
     .is_admins = true,
     .act = wefti_api_reset_prefix_cache},
    {.name = "models", .is_guarded = true, .answer = wefti_api_write_models},
    {.name = "health", .answer = wefti_api_write_health},
    {.name = "stats", .is_guarded = true, .answer = wefti_api_write_stats},
};

static bool is_named(const struct weft_api_rpc_request *request, const char *name) {
    return name && strlen(name) == request->name_len &&
           memcmp(name, request->name, request->name_len) == 0;
}

bool weft_api_rpc_find(const struct weft_api_rpc_request *request,
                       struct weft_api_rpc_method *method_out) {
    for (size_t i = 0; wefti_api_kinds[i]; i++) {
        const weft_api_kind *kind = wefti_api_kinds[i];
        if (!is_named(request, kind->rpc_method)) continue;
        *method_out = (struct weft_api_rpc_method){
            .name = kind->rpc_method, .is_guarded = true, .kind = kind};
        return true;
    }
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (!is_named(request, methods[i].name)) continue;
        *method_out = methods[i];
        return true;
    }
    return false;
}

/* -------------------------------------------------------------------------------- responses --- */

static void begin_response(uint32_t msgid, struct weft_buf *out) {
    weft_msgpack_add_array(out, 4);
    weft_msgpack_add_uint(out, RESPONSE_TYPE);
    weft_msgpack_add_uint(out, msgid);
}

void weft_api_rpc_begin_result(uint32_t msgid, struct weft_buf *out) {
    begin_response(msgid, out);
    weft_msgpack_add_nil(out);
}

void weft_api_rpc_answer(const struct weft_api_state *api, const struct weft_api_rpc_method *method,
                         uint32_t msgid, const struct weft_api_moment *moment,
                         struct weft_buf *out) {
    struct weft_writer w;
    WEFT_ASSERT(method->answer);
    weft_api_rpc_begin_result(msgid, out);
    weft_writer_init(&w, WEFT_WRITE_MSGPACK, out);
    method->answer(api, moment, &w);
    WEFT_ASSERT(w.depth == 0);
}

void weft_api_rpc_act(struct weft_api_state *api, const struct weft_api_rpc_method *method,
                      uint32_t msgid, struct weft_api_error *error_out, struct weft_buf *out) {
    struct weft_writer w;
    WEFT_ASSERT(method->act);
    memset(error_out, 0, sizeof *error_out);
    method->act(api, error_out);
    if (error_out->status) return;
    weft_api_rpc_begin_result(msgid, out);
    weft_writer_init(&w, WEFT_WRITE_MSGPACK, out);
    weft_write_map(&w);
    weft_write_end(&w);
}

void weft_api_rpc_cancelled(uint32_t msgid, bool was_found, struct weft_buf *out) {
    struct weft_writer w;
    weft_api_rpc_begin_result(msgid, out);
    weft_writer_init(&w, WEFT_WRITE_MSGPACK, out);
    weft_write_map(&w);
    weft_write_key(&w, "cancelled");
    weft_write_bool(&w, was_found);
    weft_write_end(&w);
}

void weft_api_rpc_error(uint32_t msgid, const char *type, const char *message,
                        struct weft_buf *out) {
    struct weft_writer w;
    begin_response(msgid, out);
    weft_writer_init(&w, WEFT_WRITE_MSGPACK, out);
    weft_write_list(&w);
    weft_write_str(&w, type);
    weft_write_str(&w, message); /* it may quote the client, cut inside a character */
    weft_write_end(&w);
    weft_msgpack_add_nil(out);
}

void weft_api_rpc_refuse(uint32_t msgid, const struct weft_api_error *error, struct weft_buf *out) {
    char text[sizeof error->message + 96];
    const char *type = weft_api_error_type(error->status);
    WEFT_ASSERT(error->status != 0);
    if (error->retry_after_ms == 0) {
        weft_api_rpc_error(msgid, type, error->message, out);
        return;
    }
    (void)snprintf(text, sizeof text, "%s (%s%s%sretry_after_ms: %" PRIu32 ")", error->message,
                   error->code ? "reason: " : "", error->code ? error->code : "",
                   error->code ? ", " : "", error->retry_after_ms);
    weft_api_rpc_error(msgid, type, text, out);
}
