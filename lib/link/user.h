/* user — whose process is at the other end of a stream on this host; private to lib/link. */
#ifndef WEFT_LINK_USER_H
#define WEFT_LINK_USER_H

#include <nng/nng.h>
#include <stdbool.h>
#include <stdint.h>

/* For abstract:// and ipc://, as the kernel tells. False: unknown. */
bool wefti_link_user_of_local(nng_stream *stream, uint64_t *uid_out);

/* For tcp:// between loopback addresses, from the kernel's table of sockets. Any user's process may
 * connect to a port, or listen at a free one, so both ends check, once a message has come and the
 * other end surely has a socket. False: not found, or closed by now. */
bool wefti_link_user_of_tcp(nng_stream *stream, uint64_t *uid_out);

#endif
