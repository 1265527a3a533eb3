/* The text of a schema as JSON. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/schema.h"

#define TEXT_BYTES_MAX ((size_t)16 << 20)
#define OBJECTS_MAX 65536u /* of a text; none of the sample's schemas has a thousand */
#define NUMBER_CHARS "0123456789+-.eE"
#define DIGITS_SAFE 19u  /* fewer are an integer of 64 bits */
#define DIGITS_READ 330u /* more are no double */

/* Before it is parsed, which takes longer than anything else where the text has too many. */
static bool has_many_objects(struct weft_str text) {
    bool in_string = false;
    uint32_t n = 0;
    for (size_t i = 0; i < text.len && n <= OBJECTS_MAX; i++) {
        if (text.data[i] == '"') in_string = !in_string;
        if (text.data[i] == '\\')
            i++; /* which JSON has within strings alone */
        else
            n += text.data[i] == '{' && !in_string;
    }
    return n > OBJECTS_MAX;
}

/* Past a string, from its quote on. */
static size_t skip_string(struct weft_str text, size_t at) {
    for (at++; at < text.len && text.data[at] != '"'; at++)
        at += text.data[at] == '\\';
    return at < text.len ? at + 1 : text.len;
}

/* Jansson reads integers of 64 bits. A longer one that a double holds exactly becomes such, any other one a number
 * that whoever needs its value refuses for its size. */
static void add_integer(struct weft_buf *out, const char *digits, size_t n) {
    char own[DIGITS_READ + 1], exact[DIGITS_READ + 2];
    if (n < DIGITS_SAFE) {
        weft_buf_add(out, digits, n);
        return;
    }
    size_t n_own = n < DIGITS_READ ? n : DIGITS_READ;
    memcpy(own, digits, n_own);
    own[n_own] = '\0';
    errno = 0;
    (void)strtoll(own, NULL, 10);
    bool is_short = errno != ERANGE;
    if (!is_short) (void)snprintf(exact, sizeof exact, "%.0f", strtod(own, NULL));
    if (is_short || (n == n_own && !strcmp(own, exact)))
        weft_buf_printf(out, is_short ? "%s" : "%s.0", own);
    else
        weft_buf_add_str(out, *own == '-' ? "-1e300" : "1e300");
}

/* One value with integers that Jansson reads. Returns how many bytes it had. */
static size_t shorten_integers(struct weft_str text, struct weft_buf *out) {
    size_t at = 0, depth = 0;
    for (bool is_done = false; at < text.len && !is_done && !out->failed;) {
        char c = text.data[at];
        size_t from = at++;
        bool is_number = c == '-' || (c >= '0' && c <= '9');
        if (c == '"') at = skip_string(text, from);
        while (is_number && at < text.len && text.data[at] && strchr(NUMBER_CHARS, text.data[at]))
            at++;
        if (is_number && !memchr(text.data + from, '.', at - from) &&
            !memchr(text.data + from, 'e', at - from) && !memchr(text.data + from, 'E', at - from))
            add_integer(out, text.data + from, at - from);
        else
            weft_buf_add(out, text.data + from, at - from);
        depth += c == '{' || c == '[';
        if (c == '}' || c == ']') is_done = depth == 0 || --depth == 0;
    }
    return at;
}

weft_err wefti_schema_load(struct weft_str text, size_t *n_out, json_t **root_out,
                           struct weft_errmsg *why) {
    json_error_t where;
    size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES |
                   (n_out ? JSON_DISABLE_EOF_CHECK : 0);
    *root_out = NULL;
    if (n_out) *n_out = 0;
    if (text.len > TEXT_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "a schema of %zu bytes is over %zu", text.len,
                            TEXT_BYTES_MAX);
    if (!n_out && has_many_objects(text)) /* else it is a part of this text, of any length */
        return weft_err_set(why, WEFT_E_TOOBIG, "a schema of over %u objects", OBJECTS_MAX);
    *root_out = json_loadb(text.data ? text.data : "", text.len, flags, &where);
    size_t n = *root_out ? (size_t)where.position : 0;
    if (!*root_out && text.data && json_error_code(&where) == json_error_numeric_overflow) {
        struct weft_buf shorter;
        weft_buf_init(&shorter, 2 * TEXT_BYTES_MAX);
        n = shorten_integers(text, &shorter);
        if (!n_out) weft_buf_add(&shorter, text.data + n, text.len - n);
        *root_out = json_loadb(weft_buf_cstr(&shorter), shorter.len, flags, &where);
        weft_buf_fini(&shorter);
    }
    if (*root_out && n_out) *n_out = n;
    if (*root_out) return WEFT_OK;
    if (json_error_code(&where) == json_error_duplicate_key)
        return weft_err_set(why, WEFT_E_INVAL, "the schema has a %s at line %d", where.text,
                            where.line);
    return weft_err_set(why, WEFT_E_INVAL, "the schema is not JSON: %s at line %d", where.text,
                        where.line);
}
