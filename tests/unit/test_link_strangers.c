/* Links and peers that are none of ours: they lie, say nothing, come in crowds, or lack a certificate. */
#include "unit/link_ends.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <nng/supplemental/tls/tls.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"

struct raw_header { /* as lib/link/conn.h has it */
    uint32_t magic;
    uint16_t version, kind;
    uint32_t len, seq;
};

#define MAGIC 0x4b4c4657u
enum { HELLO = 1, WELCOME = 2, DATA = 3 };

static const struct raw_header hostile_headers[] = {
    {MAGIC, 1, DATA, 8, 0},           /* out of nowhere */
    {MAGIC, 1, WELCOME, 0, 0},        /* to a listener */
    {MAGIC, 1, HELLO, 0, 0},          /* of nobody */
    {MAGIC, 1, HELLO, 16, 0},         /* of zeros: a worker's */
    {MAGIC, 1, HELLO, 16, 1},         /* not the first */
    {MAGIC, 1, HELLO, 1 << 28, 0},    /* of 256 MiB, which never come */
    {MAGIC, 1, HELLO, UINT32_MAX, 0}, /* over the limit */
    {MAGIC, 1, 0, 4, 0},              /* no kind */
    {MAGIC, 1, 9, 4, 0},              /* unknown kinds */
    {MAGIC, 1, UINT16_MAX, 4, 0},     /**/
    {MAGIC, 2, HELLO, 16, 0},         /* other versions */
    {MAGIC, 0, HELLO, 16, 0},         /**/
    {MAGIC + 1, 1, HELLO, 16, 0},     /* wrong magic */
    {0x00505300, 0x3000, 0, 0, 0},    /* nng's own greeting */
};

union raw_address {
    struct sockaddr any;
    struct sockaddr_un local;
    struct sockaddr_in tcp;
};

/* Takes a URL that fresh_url made. */
static socklen_t raw_address(const char *url, union raw_address *at) {
    const char *rest = strstr(url, "://") + 3;
    memset(at, 0, sizeof *at);
    if (transport == TCP || transport == TLS) {
        at->tcp.sin_family = AF_INET;
        at->tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        at->tcp.sin_port = htons((uint16_t)strtoul(strrchr(rest, ':') + 1, NULL, 10));
        return sizeof at->tcp;
    }
    size_t first = transport == ABSTRACT ? 1 : 0;
    at->local.sun_family = AF_UNIX;
    memcpy(at->local.sun_path + first, rest, strlen(rest));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(rest));
}

static int raw_socket(void) {
    int family = transport == TCP || transport == TLS ? AF_INET : AF_UNIX, on = 1;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return fd;
}

static int connect_raw(const char *url) {
    union raw_address at;
    socklen_t len = raw_address(url, &at);
    int fd = raw_socket();
    int rv = connect(fd, &at.any, len);
    struct pollfd writable = {.fd = fd, .events = POLLOUT};
    if (rv != 0 && errno == EINPROGRESS) rv = poll(&writable, 1, PATIENCE_MS) == 1 ? 0 : -1;
    assert_true(rv == 0 || errno == EAGAIN); /* EAGAIN: too many wait to be accepted */
    return fd;
}

static void send_raw(int fd, const void *bytes, size_t len) {
    (void)!send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT); /* it may be closed by now */
}

/* True: the other end has closed it. */
static bool is_closed_raw(int fd) {
    char bytes[64];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        continue;
    return n == 0 || errno != EAGAIN;
}

static int listen_raw(const char *url) {
    union raw_address at;
    socklen_t len = raw_address(url, &at);
    int fd = raw_socket();
    assert_int_equal(bind(fd, &at.any, len), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* One hostile connection: noise, or a header that lies and a random number of bytes after it. */
static int connect_hostile(const char *url) {
    unsigned char bytes[300];
    int fd = connect_raw(url);
    size_t len = weft_rand_below(&rand_state, weft_rand_below(&rand_state, sizeof bytes) + 1);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)weft_rand_next(&rand_state);
    if (weft_rand_below(&rand_state, 4) != 0) {
        const size_t n = sizeof hostile_headers / sizeof hostile_headers[0];
        struct raw_header header = hostile_headers[weft_rand_below(&rand_state, (uint32_t)n)];
        size_t part = weft_rand_below(&rand_state, 4) ? sizeof header : len % sizeof header;
        send_raw(fd, &header, part);
        if (weft_rand_below(&rand_state, 2)) memset(bytes, 0, sizeof bytes);
    }
    send_raw(fd, bytes, len);
    return fd;
}

/* A frame that is longer than a hello of any release: its header alone ends the stream. */
static void strangers_send_short_frames_only(void **state) {
    (void)state;
    const uint32_t lens[] = {4097, WEFT_MESSAGE_BYTES_MAX};
    struct {
        struct raw_header header;
        uint64_t instance;
        uint32_t kind;
        unsigned char rest[4096 - 12];
    } hello = {{MAGIC, 1, HELLO, 4096, 0}, 1, WEFT_LINK_MANY_PEERS, {0}};
    struct end end;
    const char *url = fresh_url();
    open_end(&end, false, WEFT_LINK_MANY_PEERS, url);
    for (int i = 0; i < 2; i++) {
        int fd = connect_raw(url);
        struct raw_header header = {MAGIC, 1, HELLO, lens[i], 0};
        send_raw(fd, &header, sizeof header);
        WAIT_FOR(is_closed_raw(fd), look(&end, 10));
        (void)close(fd);
    }
    int fd = connect_raw(url);
    send_raw(fd, &hello, sizeof hello.header + hello.header.len);
    WAIT_FOR(end.peers[0].up, look(&end, 10));
    (void)close(fd);
    close_end(&end);

    url = fresh_url();
    int listener = listen_raw(url);
    open_end(&end, true, WEFT_LINK_MANY_PEERS, url);
    for (int i = 0; i < 2; i++) {
        struct raw_header header = {MAGIC, 1, WELCOME, lens[i], 0};
        WAIT_FOR((fd = accept(listener, NULL, NULL)) >= 0, look(&end, 10));
        send_raw(fd, &header, sizeof header);
        WAIT_FOR(is_closed_raw(fd), look(&end, 10));
        (void)close(fd);
    }
    assert_int_equal(end.peers[0].n_ups, 0);
    close_end(&end);
    (void)close(listener);
}

/* Strangers beside a router; some stay for a while. */
static void strangers_cannot_disturb_a_hub(void **state) {
    (void)state;
    struct end hub, router;
    const char *url = fresh_url();
    int fds[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    uint32_t n_fds = count_fds();
    open_pair_of_ends(&hub, &router, WEFT_LINK_MANY_PEERS, url);
    hub.n_peers = 1; /* a stranger that gets a session trips the assertion */
    hub.streams = router.streams = true;
    for (int i = 0; i < 1500; i++) {
        int *fd = &fds[weft_rand_below(&rand_state, 8)];
        if (*fd >= 0) (void)close(*fd);
        *fd = connect_hostile(url);
        turn_both(&hub, &router);
    }
    for (int i = 0; i < 8; i++)
        if (fds[i] >= 0) (void)close(fds[i]);
    uint64_t n_got = router.peers[0].n_got;
    WAIT_FOR(router.peers[0].n_got > n_got + 100, turn_both(&hub, &router));
    assert_int_equal(router.peers[0].n_ups, 1);
    assert_int_equal(hub.peers[0].n_ups, 1);
    close_end(&router);
    close_end(&hub);
    WAIT_FOR(count_fds() <= n_fds, (void)usleep(1000)); /* nng closes them later, in a thread */
}

/* Over tcp:// the kernel no longer tells whose a socket was that is closed: it says root's. */
static void a_stranger_that_has_left_is_not_taken_for_root(void **state) {
    (void)state;
    if (geteuid() != 0) {
        (void)printf("SKIPPED: needs root to become somebody else\n");
        skip();
    }
    const struct raw_header header = {MAGIC, 1, HELLO, 16, 0};
    const uint64_t hello[2] = {1, WEFT_LINK_MANY_PEERS};
    struct end end;
    const char *url = fresh_url();
    int status;
    open_end(&end, false, WEFT_LINK_MANY_PEERS, url);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (setuid(65534) != 0) _exit(1);
        int fd = connect_raw(url);
        send_raw(fd, &header, sizeof header);
        send_raw(fd, hello, sizeof hello);
        (void)close(fd);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void)usleep(300000); /* until its end is acknowledged, the kernel remembers whose it was */
    for (int i = 0; i < 50; i++)
        turn(&end, 10);
    assert_int_equal(end.peers[0].n_ups, 0);
    close_end(&end);
}

/* More peers than a turn looks at, each with a part of a message: no turn looks at all of them, and
 * the messages arrive. */
static void a_turn_ends_in_work_without_events(void **state) {
    (void)state;
    enum { CROWD = 100, TURN_MAX = 64 };
    const struct raw_header hello = {MAGIC, 1, HELLO, 16, 0}, message = {MAGIC, 1, DATA, 0, 1};
    const char *url = fresh_url();
    struct weft_link_event event;
    weft_link *hub;
    int fds[CROWD];
    uint32_t n_ups = 0, n_messages = 0;
    assert_int_equal(weft_link_listen(WEFT_LINK_MANY_PEERS, url, NULL, &hub, NULL), WEFT_OK);
    for (uint32_t i = 0; i < CROWD; i++) {
        const uint64_t body[2] = {i + 1, WEFT_LINK_MANY_PEERS};
        fds[i] = connect_raw(url);
        send_raw(fds[i], &hello, sizeof hello);
        send_raw(fds[i], body, sizeof body);
        WAIT_FOR(n_ups > i, n_ups += weft_link_next(hub, weft_now_ms(), &event));
    }
    for (size_t at = 0; at < sizeof message; at++) {
        for (uint32_t i = 0; i < CROWD; i++)
            send_raw(fds[i], (const unsigned char *)&message + at, 1);
        (void)usleep(20000); /* so that most of it is there */
        n_mails = 0;
        while (weft_link_next(hub, weft_now_ms(), &event))
            n_messages += event.kind == WEFT_LINK_MESSAGE;
        assert_in_range(n_mails, 0, TURN_MAX + n_messages);
    }
    WAIT_FOR(n_messages == CROWD, n_messages += weft_link_next(hub, weft_now_ms(), &event));
    for (int i = 0; i < CROWD; i++)
        (void)close(fds[i]);
    weft_link_free(hub);
}

/* To look up the user of a peer over tcp:// may take long. */
static void a_turn_looks_up_one_user(void **state) {
    (void)state;
    enum { CROWD = 10 };
    const struct raw_header hello = {MAGIC, 1, HELLO, 0, 0};
    const char *url = fresh_url();
    struct end hub;
    int fds[CROWD];
    uint32_t n_all = 0;
    open_end(&hub, false, WEFT_LINK_MANY_PEERS, url);
    users_are_unknown = true;
    for (int i = 0; i < CROWD; i++) {
        fds[i] = connect_raw(url);
        send_raw(fds[i], &hello, sizeof hello);
    }
    while (n_all < CROWD) {
        n_unknown = 0;
        look(&hub, PATIENCE_MS);
        assert_in_range(n_unknown, 0, 1);
        n_all += n_unknown;
        (void)usleep(1000);
    }
    users_are_unknown = false;
    for (int i = 0; i < CROWD; i++) {
        WAIT_FOR(is_closed_raw(fds[i]), look(&hub, 10));
        (void)close(fds[i]);
    }
    close_end(&hub);
}

/* The first bytes of a TLS 1.2 client's first record, which stops in the middle. */
static const unsigned char half_a_hello[] = {0x16, 0x03, 0x01, 0x00, 0xc8, 0x01, 0x00,
                                             0x00, 0xc4, 0x03, 0x03, 0x5a, 0x5a, 0x5a};

/* Streams that say nothing, or stop in mid-handshake, end after three seconds. */
static void silent_strangers_are_thrown_out(void **state) {
    (void)state;
    enum { CROWD = 8 };
    struct end end;
    const char *url = fresh_url();
    int fds[CROWD];
    open_end(&end, false, WEFT_LINK_ONE_PEER, url);
    for (int i = 0; i < CROWD; i++) {
        fds[i] = connect_raw(url);
        if (transport == TLS) send_raw(fds[i], half_a_hello, sizeof half_a_hello);
    }
    for (int i = 0; i < CROWD; i++) {
        WAIT_FOR(is_closed_raw(fds[i]), turn(&end, 10));
        (void)close(fds[i]);
    }
    close_end(&end);
}

/* Whoever comes takes the place of the oldest stranger: nothing has to time out for it. */
static void silent_strangers_make_room_for_a_peer(void **state) {
    (void)state;
    enum { CROWD = 60 };
    const enum weft_link_kind kinds[] = {WEFT_LINK_ONE_PEER, WEFT_LINK_MANY_PEERS};
    for (int k = 0; k < 2; k++) {
        struct end a, b;
        const char *url = fresh_url();
        int fds[CROWD];
        open_end(&a, false, kinds[k], url);
        for (int i = 0; i < CROWD; i++) {
            fds[i] = connect_raw(url);
            look(&a, 1);
        }
        open_end(&b, true, kinds[k], url);
        WAIT_FOR(a.peers[0].up && b.peers[0].up, (look(&a, 1), turn(&b, 0)));
        for (int i = 0; i < CROWD; i++)
            (void)close(fds[i]);
        close_end(&b);
        close_end(&a);
    }
}

/* With any number of strangers at once, whatever they hold, existing sessions notice nothing, and
 * only a few strangers may wait. */
static void a_crowd_of_silent_strangers_is_bounded(void **state) {
    (void)state;
    enum { CROWD = 200, HANDSHAKES_MAX = 32, MARGIN = 30 };
    struct end hub, router;
    const char *url = fresh_url();
    int fds[CROWD];
    open_pair_of_ends(&hub, &router, WEFT_LINK_MANY_PEERS, url);
    hub.n_peers = 1; /* a stranger that gets a session trips the assertion */
    hub.streams = router.streams = true;
    uint32_t n_fds = count_fds(), n_most = 0;
    for (int i = 0; i < CROWD; i++) {
        fds[i] = connect_raw(url);
        if (transport == TLS) send_raw(fds[i], half_a_hello, sizeof half_a_hello);
        turn_both(&hub, &router);
    }
    /* Both ends of a stream are in this process. */
    WAIT_FOR((n_most = count_fds() - n_fds) <= CROWD + HANDSHAKES_MAX + MARGIN,
             turn_both(&hub, &router));
    uint64_t n_got = router.peers[0].n_got;
    WAIT_FOR(router.peers[0].n_got > n_got + 100, turn_both(&hub, &router));
    WAIT_FOR(count_fds() - n_fds <= CROWD, turn_both(&hub, &router)); /* all are thrown out */
    assert_int_equal(router.peers[0].n_ups, 1);
    assert_int_equal(hub.peers[0].n_ups, 1);
    for (int i = 0; i < CROWD; i++)
        (void)close(fds[i]);
    close_end(&router);
    close_end(&hub);
}

/* Speaks TLS and trusts our authority, but has no certificate to show; returns the result. */
static int knock_without_certificate(struct end *hub, struct end *router, const char *url) {
    char ca[4096] = "", byte = 0;
    nng_stream_dialer *dialer;
    nng_tls_config *config;
    nng_aio *aio;
    int fd = open(ours.ca, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, ca, sizeof ca - 1) > 0);
    (void)close(fd);
    assert_int_equal(nng_tls_config_alloc(&config, NNG_TLS_MODE_CLIENT), 0);
    assert_int_equal(nng_tls_config_ca_chain(config, ca, NULL), 0);
    assert_int_equal(nng_stream_dialer_alloc(&dialer, url), 0);
    assert_int_equal(nng_stream_dialer_set_ptr(dialer, NNG_OPT_TLS_CONFIG, config), 0);
    assert_int_equal(nng_aio_alloc(&aio, NULL, NULL), 0);
    nng_stream_dialer_dial(dialer, aio);
    nng_aio_wait(aio);
    assert_int_equal(nng_aio_result(aio), 0);
    nng_stream *stream = nng_aio_get_output(aio, 0);
    nng_iov iov = {.iov_buf = &byte, .iov_len = 1};
    assert_int_equal(nng_aio_set_iov(aio, 1, &iov), 0);
    nng_aio_set_timeout(aio, PATIENCE_MS);
    nng_stream_recv(stream, aio);
    for (int i = 0; i < 100; i++)
        turn_both(hub, router);
    nng_aio_wait(aio);
    int rv = nng_aio_result(aio);
    nng_stream_close(stream);
    nng_stream_free(stream);
    nng_aio_free(aio);
    nng_stream_dialer_close(dialer);
    nng_stream_dialer_free(dialer);
    nng_tls_config_free(config);
    return rv;
}

/* Over TLS, an end without a certificate, or with a stranger's, gets no session, and existing
 * sessions notice nothing. A listener whose authority is another one gets nothing either. */
static void peers_without_our_authority_are_refused(void **state) {
    (void)state;
    struct end hub, router, other;
    struct weft_errmsg why;
    struct weft_link_options options = options_of(&strangers);
    char url[64], other_url[64];
    (void)snprintf(url, sizeof url, "%s", fresh_url());
    (void)snprintf(other_url, sizeof other_url, "%s", fresh_url());
    open_pair_of_ends(&hub, &router, WEFT_LINK_MANY_PEERS, url);
    hub.n_peers = 1;
    hub.streams = router.streams = true;
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(knock_without_certificate(&hub, &router, url), 0);

    /* A stranger's certificate, and then one who even trusts our authority. */
    for (int i = 0; i < 2; i++) {
        if (i == 1) options.ca = ours.ca;
        other = (struct end){.n_peers = 1};
        assert_int_equal(weft_link_dial(WEFT_LINK_MANY_PEERS, url, &options, &other.link, &why),
                         WEFT_OK);
        for (int k = 0; k < 300; k++) {
            turn_both(&hub, &router);
            turn(&other, 0);
        }
        assert_int_equal(other.peers[0].n_ups, 0);
        close_end(&other);
    }

    options = options_of(&strangers);
    other = (struct end){.n_peers = 1};
    assert_int_equal(weft_link_listen(WEFT_LINK_MANY_PEERS, other_url, &options, &other.link, &why),
                     WEFT_OK);
    struct end misled;
    open_end(&misled, true, WEFT_LINK_MANY_PEERS, other_url);
    for (int k = 0; k < 300; k++) {
        turn(&other, 1);
        turn(&misled, 0);
    }
    assert_int_equal(misled.peers[0].n_ups, 0);
    assert_int_equal(other.peers[0].n_ups, 0);
    close_end(&misled);
    close_end(&other);

    uint64_t n_got = router.peers[0].n_got;
    WAIT_FOR(router.peers[0].n_got > n_got + 100, turn_both(&hub, &router));
    assert_int_equal(router.peers[0].n_ups, 1);
    assert_int_equal(hub.peers[0].n_ups, 1);
    close_end(&router);
    close_end(&hub);
}

/* A worker that dials the routers' hub, a second worker: refused, without harm to
 * existing sessions. */
static void misplaced_peers_are_refused(void **state) {
    (void)state;
    struct end a, b, c;
    const char *url = fresh_url();
    open_pair_of_ends(&a, &b, WEFT_LINK_ONE_PEER, url);
    a.streams = b.streams = true;
    for (int kind = WEFT_LINK_ONE_PEER; kind <= WEFT_LINK_MANY_PEERS; kind++) {
        open_end(&c, true, (enum weft_link_kind)kind, url);
        for (int i = 0; i < 200; i++) {
            turn_both(&a, &b);
            turn(&c, 0);
        }
        assert_int_equal(c.peers[0].n_ups, 0);
        close_end(&c);
    }
    assert_int_equal(a.peers[0].n_ups, 1);
    assert_true(a.peers[0].up && b.peers[0].up);
    /* The successor may dial before the first one is gone. */
    open_end(&c, true, WEFT_LINK_ONE_PEER, url);
    c.streams = true;
    turn_both(&a, &b);
    close_end(&b);
    WAIT_FOR(c.peers[0].n_got > 50, turn_both(&a, &c));
    assert_int_equal(a.peers[0].n_ups, 2);
    close_end(&c);
    close_end(&a);
}

/* A dialler whose listener is none of ours. */
static void a_false_listener_is_given_up_and_dialled_again(void **state) {
    (void)state;
    struct end b;
    const char *url = fresh_url();
    int fd = listen_raw(url);
    open_end(&b, true, WEFT_LINK_ONE_PEER, url);
    for (int n = 0; n < 20;) {
        turn(&b, 10);
        int peer = accept(fd, NULL, NULL);
        if (peer < 0) continue;
        n++;
        const struct raw_header *header =
            &hostile_headers[n % (int)(sizeof hostile_headers / sizeof hostile_headers[0])];
        if (header->kind == WELCOME || header->len > 100) { /* that would do, or has to wait */
            (void)close(peer);
            continue;
        }
        static const unsigned char zeros[16];
        send_raw(peer, header, sizeof *header);
        send_raw(peer, zeros, header->len);
        for (int i = 0; i < 3; i++)
            turn(&b, 5);
        (void)close(peer);
    }
    assert_int_equal(b.peers[0].n_ups, 0);
    (void)close(fd);
    struct end a;
    open_end(&a, false, WEFT_LINK_ONE_PEER, url);
    WAIT_FOR(a.peers[0].up && b.peers[0].up, turn_both(&a, &b));
    close_end(&b);
    close_end(&a);
}

/* The kernel takes no more connections for a listener whose queue is full: it does not answer. */
static void a_dial_without_answer_is_tried_again(void **state) {
    (void)state;
    enum { CROWD = 8 };
    const char *url = fresh_url();
    union raw_address at;
    socklen_t len = raw_address(url, &at);
    int listener = raw_socket(), fds[CROWD];
    assert_int_equal(bind(listener, &at.any, len), 0);
    assert_int_equal(listen(listener, 0), 0);
    for (int i = 0; i < CROWD; i++) {
        fds[i] = raw_socket();
        (void)connect(fds[i], &at.any, len);
    }
    struct end a, b;
    n_dials = 0;
    is_impatient = true;
    open_end(&b, true, WEFT_LINK_ONE_PEER, url);
    is_impatient = false;
    WAIT_FOR(n_dials == 4, turn(&b, 10));
    assert_int_equal(b.peers[0].n_ups, 0);
    for (int i = 0; i < CROWD; i++)
        (void)close(fds[i]);
    (void)close(listener);
    open_end(&a, false, WEFT_LINK_ONE_PEER, url);
    WAIT_FOR(a.peers[0].up && b.peers[0].up, turn_both(&a, &b));
    close_end(&b);
    close_end(&a);
}

const struct link_case stranger_cases[] = {
    LINK_CASE(a_turn_ends_in_work_without_events, OVER(ABSTRACT)),
    LINK_CASE(strangers_send_short_frames_only, OVER(ABSTRACT) | OVER(TCP)),
    LINK_CASE(a_stranger_that_has_left_is_not_taken_for_root, OVER(TCP)),
    LINK_CASE(a_turn_looks_up_one_user, OVER(TCP)),
    LINK_CASE(a_dial_without_answer_is_tried_again, OVER(TCP) | OVER(TLS)),
    LINK_CASE(peers_without_our_authority_are_refused, OVER(TLS)),
    LINK_CASE(strangers_cannot_disturb_a_hub, OVER_ALL),
    LINK_CASE(silent_strangers_are_thrown_out, OVER_ALL),
    LINK_CASE(silent_strangers_make_room_for_a_peer, OVER_ALL),
    LINK_CASE(a_crowd_of_silent_strangers_is_bounded, OVER_ALL),
    LINK_CASE(misplaced_peers_are_refused, OVER_ALL),
    LINK_CASE(a_false_listener_is_given_up_and_dialled_again, OVER_ALL),
    {{0}, 0},
};
