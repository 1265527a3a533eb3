/* `weft perplexity`: exp of the mean negative log-likelihood of a text; see score.h for the tokens
 * that are predicted. With --kl-divergence also the mean Kullback-Leibler divergence, in nats, from the
 * distributions that f32 arithmetic gives, and in how many places the likeliest token is the same. */
#include <stdio.h>

#include "commands.h"
#include "common/engine_config.h"
#include "common/loading.h"
#include "quantise.h"
#include "score.h"

/* The same model with its file's types, and nothing rounded on the way. */
static weft_err open_exact(const struct weft_config *config, const struct weft_eng_options *options,
                           weft_eng **eng_out, struct weft_errmsg *why) {
    struct weft_eng_options exact = *options;
    exact.dtype = WEFT_ENG_DT_AUTO;
    exact.scheme = WEFT_ENG_SCHEME_AUTO;
    exact.calib = NULL;
    exact.layer_dtypes = NULL;
    exact.n_layer_dtypes = 0;
    exact.activations = WEFT_ENG_ACT_F32;
    exact.kv_dtype = WEFT_ENG_KV_F32;
    exact.kv_memory_bytes = 0;
    exact.on_loading = NULL;
    return weft_eng_open(config->model, &exact, eng_out, why);
}

int weft_cmd_perplexity(const struct weft_config *given) {
    struct weft_errmsg why = {""};
    struct weft_config config = *given;
    struct weft_eng_options options;
    struct weft_loading loading = {0};
    weft_eng *eng = NULL, *exact = NULL;
    struct weft_score_text text = {0};
    struct weft_score score;
    struct weft_quant quant = {0};
    config.max_num_seqs = 1;
    if (config.max_model_len == 1)
        return weft_cmd_misuse(weft_err_set(&why, WEFT_E_INVAL,
                                            "--max-model-len 1 leaves nothing to predict: each "
                                            "token follows from those before it"),
                               &why);
    weft_err err = weft_engine_config(&config, &options, &why);
    if (!err) err = weft_cmd_check_model(config.model, &why);
    if (!err) err = weft_quant_choose(&config, &options, &quant, &why);
    if (!err) err = weft_score_read(config.model, config.prompt, &text, &why);
    if (!err) weft_loading_begin(&loading, &config, &options);
    if (!err) err = weft_eng_open(config.model, &options, &eng, &why);
    weft_loading_end(&loading);
    if (!err && config.kl_divergence) err = open_exact(&config, &options, &exact, &why);
    if (!err) err = weft_score_run(eng, exact, &text, text.n, &score, &why);
    if (err) goto cleanup;
    printf("perplexity %.6f nll %.9f tokens %llu\n", weft_score_perplexity(&score),
           score.nll / (double)score.n, (unsigned long long)score.n);
    if (exact)
        printf("divergence %.9f nats likeliest %.4f %%\n", score.divergence / (double)score.n,
               100.0 * (double)score.n_same / (double)score.n);
cleanup:
    weft_eng_free(exact);
    weft_eng_free(eng);
    weft_quant_fini(&quant);
    weft_score_text_fini(&text);
    return err ? weft_cmd_fail(err, &why) : 0;
}
