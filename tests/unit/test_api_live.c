/* Streams of /stats: when there is news, who gets what, and when they end. */
#include "unit/api_fixture.h"

#include <string.h>

#include "api/http.h"
#include "api/live.h"

static struct weft_api_live live;

static void on_news(void *owner) {
    uint32_t *n = owner;
    (*n)++;
}

static int begin_live(void **state) {
    int status = set_up(state);
    weft_api_live_init(&live, &api, on_news);
    return status;
}

static int end_live(void **state) {
    weft_api_live_fini(&live);
    return tear_down(state);
}

static void look(void) {
    weft_api_live_look(&live, now_us / 1000);
}

/* The next event's text, or NULL. */
static const char *next(struct weft_api_live_stream *stream) {
    const struct weft_api_moment moment = {now_us / 1000, 4096};
    const struct weft_buf *text = weft_api_live_next(stream, &moment);
    if (!text) return NULL;
    assert_false(text->failed);
    assert_memory_equal(text->data, "data: {", 7);
    assert_memory_equal(text->data + text->len - 3, "}\n\n", 3);
    return text->data;
}

static void the_first_event_comes_at_once_and_the_next_with_a_snapshot(void **state) {
    (void)state;
    uint32_t n_wakes_here = 0;
    struct weft_api_live_stream stream = {0};
    assert_true(weft_api_live_begin(&live, &stream, &n_wakes_here));
    look();
    assert_non_null(next(&stream));
    assert_null(next(&stream));
    n_wakes_here = 0;
    look();
    assert_int_equal(n_wakes_here, 0);
    put_snapshot(true);
    look();
    assert_int_equal(n_wakes_here, 1);
    assert_non_null(next(&stream));
    assert_null(next(&stream));
    weft_api_live_end(&stream);
    weft_api_live_end(&stream); /* twice is fine */
}

static void a_slow_reader_gets_the_newest_and_never_a_queue(void **state) {
    (void)state;
    uint32_t n = 0;
    struct weft_api_live_stream slow = {0}, quick = {0};
    assert_true(weft_api_live_begin(&live, &slow, &n));
    assert_true(weft_api_live_begin(&live, &quick, &n));
    for (uint32_t i = 0; i < 10; i++) {
        put_snapshot(true);
        look();
        assert_non_null(next(&quick));
    }
    assert_non_null(next(&slow));
    assert_null(next(&slow));
    put_snapshot(false);
    look();
    assert_non_null(strstr(next(&slow), "\"serving\":false"));
    weft_api_live_end(&slow);
    weft_api_live_end(&quick);
    put_snapshot(true);
}

static void while_the_scheduler_is_away_a_stream_goes_on(void **state) {
    (void)state;
    uint32_t n = 0;
    struct weft_api_live_stream stream = {0};
    assert_true(weft_api_live_begin(&live, &stream, &n));
    look();
    assert_non_null(next(&stream));
    put_link(false);
    look();
    assert_non_null(strstr(next(&stream), "the scheduler is restarting"));
    now_us += 999000;
    look();
    assert_null(next(&stream));
    now_us += 1000;
    look();
    assert_non_null(next(&stream));
    put_link(true);
    put_snapshot(true);
    look();
    assert_non_null(strstr(next(&stream), "\"serving\":true"));
    weft_api_live_end(&stream);
}

static void streams_are_bounded(void **state) {
    (void)state;
    uint32_t n = 0;
    static struct weft_api_live_stream streams[WEFT_API_LIVE_STREAMS_MAX + 1];
    memset(streams, 0, sizeof streams);
    for (uint32_t i = 0; i < WEFT_API_LIVE_STREAMS_MAX; i++)
        assert_true(weft_api_live_begin(&live, &streams[i], &n));
    assert_false(weft_api_live_begin(&live, &streams[WEFT_API_LIVE_STREAMS_MAX], &n));
    weft_api_live_end(&streams[WEFT_API_LIVE_STREAMS_MAX]); /* it never began */
    weft_api_live_end(&streams[7]);
    assert_true(weft_api_live_begin(&live, &streams[WEFT_API_LIVE_STREAMS_MAX], &n));
    for (uint32_t i = 0; i <= WEFT_API_LIVE_STREAMS_MAX; i++)
        weft_api_live_end(&streams[i]);
}

static void a_stream_ends_when_the_keys_change(void **state) {
    (void)state;
    uint32_t n = 0;
    struct weft_api_live_stream before = {0}, after = {0};
    struct weft_api_keys keys = {0};
    assert_true(weft_api_live_begin(&live, &before, &n));
    look();
    assert_false(weft_api_live_is_over(&before));
    n = 0;
    weft_api_set_keys(&api, &keys);
    look();
    assert_int_equal(n, 1);
    assert_true(weft_api_live_is_over(&before));
    assert_true(weft_api_live_begin(&live, &after, &n));
    assert_false(weft_api_live_is_over(&after));
    weft_api_live_end(&before);
    weft_api_live_end(&after);
}

static void a_stream_ends_with_the_server_after_an_event_that_says_so(void **state) {
    (void)state;
    uint32_t n = 0;
    struct weft_api_live_stream stream = {0};
    assert_true(weft_api_live_begin(&live, &stream, &n));
    look();
    assert_non_null(next(&stream));
    api.draining = true;
    look();
    assert_non_null(strstr(next(&stream), "\"draining\":true"));
    assert_true(weft_api_live_is_over(&stream));
    api.draining = false;
    weft_api_live_end(&stream);
}

static void a_stream_ends_when_another_server_has_taken_over(void **state) {
    (void)state;
    uint32_t n = 0;
    struct weft_api_live_stream stream = {0};
    assert_true(weft_api_live_begin(&live, &stream, &n));
    look();
    assert_non_null(next(&stream));
    n = 0;
    api.is_replaced = true;
    look();
    assert_int_equal(n, 1); /* without waiting for news */
    assert_non_null(strstr(next(&stream), "\"draining\":false"));
    assert_true(weft_api_live_is_over(&stream));
    api.is_replaced = false;
    weft_api_live_end(&stream);
}

int main(void) {
#define LIVE_CASE(name) cmocka_unit_test_setup_teardown(name, begin_live, end_live)
    const struct CMUnitTest tests[] = {
        LIVE_CASE(the_first_event_comes_at_once_and_the_next_with_a_snapshot),
        LIVE_CASE(a_slow_reader_gets_the_newest_and_never_a_queue),
        LIVE_CASE(while_the_scheduler_is_away_a_stream_goes_on),
        LIVE_CASE(streams_are_bounded),
        LIVE_CASE(a_stream_ends_when_the_keys_change),
        LIVE_CASE(a_stream_ends_with_the_server_after_an_event_that_says_so),
        LIVE_CASE(a_stream_ends_when_another_server_has_taken_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
