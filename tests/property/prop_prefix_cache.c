/* Random sequences over one cache against the simplest model there is: for each node its whole prefix, written out,
 * and who holds it. The tokens are few, so that sequences meet. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "paged_kv/prefix_cache.h"

#define BLOCK 4u
#define CAP 12u /* blocks of a sequence */
#define N_SEQS 10u
#define BLOCKS_MAX 64u
#define N_ROUNDS 60u
#define N_OPS 3000u
#define N_TOKENS 2u
#define N_SPACES 2u

struct seq {
    bool runs;
    uint32_t tokens[CAP * BLOCK], n_tokens; /* that its table has room for */
    struct weft_kv_table table;
    weft_kv_block storage[CAP];
    struct weft_kv_chain chain;
};

/* A block's prefix as the model knows it. */
struct known {
    bool is_there;
    uint64_t space;
    uint32_t n_tokens, tokens[CAP * BLOCK];
};

struct world {
    uint64_t rand;
    uint32_t n_blocks;
    weft_kv_pool *pool;
    weft_kv_prefix_cache *cache;
    struct seq seqs[N_SEQS];
    struct known known[BLOCKS_MAX];
    uint64_t n_hits, n_evicted, n_copies, n_forks;
};

static uint32_t below(struct world *world, uint32_t n) {
    return weft_rand_below(&world->rand, n);
}

static struct weft_kv_space space_of(uint64_t i) {
    return (struct weft_kv_space){.hi = i, .lo = 7};
}

static bool is_prefix(const struct known *known, uint64_t space, const uint32_t *tokens,
                      uint32_t n) {
    return known->is_there && known->space == space && known->n_tokens == n &&
           memcmp(known->tokens, tokens, n * sizeof *tokens) == 0;
}

static weft_kv_block model_find(const struct world *world, uint64_t space, const uint32_t *tokens,
                                uint32_t n) {
    for (weft_kv_block b = 0; b < world->n_blocks; b++) {
        if (is_prefix(&world->known[b], space, tokens, n)) return b;
    }
    return WEFT_KV_NONE;
}

/* Blocks that are free, or a table's new ones, from `from` on, are nobody's node. */
static void note_evictions(struct world *world, const struct weft_kv_table *table, uint32_t from) {
    for (weft_kv_block b = 0; b < world->n_blocks; b++) {
        bool is_new = false;
        for (uint32_t i = from; i < table->n; i++)
            is_new = is_new || table->blocks[i] == b;
        if (!world->known[b].is_there || (!is_new && weft_kv_holders(world->pool, b) > 0)) continue;
        world->known[b].is_there = false;
        world->n_evicted++;
    }
}

static void expect_match(struct world *world, uint64_t space, const uint32_t *tokens, uint32_t n,
                         const weft_kv_block *blocks, const struct weft_kv_match *match) {
    uint32_t k = 0;
    for (; (k + 1) * BLOCK <= n; k++) {
        weft_kv_block wanted = model_find(world, space, tokens, (k + 1) * BLOCK);
        if (wanted == WEFT_KV_NONE) break;
        WEFT_ASSERT(k < match->n_blocks && blocks[k] == wanted);
    }
    WEFT_ASSERT(match->n_blocks == k);
    world->n_hits += k;
    if (match->partial == WEFT_KV_NONE) return;
    const struct known *known = &world->known[match->partial];
    WEFT_ASSERT(known->is_there && known->space == space && known->n_tokens == (k + 1) * BLOCK);
    WEFT_ASSERT(match->n_partial >= 1 && match->n_partial <= BLOCK);
    WEFT_ASSERT(memcmp(known->tokens, tokens, (k * BLOCK + match->n_partial) * sizeof *tokens) ==
                0);
}

/* One block of the table's own for the tokens of a node that begins alike. */
static void copy_partial(struct world *world, struct seq *seq, const struct weft_kv_match *match) {
    if (match->partial == WEFT_KV_NONE) return;
    struct weft_kv_copy copy;
    uint32_t n = seq->table.n;
    weft_err err = weft_kv_prefix_append_copy(world->cache, match->partial, &seq->table, &copy);
    note_evictions(world, &seq->table, n);
    WEFT_ASSERT(world->known[match->partial].is_there);
    if (err) return;
    WEFT_ASSERT(seq->table.n == n + 1 && copy.from == match->partial);
    WEFT_ASSERT(copy.to == seq->table.blocks[n] && weft_kv_holders(world->pool, copy.to) == 1);
    world->n_copies++;
}

static void start(struct world *world, struct seq *seq) {
    uint64_t space = below(world, N_SPACES);
    struct weft_kv_space key = space_of(space);
    weft_kv_block blocks[CAP];
    struct weft_kv_match match;
    seq->n_tokens = 1 + below(world, CAP * BLOCK);
    for (uint32_t i = 0; i < seq->n_tokens; i++)
        seq->tokens[i] = below(world, N_TOKENS);
    weft_kv_prefix_find(world->cache, &key, seq->tokens, seq->n_tokens, blocks, CAP, &match);
    expect_match(world, space, seq->tokens, seq->n_tokens, blocks, &match);
    uint32_t n_wanted = (seq->n_tokens + BLOCK - 1) / BLOCK - match.n_blocks;
    weft_kv_table_init(&seq->table, seq->storage, CAP);
    WEFT_ASSERT(
        !weft_kv_prefix_use(world->cache, &key, blocks, match.n_blocks, &seq->table, &seq->chain));
    if (n_wanted > 0) copy_partial(world, seq, &match);
    n_wanted += match.n_blocks - seq->table.n;
    uint32_t n_had = seq->table.n;
    uint32_t within_reach = weft_kv_n_free(world->pool) + weft_kv_prefix_n_idle(world->cache);
    weft_err err = weft_kv_prefix_grow(world->cache, &seq->table, seq->table.n + n_wanted);
    WEFT_ASSERT((err == WEFT_OK) == (n_wanted <= within_reach));
    note_evictions(world, &seq->table, n_had);
    if (err) {
        weft_kv_prefix_release(world->cache, &seq->table, &seq->chain);
        return;
    }
    seq->runs = true;
}

/* A sibling that shares the blocks themselves, published or not. */
static void share(struct world *world, const struct seq *parent, struct seq *child) {
    uint32_t n = below(world, parent->n_tokens / BLOCK + 1);
    weft_kv_table_init(&child->table, child->storage, CAP);
    WEFT_ASSERT(!weft_kv_prefix_fork(world->cache, &parent->table, &parent->chain, n, &child->table,
                                     &child->chain));
    child->n_tokens = n * BLOCK;
    memcpy(child->tokens, parent->tokens, child->n_tokens * sizeof *child->tokens);
    child->runs = true;
    world->n_forks++;
}

static void publish(struct world *world, struct seq *seq) {
    uint32_t k = seq->chain.n;
    if ((k + 1) * BLOCK > seq->n_tokens) return;
    weft_kv_block block = seq->table.blocks[k];
    uint64_t space = seq->chain.space.hi;
    weft_kv_block before = model_find(world, space, seq->tokens, (k + 1) * BLOCK);
    bool was_closed = seq->chain.is_closed;
    bool is_new = weft_kv_prefix_publish(world->cache, &seq->table, &seq->chain,
                                         seq->tokens + (size_t)k * BLOCK);
    WEFT_ASSERT(is_new == (before == WEFT_KV_NONE && !was_closed));
    WEFT_ASSERT(seq->chain.is_closed == (was_closed || (!is_new && before != block)));
    WEFT_ASSERT(seq->chain.n == k + !seq->chain.is_closed);
    if (!is_new) return;
    struct known *known = &world->known[block];
    *known = (struct known){.is_there = true, .space = space, .n_tokens = (k + 1) * BLOCK};
    memcpy(known->tokens, seq->tokens, known->n_tokens * sizeof *seq->tokens);
}

static void end(struct world *world, struct seq *seq) {
    weft_kv_prefix_release(world->cache, &seq->table, &seq->chain);
    WEFT_ASSERT(seq->table.n == 0 && seq->chain.n == 0);
    seq->runs = false;
    note_evictions(world, &seq->table, 0);
}

static void reset(struct world *world) {
    for (uint32_t i = 0; i < N_SEQS; i++) {
        struct seq *seq = &world->seqs[i];
        seq->chain = (struct weft_kv_chain){.space = seq->chain.space, .is_closed = true};
    }
    weft_kv_prefix_reset(world->cache);
    for (weft_kv_block b = 0; b < world->n_blocks; b++)
        world->known[b].is_there = false;
}

static void compare(const struct world *world) {
    uint32_t n_nodes = 0;
    uint64_t n_held = 0, n_holders = 0;
    weft_kv_pool_check(world->pool);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        const struct seq *seq = &world->seqs[i];
        if (!seq->runs) continue;
        n_held += seq->table.n;
        weft_kv_prefix_check_chain(world->cache, &seq->table, &seq->chain);
    }
    for (weft_kv_block b = 0; b < world->n_blocks; b++)
        n_holders += weft_kv_holders(world->pool, b);
    WEFT_ASSERT(n_holders == n_held + weft_kv_prefix_n_nodes(world->cache));
    weft_kv_prefix_check(world->cache);
    for (weft_kv_block b = 0; b < world->n_blocks; b++)
        n_nodes += world->known[b].is_there;
    WEFT_ASSERT(weft_kv_prefix_n_nodes(world->cache) == n_nodes);
}

static void act(struct world *world) {
    struct seq *seq = &world->seqs[below(world, N_SEQS)];
    uint32_t what = below(world, 400);
    if (what == 0)
        reset(world);
    else if (!seq->runs && what < 30 && world->seqs[0].runs)
        share(world, &world->seqs[0], seq);
    else if (!seq->runs)
        start(world, seq);
    else if (what < 300)
        publish(world, seq);
    else
        end(world, seq);
}

static void run_round(struct world *world) {
    world->n_blocks = 1 + below(world, BLOCKS_MAX);
    size_t pool_bytes = (weft_kv_pool_bytes(world->n_blocks) + 63) / 64 * 64;
    size_t cache_bytes = (weft_kv_prefix_bytes(world->n_blocks, BLOCK) + 63) / 64 * 64;
    void *pool_mem = aligned_alloc(64, pool_bytes), *cache_mem = aligned_alloc(64, cache_bytes);
    WEFT_ASSERT(pool_mem && cache_mem);
    WEFT_ASSERT(!weft_kv_pool_init(pool_mem, pool_bytes, world->n_blocks, &world->pool));
    WEFT_ASSERT(!weft_kv_prefix_init(cache_mem, cache_bytes, world->pool, BLOCK, world->rand,
                                     &world->cache));
    memset(world->known, 0, sizeof world->known);
    for (uint32_t i = 0; i < N_OPS; i++) {
        act(world);
        compare(world);
    }
    for (uint32_t i = 0; i < N_SEQS; i++) {
        if (world->seqs[i].runs) end(world, &world->seqs[i]);
    }
    compare(world);
    /* Nobody runs: all that is published is idle, and all of it can be had. */
    WEFT_ASSERT(weft_kv_prefix_n_idle(world->cache) == weft_kv_prefix_n_nodes(world->cache));
    WEFT_ASSERT(!weft_kv_prefix_make_room(world->cache, world->n_blocks));
    WEFT_ASSERT(weft_kv_n_free(world->pool) == world->n_blocks);
    free(pool_mem);
    free(cache_mem);
}

int main(void) {
    weft_check_actor("prop_prefix_cache");
    static struct world world;
    world.rand = weft_rand_test_seed();
    for (uint32_t i = 0; i < N_ROUNDS; i++)
        run_round(&world);
    printf("%u operations, %llu blocks found, %llu evicted, %llu copied, %llu forks\n",
           N_ROUNDS * N_OPS, (unsigned long long)world.n_hits, (unsigned long long)world.n_evicted,
           (unsigned long long)world.n_copies, (unsigned long long)world.n_forks);
    (void)fflush(stdout); /* an abort must not swallow it */
    WEFT_ASSERT(world.n_hits > 1000 && world.n_evicted > 1000);
    WEFT_ASSERT(world.n_copies > 1000 && world.n_forks > 1000);
    return 0;
}
