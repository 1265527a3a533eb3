/* http — HTTP/1.1 on one connection: one request at a time, in order. api/http.h knows requests and
 * their answers.
 *
 * Order    While a response is being made the next request's bytes wait, at most 64 KiB of them;
 *          beyond that we stop reading. They also wait after a few requests of the connection in
 *          one turn of the loop, to give others theirs.
 * Gone     A client that closes its sending side is gone: its request is cancelled. Answers already
 *          made still go out.
 */
#ifndef WEFT_ROUTER_HTTP_H
#define WEFT_ROUTER_HTTP_H

#include <stdbool.h>

struct conn;

/* Gives a fresh connection to HTTP. False: out of memory. */
bool wefti_http_open(struct conn *conn);

#endif
