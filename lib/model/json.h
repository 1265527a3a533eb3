/* model/json — JSON out of files, by jansson. */
#ifndef WEFT_MODEL_JSON_H
#define WEFT_MODEL_JSON_H

#include <jansson.h>

#include "file.h"

/* Parses `text`, of the file at `path`; `what` names it in messages, `flags` are jansson's (with
 * JSON_REJECT_DUPLICATES where two keys of one name could mean two things to two readers).
 * *json_out is the caller's, to decref. */
WEFT_MUST_CHECK weft_err wefti_model_json_parse(const char *path, const char *what,
                                                struct weft_str text, size_t flags,
                                                json_t **json_out, struct weft_errmsg *why);

#endif
