/* render_logprobs — log-probabilities as the two OpenAI APIs and vLLM's prompt_logprobs write them.
 * Positions are those of render.c: the prompt's tokens when it is echoed, then the output. */
#ifndef WEFT_API_RENDER_LOGPROBS_H
#define WEFT_API_RENDER_LOGPROBS_H

#include <stdint.h>

#include "base/buf.h"

struct choice;

/* From render.c. */
uint32_t wefti_api_seq_echoed(const struct choice *choice);
uint32_t wefti_api_seq_token(const struct choice *choice, uint32_t pos);
/* Characters of text before the token at `pos`; asked once for each position, in order. */
uint64_t wefti_api_seq_offset(struct choice *choice, uint32_t pos);

/* Elements of the lists of /v1/completions, of chat's "content" list, of "prompt_logprobs". */
void wefti_api_lp_token_item(struct choice *choice, uint32_t pos, struct weft_buf *out);
void wefti_api_lp_value_item(struct choice *choice, uint32_t pos, struct weft_buf *out);
void wefti_api_lp_top_item(struct choice *choice, uint32_t pos, struct weft_buf *out);
void wefti_api_lp_chat_item(struct choice *choice, uint32_t pos, struct weft_buf *out);
void wefti_api_lp_prompt_item(struct choice *choice, uint32_t pos, struct weft_buf *out);

/* The whole object for positions [from, to), as chunks of a stream carry it. */
void wefti_api_lp_legacy(struct choice *choice, uint32_t from, uint32_t to, struct weft_buf *out);
void wefti_api_lp_chat(struct choice *choice, uint32_t from, uint32_t to, struct weft_buf *out);

#endif
