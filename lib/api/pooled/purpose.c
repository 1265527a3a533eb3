/* What the model is served for. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"

static bool find_word(const weft_tokenizer *tok, const char *word, uint32_t *id_out) {
    struct weft_errmsg why;
    const struct weft_tok_input input = {{word, strlen(word)}, 0, 2};
    uint32_t *ids = NULL;
    size_t n = 0;
    weft_err err = weft_tok_encode(tok, &input, &ids, &n, &why);
    bool is_one = !err && n == 1;
    if (is_one) *id_out = ids[0];
    free(ids);
    return is_one;
}

weft_err weft_api_set_purpose(struct weft_api_state *api, struct weft_model_pooling *pooling,
                              const char *runner, struct weft_errmsg *why) {
    struct weft_api_purpose *purpose = &api->limits.purpose;
    WEFT_ASSERT(api->tok && !api->pooling && pooling);
    api->pooling = pooling;
    purpose->model = pooling;
    purpose->task = pooling->task;
    if (strcmp(runner, "generate") == 0) {
        if (!pooling->generates)
            return weft_err_set(
                why, WEFT_E_INVAL,
                "--runner generate: this model cannot generate text, it reads texts "
                "whole");
        purpose->task = WEFT_MODEL_GENERATES;
    } else if (strcmp(runner, "pooling") == 0 && purpose->task == WEFT_MODEL_GENERATES) {
        purpose->task = WEFT_MODEL_EMBEDS;
    }
    purpose->judges = pooling->judges && find_word(api->tok, "yes", &purpose->yes_id) &&
                      find_word(api->tok, "no", &purpose->no_id);
    return WEFT_OK;
}
