/* Drives a fuzz target without libFuzzer, for any compiler and for CTest:
 *
 *     fuzz_x RUNS [FILE | FOLDER]...
 *
 * First every seed and every corpus file as it is, then RUNS mutations of them. Mutation is blind
 * (there is no coverage to steer by), so the seeds matter: one well-formed input for each feature.
 * The seed is printed and WEFT_SEED= repeats a run; an input that crashed once belongs into
 * tests/fuzz/corpus/<target>/.
 */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/parse.h"
#include "base/rand.h"

#define INPUTS_MAX 1024
#define INPUT_BYTES_MAX (1u << 20)

static struct {
    uint8_t *bytes;
    size_t n;
} inputs[INPUTS_MAX];
static size_t n_inputs;

static void add_input(const void *bytes, size_t n) {
    WEFT_ASSERT(n_inputs < INPUTS_MAX && n <= INPUT_BYTES_MAX);
    uint8_t *copy = malloc(n + 1);
    WEFT_ASSERT(copy);
    if (n > 0) memcpy(copy, bytes, n);
    inputs[n_inputs].bytes = copy;
    inputs[n_inputs++].n = n;
}

static void add_file(const char *path) {
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(INPUT_BYTES_MAX);
    WEFT_ASSERT(file && bytes);
    size_t n = fread(bytes, 1, INPUT_BYTES_MAX, file);
    WEFT_ASSERT(!ferror(file));
    add_input(bytes, n);
    free(bytes);
    WEFT_ASSERT(fclose(file) == 0);
}

static void add_path(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) {
        (void)fprintf(stderr, "no corpus at %s\n", path);
        return;
    }
    if (!S_ISDIR(st.st_mode)) {
        add_file(path);
        return;
    }
    DIR *dir = opendir(path);
    WEFT_ASSERT(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char inner[4096];
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        add_path(inner);
    }
    (void)closedir(dir);
}

/* The target sees a block of exactly n bytes, so that a sanitizer sees one byte too far. */
static void run_one(const uint8_t *bytes, size_t n) {
    uint8_t *exact = malloc(n + (n == 0));
    WEFT_ASSERT(exact);
    if (n > 0) memcpy(exact, bytes, n);
    (void)LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

/* Writes a number that parsers trip over, 1 to 8 bytes wide. */
static void put_interesting(uint8_t *at, size_t room, uint64_t *rand) {
    static const uint64_t numbers[] = {
        0,
        1,
        2,
        3,
        7,
        8,
        31,
        32,
        127,
        128,
        255,
        256,
        0x7fff,
        0xffff,
        0x7fffffff,
        0x80000000,
        0xffffffff,
        0x100000000,
        UINT64_MAX,
        INT64_MAX,
        (uint64_t)1 << 63,
        UINT64_MAX / 2,
        UINT64_MAX / 8 + 1,
        UINT64_MAX - 7,
    };
    uint64_t value = numbers[weft_rand_below(rand, sizeof numbers / sizeof numbers[0])];
    size_t width = (size_t)1 << weft_rand_below(rand, 4);
    memcpy(at, &value, width < room ? width : room);
}

/* One change in place; returns the new length. `cap` is the room in bytes. */
static size_t mutate(uint8_t *bytes, size_t n, size_t cap, uint64_t *rand) {
    if (n == 0) {
        bytes[0] = (uint8_t)weft_rand_next(rand);
        return 1;
    }
    /* Headers stand in front, so half of all changes fall into the first eighth. */
    size_t reach = weft_rand_below(rand, 2) && n >= 64 ? n / 8 : n;
    size_t at = weft_rand_below(rand, (uint32_t)reach);
    size_t len = 1 + weft_rand_below(rand, 32);
    if (len > n - at) len = n - at;
    switch (weft_rand_below(rand, 8)) {
    case 0:
        bytes[at] ^= (uint8_t)(1u << weft_rand_below(rand, 8));
        return n;
    case 1:
        bytes[at] = (uint8_t)weft_rand_next(rand);
        return n;
    case 2:
    case 3:
        put_interesting(bytes + at, n - at, rand);
        return n;
    case 4: /* cut the end off */
        return at;
    case 5: /* take a piece out */
        memmove(bytes + at, bytes + at + len, n - at - len);
        return n - len;
    case 6: /* double a piece */
        if (len > cap - n) return n;
        memmove(bytes + at + len, bytes + at, n - at);
        return n + len;
    default: { /* a piece of another input over this place */
        size_t other = weft_rand_below(rand, (uint32_t)n_inputs);
        if (inputs[other].n == 0) return n;
        size_t from = weft_rand_below(rand, (uint32_t)inputs[other].n);
        if (len > inputs[other].n - from) len = inputs[other].n - from;
        memcpy(bytes + at, inputs[other].bytes + from, len);
        return n;
    }
    }
}

int main(int argc, char **argv) {
    uint64_t n_runs = 0;
    if (argc < 2 || weft_parse_u64(argv[1], UINT32_MAX, &n_runs)) {
        (void)fprintf(stderr, "usage: %s RUNS [FILE | FOLDER]...\n", argv[0]);
        return 2;
    }
    weft_fuzz_seeds(add_input);
    for (int i = 2; i < argc; i++) {
        add_path(argv[i]);
    }
    WEFT_ASSERT(n_inputs > 0);
    for (size_t i = 0; i < n_inputs; i++) {
        run_one(inputs[i].bytes, inputs[i].n);
    }
    uint64_t rand = weft_rand_test_seed();
    size_t cap = 2 * INPUT_BYTES_MAX;
    uint8_t *bytes = malloc(cap);
    WEFT_ASSERT(bytes);
    for (uint64_t run = 0; run < n_runs; run++) {
        size_t start = weft_rand_below(&rand, (uint32_t)n_inputs);
        size_t n = inputs[start].n;
        memcpy(bytes, inputs[start].bytes, n);
        for (uint32_t left = 1 + weft_rand_below(&rand, 4); left > 0; left--) {
            n = mutate(bytes, n, cap, &rand);
        }
        run_one(bytes, n);
    }
    (void)printf("%zu inputs, %llu mutations: nothing crashed\n", n_inputs,
                 (unsigned long long)n_runs);
    free(bytes);
    for (size_t i = 0; i < n_inputs; i++) {
        free(inputs[i].bytes);
    }
    return 0;
}
