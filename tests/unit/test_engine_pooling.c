/* Values of poolings: what they are by other means, and that neither chunks, company nor cached
 * tokens change a bit of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "harness/eng_drive.h"
#include "unit/engine_fixtures.h"

enum { N_TOKENS = 45, SLOT_BLOCKS = 4, VALUES_MAX = 512 };

struct fixture {
    weft_eng *eng;
    struct drive *drive;
    uint32_t tokens[N_TOKENS], n_hidden, next_gen;
};

static void begin(struct fixture *fix, const char *model, uint32_t n_threads) {
    fix->eng = engine_open_small(model, WEFT_ENG_ACT_AUTO, WEFT_ENG_KV_AUTO, n_threads, 16);
    fix->drive = malloc(sizeof *fix->drive);
    assert_non_null(fix->drive);
    drive_init(fix->drive, fix->eng);
    fix->n_hidden = weft_eng_info(fix->eng)->n_hidden;
    assert_in_range(fix->n_hidden, 1, VALUES_MAX);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        fix->tokens[i] = 3 + i * 5;
    fix->next_gen = 0;
}

static void end(struct fixture *fix) {
    free(fix->drive);
    weft_eng_free(fix->eng);
}

static struct weft_step_start make_start(struct fixture *fix, uint32_t slot, uint32_t n_tokens,
                                         const struct weft_pooling *pooling) {
    struct weft_step_start start = {.slot = slot,
                                    .gen = ++fix->next_gen,
                                    .tokens = fix->tokens,
                                    .n_tokens = n_tokens,
                                    .n_prompt = n_tokens,
                                    .pooling = *pooling};
    weft_sampling_init(&start.sampling);
    start.sampling.max_tokens = 0;
    return start;
}

static void start_in(struct fixture *fix, const struct weft_step_start *start) {
    uint32_t blocks[SLOT_BLOCKS];
    for (uint32_t i = 0; i < SLOT_BLOCKS; i++)
        blocks[i] = start->slot * SLOT_BLOCKS + i;
    drive_start(fix->drive, start);
    drive_grant(fix->drive, start->slot, start->gen, blocks, SLOT_BLOCKS);
}

/* Alone in slot 0, `chunk` tokens a step; its blocks hold the first n_cached already. */
static uint32_t pool_in(struct fixture *fix, uint32_t n_tokens, const struct weft_pooling *pooling,
                        uint32_t chunk, uint32_t n_cached, float values[VALUES_MAX]) {
    struct weft_step_start start = make_start(fix, 0, n_tokens, pooling);
    start.n_cached = start.n_written = n_cached;
    start_in(fix, &start);
    uint32_t n_values = 0;
    for (uint32_t at = n_cached; at < n_tokens;) {
        uint32_t n = weft_min_u32(chunk, n_tokens - at);
        drive_row(fix->drive, 0, start.gen, n);
        struct weft_step_out out = drive_run(fix->drive)->outs[0];
        at += n;
        assert_true(out.ran && !out.sampled && (at == n_tokens || out.n_values == 0));
        assert_int_equal(out.finish, at == n_tokens ? WEFT_END_LENGTH : WEFT_END_NONE);
        n_values = out.n_values;
        assert_in_range(n_values, 0, VALUES_MAX);
        if (n_values > 0) memcpy(values, out.values, n_values * sizeof *values);
    }
    drive_release(fix->drive, 0, start.gen);
    return n_values;
}

static void assert_same(const float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(engine_float_bits(a[i]), engine_float_bits(b[i]));
}

static const struct weft_pooling last = {.kind = WEFT_POOLING_LAST};
static const struct weft_pooling mean = {.kind = WEFT_POOLING_MEAN};
static const struct weft_pooling cls = {.kind = WEFT_POOLING_CLS};

/* A token sees those before it alone, so each hidden state is the last one of a shorter text. */
static void check_kinds(const char *model) {
    struct fixture fix;
    float values[VALUES_MAX], one[VALUES_MAX], want[VALUES_MAX];
    double sum[VALUES_MAX] = {0};
    begin(&fix, model, 2);
    for (uint32_t n = 1; n <= N_TOKENS; n++) {
        assert_int_equal(pool_in(&fix, n, &last, 256, 0, one), fix.n_hidden);
        for (uint32_t i = 0; i < fix.n_hidden; i++) {
            sum[i] += (double)one[i];
            want[i] = (float)(sum[i] / n);
        }
        if (n > 2 && n < N_TOKENS) continue;
        assert_int_equal(pool_in(&fix, n, &mean, 256, 0, values), fix.n_hidden);
        assert_same(values, want, fix.n_hidden);
    }
    assert_int_equal(pool_in(&fix, 1, &last, 256, 0, want), fix.n_hidden);
    assert_int_equal(pool_in(&fix, N_TOKENS, &cls, 256, 0, values), fix.n_hidden);
    assert_same(values, want, fix.n_hidden);
    end(&fix);
}

static void poolings_are_what_they_say(void **state) {
    (void)state;
    check_kinds(ENGINE_TIED);
    if (!engine_short_run) check_kinds(ENGINE_WINDOWED);
}

static void chunks_and_cached_tokens_change_no_bit(void **state) {
    (void)state;
    struct fixture fix;
    float values[VALUES_MAX], want[VALUES_MAX];
    static const struct weft_pooling two = {.kind = WEFT_POOLING_TOKENS, .n_ids = 2, .ids = {9, 2}};
    const struct weft_pooling *const kinds[] = {&last, &mean, &cls, &two};
    begin(&fix, engine_short_run ? ENGINE_TIED : ENGINE_QUANTISED, 2);
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t n = pool_in(&fix, N_TOKENS, kinds[k], 256, 0, want);
        for (uint32_t chunk = 1; chunk < N_TOKENS; chunk += 6) {
            assert_int_equal(pool_in(&fix, N_TOKENS, kinds[k], chunk, 0, values), n);
            assert_same(values, want, n);
        }
        if (weft_pooling_reads_all(kinds[k])) continue;
        assert_int_equal(pool_in(&fix, N_TOKENS, kinds[k], 7, 32, values), n);
        assert_same(values, want, n);
    }
    end(&fix);
}

struct logits {
    const struct weft_pooling *pooling;
    float values[WEFT_POOLING_IDS_MAX];
};

static void keep_logits(void *ctx, uint32_t pos, const float *logits) {
    struct logits *kept = ctx;
    (void)pos;
    for (uint32_t i = 0; i < kept->pooling->n_ids; i++)
        kept->values[i] = logits[kept->pooling->ids[i]];
}

static void scores_are_logits_after_the_prompt(void **state) {
    (void)state;
    struct fixture fix;
    float values[VALUES_MAX];
    static const struct weft_pooling three = {
        .kind = WEFT_POOLING_TOKENS, .n_ids = 3, .ids = {17, 0, 17}};
    struct logits want = {.pooling = &three};
    struct weft_errmsg why;
    begin(&fix, ENGINE_TIED, 1);
    assert_int_equal(weft_eng_logits(fix.eng, fix.tokens, N_TOKENS, keep_logits, &want, &why),
                     WEFT_OK);
    assert_int_equal(pool_in(&fix, N_TOKENS, &three, 256, 0, values), 3);
    assert_same(values, want.values, 3);
    end(&fix);
}

/* Texts of other lengths and a stream in the same steps. */
static void company_changes_no_bit(void **state) {
    (void)state;
    struct fixture fix;
    float want[3][VALUES_MAX];
    static const uint32_t lengths[3] = {45, 1, 20};
    const struct weft_pooling *const kinds[3] = {&mean, &last, &cls};
    begin(&fix, ENGINE_DRAFT, 2);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(pool_in(&fix, lengths[i], kinds[i], 256, 0, want[i]), fix.n_hidden);
    struct weft_step_start starts[4];
    for (uint32_t i = 0; i < 4; i++) {
        starts[i] = make_start(&fix, 3 - i, i < 3 ? lengths[i] : 30, kinds[i % 3]);
        if (i == 3) {
            starts[i].pooling = (struct weft_pooling){0};
            starts[i].sampling.max_tokens = 5;
        }
        start_in(&fix, &starts[i]);
        drive_row(fix.drive, starts[i].slot, starts[i].gen, starts[i].n_tokens);
    }
    const struct weft_step_result *result = drive_run(fix.drive);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(result->outs[i].n_values, fix.n_hidden);
        assert_same(result->outs[i].values, want[i], fix.n_hidden);
    }
    assert_true(result->outs[3].sampled && result->outs[3].n_values == 0);
    end(&fix);
}

static void assert_refused(struct fixture *fix, const struct weft_step_start *start,
                           const char *words) {
    const struct weft_step_result *result = NULL;
    struct weft_errmsg why;
    start_in(fix, start);
    struct weft_step_plan plan = drive_plan(fix->drive);
    assert_int_equal(weft_eng_step(fix->eng, &plan, &result, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, words));
    drive_clear(fix->drive);
}

static void plans_that_ask_for_what_cannot_be_are_refused(void **state) {
    (void)state;
    struct fixture fix;
    begin(&fix, ENGINE_TIED, 1);
    struct weft_step_start start = make_start(&fix, 0, 20, &mean);
    start.n_cached = start.n_written = 16;
    assert_refused(&fix, &start, "16 cached");
    start = make_start(&fix, 0, 20, &last);
    start.n_prompt = 19;
    assert_refused(&fix, &start, "a prompt of 19");
    start = make_start(&fix, 0, 20, &last);
    start.sampling.max_tokens = 1;
    assert_refused(&fix, &start, "no tokens");
    start = make_start(&fix, 0, 20, &last);
    start.pooling.kind = WEFT_POOLING_CLASSIFY;
    assert_refused(&fix, &start, "the model lacks");
    start.pooling.kind = WEFT_POOLING_COUNT;
    assert_refused(&fix, &start, "no pooling");
    end(&fix);
}

int main(int argc, char **argv) {
    if (!engine_test_begin("test_engine_pooling", argc, argv)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poolings_are_what_they_say),
        cmocka_unit_test(chunks_and_cached_tokens_change_no_bit),
        cmocka_unit_test(scores_are_logits_after_the_prompt),
        cmocka_unit_test(company_changes_no_bit),
        cmocka_unit_test(plans_that_ask_for_what_cannot_be_are_refused),
    };
    return cmocka_run_group_tests_name("engine_pooling", tests, NULL, NULL);
}
