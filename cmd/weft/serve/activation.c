#include "activation.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"

#define FIRST_FD 3

/* 0 without such a variable; INVAL: it is no number. */
static weft_err number_of(const char *name, uint64_t *out) {
    const char *text = getenv(name);
    *out = 0;
    return text ? weft_parse_u64(text, INT32_MAX, out) : WEFT_OK;
}

/* Sockets for this process, and not for the one that it was forked from. */
static weft_err count_sockets(uint64_t *n_out, struct weft_errmsg *why) {
    uint64_t pid = 0;
    *n_out = 0;
    if (number_of("LISTEN_PID", &pid) || pid != (uint64_t)getpid()) return WEFT_OK;
    if (number_of("LISTEN_FDS", n_out))
        return weft_err_set(why, WEFT_E_INVAL,
                            "the service manager's $LISTEN_FDS is no number: \"%.32s\"",
                            getenv("LISTEN_FDS"));
    if (*n_out > WEFT_ACTIVATION_FDS_MAX)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the service manager gives %u sockets; there is use for two, HTTP and "
                            "MessagePack-RPC",
                            (unsigned)*n_out);
    return WEFT_OK;
}

/* The name of descriptor `idx` among those of a list with colons. */
static bool is_called(const char *names, uint32_t idx, const char *name) {
    for (; names && idx > 0; idx--) {
        names = strchr(names, ':');
        if (names) names++;
    }
    size_t len = strlen(name);
    return names && strncmp(names, name, len) == 0 && (names[len] == ':' || names[len] == '\0');
}

static weft_err take(struct weft_config *config, uint32_t idx, const char *names,
                     struct weft_errmsg *why) {
    int fd = FIRST_FD + (int)idx;
    bool is_rpc = is_called(names, idx, "rpc") || (idx > 0 && !is_called(names, idx, "http"));
    int *place = is_rpc ? &config->rpc_fd : &config->http_fd;
    const char *name = is_rpc ? "MessagePack-RPC" : "HTTP";
    if (*place >= 0)
        return weft_err_set(why, WEFT_E_INVAL, "the service manager gives two sockets for %s",
                            name);
    if (is_rpc && config->no_rpc)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the service manager gives a socket for %s, which --no-rpc leaves out",
                            name);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    *place = fd;
    return WEFT_OK;
}

weft_err weft_activation_take(struct weft_config *config, struct weft_errmsg *why) {
    config->http_fd = config->rpc_fd = -1;
    uint64_t n;
    weft_err err = count_sockets(&n, why);
    if (err) return err;
    if (n > 0 && config->replace)
        return weft_err_set(
            why, WEFT_E_INVAL,
            "--replace takes the sockets of another server, and the service manager "
            "gives this one its own");
    for (uint32_t i = 0; i < n && !err; i++)
        err = take(config, i, getenv("LISTEN_FDNAMES"), why);
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    return err;
}
