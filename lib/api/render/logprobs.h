/* logprobs — log-probabilities as the two OpenAI APIs and vLLM's prompt_logprobs write them.
 * Positions are those of choice_text.h: the prompt's tokens when it is echoed, then the output. */
#ifndef WEFT_API_RENDER_LOGPROBS_H
#define WEFT_API_RENDER_LOGPROBS_H

#include <stdbool.h>
#include <stdint.h>

#include "kinds/kind.h"

/* Elements of the lists of /v1/completions, and of chat's "content". */
void wefti_api_lp_token_item(const struct body_piece *at, uint32_t pos);
void wefti_api_lp_value_item(const struct body_piece *at, uint32_t pos);
void wefti_api_lp_top_item(const struct body_piece *at, uint32_t pos);
void wefti_api_lp_offset_item(const struct body_piece *at, uint32_t pos);
void wefti_api_lp_chat_item(const struct body_piece *at, uint32_t pos);

/* The whole object for positions [from, to), as in chunks of a stream. */
void wefti_api_lp_lists(struct choice *choice, uint32_t from, uint32_t to, struct weft_writer *w);
void wefti_api_lp_chat(const struct choice *choice, uint32_t from, uint32_t to,
                       struct weft_writer *w);

/* A part of a body: "prompt_logprobs", if asked for. */
bool wefti_api_lp_prompt_part(const struct body_piece *at);

#endif
