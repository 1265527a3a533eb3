/* cases/sample_check — whether a file of cases says what `weft sample` takes, before anything is computed: a
 * number that is none would be taken for a 0, and a list that is none for an empty one. */
#ifndef WEFT_CMD_WEFT_SAMPLE_CHECK_H
#define WEFT_CMD_WEFT_SAMPLE_CHECK_H

#include <jansson.h>

#include "base/err.h"

/* INVAL, with the place. Names of steps and vectors are looked up by who uses them. */
WEFT_MUST_CHECK weft_err weft_sample_check(const json_t *root, struct weft_errmsg *why);

#endif
