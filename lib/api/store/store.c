/* A list from the oldest to the newest, and chains of a hash table through the same entries. */
#include "store/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/check.h"
#include "codec/digest.h"

#define N_CHAINS 4096
#define SHARE_MAX 4        /* one of so many parts of the store is the most for one */
#define ENTRY_OVERHEAD 128 /* of the allocator, and of the list */

struct entry {
    TAILQ_ENTRY(entry) by_age;
    LIST_ENTRY(entry) chain;
    uint64_t tenant, until_ms;
    size_t n_id, n_response, n_items;
    char bytes[]; /* id, response, items */
};

struct weft_api_store {
    pthread_mutex_t lock;
    uint64_t bytes_max, ttl_ms;
    struct store_figures figures;
    TAILQ_HEAD(, entry) oldest;
    LIST_HEAD(chain, entry) chains[N_CHAINS];
};

static void take_lock(weft_api_store *store) {
    int failed = pthread_mutex_lock(&store->lock);
    WEFT_ASSERT(!failed);
}

static void drop_lock(weft_api_store *store) {
    int failed = pthread_mutex_unlock(&store->lock);
    WEFT_ASSERT(!failed);
}

weft_api_store *wefti_api_store_new(uint64_t bytes_max, uint64_t ttl_ms) {
    WEFT_ASSERT(bytes_max > 0);
    weft_api_store *store = calloc(1, sizeof *store);
    if (!store) return NULL;
    if (pthread_mutex_init(&store->lock, NULL)) {
        free(store);
        return NULL;
    }
    store->bytes_max = store->figures.bytes_max = bytes_max;
    store->ttl_ms = ttl_ms;
    TAILQ_INIT(&store->oldest);
    return store;
}

/* ---------------------------------------------------------------------------------- entries --- */

static uint64_t cost(const struct entry *entry) {
    return sizeof *entry + ENTRY_OVERHEAD + entry->n_id + entry->n_response + entry->n_items;
}

static struct chain *chain_of(weft_api_store *store, struct weft_str id) {
    return &store->chains[weft_digest_u64("response", id.data, id.len) % N_CHAINS];
}

static void forget(weft_api_store *store, struct entry *entry) {
    WEFT_ASSERT(store->figures.n > 0 && store->figures.bytes >= cost(entry));
    store->figures.n--;
    store->figures.bytes -= cost(entry);
    TAILQ_REMOVE(&store->oldest, entry, by_age);
    LIST_REMOVE(entry, chain);
    free(entry);
}

static void forget_late(weft_api_store *store, uint64_t now_ms) {
    struct entry *entry = TAILQ_FIRST(&store->oldest), *next;
    for (; entry && entry->until_ms <= now_ms; entry = next) {
        next = TAILQ_NEXT(entry, by_age);
        forget(store, entry);
    }
}

/* What isn't of this tenant, or is over, isn't there. */
static struct entry *find(weft_api_store *store, uint64_t tenant, struct weft_str id,
                          uint64_t now_ms) {
    struct entry *entry;
    forget_late(store, now_ms);
    LIST_FOREACH(entry, chain_of(store, id), chain) {
        bool is_it = entry->tenant == tenant && entry->n_id == id.len && entry->until_ms > now_ms;
        if (is_it && memcmp(entry->bytes, id.data, id.len) == 0) return entry;
    }
    return NULL;
}

void wefti_api_store_free(weft_api_store *store) {
    if (!store) return;
    forget_late(store, UINT64_MAX);
    WEFT_ASSERT(store->figures.n == 0 && store->figures.bytes == 0);
    (void)pthread_mutex_destroy(&store->lock);
    free(store);
}

/* -------------------------------------------------------------------------------- responses --- */

static struct entry *make(const struct kept_response *kept, uint64_t until_ms) {
    size_t n = kept->id.len + kept->response.len + kept->items.len;
    struct entry *entry = malloc(sizeof *entry + n);
    if (!entry) return NULL;
    *entry = (struct entry){.tenant = kept->tenant,
                            .until_ms = until_ms,
                            .n_id = kept->id.len,
                            .n_response = kept->response.len,
                            .n_items = kept->items.len};
    char *at = entry->bytes;
    memcpy(at, kept->id.data, kept->id.len);
    memcpy(at + kept->id.len, kept->response.data, kept->response.len);
    memcpy(at + kept->id.len + kept->response.len, kept->items.data, kept->items.len);
    return entry;
}

static void insert(weft_api_store *store, struct entry *entry, struct weft_str id) {
    struct store_figures *figures = &store->figures;
    while (figures->bytes + cost(entry) > store->bytes_max)
        forget(store, TAILQ_FIRST(&store->oldest));
    figures->n++;
    figures->bytes += cost(entry);
    if (cost(entry) > figures->largest) figures->largest = cost(entry);
    TAILQ_INSERT_TAIL(&store->oldest, entry, by_age);
    LIST_INSERT_HEAD(chain_of(store, id), entry, chain);
}

bool wefti_api_store_put(weft_api_store *store, const struct kept_response *kept, uint64_t now_ms) {
    uint64_t n = kept->id.len + kept->response.len + kept->items.len;
    if (n > store->bytes_max / SHARE_MAX) return false;
    struct entry *entry = make(kept, now_ms + store->ttl_ms);
    if (!entry) return false;
    take_lock(store);
    struct entry *before = find(store, kept->tenant, kept->id, now_ms);
    if (before) forget(store, before);
    bool fits = cost(entry) <= store->bytes_max;
    if (fits) insert(store, entry, kept->id);
    drop_lock(store);
    if (!fits) free(entry);
    return fits;
}

bool wefti_api_store_get(weft_api_store *store, uint64_t tenant, struct weft_str id,
                         enum kept_part part, uint64_t now_ms, struct weft_buf *out) {
    take_lock(store);
    const struct entry *entry = find(store, tenant, id, now_ms);
    if (entry && part == KEPT_RESPONSE)
        weft_buf_add(out, entry->bytes + entry->n_id, entry->n_response);
    else if (entry)
        weft_buf_add(out, entry->bytes + entry->n_id + entry->n_response, entry->n_items);
    drop_lock(store);
    return entry != NULL;
}

bool wefti_api_store_drop(weft_api_store *store, uint64_t tenant, struct weft_str id,
                          uint64_t now_ms) {
    take_lock(store);
    struct entry *entry = find(store, tenant, id, now_ms);
    bool is_there = entry != NULL;
    if (entry) forget(store, entry);
    drop_lock(store);
    return is_there;
}

struct store_figures wefti_api_store_figures(weft_api_store *store) {
    take_lock(store);
    struct store_figures figures = store->figures;
    drop_lock(store);
    return figures;
}
