/* pooled_body — what the answers of kinds that pool have in common. */
#ifndef WEFT_API_KINDS_POOLED_BODY_H
#define WEFT_API_KINDS_POOLED_BODY_H

#include "kinds/kind.h"

/* Opens the answer, and its list of results under `list`. `object`: what it calls itself; NULL: nothing. */
void wefti_api_pooled_open(const weft_api_call *call, const char *object, const char *list,
                           struct weft_writer *w);

/* Part: "usage", and the end of the answer. */
bool wefti_api_pooled_end_part(const struct body_piece *at);

/* A number of a choice's values, for a list. */
void wefti_api_pooled_value_item(const struct body_piece *at, uint32_t pos);

#endif
