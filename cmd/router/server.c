#include "server.h"

#include <linux/sockios.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "api/call.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "common/actor.h"
#include "common/signals.h"
#include "common/status.h"

#define TICK_MS 100
#define LINGER_MS 2000
#define TURN_BODY_BYTES 32768 /* a few milliseconds; the rest goes to a thread */
#define TURN_PASSES_MAX 4
#define COMPLAINT_MS 1000
/* A server that was replaced waits so long for the next request of a connection: its answer tells
 * the client to come by another one, and nothing else would. */
#define NEXT_REQUEST_MS 5000
/* After --drain-timeout, for the errors that tell clients so. Less than the supervisor waits for. */
#define GOODBYE_MS 500

/* -------------------------------------------------------------------------------- preparing --- */

struct prepare_work {
    struct work work;
    weft_api_call *call;
};

static struct prepare_work *prepare_of(struct work *work) {
    _Static_assert(offsetof(struct prepare_work, work) == 0, "one address for both");
    return (struct prepare_work *)work;
}

static void check_in_thread(struct work *work) {
    weft_api_call_check(prepare_of(work)->call);
}

static void prepare_in_thread(struct work *work) {
    weft_api_call *call = prepare_of(work)->call;
    weft_api_call_prepare(call);
    if (weft_api_call_has_grammar(call)) weft_api_call_check(call);
}

static void after_prepare(struct work *work) {
    struct prepare_work *prepare = prepare_of(work);
    weft_api_call *call = prepare->call;
    if (weft_api_call_make_room(call)) {
        wefti_work_add(work->queue, work, weft_api_call_body_bytes(call), weft_now_ms());
        return;
    }
    free(prepare);
    weft_api_call_return(call, weft_now_us());
}

static bool take_back(void *context) {
    struct prepare_work *prepare = context;
    if (!wefti_work_cancel(&prepare->work)) return false;
    free(prepare);
    return true;
}

/* Whether the loop itself may prepare the call: it is short, and this turn has prepared little. */
static bool has_time(struct server *server, size_t bytes) {
    if (server->prepared_turn != server->n_turns) server->prepared_bytes = 0;
    server->prepared_turn = server->n_turns;
    if (bytes > WEFT_API_SHORT_BODY_BYTES || server->prepared_bytes + bytes > TURN_BODY_BYTES)
        return false;
    server->prepared_bytes += bytes;
    return true;
}

void wefti_server_begin(struct server *server, weft_api_call *call) {
    struct prepare_work *prepare = NULL;
    WEFT_ASSERT(weft_api_call_state(call) == WEFT_API_CALL_PREPARING);
    size_t n_bytes = weft_api_call_body_bytes(call);
    bool is_short = has_time(server, n_bytes);
    if (is_short) weft_api_call_prepare(call);
    if (weft_api_call_make_room(call)) {
        is_short = false;
        n_bytes = weft_api_call_body_bytes(call);
    }
    if (!is_short || weft_api_call_has_grammar(call)) prepare = calloc(1, sizeof *prepare);
    if (!prepare) { /* for want of memory, too: better late than not */
        while (!is_short) {
            weft_api_call_prepare(call);
            is_short = !weft_api_call_make_room(call);
        }
        if (weft_api_call_has_grammar(call)) weft_api_call_check(call);
        weft_api_call_start(call, weft_now_us());
        return;
    }
    prepare->call = call;
    prepare->work.run = is_short ? check_in_thread : prepare_in_thread;
    prepare->work.done = after_prepare;
    weft_api_call_lend(call, take_back, prepare);
    wefti_work_add(&server->work, &prepare->work, n_bytes, weft_now_ms());
}

void wefti_server_complain(struct server *server, const char *fmt, ...) {
    char text[512];
    uint64_t now_ms = weft_now_ms();
    if (server->complained_ms && now_ms < server->complained_ms + COMPLAINT_MS) {
        server->n_muted++;
        return;
    }
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (server->n_muted)
        weft_info("%s (and %u like events before)", text, server->n_muted);
    else
        weft_info("%s", text);
    server->complained_ms = now_ms;
    server->n_muted = 0;
}

void wefti_server_log_access(const struct conn *conn, struct weft_api_access *access) {
    enum weft_api_access_format format = conn->server->access_format;
    if (format == WEFT_API_ACCESS_OFF) return;
    struct timespec now;
    struct weft_buf line;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    weft_buf_init(&line, WEFT_API_ACCESS_LINE_BYTES_MAX);
    access->client = conn->client;
    weft_api_access_line(access, format,
                         (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000, &line);
    if (!line.failed) weft_log_line(line.data, line.len);
    weft_buf_fini(&line);
}

/* ------------------------------------------------------------------------------ connections --- */

void wefti_conn_awake(struct conn *conn) {
    if (conn->is_awake || conn->is_closing) return;
    conn->is_awake = true;
    TAILQ_INSERT_TAIL(&conn->server->awake, conn, awake_entry);
}

static void let_sleep(struct conn *conn) {
    if (!conn->is_awake) return;
    conn->is_awake = false;
    TAILQ_REMOVE(&conn->server->awake, conn, awake_entry);
}

static void on_closed(uv_handle_t *handle) {
    struct conn *conn = handle->data;
    WEFT_ASSERT(conn->is_closing && !conn->is_awake);
    conn->ops->on_free(conn);
    weft_buf_fini(&conn->out);
    weft_buf_fini(&conn->writing);
    free(conn);
}

static void count(struct conn *conn) {
    struct server *server = conn->server;
    if (conn->place == CONN_SPARE_PLACE) {
        TAILQ_INSERT_TAIL(&server->spare, conn, spare_entry);
        server->n_spare++;
    }
    if (conn->place != CONN_PLACE) return;
    server->n_conns++;
    server->n_rpc_conns += !conn->is_http;
    server->api.metrics.n_connections++;
    server->api.metrics.n_open_connections = server->n_conns;
}

static void uncount(struct conn *conn) {
    struct server *server = conn->server;
    if (conn->place == CONN_SPARE_PLACE) {
        WEFT_ASSERT(server->n_spare > 0);
        TAILQ_REMOVE(&server->spare, conn, spare_entry);
        server->n_spare--;
    }
    if (conn->place != CONN_PLACE) return;
    WEFT_ASSERT(server->n_conns > 0 && server->n_rpc_conns <= server->n_conns);
    server->n_conns--;
    server->n_rpc_conns -= !conn->is_http;
    server->api.metrics.n_open_connections = server->n_conns;
}

void wefti_conn_begin(struct conn *conn) {
    LIST_INSERT_HEAD(&conn->server->conns, conn, entry);
    count(conn);
}

void wefti_conn_close(struct conn *conn) {
    if (conn->is_closing) return;
    let_sleep(conn);
    conn->is_closing = true;
    conn->ops->on_close(conn);
    LIST_REMOVE(conn, entry);
    uncount(conn);
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
}

bool wefti_conn_is_full(const struct conn *conn) {
    return conn->is_writing || conn->out.len >= WEFT_OUT_BYTES;
}

static void on_shutdown(uv_shutdown_t *request, int status) {
    struct conn *conn = request->data;
    if (status < 0) wefti_conn_close(conn);
}

/* Runs when all output is written. */
static void after_flush(struct conn *conn) {
    if (!conn->ends_when_flushed || conn->linger_until_ms) return;
    if (!conn->lingers) {
        wefti_conn_close(conn);
        return;
    }
    conn->linger_until_ms = weft_now_ms() + LINGER_MS;
    conn->shutdown.data = conn;
    if (uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shutdown) != 0) {
        wefti_conn_close(conn);
        return;
    }
    wefti_conn_read(conn, true);
}

void wefti_conn_end(struct conn *conn, bool linger) {
    conn->ends_when_flushed = true;
    conn->lingers = linger;
    wefti_conn_flush(conn);
}

static void on_written(uv_write_t *write, int status) {
    struct conn *conn = write->data;
    WEFT_ASSERT(conn->is_writing);
    conn->is_writing = false;
    if (conn->is_closing) return;
    if (status < 0) {
        wefti_conn_close(conn);
        return;
    }
    conn->written_ms = weft_now_ms();
    weft_buf_fini(&conn->writing);
    wefti_conn_flush(conn);
    if (!conn->is_closing && !conn->is_writing) wefti_conn_awake(conn);
}

void wefti_conn_flush(struct conn *conn) {
    if (conn->is_closing || conn->is_writing) return;
    if (conn->out.failed) { /* no memory for the rest of an answer */
        wefti_conn_close(conn);
        return;
    }
    if (conn->out.len == 0) {
        after_flush(conn);
        return;
    }
    uv_buf_t buf = uv_buf_init(conn->out.data, (unsigned)conn->out.len);
    int n = uv_try_write((uv_stream_t *)&conn->tcp, &buf, 1);
    if (n < 0 && n != UV_EAGAIN) {
        wefti_conn_close(conn);
        return;
    }
    WEFT_ASSERT(n < 0 || (size_t)n <= conn->out.len);
    conn->handed_bytes += conn->out.len;
    if (n > 0 && (size_t)n == conn->out.len) {
        if (conn->out.cap > 4096)
            weft_buf_fini(&conn->out); /* an idle connection holds no buffers */
        else
            weft_buf_clear(&conn->out);
        after_flush(conn);
        return;
    }
    conn->writing = conn->out;
    conn->writing_from = n > 0 ? (size_t)n : 0;
    weft_buf_init(&conn->out, conn->writing.max_bytes);
    buf = uv_buf_init(conn->writing.data + conn->writing_from,
                      (unsigned)(conn->writing.len - conn->writing_from));
    conn->write.data = conn;
    conn->is_writing = true;
    if (uv_write(&conn->write, (uv_stream_t *)&conn->tcp, &buf, 1, on_written) != 0) {
        conn->is_writing = false;
        wefti_conn_close(conn);
    }
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *buf) {
    (void)wanted;
    const struct conn *conn = handle->data;
    bool is_bounded = conn->server->config.request_memory > 0;
    *buf =
        uv_buf_init(conn->server->read_bytes, is_bounded ? WEFT_SMALL_READ_BYTES : WEFT_READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct conn *conn = stream->data;
    if (n == 0 || conn->is_closing) return;
    if (conn->linger_until_ms) {
        if (n < 0) wefti_conn_close(conn);
        return;
    }
    if (n > 0)
        conn->ops->on_bytes(conn, buf->base, (size_t)n);
    else if (n == UV_EOF)
        conn->ops->on_eof(conn);
    else
        wefti_conn_close(conn);
}

void wefti_conn_read(struct conn *conn, bool on) {
    if (conn->is_closing || conn->is_reading == on) return;
    if (on && uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read) != 0) {
        wefti_conn_close(conn);
        return;
    }
    if (!on) (void)uv_read_stop((uv_stream_t *)&conn->tcp);
    conn->is_reading = on;
}

/* True if the client is gone, found out without reading. */
static bool has_hung_up(const struct conn *conn) {
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&conn->tcp, &fd) != 0) return true;
    struct pollfd pfd = {.fd = fd, .events = POLLRDHUP};
    return poll(&pfd, 1, 0) > 0 && (pfd.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* The kernel takes bytes in leaps, when a third of its buffer is free, so bytes that the client's
 * system has confirmed say more about the client. */
static bool reads_too_slowly(struct conn *conn, uint64_t now_ms) {
    uv_os_fd_t fd;
    int in_kernel = 0;
    if (!conn->is_writing) {
        weft_api_read_pace_rest(&conn->pace);
        return false;
    }
    if (uv_fileno((const uv_handle_t *)&conn->tcp, &fd) != 0 ||
        ioctl(fd, SIOCOUTQ, &in_kernel) != 0 || in_kernel < 0)
        in_kernel = 0;
    uint64_t waiting =
        uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp) + (uint64_t)in_kernel;
    if (waiting > conn->handed_bytes)
        waiting = conn->handed_bytes; /* the kernel's count, not ours */
    return weft_api_read_pace_is_late(&conn->pace, waiting, conn->handed_bytes - waiting,
                                      conn->held_bytes,
                                      conn->server->config.client_stall_timeout_ms, now_ms);
}

/* Also discards what the kernel holds for the client, which it would try to send for minutes. */
static void reset_conn(struct conn *conn) {
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&conn->tcp, &fd) == 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    wefti_conn_close(conn);
}

static void tick_conn(struct conn *conn, uint64_t now_ms) {
    struct server *server = conn->server;
    if (conn->linger_until_ms) {
        if (now_ms >= conn->linger_until_ms) wefti_conn_close(conn);
        return;
    }
    if (reads_too_slowly(conn, now_ms)) {
        server->api.metrics.n_stalled++;
        wefti_server_complain(server, "dropped a client that took too few bytes in %u ms",
                              server->config.client_stall_timeout_ms);
        reset_conn(conn);
        return;
    }
    if (!conn->is_reading && has_hung_up(conn)) {
        wefti_conn_close(conn);
        return;
    }
    conn->ops->on_tick(conn, now_ms);
}

/* ---------------------------------------------------------------------------- start and end --- */

/* Nobody can connect where there is only a batch to compute. */
static void say_ready_for_batch(struct server *server) {
    char text[16 + WEFT_IDENTITY_BYTES_MAX];
    (void)snprintf(text, sizeof text, "batch 0 %s", server->identity);
    server->was_ready = true;
    weft_status_write(server->config.status_fd, "ready", text);
}

static void say_ready(struct server *server) {
    char url[128], text[160 + WEFT_IDENTITY_BYTES_MAX];
    /* No browser opens the address that stands for all of them. */
    const char *host = server->address;
    if (strcmp(host, "0.0.0.0") == 0) host = "127.0.0.1";
    if (strcmp(host, "::") == 0) host = "::1";
    bool is_v6 = strchr(host, ':') != NULL;
    (void)snprintf(url, sizeof url, "http://%s%s%s:%u", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
                   server->ports[0]);
    (void)snprintf(text, sizeof text, "%s %u %s", url, server->ports[1], server->identity);
    server->was_ready = true;
    if (server->config.no_rpc)
        weft_info("ready on %s", url);
    else
        weft_info("ready on %s, MessagePack-RPC on port %u", url, server->ports[1]);
    weft_status_write(server->config.status_fd, "ready", text);
}

static void close_listeners(struct server *server) {
    for (uint32_t i = 0; i < server->n_listeners; i++) {
        uv_handle_t *handle = (uv_handle_t *)&server->listeners[i];
        if (!uv_is_closing(handle)) uv_close(handle, NULL);
    }
    wefti_handover_close(&server->handover);
}

static void drain(struct server *server) {
    weft_info("draining: %u connections, %u requests open", server->n_conns,
              server->api.upstream.n_open);
    server->api.draining = true;
    server->drain_until_ms = weft_now_ms() + server->config.drain_timeout_ms + 1; /* never 0 */
    close_listeners(server);
}

/* Another server listens now. Requests that come on open connections are answered, and those answers
 * end the connections. */
static void be_replaced(struct server *server, uint64_t now_ms) {
    weft_info("another server has taken this one's place: %u connections, %u requests left",
              server->n_conns, server->api.upstream.n_open);
    server->api.is_replaced = true;
    server->api.is_leaving = false; /* nobody need look for another address */
    server->replaced_ms = server->drain_at_ms = now_ms;
    server->drain_until_ms = now_ms + server->config.drain_timeout_ms + 1;
    close_listeners(server);
    wefti_batches_leave(&server->batches);
    weft_status_write(server->config.status_fd, "replaced", NULL);
}

/* True: another server has the listening sockets by now. */
static bool hands_over(struct server *server, uint64_t now_ms) {
    int fds[WEFT_HANDOVER_CONTROL] = {-1, -1};
    for (uint32_t i = 0; i < server->n_listeners; i++) {
        uv_os_fd_t fd;
        if (uv_fileno((const uv_handle_t *)&server->listeners[i], &fd) == 0) fds[i] = fd;
    }
    return wefti_handover_tick(&server->handover, fds, now_ms);
}

bool wefti_server_expects(const struct server *server, uint64_t idle_since_ms, uint64_t now_ms) {
    if (!server->replaced_ms || now_ms >= server->drain_until_ms) return false;
    uint64_t since_ms = idle_since_ms > server->replaced_ms ? idle_since_ms : server->replaced_ms;
    return now_ms < since_ms + NEXT_REQUEST_MS;
}

void wefti_server_fail(struct server *server, const char *sentence) {
    server->has_failed = true;
    (void)snprintf(server->failure.text, sizeof server->failure.text, "%s", sentence);
    uv_stop(&server->loop);
}

/* The first wish to end. For --drain-delay only /health says so, and answers end their connections:
 * load balancers have time to notice, and whoever they send meanwhile is served. */
static void leave(struct server *server) {
    if (server->drain_at_ms) return;
    atomic_store(&server->replacing.is_called_off, true);
    server->api.is_leaving = true;
    server->drain_at_ms = weft_now_ms() + server->config.drain_delay_ms + 1; /* never 0 */
    if (server->config.drain_delay_ms == 0)
        drain(server);
    else
        weft_info("shutting down: /health says so, and for %u ms requests are still taken",
                  server->config.drain_delay_ms);
}

/* --drain-timeout is over. */
static void give_up(struct server *server, uint32_t n_busy, uint64_t now_ms) {
    weft_warn("gave up on %u connections", n_busy);
    server->has_given_up = true;
    server->drain_until_ms = now_ms + GOODBYE_MS;
    for (struct conn *conn = LIST_FIRST(&server->conns), *next; conn; conn = next) {
        next = LIST_NEXT(conn, entry);
        if (!conn->linger_until_ms) conn->ops->on_give_up(conn);
    }
}

/* What a SIGHUP reads again. */
static void reload(struct server *server, int value) {
    struct weft_errmsg why = {""};
    const char *level = weft_actor_reload(&server->config, value);
    if (!level) return;
    server->api.limits.logs_unknown_fields = strcmp(level, "debug") == 0;
    if (!server->config.api_key_file) return;
    if (wefti_load_keys(server, WEFT_FILE_REGULAR,
                        &why)) /* another kind might keep the loop waiting */
        weft_error("SIGHUP: the API keys stay as they were: %s", why.text);
    else
        weft_info("SIGHUP: the API keys were read again, %u in all", server->api.keys.n);
}

static void end_now(struct server *server) {
    atomic_store(&server->replacing.is_called_off, true);
    uv_stop(&server->loop);
}

static void on_signal(uv_poll_t *handle, int status, int events) {
    struct server *server = handle->data;
    (void)status;
    (void)events;
    for (;;) {
        int value = 0;
        switch (weft_signals_next(server->signal_fd, &value)) {
        case WEFT_SIGNAL_NONE:
            return;
        case WEFT_SIGNAL_LOST:
            break;
        case WEFT_SIGNAL_TAKE:
            server->replacing.may_take = true; /* on_turn() comes next */
            break;
        case WEFT_SIGNAL_RELOAD:
            reload(server, value);
            break;
        case WEFT_SIGNAL_DRAIN:
            leave(server);
            break;
        case WEFT_SIGNAL_EXIT:
            /* Without a supervisor Ctrl-C means: finish soon. The second one is final. */
            if (server->was_asked || server->config.status_fd >= 0)
                end_now(server);
            else
                leave(server);
            server->was_asked = true;
            break;
        }
    }
}

static void on_link(uv_poll_t *handle, int status, int events) {
    struct scheduler_link *link = handle->data;
    (void)status;
    (void)events;
    wefti_scheduler_link_read(link, weft_now_us());
}

static uint32_t count_busy(const struct server *server) {
    uint32_t n = 0;
    const struct conn *conn;
    LIST_FOREACH(conn, &server->conns, entry)
    n += conn->is_writing || conn->out.len > 0 || conn->ops->is_busy(conn);
    return n + wefti_batches_is_busy(&server->batches);
}

static void tell_supervisor(struct server *server, uint64_t now_ms) {
    if (!server->was_ready || now_ms - server->alive_at_ms < WEFT_STATUS_ALIVE_MS) return;
    server->alive_at_ms = now_ms;
    weft_status_write(server->config.status_fd, "alive", NULL);
}

static void on_tick(uv_timer_t *timer) {
    struct server *server = timer->data;
    uint64_t now_ms = weft_now_ms();
    tell_supervisor(server, now_ms);
    wefti_scheduler_links_tick(&server->schedulers, weft_now_us());
    for (struct conn *conn = LIST_FIRST(&server->conns), *next; conn; conn = next) {
        next = LIST_NEXT(conn, entry);
        tick_conn(conn, now_ms);
    }
    wefti_batches_tick(&server->batches, now_ms);
    if (hands_over(server, now_ms)) be_replaced(server, now_ms);
    if (!server->drain_at_ms || now_ms < server->drain_at_ms) return;
    if (!server->drain_until_ms) drain(server);
    uint32_t n_busy = count_busy(server);
    if (n_busy > 0 && now_ms < server->drain_until_ms) return;
    if (n_busy > 0 && !server->has_given_up)
        give_up(server, n_busy, now_ms);
    else
        uv_stop(&server->loop);
}

static void on_again(uv_idle_t *idle) {
    (void)idle;
}

/* One of the command line that cannot be loaded ends the start. */
static bool adapters_are_ready(struct server *server) {
    const char *failure = NULL;
    bool are_ready = weft_api_adapters_are_ready(&server->api, &failure);
    if (!failure) return are_ready;
    if (!server->has_failed) wefti_server_fail(server, failure);
    return false;
}

/* A batch may end the server that is there for it; a supervisor does that by itself. */
static void look_after_job(struct server *server) {
    const struct batch_job *job = &server->batches.job;
    if (job->has_failed && !server->has_failed) wefti_server_fail(server, job->failure.text);
    if (job->is_over && server->config.status_fd < 0) uv_stop(&server->loop);
}

static void on_turn(uv_prepare_t *prepare) {
    struct server *server = prepare->data;
    server->n_turns++;
    look_after_job(server);
    weft_api_live_look(&server->live, weft_now_ms());
    wefti_batches_turn(&server->batches);
    for (int pass = 0; pass < TURN_PASSES_MAX && (pass == 0 || !TAILQ_EMPTY(&server->awake));
         pass++) {
        const struct conn *last = TAILQ_LAST(&server->awake, conns_awake);
        for (struct conn *conn = TAILQ_FIRST(&server->awake); conn;) {
            bool is_last = conn == last;
            let_sleep(conn);
            conn->ops->on_turn(conn); /* may queue itself again, after `last` */
            conn = is_last ? NULL : TAILQ_FIRST(&server->awake);
        }
        uint64_t now_us = weft_now_us();
        weft_api_calls_unpark(&server->api, now_us);
        weft_api_upstream_pump(&server->api, now_us);
    }
    if (!TAILQ_EMPTY(&server->awake) || wefti_batches_is_awake(&server->batches))
        (void)uv_idle_start(&server->again, on_again);
    else
        (void)uv_idle_stop(&server->again);
    const struct weft_api_upstream *upstream = &server->api.upstream;
    bool has_job = server->config.batch_fd >= 0;
    bool serves = upstream->has_snapshot && upstream->snapshot.serving && upstream->is_up;
    bool reads_store = server->batches.state == BATCHES_OPENING && !server->batches.has_complained;
    if (server->was_ready || !serves || reads_store || !adapters_are_ready(server)) return;
    if (server->n_listeners == 0 && !has_job) server->replacing.take(server);
    if (server->n_listeners > 0 && !server->has_failed) say_ready(server);
    if (has_job && !server->has_failed) say_ready_for_batch(server);
}

static void wake_live(void *owner) {
    wefti_conn_awake(owner);
}

static bool poll_links(struct server *server) {
    for (uint32_t i = 0; i < server->schedulers.n; i++) {
        struct scheduler_link *link = &server->schedulers.links[i];
        uv_poll_t *poll = &server->link_polls[i];
        if (uv_poll_init(&server->loop, poll, weft_link_fd(link->link)) != 0) return false;
        poll->data = link;
        if (uv_poll_start(poll, UV_READABLE, on_link) != 0) return false;
    }
    return true;
}

weft_err wefti_server_init(struct server *server, int signal_fd, struct weft_errmsg *why) {
    server->signal_fd = signal_fd;
    if (strcmp(server->config.access_log, "off") != 0)
        server->access_format = strcmp(server->config.access_log, "json") == 0
                                    ? WEFT_API_ACCESS_JSON
                                    : WEFT_API_ACCESS_TEXT;
    weft_api_live_init(&server->live, &server->api, wake_live);
    weft_buf_init(&server->scratch, WEFT_MESSAGE_BYTES_MAX);
    wefti_handover_init(&server->handover);
    LIST_INIT(&server->conns);
    TAILQ_INIT(&server->awake);
    TAILQ_INIT(&server->spare);
    wefti_work_init(&server->work, &server->loop,
                    server->config.request_memory ? WEFT_API_SHORT_BODY_BYTES
                                                  : WEFT_WORK_LARGE_BYTES);
    weft_err err = wefti_batches_init(&server->batches, server, why);
    if (err) return err;
    bool is_fine = uv_loop_init(&server->loop) == 0 && poll_links(server) &&
                   uv_poll_init(&server->loop, &server->signal_poll, signal_fd) == 0 &&
                   uv_timer_init(&server->loop, &server->tick) == 0 &&
                   uv_prepare_init(&server->loop, &server->turn) == 0 &&
                   uv_idle_init(&server->loop, &server->again) == 0;
    server->signal_poll.data = server->tick.data = server->turn.data = server;
    is_fine = is_fine && uv_poll_start(&server->signal_poll, UV_READABLE, on_signal) == 0 &&
              uv_timer_start(&server->tick, on_tick, TICK_MS, TICK_MS) == 0 &&
              uv_prepare_start(&server->turn, on_turn) == 0;
    if (!is_fine) return weft_err_set(why, WEFT_E_IO, "cannot set up the event loop");
    wefti_batches_open(&server->batches);
    return WEFT_OK;
}

void wefti_server_run(struct server *server) {
    (void)uv_run(&server->loop, UV_RUN_DEFAULT);
}

static void close_handle(uv_handle_t *handle, void *context) {
    (void)context;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

void wefti_server_fini(struct server *server) {
    while (!LIST_EMPTY(&server->conns))
        wefti_conn_close(LIST_FIRST(&server->conns));
    wefti_batches_stop(&server->batches);
    uv_walk(&server->loop, close_handle, NULL);
    (void)uv_run(&server->loop, UV_RUN_DEFAULT); /* also waits for calls in libuv's pool */
    wefti_batches_fini(&server->batches);
    (void)uv_loop_close(&server->loop);
    weft_api_live_fini(&server->live);
    weft_buf_fini(&server->scratch);
}
