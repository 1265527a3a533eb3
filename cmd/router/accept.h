/* accept — who gets in: the listeners, the places for connections, and what becomes of one that comes.
 * How many places there are, and for whom: server.h, under Bounds. */
#ifndef WEFT_ROUTER_ACCEPT_H
#define WEFT_ROUTER_ACCEPT_H

#include "base/err.h"
#include "server.h"

/* Binds and listens, and counts the places that the system leaves. The errors name address and port. */
WEFT_MUST_CHECK weft_err wefti_accept_listen(struct server *server, struct weft_errmsg *why);

#endif
