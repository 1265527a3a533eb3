/* Sessions that are saved and restored, as the scheduler asks its worker for it: what is held
 * meanwhile, and whose turn it is. The worker's files are made up here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "scheduler/sessions.h"
#include "unit/sched_bench.h"

static const struct weft_str talk = {"talk", 4}, name = {"file", 4};

static struct weft_sched_options options_of(uint32_t n_blocks) {
    struct weft_sched_options options = bench_options();
    options.prefix_cache = true;
    options.n_blocks = n_blocks;
    options.session_ttl_us = 60000000;
    options.max_sessions = 4;
    options.max_session_blocks = n_blocks / 2;
    return options;
}

static int make_bench(void **state) {
    struct weft_sched_options options = options_of(64);
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    weft_sched_check(((struct bench *)*state)->sched);
    bench_free(*state);
    return 0;
}

static struct weft_submit request(struct bench *bench, uint64_t id, uint32_t n_prompt) {
    struct weft_submit submit = bench_request(bench, id, n_prompt, 4);
    submit.session_id = talk;
    return submit;
}

static void run(struct bench *bench, uint64_t id, uint32_t n_prompt) {
    struct weft_submit submit = request(bench, id, n_prompt);
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
}

static void ask_as(struct bench *bench, uint32_t router, uint64_t id, enum weft_session_op op) {
    const struct weft_session_wish wish = {.id = id, .op = op, .session_id = talk, .file = name};
    struct weft_errmsg why;
    assert_int_equal(weft_sched_session_ask(bench->sched, bench->now_us, router, &wish, &why),
                     WEFT_OK);
}

static void ask(struct bench *bench, uint64_t id, enum weft_session_op op) {
    ask_as(bench, 3, id, op);
}

static struct weft_session_answer await_answer(struct bench *bench, uint64_t id) {
    struct weft_session_answer answer;
    uint32_t router;
    assert_true(weft_sched_session_answered(bench->sched, &router, &answer));
    assert_int_equal(router, 3);
    assert_int_equal(answer.id, id);
    return answer;
}

static const struct weft_kv_file *next_file(struct bench *bench) {
    const struct weft_kv_file *file = NULL;
    weft_sched_check(bench->sched);
    return weft_sched_next_file(bench->sched, &file) ? file : NULL;
}

static void file_done(struct bench *bench, const struct weft_kv_filed *filed) {
    struct weft_errmsg why;
    assert_int_equal(weft_sched_filed(bench->sched, bench->now_us, filed, &why), WEFT_OK);
    weft_sched_check(bench->sched);
}

/* The worker says that it opened the prompt's first blocks. */
static void open_done(struct bench *bench, const struct weft_kv_file *file, uint32_t n_tokens) {
    const struct weft_kv_filed filed = {.epoch = file->epoch,
                                        .id = file->id,
                                        .text = "",
                                        .n_tokens = n_tokens,
                                        .tokens = bench->prompt};
    file_done(bench, &filed);
}

static void one_is_saved_once_its_plans_are_done(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = request(bench, 1, 21);
    submit.sampling.max_tokens = 40;
    bench_take(bench, &submit);
    for (uint32_t i = 0; i < 4; i++)
        (void)bench_step(bench);
    (void)bench_plan(bench);
    (void)bench_plan(bench);
    bench_cancel(bench, 1);
    ask(bench, 9, WEFT_SESSION_SAVE);
    assert_null(next_file(bench)); /* two plans may write to its blocks */
    bench_run(bench);
    assert_null(next_file(bench));
    bench_run(bench);
    const struct weft_kv_file *file = next_file(bench);
    assert_non_null(file);
    assert_int_equal(file->op, WEFT_KV_FILE_SAVE);
    assert_int_equal(file->n_tokens, 4 * file->n_blocks[WEFT_KV_FULL]);
    assert_memory_equal(file->tokens, bench->prompt, 21 * sizeof *bench->prompt);
    assert_null(next_file(bench)); /* until that one is done */
    const struct weft_kv_filed filed = {
        .epoch = file->epoch, .id = file->id, .text = "", .n_bytes = 1000};
    uint32_t n_tokens = file->n_tokens;
    file_done(bench, &filed);
    struct weft_session_answer answer = await_answer(bench, 9);
    assert_int_equal(answer.err, WEFT_OK);
    assert_int_equal(answer.n_tokens, n_tokens);
    assert_int_equal(answer.n_bytes, 1000);
    bench_run_until_idle(bench, true);
}

static void what_is_being_saved_stays_though_its_session_goes(void **state) {
    struct bench *bench = *state;
    run(bench, 1, 21);
    ask(bench, 9, WEFT_SESSION_SAVE);
    const struct weft_kv_file *file = next_file(bench);
    assert_non_null(file);
    weft_sched_reset_cache(bench->sched);
    assert_int_equal(bench_stats(bench).n_sessions, 0);
    assert_int_equal(bench_stats(bench).n_blocks_free, 64 - 6);
    const struct weft_kv_filed filed = {.epoch = file->epoch, .id = file->id, .text = ""};
    file_done(bench, &filed);
    assert_int_equal(await_answer(bench, 9).err, WEFT_OK);
    assert_int_equal(bench_stats(bench).n_blocks_free, 64);
}

static void one_that_is_not_there_is_not_saved(void **state) {
    struct bench *bench = *state;
    ask(bench, 9, WEFT_SESSION_SAVE);
    assert_null(next_file(bench));
    assert_int_equal(await_answer(bench, 9).err, WEFT_E_NOTFOUND);
}

static void what_is_restored_is_found_by_the_next_turn(void **state) {
    struct bench *bench = *state;
    ask(bench, 9, WEFT_SESSION_RESTORE);
    const struct weft_kv_file *file = next_file(bench);
    assert_int_equal(file->op, WEFT_KV_FILE_OPEN);
    open_done(bench, file, 20);
    file = next_file(bench);
    assert_int_equal(file->op, WEFT_KV_FILE_READ);
    assert_int_equal(file->n_blocks[WEFT_KV_FULL], 5);
    assert_int_equal(bench_stats(bench).n_blocks_free, 64 - 5);
    const struct weft_kv_filed filed = {.epoch = file->epoch, .id = file->id, .text = ""};
    file_done(bench, &filed);
    assert_int_equal(await_answer(bench, 9).n_tokens, 20);
    assert_int_equal(bench_stats(bench).n_sessions, 1);
    assert_int_equal(bench_stats(bench).n_session_blocks, 5);
    /* The worker of this bench has no bytes there: nothing is computed on top of them. */
    struct weft_submit next = request(bench, 2, 25);
    bench_take(bench, &next);
    const struct weft_step_plan *plan = NULL;
    assert_true(weft_sched_plan(bench->sched, bench->now_us, &plan));
    assert_int_equal(plan->starts[0].n_cached, 20);
    bench_cancel(bench, 2);
    bench_lose_worker(bench);
}

static void what_is_cached_already_is_not_read(void **state) {
    struct bench *bench = *state;
    run(bench, 1, 9); /* three blocks, of which two are the prompt's */
    assert_true(weft_sched_session_drop(bench->sched, 0, talk) > 0);
    ask(bench, 9, WEFT_SESSION_RESTORE);
    open_done(bench, next_file(bench), 20);
    const struct weft_kv_file *file = next_file(bench);
    assert_int_equal(file->n_blocks[WEFT_KV_FULL], 3);
    const struct weft_kv_filed filed = {
        .epoch = file->epoch, .id = file->id, .err = WEFT_E_PROTO, .text = "'file' is damaged"};
    file_done(bench, &filed);
    struct weft_session_answer answer = await_answer(bench, 9);
    assert_int_equal(answer.err, WEFT_E_PROTO);
    assert_string_equal(answer.text, "'file' is damaged");
    assert_int_equal(bench_stats(bench).n_sessions, 0);
    assert_int_equal(bench_stats(bench).n_blocks_free, 64);
}

static void files_that_do_not_fit_are_refused(void **state) {
    struct bench *bench = *state;
    static const uint32_t n_tokens[] = {0, 3, 132, 128 + 4};
    for (uint32_t i = 0; i < 4; i++) {
        ask(bench, i, WEFT_SESSION_RESTORE);
        open_done(bench, next_file(bench), n_tokens[i]);
        assert_int_equal(await_answer(bench, i).err, WEFT_E_TOOBIG);
    }
}

static void one_that_finds_no_blocks_to_spare_is_worth_another_try(void **state) {
    bench_free(*state);
    struct weft_sched_options options = options_of(16);
    struct bench *bench = *state = bench_new(&options);
    struct weft_submit submit = request(bench, 1, 44);
    submit.prompt = bench->prompt + 1; /* its blocks are others than the file's */
    bench_take(bench, &submit);
    for (uint32_t i = 0; i < 3; i++)
        (void)bench_step(bench);
    ask(bench, 9, WEFT_SESSION_RESTORE);
    open_done(bench, next_file(bench), 32);
    assert_int_equal(await_answer(bench, 9).err, WEFT_E_AGAIN);
    bench_run_until_idle(bench, true);
}

static void the_next_router_hears_nothing_of_what_a_lost_one_asked(void **state) {
    struct bench *bench = *state;
    struct weft_session_answer answer;
    uint32_t router;
    ask(bench, 1, WEFT_SESSION_RESTORE);
    ask(bench, 2, WEFT_SESSION_RESTORE);
    ask_as(bench, 5, 1, WEFT_SESSION_RESTORE);
    const struct weft_kv_file *file = next_file(bench);
    weft_sched_router_lost(bench->sched, bench->now_us, 3);
    ask(bench, 1, WEFT_SESSION_RESTORE); /* of another router in its place */
    for (uint32_t i = 0; i < 3; i++) {
        assert_non_null(file);
        assert_false(weft_sched_session_answered(bench->sched, &router, &answer));
        const struct weft_kv_filed filed = {
            .epoch = file->epoch, .id = file->id, .err = WEFT_E_PROTO, .text = "damaged"};
        file_done(bench, &filed);
        bool is_told = weft_sched_session_answered(bench->sched, &router, &answer);
        assert_int_equal(is_told, i > 0); /* the first has ended, and the second has not begun */
        if (is_told) assert_int_equal(router, i == 1 ? 5u : 3u);
        file = next_file(bench);
    }
    assert_null(file);
}

static void who_runs_alone_waits_for_a_file(void **state) {
    struct weft_sched_options options = options_of(16);
    bench_free(*state);
    struct bench *bench = *state = bench_new(&options);
    struct weft_submit submit = bench_request(bench, 1, 6, 56);
    uint32_t prompt[6] = {9, 8, 7, 6, 5, 4};
    submit.prompt = prompt;
    bench_take(bench, &submit);
    (void)bench_step(bench);
    ask(bench, 9, WEFT_SESSION_RESTORE);
    open_done(bench, next_file(bench), 32); /* half of the blocks */
    uint32_t n = 0;
    while (bench_step(bench))
        n++;
    assert_true(n > 10 && n < 56); /* no block is left for it */
    const struct weft_kv_file *file = next_file(bench);
    const struct weft_kv_filed filed = {.epoch = file->epoch, .id = file->id, .text = ""};
    file_done(bench, &filed);
    assert_int_equal(await_answer(bench, 9).err, WEFT_OK);
    assert_int_equal(bench_stats(bench).n_sessions, 1);
    bench_run_until_idle(bench, true); /* the session gives way */
    assert_int_equal(bench_n_tokens(bench, 1), 56);
    assert_int_equal(bench_stats(bench).n_sessions, 0);
    assert_int_equal(bench_stats(bench).n_preemptions, 0);
}

static void a_lost_worker_ends_all_of_them(void **state) {
    struct bench *bench = *state;
    run(bench, 1, 21);
    ask(bench, 1, WEFT_SESSION_SAVE);
    ask(bench, 2, WEFT_SESSION_RESTORE);
    assert_non_null(next_file(bench));
    bench_lose_worker(bench);
    assert_int_equal(await_answer(bench, 1).err, WEFT_E_CLOSED);
    assert_int_equal(await_answer(bench, 2).err, WEFT_E_CLOSED);
    assert_null(next_file(bench));
    assert_int_equal(bench_stats(bench).n_blocks_free, 64);
}

static void there_are_only_so_many(void **state) {
    struct bench *bench = *state;
    const struct weft_session_wish wish = {
        .op = WEFT_SESSION_RESTORE, .session_id = talk, .file = name};
    struct weft_errmsg why;
    for (uint32_t i = 0; i < WEFT_SCHED_FILES_MAX; i++)
        ask(bench, i, WEFT_SESSION_RESTORE);
    assert_int_equal(weft_sched_session_ask(bench->sched, bench->now_us, 0, &wish, &why),
                     WEFT_E_AGAIN);
    const struct weft_kv_filed nobodys = {.id = 77, .text = ""};
    assert_int_equal(weft_sched_filed(bench->sched, bench->now_us, &nobodys, &why), WEFT_E_PROTO);
}

static void a_tenant_lists_its_own(void **state) {
    struct bench *bench = *state;
    struct weft_session_told told[4];
    run(bench, 1, 21);
    bench->now_us += 5000;
    assert_int_equal(weft_sched_session_list(bench->sched, bench->now_us, 1, told, 4), 0);
    assert_int_equal(weft_sched_session_list(bench->sched, bench->now_us, 0, told, 4), 1);
    assert_true(weft_str_is(told[0].id, "talk", 4));
    assert_int_equal(told[0].n_tokens, 24);
    assert_int_equal(told[0].n_blocks, 6);
    assert_true(told[0].idle_us >= 5000);
    assert_int_equal(weft_sched_session_drop(bench->sched, 1, talk), 0);
    assert_int_equal(weft_sched_session_drop(bench->sched, 0, talk), 24);
    assert_int_equal(bench_stats(bench).n_sessions, 0);
}

static struct bench *remake_recurrent(void **state, uint32_t n_checkpoints) {
    struct weft_sched_options options = options_of(64);
    options.is_recurrent = true;
    options.n_checkpoints = n_checkpoints;
    options.checkpoint_tokens = 8;
    bench_free(*state);
    return *state = bench_new(&options);
}

/* Up to the last checkpoint, which nobody else has meanwhile; restored it has one again. */
static void a_state_goes_into_the_file_and_back(void **state) {
    struct bench *bench = remake_recurrent(state, 4);
    run(bench, 1, 21);
    assert_int_equal(bench_stats(bench).n_checkpoints_held, 1);
    ask(bench, 9, WEFT_SESSION_SAVE);
    const struct weft_kv_file *file = next_file(bench);
    assert_int_equal(file->n_tokens, 20);
    assert_int_equal(file->n_blocks[WEFT_KV_FULL], 5);
    assert_int_equal(file->n_blocks[WEFT_KV_WINDOWED], 1);
    assert_int_equal(bench_stats(bench).n_checkpoints_held, 0);
    const struct weft_kv_filed saved = {.epoch = file->epoch, .id = file->id, .text = ""};
    file_done(bench, &saved);
    assert_int_equal(await_answer(bench, 9).n_tokens, 20);
    assert_int_equal(bench_stats(bench).n_checkpoints_held, 1);
    weft_sched_reset_cache(bench->sched);
    assert_int_equal(bench_stats(bench).n_checkpoints_held, 0);
    ask(bench, 10, WEFT_SESSION_RESTORE);
    open_done(bench, next_file(bench), 20);
    file = next_file(bench);
    assert_int_equal(file->op, WEFT_KV_FILE_READ);
    assert_int_equal(file->n_blocks[WEFT_KV_WINDOWED], 1);
    const struct weft_kv_filed restored = {.epoch = file->epoch, .id = file->id, .text = ""};
    uint32_t place = file->blocks[WEFT_KV_WINDOWED][0];
    file_done(bench, &restored);
    assert_int_equal(await_answer(bench, 10).n_tokens, 20);
    struct weft_submit next = request(bench, 2, 25);
    const struct weft_step_plan *plan = NULL;
    bench_take(bench, &next);
    assert_true(weft_sched_plan(bench->sched, bench->now_us, &plan));
    assert_int_equal(plan->starts[0].n_cached, 20);
    assert_int_equal(plan->states[0].op, WEFT_STATE_LOAD);
    assert_int_equal(plan->states[0].other, place);
    bench_cancel(bench, 2); /* the worker of this bench has no bytes there */
    bench_lose_worker(bench);
}

/* The only one is kept for a prompt whose block is not published yet. */
static void one_without_a_place_for_its_state_is_worth_another_try(void **state) {
    struct bench *bench = remake_recurrent(state, 1);
    ask(bench, 9, WEFT_SESSION_RESTORE);
    const struct weft_kv_file *file = next_file(bench);
    struct weft_submit submit = request(bench, 1, 13);
    bench_take(bench, &submit);
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_int_equal(plan->n_states, 1);
    open_done(bench, file, 20);
    struct weft_session_answer answer = await_answer(bench, 9);
    assert_int_equal(answer.err, WEFT_E_AGAIN);
    if (!strstr(answer.text, "checkpoint")) fail_msg("%s", answer.text);
    assert_int_equal(bench_stats(bench).n_sessions, 0);
    bench_run(bench);
    bench_run_until_idle(bench, true);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)
    const struct CMUnitTest tests[] = {
        CASE(one_is_saved_once_its_plans_are_done),
        CASE(what_is_being_saved_stays_though_its_session_goes),
        CASE(one_that_is_not_there_is_not_saved),
        CASE(what_is_restored_is_found_by_the_next_turn),
        CASE(what_is_cached_already_is_not_read),
        CASE(files_that_do_not_fit_are_refused),
        CASE(one_that_finds_no_blocks_to_spare_is_worth_another_try),
        CASE(the_next_router_hears_nothing_of_what_a_lost_one_asked),
        CASE(who_runs_alone_waits_for_a_file),
        CASE(a_lost_worker_ends_all_of_them),
        CASE(there_are_only_so_many),
        CASE(a_tenant_lists_its_own),
        CASE(a_state_goes_into_the_file_and_back),
        CASE(one_without_a_place_for_its_state_is_worth_another_try),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
