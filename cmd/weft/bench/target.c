#include "target.h"

#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

#define SCHEME "http://"
#define PORT_BYTES_MAX 8

static weft_err bad_url(const char *url, struct weft_errmsg *why) {
    return weft_err_set(why, WEFT_E_INVAL, "\"%s\" is not http://HOST[:PORT], with or without /v1",
                        url);
}

static void take_path(const char *path, struct weft_target *out) {
    out->path = path;
    out->path_len = (int)strlen(path);
    while (out->path_len && path[out->path_len - 1] == '/')
        out->path_len--;
    if (out->path_len >= 3 && !memcmp(path + out->path_len - 3, "/v1", 3))
        out->path_len -= 3; /* what clients of the API call its base */
}

/* Parts "[::1]:80" in place. False: the port is none. */
static bool split_port(char *host, char **name_out, char port_out[PORT_BYTES_MAX]) {
    char *colon = strrchr(host, ':'), *bracket = strchr(host, ']');
    *name_out = host;
    (void)snprintf(port_out, PORT_BYTES_MAX, "80");
    if (colon && (!bracket || colon > bracket)) {
        if (!colon[1] || strlen(colon + 1) >= PORT_BYTES_MAX) return false;
        (void)snprintf(port_out, PORT_BYTES_MAX, "%s", colon + 1);
        *colon = '\0';
    }
    if (host[0] == '[' && bracket) { /* an IPv6 address */
        *bracket = '\0';
        *name_out = host + 1;
    }
    return true;
}

/* Whether somebody listens there: a name like localhost may have an address that nobody serves. */
static bool answers(const struct addrinfo *at) {
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    bool connected = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0;
    if (fd >= 0) (void)close(fd);
    return connected;
}

weft_err weft_target_find(uv_loop_t *loop, const char *url, struct weft_target *out,
                          struct weft_errmsg *why) {
    char host[WEFT_TARGET_HOST_BYTES_MAX], port[PORT_BYTES_MAX], *name;
    if (strncmp(url, SCHEME, strlen(SCHEME)) != 0) return bad_url(url, why);
    const char *at = url + strlen(SCHEME);
    size_t n = strcspn(at, "/");
    if (n == 0 || n >= sizeof host) return bad_url(url, why);
    memcpy(host, at, n);
    host[n] = '\0';
    (void)snprintf(out->host, sizeof out->host, "%s", host);
    take_path(at + n, out);
    if (!split_port(host, &name, port)) return bad_url(url, why);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    uv_getaddrinfo_t found;
    int status = uv_getaddrinfo(loop, &found, NULL, name, port, &hints);
    if (status < 0)
        return weft_err_set(why, WEFT_E_IO, "no address of %s, port %s: %s", name, port,
                            uv_strerror(status));
    const struct addrinfo *first = found.addrinfo, *choice = first;
    WEFT_ASSERT(first != NULL);
    for (const struct addrinfo *one = first; one && first->ai_next; one = one->ai_next) {
        if (!answers(one)) continue;
        choice = one;
        break;
    }
    memcpy(&out->address, choice->ai_addr, choice->ai_addrlen);
    uv_freeaddrinfo(found.addrinfo);
    return WEFT_OK;
}
