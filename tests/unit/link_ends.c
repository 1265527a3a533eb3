#include "unit/link_ends.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link/make_certs.h"

#define WINDOW 48    /* unanswered messages */
#define BODY_MAX 700 /* bytes behind the numbers */

uint64_t rand_state;

/* -------------------------------------------------------------------------------- transports --- */

const char *const transports[TRANSPORTS] = {"abstract", "ipc", "tcp", "tls+tcp"};
int transport;
char ipc_dir[] = "/tmp/weft-test-link-XXXXXX";
struct identity ours, strangers;

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

struct weft_link_options options_of(const struct identity *id) {
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

void make_identities(void) {
    make_identity(&ours);
    make_identity(&strangers);
    tell_identity();
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

const char *fresh_url(void) {
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

/* ------------------------------------------------------------------------- a streaming end --- */

struct numbers {
    uint64_t index, n_got;
};

static size_t body_len(uint64_t index) {
    return (size_t)(index * 7919 % BODY_MAX);
}

void send_numbered(struct end *end, uint32_t peer) {
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

uint64_t ahead_ms;
bool clock_follows_turns;

static uint64_t now_ms(void) {
    static uint64_t n_asked;
    if (clock_follows_turns) return ahead_ms + n_asked++ / 8;
    return weft_now_ms() + ahead_ms;
}

void look(struct end *end, int wait_ms) {
    struct weft_link_event event;
    struct pollfd fd = {.fd = weft_link_fd(end->link), .events = POLLIN};
    if (wait_ms > 0) (void)poll(&fd, 1, wait_ms);
    while (weft_link_next(end->link, now_ms(), &event))
        take_event(end, &event);
}

void turn(struct end *end, int wait_ms) {
    look(end, wait_ms);
    weft_link_tick(end->link, now_ms());
    for (uint32_t i = 0; end->streams && i < end->n_peers; i++) {
        while (weft_link_is_up(end->link, i) && wants_to_send(&end->peers[i]))
            send_numbered(end, i);
    }
}

void turn_both(struct end *a, struct end *b) {
    turn(a, 1);
    turn(b, 0);
}

void open_end(struct end *end, bool dials, enum weft_link_kind kind, const char *url) {
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

weft_err listen_alone(const char *url, weft_link **link_out, struct weft_errmsg *why) {
    struct weft_link_options options = options_of(&ours);
    return weft_link_listen(WEFT_LINK_ONE_PEER, url, &options, link_out, why);
}

void close_end(struct end *end) {
    weft_link_free(end->link);
    end->link = NULL;
}

void open_pair_of_ends(struct end *a, struct end *b, enum weft_link_kind kind, const char *url) {
    open_end(a, false, kind, url);
    open_end(b, true, kind, url);
    WAIT_FOR(a->peers[0].up && b->peers[0].up, turn_both(a, b));
}

uint32_t count_fds(void) {
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

/* ------------------------------------------------------------------------------ a far end --- */

int far_main(char **argv) {
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

pid_t spawn_far(bool dials, enum weft_link_kind kind, const char *url, const char *uid) {
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

void kill_far(pid_t pid) {
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* not by an assertion */
}

/* ------------------------------------------------------------------- in the linker's hands --- */

/* The linker turns calls of nng_stream_get_uint64 and others into these. */
bool users_are_unknown;
uint32_t n_unknown, n_mails;

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

uint32_t n_dials;

void __real_nng_stream_dialer_dial(nng_stream_dialer *dialer, nng_aio *aio);
void __wrap_nng_stream_dialer_dial(nng_stream_dialer *dialer, nng_aio *aio);

void __wrap_nng_stream_dialer_dial(nng_stream_dialer *dialer, nng_aio *aio) {
    n_dials++;
    __real_nng_stream_dialer_dial(dialer, aio);
}

bool is_impatient;

void __real_nng_aio_set_timeout(nng_aio *aio, nng_duration ms);
void __wrap_nng_aio_set_timeout(nng_aio *aio, nng_duration ms);

void __wrap_nng_aio_set_timeout(nng_aio *aio, nng_duration ms) {
    __real_nng_aio_set_timeout(aio, is_impatient ? ms / 10 : ms);
}

nng_duration pause_ms;

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
