/* The addition to libFuzzer's own main: it writes a target's seeds as files, which libFuzzer needs,
 * to the folder that WEFT_FUZZ_SEEDS names. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

static void write_seed(const void *bytes, size_t n) {
    static unsigned n_seeds;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/seed-%u", getenv("WEFT_FUZZ_SEEDS"), n_seeds++);
    FILE *file = fopen(path, "wb");
    WEFT_ASSERT(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    if (getenv("WEFT_FUZZ_SEEDS")) weft_fuzz_seeds(write_seed);
    return 0;
}
