/* session_call — a call that asks the scheduler about sessions, in place of jobs. */
#ifndef WEFT_API_CALL_SESSION_CALL_H
#define WEFT_API_CALL_SESSION_CALL_H

#include "base/session.h"
#include "call/call_internal.h"

/* kind_state of such a call once it is answered: all in one piece. */
struct wefti_session_state {
    uint64_t took_us;                  /* since the call came */
    struct weft_session_answer answer; /* `told` and its names are below */
    struct weft_session_told told[];
};

/* Sends the call's wish, or fails the call. It is WAITING then, until the answer comes. */
void wefti_api_session_ask(weft_api_call *call);
void wefti_api_session_free_state(weft_api_call *call);

#endif
