#include "hosts.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Writes the address of an interface; false: nobody elsewhere can use it. */
static bool show(const struct ifaddrs *at, bool with_v6, char out[INET6_ADDRSTRLEN + 2]) {
    char text[INET6_ADDRSTRLEN];
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK)) return false;
    if (at->ifa_addr->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, at->ifa_addr, sizeof v4);
        if (!inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text)) return false;
        (void)snprintf(out, INET6_ADDRSTRLEN + 2, "%s", text);
        return true;
    }
    if (at->ifa_addr->sa_family != AF_INET6 || !with_v6) return false;
    struct sockaddr_in6 v6;
    memcpy(&v6, at->ifa_addr, sizeof v6);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) return false;
    if (!inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text)) return false;
    (void)snprintf(out, INET6_ADDRSTRLEN + 2, "[%s]", text);
    return true;
}

uint32_t weft_hosts_of_all(const char *host, char out[WEFT_HOSTS_MAX][INET6_ADDRSTRLEN + 2]) {
    struct in_addr v4;
    struct in6_addr v6;
    bool is_any_v4 = inet_pton(AF_INET, host, &v4) == 1 && v4.s_addr == INADDR_ANY;
    bool is_any_v6 = inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
    struct ifaddrs *all = NULL;
    uint32_t n = 0;
    if ((!is_any_v4 && !is_any_v6) || getifaddrs(&all) != 0) return 0;
    for (const struct ifaddrs *at = all; at && n < WEFT_HOSTS_MAX; at = at->ifa_next)
        n += show(at, is_any_v6, out[n]);
    freeifaddrs(all);
    return n;
}
