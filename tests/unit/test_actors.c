/* The real weft-scheduler and weft-worker, with this test as their router and as their supervisor:
 * it submits requests over a link, kills processes in mid-stream, starts them again, and compares
 * every token with an undisturbed run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/rand.h"
#include "common/signals.h"
#include "common/status.h"
#include "link/link.h"
#include "proto/proto.h"

#define N_STREAMS 8
#define OUTPUT_MAX 300
#define STATUS_FD 3
#define WEIGHTS_FD 4

enum { SCHEDULER, WORKER, N_CHILDREN };

struct child {
    pid_t pid;     /* 0: not running */
    int status_fd; /* reads what it tells its supervisor */
    int exit_status;
    bool keep;     /* start it again when it dies */
    bool may_exit; /* with EXIT_FAILURE: to be started again */
    uint32_t n_starts;
    char told[1024];  /* but for "alive", which is counted */
    uint32_t n_alive; /* so often in all */
};

struct stream {
    uint64_t id;
    uint32_t attempt; /* 0: not submitted */
    uint32_t prompt[64];
    uint32_t n_prompt;
    struct weft_sampling sampling;
    uint32_t output[OUTPUT_MAX];
    uint32_t n_output;
    bool accepted;
    enum weft_end end;
    enum weft_reject rejected;
};

/* One cluster and one router. */
struct cluster {
    char scheduler_url[64], worker_url[64];
    const char *model, *kv_memory;
    int weights_fd;
    struct child children[N_CHILDREN];
    weft_link *link;
    bool is_up;
    weft_proto_decoder *decoder;
    struct weft_buf out;
    struct stream streams[N_STREAMS];
    uint32_t n_streams, n_tokens;
    uint32_t n_sessions;
    struct weft_msg_snapshot snapshot;
    uint32_t n_snapshots;
};

static uint32_t factor(void) {
    return getenv("WEFT_SANITIZED") ? 6 : 1;
}

/* The longest stream; each one is three tokens shorter than the one before. */
static uint32_t longest(void) {
    return getenv("WEFT_SANITIZED") ? 100 : OUTPUT_MAX;
}

static uint32_t length_of(uint32_t idx) {
    return longest() - 3 * idx;
}

/* So many tokens are this share of all. */
static uint32_t tokens_at(uint32_t percent) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_STREAMS; i++)
        n += length_of(i);
    return n * percent / 100;
}

/* ------------------------------------------------------------------------------- children --- */

static void start_child(struct cluster *c, int which) {
    struct child *child = &c->children[which];
    char program[4096], url[128], status[32], weights[32], model[4096];
    const char *bin = getenv("WEFT_BIN_DIR"), *source = getenv("WEFT_SOURCE_DIR");
    assert_non_null(bin);
    assert_non_null(source);
    (void)snprintf(program, sizeof program, "%s/%s", bin,
                   which == SCHEDULER ? "weft-scheduler" : "weft-worker");
    (void)snprintf(url, sizeof url, "--worker-url=%s", c->worker_url);
    (void)snprintf(status, sizeof status, "--status-fd=%d", STATUS_FD);
    (void)snprintf(weights, sizeof weights, "--weights-fd=%d", WEIGHTS_FD);
    (void)snprintf(model, sizeof model, "%s/%s", source, c->model);
    char scheduler[128], kv_memory[64];
    (void)snprintf(kv_memory, sizeof kv_memory, "--kv-memory=%s", c->kv_memory);
    (void)snprintf(scheduler, sizeof scheduler, "--scheduler-url=%s", c->scheduler_url);
    char *scheduler_argv[] = {program, url, status, scheduler, "--log-level=warn", NULL};
    char *worker_argv[] = {program,       url,       status, weights, "--log-level=warn",
                           "--threads=2", kv_memory, model,  NULL};
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* Out of the way first: the descriptors may be each other's targets. */
        int status_fd = fcntl(ends[1], F_DUPFD, 10), weights_fd = fcntl(c->weights_fd, F_DUPFD, 10);
        if (dup2(status_fd, STATUS_FD) < 0 || dup2(weights_fd, WEIGHTS_FD) < 0) _exit(126);
        (void)close(status_fd);
        (void)close(weights_fd);
        (void)execv(program, which == SCHEDULER ? scheduler_argv : worker_argv);
        _exit(127);
    }
    (void)close(ends[1]);
    if (child->n_starts) (void)close(child->status_fd);
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    child->pid = pid;
    child->status_fd = ends[0];
    child->keep = true;
    child->n_starts++;
}

static void read_status(struct child *child) {
    size_t len = strlen(child->told);
    ssize_t n = read(child->status_fd, child->told + len, sizeof child->told - 1 - len);
    if (n > 0) child->told[len + (size_t)n] = '\0';
    static const char alive[] = "alive\n";
    for (char *at; (at = strstr(child->told, alive)); child->n_alive++)
        memmove(at, at + sizeof alive - 1, strlen(at + sizeof alive - 1) + 1);
}

static void reap_children(struct cluster *c) {
    for (int i = 0; i < N_CHILDREN; i++) {
        struct child *child = &c->children[i];
        int status = 0;
        if (child->n_starts) read_status(child);
        if (!child->pid || waitpid(child->pid, &status, WNOHANG) != child->pid) continue;
        read_status(child);
        child->pid = 0;
        child->exit_status = status;
        if (!child->keep) continue;
        /* Only the test's own SIGKILL, or the scheduler's, may end a child that is to be kept. */
        if (child->may_exit && WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), EXIT_FAILURE);
        } else {
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        }
        start_child(c, i);
    }
}

/* Asks it to exit; it must do so cleanly, also in the eyes of a leak checker. */
static void stop_child(struct cluster *c, int which) {
    struct child *child = &c->children[which];
    if (!child->pid) return;
    child->keep = false;
    (void)kill(child->pid, WEFT_SIGNO_EXIT);
    uint64_t until = weft_now_ms() + 5000u * factor();
    while (child->pid && weft_now_ms() < until) {
        reap_children(c);
        (void)poll(NULL, 0, 5);
    }
    assert_int_equal(child->pid, 0);
    assert_true(WIFEXITED(child->exit_status));
    assert_int_equal(WEXITSTATUS(child->exit_status), 0);
}

/* --------------------------------------------------------------------------------- router --- */

static void send_message(struct cluster *c, const struct weft_msg *msg) {
    weft_buf_clear(&c->out);
    weft_proto_encode(msg, &c->out);
    assert_false(c->out.failed);
    (void)!weft_link_send(c->link, 0, c->out.data, c->out.len); /* a lost session is told apart */
}

static void submit(struct cluster *c, struct stream *s) {
    struct weft_submit_choice choice = {.output = s->output, .n_output = s->n_output};
    bool resume = s->attempt > 0;
    struct weft_msg msg = {.type = WEFT_MSG_SUBMIT};
    msg.submit = (struct weft_submit){
        .request_id = s->id,
        .attempt = ++s->attempt,
        .prompt = s->prompt,
        .n_prompt = s->n_prompt,
        .n_choices = 1,
        .choices = &choice,
        .resume = resume,
        .sampling = s->sampling,
        .weight = 1,
    };
    send_message(c, &msg);
}

static bool is_over(const struct stream *s) {
    return s->end != WEFT_END_NONE || s->rejected != WEFT_REJECT_NONE;
}

static void begin_session(struct cluster *c) {
    c->is_up = true;
    c->n_sessions++;
    struct weft_msg msg = {.type = WEFT_MSG_ROUTER_HELLO};
    msg.router_hello = (struct weft_msg_router_hello){
        .version = WEFT_PROTO_VERSION, .instance = 1, .pid = (uint32_t)getpid()};
    send_message(c, &msg);
    for (uint32_t i = 0; i < c->n_streams; i++) {
        if (!is_over(&c->streams[i])) submit(c, &c->streams[i]);
    }
}

static struct stream *find_stream(struct cluster *c, uint64_t id) {
    for (uint32_t i = 0; i < c->n_streams; i++) {
        if (c->streams[i].id == id) return &c->streams[i];
    }
    fail_msg("an answer to a request that was never made");
    return NULL;
}

static void take_event(struct cluster *c, const struct weft_event *event) {
    struct stream *s = find_stream(c, event->request_id);
    if (event->attempt != s->attempt) return; /* of a session that is over */
    assert_true(s->accepted);
    assert_false(is_over(s));
    if (event->sampled) {
        assert_int_equal(event->output_idx, s->n_output); /* none twice, none missing */
        assert_true(s->n_output < OUTPUT_MAX);
        s->output[s->n_output++] = event->token;
        c->n_tokens++;
    }
    s->end = event->end;
}

static void take_message(struct cluster *c, const void *bytes, size_t len) {
    struct weft_msg msg;
    struct weft_errmsg why;
    assert_int_equal(weft_proto_decode(c->decoder, bytes, len, &msg, &why), WEFT_OK);
    switch (msg.type) {
    case WEFT_MSG_SCHED_HELLO:
        break;
    case WEFT_MSG_ACCEPTED:
        find_stream(c, msg.accepted.request_id)->accepted = true;
        break;
    case WEFT_MSG_REJECTED:
        find_stream(c, msg.rejected.request_id)->rejected = msg.rejected.reason;
        break;
    case WEFT_MSG_SNAPSHOT:
        c->snapshot = msg.snapshot;
        c->n_snapshots++;
        break;
    case WEFT_MSG_EVENTS:
        for (uint32_t i = 0; i < msg.events.n; i++)
            take_event(c, &msg.events.events[i]);
        break;
    default:
        fail_msg("a router takes no %s", weft_proto_type_name(msg.type));
    }
}

static void pump(struct cluster *c) {
    struct pollfd fd = {.fd = weft_link_fd(c->link), .events = POLLIN};
    (void)poll(&fd, 1, 5);
    struct weft_link_event event;
    while (weft_link_next(c->link, weft_now_ms(), &event)) {
        if (event.kind == WEFT_LINK_UP) begin_session(c);
        if (event.kind == WEFT_LINK_DOWN) c->is_up = false;
        if (event.kind == WEFT_LINK_MESSAGE) take_message(c, event.bytes, event.len);
    }
    weft_link_tick(c->link, weft_now_ms());
    reap_children(c);
}

static bool all_over(const struct cluster *c) {
    for (uint32_t i = 0; i < c->n_streams; i++) {
        if (!is_over(&c->streams[i])) return false;
    }
    return true;
}

/* Until the condition holds; fails after `seconds` (more under a sanitizer). */
#define PUMP_UNTIL(c, condition, seconds)                                                          \
    do {                                                                                           \
        uint64_t until_ms_ = weft_now_ms() + (seconds)*1000u * factor();                           \
        while (!(condition)) {                                                                     \
            if (weft_now_ms() > until_ms_) fail_msg("%s took too long", #condition);               \
            pump(c);                                                                               \
        }                                                                                          \
    } while (0)

/* -------------------------------------------------------------------------------- cluster --- */

/* Every second one is greedy, the others are drawn. */
static void make_stream(struct cluster *c) {
    assert_true(c->n_streams < N_STREAMS);
    uint32_t idx = c->n_streams++;
    uint64_t seed = 1000 + idx;
    struct stream *s = &c->streams[idx];
    *s = (struct stream){.id = 100 + c->n_streams};
    s->n_prompt = 5 + weft_rand_below(&seed, 59);
    for (uint32_t i = 0; i < s->n_prompt; i++)
        s->prompt[i] = weft_rand_below(&seed, 4000);
    weft_sampling_init(&s->sampling);
    s->sampling.max_tokens = length_of(idx);
    s->sampling.temperature = idx % 2 ? 0.9f : 0.0f;
    s->sampling.seed = seed;
    if (c->is_up) submit(c, s);
}

static void make_streams(struct cluster *c) {
    for (uint32_t i = 0; i < N_STREAMS; i++)
        make_stream(c);
}

static struct cluster *cluster_new(const char *model) {
    struct cluster *c = calloc(1, sizeof *c);
    assert_non_null(c);
    uint64_t seed = weft_rand_seed();
    (void)snprintf(c->scheduler_url, sizeof c->scheduler_url, "abstract://weft-test-%016llx-s",
                   (unsigned long long)seed);
    (void)snprintf(c->worker_url, sizeof c->worker_url, "abstract://weft-test-%016llx-w",
                   (unsigned long long)seed);
    c->model = model;
    c->kv_memory = "64MiB";
    c->weights_fd = memfd_create("weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(c->weights_fd >= 0);
    weft_buf_init(&c->out, WEFT_MESSAGE_BYTES_MAX);
    assert_int_equal(weft_proto_decoder_new(&c->decoder), WEFT_OK);
    struct weft_errmsg why;
    assert_int_equal(weft_link_dial(WEFT_LINK_MANY_PEERS, c->scheduler_url, NULL, &c->link, &why),
                     WEFT_OK);
    return c;
}

static struct cluster *cluster_started(void) {
    struct cluster *c = cluster_new("models/fable-6m");
    start_child(c, SCHEDULER);
    start_child(c, WORKER);
    PUMP_UNTIL(c, c->is_up && c->snapshot.serving, 20);
    return c;
}

static void cluster_free(struct cluster *c) {
    for (int i = 0; i < N_CHILDREN; i++) {
        stop_child(c, i);
        if (c->children[i].n_starts) (void)close(c->children[i].status_fd);
    }
    weft_link_free(c->link);
    weft_proto_decoder_free(c->decoder);
    weft_buf_fini(&c->out);
    (void)close(c->weights_fd);
    free(c);
}

/* All blocks are free again and nothing runs: told by a snapshot that is newer than now. */
static void expect_empty(struct cluster *c) {
    uint32_t seen = c->n_snapshots;
    PUMP_UNTIL(c,
               c->n_snapshots > seen && c->snapshot.n_running == 0 && c->snapshot.n_waiting == 0 &&
                   c->snapshot.n_blocks > 0 && c->snapshot.n_blocks_free == c->snapshot.n_blocks,
               5);
}

/* ---------------------------------------------------------------------------------- cases --- */

static struct stream undisturbed[N_STREAMS];

static int run_undisturbed(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_streams(c);
    PUMP_UNTIL(c, all_over(c), 60);
    memcpy(undisturbed, c->streams, sizeof undisturbed);
    expect_empty(c);
    assert_int_equal(c->n_sessions, 1);
    cluster_free(c);
    return 0;
}

static void expect_undisturbed(const struct cluster *c) {
    for (uint32_t i = 0; i < N_STREAMS; i++) {
        const struct stream *had = &c->streams[i], *want = &undisturbed[i];
        assert_int_equal(had->end, WEFT_END_LENGTH);
        assert_int_equal(had->n_output, length_of(i));
        assert_memory_equal(had->output, want->output, had->n_output * sizeof had->output[0]);
    }
}

static void streams_yield_the_same_when_one_after_the_other(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    for (uint32_t i = 0; i < N_STREAMS; i++) {
        make_stream(c);
        PUMP_UNTIL(c, all_over(c), 60);
    }
    expect_undisturbed(c);
    expect_empty(c);
    cluster_free(c);
}

static void killing_the_worker_in_mid_stream_changes_no_token(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_streams(c);
    for (uint32_t i = 1; i <= 3; i++) {
        PUMP_UNTIL(c, c->n_tokens >= tokens_at(25 * i), 60);
        assert_false(all_over(c));
        (void)kill(c->children[WORKER].pid, SIGKILL);
    }
    PUMP_UNTIL(c, all_over(c), 60);
    expect_undisturbed(c);
    assert_int_equal(c->children[WORKER].n_starts, 4);
    assert_int_equal(c->n_sessions, 1); /* the router notices nothing */
    expect_empty(c);
    assert_int_equal(c->snapshot.n_worker_losses, 3);
    cluster_free(c);
}

static void killing_the_scheduler_in_mid_stream_changes_no_token(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_streams(c);
    for (uint32_t i = 1; i <= 3; i++) {
        PUMP_UNTIL(c, c->n_tokens >= tokens_at(25 * i), 60);
        assert_false(all_over(c));
        (void)kill(c->children[SCHEDULER].pid, SIGKILL);
    }
    PUMP_UNTIL(c, all_over(c), 60);
    expect_undisturbed(c);
    assert_int_equal(c->children[SCHEDULER].n_starts, 4);
    assert_int_equal(c->children[WORKER].n_starts, 1);
    expect_empty(c);
    cluster_free(c);
}

static void killing_both_at_once_changes_no_token(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_streams(c);
    PUMP_UNTIL(c, c->n_tokens >= tokens_at(30), 60);
    assert_false(all_over(c));
    (void)kill(c->children[SCHEDULER].pid, SIGKILL);
    (void)kill(c->children[WORKER].pid, SIGKILL);
    PUMP_UNTIL(c, all_over(c), 60);
    expect_undisturbed(c);
    expect_empty(c);
    cluster_free(c);
}

static void killing_at_random_changes_no_token(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    struct cluster *c = cluster_started();
    make_streams(c);
    for (uint32_t at = 0; at < tokens_at(90); at += 1 + weft_rand_below(&rand, tokens_at(15))) {
        PUMP_UNTIL(c, c->n_tokens >= at, 60);
        uint64_t later_us = weft_now_us() + weft_rand_below(&rand, 3000);
        PUMP_UNTIL(c, weft_now_us() >= later_us, 1);
        uint32_t which =
            weft_rand_below(&rand, 4); /* 2: both, 3: the second while the first is away */
        if (which != WORKER) (void)kill(c->children[SCHEDULER].pid, SIGKILL);
        later_us = weft_now_us() + (which == 3 ? weft_rand_below(&rand, 30000) : 0);
        PUMP_UNTIL(c, weft_now_us() >= later_us, 1);
        if (which != SCHEDULER) (void)kill(c->children[WORKER].pid, SIGKILL);
    }
    PUMP_UNTIL(c, all_over(c), 60);
    expect_undisturbed(c);
    expect_empty(c);
    cluster_free(c);
}

static void requests_before_the_first_worker_wait_for_it(void **state) {
    (void)state;
    struct cluster *c = cluster_new("models/fable-6m");
    start_child(c, SCHEDULER);
    PUMP_UNTIL(c, c->is_up && c->n_snapshots > 0, 10);
    assert_false(c->snapshot.serving);
    make_streams(c);
    uint32_t seen = c->n_snapshots;
    PUMP_UNTIL(c, c->n_snapshots > seen + 1, 10);
    assert_false(c->streams[0].accepted);
    start_child(c, WORKER);
    PUMP_UNTIL(c, all_over(c), 60);
    expect_undisturbed(c);
    expect_empty(c);
    cluster_free(c);
}

static void a_stuck_worker_is_reported_and_then_killed(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_streams(c);
    PUMP_UNTIL(c, c->n_tokens >= tokens_at(20), 60);
    assert_false(all_over(c));
    (void)kill(c->children[WORKER].pid, SIGSTOP);
    uint64_t stopped_ms = weft_now_ms();
    PUMP_UNTIL(c, !c->snapshot.advancing, 3);
    assert_true(c->snapshot.serving);
    assert_true(weft_now_ms() - stopped_ms < 1500u * factor());
    PUMP_UNTIL(c, c->children[WORKER].n_starts == 2, 15);
    assert_true(weft_now_ms() - stopped_ms > 9000);
    PUMP_UNTIL(c, c->snapshot.serving && c->snapshot.advancing, 15);
    PUMP_UNTIL(c, all_over(c), 60);
    expect_undisturbed(c);
    cluster_free(c);
}

/* Stops one thread and leaves the others running, as a hang in it would. */
static pid_t stop_thread(pid_t pid, const char *name) {
    char path[300];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    pid_t found = 0;
    for (struct dirent *entry; !found && (entry = readdir(dir));) {
        char comm[32] = "";
        (void)snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)pid, entry->d_name);
        FILE *file = fopen(path, "re");
        if (!file) continue;
        if (fgets(comm, sizeof comm, file) && strncmp(comm, name, strlen(name)) == 0)
            found = (pid_t)strtol(entry->d_name, NULL, 10);
        (void)fclose(file);
    }
    (void)closedir(dir);
    assert_true(found > 0);
    if (ptrace(PTRACE_SEIZE, found, NULL, NULL) != 0) return 0;
    assert_int_equal(ptrace(PTRACE_INTERRUPT, found, NULL, NULL), 0);
    return found;
}

static void a_step_that_hangs_behind_a_living_heart_is_found_out(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_streams(c);
    PUMP_UNTIL(c, c->n_tokens >= tokens_at(20), 60);
    assert_false(all_over(c));
    uint64_t stopped_ms = weft_now_ms();
    pid_t thread = stop_thread(c->children[WORKER].pid, "weft-step");
    if (!thread) {
        print_message("SKIPPED: may not trace a child here\n");
        skip();
    }
    PUMP_UNTIL(c, !c->snapshot.advancing, 3);
    /* The tracer has to take notice of the thread's end before the process can be reaped. */
    PUMP_UNTIL(
        c, ((void)waitpid(thread, NULL, WNOHANG | __WALL), c->children[WORKER].n_starts == 2), 15);
    assert_true(weft_now_ms() - stopped_ms > 9000);
    PUMP_UNTIL(c, all_over(c), 60);
    expect_undisturbed(c);
    cluster_free(c);
}

static void a_worker_with_less_memory_is_planned_for_anew(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    uint32_t n_blocks = c->snapshot.n_blocks;
    make_streams(c);
    PUMP_UNTIL(c, c->n_tokens >= tokens_at(20), 60);
    assert_false(all_over(c));
    c->kv_memory = "8MiB";
    c->children[SCHEDULER].may_exit = true;
    (void)kill(c->children[WORKER].pid, SIGKILL);
    PUMP_UNTIL(c, all_over(c), 60);
    expect_undisturbed(c);
    assert_int_equal(c->children[SCHEDULER].n_starts, 2);
    expect_empty(c);
    assert_true(c->snapshot.n_blocks < n_blocks);
    cluster_free(c);
}

static void another_model_in_the_middle_of_it_all_is_refused(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_streams(c);
    PUMP_UNTIL(c, c->n_tokens >= tokens_at(10), 60);
    assert_false(all_over(c));
    c->model = "tests/data/fable-draft-1m";
    c->children[SCHEDULER].keep = false;
    stop_child(c, WORKER);
    assert_int_equal(ftruncate(c->weights_fd, 0), -1); /* sealed: the other model needs its own */
    (void)close(c->weights_fd);
    c->weights_fd = memfd_create("weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    start_child(c, WORKER);
    PUMP_UNTIL(c, c->children[SCHEDULER].pid == 0, 20);
    assert_true(WIFEXITED(c->children[SCHEDULER].exit_status));
    assert_int_equal(WEXITSTATUS(c->children[SCHEDULER].exit_status), WEFT_EXIT_FATAL);
    assert_non_null(strstr(c->children[SCHEDULER].told, "failed the new worker serves "));
    cluster_free(c);
}

static void cancelled_requests_leave_and_others_go_on(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_streams(c);
    PUMP_UNTIL(c, c->n_tokens >= tokens_at(10), 60);
    for (uint32_t i = 0; i < N_STREAMS; i += 2) {
        struct weft_msg msg = {.type = WEFT_MSG_CANCEL};
        msg.cancel = (struct weft_msg_cancel){
            .request_id = c->streams[i].id, .attempt = c->streams[i].attempt, .choice = UINT32_MAX};
        send_message(c, &msg);
        c->streams[i].attempt++; /* messages still on their way are ignored */
        c->streams[i].end = WEFT_END_STOP;
    }
    PUMP_UNTIL(c, all_over(c), 60);
    for (uint32_t i = 1; i < N_STREAMS; i += 2) {
        assert_memory_equal(c->streams[i].output, undisturbed[i].output,
                            c->streams[i].n_output * sizeof(uint32_t));
    }
    expect_empty(c);
    assert_int_equal(c->snapshot.n_cancelled, N_STREAMS / 2);
    cluster_free(c);
}

static void forgetting_the_cache_changes_no_token(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    struct weft_msg msg = {.type = WEFT_MSG_RESET_CACHE};
    make_streams(c);
    PUMP_UNTIL(c, c->n_tokens >= tokens_at(10), 60);
    send_message(c, &msg);
    PUMP_UNTIL(c, all_over(c), 60);
    expect_undisturbed(c);
    assert_int_equal(c->n_sessions, 1);
    expect_empty(c);
    cluster_free(c);
}

static void what_a_lost_router_asked_for_is_dropped(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_streams(c);
    PUMP_UNTIL(c, c->n_tokens >= tokens_at(10), 60);
    weft_link_free(c->link);
    c->is_up = false;
    c->n_streams = 0;
    struct weft_errmsg why;
    assert_int_equal(weft_link_dial(WEFT_LINK_MANY_PEERS, c->scheduler_url, NULL, &c->link, &why),
                     WEFT_OK);
    PUMP_UNTIL(c, c->is_up, 10);
    expect_empty(c);
    cluster_free(c);
}

static void nonsense_costs_its_sender_the_session_and_nobody_else(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_streams(c);
    weft_link *other = NULL;
    struct weft_errmsg why;
    assert_int_equal(weft_link_dial(WEFT_LINK_MANY_PEERS, c->scheduler_url, NULL, &other, &why),
                     WEFT_OK);
    uint32_t n_up = 0;
    uint64_t rand = weft_rand_test_seed();
    while (!all_over(c) || n_up < 3) {
        pump(c);
        struct weft_link_event event;
        while (weft_link_next(other, weft_now_ms(), &event)) {
            if (event.kind != WEFT_LINK_UP) continue;
            n_up++;
            unsigned char bytes[100];
            for (size_t i = 0; i < sizeof bytes; i++)
                bytes[i] = (unsigned char)weft_rand_next(&rand);
            (void)!weft_link_send(other, 0, bytes, sizeof bytes);
        }
        weft_link_tick(other, weft_now_ms());
    }
    expect_undisturbed(c);
    assert_int_equal(c->n_sessions, 1);
    assert_int_equal(c->children[SCHEDULER].n_starts, 1);
    weft_link_free(other);
    cluster_free(c);
}

static void draining_refuses_new_requests_and_finishes_old_ones(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    make_stream(c);
    PUMP_UNTIL(c, c->n_tokens >= 10, 60);
    (void)kill(c->children[SCHEDULER].pid, WEFT_SIGNO_DRAIN);
    PUMP_UNTIL(c, c->snapshot.draining, 10);
    make_stream(c);
    PUMP_UNTIL(c, all_over(c), 60);
    assert_int_equal(c->streams[1].rejected, WEFT_REJECT_DRAINING);
    assert_int_equal(c->streams[0].n_output, longest());
    assert_memory_equal(c->streams[0].output, undisturbed[0].output, longest() * sizeof(uint32_t));
    cluster_free(c);
}

static void under_a_supervisor_only_its_own_signals_count(void **state) {
    (void)state;
    struct cluster *c = cluster_started();
    for (int i = 0; i < N_CHILDREN; i++) {
        (void)kill(c->children[i].pid, SIGTERM);
        (void)kill(c->children[i].pid, SIGINT);
        (void)kill(c->children[i].pid, SIGHUP);
        (void)kill(c->children[i].pid, SIGUSR1);
        (void)kill(c->children[i].pid, SIGUSR2);
    }
    make_stream(c);
    PUMP_UNTIL(c, all_over(c), 60);
    for (int i = 0; i < N_CHILDREN; i++) {
        assert_int_equal(c->children[i].n_starts, 1);
        /* A worker's says before what it needs, and its KV memory after the word. */
        const char *told = strstr(c->children[i].told, "ready");
        assert_non_null(told);
        assert_string_equal(strchr(told, '\n'), i == WORKER ? "\nworked\n" : "\n"); /* once */
    }
    cluster_free(c);
}

static void a_scheduler_says_that_it_is_alive_until_it_stands_still(void **state) {
    (void)state;
    struct cluster *c = cluster_new("models/fable-6m");
    struct child *scheduler = &c->children[SCHEDULER];
    start_child(c, SCHEDULER); /* and no worker: it need not have anything to do */
    uint64_t begin_ms = weft_now_ms();
    PUMP_UNTIL(c, scheduler->n_alive >= 4, 30);
    assert_true(weft_now_ms() - begin_ms >= 3u * WEFT_STATUS_ALIVE_MS);
    assert_true(weft_now_ms() - begin_ms < WEFT_STATUS_SILENT_MS);
    (void)kill(scheduler->pid, SIGSTOP);
    uint32_t n_alive = scheduler->n_alive;
    uint64_t until_ms = weft_now_ms() + 3u * WEFT_STATUS_ALIVE_MS;
    PUMP_UNTIL(c, weft_now_ms() >= until_ms, 30);
    assert_true(scheduler->n_alive <= n_alive + 1); /* one was on its way */
    (void)kill(scheduler->pid, SIGCONT);
    PUMP_UNTIL(c, scheduler->n_alive > n_alive + 1, 30);
    assert_int_equal(scheduler->n_starts, 1);
    cluster_free(c);
}

static void say_worker_hello(struct cluster *c, weft_link *link) {
    struct weft_msg msg = {.type = WEFT_MSG_WORKER_HELLO};
    msg.worker_hello = (struct weft_msg_worker_hello){
        .version = WEFT_PROTO_VERSION,
        .pid = (uint32_t)getpid(),
        .model = {.model_name = "m",
                  .n_vocab = 4096,
                  .n_blocks = 100,
                  .block_size = 16,
                  .max_model_len = 1024,
                  .max_seqs = 8,
                  .max_batched_tokens = 64,
                  .n_threads = 1},
    };
    weft_buf_clear(&c->out);
    weft_proto_encode(&msg, &c->out);
    (void)!weft_link_send(link, 0, c->out.data, c->out.len);
}

/* A worker that is gone as soon as a plan comes. True: it is. */
static bool dies_of_a_plan(struct cluster *c, weft_link *link) {
    struct weft_link_event event;
    while (weft_link_next(link, weft_now_ms(), &event)) {
        struct weft_msg msg;
        struct weft_errmsg why;
        if (event.kind == WEFT_LINK_UP) say_worker_hello(c, link);
        if (event.kind != WEFT_LINK_MESSAGE) continue;
        assert_int_equal(weft_proto_decode(c->decoder, event.bytes, event.len, &msg, &why),
                         WEFT_OK);
        if (msg.type == WEFT_MSG_PLAN && msg.plan.n_rows > 0) return true;
    }
    weft_link_tick(link, weft_now_ms());
    return false;
}

static void a_request_that_every_worker_dies_of_is_ended(void **state) {
    (void)state;
    struct cluster *c = cluster_new("models/fable-6m");
    struct weft_errmsg why;
    uint32_t n_deaths = 0;
    start_child(c, SCHEDULER);
    PUMP_UNTIL(c, c->is_up, 10);
    make_stream(c);
    uint64_t until_ms = weft_now_ms() + 20000u * factor();
    while (!all_over(c) && weft_now_ms() < until_ms) {
        weft_link *link = NULL;
        assert_int_equal(weft_link_dial(WEFT_LINK_ONE_PEER, c->worker_url, NULL, &link, &why),
                         WEFT_OK);
        while (!all_over(c) && !dies_of_a_plan(c, link) && weft_now_ms() < until_ms)
            pump(c);
        weft_link_free(link);
        n_deaths++;
        for (uint32_t seen = c->n_snapshots; c->n_snapshots == seen;) /* told by then, if it is */
            pump(c);
    }
    assert_int_equal(c->streams[0].end, WEFT_END_ERROR);
    assert_int_equal(n_deaths, WEFT_SEQ_LOSSES_MAX);
    PUMP_UNTIL(c, strstr(c->children[SCHEDULER].told, "explained\n") != NULL, 10);
    cluster_free(c);
}

static void a_worker_without_a_model_says_so_and_gives_up(void **state) {
    (void)state;
    struct cluster *c = cluster_new("no/such/model");
    start_child(c, WORKER);
    c->children[WORKER].keep = false;
    PUMP_UNTIL(c, c->children[WORKER].pid == 0, 10);
    assert_true(WIFEXITED(c->children[WORKER].exit_status));
    assert_int_equal(WEXITSTATUS(c->children[WORKER].exit_status), WEFT_EXIT_FATAL);
    assert_memory_equal(c->children[WORKER].told, "failed ", 7);
    cluster_free(c);
}

int main(void) {
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_yield_the_same_when_one_after_the_other),
        cmocka_unit_test(killing_the_worker_in_mid_stream_changes_no_token),
        cmocka_unit_test(killing_the_scheduler_in_mid_stream_changes_no_token),
        cmocka_unit_test(killing_both_at_once_changes_no_token),
        cmocka_unit_test(killing_at_random_changes_no_token),
        cmocka_unit_test(requests_before_the_first_worker_wait_for_it),
        cmocka_unit_test(a_stuck_worker_is_reported_and_then_killed),
        cmocka_unit_test(a_step_that_hangs_behind_a_living_heart_is_found_out),
        cmocka_unit_test(a_worker_with_less_memory_is_planned_for_anew),
        cmocka_unit_test(another_model_in_the_middle_of_it_all_is_refused),
        cmocka_unit_test(cancelled_requests_leave_and_others_go_on),
        cmocka_unit_test(forgetting_the_cache_changes_no_token),
        cmocka_unit_test(what_a_lost_router_asked_for_is_dropped),
        cmocka_unit_test(nonsense_costs_its_sender_the_session_and_nobody_else),
        cmocka_unit_test(draining_refuses_new_requests_and_finishes_old_ones),
        cmocka_unit_test(under_a_supervisor_only_its_own_signals_count),
        cmocka_unit_test(a_scheduler_says_that_it_is_alive_until_it_stands_still),
        cmocka_unit_test(a_request_that_every_worker_dies_of_is_ended),
        cmocka_unit_test(a_worker_without_a_model_says_so_and_gives_up),
    };
    return cmocka_run_group_tests(tests, run_undisturbed, NULL);
}
