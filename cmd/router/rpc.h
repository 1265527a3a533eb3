/* rpc — the MessagePack-RPC specification on one connection.
 *
 * Calls    Any number of requests may be under way, up to WEFT_RPC_CALLS_MAX; responses come as
 *          they are ready. One more is refused, so that "cancel" and "health" never wait for it.
 *          While the client takes no output we stop reading.
 * Refused  A message that is too long or too slow, or for which there is no room, is answered and
 *          its bytes discarded as they come; other requests go on.
 * Results  are the objects of the HTTP API: the renderer's JSON, packed. A stream's "token"
 *          notifications go out while the socket has room.
 */
#ifndef WEFT_ROUTER_RPC_H
#define WEFT_ROUTER_RPC_H

#include <stdbool.h>

struct conn;

#define WEFT_RPC_CALLS_MAX 256
/* Bound of all small requests (WEFT_API_SMALL_BYTES) under way on one connection: 256 of 1 KiB, or
 * four of the largest. They cost no shared budget, so they need a bound of their own; the same
 * bounds their free output. */
#define WEFT_RPC_SMALL_BYTES_MAX (256u << 10)

/* Gives a fresh connection to MessagePack-RPC. False: out of memory. */
bool wefti_rpc_open(struct conn *conn);

#endif
