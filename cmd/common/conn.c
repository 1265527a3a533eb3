#include "cmd/common/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

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

_Static_assert(sizeof(struct wefti_header) == 16, "no padding");
_Static_assert(offsetof(struct wefti_frame, bytes) ==
                   offsetof(struct wefti_frame, header) + sizeof(struct wefti_header),
               "a frame goes out in one piece");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers travel as they lie");

struct wefti_conn {
    struct wefti_inbox *inbox;
    nng_stream *stream;
    nng_aio *in_aio, *out_aio;
    uint32_t tag;

    /* Under the inbox's mutex. */
    struct wefti_conn *next_ready;
    bool is_ready, closing, paused, broken_told;
    enum wefti_broken broken;
    uint16_t other_version;
    struct wefti_frame *in, **in_end;
    uint32_t n_in;
    size_t in_bytes;
    struct wefti_frame *out, **out_end;
    uint32_t n_out, out_seq;
    size_t out_bytes;
    size_t out_done; /* bytes of the first frame that are sent */
    bool out_busy;   /* a send is under way */

    /* Of the reading callback alone (one at a time). */
    struct wefti_header header; /* being read */
    size_t header_done;
    struct wefti_frame *body; /* being read; NULL: between frames */
    size_t body_done;
    uint32_t in_seq;
    bool into_body; /* the read under way goes straight into `body` */
    unsigned char buf[READ_BYTES];
};

static void lock(struct wefti_inbox *inbox) {
    (void)pthread_mutex_lock(&inbox->mutex);
}

static void unlock(struct wefti_inbox *inbox) {
    (void)pthread_mutex_unlock(&inbox->mutex);
}

/* ------------------------------------------------------------------------------------- inbox ---
 */

weft_err wefti_inbox_init(struct wefti_inbox *inbox, struct weft_errmsg *why) {
    *inbox = (struct wefti_inbox){.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    if (inbox->fd < 0) return weft_err_errno(why, errno, "cannot make an eventfd");
    inbox->ready_end = &inbox->ready;
    (void)pthread_mutex_init(&inbox->mutex, NULL); /* a plain mutex cannot fail on Linux */
    return WEFT_OK;
}

void wefti_stream_drop(nng_stream *stream) {
    nng_stream_close(stream);
    nng_stream_free(stream);
}

void wefti_inbox_fini(struct wefti_inbox *inbox) {
    WEFT_ASSERT(!inbox->ready);
    for (uint32_t i = 0; i < inbox->n_arrived; i++)
        wefti_stream_drop(inbox->arrived[i]);
    (void)close(inbox->fd);
    (void)pthread_mutex_destroy(&inbox->mutex);
}

static void signal_locked(struct wefti_inbox *inbox) {
    if (inbox->signalled) return;
    uint64_t one = 1;
    inbox->signalled = write(inbox->fd, &one, sizeof one) == sizeof one;
    WEFT_ASSERT(inbox->signalled);
}

void wefti_inbox_wake(struct wefti_inbox *inbox) {
    lock(inbox);
    signal_locked(inbox);
    unlock(inbox);
}

bool wefti_inbox_put_stream(struct wefti_inbox *inbox, nng_stream *stream) {
    lock(inbox);
    bool room = inbox->n_arrived < WEFTI_ARRIVED_MAX;
    if (room) {
        inbox->arrived[inbox->n_arrived++] = stream;
        signal_locked(inbox);
    }
    unlock(inbox);
    return room;
}

void wefti_inbox_put_flag(struct wefti_inbox *inbox, bool *flag) {
    lock(inbox);
    *flag = true;
    signal_locked(inbox);
    unlock(inbox);
}

static void make_ready_locked(struct wefti_conn *conn) {
    struct wefti_inbox *inbox = conn->inbox;
    if (conn->is_ready || conn->closing) return;
    conn->is_ready = true;
    conn->next_ready = NULL;
    *inbox->ready_end = conn;
    inbox->ready_end = &conn->next_ready;
    signal_locked(inbox);
}

static void remove_ready_locked(struct wefti_conn *conn) {
    struct wefti_inbox *inbox = conn->inbox;
    if (!conn->is_ready) return;
    struct wefti_conn **at = &inbox->ready;
    while (*at != conn)
        at = &(*at)->next_ready;
    *at = conn->next_ready;
    if (!*at) inbox->ready_end = at;
    conn->is_ready = false;
}

/* Takes the first frame, or what broke the connection. True: reading may go on. */
static bool take_from_locked(struct wefti_conn *conn, struct wefti_mail *mail) {
    struct wefti_frame *frame = conn->in;
    mail->conn = conn;
    if (!frame) {
        WEFT_ASSERT(conn->broken && !conn->broken_told);
        conn->broken_told = true;
        mail->kind = WEFTI_MAIL_BROKEN;
        mail->broken = conn->broken;
        mail->version = conn->other_version;
        return false;
    }
    conn->in = frame->next;
    if (!conn->in) conn->in_end = &conn->in;
    conn->n_in--;
    conn->in_bytes -= frame->header.len;
    mail->kind = WEFTI_MAIL_FRAME;
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

static void read_on(struct wefti_conn *conn);

bool wefti_inbox_take(struct wefti_inbox *inbox, struct wefti_mail *mail_out) {
    struct wefti_conn *conn = NULL;
    bool any = true, goes_on = false;
    *mail_out = (struct wefti_mail){0};
    lock(inbox);
    if (inbox->n_arrived > 0) {
        mail_out->kind = WEFTI_MAIL_STREAM;
        mail_out->stream = inbox->arrived[0];
        inbox->n_arrived--;
        for (uint32_t i = 0; i < inbox->n_arrived; i++)
            inbox->arrived[i] = inbox->arrived[i + 1];
    } else if (take_flag(&inbox->dial_failed)) {
        mail_out->kind = WEFTI_MAIL_DIAL_FAILED;
    } else if (take_flag(&inbox->timer)) {
        mail_out->kind = WEFTI_MAIL_TIMER;
    } else if ((conn = inbox->ready)) {
        remove_ready_locked(conn);
        goes_on = take_from_locked(conn, mail_out);
        if (conn->in || (conn->broken && !conn->broken_told)) make_ready_locked(conn);
    } else {
        uint64_t count;
        if (inbox->signalled) (void)!read(inbox->fd, &count, sizeof count);
        inbox->signalled = false;
        any = false;
    }
    unlock(inbox);
    if (goes_on) read_on(conn);
    return any;
}

/* ----------------------------------------------------------------------------------- reading ---
 */

static void break_locked(struct wefti_conn *conn, enum wefti_broken broken) {
    if (conn->broken) return;
    conn->broken = broken;
    make_ready_locked(conn);
}

static void put_frame(struct wefti_conn *conn, struct wefti_frame *frame) {
    lock(conn->inbox);
    *conn->in_end = frame;
    conn->in_end = &frame->next;
    conn->n_in++;
    conn->in_bytes += frame->header.len;
    make_ready_locked(conn);
    unlock(conn->inbox);
}

/* Memory for more of the body: all of a short one, double of what came of a long one. */
static bool grow_body(struct wefti_conn *conn) {
    size_t len = conn->header.len;
    size_t cap = conn->body ? conn->body->cap * 2 : BODY_BYTES_FIRST;
    if (cap > len) cap = len;
    struct wefti_frame *body = realloc(conn->body, sizeof *body + cap);
    if (!body) return false;
    if (!conn->body) *body = (struct wefti_frame){.header = conn->header};
    body->cap = cap;
    conn->body = body;
    return true;
}

/* The header is complete: begins its body. */
static enum wefti_broken begin_body(struct wefti_conn *conn) {
    const struct wefti_header *header = &conn->header;
    if (header->magic != MAGIC) return WEFTI_BROKEN_NONSENSE;
    if (header->version != WEFTI_LINK_VERSION) {
        lock(conn->inbox);
        conn->other_version = header->version;
        unlock(conn->inbox);
        return WEFTI_BROKEN_VERSION;
    }
    if (header->len > WEFT_MESSAGE_BYTES_MAX || header->seq != conn->in_seq)
        return WEFTI_BROKEN_NONSENSE;
    conn->body_done = 0;
    return grow_body(conn) ? WEFTI_BROKEN_NOT : WEFTI_BROKEN_ENDED;
}

/* The body is complete when all of it is there. */
static enum wefti_broken body_came(struct wefti_conn *conn, size_t n) {
    conn->body_done += n;
    WEFT_ASSERT(conn->body_done <= conn->body->cap);
    if (conn->body_done < conn->header.len) {
        bool room = conn->body_done < conn->body->cap || grow_body(conn);
        return room ? WEFTI_BROKEN_NOT : WEFTI_BROKEN_ENDED;
    }
    put_frame(conn, conn->body);
    conn->body = NULL;
    conn->header_done = 0;
    conn->in_seq++;
    return WEFTI_BROKEN_NOT;
}

/* Cuts `n` bytes into frames. */
static enum wefti_broken bytes_came(struct wefti_conn *conn, const unsigned char *bytes, size_t n) {
    enum wefti_broken broken = WEFTI_BROKEN_NOT;
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

static void read_on(struct wefti_conn *conn) {
    nng_iov iov = {.iov_buf = conn->buf, .iov_len = sizeof conn->buf};
    conn->into_body = conn->body && conn->header.len - conn->body_done >= sizeof conn->buf;
    if (conn->into_body) {
        iov.iov_buf = conn->body->bytes + conn->body_done;
        iov.iov_len = conn->body->cap - conn->body_done;
    }
    (void)nng_aio_set_iov(conn->in_aio, 1, &iov); /* fails for too many only */
    nng_stream_recv(conn->stream, conn->in_aio);
}

static void on_read(void *arg) {
    struct wefti_conn *conn = arg;
    enum wefti_broken broken = WEFTI_BROKEN_ENDED;
    if (nng_aio_result(conn->in_aio) == 0) {
        size_t n = nng_aio_count(conn->in_aio);
        broken = conn->into_body ? body_came(conn, n) : bytes_came(conn, conn->buf, n);
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
static void load_out_locked(struct wefti_conn *conn) {
    nng_iov iovs[IOVS_MAX];
    unsigned n = 0;
    for (struct wefti_frame *frame = conn->out; frame && n < IOVS_MAX; frame = frame->next) {
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
static struct wefti_frame *unload_out_locked(struct wefti_conn *conn, size_t n) {
    struct wefti_frame *sent = NULL;
    conn->out_done += n;
    while (conn->out) {
        struct wefti_frame *frame = conn->out;
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

static void free_frames(struct wefti_frame *frame) {
    while (frame) {
        struct wefti_frame *next = frame->next;
        free(frame);
        frame = next;
    }
}

static void on_sent(void *arg) {
    struct wefti_conn *conn = arg;
    struct wefti_frame *sent = NULL;
    bool goes_on = false;
    int rv = nng_aio_result(conn->out_aio);
    lock(conn->inbox);
    conn->out_busy = false;
    if (rv != 0) {
        break_locked(conn, WEFTI_BROKEN_ENDED);
    } else {
        sent = unload_out_locked(conn, nng_aio_count(conn->out_aio));
        goes_on = conn->out && !conn->closing;
        if (goes_on) load_out_locked(conn);
    }
    unlock(conn->inbox);
    free_frames(sent);
    if (goes_on) nng_stream_send(conn->stream, conn->out_aio);
}

weft_err wefti_conn_send(struct wefti_conn *conn, enum wefti_frame_kind kind, const void *bytes,
                         size_t len) {
    WEFT_ASSERT(len <= WEFT_MESSAGE_BYTES_MAX);
    struct wefti_frame *frame = malloc(sizeof *frame + len);
    if (!frame) return WEFT_E_FULL;
    *frame = (struct wefti_frame){.header = {.magic = MAGIC,
                                             .version = WEFTI_LINK_VERSION,
                                             .kind = (uint16_t)kind,
                                             .len = (uint32_t)len}};
    if (len > 0) memcpy(frame->bytes, bytes, len);

    bool starts = false;
    lock(conn->inbox);
    size_t n_bytes = sizeof frame->header + len;
    bool fits = conn->n_out < OUT_FRAMES_MAX && n_bytes <= OUT_BYTES_MAX - conn->out_bytes;
    if (fits) {
        frame->header.seq = conn->out_seq++;
        *conn->out_end = frame;
        conn->out_end = &frame->next;
        conn->n_out++;
        conn->out_bytes += n_bytes;
        starts = !conn->out_busy && !conn->broken;
        if (starts) load_out_locked(conn);
    }
    unlock(conn->inbox);
    if (!fits) free(frame);
    if (starts) nng_stream_send(conn->stream, conn->out_aio);
    return fits ? WEFT_OK : WEFT_E_FULL;
}

/* ------------------------------------------------------------------------------ life and end ---
 */

weft_err wefti_conn_new(struct wefti_inbox *inbox, nng_stream *stream, uint32_t tag,
                        struct wefti_conn **conn_out) {
    *conn_out = NULL;
    struct wefti_conn *conn = malloc(sizeof *conn);
    if (!conn) {
        wefti_stream_drop(stream);
        return WEFT_E_NOMEM;
    }
    memset(conn, 0, offsetof(struct wefti_conn, buf));
    conn->inbox = inbox;
    conn->stream = stream;
    conn->tag = tag;
    conn->in_end = &conn->in;
    conn->out_end = &conn->out;
    if (nng_aio_alloc(&conn->in_aio, on_read, conn) != 0 ||
        nng_aio_alloc(&conn->out_aio, on_sent, conn) != 0) {
        wefti_conn_free(conn);
        return WEFT_E_NOMEM;
    }
    read_on(conn);
    *conn_out = conn;
    return WEFT_OK;
}

void wefti_conn_free(struct wefti_conn *conn) {
    if (!conn) return;
    lock(conn->inbox);
    conn->closing = true;
    remove_ready_locked(conn);
    unlock(conn->inbox);
    nng_stream_close(conn->stream);
    /* A callback that runs just now may start one more operation: on a closed stream it fails, and
     * on a stopped aio it does not even begin. */
    if (conn->in_aio) nng_aio_stop(conn->in_aio);
    if (conn->out_aio) nng_aio_stop(conn->out_aio);
    if (conn->in_aio) nng_aio_free(conn->in_aio);
    if (conn->out_aio) nng_aio_free(conn->out_aio);
    nng_stream_free(conn->stream);
    free_frames(conn->in);
    free_frames(conn->out);
    free(conn->body);
    free(conn);
}

uint32_t wefti_conn_tag(const struct wefti_conn *conn) {
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
