/* cases/sample_file — logits, hidden states and cases that samplers are tried on: a JSON file, and beside it
 * a .safetensors file of the same name with the vectors.
 *
 * Errors   IO, NOMEM; INVAL: not what these formats say, or an array that is not there. */
#ifndef WEFT_CMD_WEFT_SAMPLE_FILE_H
#define WEFT_CMD_WEFT_SAMPLE_FILE_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

struct weft_sample_file {
    json_t *cases;  /* the JSON */
    json_t *header; /* of the safetensors file */
    char *bytes;    /* of which, and how many */
    size_t n_bytes, data_at;
};

struct weft_sample_array {
    size_t n_rows, n_cols; /* a vector is one row */
    const float *values;   /* borrowed from the file */
};

WEFT_MUST_CHECK weft_err weft_sample_file_open(const char *path, struct weft_sample_file *file,
                                               struct weft_errmsg *why);
void weft_sample_file_close(struct weft_sample_file *file); /* accepts one that did not open */

/* The F32 array of that name. */
WEFT_MUST_CHECK weft_err weft_sample_file_find(const struct weft_sample_file *file,
                                               const char *name, struct weft_sample_array *out,
                                               struct weft_errmsg *why);

#endif
