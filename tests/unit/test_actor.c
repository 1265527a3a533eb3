/* The requests of an actor to the kernel when it starts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/actor.h"

struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

static struct attr get(void) {
    struct attr attr = {.size = sizeof attr};
    assert_int_equal(syscall(SYS_sched_getattr, 0, &attr, (unsigned)sizeof attr, 0), 0);
    return attr;
}

/* The kernel's answer to a slice of 5 ms: the same, or nothing. */
static bool kernel_has_slices(void) {
    struct attr attr = get(), before = attr;
    attr.size = before.size = sizeof attr;
    attr.runtime_ns = 5000000;
    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
    bool has = get().runtime_ns == 5000000;
    before.runtime_ns = 0;
    (void)syscall(SYS_sched_setattr, 0, &before, 0);
    return has;
}

static void *get_in_thread(void *out) {
    *(struct attr *)out = get();
    return NULL;
}

static void threads_ask_for_short_slices_and_change_nothing_else(void **state) {
    (void)state;
    struct weft_config config = {.status_fd = -1};
    bool has = kernel_has_slices();
    (void)setpriority(PRIO_PROCESS, 0, 3);
    struct attr before = get(), after, thread;
    weft_actor_init("test", &config);
    after = get();
    assert_int_equal(after.policy, before.policy);
    assert_int_equal(after.nice, before.nice);
    if (!has) {
        (void)printf("SKIPPED: this kernel gives every thread the same slice\n");
        skip();
    }
    assert_int_equal(after.runtime_ns, 100000);
    pthread_t handle;
    assert_int_equal(pthread_create(&handle, NULL, get_in_thread, &thread), 0);
    assert_int_equal(pthread_join(handle, NULL), 0);
    assert_int_equal(thread.runtime_ns, 100000);
    assert_int_equal(thread.nice, before.nice);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_ask_for_short_slices_and_change_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
