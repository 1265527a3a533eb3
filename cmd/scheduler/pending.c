#include <stdlib.h>
#include <string.h>

#include "actor_internal.h"
#include "base/check.h"
#include "base/limits.h"

void wefti_pending_init(struct wefti_pending *pending) {
    *pending = (struct wefti_pending){.end = &pending->first};
}

void wefti_pending_fini(struct wefti_pending *pending) {
    struct wefti_pending_item *item = NULL;
    while ((item = wefti_pending_pop(pending)))
        free(item);
}

weft_err wefti_pending_add(struct wefti_pending *pending, uint32_t peer, uint64_t request_id,
                           bool is_submit, bool resume, uint64_t now_us, const void *bytes,
                           size_t len, uint32_t max_fresh) {
    if (!resume && pending->n_fresh >= max_fresh) return WEFT_E_FULL;
    if (pending->n_bytes + len > WEFTI_PENDING_BYTES_MAX) return WEFT_E_TOOBIG;
    struct wefti_pending_item *item = malloc(sizeof *item + len);
    if (!item) return WEFT_E_NOMEM;
    *item = (struct wefti_pending_item){
        .arrived_us = now_us,
        .request_id = request_id,
        .peer = peer,
        .is_submit = is_submit,
        .resume = resume,
        .len = len,
    };
    memcpy(item->bytes, bytes, len);
    *pending->end = item;
    pending->end = &item->next;
    pending->n_bytes += len;
    if (!resume) pending->n_fresh++;
    return WEFT_OK;
}

/* Takes *at out of the list. */
static struct wefti_pending_item *unhook(struct wefti_pending *pending,
                                         struct wefti_pending_item **at) {
    struct wefti_pending_item *item = *at;
    *at = item->next;
    if (!item->next) pending->end = at;
    WEFT_ASSERT(pending->n_bytes >= item->len);
    pending->n_bytes -= item->len;
    if (!item->resume) pending->n_fresh--;
    return item;
}

void wefti_pending_drop(struct wefti_pending *pending, uint32_t peer, bool all,
                        uint64_t request_id) {
    struct wefti_pending_item **at = &pending->first;
    while (*at) {
        if ((*at)->peer == peer && (all || (*at)->request_id == request_id)) {
            free(unhook(pending, at));
        } else {
            at = &(*at)->next;
        }
    }
}

struct wefti_pending_item *wefti_pending_pop(struct wefti_pending *pending) {
    return pending->first ? unhook(pending, &pending->first) : NULL;
}
