#include "conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/check.h"
#include "local.h"

#define MAGIC 0x4b4c4657u /* "WFLK" */

/* What may wait for a peer that does not read. A router that finds a new scheduler passes on all
 * its open requests in one turn of its loop: over the bound it would have to start over, with as
 * many, so this is well above --max-connections. */
#define OUT_FRAMES_MAX 65536
#define OUT_BYTES_MAX ((size_t)2 * WEFT_MESSAGE_BYTES_MAX)

/* What may wait for an owner that is busy. One frame more may be under way. */
#define IN_FRAMES_MAX 4096
#define IN_BYTES_MAX ((size_t)64 << 20)

#define READ_BYTES ((size_t)16 << 10)       /* one read of small frames */
#define BODY_BYTES_FIRST ((size_t)64 << 10) /* then doubled as they come */
#define IOVS_MAX 8                          /* nng's own limit */
#define EPOLL_EVENTS 16                     /* looked at in one go */

_Static_assert(sizeof(struct wefti_link_header) == 16, "no padding");
_Static_assert(offsetof(struct wefti_link_frame, bytes) ==
                   offsetof(struct wefti_link_frame, header) + sizeof(struct wefti_link_header),
               "a frame goes out in one piece");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers travel as they lie");

struct wefti_link_conn {
    struct wefti_link_inbox *inbox;
    struct wefti_link_stream stream;
    nng_aio *in_aio, *out_aio; /* of nng's streams */
    uint32_t tag;
    bool wants_out; /* of local ones: epoll tells when the socket takes more */
    bool corked;

    /* Under the inbox's mutex. */
    struct wefti_link_conn *next_ready;
    bool is_ready, closing, paused, broken_told;
    enum wefti_link_broken broken;
    uint16_t other_version;
    struct wefti_link_frame *in, **in_end;
    uint32_t n_in;
    size_t in_bytes;
    struct wefti_link_frame *out, **out_end;
    uint32_t n_out, out_seq;
    size_t out_bytes;
    size_t out_done; /* bytes of the first frame that are sent */
    bool out_busy;   /* a send is under way, or the socket is full */

    /* Of the reading callback alone (one at a time), or of a local stream's owner. */
    struct wefti_link_header header; /* being read */
    size_t header_done;
    struct wefti_link_frame *body; /* being read; NULL: between frames */
    size_t body_done;
    uint32_t in_seq;
    bool into_body; /* the read under way goes straight into `body` */
    unsigned char buf[READ_BYTES];
};

static void lock(struct wefti_link_inbox *inbox) {
    (void)pthread_mutex_lock(&inbox->mutex);
}

static void unlock(struct wefti_link_inbox *inbox) {
    (void)pthread_mutex_unlock(&inbox->mutex);
}

/* ------------------------------------------------------------------------------------- inbox ---
 */

/* What epoll_fd tells of by the address of the descriptor; anything else is a connection. */
static bool watch(struct wefti_link_inbox *inbox, int *fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = fd};
    return epoll_ctl(inbox->epoll_fd, EPOLL_CTL_ADD, *fd, &event) == 0;
}

static bool watch_locals(struct wefti_link_inbox *inbox) {
    inbox->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    inbox->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    inbox->fd = inbox->epoll_fd;
    return inbox->epoll_fd >= 0 && inbox->timer_fd >= 0 && watch(inbox, &inbox->event_fd) &&
           watch(inbox, &inbox->timer_fd);
}

static void close_fds(const struct wefti_link_inbox *inbox) {
    const int fds[] = {inbox->event_fd, inbox->timer_fd, inbox->epoll_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0) (void)close(fds[i]);
}

weft_err wefti_link_inbox_init(struct wefti_link_inbox *inbox, bool is_local,
                               struct weft_errmsg *why) {
    *inbox = (struct wefti_link_inbox){.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
                                       .epoll_fd = -1,
                                       .timer_fd = -1,
                                       .listen_fd = -1};
    inbox->fd = inbox->event_fd;
    if (inbox->event_fd < 0 || (is_local && !watch_locals(inbox))) {
        int code = errno;
        close_fds(inbox);
        return weft_err_errno(why, code, "cannot make the descriptors of a link");
    }
    inbox->ready_end = &inbox->ready;
    (void)pthread_mutex_init(&inbox->mutex, NULL); /* a plain mutex cannot fail on Linux */
    return WEFT_OK;
}

void wefti_link_stream_drop(struct wefti_link_stream stream) {
    if (stream.nng) {
        nng_stream_close(stream.nng);
        nng_stream_free(stream.nng);
    }
    if (stream.fd >= 0) (void)close(stream.fd);
}

void wefti_link_inbox_fini(struct wefti_link_inbox *inbox) {
    WEFT_ASSERT(!inbox->ready);
    for (uint32_t i = 0; i < inbox->n_arrived; i++)
        wefti_link_stream_drop(inbox->arrived[i]);
    close_fds(inbox);
    (void)pthread_mutex_destroy(&inbox->mutex);
}

static void signal_locked(struct wefti_link_inbox *inbox) {
    if (inbox->signalled) return;
    uint64_t one = 1;
    inbox->signalled = write(inbox->event_fd, &one, sizeof one) == sizeof one;
    WEFT_ASSERT(inbox->signalled);
}

void wefti_link_inbox_wake(struct wefti_link_inbox *inbox) {
    lock(inbox);
    signal_locked(inbox);
    unlock(inbox);
}

bool wefti_link_inbox_put_stream(struct wefti_link_inbox *inbox, struct wefti_link_stream stream) {
    lock(inbox);
    bool room = inbox->n_arrived < WEFTI_LINK_ARRIVED_MAX;
    if (room) {
        inbox->arrived[inbox->n_arrived++] = stream;
        signal_locked(inbox);
    }
    unlock(inbox);
    return room;
}

void wefti_link_inbox_put_flag(struct wefti_link_inbox *inbox, bool *flag) {
    lock(inbox);
    *flag = true;
    signal_locked(inbox);
    unlock(inbox);
}

static void make_ready_locked(struct wefti_link_conn *conn) {
    struct wefti_link_inbox *inbox = conn->inbox;
    if (conn->is_ready || conn->closing) return;
    conn->is_ready = true;
    conn->next_ready = NULL;
    *inbox->ready_end = conn;
    inbox->ready_end = &conn->next_ready;
    if (conn->stream.nng) signal_locked(inbox); /* the owner is who reads local ones */
}

static void remove_ready_locked(struct wefti_link_conn *conn) {
    struct wefti_link_inbox *inbox = conn->inbox;
    if (!conn->is_ready) return;
    struct wefti_link_conn **at = &inbox->ready;
    while (*at != conn)
        at = &(*at)->next_ready;
    *at = conn->next_ready;
    if (!*at) inbox->ready_end = at;
    conn->is_ready = false;
}

/* Takes the first frame, or what broke the connection. True: reading may go on. */
static bool take_from_locked(struct wefti_link_conn *conn, struct wefti_link_mail *mail) {
    struct wefti_link_frame *frame = conn->in;
    mail->conn = conn;
    if (!frame) {
        WEFT_ASSERT(conn->broken && !conn->broken_told);
        conn->broken_told = true;
        mail->kind = WEFTI_LINK_MAIL_BROKEN;
        mail->broken = conn->broken;
        mail->version = conn->other_version;
        return false;
    }
    conn->in = frame->next;
    if (!conn->in) conn->in_end = &conn->in;
    conn->n_in--;
    conn->in_bytes -= frame->header.len;
    mail->kind = WEFTI_LINK_MAIL_FRAME;
    mail->frame = frame;
    bool goes_on =
        conn->paused && conn->n_in <= IN_FRAMES_MAX / 2 && conn->in_bytes <= IN_BYTES_MAX / 2;
    if (goes_on) conn->paused = false;
    return goes_on;
}

static bool take_flag(bool *flag) {
    bool was = *flag;
    *flag = false;
    return was;
}

static void read_on(struct wefti_link_conn *conn);
static bool poll_locals(struct wefti_link_inbox *inbox);

static void unsignal_locked(struct wefti_link_inbox *inbox) {
    uint64_t count;
    if (inbox->signalled) (void)!read(inbox->event_fd, &count, sizeof count);
    inbox->signalled = false;
}

/* True: there was something. `*resume_out`: a connection that may read on. */
static bool take_locked(struct wefti_link_inbox *inbox, struct wefti_link_mail *mail_out,
                        struct wefti_link_conn **resume_out) {
    struct wefti_link_conn *conn = inbox->ready;
    if (inbox->n_arrived > 0) {
        mail_out->kind = WEFTI_LINK_MAIL_STREAM;
        mail_out->stream = inbox->arrived[0];
        inbox->n_arrived--;
        for (uint32_t i = 0; i < inbox->n_arrived; i++)
            inbox->arrived[i] = inbox->arrived[i + 1];
    } else if (take_flag(&inbox->dial_failed)) {
        mail_out->kind = WEFTI_LINK_MAIL_DIAL_FAILED;
    } else if (take_flag(&inbox->timer)) {
        mail_out->kind = WEFTI_LINK_MAIL_TIMER;
    } else if (conn) {
        remove_ready_locked(conn);
        if (take_from_locked(conn, mail_out)) *resume_out = conn;
        if (conn->in || (conn->broken && !conn->broken_told)) make_ready_locked(conn);
    } else {
        return false;
    }
    return true;
}

bool wefti_link_inbox_take(struct wefti_link_inbox *inbox, struct wefti_link_mail *mail_out) {
    struct wefti_link_conn *resume = NULL;
    bool any;
    *mail_out = (struct wefti_link_mail){.stream.fd = -1};
    do {
        lock(inbox);
        any = take_locked(inbox, mail_out, &resume);
        if (!any) unsignal_locked(inbox);
        unlock(inbox);
    } while (!any && poll_locals(inbox));
    if (resume) read_on(resume);
    return any;
}

/* ----------------------------------------------------------------------------------- reading ---
 */

static void break_locked(struct wefti_link_conn *conn, enum wefti_link_broken broken) {
    if (conn->broken) return;
    conn->broken = broken;
    make_ready_locked(conn);
}

static void put_frame(struct wefti_link_conn *conn, struct wefti_link_frame *frame) {
    lock(conn->inbox);
    *conn->in_end = frame;
    conn->in_end = &frame->next;
    conn->n_in++;
    conn->in_bytes += frame->header.len;
    make_ready_locked(conn);
    unlock(conn->inbox);
}

/* Memory for more of the body: all of a short one, double of what came of a long one. */
static bool grow_body(struct wefti_link_conn *conn) {
    size_t len = conn->header.len;
    size_t cap = conn->body ? conn->body->cap * 2 : BODY_BYTES_FIRST;
    if (cap > len) cap = len;
    struct wefti_link_frame *body = realloc(conn->body, sizeof *body + cap);
    if (!body) return false;
    if (!conn->body) *body = (struct wefti_link_frame){.header = conn->header};
    body->cap = cap;
    conn->body = body;
    return true;
}

/* The header is complete: begins its body. */
static enum wefti_link_broken begin_body(struct wefti_link_conn *conn) {
    const struct wefti_link_header *header = &conn->header;
    if (header->magic != MAGIC) return WEFTI_LINK_BROKEN_NONSENSE;
    if (header->version != WEFTI_LINK_VERSION) {
        lock(conn->inbox);
        conn->other_version = header->version;
        unlock(conn->inbox);
        return WEFTI_LINK_BROKEN_VERSION;
    }
    if (header->len > WEFT_MESSAGE_BYTES_MAX || header->seq != conn->in_seq)
        return WEFTI_LINK_BROKEN_NONSENSE;
    conn->body_done = 0;
    return grow_body(conn) ? WEFTI_LINK_BROKEN_NOT : WEFTI_LINK_BROKEN_ENDED;
}

/* The body is complete when all of it is there. */
static enum wefti_link_broken body_came(struct wefti_link_conn *conn, size_t n) {
    conn->body_done += n;
    WEFT_ASSERT(conn->body_done <= conn->body->cap);
    if (conn->body_done < conn->header.len) {
        bool room = conn->body_done < conn->body->cap || grow_body(conn);
        return room ? WEFTI_LINK_BROKEN_NOT : WEFTI_LINK_BROKEN_ENDED;
    }
    put_frame(conn, conn->body);
    conn->body = NULL;
    conn->header_done = 0;
    conn->in_seq++;
    return WEFTI_LINK_BROKEN_NOT;
}

/* Cuts `n` bytes into frames. */
static enum wefti_link_broken bytes_came(struct wefti_link_conn *conn, const unsigned char *bytes,
                                         size_t n) {
    enum wefti_link_broken broken = WEFTI_LINK_BROKEN_NOT;
    while (n > 0 && !broken) {
        size_t part;
        if (!conn->body) {
            part = sizeof conn->header - conn->header_done;
            if (part > n) part = n;
            memcpy((unsigned char *)&conn->header + conn->header_done, bytes, part);
            conn->header_done += part;
            if (conn->header_done == sizeof conn->header) broken = begin_body(conn);
            if (!broken && conn->body && conn->header.len == 0) broken = body_came(conn, 0);
        } else {
            part = conn->body->cap - conn->body_done;
            if (part > n) part = n;
            memcpy(conn->body->bytes + conn->body_done, bytes, part);
            broken = body_came(conn, part);
        }
        bytes += part;
        n -= part;
    }
    return broken;
}

/* Where the next bytes go: long bodies are read in place. */
static nng_iov next_iov(struct wefti_link_conn *conn) {
    conn->into_body = conn->body && conn->header.len - conn->body_done >= sizeof conn->buf;
    if (!conn->into_body) return (nng_iov){.iov_buf = conn->buf, .iov_len = sizeof conn->buf};
    return (nng_iov){.iov_buf = conn->body->bytes + conn->body_done,
                     .iov_len = conn->body->cap - conn->body_done};
}

static enum wefti_link_broken came(struct wefti_link_conn *conn, size_t n) {
    return conn->into_body ? body_came(conn, n) : bytes_came(conn, conn->buf, n);
}

static void read_on(struct wefti_link_conn *conn) {
    nng_iov iov = next_iov(conn);
    (void)nng_aio_set_iov(conn->in_aio, 1, &iov); /* fails for too many only */
    nng_stream_recv(conn->stream.nng, conn->in_aio);
}

static void on_read(void *arg) {
    struct wefti_link_conn *conn = arg;
    enum wefti_link_broken broken = WEFTI_LINK_BROKEN_ENDED;
    if (nng_aio_result(conn->in_aio) == 0) {
        broken = came(conn, nng_aio_count(conn->in_aio));
    }
    lock(conn->inbox);
    if (broken) break_locked(conn, broken);
    bool over = conn->n_in >= IN_FRAMES_MAX || conn->in_bytes >= IN_BYTES_MAX;
    if (over) conn->paused = true;
    bool goes_on = !conn->broken && !conn->closing && !over;
    unlock(conn->inbox);
    if (goes_on) read_on(conn);
}

/* ----------------------------------------------------------------------------------- sending ---
 */

/* Points the aio at the first frames of the queue. */
static void load_out_locked(struct wefti_link_conn *conn) {
    nng_iov iovs[IOVS_MAX];
    unsigned n = 0;
    for (struct wefti_link_frame *frame = conn->out; frame && n < IOVS_MAX; frame = frame->next) {
        size_t done = n == 0 ? conn->out_done : 0;
        iovs[n].iov_buf = (unsigned char *)&frame->header + done;
        iovs[n].iov_len = sizeof frame->header + frame->header.len - done;
        n++;
    }
    WEFT_ASSERT(n > 0);
    (void)nng_aio_set_iov(conn->out_aio, n, iovs); /* fails for too many only */
    conn->out_busy = true;
}

/* Takes the frames out of the queue of which `n` more bytes are sent; returns them as a list. */
static struct wefti_link_frame *unload_out_locked(struct wefti_link_conn *conn, size_t n) {
    struct wefti_link_frame *sent = NULL;
    conn->out_done += n;
    while (conn->out) {
        struct wefti_link_frame *frame = conn->out;
        size_t bytes = sizeof frame->header + frame->header.len;
        if (conn->out_done < bytes) break;
        conn->out_done -= bytes;
        conn->out_bytes -= bytes;
        conn->n_out--;
        conn->out = frame->next;
        frame->next = sent;
        sent = frame;
    }
    if (!conn->out) conn->out_end = &conn->out;
    return sent;
}

static void free_frames(struct wefti_link_frame *frame) {
    while (frame) {
        struct wefti_link_frame *next = frame->next;
        free(frame);
        frame = next;
    }
}

static void on_sent(void *arg) {
    struct wefti_link_conn *conn = arg;
    struct wefti_link_frame *sent = NULL;
    bool goes_on = false;
    int rv = nng_aio_result(conn->out_aio);
    lock(conn->inbox);
    conn->out_busy = false;
    if (rv != 0) {
        break_locked(conn, WEFTI_LINK_BROKEN_ENDED);
    } else {
        sent = unload_out_locked(conn, nng_aio_count(conn->out_aio));
        goes_on = conn->out && !conn->closing;
        if (goes_on) load_out_locked(conn);
    }
    unlock(conn->inbox);
    free_frames(sent);
    if (goes_on) nng_stream_send(conn->stream.nng, conn->out_aio);
}

/* ----------------------------------------------------------------------------- local streams ---
 *
 * No lock is needed here, and none is taken. */

static bool is_passing(int code) {
    return code == EAGAIN || code == EINTR;
}

/* Broken ones are not watched: their end would be told again and again. */
static void watch_conn(struct wefti_link_conn *conn, bool wants_out) {
    if (conn->broken || conn->wants_out == wants_out) return;
    uint32_t events = wants_out ? EPOLLIN | EPOLLOUT : EPOLLIN;
    struct epoll_event event = {.events = events, .data.ptr = conn};
    int rv = epoll_ctl(conn->inbox->epoll_fd, EPOLL_CTL_MOD, conn->stream.fd, &event);
    WEFT_ASSERT(rv == 0); /* it was added, and changing it takes no memory */
    conn->wants_out = wants_out;
}

static void break_as(struct wefti_link_conn *conn, enum wefti_link_broken broken) {
    if (conn->broken) return;
    (void)epoll_ctl(conn->inbox->epoll_fd, EPOLL_CTL_DEL, conn->stream.fd, NULL);
    break_locked(conn, broken);
}

/* Outside of wefti_link_inbox_take, so the owner has to hear that there is mail. */
static void break_local(struct wefti_link_conn *conn) {
    break_as(conn, WEFTI_LINK_BROKEN_ENDED);
    signal_locked(conn->inbox);
}

static void read_local(struct wefti_link_conn *conn) {
    nng_iov iov = next_iov(conn);
    ssize_t n = recv(conn->stream.fd, iov.iov_buf, iov.iov_len, 0);
    if (n < 0 && is_passing(errno)) return;
    enum wefti_link_broken broken = n > 0 ? came(conn, (size_t)n) : WEFTI_LINK_BROKEN_ENDED;
    if (broken) break_as(conn, broken);
    if (n > 0 && (size_t)n == iov.iov_len) conn->inbox->is_drained = false;
}

static void write_local(struct wefti_link_conn *conn) {
    while (conn->out && !conn->broken) {
        struct iovec iovs[IOVS_MAX];
        struct msghdr msg = {.msg_iov = iovs};
        for (struct wefti_link_frame *frame = conn->out; frame && msg.msg_iovlen < IOVS_MAX;
             frame = frame->next) {
            size_t done = frame == conn->out ? conn->out_done : 0;
            iovs[msg.msg_iovlen++] =
                (struct iovec){(unsigned char *)&frame->header + done,
                               sizeof frame->header + frame->header.len - done};
        }
        ssize_t n = sendmsg(conn->stream.fd, &msg, MSG_NOSIGNAL);
        if (n < 0 && is_passing(errno)) return;
        if (n < 0) break_as(conn, WEFTI_LINK_BROKEN_ENDED);
        if (n > 0) free_frames(unload_out_locked(conn, (size_t)n));
    }
    watch_conn(conn, false);
}

/* Accepting pauses while there is no room, or no descriptor; whoever makes room goes on. */
static void accept_local(struct wefti_link_inbox *inbox) {
    while (inbox->n_arrived < WEFTI_LINK_ARRIVED_MAX) {
        int fd = wefti_link_local_accept(inbox->listen_fd);
        if (fd >= 0) {
            inbox->arrived[inbox->n_arrived++] = (struct wefti_link_stream){.fd = fd};
        } else if (is_passing(errno) || errno == ECONNABORTED) {
            return;
        } else {
            break;
        }
    }
    (void)epoll_ctl(inbox->epoll_fd, EPOLL_CTL_DEL, inbox->listen_fd, NULL);
    inbox->accept_waits = true;
}

void wefti_link_inbox_listen(struct wefti_link_inbox *inbox, int listen_fd) {
    inbox->listen_fd = listen_fd;
    if (!watch(inbox, &inbox->listen_fd)) inbox->accept_waits = true;
}

void wefti_link_inbox_set_timer(struct wefti_link_inbox *inbox, uint32_t ms) {
    struct itimerspec at = {.it_value = {ms / 1000, (long)(ms % 1000) * 1000000}};
    int rv = timerfd_settime(inbox->timer_fd, 0, &at, NULL);
    WEFT_ASSERT(rv == 0);
}

static void take_epoll_event(struct wefti_link_inbox *inbox, const struct epoll_event *event) {
    uint64_t count;
    if (event->data.ptr == &inbox->event_fd) return; /* cleared by whoever set it */
    if (event->data.ptr == &inbox->timer_fd) {
        inbox->timer = read(inbox->timer_fd, &count, sizeof count) == sizeof count;
    } else if (event->data.ptr == &inbox->listen_fd) {
        accept_local(inbox);
    } else {
        struct wefti_link_conn *conn = event->data.ptr;
        if (event->events & EPOLLOUT) write_local(conn);
        if (event->events & ~(uint32_t)EPOLLOUT && !conn->broken) read_local(conn);
    }
}

/* Reads and writes what the sockets have; false: nothing came of it. Once the sockets have been
 * asked and gave less than was room for, they are not asked again before the owner has polled:
 * what came in between keeps the descriptor readable. */
static bool poll_locals(struct wefti_link_inbox *inbox) {
    struct epoll_event events[EPOLL_EVENTS];
    if (inbox->epoll_fd < 0) return false;
    bool was_drained = inbox->is_drained;
    inbox->is_drained = false;
    if (was_drained) return false;
    int n = epoll_wait(inbox->epoll_fd, events, EPOLL_EVENTS, 0);
    if (n <= 0) return false;
    inbox->is_drained = n < EPOLL_EVENTS;
    for (int i = 0; i < n; i++)
        take_epoll_event(inbox, &events[i]);
    return true;
}

static struct wefti_link_frame *new_frame(const struct wefti_link_header *header,
                                          const void *bytes) {
    struct wefti_link_frame *frame = malloc(sizeof *frame + header->len);
    if (!frame) return NULL;
    *frame = (struct wefti_link_frame){.header = *header};
    if (header->len > 0) memcpy(frame->bytes, bytes, header->len);
    return frame;
}

static void queue_out_locked(struct wefti_link_conn *conn, struct wefti_link_frame *frame) {
    *conn->out_end = frame;
    conn->out_end = &frame->next;
    conn->n_out++;
    conn->out_bytes += sizeof frame->header + frame->header.len;
}

static bool has_room(const struct wefti_link_conn *conn, size_t len) {
    size_t n_bytes = sizeof(struct wefti_link_header) + len;
    return conn->n_out < OUT_FRAMES_MAX && n_bytes <= OUT_BYTES_MAX - conn->out_bytes;
}

void wefti_link_conn_cork(struct wefti_link_conn *conn, bool on) {
    if (conn->stream.nng || conn->corked == on) return;
    conn->corked = on;
    if (on || !conn->out) return;
    bool was_broken = conn->broken;
    write_local(conn);
    if (conn->broken && !was_broken) signal_locked(conn->inbox); /* the owner is not reading now */
    if (conn->out && !conn->broken) watch_conn(conn, true);
}

/* Straight to the kernel if nothing is before it; what does not fit there is copied and waits. */
static weft_err send_local(struct wefti_link_conn *conn, struct wefti_link_header *header,
                           const void *bytes) {
    if (!has_room(conn, header->len)) wefti_link_conn_cork(conn, false);
    if (!has_room(conn, header->len)) return WEFT_E_FULL;
    size_t n_bytes = sizeof *header + header->len, done = 0;
    header->seq = conn->out_seq;
    if (!conn->out && !conn->broken && !conn->corked) {
        struct iovec iovs[] = {{header, sizeof *header}, {(void *)(uintptr_t)bytes, header->len}};
        struct msghdr msg = {.msg_iov = iovs, .msg_iovlen = header->len > 0 ? 2 : 1};
        ssize_t n = sendmsg(conn->stream.fd, &msg, MSG_NOSIGNAL);
        if (n < 0 && !is_passing(errno)) break_local(conn);
        if (n > 0) done = (size_t)n;
    }
    if (done < n_bytes) {
        struct wefti_link_frame *frame = new_frame(header, bytes);
        if (!frame) return WEFT_E_FULL;
        queue_out_locked(conn, frame);
        conn->out_done += done;
        if (!conn->corked) watch_conn(conn, true);
    }
    conn->out_seq++;
    return WEFT_OK;
}

weft_err wefti_link_conn_send(struct wefti_link_conn *conn, enum wefti_link_frame_kind kind,
                              const void *bytes, size_t len) {
    WEFT_ASSERT(len <= WEFT_MESSAGE_BYTES_MAX);
    struct wefti_link_header header = {.magic = MAGIC,
                                       .version = WEFTI_LINK_VERSION,
                                       .kind = (uint16_t)kind,
                                       .len = (uint32_t)len};
    if (!conn->stream.nng) return send_local(conn, &header, bytes);
    struct wefti_link_frame *frame = new_frame(&header, bytes);
    if (!frame) return WEFT_E_FULL;

    bool starts = false;
    lock(conn->inbox);
    bool fits = has_room(conn, len);
    if (fits) {
        frame->header.seq = conn->out_seq++;
        queue_out_locked(conn, frame);
        starts = !conn->out_busy && !conn->broken;
        if (starts) load_out_locked(conn);
    }
    unlock(conn->inbox);
    if (!fits) free(frame);
    if (starts) nng_stream_send(conn->stream.nng, conn->out_aio);
    return fits ? WEFT_OK : WEFT_E_FULL;
}

/* ------------------------------------------------------------------------------ life and end ---
 */

static bool open_nng(struct wefti_link_conn *conn) {
    if (nng_aio_alloc(&conn->in_aio, on_read, conn) != 0 ||
        nng_aio_alloc(&conn->out_aio, on_sent, conn) != 0)
        return false;
    read_on(conn);
    return true;
}

static bool open_local(struct wefti_link_conn *conn) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    return epoll_ctl(conn->inbox->epoll_fd, EPOLL_CTL_ADD, conn->stream.fd, &event) == 0;
}

weft_err wefti_link_conn_new(struct wefti_link_inbox *inbox, struct wefti_link_stream stream,
                             uint32_t tag, struct wefti_link_conn **conn_out) {
    *conn_out = NULL;
    struct wefti_link_conn *conn = malloc(sizeof *conn);
    if (!conn) {
        wefti_link_stream_drop(stream);
        return WEFT_E_NOMEM;
    }
    memset(conn, 0, offsetof(struct wefti_link_conn, buf));
    conn->inbox = inbox;
    conn->stream = stream;
    conn->tag = tag;
    conn->in_end = &conn->in;
    conn->out_end = &conn->out;
    if (!(stream.nng ? open_nng(conn) : open_local(conn))) {
        wefti_link_conn_free(conn);
        return WEFT_E_NOMEM;
    }
    *conn_out = conn;
    return WEFT_OK;
}

void wefti_link_conn_free(struct wefti_link_conn *conn) {
    if (!conn) return;
    lock(conn->inbox);
    conn->closing = true;
    remove_ready_locked(conn);
    unlock(conn->inbox);
    if (conn->stream.nng) nng_stream_close(conn->stream.nng);
    /* A callback that runs just now may start one more operation: on a closed stream it fails, and
     * on a stopped aio it does not even begin. */
    if (conn->in_aio) nng_aio_stop(conn->in_aio);
    if (conn->out_aio) nng_aio_stop(conn->out_aio);
    if (conn->in_aio) nng_aio_free(conn->in_aio);
    if (conn->out_aio) nng_aio_free(conn->out_aio);
    wefti_link_stream_drop(conn->stream);
    free_frames(conn->in);
    free_frames(conn->out);
    free(conn->body);
    free(conn);
}

uint32_t wefti_link_conn_tag(const struct wefti_link_conn *conn) {
    return conn->tag;
}

#ifdef __SANITIZE_THREAD__
/* nng counts references with atomics of its own, which the sanitizer does not see since the library
 * is not built with it: to it, the last one to let go destroys a mutex without having synchronised.
 */
const char *__tsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void) {
    return "race_top:pthread_mutex_destroy\n";
}
#endif
