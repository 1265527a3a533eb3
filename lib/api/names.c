#include "names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "codec/digest.h"

#define QUOTED_BYTES 160 /* of a name that is wrong */
#define LISTED_BYTES 256 /* of all those that are right */

/* ------------------------------------------------------------------------------ what it has --- */

static weft_err add_name(struct weft_api_state *api, const char *name, struct weft_errmsg *why) {
    struct weft_api_limits *limits = &api->limits;
    if (!*name) return weft_err_set(why, WEFT_E_INVAL, "--served-model-name holds an empty name");
    if (!weft_utf8_valid(name, strlen(name)))
        return weft_err_set(why, WEFT_E_INVAL, "--served-model-name is not valid UTF-8");
    if (limits->n_model_names == WEFT_API_MODEL_NAMES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "--served-model-name holds more than %d names",
                            WEFT_API_MODEL_NAMES_MAX);
    if (!wefti_api_is_model(limits, name, strlen(name)))
        api->model_names[limits->n_model_names++] = name;
    return WEFT_OK;
}

weft_err weft_api_name_model(struct weft_api_state *api, const char *names,
                             struct weft_errmsg *why) {
    struct weft_api_limits *limits = &api->limits;
    WEFT_ASSERT(!api->model_names_text && limits->n_model_names == 0);
    api->model_names_text = strdup(names);
    if (!api->model_names_text) return weft_err_set(why, WEFT_E_NOMEM, "out of memory");
    limits->model_names = api->model_names;
    weft_err err = WEFT_OK;
    char *text = api->model_names_text;
    struct weft_str name;
    for (const char *at = text; !err && weft_parse_member(&at, ",", &name);) {
        text[name.data + name.len - text] = '\0'; /* of what separates it */
        err = add_name(api, name.data, why);
    }
    if (!err) limits->model_name = limits->model_names[0];
    return err;
}

bool wefti_api_is_model(const struct weft_api_limits *limits, const char *name, size_t len) {
    for (uint32_t i = 0; i < limits->n_model_names; i++) {
        const char *known = limits->model_names[i];
        if (strlen(known) == len && memcmp(known, name, len) == 0) return true;
    }
    return wefti_api_adapter_find(limits->adapters, name, len) != NULL;
}

/* ------------------------------------------------------------------------------- what it says --- */

/* Of the model, and after these of its adapters. */
static const char *name_at(const struct weft_api_limits *limits, uint32_t i) {
    if (i < limits->n_model_names) return limits->model_names[i];
    return limits->adapters->items[i - limits->n_model_names].name;
}

void wefti_api_no_such_model(const struct weft_api_limits *limits, const char *name, size_t len,
                             struct weft_api_error *error) {
    char wrong[QUOTED_BYTES], right[LISTED_BYTES], more[32] = "";
    size_t at = 0;
    uint32_t i = 0, n = limits->n_model_names + (limits->adapters ? limits->adapters->n : 0);
    if (limits->n_adapters_awaited > 0) {
        weft_api_error_no_adapters_yet(error);
        return;
    }
    weft_api_quote(name, len, wrong, sizeof wrong);
    right[0] = '\0';
    for (; i < n; i++) {
        char known[QUOTED_BYTES];
        weft_api_quote(name_at(limits, i), strlen(name_at(limits, i)), known, sizeof known);
        if (strlen(known) + sizeof ", ''" > sizeof right - at) break;
        at += (size_t)snprintf(right + at, sizeof right - at, "%s'%s'", i ? ", " : "", known);
    }
    if (i < n) (void)snprintf(more, sizeof more, " and %u more", n - i);
    weft_api_error_set(error, 404, "model", "model_not_found",
                       "The model '%s' does not exist; this server has %s%s.", wrong, right, more);
}

/* ---------------------------------------------------------------------------------- users --- */

uint64_t weft_api_flow(const char *name, size_t len) {
    return weft_digest_u64("flow", name, len);
}
