#include <stdlib.h>
#include <string.h>

#include "actor_internal.h"
#include "base/check.h"
#include "base/limits.h"

void wefti_pending_init(struct wefti_pending *pending) {
    *pending = (struct wefti_pending){.n_new = 0};
    TAILQ_INIT(&pending->items);
}

void wefti_pending_fini(struct wefti_pending *pending) {
    struct wefti_pending_item *item = NULL;
    while ((item = wefti_pending_pop(pending)))
        free(item);
}

weft_err wefti_pending_add(struct wefti_pending *pending, const struct wefti_pending_item *head,
                           const void *bytes, size_t len, uint32_t max_new) {
    if (!head->resume && pending->n_new >= max_new) return WEFT_E_FULL;
    if (pending->n_bytes + len > WEFTI_PENDING_BYTES_MAX) return WEFT_E_TOOBIG;
    struct wefti_pending_item *item = malloc(sizeof *item + len);
    if (!item) return WEFT_E_NOMEM;
    *item = *head;
    item->len = len;
    memcpy(item->bytes, bytes, len);
    TAILQ_INSERT_TAIL(&pending->items, item, link);
    pending->n_bytes += len;
    if (!item->resume) pending->n_new++;
    return WEFT_OK;
}

static void take_out(struct wefti_pending *pending, struct wefti_pending_item *item) {
    WEFT_ASSERT(pending->n_bytes >= item->len);
    WEFT_ASSERT(item->resume || pending->n_new > 0);
    TAILQ_REMOVE(&pending->items, item, link);
    pending->n_bytes -= item->len;
    if (!item->resume) pending->n_new--;
}

static void drop(struct wefti_pending *pending, uint32_t peer, const uint64_t *request_id) {
    struct wefti_pending_item *next = NULL;
    for (struct wefti_pending_item *item = TAILQ_FIRST(&pending->items); item; item = next) {
        next = TAILQ_NEXT(item, link);
        if (item->peer != peer || (request_id && item->request_id != *request_id)) continue;
        take_out(pending, item);
        free(item);
    }
}

void wefti_pending_drop(struct wefti_pending *pending, uint32_t peer, uint64_t request_id) {
    drop(pending, peer, &request_id);
}

void wefti_pending_drop_peer(struct wefti_pending *pending, uint32_t peer) {
    drop(pending, peer, NULL);
}

struct wefti_pending_item *wefti_pending_pop(struct wefti_pending *pending) {
    struct wefti_pending_item *item = TAILQ_FIRST(&pending->items);
    if (item) take_out(pending, item);
    return item;
}
