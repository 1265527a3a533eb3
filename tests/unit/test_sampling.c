#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/sampling.h"

static void assert_accepted(const struct weft_sampling *s, uint32_t n_vocab) {
    struct weft_errmsg why = {""};
    if (weft_sampling_check(s, n_vocab, &why)) fail_msg("refused: %s", why.text);
}

/* `word` must stand in the message. */
static void assert_refused(const struct weft_sampling *s, uint32_t n_vocab, const char *word) {
    struct weft_errmsg why = {""};
    assert_int_equal(weft_sampling_check(s, n_vocab, &why), WEFT_E_INVAL);
    if (!strstr(why.text, word)) fail_msg("\"%s\" does not name %s", why.text, word);
    assert_int_equal(weft_sampling_check(s, n_vocab, NULL), WEFT_E_INVAL);
}

static void the_defaults_are_greedy_and_switched_off(void **state) {
    (void)state;
    struct weft_sampling s;
    memset(&s, 0xee, sizeof s);
    weft_sampling_init(&s);
    assert_true(s.seed == 0 && s.temperature == 0.0f);
    assert_true(s.top_p == 1.0f && s.min_p == 0.0f && s.top_k == 0);
    assert_true(s.repetition_penalty == 1.0f && s.top_n_sigma == 0.0f);
    assert_true(s.presence_penalty == 0.0f && s.frequency_penalty == 0.0f);
    assert_true(s.dynatemp_range == 0.0f && s.typical_p == 1.0f && s.tfs_z == 1.0f);
    assert_true(s.xtc_probability == 0.0f && s.dry_multiplier == 0.0f && s.mirostat == 0);
    assert_false(weft_sampling_has_state(&s));
    assert_int_equal(s.max_tokens, 16);
    assert_int_equal(s.min_tokens, 0);
    assert_int_equal(s.n_logprobs, -1);
    assert_int_equal(s.n_prompt_logprobs, -1);
    assert_int_equal(s.n_stop_tokens, 0);
    assert_int_equal(s.n_bias, 0);
    assert_accepted(&s, 1);
    assert_accepted(&s, 0);
}

static void every_number_has_a_range_that_includes_its_ends(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        float min, max;
    } fields[] = {
        {"temperature", offsetof(struct weft_sampling, temperature), 0.0f, 1e6f},
        {"top_p", offsetof(struct weft_sampling, top_p), 1e-30f, 1.0f},
        {"min_p", offsetof(struct weft_sampling, min_p), 0.0f, 1.0f},
        {"top_n_sigma", offsetof(struct weft_sampling, top_n_sigma), -1.0f, 1e6f},
        {"repetition_penalty", offsetof(struct weft_sampling, repetition_penalty), 1e-6f, 1e6f},
        {"presence_penalty", offsetof(struct weft_sampling, presence_penalty), -1e6f, 1e6f},
        {"frequency_penalty", offsetof(struct weft_sampling, frequency_penalty), -1e6f, 1e6f},
        {"dynatemp_range", offsetof(struct weft_sampling, dynatemp_range), 0.0f, 1e6f},
        {"typical_p", offsetof(struct weft_sampling, typical_p), 0.0f, 1.0f},
        {"dry_multiplier", offsetof(struct weft_sampling, dry_multiplier), 0.0f, 1e6f},
        {"adaptive_target", offsetof(struct weft_sampling, adaptive_target), -1.0f, 1.0f},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const float good[] = {fields[i].min, fields[i].max, 0.5f};
        const float bad[] = {
            nextafterf(fields[i].min, -INFINITY),
            nextafterf(fields[i].max, INFINITY),
            NAN,
            -NAN,
            INFINITY,
            -INFINITY,
        };
        struct weft_sampling s;
        for (size_t k = 0; k < sizeof good / sizeof good[0]; k++) {
            weft_sampling_init(&s);
            *(float *)(void *)((char *)&s + fields[i].offset) = good[k];
            assert_accepted(&s, 100);
        }
        for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
            weft_sampling_init(&s);
            *(float *)(void *)((char *)&s + fields[i].offset) = bad[k];
            assert_refused(&s, 100, fields[i].name);
        }
    }
}

static void any_top_k_seed_and_length_is_fine(void **state) {
    (void)state;
    struct weft_sampling s;
    weft_sampling_init(&s);
    s.top_k = s.max_tokens = s.min_tokens = UINT32_MAX;
    s.seed = UINT64_MAX;
    assert_accepted(&s, 100);
    s.max_tokens = 0;
    s.n_prompt_logprobs = 0;
    assert_accepted(&s, 100);
}

static void samplers_stand_in_an_order(void **state) {
    (void)state;
    enum weft_sampler order[WEFT_SAMPLER_COUNT];
    assert_int_equal(weft_samplers_list(WEFT_SAMPLERS_USUAL, order), WEFT_SAMPLER_COUNT);
    assert_int_equal(order[0], WEFT_SAMPLER_PENALTIES);
    assert_int_equal(weft_samplers_list(WEFT_SAMPLERS_NONE, order), 0);
    uint64_t samplers = weft_samplers_add(WEFT_SAMPLERS_NONE, WEFT_SAMPLER_XTC);
    samplers = weft_samplers_add(samplers, WEFT_SAMPLER_PENALTIES);
    assert_int_equal(weft_samplers_list(samplers, order), 2);
    assert_int_equal(order[0], WEFT_SAMPLER_XTC);
    assert_int_equal(order[1], WEFT_SAMPLER_PENALTIES);
    for (uint32_t i = 0; i < WEFT_SAMPLER_COUNT; i++)
        assert_int_equal(weft_sampler_of_name(weft_sampler_name((enum weft_sampler)i)), i);
    assert_int_equal(weft_sampler_of_name("typ_p"), WEFT_SAMPLER_TYPICAL);
    assert_int_equal(weft_sampler_of_name("top-k"), WEFT_SAMPLER_COUNT);
    assert_int_equal(weft_sampler_of_name(""), WEFT_SAMPLER_COUNT);
}

static void orders_that_are_none_are_refused(void **state) {
    (void)state;
    struct weft_sampling s;
    uint64_t adaptive = weft_samplers_add(0, WEFT_SAMPLER_ADAPTIVE_P);
    const uint64_t bad[] = {
        0x11,                                            /* one twice */
        0x101,                                           /* a gap */
        WEFT_SAMPLER_COUNT + 1,                          /* no such one */
        weft_samplers_add(adaptive, WEFT_SAMPLER_TOP_K), /* after the draw */
        UINT64_C(1) << 63,
    };
    weft_sampling_init(&s);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        s.samplers = bad[i];
        assert_int_equal(weft_sampling_check(&s, 0, NULL), WEFT_E_INVAL);
    }
    s.samplers = adaptive;
    assert_accepted(&s, 0);
    s.variant = WEFT_VARIANT_COUNT;
    assert_refused(&s, 0, "variant");
}

static void windows_and_breakers_are_bounded(void **state) {
    (void)state;
    static const int32_t bad[] = {-2, INT32_MIN, WEFT_CONTEXT_MAX + 1, INT32_MAX};
    static const uint32_t tokens[WEFT_DRY_BREAKERS_MAX + 1] = {99};
    struct weft_sampling s;
    weft_sampling_init(&s);
    for (size_t i = 0; i < 4; i++) {
        s.repeat_last_n = bad[i];
        assert_refused(&s, 0, "repeat_last_n");
        s.repeat_last_n = WEFT_CONTEXT_MAX;
        s.dry_penalty_last_n = bad[i];
        assert_refused(&s, 0, "dry_penalty_last_n");
        s.dry_penalty_last_n = -1;
    }
    s.dry_breakers = tokens;
    s.n_dry_breakers = WEFT_DRY_BREAKERS_MAX;
    assert_accepted(&s, 100);
    assert_refused(&s, 99, "DRY");
    s.n_dry_breakers++;
    assert_refused(&s, 100, "DRY");
}

static void numbers_of_log_probabilities_are_bounded(void **state) {
    (void)state;
    static const int32_t good[] = {-1, 0, 20, (int32_t)WEFT_VOCAB_MAX};
    static const int32_t bad[] = {-2, INT32_MIN, (int32_t)WEFT_VOCAB_MAX + 1, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        struct weft_sampling s;
        weft_sampling_init(&s);
        s.n_logprobs = s.n_prompt_logprobs = good[i];
        assert_accepted(&s, 100);
        s.n_logprobs = bad[i];
        assert_refused(&s, 100, "logprobs");
        s.n_logprobs = -1;
        s.n_prompt_logprobs = bad[i];
        assert_refused(&s, 100, "prompt_logprobs");
    }
}

static void stop_tokens_lie_in_the_vocabulary_and_are_few(void **state) {
    (void)state;
    uint32_t tokens[WEFT_STOP_TOKENS_MAX + 1] = {99, 0, 99}; /* order and repetition are free */
    struct weft_sampling s;
    weft_sampling_init(&s);
    s.stop_tokens = tokens;
    s.n_stop_tokens = WEFT_STOP_TOKENS_MAX;
    assert_accepted(&s, 100);
    assert_refused(&s, 99, "stop token 99");
    assert_accepted(&s, 0); /* the vocabulary is not known here */
    s.n_stop_tokens = WEFT_STOP_TOKENS_MAX + 1;
    assert_refused(&s, 100, "129 stop tokens");
    s.n_stop_tokens = UINT32_MAX;
    assert_refused(&s, 100, "stop tokens");
    s.n_stop_tokens = 4;
    tokens[3] = UINT32_MAX;
    assert_refused(&s, 100, "stop token 4294967295");
    s.n_stop_tokens = 1;
    s.masked_tokens = tokens; /* the same holds for these, and for both together */
    s.n_masked_tokens = 3;
    assert_accepted(&s, 100);
    s.n_masked_tokens = 4;
    assert_refused(&s, 100, "stop token 4294967295");
    tokens[3] = 0;
    s.n_masked_tokens = WEFT_STOP_TOKENS_MAX - 1;
    assert_accepted(&s, 100);
    s.n_stop_tokens = 2;
    assert_refused(&s, 100, "129 stop tokens");
    s.n_stop_tokens = s.n_masked_tokens = UINT32_MAX;
    assert_refused(&s, 100, "stop tokens");
}

static void allowed_tokens_ascend_and_bad_words_are_whole(void **state) {
    (void)state;
    static uint32_t many[WEFT_ALLOWED_TOKENS_MAX + 1];
    uint32_t allowed[] = {0, 7, 99}, words[] = {1, 5, 2, 99, 5, 1, 0};
    struct weft_sampling s;
    weft_sampling_init(&s);
    assert_int_equal(s.thinking_token_budget, UINT32_MAX);
    s.allowed_tokens = allowed;
    s.n_allowed_tokens = 3;
    assert_accepted(&s, 100);
    assert_accepted(&s, 0);
    assert_refused(&s, 99, "allowed token 99");
    allowed[1] = 0;
    assert_refused(&s, 100, "allowed token 0 comes twice");
    for (uint32_t i = 0; i <= WEFT_ALLOWED_TOKENS_MAX; i++)
        many[i] = i;
    s.allowed_tokens = many;
    s.n_allowed_tokens = WEFT_ALLOWED_TOKENS_MAX;
    assert_accepted(&s, 1 << 20);
    s.n_allowed_tokens++;
    assert_refused(&s, 1 << 20, "16385 allowed tokens");
    s.n_allowed_tokens = 0;

    s.bad_words = words;
    s.n_bad_words = 7;
    assert_accepted(&s, 100);
    assert_refused(&s, 99, "token 99");
    for (uint32_t n = 1; n < 7; n++) {
        s.n_bad_words = n;
        if (n == 2 || n == 5) continue;
        assert_refused(&s, 100, "a bad word of");
    }
    words[0] = 0;
    assert_refused(&s, 100, "a bad word of 0 tokens");
    words[0] = UINT32_MAX;
    assert_refused(&s, 100, "a bad word of 4294967295 tokens");
    s.bad_words = many;
    s.n_bad_words = WEFT_BAD_WORDS_MAX + 1;
    assert_refused(&s, 100, "8193 numbers");
}

static void biases_ascend_and_name_each_token_once(void **state) {
    (void)state;
    struct weft_logit_bias bias[] = {{3, 1.0f}, {7, -100.0f}, {99, 100.0f}};
    struct weft_sampling s;
    weft_sampling_init(&s);
    s.bias = bias;
    s.n_bias = 3;
    assert_accepted(&s, 100);
    assert_refused(&s, 99, "token 99");
    assert_accepted(&s, 0);
    bias[1].token = 3;
    assert_refused(&s, 100, "token 3 twice or out of order");
    bias[1].token = 2;
    assert_refused(&s, 100, "token 2 twice or out of order");
    bias[1].token = 99;
    assert_refused(&s, 100, "token 99");
    s.n_bias = 2;
    assert_accepted(&s, 100);
}

static void a_bias_is_finite_and_bounded(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1.1e6f, -1.1e6f};
    struct weft_logit_bias bias = {5, 1e6f};
    struct weft_sampling s;
    weft_sampling_init(&s);
    s.bias = &bias;
    s.n_bias = 1;
    assert_accepted(&s, 100);
    bias.bias = -1e6f;
    assert_accepted(&s, 100);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bias.bias = bad[i];
        assert_refused(&s, 100, "logit_bias of token 5");
    }
}

static void there_are_only_so_many_biases(void **state) {
    (void)state;
    static struct weft_logit_bias bias[WEFT_LOGIT_BIAS_MAX + 1];
    for (uint32_t i = 0; i <= WEFT_LOGIT_BIAS_MAX; i++)
        bias[i].token = i;
    struct weft_sampling s;
    weft_sampling_init(&s);
    s.bias = bias;
    s.n_bias = WEFT_LOGIT_BIAS_MAX;
    assert_accepted(&s, 4096);
    s.n_bias = WEFT_LOGIT_BIAS_MAX + 1;
    assert_refused(&s, 4096, "1025 logit_bias entries");
}

static void each_number_has_a_range_for_clients(void **state) {
    (void)state;
    struct weft_sampling_range range = weft_sampling_api_range("repetition_penalty");
    assert_true(range.least == 1e-3 && range.most == 1e3);
    range = weft_sampling_api_range("top_p");
    assert_true(range.least == 1e-6 && range.most == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_are_greedy_and_switched_off),
        cmocka_unit_test(every_number_has_a_range_that_includes_its_ends),
        cmocka_unit_test(each_number_has_a_range_for_clients),
        cmocka_unit_test(any_top_k_seed_and_length_is_fine),
        cmocka_unit_test(samplers_stand_in_an_order),
        cmocka_unit_test(orders_that_are_none_are_refused),
        cmocka_unit_test(windows_and_breakers_are_bounded),
        cmocka_unit_test(numbers_of_log_probabilities_are_bounded),
        cmocka_unit_test(stop_tokens_lie_in_the_vocabulary_and_are_few),
        cmocka_unit_test(allowed_tokens_ascend_and_bad_words_are_whole),
        cmocka_unit_test(biases_ascend_and_name_each_token_once),
        cmocka_unit_test(a_bias_is_finite_and_bounded),
        cmocka_unit_test(there_are_only_so_many_biases),
    };
    return cmocka_run_group_tests_name("sampling", tests, NULL, NULL);
}
