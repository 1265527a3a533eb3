/* base/end — why a choice ends: one list for all who report an end, pass it on or count it.
 *
 * A worker sees stop tokens and lengths, and says so with the token. The scheduler passes that on,
 * and itself ends requests that are overdue or kill workers. The router knows which stop tokens the
 * request itself named, looks for stop strings, and sees clients leave.
 */
#ifndef WEFT_BASE_END_H
#define WEFT_BASE_END_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, number, who reports it, finish_reason in metrics). The numbers travel (proto/schema.md):
 * they never change. */
#define WEFT_END_LIST(X)                                                                           \
    X(NONE, 0, WORKER, NULL)           /* it goes on */                                            \
    X(STOP, 1, WORKER, "stop")         /* the token is one of the stop tokens */                   \
    X(LENGTH, 2, WORKER, "length")     /* max_tokens, or the model's length, is reached */         \
    X(STOP_TOKEN, 5, ROUTER, "stop")   /* STOP by a token that the request named */                \
    X(STOP_STRING, 6, ROUTER, "stop")  /* the text holds one of the stop strings */                \
    X(ABORT, 7, ROUTER, "abort")       /* the client left, or cancelled */                         \
    X(DEADLINE, 3, SCHEDULER, "error") /* its time ran out */                                      \
    X(ERROR, 4, SCHEDULER, "error") /* WEFT_SEQ_LOSSES_MAX workers in a row were lost over it */   \
    X(GRAMMAR, 8, WORKER, "error")  /* its grammar met a bound, or leaves no token */              \
    X(COMPLETE, 9, WORKER, "stop")  /* its grammar has no more, and no token says so */

enum weft_end {
#define X(name, number, teller, reason) WEFT_END_##name = (number),
    WEFT_END_LIST(X)
#undef X
        WEFT_END_COUNT = 10 /* all numbers are below */
};

/* Who reports an end; each also passes on those that it was told. */
enum weft_end_teller { WEFT_END_BY_WORKER, WEFT_END_BY_SCHEDULER, WEFT_END_BY_ROUTER };

/* Whether a number from outside is an end that this one reports. */
bool weft_end_is_told_by(uint64_t number, enum weft_end_teller teller);

/* "stop", "length", "abort" or "error"; NULL for NONE. */
const char *weft_end_reason(enum weft_end end);

#endif
