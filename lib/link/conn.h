/* conn — one byte stream with frames on it, and the inbox of all streams of a link; private to
 * lib/link.
 *
 * Model    A frame is a header of 16 bytes and a body. A stream is a socket of this host (local.h),
 *          or one of nng's.
 *          A local one is its owner's to work: a send goes straight to the kernel, what does not
 *          fit there waits in a queue until the socket takes more, and reading happens when the
 *          owner asks for mail; one epoll descriptor watches them all.
 *          nng's are worked by its threads: sending appends to a queue that they empty, and they
 *          cut what they receive into frames. An eventfd wakes the owner.
 *          Either way frames wait in the connection's own list, and the owner takes one after
 *          another, the connections in turn, so that none can starve another.
 * Bounds   Sending: frames and bytes that wait; over them it is FULL. Receiving: over the bounds of
 *          its list a connection is not read until the owner has taken half of it, so the kernel's
 *          buffers fill up, then the sender's queue, and the sender hears FULL. Memory for a body
 *          grows with the bytes that came, not with the length that the header claims.
 * Threads  One mutex per inbox guards what nng's callbacks and the owner share. It is never held
 *          while calling nng. A callback waits for nothing else. Of a local link all is the
 * owner's.
 */
#ifndef WEFT_LINK_CONN_H
#define WEFT_LINK_CONN_H

#include <nng/nng.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"

enum wefti_link_frame_kind {
    WEFTI_LINK_FRAME_HELLO = 1,
    WEFTI_LINK_FRAME_WELCOME = 2,
    WEFTI_LINK_FRAME_DATA = 3
};

#define WEFTI_LINK_VERSION 1

/* Little-endian, as it lies. */
struct wefti_link_header {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint32_t len; /* of the body */
    uint32_t
        seq; /* 0, 1, 2, ... per direction; the streams keep order, so this catches ourselves */
};

struct wefti_link_frame {
    struct wefti_link_frame *next;
    size_t cap; /* of `bytes` */
    struct wefti_link_header header;
    unsigned char bytes[];
};

struct wefti_link_conn;

struct wefti_link_stream {
    nng_stream *nng; /* NULL: local */
    int fd;          /* -1: nng's */
};

enum wefti_link_mail_kind {
    WEFTI_LINK_MAIL_STREAM,      /* accepted or dialled: the taker's to close and free */
    WEFTI_LINK_MAIL_DIAL_FAILED, /* the other end does not listen */
    WEFTI_LINK_MAIL_TIMER,
    WEFTI_LINK_MAIL_FRAME,  /* the taker's to free() */
    WEFTI_LINK_MAIL_BROKEN, /* the last of its connection: the stream ended, or is no use */
};

enum wefti_link_broken {
    WEFTI_LINK_BROKEN_NOT,
    WEFTI_LINK_BROKEN_ENDED,
    WEFTI_LINK_BROKEN_NONSENSE,
    WEFTI_LINK_BROKEN_VERSION
};

struct wefti_link_mail {
    enum wefti_link_mail_kind kind;
    enum wefti_link_broken broken;
    uint16_t version; /* of the other side, when broken for it */
    struct wefti_link_stream stream;
    struct wefti_link_conn *conn;
    struct wefti_link_frame *frame;
};

#define WEFTI_LINK_ARRIVED_MAX 16

struct wefti_link_inbox {
    pthread_mutex_t mutex;
    int fd;       /* what the owner polls: event_fd, or epoll_fd */
    int event_fd; /* wakes the owner from another thread, or for what it still has to hear */
    int epoll_fd; /* of local streams; -1: of nng's. Watches all below, too */
    int timer_fd, listen_fd;
    bool is_drained; /* all that epoll_fd knew has been read */
    /* All below under the mutex. */
    bool signalled;
    bool dial_failed, timer;
    bool accept_waits; /* accepting paused (no room) or failed; whoever sees room goes on */
    uint32_t n_arrived;
    struct wefti_link_stream arrived[WEFTI_LINK_ARRIVED_MAX];
    struct wefti_link_conn *ready, **ready_end; /* connections with something to take */
};

WEFT_MUST_CHECK weft_err wefti_link_inbox_init(struct wefti_link_inbox *inbox, bool is_local,
                                               struct weft_errmsg *why);
void wefti_link_inbox_fini(struct wefti_link_inbox *inbox); /* no callback runs any more */
void wefti_link_inbox_wake(struct wefti_link_inbox *inbox);
/* False: there is nothing, and the eventfd is not readable. */
bool wefti_link_inbox_take(struct wefti_link_inbox *inbox, struct wefti_link_mail *mail_out);

/* Of local links: TIMER mail comes after so long; STREAM mail comes for those who connect to a
 * listening socket. */
void wefti_link_inbox_set_timer(struct wefti_link_inbox *inbox, uint32_t ms);
void wefti_link_inbox_listen(struct wefti_link_inbox *inbox, int listen_fd);

/* For callbacks. Puts a stream in; false: no room. */
bool wefti_link_inbox_put_stream(struct wefti_link_inbox *inbox, struct wefti_link_stream stream);
void wefti_link_inbox_put_flag(struct wefti_link_inbox *inbox, bool *flag);

void wefti_link_stream_drop(struct wefti_link_stream stream); /* closes and frees */

/* Takes over `stream`, also on failure, and starts reading. `tag` is the caller's. */
WEFT_MUST_CHECK weft_err wefti_link_conn_new(struct wefti_link_inbox *inbox,
                                             struct wefti_link_stream stream, uint32_t tag,
                                             struct wefti_link_conn **conn_out);
/* Closes; what was not sent or not taken is gone. Waits for callbacks that run just now. */
void wefti_link_conn_free(struct wefti_link_conn *conn); /* accepts NULL */
uint32_t wefti_link_conn_tag(const struct wefti_link_conn *conn);

/* Copies and sends. WEFT_E_FULL: the queue is full, or memory is out. */
WEFT_MUST_CHECK weft_err wefti_link_conn_send(struct wefti_link_conn *conn,
                                              enum wefti_link_frame_kind kind, const void *bytes,
                                              size_t len);

/* On: frames of a local stream wait in the queue; off: they go out, as one write. A full queue goes
 * out by itself. Of nng's streams nothing waits. */
void wefti_link_conn_cork(struct wefti_link_conn *conn, bool on);

#endif
