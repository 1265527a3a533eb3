/* Links: addresses, and two ends in one process. Cases with a far end: test_link_processes.c; with
 * peers that are none of ours: test_link_strangers.c. */
#include "unit/link_ends.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"

#define QUEUE_FRAMES 65536             /* that a send queue holds, as lib/link/conn.c has it */
#define CORK_FRAMES (QUEUE_FRAMES / 2) /* that a cork holds */

/* ------------------------------------------------------------------------ in one process --- */
static void stream_between(enum weft_link_kind kind, const char *url) {
    struct end a, b;
    open_pair_of_ends(&a, &b, kind, url);
    a.streams = b.streams = true;
    WAIT_FOR(a.peers[0].n_got > 3000 && b.peers[0].n_got > 3000, turn_both(&a, &b));
    assert_int_equal(a.peers[0].n_ups, 1);
    assert_int_equal(b.peers[0].n_ups, 1);
    close_end(&b);
    WAIT_FOR(!a.peers[0].up, turn(&a, 10));
    assert_false(weft_link_is_up(a.link, 0));
    close_end(&a);
}

static void a_pair_streams_both_ways(void **state) {
    (void)state;
    stream_between(WEFT_LINK_ONE_PEER, fresh_url());
}

static void a_hub_streams_both_ways(void **state) {
    (void)state;
    stream_between(WEFT_LINK_MANY_PEERS, fresh_url());
}

static void dialling_first_and_listening_later_is_fine(void **state) {
    (void)state;
    const enum weft_link_kind kinds[] = {WEFT_LINK_ONE_PEER, WEFT_LINK_MANY_PEERS};
    for (int i = 0; i < 2; i++) {
        struct end a, b;
        const char *url = fresh_url();
        open_end(&b, true, kinds[i], url);
        for (int k = 0; k < 20; k++)
            turn(&b, 5);
        assert_int_equal(weft_link_send(b.link, 0, "x", 1), WEFT_E_CLOSED);
        open_end(&a, false, kinds[i], url);
        WAIT_FOR(a.peers[0].up && b.peers[0].up, turn_both(&a, &b));
        close_end(&a);
        WAIT_FOR(!b.peers[0].up, turn(&b, 10));
        close_end(&b);
    }
}

static void bad_urls_are_refused_in_a_sentence(void **state) {
    (void)state;
    static const char *const urls[] = {
        "",
        "nonsense",
        "http//x",
        "abstract:/x",
        "abstract://",
        "carrier://pigeon",
        "ws://127.0.0.1:80",
        "tcp://127.0.0.1",
        "tcp://:80",
        "tcp://127.0.0.1:",
        "ipc://",
        ("ipc:///tmp/"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaa"),
    };
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        for (int kind = WEFT_LINK_ONE_PEER; kind <= WEFT_LINK_MANY_PEERS; kind++) {
            struct weft_errmsg why = {{0}};
            weft_link *link = (weft_link *)&why;
            assert_int_equal(weft_link_dial((enum weft_link_kind)kind, urls[i], NULL, &link, &why),
                             WEFT_E_INVAL);
            assert_null(link);
            assert_true(why.text[0]);
            assert_int_equal(
                weft_link_listen((enum weft_link_kind)kind, urls[i], NULL, &link, &why),
                WEFT_E_INVAL);
            assert_null(link);
        }
    }
}

static void an_address_in_use_is_an_error_after_two_seconds(void **state) {
    (void)state;
    const char *url = fresh_url();
    struct end a;
    struct weft_errmsg why = {{0}};
    weft_link *link;
    open_end(&a, false, WEFT_LINK_ONE_PEER, url);
    uint64_t start_ms = weft_now_ms();
    assert_int_equal(listen_alone(url, &link, &why), WEFT_E_IO);
    assert_in_range(weft_now_ms() - start_ms, 1500, 10000);
    assert_non_null(strstr(why.text, url));
    close_end(&a);
}

static void messages_over_the_limit_are_refused(void **state) {
    (void)state;
    struct end a, b;
    open_pair_of_ends(&a, &b, WEFT_LINK_ONE_PEER, fresh_url());
    assert_int_equal(weft_link_send(b.link, 0, "x", (size_t)WEFT_MESSAGE_BYTES_MAX + 1),
                     WEFT_E_TOOBIG);
    assert_true(weft_link_is_up(b.link, 0));
    close_end(&b);
    close_end(&a);
}

static void large_and_empty_messages_arrive(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 65535, 65536, (size_t)8 << 20};
    struct end a, b;
    open_pair_of_ends(&a, &b, WEFT_LINK_MANY_PEERS, fresh_url());
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *bytes = malloc(sizes[i] + 1);
        struct weft_link_event event = {.kind = WEFT_LINK_UP};
        assert_non_null(bytes);
        memset(bytes, (int)i + 1, sizes[i] + 1);
        assert_int_equal(weft_link_send(b.link, 0, bytes, sizes[i]), WEFT_OK);
        /* The sender's turns send what did not fit the kernel's buffers at once. */
        WAIT_FOR(weft_link_next(a.link, weft_now_ms(), &event), turn(&b, 1));
        assert_int_equal(event.kind, WEFT_LINK_MESSAGE);
        assert_int_equal(event.len, sizes[i]);
        assert_memory_equal(event.bytes, bytes, sizes[i]);
        free(bytes);
    }
    close_end(&a);
    close_end(&b);
}

/* Nothing comes while it is corked, and all in order afterwards; messages sent later come in the
 * end, and a new session begins uncorked. */
static void corked_messages_come_together(void **state) {
    (void)state;
    struct end hub, router;
    open_pair_of_ends(&hub, &router, WEFT_LINK_MANY_PEERS, fresh_url());
    WAIT_FOR(hub.peers[0].up && router.peers[0].up, turn_both(&hub, &router));
    weft_link_cork(hub.link, 0, true);
    weft_link_cork(hub.link, 0, true);
    for (uint64_t i = 0; i < 3; i++)
        send_numbered(&hub, 0);
    for (int i = 0; i < 20; i++)
        turn_both(&hub, &router);
    assert_int_equal(router.peers[0].n_got, 0);
    weft_link_cork(hub.link, 0, false);
    WAIT_FOR(router.peers[0].n_got == 3, turn_both(&hub, &router));
    send_numbered(&hub, 0);
    WAIT_FOR(router.peers[0].n_got == 4, turn_both(&hub, &router));

    weft_link_cork(hub.link, 0, true);
    for (int i = 0; i < CORK_FRAMES; i++)
        send_numbered(&hub, 0);
    for (int i = 0; i < 20; i++)
        turn(&router, 1);
    assert_int_equal(router.peers[0].n_got, 4);
    send_numbered(&hub, 0); /* the cork bursts */
    WAIT_FOR(router.peers[0].n_got > 4, turn(&router, 1));
    WAIT_FOR(router.peers[0].n_got == hub.peers[0].n_sent, turn_both(&hub, &router));

    weft_link_cork(hub.link, 0, true);
    weft_link_reset(hub.link, 0);
    weft_link_cork(hub.link, 0, false);
    WAIT_FOR(hub.peers[0].n_ups == 2 && router.peers[0].n_ups == 2, turn_both(&hub, &router));
    send_numbered(&hub, 0);
    WAIT_FOR(router.peers[0].n_got == 1, turn_both(&hub, &router));
    close_end(&router);
    close_end(&hub);
}

static void a_peer_that_dies_while_corked_is_noticed(void **state) {
    (void)state;
    struct end hub, router;
    open_pair_of_ends(&hub, &router, WEFT_LINK_MANY_PEERS, fresh_url());
    WAIT_FOR(hub.peers[0].up && router.peers[0].up, turn_both(&hub, &router));
    turn(&hub, 0);
    weft_link_cork(hub.link, 0, true);
    send_numbered(&hub, 0);
    close_end(&router);
    weft_link_cork(hub.link, 0, false);
    struct pollfd fd = {.fd = weft_link_fd(hub.link), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
    turn(&hub, 0);
    assert_false(hub.peers[0].up);
    close_end(&hub);
}

static void a_reset_from_either_side_starts_a_new_session(void **state) {
    (void)state;
    const enum weft_link_kind kinds[] = {WEFT_LINK_ONE_PEER, WEFT_LINK_MANY_PEERS};
    for (int i = 0; i < 2; i++) {
        struct end a, b;
        open_pair_of_ends(&a, &b, kinds[i], fresh_url());
        a.streams = b.streams = true;
        for (uint64_t k = 1; k <= 20; k++) {
            uint64_t some = weft_rand_below(&rand_state, 200);
            WAIT_FOR(a.peers[0].n_got > some && b.peers[0].n_got > some, turn_both(&a, &b));
            struct end *end = k % 2 ? &a : &b;
            ahead_ms += 1000; /* it lasted, so the next one is not long in coming */
            turn_both(&a, &b);
            weft_link_reset(end->link, 0);
            assert_int_equal(weft_link_send(end->link, 0, "x", 1), WEFT_E_CLOSED);
            WAIT_FOR(a.peers[0].n_downs == k && b.peers[0].n_downs == k && a.peers[0].up &&
                         b.peers[0].up,
                     turn_both(&a, &b));
        }
        assert_int_equal(a.peers[0].n_ups, 21);
        assert_int_equal(b.peers[0].n_ups, 21);
        close_end(&b);
        close_end(&a);
    }
}

/* Messages sent before the sender heard FULL come in order, up to a point, and then DOWN. */
static void an_owner_that_does_not_look_makes_the_sender_full(void **state) {
    (void)state;
    struct end a, b;
    struct weft_link_event event;
    uint64_t n_sent = 0, n_got = 0;
    unsigned char bytes[200] = {0}; /* the kernel's buffers for TCP hold some megabytes */
    weft_err err = WEFT_OK;
    open_pair_of_ends(&a, &b, WEFT_LINK_ONE_PEER, fresh_url());
    for (; !err && n_sent < 200000; n_sent++) {
        memcpy(bytes, &n_sent, sizeof n_sent);
        err = weft_link_send(b.link, 0, bytes, sizeof bytes);
        /* Slowly at first, so that the far inbox exceeds its bound before the send queue does. */
        if (n_sent < 10000 && n_sent % 64 == 0) (void)usleep(500);
    }
    assert_int_equal(err, WEFT_E_FULL);
    assert_in_range(n_sent, QUEUE_FRAMES, 150000);
    bool down = false;
    while (!down) {
        weft_link_tick(a.link, weft_now_ms());
        while (!down && weft_link_next(a.link, weft_now_ms(), &event)) {
            if (event.kind == WEFT_LINK_MESSAGE) {
                uint64_t index;
                memcpy(&index, event.bytes, sizeof index);
                assert_int_equal(index, n_got);
                n_got++;
            }
            down = event.kind == WEFT_LINK_DOWN;
        }
    }
    assert_in_range(n_got, 100, n_sent); /* as many as the kernel held */
    a.peers[0].up = false;
    a.streams = b.streams = true;
    WAIT_FOR(b.peers[0].n_ups == 2 && a.peers[0].n_got > 100, turn_both(&a, &b));
    close_end(&b);
    close_end(&a);
}

/* Routers that come and go leave nothing behind in the hub. */
static void a_hub_survives_a_thousand_routers_that_come_and_go(void **state) {
    (void)state;
    const uint64_t n_rounds = getenv("WEFT_SANITIZED") ? 200 : 1000;
    struct end hub, router;
    const char *url = fresh_url();
    open_pair_of_ends(&hub, &router, WEFT_LINK_MANY_PEERS, url);
    close_end(&router);
    WAIT_FOR(!hub.peers[0].up, turn(&hub, 10));
    uint32_t n_fds = count_fds();
    for (uint64_t i = 0; i < n_rounds; i++) {
        open_end(&router, true, WEFT_LINK_MANY_PEERS, url);
        hub.streams = router.streams = true;
        WAIT_FOR(router.peers[0].n_got > 3, turn_both(&hub, &router));
        close_end(&router);
        WAIT_FOR(!hub.peers[0].up, turn(&hub, 10));
    }
    WAIT_FOR(count_fds() <= n_fds, (void)usleep(1000));
    assert_int_equal(hub.peers[0].n_ups, n_rounds + 1);
    close_end(&hub);
}

static uint64_t all_downs(const struct end *end) {
    uint64_t n_downs = 0;
    for (int i = 0; i < PEERS; i++)
        n_downs += end->peers[i].n_downs;
    return n_downs;
}

static void a_hub_keeps_routers_apart(void **state) {
    (void)state;
    struct end hub, routers[4];
    const char *url = fresh_url();
    open_end(&hub, false, WEFT_LINK_MANY_PEERS, url);
    hub.streams = true;
    for (int i = 0; i < 4; i++) {
        open_end(&routers[i], true, WEFT_LINK_MANY_PEERS, url);
        routers[i].streams = true;
    }
#define ALL_TURN()                                                                                 \
    do {                                                                                           \
        turn(&hub, 1);                                                                             \
        for (int r = 0; r < 4; r++)                                                                \
            if (routers[r].link) turn(&routers[r], 0);                                             \
    } while (0)
    for (int i = 0; i < 4; i++)
        WAIT_FOR(routers[i].peers[0].n_got > 200, ALL_TURN());
    close_end(&routers[2]);
    uint64_t n_got = routers[0].peers[0].n_got;
    WAIT_FOR(routers[0].peers[0].n_got > n_got + 200 && routers[3].peers[0].n_got > n_got + 200,
             ALL_TURN());
    WAIT_FOR(all_downs(&hub) > 0, ALL_TURN()); /* TLS may hear of it later than of 200 messages */
    uint64_t n_ups = 0;
    for (int i = 0; i < PEERS; i++)
        n_ups += hub.peers[i].n_ups;
    assert_int_equal(n_ups, 4);
    assert_int_equal(all_downs(&hub), 1);
    for (int i = 0; i < 4; i++)
        if (routers[i].link) close_end(&routers[i]);
    close_end(&hub);
#undef ALL_TURN
}

static void start_over(struct end *a, struct end *b) {
    uint64_t n_ups = b->peers[0].n_ups;
    weft_link_reset(a->link, 0);
    WAIT_FOR(b->peers[0].n_ups > n_ups && a->peers[0].up, turn_both(a, b));
}

/* An end that finds fault with each session at once does not keep both busy. */
static void sessions_that_do_not_last_come_slowly(void **state) {
    (void)state;
    struct end a, b;
    const nng_duration pauses[] = {10, 20, 40, 80, 160, 200, 200};
    clock_follows_turns = true;
    open_pair_of_ends(&a, &b, WEFT_LINK_ONE_PEER, fresh_url());
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        start_over(&a, &b);
        assert_int_equal(pause_ms, pauses[i]);
    }
    ahead_ms += 1000;
    turn_both(&a, &b);
    for (int i = 0; i < 2; i++) {
        start_over(&a, &b);
        assert_int_equal(pause_ms, pauses[i]);
    }
    clock_follows_turns = false;
    close_end(&b);
    close_end(&a);
}

static void tls_wants_three_files_that_are_what_they_should_be(void **state) {
    (void)state;
    struct weft_link_options good = options_of(&ours);
    const struct {
        struct weft_link_options options;
        const char *said;
    } cases[] = {
        {{0}, "--link-ca"},
        {{.ca = good.ca}, "--link-cert"},
        {{.ca = good.ca, .cert = good.cert}, "--link-key"},
        {{.ca = "/nowhere", .cert = good.cert, .key = good.key}, "/nowhere"},
        {{.ca = "/dev/zero", .cert = good.cert, .key = good.key}, "--link-ca"},
        {{.ca = "/dev/null", .cert = good.cert, .key = good.key}, "--link-ca"},
        {{.ca = good.ca, .cert = good.key, .key = good.key}, "--link-cert"},
        {{.ca = good.ca, .cert = good.cert, .key = good.cert}, "--link-key"},
        {{.ca = good.ca, .cert = "/", .key = good.key}, "--link-cert"},
        {{.ca = good.ca, .cert = good.cert, .key = strangers.key}, "--link-key is not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weft_errmsg why = {{0}};
        weft_link *link;
        assert_int_equal(weft_link_dial(WEFT_LINK_ONE_PEER, "tls+tcp://127.0.0.1:9",
                                        &cases[i].options, &link, &why),
                         WEFT_E_INVAL);
        assert_null(link);
        assert_non_null(strstr(why.text, cases[i].said));
        assert_int_equal(weft_link_listen(WEFT_LINK_ONE_PEER, "tls+tcp://127.0.0.1:9",
                                          &cases[i].options, &link, &why),
                         WEFT_E_INVAL);
    }
}

static void plain_tcp_beyond_this_host_wants_insisting(void **state) {
    (void)state;
    static const char *const far_away[] = {"tcp://192.0.2.1:99",
                                           "tcp://0.0.0.0:99",
                                           "tcp://example.org:99",
                                           "tcp://[2001:db8::1]:99",
                                           "tcp://127.0.0.1.example.org:99",
                                           "tcp://*:99"};
    static const char *const near[] = {"tcp://127.0.0.1:99", "tcp://127.3.2.1:99",
                                       "tcp://localhost:99", "tcp://[::1]:99"};
    struct weft_link_options insists = {.insecure = true};
    struct weft_errmsg why;
    weft_link *link;
    for (size_t i = 0; i < sizeof far_away / sizeof far_away[0]; i++) {
        assert_int_equal(weft_link_dial(WEFT_LINK_ONE_PEER, far_away[i], NULL, &link, &why),
                         WEFT_E_INVAL);
        assert_non_null(strstr(why.text, "--insecure-links"));
        assert_int_equal(weft_link_listen(WEFT_LINK_ONE_PEER, far_away[i], NULL, &link, &why),
                         WEFT_E_INVAL);
    }
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
        assert_int_equal(weft_link_dial(WEFT_LINK_ONE_PEER, near[i], NULL, &link, &why), WEFT_OK);
        weft_link_free(link);
    }
    assert_int_equal(weft_link_dial(WEFT_LINK_ONE_PEER, far_away[0], &insists, &link, &why),
                     WEFT_OK);
    weft_link_free(link);
}

const struct link_case session_cases[] = {
    LINK_CASE(bad_urls_are_refused_in_a_sentence, OVER(ABSTRACT)),
    LINK_CASE(messages_over_the_limit_are_refused, OVER(ABSTRACT)),
    LINK_CASE(a_hub_survives_a_thousand_routers_that_come_and_go, OVER(ABSTRACT)),
    LINK_CASE(plain_tcp_beyond_this_host_wants_insisting, OVER(TCP)),
    LINK_CASE(tls_wants_three_files_that_are_what_they_should_be, OVER(TLS)),
    LINK_CASE(a_pair_streams_both_ways, OVER_ALL),
    LINK_CASE(a_hub_streams_both_ways, OVER_ALL),
    LINK_CASE(dialling_first_and_listening_later_is_fine, OVER_ALL),
    LINK_CASE(an_address_in_use_is_an_error_after_two_seconds, OVER_ALL),
    LINK_CASE(large_and_empty_messages_arrive, OVER_ALL),
    LINK_CASE(corked_messages_come_together, OVER_ALL),
    LINK_CASE(a_peer_that_dies_while_corked_is_noticed, OVER_ALL),
    LINK_CASE(a_reset_from_either_side_starts_a_new_session, OVER_ALL),
    LINK_CASE(an_owner_that_does_not_look_makes_the_sender_full, OVER_ALL),
    LINK_CASE(sessions_that_do_not_last_come_slowly, OVER_ALL),
    LINK_CASE(a_hub_keeps_routers_apart, OVER_ALL),
    {{0}, 0},
};

#define CASES_MAX 64

/* cmocka passes over places without a name. */
static struct CMUnitTest tests[CASES_MAX];
static uint32_t n_tests;

static void add_cases(const struct link_case *cases) {
    for (; cases->test.name; cases++) {
        if (!(cases->where & OVER(transport))) continue;
        WEFT_ASSERT(n_tests < CASES_MAX);
        tests[n_tests++] = cases->test;
    }
}

/* test_link TRANSPORT [CASE] */
int main(int argc, char **argv) {
    if (argc >= 5 && strcmp(argv[1], "far") == 0) return far_main(argv);
    weft_log_init("test_link", getenv("WEFT_TEST_LOG") ? WEFT_LOG_DEBUG : WEFT_LOG_ERROR, false);
    rand_state = weft_rand_test_seed();
    while (argc > 1 && transport < TRANSPORTS && strcmp(argv[1], transports[transport]) != 0)
        transport++;
    if (argc < 2 || transport == TRANSPORTS) return 2;
    if (argc == 3) cmocka_set_test_filter(argv[2]);
    WEFT_ASSERT(mkdtemp(ipc_dir));
    make_identities();
    add_cases(session_cases);
    add_cases(process_cases);
    add_cases(stranger_cases);
    int rv = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(ipc_dir);
    return rv;
}
