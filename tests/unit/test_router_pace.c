#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cmd/router/pace.h"

#define WINDOW_MS 4000
#define TICK_MS 100
#define PER_TICK(rate) ((rate)*TICK_MS / 1000)

/* When a client is given up that sends `first` bytes at once, then `per_tick` bytes each tick. */
static uint64_t late_at(uint64_t first, uint64_t per_tick, uint64_t whole, uint64_t limit_ms) {
    struct pace pace;
    uint64_t start_ms = 1000000;
    wefti_pace_begin(&pace, start_ms);
    wefti_pace_add(&pace, first);
    for (uint64_t ms = TICK_MS; ms <= limit_ms; ms += TICK_MS) {
        wefti_pace_add(&pace, per_tick);
        if (wefti_pace_is_late(&pace, whole, WINDOW_MS, start_ms + ms)) return ms;
    }
    return 0;
}

static void whoever_keeps_the_rate_may_go_on(void **state) {
    (void)state;
    uint64_t whole = 32u << 20, rate = WEFT_PACE_BYTES_PER_S_MIN + 1000;
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
    uint64_t whole = 1u << 20, limit_ms = WINDOW_MS + whole * 1000 / WEFT_PACE_BYTES_PER_S_MIN;
    uint64_t rate = WEFT_PACE_BYTES_PER_S_MIN * 2;
    assert_in_range(late_at(0, PER_TICK(rate), whole, 10 * limit_ms), limit_ms, limit_ms + 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_keeps_the_rate_may_go_on),
        cmocka_unit_test(silence_and_a_trickle_end_with_the_first_window),
        cmocka_unit_test(what_was_sent_at_the_beginning_buys_no_time_later),
        cmocka_unit_test(the_whole_has_a_limit_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
