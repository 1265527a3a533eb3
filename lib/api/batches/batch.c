/* The objects of batches and files; line.c has their lines. */
#include "api/batch.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "batches/lines.h"
#include "codec/json_out.h"
#include "codec/writer.h"
#include "params/json_read.h"

static const char *const names[] = {
#define X(name, text) text,
    WEFT_API_BATCH_STATUS_LIST(X)
#undef X
};

void weft_api_stored_id(const char *prefix, char out[WEFT_API_STORED_ID_BYTES]) {
    int n = snprintf(out, WEFT_API_STORED_ID_BYTES, "%s%016" PRIx64, prefix, weft_rand_seed());
    WEFT_ASSERT(n > 0 && n < WEFT_API_STORED_ID_BYTES);
}

bool weft_api_is_stored_id(struct weft_str text) {
    if (text.len == 0 || text.len >= WEFT_API_STORED_ID_BYTES) return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool is_fair = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '_' || c == '-';
        if (!is_fair) return false;
    }
    return true;
}

bool weft_api_batch_is_over(const struct weft_api_batch *batch) {
    return batch->status > WEFT_API_BATCH_CANCELLING;
}

void weft_api_batch_enter(struct weft_api_batch *batch, enum weft_api_batch_status status,
                          int64_t now_s) {
    if (weft_api_batch_is_over(batch)) return;
    batch->status = status;
    if (batch->at_s[status] == 0) batch->at_s[status] = now_s;
}

void weft_api_batch_fini(struct weft_api_batch *batch) {
    free(batch->metadata);
    free(batch->errors);
    batch->metadata = batch->errors = NULL;
}

/* ------------------------------------------------------------------------------------ writing --- */

static void write_time(struct weft_writer *w, const char *key, int64_t s) {
    weft_write_key(w, key);
    if (s > 0)
        weft_write_int(w, s);
    else
        weft_write_null(w);
}

static void write_pair(struct weft_writer *w, const char *key, const char *text) {
    weft_write_key(w, key);
    weft_write_str(w, text);
}

static void write_json(struct weft_writer *w, const char *key, const char *json) {
    weft_write_key(w, key);
    if (!json) {
        weft_write_null(w);
        return;
    }
    weft_write_json_open(w);
    weft_write_json_more(w, json, strlen(json));
    weft_write_json_close(w);
}

static void write_file(const struct weft_api_file *file, struct weft_writer *w) {
    write_pair(w, "id", file->id);
    write_pair(w, "object", "file");
    weft_write_key(w, "bytes");
    weft_write_uint(w, file->bytes);
    write_time(w, "created_at", file->created_s);
    write_time(w, "expires_at", file->expires_s);
    write_pair(w, "filename", file->name);
    write_pair(w, "purpose", file->purpose);
    write_pair(w, "status", "processed");
}

void weft_api_file_write(const struct weft_api_file *file, struct weft_buf *out) {
    struct weft_writer w;
    weft_writer_init(&w, WEFT_WRITE_JSON, out);
    weft_write_map(&w);
    write_file(file, &w);
    weft_write_end(&w);
}

/* A number of 64 bits as text: readers of JSON keep 53 of them. */
static void write_tenant(struct weft_writer *w, uint64_t tenant) {
    char text[17];
    (void)snprintf(text, sizeof text, "%016" PRIx64, tenant);
    write_pair(w, "tenant", text);
}

void weft_api_file_store(const struct weft_api_file *file, struct weft_buf *out) {
    struct weft_writer w;
    weft_writer_init(&w, WEFT_WRITE_JSON, out);
    weft_write_map(&w);
    write_file(file, &w);
    write_tenant(&w, file->tenant);
    weft_write_end(&w);
}

static void write_counts(const struct weft_api_batch *batch, struct weft_writer *w) {
    weft_write_key(w, "request_counts");
    weft_write_map(w);
    weft_write_key(w, "total");
    weft_write_uint(w, batch->n_total);
    weft_write_key(w, "completed");
    weft_write_uint(w, batch->n_completed);
    weft_write_key(w, "failed");
    weft_write_uint(w, batch->n_failed);
    weft_write_end(w);
}

static void write_errors(const struct weft_api_batch *batch, struct weft_writer *w) {
    weft_write_key(w, "errors");
    if (!batch->errors) {
        weft_write_null(w);
        return;
    }
    weft_write_map(w);
    write_pair(w, "object", "list");
    write_json(w, "data", batch->errors);
    weft_write_end(w);
}

static void write_batch(const struct weft_api_batch *batch, struct weft_writer *w) {
    write_pair(w, "id", batch->id);
    write_pair(w, "object", "batch");
    write_pair(w, "endpoint", batch->endpoint);
    write_errors(batch, w);
    write_pair(w, "input_file_id", batch->input);
    write_pair(w, "completion_window", batch->window);
    write_pair(w, "status", names[batch->status]);
    weft_write_key(w, "output_file_id");
    if (batch->has_output)
        weft_write_str(w, batch->output);
    else
        weft_write_null(w);
    weft_write_key(w, "error_file_id");
    if (batch->has_error)
        weft_write_str(w, batch->error);
    else
        weft_write_null(w);
    write_time(w, "created_at", batch->created_s);
    write_time(w, "expires_at", batch->expires_s);
    for (int i = WEFT_API_BATCH_IN_PROGRESS; i < WEFT_API_BATCH_STATUSES; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s_at", names[i]);
        write_time(w, key, batch->at_s[i]);
    }
    write_counts(batch, w);
    write_json(w, "metadata", batch->metadata);
}

void weft_api_batch_write(const struct weft_api_batch *batch, struct weft_buf *out) {
    struct weft_writer w;
    weft_writer_init(&w, WEFT_WRITE_JSON, out);
    weft_write_map(&w);
    write_batch(batch, &w);
    weft_write_end(&w);
}

void weft_api_batch_store(const struct weft_api_batch *batch, struct weft_buf *out) {
    struct weft_writer w;
    weft_writer_init(&w, WEFT_WRITE_JSON, out);
    weft_write_map(&w);
    write_batch(batch, &w);
    write_tenant(&w, batch->tenant);
    weft_write_key(&w, "weight");
    weft_write_uint(&w, batch->weight);
    write_pair(&w, "output", batch->output);
    write_pair(&w, "error", batch->error);
    weft_write_end(&w);
}

/* ------------------------------------------------------------------------------------ reading --- */

/* A text of the object, copied. False: it is none, has a NUL, or is too long. */
static bool get_text(const json_t *object, const char *key, char *out, size_t n_room) {
    const json_t *value = json_object_get(object, key);
    size_t len = json_is_string(value) ? json_string_length(value) : n_room;
    if (len >= n_room || memchr(json_string_value(value), '\0', len)) return false;
    memcpy(out, json_string_value(value), len + 1);
    return true;
}

static bool get_id(const json_t *object, const char *key, char out[WEFT_API_STORED_ID_BYTES]) {
    return get_text(object, key, out, WEFT_API_STORED_ID_BYTES) &&
           weft_api_is_stored_id((struct weft_str){out, strlen(out)});
}

static bool get_count(const json_t *object, const char *key, uint64_t most, uint64_t *out) {
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    *out = number < 0 ? 0 : (uint64_t)number;
    return number >= 0 && *out <= most;
}

/* null is 0. */
static bool get_time(const json_t *object, const char *key, int64_t *out) {
    uint64_t s = 0;
    bool is_null = json_is_null(json_object_get(object, key));
    if (!is_null && !get_count(object, key, INT64_MAX, &s)) return false;
    *out = (int64_t)s;
    return true;
}

static bool get_tenant(const json_t *object, uint64_t *out) {
    char text[17], *end = NULL;
    if (!get_text(object, "tenant", text, sizeof text) || strlen(text) != 16) return false;
    *out = strtoull(text, &end, 16);
    return *end == '\0';
}

/* A copy of a value as JSON; NULL stays NULL. False: no memory. */
static bool get_json(const json_t *value, char **out) {
    *out = NULL;
    if (!value || json_is_null(value)) return true;
    *out = json_dumps(value, JSON_COMPACT);
    return *out != NULL;
}

weft_err weft_api_file_restore(struct weft_str text, struct weft_api_file *file,
                               struct weft_errmsg *why) {
    memset(file, 0, sizeof *file);
    json_t *o = json_loadb(text.data, text.len, 0, NULL);
    bool is_fair = json_is_object(o) && get_id(o, "id", file->id) &&
                   get_count(o, "bytes", INT64_MAX, &file->bytes) &&
                   get_time(o, "created_at", &file->created_s) &&
                   get_time(o, "expires_at", &file->expires_s) &&
                   get_text(o, "filename", file->name, sizeof file->name) &&
                   get_text(o, "purpose", file->purpose, sizeof file->purpose) &&
                   get_tenant(o, &file->tenant);
    json_decref(o);
    return is_fair ? WEFT_OK : weft_err_set(why, WEFT_E_PROTO, "it describes no file");
}

static bool get_status(const json_t *o, enum weft_api_batch_status *out) {
    const json_t *value = json_object_get(o, "status");
    for (int i = 0; i < WEFT_API_BATCH_STATUSES; i++) {
        if (!wefti_api_json_is_text(value, names[i])) continue;
        *out = (enum weft_api_batch_status)i;
        return true;
    }
    return false;
}

static bool get_numbers(const json_t *o, struct weft_api_batch *batch) {
    const json_t *counts = json_object_get(o, "request_counts");
    uint64_t total, completed, failed, weight;
    bool is_fair = get_count(counts, "total", WEFT_API_BATCH_LINES_MAX, &total) &&
                   get_count(counts, "completed", WEFT_API_BATCH_LINES_MAX, &completed) &&
                   get_count(counts, "failed", WEFT_API_BATCH_LINES_MAX, &failed) &&
                   get_count(o, "weight", UINT32_MAX, &weight) &&
                   get_time(o, "created_at", &batch->created_s) &&
                   get_time(o, "expires_at", &batch->expires_s);
    if (!is_fair) return false;
    for (int i = WEFT_API_BATCH_IN_PROGRESS; i < WEFT_API_BATCH_STATUSES; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s_at", names[i]);
        if (!get_time(o, key, &batch->at_s[i])) return false;
    }
    batch->n_total = (uint32_t)total;
    batch->n_completed = (uint32_t)completed;
    batch->n_failed = (uint32_t)failed;
    batch->weight = (uint32_t)weight;
    return true;
}

weft_err weft_api_batch_restore(struct weft_str text, struct weft_api_batch *batch,
                                struct weft_errmsg *why) {
    memset(batch, 0, sizeof *batch);
    json_t *o = json_loadb(text.data, text.len, 0, NULL);
    bool is_fair = json_is_object(o) && get_id(o, "id", batch->id) &&
                   get_id(o, "input_file_id", batch->input) && get_id(o, "output", batch->output) &&
                   get_id(o, "error", batch->error) &&
                   get_text(o, "endpoint", batch->endpoint, sizeof batch->endpoint) &&
                   get_text(o, "completion_window", batch->window, sizeof batch->window) &&
                   get_status(o, &batch->status) && get_numbers(o, batch) &&
                   get_tenant(o, &batch->tenant) &&
                   get_json(json_object_get(o, "metadata"), &batch->metadata) &&
                   get_json(json_object_get(json_object_get(o, "errors"), "data"), &batch->errors);
    batch->has_output = json_is_string(json_object_get(o, "output_file_id"));
    batch->has_error = json_is_string(json_object_get(o, "error_file_id"));
    json_decref(o);
    if (is_fair) return WEFT_OK;
    weft_api_batch_fini(batch);
    return weft_err_set(why, WEFT_E_PROTO, "it describes no batch");
}

/* ---------------------------------------------------------------------------------- a new one --- */

/* "24h": a number and s, m, h or d. 0: it is none. */
static uint32_t read_window(const char *text) {
    static const struct {
        char unit;
        uint32_t s;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char *end = NULL;
    if (text[0] < '1' || text[0] > '9') return 0;
    unsigned long n = strtoul(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (end[0] != units[i].unit || end[1] != '\0') continue;
        return n <= WEFT_API_BATCH_WINDOW_S_MAX / units[i].s ? (uint32_t)n * units[i].s : 0;
    }
    return 0;
}

static bool fail(struct weft_api_error *error, const char *param, const char *text) {
    weft_api_error_set(error, 400, param, NULL, "%s", text);
    return false;
}

bool weft_api_file_expire(struct weft_api_file *file, const char *anchor, const char *seconds,
                          struct weft_api_error *error) {
    char *end = NULL;
    if (!anchor && !seconds) return true;
    if (!anchor || strcmp(anchor, "created_at") != 0)
        return fail(error, "expires_after", "'expires_after[anchor]' must be \"created_at\"");
    bool is_number = seconds && seconds[0] >= '0' && seconds[0] <= '9';
    unsigned long n = is_number ? strtoul(seconds, &end, 10) : 0;
    if (!is_number || *end || n < WEFT_API_FILE_SECONDS_MIN || n > WEFT_API_FILE_SECONDS_MAX)
        return fail(error, "expires_after",
                    "'expires_after[seconds]' must be a number from 3600 to 2592000");
    int64_t until_s = file->created_s + (int64_t)n;
    if (file->expires_s == 0 || until_s < file->expires_s) file->expires_s = until_s;
    return true;
}

static bool read_metadata(const json_t *value, struct weft_api_batch *batch,
                          struct weft_api_error *error) {
    const char *key;
    size_t len;
    json_t *text;
    if (!value || json_is_null(value)) return true;
    bool is_fair = json_is_object(value) && json_object_size(value) <= WEFT_API_METADATA_MAX;
    void *at = is_fair ? json_object_iter((json_t *)value) : NULL;
    for (; is_fair && at; at = json_object_iter_next((json_t *)value, at)) {
        key = json_object_iter_key(at);
        text = json_object_iter_value(at);
        len = json_is_string(text) ? json_string_length(text) : SIZE_MAX;
        is_fair = strlen(key) <= WEFT_API_METADATA_KEY_BYTES_MAX &&
                  len <= WEFT_API_METADATA_VALUE_BYTES_MAX;
    }
    if (!is_fair)
        return fail(
            error, "metadata",
            "'metadata' must be an object of at most 16 texts of at most 512 bytes, whose names "
            "have at most 64");
    batch->metadata = json_dumps(value, JSON_COMPACT);
    return batch->metadata || fail(error, NULL, "out of memory");
}

static bool read_fields(const json_t *o, struct weft_api_batch *batch, int64_t now_s,
                        struct weft_api_error *error) {
    if (!json_is_object(o)) return fail(error, NULL, "the body is no JSON object");
    if (!get_id(o, "input_file_id", batch->input))
        return fail(error, "input_file_id", "'input_file_id' must be the id of a file");
    if (!get_text(o, "endpoint", batch->endpoint, sizeof batch->endpoint) ||
        !wefti_api_batch_kind((struct weft_str){batch->endpoint, strlen(batch->endpoint)}))
        return fail(error, "endpoint", "'endpoint' must be one of " WEFTI_API_BATCH_ENDPOINTS);
    uint32_t window_s = 0;
    if (get_text(o, "completion_window", batch->window, sizeof batch->window))
        window_s = read_window(batch->window);
    if (!window_s)
        return fail(error, "completion_window",
                    "'completion_window' must be a time such as \"24h\", of at most 30 days");
    batch->created_s = now_s;
    batch->expires_s = now_s + window_s;
    return read_metadata(json_object_get(o, "metadata"), batch, error);
}

bool weft_api_batch_parse(struct weft_str body, struct weft_api_batch *batch, int64_t now_s,
                          struct weft_api_error *error) {
    memset(batch, 0, sizeof *batch);
    json_t *o = weft_json_within(body.data, body.len, 1000, 8)
                    ? json_loadb(body.data, body.len, 0, NULL)
                    : NULL;
    bool is_fair = read_fields(o, batch, now_s, error);
    json_decref(o);
    if (!is_fair) weft_api_batch_fini(batch);
    weft_api_stored_id("batch_", batch->id);
    weft_api_stored_id("file-", batch->output);
    weft_api_stored_id("file-", batch->error);
    return is_fair;
}
