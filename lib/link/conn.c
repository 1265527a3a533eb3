#include "conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

#define MAGIC 0x4b4c4657u /* "WFLK" */

/* Bound of frames waiting for a peer that does not read. A router that finds a new scheduler sends
 * all its open requests in one turn of its loop; over the bound it would have to start over with as
 * many, so this is well above --max-connections. */
#define OUT_FRAMES_MAX 65536
#define OUT_BYTES_MAX ((size_t)2 * WEFT_MESSAGE_BYTES_MAX)

/* The longest body from a peer that has not identified itself: a HELLO of a later release with room
 * to spare. */
#define STRANGER_BYTES_MAX 4096

#define CHUNKS 2                       /* nng fills one while the owner empties the other */
#define CHUNK_BYTES ((size_t)64 << 10) /* received at once: many small frames */

/* Larger buffers are freed after use. */
#define BYTES_KEPT ((size_t)1 << 20)
#define BYTES_FIRST ((size_t)4 << 10) /* then doubled as they fill */

#define HEADER_BYTES sizeof(struct wefti_link_header)
_Static_assert(HEADER_BYTES == 16, "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers travel as they lie");

struct bytes {
    unsigned char *data;
    size_t len, cap;
    size_t at;         /* when sending: bytes before it are sent, */
    size_t frame_at;   /* and all of the frames before this one, */
    uint32_t n_frames; /* the number of frames left */
};

struct wefti_link_conn {
    struct wefti_link_inbox *inbox;
    nng_stream *stream;
    bool is_tls;
    uint32_t tag;
    nng_aio *in_aio, *out_aio; /* with callbacks */
    nng_aio *now_aio;          /* without one: see send_now */

    pthread_mutex_t nng_mutex; /* held while `stream` is called */
    bool is_closed;            /* under it */

    /* Under the inbox's mutex. */
    TAILQ_ENTRY(wefti_link_conn) ready_entry;
    bool is_queued;        /* in the list of ready connections */
    bool is_ready;         /* queued, or the owner is taking from it */
    bool closing, paused;  /* paused: nothing is being received */
    uint32_t first_filled; /* chunk */
    uint32_t n_filled;     /* chunks, the one that the owner is at included */
    size_t filled[CHUNKS]; /* bytes in them */
    enum wefti_link_broken broken;
    bool broken_told;
    bool corked;
    bool out_busy;        /* `flying` is with nng */
    struct bytes flying;  /* nng's while out_busy, else empty */
    struct bytes waiting; /* the owner's, but a callback may take it over while out_busy */

    /* The owner's. */
    bool is_known;    /* false: STRANGER_BYTES_MAX holds */
    bool holds_chunk; /* and has got to this place: */
    const unsigned char *at, *end;
    struct wefti_link_header header; /* header of the frame in `partial` */
    bool has_header;
    bool partial_done;    /* `partial` was handed out whole; the next take clears it */
    struct bytes partial; /* a frame split by the end of a chunk */
    uint32_t in_seq, out_seq;

    unsigned char chunks[CHUNKS][CHUNK_BYTES];
};

static void lock(struct wefti_link_inbox *inbox) {
    (void)pthread_mutex_lock(&inbox->mutex);
}

static void unlock(struct wefti_link_inbox *inbox) {
    (void)pthread_mutex_unlock(&inbox->mutex);
}

/* ----------------------------------------------------------------------------------- bytes --- */

static void bytes_fini(struct bytes *bytes) {
    free(bytes->data);
    *bytes = (struct bytes){0};
}

static void bytes_clear(struct bytes *bytes) {
    if (bytes->cap > BYTES_KEPT) bytes_fini(bytes);
    bytes->len = bytes->at = bytes->frame_at = 0;
    bytes->n_frames = 0;
}

/* Makes room for `n` more bytes, by doubling, so memory follows the bytes received. */
static bool bytes_grow(struct bytes *bytes, size_t n) {
    if (n <= bytes->cap - bytes->len) return true;
    size_t cap = bytes->cap ? bytes->cap * 2 : BYTES_FIRST;
    while (cap - bytes->len < n)
        cap *= 2; /* callers keep their bounds far below half of the address space */
    unsigned char *data = realloc(bytes->data, cap);
    if (!data) return false;
    bytes->data = data;
    bytes->cap = cap;
    return true;
}

/* Appends where bytes_grow made room. */
static void bytes_put(struct bytes *bytes, const void *from, size_t n) {
    WEFT_ASSERT(n <= bytes->cap - bytes->len);
    if (n > 0) memcpy(bytes->data + bytes->len, from, n);
    bytes->len += n;
}

/* Notes that `n` more bytes are sent. */
static void bytes_sent(struct bytes *bytes, size_t n) {
    struct wefti_link_header header;
    bytes->at += n;
    WEFT_ASSERT(bytes->at <= bytes->len);
    while (bytes->at - bytes->frame_at >= HEADER_BYTES) {
        memcpy(&header, bytes->data + bytes->frame_at, HEADER_BYTES);
        if (bytes->at - bytes->frame_at < HEADER_BYTES + header.len) return;
        bytes->frame_at += HEADER_BYTES + header.len;
        bytes->n_frames--;
    }
}

static void bytes_swap(struct bytes *a, struct bytes *b) {
    struct bytes was = *a;
    *a = *b;
    *b = was;
}

/* ----------------------------------------------------------------------------------- inbox --- */

weft_err wefti_link_inbox_init(struct wefti_link_inbox *inbox, struct weft_errmsg *why) {
    *inbox = (struct wefti_link_inbox){.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    if (inbox->fd < 0) return weft_err_errno(why, errno, "cannot make the descriptor of a link");
    TAILQ_INIT(&inbox->ready);
    (void)pthread_mutex_init(&inbox->mutex, NULL); /* a plain mutex cannot fail on Linux */
    return WEFT_OK;
}

void wefti_link_stream_drop(nng_stream *stream) {
    if (!stream) return;
    nng_stream_close(stream);
    nng_stream_free(stream);
}

void wefti_link_inbox_fini(struct wefti_link_inbox *inbox) {
    WEFT_ASSERT(TAILQ_EMPTY(&inbox->ready));
    for (uint32_t i = 0; i < inbox->n_arrived; i++)
        wefti_link_stream_drop(inbox->arrived[i]);
    (void)close(inbox->fd);
    (void)pthread_mutex_destroy(&inbox->mutex);
}

/* True: the caller must signal after unlocking, since the woken thread wants the mutex. */
static bool wants_signal_locked(struct wefti_link_inbox *inbox) {
    bool wants = !inbox->signalled;
    inbox->signalled = true;
    return wants;
}

static void signal_owner(struct wefti_link_inbox *inbox, bool wants) {
    uint64_t one = 1;
    if (!wants) return;
    bool written = write(inbox->fd, &one, sizeof one) == sizeof one;
    WEFT_ASSERT(written);
}

void wefti_link_inbox_wake(struct wefti_link_inbox *inbox) {
    lock(inbox);
    bool wants = wants_signal_locked(inbox);
    unlock(inbox);
    signal_owner(inbox, wants);
}

bool wefti_link_inbox_put_stream(struct wefti_link_inbox *inbox, nng_stream *stream) {
    lock(inbox);
    bool room = inbox->n_arrived < WEFTI_LINK_ARRIVED_MAX;
    if (room) inbox->arrived[inbox->n_arrived++] = stream;
    bool wants = room && wants_signal_locked(inbox);
    unlock(inbox);
    signal_owner(inbox, wants);
    return room;
}

void wefti_link_inbox_put_flag(struct wefti_link_inbox *inbox, bool *flag) {
    lock(inbox);
    *flag = true;
    bool wants = wants_signal_locked(inbox);
    unlock(inbox);
    signal_owner(inbox, wants);
}

static void queue_locked(struct wefti_link_conn *conn) {
    WEFT_ASSERT(!conn->is_queued);
    conn->is_ready = conn->is_queued = true;
    TAILQ_INSERT_TAIL(&conn->inbox->ready, conn, ready_entry);
}

/* Marks a connection that has something. True: the caller must signal. */
static bool make_ready_locked(struct wefti_link_conn *conn) {
    if (conn->is_ready || conn->closing) return false;
    queue_locked(conn);
    return wants_signal_locked(conn->inbox);
}

static bool take_flag(bool *flag) {
    bool was = *flag;
    *flag = false;
    return was;
}

/* New streams and connections take turns: neither can keep the other waiting by coming without end.
 * True: there was something. */
static bool take_locked(struct wefti_link_inbox *inbox, struct wefti_link_mail *mail_out) {
    struct wefti_link_conn *conn = TAILQ_FIRST(&inbox->ready);
    bool takes_stream = inbox->n_arrived > 0 && !(inbox->stream_last && conn);
    inbox->stream_last = takes_stream;
    if (takes_stream) {
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
        mail_out->kind = WEFTI_LINK_MAIL_CONN;
        mail_out->conn = conn;
        TAILQ_REMOVE(&inbox->ready, conn, ready_entry);
        conn->is_queued = false;
    } else {
        return false;
    }
    return true;
}

/* Signals are sent after unlocking, so the descriptor may not be readable yet. It soon will be, and
 * nobody needs to signal again until it is read. */
static void unsignal_locked(struct wefti_link_inbox *inbox) {
    uint64_t count;
    if (inbox->signalled) inbox->signalled = read(inbox->fd, &count, sizeof count) != sizeof count;
}

bool wefti_link_inbox_take(struct wefti_link_inbox *inbox, struct wefti_link_mail *mail_out) {
    *mail_out = (struct wefti_link_mail){0};
    lock(inbox);
    bool any = take_locked(inbox, mail_out);
    if (!any) unsignal_locked(inbox);
    unlock(inbox);
    return any;
}

/* -------------------------------------------------------------------------------- receiving --- */

/* True: the caller must signal. */
static bool break_locked(struct wefti_link_conn *conn, enum wefti_link_broken broken) {
    if (conn->broken) return false;
    conn->broken = broken;
    return make_ready_locked(conn);
}

/* Hands an operation to nng, unless the stream is closed: a closed one usually keeps it for ever
 * instead of refusing it, and nng_aio_stop would wait for it. */
static void ask(struct wefti_link_conn *conn, void (*operation)(nng_stream *, nng_aio *),
                nng_aio *aio, nng_iov iov) {
    (void)pthread_mutex_lock(&conn->nng_mutex);
    if (!conn->is_closed) {
        (void)nng_aio_set_iov(aio, 1, &iov); /* fails only for too many */
        operation(conn->stream, aio);
    }
    (void)pthread_mutex_unlock(&conn->nng_mutex);
}

/* Receives into the chunk after the filled ones. Nobody else asks for it meanwhile, and giving back
 * the first filled one does not change which one it is. */
static void receive(struct wefti_link_conn *conn) {
    lock(conn->inbox);
    WEFT_ASSERT(conn->n_filled < CHUNKS);
    uint32_t idx = (conn->first_filled + conn->n_filled) % CHUNKS;
    unlock(conn->inbox);
    ask(conn, nng_stream_recv, conn->in_aio,
        (nng_iov){.iov_buf = conn->chunks[idx], .iov_len = CHUNK_BYTES});
}

static enum wefti_link_broken how_broken(int rv) {
    return rv == NNG_EPEERAUTH || rv == NNG_ECRYPTO ? WEFTI_LINK_BROKEN_STRANGER
                                                    : WEFTI_LINK_BROKEN_ENDED;
}

static void on_received(void *arg) {
    struct wefti_link_conn *conn = arg;
    int rv = nng_aio_result(conn->in_aio);
    size_t n = nng_aio_count(conn->in_aio);
    bool goes_on = false, wants;
    lock(conn->inbox);
    if (rv != 0 || n == 0) { /* no bytes: the end of a TLS stream */
        wants = break_locked(conn, how_broken(rv));
    } else {
        conn->filled[(conn->first_filled + conn->n_filled) % CHUNKS] = n;
        conn->n_filled++;
        /* Usually the owner asks for more: nng's poller, which has just woken this thread, may
         * still hold the stream's lock, and waiting for it costs two thread switches. This thread
         * asks if there is surely more, and for TLS, which reports its end only to a pending
         * receive. */
        bool is_more = n == CHUNK_BYTES || conn->is_tls;
        goes_on = is_more && conn->n_filled < CHUNKS && !conn->broken && !conn->closing;
        conn->paused = !goes_on;
        wants = make_ready_locked(conn);
    }
    unlock(conn->inbox);
    signal_owner(conn->inbox, wants);
    if (goes_on) receive(conn);
}

/* ---------------------------------------------------------------------------------- cutting --- */

static enum wefti_link_got broken_as(struct wefti_link_conn *conn, enum wefti_link_broken broken,
                                     struct wefti_link_taken *taken) {
    lock(conn->inbox);
    if (!conn->broken) conn->broken = broken;
    conn->broken_told = true;
    conn->is_ready = false;
    taken->broken = broken;
    unlock(conn->inbox);
    return WEFTI_LINK_GOT_BROKEN;
}

/* The owner begins with the first filled chunk. */
static enum wefti_link_got begin_chunk(struct wefti_link_conn *conn,
                                       struct wefti_link_taken *taken) {
    enum wefti_link_got got = WEFTI_LINK_GOT_NOTHING;
    bool resumes = false;
    lock(conn->inbox);
    WEFT_ASSERT(conn->is_ready && !conn->is_queued);
    if (conn->n_filled > 0) {
        conn->at = conn->chunks[conn->first_filled];
        conn->end = conn->at + conn->filled[conn->first_filled];
        conn->holds_chunk = true;
        resumes = conn->paused && conn->n_filled < CHUNKS && !conn->broken;
        if (resumes) conn->paused = false;
    } else {
        conn->is_ready = false;
        if (conn->broken && !conn->broken_told) got = WEFTI_LINK_GOT_BROKEN;
        conn->broken_told = conn->broken;
        taken->broken = conn->broken;
    }
    unlock(conn->inbox);
    if (resumes) receive(conn);
    return got;
}

/* Gives a used-up chunk back to nng. What came meanwhile waits for the other connections' turns. */
static void end_chunk(struct wefti_link_conn *conn) {
    lock(conn->inbox);
    WEFT_ASSERT(conn->n_filled > 0);
    conn->first_filled = (conn->first_filled + 1) % CHUNKS;
    conn->n_filled--;
    conn->holds_chunk = false;
    bool resumes = conn->paused && !conn->broken;
    conn->paused = false;
    conn->is_ready = false;
    if (conn->n_filled > 0 || (conn->broken && !conn->broken_told)) queue_locked(conn);
    unlock(conn->inbox);
    if (resumes) receive(conn);
}

static enum wefti_link_broken check_header(const struct wefti_link_conn *conn,
                                           const struct wefti_link_header *header) {
    if (header->magic != MAGIC) return WEFTI_LINK_BROKEN_NONSENSE;
    if (header->version != WEFTI_LINK_VERSION) return WEFTI_LINK_BROKEN_VERSION;
    uint32_t len_max = conn->is_known ? WEFT_MESSAGE_BYTES_MAX : STRANGER_BYTES_MAX;
    bool is_sound = header->len <= len_max && header->seq == conn->in_seq;
    return is_sound ? WEFTI_LINK_BROKEN_NOT : WEFTI_LINK_BROKEN_NONSENSE;
}

static enum wefti_link_got show_frame(struct wefti_link_conn *conn, const unsigned char *frame,
                                      struct wefti_link_taken *taken) {
    taken->header = conn->header;
    taken->bytes = frame + HEADER_BYTES;
    conn->has_header = false;
    conn->in_seq++;
    return WEFTI_LINK_GOT_FRAME;
}

/* Moves `n` bytes of the chunk to `partial`, which collects a split frame. */
static bool set_aside(struct wefti_link_conn *conn, size_t n) {
    if (!bytes_grow(&conn->partial, n)) return false;
    bytes_put(&conn->partial, conn->at, n);
    conn->at += n;
    return true;
}

/* Reads the header of the next frame. True: all of it is there. */
static bool see_header(struct wefti_link_conn *conn, bool *no_memory) {
    size_t left = (size_t)(conn->end - conn->at);
    const unsigned char *from = conn->at;
    if (conn->has_header) return true;
    if (conn->partial.len > 0 || left < HEADER_BYTES) {
        size_t part = HEADER_BYTES - conn->partial.len;
        *no_memory = !set_aside(conn, part < left ? part : left);
        if (*no_memory || conn->partial.len < HEADER_BYTES) return false;
        from = conn->partial.data;
    }
    memcpy(&conn->header, from, HEADER_BYTES);
    return true;
}

/* NOTHING: the chunk has no more whole frames. */
static enum wefti_link_got cut_frame(struct wefti_link_conn *conn, struct wefti_link_taken *taken) {
    bool no_memory = false;
    if (conn->partial_done) bytes_clear(&conn->partial);
    conn->partial_done = false;
    if (!see_header(conn, &no_memory))
        return no_memory ? broken_as(conn, WEFTI_LINK_BROKEN_ENDED, taken) : WEFTI_LINK_GOT_NOTHING;
    if (!conn->has_header) {
        enum wefti_link_broken broken = check_header(conn, &conn->header);
        taken->header = conn->header;
        if (broken) return broken_as(conn, broken, taken);
        conn->has_header = true;
    }
    size_t total = HEADER_BYTES + conn->header.len, left = (size_t)(conn->end - conn->at);
    if (conn->partial.len == 0 && left >= total) {
        const unsigned char *frame = conn->at;
        conn->at += total;
        return show_frame(conn, frame, taken);
    }
    size_t missing = total - conn->partial.len;
    if (!set_aside(conn, missing < left ? missing : left))
        return broken_as(conn, WEFTI_LINK_BROKEN_ENDED, taken);
    if (conn->partial.len < total) return WEFTI_LINK_GOT_NOTHING;
    conn->partial_done = true;
    return show_frame(conn, conn->partial.data, taken);
}

enum wefti_link_got wefti_link_conn_take(struct wefti_link_conn *conn,
                                         struct wefti_link_taken *taken_out) {
    enum wefti_link_got got = WEFTI_LINK_GOT_NOTHING;
    *taken_out = (struct wefti_link_taken){0};
    if (!conn->holds_chunk) got = begin_chunk(conn, taken_out);
    if (!conn->holds_chunk) return got;
    while (!got && conn->at < conn->end)
        got = cut_frame(conn, taken_out);
    if (!got) end_chunk(conn);
    return got;
}

/* ---------------------------------------------------------------------------------- sending --- */

static void send_flying(struct wefti_link_conn *conn) {
    struct bytes *out = &conn->flying;
    ask(conn, nng_stream_send, conn->out_aio,
        (nng_iov){.iov_buf = out->data + out->at, .iov_len = out->len - out->at});
}

/* Hands the waiting buffer to sending. */
static void take_off_locked(struct wefti_link_conn *conn) {
    bytes_clear(&conn->flying);
    bytes_swap(&conn->flying, &conn->waiting);
    conn->out_busy = true;
}

static void on_sent(void *arg) {
    struct wefti_link_conn *conn = arg;
    int rv = nng_aio_result(conn->out_aio);
    bool wants = false;
    lock(conn->inbox);
    bytes_sent(&conn->flying, nng_aio_count(conn->out_aio));
    if (rv != 0) {
        wants = break_locked(conn, how_broken(rv));
        conn->out_busy = false;
    } else if (conn->flying.at == conn->flying.len) {
        bytes_clear(&conn->flying);
        conn->out_busy = false;
        if (conn->waiting.len > 0 && !conn->corked) take_off_locked(conn);
    }
    bool goes_on = conn->out_busy && !conn->closing;
    unlock(conn->inbox);
    signal_owner(conn->inbox, wants);
    if (goes_on) send_flying(conn);
}

/* Sends as much as the socket takes now. nng completes such an operation in the calling thread, and
 * would run a callback in another thread; without a callback it costs only a system call. An
 * operation that would have to wait is cancelled, with nothing sent: false, and the caller uses the
 * one with a callback. */
static bool send_now(struct wefti_link_conn *conn) {
    struct bytes *out = &conn->waiting;
    ask(conn, nng_stream_send, conn->now_aio,
        (nng_iov){.iov_buf = out->data + out->at, .iov_len = out->len - out->at});
    if (nng_aio_count(conn->now_aio) == 0 && nng_aio_result(conn->now_aio) == 0)
        nng_aio_cancel(conn->now_aio);
    nng_aio_wait(conn->now_aio); /* its completion may still be running */
    int rv = nng_aio_result(conn->now_aio);
    if (rv == NNG_ECANCELED) return false;
    bytes_sent(out, nng_aio_count(conn->now_aio));
    if (rv == 0) return true;
    bytes_clear(out); /* it is dropped */
    lock(conn->inbox);
    bool wants = break_locked(conn, WEFTI_LINK_BROKEN_ENDED);
    unlock(conn->inbox);
    signal_owner(conn->inbox, wants);
    return true;
}

/* The owner's, while nothing is being sent. send_now is not for TLS: nng closes a TLS stream if a
 * send is cancelled. */
static void send_waiting(struct wefti_link_conn *conn) {
    struct bytes *out = &conn->waiting;
    bool is_taken = !conn->is_tls;
    while (is_taken && out->at < out->len)
        is_taken = send_now(conn);
    if (is_taken) {
        bytes_clear(out);
        return;
    }
    lock(conn->inbox);
    take_off_locked(conn);
    unlock(conn->inbox);
    send_flying(conn);
}

static bool has_room_locked(const struct wefti_link_conn *conn, size_t n_bytes) {
    size_t n_out = conn->flying.len - conn->flying.at + conn->waiting.len - conn->waiting.at;
    return conn->flying.n_frames + conn->waiting.n_frames < OUT_FRAMES_MAX &&
           n_bytes <= OUT_BYTES_MAX - n_out;
}

/* A cork holds no more than half of what may wait: the other half is room for what comes while that
 * goes out, which TLS never does at once. */
static bool bursts_cork_locked(const struct wefti_link_conn *conn, size_t n_bytes) {
    return conn->corked && (conn->waiting.n_frames >= OUT_FRAMES_MAX / 2 ||
                            conn->waiting.len + n_bytes > OUT_BYTES_MAX / 2);
}

static bool may_send_locked(const struct wefti_link_conn *conn) {
    return conn->waiting.len > 0 && !conn->out_busy && !conn->corked && !conn->broken;
}

void wefti_link_conn_cork(struct wefti_link_conn *conn, bool on) {
    lock(conn->inbox);
    conn->corked = on;
    bool sends = may_send_locked(conn);
    unlock(conn->inbox);
    if (sends) send_waiting(conn);
}

weft_err wefti_link_conn_send(struct wefti_link_conn *conn, enum wefti_link_frame_kind kind,
                              const void *bytes, size_t len) {
    WEFT_ASSERT(len <= WEFT_MESSAGE_BYTES_MAX);
    struct wefti_link_header header = {.magic = MAGIC,
                                       .version = WEFTI_LINK_VERSION,
                                       .kind = (uint16_t)kind,
                                       .len = (uint32_t)len,
                                       .seq = conn->out_seq};
    lock(conn->inbox);
    if (bursts_cork_locked(conn, HEADER_BYTES + len)) {
        unlock(conn->inbox);
        wefti_link_conn_cork(conn, false);
        lock(conn->inbox);
    }
    bool fits =
        has_room_locked(conn, HEADER_BYTES + len) && bytes_grow(&conn->waiting, HEADER_BYTES + len);
    if (fits) {
        bytes_put(&conn->waiting, &header, HEADER_BYTES);
        bytes_put(&conn->waiting, bytes, len);
        conn->waiting.n_frames++;
        conn->out_seq++;
    }
    bool sends = fits && may_send_locked(conn);
    unlock(conn->inbox);
    if (sends) send_waiting(conn);
    return fits ? WEFT_OK : WEFT_E_FULL;
}

/* ----------------------------------------------------------------------------- life and end --- */

weft_err wefti_link_conn_new(struct wefti_link_inbox *inbox, nng_stream *stream, bool is_tls,
                             uint32_t tag, struct wefti_link_conn **conn_out) {
    *conn_out = NULL;
    struct wefti_link_conn *conn = malloc(sizeof *conn);
    if (!conn) {
        wefti_link_stream_drop(stream);
        return WEFT_E_NOMEM;
    }
    memset(conn, 0, offsetof(struct wefti_link_conn, chunks));
    conn->inbox = inbox;
    conn->stream = stream;
    conn->is_tls = is_tls;
    conn->tag = tag;
    (void)pthread_mutex_init(&conn->nng_mutex, NULL);
    if (nng_aio_alloc(&conn->in_aio, on_received, conn) != 0 ||
        nng_aio_alloc(&conn->out_aio, on_sent, conn) != 0 ||
        nng_aio_alloc(&conn->now_aio, NULL, NULL) != 0) {
        wefti_link_conn_free(conn);
        return WEFT_E_NOMEM;
    }
    receive(conn);
    *conn_out = conn;
    return WEFT_OK;
}

void wefti_link_conn_close(struct wefti_link_conn *conn) {
    if (!conn->stream) return;
    lock(conn->inbox);
    conn->closing = true;
    if (conn->is_queued) TAILQ_REMOVE(&conn->inbox->ready, conn, ready_entry);
    conn->is_queued = conn->is_ready = false;
    unlock(conn->inbox);
    (void)pthread_mutex_lock(&conn->nng_mutex);
    conn->is_closed = true;
    nng_stream_close(conn->stream); /* ends pending operations */
    (void)pthread_mutex_unlock(&conn->nng_mutex);
    nng_aio *const aios[] = {conn->in_aio, conn->out_aio, conn->now_aio};
    for (size_t i = 0; i < sizeof aios / sizeof aios[0]; i++) {
        nng_aio_stop(aios[i]); /* NULL is fine, for free too */
        nng_aio_free(aios[i]);
    }
    nng_stream_free(conn->stream);
    conn->stream = NULL;
}

void wefti_link_conn_free(struct wefti_link_conn *conn) {
    if (!conn) return;
    wefti_link_conn_close(conn);
    (void)pthread_mutex_destroy(&conn->nng_mutex);
    bytes_fini(&conn->flying);
    bytes_fini(&conn->waiting);
    bytes_fini(&conn->partial);
    free(conn);
}

uint32_t wefti_link_conn_tag(const struct wefti_link_conn *conn) {
    return conn->tag;
}

void wefti_link_conn_know(struct wefti_link_conn *conn) {
    conn->is_known = true;
}

nng_stream *wefti_link_conn_stream(const struct wefti_link_conn *conn) {
    return conn->stream;
}

/* nng's TLS reports the end of a stream only to a receive that is pending then, and never to one
 * that begins later. But it has shut down the TCP socket below, which then has no peer. */
void wefti_link_conn_check(struct wefti_link_conn *conn) {
    nng_sockaddr peer;
    if (!conn->is_tls || nng_stream_get_addr(conn->stream, NNG_OPT_REMADDR, &peer) == 0) return;
    lock(conn->inbox);
    bool wants = break_locked(conn, WEFTI_LINK_BROKEN_ENDED);
    unlock(conn->inbox);
    signal_owner(conn->inbox, wants);
}

#ifdef __SANITIZE_THREAD__
/* nng counts references with its own atomics, which the sanitizer does not see since the library is
 * built without it: so the last release seems to destroy a mutex without synchronisation. */
const char *__tsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void) {
    return "race_top:pthread_mutex_destroy\n";
}
#endif
