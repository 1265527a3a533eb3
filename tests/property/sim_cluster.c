/* What a router loses when it divides a trace of requests between several schedulers: how much of what
 * one big prefix cache would have shared, and how unevenly they are loaded.
 *
 * One      A cache as large as all of them together, which sees every request.
 * Several  Caches of equal parts. The router chooses (lib/api/cluster), and knows what a router knows:
 *          its own placements, and a report of each four times a second.
 *
 * A scheduler here computes prompts one after another, without what its cache has, and then generates at
 * a fixed pace; it is fast enough that together they are busy for seven tenths of the time. Caches
 * give up the block that was used least recently.
 *
 * The trace of real structure is Mooncake's synthetic one (Qin et al., FAST 2025), ../shared/traces, its
 * lengths and blocks of 512 tokens divided by 32. Another of that kind is drawn by seed: documents that
 * questions are asked of, conversations that grow, prompts that come once, instructions that many share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "inside/api/cluster/cluster.h"
#include "traffic/trace.h"

#define BLOCK 16u
#define SCALE 32u
#define REPORT_MS 250u
#define BUSY 0.7
#define OUTPUT_PER_MS 0.02 /* of each request, tokens */
#define IDS_MAX 4096u
#define OPEN_MAX 4096u

struct row {
    uint64_t at_ms;
    uint32_t n_out, n_ids,
        *ids; /* of the blocks of its prompt: equal ones follow equal beginnings */
};

struct trace {
    const char *name;
    struct row *rows;
    uint32_t n, n_nodes; /* ids are below */
};

static void *need(void *mem) {
    WEFT_ASSERT(mem != NULL);
    return mem;
}

static void free_trace(struct trace *trace) {
    for (uint32_t i = 0; i < trace->n; i++)
        free(trace->rows[i].ids);
    free(trace->rows);
}

/* -------------------------------------------------------------------------------------- the traces --- */

static bool read_mooncake(struct trace *trace) {
    char path[4096];
    const char *root = getenv("WEFT_SHARED_DIR");
    struct weft_traffic_trace read;
    struct weft_errmsg why;
    (void)snprintf(path, sizeof path, "%s/traces/mooncake_synthetic_trace.jsonl",
                   root ? root : "../shared");
    FILE *file = fopen(path, "r");
    if (!file) {
        printf("SKIPPED: there is no %s (WEFT_SHARED_DIR/traces)\n", path);
        return false;
    }
    (void)fclose(file);
    weft_err err = weft_traffic_trace_read(path, 0, &read, &why);
    WEFT_ASSERT(!err);
    trace->rows = need(calloc(read.n_rows, sizeof *trace->rows));
    for (uint32_t i = 0; i < read.n_rows; i++) {
        const struct weft_traffic_row *from = &read.rows[i];
        if (from->n_hashes == 0) continue;
        struct row *row = &trace->rows[trace->n++];
        *row = (struct row){from->at_ns / 1000000, from->n_out / SCALE + 1, from->n_hashes, NULL};
        row->ids = need(calloc(row->n_ids, sizeof *row->ids));
        for (uint32_t k = 0; k < row->n_ids; k++) {
            row->ids[k] = (uint32_t)read.hashes[from->first_hash + k];
            if (row->ids[k] >= trace->n_nodes) trace->n_nodes = row->ids[k] + 1;
        }
    }
    weft_traffic_trace_fini(&read);
    return true;
}

#define N_DRAWN 3000u
#define N_INSTRUCTIONS 3u
#define LEN_MAX 160u

struct session {
    uint32_t n, ids[LEN_MAX];
    bool grows;
};

static uint32_t extend(uint64_t *rand, uint32_t *ids, uint32_t n, uint32_t n_more, uint32_t *next) {
    uint32_t end = n + 1 + weft_rand_below(rand, n_more);
    for (; n < end && n < LEN_MAX; n++)
        ids[n] = (*next)++;
    return n;
}

/* A session begins with one of a few instructions; half of the requests come back to one. */
static void draw_trace(struct trace *trace, uint64_t *rand) {
    struct session *sessions = need(calloc(N_DRAWN, sizeof *sessions)), now;
    uint32_t n_sessions = 0, next = N_INSTRUCTIONS;
    double at_ms = 0;
    trace->rows = need(calloc(N_DRAWN, sizeof *trace->rows));
    for (uint32_t i = 0; i < N_DRAWN; i++) {
        bool is_new = n_sessions == 0 || weft_rand_below(rand, 2);
        uint32_t reach = n_sessions;
        for (uint32_t k = 0; k < 2; k++)
            reach = reach ? 1 + weft_rand_below(rand, reach) : 0;
        uint32_t at = is_new ? n_sessions++ : n_sessions - reach;
        if (is_new) {
            sessions[at].grows = weft_rand_below(rand, 2);
            sessions[at].ids[0] = weft_rand_below(rand, N_INSTRUCTIONS);
            sessions[at].n =
                extend(rand, sessions[at].ids, 1, weft_rand_below(rand, 2) ? 80 : 4, &next);
        }
        now = sessions[at];
        memmove(&sessions[at], &sessions[at + 1], (n_sessions - at - 1) * sizeof now);
        uint32_t n = now.n;
        now.n = extend(rand, now.ids, n, now.grows ? 8 : 2, &next);
        at_ms += -250 * log(1 - weft_rand_unit(rand));
        struct row *row = &trace->rows[trace->n++];
        *row = (struct row){(uint64_t)at_ms, 1 + weft_rand_below(rand, 12), now.n, NULL};
        row->ids = need(malloc(now.n * sizeof *row->ids));
        memcpy(row->ids, now.ids, now.n * sizeof *row->ids);
        now.n = now.grows ? now.n - 1 : n;
        sessions[n_sessions - 1] = now;
    }
    trace->n_nodes = next;
    free(sessions);
}

/* ----------------------------------------------------------------------------------------- caches --- */

#define NONE UINT32_MAX

struct cache {
    uint32_t *older, *newer, newest, oldest; /* [n_nodes]; NONE: an end */
    bool *is_there;
    uint32_t n, cap;
};

static void cache_init(struct cache *cache, uint32_t n_nodes, uint32_t cap) {
    *cache = (struct cache){.newest = NONE, .oldest = NONE, .cap = cap};
    cache->older = need(calloc(n_nodes, sizeof *cache->older));
    cache->newer = need(calloc(n_nodes, sizeof *cache->newer));
    cache->is_there = need(calloc(n_nodes, sizeof *cache->is_there));
}

static void cache_fini(struct cache *cache) {
    free(cache->older);
    free(cache->newer);
    free(cache->is_there);
}

static void take_out(struct cache *cache, uint32_t id) {
    uint32_t older = cache->older[id], newer = cache->newer[id];
    if (newer == NONE)
        cache->newest = older;
    else
        cache->older[newer] = older;
    if (older == NONE)
        cache->oldest = newer;
    else
        cache->newer[older] = newer;
    cache->is_there[id] = false;
    cache->n--;
}

static void put_first(struct cache *cache, uint32_t id) {
    cache->older[id] = cache->newest;
    cache->newer[id] = NONE;
    if (cache->newest == NONE)
        cache->oldest = id;
    else
        cache->newer[cache->newest] = id;
    cache->newest = id;
    cache->is_there[id] = true;
    cache->n++;
}

/* The blocks of the prompt that were there. Its end becomes old before its beginning. */
static uint32_t serve(struct cache *cache, const struct row *row) {
    uint32_t k = 0;
    while (k < row->n_ids && cache->is_there[row->ids[k]])
        k++;
    for (uint32_t i = row->n_ids; i-- > 0;) {
        if (cache->is_there[row->ids[i]]) take_out(cache, row->ids[i]);
        put_first(cache, row->ids[i]);
    }
    while (cache->n > cache->cap)
        take_out(cache, cache->oldest);
    return k;
}

static uint64_t hits_of_one(const struct trace *trace, uint32_t cap) {
    struct cache cache;
    uint64_t n = 0;
    cache_init(&cache, trace->n_nodes, cap);
    for (uint32_t i = 0; i < trace->n; i++)
        n += serve(&cache, &trace->rows[i]);
    cache_fini(&cache);
    return n;
}

/* ---------------------------------------------------------------------------------------- several --- */

struct open {
    double until_ms;
    uint32_t node;
};

struct world {
    const struct trace *trace;
    struct wefti_api_cluster *cluster;
    struct cache caches[WEFT_API_SCHEDULERS_MAX];
    double free_at_ms[WEFT_API_SCHEDULERS_MAX], work[WEFT_API_SCHEDULERS_MAX];
    double tokens_per_ms; /* of prompts, each scheduler */
    struct open open[OPEN_MAX];
    uint32_t n_open, cap;
    uint64_t reported_at_ms, n_hits;
    uint32_t tokens[IDS_MAX * BLOCK];
};

static void pass_to(struct world *world, uint64_t now_ms) {
    for (uint32_t i = 0; i < world->n_open;) {
        if (world->open[i].until_ms > (double)now_ms) {
            i++;
            continue;
        }
        wefti_api_cluster_ended(world->cluster, world->open[i].node);
        world->open[i] = world->open[--world->n_open];
    }
    if (now_ms < world->reported_at_ms + REPORT_MS) return;
    world->reported_at_ms = now_ms;
    for (uint32_t i = 0; i < world->cluster->n; i++) {
        const struct wefti_api_report report = {true, "fp", 64, world->cluster->nodes[i].n_open,
                                                (uint64_t)world->cap * BLOCK};
        wefti_api_cluster_report(world->cluster, i, &report, now_ms);
    }
}

static void take(struct world *world, const struct row *row) {
    WEFT_ASSERT(row->n_ids <= IDS_MAX && world->n_open < OPEN_MAX);
    for (uint32_t t = 0; t < row->n_ids * BLOCK; t++)
        world->tokens[t] = row->ids[t / BLOCK] * BLOCK + t % BLOCK;
    const struct wefti_api_wish wish = {.tokens = world->tokens, .n_tokens = row->n_ids * BLOCK};
    uint32_t node = wefti_api_cluster_place(world->cluster, &wish, world->reported_at_ms);
    WEFT_ASSERT(node < world->cluster->n);
    uint32_t n_hits = serve(&world->caches[node], row);
    double n_prompt = (double)(row->n_ids - n_hits) * BLOCK + 1;
    double begin_ms = fmax((double)row->at_ms, world->free_at_ms[node]);
    world->n_hits += n_hits;
    world->work[node] += n_prompt + row->n_out;
    world->free_at_ms[node] = begin_ms + n_prompt / world->tokens_per_ms;
    world->open[world->n_open++] =
        (struct open){world->free_at_ms[node] + row->n_out / OUTPUT_PER_MS, node};
}

/* Returns the imbalance: the most work of one by the mean. */
static double run(const struct trace *trace, uint32_t n, uint32_t cap_of_all, double tokens_per_ms,
                  uint64_t *n_hits_out) {
    static const char *const names[] = {"tcp://10.0.0.1:7000", "tcp://10.0.0.2:7000",
                                        "tcp://10.0.0.3:7000", "tcp://10.0.0.4:7000"};
    struct world *world = need(calloc(1, sizeof *world));
    double most = 0, all = 0;
    WEFT_ASSERT(n <= sizeof names / sizeof names[0]);
    world->trace = trace;
    world->cap = cap_of_all / n;
    world->tokens_per_ms = tokens_per_ms;
    world->cluster = need(calloc(1, sizeof *world->cluster));
    wefti_api_cluster_init(world->cluster, names, n, 1, UINT32_MAX);
    for (uint32_t i = 0; i < n; i++) {
        const struct wefti_api_report report = {true, "fp", 64, 0, (uint64_t)world->cap * BLOCK};
        cache_init(&world->caches[i], trace->n_nodes, world->cap);
        wefti_api_cluster_up(world->cluster, i);
        wefti_api_cluster_report(world->cluster, i, &report, 0);
    }
    for (uint32_t i = 0; i < trace->n; i++) {
        pass_to(world, trace->rows[i].at_ms);
        take(world, &trace->rows[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        all += world->work[i];
        most = fmax(most, world->work[i]);
        cache_fini(&world->caches[i]);
    }
    *n_hits_out = world->n_hits;
    free(world->cluster);
    free(world);
    return most * n / all;
}

static bool report_on(const struct trace *trace) {
    uint64_t n_blocks = 0;
    bool is_fine = true;
    for (uint32_t i = 0; i < trace->n; i++)
        n_blocks += trace->rows[i].n_ids;
    for (uint32_t part = 1; part <= 4; part *= 4) {
        uint32_t cap = trace->n_nodes / part;
        uint64_t of_one = hits_of_one(trace, cap);
        double span_ms = (double)trace->rows[trace->n - 1].at_ms;
        double work = (double)(n_blocks - of_one) * BLOCK;
        for (uint32_t n = 2; n <= 4; n += 2) {
            uint64_t n_hits;
            double imbalance = run(trace, n, cap, work / span_ms / BUSY / n, &n_hits);
            double share = (double)n_hits / (double)of_one;
            bool is_goal = n == 2;
            bool is_met = share >= 0.9 && imbalance < 1.3;
            printf(
                "%-9s %u schedulers, memory for %s: %4.1f %% of prompts cached, %5.1f %% of what "
                "one cache has; imbalance %.2f%s\n",
                trace->name, n, part == 1 ? "all    " : "a fourth",
                100 * (double)n_hits / (double)n_blocks, 100 * share, imbalance,
                !is_goal ? ""
                : is_met ? ""
                         : "  MISSED");
            is_fine = is_fine && (!is_goal || is_met);
        }
    }
    return is_fine;
}

int main(void) {
    uint64_t seed = weft_rand_test_seed();
    struct trace drawn = {.name = "drawn"}, mooncake = {.name = "mooncake"};
    draw_trace(&drawn, &seed);
    bool is_fine = report_on(&drawn);
    if (read_mooncake(&mooncake)) is_fine = report_on(&mooncake) && is_fine;
    free_trace(&drawn);
    free_trace(&mooncake);
    return is_fine ? EXIT_SUCCESS : EXIT_FAILURE;
}
