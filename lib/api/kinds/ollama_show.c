/* POST /api/show: what ollama's clients ask about a model before they use it. */
#include <stdio.h>

#include "answers/answers.h"
#include "answers/rfc3339.h"
#include "api/api.h"
#include "call/call_internal.h"
#include "kinds/kind.h"
#include "params/params_internal.h"

static void parse(const struct reader *r, const struct weft_api_limits *limits,
                  struct params *params) {
    (void)params;
    wefti_api_params_check_model(r, "name", limits, true); /* what older clients call it */
    wefti_api_json_note(r, "system");
    wefti_api_json_note(r, "template");
    wefti_api_json_note(r, "options");
    wefti_api_json_note(r, "verbose");
}

static void open_body(weft_api_call *call, struct weft_writer *w) {
    (void)call;
    weft_write_map(w);
}

static void write_str(struct weft_writer *w, const char *key, const char *text) {
    weft_write_key(w, key);
    weft_write_str(w, text ? text : "");
}

static bool texts_part(const struct body_piece *at) {
    const struct weft_api_state *api = at->call->api;
    write_str(at->w, "license", "");
    write_str(at->w, "modelfile", "");
    write_str(at->w, "parameters", "");
    write_str(at->w, "template", api->chat_source);
    write_str(at->w, "system", "");
    return true;
}

static bool facts_part(const struct body_piece *at) {
    const struct weft_api_state *api = at->call->api;
    const struct weft_msg_snapshot *s = &api->upstream.snapshot;
    const char *arch = s->has_model ? s->model.arch : "";
    char time[WEFTI_API_TIME_BYTES], key[48];
    struct weft_writer *w = at->w;
    wefti_api_write_ollama_details(api, w);
    weft_write_key(w, "model_info");
    weft_write_map(w);
    write_str(w, "general.architecture", arch);
    if (s->has_model) {
        (void)snprintf(key, sizeof key, "%s.context_length", arch);
        weft_write_key(w, key);
        weft_write_uint(w, api->limits.max_model_len);
        (void)snprintf(key, sizeof key, "%s.vocab_size", arch);
        weft_write_key(w, key);
        weft_write_uint(w, api->limits.n_vocab);
    }
    weft_write_end(w);
    weft_write_key(w, "capabilities");
    weft_write_list(w);
    weft_write_str(w, "completion");
    weft_write_end(w);
    wefti_api_time(api->settings.started_s, time);
    write_str(w, "modified_at", time);
    weft_write_end(w);
    return true;
}

static const body_part no_parts[] = {NULL};
static const body_part end_parts[] = {texts_part, facts_part, NULL};

const struct weft_api_kind wefti_api_kind_ollama_show = {
    .path = "/api/show",
    .id_prefix = "show",
    .prompt_field = "model",
    .takes_tags = true,
    .parse = parse,
    .open_body = open_body,
    .choice_parts = no_parts,
    .end_parts = end_parts,
};
