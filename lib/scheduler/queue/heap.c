/* A binary heap of things that embed a node, smallest (key, minor, tie) on top. Each node knows its
 * position, so that it can leave from anywhere in O(log n), as a cancel in a queue of a million
 * must. */
#include "scheduler_internal.h"

#include <stdlib.h>

#include "base/check.h"

#define FIRST_CAP 8u

weft_err wefti_sched_heap_reserve(struct heap *heap, uint32_t n_nodes) {
    if (n_nodes <= heap->cap) return WEFT_OK;
    uint32_t cap = heap->cap ? heap->cap : FIRST_CAP;
    while (cap < n_nodes)
        cap *= 2; /* n_nodes is bounded by REQUESTS_MAX in submit.c */
    struct heap_node **nodes = realloc(heap->nodes, cap * sizeof(struct heap_node *));
    if (!nodes) return WEFT_E_NOMEM;
    heap->nodes = nodes;
    heap->cap = cap;
    return WEFT_OK;
}

void wefti_sched_heap_fini(struct heap *heap) {
    free(heap->nodes);
    *heap = (struct heap){0};
}

bool wefti_sched_heap_before(const struct heap_node *a, const struct heap_node *b) {
    if (a->key != b->key) return a->key < b->key;
    return a->minor != b->minor ? a->minor < b->minor : a->tie < b->tie;
}

static void put(struct heap *heap, uint32_t at, struct heap_node *node) {
    heap->nodes[at] = node;
    node->pos = at + 1;
}

static void sift_up(struct heap *heap, uint32_t at, struct heap_node *node) {
    while (at > 0) {
        uint32_t parent = (at - 1) / 2;
        if (!wefti_sched_heap_before(node, heap->nodes[parent])) break;
        put(heap, at, heap->nodes[parent]);
        at = parent;
    }
    put(heap, at, node);
}

static void sift_down(struct heap *heap, uint32_t at, struct heap_node *node) {
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= heap->n) break;
        if (child + 1 < heap->n &&
            wefti_sched_heap_before(heap->nodes[child + 1], heap->nodes[child]))
            child++;
        if (!wefti_sched_heap_before(heap->nodes[child], node)) break;
        put(heap, at, heap->nodes[child]);
        at = child;
    }
    put(heap, at, node);
}

static void settle(struct heap *heap, uint32_t at, struct heap_node *node) {
    if (at > 0 && wefti_sched_heap_before(node, heap->nodes[(at - 1) / 2]))
        sift_up(heap, at, node);
    else
        sift_down(heap, at, node);
}

void wefti_sched_heap_push(struct heap *heap, struct heap_node *node) {
    WEFT_ASSERT(heap->n < heap->cap);
    WEFT_ASSERT(node->pos == 0);
    uint32_t at = heap->n++;
    sift_up(heap, at, node);
}

void wefti_sched_heap_remove(struct heap *heap, struct heap_node *node) {
    if (node->pos == 0) return;
    uint32_t at = node->pos - 1;
    WEFT_ASSERT(at < heap->n && heap->nodes[at] == node);
    node->pos = 0;
    struct heap_node *last = heap->nodes[--heap->n];
    if (at < heap->n) settle(heap, at, last);
}

void wefti_sched_heap_update(struct heap *heap, struct heap_node *node) {
    if (node->pos > 0) settle(heap, node->pos - 1, node);
}

struct heap_node *wefti_sched_heap_top(const struct heap *heap) {
    return heap->n ? heap->nodes[0] : NULL;
}

void wefti_sched_heap_check(const struct heap *heap) {
    WEFT_ASSERT(heap->n <= heap->cap);
    for (uint32_t i = 0; i < heap->n; i++) {
        WEFT_ASSERT(heap->nodes[i]->pos == i + 1);
        WEFT_ASSERT(i == 0 || !wefti_sched_heap_before(heap->nodes[i], heap->nodes[(i - 1) / 2]));
    }
}

/* ---------------------------------------------------------------------------------- sequences --- */

static void seq_sift_down(struct seq **heap, uint32_t n, uint32_t pos,
                          wefti_sched_seq_before *before) {
    struct seq *seq = heap[pos];
    for (;;) {
        uint32_t child = 2 * pos + 1;
        if (child >= n) break;
        if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], seq)) break;
        heap[pos] = heap[child];
        pos = child;
    }
    heap[pos] = seq;
}

void wefti_sched_seq_heapify(struct seq **heap, uint32_t n, wefti_sched_seq_before *before) {
    for (uint32_t pos = n / 2; pos-- > 0;)
        seq_sift_down(heap, n, pos, before);
}

struct seq *wefti_sched_seq_heap_pop(struct seq **heap, uint32_t *n,
                                     wefti_sched_seq_before *before) {
    struct seq *first = heap[0];
    heap[0] = heap[--*n];
    if (*n) seq_sift_down(heap, *n, 0, before);
    return first;
}
