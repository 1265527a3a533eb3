/* call — one client's request from its body to its last token.
 *
 * Way      body -> weft_api_call_prepare (any thread) -> weft_api_call_start -> the scheduler's word
 *          on every prompt -> tokens -> done. What a client reads is rendered as its socket drains:
 *          until then a call keeps ids, and neither text nor JSON.
 * Memory   What a call holds of output is taken from the shared budget as it grows; a stream over
 *          HTTP lets go of log-probabilities once they have been rendered. A call for which there
 *          is no room ends with an error.
 * Owner    The connection. `wake` tells it that there is something to look at; it is called from
 *          within any function here and must only make a note.
 * Threads  All from the loop's thread, but for weft_api_call_prepare.
 */
#ifndef WEFT_API_CALL_H
#define WEFT_API_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/error.h"
#include "base/buf.h"

struct weft_api_state;
typedef struct weft_api_call weft_api_call;
typedef struct weft_api_kind weft_api_kind; /* what an endpoint does: kinds/kind.h */

enum weft_api_call_state {
    WEFT_API_CALL_PREPARING, /* perhaps in another thread */
    WEFT_API_CALL_WAITING,   /* for the scheduler's word on every prompt */
    WEFT_API_CALL_RUNNING,
    WEFT_API_CALL_DONE,
    WEFT_API_CALL_FAILED, /* weft_api_call_error says why */
};

struct weft_api_call_request {
    const weft_api_kind *kind;
    struct weft_buf *body;  /* moved into the call, and with it what it costs of the budget */
    bool is_msgpack;        /* the body is; else JSON */
    const char *request_id; /* of MessagePack-RPC, copied; NULL: over HTTP */
    uint64_t free_bytes;    /* so many bytes of output cost nothing of the budget */
    void (*wake)(weft_api_call *call);
    void *owner;
    uint64_t now_us;
    int64_t now_s; /* wall clock */
};

/* NULL: out of memory (the body stays). */
weft_api_call *weft_api_call_new(struct weft_api_state *api,
                                 const struct weft_api_call_request *request);

/* Cancels what is under way and frees; at once, or when the thread that prepares it is done.
 * NULL is fine. */
void weft_api_call_drop(weft_api_call *call);

/* Parses and tokenizes: no part of the shared state is changed, so any thread may do it. */
void weft_api_call_prepare(weft_api_call *call);

/* Between weft_api_call_new and weft_api_call_return another thread prepares the call, or will.
 * `take_back` gets it from those who wait for a thread, when the call is dropped; false: a thread
 * has it already. */
void weft_api_call_lend(weft_api_call *call, bool (*take_back)(void *context), void *context);

/* The thread is done. Starts the call, and wakes its owner; or frees it, if nobody waits. */
void weft_api_call_return(weft_api_call *call, uint64_t now_us);

/* Once it is prepared: submits, or ends the call; or parks it, if the scheduler or its worker will
 * be back in a moment. */
void weft_api_call_start(weft_api_call *call, uint64_t now_us);

/* Submits what was parked, if somebody serves again, or ends it, if it has waited for too long or
 * will not be served: once per turn of the loop, before weft_api_upstream_pump. */
void weft_api_calls_unpark(struct weft_api_state *api, uint64_t now_us);

/* The client has waited longer than --request-timeout lets it. The scheduler keeps the same time
 * and is given a moment to say so itself; a call that is still being prepared it does not know. */
bool weft_api_call_is_late(const weft_api_call *call, uint64_t now_us);

/* Ends a late call with an error; a stream that has begun gets it as its last event. False: a thread
 * has the call, so whoever cannot wait answers the client and drops it. */
bool weft_api_call_end_late(weft_api_call *call);

const char *weft_api_call_request_id(const weft_api_call *call); /* "" over HTTP */
void *weft_api_call_owner(const weft_api_call *call);
enum weft_api_call_state weft_api_call_state(const weft_api_call *call);
const struct weft_api_error *weft_api_call_error(const weft_api_call *call);
size_t weft_api_call_body_bytes(const weft_api_call *call);
bool weft_api_call_is_stream(const weft_api_call *call);

/* What it takes of the shared budgets, both together. */
uint64_t weft_api_call_held(const weft_api_call *call);

/* What a result of `n` bytes, while it is held, costs of the budget for output. */
uint64_t weft_api_call_result_cost(const weft_api_call *call, size_t n);

/* ------------------------------------------------------------------------------- rendering --- */

/* Appends to `out` until it has about `budget` bytes more, so that a response of any size passes
 * through a small buffer. The same bytes come however they are cut. */

enum weft_api_render {
    WEFT_API_RENDER_WAIT, /* all there is has been rendered; more will come */
    WEFT_API_RENDER_MORE, /* the budget is used up */
    WEFT_API_RENDER_DONE,
};

/* The answer of a finished call: JSON; of MessagePack-RPC the result, for which `out` must keep all
 * that came before. */
enum weft_api_render weft_api_render_body(weft_api_call *call, struct weft_buf *out, size_t budget);

/* Over HTTP: a stream's server-sent events so far, to its end. */
enum weft_api_render weft_api_render_stream(weft_api_call *call, struct weft_buf *out,
                                            size_t budget);

/* Of MessagePack-RPC: the next notification of a stream; false: there is none now. */
bool weft_api_render_notification(weft_api_call *call, struct weft_buf *out);

#endif
