#include "addresses.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rand.h"

enum { CERT_ROUTER, CERT_SCHEDULER, CERT_WORKER, CERTS };

static char *address(struct weft_addresses *a, uint32_t idx) {
    return idx == 0 ? a->scheduler : a->workers[idx - 1];
}

/* "s" and "w3" name it in messages and lists of processes. */
static void short_name(uint32_t idx, char out[12]) {
    if (idx == 0)
        (void)snprintf(out, 12, "s");
    else
        (void)snprintf(out, 12, "w%u", idx - 1);
}

static weft_err make_abstract(struct weft_addresses *a) {
    uint64_t tag = weft_rand_seed(); /* so that nobody can sit on the address before we do */
    for (uint32_t i = 0; i < a->n; i++) {
        char name[12];
        short_name(i, name);
        (void)snprintf(address(a, i), WEFT_ADDRESS_BYTES, "abstract://weft-%016" PRIx64 "-%s", tag,
                       name);
    }
    return WEFT_OK;
}

static weft_err make_ipc(struct weft_addresses *a, struct weft_errmsg *why) {
    const char *tmp = getenv("TMPDIR");
    if (!tmp || tmp[0] != '/' || strlen(tmp) > sizeof a->dir - 16) tmp = "/tmp";
    (void)snprintf(a->dir, sizeof a->dir, "%s/weft-XXXXXX", tmp);
    if (!mkdtemp(a->dir)) {
        weft_err err = weft_err_errno(why, errno, "cannot make a folder in %s", tmp);
        a->dir[0] = '\0';
        return err;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        char name[12];
        short_name(i, name);
        (void)snprintf(address(a, i), WEFT_ADDRESS_BYTES, "ipc://%s/%s", a->dir, name);
    }
    return WEFT_OK;
}

/* The socket stays, and does not listen. Like the later listeners it asks to share the address,
 * which the kernel grants as long as only one listens. */
static weft_err keep_port(int *fd_out, uint32_t *port_out, struct weft_errmsg *why) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int on = 1;
    *fd_out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd_out < 0 || setsockopt(*fd_out, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(*fd_out, (const struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(*fd_out, (struct sockaddr *)&at, &len) != 0)
        return weft_err_errno(why, errno, "cannot get a port of 127.0.0.1");
    *port_out = ntohs(at.sin_port);
    return WEFT_OK;
}

static weft_err make_ports(struct weft_addresses *a, struct weft_errmsg *why) {
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t port = 0;
        weft_err err = keep_port(&a->port_fds[i], &port, why);
        if (err) return err;
        (void)snprintf(address(a, i), WEFT_ADDRESS_BYTES, "%s://127.0.0.1:%u",
                       a->is_tls ? "tls+tcp" : "tcp", port);
    }
    return WEFT_OK;
}

static void name_fd(char out[32], int fd) {
    (void)snprintf(out, 32, "/proc/self/fd/%d", fd);
}

static weft_err make_certs(struct weft_addresses *a, struct weft_errmsg *why) {
    static const char *const names[CERTS] = {"weft-router", "weft-scheduler", "weft-worker"};
    weft_err err = weft_link_certs_make(CERTS, names, &a->ca_fd, a->certs, why);
    if (err) return err;
    name_fd(a->ca_path, a->ca_fd);
    for (uint32_t i = 0; i < CERTS; i++) {
        name_fd(a->paths[i][0], a->certs[i].cert_fd);
        name_fd(a->paths[i][1], a->certs[i].key_fd);
    }
    return WEFT_OK;
}

weft_err weft_addresses_init(struct weft_addresses *a, const char *kind, uint32_t n_workers,
                             struct weft_errmsg *why) {
    WEFT_ASSERT(n_workers >= 1 && n_workers <= WEFT_WORKERS_MAX);
    *a = (struct weft_addresses){.n = 1 + n_workers, .ca_fd = -1};
    a->is_ipc = !strcmp(kind, "ipc");
    a->is_tls = !strcmp(kind, "tls");
    for (uint32_t i = 0; i < 1 + WEFT_WORKERS_MAX; i++)
        a->port_fds[i] = -1;
    for (uint32_t i = 0; i < CERTS; i++)
        a->certs[i] = (struct weft_link_cert){-1, -1};
    weft_err err;
    if (a->is_ipc)
        err = make_ipc(a, why);
    else if (a->is_tls || !strcmp(kind, "tcp"))
        err = make_ports(a, why);
    else
        err = make_abstract(a);
    if (!err && a->is_tls) err = make_certs(a, why);
    if (err) {
        weft_addresses_fini(a);
        return err;
    }
    for (uint32_t i = 0, len = 0; i < n_workers; i++)
        len += (uint32_t)snprintf(a->all_workers + len, sizeof a->all_workers - len, "%s%s",
                                  i ? "," : "", a->workers[i]);
    return WEFT_OK;
}

static void drop(int *fd) {
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

void weft_addresses_fini(struct weft_addresses *a) {
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->is_ipc && address(a, i)[0]) (void)unlink(address(a, i) + strlen("ipc://"));
        drop(&a->port_fds[i]);
    }
    if (a->dir[0]) (void)rmdir(a->dir);
    if (!a->is_tls) return;
    drop(&a->ca_fd);
    for (uint32_t i = 0; i < CERTS; i++) {
        drop(&a->certs[i].cert_fd);
        drop(&a->certs[i].key_fd);
    }
}

static uint32_t cert_of(enum weft_program program) {
    if (program == WEFT_PROG_ROUTER) return CERT_ROUTER;
    return program == WEFT_PROG_SCHEDULER ? CERT_SCHEDULER : CERT_WORKER;
}

void weft_addresses_tell(const struct weft_addresses *a, enum weft_program program,
                         struct weft_config *config) {
    if (!a->is_tls) return;
    uint32_t cert = cert_of(program);
    config->link_ca = a->ca_path;
    config->link_cert = a->paths[cert][0];
    config->link_key = a->paths[cert][1];
}

bool weft_addresses_keep(const struct weft_addresses *a, enum weft_program program) {
    if (!a->is_tls) return true;
    const struct weft_link_cert *cert = &a->certs[cert_of(program)];
    return fcntl(a->ca_fd, F_SETFD, 0) == 0 && fcntl(cert->cert_fd, F_SETFD, 0) == 0 &&
           fcntl(cert->key_fd, F_SETFD, 0) == 0;
}
