/* Random tables over one pool against the simplest model there is: an array of counts. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "paged_kv/paged_kv.h"

#define N_TABLES 12u
#define CAP 40u
#define BLOCKS_MAX 96u
#define N_ROUNDS 60u
#define N_OPS 4000u

struct model {
    uint32_t n_blocks;
    uint32_t holders[BLOCKS_MAX];
    uint32_t tables[N_TABLES][CAP];
    uint32_t n[N_TABLES];
};

struct world {
    uint64_t rand;
    weft_kv_pool *pool;
    struct weft_kv_table tables[N_TABLES];
    weft_kv_block storage[N_TABLES][CAP];
    struct model model;
};

static uint32_t model_free(const struct model *model) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->n_blocks; i++)
        n += model->holders[i] == 0;
    return n;
}

static void grow(struct world *world, uint32_t t) {
    struct model *model = &world->model;
    uint32_t wanted = weft_rand_below(&world->rand, CAP + 1), had = model->n[t];
    bool fits = wanted <= had || wanted - had <= model_free(model);
    weft_err err = weft_kv_table_grow(world->pool, &world->tables[t], wanted);
    WEFT_ASSERT(err == (fits ? WEFT_OK : WEFT_E_FULL));
    if (err) return;
    for (uint32_t i = had; i < wanted; i++) {
        uint32_t block = world->tables[t].blocks[i];
        WEFT_ASSERT(model->holders[block] == 0);
        model->holders[block] = 1;
        model->tables[t][i] = block;
        model->n[t] = i + 1;
    }
}

static void fork_table(struct world *world, uint32_t t) {
    struct model *model = &world->model;
    uint32_t parent = weft_rand_below(&world->rand, N_TABLES);
    if (parent == t || model->n[t] > 0) return;
    uint32_t n = weft_rand_below(&world->rand, model->n[parent] + 1);
    WEFT_ASSERT(!weft_kv_table_fork(world->pool, &world->tables[parent], n, &world->tables[t]));
    for (uint32_t i = 0; i < n; i++) {
        model->tables[t][i] = model->tables[parent][i];
        model->holders[model->tables[t][i]]++;
    }
    model->n[t] = n;
}

/* A block of a table's becomes its own, as for a copy on write. */
static void own(struct world *world, uint32_t t) {
    struct model *model = &world->model;
    if (model->n[t] == 0) return;
    uint32_t i = weft_rand_below(&world->rand, model->n[t]);
    uint32_t shared = model->tables[t][i];
    if (model->holders[shared] == 1) return;
    weft_kv_block block;
    weft_err err = weft_kv_take(world->pool, &block);
    WEFT_ASSERT(err == (model_free(model) == 0 ? WEFT_E_FULL : WEFT_OK));
    if (err) return;
    weft_kv_drop(world->pool, shared);
    world->tables[t].blocks[i] = block;
    WEFT_ASSERT(model->holders[block] == 0);
    model->holders[shared]--;
    model->holders[block] = 1;
    model->tables[t][i] = block;
}

static void release(struct world *world, uint32_t t) {
    struct model *model = &world->model;
    for (uint32_t i = 0; i < model->n[t]; i++) {
        weft_kv_drop(world->pool, world->tables[t].blocks[i]);
        model->holders[model->tables[t][i]]--;
    }
    model->n[t] = world->tables[t].n = 0;
}

static void compare(const struct world *world) {
    const struct model *model = &world->model;
    weft_kv_pool_check(world->pool);
    WEFT_ASSERT(weft_kv_n_free(world->pool) == model_free(model));
    for (uint32_t i = 0; i < model->n_blocks; i++)
        WEFT_ASSERT(weft_kv_holders(world->pool, i) == model->holders[i]);
    for (uint32_t t = 0; t < N_TABLES; t++) {
        WEFT_ASSERT(world->tables[t].n == model->n[t]);
        WEFT_ASSERT(
            !memcmp(world->tables[t].blocks, model->tables[t], model->n[t] * sizeof(uint32_t)));
    }
}

static void act(struct world *world) {
    uint32_t t = weft_rand_below(&world->rand, N_TABLES);
    switch (weft_rand_below(&world->rand, 8)) {
    case 0:
    case 1:
        grow(world, t);
        break;
    case 2:
    case 3:
        fork_table(world, t);
        break;
    case 4:
    case 5:
    case 6:
        own(world, t);
        break;
    default:
        release(world, t);
        break;
    }
}

static void run_round(struct world *world) {
    uint32_t n_blocks = 1 + weft_rand_below(&world->rand, BLOCKS_MAX);
    size_t n_bytes = (weft_kv_pool_bytes(n_blocks) + 63) / 64 * 64;
    void *mem = aligned_alloc(64, n_bytes);
    WEFT_ASSERT(mem && !weft_kv_pool_init(mem, n_bytes, n_blocks, &world->pool));
    memset(&world->model, 0, sizeof world->model);
    world->model.n_blocks = n_blocks;
    for (uint32_t t = 0; t < N_TABLES; t++)
        weft_kv_table_init(&world->tables[t], world->storage[t], CAP);
    for (uint32_t i = 0; i < N_OPS; i++) {
        act(world);
        compare(world);
    }
    for (uint32_t t = 0; t < N_TABLES; t++)
        release(world, t);
    compare(world);
    WEFT_ASSERT(weft_kv_n_free(world->pool) == n_blocks);
    free(mem);
}

int main(void) {
    weft_check_actor("prop_kv_pool");
    struct world world = {.rand = weft_rand_test_seed()};
    for (uint32_t i = 0; i < N_ROUNDS; i++)
        run_round(&world);
    printf("%u operations on tables, each followed by a comparison of everything\n",
           N_ROUNDS * N_OPS);
    return 0;
}
