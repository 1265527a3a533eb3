/* One text to token ids, for all rooms that make prompts. */
#include "api/api.h"
#include "base/check.h"
#include "call/prepare.h"
#include "kinds/kind.h"

#define IDS_MAX (1u << 20) /* while no model is known */

/* Counting past the limit lets the error say by how much; counting without end would let a client
 * cause minutes of tokenizing with one body. */
static size_t ids_max(const weft_api_call *call) {
    uint32_t max_model_len = call->limits.max_model_len;
    if (call->kind->prompt_tokens_max) return call->kind->prompt_tokens_max;
    return max_model_len ? 16 * (size_t)max_model_len + 65536 : IDS_MAX;
}

void wefti_api_encode(weft_api_call *call, struct prompt *prompt, struct weft_str text,
                      uint32_t flags) {
    struct weft_errmsg why;
    const char *what = call->kind->prompt_field;
    size_t max = ids_max(call);
    WEFT_ASSERT(!prompt->ids);
    weft_err err = weft_tok_encode(call->api->tok, &(struct weft_tok_input){text, flags, max},
                                   &prompt->ids, &prompt->n_ids, &why);
    if (err == WEFT_E_TOOBIG && call->kind->prompt_tokens_max)
        weft_api_error_set(&call->error, 400, what, "too_many_tokens",
                           "the text has more than %zu tokens, the most that are given at once",
                           max);
    else if (err == WEFT_E_TOOBIG)
        weft_api_error_set(&call->error, 400, what, "context_length_exceeded",
                           "This model's maximum context length is %u tokens. However, your %s "
                           "resulted in more than %zu tokens. Please reduce the length of the %s.",
                           call->limits.max_model_len, what, max, what);
    else if (err)
        weft_api_error_set(&call->error, err == WEFT_E_NOMEM ? 500 : 400, what, NULL, "%s",
                           why.text[0] ? why.text : weft_err_text(err));
}
