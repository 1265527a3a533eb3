/* json_read — fields of a JSON object, read with their types and bounds checked.
 *
 * The first fault goes into the error; after that every read gives nothing, so a caller reads
 * straight through and checks once at the end. null means absent.
 */
#ifndef WEFT_API_JSON_READ_H
#define WEFT_API_JSON_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "base/buf.h"

/* Which fields were asked for: what an object has besides is unknown. Each of its readers notes
 * them, so there is no second list of fields. */
#define JSON_FIELDS_MAX 384 /* that one kind of request asks for, again and again included */

struct fields_known {
    const char *names[JSON_FIELDS_MAX];
    uint32_t n;
    struct fields_unknown *unknown; /* of the whole request */
};

struct fields_unknown {
    bool is_refused;       /* the first one is an error */
    uint32_t n;            /* at most JSON_UNKNOWN_MAX are looked for */
    struct weft_buf names; /* for people: escaped, in quotes */
};
#define JSON_UNKNOWN_MAX 8

struct reader {
    json_t *json;
    struct weft_api_error *error;
    const char *const *hidden;  /* fields that count as absent, ended by NULL; NULL: none */
    struct fields_known *known; /* NULL: nobody wants to know */
};

/* A string that is exactly `text`; strings may hold NULs, which strcmp would take for their end. */
bool wefti_api_json_is_text(const json_t *value, const char *text);

bool wefti_api_json_ok(const struct reader *r);

/* NULL when the field is absent or null, and after an error. Borrowed. */
json_t *wefti_api_json_get(const struct reader *r, const char *name);

/* The field is known, and nobody reads it. `name` is static. */
void wefti_api_json_note(const struct reader *r, const char *name);

/* True if the field is there and valid; otherwise *out is unchanged. Bounds are inclusive. An
 * integer is no boolean, a real no integer, a boolean no number. */
bool wefti_api_json_get_bool(const struct reader *r, const char *name, bool *out);
bool wefti_api_json_get_int(const struct reader *r, const char *name, int64_t min, int64_t max,
                            int64_t *out);
bool wefti_api_json_get_double(const struct reader *r, const char *name, double min, double max,
                               double *out);
bool wefti_api_json_get_float(const struct reader *r, const char *name, double min, double max,
                              float *out);

/* A reader of an object within that of `r`; `known`, which is set up, is the caller's. */
struct reader wefti_api_json_within(const struct reader *r, json_t *object,
                                    struct fields_known *known);

/* Looks for fields of the object that no reader asked for. `path`: "", or "options." */
void wefti_api_json_look_for_unknown(const struct reader *r, const char *path);

/* "'name' must be WANTED, got a string". */
void wefti_api_json_wrong_type(const struct reader *r, const char *name, const char *wanted,
                               const json_t *got);
const char *wefti_api_json_type_name(const json_t *value);

#endif
