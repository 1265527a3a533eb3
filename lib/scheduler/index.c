/* Requests by (router, request id): a hash table with chains through the requests themselves. */
#include "scheduler_internal.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/rand.h"

#define FIRST_BUCKETS 256u

weft_err wefti_sched_index_init(struct index *index) {
    index->buckets = calloc(FIRST_BUCKETS, sizeof(struct request *));
    if (!index->buckets) return WEFT_E_NOMEM;
    index->n_buckets = FIRST_BUCKETS;
    index->n = 0;
    return WEFT_OK;
}

void wefti_sched_index_fini(struct index *index) {
    free(index->buckets);
    index->buckets = NULL;
}

static struct request **bucket_of(const struct index *index, uint32_t router, uint64_t request_id) {
    uint64_t state = request_id;
    state = weft_rand_next(&state) ^ router;
    return &index->buckets[weft_rand_next(&state) & (index->n_buckets - 1)];
}

static void link_in(struct index *index, struct request *req) {
    struct request **bucket = bucket_of(index, req->key.router, req->key.request_id);
    req->next = *bucket;
    *bucket = req;
}

/* Without memory for a larger table the chains just grow longer. */
static void grow(struct index *index) {
    uint32_t n_old = index->n_buckets;
    struct request **old = index->buckets;
    struct request **buckets = calloc((size_t)n_old * 2, sizeof(struct request *));
    if (!buckets) return;
    index->buckets = buckets;
    index->n_buckets = n_old * 2;
    for (uint32_t i = 0; i < n_old; i++) {
        for (struct request *req = old[i], *next; req; req = next) {
            next = req->next;
            link_in(index, req);
        }
    }
    free(old);
}

void wefti_sched_index_add(struct index *index, struct request *req) {
    if (index->n >= index->n_buckets) grow(index);
    link_in(index, req);
    index->n++;
}

void wefti_sched_index_remove(struct index *index, struct request *req) {
    struct request **at = bucket_of(index, req->key.router, req->key.request_id);
    while (*at != req) {
        WEFT_ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = req->next;
    req->next = NULL;
    index->n--;
}

struct request *wefti_sched_index_find(const struct index *index, uint32_t router,
                                       uint64_t request_id) {
    struct request *req = *bucket_of(index, router, request_id);
    while (req && (req->key.router != router || req->key.request_id != request_id))
        req = req->next;
    return req;
}
