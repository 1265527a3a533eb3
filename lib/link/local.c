#include "local.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128

static const char abstract_prefix[] = "abstract://", ipc_prefix[] = "ipc://";

static const char *behind(const char *url, const char *prefix) {
    size_t len = strlen(prefix);
    return strncmp(url, prefix, len) == 0 ? url + len : NULL;
}

bool wefti_link_local_is(const char *url) {
    return behind(url, abstract_prefix) || behind(url, ipc_prefix);
}

struct address {
    struct sockaddr_un un;
    socklen_t len;
};

static weft_err make_address(const char *url, struct address *at, struct weft_errmsg *why) {
    const char *name = behind(url, abstract_prefix);
    size_t first = name ? 1 : 0; /* abstract names begin with a zero, paths end with one */
    if (!name) name = behind(url, ipc_prefix);
    size_t len = name ? strlen(name) : 0;
    *at = (struct address){.un = {.sun_family = AF_UNIX}};
    if (len == 0 || len > sizeof at->un.sun_path - 1)
        return weft_err_set(why, WEFT_E_INVAL,
                            "bad address \"%s\": its name has %zu bytes, 1 to "
                            "%zu are possible",
                            url, len, sizeof at->un.sun_path - 1);
    memcpy(at->un.sun_path + first, name, len);
    at->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
    return WEFT_OK;
}

static int new_socket(void) {
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* The socket of a predecessor that was killed: nobody listens there any more. A file of another
 * kind refuses connections, too, but is not ours to remove. */
static bool is_left_over(const struct address *at) {
    struct stat st;
    if (at->un.sun_path[0] == '\0') return false;
    if (lstat(at->un.sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) return false;
    int fd = new_socket();
    bool is_dead = fd >= 0 && connect(fd, (const struct sockaddr *)&at->un, at->len) != 0 &&
                   errno == ECONNREFUSED;
    if (fd >= 0) (void)close(fd);
    return is_dead;
}

weft_err wefti_link_local_listen(const char *url, int *fd_out, struct weft_errmsg *why) {
    struct address at;
    *fd_out = -1;
    weft_err err = make_address(url, &at, why);
    if (err) return err;
    int fd = new_socket();
    if (fd < 0) return weft_err_errno(why, errno, "cannot make a socket");
    int rv = bind(fd, (const struct sockaddr *)&at.un, at.len);
    if (rv != 0 && errno == EADDRINUSE && is_left_over(&at)) {
        (void)unlink(at.un.sun_path);
        rv = bind(fd, (const struct sockaddr *)&at.un, at.len);
    }
    if (rv == 0) rv = listen(fd, BACKLOG);
    if (rv != 0) {
        int code = errno;
        (void)close(fd);
        err = weft_err_errno(why, code, "cannot listen at %s", url);
        return code == EADDRINUSE ? WEFT_E_EXISTS : err;
    }
    *fd_out = fd;
    return WEFT_OK;
}

void wefti_link_local_unlisten(const char *url, int fd) {
    if (fd < 0) return;
    const char *path = behind(url, ipc_prefix);
    if (path) (void)unlink(path);
    (void)close(fd);
}

weft_err wefti_link_local_connect(const char *url, int *fd_out, struct weft_errmsg *why) {
    struct address at;
    *fd_out = -1;
    weft_err err = make_address(url, &at, why);
    if (err) return err;
    int fd = new_socket();
    if (fd < 0) return weft_err_set(why, WEFT_E_CLOSED, "cannot make a socket");
    /* It never takes time: it succeeds, or there is no listener or no room in its backlog. */
    if (connect(fd, (const struct sockaddr *)&at.un, at.len) != 0) {
        (void)close(fd);
        return weft_err_set(why, WEFT_E_CLOSED, "nobody listens at %s", url);
    }
    *fd_out = fd;
    return WEFT_OK;
}

int wefti_link_local_accept(int fd) {
    return accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

bool wefti_link_local_peer_uid(int fd, uint32_t *uid_out) {
    struct ucred peer;
    socklen_t len = sizeof peer;
    *uid_out = UINT32_MAX;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || len != sizeof peer)
        return false;
    *uid_out = peer.uid;
    return true;
}
