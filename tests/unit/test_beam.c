/* Beam search against a plain one that keeps whole lists of tokens, over made-up models with a
 * vocabulary of eight; and against the whole tree where the beams are wide enough for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "inside/scheduler/beam/search.h"

enum { VOCAB = 8, DEPTH = 6, STOP = 7, MASKED = 6, BEAMS_MAX = WEFT_BEAMS_MAX };

struct text {
    uint32_t tokens[DEPTH], n;
    double sum, score;
};

struct texts {
    struct text list[2 * BEAMS_MAX * VOCAB];
    uint32_t n;
};

/* ------------------------------------------------------------------------- the made-up model --- */

/* Log-probabilities after some tokens: a function of these and a seed. */
static void make_logprobs(uint64_t seed, const struct text *text, float logprobs[VOCAB]) {
    uint64_t state = seed;
    for (uint32_t i = 0; i < text->n; i++)
        state = (state ^ (text->tokens[i] + 1)) * 0x9E3779B97F4A7C15ull;
    double sum = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        logprobs[i] = (float)weft_rand_below(&state, 4000) / 1000.0f;
        sum += exp((double)logprobs[i]);
    }
    for (uint32_t i = 0; i < VOCAB; i++)
        logprobs[i] = (float)((double)logprobs[i] - log(sum));
}

/* The likeliest `n`, as a worker tells them. */
static void list_best(const float logprobs[VOCAB], uint32_t n, uint32_t *tokens, float *values) {
    bool taken[VOCAB] = {false};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = VOCAB;
        for (uint32_t t = 0; t < VOCAB; t++) {
            if (!taken[t] && (best == VOCAB || logprobs[t] > logprobs[best])) best = t;
        }
        taken[best] = true;
        tokens[i] = best;
        values[i] = logprobs[best];
    }
}

/* ----------------------------------------------------------------------------- a plain search --- */

static int by_score(const void *a, const void *b) {
    const struct text *x = a, *y = b;
    return x->score < y->score ? 1 : x->score > y->score ? -1 : 0;
}

/* Not qsort: equal ones stay in their order. */
static void sort(struct texts *texts) {
    for (uint32_t i = 1; i < texts->n; i++) {
        struct text one = texts->list[i];
        uint32_t at = i;
        for (; at > 0 && by_score(&texts->list[at - 1], &one) > 0; at--)
            texts->list[at] = texts->list[at - 1];
        texts->list[at] = one;
    }
}

static double score(const struct wefti_beam_options *o, double sum, uint32_t n) {
    return sum / pow(o->n_prompt + n, (double)o->sampling->length_penalty);
}

static uint32_t count_last(const struct texts *groups, uint32_t n_groups, uint32_t token) {
    uint32_t n = 0;
    for (uint32_t g = 0; g < n_groups; g++) {
        for (uint32_t i = 0; i < groups[g].n; i++)
            n += groups[g].list[i].tokens[groups[g].list[i].n - 1] == token;
    }
    return n;
}

static void extend(const struct wefti_beam_options *o, uint64_t seed, const struct text *from,
                   const struct texts *groups, uint32_t g, struct texts *next, struct texts *done) {
    const struct weft_sampling *s = o->sampling;
    uint32_t size = s->beam_width / s->beam_groups, tokens[VOCAB];
    float logprobs[VOCAB], values[VOCAB];
    make_logprobs(seed, from, logprobs);
    list_best(logprobs, VOCAB, tokens, values);
    for (uint32_t i = 0; i < VOCAB; i++) {
        struct text text = *from;
        bool is_stop = tokens[i] == STOP && s->n_stop_tokens > 0;
        bool is_masked = is_stop || (tokens[i] == MASKED && s->n_masked_tokens > 0);
        if (is_masked && from->n < s->min_tokens) continue;
        text.tokens[text.n++] = tokens[i];
        text.sum += (double)values[i];
        text.sum -= (double)s->diversity_penalty * count_last(groups, g, tokens[i]);
        text.score = is_stop ? score(o, text.sum, text.n - 1) : text.sum;
        if (is_stop && i < 2 * size) done->list[done->n++] = text;
        if (!is_stop) next->list[next->n++] = text;
    }
}

static void search_plainly(const struct wefti_beam_options *o, uint64_t seed, struct texts *out) {
    static struct texts live[BEAMS_MAX], done[BEAMS_MAX], next;
    const struct weft_sampling *s = o->sampling;
    uint32_t size = s->beam_width / s->beam_groups;
    for (uint32_t g = 0; g < s->beam_groups; g++) {
        live[g].n = 1;
        live[g].list[0] = (struct text){.n = 0};
        done[g].n = 0;
    }
    for (uint32_t step = 0; step < o->max_tokens; step++) {
        for (uint32_t g = 0; g < s->beam_groups; g++) {
            next.n = 0;
            for (uint32_t i = 0; i < live[g].n; i++)
                extend(o, seed, &live[g].list[i], live, g, &next, &done[g]);
            sort(&next);
            sort(&done[g]);
            if (next.n > size) next.n = size;
            if (done[g].n > size) done[g].n = size;
            live[g] = next;
        }
    }
    out->n = 0;
    for (uint32_t g = 0; g < s->beam_groups; g++) {
        for (uint32_t i = 0; i < done[g].n; i++)
            out->list[out->n++] = done[g].list[i];
        for (uint32_t i = 0; i < live[g].n; i++) {
            out->list[out->n] = live[g].list[i];
            out->list[out->n++].score = score(o, live[g].list[i].sum, o->max_tokens);
        }
    }
    sort(out);
}

/* --------------------------------------------------------------------------- the search itself --- */

static void step(wefti_beam_search *search, uint64_t seed) {
    static uint32_t tokens[BEAMS_MAX][VOCAB];
    static float values[BEAMS_MAX][VOCAB];
    struct wefti_beam_next next[BEAMS_MAX];
    uint32_t n_wanted = wefti_beam_n_wanted(search->options.sampling, VOCAB);
    uint32_t n_live = wefti_beam_n_live(search);
    assert_true(n_live <= BEAMS_MAX);
    for (uint32_t i = 0; i < n_live; i++) {
        const struct wefti_beam *beam = wefti_beam_live(search, i);
        struct text text = {.n = beam->n_tokens};
        float logprobs[VOCAB];
        wefti_beam_tokens(search, beam, text.tokens);
        make_logprobs(seed, &text, logprobs);
        list_best(logprobs, n_wanted, tokens[i], values[i]);
        next[i] = (struct wefti_beam_next){n_wanted, tokens[i], values[i]};
    }
    assert_int_equal(wefti_beam_reserve(search), WEFT_OK);
    wefti_beam_advance(search, next);
}

static void search(const struct wefti_beam_options *o, uint64_t seed, struct texts *out) {
    const struct wefti_beam *best[BEAMS_MAX];
    wefti_beam_search *search = wefti_beam_new(o);
    assert_non_null(search);
    while (!search->is_over)
        step(search, seed);
    out->n = wefti_beam_best(search, o->sampling->beam_width, best);
    for (uint32_t i = 0; i < out->n; i++) {
        out->list[i] =
            (struct text){.n = best[i]->n_tokens, .sum = best[i]->sum, .score = best[i]->score};
        wefti_beam_tokens(search, best[i], out->list[i].tokens);
    }
    wefti_beam_free(search);
}

/* --------------------------------------------------------------------------------------- tests --- */

static const uint32_t stops[] = {STOP}, masked[] = {MASKED};

static struct weft_sampling make_sampling(uint32_t width) {
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    sampling.beam_width = width;
    sampling.max_tokens = DEPTH;
    sampling.stop_tokens = stops;
    sampling.n_stop_tokens = 1;
    return sampling;
}

static void assert_alike(const struct wefti_beam_options *o, uint64_t seed) {
    static struct texts expected, found;
    search_plainly(o, seed, &expected);
    search(o, seed, &found);
    uint32_t n = expected.n < o->sampling->beam_width ? expected.n : o->sampling->beam_width;
    assert_int_equal(found.n, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(found.list[i].n, expected.list[i].n);
        assert_memory_equal(found.list[i].tokens, expected.list[i].tokens,
                            found.list[i].n * sizeof(uint32_t));
        assert_true(found.list[i].score == expected.list[i].score);
    }
}

static void every_width_is_as_the_plain_search(void **state) {
    (void)state;
    static const float penalties[] = {0.0f, 1.0f, 0.5f, 2.0f};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        for (uint32_t width = 1; width <= BEAMS_MAX; width += 1 + width / 4) {
            struct weft_sampling sampling = make_sampling(width);
            sampling.length_penalty = penalties[seed % 4];
            sampling.min_tokens = (uint32_t)(seed % 3);
            sampling.n_masked_tokens = (uint32_t)(seed % 2);
            sampling.masked_tokens = masked;
            if (seed % 5 == 0) sampling.n_stop_tokens = 0;
            struct wefti_beam_options o = {&sampling, 1 + (uint32_t)seed % 9, DEPTH, VOCAB};
            assert_alike(&o, seed);
        }
    }
}

static void groups_are_as_the_plain_search(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        for (uint32_t groups = 1; groups <= 4; groups++) {
            struct weft_sampling sampling = make_sampling(groups * (1 + (uint32_t)seed % 4));
            sampling.beam_groups = groups;
            sampling.diversity_penalty = (float)(seed % 5) * 0.4f;
            /* A group that has stopped no longer keeps others from what it would choose. */
            if (seed % 5 > 0) sampling.n_stop_tokens = 0;
            struct wefti_beam_options o = {&sampling, 3, DEPTH, VOCAB};
            assert_alike(&o, seed);
        }
    }
}

/* With as many beams as there are texts but one token, nothing is ever left out. */
static void wide_beams_find_the_best_of_the_whole_tree(void **state) {
    (void)state;
    static struct texts found;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct weft_sampling sampling = make_sampling(VOCAB);
        sampling.n_stop_tokens = 0;
        struct wefti_beam_options o = {&sampling, 2, 2, VOCAB};
        double best = -INFINITY;
        for (uint32_t a = 0; a < VOCAB; a++) {
            float first[VOCAB], second[VOCAB];
            make_logprobs(seed, &(struct text){.n = 0}, first);
            make_logprobs(seed, &(struct text){.tokens = {a}, .n = 1}, second);
            for (uint32_t b = 0; b < VOCAB; b++)
                best = fmax(best, score(&o, (double)first[a] + (double)second[b], 2));
        }
        search(&o, seed, &found);
        assert_true(found.list[0].score == best);
    }
}

/* How deep a search of these goes that has found enough after each way of stopping. */
static uint32_t n_steps(enum weft_beam_stop stop, uint64_t seed) {
    struct weft_sampling sampling = make_sampling(2);
    sampling.early_stopping = stop;
    struct wefti_beam_options o = {&sampling, 4, DEPTH, VOCAB};
    wefti_beam_search *search = wefti_beam_new(&o);
    assert_non_null(search);
    while (!search->is_over)
        step(search, seed);
    uint32_t n = search->n_tokens;
    wefti_beam_free(search);
    return n;
}

static void stopping_early_never_takes_longer(void **state) {
    (void)state;
    uint32_t n_sooner = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint32_t enough = n_steps(WEFT_BEAM_STOP_ENOUGH, seed);
        uint32_t unlikely = n_steps(WEFT_BEAM_STOP_UNLIKELY, seed);
        uint32_t never = n_steps(WEFT_BEAM_STOP_NEVER, seed);
        assert_true(enough <= unlikely && unlikely <= never);
        n_sooner += enough < never;
    }
    assert_true(n_sooner > 20);
}

/* What is no number ranks last, and breaks nothing. */
static void logits_that_are_no_numbers_do_no_harm(void **state) {
    (void)state;
    struct weft_sampling sampling = make_sampling(4);
    struct wefti_beam_options o = {&sampling, 4, DEPTH, VOCAB};
    wefti_beam_search *search = wefti_beam_new(&o);
    assert_non_null(search);
    static const uint32_t tokens[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const float bad[] = {NAN, NAN, NAN, NAN, -INFINITY, -INFINITY, NAN, NAN};
    struct wefti_beam_next next[4] = {
        {8, tokens, bad}, {8, tokens, bad}, {8, tokens, bad}, {8, tokens, bad}};
    while (!search->is_over) {
        assert_int_equal(wefti_beam_reserve(search), WEFT_OK);
        wefti_beam_advance(search, next);
    }
    const struct wefti_beam *best[4];
    assert_int_equal(wefti_beam_best(search, 4, best), 4);
    wefti_beam_free(search);
}

/* A worker that errs may list one several times. */
static void a_stop_token_listed_again_and_again_finds_room(void **state) {
    (void)state;
    enum { STEPS = 40 };
    struct weft_sampling sampling = make_sampling(4);
    sampling.max_tokens = STEPS;
    sampling.early_stopping = WEFT_BEAM_STOP_NEVER;
    struct wefti_beam_options o = {&sampling, 4, STEPS, VOCAB};
    wefti_beam_search *search = wefti_beam_new(&o);
    assert_non_null(search);
    static const uint32_t tokens[] = {STOP, STOP, STOP, STOP, STOP, STOP, STOP, STOP, 0, 1, 2, 3};
    static const float values[] = {-90, -90, -90, -90, -90, -90, -90, -90, -1, -1, -1, -1};
    struct wefti_beam_next next[4] = {
        {12, tokens, values}, {12, tokens, values}, {12, tokens, values}, {12, tokens, values}};
    while (!search->is_over) {
        assert_int_equal(wefti_beam_reserve(search), WEFT_OK);
        wefti_beam_advance(search, next);
    }
    assert_int_equal(search->n_tokens, STEPS);
    wefti_beam_free(search);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_is_as_the_plain_search),
        cmocka_unit_test(groups_are_as_the_plain_search),
        cmocka_unit_test(wide_beams_find_the_best_of_the_whole_tree),
        cmocka_unit_test(stopping_early_never_takes_longer),
        cmocka_unit_test(logits_that_are_no_numbers_do_no_harm),
        cmocka_unit_test(a_stop_token_listed_again_and_again_finds_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
