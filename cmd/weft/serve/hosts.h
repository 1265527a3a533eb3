/* hosts — under which addresses others reach a server that listens on all of them. */
#ifndef WEFT_CMD_HOSTS_H
#define WEFT_CMD_HOSTS_H

#include <arpa/inet.h>
#include <stdint.h>

enum { WEFT_HOSTS_MAX = 4 }; /* a machine of containers has dozens; the first will do */

/* Addresses of this machine, not loopback's or a link's own, if `host` stands for all of them
 * (0.0.0.0, ::); as they stand in a URL. Returns how many. */
uint32_t weft_hosts_of_all(const char *host, char out[WEFT_HOSTS_MAX][INET6_ADDRSTRLEN + 2]);

#endif
