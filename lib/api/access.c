#include "api/access.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/utf8.h"
#include "codec/json_out.h"

/* Escaped, a byte may become six: all of a line fits. */
#define PATH_BYTES_MAX 300u
#define MODEL_BYTES_MAX 100u
#define ID_BYTES_MAX 128u

/* Writes fields in turn. */
struct line {
    struct weft_buf *out;
    bool is_json, has_field;
};

static void begin_field(struct line *line, const char *name) {
    if (line->is_json)
        weft_buf_printf(line->out, "%s\"%s\":", line->has_field ? "," : "", name);
    else
        weft_buf_printf(line->out, "%s%s=", line->has_field ? " " : "", name);
    line->has_field = true;
}

static void add_nothing(struct line *line, const char *name) {
    begin_field(line, name);
    weft_buf_add_str(line->out, line->is_json ? "null" : "-");
}

/* NULL or empty: nothing. */
static void add_text(struct line *line, const char *name, const char *value, size_t len) {
    char text[PATH_BYTES_MAX + 1];
    if (!value || len == 0) {
        add_nothing(line, name);
        return;
    }
    if (len > PATH_BYTES_MAX) len = PATH_BYTES_MAX;
    memcpy(text, value, len);
    text[len] = '\0';
    weft_utf8_printable(text); /* a line break would forge a second request */
    begin_field(line, name);
    if (line->is_json || strpbrk(text, " \"=\\") || strcmp(text, "-") == 0)
        weft_json_str(line->out, text, strlen(text));
    else
        weft_buf_add_str(line->out, text);
}

static void add_str(struct line *line, const char *name, const char *value, size_t bytes_max) {
    add_text(line, name, value, value ? strnlen(value, bytes_max) : 0);
}

static void add_count(struct line *line, const char *name, uint64_t value) {
    begin_field(line, name);
    weft_json_uint(line->out, value);
}

static void add_ms(struct line *line, const char *name, uint64_t us) {
    begin_field(line, name);
    weft_buf_printf(line->out, "%.3f", (double)us * 1e-3);
}

static void add_time(uint64_t now_ms, struct weft_buf *out) {
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm tm;
    char text[40];
    (void)gmtime_r(&seconds, &tm);
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    weft_buf_printf(out, "%s.%03uZ", text, (unsigned)(now_ms % 1000));
}

static void add_call(struct line *line, const struct weft_api_call_progress *call) {
    if (!call->has_begun) {
        static const char *const names[] = {"finish",     "tokens_in", "tokens_cached",
                                            "tokens_out", "queue_ms",  "first_token_ms"};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            add_nothing(line, names[i]);
        return;
    }
    add_str(line, "finish", call->finish, sizeof call->finish);
    add_count(line, "tokens_in", call->n_prompt);
    add_count(line, "tokens_cached", call->n_cached);
    add_count(line, "tokens_out", call->n_output);
    add_ms(line, "queue_ms", call->queued_us);
    if (call->n_output)
        add_ms(line, "first_token_ms", call->first_us);
    else
        add_nothing(line, "first_token_ms");
}

void weft_api_access_line(const struct weft_api_access *access, enum weft_api_access_format format,
                          uint64_t now_ms, struct weft_buf *out) {
    WEFT_ASSERT(format != WEFT_API_ACCESS_OFF);
    struct line line = {.out = out, .is_json = format == WEFT_API_ACCESS_JSON};
    if (line.is_json) {
        weft_buf_add_str(out, "{\"ts\":\"");
        add_time(now_ms, out);
        weft_buf_add_str(out, "\",\"level\":\"INFO\",\"actor\":\"router\",\"msg\":\"access\",");
    } else {
        add_time(now_ms, out);
        weft_buf_add_str(out, " INFO  router: access: ");
    }
    add_str(&line, "id", access->id, ID_BYTES_MAX);
    add_str(&line, "method", access->method, ID_BYTES_MAX);
    add_text(&line, "path", access->path, access->path_len);
    add_str(&line, "model", access->model, MODEL_BYTES_MAX);
    begin_field(&line, "status");
    weft_buf_printf(out, "%d", access->status);
    add_call(&line, &access->call);
    add_ms(&line, "total_ms", access->total_us);
    add_str(&line, "client", access->client, ID_BYTES_MAX);
    add_str(&line, "key", access->key, ID_BYTES_MAX);
    weft_buf_add_str(out, line.is_json ? "}\n" : "\n");
}
