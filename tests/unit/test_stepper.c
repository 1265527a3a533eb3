/* The step threads of a model divided among two ranks, with a control for each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "inside/cmd_worker/stepper.h"

enum { RANKS = 2, PROMPT = 5, LIMIT_MS = 30 * 1000 };

struct ranks {
    weft_coll *coll;
    struct wefti_group groups[RANKS];
    wefti_stepper *steppers[RANKS];
};

static const char *model_path(void) {
    static char path[4096];
    if (!path[0]) /* later the threads of steppers read it */
        (void)snprintf(path, sizeof path, "%s/tests/data/fable-draft-1m",
                       getenv("WEFT_SOURCE_DIR"));
    return path;
}

static void small_options(struct weft_eng_options options[RANKS]) {
    for (uint32_t i = 0; i < RANKS; i++) {
        weft_eng_options_init(&options[i]);
        options[i].max_seqs = 2;
        options[i].max_model_len = 64;
        options[i].kv_memory_bytes = 1u << 20;
        options[i].n_threads = 1;
    }
}

static void start(struct ranks *r, const struct weft_eng_options options[RANKS]) {
    struct weft_errmsg why = {""};
    int fd;
    *r = (struct ranks){0};
    assert_int_equal(weft_coll_create(RANKS, &fd, &why), WEFT_OK);
    assert_int_equal(weft_coll_open(fd, 0, &r->coll, &why), WEFT_OK);
    (void)close(fd);
    for (uint32_t i = 0; i < RANKS; i++) {
        r->groups[i] = (struct wefti_group){.coll = r->coll, .rank = i, .n_ranks = RANKS};
        if (wefti_stepper_start(model_path(), &options[i], &r->groups[i], &r->steppers[i], &why))
            fail_msg("%s", why.text);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        for (uint32_t ms = 0; wefti_stepper_engine(r->steppers[i], &why) == WEFTI_ENGINE_OPENING;
             ms++) {
            assert_true(ms < LIMIT_MS);
            (void)usleep(1000);
        }
        if (wefti_stepper_engine(r->steppers[i], &why) != WEFTI_ENGINE_OPEN)
            fail_msg("rank %u: %s", i, why.text);
    }
}

static void stop(struct ranks *r) {
    for (uint32_t i = 0; i < RANKS; i++)
        assert_true(wefti_stepper_stop(r->steppers[i], LIMIT_MS));
    weft_coll_close(r->coll);
}

/* Has the group run a plan; the result lies in the slot, which is to be given back. */
static struct wefti_slot *run(struct ranks *r, const struct weft_step_plan *plan) {
    wefti_stepper *first = r->steppers[0];
    struct wefti_slot *slot = wefti_stepper_slot(first), *done;
    struct weft_msg msg = {.type = WEFT_MSG_PLAN, .plan = *plan};
    struct weft_errmsg why = {""};
    struct pollfd news = {.fd = wefti_stepper_fd(first), .events = POLLIN};
    weft_buf_clear(&slot->bytes);
    weft_proto_encode(&msg, &slot->bytes);
    if (weft_proto_decode(slot->decoder, slot->bytes.data, slot->bytes.len, &slot->msg, &why))
        fail_msg("%s", why.text);
    assert_int_equal(wefti_stepper_submit(first, slot), WEFT_OK);
    while (!(done = wefti_stepper_done(first))) {
        assert_int_equal(poll(&news, 1, LIMIT_MS), 1);
        wefti_stepper_clear(first);
    }
    if (done->err)
        fail_msg("epoch %llu, step %llu: %s", (unsigned long long)plan->epoch,
                 (unsigned long long)plan->step, done->why.text);
    return done;
}

static struct weft_step_out run_one(struct ranks *r, const struct weft_step_plan *plan) {
    struct wefti_slot *done = run(r, plan);
    struct weft_msg msg;
    struct weft_errmsg why = {""};
    if (weft_proto_decode(done->decoder, done->result.data, done->result.len, &msg, &why))
        fail_msg("%s", why.text);
    assert_int_equal(msg.type, WEFT_MSG_RESULT);
    assert_int_equal(msg.result.n_outs, 1);
    struct weft_step_out out = msg.result.outs[0];
    wefti_stepper_give_back(r->steppers[0], done);
    return out;
}

/* Step `step` of an epoch in which a sequence runs alone. Returns its news. */
static struct weft_step_out step(struct ranks *r, uint64_t epoch, uint64_t step_idx) {
    static const uint32_t tokens[PROMPT] = {1, 2, 3, 4, 5}, blocks[2] = {0, 1};
    struct weft_step_start begin = {
        .gen = 1, .tokens = tokens, .n_tokens = PROMPT, .n_prompt = PROMPT};
    weft_sampling_init(&begin.sampling);
    begin.sampling.max_tokens = 100;
    const struct weft_step_grant grant = {.gen = 1, .n_blocks = 2, .blocks = blocks};
    const struct weft_step_row row = {.gen = 1, .n_tokens = step_idx == 0 ? PROMPT : 1};
    const struct weft_step_plan plan = {.epoch = epoch,
                                        .step = step_idx,
                                        .n_starts = step_idx == 0,
                                        .starts = &begin,
                                        .n_grants = step_idx == 0,
                                        .grants = &grant,
                                        .n_rows = 1,
                                        .rows = &row};
    return run_one(r, &plan);
}

static void assert_all_ran(const struct ranks *r, uint64_t n_steps) {
    struct weft_errmsg why = {""};
    for (uint32_t i = 0; i < RANKS; i++) {
        for (uint32_t ms = 0; wefti_stepper_n_steps(r->steppers[i]) < n_steps; ms++) {
            if (wefti_stepper_check_group(r->steppers[i], &why))
                fail_msg("rank %u: %s", i, why.text);
            assert_true(ms < LIMIT_MS);
            (void)usleep(1000);
        }
    }
}

static void ranks_go_by_what_all_of_them_have_room_for(void **state) {
    (void)state;
    struct ranks r;
    struct weft_eng_options options[RANKS];
    struct weft_step_out out = {.finish = WEFT_END_NONE};
    small_options(options);
    options[1].max_model_len = 32;
    options[1].kv_memory_bytes /= 2;
    start(&r, options);
    const struct weft_eng_info *first = wefti_stepper_info(r.steppers[0]),
                               *second = wefti_stepper_info(r.steppers[1]);
    assert_int_equal(first->max_model_len, 32);
    assert_int_equal(first->n_blocks, second->n_blocks);
    assert_int_equal(first->kv_bytes, second->kv_bytes);
    assert_in_range(first->kv_bytes, 1, options[1].kv_memory_bytes);
    assert_int_equal(wefti_stepper_reset(r.steppers[0], 7), WEFT_OK);
    for (uint32_t i = 0; PROMPT + i < 32; i++) {
        assert_int_equal(out.finish, WEFT_END_NONE);
        out = step(&r, 7, i);
    }
    assert_int_equal(out.finish, WEFT_END_LENGTH);
    assert_all_ran(&r, 32 - PROMPT);
    stop(&r);
}

static void ranks_follow_the_first_one_into_any_epoch(void **state) {
    (void)state;
    static const uint64_t epochs[] = {5, 4, 4, UINT64_MAX, 1};
    struct ranks r;
    struct weft_eng_options options[RANKS];
    uint32_t n_epochs = sizeof epochs / sizeof epochs[0], token = 0;
    small_options(options);
    start(&r, options);
    for (uint32_t i = 0; i < n_epochs; i++) {
        assert_int_equal(wefti_stepper_reset(r.steppers[0], epochs[i]), WEFT_OK);
        uint32_t first = step(&r, epochs[i], 0).token;
        if (i == 0) token = first;
        assert_int_equal(first, token);
        (void)step(&r, epochs[i], 1);
        assert_all_ran(&r, 2 * (i + 1));
    }
    stop(&r);
}

static void the_first_rank_hears_of_the_end_with_nothing_to_do(void **state) {
    (void)state;
    struct ranks r;
    struct weft_eng_options options[RANKS];
    struct weft_errmsg why = {""};
    small_options(options);
    start(&r, options);
    assert_int_equal(wefti_stepper_check_group(r.steppers[0], &why), WEFT_OK);
    assert_true(wefti_stepper_stop(r.steppers[1], LIMIT_MS));
    assert_int_equal(wefti_stepper_check_group(r.steppers[0], &why), WEFT_E_CLOSED);
    assert_string_equal(why.text, "the group was ended");
    r.steppers[1] = NULL;
    stop(&r);
}

static void *meet_main(void *coll) {
    assert_int_equal(weft_coll_join(coll, 0, NULL), WEFT_OK);
    assert_int_equal(weft_coll_meet(coll, 0, NULL, NULL), WEFT_E_CLOSED);
    weft_coll_leave(coll, 0);
    return NULL;
}

static void the_first_rank_knows_how_far_all_are_and_who_is_awaited(void **state) {
    (void)state;
    struct weft_errmsg why = {""};
    struct wefti_group groups[RANKS];
    pthread_t thread;
    uint32_t rank = 7, pid = 7;
    int fd;
    assert_int_equal(weft_coll_create(RANKS, &fd, &why), WEFT_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        const struct weft_config config = {.n_ranks = RANKS, .rank = i, .group_fd = fd};
        if (wefti_group_open(&groups[i], &config, &why)) fail_msg("%s", why.text);
        if (weft_coll_reserve(groups[i].coll, 1, 0, &why)) fail_msg("%s", why.text);
    }
    (void)close(fd);
    assert_int_equal(wefti_group_progress(&groups[0], 10), 10);
    assert_int_equal(wefti_group_progress(&groups[1], 5), 15);
    assert_int_equal(wefti_group_progress(&groups[0], 10), 15); /* though it stands still itself */
    wefti_group_awaited(&groups[0], &rank, &pid);
    assert_int_equal(rank, 0);
    assert_int_equal(pid, 0);
    assert_int_equal(pthread_create(&thread, NULL, meet_main, groups[0].coll), 0);
    for (uint32_t ms = 0; rank == 0; ms++) {
        assert_true(ms < LIMIT_MS);
        (void)usleep(1000);
        wefti_group_awaited(&groups[0], &rank, &pid);
    }
    assert_int_equal(rank, 1);
    assert_int_equal(pid, getpid());
    weft_coll_abort(groups[0].coll);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (uint32_t i = 0; i < RANKS; i++)
        wefti_group_close(&groups[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_go_by_what_all_of_them_have_room_for),
        cmocka_unit_test(ranks_follow_the_first_one_into_any_epoch),
        cmocka_unit_test(the_first_rank_hears_of_the_end_with_nothing_to_do),
        cmocka_unit_test(the_first_rank_knows_how_far_all_are_and_who_is_awaited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
