/* link — a session between two actors over nng: nothing lost, nothing doubled, or a clean break.
 *
 * Model    nng alone loses messages silently around reconnects. So every message carries the
 * session's nonce and a sequence number per direction. The dialling side opens a session with a
 * fresh nonce whenever a pipe appears, when the other side asks for it, or when it sees a gap; the
 *          listening side answers. A gap, a lost pipe, a full send queue or a new instance ends the
 *          session: both owners get DOWN, later UP, and resynchronise from what they own.
 * Roles    dial    router (PUSH to the scheduler's PULL; own PULL for the way back) or worker
 * (pair0) listen  scheduler: one hub for all routers (PULL; one PUSH per router), one per worker
 *                  (pair0); a second worker that dials a pair0 is refused by nng.
 * Safety   Peers of another user are turned away (NNG_OPT_PEER_UID on local addresses). Messages
 * over WEFT_MESSAGE_BYTES_MAX are dropped with the session. Threads  nng's callbacks put messages
 * in a bounded mailbox and wake the owner through an eventfd; all functions here are the owner's,
 * one thread. Sends never block.
 */
#ifndef WEFT_CMD_LINK_H
#define WEFT_CMD_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct weft_link weft_link;

enum weft_link_kind { WEFT_LINK_PAIR, WEFT_LINK_PUSH_PULL };

/* Connects to `url` and keeps trying for ever. WEFT_E_INVAL: bad url. */
WEFT_MUST_CHECK weft_err weft_link_dial(enum weft_link_kind kind, const char *url,
                                        weft_link **link_out, struct weft_errmsg *why);

/* Listens at `url`. With PUSH_PULL up to WEFT_LINK_PEERS_MAX peers, with PAIR one. */
WEFT_MUST_CHECK weft_err weft_link_listen(enum weft_link_kind kind, const char *url,
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
    uint32_t peer;     /* 0 for dialled links and PAIR; else an index, reused after DOWN */
    const void *bytes; /* of a MESSAGE; valid until the next call of weft_link_next or _free */
    size_t len;
};

/* Readable (poll for POLLIN) when weft_link_next may have something. */
int weft_link_fd(const weft_link *link);

/* The next event; false when there is none. Call until false after each wake-up. */
bool weft_link_next(weft_link *link, uint64_t now_ms, struct weft_link_event *event_out);

/* Retries and time-outs; call every 50-250 ms. */
void weft_link_tick(weft_link *link, uint64_t now_ms);

bool weft_link_is_up(const weft_link *link, uint32_t peer);

/* Copies and sends. CLOSED: no session (nothing sent). FULL: the peer does not take messages; the
 * session has ended, a DOWN event follows. TOOBIG. */
WEFT_MUST_CHECK weft_err weft_link_send(weft_link *link, uint32_t peer, const void *bytes,
                                        size_t len);

/* Ends a peer's session (it sent nonsense): a DOWN event follows, and the peer is asked to start
 * over. */
void weft_link_reset(weft_link *link, uint32_t peer);

#endif
