#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/pace.h"

#define WINDOW_MS 4000
#define TICK_MS 100
#define PER_TICK(rate) ((rate)*TICK_MS / 1000)

/* When a client is given up that sends `first` bytes at once, then `per_tick` bytes each tick. */
static uint64_t late_at(uint64_t first, uint64_t per_tick, uint64_t whole, uint64_t limit_ms) {
    struct weft_api_pace pace;
    uint64_t start_ms = 1000000;
    weft_api_pace_begin(&pace, start_ms);
    weft_api_pace_add(&pace, first);
    for (uint64_t ms = TICK_MS; ms <= limit_ms; ms += TICK_MS) {
        weft_api_pace_add(&pace, per_tick);
        if (weft_api_pace_is_late(&pace, whole, WINDOW_MS, start_ms + ms)) return ms;
    }
    return 0;
}

static void whoever_keeps_the_rate_may_go_on(void **state) {
    (void)state;
    uint64_t whole = 32u << 20, rate = WEFT_API_PACE_BYTES_PER_S_MIN + 1000;
    assert_int_equal(late_at(0, PER_TICK(rate), whole, whole / rate * 1000), 0);
}

static void silence_and_a_trickle_end_with_the_first_window(void **state) {
    (void)state;
    assert_in_range(late_at(10, 0, 32u << 20, 20000), WINDOW_MS, WINDOW_MS + 1000);
    assert_in_range(late_at(10, 1, 32u << 20, 20000), WINDOW_MS, WINDOW_MS + 1000);
}

static void what_was_sent_at_the_beginning_buys_no_time_later(void **state) {
    (void)state;
    assert_in_range(late_at(30u << 20, 1, 32u << 20, 100000), WINDOW_MS, 2 * WINDOW_MS);
}

static void the_whole_has_a_limit_too(void **state) {
    (void)state;
    uint64_t whole = 1u << 20, limit_ms = WINDOW_MS + whole * 1000 / WEFT_API_PACE_BYTES_PER_S_MIN;
    uint64_t rate = WEFT_API_PACE_BYTES_PER_S_MIN * 2;
    assert_in_range(late_at(0, PER_TICK(rate), whole, 10 * limit_ms), limit_ms, limit_ms + 200);
}

/* When a client is given up that takes `lump` bytes every `every_ms` of an endless answer, with
 * `waiting` bytes in buffers and `held` behind them; 0: not within ten windows. */
static uint64_t dropped_at(uint64_t lump, uint64_t every_ms, uint64_t waiting, uint64_t held) {
    struct weft_api_read_pace pace = {0};
    uint64_t taken = 12345;
    for (uint64_t ms = TICK_MS; ms <= 10 * WINDOW_MS; ms += TICK_MS) {
        if (ms % every_ms == 0) taken += lump;
        if (weft_api_read_pace_is_late(&pace, waiting, taken, held, WINDOW_MS, 1000000 + ms))
            return ms;
    }
    return 0;
}

static void whoever_reads_at_the_rate_may_go_on(void **state) {
    (void)state;
    assert_int_equal(dropped_at(PER_TICK(WEFT_API_READ_BYTES_PER_S_MIN) + 1, TICK_MS, 1 << 20, 0),
                     0);
    assert_int_equal(dropped_at(2048, 1000, 1 << 20, 0), 0);
    assert_int_equal(dropped_at(6000, WINDOW_MS, 1 << 20, 0), 0); /* in lumps */
    assert_int_equal(dropped_at(300, WINDOW_MS, 300, 0), 0);      /* there is no more */
}

static void whoever_dribbles_is_dropped(void **state) {
    (void)state;
    assert_in_range(dropped_at(0, TICK_MS, 1 << 20, 0), WINDOW_MS, WINDOW_MS + 200);
    assert_in_range(dropped_at(0, TICK_MS, 1, 0), WINDOW_MS, WINDOW_MS + 200);
    assert_in_range(dropped_at(1, TICK_MS, 1 << 20, 0), WINDOW_MS, WINDOW_MS + 200);
    assert_in_range(dropped_at(512, 1000, 1 << 20, 0), WINDOW_MS, WINDOW_MS + 200);
}

static void whoever_makes_us_hold_much_has_to_read_faster(void **state) {
    (void)state;
    uint64_t held = 64u << 20, share = held / WEFT_API_READ_SHARE;
    assert_in_range(dropped_at(64 << 10, 1000, 1 << 20, held), WINDOW_MS, WINDOW_MS + 200);
    assert_int_equal(dropped_at(share / 3, 1000, 1 << 20, held), 0);
}

static void what_was_read_fast_buys_no_time_later(void **state) {
    (void)state;
    struct weft_api_read_pace pace = {0};
    uint64_t ms = 1000000;
    assert_false(weft_api_read_pace_is_late(&pace, 1 << 20, 0, 0, WINDOW_MS, ms));
    ms += TICK_MS;
    assert_false(weft_api_read_pace_is_late(&pace, 1 << 20, 50 << 20, 0, WINDOW_MS, ms));
    assert_false(
        weft_api_read_pace_is_late(&pace, 1 << 20, 50 << 20, 0, WINDOW_MS, ms + WINDOW_MS));
    assert_true(
        weft_api_read_pace_is_late(&pace, 1 << 20, 50 << 20, 0, WINDOW_MS, ms + WINDOW_MS + 1));
}

/* Once everything was handed over a new time begins. */
static void whoever_has_read_all_may_be_slow_again(void **state) {
    (void)state;
    struct weft_api_read_pace pace = {0};
    uint64_t ms = 1000000;
    for (int i = 0; i < 10; i++, ms += WINDOW_MS / 2) {
        assert_false(weft_api_read_pace_is_late(&pace, 1000, 0, 0, WINDOW_MS, ms));
        if (i % 2) weft_api_read_pace_rest(&pace);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_keeps_the_rate_may_go_on),
        cmocka_unit_test(silence_and_a_trickle_end_with_the_first_window),
        cmocka_unit_test(what_was_sent_at_the_beginning_buys_no_time_later),
        cmocka_unit_test(the_whole_has_a_limit_too),
        cmocka_unit_test(whoever_reads_at_the_rate_may_go_on),
        cmocka_unit_test(whoever_dribbles_is_dropped),
        cmocka_unit_test(whoever_makes_us_hold_much_has_to_read_faster),
        cmocka_unit_test(what_was_read_fast_buys_no_time_later),
        cmocka_unit_test(whoever_has_read_all_may_be_slow_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
