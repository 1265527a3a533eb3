/* parking — calls that wait for a scheduler or a worker that is being replaced.
 *
 * Places   There are --max-queue, one for each prompt. When they are taken, a tenant that has less than
 *          its part of them, by weight among those who wait, may still go on to them, whatever others
 *          have put there, as with the scheduler's own queue. So there are at most --max-queue for each
 *          tenant, and once more.
 * Order    That of arrival; whose turn it is the scheduler says, when it is back.
 * Beside   Those in the background wait here for each other, too, first come, first served: as many of their prompts
 *          are at the scheduler as keep it busy. One with more prompts than that has them there when it is alone, and
 *          none is refused for others' and asked again for ever.
 */
#ifndef WEFT_API_PARKING_H
#define WEFT_API_PARKING_H

#include <stdbool.h>

#include "api/call.h"
#include "base/err.h"

/* FULL: there is no place; *is_share_out: since others wait, too, and this tenant has its part. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_api_park(weft_api_call *call, bool *is_share_out);
void wefti_api_unpark(weft_api_call *call);

/* Whether a call in the background has to wait in the line for others. */
bool wefti_api_must_line_up(const weft_api_call *call);
void wefti_api_line_up(weft_api_call *call);
void wefti_api_leave_line(weft_api_call *call);
/* Takes the first one off the line; NULL: there is none, or no room for it. */
weft_api_call *wefti_api_next_in_line(struct weft_api_state *api);

#endif
