#include "params/json_read.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

const char *wefti_api_json_type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

bool wefti_api_json_is_text(const json_t *value, const char *text) {
    size_t len = strlen(text);
    return json_is_string(value) && json_string_length(value) == len &&
           memcmp(json_string_value(value), text, len) == 0;
}

bool wefti_api_json_ok(const struct reader *r) {
    return r->error->status == 0;
}

void wefti_api_json_wrong_type(const struct reader *r, const char *name, const char *wanted,
                               const json_t *got) {
    weft_api_error_set(r->error, 400, name, NULL, "'%s' must be %s, got %s", name, wanted,
                       wefti_api_json_type_name(got));
}

static bool is_hidden(const struct reader *r, const char *name) {
    for (size_t i = 0; r->hidden && r->hidden[i]; i++) {
        if (strcmp(r->hidden[i], name) == 0) return true;
    }
    return false;
}

void wefti_api_json_note(const struct reader *r, const char *name) {
    if (!r->known) return;
    WEFT_ASSERT(r->known->n < JSON_FIELDS_MAX);
    r->known->names[r->known->n++] = name;
}

struct reader wefti_api_json_within(const struct reader *r, json_t *object,
                                    struct fields_known *known) {
    known->n = 0;
    known->unknown = r->known ? r->known->unknown : NULL;
    return (struct reader){object, r->error, NULL, r->known ? known : NULL};
}

static bool is_known(const struct fields_known *known, const char *name) {
    for (uint32_t i = 0; i < known->n; i++) {
        if (strcmp(known->names[i], name) == 0) return true;
    }
    return false;
}

void wefti_api_json_look_for_unknown(const struct reader *r, const char *path) {
    const char *name;
    json_t *value;
    if (!r->known || !wefti_api_json_ok(r)) return;
    struct fields_unknown *unknown = r->known->unknown;
    json_object_foreach(r->json, name, value) {
        char quoted[48], param[sizeof r->error->param];
        if (unknown->n == JSON_UNKNOWN_MAX) return;
        if (is_known(r->known, name)) continue;
        weft_api_quote(name, strlen(name), quoted, sizeof quoted);
        (void)snprintf(param, sizeof param, "%s%s", path, quoted);
        weft_buf_printf(&unknown->names, "%s'%s'", unknown->n++ ? ", " : "", param);
        if (unknown->is_refused)
            weft_api_error_set(r->error, 400, param, "unknown_field",
                               "'%s' is not a field of this request", param);
    }
}

/* NULL when the field is absent or null, and after an error. */
json_t *wefti_api_json_get(const struct reader *r, const char *name) {
    WEFT_ASSERT(name[0]);
    if (!wefti_api_json_ok(r) || is_hidden(r, name)) return NULL;
    wefti_api_json_note(r, name);
    json_t *value = json_object_get(r->json, name);
    return json_is_null(value) ? NULL : value;
}

bool wefti_api_json_get_bool(const struct reader *r, const char *name, bool *out) {
    const json_t *value = wefti_api_json_get(r, name);
    if (!value) return false;
    if (!json_is_boolean(value)) {
        wefti_api_json_wrong_type(r, name, "a boolean", value);
        return false;
    }
    *out = json_is_true(value);
    return true;
}

bool wefti_api_json_get_int(const struct reader *r, const char *name, int64_t min, int64_t max,
                            int64_t *out) {
    WEFT_ASSERT(min <= max);
    const json_t *value = wefti_api_json_get(r, name);
    if (!value) return false;
    double real = json_is_real(value) ? json_real_value(value) : 0.5;
    if (real == trunc(real) && (real < (double)min || real > (double)max || fabs(real) >= 0x1p63)) {
        weft_api_error_set(r->error, 400, name, NULL,
                           "'%s' must be between %" PRId64 " and %" PRId64 ", got %.17g", name, min,
                           max, real);
        return false;
    }
    if (!json_is_integer(value) && (real != trunc(real) || fabs(real) > 0x1p53)) {
        wefti_api_json_wrong_type(r, name, "an integer", value);
        return false;
    }
    /* 16.0 is accepted as well: some clients know only one kind of number. */
    int64_t number = json_is_integer(value) ? json_integer_value(value) : (int64_t)real;
    if (number < min || number > max) {
        weft_api_error_set(r->error, 400, name, NULL,
                           "'%s' must be between %" PRId64 " and %" PRId64 ", got %" PRId64, name,
                           min, max, number);
        return false;
    }
    *out = number;
    return true;
}

bool wefti_api_json_get_double(const struct reader *r, const char *name, double min, double max,
                               double *out) {
    WEFT_ASSERT(min < max);
    const json_t *value = wefti_api_json_get(r, name);
    if (!value) return false;
    if (!json_is_number(value)) {
        wefti_api_json_wrong_type(r, name, "a number", value);
        return false;
    }
    double number = json_number_value(value);
    if (!(number >= min && number <= max)) {
        weft_api_error_set(r->error, 400, name, NULL,
                           "'%s' must be between %.9g and %.9g, got %.15g", name, min, max, number);
        return false;
    }
    *out = number;
    return true;
}

bool wefti_api_json_get_float(const struct reader *r, const char *name, double min, double max,
                              float *out) {
    double number = 0;
    if (!wefti_api_json_get_double(r, name, min, max, &number)) return false;
    *out = (float)number;
    if (*out == 0 && number != 0) *out = number > 0 ? FLT_MIN : -FLT_MIN; /* 0 may mean "off" */
    return true;
}
