/* user — whose process is at the other end of a stream on this host; private to lib/link. */
#ifndef WEFT_LINK_USER_H
#define WEFT_LINK_USER_H

#include <nng/nng.h>
#include <stdbool.h>
#include <stdint.h>

/* By abstract:// and ipc:// the kernel tells. False: it does not. */
bool wefti_link_user_of_local(nng_stream *stream, uint64_t *uid_out);

/* By tcp:// between loopback addresses: from the kernel's table of sockets. A process of any user
 * may connect to a port, and listen at one that is free, so this is asked of both ends, when a
 * message has come and the other end has a socket for sure. False: it is not found. */
bool wefti_link_user_of_tcp(nng_stream *stream, uint64_t *uid_out);

#endif
