/* Arrays by block id: a block is at most one node, and its id names both. */
#include "paged_kv/prefix_cache.h"

#include <string.h>
#include <xxhash.h>

#include "base/check.h"

/* Children of a node that are looked at for one whose tokens begin alike: the newest. */
#define PARTIAL_TRIES 16
#define ALIGN 64

struct node {
    struct weft_kv_space space; /* of a root; else zero */
    uint64_t hash;
    uint64_t idle_since;                           /* a count of such events */
    uint64_t birth;                                /* likewise */
    weft_kv_block parent, first_child, next, prev; /* siblings, the newest first */
    weft_kv_block older, newer;                    /* in the list of idle leaves */
    bool is_node, is_listed;
};

struct weft_kv_prefix_cache {
    weft_kv_pool *pool;
    weft_kv_windows *windows;         /* NULL: nodes have no twins */
    weft_kv_checkpoints *checkpoints; /* NULL: nor any of these */
    uint32_t n_blocks, block_size;
    uint64_t seed, clock, n_evicted;
    uint32_t n_nodes, n_idle;
    weft_kv_block oldest, newest; /* idle leaves */
    uint32_t table_mask;
    struct node *nodes;   /* [n_blocks] */
    uint32_t *tokens;     /* [n_blocks][block_size] */
    weft_kv_block *table; /* [table_mask + 1], open addressing; NONE: empty */
};

/* --------------------------------------------------------------------------------- storage --- */

static size_t aligned(size_t n) {
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t table_slots(uint32_t n_blocks) {
    uint32_t n = 16;
    while (n < 2 * n_blocks)
        n *= 2;
    return n;
}

size_t weft_kv_prefix_bytes(uint32_t n_blocks, uint32_t block_size) {
    if (n_blocks == 0 || n_blocks > WEFT_KV_BLOCKS_MAX) return 0;
    if (block_size == 0 || block_size > WEFT_BLOCK_SIZE_MAX) return 0;
    _Static_assert(WEFT_KV_BLOCKS_MAX <= UINT32_MAX / 4, "the table's size is a uint32_t");
    return aligned(sizeof(weft_kv_prefix_cache)) + aligned(n_blocks * sizeof(struct node)) +
           aligned((size_t)n_blocks * block_size * sizeof(uint32_t)) +
           table_slots(n_blocks) * sizeof(weft_kv_block);
}

weft_err weft_kv_prefix_init(void *mem, size_t mem_bytes, weft_kv_pool *pool, uint32_t block_size,
                             uint64_t seed, weft_kv_prefix_cache **cache_out) {
    *cache_out = NULL;
    uint32_t n_blocks = weft_kv_n_blocks(pool);
    size_t wanted = weft_kv_prefix_bytes(n_blocks, block_size);
    if (wanted == 0 || mem_bytes < wanted) return WEFT_E_INVAL;
    WEFT_ASSERT((uintptr_t)mem % ALIGN == 0);
    unsigned char *at = mem;
    weft_kv_prefix_cache *cache = mem;
    *cache = (weft_kv_prefix_cache){.pool = pool,
                                    .n_blocks = n_blocks,
                                    .block_size = block_size,
                                    .seed = seed,
                                    .oldest = WEFT_KV_NONE,
                                    .newest = WEFT_KV_NONE,
                                    .table_mask = table_slots(n_blocks) - 1};
    at += aligned(sizeof *cache);
    cache->nodes = (struct node *)(void *)at;
    memset(cache->nodes, 0, n_blocks * sizeof *cache->nodes);
    at += aligned(n_blocks * sizeof *cache->nodes);
    cache->tokens = (uint32_t *)(void *)at;
    at += aligned((size_t)n_blocks * block_size * sizeof *cache->tokens);
    cache->table = (weft_kv_block *)(void *)at;
    memset(cache->table, 0xff, ((size_t)cache->table_mask + 1) * sizeof *cache->table);
    _Static_assert(WEFT_KV_NONE == UINT32_MAX, "all bits set is an empty slot");
    *cache_out = cache;
    return WEFT_OK;
}

void weft_kv_prefix_pair(weft_kv_prefix_cache *cache, weft_kv_windows *windows) {
    cache->windows = windows;
}

void weft_kv_prefix_pair_states(weft_kv_prefix_cache *cache, weft_kv_checkpoints *checkpoints) {
    cache->checkpoints = checkpoints;
}

/* What nodes have beside them goes with them. */
static void forget_beside(const weft_kv_prefix_cache *cache, weft_kv_block block) {
    if (cache->windows) weft_kv_windows_forget(cache->windows, block);
    if (cache->checkpoints) weft_kv_checkpoints_forget(cache->checkpoints, block);
}

/* ------------------------------------------------------------------------- table of hashes --- */

static uint32_t *tokens_of(const weft_kv_prefix_cache *cache, weft_kv_block block) {
    return cache->tokens + (size_t)block * cache->block_size;
}

/* A root's space, or a child's parent: one of the two says where a node belongs. */
struct place {
    struct weft_kv_space space;
    uint64_t parent;
};

static struct place place_below(const struct weft_kv_space *space, weft_kv_block parent) {
    struct place place = {.parent = parent};
    if (parent == WEFT_KV_NONE) place.space = *space;
    return place;
}

static uint64_t hash_of(const weft_kv_prefix_cache *cache, const struct place *place,
                        const uint32_t *tokens) {
    uint64_t hash = XXH3_64bits_withSeed(tokens, cache->block_size * sizeof *tokens, cache->seed);
    return XXH3_64bits_withSeed(place, sizeof *place, hash);
}

static bool is_at(const weft_kv_prefix_cache *cache, weft_kv_block block, uint64_t hash,
                  const struct place *place, const uint32_t *tokens) {
    const struct node *node = &cache->nodes[block];
    return node->hash == hash && node->parent == place->parent &&
           node->space.hi == place->space.hi && node->space.lo == place->space.lo &&
           memcmp(tokens_of(cache, block), tokens, cache->block_size * sizeof *tokens) == 0;
}

/* NONE: there is no such node. */
static weft_kv_block look_up(const weft_kv_prefix_cache *cache, uint64_t hash,
                             const struct place *place, const uint32_t *tokens) {
    for (uint64_t i = hash;; i++) {
        weft_kv_block block = cache->table[i & cache->table_mask];
        if (block == WEFT_KV_NONE || is_at(cache, block, hash, place, tokens)) return block;
    }
}

static void table_add(weft_kv_prefix_cache *cache, weft_kv_block block) {
    uint64_t i = cache->nodes[block].hash;
    while (cache->table[i & cache->table_mask] != WEFT_KV_NONE)
        i++; /* half of it is empty */
    cache->table[i & cache->table_mask] = block;
}

/* Moves up what the empty slot would cut off from its place. */
static void table_remove(weft_kv_prefix_cache *cache, weft_kv_block block) {
    uint32_t mask = cache->table_mask, hole = (uint32_t)cache->nodes[block].hash & mask;
    while (cache->table[hole] != block)
        hole = (hole + 1) & mask;
    for (uint32_t i = (hole + 1) & mask; cache->table[i] != WEFT_KV_NONE; i = (i + 1) & mask) {
        uint32_t home = (uint32_t)cache->nodes[cache->table[i]].hash & mask;
        if (((i - home) & mask) < ((i - hole) & mask)) continue; /* its home is after the hole */
        cache->table[hole] = cache->table[i];
        hole = i;
    }
    cache->table[hole] = WEFT_KV_NONE;
}

/* ---------------------------------------------------------------------------- idle leaves --- */

static void list_newest(weft_kv_prefix_cache *cache, weft_kv_block block) {
    struct node *node = &cache->nodes[block];
    node->is_listed = true;
    node->newer = WEFT_KV_NONE;
    node->older = cache->newest;
    if (cache->newest != WEFT_KV_NONE) cache->nodes[cache->newest].newer = block;
    cache->newest = block;
    if (cache->oldest == WEFT_KV_NONE) cache->oldest = block;
}

static void list_oldest(weft_kv_prefix_cache *cache, weft_kv_block block) {
    struct node *node = &cache->nodes[block];
    node->is_listed = true;
    node->older = WEFT_KV_NONE;
    node->newer = cache->oldest;
    if (cache->oldest != WEFT_KV_NONE) cache->nodes[cache->oldest].older = block;
    cache->oldest = block;
    if (cache->newest == WEFT_KV_NONE) cache->newest = block;
}

static void unlist(weft_kv_prefix_cache *cache, weft_kv_block block) {
    struct node *node = &cache->nodes[block];
    if (!node->is_listed) return;
    node->is_listed = false;
    if (node->older == WEFT_KV_NONE)
        cache->oldest = node->newer;
    else
        cache->nodes[node->older].newer = node->newer;
    if (node->newer == WEFT_KV_NONE)
        cache->newest = node->older;
    else
        cache->nodes[node->newer].older = node->older;
}

static bool is_idle(const weft_kv_prefix_cache *cache, weft_kv_block block) {
    return cache->nodes[block].is_node && weft_kv_holders(cache->pool, block) == 1;
}

/* One holder less, of a block that may be a node. */
static void let_go(weft_kv_prefix_cache *cache, weft_kv_block block) {
    weft_kv_drop(cache->pool, block);
    if (!is_idle(cache, block)) return;
    struct node *node = &cache->nodes[block];
    cache->n_idle++;
    node->idle_since = ++cache->clock;
    if (node->first_child == WEFT_KV_NONE) list_newest(cache, block);
}

/* One holder more, of a node. */
static void hold(weft_kv_prefix_cache *cache, weft_kv_block block) {
    if (is_idle(cache, block)) {
        cache->n_idle--;
        unlist(cache, block);
    }
    weft_err err = weft_kv_share(cache->pool, block);
    WEFT_ASSERT(!err); /* the caller looked */
}

/* ------------------------------------------------------------------------------------ tree --- */

static void link_child(weft_kv_prefix_cache *cache, weft_kv_block block) {
    struct node *node = &cache->nodes[block];
    node->next = node->prev = WEFT_KV_NONE;
    if (node->parent == WEFT_KV_NONE) return;
    struct node *parent = &cache->nodes[node->parent];
    node->next = parent->first_child;
    if (node->next != WEFT_KV_NONE) cache->nodes[node->next].prev = block;
    parent->first_child = block;
    unlist(cache, node->parent); /* it is no leaf any more */
}

static void unlink_child(weft_kv_prefix_cache *cache, weft_kv_block block) {
    const struct node *node = &cache->nodes[block];
    if (node->parent == WEFT_KV_NONE) return;
    if (node->next != WEFT_KV_NONE) cache->nodes[node->next].prev = node->prev;
    if (node->prev != WEFT_KV_NONE)
        cache->nodes[node->prev].next = node->next;
    else
        cache->nodes[node->parent].first_child = node->next;
}

/* The oldest idle leaf. Its parent, if that is an idle leaf now, is as old as this one, unless it was
 * used later by others. */
static void evict_one(weft_kv_prefix_cache *cache) {
    weft_kv_block block = cache->oldest;
    WEFT_ASSERT(block != WEFT_KV_NONE && is_idle(cache, block));
    struct node *node = &cache->nodes[block];
    weft_kv_block parent = node->parent;
    WEFT_ASSERT(node->first_child == WEFT_KV_NONE);
    unlist(cache, block);
    table_remove(cache, block);
    unlink_child(cache, block);
    forget_beside(cache, block);
    node->is_node = false;
    cache->n_nodes--;
    cache->n_idle--;
    cache->n_evicted++;
    weft_kv_drop(cache->pool, block);
    if (parent == WEFT_KV_NONE || !is_idle(cache, parent)) return;
    if (cache->nodes[parent].first_child != WEFT_KV_NONE) return;
    /* Released together, a parent comes right after its child. */
    if (cache->nodes[parent].idle_since > node->idle_since + 1)
        list_newest(cache, parent);
    else
        list_oldest(cache, parent);
}

/* --------------------------------------------------------------------------------- finding --- */

static uint32_t n_alike(const uint32_t *a, const uint32_t *b, uint32_t n) {
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

static void find_partial(const weft_kv_prefix_cache *cache, weft_kv_block parent,
                         const uint32_t *tokens, uint32_t n_tokens, struct weft_kv_match *match) {
    if (parent == WEFT_KV_NONE) return; /* less than one block in all */
    uint32_t n = n_tokens < cache->block_size ? n_tokens : cache->block_size, tries = 0;
    for (weft_kv_block child = cache->nodes[parent].first_child;
         child != WEFT_KV_NONE && tries < PARTIAL_TRIES;
         child = cache->nodes[child].next, tries++) {
        uint32_t n_same = n_alike(tokens_of(cache, child), tokens, n);
        if (n_same <= match->n_partial) continue;
        match->partial = child;
        match->n_partial = n_same;
    }
}

void weft_kv_prefix_find(const weft_kv_prefix_cache *cache, const struct weft_kv_space *space,
                         const uint32_t *tokens, uint32_t n_tokens, weft_kv_block *blocks_out,
                         uint32_t cap, struct weft_kv_match *match_out) {
    weft_kv_block last = WEFT_KV_NONE;
    uint32_t n = 0, n_whole = n_tokens / cache->block_size;
    *match_out = (struct weft_kv_match){.partial = WEFT_KV_NONE};
    if (n_whole > cap) n_whole = cap;
    for (; n < n_whole; n++) {
        const uint32_t *its = tokens + (size_t)n * cache->block_size;
        struct place place = place_below(space, last);
        weft_kv_block block = look_up(cache, hash_of(cache, &place, its), &place, its);
        if (block == WEFT_KV_NONE) break;
        blocks_out[n] = last = block;
    }
    match_out->n_blocks = n;
    find_partial(cache, last, tokens + (size_t)n * cache->block_size,
                 n_tokens - n * cache->block_size, match_out);
}

weft_err weft_kv_prefix_use(weft_kv_prefix_cache *cache, const struct weft_kv_space *space,
                            const weft_kv_block *blocks, uint32_t n, struct weft_kv_table *table,
                            struct weft_kv_chain *chain) {
    WEFT_ASSERT(table->n == 0 && n <= table->cap);
    for (uint32_t i = 0; i < n; i++) {
        WEFT_ASSERT(cache->nodes[blocks[i]].is_node);
        if (weft_kv_holders(cache->pool, blocks[i]) == WEFT_KV_HOLDERS_MAX) return WEFT_E_FULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        hold(cache, blocks[i]);
        table->blocks[i] = blocks[i];
    }
    table->n = n;
    *chain = (struct weft_kv_chain){.space = *space, .n = n};
    return WEFT_OK;
}

weft_err weft_kv_prefix_fork(weft_kv_prefix_cache *cache, const struct weft_kv_table *parent,
                             const struct weft_kv_chain *parent_chain, uint32_t n,
                             struct weft_kv_table *child, struct weft_kv_chain *child_chain) {
    weft_err err = weft_kv_table_fork(cache->pool, parent, n, child);
    if (err) return err;
    *child_chain = *parent_chain;
    if (child_chain->n > n) child_chain->n = n;
    return WEFT_OK;
}

/* ------------------------------------------------------------------------------ publishing --- */

static void add_node(weft_kv_prefix_cache *cache, weft_kv_block block, const struct place *place,
                     uint64_t hash, const uint32_t *tokens) {
    struct node *node = &cache->nodes[block];
    WEFT_ASSERT(!node->is_node && weft_kv_holders(cache->pool, block) >= 1);
    *node = (struct node){.space = place->space,
                          .hash = hash,
                          .birth = ++cache->clock,
                          .parent = (weft_kv_block)place->parent,
                          .first_child = WEFT_KV_NONE,
                          .is_node = true};
    memcpy(tokens_of(cache, block), tokens, cache->block_size * sizeof *tokens);
    table_add(cache, block);
    link_child(cache, block);
    cache->n_nodes++;
}

bool weft_kv_prefix_publish(weft_kv_prefix_cache *cache, const struct weft_kv_table *table,
                            struct weft_kv_chain *chain, const uint32_t *tokens) {
    if (chain->is_closed) return false;
    WEFT_ASSERT(chain->n < table->n);
    weft_kv_block block = table->blocks[chain->n];
    struct place place =
        place_below(&chain->space, chain->n ? table->blocks[chain->n - 1] : WEFT_KV_NONE);
    uint64_t hash = hash_of(cache, &place, tokens);
    weft_kv_block there = look_up(cache, hash, &place, tokens);
    bool is_new = there == WEFT_KV_NONE;
    if (is_new && !weft_kv_share(cache->pool, block)) /* the cache's own holder */
        add_node(cache, block, &place, hash, tokens);
    else if (there != block) /* a sibling that shares the block may have published it */
        chain->is_closed = true;
    if (chain->is_closed) return false;
    chain->n++;
    return is_new;
}

weft_kv_block weft_kv_prefix_child(const weft_kv_prefix_cache *cache,
                                   const struct weft_kv_space *space, weft_kv_block parent,
                                   const uint32_t *tokens) {
    struct place place = place_below(space, parent);
    return look_up(cache, hash_of(cache, &place, tokens), &place, tokens);
}

uint64_t weft_kv_prefix_birth(const weft_kv_prefix_cache *cache, weft_kv_block block) {
    const struct node *node = &cache->nodes[block];
    return node->is_node ? node->birth : 0;
}

void weft_kv_prefix_release(weft_kv_prefix_cache *cache, struct weft_kv_table *table,
                            struct weft_kv_chain *chain) {
    *chain = (struct weft_kv_chain){0};
    while (table->n > 0)
        let_go(cache, table->blocks[--table->n]);
}

/* ------------------------------------------------------------------------------------ room --- */

bool weft_kv_prefix_is_own(const weft_kv_prefix_cache *cache, weft_kv_block block) {
    return weft_kv_holders(cache->pool, block) == 1u + cache->nodes[block].is_node;
}

uint32_t weft_kv_prefix_n_idle(const weft_kv_prefix_cache *cache) {
    return cache->n_idle;
}

uint32_t weft_kv_prefix_n_nodes(const weft_kv_prefix_cache *cache) {
    return cache->n_nodes;
}

weft_err weft_kv_prefix_make_room(weft_kv_prefix_cache *cache, uint32_t n_free) {
    uint64_t within_reach = (uint64_t)weft_kv_n_free(cache->pool) + cache->n_idle;
    if (n_free > within_reach) return WEFT_E_FULL;
    while (weft_kv_n_free(cache->pool) < n_free)
        evict_one(cache);
    return WEFT_OK;
}

weft_err weft_kv_prefix_grow(weft_kv_prefix_cache *cache, struct weft_kv_table *table,
                             uint32_t n_wanted) {
    if (n_wanted <= table->n) return WEFT_OK;
    weft_err err = weft_kv_prefix_make_room(cache, n_wanted - table->n);
    return err ? err : weft_kv_table_grow(cache->pool, table, n_wanted);
}

/* The source is held meanwhile, so that it is not what gets evicted. */
weft_err weft_kv_prefix_append_copy(weft_kv_prefix_cache *cache, weft_kv_block from,
                                    struct weft_kv_table *table, struct weft_kv_copy *copy_out) {
    WEFT_ASSERT(weft_kv_holders(cache->pool, from) > 0);
    if (weft_kv_holders(cache->pool, from) == WEFT_KV_HOLDERS_MAX) return WEFT_E_FULL;
    hold(cache, from);
    weft_err err = weft_kv_prefix_grow(cache, table, table->n + 1);
    let_go(cache, from);
    if (!err) *copy_out = (struct weft_kv_copy){from, table->blocks[table->n - 1]};
    return err;
}

uint64_t weft_kv_prefix_n_evicted(const weft_kv_prefix_cache *cache) {
    return cache->n_evicted;
}

void weft_kv_prefix_reset(weft_kv_prefix_cache *cache) {
    for (weft_kv_block block = 0; block < cache->n_blocks; block++) {
        if (!cache->nodes[block].is_node) continue;
        cache->nodes[block].is_node = cache->nodes[block].is_listed = false;
        forget_beside(cache, block);
        weft_kv_drop(cache->pool, block);
    }
    memset(cache->table, 0xff, ((size_t)cache->table_mask + 1) * sizeof *cache->table);
    cache->n_nodes = cache->n_idle = 0;
    cache->oldest = cache->newest = WEFT_KV_NONE;
}

/* ----------------------------------------------------------------------------------- check --- */

static void check_node(const weft_kv_prefix_cache *cache, weft_kv_block block) {
    const struct node *node = &cache->nodes[block];
    const struct place place = {node->space, node->parent};
    WEFT_ASSERT(look_up(cache, node->hash, &place, tokens_of(cache, block)) == block);
    WEFT_ASSERT(weft_kv_holders(cache->pool, block) >= 1);
    WEFT_ASSERT(node->is_listed == (is_idle(cache, block) && node->first_child == WEFT_KV_NONE));
    for (weft_kv_block child = node->first_child; child != WEFT_KV_NONE;
         child = cache->nodes[child].next)
        WEFT_ASSERT(cache->nodes[child].is_node && cache->nodes[child].parent == block);
    if (node->parent == WEFT_KV_NONE) return;
    WEFT_ASSERT(cache->nodes[node->parent].is_node);
    WEFT_ASSERT(is_idle(cache, block) || !is_idle(cache, node->parent));
}

void weft_kv_prefix_check_chain(const weft_kv_prefix_cache *cache,
                                const struct weft_kv_table *table,
                                const struct weft_kv_chain *chain) {
    WEFT_ASSERT(chain->n <= table->n);
    for (uint32_t i = 0; i < chain->n; i++) {
        const struct node *node = &cache->nodes[table->blocks[i]];
        WEFT_ASSERT(node->is_node);
        WEFT_ASSERT(node->parent == (i ? table->blocks[i - 1] : WEFT_KV_NONE));
    }
}

void weft_kv_prefix_check(const weft_kv_prefix_cache *cache) {
    uint32_t n_nodes = 0, n_idle = 0, n_listed = 0, n_slots = 0, n_listable = 0;
    for (weft_kv_block block = 0; block < cache->n_blocks; block++) {
        if (!cache->nodes[block].is_node) continue;
        check_node(cache, block);
        n_nodes++;
        n_idle += is_idle(cache, block);
        n_listable += cache->nodes[block].is_listed;
    }
    for (weft_kv_block b = cache->oldest; b != WEFT_KV_NONE; b = cache->nodes[b].newer) {
        WEFT_ASSERT(cache->nodes[b].is_listed && n_listed < cache->n_blocks);
        n_listed++;
    }
    for (uint32_t i = 0; i <= cache->table_mask; i++)
        n_slots += cache->table[i] != WEFT_KV_NONE;
    WEFT_ASSERT(n_nodes == cache->n_nodes && n_nodes == n_slots);
    WEFT_ASSERT(n_idle == cache->n_idle && n_listed == n_listable);
}
