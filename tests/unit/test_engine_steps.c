/* The results of single steps: ends, copied and shared blocks, log-probabilities; no allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#ifndef WEFT_SANITIZED
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdatomic.h>
#endif

#include "harness/eng_drive.h"
#include "unit/engine_fixtures.h"

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
    weft_eng *eng = engine_open_small(ENGINE_TIED, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO, 1, 16);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    const uint32_t tokens[] = {11, 12, 13, 14, 15, 16};
    struct weft_step_start start = {.gen = 1, .tokens = tokens, .n_tokens = 4, .n_prompt = 4};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 2;
    struct weft_step_out out = run_start(drive, &start);
    uint32_t first = out.token;
    assert_true(out.sampled && out.output_idx == 0 && out.finish == WEFT_END_NONE);
    drive_row(drive, 0, 1, 1);
    out = drive_run(drive)->outs[0];
    assert_true(out.sampled && out.output_idx == 1 && out.finish == WEFT_END_LENGTH);
    drive_row(drive, 0, 1, 1); /* planned before the end was known */
    out = drive_run(drive)->outs[0];
    assert_true(!out.ran && !out.sampled);

    drive_release(drive, 0, 1); /* the first token is now a stop token */
    start.gen = 2;
    start.sampling.stop_tokens = &first;
    start.sampling.n_stop_tokens = 1;
    out = run_start(drive, &start);
    assert_true(out.sampled && out.token == first && out.finish == WEFT_END_STOP);

    drive_release(drive, 0, 2); /* but not before two tokens */
    start.gen = 3;
    start.sampling.min_tokens = 2;
    out = run_start(drive, &start);
    assert_true(out.sampled && out.token != first && out.finish == WEFT_END_NONE);

    drive_release(drive, 0, 3); /* masked only: the same tokens, and it does not stop after them */
    start.gen = 6;
    start.sampling.masked_tokens = &first;
    start.sampling.n_masked_tokens = 1;
    start.sampling.n_stop_tokens = 0;
    start.sampling.min_tokens = 1;
    uint32_t second = out.token;
    out = run_start(drive, &start);
    assert_true(out.sampled && out.token == second && out.finish == WEFT_END_NONE);
    drive_release(drive, 0, 6);
    start.gen = 7;
    start.sampling.min_tokens = 0;
    out = run_start(drive, &start);
    assert_true(out.sampled && out.token == first && out.finish == WEFT_END_NONE);

    drive_release(drive, 0, 7); /* resumed with all of its output: nothing is left to do */
    start.sampling.n_masked_tokens = 0;
    start.sampling.n_stop_tokens = 1;
    start.gen = 4;
    start.n_tokens = 6;
    start.sampling.min_tokens = 0;
    out = run_start(drive, &start);
    assert_true(!out.ran && out.finish == WEFT_END_LENGTH);

    drive_release(drive, 0, 4); /* the prompt alone */
    start.gen = 5;
    start.n_tokens = 4;
    start.sampling.max_tokens = 0;
    out = run_start(drive, &start);
    assert_true(out.ran && !out.sampled && out.finish == WEFT_END_LENGTH);
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
    weft_eng *eng = drive_open(drive_fixture(ENGINE_TIED), &options);
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

static void check_copies(const char *model) {
    weft_eng *eng = engine_open_small(model, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO, 2, 16);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    uint32_t tokens[64], want[8];
    for (uint32_t i = 0; i < 64; i++) {
        tokens[i] = 100 + i * 6;
    }
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    sampling.max_tokens = 8;
    assert_int_equal(drive_complete(drive, tokens, 40, &sampling, want), 8);

    /* Its blocks were 0, 1, 2: copy two of them on, one over a detour, then overwrite the first. */
    struct weft_step_start start = {.slot = 1, .gen = 500, .tokens = tokens, .n_tokens = 40};
    start.n_prompt = 40;
    start.n_cached = start.n_written = 39;
    start.sampling = sampling;
    const uint32_t blocks[] = {10, 1, 12, 13};
    drive_copy(drive, 0, 11);
    drive_copy(drive, 11, 10);
    drive_copy(drive, 2, 12);
    for (uint32_t i = 0; i < 3 && weft_eng_info(eng)->window > 0; i++) {
        drive->copies[drive->n_copies] = drive->copies[i];
        drive->copies[drive->n_copies++].kind = WEFT_KV_WINDOWED;
    }
    (void)drive_run(drive);
    struct weft_step_start other = start;
    other.slot = 2;
    other.n_cached = other.n_written = 0;
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

static weft_eng *open_spilling(const char *model) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.n_threads = 2;
    options.max_seqs = 4;
    options.max_model_len = 300;
    options.kv_memory_bytes = 24u << 20;
    options.spill_bytes = 16u << 20;
    options.spill_dir = "/tmp";
    return drive_open(drive_fixture(model), &options);
}

/* 40 tokens in blocks 0, 1, 2, which go to the file; others overwrite them meanwhile. */
static void check_spills(const char *model) {
    weft_eng *eng = open_spilling(model);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    assert_true(weft_eng_n_spill_blocks(eng) > 8);
    uint32_t tokens[64], others[64], want[8], n_last = weft_eng_n_spill_blocks(eng) - 1;
    for (uint32_t i = 0; i < 64; i++) {
        tokens[i] = 100 + i * 6;
        others[i] = 90 + i;
    }
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    sampling.max_tokens = 8;
    assert_int_equal(drive_complete(drive, tokens, 40, &sampling, want), 8);

    const uint32_t slots[] = {5, n_last, 0}, old[] = {0, 1, 2}, blocks[] = {11, 10, 12, 13};
    struct weft_step_start start = {.slot = 2, .gen = 500, .tokens = others, .n_tokens = 40};
    start.n_prompt = 40;
    start.sampling = sampling;
    for (uint32_t i = 0; i < 3; i++)
        drive_spill(drive, i, slots[i]);
    drive_start(drive, &start); /* in the plan that spills */
    drive_grant(drive, 2, 500, old, 3);
    drive_row(drive, 2, 500, 40);
    (void)drive_run(drive);
    start.slot = 1;
    start.tokens = tokens;
    start.n_cached = start.n_written = 39;
    drive_start(drive, &start);
    drive_copy(drive, 11, 14); /* read before it is overwritten, or harmless */
    for (uint32_t i = 0; i < 3; i++)
        drive_restore(drive, slots[i], blocks[i]);
    drive_grant(drive, 1, 500, blocks, 4);
    drive_row(drive, 1, 500, 1);
    assert_int_equal(drive_run(drive)->outs[0].token, want[0]);
    for (uint32_t i = 1; i < 8; i++) {
        drive_row(drive, 1, 500, 1);
        assert_int_equal(drive_run(drive)->outs[0].token, want[i]);
    }

    const struct weft_step_result *result = NULL;
    struct weft_errmsg why = {""};
    drive_spill(drive, 0, n_last + 1);
    struct weft_step_plan plan = drive_plan(drive);
    assert_int_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "a spill of block 0"));
    free(drive);
    weft_eng_free(eng);
}

static void spilled_blocks_come_back_as_they_were(void **state) {
    (void)state;
    check_spills(ENGINE_DRAFT);
    check_spills("tests/data/zoo/deepseek_v2"); /* of one plane */
}

/* The plan fails, all others of its epoch do, too, and the next epoch's are as ever. */
static void check_given_up(weft_eng *eng, struct drive *drive, const char *sentence) {
    const struct weft_step_result *result = NULL;
    struct weft_errmsg why = {""};
    struct weft_step_plan plan = drive_plan(drive);
    assert_int_not_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_OK);
    assert_null(result);
    assert_non_null(strstr(why.text, sentence));
    assert_int_equal(weft_eng_n_spill_blocks(eng), 0);

    drive_clear(drive);
    drive->step++;
    plan = drive_plan(drive);
    assert_int_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_E_STATE);
    assert_non_null(strstr(why.text, "failed halfway"));

    weft_eng_reset(eng, 7);
    drive->epoch = 7;
    drive->step = 0;
    uint32_t tokens[4] = {1, 2, 3, 4}, out[2];
    struct weft_sampling sampling;
    weft_sampling_init(&sampling);
    sampling.max_tokens = 2;
    assert_int_equal(drive_complete(drive, tokens, 4, &sampling, out), 2);
    drive_spill(drive, 0, 0);
    plan = drive_plan(drive);
    assert_int_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_E_PROTO);
}

static void a_file_that_cannot_be_written_is_given_up(void **state) {
    (void)state;
    weft_eng *eng = open_spilling(ENGINE_DRAFT);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    struct rlimit had, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &had), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = had.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    drive_spill(drive, 0, 0);
    check_given_up(eng, drive, "cannot write to the spill file");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &had), 0);
    free(drive);
    weft_eng_free(eng);
}

/* Of this process, the one file without a name in /tmp. */
static int find_spill_fd(void) {
    for (int fd = 0; fd < 1024; fd++) {
        char path[64], target[256];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, target, sizeof target - 1);
        if (len < 0) continue;
        target[len] = '\0';
        if (!strncmp(target, "/tmp/", 5) && strstr(target, "(deleted)")) return fd;
    }
    return -1;
}

static void a_file_that_cannot_be_read_is_given_up(void **state) {
    (void)state;
    weft_eng *eng = open_spilling(ENGINE_DRAFT);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    drive_spill(drive, 0, 0);
    (void)drive_run(drive);
    int fd = find_spill_fd();
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    drive_restore(drive, 0, 1);
    check_given_up(eng, drive, "cannot read the spill file");
    free(drive);
    weft_eng_free(eng);
}

static void each_block_that_goes_to_the_file_counts_as_progress(void **state) {
    (void)state;
    weft_eng *eng = open_spilling(ENGINE_DRAFT);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    (void)drive_run(drive);
    uint64_t before = weft_eng_progress(eng);
    (void)drive_run(drive);
    uint64_t n_alone = weft_eng_progress(eng) - before;
    for (uint32_t i = 0; i < 5; i++)
        drive_spill(drive, i, i);
    drive_restore(drive, 2, 7);
    before = weft_eng_progress(eng);
    (void)drive_run(drive);
    assert_int_equal(weft_eng_progress(eng) - before, n_alone + 6);
    free(drive);
    weft_eng_free(eng);
}

static void copied_and_shared_blocks_hold_the_same_tokens(void **state) {
    (void)state;
    check_copies(ENGINE_DRAFT);
    check_copies("tests/data/zoo/deepseek_v2"); /* of one plane */
    check_copies("tests/data/zoo/gemma3");      /* of two kinds */
}

/* A sequence of 100 tokens ends in a window's blocks; another begins after 96 of them, without the
 * windowed blocks that none of its positions sees. */
static void check_skipped(const char *model) {
    weft_eng *eng = engine_open_small(model, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO, 2, 16);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    uint32_t tokens[100], window = weft_eng_info(eng)->window;
    assert_in_range(window, 16, 48);
    for (uint32_t i = 0; i < 100; i++) {
        tokens[i] = 100 + i * 3;
    }
    const uint32_t blocks[] = {0, 1, 2, 3, 4, 5, 6}, others[] = {10, 11, 12, 13, 14, 15, 16};
    struct weft_step_start start = {.gen = 1, .tokens = tokens, .n_tokens = 100, .n_prompt = 100};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 2;
    start.sampling.n_logprobs = 3;
    drive_start(drive, &start);
    drive_grant(drive, 0, 1, blocks, 7);
    drive_row(drive, 0, 1, 100);
    struct weft_step_out want = drive_run(drive)->outs[0];
    uint32_t want_bits = engine_float_bits(want.logprobs.logprob);

    /* Meanwhile a third sequence writes over all that may be gone. */
    struct weft_step_start third = start;
    uint32_t n_skipped = (96 - window + 1) / 16, n_kept = 6 - n_skipped;
    third.slot = 2;
    third.n_tokens = third.n_prompt = 16 * n_skipped;
    drive_start(drive, &third);
    drive_grant_kind(drive, 2, 1, WEFT_KV_FULL, others, n_skipped);
    drive_grant_kind(drive, 2, 1, WEFT_KV_WINDOWED, blocks, n_skipped);
    drive_row(drive, 2, 1, 16 * n_skipped);
    start.slot = 1;
    start.n_cached = start.n_written = 96;
    start.n_window_skipped = n_skipped;
    drive_start(drive, &start);
    drive_grant_kind(drive, 1, 1, WEFT_KV_FULL, blocks, 6);
    drive_grant_kind(drive, 1, 1, WEFT_KV_FULL, others + 6, 1);
    drive_grant_kind(drive, 1, 1, WEFT_KV_WINDOWED, blocks + n_skipped, n_kept);
    drive_grant_kind(drive, 1, 1, WEFT_KV_WINDOWED, others + 6, 1);
    drive_row(drive, 1, 1, 4);
    struct weft_step_out got = drive_run(drive)->outs[1];
    assert_int_equal(got.token, want.token);
    assert_int_equal(engine_float_bits(got.logprobs.logprob), want_bits);
    free(drive);
    weft_eng_free(eng);
}

static void a_cached_prefix_needs_only_the_windowed_blocks_that_are_seen(void **state) {
    (void)state;
    check_skipped(ENGINE_WINDOWED);
    check_skipped("tests/data/zoo/gemma3");
    check_skipped("tests/data/zoo/gemma2");
    check_skipped("tests/data/zoo/phi3");
}

/* ------------------------------------------------------------------------ progress and heap --- */

static void progress_moves_with_every_step(void **state) {
    (void)state;
    weft_eng *eng = engine_open_small(ENGINE_TIED, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO, 2, 16);
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

#ifndef WEFT_SANITIZED
enum { COUNTERS_MAX = 16, CHUNK = 24, BLOCKS_EACH = 16, HEAP_STEPS = 48 };

/* What each thread has taken from the heap so far. They change behind the compiler's back. */
static const volatile uint64_t *counters[COUNTERS_MAX];
static _Atomic uint32_t n_counters;

static void count_this_thread(void) {
    const volatile uint64_t *counter;
    size_t len = sizeof counter;
    assert_int_equal(mallctl("thread.allocatedp", (void *)&counter, &len, NULL, 0), 0);
    uint32_t at = n_counters++;
    assert_true(at < COUNTERS_MAX);
    counters[at] = counter;
}

struct beginning {
    void *(*main)(void *);
    void *arg;
};

static void *counted_main(void *arg) {
    struct beginning beginning = *(struct beginning *)arg;
    free(arg);
    count_this_thread();
    return beginning.main(beginning.arg);
}

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg);

/* The linker turns calls of pthread_create into this. */
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg) {
    struct beginning *beginning = malloc(sizeof *beginning);
    assert_non_null(beginning);
    *beginning = (struct beginning){main, arg};
    return __real_pthread_create(out, attr, counted_main, beginning);
}

static uint64_t allocated_bytes(void) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_counters; i++)
        sum += *counters[i];
    return sum;
}

/* Prompts in chunks, then tokens, for requests of every kind, over many steps. */
static void run_without_heap(const char *model, enum weft_eng_act act, uint32_t n_threads) {
    n_counters = 0;
    count_this_thread();
    weft_eng *eng = engine_open_small(model, act, WEFT_ENG_KV_AUTO, n_threads, 16);
    struct engine_request requests[ENGINE_REQUESTS];
    uint32_t n_left[ENGINE_REQUESTS];
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    uint64_t rng = 1, n_sampled = 0;
    engine_make_requests(requests, weft_eng_info(eng)->n_vocab, &rng);
    for (uint32_t i = 0; i < ENGINE_REQUESTS; i++) {
        uint32_t blocks[BLOCKS_EACH], n = requests[i].n_prompt;
        struct weft_step_start start = {.slot = i, .gen = 1, .tokens = requests[i].prompt};
        start.n_tokens = start.n_prompt = n_left[i] = n;
        start.sampling = requests[i].sampling;
        for (uint32_t k = 0; k < BLOCKS_EACH; k++)
            blocks[k] = i * BLOCKS_EACH + k;
        drive_start(drive, &start);
        drive_grant(drive, i, 1, blocks, BLOCKS_EACH);
    }
    for (int step = 0; step < HEAP_STEPS; step++) {
        const struct weft_step_result *result;
        struct weft_errmsg why;
        for (uint32_t i = 0; i < ENGINE_REQUESTS; i++) {
            uint32_t n = n_left[i] < CHUNK ? n_left[i] : CHUNK;
            drive_row(drive, i, 1, n ? n : 1);
            n_left[i] -= n;
        }
        struct weft_step_plan plan = drive_plan(drive);
        uint64_t before = allocated_bytes();
        assert_int_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_OK);
        assert_int_equal(allocated_bytes() - before, 0);
        for (uint32_t i = 0; i < result->n_outs; i++)
            n_sampled += result->outs[i].sampled;
        drive->step++;
        drive_clear(drive);
    }
    assert_true(n_sampled > HEAP_STEPS);
    assert_int_equal(n_counters, n_threads);
    uint64_t before = allocated_bytes(); /* the counters do count */
    void *volatile piece = malloc(100);
    free(piece);
    assert_true(allocated_bytes() > before);
    free(drive);
    weft_eng_free(eng);
}
#endif

static void a_step_takes_nothing_from_the_heap_on_any_thread(void **state) {
    (void)state;
#ifdef WEFT_SANITIZED
    (void)printf("SKIPPED: the sanitizer's allocator has no per-thread counters\n");
    skip();
#else
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
        run_without_heap(ENGINE_DRAFT, WEFT_ENG_ACT_AUTO, n_threads);
        run_without_heap(ENGINE_DRAFT, WEFT_ENG_ACT_F32, n_threads);
        run_without_heap(ENGINE_QUANTISED, WEFT_ENG_ACT_AUTO, n_threads);
    }
#endif
}

/* ------------------------------------------------------------------------ log-probabilities --- */

static void logprobs_of_the_whole_vocabulary_add_up(void **state) {
    (void)state;
    weft_eng *eng = engine_open_small(ENGINE_TIED, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO, 2, 16);
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
        assert_int_equal(engine_float_bits(l->top_logprobs[l->rank - 1]),
                         engine_float_bits(l->logprob));
    }
    drive_row(drive, 0, 1, 1);
    assert_int_equal(drive_run(drive)->outs[0].logprobs.n_top, 512);
    free(drive);
    weft_eng_free(eng);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_steps", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_end_where_they_should),
        cmocka_unit_test(a_prompt_of_the_full_length_ends_without_a_token),
        cmocka_unit_test(copied_and_shared_blocks_hold_the_same_tokens),
        cmocka_unit_test(spilled_blocks_come_back_as_they_were),
        cmocka_unit_test(a_file_that_cannot_be_written_is_given_up),
        cmocka_unit_test(a_file_that_cannot_be_read_is_given_up),
        cmocka_unit_test(each_block_that_goes_to_the_file_counts_as_progress),
        cmocka_unit_test(a_cached_prefix_needs_only_the_windowed_blocks_that_are_seen),
        cmocka_unit_test(progress_moves_with_every_step),
        cmocka_unit_test(a_step_takes_nothing_from_the_heap_on_any_thread),
        cmocka_unit_test(logprobs_of_the_whole_vocabulary_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
