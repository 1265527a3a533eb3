#include "handover.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

#define BACKLOG 8
#define ADMITTED_PER_TICK 8
#define COMPLAINT_MS 1000
#define RETRY_MS 20

static const char magic[8] = {'w', 'e', 'f', 't', 's', 'o', 'c', 'k'};

union name {
    struct sockaddr any;
    struct sockaddr_un un;
};

/* An abstract name: a zero, and the text without one at its end. Returns its length. */
static socklen_t fill_name(union name *at, const char *name) {
    size_t n = strlen(name);
    WEFT_ASSERT(n + 1 <= sizeof at->un.sun_path);
    memset(at, 0, sizeof *at);
    at->un.sun_family = AF_UNIX;
    memcpy(at->un.sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

void wefti_handover_name(const char *address, uint32_t port,
                         char name_out[WEFT_HANDOVER_NAME_BYTES]) {
    int n = snprintf(name_out, WEFT_HANDOVER_NAME_BYTES, "weft-%u-%s-%u", (unsigned)geteuid(),
                     address, port);
    WEFT_ASSERT(n > 0 && n < WEFT_HANDOVER_NAME_BYTES);
}

static void drop(int *fd) {
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

/* True if the peer is of this user; *user_out is whose it is. */
static bool is_ours(int fd, unsigned *user_out) {
    struct ucred peer;
    socklen_t len = sizeof peer;
    *user_out = UINT32_MAX;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) return false;
    *user_out = (unsigned)peer.uid;
    return peer.uid == geteuid();
}

static void fill_message(struct wefti_handover_message *m, enum wefti_handover_kind kind,
                         uint64_t instance) {
    *m = (struct wefti_handover_message){
        .version = WEFT_HANDOVER_VERSION, .kind = kind, .instance = instance};
    memcpy(m->magic, magic, sizeof magic);
}

/* Sends a message, with the descriptors of `fds` that are >= 0 (NULL: none). Never waits. */
static bool send_message(int fd, struct wefti_handover_message *m, const int *fds) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int) * WEFT_HANDOVER_SOCKETS)];
    } control;
    int sent[WEFT_HANDOVER_SOCKETS];
    size_t n = 0;
    for (uint32_t i = 0; fds && i < WEFT_HANDOVER_SOCKETS; i++) {
        if (fds[i] < 0) continue;
        sent[n++] = fds[i];
        m->sockets |= 1u << i;
    }
    struct iovec piece = {.iov_base = m, .iov_len = sizeof *m};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    if (n > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * n);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int) * n);
        memcpy(CMSG_DATA(&control.head), sent, sizeof(int) * n);
    }
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *m;
}

/* ----------------------------------------------------------------------------------- giving --- */

void wefti_handover_init(struct handover *h) {
    *h = (struct handover){.control_fd = -1};
    for (uint32_t i = 0; i < WEFT_HANDOVER_GUESTS_MAX; i++)
        h->guests[i].fd = -1;
}

weft_err wefti_handover_open(struct handover *h, const char *name, int control_fd,
                             uint64_t instance, struct weft_errmsg *why) {
    union name at;
    socklen_t len = fill_name(&at, name);
    WEFT_ASSERT(h->control_fd < 0);
    h->control_fd = control_fd;
    h->instance = instance;
    if (control_fd < 0) {
        h->control_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (h->control_fd < 0) return weft_err_errno(why, errno, "cannot make a unix socket");
        if (bind(h->control_fd, &at.any, len) != 0) {
            int error = errno;
            drop(&h->control_fd);
            if (error == EADDRINUSE)
                return weft_err_set(why, WEFT_E_EXISTS, "the name @%s is in use", name);
            return weft_err_errno(why, error, "cannot use the name @%s", name);
        }
    }
    /* Also where it listens already: from now on it shows guests this process's user. */
    if (listen(h->control_fd, BACKLOG) == 0) return WEFT_OK;
    weft_err err = weft_err_errno(why, errno, "cannot listen at @%s", name);
    drop(&h->control_fd);
    return err;
}

void wefti_handover_close(struct handover *h) {
    for (uint32_t i = 0; i < WEFT_HANDOVER_GUESTS_MAX; i++)
        drop(&h->guests[i].fd);
    drop(&h->control_fd);
}

static void refuse_user(struct handover *h, unsigned user, uint64_t now_ms) {
    if (h->complained_ms && now_ms < h->complained_ms + COMPLAINT_MS) return;
    h->complained_ms = now_ms;
    weft_warn("user %u asked for the listening sockets, and was refused", user);
}

/* A free place, or that of the guest who has been there for the longest; not that of an offer. */
static uint32_t place_for_guest(struct handover *h) {
    uint32_t oldest = WEFT_HANDOVER_GUESTS_MAX;
    for (uint32_t i = 0; i < WEFT_HANDOVER_GUESTS_MAX; i++) {
        if (h->guests[i].fd < 0) return i;
        if (h->guests[i].has_offer) continue;
        if (oldest == WEFT_HANDOVER_GUESTS_MAX ||
            h->guests[i].until_ms < h->guests[oldest].until_ms)
            oldest = i;
    }
    WEFT_ASSERT(oldest < WEFT_HANDOVER_GUESTS_MAX); /* only one has an offer */
    drop(&h->guests[oldest].fd);
    return oldest;
}

/* Takes in guests. Those who come and say nothing make room for others. */
static void admit(struct handover *h, uint64_t now_ms) {
    struct pollfd door = {.fd = h->control_fd, .events = POLLIN};
    if (poll(&door, 1, 0) <= 0) return; /* accept4 makes a socket before it finds nobody there */
    for (uint32_t n = 0; n < ADMITTED_PER_TICK; n++) {
        int fd = accept4(h->control_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        unsigned user;
        if (fd < 0) return; /* nobody, or no descriptor: in the next tick perhaps */
        if (!is_ours(fd, &user)) {
            refuse_user(h, user, now_ms);
            drop(&fd);
            continue;
        }
        uint32_t i = place_for_guest(h);
        h->guests[i].fd = fd;
        h->guests[i].has_offer = false;
        h->guests[i].until_ms = now_ms + WEFT_HANDOVER_GUEST_MS;
    }
}

static bool has_offered(const struct handover *h) {
    for (uint32_t i = 0; i < WEFT_HANDOVER_GUESTS_MAX; i++) {
        if (h->guests[i].fd >= 0 && h->guests[i].has_offer) return true;
    }
    return false;
}

/* The answer to a message; LOOK where there is none, and the guest is to go. */
static enum wefti_handover_kind answer_to(const struct handover *h, uint32_t idx,
                                          const struct wefti_handover_message *m) {
    if (m->version != WEFT_HANDOVER_VERSION) return WEFT_HANDOVER_REFUSED;
    if (m->kind == WEFT_HANDOVER_LOOK) return WEFT_HANDOVER_HERE;
    if (m->kind == WEFT_HANDOVER_TAKEN && h->guests[idx].has_offer) return WEFT_HANDOVER_DONE;
    if (m->kind != WEFT_HANDOVER_TAKE || h->guests[idx].has_offer) return WEFT_HANDOVER_LOOK;
    if (m->instance != h->instance) return WEFT_HANDOVER_OTHER;
    return has_offered(h) ? WEFT_HANDOVER_BUSY : WEFT_HANDOVER_OFFER;
}

/* One message of a guest, if there is one. True: it has the sockets. */
static bool hear(struct handover *h, uint32_t idx, const int *fds, uint64_t now_ms) {
    int *fd = &h->guests[idx].fd;
    union {
        struct wefti_handover_message message;
        char
            bytes[sizeof(struct wefti_handover_message) + 1]; /* one more shows that it is longer */
    } in;
    ssize_t n = recv(*fd, in.bytes, sizeof in.bytes, MSG_DONTWAIT); /* closes descriptors it gets */
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (now_ms >= h->guests[idx].until_ms) drop(fd);
        return false;
    }
    enum wefti_handover_kind kind = WEFT_HANDOVER_LOOK;
    if (n == (ssize_t)sizeof in.message && memcmp(in.message.magic, magic, sizeof magic) == 0)
        kind = answer_to(h, idx, &in.message);
    struct wefti_handover_message out;
    const int offered[WEFT_HANDOVER_SOCKETS] = {fds[WEFT_HANDOVER_HTTP], fds[WEFT_HANDOVER_RPC],
                                                h->control_fd};
    bool is_offer = kind == WEFT_HANDOVER_OFFER;
    fill_message(&out, kind, h->instance);
    bool is_told = kind != WEFT_HANDOVER_LOOK && send_message(*fd, &out, is_offer ? offered : NULL);
    if (is_offer && is_told) {
        h->guests[idx].has_offer = true;
        h->guests[idx].until_ms = now_ms + WEFT_HANDOVER_GUEST_MS;
        return false;
    }
    drop(fd); /* what was sent arrives all the same */
    return kind == WEFT_HANDOVER_DONE && is_told;
}

bool wefti_handover_tick(struct handover *h, const int fds[WEFT_HANDOVER_CONTROL],
                         uint64_t now_ms) {
    if (h->control_fd < 0) return false;
    admit(h, now_ms);
    for (uint32_t i = 0; i < WEFT_HANDOVER_GUESTS_MAX; i++) {
        if (h->guests[i].fd >= 0 && hear(h, i, fds, now_ms)) return true;
    }
    return false;
}

/* ----------------------------------------------------------------------------------- taking --- */

/* -1 in *fd_out, without an error: nobody of this user listens there. */
static weft_err dial(const char *name, int *fd_out, struct weft_errmsg *why) {
    union name at;
    unsigned user;
    socklen_t len = fill_name(&at, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *fd_out = -1;
    if (fd < 0) return weft_err_errno(why, errno, "cannot make a unix socket");
    int status = connect(fd, &at.any, len);
    for (int ms = 0; status != 0 && errno == EAGAIN && ms < WEFT_HANDOVER_WAIT_MS; ms += RETRY_MS) {
        (void)poll(NULL, 0, RETRY_MS); /* its queue is full, and nothing tells when it is not */
        status = connect(fd, &at.any, len);
    }
    if (status != 0) {
        int error = errno;
        drop(&fd);
        if (error == ECONNREFUSED) return WEFT_OK;
        return weft_err_errno(why, error, "--replace: cannot reach the server at @%s", name);
    }
    if (!is_ours(fd, &user)) { /* else anybody could keep us from starting */
        weft_warn("--replace: the name @%s is held by user %u, and is passed over", name, user);
        drop(&fd);
    }
    *fd_out = fd;
    return WEFT_OK;
}

static weft_err bad_answer(const char *name, struct weft_errmsg *why) {
    return weft_err_set(why, WEFT_E_PROTO,
                        "--replace: what listens at @%s does not answer as a server would", name);
}

/* Descriptors that came with a message, in the order of its bits. False: they are not what it says,
 * and none is kept. */
static bool take_fds(struct msghdr *message, uint32_t bits, int fds_out[WEFT_HANDOVER_SOCKETS]) {
    int came[CMSG_SPACE(sizeof(int) * WEFT_HANDOVER_SOCKETS) / sizeof(int)] = {0}; /* at most */
    size_t n = 0, at = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        size_t more = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        WEFT_ASSERT(n + more <= sizeof came / sizeof came[0]);
        memcpy(came + n, CMSG_DATA(c), more * sizeof(int));
        n += more;
    }
    bool is_fine = !(message->msg_flags & (MSG_CTRUNC | MSG_TRUNC)) &&
                   bits >> WEFT_HANDOVER_SOCKETS == 0 && n == (size_t)__builtin_popcount(bits);
    for (uint32_t i = 0; is_fine && i < WEFT_HANDOVER_SOCKETS; i++)
        fds_out[i] = bits & 1u << i ? came[at++] : -1;
    while (!is_fine && n > 0)
        (void)close(came[--n]);
    return is_fine;
}

/* Waits for an answer of `kind`. With fds_out it may bring descriptors. */
static weft_err await(int fd, const char *name, enum wefti_handover_kind kind,
                      struct wefti_handover_message *m, int *fds_out, struct weft_errmsg *why) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int) * WEFT_HANDOVER_SOCKETS)];
    } control;
    struct pollfd there = {.fd = fd, .events = POLLIN};
    uint64_t until_ms = weft_now_ms() + WEFT_HANDOVER_WAIT_MS;
    bool has_come = false;
    for (uint64_t now_ms; !has_come && (now_ms = weft_now_ms()) < until_ms;)
        has_come = poll(&there, 1, (int)(until_ms - now_ms)) > 0;
    /* From here on the other side cannot send: what it has sent is read, and nothing else was. */
    if (!has_come) (void)shutdown(fd, SHUT_RD);
    struct iovec piece = {.iov_base = m, .iov_len = sizeof *m};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (fds_out) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
    }
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0 && !has_come)
        return weft_err_set(why, WEFT_E_TIMEOUT,
                            "--replace: the server at @%s has not answered for %u s", name,
                            WEFT_HANDOVER_WAIT_MS / 1000u);
    if (n <= 0)
        return weft_err_set(why, WEFT_E_CLOSED, "--replace: the server at @%s has hung up", name);
    bool is_whole = n == (ssize_t)sizeof *m && memcmp(m->magic, magic, sizeof magic) == 0;
    if (fds_out && !take_fds(&message, is_whole ? m->sockets : 0, fds_out)) is_whole = false;
    if (!is_whole) return bad_answer(name, why);
    if (m->version != WEFT_HANDOVER_VERSION)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "--replace: the server at @%s hands over by version %u, this one takes "
                            "over by version %u: stop that one first",
                            name, m->version, (unsigned)WEFT_HANDOVER_VERSION);
    if (m->kind == WEFT_HANDOVER_BUSY)
        return weft_err_set(why, WEFT_E_STATE,
                            "--replace: another server is just taking the place of the one at @%s",
                            name);
    if (m->kind == WEFT_HANDOVER_OTHER)
        return weft_err_set(why, WEFT_E_STATE,
                            "--replace: while this one started, another server took the place of "
                            "the one at @%s",
                            name);
    return m->kind == kind ? WEFT_OK : bad_answer(name, why);
}

static weft_err say(int fd, const char *name, enum wefti_handover_kind kind, uint64_t instance,
                    struct weft_errmsg *why) {
    struct wefti_handover_message m;
    fill_message(&m, kind, instance);
    if (send_message(fd, &m, NULL)) return WEFT_OK;
    return weft_err_set(why, WEFT_E_CLOSED, "--replace: the server at @%s has hung up", name);
}

weft_err wefti_handover_look(const char *name, bool *found_out, uint64_t *instance_out,
                             struct weft_errmsg *why) {
    struct wefti_handover_message m;
    int fd;
    *found_out = false;
    *instance_out = 0;
    weft_err err = dial(name, &fd, why);
    if (err || fd < 0) return err;
    err = say(fd, name, WEFT_HANDOVER_LOOK, 0, why);
    if (!err) err = await(fd, name, WEFT_HANDOVER_HERE, &m, NULL, why);
    drop(&fd);
    if (err) return err;
    *found_out = true;
    *instance_out = m.instance;
    return WEFT_OK;
}

static bool listens(int fd, int type) {
    int is_listening = 0, its_type = 0;
    socklen_t len = sizeof is_listening, type_len = sizeof its_type;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) == 0 && is_listening &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &its_type, &type_len) == 0 && its_type == type;
}

/* Whether the sockets are what they are said to be: the HTTP one gives its name to all of it. */
static bool is_right(const struct handover_offer *offer, const char *name) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t len = sizeof at;
    char address[64], its_name[WEFT_HANDOVER_NAME_BYTES];
    const int *fds = offer->fds;
    memset(&at, 0, sizeof at);
    if (fds[WEFT_HANDOVER_HTTP] < 0 || !listens(fds[WEFT_HANDOVER_HTTP], SOCK_STREAM)) return false;
    if (fds[WEFT_HANDOVER_RPC] >= 0 && !listens(fds[WEFT_HANDOVER_RPC], SOCK_STREAM)) return false;
    if (fds[WEFT_HANDOVER_CONTROL] < 0 || !listens(fds[WEFT_HANDOVER_CONTROL], SOCK_SEQPACKET))
        return false;
    if (getsockname(fds[WEFT_HANDOVER_HTTP], &at.any, &len) != 0 || len > sizeof at) return false;
    if (at.any.sa_family != AF_INET && at.any.sa_family != AF_INET6) return false;
    if (uv_ip_name(&at.any, address, sizeof address) != 0) return false;
    bool is_v6 = at.any.sa_family == AF_INET6;
    wefti_handover_name(address, ntohs(is_v6 ? at.v6.sin6_port : at.v4.sin_port), its_name);
    return strcmp(name, its_name) == 0;
}

weft_err wefti_handover_ask(const char *name, uint64_t instance, struct handover_offer *offer,
                            struct weft_errmsg *why) {
    struct wefti_handover_message m;
    *offer = (struct handover_offer){-1, {-1, -1, -1}};
    weft_err err = dial(name, &offer->conn_fd, why);
    if (err || offer->conn_fd < 0) return err;
    err = say(offer->conn_fd, name, WEFT_HANDOVER_TAKE, instance, why);
    if (!err) err = await(offer->conn_fd, name, WEFT_HANDOVER_OFFER, &m, offer->fds, why);
    if (!err && !is_right(offer, name)) err = bad_answer(name, why);
    if (err) wefti_handover_release(offer);
    return err;
}

weft_err wefti_handover_accept(struct handover_offer *offer, const char *name,
                               struct weft_errmsg *why) {
    struct wefti_handover_message m;
    WEFT_ASSERT(offer->conn_fd >= 0);
    weft_err err = say(offer->conn_fd, name, WEFT_HANDOVER_TAKEN, 0, why);
    if (!err) err = await(offer->conn_fd, name, WEFT_HANDOVER_DONE, &m, NULL, why);
    drop(&offer->conn_fd);
    return err;
}

void wefti_handover_release(struct handover_offer *offer) {
    drop(&offer->conn_fd);
    for (uint32_t i = 0; i < WEFT_HANDOVER_SOCKETS; i++)
        drop(&offer->fds[i]);
}
