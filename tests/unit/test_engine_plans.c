/* Plans that the engine refuses, in whole and with a reason, and those that others made obsolete.
 *
 * Twin engines get made-up plans, of which many are spoiled: one gets all of them, the other only
 * those that the first one took, and both must compute the same. Those of hybrids move states as well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "harness/eng_drive.h"
#include "unit/engine_fixtures.h"

enum { SLOTS = 4, CHECKPOINTS = 3 };

/* The test's view of a twin engine's slots, so that most plans it makes up are good ones. */
struct known_slot {
    bool used, is_new; /* is_new: the plan starts it */
    uint32_t gen, n_known, n_computed, n_table;
};

struct known {
    struct known_slot slots[SLOTS];
    uint32_t n_state[SLOTS]; /* tokens of the state in each, before the plan's rows */
    uint32_t n_kept[CHECKPOINTS];
};

struct fuzz {
    struct drive a, b; /* b gets every plan, a only those that b took */
    struct known known;
    uint32_t tokens[8][64];
    struct weft_logit_bias bias;
    uint64_t rng;
    uint32_t next_gen, n_taken, n_refused, n_moved;
};

static uint32_t below(struct fuzz *fuzz, uint32_t n) {
    return weft_rand_below(&fuzz->rng, n);
}

/* Whose state one that starts with n tokens could have, all but the last at most; 0: nobody's. */
static uint32_t make_up_state(struct fuzz *fuzz, uint32_t slot, uint32_t n) {
    bool is_fork = below(fuzz, 2);
    uint32_t other = below(fuzz, is_fork ? SLOTS : CHECKPOINTS);
    uint32_t n_state = is_fork ? fuzz->known.n_state[other] : fuzz->known.n_kept[other];
    if (!weft_eng_info(fuzz->b.eng)->is_recurrent || n_state == 0 || n_state >= n) return 0;
    if (is_fork && fuzz->known.slots[other].is_new) return 0;
    drive_state(&fuzz->b, is_fork ? WEFT_STATE_FORK : WEFT_STATE_LOAD, slot, other);
    return n_state;
}

/* So many, or up to a border of blocks that one with a state may find written. */
static uint32_t make_up_written(struct fuzz *fuzz, uint32_t n_cached, uint32_t n) {
    uint32_t border = (n_cached / 16 + 1 + below(fuzz, 2)) * 16;
    bool is_more = weft_eng_info(fuzz->b.eng)->is_recurrent && border <= n && below(fuzz, 2);
    return is_more ? border : n_cached;
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
    start.n_cached = make_up_state(fuzz, slot, n);
    start.n_written = make_up_written(fuzz, start.n_cached, n);
    if (start.n_cached > 0) start.sampling.n_prompt_logprobs = -1;
    drive_start(&fuzz->b, &start);
    fuzz->known.slots[slot] = (struct known_slot){true, true, start.gen, n, start.n_cached, 0};
}

static void make_up_plan(struct fuzz *fuzz) {
    struct known *known = &fuzz->known;
    uint32_t n_kept[CHECKPOINTS];
    memcpy(n_kept, known->n_kept, sizeof n_kept);
    for (uint32_t s = 0; s < SLOTS; s++) {
        known->n_state[s] = known->slots[s].n_computed;
        known->slots[s].is_new = false;
    }
    for (uint32_t s = 0; s < SLOTS; s++) {
        struct known_slot *slot = &known->slots[s];
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
        if (!weft_eng_info(fuzz->b.eng)->is_recurrent || below(fuzz, 3)) continue;
        uint32_t place = below(fuzz, CHECKPOINTS);
        drive_state(&fuzz->b, WEFT_STATE_KEEP, s, place);
        n_kept[place] = slot->n_computed;
    }
    memcpy(known->n_kept, n_kept, sizeof n_kept); /* those that start load what was there before */
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
    uint32_t *const fields[] = {&start->slot,
                                &start->gen,
                                &start->n_tokens,
                                &start->n_prompt,
                                &start->n_cached,
                                &start->n_written,
                                &start->n_prompt_logprobs_done,
                                &start->n_window_skipped,
                                &start->n_keep,
                                &start->n_dropped};
    uint32_t which = below(fuzz, 12);
    if (which == 10) {
        spoil_sampling(fuzz, &start->sampling);
    } else if (which == 11) {
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
    switch (below(fuzz, b->n_states > 0 ? 12 : 8)) {
    case 8:
        b->states[below(fuzz, b->n_states)].op = value;
        break;
    case 9:
        b->states[below(fuzz, b->n_states)].slot = value;
        break;
    case 10:
        b->states[below(fuzz, b->n_states)].other = value;
        break;
    case 11:
        plan->n_states--;
        break;
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
        if (b->n_grants) b->grants[below(fuzz, b->n_grants)].kind = value;
        break;
    case 6:
        if (b->n_starts) spoil_start(fuzz, &b->starts[below(fuzz, b->n_starts)]);
        break;
    default:
        if (b->n_copies && below(fuzz, 2))
            b->copies[0].kind = value;
        else if (b->n_copies)
            b->copies[0].to = value;
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
            assert_int_equal(engine_float_bits(x->logprobs.logprob),
                             engine_float_bits(y->logprobs.logprob));
    }
}

static void learn(struct fuzz *fuzz, const struct weft_step_result *result) {
    for (uint32_t i = 0; i < result->n_outs; i++) {
        const struct weft_step_out *out = &result->outs[i];
        if (out->sampled) fuzz->known.slots[out->slot].n_known++;
    }
}

static void fuzz_once(struct fuzz *fuzz) {
    const struct known before = fuzz->known;
    drive_clear(&fuzz->b);
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
        fuzz->known = before;
        fuzz->n_refused++;
        return;
    }
    assert_int_equal(weft_eng_step(fuzz->a.eng, &plan, &result_a, &why), WEFT_OK);
    assert_same_step(result_a, result_b);
    learn(fuzz, result_b);
    fuzz->b.step++;
    fuzz->n_taken++;
    fuzz->n_moved += plan.n_states;
}

static void check_refused_plans(const char *model) {
    struct fuzz *fuzz = calloc(1, sizeof *fuzz);
    assert_non_null(fuzz);
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.n_threads = 1;
    options.max_seqs = SLOTS;
    options.n_checkpoints = CHECKPOINTS;
    options.max_batched_tokens = 128;
    options.max_model_len = 100;
    options.kv_memory_bytes = 1u << 20;
    fuzz->rng = weft_rand_test_seed();
    drive_init(&fuzz->a, drive_open(model, &options));
    drive_init(&fuzz->b, drive_open(model, &options));
    uint32_t n_rounds = engine_short_run ? 500 : 2000;
    for (uint32_t i = 0; i < n_rounds; i++) {
        fuzz_once(fuzz);
    }
    (void)printf("%u plans taken, %u refused, %u states moved\n", fuzz->n_taken, fuzz->n_refused,
                 fuzz->n_moved);
    assert_true(fuzz->n_moved > 0 || !weft_eng_info(fuzz->a.eng)->is_recurrent);
    assert_true(fuzz->n_taken > n_rounds / 8 && fuzz->n_refused > n_rounds / 8);
    weft_eng_free(fuzz->a.eng);
    weft_eng_free(fuzz->b.eng);
    free(fuzz);
}

static void refused_plans_change_nothing(void **state) {
    (void)state;
    check_refused_plans(drive_fixture(ENGINE_TIED));
    check_refused_plans(drive_fixture(ENGINE_WINDOWED));
}

static void refused_plans_change_no_state(void **state) {
    (void)state;
    static const char *const names[] = {"zoo2/lfm2", "zoo2/qwen3_next"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *found = drive_shared(names[i]);
        if (!found) skip();
        check_refused_plans(found);
    }
}

static void epochs_drop_sequences_and_old_ones_are_stale(void **state) {
    (void)state;
    weft_eng *eng = engine_open_small(ENGINE_TIED, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO, 1, 16);
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

/* Two prompts whose every token brings the whole vocabulary: one token more than the bound allows
 * is refused, all others come. */
static void logprobs_of_a_step_are_bounded(void **state) {
    (void)state;
    struct weft_eng_options options;
    weft_eng_options_init(&options);
    options.max_batched_tokens = 2048;
    options.max_seqs = 2;
    options.kv_memory_bytes = 16u << 20;
    weft_eng *eng = drive_open(drive_fixture(ENGINE_DRAFT), &options);
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
            assert_int_equal(engine_float_bits(l->top_logprobs[l->rank - 1]),
                             engine_float_bits(l->logprob));
        }
    }
    free(drive);
    weft_eng_free(eng);
}

static void expect_refusal(struct drive *drive, const char *sentence) {
    const struct weft_step_result *result;
    struct weft_step_plan plan = drive_plan(drive);
    struct weft_errmsg why = {{0}};
    assert_int_equal(weft_eng_step(drive->eng, &plan, &result, &why), WEFT_E_PROTO);
    if (!strstr(why.text, sentence)) fail_msg("%s", why.text);
}

static void blocks_of_kinds_that_do_not_fit_are_refused(void **state) {
    (void)state;
    weft_eng *eng = engine_open_small(ENGINE_WINDOWED, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO, 1, 16);
    struct drive *drive = malloc(sizeof *drive);
    assert_non_null(drive);
    drive_init(drive, eng);
    const struct weft_eng_info *info = weft_eng_info(eng);
    uint32_t tokens[100] = {0}, blocks[64] = {0};
    assert_int_equal(info->window, 16);
    struct weft_step_start start = {.gen = 1, .tokens = tokens, .n_tokens = 100, .n_prompt = 100};
    weft_sampling_init(&start.sampling);

    drive_start(drive, &start);
    drive_grant_kind(drive, 0, 1, WEFT_KV_FULL, blocks, 2);
    drive_row(drive, 0, 1, 20);
    expect_refusal(drive, "slot 0 has blocks of windowed layers for 0 tokens, its row ends at 20");
    drive_grant_kind(drive, 0, 1, WEFT_KV_WINDOWED, blocks, 1);
    expect_refusal(drive, "slot 0 has blocks of windowed layers for 16 tokens, its row ends at 20");
    drive->grants[1].kind = WEFT_KV_KINDS;
    expect_refusal(drive, "a grant of blocks of kind 2, there are 2");
    drive->grants[1].kind = WEFT_KV_WINDOWED;
    drive->blocks[2] = info->n_window_blocks;
    expect_refusal(drive, "of windowed layers");
    drive->blocks[2] = 0;
    drive_grant_kind(drive, 0, 1, WEFT_KV_WINDOWED, blocks, 20);
    expect_refusal(drive, "slot 0 is granted 20 blocks on top of 1, 20 fit");

    drive_clear(drive); /* position 32 sees 17 and those after it: block 1 */
    start.n_cached = start.n_written = 32;
    start.n_window_skipped = 2;
    drive_start(drive, &start);
    expect_refusal(drive, "a start skips 2 windowed blocks, but position 32 sees what is in them");
    drive_copy(drive, 0, 1);
    drive->starts[0].n_window_skipped = 1;
    drive->copies[0].kind = WEFT_KV_KINDS;
    expect_refusal(drive, "a copy of blocks of kind 2, there are 2");
    drive->copies[0] = (struct weft_step_copy){0, info->n_window_blocks, WEFT_KV_WINDOWED};
    expect_refusal(drive, "a copy from block 0 to");
    drive->copies[0].to = 1;
    drive_grant_kind(drive, 0, 1, WEFT_KV_FULL, blocks, 3);
    drive_grant_kind(drive, 0, 1, WEFT_KV_WINDOWED, blocks, 1);
    drive_row(drive, 0, 1, 16);
    expect_refusal(drive, "slot 0 has blocks of windowed layers for 32 tokens, its row ends at 48");
    drive->grants[1].n_blocks = 2;
    (void)drive_run(drive);
    weft_eng_free(eng);

    eng = engine_open_small(ENGINE_TIED, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO, 1, 16);
    drive_init(drive, eng);
    assert_int_equal(weft_eng_info(eng)->window, 0);
    start.n_cached = start.n_written =
        80; /* a model without windows has nothing to skip, and one kind */
    drive_start(drive, &start);
    expect_refusal(drive, "a start skips 2 windowed blocks");
    drive->starts[0].n_window_skipped = 0;
    drive_grant_kind(drive, 0, 1, WEFT_KV_WINDOWED, blocks, 1);
    expect_refusal(drive, "a grant of blocks of kind 1, there are 1");
    free(drive);
    weft_eng_free(eng);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_plans", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_drop_sequences_and_old_ones_are_stale),
        cmocka_unit_test(logprobs_of_a_step_are_bounded),
        cmocka_unit_test(refused_plans_change_nothing),
        cmocka_unit_test(refused_plans_change_no_state),
        cmocka_unit_test(blocks_of_kinds_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
