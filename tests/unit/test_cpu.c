#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"

static void at_least_one_cpu_is_allowed_and_they_ascend(void **state) {
    (void)state;
    uint32_t cpus[WEFT_CPUS_MAX];
    uint32_t n = weft_cpu_allowed(cpus);
    assert_in_range(n, 1, WEFT_CPUS_MAX);
    assert_true(n <= sysconf(_SC_NPROCESSORS_CONF));
    for (uint32_t i = 1; i < n; i++)
        assert_true(cpus[i] > cpus[i - 1]);
}

struct pinning {
    uint32_t cpu, n_allowed, allowed[WEFT_CPUS_MAX];
    bool worked;
};

static void *pin(void *arg) {
    struct pinning *p = arg;
    p->worked = weft_cpu_pin(p->cpu);
    p->n_allowed = weft_cpu_allowed(p->allowed);
    return NULL;
}

static void pinning_leaves_a_thread_one_cpu_and_the_others_theirs(void **state) {
    (void)state;
    static struct pinning p;
    uint32_t before[WEFT_CPUS_MAX], after[WEFT_CPUS_MAX];
    uint32_t n = weft_cpu_allowed(before);
    p.cpu = before[n - 1];
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, pin, &p), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(p.worked);
    assert_int_equal(p.n_allowed, 1);
    assert_int_equal(p.allowed[0], p.cpu);
    assert_int_equal(weft_cpu_allowed(after), n);
}

static void pinning_to_a_cpu_that_is_not_there_fails(void **state) {
    (void)state;
    assert_false(weft_cpu_pin(UINT32_MAX));
    assert_false(weft_cpu_pin(1u << 20));
}

static void the_quota_of_this_process_is_stable_and_plausible(void **state) {
    (void)state;
    uint32_t quota = weft_cpu_quota();
    assert_int_equal(weft_cpu_quota(), quota);
    assert_true(quota <= 1u << 16);
}

static void available_memory_is_some_but_not_more_than_there_is(void **state) {
    (void)state;
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t available = weft_mem_available_bytes();
    assert_true(available > 1 << 20);
    assert_true(available <= all);
}

static void resident_memory_grows_by_what_is_touched(void **state) {
    (void)state;
    size_t n = (size_t)64 << 20;
    uint64_t before = weft_mem_resident_bytes();
    assert_true(before > 1 << 16);
    char *bytes = malloc(n);
    assert_non_null(bytes);
    memset(bytes, 1, n);
    uint64_t after = weft_mem_resident_bytes();
    assert_int_equal(bytes[n / 2], 1); /* keeps the compiler from dropping the block */
    free(bytes);
    assert_true(after >= before + n / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_least_one_cpu_is_allowed_and_they_ascend),
        cmocka_unit_test(pinning_leaves_a_thread_one_cpu_and_the_others_theirs),
        cmocka_unit_test(pinning_to_a_cpu_that_is_not_there_fails),
        cmocka_unit_test(the_quota_of_this_process_is_stable_and_plausible),
        cmocka_unit_test(available_memory_is_some_but_not_more_than_there_is),
        cmocka_unit_test(resident_memory_grows_by_what_is_touched),
    };
    return cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
}
