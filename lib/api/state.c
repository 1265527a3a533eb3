#include "api/api.h"

#include <jansson.h>
#include <string.h>

#include "base/check.h"
#include "codec/json_budget.h"
#include "store/store.h"

/* Request bodies held at once: room for several of the largest. */
#define HELD_BODIES 8
/* The same for output: room for a few requests at their bound; if that is set very low, still
 * enough for the ids of long streams. */
#define HELD_OUTPUTS 4
#define HELD_OUTPUT_BYTES_MIN (4u << 20)

/* One of so many parts of --request-memory is what the JSON of a short body may take while it is read: there may
 * be five of them, one in each thread. A long one may take all: ids and schemas are some ten times their text. */
#define SHORT_READINGS 4

/* Prompts cannot take what answers need, nor the other way round. */
static void set_budgets(struct weft_api_state *api) {
    const struct weft_api_settings *settings = &api->settings;
    uint64_t output_bytes = settings->max_logprob_bytes;
    if (output_bytes < HELD_OUTPUT_BYTES_MIN) output_bytes = HELD_OUTPUT_BYTES_MIN;
    api->held_max = HELD_BODIES * settings->max_body_bytes;
    api->output_max = HELD_OUTPUTS * output_bytes;
    api->small_bytes = WEFT_API_SMALL_BYTES;
    if (settings->request_bytes == 0) return;
    api->held_max = api->output_max = settings->request_bytes / 2;
    api->small_bytes = 0;
}

void weft_api_init(struct weft_api_state *api, const struct weft_api_settings *settings) {
    memset(api, 0, sizeof *api);
    api->settings = *settings;
    set_budgets(api);
    api->limits.max_prompts = WEFT_API_PROMPTS_MAX; /* until the scheduler says how many can wait */
    api->limits.max_logprob_bytes = settings->max_logprob_bytes;
    TAILQ_INIT(&api->parked);
    LIST_INIT(&api->parked_tenants);
    TAILQ_INIT(&api->background);
    weft_api_metrics_init(&api->metrics);
    json_object_seed(0);
    if (settings->request_bytes) weft_json_budget_use();
    if (!settings->responses_bytes) return;
    api->store =
        wefti_api_store_new(settings->responses_bytes, (uint64_t)settings->responses_ttl_s * 1000);
    WEFT_ASSERT(api->store); /* at the start there is memory */
}

weft_err weft_api_set_template(struct weft_api_state *api, char *source, const char *parser,
                               struct weft_errmsg *why) {
    WEFT_ASSERT(api->tok && !api->chat && !api->chat_source);
    api->chat_source = source;
    if (source) {
        struct weft_tmpl_specials specials = {weft_tok_bos_token(api->tok),
                                              weft_tok_eos_token(api->tok)};
        weft_err err = weft_tmpl_new(source, strlen(source), &specials, &api->chat, why);
        if (err) return err;
    }
    return weft_api_learn_dialect(api->chat, source, api->tok, parser, &api->dialect, why);
}

void weft_api_fini(struct weft_api_state *api) {
    WEFT_ASSERT(api->held_bytes == 0 && api->output_bytes == 0);
    WEFT_ASSERT(TAILQ_EMPTY(&api->parked) && api->n_parked_prompts == 0);
    WEFT_ASSERT(LIST_EMPTY(&api->parked_tenants));
    WEFT_ASSERT(TAILQ_EMPTY(&api->background) && api->n_background_jobs == 0);
    weft_api_metrics_fini(&api->metrics);
    weft_tmpl_free(api->chat);
    free(api->chat_source);
    weft_tok_free(api->tok);
    weft_model_pooling_free(api->pooling);
    wefti_api_store_free(api->store);
    wefti_api_adapters_fini(api);
    free(api->model_names_text);
    weft_api_keys_fini(&api->keys);
}

static const char *why_not(const struct weft_api_state *api, uint64_t now_ms, uint64_t age_ms_max) {
    const struct weft_api_upstream *upstream = &api->upstream;
    if (api->draining) return "the server is shutting down";
    if (!upstream->has_snapshot) return "the server is starting";
    if (!upstream->is_up) return "the scheduler is restarting";
    if (now_ms > upstream->snapshot_at_ms + age_ms_max) return "the scheduler does not answer";
    if (upstream->snapshot.draining) return "the scheduler is shutting down";
    if (!upstream->snapshot.serving || !upstream->snapshot.has_model)
        return upstream->snapshot.n_worker_losses == 0
                   ? "the model is being loaded"
                   : "the model is being loaded again: a worker died";
    if (api->limits.n_adapters_awaited > 0) return "adapters are being loaded";
    return NULL;
}

const char *weft_api_why_not(const struct weft_api_state *api, uint64_t now_ms) {
    return why_not(api, now_ms, WEFT_API_SNAPSHOT_AGE_MS_MAX);
}

bool weft_api_is_back_soon(const struct weft_api_state *api, uint64_t now_ms) {
    const struct weft_api_upstream *upstream = &api->upstream;
    if (api->draining || upstream->snapshot.draining || upstream->served_at_ms == 0) return false;
    if (api->limits.n_adapters_awaited > 0) return false; /* what requests name is not known yet */
    return now_ms < upstream->served_at_ms + api->settings.restart_grace_ms;
}

const char *weft_api_why_ill(const struct weft_api_state *api, uint64_t now_ms) {
    const char *why = why_not(api, now_ms, WEFT_API_HEALTHY_AGE_MS_MAX);
    if (!why && api->is_leaving) why = "the server is shutting down";
    if (!why && !api->upstream.snapshot.advancing) why = "the worker makes no progress";
    return why;
}

uint64_t weft_api_cost(const struct weft_api_state *api, uint64_t n) {
    return n > api->small_bytes ? n : 0;
}

size_t weft_api_reading_bytes(const struct weft_api_state *api, size_t n) {
    uint64_t bytes = api->settings.request_bytes;
    if (bytes == 0) return SIZE_MAX;
    return n > WEFT_API_SHORT_BODY_BYTES ? bytes : bytes / SHORT_READINGS;
}

static bool hold(uint64_t *held, uint64_t max, uint64_t n) {
    if (n > max || *held > max - n) return false;
    *held += n;
    return true;
}

static void release(uint64_t *held, uint64_t n) {
    WEFT_ASSERT(*held >= n);
    *held -= n;
}

bool weft_api_hold(struct weft_api_state *api, uint64_t n) {
    return hold(&api->held_bytes, api->held_max, n);
}

void weft_api_release(struct weft_api_state *api, uint64_t n) {
    release(&api->held_bytes, n);
}

bool weft_api_hold_output(struct weft_api_state *api, uint64_t n) {
    return hold(&api->output_bytes, api->output_max, n);
}

void weft_api_release_output(struct weft_api_state *api, uint64_t n) {
    release(&api->output_bytes, n);
}

void weft_api_set_keys(struct weft_api_state *api, struct weft_api_keys *keys) {
    weft_api_keys_fini(&api->keys);
    api->keys = *keys;
    api->n_key_changes++;
    memset(keys, 0, sizeof *keys);
}

bool weft_api_admits(const struct weft_api_state *api, const char *text, size_t len,
                     const struct weft_api_key **key_out) {
    *key_out = weft_api_keys_find(&api->keys, text, len);
    return *key_out || api->keys.n == 0;
}

bool weft_api_is_admin(const struct weft_api_state *api, const struct weft_api_key *key) {
    if (!key) return api->keys.n == 0;
    return key->is_admin || !api->keys.has_admins;
}
