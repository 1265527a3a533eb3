/* Opening a model beside another, step by step as the engine opens its own. */
#include "guess/beside.h"

static struct wefti_forward_config forward_config(const struct wefti_beside *beside) {
    return (struct wefti_forward_config){.kern = beside->kern,
                                         .pool = beside->pool,
                                         .weights = &beside->weights,
                                         .kv = &beside->kv,
                                         .model = beside->model,
                                         .max_batched_tokens = beside->max_rows,
                                         .max_model_len = beside->max_model_len,
                                         .home = beside->home,
                                         .exact = beside->options.activations == WEFT_ENG_ACT_F32};
}

/* As the target's, but for what belongs to that alone. */
static void take_options(struct wefti_beside *beside, const struct weft_eng_options *options) {
    beside->options = *options;
    beside->options.calib = NULL;
    beside->options.layer_dtypes = NULL;
    beside->options.n_layer_dtypes = 0;
    beside->options.expert_profile = NULL;
    beside->options.rank = 0;
    beside->options.n_ranks = 1;
    beside->options.coll = NULL;
    beside->options.weights_fd = -1;
    beside->options.on_loading = NULL;
}

weft_err wefti_beside_init(struct wefti_beside *beside, const char *path, weft_model *model,
                           const struct wefti_beside_host *host, struct weft_errmsg *why) {
    const struct weft_eng_info *info = host->info;
    *beside = (struct wefti_beside){.kern = host->kern,
                                    .pool = host->pool,
                                    .path = path,
                                    .model = model,
                                    .max_rows = info->max_batched_tokens,
                                    .max_model_len = info->max_model_len,
                                    .home = info->home};
    take_options(beside, host->options);
    return wefti_weights_lay_out(&beside->weights, model, &beside->options, &beside->plan, why);
}

void wefti_beside_close(struct wefti_beside *beside) {
    wefti_forward_free(beside->forward);
    wefti_kv_cache_close(&beside->kv);
    wefti_weights_plan_free(beside->plan);
    wefti_weights_close(&beside->weights);
    weft_model_free(beside->model);
    *beside = (struct wefti_beside){0};
}

weft_err wefti_beside_measure(const struct wefti_beside *beside,
                              struct wefti_beside_needs *needs_out, struct weft_errmsg *why) {
    const struct wefti_forward_config config = forward_config(beside);
    size_t scratch_bytes = 0;
    weft_err err =
        wefti_forward_measure(&config, beside->options.limit.bytes > 0, &scratch_bytes, why);
    *needs_out = (struct wefti_beside_needs){
        .weight_bytes = beside->weights.bytes,
        .to_come_bytes = wefti_weights_bytes_to_come(&beside->weights, beside->plan),
        .scratch_bytes = scratch_bytes,
        .block_bytes =
            wefti_kv_cache_block_bytes(weft_model_params(beside->model), &beside->options),
    };
    return err;
}

weft_err wefti_beside_open(struct wefti_beside *beside, const struct weft_eng_info *info,
                           struct weft_errmsg *why) {
    beside->max_model_len = info->max_model_len;
    weft_err err = wefti_kv_cache_open_beside(&beside->kv, weft_model_params(beside->model),
                                              &beside->options, info, why);
    if (err) return err;
    const struct wefti_forward_config config = forward_config(beside);
    return wefti_forward_new(&config, &beside->forward, why);
}

weft_err wefti_beside_load(struct wefti_beside *beside, struct weft_errmsg *why) {
    struct weft_eng_loading nobody = {0};
    weft_err err = wefti_weights_load(&beside->weights, beside->plan, beside->path, beside->model,
                                      beside->pool, &nobody, why);
    wefti_weights_plan_free(beside->plan);
    beside->plan = NULL;
    weft_model_free(beside->model);
    beside->model = NULL;
    return err;
}

void wefti_beside_copy(const struct wefti_beside *beside, const struct weft_step_copy *copy) {
    for (uint32_t l = 0; l < beside->kv.n_layers; l++)
        wefti_kv_cache_copy(&beside->kv, l, copy, 1);
}
