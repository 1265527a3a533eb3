#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "inside/engine/sampler/philox.h"
#include "inside/engine/sampler/sampler.h"

enum { VOCAB_MAX = 5000, CHUNKS_MAX = (VOCAB_MAX + WEFT_CHUNK - 1) / WEFT_CHUNK };

static const struct weft_kern_table *kern;

struct fixture { /* a sampler's scratch and one sequence */
    _Alignas(64) float logits[VOCAB_MAX], work[VOCAB_MAX];
    uint32_t counts[VOCAB_MAX], hist_n[WEFTI_SAMPLER_BUCKETS], tokens[64];
    double hist_mass[WEFTI_SAMPLER_BUCKETS];
    uint32_t ids[VOCAB_MAX];
    float maxima[CHUNKS_MAX], best[CHUNKS_MAX];
    double sums[CHUNKS_MAX];
    struct weft_sampling sampling;
    struct wefti_sampler_input sample;
    struct wefti_sampler_scratch scratch;
};

static struct fixture *new_fixture(void) {
    struct fixture *f = aligned_alloc(64, (sizeof *f + 63) / 64 * 64);
    assert_non_null(f);
    memset(f, 0, sizeof *f);
    weft_sampling_init(&f->sampling);
    f->sampling.temperature = 1.0f;
    f->sample = (struct wefti_sampler_input){.sampling = &f->sampling, .tokens = f->tokens};
    f->scratch = (struct wefti_sampler_scratch){
        f->work, f->counts, f->hist_n, f->hist_mass, f->ids, f->maxima, f->best, f->sums, NULL};
    return f;
}

/* Samples from a copy of `logits` at position n_known. */
static uint32_t sample_at(struct fixture *f, const float *logits, uint32_t n, uint32_t n_known) {
    memcpy(f->logits, logits, n * sizeof *logits);
    f->sample.n_known = n_known;
    uint32_t token = wefti_sampler_choose(kern, &f->sample, f->logits, n, &f->scratch);
    assert_true(token < n);
    return token;
}

/* ----------------------------------------------------------------------------------- philox --- */

static void philox_gives_the_known_answers(void **state) {
    (void)state;
    /* The vectors published with the generator (Random123, kat_vectors, philox4x32 10 rounds). */
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        wefti_philox(cases[i].key, cases[i].counter, out);
        assert_memory_equal(out, cases[i].want, sizeof out);
    }
}

static void draws_differ_by_seed_choice_and_position(void **state) {
    (void)state;
    double base = wefti_philox_unit(1, 0, 0);
    assert_true(base >= 0.0 && base < 1.0);
    assert_true(base == wefti_philox_unit(1, 0, 0));
    assert_true(base != wefti_philox_unit(2, 0, 0));
    assert_true(base != wefti_philox_unit((uint64_t)1 << 32, 0, 0));
    assert_true(base != wefti_philox_unit(1, 1, 0));
    assert_true(base != wefti_philox_unit(1, 0, 1));
}

/* ----------------------------------------------------------------------------- distribution --- */

/* Sampling the slow way: a sort, in double. */
struct ranked {
    double p;
    uint32_t id;
};

static int by_rank(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->p != y->p) return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void expected_distribution(const struct weft_sampling *s, const float *logits, uint32_t n,
                                  double *p_out) {
    struct ranked *r = calloc((size_t)n + 1, sizeof *r);
    assert_non_null(r);
    double max = -INFINITY, sum = 0.0, kept = 0.0, least = -INFINITY, mean = 0.0, off = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        if ((double)logits[i] > max) max = (double)logits[i];
        mean += (double)logits[i] / n;
    }
    for (uint32_t i = 0; i < n; i++)
        off += ((double)logits[i] - mean) * ((double)logits[i] - mean) / n;
    if (s->top_n_sigma > 0.0f) least = max - (double)s->top_n_sigma * sqrt(off);
    for (uint32_t i = 0; i < n; i++) {
        r[i] = (struct ranked){exp(((double)logits[i] - max) / (double)s->temperature), i};
        if (r[i].p < (double)s->min_p || (double)logits[i] < least) r[i].p = 0.0;
    }
    qsort(r, n, sizeof *r, by_rank);
    uint32_t k = s->top_k && s->top_k < n ? s->top_k : n;
    for (uint32_t i = 0; i < k; i++) {
        sum += r[i].p;
    }
    memset(p_out, 0, n * sizeof *p_out);
    for (uint32_t i = 0; i < k && (s->top_p >= 1.0f || kept < (double)s->top_p * sum); i++) {
        kept += r[i].p;
        p_out[r[i].id] = r[i].p;
    }
    for (uint32_t i = 0; i < n; i++) {
        p_out[i] /= kept;
    }
    free(r);
}

/* Pearson's statistic of `n_draws` draws, in standard deviations over its mean (Wilson and
 * Hilferty); tokens expected fewer than 5 times are pooled. */
static double chi_square_sigmas(const uint32_t *counts, const double *p, uint32_t n,
                                uint32_t n_draws) {
    double chi = 0.0, pooled_want = 0.0, pooled_got = 0.0;
    uint32_t n_cells = 0;
    for (uint32_t i = 0; i < n; i++) {
        double want = p[i] * n_draws;
        if (want < 5.0) {
            pooled_want += want;
            pooled_got += counts[i];
            continue;
        }
        chi += (counts[i] - want) * (counts[i] - want) / want;
        n_cells++;
    }
    if (pooled_want >= 5.0) {
        chi += (pooled_got - pooled_want) * (pooled_got - pooled_want) / pooled_want;
        n_cells++;
    }
    if (n_cells < 2) return 0.0;
    double freedom = n_cells - 1;
    double mean = 1.0 - 2.0 / (9.0 * freedom);
    return (cbrt(chi / freedom) - mean) / sqrt(2.0 / (9.0 * freedom));
}

static void check_distribution(const struct weft_sampling *sampling, uint32_t n, float spread) {
    enum { DRAWS = 20000 };
    struct fixture *f = new_fixture();
    double *p = calloc(n, sizeof *p);
    uint32_t *counts = calloc(n, sizeof *counts);
    float *logits = calloc(n, sizeof *logits);
    assert_true(p && counts && logits);
    uint64_t rng = 42;
    for (uint32_t i = 0; i < n; i++) {
        logits[i] = spread * (float)(weft_rand_unit(&rng) + weft_rand_unit(&rng));
    }
    f->sampling = *sampling;
    expected_distribution(sampling, logits, n, p);
    for (uint32_t i = 0; i < DRAWS; i++) {
        uint32_t token = sample_at(f, logits, n, i);
        assert_true(p[token] > 0.0);
        counts[token]++;
    }
    double sigmas = chi_square_sigmas(counts, p, n, DRAWS);
    if (fabs(sigmas) > 4.0) fail_msg("%g standard deviations off", sigmas);
    free(logits);
    free(counts);
    free(p);
    free(f);
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    struct weft_sampling s;
    weft_sampling_init(&s);
    s.seed = 7;
    s.temperature = 1.0f;
    check_distribution(&s, 50, 2.0f);
    s.temperature = 0.5f;
    check_distribution(&s, 700, 4.0f);
    s.top_k = 10;
    check_distribution(&s, 700, 4.0f);
    s.top_p = 0.8f;
    check_distribution(&s, 700, 4.0f);
    s.top_k = 0;
    check_distribution(&s, 700, 4.0f);
    s.top_p = 1.0f;
    s.min_p = 0.1f;
    check_distribution(&s, 700, 4.0f);
    s.top_p = 0.5f;
    s.top_k = 30;
    check_distribution(&s, 700, 4.0f);
    s.top_p = 1.0f;
    s.top_k = 0;
    s.min_p = 0.0f;
    s.top_n_sigma = 1.5f;
    check_distribution(&s, 700, 4.0f);
    s.top_p = 0.7f;
    check_distribution(&s, 700, 4.0f);
}

/* Which tokens are kept must agree with the sort exactly where no two are close. */
static void kept_sets_agree_with_a_sort(void **state) {
    (void)state;
    uint64_t rng = weft_rand_test_seed();
    struct fixture *f = new_fixture();
    double *p = calloc(VOCAB_MAX, sizeof *p);
    float *logits = calloc(VOCAB_MAX, sizeof *logits);
    assert_true(p && logits);
    for (int round = 0; round < 60; round++) {
        uint32_t n = 2 + weft_rand_below(&rng, VOCAB_MAX - 2);
        float spread = 0.1f + 20.0f * (float)weft_rand_unit(&rng);
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = spread * (float)weft_rand_unit(&rng);
        }
        f->sampling.temperature = 0.2f + (float)weft_rand_unit(&rng);
        f->sampling.top_k = weft_rand_below(&rng, 2) ? 0 : 1 + weft_rand_below(&rng, 60);
        f->sampling.top_p =
            weft_rand_below(&rng, 2) ? 1.0f : 0.01f + 0.98f * (float)weft_rand_unit(&rng);
        f->sampling.min_p = weft_rand_below(&rng, 2) ? 0.0f : (float)weft_rand_unit(&rng);
        f->sampling.top_n_sigma =
            weft_rand_below(&rng, 2) ? 0.0f : 3.0f * (float)weft_rand_unit(&rng);
        f->sampling.seed = weft_rand_next(&rng);
        expected_distribution(&f->sampling, logits, n, p);
        for (uint32_t i = 0; i < 100; i++) {
            uint32_t token = sample_at(f, logits, n, i);
            if (p[token] > 0.0) continue;
            /* At the border of the kept set the two may round differently; far from it, never. */
            double weight = exp(((double)logits[token] - (double)logits[kern->argmax(logits, n)]) /
                                (double)f->sampling.temperature);
            double least = INFINITY;
            for (uint32_t j = 0; j < n; j++) {
                double w = exp(((double)logits[j] - (double)logits[kern->argmax(logits, n)]) /
                               (double)f->sampling.temperature);
                if (p[j] > 0.0 && w < least) least = w;
            }
            assert_true(weight > least * 0.999);
        }
    }
    free(logits);
    free(p);
    free(f);
}

/* ------------------------------------------------------------------------------------ parts --- */

static void sigmas_are_those_of_what_is_not_masked(void **state) {
    (void)state;
    struct fixture *f = new_fixture();
    /* Mean 3, variance 2: a standard deviation of 1.414. */
    const float logits[8] = {5.0f, 4.0f, -INFINITY, 3.0f, 2.0f, 1.0f, -INFINITY, 9.0f};
    const struct weft_logit_bias bias = {7, WEFT_LOGIT_BIAS_NEVER};
    static const struct {
        float n;
        uint32_t last; /* that can come */
    } cases[] = {{0.7f, 0}, {0.71f, 1}, {2.12f, 3}, {2.13f, 4}, {2.83f, 5}, {0.0f, 5}, {-1.0f, 5}};
    f->sampling.temperature = 20.0f; /* every token that is kept comes soon */
    f->sampling.bias = &bias;
    f->sampling.n_bias = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t last = 0;
        f->sampling.top_n_sigma = cases[i].n;
        for (uint32_t at = 0; at < 500; at++) {
            uint32_t token = sample_at(f, logits, 8, at);
            assert_true(isfinite(logits[token]));
            if (token > last) last = token;
        }
        assert_int_equal(last, cases[i].last);
    }
    free(f);
}

static void greedy_takes_the_lowest_of_equal_tokens(void **state) {
    (void)state;
    struct fixture *f = new_fixture();
    const float logits[6] = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 3.0f};
    f->sampling.temperature = 0.0f;
    assert_true(wefti_sampler_is_plain(&f->sample));
    assert_int_equal(sample_at(f, logits, 6, 0), 1);
    f->sampling.variant = WEFT_VARIANT_LLAMA_CPP;
    f->sampling.temperature = 1.0f; /* top_k 1 is greedy, too */
    f->sampling.top_k = 1;
    assert_false(wefti_sampler_is_plain(&f->sample));
    assert_int_equal(sample_at(f, logits, 6, 0), 1);
    free(f);
}

static void equal_weights_rank_by_id(void **state) {
    (void)state;
    struct fixture *f = new_fixture();
    float logits[100] = {0};
    f->sampling.variant = WEFT_VARIANT_LLAMA_CPP;
    f->sampling.top_k = 3;
    for (uint32_t i = 0; i < 200; i++) {
        assert_true(sample_at(f, logits, 100, i) < 3);
    }
    f->sampling.top_k = 0;
    f->sampling.top_p = 0.105f; /* eleven of a hundred */
    bool last_seen = false;
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t token = sample_at(f, logits, 100, i);
        assert_true(token < 11);
        last_seen |= token == 10;
    }
    assert_true(last_seen);
    free(f);
}

/* Coarse logits, so that many tie at the cut: exactly as many are kept as make k, with the lowest
 * ids, whether the maxima of chunks tell a bound (k up to their number) or not. */
static void a_cut_keeps_the_lowest_of_equal_tokens(void **state) {
    (void)state;
    uint64_t rng = weft_rand_test_seed();
    struct fixture *f = new_fixture();
    struct ranked *r = calloc(VOCAB_MAX, sizeof *r);
    float *logits = calloc(VOCAB_MAX, sizeof *logits);
    bool *kept = calloc(VOCAB_MAX, sizeof *kept);
    assert_true(r && logits && kept);
    for (int round = 0; round < 20; round++) {
        uint32_t n = 100 + weft_rand_below(&rng, VOCAB_MAX - 100);
        uint32_t k = 2 + weft_rand_below(&rng, round % 2 ? 2 * wefti_sampler_n_chunks(n) : 40);
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = 0.5f * (float)weft_rand_below(&rng, 8) - 1000.0f;
            r[i] = (struct ranked){(double)logits[i], i};
            kept[i] = false;
        }
        qsort(r, n, sizeof *r, by_rank);
        for (uint32_t i = 0; i < k && i < n; i++) {
            kept[r[i].id] = true;
        }
        f->sampling.variant = WEFT_VARIANT_LLAMA_CPP;
        f->sampling.top_k = k;
        f->sampling.temperature = 4.0f; /* the least of the kept ones come up, too */
        for (uint32_t i = 0; i < 200; i++) {
            uint32_t token = sample_at(f, logits, n, i);
            assert_true(kept[token] || k >= n);
        }
    }
    free(kept);
    free(logits);
    free(r);
    free(f);
}

static void bias_and_mask_decide_greedily(void **state) {
    (void)state;
    struct fixture *f = new_fixture();
    const float logits[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    const struct weft_logit_bias bias[] = {{1, 5.0f}, {3, -1.5f}};
    const uint32_t stop[] = {1};
    f->sampling.temperature = 0.0f;
    f->sampling.bias = bias;
    f->sampling.n_bias = 2;
    assert_int_equal(sample_at(f, logits, 4, 0), 1);
    f->sampling.stop_tokens = stop;
    f->sampling.n_stop_tokens = 1;
    f->sampling.min_tokens = 3;
    f->sample.n_prompt = 10;
    assert_int_equal(sample_at(f, logits, 4, 12), 2); /* the third token: masked */
    assert_int_equal(sample_at(f, logits, 4, 13), 1); /* the fourth: allowed */
    f->sampling.n_stop_tokens = 0;
    assert_int_equal(sample_at(f, logits, 4, 12), 1);
    f->sampling.masked_tokens = stop; /* not to stop at, but kept back all the same */
    f->sampling.n_masked_tokens = 1;
    assert_int_equal(sample_at(f, logits, 4, 12), 2);
    assert_int_equal(sample_at(f, logits, 4, 13), 1);
    free(f);
}

static void penalties_count_prompt_and_output_as_they_should(void **state) {
    (void)state;
    struct fixture *f = new_fixture();
    const uint32_t tokens[] = {0, 0, 1, 2, 2, 3}; /* two in the prompt, four in the output */
    const float logits[6] = {8.0f, 8.0f, 8.0f, -8.0f, 8.0f, 1.0f};
    memcpy(f->tokens, tokens, sizeof tokens);
    f->sample.n_prompt = 2;
    f->sampling.temperature = 0.0f;
    f->sampling.repetition_penalty = 2.0f;
    f->sampling.frequency_penalty = 0.5f;
    f->sampling.presence_penalty = 0.25f;
    (void)sample_at(f, logits, 6, 6);
    const float want[6] = {4.0f, 3.25f, 2.75f, -16.75f, 8.0f, 1.0f};
    assert_memory_equal(f->logits, want, sizeof want);
    for (uint32_t i = 0; i < VOCAB_MAX; i++) {
        assert_int_equal(f->counts[i], 0);
    }
    free(f);
}

/* With the penalties that favour it most. */
static void a_forbidden_token_never_comes(void **state) {
    (void)state;
    struct fixture *f = new_fixture();
    const float logits[4] = {8.0f, 1.0f, 1.0f, 1.0f};
    const struct weft_logit_bias bias[] = {{0, WEFT_LOGIT_BIAS_NEVER},
                                           {1, WEFT_LOGIT_BIAS_NEVER},
                                           {2, WEFT_LOGIT_BIAS_NEVER},
                                           {3, WEFT_LOGIT_BIAS_NEVER}};
    f->sampling.bias = bias;
    f->sampling.repetition_penalty = 1e-6f;
    f->sampling.frequency_penalty = f->sampling.presence_penalty = -1e6f;
    f->sampling.temperature = 100.0f;
    for (f->sampling.n_bias = 1; f->sampling.n_bias <= 3; f->sampling.n_bias++) {
        for (uint32_t at = 0; at < 60; at++) { /* of which all are the forbidden token */
            assert_true(sample_at(f, logits, 4, at) >= f->sampling.n_bias);
        }
    }
    for (uint32_t at = 0; at < 4; at++) { /* n_bias is 4: there is no other one, but an answer */
        f->sampling.temperature = at % 2 ? 1.0f : 0.0f;
        f->sampling.top_n_sigma = at / 2 ? 1.0f : 0.0f;
        assert_int_equal(sample_at(f, logits, 4, at), 0);
    }
    free(f);
}

static void none_but_allowed_tokens_come(void **state) {
    (void)state;
    struct fixture *f = new_fixture();
    static const uint32_t allowed[] = {3, 64, 999};
    float logits[1000];
    uint32_t n_of[3] = {0};
    for (uint32_t i = 0; i < 1000; i++)
        logits[i] = i == 64 ? -5.0f : i == 7 ? 50.0f : -6.0f;
    f->sampling.allowed_tokens = allowed;
    f->sampling.n_allowed_tokens = 3;
    assert_false(wefti_sampler_is_plain(&f->sample));
    for (uint32_t at = 0; at < 2000; at++) {
        uint32_t token = sample_at(f, logits, 1000, at);
        assert_true(token == 3 || token == 64 || token == 999);
        n_of[token == 3 ? 0 : token == 64 ? 1 : 2]++;
    }
    assert_true(n_of[0] > 200 && n_of[1] > n_of[0] && n_of[2] > 200);
    f->sampling.temperature = 0.0f;
    assert_false(wefti_sampler_is_plain(&f->sample));
    assert_int_equal(sample_at(f, logits, 1000, 0), 64);
    static const uint32_t bad[] = {1, 3, 1, 64, 1, 999};
    f->sampling.bad_words = bad;
    f->sampling.n_bad_words = 4;
    assert_int_equal(sample_at(f, logits, 1000, 0), 999);
    f->sampling.n_bad_words = 6; /* nothing is left: still one that is allowed */
    assert_int_equal(sample_at(f, logits, 1000, 0), 3);
    free(f);
}

static void bad_words_never_come_to_their_end(void **state) {
    (void)state;
    struct fixture *f = new_fixture();
    static const uint32_t bad[] = {1, 5, 2, 1, 2, 3, 2, 2, 4};
    const float logits[] = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f};
    static const struct {
        uint32_t tokens[3], n_prompt, n_known, want;
    } cases[] = {
        {{0}, 0, 0, 4},       /* 5 is a word by itself */
        {{1}, 0, 1, 4},       /* 1 2 */
        {{2}, 0, 1, 4},       /* 2 2 4 lacks a 2 */
        {{2, 2}, 0, 2, 3},    /* and here it ends */
        {{2, 2}, 1, 2, 4},    /* a prompt's tokens do not count */
        {{0, 2, 2}, 1, 3, 3}, /* those behind it do */
        {{2, 2, 0}, 0, 3, 4},
    };
    f->sampling.temperature = 0.0f;
    f->sampling.bad_words = bad;
    f->sampling.n_bad_words = 9;
    assert_false(wefti_sampler_is_plain(&f->sample));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(f->tokens, cases[i].tokens, sizeof cases[i].tokens);
        f->sample.n_prompt = cases[i].n_prompt;
        assert_int_equal(sample_at(f, logits, 6, cases[i].n_known), cases[i].want);
    }
    free(f);
}

static void broken_logits_still_give_a_token(void **state) {
    (void)state;
    struct fixture *f = new_fixture();
    float logits[70];
    const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
    uint64_t rng = 5;
    for (int round = 0; round < 500; round++) {
        for (uint32_t i = 0; i < 70; i++) {
            logits[i] = round < 5
                            ? odd[round]
                            : (weft_rand_below(&rng, 3) ? 1.0f : odd[weft_rand_below(&rng, 5)]);
        }
        f->sampling.temperature = round % 2 ? 1.0f : 1e-5f;
        f->sampling.top_k = round % 3 ? 0 : 5;
        f->sampling.top_p = round % 5 ? 1.0f : 0.5f;
        f->sampling.min_p = round % 7 ? 0.0f : 1.0f;
        (void)sample_at(f, logits, 70, (uint32_t)round);
        struct weft_logprobs logprobs;
        uint32_t ids[70];
        float values[70];
        struct wefti_sampler_top top = {70, ids, values};
        wefti_sampler_logprobs(kern, logits, 70, 3, &top, &logprobs);
        for (uint32_t i = 0; i < 70; i++) {
            assert_true(ids[i] < 70);
        }
    }
    free(f);
}

/* ------------------------------------------------------------------------ log-probabilities --- */

static void logprobs_agree_with_a_sort(void **state) {
    (void)state;
    uint64_t rng = weft_rand_test_seed();
    float *logits = aligned_alloc(64, (VOCAB_MAX * sizeof *logits + 63) / 64 * 64);
    struct ranked *r = calloc(VOCAB_MAX, sizeof *r);
    uint32_t *ids = calloc(VOCAB_MAX, sizeof *ids);
    float *values = calloc(VOCAB_MAX, sizeof *values);
    if (!logits || !r || !ids || !values) abort();
    for (int round = 0; round < 50; round++) {
        uint32_t n = 1 + weft_rand_below(&rng, VOCAB_MAX);
        double sum = 0.0;
        for (uint32_t i = 0; i < n; i++) { /* coarse, so that many are equal */
            logits[i] = (float)weft_rand_below(&rng, 64) * 0.25f;
            r[i] = (struct ranked){(double)logits[i], i};
            sum += exp((double)logits[i]);
        }
        qsort(r, n, sizeof *r, by_rank);
        uint32_t n_top = weft_rand_below(&rng, 3) ? weft_rand_below(&rng, n + 1) : n;
        uint32_t token = weft_rand_below(&rng, n);
        struct weft_logprobs got;
        struct wefti_sampler_top top = {n_top, ids, values};
        wefti_sampler_logprobs(kern, logits, n, token, &top, &got);
        assert_int_equal(got.n_top, n_top);
        assert_true(fabs((double)got.logprob - ((double)logits[token] - log(sum))) < 1e-4);
        uint32_t n_higher = 0;
        for (uint32_t i = 0; i < n; i++) {
            n_higher += logits[i] > logits[token];
        }
        assert_int_equal(got.rank, n_higher + 1);
        for (uint32_t i = 0; i < n_top; i++) {
            assert_int_equal(got.top_ids[i], r[i].id);
            if (got.top_ids[i] == token) assert_true(got.top_logprobs[i] == got.logprob);
        }
    }
    free(values);
    free(ids);
    free(r);
    free(logits);
}

int main(void) {
    struct weft_errmsg why = {{0}};
    if (weft_kern_select(&kern, &why)) {
        (void)printf("%s\n", why.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(draws_differ_by_seed_choice_and_position),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(kept_sets_agree_with_a_sort),
        cmocka_unit_test(sigmas_are_those_of_what_is_not_masked),
        cmocka_unit_test(greedy_takes_the_lowest_of_equal_tokens),
        cmocka_unit_test(equal_weights_rank_by_id),
        cmocka_unit_test(a_cut_keeps_the_lowest_of_equal_tokens),
        cmocka_unit_test(bias_and_mask_decide_greedily),
        cmocka_unit_test(penalties_count_prompt_and_output_as_they_should),
        cmocka_unit_test(a_forbidden_token_never_comes),
        cmocka_unit_test(none_but_allowed_tokens_come),
        cmocka_unit_test(bad_words_never_come_to_their_end),
        cmocka_unit_test(broken_logits_still_give_a_token),
        cmocka_unit_test(logprobs_agree_with_a_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
