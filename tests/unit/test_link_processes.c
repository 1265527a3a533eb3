/* Links to a process of its own that is killed in mid-stream, stopped, or another user's. */
#include "unit/link_ends.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool any_up(const struct end *end) {
    for (uint32_t i = 0; i < end->n_peers; i++) {
        if (end->peers[i].up) return true;
    }
    return false;
}

static uint64_t sum_got(const struct end *end) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < end->n_peers; i++)
        n += end->peers[i].n_got_ever;
    return n;
}

/* Kills and restarts the far end 20 times in mid-stream. */
static void kill_in_mid_stream(bool far_dials, enum weft_link_kind kind) {
    struct end near;
    const char *url = fresh_url();
    uint64_t slowest_ms = 0, n_ups = 0, n_downs = 0;
    open_end(&near, !far_dials, kind, url);
    near.streams = true;
    for (int i = 0; i < 20; i++) {
        uint64_t some = sum_got(&near) + 1 + weft_rand_below(&rand_state, 2000);
        pid_t pid = spawn_far(far_dials, kind, url, NULL);
        WAIT_FOR(sum_got(&near) >= some, turn(&near, 10));
        if (i % 2) { /* while messages pile up unread */
            (void)usleep(1000 * weft_rand_below(&rand_state, 20));
        }
        kill_far(pid);
        uint64_t killed_ms = weft_now_ms();
        WAIT_FOR(!any_up(&near), turn(&near, 10));
        uint64_t took_ms = weft_now_ms() - killed_ms;
        slowest_ms = took_ms > slowest_ms ? took_ms : slowest_ms;
    }
    for (uint32_t i = 0; i < near.n_peers; i++) {
        n_ups += near.peers[i].n_ups;
        n_downs += near.peers[i].n_downs;
    }
    /* A new far end may end a session by itself while it connects, so at least 20. */
    assert_in_range(n_ups, 20, 40);
    assert_int_equal(n_downs, n_ups);
    (void)printf("%llu messages, %llu sessions; a death was noticed after %llu ms at most\n",
                 (unsigned long long)sum_got(&near), (unsigned long long)n_ups,
                 (unsigned long long)slowest_ms);
    assert_in_range(slowest_ms, 0, 1500);
    close_end(&near);
}

static void a_killed_worker_is_noticed_and_replaced(void **state) {
    (void)state;
    kill_in_mid_stream(true, WEFT_LINK_ONE_PEER);
}

static void a_killed_router_is_noticed_and_replaced(void **state) {
    (void)state;
    kill_in_mid_stream(true, WEFT_LINK_MANY_PEERS);
}

static void a_worker_survives_killed_schedulers(void **state) {
    (void)state;
    kill_in_mid_stream(false, WEFT_LINK_ONE_PEER);
}

static void a_router_survives_killed_schedulers(void **state) {
    (void)state;
    kill_in_mid_stream(false, WEFT_LINK_MANY_PEERS);
}

static void a_stopped_peer_makes_the_send_full_and_then_comes_back(void **state) {
    (void)state;
    const enum weft_link_kind kinds[] = {WEFT_LINK_ONE_PEER, WEFT_LINK_MANY_PEERS};
    static const unsigned char bytes[1024];
    for (int i = 0; i < 2; i++) {
        struct end near;
        const char *url = fresh_url();
        weft_err err = WEFT_OK;
        uint32_t n = 0;
        open_end(&near, false, kinds[i], url);
        pid_t pid = spawn_far(true, kinds[i], url, NULL);
        WAIT_FOR(near.peers[0].n_got > 20, turn(&near, 10));
        assert_int_equal(kill(pid, SIGSTOP), 0);
        for (; n < 200000 && !err; n++)
            err = weft_link_send(near.link, 0, bytes, sizeof bytes);
        assert_int_equal(err, WEFT_E_FULL);
        assert_false(weft_link_is_up(near.link, 0));
        assert_int_equal(weft_link_send(near.link, 0, "x", 1), WEFT_E_CLOSED);
        turn(&near, 0);
        assert_false(near.peers[0].up); /* DOWN was told */
        kill_far(pid);
        pid = spawn_far(true, kinds[i], url, NULL);
        near.streams = true;
        WAIT_FOR(near.peers[0].n_got > 20, turn(&near, 10));
        kill_far(pid);
        close_end(&near);
    }
}

static void a_peer_of_another_user_is_turned_away(void **state) {
    (void)state;
    if (geteuid() != 0) {
        (void)printf("SKIPPED: needs root to become somebody else\n");
        skip();
    }
    struct end near;
    const char *url = fresh_url();
    for (int kind = WEFT_LINK_ONE_PEER; kind <= WEFT_LINK_MANY_PEERS; kind++) {
        open_end(&near, false, (enum weft_link_kind)kind, url);
        pid_t pid = spawn_far(true, (enum weft_link_kind)kind, url, "65534");
        for (int i = 0; i < 50; i++)
            turn(&near, 10);
        assert_int_equal(near.peers[0].n_ups, 0);
        kill_far(pid);
        close_end(&near);
        /* And the other way round: nobody's listener gets nothing from us. */
        pid = spawn_far(false, (enum weft_link_kind)kind, url, "65534");
        open_end(&near, true, (enum weft_link_kind)kind, url);
        for (int i = 0; i < 50; i++)
            turn(&near, 10);
        assert_int_equal(near.peers[0].n_ups, 0);
        close_end(&near);
        kill_far(pid);
    }
}

static void a_peer_of_unknown_user_is_turned_away(void **state) {
    (void)state;
    struct end near;
    const char *url = fresh_url();
    for (int dials = 0; dials <= 1; dials++) {
        users_are_unknown = true;
        n_unknown = 0;
        pid_t pid = spawn_far(!dials, WEFT_LINK_ONE_PEER, url, NULL);
        open_end(&near, dials, WEFT_LINK_ONE_PEER, url);
        WAIT_FOR(n_unknown >= 3, turn(&near, 10));
        assert_int_equal(near.peers[0].n_ups, 0);
        users_are_unknown = false; /* the same two, and nothing else has been in their way */
        WAIT_FOR(near.peers[0].up, turn(&near, 10));
        close_end(&near);
        kill_far(pid);
    }
}

static void a_dead_socket_is_replaced_and_another_file_stays(void **state) {
    (void)state;
    struct weft_errmsg why;
    weft_link *link;
    char path[] = "/tmp/weft-test-link-XXXXXX", url[64], kept[4];
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, "mine", 4), 4);
    (void)snprintf(url, sizeof url, "ipc://%s", path);
    assert_int_equal(listen_alone(url, &link, &why), WEFT_E_IO);
    assert_int_equal(pread(file, kept, 4, 0), 4);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    (void)close(file);

    pid_t pid = spawn_far(false, WEFT_LINK_ONE_PEER, url, NULL);
    WAIT_FOR(access(path, F_OK) == 0, (void)usleep(1000));
    assert_int_equal(listen_alone(url, &link, &why), WEFT_E_IO); /* in use */
    kill_far(pid);                                               /* its file stays */
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(listen_alone(url, &link, &why), WEFT_OK);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    weft_link_free(link);
    assert_int_not_equal(access(path, F_OK), 0);
}

const struct link_case process_cases[] = {
    LINK_CASE(a_dead_socket_is_replaced_and_another_file_stays, OVER(IPC)),
    LINK_CASE(a_peer_of_another_user_is_turned_away, OVER(ABSTRACT) | OVER(TCP)),
    LINK_CASE(a_peer_of_unknown_user_is_turned_away, OVER(ABSTRACT) | OVER(IPC)),
    LINK_CASE(a_killed_worker_is_noticed_and_replaced, OVER_ALL),
    LINK_CASE(a_killed_router_is_noticed_and_replaced, OVER_ALL),
    LINK_CASE(a_worker_survives_killed_schedulers, OVER_ALL),
    LINK_CASE(a_router_survives_killed_schedulers, OVER_ALL),
    LINK_CASE(a_stopped_peer_makes_the_send_full_and_then_comes_back, OVER_ALL),
    {{0}, 0},
};
