#include "scheduler_link.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/parse.h"

static weft_err send_bytes(void *context, const void *bytes, size_t len) {
    struct scheduler_link *link = context;
    return weft_link_send(link->link, 0, bytes, len);
}

static void reset(void *context) {
    struct scheduler_link *link = context;
    weft_link_reset(link->link, 0);
}

static weft_err open_one(struct scheduler_links *links, const char *url,
                         struct weft_api_upstream_link *outs, struct weft_errmsg *why) {
    if (!*url) return weft_err_set(why, WEFT_E_INVAL, "--scheduler-url has an empty URL");
    for (uint32_t i = 0; i < links->n; i++) {
        if (strcmp(outs[i].name, url) == 0)
            return weft_err_set(why, WEFT_E_INVAL, "--scheduler-url names %s twice", url);
    }
    if (links->n == WEFT_API_SCHEDULERS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "--scheduler-url names more than %d schedulers",
                            WEFT_API_SCHEDULERS_MAX);
    struct scheduler_link *link = &links->links[links->n];
    link->api = links->api;
    link->index = links->n;
    weft_err err = weft_link_dial(WEFT_LINK_MANY_PEERS, url, &links->options, &link->link, why);
    if (err) return err;
    outs[links->n++] = (struct weft_api_upstream_link){send_bytes, reset, link, url};
    return WEFT_OK;
}

weft_err wefti_scheduler_links_open(struct scheduler_links *links, struct weft_api_state *api,
                                    const char *urls, struct weft_errmsg *why) {
    struct weft_api_upstream_link outs[WEFT_API_SCHEDULERS_MAX];
    struct weft_str url;
    weft_err err = WEFT_OK;
    links->api = api;
    links->n = 0;
    links->urls = urls ? strdup(urls) : NULL;
    if (urls && !links->urls) return weft_err_set(why, WEFT_E_NOMEM, "out of memory");
    if (!urls || !*urls) return weft_err_set(why, WEFT_E_INVAL, "--scheduler-url is needed");
    for (const char *at = links->urls; !err && weft_parse_member(&at, ",\n", &url);) {
        links->urls[url.data + url.len - links->urls] = '\0'; /* of what separates it */
        err = open_one(links, url.data, outs, why);
    }
    return err ? err : weft_api_upstream_init(api, outs, links->n, (uint32_t)getpid(), why);
}

void wefti_scheduler_links_close(struct scheduler_links *links) {
    weft_api_upstream_fini(links->api);
    while (links->n > 0)
        weft_link_free(links->links[--links->n].link);
    free(links->urls);
    links->urls = NULL;
}

void wefti_scheduler_link_read(struct scheduler_link *link, uint64_t now_us) {
    struct weft_link_event event;
    while (weft_link_next(link->link, now_us / 1000, &event)) {
        switch (event.kind) {
        case WEFT_LINK_UP:
            weft_api_upstream_linked(link->api, link->index);
            break;
        case WEFT_LINK_DOWN:
            weft_api_upstream_unlinked(link->api, link->index, now_us);
            break;
        case WEFT_LINK_MESSAGE:
            weft_api_upstream_message(link->api, link->index, event.bytes, event.len, now_us);
            break;
        }
    }
}

void wefti_scheduler_links_tick(struct scheduler_links *links, uint64_t now_us) {
    for (uint32_t i = 0; i < links->n; i++) {
        weft_link_tick(links->links[i].link, now_us / 1000);
        wefti_scheduler_link_read(&links->links[i], now_us);
    }
    weft_api_upstream_tick(links->api, now_us);
}
