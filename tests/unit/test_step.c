/* The size of a row's log-probabilities: one rule for the planner and the worker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rand.h"
#include "base/step.h"

/* Token by token, by the rule: the logits at p speak of p + 1. */
static uint64_t naive_bytes(const struct weft_step_seq *seq, uint32_t n_tokens) {
    const struct weft_sampling *s = seq->sampling;
    uint64_t bytes = 0;
    for (uint32_t p = seq->n_computed; p < seq->n_computed + n_tokens; p++) {
        int32_t n_asked = -1;
        if (p + 1 == seq->n_known && s->max_tokens == 0) bytes += 4 * (uint64_t)seq->n_values;
        if (p + 1 < seq->n_prompt && p + 1 >= seq->n_prompt_logprobs_done)
            n_asked = s->n_prompt_logprobs;
        if (p + 1 == seq->n_known && s->max_tokens > 0) n_asked = s->n_logprobs;
        if (n_asked < 0) continue;
        bytes += 12 + 8 * ((uint32_t)n_asked < seq->n_vocab ? (uint64_t)n_asked : seq->n_vocab);
    }
    return bytes;
}

static void bytes_and_tokens_agree_with_the_rule(void **state) {
    (void)state;
    uint64_t rng = weft_rand_test_seed();
    for (uint32_t round = 0; round < 20000; round++) {
        struct weft_sampling sampling;
        weft_sampling_init(&sampling);
        sampling.max_tokens = weft_rand_below(&rng, 2);
        sampling.n_logprobs = (int32_t)weft_rand_below(&rng, 7) - 1;
        sampling.n_prompt_logprobs = (int32_t)weft_rand_below(&rng, 7) - 1;
        struct weft_step_seq seq = {.sampling = &sampling, .n_vocab = 4};
        seq.n_values = weft_rand_below(&rng, 2) * weft_rand_below(&rng, 50);
        seq.n_prompt = 1 + weft_rand_below(&rng, 20);
        seq.n_known = seq.n_prompt + weft_rand_below(&rng, 3);
        seq.n_prompt_logprobs_done = weft_rand_below(&rng, seq.n_prompt + 1);
        seq.n_computed = weft_rand_below(&rng, seq.n_known + 1);
        uint32_t n = weft_rand_below(&rng, seq.n_known - seq.n_computed + 1);
        uint64_t room = weft_rand_below(&rng, 600);
        assert_int_equal(weft_step_logprob_bytes(&seq, n), naive_bytes(&seq, n));
        uint32_t n_fit = 0;
        while (n_fit < n && naive_bytes(&seq, n_fit + 1) <= room)
            n_fit++;
        assert_int_equal(weft_step_tokens_within(&seq, n, room), n_fit);
        struct weft_step_span span = weft_step_prompt_span(&seq, n);
        assert_true(span.begin <= span.end);
        if (span.begin < span.end) assert_true(span.begin >= 1 && span.end <= seq.n_prompt);
    }
}

static void hostile_counts_are_harmless(void **state) {
    (void)state;
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    sampling.n_prompt_logprobs = WEFT_VOCAB_MAX;
    struct weft_step_seq seq = {.sampling = &sampling,
                                .n_vocab = WEFT_VOCAB_MAX,
                                .n_prompt = WEFT_CONTEXT_MAX,
                                .n_known = WEFT_CONTEXT_MAX,
                                .n_prompt_logprobs_done = UINT32_MAX};
    assert_int_equal(weft_step_logprob_bytes(&seq, WEFT_CONTEXT_MAX), 0);
    assert_int_equal(weft_step_tokens_within(&seq, WEFT_CONTEXT_MAX, 0), WEFT_CONTEXT_MAX);
    seq.n_prompt_logprobs_done = 0;
    uint64_t each = 12 + 8 * (uint64_t)WEFT_VOCAB_MAX; /* no product overflows */
    assert_true(weft_step_logprob_bytes(&seq, WEFT_CONTEXT_MAX) == each * (WEFT_CONTEXT_MAX - 1));
    assert_int_equal(weft_step_tokens_within(&seq, WEFT_CONTEXT_MAX, WEFT_STEP_LOGPROB_BYTES_MAX),
                     1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_tokens_agree_with_the_rule),
        cmocka_unit_test(hostile_counts_are_harmless),
    };
    return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
