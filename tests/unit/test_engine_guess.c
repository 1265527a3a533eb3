/* Speculative decoding in the engine: the same tokens as without, whatever is guessed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/minmax.h"
#include "base/rand.h"
#include "engine/session_file.h"
#include "harness/eng_drive.h"
#include "unit/engine_fixtures.h"

#define ENGINE_TARGET "models/fable-6m"

enum { N_TOKENS = 60, N_REQUESTS = ENGINE_REQUESTS + 3, SEQ_BLOCKS = 19 };

/* A request and what came of it. */
struct line {
    const uint32_t *prompt;
    uint32_t n_prompt;
    struct weft_sampling sampling;
    uint32_t out[N_TOKENS], n_out;
    uint32_t n_computed;
    enum weft_end finish;
};

struct sums {
    uint32_t n_steps, n_proposed, n_accepted, n_most; /* the most that a row may guess */
};

/* By what is guessed. */
struct sources {
    uint32_t ngram_max;
    const char *draft;
    bool mtp;
};

static weft_eng *open_with(const char *model, struct sources sources) {
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.n_threads = 2;
    options.max_seqs = N_REQUESTS;
    options.max_batched_tokens = 300;
    options.max_model_len = SEQ_BLOCKS * 16 - 4;
    options.kv_memory_bytes = 24u << 20;
    options.ngram_max = sources.ngram_max;
    options.draft_path = sources.draft;
    options.mtp = sources.mtp;
    return drive_open(drive_fixture(model), &options);
}

static weft_eng *open_guessing(const char *model, uint32_t ngram_max) {
    return open_with(model, (struct sources){.ngram_max = ngram_max});
}

/* The requests of every kind, and three whose text repeats itself: with two tokens to choose from any
 * model comes to what it had. */
static void make_lines(struct line *lines, struct engine_request *requests, uint32_t n_vocab) {
    static uint32_t loop[3][40];
    static const uint32_t allowed[] = {20, 21};
    uint64_t rng = 77;
    engine_make_requests(requests, n_vocab, &rng);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        bool loops = i >= ENGINE_REQUESTS;
        const struct engine_request *from = &requests[loops ? i - ENGINE_REQUESTS : i];
        lines[i] = (struct line){.prompt = from->prompt, .n_prompt = from->n_prompt};
        lines[i].sampling = from->sampling;
        if (lines[i].sampling.max_tokens > 0) lines[i].sampling.max_tokens = N_TOKENS;
        if (!loops) continue;
        uint32_t *prompt = loop[i - ENGINE_REQUESTS];
        for (uint32_t k = 0; k < 40; k++)
            prompt[k] = k < 7 ? weft_rand_below(&rng, n_vocab) : prompt[k - 7];
        lines[i].prompt = prompt;
        lines[i].n_prompt = 40;
        lines[i].sampling.allowed_tokens = allowed;
        lines[i].sampling.n_allowed_tokens = 2;
        lines[i].sampling.n_logprobs = -1;
    }
}

static void begin_line(struct drive *drive, const struct line *line, uint32_t slot, uint32_t gen) {
    uint32_t blocks[SEQ_BLOCKS];
    struct weft_step_start start = {.slot = slot,
                                    .gen = gen,
                                    .tokens = line->prompt,
                                    .n_tokens = line->n_prompt,
                                    .n_prompt = line->n_prompt,
                                    .sampling = line->sampling};
    for (uint32_t i = 0; i < SEQ_BLOCKS; i++)
        blocks[i] = slot * SEQ_BLOCKS + i;
    drive_start(drive, &start);
    drive_grant(drive, slot, gen, blocks, SEQ_BLOCKS);
}

static void take_out(struct line *line, const struct weft_step_out *out, struct sums *sums) {
    assert_true(out->n_accepted <= out->n_proposed && out->n_proposed <= sums->n_most);
    sums->n_proposed += out->n_proposed;
    sums->n_accepted += out->n_accepted;
    line->n_computed += out->n_accepted;
    line->finish = out->finish;
    if (!out->sampled) return;
    assert_int_equal(out->output_idx, line->n_out);
    assert_true(line->n_out + 1 + out->n_more <= N_TOKENS);
    line->out[line->n_out++] = out->token;
    for (uint32_t i = 0; i < out->n_more; i++)
        line->out[line->n_out++] = out->more[i];
    /* All but the last is computed: the next row is one token again. */
    if (out->finish == WEFT_END_NONE)
        assert_int_equal(line->n_computed, line->n_prompt + line->n_out - 1);
}

/* Runs all lines at once (or one after the other) to their ends. Prompts come in chunks. */
static struct sums run_lines(weft_eng *eng, struct line *lines, uint32_t n, uint32_t n_spec,
                             uint64_t *rng) {
    static struct drive drive;
    struct sums sums = {.n_most = n_spec};
    drive_init(&drive, eng);
    weft_eng_reset(eng, 0);
    for (uint32_t i = 0; i < n; i++) {
        lines[i].n_out = lines[i].n_computed = 0;
        lines[i].finish = WEFT_END_NONE;
        begin_line(&drive, &lines[i], i, 1);
    }
    for (bool goes_on = true; goes_on; sums.n_steps++) {
        uint32_t of_row[N_REQUESTS], n_rows = 0, room = 300;
        for (uint32_t i = 0; i < n; i++) {
            struct line *line = &lines[i];
            if (line->finish != WEFT_END_NONE || room < 30) continue;
            uint32_t left = line->n_prompt + line->n_out - line->n_computed;
            uint32_t n_tokens = weft_min_u32(left, weft_min_u32(room - 20, 64));
            uint32_t k = n_spec > 0 ? 1 + weft_rand_below(rng, n_spec) : 0;
            drive_guessing_row(&drive, i, 1, n_tokens, k);
            line->n_computed += n_tokens;
            room -= n_tokens + k;
            of_row[n_rows++] = i;
        }
        goes_on = n_rows > 0;
        if (!goes_on) break;
        const struct weft_step_result *result = drive_run(&drive);
        for (uint32_t i = 0; i < n_rows; i++)
            take_out(&lines[of_row[i]], &result->outs[i], &sums);
    }
    return sums;
}

static void check_model(const char *model, struct sources sources) {
    struct engine_request *requests = calloc(ENGINE_REQUESTS, sizeof *requests);
    struct line *lines = calloc(N_REQUESTS, sizeof *lines);
    struct line *alone = calloc(N_REQUESTS, sizeof *alone);
    assert_true(requests && lines && alone);
    uint64_t rng = 5;
    weft_eng *eng = open_with(model, sources);
    make_lines(lines, requests, weft_eng_info(eng)->n_vocab);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct sums sums = run_lines(eng, &lines[i], 1, 0, &rng);
        assert_int_equal(sums.n_proposed, 0);
        alone[i] = lines[i];
    }
    struct sums all = run_lines(eng, lines, N_REQUESTS, 8, &rng);
    (void)printf("%s: %u of %u guesses came true\n", model, all.n_accepted, all.n_proposed);
    assert_true(all.n_accepted > 0 && all.n_accepted < all.n_proposed);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        assert_int_equal(lines[i].n_out, alone[i].n_out);
        assert_int_equal(lines[i].finish, alone[i].finish);
        assert_memory_equal(lines[i].out, alone[i].out, alone[i].n_out * sizeof(uint32_t));
        struct sums one = run_lines(eng, &lines[i], 1, WEFT_SPEC_TOKENS_MAX, &rng);
        if (lines[i].sampling.n_logprobs >= 0) assert_int_equal(one.n_proposed, 0);
        assert_int_equal(lines[i].n_out, alone[i].n_out);
        assert_memory_equal(lines[i].out, alone[i].out, alone[i].n_out * sizeof(uint32_t));
    }
    weft_eng_free(eng);
    free(alone);
    free(lines);
    free(requests);
}

static void guesses_change_no_token(void **state) {
    static const char *const models[] = {ENGINE_DRAFT, ENGINE_WINDOWED,
                                         "tests/data/zoo/deepseek_v3", "tests/data/zoo/gemma3",
                                         ENGINE_TIED};
    (void)state;
    for (size_t i = 0; i < (engine_short_run ? 2 : sizeof models / sizeof models[0]); i++)
        check_model(models[i], (struct sources){.ngram_max = 3});
}

/* ------------------------------------------------------------------------------------- drafts --- */

static void guesses_of_a_draft_change_no_token(void **state) {
    (void)state;
    struct sources draft = {.draft = drive_fixture(ENGINE_DRAFT)};
    check_model(ENGINE_TARGET, draft);
    draft.ngram_max = 2;
    if (!engine_short_run) check_model(ENGINE_TARGET, draft);
}

enum { LONG_PROMPT = 200, LONG_STEPS = 12 };

/* What came of a sequence's guesses, step by step. Its prompt is computed but for the last token, or not
 * at all; each step may guess four. */
static void follow_steps(struct drive *drive, uint32_t slot, uint32_t left,
                         uint32_t proposed[LONG_STEPS], uint32_t accepted[LONG_STEPS]) {
    for (uint32_t i = 0; i < LONG_STEPS; i++) {
        drive_guessing_row(drive, slot, 1, i ? 1 : left, 4);
        struct weft_step_out out = drive_run(drive)->outs[0];
        proposed[i] = out.n_proposed;
        accepted[i] = out.n_accepted;
    }
}

/* Its keys and values go where the target's go: with blocks that are shared, copied, given to others. */
static void check_sharing(const char *model, struct sources sources, uint32_t n_first) {
    struct drive *drive = calloc(1, sizeof *drive);
    uint32_t prompt[LONG_PROMPT], blocks[SEQ_BLOCKS], others[SEQ_BLOCKS];
    uint32_t proposed[2][LONG_STEPS], accepted[2][LONG_STEPS], n_whole = (LONG_PROMPT - 1) / 16;
    assert_non_null(drive);
    weft_eng *eng = open_with(model, sources);
    drive_init(drive, eng);
    for (uint32_t i = 0; i < LONG_PROMPT; i++)
        prompt[i] = 300 + i % 23;
    struct weft_step_start start = {
        .gen = 1, .tokens = prompt, .n_tokens = LONG_PROMPT, .n_prompt = LONG_PROMPT};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 80;
    for (uint32_t i = 0; i < SEQ_BLOCKS; i++) {
        blocks[i] = i;
        others[i] = i < n_whole ? i : SEQ_BLOCKS + i;
    }
    drive_start(drive, &start);
    drive_grant(drive, 0, 1, blocks, SEQ_BLOCKS);
    follow_steps(drive, 0, LONG_PROMPT, proposed[0], accepted[0]);
    assert_int_equal(proposed[0][0], n_first);
    uint32_t n_accepted = 0;
    for (uint32_t i = 0; i < LONG_STEPS; i++)
        n_accepted += accepted[0][i];
    assert_true(n_accepted > 0);
    /* The same text once more: its whole blocks shared, the one that it begins to write to a copy. */
    start.slot = 1;
    start.n_cached = start.n_written = LONG_PROMPT - 1;
    drive_start(drive, &start);
    drive_copy(drive, n_whole, SEQ_BLOCKS + n_whole);
    drive_grant(drive, 1, 1, others, SEQ_BLOCKS);
    follow_steps(drive, 1, 1, proposed[1], accepted[1]);
    assert_memory_equal(proposed[1], proposed[0], sizeof proposed[0]);
    assert_memory_equal(accepted[1], accepted[0], sizeof accepted[0]);
    /* And in blocks that somebody wrote other text to. */
    drive_release(drive, 0, 1);
    drive_release(drive, 1, 1);
    start.slot = 2;
    start.n_cached = start.n_written = 0;
    drive_start(drive, &start);
    for (uint32_t i = 0; i < SEQ_BLOCKS; i++)
        others[i] = i + 5;
    drive_grant(drive, 2, 1, others, SEQ_BLOCKS);
    follow_steps(drive, 2, LONG_PROMPT, proposed[1], accepted[1]);
    assert_memory_equal(accepted[1], accepted[0], sizeof accepted[0]);
    weft_eng_free(eng);
    free(drive);
}

static void drafts_share_what_sequences_share(void **state) {
    (void)state;
    check_sharing(ENGINE_TARGET, (struct sources){.draft = drive_fixture(ENGINE_DRAFT)}, 4);
}

/* Saves the blocks that a prompt begins with, and reads them back into others. */
static void move_by_file(weft_eng *eng, const uint32_t *tokens, uint32_t n_blocks,
                         const uint32_t *from, const uint32_t *to) {
    char dir[] = "weft-guess-XXXXXX", path[64];
    _Atomic bool is_called_off = false;
    struct weft_eng_session session = {.tokens = tokens, .n_tokens = n_blocks * 16};
    struct weft_eng_session_blocks blocks = {.blocks = {to}, .n = {n_blocks}};
    struct weft_errmsg why = {{0}};
    weft_eng_session_file *file = NULL;
    uint64_t n_bytes = 0;
    session.blocks = (struct weft_eng_session_blocks){.blocks = {from}, .n = {n_blocks}};
    assert_non_null(mkdtemp(dir));
    const struct weft_eng_session_folder folder = {dir, 1u << 30, &is_called_off};
    assert_int_equal(weft_eng_session_save(eng, &folder, "a", &session, &n_bytes, &why), WEFT_OK);
    assert_int_equal(weft_eng_session_open(eng, &folder, "a", 0, &file, &why), WEFT_OK);
    assert_int_equal(weft_eng_session_read(eng, file, &blocks, &why), WEFT_OK);
    weft_eng_session_close(file);
    (void)snprintf(path, sizeof path, "%s/a", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* A file has nothing of the draft's, and what the draft has in the block is of another text. */
static void drafts_compute_again_what_a_file_brings(void **state) {
    (void)state;
    struct drive *drive = calloc(1, sizeof *drive);
    uint32_t prompt[LONG_PROMPT], other[LONG_PROMPT], blocks[SEQ_BLOCKS], others[SEQ_BLOCKS];
    uint32_t proposed[LONG_STEPS], accepted[2][LONG_STEPS], n_whole = (LONG_PROMPT - 1) / 16;
    assert_non_null(drive);
    weft_eng *eng =
        open_with(ENGINE_TARGET, (struct sources){.draft = drive_fixture(ENGINE_DRAFT)});
    drive_init(drive, eng);
    for (uint32_t i = 0; i < LONG_PROMPT; i++) {
        prompt[i] = 300 + i % 23;
        other[i] = 700 + i % 19;
    }
    for (uint32_t i = 0; i < SEQ_BLOCKS; i++) {
        blocks[i] = i;
        others[i] = SEQ_BLOCKS + i;
    }
    struct weft_step_start start = {
        .gen = 1, .tokens = prompt, .n_tokens = LONG_PROMPT, .n_prompt = LONG_PROMPT};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 80;
    drive_start(drive, &start);
    drive_grant(drive, 0, 1, blocks, SEQ_BLOCKS);
    follow_steps(drive, 0, LONG_PROMPT, proposed, accepted[0]);
    start.slot = 1;
    start.tokens = other;
    drive_start(drive, &start);
    drive_grant(drive, 1, 1, others, SEQ_BLOCKS);
    follow_steps(drive, 1, LONG_PROMPT, proposed, accepted[1]);
    drive_release(drive, 1, 1);
    move_by_file(eng, prompt, n_whole, blocks, others);
    start.slot = 2;
    start.tokens = prompt;
    start.n_cached = start.n_written = n_whole * 16;
    drive_start(drive, &start);
    drive_grant(drive, 2, 1, others, SEQ_BLOCKS);
    follow_steps(drive, 2, LONG_PROMPT - n_whole * 16, proposed, accepted[1]);
    assert_memory_equal(accepted[1], accepted[0], sizeof accepted[0]);
    weft_eng_free(eng);
    free(drive);
}

static void a_draft_that_fits_nothing_is_refused(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct weft_errmsg why = {{0}};
    weft_eng *eng = NULL;
    weft_eng_options_init(&options);
    options.draft_path = drive_fixture("tests/data/zoo/mixtral");
    assert_true(weft_eng_open(drive_fixture(ENGINE_TARGET), &options, &eng, &why) != WEFT_OK);
    (void)printf("%s\n", why.text);
    assert_non_null(strstr(why.text, "must have the same vocabulary"));
    options.draft_path = drive_fixture("tests/data/embed/bert-uncased-mean");
    assert_int_equal(weft_eng_open(drive_fixture(ENGINE_TARGET), &options, &eng, &why),
                     WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "is an encoder"));
    options.draft_path = drive_shared("zoo2/lfm2");
    if (options.draft_path) {
        assert_int_equal(weft_eng_open(drive_fixture(ENGINE_TARGET), &options, &eng, &why),
                         WEFT_E_UNSUPPORTED);
        assert_non_null(strstr(why.text, "recurrent"));
        assert_int_equal(weft_eng_open(options.draft_path, &options, &eng, &why),
                         WEFT_E_UNSUPPORTED);
        assert_non_null(strstr(why.text, "lfm2 has recurrent layers"));
        assert_non_null(strstr(why.text, "no --speculative-model"));
    }
    assert_null(eng);
}

/* --------------------------------------------------------------------- multi-token prediction --- */

#define ENGINE_MTP "tests/data/mtp"

static void guesses_of_a_models_own_layer_change_no_token(void **state) {
    (void)state;
    check_model(ENGINE_MTP, (struct sources){.mtp = true});
    if (!engine_short_run) check_model(ENGINE_MTP, (struct sources){.ngram_max = 2, .mtp = true});
}

/* The step that computes a prompt has no states to guess from. */
static void its_blocks_are_shared_as_the_models_are(void **state) {
    (void)state;
    check_sharing(ENGINE_MTP, (struct sources){.mtp = true}, 0);
}

/* What is kept of a sequence goes in when it ends, and serves the next one with its blocks. */
static void a_sequence_that_did_not_guess_leaves_no_gap(void **state) {
    (void)state;
    enum { N_PROMPT = 21, N_ALL = 50 };
    struct drive *drive = calloc(1, sizeof *drive);
    uint32_t text[N_ALL], blocks[2][SEQ_BLOCKS];
    uint32_t proposed[2][LONG_STEPS], accepted[2][LONG_STEPS];
    assert_non_null(drive);
    weft_eng *eng = open_with(ENGINE_MTP, (struct sources){.mtp = true});
    drive_init(drive, eng);
    for (uint32_t i = 0; i < SEQ_BLOCKS; i++) {
        blocks[0][i] = i;
        blocks[1][i] = SEQ_BLOCKS + i;
    }
    for (uint32_t i = 0; i < N_PROMPT; i++)
        text[i] = 40 + i * i % 31;
    struct weft_step_start start = {
        .gen = 1, .tokens = text, .n_tokens = N_PROMPT, .n_prompt = N_PROMPT};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = N_ALL - N_PROMPT;
    drive_start(drive, &start);
    drive_grant(drive, 0, 1, blocks[0], SEQ_BLOCKS);
    for (uint32_t n = N_PROMPT; n < N_ALL; n++) {
        drive_guessing_row(drive, 0, 1, n == N_PROMPT ? N_PROMPT : 1, 0);
        text[n] = drive_run(drive)->outs[0].token;
    }
    drive_release(drive, 0, 1);
    start.n_tokens = start.n_prompt = N_ALL;
    start.sampling.max_tokens = 80;
    for (uint32_t i = 0; i < 2; i++) {
        start.slot = 1 + i;
        start.n_cached = start.n_written = i == 0 ? N_ALL - 1 : 0;
        drive_start(drive, &start);
        drive_grant(drive, 1 + i, 1, blocks[i], SEQ_BLOCKS);
        follow_steps(drive, 1 + i, N_ALL - start.n_cached, proposed[i], accepted[i]);
    }
    assert_memory_equal(proposed[1], proposed[0], sizeof proposed[0]);
    assert_memory_equal(accepted[1], accepted[0], sizeof accepted[0]);
    weft_eng_free(eng);
    free(drive);
}

static void a_model_without_such_a_layer_is_refused(void **state) {
    (void)state;
    struct weft_eng_options options;
    struct weft_errmsg why = {{0}};
    weft_eng *eng = NULL;
    weft_eng_options_init(&options);
    options.mtp = true;
    assert_int_equal(weft_eng_open(drive_fixture(ENGINE_TARGET), &options, &eng, &why),
                     WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "has no layer that predicts further tokens"));
    options.draft_path = drive_fixture(ENGINE_MTP);
    assert_int_equal(weft_eng_open(drive_fixture(ENGINE_MTP), &options, &eng, &why), WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "beside a draft model"));
    assert_null(eng);
}

/* -------------------------------------------------------------------------------- single rows --- */

/* A text that goes on as it did: its first step tells what. */
static weft_eng *open_loop(struct drive *drive, struct line *line, uint32_t *prompt) {
    weft_eng *eng = open_guessing(ENGINE_DRAFT, 2);
    uint64_t rng = 3;
    drive_init(drive, eng);
    *line = (struct line){.prompt = prompt, .n_prompt = 12};
    weft_sampling_init(&line->sampling);
    line->sampling.max_tokens = N_TOKENS;
    for (uint32_t i = 0; i < 12; i++)
        prompt[i] = i < 4 ? 100 + i : prompt[i - 4];
    struct sums sums = run_lines(eng, line, 1, 0, &rng);
    assert_true(sums.n_proposed == 0 && line->n_out == N_TOKENS);
    drive_init(drive, eng);
    weft_eng_reset(eng, 0);
    return eng;
}

static void guesses_stop_at_what_they_have_room_for(void **state) {
    (void)state;
    struct drive *drive = calloc(1, sizeof *drive);
    struct line line;
    uint32_t prompt[12], one_block = 7, another = 9;
    assert_non_null(drive);
    weft_eng *eng = open_loop(drive, &line, prompt);
    struct weft_step_start start = {
        .gen = 1, .tokens = prompt, .n_tokens = 12, .n_prompt = 12, .sampling = line.sampling};
    drive_start(drive, &start);
    drive_grant(drive, 0, 1, &one_block, 1);
    drive_guessing_row(drive, 0, 1, 12, 16);
    struct weft_step_out out = drive_run(drive)->outs[0];
    assert_int_equal(out.n_proposed, 4); /* four places of its only block are left */
    drive_release(drive, 0, 1);
    start.gen = 2;
    start.sampling.max_tokens = 3;
    drive_start(drive, &start);
    drive_grant(drive, 0, 2, &another, 1);
    drive_guessing_row(drive, 0, 2, 12, 16);
    out = drive_run(drive)->outs[0];
    assert_int_equal(out.n_proposed, 2); /* beside the sampled one */
    assert_true(out.n_more <= 2);
    weft_eng_free(eng);
    free(drive);
}

static void nothing_comes_after_an_end(void **state) {
    static const uint32_t only = 20, prompt[] = {3, 20, 20, 20, 20, 20, 20, 20, 20};
    (void)state;
    struct drive *drive = calloc(1, sizeof *drive);
    uint32_t block = 0;
    assert_non_null(drive);
    weft_eng *eng = open_guessing(ENGINE_DRAFT, 2);
    drive_init(drive, eng);
    struct weft_step_start start = {.gen = 1, .tokens = prompt, .n_tokens = 9, .n_prompt = 9};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = N_TOKENS;
    start.sampling.allowed_tokens = start.sampling.stop_tokens = &only;
    start.sampling.n_allowed_tokens = start.sampling.n_stop_tokens = 1;
    start.sampling.min_tokens = 4;
    drive_start(drive, &start);
    drive_grant(drive, 0, 1, &block, 1);
    drive_guessing_row(drive, 0, 1, 9, 6);
    struct weft_step_out out = drive_run(drive)->outs[0];
    assert_true(out.n_proposed == 6 && out.n_accepted == 3 && out.n_more == 3);
    assert_true(out.token == only && out.more[0] == only && out.more[2] == only);
    assert_int_equal(out.finish, WEFT_END_STOP);
    drive_guessing_row(drive, 0, 1, 1, 6); /* planned before the end was known */
    out = drive_run(drive)->outs[0];
    assert_true(!out.ran && out.n_proposed == 0);
    weft_eng_free(eng);
    free(drive);
}

static void too_many_guesses_are_refused(void **state) {
    (void)state;
    struct drive *drive = calloc(1, sizeof *drive);
    struct line line;
    uint32_t prompt[12], block = 0;
    const struct weft_step_result *result = NULL;
    struct weft_errmsg why = {{0}};
    assert_non_null(drive);
    weft_eng *eng = open_loop(drive, &line, prompt);
    struct weft_step_start start = {
        .gen = 1, .tokens = prompt, .n_tokens = 12, .n_prompt = 12, .sampling = line.sampling};
    drive_start(drive, &start);
    drive_grant(drive, 0, 1, &block, 1);
    drive_guessing_row(drive, 0, 1, 12, WEFT_SPEC_TOKENS_MAX + 1);
    struct weft_step_plan plan = drive_plan(drive);
    assert_int_equal(weft_eng_step(eng, &plan, &result, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "is to guess 17 tokens"));
    weft_eng_free(eng);
    free(drive);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_guess", argc, argv)) return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_change_no_token),
        cmocka_unit_test(guesses_of_a_draft_change_no_token),
        cmocka_unit_test(drafts_share_what_sequences_share),
        cmocka_unit_test(drafts_compute_again_what_a_file_brings),
        cmocka_unit_test(a_draft_that_fits_nothing_is_refused),
        cmocka_unit_test(guesses_of_a_models_own_layer_change_no_token),
        cmocka_unit_test(its_blocks_are_shared_as_the_models_are),
        cmocka_unit_test(a_sequence_that_did_not_guess_leaves_no_gap),
        cmocka_unit_test(a_model_without_such_a_layer_is_refused),
        cmocka_unit_test(guesses_stop_at_what_they_have_room_for),
        cmocka_unit_test(nothing_comes_after_an_end),
        cmocka_unit_test(too_many_guesses_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
