/* local — the sockets of links on one host; private to lib/link.
 *
 * Between processes of one host a link speaks over plain Unix sockets, which the owner of the link
 * reads and writes itself: a message then costs one system call on each side and wakes one thread.
 * nng's streams, which links over tcp use, pass each message through two threads of its own on
 * either side. On two cores those four wake-ups per message were the half of what the serving path
 * cost.
 *
 * All functions here return at once, and their sockets never block.
 */
#ifndef WEFT_LINK_LOCAL_H
#define WEFT_LINK_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* True for abstract://NAME and ipc://PATH. */
bool wefti_link_local_is(const char *url);

/* A listening socket. EXISTS: the address is in use; INVAL: no such address can be; IO. */
WEFT_MUST_CHECK weft_err wefti_link_local_listen(const char *url, int *fd_out,
                                                 struct weft_errmsg *why);
/* Closes it, and removes the file of an ipc address. */
void wefti_link_local_unlisten(const char *url, int fd);

/* A connected socket. INVAL: no such address can be; CLOSED: nobody listens there now. */
WEFT_MUST_CHECK weft_err wefti_link_local_connect(const char *url, int *fd_out,
                                                  struct weft_errmsg *why);

/* The next one that was accepted; -1: none, or no descriptors (`errno` says). */
int wefti_link_local_accept(int fd);

/* The user at the other end. False: the kernel does not say. */
bool wefti_link_local_peer_uid(int fd, uint32_t *uid_out);

#endif
