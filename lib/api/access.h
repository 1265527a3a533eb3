/* access — the access log: one line for each request that has ended.
 *
 * Text     TIME INFO  router: access: name=value ..., where a value with a space, a quote or an equals sign is a
 *          JSON string, and - stands for what there is not.
 * JSON     One object; null stands for what there is not.
 * Fields   id, method, path, model, status, finish, tokens_in, tokens_cached, tokens_out, queue_ms,
 *          first_token_ms, total_ms, client, key. Neither the query of a URL nor a key's text, which
 *          may be secrets.
 * Checked in tests/unit/test_api_access.c.
 */
#ifndef WEFT_API_ACCESS_H
#define WEFT_API_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/call.h"
#include "base/buf.h"

enum weft_api_access_format {
    WEFT_API_ACCESS_OFF,
    WEFT_API_ACCESS_TEXT,
    WEFT_API_ACCESS_JSON,
};

#define WEFT_API_ACCESS_LINE_BYTES_MAX 4096 /* what a pipe takes whole */

struct weft_api_access {
    const char *id;
    const char *method; /* "RPC" for MessagePack-RPC */
    const char *path;   /* or the name of the RPC's method; shown in part if it is long */
    size_t path_len;
    int status;         /* 499: the client left, or cancelled */
    uint64_t total_us;  /* from the request's first byte to the end of its answer */
    const char *client; /* address and port */
    const char *key;    /* the name of its key; "": none */

    /* Of requests that became calls: */
    const char *model;                  /* NULL: none */
    struct weft_api_call_progress call; /* zero: nothing was generated */
};

/* Appends a line, its end included, of at most WEFT_API_ACCESS_LINE_BYTES_MAX bytes. `now_ms`: wall
 * clock. The format is not OFF. */
void weft_api_access_line(const struct weft_api_access *access, enum weft_api_access_format format,
                          uint64_t now_ms, struct weft_buf *out);

#endif
