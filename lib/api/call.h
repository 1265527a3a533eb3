/* call — one client's request from its body to its last token.
 *
 * Way      body -> weft_api_call_prepare (any thread) -> weft_api_call_start -> the scheduler
 *          accepts every prompt -> tokens -> done. Answers are rendered as the client's socket
 *          drains: until then a call keeps ids, and neither text nor JSON.
 * Memory   A call's output is taken from the shared budget as it grows; a stream over HTTP frees
 *          log-probabilities once they are rendered. A call without room ends with an error.
 * Owner    The connection. `wake` tells it that there is something to look at; any function here
 *          may call it, so it must only make a note.
 * Threads  The loop's thread calls everything but weft_api_call_prepare and _check.
 */
#ifndef WEFT_API_CALL_H
#define WEFT_API_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/error.h"
#include "base/buf.h"
#include "base/str.h"

struct weft_api_state;
typedef struct weft_api_call weft_api_call;
typedef struct weft_api_kind weft_api_kind; /* what an endpoint does: kinds/kind.h */

enum weft_api_call_state {
    WEFT_API_CALL_PREPARING, /* perhaps in another thread */
    WEFT_API_CALL_WAITING,   /* for the scheduler to accept every prompt */
    WEFT_API_CALL_RUNNING,
    WEFT_API_CALL_DONE,
    WEFT_API_CALL_FAILED, /* weft_api_call_error says why */
};

/* The number by which a user is told from others. */
uint64_t weft_api_flow(const char *name, size_t len);

/* Who asks, and what goes before the same wish in the body. 0: nobody, nothing. */
struct weft_api_asker {
    uint64_t tenant; /* of the API key, with its weight */
    uint32_t weight;
    uint64_t flow;
    uint64_t ttft_us, tpot_us;
    bool
        is_background; /* a batch's line: it waits as long as it takes (WEFT_PRIORITY_BACKGROUND) */
};

struct weft_api_call_request {
    const weft_api_kind *kind;
    struct weft_buf *body;  /* moved into the call, with its share of the budget */
    bool is_gzip;           /* the body is, and holds what follows */
    bool is_msgpack;        /* the body is; else JSON */
    bool is_rpc;            /* the answer is MessagePack-RPC's; else HTTP's */
    const char *request_id; /* copied; over HTTP part of the response's id */
    struct weft_api_asker asker;
    struct weft_str path_session; /* the session that its path names; copied. Empty: it does not */
    uint64_t free_bytes;          /* the first bytes of output, which cost no budget */
    void (*wake)(weft_api_call *call);
    void *owner;
    uint64_t now_us;
    int64_t now_s; /* wall clock */
};

/* NULL: out of memory (the body stays). */
weft_api_call *weft_api_call_new(struct weft_api_state *api,
                                 const struct weft_api_call_request *request);

/* Cancels the call and frees it, at once or when the thread that prepares it is done. Accepts
 * NULL. */
void weft_api_call_drop(weft_api_call *call);

/* Parses and tokenizes. Any thread may call it: it changes no shared state. */
void weft_api_call_prepare(weft_api_call *call);

/* After it, in the loop's thread: true if it has to be called again, since a compressed body needed more
 * room than it had and has it now. Each time it has twice as much. */
bool weft_api_call_make_room(weft_api_call *call);

/* After that: whether the output must fit a grammar, which is to be compiled. Until then nobody knows that
 * it can be, and weft_api_call_check does that; it may take a second, so not in the loop's thread. */
bool weft_api_call_has_grammar(const weft_api_call *call);
void weft_api_call_check(weft_api_call *call);

/* Until weft_api_call_return the call belongs to another thread, or waits for one. When the call is
 * dropped, `take_back` removes it from the queue; false: a thread has it already. */
void weft_api_call_lend(weft_api_call *call, bool (*take_back)(void *context), void *context);

/* The thread is done: starts the call and wakes its owner, or frees the call if it was dropped. */
void weft_api_call_return(weft_api_call *call, uint64_t now_us);

/* Submits a prepared call or ends it; or parks it, if the scheduler or its worker will be back in a
 * moment. */
void weft_api_call_start(weft_api_call *call, uint64_t now_us);

/* Submits parked calls if the server serves again, and ends those that waited too long or will not
 * be served; and those in the background for which there is room by now. Once per turn of the loop,
 * before weft_api_upstream_pump. */
void weft_api_calls_unpark(struct weft_api_state *api, uint64_t now_us);

/* The client has waited longer than --request-timeout. The scheduler keeps the same time and gets a
 * moment to say so itself, unless the call is still being prepared. */
bool weft_api_call_is_late(const weft_api_call *call, uint64_t now_us);

/* Ends a call with an error, which is the last event of a stream; no effect on one that has ended.
 * False: a thread has the call; a caller that cannot wait answers the client and drops it. */
bool weft_api_call_end(weft_api_call *call, const struct weft_api_error *error);

const char *weft_api_call_request_id(const weft_api_call *call);
void *weft_api_call_owner(const weft_api_call *call);
enum weft_api_call_state weft_api_call_state(const weft_api_call *call);
const struct weft_api_error *weft_api_call_error(const weft_api_call *call);
size_t
weft_api_call_body_bytes(const weft_api_call *call); /* the next weft_api_call_prepare reads */
bool weft_api_call_is_stream(const weft_api_call *call);

/* How far a call has come, for the access log. */
struct weft_api_call_progress {
    bool has_begun; /* the scheduler took it */
    char finish
        [32]; /* the reasons why its choices ended: "stop", "length", "stop,length" ...; "error" of a
                        failed call, "abort" of one under way, which its client gives up */
    uint32_t n_prompt, n_cached;
    uint64_t n_output;  /* tokens */
    uint64_t queued_us; /* before its first step */
    uint64_t first_us;  /* from its arrival to the first token */
};
void weft_api_call_tell(const weft_api_call *call, struct weft_api_call_progress *progress_out);
const char *weft_api_call_model_name(const weft_api_call *call);

/* What the call takes of both shared budgets together. */
uint64_t weft_api_call_held(const weft_api_call *call);

/* What holding a result of `n` bytes costs of the budget for output. */
uint64_t weft_api_call_result_cost(const weft_api_call *call, size_t n);
/* Whether that, beside the call's own output, is there where nobody else holds any. */
bool weft_api_call_result_fits(const weft_api_call *call, size_t n);

/* ------------------------------------------------------------------------------- rendering --- */

/* Appends to `out` until it has about `budget` bytes more, so that a response of any size passes
 * through a small buffer. The bytes do not depend on how they are cut. */

enum weft_api_render {
    WEFT_API_RENDER_WAIT, /* all so far is rendered; more will come */
    WEFT_API_RENDER_MORE, /* the budget is used up */
    WEFT_API_RENDER_DONE,
};

/* The answer of a finished call: JSON, or the result in MessagePack-RPC, for which `out` must keep
 * everything before it. */
enum weft_api_render weft_api_render_body(weft_api_call *call, struct weft_buf *out, size_t budget);

/* The type of a stream's response, and what keeps it open while it is silent (NULL: nothing may be
 * sent). */
const char *weft_api_call_stream_type(const weft_api_call *call);
const char *weft_api_call_keep_alive(const weft_api_call *call);

/* Over HTTP: a stream's events so far, to its end. */
enum weft_api_render weft_api_render_stream(weft_api_call *call, struct weft_buf *out,
                                            size_t budget);

/* False while the stream's last event is rendered in part: nothing else may be sent then. */
bool weft_api_call_is_between_events(const weft_api_call *call);

/* In MessagePack-RPC: the next notification of a stream; false: none now. */
bool weft_api_render_notification(weft_api_call *call, struct weft_buf *out);

#endif
