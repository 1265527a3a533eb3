/* The worker's queue of adapters, over a stepper that does what a case says: what stays from one scheduler
 * to the next, and what goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "inside/cmd_worker/lora_queue.h"

static struct {
    sem_t may_load, began; /* a post for each load */
    uint64_t has[8];       /* what the engine has */
    uint32_t n, max;
} eng;

weft_err wefti_stepper_add_lora(wefti_stepper *st, uint64_t id, const char *path,
                                struct weft_eng_lora *info_out, struct weft_errmsg *why) {
    (void)st;
    (void)path;
    (void)sem_post(&eng.began);
    (void)sem_wait(&eng.may_load);
    *info_out = (struct weft_eng_lora){.digest = {1, id}, .bytes = 10};
    for (uint32_t i = 0; i < eng.n; i++) {
        if (eng.has[i] == id) return WEFT_OK;
    }
    if (eng.n == eng.max) return weft_err_set(why, WEFT_E_FULL, "no more than %u", eng.max);
    eng.has[eng.n++] = id;
    return WEFT_OK;
}

weft_err wefti_stepper_remove_lora(wefti_stepper *st, uint64_t id) {
    (void)st;
    for (uint32_t i = 0; i < eng.n; i++) {
        if (eng.has[i] == id) eng.has[i] = eng.has[--eng.n];
    }
    return WEFT_OK;
}

bool wefti_stepper_is_removing(const wefti_stepper *st) {
    (void)st;
    return false;
}

static bool has(uint64_t id) {
    bool is_there = false;
    for (uint32_t i = 0; i < eng.n; i++)
        is_there |= eng.has[i] == id;
    return is_there;
}

static int wake_fd;

static int setup(void **state) {
    wefti_lora_queue *l = NULL;
    struct weft_errmsg why;
    eng.n = 0;
    eng.max = 8;
    assert_int_equal(sem_init(&eng.may_load, 0, 0), 0);
    assert_int_equal(sem_init(&eng.began, 0, 0), 0);
    wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(wake_fd >= 0);
    assert_int_equal(wefti_lora_queue_start(NULL, wake_fd, &l, &why), WEFT_OK);
    *state = l;
    return 0;
}

static int teardown(void **state) {
    (void)sem_post(&eng.may_load); /* whatever may be under way */
    assert_true(wefti_lora_queue_stop(*state, 60000));
    (void)close(wake_fd);
    return 0;
}

static void add(wefti_lora_queue *l, uint64_t id) {
    const struct weft_msg_add_lora msg = {.id = id, .path = "/a"};
    assert_int_equal(wefti_lora_queue_add(l, &msg), WEFT_OK);
}

/* What is under way is loaded, or cannot be. */
static struct weft_msg_lora await_answer(wefti_lora_queue *l) {
    struct weft_msg_lora answer;
    struct pollfd fd = {.fd = wake_fd, .events = POLLIN};
    uint64_t count;
    (void)sem_post(&eng.may_load);
    while (!wefti_lora_queue_next(l, &answer)) {
        assert_int_equal(poll(&fd, 1, 60000), 1);
        assert_int_equal(read(wake_fd, &count, sizeof count), sizeof count);
    }
    return answer;
}

/* It is loaded; its number. */
static uint64_t finish(wefti_lora_queue *l) {
    struct weft_msg_lora answer = await_answer(l);
    assert_true(answer.is_there);
    return answer.id;
}

static void expect_idle(wefti_lora_queue *l) {
    struct weft_msg_lora answer;
    assert_false(wefti_lora_queue_next(l, &answer));
}

static void load(wefti_lora_queue *l, uint64_t id) {
    add(l, id);
    assert_int_equal(finish(l), id);
}

static void what_a_new_scheduler_does_not_ask_for_goes_with_its_first_plan(void **state) {
    wefti_lora_queue *l = *state;
    load(l, 7);
    load(l, 8);
    wefti_lora_queue_new_session(l);
    load(l, 8);
    assert_true(has(7));
    wefti_lora_queue_first_plan(l);
    expect_idle(l);
    assert_false(has(7));
    assert_true(has(8));
}

static void what_it_asked_for_stays_though_the_plan_comes_before_the_answer(void **state) {
    wefti_lora_queue *l = *state;
    load(l, 7);
    wefti_lora_queue_new_session(l);
    add(l, 7);
    wefti_lora_queue_first_plan(l);
    assert_int_equal(finish(l), 7);
    expect_idle(l);
    assert_true(has(7));
}

/* One whose load the old scheduler asked for, in the midst of which the new one begins. */
static void begin_and_change_sessions(wefti_lora_queue *l) {
    add(l, 7);
    expect_idle(l);
    assert_int_equal(sem_wait(&eng.began), 0);
    wefti_lora_queue_new_session(l);
}

static void a_load_of_an_old_session_goes_with_the_first_plan(void **state) {
    wefti_lora_queue *l = *state;
    begin_and_change_sessions(l);
    assert_int_equal(finish(l), 7);
    expect_idle(l);
    assert_true(has(7)); /* it may be asked for yet */
    wefti_lora_queue_first_plan(l);
    expect_idle(l);
    assert_false(has(7));
}

static void a_load_of_an_old_session_goes_after_the_first_plan(void **state) {
    wefti_lora_queue *l = *state;
    begin_and_change_sessions(l);
    wefti_lora_queue_first_plan(l);
    assert_int_equal(finish(l), 7);
    expect_idle(l);
    assert_false(has(7));
}

static void a_load_of_an_old_session_stays_if_the_new_one_asks_for_it(void **state) {
    wefti_lora_queue *l = *state;
    begin_and_change_sessions(l);
    add(l, 7);
    wefti_lora_queue_first_plan(l);
    assert_int_equal(finish(l), 7);
    assert_int_equal(finish(l), 7);
    expect_idle(l);
    wefti_lora_queue_first_plan(l);
    expect_idle(l);
    assert_true(has(7));
}

static void what_an_old_session_left_makes_room(void **state) {
    wefti_lora_queue *l = *state;
    eng.max = 3;
    for (uint64_t id = 5; id <= 7; id++)
        load(l, id);
    add(l, 8);
    assert_false(await_answer(l).is_there); /* all places are this session's */
    wefti_lora_queue_new_session(l);
    add(l, 6);
    add(l, 8);
    assert_int_equal(wefti_lora_queue_remove(l, 8), WEFT_OK); /* its turn is behind that */
    (void)sem_post(&eng.may_load);                            /* a second time */
    assert_int_equal(finish(l), 6);
    assert_int_equal(finish(l), 8);
    expect_idle(l);
    for (uint64_t id = 5; id <= 8; id++)
        assert_int_equal(has(id), id == 6);
}

static void a_load_that_hangs_keeps_nobody_from_leaving(void **state) {
    wefti_lora_queue *l = *state;
    add(l, 7);
    expect_idle(l);
    assert_int_equal(sem_wait(&eng.began), 0);
    assert_false(wefti_lora_queue_stop(l, 1));
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(what_a_new_scheduler_does_not_ask_for_goes_with_its_first_plan),
        CASE(what_it_asked_for_stays_though_the_plan_comes_before_the_answer),
        CASE(a_load_of_an_old_session_goes_with_the_first_plan),
        CASE(a_load_of_an_old_session_goes_after_the_first_plan),
        CASE(a_load_of_an_old_session_stays_if_the_new_one_asks_for_it),
        CASE(what_an_old_session_left_makes_room),
        CASE(a_load_that_hangs_keeps_nobody_from_leaving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
