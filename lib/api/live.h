/* live — /stats as server-sent events: the same object again and again, to whoever watches.
 *
 * News     A snapshot of the scheduler, about four times a second; another reason why nothing is
 *          served; or a second without either, so that a stream never falls silent while the
 *          scheduler is away. Their text is made once, for all streams.
 * Slow     The caller asks for the next event when its client has taken the last one, and gets the
 *          newest. So each stream holds one event at most.
 * Bounds   WEFT_API_LIVE_STREAMS_MAX; one more is refused.
 * End      When the server drains, and when the API keys change: whoever has one of the new ones
 *          asks again.
 */
#ifndef WEFT_API_LIVE_H
#define WEFT_API_LIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buf.h"

/* People and dashboards, not clients: each costs tens of kilobytes a second. */
#define WEFT_API_LIVE_STREAMS_MAX 64
#define WEFT_API_LIVE_SILENT_MS_MAX 1000u

struct weft_api_moment;
struct weft_api_state;
struct weft_api_live;

struct weft_api_live_stream { /* the caller's; zeroes at first */
    LIST_ENTRY(weft_api_live_stream) entry;
    struct weft_api_live *live; /* NULL: it has not begun, or has ended */
    void *owner;
    uint64_t told;          /* the number of the event that it got last */
    uint32_t n_key_changes; /* when it began */
};

struct weft_api_live {
    const struct weft_api_state *api; /* borrowed */
    void (*wake)(void *owner);        /* there is news; it must only make a note */
    LIST_HEAD(, weft_api_live_stream) streams;
    uint32_t n_streams;
    uint64_t n_events;    /* ever; the newest is of this number */
    struct weft_buf text; /* of event `text_no` */
    uint64_t text_no;
    /* What was so at the last news. */
    uint64_t at_ms, n_snapshots;
    const char *why_ill;
    bool is_ending;
    uint32_t n_key_changes;
};

void weft_api_live_init(struct weft_api_live *live, const struct weft_api_state *api,
                        void (*wake)(void *owner));
void weft_api_live_fini(struct weft_api_live *live); /* all streams have ended */

/* False: there are too many. */
bool weft_api_live_begin(struct weft_api_live *live, struct weft_api_live_stream *stream,
                         void *owner);
void weft_api_live_end(struct weft_api_live_stream *stream); /* no-op if it has */

/* Looks for news and wakes the owners. Call it once per turn of the loop, at least every 100 ms. */
void weft_api_live_look(struct weft_api_live *live, uint64_t now_ms);

/* The newest event, or NULL if the stream has it. Borrowed until the next call. */
const struct weft_buf *weft_api_live_next(struct weft_api_live_stream *stream,
                                          const struct weft_api_moment *moment);
/* The event just taken was the last one. */
bool weft_api_live_is_over(const struct weft_api_live_stream *stream);

#endif
