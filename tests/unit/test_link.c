/* Links: two in one process, then against a process of their own that is killed in mid-stream.
 *
 * Both ends stream numbered messages with pattern bodies as fast as a window of unanswered ones
 * allows, and check what they get: from 0 in each session, no hole, no repeat. The far end is this
 * program again ("test_link far ..."). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/rand.h"
#include "link/link.h"
#include "link/make_certs.h"

#define PEERS 8      /* of a hub that a test looks at */
#define WINDOW 48    /* unanswered messages */
#define BODY_MAX 700 /* bytes behind the numbers */
#define PATIENCE_MS 20000
#define QUEUE_FRAMES 65536             /* that a send queue holds, as lib/link/conn.c has it */
#define CORK_FRAMES (QUEUE_FRAMES / 2) /* that a cork holds */

static uint64_t rand_state;

/* -------------------------------------------------------------------------------- transports --- */

/* Most cases run over each of them. */
static const char *const transports[] = {"abstract", "ipc", "tcp", "tls+tcp"};
enum { ABSTRACT, IPC, TCP, TLS, TRANSPORTS };
static int transport;
static char ipc_dir[] = "/tmp/weft-test-link-XXXXXX";

/* Certificates of an authority, and those of another one. A far end inherits the descriptors, which
 * an environment variable lists. */
struct identity {
    char ca[32], cert[32], key[32];
};
static struct identity ours, strangers;

static void name_identity(struct identity *id, int ca_fd, int cert_fd, int key_fd) {
    (void)snprintf(id->ca, sizeof id->ca, "/proc/self/fd/%d", ca_fd);
    (void)snprintf(id->cert, sizeof id->cert, "/proc/self/fd/%d", cert_fd);
    (void)snprintf(id->key, sizeof id->key, "/proc/self/fd/%d", key_fd);
}

static void make_identity(struct identity *id) {
    static const char *const names[] = {"test"};
    struct weft_link_cert cert;
    struct weft_errmsg why = {{0}};
    int ca_fd;
    weft_err err = weft_link_certs_make(1, names, &ca_fd, &cert, &why);
    WEFT_ASSERT(err == WEFT_OK);
    WEFT_ASSERT(fcntl(ca_fd, F_SETFD, 0) == 0 && fcntl(cert.cert_fd, F_SETFD, 0) == 0 &&
                fcntl(cert.key_fd, F_SETFD, 0) == 0);
    name_identity(id, ca_fd, cert.cert_fd, cert.key_fd);
}

static struct weft_link_options options_of(const struct identity *id) {
    return (struct weft_link_options){.cert = id->cert, .key = id->key, .ca = id->ca};
}

static void tell_identity(void) {
    char text[100];
    (void)snprintf(text, sizeof text, "%s %s %s", ours.ca, ours.cert, ours.key);
    (void)setenv("WEFT_TEST_IDENTITY", text, 1);
}

static void hear_identity(void) {
    const char *text = getenv("WEFT_TEST_IDENTITY");
    WEFT_ASSERT(text && sscanf(text, "%31s %31s %31s", ours.ca, ours.cert, ours.key) == 3);
}

/* ------------------------------------------------------------------------- a streaming end --- */

struct stream {
    bool up;
    uint64_t n_ups, n_downs;
    uint64_t n_sent, n_got, n_answered; /* in this session */
    uint64_t n_told;                    /* n_got as the other side knows it */
    uint64_t n_got_ever;
};

struct end {
    weft_link *link;
    uint32_t n_peers;
    bool streams; /* sends by itself */
    struct stream peers[PEERS];
};

struct numbers {
    uint64_t index, n_got;
};

static size_t body_len(uint64_t index) {
    return (size_t)(index * 7919 % BODY_MAX);
}

static void send_numbered(struct end *end, uint32_t peer) {
    struct stream *stream = &end->peers[peer];
    unsigned char bytes[sizeof(struct numbers) + BODY_MAX];
    struct numbers numbers = {stream->n_sent, stream->n_got};
    size_t len = body_len(stream->n_sent);
    memcpy(bytes, &numbers, sizeof numbers);
    memset(bytes + sizeof numbers, (int)(stream->n_sent & 0xff), len);
    weft_err err = weft_link_send(end->link, peer, bytes, sizeof numbers + len);
    WEFT_ASSERT(err == WEFT_OK);
    stream->n_sent++;
    stream->n_told = stream->n_got;
}

static void take_numbered(struct stream *stream, const struct weft_link_event *event) {
    struct numbers numbers;
    const unsigned char *bytes = event->bytes;
    WEFT_ASSERT(stream->up && event->len >= sizeof numbers);
    memcpy(&numbers, bytes, sizeof numbers);
    WEFT_ASSERT(numbers.index == stream->n_got); /* no hole, no repeat */
    WEFT_ASSERT(event->len == sizeof numbers + body_len(numbers.index));
    for (size_t i = sizeof numbers; i < event->len; i++)
        WEFT_ASSERT(bytes[i] == (numbers.index & 0xff));
    WEFT_ASSERT(numbers.n_got <= stream->n_sent && numbers.n_got >= stream->n_answered);
    stream->n_answered = numbers.n_got;
    stream->n_got++;
    stream->n_got_ever++;
}

static void take_event(struct end *end, const struct weft_link_event *event) {
    WEFT_ASSERT(event->peer < end->n_peers);
    struct stream *stream = &end->peers[event->peer];
    switch (event->kind) {
    case WEFT_LINK_UP:
        WEFT_ASSERT(!stream->up);
        *stream = (struct stream){.up = true,
                                  .n_ups = stream->n_ups + 1,
                                  .n_downs = stream->n_downs,
                                  .n_got_ever = stream->n_got_ever};
        break;
    case WEFT_LINK_DOWN:
        WEFT_ASSERT(stream->up);
        stream->up = false;
        stream->n_downs++;
        break;
    case WEFT_LINK_MESSAGE:
        take_numbered(stream, event);
        break;
    }
}

/* Answers ride on messages, so this much unanswered is a reason to send, too: otherwise two ends
 * with full windows would wait for each other. */
static bool wants_to_send(const struct stream *stream) {
    return stream->up && (stream->n_sent - stream->n_answered < WINDOW ||
                          stream->n_got - stream->n_told >= WINDOW / 4);
}

/* The owners' clock. A case may put it forward, or let it follow the turns and not the machine. */
static uint64_t ahead_ms;
static bool clock_follows_turns;

static uint64_t now_ms(void) {
    static uint64_t n_asked;
    if (clock_follows_turns) return ahead_ms + n_asked++ / 8;
    return weft_now_ms() + ahead_ms;
}

/* Waits for at most `wait_ms`, then takes everything that is there. Without the ticks of a turn
 * nothing times out. */
static void look(struct end *end, int wait_ms) {
    struct weft_link_event event;
    struct pollfd fd = {.fd = weft_link_fd(end->link), .events = POLLIN};
    if (wait_ms > 0) (void)poll(&fd, 1, wait_ms);
    while (weft_link_next(end->link, now_ms(), &event))
        take_event(end, &event);
}

/* A look, a tick, then sends. */
static void turn(struct end *end, int wait_ms) {
    look(end, wait_ms);
    weft_link_tick(end->link, now_ms());
    for (uint32_t i = 0; end->streams && i < end->n_peers; i++) {
        while (weft_link_is_up(end->link, i) && wants_to_send(&end->peers[i]))
            send_numbered(end, i);
    }
}

static void turn_both(struct end *a, struct end *b) {
    turn(a, 1);
    turn(b, 0);
}

static void open_end(struct end *end, bool dials, enum weft_link_kind kind, const char *url) {
    struct weft_errmsg why = {{0}};
    *end = (struct end){.n_peers = kind == WEFT_LINK_MANY_PEERS && !dials ? PEERS : 1};
    struct weft_link_options options = options_of(&ours);
    weft_err err = dials ? weft_link_dial(kind, url, &options, &end->link, &why)
                         : weft_link_listen(kind, url, &options, &end->link, &why);
    if (err) {
        (void)fprintf(stderr, "%s\n", why.text);
        WEFT_ASSERT(err == WEFT_OK);
    }
}

static weft_err listen_alone(const char *url, weft_link **link_out, struct weft_errmsg *why) {
    struct weft_link_options options = options_of(&ours);
    return weft_link_listen(WEFT_LINK_ONE_PEER, url, &options, link_out, why);
}

static void close_end(struct end *end) {
    weft_link_free(end->link);
    end->link = NULL;
}

/* A port that the kernel gave just now: others get it last. */
static unsigned free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    WEFT_ASSERT(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0);
    WEFT_ASSERT(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    (void)close(fd);
    return ntohs(at.sin_port);
}

static const char *fresh_url(void) {
    static char url[64];
    unsigned long long number = weft_rand_seed();
    if (transport == ABSTRACT)
        (void)snprintf(url, sizeof url, "abstract://weft-test-%llx", number);
    else if (transport == IPC)
        (void)snprintf(url, sizeof url, "ipc://%s/%llx", ipc_dir, number);
    else
        (void)snprintf(url, sizeof url, "%s://127.0.0.1:%u", transports[transport], free_port());
    return url;
}

#define WAIT_FOR(condition, step)                                                                  \
    do {                                                                                           \
        uint64_t give_up_ms = weft_now_ms() + PATIENCE_MS;                                         \
        while (!(condition)) {                                                                     \
            step;                                                                                  \
            if (weft_now_ms() > give_up_ms) fail_msg("never: %s", #condition);                     \
        }                                                                                          \
    } while (0)

/* ------------------------------------------------------------------------ in one process --- */

static void open_pair_of_ends(struct end *a, struct end *b, enum weft_link_kind kind,
                              const char *url) {
    open_end(a, false, kind, url);
    open_end(b, true, kind, url);
    WAIT_FOR(a->peers[0].up && b->peers[0].up, turn_both(a, b));
}

static void stream_between(enum weft_link_kind kind, const char *url) {
    struct end a, b;
    open_pair_of_ends(&a, &b, kind, url);
    a.streams = b.streams = true;
    WAIT_FOR(a.peers[0].n_got > 3000 && b.peers[0].n_got > 3000, turn_both(&a, &b));
    assert_int_equal(a.peers[0].n_ups, 1);
    assert_int_equal(b.peers[0].n_ups, 1);
    close_end(&b);
    WAIT_FOR(!a.peers[0].up, turn(&a, 10));
    assert_false(weft_link_is_up(a.link, 0));
    close_end(&a);
}

static void a_pair_streams_both_ways(void **state) {
    (void)state;
    stream_between(WEFT_LINK_ONE_PEER, fresh_url());
}

static void a_hub_streams_both_ways(void **state) {
    (void)state;
    stream_between(WEFT_LINK_MANY_PEERS, fresh_url());
}

static void dialling_first_and_listening_later_is_fine(void **state) {
    (void)state;
    const enum weft_link_kind kinds[] = {WEFT_LINK_ONE_PEER, WEFT_LINK_MANY_PEERS};
    for (int i = 0; i < 2; i++) {
        struct end a, b;
        const char *url = fresh_url();
        open_end(&b, true, kinds[i], url);
        for (int k = 0; k < 20; k++)
            turn(&b, 5);
        assert_int_equal(weft_link_send(b.link, 0, "x", 1), WEFT_E_CLOSED);
        open_end(&a, false, kinds[i], url);
        WAIT_FOR(a.peers[0].up && b.peers[0].up, turn_both(&a, &b));
        close_end(&a);
        WAIT_FOR(!b.peers[0].up, turn(&b, 10));
        close_end(&b);
    }
}

static void bad_urls_are_refused_in_a_sentence(void **state) {
    (void)state;
    static const char *const urls[] = {
        "",
        "nonsense",
        "http//x",
        "abstract:/x",
        "abstract://",
        "carrier://pigeon",
        "ws://127.0.0.1:80",
        "tcp://127.0.0.1",
        "tcp://:80",
        "tcp://127.0.0.1:",
        "ipc://",
        ("ipc:///tmp/"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaa"),
    };
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        for (int kind = WEFT_LINK_ONE_PEER; kind <= WEFT_LINK_MANY_PEERS; kind++) {
            struct weft_errmsg why = {{0}};
            weft_link *link = (weft_link *)&why;
            assert_int_equal(weft_link_dial((enum weft_link_kind)kind, urls[i], NULL, &link, &why),
                             WEFT_E_INVAL);
            assert_null(link);
            assert_true(why.text[0]);
            assert_int_equal(
                weft_link_listen((enum weft_link_kind)kind, urls[i], NULL, &link, &why),
                WEFT_E_INVAL);
            assert_null(link);
        }
    }
}

static void an_address_in_use_is_an_error_after_two_seconds(void **state) {
    (void)state;
    const char *url = fresh_url();
    struct end a;
    struct weft_errmsg why = {{0}};
    weft_link *link;
    open_end(&a, false, WEFT_LINK_ONE_PEER, url);
    uint64_t start_ms = weft_now_ms();
    assert_int_equal(listen_alone(url, &link, &why), WEFT_E_IO);
    assert_in_range(weft_now_ms() - start_ms, 1500, 10000);
    assert_non_null(strstr(why.text, url));
    close_end(&a);
}

static void messages_over_the_limit_are_refused(void **state) {
    (void)state;
    struct end a, b;
    open_pair_of_ends(&a, &b, WEFT_LINK_ONE_PEER, fresh_url());
    assert_int_equal(weft_link_send(b.link, 0, "x", (size_t)WEFT_MESSAGE_BYTES_MAX + 1),
                     WEFT_E_TOOBIG);
    assert_true(weft_link_is_up(b.link, 0));
    close_end(&b);
    close_end(&a);
}

static void large_and_empty_messages_arrive(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 65535, 65536, (size_t)8 << 20};
    struct end a, b;
    open_pair_of_ends(&a, &b, WEFT_LINK_MANY_PEERS, fresh_url());
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *bytes = malloc(sizes[i] + 1);
        struct weft_link_event event = {.kind = WEFT_LINK_UP};
        assert_non_null(bytes);
        memset(bytes, (int)i + 1, sizes[i] + 1);
        assert_int_equal(weft_link_send(b.link, 0, bytes, sizes[i]), WEFT_OK);
        /* The sender's turns send what did not fit the kernel's buffers at once. */
        WAIT_FOR(weft_link_next(a.link, weft_now_ms(), &event), turn(&b, 1));
        assert_int_equal(event.kind, WEFT_LINK_MESSAGE);
        assert_int_equal(event.len, sizes[i]);
        assert_memory_equal(event.bytes, bytes, sizes[i]);
        free(bytes);
    }
    close_end(&a);
    close_end(&b);
}

/* Nothing comes while it is corked, and all in order afterwards; messages sent later come in the
 * end, and a new session begins uncorked. */
static void corked_messages_come_together(void **state) {
    (void)state;
    struct end hub, router;
    open_pair_of_ends(&hub, &router, WEFT_LINK_MANY_PEERS, fresh_url());
    WAIT_FOR(hub.peers[0].up && router.peers[0].up, turn_both(&hub, &router));
    weft_link_cork(hub.link, 0, true);
    weft_link_cork(hub.link, 0, true);
    for (uint64_t i = 0; i < 3; i++)
        send_numbered(&hub, 0);
    for (int i = 0; i < 20; i++)
        turn_both(&hub, &router);
    assert_int_equal(router.peers[0].n_got, 0);
    weft_link_cork(hub.link, 0, false);
    WAIT_FOR(router.peers[0].n_got == 3, turn_both(&hub, &router));
    send_numbered(&hub, 0);
    WAIT_FOR(router.peers[0].n_got == 4, turn_both(&hub, &router));

    weft_link_cork(hub.link, 0, true);
    for (int i = 0; i < CORK_FRAMES; i++)
        send_numbered(&hub, 0);
    for (int i = 0; i < 20; i++)
        turn(&router, 1);
    assert_int_equal(router.peers[0].n_got, 4);
    send_numbered(&hub, 0); /* the cork bursts */
    WAIT_FOR(router.peers[0].n_got > 4, turn(&router, 1));
    WAIT_FOR(router.peers[0].n_got == hub.peers[0].n_sent, turn_both(&hub, &router));

    weft_link_cork(hub.link, 0, true);
    weft_link_reset(hub.link, 0);
    weft_link_cork(hub.link, 0, false);
    WAIT_FOR(hub.peers[0].n_ups == 2 && router.peers[0].n_ups == 2, turn_both(&hub, &router));
    send_numbered(&hub, 0);
    WAIT_FOR(router.peers[0].n_got == 1, turn_both(&hub, &router));
    close_end(&router);
    close_end(&hub);
}

static void a_peer_that_dies_while_corked_is_noticed(void **state) {
    (void)state;
    struct end hub, router;
    open_pair_of_ends(&hub, &router, WEFT_LINK_MANY_PEERS, fresh_url());
    WAIT_FOR(hub.peers[0].up && router.peers[0].up, turn_both(&hub, &router));
    turn(&hub, 0);
    weft_link_cork(hub.link, 0, true);
    send_numbered(&hub, 0);
    close_end(&router);
    weft_link_cork(hub.link, 0, false);
    struct pollfd fd = {.fd = weft_link_fd(hub.link), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
    turn(&hub, 0);
    assert_false(hub.peers[0].up);
    close_end(&hub);
}

static void a_reset_from_either_side_starts_a_new_session(void **state) {
    (void)state;
    const enum weft_link_kind kinds[] = {WEFT_LINK_ONE_PEER, WEFT_LINK_MANY_PEERS};
    for (int i = 0; i < 2; i++) {
        struct end a, b;
        open_pair_of_ends(&a, &b, kinds[i], fresh_url());
        a.streams = b.streams = true;
        for (uint64_t k = 1; k <= 20; k++) {
            uint64_t some = weft_rand_below(&rand_state, 200);
            WAIT_FOR(a.peers[0].n_got > some && b.peers[0].n_got > some, turn_both(&a, &b));
            struct end *end = k % 2 ? &a : &b;
            ahead_ms += 1000; /* it lasted, so the next one is not long in coming */
            turn_both(&a, &b);
            weft_link_reset(end->link, 0);
            assert_int_equal(weft_link_send(end->link, 0, "x", 1), WEFT_E_CLOSED);
            WAIT_FOR(a.peers[0].n_downs == k && b.peers[0].n_downs == k && a.peers[0].up &&
                         b.peers[0].up,
                     turn_both(&a, &b));
        }
        assert_int_equal(a.peers[0].n_ups, 21);
        assert_int_equal(b.peers[0].n_ups, 21);
        close_end(&b);
        close_end(&a);
    }
}

/* Messages sent before the sender heard FULL come in order, up to a point, and then DOWN. */
static void an_owner_that_does_not_look_makes_the_sender_full(void **state) {
    (void)state;
    struct end a, b;
    struct weft_link_event event;
    uint64_t n_sent = 0, n_got = 0;
    unsigned char bytes[200] = {0}; /* the kernel's buffers for TCP hold some megabytes */
    weft_err err = WEFT_OK;
    open_pair_of_ends(&a, &b, WEFT_LINK_ONE_PEER, fresh_url());
    for (; !err && n_sent < 200000; n_sent++) {
        memcpy(bytes, &n_sent, sizeof n_sent);
        err = weft_link_send(b.link, 0, bytes, sizeof bytes);
        /* Slowly at first, so that the far inbox exceeds its bound before the send queue does. */
        if (n_sent < 10000 && n_sent % 64 == 0) (void)usleep(500);
    }
    assert_int_equal(err, WEFT_E_FULL);
    assert_in_range(n_sent, QUEUE_FRAMES, 150000);
    bool down = false;
    while (!down) {
        weft_link_tick(a.link, weft_now_ms());
        while (!down && weft_link_next(a.link, weft_now_ms(), &event)) {
            if (event.kind == WEFT_LINK_MESSAGE) {
                uint64_t index;
                memcpy(&index, event.bytes, sizeof index);
                assert_int_equal(index, n_got);
                n_got++;
            }
            down = event.kind == WEFT_LINK_DOWN;
        }
    }
    assert_in_range(n_got, 100, n_sent); /* as many as the kernel held */
    a.peers[0].up = false;
    a.streams = b.streams = true;
    WAIT_FOR(b.peers[0].n_ups == 2 && a.peers[0].n_got > 100, turn_both(&a, &b));
    close_end(&b);
    close_end(&a);
}

static uint32_t count_fds(void) {
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

/* Routers that come and go leave nothing behind in the hub. */
static void a_hub_survives_a_thousand_routers_that_come_and_go(void **state) {
    (void)state;
    const uint64_t n_rounds = getenv("WEFT_SANITIZED") ? 200 : 1000;
    struct end hub, router;
    const char *url = fresh_url();
    open_pair_of_ends(&hub, &router, WEFT_LINK_MANY_PEERS, url);
    close_end(&router);
    WAIT_FOR(!hub.peers[0].up, turn(&hub, 10));
    uint32_t n_fds = count_fds();
    for (uint64_t i = 0; i < n_rounds; i++) {
        open_end(&router, true, WEFT_LINK_MANY_PEERS, url);
        hub.streams = router.streams = true;
        WAIT_FOR(router.peers[0].n_got > 3, turn_both(&hub, &router));
        close_end(&router);
        WAIT_FOR(!hub.peers[0].up, turn(&hub, 10));
    }
    WAIT_FOR(count_fds() <= n_fds, (void)usleep(1000));
    assert_int_equal(hub.peers[0].n_ups, n_rounds + 1);
    close_end(&hub);
}

static uint64_t all_downs(const struct end *end) {
    uint64_t n_downs = 0;
    for (int i = 0; i < PEERS; i++)
        n_downs += end->peers[i].n_downs;
    return n_downs;
}

static void a_hub_keeps_routers_apart(void **state) {
    (void)state;
    struct end hub, routers[4];
    const char *url = fresh_url();
    open_end(&hub, false, WEFT_LINK_MANY_PEERS, url);
    hub.streams = true;
    for (int i = 0; i < 4; i++) {
        open_end(&routers[i], true, WEFT_LINK_MANY_PEERS, url);
        routers[i].streams = true;
    }
#define ALL_TURN()                                                                                 \
    do {                                                                                           \
        turn(&hub, 1);                                                                             \
        for (int r = 0; r < 4; r++)                                                                \
            if (routers[r].link) turn(&routers[r], 0);                                             \
    } while (0)
    for (int i = 0; i < 4; i++)
        WAIT_FOR(routers[i].peers[0].n_got > 200, ALL_TURN());
    close_end(&routers[2]);
    uint64_t n_got = routers[0].peers[0].n_got;
    WAIT_FOR(routers[0].peers[0].n_got > n_got + 200 && routers[3].peers[0].n_got > n_got + 200,
             ALL_TURN());
    WAIT_FOR(all_downs(&hub) > 0, ALL_TURN()); /* TLS may hear of it later than of 200 messages */
    uint64_t n_ups = 0;
    for (int i = 0; i < PEERS; i++)
        n_ups += hub.peers[i].n_ups;
    assert_int_equal(n_ups, 4);
    assert_int_equal(all_downs(&hub), 1);
    for (int i = 0; i < 4; i++)
        if (routers[i].link) close_end(&routers[i]);
    close_end(&hub);
#undef ALL_TURN
}

/* ------------------------------------------------------------------------------ a far end --- */

/* test_link far DIALS KIND URL [UID]: streams until it is killed. */
static int far_main(char **argv) {
    struct end end;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    hear_identity();
    if (argv[5] && setuid((uid_t)strtoul(argv[5], NULL, 10)) != 0) return 2;
    open_end(&end, argv[2][0] == '1', argv[3][0] == '1' ? WEFT_LINK_MANY_PEERS : WEFT_LINK_ONE_PEER,
             argv[4]);
    end.streams = true;
    for (;;)
        turn(&end, 50);
}

static pid_t spawn_far(bool dials, enum weft_link_kind kind, const char *url, const char *uid) {
    char *const argv[] = {"test_link", "far", dials ? "1" : "0", kind ? "1" : "0", (char *)url,
                          (char *)uid, NULL};
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execv("/proc/self/exe", argv);
        _exit(127);
    }
    return pid;
}

static void kill_far(pid_t pid) {
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* not by an assertion */
}

static bool any_up(const struct end *end) {
    for (uint32_t i = 0; i < end->n_peers; i++) {
        if (end->peers[i].up) return true;
    }
    return false;
}

static uint64_t sum_got(const struct end *end) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < end->n_peers; i++)
        n += end->peers[i].n_got_ever;
    return n;
}

/* Kills and restarts the far end 20 times in mid-stream. */
static void kill_in_mid_stream(bool far_dials, enum weft_link_kind kind) {
    struct end near;
    const char *url = fresh_url();
    uint64_t slowest_ms = 0, n_ups = 0, n_downs = 0;
    open_end(&near, !far_dials, kind, url);
    near.streams = true;
    for (int i = 0; i < 20; i++) {
        uint64_t some = sum_got(&near) + 1 + weft_rand_below(&rand_state, 2000);
        pid_t pid = spawn_far(far_dials, kind, url, NULL);
        WAIT_FOR(sum_got(&near) >= some, turn(&near, 10));
        if (i % 2) { /* while messages pile up unread */
            (void)usleep(1000 * weft_rand_below(&rand_state, 20));
        }
        kill_far(pid);
        uint64_t killed_ms = weft_now_ms();
        WAIT_FOR(!any_up(&near), turn(&near, 10));
        uint64_t took_ms = weft_now_ms() - killed_ms;
        slowest_ms = took_ms > slowest_ms ? took_ms : slowest_ms;
    }
    for (uint32_t i = 0; i < near.n_peers; i++) {
        n_ups += near.peers[i].n_ups;
        n_downs += near.peers[i].n_downs;
    }
    /* A new far end may end a session by itself while it connects, so at least 20. */
    assert_in_range(n_ups, 20, 40);
    assert_int_equal(n_downs, n_ups);
    (void)printf("%llu messages, %llu sessions; a death was noticed after %llu ms at most\n",
                 (unsigned long long)sum_got(&near), (unsigned long long)n_ups,
                 (unsigned long long)slowest_ms);
    assert_in_range(slowest_ms, 0, 1500);
    close_end(&near);
}

static void a_killed_worker_is_noticed_and_replaced(void **state) {
    (void)state;
    kill_in_mid_stream(true, WEFT_LINK_ONE_PEER);
}

static void a_killed_router_is_noticed_and_replaced(void **state) {
    (void)state;
    kill_in_mid_stream(true, WEFT_LINK_MANY_PEERS);
}

static void a_worker_survives_killed_schedulers(void **state) {
    (void)state;
    kill_in_mid_stream(false, WEFT_LINK_ONE_PEER);
}

static void a_router_survives_killed_schedulers(void **state) {
    (void)state;
    kill_in_mid_stream(false, WEFT_LINK_MANY_PEERS);
}

static void a_stopped_peer_makes_the_send_full_and_then_comes_back(void **state) {
    (void)state;
    const enum weft_link_kind kinds[] = {WEFT_LINK_ONE_PEER, WEFT_LINK_MANY_PEERS};
    static const unsigned char bytes[1024];
    for (int i = 0; i < 2; i++) {
        struct end near;
        const char *url = fresh_url();
        weft_err err = WEFT_OK;
        uint32_t n = 0;
        open_end(&near, false, kinds[i], url);
        pid_t pid = spawn_far(true, kinds[i], url, NULL);
        WAIT_FOR(near.peers[0].n_got > 20, turn(&near, 10));
        assert_int_equal(kill(pid, SIGSTOP), 0);
        for (; n < 200000 && !err; n++)
            err = weft_link_send(near.link, 0, bytes, sizeof bytes);
        assert_int_equal(err, WEFT_E_FULL);
        assert_false(weft_link_is_up(near.link, 0));
        assert_int_equal(weft_link_send(near.link, 0, "x", 1), WEFT_E_CLOSED);
        turn(&near, 0);
        assert_false(near.peers[0].up); /* DOWN was told */
        kill_far(pid);
        pid = spawn_far(true, kinds[i], url, NULL);
        near.streams = true;
        WAIT_FOR(near.peers[0].n_got > 20, turn(&near, 10));
        kill_far(pid);
        close_end(&near);
    }
}

static void a_peer_of_another_user_is_turned_away(void **state) {
    (void)state;
    if (geteuid() != 0) {
        (void)printf("SKIPPED: needs root to become somebody else\n");
        skip();
    }
    struct end near;
    const char *url = fresh_url();
    for (int kind = WEFT_LINK_ONE_PEER; kind <= WEFT_LINK_MANY_PEERS; kind++) {
        open_end(&near, false, (enum weft_link_kind)kind, url);
        pid_t pid = spawn_far(true, (enum weft_link_kind)kind, url, "65534");
        for (int i = 0; i < 50; i++)
            turn(&near, 10);
        assert_int_equal(near.peers[0].n_ups, 0);
        kill_far(pid);
        close_end(&near);
        /* And the other way round: nobody's listener gets nothing from us. */
        pid = spawn_far(false, (enum weft_link_kind)kind, url, "65534");
        open_end(&near, true, (enum weft_link_kind)kind, url);
        for (int i = 0; i < 50; i++)
            turn(&near, 10);
        assert_int_equal(near.peers[0].n_ups, 0);
        close_end(&near);
        kill_far(pid);
    }
}

/* The linker turns calls of nng_stream_get_uint64 and others into these. */
static bool users_are_unknown;
static uint32_t n_unknown, n_mails;

struct wefti_link_inbox;
struct wefti_link_mail;
bool __real_wefti_link_inbox_take(struct wefti_link_inbox *inbox, struct wefti_link_mail *mail_out);
bool __wrap_wefti_link_inbox_take(struct wefti_link_inbox *inbox, struct wefti_link_mail *mail_out);

bool __wrap_wefti_link_inbox_take(struct wefti_link_inbox *inbox,
                                  struct wefti_link_mail *mail_out) {
    bool any = __real_wefti_link_inbox_take(inbox, mail_out);
    if (any) n_mails++;
    return any;
}

static uint32_t n_dials;

void __real_nng_stream_dialer_dial(nng_stream_dialer *dialer, nng_aio *aio);
void __wrap_nng_stream_dialer_dial(nng_stream_dialer *dialer, nng_aio *aio);

void __wrap_nng_stream_dialer_dial(nng_stream_dialer *dialer, nng_aio *aio) {
    n_dials++;
    __real_nng_stream_dialer_dial(dialer, aio);
}

static bool is_impatient;

void __real_nng_aio_set_timeout(nng_aio *aio, nng_duration ms);
void __wrap_nng_aio_set_timeout(nng_aio *aio, nng_duration ms);

void __wrap_nng_aio_set_timeout(nng_aio *aio, nng_duration ms) {
    __real_nng_aio_set_timeout(aio, is_impatient ? ms / 10 : ms);
}

static nng_duration pause_ms; /* before the last dial */

void __real_nng_sleep_aio(nng_duration ms, nng_aio *aio);
void __wrap_nng_sleep_aio(nng_duration ms, nng_aio *aio);

void __wrap_nng_sleep_aio(nng_duration ms, nng_aio *aio) {
    pause_ms = ms;
    __real_nng_sleep_aio(ms, aio);
}

bool __real_wefti_link_user_of_tcp(nng_stream *stream, uint64_t *uid_out);
bool __wrap_wefti_link_user_of_tcp(nng_stream *stream, uint64_t *uid_out);

bool __wrap_wefti_link_user_of_tcp(nng_stream *stream, uint64_t *uid_out) {
    if (!users_are_unknown) return __real_wefti_link_user_of_tcp(stream, uid_out);
    n_unknown++;
    return false;
}

int __real_nng_stream_get_uint64(nng_stream *stream, const char *name, uint64_t *value_out);
int __wrap_nng_stream_get_uint64(nng_stream *stream, const char *name, uint64_t *value_out);

int __wrap_nng_stream_get_uint64(nng_stream *stream, const char *name, uint64_t *value_out) {
    if (!users_are_unknown) return __real_nng_stream_get_uint64(stream, name, value_out);
    n_unknown++;
    return NNG_ENOTSUP;
}

static void a_peer_of_unknown_user_is_turned_away(void **state) {
    (void)state;
    struct end near;
    const char *url = fresh_url();
    for (int dials = 0; dials <= 1; dials++) {
        users_are_unknown = true;
        n_unknown = 0;
        pid_t pid = spawn_far(!dials, WEFT_LINK_ONE_PEER, url, NULL);
        open_end(&near, dials, WEFT_LINK_ONE_PEER, url);
        WAIT_FOR(n_unknown >= 3, turn(&near, 10));
        assert_int_equal(near.peers[0].n_ups, 0);
        users_are_unknown = false; /* the same two, and nothing else has been in their way */
        WAIT_FOR(near.peers[0].up, turn(&near, 10));
        close_end(&near);
        kill_far(pid);
    }
}

static void start_over(struct end *a, struct end *b) {
    uint64_t n_ups = b->peers[0].n_ups;
    weft_link_reset(a->link, 0);
    WAIT_FOR(b->peers[0].n_ups > n_ups && a->peers[0].up, turn_both(a, b));
}

/* An end that finds fault with each session at once does not keep both busy. */
static void sessions_that_do_not_last_come_slowly(void **state) {
    (void)state;
    struct end a, b;
    const nng_duration pauses[] = {10, 20, 40, 80, 160, 200, 200};
    clock_follows_turns = true;
    open_pair_of_ends(&a, &b, WEFT_LINK_ONE_PEER, fresh_url());
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        start_over(&a, &b);
        assert_int_equal(pause_ms, pauses[i]);
    }
    ahead_ms += 1000;
    turn_both(&a, &b);
    for (int i = 0; i < 2; i++) {
        start_over(&a, &b);
        assert_int_equal(pause_ms, pauses[i]);
    }
    clock_follows_turns = false;
    close_end(&b);
    close_end(&a);
}

/* -------------------------------------------------------------------------------- hostility --- */

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

static void tls_wants_three_files_that_are_what_they_should_be(void **state) {
    (void)state;
    struct weft_link_options good = options_of(&ours);
    const struct {
        struct weft_link_options options;
        const char *said;
    } cases[] = {
        {{0}, "--link-ca"},
        {{.ca = good.ca}, "--link-cert"},
        {{.ca = good.ca, .cert = good.cert}, "--link-key"},
        {{.ca = "/nowhere", .cert = good.cert, .key = good.key}, "/nowhere"},
        {{.ca = "/dev/zero", .cert = good.cert, .key = good.key}, "--link-ca"},
        {{.ca = "/dev/null", .cert = good.cert, .key = good.key}, "--link-ca"},
        {{.ca = good.ca, .cert = good.key, .key = good.key}, "--link-cert"},
        {{.ca = good.ca, .cert = good.cert, .key = good.cert}, "--link-key"},
        {{.ca = good.ca, .cert = "/", .key = good.key}, "--link-cert"},
        {{.ca = good.ca, .cert = good.cert, .key = strangers.key}, "--link-key is not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weft_errmsg why = {{0}};
        weft_link *link;
        assert_int_equal(weft_link_dial(WEFT_LINK_ONE_PEER, "tls+tcp://127.0.0.1:9",
                                        &cases[i].options, &link, &why),
                         WEFT_E_INVAL);
        assert_null(link);
        assert_non_null(strstr(why.text, cases[i].said));
        assert_int_equal(weft_link_listen(WEFT_LINK_ONE_PEER, "tls+tcp://127.0.0.1:9",
                                          &cases[i].options, &link, &why),
                         WEFT_E_INVAL);
    }
}

static void plain_tcp_beyond_this_host_wants_insisting(void **state) {
    (void)state;
    static const char *const far_away[] = {"tcp://192.0.2.1:99",
                                           "tcp://0.0.0.0:99",
                                           "tcp://example.org:99",
                                           "tcp://[2001:db8::1]:99",
                                           "tcp://127.0.0.1.example.org:99",
                                           "tcp://*:99"};
    static const char *const near[] = {"tcp://127.0.0.1:99", "tcp://127.3.2.1:99",
                                       "tcp://localhost:99", "tcp://[::1]:99"};
    struct weft_link_options insists = {.insecure = true};
    struct weft_errmsg why;
    weft_link *link;
    for (size_t i = 0; i < sizeof far_away / sizeof far_away[0]; i++) {
        assert_int_equal(weft_link_dial(WEFT_LINK_ONE_PEER, far_away[i], NULL, &link, &why),
                         WEFT_E_INVAL);
        assert_non_null(strstr(why.text, "--insecure-links"));
        assert_int_equal(weft_link_listen(WEFT_LINK_ONE_PEER, far_away[i], NULL, &link, &why),
                         WEFT_E_INVAL);
    }
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
        assert_int_equal(weft_link_dial(WEFT_LINK_ONE_PEER, near[i], NULL, &link, &why), WEFT_OK);
        weft_link_free(link);
    }
    assert_int_equal(weft_link_dial(WEFT_LINK_ONE_PEER, far_away[0], &insists, &link, &why),
                     WEFT_OK);
    weft_link_free(link);
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

static void a_dead_socket_is_replaced_and_another_file_stays(void **state) {
    (void)state;
    struct weft_errmsg why;
    weft_link *link;
    char path[] = "/tmp/weft-test-link-XXXXXX", url[64], kept[4];
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, "mine", 4), 4);
    (void)snprintf(url, sizeof url, "ipc://%s", path);
    assert_int_equal(listen_alone(url, &link, &why), WEFT_E_IO);
    assert_int_equal(pread(file, kept, 4, 0), 4);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    (void)close(file);

    pid_t pid = spawn_far(false, WEFT_LINK_ONE_PEER, url, NULL);
    WAIT_FOR(access(path, F_OK) == 0, (void)usleep(1000));
    assert_int_equal(listen_alone(url, &link, &why), WEFT_E_IO); /* in use */
    kill_far(pid);                                               /* its file stays */
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(listen_alone(url, &link, &why), WEFT_OK);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    weft_link_free(link);
    assert_int_not_equal(access(path, F_OK), 0);
}

#define EVERYWHERE                                                                                 \
    cmocka_unit_test(a_pair_streams_both_ways), cmocka_unit_test(a_hub_streams_both_ways),         \
        cmocka_unit_test(dialling_first_and_listening_later_is_fine),                              \
        cmocka_unit_test(an_address_in_use_is_an_error_after_two_seconds),                         \
        cmocka_unit_test(large_and_empty_messages_arrive),                                         \
        cmocka_unit_test(corked_messages_come_together),                                           \
        cmocka_unit_test(a_peer_that_dies_while_corked_is_noticed),                                \
        cmocka_unit_test(a_reset_from_either_side_starts_a_new_session),                           \
        cmocka_unit_test(an_owner_that_does_not_look_makes_the_sender_full),                       \
        cmocka_unit_test(sessions_that_do_not_last_come_slowly),                                   \
        cmocka_unit_test(a_hub_keeps_routers_apart),                                               \
        cmocka_unit_test(a_killed_worker_is_noticed_and_replaced),                                 \
        cmocka_unit_test(a_killed_router_is_noticed_and_replaced),                                 \
        cmocka_unit_test(a_worker_survives_killed_schedulers),                                     \
        cmocka_unit_test(a_router_survives_killed_schedulers),                                     \
        cmocka_unit_test(a_stopped_peer_makes_the_send_full_and_then_comes_back),                  \
        cmocka_unit_test(strangers_cannot_disturb_a_hub),                                          \
        cmocka_unit_test(silent_strangers_are_thrown_out),                                         \
        cmocka_unit_test(silent_strangers_make_room_for_a_peer),                                   \
        cmocka_unit_test(a_crowd_of_silent_strangers_is_bounded),                                  \
        cmocka_unit_test(misplaced_peers_are_refused),                                             \
        cmocka_unit_test(a_false_listener_is_given_up_and_dialled_again)

static const struct CMUnitTest over_abstract[] = {
    cmocka_unit_test(bad_urls_are_refused_in_a_sentence),
    cmocka_unit_test(messages_over_the_limit_are_refused),
    cmocka_unit_test(a_hub_survives_a_thousand_routers_that_come_and_go),
    cmocka_unit_test(a_turn_ends_in_work_without_events),
    cmocka_unit_test(strangers_send_short_frames_only),
    cmocka_unit_test(a_peer_of_another_user_is_turned_away),
    cmocka_unit_test(a_peer_of_unknown_user_is_turned_away),
    EVERYWHERE,
};
static const struct CMUnitTest over_ipc[] = {
    cmocka_unit_test(a_dead_socket_is_replaced_and_another_file_stays),
    cmocka_unit_test(a_peer_of_unknown_user_is_turned_away),
    EVERYWHERE,
};
static const struct CMUnitTest over_tcp[] = {
    cmocka_unit_test(plain_tcp_beyond_this_host_wants_insisting),
    cmocka_unit_test(a_stranger_that_has_left_is_not_taken_for_root),
    cmocka_unit_test(a_dial_without_answer_is_tried_again),
    cmocka_unit_test(a_turn_looks_up_one_user),
    cmocka_unit_test(strangers_send_short_frames_only),
    cmocka_unit_test(a_peer_of_another_user_is_turned_away),
    EVERYWHERE,
};
static const struct CMUnitTest over_tls[] = {
    cmocka_unit_test(tls_wants_three_files_that_are_what_they_should_be),
    cmocka_unit_test(peers_without_our_authority_are_refused),
    cmocka_unit_test(a_dial_without_answer_is_tried_again),
    EVERYWHERE,
};

/* test_link TRANSPORT [CASE] */
int main(int argc, char **argv) {
    if (argc >= 5 && strcmp(argv[1], "far") == 0) return far_main(argv);
    weft_log_init("test_link", getenv("WEFT_TEST_LOG") ? WEFT_LOG_DEBUG : WEFT_LOG_ERROR, false);
    rand_state = weft_rand_test_seed();
    while (argc > 1 && transport < TRANSPORTS && strcmp(argv[1], transports[transport]) != 0)
        transport++;
    if (argc < 2 || transport == TRANSPORTS) return 2;
    if (argc == 3) cmocka_set_test_filter(argv[2]);
    WEFT_ASSERT(mkdtemp(ipc_dir));
    make_identity(&ours);
    make_identity(&strangers);
    tell_identity();
    int rv;
    if (transport == ABSTRACT)
        rv = cmocka_run_group_tests(over_abstract, NULL, NULL);
    else if (transport == IPC)
        rv = cmocka_run_group_tests(over_ipc, NULL, NULL);
    else if (transport == TCP)
        rv = cmocka_run_group_tests(over_tcp, NULL, NULL);
    else
        rv = cmocka_run_group_tests(over_tls, NULL, NULL);
    (void)rmdir(ipc_dir);
    return rv;
}
