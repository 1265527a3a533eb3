/* weft_api_error — an error in a client's request, in OpenAI's shape:
 * {"error":{"message","type","param","code"}}, with the HTTP status that belongs to it.
 */
#ifndef WEFT_API_ERROR_H
#define WEFT_API_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Where nobody knows better when to try again. */
#define WEFT_API_RETRY_MS 1000

struct weft_api_error {
    int status;              /* HTTP; 0: no error */
    uint32_t retry_after_ms; /* 0: trying again helps nobody */
    const char *code;        /* static text or NULL */
    char param[64];          /* the field; "" for none */
    char message[512];       /* UTF-8, cut to fit */
};

/* Fills in an error unless there is one already: the first error is the one reported. `param` and
 * `code` may be NULL; `code` must be static. */
void weft_api_error_set(struct weft_api_error *error, int status, const char *param,
                        const char *code, const char *fmt, ...) WEFT_PRINTF(5, 6);

/* Writes bytes that somebody sent for a sentence that quotes them: control characters, NUL among
 * them, are escaped, and what has no room is left out, never half a character. Terminated. */
void weft_api_quote(const char *bytes, size_t len, char *out, size_t cap);

/* 503: large requests hold too much. */
void weft_api_error_no_room(struct weft_api_error *error);

/* 503: those of the command line are being loaded. */
void weft_api_error_no_adapters_yet(struct weft_api_error *error);

/* 504: it took longer than --request-timeout. */
void weft_api_error_late(struct weft_api_error *error);

/* 503: the server ends. */
void weft_api_error_leaving(struct weft_api_error *error);

/* Why the server has dropped a request that it might have served at another time: the code of a 429
 * or 503. NULL: it has not, or has no word for it. */
const char *weft_api_error_dropped(const struct weft_api_error *error);

/* Whether memory ran out: 500 without a code, which every other one has. Asked again, the same may be answered. */
bool weft_api_error_is_memory(const struct weft_api_error *error);

/* OpenAI's "type" of an HTTP status; the first element of a MessagePack-RPC error. */
const char *weft_api_error_type(int status);

/* Appends the whole JSON object, with "request_id" beside "error" unless it is NULL. */
void weft_api_error_json(const struct weft_api_error *error, const char *request_id,
                         struct weft_buf *out);

/* The same in the shape of the endpoint at `path`, of `len` bytes: below /api/ it is ollama's, {"error":"..."}; at and
 * below /v1/messages Anthropic's, {"type":"error","error":{"type","message","details"}}. */
void weft_api_error_write(const struct weft_api_error *error, const char *request_id,
                          const char *path, size_t len, struct weft_buf *out);

/* Whether a path is one of those. */
bool weft_api_error_is_anthropics(const char *path, size_t len);

#endif
