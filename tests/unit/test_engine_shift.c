/* Sequences that dropped some of their tokens: they are computed as the shorter text that is left, and
 * sampled by all that they had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "harness/eng_drive.h"
#include "unit/engine_fixtures.h"

enum {
    N_PROMPT = 30,
    N_TOKENS = 100, /* prompt and output so far */
    N_KEEP = 9,
    N_DROPPED = 52,
    N_LEFT = N_TOKENS - N_DROPPED,
    N_NEXT = 12,
    SLOT_BLOCKS = 8
};

/* What came of a sequence: its next tokens, and their log-probabilities as bits. */
struct said {
    uint32_t tokens[N_NEXT], logprobs[N_NEXT], n;
};

struct fixture {
    weft_eng *eng;
    struct drive *drive;
    uint32_t all[N_TOKENS], left[N_LEFT], gen;
};

static void begin(struct fixture *fix, const char *model) {
    fix->eng = engine_open_small(model, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO, 2, 16);
    fix->drive = calloc(1, sizeof *fix->drive);
    assert_non_null(fix->drive);
    drive_init(fix->drive, fix->eng);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        fix->all[i] = 40 + i * 7 % 211;
    memcpy(fix->left, fix->all, N_KEEP * sizeof *fix->left);
    memcpy(fix->left + N_KEEP, fix->all + N_KEEP + N_DROPPED,
           (N_LEFT - N_KEEP) * sizeof *fix->left);
    fix->gen = 0;
}

static void end(struct fixture *fix) {
    weft_eng_free(fix->eng);
    free(fix->drive);
}

static struct weft_step_start shifted(struct fixture *fix) {
    struct weft_step_start start = {.gen = ++fix->gen,
                                    .tokens = fix->all,
                                    .n_tokens = N_TOKENS,
                                    .n_prompt = N_PROMPT,
                                    .n_keep = N_KEEP,
                                    .n_dropped = N_DROPPED};
    weft_sampling_init(&start.sampling);
    start.sampling.temperature = 0.0f;
    start.sampling.n_logprobs = 0;
    start.sampling.max_tokens = 1000;
    return start;
}

/* Its tokens in chunks; then one after the other. */
static struct said run(struct fixture *fix, const struct weft_step_start *start, uint32_t chunk) {
    struct said said = {.n = 0};
    uint32_t blocks[SLOT_BLOCKS], n_before = start->n_tokens - start->n_prompt;
    for (uint32_t i = 0; i < SLOT_BLOCKS; i++)
        blocks[i] = start->slot * SLOT_BLOCKS + i;
    drive_start(fix->drive, start);
    drive_grant(fix->drive, start->slot, start->gen, blocks, SLOT_BLOCKS);
    for (uint32_t left = N_LEFT; said.n < N_NEXT;) {
        uint32_t n = left > chunk ? chunk : left;
        drive_row(fix->drive, start->slot, start->gen, n);
        const struct weft_step_out *out = &drive_run(fix->drive)->outs[0];
        left = left > n ? left - n : 1;
        assert_int_equal(out->finish, WEFT_END_NONE);
        if (!out->sampled) continue;
        assert_int_equal(out->output_idx, n_before + said.n);
        said.logprobs[said.n] = out->has_logprobs ? engine_float_bits(out->logprobs.logprob) : 0;
        said.tokens[said.n++] = out->token;
    }
    drive_release(fix->drive, start->slot, start->gen);
    return said;
}

static void what_is_left_is_computed_as_a_text_of_its_own(void **state) {
    static const char *const models[] = {ENGINE_TIED, ENGINE_WINDOWED, "tests/data/zoo/deepseek_v3",
                                         "tests/data/zoo/gemma3"};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct fixture fix;
        begin(&fix, models[i]);
        struct weft_step_start start = shifted(&fix);
        struct said said = run(&fix, &start, 17);
        start = shifted(&fix);
        start.tokens = fix.left;
        start.n_tokens = start.n_prompt = N_LEFT;
        start.n_keep = start.n_dropped = 0;
        struct said alone = run(&fix, &start, N_LEFT);
        assert_memory_equal(&said, &alone, sizeof said);
        end(&fix);
    }
}

/* Draws go by how many tokens there were in all; the place in the cache is no part of it. */
static void samples_go_by_all_that_was_said(void **state) {
    (void)state;
    struct fixture fix;
    begin(&fix, ENGINE_TIED);
    struct weft_step_start start = shifted(&fix);
    start.sampling.temperature = 1.0f;
    start.sampling.seed = 5;
    struct said said = run(&fix, &start, N_LEFT), again;
    start.gen = ++fix.gen;
    again = run(&fix, &start, 7);
    assert_memory_equal(&said, &again, sizeof said);

    /* A token that was dropped is penalised as often as it came. */
    uint32_t two[2] = {fix.all[N_KEEP + 25], 3}; /* it comes once, the other never */
    for (uint32_t i = N_PROMPT; i < N_KEEP + N_DROPPED; i++)
        fix.all[i] = two[0];
    start = shifted(&fix);
    start.sampling.allowed_tokens = two;
    start.sampling.n_allowed_tokens = 2;
    if (two[0] > two[1]) {
        two[1] = two[0];
        two[0] = 3;
    }
    start.sampling.frequency_penalty = 2.0f;
    start.sampling.n_logprobs = -1;
    said = run(&fix, &start, N_LEFT);
    for (uint32_t i = 0; i < said.n; i++)
        assert_int_equal(said.tokens[i], 3);
    end(&fix);
}

static void refuse(struct fixture *fix, const struct weft_step_start *start) {
    struct weft_errmsg why = {{0}};
    const struct weft_step_result *result = NULL;
    drive_start(fix->drive, start);
    struct weft_step_plan plan = drive_plan(fix->drive);
    assert_int_equal(weft_eng_step(fix->eng, &plan, &result, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "a start "));
    drive_clear(fix->drive);
}

static void starts_that_drop_what_they_may_not_are_refused(void **state) {
    (void)state;
    struct fixture fix;
    begin(&fix, ENGINE_TIED);
    struct weft_step_start start = shifted(&fix);
    start.n_dropped = N_TOKENS - N_KEEP; /* the last one, too */
    refuse(&fix, &start);
    start.n_dropped = UINT32_MAX;
    refuse(&fix, &start);
    start = shifted(&fix);
    start.n_keep = UINT32_MAX;
    refuse(&fix, &start);
    start = shifted(&fix);
    start.n_prompt = N_TOKENS; /* there is no output */
    refuse(&fix, &start);
    start = shifted(&fix);
    start.n_cached = start.n_written = N_LEFT;
    refuse(&fix, &start);
    start = shifted(&fix);
    start.sampling.n_prompt_logprobs = 1; /* of tokens that are gone */
    refuse(&fix, &start);
    start = shifted(&fix);
    start.sampling.max_tokens = WEFT_SHIFTED_TOKENS_MAX - N_PROMPT + 1;
    refuse(&fix, &start);
    start = shifted(&fix);
    (void)run(&fix, &start, N_LEFT);
    end(&fix);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_shift", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_is_computed_as_a_text_of_its_own),
        cmocka_unit_test(samples_go_by_all_that_was_said),
        cmocka_unit_test(starts_that_drop_what_they_may_not_are_refused),
    };
    return cmocka_run_group_tests_name("engine_shift", tests, NULL, NULL);
}
