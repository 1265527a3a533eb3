/* ask — one request about files and batches, from its head to its answer.
 *
 * Way      wefti_ask_new once the head is there; an upload's bytes to wefti_ask_take as they come, anything else whole
 *          to wefti_ask_go; then its state, whenever `wake` says that there is something to look at.
 * Memory   Of an upload ASK_PENDING_BYTES and what the socket brings at a time: wefti_ask_is_full tells when to stop
 *          reading. Of a download one piece.
 * Owner    The connection. Dropped before its end it goes on in its thread, and removes what it had begun.
 */
#ifndef WEFT_ROUTER_BATCHES_ASK_H
#define WEFT_ROUTER_BATCHES_ASK_H

#include <stdbool.h>
#include <stddef.h>

#include "api/http.h"
#include "base/buf.h"

struct batches;
struct batch_ask;

/* NULL: no memory. */
struct batch_ask *wefti_ask_new(struct batches *all, const struct weft_api_http *http,
                                void (*wake)(void *owner), void *owner);
void wefti_ask_drop(struct batch_ask *ask); /* accepts NULL */

bool wefti_ask_is_upload(const struct batch_ask *ask);
bool wefti_ask_take(void *ask, const char *bytes, size_t n); /* false: the answer is there */
bool wefti_ask_is_full(const struct batch_ask *ask);
void wefti_ask_go(struct batch_ask *ask, const struct weft_buf *body); /* the body is whole */

enum ask_state {
    ASK_WORKING,
    ASK_ANSWERED, /* wefti_ask_answer has it */
    ASK_SENDING,  /* a file's bytes: wefti_ask_piece */
};
enum ask_state wefti_ask_state(const struct batch_ask *ask);

/* The answer, once; its buffers are the caller's. */
struct weft_api_answer wefti_ask_answer(struct batch_ask *ask);

enum ask_piece {
    ASK_PIECE_WAIT,
    ASK_PIECE_MORE,   /* something was appended */
    ASK_PIECE_WHOLE,  /* nothing more comes */
    ASK_PIECE_FAILED, /* the answer breaks off */
};
enum ask_piece wefti_ask_piece(struct batch_ask *ask, struct weft_buf *out);

#endif
