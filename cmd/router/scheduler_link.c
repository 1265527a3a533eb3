#include "scheduler_link.h"

#include <unistd.h>

#include "api/api.h"

static weft_err send_bytes(void *context, const void *bytes, size_t len) {
    struct scheduler_link *link = context;
    return weft_link_send(link->link, 0, bytes, len);
}

static void reset(void *context) {
    struct scheduler_link *link = context;
    weft_link_reset(link->link, 0);
}

weft_err wefti_scheduler_link_open(struct scheduler_link *link, struct weft_api_state *api,
                                   const char *url, struct weft_errmsg *why) {
    const struct weft_api_upstream_link out = {send_bytes, reset, link};
    link->api = api;
    link->link = NULL;
    if (!url) return weft_err_set(why, WEFT_E_INVAL, "--scheduler-url is needed");
    weft_err err = weft_link_dial(WEFT_LINK_MANY_PEERS, url, &link->options, &link->link, why);
    return err ? err : weft_api_upstream_init(api, &out, (uint32_t)getpid(), why);
}

void wefti_scheduler_link_close(struct scheduler_link *link) {
    weft_api_upstream_fini(link->api);
    weft_link_free(link->link);
    link->link = NULL;
}

void wefti_scheduler_link_read(struct scheduler_link *link, uint64_t now_us) {
    struct weft_link_event event;
    while (weft_link_next(link->link, now_us / 1000, &event)) {
        switch (event.kind) {
        case WEFT_LINK_UP:
            weft_api_upstream_linked(link->api);
            break;
        case WEFT_LINK_DOWN:
            weft_api_upstream_unlinked(link->api);
            break;
        case WEFT_LINK_MESSAGE:
            weft_api_upstream_message(link->api, event.bytes, event.len, now_us);
            break;
        }
    }
}
