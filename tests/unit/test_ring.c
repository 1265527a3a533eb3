#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "base/ring.h"

/* Moves the indices of an empty ring, as if `index` items had passed through it. */
static void start_at(struct weft_ring *ring, uint32_t index) {
    atomic_store(&ring->head, index);
    atomic_store(&ring->tail, index);
    ring->head_seen = ring->tail_seen = index;
}

static void an_empty_ring_gives_nothing_and_a_full_one_takes_nothing(void **state) {
    (void)state;
    struct weft_ring ring;
    uint32_t item = 0;
    assert_int_equal(weft_ring_init(&ring, 4, sizeof item), WEFT_OK);
    assert_false(weft_ring_pop(&ring, &item));
    for (uint32_t i = 0; i < 4; i++)
        assert_true(weft_ring_push(&ring, &i));
    assert_false(weft_ring_push(&ring, &item));
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(weft_ring_pop(&ring, &item));
        assert_int_equal(item, i);
    }
    item = 77;
    assert_false(weft_ring_pop(&ring, &item));
    assert_int_equal(item, 77);
    weft_ring_fini(&ring);
}

static void the_number_of_slots_is_rounded_up_to_a_power_of_two(void **state) {
    (void)state;
    static const uint32_t sizes[][2] = {{1, 1}, {2, 2}, {3, 4}, {5, 8}, {64, 64}, {65, 128}};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct weft_ring ring;
        uint8_t item = 0;
        uint32_t n = 0;
        assert_int_equal(weft_ring_init(&ring, sizes[k][0], 1), WEFT_OK);
        while (weft_ring_push(&ring, &item))
            n++;
        assert_int_equal(n, sizes[k][1]);
        weft_ring_fini(&ring);
    }
}

static void a_ring_of_one_slot_alternates(void **state) {
    (void)state;
    struct weft_ring ring;
    uint64_t out;
    assert_int_equal(weft_ring_init(&ring, 1, sizeof out), WEFT_OK);
    for (uint64_t i = 0; i < 10; i++) {
        assert_true(weft_ring_push(&ring, &i));
        assert_false(weft_ring_push(&ring, &i));
        assert_true(weft_ring_pop(&ring, &out));
        assert_true(out == i);
        assert_false(weft_ring_pop(&ring, &out));
    }
    weft_ring_fini(&ring);
}

static void items_of_any_size_arrive_whole(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 3, 7, 8, 24, 100, 4096};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct weft_ring ring;
        unsigned char in[4096], out[4096];
        assert_int_equal(weft_ring_init(&ring, 4, sizes[k]), WEFT_OK);
        for (int i = 0; i < 20; i++) {
            memset(in, i, sizes[k]);
            memset(out, 0xee, sizeof out);
            assert_true(weft_ring_push(&ring, in));
            assert_true(weft_ring_pop(&ring, out));
            assert_memory_equal(in, out, sizes[k]);
            if (sizes[k] < sizeof out) assert_int_equal(out[sizes[k]], 0xee);
        }
        weft_ring_fini(&ring);
    }
}

/* Random pushes and pops beside two counters, over the point where 32 bits start again. */
static void order_and_capacity_hold_where_the_indices_wrap(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    struct weft_ring ring;
    uint32_t n_pushed = 0, n_popped = 0, out;
    assert_int_equal(weft_ring_init(&ring, 8, sizeof out), WEFT_OK);
    start_at(&ring, UINT32_MAX - 500);
    for (int i = 0; i < 10000; i++) {
        if (weft_rand_below(&rand, 2)) {
            bool is_full = n_pushed - n_popped == 8;
            assert_int_equal(weft_ring_push(&ring, &n_pushed), !is_full);
            if (!is_full) n_pushed++;
        } else {
            bool is_empty = n_pushed == n_popped;
            assert_int_equal(weft_ring_pop(&ring, &out), !is_empty);
            if (!is_empty) assert_int_equal(out, n_popped++);
        }
    }
    assert_true(atomic_load(&ring.head) < UINT32_MAX - 500); /* it did wrap */
    weft_ring_fini(&ring);
}

/* ------------------------------------------------------------------------------ two threads --- */

struct numbered { /* wider than a word: a torn item shows */
    uint64_t number, inverse, again[3];
};

struct producer {
    struct weft_ring *ring;
    uint64_t n_items;
};

static void *produce(void *arg) {
    const struct producer *p = arg;
    for (uint64_t i = 0; i < p->n_items; i++) {
        struct numbered item = {i, ~i, {i, i, i}};
        while (!weft_ring_push(p->ring, &item))
            (void)sched_yield();
    }
    return NULL;
}

/* Takes all items and counts those out of order or torn; half of them come after the wrap. */
static uint64_t hand_over(uint32_t n_slots, uint64_t n_items) {
    struct weft_ring ring;
    pthread_t thread;
    uint64_t n_wrong = 0;
    assert_int_equal(weft_ring_init(&ring, n_slots, sizeof(struct numbered)), WEFT_OK);
    start_at(&ring, UINT32_MAX - (uint32_t)(n_items / 2));
    struct producer producer = {&ring, n_items};
    assert_int_equal(pthread_create(&thread, NULL, produce, &producer), 0);
    struct numbered item;
    for (uint64_t i = 0; i < n_items; i++) {
        while (!weft_ring_pop(&ring, &item))
            (void)sched_yield();
        n_wrong += item.number != i || item.inverse != ~i || item.again[2] != i;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(weft_ring_pop(&ring, &item));
    weft_ring_fini(&ring);
    return n_wrong;
}

static void a_million_items_cross_threads_in_order_and_whole(void **state) {
    (void)state;
    assert_int_equal(hand_over(1024, 1000000), 0);
}

static void the_smallest_and_a_large_ring_hand_over_as_well(void **state) {
    (void)state;
    assert_int_equal(hand_over(1, 1000), 0); /* each item costs a switch where CPUs are few */
    assert_int_equal(hand_over(4096, 100000), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_ring_gives_nothing_and_a_full_one_takes_nothing),
        cmocka_unit_test(the_number_of_slots_is_rounded_up_to_a_power_of_two),
        cmocka_unit_test(a_ring_of_one_slot_alternates),
        cmocka_unit_test(items_of_any_size_arrive_whole),
        cmocka_unit_test(order_and_capacity_hold_where_the_indices_wrap),
        cmocka_unit_test(a_million_items_cross_threads_in_order_and_whole),
        cmocka_unit_test(the_smallest_and_a_large_ring_hand_over_as_well),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
