/* Two arrays: by id where it is, by node its id. Free ids are a stack; those of nodes a list. */
#include "paged_kv/checkpoints.h"

#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"

#define ALIGN 64

enum place { FREE, TAKEN, HUNG };

struct checkpoint {
    weft_kv_block node;    /* if HUNG */
    uint32_t older, newer; /* likewise; `older` of a free one is the next free one */
    uint32_t place;        /* enum place */
};

struct weft_kv_checkpoints {
    uint32_t n, n_nodes, n_taken, n_hung;
    uint32_t first_free, oldest, newest; /* NONE: there is none */
    uint64_t n_evicted;
    struct checkpoint *all; /* [n] */
    uint32_t *of;           /* [n_nodes] */
};

static size_t aligned(size_t n) {
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

size_t weft_kv_checkpoints_bytes(uint32_t n, uint32_t n_nodes) {
    if (n == 0 || n > WEFT_STATE_CHECKPOINTS_MAX) return 0;
    if (n_nodes == 0 || n_nodes > WEFT_KV_BLOCKS_MAX) return 0;
    return aligned(sizeof(weft_kv_checkpoints)) + aligned(n * sizeof(struct checkpoint)) +
           n_nodes * sizeof(uint32_t);
}

static void put_free(weft_kv_checkpoints *checkpoints, uint32_t id) {
    checkpoints->all[id] =
        (struct checkpoint){.place = FREE, .older = checkpoints->first_free, .node = WEFT_KV_NONE};
    checkpoints->first_free = id;
}

weft_err weft_kv_checkpoints_init(void *mem, size_t mem_bytes, uint32_t n, uint32_t n_nodes,
                                  weft_kv_checkpoints **checkpoints_out) {
    *checkpoints_out = NULL;
    size_t wanted = weft_kv_checkpoints_bytes(n, n_nodes);
    if (wanted == 0 || mem_bytes < wanted) return WEFT_E_INVAL;
    WEFT_ASSERT((uintptr_t)mem % ALIGN == 0);
    unsigned char *at = mem;
    weft_kv_checkpoints *checkpoints = mem;
    *checkpoints = (weft_kv_checkpoints){.n = n,
                                         .n_nodes = n_nodes,
                                         .first_free = WEFT_KV_NONE,
                                         .oldest = WEFT_KV_NONE,
                                         .newest = WEFT_KV_NONE};
    at += aligned(sizeof *checkpoints);
    checkpoints->all = (struct checkpoint *)(void *)at;
    for (uint32_t id = n; id-- > 0;)
        put_free(checkpoints, id); /* low ones come first */
    at += aligned(n * sizeof *checkpoints->all);
    checkpoints->of = (uint32_t *)(void *)at;
    memset(checkpoints->of, 0xff, n_nodes * sizeof *checkpoints->of);
    _Static_assert(WEFT_KV_NONE == UINT32_MAX, "all bits set is no checkpoint");
    *checkpoints_out = checkpoints;
    return WEFT_OK;
}

static void unlist(weft_kv_checkpoints *checkpoints, uint32_t id) {
    const struct checkpoint *one = &checkpoints->all[id];
    if (one->older == WEFT_KV_NONE)
        checkpoints->oldest = one->newer;
    else
        checkpoints->all[one->older].newer = one->newer;
    if (one->newer == WEFT_KV_NONE)
        checkpoints->newest = one->older;
    else
        checkpoints->all[one->newer].older = one->older;
}

static void list_newest(weft_kv_checkpoints *checkpoints, uint32_t id) {
    struct checkpoint *one = &checkpoints->all[id];
    one->newer = WEFT_KV_NONE;
    one->older = checkpoints->newest;
    if (checkpoints->newest != WEFT_KV_NONE)
        checkpoints->all[checkpoints->newest].newer = id;
    else
        checkpoints->oldest = id;
    checkpoints->newest = id;
}

uint32_t weft_kv_checkpoints_lift(weft_kv_checkpoints *checkpoints, weft_kv_block node) {
    uint32_t id = weft_kv_checkpoints_of(checkpoints, node);
    if (id == WEFT_KV_NONE) return id;
    WEFT_ASSERT(checkpoints->all[id].place == HUNG && checkpoints->all[id].node == node);
    unlist(checkpoints, id);
    checkpoints->of[node] = WEFT_KV_NONE;
    checkpoints->all[id].place = TAKEN;
    checkpoints->n_hung--;
    checkpoints->n_taken++;
    return id;
}

void weft_kv_checkpoints_forget(weft_kv_checkpoints *checkpoints, weft_kv_block node) {
    uint32_t id = weft_kv_checkpoints_lift(checkpoints, node);
    if (id != WEFT_KV_NONE) weft_kv_checkpoints_drop(checkpoints, id);
}

uint32_t weft_kv_checkpoints_take(weft_kv_checkpoints *checkpoints) {
    if (checkpoints->first_free == WEFT_KV_NONE) {
        if (checkpoints->oldest == WEFT_KV_NONE) return WEFT_KV_NONE;
        weft_kv_checkpoints_forget(checkpoints, checkpoints->all[checkpoints->oldest].node);
        checkpoints->n_evicted++;
    }
    uint32_t id = checkpoints->first_free;
    WEFT_ASSERT(checkpoints->all[id].place == FREE);
    checkpoints->first_free = checkpoints->all[id].older;
    checkpoints->all[id].place = TAKEN;
    checkpoints->n_taken++;
    return id;
}

void weft_kv_checkpoints_drop(weft_kv_checkpoints *checkpoints, uint32_t id) {
    WEFT_ASSERT(id < checkpoints->n && checkpoints->all[id].place == TAKEN);
    checkpoints->n_taken--;
    put_free(checkpoints, id);
}

void weft_kv_checkpoints_hang(weft_kv_checkpoints *checkpoints, uint32_t id, weft_kv_block node) {
    WEFT_ASSERT(id < checkpoints->n && checkpoints->all[id].place == TAKEN);
    if (weft_kv_checkpoints_of(checkpoints, node) != WEFT_KV_NONE) {
        weft_kv_checkpoints_drop(checkpoints, id);
        return;
    }
    checkpoints->n_taken--;
    checkpoints->n_hung++;
    checkpoints->all[id].place = HUNG;
    checkpoints->all[id].node = node;
    checkpoints->of[node] = id;
    list_newest(checkpoints, id);
}

uint32_t weft_kv_checkpoints_of(const weft_kv_checkpoints *checkpoints, weft_kv_block node) {
    WEFT_ASSERT(node < checkpoints->n_nodes);
    return checkpoints->of[node];
}

void weft_kv_checkpoints_use(weft_kv_checkpoints *checkpoints, uint32_t id) {
    WEFT_ASSERT(id < checkpoints->n && checkpoints->all[id].place == HUNG);
    unlist(checkpoints, id);
    list_newest(checkpoints, id);
}

uint32_t weft_kv_checkpoints_n_hung(const weft_kv_checkpoints *checkpoints) {
    return checkpoints->n_hung;
}

uint32_t weft_kv_checkpoints_n_taken(const weft_kv_checkpoints *checkpoints) {
    return checkpoints->n_taken;
}

uint64_t weft_kv_checkpoints_n_evicted(const weft_kv_checkpoints *checkpoints) {
    return checkpoints->n_evicted;
}

void weft_kv_checkpoints_check(const weft_kv_checkpoints *checkpoints) {
    uint32_t n_in[HUNG + 1] = {0}, n_listed = 0, n_free = 0, n_of = 0;
    for (uint32_t id = 0; id < checkpoints->n; id++) {
        const struct checkpoint *one = &checkpoints->all[id];
        WEFT_ASSERT(one->place <= HUNG);
        n_in[one->place]++;
        WEFT_ASSERT(one->place != HUNG || checkpoints->of[one->node] == id);
    }
    for (uint32_t id = checkpoints->oldest; id != WEFT_KV_NONE; id = checkpoints->all[id].newer) {
        WEFT_ASSERT(checkpoints->all[id].place == HUNG && n_listed < checkpoints->n);
        n_listed++;
    }
    for (uint32_t id = checkpoints->first_free; id != WEFT_KV_NONE;
         id = checkpoints->all[id].older) {
        WEFT_ASSERT(checkpoints->all[id].place == FREE && n_free < checkpoints->n);
        n_free++;
    }
    for (uint32_t node = 0; node < checkpoints->n_nodes; node++)
        n_of += checkpoints->of[node] != WEFT_KV_NONE;
    WEFT_ASSERT(n_in[FREE] == n_free && n_in[TAKEN] == checkpoints->n_taken);
    WEFT_ASSERT(n_in[HUNG] == n_listed && n_listed == n_of && n_of == checkpoints->n_hung);
}
