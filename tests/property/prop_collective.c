/* Sums of random vectors, divided among 1, 2, 4 and 8 ranks, against the tree written down. */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rand.h"
#include "collective/collective.h"

enum { SEGMENTS = WEFT_COLL_SEGMENTS, ROUNDS = 60, WIDTH_MAX = 700 };

/* One sum: a vector for each segment. */
struct sum {
    uint32_t n;
    uint8_t present;
    float segments[SEGMENTS][WIDTH_MAX];
    float want[WIDTH_MAX];
};

struct world {
    struct sum sums[ROUNDS];
    weft_coll *coll;
    uint32_t n_ranks;
};

struct rank {
    struct world *world;
    uint32_t idx;
    pthread_t handle;
};

/* The definition: element i of segments begin..begin + n, a whole tree. */
static bool tree(const struct sum *sum, uint32_t begin, uint32_t n, uint32_t i, float *out) {
    float left = 0, right = 0;
    if (n == 1) {
        *out = sum->segments[begin][i];
        return sum->present >> begin & 1;
    }
    bool has_left = tree(sum, begin, n / 2, i, &left);
    bool has_right = tree(sum, begin + n / 2, n / 2, i, &right);
    *out = has_left && has_right ? left + right : has_left ? left : right;
    return has_left || has_right;
}

/* All magnitudes, so that no other order of sums would do, and both zeros. */
static float random_float(uint64_t *rand) {
    if (weft_rand_below(rand, 20) == 0) return weft_rand_below(rand, 2) ? 0.0f : -0.0f;
    return ldexpf((float)weft_rand_unit(rand) - 0.5f, (int)weft_rand_below(rand, 40) - 20);
}

static void make_sum(uint64_t *rand, struct sum *sum) {
    sum->n = 1 + weft_rand_below(rand, WIDTH_MAX);
    sum->present = (uint8_t)(weft_rand_below(rand, 4) ? 0xff : 1 + weft_rand_below(rand, 255));
    for (uint32_t s = 0; s < SEGMENTS; s++) {
        for (uint32_t i = 0; i < sum->n; i++)
            sum->segments[s][i] = random_float(rand);
    }
    for (uint32_t i = 0; i < sum->n; i++)
        WEFT_ASSERT(tree(sum, 0, SEGMENTS, i, &sum->want[i]));
}

static void *rank_main(void *arg) {
    const struct rank *rank = arg;
    struct world *world = rank->world;
    uint32_t first = weft_coll_first_segment(rank->idx, world->n_ranks);
    weft_err err = weft_coll_join(world->coll, rank->idx, NULL);
    for (uint32_t round = 0; round < ROUNDS && !err; round++) {
        const struct sum *sum = &world->sums[round];
        float own[WIDTH_MAX] = {0};
        for (uint32_t i = 0; i < sum->n; i++)
            (void)tree(sum, first, SEGMENTS / world->n_ranks, i, &own[i]);
        err = weft_coll_all_reduce(world->coll, rank->idx, own, sum->n, sum->present, NULL);
        WEFT_ASSERT(err || memcmp(own, sum->want, sum->n * sizeof own[0]) == 0);
    }
    WEFT_ASSERT(!err);
    weft_coll_leave(world->coll, rank->idx);
    return NULL;
}

int main(void) {
    uint64_t rand = weft_rand_test_seed();
    struct world *world = calloc(1, sizeof *world);
    struct rank ranks[WEFT_COLL_RANKS_MAX];
    WEFT_ASSERT(world != NULL);
    for (uint32_t i = 0; i < ROUNDS; i++)
        make_sum(&rand, &world->sums[i]);
    for (world->n_ranks = 1; world->n_ranks <= WEFT_COLL_RANKS_MAX; world->n_ranks *= 2) {
        int fd;
        WEFT_ASSERT(!weft_coll_create(world->n_ranks, &fd, NULL));
        WEFT_ASSERT(!weft_coll_open(fd, 0, &world->coll, NULL));
        WEFT_ASSERT(!weft_coll_reserve(world->coll, WIDTH_MAX * sizeof(float), 0, NULL));
        for (uint32_t i = 0; i < world->n_ranks; i++) {
            ranks[i] = (struct rank){.world = world, .idx = i};
            WEFT_ASSERT(!pthread_create(&ranks[i].handle, NULL, rank_main, &ranks[i]));
        }
        for (uint32_t i = 0; i < world->n_ranks; i++)
            WEFT_ASSERT(!pthread_join(ranks[i].handle, NULL));
        weft_coll_close(world->coll);
        (void)close(fd);
    }
    free(world);
    (void)printf("%u sums, bit for bit, by 1, 2, 4 and 8 ranks\n", (unsigned)ROUNDS);
    return 0;
}
