/* Which CPUs each of several workers gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside/cmd_weft/serve/placement.h"

static struct weft_placement placement;
static struct weft_placement_choice choice;
static struct weft_errmsg why;

static weft_err choose(const struct weft_placement_wish *wish) {
    return weft_placement_choose(&placement, wish, &choice, &why);
}

/* Whether a worker has these CPUs and no others. */
static bool has(uint32_t worker, uint32_t first, uint32_t last) {
    const cpu_set_t *cpus = &choice.workers[worker].cpus;
    for (uint32_t cpu = first; cpu <= last; cpu++) {
        if (!CPU_ISSET(cpu, cpus)) return false;
    }
    return CPU_COUNT(cpus) == (int)(last - first + 1);
}

static void use(uint32_t n_cpus, uint32_t n_nodes) {
    placement.n_cpus = n_cpus;
    for (uint32_t i = 0; i < n_cpus; i++)
        placement.places[i] = (struct weft_place){i * n_nodes / n_cpus, i, i};
}

static void this_machines_cpus_come_node_by_node(void **state) {
    (void)state;
    uint32_t cpus[WEFT_CPUS_MAX];
    weft_placement_read(&placement);
    assert_int_equal(placement.n_cpus, weft_cpu_allowed(cpus));
    for (uint32_t i = 1; i < placement.n_cpus; i++) {
        const struct weft_place *a = &placement.places[i - 1], *b = &placement.places[i];
        assert_true(b->node >= a->node);
        if (b->node == a->node) assert_true(b->core >= a->core);
        if (b->node == a->node && b->core == a->core) assert_true(b->cpu > a->cpu);
    }
    assert_in_range(weft_placement_n_nodes(&placement), 1, placement.n_cpus);
}

static void parts_are_equal_and_make_up_the_whole(void **state) {
    (void)state;
    for (uint32_t n_cpus = 1; n_cpus <= 70; n_cpus++) {
        use(n_cpus, 1);
        for (uint32_t n = 1; n <= n_cpus; n++) {
            uint32_t next = 0;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t begin = 0, end = 0;
                weft_placement_part(&placement, n, i, &begin, &end);
                assert_int_equal(begin, next);
                assert_in_range(end - begin, n_cpus / n, (n_cpus + n - 1) / n);
                next = end;
            }
            assert_int_equal(next, n_cpus);
        }
    }
}

static void a_worker_per_node_lies_on_it(void **state) {
    (void)state;
    use(24, 4);
    assert_int_equal(weft_placement_n_nodes(&placement), 4);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t begin = 0, end = 0;
        weft_placement_part(&placement, 4, i, &begin, &end);
        assert_int_equal(end - begin, 6);
        assert_int_equal(placement.places[begin].node, i);
        assert_int_equal(placement.places[end - 1].node, i);
    }
}

static void nodes_of_unequal_size_have_as_many_workers(void **state) {
    (void)state;
    use(32, 1);
    for (uint32_t i = 24; i < 32; i++)
        placement.places[i].node = 1;
    static const uint32_t ends[] = {12, 24, 28, 32};
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t begin = 0, end = 0;
        weft_placement_part(&placement, 4, i, &begin, &end);
        assert_int_equal(begin, i == 0 ? 0 : ends[i - 1]);
        assert_int_equal(end, ends[i]);
    }
}

static void workers_beyond_the_cpus_share_them(void **state) {
    (void)state;
    uint32_t n_on[3] = {0};
    use(3, 1);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t begin = 0, end = 0;
        weft_placement_part(&placement, 8, i, &begin, &end);
        assert_int_equal(end - begin, 1);
        n_on[begin]++;
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_in_range(n_on[i], 2, 3);
}

static void a_faked_node_without_an_allowed_cpu_does_not_count(void **state) {
    (void)state;
    uint32_t cpus[WEFT_CPUS_MAX], n = weft_cpu_allowed(cpus);
    char fake[64];
    (void)snprintf(fake, sizeof fake, "%u/1023/%u", cpus[0], cpus[n - 1]);
    assert_int_equal(setenv("WEFT_TEST_NUMA", fake, 1), 0);
    weft_placement_read(&placement);
    assert_int_equal(unsetenv("WEFT_TEST_NUMA"), 0);
    assert_int_equal(placement.n_cpus, n);
    assert_int_equal(weft_placement_n_nodes(&placement), n > 1 ? 2 : 1);
}

static void by_default_there_is_a_worker_per_node_bound_to_it(void **state) {
    (void)state;
    use(16, 2);
    assert_int_equal(choose(&(struct weft_placement_wish){0}), WEFT_OK);
    assert_int_equal(choice.n_workers, 2);
    assert_int_equal(choice.n_nodes, 2);
    assert_int_equal(choice.n_cpus, 16);
    assert_true(choice.workers[0].is_bound && has(0, 0, 7));
    assert_true(choice.workers[1].is_bound && has(1, 8, 15));
    assert_int_equal(choice.workers[1].node, 1);
    assert_false(choice.is_crowded);
}

static void on_one_node_one_worker_may_run_anywhere(void **state) {
    (void)state;
    use(16, 1);
    assert_int_equal(choose(&(struct weft_placement_wish){0}), WEFT_OK);
    assert_int_equal(choice.n_workers, 1);
    assert_true(!choice.workers[0].is_bound && !choice.is_crowded && has(0, 0, 15));
}

static void more_workers_than_the_quota_has_cpus_are_never_chosen(void **state) {
    (void)state;
    use(16, 4);
    assert_int_equal(choose(&(struct weft_placement_wish){.n_quota = 3}), WEFT_OK);
    assert_int_equal(choice.n_workers, 3);
    assert_false(choice.is_crowded);
    assert_int_equal(choose(&(struct weft_placement_wish){.n_quota = 3, .n_workers = 4}), WEFT_OK);
    assert_int_equal(choice.n_workers, 4);
    assert_true(choice.is_crowded);
    assert_int_equal(choice.n_cpus, 3);
}

static void lists_place_workers_and_say_how_many_there_are(void **state) {
    (void)state;
    use(16, 2);
    assert_int_equal(choose(&(struct weft_placement_wish){.cpus = "0-2/4-7/8,9"}), WEFT_OK);
    assert_int_equal(choice.n_workers, 3);
    assert_true(has(0, 0, 2) && has(1, 4, 7) && has(2, 8, 9));
    assert_true(choice.workers[0].is_bound && choice.workers[2].is_bound);
    assert_int_equal(choice.workers[1].node, 0);
    assert_int_equal(choice.workers[2].node, 1);
    assert_int_equal(choice.n_nodes, 2);
    assert_false(choice.is_crowded);
    assert_int_equal(choose(&(struct weft_placement_wish){.cpus = "3", .n_workers = 1}), WEFT_OK);
    assert_true(choice.workers[0].is_bound && has(0, 3, 3));
}

static void lists_that_make_no_sense_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *cpus, *says;
        uint32_t n_workers;
    } cases[] = {
        {"0/1/2", "--cpus has 3 lists for 2 workers", 2},
        {"0", "--cpus has 1 list for 2 workers", 2},
        {"0/", "\"\" is none", 0},
        {"0/1-x", "\"1-x\" is none", 0},
        {"0/1/99", "--cpus names CPU 99, which this process may not use", 0},
        {"0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0",
         "33 lists; there are at most 32 workers", 0},
    };
    use(16, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weft_placement_wish wish = {.cpus = cases[i].cpus, .n_workers = cases[i].n_workers};
        assert_int_equal(choose(&wish), WEFT_E_INVAL);
        if (!strstr(why.text, cases[i].says)) fail_msg("\"%s\"", why.text);
    }
}

static void more_threads_than_cpus_are_noticed(void **state) {
    (void)state;
    static const struct {
        struct weft_placement_wish wish;
        bool is_crowded;
    } cases[] = {
        {{.n_threads = 16}, false},
        {{.n_threads = 17}, true},
        {{.n_threads = 8, .n_workers = 2}, false},
        {{.n_threads = 9, .n_workers = 2}, true},
        {{.n_threads = 4, .n_quota = 4}, false},
        {{.n_threads = 5, .n_quota = 4}, true},
        {{.n_workers = 16}, false},
        {{.n_workers = 17}, true},
        {{.n_workers = 2, .n_quota = 3}, false}, /* a thread each */
        {{.cpus = "0-3/4-7"}, false},
        {{.cpus = "0-3/3-7"}, true}, /* both would use CPU 3 */
        {{.cpus = "0-3/3-7", .n_threads = 4}, false},
        {{.cpus = "0/1-7", .n_threads = 2}, true}, /* the first has one */
    };
    use(16, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(choose(&cases[i].wish), WEFT_OK);
        if (choice.is_crowded != cases[i].is_crowded) fail_msg("case %zu", i);
    }
}

static void threads_that_do_not_fit_a_part_leave_workers_free(void **state) {
    (void)state;
    use(16, 2);
    for (uint32_t i = 4; i < 16; i++)
        placement.places[i].node = 1;
    assert_int_equal(choose(&(struct weft_placement_wish){.n_threads = 8}), WEFT_OK);
    assert_int_equal(choice.n_workers, 2);
    assert_true(!choice.workers[0].is_bound && has(0, 0, 15));
    assert_true(choice.workers[1].is_bound && has(1, 4, 15));
    assert_false(choice.is_crowded);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_machines_cpus_come_node_by_node),
        cmocka_unit_test(parts_are_equal_and_make_up_the_whole),
        cmocka_unit_test(a_worker_per_node_lies_on_it),
        cmocka_unit_test(nodes_of_unequal_size_have_as_many_workers),
        cmocka_unit_test(workers_beyond_the_cpus_share_them),
        cmocka_unit_test(a_faked_node_without_an_allowed_cpu_does_not_count),
        cmocka_unit_test(by_default_there_is_a_worker_per_node_bound_to_it),
        cmocka_unit_test(on_one_node_one_worker_may_run_anywhere),
        cmocka_unit_test(more_workers_than_the_quota_has_cpus_are_never_chosen),
        cmocka_unit_test(lists_place_workers_and_say_how_many_there_are),
        cmocka_unit_test(lists_that_make_no_sense_are_refused),
        cmocka_unit_test(more_threads_than_cpus_are_noticed),
        cmocka_unit_test(threads_that_do_not_fit_a_part_leave_workers_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
