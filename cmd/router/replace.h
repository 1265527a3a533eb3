/* replace — one server takes the place of another (handover.h says how).
 *
 * The new one (--replace) looks at its start whether a server runs at its address, and which. If
 * none does it listens as ever. Else it loads, without listening; when it could serve, and its
 * supervisor says that nothing can fail any more (WEFT_SIGNAL_TAKE), it takes the sockets of that
 * server, accepts, and says "ready". What it cannot have ends it, and the old one stays.
 * The old one then answers on the connections that are open, and ends. */
#ifndef WEFT_ROUTER_REPLACE_H
#define WEFT_ROUTER_REPLACE_H

#include "base/err.h"
#include "server.h"

/* At the start, after wefti_server_init: lets clients in, or finds the server to replace, of which
 * the loop then takes the sockets. A server that is given its sockets accepts there when it
 * serves. The errors name address and port. */
WEFT_MUST_CHECK weft_err wefti_replace_or_listen(struct server *server, struct weft_errmsg *why);

#endif
