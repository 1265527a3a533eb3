/* llama-server's endpoints beside its completion: what the server is, and what it is doing. */
#include "kinds/llama.h"
#include "answers/answers.h"
#include "api/api.h"
#include "params/params.h"

static void write_text(struct weft_writer *w, const char *key, const char *text) {
    weft_write_key(w, key);
    weft_write_str(w, text ? text : "");
}

static void write_token(struct weft_writer *w, const char *key, struct weft_str token) {
    weft_write_key(w, key);
    weft_write_text(w, token.data ? token.data : "", token.len);
}

static void write_uint(struct weft_writer *w, const char *key, uint64_t value) {
    weft_write_key(w, key);
    weft_write_uint(w, value);
}

static void write_bool(struct weft_writer *w, const char *key, bool value) {
    weft_write_key(w, key);
    weft_write_bool(w, value);
}

/* What a request for /completion that says nothing gets. */
static void write_defaults(const struct weft_api_state *api, struct weft_writer *w) {
    const struct weft_gen_defaults d = wefti_api_llama_defaults(api->limits.defaults);
    struct weft_sampling usual;
    wefti_api_params_usual_sampling(&d, &usual);
    weft_write_key(w, "params");
    weft_write_map(w);
    weft_write_key(w, "n_predict");
    weft_write_int(w, d.max_new_tokens > 0 ? d.max_new_tokens : -1);
    weft_write_key(w, "seed");
    weft_write_int(w, -1);
    wefti_api_llama_write_sampling(&usual, w);
    write_bool(w, "ignore_eos", false);
    write_bool(w, "stream", false);
    weft_write_key(w, "stop");
    weft_write_list(w);
    weft_write_end(w);
    weft_write_end(w);
}

/* Sequences that all workers compute at once. 0: nothing is loaded yet. */
static uint32_t n_slots(const struct weft_api_state *api) {
    const struct weft_msg_snapshot *s = &api->upstream.snapshot;
    if (!s->has_model) return 0;
    uint64_t n = (uint64_t)s->model.max_seqs * (s->n_workers ? s->n_workers : 1);
    return n < WEFT_SEQS_MAX ? (uint32_t)n : WEFT_SEQS_MAX;
}

void wefti_api_write_props(const struct weft_api_state *api, struct weft_writer *w) {
    weft_write_map(w);
    weft_write_key(w, "default_generation_settings");
    weft_write_map(w);
    write_uint(w, "n_ctx", api->limits.max_model_len);
    write_defaults(api, w);
    weft_write_end(w);
    write_uint(w, "total_slots", n_slots(api));
    write_text(w, "model_alias", api->limits.model_name);
    write_text(w, "model_path", api->settings.model);
    write_text(w, "chat_template", api->chat_source);
    write_token(w, "bos_token", weft_tok_bos_token(api->tok));
    write_token(w, "eos_token", weft_tok_eos_token(api->tok));
    weft_write_key(w, "modalities");
    weft_write_map(w);
    write_bool(w, "vision", false);
    write_bool(w, "audio", false);
    weft_write_end(w);
    write_text(w, "build_info", "weft " WEFT_VERSION);
    weft_write_end(w);
}

/* The next sequence that is being computed; NULL: the scheduler told of no more. */
static const struct weft_activity_seq *next_running(const struct weft_activity *activity,
                                                    uint32_t *at) {
    while (*at < activity->n_seqs) {
        const struct weft_activity_seq *seq = &activity->seqs[(*at)++];
        if (seq->phase != WEFT_ACTIVITY_WAITING) return seq;
    }
    return NULL;
}

static void write_task(const struct weft_activity_seq *seq, struct weft_writer *w) {
    write_uint(w, "id_task", seq->request_id);
    write_uint(w, "n_prompt_tokens", seq->n_prompt);
    write_uint(w, "n_prompt_tokens_processed", seq->n_prompt_done);
    weft_write_key(w, "next_token");
    weft_write_list(w);
    weft_write_map(w);
    write_bool(w, "has_next_token", seq->n_output < seq->max_tokens);
    write_uint(w, "n_remain",
               seq->n_output < seq->max_tokens ? seq->max_tokens - seq->n_output : 0);
    write_uint(w, "n_decoded", seq->n_output);
    weft_write_end(w);
    weft_write_end(w);
}

/* Places are all alike, and sequences have no fixed ones: those that run have the first ones. */
void wefti_api_write_slots(const struct weft_api_state *api, struct weft_writer *w) {
    const struct weft_msg_snapshot *s = &api->upstream.snapshot;
    uint32_t n = n_slots(api), at = 0;
    weft_write_list(w);
    for (uint32_t i = 0; i < n; i++) {
        const struct weft_activity_seq *seq = next_running(&s->activity, &at);
        weft_write_map(w);
        write_uint(w, "id", i);
        write_uint(w, "n_ctx", api->limits.max_model_len);
        write_bool(w, "speculative", false);
        write_bool(w, "is_processing", seq || i < s->n_running);
        if (seq) write_task(seq, w);
        weft_write_end(w);
    }
    weft_write_end(w);
}
