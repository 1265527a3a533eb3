/* A client is a small machine driven by libuv: connect, write, read to the end of the reply, and
 * from the start. Bytes go through llhttp to traffic/reply. Clients without a job lie on a stack,
 * with their connections: whoever was busy last is taken first. */
#include "clients.h"

#include <llhttp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <uv.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/parse.h"
#include "target.h"

enum {
    READ_BYTES = 64 << 10,   /* one for all clients: a read is consumed before the next */
    REFUSAL_BYTES_MAX = 400, /* of a reply that is no stream: enough to tell the reason */
    HEADER_BYTES_MAX = 32,   /* of a header's name or value that matters */
    LOOK_MS = 100,           /* how often time-outs are looked for */
    EARLY_NS = 500000,       /* timers tick in milliseconds: a job begins at the nearest */
    SILENCE_MS_MAX = 600000, /* if no client gets a byte for this long, the server hangs */
};

struct load;

struct client {
    struct load *load;
    struct client *next_idle;
    bool is_idle; /* on the stack */
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    llhttp_t parser;
    bool is_open, is_writing, is_reused; /* the connection */

    bool has_job;
    uint32_t job, turn;
    uint64_t job_at_ns;      /* its moment; turn 0 counts from there */
    struct weft_buf history; /* what was said, as the members of a JSON list */

    bool in_request, is_complete, keep_alive, is_decoding;
    bool is_prepared; /* `out` holds the turn's request */
    struct weft_traffic_request request;
    struct weft_buf out;
    struct weft_traffic_reply reply;
    uint64_t begin_ns, first_ns, last_ns;
    uint64_t n_events, n_gaps_over;
    size_t n_bytes_in;
    struct { /* the one that comes in */
        char name[HEADER_BYTES_MAX], value[HEADER_BYTES_MAX];
        size_t name_len, value_len;
        bool in_value;
    } header;
    double retry_after_ms; /* below 0: not said */
    char refusal[REFUSAL_BYTES_MAX + 1];
    size_t refusal_len;
    bool has_failed;
    enum weft_traffic_failure failure_kind;
    char failure[REFUSAL_BYTES_MAX + 64];
};

struct load {
    const struct weft_clients_options *options;
    struct weft_clients_result *result;
    uv_loop_t loop;
    uv_timer_t look, arrival;
    uv_signal_t on_int, on_term;
    struct weft_target target;
    struct client *clients, *idle;
    uint32_t n_made, n_busy, n_in_request, n_decoding;
    uint32_t next_job;
    uint64_t begin_ns, end_ns, decoding_since_ns, heard_ns;
    uint64_t n_events; /* of all requests, for who watches */
    bool is_over;      /* nothing more is begun */
    bool is_finished, no_memory;
    char bytes[READ_BYTES];
};

static void begin_request(struct client *c);
static void proceed(struct client *c);

static double ms_of(uint64_t ns) {
    return (double)ns / 1e6;
}

static double second_of(const struct load *load, uint64_t ns) {
    return ns > load->begin_ns ? (double)(ns - load->begin_ns) / 1e9 : 0;
}

static double cpu_seconds(void) {
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void fail(struct client *c, enum weft_traffic_failure kind, const char *what,
                 const char *detail) {
    if (c->has_failed) return; /* the first reason explains the rest */
    c->has_failed = true;
    c->failure_kind = kind;
    (void)snprintf(c->failure, sizeof c->failure, "%s%s%s", what, detail[0] ? ": " : "", detail);
}

/* -------------------------------------------------------------------------------- the reply --- */

static void start_decoding(struct client *c, uint64_t now) {
    struct load *load = c->load;
    c->is_decoding = true;
    if (++load->n_decoding == load->options->n_clients) load->decoding_since_ns = now;
}

static void stop_decoding(struct client *c, uint64_t now) {
    struct load *load = c->load;
    if (!c->is_decoding) return;
    c->is_decoding = false;
    if (load->n_decoding-- == load->options->n_clients)
        load->result->decoding_seconds += (double)(now - load->decoding_since_ns) / 1e9;
}

static void on_token(void *context) {
    struct client *c = context;
    struct load *load = c->load;
    struct weft_traffic_tally *tally = &load->result->tally;
    uint64_t now = weft_now_ns();
    load->n_events++;
    if (c->n_events++ == 0) {
        c->first_ns = now;
        weft_traffic_tally_first(tally, second_of(load, c->begin_ns), ms_of(now - c->begin_ns));
        start_decoding(c, now);
    } else {
        double ms = ms_of(now - c->last_ns);
        weft_traffic_tally_gap(tally, second_of(load, now), ms);
        c->n_gaps_over += ms > tally->goal->itl_ms;
        if (load->n_decoding == load->options->n_clients) load->result->n_decoding_events++;
    }
    c->last_ns = now;
}

static size_t add_piece(char *to, size_t len, const char *bytes, size_t n) {
    size_t room = HEADER_BYTES_MAX - 1 - len;
    memcpy(to + len, bytes, n < room ? n : room);
    return len + (n < room ? n : room);
}

/* A header that is whole. Of two that tell how long to wait, the finer one counts. */
static void take_header(struct client *c) {
    double value;
    c->header.name[c->header.name_len] = c->header.value[c->header.value_len] = '\0';
    bool in_ms = !strcasecmp(c->header.name, "retry-after-ms");
    if (c->header.in_value && (in_ms || !strcasecmp(c->header.name, "retry-after")) &&
        !weft_parse_double(c->header.value, &value) && value >= 0) {
        if (in_ms || c->retry_after_ms < 0) c->retry_after_ms = in_ms ? value : value * 1000;
    }
    c->header.name_len = c->header.value_len = 0;
    c->header.in_value = false;
}

static int on_header_name(llhttp_t *parser, const char *bytes, size_t n) {
    struct client *c = parser->data;
    if (c->header.in_value) take_header(c);
    c->header.name_len = add_piece(c->header.name, c->header.name_len, bytes, n);
    return 0;
}

static int on_header_value(llhttp_t *parser, const char *bytes, size_t n) {
    struct client *c = parser->data;
    c->header.in_value = true;
    c->header.value_len = add_piece(c->header.value, c->header.value_len, bytes, n);
    return 0;
}

static int on_headers_end(llhttp_t *parser) {
    take_header(parser->data);
    return 0;
}

static int take_body(llhttp_t *parser, const char *bytes, size_t n) {
    struct client *c = parser->data;
    if (parser->status_code != 200) {
        size_t room = REFUSAL_BYTES_MAX - c->refusal_len;
        memcpy(c->refusal + c->refusal_len, bytes, n < room ? n : room);
        c->refusal_len += n < room ? n : room;
        return 0;
    }
    weft_traffic_reply_feed(&c->reply, bytes, n);
    if (c->reply.is_faulty) fail(c, WEFT_TRAFFIC_STREAM, c->reply.fault, "");
    return c->reply.is_faulty ? -1 : 0;
}

static int take_end(llhttp_t *parser) {
    struct client *c = parser->data;
    c->is_complete = true;
    c->keep_alive = llhttp_should_keep_alive(parser) != 0;
    return 0;
}

/* ---------------------------------------------------------------------------- its outcome --- */

static void check_reply(struct client *c) {
    if (c->is_complete && c->parser.status_code != 200) {
        char status[32];
        (void)snprintf(status, sizeof status, "status %u", c->parser.status_code);
        c->refusal[c->refusal_len] = '\0';
        fail(c, WEFT_TRAFFIC_STATUS, status, c->refusal);
    }
    if (!c->reply.is_done) fail(c, WEFT_TRAFFIC_STREAM, "the stream ended without [DONE]", "");
}

static bool has_next_turn(const struct client *c) {
    return c->turn + 1 < weft_traffic_turns(c->load->options->workload, c->job);
}

static void count_failure(struct client *c, uint64_t now) {
    const struct weft_traffic_failed failed = {.begin_s = second_of(c->load, c->begin_ns),
                                               .ms = ms_of(now - c->begin_ns),
                                               .kind = c->failure_kind,
                                               .status = c->parser.status_code,
                                               .retry_after_ms = c->retry_after_ms,
                                               .why = c->failure};
    weft_traffic_tally_failed(&c->load->result->tally, &failed);
}

static void count_answer(struct client *c, uint64_t now) {
    struct weft_clients_result *result = c->load->result;
    const struct weft_traffic_reply *reply = &c->reply;
    const struct weft_traffic_done done = {
        .begin_s = second_of(c->load, c->begin_ns),
        .turn = c->turn,
        .outcome = {.ttft_ms = ms_of((c->n_events ? c->first_ns : now) - c->begin_ns),
                    .e2el_ms = ms_of(now - c->begin_ns),
                    .n_tokens = reply->n_completion ? reply->n_completion : c->n_events,
                    .n_gaps = c->n_events ? c->n_events - 1 : 0,
                    .n_gaps_over = c->n_gaps_over,
                    .deadline_ms = c->request.deadline_ms},
        .n_prompt = reply->n_prompt,
        .n_cached = reply->n_cached,
        .has_cached = reply->has_cached};
    weft_traffic_tally_done(&result->tally, &done);
    result->n_events += c->n_events;
}

/* Then comes the next turn, or the end of the job. */
static void leave_turn(struct client *c) {
    bool goes_on = !c->has_failed && !c->load->is_over && has_next_turn(c);
    c->is_prepared = false;
    if (goes_on) {
        weft_traffic_add_answer(c->load->options->body, &c->reply.answer, &c->history);
        c->turn++;
        return;
    }
    c->has_job = false;
    c->load->n_busy--;
}

/* ------------------------------------------------------------------------- the connection --- */

static void on_close(uv_handle_t *handle) {
    struct client *c = handle->data;
    c->is_open = false;
    proceed(c);
}

/* Then comes what is next, on a new connection. */
static void drop_connection(struct client *c) {
    if (!uv_is_closing((uv_handle_t *)&c->tcp)) uv_close((uv_handle_t *)&c->tcp, on_close);
}

static void end_request(struct client *c) {
    struct load *load = c->load;
    uint64_t now = weft_now_ns();
    if (!c->in_request) return;
    c->in_request = false;
    load->n_in_request--;
    stop_decoding(c, now);
    check_reply(c);
    if (!c->has_failed && has_next_turn(c) && load->options->keep == WEFT_TRAFFIC_KEEP_IDS &&
        c->n_events > 0 && c->reply.answer.len == 0)
        fail(c, WEFT_TRAFFIC_STREAM,
             "the server does not tell the ids of its tokens, which the next turn needs; --chat "
             "sends text",
             "");
    if (c->has_failed)
        count_failure(c, now);
    else
        count_answer(c, now);
    load->end_ns = now;
    bool is_reusable =
        c->is_open && c->is_complete && c->keep_alive && !c->has_failed && !c->is_writing;
    leave_turn(c);
    if (is_reusable)
        proceed(c);
    else
        drop_connection(c);
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *buf_out) {
    struct client *c = handle->data;
    (void)wanted;
    *buf_out = uv_buf_init(c->load->bytes, READ_BYTES);
}

static void on_hangup(struct client *c, ssize_t status) {
    if (c->in_request && c->is_reused && c->n_bytes_in == 0) {
        c->in_request = false; /* closed while idle, as servers may: again, on a new connection */
        c->load->n_in_request--;
    } else if (status != UV_EOF || c->n_bytes_in == 0 || llhttp_finish(&c->parser) != HPE_OK) {
        /* (A reply without a length ends with its connection.) */
        fail(c, WEFT_TRAFFIC_RESET, "the connection broke", uv_strerror((int)status));
    }
    c->keep_alive = false;
    end_request(c);
    drop_connection(c);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct client *c = stream->data;
    if (n == 0) return;
    c->load->heard_ns = weft_now_ns();
    if (n < 0) {
        on_hangup(c, n);
        return;
    }
    c->n_bytes_in += (size_t)n;
    if (!c->in_request) { /* nothing was asked for */
        drop_connection(c);
        return;
    }
    enum llhttp_errno broken = llhttp_execute(&c->parser, buf->base, (size_t)n);
    if (broken != HPE_OK)
        fail(c, WEFT_TRAFFIC_STREAM, "the reply is not HTTP", llhttp_errno_name(broken));
    if (c->is_complete || c->has_failed) end_request(c);
}

static void on_write(uv_write_t *write, int status) {
    struct client *c = write->data;
    c->is_writing = false;
    if (status < 0 && status != UV_ECANCELED && c->in_request) {
        fail(c, WEFT_TRAFFIC_RESET, "the request could not be sent", uv_strerror(status));
        end_request(c);
    }
}

static void send_request(struct client *c) {
    uv_buf_t buf = uv_buf_init(c->out.data, (unsigned)c->out.len);
    c->is_writing = true;
    int status = uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, on_write);
    if (status < 0) on_write(&c->write, status);
}

static void on_connect(uv_connect_t *connect, int status) {
    struct client *c = connect->data;
    if (status == UV_ECANCELED) return;
    if (status == 0) status = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    if (status < 0) {
        fail(c, WEFT_TRAFFIC_CONNECT, "cannot connect", uv_strerror(status));
        end_request(c);
        return;
    }
    send_request(c);
}

static void open_connection(struct client *c) {
    (void)uv_tcp_init(&c->load->loop, &c->tcp); /* cannot fail without a socket to make */
    c->tcp.data = c->connect.data = c->write.data = c;
    c->is_open = true;
    (void)uv_tcp_nodelay(&c->tcp, 1);
    int status = uv_tcp_connect(&c->connect, &c->tcp,
                                (const struct sockaddr *)&c->load->target.address, on_connect);
    if (status < 0) on_connect(&c->connect, status);
}

/* ------------------------------------------------------------------------------- requests --- */

static void write_head(struct client *c, size_t body_len) {
    const struct weft_clients_options *o = c->load->options;
    const struct weft_target *target = &c->load->target;
    weft_buf_printf(&c->out,
                    "POST %.*s/v1/%scompletions HTTP/1.1\r\nHost: %s\r\n"
                    "Content-Type: application/json\r\nAccept: text/event-stream\r\n",
                    target->path_len, target->path, o->body->is_chat ? "chat/" : "", target->host);
    if (o->api_key) weft_buf_printf(&c->out, "Authorization: Bearer %s\r\n", o->api_key);
    if (c->request.deadline_ms)
        weft_buf_printf(&c->out, "x-llm-d-slo-ttft-ms: %u\r\n", c->request.deadline_ms);
    for (const char *at = o->headers; at && *at;) {
        size_t len = strcspn(at, "\n");
        weft_buf_printf(&c->out, "%.*s\r\n", (int)len, at);
        at += len + (at[len] ? 1 : 0);
    }
    weft_buf_printf(&c->out, "Content-Length: %zu\r\n\r\n", body_len);
}

static void prepare_request(struct client *c) {
    struct load *load = c->load;
    const struct weft_clients_options *o = load->options;
    struct weft_buf body;
    weft_buf_init(&body, WEFT_BODY_BYTES_MAX);
    c->request = weft_traffic_request(o->workload, c->job, c->turn);
    weft_traffic_add_prompt(o->workload, c->job, c->turn, &c->history);
    weft_traffic_add_body(o->body, &c->history, c->request.n_output, &body);
    weft_buf_clear(&c->out);
    write_head(c, body.len);
    weft_buf_add(&c->out, body.data, body.len);
    if (c->history.failed || body.failed || c->out.failed) load->no_memory = true;
    weft_buf_fini(&body);
    c->begin_ns = weft_now_ns();
    c->is_prepared = true;
    if (c->turn > 0 || !o->workload->at_ns) return;
    uint64_t late_ns = c->begin_ns > c->job_at_ns ? c->begin_ns - c->job_at_ns : 0;
    weft_traffic_tally_late(&load->result->tally, second_of(load, c->job_at_ns), ms_of(late_ns));
    c->begin_ns -= late_ns;
}

static void clear_reply(struct client *c) {
    static const llhttp_settings_t settings = {.on_header_field = on_header_name,
                                               .on_header_value = on_header_value,
                                               .on_headers_complete = on_headers_end,
                                               .on_body = take_body,
                                               .on_message_complete = take_end};
    llhttp_init(&c->parser, HTTP_RESPONSE, &settings);
    c->parser.data = c;
    c->is_complete = c->keep_alive = c->has_failed = false;
    c->n_events = c->n_gaps_over = 0;
    c->n_bytes_in = 0;
    c->refusal_len = c->header.name_len = c->header.value_len = 0;
    c->header.in_value = false;
    c->retry_after_ms = -1;
    weft_traffic_reply_clear(&c->reply);
}

static void begin_request(struct client *c) {
    WEFT_ASSERT(c->has_job && !c->in_request);
    if (c->is_open && uv_is_closing((uv_handle_t *)&c->tcp)) return; /* on_close comes here */
    clear_reply(c);
    if (!c->is_prepared) prepare_request(c);
    c->in_request = true;
    c->load->n_in_request++;
    c->load->heard_ns = weft_now_ns();
    c->is_reused = c->is_open;
    if (c->is_open)
        send_request(c);
    else
        open_connection(c);
}

/* ----------------------------------------------------------------------------------- jobs --- */

static struct client *take_client(struct load *load) {
    const struct weft_clients_options *o = load->options;
    struct client *c = load->idle;
    if (c) {
        load->idle = c->next_idle;
        c->is_idle = false;
    } else if (load->n_made < o->n_clients) {
        c = &load->clients[load->n_made++];
        c->load = load;
        weft_buf_init(&c->history, WEFT_BODY_BYTES_MAX);
        weft_buf_init(&c->out, 2 * (size_t)WEFT_BODY_BYTES_MAX);
        weft_traffic_reply_init(&c->reply, o->body->is_chat, o->keep, on_token, c);
    }
    return c;
}

/* Nothing runs and nothing will: the loop ends with its handles. */
static void finish(struct load *load) {
    WEFT_ASSERT(!load->is_finished);
    load->is_finished = true;
    uv_handle_t *own[] = {(uv_handle_t *)&load->look, (uv_handle_t *)&load->arrival,
                          (uv_handle_t *)&load->on_int, (uv_handle_t *)&load->on_term};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        uv_close(own[i], NULL);
    for (uint32_t i = 0; i < load->n_made; i++) {
        if (load->clients[i].is_open) drop_connection(&load->clients[i]);
    }
}

static void on_arrival(uv_timer_t *timer);

/* Whether the next job's moment has come; else the timer waits for it. */
static bool is_due(struct load *load) {
    const uint64_t *at_ns = load->options->workload->at_ns;
    if (!at_ns) return true;
    uint64_t now = weft_now_ns(), at = load->begin_ns + at_ns[load->next_job];
    if (at <= now + EARLY_NS) return true;
    (void)uv_timer_start(&load->arrival, on_arrival, (at - now + EARLY_NS) / 1000000, 0);
    return false;
}

static void begin_jobs(struct load *load) {
    const struct weft_traffic_workload *w = load->options->workload;
    if (load->no_memory || load->result->tally.no_memory) load->is_over = true;
    while (!load->is_over && load->next_job < w->n_jobs && is_due(load)) {
        struct client *c = take_client(load);
        if (!c) return; /* whoever is free first takes it */
        c->job = load->next_job++;
        c->turn = 0;
        c->has_job = true;
        c->job_at_ns = load->begin_ns + (w->at_ns ? w->at_ns[c->job] : 0);
        weft_buf_clear(&c->history);
        load->n_busy++;
        begin_request(c);
    }
    bool is_last = load->is_over || load->next_job == w->n_jobs;
    if (is_last && load->n_busy == 0 && !load->is_finished) finish(load);
}

static void on_arrival(uv_timer_t *timer) {
    uv_update_time(timer->loop);
    begin_jobs(timer->data);
}

/* What a client does that has ended a request, or lost its connection. */
static void proceed(struct client *c) {
    struct load *load = c->load;
    if (c->in_request || c->is_idle || load->is_finished) return;
    if (c->has_job) {
        begin_request(c);
        return;
    }
    c->is_idle = true;
    c->next_idle = load->idle;
    load->idle = c;
    begin_jobs(load);
}

/* ------------------------------------------------------------------------------ all of it --- */

static void end_late(struct load *load, uint64_t now, bool all, const char *why) {
    uint64_t limit_ns = (uint64_t)load->options->timeout_ms * 1000000u;
    for (uint32_t i = 0; i < load->n_made; i++) {
        struct client *c = &load->clients[i];
        if (!c->in_request || (!all && now < c->begin_ns + limit_ns)) continue;
        fail(c, WEFT_TRAFFIC_TIMEOUT, why, "");
        end_request(c);
    }
}

static void show_progress(struct load *load, uint64_t now) {
    const struct weft_clients_progress progress = {.seconds = second_of(load, now),
                                                   .n_running = load->n_in_request,
                                                   .n_events = load->n_events,
                                                   .tally = &load->result->tally};
    if (load->options->on_progress) load->options->on_progress(&progress);
}

static void on_look(uv_timer_t *timer) {
    struct load *load = timer->data;
    uint64_t now = weft_now_ns();
    bool silent = now - load->heard_ns > (uint64_t)SILENCE_MS_MAX * 1000000u;
    show_progress(load, now);
    if (load->n_in_request == 0) return;
    if (silent || load->no_memory || load->result->tally.no_memory) {
        load->is_over = true;
        end_late(load, now, true,
                 silent ? "the server has been silent for too long" : "out of memory");
    } else if (load->options->timeout_ms) {
        end_late(load, now, false, "the request took longer than --request-timeout");
    }
}

/* What has come so far is worth a report; a second signal ends the process. */
static void on_signal(uv_signal_t *signal, int number) {
    struct load *load = signal->data;
    uint64_t now = weft_now_ns();
    (void)number;
    (void)uv_signal_stop(&load->on_int);
    (void)uv_signal_stop(&load->on_term);
    load->is_over = load->result->is_interrupted = true;
    load->end_ns = now;
    for (uint32_t i = 0; i < load->n_made; i++) {
        struct client *c = &load->clients[i];
        if (!c->has_job) continue;
        stop_decoding(c, now);
        load->n_in_request -= c->in_request;
        c->in_request = c->has_job = false;
        load->n_busy--;
        if (c->is_open) drop_connection(c);
    }
    begin_jobs(load); /* which begins none, and ends the loop */
}

/* Whoever started this with the signal ignored, as shells do with jobs in the background, meant it. */
static void watch(struct load *load, uv_signal_t *handle, int number) {
    struct sigaction before;
    (void)uv_signal_init(&load->loop, handle);
    handle->data = load;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        (void)uv_signal_start(handle, on_signal, number);
}

static void run_loop(struct load *load) {
    load->begin_ns = load->end_ns = load->heard_ns = weft_now_ns();
    (void)uv_timer_init(&load->loop, &load->look);
    (void)uv_timer_init(&load->loop, &load->arrival);
    load->look.data = load->arrival.data = load;
    watch(load, &load->on_int, SIGINT);
    watch(load, &load->on_term, SIGTERM);
    (void)uv_timer_start(&load->look, on_look, LOOK_MS, LOOK_MS);
    uv_update_time(&load->loop);
    begin_jobs(load);
    (void)uv_run(&load->loop, UV_RUN_DEFAULT);
    for (uint32_t i = 0; i < load->n_made; i++) {
        weft_buf_fini(&load->clients[i].history);
        weft_buf_fini(&load->clients[i].out);
        weft_traffic_reply_fini(&load->clients[i].reply);
    }
    load->result->seconds = second_of(load, load->end_ns);
}

weft_err weft_clients_run(const struct weft_clients_options *options,
                          struct weft_clients_result *result, struct weft_errmsg *why) {
    WEFT_ASSERT(options->n_clients > 0);
    struct load *load = calloc(1, sizeof *load);
    struct client *clients = calloc(options->n_clients, sizeof *clients);
    weft_err err = weft_err_set(why, WEFT_E_NOMEM, "no memory for the clients");
    if (!load || !clients || uv_loop_init(&load->loop) < 0) goto cleanup;
    load->options = options;
    load->result = result;
    load->clients = clients;
    err = weft_target_find(&load->loop, options->url, &load->target, why);
    if (!err) {
        double before = cpu_seconds();
        run_loop(load);
        result->cpu_seconds = cpu_seconds() - before;
        if (load->no_memory || result->tally.no_memory)
            err = weft_err_set(why, WEFT_E_NOMEM, "no memory for the load");
    }
    (void)uv_loop_close(&load->loop);
cleanup:
    free(clients);
    free(load);
    return err;
}
