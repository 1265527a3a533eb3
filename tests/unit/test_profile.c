/* The notes of a profiling engine on its steps: work exactly, times only as far as they add up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#ifndef WEFT_SANITIZED
#include <jemalloc/jemalloc.h>
#endif

#include "harness/eng_drive.h"
#include "kernels/kernels.h"
#include "unit/engine_fixtures.h"

enum { THREADS = 2, BLOCKS = 20 };

struct fixture {
    weft_eng *eng;
    struct drive drive;
    struct weft_eng_profile profile;
    struct weft_eng_span spans[WEFT_ENG_SPANS_MAX];
};

static struct fixture *open_fixture(bool profile, uint32_t n_threads) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.profile = profile;
    options.n_threads = n_threads;
    options.max_batched_tokens = 128;
    options.kv_memory_bytes = 64u << 20;
    f->eng = drive_open(drive_fixture(ENGINE_DRAFT), &options);
    drive_init(&f->drive, f->eng);
    return f;
}

static void close_fixture(struct fixture *f) {
    weft_eng_free(f->eng);
    free(f);
}

/* Puts the prompts of `n_seqs` sequences into the plan: 10 tokens, 20 tokens, ... */
static void plan_prompts(struct fixture *f, uint32_t n_seqs) {
    static const uint32_t tokens[64] = {7, 8, 9};
    uint32_t blocks[BLOCKS];
    for (uint32_t i = 0; i < n_seqs; i++) {
        struct weft_step_start start = {.slot = i, .gen = 1, .tokens = tokens};
        start.n_tokens = start.n_prompt = 10 * (i + 1);
        weft_sampling_init(&start.sampling);
        start.sampling.max_tokens = 250;
        for (uint32_t b = 0; b < BLOCKS; b++) {
            blocks[b] = i * BLOCKS + b;
        }
        drive_start(&f->drive, &start);
        drive_grant(&f->drive, i, 1, blocks, BLOCKS);
        drive_row(&f->drive, i, 1, start.n_tokens);
    }
}

static void decode(struct fixture *f, uint32_t n_seqs) {
    for (uint32_t i = 0; i < n_seqs; i++) {
        drive_row(&f->drive, i, 1, 1);
    }
    (void)drive_run(&f->drive);
}

static uint64_t layer_ops(const struct weft_eng_profile *p) {
    return p->ops[WEFT_ENG_OP_QKV].ops + p->ops[WEFT_ENG_OP_O].ops +
           p->ops[WEFT_ENG_OP_GATE_UP].ops + p->ops[WEFT_ENG_OP_DOWN].ops;
}

static uint64_t weight_bytes(const struct weft_eng_profile *p) {
    return p->ops[WEFT_ENG_OP_QKV].bytes + p->ops[WEFT_ENG_OP_O].bytes +
           p->ops[WEFT_ENG_OP_GATE_UP].bytes + p->ops[WEFT_ENG_OP_DOWN].bytes +
           p->ops[WEFT_ENG_OP_HEAD].bytes;
}

static void an_engine_that_does_not_profile_knows_nothing(void **state) {
    (void)state;
    struct fixture *f = open_fixture(false, THREADS);
    plan_prompts(f, 2);
    (void)drive_run(&f->drive);
    memset(&f->profile, 1, sizeof f->profile);
    weft_eng_profile_reset(f->eng);
    weft_eng_profile(f->eng, &f->profile);
    const struct weft_eng_profile nothing = {0};
    assert_memory_equal(&f->profile, &nothing, sizeof nothing);
    assert_int_equal(weft_eng_profile_spans(f->eng, 0, f->spans, WEFT_ENG_SPANS_MAX), 0);
    close_fixture(f);
}

/* What this CPU meets a cache of bf16 with. */
static enum weft_eng_act attention_over_bf16(void) {
    const struct weft_kern_table *table;
    struct weft_errmsg why;
    assert_int_equal(weft_kern_select(&table, &why), WEFT_OK);
    bool is_bf16 = table->attention_peak[WEFT_KV_BF16] == WEFT_PEAK_BF16;
    return is_bf16 ? WEFT_ENG_ACT_BF16 : WEFT_ENG_ACT_F32;
}

static void a_decode_step_is_booked_by_the_matrices_and_the_rows(void **state) {
    (void)state;
    struct fixture *f = open_fixture(true, THREADS);
    const struct weft_eng_info *info = weft_eng_info(f->eng);
    plan_prompts(f, 3);
    (void)drive_run(&f->drive);
    weft_eng_profile_reset(f->eng);
    decode(f, 3);
    weft_eng_profile(f->eng, &f->profile);
    const struct weft_eng_profile *p = &f->profile;
    assert_int_equal(p->n_threads, THREADS);
    assert_int_equal(p->n_steps, 1);
    assert_int_equal(p->gap_ns, 0);
    uint64_t n_layers = p->ops[WEFT_ENG_OP_QKV].n_calls;
    assert_true(n_layers >= 2);
    for (uint32_t op = WEFT_ENG_OP_ATTN_NORM; op <= WEFT_ENG_OP_DOWN; op++) {
        bool is_there = op != WEFT_ENG_OP_SCAN && op != WEFT_ENG_OP_INDEX;
        assert_int_equal(p->ops[op].n_calls, is_there ? n_layers : 0);
    }
    assert_int_equal(p->ops[WEFT_ENG_OP_EMBED].n_calls, 1);
    assert_int_equal(p->ops[WEFT_ENG_OP_HEAD].n_calls, 1);
    assert_int_equal(p->ops[WEFT_ENG_OP_SAMPLE].n_calls, 3);
    assert_int_equal(layer_ops(p), 3 * 2 * info->n_layer_weights);
    assert_int_equal(p->ops[WEFT_ENG_OP_HEAD].ops, 3 * 2 * info->n_head_weights);
    assert_true(weight_bytes(p) <= info->step_weight_bytes); /* vectors of the norms are left out */
    assert_true(weight_bytes(p) > info->step_weight_bytes / 100 * 99);
    assert_int_equal(p->ops[WEFT_ENG_OP_QKV].activations, info->activations);
    assert_int_equal(p->ops[WEFT_ENG_OP_ATTENTION].activations, attention_over_bf16());

    struct weft_eng_profile first = *p; /* one step later each sequence sees one position more */
    decode(f, 3);
    weft_eng_profile(f->eng, &f->profile);
    assert_int_equal(p->n_steps, 2);
    assert_true(p->gap_ns > 0);
    uint64_t ops = first.ops[WEFT_ENG_OP_ATTENTION].ops, positions = 11 + 21 + 31;
    assert_int_equal(ops % positions, 0);
    assert_int_equal(p->ops[WEFT_ENG_OP_ATTENTION].ops, ops / positions * (2 * positions + 3));
    uint64_t bytes = first.ops[WEFT_ENG_OP_ATTENTION].bytes;
    assert_int_equal(p->ops[WEFT_ENG_OP_ATTENTION].bytes, bytes / positions * (2 * positions + 3));
    close_fixture(f);
}

static void a_prompt_is_booked_without_the_rows_that_end_early(void **state) {
    (void)state;
    struct fixture *f = open_fixture(true, THREADS);
    const struct weft_eng_info *info = weft_eng_info(f->eng);
    plan_prompts(f, 3);
    (void)drive_run(&f->drive);
    weft_eng_profile(f->eng, &f->profile);
    const struct weft_eng_profile *p = &f->profile;
    uint64_t n_layers = p->ops[WEFT_ENG_OP_QKV].n_calls;
    /* 60 rows, of which 3 go on after the keys and values of the last layer. */
    uint64_t all_but_qkv =
        p->ops[WEFT_ENG_OP_O].ops + p->ops[WEFT_ENG_OP_GATE_UP].ops + p->ops[WEFT_ENG_OP_DOWN].ops;
    uint64_t rows = 60 * (n_layers - 1) + 3;
    assert_int_equal(all_but_qkv % rows, 0);
    assert_int_equal(p->ops[WEFT_ENG_OP_QKV].ops / 60 + all_but_qkv / rows * n_layers,
                     2 * info->n_layer_weights);
    assert_true(weight_bytes(p) <= info->step_weight_bytes); /* read once, all the same */
    /* A tile's keys and values are read once for all of its rows: 10 + 20 + 30 positions. */
    uint64_t seen = 10 * 11 / 2 + 20 * 21 / 2 + 30 * 31 / 2;
    uint64_t per_position = p->ops[WEFT_ENG_OP_ATTENTION].ops / (seen * (n_layers - 1) + 60);
    assert_int_equal(p->ops[WEFT_ENG_OP_ATTENTION].ops,
                     per_position * (seen * (n_layers - 1) + 60));
    assert_int_equal(p->ops[WEFT_ENG_OP_ATTENTION].bytes % (60 * n_layers), 0);
    close_fixture(f);
}

static void spans_of_a_thread_follow_each_other_and_add_up(void **state) {
    (void)state;
    struct fixture *f = open_fixture(true, THREADS);
    uint64_t busy_ns[WEFT_ENG_OP_COUNT + 1] = {0}, all_ns = 0, step_ns = 0;
    plan_prompts(f, 3);
    (void)drive_run(&f->drive);
    for (int i = 0; i < 5; i++) {
        decode(f, 3);
    }
    weft_eng_profile(f->eng, &f->profile);
    uint64_t n_layers = f->profile.ops[WEFT_ENG_OP_QKV].n_calls / 6;
    uint32_t n_steps = weft_eng_profile_spans(f->eng, THREADS, f->spans, WEFT_ENG_SPANS_MAX);
    assert_int_equal(n_steps, 6);
    for (uint32_t i = 0; i < n_steps; i++) {
        assert_int_equal(f->spans[i].op, WEFT_ENG_OP_COUNT);
        assert_int_equal(f->spans[i].detail, i ? 3 : 60);
        step_ns += f->spans[i].end_ns - f->spans[i].begin_ns;
    }
    assert_int_equal(step_ns, f->profile.step_ns);
    for (uint32_t t = 0; t < THREADS; t++) {
        uint32_t n = weft_eng_profile_spans(f->eng, t, f->spans, WEFT_ENG_SPANS_MAX);
        assert_true(n > 6 * 10 * n_layers);
        for (uint32_t i = 0; i < n; i++) {
            const struct weft_eng_span *span = &f->spans[i];
            assert_true(span->op < WEFT_ENG_OP_COUNT && span->begin_ns <= span->end_ns);
            assert_true(i == 0 || span->begin_ns >= f->spans[i - 1].end_ns);
            assert_true(span->detail < n_layers || span->detail == UINT32_MAX);
            assert_true(span->op != WEFT_ENG_OP_QKV || span->detail < n_layers);
            assert_true(span->op != WEFT_ENG_OP_HEAD || span->detail == UINT32_MAX);
            busy_ns[span->op] += span->end_ns - span->begin_ns;
        }
        assert_int_equal(weft_eng_profile_spans(f->eng, t, f->spans, 3), 3); /* the newest */
        assert_int_equal(f->spans[2].op, WEFT_ENG_OP_WAIT);
    }
    /* silu_mul has no spans of its own: its time lies within gate_up's. */
    busy_ns[WEFT_ENG_OP_SILU_MUL] = f->profile.ops[WEFT_ENG_OP_SILU_MUL].busy_ns;
    busy_ns[WEFT_ENG_OP_GATE_UP] -= busy_ns[WEFT_ENG_OP_SILU_MUL];
    for (uint32_t op = 0; op < WEFT_ENG_OP_COUNT; op++) {
        assert_int_equal(busy_ns[op], f->profile.ops[op].busy_ns);
        all_ns += busy_ns[op];
    }
    assert_true(busy_ns[WEFT_ENG_OP_SILU_MUL] > 0 && busy_ns[WEFT_ENG_OP_SAMPLE] > 0);
    assert_true(all_ns <= THREADS * step_ns);
    close_fixture(f);
}

static void the_ring_keeps_the_newest_spans(void **state) {
    (void)state;
    struct fixture *f = open_fixture(true, 1);
    plan_prompts(f, 3);
    (void)drive_run(&f->drive);
    weft_eng_profile_reset(f->eng);
    decode(f, 1);
    uint32_t n = weft_eng_profile_spans(f->eng, 0, f->spans, WEFT_ENG_SPANS_MAX);
    uint64_t first_ns = f->spans[0].begin_ns;
    assert_true(n > 0 && n < WEFT_ENG_SPANS_MAX);
    uint32_t n_steps = WEFT_ENG_SPANS_MAX / n + 10;
    assert_true(n_steps <= 3 * 240);
    for (uint32_t i = 0; i < n_steps; i++) { /* one sequence at a time, so that they last */
        drive_row(&f->drive, i % 3, 1, 1);
        (void)drive_run(&f->drive);
    }
    n = weft_eng_profile_spans(f->eng, 0, f->spans, WEFT_ENG_SPANS_MAX);
    assert_int_equal(n, WEFT_ENG_SPANS_MAX);
    assert_true(f->spans[0].begin_ns > first_ns);
    for (uint32_t i = 1; i < n; i++) {
        assert_true(f->spans[i].begin_ns >= f->spans[i - 1].end_ns);
    }
    weft_eng_profile_reset(f->eng);
    assert_int_equal(weft_eng_profile_spans(f->eng, 0, f->spans, WEFT_ENG_SPANS_MAX), 0);
    weft_eng_profile(f->eng, &f->profile);
    assert_int_equal(f->profile.n_steps, 0);
    close_fixture(f);
}

static void profiling_changes_no_token_and_allocates_nothing(void **state) {
    (void)state;
    const uint32_t prompt[] = {5, 6, 7, 8, 9};
    struct weft_sampling sampling;
    uint32_t want[40], got[40];
    weft_sampling_init(&sampling);
    sampling.max_tokens = 40;
    sampling.temperature = 1.0f;
    struct fixture *plain = open_fixture(false, 1), *noting = open_fixture(true, 1);
    assert_int_equal(drive_complete(&plain->drive, prompt, 5, &sampling, want), 40);
    assert_int_equal(drive_complete(&noting->drive, prompt, 5, &sampling, got), 40);
    assert_memory_equal(got, want, sizeof want);
#ifndef WEFT_SANITIZED
    const volatile uint64_t *allocated; /* changes behind the compiler's back */
    size_t len = sizeof allocated;
    assert_int_equal(mallctl("thread.allocatedp", (void *)&allocated, &len, NULL, 0), 0);
    struct fixture *fresh = open_fixture(true, 1);
    plan_prompts(fresh, 1);
    struct weft_step_plan plan = drive_plan(&fresh->drive);
    const struct weft_step_result *result;
    struct weft_errmsg why;
    uint64_t before = *allocated;
    assert_int_equal(weft_eng_step(fresh->eng, &plan, &result, &why), WEFT_OK);
    assert_int_equal(*allocated - before, 0);
    close_fixture(fresh);
#endif
    close_fixture(plain);
    close_fixture(noting);
}

enum { LONG = 4096, LONG_ROWS = 512 };

/* For rows of a latent model one step after `LONG` tokens, each of a sequence of its own. */
static void profile_long_decode(weft_eng *eng, struct drive *drive, uint32_t n_seqs,
                                struct weft_eng_profile *out) {
    static const uint32_t tokens[LONG] = {7, 8, 9};
    uint32_t n_blocks = LONG / 16 + 1, blocks[LONG / 16 + 1];
    drive_init(drive, eng);
    for (uint32_t i = 0; i < n_seqs; i++) {
        struct weft_step_start start = {
            .slot = i, .gen = 1, .tokens = tokens, .n_tokens = LONG, .n_prompt = LONG};
        weft_sampling_init(&start.sampling);
        start.sampling.max_tokens = 2;
        for (uint32_t b = 0; b < n_blocks; b++) {
            blocks[b] = i * n_blocks + b;
        }
        drive_start(drive, &start);
        drive_grant(drive, i, 1, blocks, n_blocks);
        for (uint32_t at = 0; at < LONG; at += LONG_ROWS) {
            drive_row(drive, i, 1, LONG_ROWS);
            (void)drive_run(drive);
        }
    }
    weft_eng_profile_reset(eng);
    for (uint32_t i = 0; i < n_seqs; i++) {
        drive_row(drive, i, 1, 1);
    }
    (void)drive_run(drive);
    weft_eng_profile(eng, out);
}

static void decoding_over_latents_reads_each_of_them_once(void **state) {
    (void)state;
    enum { LAYERS = 3, ROW = 32 + 16, BF16_BYTES = 2, SEQS_MAX = 3 };
    struct drive *drive = calloc(1, sizeof *drive);
    assert_non_null(drive);
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t n_seqs = i % 2 ? SEQS_MAX : 1;
        struct weft_eng_options options;
        weft_eng_options_init(&options);
        options.profile = true;
        options.n_threads = 1u << i / 2;
        options.max_model_len = LONG + 2;
        options.max_seqs = SEQS_MAX;
        options.max_batched_tokens = LONG_ROWS;
        weft_eng *eng = drive_open(drive_fixture("tests/data/zoo/deepseek_v3"), &options);
        struct weft_eng_profile profile;
        profile_long_decode(eng, drive, n_seqs, &profile);
        uint64_t latents = (uint64_t)n_seqs * (LONG + 1) * LAYERS * ROW * BF16_BYTES;
        uint64_t weights = weft_eng_info(eng)->step_weight_bytes * n_seqs; /* at most: of experts */
        uint64_t read = weight_bytes(&profile) + profile.ops[WEFT_ENG_OP_ATTENTION].bytes;
        assert_int_equal(profile.ops[WEFT_ENG_OP_ATTENTION].bytes, latents);
        assert_true(read * 10 <= (latents + weights) * 11);
        weft_eng_free(eng);
    }
    free(drive);
}

/* It scores all positions, by one short key each, and attends to 20. */
static void decoding_with_an_indexer_reads_every_key_and_few_latents(void **state) {
    (void)state;
    enum { LAYERS = 2, HEADS = 4, ROW = 32 + 32, INDEX_HEADS = 12, INDEX = 64, TOP = 20, SEQS = 3 };
    const char *path = drive_shared("zoo2/deepseek_v32");
    if (!path) skip();
    struct drive *drive = calloc(1, sizeof *drive);
    struct weft_eng_options options;
    struct weft_eng_profile profile;
    assert_non_null(drive);
    weft_eng_options_init(&options);
    options.profile = true;
    options.n_threads = 1;
    options.activations = WEFT_ENG_ACT_F32;
    options.max_model_len = LONG + 2;
    options.max_seqs = SEQS;
    options.max_batched_tokens = LONG_ROWS;
    weft_eng *eng = drive_open(path, &options);
    profile_long_decode(eng, drive, SEQS, &profile);
    const uint64_t n_scored = (uint64_t)SEQS * (LONG + 1) * LAYERS, n_seen = SEQS * TOP * LAYERS;
    assert_int_equal(profile.ops[WEFT_ENG_OP_INDEX].bytes, n_scored * INDEX * 4);
    assert_int_equal(profile.ops[WEFT_ENG_OP_INDEX].ops, 2 * n_scored * INDEX_HEADS * INDEX);
    assert_int_equal(profile.ops[WEFT_ENG_OP_INDEX].n_calls, LAYERS);
    assert_int_equal(profile.ops[WEFT_ENG_OP_ATTENTION].bytes, n_seen * ROW * 4);
    assert_int_equal(profile.ops[WEFT_ENG_OP_ATTENTION].ops, 2 * n_seen * HEADS * (ROW + 32));
    assert_int_equal(layer_ops(&profile) + profile.ops[WEFT_ENG_OP_ROUTE].ops,
                     SEQS * 2 * weft_eng_info(eng)->n_layer_weights);
    weft_eng_free(eng);
    free(drive);
}

static void take_no_row(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx;
    (void)pos;
    (void)logits;
}

/* What a model says of its weights is what its products are booked by, whatever its layers are made of. */
static void every_product_is_booked(void **state) {
    (void)state;
    enum { TEXT = 30 };
    static const char *const own[] = {"tests/data/small/latent_experts", "tests/data/zoo/gemma3",
                                      "tests/data/zoo/deepseek_v3"},
                             *const others[] = {"zoo2/deepseek_v32", "zoo2/gemma4", "zoo2/llama4",
                                                "zoo2/nemotron_h_moe", "zoo2/qwen3_next"};
    const size_t n_own = sizeof own / sizeof own[0], n_others = sizeof others / sizeof others[0];
    uint32_t tokens[TEXT];
    for (uint32_t i = 0; i < TEXT; i++)
        tokens[i] = 3 + i % 20;
    for (size_t i = 0; i < n_own + n_others; i++) {
        const char *path = i < n_own ? drive_fixture(own[i]) : drive_shared(others[i - n_own]);
        struct weft_eng_options options;
        struct weft_eng_profile p;
        struct weft_errmsg why = {""};
        if (!path) skip();
        weft_eng_options_init(&options);
        options.profile = true;
        options.n_threads = 1;
        options.activations = WEFT_ENG_ACT_F32;
        options.max_model_len = 64;
        options.max_seqs = 1;
        weft_eng *eng = drive_open(path, &options);
        if (weft_eng_logits(eng, tokens, TEXT, take_no_row, NULL, &why)) fail_msg("%s", why.text);
        weft_eng_profile(eng, &p);
        uint64_t ops =
            layer_ops(&p) + p.ops[WEFT_ENG_OP_ROUTE].ops + p.ops[WEFT_ENG_OP_COMBINE].ops;
        if (ops != TEXT * 2 * weft_eng_info(eng)->n_layer_weights) fail_msg("%s", path);
        weft_eng_free(eng);
    }
}

/* Three layers of four see the positions of a token's own chunk up to itself. */
static void positions_of_chunks_are_counted(void **state) {
    (void)state;
    enum { HEADS = 4, DIM = 16, CHUNK = 20, TEXT = 55 };
    const char *path = drive_shared("zoo2/llama4");
    uint32_t tokens[TEXT];
    uint64_t n_seen = 0;
    struct weft_eng_options options;
    struct weft_eng_profile profile;
    struct weft_errmsg why = {""};
    if (!path) skip();
    for (uint32_t i = 0; i < TEXT; i++) {
        tokens[i] = 7 + i;
        n_seen += 3 * (i % CHUNK + 1) + i + 1;
    }
    weft_eng_options_init(&options);
    options.profile = true;
    options.n_threads = 1;
    options.activations = WEFT_ENG_ACT_F32;
    options.max_model_len = 128;
    weft_eng *eng = drive_open(path, &options);
    if (weft_eng_logits(eng, tokens, TEXT, take_no_row, NULL, &why)) fail_msg("%s", why.text);
    weft_eng_profile(eng, &profile);
    assert_int_equal(profile.ops[WEFT_ENG_OP_ATTENTION].ops, 2 * n_seen * HEADS * (DIM + DIM));
    weft_eng_free(eng);
}

static void every_operator_has_a_name_of_its_own(void **state) {
    (void)state;
    for (int a = 0; a <= WEFT_ENG_OP_COUNT; a++) {
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(weft_eng_op_name((enum weft_eng_op)a),
                                    weft_eng_op_name((enum weft_eng_op)b));
        }
    }
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_profile", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_that_does_not_profile_knows_nothing),
        cmocka_unit_test(a_decode_step_is_booked_by_the_matrices_and_the_rows),
        cmocka_unit_test(a_prompt_is_booked_without_the_rows_that_end_early),
        cmocka_unit_test(spans_of_a_thread_follow_each_other_and_add_up),
        cmocka_unit_test(the_ring_keeps_the_newest_spans),
        cmocka_unit_test(profiling_changes_no_token_and_allocates_nothing),
        cmocka_unit_test(decoding_over_latents_reads_each_of_them_once),
        cmocka_unit_test(decoding_with_an_indexer_reads_every_key_and_few_latents),
        cmocka_unit_test(every_product_is_booked),
        cmocka_unit_test(positions_of_chunks_are_counted),
        cmocka_unit_test(every_operator_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
