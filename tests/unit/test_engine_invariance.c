/* The engine through weft_eng_step: the output of a sequence depends on nothing but itself.
 *
 * A small scheduler runs a set of sequences in many ways (alone, together, in chunks, preempted and
 * recomputed, with windowed blocks that others get at once, on other block sizes and thread counts)
 * and every record must be bit-equal to the one the sequence made alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/rand.h"
#include "harness/eng_drive.h"
#include "harness/lora_files.h"
#include "unit/engine_fixtures.h"
#include "unit/model_files.h"

#include <stdio.h>

enum {
    SEQS = ENGINE_REQUESTS,
    PROMPT_MAX = ENGINE_PROMPT_MAX,
    OUTPUT_MAX = 16,
    TOP_MAX = ENGINE_TOP_MAX,
    SEQ_BLOCKS_MAX = 32
};

struct record { /* of one token */
    bool has_logprobs;
    uint32_t token, rank, n_top, top_ids[TOP_MAX];
    uint32_t logprob_bits, top_bits[TOP_MAX];
};

struct sequence {
    const struct engine_request *request;
    uint32_t n_adapters;
    struct weft_step_adapter adapters[WEFT_SEQ_ADAPTERS_MAX];
    /* Its results. */
    uint32_t n_output, n_prompt_records;
    enum weft_end finish;
    struct record output[OUTPUT_MAX], prompt_records[PROMPT_MAX];
    /* While it runs. */
    bool running, done;
    uint32_t slot, gen, n_computed, n_blocks, blocks[SEQ_BLOCKS_MAX];
    uint32_t n_window_gone, window_blocks[SEQ_BLOCKS_MAX]; /* n_blocks; the first are given back */
    uint32_t tokens[PROMPT_MAX + OUTPUT_MAX];
};

/* How a set of sequences is run. */
struct manner {
    bool alone;
    uint32_t chunk_max;      /* 0: a fresh random one for each row */
    uint32_t preempt_chance; /* in percent, per sequence and step */
    bool keeps_all; /* else windowed blocks go to others once no later position sees them */
};

struct bench { /* an engine with its free slots and blocks */
    struct drive drive;
    uint32_t next_gen, n_free_blocks, free_blocks[DRIVE_BLOCKS];
    uint32_t n_free_window, free_window[DRIVE_BLOCKS]; /* a stack: the last one goes first */
    bool slot_used[SEQS];
    uint64_t rng;
};

/* ---------------------------------------------------------------------------------- results --- */

static void forget_results(struct sequence *seqs, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        seqs[i].n_output = seqs[i].n_prompt_records = 0;
        seqs[i].finish = WEFT_END_NONE;
        seqs[i].running = seqs[i].done = false;
        memset(seqs[i].output, 0, sizeof seqs[i].output);
        memset(seqs[i].prompt_records, 0, sizeof seqs[i].prompt_records);
        memcpy(seqs[i].tokens, seqs[i].request->prompt, sizeof seqs[i].request->prompt);
    }
}

static void keep_logprobs(struct record *record, const struct weft_logprobs *logprobs) {
    record->has_logprobs = true;
    record->rank = logprobs->rank;
    record->n_top = logprobs->n_top;
    record->logprob_bits = engine_float_bits(logprobs->logprob);
    assert_true(logprobs->n_top <= TOP_MAX);
    for (uint32_t i = 0; i < logprobs->n_top; i++) {
        record->top_ids[i] = logprobs->top_ids[i];
        record->top_bits[i] = engine_float_bits(logprobs->top_logprobs[i]);
        if (i) assert_true(logprobs->top_logprobs[i] <= logprobs->top_logprobs[i - 1]);
    }
}

static void assert_same_results(const struct sequence *a, const struct sequence *b) {
    for (uint32_t i = 0; i < SEQS; i++) {
        assert_int_equal(a[i].n_output, b[i].n_output);
        assert_int_equal(a[i].finish, b[i].finish);
        assert_int_equal(a[i].n_prompt_records, b[i].n_prompt_records);
        assert_memory_equal(a[i].output, b[i].output, sizeof a[i].output);
        assert_memory_equal(a[i].prompt_records, b[i].prompt_records, sizeof a[i].prompt_records);
    }
}

/* ------------------------------------------------------------------------------- scheduling --- */

static void init_bench(struct bench *bench, weft_eng *eng, uint64_t seed) {
    static uint64_t epoch = 0;
    memset(bench, 0, sizeof *bench);
    drive_init(&bench->drive, eng);
    bench->drive.epoch = ++epoch; /* the first plan opens it */
    bench->rng = seed;
    bench->n_free_blocks = weft_eng_info(eng)->n_blocks;
    if (bench->n_free_blocks > DRIVE_BLOCKS) bench->n_free_blocks = DRIVE_BLOCKS;
    for (uint32_t i = 0; i < bench->n_free_blocks; i++) {
        bench->free_blocks[i] = i;
    }
    bench->n_free_window = weft_eng_info(eng)->n_window_blocks;
    if (bench->n_free_window > DRIVE_BLOCKS) bench->n_free_window = DRIVE_BLOCKS;
    for (uint32_t i = 0; i < bench->n_free_window; i++) {
        bench->free_window[i] = i;
    }
}

static uint32_t take_block(struct bench *bench) {
    assert_true(bench->n_free_blocks > 0);
    uint32_t at = weft_rand_below(&bench->rng, bench->n_free_blocks);
    uint32_t block = bench->free_blocks[at];
    bench->free_blocks[at] = bench->free_blocks[--bench->n_free_blocks];
    return block;
}

static void start_sequence(struct bench *bench, struct sequence *seq) {
    uint32_t slot = weft_rand_below(&bench->rng, SEQS);
    while (bench->slot_used[slot]) {
        slot = (slot + 1) % SEQS;
    }
    bench->slot_used[slot] = true;
    seq->slot = slot;
    seq->gen = ++bench->next_gen;
    seq->running = true;
    seq->n_computed = seq->n_blocks = seq->n_window_gone = 0;
    struct weft_step_start start = {
        .slot = slot,
        .gen = seq->gen,
        .tokens = seq->tokens,
        .n_tokens = seq->request->n_prompt + seq->n_output,
        .n_prompt = seq->request->n_prompt,
        .n_prompt_logprobs_done = seq->n_prompt_records ? seq->n_prompt_records + 1 : 0,
        .sampling = seq->request->sampling,
        .n_adapters = seq->n_adapters,
        .adapters = seq->adapters,
    };
    drive_start(&bench->drive, &start);
}

/* The windowed blocks below entry `end`. */
static void give_window_back(struct bench *bench, struct sequence *seq, uint32_t end) {
    if (weft_eng_info(bench->drive.eng)->window == 0) return;
    for (; seq->n_window_gone < end; seq->n_window_gone++) {
        bench->free_window[bench->n_free_window++] = seq->window_blocks[seq->n_window_gone];
    }
}

static void stop_sequence(struct bench *bench, struct sequence *seq) {
    drive_release(&bench->drive, seq->slot, seq->gen);
    bench->slot_used[seq->slot] = false;
    for (uint32_t i = 0; i < seq->n_blocks; i++) {
        bench->free_blocks[bench->n_free_blocks++] = seq->blocks[i];
    }
    give_window_back(bench, seq, seq->n_blocks);
    seq->running = false;
}

static void plan_row(struct bench *bench, struct sequence *seq, const struct manner *manner,
                     uint32_t *budget) {
    const struct weft_eng_info *info = weft_eng_info(bench->drive.eng);
    uint32_t chunk_max = manner->chunk_max;
    uint32_t left = seq->request->n_prompt + seq->n_output - seq->n_computed;
    if (chunk_max == 0) chunk_max = 1 + weft_rand_below(&bench->rng, 40);
    uint32_t n = left < chunk_max ? left : chunk_max;
    if (n > *budget) n = *budget;
    if (n == 0) return;
    if (!manner->keeps_all && info->window > 0 && seq->n_computed >= info->window)
        give_window_back(bench, seq, (seq->n_computed - info->window + 1) / info->block_size);
    uint32_t first_new = seq->n_blocks;
    while (seq->n_blocks * info->block_size < seq->n_computed + n) {
        assert_true(seq->n_blocks < SEQ_BLOCKS_MAX);
        if (info->window > 0) {
            assert_true(bench->n_free_window > 0);
            seq->window_blocks[seq->n_blocks] = bench->free_window[--bench->n_free_window];
        }
        seq->blocks[seq->n_blocks++] = take_block(bench);
    }
    drive_grant_kind(&bench->drive, seq->slot, seq->gen, WEFT_KV_FULL, seq->blocks + first_new,
                     seq->n_blocks - first_new);
    if (info->window > 0)
        drive_grant_kind(&bench->drive, seq->slot, seq->gen, WEFT_KV_WINDOWED,
                         seq->window_blocks + first_new, seq->n_blocks - first_new);
    drive_row(&bench->drive, seq->slot, seq->gen, n);
    seq->n_computed += n;
    *budget -= n;
}

static void take_in(struct sequence *seq, const struct weft_step_out *out) {
    assert_true(out->ran);
    if (out->n_prompt_logprobs > 0) assert_int_equal(out->prompt_pos, seq->n_prompt_records + 1);
    for (uint32_t i = 0; i < out->n_prompt_logprobs; i++) {
        assert_true(seq->n_prompt_records < PROMPT_MAX);
        keep_logprobs(&seq->prompt_records[seq->n_prompt_records++], &out->prompt_logprobs[i]);
    }
    if (out->sampled) {
        assert_int_equal(out->output_idx, seq->n_output);
        assert_true(seq->n_output < OUTPUT_MAX);
        struct record *record = &seq->output[seq->n_output];
        record->token = out->token;
        if (out->has_logprobs) keep_logprobs(record, &out->logprobs);
        seq->tokens[seq->request->n_prompt + seq->n_output++] = out->token;
    }
    seq->finish = out->finish;
    seq->done = out->finish != WEFT_END_NONE;
}

/* Sequences whose rows went into the plan have n_computed moved already; the engine decides. */
static bool plan_step(struct bench *bench, struct sequence *seqs, uint32_t n,
                      const struct manner *manner) {
    uint32_t budget = weft_eng_info(bench->drive.eng)->max_batched_tokens;
    bool any_left = false;
    uint32_t shift = weft_rand_below(&bench->rng, n);
    for (uint32_t j = 0; j < n; j++) {
        struct sequence *seq = &seqs[(j + shift) % n];
        bool is_new = !seq->running;
        if (seq->done) continue;
        any_left = true;
        if (is_new) start_sequence(bench, seq);
        if (!is_new && weft_rand_below(&bench->rng, 100) < manner->preempt_chance) {
            stop_sequence(bench, seq);
            continue;
        }
        plan_row(bench, seq, manner, &budget);
    }
    return any_left;
}

static void run_together(struct bench *bench, struct sequence *seqs, uint32_t n,
                         const struct manner *manner) {
    while (plan_step(bench, seqs, n, manner)) {
        const struct weft_step_result *result = drive_run(&bench->drive);
        for (uint32_t i = 0; i < result->n_outs; i++) {
            for (uint32_t j = 0; j < n; j++) {
                if (seqs[j].running && seqs[j].slot == result->outs[i].slot)
                    take_in(&seqs[j], &result->outs[i]);
            }
        }
        for (uint32_t j = 0; j < n; j++) {
            if (seqs[j].running && seqs[j].done) stop_sequence(bench, &seqs[j]);
        }
    }
    (void)drive_run(&bench->drive); /* the last releases */
}

static void run_manner(weft_eng *eng, struct sequence *seqs, const struct manner *manner,
                       uint64_t seed) {
    struct bench *bench = malloc(sizeof *bench);
    assert_non_null(bench);
    init_bench(bench, eng, seed);
    forget_results(seqs, SEQS);
    for (uint32_t i = 0; i < SEQS; i += manner->alone ? 1 : SEQS) {
        run_together(bench, seqs + i, manner->alone ? 1 : SEQS, manner);
    }
    free(bench);
}

/* ------------------------------------------------------------------------------- invariance --- */

static void check_invariance(const char *model, enum weft_eng_act act, enum weft_eng_kv kv) {
    static const struct manner manners[] = {
        {false, 1000, 0, false}, {false, 0, 10, false}, {false, 7, 0, false},
        {false, 16, 0, true},    {false, 1, 0, false},  {true, 5, 5, false},
    };
    static const struct { uint32_t n_threads, block_size; } engines[] = {{1, 16}, {2, 16}, {3, 48}};
    static const struct manner reference = {true, 1000, 0, true};
    uint64_t seed = weft_rand_test_seed();
    struct engine_request requests[SEQS];
    struct sequence *seqs = calloc(2 * SEQS, sizeof *seqs), *want = seqs + SEQS;
    assert_non_null(seqs);
    for (uint32_t i = 0; i < SEQS; i++) {
        seqs[i].request = &requests[i];
    }
    size_t n_engines = engine_short_run ? 1 : sizeof engines / sizeof engines[0];
    size_t n_manners = engine_short_run ? 2 : sizeof manners / sizeof manners[0];
    for (size_t e = 0; e < n_engines; e++) {
        weft_eng *eng =
            engine_open_small(model, act, kv, engines[e].n_threads, engines[e].block_size);
        uint64_t rng = seed;
        engine_make_requests(requests, weft_eng_info(eng)->n_vocab, &rng);
        if (e == 0) {
            run_manner(eng, seqs, &reference, seed);
            memcpy(want, seqs, SEQS * sizeof *seqs);
        }
        for (size_t m = 0; m < n_manners; m++) {
            run_manner(eng, seqs, &manners[m], rng + m);
            assert_same_results(seqs, want);
        }
        weft_eng_free(eng);
    }
    assert_int_equal(want[5].n_prompt_records, requests[5].n_prompt - 1);
    assert_int_equal(want[5].n_output, 0);
    assert_int_equal(want[0].n_output, requests[0].sampling.max_tokens);
    free(seqs);
}

/* ------------------------------------------------------------------------------- adapters --- */

enum { ADAPTERS = 8 };

/* One of its own for each sequence, for one of them two more, and none for the last. */
static void give_adapters(struct sequence *seqs) {
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        seqs[i].n_adapters = 1;
        seqs[i].adapters[0] = (struct weft_step_adapter){i + 1, i % 2 ? 1.0f : 0.6f, 0};
    }
    seqs[2].n_adapters = 3;
    seqs[2].adapters[1] = (struct weft_step_adapter){1, -0.5f, 0};
    seqs[2].adapters[2] = (struct weft_step_adapter){8, 0.25f, 0};
}

static weft_eng *open_adapted(const char *model, char *const dirs[ADAPTERS], enum weft_eng_act act,
                              uint32_t n_threads) {
    weft_eng *eng = engine_open_small(model, act, WEFT_ENG_KV_AUTO, n_threads, 16);
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        struct weft_errmsg why;
        struct weft_eng_lora info;
        if (weft_eng_add_lora(eng, i + 1, dirs[i], &info, &why)) fail_msg("%s", why.text);
    }
    return eng;
}

static void check_adapters(const char *model, const char *folder, enum weft_eng_act act) {
    static const struct manner manners[] = {{false, 1000, 0, false}, {false, 0, 10, false}};
    static const struct manner reference = {true, 1000, 0, true};
    uint64_t seed = weft_rand_test_seed(), rng = seed;
    struct engine_request requests[SEQS];
    struct sequence *seqs = calloc(2 * SEQS, sizeof *seqs), *want = seqs + SEQS;
    char *dirs[ADAPTERS];
    assert_non_null(seqs);
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        dirs[i] = test_dir_new();
        lora_write_random(*folder == '/' ? folder : drive_fixture(folder), dirs[i], i * 5 + 1,
                          i + 3);
    }
    for (uint32_t i = 0; i < SEQS; i++)
        seqs[i].request = &requests[i];
    weft_eng *eng = engine_open_small(model, act, WEFT_ENG_KV_AUTO, 2, 16);
    engine_make_requests(requests, weft_eng_info(eng)->n_vocab, &rng);
    run_manner(eng, seqs, &reference, seed); /* a row without adapters is what it is without any */
    weft_eng_free(eng);
    memcpy(want + SEQS - 1, seqs + SEQS - 1, sizeof *seqs);
    give_adapters(seqs);
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads += engine_short_run ? 3 : 1) {
        eng = open_adapted(model, dirs, act, n_threads);
        if (n_threads == 1) {
            run_manner(eng, seqs, &reference, seed);
            memcpy(want, seqs, (SEQS - 1) * sizeof *seqs);
        }
        for (size_t m = 0; m < sizeof manners / sizeof manners[0]; m++) {
            run_manner(eng, seqs, &manners[m], rng + m);
            assert_same_results(seqs, want);
        }
        weft_eng_free(eng);
    }
    for (uint32_t i = 0; i < ADAPTERS; i++)
        test_dir_free(dirs[i]);
    free(seqs);
}

static void results_with_adapters_do_not_depend_on_company(void **state) {
    (void)state;
    check_adapters(ENGINE_DRAFT, ENGINE_DRAFT, WEFT_ENG_ACT_AUTO);
    check_adapters(ENGINE_QUANTISED, "models/fable-6m", WEFT_ENG_ACT_AUTO);
    check_adapters("tests/data/zoo/qwen3_moe", "tests/data/zoo/qwen3_moe", WEFT_ENG_ACT_F32);
    check_adapters("tests/data/zoo/deepseek_v3", "tests/data/zoo/deepseek_v3", WEFT_ENG_ACT_AUTO);
}

/* ------------------------------------------------------------------------------- by model --- */

static void bf16_results_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance(ENGINE_DRAFT, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
}

static void f32_results_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance(ENGINE_DRAFT, WEFT_ENG_ACT_F32, WEFT_ENG_KV_AUTO);
}

static void int8_results_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance(ENGINE_QUANTISED, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
}

static void results_with_an_int8_cache_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance(ENGINE_DRAFT, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_INT8);
    check_invariance(ENGINE_TIED, WEFT_ENG_ACT_F32, WEFT_ENG_KV_INT8);
}

static void windowed_results_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance(ENGINE_WINDOWED, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
    check_invariance(ENGINE_WINDOWED, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_INT8);
}

static void tied_results_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance(ENGINE_TIED, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
    check_invariance("tests/data/zoo/llama_quant/Q8_0.gguf", WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
    check_invariance("tests/data/zoo/llama_quant/F16.gguf", WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
}

static void results_of_few_bits_do_not_depend_on_company(void **state) {
    (void)state;
    static const char *const types[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS",
                                        "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/zoo/llama_quant/%s.gguf", types[i]);
        check_invariance(path, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
    }
    check_invariance("tests/data/zoo/llama_quant/Q5_K.gguf", WEFT_ENG_ACT_F32, WEFT_ENG_KV_AUTO);
}

/* One type of each layout that others do not have; in short runs one. */
static void nor_do_those_of_types_in_shared_files(void **state) {
    (void)state;
    static const char *const types[] = {"IQ2_XS", "IQ3_XXS", "TQ1_0", "MXFP4", "NVFP4"};
    const char *folder = drive_shared("zoo2/gguf_types");
    if (!folder) skip();
    for (size_t i = 0; i < (engine_short_run ? 1 : sizeof types / sizeof types[0]); i++) {
        char path[1024];
        (void)snprintf(path, sizeof path, "%s/%s.gguf", folder, types[i]);
        check_invariance(path, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
    }
}

static void results_of_quantised_folders_do_not_depend_on_company(void **state) {
    (void)state;
    static const char *const names[] = {"fp8", "gptq",     "gptq_order",  "gptq_v2", "awq",
                                        "nf4", "nf4_wide", "gptq8_order", "w4a16",   "w8a8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/formats/%s", names[i]);
        check_invariance(path, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
    }
}

/* Rows of 8-bit activations that two types share have the longer one's length. */
static void experts_of_mixed_types_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance("tests/data/formats/mixed_experts.gguf", WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
}

static void other_architectures_results_do_not_depend_on_company(void **state) {
    (void)state;
    static const char *const names[] = {"qwen2",  "qwen3",     "smollm3",   "granite",
                                        "gemma2", "gemma3",    "phi3",      "mixtral",
                                        "olmoe",  "qwen2_moe", "qwen3_moe", "olmo2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/zoo/%s", names[i]);
        check_invariance(path, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
    }
}

/* The factors of each sequence are those of its prompt: the short ones for 64 tokens and fewer,
 * even when it grows beyond, whatever else is in the batch or is computed again. */
static void results_with_longrope_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance("tests/data/zoo/phi3_longrope", WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
    check_invariance("tests/data/zoo/gguf/phi3_longrope.gguf", WEFT_ENG_ACT_F32, WEFT_ENG_KV_AUTO);
    check_invariance("tests/data/zoo/phi4_mini", WEFT_ENG_ACT_F32, WEFT_ENG_KV_INT8);
}

static void latent_results_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance("tests/data/zoo/deepseek_v2", WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
    check_invariance("tests/data/zoo/deepseek_v3", WEFT_ENG_ACT_F32, WEFT_ENG_KV_AUTO);
    check_invariance("tests/data/zoo/gguf/deepseek_v3.gguf", WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_INT8);
}

/* Heads of two sizes, keys and values of other layers, embeddings for each; experts beside the rest. Short runs leave out
 * the int8 cache. */
static void layers_that_are_not_alike_do_not_depend_on_company(void **state) {
    (void)state;
    static const char *const names[] = {"gemma4", "gemma4_moe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[1024];
        (void)snprintf(path, sizeof path, "zoo2/%s", names[i]);
        const char *found = drive_shared(path);
        if (!found) skip();
        (void)snprintf(path, sizeof path, "%s", found);
        check_invariance(path, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
        if (!engine_short_run) check_invariance(path, WEFT_ENG_ACT_F32, WEFT_ENG_KV_INT8);
        if (i == 0)
            check_adapters(path, path, WEFT_ENG_ACT_AUTO); /* those of stacks do not exist */
    }
}

/* A token attends to 20 positions, of those before it that an indexer likes best. */
static void results_with_an_indexer_do_not_depend_on_company(void **state) {
    (void)state;
    char path[1024];
    const char *found = drive_shared("zoo2/deepseek_v32");
    if (!found) skip();
    (void)snprintf(path, sizeof path, "%s", found);
    check_invariance(path, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO);
    check_invariance(path, WEFT_ENG_ACT_F32, WEFT_ENG_KV_AUTO);
    if (!engine_short_run) check_invariance(path, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_INT8);
    check_adapters(path, path, WEFT_ENG_ACT_AUTO);
}

/* ---------------------------------------------------------------------------- long contexts --- */

enum { LONG_TOKENS = 1024 };

/* A hash per position instead of the logits: there are many. */
struct long_run {
    uint32_t n_vocab;
    uint64_t rows[LONG_TOKENS];
};

static void hash_row(void *ctx, uint32_t pos, const float *logits) {
    struct long_run *run = ctx;
    run->rows[pos] = XXH3_64bits(logits, run->n_vocab * sizeof *logits);
}

/* Alone in the batch a row has all threads to itself; they share its spans of positions. */
static void check_long_context(const char *model, enum weft_eng_kv kv, uint64_t seed) {
    static const struct {
        uint32_t n_threads, chunk;
    } ways[] = {
        {1, 512}, {4, 512}, {1, 1}, {2, 1}, {3, 1}, {8, 2}, {3, 37}, {4, 100},
    };
    uint32_t tokens[LONG_TOKENS];
    struct long_run *want = calloc(2, sizeof *want), *got = want + 1;
    assert_non_null(want);
    size_t n_ways = engine_short_run ? 2 : sizeof ways / sizeof ways[0];
    for (size_t i = 0; i < n_ways; i++) {
        struct weft_eng_options options;
        weft_eng_options_init(&options);
        options.kv_dtype = kv;
        options.n_threads = ways[i].n_threads;
        options.max_batched_tokens = ways[i].chunk;
        options.kv_memory_bytes = 8u << 20;
        weft_eng *eng =
            drive_open(*model == '/' || *model == '.' ? model : drive_fixture(model), &options);
        struct long_run *run = i == 0 ? want : got;
        run->n_vocab = weft_eng_info(eng)->n_vocab;
        for (uint32_t t = 0; i == 0 && t < LONG_TOKENS; t++) {
            tokens[t] = weft_rand_below(&seed, run->n_vocab);
        }
        assert_int_equal(weft_eng_logits(eng, tokens, LONG_TOKENS, hash_row, run, NULL), WEFT_OK);
        assert_memory_equal(run->rows, want->rows, sizeof want->rows);
        weft_eng_free(eng);
    }
    free(want);
}

static void long_contexts_do_not_depend_on_chunks_and_threads(void **state) {
    (void)state;
    uint64_t seed = weft_rand_test_seed();
    check_long_context(ENGINE_DRAFT, WEFT_ENG_KV_AUTO, seed);
    check_long_context(ENGINE_DRAFT, WEFT_ENG_KV_INT8, seed);
    check_long_context(ENGINE_WINDOWED, WEFT_ENG_KV_AUTO, seed);
    check_long_context("tests/data/zoo/deepseek_v2", WEFT_ENG_KV_AUTO, seed);
    const char *indexed = drive_shared("zoo2/deepseek_v32");
    if (indexed) check_long_context(indexed, WEFT_ENG_KV_AUTO, seed);
    if (indexed) check_long_context(indexed, WEFT_ENG_KV_INT8, seed);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_invariance", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_results_do_not_depend_on_company),
        cmocka_unit_test(results_with_adapters_do_not_depend_on_company),
        cmocka_unit_test(f32_results_do_not_depend_on_company),
        cmocka_unit_test(int8_results_do_not_depend_on_company),
        cmocka_unit_test(results_with_an_int8_cache_do_not_depend_on_company),
        cmocka_unit_test(windowed_results_do_not_depend_on_company),
        cmocka_unit_test(tied_results_do_not_depend_on_company),
        cmocka_unit_test(long_contexts_do_not_depend_on_chunks_and_threads),
        cmocka_unit_test(results_of_few_bits_do_not_depend_on_company),
        cmocka_unit_test(nor_do_those_of_types_in_shared_files),
        cmocka_unit_test(results_of_quantised_folders_do_not_depend_on_company),
        cmocka_unit_test(experts_of_mixed_types_do_not_depend_on_company),
        cmocka_unit_test(other_architectures_results_do_not_depend_on_company),
        cmocka_unit_test(results_with_longrope_do_not_depend_on_company),
        cmocka_unit_test(latent_results_do_not_depend_on_company),
        cmocka_unit_test(layers_that_are_not_alike_do_not_depend_on_company),
        cmocka_unit_test(results_with_an_indexer_do_not_depend_on_company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
