/* fuzz_grammar — what the fuzzers of the notations share: a grammar that compiles is fed texts and
 * walked by its masks. */
#ifndef WEFT_TESTS_FUZZ_GRAMMAR_H
#define WEFT_TESTS_FUZZ_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>

#include "grammar/grammar.h"

typedef weft_err weft_fuzz_compile(struct weft_str text, weft_gram **gram_out,
                                   struct weft_errmsg *why);
typedef void weft_fuzz_judge(const char *text, size_t n);

/* `judge`, if there is one, is shown texts that the grammar says may end. */
void weft_fuzz_grammar(weft_fuzz_compile *compile, weft_fuzz_judge *judge, const uint8_t *bytes,
                       size_t n);

#endif
