/* Checkpoints against a model that looks at all of them: who is free, taken or on which node, and which of these was
 * used last. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/rand.h"
#include "paged_kv/checkpoints.h"

enum { N_MAX = 12, NODES = 20, ROUNDS = 300, STEPS = 400 };

struct model {
    uint32_t n, node_of[N_MAX]; /* NODES: nobody's; else the node, or NODES + 1: taken */
    uint64_t used[N_MAX], clock, n_evicted;
};

static uint32_t count(const struct model *model, uint32_t node) {
    uint32_t n = 0;
    for (uint32_t id = 0; id < model->n; id++)
        n += model->node_of[id] == node;
    return n;
}

static uint32_t id_of(const struct model *model, uint32_t node) {
    for (uint32_t id = 0; id < model->n; id++) {
        if (model->node_of[id] == node) return id;
    }
    return WEFT_KV_NONE;
}

static uint32_t oldest(const struct model *model) {
    uint32_t oldest = WEFT_KV_NONE;
    for (uint32_t id = 0; id < model->n; id++) {
        if (model->node_of[id] >= NODES) continue;
        if (oldest == WEFT_KV_NONE || model->used[id] < model->used[oldest]) oldest = id;
    }
    return oldest;
}

static void take(struct model *model, weft_kv_checkpoints *checkpoints) {
    uint32_t n_free = count(model, NODES), gone = oldest(model);
    uint32_t id = weft_kv_checkpoints_take(checkpoints);
    if (n_free == 0) {
        WEFT_ASSERT(id == gone);
        model->n_evicted += id != WEFT_KV_NONE;
    } else {
        WEFT_ASSERT(id < model->n && model->node_of[id] == NODES);
    }
    if (id != WEFT_KV_NONE) model->node_of[id] = NODES + 1;
}

static void step(struct model *model, weft_kv_checkpoints *checkpoints, uint64_t *rand) {
    uint32_t node = weft_rand_below(rand, NODES), taken = id_of(model, NODES + 1);
    uint32_t id = id_of(model, node);
    switch (weft_rand_below(rand, 6)) {
    case 0:
    case 1:
        take(model, checkpoints);
        break;
    case 2:
    case 3:
        if (taken == WEFT_KV_NONE) break;
        weft_kv_checkpoints_hang(checkpoints, taken, node);
        model->node_of[taken] = id == WEFT_KV_NONE ? node : NODES;
        model->used[taken] = ++model->clock;
        break;
    case 4:
        if (taken != WEFT_KV_NONE && weft_rand_below(rand, 3) == 0) {
            weft_kv_checkpoints_drop(checkpoints, taken);
            model->node_of[taken] = NODES;
        } else if (weft_rand_below(rand, 2)) {
            WEFT_ASSERT(weft_kv_checkpoints_lift(checkpoints, node) == id);
            if (id != WEFT_KV_NONE) model->node_of[id] = NODES + 1;
        } else {
            weft_kv_checkpoints_forget(checkpoints, node);
            if (id != WEFT_KV_NONE) model->node_of[id] = NODES;
        }
        break;
    default:
        if (id == WEFT_KV_NONE) break;
        weft_kv_checkpoints_use(checkpoints, id);
        model->used[id] = ++model->clock;
    }
}

static void compare(const struct model *model, const weft_kv_checkpoints *checkpoints) {
    uint32_t n_hung = 0;
    for (uint32_t node = 0; node < NODES; node++) {
        WEFT_ASSERT(count(model, node) <= 1);
        WEFT_ASSERT(weft_kv_checkpoints_of(checkpoints, node) == id_of(model, node));
        n_hung += count(model, node);
    }
    WEFT_ASSERT(weft_kv_checkpoints_n_hung(checkpoints) == n_hung);
    WEFT_ASSERT(weft_kv_checkpoints_n_taken(checkpoints) == count(model, NODES + 1));
    WEFT_ASSERT(weft_kv_checkpoints_n_evicted(checkpoints) == model->n_evicted);
    weft_kv_checkpoints_check(checkpoints);
}

int main(void) {
    weft_check_actor("prop_checkpoints");
    uint64_t rand = weft_rand_test_seed(), n_evicted = 0;
    (void)fflush(stdout); /* an abort must not swallow the seed */
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct model model = {.n = 1 + weft_rand_below(&rand, N_MAX)};
        weft_kv_checkpoints *checkpoints;
        size_t n_bytes = (weft_kv_checkpoints_bytes(model.n, NODES) + 63) / 64 * 64;
        void *mem = aligned_alloc(64, n_bytes);
        WEFT_ASSERT(mem != NULL);
        WEFT_ASSERT(weft_kv_checkpoints_init(mem, 64, model.n, NODES, &checkpoints) ==
                    WEFT_E_INVAL);
        WEFT_ASSERT(!weft_kv_checkpoints_init(mem, n_bytes, model.n, NODES, &checkpoints));
        for (uint32_t id = 0; id < model.n; id++)
            model.node_of[id] = NODES;
        for (uint32_t i = 0; i < STEPS; i++) {
            step(&model, checkpoints, &rand);
            compare(&model, checkpoints);
        }
        n_evicted += model.n_evicted;
        free(mem);
    }
    printf("%" PRIu64 " evicted\n", n_evicted);
    WEFT_ASSERT(n_evicted > 0);
    return 0;
}
