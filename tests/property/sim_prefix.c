/* How much of what could be shared the prefix cache shares: traces of requests that begin alike go
 * through a real scheduler, with memory for everything and with a quarter of that.
 *
 * Ideal    The tokens of a prompt's leading blocks that any earlier request had.
 * Belady   The best that can be done with so many blocks, by one who knows the future: what is needed
 *          last goes first (Belady, 1966). Whoever needs a block needs those before it as well, so that
 *          choice is always a leaf, and the prefixes stay whole.
 *
 * The trace of real structure is Mooncake's synthetic one (Qin et al., FAST 2025), ../shared/traces, its
 * lengths and blocks of 512 tokens divided by 32. Another of that kind is drawn by seed: documents that
 * several questions are asked of, conversations that grow, prompts that come once.
 *
 * Requests overlap a little: two at a time. No model runs; outputs are the request's own tokens. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "scheduler/scheduler.h"

#define BLOCK 16u
#define SCALE 32u
#define N_OVERLAP 2u
#define NODES_MAX (WEFT_VOCAB_MAX / BLOCK)
#define NEVER UINT32_MAX

struct request {
    uint32_t n_prompt, n_output;
    uint32_t n_ids, *ids; /* of the blocks of its prompt: equal ones follow equal beginnings */
};

struct trace {
    const char *name;
    struct request *requests;
    uint32_t n, cap;
    uint32_t n_nodes; /* ids are below */
    uint32_t len_max;
    uint64_t n_prompt_tokens;
};

static void *need(void *mem) {
    WEFT_ASSERT(mem != NULL);
    return mem;
}

static struct request *add_request(struct trace *trace, uint32_t n_prompt, uint32_t n_output,
                                   const uint32_t *ids, uint32_t n_ids) {
    WEFT_ASSERT(n_prompt > 0 && n_output > 0 && n_ids > 0);
    WEFT_ASSERT(n_ids == (n_prompt + BLOCK - 1) / BLOCK);
    if (trace->n == trace->cap) {
        trace->cap = trace->cap ? 2 * trace->cap : 1024;
        trace->requests = need(realloc(trace->requests, trace->cap * sizeof *trace->requests));
    }
    struct request *req = &trace->requests[trace->n++];
    *req = (struct request){.n_prompt = n_prompt, .n_output = n_output, .n_ids = n_ids};
    req->ids = need(malloc(n_ids * sizeof *ids));
    memcpy(req->ids, ids, n_ids * sizeof *ids);
    for (uint32_t i = 0; i < n_ids; i++)
        trace->n_nodes = ids[i] >= trace->n_nodes ? ids[i] + 1 : trace->n_nodes;
    WEFT_ASSERT(trace->n_nodes <= NODES_MAX);
    if (n_prompt + n_output > trace->len_max) trace->len_max = n_prompt + n_output;
    trace->n_prompt_tokens += n_prompt;
    return req;
}

static void free_trace(struct trace *trace) {
    for (uint32_t i = 0; i < trace->n; i++)
        free(trace->requests[i].ids);
    free(trace->requests);
}

/* ------------------------------------------------------------------------------ the traces --- */

static const char *after(const char *line, const char *name) {
    const char *at = strstr(line, name);
    WEFT_ASSERT(at != NULL);
    return at + strlen(name);
}

static uint32_t scaled(const char *line, const char *name) {
    unsigned long value = strtoul(after(line, name), NULL, 10);
    WEFT_ASSERT(value > 0 && value < UINT32_MAX);
    return (uint32_t)((value + SCALE - 1) / SCALE);
}

static void read_line(struct trace *trace, const char *line) {
    uint32_t ids[4096], n = 0;
    const char *at = after(line, "\"hash_ids\": [");
    for (char *end = NULL; *at != ']'; n++) {
        unsigned long id = strtoul(at, &end, 10);
        WEFT_ASSERT(end != at && id < NODES_MAX && n < sizeof ids / sizeof *ids);
        ids[n] = (uint32_t)id;
        at = end + strspn(end, ", ");
    }
    (void)add_request(trace, scaled(line, "\"input_length\": "),
                      scaled(line, "\"output_length\": "), ids, n);
}

static bool read_mooncake(struct trace *trace) {
    char path[4096];
    const char *root = getenv("WEFT_SHARED_DIR");
    (void)snprintf(path, sizeof path, "%s/traces/mooncake_synthetic_trace.jsonl",
                   root ? root : ".");
    FILE *file = fopen(path, "r");
    if (!file) {
        printf("SKIPPED: there is no %s (WEFT_SHARED_DIR/traces)\n", path);
        return false;
    }
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, file) > 0)
        read_line(trace, line);
    free(line);
    (void)fclose(file);
    return true;
}

#define N_DRAWN 1500u
#define IDS_MAX 160u

/* A beginning that requests come back to: its blocks so far. */
struct session {
    uint32_t n, ids[IDS_MAX];
    bool grows; /* a conversation; else a document */
};

static uint32_t extend(uint64_t *rand, uint32_t *ids, uint32_t n, uint32_t n_more, uint32_t *next) {
    uint32_t end = n + 1 + weft_rand_below(rand, n_more);
    for (; n < end && n < IDS_MAX; n++)
        ids[n] = (*next)++;
    return n;
}

/* Four of ten requests are new; the others come back to a session, lately used ones first. */
static void draw_trace(struct trace *trace, uint64_t *rand) {
    struct session *sessions = need(calloc(N_DRAWN, sizeof *sessions)), session;
    uint32_t n_sessions = 0, next = 0;
    for (uint32_t i = 0; i < N_DRAWN; i++) {
        bool is_new = n_sessions == 0 || weft_rand_below(rand, 10) < 4;
        uint32_t reach = n_sessions;
        for (uint32_t k = 0; k < 2; k++) /* skewed towards the end, where the recent ones are */
            reach = reach ? 1 + weft_rand_below(rand, reach) : 0;
        uint32_t at = is_new ? n_sessions++ : n_sessions - reach;
        if (is_new) {
            sessions[at].grows = weft_rand_below(rand, 2);
            sessions[at].n =
                extend(rand, sessions[at].ids, 0, weft_rand_below(rand, 2) ? 80 : 4, &next);
        }
        session = sessions[at];
        memmove(&sessions[at], &sessions[at + 1], (n_sessions - at - 1) * sizeof session);
        uint32_t n = session.n;
        session.n = extend(rand, session.ids, n, session.grows ? 8 : 2, &next);
        uint32_t n_prompt = session.n * BLOCK - weft_rand_below(rand, BLOCK);
        (void)add_request(trace, n_prompt, 1 + weft_rand_below(rand, 40), session.ids, session.n);
        /* The last block is seldom full, and what comes next differs there; a question is its asker's. */
        session.n = session.grows ? session.n - 1 : n;
        sessions[n_sessions - 1] = session;
    }
    free(sessions);
}

/* --------------------------------------------------------------------------- what could be --- */

static uint64_t ideal_hits(const struct trace *trace) {
    bool *seen = need(calloc(trace->n_nodes, sizeof *seen));
    uint64_t n_hits = 0;
    for (uint32_t i = 0; i < trace->n; i++) {
        const struct request *req = &trace->requests[i];
        uint32_t k = 0;
        while (k < req->n_ids && seen[req->ids[k]])
            k++;
        n_hits += k * BLOCK < req->n_prompt ? k * BLOCK : req->n_prompt;
        for (; k < req->n_ids; k++)
            seen[req->ids[k]] = true;
    }
    free(seen);
    return n_hits;
}

/* A block that is there, by when it is needed next, and how deep it lies: the last ones on top. */
struct entry {
    uint32_t next_use, depth, node;
};

struct oracle {
    struct entry *heap; /* with entries that are out of date: see is_current */
    uint32_t n_heap, n_there;
    uint32_t *next_use; /* [n_nodes] */
    bool *is_there;     /* [n_nodes] */
    uint32_t **uses;    /* [n requests][its whole blocks]: the request that needs the block next */
    uint64_t n_entries;
};

static bool goes_first(const struct entry *a, const struct entry *b) {
    return a->next_use != b->next_use ? a->next_use > b->next_use : a->depth > b->depth;
}

static void push(struct oracle *oracle, struct entry entry) {
    uint32_t at = oracle->n_heap++;
    for (; at > 0 && goes_first(&entry, &oracle->heap[(at - 1) / 2]); at = (at - 1) / 2)
        oracle->heap[at] = oracle->heap[(at - 1) / 2];
    oracle->heap[at] = entry;
}

static struct entry pop(struct oracle *oracle) {
    WEFT_ASSERT(oracle->n_heap > 0);
    struct entry first = oracle->heap[0], last = oracle->heap[--oracle->n_heap];
    uint32_t at = 0;
    for (uint32_t child = 1; child < oracle->n_heap; child = 2 * at + 1) {
        if (child + 1 < oracle->n_heap &&
            goes_first(&oracle->heap[child + 1], &oracle->heap[child]))
            child++;
        if (!goes_first(&oracle->heap[child], &last)) break;
        oracle->heap[at] = oracle->heap[child];
        at = child;
    }
    oracle->heap[at] = last;
    return first;
}

static bool is_current(const struct oracle *oracle, const struct entry *entry) {
    return oracle->is_there[entry->node] && oracle->next_use[entry->node] == entry->next_use;
}

static uint32_t n_whole(const struct request *req) {
    return req->n_prompt / BLOCK;
}

static void look_ahead(struct oracle *oracle, const struct trace *trace) {
    for (uint32_t i = 0; i < trace->n_nodes; i++)
        oracle->next_use[i] = NEVER;
    for (uint32_t i = trace->n; i-- > 0;) {
        const struct request *req = &trace->requests[i];
        oracle->uses[i] = need(calloc(req->n_ids, sizeof **oracle->uses));
        for (uint32_t k = 0; k < n_whole(req); k++) {
            oracle->uses[i][k] = oracle->next_use[req->ids[k]];
            oracle->next_use[req->ids[k]] = i;
        }
        oracle->n_entries += req->n_ids;
    }
}

/* While a request runs, all of its blocks are there, those of its output as well. */
static uint64_t serve(struct oracle *oracle, const struct trace *trace, uint32_t i,
                      uint32_t n_blocks) {
    const struct request *req = &trace->requests[i];
    uint32_t n = n_whole(req), k = 0;
    uint32_t n_more = (req->n_prompt + req->n_output + BLOCK - 1) / BLOCK - n;
    while (k < n && oracle->is_there[req->ids[k]])
        k++;
    for (uint32_t b = 0; b < n; b++) {
        oracle->n_there += !oracle->is_there[req->ids[b]];
        oracle->is_there[req->ids[b]] = true;
        oracle->next_use[req->ids[b]] = oracle->uses[i][b];
    }
    while (oracle->n_there + n_more > n_blocks) {
        struct entry entry = pop(oracle);
        if (!is_current(oracle, &entry)) continue;
        oracle->is_there[entry.node] = false;
        oracle->n_there--;
    }
    for (uint32_t b = 0; b < n; b++)
        push(oracle, (struct entry){oracle->uses[i][b], b, req->ids[b]});
    return (uint64_t)k * BLOCK;
}

static uint64_t belady_hits(const struct trace *trace, uint32_t n_blocks) {
    struct oracle oracle = {0};
    uint64_t n_hits = 0;
    oracle.next_use = need(calloc(trace->n_nodes, sizeof *oracle.next_use));
    oracle.is_there = need(calloc(trace->n_nodes, sizeof *oracle.is_there));
    oracle.uses = need(calloc(trace->n, sizeof *oracle.uses));
    look_ahead(&oracle, trace);
    oracle.heap = need(calloc(oracle.n_entries, sizeof *oracle.heap));
    for (uint32_t i = 0; i < trace->n; i++)
        n_hits += serve(&oracle, trace, i, n_blocks);
    for (uint32_t i = 0; i < trace->n; i++)
        free(oracle.uses[i]);
    free(oracle.uses);
    free(oracle.heap);
    free(oracle.is_there);
    free(oracle.next_use);
    return n_hits;
}

/* -------------------------------------------------------------------------------- what is --- */

/* A worker that only counts. */
struct slot {
    uint32_t n_tokens, n_computed, n_output, n_wanted;
    uint64_t seed;
};

struct world {
    const struct trace *trace;
    struct weft_sched_options options;
    weft_sched *sched;
    struct slot slots[2 * N_OVERLAP];
    struct weft_step_out outs[2 * N_OVERLAP];
    uint64_t now_us, n_hits, n_told;
    bool *told; /* [n requests] */
    uint32_t *prompt;
};

static struct weft_sched_options options_for(const struct trace *trace, uint32_t n_blocks) {
    return (struct weft_sched_options){
        .n_blocks = n_blocks,
        .block_size = BLOCK,
        .max_seqs = 2 * N_OVERLAP,
        .max_batched_tokens = 4096,
        .max_model_len = trace->len_max,
        .n_vocab = trace->n_nodes * BLOCK,
        .max_queue = N_OVERLAP,
        .prefix_cache = true,
        .cache_seed = 1,
    };
}

static void submit(struct world *world, uint32_t i) {
    const struct request *req = &world->trace->requests[i];
    for (uint32_t t = 0; t < req->n_prompt; t++)
        world->prompt[t] = req->ids[t / BLOCK] * BLOCK + t % BLOCK;
    struct weft_submit message = {
        .request_id = i, .prompt = world->prompt, .n_prompt = req->n_prompt, .n_choices = 1};
    weft_sampling_init(&message.sampling);
    message.sampling.seed = i;
    message.sampling.max_tokens = req->n_output;
    struct weft_errmsg why;
    uint32_t retry_after_ms;
    WEFT_ASSERT(
        !weft_sched_submit(world->sched, world->now_us, 0, &message, &retry_after_ms, &why));
}

static void run_row(struct world *world, const struct weft_step_row *row,
                    struct weft_step_out *out) {
    struct slot *slot = &world->slots[row->slot];
    *out = (struct weft_step_out){.slot = row->slot, .gen = row->gen, .ran = true};
    slot->n_computed += row->n_tokens;
    WEFT_ASSERT(slot->n_computed <= slot->n_tokens);
    if (slot->n_computed < slot->n_tokens) return;
    uint64_t state = slot->seed * 4096 + slot->n_output;
    out->sampled = true;
    out->token = weft_rand_below(&state, world->options.n_vocab);
    out->output_idx = slot->n_output++;
    slot->n_tokens++;
    if (slot->n_output == slot->n_wanted) out->finish = WEFT_END_LENGTH;
}

static void take_events(struct world *world) {
    size_t n;
    const struct weft_sched_event *events = weft_sched_events(world->sched, &n);
    for (size_t i = 0; i < n; i++) {
        const struct weft_event *event = &events[i].event;
        if (world->told[event->request_id]) continue;
        world->told[event->request_id] = true;
        world->n_told++;
        world->n_hits += event->n_prompt_cached;
    }
    weft_sched_events_clear(world->sched);
}

static void step(struct world *world) {
    const struct weft_step_plan *plan;
    WEFT_ASSERT(weft_sched_plan(world->sched, world->now_us, &plan));
    for (uint32_t i = 0; i < plan->n_starts; i++) {
        const struct weft_step_start *start = &plan->starts[i];
        world->slots[start->slot] = (struct slot){.n_tokens = start->n_tokens,
                                                  .n_computed = start->n_cached,
                                                  .n_output = start->n_tokens - start->n_prompt,
                                                  .n_wanted = start->sampling.max_tokens,
                                                  .seed = start->sampling.seed};
    }
    for (uint32_t i = 0; i < plan->n_rows; i++)
        run_row(world, &plan->rows[i], &world->outs[i]);
    struct weft_step_result result = {.epoch = plan->epoch,
                                      .step = plan->step,
                                      .busy_us = 1000,
                                      .n_outs = plan->n_rows,
                                      .outs = world->outs};
    struct weft_errmsg why;
    world->now_us += result.busy_us;
    WEFT_ASSERT(!weft_sched_result(world->sched, world->now_us, &result, &why));
    take_events(world);
}

static uint64_t cache_hits(const struct trace *trace, uint32_t n_blocks,
                           struct weft_sched_stats *stats_out) {
    struct world world = {.trace = trace, .options = options_for(trace, n_blocks)};
    struct weft_errmsg why;
    world.told = need(calloc(trace->n, sizeof *world.told));
    world.prompt = need(calloc(trace->len_max, sizeof *world.prompt));
    WEFT_ASSERT(!weft_sched_new(&world.options, &world.sched, &why));
    weft_sched_new_epoch(world.sched, world.now_us, 1);
    for (uint32_t i = 0; i < trace->n || !weft_sched_idle(world.sched);) {
        weft_sched_stats(world.sched, stats_out);
        if (i < trace->n && stats_out->n_running + stats_out->n_waiting < N_OVERLAP)
            submit(&world, i++);
        else
            step(&world);
        if (i % 512 == 0) weft_sched_check(world.sched);
    }
    weft_sched_stats(world.sched, stats_out);
    WEFT_ASSERT(world.n_told == trace->n);
    weft_sched_free(world.sched);
    free(world.prompt);
    free(world.told);
    return world.n_hits;
}

/* Blocks that are never too few, however much is kept. */
static uint32_t blocks_for_all(const struct trace *trace) {
    uint32_t n = trace->n_nodes;
    for (uint32_t i = 0; i < trace->n; i++)
        n += trace->requests[i].n_output / BLOCK + 2;
    return n;
}

static double percent(uint64_t part, uint64_t whole) {
    return 100.0 * (double)part / (double)whole;
}

static void compare(const struct trace *trace, double least_of_belady) {
    struct weft_sched_stats stats;
    WEFT_ASSERT(trace->n > 0 && trace->n_nodes > 0 && trace->len_max > 0);
    uint64_t ideal = ideal_hits(trace), all = cache_hits(trace, blocks_for_all(trace), &stats);
    WEFT_ASSERT(stats.n_cache_evictions == 0);
    uint32_t n_all = stats.n_blocks_published, n_quarter = n_all / 4;
    uint64_t belady = belady_hits(trace, n_quarter), quarter = cache_hits(trace, n_quarter, &stats);
    printf("%s: %u requests, %" PRIu64 " prompt tokens\n", trace->name, trace->n,
           trace->n_prompt_tokens);
    printf("  found with %u blocks (everything): %.2f %%, ideal %.2f %%: %.2f %% of that\n", n_all,
           percent(all, trace->n_prompt_tokens), percent(ideal, trace->n_prompt_tokens),
           percent(all, ideal));
    printf("  found with %u blocks (a quarter): %.2f %%, Belady %.2f %%: %.2f %% of that; %" PRIu64
           " evicted, %" PRIu64 " preempted\n",
           n_quarter, percent(quarter, trace->n_prompt_tokens),
           percent(belady, trace->n_prompt_tokens), percent(quarter, belady),
           stats.n_cache_evictions, stats.n_preemptions);
    printf("  goals: 99 %% of the ideal: %s; 90 %% of Belady: %s (docs/decisions.md)\n",
           percent(all, ideal) >= 99.0 ? "met" : "NOT MET",
           percent(quarter, belady) >= 90.0 ? "met" : "NOT MET");
    (void)fflush(stdout); /* an abort must not swallow it */
    WEFT_ASSERT(percent(all, ideal) >= 99.0);
    WEFT_ASSERT(quarter <= belady + trace->n * (uint64_t)BLOCK); /* copies of parts of blocks */
    WEFT_ASSERT(percent(quarter, belady) >= least_of_belady);
}

int main(void) {
    weft_check_actor("sim_prefix");
    uint64_t seed = weft_rand_test_seed();
    (void)fflush(stdout);
    struct trace drawn = {.name = "drawn"}, mooncake = {.name = "mooncake"};
    draw_trace(&drawn, &seed);
    compare(&drawn, 75.0);
    free_trace(&drawn);
    if (read_mooncake(&mooncake)) compare(&mooncake, 70.0);
    free_trace(&mooncake);
    return 0;
}
