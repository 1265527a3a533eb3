/* Which of several schedulers gets a request: shares of the ring, bounds of load, prefixes that meet,
 * and schedulers that are left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "inside/api/cluster/cluster.h"

#define REPORT_MS 1000u
#define N_MAX 8u
#define CACHE_TOKENS 1000000u

static struct wefti_api_cluster cluster;
static uint64_t now_ms;
static const char *const names[N_MAX] = {"tcp://a:1", "tcp://b:1", "tcp://c:1", "tcp://d:1",
                                         "tcp://e:1", "tcp://f:1", "tcp://g:1", "tcp://h:1"};

static void report(uint32_t node, bool can_serve, const char *fingerprint, uint32_t n_requests) {
    const struct wefti_api_report told = {can_serve, fingerprint, 64, n_requests, CACHE_TOKENS};
    wefti_api_cluster_report(&cluster, node, &told, now_ms);
}

static void begin(uint32_t n) {
    now_ms = 1000;
    wefti_api_cluster_init(&cluster, names, n, 1, REPORT_MS);
    for (uint32_t i = 0; i < n; i++) {
        wefti_api_cluster_up(&cluster, i);
        report(i, true, "fp", 0);
    }
}

/* A prompt of `n` tokens, of which the first `n_shared` are the same for all of one topic. */
struct text {
    uint32_t tokens[1024], n;
};

static void write_text(struct text *text, uint64_t topic, uint32_t n_shared, uint64_t own,
                       uint32_t n) {
    text->n = n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t state = (i < n_shared ? topic : own) * 4099 + i;
        text->tokens[i] = weft_rand_below(&state, 4096);
    }
}

static struct wefti_api_wish wish_for(const struct text *text) {
    return (struct wefti_api_wish){.tokens = text->tokens, .n_tokens = text->n};
}

static uint32_t place(const struct text *text) {
    const struct wefti_api_wish wish = wish_for(text);
    return wefti_api_cluster_place(&cluster, &wish, now_ms);
}

/* Placed, and over at once. */
static uint32_t pass(const struct text *text) {
    uint32_t node = place(text);
    assert_true(node < cluster.n);
    wefti_api_cluster_ended(&cluster, node);
    return node;
}

/* -------------------------------------------------------------------------------------- the ring --- */

static void new_prompts_are_shared_out_evenly(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= N_MAX; n++) {
        uint32_t counts[N_MAX] = {0};
        begin(n);
        for (uint32_t i = 0; i < 4000; i++) {
            struct text text;
            write_text(&text, 0, 0, 1 + i, 40);
            counts[pass(&text)]++;
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_true(counts[i] * n > 4000 * 7 / 10);
            assert_true(counts[i] * n < 4000 * 13 / 10);
        }
    }
}

static void routers_agree_whatever_the_order_of_their_lists(void **state) {
    (void)state;
    const char *const other_way[3] = {names[2], names[0], names[1]};
    uint32_t places[500];
    begin(3);
    for (uint32_t i = 0; i < 500; i++) {
        struct text text;
        write_text(&text, 0, 0, i, 40);
        places[i] = pass(&text);
    }
    wefti_api_cluster_init(&cluster, other_way, 3, 99, REPORT_MS);
    for (uint32_t i = 0; i < 3; i++) {
        wefti_api_cluster_up(&cluster, i);
        report(i, true, "fp", 0);
    }
    for (uint32_t i = 0; i < 500; i++) {
        struct text text;
        write_text(&text, 0, 0, i, 40);
        assert_string_equal(other_way[pass(&text)], names[places[i]]);
    }
}

static void when_one_leaves_only_its_prompts_go_elsewhere(void **state) {
    (void)state;
    uint32_t places[2000], n_moved = 0, n_of_it = 0;
    begin(5);
    for (uint32_t i = 0; i < 2000; i++) {
        struct text text;
        write_text(&text, 0, 0, i, 40);
        places[i] = pass(&text);
    }
    begin(5); /* with no memory of them: the ring alone decides */
    wefti_api_cluster_down(&cluster, 3, now_ms);
    for (uint32_t i = 0; i < 2000; i++) {
        struct text text;
        write_text(&text, 0, 0, i, 40);
        uint32_t node = pass(&text);
        assert_int_not_equal(node, 3);
        n_of_it += places[i] == 3;
        n_moved += node != places[i];
    }
    assert_int_equal(n_moved, n_of_it);
}

/* ------------------------------------------------------------------------------------- prefixes --- */

static void prompts_that_begin_alike_meet(void **state) {
    (void)state;
    begin(4);
    uint32_t used = 0;
    for (uint64_t topic = 1; topic <= 40; topic++) {
        struct text text;
        write_text(&text, topic, 600, 1000 * topic, 700);
        uint32_t home = pass(&text);
        used |= 1u << home;
        for (uint64_t question = 1; question < 10; question++) {
            write_text(&text, topic, 600, 1000 * topic + question, 640 + (uint32_t)question * 30);
            assert_int_equal(pass(&text), home);
        }
    }
    assert_int_equal(used, 15);
}

static void what_one_instruction_begins_is_spread_by_what_follows(void **state) {
    (void)state;
    uint32_t counts[4] = {0};
    begin(4);
    for (uint64_t i = 0; i < 400;
         i++) { /* thirty tokens of instruction, then a document of its own */
        struct text text;
        write_text(&text, 7, 30, 100 + i, 800);
        counts[place(&text)]++; /* and all go on */
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_true(counts[i] >= 75 && counts[i] <= 125 + WEFTI_API_LOAD_SLACK);
}

static void other_salts_share_nothing(void **state) {
    (void)state;
    uint32_t counts[4] = {0}, n_used = 0;
    struct text text;
    begin(4);
    write_text(&text, 1, 600, 1, 600);
    for (uint64_t salt = 0; salt < 50; salt++) {
        struct wefti_api_wish wish = wish_for(&text);
        wish.space = (struct weft_digest){salt, 5};
        uint32_t node = wefti_api_cluster_place(&cluster, &wish, now_ms);
        counts[node]++;
        wefti_api_cluster_ended(&cluster, node);
    }
    for (uint32_t i = 0; i < 4; i++)
        n_used += counts[i] > 0;
    assert_int_equal(n_used, 4);
}

static uint32_t found(const struct text *text, uint32_t node) {
    struct wefti_api_marks marks;
    const struct weft_digest none = {0, 0};
    wefti_api_marks_make(&marks, &none, text->tokens, text->n);
    return wefti_api_prefixes_find(&cluster.prefixes, &marks, node,
                                   cluster.nodes[node].n_cache_blocks);
}

static void what_a_cache_must_have_given_up_is_not_counted_on(void **state) {
    (void)state;
    struct text text, other;
    const struct wefti_api_report small = {true, "fp", 64, 0, 100 * WEFTI_API_PREFIX_BLOCK};
    begin(2);
    wefti_api_cluster_report(&cluster, 0, &small, now_ms);
    wefti_api_cluster_report(&cluster, 1, &small, now_ms);
    write_text(&text, 1, 320, 1, 320);
    uint32_t home = pass(&text);
    assert_true(found(&text, home) >= 17); /* of 20 blocks */
    assert_int_equal(found(&text, 1 - home), 0);
    for (uint64_t i = 0; i < 40 && found(&text, home); i++) {
        write_text(&other, 0, 0, 50 + i, 320);
        (void)pass(&other);
    }
    assert_int_equal(found(&text, home), 0);
    (void)pass(&text);
    for (uint32_t i = 0; i < 2; i++)
        wefti_api_cluster_forget(&cluster, i); /* other processes answer there */
    assert_int_equal(found(&text, 0) + found(&text, 1), 0);
}

/* ----------------------------------------------------------------------------------------- load --- */

/* Against the definition: no more than 1.25 times the share, rounded up, or the slack where the
 * prompt is cached. */
static void nobody_gets_more_than_its_bound(void **state) {
    (void)state;
    uint64_t seed = weft_rand_test_seed();
    for (uint32_t round = 0; round < 30; round++) {
        uint32_t n = 2 + weft_rand_below(&seed, N_MAX - 1), n_open = 0, open[600];
        bool repeats = round % 2;
        begin(n);
        for (uint32_t step = 0; step < 2000; step++) {
            if (n_open > 0 && (n_open == 600 || weft_rand_below(&seed, 5) < 2)) {
                uint32_t at = weft_rand_below(&seed, n_open);
                wefti_api_cluster_ended(&cluster, open[at]);
                open[at] = open[--n_open];
                continue;
            }
            struct text text;
            uint64_t topic = 1 + weft_rand_below(&seed, 5);
            write_text(&text, topic, repeats ? 200 : 0, step + 10, 220);
            uint32_t least = UINT32_MAX, node = place(&text);
            assert_true(node < n);
            open[n_open++] = node;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t load = cluster.nodes[i].n_open - (i == node);
                if (load < least) least = load;
            }
            uint32_t bound = (5 * n_open + 4 * n - 1) / (4 * n), load = cluster.nodes[node].n_open;
            assert_true(load <= bound || (repeats && load - 1 <= least + WEFTI_API_LOAD_SLACK));
        }
    }
}

static void shares_go_by_what_each_can_compute_at_once(void **state) {
    (void)state;
    begin(2);
    const struct wefti_api_report large = {true, "fp", 192, 0, CACHE_TOKENS};
    wefti_api_cluster_report(&cluster, 1, &large, now_ms);
    for (uint64_t i = 0; i < 400; i++) {
        struct text text;
        write_text(&text, 0, 0, i, 50);
        (void)place(&text);
    }
    assert_true(cluster.nodes[0].n_open <= 126); /* 1.25 times a quarter, and rounding */
    assert_true(cluster.nodes[1].n_open >= 274);
}

static void requests_of_other_routers_count(void **state) {
    (void)state;
    uint32_t counts[2] = {0};
    begin(2);
    report(0, true, "fp", 100);
    for (uint64_t i = 0; i < 60; i++) {
        struct text text;
        write_text(&text, 0, 0, i, 50);
        counts[place(&text)]++;
    }
    assert_int_equal(counts[0], 0);
    report(0, true, "fp", 0);
    assert_int_equal(cluster.nodes[0].n_others, 0);
}

/* --------------------------------------------------------------------------------------- health --- */

static void only_those_that_serve_get_anything(void **state) {
    (void)state;
    struct text text;
    begin(3);
    write_text(&text, 0, 0, 1, 50);
    report(0, false, "fp", 0);
    wefti_api_cluster_leave_out(&cluster, 1, true);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(pass(&text), 2);
    now_ms += REPORT_MS + 1; /* silent */
    assert_int_equal(place(&text), WEFTI_API_NOBODY);
    report(2, true, "fp", 0);
    struct wefti_api_wish wish = wish_for(&text);
    wish.fingerprint = "other";
    assert_int_equal(wefti_api_cluster_place(&cluster, &wish, now_ms), WEFTI_API_NOBODY);
    wish.fingerprint = "fp";
    wish.not_these = 1u << 2;
    assert_int_equal(wefti_api_cluster_place(&cluster, &wish, now_ms), WEFTI_API_NOBODY);
    wish.not_these = 0;
    assert_int_equal(wefti_api_cluster_place(&cluster, &wish, now_ms), 2);
    wefti_api_cluster_down(&cluster, 2, now_ms);
    wefti_api_cluster_up(&cluster, 2);
    assert_int_equal(place(&text), WEFTI_API_NOBODY); /* until it reports */
}

static void who_fails_again_and_again_is_left_alone_and_probed(void **state) {
    (void)state;
    struct text text;
    uint64_t longest = 0;
    begin(2);
    report(1, false, "fp", 0);
    write_text(&text, 0, 0, 1, 50);
    for (uint32_t failures = 1; failures < 20; failures++) {
        assert_true(wefti_api_cluster_can_take(&cluster, 0, NULL, now_ms));
        wefti_api_cluster_failed(&cluster, 0, now_ms);
        uint64_t since_ms = now_ms;
        while (!wefti_api_cluster_can_take(&cluster, 0, NULL, now_ms)) {
            now_ms += 10;
            report(0, true, "fp", 0);
        }
        uint64_t waited_ms = now_ms - since_ms;
        if (failures < WEFTI_API_FAILURES_MAX) assert_int_equal(waited_ms, 0);
        if (failures == WEFTI_API_FAILURES_MAX)
            assert_true(waited_ms >= WEFTI_API_BACKOFF_MS / 2 &&
                        waited_ms <= WEFTI_API_BACKOFF_MS + 10);
        if (waited_ms > longest) longest = waited_ms;
    }
    assert_true(longest > WEFTI_API_BACKOFF_MS_MAX / 2 && longest <= WEFTI_API_BACKOFF_MS_MAX + 10);
    assert_int_equal(place(&text), 0); /* the probe */
    assert_int_equal(place(&text), WEFTI_API_NOBODY);
    wefti_api_cluster_answered(&cluster, 0);
    assert_int_equal(place(&text), 0);
    assert_int_equal(place(&text), 0);
}

static void a_probe_that_nobody_answers_is_followed_by_another(void **state) {
    (void)state;
    struct text text;
    begin(2);
    report(1, false, "fp", 0);
    write_text(&text, 0, 0, 1, 50);
    for (uint32_t i = 0; i < WEFTI_API_FAILURES_MAX; i++)
        wefti_api_cluster_failed(&cluster, 0, now_ms);
    now_ms += WEFTI_API_BACKOFF_MS;
    report(0, true, "fp", 0);
    (void)pass(&text);
    assert_int_equal(place(&text), WEFTI_API_NOBODY);
    now_ms += WEFTI_API_BACKOFF_MS_MAX;
    report(0, true, "fp", 0);
    assert_int_equal(pass(&text), 0);
}

static void pauses_grow_and_differ(void **state) {
    (void)state;
    uint64_t before = 0;
    begin(2);
    for (uint32_t n = 0; n < 10; n++) {
        uint64_t us = wefti_api_cluster_pause_us(&cluster, n), least = 5000ull << (n < 4 ? n : 4);
        assert_true(us >= least && us < 10 * least && us != before);
        before = us;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_prompts_are_shared_out_evenly),
        cmocka_unit_test(routers_agree_whatever_the_order_of_their_lists),
        cmocka_unit_test(when_one_leaves_only_its_prompts_go_elsewhere),
        cmocka_unit_test(prompts_that_begin_alike_meet),
        cmocka_unit_test(what_one_instruction_begins_is_spread_by_what_follows),
        cmocka_unit_test(other_salts_share_nothing),
        cmocka_unit_test(what_a_cache_must_have_given_up_is_not_counted_on),
        cmocka_unit_test(nobody_gets_more_than_its_bound),
        cmocka_unit_test(shares_go_by_what_each_can_compute_at_once),
        cmocka_unit_test(requests_of_other_routers_count),
        cmocka_unit_test(only_those_that_serve_get_anything),
        cmocka_unit_test(who_fails_again_and_again_is_left_alone_and_probed),
        cmocka_unit_test(a_probe_that_nobody_answers_is_followed_by_another),
        cmocka_unit_test(pauses_grow_and_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
