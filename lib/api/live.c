#include "api/live.h"

#include <string.h>

#include "answers/answers.h"
#include "api/api.h"
#include "base/check.h"

#define EVENT_BYTES_MAX (1u << 20)

void weft_api_live_init(struct weft_api_live *live, const struct weft_api_state *api,
                        void (*wake)(void *owner)) {
    memset(live, 0, sizeof *live);
    live->api = api;
    live->wake = wake;
    LIST_INIT(&live->streams);
    weft_buf_init(&live->text, EVENT_BYTES_MAX);
}

void weft_api_live_fini(struct weft_api_live *live) {
    WEFT_ASSERT(live->n_streams == 0);
    weft_buf_fini(&live->text);
}

bool weft_api_live_begin(struct weft_api_live *live, struct weft_api_live_stream *stream,
                         void *owner) {
    WEFT_ASSERT(!stream->live);
    if (live->n_streams == WEFT_API_LIVE_STREAMS_MAX) return false;
    if (live->n_streams++ == 0) live->n_events++; /* nobody looked for news before */
    *stream = (struct weft_api_live_stream){
        .live = live, .owner = owner, .n_key_changes = live->api->n_key_changes};
    LIST_INSERT_HEAD(&live->streams, stream, entry);
    return true;
}

void weft_api_live_end(struct weft_api_live_stream *stream) {
    struct weft_api_live *live = stream->live;
    if (!live) return;
    WEFT_ASSERT(live->n_streams > 0);
    LIST_REMOVE(stream, entry);
    stream->live = NULL;
    if (--live->n_streams == 0) weft_buf_fini(&live->text);
}

/* Who watches is to come again, or to another server. */
static bool is_ending(const struct weft_api_state *api) {
    return api->draining || api->is_replaced;
}

void weft_api_live_look(struct weft_api_live *live, uint64_t now_ms) {
    const struct weft_api_state *api = live->api;
    if (live->n_streams == 0) return;
    const char *why_ill = weft_api_why_ill(api, now_ms);
    bool is_news = live->n_snapshots != api->upstream.n_snapshots || live->why_ill != why_ill ||
                   live->is_ending != is_ending(api) || live->n_key_changes != api->n_key_changes ||
                   now_ms >= live->at_ms + WEFT_API_LIVE_SILENT_MS_MAX;
    if (!is_news) return;
    live->n_events++;
    live->at_ms = now_ms;
    live->n_snapshots = api->upstream.n_snapshots;
    live->why_ill = why_ill;
    live->is_ending = is_ending(api);
    live->n_key_changes = api->n_key_changes;
    struct weft_api_live_stream *stream;
    LIST_FOREACH(stream, &live->streams, entry)
    live->wake(stream->owner);
}

const struct weft_buf *weft_api_live_next(struct weft_api_live_stream *stream,
                                          const struct weft_api_moment *moment) {
    struct weft_api_live *live = stream->live;
    WEFT_ASSERT(live && stream->told <= live->n_events);
    if (stream->told == live->n_events) return NULL;
    stream->told = live->n_events;
    if (live->text_no != live->n_events) {
        struct weft_writer w;
        weft_buf_clear(&live->text);
        weft_buf_add_str(&live->text, "data: ");
        weft_writer_init(&w, WEFT_WRITE_JSON, &live->text); /* which has no line breaks */
        wefti_api_write_stats(live->api, moment, &w);
        weft_buf_add_str(&live->text, "\n\n");
        live->text_no = live->n_events;
    }
    return &live->text;
}

bool weft_api_live_is_over(const struct weft_api_live_stream *stream) {
    const struct weft_api_state *api = stream->live->api;
    return is_ending(api) || stream->n_key_changes != api->n_key_changes;
}
