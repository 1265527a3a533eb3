/* Two arrays: by node its twin, by block what is known of it as a twin. */
#include "paged_kv/windows.h"

#include <stdbool.h>
#include <string.h>

#include "base/check.h"

#define ALIGN 64

/* Who goes first when room is needed. */
enum tier { PASSED, WORTH_MORE, TIERS };

struct twin {
    weft_kv_block node; /* NONE: it is nobody's */
    weft_kv_block older, newer;
    uint8_t tier;
    bool is_listed; /* exactly if it is idle */
    bool was_hit;
};

struct list {
    weft_kv_block oldest, newest;
};

struct weft_kv_windows {
    weft_kv_pool *pool;
    uint32_t n_nodes, n_blocks;
    uint32_t n_twins, n_idle;
    struct list lists[TIERS];
    struct twin *twins; /* [n_blocks] */
    weft_kv_block *of;  /* [n_nodes] */
};

static size_t aligned(size_t n) {
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

size_t weft_kv_windows_bytes(uint32_t n_nodes, uint32_t n_blocks) {
    if (n_blocks == 0 || n_blocks > WEFT_KV_BLOCKS_MAX) return 0;
    if (n_nodes == 0 || n_nodes > WEFT_KV_BLOCKS_MAX) return 0;
    return aligned(sizeof(weft_kv_windows)) + aligned(n_blocks * sizeof(struct twin)) +
           n_nodes * sizeof(weft_kv_block);
}

weft_err weft_kv_windows_init(void *mem, size_t mem_bytes, weft_kv_pool *pool, uint32_t n_nodes,
                              weft_kv_windows **windows_out) {
    *windows_out = NULL;
    uint32_t n_blocks = weft_kv_n_blocks(pool);
    size_t wanted = weft_kv_windows_bytes(n_nodes, n_blocks);
    if (wanted == 0 || mem_bytes < wanted) return WEFT_E_INVAL;
    WEFT_ASSERT((uintptr_t)mem % ALIGN == 0);
    unsigned char *at = mem;
    weft_kv_windows *windows = mem;
    *windows = (weft_kv_windows){.pool = pool, .n_nodes = n_nodes, .n_blocks = n_blocks};
    for (uint32_t i = 0; i < TIERS; i++)
        windows->lists[i] = (struct list){WEFT_KV_NONE, WEFT_KV_NONE};
    at += aligned(sizeof *windows);
    windows->twins = (struct twin *)(void *)at;
    for (uint32_t i = 0; i < n_blocks; i++)
        windows->twins[i] = (struct twin){.node = WEFT_KV_NONE};
    at += aligned(n_blocks * sizeof *windows->twins);
    windows->of = (weft_kv_block *)(void *)at;
    memset(windows->of, 0xff, n_nodes * sizeof *windows->of);
    _Static_assert(WEFT_KV_NONE == UINT32_MAX, "all bits set is no twin");
    *windows_out = windows;
    return WEFT_OK;
}

/* ------------------------------------------------------------------------------ idle twins --- */

static void list_newest(weft_kv_windows *windows, weft_kv_block block, enum tier tier) {
    struct twin *twin = &windows->twins[block];
    struct list *list = &windows->lists[tier];
    twin->is_listed = true;
    twin->tier = (uint8_t)tier;
    twin->newer = WEFT_KV_NONE;
    twin->older = list->newest;
    if (list->newest != WEFT_KV_NONE)
        windows->twins[list->newest].newer = block;
    else
        list->oldest = block;
    list->newest = block;
    windows->n_idle++;
}

static void unlist(weft_kv_windows *windows, weft_kv_block block) {
    struct twin *twin = &windows->twins[block];
    struct list *list = &windows->lists[twin->tier];
    if (!twin->is_listed) return;
    twin->is_listed = false;
    if (twin->older == WEFT_KV_NONE)
        list->oldest = twin->newer;
    else
        windows->twins[twin->older].newer = twin->newer;
    if (twin->newer == WEFT_KV_NONE)
        list->newest = twin->older;
    else
        windows->twins[twin->newer].older = twin->older;
    windows->n_idle--;
}

/* One holder less. */
static void let_go(weft_kv_windows *windows, weft_kv_block block, enum tier tier) {
    const struct twin *twin = &windows->twins[block];
    weft_kv_drop(windows->pool, block);
    if (twin->node == WEFT_KV_NONE || weft_kv_holders(windows->pool, block) > 1) return;
    list_newest(windows, block, twin->was_hit ? WORTH_MORE : tier);
}

/* One holder more, of a block that is held. */
static weft_err hold(weft_kv_windows *windows, weft_kv_block block) {
    weft_err err = weft_kv_share(windows->pool, block);
    if (!err) unlist(windows, block);
    return err;
}

/* ----------------------------------------------------------------------------------- twins --- */

weft_kv_block weft_kv_windows_twin(const weft_kv_windows *windows, weft_kv_block node) {
    WEFT_ASSERT(node < windows->n_nodes);
    return windows->of[node];
}

void weft_kv_windows_keep(weft_kv_windows *windows, weft_kv_block node, weft_kv_block block) {
    WEFT_ASSERT(node < windows->n_nodes && weft_kv_holders(windows->pool, block) > 0);
    struct twin *twin = &windows->twins[block];
    if (windows->of[node] != WEFT_KV_NONE || twin->node != WEFT_KV_NONE) return;
    if (weft_kv_share(windows->pool, block)) return; /* it is a loss, and no harm */
    *twin = (struct twin){.node = node};
    windows->of[node] = block;
    windows->n_twins++;
}

void weft_kv_windows_forget(weft_kv_windows *windows, weft_kv_block node) {
    weft_kv_block block = windows->of[node];
    if (block == WEFT_KV_NONE) return;
    unlist(windows, block);
    windows->twins[block].node = windows->of[node] = WEFT_KV_NONE;
    windows->n_twins--;
    weft_kv_drop(windows->pool, block);
}

uint32_t weft_kv_windows_n_idle(const weft_kv_windows *windows) {
    return windows->n_idle;
}

uint32_t weft_kv_windows_n_twins(const weft_kv_windows *windows) {
    return windows->n_twins;
}

/* Evicts until the pool has n_free free blocks. WEFT_E_FULL: it cannot; no change. */
static weft_err make_room(weft_kv_windows *windows, uint32_t n_free) {
    uint64_t within_reach = (uint64_t)weft_kv_n_free(windows->pool) + windows->n_idle;
    if (n_free > within_reach) return WEFT_E_FULL;
    while (weft_kv_n_free(windows->pool) < n_free) {
        const struct list *list = &windows->lists[PASSED];
        if (list->oldest == WEFT_KV_NONE) list = &windows->lists[WORTH_MORE];
        weft_kv_windows_forget(windows, windows->twins[list->oldest].node);
    }
    return WEFT_OK;
}

/* ---------------------------------------------------------------------------------- tables --- */

void weft_kv_window_table_init(struct weft_kv_window_table *table, weft_kv_block *storage,
                               uint32_t cap, uint32_t first) {
    WEFT_ASSERT(first <= cap);
    *table = (struct weft_kv_window_table){storage, first, first, cap};
}

weft_err weft_kv_windows_share(weft_kv_windows *windows, weft_kv_block block,
                               struct weft_kv_window_table *table) {
    WEFT_ASSERT(table->n < table->cap);
    weft_err err = hold(windows, block);
    if (err) return err;
    windows->twins[block].was_hit = true;
    table->blocks[table->n++] = block;
    return WEFT_OK;
}

weft_err weft_kv_windows_grow(weft_kv_windows *windows, struct weft_kv_window_table *table,
                              uint32_t n_wanted) {
    WEFT_ASSERT(n_wanted <= table->cap);
    if (n_wanted <= table->n) return WEFT_OK;
    weft_err err = make_room(windows, n_wanted - table->n);
    if (err) return err;
    while (table->n < n_wanted) {
        err = weft_kv_take(windows->pool, &table->blocks[table->n]);
        WEFT_ASSERT(!err); /* room was made */
        table->n++;
    }
    return WEFT_OK;
}

/* The source is held meanwhile, so that it is not what gets evicted. */
weft_err weft_kv_windows_append_copy(weft_kv_windows *windows, weft_kv_block from,
                                     struct weft_kv_window_table *table,
                                     struct weft_kv_copy *copy_out) {
    weft_err err = hold(windows, from);
    if (err) return err;
    windows->twins[from].was_hit = true;
    err = weft_kv_windows_grow(windows, table, table->n + 1);
    let_go(windows, from, WORTH_MORE);
    if (!err) *copy_out = (struct weft_kv_copy){from, table->blocks[table->n - 1]};
    return err;
}

void weft_kv_windows_move(weft_kv_windows *windows, struct weft_kv_window_table *table,
                          uint32_t first) {
    for (; table->first < first && table->first < table->n; table->first++)
        let_go(windows, table->blocks[table->first], PASSED);
}

/* From the end, as the prefix cache does it: a prefix loses its last block first. */
void weft_kv_windows_release(weft_kv_windows *windows, struct weft_kv_window_table *table) {
    while (table->n > table->first)
        let_go(windows, table->blocks[--table->n], WORTH_MORE);
}

/* ----------------------------------------------------------------------------------- check --- */

void weft_kv_windows_check(const weft_kv_windows *windows) {
    uint32_t n_twins = 0, n_idle = 0, n_listed = 0;
    weft_kv_pool_check(windows->pool);
    for (uint32_t node = 0; node < windows->n_nodes; node++) {
        weft_kv_block block = windows->of[node];
        if (block == WEFT_KV_NONE) continue;
        WEFT_ASSERT(block < windows->n_blocks && windows->twins[block].node == node);
        n_twins++;
    }
    WEFT_ASSERT(n_twins == windows->n_twins);
    for (weft_kv_block block = 0; block < windows->n_blocks; block++) {
        const struct twin *twin = &windows->twins[block];
        uint32_t n_holders = weft_kv_holders(windows->pool, block);
        bool is_twin = twin->node != WEFT_KV_NONE;
        WEFT_ASSERT(!is_twin || (windows->of[twin->node] == block && n_holders > 0));
        WEFT_ASSERT(twin->is_listed == (is_twin && n_holders == 1));
        n_twins -= is_twin;
        n_idle += twin->is_listed;
    }
    WEFT_ASSERT(n_twins == 0 && n_idle == windows->n_idle);
    for (uint32_t tier = 0; tier < TIERS; tier++) {
        for (weft_kv_block b = windows->lists[tier].oldest; b != WEFT_KV_NONE;
             b = windows->twins[b].newer) {
            WEFT_ASSERT(windows->twins[b].is_listed && windows->twins[b].tier == tier);
            n_listed++;
        }
    }
    WEFT_ASSERT(n_listed == n_idle);
}
