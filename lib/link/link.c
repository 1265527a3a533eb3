/* The session protocol, on one byte stream per peer: a Unix socket on one host, nng's over tcp.
 *
 *     dialler                      listener
 *     HELLO{instance, kind}  -->               as soon as the stream is there
 *                            <--   WELCOME     the session is up
 *     DATA                   <->   DATA
 *
 * A session is a stream: whoever ends it closes the stream, which the other side notices at once,
 * whatever its queues hold, and the dialler dials again after 10 to 200 ms. So nothing of an old
 * session can reach a new one.
 *
 * Why not nng's streams on one host: local.h says. Why not nng's own sockets (pair0, push0 and
 * pull0 were here first): they lose messages silently around reconnections, so sessions needed
 * nonces and gap detection on top; unsent messages of a dead pipe go to the next one; and in
 * Debian 12's nng 1.5.2 a pipe that closes while a message arrives can leave its receive
 * operation unfinished for ever, on which nng's only reaper thread waits: from then on no pipe
 * of the process is ever closed or reported again. 200 routers that come and go were enough.
 * nng's streams below have neither trouble. */
#include "link/link.h"

#include <nng/transport/ipc/ipc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/rand.h"
#include "conn.h"
#include "local.h"

/* A handshake takes a millisecond; a peer that needs longer is stopped or overloaded, and starting
 * over costs it little. Also how long a stranger may hold a stream without a word. */
#define HANDSHAKE_MS 3000
#define RECONNECT_MIN_MS 10
#define RECONNECT_MAX_MS 200
#define LISTEN_TRIES_MS 2000
#define TICK_MS 10 /* an owner that turns more often need not look at every stream each time */
#define STREAMS_SPARE 16 /* beside those of the peers: strangers, successors */

enum slot_state {
    SLOT_FREE,
    SLOT_OPENING, /* dialler: HELLO is sent; listener: waits for one */
    SLOT_REFUSED, /* stays open until it times out, so that it does not dial again at once */
    SLOT_UP,
};

struct slot { /* one stream */
    enum slot_state state;
    struct wefti_link_conn *conn;
    uint64_t since_ms, instance;
    uint32_t peer; /* when UP */
};

#define NO_SLOT UINT32_MAX

struct hello {
    uint64_t instance;
    uint32_t kind; /* enum weft_link_kind: a worker that dials a hub of routers is refused */
    uint32_t zero;
};
_Static_assert(sizeof(struct hello) == 16, "no padding");

struct weft_link {
    enum weft_link_kind kind;
    bool dials;
    bool is_local; /* peers are on this host, and the kernel knows their user */
    char *url;
    uint64_t instance; /* drawn at start: a second stream of one process ends its first */
    struct wefti_link_inbox inbox;

    /* A link that dials has one of: a dial under way, the timer running, a stream. nng's are NULL
     * where it is local. */
    nng_stream_dialer *dialer;
    nng_aio *dial_aio, *timer_aio;
    nng_duration reconnect_ms;

    nng_stream_listener *listener;
    nng_aio *accept_aio;

    uint32_t n_slots, n_peers;
    struct slot *slots;
    uint32_t *peers; /* [n_peers]: slot, or NO_SLOT */

    /* UP and DOWN events that wait for weft_link_next. Mail is read only when there is none, so a
     * peer has at most an UP and a DOWN here. */
    struct weft_link_event *events;
    uint32_t events_cap, event_head, n_events;
    struct wefti_link_frame *current; /* what the last MESSAGE event points into */

    uint64_t now_ms;         /* as the owner told it last */
    uint64_t tick_ms;        /* the next look at who is late */
    uint64_t quiet_until_ms; /* complaints about strangers: one a second, they may come in floods */
};

/* Logs, unless another stranger was complained about a moment ago. */
#define COMPLAIN(link, ...)                                                                        \
    do {                                                                                           \
        if ((link)->now_ms < (link)->quiet_until_ms) break;                                        \
        (link)->quiet_until_ms = (link)->now_ms + 1000;                                            \
        weft_warn(__VA_ARGS__);                                                                    \
    } while (0)

/* ------------------------------------------------------------------------------------ events ---
 */

static void queue_event(weft_link *link, enum weft_link_event_kind kind, uint32_t peer) {
    WEFT_ASSERT(link->n_events < link->events_cap);
    uint32_t at = (link->event_head + link->n_events) % link->events_cap;
    link->events[at] = (struct weft_link_event){.kind = kind, .peer = peer};
    link->n_events++;
    wefti_link_inbox_wake(&link->inbox); /* we may be outside of weft_link_next */
}

static bool take_event(weft_link *link, struct weft_link_event *event_out) {
    if (link->n_events == 0) return false;
    *event_out = link->events[link->event_head];
    link->event_head = (link->event_head + 1) % link->events_cap;
    link->n_events--;
    return true;
}

/* ---------------------------------------------------------------------------------- sessions ---
 */

static void dial_later(weft_link *link) {
    if (link->is_local)
        wefti_link_inbox_set_timer(&link->inbox, (uint32_t)link->reconnect_ms);
    else
        nng_sleep_aio(link->reconnect_ms, link->timer_aio);
    link->reconnect_ms *= 2;
    if (link->reconnect_ms > RECONNECT_MAX_MS) link->reconnect_ms = RECONNECT_MAX_MS;
}

/* Closes the stream and ends its session, if it has one. */
static void end_slot(weft_link *link, struct slot *slot) {
    if (slot->state == SLOT_FREE) return;
    wefti_link_conn_free(slot->conn);
    if (slot->state == SLOT_UP) {
        WEFT_ASSERT(link->peers[slot->peer] == (uint32_t)(slot - link->slots));
        link->peers[slot->peer] = NO_SLOT;
        queue_event(link, WEFT_LINK_DOWN, slot->peer);
    }
    *slot = (struct slot){.state = SLOT_FREE};
    if (link->dials) dial_later(link);
}

static void slot_is_up(weft_link *link, struct slot *slot, uint32_t peer) {
    WEFT_ASSERT(link->peers[peer] == NO_SLOT);
    slot->state = SLOT_UP;
    slot->peer = peer;
    link->peers[peer] = (uint32_t)(slot - link->slots);
    queue_event(link, WEFT_LINK_UP, peer);
}

/* True for a peer on this host that runs as somebody else, or as nobody knows whom. Over tcp, who
 * can reach the port is the operator's business. */
static bool is_foreign(weft_link *link, struct wefti_link_stream stream) {
    uint32_t uid;
    if (!link->is_local) return false;
    if (!wefti_link_local_peer_uid(stream.fd, &uid)) {
        COMPLAIN(link, "link: refused a peer of unknown user");
        return true;
    }
    if (uid == geteuid()) return false;
    COMPLAIN(link, "link: refused a peer of user %u", uid);
    return true;
}

static struct slot *find_free_slot(weft_link *link) {
    for (uint32_t i = 0; i < link->n_slots; i++) {
        if (link->slots[i].state == SLOT_FREE) return &link->slots[i];
    }
    return NULL;
}

static weft_err say_hello(weft_link *link, struct slot *slot) {
    struct hello hello = {.instance = link->instance, .kind = (uint32_t)link->kind};
    return wefti_link_conn_send(slot->conn, WEFTI_LINK_FRAME_HELLO, &hello, sizeof hello);
}

static void take_stream(weft_link *link, struct wefti_link_stream stream) {
    struct slot *slot = find_free_slot(link);
    if (!slot || is_foreign(link, stream)) {
        wefti_link_stream_drop(stream);
        if (link->dials) dial_later(link);
        return;
    }
    weft_err err =
        wefti_link_conn_new(&link->inbox, stream, (uint32_t)(slot - link->slots), &slot->conn);
    if (err) {
        weft_warn("link: no memory for a peer");
        if (link->dials) dial_later(link);
        return;
    }
    slot->state = SLOT_OPENING;
    slot->since_ms = link->now_ms;
    if (link->dials && say_hello(link, slot) != WEFT_OK) end_slot(link, slot);
}

/* The peer's index for a new session, or n_peers. */
static uint32_t find_free_peer(const weft_link *link) {
    uint32_t i = 0;
    while (i < link->n_peers && link->peers[i] != NO_SLOT)
        i++;
    return i;
}

static void take_hello(weft_link *link, struct slot *slot, const struct wefti_link_frame *frame) {
    struct hello hello;
    if (frame->header.len < sizeof hello) { /* a longer one is of a later release: fine */
        end_slot(link, slot);
        return;
    }
    memcpy(&hello, frame->bytes, sizeof hello);
    if (hello.kind != (uint32_t)link->kind) {
        COMPLAIN(link, "link: refused a peer that dialled the wrong address");
        slot->state = SLOT_REFUSED;
        return;
    }
    /* The same process by a new stream: the end of its old one is on its way to us. */
    for (uint32_t i = 0; i < link->n_slots; i++) {
        if (link->slots[i].state == SLOT_UP && link->slots[i].instance == hello.instance)
            end_slot(link, &link->slots[i]);
    }
    uint32_t peer = find_free_peer(link);
    if (peer == link->n_peers) {
        COMPLAIN(link, "link: refused a peer, there are %u already", link->n_peers);
        slot->state = SLOT_REFUSED;
        return;
    }
    slot->instance = hello.instance;
    if (wefti_link_conn_send(slot->conn, WEFTI_LINK_FRAME_WELCOME, NULL, 0) == WEFT_OK)
        slot_is_up(link, slot, peer);
    else
        end_slot(link, slot);
}

/* True: the frame is a message for the owner. */
static bool take_frame(weft_link *link, struct slot *slot, const struct wefti_link_frame *frame) {
    if (slot->state == SLOT_UP && frame->header.kind == WEFTI_LINK_FRAME_DATA) return true;
    if (slot->state == SLOT_REFUSED) return false;
    if (slot->state == SLOT_OPENING && frame->header.kind == WEFTI_LINK_FRAME_HELLO &&
        !link->dials) {
        take_hello(link, slot, frame);
    } else if (slot->state == SLOT_OPENING && frame->header.kind == WEFTI_LINK_FRAME_WELCOME &&
               link->dials) {
        link->reconnect_ms = RECONNECT_MIN_MS;
        slot_is_up(link, slot, 0);
    } else {
        COMPLAIN(link, "link: a peer does not keep to the protocol, its stream is closed");
        end_slot(link, slot);
    }
    return false;
}

static void take_broken(weft_link *link, struct slot *slot, const struct wefti_link_mail *mail) {
    if (mail->broken == WEFTI_LINK_BROKEN_VERSION && slot->state == SLOT_OPENING) {
        COMPLAIN(link,
                 "link: refused a peer with link version %u, this side has %d: run the same "
                 "release on both sides",
                 mail->version, WEFTI_LINK_VERSION);
        slot->state = SLOT_REFUSED;
        return;
    }
    if (mail->broken != WEFTI_LINK_BROKEN_ENDED)
        COMPLAIN(link, "link: a stream that brought something else than our messages is closed");
    end_slot(link, slot);
}

/* --------------------------------------------------------------------------------- interface ---
 */

static void deliver(weft_link *link, const struct slot *slot, struct wefti_link_frame *frame,
                    struct weft_link_event *event_out) {
    link->current = frame;
    *event_out = (struct weft_link_event){.kind = WEFT_LINK_MESSAGE,
                                          .peer = slot->peer,
                                          .bytes = frame->bytes,
                                          .len = frame->header.len};
}

static void accept_on(weft_link *link) {
    struct wefti_link_inbox *inbox = &link->inbox;
    if (link->is_local) {
        if (inbox->accept_waits && inbox->n_arrived < WEFTI_LINK_ARRIVED_MAX) {
            inbox->accept_waits = false;
            wefti_link_inbox_listen(inbox, inbox->listen_fd);
        }
        return;
    }
    (void)pthread_mutex_lock(&inbox->mutex);
    bool waits = inbox->accept_waits && inbox->n_arrived < WEFTI_LINK_ARRIVED_MAX;
    if (waits) inbox->accept_waits = false;
    (void)pthread_mutex_unlock(&inbox->mutex);
    if (waits) nng_stream_listener_accept(link->listener, link->accept_aio);
}

static void dial(weft_link *link) {
    if (!link->is_local) {
        nng_stream_dialer_dial(link->dialer, link->dial_aio);
        return;
    }
    struct wefti_link_stream stream = {.fd = -1};
    if (wefti_link_local_connect(link->url, &stream.fd, NULL) == WEFT_OK)
        take_stream(link, stream);
    else
        dial_later(link);
}

/* The stream that the mail came by; without one any slot, which nobody looks at. */
static struct slot *slot_of(weft_link *link, const struct wefti_link_mail *mail) {
    uint32_t tag = mail->conn ? wefti_link_conn_tag(mail->conn) : 0;
    WEFT_ASSERT(tag < link->n_slots);
    return &link->slots[tag];
}

bool weft_link_next(weft_link *link, uint64_t now_ms, struct weft_link_event *event_out) {
    free(link->current);
    link->current = NULL;
    link->now_ms = now_ms;
    struct wefti_link_mail mail;
    while (!take_event(link, event_out)) {
        if (!wefti_link_inbox_take(&link->inbox, &mail)) return false;
        struct slot *slot = slot_of(link, &mail);
        switch (mail.kind) {
        case WEFTI_LINK_MAIL_STREAM:
            take_stream(link, mail.stream);
            if (!link->dials) accept_on(link);
            break;
        case WEFTI_LINK_MAIL_DIAL_FAILED:
            dial_later(link);
            break;
        case WEFTI_LINK_MAIL_TIMER:
            dial(link);
            break;
        case WEFTI_LINK_MAIL_FRAME:
            if (take_frame(link, slot, mail.frame)) {
                deliver(link, slot, mail.frame, event_out);
                return true;
            }
            free(mail.frame);
            break;
        case WEFTI_LINK_MAIL_BROKEN:
            take_broken(link, slot, &mail);
            break;
        }
    }
    return true;
}

void weft_link_tick(weft_link *link, uint64_t now_ms) {
    link->now_ms = now_ms;
    if (now_ms < link->tick_ms) return;
    link->tick_ms = now_ms + TICK_MS;
    for (uint32_t i = 0; i < link->n_slots; i++) {
        struct slot *slot = &link->slots[i];
        if ((slot->state == SLOT_OPENING || slot->state == SLOT_REFUSED) &&
            now_ms >= slot->since_ms + HANDSHAKE_MS)
            end_slot(link, slot);
    }
    if (!link->dials) accept_on(link);
}

int weft_link_fd(const weft_link *link) {
    return link->inbox.fd;
}

bool weft_link_is_up(const weft_link *link, uint32_t peer) {
    WEFT_ASSERT(peer < link->n_peers);
    return link->peers[peer] != NO_SLOT;
}

weft_err weft_link_send(weft_link *link, uint32_t peer, const void *bytes, size_t len) {
    WEFT_ASSERT(peer < link->n_peers);
    if (link->peers[peer] == NO_SLOT) return WEFT_E_CLOSED;
    if (len > WEFT_MESSAGE_BYTES_MAX) return WEFT_E_TOOBIG;
    struct slot *slot = &link->slots[link->peers[peer]];
    weft_err err = wefti_link_conn_send(slot->conn, WEFTI_LINK_FRAME_DATA, bytes, len);
    if (err) {
        weft_warn("link: peer %u does not take messages, its session ends", peer);
        end_slot(link, slot);
    }
    return err;
}

void weft_link_cork(weft_link *link, uint32_t peer, bool on) {
    WEFT_ASSERT(peer < link->n_peers);
    if (link->peers[peer] != NO_SLOT) wefti_link_conn_cork(link->slots[link->peers[peer]].conn, on);
}

void weft_link_reset(weft_link *link, uint32_t peer) {
    WEFT_ASSERT(peer < link->n_peers);
    if (link->peers[peer] != NO_SLOT) end_slot(link, &link->slots[link->peers[peer]]);
}

/* --------------------------------------------------------------------------- nng's callbacks ---
 */

static void on_dialled(void *arg) {
    weft_link *link = arg;
    int rv = nng_aio_result(link->dial_aio);
    if (rv == NNG_ECLOSED || rv == NNG_ECANCELED) return; /* the link ends */
    if (rv != 0) {
        wefti_link_inbox_put_flag(&link->inbox, &link->inbox.dial_failed);
        return;
    }
    struct wefti_link_stream stream = {.nng = nng_aio_get_output(link->dial_aio, 0), .fd = -1};
    bool room = wefti_link_inbox_put_stream(&link->inbox, stream);
    WEFT_ASSERT(room); /* there is no other */
}

static void on_timer(void *arg) {
    weft_link *link = arg;
    if (nng_aio_result(link->timer_aio) == 0)
        wefti_link_inbox_put_flag(&link->inbox, &link->inbox.timer);
}

static void on_accepted(void *arg) {
    weft_link *link = arg;
    struct wefti_link_inbox *inbox = &link->inbox;
    int rv = nng_aio_result(link->accept_aio);
    if (rv == NNG_ECLOSED || rv == NNG_ECANCELED) return; /* the link ends */
    if (rv == 0) {
        struct wefti_link_stream stream = {.nng = nng_aio_get_output(link->accept_aio, 0),
                                           .fd = -1};
        bool room = wefti_link_inbox_put_stream(inbox, stream);
        WEFT_ASSERT(room); /* else we would not have been accepting */
    }
    /* A failure (no descriptors left, say) waits for the next tick, a full inbox for its owner. */
    (void)pthread_mutex_lock(&inbox->mutex);
    bool goes_on = rv == 0 && inbox->n_arrived < WEFTI_LINK_ARRIVED_MAX;
    if (!goes_on) inbox->accept_waits = true;
    (void)pthread_mutex_unlock(&inbox->mutex);
    if (goes_on) nng_stream_listener_accept(link->listener, link->accept_aio);
}

/* -------------------------------------------------------------------------- opening, closing ---
 */

static weft_err from_nng(struct weft_errmsg *why, int rv, const char *what, const char *url) {
    weft_err err = rv == NNG_ENOMEM                                                ? WEFT_E_NOMEM
                   : rv == NNG_EADDRINVAL || rv == NNG_ENOTSUP || rv == NNG_EINVAL ? WEFT_E_INVAL
                                                                                   : WEFT_E_IO;
    return weft_err_set(why, err, "cannot %s %s: %s", what, url, nng_strerror(rv));
}

static weft_err new_link(enum weft_link_kind kind, bool dials, const char *url,
                         weft_link **link_out, struct weft_errmsg *why) {
    weft_link *link = calloc(1, sizeof *link);
    if (!link) goto no_memory;
    link->kind = kind;
    link->dials = dials;
    link->is_local = wefti_link_local_is(url);
    link->url = strdup(url);
    link->instance = weft_rand_seed();
    link->reconnect_ms = RECONNECT_MIN_MS;
    link->n_peers = kind == WEFT_LINK_MANY_PEERS && !dials ? WEFT_LINK_PEERS_MAX : 1;
    link->n_slots = dials ? 1 : link->n_peers + STREAMS_SPARE;
    link->events_cap = 2 * link->n_peers + 2;
    weft_err err = wefti_link_inbox_init(&link->inbox, link->is_local, why);
    if (err) {
        free(link->url);
        free(link);
        return err;
    }
    link->slots = calloc(link->n_slots, sizeof *link->slots);
    link->peers = calloc(link->n_peers, sizeof *link->peers);
    link->events = calloc(link->events_cap, sizeof *link->events);
    if (!link->url || !link->slots || !link->peers || !link->events) goto no_memory;
    for (uint32_t i = 0; i < link->n_peers; i++)
        link->peers[i] = NO_SLOT;
    *link_out = link;
    return WEFT_OK;
no_memory:
    weft_link_free(link);
    return weft_err_set(why, WEFT_E_NOMEM, "no memory for a link");
}

static void stop_aio(nng_aio *aio) {
    if (!aio) return;
    nng_aio_stop(aio);
    nng_aio_free(aio);
}

void weft_link_free(weft_link *link) {
    if (!link) return;
    if (link->dialer) nng_stream_dialer_close(link->dialer);
    if (link->listener) nng_stream_listener_close(link->listener);
    stop_aio(link->dial_aio);
    stop_aio(link->timer_aio);
    stop_aio(link->accept_aio);
    nng_stream_dialer_free(link->dialer);
    nng_stream_listener_free(link->listener);
    for (uint32_t i = 0; link->slots && i < link->n_slots; i++)
        wefti_link_conn_free(link->slots[i].conn);
    if (link->is_local && !link->dials) wefti_link_local_unlisten(link->url, link->inbox.listen_fd);
    wefti_link_inbox_fini(&link->inbox);
    free(link->current);
    free(link->url);
    free(link->slots);
    free(link->peers);
    free(link->events);
    free(link);
}

static weft_err dial_nng(weft_link *link, struct weft_errmsg *why) {
    int rv = nng_stream_dialer_alloc(&link->dialer, link->url);
    if (rv == 0) rv = nng_aio_alloc(&link->dial_aio, on_dialled, link);
    if (rv == 0) rv = nng_aio_alloc(&link->timer_aio, on_timer, link);
    if (rv != 0) return from_nng(why, rv, "connect to", link->url);
    /* Only tcp knows these. */
    (void)nng_stream_dialer_set_bool(link->dialer, NNG_OPT_TCP_NODELAY, true);
    (void)nng_stream_dialer_set_bool(link->dialer, NNG_OPT_TCP_KEEPALIVE, true);
    nng_stream_dialer_dial(link->dialer, link->dial_aio);
    return WEFT_OK;
}

/* The first try is made at once: an address that can never be is found out here. */
static weft_err dial_local(weft_link *link, struct weft_errmsg *why) {
    struct wefti_link_stream stream = {.fd = -1};
    weft_err err = wefti_link_local_connect(link->url, &stream.fd, why);
    if (err == WEFT_E_INVAL) return err;
    link->now_ms = weft_now_ms();
    if (err)
        dial_later(link);
    else
        take_stream(link, stream);
    return WEFT_OK;
}

weft_err weft_link_dial(enum weft_link_kind kind, const char *url, weft_link **link_out,
                        struct weft_errmsg *why) {
    *link_out = NULL;
    weft_link *link = NULL;
    weft_err err = new_link(kind, true, url, &link, why);
    if (err) return err;
    WEFT_ASSERT(link);
    err = link->is_local ? dial_local(link, why) : dial_nng(link, why);
    if (err) {
        weft_link_free(link);
        return err;
    }
    *link_out = link;
    return WEFT_OK;
}

/* A predecessor that was killed a moment ago may hold the address until the kernel has buried it.
 */
static void wait_for_address(void) {
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    (void)nanosleep(&pause, NULL);
}

static weft_err listen_nng(weft_link *link, struct weft_errmsg *why) {
    uint64_t deadline_ms = weft_now_ms() + LISTEN_TRIES_MS;
    int rv = nng_stream_listener_alloc(&link->listener, link->url);
    if (rv == 0) rv = nng_aio_alloc(&link->accept_aio, on_accepted, link);
    if (rv != 0) return from_nng(why, rv, "listen at", link->url);
    (void)nng_stream_listener_set_bool(link->listener, NNG_OPT_TCP_NODELAY, true);
    (void)nng_stream_listener_set_bool(link->listener, NNG_OPT_TCP_KEEPALIVE, true);
    while ((rv = nng_stream_listener_listen(link->listener)) == NNG_EADDRINUSE &&
           weft_now_ms() < deadline_ms)
        wait_for_address();
    if (rv != 0) return from_nng(why, rv, "listen at", link->url);
    nng_stream_listener_accept(link->listener, link->accept_aio);
    return WEFT_OK;
}

static weft_err listen_local(weft_link *link, struct weft_errmsg *why) {
    uint64_t deadline_ms = weft_now_ms() + LISTEN_TRIES_MS;
    weft_err err;
    int fd;
    while ((err = wefti_link_local_listen(link->url, &fd, why)) == WEFT_E_EXISTS &&
           weft_now_ms() < deadline_ms)
        wait_for_address();
    if (err) return err == WEFT_E_EXISTS ? WEFT_E_IO : err;
    wefti_link_inbox_listen(&link->inbox, fd);
    return WEFT_OK;
}

weft_err weft_link_listen(enum weft_link_kind kind, const char *url, weft_link **link_out,
                          struct weft_errmsg *why) {
    *link_out = NULL;
    weft_link *link = NULL;
    weft_err err = new_link(kind, false, url, &link, why);
    if (err) return err;
    WEFT_ASSERT(link);
    err = link->is_local ? listen_local(link, why) : listen_nng(link, why);
    if (err) {
        weft_link_free(link);
        return err;
    }
    *link_out = link;
    return WEFT_OK;
}
