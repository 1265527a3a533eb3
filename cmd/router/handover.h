/* handover — listening sockets go from one server to the next, so that the next takes its place and
 * nobody is refused.
 *
 * Where    A unix socket (SOCK_SEQPACKET) with an abstract name, by user, address and HTTP port:
 *          "weft-1000-127.0.0.1-8080". The kernel forgets it with its holder, and nobody reaches it
 *          from another network namespace.
 * Who      Processes of one user: either side asks the kernel for the other's (SO_PEERCRED).
 * What     Messages of 32 bytes, and nothing can be asked for but this:
 *
 *              LOOK   ──►                        is somebody there, before a model is loaded for long?
 *                     ◄──  HERE                  yes, this one
 *              TAKE   ──►                        the model is loaded: that one's sockets, please
 *                     ◄──  OFFER + descriptors   or BUSY, OTHER
 *              TAKEN  ──►                        they can be used
 *                     ◄──  DONE                  and are used here no more
 *
 *          LOOK has a connection of its own. Until TAKEN has come the server that runs goes on as if
 *          nothing had happened, whoever else holds the sockets; from DONE on the other accepts, and
 *          what came meanwhile waits in the kernel's queue. Magic, version and kind stay where they
 *          are in every version; what a version does not know it answers with REFUSED and its own.
 * Bounds   WEFT_HANDOVER_GUESTS_MAX at a time, one message of each in a tick, a few seconds for each;
 *          for one more the oldest has to go. One that sends anything else is hung up on.
 * Threads  The giving side belongs to the loop's thread and never waits: it looks once a tick. The
 *          taking side waits, each time for WEFT_HANDOVER_WAIT_MS at most, and needs a thread.
 */
#ifndef WEFT_ROUTER_HANDOVER_H
#define WEFT_ROUTER_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define WEFT_HANDOVER_VERSION 1
#define WEFT_HANDOVER_NAME_BYTES 96
#define WEFT_HANDOVER_GUESTS_MAX 4
#define WEFT_HANDOVER_WAIT_MS 5000 /* for an answer; the other side looks ten times a second */
/* For what a guest says first, and for its TAKEN. Longer than it waits itself: it gives up first. */
#define WEFT_HANDOVER_GUEST_MS 7000

enum { WEFT_HANDOVER_HTTP, WEFT_HANDOVER_RPC, WEFT_HANDOVER_CONTROL, WEFT_HANDOVER_SOCKETS };

/* In the order in which kinds were invented; the numbers stay. */
enum wefti_handover_kind {
    WEFT_HANDOVER_LOOK = 1,
    WEFT_HANDOVER_TAKE = 2,
    WEFT_HANDOVER_TAKEN = 3,
    WEFT_HANDOVER_HERE = 4,
    WEFT_HANDOVER_OFFER = 5,
    WEFT_HANDOVER_DONE = 6,
    WEFT_HANDOVER_BUSY = 7,    /* somebody else has an offer */
    WEFT_HANDOVER_OTHER = 8,   /* this is not the instance that was asked for */
    WEFT_HANDOVER_REFUSED = 9, /* of another version */
};

/* Both run on one machine, so numbers are as it has them. */
struct wefti_handover_message {
    char magic[8];
    uint32_t version;
    uint32_t kind;
    uint64_t instance; /* of who runs there: TAKE repeats what HERE said */
    uint32_t sockets;  /* of an OFFER: bit i for the socket i, in whose order they come */
    uint32_t zero;
};
_Static_assert(sizeof(struct wefti_handover_message) == 32, "no padding");

/* The name for this user's server at a numeric address. */
void wefti_handover_name(const char *address, uint32_t port,
                         char name_out[WEFT_HANDOVER_NAME_BYTES]);

/* ----------------------------------------------------------------------------------- giving --- */

struct handover {
    int control_fd;    /* -1: closed */
    uint64_t instance; /* the same for all routers of one server */
    struct {
        int fd; /* -1: none */
        bool has_offer;
        uint64_t until_ms;
    } guests[WEFT_HANDOVER_GUESTS_MAX];
    uint64_t complained_ms;
};

void wefti_handover_init(struct handover *handover); /* closed */

/* Listens under `name`, or at the descriptor of somebody who did (control_fd >= 0, which is taken
 * in any case). EXISTS: the name is in use. IO, NOMEM. After an error it is closed. */
WEFT_MUST_CHECK weft_err wefti_handover_open(struct handover *handover, const char *name,
                                             int control_fd, uint64_t instance,
                                             struct weft_errmsg *why);

/* Once a tick. `fds`: the listening sockets for HTTP and RPC (-1: none), which stay the caller's.
 * True: somebody else has them now and will accept, so the caller must not. */
bool wefti_handover_tick(struct handover *handover, const int fds[WEFT_HANDOVER_CONTROL],
                         uint64_t now_ms);

void wefti_handover_close(struct handover *handover);

/* ----------------------------------------------------------------------------------- taking --- */

struct handover_offer {
    int conn_fd;                    /* -1: none */
    int fds[WEFT_HANDOVER_SOCKETS]; /* -1: not offered */
};

/* Whether somebody of this user is there under `name`, and which instance. STATE, TIMEOUT, PROTO: it
 * is there, but would not hand over. */
WEFT_MUST_CHECK weft_err wefti_handover_look(const char *name, bool *found_out,
                                             uint64_t *instance_out, struct weft_errmsg *why);

/* Has the sockets offered: conn_fd is -1 if nobody is there any more. At an error, too, there is
 * nothing to release. STATE: somebody else takes or took them. */
WEFT_MUST_CHECK weft_err wefti_handover_ask(const char *name, uint64_t instance,
                                            struct handover_offer *offer_out,
                                            struct weft_errmsg *why);

/* Accepts the offer: without an error the other has ceased to accept. With one it goes on, and the
 * sockets must not be used. Hangs up. */
WEFT_MUST_CHECK weft_err wefti_handover_accept(struct handover_offer *offer, const char *name,
                                               struct weft_errmsg *why);

void wefti_handover_release(struct handover_offer *offer); /* closes what is left of it */

#endif
