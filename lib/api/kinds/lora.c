/* POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them: {"lora_name", "lora_path"}. The
 * paths are the server's. */
#include "api/adapters.h"
#include "api/api.h"
#include "call/call_internal.h"
#include "kinds/kind.h"
#include "params/params_internal.h"

static void read_text(const struct reader *r, const char *name, char **out) {
    const json_t *value = wefti_api_json_get(r, name);
    if (!wefti_api_json_ok(r)) return;
    if (!value)
        weft_api_error_set(r->error, 400, name, NULL, "'%s' is missing", name);
    else if (!json_is_string(value))
        wefti_api_json_wrong_type(r, name, "a string", value);
    else if (strlen(json_string_value(value)) != json_string_length(value))
        weft_api_error_set(r->error, 400, name, NULL, "'%s' holds a zero", name);
    else if (!(*out = strdup(json_string_value(value))))
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
}

static void parse_load(const struct reader *r, const struct weft_api_limits *limits,
                       struct params *params) {
    (void)limits;
    read_text(r, "lora_name", &params->lora_name);
    read_text(r, "lora_path", &params->lora_path);
}

static void parse_unload(const struct reader *r, const struct weft_api_limits *limits,
                         struct params *params) {
    (void)limits;
    read_text(r, "lora_name", &params->lora_name);
    wefti_api_json_note(r, "lora_int_id");
}

static bool begin_load(weft_api_call *call) {
    return !wefti_api_adapters_load(call->api, call, call->params.lora_name, call->params.lora_path,
                                    &call->error);
}

static bool begin_unload(weft_api_call *call) {
    (void)wefti_api_adapters_unload(call->api, call->params.lora_name, &call->error);
    return true;
}

static void open_answer(weft_api_call *call, struct weft_writer *w, const char *status) {
    weft_write_map(w);
    weft_write_key(w, "id");
    weft_write_str(w, call->params.lora_name);
    weft_write_key(w, "object");
    weft_write_str(w, "lora_adapter");
    weft_write_key(w, "status");
    weft_write_str(w, status);
}

static void open_load(weft_api_call *call, struct weft_writer *w) {
    open_answer(call, w, "loaded");
}

static void open_unload(weft_api_call *call, struct weft_writer *w) {
    open_answer(call, w, "unloaded");
}

static bool end_part(const struct body_piece *at) {
    weft_write_end(at->w);
    return true;
}

static const body_part no_parts[] = {NULL};
static const body_part end_parts[] = {end_part, NULL};

const struct weft_api_kind wefti_api_kind_load_lora = {
    .path = "/v1/load_lora_adapter",
    .id_prefix = "lora",
    .prompt_field = "lora_name",
    .is_admins = true,
    .parse = parse_load,
    .begin = begin_load,
    .open_body = open_load,
    .choice_parts = no_parts,
    .end_parts = end_parts,
};

const struct weft_api_kind wefti_api_kind_unload_lora = {
    .path = "/v1/unload_lora_adapter",
    .id_prefix = "lora",
    .prompt_field = "lora_name",
    .is_admins = true,
    .parse = parse_unload,
    .begin = begin_unload,
    .open_body = open_unload,
    .choice_parts = no_parts,
    .end_parts = end_parts,
};
