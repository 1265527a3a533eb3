/* fuzz — the interface of a fuzz target to its driver, which is fuzz_main.c here or libFuzzer. */
#ifndef WEFT_TESTS_FUZZ_H
#define WEFT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Runs the target on one input. Returns 0; faults crash. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Inputs to start from, besides the corpus on disk: calls `add` for each. */
void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n));

#endif
