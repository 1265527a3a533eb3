#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traffic/plot.h"

static const struct weft_traffic_goal goal = {.ttft_ms = 100, .itl_ms = 20};

static void draw(struct weft_traffic_tally *tally, double seconds, const char *title,
                 struct weft_buf *out) {
    weft_buf_init(out, 1 << 20);
    weft_traffic_plot(tally, seconds, title, out);
    assert_false(out->failed);
}

/* Where the n-th curve of a class begins: its d attribute. */
static const char *curve(struct weft_buf *svg, const char *css, int n) {
    char begin[64];
    (void)snprintf(begin, sizeof begin, "<path class=\"curve %s\" d=\"", css);
    const char *at = weft_buf_cstr(svg);
    for (int i = 0; i <= n; i++) {
        at = strstr(at, begin);
        assert_non_null(at);
        at += strlen(begin);
    }
    return at;
}

static void a_run_without_requests_is_a_picture_too(void **state) {
    (void)state;
    struct weft_traffic_tally tally;
    struct weft_buf svg;
    assert_int_equal(weft_traffic_tally_init(&tally, 1, &goal), WEFT_OK);
    draw(&tally, 0, "nothing", &svg);
    assert_non_null(strstr(weft_buf_cstr(&svg), "</svg>"));
    assert_null(strstr(weft_buf_cstr(&svg), "nan"));
    assert_null(strstr(weft_buf_cstr(&svg), "inf"));
    weft_buf_fini(&svg);
    weft_traffic_tally_fini(&tally);
}

static void titles_are_text_and_no_markup(void **state) {
    (void)state;
    struct weft_traffic_tally tally;
    struct weft_buf svg;
    assert_int_equal(weft_traffic_tally_init(&tally, 1, &goal), WEFT_OK);
    draw(&tally, 1, "<script> & \x01\xff", &svg);
    assert_null(strstr(weft_buf_cstr(&svg), "<script>"));
    assert_non_null(strstr(weft_buf_cstr(&svg), "&lt;script&gt; &amp; ??"));
    weft_buf_fini(&svg);
    weft_traffic_tally_fini(&tally);
}

/* Two hundred times make ten slices. The first half of the run takes 10 ms, the second 50, so the
 * median's curve has five points low (which is a large y) and five at the top. */
static void curves_follow_the_times_of_their_slice(void **state) {
    (void)state;
    struct weft_traffic_tally tally;
    struct weft_buf svg;
    assert_int_equal(weft_traffic_tally_init(&tally, 1, &goal), WEFT_OK);
    for (int i = 0; i < 200; i++)
        weft_traffic_tally_first(&tally, i / 100.0, i < 100 ? 10 : 50);
    draw(&tally, 2, "halves", &svg);
    const char *at = curve(&svg, "a", 1); /* the first one is the legend's */
    double first_y = 0, y = 0, x;
    int n_low = 0, n_high = 0;
    for (int i = 0; i < 10; i++) {
        char *end;
        assert_true(*at == (i ? 'L' : 'M'));
        x = strtod(at + 1, &end);
        y = strtod(end, &end);
        assert_true(x > 0);
        if (i == 0) first_y = y;
        n_low += y == first_y;
        n_high += y < first_y;
        at = !strncmp(end, "h0", 2) ? end + 2 : end;
    }
    assert_true(*at == '"');
    assert_int_equal(n_low, 5);
    assert_int_equal(n_high, 5);
    weft_buf_fini(&svg);
    weft_traffic_tally_fini(&tally);
}

static void times_beyond_the_run_stay_in_the_picture(void **state) {
    (void)state;
    struct weft_traffic_tally tally;
    struct weft_buf svg;
    assert_int_equal(weft_traffic_tally_init(&tally, 1, &goal), WEFT_OK);
    for (int i = 0; i < 100; i++) {
        weft_traffic_tally_first(&tally, i * 1e6, 1e9);
        weft_traffic_tally_gap(&tally, -1, 0);
    }
    draw(&tally, 1e-3, "odd", &svg);
    assert_null(strstr(weft_buf_cstr(&svg), "nan"));
    weft_buf_fini(&svg);
    weft_traffic_tally_fini(&tally);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_without_requests_is_a_picture_too),
        cmocka_unit_test(titles_are_text_and_no_markup),
        cmocka_unit_test(curves_follow_the_times_of_their_slice),
        cmocka_unit_test(times_beyond_the_run_stay_in_the_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
