/* names — what the model is called here. */
#ifndef WEFT_API_NAMES_H
#define WEFT_API_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "api/error.h"
#include "api/limits.h"

/* True: the `len` bytes are one of the model's names, or an adapter's. */
bool wefti_api_is_model(const struct weft_api_limits *limits, const char *name, size_t len);

/* 404: says which names there are, as far as there is room. 503: it may be an adapter's that is being
 * loaded. */
void wefti_api_no_such_model(const struct weft_api_limits *limits, const char *name, size_t len,
                             struct weft_api_error *error);

#endif
