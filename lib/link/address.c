#include "address.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/un.h>

/* nng knows more schemes, which are untested here. */
static const struct {
    enum wefti_link_scheme scheme;
    const char *prefix;
} schemes[] = {
    {WEFTI_LINK_ABSTRACT, "abstract://"},
    {WEFTI_LINK_IPC, "ipc://"},
    {WEFTI_LINK_TCP, "tcp://"},
    {WEFTI_LINK_TLS, "tls+tcp://"},
};

#define NAME_BYTES_MAX (sizeof((struct sockaddr_un *)0)->sun_path - 1)

/* A loopback address by number, or "localhost"; what another name means may change. */
static bool is_loopback(const char *host, size_t len) {
    char text[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    if (len == strlen("localhost") && !memcmp(host, "localhost", len)) return true;
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    }
    if (len >= sizeof text) return false;
    memcpy(text, host, len);
    text[len] = '\0';
    if (inet_pton(AF_INET, text, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

weft_err wefti_link_address_parse(const char *url, struct wefti_link_address *address,
                                  struct weft_errmsg *why) {
    const size_t n = sizeof schemes / sizeof schemes[0];
    size_t i = 0;
    while (i < n && strncmp(url, schemes[i].prefix, strlen(schemes[i].prefix)) != 0)
        i++;
    if (i == n)
        return weft_err_set(why, WEFT_E_INVAL,
                            "bad address \"%s\": it is none of abstract://NAME, ipc://PATH, "
                            "tcp://HOST:PORT and tls+tcp://HOST:PORT",
                            url);
    *address = (struct wefti_link_address){.scheme = schemes[i].scheme,
                                           .rest = url + strlen(schemes[i].prefix)};
    size_t len = strlen(address->rest);
    if (address->scheme == WEFTI_LINK_ABSTRACT || address->scheme == WEFTI_LINK_IPC) {
        address->is_this_host = true;
        if (len > 0 && len <= NAME_BYTES_MAX) return WEFT_OK;
        return weft_err_set(why, WEFT_E_INVAL,
                            "bad address \"%s\": its name has %zu bytes, 1 to %zu are possible",
                            url, len, NAME_BYTES_MAX);
    }
    const char *colon = strrchr(address->rest, ':');
    if (!colon || colon == address->rest || !colon[1])
        return weft_err_set(why, WEFT_E_INVAL, "bad address \"%s\": it has no HOST:PORT", url);
    address->is_this_host = is_loopback(address->rest, (size_t)(colon - address->rest));
    return WEFT_OK;
}
