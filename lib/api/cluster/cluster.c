#include "cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "base/rand.h"

/* ------------------------------------------------------------------------------------ the ring --- */

static int by_place(const void *a, const void *b) {
    const struct wefti_api_ring_point *p = a, *q = b;
    if (p->at != q->at) return p->at < q->at ? -1 : 1;
    return p->node < q->node ? -1 : p->node > q->node;
}

static uint64_t hash_of_name(const char *name) {
    uint64_t hash = 2;
    for (const char *at = name; *at; at++)
        hash = wefti_api_mix(hash, (unsigned char)*at);
    return hash;
}

void wefti_api_cluster_init(struct wefti_api_cluster *cluster, const char *const *names, uint32_t n,
                            uint64_t seed, uint32_t report_ms_max) {
    WEFT_ASSERT(n >= 1 && n <= WEFT_API_SCHEDULERS_MAX);
    memset(cluster, 0, sizeof *cluster);
    cluster->n = n;
    cluster->chance = seed;
    cluster->report_ms_max = report_ms_max;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < WEFTI_API_RING_POINTS; k++)
            cluster->ring[i * WEFTI_API_RING_POINTS + k] = (struct wefti_api_ring_point){
                .at = wefti_api_mix(hash_of_name(names[i]), k), .node = i};
    }
    qsort(cluster->ring, (size_t)n * WEFTI_API_RING_POINTS, sizeof cluster->ring[0], by_place);
}

/* The first point at or after `key`; after the last comes the first. */
static uint32_t find_point(const struct wefti_api_cluster *cluster, uint64_t key) {
    uint32_t from = 0, to = cluster->n * WEFTI_API_RING_POINTS;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (cluster->ring[middle].at < key)
            from = middle + 1;
        else
            to = middle;
    }
    return from % (cluster->n * WEFTI_API_RING_POINTS);
}

/* All of them in the order in which the ring has them from `key` on. */
static void list_from(const struct wefti_api_cluster *cluster, uint64_t key,
                      uint32_t order[WEFT_API_SCHEDULERS_MAX]) {
    uint32_t n_points = cluster->n * WEFTI_API_RING_POINTS, at = find_point(cluster, key);
    uint32_t seen = 0, n = 0;
    for (uint32_t i = 0; i < n_points && n < cluster->n; i++, at = (at + 1) % n_points) {
        uint32_t node = cluster->ring[at].node;
        if (seen & 1u << node) continue;
        seen |= 1u << node;
        order[n++] = node;
    }
    WEFT_ASSERT(n == cluster->n);
}

/* --------------------------------------------------------------------------------- what happens --- */

static struct wefti_api_node *node_of(struct wefti_api_cluster *cluster, uint32_t node) {
    WEFT_ASSERT(node < cluster->n);
    return &cluster->nodes[node];
}

void wefti_api_cluster_up(struct wefti_api_cluster *cluster, uint32_t node) {
    node_of(cluster, node)->is_up = true;
}

void wefti_api_cluster_down(struct wefti_api_cluster *cluster, uint32_t node, uint64_t now_ms) {
    struct wefti_api_node *at = node_of(cluster, node);
    if (!at->is_up) return;
    at->is_up = at->has_report = false;
    at->n_others = 0;
    wefti_api_cluster_failed(cluster, node, now_ms);
}

void wefti_api_cluster_forget(struct wefti_api_cluster *cluster, uint32_t node) {
    WEFT_ASSERT(node < cluster->n);
    wefti_api_prefixes_forget(&cluster->prefixes, node);
}

void wefti_api_cluster_report(struct wefti_api_cluster *cluster, uint32_t node,
                              const struct wefti_api_report *report, uint64_t now_ms) {
    struct wefti_api_node *at = node_of(cluster, node);
    uint64_t n_blocks = report->n_cache_tokens / WEFTI_API_PREFIX_BLOCK;
    at->has_report = true;
    at->can_serve = report->can_serve;
    (void)snprintf(at->fingerprint, sizeof at->fingerprint, "%s", report->fingerprint);
    at->n_seqs = report->n_seqs;
    at->n_cache_blocks = (uint32_t)(n_blocks < UINT32_MAX / 4 ? n_blocks : UINT32_MAX / 4);
    at->n_others = report->n_requests > at->n_open ? report->n_requests - at->n_open : 0;
    at->reported_at_ms = now_ms;
}

void wefti_api_cluster_leave_out(struct wefti_api_cluster *cluster, uint32_t node,
                                 bool is_left_out) {
    node_of(cluster, node)->is_left_out = is_left_out;
}

/* The n-th failure in a row beyond those that are forgiven, from 0. */
static uint64_t backoff_ms(struct wefti_api_cluster *cluster, uint32_t n) {
    uint64_t ms = n < 16 ? (uint64_t)WEFTI_API_BACKOFF_MS << n : WEFTI_API_BACKOFF_MS_MAX;
    if (ms > WEFTI_API_BACKOFF_MS_MAX) ms = WEFTI_API_BACKOFF_MS_MAX;
    return ms - weft_rand_below(&cluster->chance, (uint32_t)ms / 2 + 1);
}

void wefti_api_cluster_failed(struct wefti_api_cluster *cluster, uint32_t node, uint64_t now_ms) {
    struct wefti_api_node *at = node_of(cluster, node);
    if (at->n_failures < UINT32_MAX) at->n_failures++;
    if (at->n_failures < WEFTI_API_FAILURES_MAX) return;
    at->alone_until_ms = now_ms + backoff_ms(cluster, at->n_failures - WEFTI_API_FAILURES_MAX);
}

void wefti_api_cluster_answered(struct wefti_api_cluster *cluster, uint32_t node) {
    struct wefti_api_node *at = node_of(cluster, node);
    at->n_failures = 0;
    at->alone_until_ms = 0;
}

/* -------------------------------------------------------------------------------------- choosing --- */

/* As far as it says itself. */
static bool would_take(const struct wefti_api_cluster *cluster, uint32_t node,
                       const char *fingerprint, uint64_t now_ms) {
    WEFT_ASSERT(node < cluster->n);
    const struct wefti_api_node *at = &cluster->nodes[node];
    if (!at->is_up || at->is_left_out || !at->has_report || !at->can_serve) return false;
    if (now_ms > at->reported_at_ms + cluster->report_ms_max) return false;
    return !fingerprint || strcmp(fingerprint, at->fingerprint) == 0;
}

bool wefti_api_cluster_can_take(const struct wefti_api_cluster *cluster, uint32_t node,
                                const char *fingerprint, uint64_t now_ms) {
    const struct wefti_api_node *at = &cluster->nodes[node];
    if (!would_take(cluster, node, fingerprint, now_ms)) return false;
    return at->n_failures < WEFTI_API_FAILURES_MAX || now_ms >= at->alone_until_ms;
}

bool wefti_api_cluster_any(const struct wefti_api_cluster *cluster, const char *fingerprint,
                           uint32_t not_these, uint64_t now_ms) {
    for (uint32_t i = 0; i < cluster->n; i++) {
        if (!(not_these & 1u << i) && wefti_api_cluster_can_take(cluster, i, fingerprint, now_ms))
            return true;
    }
    return false;
}

bool wefti_api_cluster_any_rests(const struct wefti_api_cluster *cluster, const char *fingerprint,
                                 uint32_t not_these, uint64_t now_ms) {
    for (uint32_t i = 0; i < cluster->n; i++) {
        if (!(not_these & 1u << i) && would_take(cluster, i, fingerprint, now_ms) &&
            !wefti_api_cluster_can_take(cluster, i, fingerprint, now_ms))
            return true;
    }
    return false;
}

static uint64_t load_of(const struct wefti_api_node *node) {
    return (uint64_t)node->n_open + node->n_others;
}

static uint64_t share_of(const struct wefti_api_node *node) {
    return node->n_seqs > 0 ? node->n_seqs : 1;
}

/* Those that can take the request, and what they have. */
struct field {
    uint32_t able; /* bits */
    uint32_t n_found[WEFT_API_SCHEDULERS_MAX], n_found_most;
    uint64_t load, shares; /* of all together */
    uint64_t least;        /* load of one */
};

static void look_around(const struct wefti_api_cluster *cluster, const struct wefti_api_wish *wish,
                        const struct wefti_api_marks *marks, uint64_t now_ms, struct field *field) {
    *field = (struct field){.least = UINT64_MAX};
    for (uint32_t i = 0; i < cluster->n; i++) {
        const struct wefti_api_node *node = &cluster->nodes[i];
        if (wish->not_these & 1u << i ||
            !wefti_api_cluster_can_take(cluster, i, wish->fingerprint, now_ms))
            continue;
        field->able |= 1u << i;
        field->n_found[i] =
            wefti_api_prefixes_find(&cluster->prefixes, marks, i, node->n_cache_blocks);
        field->n_found_most = weft_max_u32(field->n_found_most, field->n_found[i]);
        field->load += load_of(node);
        field->shares += share_of(node);
        if (load_of(node) < field->least) field->least = load_of(node);
    }
}

/* The beginning that all questions about one thing have in common: one mark beyond what somebody
 * has. */
static uint64_t key_of(const struct wefti_api_marks *marks, uint32_t n_found) {
    for (uint32_t i = 0; i < marks->n; i++) {
        if (marks->n_blocks[i] > n_found) return marks->hashes[i];
    }
    return marks->all;
}

static bool has_room(const struct wefti_api_node *node, const struct field *field,
                     bool is_worth_waiting) {
    uint64_t mine = 5 * (field->load + 1) * share_of(node), of = 4 * field->shares;
    if (load_of(node) + 1 <= (mine + of - 1) / of) return true;
    return is_worth_waiting && load_of(node) <= field->least + WEFTI_API_LOAD_SLACK;
}

uint32_t wefti_api_cluster_place(struct wefti_api_cluster *cluster,
                                 const struct wefti_api_wish *wish, uint64_t now_ms) {
    struct wefti_api_marks marks;
    struct field field;
    uint32_t order[WEFT_API_SCHEDULERS_MAX], best = WEFTI_API_NOBODY;
    wefti_api_marks_make(&marks, &wish->space, wish->tokens, wish->n_tokens);
    look_around(cluster, wish, &marks, now_ms, &field);
    if (!field.able) return WEFTI_API_NOBODY;
    list_from(cluster, key_of(&marks, field.n_found_most), order);
    for (uint32_t k = 0; k < cluster->n; k++) {
        uint32_t i = order[k];
        bool is_worth_waiting =
            2ull * field.n_found[i] * WEFTI_API_PREFIX_BLOCK >= wish->n_tokens && field.n_found[i];
        if (!(field.able & 1u << i) || !has_room(&cluster->nodes[i], &field, is_worth_waiting))
            continue;
        if (best == WEFTI_API_NOBODY || field.n_found[i] > field.n_found[best]) best = i;
    }
    WEFT_ASSERT(best != WEFTI_API_NOBODY); /* bounds add up to more than there is */
    struct wefti_api_node *node = &cluster->nodes[best];
    wefti_api_prefixes_note(&cluster->prefixes, &marks, best, field.n_found[best]);
    node->n_open++;
    node->n_placed++;
    if (node->n_failures >= WEFTI_API_FAILURES_MAX)
        node->alone_until_ms = now_ms + WEFTI_API_BACKOFF_MS_MAX; /* this one is the probe */
    return best;
}

void wefti_api_cluster_ended(struct wefti_api_cluster *cluster, uint32_t node) {
    struct wefti_api_node *at = node_of(cluster, node);
    WEFT_ASSERT(at->n_open > 0);
    at->n_open--;
}

uint64_t wefti_api_cluster_pause_us(struct wefti_api_cluster *cluster, uint32_t n_refusals) {
    uint64_t least_us = 5000ull << weft_min_u32(n_refusals, 4);
    return least_us + weft_rand_below(&cluster->chance, (uint32_t)(9 * least_us));
}
