#include "api/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/utf8.h"

/* ---------------------------------------------------------------------------------- the type --- */

static bool is_boundary_char(char c) {
    bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_plain || (c != '\0' && strchr("'()+_,-./:=? ", c));
}

/* The value of a parameter in "; name=value; name="value"". False: there is none. */
static bool find_param(struct weft_str text, const char *name, struct weft_str *value_out) {
    size_t n_name = strlen(name);
    const char *at = text.data, *end = text.data + text.len;
    while (at < end && (at = memchr(at, ';', (size_t)(end - at)))) {
        at++;
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        size_t left = (size_t)(end - at);
        bool is_it = left > n_name && strncasecmp(at, name, n_name) == 0 && at[n_name] == '=';
        const char *value = is_it ? at + n_name + 1 : memchr(at, '=', left);
        if (value && !is_it) value++;
        if (!value) return false;
        bool is_quoted = value < end && *value == '"';
        if (is_quoted) value++;
        const char *stop = value;
        while (stop < end && (is_quoted ? *stop != '"' : *stop != ';' && *stop != ' '))
            stop++;
        if (is_quoted && stop == end) return false;
        *value_out = (struct weft_str){value, (size_t)(stop - value)};
        if (is_it) return true;
        at = stop;
    }
    return false;
}

weft_err weft_api_multipart_init(struct weft_api_multipart *form, struct weft_str type,
                                 struct weft_errmsg *why) {
    static const char name[] = "multipart/form-data";
    struct weft_str boundary = {NULL, 0};
    bool is_form = type.data && type.len >= sizeof name - 1 &&
                   strncasecmp(type.data, name, sizeof name - 1) == 0;
    if (!is_form)
        return weft_err_set(
            why, WEFT_E_INVAL,
            "a file is sent as multipart/form-data, with the parts file and purpose");
    bool is_fair = find_param(type, "boundary", &boundary) && boundary.len > 0 &&
                   boundary.len <= WEFT_API_BOUNDARY_BYTES_MAX &&
                   boundary.data[boundary.len - 1] != ' ';
    for (size_t i = 0; is_fair && i < boundary.len; i++)
        is_fair = is_boundary_char(boundary.data[i]);
    if (!is_fair)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the Content-Type names no boundary of 1 to %d bytes",
                            WEFT_API_BOUNDARY_BYTES_MAX);
    int n = snprintf(form->edge, sizeof form->edge, "\r\n--%.*s", (int)boundary.len, boundary.data);
    WEFT_ASSERT(n > 4 && (size_t)n < sizeof form->edge);
    form->n_edge = (size_t)n;
    form->n_matched = 2; /* the first boundary has no line before it */
    return WEFT_OK;
}

/* ----------------------------------------------------------------------------------- a part --- */

/* The next line of a head, without its end; false: no more. */
static bool next_line(struct weft_str *rest, struct weft_str *line_out) {
    if (rest->len < 2) return false;
    const char *end = memmem(rest->data, rest->len, "\r\n", 2);
    if (!end) return false;
    *line_out = (struct weft_str){rest->data, (size_t)(end - rest->data)};
    size_t n = line_out->len + 2;
    *rest = (struct weft_str){rest->data + n, rest->len - n};
    return true;
}

static bool copy(struct weft_str from, char *to, size_t n_room) {
    bool is_fair = from.len < n_room && !memchr(from.data, '\0', from.len);
    if (!is_fair || !weft_utf8_valid(from.data, from.len)) return false;
    memcpy(to, from.data, from.len);
    to[from.len] = '\0';
    return true;
}

static weft_err begin_part(struct weft_api_multipart *form, struct weft_errmsg *why) {
    static const char wanted[] = "content-disposition:";
    struct weft_str rest = {form->head, form->n_head}, line, name = {NULL, 0}, filename = {"", 0};
    while (next_line(&rest, &line)) {
        if (line.len < sizeof wanted - 1 || strncasecmp(line.data, wanted, sizeof wanted - 1) != 0)
            continue;
        (void)find_param(line, "name", &name);
        (void)find_param(line, "filename", &filename);
    }
    if (!name.data) return weft_err_set(why, WEFT_E_PROTO, "a part of the form has no name");
    form->n_head = 0;
    form->place = WEFT_API_PART_BYTES;
    form->is_file = WEFT_STR_IS(name, "file");
    if (form->is_file) {
        if (form->has_file) return weft_err_set(why, WEFT_E_PROTO, "the form has two files");
        form->has_file = true;
        if (copy(filename, form->filename, sizeof form->filename)) return WEFT_OK;
        return weft_err_set(why, WEFT_E_PROTO,
                            "the file's name is longer than %d bytes, no UTF-8, or holds a NUL",
                            WEFT_API_FILENAME_BYTES_MAX);
    }
    if (form->n_fields == WEFT_API_FIELDS_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "the form has more than %d fields",
                            WEFT_API_FIELDS_MAX);
    struct weft_api_field *field = &form->fields[form->n_fields];
    if (!copy(name, field->name, sizeof field->name))
        return weft_err_set(why, WEFT_E_PROTO, "a field's name is too long, or no UTF-8");
    form->n_value = 0;
    form->n_fields++;
    return WEFT_OK;
}

static weft_err add_bytes(struct weft_api_multipart *form, const char *bytes, size_t n,
                          struct weft_errmsg *why) {
    if (n == 0) return WEFT_OK;
    if (form->place == WEFT_API_PART_BEFORE) return WEFT_OK; /* a preamble, which nobody reads */
    if (form->is_file) return form->take(form->to, bytes, n) ? WEFT_OK : WEFT_E_CLOSED;
    struct weft_api_field *field = &form->fields[form->n_fields - 1];
    size_t n_room = WEFT_API_FIELD_BYTES_MAX - form->n_value;
    if (memchr(bytes, '\0',
               n < n_room ? n : n_room)) /* the first fault counts, however it is cut */
        return weft_err_set(why, WEFT_E_PROTO, "the field %s has a NUL", field->name);
    if (n > n_room)
        return weft_err_set(why, WEFT_E_TOOBIG, "the field %s is longer than %d bytes", field->name,
                            WEFT_API_FIELD_BYTES_MAX);
    memcpy(field->value + form->n_value, bytes, n);
    form->n_value += n;
    field->value[form->n_value] = '\0';
    return WEFT_OK;
}

/* ------------------------------------------------------------------------------------ bytes --- */

/* Up to an edge or the end of the bytes. An edge begins with a CR and has no second one, so where a match
 * breaks off nothing but the byte at hand can begin another. */
static weft_err take_bytes(struct weft_api_multipart *form, const char *bytes, size_t n,
                           size_t *n_used_out, struct weft_errmsg *why) {
    size_t i = 0, from = 0;
    weft_err err = WEFT_OK;
    while (i < n && form->n_matched < form->n_edge) {
        if (bytes[i] == form->edge[form->n_matched]) {
            if (form->n_matched == 0) {
                err = add_bytes(form, bytes + from, i - from, why);
                if (err) return err;
            }
            form->n_matched++;
            from = ++i;
            continue;
        }
        if (form->n_matched > 0) {
            err = add_bytes(form, form->edge, form->n_matched, why);
            if (err) return err;
            form->n_matched = 0;
            continue; /* the same byte again */
        }
        const char *next = memchr(bytes + i, '\r', n - i);
        i = next ? (size_t)(next - bytes) : n;
    }
    *n_used_out = i;
    if (form->n_matched < form->n_edge) return add_bytes(form, bytes + from, i - from, why);
    form->n_matched = 0;
    form->n_held = 0;
    form->place = WEFT_API_PART_EDGE;
    return WEFT_OK;
}

/* "--" after the last part, CRLF after any other. */
static weft_err take_edge(struct weft_api_multipart *form, char c, struct weft_errmsg *why) {
    form->held[form->n_held++] = c;
    if (form->n_held < 2) return WEFT_OK;
    if (form->held[0] == '-' && form->held[1] == '-') {
        form->place = WEFT_API_PART_OVER;
        return WEFT_OK;
    }
    if (form->held[0] != '\r' || form->held[1] != '\n')
        return weft_err_set(why, WEFT_E_PROTO, "a boundary of the form is not followed by CR LF");
    form->place = WEFT_API_PART_HEAD;
    form->n_head = 0;
    return WEFT_OK;
}

/* A head ends with an empty line, which may be its first. */
static weft_err take_head(struct weft_api_multipart *form, char c, struct weft_errmsg *why) {
    if (form->n_head == sizeof form->head)
        return weft_err_set(why, WEFT_E_TOOBIG, "the head of a part is longer than %d bytes",
                            WEFT_API_PART_HEAD_BYTES_MAX);
    form->head[form->n_head++] = c;
    size_t n = form->n_head;
    bool is_whole =
        c == '\n' &&
        (n == 2 ? form->head[0] == '\r' : n >= 4 && memcmp(form->head + n - 4, "\r\n\r\n", 4) == 0);
    return is_whole ? begin_part(form, why) : WEFT_OK;
}

weft_err weft_api_multipart_more(struct weft_api_multipart *form, const char *bytes, size_t n,
                                 struct weft_errmsg *why) {
    WEFT_ASSERT(form->n_edge > 4 && !form->has_failed);
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < n && !err && form->place != WEFT_API_PART_OVER;) {
        size_t n_used = 1;
        if (form->place == WEFT_API_PART_EDGE)
            err = take_edge(form, bytes[i], why);
        else if (form->place == WEFT_API_PART_HEAD)
            err = take_head(form, bytes[i], why);
        else
            err = take_bytes(form, bytes + i, n - i, &n_used, why);
        i += n_used;
    }
    form->has_failed = err != WEFT_OK;
    return err;
}

weft_err weft_api_multipart_end(const struct weft_api_multipart *form, struct weft_errmsg *why) {
    if (form->place != WEFT_API_PART_OVER)
        return weft_err_set(why, WEFT_E_PROTO, "the form ends before its last boundary");
    if (!form->has_file) return weft_err_set(why, WEFT_E_PROTO, "the form has no part named file");
    return WEFT_OK;
}

const char *weft_api_multipart_field(const struct weft_api_multipart *form, const char *name) {
    for (size_t i = 0; i < form->n_fields; i++) {
        if (strcmp(form->fields[i].name, name) == 0) return form->fields[i].value;
    }
    return NULL;
}
