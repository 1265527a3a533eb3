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
#include "inside/engine/sampler/chain.h"
#include "inside/engine/sampler/penalties.h"
#include "inside/engine/sampler/sampler.h"

enum { N = 120, DRAWS = 100000, TOKENS_MAX = 1 << 16 };

struct fixture {
    float logits[N];
    struct weft_sampling sampling;
    struct wefti_sampler_input input;
    struct wefti_sampler_scratch scratch;
    struct wefti_chain_scratch chain;
    uint32_t *tokens;
    float *work; /* [N], aligned */
    void *map;
    size_t map_bytes;
    double state;
};

static const struct weft_kern_table *kern;

static void lay_out(struct fixture *f, struct wefti_memory_layout *layout) {
    f->scratch = wefti_sampler_scratch_reserve(layout, N);
    f->chain = wefti_chain_scratch_reserve(layout, N, TOKENS_MAX);
    f->scratch.chain = &f->chain;
    f->work = wefti_memory_reserve(layout, wefti_memory_stride(N), sizeof(float));
    f->tokens = wefti_memory_reserve(layout, TOKENS_MAX, sizeof(uint32_t));
}

/* Two dozen tokens with most of the mass, and a long tail. */
static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    struct wefti_memory_layout layout = {0};
    uint64_t rng = 7;
    assert_non_null(f);
    lay_out(f, &layout);
    f->map_bytes = layout.used;
    f->map = wefti_memory_map(f->map_bytes);
    assert_non_null(f->map);
    layout = (struct wefti_memory_layout){.base = f->map};
    lay_out(f, &layout);
    for (uint32_t i = 0; i < N; i++)
        f->logits[i] = (float)((i % 5 ? 2.0 : 6.0) * weft_rand_unit(&rng));
    weft_sampling_init(&f->sampling);
    f->sampling.temperature = 1.0f;
    f->sampling.seed = 11;
    f->input = (struct wefti_sampler_input){
        .sampling = &f->sampling, .tokens = f->tokens, .state = &f->state};
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    wefti_memory_unmap(f->map, f->map_bytes);
    free(f);
    return 0;
}

static uint32_t draw_at(struct fixture *f, uint32_t position) {
    memcpy(f->work, f->logits, sizeof f->logits);
    f->input.n_known = position;
    uint32_t token = wefti_sampler_choose(kern, &f->input, f->work, N, &f->scratch);
    assert_true(token < N);
    return token;
}

static void probabilities(struct fixture *f, double p[N]) {
    memcpy(f->work, f->logits, sizeof f->logits);
    f->input.n_known = 0;
    wefti_sampler_probabilities(kern, &f->input, f->work, N, &f->scratch, p);
}

/* Pearson's statistic in standard deviations (Wilson and Hilferty); rare tokens are one cell. */
static void check_counts(const uint32_t counts[N], const double p[N]) {
    double chi = 0.0, rare_p = 0.0, n_cells = 0.0;
    uint32_t rare = 0;
    for (uint32_t i = 0; i < N; i++) {
        double want = p[i] * DRAWS;
        if (p[i] == 0.0) assert_int_equal(counts[i], 0);
        if (want < 5.0) {
            rare_p += p[i];
            rare += counts[i];
            continue;
        }
        chi += (counts[i] - want) * (counts[i] - want) / want;
        n_cells++;
    }
    if (rare_p * DRAWS >= 5.0) {
        chi += pow(rare - rare_p * DRAWS, 2.0) / (rare_p * DRAWS);
        n_cells++;
    }
    double freedom = n_cells - 1.0, spread = 2.0 / (9.0 * freedom);
    double sigmas = (cbrt(chi / freedom) - (1.0 - spread)) / sqrt(spread);
    assert_true(n_cells >= 2.0);
    if (fabs(sigmas) > 4.0) fail_msg("%g standard deviations off", sigmas);
}

/* Draws of one distribution: a state begins anew each time. */
static void check_draws(struct fixture *f, double state, const double p[N]) {
    uint32_t counts[N] = {0};
    for (uint32_t i = 0; i < DRAWS; i++) {
        f->state = state;
        counts[draw_at(f, i)]++;
    }
    check_counts(counts, p);
}

/* ------------------------------------------------------------------------------------ draws --- */

static void plain_draws_follow_the_distribution(void **state) {
    struct fixture *f = *state;
    double p[N];
    probabilities(f, p);
    check_draws(f, 0.0, p);
    f->sampling.top_k = 20;
    f->sampling.typical_p = 0.9f; /* not of the usual ones: a chain */
    probabilities(f, p);
    check_draws(f, 0.0, p);
}

/* With its chance what XTC leaves, else what there was. */
static void xtc_takes_part_as_often_as_it_should(void **state) {
    struct fixture *f = *state;
    double with[N], without[N], never = 1.0, always = 0.0;
    f->sampling.xtc_probability = 0.3f;
    f->sampling.xtc_threshold = 0.04f;
    f->input.xtc_draw = &always;
    probabilities(f, with);
    f->input.xtc_draw = &never;
    probabilities(f, without);
    assert_memory_not_equal(with, without, sizeof with);
    f->input.xtc_draw = NULL;
    for (uint32_t i = 0; i < N; i++)
        with[i] = 0.3 * with[i] + 0.7 * without[i];
    check_draws(f, 0.0, with);
}

/* What Mirostat keeps at a mu: the distribution cut to as many tokens as it says. */
static void cut_to(const double p[N], uint32_t n, double out[N]) {
    double sum = 0.0;
    bool taken[N] = {false};
    for (uint32_t k = 0; k < n; k++) {
        uint32_t best = N;
        for (uint32_t i = 0; i < N; i++) {
            if (!taken[i] && (best == N || p[i] > p[best])) best = i;
        }
        taken[best] = true;
        sum += p[best];
    }
    for (uint32_t i = 0; i < N; i++)
        out[i] = taken[i] ? p[i] / sum : 0.0;
}

static uint32_t n_kept_by_mirostat(struct fixture *f, double mu) {
    struct wefti_mirostat drawn;
    struct wefti_chain chain = {.input = &f->input,
                                .scratch = &f->chain,
                                .counts = f->scratch.counts,
                                .logits = f->work,
                                .n_vocab = N,
                                .n = N};
    for (uint32_t i = 0; i < N; i++) {
        f->chain.x[i] = (double)f->logits[i];
        f->chain.ids[i] = i;
    }
    (void)wefti_mirostat_draw(&chain, mu, 0.5, &drawn);
    return drawn.n_kept;
}

static void check_mirostat(struct fixture *f, uint32_t version) {
    double p[N], cut[N];
    probabilities(f, p);
    f->sampling.mirostat = version;
    f->sampling.mirostat_tau = 3.0f;
    uint32_t n = n_kept_by_mirostat(f, 5.5);
    assert_true(n > 2 && n < N);
    cut_to(p, n, cut);
    check_draws(f, 5.5, cut);
}

static void mirostat_1_draws_from_what_it_keeps(void **state) {
    check_mirostat(*state, 1);
}

static void mirostat_2_draws_from_what_it_keeps(void **state) {
    check_mirostat(*state, 2);
}

static void adaptive_p_draws_around_its_target(void **state) {
    struct fixture *f = *state;
    double p[N];
    f->sampling.adaptive_target = 0.1f;
    f->state = weft_sampling_first_state(&f->sampling);
    probabilities(f, p);
    check_draws(f, f->state, p);
}

/* ------------------------------------------------------------------------------------ states --- */

/* Each step moves mu by what the surprise is off: were it off on average, mu would go away. */
static void mirostat_holds_the_surprise_that_is_wanted(void **state) {
    struct fixture *f = *state;
    for (uint32_t version = 1; version <= 2; version++) {
        f->sampling.mirostat = version;
        f->sampling.mirostat_tau = 2.5f; /* within reach of what is kept */
        f->sampling.variant = WEFT_VARIANT_LLAMA_CPP;
        f->state = weft_sampling_first_state(&f->sampling);
        for (uint32_t i = 0; i < 5000; i++)
            (void)draw_at(f, i);
        assert_true(f->state != 5.0 && fabs(f->state - 5.0) < 8.0);
    }
}

static double average_of(struct fixture *f, const double p[N], float target) {
    double sum = 0.0;
    f->sampling.adaptive_target = target;
    f->state = weft_sampling_first_state(&f->sampling);
    for (uint32_t i = 0; i < 5000; i++)
        sum += p[draw_at(f, i)];
    return sum / 5000.0;
}

static void adaptive_p_brings_the_average_nearer_to_its_target(void **state) {
    struct fixture *f = *state;
    double p[N], usual = 0.0;
    probabilities(f, p);
    for (uint32_t i = 0; i < N; i++)
        usual += p[i] * p[i];
    assert_true(average_of(f, p, 0.0f) < usual && average_of(f, p, 1.0f) > usual);
    assert_true(fabs(f->state - average_of(f, p, 1.0f)) < 0.05);
}

/* A state handed over goes on as it would have: what a restart relies on. */
static void a_state_is_all_that_goes_from_token_to_token(void **state) {
    struct fixture *f = *state;
    uint32_t tokens[200];
    for (uint32_t version = 1; version <= 3; version++) {
        f->sampling.mirostat = version < 3 ? version : 0;
        f->sampling.adaptive_target = version < 3 ? -1.0f : 0.2f;
        f->state = weft_sampling_first_state(&f->sampling);
        double middle = 0.0;
        for (uint32_t i = 0; i < 200; i++) {
            if (i == 100) middle = f->state;
            tokens[i] = draw_at(f, i);
        }
        f->state = middle;
        for (uint32_t i = 100; i < 200; i++)
            assert_int_equal(draw_at(f, i), tokens[i]);
    }
}

/* ------------------------------------------------------------------------------------ orders --- */

static void the_usual_order_spelled_out_draws_the_same(void **state) {
    struct fixture *f = *state;
    uint32_t tokens[300];
    f->sampling.top_k = 30;
    f->sampling.top_p = 0.9f;
    f->sampling.min_p = 0.01f;
    f->sampling.temperature = 1.3f;
    for (uint32_t i = 0; i < 300; i++)
        tokens[i] = draw_at(f, i);
    for (uint32_t i = 0; i < WEFT_SAMPLER_COUNT; i++)
        f->sampling.samplers = weft_samplers_add(f->sampling.samplers, (enum weft_sampler)i);
    for (uint32_t i = 0; i < 300; i++)
        assert_int_equal(draw_at(f, i), tokens[i]);
}

static void what_is_not_in_the_order_does_not_run(void **state) {
    struct fixture *f = *state;
    double all[N], p[N];
    probabilities(f, all);
    f->sampling.samplers = WEFT_SAMPLERS_NONE;
    f->sampling.temperature = 0.0f;
    f->sampling.top_k = 1;
    f->sampling.repetition_penalty = 2.0f;
    probabilities(f, p);
    assert_memory_equal(p, all, sizeof p);
    f->sampling.samplers = weft_samplers_add(0, WEFT_SAMPLER_TEMPERATURE);
    assert_true(wefti_sampler_is_plain(&f->input));
    f->sampling.samplers = weft_samplers_add(0, WEFT_SAMPLER_XTC);
    f->sampling.samplers = weft_samplers_add(f->sampling.samplers, WEFT_SAMPLER_TEMPERATURE);
    f->sampling.xtc_probability = 1.0f;
    f->sampling.xtc_threshold = 0.01f;
    assert_false(wefti_sampler_is_plain(&f->input)); /* the best one goes before */
    assert_int_not_equal(draw_at(f, 0), kern->argmax(f->logits, N));
}

/* Temperature 3 first brings more tokens over a bound on probabilities than behind it. */
static void an_order_matters(void **state) {
    struct fixture *f = *state;
    double first[N], last[N];
    uint32_t n_first = 0, n_last = 0;
    f->sampling.temperature = 3.0f;
    f->sampling.min_p = 0.2f;
    probabilities(f, first);
    f->sampling.samplers = weft_samplers_add(0, WEFT_SAMPLER_MIN_P);
    f->sampling.samplers = weft_samplers_add(f->sampling.samplers, WEFT_SAMPLER_TEMPERATURE);
    probabilities(f, last);
    for (uint32_t i = 0; i < N; i++) {
        n_first += first[i] > 0.0;
        n_last += last[i] > 0.0;
    }
    assert_true(n_first > n_last && n_last > 0);
}

/* Behind temperature: through the candidates, of which some are gone. */
static void penalties_may_come_late(void **state) {
    struct fixture *f = *state;
    double p[N], q[N];
    uint32_t best = kern->argmax(f->logits, N);
    f->tokens[0] = f->tokens[1] = best;
    f->sampling.presence_penalty = 1.5f;
    f->sampling.temperature = 2.0f;
    f->sampling.top_k = 10;
    f->sampling.samplers = weft_samplers_add(0, WEFT_SAMPLER_TOP_K);
    f->sampling.samplers = weft_samplers_add(f->sampling.samplers, WEFT_SAMPLER_TEMPERATURE);
    probabilities(f, p);
    f->sampling.samplers = weft_samplers_add(f->sampling.samplers, WEFT_SAMPLER_PENALTIES);
    memcpy(f->work, f->logits, sizeof f->logits);
    f->input.n_known = 2;
    wefti_sampler_probabilities(kern, &f->input, f->work, N, &f->scratch, q);
    double wanted = p[best] * exp(-1.5) / (1.0 - p[best] + p[best] * exp(-1.5));
    assert_true(fabs(q[best] - wanted) < 1e-6);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(f->scratch.counts[i], 0);
}

/* -------------------------------------------------------------------------------------- DRY --- */

static void dry_knows_what_goes_on_with_a_repetition(void **state) {
    struct fixture *f = *state;
    static const uint32_t tokens[] = {5, 6, 7, 8, 1, 5, 6, 7}; /* 8 would go on with 5 6 7 */
    memcpy(f->tokens, tokens, sizeof tokens);
    f->sampling.dry_multiplier = 1.0f;
    f->sampling.dry_base = 2.0f;
    memcpy(f->work, f->logits, sizeof f->logits);
    f->input.n_known = 8;
    wefti_dry_apply(&f->input, f->work, f->scratch.counts, f->chain.runs, f->chain.n_runs);
    for (uint32_t i = 0; i < N; i++)
        assert_true(f->work[i] == (i == 8 ? f->logits[i] - 2.0f : f->logits[i]));
    f->sampling.dry_penalty_last_n = 7; /* "6 7 8 1 5 6 7": a run of two */
    memcpy(f->work, f->logits, sizeof f->logits);
    wefti_dry_apply(&f->input, f->work, f->scratch.counts, f->chain.runs, f->chain.n_runs);
    assert_true(f->work[8] == f->logits[8] - 1.0f);
    f->sampling.dry_breakers = &tokens[6];
    f->sampling.n_dry_breakers = 1; /* only "7" behind the break: too short */
    memcpy(f->work, f->logits, sizeof f->logits);
    wefti_dry_apply(&f->input, f->work, f->scratch.counts, f->chain.runs, f->chain.n_runs);
    assert_memory_equal(f->work, f->logits, sizeof f->logits);
}

/* Naive, with windows, lengths and breakers of any kind. */
static void dry_agrees_with_its_definition(void **state) {
    struct fixture *f = *state;
    uint64_t rng = weft_rand_test_seed();
    struct weft_sampling *s = &f->sampling;
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t n = 1 + weft_rand_below(&rng, 40), breaker = weft_rand_below(&rng, 6),
                 most[N] = {0};
        for (uint32_t i = 0; i < n; i++)
            f->tokens[i] = weft_rand_below(&rng, 4);
        s->dry_multiplier = 0.5f;
        s->dry_base = 1.5f;
        s->dry_allowed_length = weft_rand_below(&rng, 4);
        s->dry_breakers = &breaker;
        s->n_dry_breakers = weft_rand_below(&rng, 2);
        f->input.n_known = n;
        memcpy(f->work, f->logits, sizeof f->logits);
        wefti_dry_apply(&f->input, f->work, f->scratch.counts, f->chain.runs, f->chain.n_runs);
        uint32_t limit = 0;
        while (limit < n && !(s->n_dry_breakers && f->tokens[n - 1 - limit] == breaker))
            limit++;
        for (uint32_t i = 0; i + 1 < n && limit >= s->dry_allowed_length; i++) {
            uint32_t run = 0, next = f->tokens[i + 1];
            while (run <= i && f->tokens[i - run] == f->tokens[n - 1 - run])
                run++;
            run = run < limit ? run : limit;
            bool counts = run >= s->dry_allowed_length && n > s->dry_allowed_length;
            if (counts && run + 1 > most[next]) most[next] = run + 1;
        }
        for (uint32_t i = 0; i < N; i++) {
            bool is_breaker = s->n_dry_breakers && i == breaker;
            double want = most[i] && !is_breaker
                              ? 0.5 * pow(1.5, most[i] - 1.0 - s->dry_allowed_length)
                              : 0.0;
            assert_true(fabs((double)f->work[i] - ((double)f->logits[i] - want)) <
                        1e-5 * (1.0 + want));
        }
    }
}

/* The worst of texts: linear still, and a penalty that stays finite. */
static void dry_takes_a_text_of_one_token(void **state) {
    struct fixture *f = *state;
    for (uint32_t i = 0; i < TOKENS_MAX; i++)
        f->tokens[i] = 3;
    f->sampling.dry_multiplier = 1.0f;
    f->input.n_known = TOKENS_MAX;
    memcpy(f->work, f->logits, sizeof f->logits);
    wefti_dry_apply(&f->input, f->work, f->scratch.counts, f->chain.runs, f->chain.n_runs);
    assert_true(isfinite(f->work[3]) && f->work[3] < -1e29f);
}

/* ------------------------------------------------------------------------------------ edges --- */

static void set_all_on(struct weft_sampling *s, uint64_t *rng) {
    s->top_k = weft_rand_below(rng, 40);
    s->top_p = 0.01f + 0.99f * (float)weft_rand_unit(rng);
    s->min_p = 0.3f * (float)weft_rand_unit(rng);
    s->typical_p = (float)weft_rand_unit(rng);
    s->tfs_z = (float)weft_rand_unit(rng);
    s->top_n_sigma = 3.0f * (float)weft_rand_unit(rng);
    s->xtc_probability = 0.5f;
    s->xtc_threshold = 0.5f * (float)weft_rand_unit(rng);
    s->dynatemp_range = (float)weft_rand_below(rng, 3);
    s->temperature = 2.0f * (float)weft_rand_unit(rng);
    s->mirostat = weft_rand_below(rng, 3);
    s->adaptive_target = weft_rand_below(rng, 2) ? -1.0f : (float)weft_rand_unit(rng);
    s->variant = weft_rand_below(rng, WEFT_VARIANT_COUNT);
    s->samplers = WEFT_SAMPLERS_USUAL;
    for (uint32_t i = weft_rand_below(rng, WEFT_SAMPLER_ADAPTIVE_P); i > 0; i--)
        s->samplers = weft_samplers_add(s->samplers, (enum weft_sampler)(i - 1));
}

/* Equal, masked and broken logits, one token alone: every order of samplers yields a token that is there, and a
 * state that is a number. */
static void any_logits_yield_a_token(void **state) {
    struct fixture *f = *state;
    uint64_t rng = weft_rand_test_seed();
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t kind = weft_rand_below(&rng, 5);
        for (uint32_t i = 0; i < N; i++) {
            float value = kind == 0 ? 1.0f : (float)weft_rand_below(&rng, kind == 1 ? 3 : 1000);
            bool is_masked = kind == 2 ? i != 77 : kind == 3 && weft_rand_below(&rng, 2);
            f->logits[i] = is_masked ? -INFINITY : value;
        }
        if (kind == 4) f->logits[weft_rand_below(&rng, N)] = NAN;
        if (kind == 3) f->logits[5] = 1.0f;
        set_all_on(&f->sampling, &rng);
        f->state = weft_sampling_first_state(&f->sampling);
        uint32_t token = draw_at(f, round);
        assert_true(f->logits[token] > -INFINITY || kind == 4);
        assert_true(isfinite(f->state));
    }
}

int main(void) {
    if (weft_kern_select(&kern, NULL)) return 1;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(plain_draws_follow_the_distribution),
        TEST(xtc_takes_part_as_often_as_it_should),
        TEST(mirostat_1_draws_from_what_it_keeps),
        TEST(mirostat_2_draws_from_what_it_keeps),
        TEST(adaptive_p_draws_around_its_target),
        TEST(mirostat_holds_the_surprise_that_is_wanted),
        TEST(adaptive_p_brings_the_average_nearer_to_its_target),
        TEST(a_state_is_all_that_goes_from_token_to_token),
        TEST(the_usual_order_spelled_out_draws_the_same),
        TEST(what_is_not_in_the_order_does_not_run),
        TEST(an_order_matters),
        TEST(penalties_may_come_late),
        TEST(dry_knows_what_goes_on_with_a_repetition),
        TEST(dry_agrees_with_its_definition),
        TEST(dry_takes_a_text_of_one_token),
        TEST(any_logits_yield_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
