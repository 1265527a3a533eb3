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
#include "harness/eng_group.h"
#include "unit/engine_fixtures.h"

enum { RANKS_MAX = WEFT_COLL_RANKS_MAX, TEXT = 70, STEPS_MAX = 64, SEQS = ENGINE_REQUESTS };

static uint64_t seed;

/* ------------------------------------------------------------------------------ its options --- */

static void small_options(struct weft_eng_options *options) {
    weft_eng_options_init(options);
    options->max_seqs = SEQS;
    options->max_batched_tokens = 48; /* prompts are cut into chunks */
    options->max_model_len = 250;
    options->kv_memory_bytes = 24u << 20;
    options->n_threads = 1;
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

static void hash_logits(const struct eng_group *group, const uint32_t *text, struct logits *out) {
    *out = (struct logits){.n_vocab = weft_eng_info(group->engs[0])->n_vocab};
    group_logits(group, text, TEXT, keep_row, out);
    assert_int_equal(out->n_rows, TEXT);
}

/* ----------------------------------------------------------------------------------- steps --- */

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
static void assert_ranks_agree(const struct eng_group *group, const struct group_step *steps) {
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        if (steps[i].err) fail_msg("rank %u: %s", i, steps[i].why.text);
        assert_int_equal(steps[i].result->n_outs, steps[0].result->n_outs);
        for (uint32_t k = 0; k < steps[0].result->n_outs; k++) {
            const struct weft_step_out *a = &steps[0].result->outs[k],
                                       *b = &steps[i].result->outs[k];
            assert_int_equal(a->slot, b->slot);
            assert_int_equal(a->sampled, b->sampled);
            assert_int_equal(a->finish, b->finish);
            if (a->sampled) assert_int_equal(a->token, b->token);
        }
    }
}

/* All requests at once, each with all of its blocks from the start. */
static void run_requests(const struct eng_group *group, const struct engine_request *requests,
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
        struct group_step steps[RANKS_MAX];
        for (uint32_t i = 0; i < SEQS; i++) {
            uint32_t left = requests[i].n_prompt + records[i].n_tokens - computed[i];
            uint32_t n = left < budget ? left : budget;
            if (records[i].finish != WEFT_END_NONE || n == 0) continue;
            drive_row(&drive, i, 1, n);
            computed[i] += n;
            budget -= n;
        }
        struct weft_step_plan plan = drive_plan(&drive);
        group_step(group, &plan, steps);
        assert_ranks_agree(group, steps);
        drive.step++;
        drive_clear(&drive);
        for (uint32_t k = 0; k < steps[0].result->n_outs; k++) {
            const struct weft_step_out *out = &steps[0].result->outs[k];
            note(&records[out->slot], out);
            n_left -= out->finish != WEFT_END_NONE;
        }
    }
    for (uint32_t i = 0; i < group->n_ranks; i++)
        weft_eng_reset(group->engs[i], 0);
}

/* ------------------------------------------------------------------------------ comparison --- */

static void check_model(const char *path, const struct weft_eng_options *options) {
    uint64_t rng = seed;
    struct engine_request requests[SEQS];
    struct logits want_logits, logits;
    struct record want[SEQS], got[SEQS];
    uint32_t text[TEXT];
    char fingerprint[32] = "";
    for (uint32_t n_ranks = 1; n_ranks <= RANKS_MAX; n_ranks *= 2) {
        struct eng_group group;
        if (engine_short_run && n_ranks == 8) break;
        group_open(&group, path, *options, n_ranks);
        const struct weft_eng_info *info = weft_eng_info(group.engs[0]);
        if (n_ranks == 1) {
            engine_make_requests(requests, info->n_vocab, &rng);
            for (uint32_t i = 0; i < TEXT; i++)
                text[i] = weft_rand_below(&rng, info->n_vocab);
            hash_logits(&group, text, &want_logits);
            run_requests(&group, requests, want);
            memcpy(fingerprint, info->fingerprint, sizeof fingerprint);
        } else {
            hash_logits(&group, text, &logits);
            if (memcmp(logits.hashes, want_logits.hashes, sizeof logits.hashes) != 0)
                fail_msg("%s: %u ranks have other logits than one", path, n_ranks);
            run_requests(&group, requests, got);
            if (memcmp(got, want, sizeof got) != 0)
                fail_msg("%s: %u ranks say something else than one", path, n_ranks);
            for (uint32_t i = 0; i < n_ranks; i++)
                assert_string_equal(weft_eng_info(group.engs[i])->fingerprint, fingerprint);
        }
        group_close(&group);
    }
}

static void check_as_it_is(const char *model) {
    struct weft_eng_options options;
    small_options(&options);
    check_model(drive_fixture(model), &options);
}

/* Models of a folder; in short runs the first two of them. */
static void check_all(const char *folder, const char *ending, const char *const *names, size_t n) {
    for (size_t i = 0; i < n && (i < 2 || !engine_short_run); i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/%s/%s%s", folder, names[i], ending);
        check_as_it_is(path);
    }
}
#define CHECK_ALL(folder, ending, names)                                                           \
    check_all(folder, ending, names, sizeof(names) / sizeof *(names))

/* The larger one, or another that is done sooner. */
static const char *bundled_model(void) {
    return drive_fixture(engine_short_run ? ENGINE_DRAFT : "models/fable-6m");
}

static void the_bundled_model_has_the_same_bits_on_any_number_of_ranks(void **state) {
    (void)state;
    struct weft_eng_options options;
    small_options(&options);
    check_model(bundled_model(), &options);
    options.activations = WEFT_ENG_ACT_F32;
    options.n_threads = 2;
    check_model(bundled_model(), &options);
}

static void weights_quantised_at_loading_have_the_same_bits(void **state) {
    (void)state;
    static const enum weft_eng_dtype dtypes[] = {WEFT_ENG_DT_Q8, WEFT_ENG_DT_Q4, WEFT_ENG_DT_F32,
                                                 WEFT_ENG_DT_F16};
    struct weft_eng_options options;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0] && (i < 2 || !engine_short_run); i++) {
        small_options(&options);
        options.dtype = dtypes[i];
        check_model(bundled_model(), &options);
    }
    small_options(&options);
    options.dtype = WEFT_ENG_DT_Q8;
    options.scheme = WEFT_ENG_SCHEME_GROUP;
    options.kv_dtype = WEFT_ENG_KV_INT8;
    check_model(drive_fixture(ENGINE_DRAFT), &options);
}

static void quantised_files_have_the_same_bits(void **state) {
    (void)state;
    static const char *const types[] = {"Q4_K", "Q8_0", "BF16", "F16",    "Q4_0",   "Q4_1", "Q5_0",
                                        "Q5_1", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "Q5_K", "Q6_K"};
    CHECK_ALL("zoo/llama_quant", ".gguf", types);
    if (!engine_short_run) check_as_it_is(ENGINE_QUANTISED);
}

/* One type of each layout that others do not have; in short runs one. */
static void files_of_few_bits_have_the_same_bits(void **state) {
    (void)state;
    static const char *const types[] = {"IQ2_XS", "IQ3_XXS", "TQ1_0", "MXFP4", "NVFP4"};
    const char *folder = drive_shared("zoo2/gguf_types");
    if (!folder) skip();
    for (size_t i = 0; i < (engine_short_run ? 1 : sizeof types / sizeof types[0]); i++) {
        char path[1024];
        struct weft_eng_options options;
        small_options(&options);
        (void)snprintf(path, sizeof path, "%s/%s.gguf", folder, types[i]);
        check_model(path, &options);
    }
}

static void quantised_folders_have_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"gptq_order", "fp8", "gptq",    "gptq_v2",
                                        "awq",        "nf4", "nf4_wide"};
    CHECK_ALL("formats", "", names);
}

static void dense_architectures_have_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"llama_gqa_llama3rope",
                                        "olmo2",
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
                                        "phi4_mini"};
    CHECK_ALL("zoo", "", names);
}

static void experts_on_different_ranks_have_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"qwen2_moe", "mixtral", "olmoe", "qwen3_moe"};
    CHECK_ALL("zoo", "", names);
    if (!engine_short_run) check_as_it_is("tests/data/formats/mixed_experts.gguf");
}

/* 96 columns in groups of 32 are three segments of eight: most ranks of 8 have none of the shared
 * expert, but weigh what the others have of it. Prompts are many rows, and what follows few. */
static void a_shared_expert_that_some_ranks_have_nothing_of_has_the_same_bits(void **state) {
    (void)state;
    static const struct {
        const char *model;
        enum weft_eng_dtype dtype;
    } cases[] = {
        {"tests/data/zoo/qwen2_moe", WEFT_ENG_DT_Q8},
        {"tests/data/zoo/qwen2_moe", WEFT_ENG_DT_Q4},
        {"tests/data/zoo/deepseek_v2", WEFT_ENG_DT_Q8}, /* without a gate */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && (i < 1 || !engine_short_run); i++) {
        struct weft_eng_options options;
        small_options(&options);
        options.dtype = cases[i].dtype;
        options.scheme = WEFT_ENG_SCHEME_GROUP;
        options.n_threads = 2;
        check_model(drive_fixture(cases[i].model), &options);
        options.activations = WEFT_ENG_ACT_F32;
        check_model(drive_fixture(cases[i].model), &options);
    }
}

/* A quarter of the experts of one of the zoo's models have all the tokens, other ones in each layer. */
static void write_skewed_profile(const char *model, const char *path) {
    struct weft_eng_options options;
    small_options(&options);
    weft_eng *eng = drive_open(model, &options);
    const struct weft_eng_info *info = weft_eng_info(eng);
    uint64_t rng = seed;
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    (void)fprintf(file,
                  "{\"weft_expert_profile\": 1, \"architecture\": \"%s\", \"layers\": %u, "
                  "\"experts\": %u, \"hidden\": 64, \"tokens\": [",
                  info->arch, info->n_layers, info->n_experts);
    for (uint32_t i = 0; i < info->n_layers; i++) {
        for (uint32_t e = 0; e < info->n_experts; e++)
            (void)fprintf(file, "%s%u",
                          e   ? ", "
                          : i ? "], ["
                              : "[",
                          weft_rand_below(&rng, 4) == 0 ? weft_rand_below(&rng, 1000) : 0);
    }
    (void)fprintf(file, "]]}");
    assert_int_equal(fclose(file), 0);
    weft_eng_free(eng);
}

static void experts_placed_by_their_load_have_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"qwen2_moe", "mixtral", "olmoe", "deepseek_v3"};
    char path[] = "/tmp/weft-tp-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && (i < 2 || !engine_short_run); i++) {
        struct weft_eng_options options;
        char model[64];
        (void)snprintf(model, sizeof model, "tests/data/zoo/%s", names[i]);
        write_skewed_profile(drive_fixture(model), path);
        small_options(&options);
        options.expert_profile = path;
        options.n_threads = 2;
        check_model(drive_fixture(model), &options);
    }
    (void)unlink(path);
}

static void ranks_take_their_shares_of_packed_files(void **state) {
    (void)state;
    static const struct {
        const char *model;
        enum weft_eng_dtype dtype;
    } cases[] = {
        {"tests/data/zoo/qwen2_moe", WEFT_ENG_DT_AUTO},
        {ENGINE_DRAFT, WEFT_ENG_DT_Q8},
        {"tests/data/zoo/deepseek_v3_fp8", WEFT_ENG_DT_AUTO},
        {"tests/data/zoo/llama_gqa_llama3rope", WEFT_ENG_DT_F16}, /* tied */
        {"tests/data/zoo/olmo2", WEFT_ENG_DT_F32},
        {"tests/data/formats/gptq_order", WEFT_ENG_DT_AUTO},
        {"tests/data/formats/gptq8_order", WEFT_ENG_DT_AUTO},
        {"tests/data/zoo/llama_quant/Q4_K.gguf", WEFT_ENG_DT_AUTO},
        {"models/fable-6m", WEFT_ENG_DT_Q4},
    };
    char path[] = "/tmp/weft-tp-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && (i < 2 || !engine_short_run); i++) {
        struct weft_eng_options options;
        struct weft_eng_packed packed;
        struct weft_errmsg why;
        weft_eng_options_init(&options);
        options.dtype = cases[i].dtype;
        options.n_threads = 2;
        if (weft_eng_pack(drive_fixture(cases[i].model), &options, path, true, &packed, &why))
            fail_msg("%s", why.text);
        small_options(&options);
        options.n_threads = 2;
        check_model(path, &options);
    }
    (void)unlink(path);
}

static void the_larger_mixture_has_the_same_bits(void **state) {
    (void)state;
    struct weft_eng_options options;
    const char *path = drive_shared("models/fable-moe-12m");
    if (!path || engine_short_run) skip();
    small_options(&options);
    check_model(path, &options);
}

static void latent_attention_has_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"deepseek_v2", "deepseek_v3_fp8", "deepseek_v3",
                                        "gguf/deepseek_v2.gguf"};
    CHECK_ALL("zoo", "", names);
}

/* A model of ../shared/zoo2; false: there is none. */
static bool find_family(const char *name, char path[1024]) {
    (void)snprintf(path, 1024, "zoo2/%s", name);
    const char *found = drive_shared(path);
    if (found) (void)snprintf(path, 1024, "%s", found);
    return found;
}

/* Each rank chooses by itself. In short runs as the file has it. */
static void an_indexer_has_the_same_bits(void **state) {
    (void)state;
    static const enum weft_eng_dtype dtypes[] = {WEFT_ENG_DT_AUTO, WEFT_ENG_DT_Q8, WEFT_ENG_DT_Q4};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0] && (i < 1 || !engine_short_run); i++) {
        struct weft_eng_options options;
        char path[1024];
        if (!find_family("deepseek_v32", path)) skip();
        small_options(&options);
        options.dtype = dtypes[i];
        options.n_threads = 1 + i % 2;
        check_model(path, &options);
    }
}

/* In short runs the first two. */
static void recurrent_layers_have_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {
        "qwen3_next",          "granitemoehybrid", "lfm2",        "falcon_h1", "nemotron_h",
        "nemotron_h_moe",      "qwen3_5",          "qwen3_5_moe", "lfm2_moe",  "gguf/qwen3_5.gguf",
        "gguf/qwen3_next.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof names[0] && (i < 2 || !engine_short_run); i++) {
        struct weft_eng_options options;
        char path[1024];
        if (!find_family(names[i], path)) skip();
        small_options(&options);
        options.n_threads = 1 + i % 2;
        check_model(path, &options);
    }
}

/* Layers of one kind share keys and values, and the other kind has other heads. In short runs the first case. */
static void layers_that_are_not_alike_have_the_same_bits(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum weft_eng_dtype dtype;
    } cases[] = {{"gemma4", WEFT_ENG_DT_AUTO},
                 {"gemma4_moe", WEFT_ENG_DT_AUTO},
                 {"gguf/gemma4.gguf", WEFT_ENG_DT_F32},
                 {"gemma4", WEFT_ENG_DT_Q8},
                 {"gemma4_moe", WEFT_ENG_DT_Q4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && (i < 1 || !engine_short_run); i++) {
        struct weft_eng_options options;
        char path[1024];
        if (!find_family(cases[i].name, path)) skip();
        small_options(&options);
        options.dtype = cases[i].dtype;
        options.n_threads = 1 + i % 2;
        check_model(path, &options);
    }
}

/* Groups of 32 columns are more than a head: some ranks of 4 and 8 have none. */
static void quantised_recurrent_layers_have_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3_5", "nemotron_h", "granitemoehybrid", "falcon_h1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0] && (i < 1 || !engine_short_run); i++) {
        struct weft_eng_options options;
        char path[1024];
        if (!find_family(names[i], path)) skip();
        small_options(&options);
        options.dtype = i % 2 ? WEFT_ENG_DT_Q4 : WEFT_ENG_DT_Q8;
        options.scheme = WEFT_ENG_SCHEME_GROUP;
        check_model(path, &options);
        options.activations = WEFT_ENG_ACT_F32;
        check_model(path, &options);
    }
}

static void ranks_take_their_shares_of_packed_families(void **state) {
    (void)state;
    static const struct {
        const char *model;
        enum weft_eng_dtype dtype;
    } cases[] = {{"nemotron_h", WEFT_ENG_DT_AUTO}, {"qwen3_5", WEFT_ENG_DT_Q8},
                 {"lfm2", WEFT_ENG_DT_F32},        {"granitemoehybrid", WEFT_ENG_DT_Q8},
                 {"gemma4", WEFT_ENG_DT_Q8},       {"gemma4_moe", WEFT_ENG_DT_AUTO}};
    char path[] = "/tmp/weft-tp-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && (i < 1 || !engine_short_run); i++) {
        struct weft_eng_options options;
        struct weft_eng_packed packed;
        struct weft_errmsg why;
        char model[1024];
        if (!find_family(cases[i].model, model)) break;
        weft_eng_options_init(&options);
        options.dtype = cases[i].dtype;
        options.n_threads = 2;
        if (weft_eng_pack(model, &options, path, true, &packed, &why)) fail_msg("%s", why.text);
        small_options(&options);
        check_model(path, &options);
    }
    (void)unlink(path);
}

/* ---------------------------------------------------------------------------------- shares --- */

static void note_states(void *ctx, const struct weft_eng_loading *loading) {
    *(uint64_t *)ctx = loading->state_bytes; /* at last those of the last rank */
}

/* Eight heads in two groups. */
static void each_rank_holds_its_share_of_the_states(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct eng_group group;
    uint64_t bytes[2] = {0};
    char path[1024];
    if (!find_family("nemotron_h", path)) skip();
    small_options(&options);
    options.on_loading = note_states;
    for (uint32_t i = 0; i < 2; i++) {
        options.loading_ctx = &bytes[i];
        group_open(&group, path, options, i + 1);
        group_close(&group);
    }
    assert_true(bytes[0] > 0);
    assert_int_equal(bytes[1], bytes[0] / 2);
}

static void each_rank_holds_its_share_of_the_weights_and_of_the_cache(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct eng_group one, four;
    small_options(&options);
    group_open(&one, drive_fixture("models/fable-6m"), options, 1);
    group_open(&four, drive_fixture("models/fable-6m"), options, 4);
    const struct weft_eng_info *whole = weft_eng_info(one.engs[0]);
    for (uint32_t i = 0; i < 4; i++) {
        const struct weft_eng_info *share = weft_eng_info(four.engs[i]);
        uint64_t quarter = whole->weight_bytes / 4; /* norms are everybody's */
        assert_in_range(share->weight_bytes, quarter, quarter + quarter / 20);
        uint64_t block = whole->kv_bytes / whole->n_blocks;
        assert_int_equal(share->kv_bytes / share->n_blocks, block / 4);
    }
    group_close(&one);
    group_close(&four);
}

/* --------------------------------------------------------------------------------- endings --- */

static void steps_of_a_group_that_ended_say_so(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct eng_group group;
    struct group_step step;
    static struct drive drive;
    static const uint32_t prompt[3] = {1, 2, 3}, block = 0;
    pthread_t thread;
    small_options(&options);
    group_open(&group, drive_fixture(ENGINE_DRAFT), options, 2);
    drive_init(&drive, group.engs[0]);
    struct weft_step_start start = {
        .slot = 0, .gen = 1, .tokens = prompt, .n_tokens = 3, .n_prompt = 3};
    weft_sampling_init(&start.sampling);
    drive_start(&drive, &start);
    drive_grant(&drive, 0, 1, &block, 1);
    drive_row(&drive, 0, 1, 3);
    struct weft_step_plan plan = drive_plan(&drive);
    step = (struct group_step){.eng = group.engs[0], .plan = &plan};
    assert_int_equal(pthread_create(&thread, NULL, group_step_main, &step), 0);
    weft_coll_abort(group.coll); /* the other rank never comes */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(step.err, WEFT_E_CLOSED);
    assert_string_equal(step.why.text, "the group was ended");
    weft_eng_reset(group.engs[0], 0);
    (void)group_step_main(&step);
    assert_int_equal(step.err, WEFT_E_CLOSED);
    assert_string_equal(step.why.text, "the group was ended");
    group_close(&group);
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
    weft_coll *coll = group_coll(2);
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
    weft_coll *coll = group_coll(2);
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
    cmocka_set_test_filter(getenv("WEFT_TEST_FILTER")); /* NULL: all of them */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bundled_model_has_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(weights_quantised_at_loading_have_the_same_bits),
        cmocka_unit_test(quantised_files_have_the_same_bits),
        cmocka_unit_test(files_of_few_bits_have_the_same_bits),
        cmocka_unit_test(quantised_folders_have_the_same_bits),
        cmocka_unit_test(dense_architectures_have_the_same_bits),
        cmocka_unit_test(experts_on_different_ranks_have_the_same_bits),
        cmocka_unit_test(a_shared_expert_that_some_ranks_have_nothing_of_has_the_same_bits),
        cmocka_unit_test(experts_placed_by_their_load_have_the_same_bits),
        cmocka_unit_test(ranks_take_their_shares_of_packed_files),
        cmocka_unit_test(the_larger_mixture_has_the_same_bits),
        cmocka_unit_test(latent_attention_has_the_same_bits),
        cmocka_unit_test(recurrent_layers_have_the_same_bits),
        cmocka_unit_test(an_indexer_has_the_same_bits),
        cmocka_unit_test(layers_that_are_not_alike_have_the_same_bits),
        cmocka_unit_test(quantised_recurrent_layers_have_the_same_bits),
        cmocka_unit_test(ranks_take_their_shares_of_packed_families),
        cmocka_unit_test(each_rank_holds_its_share_of_the_states),
        cmocka_unit_test(each_rank_holds_its_share_of_the_weights_and_of_the_cache),
        cmocka_unit_test(steps_of_a_group_that_ended_say_so),
        cmocka_unit_test(what_no_group_can_have_is_refused),
        cmocka_unit_test(ranks_of_different_options_are_told_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
