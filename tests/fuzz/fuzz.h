/* fuzz — what a fuzz target offers to its driver, which is fuzz_main.c here or libFuzzer. */
#ifndef WEFT_TESTS_FUZZ_H
#define WEFT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Runs the target on one input. Returns 0; what is wrong crashes. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Inputs to start from, besides the corpus on disk: calls `add` for each. */
void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n));

#endif
