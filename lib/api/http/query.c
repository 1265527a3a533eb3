/* What stands behind a path's '?'. Names and values are taken as they are written: none that is read here has a
 * character that would have to be percent-encoded. */
#include <string.h>

#include "base/check.h"
#include "http/head.h"

bool wefti_api_http_query(const struct weft_api_http *h, const char *name,
                          struct weft_str *value_out) {
    struct weft_str rest = {h->query.at, h->query.at ? h->query.len : 0};
    size_t n_name = strlen(name);
    uint32_t n_found = 0;
    *value_out = (struct weft_str){NULL, 0};
    while (rest.len > 0) {
        const char *end = memchr(rest.data, '&', rest.len);
        size_t n = end ? (size_t)(end - rest.data) : rest.len, n_used = end ? n + 1 : n;
        bool has_value = n > n_name && rest.data[n_name] == '=';
        if ((has_value || n == n_name) && memcmp(rest.data, name, n_name) == 0) {
            n_found++;
            *value_out = has_value ? (struct weft_str){rest.data + n_name + 1, n - n_name - 1}
                                   : (struct weft_str){rest.data + n, 0};
        }
        rest = (struct weft_str){rest.data + n_used, rest.len - n_used};
    }
    return n_found <= 1;
}

bool wefti_api_http_query_once(struct weft_api_http *h, const char *name,
                               struct weft_str *value_out) {
    WEFT_ASSERT(strlen(name) <= 32);
    if (wefti_api_http_query(h, name, value_out)) return true;
    weft_api_error_set(&h->refusal, 400, name, NULL, "the query says '%s' more than once", name);
    return false;
}
