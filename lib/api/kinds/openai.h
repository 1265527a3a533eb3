/* openai — the objects around choices, common to completions and chat completions. */
#ifndef WEFT_API_KINDS_OPENAI_H
#define WEFT_API_KINDS_OPENAI_H

#include "call/call_internal.h"
#include "kinds/kind.h"

/* Opens the response, or a stream's chunk, and its list of choices. */
void wefti_api_openai_open(const weft_api_call *call, const char *object, struct weft_writer *w);

/* The same for a chunk, copied from text that the call keeps. */
void wefti_api_openai_open_chunk(weft_api_call *call, const char *object, struct weft_writer *w);

/* Closes list and chunk; with usage if asked for. */
void wefti_api_openai_close_chunk(const weft_api_call *call, struct weft_writer *w);

/* The same where the list is closed already. */
void wefti_api_openai_end_chunk(const weft_api_call *call, struct weft_writer *w);

/* "finish_reason" and "stop_reason"; `is_last`: the choice is complete. */
void wefti_api_openai_finish(const struct choice *choice, bool is_last, struct weft_writer *w);

/* "usage", with `n_output` output tokens. */
void wefti_api_openai_usage(const weft_api_call *call, uint64_t n_output, struct weft_writer *w);

/* The last events of a stream. */
void wefti_api_openai_end_stream(weft_api_call *call, const char *object, struct weft_buf *out);

/* Parts of bodies: the reasons, the end of a choice or of the list, usage and the end. */
bool wefti_api_openai_finish_part(const struct body_piece *at);
bool wefti_api_openai_close_part(const struct body_piece *at);
bool wefti_api_openai_usage_part(const struct body_piece *at);

#endif
