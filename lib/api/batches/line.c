/* A batch's lines, and the answers to them. */
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/batch.h"
#include "base/check.h"
#include "base/utf8.h"
#include "batches/lines.h"
#include "codec/json_budget.h"
#include "codec/json_out.h"
#include "kinds/kind.h"
#include "params/json_read.h"

#define VALUES_MAX (2u << 20) /* as of a request's body */
#define DEPTH_MAX 66
#define ID_HEAD "{\"id\":\"batch_req_"
/* A custom_id in JSON: six bytes for one at most, and quotes. */
#define CUSTOM_ID_JSON_BYTES_MAX (6 * WEFT_API_CUSTOM_ID_BYTES_MAX + 2)

const weft_api_kind *wefti_api_batch_kind(struct weft_str path) {
    static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                        "/v1/embeddings", "/v1/messages"};
    bool is_listed = false;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        is_listed = is_listed || weft_str_is(path, paths[i], strlen(paths[i]));
    for (size_t i = 0; is_listed && wefti_api_kinds[i]; i++) {
        const char *own = wefti_api_kinds[i]->path;
        if (weft_str_is(path, own, strlen(own))) return wefti_api_kinds[i];
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------ reading --- */

static bool fail(struct weft_api_batch_fault *fault, const char *code, const char *param,
                 const char *text) {
    fault->code = code;
    fault->param = param;
    fault->is_memory = false;
    (void)snprintf(fault->message, sizeof fault->message, "%s", text);
    return false;
}

static bool fail_for_memory(struct weft_api_batch_fault *fault) {
    (void)fail(fault, "server_error", NULL, "out of memory");
    fault->is_memory = true;
    return false;
}

/* jansson's reason quotes bytes of the line. */
static bool fail_for_syntax(struct weft_api_batch_fault *fault, const json_error_t *where) {
    (void)fail(fault, "invalid_json_line", NULL, "");
    (void)snprintf(fault->message, sizeof fault->message, "this line is not JSON: %s, at byte %d",
                   where->text, where->position);
    weft_utf8_printable(fault->message);
    return false;
}

static bool fail_for_bounds(struct weft_api_batch_fault *fault) {
    (void)fail(fault, "invalid_json_line", NULL, "");
    (void)snprintf(fault->message, sizeof fault->message,
                   "this line nests deeper than %d levels, or holds over %u values", DEPTH_MAX,
                   VALUES_MAX);
    return false;
}

static struct weft_str text_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) return (struct weft_str){NULL, 0};
    return (struct weft_str){json_string_value(value), json_string_length(value)};
}

static bool read_body(json_t *body, struct weft_api_batch_line *line,
                      struct weft_api_batch_fault *fault) {
    if (!json_is_object(body))
        return fail(fault, "missing_required_parameter", "body", "'body' must be an object");
    if (json_is_true(json_object_get(body, "stream")))
        return fail(fault, "invalid_request", "body.stream", "the answer to a line is no stream");
    line->body = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!line->body) return fail_for_memory(fault);
    line->n_body = strlen(line->body);
    return true;
}

static bool read_name(const json_t *o, struct weft_api_batch_line *line,
                      struct weft_api_batch_fault *fault) {
    struct weft_str name = text_of(o, "custom_id");
    if (!name.data || name.len > WEFT_API_CUSTOM_ID_BYTES_MAX)
        return fail(fault, "missing_required_parameter", "custom_id",
                    "'custom_id' must be a text of at most 512 bytes");
    line->name = malloc(name.len + 1);
    if (!line->name) return fail_for_memory(fault);
    memcpy(line->name, name.data, name.len);
    line->custom_id = (struct weft_str){line->name, name.len};
    return true;
}

static bool read_object(json_t *o, const char *endpoint, struct weft_api_batch_line *line,
                        struct weft_api_batch_fault *fault) {
    if (!json_is_object(o))
        return fail(fault, "invalid_json_line", NULL, "this line is no JSON object");
    if (!read_name(o, line, fault)) return false;
    struct weft_str method = text_of(o, "method"), url = text_of(o, "url");
    if (!WEFT_STR_IS(method, "POST"))
        return fail(fault, "invalid_method", "method", "'method' must be \"POST\"");
    line->kind = wefti_api_batch_kind(url);
    if (!line->kind)
        return fail(fault, "invalid_url", "url", "'url' must be one of " WEFTI_API_BATCH_ENDPOINTS);
    line->url = (struct weft_str){line->kind->path, url.len};
    if (endpoint && !weft_str_is(url, endpoint, strlen(endpoint)))
        return fail(fault, "mismatched_endpoint", "url", "'url' must be the batch's 'endpoint'");
    return read_body(json_object_get(o, "body"), line, fault);
}

static bool read_line(struct weft_str text, const char *endpoint, struct weft_api_batch_line *line,
                      struct weft_api_batch_fault *fault) {
    json_error_t where = {.line = 0};
    json_t *o = NULL;
    if (!weft_json_within(text.data, text.len, VALUES_MAX, DEPTH_MAX))
        return fail_for_bounds(fault);
    o = json_loadb(text.data, text.len, JSON_ALLOW_NUL, &where);
    if (!o && !where.text[0]) return fail_for_memory(fault); /* no other reason has no text */
    if (!o) return fail_for_syntax(fault, &where);
    bool is_fair = read_object(o, endpoint, line, fault);
    json_decref(o);
    return is_fair;
}

bool weft_api_batch_line_read(struct weft_str text, const char *endpoint, size_t json_bytes_max,
                              struct weft_api_batch_line *line,
                              struct weft_api_batch_fault *fault) {
    memset(line, 0, sizeof *line);
    weft_json_budget_begin(json_bytes_max);
    bool is_fair = read_line(text, endpoint, line, fault);
    if (weft_json_budget_end()) return is_fair;
    return fail(fault, "invalid_json_line", NULL,
                "this line holds more values than --request-memory leaves room for");
}

void weft_api_batch_line_fini(struct weft_api_batch_line *line) {
    free(line->name);
    free(line->body);
    memset(line, 0, sizeof *line);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

bool weft_api_batch_next_line(struct weft_str *rest, struct weft_str *line_out) {
    while (rest->len > 0) {
        const char *end = memchr(rest->data, '\n', rest->len);
        size_t n = end ? (size_t)(end - rest->data) : rest->len, n_used = end ? n + 1 : n;
        *line_out = (struct weft_str){rest->data, n};
        *rest = (struct weft_str){rest->data + n_used, rest->len - n_used};
        size_t n_blank = 0;
        while (n_blank < n && is_blank(line_out->data[n_blank]))
            n_blank++;
        if (n_blank < n) return true;
    }
    return false;
}

/* ------------------------------------------------------------------------------------ writing --- */

void weft_api_batch_add_fault(struct weft_buf *list, const struct weft_api_batch_fault *fault,
                              uint32_t idx) {
    if (list->len) weft_buf_add_char(list, ',');
    weft_buf_printf(list, "{\"code\":\"%s\",\"line\":", fault->code);
    if (idx == UINT32_MAX)
        weft_buf_add_str(list, "null");
    else
        weft_json_uint(list, (uint64_t)idx + 1);
    weft_buf_add_str(list, ",\"message\":");
    weft_json_str(list, fault->message, strlen(fault->message));
    weft_buf_add_str(list, ",\"param\":");
    if (fault->param)
        weft_json_str(list, fault->param, strlen(fault->param));
    else
        weft_buf_add_str(list, "null");
    weft_buf_add_char(list, '}');
}

/* The digits of a batch's own id. */
static const char *digits_of(const char *batch_id) {
    const char *digits = strrchr(batch_id, '_');
    return digits ? digits + 1 : batch_id;
}

void weft_api_batch_write_answer(const struct weft_api_batch_answer *answer, struct weft_buf *out) {
    struct weft_str body = answer->body;
    while (body.len && (body.data[body.len - 1] == '\n' || body.data[body.len - 1] == '\r'))
        body.len--;
    WEFT_ASSERT(!memchr(body.data ? body.data : "", '\n', body.len)); /* or it would be two lines */
    weft_buf_printf(out, ID_HEAD "%s%08x\",\"custom_id\":", digits_of(answer->batch_id),
                    answer->idx);
    weft_json_str(out, answer->custom_id.data, answer->custom_id.len);
    weft_buf_add_str(out, ",\"response\":");
    if (answer->status) {
        weft_buf_printf(out, "{\"status_code\":%d,\"request_id\":", answer->status);
        weft_json_str(out, answer->request_id, strlen(answer->request_id));
        weft_buf_add_str(out, ",\"body\":");
        weft_buf_add(out, body.data, body.len);
        weft_buf_add_str(out, "},\"error\":null}\n");
        return;
    }
    weft_buf_printf(out, "null,\"error\":{\"code\":\"%s\",\"message\":", answer->code);
    weft_json_str(out, answer->message, strlen(answer->message));
    weft_buf_add_str(out, "}}\n");
}

bool weft_api_batch_answered(struct weft_str answer, const char *batch_id, uint32_t *idx_out) {
    char head[sizeof ID_HEAD + WEFT_API_STORED_ID_BYTES], number[9], *end = NULL;
    int n = snprintf(head, sizeof head, ID_HEAD "%s", digits_of(batch_id));
    WEFT_ASSERT(n > 0 && (size_t)n < sizeof head);
    size_t n_head = (size_t)n;
    if (answer.len < n_head + 9 || memcmp(answer.data, head, n_head) != 0) return false;
    memcpy(number, answer.data + n_head, 8);
    number[8] = '\0';
    *idx_out = (uint32_t)strtoul(number, &end, 16);
    return *end == '\0' && number[0] != '-' && number[0] != '+' && number[0] != ' ' &&
           answer.data[n_head + 8] == '"';
}

/* ------------------------------------------------------------------------------- reading answers --- */

static bool skip(struct weft_str *rest, const char *text) {
    size_t n = strlen(text);
    if (rest->len < n || memcmp(rest->data, text, n) != 0) return false;
    *rest = (struct weft_str){rest->data + n, rest->len - n};
    return true;
}

/* At least one. */
static bool skip_all(struct weft_str *rest, const char *of) {
    size_t n = 0;
    while (n < rest->len && rest->data[n] && strchr(of, rest->data[n]))
        n++;
    *rest = (struct weft_str){rest->data + n, rest->len - n};
    return n > 0;
}

static bool take_custom_id(struct weft_str *rest, struct weft_api_batch_answered *answered) {
    size_t n = rest->len < CUSTOM_ID_JSON_BYTES_MAX ? rest->len : CUSTOM_ID_JSON_BYTES_MAX;
    json_error_t where;
    json_t *text = json_loadb(rest->data, n,
                              JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &where);
    bool is_fair = json_is_string(text) && json_string_length(text) <= sizeof answered->custom_id;
    if (is_fair) {
        answered->n_custom_id = json_string_length(text);
        memcpy(answered->custom_id, json_string_value(text), answered->n_custom_id);
        WEFT_ASSERT(where.position >= 0 && (size_t)where.position <= n);
        *rest = (struct weft_str){rest->data + where.position, rest->len - (size_t)where.position};
    }
    json_decref(text);
    return is_fair;
}

static bool take_status(struct weft_str *rest, int *status_out) {
    *status_out = 0;
    if (skip(rest, "null,\"error\":{")) return true;
    if (!skip(rest, "{\"status_code\":") || rest->len < 4) return false;
    for (int i = 0; i < 3; i++) {
        if (rest->data[i] < '0' || rest->data[i] > '9') return false;
        *status_out = 10 * *status_out + (rest->data[i] - '0');
    }
    *rest = (struct weft_str){rest->data + 3, rest->len - 3};
    return skip(rest, ",") && *status_out >= 100;
}

bool weft_api_batch_answer_read(struct weft_str line, struct weft_api_batch_answered *answered) {
    memset(answered, 0, sizeof *answered);
    if (line.len && line.data[line.len - 1] == '\n') line.len--;
    if (line.len == 0 || line.data[line.len - 1] != '}') return false;
    return skip(&line, ID_HEAD) && skip_all(&line, "0123456789abcdef") &&
           skip(&line, "\",\"custom_id\":") && line.len > 0 && line.data[0] == '"' &&
           take_custom_id(&line, answered) && skip(&line, ",\"response\":") &&
           take_status(&line, &answered->status);
}

bool weft_api_batch_begins_answer(struct weft_str text) {
    size_t n = text.len < sizeof ID_HEAD - 1 ? text.len : sizeof ID_HEAD - 1;
    return memcmp(text.data, ID_HEAD, n) == 0;
}
