/* http — HTTP/1.1 on one connection: one request at a time, in order. What a request says, and how
 * it is answered, is api/http.h's to know.
 *
 * Order    While a response is under way the next request's bytes wait, at most 64 KiB of them;
 *          beyond that we stop reading. They also wait when a turn of the loop has seen a few
 *          requests of the connection: others have theirs first.
 * Gone     A client that closes its sending side is gone: its request is cancelled. What was
 *          already answered still goes out.
 */
#ifndef WEFT_ROUTER_HTTP_H
#define WEFT_ROUTER_HTTP_H

#include <stdbool.h>

struct conn;

/* Gives a fresh connection to HTTP. False: out of memory. */
bool wefti_http_open(struct conn *conn);

#endif
