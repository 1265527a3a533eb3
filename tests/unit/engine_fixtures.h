/* engine_fixtures — the models, requests and small engine that the tests of the engine share. */
#ifndef WEFT_TESTS_ENGINE_FIXTURES_H
#define WEFT_TESTS_ENGINE_FIXTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

/* For drive_fixture. */
#define ENGINE_DRAFT "tests/data/fable-draft-1m"
#define ENGINE_QUANTISED TEST_FABLE_Q8_0
#define ENGINE_WINDOWED "tests/data/zoo/mistral_swa16"
#define ENGINE_TIED "tests/data/zoo/llama_gqa_llama3rope"

enum { ENGINE_REQUESTS = 9, ENGINE_PROMPT_MAX = 220, ENGINE_TOP_MAX = 5 };

/* "short" was given on the command line: fewer engines, manners, made-up plans and kills. */
extern bool engine_short_run;

/* The start of main. False, with a line that says why: the test is to be skipped. */
bool engine_test_begin(const char *name, int argc, char **argv);

/* Points into itself and into its neighbours: not to be copied. */
struct engine_request {
    uint32_t prompt[ENGINE_PROMPT_MAX], n_prompt;
    struct weft_sampling sampling;
    uint32_t stop_tokens[4];
    struct weft_logit_bias bias[4];
};

/* One of each kind: nothing that the sampler looks at may depend on company. At most ENGINE_TOP_MAX
 * log-probabilities per token. */
void engine_make_requests(struct engine_request requests[ENGINE_REQUESTS], uint32_t n_vocab,
                          uint64_t *rng);

/* Room for all those requests at once, with tokens of up to 300 each; opens or fails the test. */
weft_eng *engine_open_small(const char *model, enum weft_eng_act act, enum weft_eng_kv kv,
                            uint32_t n_threads, uint32_t block_size);

uint32_t engine_float_bits(float x);

#endif
