/* scheduler_link — the sessions with the schedulers, mostly one: carries messages to and from the
 * upstream (upstream.h).
 */
#ifndef WEFT_ROUTER_SCHEDULER_LINK_H
#define WEFT_ROUTER_SCHEDULER_LINK_H

#include <stdint.h>

#include "api/upstream.h"
#include "base/err.h"
#include "link/link.h"

struct weft_api_state;

struct scheduler_link {
    weft_link *link;
    uint32_t index; /* the upstream's of it */
    struct weft_api_state *api;
};

struct scheduler_links {
    struct weft_link_options options; /* set before they are opened */
    struct scheduler_link links[WEFT_API_SCHEDULERS_MAX];
    uint32_t n;
    struct weft_api_state *api;
    char *urls; /* owned; cut into the names of all */
};

/* `urls`: addresses with commas or line breaks between. INVAL: one is wrong, is there twice, or there
 * are none or too many. */
WEFT_MUST_CHECK weft_err wefti_scheduler_links_open(struct scheduler_links *links,
                                                    struct weft_api_state *api, const char *urls,
                                                    struct weft_errmsg *why);
void wefti_scheduler_links_close(struct scheduler_links *links);

/* Takes in everything the session has. */
void wefti_scheduler_link_read(struct scheduler_link *link, uint64_t now_us);

/* Retries and time-outs of all, and what they have. */
void wefti_scheduler_links_tick(struct scheduler_links *links, uint64_t now_us);

#endif
