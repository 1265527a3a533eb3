#include "api/adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/table.h"
#include "api/api.h"
#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/utf8.h"
#include "call/call_internal.h"
#include "codec/digest.h"
#include "names.h"

/* Without blanks around it, and no name that would not fit into an answer or a list. */
static bool is_fit_name(const char *name, size_t len) {
    return len > 0 && len <= WEFT_API_ADAPTER_NAME_BYTES_MAX && weft_utf8_valid(name, len) &&
           name[0] != ' ' && name[len - 1] != ' ' && !memchr(name, ',', len);
}

static weft_err add_line(struct weft_api_state *api, const char *line, size_t len,
                         struct weft_errmsg *why) {
    struct weft_api_adapters *a = &api->adapters;
    const char *equals = memchr(line, '=', len);
    char name[WEFT_API_ADAPTER_NAME_BYTES_MAX + 1], path[WEFT_API_ADAPTER_PATH_BYTES_MAX + 1];
    size_t n_name = equals ? (size_t)(equals - line) : 0, n_path = equals ? len - n_name - 1 : 0;
    if (!is_fit_name(line, n_name) || n_path == 0 || n_path > WEFT_API_ADAPTER_PATH_BYTES_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "--lora: \"%.*s\" is not NAME=PATH",
                            (int)(len < 200 ? len : 200), line);
    (void)snprintf(name, sizeof name, "%.*s", (int)n_name, line);
    (void)snprintf(path, sizeof path, "%.*s", (int)n_path, equals + 1);
    if (wefti_api_adapters_find_name(a, name) || wefti_api_is_model(&api->limits, name, n_name))
        return weft_err_set(why, WEFT_E_INVAL, "--lora: there are two models of the name %s", name);
    struct weft_api_adapter *adapter = wefti_api_adapters_add(a, name, path);
    if (!adapter) return weft_err_set(why, WEFT_E_NOMEM, "--lora: no memory for %s", name);
    /* The same for a router that starts anew, so that workers keep it meanwhile. */
    adapter->id = weft_digest_u64("adapter", line, len);
    adapter->is_first = true;
    api->limits.n_adapters_awaited++;
    return WEFT_OK;
}

bool weft_api_adapters_are_ready(const struct weft_api_state *api, const char **failure_out) {
    const struct weft_api_adapters *a = &api->adapters;
    *failure_out = a->failure.text[0] ? a->failure.text : NULL;
    return api->limits.n_adapters_awaited == 0;
}

/* ------------------------------------------------------------------------------- schedulers --- */

static void tell(struct weft_api_state *api, uint32_t scheduler,
                 const struct weft_api_adapter *adapter) {
    struct weft_msg msg = {.type = WEFT_MSG_ADD_LORA};
    msg.add_lora = (struct weft_msg_add_lora){adapter->id, adapter->digest, adapter->path};
    wefti_api_upstream_tell(&api->upstream, scheduler, &msg);
}

static void on_link(struct weft_api_state *api, uint32_t scheduler) {
    for (uint32_t i = 0; i < api->adapters.n; i++)
        tell(api, scheduler, api->adapters.all[i]);
}

static void on_failure(struct weft_api_state *api, struct weft_api_adapter *adapter,
                       const char *text) {
    struct weft_api_adapters *a = &api->adapters;
    weft_api_call *waiting = adapter->waiting;
    bool was_ready = adapter->is_ready;
    adapter->waiting = NULL;
    if (adapter->is_first && !was_ready && !a->have_served)
        (void)snprintf(a->failure.text, sizeof a->failure.text, "--lora %s: %.400s", adapter->name,
                       text);
    else
        weft_warn("adapter %s is not there%s: %s", adapter->name, was_ready ? " any more" : "",
                  text);
    wefti_api_adapters_take_back(api, adapter);
    if (was_ready) wefti_api_adapters_renew(api);
    if (!waiting) return;
    struct weft_api_error error = {0};
    weft_api_error_set(&error, 400, "lora_path", "invalid_adapter", "%s", text);
    wefti_api_call_finish(waiting, &error);
}

static void offer(struct weft_api_state *api, struct weft_api_adapter *adapter) {
    weft_api_call *waiting = adapter->waiting;
    adapter->waiting = NULL;
    adapter->is_ready = true;
    if (adapter->is_first) api->limits.n_adapters_awaited--;
    weft_info("adapter %s is loaded: %llu bytes", adapter->name,
              (unsigned long long)adapter->bytes);
    wefti_api_adapters_renew(api);
    if (waiting) wefti_api_call_finish(waiting, NULL);
}

static void offer_complete_ones(struct weft_api_state *api) {
    for (uint32_t i = 0; i < api->adapters.n; i++) {
        struct weft_api_adapter *adapter = api->adapters.all[i];
        if (!adapter->is_ready && wefti_api_adapter_is_complete(api, adapter)) offer(api, adapter);
    }
}

static void on_unlink(struct weft_api_state *api, uint32_t scheduler) {
    for (uint32_t i = 0; i < api->adapters.n; i++)
        wefti_api_adapter_unlink(api->adapters.all[i], scheduler);
    offer_complete_ones(api);
}

static bool is_other(const struct weft_digest *known, const struct weft_digest *told) {
    return (known->hi | known->lo) != 0 && (known->hi != told->hi || known->lo != told->lo);
}

static void on_told(struct weft_api_state *api, uint32_t scheduler,
                    const struct weft_msg_lora *lora) {
    struct weft_api_adapter *adapter = wefti_api_adapters_find(&api->adapters, lora->id);
    const char *wrong = lora->text;
    if (!adapter) return; /* taken back meanwhile */
    if (lora->is_there && !is_other(&adapter->digest, &lora->digest)) {
        adapter->there |= 1u << scheduler;
        adapter->digest = lora->digest;
        adapter->bytes = lora->bytes;
        offer_complete_ones(api);
        return;
    }
    if (api->upstream.schedulers[scheduler].is_stranger) return; /* it has no requests */
    if (lora->is_there) wrong = "its files differ from those of another scheduler";
    if (!wefti_api_adapter_lose(api, adapter, scheduler, wrong)) on_failure(api, adapter, wrong);
}

static const struct weft_api_adapters_ops adapter_ops = {.linked = on_link,
                                                         .unlinked = on_unlink,
                                                         .told = on_told,
                                                         .reported = offer_complete_ones,
                                                         .lacking = wefti_api_adapters_lacking};

weft_err weft_api_adapters_begin(struct weft_api_state *api, const char *lines, bool have_served,
                                 struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    api->adapters.ops = &adapter_ops;
    api->adapters.have_served = have_served;
    for (const char *at = lines; at && *at && !err;) {
        size_t len = strcspn(at, "\n");
        err = add_line(api, at, len, why);
        at += len + (at[len] == '\n');
    }
    return err;
}

/* ---------------------------------------------------------------------------------- clients --- */

bool wefti_api_adapters_load(struct weft_api_state *api, weft_api_call *call, const char *name,
                             const char *path, struct weft_api_error *error) {
    struct weft_api_adapters *a = &api->adapters;
    size_t len = strlen(name), n_path = strlen(path);
    if (!is_fit_name(name, len))
        weft_api_error_set(
            error, 400, "lora_name", NULL,
            "'lora_name' must have 1 to %d bytes, no comma, and no blank at its ends",
            WEFT_API_ADAPTER_NAME_BYTES_MAX);
    else if (n_path == 0 || n_path > WEFT_API_ADAPTER_PATH_BYTES_MAX)
        weft_api_error_set(error, 400, "lora_path", NULL, "'lora_path' must have 1 to %d bytes",
                           WEFT_API_ADAPTER_PATH_BYTES_MAX);
    else if (wefti_api_adapters_find_name(a, name) || wefti_api_is_model(&api->limits, name, len))
        weft_api_error_set(error, 400, "lora_name", "already_loaded",
                           "a model of the name '%s' is there already", name);
    else if (a->n == WEFT_LORAS_MAX)
        weft_api_error_set(error, 400, "lora_name", "too_many_adapters",
                           "there are %d adapters, and no more may be", WEFT_LORAS_MAX);
    if (error->status) return false;
    struct weft_api_adapter *adapter = wefti_api_adapters_add(a, name, path);
    if (!adapter) {
        weft_api_error_set(error, 500, NULL, NULL, "out of memory");
        return false;
    }
    do
        adapter->id = weft_rand_seed();
    while (wefti_api_adapters_find(a, adapter->id) != adapter);
    adapter->waiting = call;
    for (uint32_t i = 0; i < api->upstream.n_schedulers; i++)
        tell(api, i, adapter);
    return true;
}

bool wefti_api_adapters_unload(struct weft_api_state *api, const char *name,
                               struct weft_api_error *error) {
    struct weft_api_adapter *adapter = wefti_api_adapters_find_name(&api->adapters, name);
    if (!adapter || !adapter->is_ready) {
        char quoted[160];
        weft_api_quote(name, strlen(name), quoted, sizeof quoted);
        weft_api_error_set(error, 404, "lora_name", "model_not_found", "there is no adapter '%s'",
                           quoted);
        return false;
    }
    adapter->is_leaving = true;
    wefti_api_adapters_renew(api);
    if (adapter->n_calls == 0) wefti_api_adapters_take_back(api, adapter);
    return true;
}
