#include "api/adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/utf8.h"
#include "call/call_internal.h"
#include "codec/digest.h"
#include "names.h"

/* ----------------------------------------------------------------------------------- copies --- */

static void list_free(struct weft_api_adapter_list *list) {
    for (uint32_t i = 0; i < list->n; i++) {
        free(list->items[i].name);
        free(list->items[i].path);
    }
    free(list);
}

const struct weft_api_adapter_list *wefti_api_adapters_hold(struct weft_api_state *api) {
    if (api->adapters.list) api->adapters.list->n_holders++;
    return api->adapters.list;
}

void wefti_api_adapters_let_go(const struct weft_api_adapter_list *held) {
    struct weft_api_adapter_list *list = (struct weft_api_adapter_list *)held; /* ours */
    if (!list) return;
    WEFT_ASSERT(list->n_holders > 0);
    if (--list->n_holders == 0) list_free(list);
}

static bool is_offered(const struct weft_api_adapter *adapter) {
    return adapter->is_ready && !adapter->is_leaving;
}

/* Without memory the old copy stays: a name more or less until the next change. */
static void renew_list(struct weft_api_state *api) {
    struct weft_api_adapters *a = &api->adapters;
    struct weft_api_adapter_list *list =
        calloc(1, sizeof *list + a->n * sizeof(struct weft_api_adapter_item));
    bool is_whole = list != NULL;
    for (uint32_t i = 0; i < a->n && is_whole; i++) {
        const struct weft_api_adapter *from = a->all[i];
        if (!is_offered(from)) continue;
        struct weft_api_adapter_item *item = &list->items[list->n++];
        *item = (struct weft_api_adapter_item){.name = strdup(from->name),
                                               .path = strdup(from->path),
                                               .id = from->id,
                                               .digest = from->digest};
        is_whole = item->name && item->path;
    }
    if (!is_whole) {
        if (list) list_free(list);
        weft_warn("no memory for a new list of adapters");
        return;
    }
    list->n_holders = 1;
    wefti_api_adapters_let_go(a->list);
    a->list = list;
    api->limits.adapters = list;
}

const struct weft_api_adapter_item *wefti_api_adapter_find(const struct weft_api_adapter_list *list,
                                                           const char *name, size_t len) {
    for (uint32_t i = 0; list && i < list->n; i++) {
        const char *known = list->items[i].name;
        if (strlen(known) == len && memcmp(known, name, len) == 0) return &list->items[i];
    }
    return NULL;
}

/* ------------------------------------------------------------------------------- the table --- */

static void adapter_free(struct weft_api_adapter *adapter) {
    if (!adapter) return;
    free(adapter->name);
    free(adapter->path);
    free(adapter);
}

static struct weft_api_adapter *find(const struct weft_api_adapters *a, uint64_t id) {
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->all[i]->id == id) return a->all[i];
    }
    return NULL;
}

static struct weft_api_adapter *find_name(const struct weft_api_adapters *a, const char *name) {
    for (uint32_t i = 0; i < a->n; i++) {
        if (!a->all[i]->is_leaving && strcmp(a->all[i]->name, name) == 0) return a->all[i];
    }
    return NULL;
}

/* NULL: no memory. */
static struct weft_api_adapter *add(struct weft_api_adapters *a, const char *name,
                                    const char *path) {
    struct weft_api_adapter *adapter = calloc(1, sizeof *adapter);
    if (!a->all) a->all = calloc(WEFT_LORAS_MAX, sizeof(struct weft_api_adapter *));
    if (adapter) {
        adapter->name = strdup(name);
        adapter->path = strdup(path);
    }
    if (!a->all || !adapter || !adapter->name || !adapter->path || a->n == WEFT_LORAS_MAX) {
        adapter_free(adapter);
        return NULL;
    }
    a->all[a->n++] = adapter;
    return adapter;
}

static void drop(struct weft_api_adapters *a, struct weft_api_adapter *adapter) {
    uint32_t i = 0;
    while (a->all[i] != adapter)
        i++;
    WEFT_ASSERT(i < a->n);
    memmove(a->all + i, a->all + i + 1, (--a->n - i) * sizeof(struct weft_api_adapter *));
    adapter_free(adapter);
}

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
    if (find_name(a, name) || wefti_api_is_model(&api->limits, name, n_name))
        return weft_err_set(why, WEFT_E_INVAL, "--lora: there are two models of the name %s", name);
    struct weft_api_adapter *adapter = add(a, name, path);
    if (!adapter) return weft_err_set(why, WEFT_E_NOMEM, "--lora: no memory for %s", name);
    /* The same for a router that starts anew, so that workers keep it meanwhile. */
    adapter->id = weft_digest_u64("adapter", line, len);
    adapter->is_first = true;
    return WEFT_OK;
}

weft_err weft_api_adapters_begin(struct weft_api_state *api, const char *lines,
                                 struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    for (const char *at = lines; at && *at && !err;) {
        size_t len = strcspn(at, "\n");
        err = add_line(api, at, len, why);
        at += len + (at[len] == '\n');
    }
    return err;
}

void wefti_api_adapters_fini(struct weft_api_state *api) {
    struct weft_api_adapters *a = &api->adapters;
    for (uint32_t i = 0; i < a->n; i++)
        adapter_free(a->all[i]);
    free(a->all);
    wefti_api_adapters_let_go(a->list);
    *a = (struct weft_api_adapters){0};
}

bool weft_api_adapters_are_ready(const struct weft_api_state *api, const char **failure_out) {
    const struct weft_api_adapters *a = &api->adapters;
    *failure_out = a->failure.text[0] ? a->failure.text : NULL;
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->all[i]->is_first && !a->all[i]->is_ready) return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------- schedulers --- */

static void tell(struct weft_api_state *api, uint32_t scheduler,
                 const struct weft_api_adapter *adapter) {
    struct weft_msg msg = {.type = WEFT_MSG_ADD_LORA};
    msg.add_lora = (struct weft_msg_add_lora){adapter->id, adapter->digest, adapter->path};
    wefti_api_upstream_tell(&api->upstream, scheduler, &msg);
}

void wefti_api_adapters_linked(struct weft_api_state *api, uint32_t scheduler) {
    for (uint32_t i = 0; i < api->adapters.n; i++)
        tell(api, scheduler, api->adapters.all[i]);
}

static void take_back(struct weft_api_state *api, struct weft_api_adapter *adapter) {
    struct weft_msg msg = {.type = WEFT_MSG_REMOVE_LORA};
    msg.remove_lora.id = adapter->id;
    for (uint32_t i = 0; i < api->upstream.n_schedulers; i++)
        wefti_api_upstream_tell(&api->upstream, i, &msg);
    drop(&api->adapters, adapter);
}

static void on_failure(struct weft_api_state *api, struct weft_api_adapter *adapter,
                       const char *text) {
    struct weft_api_adapters *a = &api->adapters;
    weft_api_call *waiting = adapter->waiting;
    bool was_ready = adapter->is_ready;
    adapter->waiting = NULL;
    if (adapter->is_first && !was_ready)
        (void)snprintf(a->failure.text, sizeof a->failure.text, "--lora %s: %.400s", adapter->name,
                       text);
    else
        weft_warn("adapter %s is not there%s: %s", adapter->name, was_ready ? " any more" : "",
                  text);
    take_back(api, adapter);
    if (was_ready) renew_list(api);
    if (!waiting) return;
    struct weft_api_error error = {0};
    weft_api_error_set(&error, 400, "lora_path", "invalid_adapter", "%s", text);
    wefti_api_call_finish(waiting, &error);
}

void wefti_api_adapters_told(struct weft_api_state *api, const struct weft_msg_lora *lora) {
    struct weft_api_adapter *adapter = find(&api->adapters, lora->id);
    if (!adapter) return; /* taken back meanwhile */
    if (!lora->is_there) {
        on_failure(api, adapter, lora->text);
        return;
    }
    if (adapter->is_ready) return;
    weft_api_call *waiting = adapter->waiting;
    adapter->waiting = NULL;
    adapter->is_ready = true;
    adapter->digest = lora->digest;
    weft_info("adapter %s is loaded: %llu bytes", adapter->name, (unsigned long long)lora->bytes);
    renew_list(api);
    if (waiting) wefti_api_call_finish(waiting, NULL);
}

/* ---------------------------------------------------------------------------------- clients --- */

bool wefti_api_adapters_load(struct weft_api_state *api, weft_api_call *call, const char *name,
                             const char *path, struct weft_api_error *error) {
    struct weft_api_adapters *a = &api->adapters;
    size_t len = strlen(name), n_path = strlen(path);
    if (!is_fit_name(name, len))
        weft_api_error_set(error, 400, "lora_name", NULL,
                           "'lora_name' must have 1 to %d bytes, and no comma",
                           WEFT_API_ADAPTER_NAME_BYTES_MAX);
    else if (n_path == 0 || n_path > WEFT_API_ADAPTER_PATH_BYTES_MAX)
        weft_api_error_set(error, 400, "lora_path", NULL, "'lora_path' must have 1 to %d bytes",
                           WEFT_API_ADAPTER_PATH_BYTES_MAX);
    else if (find_name(a, name) || wefti_api_is_model(&api->limits, name, len))
        weft_api_error_set(error, 400, "lora_name", "already_loaded",
                           "a model of the name '%s' is there already", name);
    else if (a->n == WEFT_LORAS_MAX)
        weft_api_error_set(error, 400, "lora_name", "too_many_adapters",
                           "there are %d adapters, and no more may be", WEFT_LORAS_MAX);
    if (error->status) return false;
    struct weft_api_adapter *adapter = add(a, name, path);
    if (!adapter) {
        weft_api_error_set(error, 500, NULL, NULL, "out of memory");
        return false;
    }
    do
        adapter->id = weft_rand_seed();
    while (find(a, adapter->id) != adapter);
    adapter->waiting = call;
    for (uint32_t i = 0; i < api->upstream.n_schedulers; i++)
        tell(api, i, adapter);
    return true;
}

bool wefti_api_adapters_unload(struct weft_api_state *api, const char *name,
                               struct weft_api_error *error) {
    struct weft_api_adapter *adapter = find_name(&api->adapters, name);
    if (!adapter || !adapter->is_ready) {
        char quoted[160];
        weft_api_quote(name, strlen(name), quoted, sizeof quoted);
        weft_api_error_set(error, 404, "lora_name", "model_not_found", "there is no adapter '%s'",
                           quoted);
        return false;
    }
    adapter->is_leaving = true;
    renew_list(api);
    if (adapter->n_calls == 0) take_back(api, adapter);
    return true;
}

void wefti_api_adapters_forget_call(struct weft_api_state *api, const weft_api_call *call) {
    for (uint32_t i = 0; i < api->adapters.n; i++) {
        if (api->adapters.all[i]->waiting == call) api->adapters.all[i]->waiting = NULL;
    }
}

void wefti_api_adapters_use(struct weft_api_state *api, const struct weft_step_adapter *adapters,
                            uint32_t n, bool begins) {
    for (uint32_t i = 0; i < n; i++) {
        struct weft_api_adapter *adapter = find(&api->adapters, adapters[i].id);
        if (!adapter) continue; /* it failed meanwhile */
        WEFT_ASSERT(begins || adapter->n_calls > 0);
        adapter->n_calls += begins ? 1 : UINT32_MAX;
        if (adapter->is_leaving && adapter->n_calls == 0) take_back(api, adapter);
    }
}

bool wefti_api_adapters_have(const struct weft_api_state *api,
                             const struct weft_step_adapter *adapters, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (!find(&api->adapters, adapters[i].id)) return false;
    }
    return true;
}
