/* base/end — why a choice ends: one list, of which everybody who tells of an end, passes it on or
 * counts it takes what it needs.
 *
 * A worker sees stop tokens and lengths, and says so with the token. The scheduler passes that on,
 * and ends by itself what is overdue or kills workers. The router knows which stop tokens a request
 * named itself, looks for stop strings, and sees clients leave.
 */
#ifndef WEFT_BASE_END_H
#define WEFT_BASE_END_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, number, who tells it, finish_reason in metrics). The numbers travel (proto/schema.md):
 * they never change. */
#define WEFT_END_LIST(X)                                                                           \
    X(NONE, 0, WORKER, NULL)           /* it goes on */                                            \
    X(STOP, 1, WORKER, "stop")         /* the token is one of the stop tokens */                   \
    X(LENGTH, 2, WORKER, "length")     /* max_tokens, or the model's length, is reached */         \
    X(STOP_TOKEN, 5, ROUTER, "stop")   /* STOP by a token that the request named */                \
    X(STOP_STRING, 6, ROUTER, "stop")  /* the text holds one of the stop strings */                \
    X(ABORT, 7, ROUTER, "abort")       /* the client left, or cancelled */                         \
    X(DEADLINE, 3, SCHEDULER, "error") /* its time ran out */                                      \
    X(ERROR, 4, SCHEDULER, "error")    /* WEFT_SEQ_LOSSES_MAX workers in a row were lost over it */

enum weft_end {
#define X(name, number, teller, reason) WEFT_END_##name = (number),
    WEFT_END_LIST(X)
#undef X
        WEFT_END_COUNT = 8 /* all numbers are below */
};

/* Who tells of an end, each also of those that it was told. */
enum weft_end_teller { WEFT_END_BY_WORKER, WEFT_END_BY_SCHEDULER, WEFT_END_BY_ROUTER };

/* Whether a number from outside is an end that this one tells of. */
bool weft_end_is_told_by(uint64_t number, enum weft_end_teller teller);

/* "stop", "length", "abort" or "error"; NULL for NONE. */
const char *weft_end_reason(enum weft_end end);

#endif
