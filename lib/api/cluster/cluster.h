/* cluster — the schedulers behind one router: how they are, and which of them gets a request.
 *
 * Choice   Among those that can take it, the one that should have most of the prompt in its prefix
 *          cache (prefixes.h); where that is none, or several have as much, the first one on a ring of
 *          hashes from the prompt's beginning on: the part that all have, and the next mark. So the
 *          questions about one document meet, and go elsewhere together when their scheduler leaves.
 * Load     Nobody gets more than 1.25 times its share of the open requests, rounded up: then the next on
 *          the ring is asked. Where at least half of the prompt is cached, four requests more than the
 *          least busy one has may be there already, since waiting for them is cheaper than computing.
 *          A share goes by the number of sequences that a scheduler's workers compute at once.
 * Health   A scheduler can take requests while it is linked, its reports are fresh, and say that it serves.
 *          After three failures in a row it is left alone: at first for 250 ms, then twice as long each
 *          time up to 10 s, less up to half of that by chance, so that routers do not come back together.
 *          After that one request is its probe: an answer closes the matter, and without one there is
 *          another probe after 10 s.
 * Pure     No clock, socket or thread: times are arguments, chance comes from a seed.
 * Source   Consistent hashing with bounded loads: Mirrokni, Thorup and Zadimoghaddam, SODA 2018.
 */
#ifndef WEFT_API_CLUSTER_H
#define WEFT_API_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "api/upstream.h"
#include "base/err.h"
#include "base/request.h"
#include "cluster/prefixes.h"

#define WEFTI_API_NOBODY UINT32_MAX

#define WEFTI_API_RING_POINTS 128u /* of each scheduler: shares are equal to within a tenth or so */
#define WEFTI_API_LOAD_SLACK 4u    /* requests; see above */
#define WEFTI_API_FAILURES_MAX 3u
#define WEFTI_API_BACKOFF_MS 250u
#define WEFTI_API_BACKOFF_MS_MAX 10000u

/* What a scheduler last said of itself. */
struct wefti_api_report {
    bool can_serve;
    const char *fingerprint; /* "": not known yet */
    uint32_t n_seqs;         /* that its workers compute at once */
    uint32_t n_requests;     /* running and waiting, of all routers */
    uint64_t n_cache_tokens; /* that its prefix cache has room for */
};

struct wefti_api_node {
    bool is_up, is_left_out, has_report, can_serve;
    char fingerprint[32];
    uint32_t n_seqs, n_cache_blocks;
    uint64_t reported_at_ms;
    uint32_t n_open;     /* ours */
    uint32_t n_others;   /* other routers', by the last report */
    uint32_t n_failures; /* in a row */
    uint64_t alone_until_ms;
    uint64_t n_placed; /* ever */
};

struct wefti_api_cluster {
    uint32_t n;
    struct wefti_api_node nodes[WEFT_API_SCHEDULERS_MAX];
    struct wefti_api_ring_point {
        uint64_t at;
        uint32_t node;
    } ring[WEFT_API_SCHEDULERS_MAX * WEFTI_API_RING_POINTS]; /* ascending */
    uint64_t chance;
    uint32_t report_ms_max; /* older reports are not fresh */
    struct wefti_api_prefixes prefixes;
};

/* `names`: of 1 to WEFT_API_SCHEDULERS_MAX schedulers, all different; routers that know them by the
 * same names, in any order, have the same ring. */
void wefti_api_cluster_init(struct wefti_api_cluster *cluster, const char *const *names, uint32_t n,
                            uint64_t seed, uint32_t report_ms_max);

/* ------------------------------------------------------------------------------- what happens --- */

void wefti_api_cluster_up(struct wefti_api_cluster *cluster, uint32_t node);
/* The link is lost, a failure; what it said is out of date. */
void wefti_api_cluster_down(struct wefti_api_cluster *cluster, uint32_t node, uint64_t now_ms);
/* Another process answers there, or its prefix cache was emptied. */
void wefti_api_cluster_forget(struct wefti_api_cluster *cluster, uint32_t node);
void wefti_api_cluster_report(struct wefti_api_cluster *cluster, uint32_t node,
                              const struct wefti_api_report *report, uint64_t now_ms);
/* It serves another model, and gets nothing. */
void wefti_api_cluster_leave_out(struct wefti_api_cluster *cluster, uint32_t node,
                                 bool is_left_out);
void wefti_api_cluster_failed(struct wefti_api_cluster *cluster, uint32_t node, uint64_t now_ms);
void wefti_api_cluster_answered(struct wefti_api_cluster *cluster, uint32_t node);

/* ------------------------------------------------------------------------------------ choosing --- */

struct wefti_api_wish {
    const uint32_t *tokens; /* the prompt */
    uint32_t n_tokens;
    struct weft_digest space; /* prompts of others share nothing with it */
    const char *fingerprint;  /* of whoever may take it; NULL: any */
    uint32_t not_these;       /* bits: they are not asked */
};

/* Whether it gets requests of this fingerprint (NULL: any) now. */
bool wefti_api_cluster_can_take(const struct wefti_api_cluster *cluster, uint32_t node,
                                const char *fingerprint, uint64_t now_ms);
bool wefti_api_cluster_any(const struct wefti_api_cluster *cluster, const char *fingerprint,
                           uint32_t not_these, uint64_t now_ms);
/* Whether one would but for its failures: within WEFTI_API_BACKOFF_MS_MAX it gets a probe. */
bool wefti_api_cluster_any_rests(const struct wefti_api_cluster *cluster, const char *fingerprint,
                                 uint32_t not_these, uint64_t now_ms);

/* Chooses one, and counts the request there until it is told of its end. NOBODY: none can take it. */
uint32_t wefti_api_cluster_place(struct wefti_api_cluster *cluster,
                                 const struct wefti_api_wish *wish, uint64_t now_ms);
void wefti_api_cluster_ended(struct wefti_api_cluster *cluster, uint32_t node);

/* When a refused request is to be tried elsewhere: between 5 and 50 ms later, twice that after each
 * further refusal, by chance. */
uint64_t wefti_api_cluster_pause_us(struct wefti_api_cluster *cluster, uint32_t n_refusals);

#endif
