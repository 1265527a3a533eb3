/* accept — who gets in: the listeners, the places for connections, and what becomes of one that comes.
 * How many places there are, and for whom: server.h, under Bounds. */
#ifndef WEFT_ROUTER_ACCEPT_H
#define WEFT_ROUTER_ACCEPT_H

#include "base/err.h"
#include "server.h"

/* Resolves --host, and counts the places that the system leaves. */
WEFT_MUST_CHECK weft_err wefti_accept_init(struct server *server, struct weft_errmsg *why);

/* Binds and listens. The errors name address and port. */
WEFT_MUST_CHECK weft_err wefti_accept_listen(struct server *server, struct weft_errmsg *why);

/* For those who get their sockets in another way: makes one (WEFT_HANDOVER_HTTP or _RPC) that
 * listens on a port of the address, in any thread; and accepts at one, which is taken in any case. */
WEFT_MUST_CHECK weft_err wefti_accept_make(const struct server *server, uint32_t which,
                                           uint32_t port, int *fd_out, struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err wefti_accept_use(struct server *server, uint32_t which, int fd,
                                          struct weft_errmsg *why);

#endif
