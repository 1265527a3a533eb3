/* A binary heap of requests, smallest (key, tie) on top. Each request knows its position, so that
 * it can leave from anywhere in O(log n), as a cancel in a queue of a million must. */
#include "scheduler_internal.h"

#include <stdlib.h>

#include "base/check.h"

#define FIRST_CAP 64u

weft_err wefti_sched_heap_reserve(struct heap *heap, uint32_t n_items) {
    if (n_items <= heap->cap) return WEFT_OK;
    uint32_t cap = heap->cap ? heap->cap : FIRST_CAP;
    while (cap < n_items)
        cap *= 2; /* n_items is bounded by REQUESTS_MAX in submit.c */
    struct heap_item *items = realloc(heap->items, cap * sizeof *items);
    if (!items) return WEFT_E_NOMEM;
    heap->items = items;
    heap->cap = cap;
    return WEFT_OK;
}

void wefti_sched_heap_fini(struct heap *heap) {
    free(heap->items);
    heap->items = NULL;
    heap->n = heap->cap = 0;
}

static bool before(const struct heap_item *a, const struct heap_item *b) {
    return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

static void put(struct heap *heap, uint32_t pos, struct heap_item item) {
    heap->items[pos] = item;
    item.req->heap_pos[heap->id] = pos;
}

static void sift_up(struct heap *heap, uint32_t pos, struct heap_item item) {
    while (pos > 0) {
        uint32_t parent = (pos - 1) / 2;
        if (!before(&item, &heap->items[parent])) break;
        put(heap, pos, heap->items[parent]);
        pos = parent;
    }
    put(heap, pos, item);
}

static void sift_down(struct heap *heap, uint32_t pos, struct heap_item item) {
    for (;;) {
        uint32_t child = 2 * pos + 1;
        if (child >= heap->n) break;
        if (child + 1 < heap->n && before(&heap->items[child + 1], &heap->items[child])) child++;
        if (!before(&heap->items[child], &item)) break;
        put(heap, pos, heap->items[child]);
        pos = child;
    }
    put(heap, pos, item);
}

void wefti_sched_heap_push(struct heap *heap, struct request *req, uint64_t key) {
    WEFT_ASSERT(heap->n < heap->cap);
    WEFT_ASSERT(req->heap_pos[heap->id] == NOT_IN_HEAP);
    sift_up(heap, heap->n++, (struct heap_item){.key = key, .tie = req->order, .req = req});
}

void wefti_sched_heap_remove(struct heap *heap, struct request *req) {
    uint32_t pos = req->heap_pos[heap->id];
    if (pos == NOT_IN_HEAP) return;
    WEFT_ASSERT(pos < heap->n && heap->items[pos].req == req);
    req->heap_pos[heap->id] = NOT_IN_HEAP;
    struct heap_item last = heap->items[--heap->n];
    if (pos == heap->n) return;
    if (pos > 0 && before(&last, &heap->items[(pos - 1) / 2]))
        sift_up(heap, pos, last);
    else
        sift_down(heap, pos, last);
}

struct request *wefti_sched_heap_top(const struct heap *heap) {
    return heap->n ? heap->items[0].req : NULL;
}

void wefti_sched_heap_check(const struct heap *heap) {
    WEFT_ASSERT(heap->n <= heap->cap);
    for (uint32_t i = 0; i < heap->n; i++) {
        WEFT_ASSERT(heap->items[i].req->heap_pos[heap->id] == i);
        WEFT_ASSERT(i == 0 || !before(&heap->items[i], &heap->items[(i - 1) / 2]));
    }
}
