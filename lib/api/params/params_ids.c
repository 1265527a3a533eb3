/* The ids of prompts: how many of them are kept, what goes with them, and whether the answer tells them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kinds/kind.h"
#include "params/params_internal.h"

static void read_truncation(const struct reader *r, const struct weft_api_limits *limits,
                            struct params *params) {
    int64_t n = 0;
    const json_t *side = wefti_api_json_get(r, "truncation_side");
    params->truncates_end = wefti_api_json_is_text(side, "right");
    if (side && !params->truncates_end && !wefti_api_json_is_text(side, "left"))
        weft_api_error_set(r->error, 400, "truncation_side", NULL,
                           "'truncation_side' must be \"left\" or \"right\"");
    if (!wefti_api_json_get_int(r, "truncate_prompt_tokens", -1, INT32_MAX, &n)) return;
    if (n == 0)
        weft_api_error_set(r->error, 400, "truncate_prompt_tokens", NULL,
                           "'truncate_prompt_tokens' must be -1 or at least 1, got 0");
    if (limits->max_model_len > 0 && n > limits->max_model_len)
        weft_api_error_set(r->error, 400, "truncate_prompt_tokens", NULL,
                           "'truncate_prompt_tokens' must not exceed the model's context of %u "
                           "tokens, got %" PRId64,
                           limits->max_model_len, n);
    params->truncate_to = (int32_t)n;
}

static void read_suffix(const struct reader *r, const weft_api_kind *kind, struct params *params) {
    static const struct refused_field refused[] = {{"suffix", IF_EMPTY}, {NULL, IF_NULL}};
    if (!kind->takes_suffix) {
        wefti_api_params_refuse(r, refused);
        return;
    }
    const json_t *value = wefti_api_json_get(r, "suffix");
    if (value && !json_is_string(value)) wefti_api_json_wrong_type(r, "suffix", "a string", value);
    if (json_string_length(value) > 0) wefti_api_params_set_suffix("suffix", value, params);
}

void wefti_api_params_set_suffix(const char *field, const json_t *value, struct params *params) {
    WEFT_ASSERT(!params->suffix && json_is_string(value));
    params->suffix = json_string_value(value);
    params->suffix_len = json_string_length(value);
    params->suffix_field = field;
}

/* Neither end of such a prompt can be cut off, and its text is not one that could be repeated. */
static void check_suffix(const struct reader *r, const struct params *params) {
    if (!params->suffix) return;
    if (params->echo)
        weft_api_error_set(r->error, 400, "echo", NULL, "'echo' is not available with '%s'",
                           params->suffix_field);
    if (params->truncate_to != 0)
        weft_api_error_set(r->error, 400, "truncate_prompt_tokens", NULL,
                           "'truncate_prompt_tokens' is not available with '%s'",
                           params->suffix_field);
}

void wefti_api_params_read_ids(const struct reader *r, const weft_api_kind *kind,
                               const struct weft_api_limits *limits, struct params *params) {
    static const struct refused_field truncation[] = {{"truncate_prompt_tokens", IF_NULL},
                                                      {NULL, IF_NULL}};
    static const struct refused_field told[] = {{"return_token_ids", IF_FALSE}, {NULL, IF_NULL}};
    if (kind->generates)
        read_truncation(r, limits, params);
    else
        wefti_api_params_refuse(r, truncation);
    if (kind->ids_parts)
        wefti_api_json_get_bool(r, "return_token_ids", &params->return_ids);
    else
        wefti_api_params_refuse(r, told);
    read_suffix(r, kind, params);
    check_suffix(r, params);
}

/* Where the context decides, the output has the room that it asks for. */
static size_t n_kept(const struct params *params, uint32_t max_model_len) {
    if (params->truncate_to > 0) return (size_t)params->truncate_to;
    uint32_t n_output = params->shifts           ? 1
                        : params->has_max_tokens ? params->sampling.max_tokens
                        : params->is_open_ended  ? 1
                                                 : params->usual_max_tokens;
    return n_output < max_model_len ? max_model_len - n_output : 1;
}

void wefti_api_params_truncate(struct params *params, const struct weft_api_limits *limits) {
    if (params->truncate_to == 0) return;
    size_t n = n_kept(params, limits->max_model_len);
    WEFT_ASSERT(n > 0);
    for (uint32_t i = 0; i < params->n_prompts; i++) {
        struct prompt *prompt = &params->prompts[i];
        if (prompt->n_ids <= n) continue;
        if (!params->truncates_end)
            memmove(prompt->ids, prompt->ids + (prompt->n_ids - n), n * sizeof *prompt->ids);
        prompt->n_ids = n;
        uint32_t *shorter = realloc(prompt->ids, n * sizeof *prompt->ids);
        if (shorter) prompt->ids = shorter;
        if (!params->echo) continue;
        free(prompt->echo); /* from now on the text is that of the ids */
        prompt->echo = NULL;
    }
}
