/* Contrastive search in the engine: a naive one over its own logits and hidden states finds the same tokens,
 * in any company, however prompts are cut, and after a restart in the middle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "harness/eng_drive.h"
#include "unit/engine_fixtures.h"

enum { SEQ_BLOCKS = 6, SEQ_MAX = 80, VOCAB_MAX = 2048, HIDDEN_MAX = 512, SLOTS = 8, SEARCHES = 5 };

static weft_eng *open_engine(const char *model, uint32_t n_threads, uint32_t n_batched) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.kv_memory_bytes = 8u << 20;
    options.max_batched_tokens = n_batched;
    options.max_seqs = SLOTS;
    options.max_model_len = SEQ_MAX;
    options.n_threads = n_threads;
    return drive_open(drive_fixture(model), &options);
}

/* In an epoch after all others. */
static struct drive *new_drive(weft_eng *eng) {
    static uint64_t n_epochs;
    struct drive *drive = calloc(1, sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    drive->epoch += n_epochs++;
    return drive;
}

/* A search, or (alpha 0) a greedy text. */
struct search {
    float alpha;
    uint32_t k, n_prompt, n_tokens; /* all that there are when it is through */
    uint32_t tokens[SEQ_MAX];
};

static struct weft_sampling sampling_of(const struct search *search) {
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    sampling.penalty_alpha = search->alpha;
    sampling.top_k = search->k;
    sampling.temperature = 0;
    sampling.max_tokens = search->n_tokens - search->n_prompt;
    return sampling;
}

static void make_searches(struct search searches[SEARCHES], uint32_t n_vocab) {
    static const struct search shapes[SEARCHES] = {
        {0.6f, 4, 13, 40, {0}},
        {0.3f, 5, 16, 45, {0}}, /* a whole block */
        {0.9f, 40, 3, 24, {0}}, /* more than a pass has */
        {1.0f, 2, 30, 50, {0}},
        {0, 1, 9, 40, {0}}};
    for (uint32_t s = 0; s < SEARCHES; s++) {
        searches[s] = shapes[s];
        for (uint32_t i = 0; i < searches[s].n_prompt; i++)
            searches[s].tokens[i] = (s * 131 + i * 37 + 11) % n_vocab;
    }
}

/* ------------------------------------------------------------------------------------ naive --- */

struct naive {
    weft_eng *eng;
    struct drive *drive;
    uint32_t gen;
    float logits[VOCAB_MAX];
    uint32_t last; /* the position whose logits are kept */
    float context[SEQ_MAX][HIDDEN_MAX];
};

static void keep_last(void *ctx, uint32_t pos, const float *logits) {
    struct naive *naive = ctx;
    if (pos != naive->last) return;
    memcpy(naive->logits, logits, weft_eng_info(naive->eng)->n_vocab * sizeof *logits);
}

/* The hidden state behind the last of these tokens, computed from scratch. */
static void hidden_of(struct naive *naive, const uint32_t *tokens, uint32_t n,
                      float out[HIDDEN_MAX]) {
    static const uint32_t blocks[SEQ_BLOCKS] = {0, 1, 2, 3, 4, 5};
    struct weft_step_start start = {.gen = ++naive->gen,
                                    .tokens = tokens,
                                    .n_tokens = n,
                                    .n_prompt = n,
                                    .pooling.kind = WEFT_POOLING_LAST};
    uint32_t n_most = weft_eng_info(naive->eng)->max_batched_tokens;
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 0;
    drive_start(naive->drive, &start);
    drive_grant(naive->drive, 0, start.gen, blocks, SEQ_BLOCKS);
    for (uint32_t at = 0; at < n; at += n_most) {
        drive_row(naive->drive, 0, start.gen, weft_min_u32(n_most, n - at));
        const struct weft_step_out *one = drive_run(naive->drive)->outs;
        if (one->n_values > 0) memcpy(out, one->values, one->n_values * sizeof *out);
    }
    drive_release(naive->drive, 0, start.gen);
    (void)drive_run(naive->drive);
}

static double cosine(const float *a, const float *b, uint32_t n) {
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

/* The likeliest that is not taken yet, whose logit is then gone. */
static uint32_t take_best(float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static uint32_t next_token(struct naive *naive, const struct search *search, uint32_t *tokens,
                           uint32_t n) {
    const struct weft_eng_info *info = weft_eng_info(naive->eng);
    struct weft_errmsg why;
    uint32_t chosen = 0;
    double most = -INFINITY, sum = 0;
    naive->last = n - 1;
    if (weft_eng_logits(naive->eng, tokens, n, keep_last, naive, &why)) fail_msg("%s", why.text);
    hidden_of(naive, tokens, n, naive->context[n - 1]);
    for (uint32_t i = 0; i < info->n_vocab; i++)
        sum += exp((double)naive->logits[i]);
    for (uint32_t k = 0; k < search->k; k++) {
        float hidden[HIDDEN_MAX];
        uint32_t token = take_best(naive->logits, info->n_vocab);
        double p = exp((double)naive->logits[token]) / sum, greatest = -1;
        naive->logits[token] = -INFINITY;
        tokens[n] = token;
        hidden_of(naive, tokens, n + 1, hidden);
        for (uint32_t c = 0; c < n; c++)
            greatest = fmax(greatest, cosine(hidden, naive->context[c], info->n_hidden));
        double alpha = (double)search->alpha, score = (1 - alpha) * p - alpha * greatest;
        if (score > most) chosen = token;
        most = fmax(score, most);
    }
    return chosen;
}

static void search_naively(const char *model, struct search *search) {
    struct naive *naive = calloc(1, sizeof *naive);
    assert_non_null(naive);
    naive->eng = open_engine(model, 1, 32);
    naive->drive = new_drive(naive->eng);
    assert_true(weft_eng_info(naive->eng)->n_vocab <= VOCAB_MAX);
    assert_true(weft_eng_info(naive->eng)->n_hidden <= HIDDEN_MAX);
    for (uint32_t n = 1; n < search->n_prompt; n++)
        hidden_of(naive, search->tokens, n, naive->context[n - 1]);
    for (uint32_t n = search->n_prompt; n < search->n_tokens; n++)
        search->tokens[n] = next_token(naive, search, search->tokens, n);
    weft_eng_free(naive->eng);
    free(naive->drive);
    free(naive);
}

/* ----------------------------------------------------------------------------------- engine --- */

/* Where a search stands in the engine. */
struct place {
    uint32_t n_known, n_computed, gen;
    uint32_t tokens[SEQ_MAX];
    enum weft_end finish;
};

static void start_in(struct drive *drive, uint32_t slot, const struct search *search,
                     struct place *place) {
    uint32_t blocks[SEQ_BLOCKS];
    for (uint32_t i = 0; i < SEQ_BLOCKS; i++)
        blocks[i] = slot * SEQ_BLOCKS + (i * 5 + slot) % SEQ_BLOCKS;
    const struct weft_step_start start = {.slot = slot,
                                          .gen = ++place->gen,
                                          .tokens = place->tokens,
                                          .n_tokens = place->n_known,
                                          .n_prompt = search->n_prompt,
                                          .sampling = sampling_of(search)};
    place->n_computed = 0;
    drive_start(drive, &start);
    drive_grant(drive, slot, start.gen, blocks, SEQ_BLOCKS);
}

static void take_out(const struct weft_step_out *out, struct place *place) {
    if (out->sampled) {
        assert_in_range(place->n_known, 1, SEQ_MAX - 1);
        place->tokens[place->n_known++] = out->token;
    }
    place->finish = out->finish;
}

/* All at once, prompts in chunks; each is preempted when it has `restart_at` tokens (0: none is). */
static void run_together(weft_eng *eng, const struct search *searches, uint32_t n, uint32_t chunk,
                         uint32_t restart_at, struct place *places) {
    struct drive *drive = new_drive(eng);
    memset(places, 0, n * sizeof *places);
    for (uint32_t s = 0; s < n; s++) {
        places[s].n_known = searches[s].n_prompt;
        memcpy(places[s].tokens, searches[s].tokens, searches[s].n_prompt * sizeof(uint32_t));
        start_in(drive, s, &searches[s], &places[s]);
    }
    for (uint32_t n_live = n, step = 0; n_live > 0; step++) {
        uint32_t whose[SLOTS], n_rows = 0;
        assert_true(step < 400);
        for (uint32_t s = 0; s < n; s++) {
            struct place *place = &places[s];
            if (place->finish != WEFT_END_NONE || (step + s) % 5 == 4) continue;
            uint32_t n_row = weft_min_u32(chunk, place->n_known - place->n_computed);
            drive_row(drive, s, place->gen, n_row);
            place->n_computed += n_row;
            whose[n_rows++] = s;
        }
        const struct weft_step_result *result = drive_run(drive);
        for (uint32_t i = 0; i < n_rows; i++)
            take_out(&result->outs[i], &places[whose[i]]);
        n_live = 0;
        for (uint32_t s = 0; s < n; s++) {
            bool is_over = places[s].finish != WEFT_END_NONE;
            n_live += !is_over;
            if (is_over || places[s].n_known != restart_at || places[s].gen > 1) continue;
            drive_release(drive, s, places[s].gen);
            start_in(drive, s, &searches[s], &places[s]);
        }
    }
    for (uint32_t s = 0; s < n; s++)
        drive_release(drive, s, places[s].gen);
    (void)drive_run(drive);
    free(drive);
}

static void expect(const char *model, const struct search *searches, uint32_t n,
                   const struct place *places) {
    for (uint32_t s = 0; s < n; s++) {
        assert_int_equal(places[s].n_known, searches[s].n_tokens);
        assert_int_equal(places[s].finish, WEFT_END_LENGTH);
        for (uint32_t i = 0; i < searches[s].n_tokens; i++)
            if (places[s].tokens[i] != searches[s].tokens[i])
                fail_msg("%s: search %u: token %u is %u, not %u", model, s, i, places[s].tokens[i],
                         searches[s].tokens[i]);
    }
}

static void check_model(const char *model) {
    static const struct {
        uint32_t n_threads, n_batched, chunk, restart_at;
    } manners[] = {{1, 64, 64, 0}, {3, 64, 7, 0}, {2, 40, 5, 34}, {3, 64, 64, 20}};
    struct search searches[SEARCHES];
    struct place places[SEARCHES];
    weft_eng *eng = open_engine(model, 1, 32);
    make_searches(searches, weft_eng_info(eng)->n_vocab);
    assert_true(weft_eng_info(eng)->has_contrast);
    weft_eng_free(eng);
    for (uint32_t s = 0; s < SEARCHES; s++)
        search_naively(model, &searches[s]);
    for (size_t m = 0; m < sizeof manners / sizeof manners[0]; m++) {
        eng = open_engine(model, manners[m].n_threads, manners[m].n_batched);
        run_together(eng, searches, SEARCHES, manners[m].chunk, manners[m].restart_at, places);
        expect(model, searches, SEARCHES, places);
        for (uint32_t s = 0; s < SEARCHES && m == 0; s++) { /* and alone */
            run_together(eng, &searches[s], 1, SEQ_MAX, 0, places);
            expect(model, &searches[s], 1, places);
        }
        weft_eng_free(eng);
    }
}

/* A window, latent attention, experts, and a model whose layers see what they like. */
static void tokens_are_those_of_a_naive_search(void **state) {
    (void)state;
    static const char *const models[] = {ENGINE_TIED, ENGINE_WINDOWED, "tests/data/zoo/deepseek_v3",
                                         "tests/data/zoo/gemma3"};
    for (size_t i = 0; i < (engine_short_run ? 2 : sizeof models / sizeof models[0]); i++)
        check_model(models[i]);
}

/* --------------------------------------------------------------------------------- sampling --- */

static uint32_t complete(weft_eng *eng, const struct weft_sampling *sampling, uint32_t *out) {
    static const uint32_t prompt[] = {5, 9, 70, 31, 8, 14};
    struct drive *drive = new_drive(eng);
    uint32_t n = drive_complete(drive, prompt, 6, sampling, out);
    free(drive);
    return n;
}

static bool has(const uint32_t *tokens, uint32_t n, uint32_t token) {
    for (uint32_t i = 0; i < n; i++)
        if (tokens[i] == token) return true;
    return false;
}

static void masks_and_ends_count(void **state) {
    (void)state;
    static const uint32_t allowed[] = {20, 21, 22};
    const struct search shape = {.alpha = 0.6f, .k = 8, .n_prompt = 6, .n_tokens = 36};
    uint32_t plain[SEQ_MAX], out[SEQ_MAX];
    weft_eng *eng = open_engine(ENGINE_TIED, 2, 32);
    struct weft_sampling sampling = sampling_of(&shape);
    assert_int_equal(complete(eng, &sampling, plain), 30);
    sampling.stop_tokens = &plain[7];
    sampling.n_stop_tokens = 1;
    uint32_t n = complete(eng, &sampling, out);
    assert_in_range(n, 1, 8);
    assert_memory_equal(out, plain, n * sizeof *out);
    assert_int_equal(out[n - 1], plain[7]);
    sampling.min_tokens = 30; /* the stop token is no candidate before */
    n = complete(eng, &sampling, out);
    assert_int_equal(n, 30);
    assert_false(has(out, 29, plain[7]));
    sampling = sampling_of(&shape);
    sampling.allowed_tokens = allowed;
    sampling.n_allowed_tokens = 3; /* fewer than k */
    n = complete(eng, &sampling, out);
    for (uint32_t i = 0; i < n; i++)
        assert_true(has(allowed, 3, out[i]));
    sampling.n_allowed_tokens = 1; /* nothing to choose from */
    n = complete(eng, &sampling, out);
    assert_int_equal(n, 30);
    assert_int_equal(out[29], 20);
    sampling = sampling_of(&shape);
    sampling.repetition_penalty = 1e6f;
    n = complete(eng, &sampling, out);
    assert_int_not_equal(memcmp(out, plain, n * sizeof *out), 0);
    sampling = sampling_of(&shape);
    sampling.temperature = 3;
    sampling.top_p = 0.1f;
    sampling.seed = 77;
    assert_int_equal(complete(eng, &sampling, out), 30);
    assert_memory_equal(out, plain, sizeof plain[0] * 30);
    weft_eng_free(eng);
}

static void starts_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const uint32_t tokens[] = {1, 2, 3};
    const struct search shape = {.alpha = 0.5f, .k = 3, .n_prompt = 3, .n_tokens = 9};
    weft_eng *eng = open_engine(ENGINE_TIED, 1, 32);
    struct drive *drive = calloc(1, sizeof *drive);
    assert_non_null(drive);
    for (int i = 0; i < 4; i++) {
        struct weft_step_start start = {.gen = 1,
                                        .tokens = tokens,
                                        .n_tokens = 3,
                                        .n_prompt = 3,
                                        .sampling = sampling_of(&shape)};
        const struct weft_step_result *result;
        struct weft_errmsg why = {""};
        if (i == 0) start.n_cached = start.n_written = 1;
        if (i == 1) start.sampling.top_k = 1;
        if (i == 2) start.sampling.n_logprobs = 0;
        if (i == 3) start.sampling.top_k = WEFT_CONTRAST_K_MAX + 1;
        drive_init(drive, eng);
        drive_start(drive, &start);
        const struct weft_step_plan plan = drive_plan(drive);
        assert_int_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_E_PROTO);
        assert_non_null(strstr(why.text, "contrastive search"));
    }
    free(drive);
    weft_eng_free(eng);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_a_naive_search),
        cmocka_unit_test(masks_and_ends_count),
        cmocka_unit_test(starts_that_do_not_fit_are_refused),
    };
    if (!engine_test_begin("test_engine_contrast", argc, argv)) return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
