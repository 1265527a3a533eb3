/* Which adapters a request has: the one that "model" names, then those that llama-server's "lora" lists by
 * their numbers in GET /lora-adapters. */
#include <math.h>

#include "api/adapters.h"
#include "params/params_internal.h"

#define STRENGTH_MAX 1000.0

static void add(const struct reader *r, struct params *params, uint64_t id, double scale) {
    if (params->n_adapters == WEFT_SEQ_ADAPTERS_MAX) {
        weft_api_error_set(r->error, 400, "lora", NULL, "a request may have at most %d adapters",
                           WEFT_SEQ_ADAPTERS_MAX);
        return;
    }
    params->adapters[params->n_adapters++] =
        (struct weft_step_adapter){.id = id, .scale = (float)scale};
}

static void read_item(const struct reader *r, const struct weft_api_limits *limits, json_t *item,
                      struct params *params) {
    const struct weft_api_adapter_list *list = limits->adapters;
    struct fields_known known = {.n = 0};
    int64_t number = -1;
    double scale = 1;
    if (!json_is_object(item)) {
        weft_api_error_set(r->error, 400, "lora", NULL,
                           "each entry of 'lora' must be an object, got %s",
                           wefti_api_json_type_name(item));
        return;
    }
    if (limits->n_adapters_awaited > 0) {
        weft_api_error_no_adapters_yet(r->error);
        return;
    }
    struct reader of_item = wefti_api_json_within(r, item, &known);
    if (!list || list->n == 0) {
        weft_api_error_set(r->error, 400, "lora", NULL, "this server has no adapters");
        return;
    }
    if (!wefti_api_json_get_int(&of_item, "id", 0, WEFT_LORAS_MAX - 1, &number) &&
        wefti_api_json_ok(&of_item))
        weft_api_error_set(r->error, 400, "lora", NULL, "an entry of 'lora' has no 'id'");
    (void)wefti_api_json_get_double(&of_item, "scale", -STRENGTH_MAX, STRENGTH_MAX, &scale);
    if (!wefti_api_json_ok(&of_item)) return;
    const struct weft_api_adapter_item *named = wefti_api_adapter_numbered(list, number);
    if (named)
        add(r, params, named->id, scale);
    else
        weft_api_error_set(r->error, 400, "lora", NULL, "no adapter has the 'id' %lld",
                           (long long)number);
}

void wefti_api_params_read_adapters(const struct reader *r, const struct weft_api_limits *limits,
                                    struct params *params) {
    const json_t *model = wefti_api_json_get(r, "model"), *lora = wefti_api_json_get(r, "lora");
    const struct weft_api_adapter_item *named = NULL;
    if (json_is_string(model))
        named = wefti_api_adapter_find(limits->adapters, json_string_value(model),
                                       json_string_length(model));
    if (named) {
        params->adapter_name = named->name;
        add(r, params, named->id, 1);
    }
    if (lora && !json_is_array(lora)) wefti_api_json_wrong_type(r, "lora", "a list", lora);
    for (size_t i = 0; i < json_array_size(lora) && wefti_api_json_ok(r); i++)
        read_item(r, limits, json_array_get(lora, i), params);
}
