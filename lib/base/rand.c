#include "base/rand.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/parse.h"

uint64_t weft_rand_seed(void) {
    uint64_t seed = 0;
    WEFT_ASSERT(getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed);
    return seed;
}

uint64_t weft_rand_test_seed(void) {
    const char *text = getenv("WEFT_SEED");
    uint64_t seed;
    if (!text || weft_parse_u64(text, UINT64_MAX, &seed)) seed = weft_rand_seed();
    (void)printf("seed: WEFT_SEED=%" PRIu64 "\n", seed);
    return seed;
}
