#include "accept.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "http.h"
#include "rpc.h"

#define BACKLOG 1024
#define SPARE_MAX 64
/* A connection in a spare place that has not asked for so long makes room for another. */
#define SPARE_SILENT_MS 100
/* Descriptors that are open for a moment only: a connection that is refused, a new link, a file
 * that is read again. */
#define PASSING_FILES 16
#define FILES_UNKNOWN 64 /* open ones, where /proc is not there to tell */

/* ----------------------------------------------------------------------------------- places --- */

static bool is_silent(const struct conn *conn, uint64_t now_ms) {
    return !conn->is_writing && conn->out.len == 0 && now_ms - conn->opened_ms >= SPARE_SILENT_MS;
}

/* Ends a connection in a spare place that has its answer, or else one that has been silent. */
static void make_spare_room(struct server *server, uint64_t now_ms) {
    struct conn *conn, *silent = NULL;
    TAILQ_FOREACH(conn, &server->spare, spare_entry) {
        if (conn->linger_until_ms) break;
        if (!silent && is_silent(conn, now_ms)) silent = conn;
    }
    if (!conn) conn = silent;
    if (conn) wefti_conn_close(conn);
}

static enum conn_place place_for(struct server *server, bool is_http, uint64_t now_ms) {
    if (server->n_conns < server->max_conns &&
        (is_http || server->n_rpc_conns < (server->max_conns + 1) / 2))
        return CONN_PLACE;
    if (!is_http) return CONN_NO_PLACE;
    if (server->n_spare >= server->max_spare) make_spare_room(server, now_ms);
    return server->n_spare < server->max_spare ? CONN_SPARE_PLACE : CONN_NO_PLACE;
}

/* Each connection is a descriptor, so the soft limit is raised towards the hard one, and places are
 * what is left of it beside the files that are open already and the listening sockets to come. */
static weft_err set_places(struct server *server, struct weft_errmsg *why) {
    struct rlimit limit;
    uint32_t wanted = server->config.max_connections;
    server->max_conns = wanted;
    server->max_spare = SPARE_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return WEFT_OK;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return WEFT_OK;
    uint64_t open = weft_process_open_files();
    uint64_t taken = (open ? open : FILES_UNKNOWN) + WEFT_HANDOVER_SOCKETS + PASSING_FILES;
    uint64_t left = limit.rlim_cur > taken ? limit.rlim_cur - taken : 0;
    if (left < 2)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the system allows %u open files (ulimit -n), and the router alone "
                            "needs %u",
                            (unsigned)limit.rlim_cur, (unsigned)taken + 2);
    if (left / 4 < SPARE_MAX) server->max_spare = (uint32_t)((left + 3) / 4);
    left -= server->max_spare;
    if (wanted <= left) return WEFT_OK;
    server->max_conns = (uint32_t)left;
    weft_warn("--max-connections %u lowered to %u: the system allows %u open files (ulimit -n)",
              wanted, server->max_conns, (unsigned)limit.rlim_cur);
    return WEFT_OK;
}

/* -------------------------------------------------------------------------------- accepting --- */

static void note_client(struct conn *conn) {
    struct sockaddr_storage at;
    char ip[48];
    int len = sizeof at;
    if (uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&at, &len) != 0 ||
        uv_ip_name((struct sockaddr *)&at, ip, sizeof ip) != 0)
        return;
    bool is_v6 = at.ss_family == AF_INET6;
    uint16_t port =
        is_v6 ? ((struct sockaddr_in6 *)&at)->sin6_port : ((struct sockaddr_in *)&at)->sin_port;
    (void)snprintf(conn->client, sizeof conn->client, is_v6 ? "[%s]:%u" : "%s:%u", ip, ntohs(port));
}

static void on_unopened(uv_handle_t *handle) {
    free(handle);
}

static void refused_bytes(struct conn *conn, const char *bytes, size_t n) {
    (void)conn;
    (void)bytes;
    (void)n;
}

static void refused_nothing(struct conn *conn) {
    (void)conn;
}

static void refused_tick(struct conn *conn, uint64_t now_ms) {
    (void)conn;
    (void)now_ms;
}

static bool refused_is_busy(const struct conn *conn) {
    (void)conn;
    return false;
}

/* Accepts and answers rather than leave the connection in the backlog: the client learns at once.
 * It is closed as soon, so a client that sends much may see a reset instead. */
static void refuse(struct conn *conn) {
    static const char answer[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Retry-After: 1\r\nConnection: close\r\nContent-Length: 122\r\n\r\n"
        "{\"error\":{\"message\":\"too many connections\",\"type\":\"service_unavailable_error\","
        "\"param\":null,\"code\":\"too_many_connections\"}}";
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)answer, sizeof answer - 1);
    if (conn->is_http) (void)uv_try_write((uv_stream_t *)&conn->tcp, &buf, 1);
    wefti_conn_end(conn, false);
}

static bool open_conn(struct conn *conn) {
    static const struct conn_ops refused = {refused_bytes,   refused_nothing, wefti_conn_close,
                                            refused_tick,    refused_nothing, refused_is_busy,
                                            refused_nothing, refused_nothing};
    if (conn->place != CONN_NO_PLACE)
        return conn->is_http ? wefti_http_open(conn) : wefti_rpc_open(conn);
    conn->ops = &refused;
    return true;
}

static void on_connection(uv_stream_t *listener, int status) {
    struct server *server = listener->data;
    if (status < 0) return;
    struct conn *conn = calloc(1, sizeof *conn);
    if (!conn || uv_tcp_init(&server->loop, &conn->tcp) != 0) {
        free(conn);
        return;
    }
    _Static_assert(offsetof(struct conn, tcp) == 0, "on_unopened frees the whole");
    conn->tcp.data = conn;
    conn->server = server;
    conn->is_http = listener == (uv_stream_t *)&server->listeners[0];
    conn->opened_ms = weft_now_ms();
    conn->place = place_for(server, conn->is_http, conn->opened_ms);
    if (conn->place == CONN_NO_PLACE) server->api.metrics.n_connections_refused++;
    weft_buf_init(&conn->out, WEFT_MESSAGE_BYTES_MAX);
    weft_buf_init(&conn->writing, WEFT_MESSAGE_BYTES_MAX);
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) != 0 || !open_conn(conn)) {
        uv_close((uv_handle_t *)&conn->tcp, on_unopened);
        return;
    }
    if (server->access_format != WEFT_API_ACCESS_OFF) note_client(conn);
    (void)uv_tcp_nodelay(&conn->tcp, 1);
    (void)uv_tcp_keepalive(&conn->tcp, 1, 60);
    wefti_conn_begin(conn);
    if (conn->place == CONN_NO_PLACE)
        refuse(conn);
    else
        wefti_conn_read(conn, true);
}

/* -------------------------------------------------------------------------------- listening --- */

/* What went wrong with one of the sockets, by libuv's code. */
static weft_err cannot_listen(const struct server *server, uint32_t which, uint32_t port,
                              int status, struct weft_errmsg *why) {
    bool is_http = which == WEFT_HANDOVER_HTTP;
    return weft_err_set(why, WEFT_E_IO, "cannot listen on %s port %u for %s: %s (%s)",
                        server->config.host, port, is_http ? "HTTP" : "MessagePack-RPC",
                        uv_strerror(status),
                        status == UV_EADDRNOTAVAIL ? "--host is to be an address of this machine"
                        : is_http                  ? "--port N takes another"
                                  : "--rpc-port N takes another, --no-rpc does without");
}

weft_err wefti_accept_make(const struct server *server, uint32_t which, uint32_t port, int *fd_out,
                           struct weft_errmsg *why) {
    union server_address at = server->at;
    bool is_v6 = at.any.sa_family == AF_INET6;
    const int on = 1, off = 0;
    if (is_v6)
        at.v6.sin6_port = htons((uint16_t)port);
    else
        at.v4.sin_port = htons((uint16_t)port);
    int fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *fd_out = fd;
    bool is_fine = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
    if (is_fine && is_v6) /* "::" is all addresses of this machine, whatever the system prefers */
        is_fine = setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0;
    is_fine = is_fine && bind(fd, &at.any, is_v6 ? sizeof at.v6 : sizeof at.v4) == 0 &&
              listen(fd, BACKLOG) == 0;
    if (is_fine) return WEFT_OK;
    int status = uv_translate_sys_error(errno);
    if (fd >= 0) (void)close(fd);
    *fd_out = -1;
    return cannot_listen(server, which, port, status, why);
}

weft_err wefti_accept_use(struct server *server, uint32_t which, int fd, struct weft_errmsg *why) {
    uv_tcp_t *tcp = &server->listeners[which];
    WEFT_ASSERT(which == server->n_listeners && which < WEFT_HANDOVER_CONTROL);
    int status = uv_tcp_init(&server->loop, tcp);
    if (status == 0) server->n_listeners++; /* there is something to close now */
    tcp->data = server;
    if (status == 0) status = uv_tcp_open(tcp, fd);
    if (status != 0) (void)close(fd);
    if (status == 0) status = uv_listen((uv_stream_t *)tcp, BACKLOG, on_connection);
    union server_address at;
    int len = sizeof at;
    if (status == 0) status = uv_tcp_getsockname(tcp, &at.any, &len);
    if (status != 0)
        return cannot_listen(server, which,
                             which == WEFT_HANDOVER_HTTP ? server->config.port
                                                         : server->config.rpc_port,
                             status, why);
    server->ports[which] = ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
    return WEFT_OK;
}

/* A socket that somebody else has made. */
static weft_err check_given(int fd, union server_address *at_out, struct weft_errmsg *why) {
    int is_listening = 0, type = 0;
    socklen_t int_len = sizeof type, at_len = sizeof *at_out;
    memset(at_out, 0, sizeof *at_out);
    bool is_fine = getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &int_len) == 0 &&
                   getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &int_len) == 0 &&
                   getsockname(fd, &at_out->any, &at_len) == 0 && is_listening &&
                   type == SOCK_STREAM &&
                   (at_out->any.sa_family == AF_INET || at_out->any.sa_family == AF_INET6);
    if (is_fine) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "descriptor %d is no TCP socket that listens", fd);
}

/* `given`: a socket that is there already; -1: none. */
static weft_err listen_at(struct server *server, uint32_t which, uint32_t port, int given,
                          struct weft_errmsg *why) {
    int fd = given;
    union server_address at;
    weft_err err = given >= 0 ? check_given(given, &at, why)
                              : wefti_accept_make(server, which, port, &fd, why);
    return err ? err : wefti_accept_use(server, which, fd, why);
}

/* A name may stand for addresses that this machine lacks: "localhost" for ::1 without IPv6. Tried
 * with any port; a port in use is reported when listening. */
static bool is_ours(const struct addrinfo *at) {
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    bool is_bound = bind(fd, at->ai_addr, at->ai_addrlen) == 0;
    (void)close(fd);
    return is_bound;
}

/* Told once, by the first router of a server. */
static void warn_of_open_door(const struct server *server) {
    bool is_any = strcmp(server->address, "0.0.0.0") == 0 || strcmp(server->address, "::") == 0;
    if (is_any && server->api.keys.n == 0 && !server->config.model_identity)
        weft_warn("whoever reaches this machine may use the model: it listens on all addresses, "
                  "without an API key (--api-key-file FILE sets some, --host 127.0.0.1 keeps it "
                  "to this machine)");
}

static weft_err name_address(struct server *server) {
    int status = uv_ip_name(&server->at.any, server->address, sizeof server->address);
    WEFT_ASSERT(status == 0); /* of another family there is none with ports */
    return WEFT_OK;
}

static weft_err find_address(struct server *server, struct weft_errmsg *why) {
    const struct weft_config *config = &server->config;
    if (config->http_fd >= 0) {
        weft_err err = check_given(config->http_fd, &server->at, why);
        return err ? err : name_address(server);
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    hints.ai_flags = AI_PASSIVE;
    int status = getaddrinfo(config->host, NULL, &hints, &found);
    if (status != 0)
        return weft_err_set(why, WEFT_E_INVAL, "--host \"%s\": %s", config->host,
                            gai_strerror(status));
    const struct addrinfo *at = found;
    while (at->ai_next && !is_ours(at))
        at = at->ai_next;
    if (at->ai_family == AF_INET6)
        memcpy(&server->at.v6, at->ai_addr, sizeof server->at.v6);
    else
        memcpy(&server->at.v4, at->ai_addr, sizeof server->at.v4);
    freeaddrinfo(found);
    return name_address(server);
}

weft_err wefti_accept_init(struct server *server, struct weft_errmsg *why) {
    weft_err err = find_address(server, why);
    union server_address at;
    if (!err && server->config.rpc_fd >= 0) err = check_given(server->config.rpc_fd, &at, why);
    return err ? err : set_places(server, why);
}

weft_err wefti_accept_listen(struct server *server, struct weft_errmsg *why) {
    const struct weft_config *config = &server->config;
    weft_err err = listen_at(server, WEFT_HANDOVER_HTTP, config->port, config->http_fd, why);
    if (!err && !config->no_rpc)
        err = listen_at(server, WEFT_HANDOVER_RPC, config->rpc_port, config->rpc_fd, why);
    if (!err) warn_of_open_door(server);
    return err;
}
