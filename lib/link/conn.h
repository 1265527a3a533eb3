/* conn — one byte stream with frames on it, and the inbox of all streams of a link; private to
 * lib/link.
 *
 * Model    A frame is a header of 16 bytes and a body. nng receives into one of two buffers while
 *          the owner cuts the other one into frames in place; only a frame split by a buffer's end
 *          is copied. Frames to send are appended to one buffer, which goes out in one piece, at
 *          once if the socket takes it; later ones wait in a second buffer, sent in one piece too.
 *          So a message costs no memory of its own.
 * Bounds   Sending: frames and bytes that wait are bounded; beyond is FULL. Receiving: with both
 *          buffers full nothing is received until the owner empties one, so the kernel's buffers
 *          fill, then the sender's, and the sender gets FULL. Memory for a frame that is longer
 *          than a buffer grows with the bytes that came, not with the length that its header
 *          claims; from strangers only short frames are taken (wefti_link_conn_know).
 * Threads  nng has threads of its own, and each hand-over between two of them costs as much as a
 *          system call. A send is tried without one (see send_now in conn.c); a receive goes
 *          through nng's poller and a task thread to the owner, which is woken through an eventfd,
 *          once for all that came since it last looked. One mutex per inbox guards what nng's
 *          callbacks and the owner share. It is never held while calling nng; one mutex per
 *          connection is, so that a closed stream is never used. A callback waits for nothing else.
 */
#ifndef WEFT_LINK_CONN_H
#define WEFT_LINK_CONN_H

#include <nng/nng.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "base/limits.h"

enum wefti_link_frame_kind {
    WEFTI_LINK_FRAME_HELLO = 1,
    WEFTI_LINK_FRAME_WELCOME = 2,
    WEFTI_LINK_FRAME_DATA = 3
};

#define WEFTI_LINK_VERSION 1

/* Little-endian, as in memory. */
struct wefti_link_header {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint32_t len; /* bytes of the body */
    uint32_t seq; /* 0, 1, 2, ... per direction; streams keep order: catches our mistakes */
};

struct wefti_link_conn;

/* -------------------------------------------------------------------------------- inbox --- */

enum wefti_link_mail_kind {
    WEFTI_LINK_MAIL_STREAM,      /* accepted or dialled; the taker closes and frees it */
    WEFTI_LINK_MAIL_DIAL_FAILED, /* the other end does not listen */
    WEFTI_LINK_MAIL_TIMER,
    WEFTI_LINK_MAIL_CONN, /* call wefti_link_conn_take until it says NOTHING */
};

struct wefti_link_mail {
    enum wefti_link_mail_kind kind;
    nng_stream *stream;
    struct wefti_link_conn *conn;
};

#define WEFTI_LINK_ARRIVED_MAX 16

TAILQ_HEAD(wefti_link_conns, wefti_link_conn);

struct wefti_link_inbox {
    pthread_mutex_t mutex;
    int fd; /* an eventfd: what the owner polls */
    /* All below under the mutex. */
    bool signalled;
    bool dial_failed, timer;
    bool accept_waits; /* accepting paused (no room) or failed; resumed by whoever sees room */
    uint32_t n_arrived;
    nng_stream *arrived[WEFTI_LINK_ARRIVED_MAX];
    bool stream_last;              /* the last mail was a stream: a ready connection is next */
    struct wefti_link_conns ready; /* connections with something to take */
};

WEFT_MUST_CHECK weft_err wefti_link_inbox_init(struct wefti_link_inbox *inbox,
                                               struct weft_errmsg *why);
void wefti_link_inbox_fini(struct wefti_link_inbox *inbox); /* once no callback runs */
void wefti_link_inbox_wake(struct wefti_link_inbox *inbox);
/* False: there is nothing, and the eventfd is not readable. */
bool wefti_link_inbox_take(struct wefti_link_inbox *inbox, struct wefti_link_mail *mail_out);

/* For callbacks. Puts a stream in; false: no room. */
bool wefti_link_inbox_put_stream(struct wefti_link_inbox *inbox, nng_stream *stream);
void wefti_link_inbox_put_flag(struct wefti_link_inbox *inbox, bool *flag);

/* --------------------------------------------------------------------------- connection --- */

enum wefti_link_broken {
    WEFTI_LINK_BROKEN_NOT,
    WEFTI_LINK_BROKEN_ENDED,
    WEFTI_LINK_BROKEN_NONSENSE,
    WEFTI_LINK_BROKEN_VERSION,
    WEFTI_LINK_BROKEN_STRANGER, /* no TLS, or no certificate of our authority */
};

enum wefti_link_got { WEFTI_LINK_GOT_NOTHING, WEFTI_LINK_GOT_FRAME, WEFTI_LINK_GOT_BROKEN };

struct wefti_link_taken {
    struct wefti_link_header header;
    const unsigned char *bytes;    /* valid until the next take, or wefti_link_conn_free */
    enum wefti_link_broken broken; /* the connection, if it is */
};

/* Closes and frees; accepts NULL. */
void wefti_link_stream_drop(nng_stream *stream);

/* Takes over `stream`, also on failure, and starts reading. `tag` is the caller's. */
WEFT_MUST_CHECK weft_err wefti_link_conn_new(struct wefti_link_inbox *inbox, nng_stream *stream,
                                             bool is_tls, uint32_t tag,
                                             struct wefti_link_conn **conn_out);
/* Drops what was not sent or taken. Waits for running callbacks. */
void wefti_link_conn_close(struct wefti_link_conn *conn);
void wefti_link_conn_free(struct wefti_link_conn *conn); /* closes too; accepts NULL */
uint32_t wefti_link_conn_tag(const struct wefti_link_conn *conn);
nng_stream *wefti_link_conn_stream(const struct wefti_link_conn *conn);

/* From now on frames may be as long as WEFT_MESSAGE_BYTES_MAX; before, one over 4 KiB is NONSENSE,
 * so that a stranger cannot make us hold more than that. */
void wefti_link_conn_know(struct wefti_link_conn *conn);

/* The next frame of a connection that mail was about. NOTHING: mail comes again if it has more,
 * after others' turns. BROKEN comes once, after all frames. */
enum wefti_link_got wefti_link_conn_take(struct wefti_link_conn *conn,
                                         struct wefti_link_taken *taken_out);

/* Copies and sends. WEFT_E_FULL: the queue is full, or memory is out. */
WEFT_MUST_CHECK weft_err wefti_link_conn_send(struct wefti_link_conn *conn,
                                              enum wefti_link_frame_kind kind, const void *bytes,
                                              size_t len);

/* On: frames wait in the queue; off: they go out, in one piece. A full queue goes out by itself. */
void wefti_link_conn_cork(struct wefti_link_conn *conn, bool on);

/* Call it now and then for TLS: notices an end that nng did not report. */
void wefti_link_conn_check(struct wefti_link_conn *conn);

#endif
