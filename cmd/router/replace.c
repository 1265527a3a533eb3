#include "replace.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "accept.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

/* A router that died is followed by another of the same server. */
static uint64_t own_instance(const struct server *server) {
    return (uint64_t)(server->config.status_fd >= 0 ? getppid() : getpid());
}

static void name_of(const struct server *server, uint32_t port,
                    char name_out[WEFT_HANDOVER_NAME_BYTES]) {
    wefti_handover_name(server->address, port, name_out);
}

/* From now on this server can be replaced. If it cannot, it serves all the same. */
static void open_door(struct server *server, int control_fd) {
    char name[WEFT_HANDOVER_NAME_BYTES];
    struct weft_errmsg why = {""};
    name_of(server, server->ports[WEFT_HANDOVER_HTTP], name);
    if (wefti_handover_open(&server->handover, name, control_fd, own_instance(server), &why))
        weft_warn("--replace will not find this server: %s", why.text);
}

static weft_err listen_anew(struct server *server, struct weft_errmsg *why) {
    weft_err err = wefti_accept_listen(server, why);
    if (!err) open_door(server, -1);
    return err;
}

/* ----------------------------------------------------------------------------------- taking --- */

static uint32_t port_of(int fd) {
    union server_address at;
    socklen_t len = sizeof at;
    memset(&at, 0, sizeof at);
    if (getsockname(fd, &at.any, &len) != 0) return 0;
    return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}

/* Makes the MessagePack-RPC socket of an offer the one of our settings: the other's, if that is on
 * the right port, or one of our own. */
static weft_err settle_rpc(const struct server *server, struct handover_offer *offer,
                           struct weft_errmsg *why) {
    int *fd = &offer->fds[WEFT_HANDOVER_RPC];
    uint32_t wanted = server->config.rpc_port;
    bool is_right = *fd >= 0 && !server->config.no_rpc && (!wanted || port_of(*fd) == wanted);
    if (is_right) return WEFT_OK;
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
    return server->config.no_rpc ? WEFT_OK
                                 : wefti_accept_make(server, WEFT_HANDOVER_RPC, wanted, fd, why);
}

/* All that may fail comes before the other is told to cease. */
static void ask_once(struct replacing *r, const char *name) {
    r->err = wefti_handover_ask(name, r->instance, &r->offer, &r->why);
    if (r->err || r->offer.conn_fd < 0) return;
    r->err = settle_rpc(r->server, &r->offer, &r->why);
    bool goes_on = !r->err && !atomic_load(&r->is_called_off);
    if (goes_on) r->err = wefti_handover_accept(&r->offer, name, &r->why);
    if (r->err || !goes_on) wefti_handover_release(&r->offer);
}

/* One that hangs up may be ending, or have a new router: who is there now? */
static void take_in_thread(struct work *work) {
    struct replacing *r = (struct replacing *)work;
    char name[WEFT_HANDOVER_NAME_BYTES];
    _Static_assert(offsetof(struct replacing, work) == 0, "one address for both");
    name_of(r->server, r->server->config.port, name);
    ask_once(r, name);
    if (r->err == WEFT_E_CLOSED && !atomic_load(&r->is_called_off)) ask_once(r, name);
}

static weft_err use(struct server *server, struct handover_offer *offer, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < WEFT_HANDOVER_CONTROL && !err; i++) {
        if (offer->fds[i] < 0) continue;
        err = wefti_accept_use(server, i, offer->fds[i], why);
        offer->fds[i] = -1;
    }
    if (err) return err;
    open_door(server, offer->fds[WEFT_HANDOVER_CONTROL]);
    offer->fds[WEFT_HANDOVER_CONTROL] = -1;
    return WEFT_OK;
}

static void after_take(struct work *work) {
    struct replacing *r = (struct replacing *)work;
    struct server *server = r->server;
    bool has_taken = r->offer.fds[WEFT_HANDOVER_HTTP] >= 0;
    bool is_over = uv_is_closing((uv_handle_t *)&server->tick) || server->api.draining;
    if (is_over || (!has_taken && server->drain_at_ms)) { /* this server is ending meanwhile */
        wefti_handover_release(&r->offer);
        return;
    }
    if (!r->err) /* a server that has ended meanwhile has left its ports */
        r->err = has_taken ? use(server, &r->offer, &r->why) : listen_anew(server, &r->why);
    wefti_handover_release(&r->offer);
    if (r->err)
        wefti_server_fail(server, r->why.text);
    else if (has_taken)
        weft_info("--replace: this server has taken the other's place");
}

static void take(struct server *server) {
    struct replacing *r = &server->replacing;
    if (!r->may_take || r->is_taking || server->drain_at_ms) return;
    WEFT_ASSERT(server->n_listeners == 0);
    r->is_taking = true;
    r->work.run = take_in_thread;
    r->work.done = after_take;
    wefti_work_add(&server->work, &r->work, 0, weft_now_ms());
}

/* Whoever connects to a socket that was there before waits, and is not refused. */
static void listen_late(struct server *server) {
    struct weft_errmsg why = {""};
    if (server->drain_at_ms) return;
    if (listen_anew(server, &why)) wefti_server_fail(server, why.text);
}

/* ------------------------------------------------------------------------------------ start --- */

weft_err wefti_replace_or_listen(struct server *server, struct weft_errmsg *why) {
    struct replacing *r = &server->replacing;
    char name[WEFT_HANDOVER_NAME_BYTES];
    bool is_there = false;
    weft_err err = wefti_accept_init(server, why);
    if (err) return err;
    r->server = server;
    r->take = server->config.http_fd >= 0 ? listen_late : take;
    r->may_take = server->config.status_fd < 0;
    if (server->config.replace) {
        name_of(server, server->config.port, name);
        err = wefti_handover_look(name, &is_there, &r->instance, why);
        if (err) return err;
        if (is_there)
            weft_info("--replace: loading; then this server takes the place of the one at @%s",
                      name);
        else
            weft_info("--replace: no server of this user is at @%s: starting as without", name);
    }
    return is_there || server->config.http_fd >= 0 ? WEFT_OK : listen_anew(server, why);
}
