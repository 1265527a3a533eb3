/* params_internal — between the files that make up params.h. */
#ifndef WEFT_API_PARAMS_INTERNAL_H
#define WEFT_API_PARAMS_INTERNAL_H

#include "params/json_read.h"
#include "params/params.h"

void wefti_api_params_refuse_unsupported(const struct reader *r);

/* Absent, null or empty: it asks for nothing. */
bool wefti_api_params_is_absent(const json_t *value);

void wefti_api_params_read_prompts(const struct reader *r, const struct weft_api_limits *limits,
                                   struct params *params);
void wefti_api_params_read_messages(const struct reader *r, struct params *params);
void wefti_api_params_read_tokens(const struct reader *r, const struct weft_api_limits *limits,
                                  struct params *params);

#endif
