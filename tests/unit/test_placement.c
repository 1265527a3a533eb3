/* Which CPUs each of several workers gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inside/cmd_weft/serve/placement.h"

static struct weft_placement placement;

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_machines_cpus_come_node_by_node),
        cmocka_unit_test(parts_are_equal_and_make_up_the_whole),
        cmocka_unit_test(a_worker_per_node_lies_on_it),
        cmocka_unit_test(nodes_of_unequal_size_have_as_many_workers),
        cmocka_unit_test(workers_beyond_the_cpus_share_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
