#include "joint/spelt.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "grammar.h"

#define TEXT_BYTES_MAX ((size_t)16 << 10)

void wefti_spelt_fini(struct wefti_spelt *spelt) {
    for (size_t i = 0; i < spelt->n; i++)
        free(spelt->texts[i]);
    free(spelt->texts);
    *spelt = (struct wefti_spelt){0};
}

static weft_err fault(weft_err err, const char *what, const char **fault_out) {
    *fault_out = what;
    return err;
}

static bool has_special(const struct weft_gram_specials *specials, const json_t *token) {
    const struct weft_str text = {json_string_value(token), json_string_length(token)};
    return !specials || specials->has(specials->context, text);
}

static weft_err add_token(const struct wefti_spelt *spelt, struct weft_buf *buf,
                          const json_t *format, const char **fault_out) {
    const json_t *type = json_object_get(format, "type"), *token = json_object_get(format, "token");
    size_t len = json_string_length(token);
    if (!json_is_string(type) || strcmp(json_string_value(type), "token") != 0)
        return fault(WEFT_E_INVAL, "is no text, and no token", fault_out);
    if (json_object_size(format) > 2)
        return fault(WEFT_E_UNSUPPORTED,
                     "has a token with more than a text, which is not supported", fault_out);
    if (json_is_integer(token))
        return fault(WEFT_E_UNSUPPORTED,
                     "names a token by its number, which is not supported: give its text",
                     fault_out);
    if (len == 0) return fault(WEFT_E_INVAL, "names no token", fault_out);
    if (len > WEFT_GRAM_TOKEN_BYTES_MAX)
        return fault(WEFT_E_TOOBIG, "names a token of more than 4096 bytes", fault_out);
    if (!has_special(spelt->specials, token))
        return fault(WEFT_E_INVAL, "names a token that is no special one of the model", fault_out);
    weft_buf_add_char(buf, (char)WEFT_GRAM_SPECIAL);
    weft_buf_add(buf, json_string_value(token), len);
    weft_buf_add_char(buf, (char)WEFT_GRAM_SPECIAL);
    return WEFT_OK;
}

static weft_err add(const struct wefti_spelt *spelt, struct weft_buf *buf, const json_t *value,
                    const char **fault_out) {
    if (json_is_object(value)) return add_token(spelt, buf, value, fault_out);
    if (!json_is_string(value)) return fault(WEFT_E_INVAL, "is not a string", fault_out);
    weft_buf_add(buf, json_string_value(value), json_string_length(value));
    return WEFT_OK;
}

/* Takes the buffer's bytes over. */
static weft_err keep(struct wefti_spelt *spelt, struct weft_buf *buf, struct weft_str *text_out,
                     const char **fault_out) {
    char **texts = realloc(spelt->texts, (spelt->n + 1) * sizeof *texts);
    if (texts) spelt->texts = texts;
    if (!texts) return fault(WEFT_E_NOMEM, "has no memory", fault_out);
    if (buf->failed) return fault(WEFT_E_TOOBIG, "is longer than 16 KiB", fault_out);
    *text_out = (struct weft_str){buf->data ? buf->data : "", buf->len};
    texts[spelt->n++] = buf->data;
    buf->data = NULL;
    return WEFT_OK;
}

weft_err wefti_spelt_read(struct wefti_spelt *spelt, const json_t *value, struct weft_str *text_out,
                          const char **fault_out) {
    size_t i;
    const json_t *one;
    weft_err err = WEFT_OK;
    struct weft_buf buf;
    *fault_out = NULL;
    *text_out = (struct weft_str){"", 0};
    if (json_is_string(value)) { /* mostly */
        *text_out = (struct weft_str){json_string_value(value), json_string_length(value)};
        return WEFT_OK;
    }
    weft_buf_init(&buf, TEXT_BYTES_MAX);
    if (!json_is_array(value)) err = add(spelt, &buf, value, fault_out);
    json_array_foreach(value, i, one) {
        if (!err) err = add(spelt, &buf, one, fault_out);
    }
    if (!err) err = keep(spelt, &buf, text_out, fault_out);
    weft_buf_fini(&buf);
    return err;
}

/* ------------------------------------------------------------------------------------- looks --- */

size_t wefti_spelt_head(struct weft_str text) {
    const char *at = text.len ? memchr(text.data, WEFT_GRAM_SPECIAL, text.len) : NULL;
    return at ? (size_t)(at - text.data) : text.len;
}

bool wefti_spelt_has_special(struct weft_str text) {
    return wefti_spelt_head(text) < text.len;
}

/* How many bytes around special tokens there are: an odd number before what lies within one. */
static size_t count_special(const char *bytes, size_t n_bytes) {
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++)
        n += (unsigned char)bytes[i] == WEFT_GRAM_SPECIAL;
    return n;
}

bool wefti_spelt_has(struct weft_str text, struct weft_str part) {
    size_t from = 0, n_before = 0;
    const char *at;
    while (part.len > 0 && from + part.len <= text.len &&
           (at = memmem(text.data + from, text.len - from, part.data, part.len))) {
        size_t next = (size_t)(at - text.data);
        n_before += count_special(text.data + from, next - from);
        if (n_before % 2 == 0) return true;
        n_before += count_special(at, 1);
        from = next + 1;
    }
    return false;
}

bool wefti_spelt_ends_with(struct weft_str text, struct weft_str part) {
    size_t from = text.len - part.len;
    return part.len <= text.len &&
           (part.len == 0 || memcmp(text.data + from, part.data, part.len) == 0) &&
           count_special(text.data, from) % 2 == 0;
}
