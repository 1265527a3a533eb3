/* dry_sequence_breakers as tokens: of each the last one that it has behind a letter, as in
 * text-generation-webui, where DRY comes from. So a break is told as it stands within a text. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "call/prepare.h"

static void add(weft_api_call *call, struct weft_str breaker) {
    char text[API_DRY_BREAKER_BYTES_MAX + 1] = "a";
    struct params *p = &call->params;
    struct weft_errmsg why = {""};
    uint32_t *ids = NULL;
    size_t n = 0;
    WEFT_ASSERT(breaker.len < sizeof text);
    memcpy(text + 1, breaker.data, breaker.len);
    const struct weft_tok_input input = {
        {text, breaker.len + 1}, WEFT_TOK_PARSE_SPECIAL, API_DRY_BREAKER_BYTES_MAX + 1};
    weft_err err = weft_tok_encode(call->api->tok, &input, &ids, &n, &why);
    if (err == WEFT_E_NOMEM)
        weft_api_error_set(&call->error, 500, NULL, NULL, "out of memory");
    else if (err || n == 0)
        weft_api_error_set(&call->error, 400, "dry_sequence_breakers", NULL,
                           "'dry_sequence_breakers' cannot be tokens: %s",
                           why.text[0] ? why.text : "a string has none");
    else if (ids[n - 1] < call->limits.n_vocab || call->limits.n_vocab == 0)
        p->breakers[p->sampling.n_dry_breakers++] = ids[n - 1]; /* others never come */
    free(ids);
}

void wefti_api_encode_dry_breakers(weft_api_call *call) {
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    struct params *p = &call->params;
    const json_t *item;
    size_t i;
    p->sampling.dry_breakers = p->breakers;
    p->sampling.n_dry_breakers = 0;
    for (i = 0; !p->breakers_wanted && i < sizeof usual / sizeof usual[0]; i++) {
        if (!call->error.status) add(call, (struct weft_str){usual[i], strlen(usual[i])});
    }
    json_array_foreach(p->breakers_wanted, i, item) {
        const struct weft_str text = {json_string_value(item), json_string_length(item)};
        if (!call->error.status) add(call, text);
    }
}
