/* Listening sockets that go from one server to the next: the side that has them ticks in a thread,
 * and the clock of its guests is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inside/router/handover.h"

#define INSTANCE 77

struct giver {
    struct handover handover;
    int fds[WEFT_HANDOVER_CONTROL];
    char name[WEFT_HANDOVER_NAME_BYTES];
    pthread_t thread;
    atomic_bool is_over, has_given;
    bool runs;
    uint64_t now_ms;
};

static struct giver giver;
static uint32_t n_fds_before;

static uint32_t n_open(void) {
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

static int listen_somewhere(uint32_t *port_out) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    if (port_out) *port_out = ntohs(at.sin_port);
    return fd;
}

static int set_up(void **state) {
    (void)state;
    uint32_t port = 0;
    struct weft_errmsg why = {""};
    memset(&giver, 0, sizeof giver);
    n_fds_before = n_open();
    giver.now_ms = 1000;
    giver.fds[WEFT_HANDOVER_HTTP] = listen_somewhere(&port);
    giver.fds[WEFT_HANDOVER_RPC] = listen_somewhere(NULL);
    wefti_handover_name("127.0.0.1", port, giver.name);
    wefti_handover_init(&giver.handover);
    assert_int_equal(wefti_handover_open(&giver.handover, giver.name, -1, INSTANCE, &why), WEFT_OK);
    return 0;
}

static bool tick(void) {
    return wefti_handover_tick(&giver.handover, giver.fds, giver.now_ms);
}

static void *tick_all_the_time(void *unused) {
    (void)unused;
    while (!giver.is_over) {
        if (tick()) {
            giver.has_given = true;
            wefti_handover_close(&giver.handover);
        }
        (void)poll(NULL, 0, 1);
    }
    return NULL;
}

static void begin(void) {
    giver.runs = true;
    assert_int_equal(pthread_create(&giver.thread, NULL, tick_all_the_time, NULL), 0);
}

static void end(void) {
    giver.is_over = true;
    if (giver.runs) assert_int_equal(pthread_join(giver.thread, NULL), 0);
    giver.runs = false;
    giver.is_over = false;
}

static int tear_down(void **state) {
    (void)state;
    end();
    wefti_handover_close(&giver.handover);
    (void)close(giver.fds[WEFT_HANDOVER_HTTP]);
    (void)close(giver.fds[WEFT_HANDOVER_RPC]);
    assert_int_equal(n_open(), n_fds_before); /* nobody has lost a descriptor */
    return 0;
}

/* A connection that says what it likes. */
static int dial_as_guest(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t n = strlen(giver.name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    memcpy(at.sun_path + 1, giver.name, n);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, len), 0);
    return fd;
}

static struct wefti_handover_message message(uint32_t kind) {
    struct wefti_handover_message m = {
        .version = WEFT_HANDOVER_VERSION, .kind = kind, .instance = INSTANCE};
    memcpy(m.magic, "weftsock", sizeof m.magic);
    return m;
}

static void send_bytes(int fd, const void *bytes, size_t n) {
    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
}

/* The kind of what came; 0: the other side has hung up, -1: nothing. */
static int received(int fd) {
    struct wefti_handover_message m;
    ssize_t n = recv(fd, &m, sizeof m, 0);
    if (n < 0) return -1;
    if (n == 0) return 0;
    assert_int_equal(n, sizeof m);
    assert_int_equal(m.version, WEFT_HANDOVER_VERSION);
    return (int)m.kind;
}

static uint32_t port_of(int fd) {
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    memset(&at, 0, sizeof at);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    return ntohs(at.sin_port);
}

/* ------------------------------------------------------------------------------------ cases --- */

static void who_asks_gets_the_sockets_and_the_name(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    struct handover_offer offer;
    struct handover next;
    bool is_there = false;
    uint64_t instance = 0;
    begin();
    assert_int_equal(wefti_handover_look(giver.name, &is_there, &instance, &why), WEFT_OK);
    assert_true(is_there);
    assert_int_equal(instance, INSTANCE);
    assert_int_equal(wefti_handover_ask(giver.name, instance, &offer, &why), WEFT_OK);
    for (uint32_t i = 0; i < WEFT_HANDOVER_CONTROL; i++)
        assert_int_equal(port_of(offer.fds[i]), port_of(giver.fds[i]));
    assert_false(giver.has_given);
    assert_int_equal(wefti_handover_accept(&offer, giver.name, &why), WEFT_OK);
    end();
    assert_true(giver.has_given);
    wefti_handover_init(&next);
    assert_int_equal(wefti_handover_open(&next, giver.name, offer.fds[WEFT_HANDOVER_CONTROL],
                                         INSTANCE + 1, &why),
                     WEFT_OK);
    offer.fds[WEFT_HANDOVER_CONTROL] = -1;
    giver.handover = next; /* which answers under the same name */
    begin();
    assert_int_equal(wefti_handover_look(giver.name, &is_there, &instance, &why), WEFT_OK);
    assert_true(is_there);
    assert_int_equal(instance, INSTANCE + 1);
    wefti_handover_release(&offer);
}

static void a_socket_that_is_not_there_is_not_offered(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    struct handover_offer offer;
    int rpc = giver.fds[WEFT_HANDOVER_RPC];
    giver.fds[WEFT_HANDOVER_RPC] = -1;
    begin();
    assert_int_equal(wefti_handover_ask(giver.name, INSTANCE, &offer, &why), WEFT_OK);
    assert_true(offer.fds[WEFT_HANDOVER_HTTP] >= 0 && offer.fds[WEFT_HANDOVER_CONTROL] >= 0);
    assert_int_equal(offer.fds[WEFT_HANDOVER_RPC], -1);
    assert_int_equal(port_of(offer.fds[WEFT_HANDOVER_HTTP]),
                     port_of(giver.fds[WEFT_HANDOVER_HTTP]));
    wefti_handover_release(&offer);
    end();
    giver.fds[WEFT_HANDOVER_RPC] = rpc;
}

static void until_it_is_accepted_an_offer_changes_nothing(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    struct handover_offer offer;
    begin();
    for (uint32_t i = 0; i < 3; i++) { /* each dies with its offer in hand */
        assert_int_equal(wefti_handover_ask(giver.name, INSTANCE, &offer, &why), WEFT_OK);
        wefti_handover_release(&offer);
        int fd = dial_as_guest();
        const struct wefti_handover_message look = message(WEFT_HANDOVER_LOOK);
        send_bytes(fd, &look, sizeof look);
        struct pollfd there = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&there, 1, -1), 1); /* by then it has heard of that */
        (void)close(fd);
    }
    assert_false(giver.has_given);
    assert_int_equal(wefti_handover_ask(giver.name, INSTANCE, &offer, &why), WEFT_OK);
    assert_int_equal(wefti_handover_accept(&offer, giver.name, &why), WEFT_OK);
    wefti_handover_release(&offer);
}

static void of_two_who_ask_the_second_is_told_of_the_first(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    struct handover_offer first, second;
    begin();
    assert_int_equal(wefti_handover_ask(giver.name, INSTANCE, &first, &why), WEFT_OK);
    assert_int_equal(wefti_handover_ask(giver.name, INSTANCE, &second, &why), WEFT_E_STATE);
    assert_non_null(strstr(why.text, "another server is just taking the place"));
    assert_int_equal(wefti_handover_accept(&first, giver.name, &why), WEFT_OK);
    wefti_handover_release(&first);
}

static void another_server_than_the_one_that_was_found_is_not_replaced(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    struct handover_offer offer;
    begin();
    assert_int_equal(wefti_handover_ask(giver.name, INSTANCE - 1, &offer, &why), WEFT_E_STATE);
    assert_non_null(strstr(why.text, "another server took the place"));
    assert_false(giver.has_given);
}

static void where_nobody_is_there_is_no_error(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    struct handover_offer offer;
    bool is_there = true;
    uint64_t instance = 1;
    wefti_handover_close(&giver.handover);
    assert_int_equal(wefti_handover_look(giver.name, &is_there, &instance, &why), WEFT_OK);
    assert_false(is_there);
    assert_int_equal(wefti_handover_ask(giver.name, 1, &offer, &why), WEFT_OK);
    assert_int_equal(offer.conn_fd, -1);
    wefti_handover_release(&offer);
}

static void a_name_in_use_is_no_name_for_another(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    struct handover second;
    wefti_handover_init(&second);
    assert_int_equal(wefti_handover_open(&second, giver.name, -1, 1, &why), WEFT_E_EXISTS);
    assert_int_equal(second.control_fd, -1);
}

static void who_sends_anything_else_is_hung_up_on(void **state) {
    (void)state;
    struct wefti_handover_message bad[] = {message(WEFT_HANDOVER_TAKEN),
                                           message(WEFT_HANDOVER_DONE), message(0),
                                           message(UINT32_MAX), message(WEFT_HANDOVER_LOOK)};
    bad[4].magic[0] = 'W';
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fd = dial_as_guest();
        send_bytes(fd, &bad[i], sizeof bad[i]);
        assert_false(tick());
        assert_int_equal(received(fd), 0);
        (void)close(fd);
    }
    char long_one[300] = "weftsock";
    for (size_t n = 0; n < sizeof long_one; n += n < 40 ? 1 : 129) {
        int fd = dial_as_guest();
        if (n == sizeof(struct wefti_handover_message)) n++;
        send_bytes(fd, long_one, n);
        assert_false(tick());
        assert_int_equal(received(fd), 0);
        (void)close(fd);
    }
}

static void what_comes_with_an_offer_out_is_taken_or_the_end_of_it(void **state) {
    (void)state;
    const struct wefti_handover_message take = message(WEFT_HANDOVER_TAKE);
    int fd = dial_as_guest();
    send_bytes(fd, &take, sizeof take);
    assert_false(tick());
    assert_int_equal(received(fd), WEFT_HANDOVER_OFFER); /* its descriptors are passed over */
    send_bytes(fd, &take, sizeof take);
    assert_false(tick());
    assert_int_equal(received(fd), 0);
    (void)close(fd);
}

static void of_another_version_nothing_is_taken_but_ours_is_told(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    struct wefti_handover_message m = message(WEFT_HANDOVER_TAKE);
    m.version = WEFT_HANDOVER_VERSION + 1;
    int fd = dial_as_guest();
    send_bytes(fd, &m, sizeof m);
    assert_false(tick());
    assert_int_equal(received(fd), WEFT_HANDOVER_REFUSED);
    assert_int_equal(received(fd), 0);
    (void)close(fd);
    (void)why;
}

static void a_silent_guest_has_its_time_and_no_more(void **state) {
    (void)state;
    const struct wefti_handover_message take = message(WEFT_HANDOVER_TAKE);
    int silent = dial_as_guest(), slow = dial_as_guest();
    send_bytes(slow, &take, sizeof take);
    assert_false(tick());
    assert_int_equal(received(slow), WEFT_HANDOVER_OFFER);
    giver.now_ms += WEFT_HANDOVER_GUEST_MS - 1;
    assert_false(tick());
    assert_int_equal(received(silent), -1);
    assert_int_equal(received(slow), -1);
    giver.now_ms++;
    assert_false(tick());
    assert_int_equal(received(silent), 0);
    assert_int_equal(received(slow), 0);
    const struct wefti_handover_message taken = message(WEFT_HANDOVER_TAKEN);
    assert_int_equal(send(slow, &taken, sizeof taken, MSG_NOSIGNAL),
                     -1); /* too late, and it knows */
    (void)close(silent);
    (void)close(slow);
}

static void many_silent_guests_keep_nobody_out(void **state) {
    (void)state;
    int silent[3 * WEFT_HANDOVER_GUESTS_MAX];
    const struct wefti_handover_message take = message(WEFT_HANDOVER_TAKE),
                                        look = message(WEFT_HANDOVER_LOOK),
                                        taken = message(WEFT_HANDOVER_TAKEN);
    int taker = dial_as_guest();
    send_bytes(taker, &take, sizeof take);
    assert_false(tick());
    assert_int_equal(received(taker), WEFT_HANDOVER_OFFER);
    for (size_t i = 0; i < sizeof silent / sizeof silent[0]; i++) {
        silent[i] = dial_as_guest();
        giver.now_ms++;
        assert_false(tick());
    }
    int fd = dial_as_guest();
    send_bytes(fd, &look, sizeof look);
    assert_false(tick());
    assert_int_equal(received(fd), WEFT_HANDOVER_HERE);
    (void)close(fd);
    send_bytes(taker, &taken, sizeof taken); /* an offer keeps its place */
    assert_true(tick());
    assert_int_equal(received(taker), WEFT_HANDOVER_DONE);
    (void)close(taker);
    for (size_t i = 0; i < sizeof silent / sizeof silent[0]; i++)
        (void)close(silent[i]);
}

static void who_is_gone_before_the_end_leaves_the_sockets_here(void **state) {
    (void)state;
    const struct wefti_handover_message take = message(WEFT_HANDOVER_TAKE),
                                        taken = message(WEFT_HANDOVER_TAKEN);
    int fd = dial_as_guest();
    send_bytes(fd, &take, sizeof take);
    assert_false(tick());
    send_bytes(fd, &taken, sizeof taken);
    (void)close(fd); /* without waiting for DONE */
    assert_false(tick());
}

static void descriptors_sent_to_the_server_are_closed(void **state) {
    (void)state;
    struct wefti_handover_message look = message(WEFT_HANDOVER_LOOK);
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec piece = {.iov_base = &look, .iov_len = sizeof look};
    struct msghdr out = {.msg_iov = &piece,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    int fd = dial_as_guest(), sent = giver.fds[0];
    memset(&control, 0, sizeof control);
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &sent, sizeof sent);
    assert_int_equal(sendmsg(fd, &out, MSG_NOSIGNAL), sizeof look);
    assert_false(tick());
    assert_int_equal(received(fd), WEFT_HANDOVER_HERE);
    (void)close(fd);
} /* tear_down() counts */

/* A server that answers TAKE with this message, and with so many of these descriptors. */
struct liar {
    struct wefti_handover_message answer;
    size_t n_bytes, n_fds;
    int fds[8];
};

static void *lie(void *arg) {
    const struct liar *liar = arg;
    char in[64];
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control;
    struct pollfd there = {.fd = giver.handover.control_fd, .events = POLLIN};
    (void)poll(&there, 1, -1);
    int fd = accept(giver.handover.control_fd, NULL, NULL);
    (void)!recv(fd, in, sizeof in, 0);
    struct iovec piece = {.iov_base = (void *)&liar->answer, .iov_len = liar->n_bytes};
    struct msghdr out = {.msg_iov = &piece, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    if (liar->n_fds > 0) {
        out.msg_control = control.bytes;
        out.msg_controllen = CMSG_SPACE(liar->n_fds * sizeof(int));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(liar->n_fds * sizeof(int));
        memcpy(CMSG_DATA(&control.head), liar->fds, liar->n_fds * sizeof(int));
    }
    (void)!sendmsg(fd, &out, MSG_NOSIGNAL);
    (void)close(fd);
    return NULL;
}

static weft_err ask_a_liar(struct liar *liar, struct weft_errmsg *why) {
    pthread_t thread;
    struct handover_offer offer;
    assert_int_equal(pthread_create(&thread, NULL, lie, liar), 0);
    weft_err err = wefti_handover_ask(giver.name, INSTANCE, &offer, why);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(offer.conn_fd, -1);
    for (uint32_t i = 0; i < WEFT_HANDOVER_SOCKETS; i++)
        assert_int_equal(offer.fds[i], -1);
    return err;
}

static void what_a_server_offers_is_looked_at(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    int http = giver.fds[WEFT_HANDOVER_HTTP], rpc = giver.fds[WEFT_HANDOVER_RPC];
    int control = giver.handover.control_fd, other[2];
    assert_int_equal(pipe(other), 0);
    struct liar liars[] = {
        {.n_bytes = 1},
        {.n_bytes = 32}, /* sockets that do not come */
        {.n_bytes = 32, .n_fds = 2, .fds = {http, rpc}},
        {.n_bytes = 32, .n_fds = 4, .fds = {http, rpc, control, http}},
        {.n_bytes = 32, .n_fds = 8, .fds = {http, rpc, control, http, http, http, http, http}},
        {.n_bytes = 32, .n_fds = 3, .fds = {other[0], other[1], control}},
        {.n_bytes = 32, .n_fds = 3, .fds = {http, other[0], control}},
        {.n_bytes = 32, .n_fds = 3, .fds = {http, rpc, other[0]}},
        {.n_bytes = 32, .n_fds = 3, .fds = {rpc, http, control}}, /* another port */
        {.n_bytes = 31, .n_fds = 3, .fds = {http, rpc, control}},
    };
    for (size_t i = 0; i < sizeof liars / sizeof liars[0]; i++) {
        liars[i].answer = message(WEFT_HANDOVER_OFFER);
        liars[i].answer.sockets = 7;
        assert_int_equal(ask_a_liar(&liars[i], &why), WEFT_E_PROTO);
        assert_non_null(strstr(why.text, "does not answer as a server would"));
    }
    struct liar others[] = {
        {.n_bytes = 32, .n_fds = 3, .fds = {http, rpc, control}},
        {.n_bytes = 32, .n_fds = 3, .fds = {http, rpc, control}},
        {.n_bytes = 32, .n_fds = 3, .fds = {http, rpc, control}},
    };
    others[0].answer = message(WEFT_HANDOVER_OFFER);
    others[0].answer.sockets = UINT32_MAX;
    assert_int_equal(ask_a_liar(&others[0], &why), WEFT_E_PROTO);
    others[1].answer = message(WEFT_HANDOVER_HERE);
    others[1].answer.sockets = 7;
    assert_int_equal(ask_a_liar(&others[1], &why), WEFT_E_PROTO);
    others[2].answer = message(WEFT_HANDOVER_REFUSED);
    others[2].answer.version = 9;
    others[2].answer.sockets = 7;
    assert_int_equal(ask_a_liar(&others[2], &why), WEFT_E_UNSUPPORTED);
    assert_non_null(strstr(why.text, "hands over by version 9"));
    (void)close(other[0]);
    (void)close(other[1]);
}

/* Of this machine's users: only root can be another one. */
static void another_user_is_refused_on_either_side(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* as "nobody", who knows the name */
        struct weft_errmsg why;
        bool is_there = true;
        uint64_t instance;
        if (setuid(65534) != 0) _exit(9);
        weft_err err = wefti_handover_look(giver.name, &is_there, &instance, &why);
        if (err || is_there) _exit(1); /* it does not ask a stranger */
        int fd = dial_as_guest();
        const struct wefti_handover_message take = message(WEFT_HANDOVER_TAKE);
        send_bytes(fd, &take, sizeof take);
        if (write(ready[1], "x", 1) != 1) _exit(9);
        struct pollfd there = {.fd = fd, .events = POLLIN};
        (void)poll(&there, 1, -1);
        char in[64];
        _exit(recv(fd, in, sizeof in, 0) <= 0 ? 0 : 2);
    }
    char one;
    int status = 0;
    assert_int_equal(read(ready[0], &one, 1), 1);
    assert_false(tick());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(who_asks_gets_the_sockets_and_the_name),
        CASE(a_socket_that_is_not_there_is_not_offered),
        CASE(until_it_is_accepted_an_offer_changes_nothing),
        CASE(of_two_who_ask_the_second_is_told_of_the_first),
        CASE(another_server_than_the_one_that_was_found_is_not_replaced),
        CASE(where_nobody_is_there_is_no_error),
        CASE(a_name_in_use_is_no_name_for_another),
        CASE(who_sends_anything_else_is_hung_up_on),
        CASE(what_comes_with_an_offer_out_is_taken_or_the_end_of_it),
        CASE(of_another_version_nothing_is_taken_but_ours_is_told),
        CASE(a_silent_guest_has_its_time_and_no_more),
        CASE(many_silent_guests_keep_nobody_out),
        CASE(who_is_gone_before_the_end_leaves_the_sockets_here),
        CASE(descriptors_sent_to_the_server_are_closed),
        CASE(what_a_server_offers_is_looked_at),
        CASE(another_user_is_refused_on_either_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
