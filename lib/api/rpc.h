/* rpc — MessagePack-RPC without a socket: which method a message asks for, and how it is answered.
 *
 * A request is [0, msgid, method, [params]], a notification [2, method, [params]], with params one
 * map or none. Only messages that codec/msgpack.h has measured are read here.
 */
#ifndef WEFT_API_RPC_H
#define WEFT_API_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/call.h"
#include "api/error.h"
#include "api/http.h"
#include "base/buf.h"
#include "base/limits.h"

struct weft_writer;

struct weft_api_rpc_request {
    uint32_t msgid;
    bool is_notification;
    const char *name; /* of the method; not terminated */
    size_t name_len;
    const char *params; /* the map, measured; NULL when there is none */
    size_t params_len;
};

/* What a message is, told by its beginning if it is not whole yet. */
enum weft_api_rpc_message {
    WEFT_API_RPC_NONSENSE, /* or too short to tell */
    WEFT_API_RPC_REQUEST,
    WEFT_API_RPC_NOTIFICATION,
};
enum weft_api_rpc_message weft_api_rpc_peek(const char *bytes, size_t len, uint32_t *msgid_out);

/* A whole message; `out` borrows from it. NONSENSE: neither request nor notification.
 * error_out->status != 0: refuse it. */
enum weft_api_rpc_message weft_api_rpc_parse(const char *bytes, size_t len,
                                             struct weft_api_rpc_request *out,
                                             struct weft_api_error *error_out);

struct weft_api_rpc_method {
    const char *name;
    bool is_guarded;           /* by the API key, */
    bool is_admins;            /* and that of an admin */
    const weft_api_kind *kind; /* of the call that answers */
    void (*answer)(const struct weft_api_state *api, const struct weft_api_moment *moment,
                   struct weft_writer *w);                                 /* without a call */
    void (*act)(struct weft_api_state *api, struct weft_api_error *error); /* the result is {} */
    bool is_cancel; /* answered by the connection */
};

/* False: no such method. */
bool weft_api_rpc_find(const struct weft_api_rpc_request *request,
                       struct weft_api_rpc_method *method_out);

/* True if the API key in the params is right, *key_out, or none is needed, NULL. */
bool weft_api_rpc_has_key(const struct weft_api_state *api,
                          const struct weft_api_rpc_request *request,
                          const struct weft_api_key **key_out);

/* The request_id in the params. Absent: "". False: neither text of a fair length nor an integer. */
bool weft_api_rpc_request_id(const struct weft_api_rpc_request *request,
                             char id_out[WEFT_REQUEST_ID_BYTES_MAX + 1]);

/* Append a response, whole; of an act that fails, nothing. */
void weft_api_rpc_answer(const struct weft_api_state *api, const struct weft_api_rpc_method *method,
                         uint32_t msgid, const struct weft_api_moment *moment,
                         struct weft_buf *out);
void weft_api_rpc_act(struct weft_api_state *api, const struct weft_api_rpc_method *method,
                      uint32_t msgid, struct weft_api_error *error_out, struct weft_buf *out);
void weft_api_rpc_cancelled(uint32_t msgid, bool was_found, struct weft_buf *out);
void weft_api_rpc_error(uint32_t msgid, const char *type, const char *message,
                        struct weft_buf *out);
void weft_api_rpc_refuse(uint32_t msgid, const struct weft_api_error *error, struct weft_buf *out);

/* Appends the beginning of a response; the result follows. */
void weft_api_rpc_begin_result(uint32_t msgid, struct weft_buf *out);

#endif
