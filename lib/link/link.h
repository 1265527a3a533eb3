/* link — a session between two actors: no message is lost or doubled, or the session ends cleanly.
 *
 * Model    One byte stream of nng's per peer, both ways, framed and numbered (link.c says why not
 *          nng's message sockets), and one code path for all kinds of addresses. The dialling side
 *          opens a session on each new stream, the listening side answers. A broken stream, a full
 *          send queue, nonsense or weft_link_reset ends the session: both owners get DOWN, later
 *          UP, and resynchronise from what they own. Messages of a session come in order, all up to
 *          some point, then DOWN; never any of an older session.
 * Roles    dial: router or worker. listen: scheduler, one address for all routers (MANY_PEERS), one
 *          per worker (ONE_PEER); a second worker is refused while the first one is there.
 * Urls     abstract://NAME and ipc://PATH on one host, tls+tcp://HOST:PORT across hosts.
 *          tcp://HOST:PORT on loopback addresses, across hosts only with `insecure`.
 * Safety   On one host peers of another or unknown user are refused; by tls+tcp:// all peers
 *          without a certificate of our authority. The streams of strangers that send something
 *          else are closed, of silent ones after three seconds. At most 32 streams are in that
 *          state; one more, and the oldest of them is closed.
 * Threads  All functions here are the owner's, one thread. nng's callbacks put what came into
 *          bounded buffers, two per peer, and wake the owner through an eventfd. Sends never block:
 *          nng's threads send what a socket does not take at once. A busy owner loses no messages:
 *          its peers' queues fill, up to FULL there.
 */
#ifndef WEFT_LINK_H
#define WEFT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct weft_link weft_link;

enum weft_link_kind { WEFT_LINK_ONE_PEER, WEFT_LINK_MANY_PEERS };

/* All borrowed for the call. Files are PEM; tls+tcp:// needs all three, others none. */
struct weft_link_options {
    const char *cert, *key; /* ours */
    const char *ca;         /* the authority's, which signs for us and our peers only */
    bool insecure;          /* allows plain tcp:// beyond loopback addresses */
};

/* Connects to `url`, from the first weft_link_next on, and keeps trying for ever, after 10 to
 * 200 ms: at once after a session that lasted, slower each time after one that did not. `options`
 * may be NULL. WEFT_E_INVAL: bad url or options. */
WEFT_MUST_CHECK weft_err weft_link_dial(enum weft_link_kind kind, const char *url,
                                        const struct weft_link_options *options,
                                        weft_link **link_out, struct weft_errmsg *why);

/* Listens at `url`; an address that is in use is tried again for two seconds (then IO). With
 * MANY_PEERS up to WEFT_LINK_PEERS_MAX peers, with ONE_PEER one. */
WEFT_MUST_CHECK weft_err weft_link_listen(enum weft_link_kind kind, const char *url,
                                          const struct weft_link_options *options,
                                          weft_link **link_out, struct weft_errmsg *why);
void weft_link_free(weft_link *link); /* accepts NULL */

#define WEFT_LINK_PEERS_MAX 256

enum weft_link_event_kind {
    WEFT_LINK_UP,   /* a session began: say hello */
    WEFT_LINK_DOWN, /* it ended: forget what this peer had */
    WEFT_LINK_MESSAGE,
};

struct weft_link_event {
    enum weft_link_event_kind kind;
    uint32_t peer;     /* 0 for dialled links and ONE_PEER; else an index, reused after DOWN */
    const void *bytes; /* a MESSAGE's, not aligned; until the next weft_link_next or _free */
    size_t len;
};

/* Readable (poll for POLLIN) when weft_link_next may have something. */
int weft_link_fd(const weft_link *link);

/* The next event; false when there is none, or after some milliseconds of work that yielded none
 * (weft_link_fd is readable then): so strangers cannot keep the owner from its ticks. Call until
 * false after each wake-up. */
bool weft_link_next(weft_link *link, uint64_t now_ms, struct weft_link_event *event_out);

/* Retries and time-outs; call every 50-250 ms. */
void weft_link_tick(weft_link *link, uint64_t now_ms);

bool weft_link_is_up(const weft_link *link, uint32_t peer);

/* Whether its peers can only be on this host: a loopback or a local address. */
bool weft_link_is_local(const weft_link *link);

/* Copies and sends. What is sent may still be lost when the session ends. CLOSED: no session
 * (nothing sent). FULL: the peer does not take messages; the session has ended, a DOWN event
 * follows. TOOBIG. */
WEFT_MUST_CHECK weft_err weft_link_send(weft_link *link, uint32_t peer, const void *bytes,
                                        size_t len);

/* On: messages for this peer wait; off: they go out, as one write, if the session still exists. It
 * is off when a session begins. */
void weft_link_cork(weft_link *link, uint32_t peer, bool on);

/* Ends a peer's session (it sent nonsense): a DOWN event follows, and the peer is asked to start
 * over. */
void weft_link_reset(weft_link *link, uint32_t peer);

#endif
