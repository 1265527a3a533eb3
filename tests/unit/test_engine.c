/* The engine through weft_eng_step: what a sequence yields depends on nothing but itself.
 *
 * A small scheduler runs a set of sequences in many ways (alone, together, in chunks, preempted and
 * recomputed, on other block sizes and thread counts) and every record must be bit-equal to the one
 * the sequence made alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef WEFT_SANITIZED
#include <jemalloc/jemalloc.h>
#endif

#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "harness/eng_drive.h"
#include "model/model.h"

enum { SEQS = 9, PROMPT_MAX = 220, OUTPUT_MAX = 16, TOP_MAX = 5, SEQ_BLOCKS_MAX = 32 };

/* Given "short" on the command line: one engine, two manners, fewer made-up plans. */
static bool short_run;

static const char DRAFT[] = "tests/data/fable-draft-1m";
static const char QUANTISED[] = "tests/data/fable-6m-q8_0.gguf";
static const char TIED[] = "tests/data/zoo/llama_gqa_llama3rope";

struct record { /* of one token */
    bool has_logprobs;
    uint32_t token, rank, n_top, top_ids[TOP_MAX];
    uint32_t logprob_bits, top_bits[TOP_MAX];
};

struct sequence {
    uint32_t prompt[PROMPT_MAX], n_prompt;
    struct weft_sampling sampling;
    uint32_t stop_tokens[4];
    struct weft_logit_bias bias[4];
    /* What came of it. */
    uint32_t n_output, n_prompt_records;
    enum weft_finish finish;
    struct record output[OUTPUT_MAX], prompt_records[PROMPT_MAX];
    /* While it runs. */
    bool running, done;
    uint32_t slot, gen, n_computed, n_blocks, blocks[SEQ_BLOCKS_MAX];
    uint32_t tokens[PROMPT_MAX + OUTPUT_MAX];
};

/* How a set of sequences is run. */
struct manner {
    bool alone;
    uint32_t chunk_max;      /* 0: a fresh random one for each row */
    uint32_t preempt_chance; /* in percent, per sequence and step */
};

struct bench { /* an engine with its free slots and blocks */
    struct drive drive;
    uint32_t next_gen, n_free_blocks, free_blocks[DRIVE_BLOCKS];
    bool slot_used[SEQS];
    uint64_t rng;
};

/* ------------------------------------------------------------------------------- sequences --- */

static void init_sequence(struct sequence *seq, uint32_t n_prompt, uint32_t n_vocab,
                          uint64_t *rng) {
    memset(seq, 0, sizeof *seq);
    weft_sampling_init(&seq->sampling);
    seq->n_prompt = n_prompt;
    seq->sampling.max_tokens = 8 + weft_rand_below(rng, 8);
    seq->sampling.seed = weft_rand_next(rng);
    for (uint32_t i = 0; i < n_prompt; i++) {
        seq->prompt[i] = weft_rand_below(rng, n_vocab);
    }
}

/* One of each kind: whatever the sampler looks at must not depend on company. */
static void make_sequences(struct sequence *seqs, uint32_t n_vocab, uint64_t *rng) {
    static const uint32_t lengths[SEQS] = {1, 5, 17, 33, 16, 40, 64, 200, 130};
    for (uint32_t i = 0; i < SEQS; i++) {
        init_sequence(&seqs[i], lengths[i], n_vocab, rng);
    }
    seqs[1].sampling.temperature = 1.0f;
    seqs[2].sampling.temperature = 0.8f;
    seqs[2].sampling.top_p = 0.9f;
    seqs[2].sampling.top_k = 40;
    seqs[2].sampling.n_logprobs = 3;
    seqs[3].sampling.temperature = 0.7f;
    seqs[3].sampling.repetition_penalty = 1.2f;
    seqs[3].sampling.frequency_penalty = 0.3f;
    seqs[3].sampling.presence_penalty = 0.2f;
    seqs[3].sampling.n_logprobs = TOP_MAX;
    seqs[4].sampling.temperature = 1.5f;
    seqs[4].sampling.min_p = 0.02f;
    seqs[4].sampling.n_logprobs = 0;
    seqs[4].bias[0] = (struct weft_logit_bias){3, 2.5f};
    seqs[4].bias[1] = (struct weft_logit_bias){300, -50.0f};
    seqs[4].sampling.bias = seqs[4].bias;
    seqs[4].sampling.n_bias = 2;
    seqs[5].sampling.n_prompt_logprobs = 3;
    seqs[5].sampling.max_tokens = 0;
    seqs[6].sampling.n_prompt_logprobs = 2;
    seqs[6].sampling.n_logprobs = 1;
    seqs[6].sampling.repetition_penalty = 1.1f;
    seqs[8].sampling.temperature = 2.0f;
    seqs[8].sampling.min_tokens = 4;
    for (uint32_t i = 0; i < 4; i++) {
        seqs[8].stop_tokens[i] = weft_rand_below(rng, n_vocab);
    }
    seqs[7].sampling.temperature = 1.5f;
    seqs[7].sampling.min_tokens = 5;
    seqs[7].sampling.masked_tokens = seqs[8].stop_tokens;
    seqs[7].sampling.n_masked_tokens = 4;
    seqs[8].sampling.stop_tokens = seqs[8].stop_tokens;
    seqs[8].sampling.n_stop_tokens = 4;
}

static void forget_results(struct sequence *seqs, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        seqs[i].n_output = seqs[i].n_prompt_records = 0;
        seqs[i].finish = WEFT_FINISH_NONE;
        seqs[i].running = seqs[i].done = false;
        memset(seqs[i].output, 0, sizeof seqs[i].output);
        memset(seqs[i].prompt_records, 0, sizeof seqs[i].prompt_records);
        memcpy(seqs[i].tokens, seqs[i].prompt, sizeof seqs[i].prompt);
    }
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void keep_logprobs(struct record *record, const struct weft_logprobs *logprobs) {
    record->has_logprobs = true;
    record->rank = logprobs->rank;
    record->n_top = logprobs->n_top;
    record->logprob_bits = bits_of(logprobs->logprob);
    assert_true(logprobs->n_top <= TOP_MAX);
    for (uint32_t i = 0; i < logprobs->n_top; i++) {
        record->top_ids[i] = logprobs->top_ids[i];
        record->top_bits[i] = bits_of(logprobs->top_logprobs[i]);
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
    seq->n_computed = seq->n_blocks = 0;
    struct weft_step_start start = {
        .slot = slot,
        .gen = seq->gen,
        .tokens = seq->tokens,
        .n_tokens = seq->n_prompt + seq->n_output,
        .n_prompt = seq->n_prompt,
        .n_prompt_logprobs_done = seq->n_prompt_records ? seq->n_prompt_records + 1 : 0,
        .sampling = seq->sampling,
    };
    drive_start(&bench->drive, &start);
}

static void stop_sequence(struct bench *bench, struct sequence *seq) {
    drive_release(&bench->drive, seq->slot, seq->gen);
    bench->slot_used[seq->slot] = false;
    for (uint32_t i = 0; i < seq->n_blocks; i++) {
        bench->free_blocks[bench->n_free_blocks++] = seq->blocks[i];
    }
    seq->running = false;
}

static void plan_row(struct bench *bench, struct sequence *seq, uint32_t chunk_max,
                     uint32_t *budget) {
    uint32_t left = seq->n_prompt + seq->n_output - seq->n_computed;
    if (chunk_max == 0) chunk_max = 1 + weft_rand_below(&bench->rng, 40);
    uint32_t n = left < chunk_max ? left : chunk_max;
    if (n > *budget) n = *budget;
    if (n == 0) return;
    uint32_t block_size = weft_eng_info(bench->drive.eng)->block_size;
    uint32_t first_new = seq->n_blocks;
    while (seq->n_blocks * block_size < seq->n_computed + n) {
        assert_true(seq->n_blocks < SEQ_BLOCKS_MAX);
        seq->blocks[seq->n_blocks++] = take_block(bench);
    }
    drive_grant(&bench->drive, seq->slot, seq->gen, seq->blocks + first_new,
                seq->n_blocks - first_new);
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
        seq->tokens[seq->n_prompt + seq->n_output++] = out->token;
    }
    seq->finish = out->finish;
    seq->done = out->finish != WEFT_FINISH_NONE;
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
        plan_row(bench, seq, manner->chunk_max, &budget);
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

static weft_eng *open_small(const char *model, enum weft_eng_act act, uint32_t n_threads,
                            uint32_t block_size) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.activations = act;
    options.n_threads = n_threads;
    options.block_size = block_size;
    options.max_seqs = SEQS;
    options.max_batched_tokens = 256;
    options.max_model_len = 300;
    options.kv_memory_bytes = 24u << 20;
    return drive_open(drive_fixture(model), &options);
}

static void check_invariance(const char *model, enum weft_eng_act act) {
    static const struct manner manners[] = {
        {false, 1000, 0}, {false, 0, 10}, {false, 7, 0},
        {false, 16, 0},   {false, 1, 0},  {true, 5, 5},
    };
    static const struct { uint32_t n_threads, block_size; } engines[] = {{1, 16}, {2, 16}, {3, 48}};
    static const struct manner reference = {true, 1000, 0};
    uint64_t seed = weft_rand_test_seed();
    struct sequence *seqs = calloc(2 * SEQS, sizeof *seqs), *want = seqs + SEQS;
    assert_non_null(seqs);
    size_t n_engines = short_run ? 1 : sizeof engines / sizeof engines[0];
    size_t n_manners = short_run ? 2 : sizeof manners / sizeof manners[0];
    for (size_t e = 0; e < n_engines; e++) {
        weft_eng *eng = open_small(model, act, engines[e].n_threads, engines[e].block_size);
        uint64_t rng = seed;
        make_sequences(seqs, weft_eng_info(eng)->n_vocab, &rng);
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
    assert_int_equal(want[5].n_prompt_records, want[5].n_prompt - 1);
    assert_int_equal(want[5].n_output, 0);
    assert_int_equal(want[0].n_output, want[0].sampling.max_tokens);
    free(seqs);
}

static void bf16_results_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance(DRAFT, WEFT_ENG_ACT_AUTO);
}

static void f32_results_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance(DRAFT, WEFT_ENG_ACT_F32);
}

static void int8_results_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance(QUANTISED, WEFT_ENG_ACT_AUTO);
}

static void tied_results_do_not_depend_on_company(void **state) {
    (void)state;
    check_invariance(TIED, WEFT_ENG_ACT_AUTO);
    check_invariance("tests/data/zoo/llama_quant/Q8_0.gguf", WEFT_ENG_ACT_AUTO);
    check_invariance("tests/data/zoo/llama_quant/F16.gguf", WEFT_ENG_ACT_AUTO);
}

/* ------------------------------------------------------------------------------------ plans --- */

/* What the test knows of a twin engine's slots, so that most plans it makes up are good ones. */
struct known_slot {
    bool used;
    uint32_t gen, n_known, n_computed, n_table;
};

struct fuzz {
    struct drive a, b; /* b gets every plan, a only those that b took */
    struct known_slot slots[4];
    uint32_t tokens[8][64];
    struct weft_logit_bias bias;
    uint64_t rng;
    uint32_t next_gen, n_taken, n_refused;
};

static uint32_t below(struct fuzz *fuzz, uint32_t n) {
    return weft_rand_below(&fuzz->rng, n);
}

static void make_up_start(struct fuzz *fuzz, uint32_t slot) {
    uint32_t *tokens = fuzz->tokens[fuzz->b.n_starts];
    uint32_t n = 1 + below(fuzz, 60), n_vocab = weft_eng_info(fuzz->b.eng)->n_vocab;
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = below(fuzz, n_vocab);
    }
    struct weft_step_start start = {
        .slot = slot, .gen = ++fuzz->next_gen, .tokens = tokens, .n_tokens = n};
    start.n_prompt = 1 + below(fuzz, n);
    weft_sampling_init(&start.sampling);
    start.sampling.temperature = below(fuzz, 2) ? 0.0f : 1.0f;
    start.sampling.max_tokens = 1 + below(fuzz, 100);
    start.sampling.n_prompt_logprobs = (int32_t)below(fuzz, 3) - 1;
    start.sampling.n_logprobs = (int32_t)below(fuzz, 30) - 1;
    drive_start(&fuzz->b, &start);
    fuzz->slots[slot] = (struct known_slot){true, start.gen, n, 0, 0};
}

static void make_up_plan(struct fuzz *fuzz) {
    for (uint32_t s = 0; s < 4; s++) {
        struct known_slot *slot = &fuzz->slots[s];
        if (slot->used && below(fuzz, 20) == 0) {
            drive_release(&fuzz->b, s, slot->gen);
            slot->used = false;
        }
        if (!slot->used && below(fuzz, 2)) make_up_start(fuzz, s);
        if (!slot->used) continue;
        uint32_t n = slot->n_known > slot->n_computed ? slot->n_known - slot->n_computed : 1;
        n = 1 + below(fuzz, n);
        uint32_t blocks[8], n_blocks = 0;
        while ((slot->n_table + n_blocks) * 16 < slot->n_computed + n && n_blocks < 8) {
            blocks[n_blocks++] = below(fuzz, weft_eng_info(fuzz->b.eng)->n_blocks);
        }
        drive_grant(&fuzz->b, s, slot->gen, blocks, n_blocks);
        drive_row(&fuzz->b, s, slot->gen, n);
        slot->n_table += n_blocks;
        slot->n_computed += n;
    }
    if (below(fuzz, 8) == 0) drive_copy(&fuzz->b, below(fuzz, 8), below(fuzz, 8));
}

static uint32_t odd_number(struct fuzz *fuzz) {
    static const uint32_t odd[] = {0, 1, 2, 3, 4, 5, 17, 100, 1000, 65536, 0x7fffffff, UINT32_MAX};
    return odd[below(fuzz, sizeof odd / sizeof odd[0])];
}

static void spoil_sampling(struct fuzz *fuzz, struct weft_sampling *sampling) {
    static const float odd[] = {-1.0f, 2.0f, INFINITY, NAN, 0.0f};
    float value = odd[below(fuzz, 5)];
    fuzz->bias = (struct weft_logit_bias){odd_number(fuzz), value};
    switch (below(fuzz, 7)) {
    case 0:
        sampling->temperature = value;
        break;
    case 1:
        sampling->top_p = value;
        break;
    case 2:
        sampling->repetition_penalty = value;
        break;
    case 3:
        sampling->n_bias = 1;
        sampling->bias = &fuzz->bias;
        break;
    case 4:
        sampling->n_stop_tokens = below(fuzz, 2);
        sampling->n_masked_tokens = 1 - sampling->n_stop_tokens;
        sampling->stop_tokens = sampling->masked_tokens = &fuzz->bias.token;
        break;
    case 5:
        sampling->n_logprobs = (int32_t)odd_number(fuzz);
        break;
    default:
        sampling->n_prompt_logprobs = (int32_t)odd_number(fuzz);
        break;
    }
}

static void spoil_start(struct fuzz *fuzz, struct weft_step_start *start) {
    uint32_t *const fields[] = {&start->slot,     &start->gen,      &start->n_tokens,
                                &start->n_prompt, &start->n_cached, &start->n_prompt_logprobs_done};
    uint32_t which = below(fuzz, 8);
    if (which == 6) {
        spoil_sampling(fuzz, &start->sampling);
    } else if (which == 7) {
        fuzz->tokens[0][below(fuzz, 8)] = odd_number(fuzz);
    } else {
        uint32_t value = odd_number(fuzz);
        /* `tokens` has room for 64: a decoder never hands over more than it read. */
        if (fields[which] == &start->n_tokens && value > 64 && value < 1000) value = 64;
        *fields[which] = value;
    }
}

/* Changes one thing. */
static void spoil_plan(struct fuzz *fuzz, struct weft_step_plan *plan) {
    struct drive *b = &fuzz->b;
    uint32_t value = odd_number(fuzz);
    switch (below(fuzz, 7)) {
    case 0:
        plan->step += 1 + value;
        break;
    case 1:
        if (b->n_rows) b->rows[below(fuzz, b->n_rows)].slot = value;
        break;
    case 2:
        if (b->n_rows) b->rows[below(fuzz, b->n_rows)].n_tokens = value;
        break;
    case 3:
        if (b->n_grants) b->blocks[below(fuzz, b->n_blocks)] = value;
        break;
    case 4:
        if (b->n_grants) b->grants[below(fuzz, b->n_grants)].gen = value;
        break;
    case 5:
        if (b->n_starts) spoil_start(fuzz, &b->starts[below(fuzz, b->n_starts)]);
        break;
    default:
        if (b->n_copies) b->copies[0].to = value;
        if (b->n_releases) b->releases[0].gen = value;
        break;
    }
}

static void assert_same_step(const struct weft_step_result *a, const struct weft_step_result *b) {
    assert_int_equal(a->n_outs, b->n_outs);
    assert_int_equal(a->n_tokens, b->n_tokens);
    for (uint32_t i = 0; i < a->n_outs; i++) {
        const struct weft_step_out *x = &a->outs[i], *y = &b->outs[i];
        assert_int_equal(x->slot, y->slot);
        assert_int_equal(x->ran, y->ran);
        assert_int_equal(x->sampled, y->sampled);
        assert_int_equal(x->token, y->token);
        assert_int_equal(x->output_idx, y->output_idx);
        assert_int_equal(x->finish, y->finish);
        assert_int_equal(x->n_prompt_logprobs, y->n_prompt_logprobs);
        if (x->has_logprobs)
            assert_int_equal(bits_of(x->logprobs.logprob), bits_of(y->logprobs.logprob));
    }
}

static void learn(struct fuzz *fuzz, const struct weft_step_result *result) {
    for (uint32_t i = 0; i < result->n_outs; i++) {
        const struct weft_step_out *out = &result->outs[i];
        struct known_slot *slot = &fuzz->slots[out->slot];
        if (out->sampled) slot->n_known++;
    }
}

static void clear_drive(struct drive *drive) {
    drive->n_releases = drive->n_starts = drive->n_copies = 0;
    drive->n_grants = drive->n_rows = drive->n_blocks = 0;
}

static void fuzz_once(struct fuzz *fuzz) {
    struct known_slot before[4];
    memcpy(before, fuzz->slots, sizeof before);
    clear_drive(&fuzz->b);
    make_up_plan(fuzz);
    struct weft_step_plan plan = drive_plan(&fuzz->b);
    if (below(fuzz, 2)) spoil_plan(fuzz, &plan);
    const struct weft_step_result *result_a = NULL, *result_b = NULL;
    struct weft_errmsg why = {{0}};
    weft_err err = weft_eng_step(fuzz->b.eng, &plan, &result_b, &why);
    if (err) {
        assert_int_equal(err, WEFT_E_PROTO);
        assert_null(result_b);
        assert_true(why.text[0] != '\0');
        memcpy(fuzz->slots, before, sizeof before);
        fuzz->n_refused++;
        return;
    }
    assert_int_equal(weft_eng_step(fuzz->a.eng, &plan, &result_a, &why), WEFT_OK);
    assert_same_step(result_a, result_b);
    learn(fuzz, result_b);
    fuzz->b.step++;
    fuzz->n_taken++;
}

static void refused_plans_change_nothing(void **state) {
    (void)state;
    struct fuzz *fuzz = calloc(1, sizeof *fuzz);
    assert_non_null(fuzz);
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.n_threads = 1;
    options.max_seqs = 4;
    options.max_batched_tokens = 128;
    options.max_model_len = 100;
    options.kv_memory_bytes = 1u << 20;
    fuzz->rng = weft_rand_test_seed();
    drive_init(&fuzz->a, drive_open(drive_fixture(TIED), &options));
    drive_init(&fuzz->b, drive_open(drive_fixture(TIED), &options));
    uint32_t n_rounds = short_run ? 1000 : 4000;
    for (uint32_t i = 0; i < n_rounds; i++) {
        fuzz_once(fuzz);
    }
    (void)printf("%u plans taken, %u refused\n", fuzz->n_taken, fuzz->n_refused);
    assert_true(fuzz->n_taken > n_rounds / 8 && fuzz->n_refused > n_rounds / 8);
    weft_eng_free(fuzz->a.eng);
    weft_eng_free(fuzz->b.eng);
    free(fuzz);
}

static void epochs_drop_sequences_and_old_ones_are_stale(void **state) {
    (void)state;
    weft_eng *eng = open_small(TIED, WEFT_ENG_ACT_AUTO, 1, 16);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    const uint32_t tokens[] = {1, 2, 3}, block = 0;
    struct weft_step_start start = {.gen = 7, .tokens = tokens, .n_tokens = 3, .n_prompt = 3};
    weft_sampling_init(&start.sampling);
    for (uint64_t epoch = 1; epoch < 4; epoch++) { /* the same generation again: another epoch */
        drive->epoch = epoch;
        drive->step = 0;
        drive_start(drive, &start);
        drive_grant(drive, 0, 7, &block, 1);
        drive_row(drive, 0, 7, 3);
        assert_true(drive_run(drive)->outs[0].sampled);
    }
    struct weft_step_plan stale = {.epoch = 2, .step = 1};
    const struct weft_step_result *result;
    assert_int_equal(weft_eng_step(eng, &stale, &result, NULL), WEFT_E_STATE);
    struct weft_step_plan gap = {.epoch = 4, .step = 1}; /* a new epoch begins at 0 */
    assert_int_equal(weft_eng_step(eng, &gap, &result, NULL), WEFT_E_PROTO);
    drive_row(drive, 0, 7, 1); /* and epoch 3 is still there */
    assert_true(drive_run(drive)->outs[0].sampled);
    free(drive);
    weft_eng_free(eng);
}

/* ---------------------------------------------------------------------------------- endings --- */

static struct weft_step_out run_start(struct drive *drive, const struct weft_step_start *start) {
    static const uint32_t blocks[8] = {3, 1, 4, 0, 5, 9, 2, 6};
    drive_start(drive, start);
    drive_grant(drive, start->slot, start->gen, blocks, 8);
    drive_row(drive, start->slot, start->gen, start->n_tokens - start->n_cached);
    return drive_run(drive)->outs[0];
}

static void sequences_end_where_they_should(void **state) {
    (void)state;
    weft_eng *eng = open_small(TIED, WEFT_ENG_ACT_AUTO, 1, 16);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    const uint32_t tokens[] = {11, 12, 13, 14, 15, 16};
    struct weft_step_start start = {.gen = 1, .tokens = tokens, .n_tokens = 4, .n_prompt = 4};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 2;
    struct weft_step_out out = run_start(drive, &start);
    uint32_t first = out.token;
    assert_true(out.sampled && out.output_idx == 0 && out.finish == WEFT_FINISH_NONE);
    drive_row(drive, 0, 1, 1);
    out = drive_run(drive)->outs[0];
    assert_true(out.sampled && out.output_idx == 1 && out.finish == WEFT_FINISH_LENGTH);
    drive_row(drive, 0, 1, 1); /* planned before the end was known */
    out = drive_run(drive)->outs[0];
    assert_true(!out.ran && !out.sampled);

    drive_release(drive, 0, 1); /* the first token is now a stop token */
    start.gen = 2;
    start.sampling.stop_tokens = &first;
    start.sampling.n_stop_tokens = 1;
    out = run_start(drive, &start);
    assert_true(out.sampled && out.token == first && out.finish == WEFT_FINISH_STOP);

    drive_release(drive, 0, 2); /* but not before two tokens */
    start.gen = 3;
    start.sampling.min_tokens = 2;
    out = run_start(drive, &start);
    assert_true(out.sampled && out.token != first && out.finish == WEFT_FINISH_NONE);

    drive_release(drive, 0, 3); /* masked only: the same tokens, and it does not stop after them */
    start.gen = 6;
    start.sampling.masked_tokens = &first;
    start.sampling.n_masked_tokens = 1;
    start.sampling.n_stop_tokens = 0;
    start.sampling.min_tokens = 1;
    uint32_t second = out.token;
    out = run_start(drive, &start);
    assert_true(out.sampled && out.token == second && out.finish == WEFT_FINISH_NONE);
    drive_release(drive, 0, 6);
    start.gen = 7;
    start.sampling.min_tokens = 0;
    out = run_start(drive, &start);
    assert_true(out.sampled && out.token == first && out.finish == WEFT_FINISH_NONE);

    drive_release(drive, 0, 7); /* resumed with all of its output: nothing is left to do */
    start.sampling.n_masked_tokens = 0;
    start.sampling.n_stop_tokens = 1;
    start.gen = 4;
    start.n_tokens = 6;
    start.sampling.min_tokens = 0;
    out = run_start(drive, &start);
    assert_true(!out.ran && out.finish == WEFT_FINISH_LENGTH);

    drive_release(drive, 0, 4); /* the prompt alone */
    start.gen = 5;
    start.n_tokens = 4;
    start.sampling.max_tokens = 0;
    out = run_start(drive, &start);
    assert_true(out.ran && !out.sampled && out.finish == WEFT_FINISH_LENGTH);
    free(drive);
    weft_eng_free(eng);
}

static void a_prompt_of_the_full_length_ends_without_a_token(void **state) {
    (void)state;
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.n_threads = 1;
    options.max_model_len = 20;
    options.kv_memory_bytes = 1u << 20;
    weft_eng *eng = drive_open(drive_fixture(TIED), &options);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    uint32_t tokens[20] = {0}, out[16];
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    assert_int_equal(drive_complete(drive, tokens, 20, &sampling, out), 0);
    assert_int_equal(drive_complete(drive, tokens, 19, &sampling, out), 1);
    assert_int_equal(drive_complete(drive, tokens, 10, &sampling, out), 10);
    free(drive);
    weft_eng_free(eng);
}

/* ------------------------------------------------------------------------------------ cache --- */

static void copied_and_shared_blocks_hold_the_same_tokens(void **state) {
    (void)state;
    weft_eng *eng = open_small(DRAFT, WEFT_ENG_ACT_AUTO, 2, 16);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    uint32_t tokens[64], want[8];
    for (uint32_t i = 0; i < 64; i++) {
        tokens[i] = 100 + i * 7;
    }
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    sampling.max_tokens = 8;
    assert_int_equal(drive_complete(drive, tokens, 40, &sampling, want), 8);

    /* Its blocks were 0, 1, 2: copy two of them on, one over a detour, then overwrite the first. */
    struct weft_step_start start = {.slot = 1, .gen = 500, .tokens = tokens, .n_tokens = 40};
    start.n_prompt = 40;
    start.n_cached = 39;
    start.sampling = sampling;
    const uint32_t blocks[] = {10, 1, 12, 13};
    drive_copy(drive, 0, 11);
    drive_copy(drive, 11, 10);
    drive_copy(drive, 2, 12);
    (void)drive_run(drive);
    struct weft_step_start other = start;
    other.slot = 2;
    other.n_cached = 0;
    const uint32_t other_blocks[] = {0, 2, 11};
    drive_start(drive, &other);
    drive_grant(drive, 2, 500, other_blocks, 3);
    drive_row(drive, 2, 500, 40);
    drive_start(drive, &start);
    drive_grant(drive, 1, 500, blocks, 4);
    drive_row(drive, 1, 500, 1);
    assert_int_equal(drive_run(drive)->outs[1].token, want[0]);
    for (uint32_t i = 1; i < 8; i++) {
        drive_row(drive, 1, 500, 1);
        assert_int_equal(drive_run(drive)->outs[0].token, want[i]);
    }
    free(drive);
    weft_eng_free(eng);
}

/* ---------------------------------------------------------------------------------- weights --- */

struct logits_copy {
    uint32_t n_vocab;
    float rows[4][4096];
};

static void copy_row(void *ctx, uint32_t pos, const float *logits) {
    struct logits_copy *copy = ctx;
    memcpy(copy->rows[pos], logits, copy->n_vocab * sizeof(float));
}

static void logits_of(weft_eng *eng, struct logits_copy *copy) {
    const uint32_t tokens[4] = {5, 6, 7, 8};
    memset(copy, 0, sizeof *copy);
    copy->n_vocab = weft_eng_info(eng)->n_vocab;
    assert_true(copy->n_vocab <= 4096);
    assert_int_equal(weft_eng_logits(eng, tokens, 4, copy_row, copy, NULL), WEFT_OK);
}

static weft_err open_with_fd(const char *path, enum weft_eng_dtype dtype, int fd,
                             weft_eng **eng_out) {
    struct weft_eng_options options;
    struct weft_errmsg why = {{0}};
    weft_eng_options_init(&options);
    options.n_threads = 2;
    options.dtype = dtype;
    options.kv_memory_bytes = 4u << 20;
    options.weights_fd = fd;
    weft_err err = weft_eng_open(path, &options, eng_out, &why);
    if (err) (void)printf("%s\n", why.text);
    return err;
}

/* Opens with `fd`, tells whether the weights were inherited, compares the logits. */
static void check_open(const char *path, int fd, bool inherited, const struct logits_copy *want) {
    weft_eng *eng = NULL;
    struct logits_copy *got = malloc(sizeof *got);
    assert_non_null(got);
    assert_int_equal(open_with_fd(path, WEFT_ENG_DT_AUTO, fd, &eng), WEFT_OK);
    assert_int_equal(weft_eng_info(eng)->weights_inherited, inherited);
    logits_of(eng, got);
    assert_memory_equal(got, want, sizeof *got);
    weft_eng_free(eng);
    free(got);
}

static int new_memfd(void) {
    int fd = memfd_create("test-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    return fd;
}

static void assert_sealed(int fd) {
    int wanted = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    assert_int_equal(fcntl(fd, F_GET_SEALS) & wanted, wanted);
}

static void inherited_weights_equal_packed_ones(void **state) {
    (void)state;
    const char *model = drive_fixture(TIED);
    struct logits_copy *want = malloc(sizeof *want);
    assert_non_null(want);
    weft_eng *eng = NULL;
    assert_int_equal(open_with_fd(model, WEFT_ENG_DT_AUTO, -1, &eng), WEFT_OK);
    logits_of(eng, want);
    weft_eng_free(eng);

    int fd = new_memfd();
    check_open(model, fd, false, want);
    assert_sealed(fd);
    check_open(model, fd, true, want);
    assert_int_equal(open_with_fd(model, WEFT_ENG_DT_F32, fd, &eng), WEFT_E_STATE);
    assert_null(eng);
    assert_int_equal(open_with_fd(drive_fixture(DRAFT), WEFT_ENG_DT_AUTO, fd, &eng), WEFT_E_STATE);
    assert_null(eng);
    (void)close(fd);
    free(want);
}

/* Beside the header and gaps no more than a table of embeddings is left out, where it is no head.
 */
static void a_step_reads_all_weights_but_an_untied_embedding(void **state) {
    (void)state;
    const char *const paths[] = {DRAFT, QUANTISED, TIED};
    uint32_t n_tied = 0;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        weft_model *model = NULL;
        weft_eng *eng = NULL;
        struct weft_errmsg why = {""};
        assert_int_equal(weft_model_open(drive_fixture(paths[i]), &model, &why), WEFT_OK);
        assert_int_equal(open_with_fd(drive_fixture(paths[i]), WEFT_ENG_DT_AUTO, -1, &eng),
                         WEFT_OK);
        const struct weft_model_params *params = weft_model_params(model);
        const struct weft_eng_info *info = weft_eng_info(eng);
        uint64_t left_out = params->tied ? 0 : weft_model_embedding(model)->bytes;
        uint64_t gaps_max = 64u * (9u * params->n_layers + 3) + 2 * 4096;
        assert_in_range(info->weight_bytes - info->step_weight_bytes, left_out,
                        left_out + gaps_max);
        n_tied += params->tied;
        weft_eng_free(eng);
        weft_model_free(model);
    }
    assert_in_range(n_tied, 1, 2);
}

/* ------------------------------------------------------------------- packers that are killed ---
 */

struct opened { /* what a child tells of the engine it opened */
    bool inherited;
    uint64_t logits_hash;
};

static void hash_row(void *ctx, uint32_t pos, const float *logits) {
    uint64_t *hash = ctx;
    (void)pos;
    for (uint32_t i = 0; i < 512; i++) { /* TIED's vocabulary */
        *hash = (*hash ^ bits_of(logits[i])) * 0x9e3779b97f4a7c15u;
        *hash ^= *hash >> 29;
    }
}

/* Opens, computes, tells and ends: in a child, without any of the test's machinery. */
static void open_and_tell(const char *model, int fd, int tell_fd) {
    const uint32_t tokens[] = {5, 6, 7, 8};
    struct weft_eng_options options;
    struct opened opened = {0};
    weft_eng *eng;
    weft_eng_options_init(&options);
    options.n_threads = 2;
    options.kv_memory_bytes = 4u << 20;
    options.weights_fd = fd;
    if (weft_eng_open(model, &options, &eng, NULL)) _exit(1);
    opened.inherited = weft_eng_info(eng)->weights_inherited;
    if (weft_eng_logits(eng, tokens, 4, hash_row, &opened.logits_hash, NULL)) _exit(2);
    _exit(write(tell_fd, &opened, sizeof opened) == sizeof opened ? 0 : 3);
}

static pid_t fork_opener(const char *model, int fd, int tell_fd) {
    (void)fflush(stdout); /* else it would be the child's to write as well */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) open_and_tell(model, fd, tell_fd);
    return pid;
}

/* Two at once with one memfd, after a first one was killed `kill_us` into its opening. */
static void open_after_a_kill(const char *model, uint32_t kill_us, struct opened told[2]) {
    int fd = new_memfd(), pipe_fds[2], status[2];
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t killed = fork_opener(model, fd, pipe_fds[1]);
    (void)usleep(kill_us);
    assert_int_equal(kill(killed, SIGKILL), 0);
    assert_int_equal(waitpid(killed, status, 0), killed);
    if (WIFEXITED(status[0])) /* it was done already, and told so */
        assert_int_equal(read(pipe_fds[0], told, sizeof *told), sizeof *told);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        pids[i] = fork_opener(model, fd, pipe_fds[1]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(waitpid(pids[i], &status[i], 0), pids[i]);
        assert_int_equal(status[i], 0);
        assert_int_equal(read(pipe_fds[0], &told[i], sizeof told[i]), sizeof told[i]);
    }
    assert_sealed(fd);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    (void)close(fd);
}

/* Wherever the packer dies, the next ones pack anew or find all of it; of two that come at once one
 * packs at most. Kills at random moments from nothing done to all done. */
static void killed_packers_leave_nothing_half_done(void **state) {
    (void)state;
    const char *model = drive_fixture(TIED);
    uint64_t rng = weft_rand_test_seed(), want = 0, begin_us = weft_now_us();
    uint32_t n_rounds = 0, n_packed = 0, n_found = 0;
    struct opened told[2];
    open_after_a_kill(model, 0, told); /* how long does an opening take? */
    uint32_t open_us = (uint32_t)(weft_now_us() - begin_us) / 2;
    uint64_t run_us = short_run ? 700000 : 2500000;
    while (weft_now_us() - begin_us < run_us || n_rounds < 4) {
        open_after_a_kill(model, weft_rand_below(&rng, open_us + 1), told);
        if (n_rounds++ == 0) want = told[0].logits_hash;
        assert_true(want != 0 && told[0].logits_hash == want && told[1].logits_hash == want);
        assert_true(told[0].inherited || told[1].inherited);
        bool found = told[0].inherited && told[1].inherited;
        n_found += found;
        n_packed += !found;
    }
    (void)printf("%u killed: %u packed anew, %u found all of it\n", n_rounds, n_packed, n_found);
}

static void copy_file(const char *from, const char *to, long flip_at) {
    FILE *in = fopen(from, "rbe"), *out = fopen(to, "wbe");
    assert_non_null(in);
    assert_non_null(out);
    for (long at = 0;; at++) {
        int c = fgetc(in);
        if (c == EOF) break;
        (void)fputc(at == flip_at ? c ^ 1 : c, out);
    }
    (void)fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void weights_follow_the_contents_of_the_file(void **state) {
    (void)state;
    char folder[] = "/tmp/weft-test-XXXXXX", to[128];
    assert_non_null(mkdtemp(folder));
    char from[1100];
    (void)snprintf(from, sizeof from, "%s/config.json", drive_fixture(TIED));
    (void)snprintf(to, sizeof to, "%s/config.json", folder);
    copy_file(from, to, -1);
    (void)snprintf(from, sizeof from, "%s/model.safetensors", drive_fixture(TIED));
    (void)snprintf(to, sizeof to, "%s/model.safetensors", folder);
    copy_file(from, to, -1);
    int fd = new_memfd();
    weft_eng *eng = NULL;
    assert_int_equal(open_with_fd(folder, WEFT_ENG_DT_AUTO, fd, &eng), WEFT_OK);
    weft_eng_free(eng);
    copy_file(from, to, -1); /* the same contents with a new date */
    assert_int_equal(open_with_fd(folder, WEFT_ENG_DT_AUTO, fd, &eng), WEFT_OK);
    assert_true(weft_eng_info(eng)->weights_inherited);
    weft_eng_free(eng);
    copy_file(from, to, 200000); /* one bit of one weight */
    assert_int_equal(open_with_fd(folder, WEFT_ENG_DT_AUTO, fd, &eng), WEFT_E_STATE);
    (void)close(fd);
    (void)unlink(to);
    (void)snprintf(to, sizeof to, "%s/config.json", folder);
    (void)unlink(to);
    assert_int_equal(rmdir(folder), 0);
}

static void every_dtype_runs_and_stays_near_the_file(void **state) {
    (void)state;
    static const struct {
        enum weft_eng_dtype dtype;
        float off_max;
    } cases[] = {{WEFT_ENG_DT_F32, 1e-3f}, {WEFT_ENG_DT_F16, 0.05f}, {WEFT_ENG_DT_Q8, 2.0f}};
    struct weft_eng_options options;
    struct logits_copy *want = malloc(2 * sizeof *want), *got = want + 1;
    assert_non_null(want);
    weft_eng_options_init(&options);
    options.activations = WEFT_ENG_ACT_F32;
    options.kv_memory_bytes = 4u << 20;
    weft_eng *eng = drive_open(drive_fixture(DRAFT), &options);
    logits_of(eng, want);
    weft_eng_free(eng);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options.dtype = cases[i].dtype;
        eng = drive_open(drive_fixture(DRAFT), &options);
        logits_of(eng, got);
        weft_eng_free(eng);
        for (uint32_t t = 0; t < got->n_vocab; t++) {
            assert_true(fabsf(got->rows[3][t] - want->rows[3][t]) < cases[i].off_max);
        }
    }
    free(want);
}

/* ---------------------------------------------------------------------------------- options --- */

static weft_err try_open(const struct weft_eng_options *options) {
    weft_eng *eng = NULL;
    struct weft_errmsg why = {{0}};
    weft_err err = weft_eng_open(drive_fixture(TIED), options, &eng, &why);
    assert_true(err == WEFT_OK || (!eng && why.text[0] != '\0'));
    weft_eng_free(eng);
    return err;
}

static void options_out_of_range_are_refused(void **state) {
    (void)state;
    struct weft_eng_options good, bad;
    weft_eng_options_init(&good);
    good.kv_memory_bytes = 1u << 20;
    assert_int_equal(try_open(&good), WEFT_OK);
    bad = good, bad.block_size = 24;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.max_seqs = 0;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.max_batched_tokens = WEFT_BATCHED_TOKENS_MAX + 1;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.n_threads = 1000;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.max_model_len = 1 << 20;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.kv_memory_bytes = 100;
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
    bad = good, bad.activations = WEFT_ENG_ACT_INT8; /* a bf16 model */
    assert_int_equal(try_open(&bad), WEFT_E_INVAL);
}

static void little_kv_memory_lowers_the_length(void **state) {
    (void)state;
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.kv_memory_bytes = 64u << 10;
    weft_eng *eng = drive_open(drive_fixture(TIED), &options);
    const struct weft_eng_info *info = weft_eng_info(eng);
    assert_true(info->max_model_len < 1024);
    assert_int_equal(info->max_model_len, info->n_blocks * info->block_size);
    assert_true(info->kv_bytes <= options.kv_memory_bytes);
    weft_eng_free(eng);
}

static void names_of_options_are_parsed(void **state) {
    (void)state;
    enum weft_eng_dtype dtype;
    enum weft_eng_act act;
    enum weft_eng_kv kv;
    assert_int_equal(weft_eng_parse_dtype("q8", &dtype), WEFT_OK);
    assert_int_equal(dtype, WEFT_ENG_DT_Q8);
    assert_int_equal(weft_eng_parse_dtype("q4", &dtype), WEFT_E_UNSUPPORTED);
    assert_int_equal(weft_eng_parse_dtype("f8", &dtype), WEFT_E_INVAL);
    assert_int_equal(weft_eng_parse_act("int8", &act), WEFT_OK);
    assert_int_equal(act, WEFT_ENG_ACT_INT8);
    assert_int_equal(weft_eng_parse_act("", &act), WEFT_E_INVAL);
    assert_int_equal(weft_eng_parse_kv("f16", &kv), WEFT_OK);
    assert_int_equal(kv, WEFT_ENG_KV_F16);
    assert_int_equal(weft_eng_parse_kv("int8", &kv), WEFT_E_UNSUPPORTED);
}

/* ---------------------------------------------------------------------------- state and heap ---
 */

static void progress_moves_with_every_step(void **state) {
    (void)state;
    weft_eng *eng = open_small(TIED, WEFT_ENG_ACT_AUTO, 2, 16);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    const uint32_t tokens[] = {1, 2, 3};
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    uint32_t out[16];
    uint64_t before = weft_eng_progress(eng);
    assert_int_equal(drive_complete(drive, tokens, 3, &sampling, out), 16);
    assert_true(weft_eng_progress(eng) > before + (uint64_t)16 * 3);
    free(drive);
    weft_eng_free(eng);
}

static void a_step_takes_nothing_from_the_heap(void **state) {
    (void)state;
#ifdef WEFT_SANITIZED
    (void)printf("SKIPPED: the sanitizer's allocator has no per-thread counters\n");
    skip();
#else
    /* One thread: all the work is on the caller's, so its counter sees every allocation. */
    weft_eng *eng = open_small(DRAFT, WEFT_ENG_ACT_AUTO, 1, 16);
    struct sequence *seqs = calloc(SEQS, sizeof *seqs);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(seqs);
    assert_non_null(drive);
    drive_init(drive, eng);
    uint64_t rng = 1, before;
    const volatile uint64_t *allocated; /* changes behind the compiler's back */
    size_t len = sizeof allocated;
    make_sequences(seqs, weft_eng_info(eng)->n_vocab, &rng);
    assert_int_equal(mallctl("thread.allocatedp", (void *)&allocated, &len, NULL, 0), 0);
    before = *allocated; /* the counter does count */
    void *volatile piece = malloc(100);
    free(piece);
    assert_true(*allocated > before);
    for (uint32_t i = 0; i < SEQS; i++) {
        struct weft_step_start start = {.slot = i, .gen = 1, .tokens = seqs[i].prompt};
        start.n_tokens = start.n_prompt = seqs[i].n_prompt < 20 ? seqs[i].n_prompt : 20;
        start.sampling = seqs[i].sampling;
        uint32_t blocks[2] = {2 * i, 2 * i + 1};
        drive_start(drive, &start);
        drive_grant(drive, i, 1, blocks, 2);
        drive_row(drive, i, 1, start.n_tokens);
    }
    for (int step = 0; step < 8; step++) {
        struct weft_step_plan plan = drive_plan(drive);
        const struct weft_step_result *result;
        struct weft_errmsg why;
        before = *allocated;
        assert_int_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_OK);
        assert_int_equal(*allocated - before, 0);
        drive->step++;
        clear_drive(drive);
        for (uint32_t i = 0; i < SEQS; i++) {
            drive_row(drive, i, 1, 1);
        }
    }
    free(drive);
    free(seqs);
    weft_eng_free(eng);
#endif
}

/* Two prompts whose every token brings the whole vocabulary: one token more than the bound allows
 * is refused, all that it allows come. */
static void logprobs_of_a_step_are_bounded(void **state) {
    (void)state;
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.max_batched_tokens = 2048;
    options.max_seqs = 2;
    options.kv_memory_bytes = 16u << 20;
    weft_eng *eng = drive_open(drive_fixture(DRAFT), &options);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    uint32_t n_vocab = weft_eng_info(eng)->n_vocab, tokens[700], blocks[2][44];
    uint32_t n_fit =
        WEFT_STEP_LOGPROB_BYTES_MAX / (WEFT_LOGPROB_HEAD_BYTES + WEFT_LOGPROB_TOP_BYTES * n_vocab);
    assert_in_range(n_fit, 700, 1300);
    for (uint32_t i = 0; i < 700; i++) {
        tokens[i] = i;
    }
    struct weft_step_start start = {.gen = 1, .tokens = tokens, .n_tokens = 700, .n_prompt = 700};
    weft_sampling_init(&start.sampling);
    start.sampling.n_prompt_logprobs = WEFT_VOCAB_MAX;
    for (uint32_t s = 0; s < 2; s++) {
        for (uint32_t b = 0; b < 44; b++) {
            blocks[s][b] = s * 44 + b;
        }
        start.slot = s;
        drive_start(drive, &start);
        drive_grant(drive, s, 1, blocks[s], 44);
        drive_row(drive, s, 1, s ? n_fit - 690 + 1 : 690);
    }
    struct weft_step_plan plan = drive_plan(drive);
    const struct weft_step_result *result;
    struct weft_errmsg why;
    assert_int_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "log-probabilities"));
    drive->rows[1].n_tokens--;
    plan = drive_plan(drive);
    assert_int_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_OK);
    assert_int_equal(result->outs[0].n_prompt_logprobs + result->outs[1].n_prompt_logprobs, n_fit);
    for (uint32_t s = 0; s < 2; s++) { /* every list whole, none over another */
        const struct weft_step_out *out = &result->outs[s];
        for (uint32_t i = 0; i < out->n_prompt_logprobs; i++) {
            const struct weft_logprobs *l = &out->prompt_logprobs[i];
            assert_int_equal(l->n_top, n_vocab);
            assert_int_equal(bits_of(l->top_logprobs[l->rank - 1]), bits_of(l->logprob));
        }
    }
    free(drive);
    weft_eng_free(eng);
}

static void logprobs_of_the_whole_vocabulary_add_up(void **state) {
    (void)state;
    weft_eng *eng = open_small(TIED, WEFT_ENG_ACT_AUTO, 2, 16);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    uint32_t tokens[90];
    for (uint32_t i = 0; i < 90; i++) {
        tokens[i] = i;
    }
    struct weft_step_start start = {.gen = 1, .tokens = tokens, .n_tokens = 90, .n_prompt = 90};
    weft_sampling_init(&start.sampling);
    start.sampling.n_logprobs = 1000; /* over the vocabulary: all there are */
    start.sampling.n_prompt_logprobs = 512;
    struct weft_step_out out = run_start(drive, &start);
    assert_int_equal(out.n_prompt_logprobs, 89);
    for (uint32_t i = 0; i <= 89; i++) {
        const struct weft_logprobs *l = i < 89 ? &out.prompt_logprobs[i] : &out.logprobs;
        double sum = 0.0;
        assert_int_equal(l->n_top, 512);
        for (uint32_t j = 0; j < 512; j++) {
            sum += exp((double)l->top_logprobs[j]);
            if (j) assert_true(l->top_logprobs[j] <= l->top_logprobs[j - 1]);
        }
        assert_true(fabs(sum - 1.0) < 1e-4);
        assert_int_equal(bits_of(l->top_logprobs[l->rank - 1]), bits_of(l->logprob));
    }
    drive_row(drive, 0, 1, 1);
    assert_int_equal(drive_run(drive)->outs[0].logprobs.n_top, 512);
    free(drive);
    weft_eng_free(eng);
}

int main(int argc, char **argv) {
    if (drive_isa_missing()) return 77;
    short_run = argc > 1 && strcmp(argv[1], "short") == 0;
    weft_log_init("test_engine", WEFT_LOG_ERROR, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_options_are_parsed),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(little_kv_memory_lowers_the_length),
        cmocka_unit_test(sequences_end_where_they_should),
        cmocka_unit_test(a_prompt_of_the_full_length_ends_without_a_token),
        cmocka_unit_test(epochs_drop_sequences_and_old_ones_are_stale),
        cmocka_unit_test(copied_and_shared_blocks_hold_the_same_tokens),
        cmocka_unit_test(inherited_weights_equal_packed_ones),
        cmocka_unit_test(a_step_reads_all_weights_but_an_untied_embedding),
        cmocka_unit_test(killed_packers_leave_nothing_half_done),
        cmocka_unit_test(weights_follow_the_contents_of_the_file),
        cmocka_unit_test(every_dtype_runs_and_stays_near_the_file),
        cmocka_unit_test(progress_moves_with_every_step),
        cmocka_unit_test(a_step_takes_nothing_from_the_heap),
        cmocka_unit_test(logprobs_of_the_whole_vocabulary_add_up),
        cmocka_unit_test(logprobs_of_a_step_are_bounded),
        cmocka_unit_test(refused_plans_change_nothing),
        cmocka_unit_test(bf16_results_do_not_depend_on_company),
        cmocka_unit_test(f32_results_do_not_depend_on_company),
        cmocka_unit_test(int8_results_do_not_depend_on_company),
        cmocka_unit_test(tied_results_do_not_depend_on_company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
