/* Requests by (router, request id): a hash table with chains through the requests themselves. */
#include "scheduler_internal.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/rand.h"

#define FIRST_BUCKETS 256u

weft_err wefti_sched_index_init(struct index *index) {
    index->buckets = calloc(FIRST_BUCKETS, sizeof *index->buckets); /* zero: empty lists */
    if (!index->buckets) return WEFT_E_NOMEM;
    index->n_buckets = FIRST_BUCKETS;
    index->n = 0;
    return WEFT_OK;
}

void wefti_sched_index_fini(struct index *index) {
    free(index->buckets);
    index->buckets = NULL;
}

static struct request_list *bucket_of(const struct index *index, uint32_t router,
                                      uint64_t request_id) {
    uint64_t state = request_id;
    state = weft_rand_next(&state) ^ router;
    return &index->buckets[weft_rand_next(&state) & (index->n_buckets - 1)];
}

static void insert(struct index *index, struct request *req) {
    LIST_INSERT_HEAD(bucket_of(index, req->key.router, req->key.request_id), req, link);
}

/* Without memory for a larger table the chains just grow longer. */
static void grow(struct index *index) {
    uint32_t n_old = index->n_buckets;
    struct request_list *old = index->buckets;
    struct request_list *buckets = calloc((size_t)n_old * 2, sizeof *buckets);
    if (!buckets) return;
    index->buckets = buckets;
    index->n_buckets = n_old * 2;
    for (uint32_t i = 0; i < n_old; i++) {
        struct request *req = NULL;
        while ((req = LIST_FIRST(&old[i]))) {
            LIST_REMOVE(req, link);
            insert(index, req);
        }
    }
    free(old);
}

void wefti_sched_index_add(struct index *index, struct request *req) {
    if (index->n >= index->n_buckets) grow(index);
    insert(index, req);
    index->n++;
}

void wefti_sched_index_remove(struct index *index, struct request *req) {
    WEFT_ASSERT(index->n > 0);
    LIST_REMOVE(req, link);
    index->n--;
}

struct request *wefti_sched_index_find(const struct index *index, uint32_t router,
                                       uint64_t request_id) {
    struct request *req = NULL;
    LIST_FOREACH(req, bucket_of(index, router, request_id), link) {
        if (req->key.router == router && req->key.request_id == request_id) return req;
    }
    return NULL;
}
