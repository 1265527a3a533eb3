/* Fields that this server does not support: they are refused by name, never ignored. */
#include <string.h>

#include "params/params_internal.h"

static const struct refused_field unsupported[] = {
    {"functions", IF_EMPTY},
    {"function_call", IF_NONE},
    {"guided_whitespace_pattern", IF_NULL},
    {"logits_processors", IF_EMPTY},
    {"chat_template", IF_NULL},
    {"audio", IF_NULL},
    {"prediction", IF_NULL},
    {"web_search_options", IF_NULL},
    {"repetition_detection", IF_NULL},
    {"kv_transfer_params", IF_NULL},
    {"mm_processor_kwargs", IF_NULL},
    {"spaces_between_special_tokens", IF_TRUE},
    {"logprob_token_ids", IF_EMPTY},
    {"vllm_xargs", IF_EMPTY},
    /* llama-server's own: they change the output, so they must not be ignored. */
    {NULL, IF_NULL},
};

/* Fields that are ignored, for they change nothing that is generated here. */
static const char *const ignored[] = {
    /* of OpenAI and vLLM */
    "metadata",
    "service_tier",
    "verbosity",
    "store",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
    /* about how to serve it, where nothing is generated */
    "user",
    "fairness_id",
    "cache_salt",
    "session_id",
    "priority",
    "timeout",
    "slo_ttft_ms",
    "slo_tpot_ms",
    "speculative",
    /* of MessagePack-RPC, read by the connection */
    "api_key",
    /* of llama-server */
    "cache_prompt",
    "id_slot",
    "n_keep",
    "n_discard",
    "timings_per_token",
    "return_progress",
};

void wefti_api_params_note_ignored(const struct reader *r) {
    for (size_t i = 0; r->known && i < sizeof ignored / sizeof ignored[0]; i++)
        wefti_api_json_note(r, ignored[i]);
}

bool wefti_api_params_is_harmless(const json_t *value, enum harmless harmless) {
    switch (harmless) {
    case IF_NULL:
        return false;
    case IF_FALSE:
        return json_is_false(value);
    case IF_EMPTY:
        return (json_is_array(value) && json_array_size(value) == 0) ||
               (json_is_object(value) && json_object_size(value) == 0) ||
               (json_is_string(value) && json_string_length(value) == 0);
    case IF_ZERO:
        return json_is_number(value) && json_number_value(value) == 0;
    case IF_AT_MOST_ZERO:
        return json_is_number(value) && json_number_value(value) <= 0;
    case IF_ONE:
        return json_is_number(value) && json_number_value(value) == 1;
    case IF_TRUE:
        return json_is_true(value);
    case IF_NONE:
        return wefti_api_json_is_text(value, "none");
    }
    return false;
}

static void refuse(const struct reader *r, const struct refused_field *fields, const char *why) {
    for (; fields->name; fields++) {
        const json_t *value = wefti_api_json_get(r, fields->name);
        if (value && !wefti_api_params_is_harmless(value, fields->harmless))
            weft_api_error_set(r->error, 400, fields->name, "unsupported_parameter",
                               "'%s' is not supported by this %s", fields->name, why);
    }
}

void wefti_api_params_refuse(const struct reader *r, const struct refused_field *fields) {
    refuse(r, fields, "server");
}

/* Of conversations. */
static const struct refused_field only_in_chats[] = {
    {"tools", IF_EMPTY},
    {"tool_choice", IF_NONE},
    {"chat_template_kwargs", IF_EMPTY},
    {"documents", IF_EMPTY},
    {"continue_final_message", IF_FALSE},
    {"reasoning_effort", IF_NULL},
    {NULL, IF_NULL},
};

void wefti_api_params_refuse_chat(const struct reader *r) {
    refuse(r, only_in_chats, "endpoint: /v1/chat/completions has it");
    wefti_api_json_note(r, "parallel_tool_calls");
}

/* Of other kinds of data; the second is llama-server's. */
static void refuse_data(const struct reader *r) {
    static const char *const fields[] = {"prompt_embeds", "multimodal_data", "multi_modal_data"};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const json_t *value = wefti_api_json_get(r, fields[i]);
        if (!wefti_api_params_is_absent(value))
            weft_api_error_set(r->error, 400, fields[i], "unsupported_parameter",
                               "'%s' is not supported: images, audio and embeddings are not taken "
                               "by this server",
                               fields[i]);
    }
}

void wefti_api_params_refuse_unsupported(const struct reader *r) {
    wefti_api_params_refuse(r, unsupported);
    refuse_data(r);
    const json_t *modalities = wefti_api_json_get(r, "modalities");
    for (size_t i = 0; i < json_array_size(modalities); i++) {
        const json_t *item = json_array_get(modalities, i);
        if (!wefti_api_json_is_text(item, "text"))
            weft_api_error_set(r->error, 400, "modalities", "unsupported_parameter",
                               "'modalities' can only be [\"text\"]");
    }
}

bool wefti_api_params_is_absent(const json_t *value) {
    return !value || json_is_null(value) || wefti_api_params_is_harmless(value, IF_EMPTY);
}
