/* A model divided among 2, 4 and 8 engines, threads here: the same bits as one has alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/rand.h"
#include "collective/collective.h"
#include "harness/eng_drive.h"
#include "unit/engine_fixtures.h"

enum { RANKS_MAX = WEFT_COLL_RANKS_MAX, TEXT = 70, STEPS_MAX = 64, SEQS = ENGINE_REQUESTS };

static uint64_t seed;

/* --------------------------------------------------------------------------------- a group --- */

struct group {
    uint32_t n_ranks;
    weft_coll *coll; /* NULL: one rank, alone */
    weft_eng *engs[RANKS_MAX];
};

static void small_options(struct weft_eng_options *options) {
    weft_eng_options_init(options);
    options->max_seqs = SEQS;
    options->max_batched_tokens = 48; /* prompts are cut into chunks */
    options->max_model_len = 250;
    options->kv_memory_bytes = 24u << 20;
    options->n_threads = 1;
}

static weft_coll *open_coll(uint32_t n_ranks) {
    int fd;
    weft_coll *coll;
    assert_int_equal(weft_coll_create(n_ranks, &fd, NULL), WEFT_OK);
    assert_int_equal(weft_coll_open(fd, 60 * 1000, &coll, NULL), WEFT_OK);
    (void)close(fd);
    return coll;
}

static void open_group(struct group *group, const char *model, struct weft_eng_options options,
                       uint32_t n_ranks) {
    *group = (struct group){.n_ranks = n_ranks};
    if (n_ranks > 1) group->coll = open_coll(n_ranks);
    options.n_ranks = n_ranks;
    options.coll = group->coll;
    for (options.rank = 0; options.rank < n_ranks; options.rank++)
        group->engs[options.rank] = drive_open(drive_fixture(model), &options);
}

static void close_group(struct group *group) {
    for (uint32_t i = 0; i < group->n_ranks; i++)
        weft_eng_free(group->engs[i]);
    weft_coll_close(group->coll);
}

/* ---------------------------------------------------------------------------------- logits --- */

struct logits {
    uint32_t n_vocab, n_rows;
    uint64_t hashes[TEXT];
};

static void keep_row(void *ctx, uint32_t pos, const float *logits) {
    struct logits *out = ctx;
    WEFT_ASSERT(pos == out->n_rows && pos < TEXT);
    out->hashes[out->n_rows++] = XXH3_64bits(logits, out->n_vocab * sizeof *logits);
}

struct logits_job {
    weft_eng *eng;
    const uint32_t *text;
    struct logits out;
    weft_err err;
    struct weft_errmsg why;
};

static void *logits_main(void *arg) {
    struct logits_job *job = arg;
    job->err = weft_eng_logits(job->eng, job->text, TEXT, keep_row, &job->out, &job->why);
    return NULL;
}

static void group_logits(const struct group *group, const uint32_t *text, struct logits *out) {
    struct logits_job jobs[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        jobs[i] = (struct logits_job){.eng = group->engs[i], .text = text};
        jobs[i].out.n_vocab = weft_eng_info(group->engs[i])->n_vocab;
        assert_int_equal(pthread_create(&threads[i], NULL, logits_main, &jobs[i]), 0);
    }
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        if (jobs[i].err) fail_msg("rank %u: %s", i, jobs[i].why.text);
        assert_int_equal(jobs[i].out.n_rows, i == 0 ? TEXT : 0);
    }
    *out = jobs[0].out;
}

/* ----------------------------------------------------------------------------------- steps --- */

struct step_job {
    weft_eng *eng;
    const struct weft_step_plan *plan;
    const struct weft_step_result *result;
    weft_err err;
    struct weft_errmsg why;
};

static void *step_main(void *arg) {
    struct step_job *job = arg;
    job->err = weft_eng_step(job->eng, job->plan, &job->result, &job->why);
    return NULL;
}

static void group_step(const struct group *group, const struct weft_step_plan *plan,
                       struct step_job jobs[RANKS_MAX]) {
    pthread_t threads[RANKS_MAX];
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        jobs[i] = (struct step_job){.eng = group->engs[i], .plan = plan};
        assert_int_equal(pthread_create(&threads[i], NULL, step_main, &jobs[i]), 0);
    }
    for (uint32_t i = 0; i < group->n_ranks; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* All that is said of a sequence in a run of requests, as a hash. */
struct record {
    uint32_t n_tokens, tokens[32];
    enum weft_end finish;
    uint64_t logprobs;
};

static void note_logprobs(struct record *record, const struct weft_logprobs *logprobs) {
    uint32_t facts[2] = {engine_float_bits(logprobs->logprob), logprobs->rank};
    record->logprobs = XXH3_64bits_withSeed(facts, sizeof facts, record->logprobs);
    record->logprobs = XXH3_64bits_withSeed(
        logprobs->top_ids, logprobs->n_top * sizeof *logprobs->top_ids, record->logprobs);
    record->logprobs = XXH3_64bits_withSeed(
        logprobs->top_logprobs, logprobs->n_top * sizeof *logprobs->top_logprobs, record->logprobs);
}

static void note(struct record *record, const struct weft_step_out *out) {
    for (uint32_t i = 0; i < out->n_prompt_logprobs; i++)
        note_logprobs(record, &out->prompt_logprobs[i]);
    if (out->sampled) {
        assert_true(record->n_tokens < 32);
        record->tokens[record->n_tokens++] = out->token;
        if (out->has_logprobs) note_logprobs(record, &out->logprobs);
    }
    record->finish = out->finish;
}

/* What every rank knows, and the first one says. */
static void assert_ranks_agree(const struct group *group, const struct step_job *jobs) {
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        if (jobs[i].err) fail_msg("rank %u: %s", i, jobs[i].why.text);
        assert_int_equal(jobs[i].result->n_outs, jobs[0].result->n_outs);
        for (uint32_t k = 0; k < jobs[0].result->n_outs; k++) {
            const struct weft_step_out *a = &jobs[0].result->outs[k], *b = &jobs[i].result->outs[k];
            assert_int_equal(a->slot, b->slot);
            assert_int_equal(a->sampled, b->sampled);
            assert_int_equal(a->finish, b->finish);
            if (a->sampled) assert_int_equal(a->token, b->token);
        }
    }
}

/* All requests at once, each with all of its blocks from the start. */
static void run_requests(const struct group *group, const struct engine_request *requests,
                         struct record records[SEQS]) {
    const struct weft_eng_info *info = weft_eng_info(group->engs[0]);
    static struct drive drive;
    uint32_t computed[SEQS] = {0}, next_block = 0, n_left = SEQS;
    memset(records, 0, SEQS * sizeof *records);
    drive_init(&drive, group->engs[0]);
    for (uint32_t i = 0; i < SEQS; i++) {
        const struct engine_request *r = &requests[i];
        uint32_t blocks[32], n_blocks = (r->n_prompt + 16) / info->block_size + 1;
        struct weft_step_start start = {.slot = i,
                                        .gen = 1,
                                        .tokens = r->prompt,
                                        .n_tokens = r->n_prompt,
                                        .n_prompt = r->n_prompt,
                                        .sampling = r->sampling};
        for (uint32_t b = 0; b < n_blocks; b++)
            blocks[b] = next_block++;
        drive_start(&drive, &start);
        drive_grant(&drive, i, 1, blocks, n_blocks);
    }
    assert_true(next_block <= info->n_blocks);
    while (n_left > 0) {
        uint32_t budget = info->max_batched_tokens;
        struct step_job jobs[RANKS_MAX];
        for (uint32_t i = 0; i < SEQS; i++) {
            uint32_t left = requests[i].n_prompt + records[i].n_tokens - computed[i];
            uint32_t n = left < budget ? left : budget;
            if (records[i].finish != WEFT_END_NONE || n == 0) continue;
            drive_row(&drive, i, 1, n);
            computed[i] += n;
            budget -= n;
        }
        struct weft_step_plan plan = drive_plan(&drive);
        group_step(group, &plan, jobs);
        assert_ranks_agree(group, jobs);
        drive.step++;
        drive_clear(&drive);
        for (uint32_t k = 0; k < jobs[0].result->n_outs; k++) {
            const struct weft_step_out *out = &jobs[0].result->outs[k];
            note(&records[out->slot], out);
            n_left -= out->finish != WEFT_END_NONE;
        }
    }
    for (uint32_t i = 0; i < group->n_ranks; i++)
        weft_eng_reset(group->engs[i], 0);
}

/* ------------------------------------------------------------------------------ comparison --- */

static void check_model(const char *model, const struct weft_eng_options *options) {
    uint64_t rng = seed;
    struct engine_request requests[SEQS];
    struct logits want_logits, logits;
    struct record want[SEQS], got[SEQS];
    uint32_t text[TEXT];
    char fingerprint[32] = "";
    for (uint32_t n_ranks = 1; n_ranks <= RANKS_MAX; n_ranks *= 2) {
        struct group group;
        if (engine_short_run && n_ranks == 8) break;
        open_group(&group, model, *options, n_ranks);
        const struct weft_eng_info *info = weft_eng_info(group.engs[0]);
        if (n_ranks == 1) {
            engine_make_requests(requests, info->n_vocab, &rng);
            for (uint32_t i = 0; i < TEXT; i++)
                text[i] = weft_rand_below(&rng, info->n_vocab);
            group_logits(&group, text, &want_logits);
            run_requests(&group, requests, want);
            memcpy(fingerprint, info->fingerprint, sizeof fingerprint);
        } else {
            group_logits(&group, text, &logits);
            if (memcmp(logits.hashes, want_logits.hashes, sizeof logits.hashes) != 0)
                fail_msg("%s: %u ranks have other logits than one", model, n_ranks);
            run_requests(&group, requests, got);
            if (memcmp(got, want, sizeof got) != 0)
                fail_msg("%s: %u ranks say something else than one", model, n_ranks);
            for (uint32_t i = 0; i < n_ranks; i++)
                assert_string_equal(weft_eng_info(group.engs[i])->fingerprint, fingerprint);
        }
        close_group(&group);
    }
}

static void check_as_it_is(const char *model) {
    struct weft_eng_options options;
    small_options(&options);
    check_model(model, &options);
}

static void the_bundled_model_has_the_same_bits_on_any_number_of_ranks(void **state) {
    (void)state;
    struct weft_eng_options options;
    small_options(&options);
    check_model("models/fable-6m", &options);
    options.activations = WEFT_ENG_ACT_F32;
    options.n_threads = 2;
    check_model("models/fable-6m", &options);
}

static void weights_quantised_at_loading_have_the_same_bits(void **state) {
    (void)state;
    static const enum weft_eng_dtype dtypes[] = {WEFT_ENG_DT_F32, WEFT_ENG_DT_F16, WEFT_ENG_DT_Q8,
                                                 WEFT_ENG_DT_Q4};
    struct weft_eng_options options;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        small_options(&options);
        options.dtype = dtypes[i];
        check_model("models/fable-6m", &options);
    }
    small_options(&options);
    options.dtype = WEFT_ENG_DT_Q8;
    options.scheme = WEFT_ENG_SCHEME_GROUP;
    options.kv_dtype = WEFT_ENG_KV_INT8;
    check_model(ENGINE_DRAFT, &options);
}

static void quantised_files_have_the_same_bits(void **state) {
    (void)state;
    static const char *const types[] = {"BF16", "F16",  "Q8_0", "Q4_0",   "Q4_1",   "Q5_0", "Q5_1",
                                        "Q2_K", "Q3_K", "Q4_K", "IQ4_NL", "IQ4_XS", "Q5_K", "Q6_K"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/zoo/llama_quant/%s.gguf", types[i]);
        check_as_it_is(path);
    }
    check_as_it_is(ENGINE_QUANTISED);
}

static void quantised_folders_have_the_same_bits(void **state) {
    (void)state;
    check_as_it_is("tests/data/formats/fp8");
    check_as_it_is("tests/data/formats/gptq");
    check_as_it_is("tests/data/formats/gptq_order");
    check_as_it_is("tests/data/formats/gptq_v2");
    check_as_it_is("tests/data/formats/awq");
    check_as_it_is("tests/data/formats/nf4");
    check_as_it_is("tests/data/formats/nf4_wide");
}

static void dense_architectures_have_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"llama_gqa_llama3rope",
                                        "llama_mha_linear",
                                        "llama_yarn",
                                        "mistral_swa16",
                                        "qwen2",
                                        "qwen3",
                                        "smollm3",
                                        "granite",
                                        "gemma2",
                                        "gemma3",
                                        "phi3",
                                        "phi3_longrope",
                                        "phi4_mini",
                                        "olmo2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/zoo/%s", names[i]);
        check_as_it_is(path);
    }
}

static void experts_on_different_ranks_have_the_same_bits(void **state) {
    (void)state;
    check_as_it_is("tests/data/zoo/mixtral");
    check_as_it_is("tests/data/zoo/olmoe");
    check_as_it_is("tests/data/zoo/qwen2_moe");
    check_as_it_is("tests/data/zoo/qwen3_moe");
    check_as_it_is("tests/data/formats/mixed_experts.gguf");
}

static void latent_attention_has_the_same_bits(void **state) {
    (void)state;
    check_as_it_is("tests/data/zoo/deepseek_v2");
    check_as_it_is("tests/data/zoo/deepseek_v3");
    check_as_it_is("tests/data/zoo/deepseek_v3_fp8");
    check_as_it_is("tests/data/zoo/gguf/deepseek_v2.gguf");
}

/* ---------------------------------------------------------------------------------- shares --- */

static void each_rank_holds_its_share_of_the_weights_and_of_the_cache(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct group one, four;
    small_options(&options);
    open_group(&one, "models/fable-6m", options, 1);
    open_group(&four, "models/fable-6m", options, 4);
    const struct weft_eng_info *whole = weft_eng_info(one.engs[0]);
    for (uint32_t i = 0; i < 4; i++) {
        const struct weft_eng_info *share = weft_eng_info(four.engs[i]);
        uint64_t quarter = whole->weight_bytes / 4; /* norms are everybody's */
        assert_in_range(share->weight_bytes, quarter, quarter + quarter / 20);
        uint64_t block = whole->kv_bytes / whole->n_blocks;
        assert_int_equal(share->kv_bytes / share->n_blocks, block / 4);
    }
    close_group(&one);
    close_group(&four);
}

/* --------------------------------------------------------------------------------- endings --- */

static void steps_of_a_group_that_ended_say_so(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct group group;
    struct step_job job;
    static struct drive drive;
    static const uint32_t prompt[3] = {1, 2, 3}, block = 0;
    pthread_t thread;
    small_options(&options);
    open_group(&group, ENGINE_DRAFT, options, 2);
    drive_init(&drive, group.engs[0]);
    struct weft_step_start start = {
        .slot = 0, .gen = 1, .tokens = prompt, .n_tokens = 3, .n_prompt = 3};
    weft_sampling_init(&start.sampling);
    drive_start(&drive, &start);
    drive_grant(&drive, 0, 1, &block, 1);
    drive_row(&drive, 0, 1, 3);
    struct weft_step_plan plan = drive_plan(&drive);
    job = (struct step_job){.eng = group.engs[0], .plan = &plan};
    assert_int_equal(pthread_create(&thread, NULL, step_main, &job), 0);
    weft_coll_abort(group.coll); /* the other rank never comes */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(job.err, WEFT_E_CLOSED);
    assert_string_equal(job.why.text, "the group was ended");
    weft_eng_reset(group.engs[0], 0);
    (void)step_main(&job);
    assert_int_equal(job.err, WEFT_E_CLOSED);
    assert_string_equal(job.why.text, "the group was ended");
    close_group(&group);
}

/* -------------------------------------------------------------------------------- refusals --- */

static void assert_refused(const char *model, const struct weft_eng_options *options, weft_err want,
                           const char *text) {
    struct weft_errmsg why = {""};
    weft_eng *eng;
    assert_int_equal(weft_eng_open(drive_fixture(model), options, &eng, &why), want);
    assert_null(eng);
    if (!strstr(why.text, text)) fail_msg("%s", why.text);
}

static void what_no_group_can_have_is_refused(void **state) {
    (void)state;
    struct weft_eng_options options;
    weft_coll *coll = open_coll(2);
    small_options(&options);
    options.n_ranks = 3;
    assert_refused(ENGINE_DRAFT, &options, WEFT_E_INVAL, "1, 2, 4 or 8 ranks");
    options.n_ranks = 2;
    assert_refused(ENGINE_DRAFT, &options, WEFT_E_INVAL, "has no group");
    options.coll = coll;
    options.rank = 2;
    assert_refused(ENGINE_DRAFT, &options, WEFT_E_INVAL, "not by rank 2 of 2");
    options.rank = 1;
    options.n_ranks = 4;
    assert_refused(ENGINE_DRAFT, &options, WEFT_E_INVAL, "has no group");
    weft_coll_close(coll);
}

static void ranks_of_different_options_are_told_so(void **state) {
    (void)state;
    struct weft_eng_options options;
    weft_coll *coll = open_coll(2);
    small_options(&options);
    options.n_ranks = 2;
    options.coll = coll;
    weft_eng *eng = drive_open(drive_fixture(ENGINE_DRAFT), &options);
    options.rank = 1;
    options.max_batched_tokens *= 2;
    assert_refused(ENGINE_DRAFT, &options, WEFT_E_STATE, "differ in model or options");
    weft_eng_free(eng);
    weft_coll_close(coll);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_tp", argc, argv)) return 77;
    seed = weft_rand_test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bundled_model_has_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(weights_quantised_at_loading_have_the_same_bits),
        cmocka_unit_test(quantised_files_have_the_same_bits),
        cmocka_unit_test(quantised_folders_have_the_same_bits),
        cmocka_unit_test(dense_architectures_have_the_same_bits),
        cmocka_unit_test(experts_on_different_ranks_have_the_same_bits),
        cmocka_unit_test(latent_attention_has_the_same_bits),
        cmocka_unit_test(each_rank_holds_its_share_of_the_weights_and_of_the_cache),
        cmocka_unit_test(steps_of_a_group_that_ended_say_so),
        cmocka_unit_test(what_no_group_can_have_is_refused),
        cmocka_unit_test(ranks_of_different_options_are_told_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
