/* activation — the listening sockets that a service manager has opened, as systemd's socket units do
 * (sd_listen_fds(3)): $LISTEN_PID is this process, and $LISTEN_FDS descriptors from 3 on are its.
 *
 * The first is for HTTP, the second for MessagePack-RPC, unless $LISTEN_FDNAMES calls them "http" and
 * "rpc". The supervisor keeps them, so that whoever connects while its router is replaced waits; and
 * the manager does, so that the same holds while the whole server is. */
#ifndef WEFT_SERVE_ACTIVATION_H
#define WEFT_SERVE_ACTIVATION_H

#include "base/err.h"
#include "common/config.h"

#define WEFT_ACTIVATION_FDS_MAX 2

/* Sets http_fd and rpc_fd, -1 where none was given, and forgets the variables: children have no such
 * descriptors. INVAL: more of them than there is use for, or with --replace. */
WEFT_MUST_CHECK weft_err weft_activation_take(struct weft_config *config, struct weft_errmsg *why);

#endif
