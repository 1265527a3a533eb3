/* The session protocol, on one byte stream of nng's per peer.
 *
 *     dialler                      listener
 *     HELLO{instance, kind}  -->               as soon as the stream is there
 *                            <--   WELCOME     the session is up
 *     DATA                   <->   DATA
 *
 * A session is a stream: its end closes the stream, which the other side notices at once, whatever
 * its queues hold, and the dialler dials again after 10 to 200 ms. So nothing of an old session can
 * reach a new one.
 *
 * Why not nng's own sockets (pair0, push0, pull0): they lose messages silently around
 * reconnections, so sessions would need nonces and gap detection on top; unsent messages of a dead
 * pipe go to the next one; and in Debian 12's nng 1.5.2 a pipe that closes while a message arrives
 * can leave its receive operation unfinished for ever, which blocks nng's only reaper thread: from
 * then on no pipe of the process is closed or reported. 200 routers that come and go are enough.
 * nng's streams have neither fault. */
#include "link/link.h"

#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>
#include <nng/transport/ipc/ipc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "address.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/rand.h"
#include "conn.h"
#include "tls.h"
#include "user.h"

/* A handshake takes some milliseconds; a peer that needs longer is stopped or overloaded, and
 * starting over costs it little. Also bounds how long a silent stranger may hold a stream. */
#define HANDSHAKE_MS 3000
/* The kernel would wait two minutes for a host that does not answer. Includes looking up its name,
 * which takes five seconds where the first of several name servers is dead. */
#define DIAL_MS 10000
#define RECONNECT_MIN_MS 10
#define RECONNECT_MAX_MS 200
#define ALONE_MS 2000 /* longer than any actor takes to come back */
#define ALONE_AGAIN_MS 10000
#define LASTED_MS 1000 /* a session as long as this was a good one */
#define LISTEN_TRIES_MS 2000
#define TICK_MS 10 /* streams are not checked more often than this */
#define CHECK_MS 100
#define FRUITLESS_MAX 64 /* mails without an event for the owner in one turn: some milliseconds */
#define STREAMS_SPARE 16 /* beside those of the peers: strangers, successors */
/* The most streams that have not identified themselves. A newcomer takes the oldest one's place: a
 * peer identifies itself in milliseconds, so strangers have to come in thousands a second to crowd
 * it out. */
#define HANDSHAKES_MAX 32

enum slot_state {
    SLOT_FREE,
    SLOT_OPENING, /* dialler: HELLO is sent; listener: waits for one */
    SLOT_REFUSED, /* stays open until it times out, so that it does not dial again at once */
    SLOT_UP,
};

struct slot { /* one stream */
    enum slot_state state;
    struct wefti_link_conn *conn;
    uint64_t since_ms; /* when it came, or UP: when the session began */
    uint64_t order;    /* of its coming */
    uint64_t instance;
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
    char *url;
    struct wefti_link_address address; /* of `url` */
    uint64_t instance; /* random, drawn at start: a second stream of a process ends its first */
    struct wefti_link_inbox inbox;

    /* A dialling link has one of: a dial under way, a running timer, a stream. */
    nng_stream_dialer *dialer;
    nng_aio *dial_aio, *timer_aio;
    nng_duration reconnect_ms; /* the next pause; a session that lasted makes it short again */

    nng_stream_listener *listener;
    nng_aio *accept_aio;

    uint32_t n_slots, n_peers;
    uint64_t n_streams; /* ever */
    struct slot *slots;
    uint32_t *peers; /* [n_peers]: slot, or NO_SLOT */

    /* UP and DOWN events that wait for weft_link_next. Mail is read only when there is none, so a
     * peer has at most an UP and a DOWN here. */
    struct weft_link_event *events;
    uint32_t events_cap, event_head, n_events;
    struct wefti_link_conn *reading; /* whose mail is being taken; NULL: none's */
    bool has_message;                /* that mail had one */
    uint32_t n_fruitless;            /* mails without an event in this turn */
    bool turn_is_over;               /* enough was done that yields no event */
    struct wefti_link_conn *doomed;  /* closed, but the last MESSAGE event points into it */

    uint64_t now_ms;         /* as last told by the owner */
    uint64_t tick_ms;        /* the next check for late peers, */
    uint64_t check_ms;       /* and for streams that may have ended silently */
    uint64_t quiet_until_ms; /* limits complaints about strangers to one a second */
    uint64_t alone_ms;       /* a dialling link: when to say that nobody answers; 0: is UP */
};

#define COMPLAIN(link, ...)                                                                        \
    weft_log(weft_log_rarely(WEFT_LOG_WARN, (link)->now_ms, &(link)->quiet_until_ms), __VA_ARGS__)

/* ----------------------------------------------------------------------------------- events --- */

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

/* --------------------------------------------------------------------------------- sessions --- */

static void dial_later(weft_link *link) {
    nng_sleep_aio(link->reconnect_ms, link->timer_aio);
    link->reconnect_ms *= 2;
    if (link->reconnect_ms > RECONNECT_MAX_MS) link->reconnect_ms = RECONNECT_MAX_MS;
}

/* Frees the connection; if the owner may be reading from it, when it asks for the next event. */
static void bury(weft_link *link, struct wefti_link_conn *conn) {
    if (conn != link->reading) {
        wefti_link_conn_free(conn);
        return;
    }
    WEFT_ASSERT(!link->doomed);
    wefti_link_conn_close(conn);
    link->doomed = conn;
    link->reading = NULL;
}

/* Closes the stream and ends its session, if it has one. */
static void end_slot(weft_link *link, struct slot *slot) {
    if (slot->state == SLOT_FREE) return;
    bury(link, slot->conn);
    if (slot->state == SLOT_UP) {
        if (link->now_ms >= slot->since_ms + LASTED_MS) link->reconnect_ms = RECONNECT_MIN_MS;
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
    slot->since_ms = link->now_ms;
    slot->peer = peer;
    wefti_link_conn_know(slot->conn);
    link->peers[peer] = (uint32_t)(slot - link->slots);
    queue_event(link, WEFT_LINK_UP, peer);
}

static bool is_ours(weft_link *link, bool is_known, uint64_t uid) {
    if (is_known && uid == geteuid()) return true;
    if (is_known)
        COMPLAIN(link, "link: refused a peer of user %u", (unsigned)uid);
    else
        COMPLAIN(link, "link: refused a peer of unknown user");
    return false;
}

/* True for a peer on this host of another or unknown user. With TLS the authority answers for the
 * peer; beyond this host and without TLS the operator decides who can reach the port. */
static bool is_foreign_stream(weft_link *link, nng_stream *stream) {
    enum wefti_link_scheme scheme = link->address.scheme;
    uint64_t uid = 0;
    if (scheme != WEFTI_LINK_ABSTRACT && scheme != WEFTI_LINK_IPC) return false;
    bool is_known = wefti_link_user_of_local(stream, &uid);
    return !is_ours(link, is_known, uid);
}

/* The same for tcp:// on this host, where the user is known once the peer has sent something. To
 * look it up the kernel prints all of its table, which strangers can make long: once a turn. */
static bool is_foreign_speaker(weft_link *link, const struct slot *slot) {
    uint64_t uid = 0;
    if (link->address.scheme != WEFTI_LINK_TCP || !link->address.is_this_host) return false;
    link->turn_is_over = true;
    bool is_known = wefti_link_user_of_tcp(wefti_link_conn_stream(slot->conn), &uid);
    return !is_ours(link, is_known, uid);
}

static bool is_opening(const struct slot *slot) {
    return slot->state == SLOT_OPENING || slot->state == SLOT_REFUSED;
}

/* A free slot; if there is none, or enough others are opening, the oldest of these ends. */
static struct slot *make_room(weft_link *link) {
    struct slot *free_slot = NULL, *oldest = NULL;
    uint32_t n_opening = 0;
    for (uint32_t i = 0; i < link->n_slots; i++) {
        struct slot *slot = &link->slots[i];
        if (slot->state == SLOT_FREE && !free_slot) free_slot = slot;
        if (!is_opening(slot)) continue;
        n_opening++;
        if (!oldest || slot->order < oldest->order) oldest = slot;
    }
    if (free_slot && n_opening < HANDSHAKES_MAX) return free_slot;
    WEFT_ASSERT(!link->dials && oldest); /* not all are UP: there are more slots than peers */
    end_slot(link, oldest);
    return oldest;
}

static weft_err say_hello(weft_link *link, struct slot *slot) {
    struct hello hello = {.instance = link->instance, .kind = (uint32_t)link->kind};
    return wefti_link_conn_send(slot->conn, WEFTI_LINK_FRAME_HELLO, &hello, sizeof hello);
}

static void take_stream(weft_link *link, nng_stream *stream) {
    if (is_foreign_stream(link, stream)) {
        wefti_link_stream_drop(stream);
        if (link->dials) dial_later(link);
        return;
    }
    struct slot *slot = make_room(link);
    weft_err err = wefti_link_conn_new(&link->inbox, stream, link->address.scheme == WEFTI_LINK_TLS,
                                       (uint32_t)(slot - link->slots), &slot->conn);
    if (err) {
        weft_warn("link: no memory for a peer");
        if (link->dials) dial_later(link);
        return;
    }
    slot->state = SLOT_OPENING;
    slot->since_ms = link->now_ms;
    slot->order = link->n_streams++;
    if (link->dials && say_hello(link, slot) != WEFT_OK) end_slot(link, slot);
}

/* The peer's index for a new session, or n_peers. */
static uint32_t find_free_peer(const weft_link *link) {
    uint32_t i = 0;
    while (i < link->n_peers && link->peers[i] != NO_SLOT)
        i++;
    return i;
}

static void take_hello(weft_link *link, struct slot *slot, const struct wefti_link_taken *frame) {
    struct hello hello;
    if (frame->header.len < sizeof hello) { /* a longer one is of a later release and fine */
        end_slot(link, slot);
        return;
    }
    memcpy(&hello, frame->bytes, sizeof hello);
    if (hello.kind != (uint32_t)link->kind) {
        COMPLAIN(link, "link: refused a peer that dialled the wrong address");
        slot->state = SLOT_REFUSED;
        return;
    }
    /* The same process with a new stream: its old one is about to end. */
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
static bool take_frame(weft_link *link, struct slot *slot, const struct wefti_link_taken *frame) {
    if (slot->state == SLOT_UP && frame->header.kind == WEFTI_LINK_FRAME_DATA) return true;
    if (slot->state == SLOT_REFUSED) return false;
    if (slot->state == SLOT_OPENING && is_foreign_speaker(link, slot)) {
        end_slot(link, slot);
        return false;
    }
    if (slot->state == SLOT_OPENING && frame->header.kind == WEFTI_LINK_FRAME_HELLO &&
        !link->dials) {
        take_hello(link, slot, frame);
    } else if (slot->state == SLOT_OPENING && frame->header.kind == WEFTI_LINK_FRAME_WELCOME &&
               link->dials) {
        slot_is_up(link, slot, 0);
    } else {
        COMPLAIN(link, "link: a peer does not keep to the protocol, its stream is closed");
        end_slot(link, slot);
    }
    return false;
}

static void take_broken(weft_link *link, struct slot *slot, const struct wefti_link_taken *taken) {
    if (taken->broken == WEFTI_LINK_BROKEN_VERSION && slot->state == SLOT_OPENING) {
        COMPLAIN(link,
                 "link: refused a peer with link version %u, this side has %d: run the same "
                 "release on both sides",
                 taken->header.version, WEFTI_LINK_VERSION);
        slot->state = SLOT_REFUSED;
        return;
    }
    if (taken->broken == WEFTI_LINK_BROKEN_STRANGER && link->dials)
        COMPLAIN(link,
                 "link: no TLS with %s: one of the two sides has no certificate that the other "
                 "side's authority signed",
                 link->url);
    else if (taken->broken == WEFTI_LINK_BROKEN_STRANGER)
        COMPLAIN(link, "link: refused a peer without a certificate of our authority");
    else if (taken->broken != WEFTI_LINK_BROKEN_ENDED)
        COMPLAIN(link, "link: a stream that brought something else than our messages is closed");
    end_slot(link, slot);
}

/* ------------------------------------------------------------------------------- interface --- */

static void accept_on(weft_link *link) {
    struct wefti_link_inbox *inbox = &link->inbox;
    (void)pthread_mutex_lock(&inbox->mutex);
    bool waits = inbox->accept_waits && inbox->n_arrived < WEFTI_LINK_ARRIVED_MAX;
    if (waits) inbox->accept_waits = false;
    (void)pthread_mutex_unlock(&inbox->mutex);
    if (waits) nng_stream_listener_accept(link->listener, link->accept_aio);
}

static struct slot *slot_of(weft_link *link, const struct wefti_link_conn *conn) {
    uint32_t tag = wefti_link_conn_tag(conn);
    WEFT_ASSERT(tag < link->n_slots && link->slots[tag].conn == conn);
    return &link->slots[tag];
}

static void note_fruitless(weft_link *link) {
    if (++link->n_fruitless >= FRUITLESS_MAX) link->turn_is_over = true;
}

/* Takes from the connection that mail was about; true: a message for the owner. */
static bool take_conn(weft_link *link, struct weft_link_event *event_out) {
    struct wefti_link_taken taken;
    struct slot *slot = slot_of(link, link->reading);
    switch (wefti_link_conn_take(link->reading, &taken)) {
    case WEFTI_LINK_GOT_NOTHING:
        if (!link->has_message) note_fruitless(link);
        link->reading = NULL;
        break;
    case WEFTI_LINK_GOT_BROKEN:
        note_fruitless(link);
        take_broken(link, slot, &taken);
        link->reading = NULL;
        break;
    case WEFTI_LINK_GOT_FRAME:
        if (!take_frame(link, slot, &taken)) {
            if (!link->reading) note_fruitless(link); /* the frame ended its stream */
            break;
        }
        link->has_message = true;
        *event_out = (struct weft_link_event){.kind = WEFT_LINK_MESSAGE,
                                              .peer = slot->peer,
                                              .bytes = taken.bytes,
                                              .len = taken.header.len};
        return true;
    }
    return false;
}

static void free_doomed(weft_link *link) {
    wefti_link_conn_free(link->doomed);
    link->doomed = NULL;
}

static void begin_turn(weft_link *link) {
    link->n_fruitless = 0;
    link->turn_is_over = false;
}

bool weft_link_next(weft_link *link, uint64_t now_ms, struct weft_link_event *event_out) {
    struct wefti_link_mail mail;
    link->now_ms = now_ms;
    for (;;) {
        free_doomed(link);
        if (take_event(link, event_out)) return true;
        if (link->reading) {
            if (take_conn(link, event_out)) return true;
            continue;
        }
        if (link->turn_is_over) {
            begin_turn(link);
            wefti_link_inbox_wake(&link->inbox); /* the rest waits for the next turn */
            return false;
        }
        if (!wefti_link_inbox_take(&link->inbox, &mail)) {
            begin_turn(link);
            return false;
        }
        switch (mail.kind) {
        case WEFTI_LINK_MAIL_STREAM:
            note_fruitless(link);
            take_stream(link, mail.stream);
            if (!link->dials) accept_on(link);
            break;
        case WEFTI_LINK_MAIL_DIAL_FAILED:
            dial_later(link);
            break;
        case WEFTI_LINK_MAIL_TIMER:
            nng_stream_dialer_dial(link->dialer, link->dial_aio);
            break;
        case WEFTI_LINK_MAIL_CONN:
            link->reading = mail.conn;
            link->has_message = false;
            break;
        }
    }
}

/* A wrong address or port would be silence else. */
static void say_if_alone(weft_link *link) {
    if (link->peers[0] != NO_SLOT) {
        link->alone_ms = 0;
        return;
    }
    if (link->alone_ms == 0) link->alone_ms = link->now_ms + ALONE_MS;
    if (link->now_ms < link->alone_ms) return;
    weft_warn("link: still waiting for a session with %s", link->url);
    link->alone_ms = link->now_ms + ALONE_AGAIN_MS;
}

void weft_link_tick(weft_link *link, uint64_t now_ms) {
    link->now_ms = now_ms;
    if (now_ms < link->tick_ms) return;
    link->tick_ms = now_ms + TICK_MS;
    bool checks = now_ms >= link->check_ms;
    if (checks) link->check_ms = now_ms + CHECK_MS;
    for (uint32_t i = 0; i < link->n_slots; i++) {
        struct slot *slot = &link->slots[i];
        if (is_opening(slot) && now_ms >= slot->since_ms + HANDSHAKE_MS) end_slot(link, slot);
        if (checks && slot->state != SLOT_FREE) wefti_link_conn_check(slot->conn);
    }
    if (link->dials)
        say_if_alone(link);
    else
        accept_on(link);
}

int weft_link_fd(const weft_link *link) {
    return link->inbox.fd;
}

bool weft_link_is_up(const weft_link *link, uint32_t peer) {
    WEFT_ASSERT(peer < link->n_peers);
    return link->peers[peer] != NO_SLOT;
}

bool weft_link_is_local(const weft_link *link) {
    return link->address.is_this_host;
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

/* -------------------------------------------------------------------------- nng's callbacks --- */

static void on_dialled(void *arg) {
    weft_link *link = arg;
    int rv = nng_aio_result(link->dial_aio);
    if (rv != 0) { /* if the link ends, nobody looks at it */
        wefti_link_inbox_put_flag(&link->inbox, &link->inbox.dial_failed);
        return;
    }
    nng_stream *stream = nng_aio_get_output(link->dial_aio, 0);
    bool room = wefti_link_inbox_put_stream(&link->inbox, stream);
    WEFT_ASSERT(room); /* the only stream, so there is room */
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
        nng_stream *stream = nng_aio_get_output(link->accept_aio, 0);
        bool room = wefti_link_inbox_put_stream(inbox, stream);
        WEFT_ASSERT(room); /* accepting needs room */
    }
    /* After a failure (say, no descriptors left) the next tick retries; a full inbox waits for its
     * owner. */
    (void)pthread_mutex_lock(&inbox->mutex);
    bool goes_on = rv == 0 && inbox->n_arrived < WEFTI_LINK_ARRIVED_MAX;
    if (!goes_on) inbox->accept_waits = true;
    (void)pthread_mutex_unlock(&inbox->mutex);
    if (goes_on) nng_stream_listener_accept(link->listener, link->accept_aio);
}

/* ------------------------------------------------------------------------- opening, closing --- */

static weft_err from_nng(struct weft_errmsg *why, int rv, const char *what, const char *url) {
    weft_err err = rv == NNG_ENOMEM                                                ? WEFT_E_NOMEM
                   : rv == NNG_EADDRINVAL || rv == NNG_ENOTSUP || rv == NNG_EINVAL ? WEFT_E_INVAL
                                                                                   : WEFT_E_IO;
    return weft_err_set(why, err, "cannot %s %s: %s", what, url, nng_strerror(rv));
}

static weft_err new_link(enum weft_link_kind kind, bool dials, const char *url,
                         weft_link **link_out, struct weft_errmsg *why) {
    weft_link *link = calloc(1, sizeof *link);
    if (!link) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a link");
    weft_err err = wefti_link_inbox_init(&link->inbox, why);
    if (err) {
        free(link);
        return err;
    }
    link->kind = kind;
    link->dials = dials;
    link->instance = weft_rand_seed();
    link->reconnect_ms = RECONNECT_MIN_MS;
    link->n_peers = kind == WEFT_LINK_MANY_PEERS && !dials ? WEFT_LINK_PEERS_MAX : 1;
    link->n_slots = dials ? 1 : link->n_peers + STREAMS_SPARE;
    link->events_cap = 2 * link->n_peers + 2;
    link->url = strdup(url);
    link->slots = calloc(link->n_slots, sizeof *link->slots);
    link->peers = calloc(link->n_peers, sizeof *link->peers);
    link->events = calloc(link->events_cap, sizeof *link->events);
    if (!link->url || !link->slots || !link->peers || !link->events) {
        weft_link_free(link);
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a link");
    }
    for (uint32_t i = 0; i < link->n_peers; i++)
        link->peers[i] = NO_SLOT;
    err = wefti_link_address_parse(link->url, &link->address, why);
    if (err) {
        weft_link_free(link);
        return err;
    }
    *link_out = link;
    return WEFT_OK;
}

void weft_link_free(weft_link *link) {
    if (!link) return;
    if (link->dialer) nng_stream_dialer_close(link->dialer);
    if (link->listener) nng_stream_listener_close(link->listener);
    nng_aio *const aios[] = {link->dial_aio, link->timer_aio, link->accept_aio};
    for (size_t i = 0; i < sizeof aios / sizeof aios[0]; i++) {
        nng_aio_stop(aios[i]); /* accepts NULL, as does free */
        nng_aio_free(aios[i]);
    }
    nng_stream_dialer_free(link->dialer);
    nng_stream_listener_free(link->listener);
    for (uint32_t i = 0; link->slots && i < link->n_slots; i++)
        wefti_link_conn_free(link->slots[i].conn);
    free_doomed(link);
    wefti_link_inbox_fini(&link->inbox);
    free(link->url);
    free(link->slots);
    free(link->peers);
    free(link->events);
    free(link);
}

static weft_err open_dialer(weft_link *link, nng_tls_config *tls, struct weft_errmsg *why) {
    int rv = nng_stream_dialer_alloc(&link->dialer, link->url);
    if (rv == 0) rv = nng_aio_alloc(&link->dial_aio, on_dialled, link);
    if (rv == 0) rv = nng_aio_alloc(&link->timer_aio, on_timer, link);
    if (rv == 0 && tls) rv = nng_stream_dialer_set_ptr(link->dialer, NNG_OPT_TLS_CONFIG, tls);
    if (rv != 0) return from_nng(why, rv, "connect to", link->url);
    nng_aio_set_timeout(link->dial_aio, DIAL_MS); /* of TCP: TLS begins with the stream */
    /* Only tcp knows these. */
    (void)nng_stream_dialer_set_bool(link->dialer, NNG_OPT_TCP_NODELAY, true);
    (void)nng_stream_dialer_set_bool(link->dialer, NNG_OPT_TCP_KEEPALIVE, true);
    wefti_link_inbox_put_flag(&link->inbox, &link->inbox.timer); /* the owner's next look dials */
    return WEFT_OK;
}

/* A killed predecessor may hold the address until the kernel has cleaned up. */
static void wait_for_address(void) {
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    (void)nanosleep(&pause, NULL);
}

/* nng replaces any file at which nobody listens, even one that is not a socket. */
static weft_err spare_other_files(const weft_link *link, struct weft_errmsg *why) {
    struct stat st;
    if (link->address.scheme != WEFTI_LINK_IPC) return WEFT_OK;
    if (lstat(link->address.rest, &st) != 0 || S_ISSOCK(st.st_mode)) return WEFT_OK;
    return weft_err_set(why, WEFT_E_IO, "cannot listen at %s: a file that is no socket is there",
                        link->url);
}

static weft_err open_listener(weft_link *link, nng_tls_config *tls, struct weft_errmsg *why) {
    uint64_t deadline_ms = weft_now_ms() + LISTEN_TRIES_MS;
    weft_err err = spare_other_files(link, why);
    if (err) return err;
    int rv = nng_stream_listener_alloc(&link->listener, link->url);
    if (rv == 0) rv = nng_aio_alloc(&link->accept_aio, on_accepted, link);
    if (rv == 0 && tls) rv = nng_stream_listener_set_ptr(link->listener, NNG_OPT_TLS_CONFIG, tls);
    if (rv != 0) return from_nng(why, rv, "listen at", link->url);
    /* Only tcp knows the first two, only ipc the third. */
    (void)nng_stream_listener_set_bool(link->listener, NNG_OPT_TCP_NODELAY, true);
    (void)nng_stream_listener_set_bool(link->listener, NNG_OPT_TCP_KEEPALIVE, true);
    (void)nng_stream_listener_set_int(link->listener, NNG_OPT_IPC_PERMISSIONS, 0600);
    while ((rv = nng_stream_listener_listen(link->listener)) == NNG_EADDRINUSE &&
           weft_now_ms() < deadline_ms)
        wait_for_address();
    if (rv != 0) return from_nng(why, rv, "listen at", link->url);
    nng_stream_listener_accept(link->listener, link->accept_aio);
    return WEFT_OK;
}

static weft_err check_secure(const weft_link *link, const struct weft_link_options *options,
                             struct weft_errmsg *why) {
    WEFT_ASSERT(link);
    if (link->address.scheme != WEFTI_LINK_TCP || link->address.is_this_host) return WEFT_OK;
    if (options && options->insecure) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL,
                        "%s leaves this host in the clear, and anybody may answer there: use "
                        "tls+tcp://, or --insecure-links where the network itself is trusted",
                        link->url);
}

static weft_err open_link(weft_link *link, const struct weft_link_options *options,
                          struct weft_errmsg *why) {
    nng_tls_config *tls = NULL;
    weft_err err = check_secure(link, options, why);
    if (!err && link->address.scheme == WEFTI_LINK_TLS)
        err = wefti_link_tls_config(link->dials, options, &tls, why);
    if (err) return err;
    err = link->dials ? open_dialer(link, tls, why) : open_listener(link, tls, why);
    if (tls) nng_tls_config_free(tls); /* the dialler or listener holds it, too */
    return err;
}

weft_err weft_link_dial(enum weft_link_kind kind, const char *url,
                        const struct weft_link_options *options, weft_link **link_out,
                        struct weft_errmsg *why) {
    weft_link *link = NULL;
    *link_out = NULL;
    weft_err err = new_link(kind, true, url, &link, why);
    if (!err) err = open_link(link, options, why);
    if (err)
        weft_link_free(link);
    else
        *link_out = link;
    return err;
}

weft_err weft_link_listen(enum weft_link_kind kind, const char *url,
                          const struct weft_link_options *options, weft_link **link_out,
                          struct weft_errmsg *why) {
    weft_link *link = NULL;
    *link_out = NULL;
    weft_err err = new_link(kind, false, url, &link, why);
    if (!err) err = open_link(link, options, why);
    if (err)
        weft_link_free(link);
    else
        *link_out = link;
    return err;
}
