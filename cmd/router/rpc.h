/* rpc — the MessagePack-RPC specification on one connection.
 *
 * Calls    Any number of requests may be under way, up to WEFT_RPC_CALLS_MAX; responses come as
 *          they are ready. Over that, or while the client takes no output, we stop reading.
 * Results  are the objects of the HTTP API: the renderer's JSON, packed. A stream's "token"
 *          notifications go out while the socket has room.
 */
#ifndef WEFT_ROUTER_RPC_H
#define WEFT_ROUTER_RPC_H

#include <stdbool.h>

struct conn;

#define WEFT_RPC_CALLS_MAX 256

/* Gives a fresh connection to MessagePack-RPC. False: out of memory. */
bool wefti_rpc_open(struct conn *conn);

#endif
