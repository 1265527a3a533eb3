#include "user.h"

#include <inttypes.h>
#include <nng/transport/ipc/ipc.h>
#include <stdio.h>
#include <string.h>

bool wefti_link_user_of_local(nng_stream *stream, uint64_t *uid_out) {
    return nng_stream_get_uint64(stream, NNG_OPT_IPC_PEER_UID, uid_out) == 0;
}

#define END_BYTES 48

/* Prints one end as /proc/net/tcp and tcp6 do: the address in words of the machine's byte order, a
 * colon, the port. "": no such address. */
static void print_end(const nng_sockaddr *at, char out[END_BYTES]) {
    uint32_t words[4] = {0};
    uint32_t n_words = at->s_family == NNG_AF_INET6 ? 4 : 1;
    uint16_t port = 0;
    out[0] = '\0';
    if (at->s_family == NNG_AF_INET) {
        memcpy(words, &at->s_in.sa_addr, 4);
        memcpy(&port, &at->s_in.sa_port, 2);
    } else if (at->s_family == NNG_AF_INET6) {
        memcpy(words, at->s_in6.sa_addr, 16);
        memcpy(&port, &at->s_in6.sa_port, 2);
    } else {
        return;
    }
    int len = 0;
    for (uint32_t i = 0; i < n_words; i++)
        len += snprintf(out + len, END_BYTES - (size_t)len, "%08" PRIX32, words[i]);
    const unsigned char *bytes = (const unsigned char *)&port; /* big-endian in memory */
    (void)snprintf(out + len, END_BYTES - (size_t)len, ":%02X%02X", bytes[0], bytes[1]);
}

#define ESTABLISHED 1 /* TCP_ESTABLISHED of netinet/tcp.h, which the table prints in hex */

/* "  sl  local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid ...". A socket
 * that its process has closed is root's in this table, whoever's it was, so it has no user here. */
static bool find_user(const char *table, const char *local, const char *remote, uint64_t *uid_out) {
    char line[512], line_local[END_BYTES], line_remote[END_BYTES];
    FILE *file = fopen(table, "re");
    unsigned state;
    bool found = false;
    if (!file) return false;
    while (!found && fgets(line, sizeof line, file))
        found = sscanf(line, " %*[0-9]: %47s %47s %x %*x:%*x %*x:%*x %*x %" SCNu64, line_local,
                       line_remote, &state, uid_out) == 4 &&
                state == ESTABLISHED && !strcmp(line_local, local) && !strcmp(line_remote, remote);
    (void)fclose(file);
    return found;
}

bool wefti_link_user_of_tcp(nng_stream *stream, uint64_t *uid_out) {
    nng_sockaddr ours, theirs;
    char our_end[END_BYTES], their_end[END_BYTES];
    if (nng_stream_get_addr(stream, NNG_OPT_LOCADDR, &ours) != 0 ||
        nng_stream_get_addr(stream, NNG_OPT_REMADDR, &theirs) != 0)
        return false;
    print_end(&ours, our_end);
    print_end(&theirs, their_end);
    if (!our_end[0] || !their_end[0]) return false;
    const char *table = theirs.s_family == NNG_AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6";
    return find_user(table, their_end, our_end, uid_out); /* the line of their socket */
}
