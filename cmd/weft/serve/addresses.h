/* addresses — where the children of `weft serve` meet, and how they know each other.
 *
 *   abstract  names with a random part, which the kernel forgets with their holders
 *   ipc       sockets in a folder that only this user may enter. It goes with the supervisor; one
 *             that was killed leaves it, which harms nobody
 *   tcp       ports of 127.0.0.1, each kept by a socket that does not listen: the kernel gives them
 *             to nobody else by chance. The actors check each other's user (lib/link)
 *   tls       the same ports, and an authority of this run, which signs for the
 *             children and is gone
 */
#ifndef WEFT_CMD_ADDRESSES_H
#define WEFT_CMD_ADDRESSES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "common/config.h"
#include "link/make_certs.h"

#define WEFT_ADDRESS_BYTES 108

struct weft_addresses {
    char scheduler[WEFT_ADDRESS_BYTES]; /* of the hub of routers */
    char workers[WEFT_WORKERS_MAX][WEFT_ADDRESS_BYTES];
    char all_workers[WEFT_ADDRESS_BYTES * WEFT_WORKERS_MAX]; /* comma-separated */

    uint32_t n; /* addresses: the hub's, then the workers' */
    bool is_ipc, is_tls;
    char dir[64];                       /* of ipc; "": none */
    int port_fds[1 + WEFT_WORKERS_MAX]; /* -1: none */
    int ca_fd;
    struct weft_link_cert certs[3];    /* of router, scheduler, workers */
    char ca_path[32], paths[3][2][32]; /* of those: certificate, key */
};

/* Addresses for `n_workers`, of the kind that --link names. */
WEFT_MUST_CHECK weft_err weft_addresses_init(struct weft_addresses *addresses, const char *kind,
                                             uint32_t n_workers, struct weft_errmsg *why);
void weft_addresses_fini(struct weft_addresses *addresses);

/* The settings of links for this kind of child, beside addresses. */
void weft_addresses_tell(const struct weft_addresses *addresses, enum weft_program program,
                         struct weft_config *config);
/* In the child, before exec: keeps the descriptors that its settings name. False: it cannot. */
bool weft_addresses_keep(const struct weft_addresses *addresses, enum weft_program program);

#endif
