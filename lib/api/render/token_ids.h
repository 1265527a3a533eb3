/* token_ids — the ids of the prompt and of the output, where "return_token_ids" wants them told. */
#ifndef WEFT_API_RENDER_TOKEN_IDS_H
#define WEFT_API_RENDER_TOKEN_IDS_H

#include <stdbool.h>

#include "kinds/kind.h"

/* Parts of a body: "prompt_token_ids" and "token_ids", or nothing. */
bool wefti_api_ids_prompt_part(const struct body_piece *at);
bool wefti_api_ids_output_part(const struct body_piece *at);

/* "token_ids" of a chunk, or nothing. */
void wefti_api_ids_of_chunk(const struct render_chunk *chunk, struct weft_writer *w);

/* The choice whose next chunk is its kind's ids_parts, or is half written; NULL: none. */
struct choice *wefti_api_ids_begun(weft_api_call *call);

/* Writes the event, or what `limit` leaves of it. True: it is complete. */
bool wefti_api_ids_write_first(struct choice *choice, struct weft_buf *out, size_t limit);

#endif
