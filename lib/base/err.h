/* base/err — the one error type, and the sentence that goes with it.
 *
 * Codes are few: a caller decides by them (retry, refuse, give up). What happened stands in a
 * weft_errmsg, written once where the error is born, with the numbers: wanted, had, limit.
 * errno, uv_* and nng_* codes are translated at the call that returned them.
 */
#ifndef WEFT_BASE_ERR_H
#define WEFT_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

#define WEFT_MUST_CHECK __attribute__((warn_unused_result))
#define WEFT_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))

#define WEFT_ERR_LIST(X)                                                                           \
    X(OK, "no error")                                                                              \
    X(E_INVAL, "invalid argument")                                                                 \
    X(E_NOMEM, "out of memory")                                                                    \
    X(E_FULL, "no room left")                                                                      \
    X(E_NOTFOUND, "not found")                                                                     \
    X(E_EXISTS, "already there")                                                                   \
    X(E_TOOBIG, "over the limit")                                                                  \
    X(E_PROTO, "malformed data")                                                                   \
    X(E_UNSUPPORTED, "not supported")                                                              \
    X(E_IO, "input/output error")                                                                  \
    X(E_AGAIN, "not now")                                                                          \
    X(E_CLOSED, "closed by the other side")                                                        \
    X(E_TIMEOUT, "took too long")                                                                  \
    X(E_STATE, "wrong state")

typedef enum weft_err {
#define WEFT_ERR_ENUM(name, text) WEFT_##name,
    WEFT_ERR_LIST(WEFT_ERR_ENUM)
#undef WEFT_ERR_ENUM
} weft_err;

/* A sentence of detail in storage that the caller owns; truncated to fit, always terminated. */
struct weft_errmsg {
    char text[512];
};

/* The code's text, never NULL, static storage. */
const char *weft_err_text(weft_err err);

/* Writes the detail and returns `err`, so that `return weft_err_set(why, WEFT_E_PROTO, "...")`
 * reads well. `why` may be NULL. Bytes that are not printable ASCII or UTF-8 become '?'. */
weft_err weft_err_set(struct weft_errmsg *why, weft_err err, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/* The same from errno: appends ": " and strerror(errno_value). Code: NOMEM, NOTFOUND or IO. */
weft_err weft_err_errno(struct weft_errmsg *why, int errno_value, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

#endif
