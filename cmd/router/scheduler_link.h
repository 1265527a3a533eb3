/* scheduler_link — the session with the scheduler: carries messages to and from the upstream
 * (upstream.h).
 */
#ifndef WEFT_ROUTER_SCHEDULER_LINK_H
#define WEFT_ROUTER_SCHEDULER_LINK_H

#include <stdint.h>

#include "base/err.h"
#include "link/link.h"

struct weft_api_state;

struct scheduler_link {
    struct weft_link_options options; /* set before it is opened */
    weft_link *link;
    struct weft_api_state *api;
};

WEFT_MUST_CHECK weft_err wefti_scheduler_link_open(struct scheduler_link *link,
                                                   struct weft_api_state *api, const char *url,
                                                   struct weft_errmsg *why);
void wefti_scheduler_link_close(struct scheduler_link *link);

/* Takes in everything the session has. */
void wefti_scheduler_link_read(struct scheduler_link *link, uint64_t now_us);

#endif
