/* prefix_cache — full KV blocks by the tokens that led to them, so that sequences that begin alike
 * share what was computed for one of them.
 *
 * Model    A forest. A node is a block of the pool together with its `block_size` tokens, below the node
 *          of the tokens before them. Roots belong to a space: what besides tokens decides on K and V (an
 *          adapter, a salt). A node is found by comparing tokens; the hash only says where to look.
 * Holding  The cache is one holder of a node's block, each sequence that uses it another. A node that
 *          only the cache holds is idle. Idle nodes without children can be evicted, the one that
 *          became idle first before others. Whoever holds a node holds those above it, so all idle
 *          nodes can be had in the end.
 * Chains   A sequence publishes its blocks in order, through its chain, whose nodes are its table's
 *          first blocks. If another one published the same tokens before, the chain ends there: the
 *          sequence goes on with its own block, and the cache with the other's.
 * Cost     O(1) for each block looked up, published, used, let go or evicted; no allocation.
 * Threads  One owner, that of the pool. Memory: in the storage given to init.
 * Source   Hash chains of blocks: vLLM's automatic prefix caching; a tree, evicted from its leaves: Zheng
 *          et al., SGLang, 2024. Checked in tests/property/prop_prefix_cache.c.
 */
#ifndef WEFT_PAGED_KV_PREFIX_CACHE_H
#define WEFT_PAGED_KV_PREFIX_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "paged_kv/checkpoints.h"
#include "paged_kv/paged_kv.h"
#include "paged_kv/windows.h"

typedef struct weft_kv_prefix_cache weft_kv_prefix_cache;

struct weft_kv_space {
    uint64_t hi, lo; /* equal ones are the same space: make them so that no two collide */
};

/* What a sequence has published. Zeroes: nothing yet, in the space that it names. */
struct weft_kv_chain {
    struct weft_kv_space space;
    uint32_t n;     /* nodes: the table's first blocks */
    bool is_closed; /* it publishes no more */
};

struct weft_kv_match {
    uint32_t n_blocks;     /* whole blocks, from the first token on */
    weft_kv_block partial; /* the block after them whose tokens begin alike; NONE: none does */
    uint32_t n_partial;    /* so many of its tokens */
};

/* Storage in bytes; 0: out of range. */
size_t weft_kv_prefix_bytes(uint32_t n_blocks, uint32_t block_size);

/* An empty cache of the pool's blocks inside `mem` (64-byte aligned). `seed`: of the hash, drawn by
 * the caller, so that no client can choose tokens that collide. WEFT_E_INVAL: `mem` is short. */
WEFT_MUST_CHECK weft_err weft_kv_prefix_init(void *mem, size_t mem_bytes, weft_kv_pool *pool,
                                             uint32_t block_size, uint64_t seed,
                                             weft_kv_prefix_cache **cache_out);

/* From here on nodes may have twins there, which go with them. */
void weft_kv_prefix_pair(weft_kv_prefix_cache *cache, weft_kv_windows *windows);
/* The same of checkpoints. */
void weft_kv_prefix_pair_states(weft_kv_prefix_cache *cache, weft_kv_checkpoints *checkpoints);

/* The longest prefix of the tokens that is there: its blocks, at most `cap`, into blocks_out. */
void weft_kv_prefix_find(const weft_kv_prefix_cache *cache, const struct weft_kv_space *space,
                         const uint32_t *tokens, uint32_t n_tokens, weft_kv_block *blocks_out,
                         uint32_t cap, struct weft_kv_match *match_out);

/* Makes an empty table hold the first `n` blocks found, and begins its chain there. WEFT_E_FULL: a
 * block has too many holders; no change. */
WEFT_MUST_CHECK weft_err weft_kv_prefix_use(weft_kv_prefix_cache *cache,
                                            const struct weft_kv_space *space,
                                            const weft_kv_block *blocks, uint32_t n,
                                            struct weft_kv_table *table,
                                            struct weft_kv_chain *chain);

/* Makes an empty table share the first `n` blocks of another one of the cache's users, and its chain
 * what is published of them. WEFT_E_FULL: a block has too many holders; no change. */
WEFT_MUST_CHECK weft_err weft_kv_prefix_fork(weft_kv_prefix_cache *cache,
                                             const struct weft_kv_table *parent,
                                             const struct weft_kv_chain *parent_chain, uint32_t n,
                                             struct weft_kv_table *child,
                                             struct weft_kv_chain *child_chain);

/* Appends a block of the table's own, into which the tokens of a held one are to be copied: a match's
 * partial block, or a sibling's last. Evicts for it if need be. WEFT_E_FULL: no
 * change. */
WEFT_MUST_CHECK weft_err weft_kv_prefix_append_copy(weft_kv_prefix_cache *cache, weft_kv_block from,
                                                    struct weft_kv_table *table,
                                                    struct weft_kv_copy *copy_out);

/* As weft_kv_table_grow, and evicts for it if need be. */
WEFT_MUST_CHECK weft_err weft_kv_prefix_grow(weft_kv_prefix_cache *cache,
                                             struct weft_kv_table *table, uint32_t n_wanted);

/* Publishes a table's block chain->n, which holds these `block_size` tokens. False: the same tokens
 * are there already, in another block, and the chain is closed; or it was before. */
bool weft_kv_prefix_publish(weft_kv_prefix_cache *cache, const struct weft_kv_table *table,
                            struct weft_kv_chain *chain, const uint32_t *tokens);

/* The node of these tokens below `parent`, a node, or NONE: at the root of the space. NONE: there is
 * none. */
weft_kv_block weft_kv_prefix_child(const weft_kv_prefix_cache *cache,
                                   const struct weft_kv_space *space, weft_kv_block parent,
                                   const uint32_t *tokens);
/* A number that no other node has, before or after; 0: the block is no node. */
uint64_t weft_kv_prefix_birth(const weft_kv_prefix_cache *cache, weft_kv_block block);

/* Drops a table's blocks and clears its chain. What was published stays, until it is evicted. */
void weft_kv_prefix_release(weft_kv_prefix_cache *cache, struct weft_kv_table *table,
                            struct weft_kv_chain *chain);

/* Whether one table alone holds this block, beside the cache. In a table such blocks come after all
 * others: whoever shares a block shares those before it. */
bool weft_kv_prefix_is_own(const weft_kv_prefix_cache *cache, weft_kv_block block);

/* Blocks that make_room could make free. */
uint32_t weft_kv_prefix_n_idle(const weft_kv_prefix_cache *cache);
uint32_t weft_kv_prefix_n_nodes(const weft_kv_prefix_cache *cache);
uint64_t weft_kv_prefix_n_evicted(const weft_kv_prefix_cache *cache); /* ever */

/* Evicts until the pool has `n_free` free blocks. WEFT_E_FULL: it cannot; no change. */
WEFT_MUST_CHECK weft_err weft_kv_prefix_make_room(weft_kv_prefix_cache *cache, uint32_t n_free);

/* Forgets everything. Blocks in use stay with those who use them. The caller closes all chains. */
void weft_kv_prefix_reset(weft_kv_prefix_cache *cache);

/* Asserts that a chain's nodes are its table's first blocks, each below the one before. */
void weft_kv_prefix_check_chain(const weft_kv_prefix_cache *cache,
                                const struct weft_kv_table *table,
                                const struct weft_kv_chain *chain);

/* Walks everything and asserts: tree, table of hashes, list of idle leaves and holders agree. */
void weft_kv_prefix_check(const weft_kv_prefix_cache *cache);

#endif
