/* prepare — how texts become ids, for the rooms that make prompts. */
#ifndef WEFT_API_CALL_PREPARE_H
#define WEFT_API_CALL_PREPARE_H

#include "call/call_internal.h"

/* Fills in prompt->ids, with flags of weft_tok_input; an error is the call's (encode.c). */
void wefti_api_encode(weft_api_call *call, struct prompt *prompt, struct weft_str text,
                      uint32_t flags);

/* Puts params.suffix into each prompt, as models want it that fill in the middle (fill_in.c). */
void wefti_api_add_suffix(weft_api_call *call);

/* Those that params.bad_words_wanted are (bad_words.c). */
void wefti_api_encode_bad_words(weft_api_call *call);

/* Those of DRY (dry_breakers.c). */
void wefti_api_encode_dry_breakers(weft_api_call *call);

/* A conversation, by the template (chat_prompt.c). */
void wefti_api_encode_chat(weft_api_call *call);

/* Puts what the answer must fit where the format has answers; the same of time. */
bool wefti_api_wants_answer_placed(const weft_api_call *call);
void wefti_api_place_answer(weft_api_call *call);

/* What calls must fit, once the prompt is known: may take as long as compiling (chat_calls.c). */
bool wefti_api_wants_calls_constrained(const weft_api_call *call);
void wefti_api_constrain_calls(weft_api_call *call);

#endif
