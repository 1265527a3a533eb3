/* store — responses that are kept, so that a later request may go on with them.
 *
 * Model    A response has its text, and its conversation: the items that went in and that came out. It belongs to a
 *          tenant; for another one it isn't there, exactly as if it had never been.
 * Bounds   Bytes of all of them together, the oldest make room; one may take a quarter. Each goes when its time is
 *          over, too.
 * Threads  Any: requests are prepared in several. A lock is held while bytes are copied.
 * Time     An argument, in milliseconds, that doesn't go back.
 */
#ifndef WEFT_API_STORE_H
#define WEFT_API_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

typedef struct weft_api_store weft_api_store;

enum kept_part { KEPT_RESPONSE, KEPT_ITEMS };

struct kept_response {
    uint64_t tenant;
    struct weft_str id, response, items; /* copied */
};

/* NULL: no memory. `bytes_max` > 0. */
weft_api_store *wefti_api_store_new(uint64_t bytes_max, uint64_t ttl_ms);
void wefti_api_store_free(weft_api_store *store); /* accepts NULL */

/* One of the same id and tenant is replaced. False: it is too large, or there is no memory. */
bool wefti_api_store_put(weft_api_store *store, const struct kept_response *kept, uint64_t now_ms);

/* Appends a part of it. False: there is none of that tenant and id. */
bool wefti_api_store_get(weft_api_store *store, uint64_t tenant, struct weft_str id,
                         enum kept_part part, uint64_t now_ms, struct weft_buf *out);

/* Removes it; false likewise. */
bool wefti_api_store_drop(weft_api_store *store, uint64_t tenant, struct weft_str id,
                          uint64_t now_ms);

struct store_figures {
    uint64_t n, bytes, bytes_max;
    uint64_t largest; /* bytes of the largest one that ever was */
};
struct store_figures wefti_api_store_figures(weft_api_store *store);

#endif
