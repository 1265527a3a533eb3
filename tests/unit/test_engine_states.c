/* States of recurrent layers that go from slot to slot, and into checkpoints and back: whoever begins with one goes on
 * to the bit as if it had computed all tokens itself. One process, and two ranks that divide the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/session_file.h"
#include "harness/eng_drive.h"
#include "harness/eng_group.h"
#include "inside/engine/state.h"
#include "unit/engine_fixtures.h"

enum { N_PROMPT = 43, N_KEPT = 32, N_NEXT = 9, BLOCK = 16, SLOTS = 3, CHECKPOINTS = 2 };

/* Tokens of a sequence, and their log-probabilities as bits. */
struct said {
    uint32_t tokens[N_NEXT], logprobs[N_NEXT], n;
};

struct fixture {
    struct eng_group group;
    struct group_step steps[WEFT_COLL_RANKS_MAX];
    struct drive *drive;
    uint32_t prompt[N_PROMPT], gen[SLOTS];
};

static weft_err step(void *ctx, const struct weft_step_plan *plan,
                     const struct weft_step_result **result_out, struct weft_errmsg *why) {
    struct fixture *fix = ctx;
    group_step(&fix->group, plan, fix->steps);
    for (uint32_t i = 1; i < fix->group.n_ranks; i++)
        assert_int_equal(fix->steps[i].err, fix->steps[0].err);
    *result_out = fix->steps[0].result;
    *why = fix->steps[0].why;
    return fix->steps[0].err;
}

static void open_fixture(struct fixture *fix, const char *path, uint32_t n_threads,
                         uint32_t n_ranks) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.max_seqs = SLOTS;
    options.n_checkpoints = CHECKPOINTS;
    options.max_batched_tokens = 64;
    options.max_model_len = 96;
    options.kv_memory_bytes = 8u << 20;
    options.n_threads = n_threads;
    memset(fix, 0, sizeof *fix);
    group_open(&fix->group, path, options, n_ranks);
    fix->drive = calloc(1, sizeof *fix->drive);
    assert_non_null(fix->drive);
    drive_init(fix->drive, fix->group.engs[0]);
    fix->drive->step_fn = step;
    fix->drive->step_ctx = fix;
    assert_int_equal(weft_eng_info(fix->group.engs[0])->n_checkpoints, CHECKPOINTS);
    for (uint32_t i = 0; i < N_PROMPT; i++)
        fix->prompt[i] = 30 + i * 7 % 197;
}

static void close_fixture(struct fixture *fix) {
    group_close(&fix->group);
    free(fix->drive);
}

/* In the slot, with so many cached tokens, and written ones; its blocks are those of the list. */
static void begin_after(struct fixture *fix, uint32_t slot, uint32_t choice, uint32_t n_cached,
                        uint32_t n_written, const uint32_t blocks[4]) {
    struct weft_step_start start = {.slot = slot,
                                    .gen = ++fix->gen[slot],
                                    .choice = choice,
                                    .tokens = fix->prompt,
                                    .n_tokens = N_PROMPT,
                                    .n_prompt = N_PROMPT,
                                    .n_cached = n_cached,
                                    .n_written = n_written};
    weft_sampling_init(&start.sampling);
    start.sampling.temperature = 0.9f;
    start.sampling.seed = 5;
    start.sampling.n_logprobs = 0;
    start.sampling.max_tokens = N_NEXT;
    drive_start(fix->drive, &start);
    drive_grant(fix->drive, slot, start.gen, blocks, 4);
}

static void begin(struct fixture *fix, uint32_t slot, uint32_t choice, uint32_t n_cached,
                  const uint32_t blocks[4]) {
    begin_after(fix, slot, choice, n_cached, n_cached, blocks);
}

static void row(struct fixture *fix, uint32_t slot, uint32_t n_tokens) {
    drive_row(fix->drive, slot, fix->gen[slot], n_tokens);
}

static void keep(struct said *said, const struct weft_step_out *out) {
    if (!out->sampled) return;
    said->tokens[said->n] = out->token;
    said->logprobs[said->n++] = engine_float_bits(out->logprobs.logprob);
}

/* One token after the other, to the end. */
static void finish(struct fixture *fix, uint32_t slot, struct said *said) {
    while (said->n < N_NEXT) {
        row(fix, slot, 1);
        keep(said, drive_run(fix->drive)->outs);
    }
    drive_release(fix->drive, slot, fix->gen[slot]);
}

static struct said alone(struct fixture *fix, uint32_t choice) {
    static const uint32_t blocks[] = {8, 9, 10, 11};
    struct said said = {.n = 0};
    begin(fix, 0, choice, 0, blocks);
    row(fix, 0, N_PROMPT);
    keep(&said, drive_run(fix->drive)->outs);
    finish(fix, 0, &said);
    return said;
}

static void assert_same(const struct said *a, const struct said *b) {
    assert_int_equal(a->n, N_NEXT);
    assert_memory_equal(a, b, sizeof *a);
}

static void assert_refused(struct fixture *fix) {
    struct weft_step_plan plan = drive_plan(fix->drive);
    const struct weft_step_result *result;
    struct weft_errmsg why = {""};
    assert_int_equal(step(fix, &plan, &result, &why), WEFT_E_PROTO);
    if (!strstr(why.text, "state")) fail_msg("%s", why.text);
    drive_clear(fix->drive);
}

/* The first computes the prompt and leaves its state at two tokens; the second begins before the last
 * token, as the first is there. */
static void fork_one(struct fixture *fix, const struct said expected[2]) {
    static const uint32_t first[] = {0, 1, 2, 3}, second[] = {0, 1, 4, 5};
    struct said said[2] = {{.n = 0}, {.n = 0}};
    begin(fix, 0, 0, 0, first);
    row(fix, 0, N_KEPT);
    drive_state(fix->drive, WEFT_STATE_KEEP, 0, 1);
    (void)drive_run(fix->drive);
    row(fix, 0, N_PROMPT - 1 - N_KEPT);
    (void)drive_run(fix->drive);
    begin(fix, 2, 1, N_PROMPT - 1, second);
    drive_copy(fix->drive, 2, 4);
    drive_state(fix->drive, WEFT_STATE_FORK, 2, 0);
    row(fix, 0, 1);
    row(fix, 2, 1);
    const struct weft_step_result *result = drive_run(fix->drive);
    keep(&said[0], &result->outs[0]);
    keep(&said[1], &result->outs[1]);
    finish(fix, 2, &said[1]);
    finish(fix, 0, &said[0]);
    assert_same(&said[0], &expected[0]);
    assert_same(&said[1], &expected[1]);
}

/* What fork_one has kept, after others had the slots; the checkpoint is written anew by the plan that reads it. */
static void load_it(struct fixture *fix, const struct said expected[2]) {
    static const uint32_t blocks[] = {0, 1, 6, 7};
    struct said said = {.n = 0};
    begin(fix, 1, 1, N_KEPT - BLOCK, blocks); /* the state is of other tokens */
    drive_state(fix->drive, WEFT_STATE_LOAD, 1, 1);
    row(fix, 1, 1);
    assert_refused(fix);
    fix->gen[1]--;
    begin(fix, 1, 1, N_KEPT, blocks);
    drive_state(fix->drive, WEFT_STATE_LOAD, 1, 1);
    drive_state(fix->drive, WEFT_STATE_KEEP, 1, 1);
    row(fix, 1, 4);
    (void)drive_run(fix->drive);
    row(fix, 1, N_PROMPT - N_KEPT - 4);
    keep(&said, drive_run(fix->drive)->outs);
    finish(fix, 1, &said);
    assert_same(&said, &expected[1]);
    /* Now it is of four tokens more, which the same blocks have. */
    said.n = 0;
    begin(fix, 1, 0, N_KEPT + 4, blocks);
    drive_state(fix->drive, WEFT_STATE_LOAD, 1, 1);
    row(fix, 1, N_PROMPT - N_KEPT - 4);
    keep(&said, drive_run(fix->drive)->outs);
    finish(fix, 1, &said);
    assert_same(&said, &expected[0]);
}

enum { BLOCK_BYTES_MAX = 1 << 16 };

/* A block's keys and values, of a rank. */
static uint8_t *block_of(const struct fixture *fix, uint32_t rank, uint32_t block) {
    return wefti_kv_cache_block(&fix->group.engs[rank]->kv, WEFT_KV_FULL, block);
}

static size_t block_bytes(const struct fixture *fix, uint32_t rank) {
    size_t n = fix->group.engs[rank]->kv.block_bytes[WEFT_KV_FULL];
    assert_in_range(n, 1, BLOCK_BYTES_MAX);
    return n;
}

/* What becomes of the second block of a sequence whose state is of the first: zeroes, as long as it counts as written.
 * Else what was there, since it is computed to the bit. */
static void compute_again(struct fixture *fix, uint32_t n_written, bool stays) {
    static const uint32_t blocks[] = {0, 1, 6, 7};
    static uint8_t was[WEFT_COLL_RANKS_MAX][BLOCK_BYTES_MAX];
    static const uint8_t zeroes[BLOCK_BYTES_MAX];
    for (uint32_t rank = 0; rank < fix->group.n_ranks; rank++) {
        size_t n = block_bytes(fix, rank);
        memcpy(was[rank], block_of(fix, rank, 1), n);
        memset(block_of(fix, rank, 1), 0, n);
    }
    begin_after(fix, 1, 1, BLOCK, n_written, blocks);
    drive_state(fix->drive, WEFT_STATE_LOAD, 1, 0);
    row(fix, 1, BLOCK);
    (void)drive_run(fix->drive);
    for (uint32_t rank = 0; rank < fix->group.n_ranks; rank++) {
        size_t n = block_bytes(fix, rank);
        assert_memory_not_equal(was[rank], zeroes, n);
        assert_memory_equal(block_of(fix, rank, 1), stays ? zeroes : was[rank], n);
        memcpy(block_of(fix, rank, 1), was[rank], n);
    }
    drive_release(fix->drive, 1, fix->gen[1]);
}

/* Two begin in one step with the state of one block, and the keys and values of two, which a third reads there. */
static void share_them(struct fixture *fix, const struct said expected[2]) {
    static const uint32_t tables[SLOTS][4] = {{0, 1, 2, 3}, {0, 1, 4, 5}, {0, 1, 6, 7}};
    struct said said[SLOTS] = {{.n = 0}, {.n = 0}, {.n = 0}};
    begin(fix, 0, 0, 0, tables[0]);
    row(fix, 0, BLOCK);
    drive_state(fix->drive, WEFT_STATE_KEEP, 0, 0);
    (void)drive_run(fix->drive);
    row(fix, 0, N_PROMPT - BLOCK);
    keep(&said[0], drive_run(fix->drive)->outs);
    compute_again(fix, N_KEPT, true);
    compute_again(fix, BLOCK, false);
    row(fix, 0, 1);
    for (uint32_t slot = 1; slot < SLOTS; slot++) {
        begin_after(fix, slot, slot - 1, BLOCK, N_KEPT, tables[slot]);
        drive_state(fix->drive, WEFT_STATE_LOAD, slot, 0);
        row(fix, slot, slot == 1 ? N_PROMPT - BLOCK : BLOCK + 3);
    }
    const struct weft_step_result *result = drive_run(fix->drive);
    keep(&said[0], &result->outs[0]);
    keep(&said[1], &result->outs[1]);
    row(fix, 2, N_PROMPT - N_KEPT - 3);
    keep(&said[2], drive_run(fix->drive)->outs);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        finish(fix, slot, &said[slot]);
        assert_same(&said[slot], &expected[slot == 2]);
    }
}

/* A new epoch has none. */
static void forget_it(struct fixture *fix) {
    static const uint32_t blocks[] = {0, 1, 6, 7};
    drive_clear(fix->drive);
    fix->drive->epoch++;
    fix->drive->step = 0;
    begin(fix, 0, 0, N_KEPT, blocks);
    drive_state(fix->drive, WEFT_STATE_LOAD, 0, 1);
    row(fix, 0, 1);
    assert_refused(fix);
}

static void check_model(const char *path, uint32_t n_threads, uint32_t n_ranks) {
    struct fixture fix;
    open_fixture(&fix, path, n_threads, n_ranks);
    const struct said expected[] = {alone(&fix, 0), alone(&fix, 1)};
    fork_one(&fix, expected);
    share_them(&fix, expected);
    load_it(&fix, expected);
    forget_it(&fix);
    close_fixture(&fix);
}

/* A layer of each kind; the last has attention beside it. In short runs the first two. */
static void states_go_on_to_the_bit(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3_next", "lfm2", "granitemoehybrid", "nemotron_h",
                                        "falcon_h1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0] && (i < 2 || !engine_short_run); i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "zoo2/%s", names[i]);
        const char *found = drive_shared(path);
        if (!found) skip();
        check_model(found, 1, 1);
        check_model(found, 3, 1);
        check_model(found, 1, 2);
    }
}

/* As many as slots, but in no more than a gibibyte; none where no layer has a state. */
static void checkpoints_are_as_many_as_asked_for(void **state) {
    (void)state;
    const uint32_t asked[] = {0, 7, WEFT_ENG_CHECKPOINTS_AUTO};
    const char *found = drive_shared("zoo2/lfm2");
    for (size_t i = 0; i < 3; i++) {
        struct weft_eng_options options;
        weft_eng_options_init(&options);
        options.max_seqs = 12;
        options.n_checkpoints = asked[i];
        weft_eng *eng = drive_open(drive_fixture(ENGINE_TIED), &options);
        assert_int_equal(weft_eng_info(eng)->n_checkpoints, 0);
        weft_eng_free(eng);
        if (!found) continue;
        eng = drive_open(found, &options);
        assert_int_equal(weft_eng_info(eng)->n_checkpoints, i < 2 ? asked[i] : 12);
        weft_eng_free(eng);
    }
}

/* Into another place, beside other blocks. One that is damaged leaves no state there. */
static void a_state_goes_into_a_file_and_back(void **state) {
    (void)state;
    static const uint32_t first[] = {0, 1, 2, 3}, others[] = {20, 21, 22, 23}, kept = 1, place = 0;
    const char *found = drive_shared("zoo2/lfm2");
    char dir[] = "weft-states-XXXXXX", path[64];
    _Atomic bool is_called_off = false;
    struct weft_errmsg why = {""};
    struct fixture fix;
    uint64_t n_bytes = 0;
    if (!found) skip();
    open_fixture(&fix, found, 1, 1);
    weft_eng *eng = fix.group.engs[0];
    const struct said expected = alone(&fix, 0);
    begin(&fix, 0, 0, 0, first);
    row(&fix, 0, N_KEPT);
    drive_state(fix.drive, WEFT_STATE_KEEP, 0, kept);
    (void)drive_run(fix.drive);
    drive_release(fix.drive, 0, fix.gen[0]);
    assert_non_null(mkdtemp(dir));
    const struct weft_eng_session_folder folder = {dir, UINT64_MAX, &is_called_off};
    const struct weft_eng_session session = {
        .tokens = fix.prompt,
        .n_tokens = N_KEPT,
        .blocks = {.blocks = {first, &kept}, .n = {N_KEPT / BLOCK, 1}},
    };
    const struct weft_eng_session_blocks to = {.blocks = {others, &place},
                                               .n = {N_KEPT / BLOCK, 1}};
    if (weft_eng_session_save(eng, &folder, "a", &session, &n_bytes, &why))
        fail_msg("%s", why.text);
    (void)snprintf(path, sizeof path, "%s/a", dir);
    for (int is_damaged = 0; is_damaged < 2; is_damaged++) {
        weft_eng_session_file *file = NULL;
        struct said said = {.n = 0};
        if (is_damaged) { /* the last byte is the state's */
            FILE *out = fopen(path, "r+be");
            assert_non_null(out);
            assert_int_equal(fseek(out, -1, SEEK_END), 0);
            int last = fgetc(out);
            assert_int_equal(fseek(out, -1, SEEK_END), 0);
            assert_int_not_equal(fputc(last ^ 1, out), EOF);
            assert_int_equal(fclose(out), 0);
        }
        if (weft_eng_session_open(eng, &folder, "a", 0, &file, &why)) fail_msg("%s", why.text);
        weft_err err = weft_eng_session_read(eng, file, &to, &why);
        assert_int_equal(err, is_damaged ? WEFT_E_PROTO : WEFT_OK);
        weft_eng_session_close(file);
        begin(&fix, 2, 0, N_KEPT, others);
        drive_state(fix.drive, WEFT_STATE_LOAD, 2, place);
        row(&fix, 2, N_PROMPT - N_KEPT);
        if (is_damaged) {
            assert_refused(&fix);
            continue;
        }
        keep(&said, drive_run(fix.drive)->outs);
        finish(&fix, 2, &said);
        assert_same(&said, &expected);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    close_fixture(&fix);
}

static void add_bits(void *ctx, uint32_t pos, const float *logits) {
    uint64_t *hash = ctx;
    *hash = (*hash ^ pos ^ engine_float_bits(logits[pos % 7])) * 0x100000001b3u;
}

/* Whatever the first layer is, threads may share the spans of a long sequence: there is room for their sums. It changes
 * no bit. */
static void threads_share_long_sequences_of_hybrids(void **state) {
    (void)state;
    enum { SCRATCH = 2, TEXT = 600 };
    const char *found = drive_shared("zoo2/lfm2");
    uint64_t hashes[2] = {1, 1};
    uint32_t tokens[TEXT];
    size_t n_bytes[2];
    if (!found) skip();
    for (uint32_t i = 0; i < TEXT; i++)
        tokens[i] = 30 + i * 7 % 197;
    for (uint32_t i = 0; i < 2; i++) {
        struct weft_eng_region regions[WEFT_ENG_REGIONS];
        struct weft_eng_options options;
        struct weft_errmsg why = {""};
        weft_eng_options_init(&options);
        options.max_seqs = options.max_batched_tokens = 1;
        options.max_model_len = 1024;
        options.n_threads = 1 + 2 * i;
        weft_eng *eng = drive_open(found, &options);
        (void)weft_eng_regions(eng, regions);
        n_bytes[i] = regions[SCRATCH].bytes;
        if (weft_eng_logits(eng, tokens, TEXT, add_bits, &hashes[i], &why))
            fail_msg("%s", why.text);
        weft_eng_free(eng);
    }
    assert_true(n_bytes[1] > n_bytes[0] + (32u << 20));
    assert_true(hashes[0] == hashes[1]);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_states", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_go_on_to_the_bit),
        cmocka_unit_test(checkpoints_are_as_many_as_asked_for),
        cmocka_unit_test(a_state_goes_into_a_file_and_back),
        cmocka_unit_test(threads_share_long_sequences_of_hybrids),
    };
    return cmocka_run_group_tests_name("engine_states", tests, NULL, NULL);
}
