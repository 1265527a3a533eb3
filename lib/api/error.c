#include "api/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json_escape.h"
#include "base/utf8.h"
#include "codec/json_out.h"

void weft_api_error_set(struct weft_api_error *error, int status, const char *param,
                        const char *code, const char *fmt, ...) {
    if (error->status) return;
    memset(error, 0, sizeof *error);
    error->status = status;
    error->code = code;
    if (param) (void)snprintf(error->param, sizeof error->param, "%s", param);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(error->message, sizeof error->message, fmt, args);
    va_end(args);
}

void weft_api_quote(const char *bytes, size_t len, char *out, size_t cap) {
    static const char cut[] = "...";
    size_t n = 0, room = cap - sizeof cut;
    WEFT_ASSERT(cap > sizeof cut + WEFT_JSON_ESCAPE_BYTES_MAX);
    for (size_t i = 0; i < len;) {
        char escaped[WEFT_JSON_ESCAPE_BYTES_MAX];
        bool is_whole = false, is_control = (unsigned char)bytes[i] < 0x20;
        size_t n_in = is_control ? 1 : weft_utf8_start(bytes + i, len - i, &is_whole);
        size_t n_out = is_control ? weft_json_escape(bytes[i], escaped) : n_in;
        if (n_in == 0) n_in = n_out = 1;
        if (n_out > room - n) {
            memcpy(out + n, cut, sizeof cut);
            return;
        }
        memcpy(out + n, is_control ? escaped : bytes + i, n_out);
        n += n_out;
        i += n_in;
    }
    out[n] = '\0';
}

void weft_api_error_no_room(struct weft_api_error *error) {
    weft_api_error_set(error, 503, NULL, "too_many_bytes",
                       "the server holds too many large requests, try again later");
    error->retry_after_ms = WEFT_API_RETRY_MS;
}

void weft_api_error_no_adapters_yet(struct weft_api_error *error) {
    if (error->status) return; /* the first one is told, and may help nobody who tries again */
    weft_api_error_set(error, 503, NULL, "not_serving", "adapters are being loaded");
    error->retry_after_ms = WEFT_API_RETRY_MS;
}

void weft_api_error_late(struct weft_api_error *error) {
    weft_api_error_set(error, 504, NULL, "request_timeout", "the request took too long");
}

void weft_api_error_leaving(struct weft_api_error *error) {
    weft_api_error_set(error, 503, NULL, "shutting_down", "the server is shutting down");
    error->retry_after_ms = WEFT_API_RETRY_MS;
}

const char *weft_api_error_dropped(const struct weft_api_error *error) {
    return error->status == 429 || error->status == 503 ? error->code : NULL;
}

bool weft_api_error_is_memory(const struct weft_api_error *error) {
    return error->status == 500 && !error->code;
}

const char *weft_api_error_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 408:
    case 504:
        return "timeout_error";
    case 429:
        return "rate_limit_error";
    case 499:
        return "cancelled";
    case 503:
        return "service_unavailable_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void add_request_id(const char *request_id, struct weft_buf *out) {
    if (!request_id) return;
    weft_buf_add_str(out, ",\"request_id\":");
    weft_json_str(out, request_id, strlen(request_id));
}

void weft_api_error_json(const struct weft_api_error *error, const char *request_id,
                         struct weft_buf *out) {
    weft_buf_add_str(out, "{\"error\":{\"message\":");
    weft_json_str(out, error->message, strlen(error->message));
    weft_buf_printf(out, ",\"type\":\"%s\",\"param\":", weft_api_error_type(error->status));
    if (error->param[0])
        weft_json_str(out, error->param, strlen(error->param));
    else
        weft_buf_add_str(out, "null");
    if (error->code)
        weft_buf_printf(out, ",\"code\":\"%s\"}", error->code);
    else
        weft_buf_add_str(out, ",\"code\":null}");
    add_request_id(request_id, out);
    weft_buf_add_char(out, '}');
}

static bool is_below(const char *path, size_t len, const char *folder) {
    size_t n = strlen(folder);
    return len >= n && memcmp(path, folder, n) == 0;
}

bool weft_api_error_is_anthropics(const char *path, size_t len) {
    static const char messages[] = "/v1/messages";
    size_t n = sizeof messages - 1;
    return is_below(path, len, messages) && (len == n || path[n] == '/');
}

static const char *anthropics_type(int status) {
    switch (status) {
    case 401:
    case 403:
    case 404:
    case 429:
        return weft_api_error_type(status); /* they have the same names */
    case 408:
    case 504:
        return "timeout_error";
    case 413:
        return "request_too_large";
    case 503:
        return "overloaded_error";
    default:
        return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

/* What went wrong for programs: by "thread_unsupported_request" their clients know to go on without it. */
static void add_details(const struct weft_api_error *error, struct weft_buf *out) {
    if (!error->code) return;
    weft_buf_printf(out, ",\"details\":{\"error_code\":\"%s\",\"param\":", error->code);
    if (error->param[0])
        weft_json_str(out, error->param, strlen(error->param));
    else
        weft_buf_add_str(out, "null");
    weft_buf_add_char(out, '}');
}

static void write_anthropics(const struct weft_api_error *error, const char *request_id,
                             struct weft_buf *out) {
    weft_buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
                    anthropics_type(error->status));
    weft_json_str(out, error->message, strlen(error->message));
    add_details(error, out);
    weft_buf_add_char(out, '}');
    add_request_id(request_id, out);
    weft_buf_add_char(out, '}');
}

void weft_api_error_write(const struct weft_api_error *error, const char *request_id,
                          const char *path, size_t len, struct weft_buf *out) {
    if (weft_api_error_is_anthropics(path, len)) {
        write_anthropics(error, request_id, out);
        return;
    }
    if (!is_below(path, len, "/api/")) {
        weft_api_error_json(error, request_id, out);
        return;
    }
    weft_buf_add_str(out, "{\"error\":");
    weft_json_str(out, error->message, strlen(error->message));
    add_request_id(request_id, out);
    weft_buf_add_char(out, '}');
}
