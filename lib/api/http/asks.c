/* Requests about files and batches: which of them, and what of it. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/parse.h"
#include "http/head.h"

static struct weft_str str_of(const struct weft_api_span *span) {
    return (struct weft_str){span->at, span->at ? span->len : 0};
}

static void copy_id(struct weft_str from, char to[WEFT_API_STORED_ID_BYTES]) {
    WEFT_ASSERT(from.data && from.len < WEFT_API_STORED_ID_BYTES);
    memcpy(to, from.data, from.len);
    to[from.len] = '\0';
}

static void read_list(struct weft_api_http *h) {
    struct weft_str limit, after;
    char text[8] = "";
    uint64_t n = WEFT_API_LIST_USUAL;
    if (!wefti_api_http_query_once(h, "limit", &limit) ||
        !wefti_api_http_query_once(h, "after", &after))
        return;
    bool is_fair = limit.len < sizeof text;
    if (is_fair && limit.len) {
        memcpy(text, limit.data, limit.len);
        is_fair = weft_parse_u64(text, 10000, &n) == WEFT_OK && n > 0;
    }
    if (!is_fair)
        weft_api_error_set(&h->refusal, 400, "limit", NULL,
                           "'limit' must be a number from 1 to 10000; at most %d are told at once",
                           WEFT_API_LIST_MAX);
    h->ask.limit = n > WEFT_API_LIST_MAX ? WEFT_API_LIST_MAX : (uint32_t)n;
    if (!after.len) return;
    if (weft_api_is_stored_id(after))
        copy_id(after, h->ask.after);
    else
        weft_api_error_set(&h->refusal, 400, "after", NULL, "'after' must be an id");
}

static enum weft_api_ask_op op_of(const struct weft_api_http *h, bool is_file, bool has_id,
                                  struct weft_str rest) {
    bool is_get = h->method == HTTP_GET || h->method == HTTP_HEAD, is_post = h->method == HTTP_POST;
    if (!has_id && is_get) return is_file ? WEFT_API_ASK_FILE_LIST : WEFT_API_ASK_BATCH_LIST;
    if (!has_id && is_post) return is_file ? WEFT_API_ASK_FILE_UPLOAD : WEFT_API_ASK_BATCH_NEW;
    if (!has_id) return WEFT_API_ASK_NONE;
    if (!rest.len && is_get) return is_file ? WEFT_API_ASK_FILE_GET : WEFT_API_ASK_BATCH_GET;
    if (!rest.len && is_file && h->method == HTTP_DELETE) return WEFT_API_ASK_FILE_DROP;
    if (is_file && h->method == HTTP_GET && WEFT_STR_IS(rest, "/content"))
        return WEFT_API_ASK_FILE_CONTENT;
    if (!is_file && is_post && WEFT_STR_IS(rest, "/cancel")) return WEFT_API_ASK_BATCH_CANCEL;
    return WEFT_API_ASK_NONE;
}

bool wefti_api_http_read_ask(struct weft_api_http *h) {
    struct weft_str path = str_of(&h->path);
    bool is_file = strncmp(h->route.path, "/v1/files", 9) == 0;
    size_t n_route = strlen(h->route.path);
    WEFT_ASSERT(path.len >= n_route);
    struct weft_str id = {path.data + n_route, path.len - n_route}, rest = {"", 0};
    const char *slash = id.len ? memchr(id.data, '/', id.len) : NULL;
    if (slash) {
        rest = (struct weft_str){slash, (size_t)(id.data + id.len - slash)};
        id.len -= rest.len;
    }
    h->ask.op = op_of(h, is_file, h->route.is_prefix, rest);
    if (h->ask.op == WEFT_API_ASK_NONE) return false;
    if (h->route.is_prefix && weft_api_is_stored_id(id))
        copy_id(id, h->ask.id);
    else if (h->route.is_prefix)
        weft_api_error_set(&h->refusal, 404, "id", "not_found", "that is no id of a %s",
                           is_file ? "file" : "batch");
    if (h->ask.op == WEFT_API_ASK_FILE_LIST || h->ask.op == WEFT_API_ASK_BATCH_LIST) read_list(h);
    return true;
}
