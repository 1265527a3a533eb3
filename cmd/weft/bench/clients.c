/* A client is a small machine driven by libuv: connect, write, read to the end of the reply, and
 * from the start. Bytes go through llhttp to a splitter of lines, which looks only at the few
 * bytes of a line that tell a token from all else, because this process shares its CPUs with the
 * server it measures. */
#include "clients.h"

#include <llhttp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/rand.h"

enum {
    READ_BYTES = 64 << 10,    /* one for all clients: a read is consumed before the next */
    LINE_BYTES_MAX = 1 << 20, /* of an event; one longer is an error */
    REFUSAL_BYTES_MAX = 400,  /* of a reply that is no stream: enough to tell the reason */
    HOST_BYTES_MAX = 256,
    LOOK_MS = 1000,
    SILENCE_MS_MAX = 600000, /* if no client gets a byte for this long, the server hangs */
};

struct load;

struct client {
    struct load *load;
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    llhttp_t parser;
    bool is_open, is_writing, is_reused; /* the connection */
    bool in_request, is_complete, keep_alive, saw_end, is_decoding;
    struct weft_buf out;  /* the request */
    struct weft_buf line; /* the beginning of an event's line, or of a refusal */
    uint64_t begin_ns, last_ns;
    uint64_t n_events, n_usage;
    size_t n_bytes_in;
    char failure[256];
};

struct load {
    const struct weft_clients_options *options;
    struct weft_clients_result *result;
    uv_loop_t loop;
    uv_timer_t timer;
    struct sockaddr_storage address;
    char host[HOST_BYTES_MAX + 8]; /* with the port, as the Host header has it */
    const char *path;              /* of the url, "" or "/..." */
    int path_len;
    struct client *clients;
    uint32_t n_begun, n_live, n_decoding;
    uint64_t begin_ns, end_ns, decoding_since_ns, heard_ns, seed;
    bool no_memory;
    char bytes[READ_BYTES];
};

static void begin_request(struct client *c);

/* ---------------------------------------------------------------------------------- numbers --- */

static bool add_time(struct weft_clients_times *times, uint64_t ns) {
    if (times->n == times->n_max) {
        size_t n_max = times->n_max ? 2 * times->n_max : 1024;
        double *values = realloc(times->values, n_max * sizeof *values);
        if (!values) return false;
        times->values = values;
        times->n_max = n_max;
    }
    times->values[times->n++] = (double)ns / 1e6;
    return true;
}

static void keep_time(struct load *load, struct weft_clients_times *times, uint64_t ns) {
    if (!add_time(times, ns)) load->no_memory = true;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double weft_clients_percentile(struct weft_clients_times *times, double share) {
    WEFT_ASSERT(share >= 0 && share <= 1);
    if (times->n == 0) return 0;
    qsort(times->values, times->n, sizeof *times->values, by_size);
    size_t rank = (size_t)ceil(share * (double)times->n);
    return times->values[rank ? rank - 1 : 0];
}

void weft_clients_fini(struct weft_clients_result *result) {
    free(result->first.values);
    free(result->between.values);
    free(result->whole.values);
    *result = (struct weft_clients_result){0};
}

static double cpu_seconds(void) {
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* ------------------------------------------------------------------------------- the stream --- */

static void fail(struct client *c, const char *what, const char *detail) {
    if (c->failure[0]) return; /* the first reason explains the rest */
    (void)snprintf(c->failure, sizeof c->failure, "%s%s%s", what, detail[0] ? ": " : "", detail);
}

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

static void take_token(struct client *c) {
    struct load *load = c->load;
    uint64_t now = weft_now_ns();
    if (c->n_events++ == 0) {
        keep_time(load, &load->result->first, now - c->begin_ns);
        start_decoding(c, now);
    } else {
        keep_time(load, &load->result->between, now - c->last_ns);
        if (load->n_decoding == load->options->n_clients) load->result->n_decoding_events++;
    }
    c->last_ns = now;
}

/* Where the value of "key" begins in an event; NULL: nowhere. `key` comes with quotes and colon. */
static const char *value_of(const char *key, const char *text, const char *end) {
    const char *at = memmem(text, (size_t)(end - text), key, strlen(key));
    if (!at) return NULL;
    for (at += strlen(key); at < end && *at == ' ';)
        at++;
    return at < end ? at : NULL;
}

/* One line of the stream, without its end. Lines without "data:" are comments or blank. */
static void take_line(struct client *c, const char *line, size_t len) {
    const char *end = line + len, *at = line + 5;
    if (len < 5 || memcmp(line, "data:", 5) != 0) return;
    while (at < end && *at == ' ')
        at++;
    if (end - at >= 6 && !memcmp(at, "[DONE]", 6)) {
        c->saw_end = true;
        return;
    }
    const char *text = value_of("\"text\":", at, end);
    if (text && end - text >= 2 && text[0] == '"' && text[1] != '"') {
        take_token(c);
        return;
    }
    const char *usage = value_of("\"completion_tokens\":", at, end);
    if (usage) c->n_usage = strtoull(usage, NULL, 10); /* a line is followed by its end */
    if (!text && value_of("\"error\":", at, end)) {
        char detail[200];
        (void)snprintf(detail, sizeof detail, "%.*s", (int)(end - at), at);
        fail(c, "the stream broke off", detail);
    }
}

static int take_body(llhttp_t *parser, const char *bytes, size_t n) {
    struct client *c = parser->data;
    if (parser->status_code != 200) {
        size_t room = REFUSAL_BYTES_MAX - c->line.len;
        weft_buf_add(&c->line, bytes, n < room ? n : room);
        return 0;
    }
    for (const char *stop; (stop = memchr(bytes, '\n', n));) {
        size_t len = (size_t)(stop - bytes);
        if (c->line.len == 0) {
            take_line(c, bytes, len);
        } else { /* it began in an earlier piece */
            weft_buf_add(&c->line, bytes, len + 1);
            if (!c->line.failed) take_line(c, c->line.data, c->line.len - 1);
            weft_buf_clear(&c->line);
        }
        n -= len + 1;
        bytes = stop + 1;
    }
    weft_buf_add(&c->line, bytes, n);
    if (c->line.failed) fail(c, "an event of the stream is too long", "");
    return c->line.failed ? -1 : 0;
}

static int take_end(llhttp_t *parser) {
    struct client *c = parser->data;
    c->is_complete = true;
    c->keep_alive = llhttp_should_keep_alive(parser) != 0;
    return 0;
}

/* --------------------------------------------------------------------------- the connection --- */

static void go_home(struct client *c) {
    struct load *load = c->load;
    if (--load->n_live == 0) uv_close((uv_handle_t *)&load->timer, NULL);
}

static void on_close(uv_handle_t *handle) {
    struct client *c = handle->data;
    c->is_open = false;
    begin_request(c);
}

/* Then comes the next request, on a new connection. */
static void drop_connection(struct client *c) {
    if (!uv_is_closing((uv_handle_t *)&c->tcp)) uv_close((uv_handle_t *)&c->tcp, on_close);
}

static void end_request(struct client *c) {
    struct load *load = c->load;
    struct weft_clients_result *result = load->result;
    uint64_t now = weft_now_ns();
    if (!c->in_request) return;
    c->in_request = false;
    stop_decoding(c, now);
    if (c->is_complete && c->parser.status_code != 200) {
        char status[32];
        (void)snprintf(status, sizeof status, "status %u", c->parser.status_code);
        fail(c, status, weft_buf_cstr(&c->line));
    }
    if (!c->saw_end) fail(c, "the stream ended without [DONE]", "");
    if (c->failure[0]) {
        if (result->n_failed++ == 0) (void)weft_err_set(&result->why, WEFT_E_IO, "%s", c->failure);
    } else {
        keep_time(load, &result->whole, now - c->begin_ns);
        result->n_done++;
        result->n_events += c->n_events;
        result->n_tokens += c->n_usage ? c->n_usage : c->n_events;
    }
    load->end_ns = now;
    if (c->is_open && c->is_complete && c->keep_alive && !c->failure[0] && !c->is_writing)
        begin_request(c);
    else
        drop_connection(c);
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *buf_out) {
    struct client *c = handle->data;
    (void)wanted;
    *buf_out = uv_buf_init(c->load->bytes, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct client *c = stream->data;
    if (n == 0) return;
    c->load->heard_ns = weft_now_ns();
    if (n < 0) {
        if (c->in_request && c->is_reused && c->n_bytes_in == 0) {
            c->load->n_begun--; /* closed while idle, as servers may: again, on a new connection */
            c->in_request = false;
        } else if (n != UV_EOF || c->n_bytes_in == 0 || llhttp_finish(&c->parser) != HPE_OK) {
            /* (A reply without a length ends with its connection.) */
            fail(c, "the connection broke", uv_strerror((int)n));
        }
        c->keep_alive = false;
        end_request(c);
        drop_connection(c);
        return;
    }
    c->n_bytes_in += (size_t)n;
    if (!c->in_request) { /* nothing was asked for */
        drop_connection(c);
        return;
    }
    enum llhttp_errno broken = llhttp_execute(&c->parser, buf->base, (size_t)n);
    if (broken != HPE_OK) fail(c, "the reply is not HTTP", llhttp_errno_name(broken));
    if (c->is_complete || c->failure[0]) end_request(c);
}

static void on_write(uv_write_t *write, int status) {
    struct client *c = write->data;
    c->is_writing = false;
    if (status < 0 && status != UV_ECANCELED && c->in_request) {
        fail(c, "the request could not be sent", uv_strerror(status));
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
        fail(c, "cannot connect", uv_strerror(status));
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
    int status = uv_tcp_connect(&c->connect, &c->tcp, (const struct sockaddr *)&c->load->address,
                                on_connect);
    if (status < 0) on_connect(&c->connect, status);
}

static void write_request(struct client *c) {
    struct load *load = c->load;
    const struct weft_clients_options *o = load->options;
    struct weft_buf body;
    weft_buf_init(&body, WEFT_BODY_BYTES_MAX);
    weft_buf_add_str(&body, "{\"prompt\":[");
    for (uint32_t i = 0; i < o->prompt_tokens; i++)
        weft_buf_printf(&body, "%s%u", i ? "," : "", weft_rand_below(&load->seed, o->n_vocab));
    weft_buf_printf(&body,
                    "],\"max_tokens\":%u,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,"
                    "\"stream_options\":{\"include_usage\":true}}",
                    o->max_tokens);
    weft_buf_clear(&c->out);
    weft_buf_printf(&c->out,
                    "POST %.*s/v1/completions HTTP/1.1\r\nHost: %s\r\n"
                    "Content-Type: application/json\r\nAccept: text/event-stream\r\n",
                    load->path_len, load->path, load->host);
    if (o->api_key) weft_buf_printf(&c->out, "Authorization: Bearer %s\r\n", o->api_key);
    weft_buf_printf(&c->out, "Content-Length: %zu\r\n\r\n", body.len);
    weft_buf_add(&c->out, body.data, body.len);
    if (body.failed || c->out.failed) load->no_memory = true;
    weft_buf_fini(&body);
}

static void begin_request(struct client *c) {
    static const llhttp_settings_t settings = {.on_body = take_body,
                                               .on_message_complete = take_end};
    struct load *load = c->load;
    if (load->n_begun == load->options->n_requests || load->no_memory) {
        if (c->is_open)
            drop_connection(c); /* and then here again */
        else
            go_home(c);
        return;
    }
    load->n_begun++;
    llhttp_init(&c->parser, HTTP_RESPONSE, &settings);
    c->parser.data = c;
    c->in_request = true;
    c->is_complete = c->keep_alive = c->saw_end = false;
    c->n_events = c->n_usage = 0;
    c->n_bytes_in = 0;
    c->failure[0] = '\0';
    weft_buf_clear(&c->line);
    write_request(c);
    c->begin_ns = weft_now_ns();
    c->is_reused = c->is_open;
    if (c->is_open)
        send_request(c);
    else
        open_connection(c);
}

/* -------------------------------------------------------------------------------- all of it --- */

static void on_look(uv_timer_t *timer) {
    struct load *load = timer->data;
    bool silent = weft_now_ns() - load->heard_ns > (uint64_t)SILENCE_MS_MAX * 1000000u;
    if (!silent && !load->no_memory) return;
    load->n_begun = load->options->n_requests;
    for (uint32_t i = 0; i < load->options->n_clients; i++) {
        struct client *c = &load->clients[i];
        if (!c->in_request) continue;
        fail(c, silent ? "the server has been silent for too long" : "out of memory", "");
        end_request(c);
    }
}

static weft_err bad_url(const char *url, struct weft_errmsg *why) {
    return weft_err_set(why, WEFT_E_INVAL, "\"%s\" is not http://HOST[:PORT], with or without /v1",
                        url);
}

/* Whether somebody listens there: a name like localhost may have an address that nobody serves. */
static bool answers(const struct addrinfo *at) {
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    bool connected = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0;
    if (fd >= 0) (void)close(fd);
    return connected;
}

/* Fills in host, path and address. */
static weft_err find_server(struct load *load, struct weft_errmsg *why) {
    const char *url = load->options->url, *at = url + strlen("http://");
    char host[HOST_BYTES_MAX], port[8] = "80";
    if (strncmp(url, "http://", strlen("http://")) != 0) return bad_url(url, why);
    size_t n = strcspn(at, "/");
    if (n == 0 || n >= sizeof host) return bad_url(url, why);
    memcpy(host, at, n);
    host[n] = '\0';
    (void)snprintf(load->host, sizeof load->host, "%s", host);
    load->path = at + n;
    load->path_len = (int)strlen(load->path);
    while (load->path_len && load->path[load->path_len - 1] == '/')
        load->path_len--;
    if (load->path_len >= 3 && !memcmp(load->path + load->path_len - 3, "/v1", 3))
        load->path_len -= 3; /* what clients of the API call its base */
    char *name = host, *colon = strrchr(host, ':'), *bracket = strchr(host, ']');
    if (colon && (!bracket || colon > bracket)) {
        if (!colon[1] || strlen(colon + 1) >= sizeof port) return bad_url(url, why);
        (void)snprintf(port, sizeof port, "%s", colon + 1);
        *colon = '\0';
    }
    if (name[0] == '[' && bracket) { /* an IPv6 address */
        *bracket = '\0';
        name++;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    uv_getaddrinfo_t found;
    int status = uv_getaddrinfo(&load->loop, &found, NULL, name, port, &hints);
    if (status < 0)
        return weft_err_set(why, WEFT_E_IO, "no address of %s, port %s: %s", name, port,
                            uv_strerror(status));
    const struct addrinfo *first = found.addrinfo, *choice = first;
    WEFT_ASSERT(first != NULL);
    for (const struct addrinfo *one = first; one && first->ai_next; one = one->ai_next) {
        if (!answers(one)) continue;
        choice = one;
        break;
    }
    memcpy(&load->address, choice->ai_addr, choice->ai_addrlen);
    uv_freeaddrinfo(found.addrinfo);
    return WEFT_OK;
}

static void run_loop(struct load *load) {
    load->begin_ns = load->end_ns = load->heard_ns = weft_now_ns();
    load->n_live = load->options->n_clients;
    (void)uv_timer_init(&load->loop, &load->timer);
    load->timer.data = load;
    (void)uv_timer_start(&load->timer, on_look, LOOK_MS, LOOK_MS);
    for (uint32_t i = 0; i < load->options->n_clients; i++) {
        struct client *c = &load->clients[i];
        c->load = load;
        weft_buf_init(&c->out, 2 * (size_t)WEFT_BODY_BYTES_MAX);
        weft_buf_init(&c->line, LINE_BYTES_MAX);
        begin_request(c);
    }
    (void)uv_run(&load->loop, UV_RUN_DEFAULT);
    for (uint32_t i = 0; i < load->options->n_clients; i++) {
        weft_buf_fini(&load->clients[i].out);
        weft_buf_fini(&load->clients[i].line);
    }
    load->result->seconds = (double)(load->end_ns - load->begin_ns) / 1e9;
}

weft_err weft_clients_run(const struct weft_clients_options *options,
                          struct weft_clients_result *result_out, struct weft_errmsg *why) {
    *result_out = (struct weft_clients_result){0};
    WEFT_ASSERT(options->n_clients > 0 && options->n_vocab > 0);
    struct load *load = calloc(1, sizeof *load);
    struct client *clients = calloc(options->n_clients, sizeof *clients);
    weft_err err = WEFT_E_NOMEM;
    if (!load || !clients || uv_loop_init(&load->loop) < 0) goto cleanup;
    load->options = options;
    load->result = result_out;
    load->clients = clients;
    load->seed = options->seed;
    err = find_server(load, why);
    if (!err) {
        double before = cpu_seconds();
        run_loop(load);
        result_out->cpu_seconds = cpu_seconds() - before;
        if (load->no_memory) err = weft_err_set(why, WEFT_E_NOMEM, "no memory for the load");
    }
    (void)uv_loop_close(&load->loop);
cleanup:
    free(clients);
    free(load);
    return err;
}
