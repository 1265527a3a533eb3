/* target — the server that a URL names, and who of its addresses answers. */
#ifndef WEFT_CMD_WEFT_TARGET_H
#define WEFT_CMD_WEFT_TARGET_H

#include <sys/socket.h>
#include <uv.h>

#include "base/err.h"

#define WEFT_TARGET_HOST_BYTES_MAX 256

struct weft_target {
    struct sockaddr_storage address;
    char host[WEFT_TARGET_HOST_BYTES_MAX + 8]; /* with the port, as the Host header has it */
    const char *path; /* of the url, "" or "/..." without /v1; not terminated */
    int path_len;
};

/* http://HOST[:PORT], with or without a path to put before /v1; `url` is borrowed for as long as the
 * target is used. INVAL (it is none), IO (its name is unknown). */
WEFT_MUST_CHECK weft_err weft_target_find(uv_loop_t *loop, const char *url, struct weft_target *out,
                                          struct weft_errmsg *why);

#endif
